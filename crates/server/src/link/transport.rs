//! What a transport has to do for a [`Link`](super::Link): one implementation for each way in which
//! commands, data and completions can travel.
//!
//! A transport moves bytes. It knows neither the state of its connection nor its share of a turn,
//! which are the link's, nor what a command means. Methods that queue something for the host may
//! leave it to [`Transport::flush`], which comes once per turn.
//!
//! [`Transport`] is what each of them does. What only some can do is a trait of its own, and
//! [`AnyTransport`](super::any::AnyTransport) says who has it:
//!
//! | | what it is about | who has it |
//! |---|---|---|
//! | [`Messages`] | commands and completions are messages | TCP, RDMA, the in-memory transport |
//! | [`Rings`] | the queues are in the host's memory, and so are the data | vfio-user |
//! | [`Bytes`] | a stream of bytes, which data and commands share | TCP |
//! | [`Capsules`] | data that come with their command | TCP, RDMA |
//! | [`Lender`] | sends the memory of a device as it is | TCP, the in-memory transport, vfio-user |
//! | [`OwnMemory`] | sends what is copied to memory of its own | RDMA |
//! | [`ZeroCopy`] | buffers that are still read after they were sent | TCP, where it sends without a copy; RDMA |
//! | [`ErrorQueue`] | who still reads them tells so as an error of the descriptor | TCP, where it sends without a copy |
//! | [`Polled`] | it is looked at until it is asked to tell | RDMA, vfio-user |

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ebof_backend::{Buffer, Device};
use ebof_fabrics::RingTask;
use ebof_nvme::{Cid, Cqe, DataPointer, Status};
use ebof_region::Way;
use ebof_sockets::Readiness;

use super::event::{Event, Fetch, Flushed, Inline, Mapping, Opening, Received, Stopped};
use super::{End, UNSENT_MAX};
use crate::direct::SharedFunction;
use crate::ports::peer::Peer;
use crate::shared::buffer::Pool;
use crate::shared::reactor_context::ReactorContext;

/// What tells the reactor that a connection has something.
#[derive(Debug)]
pub(crate) enum Notifier<'a> {
    /// A descriptor, which the reactor waits for.
    Descriptor(BorrowedFd<'a>),
    /// Nothing: a simulated connection, which the reactor asks what can be done.
    Simulated(Readiness),
    /// A bell, which the other end rings once when it has sent something.
    Bell,
    /// A bell, but only after [`Polled::arm`].
    ArmedBell,
}

/// One connection's transport.
///
/// Input comes in two steps: [`receive`](Self::receive) takes what is there into memory, and
/// [`poll`](Self::poll) takes it apart, event by event. What the command side has no room for stays
/// with the transport (*unparsed*), and nothing more is received meanwhile, unless the transport
/// says otherwise.
///
/// A transport of messages has what it received in memory of its own, puts nothing into `scratch`,
/// and is given an empty `input`. A stream of bytes is received into the reactor's memory
/// ([`Bytes`]).
///
/// # Queues of messages and queues in memory
///
/// The rings of Submission and Completion Queue are the transport's matter, in both directions. A
/// completion comes without SQHD, SQID and phase tag, and the transport adds what its host looks
/// at.
///
/// A connection of TCP, RDMA or the in-memory transport brings whole commands and carries whole
/// completions ([`Messages`]): the queue's head travels in them
/// ([`MessageQueue`](super::message_queue::MessageQueue)), and the number of commands that the host
/// may send bounds both directions. A transport with queues in memory (vfio-user, PCI; [`Rings`])
/// moves heads and tails by itself:
///
/// - Its host is attached without a Connect (`Registry::attach`).
/// - [`receive`](Self::receive) copies the entries between head and tail out of the host's memory
///   and moves the head; [`unparsed`](Self::unparsed) counts those of them that are not taken.
/// - [`has_completion_room`](Self::has_completion_room) says whether the Completion Queue can take
///   what is outstanding and one more.
/// - [`flush`](Self::flush) writes as many completions as the Completion Queue has free entries,
///   with the head that the Submission Queue has reached and the phase tag, and is
///   [`Flushed::Blocked`] when there are none: the next write of the host's head doorbell is an
///   event.
/// - [`Fetch::pointer`] is a list of PRP entries or an SGL in the host's memory; fetching is a copy
///   or a mapping, and sending data writes there before the completion is written.
pub(crate) trait Transport {
    /// What tells that there is something.
    fn notifier(&self) -> Notifier<'_>;

