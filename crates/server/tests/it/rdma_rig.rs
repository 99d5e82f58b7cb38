//! A host over RDMA that sends exactly what the test says: over a simulated network, or over an
//! adapter.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebof_backend::Buffer;
use ebof_manage::{Config, Listen};
use ebof_nvme::connect::Property;
use ebof_nvme::log::ErrorInformation;
use ebof_nvme::property::{Cc, offset};
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{ControllerId, Cqe, Nsid, QueueId, Sgl, Sqe, Status};
use ebof_rdma::private_data::{ConnectReject, ConnectRequest, RejectStatus};
use ebof_server::{Environment, RdmaNetwork, Settings, Target};
use ebof_verbs::{Attributes, ConnectOptions, Event, Handshake, Network, QueuePair, WorkCompletion, simulated};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use zerocopy::{FromBytes, IntoBytes};

use crate::config::one_subsystem;
use crate::raw;

/// Bytes of memory that a queue's commands have for data.
pub(crate) const MEMORY_BYTES: usize = 1 << 20;

/// Where data of a command are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Data<'a> {
    None,
    InCapsule(&'a [u8]),
    /// The first bytes of the queue's memory.
    Memory(u32),
    /// The same, and the key may be invalidated.
    Invalidated(u32),
}

/// Where connections of a host come from.
pub(crate) trait Way {
    fn network(&self) -> Network;

    /// The host's own address, if it matters.
    fn from(&self) -> Option<IpAddr> {
        None
    }
}

impl Way for simulated::Network {
    fn network(&self) -> Network {
        self.clone().into()
    }
}

/// A response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Response {
    pub(crate) cqe: Cqe,
    pub(crate) invalidated: Option<u32>,
}

/// A queue of a host.
pub(crate) struct Queue {
    pub(crate) pair: QueuePair,
    rung: Receiver<()>,
    pub(crate) memory: Buffer,
    responses: VecDeque<Response>,
    is_connected: bool,
    /// What has ended the connection.
    ended: Option<String>,
}

/// Private data of a request for a queue.
pub(crate) fn request(queue: u16, entries: u16, controller: u16) -> [u8; ConnectRequest::BYTES] {
    let cntlid = ControllerId(controller);
    ConnectRequest { qid: QueueId(queue), host_receives: entries, entries: entries.into(), cntlid }.encode()
}

impl Queue {
    /// Sends a request, and waits for the answer of the connection manager.
    pub(crate) fn ask(way: &impl Way, to: SocketAddr, private_data: &[u8]) -> (Self, Event) {
        let mut queue = Self::silent(way, to, private_data, 64);
        let answer = queue.event();
        (queue, answer)
    }

    /// Sends a request and looks at nothing. There are so many receives.
    pub(crate) fn silent(way: &impl Way, to: SocketAddr, private_data: &[u8], receives: u32) -> Self {
        let mut connecting = way.network().connect(to, way.from(), &ConnectOptions::default()).unwrap();
        while !connecting.poll().unwrap() {
            let descriptor = connecting.descriptor().expect("a simulated network takes no time");
            assert!(is_readable(descriptor), "neither address nor route");
        }
        let attributes = Attributes {
            receives,
            receive_bytes: 16,
            sends: 128,
            send_bytes: 64 + (16 << 10),
            operations: 0,
            ..Attributes::default()
        };
        let mut pair = connecting.open(&attributes).unwrap();
        let (ring, rung) = channel();
        let ring = Mutex::new(ring);
        // The test may be over.
        pair.set_bell(Arc::new(move || _ = ring.lock().unwrap().send(())));
        let handshake =
            Handshake { private_data, responder_resources: 4, initiator_depth: 0, retry_count: 7, rnr_retry_count: 7 };
        pair.connect(&handshake).unwrap();
        let memory = Buffer::zeroed(MEMORY_BYTES);
        Self { pair, rung, memory, responses: VecDeque::new(), is_connected: false, ended: None }
    }

    /// A queue before its Connect.
    pub(crate) fn accepted(way: &impl Way, to: SocketAddr, queue: u16, entries: u16) -> Self {
        let (queue, answer) = Self::ask(way, to, &request(queue, entries, 0xffff));
        assert!(matches!(answer, Event::Established { .. }), "{answer:?}");
        queue
    }

