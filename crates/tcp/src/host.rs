//! The host's end of a connection. Receiving works as in [`crate::controller`].
use alloc::vec::Vec;

use ebof_nvme::{Cid, Cqe, Sqe};

use crate::error::{FatalError, Termination};
use crate::parameters::{Digest, Parameters, Trailer};

/// What this end offers and asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Alignment in bytes that C2HData must have (HPDA), 4 to 128 and a multiple of 4. Linux' target wants 4.
    pub alignment: u32,
    /// Header digest: [`Digest::Required`] asks for it; the others do not.
    pub header_digest: Digest,
    /// Data digest, likewise.
    pub data_digest: Digest,
    /// R2Ts per command that may be outstanding, 1 or more.
    pub r2t_max: u32,
}

/// The controller asks for `length` bytes of a command's data from `offset` on; the part not yet sent.
/// [`Connection::send_h2c_data`] advances it. Drop it when the command completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct R2t {
    /// The command.
    pub cid: Cid,
    /// The controller's transfer tag.
    pub ttag: u16,
    /// Offset in the command's data, bytes.
    pub offset: u32,
    /// Bytes not yet sent.
    pub length: u32,
}

/// Which data a command moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer<'a> {
    /// None.
    None,
    /// Up to `length` bytes to the host.
    Read {
        /// Bytes, also written into the SGL.
        length: u32,
    },
    /// `length` bytes to the controller, which it asks for by R2T.
    Write {
        /// Bytes, also written into the SGL.
        length: u32,
    },
    /// Data to the controller inside the capsule; the caller sends them behind the header.
    InCapsule {
        /// The data; read only where data digests are used.
        payload: &'a [u8],
    },
}

/// What happened on the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The ICResp arrived: commands may be sent.
    Initialized(Parameters),
    /// The controller wants data: send them with [`Connection::send_h2c_data`], R2Ts of one command in their order.
    R2t(R2t),
    /// The next `length` bytes of the stream belong at `offset` of the command's buffer.
    Data {
        /// The command.
        cid: Cid,
        /// Offset in its buffer, bytes.
        offset: u32,
        /// Length in bytes, not zero.
        length: u32,
    },
    /// One PDU's data have arrived.
    DataEnd {
        /// The command.
        cid: Cid,
        /// Whether the data digest matched (or is not used).
        digest_ok: bool,
    },
    /// The command is complete; nothing more may arrive for it and its CID is free.
    Completion {
        /// The completion. Where a data digest did not match and the controller reports success, the status is
        /// Transient Transport Error.
        cqe: Cqe,
        /// Data bytes that arrived for the command.
        received: u32,
        /// The SUCCESS flag of the last C2HData stood for the response: there is no SQHD.
        from_success_flag: bool,
    },
    /// The controller ended the connection with a C2HTermReq. Close it; nothing more is accepted.
    TermReceived(Termination),
}

/// The host's end of one connection.
#[derive(Debug)]
pub struct Connection {
    config: Config,
}

#[expect(clippy::todo, unused_variables, clippy::unused_self, reason = "signatures first")]
impl Connection {
    /// A connection on which the ICReq is still to be sent, with room for commands whose CIDs differ modulo 32.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config }
    }
    /// Makes room for `entries` outstanding commands, rounded up to a power of two: their CIDs must differ modulo that
    /// power, the bits above are free (a generation, for example). Only while no command is outstanding.
    pub fn set_queue_entries(&mut self, entries: usize) {
        todo!()
    }
    /// Appends the ICReq. To be called once, first.
    pub fn send_ic_request(&mut self, out: &mut Vec<u8>) {
        todo!()
    }
    /// Consumes from the front of `input` up to the next event. `None`: all was consumed, or (when
    /// [`Self::data_wanted`] is not zero) data come first.
    ///
    /// # Errors
    /// The controller broke the transport: [`Self::send_term`], flush, close. Every later call fails again.
    pub fn poll_event(&mut self, input: &mut &[u8]) -> Result<Option<Event>, FatalError> {
        todo!()
    }
    /// How many bytes of the stream belong to the announced data, next.
    pub fn data_wanted(&self) -> usize {
        todo!()
    }
    /// `bytes` are the next of the stream and were placed; takes at most [`Self::data_wanted`], returns how many.
    pub fn data_received(&mut self, bytes: &[u8]) -> usize {
        todo!()
    }
    /// The rest of the announced data is not wanted: `poll_event` consumes and drops it.
    pub fn skip_data(&mut self) {
        todo!()
    }
    /// What was agreed on, once initialized.
    pub fn initialized(&self) -> Option<Parameters> {
        todo!()
    }
    /// Appends the command capsule, up to where in-capsule data begin (the caller sends payload, then trailer), and
    /// fills in the SGL.
    ///
    /// # Panics
    /// When the CID's place is taken or the connection is not initialized: a fault of the caller.
    pub fn send_command(&mut self, sqe: &mut Sqe, transfer: Transfer<'_>, out: &mut Vec<u8>) -> Trailer {
        todo!()
    }
    /// The bytes that the next H2CData PDU for `r2t` may carry.
    pub fn h2c_piece(&self, r2t: &R2t) -> u32 {
        todo!()
    }
    /// Appends the header of one H2CData PDU for `payload`, the next bytes of `r2t` (at most [`Self::h2c_piece`]);
    /// the caller sends payload, then trailer. Advances `r2t`; LAST is set when nothing is left of it.
    pub fn send_h2c_data(&mut self, r2t: &mut R2t, payload: &[u8], out: &mut Vec<u8>) -> Trailer {
        todo!()
    }
    /// Appends the H2CTermReq about `error`.
    pub fn send_term(&mut self, error: &FatalError, out: &mut Vec<u8>) {
        todo!()
    }
}
