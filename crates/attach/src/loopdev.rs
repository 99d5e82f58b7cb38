//! Loop devices: attach and detach with `losetup`, or detach only what nobody uses, as the kernel
//! counts it; `blockdev` makes any block device read-only. Has no state; what exists is read from
//! /sys.

mod kernel;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::error::Error;

/// How long to wait until a device that stays attached is as it was: requests that hang hold it up.
const UNDO_TIMEOUT: Duration = Duration::from_secs(5);

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
    let path = run(&[
        "--direct-io=on",
        "--sector-size",
        &block_bytes.to_string(),
        "--show",
        "--find",
        &file.to_string_lossy(),
    ])?;
    let path = PathBuf::from(path.trim());
    prepare(&path);
    Ok(path)
}

/// As [`attach`], as the device at `path`, which was detached a moment ago; as another one if
/// somebody else has taken that.
///
/// # Errors
/// losetup failed.
pub(crate) fn attach_again(path: &Path, file: &Path, block_bytes: u32) -> Result<PathBuf, Error> {
    let blocks = block_bytes.to_string();
    let again = run(&["--direct-io=on", "--sector-size", &blocks, &path.to_string_lossy(), &file.to_string_lossy()]);
    if again.is_err() {
        return attach(file, block_bytes);
    }
    prepare(path);
    Ok(path.to_owned())
}

/// What a new device needs. Errors are logged.
fn prepare(path: &Path) {
    // As somebody else may have left it.
    if let Err(error) = set_read_only(path, false) {
        tracing::warn!(%error, path = %path.display(), "a loop device stays read-only");
    }
    tune(path);
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
        tracing::warn!(%error, path = %path.display(), "a loop device stays read-only");
    }
    run(&["--detach", &path.to_string_lossy()]).map(|_nothing| ())
}

/// Detaches a loop device unless somebody else has it open, mounted or stacked: the kernel counts
/// who has, in whatever namespace, and decides at one point in time. `false` if it stays.
///
/// # Errors
/// Of the device; it stays then.
pub fn detach_unused(path: &Path) -> Result<bool, Error> {
    let problem = |error| Error::io(format!("asking for the users of {}", path.display()), error);
    let device = File::open(path).map_err(problem)?;
    // With other users it only notes that the device goes with the last of them; as the only user,
    // nobody else can open it from here on.
    kernel::clear(&device).map_err(problem)?;
    let Some(status) = kernel::status(&device).map_err(problem)? else {
        drop(device);
        if let Err(error) = set_read_only(path, false) {
            tracing::warn!(%error, path = %path.display(), "a loop device stays read-only");
        }
        return Ok(true);
    };
    // A thread of its own, since it waits for requests. The device cannot go while it has this one
    // open.
    let (done, is_done) = channel();
    let undo = move || {
        // Nobody listens after the time-out.
        let _late = done.send(kernel::set_status(&device, status.kept()));
    };
    let started = std::thread::Builder::new().name("undo".to_owned()).spawn(undo);
    started.map_err(problem)?;
    match is_done.recv_timeout(UNDO_TIMEOUT) {
        Ok(undone) => undone.map_err(problem)?,
        Err(_hangs) => tracing::warn!(path = %path.display(), "requests to the device hang: it is kept when they end"),
    }
    Ok(false)
}

/// The loop devices of this machine that have a file, with its path as the kernel shows it. The
/// path may be of another mount namespace, or relative to an unmounted file system.
#[must_use]
pub fn all() -> Vec<(PathBuf, PathBuf)> {
    let Ok(entries) = std::fs::read_dir("/sys/block") else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        if let Some(file) = file_of(&entry.path()) {
            found.push((Path::new("/dev").join(entry.file_name()), file));
        }
    }
    found
}

/// Whether the loop device at `path` has `file`, or one whose path ends with that: it may have been
/// detached by hand, and its number reused for another one.
pub(crate) fn is_on(path: &Path, file: &str) -> bool {
    let name = path.file_name().unwrap_or_default();
    file_of(&Path::new("/sys/block").join(name)).is_some_and(|behind| behind.ends_with(file))
}

/// The file of the loop device at a place in /sys.
fn file_of(place: &Path) -> Option<PathBuf> {
    // Does not exist if the loop device has no file.
    let file = std::fs::read_to_string(place.join("loop/backing_file")).ok()?;
    // The kernel appends this if the file is deleted or unmounted.
    Some(PathBuf::from(file.trim_end().trim_end_matches(" (deleted)")))
}

/// Sets queue parameters that suit a device behind a network. Errors are ignored. Each write stops
/// the queue for tens of milliseconds, so what is as it should be is not written.
fn tune(path: &Path) {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return };
    for (file, value) in [("scheduler", "none"), ("rotational", "0"), ("add_random", "0")] {
        let path = format!("/sys/block/{name}/queue/{file}");
        if std::fs::read_to_string(&path).is_ok_and(|now| chosen(&now) == value) {
            continue;
        }
        if let Err(error) = std::fs::write(path, value) {
            tracing::debug!(%error, name, file, "not set");
        }
    }
}

/// The value of a file of /sys, which may have the others, too: `[none] mq-deadline`.
fn chosen(text: &str) -> &str {
    let marked = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    marked.map_or(text.trim(), |(value, _)| value)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_that_is_chosen_is_found_among_others() {
        assert_eq!(["0\n", "[none] mq-deadline\n", "none [bfq] kyber\n", ""].map(chosen), ["0", "none", "bfq", ""]);
    }
}