    /// Whether both ends have agreed on how to talk.
    fn is_initialized(&self) -> bool;

    /// Takes up to `limit` bytes of what is there: data under way into their buffer where that
    /// pays, the rest into `scratch`. `None`: nothing is there.
    ///
    /// # Errors
    /// The peer has closed, or the connection has failed.
    fn receive(&mut self, limit: usize, scratch: &mut [u8]) -> Result<Option<Received>, End>;

    /// Whether the next event may be a command that has come.
    fn is_at_command(&self, input: &[u8]) -> bool;

    /// Takes `input` up to the next event. `None`: all of it is taken. While `draining` commands
    /// are dropped: the host sees the connection end, and sends them again elsewhere or later.
    ///
    /// # Errors
    /// The host broke the transport, or says that we did.
    fn poll(&mut self, input: &mut &[u8], draining: bool) -> Result<Option<Event>, End>;

    /// How much waits for room, in bytes or messages: changes when some of it is taken.
    fn unparsed(&self) -> usize;

    /// Gets data of a command into a buffer: from the host, or from the capsule of the last
    /// command, as its data pointer says. [`Event::Fetched`] follows.
    ///
    /// # Errors
    /// Too many are under way; the buffer comes back.
    fn fetch(&mut self, fetch: Fetch) -> Result<(), Buffer>;

    /// Gets no more data of the command in `slot`.
    fn stop_fetching(&mut self, cid: Cid, slot: u32) -> Stopped;

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
    /// is queued is dropped. Returns whether the peer's own end is to be awaited, which only
    /// [`Bytes`] have.
    fn start_closing(&mut self, end: &End, pool: &mut Pool) -> bool;

    /// Breaks the connection off. What is queued is dropped; [`ZeroCopy::poll_release`] reports
    /// buffers that are still read.
    fn close(&mut self, peer: &Peer, context: &mut ReactorContext<'_>);

    /// Whether the peer has closed its end or is gone, also where what it sent before is still to
    /// be taken.
    fn peer_is_gone(&mut self) -> bool;

    /// Releases memory that a burst left behind; buffers go to `pool`.
    fn shrink(&mut self, pool: &mut Pool);
}

/// Commands and completions are messages: the target has no rings, and completions tell the host
/// which of its entries are free.
pub(crate) trait Messages {
    /// The connection is a queue of a controller from now on.
    fn open(&mut self, opening: &Opening);

    /// A command has ended without a completion, and its entry of the Submission Queue is free.
    fn withdraw(&mut self);
}

/// The queues are in the memory of a host that is attached directly, and so are the data.
pub(crate) trait Rings {
    /// The function whose queue it is.
    fn function(&self) -> &SharedFunction;

    /// Whether the function has something to tell its host.
    fn has_pending_event(&self) -> bool;

    /// The memory of the host that holds a command's `length` bytes of data, for a device to read
    /// and write there.
    fn map(&self, pointer: &DataPointer, length: u32, way: Way) -> Mapping;

    /// Whether a command's data can be where its pointer says, as far as that is known before they
    /// move.
    ///
    /// # Errors
    /// The status of the command.
    fn check(&self, pointer: &DataPointer, length: u32, way: Way) -> Result<(), Status>;

    /// Changes the queues in the host's memory.
    ///
    /// # Errors
    /// The status of the command.
    fn change(&self, task: &RingTask) -> Result<(), Status>;
}

/// A stream of bytes. It is received into the reactor's memory, which is the `input` of
/// [`Transport::poll`]; the data of one command stand in front of the next command.
pub(crate) trait Bytes {
    /// Header and data digest that both ends have agreed on.
    fn digests(&self) -> Option<(bool, bool)>;

    /// Who makes the records of TLS, where the stream has it.
    fn tls_records(&self) -> Option<&'static str>;

    /// Puts data of the host that are in front of `input` where they belong.
    fn place_data(&mut self, input: &mut &[u8]);

    /// Whether there is something to receive that the descriptor does not tell of.
    fn has_received(&self) -> bool;

    /// Whether data of the host are awaited that come behind what was received: then everything is
    /// received and taken on.
    fn awaits_data(&self) -> bool;

