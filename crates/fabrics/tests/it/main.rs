//! The crate as a host sees it: commands in, completions and data out.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod admission;
mod ana;
mod announced;
mod any_sequence;
mod authentication;
mod commands;
mod concatenation;
mod copy;
mod cross_controller_reset;
mod crowd;
mod discovery;
mod drains;
mod events;
mod function_ports;
mod fused;
mod identify;
mod managed;
mod media_admin;
mod memory;
mod neighbours;
mod peers;
mod preferences;
mod protection;
mod replaced;
mod reserved;
mod returned;
mod support;
mod tls;
mod unproven;
