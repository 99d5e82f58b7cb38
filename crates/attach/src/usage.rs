//! Which block devices of this machine are namespaces of a subsystem, and who uses them: for
//! whatever takes devices away, removes namespaces or writes to them beside a file system. Reads
//! the state directory, /sys, /proc and the devices. What cannot be told counts as used.

mod openers;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, major, makedev, minor};
use rustix::io::Errno;

use crate::error::Error;
use crate::state::{Record, StateDir};
use crate::usage::openers::{Number, number_of};

/// Whether somebody uses a block device or a partition of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Use {
    /// Nobody does.
    Free,
    /// It is mounted, swap space, stacked upon or claimed.
    Held(String),
    /// A program has it open. Programs of the system look at new devices for a moment.
    Open(String),
    /// Nobody was found, but that proves nothing.
    Unknown(String),
}

impl Use {
    /// Its user, or why that cannot be told; `None` only if nobody uses it.
    #[must_use]
    pub fn reason(self) -> Option<String> {
        match self {
            Self::Free => None,
            Self::Held(reason) | Self::Open(reason) | Self::Unknown(reason) => Some(reason),
        }
    }
}

/// A block device of this machine that is a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalDevice {
    /// The namespace; FFFFFFFFh if it may be any of them.
    pub nsid: u32,
    /// Its name: `nvme0n1`.
    pub name: String,
    /// The block device: `/dev/loop0`.
    pub path: PathBuf,
    /// Its user, or why that cannot be told: [`Use::reason`].
    pub used_by: Option<String>,
}

/// The block devices of this machine that are namespaces of the subsystem `nqn`: those of ebof, and
/// those of the kernel's own NVMe host.
///
/// # Errors
/// The state directory or /sys cannot be read.
pub fn local_devices(nqn: &str) -> Result<Vec<LocalDevice>, Error> {
    local_devices_in(&StateDir::standard(), Path::new("/sys/block"), nqn)
}

/// As [`local_devices`], with other paths of the state directory and /sys/block.
///
/// # Errors
/// As [`local_devices`].
pub fn local_devices_in(states: &StateDir, sys_block: &Path, nqn: &str) -> Result<Vec<LocalDevice>, Error> {
    let mut found = Vec::new();
    for record in states.records()?.into_iter().filter(|record| record.live) {
        match &record.state {
            Some(state) if state.subnqn != nqn => {}
            Some(state) => found.extend(state.devices.iter().filter_map(|device| {
                let path = device.path.clone()?;
                Some(LocalDevice { nsid: device.nsid, name: device.name.clone(), used_by: used_by(&path), path })
            })),
            None => found.extend(untold(&record, nqn)),
        }
    }
    found.extend(kernel_devices(sys_block, nqn)?);
    Ok(found)
}

/// A daemon that is about to have devices, or whose state cannot be read: which, cannot be told.
fn untold(record: &Record, nqn: &str) -> Option<LocalDevice> {
    if record.request().is_some_and(|request| request.nqn != nqn) {
        return None;
    }
    let why = format!("its attach daemon has not written what it holds ({})", record.log().display());
    let path = record.directory.clone();
    Some(LocalDevice { nsid: u32::MAX, name: record.name.clone(), path, used_by: Some(why) })
}

/// The user of a block device or a partition of it, or why that cannot be told.
#[must_use]
pub fn used_by(path: &Path) -> Option<String> {
    look(path).reason()
}

/// Whether a block device or a partition of it is used, as far as can be seen without taking it
/// away.
#[must_use]
pub fn look(path: &Path) -> Use {
    match look_at(path) {
        Ok(seen) => seen,
        Err(error) => Use::Unknown(format!("whether {} is in use cannot be told: {error}", path.display())),
    }
}

