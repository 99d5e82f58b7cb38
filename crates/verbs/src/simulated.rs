//! A network within this process, for tests and simulations.
//!
//! It has the same handles as the system's, and behaves as adapters and their connection manager do
//! where a link could come to depend on it:
//!
//! - The work of an end is done in its order, and so are its completions, unless RDMA READs are to
//!   be overtaken ([`Network::overtake_reads`]). Messages need a receive.
//! - A wrong key or range, or a message that is too long, breaks both ends; everything comes back.
//! - Notifications are given only after arming; what was there before is not notified.
//! - With RoCE, private data arrive padded with zeros.
//! - A target is notified that it is connected only after the host has seen that, and can have
//!   received messages before.
//! - A disconnect does not bring back the peer's work, but the peer's own disconnect does.
//!
//! There is no time and no retransmission: [`Connection::time_out`] ends what would be retried.
//! A remote key is that of a whole region, and may be invalidated by any message.

mod connecting;
mod end;
mod listener;
#[expect(unsafe_code, reason = "copies between memory of both ends, as adapters do: see the comments there")]
mod memory;
mod network;
mod pair;
mod queue_pair;
mod registry;
mod shared;
#[cfg(test)]
mod tests;

pub use network::{Connection, Network, device};
pub use pair::Side;

pub(crate) use connecting::Connecting;
pub(crate) use listener::{Listener, ListenerEvent, Request};
pub(crate) use queue_pair::QueuePair;