    /// Keeps received bytes that cannot be taken yet.
    fn keep_unparsed(&mut self, bytes: &[u8]);

    /// The received bytes that were kept, and the offset of the first that has not been parsed. To
    /// be returned with [`put_unparsed`](Self::put_unparsed).
    fn take_unparsed(&mut self) -> (Vec<u8>, usize);

    /// Returns what [`take_unparsed`](Self::take_unparsed) gave: all but the last `left` bytes have
    /// been parsed.
    fn put_unparsed(&mut self, kept: Vec<u8>, left: usize);

    /// Takes and drops what a peer still sends that was asked to close: nothing of it is in
    /// `scratch`. `None`: nothing is there.
    ///
    /// # Errors
    /// The peer has closed, or the connection has failed.
    fn discard(&mut self, limit: usize, scratch: &mut [u8]) -> Result<Option<Received>, End>;
}

/// Data come with their command, in its capsule.
pub(crate) trait Capsules {
    /// The data in the capsule of the last command, if all of them have arrived. They are in
    /// `input`, or in memory of the transport until [`after_command`](Self::after_command).
    fn take_inline<'s, 'i: 's>(&'s mut self, input: &mut &'i [u8]) -> Option<Inline<'s>>;

    /// The last command is dealt with: unused data in its capsule are dropped.
    fn after_command(&mut self);
}

/// Sends the memory of a device as it is when it is sent. Where there is none, what a device has in
/// memory is read into [`OwnMemory`] or a buffer.
pub(crate) trait Lender {
    /// Queues what `device`, whose bytes are in memory, holds when they are sent, and the
    /// completion.
    fn lend(&mut self, cid: Cid, device: &Arc<dyn Device>, range: (u64, u32), cqe: &Cqe);
}

/// Why a lender finds bytes: only devices in memory are given to it,
pub(super) const IN_MEMORY: &str = "what is lent is in memory";

/// and it holds no other loan, so that it may wait for one.
pub(super) const BLOCKS: &str = "refused to those only that must not block";

/// Has memory of its own for data to the host.
pub(crate) trait OwnMemory {
    /// Memory for `length` bytes of data, if there is any to spare. What is put there is sent by
    /// [`send_own`](Self::send_own), to be called next.
    fn own_memory(&mut self, length: u32) -> Option<&mut [u8]>;

    /// Queues the `length` bytes that are in [`own_memory`](Self::own_memory), and the completion.
    fn send_own(&mut self, cid: Cid, length: u32, cqe: &Cqe);
}

/// What was sent without a copy is read in our buffers until the peer has acknowledged it: by the
/// kernel, the network card or an adapter.
pub(crate) trait ZeroCopy {
    /// Since when the peer has acknowledged nothing of what was sent, milliseconds, where that is
    /// another thing than a connection that takes no more.
    fn unacknowledged_since_ms(&self) -> Option<u64>;

    /// Asks whether a peer that seems to acknowledge nothing does so.
    fn look_at_stall(&mut self, now_ms: u64);

    /// Looks again at what is read of a connection that was broken off.
    fn poll_release(&mut self, peer: &Peer, context: &mut ReactorContext<'_>);

    /// When to look again at that, milliseconds; `None` when nothing is.
    fn settle_ms(&self) -> Option<u64>;
}

/// Errors of the descriptor also tell which buffers were sent.
pub(crate) trait ErrorQueue {
    /// Takes notifications about buffers that were sent without a copy. Returns whether there were
    /// any.
    ///
    /// # Errors
    /// It cannot be read.
    fn on_sent(&mut self, peer: &Peer, context: &mut ReactorContext<'_>) -> Result<bool, End>;

    /// What an error of the descriptor means; `None` when it was no failure.
    fn failure(&self) -> Option<End>;
}

/// Neither a descriptor nor a bell tells that there is something, until [`arm`](Self::arm) asks for
/// that.
pub(crate) trait Polled {
    /// Whether it is to be looked at in every turn now.
    fn is_polled(&self) -> bool;

    /// Has its descriptor or bell tell when there is something from now on. `false`: there is
    /// something already, and it is polled as before.
    ///
    /// # Errors
    /// The connection has failed.
    fn arm(&mut self) -> Result<bool, End>;
}
