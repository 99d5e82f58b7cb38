//! RDMA READs and WRITEs.

use std::sync::Arc;

use ebof_region::Buffer;
use ebof_verbs::{Remote, WorkCompletion};

use crate::ends::{Ends, completion, filled, receive, send, until, until_placed};

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn data_are_read_and_written() {
    let Ends { mut host, mut target, .. } = Ends::connected();
    let memory = filled(64 << 10, 1);
    let key = host.remote_key(memory.region()).unwrap();
    assert_eq!(host.remote_key(memory.region()).unwrap(), key);
    let at = |offset: u64| Remote { address: memory.region().address() as u64 + offset, key };
    let held = target.hold(Buffer::zeroed(64 << 10)).unwrap();
    target.post_read(held, 4096, 8192, at(100), 7);
    target.flush().unwrap();
    assert!(target.release(held).is_none());
    assert_eq!(completion(&mut target), WorkCompletion::Done { id: 7 });
    let mut buffer = target.release(held).unwrap();
    assert_eq!(buffer.as_slice()[4096..4096 + 8192], memory.as_slice()[100..100 + 8192]);
    assert!(buffer.as_slice()[..4096].iter().all(|byte| *byte == 0));
    buffer.as_mut_slice().fill(0xA5);
    let held = target.hold(buffer).unwrap();
    target.post_write(held, 0, 5000, at(1), None);
    target.post_write(held, 0, 10, at(60_000), Some(9));
    target.flush().unwrap();
    assert_eq!(completion(&mut target), WorkCompletion::Done { id: 9 });
    assert!(target.release(held).is_some());
    until_placed(&mut target, &mut host);
    let expected = filled(64 << 10, 1);
    assert_eq!(memory.as_slice()[0], expected.as_slice()[0]);
    assert!(memory.as_slice()[1..5001].iter().all(|byte| *byte == 0xA5));
    assert_eq!(memory.as_slice()[5001..60_000], expected.as_slice()[5001..60_000]);
    assert!(memory.as_slice()[60_000..60_010].iter().all(|byte| *byte == 0xA5));
}

/// What a target does for a read: data, then the completion, without waiting in between.
#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn data_are_there_when_a_later_message_is() {
    let Ends { mut host, mut target, .. } = Ends::connected();
    let memory = Buffer::zeroed(128 << 10);
    let key = host.remote_key(memory.region()).unwrap();
    let remote = Remote { address: memory.region().address() as u64, key };
    let mut buffer = Buffer::zeroed(128 << 10);
    for round in 1..40_u8 {
        buffer.as_mut_slice().fill(round);
        let held = target.hold(buffer).unwrap();
        target.post_write(held, 0, 128 << 10, remote, None);
        send(&mut target, &[round]);
        assert_eq!(receive(&mut host), [round]);
        assert!(memory.as_slice().iter().all(|byte| *byte == round));
        assert!(matches!(completion(&mut target), WorkCompletion::Sent { .. }));
        buffer = target.release(held).unwrap();
    }
}

/// A buffer whose write is over has other data at once, wherever the written ones are.
#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn a_buffer_is_used_again_as_soon_as_its_write_is_over() {
    const BYTES: u32 = 4096;
    let Ends { mut host, mut target, .. } = Ends::connected();
    let memory = Buffer::zeroed(8 * BYTES as usize);
    let key = host.remote_key(memory.region()).unwrap();
    let mut buffers: Vec<Buffer> = (0..8).map(|_| Buffer::zeroed(BYTES as usize)).collect();
    for round in (1..250_u8).cycle().take(200) {
        let mut under_way = Vec::new();
        for (index, mut buffer) in (0_u32..).zip(buffers.drain(..)) {
            buffer.as_mut_slice().fill(round);
            let held = target.hold(buffer).unwrap();
            let address = memory.region().address() as u64 + u64::from(index * BYTES);
            target.post_write(held, 0, BYTES, Remote { address, key }, None);
            under_way.push((held, send(&mut target, &[round])));
        }
        while !under_way.is_empty() {
            let WorkCompletion::Sent { slot: sent } = completion(&mut target) else { panic!("a message is not sent") };
            let (held, _) = under_way.remove(under_way.iter().position(|(_, slot)| *slot == sent).unwrap());
            let mut buffer = target.release(held).unwrap();
            buffer.as_mut_slice().fill(0xFF);
            buffers.push(buffer);
        }
        for _ in 0..8 {
            assert_eq!(receive(&mut host), [round]);
        }
        assert!(memory.as_slice().iter().all(|byte| *byte == round), "round {round}");
    }
}

