//! Queues that threads and futures share: data are not mixed up, slots are assigned in order, no
//! call waits for ever.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use crate::peer::{Action, BLOCK, Peer};
use ebof_initiator::queues::SharedNamespace;
use ebof_initiator::{Controller, Data, Error, IoBuffer, QueueMaps, Queues};
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Nsid, Status};

fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|i| u8::try_from((i * 7 + i / 256 + seed * 13) % 251).unwrap()).collect()
}

fn drive(peer: &Peer, io: u16, write: u16, poll: u16, entries: u16) -> SharedNamespace {
    let mut options = peer.options();
    options.nr_io_queues = io;
    options.nr_write_queues = write;
    options.nr_poll_queues = poll;
    options.queue_size = entries;
    let controller = Controller::connect(&options).unwrap();
    Queues::new(&controller).unwrap().namespace(Nsid(1)).unwrap()
}

/// Writes blocks of its own, reads them back, compares; with a payload that goes in capsules or by
/// R2T.
fn write_and_read(drive: &SharedNamespace, thread: u64, rounds: u64, blocks: u64) {
    let bytes = usize::try_from(blocks).unwrap() * BLOCK;
    for round in 0..rounds {
        let data = pattern(thread * 1000 + round, bytes);
        let lba = thread * blocks;
        let data = drive.write(lba, data, false).unwrap();
        let back = drive.read(lba, vec![0; bytes]).unwrap();
        assert!(back == data, "thread {thread}, round {round}");
    }
}

#[test]
fn more_threads_than_slots_read_what_they_wrote() {
    for (io, write, poll, entries) in [(1, 0, 0, 3), (2, 1, 0, 4), (1, 1, 1, 2)] {
        let peer = Peer::new();
        let drive = drive(&peer, io, write, poll, entries);
        std::thread::scope(|scope| {
            for thread in 0..12 {
                let drive = if thread % 3 == 0 { drive.polled() } else { drive.clone() };
                scope.spawn(move || write_and_read(&drive, thread, 25, if thread % 2 == 0 { 2 } else { 24 }));
            }
        });
        drive.flush().unwrap();
        drive.write_zeroes(0, 8, true).unwrap();
        assert!(drive.read(0, vec![1; 8 * BLOCK]).unwrap().iter().all(|&byte| byte == 0));
    }
}

#[test]
fn held_requests_of_threads_and_futures_are_all_sent() {
    let peer = Peer::new();
    let mut options = peer.options();
    options.nr_io_queues = 1;
    options.batch_timeout_us = 3000;
    options.batch_nr = 5;
    let controller = Controller::connect(&options).unwrap();
    let drive: SharedNamespace = Queues::new(&controller).unwrap().namespace(Nsid(1)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..7 {
            let drive = drive.clone();
            scope.spawn(move || write_and_read(&drive, thread, 10, if thread % 2 == 0 { 2 } else { 24 }));
        }
    });
    let reads: Vec<_> = (0..7).map(|lba| drive.read_async(lba, vec![0; BLOCK])).collect();
    for read in reads {
        pollster::block_on(read).unwrap();
    }
}

#[test]
fn queue_maps_are_used_by_class() {
    let peer = Peer::new();
    let drive = drive(&peer, 2, 1, 1, 8);
    let queues = Queues::<Vec<u8>>::new(drive.namespace().controller());
    assert!(matches!(queues.unwrap_err(), Error::NoFreeQueue { granted: 4 }), "the first has them all");
    let controller = drive.namespace().controller().clone();
    assert_eq!(controller.queue_maps(), QueueMaps { default: 1, read: 2, poll: 1 });
    drop(drive);
    assert_eq!(Queues::<Vec<u8>>::new(&controller).unwrap().maps(), controller.queue_maps());
}

#[test]
fn futures_run_without_a_runtime_and_return_their_buffers() {
    let peer = Peer::new();
    let drive = drive(&peer, 1, 0, 0, 8);
    let writes: Vec<_> = (0..20).map(|i| drive.write_async(i * 4, pattern(i, 4 * BLOCK), i % 2 == 0)).collect();
    for (i, write) in writes.into_iter().enumerate() {
        assert_eq!(pollster::block_on(write).unwrap(), pattern(i as u64, 4 * BLOCK));
    }
    pollster::block_on(drive.flush_async()).unwrap();
    // More futures than slots, awaited in another order by several threads.
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let drive = &drive;
            scope.spawn(move || {
                for round in 0..10 {
                    let i = (thread * 5 + round) % 20;
                    let read = drive.read_async(i * 4, vec![0; 4 * BLOCK]);
                    assert!(pollster::block_on(read).unwrap() == pattern(i, 4 * BLOCK));
                }
            });
        }
        scope.spawn(|| {
            for round in 0..10 {
                assert!(drive.read(round * 4, vec![0; 4 * BLOCK]).unwrap() == pattern(round, 4 * BLOCK));
            }
        });
    });
    let refused = pollster::block_on(drive.read_async(4096, vec![0; BLOCK])).unwrap_err();
    assert!(matches!(refused.reason, Error::OutOfRange { .. }) && refused.buffer.unwrap().len() == BLOCK);
}

