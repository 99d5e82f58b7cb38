//! Cases for `cargo xtask instructions`: each `case_` function runs one step of the data path
//! [`BATCH`] times, and is called so often that the overhead does not matter. Data are not copied,
//! because that depends on the processor.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a program for measurements stops when something is not as it should be; all sizes are small"
)]

// Beside this file it would be a program of its own.
#[path = "instructions/rdma.rs"]
mod rdma;

use std::hint::black_box;

use ebof_backend::{Action, Device, Memory};
use ebof_fabrics::{IoTask, Queue, Step, Task, Transfer, TransferKind};
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Cid, Cqe, Nsid, QueueId, Sgl, Sqe, Status};
use ebof_tcp::{controller, host};
use ebof_testkit::{fuzz, tcp};

/// Commands per call: `xtask` divides by it.
const BATCH: u16 = 100;
/// Calls of each case.
const ROUNDS: usize = 20;

/// Data of one small command, bytes, and of a large one.
const SMALL: usize = 4096;
const LARGE: u32 = 128 << 10;

type Out = Vec<u8>;

fn main() {
    let (mut host, mut controller) = connected();
    let mut room = Room::default();
    let (_registry, mut queue) = fuzz::connected_queue();
    let mut rdma = rdma::Ends::new();
    let memory = Memory::new(64 << 20, 512, false);
    for block in 0..BATCH {
        memory.resident().unwrap().store(u64::from(block) * SMALL as u64, &[1; SMALL]).unwrap();
    }
    for _ in 0..ROUNDS {
        reads(&mut host, &mut controller, &mut room);
        small_writes(&mut host, &mut controller, &mut room);
        large_writes(&mut host, &mut controller, &mut room);
        rdma.round();
        case_fabrics_read(&mut queue, &mut commands(nvm::READ));
        case_fabrics_write(&mut queue, &mut commands(nvm::WRITE));
        case_memory_lend(&memory);
        case_memory_store(&memory, &[2; 512]);
    }
}

/// Output buffers, kept between rounds so that nothing is allocated.
#[derive(Default)]
struct Room {
    headers: Out,
    stream: Out,
    r2ts: Vec<host::R2t>,
}

impl Room {
    /// The sent headers of a batch, each followed by data.
    fn with_data(&mut self, bytes: usize) {
        self.stream.clear();
        for header in self.headers.chunks(self.headers.len() / usize::from(BATCH)) {
            self.stream.extend_from_slice(header);
            self.stream.resize(self.stream.len() + bytes, 0);
        }
        self.headers.clear();
    }
}

fn commands(opcode: u8) -> Vec<Sqe> {
    let command = |cid: u16| {
        let mut sqe = BlockRange::new(u64::from(cid) * 8, 8).encode(opcode, Nsid(1));
        sqe.cid = cid.into();
        sqe.dptr = SglDescriptor::encode(Sgl::Transport { length: SMALL as u32 });
        sqe
    };
    (0..BATCH).map(command).collect()
}

/// Both ends of a connection after its handshake.
fn connected() -> (host::Connection, controller::Connection) {
    let mut host = host::Connection::new(tcp::host_config());
    let mut controller = controller::Connection::new(tcp::controller_config());
    host.set_queue_entries(128);
    let mut request = Vec::new();
    let mut response = Vec::new();
    host.send_ic_request(&mut request);
    assert!(matches!(controller.poll_event(&mut &request[..]), Ok(Some(controller::Event::Initialized(_)))));
    controller.send_ic_response(&mut response);
    assert!(matches!(host.poll_event(&mut &response[..]), Ok(Some(host::Event::Initialized(_)))));
    controller.set_queue(QueueId(1), 128);
    // Without SQ flow control data may stand for the response.
    controller.set_sq_flow_disabled(true);
    (host, controller)
}

fn reads(host: &mut host::Connection, controller: &mut controller::Connection, room: &mut Room) {
    room.headers.clear();
    case_host_send_read(host, &mut commands(nvm::READ), &mut room.headers);
    assert_eq!(case_controller_receive_read(controller, &room.headers), BATCH);
    room.headers.clear();
    case_controller_send_data_header(controller, &mut room.headers);
    room.with_data(SMALL);
    assert_eq!(case_host_receive_data(host, &room.stream), BATCH);
}

