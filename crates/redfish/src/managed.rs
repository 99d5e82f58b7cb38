//! What is managed, as this crate has it: the parts of the service, what a user sees of them
//! ([`limited`]) and a request at one moment ([`view`]), the identifiers in there, what is missing,
//! and subscriptions to what happens.
//!
//! Knows no area of the tree, and changes nothing but subscriptions: what a target can do is
//! `ebof_manage`'s.

mod limited;
pub(crate) mod missing;
pub(crate) mod names;
pub(crate) mod parts;
pub(crate) mod site;
pub(crate) mod subscriptions;
pub(crate) mod view;
