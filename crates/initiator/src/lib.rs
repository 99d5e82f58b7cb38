//! The host's I/O over NVMe/TCP and NVMe/RDMA: connect to a subsystem, run admin commands, own
//! queue pairs, read and write namespaces.
//!
//! ```no_run
//! use ebof_initiator::{Controller, Options};
//! use ebof_nvme::{Nsid, uri::Uri};
//!
//! let uri = Uri::parse("nvme+tcp://127.0.0.1:4420/nqn.2014-08.org.example:drive0")?;
//! let controller = Controller::connect(&Options::from_uri(&uri))?;
//! let namespace = controller.namespace(Nsid(1))?;
//! let mut block = vec![0; namespace.block_bytes() as usize];
//! namespace.read(0, &mut block)?;
//! controller.disconnect();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Layouts are in `ebof-nvme`, the protocols' state machines in `ebof-tcp` and `ebof-rdma`, RDMA's
//! queue pairs in `ebof-verbs`; this crate has the sockets, threads, timers and buffers. There is
//! no async runtime: a [`QueuePair`] belongs to one thread that submits and polls, and sleeps in
//! poll(2) when there is nothing to do. One background thread per controller serves the Admin
//! Queue.
//!
//! The target is not trusted: nothing that it sends can make the host panic, hang or allocate
//! without bound.
//!
//! # Modules
//!
//! A folder imports from those on lower layers only. `cargo xtask tidy` compares this table with
//! the code.
//!
//! | layer | folder | what is in it |
//! |---|---|---|
//! | 9 | `initiator/lib.rs` | what the crate offers |
//! | 8 | `queues` | the queues of a controller for many threads, and for async runtimes |
//! | 7 | `controller` | `Controller` and `Namespace`; the same without threads (`stepped`); the paths of a subsystem (`paths`) |
//! | 6 | `admin` | the background thread: Keep Alive, events, scans of the namespaces, aborts, reconnecting |
//! | 6 | `queue` | `QueuePair`: a queue in the hands of one thread, which connects it anew; the delayed doorbell |
//! | 5 | `connect` | from an address to a queue that takes commands; discovery |
//! | 4 | `engine` | the outstanding commands of one connection, their deadlines |
//! | 4 | `requeue` | commands that wait to be sent again: pauses, losses, when they have failed |
//! | 3 | `link` | a connection's bytes and work over each transport |
//! | 3 | `shared` | what handles, queue pairs and background thread share: state, inbox, events, open namespaces, queue maps |
//! | 2 | `command` | data and completions, slots, limits, retries, troubles |
//! | 2 | `options` | how and as whom to connect: options, what users set of them, transports, the host's identity |
//! | 1 | `error` | why a command failed, or a connection, in words and with what to do |
//! | 1 | `wait` | clock, waiting, waking, locks |
//!
//! # Threads
//!
//! - One background thread per controller serves the Admin Queue and reconnects, and one per path
//!   of a [`Subsystem`] looks after it (`initiator/controller/paths/keeper.rs`, ADR 0122); there is
//!   none if the host is stepped ([`stepped`], ADR 0040).
//! - A [`QueuePair`] belongs to its caller's thread, which submits and polls.
//! - [`Queues`] shares queue pairs between threads: each thread sends for itself, and one of those
//!   that wait receives for all (`initiator/queues/shared_queue.rs`, ADR 0014). If only futures
//!   wait, a thread does so for them, and another one serves their pauses
//!   (`initiator/queues/asynchronous/pause.rs`); over several paths one thread has the queues of
//!   all futures of a namespace (`initiator/queues/asynchronous/over_paths.rs`). Connecting from a
//!   task has a thread of its own.
#![forbid(unsafe_code)]

mod admin;
mod command;
mod connect;
mod controller;
mod engine;
mod error;
mod link;
mod options;
mod queue;
pub mod queues;
mod requeue;
mod shared;
mod wait;

pub use command::data::{AdminData, Completion, Data, IoBuffer, SubmitError};
pub use command::fate::Fate;
pub use command::limits::Limits;
pub use command::retry::{Retries, Retry};
pub use command::troubles::Trouble;
pub use connect::discover::{DiscoveryLog, Which, discover, discover_which};
pub use connect::reach::reach;
pub use controller::namespace::Namespace;
pub use controller::paths::calls::PathNamespace;
pub use controller::paths::connecting::{ConnectPathsError, UnreachablePath, split_paths};
pub use controller::paths::lanes::Lanes;
pub use controller::paths::path::PathId;
pub use controller::paths::policy::PathPolicy;
pub use controller::paths::queue::PathQueue;
pub use controller::paths::reservations::{PathReservations, ReservationRegistrant, Reservations};
pub use controller::paths::sameness::AddPathError;
pub use controller::paths::{PATHS_MAX, PathReport, Subsystem};
pub use controller::reauthenticate::Reauthenticated;
pub use controller::{Controller, WeakController, stepped};
pub use ebof_tls::RecordsBy;
pub use error::connect_error::{ConnectError, ConnectErrorKind, Step, Tried};
pub use error::state::State;
pub use error::{Error, Loss, NotConnected, PathsDiffer};
pub use options::keys::{KeySource, KeyText, PskSource, Tls, key_lines};
pub use options::overrides::Overrides;
pub use options::transport::{Dialer, Transport};
pub use options::{Options, host, overrides};
pub use queue::QueuePair;
pub use queues::Queues;
pub use queues::asynchronous::AsyncNamespace;
pub use requeue::verdict::PathVerdict;
pub use requeue::{Outage, Requeue, Requeued};
pub use shared::bindings::Binding;
pub use shared::event::Event;
pub use shared::fence::Fence;
pub use shared::maps::{QueueClass, QueueMaps};
pub use shared::opened::NamespaceHead;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
