//! Every PDU, byte by byte: the ends send the bytes of `testdata`, and decode them.
//!
//! The vectors were written by hand from the specification's tables; digests are checked by a
//! bitwise CRC32C.

use ebof_nvme::{Cid, Cqe, Nsid, Sqe, Status};
use ebof_tcp::pdu::{C2hData, CapsuleCmd, CapsuleResp, H2cData, IcReq, IcResp, R2t, TermReq};
use ebof_tcp::{Digest, FatalError, FatalStatus, controller, digest, host};
use ebof_testkit::hex;
use ebof_testkit::tcp::{controller_config, host_config};
use zerocopy::{FromBytes, IntoBytes};

macro_rules! golden {
    ($name:literal) => {
        hex::read(include_str!(concat!("../../testdata/", $name, ".hex")))
    };
}

/// CRC32C by definition: reflected polynomial 82F63B78h, bit by bit.
fn slow_crc32c(bytes: &[u8]) -> [u8; 4] {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    (!crc).to_le_bytes()
}

/// A pair that has been through initialization.
fn connected(
    host: host::ConnectionConfig,
    controller: controller::ConnectionConfig,
) -> (host::Connection, controller::Connection) {
    let mut host = host::Connection::new(host);
    let mut controller = controller::Connection::new(controller);
    let mut to_controller = Vec::new();
    let mut to_host = Vec::new();
    host.send_ic_request(&mut to_controller);
    assert!(matches!(controller.poll_event(&mut &to_controller[..]), Ok(Some(controller::Event::Initialized(_)))));
    controller.send_ic_response(&mut to_host);
    assert!(matches!(host.poll_event(&mut &to_host[..]), Ok(Some(host::Event::Initialized(_)))));
    (host, controller)
}

