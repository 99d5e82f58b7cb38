//! Two model ends for NVMe/TCP conversations in memory: a target with an array of bytes, and a host
//! that checks the results. They use the connections as a driver does, but without sockets.
//!
//! Commands are the simplest that move data: Read and Write name a byte offset in dwords 10 and 11;
//! Flush moves nothing.

use std::collections::BTreeMap;

use ebof_nvme::{Cid, Cqe, Sgl, Sqe, Status};
use ebof_tcp::parameters::Trailer;
use ebof_tcp::{Digest, FatalError, Parameters, Termination, controller, host};

use crate::random::Random;

/// Opcode of Flush.
pub const FLUSH: u8 = 0;
/// Opcode of Write.
pub const WRITE: u8 = 1;
/// Opcode of Read.
pub const READ: u8 = 2;

/// A controller's configuration with everything at its default.
#[must_use]
pub fn controller_config() -> controller::ConnectionConfig {
    controller::ConnectionConfig {
        in_capsule_bytes: 8192,
        h2c_data_max: 131_072,
        alignment: 4,
        header_digest: Digest::Allowed,
        data_digest: Digest::Allowed,
        c2h_success: true,
        r2t_bytes: 131_072,
    }
}

/// A host's configuration as Linux has it.
#[must_use]
pub fn host_config() -> host::ConnectionConfig {
    host::ConnectionConfig { alignment: 4, header_digest: Digest::Allowed, data_digest: Digest::Allowed, r2t_max: 1 }
}

/// The model target.
#[derive(Debug)]
pub struct Target {
    /// The connection under test.
    pub connection: controller::Connection,
    /// The stored bytes.
    pub disk: Vec<u8>,
    /// What is to be sent.
    pub out: Vec<u8>,
    /// Data bytes per C2HData PDU.
    pub piece: usize,
    /// Commands whose data are skipped, as if their buffer were gone.
    pub abandons: Vec<Cid>,
    /// Writes that wait for data.
    pub awaiting: BTreeMap<u16, Pending>,
    /// A received TermReq.
    pub terminated: Option<Termination>,
    filling: Option<(u16, usize)>,
}

/// A write that waits for data.
#[derive(Debug)]
pub struct Pending {
    sqe: Sqe,
    buffer: Vec<u8>,
}

impl Target {
    /// A target with `size` bytes of zeros.
    #[must_use]
    pub fn new(config: controller::ConnectionConfig, size: usize) -> Self {
        Self {
            connection: controller::Connection::new(config),
            disk: vec![0; size],
            out: Vec::new(),
            piece: 65_536,
            abandons: Vec::new(),
            awaiting: BTreeMap::new(),
            terminated: None,
            filling: None,
        }
    }

    /// Receives bytes, and appends the answer to [`Self::out`].
    ///
    /// # Errors
    /// The host violated the protocol; the TermReq is in [`Self::out`].
    pub fn receive(&mut self, mut input: &[u8]) -> Result<(), FatalError> {
        loop {
            self.place(&mut input);
            match self.connection.poll_event(&mut input) {
                Ok(Some(event)) => self.handle(event, &mut input),
                Ok(None) if input.is_empty() => return Ok(()),
                Ok(None) => assert!(self.connection.data_wanted() > 0, "input was left although no data are awaited"),
                Err(error) => {
                    self.connection.send_term(&error, &mut self.out);
                    return Err(error);
                }
            }
        }
    }

    /// Stores data at the offset of the last event.
    fn place(&mut self, input: &mut &[u8]) {
        let wanted = self.connection.data_wanted();
        if wanted == 0 {
            return;
        }
        let (now, rest) = input.split_at(wanted.min(input.len()));
        let (cid, at) = self.filling.as_mut().expect("data were announced");
        let pending = self.awaiting.get_mut(cid).expect("data for a command that awaits them");
        pending.buffer[*at..*at + now.len()].copy_from_slice(now);
        *at += now.len();
        assert_eq!(self.connection.data_received(now), now.len());
        *input = rest;
    }

