//! A namespace as futures does what the blocking one does: split, retried, and with every buffer given back.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod peer;

use std::time::Duration;

use ebof_initiator::queues::IoError;
use ebof_initiator::{AsyncNamespace, Controller, Error};
use ebof_nvme::{Nsid, Status};
use peer::{Action, BLOCK, Peer};
use pollster::block_on;

fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| u8::try_from((i * 7 + i / 256 + seed) % 251).unwrap()).collect()
}

async fn open(peer: &Peer) -> AsyncNamespace {
    let controller = Controller::connect_async(&peer.options()).await.unwrap();
    AsyncNamespace::open(&controller, Nsid(1)).await.unwrap()
}

/// One command of the peer takes 256 blocks at most.
#[test]
fn every_command_is_split_as_the_blocking_calls_are() {
    let peer = Peer::new();
    block_on(async {
        let namespace = open(&peer).await;
        assert_eq!((namespace.info().block_bytes(), namespace.info().max_transfer_blocks()), (512, 256));
        for (seed, blocks) in [1, 9, 256, 257, 1000].into_iter().enumerate() {
            let data = pattern(seed, blocks * BLOCK);
            let data = namespace.write(11, data, seed % 2 == 0).await.unwrap();
            let back = namespace.read(11, vec![0; data.len()]).await.unwrap();
            assert!(back == data, "{blocks} blocks");
            let (equal, mut back) = namespace.compare(11, back).await.unwrap();
            assert!(equal);
            back[blocks * BLOCK - 1] ^= 1;
            let (equal, back) = namespace.compare(11, back).await.unwrap();
            assert!(!equal && back.len() == data.len());
        }
        namespace.flush().await.unwrap();
        namespace.verify(0, 4096).await.unwrap();
        namespace.write_zeroes(12, 300, false).await.unwrap();
        namespace.deallocate(&[(400, 3), (500, 1)]).await.unwrap();
        for lba in [12, 311, 402, 500] {
            let back = namespace.read(lba, vec![1; BLOCK]).await.unwrap();
            assert!(back.iter().all(|&byte| byte == 0), "block {lba} was zeroed");
        }
        let back = namespace.read(403, vec![0; BLOCK]).await.unwrap();
        assert!(back.iter().any(|&byte| byte != 0));
    });
}

#[test]
fn what_is_refused_gives_the_buffer_back() {
    let peer = Peer::new();
    block_on(async {
        let namespace = open(&peer).await;
        let IoError { reason, buffer } = namespace.read(0, vec![0; 100]).await.unwrap_err();
        assert!(matches!(reason, Error::Unaligned { bytes: 100, .. }), "{reason}");
        assert_eq!(buffer.unwrap().len(), 100);
        let IoError { reason, buffer } = namespace.write(4095, vec![7; 2 * BLOCK], false).await.unwrap_err();
        assert!(matches!(reason, Error::OutOfRange { lba: 4095, blocks: 2, size: 4096 }), "{reason}");
        assert_eq!(buffer.unwrap(), [7; 2 * BLOCK]);
        assert!(matches!(namespace.verify(4096, 1).await.unwrap_err(), Error::OutOfRange { .. }));
        // The second of three commands fails: the whole buffer comes back.
        let mut commands = 0;
        peer.state().on_io = Box::new(move |_| {
            commands += 1;
            if commands == 2 { Action::Fail(Status::WRITE_FAULT.dnr()) } else { Action::Serve }
        });
        let IoError { reason, buffer } = namespace.write(0, vec![7; 600 * BLOCK], false).await.unwrap_err();
        assert!(reason.status().is_some_and(|status| status.is(Status::WRITE_FAULT)), "{reason}");
        assert_eq!(buffer.unwrap().len(), 600 * BLOCK);
    });
}

#[test]
fn losses_and_passing_statuses_are_outlived() {
    let peer = Peer::new();
    let mut commands = 0;
    peer.state().on_io = Box::new(move |_| {
        commands += 1;
        match commands % 9 {
            3 => Action::Hangup,
            5 => Action::Fail(Status::COMMAND_INTERRUPTED),
            _ => Action::Serve,
        }
    });
    block_on(async {
        let namespace = open(&peer).await;
        for round in 0..8u8 {
            let data = namespace.write(u64::from(round), vec![round; 700 * BLOCK], false).await.unwrap();
            let back = namespace.read(u64::from(round), vec![0xff; 700 * BLOCK]).await.unwrap();
            assert!(back == data, "round {round}");
        }
    });
}

#[test]
fn a_controller_that_does_not_return_ends_what_waits() {
    let peer = Peer::new();
    let mut options = peer.options();
    options.ctrl_loss_tmo = Some(Duration::from_millis(300));
    block_on(async {
        let controller = Controller::connect_async(&options).await.unwrap();
        let namespace: AsyncNamespace = AsyncNamespace::open(&controller, Nsid(1)).await.unwrap();
        namespace.flush().await.unwrap();
        peer.state().closed = true;
        peer.hang_up();
        let IoError { reason, buffer } = namespace.read(0, vec![0; BLOCK]).await.unwrap_err();
        assert!(reason.is_connection(), "{reason}");
        assert_eq!(buffer.unwrap().len(), BLOCK);
    });
}

#[test]
fn connecting_to_nothing_says_what_was_tried() {
    let mut options = peer::options("127.0.0.1:1".parse().unwrap());
    options.connect_timeout_ms = 2000;
    let error = block_on(Controller::connect_async(&options)).unwrap_err();
    let (short, long) = (format!("{error}"), format!("{error:#}"));
    assert!(!short.contains('\n') && short.contains("127.0.0.1:1"), "{short}");
    assert!(long.starts_with(&short) && long.contains("\n  tried:  ") && long.contains("\n  to do:  "), "{long}");
}

/// Tasks on several threads share one namespace; a future that is dropped half-way leaves nothing behind.
#[test]
fn tasks_share_a_namespace_and_may_be_dropped() {
    let peer = Peer::new();
    let namespace = block_on(open(&peer));
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let namespace = namespace.clone();
            scope.spawn(move || {
                for round in 0..20 {
                    let data = pattern(usize::try_from(thread * 100 + round).unwrap(), 3 * BLOCK);
                    let data = block_on(namespace.write(thread * 8, data, false)).unwrap();
                    let mut dropped = Box::pin(namespace.read(thread * 8, vec![0; 3 * BLOCK]));
                    let waker = std::task::Waker::noop();
                    let _ = dropped.as_mut().poll(&mut std::task::Context::from_waker(waker));
                    drop(dropped);
                    assert!(block_on(namespace.read(thread * 8, vec![0; 3 * BLOCK])).unwrap() == data);
                }
            });
        }
    });
}
