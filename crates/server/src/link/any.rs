//! The transport of a connection, whichever it is.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ebof_backend::{Buffer, Device};
use ebof_fabrics::RingTask;
use ebof_nvme::{Cid, Cqe, DataPointer, Status};
use ebof_region::Way;
use ebof_sockets::Readiness;
use ebof_verbs::WorkStatus;

use super::loopback::Loopback;
use super::rdma::Rdma;
use super::ring::Ring;
use super::tcp::Tcp;
use super::transport::{Mapping, Transport};
use super::{End, Event, Fetch, Flushed, Inline, Opening, Received, Stopped};
use crate::ports::peer::Peer;
use crate::shared::buffer::Pool;
use crate::shared::reactor_context::ReactorContext;

/// One of the transports. An enum, because a call through it costs a branch that is foreseen, and
/// the compiler sees through it: comparisons with a tag of its own, and with no more than three
/// variants. With four it uses a table of jumps, which takes more of each command.
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

/// Has the transport do something, whichever it is.
macro_rules! each {
    ($any:ident, $transport:ident => $work:expr) => {
        match $any {
            AnyTransport::Tcp($transport) => $work,
            AnyTransport::Rdma($transport) => $work,
            AnyTransport::InMemory(InMemory::Loopback($transport)) => $work,
            AnyTransport::InMemory(InMemory::Ring($transport)) => $work,
        }
    };
}

