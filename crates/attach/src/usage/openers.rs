//! Who has a block device open or mounted, as /proc tells: every process of this PID namespace, and
//! the mounts of every mount namespace that one of them is in. It says nothing about processes that
//! it cannot look at, except that there are some. Exclusive claims, holders and swap space are in
//! [`crate::usage`].

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, StatxFlags, statx};

/// Major and minor number of a block device.
pub(crate) type Number = (u32, u32);

/// The name of the PID namespace that has every process of the machine: Linux fixes its number.
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// The users of block devices.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Openers {
    /// A mount in any mount namespace.
    pub(crate) mounted: Option<String>,
    /// A process that has one of them open.
    pub(crate) open: Option<String>,
    /// Why there may be others.
    pub(crate) hidden: Option<String>,
}

/// The users of the block devices `numbers`, which are a device and its partitions.
pub(crate) fn find(numbers: &[Number]) -> Openers {
    find_in(Path::new("/proc"), numbers)
}

/// As [`find`], with another path of /proc.
pub(crate) fn find_in(proc: &Path, numbers: &[Number]) -> Openers {
    let mut found = Openers::default();
    let mut unseen = 0_usize;
    let processes = match processes(proc) {
        Ok(processes) => processes,
        Err(error) => {
            found.hidden = Some(format!("{} cannot be read: {error}", proc.display()));
            return found;
        }
    };
    let mut seen_mounts = BTreeSet::new();
    for process in processes {
        // The machine's init, which may have more rights than this process, keeps no disk open.
        let tells = |error: &io::Error| is_gone(error) || process.ends_with("1");
        let mounted = match mounts(&process, &mut seen_mounts) {
            Ok(Some(table)) => mount_of(&table, numbers),
            Ok(None) => None,
            Err(error) => {
                unseen += usize::from(!tells(&error));
                continue;
            }
        };
        if let Some(place) = mounted {
            found.mounted.get_or_insert_with(|| format!("is mounted at {place}{}", as_seen_by(&process)));
        }
        match has_open(&process, numbers) {
            Ok(false) => {}
            Ok(true) => {
                found.open.get_or_insert_with(|| format!("is open in {}", describe(&process)));
            }
            Err(error) => unseen += usize::from(!tells(&error)),
        }
    }
    found.hidden = hidden(proc, unseen);
    found
}

/// Why not every process of the machine was looked at; `None` if all were.
fn hidden(proc: &Path, unseen: usize) -> Option<String> {
    let mut why = String::new();
    if unseen > 0 {
        let _infallible = write!(why, "{unseen} processes cannot be looked at");
    }
    let namespace = std::fs::read_link(proc.join("self/ns/pid"));
    if namespace.ok().as_deref() != Some(Path::new(INITIAL_PID_NAMESPACE)) {
        let and = if why.is_empty() { "" } else { ", and " };
        let _infallible = write!(why, "{and}processes outside of this PID namespace (a container's) are not seen");
    }
    (!why.is_empty()).then_some(why)
}

/// The directories of all processes but this one.
fn processes(proc: &Path) -> io::Result<Vec<PathBuf>> {
    let own = std::process::id().to_string();
    let is_other = |name: &str| name != own && name.bytes().all(|byte| byte.is_ascii_digit());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(proc)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(is_other) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// The mount table of a process, unless its mount namespace is in `seen` or it is a kernel thread.
fn mounts(process: &Path, seen: &mut BTreeSet<PathBuf>) -> io::Result<Option<String>> {
    let namespace = std::fs::read_link(process.join("ns/mnt"))?;
    if seen.contains(&namespace) {
        return Ok(None);
    }
    let table = std::fs::read(process.join("mountinfo"))?;
    seen.insert(namespace);
    Ok(Some(String::from_utf8_lossy(&table).into_owned()))
}

/// Where one of the block devices is mounted, according to a mount table.
pub(crate) fn mount_of(table: &str, numbers: &[Number]) -> Option<String> {
    // proc(5): the third field is major:minor, the fifth the mount point.
    table.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let number = number_of(fields.nth(2)?)?;
        numbers.contains(&number).then(|| fields.nth(1).unwrap_or("?").to_owned())
    })
}

