//! The scripted peer over a simulated RDMA network.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use ebof_initiator::{Options, Transport};
use ebof_nvme::{Cid, Cqe, Sgl, Sqe};
use ebof_rdma::capsule::encode_response;
use ebof_rdma::controller::{Connection, Limits, Location, SendEntry};
use ebof_rdma::private_data::{ConnectReject, RejectStatus};
use ebof_rdma::{Remote, Segments};
use ebof_region::Buffer;
use ebof_verbs::simulated::{self, Network};
use ebof_verbs::{
    Attributes, DeviceAttributes, Event, Handshake, HeldMemory, Listener, ListenerEvent, QueuePair, Request,
    WorkCompletion,
};

use crate::peer::{Answer, Executor, Shared, State, options};

/// What a test has the target do with requests.
#[derive(Clone, Debug, Default)]
pub struct Manners {
    /// Reject with this status.
    pub reject: Option<u16>,
    /// Reject, or accept, with these private data.
    pub reject_with: Option<Vec<u8>>,
    pub accept_with: Option<Vec<u8>>,
    /// Leave requests alone.
    pub silent: bool,
    /// Offer this many receives for commands.
    pub receives: Option<u16>,
}

pub struct RdmaPeer {
    pub network: Network,
    pub address: SocketAddr,
    pub shared: Arc<Shared>,
    pub manners: Arc<std::sync::Mutex<Manners>>,
    pub target: Target,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What the target has seen of the host.
#[derive(Clone, Debug, Default)]
pub struct Target(Arc<std::sync::Mutex<Vec<Seen>>>);

/// The queue of a command with data, the way that they went, and how many bytes.
type Seen = (u16, &'static str, u32);

impl Target {
    /// I/O commands with data of `length` bytes by the way that they went: "capsule", "keyed", or
    /// "own key" if that is to be invalidated.
    pub fn ways(&self, length: u32) -> Vec<&'static str> {
        self.0
            .lock()
            .unwrap()
            .iter()
            .filter(|(queue, _, bytes)| *queue > 0 && *bytes == length)
            .map(|seen| seen.1)
            .collect()
    }

    fn saw(&self, queue: u16, way: &'static str, length: u32) {
        self.0.lock().unwrap().push((queue, way, length));
    }
}

impl RdmaPeer {
    /// A target with a thread of its own.
    pub fn new() -> Self {
        Self::with_device(simulated::device())
    }

    /// A target in a network whose devices are like this.
    pub fn with_device(device: DeviceAttributes) -> Self {
        let network = Network::with_device(device);
        let address = SocketAddr::from(([192, 0, 2, 1], 4420));
        let shared = Shared::new();
        let manners = Arc::default();
        let target = Target::default();
        let stop = Arc::new(AtomicBool::new(false));
        let mut server = Server::new(&network, address, Arc::clone(&shared), Arc::clone(&manners), target.clone());
        let thread = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                while !stop.load(Ordering::Acquire) {
                    if !server.turn() {
                        std::thread::sleep(Duration::from_micros(50));
                    }
                }
            }
        });
        Self { network, address, shared, manners, target, stop, thread: Some(thread) }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }

    pub fn options(&self) -> Options {
        let mut options = options(self.address);
        options.transport = Transport::QueuePairs(self.network.clone().into());
        options
    }

    pub fn hang_up(&self) {
        self.state().epoch += 1;
    }
}

impl Drop for RdmaPeer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// The target, in turns.
pub struct Server {
    network: ebof_verbs::Network,
    address: SocketAddr,
    listener: Listener,
    /// The listener has to be made again.
    is_lost: bool,
    shared: Arc<Shared>,
    manners: Arc<std::sync::Mutex<Manners>>,
    target: Target,
    sessions: Vec<Session>,
    left_alone: Vec<Request>,
}

impl Server {
    pub fn new(
        network: &Network,
        address: SocketAddr,
        shared: Arc<Shared>,
        manners: Arc<std::sync::Mutex<Manners>>,
        target: Target,
    ) -> Self {
        let network = ebof_verbs::Network::from(network.clone());
        let listener = network.listen(address, 64).unwrap();
        Self {
            network,
            address,
            listener,
            is_lost: false,
            shared,
            manners,
            target,
            sessions: Vec::new(),
            left_alone: Vec::new(),
        }
    }

