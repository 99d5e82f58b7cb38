//! A host and a target that talk NVMe/RDMA over a queue pair in memory, on which everything that
//! may come in any order does: what happens next is chosen by the caller.
//!
//! The queue pair behaves as reliable connections do: work begins and ends in its order, a message
//! waits for a receive, RDMA WRITEs have no completion of their own. What both ends do is checked:
//! no more READs than agreed on, nothing without room, data before their response, no access with a
//! key that is not valid, and one completion for each command.

use std::collections::{BTreeMap, VecDeque};

use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Cid, ControllerId, Cqe, QueueId, Sgl, Sqe, Status};
use ebof_rdma::controller::{Accepted, Cancelled, Connection, Limits, Location, Posting, SendEntry};
use ebof_rdma::host::{self, CommandData, FinishedCommand};
use ebof_rdma::{Remote, Segments, capsule};
use zerocopy::IntoBytes;

/// A limit of everything, for tests that do not care.
pub const LIMITS: Limits = Limits {
    admin_entries: 32,
    io_entries: 128,
    io_queues: 8,
    in_capsule_bytes: 4096,
    reads: 16,
    send_queue_entries: 1024,
};

/// Bytes of host memory that each command has.
const AREA: usize = 96;

/// Where the host's memory is.
const BASE: u64 = 0x7fff_1234_5000;

/// A key that is always valid.
const STATIC_KEY: u32 = 7;

/// How large a conversation is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Entries of the queue.
    pub entries: u16,
    /// RDMA READs that the host answers.
    pub reads: u8,
    /// Entries of the controller's send queue.
    pub send_queue_entries: u32,
}

/// What the host asked for, and what has to come of it.
#[derive(Debug)]
struct Issued {
    index: usize,
    payload: Vec<u8>,
    key: Option<u32>,
    /// What the target has read for it.
    served: Option<Vec<u8>>,
    is_answered: bool,
}

/// A command at the target.
#[derive(Debug)]
struct Pending {
    sqe: Sqe,
    tag: u32,
    segments: Option<Segments>,
    length: u32,
}

#[derive(Debug)]
enum Completed {
    Read(u32),
    Sent(Option<u32>),
}

/// Both ends and what is between them.
#[derive(Debug)]
pub struct Conversation {
    host: host::Connection,
    controller: Connection,
    entries: u16,
    depth: u32,
    room: usize,
    is_established: bool,
    memory: Vec<u8>,
    /// The keys that are for one command and valid.
    keys: Vec<u32>,
    issued: BTreeMap<u16, Issued>,
    uses: u16,
    /// Commands that have completed.
    pub finished: usize,
    to_controller: VecDeque<(Cid, Vec<u8>)>,
    controller_receives: u32,
    sent_by_host: VecDeque<Cid>,
    pending: Vec<Pending>,
    fetching: Vec<Pending>,
    buffers: BTreeMap<u32, Vec<u8>>,
    tags: u32,
    send_queue: VecDeque<SendEntry>,
    /// WRITEs since the last work that has a completion.
    implied: usize,
    completed: VecDeque<(Completed, usize)>,
    reads_under_way: u32,
    sends: u32,
    sends_under_way: u32,
    /// Whose reads are given up, while some are under way.
    cancelled: Vec<u32>,
    to_host: VecDeque<(Vec<u8>, Option<u32>)>,
    host_receives: u32,
}

/// One of the things that can happen. What cannot happen now does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// The host sends a command: which kind, and how many bytes it is about.
    Submit {
        /// One of eight.
        kind: u8,
        /// Bytes.
        length: u8,
    },
    /// A command arrives.
    Deliver,
    /// The host learns that its oldest message was sent.
    HostSent,
    /// The host gets a response.
    Respond,
    /// The device completes a command.
    Device(u8),
    /// The target posts what it can.
    Post,
    /// The adapter does the target's next work.
    Adapter,
    /// The target learns of the completion of its oldest work.
    Complete,
    /// The target gives up fetching the data of a command.
    Cancel(u8),
    /// The target learns that the connection is established.
    Establish,
}

