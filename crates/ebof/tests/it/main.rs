//! The program as users, scripts and administrators see it.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking; sizes are small"
)]

mod audit;
mod bench;
mod completion;
#[path = "../../../server/tests/it/config.rs"]
mod config;
mod configuration;
mod damaged_drive;
mod damaged_state;
mod demo;
#[expect(dead_code, reason = "this guest does little")]
#[path = "../../../server/tests/it/direct_rig.rs"]
mod direct_rig;
mod dumped;
mod durability;
mod earlier;
mod edits;
mod examples;
mod host;
mod https;
mod idle;
mod key_advice;
mod keys;
mod library;
mod mdns;
mod missing;
mod monitoring;
mod paths;
mod persistent;
mod picture;
mod program;
mod qualify;
mod readme;
mod reload;
mod reservations;
mod restart;
mod rights;
mod server;
mod serving;
mod signals;
mod state;
mod supervised;
mod target;
mod terminal;
mod top;
mod two_targets;
mod what_happens;
