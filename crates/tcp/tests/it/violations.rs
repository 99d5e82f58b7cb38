//! One row per violation of the transport: the Fatal Error Status and the field that the other end
//! reports. Each row is also fed byte by byte: the result must not depend on how the stream is
//! split.

use ebof_nvme::{Cid, Cqe, QueueId, Sqe, Status};
use ebof_tcp::{Digest, FatalError, FatalStatus, controller, digest, host};
use ebof_testkit::tcp::{command, controller_config, host_config};

use FatalStatus::{DataOutOfRange, HeaderDigest, InvalidHeaderField, LimitExceeded, PduSequence, UnsupportedParameter};

/// PDU under construction.
#[derive(Clone)]
struct Pdu(Vec<u8>);

impl Pdu {
    fn new(kind: u8, flags: u8, hlen: u8, pdo: u8, data: usize) -> Self {
        let length = if data > 0 { usize::from(pdo.max(hlen)) + data } else { usize::from(hlen) };
        let mut bytes = vec![0; length];
        bytes[..4].copy_from_slice(&[kind, flags, hlen, pdo]);
        bytes[4..8].copy_from_slice(&u32::try_from(length).expect("small").to_le_bytes());
        Self(bytes)
    }

    fn byte(mut self, at: usize, value: u8) -> Self {
        self.0[at] = value;
        self
    }

    fn word(mut self, at: usize, value: u16) -> Self {
        self.0[at..at + 2].copy_from_slice(&value.to_le_bytes());
        self
    }

    fn dword(mut self, at: usize, value: u32) -> Self {
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
        self
    }

    /// Adds a correct digest after the header: HDGSTF, PLEN and the digest itself.
    fn with_header_digest(mut self) -> Self {
        let hlen = usize::from(self.0[2]);
        self.0[1] |= 1;
        let plen = u32::try_from(self.0.len() + 4).expect("small");
        self = self.dword(4, plen);
        let digest = digest::crc32c(&self.0[..hlen]);
        self.0.splice(hlen..hlen, digest);
        self
    }
}

fn ic_req() -> Pdu {
    Pdu::new(0, 0, 128, 0, 0)
}

fn ic_resp() -> Pdu {
    Pdu::new(1, 0, 128, 0, 0).dword(12, 8192)
}

fn capsule(data: usize) -> Pdu {
    Pdu::new(4, 0, 72, if data > 0 { 72 } else { 0 }, data).byte(8, 1)
}

/// H2CData for command 7 with tag, offset, length and LAST.
fn h2c(ttag: u16, offset: u32, length: u32, last: bool) -> Pdu {
    let data = usize::try_from(length).expect("small");
    let pdu = Pdu::new(6, if last { 4 } else { 0 }, 24, 24, data).word(8, 7);
    pdu.word(10, ttag).dword(12, offset).dword(16, length)
}

/// C2HData for `cid`.
fn c2h(cid: u16, offset: u32, length: u32, flags: u8) -> Pdu {
    let data = usize::try_from(length).expect("small");
    Pdu::new(7, flags, 24, 24, data).word(8, cid).dword(12, offset).dword(16, length)
}

fn resp(cid: u16) -> Pdu {
    Pdu::new(5, 0, 24, 0, 0).word(20, cid)
}

fn r2t(cid: u16, offset: u32, length: u32) -> Pdu {
    Pdu::new(9, 0, 24, 0, 0).word(8, cid).word(10, 3).dword(12, offset).dword(16, length)
}

