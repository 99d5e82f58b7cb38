//! Payloads that are sent without a copy: what a connection keeps of them, how it ends while it
//! does, and what all of them count.
//!
//! Which send is over is `ebof_pinned`'s; what is sent when is the outbox's.

use ebof_backend::Buffer;
use ebof_pinned::Pinned;

use ebof_sockets::Stream;

use super::outbox::Outbox;
use super::{End, STALLED_MS};
use crate::observe::sent::Fresh;
use crate::ports::peer::Peer;
use crate::shared::reactor_context::ReactorContext;

/// What a network card still reads of a connection that was broken off is looked at again after
/// this time, and
const LOOK_MS: u64 = 10;

/// given up after this, milliseconds: a card or its driver that takes longer hangs.
const SETTLE_MS: u64 = 2_000;

/// A connection that is gone but for buffers that are still read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AwaitingRelease {
    pub(super) look_ms: u64,
    until_ms: u64,
}

impl AwaitingRelease {
    pub(crate) fn from(now_ms: u64) -> Self {
        Self { look_ms: now_ms, until_ms: now_ms + SETTLE_MS }
    }
}

/// The zero-copy state of a connection.
#[derive(Debug)]
pub(crate) struct Zerocopy {
    pub(crate) pinned: Pinned<Buffer>,
    /// What was not added to [`Counts`] yet.
    pub(crate) fresh: Fresh,
}

impl Zerocopy {
    pub(crate) fn new(least: u32, copied_max: u32) -> Box<Self> {
        Box::new(Self { pinned: Pinned::new(least, copied_max), fresh: Fresh::default() })
    }
}

/// What a connection knows of what it has sent without a copy, and of how that ends.
#[derive(Debug, Default)]
pub(super) struct Unacknowledged {
    /// Since when the peer has acknowledged nothing of it.
    pub(super) since_ms: Option<u64>,
    /// What it had acknowledged, in bytes, when that was last asked.
    acknowledged: u64,
    /// The connection is gone but for it.
    pub(super) settling: Option<AwaitingRelease>,
}

impl Unacknowledged {
    /// Takes the kernel's notifications about payloads that were sent without a copy. Returns
    /// whether there were any.
    ///
    /// # Errors
    /// The socket's error queue cannot be read.
    pub(super) fn on_notifications(
        &mut self,
        stream: &Stream,
        outbox: &mut Outbox,
        peer: &Peer,
        context: &mut ReactorContext<'_>,
    ) -> Result<bool, End> {
        // A simulated stream has no kernel that would hold anything.
        let Some(wire) = stream.wire() else { return Ok(false) };
        let collected = outbox.collect(&wire, context.pool)?;
        if collected.sends == 0 {
            return Ok(false);
        }
        context.shared.zerocopy.count(collected.copied, collected.fell_back);
        if collected.fell_back {
            let peer = peer.address;
            tracing::debug!(%peer, "the kernel copies what it is to send without a copy: this connection copies again");
        }
        self.since_ms = outbox.is_pinning().then_some(context.now_ms);
        Ok(true)
    }

    /// Notes what a flush sent without a copy. `is_progress`: something was sent, with a copy or
    /// without.
    pub(super) fn after_flush(&mut self, outbox: &mut Outbox, is_progress: bool, context: &ReactorContext<'_>) {
        if let Some(fresh) = outbox.take_fresh().filter(|fresh| *fresh != Fresh::default()) {
            context.shared.zerocopy.add(fresh);
        }
        if is_progress || self.since_ms.is_none() {
            // Room in the socket is what the peer has acknowledged.
            self.since_ms = outbox.is_pinning().then_some(context.now_ms);
        }
    }

    /// Whether the peer takes what it is sent is not seen in notifications alone: the kernel tells
    /// of sends together. Asks, when it seems that it takes nothing.
    pub(super) fn look_at_acknowledged(&mut self, stream: &Stream, now_ms: u64) {
        let stalled = self.since_ms.is_some_and(|since| since + STALLED_MS <= now_ms);
        if stalled
            && let Some(wire) = stream.wire()
            && let Ok(acknowledged) = ebof_pinned::acknowledged(&wire)
            && acknowledged != std::mem::replace(&mut self.acknowledged, acknowledged)
        {
            self.since_ms = Some(now_ms);
        }
    }

    /// Sees to it that the kernel lets go of the buffers of a connection that ends now. What it
    /// handed to the network card is still read for a moment, although the connection is broken
    /// off: until then the connection stays, without its peer.
    pub(super) fn let_go(
        &mut self,
        stream: &Stream,
        outbox: &mut Outbox,
        peer: &Peer,
        context: &mut ReactorContext<'_>,
    ) {
        // What the peer has acknowledged meanwhile needs no reset.
        if self.on_notifications(stream, outbox, peer, context).is_ok() && !outbox.is_pinning() {
            return;
        }
        if let Some(wire) = stream.wire() {
            ebof_pinned::abort(&wire);
        }
        self.settling = Some(AwaitingRelease::from(context.now_ms));
        self.poll_release(stream, outbox, peer, context);
    }

    /// Looks again at what is read of a connection that is gone.
    pub(super) fn poll_release(
        &mut self,
        stream: &Stream,
        outbox: &mut Outbox,
        peer: &Peer,
        context: &mut ReactorContext<'_>,
    ) {
        // Nothing was read when it ended, or is not any more: it waits for its commands.
        let Some(settling) = &mut self.settling else { return };
        settling.look_ms = context.now_ms + LOOK_MS;
        let until_ms = settling.until_ms;
        let failed = self.on_notifications(stream, outbox, peer, context).is_err();
        if outbox.is_pinning() && (failed || context.now_ms >= until_ms) {
            if let Some(more) = context.shared.may_log(peer.about(), crate::observe::log_limit::Kind::Pinned) {
                let peer = peer.address;
                tracing::error!(
                    %peer,
                    "the network card does not give memory back that it was to send: it is not used again{more}"
                );
            }
            outbox.leak();
        }
        if !outbox.is_pinning() {
            self.settling = None;
        }
    }
}
