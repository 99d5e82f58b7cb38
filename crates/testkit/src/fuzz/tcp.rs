//! NVMe/TCP: the receive path of both ends, used as a real driver does, and the PDU layouts.
//!
//! The first byte of an input chooses the configuration, the rest is the stream. It is received at
//! once and in pieces, with the same result.

use std::collections::BTreeMap;
use std::fmt::Debug;

use ebof_nvme::{Cid, Cqe, QueueId, Sgl, Sqe, Status};
use ebof_tcp::pdu::{C2hData, CapsuleCmd, CapsuleResp, H2cData, IcReq, IcResp, R2t, TermReq};
use ebof_tcp::{Digest, FatalError, FatalStatus, controller, host};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::random::Random;
use crate::tcp::{self, Cut};

/// The controller's receive path.
///
/// # Panics
/// An invariant is violated.
pub fn tcp_controller(input: &[u8]) {
    let Some((&choice, stream)) = input.split_first() else { return };
    let whole = feed(&mut ControllerEnd::new(choice), stream, Cut::Never);
    let pieces = feed(&mut ControllerEnd::new(choice), stream, cut(choice));
    assert_eq!(whole, pieces, "the cut of the stream changed what was understood");
}

/// The host's receive path.
///
/// # Panics
/// An invariant is violated.
pub fn tcp_host(input: &[u8]) {
    let Some((&choice, stream)) = input.split_first() else { return };
    let whole = feed(&mut HostEnd::new(choice), stream, Cut::Never);
    let pieces = feed(&mut HostEnd::new(choice), stream, cut(choice));
    assert_eq!(whole, pieces, "the cut of the stream changed what was understood");
}

/// The layouts: decoding and encoding gives the same bytes.
///
/// # Panics
/// It does not.
pub fn tcp_pdu(input: &[u8]) {
    fn round_trip<T: FromBytes + IntoBytes + Immutable + Debug>(input: &[u8]) {
        if let Ok((pdu, rest)) = T::read_from_prefix(input) {
            assert_eq!(pdu.as_bytes(), &input[..input.len() - rest.len()]);
            assert!(!format!("{pdu:?}").is_empty());
        }
    }
    round_trip::<IcReq>(input);
    round_trip::<IcResp>(input);
    round_trip::<TermReq>(input);
    round_trip::<CapsuleCmd>(input);
    round_trip::<CapsuleResp>(input);
    round_trip::<H2cData>(input);
    round_trip::<C2hData>(input);
    round_trip::<R2t>(input);
    if let (Some(kind), Ok((common, _))) = (
        input.first().and_then(|&number| ebof_tcp::pdu::PduType::from_number(number)),
        <[u8; 8]>::read_from_prefix(input),
    ) {
        assert_eq!(kind as u8, common[0]);
        assert_eq!(kind.may_carry_data(), kind.flags() & 2 != 0);
    }
}

/// Inputs of [`tcp_controller`] that hold whole conversations.
#[must_use]
pub fn controller_seeds() -> Vec<Vec<u8>> {
    conversations().map(|(choice, to_controller, _)| prefixed(choice, to_controller)).collect()
}

/// Inputs of [`tcp_host`] that hold whole conversations.
#[must_use]
pub fn host_seeds() -> Vec<Vec<u8>> {
    conversations().map(|(choice, _, to_host)| prefixed(choice, to_host)).collect()
}

fn prefixed(choice: u8, mut stream: Vec<u8>) -> Vec<u8> {
    stream.insert(0, choice);
    stream
}

/// One end under test, with the state of a driver.
trait End {
    type Event: Clone + PartialEq + Debug;
    fn wanted(&self) -> usize;
    fn received(&mut self, bytes: &[u8]) -> usize;
    fn poll(&mut self, input: &mut &[u8]) -> Result<Option<Self::Event>, FatalError>;
    /// Handles and checks an event. May take what follows it from `input`, and then adds to
    /// `events` those that would have come otherwise.
    fn handle(&mut self, event: &Self::Event, input: &mut &[u8], events: &mut Vec<Self::Event>);
    fn terminate(&mut self, error: &FatalError);
    /// Data at the last announced offset were received.
    fn placed(&mut self, count: usize);
}

