//! What requests have in common: who sends them, query parameters, the properties of bodies.
//!
//! Knows addresses and messages, and not the target. What a request comes to is said and done in
//! [`crate::area`]; the order of checks is [`crate::service`]'s.

pub(crate) mod caller;
pub(crate) mod input;
pub(crate) mod query;