type Row = (&'static str, Vec<Pdu>, FatalStatus, u32);

/// An end of a connection that processes bytes until it detects a violation.
trait End {
    fn feed(&mut self, bytes: &[u8]) -> Result<(), FatalError>;
}

impl End for controller::Connection {
    fn feed(&mut self, mut input: &[u8]) -> Result<(), FatalError> {
        loop {
            let taken = self.data_received(input);
            input = &input[taken..];
            match self.poll_event(&mut input)? {
                Some(controller::Event::Initialized(_)) => self.send_ic_response(&mut Vec::new()),
                Some(_) => {}
                None if input.is_empty() => return Ok(()),
                None => {}
            }
        }
    }
}

impl End for host::Connection {
    fn feed(&mut self, mut input: &[u8]) -> Result<(), FatalError> {
        loop {
            let taken = self.data_received(input);
            input = &input[taken..];
            if self.poll_event(&mut input)?.is_none() && input.is_empty() {
                return Ok(());
            }
        }
    }
}

/// Feeds the rows to fresh ends, at once and byte by byte.
fn check<E: End>(rows: Vec<Row>, fresh: impl Fn() -> E) {
    for (what, pdus, status, information) in rows {
        let (last, before) = pdus.split_last().expect("a row has a PDU");
        let stream: Vec<u8> = before.iter().flat_map(|pdu| pdu.0.iter().copied()).collect();
        let mut whole = fresh();
        whole.feed(&stream).expect(what);
        let error = whole.feed(&last.0).expect_err(what);
        assert_eq!((error.status, error.information), (status, information), "{what}: {error}");
        let shown = error.header.len();
        assert!(shown >= 8 && error.header[..] == last.0[..shown], "{what}: the header is not the offending one");
        let names_a_field = matches!(status, InvalidHeaderField | UnsupportedParameter);
        assert_eq!(error.field_offset().is_some(), names_a_field, "{what}");

        let mut cut = fresh();
        for byte in &stream {
            cut.feed(&[*byte]).expect(what);
        }
        let found = last.0.iter().find_map(|byte| cut.feed(&[*byte]).err()).expect(what);
        assert_eq!((found.status, found.information), (status, information), "{what}, byte by byte: {found}");
        assert_eq!(cut.feed(&[0xff; 300]), Ok(()), "{what}: what follows is ignored");
    }
}

/// A controller with digests as given, on I/O queue 1, that awaits 20000 bytes of command 7 in R2Ts
/// of 8192 bytes, two outstanding, tags 0 and 32.
fn awaiting_controller(header: Digest, data: Digest) -> controller::Connection {
    let config =
        controller::ConnectionConfig { alignment: 8, h2c_data_max: 4096, r2t_bytes: 8192, ..controller_config() };
    let mut controller = controller::Connection::new(controller::ConnectionConfig {
        header_digest: header,
        data_digest: data,
        ..config
    });
    let digests = u8::from(header == Digest::Required) | u8::from(data == Digest::Required) << 1;
    let request = ic_req().byte(10, 1).byte(11, digests).dword(12, 1);
    controller.feed(&request.0).expect("a legal ICReq");
    controller.set_queue(QueueId(1), 32);
    let mut out = Vec::new();
    controller.request_data(Cid(7), 20_000, &mut out).expect("room");
    assert_eq!([out[10], out[out.len() / 2 + 10]], [0, 32], "the tags that the rows rely on");
    controller
}

// @test wire.violations
#[test]
fn invalid_pdus_at_a_controller_while_initializing() {
    let plain = || controller::Connection::new(controller_config());
    let rows = vec![
        ("no known type", vec![ic_req().byte(0, 0x0c)], InvalidHeaderField, 0),
        ("reserved type 08h", vec![ic_req().byte(0, 0x08)], InvalidHeaderField, 0),
        ("a controller's PDU", vec![ic_resp()], InvalidHeaderField, 0),
        ("HTTP", vec![Pdu(b"GET / HTTP/1.1\r\n".to_vec())], InvalidHeaderField, 0),
        ("TLS", vec![Pdu(vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc])], InvalidHeaderField, 0),
        ("command first", vec![capsule(0)], PduSequence, 0),
        ("data first", vec![h2c(0, 0, 16, true)], PduSequence, 0),
        ("flags", vec![ic_req().byte(1, 1)], InvalidHeaderField, 1),
        ("HLEN", vec![ic_req().byte(2, 127)], InvalidHeaderField, 2),
        ("PLEN short", vec![ic_req().dword(4, 127)], InvalidHeaderField, 4),
        ("PLEN long", vec![ic_req().dword(4, u32::MAX)], InvalidHeaderField, 4),
        ("PFV", vec![ic_req().word(8, 1)], UnsupportedParameter, 8),
        ("PFV high byte", vec![ic_req().word(8, 0x100)], UnsupportedParameter, 8),
        ("HPDA 32", vec![ic_req().byte(10, 32)], InvalidHeaderField, 10),
        ("HPDA 255", vec![ic_req().byte(10, 255)], InvalidHeaderField, 10),
        ("second ICReq", vec![ic_req(), ic_req()], PduSequence, 0),
        ("second ICReq after a command", vec![ic_req(), capsule(0), ic_req()], PduSequence, 0),
    ];
    check(rows, plain);
    let strict = || {
        let header_digest = Digest::Required;
        let data_digest = Digest::Allowed;
        controller::Connection::new(controller::ConnectionConfig { header_digest, data_digest, ..controller_config() })
    };
    check(vec![("digest not offered", vec![ic_req().byte(11, 2)], UnsupportedParameter, 11)], strict);
}

