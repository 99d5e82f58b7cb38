//! The process that keeps a connection and its block devices after the shell is gone.
//!
//! It is this program, started with [`ARGUMENT`] by [`crate::connect`]; its standard input is the lock of its instance,
//! its standard output a pipe to whoever waits for the device, its standard error the log. It owns the controller, the
//! devices and the state file. One thread decides; events, signals and calls on the control socket come to it as messages.

mod serve;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebof_initiator::{Controller, Event, Options, QueueMaps, QueuePair};
use ebof_nvme::identify::ProtectionType;
use ebof_nvme::{HostId, Nqn, Nsid};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::client::Ready;
use crate::control::Answer;
use crate::describe::{self, Limits};
use crate::device::{self, Front};
use crate::error::Error;
use crate::remote::Remote;
use crate::request::{Attached, Device, Request};
use crate::state::{self, State};
use crate::{blocks, repair};

/// The hidden first argument that makes this program a holder; the second is the instance's directory.
pub const ARGUMENT: &str = "hold";

/// How long the end waits for a client to read the answer to its Disconnect.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(2);

/// Something for the deciding thread.
#[derive(Debug)]
enum Message {
    /// From the controller.
    Event(Event),
    /// A signal asks for the end.
    Terminate,
    /// A client asks for the end.
    Disconnect { force: bool, farewell: SyncSender<Farewell> },
    /// A client asks for a look at the namespaces.
    Rescan { answer: SyncSender<Answer> },
}

/// The answer to Disconnect; the holder ends when `read` is dropped.
#[derive(Debug)]
struct Farewell {
    answer: Answer,
    _read: Sender<()>,
}

/// What the threads share.
struct Shared {
    controller: Controller,
    state: Mutex<State>,
    /// The queue pair of I/O commands that clients send, made for the first one.
    passthrough: Mutex<Option<QueuePair<Vec<u8>>>>,
    messages: Mutex<Sender<Message>>,
}

struct Holder {
    directory: PathBuf,
    shared: Arc<Shared>,
    front: Front,
    limits: Limits,
    devices: Vec<(Device, Option<blocks::Namespace>)>,
}

/// Runs as a holder for the instance at `directory` until it is told to end.
#[must_use]
pub fn run(directory: &Path) -> ExitCode {
    // Started by a shell's child: out of the shell's session, so that closing the terminal ends nothing. It fails for a
    // leader of a process group, which needs no leaving.
    let session = rustix::process::setsid();
    tracing::info!(pid = std::process::id(), new_session = session.is_ok(), "the holder starts");
    // Memory that is asked for on the way to the device must not wait for that very device.
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        tracing::debug!(%error, "not marked as a process that does I/O");
    }
    let (holder, messages) = match Holder::start(directory) {
        Ok(started) => started,
        Err(error) => {
            tracing::error!(%error, "not connected");
            let kind = match &error {
                Error::Connect(connect) => Some(connect.kind().name().to_owned()),
                _ => None,
            };
            tell(&Ready::Failed { message: error.to_string(), kind });
            return ExitCode::FAILURE;
        }
    };
    if !tell(&Ready::Attached(holder.attached())) {
        tracing::error!("whoever asked for the device is gone: disconnecting");
        holder.stop();
        return ExitCode::FAILURE;
    }
    detach_output();
    holder.serve(&messages);
    ExitCode::SUCCESS
}

/// One line to whoever waits; `false` when nobody does.
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

/// Lets go of the pipe: whoever waits for its end shall see it.
fn detach_output() {
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null");
    let detached = null.and_then(|null| rustix::stdio::dup2_stdout(null).map_err(Into::into));
    if let Err(error) = detached {
        tracing::warn!(%error, "the standard output stays open");
    }
}

