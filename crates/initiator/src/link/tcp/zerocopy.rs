//! Data of writes that are sent without a copy: the command's buffer stays until the kernel has
//! told that it is done with it.

#[cfg(test)]
mod tests;

use std::io::{self, IoSlice};
use std::time::Duration;

use ebof_pinned::Pinned;
use ebof_sockets::Stream;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use super::{Tcp, errno};
use crate::error::Loss;
use crate::slots::Slots;

/// How long a network card may still read what it was handed of a connection that was broken off.
/// Longer means that it hangs.
const SETTLE_TIME: Duration = Duration::from_secs(2);

impl Tcp {
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
    pub(super) fn collect<B>(&mut self, slots: &mut Slots<B>) -> Result<(), Loss> {
        let Some(pinned) = self.pinned.as_mut().filter(|pinned| pinned.is_waiting()) else { return Ok(()) };
        let Some(socket) = self.stream.socket() else { return Ok(()) };
        let collected = pinned.collect(socket, |slot| slots.payload_sent(slot));
        if collected.map_err(|error| Loss::Network(errno(&error)))?.fell_back {
            tracing::debug!("the kernel copies what it is to send without a copy: this connection copies again");
        }
        Ok(())
    }

    /// Waits until the kernel is done with all data, of a connection that ends.
    pub(super) fn unpin<B>(&mut self, slots: &mut Slots<B>) {
        let (Some(pinned), Some(socket)) = (&mut self.pinned, self.stream.socket()) else { return };
        if !pinned.abort_and_wait(socket, SETTLE_TIME, |slot| slots.payload_sent(slot)) {
            let buffers = slots.withhold_unsent();
            tracing::error!(
                buffers,
                "the network card does not give back memory that it was to send {SETTLE_TIME:?} ago: it is not used again"
            );
        }
    }
}

/// Sends `parts`; with `pinned` without a copy, where the system can. `more` follows at once.
pub(super) fn send(
    stream: &mut Stream,
    pinned: Option<&mut Pinned<u16>>,
    parts: &[IoSlice<'_>],
    more: bool,
) -> io::Result<usize> {
    let (Some(pinned), Some(socket)) = (pinned, stream.socket()) else { return stream.send(parts, more) };
    let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT | ebof_pinned::FLAG;
    flags.set(SendFlags::MORE, more);
    match sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), flags) {
        Ok(sent) => {
            pinned.note_send();
            Ok(sent)
        }
        // No room to remember the pages.
        Err(Errno::NOBUFS) => stream.send(parts, more),
        Err(errno) => Err(errno.into()),
    }
}
