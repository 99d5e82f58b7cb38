//! Random work of two ends in a stepped network: everything that is posted is over exactly once and
//! in order (but for RDMA READs that are overtaken), data are where they belong when they are
//! announced, and all memory comes back.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Weak;

use proptest::prelude::*;

use super::super::{Network as Simulated, Side};
use super::*;
use crate::HeldMemory;
use crate::ledger::slots::Waiting;

/// Of a send queue: sends and operations of `attributes()`.
const ENTRIES: usize = 12;

#[derive(Clone, Copy, Debug)]
enum Act {
    /// A message with the number of the target's last write.
    Send(bool),
    /// The target writes a number to the host's memory.
    Write {
        signalled: bool,
    },
    /// The target reads it.
    Read,
    /// An end begins what it has posted.
    Flush(bool),
    /// An end posts the receives that it has.
    Receive(bool),
    Poll(bool),
    Step(u8),
    Hold {
        target: bool,
        work: bool,
        hold: bool,
    },
    Fail(bool),
    Disconnect(bool),
    Lose,
    WrongKey,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        8 => any::<bool>().prop_map(Act::Send),
        8 => any::<bool>().prop_map(|signalled| Act::Write { signalled }),
        6 => Just(Act::Read),
        8 => any::<bool>().prop_map(Act::Flush),
        8 => any::<bool>().prop_map(Act::Receive),
        8 => any::<bool>().prop_map(Act::Poll),
        12 => (1..20_u8).prop_map(Act::Step),
        2 => any::<(bool, bool, bool)>().prop_map(|(target, work, hold)| Act::Hold { target, work, hold }),
        1 => prop_oneof![
            any::<bool>().prop_map(Act::Fail),
            any::<bool>().prop_map(Act::Disconnect),
            Just(Act::Lose),
            Just(Act::WrongKey),
        ],
    ];
    proptest::collection::vec(act, 1..120)
}

/// One end, and what it expects.
struct One {
    pair: QueuePair,
    /// What it has posted to the send queue and what is not over, with the buffer, and the number
    /// that a read must find at least.
    posted: Vec<(WorkRequest, Option<(HeldMemory, u64)>)>,
    /// Receive slots that are not posted.
    slots: Vec<u32>,
    /// Numbers of messages under way to it.
    expected: VecDeque<u64>,
    /// Something of its send queue has.
    failed: bool,
}

struct Model {
    network: Simulated,
    overtakes_reads: bool,
    /// What the target receives in, if others could use it, too.
    shared: Option<SharedReceives>,
    ends: [One; 2],
    buffer: Buffer,
    at: Remote,
    written: u64,
    /// Ids of posted reads, and the ids used.
    reads: BTreeSet<u64>,
    ids: u64,
}

impl Model {
    fn new(seed: u64, overtakes_reads: bool, shares_receives: bool) -> Self {
        let network = Simulated::stepped(seed);
        if overtakes_reads {
            network.overtake_reads();
        }
        let all = Network::from(network.clone());
        let mut listener = all.listen(address(), 1).unwrap();
        let mut connecting = all.connect(address(), None, &ConnectOptions::default()).unwrap();
        while !connecting.poll().unwrap() {
            assert!(network.step());
        }
        let mut host = connecting.open(&attributes()).unwrap();
        host.connect(&HANDSHAKE).unwrap();
        let shared = shares_receives.then(|| SharedReceives::new(4, 64));
        let of_target = Attributes { shared_receives: shared.clone(), ..attributes() };
        let mut target = loop {
            assert!(network.step());
            if let Some(ListenerEvent::Request(request)) = listener.poll().unwrap() {
                break request.open(&of_target).unwrap();
            }
        };
        target.accept(&HANDSHAKE).unwrap();
        while host.poll_event().unwrap().is_none() {
            assert!(network.step());
        }
        let buffer = Buffer::zeroed(4096);
        let at = remote(&mut host, &buffer);
        let one = |pair| One { pair, posted: Vec::new(), slots: Vec::new(), expected: VecDeque::new(), failed: false };
        let ends = [one(host), one(target)];
        Self { network, overtakes_reads, shared, ends, buffer, at, written: 0, reads: BTreeSet::new(), ids: 0 }
    }

