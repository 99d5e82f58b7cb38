//! Both ends against each other, against peers that break the rules, and against OpenSSL.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]
#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

mod handshakes;
mod hostile;
mod kernel;
mod openssl;
mod support;
mod transfers;
