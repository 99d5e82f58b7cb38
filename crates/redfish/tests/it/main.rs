//! The Redfish service over a box of five drives that only notes what it is asked for.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod changes;
mod fixture;
mod hostile;
mod keys;
mod manager;
mod plans;
mod shape;
mod tenants;
mod tree;
