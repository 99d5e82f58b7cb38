//! Queues in a host's memory: a driver on one side, as Linux and the specification have it.

use ebof_nvme::{Cid, Cqe, QueueId, Sqe, Status};
use ebof_testkit::vfio::HostMemory;
use ebof_vfio::rings::{CompletionRing, RingError, Shadow, SubmissionRing};
use ebof_vfio::{Fault, Memory};
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

const SQ: u64 = 0x10_0000;
const CQ: u64 = 0x20_0000;
const DOORBELLS: u64 = 0x30_0000;
const EVENTS: u64 = 0x31_0000;
const QUEUE: QueueId = QueueId(2);

fn memory() -> HostMemory {
    let memory = HostMemory::default();
    memory.map(SQ, 16);
    memory.map(CQ, 4);
    memory.map(DOORBELLS, 1);
    memory.map(EVENTS, 1);
    memory
}

/// The host's side of a Submission Queue: it puts a command and says so.
struct Driver {
    entries: u32,
    tail: u32,
    shadow: Option<Shadow>,
    /// Registers that were written.
    rings: u32,
}

impl Driver {
    fn submit(&mut self, cid: u16, memory: &HostMemory, ring: &mut SubmissionRing) {
        let sqe = Sqe { cid: cid.into(), ..Sqe::new(2) };
        memory.write(SQ + u64::from(self.tail) * 64, sqe.as_bytes()).unwrap();
        let old = self.tail;
        self.tail = (self.tail + 1) % self.entries;
        let Some(shadow) = self.shadow else {
            ring.ring(u16::try_from(self.tail).unwrap(), memory).unwrap();
            return;
        };
        memory.store(shadow.doorbell, self.tail).unwrap();
        if is_passed(memory.load(shadow.event).unwrap(), self.tail, old) {
            self.rings += 1;
            ring.ring(u16::try_from(self.tail).unwrap(), memory).unwrap();
        }
    }
}

/// Whether the register is written. As Linux decides, in 16 bits.
fn is_passed(event: u32, new: u32, old: u32) -> bool {
    let low = |value: u32| u16::try_from(value & 0xffff).unwrap();
    low(new).wrapping_sub(low(event)).wrapping_sub(1) < low(new).wrapping_sub(low(old))
}

#[test]
fn entries_are_copied_out_in_order_and_the_head_wraps() {
    let memory = memory();
    let mut ring = SubmissionRing::new(SQ, 4, QUEUE);
    let mut driver = Driver { entries: 4, tail: 0, shadow: None, rings: 0 };
    assert_eq!((ring.next(&memory), ring.waiting(), ring.entries()), (Ok(None), 0, 4));
    for round in 0..5 {
        for cid in 0..3 {
            driver.submit(round * 3 + cid, &memory, &mut ring);
        }
        assert_eq!(ring.waiting(), 3);
        for cid in 0..3 {
            assert_eq!(ring.next(&memory).unwrap().unwrap().cid(), Cid(round * 3 + cid));
            assert_eq!(ring.head(), (round * 3 + cid + 1) % 4);
        }
        assert_eq!(ring.next(&memory), Ok(None));
    }
    assert_eq!(ring.completion_queue(), QUEUE);
}

