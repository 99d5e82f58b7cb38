//! What a command line calls: connect, disconnect, list, and a conversation with a daemon. It
//! starts and ends daemon processes; what they do is in [`crate::daemon`].

use std::io::{self, BufRead, BufReader, Read};
use std::net::ToSocketAddrs as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ebof_initiator::AdminData;
use ebof_nvme::{Cqe, Sqe};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, IntoBytes};

use crate::control::{self, Answer, Call, DATA_MAX_BYTES};
use crate::daemon;
use crate::error::{Error, Existing};
use crate::repair::{self, Repaired};
use crate::request::{Attached, Device, Request};
use crate::state::{GivenUp, Record, State, StateDir, process_start};

/// How long a daemon may take to end when it is asked over its socket: the target may have to
/// answer a shutdown.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a daemon that did not answer may take to end on SIGTERM before it is killed.
const TERMINATE_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of the daemon's first words, at most.
const READY_MAX_BYTES: u64 = 1 << 20;

/// Controllers that were given up and not acknowledged, at most: the oldest record makes room.
const GIVEN_UP_MAX: usize = 16;

/// A daemon's first words to the process that started it: one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Ready {
    /// The devices are there.
    Attached(Attached),
    /// They will not be.
    Failed { message: String, kind: Option<String>, existing: Option<Existing> },
}

/// Connects and leaves block devices behind, held by a process that survives this one. Waits until
/// they are there.
///
/// # Errors
/// What was tried, what came back, what to do; [`Error::AlreadyConnected`] unless the request
/// allows a duplicate.
pub fn connect(request: &Request) -> Result<Attached, Error> {
    connect_in(&StateDir::standard(), request)
}

/// As [`connect`], with the state at a place of the caller's.
///
/// # Errors
/// As [`connect`].
pub fn connect_in(states: &StateDir, request: &Request) -> Result<Attached, Error> {
    // Before the lock: a name server may take its time.
    let addresses = resolve(request);
    let guard = states.lock()?;
    repair::repair_locked(states, &guard)?;
    forget_oldest(states)?;
    if !request.duplicate_connect {
        refuse_duplicate(states, request, &addresses)?;
    }
    let (record, lock) = states.create(&guard, request)?;
    drop(guard);
    let child = match spawn(&record, lock) {
        Ok(child) => child,
        Err(error) => {
            // Nobody else knows of it yet: what cannot be removed now is repaired later.
            if let Err(error) = repair::remove(&record.directory) {
                tracing::debug!(%error, "removing an instance that was not started");
            }
            return Err(error);
        }
    };
    await_ready(states, &record, child)
}

/// The addresses that a request means; none where they cannot be found out, which connecting will
/// tell.
fn resolve(request: &Request) -> Vec<String> {
    let found = (request.traddr.as_str(), request.trsvcid).to_socket_addrs();
    found.map(|found| found.map(|address| address.to_string()).collect()).unwrap_or_default()
}

/// Refuses what the kernel refuses: the same subsystem at the same address, by whatever name, as
/// the same host. What the namespaces are is known only when it is connected: see
/// [`crate::claims`].
fn refuse_duplicate(states: &StateDir, request: &Request, addresses: &[String]) -> Result<(), Error> {
    let host =
        |request: &Request| request.overrides.hostnqn.clone().unwrap_or_else(|| ebof_initiator::host::identity().nqn);
    for record in states.records()?.into_iter().filter(|record| record.live) {
        let Some(other) = record.request() else { continue };
        let peer = record.state.as_ref().map(|state| state.peer.as_str());
        let from = |request: &Request| {
            let overrides = &request.overrides;
            (overrides.host_traddr.clone(), overrides.host_iface.clone())
        };
        let same_address = other.trsvcid == request.trsvcid && other.traddr == request.traddr
            || peer.is_some_and(|peer| addresses.iter().any(|address| address == peer));
        let same_way = other.transport == request.transport && from(&other) == from(request);
        if other.nqn == request.nqn && host(&other) == host(request) && same_address && same_way {
            let name = record.name;
            let nqn = other.nqn.clone();
            let address = other.address();
            return Err(Error::AlreadyConnected(Existing { name, nqn, address, device: None }));
        }
    }
    Ok(())
}

/// Keeps the number of records that nobody acknowledges within bounds.
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

