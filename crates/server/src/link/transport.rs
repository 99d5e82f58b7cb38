//! What a transport has to do for a [`Link`](super::Link): one implementation for each way in which
//! commands, data and completions can travel.
//!
//! A transport moves bytes. It knows neither the state of its connection nor its share of a turn,
//! which are the link's, nor what a command means. Methods that queue something for the host may
//! leave it to [`Transport::flush`], which comes once per turn.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ebof_backend::{Buffer, Device, Segments};
use ebof_fabrics::RingTask;
use ebof_nvme::{Cid, Cqe, DataPointer, Status};
use ebof_region::Way;
use ebof_sockets::Readiness;
use ebof_verbs::WorkStatus;

use super::{End, Event, Fetch, Flushed, Inline, Opening, Received, Stopped, UNSENT_MAX};
use crate::ports::peer::Peer;
use crate::shared::buffer::Pool;
use crate::shared::reactor_context::ReactorContext;

/// What a device reads or writes of a command's data.
#[derive(Debug)]
pub(crate) enum Mapping {
    /// Data travel through buffers.
    None,
    /// The host's memory itself.
    Mapped(Segments),
    /// The command's data are nowhere: it ends with this status.
    Refused(Status),
}

/// One connection's transport.
///
/// Input comes in two steps: [`receive`](Self::receive) takes what is there into memory, and
/// [`poll`](Self::poll) takes it apart, event by event. What the command side has no room for stays
/// with the transport (*unparsed*), and nothing more is received meanwhile, unless the transport
/// says otherwise.
///
/// A stream of bytes is received into the reactor's memory, which is the `input` of
/// [`poll`](Self::poll) and of the methods beside it. A transport of messages has them in memory of
/// its own, puts nothing into `scratch`, and is given an empty `input`; what is about bytes has a
/// default.
///
/// # Queues of messages and queues in memory
///
/// The rings of Submission and Completion Queue are the transport's matter, in both directions. A
/// completion comes without SQHD, SQID and phase tag, and the transport adds what its host looks
/// at.
///
/// A connection of TCP, RDMA or the in-memory transport brings whole commands and carries whole
/// completions: the queue's head travels in them
/// ([`MessageQueue`](super::message_queue::MessageQueue)), and the number of commands that the host
/// may send bounds both directions. A transport with queues in memory (vfio-user, PCI) moves heads
/// and tails by itself:
///
/// - Its host is attached without a Connect (`Registry::attach`).
/// - [`receive`](Self::receive) copies the entries between head and tail out of the host's memory
///   and moves the head; [`is_stalled`](Self::is_stalled) holds while some of them are not taken.
/// - [`has_completion_room`](Self::has_completion_room) says whether the Completion Queue can take
///   what is outstanding and one more.
/// - [`flush`](Self::flush) writes as many completions as the Completion Queue has free entries,
///   with the head that the Submission Queue has reached and the phase tag, and is
///   [`Flushed::Blocked`] when there are none: the next write of the host's head doorbell is an
///   event.
/// - [`Fetch::pointer`] is a list of PRP entries or an SGL in the host's memory; fetching is a copy
///   or a mapping, and sending data writes there before the completion is written.
pub(crate) trait Transport {
    /// What the reactor waits for; `None` where the other end rings a bell.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// What can be done with a simulated connection now; `None` for all others.
    fn readiness(&self) -> Option<Readiness> {
        None
    }

    /// Whether the other end rings a bell, once, when it has sent something.
    fn rings(&self) -> bool {
        self.descriptor().is_none() && self.readiness().is_none()
    }

    /// Whether it is to be looked at in every turn: neither its descriptor nor a bell tells that
    /// there is something, until [`arm`](Self::arm) asks for that.
    #[inline]
    fn is_polled(&self) -> bool {
        false
    }

    /// Has its descriptor or bell tell when there is something from now on. `false`: there is
    /// something already, and it is polled as before.
    ///
    /// # Errors
    /// The connection has failed.
    fn arm(&mut self) -> Result<bool, End> {
        Ok(true)
    }

    /// Whether both ends have agreed on how to talk.
    fn is_initialized(&self) -> bool;

    /// Header and data digest that both ends have agreed on, where the transport has any.
    fn digests(&self) -> Option<(bool, bool)> {
        None
    }

    /// The connection is a queue of a controller from now on.
    fn open(&mut self, opening: &Opening);