fn look_at(path: &Path) -> io::Result<Use> {
    let metadata = match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !is_known(path) => return Ok(Use::Free),
        metadata => metadata?,
    };
    if !metadata.file_type().is_block_device() {
        return Ok(Use::Free);
    }
    let own = (major(metadata.rdev()), minor(metadata.rdev()));
    let parts = parts(own)?;
    if let Some(held) = holder(path, &parts)? {
        return Ok(Use::Held(held));
    }
    let numbers: Vec<Number> = parts.iter().map(|(_, number)| *number).collect();
    let openers = openers::find(&numbers);
    if let Some(mounted) = openers.mounted {
        return Ok(Use::Held(format!("{} {mounted}", path.display())));
    }
    if let Some(open) = openers.open {
        return Ok(Use::Open(format!("{} {open}", path.display())));
    }
    if is_claimed(path)? {
        let claimed = "is claimed: by a mount in another namespace, a device mapper or a program";
        return Ok(Use::Held(format!("{} {claimed}", path.display())));
    }
    if outstanding(own) {
        return Ok(Use::Open(format!("{} has requests that have not ended", path.display())));
    }
    Ok(openers.hidden.map_or(Use::Free, |hidden| {
        Use::Unknown(format!("whether {} is in use cannot be told: {hidden}", path.display()))
    }))
}

/// Whether the kernel has a block device of this name, although this process has no file for it.
fn is_known(path: &Path) -> bool {
    path.file_name().is_some_and(|name| Path::new("/sys/class/block").join(name).exists())
}

fn directory_of(number: Number) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}:{}", number.0, number.1))
}

/// A block device and its partitions: the directories in /sys, and the numbers.
fn parts(number: Number) -> io::Result<Vec<(PathBuf, Number)>> {
    let whole = directory_of(number);
    let mut parts = vec![(whole.clone(), number)];
    for entry in std::fs::read_dir(&whole)? {
        let part = entry?.path();
        if !part.join("partition").exists() {
            continue;
        }
        let text = std::fs::read_to_string(part.join("dev"))?;
        let number = number_of(&text).ok_or(io::ErrorKind::InvalidData)?;
        parts.push((part, number));
    }
    Ok(parts)
}

/// What is stacked upon one of the parts, where it is mounted, or that it is swap space.
fn holder(path: &Path, parts: &[(PathBuf, Number)]) -> io::Result<Option<String>> {
    let path = path.display();
    let mounts = std::fs::read("/proc/self/mountinfo")?;
    let mounts = String::from_utf8_lossy(&mounts);
    let swaps = match std::fs::read_to_string("/proc/swaps") {
        // A kernel without swap.
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        swaps => swaps?,
    };
    let is_swap = |number: Number| {
        let files = swaps.lines().filter_map(|line| line.split_whitespace().next());
        let mut numbers = files.filter_map(|file| Some(std::fs::metadata(file).ok()?.rdev()));
        numbers.any(|rdev| rdev == makedev(number.0, number.1))
    };
    for (directory, number) in parts {
        if let Some(place) = openers::mount_of(&mounts, &[*number]) {
            return Ok(Some(format!("{path} is mounted at {place}")));
        }
        if let Some(holder) = std::fs::read_dir(directory.join("holders"))?.next() {
            return Ok(Some(format!("{path} belongs to /dev/{}", holder?.file_name().to_string_lossy())));
        }
        if is_swap(*number) {
            return Ok(Some(format!("{path} is swap space")));
        }
    }
    Ok(None)
}

