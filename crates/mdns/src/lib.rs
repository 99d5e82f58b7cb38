//! NVMe discovery services of this network, by multicast DNS (TP8009): where one is, is told by an
//! [`Announcer`] and found by a [`Browser`].
//!
//! Owns the service's type and its texts, what of an answer can be used, and the limits of what is
//! kept of answers. The protocol is `mdns-sd`'s, on a thread of its own. It connects nothing: who
//! answers is not authenticated, and anybody on the network may answer for anybody.

mod announce;
mod browse;

use thiserror::Error;

pub use announce::{Announcement, Announcer};
pub use browse::{Browser, Neighbour, SERVICES_MAX, Sighting};

/// The name of the thread of `mdns-sd`. What it reads is anybody's, and nobody waits for it: where
/// a panic ends a process, this one's need not.
pub const THREAD: &str = "mDNS_daemon";

/// What discovery services are (TP8009), on this network.
const SERVICE: &str = "_nvme-disc._tcp.local.";

/// TXT: the transport, as multicast DNS calls it.
const TRANSPORT_KEY: &str = "p";

/// TXT: the NQN of the discovery subsystem.
const NQN_KEY: &str = "nqn";

/// The transports, and what they are called in TXT.
const TRANSPORTS: [(&str, &str); 2] = [("tcp", "tcp"), ("rdma", "roce")];

/// Multicast DNS cannot be used.
#[derive(Debug, Error)]
#[error("multicast DNS: {0}")]
pub struct MdnsError(#[from] mdns_sd::Error);

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct Readme;