fn small_writes(host: &mut host::Connection, controller: &mut controller::Connection, room: &mut Room) {
    for takes_at_once in [true, false] {
        room.headers.clear();
        case_host_send_in_capsule(host, &mut commands(nvm::WRITE), &[3; SMALL], &mut room.headers);
        room.with_data(SMALL);
        let taken = if takes_at_once {
            case_controller_take_in_capsule(controller, &room.stream)
        } else {
            case_controller_receive_in_capsule(controller, &room.stream)
        };
        assert_eq!(taken, BATCH);
        case_controller_send_response(controller, &mut room.headers);
        assert_eq!(case_host_receive_response(host, &room.headers), BATCH);
    }
}

fn large_writes(host: &mut host::Connection, controller: &mut controller::Connection, room: &mut Room) {
    room.headers.clear();
    case_host_send_write(host, &mut commands(nvm::WRITE), &mut room.headers);
    assert_eq!(case_controller_receive_write(controller, &room.headers), BATCH);
    room.headers.clear();
    case_controller_request_data(controller, &mut room.headers);
    room.r2ts.clear();
    case_host_receive_r2t(host, &room.headers, &mut room.r2ts);
    assert_eq!(room.r2ts.len(), usize::from(BATCH));
    room.headers.clear();
    case_host_send_data_header(host, &mut room.r2ts, &vec![4; LARGE as usize], &mut room.headers);
    room.with_data(LARGE as usize);
    assert_eq!(case_controller_receive_data(controller, &room.stream), BATCH);
    case_controller_send_response(controller, &mut room.headers);
    assert_eq!(case_host_receive_response(host, &room.headers), BATCH);
}

/// Keeps cases apart: the compiler merges functions with the same code.
#[inline(always)]
fn unmerged(line: u32) {
    black_box(line);
}

#[inline(never)]
fn case_host_send_read(host: &mut host::Connection, commands: &mut [Sqe], out: &mut Out) {
    unmerged(line!());
    for sqe in commands {
        black_box(host.send_command(sqe, host::CommandData::Read { length: SMALL as u32 }, out));
    }
}

#[inline(never)]
fn case_host_send_in_capsule(host: &mut host::Connection, commands: &mut [Sqe], payload: &[u8], out: &mut Out) {
    unmerged(line!());
    for sqe in commands {
        black_box(host.send_command(sqe, host::CommandData::InCapsule { payload }, out));
    }
}

#[inline(never)]
fn case_host_send_write(host: &mut host::Connection, commands: &mut [Sqe], out: &mut Out) {
    unmerged(line!());
    for sqe in commands {
        black_box(host.send_command(sqe, host::CommandData::Write { length: LARGE }, out));
    }
}

#[inline(never)]
fn case_host_send_data_header(host: &mut host::Connection, r2ts: &mut [host::R2t], payload: &[u8], out: &mut Out) {
    unmerged(line!());
    for r2t in r2ts {
        black_box(host.send_h2c_data(r2t, payload, out));
    }
}

#[inline(never)]
fn case_host_receive_data(host: &mut host::Connection, stream: &[u8]) -> u16 {
    unmerged(line!());
    host_receive(host, stream, |_| {})
}

#[inline(never)]
fn case_host_receive_response(host: &mut host::Connection, stream: &[u8]) -> u16 {
    unmerged(line!());
    host_receive(host, stream, |_| {})
}

#[inline(never)]
fn case_host_receive_r2t(host: &mut host::Connection, stream: &[u8], r2ts: &mut Vec<host::R2t>) {
    unmerged(line!());
    host_receive(host, stream, |r2t| r2ts.push(r2t));
}

/// Receives everything. Returns the number of completed commands.
#[inline(always)]
fn host_receive(host: &mut host::Connection, mut input: &[u8], mut on_r2t: impl FnMut(host::R2t)) -> u16 {
    let mut completed = 0;
    loop {
        let wanted = host.data_wanted().min(input.len());
        if wanted > 0 {
            host.data_received(&input[..wanted]);
            input = &input[wanted..];
        }
        match host.poll_event(&mut input) {
            Ok(Some(host::Event::Completion { cqe, .. })) => {
                black_box(cqe);
                completed += 1;
            }
            Ok(Some(host::Event::R2t(r2t))) => on_r2t(r2t),
            Ok(Some(event)) => {
                black_box(event);
            }
            Ok(None) => return completed,
            Err(error) => panic!("{error}"),
        }
    }
}

#[inline(never)]
fn case_controller_receive_read(controller: &mut controller::Connection, stream: &[u8]) -> u16 {
    unmerged(line!());
    controller_receive(controller, stream, false)
}

