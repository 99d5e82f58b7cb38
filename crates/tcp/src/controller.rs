//! The controller's end of a connection.
//!
//! Receiving, in a loop over what a read of the socket gave:
//! ```text
//! loop {
//!     while connection.data_wanted() > 0 && !input.is_empty() {  // or let a read fill the buffer
//!         copy the front of `input` to the buffer
//!         n = connection.data_received(what was copied)
//!         advance `input` by n
//!     }
//!     match connection.poll_event(&mut input)? { None => break, Some(event) => ... }
//! }
//! ```

mod transfer;

use alloc::vec::Vec;

use ebof_nvme::{Cid, Cqe, QueueId, Sqe, opcode};

use self::transfer::{DataUse, Transfers};
use crate::error::{FatalError, Termination};
use crate::parameters::{Digest, Parameters, Trailer};
use crate::pdu::{C2hData, CapsuleCmd, CapsuleResp, Common, H2cData, IcReq, IcResp, Layout, PduType, TermReq};
use crate::pdu::{alignment_bytes, field, read_header};
use crate::receive::{Frame, ReceiveStep, Receiver, Violation};

/// What this end offers and allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionConfig {
    /// In-capsule data accepted on I/O queues, in bytes: IOCCSZ * 16 - 64. The Admin Queue and
    /// Fabrics commands may always carry 8192 bytes.
    pub in_capsule_bytes: u32,
    /// MAXH2CDATA in bytes: data that one H2CData PDU may carry; a multiple of 4, at least 4096.
    pub h2c_data_max: u32,
    /// CPDA in bytes, 4 to 128 and a multiple of 4. Hosts that ask for no alignment of their own
    /// (HPDA 0) are answered 4 whatever stands here: the Linux host refuses anything else.
    pub alignment: u32,
    /// Header digest.
    pub header_digest: Digest,
    /// Data digest.
    pub data_digest: Digest,
    /// Whether a C2HData PDU may stand for the response (SUCCESS flag).
    pub c2h_success: bool,
    /// A transfer is asked for in R2Ts of this many bytes where the host offers several at a time;
    /// a host that offers one gets one R2T for the whole transfer. A multiple of 4, at least 4.
    pub r2t_bytes: u32,
}

/// What happened on the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An ICReq was accepted: answer with [`Connection::send_ic_response`] before polling on.
    Initialized(Parameters),
    /// A command. `in_capsule` bytes of data follow in the stream: where not zero, the next event
    /// is [`Event::Data`], unless [`Connection::skip_data`] is called first.
    Command {
        /// The submission queue entry. Its SGL was not compared with `in_capsule`.
        sqe: Sqe,
        /// Data bytes in the capsule; within the limit.
        in_capsule: u32,
    },
    /// The next `length` bytes of the stream belong at `offset` of the command's buffer. They are
    /// within what was requested, or are the in-capsule data.
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
        /// Whether the data digests of all the command's PDUs so far matched (or none are used).
        /// After a mismatch no more is requested; what is already on its way still arrives.
        /// Complete the command with Transient Transport Error when `complete`.
        digest_ok: bool,
        /// Whether everything that was requested has arrived.
        complete: bool,
    },
    /// The host ended the connection with an H2CTermReq. Close it; nothing more is accepted.
    TermReceived(Termination),
}

/// Data that came in a command's capsule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InCapsule<'a> {
    /// All of them.
    pub bytes: &'a [u8],
    /// Whether their digest matched (or none is used). Otherwise complete the command with
    /// Transient Transport Error.
    pub digest_ok: bool,
}

/// Every place for commands that await data is taken: the host has more commands outstanding than
/// its queue holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyTransfers;

/// The controller's end of one connection.
///
/// ```text
///                 ICReq                send_ic_response
///   AwaitRequest ───────> MustRespond ─────────────────> Running
///         │                    │                            │
///         └────────────────────┴── violation, H2CTermReq ───┴──> (the receiver ignores all)
/// ```
#[derive(Debug)]
pub struct Connection {
    config: ConnectionConfig,
    state: State,
    receiver: Receiver,
    /// How PDUs to the host are laid out.
    layout: Layout,
    transfers: Transfers,
    current: Current,
    in_capsule_max: u32,
    is_admin: bool,
    sq_flow_disabled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    AwaitRequest,
    MustRespond(Parameters),
    Running(Parameters),
}