/// Starts the daemon. Its standard input is the instance's lock: held until the process ends,
/// however it ends.
fn spawn(record: &Record, lock: std::fs::File) -> Result<Child, Error> {
    let program = std::env::current_exe().map_err(|error| Error::io("finding this program's own file", error))?;
    let log = std::fs::File::create(record.log())
        .map_err(|error| Error::io(format!("making {}", record.log().display()), error))?;
    Command::new(&program)
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
        // A daemon that ends while we live shall not stay behind as a zombie.
        let reaper = std::thread::Builder::new().name("reaper".to_owned()).spawn(move || child.wait());
        if let Err(error) = reaper {
            tracing::debug!(%error, "nobody waits for the daemon");
        }
        return Ok(attached);
    }
    let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    let died = Error::DaemonDied { status, log: record.log(), tail: tail(&record.log()) };
    // What it left, the kernel's part included.
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

/// Every attached controller, those whose daemon died included. Cleans nothing: see
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
    /// The controller with this name, or with this namespace or block device.
    Device(String),
    /// Everything.
    All,
}

/// What [`disconnect`] did.
#[derive(Debug, Default)]
pub struct Report {
    /// Controllers that were disconnected, and their subsystems.
    pub disconnected: Vec<(String, String)>,
    /// Controllers that had been given up, and their subsystems: their records are gone now.
    pub acknowledged: Vec<(String, String)>,
    /// Controllers that were not, and why.
    pub failed: Vec<(String, Error)>,
    /// What killed daemons had left behind.
    pub repaired: Vec<Repaired>,
}

/// Takes devices away and disconnects. Holders that do not answer are ended. A device in use is
/// left alone unless `force`.
///
/// # Errors
/// The state directory cannot be used; a named device that is not there. What goes wrong with
/// single controllers is in the report.
pub fn disconnect(select: &Select, force: bool) -> Result<Report, Error> {
    let root = StateDir::of_root_for_others();
    disconnect_in(&StateDir::standard(), select, force).map_err(|error| told_of_root(error, root.as_ref()))
}

/// The controllers that the superuser has connected and `select` means, for a user who is not the
/// superuser: to them these are there, and cannot be used.
#[must_use]
pub fn connected_by_root(select: &Select) -> Vec<String> {
    StateDir::of_root_for_others().map(|root| live_in(&root, select)).unwrap_or_default()
}

/// What is live below a state directory; nothing where that cannot be read.
fn live_in(states: &StateDir, select: &Select) -> Vec<String> {
    let records = states.records().unwrap_or_default().into_iter();
    records.filter(|record| record.live && selects(select, record)).map(|record| record.name).collect()
}

/// What is not connected may be so by the superuser, which is said then.
fn told_of_root(error: Error, root: Option<&StateDir>) -> Error {
    match (error, root) {
        (Error::NotConnected { name }, Some(root)) if !live_in(root, &Select::Device(name.clone())).is_empty() => {
            Error::OfRoot { name }
        }
        (error, _) => error,
    }
}

/// As [`disconnect`], with the state at a place of the caller's.
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
        Select::Nqn(nqn) => record.request().is_some_and(|request| request.nqn == *nqn),
        Select::Device(name) => record.name == bare(name) || device_of(record, name).is_some(),
    }
}

/// `/dev/nvme0` is as good as `nvme0`.
fn bare(name: &str) -> &str {
    name.strip_prefix("/dev/").unwrap_or(name)
}

fn device_of<'a>(record: &'a Record, name: &str) -> Option<&'a Device> {
    let devices = record.state.as_ref()?.devices.iter();
    devices.into_iter().find(|device| device.name == bare(name) || device.path.as_deref() == Some(Path::new(name)))
}