/// Whether somebody has claimed a block device for himself: a mount in any namespace, a device
/// mapper, or a program.
fn is_claimed(path: &Path) -> io::Result<bool> {
    let flags = i32::try_from((OFlags::EXCL | OFlags::NONBLOCK).bits()).unwrap_or(0);
    let opened: io::Result<File> = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let is = |error: &io::Error, errno: Errno| error.raw_os_error() == Some(errno.raw_os_error());
    match opened {
        Ok(_unclaimed) => Ok(false),
        Err(error) if is(&error, Errno::BUSY) => Ok(true),
        // A loop device without a file, or a device that has gone: nobody can use it.
        Err(error) if is(&error, Errno::NXIO) || is(&error, Errno::NODEV) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the kernel has requests to the device that have not ended.
fn outstanding(number: Number) -> bool {
    let counts = std::fs::read_to_string(directory_of(number).join("inflight")).unwrap_or_default();
    counts.split_whitespace().any(|count| count != "0")
}

/// The namespaces of a subsystem that the kernel's own host has connected.
fn kernel_devices(sys_block: &Path, nqn: &str) -> Result<Vec<LocalDevice>, Error> {
    let problem = |error| Error::io(format!("reading {}", sys_block.display()), error);
    let entries = std::fs::read_dir(sys_block).map_err(problem)?;
    let mut found = Vec::new();
    for entry in entries {
        let Ok(name) = entry.map_err(problem)?.file_name().into_string() else { continue };
        let read = |file: &str| std::fs::read_to_string(sys_block.join(&name).join(file)).ok();
        if !name.starts_with("nvme") || read("device/subsysnqn").is_none_or(|subsystem| subsystem.trim() != nqn) {
            continue;
        }
        // A path of a multipath disk (nvme0c0n1): it has no file, and its user is the disk's.
        if read("hidden").is_some_and(|hidden| hidden.trim() == "1") {
            continue;
        }
        let Some(nsid) = read("nsid").and_then(|nsid| nsid.trim().parse().ok()) else { continue };
        let path = Path::new("/dev").join(&name);
        found.push(LocalDevice { nsid, used_by: used_by(&path), path, name });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_of_the_kernels_host_are_found_by_their_subsystem() {
        let sys = tempfile::tempdir().unwrap();
        let states = tempfile::tempdir().unwrap();
        for (name, nqn, nsid) in [("nvme3n1", "nqn.a", "7\n"), ("nvme4n1", "nqn.b", "1\n"), ("sda", "nqn.a", "1\n")] {
            std::fs::create_dir_all(sys.path().join(name).join("device")).unwrap();
            std::fs::write(sys.path().join(name).join("device/subsysnqn"), format!("{nqn}\n")).unwrap();
            std::fs::write(sys.path().join(name).join("nsid"), nsid).unwrap();
        }
        // The disk's path, which the kernel has no file for, and which it always uses.
        let path = sys.path().join("nvme3c0n1");
        std::fs::create_dir_all(path.join("device")).unwrap();
        for (file, text) in [("device/subsysnqn", "nqn.a\n"), ("nsid", "7\n"), ("hidden", "1\n")] {
            std::fs::write(path.join(file), text).unwrap();
        }
        let found = local_devices_in(&StateDir::at(states.path()), sys.path(), "nqn.a").unwrap();
        let expected = LocalDevice { nsid: 7, name: "nvme3n1".into(), path: "/dev/nvme3n1".into(), used_by: None };
        assert_eq!(found, [expected]);
        let unread = local_devices_in(&StateDir::at(states.path()), &sys.path().join("none"), "nqn.a");
        assert!(unread.is_err(), "without /sys nobody knows what the kernel's host has: {unread:?}");
    }

    #[test]
    fn a_daemon_that_has_told_nothing_may_hold_anything() {
        let directory = tempfile::tempdir().unwrap();
        let states = StateDir::at(directory.path());
        let request = crate::Request { nqn: "nqn.a".to_owned(), ..crate::Request::default() };
        let (record, lock) = states.create(&states.lock().unwrap(), &request).unwrap();
        let sys = tempfile::tempdir().unwrap();
        let found = local_devices_in(&states, sys.path(), "nqn.a").unwrap();
        assert!(matches!(found.as_slice(), [one] if one.name == record.name && one.used_by.is_some()), "{found:?}");
        assert_eq!(local_devices_in(&states, sys.path(), "nqn.b").unwrap(), []);
        std::fs::write(record.directory.join("state.json"), "{").unwrap();
        std::fs::remove_file(record.directory.join("request.json")).unwrap();
        assert_eq!(local_devices_in(&states, sys.path(), "nqn.b").unwrap().len(), 1, "unreadable");
        crate::state::tests::end_daemon(&lock);
        assert_eq!(local_devices_in(&states, sys.path(), "nqn.a").unwrap(), []);
    }

    #[test]
    fn files_and_absent_devices_are_free() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(look(file.path()), Use::Free);
        assert_eq!(look(Path::new("/dev/there-is-none")), Use::Free);
    }
}
