//! Queue pairs: the connection, its messages and its memory.

use std::cell::Cell;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ebof_region::{Buffer, Region};

use crate::select::either;
use crate::{
    Bell, Error, Event, Handshake, HeldMemory, Remote, Window, WindowAccess, WorkCompletion, simulated, system,
};

/// One end of a reliable connection. It belongs to one thread at a time.
///
/// Work is queued by the methods `post_..`, begins with [`QueuePair::flush`], and is over with a
/// [`WorkCompletion`]. The work of the send queue (messages, RDMA READs and WRITEs) begins in its
/// order. Messages and RDMA WRITEs are over in that order, too, and so are RDMA READs; but some
/// adapters report work while an RDMA READ is under way that was posted before it. An RDMA WRITE
/// has moved its data before the peer receives a message that was posted after it.
///
/// Dropping it ends the connection. When `drop` returns, the adapter accesses no memory of it any
/// more, and no key that the peer was given works over this connection.
#[derive(Debug)]
pub struct QueuePair {
    inner: Inner,
    /// Not `Sync`.
    one_thread: PhantomData<Cell<()>>,
}

#[derive(Debug)]
enum Inner {
    System(Box<system::QueuePair>),
    Simulated(Box<simulated::QueuePair>),
}

/// The connection.
impl QueuePair {
    /// Descriptors that one has at most: events of the connection, notifications of completions,
    /// the set of both, and a timer with some adapters. A simulated one has none.
    pub const DESCRIPTORS: u32 = 4;

    /// Sends the request of a host. [`Event::Established`], [`Event::Rejected`] or
    /// [`Event::Unreachable`] follows.
    ///
    /// # Errors
    /// It is not a host's, was called before, the private data are too long, or the system fails.
    pub fn connect(&mut self, handshake: &Handshake<'_>) -> Result<(), Error> {
        either!(&mut self.inner, pair => pair.connect(handshake))
    }

    /// Accepts the request of a host. [`Event::Established`] follows, or, if the host has given up,
    /// [`Event::Unreachable`]. Messages of the host can come before. Nothing may be posted to the
    /// send queue before this.
    ///
    /// # Errors
    /// It is not a target's, was called before, the private data are too long, or the system fails.
    pub fn accept(&mut self, handshake: &Handshake<'_>) -> Result<(), Error> {
        either!(&mut self.inner, pair => pair.accept(handshake))
    }

    /// Ends the connection. The peer sees [`Event::Disconnected`]; everything that is under way
    /// comes back as [`WorkCompletion::Failed`], unless it is over already.
    pub fn disconnect(&mut self) {
        either!(&mut self.inner, pair => pair.disconnect());
    }

    /// Readable when there are events, or completions after [`QueuePair::arm`]; `None` if it is
    /// simulated.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        either!(&self.inner, pair => pair.descriptor())
    }

    /// From now on `bell` rings where a descriptor would become readable, if it is simulated. It
    /// does not ring for what was there before.
    pub fn set_bell(&self, bell: Bell) {
        either!(&self.inner, pair => pair.set_bell(bell));
    }

    /// Whether there is an event or a completion to poll. Only of simulated ones: others are asked
    /// by polling.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        either!(&self.inner, pair => pair.is_ready())
    }

    /// The next event.
    ///
    /// # Errors
    /// The system fails.
    pub fn poll_event(&mut self) -> Result<Option<Event>, Error> {
        either!(&mut self.inner, pair => pair.poll_event())
    }

    /// The next completion.
    ///
    /// # Errors
    /// The completion queue is broken: the connection is of no use any more.
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub fn poll(&mut self) -> Result<Option<WorkCompletion>, Error> {
        either!(&mut self.inner, pair => pair.poll())
    }

    /// Asks for one notification, of completions that come from now on. For those that came before
    /// there is none: poll once more before waiting. There can be one although there is nothing to
    /// poll.
    ///
    /// # Errors
    /// The system fails.
    pub fn arm(&mut self) -> Result<(), Error> {
        either!(&mut self.inner, pair => pair.arm())
    }

    /// Begins everything that was posted since the last time.
    ///
    /// # Errors
    /// The system fails, or there is no connection yet: nothing of the send queue can be flushed
    /// before [`QueuePair::accept`], or before [`Event::Established`] of a host.
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub fn flush(&mut self) -> Result<(), Error> {
        either!(&mut self.inner, pair => pair.flush())
    }

    /// What was posted and not flushed.
    #[must_use]
    pub fn unflushed(&self) -> usize {
        either!(&self.inner, pair => pair.unflushed())
    }

    /// Free entries of the send queue: each message, RDMA READ and RDMA WRITE takes one until it,
    /// and everything that was posted before it, is over. What is over is found by polling, also
    /// where that returns nothing.
    #[must_use]
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub fn room(&self) -> usize {
        either!(&self.inner, pair => pair.room())
    }
}

