//! What a procedure would destroy: whether a device is in use, and what is on it. Decides, and asks
//! nobody: the question is the caller's.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::device::{Device, Seen};

/// Why a device is not overwritten.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Somebody uses it. Nothing overrides that.
    #[error("{name} is in use: {by}; nothing was written. Unmount it, or take it out of use")]
    InUse {
        /// The device.
        name: String,
        /// Its user.
        by: String,
    },
    /// It refuses writes.
    #[error("{name} is read-only, and the procedure writes; --reads-only leaves out what does")]
    ReadOnly {
        /// The device.
        name: String,
    },
    /// There is something on it.
    #[error(
        "{name} has {what}; nothing was written. Name another device, or say --reads-only; if that may be lost, say --force"
    )]
    NotEmpty {
        /// The device.
        name: String,
        /// What is on it.
        what: String,
    },
    /// What is on it cannot be found out.
    #[error(
        "{name}: what is on it is not known, because {why}; nothing was written. Name another device, or say --reads-only; if it may be lost, say --force"
    )]
    Unknown {
        /// The device.
        name: String,
        /// The reason, which fits behind "because".
        why: String,
    },
}

/// Checks that `device` may be overwritten. `force` gives up what is on it, but not that nobody
/// uses it. `used_by` says who uses a block device of this machine.
///
/// # Errors
/// Why it is not.
pub fn check(
    device: &Device,
    seen: &Seen,
    force: bool,
    used_by: impl Fn(&Path) -> Option<String>,
) -> Result<(), Refusal> {
    let name = || device.name.clone();
    if seen.is_read_only {
        return Err(Refusal::ReadOnly { name: name() });
    }
    if let Some(by) = device.path().filter(|path| crate::device::is_block_device(path)).and_then(used_by) {
        return Err(Refusal::InUse { name: name(), by });
    }
    if seen.is_new || force {
        return Ok(());
    }
    if device.source().is_none() {
        let why = "other programs read it";
        return Err(Refusal::Unknown { name: name(), why: why.to_owned() });
    }
    let found = match device.path() {
        Some(path) => probe(path),
        None => signatures(&seen.ends, seen.identity.capacity_bytes),
    };
    match found {
        Ok(found) if found.is_empty() => Ok(()),
        Ok(found) => Err(Refusal::NotEmpty { name: name(), what: found.join(", ") }),
        Err(error) => Err(Refusal::Unknown { name: name(), why: format!("blkid (of util-linux) failed: {error}") }),
    }
}

/// The partition tables, file systems and the like whose signatures `blkid` finds in both ends of a
/// device that it cannot open. The copy lies in memory: files on a disk have a maximum size.
fn signatures(ends: &[Vec<u8>; 2], capacity_bytes: u64) -> io::Result<Vec<String>> {
    if ends.iter().flatten().all(|&byte| byte == 0) {
        return Ok(Vec::new());
    }
    let copy = File::from(rustix::fs::memfd_create("ends", rustix::fs::MemfdFlags::CLOEXEC)?);
    copy.set_len(capacity_bytes)?;
    copy.write_all_at(&ends[0], 0)?;
    // Whole blocks were read.
    let end = capacity_bytes / 4096 * 4096;
    copy.write_all_at(&ends[1], end.saturating_sub(ends[1].len() as u64))?;
    probe(&PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), copy.as_raw_fd())))
}

