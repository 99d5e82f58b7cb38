//! The cases of NVMe/RDMA: what both ends of a connection do for a command, without the adapter.

use std::hint::black_box;

use ebof_nvme::opcode::nvm;
use ebof_nvme::{Cid, ControllerId, Cqe, QueueId, Sqe, Status};
use ebof_rdma::controller::{Accepted, Connection, Location, SendEntry};
use ebof_rdma::host::{self, CommandData};
use ebof_rdma::{Remote, Segments, capsule};
use ebof_testkit::rdma::LIMITS;

use crate::{BATCH, SMALL, commands, unmerged};

/// Data in a capsule, bytes: copying more would count the C library.
const IN_CAPSULE: usize = 64;

/// Both ends of a connection.
pub(crate) struct Ends {
    host: host::Connection,
    controller: Connection,
    capsules: Vec<Vec<u8>>,
    received: Vec<Option<Segments>>,
    responses: Vec<[u8; 16]>,
}

impl Ends {
    pub(crate) fn new() -> Self {
        let entries = 128;
        let mut host =
            host::Connection::new(host::ConnectionConfig { queue: QueueId(1), entries, cntlid: ControllerId(0) });
        let accepted = Connection::accept(&host.request(), &LIMITS, u8::MAX).unwrap();
        let Accepted { mut connection, reply, .. } = accepted;
        host.on_accepted(&reply).unwrap();
        connection.on_established();
        let room = usize::from(BATCH);
        Self {
            host,
            controller: connection,
            capsules: vec![vec![0; 64 + IN_CAPSULE]; room],
            received: Vec::with_capacity(room),
            responses: Vec::with_capacity(room),
        }
    }

    pub(crate) fn round(&mut self) {
        let Self { host, controller, capsules, received, responses } = self;
        case_rdma_host_send_keyed(host, &mut commands(nvm::READ), capsules);
        case_rdma_controller_receive_keyed(controller, capsules, received);
        case_rdma_controller_send_data(controller, received, responses);
        case_rdma_host_receive_response(host, responses);

        case_rdma_host_send_in_capsule(host, &mut commands(nvm::WRITE), capsules);
        case_rdma_controller_receive_in_capsule(controller, capsules, received);
        case_rdma_controller_send_response(controller, received, responses);
        case_rdma_host_receive_response(host, responses);

        case_rdma_host_send_keyed(host, &mut commands(nvm::WRITE), capsules);
        case_rdma_controller_receive_keyed(controller, capsules, received);
        case_rdma_controller_fetch(controller, received);
        case_rdma_controller_send_response(controller, received, responses);
        case_rdma_host_receive_response(host, responses);
    }
}

#[inline(never)]
fn case_rdma_host_send_keyed(host: &mut host::Connection, commands: &mut [Sqe], capsules: &mut [Vec<u8>]) {
    unmerged(line!());
    for (sqe, out) in commands.iter_mut().zip(capsules) {
        let remote = Remote { address: 0x7000_0000, key: 5 };
        black_box(host.send_command(sqe, CommandData::Keyed { remote, length: SMALL as u32, invalidate: false }, out));
    }
}

#[inline(never)]
fn case_rdma_host_send_in_capsule(host: &mut host::Connection, commands: &mut [Sqe], capsules: &mut [Vec<u8>]) {
    unmerged(line!());
    for (sqe, out) in commands.iter_mut().zip(capsules) {
        black_box(host.send_command(sqe, CommandData::InCapsule { payload: &[3; IN_CAPSULE] }, out));
    }
}

/// With the completion of the command's message.
#[inline(never)]
fn case_rdma_host_receive_response(host: &mut host::Connection, responses: &[[u8; 16]]) {
    unmerged(line!());
    for (cid, response) in (0..).zip(responses) {
        assert!(host.on_sent(Cid(cid)).is_none());
        black_box(host.receive(response, None).unwrap().unwrap());
    }
}

#[inline(never)]
fn case_rdma_controller_receive_keyed(
    controller: &mut Connection,
    capsules: &[Vec<u8>],
    received: &mut Vec<Option<Segments>>,
) {
    unmerged(line!());
    received.clear();
    for capsule in capsules {
        let command = controller.receive(&capsule[..64]).unwrap();
        let Ok(Location::Remote(segments)) = command.data else { panic!("no keyed data") };
        black_box(command.sqe);
        received.push(Some(segments));
    }
}

#[inline(never)]
fn case_rdma_controller_receive_in_capsule(
    controller: &mut Connection,
    capsules: &[Vec<u8>],
    received: &mut Vec<Option<Segments>>,
) {
    unmerged(line!());
    received.clear();
    for capsule in capsules {
        let command = controller.receive(capsule).unwrap();
        let Ok(Location::InCapsule { .. }) = command.data else { panic!("no data in the capsule") };
        black_box(command.sqe);
        received.push(None);
    }
}

/// From the response to a read to its end.
#[inline(never)]
fn case_rdma_controller_send_data(
    controller: &mut Connection,
    received: &[Option<Segments>],
    responses: &mut Vec<[u8; 16]>,
) {
    unmerged(line!());
    for (cid, segments) in (0..).zip(received) {
        let cqe = Cqe::new(Cid(cid), Status::SUCCESS);
        controller.respond_with_data(cid.into(), segments.unwrap(), SMALL as u32, &cqe);
    }
    post(controller, responses);
}

/// From the response to a write to its end.
#[inline(never)]
fn case_rdma_controller_send_response(
    controller: &mut Connection,
    received: &[Option<Segments>],
    responses: &mut Vec<[u8; 16]>,
) {
    unmerged(line!());
    for (cid, segments) in (0..).zip(received) {
        controller.respond(&Cqe::new(Cid(cid), Status::SUCCESS), *segments);
    }
    post(controller, responses);
}

#[inline(always)]
fn post(controller: &mut Connection, responses: &mut Vec<[u8; 16]>) {
    responses.clear();
    while let Some(work) = controller.poll_work(256) {
        match work {
            SendEntry::Send { cqe, .. } => responses.push(capsule::encode_response(&cqe)),
            work => _ = black_box(work),
        }
    }
    for _ in 0..responses.len() {
        controller.on_sent();
    }
}

#[inline(never)]
fn case_rdma_controller_fetch(controller: &mut Connection, received: &[Option<Segments>]) {
    unmerged(line!());
    for (tag, segments) in (0..).zip(received) {
        controller.read(tag, segments.unwrap(), SMALL as u32);
        while let Some(work) = controller.poll_work(256) {
            black_box(work);
        }
        black_box(controller.on_read_done(tag).unwrap());
    }
}
