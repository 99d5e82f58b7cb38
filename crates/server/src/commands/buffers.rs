//! The buffers of one connection's commands: how many bytes they may be, and who waits for one.

use std::collections::VecDeque;

use ebof_backend::Buffer;
use ebof_nvme::{Cid, Cqe, Nqn};

use crate::link::Link;
use crate::shared::buffer::Pool;
use crate::shared::host_limits::{BufferUse, HostBuffers};
use crate::shared::reactor_context::ReactorContext;

/// The buffer of the first half of a Compare and Write: two blocks.
const HALF_BYTES: usize = 8 << 10;

/// The buffers of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionBuffers {
    usage: BufferUse,
    /// The largest in-capsule data of a command.
    in_capsule_bytes: usize,
    /// Commands that wait for a buffer, in order of arrival.
    waiting: VecDeque<u32>,
}

impl ConnectionBuffers {
    pub(crate) fn new(in_capsule_bytes: u32) -> Self {
        Self { usage: BufferUse::default(), in_capsule_bytes: in_capsule_bytes as usize, waiting: VecDeque::new() }
    }

    /// The port has another limit for in-capsule data.
    pub(crate) fn set_in_capsule_bytes(&mut self, bytes: u32) {
        self.in_capsule_bytes = bytes as usize;
    }

    /// The connection is a queue of `host` from now on.
    pub(crate) fn join(&mut self, host: &Nqn, hosts: &mut HostBuffers) {
        self.usage.join(host, hosts);
    }

    /// Bytes of the buffers that its commands have, and of those that are being sent.
    #[inline]
    pub(crate) fn used_bytes(&self) -> usize {
        self.usage.own()
    }

    /// Whether there is room for the in-capsule data of another command.
    pub(crate) fn has_room(&self, awaits_second: bool, context: &ReactorContext<'_>) -> bool {
        // What a first half of a pair holds must not keep its second away.
        let half = if awaits_second { HALF_BYTES } else { 0 };
        let limit = context.shared.settings.connection_buffer_bytes + half;
        let more = 2 * self.in_capsule_bytes;
        self.used_bytes() + more <= limit
            && context.pool.has_room(more)
            && self.usage.has_share(more, context.pool.host_share_bytes())
    }

    /// A buffer for a command. Those that wait for the host or for the socket leave room for
    /// in-capsule data: the stream that brings what they wait for must go on.
    pub(crate) fn take(&mut self, bytes: usize, in_capsule: bool, context: &mut ReactorContext<'_>) -> Option<Buffer> {
        let reserve = if in_capsule { 0 } else { 2 * self.in_capsule_bytes };
        let more = Pool::size_of(bytes) + reserve;
        // One command may always have what it needs, however small the limit was set.
        let own = self.used_bytes();
        if own > 0 && own + more > context.shared.settings.connection_buffer_bytes {
            return None;
        }
        if !self.usage.has_share(more, context.pool.host_share_bytes()) {
            return None;
        }
        let buffer = if in_capsule { context.pool.take(bytes) } else { context.pool.take_leaving_reserve(bytes) }?;
        self.usage.add(buffer.capacity());
        Some(buffer)
    }

    /// A buffer goes back to the pool.
    pub(crate) fn give(&mut self, buffer: Buffer, context: &mut ReactorContext<'_>) {
        self.usage.give(buffer.capacity());
        context.pool.put(buffer);
    }

    /// Sends a buffer with the data of a read, and its completion.
    pub(crate) fn send(
        &mut self,
        buffer: Buffer,
        (cid, length): (Cid, u32),
        cqe: &Cqe,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        // A copied payload leaves the buffer at once; the others are given back by `Link::flush`.
        let before = context.pool.outstanding_bytes();
        link.send_buffer(cid, buffer, length, cqe, context);
        self.note_given(before, context.pool);
    }

    /// The link may have given buffers back to the pool, of which `before` bytes were in use.
    #[inline]
    pub(crate) fn note_given(&mut self, before: usize, pool: &Pool) {
        let given = before.checked_sub(pool.outstanding_bytes());
        self.usage.give(given.expect("a link takes no buffers: what it sends comes from commands"));
    }

    /// Commands that wait for a buffer.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The command in `slot` waits for a buffer.
    pub(crate) fn enqueue(&mut self, slot: u32) {
        self.waiting.push_back(slot);
    }

    /// The command that has waited longest.
    pub(crate) fn first_waiting(&self) -> Option<u32> {
        self.waiting.front().copied()
    }

    /// The command that has waited longest has a buffer.
    pub(crate) fn dequeue(&mut self) {
        let first = self.waiting.pop_front();
        debug_assert!(first.is_some(), "it was looked at before");
    }

    /// The command in `slot` does not wait any more.
    pub(crate) fn stop_waiting(&mut self, slot: u32) {
        self.waiting.retain(|&waiting| waiting != slot);
    }

    /// No command waits any more.
    pub(crate) fn clear_waiting(&mut self) {
        self.waiting.clear();
    }
}
