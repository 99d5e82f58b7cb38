//! Hosts that are attached directly: a virtual machine that sees a controller on its PCI bus, over
//! vfio-user.
//!
//! Owns the function (its registers, its interrupts, its queues in the host's memory) and the
//! client's socket. What a register means for the controller, and where its queues are served, is
//! decided by the reactor (`reactor/direct.rs`); a queue's link is in `link/ring.rs`.

mod client;
mod footing;
mod function;
mod interrupts;
mod listener;
mod memory;
mod reaper;

pub(crate) use client::{DirectClient, Left};
pub(crate) use function::{DirectFunction, Look, SharedFunction, lock};
pub(crate) use listener::DirectListener;
pub(crate) use memory::Unmapped;
pub(crate) use reaper::Reaper;
