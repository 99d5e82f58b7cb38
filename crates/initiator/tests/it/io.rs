//! Admin commands, reads and writes against a scripted peer, with every kind of data transfer.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::peer::{Action, BLOCK, NQN, Peer};
use ebof_initiator::{AdminData, Controller, Data, Error, QueueClass, QueueMaps, QueuePair, State};
use ebof_nvme::connect::{Connect, ConnectResult};
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::property::offset;
use ebof_nvme::{Nsid, Sqe, Status};

fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| u8::try_from((i * 7 + i / 256 + seed) % 251).unwrap()).collect()
}

/// Writes and reads back in sizes from one block to several commands.
fn round_trips(controller: &Controller) {
    let namespace = controller.namespace(Nsid(1)).unwrap();
    assert_eq!((namespace.block_bytes(), namespace.blocks()), (512, 4096));
    for (seed, blocks) in [1, 2, 8, 9, 64, 256, 257, 1000].into_iter().enumerate() {
        let data = pattern(seed, blocks * BLOCK);
        namespace.write(11, &data, seed % 2 == 0).unwrap();
        let mut back = vec![0; data.len()];
        namespace.read(11, &mut back).unwrap();
        assert!(back == data, "{blocks} blocks");
        assert!(namespace.compare(11, &data).unwrap());
        back[blocks * BLOCK - 1] ^= 1;
        assert!(!namespace.compare(11, &back).unwrap());
    }
    namespace.flush().unwrap();
    namespace.verify(0, 4096).unwrap();
    namespace.write_zeroes(12, 300, false).unwrap();
    namespace.deallocate(&[(400, 3), (500, 1)]).unwrap();
    let mut back = vec![1; BLOCK];
    for lba in [12, 311, 402, 500] {
        namespace.read(lba, &mut back).unwrap();
        assert!(back.iter().all(|&byte| byte == 0), "block {lba} was zeroed");
    }
    namespace.read(403, &mut back).unwrap();
    assert!(back.iter().any(|&byte| byte != 0));
}

#[test]
fn data_arrive_unchanged_with_and_without_digests() {
    for (header, data) in [(false, false), (true, false), (false, true), (true, true)] {
        let peer = Peer::new();
        let mut options = peer.options();
        options.hdr_digest = header;
        options.data_digest = data;
        let controller = Controller::connect(&options).unwrap();
        round_trips(&controller);
        controller.disconnect();
        assert_eq!(peer.state().shutdowns, 1, "disconnect shuts the controller down");
    }
}

/// Linux' target computes the digest over the whole command: its PDUs must not be split unless it
/// requests that.
#[test]
fn large_data_are_split_to_interleave_commands_except_with_data_digests() {
    for data_digest in [false, true] {
        let peer = Peer::new();
        peer.state().config.h2c_data_max = 4 << 20;
        peer.state().mdts = 7;
        peer.state().config.r2t_bytes = 4 << 20;
        let mut options = peer.options();
        options.data_digest = data_digest;
        let controller = Controller::connect(&options).unwrap();
        let mut queue: ebof_initiator::QueuePair<Vec<u8>> = controller.queue_pair().unwrap();
        let bytes = 512 << 10;
        let write = ebof_nvme::io::BlockRange::new(0, bytes / 512).encode(ebof_nvme::opcode::nvm::WRITE, Nsid(1));
        let data = ebof_initiator::AdminData::FromHost(&vec![7; bytes as usize]);
        assert!(queue.execute(write, data).unwrap().status().is_success());
        assert_eq!(peer.state().longest_data, if data_digest { bytes } else { 128 << 10 });
    }
}

#[test]
fn data_arrive_by_r2t_alone_in_small_pieces_and_with_alignment() {
    let peer = Peer::new();
    {
        let mut state = peer.state();
        state.in_capsule = 0;
        state.config.in_capsule_bytes = 0;
        state.config.h2c_data_max = 4096;
        state.config.r2t_bytes = 8192;
        state.config.alignment = 64;
    }
    let mut options = peer.options();
    options.max_r2t = 3;
    round_trips(&Controller::connect(&options).unwrap());
}

