//! The attach daemon: the process that keeps a connection and its block devices.
//!
//! It is this program, started with [`ARGUMENT`] by [`crate::connect`]. Its standard input is the
//! lock of its instance, its standard output a pipe to the process that waits for the device, its
//! standard error the log. It owns the controller, the devices and the state file. One thread makes
//! all changes; events, signals and requests of clients are sent to it as messages.

mod claims;
mod describe;
mod devices;
mod options;
mod paths;
pub(crate) mod ready;
mod rights;
pub(crate) mod scope;
mod serve;
mod syslog;
mod wanted;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ebof_initiator::{Controller, Event, PathId, PathReport, QueueMaps, QueuePair, Subsystem};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::block_queue::counting::QueueTally;
use crate::block_queue::nvme_queue::NvmeQueue;
use crate::control::Answer;
use crate::device::{self, Front, InUse};
use crate::error::Error;
use crate::repair;
use crate::request::{Attached, Request};
use crate::state::{self, GivenUp, State};
use devices::Devices;
use ready::Ready;
use wanted::PendingDisconnect;

/// The hidden first argument that makes this program a daemon; the second is the instance's
/// directory.
pub const ARGUMENT: &str = "hold";

/// How long to wait, before ending, for a client to read the answer to its Disconnect.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the last requests of devices may take before they fail, when the daemon ends.
const LAST_REQUESTS: Duration = Duration::from_secs(10);

/// A message to the main thread.
#[derive(Debug)]
enum Message {
    /// An event of a path's controller.
    Event(PathId, Event),
    /// A signal to end.
    Terminate,
    /// A client's request to disconnect and end.
    Disconnect { force: bool, wanted: Arc<PendingDisconnect>, farewell: SyncSender<Farewell> },
    /// A client's request to scan the namespaces.
    Rescan { answer: SyncSender<Answer> },
}

/// The answer to Disconnect; the daemon ends when `read` is dropped.
#[derive(Debug)]
struct Farewell {
    answer: Answer,
    _read: Sender<()>,
}

/// The state that all threads share.
struct Shared {
    subsystem: Subsystem,
    /// What the paths were asked for with, and their numbers.
    requests: Mutex<Vec<(PathId, Request)>>,
    /// Held while a path is added: one after the other, so that none is added twice.
    adding: Mutex<()>,
    state: Mutex<State>,
    /// The queue pair for I/O commands of clients, connected for the first one, and over which
    /// controller.
    passthrough: Mutex<Option<(Controller, QueuePair<Vec<u8>>)>>,
    messages: Mutex<Sender<Message>>,
    /// What the threads of the devices count.
    tallies: Vec<Arc<QueueTally>>,
}

struct Daemon {
    directory: PathBuf,
    shared: Arc<Shared>,
    devices: Devices,
}

/// Runs as the daemon of the instance at `directory` until it is disconnected.
#[must_use]
pub fn run(directory: &Path) -> ExitCode {
    scope::be_spared(ARGUMENT, directory);
    end_with_any_panic();
    // A session of its own, so that closing the terminal does not end it. Fails for the leader of a
    // process group, which is fine.
    let session = rustix::process::setsid();
    tracing::info!(pid = std::process::id(), new_session = session.is_ok(), "the attach daemon starts");
    // Memory allocation in the I/O path must not wait for writeback to this very device.
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        tracing::debug!(%error, "not marked as a process that does I/O");
    }
    let (daemon, messages) = match Daemon::start(directory) {
        Ok(started) => started,
        Err(error) => {
            tracing::error!("not connected: {error:#}");
            let kind = match &error {
                Error::Connect(connect) => Some(connect.kind().name().to_owned()),
                _ => None,
            };
            let message = format!("{error:#}");
            let existing = if let Error::AlreadyConnected(existing) = error { Some(existing) } else { None };
            tell(&Ready::Failed { message, kind, existing });
            return ExitCode::FAILURE;
        }
    };
    if !tell(&Ready::Attached(daemon.attached())) {
        tracing::error!("whoever asked for the device is gone: disconnecting");
        daemon.stop(None);
        return ExitCode::FAILURE;
    }
    detach_output();
    daemon.serve(&messages);
    ExitCode::SUCCESS
}

