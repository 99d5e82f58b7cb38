//! The target over the in-memory transport: the same subsystems, without a socket.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebof_loopback::{Attachment, Capsule, Closed, CompletionMessage, ConnectError, HostEnd, Port, SubmitError};
use ebof_manage::api::{Peer, RefusalReason};
use ebof_nvme::connect::Property;
use ebof_nvme::property::{Cc, offset};
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{ControllerId, HostId, Nqn, Nsid, QueueId, Sgl, Sqe, Status};
use ebof_server::{Settings, Target};
use zerocopy::IntoBytes;

use crate::config::{NQN, one_subsystem};
use crate::raw;

const READ: u8 = 0x02;
const WRITE: u8 = 0x01;
const COMPARE: u8 = 0x05;
const IDENTIFY: u8 = 0x06;

/// A queue of a host that waits for completions.
struct Queue {
    end: HostEnd,
    rung: Receiver<()>,
    arrived: VecDeque<CompletionMessage>,
}

impl Queue {
    fn new(port: &Port, entries: usize) -> Self {
        let (ring, rung) = channel();
        let ring = Mutex::new(ring);
        let bell = Arc::new(move || _ = ring.lock().unwrap().send(()));
        Self { end: port.connect(entries, bell).unwrap(), rung, arrived: VecDeque::new() }
    }

    fn attached(port: &Port, attachment: Attachment) -> Self {
        let (ring, rung) = channel();
        let ring = Mutex::new(ring);
        let bell = Arc::new(move || _ = ring.lock().unwrap().send(()));
        Self { end: port.attach(attachment, 64, bell).unwrap(), rung, arrived: VecDeque::new() }
    }

    fn send(&mut self, mut sqe: Sqe, cid: u16, length: usize, data: Option<Vec<u8>>) {
        sqe.cid = cid.into();
        if length > 0 {
            sqe.dptr = SglDescriptor::encode(Sgl::Transport { length: length as u32 });
        }
        self.end.submit(Capsule { sqe, data: data.map(Arc::from) }).unwrap();
    }

    fn completion(&mut self) -> Result<CompletionMessage, Closed> {
        loop {
            if let Some(completion) = self.arrived.pop_front() {
                return Ok(completion);
            }
            match self.end.poll()? {
                Some(completion) => self.arrived.push_back(completion),
                None => self.rung.recv_timeout(Duration::from_secs(20)).expect("an answer"),
            }
        }
    }

    fn call(&mut self, sqe: Sqe, length: usize, data: Option<Vec<u8>>) -> CompletionMessage {
        self.send(sqe, 1, length, data);
        self.completion().unwrap()
    }

    fn done(&mut self, sqe: Sqe, length: usize, data: Option<Vec<u8>>) -> CompletionMessage {
        let completion = self.call(sqe, length, data);
        assert!(completion.cqe.status().is_success(), "{}", completion.cqe.status());
        completion
    }

    /// An Admin Queue with its controller, which is enabled.
    fn admin(port: &Port) -> (Self, u16) {
        let mut queue = Self::new(port, 32);
        let data = raw::connect_data(0xffff);
        let connected = queue.done(raw::connect(0, 32), 1024, Some(data.as_bytes().to_vec()));
        queue.done(Property::set(offset::CC, Cc::ENABLE.0), 0, None);
        (queue, connected.cqe.dw0.get() as u16)
    }

    /// An I/O queue. The target may not have noticed yet that the earlier one with this identifier
    /// has ended.
    fn io(port: &Port, controller: u16, id: u16) -> Self {
        let data = raw::connect_data(controller);
        loop {
            let mut queue = Self::new(port, 64);
            let connected = queue.call(raw::connect(id, 64), 1024, Some(data.as_bytes().to_vec()));
            match connected.cqe.status() {
                status if status.is_success() => return queue,
                status => assert!(status.is(Status::COMMAND_SEQUENCE_ERROR), "{status}"),
            }
        }
    }
}

fn target(drive: &str) -> (Target, Port) {
    let config = one_subsystem([drive]);
    let name = config.ports[0].name.clone();
    let target = Target::start(config, Settings { threads: Some(2), pin: false, ..Settings::default() }).unwrap();
    let port = target.loopback(&name).unwrap();
    (target, port)
}

/// Blocks of 512 bytes.
fn transfer(opcode: u8, block: u32, blocks: u32) -> Sqe {
    Sqe::new(opcode).with_nsid(Nsid(1)).with_cdw(10, block).with_cdw(12, blocks - 1)
}

#[test]
fn a_host_in_the_same_process_reads_what_it_has_written() {
    let (target, port) = target("mem:16M");
    let (mut admin, controller) = Queue::admin(&port);
    let identified = admin.done(Sqe::new(IDENTIFY).with_cdw(10, 1), 4096, None);
    assert_eq!(identified.data.len(), 4096);
    let mut queue = Queue::io(&port, controller, 1);
    let data: Vec<u8> = (0..64 << 10).map(|at: u32| (at / 512) as u8).collect();
    queue.done(transfer(WRITE, 8, 128), data.len(), Some(data.clone()));
    let read = queue.done(transfer(READ, 8, 128), data.len(), None);
    assert!(read.data == data, "what is read is not what was written");
    queue.done(transfer(COMPARE, 8, 128), data.len(), Some(data.clone()));
    let differs = queue.call(transfer(COMPARE, 9, 128), data.len(), Some(data));
    assert!(differs.cqe.status().is(Status::COMPARE_FAILURE));
    let status = ebof_manage::api::Target::status(&target);
    assert_eq!((status.connections, status.controllers.len()), (2, 1));
}