#[test]
fn a_controller_that_looks_is_not_rung_for() {
    let memory = memory();
    let mut ring = SubmissionRing::new(SQ, 16, QUEUE);
    let shadow = Shadow::for_queue(DOORBELLS, EVENTS, QUEUE, false);
    ring.set_shadow(Some(shadow), &memory).unwrap();
    let mut driver = Driver { entries: 16, tail: 0, shadow: Some(shadow), rings: 0 };
    let mut completions = CompletionRing::new(CQ, 16, None);
    let heads = Shadow::for_queue(DOORBELLS, EVENTS, QUEUE, true);
    completions.set_shadow(Some(heads), &memory).unwrap();
    let (mut head, mut head_rings) = (0_u32, 0);
    for turn in 0..1000_u16 {
        // It sleeps now and then, and is rung for once.
        if turn % 100 == 0 {
            assert_eq!(ring.arm(&memory), Ok(true));
        }
        let rings = driver.rings;
        for cid in 0..turn % 14 + 1 {
            driver.submit(cid, &memory, &mut ring);
        }
        assert_eq!(driver.rings - rings, u32::from(turn % 100 == 0), "in turn {turn}");
        assert!(ring.poll(&memory).unwrap());
        // Events are indexes of entries: a host may compare them in other ways than Linux.
        assert!(memory.load(shadow.event).unwrap() < 16 && memory.load(heads.event).unwrap() < 16);
        while let Some(sqe) = ring.next(&memory).unwrap() {
            let cqe = Cqe::new(sqe.cid(), Status::SUCCESS);
            assert_eq!(completions.push(&cqe, QUEUE, 0, &memory), Ok(true));
            let (old, event) = (head, memory.load(heads.event).unwrap());
            head = (head + 1) % 16;
            memory.store(heads.doorbell, head).unwrap();
            head_rings += u32::from(is_passed(event, head, old));
        }
    }
    assert_eq!(head_rings, 1, "the first one only");
}

#[test]
fn a_tail_outside_the_queue_is_an_error_and_changes_nothing() {
    let memory = memory();
    let mut ring = SubmissionRing::new(SQ, 4, QUEUE);
    ring.ring(2, &memory).unwrap();
    assert_eq!(ring.ring(4, &memory), Err(RingError::Value { value: 4, entries: 4 }));
    assert_eq!(ring.waiting(), 2);
    let shadow = Shadow::for_queue(DOORBELLS, EVENTS, QueueId(1), false);
    ring.set_shadow(Some(shadow), &memory).unwrap();
    memory.store(shadow.doorbell, 0x1_0000).unwrap();
    assert_eq!(ring.poll(&memory), Err(RingError::Value { value: 0x1_0000, entries: 4 }));
    // It is told once, until there is another value.
    assert_eq!((ring.poll(&memory), ring.ring(3, &memory), ring.arm(&memory)), (Ok(true), Ok(()), Ok(false)));
    memory.store(shadow.doorbell, 5).unwrap();
    assert_eq!(ring.arm(&memory), Err(RingError::Value { value: 5, entries: 4 }));
    memory.store(shadow.doorbell, 3).unwrap();
    assert_eq!((ring.poll(&memory), ring.waiting()), (Ok(true), 3));
    memory.store(shadow.doorbell, 5).unwrap();
    assert_eq!(ring.poll(&memory), Err(RingError::Value { value: 5, entries: 4 }));
    assert_eq!(ring.waiting(), 3);
    // The largest queue, and one that does not exist.
    let mut large = SubmissionRing::new(SQ, 0x1_0000, QUEUE);
    large.ring(0xffff, &memory).unwrap();
    assert_eq!(large.waiting(), 0xffff);
    assert_eq!(
        (SubmissionRing::new(SQ, 0, QUEUE).entries(), SubmissionRing::new(SQ, u32::MAX, QUEUE).entries()),
        (2, 0x1_0000)
    );
}

#[test]
fn memory_that_is_gone_is_a_fault_and_the_head_stays() {
    let memory = memory();
    let mut ring = SubmissionRing::new(SQ, 4, QUEUE);
    ring.ring(1, &memory).unwrap();
    memory.unmap(SQ);
    assert_eq!((ring.next(&memory), ring.head()), (Err(Fault { address: SQ }), 0));
    let mut wrapping = SubmissionRing::new(u64::MAX - 63, 4, QUEUE);
    wrapping.ring(2, &memory).unwrap();
    assert!(wrapping.next(&memory).is_err());
    let mut completions = CompletionRing::new(CQ, 4, None);
    memory.unmap(CQ);
    let cqe = Cqe::new(Cid(1), Status::SUCCESS);
    assert_eq!(completions.push(&cqe, QUEUE, 1, &memory), Err(RingError::Fault(Fault { address: CQ })));
    assert_eq!(completions.unread(), 0);
    let shadow = Shadow { doorbell: 0, event: 0 };
    assert_eq!(completions.set_shadow(Some(shadow), &memory), Err(Fault { address: 0 }));
}

