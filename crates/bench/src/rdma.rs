//! Measures an RDMA link without NVMe: bandwidth and latency of messages, RDMA READs and RDMA
//! WRITEs between a [`Client`] and a [`Responder`], as perftest's `ib_send_bw`, `ib_read_lat` and
//! so on do.
//!
//! Owns the measurements and what the two ends tell each other about them. Each figure is measured
//! over a connection of its own, from the client; the server only answers. Sizes and counts that a
//! client asks for are checked by the server.

mod client;
mod end;
mod responder;
mod wire;

pub use client::{Client, Plan};
pub use responder::{Responder, Served};

use std::time::Duration;

use ebof_verbs::WorkStatus;

/// Where a server listens by default.
pub const PORT: u16 = 18_520;
/// Largest message or transfer, bytes: that of perftest.
pub const BYTES_MAX: u32 = 8 << 20;
/// Most messages or transfers that are under way at once.
pub const DEPTH_MAX: u32 = 512;
/// Memory for messages that one measurement takes at most, bytes: a deeper queue of larger messages
/// is made shallower.
const MEMORY_MAX: u32 = 32 << 20;

/// Messages that a responder has receives for, as a multiple of the depth. iWARP has nothing that
/// makes a sender wait for a receive: each time that as many messages as the depth have come, the
/// responder says so, and no more are sent than there are receives for.
const WINDOW: u32 = 2;
/// Messages of a responder that may be under way at once, and that a client has receives for.
const ANSWERS: u32 = 2 * WINDOW;

/// What the adapter does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Messages, which the server receives.
    Send,
    /// RDMA READs of the server's memory.
    Read,
    /// RDMA WRITEs to the server's memory.
    Write,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Send, Self::Write, Self::Read];

    /// Its name, as arguments and JSON have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// The figures of one operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// What was measured.
    pub operation: Operation,
    /// Bytes of each message or transfer for the bandwidth.
    pub bytes: u32,
    /// How many of them were under way at once.
    pub depth: u32,
    /// How many there were.
    pub count: u64,
    /// How long all of them took.
    pub time: Duration,
    /// Bytes of each message or transfer for the latency.
    pub latency_bytes: u32,
    /// One at a time: half a round trip of messages, or from posting to the end of an RDMA READ or
    /// WRITE.
    pub latency: Latencies,
}

impl Measured {
    /// Bytes per second.
    #[must_use]
    pub fn bandwidth(&self) -> f64 {
        self.rate() * f64::from(self.bytes)
    }

    /// Messages or transfers per second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a count below 2^52")]
    pub fn rate(&self) -> f64 {
        self.count as f64 / self.time.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// A distribution of latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// How many there were.
    pub count: u64,
    /// The shortest.
    pub min: Duration,
    /// The median.
    pub median: Duration,
    /// 99 of 100 were shorter.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call of the RDMA library failed.
    #[error(transparent)]
    Verbs(#[from] ebof_verbs::Error),
    /// Nobody listens at the server's address, or it is no server of this kind.
    #[error("the server refused the connection: {0}")]
    Rejected(Refusal),
    /// No connection within the time allowed, or it was not answered.
    #[error("the other end does not answer")]
    NoAnswer,
    /// The connection ended.
    #[error("the other end closed the connection")]
    Closed,
    /// A message or transfer failed.
    #[error("{operation} failed: {status}")]
    Work {
        /// What was measured.
        operation: &'static str,
        /// Why it failed.
        status: WorkStatus,
    },
    /// The other end said something that is not of this protocol.
    #[error("the other end is no `ebof rdma-check` of this version: {0}")]
    Protocol(&'static str),
}

/// Why a server refused a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody listens there.
    NobodyListens,
    /// A program listens there that does something else, or a server of another version.
    Unknown,
    /// Sizes or counts beyond the limits.
    Limits,
    /// The server's device has not enough resources.
    Resources,
    /// The connection manager's number for anything else.
    Other(i32),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NobodyListens => f.write_str("nobody listens there"),
            Self::Unknown => f.write_str("what listens there is no `ebof rdma-check --listen` of this version"),
            Self::Limits => f.write_str("sizes or counts are beyond its limits"),
            Self::Resources => f.write_str("its device has not enough resources"),
            Self::Other(reason) => write!(f, "the connection manager's reason is {reason}"),
        }
    }
}

#[cfg(test)]
mod tests;