/// The result of a stream.
#[derive(Debug, PartialEq)]
struct Trace<E> {
    events: Vec<E>,
    end: Option<(FatalStatus, u32, &'static str)>,
}

fn feed<T: End>(end: &mut T, stream: &[u8], mut cut: Cut) -> Trace<T::Event> {
    let mut trace = Trace { events: Vec::new(), end: None };
    for mut piece in cut.pieces(stream) {
        loop {
            let wanted = end.wanted().min(piece.len());
            if wanted > 0 {
                assert_eq!(end.received(&piece[..wanted]), wanted);
                end.placed(wanted);
                piece = &piece[wanted..];
            }
            match end.poll(&mut piece) {
                Ok(Some(event)) => {
                    trace.events.push(event.clone());
                    end.handle(&event, &mut piece, &mut trace.events);
                }
                Ok(None) if piece.is_empty() => break,
                Ok(None) => assert!(end.wanted() > 0, "input was left although no data are awaited"),
                Err(error) => {
                    assert!(trace.end.is_none(), "an error after the first");
                    assert!(error.header.len() <= 128);
                    end.terminate(&error);
                    trace.end = Some((error.status, error.information, error.what));
                }
            }
            assert!(trace.events.len() <= stream.len() + 2, "more events than bytes");
        }
    }
    trace
}

fn cut(choice: u8) -> Cut {
    match choice >> 6 {
        0 => Cut::Every(1),
        1 => Cut::Every(24),
        2 => Cut::Random(Random::new(7), 100),
        _ => Cut::Random(Random::new(9), 9000),
    }
}

fn controller_config(choice: u8) -> controller::ConnectionConfig {
    let digest = match choice >> 3 & 3 {
        0 | 1 => Digest::Allowed,
        2 => Digest::Refused,
        _ => Digest::Required,
    };
    controller::ConnectionConfig {
        r2t_bytes: if choice & 1 == 0 { 64 } else { 131_072 },
        h2c_data_max: if choice & 2 == 0 { 131_072 } else { 4096 },
        alignment: if choice & 4 == 0 { 4 } else { 64 },
        header_digest: digest,
        data_digest: digest,
        ..tcp::controller_config()
    }
}

fn host_config(choice: u8) -> host::ConnectionConfig {
    let digest = |bit: u8| if choice >> bit & 1 == 0 { Digest::Allowed } else { Digest::Required };
    host::ConnectionConfig {
        alignment: if choice & 4 == 0 { 4 } else { 64 },
        header_digest: digest(3),
        data_digest: digest(4),
        r2t_max: if choice & 32 == 0 { 4 } else { 1 },
    }
}

/// The controller's end. Opcode 1 writes, and with an even CID takes its data from the capsule at
/// once if all of them have come; 5 writes but is stopped when its data begin to come, 9 is
/// abandoned then, 13 has its data skipped; everything else is answered at once.
struct ControllerEnd {
    connection: controller::Connection,
    entries: usize,
    /// Opcode, length and bytes arrived of what is awaited.
    awaiting: BTreeMap<u16, (u8, u32, u32)>,
    filling: Option<u16>,
    out: Vec<u8>,
}

impl ControllerEnd {
    fn new(choice: u8) -> Self {
        Self {
            connection: controller::Connection::new(controller_config(choice)),
            entries: if choice & 32 == 0 { 4 } else { 64 },
            awaiting: BTreeMap::new(),
            filling: None,
            out: Vec::new(),
        }
    }

    fn command(&mut self, sqe: &Sqe, in_capsule: u32, input: &mut &[u8], events: &mut Vec<controller::Event>) {
        let cid = sqe.cid();
        let length = if in_capsule > 0 { in_capsule } else { sqe.dptr.decode().length().min(1 << 20) };
        let transport = matches!(sqe.dptr.decode(), Sgl::Transport { .. });
        let fresh = !self.awaiting.contains_key(&cid.0) && self.awaiting.len() < self.entries;
        let writes = sqe.opcode & 3 == 1 && fresh && length > 0 && (in_capsule > 0 || transport);
        let before = *input;
        if writes
            && sqe.opcode == 1
            && cid.0.is_multiple_of(2)
            && let Some(data) = self.connection.take_in_capsule(input)
        {
            assert!(in_capsule > 0 && data.bytes == &before[..data.bytes.len()], "not what stands behind the command");
            assert_eq!(data.bytes.len() as u64, u64::from(in_capsule));
            events.push(controller::Event::Data { cid, offset: 0, length: in_capsule });
            events.push(controller::Event::DataEnd { cid, digest_ok: data.digest_ok, complete: true });
            self.connection.send_response(&Cqe::new(cid, Status::SUCCESS), &mut self.out);
            return;
        }
        assert_eq!(before, *input, "what is not taken stays");
        if writes && (in_capsule > 0 || self.connection.request_data(cid, length, &mut self.out).is_ok()) {
            self.awaiting.insert(cid.0, (sqe.opcode, length, 0));
            return;
        }
        self.connection.skip_data();
        if sqe.opcode & 3 == 2 {
            self.connection.send_data(cid, 0, &[1; 24], true, false, &mut self.out);
        }
        self.connection.send_response(&Cqe::new(cid, Status::SUCCESS), &mut self.out);
    }