/// A panic of any thread ends the process: requests to a device would wait for ever for a dead
/// thread, but fail when the process is gone. What it leaves is repaired later.
fn end_with_any_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::abort();
    }));
}

/// Sends one line to the process that waits for the device; `false` if it is gone.
fn tell(ready: &Ready) -> bool {
    let Ok(mut line) = serde_json::to_vec(ready) else { return false };
    line.push(b'\n');
    let mut rest = line.as_slice();
    while !rest.is_empty() {
        match rustix::io::write(rustix::stdio::stdout(), rest) {
            Ok(written) => rest = &rest[written.min(rest.len())..],
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}

/// Closes the pipe, so that its reader sees the end.
fn detach_output() {
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null");
    let detached = null.and_then(|null| rustix::stdio::dup2_stdout(null).map_err(Into::into));
    if let Err(error) = detached {
        tracing::warn!(%error, "the standard output stays open");
    }
}

/// The name of the instance at `directory`.
fn instance(directory: &Path) -> String {
    directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

impl Daemon {
    fn start(directory: &Path) -> Result<(Self, Receiver<Message>), Error> {
        let request = state::read_request(directory)?;
        // Before connecting: without a front there is nothing to connect for.
        device::choose(request.kind)?;
        // While this is the only thread, and before anything is heard of the target.
        let measures = request.confine;
        let confinement = rights::give_up(measures);
        let controller =
            Controller::connect(&options::of(&request)?).map_err(|error| Error::Connect(Box::new(error)))?;
        let front_max_bytes = describe::transfer_max_bytes(&controller.limits());
        let subsystem = Subsystem::new(controller.clone()).map_err(|error| Error::Initiator(Box::new(error)))?;
        let (front, tallies) = start_front(&request, directory, &subsystem, front_max_bytes)?;
        let duplicates = request.duplicate_connect;
        let (messages, inbox) = channel();
        let mut state = first_state(directory, request.clone(), &controller, &front);
        state.confinement = Some(confinement);
        let shared = Arc::new(Shared {
            adding: Mutex::default(),
            requests: Mutex::new(subsystem.paths().iter().map(|path| (path.id, request.clone())).collect()),
            subsystem,
            state: Mutex::new(state),
            passthrough: Mutex::new(None),
            messages: Mutex::new(messages.clone()),
            tallies,
        });
        shared.subsystem.paths().iter().try_for_each(|path| listen_to_events(path, messages.clone()))?;
        listen_to_signals(messages)?;
        let directory = directory.to_owned();
        let mut devices = Devices::new(directory.clone(), Arc::clone(&shared), front, front_max_bytes, duplicates);
        let prepared = devices.prepare().and_then(|()| serve::listen(&directory, &shared));
        let daemon = Self { directory, shared, devices };
        match prepared {
            Ok(()) => {
                rights::give_up_mounting(measures);
                Ok((daemon, inbox))
            }
            Err(error) => {
                daemon.stop(None);
                Err(error)
            }
        }
    }

    fn attached(&self) -> Attached {
        Attached { name: instance(&self.directory), path: None, devices: self.devices.list() }
    }

    /// Handles messages until the daemon is to end.
    fn serve(mut self, inbox: &Receiver<Message>) {
        let mut given_up = None;
        while let Ok(message) = inbox.recv() {
            match message {
                Message::Event(path, event) => {
                    given_up = self.on_event(path, event);
                    if given_up.is_some() {
                        break;
                    }
                }
                Message::Terminate => match self.devices.release() {
                    Ok(()) => {
                        tracing::info!("a signal asks for the end");
                        break;
                    }
                    Err(InUse { name, used_by }) => {
                        let advice = "unmount or close it first; `ebof disconnect --force` ends it, and what was not written is lost";
                        tracing::error!(name, used_by, "a signal asks for the end, but a device is in use: {advice}");
                        syslog::error(&format!("{name} stays although a signal asks for its end: {used_by}; {advice}"));
                    }
                },
                Message::Rescan { answer } => {
                    let result = self.devices.rescan();
                    let said =
                        result.map_or_else(|error| Answer::Failed { message: error.to_string() }, |()| Answer::Done);
                    // The client may be gone.
                    let _gone = answer.send(said);
                }
                Message::Disconnect { wanted, .. } if !wanted.begin() => {
                    tracing::info!("whoever asked for a disconnect does not wait any more: nothing is done");
                }
                Message::Disconnect { force, farewell, .. } => {
                    let (read, was_read) = channel();
                    if let Err(InUse { name, used_by }) = if force { Ok(()) } else { self.devices.release() } {
                        let _gone = farewell.send(Farewell { answer: Answer::InUse { name, used_by }, _read: read });
                        continue;
                    }
                    self.stop(None);
                    let _gone = farewell.send(Farewell { answer: Answer::Done, _read: read });
                    // The sender is dropped when the answer is sent, which ends `recv_timeout`.
                    let _dropped = was_read.recv_timeout(FAREWELL_TIMEOUT);
                    return;
                }
            }
        }
        self.stop(given_up);
    }

    /// Handles an event of a path's controller. Returns the reason if the last one was given up.
    fn on_event(&mut self, path: PathId, event: Event) -> Option<String> {
        // It is in the log already.
        if let Event::Trouble { trouble, .. } = &event {
            if trouble.is_fault() {
                syslog::error(&format!("{}: {event}", instance(&self.directory)));
            }
            return None;
        }
        tracing::info!(path = path.0, "the controller says: {event}");
        match event {
            // Others go on.
            Event::GaveUp(reason) if self.shared.subsystem.give_up(path) => {
                tracing::error!(path = path.0, reason, "the path is lost: the devices go on over the others");
                syslog::error(&format!("{} has lost a path: {reason}", instance(&self.directory)));
                self.devices.publish();
            }
            // It was taken away meanwhile.
            Event::GaveUp(_) if !self.shared.subsystem.paths().iter().any(|other| other.id == path) => {}
            Event::GaveUp(reason) => {
                tracing::error!(reason, "the controller is lost: the devices go");
                return Some(reason);
            }
            Event::NamespaceAdded(_)
            | Event::NamespaceRemoved(_)
            | Event::NamespaceChanged(_)
            | Event::NamespaceReplaced(_)
            | Event::Reconnected => {
                if let Err(error) = self.devices.rescan() {
                    tracing::warn!(%error, "looking at the namespaces");
                }
            }
            _ => self.devices.publish(),
        }
        None
    }

    /// Removes devices, connection and directory. A controller that was given up leaves its record
    /// and its log.
    fn stop(self, given_up: Option<String>) {
        let Self { directory, shared, devices } = self;
        let used = given_up.as_ref().and_then(|_| devices.user());
        let paths = devices.paths();
        // The kernel does not let a device go before its requests have ended, and without a target
        // they never would.
        let has_stopped = fail_requests_after(&shared.subsystem, LAST_REQUESTS);
        devices.stop();
        drop(has_stopped);
        drop(shared.passthrough.lock().unwrap_or_else(PoisonError::into_inner).take());
        shared.subsystem.disconnect();
        let removed = match given_up {
            None => repair::remove(&directory),
            Some(reason) => {
                let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let names = paths.join(", ");
                let used = used.map(|used| format!("; {used}")).unwrap_or_default();
                syslog::error(&format!(
                    "{} ({} at {}) was given up and its devices are gone: {names}{used}; {reason}",
                    state.name,
                    state.subnqn,
                    state.request.address()
                ));
                state.devices.iter_mut().for_each(|device| device.path = None);
                "dead".clone_into(&mut state.state);
                state.given_up = Some(GivenUp { reason, at: state::now() });
                repair::retire(&directory).and(state::write_state(&directory, &state).map_err(std::io::Error::other))
            }
        };
        if let Err(error) = removed {
            tracing::error!(%error, "removing the instance's directory");
        }
        tracing::info!("the attach daemon ends");
    }
}

/// Disconnects the controllers if none has a connection, or once `limit` has passed: what is
/// outstanding fails then. Dropping the result tells that nothing is.
fn fail_requests_after(subsystem: &Subsystem, limit: Duration) -> Option<Sender<()>> {
    if subsystem.state() != ebof_initiator::State::Live {
        subsystem.disconnect();
        return None;
    }
    let (has_stopped, stops) = channel::<()>();
    let subsystem = subsystem.clone();
    let wait = move || {
        if stops.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("requests do not end: they fail now");
            subsystem.disconnect();
        }
    };
    match start_thread("stop", wait) {
        Ok(()) => Some(has_stopped),
        Err(error) => {
            tracing::warn!(%error, "requests that do not end are waited for");
            None
        }
    }
}

fn start_front(
    request: &Request,
    directory: &Path,
    subsystem: &Subsystem,
    transfer_max_bytes: u32,
) -> Result<(Front, Vec<Arc<QueueTally>>), Error> {
    let maps = subsystem.controller().queue_maps();
    if maps.default == 0 {
        return Err(Error::daemon("the controller granted no I/O queue".to_owned()));
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let (queues, separate_reads) = threads(maps);
    let queues = usize::from(queues).min(cores);
    let blocks: Result<Vec<NvmeQueue>, _> = (0..queues).map(|_| NvmeQueue::new(subsystem, separate_reads)).collect();
    let blocks = blocks.map_err(|error| Error::Initiator(Box::new(error)))?;
    let tallies = blocks.iter().map(NvmeQueue::seen).collect();
    Ok((Front::start(request.kind, directory, transfer_max_bytes, blocks)?, tallies))
}

/// The number of threads for which there are queues, and whether each has a separate one for reads.
/// One queue is left for commands of clients, if there is more than one.
fn threads(maps: QueueMaps) -> (u16, bool) {
    let QueueMaps { default, read, poll } = maps;
    match read {
        0 if poll == 0 => ((default - 1).max(1), false),
        0 | 1 => (default, false),
        _ => (default.min(read - 1), true),
    }
}

fn first_state(directory: &Path, request: Request, controller: &Controller, front: &Front) -> State {
    let identify = controller.identify();
    let options = controller.options();
    let pid = std::process::id();
    let since = state::now();
    State {
        version: 1,
        name: instance(directory),
        pid,
        pid_start: state::process_start(pid).unwrap_or(0),
        since,
        state: controller.state().name().to_owned(),
        hostnqn: options.host_nqn.to_string(),
        hostid: options.host_id.to_string(),
        subnqn: options.nqn.to_string(),
        request,
        peer: controller.peer().to_string(),
        cntlid: controller.id().0,
        io_queues: controller.io_queues(),
        model: identify.model_number().to_string(),
        serial: identify.serial_number().to_string(),
        firmware: identify.firmware_revision().to_string(),
        front: front.kind().to_owned(),
        devices: Vec::new(),
        ended: Vec::new(),
        given_up: None,
        confinement: None,
        paths: Vec::new(),
        policy: None,
    }
}

fn listen_to_events(path: &PathReport, messages: Sender<Message>) -> Result<(), Error> {
    let (id, events) = (path.id, path.controller.events());
    let forward = move || {
        for event in events {
            if messages.send(Message::Event(id, event)).is_err() {
                break;
            }
        }
    };
    start_thread("events", forward)
}

fn listen_to_signals(messages: Sender<Message>) -> Result<(), Error> {
    let signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT]);
    let mut signals = signals.map_err(|error| Error::io("waiting for signals", error))?;
    let forward = move || {
        for _signal in signals.forever() {
            if messages.send(Message::Terminate).is_err() {
                break;
            }
        }
    };
    start_thread("signals", forward)
}

fn start_thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    started.map(|_handle| ()).map_err(|error| Error::io(format!("starting the thread {name}"), error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use rustix::process::{Resource, Rlimit, Signal, setrlimit};

    use super::*;

    /// The environment variable of the process that has to end.
    const CHILD: &str = "EBOF_TEST_CHILD";

    // @test data.threads
    #[test]
    fn a_panic_of_any_thread_ends_the_daemon() {
        if std::env::var_os(CHILD).is_none() {
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            child.args(["daemon::tests::a_panic_of_any_thread_ends_the_daemon", "--exact", "--nocapture"]);
            let output = child.env(CHILD, "1").output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.signal(), Some(Signal::ABORT.as_raw()), "{}: {said}", output.status);
            return;
        }
        setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).unwrap();
        // There is no request: it ends at once, and leaves what it has set up.
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(run(directory.path()), ExitCode::FAILURE);
        let worker = std::thread::spawn(|| panic!("a test wants it"));
        let _panicked = worker.join();
        std::process::exit(0);
    }
}
