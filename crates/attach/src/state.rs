//! The state directory: one subdirectory for each attached controller, `nvme0`, `nvme1`, ...
//!
//! Owns names, files and locks: instance numbers, the state file, and whether a daemon is alive. A
//! daemon holds an exclusive lock on its `lock` file, which the kernel releases however the process
//! ends; process ids are not trusted. After SIGKILL the lock is held until the process is gone,
//! which is waited for. [`crate::repair()`] cleans up after dead daemons. Directories and files are
//! believed if they are this user's, or the superuser's for those who only look
//! ([`ebof_state::Place`]). What udev is told of a device is there, too (`udev`).

pub(crate) mod udev;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebof_initiator::KeyText;
use ebof_manage::api::Confinement;
use ebof_state::{OwnedBy, Place, StateError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::request::{Device, Request};

/// The state file of a daemon. Programs may read it; fields are added, never changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The layout of this file: 1.
    pub version: u32,
    /// The controller's name: `nvme0`.
    pub name: String,
    /// The attach daemon.
    pub pid: u32,
    /// When it started, in the kernel's ticks since boot, which distinguishes it from another
    /// process with the same id.
    pub pid_start: u64,
    /// Seconds since 1970 when it was connected.
    pub since: u64,
    /// `live`, `connecting` or `dead`.
    pub state: String,
    /// The request, without secrets.
    pub request: Request,
    /// The host NQN.
    pub hostnqn: String,
    /// The Host Identifier.
    pub hostid: String,
    /// The subsystem.
    pub subnqn: String,
    /// The target's address.
    pub peer: String,
    /// The controller identifier.
    pub cntlid: u16,
    /// I/O queues that the controller granted.
    pub io_queues: u16,
    /// Model number.
    pub model: String,
    /// Serial number.
    pub serial: String,
    /// Firmware revision.
    pub firmware: String,
    /// `ublk` or `loop`.
    pub front: String,
    /// The namespaces.
    pub devices: Vec<Device>,
    /// Devices that ended before their controller, the latest last; at most [`ENDED_MAX`].
    #[serde(default)]
    pub ended: Vec<Ended>,
    /// Set if the daemon has ended because the controller was given up. The record stays until a
    /// disconnect acknowledges it.
    #[serde(default)]
    pub given_up: Option<GivenUp>,
    /// The paths, each with a controller. Of the first one the fields above tell, too; absent in
    /// files of earlier versions.
    #[serde(default)]
    pub paths: Vec<PathState>,
    /// How commands are divided between them: `numa`, `round-robin`, `queue-depth`, `latency`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// What the daemon has given up of its rights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confinement: Option<Confinement>,
}

/// A path of an attached subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathState {
    /// Its name: `nvme0c1`.
    pub name: String,
    /// `live`, `connecting` or `dead`.
    pub state: String,
    /// Transport: `tcp` or `rdma`.
    pub transport: String,
    /// As it was asked for.
    pub traddr: String,
    /// The port (TRSVCID).
    pub trsvcid: u16,
    /// Address that it was to be connected from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_traddr: Option<String>,
    /// Interface that it was to be connected through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_iface: Option<String>,
    /// The target's address.
    pub peer: String,
    /// The controller identifier.
    pub cntlid: u16,
    /// Commands are sent over it.
    pub enabled: bool,
    /// It is preferred among its equals.
    pub preferred: bool,
    /// The access that it gives to each namespace, where it tells, by NSID: `optimized`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub access: BTreeMap<String, String>,
    /// Outstanding commands, when it was asked.
    #[serde(default)]
    pub in_flight: u32,
    /// How many commands have completed over it, when it was asked.
    #[serde(default)]
    pub completed: u64,
}

impl PathState {
    /// Whether a user may mean it by this: its name, or its address in any form.
    #[must_use]
    pub fn is_called(&self, wanted: &str) -> bool {
        let port = format!("{}:{}", self.traddr, self.trsvcid);
        [self.name.as_str(), &self.traddr, &port, &self.address(), &self.peer].contains(&wanted)
    }

    /// The address for messages: `tcp://192.0.2.1:4420`.
    #[must_use]
    pub fn address(&self) -> String {
        crate::request::address(&self.transport, &self.traddr, self.trsvcid)
    }
}

/// Files of an instance with secrets that were given: the host's, and the subsystem's.
pub(crate) const SECRETS: [&str; 2] = ["dhchap-secret", "dhchap-ctrl-secret"];

