//! The host's end of a connection. Receiving works as in [`crate::controller`].

mod outstanding;

use alloc::vec::Vec;

use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Cid, Cqe, Sgl, Sqe, Status};

use self::outstanding::{HostCommand, OutstandingCommands};
use crate::error::{FatalError, Termination};
use crate::parameters::{Digest, Parameters, Trailer};
use crate::pdu::{self, C2hData, CapsuleCmd, CapsuleResp, Common, H2cData, IcReq, IcResp, Layout, PduType, TermReq};
use crate::pdu::{alignment_bytes, field, read_header};
use crate::receive::{Frame, ReceiveStep, Receiver, Violation};

/// What this end offers and asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionConfig {
    /// Alignment in bytes that C2HData must have (HPDA), 4 to 128 and a multiple of 4. Linux'
    /// target wants 4.
    pub alignment: u32,
    /// Header digest: [`Digest::Required`] asks for it; the others do not.
    pub header_digest: Digest,
    /// Data digest, likewise.
    pub data_digest: Digest,
    /// R2Ts per command that may be outstanding, 1 or more.
    pub r2t_max: u32,
}

/// The controller asks for `length` bytes of a command's data from `offset` on; the part not yet
/// sent. [`Connection::send_h2c_data`] advances it. Drop it when the command completes.
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
pub enum CommandData<'a> {
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
    /// The controller wants data: send them with [`Connection::send_h2c_data`], R2Ts of one command
    /// in their order.
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
        /// The completion. Where a data digest did not match and the controller reports success,
        /// the status is Transient Transport Error.
        cqe: Cqe,
        /// Data bytes that were transferred for the command in either direction: fewer than
        /// announced although the status is success means that the controller is at fault.
        transferred: u32,
        /// The SUCCESS flag of the last C2HData stood for the response: there is no SQHD.
        from_success_flag: bool,
    },
    /// The controller ended the connection with a C2HTermReq. Close it; nothing more is accepted.
    TermReceived(Termination),
}

/// The host's end of one connection.
///
/// ```text
///         send_ic_request             ICResp
///   Idle ────────────────> AwaitResponse ──────> Running
/// ```
#[derive(Debug)]
pub struct Connection {
    config: ConnectionConfig,
    state: State,
    receiver: Receiver,
    /// How PDUs to the controller are laid out.
    layout: Layout,
    outstanding: OutstandingCommands,
    current: Current,
    /// The SUCCESS flag of the PDU whose data are under way stands for a completion still to be
    /// told.
    completion: Option<Cid>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    AwaitResponse,
    Running(Parameters),
}

/// Whose data are under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Current {
    None,
    Data {
        cid: Cid,
        length: u32,
        success: bool,
    },
    /// The caller dropped them, and their end is not reported.
    Dropped {
        cid: Cid,
        length: u32,
        success: bool,
    },
}

/// Room for commands before the queue's size is known.
const ENTRIES_BEFORE_CONNECT: usize = 32;

impl Connection {
    /// A connection on which the ICReq is still to be sent, with room for commands whose CIDs
    /// differ modulo 32.
    #[must_use]
    pub fn new(config: ConnectionConfig) -> Self {
        Self {
            config,
            state: State::Idle,
            receiver: Receiver::new(false),
            layout: Layout::PLAIN,
            outstanding: OutstandingCommands::new(ENTRIES_BEFORE_CONNECT),
            current: Current::None,
            completion: None,
        }
    }

    /// Makes room for `entries` outstanding commands, rounded up to a power of two: their CIDs must
    /// differ modulo that power, the bits above are free (a generation, for example).
    ///
    /// # Panics
    /// When commands are outstanding: a fault of the caller.
    pub fn set_queue_entries(&mut self, entries: usize) {
        self.outstanding.resize(entries);
    }

    /// Appends the ICReq. To be called once, first; without effect at other times.
    pub fn send_ic_request(&mut self, out: &mut Vec<u8>) {
        if self.state != State::Idle {
            return;
        }
        let ConnectionConfig { alignment, header_digest, data_digest, r2t_max } = self.config;
        let wants = |digest| digest == Digest::Required;
        let request = IcReq::new(alignment, wants(header_digest), wants(data_digest), r2t_max);
        self.layout.append(&request, 0, out);
        self.state = State::AwaitResponse;
    }