impl Act {
    /// Of two bytes, any.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 2]) -> Self {
        let [which, value] = bytes;
        match which % 16 {
            0..=2 => Self::Submit { kind: which >> 5, length: value },
            3 | 4 => Self::Deliver,
            5 => Self::HostSent,
            6 | 7 => Self::Respond,
            8 | 9 => Self::Device(value),
            10 => Self::Post,
            11 | 12 => Self::Adapter,
            13 => Self::Complete,
            14 => Self::Cancel(value),
            _ => Self::Establish,
        }
    }
}

impl Conversation {
    /// Two ends that have agreed.
    ///
    /// # Panics
    /// They do not.
    #[must_use]
    pub fn new(size: Size) -> Self {
        let Size { entries, reads, send_queue_entries } = size;
        let mut host =
            host::Connection::new(host::ConnectionConfig { queue: QueueId(1), entries, cntlid: ControllerId(0) });
        let limits = Limits { send_queue_entries, in_capsule_bytes: 256, ..LIMITS };
        let accepted = Connection::accept(&host.request(), &limits, reads).expect("within the limits");
        let Accepted { connection, reply, receives, sends, operations, reads, .. } = accepted;
        assert!(sends + operations <= send_queue_entries);
        host.on_accepted(&reply).expect("a good answer");
        Self {
            entries,
            controller: connection,
            depth: reads.into(),
            room: usize::try_from(sends + operations).expect("small"),
            is_established: false,
            memory: vec![0; AREA * usize::from(entries)],
            keys: Vec::new(),
            issued: BTreeMap::new(),
            uses: 0,
            finished: 0,
            to_controller: VecDeque::new(),
            controller_receives: receives,
            sent_by_host: VecDeque::new(),
            pending: Vec::new(),
            fetching: Vec::new(),
            buffers: BTreeMap::new(),
            tags: 0,
            send_queue: VecDeque::new(),
            implied: 0,
            completed: VecDeque::new(),
            reads_under_way: 0,
            sends,
            sends_under_way: 0,
            cancelled: Vec::new(),
            to_host: VecDeque::new(),
            host_receives: host.receives(),
            host,
        }
    }

    /// Does one thing.
    ///
    /// # Panics
    /// An end does what it must not.
    pub fn act(&mut self, act: Act) {
        match act {
            Act::Submit { kind, length } => self.submit(kind, usize::from(length)),
            Act::Deliver => self.deliver(),
            Act::HostSent => {
                if let Some(cid) = self.sent_by_host.pop_front() {
                    let finished = self.host.on_sent(cid);
                    self.finish(finished);
                }
            }
            Act::Respond => self.respond(),
            Act::Device(which) => self.device(usize::from(which)),
            Act::Post => self.post(),
            Act::Adapter => self.adapter(),
            Act::Complete => self.complete(),
            Act::Cancel(which) => self.cancel(usize::from(which)),
            Act::Establish => {
                self.is_established = true;
                self.controller.on_established();
            }
        }
    }

    /// Lets everything that is outstanding complete.
    ///
    /// # Panics
    /// Something does not.
    pub fn finish_all(&mut self) {
        self.act(Act::Establish);
        let rounds = 200 * usize::from(self.entries);
        for _ in 0..rounds {
            if self.issued.is_empty() {
                break;
            }
            for act in [Act::Deliver, Act::HostSent, Act::Device(0), Act::Post, Act::Adapter, Act::Complete] {
                self.act(act);
            }
            self.act(Act::Respond);
        }
        assert!(self.issued.is_empty(), "{self:?} hangs");
        for _ in 0..rounds {
            self.act(Act::Adapter);
            self.act(Act::Complete);
        }
        assert!(self.buffers.is_empty() && self.reads_under_way == 0 && self.controller.unposted_responses() == 0);
    }

