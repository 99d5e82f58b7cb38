//! Tests of the RDMA devices of this machine, which most machines do not have: they are ignored
//! unless they are asked for, as `tests/vm` does in a guest with soft-RoCE and soft-iWARP.
//! They use the first address of a device that is active, or that of `EBOF_RDMA_ADDRESS`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "test code")]

mod allocation;
mod connections;
mod ends;
mod failures;
mod memory;
mod messages;
mod removal;
mod windows;
