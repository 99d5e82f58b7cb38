//! How the commands of one queue travel, whatever they mean: all that the engine
//! ([`crate::engine`]) knows of a transport.
//!
//! A link owns its connection and what is under way on it. Commands and their buffers stay in the
//! engine's slots, which it lends with every call. A link knows a command by its slot, and no
//! opcode.
//!
//! | what the engine asks | |
//! |---|---|
//! | [`Transport::set_slots`], [`Transport::set_in_capsule`] | how many commands there will be, and what fits into a capsule |
//! | [`Transport::submit`] | queue a command, with its data where these travel with it |
//! | [`Transport::flush`] | send what is queued, as far as that goes without waiting |
//! | [`Transport::receive`], [`Transport::poll`], [`Transport::owes_data`] | take what has come: data into their buffers, completions one by one |
//! | [`Transport::reclaim`] | buffers that were still being sent are the slots' again |
//! | [`Transport::watch`], [`Transport::is_unsent`] | what to wait for |
//! | [`Transport::end_in_order`], [`Transport::close`] | the end |

mod loopback;
pub(crate) mod tcp;

use std::net::SocketAddr;

use ebof_nvme::{Cqe, QueueId, Sqe};

use crate::connect_error::{ConnectErrorKind, Tried};
use crate::data::AdminData;
use crate::error::Loss;
use crate::options::Options;
use crate::slots::Slots;
use crate::transport;
use crate::wait::{Cancel, Time, Waiter, Watch};

/// Which way the data of a command go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataDirection {
    None,
    ToHost,
    FromHost,
}

/// The end of the command in slot `index`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished {
    pub(crate) index: u16,
    pub(crate) cqe: Cqe,
    /// Bytes of data that were transferred.
    pub(crate) transferred: u32,
}

/// What one read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// Nothing was there.
    Nothing,
    /// All that was there.
    All,
    /// As much as there was room for: there may be more.
    Full,
}

/// The link of one queue. `B` is what the commands' data live in.
pub(crate) trait Transport {
    /// As many slots as commands will name; none may be outstanding.
    fn set_slots(&mut self, slots: usize);

    /// Data bytes that the controller takes in a command's capsule.
    fn set_in_capsule(&mut self, bytes: usize);

    /// Queues the command in slot `index`, and its data where they go with it. Fills in the data
    /// pointer.
    fn submit<B: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        sqe: &mut Sqe,
        index: u16,
        direction: DataDirection,
        now_ms: u64,
        slots: &mut Slots<B>,
        lent: &AdminData<'_>,
    );

    /// Sends as much as the connection takes, and no more than is good for others.
    fn flush<B: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        slots: &mut Slots<B>,
        lent: &AdminData<'_>,
        time: &Time,
    ) -> Result<(), Loss>;

    /// One read of what has come. Take what it holds with [`Transport::poll`], then read again if
    /// there may be more.
    fn receive<B: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        slots: &mut Slots<B>,
        lent: &mut AdminData<'_>,
    ) -> Result<Received, Loss>;

    /// Takes all that was received: data into their buffers, ends to `on_finished`.
    fn poll<B: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        slots: &mut Slots<B>,
        lent: &mut AdminData<'_>,
        on_finished: impl FnMut(&mut Slots<B>, Finished),
    ) -> Result<(), Loss>;

    /// Whether data were asked for that are not queued yet: flush.
    fn owes_data(&self) -> bool;

    /// Takes back buffers that are sent by now.
    fn reclaim<B>(&mut self, slots: &mut Slots<B>) -> Result<(), Loss>;

    /// What to wait for.
    fn watch(&self) -> Watch<'_>;

    /// Whether anything is queued.
    fn is_unsent(&self) -> bool;

    /// The peer has all that was sent: the end of the connection is no reset then, although there
    /// may be commands that wait for the peer.
    fn end_in_order(&mut self);

    /// Ends the connection. Buffers that a network card does not give back are never used again.
    fn close<B>(self, slots: &mut Slots<B>);
}

/// The link of one queue, over any of the transports.
#[expect(clippy::large_enum_variant, reason = "nearly all links are of the large kind")]
pub(crate) enum Link {
    Tcp(tcp::Tcp),
    Loopback(loopback::Loopback),
}

/// The same call of whichever link it is.
macro_rules! either {
    ($link:expr, $inner:ident => $call:expr) => {
        match $link {
            Link::Tcp($inner) => $call,
            Link::Loopback($inner) => $call,
        }
    };
}
pub(crate) use either;

impl Link {
    pub(crate) fn watch(&self) -> Watch<'_> {
        either!(self, link => link.watch())
    }

    pub(crate) fn is_unsent(&self) -> bool {
        either!(self, link => link.is_unsent())
    }

    pub(crate) fn end_in_order(&mut self) {
        either!(self, link => link.end_in_order());
    }
}

/// Connects `queue` as `options` say, for `entries` commands at a time, and notes in `tried` how
/// far it came. Also says where the target was reached: 0.0.0.0:0 where that is no address.
pub(crate) async fn connect(
    options: &Options,
    queue: QueueId,
    entries: u16,
    tried: &mut Tried,
    waiter: &Waiter,
    cancel: &Cancel,
) -> Result<(Link, SocketAddr), ConnectErrorKind> {
    if let transport::Transport::Loopback(port) = &options.transport {
        let link = loopback::Loopback::connect(port, entries, tried, waiter)?;
        return Ok((Link::Loopback(link), SocketAddr::from(([0; 4], 0))));
    }
    let (link, peer) = tcp::connect(options, queue, tried, waiter, cancel).await?;
    Ok((Link::Tcp(link), peer))
}