#[test]
fn identify_properties_and_queues_are_known() {
    let peer = Peer::new();
    let mut options = peer.options();
    options.nr_io_queues = 9;
    options.queue_size = 16;
    let controller = Controller::connect(&options).unwrap();
    assert_eq!(controller.identify().subsystem_nqn().to_string(), NQN);
    assert_eq!((controller.io_queues(), controller.state(), controller.id().0), (4, State::Live, 7));
    assert_eq!(controller.max_transfer_bytes(), Some(32 * 4096));
    assert_eq!(controller.property_get(offset::VS, 4).unwrap(), 0x2_0000);
    assert_eq!(controller.namespaces().unwrap(), [Nsid(1)]);
    assert!(matches!(controller.namespace(Nsid(2)).unwrap_err(), Error::NoSuchNamespace(Nsid(2))));
    let queues: Vec<QueuePair> = (0..4).map(|_| controller.queue_pair().unwrap()).collect();
    assert_eq!(queues[0].capacity(), 15);
    assert!(matches!(controller.queue_pair::<Vec<u8>>().unwrap_err(), Error::NoFreeQueue { granted: 4 }));
    assert!(matches!(controller.namespace(Nsid(1)).unwrap().flush().unwrap_err(), Error::NoFreeQueue { granted: 4 }));
    drop(queues);
    controller.namespace(Nsid(1)).unwrap().flush().unwrap();
    assert_eq!(peer.state().connects[..2], [(0, 32), (1, 16)]);
}

#[test]
fn queues_are_opened_by_class() {
    let peer = Peer::new();
    let mut options = peer.options();
    options.nr_io_queues = 2;
    options.nr_write_queues = 1;
    options.nr_poll_queues = 3;
    let controller = Controller::connect(&options).unwrap();
    // Six were requested, four are granted: the poll map shrinks.
    assert_eq!(controller.queue_maps(), QueueMaps { default: 1, read: 2, poll: 1 });
    let write: QueuePair = controller.queue_pair_of(QueueClass::Default).unwrap();
    let polled: QueuePair = controller.queue_pair_of(QueueClass::Poll).unwrap();
    let reads: Vec<QueuePair> = (0..2).map(|_| controller.queue_pair_of(QueueClass::Read).unwrap()).collect();
    assert_eq!(
        (write.id().0, polled.id().0, write.class(), polled.class()),
        (1, 4, QueueClass::Default, QueueClass::Poll)
    );
    assert!(reads.iter().all(|queue| queue.class() == QueueClass::Read && (2..=3).contains(&queue.id().0)));
    let refused = controller.queue_pair_of::<Vec<u8>>(QueueClass::Read).unwrap_err();
    assert!(matches!(refused, Error::NoFreeQueue { granted: 2 }), "{refused}");
    drop(reads);
    assert_eq!(controller.queue_pair::<Vec<u8>>().unwrap().class(), QueueClass::Read);
}

#[test]
fn commands_beyond_the_namespace_are_refused_before_they_are_sent() {
    let peer = Peer::new();
    let namespace = Controller::connect(&peer.options()).unwrap().namespace(Nsid(1)).unwrap();
    assert!(matches!(namespace.read(0, &mut [0; 513]).unwrap_err(), Error::Unaligned { bytes: 513, block_bytes: 512 }));
    let error = namespace.write(4095, &[0; 1024], false).unwrap_err();
    assert_eq!(error.to_string(), "blocks 4095 to 4096 are not within the namespace of 4096 blocks");
    assert!(namespace.read(u64::MAX, &mut [0; 512]).is_err());
    namespace.read(4096, &mut []).unwrap();
}

fn read(lba: u64) -> Sqe {
    BlockRange::new(lba, 1).encode(nvm::READ, Nsid(1))
}

