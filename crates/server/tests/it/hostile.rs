//! Hosts that misbehave on the wire, which affects only themselves. The host is bytes on a socket.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use ebof_initiator::{Controller, Options};
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Cqe, Nqn, Nsid, Sgl, Sqe, Status};
use ebof_server::{Settings, Target};
use zerocopy::{FromBytes, IntoBytes};

use crate::config::{NQN, one_subsystem};
use crate::raw::{Raw, connect, connect_data};

fn start() -> (Target, SocketAddr) {
    let config = one_subsystem(["mem:4Mi"]);
    let target = Target::start(config, Settings { threads: Some(1), pin: false, ..Settings::default() }).unwrap();
    let address = target.addresses()[0].1;
    (target, address)
}

/// Whether a well-behaved host is served.
fn others_are_served(address: SocketAddr) {
    let options = Options::new(address.ip().to_string(), address.port(), Nqn::parse(NQN).unwrap());
    let controller = Controller::connect(&options).unwrap();
    let namespace = controller.namespace(Nsid(1)).unwrap();
    namespace.write(0, &[0x5a; 4096], true).unwrap();
    let mut back = [0; 4096];
    namespace.read(0, &mut back).unwrap();
    assert_eq!(back, [0x5a; 4096]);
    controller.disconnect();
}

#[test]
fn a_command_before_connect_is_a_sequence_error_and_connect_still_works() {
    let (_target, address) = start();
    let mut raw = Raw::initialized(address);
    raw.send(Sqe::new(nvm::FLUSH).with_nsid(Nsid(1)), 9, &[]);
    let refused = raw.completion();
    assert!(refused.status().is(Status::COMMAND_SEQUENCE_ERROR), "{}", refused.status());
    assert_eq!(refused.cid().0, 9);
    others_are_served(address);
}

#[test]
fn a_command_before_the_transport_is_initialized_ends_the_connection_with_a_term_req() {
    let (_target, address) = start();
    let mut raw = Raw(TcpStream::connect(address).unwrap());
    raw.send(Sqe::new(nvm::FLUSH), 1, &[]);
    let term = raw.pdu();
    assert_eq!((term[0], term[8]), (3, 2), "a C2HTermReq with PDU Sequence Error");
    let mut rest = Vec::new();
    raw.0.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
}

#[test]
fn a_command_identifier_in_use_is_a_conflict() {
    let (_target, address) = start();
    let mut raw = Raw::admin(address);
    // Its data have been requested.
    let mut sqe = Sqe::new(admin::SET_FEATURES).with_cdw(10, 0x16);
    sqe.dptr = SglDescriptor::encode(Sgl::Transport { length: 512 });
    raw.send(sqe, 5, &[]);
    assert_eq!(raw.pdu()[0], 9, "an R2T");
    raw.send(Sqe::new(admin::KEEP_ALIVE), 5, &[]);
    let refused = raw.completion();
    assert!(refused.status().is(Status::CID_CONFLICT), "{}", refused.status());
    // An outstanding Asynchronous Event Request is withdrawn.
    raw.send(Sqe::new(admin::ASYNC_EVENT_REQUEST), 6, &[]);
    raw.send(Sqe::new(admin::KEEP_ALIVE), 6, &[]);
    assert!(raw.completion().status().is_success());
    others_are_served(address);
}

#[test]
fn an_aborted_event_request_is_completed_before_the_abort_is() {
    let (_target, address) = start();
    let mut raw = Raw::admin(address);
    raw.send(Sqe::new(admin::ASYNC_EVENT_REQUEST), 5, &[]);
    raw.send(Sqe::new(admin::ABORT).with_cdw(10, 5 << 16), 6, &[]);
    let first = raw.completion();
    let second = raw.completion();
    let (aborted, abort) = if first.cid().0 == 5 { (first, second) } else { (second, first) };
    assert!(aborted.status().is(Status::ABORT_REQUESTED), "{}", aborted.status());
    assert_eq!((abort.status(), abort.dw0.get() & 1), (Status::SUCCESS, 0));
}