/// A buffer that reports its drop.
struct Counted(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl AsMut<[u8]> for Counted {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl IoBuffer for Counted {}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Release);
    }
}

#[test]
fn dropped_futures_keep_their_buffers_until_completion_and_free_their_slots() {
    let peer = Peer::new();
    let hold = Arc::new(AtomicBool::new(true));
    let mut options = peer.options();
    options.nr_io_queues = 1;
    options.queue_size = 4;
    let controller = Controller::connect(&options).unwrap();
    let queues: Queues<Counted> = Queues::new(&controller).unwrap();
    let (told, waits) = mpsc::channel();
    let holds = Arc::clone(&hold);
    peer.state().on_io = Box::new(move |_| {
        told.send(()).unwrap();
        while holds.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Action::Serve
    });
    let drops = Arc::new(AtomicUsize::new(0));
    let read = || BlockRange::new(0, 1).encode(nvm::READ, Nsid(1));
    let start = || queues.submit(read(), Data::ToHost(Counted(vec![1; BLOCK], Arc::clone(&drops))));
    let sent: Vec<_> = (0..3).map(|_| start()).collect();
    waits.recv().unwrap();
    drop(sent);
    assert_eq!(drops.load(Ordering::Acquire), 0, "the controller may still fill them");
    // Without a slot nothing is outstanding, and the buffer is dropped immediately; so is that of a
    // future that waits for a slot.
    drop(start());
    let mut waiting = start();
    assert!(pin!(&mut waiting).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(waiting);
    assert_eq!(drops.load(Ordering::Acquire), 2);
    hold.store(false, Ordering::Release);
    // All three slots become free.
    let again: Vec<_> = (0..3).map(|_| start()).collect();
    for one in again {
        assert!(pollster::block_on(one).result.unwrap().status().is_success());
    }
    assert_eq!(drops.load(Ordering::Acquire), 8);
}

#[test]
fn a_lost_connection_ends_outstanding_commands_and_blocking_calls_continue() {
    let peer = Peer::new();
    let drive = drive(&peer, 2, 1, 1, 8);
    let stop = AtomicBool::new(false);
    let rounds = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let drive = if thread % 4 == 0 { drive.polled() } else { drive.clone() };
            let stop = &stop;
            let rounds = &rounds;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    write_and_read(&drive, thread, 1, 16);
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let async_drive = drive.clone();
        let stop = &stop;
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                match pollster::block_on(async_drive.read_async(4000, vec![0; BLOCK])) {
                    Ok(buffer) => assert_eq!(buffer.len(), BLOCK),
                    Err(error) => assert!(error.reason.is_connection(), "{error}"),
                }
            }
        });
        for _ in 0..4 {
            let before = rounds.load(Ordering::Relaxed);
            let deadline = Instant::now() + Duration::from_secs(20);
            while rounds.load(Ordering::Relaxed) < before + 20 {
                assert!(Instant::now() < deadline, "nothing goes on after the loss");
                std::thread::sleep(Duration::from_millis(1));
            }
            peer.hang_up();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn unanswered_commands_time_out_for_threads_and_futures() {
    let peer = Peer::new();
    let mut options = peer.options();
    options.nr_io_queues = 1;
    options.command_timeout_ms = 100;
    options.reconnect_delay_ms = 20;
    options.fast_io_fail_tmo = Some(Duration::ZERO);
    let controller = Controller::connect(&options).unwrap();
    let drive: SharedNamespace = Queues::new(&controller).unwrap().namespace(Nsid(1)).unwrap();
    peer.state().on_io = Box::new(|_| Action::Ignore);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let error = drive.read(0, vec![0; BLOCK]).unwrap_err();
                assert!(error.reason.is_connection(), "{error}");
                assert_eq!(error.buffer.unwrap().len(), BLOCK);
            });
        }
        scope.spawn(|| {
            assert!(pollster::block_on(drive.read_async(0, vec![0; BLOCK])).unwrap_err().reason.is_connection());
        });
    });
    assert!(!peer.state().aborts.is_empty());
    peer.state().on_io = Box::new(|_| Action::Serve);
    assert!(controller.wait_live(Some(Instant::now() + Duration::from_secs(10))));
    let deadline = Instant::now() + Duration::from_secs(10);
    while let Err(error) = drive.read(0, vec![0; BLOCK]) {
        assert!(error.reason.is_connection() && Instant::now() < deadline, "{error}");
    }
}

