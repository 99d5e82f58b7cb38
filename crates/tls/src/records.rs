//! The records of a connection after its handshake (RFC 8446, 5): what is sent and received in them
//! as a [`Layer`] of a stream, changes of keys, alerts.
//!
//! Owns the two directions and what goes from one to the other: a KeyUpdate that is to be answered,
//! and the alert for what a peer must not send. It does not know what the data are.

mod control;
mod end;
mod error;
mod half;
mod kernel;
mod receiver;
mod sender;

use std::io::{self, IoSlice, IoSliceMut};
use std::net::TcpStream;

use ebof_authentication::KeyMaterial;
use ebof_sockets::Layer;

use crate::alert::Alert;
use crate::error::HandshakeError;
use crate::schedule::Suite;

use half::Half;
use receiver::Receiver;
use sender::Sender;

pub use error::RecordError;
pub(crate) use kernel::KernelRecords;

/// Both directions of a connection.
pub(crate) struct Records {
    receiver: Receiver,
    sender: Sender,
}

/// What a connection may do before it changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Blocks of 16 bytes that are encrypted with one key, with two more for each record. Then the
    /// key is changed (KeyUpdate).
    ///
    /// RFC 8446, 5.5 allows 2^24.5 full records with AES-GCM, which are 2^34.5 blocks. Blocks, not
    /// records, are counted, because Linux (7.3) does not follow a KeyUpdate on connections of
    /// NVMe, and ends them: that is every 256 GiB then, and not after some minutes of small
    /// completions.
    pub key_blocks: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { key_blocks: 1 << 34 }
    }
}

/// Who makes and opens the records of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordsBy {
    /// This process.
    #[default]
    Own,
    /// The kernel, where it can.
    Kernel,
}

impl RecordsBy {
    /// Its name in options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Kernel => "kernel",
        }
    }

    /// The one with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Own, Self::Kernel].into_iter().find(|by| by.name() == name)
    }
}

/// RFC 8446, 5.1: most bytes of what is in a record.
const PLAINTEXT_BYTES_MAX: usize = 1 << 14;
/// RFC 8446, 5.1: type, legacy version, length.
const HEADER_BYTES: usize = 5;
/// RFC 8446, 5.2: most bytes of an encrypted record behind its header.
const CIPHERTEXT_BYTES_MAX: usize = PLAINTEXT_BYTES_MAX + 256;
/// AES-GCM's.
const TAG_BYTES: usize = 16;

/// RFC 8446, 5.1: `ContentType`.
mod content {
    pub(super) const ALERT: u8 = 21;
    pub(super) const HANDSHAKE: u8 = 22;
    pub(super) const APPLICATION_DATA: u8 = 23;
}

/// RFC 8446, 4.6.3: a KeyUpdate with its header.
const KEY_UPDATE: u8 = 24;

impl Records {
    /// With the traffic secrets of a handshake. `received` are bytes of the peer behind it.
    pub(crate) fn new(
        suite: Suite,
        ours: KeyMaterial,
        theirs: KeyMaterial,
        received: Vec<u8>,
        limits: Limits,
    ) -> Result<Self, HandshakeError> {
        let half = |secret| Half::new(suite, secret).map_err(HandshakeError::Keys);
        let sender = Sender::new(half(ours)?, limits.key_blocks);
        Ok(Self { receiver: Receiver::new(half(theirs)?, received), sender })
    }
}

impl Layer for Records {
    fn receive(&mut self, socket: &TcpStream, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let received = self.receiver.receive(socket, parts, &mut self.sender);
        if let Some(alert) = self.receiver.take_alert() {
            self.sender.end(socket, alert);
        }
        received
    }

    fn send(&mut self, socket: &TcpStream, parts: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        self.sender.send(socket, parts, more)
    }

    fn has_received(&self) -> bool {
        self.receiver.has_received()
    }

    fn name(&self) -> &'static str {
        RecordsBy::Own.name()
    }

    fn end(&mut self, socket: &TcpStream) {
        // A peer that has closed its socket answers data with a reset, which Linux' host reports as
        // an error of the connection that it has just given up.
        if !self.receiver.is_closed() {
            self.sender.end(socket, Alert::CLOSE_NOTIFY);
        }
    }
}

/// A peer's sending direction, for fuzzing.
#[cfg(feature = "fuzz")]
pub(crate) struct Sealing(Half);

#[cfg(feature = "fuzz")]
impl Sealing {
    pub(crate) fn new(secret: KeyMaterial) -> Self {
        Self(Half::new(Suite::Aes128GcmSha256, secret).expect("a secret of its length"))
    }

    /// Appends a record with so many bytes of padding.
    pub(crate) fn seal(&mut self, wire: &mut Vec<u8>, kind: u8, content: &[u8], padding: usize) {
        // The type is the last byte that is not zero (RFC 8446, 5.4).
        let inner = [content, &[kind], &vec![0; padding]].concat();
        let (last, rest) = inner.split_last().expect("the type");
        self.0.seal(wire, *last, |out| out.extend_from_slice(rest)).expect("a record that is not too long");
    }

    /// Appends a KeyUpdate, and goes on with the next key.
    pub(crate) fn update(&mut self, wire: &mut Vec<u8>, requested: u8) {
        self.seal(wire, content::HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, requested], 0);
        self.0.update().expect("the next key");
    }
}

/// The receiving direction alone, for fuzzing.
#[cfg(feature = "fuzz")]
pub(crate) struct Receiving(Records);

#[cfg(feature = "fuzz")]
impl Receiving {
    /// With all bytes that its peer will ever have sent.
    pub(crate) fn new(secret: KeyMaterial, wire: Vec<u8>) -> Self {
        let ours = KeyMaterial::new(vec![1; secret.bytes().len()]);
        let records = Records::new(Suite::Aes128GcmSha256, ours, secret, wire, Limits::default());
        Self(records.expect("secrets of their length"))
    }

    pub(crate) fn receive(&mut self, socket: &TcpStream, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.receive(socket, parts)
    }

    pub(crate) fn has_received(&self) -> bool {
        self.0.has_received()
    }
}

#[cfg(test)]
mod tests;