fn disconnect_one(record: &Record, force: bool) -> Result<(), Error> {
    match ask_to_end(record, force) {
        Ok(Answer::InUse { name, used_by }) => Err(Error::InUse { name, used_by }),
        Ok(Answer::Failed { message }) => Err(Error::daemon(message)),
        Ok(_) => Ok(()),
        Err(error) => {
            tracing::warn!(%error, name = record.name, "the attach daemon does not answer: it is ended");
            terminate(record)
        }
    }
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

/// Ends a daemon that does not listen: by SIGTERM, then by SIGKILL. What it leaves is repaired by
/// the caller.
fn terminate(record: &Record) -> Result<(), Error> {
    let Some(state) = &record.state else {
        let error = io::Error::new(io::ErrorKind::NotFound, "it is still connecting and has written no state file");
        return Err(Error::Unresponsive { name: record.name.clone(), pid: 0, error, log: record.log() });
    };
    let unresponsive =
        |error| Error::Unresponsive { name: record.name.clone(), pid: state.pid, error, log: record.log() };
    let Some(pid) = i32::try_from(state.pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(()) };
    // Behind the descriptor the process cannot change any more: now its start time tells whether it
    // is the daemon.
    if process_start(state.pid) != Some(state.pid_start) {
        return Ok(());
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

/// A conversation with the daemon of a controller.
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
    open_in(&StateDir::standard(), name).map_err(|error| told_of_root(error, root.as_ref()))
}

/// As [`open`], with the state at a place of the caller's.
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
    let Some(state) = record.state.clone() else { return Err(Error::NotConnected { name: name.to_owned() }) };
    let device = device_of(&record, name).cloned();
    let stream = UnixStream::connect(record.socket()).map_err(|error| Error::Unresponsive {
        name: record.name.clone(),
        pid: state.pid,
        error,
        log: record.log(),
    })?;
    Ok(Client { record, state, device, stream: BufReader::new(stream) })
}

impl Client {
    /// What the daemon wrote about itself last.
    #[must_use]
    pub fn info(&self) -> &State {
        &self.state
    }

    /// The namespace that was named when opening, if one was.
    #[must_use]
    pub fn device(&self) -> Option<&Device> {
        self.device.as_ref()
    }

    /// Runs an admin command and waits for it. A status other than success is no error: look at the
    /// entry. At most 16 MiB of data.
    ///
    /// # Errors
    /// The controller is not connected at the moment, the daemon does not answer.
    pub fn admin(&mut self, sqe: &Sqe, data: AdminData<'_>, timeout: Option<Duration>) -> Result<Cqe, Error> {
        let timeout_ms = timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        let sqe = control::to_hex(sqe.as_bytes());
        self.command(data, |read_bytes| Call::Admin { sqe, read_bytes, timeout_ms })
    }

    /// Runs an I/O command and waits for it, as [`Client::admin`]. It takes no part in the order of
    /// the block device's I/O.
    ///
    /// # Errors
    /// As [`Client::admin`].
    pub fn io(&mut self, sqe: &Sqe, data: AdminData<'_>) -> Result<Cqe, Error> {
        let sqe = control::to_hex(sqe.as_bytes());
        self.command(data, |read_bytes| Call::Io { sqe, read_bytes })
    }

    /// The state as of now.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn status(&mut self) -> Result<&State, Error> {
        if let (Answer::Status { state }, _) = self.exchange(&Call::Status, &[])? {
            self.state = *state;
        }
        Ok(&self.state)
    }

    /// Drops the connections and makes new ones. Does not wait.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn reset(&mut self) -> Result<(), Error> {
        self.exchange(&Call::Reset, &[]).map(|_done| ())
    }

    /// Looks for namespaces that came, went or changed, and makes the devices follow.
    ///
    /// # Errors
    /// The controller is not connected at the moment, the daemon does not answer.
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

    #[test]
    fn what_the_superuser_has_connected_is_told_from_what_is_not_there() {
        let own = tempfile::tempdir().unwrap();
        let root = tempfile::tempdir().unwrap();
        let own = StateDir::at(own.path());
        let root = StateDir::at(root.path());
        let request = Request { nqn: "nqn.x".to_owned(), ..Request::default() };
        let guard = root.lock().unwrap();
        let (record, lock) = root.create(&guard, &request).unwrap();
        let error = || open_in(&own, &record.name).err().unwrap();
        let told = |error: Error, root| told_of_root(error, root).to_string();
        assert!(told(error(), None).contains("is not connected"));
        assert!(told(error(), Some(&root)).contains("connected by the superuser: this needs root (sudo ebof"));
        assert_eq!(live_in(&root, &Select::Nqn("nqn.x".into())), [record.name.as_str()]);
        assert!(live_in(&root, &Select::Nqn("nqn.y".into())).is_empty());
        drop(lock);
        assert!(told(error(), Some(&root)).contains("is not connected"), "its daemon is dead");
    }
}
