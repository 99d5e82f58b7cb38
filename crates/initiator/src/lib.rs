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
#![forbid(unsafe_code)]

mod admin;
mod asynchronous;
mod connect_error;
mod controller;
mod copies;
mod data;
mod discover;
mod doorbell;
mod engine;
mod error;
mod establish;
mod event;
pub mod host;
mod limits;
mod link;
mod lock;
mod maps;
mod namespace;
mod opened;
mod options;
pub mod overrides;
mod queue;
pub mod queues;
mod reach;
mod rescan;
mod retry;
mod shared;
mod slots;
mod small_commands;
mod state;
pub mod stepped;
mod stop;
mod transport;
mod troubles;
mod wait;

pub use asynchronous::AsyncNamespace;
pub use connect_error::{ConnectError, ConnectErrorKind, Step, Tried};
pub use controller::{Controller, WeakController};
pub use data::{AdminData, Buffer, Completion, Data, SubmitError};
pub use discover::{DiscoveryLog, discover};
pub use error::{Error, Loss, NotConnected};
pub use event::Event;
pub use limits::Limits;
pub use maps::{QueueClass, QueueMaps};
pub use namespace::Namespace;
pub use opened::Binding;
pub use options::Options;
pub use overrides::Overrides;
pub use queue::QueuePair;
pub use queues::Queues;
pub use reach::reach;
pub use retry::{Retries, Retry};
pub use state::State;
pub use transport::{Dialer, Transport};
pub use troubles::Trouble;
