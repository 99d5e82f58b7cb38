//! Commands from the slot that they take to the one that collects them.

use ebof_nvme::Status;

use super::*;

/// Not of the buffers whose commands are counted (`engine/instructions.rs`): more callers would
/// change how the compiler lays those out.
type Queue = Slots<Bytes>;
type Bytes = Box<[u8]>;

const FOREVER: u64 = u64::MAX;

fn four(byte: u8) -> Bytes {
    Box::new([byte; 4])
}

/// A command of `user` that sends these bytes.
fn take(slots: &mut Queue, user: u64, byte: u8) -> u16 {
    slots.take(Payload::FromHost(four(byte)), user, FOREVER, 0)
}

fn take_lent(slots: &mut Queue, user: u64, start: usize, length: usize) -> u16 {
    slots.take(Payload::Lent { start, length }, user, FOREVER, 0)
}

fn succeed(slots: &mut Queue, index: u16) {
    let cqe = Cqe::new(slots.at(index).cid, Status::SUCCESS);
    slots.finish(index, Ok(cqe));
}

/// Users and data of what can be collected, with whether it succeeded.
fn collected(slots: &mut Queue) -> Vec<(u64, Option<Bytes>, bool)> {
    std::iter::from_fn(|| slots.pop()).map(|done| (done.user, done.data.into_buffer(), done.result.is_ok())).collect()
}

#[test]
fn a_command_is_found_by_all_of_its_identifier_while_it_is_outstanding() {
    let mut slots = Queue::new(3);
    assert_eq!((slots.table_size(), slots.limit()), (4, 3));
    let index = take(&mut slots, 1, 1);
    let cid = slots.at(index).cid;
    assert_eq!((index, cid, slots.find(cid)), (0, Cid(4), Some(0)));
    // Of an earlier use, of a later one, of a slot that is free, and of one that there is not.
    for other in [0, 8, 1, 5, 7, 3] {
        assert_eq!(slots.find(Cid(other)), None, "{other}");
    }
    succeed(&mut slots, index);
    assert_eq!(slots.find(cid), None);
    assert_eq!(collected(&mut slots).len(), 1);
    let again = take(&mut slots, 1, 1);
    assert_eq!((again, slots.at(again).cid), (0, Cid(8)));
    assert_eq!((slots.find(Cid(4)), slots.find(Cid(8))), (None, Some(0)));
}

#[test]
fn commands_are_collected_with_their_data_in_the_order_in_which_they_end() {
    let mut slots = Queue::new(4);
    let indexes = [1, 2, 3].map(|user| take(&mut slots, user, u8::try_from(user).unwrap()));
    assert_eq!((slots.in_flight(), slots.has_completed()), (3, false));
    for at in [2, 0, 1] {
        succeed(&mut slots, indexes[at]);
    }
    assert_eq!((slots.in_flight(), slots.has_completed()), (3, true), "they are not collected yet");
    let expected = [3, 1, 2].map(|user: u8| (u64::from(user), Some(four(user)), true));
    assert_eq!(collected(&mut slots), expected);
    assert_eq!((slots.in_flight(), slots.has_completed()), (0, false));
}

#[test]
fn as_many_are_outstanding_as_there_may_be() {
    let mut slots = Queue::new(3);
    for (limit, expected) in [(0, 1), (10, 3), (2, 2)] {
        slots.set_limit(limit);
        assert_eq!(slots.limit(), expected);
    }
    let first = take(&mut slots, 1, 1);
    take(&mut slots, 2, 2);
    assert!(slots.is_full());
    // One that is not collected has its slot.
    succeed(&mut slots, first);
    assert!(slots.is_full());
    assert_eq!(collected(&mut slots).len(), 1);
    assert!(!slots.is_full());
    assert_eq!(slots.take(Payload::None, 3, FOREVER, 0), first);
    assert_eq!((Queue::new(0).limit(), Queue::new(u16::MAX).limit()), (1, 4096));
}

/// What the kernel or a network card may still read is not given back.
#[test]
fn a_buffer_is_given_back_when_all_of_it_is_sent() {
    let mut slots = Queue::new(4);
    let [ended, outstanding] = [1, 2].map(|user| take(&mut slots, user, 7));
    slots.at(ended).unsent = 2;
    slots.at(outstanding).unsent = 1;
    succeed(&mut slots, ended);
    slots.payload_sent(outstanding);
    slots.payload_sent(ended);
    assert!(!slots.has_completed());
    slots.payload_sent(ended);
    assert_eq!(collected(&mut slots), [(1, Some(four(7)), true)]);
    succeed(&mut slots, outstanding);
    assert_eq!(collected(&mut slots), [(2, Some(four(7)), true)]);
}

#[test]
fn what_a_card_may_still_read_is_leaked_and_nothing_else() {
    let mut slots = Queue::new(4);
    let [unsent, _sent] = [1, 2].map(|user| take(&mut slots, user, 7));
    let lent = take_lent(&mut slots, 3, 0, 4);
    slots.at(unsent).unsent = 1;
    slots.at(lent).unsent = 1;
    assert_eq!(slots.leak_unsent(), 1);
    slots.fail_all(&Error::QueueFull);
    assert_eq!(collected(&mut slots), [(1, None, false), (2, Some(four(7)), false)]);
}