/// The most ended devices in a state file.
pub const ENDED_MAX: usize = 16;

/// A device that ended, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Its name: `nvme0n1`.
    pub name: String,
    /// The namespace.
    pub nsid: u32,
    /// Its block device.
    pub path: Option<PathBuf>,
    /// Why it ended.
    pub reason: String,
    /// Seconds since 1970.
    pub at: u64,
}

/// Why a controller was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenUp {
    /// What came back at the last attempt.
    pub reason: String,
    /// Seconds since 1970.
    pub at: u64,
}

/// The log file of the instance at `directory`, to which the daemon appends.
#[must_use]
pub fn log(directory: &Path) -> PathBuf {
    directory.join("holder.log")
}

/// How long to wait for a killed process to end: it may be writing to a device that hangs.
const ENDING_MAX: Duration = Duration::from_secs(10);

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// An instance in the state directory.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its name: `nvme0`.
    pub name: String,
    /// Its directory.
    pub directory: PathBuf,
    /// Whether its daemon is alive.
    pub live: bool,
    /// The state that the daemon wrote last; absent if it is not ready, or died before.
    pub state: Option<State>,
}

impl Record {
    /// Why its controller was given up, until that is acknowledged.
    #[must_use]
    pub fn given_up(&self) -> Option<&GivenUp> {
        self.state.as_ref().filter(|_| !self.live)?.given_up.as_ref()
    }

    /// Whether its daemon is alive now.
    #[must_use]
    pub fn is_live_now(&self) -> bool {
        match Place::open(&self.directory, OwnedBy::MeOrRoot) {
            Ok(Some(place)) => is_live(&place, self.state.as_ref()),
            Ok(None) => false,
            // What cannot be told is no end.
            Err(_) => true,
        }
    }

    /// The control socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.directory.join("control.sock")
    }

    /// The daemon's log file.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        log(&self.directory)
    }

    /// The request, also before there is a state file.
    #[must_use]
    pub fn request(&self) -> Option<Request> {
        match &self.state {
            Some(state) => Some(state.request.clone()),
            None => read_request(&self.directory).ok(),
        }
    }

    /// Whether its daemon's lock is held.
    pub(crate) fn is_locked(&self) -> bool {
        match Place::open(&self.directory, OwnedBy::MeOrRoot) {
            Ok(Some(place)) => is_locked(&place),
            Ok(None) => false,
            // What cannot be told is no end.
            Err(_) => true,
        }
    }

    /// Whether a process has the instance's lock as its standard input, as its daemon does.
    pub(crate) fn is_held_by(&self, pid: u32) -> bool {
        let file = |path: &Path| std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
        let lock = file(&self.directory.join(LOCK));
        lock.is_some() && file(Path::new(&format!("/proc/{pid}/fd/0"))) == lock
    }
}

/// The state directory.
#[derive(Clone, Debug)]
pub struct StateDir {
    base: PathBuf,
}

/// Holds the directory's lock, under which instances are made and repaired.
#[derive(Debug)]
pub struct Guard {
    place: Place,
    _file: File,
}

/// The file of the directory, and of each instance, that is locked.
const LOCK: &str = "lock";

/// The longest file of an instance, bytes: a state with a thousand namespaces fits.
const FILE_BYTES_MAX: u64 = 4 << 20;

impl StateDir {
    /// This user's: what the user has named ([`ebof_state::runtime_directory`]), else `/run/ebof`
    /// for root, else `$XDG_RUNTIME_DIR/ebof`, else `/tmp/ebof-UID`.
    #[must_use]
    pub fn standard() -> Self {
        let named = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let user = rustix::process::geteuid();
        let base = ebof_state::runtime_directory().unwrap_or_else(|| {
            if user.is_root() {
                Self::of_root().base
            } else {
                let runtime = named("XDG_RUNTIME_DIR").map(|directory| directory.join("ebof"));
                runtime.unwrap_or_else(|| PathBuf::from(format!("/tmp/ebof-{}", user.as_raw())))
            }
        });
        Self { base }
    }

    /// The superuser's.
    #[must_use]
    pub fn of_root() -> Self {
        Self { base: PathBuf::from("/run/ebof") }
    }

    /// The superuser's, for other users; `None` for the superuser, and if the user has named one.
    #[must_use]
    pub fn of_root_for_others() -> Option<Self> {
        let only = ebof_state::runtime_directory().is_some();
        let own = Self::standard();
        let root = Self::of_root();
        (!only && own.path() != root.path()).then_some(root)
    }