#[test]
fn many_outstanding_commands_complete_once_each_with_their_buffers() {
    let peer = Peer::new();
    for (block, bytes) in peer.state().disk.chunks_mut(BLOCK).enumerate() {
        bytes.fill(u8::try_from(block % 251).unwrap());
    }
    let controller = Controller::connect(&peer.options()).unwrap();
    let mut queue: QueuePair<Box<[u8]>> = controller.queue_pair().unwrap();
    let mut submitted = 0;
    let mut done = vec![false; 2000];
    let mut buffers: Vec<Box<[u8]>> = (0..queue.capacity()).map(|_| vec![0; BLOCK].into()).collect();
    while done.contains(&false) {
        while submitted < 2000
            && let Some(buffer) = buffers.pop()
        {
            queue.submit(read(submitted * 2 % 4096), Data::ToHost(buffer), submitted).unwrap();
            submitted += 1;
        }
        let completion = queue.wait(Some(Instant::now() + Duration::from_secs(10))).unwrap().expect("an answer");
        assert!(completion.result.unwrap().status().is_success());
        let buffer = completion.data.into_buffer().unwrap();
        let block = completion.user * 2 % 4096;
        assert!(buffer.iter().all(|&byte| u64::from(byte) == block % 251));
        assert!(!std::mem::replace(&mut done[usize::try_from(completion.user).unwrap()], true));
        buffers.push(buffer);
    }
    assert_eq!(queue.in_flight(), 0);
    assert!(queue.wait(None).unwrap().is_none(), "nothing to wait for");
}

#[test]
fn a_full_queue_returns_the_data_and_execute_works_with_other_commands() {
    let peer = Peer::new();
    let mut options = peer.options();
    options.queue_size = 4;
    let controller = Controller::connect(&options).unwrap();
    let mut queue: QueuePair = controller.queue_pair().unwrap();
    for user in 0..2 {
        queue.submit(read(user), Data::ToHost(vec![9; BLOCK]), user).unwrap();
    }
    let mut block = [1; BLOCK];
    assert!(queue.execute(read(5), AdminData::ToHost(&mut block)).unwrap().status().is_success());
    assert_eq!(block, [0; BLOCK]);
    queue.submit(read(9), Data::ToHost(vec![9; BLOCK]), 2).unwrap();
    let refused = queue.submit(read(9), Data::ToHost(vec![9; BLOCK]), 3).unwrap_err();
    assert!(matches!(refused.reason, Error::QueueFull));
    assert_eq!(refused.data.into_buffer().unwrap().len(), BLOCK);
    let mut users: Vec<u64> = (0..3).map(|_| queue.wait(None).unwrap().unwrap().user).collect();
    users.sort_unstable();
    assert_eq!(users, [0, 1, 2]);
}

#[test]
fn a_queue_that_the_callers_own_commands_fill_is_full() {
    let peer = Peer::new();
    peer.state().on_io = Box::new(|_| Action::Ignore);
    let mut options = peer.options();
    options.queue_size = 4;
    let controller = Controller::connect(&options).unwrap();
    let mut queue: QueuePair = controller.queue_pair().unwrap();
    for user in 0..3 {
        queue.submit(read(user), Data::ToHost(vec![9; BLOCK]), user).unwrap();
    }
    let error = queue.execute(read(5), AdminData::ToHost(&mut [1; BLOCK])).unwrap_err();
    assert!(matches!(error, Error::QueueFull), "{error}");
    assert_eq!(queue.in_flight(), 3);
}

#[test]
fn transfers_take_turns_where_a_queue_has_no_room_for_all_of_their_commands() {
    let peer = Peer::new();
    let mut options = peer.options();
    options.queue_size = 3;
    let controller = Controller::connect(&options).unwrap();
    let namespace = controller.namespace(Nsid(1)).unwrap();
    let data = pattern(5, 2000 * BLOCK);
    namespace.write(11, &data, false).unwrap();
    let mut back = vec![0; data.len()];
    namespace.read(11, &mut back).unwrap();
    assert!(back == data && !namespace.is_write_protected());
    peer.state().nsattr = 1;
    namespace.refresh().unwrap();
    assert!(namespace.is_write_protected());
}

