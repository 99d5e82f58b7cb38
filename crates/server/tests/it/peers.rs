//! Hosts that send more data than their commands need, or identify themselves in unusual ways, with
//! the bytes that they send.

use std::io::Write;

use ebof_nvme::connect::{Connect, ConnectData, Property};
use ebof_nvme::io::{BlockRange, Dsm};
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::property::{Cc, offset};
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Nsid, QueueId, Sgl, Sqe};
use zerocopy::IntoBytes;

use crate::drive_rig::{BOB, connect_as, create, start};
use crate::raw::{self, Raw, connect_data};

fn command(opcode: u8, cdw10: u32) -> Sqe {
    Sqe::new(opcode).with_nsid(Nsid(1)).with_cdw(10, cdw10)
}

fn keys(first: u64, second: u64, bytes: usize) -> Vec<u8> {
    let mut keys = [first.to_le_bytes(), second.to_le_bytes()].concat();
    keys.resize(bytes, 0xee);
    keys
}

/// An I/O queue with number 1, beside its Admin Queue.
fn io_queue(address: std::net::SocketAddr) -> (Raw, Raw) {
    let (admin, controller) = Raw::admin_and_controller(address);
    let mut io = Raw::initialized(address);
    io.send(raw::connect(1, 32), 1, connect_data(controller).as_bytes());
    assert!(io.completion().status().is_success());
    (admin, io)
}

#[test]
fn completions_have_the_head_of_the_queue_unless_flow_control_is_disabled() {
    let directory = tempfile::tempdir().unwrap();
    let (_target, address) = start(&directory.path().join("drive.img"), Some(64 << 20));
    let mut host = Raw::initialized(address);
    let connect = |cattr| Connect { recfmt: 0, qid: QueueId(0), entries: 32, cattr, kato_ms: 60_000 }.encode();
    let version = || Property::get(offset::VS, 4);
    let head = |host: &mut Raw, sqe: Sqe, cid: u16, data: &[u8]| {
        host.send(sqe, cid, data);
        let cqe = host.completion();
        assert_eq!((cqe.cid().0, cqe.status().is_success()), (cid, true));
        cqe.sqhd.get()
    };
    assert_eq!(head(&mut host, connect(0), 1, connect_data(0xffff).as_bytes()), 1);
    assert_eq!(head(&mut host, Property::set(offset::CC, Cc::ENABLE.0), 2, &[]), 2);
    // An event request that is withdrawn for a command with its identifier: two entries are free
    // then.
    host.send(Sqe::new(admin::ASYNC_EVENT_REQUEST), 3, &[]);
    assert_eq!(head(&mut host, version(), 4, &[]), 3);
    assert_eq!(head(&mut host, version(), 3, &[]), 5);
    for expected in (6..32).chain(0..3) {
        assert_eq!(head(&mut host, version(), 5, &[]), expected);
    }

    let mut host = Raw::initialized(address);
    let no_flow = connect(Connect::CATTR_DISABLE_SQ_FLOW);
    assert_eq!(head(&mut host, no_flow, 1, connect_data(0xffff).as_bytes()), 0xffff);
    assert_eq!(head(&mut host, version(), 2, &[]), 0);
}

