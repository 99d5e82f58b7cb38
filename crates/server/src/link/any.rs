//! The transport of a connection, whichever it is, and what it can do beside what all can: the one
//! place that tells transports apart.

use ebof_verbs::WorkStatus;

use super::loopback::Loopback;
use super::rdma::Rdma;
use super::ring::Ring;
use super::tcp::Tcp;
use super::transport::{Bytes, Capsules, ErrorQueue, Lender, Messages, OwnMemory, Polled, Rings, Transport, ZeroCopy};

/// One of the transports. An enum, because the compiler sees through it: a branch that is foreseen,
/// by comparisons with a tag of its own, and with no more than three variants. With four it uses a
/// table of jumps, which takes more of each command.
///
/// On the way of a command ([`with`](Self::with) and what is like it) `work` is compiled for each
/// transport, which is known there: no call is virtual. Elsewhere references are given out.
#[expect(clippy::large_enum_variant, reason = "nearly all are TCP, and a connection is boxed as a whole")]
#[repr(u8)]
pub(crate) enum AnyTransport {
    Tcp(Tcp),
    /// In a box: it is much larger than a pointer, and TCP's are accessed more often.
    Rdma(Box<Rdma>),
    InMemory(InMemory),
}

/// A transport without a network.
#[expect(clippy::large_enum_variant, reason = "TCP's is larger")]
pub(crate) enum InMemory {
    Loopback(Loopback),
    /// In a box, as RDMA.
    Ring(Box<Ring>),
}

impl AnyTransport {
    /// Has the transport do `work`.
    #[inline(always)]
    pub(super) fn with<'a, R>(&'a mut self, work: impl FnOnce(&'a mut dyn Transport) -> R) -> R {
        match self {
            Self::Tcp(tcp) => work(tcp),
            Self::Rdma(rdma) => work(rdma.as_mut()),
            Self::InMemory(InMemory::Loopback(loopback)) => work(loopback),
            Self::InMemory(InMemory::Ring(ring)) => work(ring.as_mut()),
        }
    }

    /// Asks the transport.
    #[inline(always)]
    pub(super) fn ask<'a, R>(&'a self, question: impl FnOnce(&'a dyn Transport) -> R) -> R {
        match self {
            Self::Tcp(tcp) => question(tcp),
            Self::Rdma(rdma) => question(rdma.as_ref()),
            Self::InMemory(InMemory::Loopback(loopback)) => question(loopback),
            Self::InMemory(InMemory::Ring(ring)) => question(ring.as_ref()),
        }
    }

    /// Has the transport do `work` if data come with their command; `None` if none do.
    #[inline(always)]
    pub(super) fn with_capsules<'a, R>(&'a mut self, work: impl FnOnce(&'a mut dyn Capsules) -> R) -> Option<R> {
        match self {
            Self::Tcp(tcp) => Some(work(tcp)),
            Self::Rdma(rdma) => Some(work(rdma.as_mut())),
            Self::InMemory(_) => None,
        }
    }

    /// Has the transport do `work` if it [lends](Self::lends).
    #[inline(always)]
    pub(super) fn with_lender<'a, R>(&'a mut self, work: impl FnOnce(&'a mut dyn Lender) -> R) -> Option<R> {
        match self {
            Self::Tcp(tcp) => Some(work(tcp)),
            // The adapter reads the bytes when it sends them, and nothing orders a write beside
            // that: a block could be torn. A copy is made under the lock of their chunk.
            Self::Rdma(_) => None,
            Self::InMemory(InMemory::Loopback(loopback)) => Some(work(loopback)),
            Self::InMemory(InMemory::Ring(ring)) => Some(work(ring.as_mut())),
        }
    }

    /// Whether it is a [`Lender`].
    #[inline]
    pub(super) fn lends(&self) -> bool {
        !matches!(self, Self::Rdma(_))
    }

