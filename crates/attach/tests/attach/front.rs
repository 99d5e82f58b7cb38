//! FUSE and loop device over blocks in memory.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

use ebof_attach::blocks::Table;
use ebof_attach::fuse::{Options, Server};
use ebof_attach::loopdev;

use crate::memory::{Medium, Memory, namespace};

/// Why there can be no block device here.
pub(crate) fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("not root".to_owned());
    }
    if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
        return Some(format!("/dev/fuse: {error}"));
    }
    loopdev::check().err().map(|error| error.to_string())
}

/// A namespace in memory as a loop device; everything goes when it is dropped.
struct Rig {
    directory: tempfile::TempDir,
    table: Arc<Table>,
    medium: Arc<Mutex<Medium>>,
    server: Option<Server>,
    device: PathBuf,
    mounted: Option<PathBuf>,
}

impl Rig {
    fn new(block_bytes: u32, bytes: usize, threads: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let table = Arc::new(Table::new());
        let medium = Arc::new(Mutex::new(Medium { bytes: vec![0; bytes], ..Medium::default() }));
        let blocks = bytes as u64 / u64::from(block_bytes);
        table.insert("nvme0n1", namespace(7, block_bytes, blocks));
        let fronts = (0..threads).map(|_| Memory::new(&medium, block_bytes, 32)).collect();
        let place = directory.path().join("mnt");
        std::fs::create_dir(&place).unwrap();
        let server = Server::mount(&place, &table, fronts, Options::default()).unwrap();
        let mut rig = Self { directory, table, medium, server: Some(server), device: PathBuf::new(), mounted: None };
        rig.device = loopdev::attach(&rig.file(), block_bytes, false).unwrap();
        rig
    }

    fn file(&self) -> PathBuf {
        self.server.as_ref().unwrap().file("nvme0n1")
    }

    fn mount(&mut self) -> PathBuf {
        let place = self.directory.path().join("fs");
        std::fs::create_dir_all(&place).unwrap();
        run("mount", &[self.device.to_str().unwrap(), place.to_str().unwrap()]);
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
        if !self.device.as_os_str().is_empty() {
            let _ = loopdev::detach(&self.device);
        }
        drop(self.server.take());
    }
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {text}");
}

/// Bytes that tell where they belong.
fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..bytes.div_ceil(8)).flat_map(|_| next()).take(bytes).collect()
}

pub(crate) fn a_file_system_lives_on_the_loop_device() {
    for (block_bytes, threads) in [(512, 1), (4096, 2)] {
        let mut rig = Rig::new(block_bytes, 64 << 20, threads);
        let logical = std::fs::read_to_string(format!(
            "/sys/block/{}/queue/logical_block_size",
            rig.device.file_name().unwrap().to_str().unwrap()
        ));
        assert_eq!(logical.unwrap().trim(), block_bytes.to_string());
        assert_eq!(loopdev::below(rig.directory.path()), [rig.device.clone()]);
        assert_eq!(loopdev::used_by(&rig.device), None);
        run("mkfs.ext4", &["-q", rig.device.to_str().unwrap()]);
        let place = rig.mount();
        let used = loopdev::used_by(&rig.device).unwrap();
        assert!(used.contains(place.to_str().unwrap()), "{used}");
        let data = pattern(u64::from(block_bytes), 20 << 20);
        let mut file = File::create(place.join("data")).unwrap();
        file.write_all(&data).unwrap();
        file.sync_all().unwrap();
        drop(file);
        rig.unmount();
        run("blockdev", &["--flushbufs", rig.device.to_str().unwrap()]);
        let place = rig.mount();
        let mut back = Vec::new();
        File::open(place.join("data")).unwrap().read_to_end(&mut back).unwrap();
        assert!(back == data, "what was written comes back");
        rig.unmount();
        run("e2fsck", &["-fn", rig.device.to_str().unwrap()]);
        assert!(rig.medium.lock().unwrap().flushes > 0, "fsync reaches the medium");
    }
}

