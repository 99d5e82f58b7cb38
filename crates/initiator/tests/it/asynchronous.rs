//! An asynchronous namespace behaves like the blocking one: commands are split and retried, and
//! every buffer is returned.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::peer::{Action, BLOCK, Peer};
use ebof_initiator::queues::IoError;
use ebof_initiator::{AsyncNamespace, Controller, Data, Error};
use ebof_nvme::copy::Copy;
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Nsid, Status};
use pollster::block_on;

fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| u8::try_from((i * 7 + i / 256 + seed) % 251).unwrap()).collect()
}

async fn open(peer: &Peer) -> AsyncNamespace {
    let controller = Controller::connect_async(&peer.options()).await.unwrap();
    AsyncNamespace::open(&controller, Nsid(1)).await.unwrap()
}

/// One command of the peer takes 256 blocks at most.
// @test host.asynchronous
#[test]
fn every_command_is_split_like_blocking_calls() {
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

/// 128 KiB have room for 252 blocks with their protection information.
#[test]
fn blocks_with_protection_information_are_compared_in_parts() {
    const BLOCKS: usize = 600;
    let peer = Peer::new();
    peer.state().protected = true;
    let (sender, lengths) = std::sync::mpsc::channel();
    peer.state().on_io = Box::new(move |sqe| {
        if sqe.opcode == nvm::COMPARE {
            sender.send(sqe.dptr.decode().length()).unwrap();
        }
        Action::Serve
    });
    block_on(async {
        let namespace = open(&peer).await;
        let data = namespace.write(7, pattern(9, BLOCKS * BLOCK), false).await.unwrap();
        let (mut equal, mut data) = namespace.compare(7, data).await.unwrap();
        assert!(equal);
        assert_eq!(lengths.try_iter().collect::<Vec<_>>(), [252 * 520, 252 * 520, 96 * 520]);
        for at in [0, 252 * BLOCK, BLOCKS * BLOCK - 1] {
            data[at] ^= 1;
            (equal, data) = namespace.compare(7, data).await.unwrap();
            assert!(!equal, "byte {at}");
            data[at] ^= 1;
        }
        assert!(namespace.compare(7, data).await.unwrap().0);
    });
}

/// A range of the peer's has 7 blocks at most, a Copy 4 ranges and 20 blocks.
// @test host.asynchronous
#[test]
fn ranges_are_copied_in_parts_and_again_after_a_loss() {
    let peer = Peer::new();
    let mut commands = 0;
    let (sender, copies) = std::sync::mpsc::channel();
    peer.state().on_io = Box::new(move |sqe| {
        if sqe.opcode == nvm::COPY {
            commands += 1;
            sender.send(Copy::decode(sqe)).unwrap();
        }
        match commands {
            2 if sqe.opcode == nvm::COPY => Action::Hangup,
            4 if sqe.opcode == nvm::COPY => Action::Fail(Status::COMMAND_INTERRUPTED),
            _ => Action::Serve,
        }
    });
    block_on(async {
        let namespace = open(&peer).await;
        let first = namespace.write(0, pattern(1, 100 * BLOCK), false).await.unwrap();
        let ranges = [(3, 50), (90, 0), (60, 2), (70, 1)];
        namespace.copy(&ranges, 1000).await.unwrap();
        let wanted = [&first[3 * BLOCK..53 * BLOCK], &first[60 * BLOCK..62 * BLOCK], &first[70 * BLOCK..71 * BLOCK]];
        let wanted = wanted.concat();
        assert!(namespace.read(1000, vec![0; 53 * BLOCK]).await.unwrap() == wanted);
        let copies: Vec<Copy> = copies.try_iter().collect();
        assert_eq!(copies.iter().map(|copy| copy.ranges).max(), Some(4));
        assert!(copies.iter().all(|copy| (copy.read_protection, copy.write_protection) == (0, 0)));
        // The same in a blocking call, which has separate code. An empty range is ignored, and does
        // not hide other ranges.
        for (ranges, to) in [(vec![(0, 10)], 9), (vec![(20, 10), (9, 2)], 0), (vec![(12, 0), (20, 10)], 11)] {
            let refused = namespace.copy(&ranges, to).await.unwrap_err();
            assert!(matches!(refused, Error::Overlap { .. }), "{refused}");
            assert!(matches!(namespace.info().copy(&ranges, to).unwrap_err(), Error::Overlap { .. }));
        }
        namespace.copy(&[(0, 10)], 10).await.unwrap();
        assert!(matches!(namespace.copy(&[(0, 10)], 4090).await.unwrap_err(), Error::OutOfRange { lba: 4090, .. }));
        assert!(matches!(namespace.copy(&[(4090, 10)], 0).await.unwrap_err(), Error::OutOfRange { lba: 4090, .. }));
    });
}

// @test host.sent-once
#[test]
fn a_command_without_a_method_is_sent_unchanged() {
    let peer = Peer::new();
    block_on(async {
        let namespace = open(&peer).await;
        let block = BlockRange::new(5, 1);
        let done = namespace.submit(block.encode(nvm::WRITE, Nsid(0)), Data::FromHost(vec![9; BLOCK])).await;
        assert!(done.result.unwrap().status().is_success());
        assert_eq!(done.data.into_buffer().unwrap(), [9; BLOCK]);
        let done = namespace.submit(block.encode(nvm::READ, Nsid(77)), Data::ToHost(vec![0; BLOCK])).await;
        assert!(matches!(done.data, Data::ToHost(buffer) if buffer == [9; BLOCK]));
        assert!(namespace.submit(block.encode(nvm::WRITE_UNCORRECTABLE, Nsid(1)), Data::None).await.result.is_ok());
        // A status is a result; a loss is reported and not retried.
        let beyond = BlockRange::new(4096, 1).encode(nvm::READ, Nsid(1));
        let done = namespace.submit(beyond, Data::ToHost(vec![0; BLOCK])).await;
        assert!(done.result.unwrap().status().is(Status::LBA_OUT_OF_RANGE));
        peer.state().on_io = Box::new(|_| Action::Hangup);
        let done = namespace.submit(block.encode(nvm::WRITE, Nsid(1)), Data::FromHost(vec![1; BLOCK])).await;
        assert!(matches!(done.result, Err(Error::Lost(_))), "{:?}", done.result);
        assert_eq!(done.data.into_buffer().unwrap(), [1; BLOCK]);
    });
}

// @test host.asynchronous
#[test]
fn a_refused_command_returns_its_buffer() {
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
        // The second of three commands fails: the whole buffer is returned.
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

// @test host.asynchronous
#[test]
fn commands_are_retried_after_losses_and_transient_statuses() {
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

/// A flush, a check or a write through the cache that is answered without the controller would be
/// a promise about data that nobody has kept.
#[test]
fn a_flush_and_the_like_are_the_controllers_answer() {
    let peer = Peer::new();
    let (sent, commands) = std::sync::mpsc::channel();
    block_on(async {
        let namespace = open(&peer).await;
        peer.state().on_io = Box::new(move |sqe| {
            sent.send((sqe.opcode, sqe.nsid(), sqe.cdw12.get() >> 30 & 1)).unwrap();
            Action::Serve
        });
        namespace.flush().await.unwrap();
        namespace.verify(0, 8).await.unwrap();
        for fua in [false, true] {
            namespace.write(0, vec![7; BLOCK], fua).await.unwrap();
        }
        peer.state().on_io = Box::new(|_| Action::Fail(Status::WRITE_FAULT.dnr()));
        assert!(namespace.flush().await.is_err());
    });
    let expected = [(nvm::FLUSH, 0), (nvm::VERIFY, 0), (nvm::WRITE, 0), (nvm::WRITE, 1)];
    let expected = expected.map(|(opcode, fua)| (opcode, Nsid(1), fua));
    assert_eq!(commands.iter().collect::<Vec<_>>(), expected);
}

/// Do Not Retry is the target's word on the command, whatever the status.
#[test]
fn a_command_that_is_not_to_be_retried_is_sent_once() {
    let peer = Peer::new();
    let commands = Arc::new(AtomicUsize::new(0));
    block_on(async {
        let namespace = open(&peer).await;
        let transient = [Status::COMMAND_INTERRUPTED, Status::NAMESPACE_NOT_READY, Status::TRANSIENT_TRANSPORT_ERROR];
        for status in transient {
            let count = Arc::clone(&commands);
            peer.state().on_io = Box::new(move |_| {
                count.fetch_add(1, Ordering::SeqCst);
                Action::Fail(status.dnr())
            });
            let before = commands.load(Ordering::SeqCst);
            let IoError { reason, buffer } = namespace.read(0, vec![0; BLOCK]).await.unwrap_err();
            assert_eq!((commands.load(Ordering::SeqCst) - before, buffer.unwrap().len()), (1, BLOCK), "{reason}");
        }
    });
}

#[test]
fn pending_commands_end_when_the_controller_is_given_up() {
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
fn a_failed_connect_reports_what_was_tried() {
    let mut options = crate::peer::options("127.0.0.1:1".parse().unwrap());
    options.connect_timeout_ms = 2000;
    let error = block_on(Controller::connect_async(&options)).unwrap_err();
    let short = format!("{error}");
    let long = format!("{error:#}");
    assert!(!short.contains('\n') && short.contains("127.0.0.1:1"), "{short}");
    assert!(long.starts_with(&short) && long.contains("\n  tried:  ") && long.contains("\n  to do:  "), "{long}");
}

/// Tasks on several threads share one namespace; a future that is dropped in progress leaves
/// nothing behind.
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