#[test]
fn a_host_that_does_not_wait_for_icresp() {
    let mut controller = controller::Connection::new(controller_config());
    assert!(matches!(controller.poll_event(&mut &ic_req().0[..]), Ok(Some(controller::Event::Initialized(_)))));
    let error = controller.poll_event(&mut &capsule(0).0[..]).expect_err("ICResp was not sent yet");
    assert_eq!(error.status, PduSequence);
}

// @test wire.violations
#[test]
fn invalid_pdus_at_a_controller_after_initializing() {
    let in_order = |offset| h2c(if offset < 8192 { 0 } else { 32 }, offset, 4096, offset % 8192 == 4096);
    let rows = vec![
        ("a controller's PDU", vec![resp(7)], InvalidHeaderField, 0),
        ("R2T from a host", vec![r2t(7, 0, 16)], InvalidHeaderField, 0),
        ("second ICReq", vec![ic_req()], PduSequence, 0),
        ("HDGSTF not negotiated", vec![capsule(0).byte(1, 1)], InvalidHeaderField, 1),
        ("DDGSTF not negotiated", vec![capsule(16).byte(1, 2)], InvalidHeaderField, 1),
        ("LAST on a command", vec![capsule(0).byte(1, 4)], InvalidHeaderField, 1),
        ("SUCCESS on H2CData", vec![h2c(0, 0, 4096, false).byte(1, 8)], InvalidHeaderField, 1),
        ("reserved flag", vec![capsule(0).byte(1, 0x80)], InvalidHeaderField, 1),
        ("HLEN of a command", vec![capsule(0).byte(2, 71)], InvalidHeaderField, 2),
        ("HLEN of H2CData", vec![h2c(0, 0, 16, false).byte(2, 0)], InvalidHeaderField, 2),
        ("flags before HLEN", vec![capsule(0).byte(1, 0x80).byte(2, 71)], InvalidHeaderField, 1),
        ("PDO in the header", vec![capsule(16).byte(3, 64)], InvalidHeaderField, 3),
        ("PDO 0 with data", vec![capsule(16).byte(3, 0)], InvalidHeaderField, 3),
        ("PDO not aligned", vec![capsule(16).byte(3, 76)], InvalidHeaderField, 3),
        ("PDO odd", vec![h2c(0, 0, 64, false).byte(3, 25)], InvalidHeaderField, 3),
        ("PLEN short of a command", vec![capsule(0).dword(4, 71)], InvalidHeaderField, 4),
        ("PLEN 0", vec![capsule(0).dword(4, 0)], InvalidHeaderField, 4),
        ("PLEN before PDO", vec![capsule(16).byte(3, 80).dword(4, 80)], InvalidHeaderField, 4),
        ("in-capsule data beyond the limit", vec![capsule(8193)], LimitExceeded, 0),
        ("in-capsule data of 4 GiB", vec![capsule(16).dword(4, u32::MAX)], LimitExceeded, 0),
        ("H2CData without data", vec![h2c(0, 0, 0, true)], InvalidHeaderField, 16),
        ("unknown tag", vec![h2c(5, 0, 4096, false)], InvalidHeaderField, 10),
        ("tag beyond the table", vec![h2c(0xffff, 0, 4096, false)], InvalidHeaderField, 10),
        ("tag of an R2T not yet sent", vec![h2c(64, 0, 4096, false)], InvalidHeaderField, 10),
        ("CCCID of another command", vec![h2c(0, 0, 4096, false).word(8, 8)], InvalidHeaderField, 8),
        ("second R2T answered first", vec![h2c(32, 8192, 4096, false)], PduSequence, 0),
        ("DATAL other than the data", vec![h2c(0, 0, 4096, false).dword(16, 4092)], InvalidHeaderField, 16),
        ("more than MAXH2CDATA", vec![h2c(0, 0, 4100, false)], LimitExceeded, 0),
        ("offset beyond the R2T", vec![h2c(0, 8192, 4096, false)], DataOutOfRange, 0),
        ("end beyond the R2T", vec![in_order(0), h2c(0, 8000, 4096, true)], DataOutOfRange, 0),
        ("offset that overflows", vec![h2c(0, u32::MAX - 3, 8, false)], DataOutOfRange, 0),
        ("before the R2T", vec![in_order(0), in_order(4096), h2c(32, 0, 4096, false)], DataOutOfRange, 0),
        ("a gap", vec![h2c(0, 4, 4092, false)], PduSequence, 0),
        ("the same twice", vec![in_order(0), in_order(0)], PduSequence, 0),
        ("LAST too early", vec![h2c(0, 0, 4096, true)], PduSequence, 0),
        ("LAST missing", vec![in_order(0), h2c(0, 4096, 4096, false)], PduSequence, 0),
        (
            "more after the last",
            vec![in_order(0), in_order(4096), in_order(8192), in_order(12_288), h2c(0, 0, 16, true)],
            InvalidHeaderField,
            10,
        ),
        (
            "tag of the R2T that would come next",
            vec![in_order(0), in_order(4096), in_order(8192), in_order(12_288), h2c(64, 16_384, 16, false)],
            InvalidHeaderField,
            10,
        ),
    ];
    check(rows, || awaiting_controller(Digest::Allowed, Digest::Allowed));
}

