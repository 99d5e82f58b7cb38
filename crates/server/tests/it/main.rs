//! A target as hosts see it, over loopback.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking; sizes are small"
)]

mod authentication;
mod bad_blocks;
mod bad_input;
mod concatenation;
mod config;
mod copies;
mod cross_controller_reset;
mod damage;
mod direct;
mod direct_drivers;
mod direct_function;
mod direct_hostile;
mod direct_reboots;
mod direct_registers;
mod direct_rig;
mod direct_unplugged;
mod drive_jobs;
mod drive_making;
mod drive_rig;
mod drive_trouble;
mod enclosure;
mod enclosure_crash;
mod enclosure_direct;
mod enclosure_drains;
mod enclosure_drives;
mod enclosure_rig;
mod fairness;
mod function_paths;
mod functions;
mod gate;
mod going_back;
mod heard;
mod hostile;
mod hosts;
mod identity;
mod limits;
mod loopback;
mod missing;
mod outdated;
mod pairs;
mod peers;
mod protection;
mod raw;
mod rdma;
mod rdma_hostile;
mod rdma_loss;
mod rdma_rig;
mod rdma_shared;
mod reload;
mod reload_rig;
mod reservations;
mod serve;
mod shares;
mod slow;
mod stepped;
mod stopping;
mod stored_keys;
mod storing;
mod tls;
mod together;
mod turns;
mod unbegun;
mod waiting;
mod watch;
mod zerocopy;