/// Messages.
impl QueuePair {
    /// The memory of a receive slot that a [`WorkCompletion::Received`] has named and that was not
    /// posted since: the message, and what was there before. Its length is in the completion.
    ///
    /// # Panics
    /// The slot is not the caller's.
    #[must_use]
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub fn received(&self, slot: u32) -> &[u8] {
        either!(&self.inner, pair => pair.received(slot))
    }

    /// Gives a receive slot back for another message.
    ///
    /// # Panics
    /// The slot is not the caller's.
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub fn post_receive(&mut self, slot: u32) {
        either!(&mut self.inner, pair => pair.post_receive(slot));
    }

    /// A free send slot; `None` if all are under way.
    #[must_use]
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub fn take_send_slot(&mut self) -> Option<u32> {
        either!(&mut self.inner, pair => pair.take_send_slot())
    }

    /// The memory of a send slot that was taken and not posted.
    ///
    /// # Panics
    /// The slot is not the caller's.
    #[must_use]
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub fn send_slot(&mut self, slot: u32) -> &mut [u8] {
        either!(&mut self.inner, pair => pair.send_slot(slot))
    }

    /// Sends the first `length` bytes of a slot, and invalidates a key of the peer, which it learns
    /// with the message: see [`DeviceAttributes::send_with_invalidate`](crate::DeviceAttributes).
    /// The slot is free again with its completion.
    ///
    /// # Panics
    /// The slot is not the caller's, `length` is more than its size, or there is no
    /// [`room`](QueuePair::room).
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub fn post_send(&mut self, slot: u32, length: u32, invalidate: Option<u32>) {
        either!(&mut self.inner, pair => pair.post_send(slot, length, invalidate));
    }
}

/// Memory.
impl QueuePair {
    /// Takes a buffer for RDMA READs and WRITEs. Registers its region with the device, which pins
    /// it, unless it is registered already.
    ///
    /// # Errors
    /// The device or the system refuses. The buffer is returned.
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub fn hold(&mut self, buffer: Buffer) -> Result<HeldMemory, (Buffer, Error)> {
        either!(&mut self.inner, pair => pair.hold(buffer))
    }

    /// Gives a buffer back. `None`: it is in use by work that is not over. Once the queue pair is
    /// in error, poll until everything has come back. An RDMA WRITE without an id is over with the
    /// completion of anything that was posted after it; if nothing was, polling finds out, although
    /// it returns nothing.
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub fn release(&mut self, held: HeldMemory) -> Option<Buffer> {
        either!(&mut self.inner, pair => pair.release(held))
    }

    /// The memory of a buffer that is held. `None`: it is in use by work that is not over.
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub fn memory(&mut self, held: HeldMemory) -> Option<&mut [u8]> {
        either!(&mut self.inner, pair => pair.memory(held))
    }

    /// Reads `length` bytes of the peer's memory into a buffer, from `offset` on.
    ///
    /// # Panics
    /// The buffer is not held, the range is not in it, or there is no [`room`](QueuePair::room).
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub fn post_read(&mut self, held: HeldMemory, offset: u32, length: u32, from: Remote, id: u64) {
        either!(&mut self.inner, pair => pair.post_read(held, offset, length, from, id));
    }

    /// Writes `length` bytes of a buffer, from `offset` on, to the peer's memory. Without an id it
    /// has no completion, unless it fails: see [`QueuePair::release`]. A completion says that the
    /// buffer is free; that the data are in the peer's memory is known when a message that was
    /// posted later is received there (with iWARP not before; RFC 5040, section 5.5).
    ///
    /// # Panics
    /// The buffer is not held, the range is not in it, or there is no [`room`](QueuePair::room).
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub fn post_write(&mut self, held: HeldMemory, offset: u32, length: u32, to: Remote, id: Option<u64>) {
        either!(&mut self.inner, pair => pair.post_write(held, offset, length, to, id));
    }