    /// The directory at `base`, which need not exist.
    #[must_use]
    pub fn at(base: &Path) -> Self {
        Self { base: base.to_owned() }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.base
    }

    /// Takes the lock under which instances are made and repaired. Makes the directory.
    ///
    /// # Errors
    /// The directory cannot be made or written; it is somebody else's.
    pub fn lock(&self) -> Result<Guard, Error> {
        let problem = |error| Error::io(format!("using the state directory {}", self.base.display()), error);
        // Everybody may see what root has connected.
        let mode = if rustix::process::geteuid().is_root() { 0o755 } else { 0o700 };
        let place = Place::make(&self.base, mode)?;
        let file = place.lock_file(LOCK)?;
        loop {
            match flock(&file, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(Guard { place, _file: file }),
                Err(Errno::INTR) => {}
                Err(error) => return Err(problem(error.into())),
            }
        }
    }

    /// That nobody but this user and the superuser has put anything there.
    ///
    /// # Errors
    /// The directory is somebody else's, or others may write to it.
    pub fn check(&self) -> Result<(), Error> {
        Place::open(&self.base, OwnedBy::MeOrRoot)?;
        Ok(())
    }

    /// All instances, by number. A directory that does not exist has none.
    ///
    /// # Errors
    /// The directory cannot be read, or is somebody else's.
    pub fn records(&self) -> Result<Vec<Record>, Error> {
        self.records_but("")
    }

    /// The same without one of them, which is not read.
    pub(crate) fn records_but(&self, but: &str) -> Result<Vec<Record>, Error> {
        let Some(place) = Place::open(&self.base, OwnedBy::MeOrRoot)? else { return Ok(Vec::new()) };
        let mut numbers: Vec<u32> = place.names()?.iter().filter_map(|name| instance_number(name)).collect();
        numbers.sort_unstable();
        let names = numbers.into_iter().map(|number| format!("nvme{number}")).filter(|name| name != but);
        Ok(names.filter_map(|name| self.record(&place, &name)).collect())
    }

    /// What is stored of an instance; `None` if it is gone, or not the directory's owner's.
    fn record(&self, states: &Place, name: &str) -> Option<Record> {
        let directory = self.base.join(name);
        let place = match states.below(name) {
            Ok(place) => place?,
            Err(error) => {
                tracing::warn!(%error, "not an attached controller");
                return None;
            }
        };
        // The state first: a daemon that ends in between is seen as dead, with its last state.
        let state = read_state(&place);
        let live = is_live(&place, state.as_ref());
        Some(Record { name: name.to_owned(), directory, live, state })
    }

    /// Makes the directory of a new instance with the request in it, and locks it; the daemon gets
    /// the lock. Numbers of the kernel's own NVMe controllers are skipped, so that names are
    /// unique.
    ///
    /// # Errors
    /// The directory cannot be made or written.
    pub fn create(&self, guard: &Guard, request: &Request) -> Result<(Record, File), Error> {
        for number in 0..=u32::MAX {
            let name = format!("nvme{number}");
            if Path::new("/sys/class/nvme").join(&name).exists() {
                continue;
            }
            let directory = self.base.join(&name);
            if !guard.place.make_below(&name, 0o755)? {
                continue;
            }
            let prepared = own(&directory).and_then(|place| {
                write_request(&place, &keep_secrets(&place, request, "")?)?;
                let lock = place.lock_file(LOCK)?;
                let locked = flock(&lock, FlockOperation::NonBlockingLockExclusive);
                locked.map_err(|error| Error::io(format!("locking {}", directory.display()), error.into()))?;
                Ok(lock)
            });
            let lock = prepared?;
            return Ok((Record { name, directory, live: true, state: None }, lock));
        }
        Err(Error::io("finding a free number", io::ErrorKind::StorageFull.into()))
    }
}

fn instance_number(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("nvme")?;
    let number: u32 = digits.parse().ok()?;
    // "nvme01" is not a name of an instance.
    (number.to_string() == digits).then_some(number)
}

/// This user's directory of an instance.
fn own(directory: &Path) -> Result<Place, Error> {
    let gone = || Error::io(format!("opening {}", directory.display()), io::ErrorKind::NotFound.into());
    Place::open(directory, OwnedBy::Me)?.ok_or_else(gone)
}

