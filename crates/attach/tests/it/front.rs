//! Both fronts over blocks in memory.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebof_attach::block_queue::{Namespace, Table};
use ebof_attach::device::{self, Front};
use ebof_attach::fuse::{FuseOptions, Server};
use ebof_attach::{Kind, usage};

use crate::memory::{Away, Medium, Memory, namespace};

/// open(2)
pub(crate) const O_DIRECT: i32 = 0o40_000;
/// open(2)
const O_SYNC: i32 = 0o4_010_000;

/// Why this front is not available here.
pub(crate) fn missing(kind: Kind) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("not root".to_owned());
    }
    device::choose(kind).err().map(|error| error.to_string())
}

/// Bytes at an address that is aligned for direct I/O.
pub(crate) struct Aligned {
    storage: Vec<u8>,
    from: usize,
    len: usize,
}

impl Aligned {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let mut storage = vec![0; bytes.len() + 4096];
        let from = storage.as_ptr().align_offset(4096);
        storage[from..from + bytes.len()].copy_from_slice(bytes);
        Self { storage, from, len: bytes.len() }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.storage[self.from..self.from + self.len]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.from..self.from + self.len]
    }
}

/// A namespace in memory as a block device; everything is removed on drop.
struct Rig {
    directory: tempfile::TempDir,
    medium: Arc<Mutex<Medium>>,
    front: Option<Front>,
    device: PathBuf,
    mounted: Option<PathBuf>,
}

impl Rig {
    fn new(kind: Kind, namespace: &Namespace, threads: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let bytes = usize::try_from(namespace.size_bytes()).unwrap();
        let medium = Arc::new(Mutex::new(Medium { bytes: vec![0; bytes], ..Medium::default() }));
        let memories = (0..threads).map(|_| Memory::new(&medium, namespace.block_bytes, 32)).collect();
        let front = Front::start(kind, directory.path(), namespace.transfer_max_bytes, memories).unwrap();
        let mut rig = Self { directory, medium, front: Some(front), device: PathBuf::new(), mounted: None };
        rig.device = rig.front.as_mut().unwrap().add("nvme0n1", namespace).unwrap();
        rig
    }

    fn device(&self) -> &str {
        self.device.to_str().unwrap()
    }

    /// A number of the block device's queue.
    fn queue(&self, name: &str) -> u64 {
        let device = self.device.file_name().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(format!("/sys/block/{device}/queue/{name}")).unwrap();
        text.trim().parse().unwrap()
    }

    fn mount(&mut self) -> PathBuf {
        self.mount_with(&[])
    }

    fn mount_with(&mut self, options: &[&str]) -> PathBuf {
        let place = self.directory.path().join("fs");
        std::fs::create_dir_all(&place).unwrap();
        run("mount", &[options, &[self.device(), place.to_str().unwrap()]].concat());
        self.mounted = Some(place.clone());
        place
    }

    fn unmount(&mut self) {
        if let Some(place) = &self.mounted {
            run("umount", &[place.to_str().unwrap()]);
            self.mounted = None;
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(place) = self.mounted.take() {
            let _ = Command::new("umount").args(["-l"]).arg(place).status();
        }
        if let Some(front) = self.front.take() {
            front.stop();
        }
    }
}

pub(crate) fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {text}");
}

/// Bytes that contain their position.
pub(crate) fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..bytes.div_ceil(8)).flat_map(|_| next()).take(bytes).collect()
}

pub(crate) fn a_file_system_lives_on_the_device(kind: Kind) {
    for (block_bytes, threads) in [(512, 1), (4096, 2)] {
        let mut rig = Rig::new(kind, &namespace(7, block_bytes, (64 << 20) / u64::from(block_bytes)), threads);
        assert_eq!(rig.queue("logical_block_size"), u64::from(block_bytes));
        assert_eq!(usage::used_by(&rig.device), None);
        run("mkfs.ext4", &["-q", rig.device()]);
        let place = rig.mount();
        let used = usage::used_by(&rig.device).unwrap();
        assert!(used.contains(place.to_str().unwrap()), "{used}");
        let data = pattern(u64::from(block_bytes), 20 << 20);
        let mut file = File::create(place.join("data")).unwrap();
        file.write_all(&data).unwrap();
        file.sync_all().unwrap();
        drop(file);
        rig.unmount();
        run("blockdev", &["--flushbufs", rig.device()]);
        let place = rig.mount();
        let mut back = Vec::new();
        File::open(place.join("data")).unwrap().read_to_end(&mut back).unwrap();
        assert!(back == data, "what was written comes back");
        rig.unmount();
        run("e2fsck", &["-fn", rig.device()]);
        let medium = rig.medium.lock().unwrap();
        assert!(medium.flushes + medium.forced_writes > 0, "fsync reaches the medium");
    }
}