/// Whose data are under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Current {
    None,
    /// In the capsule; not yet announced as [`Event::Data`].
    Unannounced {
        cid: Cid,
        length: u32,
    },
    InCapsule {
        cid: Cid,
    },
    Transfer {
        slot: u16,
        cid: Cid,
        length: u32,
    },
    /// Dropped: their end is not reported.
    Dropped,
    /// Dropped, but the R2T that asked for them is still to be settled.
    DroppedTransfer {
        slot: u16,
        length: u32,
    },
}

/// The in-capsule data that the Admin Queue and Fabrics commands may always carry, bytes.
const ADMIN_IN_CAPSULE: u32 = 8192;

/// Room for commands that await data before the queue's size is known.
const ENTRIES_BEFORE_CONNECT: usize = 32;

impl Connection {
    /// A connection that awaits its ICReq, with room for 32 commands that await data.
    #[must_use]
    pub fn new(config: ConnectionConfig) -> Self {
        Self {
            config,
            state: State::AwaitRequest,
            receiver: Receiver::new(true),
            layout: Layout::PLAIN,
            transfers: Transfers::new(ENTRIES_BEFORE_CONNECT),
            current: Current::None,
            in_capsule_max: config.in_capsule_bytes.max(ADMIN_IN_CAPSULE),
            is_admin: true,
            sq_flow_disabled: false,
        }
    }

    /// Before [`set_queue`](Self::set_queue): the limit of in-capsule data that the controller
    /// announced, whatever the configuration of this connection says.
    pub fn set_in_capsule_bytes(&mut self, bytes: u32) {
        self.config.in_capsule_bytes = bytes;
    }

    /// After a successful Connect: the queue's number, which decides on the in-capsule limit, and
    /// its size in entries.
    pub fn set_queue(&mut self, queue: QueueId, entries: usize) {
        self.is_admin = queue.is_admin();
        self.in_capsule_max = match self.is_admin {
            true => self.config.in_capsule_bytes.max(ADMIN_IN_CAPSULE),
            false => self.config.in_capsule_bytes,
        };
        self.transfers.resize(entries);
    }

    /// SQ flow control was disabled by Connect (CATTR), so a response's SQHD carries nothing.
    pub fn set_sq_flow_disabled(&mut self, disabled: bool) {
        self.sq_flow_disabled = disabled;
    }

    /// Consumes from the front of `input` up to the next event. `None`: all was consumed, or (when
    /// [`Self::data_wanted`] is not zero) data come first. Poll until `None`, also when `input` has
    /// become empty: an event may need no more bytes.
    ///
    /// # Errors
    /// The host broke the transport: [`Self::send_term`], flush, close. What still arrives is
    /// consumed and ignored.
    pub fn poll_event(&mut self, input: &mut &[u8]) -> Result<Option<Event>, FatalError> {
        if let Current::Unannounced { cid, length } = self.current {
            self.current = Current::InCapsule { cid };
            return Ok(Some(Event::Data { cid, offset: 0, length }));
        }
        loop {
            if let Some((frame, bytes)) = self.receiver.take_header(input) {
                // Handed on as it is, because it has a command in it.
                let event = self.header(frame, bytes);
                if matches!(event, Ok(None)) {
                    continue;
                }
                return event;
            }
            let step = self.receiver.step(input).inspect_err(|_| self.receiver.end())?;
            let event = match step {
                ReceiveStep::AwaitData | ReceiveStep::AwaitMore => return Ok(None),
                ReceiveStep::DataEnd { digest_ok } => self.data_end(digest_ok),
                ReceiveStep::Header(frame) => {
                    let held = self.receiver.held();
                    self.header(frame, frame.header(&held))?
                }
            };
            if let Some(event) = event {
                return Ok(Some(event));
            }
        }
    }

    /// How many bytes of the stream belong to the data last announced, next; zero when none.
    #[inline]
    #[must_use]
    pub fn data_wanted(&self) -> usize {
        match self.current {
            Current::Unannounced { .. } => 0,
            _ => self.receiver.data_wanted(),
        }
    }

    /// `bytes` are the next of the stream and were placed; takes at most [`Self::data_wanted`],
    /// returns how many.
    #[inline]
    pub fn data_received(&mut self, bytes: &[u8]) -> usize {
        match self.current {
            Current::Unannounced { .. } => 0,
            _ => self.receiver.data_received(bytes),
        }
    }

