//! Zero-copy send at both ends over loopback, where unread data are still in the sender's buffers:
//! a buffer that is reused too early would change the received data.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ebof_initiator::{Controller, Data, Options, QueuePair};
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Nqn, Nsid};
use ebof_server::{Settings, Target};

use crate::config::{NQN, one_subsystem};
use crate::waiting::until;

const DRIVE_BYTES: usize = 64 << 20;
const LARGE: usize = 256 << 10;

/// The contents of each block of 512 bytes.
fn block(lba: u64, generation: u8) -> [u8; 512] {
    let mut block = [generation ^ lba as u8; 512];
    block[..8].copy_from_slice(&lba.to_le_bytes());
    block[511] = generation;
    block
}

fn pattern(lba: u64, bytes: usize, generation: u8) -> Vec<u8> {
    (lba..lba + bytes as u64 / 512).flat_map(|lba| block(lba, generation)).collect()
}

struct World {
    target: Target,
    address: SocketAddr,
    _directory: tempfile::TempDir,
}

impl World {
    /// A target with a file with generation 1 of the pattern, and a null drive, with zero-copy
    /// send. If `always`, it does not fall back to copying.
    fn new(always: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("drive");
        std::fs::write(&path, pattern(0, DRIVE_BYTES, 1)).unwrap();
        let mut config = one_subsystem([path.to_str().unwrap(), "null:64Mi"]);
        config.ports[0].zerocopy_send_bytes = Some(4096);
        let mut settings = Settings { threads: Some(1), pin: false, ..Settings::default() };
        if always {
            settings.zerocopy_copied_max = u32::MAX;
        }
        let target = Target::start(config, settings).unwrap();
        let address = target.addresses()[0].1;
        Self { target, address, _directory: directory }
    }

    fn options(&self, digests: bool) -> Options {
        let mut options = Options::new(self.address.ip().to_string(), self.address.port(), Nqn::parse(NQN).unwrap());
        options.nr_io_queues = 3;
        options.hdr_digest = digests;
        options.data_digest = digests;
        options
    }

    /// A metric of the target.
    fn figure(&self, name: &str) -> u64 {
        let metrics = self.target.metrics(ebof_server::Exposition::OpenMetrics, ebof_server::MetricsDetail::Queue);
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix("_total "));
        line.expect(name).parse().unwrap()
    }
}

fn submit_read(queue: &mut QueuePair, lba: u64, bytes: usize) {
    let sqe = BlockRange::new(lba, (bytes / 512) as u32).encode(nvm::READ, Nsid(1));
    queue.submit(sqe, Data::ToHost(vec![0; bytes]), lba).unwrap();
}

/// Receives all outstanding reads, which must have generation 1 of the pattern.
fn verify_reads(queue: &mut QueuePair) {
    while queue.in_flight() > 0 {
        let completion = queue.wait(None).unwrap().unwrap();
        assert!(completion.result.unwrap().status().is_success());
        let data = completion.data.into_buffer().unwrap();
        assert!(data == pattern(completion.user, data.len(), 1), "the data of block {}", completion.user);
    }
}

#[test]
fn unacknowledged_data_are_unchanged_while_others_use_the_buffers() {
    let world = World::new(true);
    for digests in [false, true] {
        let controller = Controller::connect(&world.options(digests)).unwrap();
        let mut slow: QueuePair = controller.queue_pair().unwrap();
        let mut quick: QueuePair = controller.queue_pair().unwrap();
        for round in 0..3_u64 {
            // More than the sockets of both ends hold: the data wait in them, unread.
            for i in 0..64 {
                submit_read(&mut slow, (i + round) * 512, LARGE);
            }
            slow.flush().unwrap();
            for i in 0..400_u64 {
                for bytes in [LARGE, 4096, 512, 16 << 10] {
                    submit_read(&mut quick, (i * 7919 + round) % 60_000, bytes);
                }
                verify_reads(&mut quick);
            }
            verify_reads(&mut slow);
        }
        drop((slow, quick));
        controller.disconnect();
    }
    assert!(world.figure("ebof_zerocopy_sends") > 7000);
    assert!(world.figure("ebof_zerocopy_copied") > 0, "the loopback copies");
    assert_eq!(world.figure("ebof_zerocopy_fallbacks"), 0);
}

