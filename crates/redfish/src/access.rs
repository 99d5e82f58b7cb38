//! Who may use the service, and how they know it: accounts and roles, sessions, the certificate of
//! HTTPS; and by which keys hosts prove who they are.
//!
//! Passwords, tokens and the throttling of logins are `ebof_access`'s; which privilege an address
//! needs is said at the address ([`crate::place`]).

mod accounts;
mod certificates;
mod keys;
pub(crate) mod sessions;