#[inline(never)]
fn case_controller_receive_write(controller: &mut controller::Connection, stream: &[u8]) -> u16 {
    unmerged(line!());
    controller_receive(controller, stream, false)
}

#[inline(never)]
fn case_controller_take_in_capsule(controller: &mut controller::Connection, stream: &[u8]) -> u16 {
    unmerged(line!());
    controller_receive(controller, stream, true)
}

#[inline(never)]
fn case_controller_receive_in_capsule(controller: &mut controller::Connection, stream: &[u8]) -> u16 {
    unmerged(line!());
    controller_receive(controller, stream, false)
}

#[inline(never)]
fn case_controller_receive_data(controller: &mut controller::Connection, stream: &[u8]) -> u16 {
    unmerged(line!());
    controller_receive(controller, stream, false)
}

/// Receives everything, in-capsule data at once if `at_once`. Returns the number of commands, or
/// ends of data.
#[inline(always)]
fn controller_receive(controller: &mut controller::Connection, mut input: &[u8], at_once: bool) -> u16 {
    use controller::Event;
    let mut came = 0;
    loop {
        let wanted = controller.data_wanted().min(input.len());
        if wanted > 0 {
            controller.data_received(&input[..wanted]);
            input = &input[wanted..];
        }
        match controller.poll_event(&mut input) {
            Ok(Some(Event::Command { sqe, in_capsule })) => {
                black_box(sqe);
                // Data that are received in pieces are counted at their end.
                came += u16::from(in_capsule == 0 || at_once);
                if at_once {
                    black_box(controller.take_in_capsule(&mut input).unwrap());
                }
            }
            Ok(Some(Event::DataEnd { complete, .. })) => came += u16::from(complete),
            Ok(Some(event)) => {
                black_box(event);
            }
            Ok(None) => return came,
            Err(error) => panic!("{error}"),
        }
    }
}

#[inline(never)]
fn case_controller_send_data_header(controller: &mut controller::Connection, out: &mut Out) {
    unmerged(line!());
    for cid in 0..BATCH {
        let cqe = Cqe::new(Cid(cid), Status::SUCCESS);
        let success = controller.success_allowed(&cqe);
        controller.send_data_header(Cid(cid), 0, SMALL as u32, true, success, out);
    }
}

#[inline(never)]
fn case_controller_send_response(controller: &mut controller::Connection, out: &mut Out) {
    unmerged(line!());
    for cid in 0..BATCH {
        controller.send_response(&Cqe::new(Cid(cid), Status::SUCCESS), out);
    }
}

#[inline(never)]
fn case_controller_request_data(controller: &mut controller::Connection, out: &mut Out) {
    unmerged(line!());
    for cid in 0..BATCH {
        controller.request_data(Cid(cid), LARGE, out).unwrap();
    }
}

#[inline(never)]
fn case_fabrics_read(queue: &mut Queue, commands: &mut [Sqe]) {
    unmerged(line!());
    for sqe in commands {
        let Step::Execute(executing, task) = queue.submit(sqe, 1000) else { panic!("not executed") };
        let Task::Io(IoTask::Transfer(Transfer { kind: TransferKind::Read, extent, .. })) = task else {
            panic!("not a read")
        };
        black_box(extent);
        black_box(queue.complete(executing, Status::SUCCESS));
    }
}

#[inline(never)]
fn case_fabrics_write(queue: &mut Queue, commands: &mut [Sqe]) {
    unmerged(line!());
    for sqe in commands {
        let Step::Execute(executing, task) = queue.submit(sqe, 1000) else { panic!("not executed") };
        let Task::Io(IoTask::Transfer(Transfer { kind: TransferKind::Write, extent, .. })) = task else {
            panic!("not a write")
        };
        black_box(extent);
        black_box(queue.complete(executing, Status::SUCCESS));
    }
}

#[inline(never)]
fn case_memory_lend(memory: &Memory) {
    unmerged(line!());
    for block in 0..u64::from(BATCH) {
        memory.geometry().check_transfer(Action::Read, block * SMALL as u64, SMALL as u64).unwrap();
        let lent = memory.resident().unwrap().lend(block * SMALL as u64, SMALL, true).unwrap();
        black_box(lent.as_ref().len());
    }
}

#[inline(never)]
fn case_memory_store(memory: &Memory, block: &[u8]) {
    unmerged(line!());
    for place in 0..u64::from(BATCH) {
        memory.resident().unwrap().store(place * SMALL as u64, block).unwrap();
    }
}
