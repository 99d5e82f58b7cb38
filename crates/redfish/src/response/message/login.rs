//! What an answer tells whoever serves it, beside what it tells the client.

use ebof_access::Denied;

/// A login: an extension of the answer to it, for the log of whoever serves it.
#[derive(Clone, Debug)]
pub struct Login {
    /// The user name, as far as it is told to others.
    pub name: String,
    /// Why it was denied; `None`: a session was opened.
    pub denied: Option<Denied>,
}