    /// An Admin Queue with its controller, which is enabled.
    pub(crate) fn admin(way: &impl Way, to: SocketAddr) -> (Self, u16) {
        let mut queue = Self::accepted(way, to, 0, 32);
        let controller = queue.connect(0, 32, 0xffff);
        queue.done(Property::set(offset::CC, Cc::ENABLE.0), Data::None);
        (queue, controller)
    }

    /// An I/O queue.
    pub(crate) fn io(way: &impl Way, to: SocketAddr, controller: u16, id: u16) -> Self {
        let mut queue = Self::accepted(way, to, id, 64);
        queue.connect(id, 64, controller);
        queue
    }

    /// Sends Connect, with its data in the host's memory as Linux has them.
    pub(crate) fn connect(&mut self, id: u16, entries: u32, controller: u16) -> u16 {
        self.memory.as_mut_slice()[..1024].copy_from_slice(raw::connect_data(controller).as_bytes());
        self.done(raw::connect(id, entries), Data::Memory(1024)).cqe.dw0.get() as u16
    }

    /// A keyed descriptor of the first bytes of its memory.
    pub(crate) fn descriptor(&mut self, length: u32, invalidate: bool) -> SglDescriptor {
        let key = self.pair.remote_key(self.memory.region()).unwrap();
        let address = self.memory.region().address() as u64;
        SglDescriptor::encode(Sgl::Keyed { address, length, key, invalidate })
    }

    pub(crate) fn send(&mut self, mut sqe: Sqe, cid: u16, data: Data<'_>) {
        sqe.cid = cid.into();
        let mut behind: &[u8] = &[];
        match data {
            Data::None => {}
            Data::InCapsule(bytes) => {
                sqe.dptr = SglDescriptor::encode(Sgl::InCapsule { offset: 0, length: bytes.len() as u32 });
                behind = bytes;
            }
            Data::Memory(length) => sqe.dptr = self.descriptor(length, false),
            Data::Invalidated(length) => sqe.dptr = self.descriptor(length, true),
        }
        self.send_capsule(&[sqe.as_bytes(), behind].concat());
    }

    pub(crate) fn send_capsule(&mut self, capsule: &[u8]) {
        let slot = self.pair.take_send_slot().unwrap();
        self.pair.send_slot(slot)[..capsule.len()].copy_from_slice(capsule);
        self.pair.post_send(slot, capsule.len() as u32, None);
        self.pair.flush().unwrap();
    }

    pub(crate) fn event(&mut self) -> Event {
        loop {
            if let Some(event) = self.pair.poll_event().unwrap() {
                return event;
            }
            self.wait();
        }
    }

    /// Until there may be something.
    pub(crate) fn wait(&self) {
        let is_there = match self.pair.descriptor() {
            Some(descriptor) => is_readable(descriptor),
            None => self.rung.recv_timeout(PATIENCE).is_ok(),
        };
        assert!(is_there, "no answer");
    }

    /// Takes what is there; `false` if that is nothing.
    pub(crate) fn look(&mut self) -> bool {
        let mut found = false;
        while let Some(event) = self.pair.poll_event().unwrap() {
            found = true;
            if matches!(event, Event::Established { .. }) {
                self.is_connected = true;
            } else {
                self.ended.get_or_insert_with(|| format!("{event:?}"));
            }
        }
        while let Some(completion) = self.pair.poll().unwrap() {
            found = true;
            match completion {
                WorkCompletion::Received { slot, length, invalidated } => {
                    assert_eq!(length, 16, "a response capsule");
                    let cqe = Cqe::read_from_bytes(&self.pair.received(slot)[..16]).unwrap();
                    self.responses.push_back(Response { cqe, invalidated });
                    self.pair.post_receive(slot);
                }
                WorkCompletion::Sent { .. } => {}
                WorkCompletion::Failed { .. } => _ = self.ended.get_or_insert_with(|| format!("{completion:?}")),
                WorkCompletion::Done { .. } => panic!("nothing was read or written"),
            }
        }
        if self.ended.is_none() {
            self.pair.flush().unwrap();
        }
        found
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.is_connected
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Responses that are there.
    pub(crate) fn responses(&self) -> usize {
        self.responses.len()
    }

    /// A response that is there.
    pub(crate) fn take(&mut self) -> Option<Response> {
        self.responses.pop_front()
    }

    /// The next response; `None` when the connection has ended.
    pub(crate) fn response(&mut self) -> Option<Response> {
        loop {
            if let Some(response) = self.responses.pop_front() {
                return Some(response);
            }
            if self.ended.is_some() {
                return None;
            }
            self.pair.arm().unwrap();
            if !self.look() {
                self.wait();
            }
        }
    }

    pub(crate) fn call(&mut self, sqe: Sqe, data: Data<'_>) -> Response {
        self.send(sqe, 1, data);
        self.response().unwrap_or_else(|| panic!("the connection has ended: {:?}", self.ended))
    }

    pub(crate) fn done(&mut self, sqe: Sqe, data: Data<'_>) -> Response {
        let response = self.call(sqe, data);
        assert!(response.cqe.status().is_success(), "{}", response.cqe.status());
        response
    }
}

/// How long a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(60);

fn is_readable(descriptor: BorrowedFd<'_>) -> bool {
    let patience = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&patience)).unwrap() > 0
}

