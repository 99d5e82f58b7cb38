//! Who sends a request, or logs in.

use std::net::SocketAddr;

use ebof_access::{Denied, User};

/// Who sends a request. Who they are was found out by the caller of the service.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The user; `None` without valid credentials.
    pub user: Option<User>,
    /// Whether credentials were sent that are not valid.
    pub refused: bool,
    /// Where the request comes from.
    pub peer: SocketAddr,
}

/// A login: an extension of the answer to it, for the log of whoever serves it.
#[derive(Clone, Debug)]
pub struct Login {
    /// The user name, as far as it is told to others.
    pub name: String,
    /// Why it was denied; `None`: a session was opened.
    pub denied: Option<Denied>,
}