    fn data(&mut self, cid: Cid, offset: u32, length: u32) {
        let &(opcode, total, arrived) = self.awaiting.get(&cid.0).expect("data for a command that awaits some");
        assert_eq!(offset, arrived, "data come in order");
        assert!(u64::from(offset) + u64::from(length) <= u64::from(total), "data beyond the command's end");
        self.filling = Some(cid.0);
        match opcode {
            5 => assert!(self.connection.stop_requesting(cid), "the data just announced are outstanding"),
            9 => {
                self.connection.abandon(cid);
                assert_eq!(self.connection.data_wanted(), 0);
                self.awaiting.remove(&cid.0);
                self.filling = None;
            }
            _ => {}
        }
    }

    fn data_end(&mut self, cid: Cid, digest_ok: bool, complete: bool) {
        self.filling = None;
        if !complete {
            self.connection.pump_r2t(cid, &mut self.out);
            return;
        }
        let (opcode, total, arrived) = self.awaiting.remove(&cid.0).expect("a command that awaits data is complete");
        assert!(arrived == total || !digest_ok || opcode == 5, "complete with {arrived} of {total} bytes");
        self.connection.send_response(&Cqe::new(cid, Status::SUCCESS), &mut self.out);
    }
}

impl End for ControllerEnd {
    type Event = controller::Event;

    fn wanted(&self) -> usize {
        self.connection.data_wanted()
    }

    fn received(&mut self, bytes: &[u8]) -> usize {
        self.connection.data_received(bytes)
    }

    fn poll(&mut self, input: &mut &[u8]) -> Result<Option<Self::Event>, FatalError> {
        self.connection.poll_event(input)
    }

    fn handle(&mut self, event: &Self::Event, input: &mut &[u8], events: &mut Vec<Self::Event>) {
        use controller::Event;
        self.out.clear();
        match *event {
            Event::Initialized(agreed) => {
                assert!(agreed.r2t_max >= 1 && agreed.host_alignment <= 128 && agreed.controller_alignment <= 128);
                self.connection.send_ic_response(&mut self.out);
                assert_eq!(self.connection.initialized(), Some(agreed));
                self.connection.set_queue(QueueId(1), self.entries);
            }
            Event::Command { sqe, in_capsule } => {
                assert!(in_capsule <= 8192);
                self.command(&sqe, in_capsule, input, events);
            }
            Event::Data { cid, offset, length } => self.data(cid, offset, length),
            Event::DataEnd { cid, digest_ok, complete } => self.data_end(cid, digest_ok, complete),
            Event::TermReceived(_) => {}
        }
        assert!(self.out.len() <= 1024, "one event asks for little to be sent");
    }

    fn terminate(&mut self, error: &FatalError) {
        self.out.clear();
        self.connection.send_term(error, &mut self.out);
        assert!(self.out.len() <= 152);
    }

    fn placed(&mut self, count: usize) {
        let cid = self.filling.expect("data are placed where they were announced");
        self.awaiting.get_mut(&cid).expect("awaited").2 += u32::try_from(count).expect("small");
    }
}

/// The host's end: once initialized it has the commands of `send_commands` outstanding.
struct HostEnd {
    connection: host::Connection,
    /// Length and bytes arrived of what is read.
    reading: BTreeMap<u16, (u32, u32)>,
    outstanding: usize,
    filling: Option<u16>,
    out: Vec<u8>,
}

/// CID, bytes and opcode of the commands.
const COMMANDS: [(u16, u32, u8); 9] = [
    (0, 200, tcp::READ),
    (1, 1, tcp::READ),
    (2, WRITE_MAX, tcp::WRITE),
    (3, 64, tcp::WRITE),
    (4, 0, tcp::FLUSH),
    (5, 129, tcp::READ),
    (6, 65, tcp::WRITE),
    (7, 90, tcp::READ),
    (8, 33, IN_CAPSULE),
];

/// In [`COMMANDS`]: a Write with its data in the capsule.
const IN_CAPSULE: u8 = 0xff;

/// The longest Write of [`COMMANDS`] outside of a capsule, bytes.
const WRITE_MAX: u32 = 300;

impl HostEnd {
    fn new(choice: u8) -> Self {
        let mut connection = host::Connection::new(host_config(choice));
        connection.set_queue_entries(16);
        connection.send_ic_request(&mut Vec::new());
        Self { connection, reading: BTreeMap::new(), outstanding: 0, filling: None, out: Vec::new() }
    }

