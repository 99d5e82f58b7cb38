//! The interface between the engine ([`crate::engine`]) and a transport: how commands, data and
//! completions of one queue are sent and received.
//!
//! A link owns its connection and what is queued on it. Commands and their buffers stay in the
//! engine's slots, which are passed to every call. A link identifies a command by its slot and
//! knows no opcode.
//!
//! | method | what it does |
//! |---|---|
//! | [`Transport::set_slots`], [`Transport::set_in_capsule`] | the number of slots, and the in-capsule data size |
//! | [`Transport::submit`] | queue a command, with its data if they travel in the capsule |
//! | [`Transport::flush`] | send what is queued, without blocking |
//! | [`Transport::receive`], [`Transport::poll`], [`Transport::has_unqueued_data`] | receive: data into the commands' buffers, completions one by one |
//! | [`Transport::reclaim`] | release buffers whose zero-copy send is complete |
//! | [`Transport::watch`], [`Transport::has_unsent`] | what to poll the descriptor for |
//! | [`Transport::prepare_to_sleep`] | asks for a notification, where there is none otherwise |
//! | [`Transport::allow_graceful_close`], [`Transport::close`] | the end of the connection |

mod address;
mod loopback;
mod rdma;
pub(crate) mod stop;
pub(crate) mod tcp;

use std::net::SocketAddr;
use std::sync::Arc;

use ebof_nvme::{ControllerId, Cqe, QueueId, Sqe};
use ebof_tls::TlsPsk;

use crate::command::data::{AdminData, IoBuffer};
use crate::command::slots::Slots;
use crate::command::small_commands::SmallCommands;
use crate::command::troubles::Troubles;
use crate::error::Loss;
use crate::error::connect_error::{ConnectErrorKind, Tried};
use crate::options::Options;
use crate::options::transport;
use crate::wait::{Cancel, Time, Waiter, Watch};

/// Direction of a command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataDirection {
    None,
    ToHost,
    FromHost,
}

/// The completion of the command in slot `index`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkCompletion {
    pub(crate) index: u16,
    pub(crate) cqe: Cqe,
    /// Bytes of data that were transferred.
    pub(crate) transferred: u32,
}

/// Result of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// No data.
    Nothing,
    /// Everything that was available.
    All,
    /// A full buffer; there may be more.
    Full,
}

/// A link over one transport. `B` is the type of the commands' buffers.
pub(crate) trait Transport {
    /// Sets the number of slots. No command may be outstanding.
    fn set_slots(&mut self, slots: usize);

    /// Sets how many data bytes the controller takes in a command capsule.
    fn set_in_capsule(&mut self, bytes: usize);

    /// Small commands of all queues that have `small_commands` delay large writes of this one, on a
    /// transport where it would be the other way round.
    fn share_small_commands(&mut self, _small_commands: &Arc<SmallCommands>) {}

    /// Counts what is wrong with data into `troubles`, on a transport that sees it.
    fn share_troubles(&mut self, _troubles: &Arc<Troubles>) {}

    /// The most data bytes of one command, if the transport has a limit below that of lengths.
    fn transfer_max(&self) -> Option<u32> {
        None
    }

    /// Queues the command in slot `index`, with its data if they go in the capsule. Sets the SQE's
    /// data pointer.
    fn submit<B: IoBuffer>(
        &mut self,
        sqe: &mut Sqe,
        index: u16,
        direction: DataDirection,
        now_ms: u64,
        slots: &mut Slots<B>,
        lent: &AdminData<'_>,
    );