/// The target may not have noticed yet that the queue's last connection was closed.
#[test]
fn a_queue_that_the_target_still_has_is_connected_again() {
    let qid = ConnectResult::Invalid { in_data: false, offset: Connect::QID_OFFSET };
    for (refusal, is_repeated) in [
        ((Status::COMMAND_SEQUENCE_ERROR, 0), true),
        ((Status::INVALID_QUEUE_ID, 0), true),
        ((Status::CONNECT_INVALID_PARAMETERS, qid.encode()), true),
        ((Status::CONNECT_CONTROLLER_BUSY, 0), true),
        ((Status::CONNECT_INVALID_HOST.dnr(), 0), false),
    ] {
        let peer = Peer::new();
        let controller = Controller::connect(&peer.options()).unwrap();
        peer.state().connect = Some(refusal);
        let shared = Arc::clone(&peer.shared);
        let before = peer.state().connects.len();
        let watcher = std::thread::spawn(move || {
            // Once it was refused, it is not any more.
            let began = Instant::now();
            while shared.state().connects.len() == before && began.elapsed() < Duration::from_secs(10) {
                std::thread::yield_now();
            }
            shared.state().connect = None;
        });
        let opened: Result<QueuePair, Error> = controller.queue_pair();
        watcher.join().unwrap();
        let connects = peer.state().connects.len() - before;
        assert_eq!((opened.is_ok(), connects > 1), (is_repeated, is_repeated), "{refusal:?}: {:?}", opened.err());
    }
}

/// The descriptor of a queue pair waits for room in its socket, and for no longer than that.
#[test]
fn a_write_that_no_socket_takes_at_once_goes_on_when_there_is_room() {
    const BYTES: usize = 32 << 20;
    let peer = Peer::new();
    {
        let mut state = peer.state();
        state.disk = vec![0; BYTES];
        state.mdts = 14;
        state.config.h2c_data_max = 1 << 20;
        state.config.r2t_bytes = 64 << 20;
    }
    let mut options = peer.options();
    options.bulk_bytes = None;
    let controller = Controller::connect(&options).unwrap();
    let mut queue: QueuePair = controller.queue_pair().unwrap();
    let range = BlockRange::new(0, u32::try_from(BYTES / BLOCK).unwrap());
    let data = pattern(3, BYTES);
    let began = Instant::now();
    let cqe = queue.execute(range.encode(nvm::WRITE, Nsid(1)), AdminData::FromHost(&data)).unwrap();
    assert!(cqe.status().is_success() && peer.state().disk == data);
    assert!(began.elapsed() < Duration::from_secs(20), "it waited for a time-out: {:?}", began.elapsed());
}

/// Compare carries protection information, which counts for MDTS.
#[test]
fn blocks_with_protection_information_are_compared_in_parts() {
    const BLOCKS: usize = 600;
    let peer = Peer::new();
    peer.state().protected = true;
    let lengths = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&lengths);
    peer.state().on_io = Box::new(move |sqe| {
        if sqe.opcode == nvm::COMPARE {
            seen.lock().unwrap().push(sqe.dptr.decode().length());
        }
        Action::Serve
    });
    let controller = Controller::connect(&peer.options()).unwrap();
    let namespace = controller.namespace(Nsid(1)).unwrap();
    let mut data = pattern(9, BLOCKS * BLOCK);
    namespace.write(7, &data, false).unwrap();
    assert!(namespace.compare(7, &data).unwrap());
    // 128 KiB have room for 252 blocks of 520 bytes.
    assert_eq!(*lengths.lock().unwrap(), [252 * 520, 252 * 520, 96 * 520]);
    for at in [0, 252 * BLOCK, BLOCKS * BLOCK - 1] {
        data[at] ^= 1;
        assert!(!namespace.compare(7, &data).unwrap(), "byte {at}");
        data[at] ^= 1;
    }
    assert!(namespace.compare(7, &data).unwrap());
}

