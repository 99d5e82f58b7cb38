//! Data of writes that are sent without a copy: the command's buffer stays until the kernel has
//! told that it is done with it.

#[cfg(test)]
mod tests;

use std::time::Duration;

use ebof_pinned::Pinned;
use rustix::io::Errno;

use super::Link;
use crate::error::Loss;
use crate::slots::Slots;

/// How long a network card may still read what it was handed of a connection that was broken off.
/// Longer means that it hangs.
const SETTLE_TIME: Duration = Duration::from_secs(2);

impl Link {
    /// Sends data of `least` bytes or more without a copy from now on, until the kernel has copied
    /// `copied_max` times in a row all the same. The socket is one that [`ebof_pinned::enable`] was
    /// called for.
    pub(super) fn pin_from(&mut self, least: u32, copied_max: u32) {
        self.pinned = Some(Box::new(Pinned::new(least, copied_max)));
    }

    /// Whether `length` bytes of a command that has `all` are to be sent without a copy. Its buffer
    /// is the slot's: one that is lent goes back to its owner with the call, whatever a network
    /// card does with it.
    pub(super) fn pins(&self, all: u32, length: usize) -> bool {
        let all = usize::try_from(all).unwrap_or(usize::MAX);
        let least = usize::try_from(ebof_pinned::SEND_MIN).unwrap_or(usize::MAX);
        self.pinned.as_ref().is_some_and(|pinned| pinned.wants(all) && length >= least)
    }

    /// Takes what the kernel tells about data that were sent without a copy, if there are any that
    /// it has to tell about.
    pub(crate) fn reclaim<B>(&mut self, slots: &mut Slots<B>) -> Result<(), Loss> {
        let Some(pinned) = self.pinned.as_mut().filter(|pinned| pinned.is_waiting()) else { return Ok(()) };
        let collected = pinned.collect(&self.socket, |slot| slots.payload_sent(slot));
        let collected = collected.map_err(|error| Loss::Network(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        if collected.fell_back {
            tracing::debug!("the kernel copies what it is to send without a copy: this connection copies again");
        }
        Ok(())
    }

    /// Ends the connection. Buffers that a network card does not give back are never used again.
    pub(crate) fn close<B>(mut self, slots: &mut Slots<B>) {
        let Some(pinned) = &mut self.pinned else { return };
        if !pinned.abort_and_wait(&self.socket, SETTLE_TIME, |slot| slots.payload_sent(slot)) {
            let buffers = slots.withhold_unsent();
            tracing::error!(
                buffers,
                "the network card does not give back memory that it was to send {SETTLE_TIME:?} ago: it is not used again"
            );
        }
    }
}