pub(crate) fn zeroes_and_discards_reach_the_medium(kind: Kind) {
    let rig = Rig::new(kind, &namespace(7, 512, 32_768), 1);
    rig.medium.lock().unwrap().bytes.fill(0xaa);
    // More than one command: the transfer limit is 1024 blocks.
    run("blkdiscard", &["--zeroout", "--offset", "1048576", "--length", "2097152", rig.device()]);
    {
        let medium = rig.medium.lock().unwrap();
        assert_eq!(medium.zeroed_blocks, 4096);
        assert!(medium.bytes[1 << 20..3 << 20].iter().all(|&byte| byte == 0));
        assert!(medium.bytes[3 << 20] == 0xaa && medium.bytes[(1 << 20) - 1] == 0xaa);
    }
    let before = rig.medium.lock().unwrap().deallocated_blocks;
    run("blkdiscard", &["--offset", "4194304", "--length", "2097152", rig.device()]);
    assert_eq!(rig.medium.lock().unwrap().deallocated_blocks - before, 4096);
}

pub(crate) fn large_transfers_are_whole(kind: Kind) {
    // A controller with a small transfer limit: large requests are split, and data stay in order.
    let small = Namespace { transfer_max_bytes: 64 << 10, ..namespace(1, 4096, 4096) };
    for namespace in [namespace(1, 4096, 4096), small] {
        let rig = Rig::new(kind, &namespace, 2);
        let device = OpenOptions::new().read(true).write(true).custom_flags(O_DIRECT).open(&rig.device).unwrap();
        let data = Aligned::new(&pattern(9, 8 << 20));
        device.write_all_at(data.bytes(), 4 << 20).unwrap();
        assert!(rig.medium.lock().unwrap().bytes[4 << 20..12 << 20] == *data.bytes());
        let mut back = Aligned::new(&vec![0; 8 << 20]);
        device.read_exact_at(back.bytes_mut(), 4 << 20).unwrap();
        assert!(back.bytes() == data.bytes());
        let largest = rig.medium.lock().unwrap().largest_bytes;
        assert!(largest > 4096 && largest <= namespace.transfer_max_bytes as usize, "{largest}");
    }
}

pub(crate) fn what_is_read_only_stays_as_it_is(kind: Kind) {
    let rig = Rig::new(kind, &Namespace { read_only: true, ..namespace(1, 4096, 1024) }, 1);
    let mut block = [1; 4096];
    File::open(&rig.device).unwrap().read_exact(&mut block).unwrap();
    assert_eq!(block, [0; 4096]);
    let device = OpenOptions::new().write(true).custom_flags(O_SYNC).open(&rig.device);
    assert!(device.and_then(|device| device.write_all_at(&[1; 4096], 0)).is_err());
    assert_eq!(rig.medium.lock().unwrap().bytes[0], 0);
}

/// A file system that is mounted read-only stays mounted.
pub(crate) fn a_device_in_use_becomes_read_only_and_writable_again(kind: Kind) {
    let writable = namespace(1, 4096, 4096);
    let mut rig = Rig::new(kind, &writable, 1);
    run("mkfs.ext4", &["-q", rig.device()]);
    let place = rig.mount();
    std::fs::write(place.join("data"), [2; 4096]).unwrap();
    rig.unmount();
    let place = rig.mount_with(&["-o", "ro"]);
    let protected = Namespace { read_only: true, ..writable.clone() };
    for namespace in [&protected, &writable, &protected] {
        let _followed = rig.front.as_mut().unwrap().update("nvme0n1", namespace).unwrap();
        let device = OpenOptions::new().read(true).write(true).custom_flags(O_DIRECT).open(&rig.device);
        let written =
            device.and_then(|device| device.write_all_at(Aligned::new(&[1; 4096]).bytes(), (16 << 20) - 4096));
        assert_eq!(written.is_err(), namespace.read_only, "{written:?}");
        let mut back = Aligned::new(&[0; 4096]);
        let file = OpenOptions::new().read(true).custom_flags(O_DIRECT).open(place.join("data")).unwrap();
        file.read_exact_at(back.bytes_mut(), 0).unwrap();
        assert_eq!(back.bytes(), [2; 4096]);
    }
    rig.unmount();
    // The next user of a loop device does not inherit it.
    let device = rig.device.clone();
    drop(rig);
    if kind == Kind::Loop {
        let ro = Path::new("/sys/block").join(device.file_name().unwrap()).join("ro");
        assert_eq!(std::fs::read_to_string(ro).unwrap().trim(), "0");
    }
}

