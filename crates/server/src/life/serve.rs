//! A running target: started from a configuration, changed by another, asked for its state, and
//! stopped.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ebof_clock::Clock;
use ebof_drive::{Answer, Refusal, Request};
use ebof_fabrics::{Limits, Registry};
use ebof_manage::api::{self, ApplyError, Cause, ConfigStore, MissingKind, MissingObject, Revision, Status};
use ebof_manage::events::{EventKind, Events, NewEvent};
use ebof_manage::history::Measured;
use ebof_manage::history::live::LiveTable;
use ebof_manage::slow::SlowCommands;
use ebof_manage::{Change, Config, Diagnostics, Loaded, Plan};

use crate::drives::device::DeviceTable;
use crate::drives::{DriveActor, DriveThreads, Drives};
use crate::environment::remembered;
use crate::environment::settings::Settings;
use crate::life::contradictions;
use crate::life::control::{Control, Listening, Order, Orders, Placement};
use crate::life::functions;
use crate::life::hanging::{HANGING, Hanging};
use crate::life::host_ids;
use crate::life::in_force::InForce;
use crate::life::liveness::{self, Silent};
use crate::life::looking::{self, MissingElsewhere};
use crate::life::missing::{Missing, MissingKey};
use crate::life::object::{KnownData, check_drives};
use crate::life::readiness;
use crate::life::reload;
use crate::life::startup::{Devices, StartError, listen, places};
use crate::life::status::InForceStatus;
use crate::life::stored::Stored;
use crate::life::threads::{Threads, place_reactors};
use crate::life::unfinished;
use crate::life::watched::{self, Remembered};
use crate::observe::stats::Totals;
use crate::ports::port::PortState;
use crate::reactor::admission;
use crate::report::function_load::FunctionLoad;
use crate::report::metrics::{self, Exposition, MetricsDetail};
use crate::report::sampling;
use crate::shared::Shared;
use crate::shared::mailbox::{Mailbox, Message};
use crate::shared::owners::Owners;
use crate::shared::{audience, host_limits};

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
    threads: Threads,
    state: Mutex<InForce>,
    /// Held while the configuration is changed; taken before the state.
    pub(crate) changing: Mutex<()>,
    /// Names of drives that were added to what the whole configuration has.
    added: Mutex<BTreeSet<String>>,
    /// What is missing beside the configuration.
    elsewhere: MissingElsewhere,
    /// Where what is in force is stored.
    store: OnceLock<Stored>,
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
        target.threads.spawn("ebof-control".to_owned(), None, move || control.run())?;
        target.threads.start_reactors(&target.shared, mailboxes, &processors, &table)?;
        let sampled = Arc::clone(&target.shared);
        target.threads.spawn("ebof-sampler".to_owned(), None, move || sampling::run(&sampled))?;
        if let Some(store) = target.shared.settings.environment.host_ids.clone() {
            let shared = Arc::clone(&target.shared);
            target.threads.spawn("ebof-host-ids".to_owned(), None, move || host_ids::keep(&shared, &*store))?;
        }
        let message = format!("ebof {} was started", env!("CARGO_PKG_VERSION"));
        target.shared.report(NewEvent::new(EventKind::TargetStarted, "", message));
        target.missing().iter().for_each(|missing| looking::report_missing(&target.shared, missing));
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
        KnownData::from_config(&config, &devices).check(&KnownData::default())?;
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
        let mut registry = Registry::with_objects(limits(&settings), Arc::new(model), generation, objects);
        let host_ids = settings.environment.host_ids.as_deref();
        registry.restore_host_ids(host_ids.map(remembered::load_host_ids).unwrap_or_default());
        let shared = Arc::new(Shared::new(settings, registry, drives, mailboxes.to_vec(), bell.clone()));
        audience::connect(&shared, &devices.actors());
        let (orders, receiver) = Orders::new(bell.clone());
        contradictions::log(&devices, &ports, &config);
        let state = Mutex::new(InForce { config, devices, ports, missing, generation });
        let target = Self {
            shared,
            orders,
            threads: Threads::default(),
            state,
            changing: Mutex::default(),
            added: Mutex::default(),
            elsewhere: MissingElsewhere::default(),
            store: OnceLock::new(),
        };
        Ok(Assembled { target, orders: receiver, table })
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
            owners: Owners::from_shared(&self.shared),
            listening: self.listening(),
            slow: self.shared.slow.figures(),
            events: self.shared.events.counts(),
            troubles: self.shared.troubles.totals().map(|(trouble, count)| (trouble.label(), count)).to_vec(),
        };
        metrics::render(snapshot, exposition, detail)
    }

    /// What has happened since the target was started.
    #[must_use]
    pub fn events(&self) -> Arc<dyn Events> {
        Arc::clone(&self.shared.events) as Arc<dyn Events>
    }

    /// The slow commands: the latest, and how many there were.
    #[must_use]
    pub fn slow(&self) -> SlowCommands {
        watched::slow(&self.shared)
    }

    /// What each queue with I/O commands did in the latest second: those that did most. The first
    /// who asks for a while gets no rates yet.
    #[must_use]
    pub fn queues(&self) -> LiveTable {
        watched::queues(&self.shared)
    }

    /// What each object did, second by second.
    #[must_use]
    pub fn measured(&self) -> Arc<dyn Measured> {
        Arc::new(Remembered(Arc::clone(&self.shared)))
    }

    /// The functions of all drives, by drive and number.
    #[must_use]
    pub fn function_loads(&self) -> Vec<FunctionLoad> {
        functions::loads_now(&self.shared)
    }

    /// Has the drive with this name do what the box asks, and waits for its answer. `None` if there
    /// is no such drive.
    pub fn ask_drive(&self, name: &str, request: Request) -> Option<Result<Answer, Refusal>> {
        let answer = self.submit_to_drive(name, request)?;
        Some(answer.recv().unwrap_or_else(|_| Err(Refusal::transient(ebof_nvme::Status::INTERNAL_ERROR))))
    }

    /// The same without waiting: the receiver gets the answer, or is disconnected.
    pub fn submit_to_drive(&self, name: &str, request: Request) -> Option<Receiver<Result<Answer, Refusal>>> {
        functions::submit(&self.shared.drives, name, request)
    }

    /// Has every thread that serves take a turn, and waits for that for at most `limit`. A sleeping
    /// thread is woken, so ask rarely.
    ///
    /// # Errors
    /// The thread that has been silent for longest.
    pub fn check_threads(&self, limit: Duration) -> Result<(), Silent> {
        liveness::check(&self.shared, &self.orders, limit)
    }

    /// What keeps the target from serving all that it is to serve, for people; nothing when all is
    /// well. Threads that hang are [`Target::check_threads`]'s.
    #[must_use]
    pub fn unready(&self) -> Vec<String> {
        readiness::unready(&self.shared, &self.missing(), &self.listening())
    }

    /// The ports, and whether each listens. What is in force is free again when it returns: who
    /// asks has other locks to take.
    fn listening(&self) -> Vec<(String, bool)> {
        self.in_force().listening()
    }

    /// What cannot be had now, of the configuration and of what belongs to the program.
    #[must_use]
    pub fn missing(&self) -> Vec<MissingObject> {
        let of_configuration: Vec<MissingObject> = self.in_force().missing().collect();
        of_configuration.into_iter().chain(self.elsewhere.list()).collect()
    }

    /// Tells of something that belongs to the program around the target, such as its management:
    /// it is missing for a reason, or there.
    pub fn tell_missing(&self, kind: MissingKind, name: &str, reason: Option<String>) {
        if let Some(change) = self.elsewhere.tell(kind, name, reason, self.shared.clock.unix_ms()) {
            change.report(&self.shared);
        }
    }

    /// Looks whether what is missing of the configuration can be had now; then hosts are shown it.
    pub fn look_for_missing(&self) {
        if self.in_force().missing.is_empty() {
            return;
        }
        if let Err(error) = reload::find_missing(self, &Cause::library()) {
            tracing::warn!("what is missing cannot be taken in: {error}");
        }
    }

    /// Reports what was missing before and is there now.
    pub(crate) fn report_found_since(&self, before: &[Missing]) {
        let found = self.in_force().found(before);
        found.iter().for_each(|missing| looking::report_found(&self.shared, missing));
    }

    /// Accepts nothing more, completes the commands that were accepted, and ends. After `grace`
    /// connections are cut off; commands that are still at devices then are waited for during 3 s,
    /// and drives to be closed during 3 s more: a device that never answers does not keep whoever
    /// stops the target. What is left ends when the device answers, or with the process. A second
    /// call waits for nothing.
    pub fn stop(&self, grace: Duration) -> Option<Hanging> {
        if self.threads.is_empty() {
            return None;
        }
        let end = Instant::now() + grace + HANGING;
        self.shared.stopping.store(true, Relaxed);
        self.shared.report(NewEvent::new(EventKind::TargetStopping, "", "the target is being stopped"));
        self.shared.sampler.stop();
        self.orders.give(Order::Stop);
        let deadline_ms = self.shared.clock.now_ms() + u64::try_from(grace.as_millis()).unwrap_or(u64::MAX / 2);
        self.shared.post_all(|| Message::Shutdown { deadline_ms });
        let threads = self.threads.join(end);
        // Nobody asks the drives for anything any more, but for those threads.
        let closings: Vec<_> =
            self.shared.drives.actors().into_iter().map(|(_, actor)| (actor.begin_stop(), actor)).collect();
        let end = Instant::now() + HANGING;
        let hangs = |(closed, actor): (_, Arc<DriveActor>)| (!actor.end_stop(&closed, end)).then(|| actor.name());
        let drives: Vec<String> = closings.into_iter().filter_map(hangs).collect();
        (!threads.is_empty() || !drives.is_empty()).then_some(Hanging { threads, drives })
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
        self.store.set(Stored::with_store(store)).map_err(Stored::into_store)
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
        if let Some(hanging) = self.stop(Duration::ZERO) {
            tracing::error!("{hanging}");
        }
    }
}

impl api::Target for Target {
    fn status(&self) -> Status {
        let state = self.in_force();
        let missing = state.missing().chain(self.elsewhere.list()).collect();
        InForceStatus::new(&self.shared, &state).status(missing)
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

/// What the registry holds hosts to.
fn limits(settings: &Settings) -> Limits {
    let share = settings.host_share_percent;
    Limits {
        controllers: settings.controllers_max,
        host_controllers: host_limits::percent_of(settings.controllers_max, share),
        host_queues: host_limits::percent_of(settings.connections_max, share),
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