    fn send_commands(&mut self) {
        for (cid, length, opcode) in COMMANDS {
            let payload = [0; 33];
            let transfer = match opcode {
                IN_CAPSULE => host::CommandData::InCapsule { payload: &payload },
                tcp::READ => host::CommandData::Read { length },
                tcp::WRITE => host::CommandData::Write { length },
                _ => host::CommandData::None,
            };
            if opcode == tcp::READ {
                self.reading.insert(cid, (length, 0));
            }
            self.connection.send_command(&mut tcp::command(opcode, cid, 0), transfer, &mut self.out);
            self.outstanding += 1;
        }
    }
}

impl End for HostEnd {
    type Event = host::Event;

    fn wanted(&self) -> usize {
        self.connection.data_wanted()
    }

    fn received(&mut self, bytes: &[u8]) -> usize {
        self.connection.data_received(bytes)
    }

    fn poll(&mut self, input: &mut &[u8]) -> Result<Option<Self::Event>, FatalError> {
        self.connection.poll_event(input)
    }

    fn handle(&mut self, event: &Self::Event, _: &mut &[u8], _: &mut Vec<Self::Event>) {
        use host::Event;
        self.out.clear();
        match *event {
            Event::Initialized(_) => self.send_commands(),
            Event::R2t(mut r2t) => {
                assert!(r2t.length > 0 && r2t.offset + r2t.length <= WRITE_MAX);
                while r2t.length > 0 {
                    let piece = usize::try_from(self.connection.h2c_piece(&r2t)).expect("small");
                    assert!(piece > 0);
                    self.connection.send_h2c_data(&mut r2t, &[0; 300][..piece], &mut self.out);
                }
            }
            Event::Data { cid, offset, length } => {
                let (total, arrived) = self.reading.get(&cid.0).expect("data for a command that reads");
                assert!(offset == *arrived && offset + length <= *total);
                self.filling = Some(cid.0);
            }
            Event::DataEnd { .. } => self.filling = None,
            Event::Completion { cqe, transferred, .. } => {
                self.outstanding = self.outstanding.checked_sub(1).expect("each command completes once");
                if let Some((total, arrived)) = self.reading.remove(&cqe.cid().0) {
                    assert!(transferred == arrived && transferred <= total);
                }
            }
            Event::TermReceived(_) => {}
        }
    }

    fn terminate(&mut self, error: &FatalError) {
        self.out.clear();
        self.connection.send_term(error, &mut self.out);
        assert!(self.out.len() <= 152);
    }

    fn placed(&mut self, count: usize) {
        let cid = self.filling.expect("data are placed where they were announced");
        self.reading.get_mut(&cid).expect("read").1 += u32::try_from(count).expect("small");
    }
}

/// Conversations of the model ends: the choice, what went to the controller and what went to the
/// host.
fn conversations() -> impl Iterator<Item = (u8, Vec<u8>, Vec<u8>)> {
    (0..64).filter(|choice| choice >> 3 & 3 != 2).map(|choice| {
        let mut config = host_config(choice);
        if controller_config(choice).header_digest == Digest::Required {
            config.header_digest = Digest::Required;
            config.data_digest = Digest::Required;
        }
        let mut host = tcp::Host::new(config);
        let mut target = tcp::Target::new(controller_config(choice), 1 << 16);
        host.connection.set_queue_entries(16);
        target.piece = 80;
        let mut to_controller = Vec::new();
        let mut to_host = Vec::new();
        let mut first = true;
        while !host.out.is_empty() || !target.out.is_empty() {
            target.receive(&host.out).expect("nobody breaks the transport");
            to_controller.append(&mut host.out);
            host.receive(&target.out).expect("nobody breaks the transport");
            to_host.append(&mut target.out);
            if std::mem::take(&mut first) {
                target.connection.set_queue(QueueId(1), if choice & 32 == 0 { 4 } else { 64 });
                commands(&mut host);
            }
        }
        (choice, to_controller, to_host)
    })
}

fn commands(host: &mut tcp::Host) {
    for (cid, length, opcode) in COMMANDS {
        let data = vec![0; usize::try_from(length).expect("small")];
        match opcode {
            tcp::READ => host.read(cid, u32::from(cid), length),
            tcp::WRITE => host.write(cid, 100, data, false),
            IN_CAPSULE => host.write(cid, 0, data, true),
            _ => host.flush(cid),
        }
    }
}
