//! RDMA for the links of target and host: listeners, connections and reliable connected queue
//! pairs, over rdma-core or over a simulated network in this process.
//!
//! | | |
//! |---|---|
//! | [`Network`] | where connections come from: [`Network::system`], or a [`simulated::Network`] |
//! | [`Listener`], [`Request`] | the passive side: each request becomes a queue pair, or is rejected |
//! | [`Connecting`] | the active side: address, route, queue pair |
//! | [`QueuePair`] | the connection: slots for messages, buffers for RDMA READ and WRITE, completions, events |
//!
//! Nothing blocks. Each handle has one descriptor to wait on, or, where it is simulated, rings a
//! [`Bell`]. A queue pair belongs to one thread at a time.
//!
//! It knows nothing of NVMe: what private data and messages mean is in the crates above.

mod attributes;
mod completion;
mod connecting;
mod device;
pub mod diagnosis;
mod error;
mod event;
mod held;
mod ledger;
mod listener;
mod network;
mod queue_pair;
mod request;
mod select;
pub mod simulated;
mod slots;
pub mod sysfs;
#[expect(unsafe_code, reason = "rdma-core is in C")]
mod system;
mod windows;

pub use attributes::{Attributes, ConnectOptions, Handshake};
pub use completion::{WorkCompletion, WorkRequest, WorkStatus};
pub use connecting::Connecting;
pub use device::{DeviceAttributes, DeviceInfo, Gid, LinkLayer, PortInfo, PortState, Protocol};
pub use error::{Error, LoadError};
pub use event::Event;
pub use held::{Held, Remote};
pub use listener::{Listener, ListenerEvent};
pub use network::Network;
pub use queue_pair::QueuePair;
pub use request::Request;
pub use slots::SharedReceives;
pub use windows::{Window, WindowAccess};

use std::sync::Arc;

/// Wakes the owner of a simulated handle. Called without a lock, on the thread that caused what
/// there is to see. It must not block.
pub type Bell = Arc<dyn Fn() + Send + Sync>;

/// Most bytes of private data that a host can send with its request. The connection manager uses 36
/// of the 92 bytes of a REQ for itself.
pub const REQUEST_PRIVATE_DATA_MAX: usize = 56;
/// Most bytes of private data of an acceptance.
pub const ACCEPT_PRIVATE_DATA_MAX: usize = 196;
/// Most bytes of private data of a reject.
pub const REJECT_PRIVATE_DATA_MAX: usize = 148;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