/// Whether the exclusive lock is held. Takes a shared lock for a moment, so that callers do not see
/// each other. An error tells nothing, so it counts as held: what a daemon that is dead has left is
/// removed.
fn is_locked(place: &Place) -> bool {
    match place.file(LOCK) {
        Ok(Some(file)) => flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
        Ok(None) => false,
        Err(_) => true,
    }
}

/// Whether a daemon is alive and not about to end: kill(2) returns before the process is gone.
fn is_live(place: &Place, state: Option<&State>) -> bool {
    if !is_locked(place) {
        return false;
    }
    match state.filter(|state| await_killed(state.pid, state.pid_start)) {
        // The lock decides: in another PID namespace the id is another process.
        Some(_ended) => is_locked(place),
        None => true,
    }
}

/// Waits for a process that is ending, or was sent SIGKILL; `false` if it is not, or takes longer
/// than [`ENDING_MAX`].
fn await_killed(pid: u32, start: u64) -> bool {
    let Some(process) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    let process = match pidfd_open(process, PidfdFlags::empty()) {
        Ok(process) => process,
        Err(error) => return error == Errno::SRCH,
    };
    // The pid descriptor keeps referring to the same process, so the start time tells whether it is
    // the daemon.
    if process_start(pid) != Some(start) || !is_ending(pid) {
        return false;
    }
    let timeout = Timespec::try_from(ENDING_MAX).ok();
    // Its files are closed before it counts as ended.
    poll(&mut [PollFd::new(&process, PollFlags::IN)], timeout.as_ref()).is_ok_and(|ended| ended > 0)
}

/// Whether a process is ending, or has been sent SIGKILL.
fn is_ending(pid: u32) -> bool {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    // proc(5), stat: after the name, the state; the ninth field is the flags, where 4 is
    // PF_EXITING.
    let stat = read("stat");
    let mut fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ');
    let is_zombie = fields.next().is_some_and(|state| matches!(state, "Z" | "X"));
    let flags: u32 = fields.nth(5).and_then(|flags| flags.parse().ok()).unwrap_or_default();
    // status: SIGKILL stays in the pending signals of the process until it has ended.
    let status = read("status");
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    let pending = pending.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or_default();
    is_zombie || flags & 4 != 0 || pending & 1 << (Signal::KILL.as_raw() - 1) != 0
}

/// Keeps the secrets of another path of the instance, each in a file of its own.
pub(crate) fn keep_secrets_of_path(directory: &Path, request: &Request) -> Result<Request, Error> {
    let own = own(directory)?;
    let suffix = (1..u32::MAX)
        .map(|number| format!(".{number}"))
        .find(|suffix| SECRETS.iter().all(|file| !directory.join(format!("{file}{suffix}")).exists()));
    keep_secrets(&own, request, &suffix.unwrap_or_default())
}

/// Keeps secrets that were given in files that only this user may read, as long as the instance is
/// there ([`crate::repair::retire`]). Returns the request that names them.
fn keep_secrets(place: &Place, request: &Request, suffix: &str) -> Result<Request, Error> {
    let mut request = request.clone();
    let keep = |file: &str, text: &KeyText| -> Result<PathBuf, Error> {
        let file = format!("{file}{suffix}");
        place.replace(&file, 0o600, text.text().as_bytes())?;
        Ok(place.path().join(file))
    };
    let [host, controller] = SECRETS;
    if let Some(text) = request.dhchap_secret.take() {
        request.overrides.dhchap_secret_file = Some(keep(host, &text)?);
    }
    if let Some(text) = request.dhchap_ctrl_secret.take() {
        request.overrides.dhchap_ctrl_secret_file = Some(keep(controller, &text)?);
    }
    Ok(request)
}

fn write_request(place: &Place, request: &Request) -> Result<(), Error> {
    let bytes = serde_json::to_vec(request);
    let bytes = bytes.map_err(|error| Error::State { path: place.path().join("request.json"), error })?;
    Ok(place.replace("request.json", 0o600, &bytes)?)
}

/// Reads the request that [`StateDir::create`] wrote.
pub(crate) fn read_request(directory: &Path) -> Result<Request, Error> {
    let path = directory.join("request.json");
    let place = Place::open(directory, OwnedBy::MeOrRoot)?;
    let bytes = place.map(|place| place.read("request.json", FILE_BYTES_MAX)).transpose()?.flatten();
    let missing = || Error::io(format!("reading {}", path.display()), io::ErrorKind::NotFound.into());
    serde_json::from_slice(&bytes.ok_or_else(missing)?).map_err(|error| Error::State { path, error })
}

