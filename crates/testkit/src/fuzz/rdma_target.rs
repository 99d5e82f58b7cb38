//! The target's end of a whole connection: capsules of a host that keeps to no rules, and an
//! adapter that completes work in every order that adapters do.

use std::collections::{BTreeMap, VecDeque};

use ebof_nvme::{ControllerId, Cqe, QueueId, Status};
use ebof_rdma::controller::{Accepted, Cancelled, Connection, Location, SendEntry};
use ebof_rdma::private_data::ConnectRequest;
use ebof_rdma::{FatalError, Segments};

use crate::rdma::LIMITS;

/// RDMA READs that the host answers.
const READS: u8 = 3;
/// Entries of the queue.
const ENTRIES: u16 = 8;

/// A command that has no response yet.
#[derive(Debug)]
struct Pending {
    cid: ebof_nvme::Cid,
    tag: u32,
    segments: Option<Segments>,
    reads: Reads,
}

/// Whether data of a command are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    No,
    UnderWay,
    GivenUp,
}

#[derive(Debug)]
struct Target {
    connection: Connection,
    room: usize,
    /// Messages that may be under way.
    sends: usize,
    pending: Vec<Pending>,
    lengths: BTreeMap<u32, u32>,
    posted: VecDeque<SendEntry>,
    tags: u32,
    /// Commands that were received, and that were answered.
    commands: usize,
    answers: usize,
}

/// Acts of host, device and adapter, a byte each; after a capsule's come its length and its bytes.
pub fn rdma_target(mut data: &[u8]) {
    let request =
        ConnectRequest { qid: QueueId(1), host_receives: 4, entries: ENTRIES.into(), cntlid: ControllerId(0) };
    let accepted = Connection::accept(&request.encode(), &LIMITS, READS).expect("a good request");
    let Accepted { connection, sends, operations, .. } = accepted;
    let mut target = Target {
        connection,
        room: usize::try_from(sends + operations).expect("small"),
        sends: usize::try_from(sends).expect("small"),
        pending: Vec::new(),
        lengths: BTreeMap::new(),
        posted: VecDeque::new(),
        tags: 0,
        commands: 0,
        answers: 0,
    };
    while let [act, rest @ ..] = data {
        data = rest;
        let which = usize::from(act >> 3);
        match act & 7 {
            0 | 1 => {
                let Some((length, rest)) = data.split_first() else { break };
                let (capsule, rest) = rest.split_at(rest.len().min(usize::from(*length)));
                data = rest;
                if !target.receive(capsule) {
                    return;
                }
            }
            2 => target.fetch(which),
            3 => target.answer(which),
            4 => target.cancel(which),
            5 => _ = target.post(),
            6 => target.complete(which),
            _ => target.connection.on_established(),
        }
    }
    target.finish();
}

impl Target {
    /// `false`: the connection has ended.
    fn receive(&mut self, capsule: &[u8]) -> bool {
        let command = match self.connection.receive(capsule) {
            Ok(command) => command,
            Err(FatalError::TooManyCommands { .. }) => {
                assert!(self.pending.len() + self.connection.unposted_responses() >= usize::from(ENTRIES));
                return false;
            }
            Err(error) => {
                assert!(matches!(error, FatalError::ShortCommand { length } if length < 64));
                return false;
            }
        };
        self.commands += 1;
        self.tags += 1;
        let segments = match command.data {
            Ok(Location::Remote(segments)) => Some(segments),
            Ok(Location::InCapsule { offset, length }) => {
                assert!(capsule.len() as u64 >= u64::from(offset) + u64::from(length));
                None
            }
            Ok(Location::None) | Err(_) => None,
        };
        let (cid, tag) = (command.sqe.cid(), self.tags);
        self.pending.push(Pending { cid, tag, segments, reads: Reads::No });
        true
    }

    fn fetch(&mut self, which: usize) {
        let Some(pending) = pick(&mut self.pending, which, Reads::No) else { return };
        let Some(segments) = pending.segments else { return };
        self.lengths.insert(pending.tag, segments.length());
        if self.connection.read(pending.tag, segments, segments.length()) {
            pending.reads = Reads::UnderWay;
        }
    }

    fn cancel(&mut self, which: usize) {
        let Some(pending) = pick(&mut self.pending, which, Reads::UnderWay) else { return };
        pending.reads = match self.connection.cancel(pending.tag) {
            Cancelled::UnderWay => Reads::GivenUp,
            Cancelled::Ended => Reads::No,
        };
    }

    /// The device is done: every other read has data.
    fn answer(&mut self, which: usize) {
        let Some(Pending { cid, tag, segments, .. }) = pick(&mut self.pending, which, Reads::No) else { return };
        let cqe = Cqe::new(*cid, Status::SUCCESS);
        match segments.filter(|_| which.is_multiple_of(2)) {
            Some(segments) => {
                self.lengths.insert(*tag, segments.length());
                self.connection.respond_with_data(*tag, segments, segments.length(), &cqe);
            }
            None => self.connection.respond(&cqe, *segments),
        }
        let tag = *tag;
        self.pending.retain(|pending| pending.tag != tag);
    }