#[test]
fn each_of_many_outstanding_commands_completes_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let (_target, port) = target(&format!("{}:16M", path.display()));
    let (_admin, controller) = Queue::admin(&port);
    let mut queue = Queue::io(&port, controller, 1);
    for round in 0..20_u16 {
        for cid in 0..64 {
            let block = u32::from(cid) * 8;
            let byte = (round + cid) as u8;
            if cid % 2 == 0 {
                queue.send(transfer(WRITE, block, 8), cid, 4096, Some(vec![byte; 4096]));
            } else {
                queue.send(transfer(READ, block, 8), cid, 4096, None);
            }
        }
        let full = Capsule { sqe: transfer(READ, 0, 8), data: None };
        assert!(matches!(queue.end.submit(full), Err(SubmitError::Full(_))));
        let mut answered: Vec<u16> = (0..64)
            .map(|_| {
                let completion = queue.completion().unwrap();
                assert!(completion.cqe.status().is_success(), "{}", completion.cqe.status());
                completion.cqe.cid().0
            })
            .collect();
        answered.sort_unstable();
        assert!(answered.into_iter().eq(0..64));
    }
}

#[test]
fn a_command_with_too_few_data_changes_nothing() {
    let (_target, port) = target("mem:16M");
    let (_admin, controller) = Queue::admin(&port);
    let mut queue = Queue::io(&port, controller, 1);
    queue.done(transfer(WRITE, 0, 8), 4096, Some(vec![1; 4096]));
    for data in [None, Some(vec![2; 512])] {
        let short = queue.call(transfer(WRITE, 0, 8), 4096, data);
        assert!(short.cqe.status().is(Status::TRANSIENT_TRANSPORT_ERROR));
    }
    let read = queue.done(transfer(READ, 0, 8), 4096, None);
    assert_eq!(read.data, [1; 4096]);
}

#[test]
fn each_end_is_notified_when_the_other_ends() {
    let (target, port) = target("mem:16M");
    let (mut admin, controller) = Queue::admin(&port);
    let queue = Queue::io(&port, controller, 1);
    drop(queue);
    // The controller has one queue less, and the identifier is free again.
    let mut again = Queue::io(&port, controller, 1);
    assert!(again.end.breaker().sever());
    assert_eq!(again.completion().unwrap_err(), Closed);
    let mut again = Queue::io(&port, controller, 1);
    again.done(transfer(READ, 0, 8), 4096, None);
    target.stop(Duration::from_secs(10));
    assert_eq!(again.completion().unwrap_err(), Closed);
    assert_eq!(admin.completion().unwrap_err(), Closed);
    assert_eq!(port.connect(2, Arc::new(|| {})).unwrap_err(), ConnectError::NotListening);
}

#[test]
fn a_host_is_attached_without_a_connect() {
    let (target, port) = target("mem:16M");
    let attachment = |queue, controller, host: &str| Attachment {
        queue: QueueId(queue),
        controller,
        subsystem: Nqn::parse(NQN).unwrap(),
        host: Nqn::parse(host).unwrap(),
        host_id: HostId([9; 16]),
    };
    let direct = "nqn.2014-08.org.example:direct";
    let mut admin = Queue::attached(&port, attachment(0, ControllerId::DYNAMIC, direct));
    admin.done(Property::set(offset::CC, Cc::ENABLE.0), 0, None);
    let identified = admin.done(Sqe::new(IDENTIFY).with_cdw(10, 1), 4096, None);
    let controller = ControllerId(u16::from_le_bytes([identified.data[78], identified.data[79]]));
    // Set Features, Number of Queues.
    admin.done(Sqe::new(0x09).with_cdw(10, 0x07).with_cdw(11, 0), 0, None);
    let mut queue = Queue::attached(&port, attachment(1, controller, direct));
    queue.done(transfer(WRITE, 0, 8), 4096, Some(vec![4; 4096]));
    assert_eq!(queue.done(transfer(READ, 0, 8), 4096, None).data, [4; 4096]);
    let status = ebof_manage::api::Target::status(&target);
    assert_eq!((status.controllers.len(), status.controllers[0].host_nqn.as_str()), (1, direct));
    assert_eq!(status.controllers[0].peer.to_string(), "this process");

    // A host that is refused sees the end of the connection; the connection log says why.
    let mut other = Queue::attached(&port, attachment(1, controller, "nqn.2014-08.org.example:other"));
    assert_eq!(other.completion().unwrap_err(), Closed);
    let refused = ebof_manage::api::Target::refused(&target);
    let refused = refused.last().unwrap();
    assert_eq!((refused.reason, refused.peer), (RefusalReason::ControllerOfOtherHost, Peer::SameProcess));
}