#[test]
fn a_status_is_returned_and_as_an_error_has_its_name() {
    let peer = Peer::new();
    peer.state().on_io = Box::new(|_| Action::Fail(Status::WRITE_FAULT.dnr()));
    let controller = Controller::connect(&peer.options()).unwrap();
    let mut queue: QueuePair = controller.queue_pair().unwrap();
    let cqe = queue.execute(Sqe::new(nvm::FLUSH), AdminData::None).unwrap();
    assert!(cqe.status().is(Status::WRITE_FAULT));
    let error = controller.namespace(Nsid(1)).unwrap().write(0, &[0; 512], false).unwrap_err();
    assert_eq!(error.to_string(), "Write: Write Fault (SCT 2h, SC 80h, DNR)");
}

// @test hostile.target
#[test]
fn success_without_complete_data_is_an_error() {
    let peer = Peer::new();
    peer.state().on_io = Box::new(|_| Action::Half);
    let namespace = Controller::connect(&peer.options()).unwrap().namespace(Nsid(1)).unwrap();
    let error = namespace.read(0, &mut [0; 1024]).unwrap_err();
    assert!(matches!(error, Error::Malformed(_)), "{error}");
}

// @test hostile.target
#[test]
fn success_of_an_admin_command_without_its_data_is_an_error() {
    use ebof_nvme::opcode::admin;
    let peer = Peer::new();
    let controller = Controller::connect(&peer.options()).unwrap();
    for bytes in [0, 4, 4092] {
        peer.state().short = Some((admin::IDENTIFY, bytes));
        let error = controller.identify_namespace(Nsid(1)).unwrap_err();
        assert!(matches!(error, Error::Malformed(_)), "{bytes} bytes: {error}");
        peer.state().short = Some((admin::GET_LOG_PAGE, bytes));
        let error = controller.log_page(Nsid::ALL, 4, 0, &mut [0; 4096]).unwrap_err();
        assert!(matches!(error, Error::Malformed(_)), "{bytes} bytes: {error}");
    }
    peer.state().short = Some((admin::IDENTIFY, 0));
    let error = Controller::connect(&peer.options()).unwrap_err();
    assert_eq!(error.kind().name(), "protocol-violation", "{error}");
}

#[test]
fn a_transient_status_is_retried() {
    let peer = Peer::new();
    let mut left = 3;
    peer.state().on_io = Box::new(move |_| {
        left -= 1;
        if left >= 0 { Action::Fail(Status::COMMAND_INTERRUPTED) } else { Action::Serve }
    });
    let namespace = Controller::connect(&peer.options()).unwrap().namespace(Nsid(1)).unwrap();
    namespace.write(0, &[1; 512], false).unwrap();
    assert_eq!(peer.state().disk[0], 1);
}

#[test]
fn threads_share_a_namespace() {
    let peer = Peer::new();
    let namespace = Controller::connect(&peer.options()).unwrap().namespace(Nsid(1)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let namespace = namespace.clone();
            scope.spawn(move || {
                for round in 0..20 {
                    let data = pattern(usize::try_from(thread + round).unwrap(), 16 * BLOCK);
                    namespace.write(thread * 16, &data, false).unwrap();
                    let mut back = vec![0; data.len()];
                    namespace.read(thread * 16, &mut back).unwrap();
                    assert!(back == data);
                }
            });
        }
    });
}