#[test]
fn the_end_of_a_connection_ends_what_was_outstanding_once() {
    let mut slots = Queue::new(4);
    let [free, completed, draining, outstanding] = [1, 2, 3, 4].map(|user| take(&mut slots, user, 7));
    succeed(&mut slots, free);
    assert_eq!(collected(&mut slots).len(), 1);
    succeed(&mut slots, completed);
    slots.at(draining).unsent = 1;
    succeed(&mut slots, draining);
    slots.at(outstanding).unsent = 3;
    slots.fail_all(&Error::QueueFull);
    let all: Vec<_> = collected(&mut slots).into_iter().map(|(user, _, success)| (user, success)).collect();
    assert_eq!(all, [(2, true), (3, true), (4, false)]);
    assert_eq!(slots.in_flight(), 0);
    slots.fail_all(&Error::QueueFull);
    assert!(!slots.has_completed());
    assert_eq!(slots.at(outstanding).unsent, 0);
}

#[test]
fn commands_with_lent_buffers_are_counted_and_collected_apart() {
    let mut slots = Queue::new(4);
    let lent = [take_lent(&mut slots, 1, 2, 3), take_lent(&mut slots, 2, 5, 1)];
    let own = take(&mut slots, 3, 7);
    assert_eq!(slots.lent(), 2);
    let mut bytes = *b"0123456789";
    assert_eq!(slots.data(lent[0], &AdminData::FromHost(&bytes)), Some(&b"234"[..]));
    assert_eq!(slots.data(lent[1], &AdminData::FromHost(&bytes)), Some(&b"5"[..]));
    assert_eq!(slots.data(lent[0], &AdminData::ToHost(&mut [0; 10])), None);
    assert_eq!(slots.data(own, &AdminData::None), Some(&[7; 4][..]));
    assert_eq!(slots.data_mut(own, &mut AdminData::None), None, "it is sent");
    slots.data_mut(lent[0], &mut AdminData::ToHost(&mut bytes)).unwrap().fill(b'x');
    assert_eq!(&bytes, b"01xxx56789");
    for index in [lent[1], own, lent[0]] {
        succeed(&mut slots, index);
    }
    assert_eq!(slots.lent(), 0);
    let users: Vec<u64> = std::iter::from_fn(|| slots.pop_lent()).map(|(user, _)| user).collect();
    assert_eq!((users, collected(&mut slots).len(), slots.in_flight()), (vec![2, 1], 1, 0));
}

#[test]
fn the_outstanding_ones_of_a_user_are_named() {
    let mut slots = Queue::new(4);
    let indexes = [1, 2, 1, 1].map(|user| take(&mut slots, user, 7));
    succeed(&mut slots, indexes[2]);
    let cids = [indexes[0], indexes[3]].map(|index| slots.at(index).cid);
    assert_eq!(slots.outstanding_of(1).collect::<Vec<_>>(), cids);
    assert_eq!(slots.outstanding_of(3).count(), 0);
}

/// First the command is aborted, then the connection is given up.
#[test]
fn a_command_that_is_too_late_is_aborted_once() {
    let mut slots = Queue::new(4);
    assert_eq!(slots.next_deadline_ms(), FOREVER);
    let at =
        |slots: &mut Queue, user: u64, timeout_ms: u64| slots.take(Payload::FromHost(four(7)), user, timeout_ms, 100);
    let late = at(&mut slots, 1, 50);
    let draining = at(&mut slots, 2, 60);
    let punctual = at(&mut slots, 3, 5000);
    let over = at(&mut slots, 4, 10);
    succeed(&mut slots, over);
    slots.at(draining).unsent = 1;
    succeed(&mut slots, draining);
    let cid = slots.at(late).cid;
    let expire = |slots: &mut Queue, now_ms| {
        let mut aborts = Vec::new();
        let is_hopeless = slots.expire(now_ms, 20, |cid, user| aborts.push((cid, user)));
        (aborts, is_hopeless, slots.next_deadline_ms())
    };
    assert_eq!(expire(&mut slots, 149), (vec![], false, 150));
    assert_eq!(expire(&mut slots, 150), (vec![(cid, 1)], false, 160));
    // The other one has completed, and its buffer is held: nothing is to be aborted.
    assert_eq!(expire(&mut slots, 160), (vec![], false, 170));
    assert_eq!(expire(&mut slots, 169), (vec![], false, 170));
    assert_eq!(expire(&mut slots, 170), (vec![], true, 170));
    succeed(&mut slots, late);
    assert_eq!(slots.next_deadline_ms(), 180);
    assert_eq!(expire(&mut slots, 180), (vec![], true, 180));
    slots.payload_sent(draining);
    assert_eq!(slots.next_deadline_ms(), 5100);
    // The slot's next command has its own time.
    assert_eq!(collected(&mut slots).len(), 3);
    let again = at(&mut slots, 5, 30);
    let cid = slots.at(again).cid;
    assert_eq!(expire(&mut slots, 130), (vec![(cid, 5)], false, 150));
    let cid = slots.at(punctual).cid;
    assert_eq!(slots.find(cid), Some(punctual));
}