    fn submit(&mut self, kind: u8, length: usize) {
        let slot = (0..self.entries).find(|slot| !self.host.is_outstanding(Cid(*slot)));
        let Some(slot) = slot else { return };
        self.uses = self.uses.wrapping_add(1);
        let cid = slot + (self.uses % 16) * self.entries.next_power_of_two();
        let index = usize::from(slot);
        // A key of a command without data is not invalidated.
        let least = usize::from(matches!(kind, 2 | 4));
        let length = (length % (AREA + 1)).max(least);
        let area = &mut self.memory[index * AREA..][..length];
        let seed = self.uses;
        area.iter_mut().zip(0..).for_each(|(byte, at)| *byte = (seed ^ at).to_le_bytes()[0] | 1);
        let payload = area.to_vec();
        let address = BASE + (index * AREA) as u64;
        let own_key = 0x100 + u32::from(self.uses);
        let short = u32::try_from(length).expect("small");
        let keyed = |key, invalidate| CommandData::Keyed { remote: Remote { address, key }, length: short, invalidate };
        let (opcode, transfer, key) = match kind {
            0 => (WRITE, CommandData::InCapsule { payload: &payload }, None),
            1 | 5 => (WRITE, keyed(STATIC_KEY, false), None),
            2 => (WRITE, keyed(own_key, true), Some(own_key)),
            3 | 6 => (READ, keyed(STATIC_KEY, false), None),
            4 => (READ, keyed(own_key, true), Some(own_key)),
            _ => (FLUSH, CommandData::None, None),
        };
        self.keys.extend(key);
        let mut sqe = Sqe { cid: cid.into(), ..Sqe::new(opcode) };
        let mut bytes = vec![0; 64 + 96];
        let end = self.host.send_command(&mut sqe, transfer, &mut bytes);
        bytes.truncate(end);
        if kind >= 5 && opcode != FLUSH && length > 0 {
            make_list(&mut bytes, sqe, address, length);
        }
        let payload = if opcode == FLUSH { Vec::new() } else { payload };
        self.issued.insert(cid, Issued { index, payload, key, served: None, is_answered: false });
        self.to_controller.push_back((Cid(cid), bytes));
    }

    fn deliver(&mut self) {
        if self.controller_receives == 0 {
            return;
        }
        let Some((cid, bytes)) = self.to_controller.pop_front() else { return };
        self.sent_by_host.push_back(cid);
        let command = self.controller.receive(&bytes).expect("the host keeps to the rules");
        self.tags += 1;
        let mut pending = Pending { sqe: command.sqe, tag: self.tags, segments: None, length: 0 };
        match command.data.expect("the host's SGLs are right") {
            Location::None => {}
            Location::InCapsule { offset, length } => {
                let data = bytes[offset as usize..][..length as usize].to_vec();
                self.buffers.insert(pending.tag, data);
                pending.length = length;
            }
            Location::Remote(segments) => {
                assert_eq!(Segments::from_pointer(&command.sqe.data_pointer()), Some(segments));
                pending.segments = Some(segments);
                pending.length = segments.length();
                self.buffers.insert(pending.tag, vec![0; segments.length() as usize]);
                if command.sqe.opcode == WRITE {
                    assert!(self.controller.read(pending.tag, segments, pending.length));
                    return self.fetching.push(pending);
                }
            }
        }
        self.pending.push(pending);
    }