#[test]
fn digests_match_the_vectors_of_rfc_3720() {
    let ascending: Vec<u8> = (0..32).collect();
    let descending: Vec<u8> = (0..32).rev().collect();
    let read_10 = hex::read(
        "01 c0 00 00 00 00 00 00 00 00 00 00 00 00 00 00 14 00 00 00 00 00 04 00 00 00 00 14 00 00 00 18
         28 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00",
    );
    for (bytes, expected) in [
        (vec![0; 32], [0xaa, 0x36, 0x91, 0x8a]),
        (vec![0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
        (ascending, [0x4e, 0x79, 0xdd, 0x46]),
        (descending, [0x5c, 0xdb, 0x3f, 0x11]),
        (read_10, [0x56, 0x3a, 0x96, 0xd9]),
    ] {
        assert_eq!(digest::crc32c(&bytes), expected);
        assert_eq!(slow_crc32c(&bytes), expected);
        for at in 0..bytes.len() {
            let mut pieces = digest::Incremental::new();
            pieces.update(&bytes[..at]);
            pieces.update(&bytes[at..]);
            assert_eq!(pieces.finish(), expected);
        }
    }
    let long: Vec<u8> = (0_u32..70_000).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
    assert_eq!(digest::crc32c(&long), slow_crc32c(&long));
}

// @test wire.pdu-encoding
#[test]
fn ic_req() {
    let bytes = golden!("ic_req");
    let config =
        host::ConnectionConfig { header_digest: Digest::Required, data_digest: Digest::Required, ..host_config() };
    let mut out = Vec::new();
    host::Connection::new(config).send_ic_request(&mut out);
    assert_eq!(out, bytes);
    let event = controller::Connection::new(controller_config()).poll_event(&mut &bytes[..]);
    let Ok(Some(controller::Event::Initialized(agreed))) = event else { panic!("{event:?}") };
    assert!(agreed.header_digest && agreed.data_digest);
    assert_eq!((agreed.host_alignment, agreed.r2t_max), (4, 1));
    assert_eq!(IcReq::read_from_bytes(&bytes).unwrap().as_bytes(), bytes);
}

// @test wire.pdu-encoding
#[test]
fn ic_resp() {
    let bytes = golden!("ic_resp");
    let mut controller =
        controller::Connection::new(controller::ConnectionConfig { alignment: 64, ..controller_config() });
    let mut host = host::Connection::new(host::ConnectionConfig {
        alignment: 8,
        header_digest: Digest::Required,
        ..host_config()
    });
    let mut request = Vec::new();
    let mut out = Vec::new();
    host.send_ic_request(&mut request);
    controller.poll_event(&mut &request[..]).unwrap();
    controller.send_ic_response(&mut out);
    assert_eq!(out, bytes);
    let event = host.poll_event(&mut &bytes[..]);
    let Ok(Some(host::Event::Initialized(agreed))) = event else { panic!("{event:?}") };
    assert_eq!((agreed.controller_alignment, agreed.h2c_data_max), (64, 131_072));
    assert!(agreed.header_digest && !agreed.data_digest);
    assert_eq!(IcResp::read_from_bytes(&bytes).unwrap().as_bytes(), bytes);
}

#[test]
fn capsule_cmd_without_data() {
    let bytes = golden!("capsule_cmd_read");
    let (mut host, mut controller) = connected(host_config(), controller_config());
    let mut sqe = Sqe::new(2).with_nsid(Nsid(1)).with_cdw(10, 8);
    sqe.cid = 0x1234.into();
    let mut out = Vec::new();
    host.send_command(&mut sqe, host::CommandData::Read { length: 4096 }, &mut out);
    assert_eq!(out, bytes);
    assert_eq!(controller.poll_event(&mut &bytes[..]), Ok(Some(controller::Event::Command { sqe, in_capsule: 0 })));
    assert_eq!(CapsuleCmd::read_from_bytes(&bytes).unwrap().sqe, sqe);
}

// @test wire.pdu-encoding
#[test]
fn capsule_cmd_with_data_digests_and_padding() {
    let bytes = golden!("capsule_cmd_write");
    assert_eq!(slow_crc32c(&bytes[..72]), bytes[72..76]);
    assert_eq!(slow_crc32c(&bytes[128..144]), bytes[144..]);
    let config = host::ConnectionConfig {
        alignment: 128,
        header_digest: Digest::Required,
        data_digest: Digest::Required,
        ..host_config()
    };
    let (mut host, mut controller) =
        connected(config, controller::ConnectionConfig { alignment: 128, ..controller_config() });
    let mut sqe = Sqe::new(1).with_nsid(Nsid(1));
    sqe.cid = 5.into();
    let payload: Vec<u8> = (0..16).collect();
    let mut out = Vec::new();
    let trailer = host.send_command(&mut sqe, host::CommandData::InCapsule { payload: &payload }, &mut out);
    out.extend(&payload);
    out.extend(trailer.unwrap());
    assert_eq!(out, bytes);
    let mut input = &bytes[..];
    assert_eq!(controller.poll_event(&mut input), Ok(Some(controller::Event::Command { sqe, in_capsule: 16 })));
    assert_eq!(input.len(), 20);
    let event = controller::Event::Data { cid: Cid(5), offset: 0, length: 16 };
    assert_eq!(controller.poll_event(&mut input), Ok(Some(event)));
    assert_eq!(controller.data_received(input), 16);
    input = &input[16..];
    let event = controller::Event::DataEnd { cid: Cid(5), digest_ok: true, complete: true };
    assert_eq!(controller.poll_event(&mut input), Ok(Some(event)));
    assert!(input.is_empty());
}

#[test]
fn capsule_resp() {
    let bytes = golden!("capsule_resp");
    let (mut host, mut controller) = connected(host_config(), controller_config());
    let mut sqe = Sqe::new(0);
    sqe.cid = 0x1234.into();
    host.send_command(&mut sqe, host::CommandData::None, &mut Vec::new());
    let cqe = Cqe::new(Cid(0x1234), Status::INVALID_FIELD.dnr()).with_sqhd(7);
    let mut out = Vec::new();
    controller.send_response(&cqe, &mut out);
    assert_eq!(out, bytes);
    let event = host::Event::Completion { cqe, transferred: 0, from_success_flag: false };
    assert_eq!(host.poll_event(&mut &bytes[..]), Ok(Some(event)));
    assert_eq!(CapsuleResp::read_from_bytes(&bytes).unwrap().cqe, cqe);
}

// @test wire.pdu-encoding
#[test]
fn h2c_data() {
    let bytes = golden!("h2c_data");
    let (mut host, _) = connected(host_config(), controller_config());
    let mut sqe = Sqe::new(1);
    sqe.cid = 0x1234.into();
    host.send_command(&mut sqe, host::CommandData::Write { length: 8192 }, &mut Vec::new());
    let mut r2t = host::R2t { cid: Cid(0x1234), ttag: 5, offset: 4096, length: 16 };
    let mut out = Vec::new();
    host.send_h2c_data(&mut r2t, &[0; 16], &mut out);
    assert_eq!(out, bytes);
    assert_eq!((r2t.offset, r2t.length), (4112, 0));
    let pdu = H2cData::read_from_bytes(&bytes).unwrap();
    assert_eq!((pdu.ttag.get(), pdu.datao.get(), pdu.datal.get()), (5, 4096, 16));
}

// @test wire.pdu-encoding
#[test]
fn c2h_data() {
    let bytes = golden!("c2h_data");
    let (mut host, mut controller) =
        connected(host::ConnectionConfig { alignment: 64, ..host_config() }, controller_config());
    let mut sqe = Sqe::new(2);
    sqe.cid = 0x1234.into();
    host.send_command(&mut sqe, host::CommandData::Read { length: 8 }, &mut Vec::new());
    let mut out = Vec::new();
    assert_eq!(controller.send_data(Cid(0x1234), 0, &[7; 8], true, true, &mut out), None);
    assert_eq!(out, bytes);
    let mut input = &bytes[..];
    let event = host::Event::Data { cid: Cid(0x1234), offset: 0, length: 8 };
    assert_eq!(host.poll_event(&mut input), Ok(Some(event)));
    assert_eq!(host.data_received(&[7; 8]), 8);
    let event = host::Event::DataEnd { cid: Cid(0x1234), digest_ok: true };
    assert_eq!(host.poll_event(&mut input), Ok(Some(event)));
    let cqe = Cqe::new(Cid(0x1234), Status::SUCCESS);
    let event = host::Event::Completion { cqe, transferred: 8, from_success_flag: true };
    assert_eq!(host.poll_event(&mut input), Ok(Some(event)));
    assert_eq!(C2hData::read_from_prefix(&bytes).unwrap().0.datal.get(), 8);
}

// @test wire.pdu-encoding
#[test]
fn r2t() {
    let bytes = golden!("r2t");
    let (mut host, mut controller) = connected(host_config(), controller_config());
    let mut sqe = Sqe::new(1);
    sqe.cid = 0x1234.into();
    host.send_command(&mut sqe, host::CommandData::Write { length: 8192 }, &mut Vec::new());
    let mut out = Vec::new();
    controller.request_data(Cid(0x1234), 8192, &mut out).unwrap();
    assert_eq!(out, bytes);
    let event = host::Event::R2t(host::R2t { cid: Cid(0x1234), ttag: 0, offset: 0, length: 8192 });
    assert_eq!(host.poll_event(&mut &bytes[..]), Ok(Some(event)));
    assert_eq!(R2t::read_from_bytes(&bytes).unwrap().r2tl.get(), 8192);
}

// @test wire.pdu-encoding
#[test]
fn term_req() {
    let bytes = golden!("c2h_term_req");
    let (mut host, mut controller) = connected(host_config(), controller_config());
    let mut wrong = golden!("h2c_data");
    wrong[2] = 23;
    let error = controller.poll_event(&mut &wrong[..]).unwrap_err();
    let mut out = Vec::new();
    controller.send_term(&error, &mut out);
    assert_eq!(out, bytes);
    let event = host.poll_event(&mut &bytes[..]);
    let Ok(Some(host::Event::TermReceived(termination))) = event else { panic!("{event:?}") };
    assert_eq!((termination.status, termination.information), (1, 2));
    assert_eq!(TermReq::read_from_prefix(&bytes).unwrap().0.fes.get(), 1);
    assert_eq!(termination.to_string(), "Invalid PDU Header Field (byte 2)");
}

#[test]
fn a_term_req_never_exceeds_152_bytes() {
    let header = vec![1; 300].into_boxed_slice();
    let error = FatalError { status: FatalStatus::HeaderDigest, information: 0x1122_3344, what: "", header };
    let mut out = Vec::new();
    host::Connection::new(host_config()).send_term(&error, &mut out);
    assert_eq!(out.len(), 152);
    assert_eq!(out[..14], [2, 0, 24, 0, 152, 0, 0, 0, 3, 0, 0x44, 0x33, 0x22, 0x11]);
}