    /// Consumes from the front of `input` up to the next event. `None`: all was consumed, or (when
    /// [`Self::data_wanted`] is not zero) data come first. Poll until `None`, also when `input` has
    /// become empty: an event may need no more bytes.
    ///
    /// # Errors
    /// The controller broke the transport: [`Self::send_term`], flush, close. What still arrives is
    /// consumed and ignored.
    pub fn poll_event(&mut self, input: &mut &[u8]) -> Result<Option<Event>, FatalError> {
        if let Some(event) = self.completion.take().and_then(|cid| self.complete_by_flag(cid)) {
            return Ok(Some(event));
        }
        loop {
            if let Some((frame, bytes)) = self.receiver.take_header(input) {
                return self.header(frame, bytes).map(Some);
            }
            match self.receiver.step(input).inspect_err(|_| self.receiver.end())? {
                ReceiveStep::AwaitData | ReceiveStep::AwaitMore => return Ok(None),
                ReceiveStep::DataEnd { digest_ok } => {
                    if let Some(event) = self.data_end(digest_ok) {
                        return Ok(Some(event));
                    }
                }
                ReceiveStep::Header(frame) => {
                    let held = self.receiver.held();
                    return self.header(frame, frame.header(&held)).map(Some);
                }
            }
        }
    }

    /// How many bytes of the stream belong to the data last announced, next; zero when none.
    #[inline]
    #[must_use]
    pub fn data_wanted(&self) -> usize {
        self.receiver.data_wanted()
    }

    /// `bytes` are the next of the stream and were placed; takes at most [`Self::data_wanted`],
    /// returns how many.
    #[inline]
    pub fn data_received(&mut self, bytes: &[u8]) -> usize {
        self.receiver.data_received(bytes)
    }

    /// The rest of the announced data is not wanted: `poll_event` consumes and drops it, and their
    /// digest with it. No [`Event::DataEnd`] follows.
    pub fn skip_data(&mut self) {
        self.receiver.drop_data();
        if let Current::Data { cid, length, success } = self.current {
            self.current = Current::Dropped { cid, length, success };
        }
    }

    /// What was agreed on, once initialized.
    #[must_use]
    pub fn initialized(&self) -> Option<Parameters> {
        match self.state {
            State::Running(parameters) => Some(parameters),
            _ => None,
        }
    }

    /// Appends the command capsule, up to where in-capsule data begin (the caller sends payload,
    /// then trailer), and fills in the SGL.
    ///
    /// # Panics
    /// When the CID's place is taken or the connection is not initialized: a fault of the caller.
    pub fn send_command(&mut self, sqe: &mut Sqe, transfer: CommandData<'_>, out: &mut Vec<u8>) -> Trailer {
        assert!(matches!(self.state, State::Running(_)), "commands are sent once ICResp has arrived");
        let (sgl, payload, read, write): (Sgl, &[u8], u32, u32) = match transfer {
            CommandData::None => (Sgl::Transport { length: 0 }, &[], 0, 0),
            CommandData::Read { length } => (Sgl::Transport { length }, &[], length, 0),
            CommandData::Write { length } => (Sgl::Transport { length }, &[], 0, length),
            CommandData::InCapsule { payload } => {
                let length = u32::try_from(payload.len()).expect("in-capsule data are at most 1 MiB");
                (Sgl::InCapsule { offset: 0, length }, payload, 0, 0)
            }
        };
        sqe.dptr = SglDescriptor::encode(sgl);
        let in_capsule = if payload.is_empty() { 0 } else { sgl.length() };
        self.outstanding.begin(HostCommand { sent: in_capsule, ..HostCommand::new(sqe.cid(), read, write) });
        let common = self.layout.common(PduType::CapsuleCmd, 0, in_capsule);
        self.layout.append(&CapsuleCmd { common, sqe: *sqe }, common.pdo, out);
        self.layout.trailer(payload)
    }

    /// Whether a command with this CID, or one that shares its place, is outstanding.
    #[must_use]
    pub fn is_outstanding(&self, cid: Cid) -> bool {
        self.outstanding.is_taken(cid)
    }

    /// The bytes that the next H2CData PDU for `r2t` may carry.
    #[must_use]
    pub fn h2c_piece(&self, r2t: &R2t) -> u32 {
        let max = self.initialized().map_or(0, |parameters| parameters.h2c_data_max);
        r2t.length.min(max)
    }