/// `7:1`
pub(crate) fn number_of(text: &str) -> Option<Number> {
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Whether a process has one of the block devices open, by whatever name.
fn has_open(process: &Path, numbers: &[Number]) -> io::Result<bool> {
    let fds = process.join("fd");
    let directory = File::open(&fds)?;
    for entry in std::fs::read_dir(&fds)? {
        let name = entry?.file_name();
        // A stat of a file behind a network or a FUSE server that hangs would wait for it: what is
        // cached suffices, since the number of a device node does not change.
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        match statx(&directory, &name, flags, StatxFlags::TYPE) {
            Ok(file) => {
                let is_block = FileType::from_raw_mode(file.stx_mode.into()) == FileType::BlockDevice;
                if is_block && numbers.contains(&(file.stx_rdev_major, file.stx_rdev_minor)) {
                    return Ok(true);
                }
            }
            Err(error) if is_gone(&error.into()) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

/// Whether the process, or its file, has ended meanwhile.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

/// ` for process 812 (postgres)`; nothing if it is mounted there for this process, too.
fn as_seen_by(process: &Path) -> String {
    let namespace = |process: &Path| std::fs::read_link(process.join("ns/mnt")).ok();
    let own = process.parent().map(|proc| proc.join("self"));
    if own.and_then(|own| namespace(&own)) == namespace(process) {
        return String::new();
    }
    format!(" in the mount namespace of {}", describe(process))
}

/// `process 812 (postgres)`
fn describe(process: &Path) -> String {
    let id = process.file_name().unwrap_or_default().to_string_lossy();
    let name = std::fs::read(process.join("comm")).unwrap_or_default();
    let name = String::from_utf8_lossy(&name);
    let name: String = name.trim_end().chars().filter(|letter| !letter.is_control()).collect();
    format!("process {id} ({name})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_number() {
        let table = "22 1 7:1 / /data rw - ext4 /dev/loop1 rw\n23 1 0:5 / /proc rw - proc proc rw\nnonsense\n";
        assert_eq!(mount_of(table, &[(7, 2), (7, 1)]).as_deref(), Some("/data"));
        assert_eq!(mount_of(table, &[(7, 11)]), None);
        assert_eq!(number_of("259:3\n"), Some((259, 3)));
        assert_eq!(number_of("259"), None);
    }

    #[test]
    fn what_cannot_be_looked_at_is_told() {
        let proc = tempfile::tempdir().unwrap();
        let missing = find_in(&proc.path().join("none"), &[(7, 1)]);
        assert!(missing.hidden.unwrap().contains("cannot be read"));
        // A process that has ended, and a PID namespace that is not the machine's.
        std::fs::create_dir_all(proc.path().join("4242424")).unwrap();
        let other = find_in(proc.path(), &[(7, 1)]);
        assert_eq!((other.mounted, other.open), (None, None));
        assert!(other.hidden.unwrap().contains("PID namespace"));
        // A process whose descriptors are not for us.
        let process = proc.path().join("4242424");
        std::fs::create_dir_all(process.join("ns")).unwrap();
        std::os::unix::fs::symlink("mnt:[1]", process.join("ns/mnt")).unwrap();
        std::fs::write(process.join("mountinfo"), "22 1 7:1 / /data rw - ext4 /dev/loop1 rw\n").unwrap();
        std::fs::write(process.join("comm"), "postgres\n").unwrap();
        std::fs::write(process.join("fd"), "not a directory").unwrap();
        let unseen = find_in(proc.path(), &[(7, 1)]);
        assert_eq!(unseen.mounted.unwrap(), "is mounted at /data in the mount namespace of process 4242424 (postgres)");
        assert!(unseen.hidden.unwrap().contains("1 processes cannot be looked at"));
    }
}