#[test]
fn writes_arrive_unchanged_although_their_buffers_are_reused() {
    let world = World::new(true);
    for digests in [false, true] {
        let mut options = world.options(digests);
        options.zerocopy_send = Some(4096);
        options.zerocopy_copied_max = u32::MAX;
        let controller = Controller::connect(&options).unwrap();
        let mut queue: QueuePair = controller.queue_pair().unwrap();
        let sizes = [8192, 128 << 10, 4096, 1 << 20, 512];
        let generation = 2 + u8::from(digests);
        let mut lba = 0;
        let mut written = Vec::new();
        let mut buffers: Vec<Vec<u8>> = (0..24).map(|_| Vec::new()).collect();
        while lba < (DRIVE_BYTES / 512) as u64 || queue.in_flight() > 0 {
            while lba < (DRIVE_BYTES / 512) as u64
                && let Some(mut buffer) = buffers.pop()
            {
                let bytes = sizes[written.len() % sizes.len()].min(DRIVE_BYTES - lba as usize * 512);
                buffer.clear();
                buffer.extend_from_slice(&pattern(lba, bytes, generation));
                let sqe = BlockRange::new(lba, (bytes / 512) as u32).encode(nvm::WRITE, Nsid(1));
                queue.submit(sqe, Data::FromHost(buffer), lba).unwrap();
                written.push((lba, bytes));
                lba += bytes as u64 / 512;
            }
            let completion = queue.wait(None).unwrap().unwrap();
            assert!(completion.result.unwrap().status().is_success());
            let mut buffer = completion.data.into_buffer().unwrap();
            buffer.fill(0xee);
            buffers.push(buffer);
        }
        let namespace = controller.namespace(Nsid(1)).unwrap();
        for (lba, bytes) in written {
            let mut back = vec![0; bytes];
            namespace.read(lba, &mut back).unwrap();
            assert!(back == pattern(lba, bytes, generation), "block {lba}");
        }
        drop(queue);
        // A buffer that is borrowed for one call.
        let data = pattern(0, 3 << 20, 9);
        namespace.write(0, &data, false).unwrap();
        let mut back = vec![0; data.len()];
        namespace.read(0, &mut back).unwrap();
        assert!(back == data);
        controller.disconnect();
    }
}

#[test]
fn a_connection_for_which_the_kernel_copies_falls_back_to_copying() {
    let world = World::new(false);
    let mut options = world.options(false);
    options.zerocopy_send = Some(4096);
    let controller = Controller::connect(&options).unwrap();
    let mut queue: QueuePair = controller.queue_pair().unwrap();
    for i in 0..200 {
        submit_read(&mut queue, i * 8, 128 << 10);
        verify_reads(&mut queue);
        let sqe = BlockRange::new(i * 256, 256).encode(nvm::WRITE, Nsid(2));
        queue.submit(sqe, Data::FromHost(vec![1; 128 << 10]), 0).unwrap();
        assert!(queue.wait(None).unwrap().unwrap().result.unwrap().status().is_success());
    }
    assert_eq!(world.figure("ebof_zerocopy_fallbacks"), 1);
    let sends = world.figure("ebof_zerocopy_sends");
    let copied = world.figure("ebof_zerocopy_copied");
    assert!((16..100).contains(&sends) && (16..=sends).contains(&copied), "{sends} sends, {copied} copied");
}

#[test]
fn data_of_memory_and_null_drives_are_copied() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drive");
    std::fs::File::create(&path).unwrap().set_len(8 << 20).unwrap();
    let mut config = one_subsystem(["mem:8Mi", "null:8Mi", path.to_str().unwrap()]);
    config.ports[0].zerocopy_send_bytes = Some(4096);
    let target = Target::start(config, Settings::default()).unwrap();
    let address = target.addresses()[0].1;
    let world = World { target, address, _directory: directory };
    let controller = Controller::connect(&world.options(false)).unwrap();
    for nsid in 1..=3 {
        controller.namespace(Nsid(nsid)).unwrap().read(0, &mut vec![0; 64 << 10]).unwrap();
    }
    // A send is counted when it returns, which may be after the host has the data.
    until("a send without a copy", || world.figure("ebof_zerocopy_sends") > 0);
    assert_eq!(world.figure("ebof_zerocopy_sends"), 1, "only the file's data are sent without a copy");
}

#[test]
fn hosts_that_disconnect_or_never_read_do_not_keep_buffers_or_delay_the_end() {
    let world = World::new(true);
    let fill = |queue: &mut QueuePair| {
        (0..64).for_each(|i| submit_read(queue, i * 512, LARGE));
        queue.flush().unwrap();
    };
    // Disconnects without reading anything, many times: more than the reactor's buffers.
    for _ in 0..40 {
        let controller = Controller::connect(&world.options(false)).unwrap();
        let mut queue: QueuePair = controller.queue_pair().unwrap();
        let sends = world.figure("ebof_zerocopy_sends");
        fill(&mut queue);
        while world.figure("ebof_zerocopy_sends") == sends {
            std::thread::yield_now();
        }
    }
    let controller = Controller::connect(&world.options(false)).unwrap();
    let mut queue: QueuePair = controller.queue_pair().unwrap();
    fill(&mut queue);
    verify_reads(&mut queue);
    // And one that stays to the end.
    fill(&mut queue);
    let started = Instant::now();
    world.target.stop(Duration::from_millis(300));
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}