    #[inline]
    pub(super) fn own_memory(&mut self) -> Option<&mut impl OwnMemory> {
        if let Self::Rdma(rdma) = self { Some(rdma.as_mut()) } else { None }
    }

    #[inline]
    pub(super) fn bytes(&self) -> Option<&impl Bytes> {
        if let Self::Tcp(tcp) = self { Some(tcp) } else { None }
    }

    #[inline]
    pub(super) fn bytes_mut(&mut self) -> Option<&mut impl Bytes> {
        if let Self::Tcp(tcp) = self { Some(tcp) } else { None }
    }

    #[inline]
    pub(super) fn rings(&self) -> Option<&impl Rings> {
        if let Self::InMemory(InMemory::Ring(ring)) = self { Some(ring.as_ref()) } else { None }
    }

    pub(super) fn messages(&mut self) -> Option<&mut dyn Messages> {
        match self {
            Self::Tcp(tcp) => Some(tcp),
            Self::Rdma(rdma) => Some(rdma.as_mut()),
            Self::InMemory(InMemory::Loopback(loopback)) => Some(loopback),
            // A command that ends there without a completion gave way to one with the same
            // identifier, whose pointer has its place.
            Self::InMemory(InMemory::Ring(_)) => None,
        }
    }

    #[inline]
    pub(super) fn zero_copy(&self) -> Option<&dyn ZeroCopy> {
        match self {
            Self::Tcp(tcp) if tcp.sends_without_copy() => Some(tcp),
            Self::Rdma(rdma) => Some(rdma.as_ref()),
            Self::Tcp(_) | Self::InMemory(_) => None,
        }
    }

    pub(super) fn zero_copy_mut(&mut self) -> Option<&mut dyn ZeroCopy> {
        match self {
            Self::Tcp(tcp) if tcp.sends_without_copy() => Some(tcp),
            Self::Rdma(rdma) => Some(rdma.as_mut()),
            Self::Tcp(_) | Self::InMemory(_) => None,
        }
    }

    pub(super) fn error_queue(&self) -> Option<&impl ErrorQueue> {
        if let Self::Tcp(tcp) = self { Some(tcp).filter(|tcp| tcp.sends_without_copy()) } else { None }
    }

    pub(super) fn error_queue_mut(&mut self) -> Option<&mut impl ErrorQueue> {
        if let Self::Tcp(tcp) = self { Some(tcp).filter(|tcp| tcp.sends_without_copy()) } else { None }
    }

    #[inline]
    pub(super) fn polled(&self) -> Option<&dyn Polled> {
        match self {
            Self::Tcp(_) | Self::InMemory(InMemory::Loopback(_)) => None,
            Self::Rdma(rdma) => Some(rdma.as_ref()),
            Self::InMemory(InMemory::Ring(ring)) => Some(ring.as_ref()),
        }
    }

    pub(super) fn polled_mut(&mut self) -> Option<&mut dyn Polled> {
        match self {
            Self::Tcp(_) | Self::InMemory(InMemory::Loopback(_)) => None,
            Self::Rdma(rdma) => Some(rdma.as_mut()),
            Self::InMemory(InMemory::Ring(ring)) => Some(ring.as_mut()),
        }
    }

    /// Whether it receives all the same while commands wait for room, because what it sends and
    /// fetches is over only when it has received that. It bounds what it keeps.
    #[inline]
    pub(super) fn receives_when_stalled(&self) -> bool {
        matches!(self, Self::Rdma(_))
    }

    /// What the adapter has said when it gave up the connection, which is kept until the host comes
    /// back or is given up.
    pub(super) fn loss(&self) -> Option<WorkStatus> {
        if let Self::Rdma(rdma) = self { rdma.loss() } else { None }
    }

    #[cfg(test)]
    pub(super) fn tcp(&mut self) -> &mut Tcp {
        let Self::Tcp(tcp) = self else { panic!("a connection over TCP is expected") };
        tcp
    }
}
