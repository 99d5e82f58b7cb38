//! The target's I/O: threads, sockets and buffers.
//!
//! Drives a transport core (`ebof_tcp`) and the meaning of commands (`ebof_fabrics`) over block
//! devices (`ebof_backend`). Owns everything that blocks, waits or is shared between threads;
//! decides nothing about NVMe.
//!
//! # Modules
//!
//! A folder imports from those on lower layers only, and its file of the same name
//! (`server/link.rs` for `server/link`) says what it owns. `cargo xtask tidy` compares this table
//! with the code.
//!
//! | layer | folder | what is in it | and what is not |
//! |---|---|---|---|
//! | 9 | `server/lib.rs` | what the crate offers | |
//! | 8 | `enclosure` | tasks that change a box with drives while it runs | what is legal: `manage/enclosure.rs` |
//! | 7 | `life` | start, control thread, changes of the configuration, what is missing, stop; `Target`, `SteppedTarget` | |
//! | 6 | `reactor` | a thread that owns queue pairs; admission, connections | |
//! | 5 | `commands` | a command from the queue's decision to its completion; Connect and the end of a queue; buffers, devices, requests to the drive | how bytes move |
//! | 4 | `link` | a connection's bytes and rings over each transport | what a command means |
//! | 4 | `report` | figures as others see them: metrics, history | counting |
//! | 3 | `shared` | what threads share, and how they reach each other: mailboxes, shares of hosts and functions, buffers; what is reported, in words | |
//! | 2 | `drives` | the drives' threads, the table of devices, what hosts are shown of drives | a drive's state: `crates/drive` |
//! | 2 | `ports` | listeners and their sockets, what a port offers, peers | accepting |
//! | 1 | `direct` | virtual machines: registers, interrupts, the client's socket | their queues: `server/link/ring.rs` |
//! | 1 | `environment` | what a target is given: settings, clock, storage, network, stored objects, keys | |
//! | 1 | `observe` | what threads note: counters, slow commands, troubles, limits of the log | |
//!
//! # Threads
//!
//! - **Reactors** (`Reactor::run`): one per processor (`--pin` binds each to its own). A reactor
//!   owns its connections, an `Io` with all requests at devices, and a pool of buffers. It waits on
//!   one epoll set: sockets, the `Io`'s descriptor, its mailbox. Each connection has a fair share
//!   of a turn (`Fairness::share`). Without work it spins for 50 us, or longer if wake-ups are late
//!   (`Idle::step`, ADR 0023), yields now and then, and finally sleeps; beside programs that
//!   compute it does what brings most (ADR 0084).
//! - **Control thread** (`Control::run`): accepts connections, passes each to the reactor of the
//!   processor that receives its packets (`SO_INCOMING_CPU`), and enforces keep-alive time-outs. It
//!   does no I/O.
//! - **Tasks** ([`RunningEnclosure`]): a change of a running target (a function moves to another
//!   port, a drive is added) has a thread of its own until it has ended, and its objects for
//!   itself. It withholds a subsystem by a model, waits until the registry has no controller of it,
//!   asks the drive, and shows it again (ADR 0062). Clients see it through the control socket,
//!   whose thread only serves HTTP.
//! - **What is missing** (`Late`): a thread that exists only while a device, an address or an
//!   endpoint cannot be opened, and tries again (ADR 0087).
//! - **TLS** (`reactor/handshakes.rs`) and **exponents** (`shared/exponentiation.rs`): what proofs
//!   of identity cost is computed on two threads of lower priority, which begin with the first one.
//! - **Closing** (`direct/reaper.rs`): gives back the memory of virtual machines that have gone.
//! - **Sampler** (`sampling::run`): takes the counters of all queues once a second, and keeps what
//!   each object did (ADR 0071). Events are reported by whoever notices them (`Shared::report`), on
//!   control paths only.
//! - **Drives' threads** are those of `ebof_medium`: the requests to a drive are executed there
//!   (`server/drives/actor.rs`). `Drives` orders the changes that hosts are shown; its lock is
//!   taken before the registry's.
//! - **Stepped targets**: [`SteppedTarget`] has the same reactors, drives and deadlines without
//!   threads; its caller decides which of them runs next (ADR 0041). Time, randomness and storage
//!   come from its [`Environment`].
//!
//! The program (`crates/ebof`) adds one thread for HTTPS and its requests, up to 16 for what takes
//! locks or hashes passwords (ADR 0072), and one that makes changes of the configuration, whether
//! by SIGHUP or by clients of the control socket, one after the other (ADR 0069).
//!
//! # Memory and shared state
//!
//! - On the way of a command: drives in memory lock the chunk that they copy, namespaces of drives
//!   that hosts manage hold a read lock while they use the map of extents (`medium/thin.rs`), those
//!   with checksums or encryption also lock their blocks or allocate what undoes it, and functions
//!   that share a drive ask its scheduler (`server/shared/shares.rs`).
//! - `Registry`: the state that the queues of a controller share, behind one lock that only
//!   Connect, events, resets, time-outs and model changes take. It notifies a queue by a `Notice`
//!   through the reactor's mailbox. Models (`Model`) are immutable; a change is a new one
//!   (`Registry::replace_model`).
//! - Buffers are pieces of regions (ADR 0043), which direct I/O registers with its ring (ADR 0044).
//!   They are owned by the reactor's pool, by a command while it executes, or by the outbox until
//!   they are sent; with zero-copy send, until the kernel has reported that it is done (ADR 0017).
//! - Budgets: 64 MiB per connection, 512 MiB per reactor (`server/environment/settings.rs`), and a
//!   sixteenth of that for buffers that connections over RDMA keep between their commands
//!   (`Pool::keep`). A command that exceeds them waits, and its socket is not read.
//! - Huge pages are put under the chunks of memory drives by a thread (`region/chunk.rs`) that
//!   exists only while there are chunks without one (ADR 0066).
#![forbid(unsafe_code)]

mod commands;
mod direct;
mod drives;
mod enclosure;
mod environment;
mod life;
mod link;
mod observe;
mod ports;
mod reactor;
mod report;
mod shared;

/// Firmware images of drives, for those who make them.
pub mod firmware {
    pub use ebof_drive::firmware::{Image, ImageError, Personality};
}

pub use drives::DriveOpenError;
pub use enclosure::{Observer, RunningEnclosure};
pub use environment::fence::Fence;
pub use environment::keys::{KeyError, KeyPlaces};
pub use environment::making::{Making, backings};
pub use environment::remembered::TextStore;
pub use environment::settings::Settings;
pub use environment::stored_keys::{DamagedKeys, KeyStore, StoredKeys};
pub use environment::{Environment, RdmaNetwork, Storage};
pub use life::hanging::Hanging;
pub use life::interrupted::finish_interrupted;
pub use life::liveness::Silent;
pub use life::serve::{Target, TextError};
pub use life::startup::StartError;
pub use life::stepped::SteppedTarget;
pub use observe::stats::{Kind, KindTotals, Series, Totals};
pub use report::function_load::FunctionLoad;
pub use report::metrics::{Exposition, MetricsDetail};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
