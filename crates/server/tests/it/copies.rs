//! Copy over real sockets: the data are correct, and large copies do not delay others.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ebof_initiator::{AdminData, Controller, Data, Options, QueuePair};
use ebof_nvme::copy::{Copy, CopyFormat, CopySource};
use ebof_nvme::feature::HostBehaviorSupport;
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::{Nqn, Nsid, Sqe, Status};
use ebof_server::{Settings, Target};
use zerocopy::IntoBytes;

use crate::config::{NQN, one_subsystem};

const BLOCK: usize = 512;
/// Blocks of 16 MiB: the longest source range.
const LONG: u32 = 32_768;

fn start(drives: &[&str], connection_buffer_bytes: usize) -> (Target, SocketAddr) {
    let settings = Settings { threads: Some(1), pin: false, connection_buffer_bytes, ..Settings::default() };
    let target = Target::start(one_subsystem(drives.iter().copied()), settings).unwrap();
    let address = target.addresses()[0].1;
    (target, address)
}

fn host(address: SocketAddr) -> (Controller, QueuePair<Vec<u8>>) {
    let options = Options::new(address.ip().to_string(), address.port(), Nqn::parse(NQN).unwrap());
    let controller = Controller::connect(&options).unwrap();
    let behavior = HostBehaviorSupport { cdfe: (1 << 2 | 1 << 3).into(), ..HostBehaviorSupport::default() };
    let set = Sqe::new(admin::SET_FEATURES).with_cdw(10, 0x16);
    controller.admin(set, AdminData::FromHost(behavior.as_bytes()), None).unwrap();
    let queue = controller.queue_pair().unwrap();
    (controller, queue)
}

fn copy(format: CopyFormat, nsid: u32, slba: u64, sources: &[CopySource]) -> (Sqe, Vec<u8>) {
    let mut data = Vec::new();
    sources.iter().for_each(|source| source.encode(format, &mut data));
    let ranges = sources.len() as u16;
    (Copy { slba, ranges, format: format.encode(), ..Copy::default() }.encode(Nsid(nsid)), data)
}

/// Status and dword 0.
fn run(queue: &mut QueuePair<Vec<u8>>, (sqe, data): (Sqe, Vec<u8>)) -> (Status, u64) {
    queue.submit(sqe, Data::FromHost(data), 0).unwrap();
    let cqe = queue.wait(None).unwrap().unwrap().result.unwrap();
    (cqe.status(), cqe.result())
}

fn pattern(blocks: usize, seed: usize) -> Vec<u8> {
    (0..blocks * BLOCK).map(|at| (at / 7 + seed * 31 + at / BLOCK) as u8).collect()
}

/// Namespace, first block, blocks.
type Source = (u32, u64, u32);

#[test]
fn bytes_are_copied_within_and_between_namespaces() {
    let directory = tempfile::tempdir().unwrap();
    let file = format!("{}:16Mi", directory.path().join("disk.img").display());
    for drives in [["mem:16Mi", &file], [&file, "mem:16Mi"]] {
        let (_target, address) = start(&drives, 2 << 20);
        let (controller, mut queue) = host(address);
        let mut disks = [pattern(16_384, 1), pattern(16_384, 2)];
        let namespaces = [Nsid(1), Nsid(2)].map(|nsid| controller.namespace(nsid).unwrap());
        for (namespace, disk) in namespaces.iter().zip(&disks) {
            namespace.write(0, disk, false).unwrap();
        }
        // Format, destination, first block there, sources: namespace, first block, blocks.
        let copies: [(_, u32, u64, &[Source]); 4] = [
            (CopyFormat::Format0, 1, 0, &[(1, 100, 1)]),
            (CopyFormat::Format1, 1, 10, &[(1, 5000, 256), (1, 9000, 257), (1, 5000, 1)]),
            (CopyFormat::Format2, 2, 3, &[(1, 0, 3000), (2, 8000, 700), (1, 7, 1)]),
            (CopyFormat::Format3, 1, 12_000, &[(2, 0, 4000)]),
        ];
        for (format, nsid, slba, sources) in copies {
            let ranges = sources.iter().map(|&(nsid, slba, blocks)| CopySource {
                nsid: if format.names_namespace() { Nsid(nsid) } else { Nsid::NONE },
                ..CopySource::new(slba, blocks)
            });
            let done = run(&mut queue, copy(format, nsid, slba, &ranges.collect::<Vec<_>>()));
            assert_eq!(done, (Status::SUCCESS, 0), "{format:?}");
            let mut to = slba as usize * BLOCK;
            for &(from, slba, blocks) in sources {
                let start = slba as usize * BLOCK;
                let bytes = disks[from as usize - 1][start..start + blocks as usize * BLOCK].to_vec();
                disks[nsid as usize - 1][to..to + bytes.len()].copy_from_slice(&bytes);
                to += bytes.len();
            }
        }
        for (namespace, disk) in namespaces.iter().zip(&disks) {
            let mut back = vec![0; disk.len()];
            namespace.read(0, &mut back).unwrap();
            assert!(back == *disk, "{drives:?}");
        }
    }
}

