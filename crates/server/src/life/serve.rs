//! A running target: started from a configuration, changed by another, asked for its state, and
//! stopped.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use ebof_clock::Clock;
use ebof_fabrics::{Limits, Registry};
use ebof_manage::api::{
    self, ApplyError, Cause, ConfigStore, ControllerStatus, IoCounters, MissingObject, NamespaceStatus, Peer,
    PortStatus, QueueStatus, Revision, Status, SubsystemStatus,
};
use ebof_manage::events::{EventKind, NewEvent};
use ebof_manage::{Change, Config, Diagnostics, Loaded, Plan};

use crate::drives::device::DeviceTable;
use crate::drives::{DriveThreads, Drives};
use crate::environment::remembered;
use crate::environment::settings::Settings;
use crate::life::contradictions;
use crate::life::control::{Control, Listening, Order, Orders, Placement};
use crate::life::missing::{Missing, MissingKey};
use crate::life::object::{KnownData, check_drives, known_uuid};
use crate::life::reload;
use crate::life::startup::{Devices, StartError, listen, places};
use crate::life::stored::Stored;
use crate::life::unfinished;
use crate::observe::stats::{Kind, Totals};
use crate::ports::port::PortState;
use crate::reactor::Reactor;
use crate::reactor::admission;
use crate::report::metrics::{self, Exposition, MetricsDetail};
use crate::report::sampling::{self, Owners};
use crate::shared::Shared;
use crate::shared::handle::reactor_of;
use crate::shared::mailbox::{Mailbox, Message};
use crate::shared::{audience, share};

/// A running target. Dropping it stops it without grace; [`Target::stop`] completes what was
/// accepted.
///
/// It serves with all of its threads or not at all. One that cannot have what it needs fails
/// [`Target::start`]; one that panics later **aborts the process** (`SIGABRT`), with the panic on
/// standard error and a line in the log: what its hosts wait for would never come, and what it
/// knows of a drive may not be what is on it. A supervisor starts the process again. An
/// embedder that must outlive that runs the target in a process of its own.
pub struct Target {
    pub(crate) shared: Arc<Shared>,
    pub(crate) orders: Orders,
    threads: Mutex<Vec<JoinHandle<()>>>,
    state: Mutex<InForce>,
    /// Held while the configuration is changed; taken before the state.
    pub(crate) changing: Mutex<()>,
    /// Names of drives that were added to what the whole configuration has.
    added: Mutex<BTreeSet<String>>,
    /// What is missing beside the configuration.
    elsewhere: Mutex<Vec<MissingObject>>,
    /// Where what is in force is stored.
    store: OnceLock<Stored>,
}

/// What is in force.
#[derive(Clone)]
pub(crate) struct InForce {
    pub(crate) config: Config,
    pub(crate) devices: Devices,
    pub(crate) ports: Vec<Listening>,
    /// What of the configuration is neither among the devices nor among the ports.
    pub(crate) missing: Vec<Missing>,
    pub(crate) generation: u64,
}

/// A target that nothing runs yet.
pub(crate) struct Assembled {
    pub(crate) target: Target,
    /// Messages to the control thread.
    pub(crate) orders: Receiver<Order>,
    pub(crate) table: Arc<DeviceTable>,
}