    /// As [`QueuePair::post_write`], of the first `length` bytes of a buffer that is not held, and
    /// without an id. It is the queue pair's until the work is over, and then
    /// [`QueuePair::take_written`] gives it back. That is less work than to hold it for one
    /// message.
    ///
    /// # Errors
    /// As [`QueuePair::hold`].
    ///
    /// # Panics
    /// The buffer has fewer bytes, or there is no [`room`](QueuePair::room).
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub fn post_write_of(&mut self, buffer: Buffer, length: u32, to: Remote) -> Result<(), (Buffer, Error)> {
        either!(&mut self.inner, pair => pair.post_write_of(buffer, length, to))
    }

    /// A buffer that [`QueuePair::post_write_of`] was given, and whose work is over.
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub fn take_written(&mut self) -> Option<Buffer> {
        either!(&mut self.inner, pair => pair.take_written())
    }

    /// The key of a region for the peer: with it, the peer can read and write the whole region, at
    /// the addresses that it has in this process, over any queue pair of the device. It belongs to
    /// the region; a key that the peer has invalidated is replaced.
    ///
    /// The peer accesses the memory at any time: the owners of the region's buffers access those
    /// only that the peer has no reason to use now, and rely on nothing that they find.
    ///
    /// # Errors
    /// The device or the system refuses.
    pub fn remote_key(&mut self, region: &Arc<Region>) -> Result<u32, Error> {
        either!(&mut self.inner, pair => pair.remote_key(region))
    }
}

/// Memory windows: keys for a part of a region, which work until they are invalidated. The device
/// must have them ([`DeviceAttributes::memory_windows`](crate::DeviceAttributes)), and the queue
/// pair as many as its attributes say.
impl QueuePair {
    /// Gives the peer a key for `length` bytes of a region, from `offset` on, at the address that
    /// they have in this process. It works over this connection only, and is valid when the peer
    /// receives a message that was posted afterwards; otherwise it is like a
    /// [`QueuePair::remote_key`]. The region is kept until the key is invalid. `None`: all windows
    /// are in use.
    ///
    /// # Errors
    /// The device or the system refuses to register the region.
    ///
    /// # Panics
    /// The range is empty or not in the region, or there is no [`room`](QueuePair::room).
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub fn post_bind(
        &mut self,
        region: &Arc<Region>,
        offset: usize,
        length: u32,
        access: WindowAccess,
    ) -> Result<Option<Window>, Error> {
        let end = offset.checked_add(length as usize);
        assert!(length > 0 && end.is_some_and(|end| end <= region.capacity()), "beyond the region, or empty");
        either!(&mut self.inner, pair => pair.post_bind(region, offset, length, access))
    }

    /// Ends the peer's access through a window, with a [`WorkCompletion::Done`]. If that fails, the
    /// queue pair is in error, and the peer has no access any more either. Not needed if the peer
    /// invalidates the key with a message, which some devices allow
    /// ([`DeviceAttributes::window_invalidation`](crate::DeviceAttributes)); if both ends do it,
    /// the connection breaks.
    ///
    /// # Panics
    /// The window is not bound, or there is no [`room`](QueuePair::room).
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub fn post_invalidate(&mut self, window: Window, id: u64) {
        either!(&mut self.inner, pair => pair.post_invalidate(window, id));
    }

    /// Whether a window gives the peer access: neither has a message of the peer been polled that
    /// invalidates its key, nor was its invalidation posted.
    #[must_use]
    #[cfg_attr(feature = "counted", inline(never))]
    #[cfg_attr(not(feature = "counted"), inline)]
    pub fn is_bound(&self, window: Window) -> bool {
        either!(&self.inner, pair => pair.is_bound(window))
    }
}

impl From<system::QueuePair> for QueuePair {
    fn from(pair: system::QueuePair) -> Self {
        Self { inner: Inner::System(Box::new(pair)), one_thread: PhantomData }
    }
}

impl From<simulated::QueuePair> for QueuePair {
    fn from(pair: simulated::QueuePair) -> Self {
        Self { inner: Inner::Simulated(Box::new(pair)), one_thread: PhantomData }
    }
}