    fn device(&mut self, which: usize) {
        if self.pending.is_empty() {
            return;
        }
        let Pending { sqe, tag, segments, length } = self.pending.swap_remove(which % self.pending.len());
        let issued = self.issued.get_mut(&sqe.cid().0).expect("outstanding");
        let cqe = Cqe::new(sqe.cid(), Status::SUCCESS);
        let before = self.send_queue.len();
        if let (READ, Some(segments)) = (sqe.opcode, segments) {
            let data: Vec<u8> = (0..length).map(|at| (at ^ tag).to_le_bytes()[0]).collect();
            self.buffers.insert(tag, data.clone());
            issued.served = Some(data);
            if !self.post_now(&cqe, Some(tag), Some(segments), length) {
                self.controller.respond_with_data(tag, segments, length, &cqe);
            }
        } else {
            let data = self.buffers.remove(&tag).unwrap_or_default();
            if sqe.opcode == WRITE {
                assert_eq!(data, issued.payload, "what the host sent");
            }
            if !self.post_now(&cqe, None, segments, 0) {
                self.controller.respond(&cqe, segments);
            }
        }
        self.controller_receives += 1;
        if self.send_queue.len() > before {
            // The responses that were posted are flushed.
            self.post();
        }
    }

    /// Posts the response to a command, if it can be; only for some commands, so that others are
    /// queued.
    fn post_now(&mut self, cqe: &Cqe, tag: Option<u32>, segments: Option<Segments>, length: u32) -> bool {
        if cqe.cid().0.is_multiple_of(3) {
            return false;
        }
        let Some(Posting { write, invalidate }) = self.controller.respond_now(segments, length, self.room) else {
            return false;
        };
        assert_eq!(write.map(|(length, _)| length), (length > 0).then_some(length));
        let write = write.zip(tag).map(|((length, remote), tag)| SendEntry::Write { tag, offset: 0, length, remote });
        for work in write.into_iter().chain([SendEntry::Send { cqe: *cqe, invalidate, tag }]) {
            self.queue(work);
        }
        true
    }

    fn cancel(&mut self, which: usize) {
        if self.fetching.is_empty() {
            return;
        }
        let which = which % self.fetching.len();
        let tag = self.fetching[which].tag;
        match self.controller.cancel(tag) {
            Cancelled::Ended => {
                let pending = self.fetching.swap_remove(which);
                self.abort(&pending);
            }
            Cancelled::UnderWay => self.cancelled.push(tag),
        }
    }

    fn abort(&mut self, pending: &Pending) {
        self.buffers.remove(&pending.tag);
        let cqe = Cqe::new(pending.sqe.cid(), Status::ABORT_REQUESTED);
        self.controller.respond(&cqe, pending.segments);
        self.controller_receives += 1;
    }

    fn post(&mut self) {
        while let Some(work) = self.controller.poll_work(self.room) {
            self.queue(work);
        }
        self.controller.on_flushed();
        assert_eq!(self.controller.reads_under_way(), self.reads_under_way);
    }

    fn queue(&mut self, work: SendEntry) {
        assert!(self.is_established, "posted before the connection is established");
        self.room = self.room.checked_sub(1).expect("posted without room");
        match work {
            SendEntry::Read { tag, .. } => {
                self.reads_under_way += 1;
                assert!(self.reads_under_way <= self.depth, "more READs than the host answers");
                assert!(!self.cancelled.contains(&tag), "a READ for a command that was given up");
            }
            SendEntry::Write { .. } => {}
            SendEntry::Send { .. } => {
                self.sends_under_way += 1;
                assert!(self.sends_under_way <= self.sends, "more messages than agreed on");
            }
        }
        self.send_queue.push_back(work);
    }

    fn adapter(&mut self) {
        let Some(work) = self.send_queue.front().copied() else { return };
        let done = match work {
            SendEntry::Read { tag, offset, length, remote } => {
                let data = self.area(remote, length).to_vec();
                let buffer = self.buffers.get_mut(&tag).expect("a buffer that is read into stays");
                buffer[offset as usize..][..data.len()].copy_from_slice(&data);
                Completed::Read(tag)
            }
            SendEntry::Write { tag, offset, length, remote } => {
                let data = self.buffers[&tag][offset as usize..][..length as usize].to_vec();
                self.area(remote, length).copy_from_slice(&data);
                self.implied += 1;
                self.send_queue.pop_front();
                return;
            }
            SendEntry::Send { cqe, invalidate, tag } => {
                // It waits for a receive.
                let Some(receives) = self.host_receives.checked_sub(1) else { return };
                self.host_receives = receives;
                if let Some(key) = invalidate {
                    let at = self.keys.iter().position(|valid| *valid == key).expect("a key is invalidated once");
                    self.keys.swap_remove(at);
                }
                self.to_host.push_back((capsule::encode_response(&cqe).to_vec(), invalidate));
                Completed::Sent(tag)
            }
        };
        self.send_queue.pop_front();
        self.completed.push_back((done, 1 + std::mem::take(&mut self.implied)));
    }