/// Why a target could not be started from a text.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// The text is no configuration. With `{:#}` all that is wrong with it, with the lines.
    #[error(transparent)]
    Text(#[from] Diagnostics),
    /// It cannot be served.
    #[error(transparent)]
    Start(#[from] StartError),
}

impl Target {
    /// Serves what `text` describes, as `ebof serve --config` does: TOML, JSON with the same keys,
    /// or what `nvmetcli save` writes. Relative paths in it are relative to the working directory.
    /// What is remarkable about it is logged.
    ///
    /// # Errors
    /// Everything that is wrong with the text, or why it cannot be served; nothing is left running
    /// then.
    pub fn start_text(text: &str) -> Result<Self, TextError> {
        let Loaded { config, remarks, .. } = ebof_manage::load("configuration", text)?;
        for remark in &remarks.items {
            tracing::warn!("{remark}");
        }
        let settings = Settings::of(&config);
        Ok(Self::start(config, settings)?)
    }

    /// Opens the drives and ports of `config` and serves them.
    ///
    /// # Errors
    /// A drive or a port that cannot be opened, if the settings are strict, or a thread that cannot
    /// serve; nothing is left running then.
    pub fn start(config: Config, settings: Settings) -> Result<Self, StartError> {
        let mut missing = Vec::new();
        let mut may_miss = |key, error: StartError| {
            if settings.strict {
                return Err(error);
            }
            let now_ms = settings.environment.clock.unix_time().as_millis();
            missing.push(Missing::new(key, error.to_string(), u64::try_from(now_ms).unwrap_or(u64::MAX)));
            Ok(())
        };
        let devices = Devices::open(&config, &settings.environment, &mut DriveThreads::Own, &mut may_miss)?;
        let mut ports = Vec::new();
        for port in config.enabled_ports() {
            match listen(port, &settings.environment) {
                Ok(listening) => ports.push(listening),
                Err(error) => may_miss(MissingKey::Port(port.name.clone()), error)?,
            }
        }
        let processors = place_reactors(&settings);
        let mailboxes = (0..processors.len()).map(|_| Mailbox::new()).collect::<io::Result<Vec<_>>>()?;
        let bell = Mailbox::new()?;
        let Assembled { target, orders, table } =
            Self::assemble(config, settings, devices, ports.clone(), missing, &mailboxes, &bell)?;
        let control = Control::new(Arc::clone(&target.shared), bell, orders, Placement::new(&processors))?;
        target.spawn("ebof-control".to_owned(), None, move || control.run())?;
        target.start_reactors(mailboxes, &processors, &table)?;
        let sampled = Arc::clone(&target.shared);
        target.spawn("ebof-sampler".to_owned(), None, move || sampling::run(&sampled))?;
        let message = format!("ebof {} was started", env!("CARGO_PKG_VERSION"));
        target.shared.report(NewEvent::new(EventKind::TargetStarted, "", message));
        target.missing().iter().for_each(|missing| target.report_missing(missing));
        for listening in ports {
            target.orders.give(Order::Listen(listening));
        }
        Ok(target)
    }

    /// The paths of the files that were made when it was started, and of what drives were made on.
    #[must_use]
    pub fn made(&self) -> Vec<String> {
        self.in_force().devices.made.clone()
    }

    /// Puts a target together that nothing runs yet.
    pub(crate) fn assemble(
        config: Config,
        settings: Settings,
        devices: Devices,
        ports: Vec<Listening>,
        missing: Vec<Missing>,
        mailboxes: &[Mailbox],
        bell: &Mailbox,
    ) -> Result<Assembled, StartError> {
        let generation = first_generation(&settings.environment.clock);
        unfinished::finish(&devices.actors, &[]);
        KnownData::of(&config, &devices).check(&KnownData::default())?;
        check_drives(&devices)?;
        let model = devices.model(&config, &ports, generation)?;
        let drives = Drives::new(devices.ids());
        let mut first = None;
        drives.put_in_force(devices.plain(), &devices.actors(), places(&ports), model, |table, model| {
            first = Some((table, model));
            Ok(())
        })?;
        let (table, model) = first.expect("shown once when nothing failed");
        let store = Arc::clone(&settings.environment.objects);
        let mut objects = remembered::load(&*store);
        if objects.note(&model)
            && let Err(error) = remembered::store(&*store, &objects)
        {
            // This process knows, and the next one finds the difference to the last that was
            // stored.
            tracing::error!("which namespaces are served cannot be stored: {error}");
        }
        let registry = Registry::with_objects(limits(&settings), Arc::new(model), generation, objects);
        let shared = Arc::new(Shared::new(settings, registry, drives, mailboxes.to_vec(), bell.clone()));
        audience::connect(&shared, &devices.actors());
        let (orders, receiver) = Orders::new(bell.clone());
        contradictions::log(&devices, &ports, &config);
        let state = Mutex::new(InForce { config, devices, ports, missing, generation });
        let target = Self {
            shared,
            orders,
            threads: Mutex::default(),
            state,
            changing: Mutex::default(),
            added: Mutex::default(),
            elsewhere: Mutex::default(),
            store: OnceLock::new(),
        };
        Ok(Assembled { target, orders: receiver, table })
    }

    /// Starts the threads that serve queues. Returns when each has what it needs.
    fn start_reactors(
        &self,
        mailboxes: Vec<Mailbox>,
        processors: &[Option<usize>],
        table: &Arc<DeviceTable>,
    ) -> Result<(), StartError> {
        let (ready, started) = mpsc::channel();
        for (index, (mailbox, processor)) in mailboxes.into_iter().zip(processors).enumerate() {
            let shared = Arc::clone(&self.shared);
            let table = Arc::clone(table);
            let ready = ready.clone();
            // The ring of a reactor belongs to the thread that makes it.
            let serve = move || match Reactor::new(index, shared, mailbox, table, false) {
                Ok(reactor) => {
                    let _told = ready.send((index, Ok(())));
                    // The receiver has to notice a reactor that panics here.
                    drop(ready);
                    reactor.run();
                }
                Err(error) => drop(ready.send((index, Err(error)))),
            };
            self.spawn(format!("ebof-reactor{index}"), *processor, serve)?;
        }
        drop(ready);
        let mut waiting = processors.len();
        for (index, result) in started {
            let advice = "each needs a few descriptors: see `ulimit -n` and the memory left";
            result.map_err(|error| StartError::Reactor { index, error, advice })?;
            waiting -= 1;
        }
        assert!(waiting == 0, "a thread that serves queues has neither started nor said why");
        Ok(())
    }

    fn spawn(
        &self,
        name: String,
        processor: Option<usize>,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<(), StartError> {
        let run = move || {
            if let Some(processor) = processor {
                let mut set = rustix::thread::CpuSet::new();
                set.set(processor);
                if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
                    tracing::warn!(processor, "a thread cannot stay on its processor: {error}");
                }
            }
            run();
        };
        let thread = std::thread::Builder::new().name(name).spawn(run)?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    /// The ports by name, with the addresses on which they really listen.
    pub fn addresses(&self) -> Vec<(String, SocketAddr)> {
        let state = self.in_force();
        state.ports.iter().map(|Listening { port, .. }| (port.name.clone(), port.address)).collect()
    }

    /// Where hosts in this process reach the target without a socket: the port of this name, as it
    /// is configured now. Its hosts are offered what those on the network are.
    #[must_use]
    pub fn loopback(&self, port: &str) -> Option<ebof_loopback::Port> {
        Some(admission::loopback(&self.shared, &self.port(port)?))
    }

    pub(crate) fn port(&self, name: &str) -> Option<Arc<PortState>> {
        let state = self.in_force();
        let listening = state.ports.iter().find(|listening| listening.port.name == name)?;
        Some(Arc::clone(&listening.port))
    }

    /// What was counted since the start.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.shared.totals()
    }

    /// Everything that can be measured, as text for monitoring.
    #[must_use]
    pub fn metrics(&self, exposition: Exposition, detail: MetricsDetail) -> String {
        let snapshot = metrics::Snapshot {
            status: api::Target::status(self),
            totals: self.shared.totals(),
            refusals: self.shared.refusals(),
            zerocopy: self.shared.zerocopy.figures(),
            capsules: metrics::CapsuleMemory {
                used_bytes: self.shared.message_memory.used_bytes() as u64,
                max_bytes: self.shared.message_memory.max_bytes() as u64,
            },
            functions: self.function_loads(),
            owners: Owners::of(&self.shared),
            listening: self.listening(),
            slow: self.shared.slow.figures(),
            events: self.shared.events.counts(),
            troubles: self.shared.troubles.totals().map(|(trouble, count)| (trouble.label(), count)).to_vec(),
        };
        metrics::render(snapshot, exposition, detail)
    }

    /// Accepts nothing more, completes the commands that were accepted, and ends; after `grace`
    /// whatever is left is cut off. A second call waits for nothing.
    pub fn stop(&self, grace: Duration) {
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        if threads.is_empty() {
            return;
        }
        self.shared.stopping.store(true, Relaxed);
        self.shared.report(NewEvent::new(EventKind::TargetStopping, "", "the target is being stopped"));
        self.shared.sampler.stop();
        self.orders.give(Order::Stop);
        let deadline_ms = self.shared.clock.now_ms() + u64::try_from(grace.as_millis()).unwrap_or(u64::MAX / 2);
        self.shared.post_all(|| Message::Shutdown { deadline_ms });
        for thread in threads {
            // It cannot have panicked while it served: that ends the process.
            let _ended = thread.join();
        }
        // Nobody asks the drives for anything any more.
        self.shared.drives.actors().iter().for_each(|(_, actor)| actor.stop());
    }

    /// Looks again at what namespaces store their data in: what has grown is offered as large as it
    /// is now, and hosts are notified.
    ///
    /// # Errors
    /// What has shrunk, or cannot be looked at.
    pub fn rescan(&self) -> Result<Plan, ApplyError> {
        reload::apply_with(self, &Cause::library(), |current| Ok(current.clone()))
    }

    /// Has what is in force stored from now on, before whoever changes it is told. What is in force
    /// already is not stored. Once a target has a store, another one is refused.
    ///
    /// # Errors
    /// It has one; the new one comes back.
    pub fn store_in(&self, store: Arc<dyn ConfigStore>) -> Result<(), Arc<dyn ConfigStore>> {
        // Not in the middle of a change, which would be stored or not.
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.store.set(Stored::of(store)).map_err(Stored::into_store)
    }

    pub(crate) fn store(&self) -> Option<&Stored> {
        self.store.get()
    }

    /// Whether the next start has what was changed.
    pub(crate) fn is_kept(&self) -> bool {
        self.store().is_some_and(|stored| stored.store().is_source())
    }

    /// Drives that the next start or reload does not know of.
    pub(crate) fn added(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.added.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn elsewhere(&self) -> MutexGuard<'_, Vec<MissingObject>> {
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn in_force(&self) -> MutexGuard<'_, InForce> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for change in self.shared.registry().take_protection_changes() {
            let subsystems = state.config.subsystems.iter_mut().filter(|subsystem| subsystem.nqn == change.subsystem);
            for namespace in subsystems.flat_map(|subsystem| &mut subsystem.namespaces) {
                if namespace.nsid == change.nsid.0 {
                    namespace.write_protect = change.protected;
                }
            }
        }
        state
    }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

impl api::Target for Target {
    fn status(&self) -> Status {
        let state = self.in_force();
        let totals = self.shared.totals();
        let ports = state.ports.iter().map(|listening| port_status(&listening.port)).collect();
        let subsystems =
            state.config.subsystems.iter().map(|config| subsystem_status(config, &state, &totals)).collect();
        let now_ms = self.shared.clock.now_ms();
        let controllers = self.controllers(&state, now_ms);
        Status {
            schema: api::STATUS_SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: now_ms / 1000,
            generation: state.generation,
            connections: self.shared.connections.load(Relaxed),
            connections_max: self.shared.settings.connections_max,
            ports,
            disabled_ports: state.config.ports.iter().filter(|it| !it.enabled).map(|it| it.name.clone()).collect(),
            missing: state.missing.iter().map(Missing::shown).chain(self.elsewhere().iter().cloned()).collect(),
            subsystems,
            drives: state.devices.drive_status(),
            controllers,
        }
    }

    fn refused(&self) -> Vec<api::Refusal> {
        self.shared.refusals()
    }

    fn forget_refused(&self) -> usize {
        self.shared.forget_refusals()
    }

    fn config(&self) -> Config {
        self.in_force().config.clone()
    }

    fn apply_for(&self, cause: &Cause, revision: Option<&Revision>, desired: Config) -> Result<Plan, ApplyError> {
        let Some(revision) = revision else {
            let plan = reload::apply(self, cause, desired)?;
            self.added().clear();
            return Ok(plan);
        };
        let plan = reload::apply_to(self, cause, revision, desired)?;
        if self.is_kept() {
            return Ok(plan);
        }
        let mut added = self.added();
        for change in &plan.changes {
            match change {
                Change::AddDrive { drive } => drop(added.insert(drive.name.clone())),
                Change::RemoveDrive { name } => drop(added.remove(name)),
                _ => {}
            }
        }
        Ok(plan)
    }
}

impl Target {
    pub(crate) fn controllers(&self, state: &InForce, now_ms: u64) -> Vec<ControllerStatus> {
        let names: HashMap<u16, &str> =
            state.ports.iter().map(|Listening { port, .. }| (port.id.0, port.name.as_str())).collect();
        let now_unix_ms = self.shared.clock.unix_ms();
        let registry = self.shared.registry();
        let status = |info: ebof_fabrics::ControllerInfo| ControllerStatus {
            cntlid: info.cntlid.0,
            subsystem_nqn: info.subsystem.to_string(),
            host_nqn: info.host.to_string(),
            host_id: info.host_id.to_string(),
            port: names.get(&info.port.0).copied().unwrap_or_default().to_owned(),
            // The text of a `PeerAddress`.
            peer: info.peer.parse().unwrap_or(Peer::SameProcess),
            discovery: info.discovery,
            connected_since_unix_ms: now_unix_ms.saturating_sub(now_ms.saturating_sub(info.connected_ms)),
            keep_alive_ms: u64::from(info.keep_alive_ms),
            queues: info.queues.iter().map(|queue| self.queue_status(queue)).collect(),
        };
        registry.controllers().map(status).collect()
    }

    fn queue_status(&self, info: &ebof_fabrics::QueueInfo) -> QueueStatus {
        let (header_digest, data_digest) = self.shared.digests(info.handle);
        QueueStatus {
            id: info.id.0,
            entries: info.entries,
            thread: u16::try_from(reactor_of(info.handle)).unwrap_or(u16::MAX),
            header_digest,
            data_digest,
            commands: info.counts.read_commands + info.counts.write_commands + info.counts.other_commands,
        }
    }
}

fn port_status(port: &PortState) -> PortStatus {
    PortStatus {
        name: port.name.clone(),
        id: port.id.0,
        transport: port.config.listen.transport.scheme().to_owned(),
        address: port.address,
        socket: port.config.listen.socket.as_ref().map(|socket| socket.display().to_string()),
        discovery_only: port.config.discovery_only,
        connections: port.counts.connections.load(Relaxed),
        accepted: port.counts.accepted.load(Relaxed),
        refused: port.counts.refused.load(Relaxed),
    }
}

fn subsystem_status(config: &ebof_manage::config::Subsystem, state: &InForce, totals: &Totals) -> SubsystemStatus {
    let identified = state.devices.identified(config);
    let uuid = |namespace: &ebof_manage::config::Namespace| {
        let open = identified.iter().find(|(open, ..)| open.nsid == namespace.nsid);
        open.map(|(.., identifiers)| identifiers.uuid).or_else(|| known_uuid(config, namespace))
    };
    let namespace_status = |namespace: &ebof_manage::config::Namespace| {
        let geometry = state.devices.device(config, namespace).map(|plain| plain.device.geometry());
        NamespaceStatus {
            nsid: namespace.nsid,
            enabled: namespace.enabled,
            drive: namespace.drive.to_string(),
            size_bytes: geometry.map_or(0, |geometry| geometry.capacity_bytes),
            block_size_bytes: geometry.map_or(0, |geometry| geometry.logical_block_bytes),
            uuid: uuid(namespace).map(|uuid| uuid.to_string()),
            write_protect: namespace.write_protect,
            ana_group: namespace.ana_group,
            io: counters(totals, config.nqn.as_str(), namespace.nsid),
        }
    };
    SubsystemStatus {
        nqn: config.nqn.to_string(),
        enabled: config.enabled,
        serial: config.serial.clone(),
        model: config.model.clone(),
        allow_any_host: config.allow_any_host,
        allowed_hosts: config.allowed_hosts.iter().map(ToString::to_string).collect(),
        ports: config.ports.clone(),
        namespaces: match state.devices.drive_of(&config.nqn) {
            Some((name, view)) => of_drive(config, name, &view, totals),
            None => config.namespaces.iter().map(namespace_status).collect(),
        },
    }
}

/// The namespaces that hosts have cut from a drive.
fn of_drive(
    config: &ebof_manage::config::Subsystem,
    name: &str,
    view: &ebof_drive::View,
    totals: &Totals,
) -> Vec<NamespaceStatus> {
    let status = |(nsid, namespace): &(ebof_nvme::Nsid, ebof_drive::Namespace)| NamespaceStatus {
        nsid: nsid.0,
        enabled: true,
        drive: name.to_owned(),
        size_bytes: namespace.shape.bytes(),
        block_size_bytes: 1 << namespace.shape.format().block_shift,
        uuid: Some(ebof_nvme::Uuid(namespace.uuid).to_string()),
        write_protect: namespace.write_protected,
        ana_group: 1,
        io: counters(totals, config.nqn.as_str(), nsid.0),
    };
    view.namespaces.iter().map(status).collect()
}

fn counters(totals: &Totals, subsystem: &str, nsid: u32) -> IoCounters {
    let mut sum = IoCounters::default();
    for (_, kinds) in totals.iter().filter(|(series, _)| series.subsystem == subsystem && series.nsid == nsid) {
        let of = |kind: Kind| &kinds[kind as usize];
        sum.read_commands += of(Kind::Read).commands;
        sum.read_bytes += of(Kind::Read).bytes;
        sum.write_commands += of(Kind::Write).commands;
        sum.write_bytes += of(Kind::Write).bytes;
        sum.other_commands += of(Kind::Other).commands;
        sum.errors += kinds.iter().map(|kind| kind.errors).sum::<u64>();
    }
    sum
}

/// The processor of each reactor, or `None` where it may move.
fn place_reactors(settings: &Settings) -> Vec<Option<usize>> {
    let allowed: Vec<usize> = rustix::thread::sched_getaffinity(None)
        .map(|set| (0..rustix::thread::CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).collect())
        .unwrap_or_default();
    let count = settings.threads.unwrap_or(allowed.len()).max(1);
    // More threads than processors would queue up on some of them: then the system places them.
    let pin = settings.pin && count <= allowed.len();
    (0..count).map(|index| if pin { allowed.get(index).copied() } else { None }).collect()
}

/// What the registry holds hosts to.
fn limits(settings: &Settings) -> Limits {
    let share = settings.host_share_percent;
    Limits {
        controllers: settings.controllers_max,
        host_controllers: share::percent_of(settings.controllers_max, share),
        host_queues: share::percent_of(settings.connections_max, share),
        ..Limits::default()
    }
}

/// A generation counter that grows over restarts: milliseconds since 1970.
fn first_generation(clock: &Clock) -> u64 {
    u64::try_from(clock.unix_time().as_millis()).unwrap_or(1)
}

#[cfg(test)]
mod panic_tests;
#[cfg(test)]
mod tests;