/// What `blkid` finds on a device or in a file.
fn probe(device: &Path) -> io::Result<Vec<String>> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new("blkid")
        .env("PATH", path)
        .env("LC_ALL", "C")
        .args(["--probe", "--output", "export"])
        .arg(device)
        .stdin(Stdio::null())
        .output()?;
    match output.status.code() {
        Some(0) => Ok(found(&String::from_utf8_lossy(&output.stdout))),
        Some(2) => Ok(Vec::new()),
        Some(8) => Ok(vec!["signatures of several file systems or partition tables".to_owned()]),
        _ => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

/// What `KEY=VALUE` lines of blkid tell.
fn found(text: &str) -> Vec<String> {
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.map(|value| value.replace('\\', "").chars().filter(|char| !char.is_control()).collect::<String>())
    };
    let label = value("LABEL").map(|label| format!(" labelled {label}")).unwrap_or_default();
    let table = value("PTTYPE").map(|kind| format!("a partition table ({kind})"));
    let system = value("TYPE").map(|kind| format!("a file system or the like ({kind}){label}"));
    let all: Vec<String> = [table, system].into_iter().flatten().collect();
    if all.is_empty() { vec!["a signature that blkid knows".to_owned()] } else { all }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebof_initiator::Options;

    fn look(path: &Path) -> (Device, Seen) {
        let device = Device::parse(&path.display().to_string(), Options::from_uri).unwrap();
        let seen = device.inspect().unwrap();
        (device, seen)
    }

    fn nobody(_: &Path) -> Option<String> {
        None
    }

    #[test]
    fn a_partition_table_is_found_and_an_empty_file_is_free() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        let mut bytes = vec![0; 4 << 20];
        std::fs::write(&path, &bytes).unwrap();
        let (device, seen) = look(&path);
        check(&device, &seen, false, nobody).unwrap();
        // A DOS partition table with one partition.
        bytes[446..462].copy_from_slice(&[0, 0, 2, 0, 0x83, 0, 2, 0, 1, 0, 0, 0, 0, 16, 0, 0]);
        bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
        std::fs::write(&path, &bytes).unwrap();
        let (device, seen) = look(&path);
        let refused = check(&device, &seen, false, nobody).unwrap_err().to_string();
        assert!(refused.contains("a partition table (dos)") && refused.contains("--force"), "{refused}");
        check(&device, &seen, true, nobody).unwrap();
    }

    #[test]
    fn what_is_at_the_end_of_a_device_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        // The second header of a GPT is in its last block; the first one is gone.
        let mut bytes = vec![0; 8 << 20];
        let at = bytes.len() - 4096;
        // Intel's RAID metadata are in the last but one block.
        let metadata = bytes.len() - 1024;
        bytes[metadata..metadata + 24].copy_from_slice(b"Intel Raid ISM Cfg Sig. ");
        bytes[at] = 1;
        std::fs::write(&path, &bytes).unwrap();
        let (device, seen) = look(&path);
        let refused = check(&device, &seen, false, nobody).unwrap_err().to_string();
        assert!(refused.contains("isw_raid_member"), "{refused}");
    }

    /// VMFS begins at 2 MiB, its volume at 1 MiB; one of the places of Promise's RAID is 3087
    /// sectors before the end.
    #[test]
    fn what_is_not_at_the_very_ends_is_found_on_devices_of_any_size() {
        let found = |capacity: u64, at: u64, magic: &[u8]| {
            let mut ends = [vec![0; 4 << 20], vec![0; 4 << 20]];
            let (end, start) = if at < 4 << 20 { (0, 0) } else { (1, capacity / 4096 * 4096 - (4 << 20)) };
            let place = usize::try_from(at - start).unwrap();
            ends[end][place..place + magic.len()].copy_from_slice(magic);
            let remote = signatures(&ends, capacity).unwrap().join(" ");
            // The same in a file, which blkid reads itself.
            let file = tempfile::NamedTempFile::new().unwrap();
            if file.as_file().set_len(capacity).is_ok() {
                file.as_file().write_all_at(magic, at).unwrap();
                assert_eq!(probe(file.path()).unwrap().join(" "), remote);
            }
            remote
        };
        for capacity in [64 << 20, (64 << 20) + 512, 20 << 40, 1 << 60] {
            assert!(found(capacity, 1 << 20, b"\x0d\xd0\x01\xc0").contains("VMFS_volume_member"), "{capacity}");
            assert!(found(capacity, 2 << 20, b"\x5e\xf1\xab\x2f").contains("VMFS"), "{capacity}");
            let promise = (capacity / 512 - 3087) * 512;
            assert!(found(capacity, promise, b"Promise Technology, Inc.").contains("promise"), "{capacity}");
        }
    }

    #[test]
    fn other_bytes_are_no_signature_but_read_only_devices_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        std::fs::write(&path, vec![0x5a; 4 << 20]).unwrap();
        let (device, mut seen) = look(&path);
        check(&device, &seen, false, nobody).unwrap();
        seen.is_read_only = true;
        assert!(matches!(check(&device, &seen, true, nobody), Err(Refusal::ReadOnly { .. })));
    }

    #[test]
    fn a_device_that_other_programs_read_is_overwritten_only_by_force() {
        let device = Device::parse("nbd://127.0.0.1/export", Options::from_uri).unwrap();
        let seen = device.inspect().unwrap();
        assert!(matches!(check(&device, &seen, false, nobody), Err(Refusal::Unknown { .. })));
        check(&device, &seen, true, nobody).unwrap();
    }
}