    fn area(&mut self, remote: Remote, length: u32) -> &mut [u8] {
        assert!(remote.key == STATIC_KEY || self.keys.contains(&remote.key), "{remote:?} is not accessible");
        let at = usize::try_from(remote.address - BASE).expect("small");
        &mut self.memory[at..][..length as usize]
    }

    fn complete(&mut self) {
        let Some((completed, entries)) = self.completed.pop_front() else { return };
        self.room += entries;
        match completed {
            Completed::Read(tag) => {
                self.reads_under_way -= 1;
                let Some(fetched) = self.controller.on_read_done(tag) else { return };
                let at = self.fetching.iter().position(|pending| pending.tag == tag).expect("fetched once");
                let pending = self.fetching.swap_remove(at);
                if fetched.is_complete {
                    self.pending.push(pending);
                } else {
                    self.abort(&pending);
                }
            }
            Completed::Sent(tag) => {
                self.controller.on_sent();
                self.sends_under_way -= 1;
                if let Some(tag) = tag {
                    self.buffers.remove(&tag).expect("the buffer of data that were sent");
                }
            }
        }
    }

    fn respond(&mut self) {
        let Some((bytes, invalidated)) = self.to_host.pop_front() else { return };
        let cid = u16::from_le_bytes([bytes[12], bytes[13]]);
        let issued = self.issued.get_mut(&cid).expect("one response for each command");
        assert!(!issued.is_answered, "one response for each command");
        issued.is_answered = true;
        if let Some(served) = &issued.served {
            assert_eq!(self.memory[issued.index * AREA..][..served.len()], served[..], "data before their response");
        }
        let finished = self.host.receive(&bytes, invalidated).expect("the controller keeps to the rules");
        self.host_receives += 1;
        self.finish(finished);
    }

    fn finish(&mut self, finished: Option<FinishedCommand>) {
        let Some(FinishedCommand { cqe, valid_key }) = finished else { return };
        let issued = self.issued.remove(&cqe.cid().0).expect("each command completes once");
        assert!(issued.is_answered && !self.sent_by_host.contains(&cqe.cid()), "over before both have come");
        assert_eq!(valid_key, None, "the controller invalidates every key that it may");
        assert!(issued.key.is_none_or(|key| !self.keys.contains(&key)));
        self.finished += 1;
    }
}

/// Opcodes of the model.
const FLUSH: u8 = 0;
const WRITE: u8 = 1;
const READ: u8 = 2;

/// Makes the data of a command, one piece of memory, a list of up to 16 pieces, one of them empty.
fn make_list(capsule: &mut Vec<u8>, mut sqe: Sqe, address: u64, length: usize) {
    let piece = length.div_ceil(1 + length % 15);
    let mut pieces: Vec<(usize, usize)> = (0..length).step_by(piece).map(|at| (at, piece.min(length - at))).collect();
    pieces.insert(1, (0, 0));
    let bytes = u32::try_from(16 * pieces.len()).expect("small");
    sqe.dptr = SglDescriptor::encode(Sgl::LastSegment { offset: 0, length: bytes });
    *capsule = sqe.as_bytes().to_vec();
    for (at, length) in pieces {
        let length = u32::try_from(length).expect("small");
        let sgl = Sgl::Keyed { address: address + at as u64, length, key: STATIC_KEY, invalidate: false };
        capsule.extend_from_slice(SglDescriptor::encode(sgl).as_bytes());
    }
}