/// This process is one that a look into /proc does not find: the kernel counts it.
// @test host.disconnect
pub(crate) fn a_device_that_is_open_somewhere_is_not_taken_away(kind: Kind) {
    let mut rig = Rig::new(kind, &namespace(1, 4096, 4096), 1);
    let front = rig.front.as_mut().unwrap();
    let second = front.add("nvme0n2", &Namespace { read_only: true, ..namespace(2, 4096, 1024) }).unwrap();
    for path in [&rig.device, &second] {
        let user = OpenOptions::new().read(true).custom_flags(O_DIRECT).open(path).unwrap();
        let refused = front.remove_unused();
        if kind == Kind::Ublk && refused.is_ok() {
            println!("this kernel's ublk does not count who has a device open");
            return;
        }
        let name = if *path == second { "nvme0n2" } else { "nvme0n1" };
        assert_eq!(refused.unwrap_err().name, name);
        user.read_exact_at(Aligned::new(&[1; 4096]).bytes_mut(), 0).unwrap();
        drop(user);
        // Neither is gone, and neither goes with the next user.
        assert_eq!((front.path("nvme0n1"), front.path("nvme0n2")), (Some(&*rig.device), Some(&*second)));
        File::open(&rig.device).unwrap().read_exact(&mut [0; 4096]).unwrap();
        File::open(&second).unwrap().read_exact(&mut [0; 4096]).unwrap();
        let ro = Path::new("/sys/class/block").join(second.file_name().unwrap()).join("ro");
        assert_eq!(std::fs::read_to_string(ro).unwrap().trim(), "1");
    }
    front.remove_unused().unwrap();
    assert_eq!((front.path("nvme0n1"), front.path("nvme0n2")), (None, None));
}

pub(crate) fn devices_come_and_go_under_load(kind: Kind) {
    let mut rig = Rig::new(kind, &namespace(1, 4096, 4096), 2);
    let first = rig.device.clone();
    let reader = std::thread::spawn({
        let first = first.clone();
        move || {
            let device = OpenOptions::new().read(true).custom_flags(O_DIRECT).open(first).unwrap();
            let mut block = Aligned::new(&[1; 4096]);
            // Ends with an error when the device is removed, and must not hang.
            while device.read_exact_at(block.bytes_mut(), 4096).is_ok() {}
        }
    });
    let front = rig.front.as_mut().unwrap();
    let second = front.add("nvme0n2", &namespace(2, 4096, 1024)).unwrap();
    assert_ne!(first, second);
    let mut block = [1; 4096];
    File::open(&second).unwrap().read_exact(&mut block).unwrap();
    front.remove("nvme0n2").unwrap();
    // A loop device in use is removed with its last user, which ends when the backing file fails.
    front.remove("nvme0n1").unwrap();
    reader.join().unwrap();
    let again = front.add("nvme0n1", &namespace(1, 4096, 2048)).unwrap();
    let size = File::open(&again).unwrap().seek(SeekFrom::End(0)).unwrap();
    assert_eq!(size, 2048 * 4096);
    if kind == Kind::Loop {
        assert!(front.update("nvme0n1", &namespace(1, 4096, 3072)).unwrap());
        assert_eq!(File::open(&again).unwrap().seek(SeekFrom::End(0)).unwrap(), 3072 * 4096);
    }
}

