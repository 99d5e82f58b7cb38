//! Drives that are refused, each with its message.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use ebof_backend::{Spec, open};

struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn file(&self, name: &str, size: u64) -> PathBuf {
        File::create(self.path(name)).unwrap().set_len(size).unwrap();
        self.path(name)
    }

    /// The message for a drive, without the directory.
    fn refusal(&self, drive: &str) -> String {
        let prefix = format!("{}/", self.directory.path().display());
        let spec: Spec = format!("{prefix}{drive}").parse().unwrap();
        open(&spec).expect_err("should be refused").to_string().replace(&prefix, "")
    }
}

// @test data.refused-drive
#[test]
fn a_missing_file() {
    let place = Place::new();
    assert_eq!(
        place.refusal("disk.img"),
        "disk.img does not exist: check the path, or add a size to create it (for example disk.img:10G)"
    );
    assert_eq!(
        place.refusal("disk.img:1Mi,readonly"),
        "disk.img does not exist, and a new file cannot be read-only: drop `readonly` or check the path"
    );
    let error = place.refusal("no/disk.img:1Mi");
    assert_eq!(error, "no/disk.img cannot be created: the directory no does not exist; create it first");
    let error = open(&"/dev/nvme77n1:1Gi".parse().unwrap()).unwrap_err().to_string();
    assert_eq!(error, "/dev/nvme77n1 does not exist: no such device (`lsblk` lists what there is)");
}

// @test data.refused-drive
#[test]
fn a_size_that_is_not_a_multiple_of_the_block_size() {
    let place = Place::new();
    place.file("odd.img", 1_000_000);
    assert_eq!(
        place.refusal("odd.img"),
        "odd.img has 1000000 bytes, which is not a multiple of the block size 512: make it larger (`truncate -s \
         '>1000448' odd.img` for a file)"
    );
    place.file("small.img", 512 * 9);
    assert_eq!(
        place.refusal("small.img,block=4096"),
        "small.img has 4608 bytes, which is not a multiple of the block size 4096: make it larger (`truncate -s \
         '>8192' small.img` for a file), or offer it in blocks of 512 bytes (serve: `--block-size \
         512`; configuration: `block_size = 512`; bench: `block=512`)"
    );
    // A created file is rounded up: 100M is not a multiple of 4096 bytes.
    let new = format!("{}:1M,block=4096", place.path("new.img").display());
    for _made_then_there in 0..2 {
        assert_eq!(open(&new.parse().unwrap()).unwrap().geometry().capacity_bytes, 1_003_520);
    }
    let memory = open(&"mem:1M,block=4096".parse().unwrap()).unwrap();
    assert_eq!(memory.geometry().capacity_bytes, 1_003_520);
    let error = open(&"mem:17Ti".parse().unwrap()).unwrap_err().to_string();
    assert_eq!(error, "mem: 18691697672192 bytes are more than 16Ti, the most a drive in memory can have");
}

#[test]
fn a_size_other_than_the_requested_one() {
    let place = Place::new();
    place.file("disk.img", 1 << 20);
    assert_eq!(
        place.refusal("disk.img:2Mi"),
        "disk.img has 1048576 bytes (1Mi), but 2097152 bytes (2Mi) were asked for: write the size as 1Mi or leave it \
         out to use it as it is, or make it larger first (`truncate -s '>2097152' disk.img` for a file)"
    );
    // A size of an earlier version, whose units were binary.
    assert_eq!(
        place.refusal("disk.img:1M"),
        "disk.img has 1048576 bytes (1Mi), but 1000000 bytes (1M) were asked for (K, M, G are powers of 1000 here, Ki, \
         Mi, Gi powers of 1024): write the size as 1Mi or leave it out to use it as it is; what is behind the size that \
         was asked for may be data"
    );
    open(&format!("{}:1Mi", place.path("disk.img").display()).parse().unwrap()).unwrap();
}

/// Runs a command as an administrator does who copies it.
fn run(command: &str) {
    let status = std::process::Command::new("sh").args(["-c", command]).status().unwrap();
    assert!(status.success(), "{command}");
}