    /// Takes up to `limit` bytes of what is there: data under way into their buffer where that
    /// pays, the rest into `scratch`. `None`: nothing is there.
    ///
    /// # Errors
    /// The peer has closed, or the connection has failed.
    fn receive(&mut self, limit: usize, scratch: &mut [u8]) -> Result<Option<Received>, End>;

    /// Takes and drops what a peer still sends that was asked to close: nothing of it is in
    /// `scratch`. `None`: nothing is there. Not called where [`start_closing`](Self::start_closing)
    /// awaits nothing.
    ///
    /// # Errors
    /// The peer has closed, or the connection has failed.
    fn discard(&mut self, _limit: usize, _scratch: &mut [u8]) -> Result<Option<Received>, End> {
        Ok(None)
    }

    /// Puts data of the host that are in front of `input` where they belong.
    #[inline]
    fn place_data(&mut self, _input: &mut &[u8]) {}

    /// Whether the next event may be a command that has come.
    fn is_at_command(&self, input: &[u8]) -> bool;

    /// Takes `input` up to the next event. `None`: all of it is taken. While `draining` commands
    /// are dropped: the host sees the connection end, and sends them again elsewhere or later.
    ///
    /// # Errors
    /// The host broke the transport, or says that we did.
    fn poll(&mut self, input: &mut &[u8], draining: bool) -> Result<Option<Event>, End>;

    /// The last command is dealt with: unused data in its capsule are dropped.
    #[inline]
    fn after_command(&mut self) {}

    /// Keeps received bytes that cannot be taken yet.
    fn keep_unparsed(&mut self, _bytes: &[u8]) {}

    /// The received bytes that were kept, and the offset of the first that has not been parsed. To
    /// be returned with [`put_unparsed`](Self::put_unparsed).
    fn take_unparsed(&mut self) -> (Vec<u8>, usize) {
        (Vec::new(), 0)
    }

    /// Returns what [`take_unparsed`](Self::take_unparsed) gave: all but the last `left` bytes have
    /// been parsed.
    fn put_unparsed(&mut self, _kept: Vec<u8>, _left: usize) {}

    /// How much waits for room, in bytes or messages: changes when some of it is taken.
    fn unparsed(&self) -> usize;

    /// Whether something waits for room: then nothing more is received, unless
    /// [`receives_when_stalled`](Self::receives_when_stalled).
    fn is_stalled(&self) -> bool;

    /// Whether it receives all the same while commands wait for room, because what it sends and
    /// fetches is over only when it has received that. It bounds what it keeps.
    #[inline]
    fn receives_when_stalled(&self) -> bool {
        false
    }

    /// Whether data of the host are awaited that come behind what was received: then everything is
    /// received and taken on.
    #[inline]
    fn awaits_data(&self) -> bool {
        false
    }

    /// The data in the capsule of the last command, if all of them have arrived. They are in
    /// `input`, or in memory of the transport until [`after_command`](Self::after_command).
    fn take_inline<'s, 'i: 's>(&'s mut self, _input: &mut &'i [u8]) -> Option<Inline<'s>> {
        None
    }

    /// The memory of the host that holds a command's `length` bytes of data, for a device to read
    /// and write there.
    fn map(&mut self, _pointer: &DataPointer, _length: u32, _way: Way) -> Mapping {
        Mapping::None
    }

    /// Whether a command's data can be where its pointer says, as far as that is known before they
    /// move.
    ///
    /// # Errors
    /// The status of the command.
    fn check(&mut self, _pointer: &DataPointer, _length: u32, _way: Way) -> Result<(), Status> {
        Ok(())
    }

    /// Changes the queues in the host's memory.
    ///
    /// # Errors
    /// The status of the command.
    fn change_rings(&mut self, _task: &RingTask) -> Result<(), Status> {
        Err(Status::INTERNAL_ERROR)
    }

    /// Gets data of a command into a buffer: from the host, or from the capsule of the last
    /// command, as its data pointer says. [`Event::Fetched`] follows.
    ///
    /// # Errors
    /// Too many are under way; the buffer comes back.
    fn fetch(&mut self, fetch: Fetch) -> Result<(), Buffer>;

    /// Gets no more data of the command in `slot`.
    fn stop_fetching(&mut self, cid: Cid, slot: u32) -> Stopped;

    /// A command has ended without a completion, and its entry of the Submission Queue is free.
    fn withdraw(&mut self);

