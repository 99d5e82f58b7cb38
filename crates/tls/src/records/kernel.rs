//! Records that the kernel makes and opens: data go through it as through a socket without TLS, and
//! what is left to do is alerts, changes of keys, and their ends.
//!
//! Owns the secrets of both directions, for their next keys, and counts what was encrypted with
//! one. The kernel does the same with records as [`Records`](super::Records), with two exceptions:
//! it counts no records in a row that have nothing in them, and before Linux 6.14 it cannot change
//! a key. A connection that needs another one ends then, and both ends make it again.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::TcpStream;

use ebof_authentication::KeyMaterial;
use ebof_sockets::Layer;
use nix::errno::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use super::control::{ControlRecords, PeerAsks};
use super::end::ReceiveEnd;
use super::error::RecordError;
use super::{HEADER_BYTES, KEY_UPDATE, Limits, PLAINTEXT_BYTES_MAX, RecordsBy, TAG_BYTES, content};
use crate::alert::Alert;
use crate::kernel::{self, KeyDirection, NotInKernel, Piece};
use crate::schedule::{self, Suite};

/// Both directions of a connection.
pub(crate) struct KernelRecords {
    suite: Suite,
    ours: KeyMaterial,
    theirs: KeyMaterial,
    /// The beginning of a record that is no data, whose type this is.
    begun: Option<(u8, Vec<u8>)>,
    control: ControlRecords,
    /// The socket was looked at. What it had when the kernel got the keys, it tells nobody of.
    is_looked_at: bool,
    end: Option<ReceiveEnd>,
    /// The peer has closed the connection.
    is_closed: bool,
    /// Blocks of the cipher that were used with this end's key, and how many may be.
    blocks: u64,
    blocks_max: u64,
    /// The peer wants this end's key changed before its next data.
    update_is_due: bool,
    /// Why nothing more is sent.
    ended: Option<RecordError>,
}

impl KernelRecords {
    /// Gives the kernel the keys of a handshake whose last message was the last thing that was
    /// read.
    ///
    /// # Errors
    /// The kernel does not take them, and nothing has changed; or, within, it has taken one.
    pub(crate) fn install(
        socket: &TcpStream,
        suite: Suite,
        ours: &KeyMaterial,
        theirs: &KeyMaterial,
        limits: Limits,
    ) -> Result<io::Result<Self>, NotInKernel> {
        kernel::attach(socket)?;
        let refused = |error| match error {
            Errno::ENOENT | Errno::EINVAL | Errno::EOPNOTSUPP => NotInKernel::Suite { suite, error },
            error => NotInKernel::Refused { error },
        };
        kernel::set_key(socket, KeyDirection::Receive, suite, theirs).map_err(refused)?;
        if let Err(error) = kernel::set_key(socket, KeyDirection::Send, suite, ours) {
            return Ok(Err(error.into()));
        }
        kernel::expect_no_padding(socket);
        Ok(Ok(Self {
            suite,
            ours: ours.clone(),
            theirs: theirs.clone(),
            begun: None,
            control: ControlRecords::new(),
            is_looked_at: false,
            end: None,
            is_closed: false,
            blocks: 0,
            blocks_max: limits.key_blocks,
            update_is_due: false,
            ended: None,
        }))
    }

