//! Messages, and how they are waited for.

use ebof_verbs::{Event, SharedReceives, WorkCompletion};

use crate::ends::{Ends, attributes, completion, connect, event, handshake, is_iwarp, readable, receive, send};

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn messages_arrive_in_order_and_slots_are_used_again() {
    let Ends { mut host, mut target, .. } = Ends::connected();
    for round in 0..100_u8 {
        let length = if round % 3 == 0 { 4096 } else { usize::from(round) + 1 };
        let message = vec![round; length];
        send(&mut host, &message);
        assert_eq!(receive(&mut target), message);
        send(&mut target, &message[..1]);
        // The answer can be there before the acknowledgement.
        let (mut is_sent, mut is_answered) = (false, false);
        while !(is_sent && is_answered) {
            match completion(&mut host) {
                WorkCompletion::Sent { .. } => is_sent = true,
                WorkCompletion::Received { slot, length: 1, .. } => {
                    assert_eq!(host.received(slot)[0], round);
                    host.post_receive(slot);
                    host.flush().unwrap();
                    is_answered = true;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(completion(&mut target), WorkCompletion::Sent { .. }));
    }
}

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn many_messages_are_posted_at_once() {
    let Ends { mut host, mut target, .. } = Ends::connected();
    for round in 0..50_u8 {
        for index in 0..8_u8 {
            let slot = host.take_send_slot().unwrap();
            host.send_slot(slot)[..2].copy_from_slice(&[round, index]);
            host.post_send(slot, 2, None);
        }
        assert!(host.take_send_slot().is_none());
        assert_eq!(host.unflushed(), 8);
        host.flush().unwrap();
        for index in 0..8 {
            assert_eq!(receive(&mut target), [round, index]);
        }
        for _ in 0..8 {
            assert!(matches!(completion(&mut host), WorkCompletion::Sent { .. }));
        }
        assert_eq!(host.room(), 40);
    }
}

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn the_descriptor_tells_of_messages() {
    let Ends { mut host, mut target, .. } = Ends::connected();
    for message in 0..10_u8 {
        target.arm().unwrap();
        assert_eq!(target.poll().unwrap(), None);
        assert!(!readable(&target, 0));
        send(&mut host, &[message]);
        assert!(readable(&target, 10_000));
        assert_eq!(receive(&mut target), [message]);
        assert!(matches!(completion(&mut host), WorkCompletion::Sent { .. }));
        // One that was there before it was asked for is found by polling.
        send(&mut host, &[message]);
        assert!(matches!(completion(&mut host), WorkCompletion::Sent { .. }));
        target.arm().unwrap();
        assert_eq!(receive(&mut target), [message]);
        target.arm().unwrap();
    }
}

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn a_polled_queue_pair_needs_no_notification() {
    let mut polled = attributes();
    polled.polled = true;
    let Ends { mut host, mut target, .. } = Ends::with(&polled, &polled, &handshake(&[]));
    for message in 0..10_u8 {
        send(&mut host, &[message]);
        assert_eq!(receive(&mut target), [message]);
        assert!(matches!(completion(&mut host), WorkCompletion::Sent { .. }));
    }
    target.arm().unwrap();
    send(&mut host, &[1]);
    assert!(matches!(completion(&mut host), WorkCompletion::Sent { .. }));
    assert!(!readable(&target, 0));
    host.disconnect();
    assert!(readable(&target, 10_000), "it is told of events");
    assert_eq!(event(&mut target), Event::Disconnected);
}

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn queue_pairs_share_slots() {
    let mut shared = attributes();
    shared.shared_receives = Some(SharedReceives::new(6, 512));
    let Ends { mut host, mut target, mut listener } = Ends::with(&attributes(), &shared, &handshake(&[]));
    let (mut other_host, mut other_target) = connect(&mut listener, &attributes(), &shared, &handshake(&[]));
    for round in 0..20_u8 {
        send(&mut host, &[round]);
        send(&mut other_host, &[round, round]);
        assert_eq!(receive(&mut target), [round]);
        assert_eq!(receive(&mut other_target), [round, round]);
        assert!(matches!(completion(&mut host), WorkCompletion::Sent { .. }));
        assert!(matches!(completion(&mut other_host), WorkCompletion::Sent { .. }));
    }
    // One ends with slots of its own and with messages that it has not polled: others get them.
    for _ in 0..3 {
        send(&mut other_host, b"abandoned");
        assert!(matches!(completion(&mut other_host), WorkCompletion::Sent { .. }));
    }
    assert!(matches!(completion(&mut other_target), WorkCompletion::Received { .. }));
    drop(other_target);
    for round in 0..6_u8 {
        send(&mut host, &[round]);
        assert!(matches!(completion(&mut host), WorkCompletion::Sent { .. }));
    }
    for round in 0..6_u8 {
        assert_eq!(receive(&mut target), [round]);
    }
}

/// Whatever a connection is doing when it ends, its shared slots are there for others.
#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn shared_slots_are_not_lost() {
    // Soft-RoCE loses a slot if the queue pair ends between the packets of its message.
    let bytes = if is_iwarp() { 64 << 10 } else { 512 };
    let mut shared = attributes();
    shared.shared_receives = Some(SharedReceives::new(3, bytes));
    let mut large = attributes();
    large.send_bytes = bytes;
    let Ends { mut host, mut target, mut listener } = Ends::with(&large, &shared, &handshake(&[]));
    for round in 0..12 {
        let (mut other_host, mut other_target) = connect(&mut listener, &large, &shared, &handshake(&[]));
        for _ in 0..3 {
            send(&mut other_host, &vec![1; bytes as usize]);
        }
        if round % 3 > 0 {
            let _ = other_target.poll().unwrap();
        }
        if round % 2 == 0 {
            drop(other_target);
        } else {
            drop(other_host);
            if round % 3 > 0 {
                other_target.disconnect();
            }
            drop(other_target);
        }
        for message in 0..3 {
            send(&mut host, &[message]);
            let completion = completion(&mut host);
            assert!(matches!(completion, WorkCompletion::Sent { .. }), "round {round}: {completion:?}");
        }
        for message in 0..3 {
            assert_eq!(receive(&mut target), [message]);
        }
    }
}