#[test]
fn the_phase_tag_changes_with_each_round_and_one_entry_stays_free() {
    let memory = memory();
    let mut ring = CompletionRing::new(CQ, 3, Some(7));
    assert_eq!((ring.vector(), ring.room()), (Some(7), 2));
    let mut head = 0_u16;
    for number in 0_u16..20 {
        let cqe = Cqe::new(Cid(number), Status::INVALID_OPCODE).with_result(u64::from(number));
        assert_eq!(ring.push(&cqe, QueueId(5), number + 9, &memory), Ok(true));
        let found = Cqe::read_from_bytes(&memory.get(CQ + u64::from(head) * 16, 16)).unwrap();
        assert_eq!((found.cid(), found.status(), found.result()), (Cid(number), Status::INVALID_OPCODE, number.into()));
        assert_eq!((found.sqhd.get(), found.sqid.get()), (number + 9, 5));
        assert_eq!(found.status.get() & 1, u16::from(number / 3 % 2 == 0), "{number}");
        if number % 2 == 1 {
            // Both are taken at once.
            assert_eq!(ring.push(&cqe, QueueId(5), 0, &memory), Ok(false));
            head = (head + 1) % 3;
            ring.ring(head, &memory).unwrap();
            assert_eq!(ring.room(), 2);
        } else {
            head = (head + 1) % 3;
        }
    }
}

#[test]
fn a_head_outside_the_queue_or_past_its_completions_is_an_error() {
    let memory = memory();
    let mut ring = CompletionRing::new(CQ, 4, None);
    let cqe = Cqe::new(Cid(0), Status::SUCCESS);
    for _ in 0..2 {
        assert_eq!(ring.push(&cqe, QUEUE, 0, &memory), Ok(true));
    }
    for value in [3, 4, u16::MAX] {
        assert_eq!(ring.ring(value, &memory), Err(RingError::Value { value: value.into(), entries: 4 }));
    }
    ring.ring(1, &memory).unwrap();
    assert_eq!(ring.ring(0, &memory), Err(RingError::Value { value: 0, entries: 4 }), "backwards");
    ring.ring(1, &memory).unwrap();
    assert_eq!((ring.unread(), ring.room()), (1, 2));
}

#[test]
fn a_full_queue_finds_room_in_its_shadow_doorbell_and_asks_to_be_told() {
    let memory = memory();
    let mut ring = CompletionRing::new(CQ, 3, None);
    let cqe = Cqe::new(Cid(0), Status::SUCCESS);
    assert_eq!(ring.push(&cqe, QUEUE, 0, &memory), Ok(true));
    let shadow = Shadow::for_queue(DOORBELLS, EVENTS, QueueId(1), true);
    assert_eq!((shadow.doorbell, shadow.event), (DOORBELLS + 12, EVENTS + 12));
    ring.set_shadow(Some(shadow), &memory).unwrap();
    assert_eq!(ring.push(&cqe, QUEUE, 0, &memory), Ok(true));
    assert_eq!(ring.push(&cqe, QUEUE, 0, &memory), Ok(false));
    assert_eq!(ring.arm(&memory), Ok(true));
    // Looking at a queue that stays full leaves that as it is.
    assert_eq!((ring.poll(&memory), memory.load(shadow.event)), (Ok(false), Ok(0)));
    memory.store(shadow.doorbell, 2).unwrap();
    assert_eq!(ring.arm(&memory), Ok(false), "there is room already");
    assert_eq!(memory.load(shadow.event), Ok(0), "the head that was seen");
    assert_eq!(ring.push(&cqe, QUEUE, 0, &memory), Ok(true));
    let mut ring = CompletionRing::new(CQ, 4, None);
    ring.set_shadow(Some(shadow), &memory).unwrap();
    assert_eq!(ring.push(&cqe, QUEUE, 0, &memory), Ok(true));
    memory.store(shadow.doorbell, 2).unwrap();
    assert_eq!(ring.poll(&memory), Err(RingError::Value { value: 2, entries: 4 }), "past the last one");
}