    fn handle(&mut self, event: controller::Event, input: &mut &[u8]) {
        use controller::Event;
        match event {
            Event::Initialized(_) => self.connection.send_ic_response(&mut self.out),
            Event::Command { sqe, in_capsule } => self.command(sqe, in_capsule, input),
            Event::Data { cid, offset, .. } => {
                self.filling = Some((cid.0, usize::try_from(offset).expect("offset")));
                if self.abandons.contains(&cid) {
                    self.awaiting.remove(&cid.0);
                    self.connection.abandon(cid);
                    self.connection.send_response(&Cqe::new(cid, Status::ABORT_REQUESTED), &mut self.out);
                }
            }
            Event::DataEnd { cid, digest_ok, complete } if complete => {
                let pending = self.awaiting.remove(&cid.0).expect("the end of data of a command that awaits them");
                let status = if digest_ok { self.store(&pending) } else { Status::TRANSIENT_TRANSPORT_ERROR };
                self.connection.send_response(&Cqe::new(cid, status), &mut self.out);
            }
            Event::DataEnd { cid, .. } => self.connection.pump_r2t(cid, &mut self.out),
            Event::TermReceived(termination) => self.terminated = Some(termination),
        }
    }

    fn command(&mut self, sqe: Sqe, in_capsule: u32, input: &mut &[u8]) {
        let cid = sqe.cid();
        let length = sqe.dptr.decode().length();
        let writes = sqe.opcode == WRITE && length > 0 && length < 1 << 24;
        if writes && (in_capsule == 0) == matches!(sqe.dptr.decode(), Sgl::Transport { .. }) && in_capsule <= length {
            // Every second command takes its data at once if it can; the result must be the same.
            if in_capsule == length
                && cid.0.is_multiple_of(2)
                && let Some(data) = self.connection.take_in_capsule(input)
            {
                let pending = Pending { sqe, buffer: data.bytes.to_vec() };
                let status = if data.digest_ok { self.store(&pending) } else { Status::TRANSIENT_TRANSPORT_ERROR };
                self.connection.send_response(&Cqe::new(cid, status), &mut self.out);
                return;
            }
            let buffer = vec![0; usize::try_from(length).expect("length")];
            self.awaiting.insert(cid.0, Pending { sqe, buffer });
            if in_capsule == 0 && self.connection.request_data(cid, length, &mut self.out).is_err() {
                self.awaiting.remove(&cid.0);
                self.connection.send_response(&Cqe::new(cid, Status::INTERNAL_ERROR), &mut self.out);
            }
            return;
        }
        if in_capsule > 0 {
            self.connection.skip_data();
        }
        match (sqe.opcode, self.extent(&sqe)) {
            (READ, Some(extent)) if in_capsule == 0 => self.send(cid, extent),
            (FLUSH, _) => self.connection.send_response(&Cqe::new(cid, Status::SUCCESS), &mut self.out),
            _ => self.connection.send_response(&Cqe::new(cid, Status::INVALID_FIELD.dnr()), &mut self.out),
        }
    }

    fn extent(&self, sqe: &Sqe) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(u64::from(sqe.cdw10.get()) | u64::from(sqe.cdw11.get()) << 32).ok()?;
        let end = start.checked_add(usize::try_from(sqe.dptr.decode().length()).ok()?)?;
        (end <= self.disk.len() && start < end).then_some(start..end)
    }

    fn store(&mut self, pending: &Pending) -> Status {
        match self.extent(&pending.sqe) {
            Some(extent) => {
                self.disk[extent].copy_from_slice(&pending.buffer);
                Status::SUCCESS
            }
            None => Status::LBA_OUT_OF_RANGE,
        }
    }

    fn send(&mut self, cid: Cid, extent: std::ops::Range<usize>) {
        let cqe = Cqe::new(cid, Status::SUCCESS);
        let success = self.connection.success_allowed(&cqe);
        let data = self.disk[extent].to_vec();
        let mut offset = 0;
        for piece in data.chunks(self.piece) {
            let end = offset + piece.len();
            let last = end == data.len();
            let at = u32::try_from(offset).expect("offset");
            let trailer = self.connection.send_data(cid, at, piece, last, success, &mut self.out);
            append(piece, trailer, &mut self.out);
            offset = end;
        }
        if !success {
            self.connection.send_response(&cqe, &mut self.out);
        }
    }
}