/// Writes the state file of the instance in `directory`.
pub(crate) fn write_state(directory: &Path, state: &State) -> Result<(), Error> {
    let bytes = serde_json::to_vec_pretty(state);
    let bytes = bytes.map_err(|error| Error::State { path: directory.join("state.json"), error })?;
    Ok(own(directory)?.replace("state.json", 0o644, &bytes)?)
}

/// Reads the state file, if there is one that this version understands.
fn read_state(place: &Place) -> Option<State> {
    let directory = place.path().display();
    let bytes = match place.read("state.json", FILE_BYTES_MAX) {
        Ok(bytes) => bytes?,
        Err(StateError::System { .. }) => return None,
        Err(error) => {
            tracing::warn!(%error, %directory, "the state file is not believed");
            return None;
        }
    };
    match serde_json::from_slice(&bytes) {
        Ok(state) => Some(state),
        Err(error) => {
            tracing::warn!(%error, %directory, "the state file is not understood");
            None
        }
    }
}

/// When a process started, in clock ticks since boot; `None` if it does not exist.
#[must_use]
pub fn process_start(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // proc(5): the second field, the name in parentheses, may contain any characters; the 22nd is
    // the start time.
    text.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Releases an instance's lock like a daemon that ends. Closing it is not enough here: a
    /// process that another test is starting has the open file, too, until its exec.
    pub(crate) fn end_daemon(lock: &File) {
        flock(lock, FlockOperation::Unlock).unwrap();
    }

    #[test]
    fn instances_are_numbered_and_end_with_their_lock() {
        let directory = tempfile::tempdir().unwrap();
        let states = StateDir::at(&directory.path().join("deep/ebof"));
        assert!(states.records().unwrap().is_empty());
        let guard = states.lock().unwrap();
        let request = Request { nqn: "nqn.x".to_owned(), ..Request::default() };
        let (first, first_lock) = states.create(&guard, &request).unwrap();
        let (second, _second_lock) = states.create(&guard, &request).unwrap();
        assert_ne!(first.name, second.name);
        let live = |name: &str| states.records().unwrap().iter().find(|record| record.name == name).unwrap().live;
        assert!(live(&first.name) && live(&second.name));
        end_daemon(&first_lock);
        assert!(!live(&first.name) && live(&second.name));
        assert_eq!(second.request().unwrap(), request);
        assert_eq!(read_request(&second.directory).unwrap(), request);
    }

    #[test]
    fn a_lock_that_cannot_be_read_is_held() {
        let directory = tempfile::tempdir().unwrap();
        let place = || Place::open(directory.path(), OwnedBy::Me).unwrap().unwrap();
        assert!(!is_locked(&place()), "there is none");
        // For the superuser, too, this cannot be opened.
        std::os::unix::fs::symlink("lock", directory.path().join("lock")).unwrap();
        assert!(is_locked(&place()));
    }

    #[test]
    fn links_in_place_of_records_are_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let states = StateDir::at(&directory.path().join("ebof"));
        let elsewhere = StateDir::at(&directory.path().join("elsewhere"));
        let request = Request { nqn: "nqn.x".to_owned(), ..Request::default() };
        let (record, _lock) = elsewhere.create(&elsewhere.lock().unwrap(), &request).unwrap();
        drop(states.lock().unwrap());
        std::os::unix::fs::symlink(&record.directory, states.path().join("nvme0")).unwrap();
        assert!(states.records().unwrap().is_empty());
    }

    #[test]
    fn directories_that_others_may_write_to_are_refused() {
        use std::os::unix::fs::PermissionsExt as _;

        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
        let states = StateDir::at(directory.path());
        for error in [states.records().unwrap_err(), states.lock().unwrap_err(), states.check().unwrap_err()] {
            let text = error.to_string();
            assert!(text.contains("may be written by others") && text.contains("EBOF_RUNTIME_DIR"), "{text}");
        }
    }

    #[test]
    fn foreign_names_are_ignored() {
        assert_eq!(instance_number("nvme12"), Some(12));
        for name in ["nvme", "nvme01", "nvme-1", "nvme1n1", "lock", "nvme+1"] {
            assert_eq!(instance_number(name), None, "{name}");
        }
    }

    #[test]
    fn the_start_of_a_process_is_stable() {
        let me = std::process::id();
        assert!(process_start(me).is_some());
        assert_eq!(process_start(me), process_start(me));
        assert_eq!(process_start(u32::MAX), None);
    }
}
