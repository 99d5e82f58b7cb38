//! Work that fails, and what becomes of the rest.

use ebof_region::Buffer;
use ebof_verbs::{Event, QueuePair, Remote, WorkCompletion, WorkRequest, WorkStatus};

use crate::ends::{Ends, attributes, completion, event, handshake, is_iwarp, readable, send};

/// Everything comes back, and nothing twice.
fn drained(pair: &mut QueuePair, sends: usize, operations: &[u64]) {
    let mut receives = vec![false; attributes().receives as usize];
    let mut operations = operations.to_vec();
    let mut sends = sends;
    while receives.contains(&false) || sends > 0 || !operations.is_empty() {
        match completion(pair) {
            WorkCompletion::Failed { what: WorkRequest::Receive(slot), status } => {
                assert_eq!(status, WorkStatus::Flushed);
                assert!(!std::mem::replace(&mut receives[slot as usize], true));
            }
            WorkCompletion::Failed { what: WorkRequest::Send(_), .. } => sends -= 1,
            WorkCompletion::Failed { what: WorkRequest::Operation(id), status } => {
                println!("operation {id}: {status}");
                let at = operations.iter().position(|other| *other == id).unwrap();
                operations.swap_remove(at);
            }
            WorkCompletion::Failed { what: WorkRequest::Unsignalled, .. } => {}
            other => panic!("{other:?}"),
        }
    }
    while let Some(completion) = pair.poll().unwrap() {
        assert!(matches!(completion, WorkCompletion::Failed { what: WorkRequest::Unsignalled, .. }), "{completion:?}");
    }
}

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn a_wrong_key_breaks_the_connection() {
    let Ends { mut host, mut target, .. } = Ends::connected();
    let memory = Buffer::zeroed(4096);
    let key = host.remote_key(memory.region()).unwrap();
    let address = memory.region().address() as u64;
    let held = target.hold(Buffer::zeroed(8192)).unwrap();
    target.post_read(held, 0, 4096, Remote { address, key: key ^ 0x5500 }, 1);
    target.post_read(held, 0, 4096, Remote { address, key }, 2);
    target.post_write(held, 0, 4096, Remote { address, key }, None);
    target.post_write(held, 0, 4096, Remote { address, key }, Some(3));
    target.flush().unwrap();
    let mut outstanding = vec![1, 2, 3];
    // With iWARP a write is over when it was sent, and may be reported before a read.
    while outstanding.contains(&1) {
        assert!(target.release(held).is_none(), "the read is under way");
        match completion(&mut target) {
            WorkCompletion::Done { id } if is_iwarp() => outstanding.retain(|other| *other != id),
            WorkCompletion::Failed { what: WorkRequest::Operation(id), status } => {
                println!("operation {id}: {status}");
                assert!(id != 1 || status == WorkStatus::RemoteAccess || is_iwarp());
                outstanding.retain(|other| *other != id);
            }
            WorkCompletion::Failed { .. } if is_iwarp() => {}
            other => panic!("{other:?}"),
        }
    }
    target.disconnect();
    if !is_iwarp() {
        drained(&mut target, 0, &outstanding);
        assert!(target.release(held).is_some());
        assert_eq!(target.room(), 40);
        host.disconnect();
        drained(&mut host, 0, &[]);
        assert!(memory.as_slice().iter().all(|byte| *byte == 0));
    }
}

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn a_range_beyond_the_region_breaks_the_connection() {
    let Ends { mut host, mut target, .. } = Ends::connected();
    let memory = Buffer::zeroed(4096);
    let key = host.remote_key(memory.region()).unwrap();
    let address = memory.region().address() as u64;
    let held = target.hold(Buffer::zeroed(8192)).unwrap();
    target.post_write(held, 0, 4097, Remote { address, key }, Some(1));
    target.flush().unwrap();
    let first = completion(&mut target);
    println!("{first:?}");
    if !is_iwarp() {
        let status = WorkStatus::RemoteAccess;
        assert_eq!(first, WorkCompletion::Failed { what: WorkRequest::Operation(1), status });
    }
    drop(target);
    assert!(event(&mut host) == Event::Disconnected || is_iwarp());
}

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn a_message_longer_than_its_slot_breaks_the_connection() {
    let mut small = attributes();
    small.receive_bytes = 64;
    let Ends { mut host, mut target, .. } = Ends::with(&attributes(), &small, &handshake(&[]));
    send(&mut host, &[1; 65]);
    let at_target = completion(&mut target);
    println!("target: {at_target:?}");
    assert!(matches!(at_target, WorkCompletion::Failed { what: WorkRequest::Receive(_), .. }));
    println!("host: {:?}", completion(&mut host));
}

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn a_message_without_a_receive_fails_when_there_are_no_retries() {
    if is_iwarp() {
        println!("skipped: iWARP has no retries, and soft-iWARP no queue pairs without receives");
        return;
    }
    let mut deaf = attributes();
    deaf.receives = 0;
    let mut handshake = handshake(&[]);
    handshake.rnr_retry_count = 0;
    let Ends { mut host, mut target, .. } = Ends::with(&attributes(), &deaf, &handshake);
    send(&mut host, &[1]);
    let first = completion(&mut host);
    println!("{first:?}");
    assert!(matches!(first, WorkCompletion::Failed { status: WorkStatus::RnrRetryExceeded, .. }));
    host.disconnect();
    assert_eq!(event(&mut target), Event::Disconnected);
}

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn what_is_posted_after_the_end_comes_back() {
    let Ends { mut host, mut target, .. } = Ends::connected();
    target.disconnect();
    assert_eq!(event(&mut host), Event::Disconnected);
    host.disconnect();
    let held = host.hold(Buffer::zeroed(4096)).unwrap();
    host.post_write(held, 0, 16, Remote { address: 0, key: 0 }, Some(5));
    let slot = host.take_send_slot().unwrap();
    host.post_send(slot, 1, None);
    println!("flush: {:?}", host.flush());
    drained(&mut host, 1, &[5]);
    assert!(host.release(held).is_some());
    assert_eq!(host.room(), 40);
}

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn a_queue_pair_is_dropped_with_work_under_way() {
    for _ in 0..10 {
        let Ends { mut host, mut target, .. } = Ends::connected();
        let memory = Buffer::zeroed(1 << 20);
        let key = host.remote_key(memory.region()).unwrap();
        let held = target.hold(Buffer::zeroed(1 << 20)).unwrap();
        for id in 0..16 {
            let remote = Remote { address: memory.region().address() as u64, key };
            target.post_read(held, 0, 1 << 20, remote, id);
        }
        send(&mut target, &[1]);
        drop(target);
        drop(host);
    }
}

/// User space cannot make keys that a peer may invalidate; what becomes of a peer that tries is up
/// to the adapter, and never hangs.
#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn a_message_that_invalidates_a_key_is_received_or_fails() {
    let Ends { mut host, mut target, .. } = Ends::connected();
    let memory = Buffer::zeroed(4096);
    let key = host.remote_key(memory.region()).unwrap();
    let slot = target.take_send_slot().unwrap();
    target.post_send(slot, 16, Some(key));
    // Soft-iWARP does not take such work from programs.
    println!("flush: {:?}", target.flush());
    println!("target: {:?}", completion(&mut target));
    readable(&host, 1000);
    println!("host: {:?}, {:?}", host.poll(), host.poll_event());
}