/// That a tag is out of turn is said of every R2T that is outstanding, also when earlier ones have
/// been answered.
#[test]
fn r2ts_behind_an_answered_one_keep_their_order() {
    let three_r2ts = || {
        let config = controller::ConnectionConfig { h2c_data_max: 8192, r2t_bytes: 8192, ..controller_config() };
        let mut controller = controller::Connection::new(config);
        controller.feed(&ic_req().dword(12, 2).0).expect("a legal ICReq");
        controller.set_queue(QueueId(1), 32);
        controller.request_data(Cid(7), 30_000, &mut Vec::new()).expect("room");
        controller
    };
    let rows = vec![
        ("third of three", vec![h2c(64, 16_384, 8192, true)], PduSequence, 0),
        ("third before second", vec![h2c(0, 0, 8192, true), h2c(64, 16_384, 8192, true)], PduSequence, 0),
        ("first again", vec![h2c(0, 0, 8192, true), h2c(0, 0, 8192, true)], InvalidHeaderField, 10),
    ];
    check(rows, three_r2ts);

    let mut controller = three_r2ts();
    for (tag, offset) in [(0, 0), (32, 8192), (64, 16_384)] {
        controller.feed(&h2c(tag, offset, 8192, true).0).expect("in order");
    }
    assert!(!controller.stop_requesting(Cid(7)), "all that was requested has come");
}

#[test]
fn invalid_pdus_at_a_controller_with_digests() {
    let good = || capsule(0).with_header_digest();
    let corrupted = |at: usize| {
        let pdu = good();
        let value = pdu.0[at] ^ 0x10;
        pdu.byte(at, value)
    };
    let received = |pdu: &Pdu| u32::from_le_bytes(*pdu.0[72..].first_chunk().expect("a digest"));
    let rows = [3, 4, 8, 40, 71, 72, 75].map(|at| {
        let pdu = corrupted(at);
        let digest = received(&pdu);
        ("corrupted header", vec![good(), pdu], HeaderDigest, digest)
    });
    check(rows.into(), || awaiting_controller(Digest::Required, Digest::Allowed));
    let rows = vec![
        ("HDGSTF missing", vec![capsule(0)], InvalidHeaderField, 1),
        ("HLEN", vec![good().byte(2, 40)], InvalidHeaderField, 2),
        ("PDO in the digest", vec![capsule(16).with_header_digest()], InvalidHeaderField, 3),
    ];
    check(rows, || awaiting_controller(Digest::Required, Digest::Allowed));
    let rows = vec![
        ("DDGSTF missing", vec![capsule(16)], InvalidHeaderField, 1),
        ("DDGSTF without data", vec![capsule(0).byte(1, 2)], InvalidHeaderField, 1),
        ("no room for the digest", vec![capsule(4).byte(1, 2)], InvalidHeaderField, 4),
    ];
    check(rows, || awaiting_controller(Digest::Allowed, Digest::Required));
}