    /// Sends as much as the connection takes, up to a bound that keeps other connections served.
    fn flush<B: IoBuffer>(&mut self, slots: &mut Slots<B>, lent: &AdminData<'_>, time: &Time) -> Result<(), Loss>;

    /// Reads once. Process the result with [`Transport::poll`], then read again if it was
    /// [`Received::Full`].
    fn receive<B: IoBuffer>(&mut self, slots: &mut Slots<B>, lent: &mut AdminData<'_>) -> Result<Received, Loss>;

    /// Processes all that was read: data into their buffers, completions to `on_finished`.
    fn poll<B: IoBuffer>(
        &mut self,
        slots: &mut Slots<B>,
        lent: &mut AdminData<'_>,
        on_finished: impl FnMut(&mut Slots<B>, LinkCompletion),
    ) -> Result<(), Loss>;

    /// Whether the controller requested data that are not queued yet: flush.
    fn has_unqueued_data(&self) -> bool;

    /// Whether the descriptor becomes readable only after [`Transport::prepare_to_sleep`].
    fn is_notified_on_request(&self) -> bool {
        false
    }

    /// Makes the descriptor readable when something arrives from now on. `true`: something may have
    /// arrived before, so read once more before sleeping.
    fn prepare_to_sleep(&mut self) -> Result<bool, Loss> {
        Ok(false)
    }

    /// Releases buffers whose zero-copy send is complete.
    fn reclaim<B>(&mut self, slots: &mut Slots<B>) -> Result<(), Loss>;

    /// Whether there is something to receive that the descriptor does not tell of.
    fn has_received(&self) -> bool {
        false
    }

    /// The descriptor to wait for, and whether to wait until it is writable.
    fn watch(&self) -> Watch<'_>;

    /// Whether queued data are not sent yet.
    fn has_unsent(&self) -> bool;

    /// The peer has received everything: closing is graceful (FIN) and not a reset, which is the
    /// default, so that commands of a lost connection never arrive late.
    fn allow_graceful_close(&mut self);

    /// Closes the connection. Buffers that a network card does not release in time are leaked.
    fn close<B>(self, slots: &mut Slots<B>);
}

/// The link of one queue.
//
// An enum and not a trait object: `submit`, `receive` and `poll` are inlined into the engine.
#[expect(clippy::large_enum_variant, reason = "nearly all links are TCP")]
pub(crate) enum HostLink {
    Tcp(tcp::Tcp),
    Rdma(rdma::Rdma),
    Loopback(loopback::Loopback),
}

/// The queue that a link is for.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) queue: QueueId,
    pub(crate) entries: u16,
    /// The controller of an I/O queue.
    pub(crate) controller: ControllerId,
    /// Data bytes that the controller takes in a command capsule of an I/O queue.
    pub(crate) in_capsule: usize,
    /// The key for TLS that authentication has generated for this controller.
    pub(crate) psk: Option<Arc<TlsPsk>>,
}

/// Calls a method of [`Transport`] on the link's variant.
macro_rules! either {
    ($link:expr, $inner:ident => $call:expr) => {
        match $link {
            HostLink::Tcp($inner) => $call,
            HostLink::Rdma($inner) => $call,
            HostLink::Loopback($inner) => $call,
        }
    };
}
pub(crate) use either;

impl HostLink {
    pub(crate) fn watch(&self) -> Watch<'_> {
        either!(self, link => link.watch())
    }

    /// See [`Transport::share_small_commands`].
    pub(crate) fn share_small_commands(&mut self, small_commands: &Arc<SmallCommands>) {
        either!(self, link => link.share_small_commands(small_commands));
    }

    /// See [`Transport::share_troubles`].
    pub(crate) fn share_troubles(&mut self, troubles: &Arc<Troubles>) {
        either!(self, link => link.share_troubles(troubles));
    }

    pub(crate) fn has_unsent(&self) -> bool {
        either!(self, link => link.has_unsent())
    }

    pub(crate) fn allow_graceful_close(&mut self) {
        either!(self, link => link.allow_graceful_close());
    }

    /// Closes a link that has no commands.
    pub(crate) fn end(mut self) {
        self.allow_graceful_close();
        either!(self, link => link.close(&mut Slots::<Vec<u8>>::new(1)));
    }
}

/// Connects a queue by `options`. Records its progress in `tried`. Also returns the target's
/// address, 0.0.0.0:0 for transports without addresses.
pub(crate) async fn connect(
    options: &Options,
    wanted: Wanted,
    tried: &mut Tried,
    waiter: &Waiter,
    cancel: &Cancel,
) -> Result<(HostLink, SocketAddr), ConnectErrorKind> {
    // What was asked for is not left out: others would see what was to be hidden.
    if (options.tls.is_some() || options.concat) && !matches!(options.transport, transport::Transport::Tcp) {
        return Err(ConnectErrorKind::Unsupported { what: "TLS is for NVMe/TCP over sockets only" });
    }
    match &options.transport {
        transport::Transport::Loopback(port) => {
            let link = loopback::Loopback::connect(port, wanted.entries, tried, waiter)?;
            Ok((HostLink::Loopback(link), SocketAddr::from(([0; 4], 0))))
        }
        transport::Transport::Rdma | transport::Transport::QueuePairs(_) => {
            let (link, peer) = rdma::connect(options, &wanted, tried, waiter, cancel).await?;
            Ok((HostLink::Rdma(link), peer))
        }
        transport::Transport::Tcp | transport::Transport::Streams(_) => {
            let (link, peer) = tcp::connect(options, &wanted, tried, waiter, cancel).await?;
            Ok((HostLink::Tcp(link), peer))
        }
    }
}
