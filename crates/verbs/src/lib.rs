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
//!
//! # Modules
//!
//! A folder imports from those on lower layers only. `cargo xtask tidy` compares this table with
//! the code.
//!
//! | layer | folder | what is in it |
//! |---|---|---|
//! | 7 | `verbs/lib.rs` | what the crate offers |
//! | 6 | `network` | where connections come from: both sides of making them |
//! | 5 | `queue_pair` | the connection, its messages and its memory |
//! | 4 | `simulated` | a network within this process |
//! | 4 | `system` | the devices of this machine, through rdma-core |
//! | 3 | `attributes` | what a queue pair is made with, and what its ends tell each other |
//! | 2 | `diagnosis` | why no connection can be made from or to an address |
//! | 2 | `ledger` | accounts of a queue pair of either kind: buffers, entries, windows, receive slots |
//! | 1 | `completion` | what becomes of posted work |
//! | 1 | `device` | what devices can do, and the state of their ports |
//! | 1 | `error` | what can go wrong, apart from work that fails |
//! | 1 | `event` | what happens to a connection |
//! | 1 | `select` | the choice between the two kinds of handles |
//! | 1 | `sysfs` | devices as the kernel's sysfs describes them |

mod attributes;
mod completion;
mod device;
pub mod diagnosis;
mod error;
mod event;
mod ledger;
mod network;
mod queue_pair;
mod select;
pub mod simulated;
pub mod sysfs;
#[expect(unsafe_code, reason = "rdma-core is in C")]
mod system;

pub use attributes::{Attributes, ConnectOptions, Handshake};
pub use completion::{WorkCompletion, WorkRequest, WorkStatus};
pub use device::{DeviceAttributes, DeviceInfo, Gid, LinkLayer, PortInfo, PortState, Protocol};
pub use error::{Error, LoadError};
pub use event::Event;
pub use ledger::held::{HeldMemory, Remote};
pub use ledger::slots::SharedReceives;
pub use ledger::windows::{Window, WindowAccess};
pub use network::Network;
pub use network::connecting::Connecting;
pub use network::listener::{Listener, ListenerEvent};
pub use network::request::Request;
pub use queue_pair::QueuePair;

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