    /// Whether there is room for the completion of another command. Until there is, no command is
    /// taken; those that are under way may complete all the same, and are queued.
    #[inline]
    fn has_completion_room(&self) -> bool {
        // A host that does not read its answers is not to make us keep ever more of them.
        self.unsent_bytes() <= UNSENT_MAX
    }

    /// Queues a completion.
    fn respond(&mut self, cqe: &Cqe);

    /// Queues `data`, which did not come from a device, and the completion.
    fn send_bytes(&mut self, cid: Cid, data: &[u8], cqe: &Cqe);

    /// Queues the first `length` bytes of `buffer`, and the completion. The buffer goes to `pool`
    /// when they are sent, which may be at once.
    fn send_buffer(&mut self, cid: Cid, buffer: Buffer, length: u32, cqe: &Cqe, pool: &mut Pool);

    /// Memory of its own for `length` bytes of data, if it has any to spare. What is put there is
    /// sent by [`send_own`](Self::send_own), to be called next.
    #[inline]
    fn own_memory(&mut self, _length: u32) -> Option<&mut [u8]> {
        None
    }

    /// Queues the `length` bytes that are in [`own_memory`](Self::own_memory), and the completion.
    #[inline]
    fn send_own(&mut self, _cid: Cid, _length: u32, cqe: &Cqe) {
        debug_assert!(false, "it has no memory to spare");
        self.respond(cqe);
    }

    /// Whether [`lend`](Self::lend) can be used. Otherwise what a device has in memory is read into
    /// a buffer, as what others have.
    #[inline]
    fn lends(&self) -> bool {
        true
    }

    /// Queues what `device`, whose bytes are in memory, holds when they are sent, and the
    /// completion.
    fn lend(&mut self, cid: Cid, device: &Arc<dyn Device>, range: (u64, u32), cqe: &Cqe);

    /// Bytes that wait to be sent.
    fn unsent_bytes(&self) -> usize;

    /// Sends what is queued, up to the share of the turn.
    ///
    /// # Errors
    /// The connection has failed.
    fn flush(&mut self, context: &mut ReactorContext<'_>) -> Result<Flushed, End>;

    /// Drops what has been received; `give` gets the buffers whose data do not come any more.
    fn drop_input(&mut self, give: &mut dyn FnMut(Buffer));

    /// Asks the peer to close the connection, with the reason if the transport can express it. What
    /// is queued is dropped. Returns whether the peer's own end is to be awaited.
    fn start_closing(&mut self, end: &End, pool: &mut Pool) -> bool;

    /// Breaks the connection off. What is queued is dropped; [`settle`](Self::settle) reports
    /// buffers that are still read.
    fn close(&mut self, peer: &Peer, context: &mut ReactorContext<'_>);

    /// Whether the peer has closed its end or is gone, also where what it sent before is still to
    /// be taken.
    fn peer_is_gone(&mut self) -> bool;

    /// Releases memory that a burst left behind; buffers go to `pool`.
    fn shrink(&mut self, pool: &mut Pool);

    /// Whether errors of the descriptor also tell which buffers were sent.
    fn reports_sent_by_errors(&self) -> bool {
        false
    }

    /// Takes notifications about buffers that were sent without a copy. Returns whether there were
    /// any.
    ///
    /// # Errors
    /// It cannot be read.
    fn on_sent(&mut self, _peer: &Peer, _turn: &mut ReactorContext<'_>) -> Result<bool, End> {
        Ok(false)
    }

    /// What an error of the descriptor means; `None` when it was no failure.
    fn failure(&self) -> Option<End> {
        Some(End::PeerClosed)
    }

    /// Since when the peer has acknowledged nothing of what was sent, milliseconds, where that is
    /// another thing than a connection that takes no more.
    fn unacknowledged_since_ms(&self) -> Option<u64> {
        None
    }

    /// What the adapter has said when it gave up the connection, which is kept until the host comes
    /// back or is given up.
    fn loss(&self) -> Option<WorkStatus> {
        None
    }

    /// Asks whether a peer that seems to acknowledge nothing does so.
    fn look_at_stall(&mut self, _now_ms: u64) {}

    /// Looks again at what is read of a connection that was broken off.
    fn settle(&mut self, _peer: &Peer, _turn: &mut ReactorContext<'_>) {}

    /// When to look again at that, milliseconds; `None` when nothing is.
    fn settle_ms(&self) -> Option<u64> {
        None
    }
}