    fn act(&mut self, act: Act) {
        let connection = self.network.connections().remove(0);
        let side = |target| if target { Side::Target } else { Side::Host };
        match act {
            Act::Send(target) => self.send(target),
            Act::Write { signalled } => self.write(signalled, self.at),
            Act::WrongKey => self.write(false, Remote { key: self.at.key ^ 1, ..self.at }),
            Act::Read => self.read(),
            Act::Flush(target) => self.ends[usize::from(target)].pair.flush().unwrap(),
            Act::Receive(target) => {
                let end = &mut self.ends[usize::from(target)];
                while let Some(slot) = end.slots.pop() {
                    end.pair.post_receive(slot);
                }
                end.pair.flush().unwrap();
            }
            Act::Poll(target) => self.poll(usize::from(target)),
            Act::Step(steps) => (0..steps).for_each(|_| _ = self.network.step()),
            Act::Hold { target, work: true, hold } => connection.hold_work(side(target), hold),
            Act::Hold { target, work: false, hold } => connection.hold_completions(side(target), hold),
            Act::Fail(target) => connection.fail(side(target)),
            Act::Disconnect(target) => self.ends[usize::from(target)].pair.disconnect(),
            Act::Lose => {
                connection.lose();
                connection.time_out();
            }
        }
    }

    fn send(&mut self, target: bool) {
        let end = &mut self.ends[usize::from(target)];
        if end.pair.room() == 0 {
            return;
        }
        let Some(slot) = end.pair.take_send_slot() else { return };
        end.pair.send_slot(slot)[..8].copy_from_slice(&self.written.to_le_bytes());
        end.pair.post_send(slot, 8, None);
        end.posted.push((WorkRequest::Send(slot), None));
        self.ends[usize::from(!target)].expected.push_back(self.written);
    }

    fn write(&mut self, signalled: bool, to: Remote) {
        let end = &mut self.ends[1];
        if end.pair.room() == 0 {
            return;
        }
        self.written += u64::from(to == self.at);
        let mut buffer = Buffer::zeroed(4096);
        buffer.as_mut_slice()[..8].copy_from_slice(&self.written.to_le_bytes());
        let held = end.pair.hold(buffer).unwrap();
        self.ids += 1;
        let id = signalled.then_some(self.ids);
        end.pair.post_write(held, 0, 8, to, id);
        end.posted.push((id.map_or(WorkRequest::Unsignalled, WorkRequest::Operation), Some((held, 0))));
    }

    fn read(&mut self) {
        let end = &mut self.ends[1];
        if end.pair.room() == 0 {
            return;
        }
        let held = end.pair.hold(Buffer::zeroed(4096)).unwrap();
        self.ids += 1;
        end.pair.post_read(held, 4088, 8, self.at, self.ids);
        end.posted.push((WorkRequest::Operation(self.ids), Some((held, self.written))));
        self.reads.insert(self.ids);
    }

    fn poll(&mut self, index: usize) {
        while let Some(completion) = self.ends[index].pair.poll().unwrap() {
            let end = &mut self.ends[index];
            match completion {
                WorkCompletion::Received { slot, length, invalidated } => {
                    assert_eq!((length, invalidated), (8, None));
                    let number = u64::from_le_bytes(end.pair.received(slot)[..8].try_into().unwrap());
                    assert_eq!(end.expected.pop_front(), Some(number));
                    if index == 0 {
                        let found = u64::from_le_bytes(self.buffer.as_slice()[..8].try_into().unwrap());
                        assert!((number..=self.written).contains(&found), "{found} written, {number} announced");
                    }
                    end.slots.push(slot);
                }
                WorkCompletion::Sent { slot } => self.done(index, WorkRequest::Send(slot)),
                WorkCompletion::Done { id } => self.done(index, WorkRequest::Operation(id)),
                WorkCompletion::Failed { what: WorkRequest::Receive(slot), .. } => end.slots.push(slot),
                WorkCompletion::Failed { what, .. } => {
                    end.failed = true;
                    self.over(index, what);
                }
            }
        }
    }

    fn done(&mut self, index: usize, what: WorkRequest) {
        assert!(!self.ends[index].failed, "everything is flushed behind what has failed");
        self.over(index, what);
    }