/// Why a request was rejected.
pub(crate) fn reject_of(answer: &Event) -> RejectStatus {
    match answer {
        Event::Rejected { reason: Event::BY_CONSUMER, private_data } => {
            ConnectReject::decode(private_data).unwrap().status
        }
        other => panic!("{other:?}"),
    }
}

/// Blocks of 512 bytes.
pub(crate) fn transfer(opcode: u8, block: u32, blocks: u32) -> Sqe {
    Sqe::new(opcode).with_nsid(Nsid(1)).with_cdw(10, block).with_cdw(12, blocks - 1)
}

/// Writes whose SGLs are wrong fail, and the controller's error log has each of them, as over TCP.
pub(crate) fn refuses_bad_sgls(admin: &mut Queue, io: &mut Queue) {
    const WRITE: u8 = 0x01;
    const GET_LOG_PAGE: u8 = 0x02;
    let rows = [
        (Sgl::InCapsule { offset: 8192, length: 4096 }, Status::SGL_OFFSET_INVALID),
        (Sgl::InCapsule { offset: 0, length: 4096 }, Status::SGL_OFFSET_INVALID),
        (Sgl::InCapsule { offset: u64::MAX, length: 1 }, Status::SGL_OFFSET_INVALID),
        (Sgl::InCapsule { offset: 0, length: u32::MAX }, Status::SGL_OFFSET_INVALID),
        (Sgl::LastSegment { offset: 0, length: 16 }, Status::SGL_OFFSET_INVALID),
        (Sgl::LastSegment { offset: 4096, length: 16 }, Status::SGL_OFFSET_INVALID),
        (Sgl::LastSegment { offset: 0, length: 0 }, Status::INVALID_SGL_SEGMENT),
        (Sgl::Transport { length: 4096 }, Status::SGL_TYPE_INVALID),
        (Sgl::None, Status::DATA_SGL_LENGTH_INVALID),
    ];
    for (count, (sgl, status)) in (1..).zip(rows) {
        let mut sqe = transfer(WRITE, 0, 8);
        sqe.dptr = SglDescriptor::encode(sgl);
        assert_eq!(io.call(sqe, Data::None).cqe.status(), status.dnr().more());
        admin.done(Sqe::new(GET_LOG_PAGE).with_cdw(10, 1 | 15 << 16), Data::Memory(64));
        let entry = ErrorInformation::read_from_bytes(&admin.memory.as_slice()[..64]).unwrap();
        assert_eq!((entry.ec.get(), entry.sqid.get(), entry.opc), (count, 1, WRITE));
        assert!(entry.status().is(status), "{}", entry.status());
    }
}

/// The configuration with a port over RDMA in place of the one over TCP.
pub(crate) fn over_rdma(mut config: Config) -> Config {
    let name = config.ports[0].name.clone();
    config.ports[0] = ebof_manage::config::Port::new(1, Listen::rdma([127, 0, 0, 1].into(), 4420));
    config.ports[0].name = name;
    config
}

pub(crate) fn settings(network: &simulated::Network) -> Settings {
    let rdma = RdmaNetwork::Other(network.clone().into());
    let environment = Environment { rdma, ..Environment::default() };
    Settings { threads: Some(2), pin: false, environment, ..Settings::default() }
}

/// A target with one drive and a port over RDMA.
pub(crate) fn target(drive: &str) -> (simulated::Network, Target, SocketAddr) {
    target_on(simulated::Network::new(), drive)
}

/// The same, on a network of its own kind.
pub(crate) fn target_on(network: simulated::Network, drive: &str) -> (simulated::Network, Target, SocketAddr) {
    let target = Target::start(over_rdma(one_subsystem([drive])), settings(&network)).unwrap();
    let address = target.addresses()[0].1;
    (network, target, address)
}
