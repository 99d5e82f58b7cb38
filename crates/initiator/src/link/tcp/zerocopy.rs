//! Zero-copy send of write data: a command's buffer is kept until the kernel reports that it is
//! done with it.

#[cfg(test)]
mod tests;

use std::io::{self, IoSlice};
use std::time::Duration;

use ebof_pinned::Pinned;
use ebof_sockets::Stream;

use super::errno;
use crate::command::slots::Slots;
use crate::error::Loss;

/// How long a closed connection waits for the network card to release its buffers.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Why there is leave to read the kernel's notifications.
const HAS_WIRE: &str = "only a stream that gives leave has been enabled, and a stream stays what it is";

/// What a connection sends without a copy, and the slots whose buffers the kernel may still read.
#[derive(Default)]
pub(super) struct ZeroCopy {
    /// `None`: everything is copied.
    pinned: Option<Box<Pinned<u16>>>,
}

impl ZeroCopy {
    /// Payloads of commands with `min` bytes or more are sent without a copy from now on, until the
    /// kernel has copied `copied_max` times in a row anyway, if the stream gives leave for that.
    /// [`ebof_pinned::enable`] must have been called for the socket.
    pub(super) fn enable(&mut self, stream: &Stream, min: u32, copied_max: u32) {
        self.pinned = stream.wire().map(|_| Box::new(Pinned::new(min, copied_max)));
    }

    /// Whether `length` bytes of a command with `all` bytes are to be sent without a copy. Only for
    /// buffers that the slot owns: a lent one returns to its owner at the end of the call.
    pub(super) fn wants(&self, all: u32, length: usize) -> bool {
        let all = usize::try_from(all).unwrap_or(usize::MAX);
        let min = usize::try_from(ebof_pinned::SEND_MIN).unwrap_or(usize::MAX);
        self.pinned.as_ref().is_some_and(|pinned| pinned.wants(all) && length >= min)
    }

    /// Whether payloads that are to be sent without a copy have to be sent apart from others.
    pub(super) fn may_send(&self) -> bool {
        self.pinned.as_ref().is_some_and(|pinned| pinned.may_send())
    }

    /// Sends `parts`; with `pin`, without a copy if the system can. `more`: further data follow at
    /// once.
    pub(super) fn send(
        &mut self,
        stream: &mut Stream,
        parts: &[IoSlice<'_>],
        pin: bool,
        more: bool,
    ) -> io::Result<usize> {
        if let Some(pinned) = self.pinned.as_deref_mut().filter(|_| pin)
            && let Some(sent) = stream.send_pinned(parts, more)?
        {
            pinned.note_send();
            return Ok(sent);
        }
        stream.send(parts, more)
    }

    /// A payload of the slot was sent. Whether the kernel may still read it: [`ZeroCopy::collect`]
    /// finds the end of that.
    pub(super) fn keeps(&mut self, slot: u16) -> bool {
        self.pinned.as_mut().is_some_and(|pinned| pinned.finish(slot).is_none())
    }

    /// Reads the kernel's notifications, if any are pending.
    pub(super) fn collect<B>(&mut self, stream: &Stream, slots: &mut Slots<B>) -> Result<(), Loss> {
        let Some(pinned) = self.pinned.as_mut().filter(|pinned| pinned.is_waiting()) else { return Ok(()) };
        let wire = stream.wire().expect(HAS_WIRE);
        let collected = pinned.collect(&wire, |slot| slots.payload_sent(slot));
        if collected.map_err(|error| Loss::Network(errno(&error)))?.fell_back {
            tracing::debug!("the kernel copies what it is to send without a copy: this connection copies again");
        }
        Ok(())
    }

    /// Aborts the connection and waits until the kernel has released all buffers.
    pub(super) fn drain<B>(&mut self, stream: &Stream, slots: &mut Slots<B>) {
        let Some(pinned) = &mut self.pinned else { return };
        let wire = stream.wire().expect(HAS_WIRE);
        if !pinned.abort_and_wait(&wire, DRAIN_TIMEOUT, |slot| slots.payload_sent(slot)) {
            let buffers = slots.leak_unsent();
            tracing::error!(
                buffers,
                "the network card does not give back memory that it was to send {DRAIN_TIMEOUT:?} ago: it is not used again"
            );
        }
    }
}
