//! Reservations of a drive's namespace and other commands: those of another host that are
//! outstanding when it is preempted, and those that erase.

use std::sync::mpsc;
use std::time::Duration;

use ebof_initiator::{AdminData, Controller, QueuePair};
use ebof_nvme::io::BlockRange;
use ebof_nvme::media::{Format, Sanitize, SanitizeAction};
use ebof_nvme::opcode::nvm;
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Nsid, Sgl, Sqe, Status};
use zerocopy::IntoBytes;

use crate::drive_rig::{self, ALICE, BOB, admin, connect, connect_as, create, errors, start, status};
use crate::raw::{self, Raw, connect_data};

const BLOCKS: u64 = 16 << 11;
/// Exclusive Access.
const EXCLUSIVE: u32 = 2 << 8;

fn keys(first: u64, second: u64) -> Vec<u8> {
    [first.to_le_bytes(), second.to_le_bytes()].concat()
}

/// A reservation command to namespace 1.
fn command(opcode: u8, cdw10: u32) -> Sqe {
    Sqe::new(opcode).with_nsid(Nsid(1)).with_cdw(10, cdw10)
}

fn reserve(queue: &mut QueuePair<Vec<u8>>, opcode: u8, cdw10: u32, data: &[u8]) -> Status {
    queue.execute(command(opcode, cdw10), AdminData::FromHost(data)).unwrap().status()
}

/// A registrant with this key.
fn registrant(host: &Controller, key: u64) -> QueuePair<Vec<u8>> {
    let mut queue = host.queue_pair().unwrap();
    assert!(reserve(&mut queue, nvm::RESERVATION_REGISTER, 0, &keys(0, key)).is_success());
    queue
}

#[test]
fn formatting_and_sanitizing_a_namespace_reserved_by_another_host_is_a_conflict() {
    let directory = tempfile::tempdir().unwrap();
    let (_target, address) = start(&directory.path().join("drive.img"), Some(64 << 20));
    let alice = connect_as(address, ALICE);
    let bob = connect_as(address, BOB);
    create(&alice, BLOCKS);
    let namespace = drive_rig::wait("the namespace", || bob.namespace(Nsid(1)).ok());
    namespace.write(0, &[7; 4096], false).unwrap();
    let mut queue = registrant(&bob, 0xb0b);
    assert!(reserve(&mut queue, nvm::RESERVATION_ACQUIRE, EXCLUSIVE, &keys(0xb0b, 0)).is_success());
    let sanitize = Sanitize::new(SanitizeAction::BlockErase).encode();
    for (what, sqe) in [
        ("format", Format::new(1).encode(Nsid(1))),
        ("format of all", Format::new(1).encode(Nsid::ALL)),
        ("sanitize", sanitize),
    ] {
        let refused = admin(&alice, sqe);
        assert_eq!(refused, Status::RESERVATION_CONFLICT.dnr().more(), "{what}");
        let entry = errors(&alice, 1)[0];
        assert_eq!((entry.status(), entry.opc, entry.nsid.get()), (refused, sqe.opcode, sqe.nsid().0), "{what}");
    }
    let mut data = [0; 4096];
    namespace.read(0, &mut data).unwrap();
    assert_eq!(data, [7; 4096], "nothing has happened");
    // The holder may.
    assert!(admin(&bob, Format::new(0).encode(Nsid(1))).is_success());
    assert!(reserve(&mut queue, nvm::RESERVATION_RELEASE, EXCLUSIVE, &0xb0b_u64.to_le_bytes()).is_success());
    assert!(admin(&alice, sanitize).is_success());
}

/// The I/O queue of a host that has sent a write, but not the data that the target requests.
fn slow_writer(address: std::net::SocketAddr) -> (Raw, Raw, Vec<u8>) {
    let (admin, controller) = Raw::admin_and_controller(address);
    let mut io = Raw::initialized(address);
    io.send(raw::connect(1, 32), 1, connect_data(controller).as_bytes());
    assert!(io.completion().status().is_success());
    io.send(command(nvm::RESERVATION_REGISTER, 0), 2, &keys(0, 0xa11ce));
    assert!(io.completion().status().is_success());
    io.send(command(nvm::RESERVATION_ACQUIRE, EXCLUSIVE), 3, &keys(0xa11ce, 0));
    assert!(io.completion().status().is_success());
    let mut write = BlockRange::new(0, 128).encode(nvm::WRITE, Nsid(1));
    write.dptr = SglDescriptor::encode(Sgl::Transport { length: 128 * 512 });
    io.send(write, 4, &[]);
    let r2t = io.pdu();
    assert_eq!(r2t[0], 9, "an R2T");
    (admin, io, r2t)
}

#[test]
fn preempt_and_abort_ends_outstanding_commands_of_the_other_host() {
    let directory = tempfile::tempdir().unwrap();
    let (_target, address) = start(&directory.path().join("drive.img"), Some(64 << 20));
    let bob = connect_as(address, BOB);
    create(&bob, BLOCKS);
    let namespace = bob.namespace(Nsid(1)).unwrap();
    namespace.write(0, &[7; 128 * 512], false).unwrap();
    let (_admin, mut io, r2t) = slow_writer(address);
    let mut queue = registrant(&bob, 0xb0b);
    assert!(status(namespace.write(0, &[8; 512], false)).is(Status::RESERVATION_CONFLICT));
    // RACQA 2h. It does not wait for data that never arrive.
    let (done, finished) = mpsc::channel();
    let preempting = std::thread::spawn(move || {
        let answer = reserve(&mut queue, nvm::RESERVATION_ACQUIRE, EXCLUSIVE | 2, &keys(0xb0b, 0xa11ce));
        done.send(answer).unwrap();
        queue
    });
    let answer = finished.recv_timeout(Duration::from_secs(20)).expect("it ends");
    assert!(answer.is_success(), "{answer}");
    let mut queue = preempting.join().unwrap();
    // Data that the host sends now are ignored, and its command has completed.
    io.send_data(&r2t, &[9; 128 * 512]);
    let ended = io.completion();
    assert_eq!(ended.cid().0, 4);
    assert!(ended.status().is(Status::PREEMPT_ABORT), "{}", ended.status());
    let mut data = vec![0; 128 * 512];
    namespace.read(0, &mut data).unwrap();
    assert!(data == vec![7; 128 * 512], "nothing of it was written");
    assert!(namespace.write(0, &[8; 512], false).is_ok());
    // The other host is not registered any more.
    io.send(BlockRange::new(0, 1).encode(nvm::VERIFY, Nsid(1)), 5, &[]);
    let refused = io.completion();
    assert!(refused.status().is(Status::RESERVATION_CONFLICT), "{}", refused.status());
    io.send(command(nvm::RESERVATION_ACQUIRE, EXCLUSIVE), 6, &keys(0xa11ce, 0));
    assert!(io.completion().status().is(Status::RESERVATION_CONFLICT));
    assert!(reserve(&mut queue, nvm::RESERVATION_RELEASE, EXCLUSIVE, &0xb0b_u64.to_le_bytes()).is_success());
    drop(connect(address));
}