pub(crate) fn holes_become_zeroes() {
    let rig = Rig::new(512, 16 << 20, 1);
    rig.medium.lock().unwrap().bytes.fill(0xaa);
    let device = rig.device.to_str().unwrap();
    // More than one command's worth: the namespace takes 1024 blocks at once.
    run("blkdiscard", &["--offset", "1048576", "--length", "2097152", device]);
    {
        let medium = rig.medium.lock().unwrap();
        assert_eq!((medium.zeroed_blocks, medium.deallocated_blocks), (4096, 4096));
        assert!(medium.bytes[1 << 20..3 << 20].iter().all(|&byte| byte == 0));
        assert!(medium.bytes[3 << 20] == 0xaa && medium.bytes[(1 << 20) - 1] == 0xaa);
    }
    // `--zeroout` without unmapping: the space stays.
    let file = OpenOptions::new().write(true).open(rig.file()).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::ZERO_RANGE, 8 << 20, 4096).unwrap();
    let refused = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::ZERO_RANGE, (8 << 20) + 1, 4096);
    assert_eq!(refused, Err(rustix::io::Errno::INVAL));
    let outside = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::ZERO_RANGE, 16 << 20, 4096);
    assert!(outside.is_err());
    let medium = rig.medium.lock().unwrap();
    assert_eq!((medium.zeroed_blocks, medium.deallocated_blocks), (4096 + 8, 4096));
}

pub(crate) fn a_namespace_that_goes_is_gone() {
    let mut rig = Rig::new(4096, 4 << 20, 1);
    let file = File::open(rig.file()).unwrap();
    let mut first = [0; 4096];
    file.read_exact_at(&mut first, 0).unwrap();
    assert_eq!(file.read_at(&mut first, 4 << 20).unwrap(), 0, "nothing behind the end");
    assert!(rig.table.remove("nvme0n1"));
    assert!(file.read_exact_at(&mut first, 0).is_err());
    // What comes back under the name is another namespace: the open file stays dead.
    rig.table.insert("nvme0n1", namespace(7, 4096, 512));
    assert!(file.read_exact_at(&mut first, 0).is_err());
    let again = loop {
        match File::open(rig.file()) {
            Ok(file) if file.metadata().unwrap().len() == 512 * 4096 => break file,
            // The kernel believes the old name for a second.
            _ => std::thread::yield_now(),
        }
    };
    again.read_exact_at(&mut first, 0).unwrap();
    let synchronous = OpenOptions::new().write(true).custom_flags(0o4_010_000).open(rig.file()).unwrap();
    synchronous.write_all_at(&[1; 4096], 4096).unwrap();
    assert_eq!(rig.medium.lock().unwrap().forced_writes, 1, "O_SYNC forces unit access");
    // The server dies under an open device: errors, no hang.
    drop(rig.server.take());
    assert!(again.read_exact_at(&mut first, 0).is_err());
    let mut device = File::open(&rig.device).unwrap();
    device.seek(SeekFrom::Start(0)).unwrap();
    assert!(device.read_exact(&mut first).is_err());
}

/// `cargo test --test attach -- measure`: what FUSE and the loop device cost, with fio on the loop device.
pub(crate) fn measure() {
    if let Some(reason) = missing() {
        println!("cannot measure: {reason}");
        return;
    }
    let threads: usize = std::env::var("THREADS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let rig = Rig::new(4096, 256 << 20, threads);
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
        // fio(1), terse output: fields 6 to 8 are the reads' KiB, KiB/s and IOPS, 47 to 49 the writes'.
        let fields: Vec<&str> = text.trim().split(';').collect();
        let first = if pattern == "randwrite" { 47 } else { 6 };
        println!("{pattern} {size} depth {depth}: {} IOPS, {} KiB/s", fields[first + 1], fields[first]);
    }
}
