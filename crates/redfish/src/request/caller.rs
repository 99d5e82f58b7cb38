//! Who sends a request.

use std::net::SocketAddr;

use ebof_access::User;

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