/// A Copy of 64 MiB, the longest that there is, to block `slba`.
fn long(slba: u64) -> (Sqe, Vec<u8>) {
    copy(CopyFormat::Format0, 1, slba, &[CopySource::new(0, LONG); 4])
}

/// The number of concurrent long copies.
const COPIES: u64 = 24;

/// How often another host reads a block, one after the other, while one host copies.
fn reads_beside_copies(copier: &mut QueuePair, reader: &mut QueuePair) -> u64 {
    for user in 0..COPIES {
        let (sqe, data) = long(u64::from(LONG));
        copier.submit(sqe, Data::FromHost(data), user).unwrap();
    }
    copier.flush().unwrap();
    let mut reads = 0;
    while copier.in_flight() > 0 {
        let sqe = BlockRange::new(9, 1).encode(nvm::READ, Nsid(1));
        reader.submit(sqe, Data::ToHost(vec![0; BLOCK]), 0).unwrap();
        assert!(reader.wait(None).unwrap().unwrap().result.unwrap().status().is_success());
        reads += 1;
        while let Some(done) = copier.poll().unwrap() {
            assert_eq!(done.result.unwrap().status(), Status::SUCCESS);
        }
    }
    reads
}

#[test]
fn large_copies_do_not_delay_others_and_stay_within_their_buffers() {
    let (_target, address) = start(&["mem:96Mi"], 2 << 20);
    let (controller, mut queue) = host(address);
    let namespace = controller.namespace(Nsid(1)).unwrap();
    namespace.write(0, &pattern(LONG as usize, 3), false).unwrap();
    let (_other, mut reader) = host(address);
    // A turn copies very little. If reads waited for whole copies, there would be no more reads
    // than copies. All copies together take 40 ms on a fast machine, and where it is busy this
    // thread may have its processor for a few of them only: then it takes many attempts to see the
    // difference.
    let until = Instant::now() + Duration::from_secs(60);
    let mut tries =
        std::iter::from_fn(|| (Instant::now() < until).then(|| reads_beside_copies(&mut queue, &mut reader)));
    assert!(
        tries.any(|reads| reads > COPIES),
        "for a minute never more than {COPIES} reads beside as many copies of 64 MiB"
    );
    let mut back = vec![0; 16 << 20];
    namespace.read(u64::from(4 * LONG), &mut back).unwrap();
    assert!(back == pattern(LONG as usize, 3));
}

#[test]
fn aborted_copies_report_their_progress() {
    let (_target, address) = start(&["mem:96Mi"], 64 << 20);
    let (_controller, mut queue) = host(address);
    for user in 0..24 {
        let (sqe, data) = long(u64::from(LONG));
        queue.submit(sqe, Data::FromHost(data), user).unwrap();
    }
    queue.flush().unwrap();
    for user in 0..24 {
        queue.abort(user);
    }
    let mut aborted = 0;
    while queue.in_flight() > 0 {
        let cqe = queue.wait(None).unwrap().unwrap().result.unwrap();
        if cqe.status().is(Status::ABORT_REQUESTED) {
            assert!(cqe.result() < 4, "{}", cqe.result());
            aborted += 1;
        } else {
            assert_eq!((cqe.status(), cqe.result()), (Status::SUCCESS, 0));
        }
    }
    assert!(aborted > 0);
    assert_eq!(run(&mut queue, copy(CopyFormat::Format0, 1, 0, &[CopySource::new(8, 1)])), (Status::SUCCESS, 0));
}

#[test]
fn hosts_that_disconnect_during_a_copy_leave_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let file = format!("{}:96Mi", directory.path().join("disk.img").display());
    for drive in ["mem:96Mi", &file] {
        let (target, address) = start(&[drive], 64 << 20);
        for _ in 0..4 {
            let (_controller, mut queue) = host(address);
            for user in 0..24 {
                let (sqe, data) = long(u64::from(LONG));
                queue.submit(sqe, Data::FromHost(data), user).unwrap();
            }
            queue.flush().unwrap();
        }
        let (_controller, mut queue) = host(address);
        let small = copy(CopyFormat::Format0, 1, 0, &[CopySource::new(8, 1)]);
        assert_eq!(run(&mut queue, small), (Status::SUCCESS, 0));
        target.stop(Duration::from_secs(20));
    }
}