#[test]
fn large_writes_complete_with_a_constant_stream_of_small_commands() {
    const LARGE: usize = 256 * BLOCK;
    let peer = Peer::new();
    peer.state().config.h2c_data_max = 1 << 20;
    let controller = Controller::connect(&peer.options()).unwrap();
    let mut queue: QueuePair = controller.queue_pair().unwrap();
    let mut small = 0;
    let mut large = 0;
    // Far more than may be in progress together with small commands, each with several R2Ts.
    for write in 0..12 {
        let range = BlockRange::new(write * 256, 256);
        let data = pattern(usize::try_from(write).unwrap(), LARGE);
        queue.submit(range.encode(nvm::WRITE, Nsid(1)), Data::FromHost(data), 100 + write).unwrap();
    }
    queue.submit(read(4000), Data::ToHost(vec![1; BLOCK]), 0).unwrap();
    while large < 12 {
        let completion = queue.wait(Some(Instant::now() + Duration::from_secs(10))).unwrap().expect("an answer");
        assert!(completion.result.unwrap().status().is_success());
        if completion.user >= 100 {
            large += 1;
        } else {
            small += 1;
            queue.submit(read(4000), completion.data, 0).unwrap();
        }
    }
    assert!(small > 0);
    for write in 0..12 {
        let disk = peer.state().disk[write * LARGE..(write + 1) * LARGE].to_vec();
        assert!(disk == pattern(write, LARGE), "write {write}");
    }
}

#[test]
fn held_requests_are_sent_at_their_limit_or_time_out() {
    let peer = Peer::new();
    let mut options = peer.options();
    options.batch_timeout_us = 900_000;
    options.batch_nr = 4;
    let controller = Controller::connect(&options).unwrap();
    let mut queue: QueuePair = controller.queue_pair().unwrap();
    let began = Instant::now();
    for user in 0..3 {
        queue.submit(read(user), Data::ToHost(vec![1; BLOCK]), user).unwrap();
        queue.flush().unwrap();
    }
    assert!(queue.wait(Some(began + Duration::from_millis(300))).unwrap().is_none(), "they are held");
    queue.submit(read(3), Data::ToHost(vec![1; BLOCK]), 3).unwrap();
    for _ in 0..4 {
        assert!(queue.wait(None).unwrap().unwrap().result.is_ok());
    }
    assert!(began.elapsed() < Duration::from_millis(800), "four are enough: {:?}", began.elapsed());
    // A single request is held for its time; a call that waits for one command is not held.
    let began = Instant::now();
    queue.submit(read(0), Data::ToHost(vec![1; BLOCK]), 0).unwrap();
    assert!(queue.wait(None).unwrap().unwrap().result.is_ok());
    assert!(began.elapsed() >= Duration::from_millis(890));
    let began = Instant::now();
    assert!(queue.execute(read(5), AdminData::ToHost(&mut [0; BLOCK])).unwrap().status().is_success());
    assert!(began.elapsed() < Duration::from_millis(800));
}

/// How often this thread has slept, and its processor time.
fn effort() -> (u64, Duration) {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    (count.trim().parse().unwrap(), Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap()))
}

#[test]
fn calls_that_wait_for_a_queue_pair_sleep_until_one_is_free() {
    let peer = Peer::new();
    let controller = Controller::connect(&peer.options()).unwrap();
    let namespace = controller.namespace(Nsid(1)).unwrap();
    // Of the two queues one belongs to the test, the other has a command that is not answered.
    let _queue: QueuePair = controller.queue_pair().unwrap();
    let asked = Arc::new(AtomicBool::new(false));
    let was_asked = Arc::clone(&asked);
    peer.state().on_io = Box::new(move |_| {
        was_asked.store(true, Ordering::SeqCst);
        Action::Ignore
    });
    let read = || {
        namespace.read(0, &mut [0; BLOCK]).unwrap();
        effort()
    };
    let efforts: Vec<(u64, Duration)> = std::thread::scope(|scope| {
        let first = scope.spawn(read);
        while !asked.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let waiting: Vec<_> = (0..3).map(|_| scope.spawn(read)).collect();
        std::thread::sleep(Duration::from_millis(500));
        peer.state().on_io = Box::new(|_| Action::Serve);
        peer.hang_up();
        first.join().unwrap();
        waiting.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (sleeps, time) in &efforts {
        assert!(*sleeps < 40 && *time < Duration::from_millis(100), "they do not just wait: {efforts:?}");
    }
}