impl Transport for AnyTransport {
    #[inline]
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        each!(self, transport => transport.descriptor())
    }

    #[inline]
    fn readiness(&self) -> Option<Readiness> {
        each!(self, transport => transport.readiness())
    }

    #[inline]
    fn rings(&self) -> bool {
        each!(self, transport => transport.rings())
    }

    #[inline]
    fn is_polled(&self) -> bool {
        each!(self, transport => transport.is_polled())
    }

    #[inline]
    fn arm(&mut self) -> Result<bool, End> {
        each!(self, transport => transport.arm())
    }

    #[inline]
    fn is_initialized(&self) -> bool {
        each!(self, transport => transport.is_initialized())
    }

    #[inline]
    fn digests(&self) -> Option<(bool, bool)> {
        each!(self, transport => transport.digests())
    }

    #[inline]
    fn open(&mut self, opening: &Opening) {
        each!(self, transport => transport.open(opening));
    }

    #[inline]
    fn receive(&mut self, limit: usize, scratch: &mut [u8]) -> Result<Option<Received>, End> {
        each!(self, transport => transport.receive(limit, scratch))
    }

    #[inline]
    fn discard(&mut self, limit: usize, scratch: &mut [u8]) -> Result<Option<Received>, End> {
        each!(self, transport => transport.discard(limit, scratch))
    }

    #[inline]
    fn place_data(&mut self, input: &mut &[u8]) {
        each!(self, transport => transport.place_data(input));
    }

    #[inline]
    fn is_at_command(&self, input: &[u8]) -> bool {
        each!(self, transport => transport.is_at_command(input))
    }

    #[inline]
    fn poll(&mut self, input: &mut &[u8], draining: bool) -> Result<Option<Event>, End> {
        each!(self, transport => transport.poll(input, draining))
    }

    #[inline]
    fn after_command(&mut self) {
        each!(self, transport => transport.after_command());
    }

    #[inline]
    fn keep_unparsed(&mut self, bytes: &[u8]) {
        each!(self, transport => transport.keep_unparsed(bytes));
    }

    #[inline]
    fn take_unparsed(&mut self) -> (Vec<u8>, usize) {
        each!(self, transport => transport.take_unparsed())
    }

    #[inline]
    fn put_unparsed(&mut self, kept: Vec<u8>, left: usize) {
        each!(self, transport => transport.put_unparsed(kept, left));
    }

    #[inline]
    fn unparsed(&self) -> usize {
        each!(self, transport => transport.unparsed())
    }

    #[inline]
    fn is_stalled(&self) -> bool {
        each!(self, transport => transport.is_stalled())
    }

    #[inline]
    fn receives_when_stalled(&self) -> bool {
        each!(self, transport => transport.receives_when_stalled())
    }

    #[inline]
    fn awaits_data(&self) -> bool {
        each!(self, transport => transport.awaits_data())
    }

    #[inline]
    fn take_inline<'s, 'i: 's>(&'s mut self, input: &mut &'i [u8]) -> Option<Inline<'s>> {
        each!(self, transport => transport.take_inline(input))
    }

    #[inline]
    fn map(&mut self, pointer: &DataPointer, length: u32, way: Way) -> Mapping {
        each!(self, transport => transport.map(pointer, length, way))
    }

    #[inline]
    fn check(&mut self, pointer: &DataPointer, length: u32, way: Way) -> Result<(), Status> {
        each!(self, transport => transport.check(pointer, length, way))
    }

    fn change_rings(&mut self, task: &RingTask) -> Result<(), Status> {
        each!(self, transport => transport.change_rings(task))
    }

    #[inline]
    fn fetch(&mut self, fetch: Fetch) -> Result<(), Buffer> {
        each!(self, transport => transport.fetch(fetch))
    }

    #[inline]
    fn stop_fetching(&mut self, cid: Cid, slot: u32) -> Stopped {
        each!(self, transport => transport.stop_fetching(cid, slot))
    }

    #[inline]
    fn respond(&mut self, cqe: &Cqe) {
        each!(self, transport => transport.respond(cqe));
    }

    #[inline]
    fn send_bytes(&mut self, cid: Cid, data: &[u8], cqe: &Cqe) {
        each!(self, transport => transport.send_bytes(cid, data, cqe));
    }

    #[inline]
    fn send_buffer(&mut self, cid: Cid, buffer: Buffer, length: u32, cqe: &Cqe, pool: &mut Pool) {
        each!(self, transport => transport.send_buffer(cid, buffer, length, cqe, pool));
    }

    #[inline]
    fn own_memory(&mut self, length: u32) -> Option<&mut [u8]> {
        each!(self, transport => transport.own_memory(length))
    }

    #[inline]
    fn send_own(&mut self, cid: Cid, length: u32, cqe: &Cqe) {
        each!(self, transport => transport.send_own(cid, length, cqe));
    }

    #[inline]
    fn lends(&self) -> bool {
        each!(self, transport => transport.lends())
    }

    #[inline]
    fn lend(&mut self, cid: Cid, device: &Arc<dyn Device>, range: (u64, u32), cqe: &Cqe) {
        each!(self, transport => transport.lend(cid, device, range, cqe));
    }

    #[inline]
    fn withdraw(&mut self) {
        each!(self, transport => transport.withdraw());
    }

    #[inline]
    fn has_completion_room(&self) -> bool {
        each!(self, transport => transport.has_completion_room())
    }

    #[inline]
    fn unsent_bytes(&self) -> usize {
        each!(self, transport => transport.unsent_bytes())
    }

    #[inline]
    fn flush(&mut self, context: &mut ReactorContext<'_>) -> Result<Flushed, End> {
        each!(self, transport => transport.flush(context))
    }

    #[inline]
    fn drop_input(&mut self, give: &mut dyn FnMut(Buffer)) {
        each!(self, transport => transport.drop_input(give));
    }

    #[inline]
    fn start_closing(&mut self, end: &End, pool: &mut Pool) -> bool {
        each!(self, transport => transport.start_closing(end, pool))
    }

    #[inline]
    fn close(&mut self, peer: &Peer, context: &mut ReactorContext<'_>) {
        each!(self, transport => transport.close(peer, context));
    }

    #[inline]
    fn peer_is_gone(&mut self) -> bool {
        each!(self, transport => transport.peer_is_gone())
    }

    #[inline]
    fn shrink(&mut self, pool: &mut Pool) {
        each!(self, transport => transport.shrink(pool));
    }

    #[inline]
    fn reports_sent_by_errors(&self) -> bool {
        each!(self, transport => transport.reports_sent_by_errors())
    }

    #[inline]
    fn on_sent(&mut self, peer: &Peer, context: &mut ReactorContext<'_>) -> Result<bool, End> {
        each!(self, transport => transport.on_sent(peer, context))
    }

    #[inline]
    fn failure(&self) -> Option<End> {
        each!(self, transport => transport.failure())
    }

    #[inline]
    fn unacknowledged_since_ms(&self) -> Option<u64> {
        each!(self, transport => transport.unacknowledged_since_ms())
    }

    fn loss(&self) -> Option<WorkStatus> {
        each!(self, transport => transport.loss())
    }

    #[inline]
    fn look_at_stall(&mut self, now_ms: u64) {
        each!(self, transport => transport.look_at_stall(now_ms));
    }

    #[inline]
    fn settle(&mut self, peer: &Peer, context: &mut ReactorContext<'_>) {
        each!(self, transport => transport.settle(peer, context));
    }

    #[inline]
    fn settle_ms(&self) -> Option<u64> {
        each!(self, transport => transport.settle_ms())
    }
}
