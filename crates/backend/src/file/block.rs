//! Properties of block devices, and other users of a file, from sysfs and /proc.
//!
//! All of it may be missing (containers hide sysfs): the defaults are the cautious ones.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::Holder;

/// Properties of a block device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Properties {
    pub(crate) read_only: bool,
    /// Supports discarding, and zeroes what it discards.
    pub(crate) punches: bool,
    /// Supports Write Zeroes.
    pub(crate) writes_zeroes: bool,
    pub(crate) discard_granularity_bytes: u32,
    /// Has a write cache that needs flushing; `true` if not known.
    pub(crate) volatile_cache: bool,
}

/// Reads the properties of the block device with this number.
pub(crate) fn properties(device: u64) -> Properties {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    properties_in(&PathBuf::from(format!("/sys/dev/block/{major}:{minor}")))
}

fn properties_in(device: &Path) -> Properties {
    // A partition has no queue directory: its disk, one directory up, has. The link is resolved
    // first, so that `..` is the disk.
    let whole = fs::canonicalize(device).unwrap_or_else(|_hidden| device.to_owned());
    let queue = [whole.join("queue"), whole.join("../queue")].into_iter().find(|queue| queue.is_dir());
    let text = |name: &str| fs::read_to_string(queue.as_ref()?.join(name)).ok();
    let number = |name: &str| text(name).and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0);
    let writes_zeroes = number("write_zeroes_max_bytes") > 0;
    let read_only = fs::read_to_string(whole.join("ro"));
    Properties {
        read_only: read_only.is_ok_and(|text| text.trim() == "1"),
        // Punching a hole into a block device is "write zeroes, and unmap where possible".
        punches: writes_zeroes && number("discard_max_bytes") > 0,
        writes_zeroes,
        discard_granularity_bytes: u32::try_from(number("discard_granularity")).unwrap_or(u32::MAX),
        volatile_cache: text("write_cache").is_none_or(|text| text.trim() != "write through"),
    }
}

/// The loop device that has this file as its backing, if any.
pub(crate) fn loop_device_of(file: &Path) -> Option<PathBuf> {
    let file = fs::canonicalize(file).ok()?;
    for entry in fs::read_dir("/sys/block").ok()?.flatten() {
        let backing = fs::read(entry.path().join("loop/backing_file")).unwrap_or_default();
        if backing.trim_ascii_end() == file.as_os_str().as_encoded_bytes() {
            return Some(Path::new("/dev").join(entry.file_name()));
        }
    }
    None
}

/// What kind of lock to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    /// `flock`, as we take it.
    Whole,
    /// Locks on byte ranges, as QEMU takes them.
    Ranges,
}

/// Whether there is no process with this number, or only a zombie.
pub(crate) fn is_gone(process_id: u32) -> bool {
    matches!(fs::read_link(format!("/proc/{process_id}/exe")), Err(error) if error.kind() == std::io::ErrorKind::NotFound)
}

/// Who holds a lock on the file according to `/proc/locks`; `None` if nobody does, or it cannot be
/// read.
pub(crate) fn lock_holder(file: &fs::Metadata, lock: Lock) -> Option<Holder> {
    holder_in(&fs::read_to_string("/proc/locks").ok()?, file.dev(), file.ino(), lock)
}

/// A line is `1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF`; waiters have `->` behind the number.
fn holder_in(locks: &str, device: u64, inode: u64, lock: Lock) -> Option<Holder> {
    let file_id = format!("{:02x}:{:02x}:{inode}", rustix::fs::major(device), rustix::fs::minor(device));
    let mut found = None;
    for line in locks.lines() {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let kind = match fields.next() {
            Some("FLOCK") => Lock::Whole,
            Some("OFDLCK" | "POSIX") => Lock::Ranges,
            _ => continue,
        };
        let process = fields.nth(2);
        let at = fields.next();
        if kind != lock || at != Some(file_id.as_str()) {
            continue;
        }
        // Locks of open file descriptions have no process (-1). Another line may name one.
        let process_id = process.and_then(|id| id.parse::<u32>().ok()).filter(|id| *id != 0);
        let name = process_id.and_then(|id| fs::read_to_string(format!("/proc/{id}/comm")).ok());
        found = Some(Holder { process_id, name: name.map(|name| name.trim_end().into()) });
        if process_id.is_some() {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_found_by_device_and_inode_and_kind() {
        let locks = "1: FLOCK  ADVISORY  WRITE 999999999 fe:00:1234 0 EOF\n\
                     1: -> FLOCK  ADVISORY  WRITE 12 fe:00:99 0 EOF\n\
                     2: OFDLCK ADVISORY  READ -1 fe:00:77 100 101\n\
                     3: POSIX  ADVISORY  WRITE 999999998 fe:00:77 0 EOF\n";
        let device = rustix::fs::makedev(0xfe, 0);
        let id = |process_id| Some(Holder { process_id, name: None });
        assert_eq!(holder_in(locks, device, 1234, Lock::Whole), id(Some(999_999_999)));
        assert_eq!(holder_in(locks, device, 1234, Lock::Ranges), None);
        assert_eq!(holder_in(locks, device, 77, Lock::Ranges), id(Some(999_999_998)));
        assert_eq!(holder_in(locks, device, 99, Lock::Whole), None);
        assert_eq!(holder_in(locks, rustix::fs::makedev(0xfd, 0), 1234, Lock::Whole), None);
        assert_eq!(holder_in("", device, 1234, Lock::Whole), None);
    }

    #[test]
    fn properties_are_read_from_the_disk_also_for_a_partition() {
        let sys = tempfile::tempdir().unwrap();
        let disk = sys.path().join("sda");
        fs::create_dir_all(disk.join("queue")).unwrap();
        fs::create_dir_all(disk.join("sda1")).unwrap();
        for (name, value) in [
            ("write_zeroes_max_bytes", "65536\n"),
            ("discard_max_bytes", "1048576\n"),
            ("discard_granularity", "4096\n"),
            ("write_cache", "write through\n"),
        ] {
            fs::write(disk.join("queue").join(name), value).unwrap();
        }
        fs::write(disk.join("ro"), "0\n").unwrap();
        fs::write(disk.join("sda1/ro"), "1\n").unwrap();
        let expected = Properties {
            read_only: false,
            punches: true,
            writes_zeroes: true,
            discard_granularity_bytes: 4096,
            volatile_cache: false,
        };
        assert_eq!(properties_in(&disk), expected);
        assert_eq!(properties_in(&disk.join("sda1")), Properties { read_only: true, ..expected });
    }

    #[test]
    fn an_unknown_device_is_assumed_to_have_a_cache_and_no_features() {
        let nothing = properties_in(Path::new("/nonexistent"));
        assert_eq!(nothing, Properties { volatile_cache: true, ..Properties::default() });
    }
}
