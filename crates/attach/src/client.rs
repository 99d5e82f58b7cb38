//! The functions for a command line: connect, disconnect, list, and requests to a daemon. Starts
//! and ends daemon processes; what they do is in [`crate::daemon`].

pub(crate) mod paths;

use std::io::{self, BufRead, BufReader, Read};
use std::net::ToSocketAddrs as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use ebof_initiator::AdminData;
use ebof_nvme::{Cqe, Nqn, Sqe};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use zerocopy::{FromBytes, IntoBytes};

use crate::client::paths::{Destination, PathSettings};
use crate::control::stats::Stats;
use crate::control::{self, Answer, Call, DATA_MAX_BYTES};
use crate::daemon;
use crate::daemon::ready::Ready;
use crate::daemon::scope;
use crate::error::Error;
use crate::repair::{self, Repaired};
use crate::request::{Attached, Device, Request};
use crate::state::{GivenUp, Record, State, StateDir, process_start};

/// Time for a daemon to end after a request over its socket, which includes the controller's
/// shutdown.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for a daemon that did not answer to end after SIGTERM, before SIGKILL.
const TERMINATE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long another daemon of the same subsystem may take until its devices are there.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(60);
/// The largest first message of a daemon, bytes.
const READY_MAX_BYTES: u64 = 1 << 20;

/// The most records of controllers that were given up and not acknowledged; the oldest is dropped.
const GIVEN_UP_MAX: usize = 16;

/// What an authentication came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticated {
    /// The hash: `SHA-256`.
    pub hash: String,
    /// The group: `ffdhe3072`.
    pub group: String,
    /// Whether the controller has proven itself, too.
    pub mutual: bool,
    /// Whether the key for TLS was replaced.
    pub tls_key_replaced: bool,
}

/// Connects a controller and makes its block devices, in a daemon that outlives this process. Waits
/// until they are made. If the subsystem is connected already, the controller becomes another path
/// of the devices that are there.
///
/// # Errors
/// Why it failed and what to do; [`Error::AlreadyConnected`] unless the request allows a duplicate.
pub fn connect(request: &Request) -> Result<Attached, Error> {
    connect_in(&StateDir::standard(), request)
}