#[test]
fn a_disconnect_ends_waiting_calls() {
    let peer = Peer::new();
    let drive = drive(&peer, 1, 0, 1, 3);
    let (told, waits) = mpsc::channel();
    peer.state().on_io = Box::new(move |_| {
        let _ = told.send(());
        Action::Ignore
    });
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let drive = if thread % 2 == 0 { drive.polled() } else { drive.clone() };
            scope.spawn(move || {
                let error = drive.read(0, vec![0; BLOCK]).unwrap_err();
                assert!(error.reason.is_connection(), "{error}");
            });
        }
        scope.spawn(|| assert!(pollster::block_on(drive.read_async(0, vec![0; BLOCK])).is_err()));
        waits.recv().unwrap();
        drive.namespace().controller().clone().disconnect();
    });
}

#[test]
fn a_status_is_an_error_and_a_transient_one_is_retried() {
    let peer = Peer::new();
    let drive = drive(&peer, 1, 0, 0, 8);
    peer.state().on_io = Box::new(|_| Action::Fail(Status::WRITE_FAULT.dnr()));
    let error = drive.write(0, vec![0; BLOCK], false).unwrap_err();
    assert_eq!(error.to_string(), "Write: Write Fault (SCT 2h, SC 80h, DNR)");
    assert!(pollster::block_on(drive.write_async(0, vec![0; BLOCK], false)).unwrap_err().buffer.is_some());
    let mut left = 2;
    peer.state().on_io = Box::new(move |_| {
        left -= 1;
        if left >= 0 { Action::Fail(Status::COMMAND_INTERRUPTED) } else { Action::Serve }
    });
    drive.flush().unwrap();
    let too_large = drive.read(0, vec![0; 4000 * BLOCK]).unwrap_err();
    assert!(matches!(too_large.reason, Error::TooLarge { .. }));
}

#[test]
fn a_future_may_drop_the_queues_in_its_own_driver() {
    struct DropsFuture(std::sync::Mutex<Option<ebof_initiator::queues::TransferFuture<Vec<u8>>>>, mpsc::SyncSender<()>);
    impl Wake for DropsFuture {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().unwrap().take());
            let _ = self.1.send(());
        }
    }
    let peer = Peer::new();
    let (told, waits) = mpsc::sync_channel(1);
    let one = drive(&peer, 1, 0, 0, 8);
    let mut future = one.read_async(0, vec![0; BLOCK]);
    let waker = Arc::new(DropsFuture(std::sync::Mutex::new(None), told));
    let polled = pin!(&mut future).poll(&mut Context::from_waker(&Waker::from(Arc::clone(&waker))));
    *waker.0.lock().unwrap() = Some(future);
    drop(one);
    // It may have completed before it was polled, or been woken before it was stored.
    if polled.is_pending() && waits.recv_timeout(Duration::from_secs(10)).is_err() {
        panic!("the future was not woken");
    }
}

/// Another thread may receive the completion for which a thread sleeps, and poll again before that
/// one runs.
#[test]
fn a_caller_that_sleeps_is_woken_although_another_thread_polls() {
    let peer = Peer::new();
    let mut options = peer.options();
    options.nr_io_queues = 1;
    options.spin_us = 0;
    let queues: Queues<Vec<u8>> = Queues::new(&Controller::connect(&options).unwrap()).unwrap();
    let sqe = BlockRange::new(1, 1).encode(nvm::READ, Nsid(1));
    let over = AtomicBool::new(false);
    let times: Vec<Duration> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                queues.poll(&sqe);
            }
        });
        let times = (0..1000).map(|_| {
            let began = Instant::now();
            drop(queues.execute(sqe, Data::ToHost(vec![0; BLOCK])));
            began.elapsed()
        });
        let times = times.collect();
        over.store(true, Ordering::Relaxed);
        times
    });
    let longest = times.into_iter().max().unwrap();
    assert!(longest < Duration::from_millis(900), "{longest:?}: only the regular check found it");
}