    /// Whether there was something to do.
    pub fn turn(&mut self) -> bool {
        let mut progress = false;
        while let Some(event) = self.listener.poll().unwrap() {
            progress = true;
            match event {
                ListenerEvent::Request(request) => self.answer(request),
                ListenerEvent::AddressChanged | ListenerEvent::DeviceRemoved => self.is_lost = true,
            }
        }
        if self.is_lost
            && let Ok(listener) = self.network.listen(self.address, 64)
        {
            self.listener = listener;
            self.is_lost = false;
        }
        self.sessions.retain_mut(|session| {
            progress |= session.turn();
            !session.executor.over && !session.executor.is_hung_up()
        });
        progress
    }

    fn answer(&mut self, request: Request) {
        let manners = self.manners.lock().unwrap().clone();
        if manners.silent {
            return self.left_alone.push(request);
        }
        if let Some(bytes) = manners.reject_with {
            return request.reject(&bytes).unwrap();
        }
        let refuse = |status| ConnectReject { status }.encode();
        if let Some(status) = manners.reject {
            return request.reject(&refuse(RejectStatus(status))).unwrap();
        }
        if self.shared.state().closed {
            return request.reject(&refuse(RejectStatus::NO_RESOURCES)).unwrap();
        }
        let limits = Limits {
            admin_entries: 32,
            io_entries: 1024,
            io_queues: 64,
            in_capsule_bytes: self.shared.state().in_capsule,
            reads: 4,
            send_queue_entries: 4096,
        };
        let accepted = match Connection::accept(request.private_data(), &limits, request.initiator_depth()) {
            Ok(accepted) => accepted,
            Err(status) => return request.reject(&refuse(status)).unwrap(),
        };
        let attributes = Attributes {
            receives: accepted.receives,
            receive_bytes: accepted.receive_bytes,
            sends: accepted.sends,
            send_bytes: accepted.send_bytes,
            operations: accepted.operations,
            ..Attributes::default()
        };
        let mut pair = request.open(&attributes).unwrap();
        let mut reply = accepted.reply.to_vec();
        if let Some(receives) = manners.receives {
            reply[2..4].copy_from_slice(&receives.to_le_bytes());
        }
        let handshake = Handshake {
            private_data: manners.accept_with.as_deref().unwrap_or(&reply),
            initiator_depth: accepted.reads,
            rnr_retry_count: 7,
            ..Handshake::default()
        };
        pair.accept(&handshake).unwrap();
        self.sessions.push(Session {
            pair,
            connection: accepted.connection,
            executor: Executor::new(Arc::clone(&self.shared)),
            target: self.target.clone(),
            queue: accepted.request.qid.0,
            tags: 0,
            fetching: HashMap::new(),
            segments: HashMap::new(),
            data: HashMap::new(),
            writing: HashMap::new(),
            sent: HashMap::new(),
            unanswered: HashSet::new(),
            past: HashSet::new(),
        });
    }
}

/// One queue pair.
struct Session {
    pair: QueuePair,
    connection: Connection,
    executor: Executor,
    target: Target,
    queue: u16,
    tags: u32,
    /// Commands whose data are being read, by tag.
    fetching: HashMap<u32, (Sqe, HeldMemory, u32)>,
    segments: HashMap<u16, Segments>,
    /// Data of commands that wait for their response.
    data: HashMap<u16, Vec<u8>>,
    writing: HashMap<u32, HeldMemory>,
    /// Buffers to release when the response in this send slot was sent.
    sent: HashMap<u32, u32>,
    /// Commands that have no response yet.
    unanswered: HashSet<u16>,
    /// Slots with messages that no controller would send, of which the connection does not know.
    past: HashSet<u32>,
}

fn remote(remote: Remote) -> ebof_verbs::Remote {
    ebof_verbs::Remote { address: remote.address, key: remote.key }
}

impl Session {
    fn turn(&mut self) -> bool {
        let mut progress = false;
        while let Some(event) = self.pair.poll_event().unwrap() {
            progress = true;
            match event {
                Event::Established { .. } => self.connection.on_established(),
                _ => {
                    self.executor.shared_ended();
                    self.executor.over = true;
                    return true;
                }
            }
        }
        while let Some(completion) = self.pair.poll().unwrap() {
            progress = true;
            self.on_completion(completion);
            if self.executor.over {
                return true;
            }
        }
        self.executor.send_events();
        self.executor.answer_held();
        self.send_answers();
        while let Some(work) = self.connection.poll_work(self.pair.room()) {
            self.post(work);
        }
        self.pair.flush().unwrap();
        progress
    }