/// As [`connect`], with another state directory.
///
/// # Errors
/// As [`connect`].
pub fn connect_in(states: &StateDir, request: &Request) -> Result<Attached, Error> {
    // Before taking the lock: name lookup may be slow.
    let addresses = resolve(request);
    let end = Instant::now() + BEGIN_TIMEOUT;
    let guard = loop {
        let guard = states.lock()?;
        repair::repair_locked(states, &guard)?;
        forget_oldest(states)?;
        match if request.duplicate_connect {
            Destination::New
        } else {
            paths::destination(states, request, &addresses)?
        } {
            Destination::New => break guard,
            Destination::Path(record) => {
                drop(guard);
                return paths::join(&record, request);
            }
            // One that is only about to be there.
            Destination::Later(name) if Instant::now() > end => {
                return Err(Error::daemon(format!(
                    "{name}, a controller of this subsystem, is still being connected after {} s: see its log with `ebof list -v`",
                    BEGIN_TIMEOUT.as_secs()
                )));
            }
            Destination::Later(_) => {
                drop(guard);
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    };
    let (record, lock) = states.create(&guard, request)?;
    drop(guard);
    let child = match spawn(&record, lock) {
        Ok(child) => child,
        Err(error) => {
            // If it cannot be removed now, it is repaired later.
            if let Err(error) = repair::remove(&record.directory) {
                tracing::debug!(%error, "removing an instance that was not started");
            }
            return Err(error);
        }
    };
    await_ready(states, &record, child)
}

/// The addresses of a request; none if the lookup fails, which connecting reports.
fn resolve(request: &Request) -> Vec<String> {
    let found = (request.traddr.as_str(), request.trsvcid).to_socket_addrs();
    found.map(|found| found.map(|address| address.to_string()).collect()).unwrap_or_default()
}

/// The host NQN of a request.
fn host_of(request: &Request) -> Nqn {
    request.overrides.hostnqn.clone().unwrap_or_else(|| ebof_initiator::host::identity().nqn)
}

/// Drops the oldest unacknowledged records.
fn forget_oldest(states: &StateDir) -> Result<(), Error> {
    let mut given_up: Vec<(u64, Record)> =
        states.records()?.into_iter().filter_map(|record| Some((record.given_up()?.at, record))).collect();
    given_up.sort_by_key(|(at, _)| *at);
    for (_, record) in given_up.iter().take(given_up.len().saturating_sub(GIVEN_UP_MAX)) {
        if let Err(error) = repair::remove(&record.directory) {
            tracing::warn!(%error, name = record.name, "removing the record of a controller that was given up");
        }
    }
    Ok(())
}

/// Starts the daemon. Its standard input is the instance's lock, which the kernel releases however
/// the process ends.
fn spawn(record: &Record, lock: std::fs::File) -> Result<Child, Error> {
    let program = std::env::current_exe().map_err(|error| Error::io("finding this program's own file", error))?;
    // The daemon appends to it, too.
    let log = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(record.log())
        .map_err(|error| Error::io(format!("making {}", record.log().display()), error))?;
    ebof_state::hand_on_runtime_directory(&mut scope::command(&program, &record.directory))
        .arg(daemon::ARGUMENT)
        .arg(&record.directory)
        .current_dir("/")
        .stdin(Stdio::from(lock))
        .stdout(Stdio::piped())
        .stderr(Stdio::from(log))
        .spawn()
        .map_err(|error| Error::io(format!("starting {}", program.display()), error))
}

fn await_ready(states: &StateDir, record: &Record, mut child: Child) -> Result<Attached, Error> {
    let mut line = String::new();
    let read = match child.stdout.take() {
        Some(stdout) => BufReader::new(stdout).take(READY_MAX_BYTES).read_line(&mut line),
        None => Ok(0),
    };
    let ready = read.ok().filter(|&bytes| bytes > 0).and_then(|_| serde_json::from_str::<Ready>(&line).ok());
    if let Some(Ready::Attached(attached)) = ready {
        // Reaps the daemon if it ends before this process.
        let reaper = std::thread::Builder::new().name("reaper".to_owned()).spawn(move || child.wait());
        if let Err(error) = reaper {
            tracing::debug!(%error, "nobody waits for the daemon");
        }
        return Ok(attached);
    }
    let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    let died = Error::DaemonDied { status, log: record.log(), tail: tail(&record.log()) };
    // Also removes what it left in the kernel.
    repair::repair(states)?;
    match ready {
        Some(Ready::Failed { existing: Some(existing), .. }) => Err(Error::AlreadyConnected(existing)),
        Some(Ready::Failed { message, kind, .. }) => Err(Error::Daemon { message, kind }),
        _ => Err(died),
    }
}

/// The last lines of a log.
fn tail(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

/// All attached controllers, also those whose daemon died. Repairs nothing: see
/// [`crate::repair()`].
///
/// # Errors
/// The state directory cannot be read.
pub fn list() -> Result<Vec<Record>, Error> {
    StateDir::standard().records()
}

/// What to disconnect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Select {
    /// Every controller of the subsystem.
    Nqn(String),
    /// The controller with this name, or with this namespace or block device; a path of one
    /// (`nvme0c1`) is taken away alone.
    Device(String),
    /// Every controller that is connected over the transport (`tcp`, `rdma`).
    Transport(String),
    /// Every controller that was connected with this owner.
    Owner(String),
    /// Everything.
    All,
}

/// What [`disconnect`] did.
#[derive(Debug, Default)]
pub struct Report {
    /// Controllers that were disconnected, and their subsystems.
    pub disconnected: Vec<(String, String)>,
    /// Controllers that had been given up, and their subsystems; their records are removed.
    pub acknowledged: Vec<(String, String)>,
    /// Controllers that could not be disconnected, and why.
    pub failed: Vec<(String, Error)>,
    /// What was repaired after killed daemons.
    pub repaired: Vec<Repaired>,
}

/// Removes devices and disconnects. Daemons that do not answer are terminated. Controllers with a
/// device in use are left alone unless `force`.
///
/// # Errors
/// The state directory cannot be used, or there is no such device. Errors of single controllers are
/// in the report.
pub fn disconnect(select: &Select, force: bool) -> Result<Report, Error> {
    let root = StateDir::of_root_for_others();
    disconnect_in(&StateDir::standard(), select, force).map_err(|error| or_of_root(error, root.as_ref()))
}

/// The controllers that have lost their target and try to reach it again.
///
/// # Errors
/// The state directory cannot be read.
pub fn unreachable() -> Result<Vec<String>, Error> {
    let is_lost = |record: &Record| record.live && record.state.as_ref().is_some_and(|state| state.state != "live");
    Ok(list()?.into_iter().filter(is_lost).map(|record| record.name).collect())
}

/// The controllers that match `select` and were connected by the superuser, for other users: they
/// exist but cannot be used.
#[must_use]
pub fn connected_by_root(select: &Select) -> Vec<String> {
    StateDir::of_root_for_others().map(|root| live_in(&root, select)).unwrap_or_default()
}

/// The live controllers of a state directory; none if it cannot be read.
fn live_in(states: &StateDir, select: &Select) -> Vec<String> {
    let records = states.records().unwrap_or_default().into_iter();
    records.filter(|record| record.live && selects(select, record)).map(|record| record.name).collect()
}

/// Replaces "not connected" by [`Error::OfRoot`] if the superuser has connected it.
fn or_of_root(error: Error, root: Option<&StateDir>) -> Error {
    match (error, root) {
        (Error::NotConnected { name }, Some(root)) if !live_in(root, &Select::Device(name.clone())).is_empty() => {
            Error::OfRoot { name }
        }
        (error, _) => error,
    }
}

/// As [`disconnect`], with another state directory.
///
/// # Errors
/// As [`disconnect`].
pub fn disconnect_in(states: &StateDir, select: &Select, force: bool) -> Result<Report, Error> {
    let mut report = Report::default();
    let records = states.records()?;
    let chosen: Vec<Record> = records.into_iter().filter(|record| selects(select, record)).collect();
    if let (Select::Device(name), true) = (select, chosen.is_empty()) {
        return Err(Error::NotConnected { name: name.clone() });
    }
    for record in chosen {
        let nqn = record.request().map(|request| request.nqn).unwrap_or_default();
        if !record.live {
            if record.given_up().is_some() {
                acknowledge(states, record, nqn, &mut report)?;
            }
            continue;
        }
        if let Select::Device(name) = select
            && paths::is_path_of(&record, bare(name))
        {
            match paths::remove(&record, bare(name)) {
                Ok(()) => report.disconnected.push((bare(name).to_owned(), nqn)),
                Err(error) => report.failed.push((bare(name).to_owned(), error)),
            }
            continue;
        }
        match disconnect_one(&record, force) {
            Ok(()) => report.disconnected.push((record.name, nqn)),
            Err(error) => report.failed.push((record.name, error)),
        }
    }
    report.repaired = repair::repair(states)?;
    Ok(report)
}

/// Removes the record of a controller that was given up.
fn acknowledge(states: &StateDir, record: Record, nqn: String, report: &mut Report) -> Result<(), Error> {
    let _guard = states.lock()?;
    match repair::remove(&record.directory) {
        Ok(()) => report.acknowledged.push((record.name, nqn)),
        Err(error) => {
            let what = format!("removing {}", record.directory.display());
            report.failed.push((record.name, Error::io(what, error)));
        }
    }
    Ok(())
}

fn selects(select: &Select, record: &Record) -> bool {
    match select {
        Select::All => true,
        Select::Transport(transport) => record.request().is_some_and(|request| request.transport == *transport),
        Select::Owner(owner) => record.request().is_some_and(|request| request.owner.as_ref() == Some(owner)),
        Select::Nqn(nqn) => record.request().is_some_and(|request| request.nqn == *nqn),
        Select::Device(name) => {
            record.name == bare(name) || device_of(record, name).is_some() || paths::is_path_of(record, bare(name))
        }
    }
}

/// The name without `/dev/`.
fn bare(name: &str) -> &str {
    name.strip_prefix("/dev/").unwrap_or(name)
}

fn device_of<'a>(record: &'a Record, name: &str) -> Option<&'a Device> {
    let devices = record.state.as_ref()?.devices.iter();
    devices.into_iter().find(|device| device.name == bare(name) || device.path.as_deref() == Some(Path::new(name)))
}