/// Nothing has to be posted for the buffer of a write to come back.
#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn a_write_without_an_id_is_over_although_nothing_follows() {
    let Ends { mut host, mut target, .. } = Ends::connected();
    let memory = Buffer::zeroed(4096);
    let key = host.remote_key(memory.region()).unwrap();
    let remote = Remote { address: memory.region().address() as u64, key };
    let held = target.hold(filled(4096, 5)).unwrap();
    for offset in [0, 100, 200] {
        target.post_write(held, offset, 100, remote, None);
    }
    target.flush().unwrap();
    let buffer = until(
        || {
            assert_eq!(target.poll().unwrap(), None);
            target.release(held)
        },
        "the end of a write",
    );
    assert_eq!(target.room(), 40);
    until_placed(&mut target, &mut host);
    assert_eq!(&memory.as_slice()[..100], &buffer.as_slice()[200..300]);
}

/// Entries of work without completions come back, too.
#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn the_send_queue_never_fills_up_for_good() {
    let Ends { mut host, mut target, .. } = Ends::connected();
    let memory = Buffer::zeroed(4096);
    let key = host.remote_key(memory.region()).unwrap();
    let remote = Remote { address: memory.region().address() as u64, key };
    let held = target.hold(filled(4096, 3)).unwrap();
    let mut posted = 0;
    while posted < 500 {
        while target.room() > 0 && posted < 500 {
            target.post_write(held, 0, 4096, remote, None);
            posted += 1;
        }
        target.flush().unwrap();
        assert_eq!(target.poll().unwrap(), None);
    }
    let id = 1;
    while target.room() == 0 {
        assert_eq!(target.poll().unwrap(), None);
    }
    target.post_write(held, 0, 1, remote, Some(id));
    target.flush().unwrap();
    assert_eq!(completion(&mut target), WorkCompletion::Done { id });
    assert_eq!(target.room(), 40);
    assert!(target.release(held).is_some());
    until_placed(&mut target, &mut host);
    assert_eq!(memory.as_slice(), filled(4096, 3).as_slice());
}

/// More reads than the host serves at a time: the adapter delays them.
#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn reads_of_many_buffers_are_under_way_together() {
    let Ends { mut host, mut target, .. } = Ends::connected();
    let memory = filled(1 << 20, 9);
    let key = host.remote_key(memory.region()).unwrap();
    for _ in 0..5 {
        let buffers = Buffer::zeroed_together(32 << 10, 32);
        let region = Arc::downgrade(buffers[0].region());
        let held: Vec<_> = buffers.into_iter().map(|buffer| target.hold(buffer).unwrap()).collect();
        for (index, held) in (0_u64..).zip(&held) {
            let address = memory.region().address() as u64 + (index << 15);
            target.post_read(*held, 0, 32 << 10, Remote { address, key }, index);
        }
        assert_eq!(target.room(), 8);
        target.flush().unwrap();
        for index in 0..32 {
            assert_eq!(completion(&mut target), WorkCompletion::Done { id: index });
        }
        for (index, held) in held.into_iter().enumerate() {
            let buffer = target.release(held).unwrap();
            assert!(buffer.as_slice() == &memory.as_slice()[index << 15..(index + 1) << 15]);
        }
        assert!(region.upgrade().is_none(), "the registration keeps no region");
    }
}