    fn on_completion(&mut self, completion: WorkCompletion) {
        match completion {
            WorkCompletion::Received { slot, length, .. } => {
                let capsule = self.pair.received(slot)[..length as usize].to_vec();
                self.pair.post_receive(slot);
                let command = self.connection.receive(&capsule).unwrap();
                self.unanswered.insert(command.sqe.cid().0);
                match command.data.unwrap() {
                    Location::None => self.executor.execute(command.sqe, &[]),
                    Location::InCapsule { offset, length } => {
                        self.target.saw(self.queue, "capsule", length);
                        self.executor.execute(command.sqe, &capsule[offset as usize..][..length as usize]);
                    }
                    Location::Remote(segments) => self.on_remote(command.sqe, segments),
                }
            }
            WorkCompletion::Sent { slot } => {
                if !self.past.remove(&slot) {
                    self.connection.on_sent();
                }
                if let Some(held) = self.sent.remove(&slot).and_then(|tag| self.writing.remove(&tag)) {
                    self.pair.release(held).unwrap();
                }
            }
            WorkCompletion::Done { id } => {
                let tag = u32::try_from(id).unwrap();
                if self.connection.on_read_done(tag).is_some() {
                    let (sqe, held, length) = self.fetching.remove(&tag).unwrap();
                    let data = self.pair.release(held).unwrap();
                    self.executor.execute(sqe, &data.as_slice()[..length as usize]);
                }
            }
            WorkCompletion::Failed { .. } => self.executor.over = true,
        }
    }

    fn on_remote(&mut self, sqe: Sqe, segments: Segments) {
        let length = segments.length();
        let own = matches!(sqe.dptr.decode(), Sgl::Keyed { invalidate: true, .. });
        self.target.saw(self.queue, if own { "own key" } else { "keyed" }, length);
        self.segments.insert(sqe.cid().0, segments);
        if crate::peer::data_from_host(&sqe) == 0 {
            return self.executor.execute(sqe, &[]);
        }
        self.tags += 1;
        let held = self.pair.hold(Buffer::zeroed(length as usize)).unwrap();
        self.fetching.insert(self.tags, (sqe, held, length));
        assert!(self.connection.read(self.tags, segments, length));
    }

    fn send_answers(&mut self) {
        for answer in std::mem::take(&mut self.executor.answers) {
            match answer {
                Answer::Data(Cid(cid), data) => _ = self.data.insert(cid, data),
                Answer::Response(cqe) => self.respond(&cqe),
                Answer::Invalidating(cqe, key) => self.send(&encode_response(&cqe), Some(key)),
                Answer::Garbage => self.send(&[0x7f; 7], None),
            }
        }
    }

    fn respond(&mut self, cqe: &Cqe) {
        if !self.unanswered.remove(&cqe.cid().0) {
            return self.send(&encode_response(cqe), None);
        }
        let segments = self.segments.remove(&cqe.cid().0);
        let Some(data) = self.data.remove(&cqe.cid().0) else { return self.connection.respond(cqe, segments) };
        self.tags += 1;
        let mut buffer = Buffer::zeroed(data.len());
        buffer.as_mut_slice()[..data.len()].copy_from_slice(&data);
        self.writing.insert(self.tags, self.pair.hold(buffer).unwrap());
        let length = u32::try_from(data.len()).unwrap();
        self.connection.respond_with_data(self.tags, segments.unwrap(), length, cqe);
    }

    fn send(&mut self, bytes: &[u8], invalidate: Option<u32>) {
        let slot = self.pair.take_send_slot().unwrap();
        self.pair.send_slot(slot)[..bytes.len()].copy_from_slice(bytes);
        self.pair.post_send(slot, u32::try_from(bytes.len()).unwrap(), invalidate);
        self.past.insert(slot);
    }

    fn post(&mut self, work: SendEntry) {
        match work {
            SendEntry::Read { tag, offset, length, remote: from } => {
                self.pair.post_read(self.fetching[&tag].1, offset, length, remote(from), tag.into());
            }
            SendEntry::Write { tag, offset, length, remote: to } => {
                self.pair.post_write(self.writing[&tag], offset, length, remote(to), None);
            }
            SendEntry::Send { cqe, invalidate, tag } => {
                let slot = self.pair.take_send_slot().unwrap();
                let bytes = encode_response(&cqe);
                self.pair.send_slot(slot)[..bytes.len()].copy_from_slice(&bytes);
                self.pair.post_send(slot, u32::try_from(bytes.len()).unwrap(), invalidate);
                self.sent.extend(tag.map(|tag| (slot, tag)));
            }
        }
    }
}