/// How long a daemon that has closed its connection may take to be gone.
const END_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 15 });

fn disconnect_one(record: &Record, force: bool) -> Result<(), Error> {
    let silence = match ask_to_end(record, force) {
        Ok(Answer::InUse { name, used_by }) => return Err(Error::InUse { name, used_by }),
        Ok(Answer::Failed { message }) => return Err(Error::daemon(message)),
        Ok(Answer::Busy) => "its attach daemon waits for the target".to_owned(),
        Ok(_) => return Ok(()),
        Err(error) if is_end(&error) && ends(record) => return Ok(()),
        Err(error) => format!("its attach daemon does not answer ({error})"),
    };
    if !force {
        let name = record.name.clone();
        return Err(Error::MayBeInUse { name, why: silence, log: record.log() });
    }
    tracing::warn!(name = record.name, "{silence}: it is ended");
    terminate(record)
}

/// Whether the error is that of a daemon that is ending, or has ended.
fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionRefused | BrokenPipe | NotFound)
}

/// Waits until the daemon is gone: somebody else has asked it to end.
fn ends(record: &Record) -> bool {
    let end = Instant::now() + END_TIMEOUT;
    while record.is_live_now() {
        // Without a state file it is only about to begin.
        if record.state.is_none() || Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

fn ask_to_end(record: &Record, force: bool) -> io::Result<Answer> {
    let mut stream = BufReader::new(UnixStream::connect(record.socket())?);
    stream.get_ref().set_read_timeout(Some(DISCONNECT_TIMEOUT))?;
    control::send(stream.get_mut(), &Call::Disconnect { force }, &[])?;
    match control::receive(&mut stream)? {
        Some((answer, _)) => Ok(answer),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Terminates a daemon that does not answer, by SIGTERM and then SIGKILL. The caller repairs what
/// it left.
fn terminate(record: &Record) -> Result<(), Error> {
    let Some(state) = &record.state else {
        let error = io::Error::new(io::ErrorKind::NotFound, "it is still connecting and has written no state file");
        return Err(Error::Unresponsive { name: record.name.clone(), pid: 0, error, log: record.log() });
    };
    let unresponsive =
        |error| Error::Unresponsive { name: record.name.clone(), pid: state.pid, error, log: record.log() };
    // Its end is what is wanted.
    let gone = || match record.is_locked() {
        true => Err(unresponsive(io::Error::other("it is not the process that the state file names"))),
        false => Ok(()),
    };
    let Some(pid) = i32::try_from(state.pid).ok().and_then(Pid::from_raw) else { return gone() };
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return gone() };
    // The pid descriptor keeps referring to the same process, so start time and lock tell whether
    // it is the daemon.
    if process_start(state.pid) != Some(state.pid_start) || !record.is_held_by(state.pid) {
        return gone();
    }
    for signal in [Signal::TERM, Signal::KILL] {
        pidfd_send_signal(&process, signal).map_err(|error| unresponsive(error.into()))?;
        let timeout = Timespec::try_from(TERMINATE_TIMEOUT).ok();
        let mut fds = [PollFd::new(&process, PollFlags::IN)];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) | Err(_) => {}
            Ok(_ended) => return Ok(()),
        }
    }
    Err(unresponsive(io::ErrorKind::TimedOut.into()))
}

/// A client of a controller's daemon.
#[derive(Debug)]
pub struct Client {
    record: Record,
    state: State,
    device: Option<Device>,
    stream: BufReader<UnixStream>,
}

/// Opens an attached controller (`nvme0`) or namespace (`nvme0n1`, or its block device) by name.
///
/// # Errors
/// [`Error::NotConnected`], [`Error::OfRoot`], [`Error::Unresponsive`].
pub fn open(name: &str) -> Result<Client, Error> {
    let root = StateDir::of_root_for_others();
    open_in(&StateDir::standard(), name).map_err(|error| or_of_root(error, root.as_ref()))
}

/// As [`open`], with another state directory.
///
/// # Errors
/// As [`open`].
pub fn open_in(states: &StateDir, name: &str) -> Result<Client, Error> {
    let chosen = Select::Device(name.to_owned());
    let records = states.records()?;
    let mut named: Vec<Record> = records.into_iter().filter(|record| selects(&chosen, record)).collect();
    let Some(live) = named.iter().position(|record| record.live) else {
        let given_up = named.iter().find_map(|record| Some((record, record.given_up()?)));
        return Err(match given_up {
            Some((record, GivenUp { reason, at })) => {
                let name = record.name.clone();
                let log = record.log();
                Error::GivenUp { name, reason: reason.clone(), at: *at, log }
            }
            None => Error::NotConnected { name: name.to_owned() },
        });
    };
    let record = named.swap_remove(live);
    let device = device_of(&record, name).cloned();
    open_record(record, device)
}

/// A client of the daemon of `record`.
fn open_record(record: Record, device: Option<Device>) -> Result<Client, Error> {
    let Some(state) = record.state.clone() else { return Err(Error::NotConnected { name: record.name }) };
    let stream = UnixStream::connect(record.socket()).map_err(|error| Error::Unresponsive {
        name: record.name.clone(),
        pid: state.pid,
        error,
        log: record.log(),
    })?;
    Ok(Client { record, state, device, stream: BufReader::new(stream) })
}

impl Client {
    /// The state that the daemon wrote last.
    #[must_use]
    pub fn info(&self) -> &State {
        &self.state
    }

    /// The namespace that was opened by name, if any.
    #[must_use]
    pub fn device(&self) -> Option<&Device> {
        self.device.as_ref()
    }

    /// Runs an admin command with at most 16 MiB of data and waits for it. A status other than
    /// success is no error; it is in the entry.
    ///
    /// # Errors
    /// The controller is not connected, or the daemon does not answer.
    pub fn admin(&mut self, sqe: &Sqe, data: AdminData<'_>, timeout: Option<Duration>) -> Result<Cqe, Error> {
        let timeout_ms = timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        let sqe = control::to_hex(sqe.as_bytes());
        self.command(data, |read_bytes| Call::Admin { sqe, read_bytes, timeout_ms })
    }

    /// Runs an I/O command and waits for it, as [`Client::admin`]. It is not ordered with the block
    /// device's I/O.
    ///
    /// # Errors
    /// As [`Client::admin`].
    pub fn io(&mut self, sqe: &Sqe, data: AdminData<'_>) -> Result<Cqe, Error> {
        let sqe = control::to_hex(sqe.as_bytes());
        self.command(data, |read_bytes| Call::Io { sqe, read_bytes })
    }

    /// The present state.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn status(&mut self) -> Result<&State, Error> {
        if let (Answer::Status { state }, _) = self.exchange(&Call::Status, &[])? {
            self.state = *state;
        }
        Ok(&self.state)
    }

    /// What the daemon has counted.
    ///
    /// # Errors
    /// The daemon does not answer, or is of an earlier version, which counts nothing.
    pub fn stats(&mut self) -> Result<Stats, Error> {
        let (Answer::Counted, data) = self.exchange(&Call::Stats, &[])? else { return Err(self.nonsense()) };
        let stats: Stats = serde_json::from_slice(&data).map_err(|_nonsense| self.nonsense())?;
        Ok(stats.bounded())
    }

    /// Sets how long each answer may take; for ever if there is none.
    ///
    /// # Errors
    /// Of the socket.
    pub fn limit(&mut self, time: Option<Duration>) -> Result<(), Error> {
        let stream = self.stream.get_ref();
        let limited = stream.set_read_timeout(time).and_then(|()| stream.set_write_timeout(time));
        limited.map_err(|error| self.unresponsive(error))
    }

    /// Resets the controller: drops the connections and reconnects. Does not wait.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn reset(&mut self) -> Result<(), Error> {
        self.exchange(&Call::Reset, &[]).map(|_done| ())
    }

    /// Changes what is said of the paths: all of it, or nothing.
    ///
    /// # Errors
    /// There is no such path or policy; it is the last one; the daemon does not answer.
    pub fn set_paths(&mut self, settings: &PathSettings) -> Result<(), Error> {
        let PathSettings { policy, prefer, enable, disable } = settings.clone();
        self.exchange(&Call::SetPaths { policy, prefer, enable, disable }, &[]).map(|_done| ())
    }

    /// Has the controller authenticate its host again. I/O goes on meanwhile.
    ///
    /// # Errors
    /// It fails, or the daemon does not answer.
    pub fn reauthenticate(&mut self) -> Result<Authenticated, Error> {
        match self.exchange(&Call::Reauthenticate, &[])? {
            (Answer::Authenticated { hash, group, mutual, tls_key_replaced }, _) => {
                Ok(Authenticated { hash, group, mutual, tls_key_replaced })
            }
            _ => Err(self.nonsense()),
        }
    }

    /// Scans for namespaces that were added, removed or changed, and updates the devices.
    ///
    /// # Errors
    /// The controller is not connected, or the daemon does not answer.
    pub fn rescan(&mut self) -> Result<(), Error> {
        self.exchange(&Call::Rescan, &[]).map(|_done| ())
    }

    fn command(&mut self, data: AdminData<'_>, call: impl FnOnce(u32) -> Call) -> Result<Cqe, Error> {
        let too_much = || Error::daemon("more than 16 MiB of data for one command".to_owned());
        let (answer, returned) = match &data {
            AdminData::None => self.exchange(&call(0), &[])?,
            AdminData::FromHost(bytes) => self.exchange(&call(0), bytes)?,
            AdminData::ToHost(buffer) => {
                let bytes = u32::try_from(buffer.len()).ok().filter(|&bytes| bytes <= DATA_MAX_BYTES);
                self.exchange(&call(bytes.ok_or_else(too_much)?), &[])?
            }
        };
        let Answer::Completed { cqe } = answer else { return Err(self.nonsense()) };
        let bytes: [u8; 16] = control::from_hex(&cqe).ok_or_else(|| self.nonsense())?;
        if let AdminData::ToHost(buffer) = data {
            let bytes = buffer.len().min(returned.len());
            buffer[..bytes].copy_from_slice(&returned[..bytes]);
        }
        Cqe::read_from_bytes(&bytes).map_err(|_size| self.nonsense())
    }

    fn exchange(&mut self, call: &Call, data: &[u8]) -> Result<(Answer, Vec<u8>), Error> {
        let exchanged = control::send(self.stream.get_mut(), call, data)
            .and_then(|()| control::receive(&mut self.stream))
            .and_then(|answer| answer.ok_or_else(|| io::ErrorKind::UnexpectedEof.into()));
        match exchanged.map_err(|error| self.unresponsive(error))? {
            (Answer::Failed { message }, _) => Err(Error::daemon(message)),
            (Answer::NotConnected { kind, message }, _) => Err(Error::Daemon { message, kind: Some(kind) }),
            (Answer::InUse { name, used_by }, _) => Err(Error::InUse { name, used_by }),
            answer => Ok(answer),
        }
    }

    fn unresponsive(&self, error: io::Error) -> Error {
        Error::Unresponsive { name: self.record.name.clone(), pid: self.state.pid, error, log: self.record.log() }
    }

    fn nonsense(&self) -> Error {
        self.unresponsive(io::Error::new(io::ErrorKind::InvalidData, "an answer that does not fit the question"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::end_daemon;

    /// A record whose lock is held here and whose state names `process`, which is no attach daemon.
    fn record_of(states: &StateDir, process: u32) -> std::fs::File {
        let request = Request { nqn: "nqn.x".to_owned(), ..Request::default() };
        let (record, lock) = states.create(&states.lock().unwrap(), &request).unwrap();
        let state = State {
            version: 1,
            name: record.name.clone(),
            pid: process,
            pid_start: process_start(process).unwrap(),
            since: 0,
            state: "live".to_owned(),
            request,
            hostnqn: String::new(),
            hostid: String::new(),
            subnqn: "nqn.x".to_owned(),
            peer: String::new(),
            cntlid: 1,
            io_queues: 1,
            model: String::new(),
            serial: String::new(),
            firmware: String::new(),
            front: "loop".to_owned(),
            devices: Vec::new(),
            ended: Vec::new(),
            given_up: None,
            confinement: None,
            paths: Vec::new(),
            policy: None,
        };
        crate::state::write_state(&record.directory, &state).unwrap();
        lock
    }

    // @test redfish.attached-records
    #[test]
    fn a_process_that_a_record_names_is_ended_only_if_it_is_its_daemon() {
        let states = tempfile::tempdir().unwrap();
        let states = StateDir::at(states.path());
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let lock = record_of(&states, other.id());
        let report = disconnect_in(&states, &Select::All, true).unwrap();
        assert!(report.disconnected.is_empty(), "{report:?}");
        let failed = report.failed.first().map(|(_, error)| error.to_string()).unwrap();
        assert!(failed.contains("not the process that the state file names"), "{failed}");
        assert_eq!(other.try_wait().unwrap(), None, "it was ended");
        other.kill().unwrap();
        other.wait().unwrap();
        end_daemon(&lock);
    }

    // @test redfish.attached-records
    #[test]
    fn records_of_others_are_not_believed() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: only root can give files to another user");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let states = StateDir::at(directory.path());
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let lock = record_of(&states, other.id());
        std::os::unix::fs::chown(directory.path(), Some(65534), None).unwrap();
        let told = disconnect_in(&states, &Select::All, true).unwrap_err().to_string();
        assert!(told.contains("belongs to user 65534") && told.contains("EBOF_RUNTIME_DIR"), "{told}");
        assert_eq!(other.try_wait().unwrap(), None, "it was ended");
        // A directory of ours in which somebody else has a record.
        std::os::unix::fs::chown(directory.path(), Some(0), None).unwrap();
        std::os::unix::fs::chown(directory.path().join("nvme0"), Some(65534), None).unwrap();
        assert!(states.records().unwrap().is_empty());
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path(), &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
        assert!(StateDir::at(&link).records().unwrap_err().to_string().contains("belongs to user 65534"));
        other.kill().unwrap();
        other.wait().unwrap();
        end_daemon(&lock);
    }

    #[test]
    fn a_device_of_root_is_distinguished_from_one_that_does_not_exist() {
        let own = tempfile::tempdir().unwrap();
        let root = tempfile::tempdir().unwrap();
        let own = StateDir::at(own.path());
        let root = StateDir::at(root.path());
        let request = Request { nqn: "nqn.x".to_owned(), ..Request::default() };
        let guard = root.lock().unwrap();
        let (record, lock) = root.create(&guard, &request).unwrap();
        let error = || open_in(&own, &record.name).err().unwrap();
        let text = |error: Error, root| or_of_root(error, root).to_string();
        assert!(text(error(), None).contains("is not connected"));
        assert!(text(error(), Some(&root)).contains("connected by the superuser: this needs root (sudo ebof"));
        assert_eq!(live_in(&root, &Select::Nqn("nqn.x".into())), [record.name.as_str()]);
        assert!(live_in(&root, &Select::Nqn("nqn.y".into())).is_empty());
        end_daemon(&lock);
        assert!(text(error(), Some(&root)).contains("is not connected"), "its daemon is dead");
    }
}
