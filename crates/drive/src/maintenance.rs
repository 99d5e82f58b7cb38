//! What hosts have a drive do to itself: firmware, sanitize, self-test.

pub mod firmware;
pub mod sanitize;
pub mod self_test;
