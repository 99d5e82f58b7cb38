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
mod command;
mod connect;
mod controller;
mod engine;
mod error;
mod link;
mod options;
mod queue;
pub mod queues;
mod shared;
mod wait;

pub use command::data::{AdminData, Buffer, Completion, Data, SubmitError};
pub use command::limits::Limits;
pub use command::retry::{Retries, Retry};
pub use command::troubles::Trouble;
pub use connect::discover::{DiscoveryLog, discover};
pub use connect::reach::reach;
pub use controller::namespace::Namespace;
pub use controller::{Controller, WeakController, stepped};
pub use error::connect_error::{ConnectError, ConnectErrorKind, Step, Tried};
pub use error::state::State;
pub use error::{Error, Loss, NotConnected};
pub use options::overrides::Overrides;
pub use options::transport::{Dialer, Transport};
pub use options::{Options, host, overrides};
pub use queue::QueuePair;
pub use queues::Queues;
pub use queues::asynchronous::AsyncNamespace;
pub use shared::event::Event;
pub use shared::maps::{QueueClass, QueueMaps};
pub use shared::opened::Binding;
