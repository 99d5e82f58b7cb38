//! Surveys of recorded machines, and changes of them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: a failure is a panic")]

mod changes;
mod recorded;
mod surveys;