#[test]
fn a_command_without_its_data_does_not_delay_others() {
    let (_target, address) = start();
    let mut raw = Raw::admin(address);
    // Set Features with data by R2T (host behaviour, 512 bytes) that are never sent.
    let mut sqe = Sqe::new(admin::SET_FEATURES).with_cdw(10, 0x16);
    sqe.dptr = SglDescriptor::encode(Sgl::Transport { length: 512 });
    raw.send(sqe, 5, &[]);
    assert_eq!(raw.pdu()[0], 9, "an R2T");
    raw.send(Sqe::new(admin::KEEP_ALIVE), 6, &[]);
    let alive = raw.completion();
    assert_eq!((alive.cid().0, alive.status()), (6, Status::SUCCESS));
    others_are_served(address);
}

// @test limits.unread-responses
#[test]
fn a_host_that_never_reads_responses_is_throttled() {
    let (_target, address) = start();
    let mut raw = Raw::admin(address);
    let mut sqe = Sqe::new(admin::IDENTIFY).with_cdw(10, 1);
    sqe.dptr = SglDescriptor::encode(Sgl::Transport { length: 4096 });
    raw.0.set_nonblocking(true).unwrap();
    let limit = 400_000; // more than a gigabyte of answers
    let mut sent = 0_u64;
    let mut capsule = Vec::new();
    let mut waits = 0;
    while sent < limit && waits < 100 {
        if capsule.is_empty() {
            capsule = Raw::capsule(sqe, (sent % 1000) as u16, &[]);
        }
        match raw.0.write(&capsule) {
            Ok(bytes) => {
                capsule.drain(..bytes);
                sent += u64::from(capsule.is_empty());
                waits = 0;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                waits += 1;
                let mut fds = [rustix::event::PollFd::new(&raw.0, rustix::event::PollFlags::OUT)];
                let patience = rustix::event::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
                rustix::event::poll(&mut fds, Some(&patience)).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(sent < limit, "nothing held the host back");
    others_are_served(address);
    raw.0.set_nonblocking(false).unwrap();
    for _ in 0..sent {
        assert!(raw.completion().status().is_success());
    }
}

#[test]
fn connect_works_with_its_data_by_r2t() {
    let (_target, address) = start();
    let mut raw = Raw::initialized(address);
    let mut sqe = connect(0, 32);
    sqe.dptr = SglDescriptor::encode(Sgl::Transport { length: 1024 });
    raw.send(sqe, 1, &[]);
    let r2t = raw.pdu();
    assert_eq!(r2t[0], 9, "an R2T");
    raw.send_data(&r2t, connect_data(0xffff).as_bytes());
    assert!(raw.completion().status().is_success());
}

#[test]
fn more_large_writes_than_buffers_complete_in_any_order_of_data() {
    const WRITES: usize = 80;
    let (_target, address) = start();
    let (_admin, controller) = Raw::admin_and_controller(address);
    let mut raw = Raw::initialized(address);
    raw.send(connect(1, 128), 1, connect_data(controller).as_bytes());
    assert!(raw.completion().status().is_success());
    for cid in 0..WRITES {
        let mut sqe = BlockRange::new(0, 2048).encode(nvm::WRITE, Nsid(1));
        sqe.dptr = SglDescriptor::encode(Sgl::Transport { length: 1 << 20 });
        raw.send(sqe, cid as u16, &[]);
    }
    let mut waiting = Vec::new();
    let mut asked = 0;
    let mut completed = 0;
    while completed < WRITES {
        let pdu = raw.pdu();
        match pdu[0] {
            9 => {
                asked += 1;
                waiting.push(pdu);
            }
            5 => {
                assert!(Cqe::read_from_bytes(&pdu[8..24]).unwrap().status().is_success());
                completed += 1;
            }
            other => panic!("PDU of type {other:02x}h"),
        }
        // The first data are sent only when the target has used nearly all buffers of the
        // connection.
        if asked >= 60 {
            for r2t in waiting.drain(..) {
                raw.send_data(&r2t, &[0x3c; 1 << 20]);
            }
        }
    }
    others_are_served(address);
}