    /// `what` is over, and so are writes without an id that were posted before it.
    fn over(&mut self, index: usize, what: WorkRequest) {
        let end = &mut self.ends[index];
        if what == WorkRequest::Unsignalled {
            // Which one it was is seen by what can be released; others are done, perhaps.
            let before = end.posted.len();
            end.posted.retain(|(what, held)| *what != WorkRequest::Unsignalled || !is_released(&mut end.pair, held));
            assert!(end.posted.len() < before, "one of them is over");
            return;
        }
        let at = end.posted.iter().position(|(other, _)| *other == what).expect("it was posted, and is not over");
        if let (WorkRequest::Operation(id), Some((held, least))) = end.posted.remove(at) {
            let buffer = end.pair.release(held).expect("nothing uses it any more");
            if self.reads.remove(&id) && !end.failed {
                let found = u64::from_le_bytes(buffer.as_slice()[4088..].try_into().unwrap());
                assert!((least..=self.written).contains(&found), "{found} read, {least} was written before");
            }
        }
        let mut before: Vec<_> = end.posted.drain(..at).collect();
        before.retain(|(other, held)| match other {
            WorkRequest::Unsignalled => {
                assert!(is_released(&mut end.pair, held), "it is over with {what:?}");
                false
            }
            WorkRequest::Operation(id) if self.overtakes_reads && self.reads.contains(id) => true,
            _ => panic!("{other:?} is skipped by {what:?}"),
        });
        end.posted.splice(0..0, before);
    }

    fn finish(mut self) {
        let connection = self.network.connections().remove(0);
        for (index, side) in [Side::Host, Side::Target].into_iter().enumerate() {
            connection.hold_work(side, false);
            connection.hold_completions(side, false);
            self.ends[index].pair.flush().unwrap();
            self.ends[index].pair.disconnect();
        }
        while self.network.step() {}
        for index in 0..2 {
            self.poll(index);
            let end = &mut self.ends[index];
            end.posted.retain(|(what, held)| *what != WorkRequest::Unsignalled || !is_released(&mut end.pair, held));
            assert!(end.posted.is_empty(), "{:?}", end.posted);
            end.slots.sort_unstable();
            // Shared ones that are posted do not come back.
            assert!(end.slots == [0, 1, 2, 3] || index == 1 && self.shared.is_some());
            assert_eq!(end.pair.room(), ENTRIES);
        }
        assert_eq!(self.network.queue_pairs(), 2);
        drop(self.ends);
        assert_eq!((self.network.queue_pairs(), self.network.registered_bytes()), (0, 4096));
        if let Some(shared) = self.shared {
            let mut slots: Vec<_> = std::iter::from_fn(|| shared.take(nobody)).map(|slot| slot.number).collect();
            slots.sort_unstable();
            assert_eq!(slots, [0, 1, 2, 3], "others can use all of them");
        }
        drop(self.buffer);
        assert_eq!(self.network.registered_bytes(), 0);
        assert!(self.network.connections().is_empty());
    }
}

fn nobody() -> Weak<dyn Waiting> {
    struct Nobody;
    impl Waiting for Nobody {
        fn retry(&self) {}
    }
    Weak::<Nobody>::new()
}

/// Whether a buffer is not in use any more, which is released then.
fn is_released(pair: &mut QueuePair, held: &Option<(HeldMemory, u64)>) -> bool {
    held.is_none_or(|(held, _)| pair.release(held).is_some())
}

proptest! {
    #[test]
    fn what_is_posted_is_over_once_and_in_order(
        seed: u64,
        overtakes_reads: bool,
        shares_receives: bool,
        acts in acts(),
    ) {
        let mut model = Model::new(seed, overtakes_reads, shares_receives);
        acts.into_iter().for_each(|act| model.act(act));
        model.finish();
    }
}

#[test]
fn the_order_of_a_stepped_network_follows_from_its_seed() {
    let order = |seed| {
        let mut model = Model::new(seed, false, false);
        let acts = [Act::Send(true), Act::Send(false), Act::Write { signalled: true }, Act::Read, Act::Send(true)];
        acts.into_iter().chain([Act::Flush(false), Act::Flush(true)]).for_each(|act| model.act(act));
        let mut seen = Vec::new();
        while !model.network.is_quiet() {
            assert!(model.network.step());
            seen.extend(model.ends.iter_mut().map(|end| all(&mut end.pair)));
        }
        seen
    };
    assert_eq!(order(5), order(5));
    assert!((0..20).any(|seed| order(seed) != order(5)));
}