    /// The rest of the data announced by the last [`Event::Command`] or [`Event::Data`] is not
    /// wanted: `poll_event` consumes and drops it. No [`Event::DataEnd`] follows for this PDU. Data
    /// of an R2T that are skipped count as arrived; use [`Self::abandon`] to give up on a whole
    /// command.
    pub fn skip_data(&mut self) {
        self.receiver.drop_data();
        self.current = match self.current {
            Current::Transfer { slot, length, .. } => Current::DroppedTransfer { slot, length },
            Current::Unannounced { .. } | Current::InCapsule { .. } => Current::Dropped,
            other => other,
        };
    }

    /// The data of the last command, all of them, if `input` holds them: the stream then goes
    /// on behind them, and no [`Event::Data`] and [`Event::DataEnd`] follow. `None` changes
    /// nothing.
    #[inline]
    pub fn take_in_capsule<'a>(&mut self, input: &mut &'a [u8]) -> Option<InCapsule<'a>> {
        let Current::Unannounced { .. } = self.current else { return None };
        let (bytes, digest_ok) = self.receiver.take_data(input)?;
        self.current = Current::None;
        Some(InCapsule { bytes, digest_ok })
    }

    /// What was agreed on, once initialized.
    #[must_use]
    pub fn initialized(&self) -> Option<Parameters> {
        match self.state {
            State::Running(parameters) => Some(parameters),
            _ => None,
        }
    }

    /// Appends the ICResp. To be called once, after [`Event::Initialized`]; without effect at other
    /// times.
    pub fn send_ic_response(&mut self, out: &mut Vec<u8>) {
        let State::MustRespond(agreed) = self.state else { return };
        let Parameters { header_digest, data_digest, host_alignment, controller_alignment, .. } = agreed;
        let response = IcResp::new(controller_alignment, header_digest, data_digest, agreed.h2c_data_max);
        self.layout.append(&response, 0, out);
        self.layout = Layout { header_digest, data_digest, alignment: host_alignment };
        self.receiver.set_layout(Layout { header_digest, data_digest, alignment: controller_alignment });
        self.state = State::Running(agreed);
    }

    /// Asks for the `length` bytes of data of `cid`: appends as many R2Ts as the host allows. No
    /// other transfer of `cid` may be under way. Without effect when `length` is zero: nothing
    /// arrives then.
    ///
    /// # Errors
    /// No place is free.
    pub fn request_data(&mut self, cid: Cid, length: u32, out: &mut Vec<u8>) -> Result<(), TooManyTransfers> {
        if length == 0 {
            return Ok(());
        }
        let r2t_max = self.initialized().map_or(1, |parameters| parameters.r2t_max);
        let slot = self.transfers.start(cid, length, r2t_max, self.config.r2t_bytes).ok_or(TooManyTransfers)?;
        self.transfers.pump(slot, self.layout, out);
        Ok(())
    }

    /// Appends the R2Ts that have become possible; after every [`Event::DataEnd`] that is not
    /// complete.
    pub fn pump_r2t(&mut self, cid: Cid, out: &mut Vec<u8>) {
        if let Some(slot) = self.transfers.find(cid) {
            self.transfers.pump(slot, self.layout, out);
        }
    }

    /// Asks for no more data of `cid`. True: data are on their way, [`Event::DataEnd`] with
    /// `complete` comes when they have arrived, and only then may the response be sent. False:
    /// nothing is outstanding.
    ///
    /// The way to abort a command while its host sends: hosts do not expect a completion before
    /// they have sent what an R2T asked for.
    pub fn stop_requesting(&mut self, cid: Cid) -> bool {
        if matches!(self.current, Current::Unannounced { cid: c, .. } | Current::InCapsule { cid: c } if c == cid) {
            return true;
        }
        self.transfers.find(cid).is_some_and(|slot| self.transfers.stop(slot))
    }

    /// The command's buffer is gone: data still on their way are consumed and dropped without any
    /// event. The transfer tags of its R2Ts stay reserved until their data have come, so late data
    /// cannot reach another command.
    pub fn abandon(&mut self, cid: Cid) {
        match self.current {
            Current::Unannounced { cid: c, .. } | Current::InCapsule { cid: c } if c == cid => self.skip_data(),
            Current::Transfer { cid: c, .. } if c == cid => {
                self.skip_data();
                self.transfers.find(cid).into_iter().for_each(|slot| self.transfers.abandon(slot));
            }
            _ => self.transfers.find(cid).into_iter().for_each(|slot| self.transfers.abandon(slot)),
        }
    }

    /// Whether a SUCCESS flag may stand for this response (NVMe/TCP, C2HData: SUCCESS): it
    /// succeeded, says nothing else, and needs no SQHD.
    #[must_use]
    pub fn success_allowed(&self, cqe: &Cqe) -> bool {
        self.config.c2h_success && self.sq_flow_disabled && cqe.status.get() == 0 && cqe.result() == 0
    }

    /// Appends a C2HData header, header digest and padding to `head`; `payload` follows, then the
    /// trailer. `success` needs `last` and [`Self::success_allowed`]. `payload` is not empty; its
    /// bytes are only read where data digests are used.
    #[inline]
    pub fn send_data(
        &mut self,
        cid: Cid,
        offset: u32,
        payload: &[u8],
        last: bool,
        success: bool,
        head: &mut Vec<u8>,
    ) -> Trailer {
        let length = u32::try_from(payload.len()).expect("a transfer's length is 32 bits wide");
        self.send_data_header(cid, offset, length, last, success, head);
        self.trailer(payload)
    }

    /// Whether data to the host are followed by a digest.
    #[inline]
    #[must_use]
    pub fn uses_data_digest(&self) -> bool {
        self.layout.data_digest
    }

    /// What follows `payload`, the data of a PDU.
    #[inline]
    #[must_use]
    pub fn trailer(&self, payload: &[u8]) -> Trailer {
        self.layout.trailer(payload)
    }

    /// As [`Self::send_data`], for `length` bytes that are not at hand yet. [`Self::trailer`]
    /// follows them.
    #[inline]
    pub fn send_data_header(
        &mut self,
        cid: Cid,
        offset: u32,
        length: u32,
        last: bool,
        success: bool,
        head: &mut Vec<u8>,
    ) {
        let flags = if last { Common::LAST } else { 0 } | if last && success { Common::SUCCESS } else { 0 };
        let header = C2hData {
            common: self.layout.common(PduType::C2hData, flags, length),
            cccid: cid.0.into(),
            reserved10: [0; 2],
            datao: offset.into(),
            datal: length.into(),
            reserved20: [0; 4],
        };
        self.layout.append(&header, header.common.pdo, head);
    }

    /// Appends a response capsule.
    #[inline]
    pub fn send_response(&mut self, cqe: &Cqe, out: &mut Vec<u8>) {
        let response = CapsuleResp { common: self.layout.common(PduType::CapsuleResp, 0, 0), cqe: *cqe };
        self.layout.append(&response, 0, out);
    }

    /// Appends the C2HTermReq about `error`. What arrives afterwards is ignored.
    pub fn send_term(&mut self, error: &FatalError, out: &mut Vec<u8>) {
        self.receiver.end();
        TermReq::append(PduType::C2hTermReq, error, out);
    }

    /// A PDU's data, and their digest where one is used, have arrived.
    fn data_end(&mut self, digest_ok: bool) -> Option<Event> {
        match core::mem::replace(&mut self.current, Current::None) {
            Current::InCapsule { cid } => Some(Event::DataEnd { cid, digest_ok, complete: true }),
            Current::Transfer { slot, cid, length } => {
                let settled = self.transfers.add_received(slot, length, digest_ok);
                Some(Event::DataEnd { cid, digest_ok: settled.digest_ok, complete: settled.complete })
            }
            Current::DroppedTransfer { slot, length } => {
                self.transfers.add_received(slot, length, true);
                None
            }
            Current::None | Current::Dropped | Current::Unannounced { .. } => None,
        }
    }

    /// A header whose common part is right.
    #[inline]
    fn header(&mut self, frame: Frame, bytes: &[u8]) -> Result<Option<Event>, FatalError> {
        let fault = match (frame.kind, self.state) {
            // Returned by itself: as one of several results it would be stored field by field and
            // copied in larger pieces, which stalls store forwarding.
            (PduType::CapsuleCmd, State::Running(_)) => match self.command(frame, read_header(bytes)) {
                Ok(event) => return Ok(Some(event)),
                Err(fault) => fault,
            },
            (PduType::H2cData, State::Running(parameters)) => match self.h2c_data(frame, bytes, parameters) {
                Ok(event) => return Ok(event),
                Err(fault) => fault,
            },
            _ => match self.rare_header(frame, bytes) {
                Ok(event) => return Ok(event),
                Err(fault) => fault,
            },
        };
        self.receiver.end();
        Err(fault.at(bytes))
    }

    fn rare_header(&mut self, frame: Frame, bytes: &[u8]) -> Result<Option<Event>, Violation> {
        match (frame.kind, self.state) {
            (PduType::H2cTermReq, _) => {
                self.receiver.end();
                Ok(Some(Event::TermReceived(Termination::read(bytes))))
            }
            (PduType::IcReq, State::AwaitRequest) => Ok(Some(self.ic_request(bytes)?)),
            (PduType::IcReq, _) => Err(Violation::sequence("a second ICReq")),
            (_, State::AwaitRequest) => Err(Violation::sequence("a PDU before ICReq")),
            (_, State::MustRespond(_)) => Err(Violation::sequence("a PDU before ICResp was sent")),
            _ => Err(Violation::field(field::TYPE, "this PDU type is not for a controller")),
        }
    }

    /// NVMe/TCP, Initialize Connection Request.
    fn ic_request(&mut self, bytes: &[u8]) -> Result<Event, Violation> {
        let request = read_header::<IcReq>(bytes);
        if request.pfv.get() != 0 {
            return Err(Violation::unsupported(IcReq::PFV, "the PDU format version is not 0"));
        }
        if request.hpda > 31 {
            return Err(Violation::field(IcReq::HPDA, "HPDA is above 31"));
        }
        let agree = |wanted: bool, ours: Digest| match (wanted, ours) {
            (false, Digest::Required) => {
                Err(Violation::unsupported(IcReq::DGST, "a digest that is required is not offered"))
            }
            (wanted, ours) => Ok(wanted && ours != Digest::Refused),
        };
        let header_digest = agree(request.dgst & 1 != 0, self.config.header_digest)?;
        let data_digest = agree(request.dgst & 2 != 0, self.config.data_digest)?;
        let agreed = Parameters {
            header_digest,
            data_digest,
            host_alignment: alignment_bytes(request.hpda),
            // Deviation: Linux (all versions so far) drops a controller that answers CPDA other
            // than 0, and sends HPDA 0 itself: a host without alignment of its own gets none.
            controller_alignment: if request.hpda == 0 { 4 } else { self.config.alignment.clamp(4, 128) & !3 },
            r2t_max: request.maxr2t.get().saturating_add(1),
            h2c_data_max: self.config.h2c_data_max.max(4096) & !3,
        };
        self.state = State::MustRespond(agreed);
        Ok(Event::Initialized(agreed))
    }

    /// NVMe/TCP, Command Capsule PDU.
    #[inline]
    fn command(&mut self, frame: Frame, capsule: &CapsuleCmd) -> Result<Event, Violation> {
        let sqe = &capsule.sqe;
        if frame.data > 0 {
            let limit = match sqe.opcode {
                opcode::FABRICS => self.in_capsule_max.max(ADMIN_IN_CAPSULE),
                _ => self.in_capsule_max,
            };
            if frame.data > limit {
                return Err(Violation::limit("more data in the capsule than announced"));
            }
            self.receiver.begin_data(frame.data, true);
            self.current = Current::Unannounced { cid: sqe.cid(), length: frame.data };
        }
        Ok(Event::Command { sqe: *sqe, in_capsule: frame.data })
    }

    /// NVMe/TCP, Host To Controller Data Transfer PDU.
    #[inline]
    fn h2c_data(&mut self, frame: Frame, bytes: &[u8], agreed: Parameters) -> Result<Option<Event>, Violation> {
        let pdu = read_header::<H2cData>(bytes);
        let last = frame.flags & Common::LAST != 0;
        let (slot, verdict) = self.transfers.accept(pdu, frame.data, last, agreed.h2c_data_max)?;
        let wanted = verdict == DataUse::Wanted;
        self.receiver.begin_data(frame.data, wanted);
        let cid = Cid(pdu.cccid.get());
        let offset = pdu.datao.get();
        let length = frame.data;
        if wanted {
            self.current = Current::Transfer { slot, cid, length };
            Ok(Some(Event::Data { cid, offset, length }))
        } else {
            self.current = Current::DroppedTransfer { slot, length };
            Ok(None)
        }
    }
}