/// The initiator's options for a request.
fn options(request: &Request) -> Result<Options, Error> {
    let nqn = Nqn::parse(&request.nqn)
        .map_err(|error| Error::holder(format!("the NQN {:?} is not legal: {error}", request.nqn)))?;
    let mut options = Options::new(request.traddr.clone(), request.trsvcid, nqn);
    if let Some(hostnqn) = &request.hostnqn {
        options.host_nqn = Nqn::parse(hostnqn)
            .map_err(|error| Error::holder(format!("the host NQN {hostnqn:?} is not legal: {error}")))?;
        options.host_id = ebof_initiator::host::id_for(&options.host_nqn);
    }
    if let Some(hostid) = &request.hostid {
        options.host_id =
            HostId::parse(hostid).ok_or_else(|| Error::holder(format!("the host id {hostid:?} is not a UUID")))?;
    }
    options.host_traddr = request.host_traddr.clone();
    options.host_iface = request.host_iface.clone();
    if let Some(queues) = request.nr_io_queues {
        options.nr_io_queues = queues;
    }
    // One more than asked for: commands that clients send through the holder have a queue of their own.
    options.nr_io_queues = options.nr_io_queues.max(1).saturating_add(1);
    options.nr_write_queues = request.nr_write_queues.unwrap_or(0);
    options.nr_poll_queues = request.nr_poll_queues.unwrap_or(0);
    options.queue_size = request.queue_size.unwrap_or(options.queue_size);
    let ms = |seconds: u32| seconds.saturating_mul(1000);
    options.keep_alive_ms = request.keep_alive_tmo.map_or(options.keep_alive_ms, ms);
    options.reconnect_delay_ms = request.reconnect_delay.map_or(options.reconnect_delay_ms, ms);
    let limit = |seconds: i64| u64::try_from(seconds).ok().map(Duration::from_secs);
    options.ctrl_loss_tmo = request.ctrl_loss_tmo.map_or(options.ctrl_loss_tmo, limit);
    options.fast_io_fail_tmo = request.fast_io_fail_tmo.map_or(options.fast_io_fail_tmo, limit);
    (options.tos, options.so_priority) = (request.tos, request.so_priority);
    options.busy_poll_us = request.busy_poll_us;
    options.prefer_busy_poll = request.prefer_busy_poll;
    options.busy_poll_budget = request.busy_poll_budget;
    options.zerocopy_send = request.zerocopy_send;
    options.batch_timeout_us = request.batch_timeout_us.unwrap_or(options.batch_timeout_us);
    options.batch_nr = request.batch_nr.unwrap_or(options.batch_nr);
    options.batch_bytes = request.batch_bytes.unwrap_or(options.batch_bytes);
    options.hdr_digest = request.hdr_digest;
    options.data_digest = request.data_digest;
    options.disable_sqflow = request.disable_sqflow;
    Ok(options)
}

impl Holder {
    fn start(directory: &Path) -> Result<(Self, Receiver<Message>), Error> {
        let request = state::read_request(directory)?;
        // Before anything is asked of the network: no device, no need to connect.
        device::choose(request.kind)?;
        let controller = Controller::connect(&options(&request)?).map_err(|error| Error::Connect(Box::new(error)))?;
        let limits = Limits::of(&controller);
        let front = start_front(&request, directory, &controller, &limits)?;
        let (messages, inbox) = channel();
        let state = first_state(directory, request, &controller, &front);
        let shared = Arc::new(Shared {
            controller,
            state: Mutex::new(state),
            passthrough: Mutex::new(None),
            messages: Mutex::new(messages.clone()),
        });
        listen_to_events(&shared.controller, messages.clone())?;
        listen_to_signals(messages)?;
        let mut holder = Self { directory: directory.to_owned(), shared, front, limits, devices: Vec::new() };
        let prepared = holder.prepare();
        match prepared {
            Ok(()) => Ok((holder, inbox)),
            Err(error) => {
                holder.stop();
                Err(error)
            }
        }
    }

    fn prepare(&mut self) -> Result<(), Error> {
        self.rescan()?;
        let made = self.devices.iter().filter(|(device, _)| device.path.is_some()).count();
        // Some that work are worth having; none is a failure, unless there are no namespaces at all.
        if let (0, Some((device, _))) = (made, self.devices.first()) {
            let problem = device.problem.clone().unwrap_or_default();
            return Err(Error::holder(format!("{} cannot be a block device: {problem}", device.name)));
        }
        serve::listen(&self.directory, &self.shared)
    }

