//! The state directory: what comes back after a crash, and what is refused.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod damaged;
mod faults;
mod full;
mod owners;
mod replaced;