    /// Appends the header of one H2CData PDU for `payload`, the next bytes of `r2t` (at most
    /// [`Self::h2c_piece`], at least one); the caller sends payload, then trailer. Advances `r2t`;
    /// LAST is set when nothing is left of it.
    ///
    /// # Panics
    /// When `payload` is longer than the piece, or the command has completed: a fault of the
    /// caller.
    pub fn send_h2c_data(&mut self, r2t: &mut R2t, payload: &[u8], out: &mut Vec<u8>) -> Trailer {
        let length = u32::try_from(payload.len()).expect("a payload is a piece of an R2T, whose length is a u32");
        assert!(length <= self.h2c_piece(r2t), "an H2CData PDU carries at most MAXH2CDATA and what is left of its R2T");
        let last = length == r2t.length;
        let command = self.outstanding.find(r2t.cid).expect("an R2T is dropped when its command completes");
        // A controller that completes a command before it has the data that it asked for may have
        // them with a later one, if that gets the same identifier: neither count is exact then.
        command.sent = command.sent.saturating_add(length);
        command.r2ts = command.r2ts.saturating_sub(u32::from(last));
        let pdu = H2cData {
            common: self.layout.common(PduType::H2cData, if last { Common::LAST } else { 0 }, length),
            cccid: r2t.cid.0.into(),
            ttag: r2t.ttag.into(),
            datao: r2t.offset.into(),
            datal: length.into(),
            reserved: [0; 4],
        };
        r2t.offset += length;
        r2t.length -= length;
        self.layout.append(&pdu, pdu.common.pdo, out);
        self.layout.trailer(payload)
    }

    /// Appends the H2CTermReq about `error`. What arrives afterwards is ignored.
    pub fn send_term(&mut self, error: &FatalError, out: &mut Vec<u8>) {
        self.receiver.end();
        TermReq::append(PduType::H2cTermReq, error, out);
    }

    /// A PDU's data, and their digest where one is used, have arrived.
    fn data_end(&mut self, digest_ok: bool) -> Option<Event> {
        match core::mem::replace(&mut self.current, Current::None) {
            Current::None => None,
            Current::Data { cid, length, success } => {
                self.add_received(cid, length, digest_ok);
                self.completion = success.then_some(cid);
                Some(Event::DataEnd { cid, digest_ok })
            }
            Current::Dropped { cid, length, success } => {
                self.add_received(cid, length, true);
                if success { self.complete_by_flag(cid) } else { None }
            }
        }
    }

    fn add_received(&mut self, cid: Cid, length: u32, digest_ok: bool) {
        let command = self.outstanding.find(cid).expect("no response is read while data of a command arrive");
        // It was looked at in the header: they begin where the last ones ended, and are no more
        // than was asked for.
        command.received += length;
        command.digest_ok &= digest_ok;
    }

    fn complete_by_flag(&mut self, cid: Cid) -> Option<Event> {
        let command = self.outstanding.finish(cid)?;
        Some(completion(&command, Cqe::new(cid, Status::SUCCESS), true))
    }