    fn name(&self) -> String {
        self.directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    fn attached(&self) -> Attached {
        let devices = self.devices.iter().map(|(device, _)| device.clone()).collect();
        Attached { name: self.name(), devices }
    }

    /// Decides until it is over.
    fn serve(mut self, inbox: &Receiver<Message>) {
        while let Ok(message) = inbox.recv() {
            match message {
                Message::Event(event) => {
                    if self.on_event(&event) {
                        break;
                    }
                }
                Message::Terminate => {
                    tracing::info!("a signal asks for the end");
                    break;
                }
                Message::Rescan { answer } => {
                    let result = self.rescan();
                    let said =
                        result.map_or_else(|error| Answer::Failed { message: error.to_string() }, |()| Answer::Done);
                    // A client that is gone needs no answer.
                    let _gone = answer.send(said);
                }
                Message::Disconnect { force, farewell } => {
                    let used = if force { None } else { self.front.used_by() };
                    let (read, was_read) = channel();
                    if let Some((name, used_by)) = used {
                        let _gone = farewell.send(Farewell { answer: Answer::InUse { name, used_by }, _read: read });
                        continue;
                    }
                    self.stop();
                    let _gone = farewell.send(Farewell { answer: Answer::Done, _read: read });
                    // The sender is dropped when the answer is on its way: a disconnect of the channel, no message.
                    let _dropped = was_read.recv_timeout(FAREWELL_TIMEOUT);
                    return;
                }
            }
        }
        self.stop();
    }

    /// Follows the controller; `true` when it is over.
    fn on_event(&mut self, event: &Event) -> bool {
        tracing::info!(?event, "the controller says");
        match event {
            Event::GaveUp(reason) => {
                tracing::error!(reason, "the controller is lost: the devices go");
                return true;
            }
            Event::NamespaceAdded(_) | Event::NamespaceRemoved(_) | Event::NamespaceChanged(_) | Event::Reconnected => {
                if let Err(error) = self.rescan() {
                    tracing::warn!(%error, "looking at the namespaces");
                }
            }
            _ => self.publish(),
        }
        false
    }

    /// Makes the devices follow the namespaces.
    fn rescan(&mut self) -> Result<(), Error> {
        let there = self.shared.controller.namespaces().map_err(|error| Error::Initiator(Box::new(error)))?;
        let gone: Vec<u32> =
            self.devices.iter().map(|(device, _)| device.nsid).filter(|&nsid| !there.contains(&Nsid(nsid))).collect();
        for nsid in gone {
            self.remove(nsid);
        }
        for nsid in there {
            self.look_at(nsid);
        }
        self.publish();
        Ok(())
    }

    fn look_at(&mut self, nsid: Nsid) {
        let described = describe::describe(&self.shared.controller, &self.limits, nsid);
        let known = self.devices.iter().position(|(device, _)| device.nsid == nsid.0);
        match (described, known) {
            // A loss of the connection is no reason to take a device away.
            (Err(describe::Unusable::Unanswered(error)), Some(_)) if error.is_connection() => {}
            (Ok(namespace), Some(index)) if self.devices[index].1.as_ref() == Some(&namespace) => {}
            (Ok(namespace), Some(index)) => self.change(index, namespace),
            (Ok(namespace), None) => self.add(nsid, Some(namespace), None),
            (Err(problem), known) => {
                if known.is_some() {
                    self.remove(nsid.0);
                }
                tracing::warn!(nsid = nsid.0, %problem, "no block device");
                self.add(nsid, None, Some(problem.to_string()));
            }
        }
    }

    fn change(&mut self, index: usize, namespace: blocks::Namespace) {
        let (device, before) = &mut self.devices[index];
        let same_kind = before.as_ref().is_some_and(|before| {
            before.block_bytes == namespace.block_bytes && before.read_only == namespace.read_only
        });
        match self.front.update(&device.name, &namespace) {
            Ok(true) if same_kind => {
                tracing::info!(name = device.name, blocks = namespace.blocks, "the namespace changed");
                device.blocks = namespace.blocks;
                *before = Some(namespace);
            }
            _ => {
                let nsid = device.nsid;
                self.remove(nsid);
                self.add(Nsid(nsid), Some(namespace), None);
            }
        }
    }

    fn add(&mut self, nsid: Nsid, namespace: Option<blocks::Namespace>, problem: Option<String>) {
        let name = format!("{}n{}", self.name(), nsid.0);
        let (block_bytes, blocks, read_only) = namespace
            .as_ref()
            .map_or((0, 0, false), |namespace| (namespace.block_bytes, namespace.blocks, namespace.read_only));
        let protected = namespace.as_ref().is_some_and(|namespace| namespace.protection != ProtectionType::None);
        let metadata_bytes = if protected { 8 } else { 0 };
        let mut device =
            Device { name, nsid: nsid.0, path: None, problem, block_bytes, metadata_bytes, blocks, read_only };
        if let Some(namespace) = &namespace {
            // Into the state file before it exists: a holder that is killed in between leaves a trace.
            match self.front.add(&device.name, namespace) {
                Ok(path) => device.path = Some(path),
                Err(error) => {
                    tracing::error!(%error, name = device.name, "no block device");
                    device.problem = Some(error.to_string());
                }
            }
        }
        tracing::info!(?device, "added");
        self.devices.push((device, namespace));
        self.devices.sort_by_key(|(device, _)| device.nsid);
        self.publish();
    }

    fn remove(&mut self, nsid: u32) {
        let Some(index) = self.devices.iter().position(|(device, _)| device.nsid == nsid) else { return };
        let (device, _) = self.devices.remove(index);
        match self.front.remove(&device.name) {
            Ok(()) => tracing::info!(?device, "removed"),
            Err(error) => tracing::error!(%error, ?device, "taking the device away"),
        }
    }

    /// Writes the state file.
    fn publish(&self) {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.devices = self.devices.iter().map(|(device, _)| device.clone()).collect();
        refresh(&mut state, &self.shared.controller);
        if let Err(error) = state::write_state(&self.directory, &state) {
            tracing::error!(%error, "the state file is not written");
        }
    }

    /// Takes everything away: devices, connection, directory.
    fn stop(self) {
        let Self { directory, shared, front, .. } = self;
        front.stop();
        drop(shared.passthrough.lock().unwrap_or_else(PoisonError::into_inner).take());
        shared.controller.clone().disconnect();
        if let Err(error) = repair::remove(&directory) {
            tracing::error!(%error, "removing the instance's directory");
        }
        tracing::info!("the holder ends");
    }
}

/// What changes by itself.
fn refresh(state: &mut State, controller: &Controller) {
    controller.state().name().clone_into(&mut state.state);
    state.cntlid = controller.id().0;
    state.peer = controller.peer().to_string();
}

fn start_front(request: &Request, directory: &Path, controller: &Controller, limits: &Limits) -> Result<Front, Error> {
    let maps = controller.queue_maps();
    if maps.default == 0 {
        return Err(Error::holder("the controller granted no I/O queue".to_owned()));
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let (queues, reads_apart) = threads(maps);
    let queues = usize::from(queues).min(cores);
    let blocks: Result<Vec<Remote>, _> = (0..queues).map(|_| Remote::new(controller, reads_apart)).collect();
    let blocks = blocks.map_err(|error| Error::Initiator(Box::new(error)))?;
    Front::start(request.kind, directory, limits.transfer_max_bytes, blocks)
}

/// For how many threads there are queues, and whether each has one for reads beside that for the rest. Some queue stays free
/// for commands that clients send, if there is more than one.
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
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut state = State {
        version: 1,
        name: directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
        pid,
        pid_start: state::process_start(pid).unwrap_or(0),
        since,
        state: String::new(),
        hostnqn: options.host_nqn.to_string(),
        hostid: options.host_id.to_string(),
        subnqn: options.nqn.to_string(),
        request,
        peer: String::new(),
        cntlid: 0,
        io_queues: controller.io_queues(),
        model: identify.model_number().to_string(),
        serial: identify.serial_number().to_string(),
        firmware: identify.firmware_revision().to_string(),
        front: front.sort().to_owned(),
        devices: Vec::new(),
    };
    refresh(&mut state, controller);
    state
}

fn listen_to_events(controller: &Controller, messages: Sender<Message>) -> Result<(), Error> {
    let events = controller.events();
    let forward = move || {
        for event in events {
            if messages.send(Message::Event(event)).is_err() {
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