/// A host on which command 1 reads 4096 bytes, 2 writes 8192, 3 wrote in the capsule and 4 moves
/// nothing; two R2Ts are offered, and data are aligned to 8 bytes.
fn awaiting_host(digests: Digest) -> host::Connection {
    let config = host::ConnectionConfig { alignment: 8, header_digest: digests, data_digest: digests, r2t_max: 2 };
    let mut host = host::Connection::new(config);
    let mut out = Vec::new();
    host.send_ic_request(&mut out);
    host.feed(&ic_resp().byte(11, if digests == Digest::Required { 3 } else { 0 }).0).expect("a legal ICResp");
    let mut send = |sqe: Sqe, transfer: host::CommandData<'_>| {
        host.send_command(&mut sqe.clone(), transfer, &mut out);
    };
    send(command(2, 1, 0), host::CommandData::Read { length: 4096 });
    send(command(1, 2, 0), host::CommandData::Write { length: 8192 });
    send(command(1, 3, 0), host::CommandData::InCapsule { payload: &[0; 16] });
    send(command(0, 4, 0), host::CommandData::None);
    host
}

#[test]
fn invalid_pdus_at_a_host_while_initializing() {
    let asking = |digest| {
        let config = host::ConnectionConfig { header_digest: digest, ..host_config() };
        let mut host = host::Connection::new(config);
        host.send_ic_request(&mut Vec::new());
        host
    };
    let rows = vec![
        ("a host's PDU", vec![ic_req()], InvalidHeaderField, 0),
        ("no known type", vec![ic_resp().byte(0, 0x0b)], InvalidHeaderField, 0),
        ("SSH", vec![Pdu(b"SSH-2.0-OpenSSH".to_vec())], InvalidHeaderField, 0),
        ("response first", vec![resp(0)], PduSequence, 0),
        ("data first", vec![c2h(0, 0, 16, 4)], PduSequence, 0),
        ("R2T first", vec![r2t(0, 0, 16)], PduSequence, 0),
        ("flags", vec![ic_resp().byte(1, 2)], InvalidHeaderField, 1),
        ("HLEN", vec![ic_resp().byte(2, 24)], InvalidHeaderField, 2),
        ("PLEN", vec![ic_resp().dword(4, 129)], InvalidHeaderField, 4),
        ("PFV", vec![ic_resp().word(8, 2)], UnsupportedParameter, 8),
        ("CPDA", vec![ic_resp().byte(10, 32)], InvalidHeaderField, 10),
        ("digest not asked for", vec![ic_resp().byte(11, 1)], InvalidHeaderField, 11),
        ("data digest not asked for", vec![ic_resp().byte(11, 2)], InvalidHeaderField, 11),
        ("MAXH2CDATA 0", vec![ic_resp().dword(12, 0)], InvalidHeaderField, 12),
        ("MAXH2CDATA 4095", vec![ic_resp().dword(12, 4095)], InvalidHeaderField, 12),
        ("MAXH2CDATA odd", vec![ic_resp().dword(12, 4098)], InvalidHeaderField, 12),
        ("second ICResp", vec![ic_resp(), ic_resp()], PduSequence, 0),
    ];
    check(rows, || asking(Digest::Allowed));
    check(vec![("digest refused", vec![ic_resp()], UnsupportedParameter, 11)], || asking(Digest::Required));
    let idle = || host::Connection::new(host_config());
    check(vec![("ICResp without ICReq", vec![ic_resp()], PduSequence, 0)], idle);
}