    /// A header whose common part is right.
    #[inline]
    fn header(&mut self, frame: Frame, bytes: &[u8]) -> Result<Event, FatalError> {
        // Each returns its event by itself: as one of several results it would be stored field by
        // field and copied in larger pieces, which stalls store forwarding.
        let fault = match (frame.kind, self.state) {
            (PduType::C2hData, State::Running(_)) => match self.c2h_data(frame, read_header(bytes)) {
                Ok(event) => return Ok(event),
                Err(fault) => fault,
            },
            (PduType::CapsuleResp, State::Running(_)) => match self.response(read_header(bytes)) {
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

    fn rare_header(&mut self, frame: Frame, bytes: &[u8]) -> Result<Event, Violation> {
        match (frame.kind, self.state) {
            (PduType::C2hTermReq, _) => {
                self.receiver.end();
                Ok(Event::TermReceived(Termination::read(bytes)))
            }
            (PduType::R2t, State::Running(_)) => self.r2t(read_header(bytes)),
            (PduType::IcResp, State::AwaitResponse) => self.ic_response(read_header(bytes)),
            (PduType::IcResp, _) => Err(Violation::sequence("an ICResp that was not asked for")),
            (_, State::Idle | State::AwaitResponse) => Err(Violation::sequence("a PDU before ICResp")),
            _ => Err(Violation::field(field::TYPE, "this PDU type is not for a host")),
        }
    }

    /// NVMe/TCP, Initialize Connection Response.
    fn ic_response(&mut self, response: &IcResp) -> Result<Event, Violation> {
        if response.pfv.get() != 0 {
            return Err(Violation::unsupported(IcResp::PFV, "the PDU format version is not 0"));
        }
        if response.cpda > 31 {
            return Err(Violation::field(IcResp::CPDA, "CPDA is above 31"));
        }
        let agree = |used: bool, ours: Digest| match (used, ours) {
            (false, Digest::Required) => {
                Err(Violation::unsupported(IcResp::DGST, "a digest that is required was refused"))
            }
            (true, Digest::Allowed | Digest::Refused) => {
                Err(Violation::field(IcResp::DGST, "a digest that was not asked for"))
            }
            _ => Ok(used),
        };
        let header_digest = agree(response.dgst & 1 != 0, self.config.header_digest)?;
        let data_digest = agree(response.dgst & 2 != 0, self.config.data_digest)?;
        let h2c_data_max = response.maxh2cdata.get();
        if h2c_data_max < 4096 || !h2c_data_max.is_multiple_of(4) {
            return Err(Violation::field(IcResp::MAXH2CDATA, "MAXH2CDATA is below 4096 or not a multiple of 4"));
        }
        let host_alignment = self.config.alignment.clamp(4, 128).next_multiple_of(4);
        let controller_alignment = alignment_bytes(response.cpda);
        let r2t_max = self.config.r2t_max.max(1);
        let agreed =
            Parameters { header_digest, data_digest, host_alignment, controller_alignment, r2t_max, h2c_data_max };
        self.layout = Layout { header_digest, data_digest, alignment: controller_alignment };
        self.receiver.set_layout(Layout { header_digest, data_digest, alignment: host_alignment });
        self.state = State::Running(agreed);
        Ok(Event::Initialized(agreed))
    }

    /// NVMe/TCP, Controller To Host Data Transfer PDU. Fields are checked lowest offset first.
    #[inline]
    fn c2h_data(&mut self, frame: Frame, pdu: &C2hData) -> Result<Event, Violation> {
        let cid = Cid(pdu.cccid.get());
        let Some(command) = self.outstanding.find(cid) else {
            return Err(Violation::field(C2hData::CCCID, "data for a command that is not outstanding"));
        };
        let offset = pdu.datao.get();
        let length = pdu.datal.get();
        if length != frame.data || length == 0 {
            return Err(Violation::field(C2hData::DATAL, "DATAL is not the length of the PDU's data"));
        }
        let Some(end) = offset.checked_add(length).filter(|&end| end <= command.read) else {
            return Err(Violation::range("more data than the command asked for"));
        };
        if offset != command.received || command.last_seen {
            return Err(Violation::sequence(
                "the data do not begin where the previous PDU's ended, or follow the last",
            ));
        }
        let last = frame.flags & Common::LAST != 0;
        if end == command.read && !last {
            return Err(Violation::sequence("LAST is missing on the command's last data"));
        }
        command.last_seen = last;
        let success = frame.flags & Common::SUCCESS != 0;
        self.receiver.begin_data(length, true);
        self.current = Current::Data { cid, length, success };
        Ok(Event::Data { cid, offset, length })
    }

    /// NVMe/TCP, Response Capsule PDU.
    #[inline]
    fn response(&mut self, pdu: &CapsuleResp) -> Result<Event, Violation> {
        match self.outstanding.finish(pdu.cqe.cid()) {
            Some(command) => Ok(completion(&command, pdu.cqe, false)),
            None => Err(Violation::field(CapsuleResp::CID, "a response to a command that is not outstanding")),
        }
    }

    /// NVMe/TCP, Ready to Transfer PDU. Fields are checked lowest offset first.
    #[inline]
    fn r2t(&mut self, pdu: &pdu::R2t) -> Result<Event, Violation> {
        let cid = Cid(pdu.cccid.get());
        let r2t_max = self.config.r2t_max.max(1);
        let Some(command) = self.outstanding.find(cid) else {
            return Err(Violation::field(pdu::R2t::CCCID, "an R2T for a command that is not outstanding"));
        };
        let offset = pdu.r2to.get();
        let length = pdu.r2tl.get();
        if length == 0 {
            return Err(Violation::field(pdu::R2t::R2TL, "an R2T for no data"));
        }
        let Some(end) = offset.checked_add(length).filter(|&end| end <= command.write) else {
            return Err(Violation::range("an R2T for more data than the command has"));
        };
        if offset != command.granted {
            return Err(Violation::sequence("an R2T that does not begin where the previous one ended"));
        }
        if command.r2ts >= r2t_max {
            return Err(Violation::limit("more R2Ts outstanding than offered"));
        }
        command.granted = end;
        command.r2ts += 1;
        Ok(Event::R2t(R2t { cid, ttag: pdu.ttag.get(), offset, length }))
    }
}

/// What a finished command comes to.
fn completion(command: &HostCommand, mut cqe: Cqe, from_success_flag: bool) -> Event {
    if !command.digest_ok && cqe.status().is_success() {
        // NVMe/TCP, Data Digest errors: the host fails the command, whatever the controller says of
        // it.
        cqe.status = (Status::TRANSIENT_TRANSPORT_ERROR.0 << 1).into();
    }
    Event::Completion { cqe, transferred: command.received.max(command.sent), from_success_flag }
}
