//! This end of a connection: the queue pair, and the core that says what is posted on it. Does not
//! know what the messages are.
//!
//! An adapter that gives up what it retries says nothing about the host: the network may be cut for
//! a while. Such a queue pair moves nothing any more, and is kept all the same until somebody knows
//! more ([`GivenUp`]): a request to disconnect that is sent into a network that is cut reaches
//! nobody, and soft-RoCE's management queue pair does not survive it.

use ebof_backend::Buffer;
use ebof_rdma::controller::Connection;
use ebof_verbs::{Error, HeldMemory, QueuePair, Remote, WorkStatus};

use super::super::End;
use crate::observe::log_limit::Kind;
use crate::ports::peer::PeerAddress;
use crate::ports::rdma_connection::Registered;
use crate::shared::reactor_context::ReactorContext;

/// How long a queue pair is kept that the adapter has given up, milliseconds: longer than
/// keep-alive time-outs are, and not for ever where a host has none.
pub(super) const KEPT_MS: u64 = 600_000;

/// Why there is a queue pair: the control thread gets it when the connection is gone and nothing of
/// it is left, and no command goes over a connection that is gone.
pub(super) const CONNECTED: &str = "a queue pair stays as long as its connection";

/// The adapter has given up the connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct GivenUp {
    pub(super) status: WorkStatus,
    /// Since when, milliseconds of the target's clock; `None` until it is reported.
    pub(super) since_ms: Option<u64>,
}

/// A queue pair and its core.
pub(super) struct Endpoint {
    /// `None` once it is gone.
    pub(super) registered: Option<Registered>,
    pub(super) core: Connection,
    /// The adapter has given it up, and it is kept.
    pub(super) loss: Option<GivenUp>,
    is_refusal_logged: bool,
}

impl Endpoint {
    pub(super) fn new(registered: Registered, core: Connection) -> Self {
        Self { registered: Some(registered), core, loss: None, is_refusal_logged: false }
    }

    /// The queue pair, while there is one.
    #[inline]
    pub(super) fn pair(&mut self) -> Option<&mut QueuePair> {
        self.registered.as_mut().map(|registered| &mut registered.pair)
    }

    /// The queue pair of a connection that is not gone.
    #[inline]
    pub(super) fn connected(&mut self) -> &mut QueuePair {
        self.pair().expect(CONNECTED)
    }

    /// A receive that is not posted again is one that the host has lost.
    #[inline]
    pub(super) fn post_receive(&mut self, slot: u32) {
        self.connected().post_receive(slot);
    }

    /// How much may be posted: nothing where the adapter has given up.
    #[inline]
    pub(super) fn room(&self) -> usize {
        self.registered.as_ref().filter(|_| self.loss.is_none()).map_or(0, |registered| registered.pair.room())
    }

    /// Begins what is posted, if that is at least so much.
    #[inline]
    pub(super) fn flush_if(&mut self, entries: usize) -> Result<(), End> {
        match &mut self.registered {
            Some(Registered { pair, .. }) if pair.unflushed() >= entries => {
                self.core.on_flushed();
                Ok(pair.flush()?)
            }
            _ => Ok(()),
        }
    }

    /// Has the adapter use a buffer. Gives it back if the device does not take it.
    #[inline]
    pub(super) fn hold(&mut self, buffer: Buffer) -> Result<HeldMemory, Buffer> {
        match self.connected().hold(buffer) {
            Ok(held) => Ok(held),
            Err((buffer, error)) => {
                self.log_refusal(&error);
                Err(buffer)
            }
        }
    }

    /// Writes the first `length` bytes of a buffer, which comes back when they are written. Gives
    /// it back if the device does not take it.
    #[inline]
    pub(super) fn write_of(&mut self, buffer: Buffer, length: u32, to: ebof_rdma::Remote) -> Result<(), Buffer> {
        match self.connected().post_write_of(buffer, length, place_in_host(to)) {
            Ok(()) => Ok(()),
            Err((buffer, error)) => {
                self.log_refusal(&error);
                Err(buffer)
            }
        }
    }

    /// Once for each connection that the device does not register a buffer: nearly everything fails
    /// then.
    #[cold]
    fn log_refusal(&mut self, error: &Error) {
        if !std::mem::replace(&mut self.is_refusal_logged, true) {
            tracing::error!(
                "a buffer cannot be registered with the RDMA device: {error}; commands with data fail; see `ulimit -l`"
            );
        }
    }

    /// Says once what was seen of a connection that is kept.
    pub(super) fn report_loss(&mut self, peer: PeerAddress, context: &ReactorContext<'_>) {
        let Some(GivenUp { status, since_ms: since_ms @ None }) = &mut self.loss else { return };
        *since_ms = Some(context.now_ms);
        if let Some(more) = context.shared.may_log(peer.about(), Kind::Lost) {
            tracing::warn!(
                %peer,
                "the adapter has given up a connection ({status}): it is kept until the host comes back, \
                 disconnects or is silent for its keep-alive time-out{more}"
            );
        }
    }
}

/// A place in the host's memory.
pub(super) fn place_in_host(remote: ebof_rdma::Remote) -> Remote {
    Remote { address: remote.address, key: remote.key }
}