// @test wire.excess-data
#[test]
fn excess_parameter_data_are_dropped_and_the_stream_continues() {
    let directory = tempfile::tempdir().unwrap();
    let (_target, address) = start(&directory.path().join("drive.img"), Some(64 << 20));
    let bob = connect_as(address, BOB);
    create(&bob, 16 << 11);
    let (_admin, mut io) = io_queue(address);
    // Linux' ioctls: 16 bytes with each of them.
    let exclusive = 2 << 8;
    let mut cid = 1;
    let steps = [
        (nvm::RESERVATION_REGISTER, 0, keys(0, 0xa, 16)),
        (nvm::RESERVATION_ACQUIRE, exclusive, keys(0xa, 0, 16)),
        (nvm::RESERVATION_RELEASE, exclusive, keys(0xa, 0, 16)),
        (nvm::RESERVATION_ACQUIRE, exclusive, keys(0xa, 0, 8192)),
        (nvm::RESERVATION_RELEASE, exclusive, keys(0xa, 0, 4097)),
        (nvm::RESERVATION_RELEASE, 1, keys(0xa, 0, 16)),
    ];
    for (opcode, cdw10, data) in steps {
        cid += 1;
        // In pieces, so that dropped data arrive in several reads.
        let capsule = Raw::capsule(command(opcode, cdw10), cid, &data);
        for piece in capsule.chunks(1000) {
            io.0.write_all(piece).unwrap();
        }
        let done = io.completion();
        assert_eq!((done.cid().0, done.status().is_success()), (cid, true), "{opcode:02x}h: {}", done.status());
    }
    // R2Ts request no more than is needed.
    let mut register = command(nvm::RESERVATION_REGISTER, 0);
    register.dptr = SglDescriptor::encode(Sgl::Transport { length: 4096 });
    io.send(register, 50, &[]);
    let r2t = io.pdu();
    assert_eq!(r2t[0], 9, "an R2T");
    io.send_data(&r2t, &keys(0, 0xb, 16));
    assert!(io.completion().status().is_success());
    // Linux' discards: one range, 4096 bytes.
    let dsm = Dsm { ranges: 1, deallocate: true, integral_read: false, integral_write: false };
    let mut ranges = vec![0xff; 4096];
    ranges[..16].copy_from_slice(&[0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    io.send(dsm.encode(Nsid(1)), 51, &ranges);
    assert!(io.completion().status().is_success());
    // Data with a command that has none.
    io.send(command(nvm::FLUSH, 0), 52, &[9; 512]);
    let flushed = io.completion();
    assert_eq!((flushed.cid().0, flushed.status().is_success()), (52, true));
    // Too few data are refused, and blocks need the exact length.
    io.send(command(nvm::RESERVATION_RELEASE, exclusive), 53, &[0; 7]);
    assert!(io.completion().status().is(ebof_nvme::Status::DATA_SGL_LENGTH_INVALID));
    io.send(BlockRange::new(0, 1).encode(nvm::WRITE, Nsid(1)), 54, &[0; 520]);
    assert!(io.completion().status().is(ebof_nvme::Status::DATA_SGL_LENGTH_INVALID));
    io.send(BlockRange::new(0, 1).encode(nvm::WRITE, Nsid(1)), 55, &[5; 512]);
    assert!(io.completion().status().is_success());
}

// @test wire.unusual-hosts
#[test]
fn truenas_python_client_connects() {
    let directory = tempfile::tempdir().unwrap();
    let (_target, address) = start(&directory.path().join("drive.img"), Some(64 << 20));
    create(&connect_as(address, BOB), 16 << 11);
    // CC with CSS 110b, and another host identifier with each Connect.
    let mut admin = Raw::initialized(address);
    admin.send(raw::connect(0, 32), 1, connect_data(0xffff).as_bytes());
    let connected = admin.completion();
    admin.send(Property::set(offset::CC, 0x0046_0061), 2, &[]);
    assert!(admin.completion().status().is_success());
    let mut io = Raw::initialized(address);
    let data = ConnectData { hostid: [0x42; 16], ..connect_data(connected.dw0.get() as u16) };
    io.send(raw::connect(1, 32), 1, data.as_bytes());
    assert!(io.completion().status().is_success());
    io.send(BlockRange::new(0, 1).encode(nvm::WRITE, Nsid(1)), 2, &[7; 512]);
    assert!(io.completion().status().is_success());
    // Registered with the identity of its Admin Queue.
    io.send(command(nvm::RESERVATION_REGISTER, 0), 3, &keys(0, 0xa, 16));
    assert!(io.completion().status().is_success());
    let mut report = command(nvm::RESERVATION_REPORT, 31).with_cdw(11, 1);
    report.dptr = SglDescriptor::encode(Sgl::Transport { length: 128 });
    io.send(report, 4, &[]);
    let page = io.pdu();
    assert_eq!(page[0], 7, "data");
    // Behind the PDU's header: 64 bytes of status, then the registrant: 16 bytes, then HOSTID.
    assert_eq!(page[24 + 64 + 16..24 + 64 + 32], [7; 16]);
}