/// Each advice is followed until the file can be opened, whatever size it had.
// @test output.destroying-advice
// @test data.interrupted-file-change
#[test]
fn advice_about_sizes_leads_to_an_end() {
    for (size, asked) in [(1 << 20, 68_000_000), (68_000_000, 68_000_000), (68_000_100, 68_000_000), (513, 2_000_001)] {
        let place = Place::new();
        let path = place.file("disk.img", size);
        let spec = format!("{}:{asked}", path.display()).parse().unwrap();
        let mut followed = Vec::new();
        while let Err(error) = open(&spec) {
            let text = error.to_string();
            let advice = text.split('`').nth(1).unwrap_or_else(|| panic!("{text}")).to_owned();
            let before = fs::metadata(&path).unwrap().len();
            run(&advice);
            assert!(fs::metadata(&path).unwrap().len() > before, "advice that leads nowhere: {text}");
            followed.push(advice);
            assert!(followed.len() < 3, "{followed:?}");
        }
        // The file has grown since the advice was given: it keeps what it has.
        fs::File::options().write(true).open(&path).unwrap().set_len(80_000_000).unwrap();
        for advice in followed {
            run(&advice);
            assert_eq!(fs::metadata(&path).unwrap().len(), 80_000_000, "{advice}");
        }
    }
}

// @test data.refused-drive
#[test]
fn a_read_only_file() {
    let place = Place::new();
    let path = place.file("disk.img", 1 << 20);
    fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
    assert_eq!(
        place.refusal("disk.img"),
        "disk.img cannot be opened for writing (Permission denied (os error 13)): offer it as it is with \
         `disk.img,readonly`, or make it writable"
    );
    let device = open(&format!("{},readonly", path.display()).parse().unwrap()).unwrap();
    assert!(device.geometry().read_only);
    assert!(!device.geometry().deallocates);
}

#[test]
fn neither_a_file_nor_a_block_device() {
    let place = Place::new();
    fs::create_dir(place.path("sub")).unwrap();
    assert_eq!(place.refusal("sub"), "sub is a directory: a drive is a regular file or a block device");
    let error = open(&"/dev/null".parse().unwrap()).unwrap_err().to_string();
    assert_eq!(error, "/dev/null is a character device: a drive is a regular file or a block device");
    place.file("empty.img", 0);
    assert_eq!(
        place.refusal("empty.img"),
        "empty.img is empty: give it a size (for example `truncate -s '>10G' empty.img`), or move it away and have it made \
         (for example empty.img:10G)"
    );
    assert!(place.refusal("empty.img/x").contains("cannot look at it: Not a directory"));
}

// @test data.refused-drive
#[test]
fn a_file_in_use() {
    let place = Place::new();
    let path = place.file("disk.img", 1 << 20);
    let first = open(&Spec::path(&path)).unwrap();
    let name = fs::read_to_string("/proc/self/comm").unwrap();
    let expected = format!(
        "disk.img is in use by process {} ({}): two writers would destroy it; stop the other one first",
        std::process::id(),
        name.trim_end()
    );
    assert_eq!(place.refusal("disk.img"), expected);
    assert_eq!(place.refusal("disk.img,readonly"), expected);
    drop(first);
    let read_only: Spec = format!("{},readonly", path.display()).parse().unwrap();
    let readers = [open(&read_only).unwrap(), open(&read_only).unwrap()];
    assert!(place.refusal("disk.img").starts_with("disk.img is in use by process"));
    drop(readers);
    open(&Spec::path(&path)).unwrap();
}

#[test]
fn direct_io_without_support_or_with_too_small_blocks() {
    // Files of /proc and /sys cannot be opened for direct I/O; this one is a regular file with a
    // size.
    let cannot = "/sys/kernel/mm/transparent_hugepage/enabled";
    if !std::path::Path::new(cannot).exists() {
        println!("SKIPPED: {cannot} is not there");
        return;
    }
    let error = open(&format!("{cannot},direct,readonly").parse().unwrap()).unwrap_err().to_string();
    let expected = format!(
        "{cannot}: its file system does not do direct I/O (Invalid argument (os error 22)); leave out `direct`"
    );
    assert_eq!(error, expected);
}
