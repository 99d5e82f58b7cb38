//! The controller's end of a connection.
//!
//! Receiving, in a loop over what a read of the socket gave:
//! ```text
//! loop {
//!     while connection.data_wanted() > 0 && !input.is_empty() {   // or let the next read fill the buffer itself
//!         copy the front of `input` to the buffer; n = connection.data_received(what was copied); advance input by n
//!     }
//!     match connection.poll_event(&mut input)? { None => break, Some(event) => ... }
//! }
//! ```
use alloc::vec::Vec;

use ebof_nvme::{Cid, Cqe, QueueId, Sqe};

use crate::error::{FatalError, Termination};
use crate::parameters::{Digest, Parameters, Trailer};

/// What this end offers and allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// In-capsule data accepted on I/O queues, in bytes: IOCCSZ * 16 - 64. The Admin Queue and Fabrics commands may
    /// always carry 8192 bytes.
    pub in_capsule_bytes: u32,
    /// MAXH2CDATA in bytes: data that one H2CData PDU may carry; a multiple of 4, at least 4096.
    pub h2c_data_max: u32,
    /// CPDA in bytes, 4 to 128 and a multiple of 4. Hosts that ask for no alignment of their own (HPDA 0) are answered
    /// 4 whatever stands here: the Linux host refuses anything else.
    pub alignment: u32,
    /// Header digest.
    pub header_digest: Digest,
    /// Data digest.
    pub data_digest: Digest,
    /// Whether a C2HData PDU may stand for the response (SUCCESS flag).
    pub c2h_success: bool,
    /// A transfer is asked for in R2Ts of this many bytes where the host offers several at a time; a host that offers
    /// one gets one R2T for the whole transfer.
    pub r2t_bytes: u32,
}

/// What happened on the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An ICReq was accepted: answer with [`Connection::send_ic_response`] before polling on.
    Initialized(Parameters),
    /// A command. `in_capsule` bytes of data follow in the stream: where not zero, the next event is
    /// [`Event::Data`], unless [`Connection::skip_data`] is called first.
    Command {
        /// The submission queue entry. Its SGL was not compared with `in_capsule`.
        sqe: Sqe,
        /// Data bytes in the capsule; within the limit.
        in_capsule: u32,
    },
    /// The next `length` bytes of the stream belong at `offset` of the command's buffer. They are within what was
    /// requested, or are the in-capsule data.
    Data {
        /// The command.
        cid: Cid,
        /// Offset in its buffer, bytes.
        offset: u32,
        /// Length in bytes, not zero.
        length: u32,
    },
    /// One PDU's data have arrived. Where not `complete`, call [`Connection::pump_r2t`].
    DataEnd {
        /// The command.
        cid: Cid,
        /// Whether the data digests of all the command's PDUs so far matched (or none are used). After a mismatch no
        /// more is requested; what is already on its way still arrives. Complete the command with Transient Transport
        /// Error when `complete`.
        digest_ok: bool,
        /// Whether everything that was requested has arrived.
        complete: bool,
    },
    /// The host ended the connection with an H2CTermReq. Close it; nothing more is accepted.
    TermReceived(Termination),
}

/// Every place for commands that await data is taken: the host has more commands outstanding than its queue holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyTransfers;

/// The controller's end of one connection.
#[derive(Debug)]
pub struct Connection {
    config: Config,
}

#[expect(clippy::todo, unused_variables, clippy::unused_self, reason = "signatures first")]
impl Connection {
    /// A connection that awaits its ICReq, with room for 32 commands that await data.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config }
    }
    /// After a successful Connect: the queue's number (0 ends the Admin Queue's larger in-capsule limit) and its size.
    pub fn set_queue(&mut self, queue: QueueId, entries: usize) {
        todo!()
    }
    /// SQ flow control was disabled by Connect (CATTR), so a response's SQHD carries nothing.
    pub fn set_sq_flow_disabled(&mut self, disabled: bool) {
        todo!()
    }
    /// Consumes from the front of `input` up to the next event. `None`: all was consumed, or (when
    /// [`Self::data_wanted`] is not zero) data come first.
    ///
    /// # Errors
    /// The host broke the transport: [`Self::send_term`], flush, close. Every later call fails again.
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
    /// The rest of the data announced by the last [`Event::Command`] or [`Event::Data`] is not wanted: `poll_event`
    /// consumes and drops it. No [`Event::DataEnd`] follows for this PDU.
    pub fn skip_data(&mut self) {
        todo!()
    }
    /// What was agreed on, once initialized.
    pub fn initialized(&self) -> Option<Parameters> {
        todo!()
    }
    /// Appends the ICResp. To be called once, after [`Event::Initialized`].
    pub fn send_ic_response(&mut self, out: &mut Vec<u8>) {
        todo!()
    }
    /// Asks for the `length` bytes of data of `cid`: appends as many R2Ts as the host allows.
    ///
    /// # Errors
    /// No place is free.
    pub fn request_data(&mut self, cid: Cid, length: u32, out: &mut Vec<u8>) -> Result<(), TooManyTransfers> {
        todo!()
    }
    /// Appends the R2Ts that have become possible; after every [`Event::DataEnd`] that is not complete.
    pub fn pump_r2t(&mut self, cid: Cid, out: &mut Vec<u8>) {
        todo!()
    }
    /// Asks for no more data of `cid`. True: data are on their way, [`Event::DataEnd`] with `complete` comes when they
    /// have arrived, and only then may the response be sent. False: nothing is outstanding.
    pub fn stop_requesting(&mut self, cid: Cid) -> bool {
        todo!()
    }
    /// The command's buffer is gone: data still on their way are consumed and dropped without any event.
    pub fn abandon(&mut self, cid: Cid) {
        todo!()
    }
    /// Whether a SUCCESS flag may stand for this response.
    pub fn success_allowed(&self, cqe: &Cqe) -> bool {
        todo!()
    }
    /// Appends a C2HData header, header digest and padding to `head`; `payload` follows, then the trailer.
    /// `success` needs `last` and [`Self::success_allowed`]. `payload` is only read where data digests are used.
    pub fn send_data(
        &mut self,
        cid: Cid,
        offset: u32,
        payload: &[u8],
        last: bool,
        success: bool,
        head: &mut Vec<u8>,
    ) -> Trailer {
        todo!()
    }
    /// Appends a response capsule.
    pub fn send_response(&mut self, cqe: &Cqe, out: &mut Vec<u8>) {
        todo!()
    }
    /// Appends the C2HTermReq about `error`.
    pub fn send_term(&mut self, error: &FatalError, out: &mut Vec<u8>) {
        todo!()
    }
}
