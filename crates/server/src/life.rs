//! A target's life: it starts from a configuration, serves, is changed to another configuration,
//! and stops.
//!
//! Owns the control thread, what is opened and what is missing, changes as transactions, and
//! [`serve::Target`], with all that can be asked of it while it runs. What its connections do is
//! the reactors' matter; changes of a box with drives are made in [`crate::enclosure`].

pub(crate) mod contradictions;
pub(crate) mod control;
pub(crate) mod functions;
pub(crate) mod hanging;
mod host_ids;
pub(crate) mod in_force;
pub(crate) mod interrupted;
pub(crate) mod keys;
pub(crate) mod liveness;
mod looking;
mod missing;
mod object;
mod readiness;
pub(crate) mod reload;
pub(crate) mod serve;
pub(crate) mod startup;
pub(crate) mod status;
pub(crate) mod stepped;
mod stored;
mod threads;
pub(crate) mod unfinished;
mod watched;
