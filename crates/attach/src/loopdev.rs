//! Loop devices: attach and detach with `losetup`, and find their users; `blockdev` makes any block
//! device read-only. Has no state; what exists is read from /sys.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::error::Error;

/// Whether loop devices can be made here.
///
/// # Errors
/// What is missing and what to do about it.
pub fn check() -> Result<(), Error> {
    let control = std::fs::OpenOptions::new().read(true).write(true).open("/dev/loop-control");
    control.map_err(Error::NoLoop)?;
    run(&["--version"]).map(|_version| ())
}

/// Makes a loop device on `file` with direct I/O and logical blocks of `block_bytes` (512 to 4096).
///
/// # Errors
/// losetup failed.
pub fn attach(file: &Path, block_bytes: u32) -> Result<PathBuf, Error> {
    let file = file.to_string_lossy();
    let blocks = block_bytes.to_string();
    let arguments = ["--direct-io=on", "--sector-size", &blocks, "--show", "--find", &file];
    let path = PathBuf::from(run(&arguments)?.trim());
    // As somebody else may have left it.
    if let Err(error) = set_read_only(&path, false) {
        tracing::warn!(%error, ?path, "a loop device stays read-only");
    }
    tune(&path);
    Ok(path)
}

/// Makes a loop device read the size of its file again.
///
/// # Errors
/// losetup failed.
pub fn resize(path: &Path) -> Result<(), Error> {
    run(&["--set-capacity", &path.to_string_lossy()]).map(|_nothing| ())
}

/// Makes a block device read-only or writable, also while it is in use; what was made read-only
/// with losetup stays that for ever. A loop device keeps this when it gets another file.
///
/// # Errors
/// blockdev is missing, or failed.
pub fn set_read_only(path: &Path, read_only: bool) -> Result<(), Error> {
    let name = path.file_name().unwrap_or_default();
    let now = std::fs::read_to_string(Path::new("/sys/block").join(name).join("ro"));
    if now.is_ok_and(|now| (now.trim() == "1") == read_only) {
        return Ok(());
    }
    let option = if read_only { "--setro" } else { "--setrw" };
    let (command, output) = start("blockdev", &[option, &path.to_string_lossy()])
        .map_err(|error| Error::io("starting blockdev (Debian: util-linux)", error))?;
    output_of(&command, &output).map(|_nothing| ())
}

/// Detaches a loop device; if it is in use, when its last user closes it.
///
/// # Errors
/// losetup failed.
pub fn detach(path: &Path) -> Result<(), Error> {
    // For whoever gets this number next.
    if let Err(error) = set_read_only(path, false) {
        tracing::warn!(%error, ?path, "a loop device stays read-only");
    }
    run(&["--detach", &path.to_string_lossy()]).map(|_nothing| ())
}

/// The loop devices of this machine that have a file, with its path as the kernel shows it. The
/// path may be of another mount namespace, or relative to an unmounted file system.
#[must_use]
pub fn all() -> Vec<(PathBuf, PathBuf)> {
    let Ok(entries) = std::fs::read_dir("/sys/block") else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        // Does not exist if the loop device has no file.
        let Ok(backing) = std::fs::read_to_string(entry.path().join("loop/backing_file")) else { continue };
        // The kernel appends this if the file is deleted or unmounted.
        let backing = PathBuf::from(backing.trim_end().trim_end_matches(" (deleted)"));
        found.push((Path::new("/dev").join(entry.file_name()), backing));
    }
    found
}

/// The user of a block device or a partition of it: a mount point, a stacked device, or swap.
/// `None` without a user that the kernel shows.
#[must_use]
pub fn used_by(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let block = Path::new("/sys/block").join(name);
    let partitions = std::fs::read_dir(&block).ok()?.flatten().map(|entry| entry.path());
    let partitions = partitions.filter(|entry| entry.join("partition").exists());
    let parts = std::iter::once(block.clone()).chain(partitions);
    let use_of = |part: PathBuf| use_of(&part, &path.with_file_name(part.file_name()?));
    parts.into_iter().find_map(use_of)
}

/// The user of the block device or partition with this directory in /sys.
fn use_of(sys: &Path, path: &Path) -> Option<String> {
    let number = std::fs::read_to_string(sys.join("dev")).ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // proc(5): the third field is major:minor, the fifth the mount point.
    let mounted = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        (fields.nth(2)? == number.trim()).then(|| fields.nth(1).unwrap_or("?").to_owned())
    });
    if let Some(place) = mounted {
        return Some(format!("{} is mounted at {place}", path.display()));
    }
    let holder = std::fs::read_dir(sys.join("holders")).ok()?.flatten().next();
    if let Some(holder) = holder {
        return Some(format!("{} belongs to /dev/{}", path.display(), holder.file_name().to_string_lossy()));
    }
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    let swap = swaps.lines().any(|line| line.split_whitespace().next().map(Path::new) == Some(path));
    swap.then(|| format!("{} is swap space", path.display()))
}

/// Sets queue parameters that suit a device behind a network. Errors are ignored.
fn tune(path: &Path) {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return };
    for (file, value) in [("scheduler", "none"), ("rotational", "0"), ("add_random", "0")] {
        if let Err(error) = std::fs::write(format!("/sys/block/{name}/queue/{file}"), value) {
            tracing::debug!(%error, name, file, "not set");
        }
    }
}

fn run(arguments: &[&str]) -> Result<String, Error> {
    match start("losetup", arguments) {
        Ok((command, output)) => output_of(&command, &output),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::NoLosetup),
        Err(error) => Err(Error::io("starting losetup", error)),
    }
}

/// Runs a program that ordinary users do not have in their PATH: its command line, and its output.
fn start(program: &str, arguments: &[&str]) -> io::Result<(String, Output)> {
    let known = ["/usr/sbin", "/sbin"].map(|place| Path::new(place).join(program));
    let path = known.into_iter().find(|path| path.exists()).unwrap_or_else(|| PathBuf::from(program));
    // It must not inherit descriptors, above all not standard input, which is the daemon's lock.
    let output = Command::new(path).args(arguments).stdin(Stdio::null()).output()?;
    Ok((format!("{program} {}", arguments.join(" ")), output))
}

fn output_of(command: &str, output: &Output) -> Result<String, Error> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::Losetup { command: command.to_owned(), message })
}