/// The file of the FUSE front, used directly.
pub(crate) fn the_file_follows_its_namespace() {
    let directory = tempfile::tempdir().unwrap();
    let table = Arc::new(Table::new());
    let medium = Arc::new(Mutex::new(Medium { bytes: vec![0; 4 << 20], ..Medium::default() }));
    table.insert("nvme0n1", namespace(7, 4096, 1024));
    let memory = Memory::new(&medium, 4096, 32);
    let server = Server::mount(directory.path(), &table, vec![memory], FuseOptions::default()).unwrap();
    let path = server.file("nvme0n1");
    let file = File::open(&path).unwrap();
    let mut first = [0; 4096];
    file.read_exact_at(&mut first, 0).unwrap();
    assert_eq!(file.read_at(&mut first, 4 << 20).unwrap(), 0, "nothing behind the end");
    assert!(File::open(server.file("nvme0n2")).is_err());
    assert!(std::fs::read_dir(directory.path()).and_then(|mut list| list.next().transpose()).is_err(), "no listing");
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    let zero = rustix::fs::FallocateFlags::ZERO_RANGE;
    rustix::fs::fallocate(&writer, zero, 1 << 20, 4096).unwrap();
    assert_eq!(medium.lock().unwrap().deallocated_blocks, 0, "zeroed and kept");
    assert_eq!(rustix::fs::fallocate(&writer, zero, (1 << 20) + 1, 4096), Err(rustix::io::Errno::INVAL));
    assert!(rustix::fs::fallocate(&writer, zero, 4 << 20, 4096).is_err());
    assert!(table.remove("nvme0n1"));
    assert!(file.read_exact_at(&mut first, 0).is_err());
    // A new file with the name is another namespace: the open file stays invalid.
    table.insert("nvme0n1", namespace(7, 4096, 512));
    assert!(file.read_exact_at(&mut first, 0).is_err());
    let again = File::open(&path).unwrap();
    assert_eq!(again.metadata().unwrap().len(), 512 * 4096);
    again.read_exact_at(&mut first, 0).unwrap();
    let synchronous = OpenOptions::new().write(true).custom_flags(O_SYNC).open(&path).unwrap();
    synchronous.write_all_at(&[1; 4096], 4096).unwrap();
    assert_eq!(medium.lock().unwrap().forced_writes, 1, "O_SYNC forces unit access");
    // The server ends while a file is open: errors, no hang.
    drop(server);
    assert!(again.read_exact_at(&mut first, 0).is_err());
}

/// Processor time of this process so far.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap(), u32::try_from(time.tv_nsec).unwrap())
}

/// During an outage requests accumulate in the kernel's queue: a worker that can take no more must
/// not busy-loop.
// @test host.waiting
pub(crate) fn a_worker_that_can_take_no_more_sleeps() {
    let directory = tempfile::tempdir().unwrap();
    let table = Arc::new(Table::new());
    table.insert("nvme0n1", namespace(7, 4096, 1024));
    let gone = Arc::new(AtomicBool::new(false));
    let server = Server::mount(directory.path(), &table, vec![Away::new(&gone)], FuseOptions::default()).unwrap();
    let file = Arc::new(File::open(server.file("nvme0n1")).unwrap());
    let readers: Vec<_> = (0..8)
        .map(|block| {
            let file = Arc::clone(&file);
            std::thread::spawn(move || file.read_exact_at(&mut [0; 4096], block * 4096).unwrap_err())
        })
        .collect();
    // Until all of them wait in the kernel, which cannot be queried exactly: long enough.
    std::thread::sleep(Duration::from_millis(300));
    let before = processor_time();
    std::thread::sleep(Duration::from_secs(1));
    let used = processor_time() - before;
    gone.store(true, Ordering::Release);
    for reader in readers {
        reader.join().unwrap();
    }
    assert!(used < Duration::from_millis(300), "{used:?} of processor time in a second of waiting");
}

/// `cargo test -p ebof-attach --test it -- measure`: what FUSE and the loop device cost, with fio
/// on the loop device.
pub(crate) fn measure(kind: Kind) {
    if let Some(reason) = missing(kind) {
        println!("cannot measure: {reason}");
        return;
    }
    let threads: usize = std::env::var("THREADS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let rig = Rig::new(kind, &namespace(1, 4096, 65_536), threads);
    for (pattern, size, depth) in [
        ("randread", "4k", 1),
        ("randread", "4k", 32),
        ("randread", "4k", 128),
        ("randwrite", "4k", 32),
        ("read", "1m", 8),
    ] {
        let output = Command::new("fio")
            .args(["--name=x", "--direct=1", "--ioengine=io_uring", "--time_based", "--runtime=3", "--minimal"])
            .args([format!("--rw={pattern}"), format!("--bs={size}"), format!("--iodepth={depth}")])
            .arg(format!("--filename={}", rig.device.display()))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // fio(1), terse output: fields 6 to 8 are the reads' KiB, KiB/s and IOPS, 47 to 49 the
        // writes'.
        let fields: Vec<&str> = text.trim().split(';').collect();
        let first = if pattern == "randwrite" { 47 } else { 6 };
        println!("{pattern} {size} depth {depth}: {} IOPS, {} KiB/s", fields[first + 1], fields[first]);
    }
}