/// The model host.
#[derive(Debug)]
pub struct Host {
    /// The connection under test.
    pub connection: host::Connection,
    /// What is to be sent.
    pub out: Vec<u8>,
    /// The negotiated parameters.
    pub agreed: Option<Parameters>,
    /// Commands that are outstanding.
    pub pending: BTreeMap<u16, Io>,
    /// Completed commands.
    pub done: Vec<Done>,
    /// A received TermReq.
    pub terminated: Option<Termination>,
    /// The most R2Ts that were outstanding for one command.
    pub r2ts_seen: usize,
    /// Whether R2Ts are answered at once; otherwise by [`Self::answer_r2ts`].
    pub answers: bool,
    r2ts: Vec<host::R2t>,
    filling: Option<(u16, usize)>,
}

/// An outstanding command of the model host.
#[derive(Debug)]
pub struct Io {
    /// Data to or from the controller.
    pub data: Vec<u8>,
}

/// A finished command of the model host.
#[derive(Debug, PartialEq, Eq)]
pub struct Done {
    /// The command.
    pub cid: Cid,
    /// Its status.
    pub status: Status,
    /// Its data; for reads, what was received.
    pub data: Vec<u8>,
    /// Bytes transferred.
    pub transferred: u32,
}

impl Host {
    /// A host that has its ICReq to send.
    #[must_use]
    pub fn new(config: host::ConnectionConfig) -> Self {
        let mut host = Self {
            connection: host::Connection::new(config),
            out: Vec::new(),
            agreed: None,
            pending: BTreeMap::new(),
            done: Vec::new(),
            terminated: None,
            r2ts_seen: 0,
            answers: true,
            r2ts: Vec::new(),
            filling: None,
        };
        host.connection.send_ic_request(&mut host.out);
        host
    }

    /// Sends a Read.
    pub fn read(&mut self, cid: u16, offset: u32, length: u32) {
        let mut sqe = command(READ, cid, offset);
        self.pending.insert(cid, Io { data: vec![0; usize::try_from(length).expect("length")] });
        self.connection.send_command(&mut sqe, host::CommandData::Read { length }, &mut self.out);
    }

    /// Sends a Write.
    pub fn write(&mut self, cid: u16, offset: u32, data: Vec<u8>, in_capsule: bool) {
        let mut sqe = command(WRITE, cid, offset);
        let length = u32::try_from(data.len()).expect("length");
        let transfer = match in_capsule {
            true => host::CommandData::InCapsule { payload: &data },
            false => host::CommandData::Write { length },
        };
        let trailer = self.connection.send_command(&mut sqe, transfer, &mut self.out);
        if in_capsule {
            append(&data, trailer, &mut self.out);
        }
        self.pending.insert(cid, Io { data });
    }

    /// Sends a Flush.
    pub fn flush(&mut self, cid: u16) {
        self.pending.insert(cid, Io { data: Vec::new() });
        self.connection.send_command(&mut command(FLUSH, cid, 0), host::CommandData::None, &mut self.out);
    }

    /// Receives bytes, and appends the answer to [`Self::out`].
    ///
    /// # Errors
    /// The controller violated the protocol; the TermReq is in [`Self::out`].
    pub fn receive(&mut self, mut input: &[u8]) -> Result<(), FatalError> {
        loop {
            self.place(&mut input);
            match self.connection.poll_event(&mut input) {
                Ok(Some(event)) => self.handle(event),
                Ok(None) if input.is_empty() => break,
                Ok(None) => assert!(self.connection.data_wanted() > 0, "input was left although no data are awaited"),
                Err(error) => {
                    self.connection.send_term(&error, &mut self.out);
                    return Err(error);
                }
            }
        }
        if self.answers {
            self.answer_r2ts();
        }
        Ok(())
    }