    /// `false`: there is nothing to post.
    fn post(&mut self) -> bool {
        let Some(work) = self.connection.poll_work(self.room) else { return false };
        self.room -= 1;
        match work {
            SendEntry::Read { tag, offset, length, .. } | SendEntry::Write { tag, offset, length, .. } => {
                assert!(length > 0 && u64::from(offset) + u64::from(length) <= u64::from(self.lengths[&tag]));
                let given_up = |pending: &Pending| pending.tag == tag && pending.reads == Reads::GivenUp;
                assert!(!self.pending.iter().any(given_up), "a READ for a command that was given up");
            }
            SendEntry::Send { .. } => self.answers += 1,
        }
        self.posted.push_back(work);
        let count = |is: fn(&SendEntry) -> bool| self.posted.iter().filter(|work| is(work)).count();
        let reads = count(|work| matches!(work, SendEntry::Read { .. }));
        assert!(reads <= usize::from(READS) && self.connection.reads_under_way() as usize == reads);
        assert!(count(|work| matches!(work, SendEntry::Send { .. })) <= self.sends);
        true
    }

    /// The oldest message is sent, or the oldest READ done: READs are overtaken by what follows.
    fn complete(&mut self, which: usize) {
        let wants_read = which.is_multiple_of(2);
        let is_wanted = |work: &SendEntry| match work {
            SendEntry::Read { .. } => wants_read,
            SendEntry::Send { .. } => !wants_read,
            SendEntry::Write { .. } => false,
        };
        let Some(at) = self.posted.iter().position(is_wanted) else { return };
        let Some(work) = self.posted.remove(at) else { return };
        self.room += 1;
        match work {
            SendEntry::Read { tag, .. } => {
                let Some(fetched) = self.connection.on_read_done(tag) else { return };
                let mut pending = self.pending.iter_mut();
                let pending = pending.find(|pending| pending.tag == fetched.tag).expect("it has no response yet");
                assert_eq!(fetched.is_complete, pending.reads == Reads::UnderWay);
                pending.reads = Reads::No;
            }
            SendEntry::Send { .. } => {
                // WRITEs are over with the message behind them.
                let before = self.posted.len();
                let mut place = 0;
                self.posted.retain(|work| {
                    place += 1;
                    place > at || !matches!(work, SendEntry::Write { .. })
                });
                self.room += before - self.posted.len();
                self.connection.on_sent();
            }
            SendEntry::Write { .. } => {}
        }
    }

    /// Everything comes to its end.
    fn finish(&mut self) {
        self.connection.on_established();
        for _ in 0..usize::from(ENTRIES) * 64 {
            while self.post() {}
            self.complete(0);
            self.complete(1);
            self.answer(1);
        }
        let is_idle = self.connection.unposted_responses() == 0 && self.connection.reads_under_way() == 0;
        assert!(self.pending.is_empty() && is_idle && self.posted.is_empty(), "{self:?} hangs");
        assert_eq!(self.answers, self.commands, "one response for each command");
    }
}

/// One of the commands whose reads are at that.
fn pick(pending: &mut [Pending], which: usize, reads: Reads) -> Option<&mut Pending> {
    let mut all: Vec<&mut Pending> = pending.iter_mut().filter(|pending| pending.reads == reads).collect();
    let count = all.len();
    (count > 0).then(|| all.swap_remove(which % count))
}

/// Inputs of [`rdma_target`]: of commands with data of every kind, each followed by random acts.
#[must_use]
pub fn rdma_target_seeds() -> Vec<Vec<u8>> {
    use ebof_nvme::sgl::SglDescriptor;
    use ebof_nvme::{Sgl, Sqe};
    use zerocopy::IntoBytes;
    let keyed = |length| Sgl::Keyed { address: 0x1000, length, key: 7, invalidate: length & 1 != 0 };
    let list = |count: u32| Sgl::LastSegment { offset: 0, length: 16 * count };
    let seed = |number: u64| {
        let mut random = crate::random::Random::new(number);
        let mut input = vec![7];
        for cid in 0..24_u16 {
            let sgl = match (u64::from(cid) + number) % 4 {
                0 => keyed(4096),
                1 => Sgl::InCapsule { offset: 0, length: 32 },
                2 => list(4),
                _ => keyed(513),
            };
            let sqe = Sqe { cid: cid.into(), dptr: SglDescriptor::encode(sgl), ..Sqe::new(1 + u8::from(cid % 2 == 1)) };
            input.extend([0, 64 + 64]);
            input.extend_from_slice(sqe.as_bytes());
            (0..4).for_each(|at| input.extend_from_slice(SglDescriptor::encode(keyed(100 * at)).as_bytes()));
            // No more capsules: what bytes of those mean would follow.
            input.extend(random.bytes(12).into_iter().map(|act| if act & 7 < 2 { act | 2 } else { act }));
        }
        input
    };
    (0..6).map(seed).collect()
}
