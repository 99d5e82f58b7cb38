//! Both ends of authentication against each other, and against ends that lie.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod attacks;
mod conversation;
mod refusals;