    /// Takes a piece whose bytes are in `parts`, and says how many of them are data.
    fn take(&mut self, socket: &TcpStream, piece: Piece, parts: &[IoSliceMut<'_>]) -> Result<usize, RecordError> {
        let Piece { bytes, kind, is_whole } = piece;
        match kind {
            // Deviation: as in `Receiver::read`, a connection that is closed without close_notify.
            None | Some(content::APPLICATION_DATA) if bytes == 0 => {
                self.is_closed = true;
                self.end = Some(ReceiveEnd::default());
                return Ok(0);
            }
            Some(content::APPLICATION_DATA) => {
                self.control.check_order(content::APPLICATION_DATA)?;
                self.control.note_data();
                return Ok(bytes);
            }
            None => return Err(RecordError::NoType),
            Some(_) => {}
        }
        let kind = kind.unwrap_or_default();
        let (begun_kind, mut record) = self.begun.take().unwrap_or((kind, Vec::new()));
        if begun_kind != kind || record.len() + bytes > PLAINTEXT_BYTES_MAX {
            return Err(RecordError::Record { kind });
        }
        let mut left = bytes;
        for part in parts {
            let count = left.min(part.len());
            record.extend_from_slice(&part[..count]);
            left -= count;
        }
        if is_whole || bytes == 0 {
            self.control.check_order(kind)?;
            let asked = self.control.take(kind, &record)?;
            self.follow(socket, asked)?;
        } else {
            self.begun = Some((kind, record));
        }
        Ok(0)
    }

    fn follow(&mut self, socket: &TcpStream, asked: PeerAsks) -> Result<(), RecordError> {
        match asked {
            PeerAsks::Nothing => {}
            PeerAsks::End => self.end = Some(ReceiveEnd::default()),
            PeerAsks::NextKey { from_both } => {
                self.update_is_due |= from_both;
                self.theirs = schedule::next_secret(self.suite, &self.theirs);
                let set = kernel::set_key(socket, KeyDirection::Receive, self.suite, &self.theirs);
                set.map_err(|_| RecordError::KeyIsFixed)?;
            }
        }
        Ok(())
    }

    /// RFC 8446, 4.6.3: the last record with the old key says so. `false`: there is no room for it.
    fn change_key(&mut self, socket: &TcpStream) -> Result<bool, RecordError> {
        if !kernel::can_change_keys(socket, self.suite) {
            return Err(RecordError::KeyIsUsedUp);
        }
        match kernel::send(socket, content::HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 0]) {
            Ok(()) => {}
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(false),
            Err(_) => return Err(RecordError::Ended),
        }
        self.ours = schedule::next_secret(self.suite, &self.ours);
        kernel::set_key(socket, KeyDirection::Send, self.suite, &self.ours).map_err(|_| RecordError::KeyIsUsedUp)?;
        self.update_is_due = false;
        self.blocks = 0;
        Ok(true)
    }

    fn finish(&mut self, socket: &TcpStream, alert: Alert) {
        if self.ended.replace(RecordError::Ended).is_none() {
            let _ = kernel::send(socket, content::ALERT, &alert.record());
        }
    }
}

impl Layer for KernelRecords {
    fn receive(&mut self, socket: &TcpStream, mut parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let room: usize = parts.iter().map(|part| part.len()).sum();
        let mut filled = 0;
        // A call gives less than there is where a record is no data, and does not say so: only one
        // that gives nothing tells that there is no more.
        while filled < room && self.end.is_none() {
            let fault = match kernel::receive(socket, parts) {
                Ok(piece) => match self.take(socket, piece, parts) {
                    Ok(bytes) => {
                        filled += bytes;
                        IoSliceMut::advance_slices(&mut parts, bytes);
                        continue;
                    }
                    Err(fault) => fault,
                },
                Err(Errno::EAGAIN) => {
                    self.is_looked_at = true;
                    break;
                }
                Err(Errno::EINTR) => continue,
                Err(Errno::EBADMSG) => RecordError::Decrypt,
                Err(Errno::EMSGSIZE | Errno::EINVAL) => RecordError::Header,
                // The next call finds that it has ended.
                Err(_) if filled > 0 => break,
                Err(error) => return Err(error.into()),
            };
            self.end = Some(ReceiveEnd::with(fault));
            // The kernel has noted an error of the socket, and would send nothing with it.
            let _ = socket.take_error();
            if let Some(alert) = fault.alert() {
                self.finish(socket, alert);
            }
        }
        match &mut self.end {
            _ if filled > 0 || room == 0 => Ok(filled),
            None => Err(io::ErrorKind::WouldBlock.into()),
            Some(end) => end.tell(),
        }
    }

    fn send(&mut self, socket: &TcpStream, parts: &[IoSlice<'_>], _more: bool) -> io::Result<usize> {
        if let Some(fault) = self.ended {
            return Err(fault.into());
        }
        if self.update_is_due || self.blocks >= self.blocks_max {
            match self.change_key(socket) {
                Ok(true) => {}
                Ok(false) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(fault) => {
                    self.finish(socket, Alert::CLOSE_NOTIFY);
                    return Err(fault.into());
                }
            }
        }
        // Not `MORE`: the kernel would keep a record that is not full until there is more, however
        // long that takes.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), flags)?;
        // As `Sender` counts.
        let records = sent / PLAINTEXT_BYTES_MAX + 1;
        let bytes = sent + records * (HEADER_BYTES + 1 + TAG_BYTES);
        self.blocks += (bytes / 16 + records * 2) as u64;
        Ok(sent)
    }

    fn has_received(&self) -> bool {
        self.end.map_or(!self.is_looked_at, ReceiveEnd::is_news)
    }

    fn name(&self) -> &'static str {
        RecordsBy::Kernel.name()
    }

    fn end(&mut self, socket: &TcpStream) {
        if !self.is_closed {
            self.finish(socket, Alert::CLOSE_NOTIFY);
        }
    }
}

#[cfg(test)]
mod tests;