// @test wire.violations
#[test]
fn invalid_pdus_at_a_host_after_initializing() {
    let rows = vec![
        ("a host's PDU", vec![capsule(0)], InvalidHeaderField, 0),
        ("second ICResp", vec![ic_resp()], PduSequence, 0),
        ("HDGSTF not negotiated", vec![resp(4).byte(1, 1)], InvalidHeaderField, 1),
        ("DDGSTF on a response", vec![resp(4).byte(1, 2)], InvalidHeaderField, 1),
        ("DDGSTF not negotiated", vec![c2h(1, 0, 64, 2)], InvalidHeaderField, 1),
        ("SUCCESS without LAST", vec![c2h(1, 0, 4096, 8)], InvalidHeaderField, 1),
        ("LAST on an R2T", vec![r2t(2, 0, 16).byte(1, 4)], InvalidHeaderField, 1),
        ("HLEN", vec![resp(4).byte(2, 25)], InvalidHeaderField, 2),
        ("PDO in the header", vec![c2h(1, 0, 64, 0).byte(3, 16)], InvalidHeaderField, 3),
        ("PDO not aligned", vec![c2h(1, 0, 64, 0).byte(3, 28)], InvalidHeaderField, 3),
        ("response with data", vec![resp(4).dword(4, 28)], InvalidHeaderField, 4),
        ("R2T with data", vec![r2t(2, 0, 16).dword(4, 32)], InvalidHeaderField, 4),
        ("PLEN short", vec![c2h(1, 0, 64, 0).dword(4, 20)], InvalidHeaderField, 4),
        ("response to nothing", vec![resp(5)], InvalidHeaderField, 20),
        ("response to a CID of the same place", vec![resp(1 + 32)], InvalidHeaderField, 20),
        ("second response", vec![resp(4), resp(4)], InvalidHeaderField, 20),
        ("data for nothing", vec![c2h(5, 0, 16, 4)], InvalidHeaderField, 8),
        ("data without data", vec![c2h(1, 0, 0, 4)], InvalidHeaderField, 16),
        ("DATAL other than the data", vec![c2h(1, 0, 64, 0).dword(16, 60)], InvalidHeaderField, 16),
        ("data for a write", vec![c2h(2, 0, 64, 4)], DataOutOfRange, 0),
        ("data for a command without data", vec![c2h(4, 0, 64, 4)], DataOutOfRange, 0),
        ("more data than asked for", vec![c2h(1, 0, 4100, 4)], DataOutOfRange, 0),
        ("data beyond the end", vec![c2h(1, 0, 4000, 0), c2h(1, 4000, 100, 4)], DataOutOfRange, 0),
        ("offset that overflows", vec![c2h(1, u32::MAX - 3, 8, 0)], DataOutOfRange, 0),
        ("a gap", vec![c2h(1, 4, 64, 0)], PduSequence, 0),
        ("the same twice", vec![c2h(1, 0, 64, 0), c2h(1, 0, 64, 0)], PduSequence, 0),
        ("more after LAST", vec![c2h(1, 0, 64, 4), c2h(1, 64, 64, 0)], PduSequence, 0),
        ("LAST missing", vec![c2h(1, 0, 4096, 0)], PduSequence, 0),
        ("data after SUCCESS", vec![c2h(1, 0, 4096, 12), c2h(1, 0, 16, 4)], InvalidHeaderField, 8),
        ("response after SUCCESS", vec![c2h(1, 0, 4096, 12), resp(1)], InvalidHeaderField, 20),
        ("data after the response", vec![resp(1), c2h(1, 0, 16, 4)], InvalidHeaderField, 8),
        ("R2T for nothing", vec![r2t(6, 0, 16)], InvalidHeaderField, 8),
        ("R2T for no data", vec![r2t(2, 0, 0)], InvalidHeaderField, 16),
        ("R2T for a read", vec![r2t(1, 0, 16)], DataOutOfRange, 0),
        ("R2T for in-capsule data", vec![r2t(3, 0, 16)], DataOutOfRange, 0),
        ("R2T beyond the data", vec![r2t(2, 0, 8196)], DataOutOfRange, 0),
        ("R2T that overflows", vec![r2t(2, u32::MAX, 16)], DataOutOfRange, 0),
        ("R2T with a gap", vec![r2t(2, 4096, 4096)], PduSequence, 0),
        ("R2T twice", vec![r2t(2, 0, 4096), r2t(2, 0, 4096)], PduSequence, 0),
        ("more R2Ts than offered", vec![r2t(2, 0, 4), r2t(2, 4, 4), r2t(2, 8, 4)], LimitExceeded, 0),
    ];
    check(rows, || awaiting_host(Digest::Allowed));
}