proptest! {
    /// With shadow doorbells no command is overlooked, whenever the controller looks, and while it
    /// polls the host does not write the register; also where registers and shadows cross.
    #[test]
    fn no_command_is_overlooked(
        entries in 2_u32..20,
        acts in proptest::collection::vec(0_u8..10, 0..300),
        with_shadow: bool,
    ) {
        let memory = memory();
        let mut ring = SubmissionRing::new(SQ, entries, QUEUE);
        let mut driver = Driver { entries, tail: 0, shadow: None, rings: 0 };
        if with_shadow {
            let shadow = Shadow::for_queue(DOORBELLS, EVENTS, QueueId(1), false);
            ring.set_shadow(Some(shadow), &memory).unwrap();
            driver.shadow = Some(shadow);
        }
        let (mut submitted, mut taken) = (0_u16, 0_u16);
        let mut sleeping = false;
        for act in acts {
            match act {
                0..5 if u32::from(submitted - taken) + 1 < entries => {
                    let rings = driver.rings;
                    driver.submit(submitted, &memory, &mut ring);
                    submitted += 1;
                    if sleeping {
                        // One that sleeps is woken by the register.
                        prop_assert!(!with_shadow || driver.rings > rings);
                        prop_assert_eq!(ring.waiting(), 1);
                        sleeping = false;
                    }
                }
                5..8 => {
                    sleeping = false;
                    ring.poll(&memory).unwrap();
                    if let Some(sqe) = ring.next(&memory).unwrap() {
                        prop_assert_eq!(sqe.cid(), Cid(taken));
                        taken += 1;
                    }
                }
                8 => {
                    let armed = ring.arm(&memory).unwrap();
                    prop_assert_eq!(armed, submitted == taken);
                    sleeping = armed;
                }
                _ => {}
            }
        }
        ring.poll(&memory).unwrap();
        while let Some(sqe) = ring.next(&memory).unwrap() {
            prop_assert_eq!(sqe.cid(), Cid(taken));
            taken += 1;
        }
        prop_assert_eq!(taken, submitted);
    }

    /// Completions of several Submission Queues arrive once each and in order, also where the queue
    /// is full again and again.
    #[test]
    fn no_completion_is_lost(entries in 2_u32..8, with_shadow: bool, acts in proptest::collection::vec(any::<bool>(), 0..200)) {
        let memory = memory();
        let mut ring = CompletionRing::new(CQ, entries, None);
        let shadow = Shadow::for_queue(DOORBELLS, EVENTS, QueueId(1), true);
        if with_shadow {
            ring.set_shadow(Some(shadow), &memory).unwrap();
        }
        let (mut pushed, mut found, mut head, mut phase) = (0_u16, 0_u16, 0_u32, 1);
        for push in acts {
            if push {
                let cqe = Cqe::new(Cid(pushed), Status::SUCCESS);
                let is_full = u32::from(pushed - found) + 1 == entries;
                prop_assert_eq!(ring.push(&cqe, QueueId(pushed % 3), pushed, &memory).unwrap(), !is_full);
                pushed += u16::from(!is_full);
                continue;
            }
            // The host takes what has the phase of this round.
            let cqe = Cqe::read_from_bytes(&memory.get(CQ + u64::from(head) * 16, 16)).unwrap();
            if cqe.status.get() & 1 != phase {
                prop_assert_eq!(found, pushed);
                continue;
            }
            prop_assert_eq!((cqe.cid(), cqe.sqid.get(), cqe.sqhd.get()), (Cid(found), found % 3, found));
            found += 1;
            head = (head + 1) % entries;
            phase ^= u16::from(head == 0);
            if with_shadow {
                memory.store(shadow.doorbell, head).unwrap();
            } else {
                ring.ring(u16::try_from(head).unwrap(), &memory).unwrap();
            }
        }
    }
}