    /// Sends all requested data.
    pub fn answer_r2ts(&mut self) {
        let mut per_command = BTreeMap::<u16, usize>::new();
        for r2t in &self.r2ts {
            *per_command.entry(r2t.cid.0).or_default() += 1;
        }
        self.r2ts_seen = per_command.into_values().fold(self.r2ts_seen, usize::max);
        for mut r2t in std::mem::take(&mut self.r2ts) {
            while r2t.length > 0 {
                let start = usize::try_from(r2t.offset).expect("offset");
                let end = start + usize::try_from(self.connection.h2c_piece(&r2t)).expect("length");
                let data = &self.pending.get(&r2t.cid.0).expect("an R2T for an outstanding command").data[start..end];
                let trailer = self.connection.send_h2c_data(&mut r2t, data, &mut self.out);
                append(data, trailer, &mut self.out);
            }
        }
    }

    fn place(&mut self, input: &mut &[u8]) {
        let wanted = self.connection.data_wanted();
        if wanted == 0 {
            return;
        }
        let (now, rest) = input.split_at(wanted.min(input.len()));
        let (cid, at) = self.filling.as_mut().expect("data were announced");
        let io = self.pending.get_mut(cid).expect("data for an outstanding command");
        io.data[*at..*at + now.len()].copy_from_slice(now);
        *at += now.len();
        assert_eq!(self.connection.data_received(now), now.len());
        *input = rest;
    }

    fn handle(&mut self, event: host::Event) {
        use host::Event;
        match event {
            Event::Initialized(agreed) => self.agreed = Some(agreed),
            Event::R2t(r2t) => self.r2ts.push(r2t),
            Event::Data { cid, offset, .. } => self.filling = Some((cid.0, usize::try_from(offset).expect("offset"))),
            Event::DataEnd { .. } => self.filling = None,
            Event::Completion { cqe, transferred, .. } => {
                let cid = cqe.cid();
                self.r2ts.retain(|r2t| r2t.cid != cid);
                let io = self.pending.remove(&cid.0).expect("a completion of an outstanding command");
                self.done.push(Done { cid, status: cqe.status(), data: io.data, transferred });
            }
            Event::TermReceived(termination) => self.terminated = Some(termination),
        }
    }
}

/// How the stream is cut into reads.
#[derive(Clone, Debug)]
pub enum Cut {
    /// Not at all.
    Never,
    /// Into reads of this many bytes.
    Every(usize),
    /// Into reads of 1 to this many bytes.
    Random(Random, usize),
}

impl Cut {
    fn next(&mut self) -> usize {
        match self {
            Self::Never => usize::MAX,
            Self::Every(bytes) => (*bytes).max(1),
            Self::Random(random, bytes) => random.below(*bytes) + 1,
        }
    }

    /// The pieces in which `bytes` arrive.
    pub fn pieces<'a>(&mut self, mut bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at(self.next().min(bytes.len()));
            pieces.push(piece);
            bytes = rest;
        }
        pieces
    }
}

/// Transfers bytes in both directions until neither end has any to send.
///
/// # Errors
/// Either end found a protocol violation.
pub fn exchange(host: &mut Host, target: &mut Target, cut: &mut Cut) -> Result<(), FatalError> {
    while !host.out.is_empty() || !target.out.is_empty() {
        for piece in cut.pieces(&std::mem::take(&mut host.out)) {
            target.receive(piece)?;
        }
        for piece in cut.pieces(&std::mem::take(&mut target.out)) {
            host.receive(piece)?;
        }
    }
    Ok(())
}

/// A command of the model's kind.
#[must_use]
pub fn command(opcode: u8, cid: u16, offset: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode).with_cdw(10, offset);
    sqe.cid = cid.into();
    sqe
}

/// Appends data and their trailer.
pub fn append(data: &[u8], trailer: Trailer, out: &mut Vec<u8>) {
    out.extend_from_slice(data);
    out.extend(trailer.into_iter().flatten());
}