/// Nothing of the transport is broken: the controller asked for data and completed the command, and
/// the next one got its identifier before the data were sent.
// @test hostile.no-crash
#[test]
fn an_r2t_of_a_command_that_was_completed_is_answered_with_a_later_one_at_most() {
    let mut host = awaiting_host(Digest::Allowed);
    let Ok(Some(host::Event::R2t(mut late))) = host.poll_event(&mut &r2t(2, 0, 4096).0[..]) else { panic!("no R2T") };
    host.feed(&resp(2).0).expect("a response that comes early");
    let mut out = Vec::new();
    host.send_command(&mut command(1, 2, 0), host::CommandData::Write { length: 8192 }, &mut out);
    host.send_h2c_data(&mut late, &[0; 4096], &mut out);
    assert_eq!((late.offset, late.length), (4096, 0));
    // The later one has its own R2Ts.
    for offset in [0, 4096] {
        let event = host.poll_event(&mut &r2t(2, offset, 4096).0[..]).expect("as many as were offered");
        assert!(matches!(event, Some(host::Event::R2t(_))), "{event:?}");
    }
}

#[test]
fn invalid_pdus_at_a_host_with_digests() {
    let corrupted = resp(4).with_header_digest().byte(16, 9);
    let received = u32::from_le_bytes(*corrupted.0[24..].first_chunk().unwrap());
    let rows = vec![
        ("corrupted header", vec![corrupted], HeaderDigest, received),
        ("HDGSTF missing", vec![resp(4)], InvalidHeaderField, 1),
        ("DDGSTF missing", vec![c2h(1, 0, 64, 0).with_header_digest()], InvalidHeaderField, 1),
    ];
    check(rows, || awaiting_host(Digest::Required));
}

#[test]
fn a_termination_request_is_sent_and_never_answered() {
    let term = |kind: u8, plen: u32, fes: u16, fei: u32| {
        Pdu::new(kind, 0, 24, 0, 0).dword(4, plen).word(8, fes).dword(10, fei)
    };
    for (pdu, expected) in [
        (term(2, 24, 2, 0), (2, 0)),
        (term(2, 152, 1, 4), (1, 4)),
        (term(2, 24, 0x1234, 9), (0x1234, 9)),
        (term(2, 153, 1, 4), (0, 0)),
        (term(2, 23, 1, 4), (0, 0)),
        (term(2, 24, 1, 4).byte(2, 8), (0, 0)),
    ] {
        for cut in [1, 1000] {
            let mut fresh = controller::Connection::new(controller_config());
            let mut running = awaiting_controller(Digest::Required, Digest::Required);
            for controller in [&mut fresh, &mut running] {
                let told = pdu.0.chunks(cut).find_map(|mut piece| controller.poll_event(&mut piece).unwrap());
                let Some(controller::Event::TermReceived(termination)) = told else { panic!("{told:?}") };
                assert_eq!((termination.status, termination.information), expected);
            }
        }
    }
    let mut host = awaiting_host(Digest::Required);
    let told = host.poll_event(&mut &term(3, 40, 5, 0).0[..]).unwrap();
    let Some(host::Event::TermReceived(termination)) = told else { panic!("{told:?}") };
    assert_eq!(termination.status, 5);
    assert_eq!(host.poll_event(&mut &resp(4).0[..]), Ok(None));
}

#[test]
fn valid_padding_and_data_offsets_are_accepted() {
    let mut controller = awaiting_controller(Digest::Allowed, Digest::Allowed);
    controller.feed(&capsule(0).byte(3, 72).0).expect("PDO means nothing without data");
    let mut padded = Pdu::new(4, 0, 72, 248, 16).byte(8, 1);
    padded.0[72..248].fill(0xa5);
    controller.feed(&padded.0).expect("padding may be longer than needed, and anything");
    let mut host = awaiting_host(Digest::Allowed);
    host.feed(&Pdu::new(7, 12, 24, 64, 4096).word(8, 1).dword(16, 4096).0).expect("the same for a host");
    assert!(!host.is_outstanding(Cid(1)));
    let cqe = Cqe::new(Cid(4), Status::SUCCESS);
    let mut out = Vec::new();
    controller.send_response(&cqe, &mut out);
    host.feed(&out).expect("a response");
    assert!(!host.is_outstanding(Cid(4)));
}
