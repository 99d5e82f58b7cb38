//! From the configuration in force to another, as one transaction
//! ([0029](../../../../docs/adr/0029-reload.md)).
//!
//! ```text
//! note      what files are about to be made or made larger, for a start after a crash
//! sort      what is the same stays; what is free is taken, beside all that is served
//! release   what has to be released first is hidden from hosts, its requests end, it is closed
//! take      what stood in its way is gone: take it
//! keep      store the configuration, if there is somebody who does
//! commit    show hosts what there is, what goes before what comes; or
//! go back   take what was released again, show hosts what there was
//! ```
//! Nothing that hosts can see has changed before the second step, and nothing at all if nothing has
//! to be released and a step fails.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, mpsc};
use std::time::{Duration, Instant};

use ebof_backend::{BackingId, Device, Persistent, Spec};
use ebof_clock::Clock;
use ebof_manage::api::{ApplyError, Cause, ConfigStore, ConfigStoreError, Revision};
use ebof_manage::config::{ManagedDrive, Namespace, Port, Subsystem};
use ebof_manage::plan::{Change, Effect};
use ebof_manage::{Config, Drive, Plan};
use ebof_nvme::Nqn;

use crate::environment::Environment;
use crate::environment::making::backings;
use crate::environment::remembered;
use crate::life::contradictions;
use crate::life::control::{Listening, Order};
use crate::life::in_force::InForce;
use crate::life::interrupted;
use crate::life::missing::Missing;
use crate::life::object::{KnownData, check_drives};
use crate::life::serve::Target;
use crate::life::startup::{Devices, NamespaceKey, OpenDrive, OpenNamespace, StartError, places};
use crate::life::stored::Stored;
use crate::life::unfinished;
use crate::ports::port::PortState;
use crate::shared::audience;
use crate::shared::mailbox::Message;

use sort::collide;

mod back;
mod failure;
mod sort;
mod take;

/// How long requests may take to end on what is to be released.
const DRAIN: Duration = Duration::from_secs(10);

/// Makes the target what `desired` says.
pub(crate) fn apply(target: &Target, cause: &Cause, desired: Config) -> Result<Plan, ApplyError> {
    apply_with(target, cause, |_current| Ok(desired))
}

/// The same if `revision` is in force.
pub(crate) fn apply_to(
    target: &Target,
    cause: &Cause,
    revision: &Revision,
    desired: Config,
) -> Result<Plan, ApplyError> {
    apply_with(target, cause, |current| {
        let current = Revision::of(current);
        if current == *revision {
            return Ok(desired);
        }
        Err(ApplyError::Outdated { planned: revision.clone(), current })
    })
}

/// Takes what is missing of the configuration in force, as far as it is there now. Nothing else is
/// touched or looked at.
pub(crate) fn find_missing(target: &Target, cause: &Cause) -> Result<Plan, ApplyError> {
    let _alone = target.changing.lock().unwrap_or_else(PoisonError::into_inner);
    let before = target.in_force().clone();
    let (config, missing) = (before.config.clone(), before.missing.clone());
    let found = change(target, cause, before, config, Purpose::Find);
    target.report_found_since(&missing);
    found
}

/// What a change is made for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Another configuration, or to look at what has grown.
    Change,
    /// To take what was missing.
    Find,
}

/// Makes the target what `desired` makes of the configuration in force, which nothing else changes
/// meanwhile.
pub(crate) fn apply_with<E: From<ApplyError>>(
    target: &Target,
    cause: &Cause,
    desired: impl FnOnce(&Config) -> Result<Config, E>,
) -> Result<Plan, E> {
    let _alone = target.changing.lock().unwrap_or_else(PoisonError::into_inner);
    let before = target.in_force().clone();
    let desired = desired(&before.config)?;
    let missing = before.missing.clone();
    let applied = change(target, cause, before, desired, Purpose::Change);
    target.shared.report_applied(&applied, &cause.by);
    target.report_found_since(&missing);
    Ok(applied?)
}

fn change(
    target: &Target,
    cause: &Cause,
    before: InForce,
    mut desired: Config,
    purpose: Purpose,
) -> Result<Plan, ApplyError> {
    desired.keep_numbers(&before.config);
    let mut plan = Plan::between(&before.config, &desired);
    refuse(&plan)?;
    let files = note(target, &before.config, &desired)?;
    let InForce { config: old, devices, ports, missing, generation } = before;
    let mut reload = Reload::new(target, &old, &desired, generation, &devices);
    (reload.purpose, reload.missing) = (purpose, missing);
    reload.leaving = devices.open;
    reload.leaving_drives = devices.actors;
    reload.leaving_ports = ports;
    let prepared = reload.sort().and_then(|()| reload.release()).and_then(|()| reload.take());
    let outcome = match prepared.and_then(|()| reload.check()) {
        Ok(()) if reload.has_found_nothing() => {
            target.in_force().missing = std::mem::take(&mut reload.still_missing);
            Ok(plan)
        }
        Ok(()) => {
            if let Err(error) = reload.keep(&plan, cause) {
                let lost = reload.go_back();
                Err(failure::not_stored(error, lost))
            } else {
                let grown = reload.commit(&plan);
                target.shared.slow.set_threshold(desired.target.slow_threshold);
                let state = target.in_force();
                contradictions::log(&state.devices, &state.ports, &state.config);
                drop(state);
                plan.changes.extend(grown);
                Ok(plan)
            }
        }
        Err(error) => {
            let lost = reload.go_back();
            Err(failure::report(&plan, error, lost))
        }
    };
    // Where it is not known what is stored, the next start finds out.
    if let (Some(store), true) = (files, !matches!(outcome, Err(ApplyError::Unknown { .. }))) {
        store.forget();
    }
    outcome
}

/// Notes the changes of files that are about to be made. Gives who has to forget them.
fn note<'t>(target: &'t Target, old: &Config, new: &Config) -> Result<Option<&'t dyn ConfigStore>, ApplyError> {
    let Some(store) = target.store().map(Stored::store) else { return Ok(None) };
    let changes = interrupted::changes(old, new);
    if changes.is_empty() {
        return Ok(None);
    }
    store.intend(&changes).map_err(|error| {
        let (ConfigStoreError::NotStored(source) | ConfigStoreError::Unknown(source)) = error;
        ApplyError::NotStored { source, lost: Vec::new() }
    })?;
    Ok(Some(store))
}

/// What cannot change while the target runs.
fn refuse(plan: &Plan) -> Result<(), ApplyError> {
    let with = |effect| plan.changes.iter().filter(|change| change.effect() == effect).cloned().collect::<Vec<_>>();
    let impossible = with(Effect::Impossible);
    let restart = with(Effect::Restart);
    if !impossible.is_empty() {
        return Err(ApplyError::Impossible { changes: impossible });
    }
    if restart.is_empty() { Ok(()) } else { Err(ApplyError::NeedsRestart { changes: restart }) }
}

/// A change that is under way.
struct Reload<'c> {
    target: &'c Target,
    old: &'c Config,
    config: &'c Config,
    generation: u64,
    /// Which data hosts have, and by what they know them.
    known: KnownData,
    /// To open devices with.
    blank: Devices,
    /// Open devices that stay with their namespaces.
    stay: BTreeMap<NamespaceKey, OpenNamespace>,
    /// Those that do not. They are removed when they are closed or have their new namespace.
    leaving: BTreeMap<NamespaceKey, OpenNamespace>,
    /// Devices for new namespaces.
    taken: BTreeMap<NamespaceKey, OpenNamespace>,
    /// From which namespace to which other one a device goes that is open already.
    moves: Vec<(NamespaceKey, NamespaceKey)>,
    /// Drives that stay, as they were and as they will be.
    drives_stay: Vec<(OpenDrive, OpenDrive)>,
    leaving_drives: Vec<OpenDrive>,
    taken_drives: Vec<OpenDrive>,
    /// Ports that stay, as they were and as they will be.
    ports_stay: Vec<(Listening, Listening)>,
    leaving_ports: Vec<Listening>,
    taken_ports: Vec<Listening>,
    /// What can be taken when something has been released.
    deferred: Vec<Deferred<'c>>,
    released: Option<Released>,
    /// Subsystems that are hidden, and will be there again.
    returning: Vec<Nqn>,
    /// Files that were made.
    made: Vec<(PathBuf, BackingId)>,
    grown: Vec<Grown>,
    /// Files that were made larger, and what they had before.
    extended: Vec<(Arc<dyn Device>, u64)>,
    purpose: Purpose,
    /// What of the old configuration is missing.
    missing: Vec<Missing>,
    /// What of it still is.
    still_missing: Vec<Missing>,
}

/// Something that can only be opened once the target itself has released another thing.
#[derive(Clone)]
enum Deferred<'c> {
    Namespace(&'c Nqn, &'c Namespace),
    Drive(&'c ManagedDrive, &'c Subsystem),
    Port(&'c Port),
    /// The same address with other options of the socket: its connections stay.
    Rebind(Listening, &'c Port),
}

/// What was released, and has to be taken again on the way back.
#[derive(Default)]
struct Released {
    /// Hidden from hosts.
    namespaces: BTreeSet<NamespaceKey>,
    /// Closed: drives and their subsystems as they were.
    drives: Vec<(ManagedDrive, Subsystem)>,
    backings: Vec<Arc<dyn Device>>,
    ports: Vec<Arc<PortState>>,
}

/// Something that has become larger.
struct Grown {
    key: NamespaceKey,
    from_bytes: u64,
    to_bytes: u64,
}

impl<'c> Reload<'c> {
    fn new(target: &'c Target, old: &'c Config, config: &'c Config, generation: u64, devices: &Devices) -> Self {
        // What any configuration had was served: one that is gone back to has nothing made.
        let known: BTreeSet<&str> = backings(old).filter_map(Drive::path).collect();
        let has_more = backings(config).filter_map(Drive::path).any(|path| !known.contains(path));
        let stored = target.store().filter(|_| has_more).map(|stored| stored.store().stored()).unwrap_or_default();
        Self {
            target,
            old,
            config,
            generation,
            known: KnownData::of(old, devices),
            blank: devices.with(BTreeMap::new(), Vec::new()).not_making(stored.iter().chain([old])),
            stay: BTreeMap::new(),
            leaving: BTreeMap::new(),
            taken: BTreeMap::new(),
            moves: Vec::new(),
            drives_stay: Vec::new(),
            leaving_drives: Vec::new(),
            taken_drives: Vec::new(),
            ports_stay: Vec::new(),
            leaving_ports: Vec::new(),
            taken_ports: Vec::new(),
            deferred: Vec::new(),
            released: None,
            returning: Vec::new(),
            made: Vec::new(),
            grown: Vec::new(),
            extended: Vec::new(),
            purpose: Purpose::Change,
            missing: Vec::new(),
            still_missing: Vec::new(),
        }
    }

    fn clock(&self) -> &'c Clock {
        &self.target.shared.settings.environment.clock
    }

    fn environment(&self) -> &'c Environment {
        &self.target.shared.settings.environment
    }

    /// What tells the backing of a drive from others, without opening it.
    fn id_of(&self, drive: &Drive) -> Option<BackingId> {
        self.environment().storage.id(&Spec::from(drive))
    }

    /// Hides from hosts what has to be released, and waits until nothing is under way on it.
    fn release(&mut self) -> Result<(), StartError> {
        if self.deferred.is_empty() && self.moves.is_empty() {
            return Ok(());
        }
        let mut released = self.choose();
        self.release_ports(&released.ports);
        let shown = self.without(&mut released);
        let namespaces = released.namespaces.clone();
        let backings = released.backings.clone();
        let gone: Vec<Nqn> = released.drives.iter().map(|(_, subsystem)| subsystem.nqn.clone()).collect();
        let returns = |nqn: &&Nqn| self.config.subsystems.iter().any(|subsystem| subsystem.nqn == **nqn);
        self.returning = gone.iter().filter(returns).cloned().collect();
        self.released = Some(released);
        let without = self.show(shown.config, shown.devices, shown.ports);
        self.returning.clear();
        without?;
        let clock = self.clock();
        let end = clock.now() + DRAIN;
        let plain = namespaces.iter().filter_map(|key| Some((key, self.leaving.get(key)?)));
        let plain = plain.map(|((nqn, nsid), plain)| (nqn, Some(*nsid), &plain.device, 1));
        // Two of us have the backing of a drive.
        let drives = gone.iter().zip(&backings).map(|(nqn, backing)| (nqn, None, backing, 2));
        for (subsystem, nsid, device, owners) in plain.chain(drives) {
            if !drain(device, owners, clock, end) {
                let subsystem = subsystem.clone();
                let what = device.describe();
                return Err(StartError::Busy { subsystem, nsid, what, waited: DRAIN });
            }
        }
        Ok(())
    }

    /// What there was, without what is released. The drives among that have only their backings
    /// left here.
    fn without(&mut self, released: &mut Released) -> InForce {
        let gone: HashSet<Nqn> = released.drives.iter().map(|(_, subsystem)| subsystem.nqn.clone()).collect();
        let mut config = self.old.clone();
        config.subsystems.retain(|subsystem| !gone.contains(&subsystem.nqn));
        hide(&mut config, &released.namespaces);
        let is_shown = |(key, _): &(&NamespaceKey, &OpenNamespace)| !released.namespaces.contains(key);
        let open = self.stay.iter().chain(self.leaving.iter().filter(is_shown));
        let open = open.map(|(key, plain)| (key.clone(), plain.clone())).collect();
        let (hidden, others) = std::mem::take(&mut self.leaving_drives)
            .into_iter()
            .partition::<Vec<OpenDrive>, _>(|opened| gone.contains(&opened.subsystem.nqn));
        self.leaving_drives = others;
        released.backings = hidden.into_iter().map(|opened| opened.backing).collect();
        let actors = self.drives_stay.iter().map(|(before, _)| before).chain(&self.leaving_drives);
        let devices = self.blank.with(open, actors.cloned().collect());
        let ports = self.ports_stay.iter().map(|(before, _)| before).chain(&self.leaving_ports).cloned().collect();
        InForce { config, devices, ports, missing: self.missing.clone(), generation: self.generation }
    }

    /// What has to be released.
    fn choose(&self) -> Released {
        let mut released = Released::default();
        released.namespaces.extend(self.moves.iter().map(|(from, _)| from.clone()));
        let mut all = false;
        for deferred in &self.deferred {
            match deferred {
                Deferred::Rebind(before, _) => released.ports.push(Arc::clone(&before.port)),
                Deferred::Port(port) => {
                    let collides = self.leaving_ports.iter().filter(|open| collide(&open.port, &port.listen));
                    released.ports.extend(collides.map(|open| Arc::clone(&open.port)));
                }
                // What it needs is unknown: release all that leaves.
                _ if !self.is_in_the_way(deferred) => all = true,
                _ => {}
            }
        }
        let ids: HashSet<BackingId> = self.deferred.iter().filter_map(|deferred| self.wanted_id(deferred)).collect();
        let is_wanted = |device: &Arc<dyn Device>| {
            all || device.persistent().and_then(Persistent::id).is_some_and(|id| ids.contains(&id))
        };
        let plain = self.leaving.iter().filter(|(_, plain)| is_wanted(&plain.device));
        released.namespaces.extend(plain.map(|(key, _)| key.clone()));
        let drives = self.leaving_drives.iter().filter(|opened| is_wanted(&opened.backing));
        released.drives = drives.map(|opened| (opened.config.clone(), opened.subsystem.clone())).collect();
        released
    }

    /// Closes the listening sockets of these ports.
    fn release_ports(&mut self, ports: &[Arc<PortState>]) {
        let is_it = |listening: &Listening| ports.iter().any(|port| Arc::ptr_eq(port, &listening.port));
        self.leaving_ports.iter_mut().filter(|listening| is_it(listening)).for_each(|listening| listening.bound = None);
        for deferred in &mut self.deferred {
            if let Deferred::Rebind(before, _) = deferred {
                before.bound = None;
            }
        }
        for listening in self.target.in_force().ports.iter_mut().filter(|listening| is_it(listening)) {
            listening.bound = None;
        }
        for port in ports {
            let (done, released) = mpsc::channel();
            self.target.orders.give(Order::Release(Arc::clone(port), done));
            // An error means that the thread has ended, and its sockets are closed.
            let _ = released.recv();
        }
    }

    /// Stores the configuration, before anybody is shown that it is in force: what comes after this
    /// does not fail.
    fn keep(&self, plan: &Plan, cause: &Cause) -> Result<(), ConfigStoreError> {
        match self.target.store() {
            Some(stored) if self.old != self.config => stored.replace(self.config, plan, cause),
            _ => Ok(()),
        }
    }

    /// Whether what was taken makes a model.
    fn check(&mut self) -> Result<(), StartError> {
        contradictions::check_ports(self.drives_stay.iter().map(|(_, now)| now), self.old, self.config)?;
        let stay: Vec<OpenDrive> = self.drives_stay.iter().map(|(_, now)| now.clone()).collect();
        unfinished::finish(&self.taken_drives, &stay);
        let devices = self.next_devices();
        KnownData::of(self.config, &devices).check(&self.known)?;
        check_drives(&devices)?;
        devices.model(self.config, &self.next_ports(), self.generation).map(|_| ())
    }

    fn next_devices(&self) -> Devices {
        let plain = self.stay.iter().chain(&self.taken);
        let open = plain.map(|(key, plain)| {
            let namespace = namespace_at(self.config, key);
            let drive = namespace.map_or_else(|| plain.drive.clone(), |namespace| namespace.drive.clone());
            (key.clone(), OpenNamespace { drive, ..plain.clone() })
        });
        let actors = self.drives_stay.iter().map(|(_, now)| now).chain(&self.taken_drives).cloned().collect();
        self.blank.with(open.collect(), actors)
    }

    /// In the order of the configuration.
    fn next_ports(&self) -> Vec<Listening> {
        let all = || self.ports_stay.iter().map(|(_, now)| now).chain(&self.taken_ports);
        let of = |port: &Port| all().find(|listening| listening.port.name == port.name).cloned();
        self.config.ports.iter().filter_map(of).collect()
    }

    /// Shows hosts what there is now. Gives what has grown.
    fn commit(&mut self, plan: &Plan) -> Vec<Change> {
        let devices = self.next_devices();
        let ports = self.next_ports();
        let grown: Vec<Change> = self.grown.iter().map(|grown| grown.offer(&devices)).collect();
        self.missing = std::mem::take(&mut self.still_missing);
        devices.configure();
        // What takes the place of something else under its name goes first, so that hosts see it go
        // and come.
        if let Some(without) = self.without_replaced(plan) {
            let is_shown = |nqn: &Nqn| without.subsystems.iter().any(|subsystem| subsystem.nqn == *nqn);
            let nqns = self.config.subsystems.iter().map(|subsystem| &subsystem.nqn);
            self.returning = nqns.filter(|nqn| !is_shown(nqn)).cloned().collect();
            self.show_or_complain(without, devices.clone(), ports.clone());
            self.returning.clear();
        }
        self.show_or_complain(self.config.clone(), devices, ports);
        let mut closed = Vec::new();
        let mut unlisten = |port: &Arc<PortState>| {
            let (done, released) = mpsc::channel();
            self.target.orders.give(Order::Unlisten(Arc::clone(port), done));
            closed.push(released);
        };
        for (before, now) in self.ports_stay.iter().filter(|(before, now)| !Arc::ptr_eq(&before.port, &now.port)) {
            self.target.orders.give(Order::Renew(Arc::clone(&before.port), Arc::clone(&now.port)));
            if !before.port.is_same(&now.port) {
                unlisten(&before.port);
            }
        }
        for gone in &self.leaving_ports {
            if !self.taken_ports.iter().any(|taken| taken.port.is_same(&gone.port)) {
                unlisten(&gone.port);
            }
        }
        // Whoever is told that a port is gone may listen at its address at once. An error means
        // that the thread has ended, and its sockets are closed.
        for released in closed {
            let _ = released.recv();
        }
        for taken in std::mem::take(&mut self.taken_ports) {
            self.target.orders.give(Order::Listen(taken));
        }
        self.let_go();
        grown
    }

    /// Waits until what has left is closed: a caller that gets the result may use it for
    /// something else.
    fn let_go(&mut self) {
        let drives = self.leaving_drives.drain(..).map(|opened| opened.backing);
        let gone: Vec<Arc<dyn Device>> =
            std::mem::take(&mut self.leaving).into_values().map(|plain| plain.device).chain(drives).collect();
        let clock = self.clock();
        let end = clock.now() + DRAIN;
        for device in gone.iter().filter(|device| !drain(device, 1, clock, end)) {
            let what = device.describe();
            tracing::warn!(what, "taken away and not closed yet: requests of hosts are still under way");
        }
    }

    /// The configuration without what has the name of something else that is still shown; `None` if
    /// there is no such thing.
    fn without_replaced(&self, plan: &Plan) -> Option<Config> {
        let hidden =
            |key: &NamespaceKey| self.released.as_ref().is_some_and(|released| released.namespaces.contains(key));
        let now = KnownData::of(self.config, &self.next_devices());
        let mut keys = BTreeSet::new();
        let mut subsystems = HashSet::new();
        for change in &plan.changes {
            match change {
                Change::AddNamespace { subsystem, namespace, .. } => {
                    let old = self.old.subsystems.iter().find(|old| old.nqn.as_str() == subsystem.as_str());
                    let was_there = |old: &&Subsystem| old.namespaces.iter().any(|it| it.nsid == namespace.nsid);
                    let key = old.filter(was_there).map(|old| (old.nqn.clone(), namespace.nsid));
                    if let Some(key) = key
                        && !hidden(&key)
                        && !(self.stay.contains_key(&key) && self.known.identifiers(&key) == now.identifiers(&key))
                    {
                        keys.insert(key);
                    }
                }
                Change::AddSubsystem { subsystem }
                    if self.old.subsystems.iter().any(|old| old.nqn == subsystem.nqn) =>
                {
                    subsystems.insert(subsystem.nqn.clone());
                }
                _ => {}
            }
        }
        if keys.is_empty() && subsystems.is_empty() {
            return None;
        }
        let mut config = self.config.clone();
        config.subsystems.retain(|subsystem| !subsystems.contains(&subsystem.nqn));
        hide(&mut config, &keys);
        Some(config)
    }

    fn show_or_complain(&mut self, config: Config, devices: Devices, ports: Vec<Listening>) {
        if let Err(error) = self.show(config, devices, ports) {
            // Whatever a drive holds made a table when it was opened or changed, and the rest was
            // checked.
            tracing::error!("hosts are shown what was there before: {error}");
        }
    }

    /// Puts this in force.
    fn show(&mut self, config: Config, devices: Devices, ports: Vec<Listening>) -> Result<(), StartError> {
        self.generation += 1;
        let shared = &self.target.shared;
        let mut model = devices.model(&config, &ports, self.generation)?;
        // A host that comes meanwhile is not to give up.
        model.returning.extend(self.returning.iter().cloned());
        let actors = devices.actors();
        let surplus =
            shared.drives.put_in_force(devices.plain(), &actors, places(&ports), model, |table, mut model| {
                let mut objects = shared.registry().objects().clone();
                if objects.note(&model) {
                    remembered::store(&*shared.settings.environment.objects, &objects)?;
                }
                // Devices first: a queue that learns of a namespace finds its device.
                shared.post_all(|| Message::Devices(Arc::clone(&table)));
                // Delivered under the lock, so that no queue hears of an older model later.
                let mut registry = shared.registry();
                // Functions that go online or offline change what hosts discover, too.
                model.generation = model.generation.max(registry.model().generation + 1);
                let notices = registry.replace_model(Arc::new(model));
                shared.shares.follow(registry.model());
                shared.deliver(notices);
                Ok(())
            })?;
        audience::connect(shared, &actors);
        let missing = self.missing.clone();
        *self.target.in_force() = InForce { config, devices, ports, missing, generation: self.generation };
        surplus.iter().for_each(|actor| actor.stop());
        Ok(())
    }
}

impl Grown {
    fn offer(&self, devices: &Devices) -> Change {
        if let Some(backing) = devices.open.get(&self.key).and_then(|plain| plain.device.persistent()) {
            backing.grow(self.to_bytes);
        }
        let subsystem = self.key.0.to_string();
        let nsid = self.key.1;
        Change::GrowNamespace { subsystem, nsid, from_bytes: self.from_bytes, to_bytes: self.to_bytes }
    }
}

/// Waits until nothing is under way on a device that has so many owners, beside those that use it;
/// `false` if something is at `end`.
fn drain(device: &Arc<dyn Device>, owners: usize, clock: &Clock, end: Instant) -> bool {
    let is_idle = || Arc::strong_count(device) <= owners && device.persistent().is_none_or(Persistent::is_idle);
    while !is_idle() {
        if clock.now() >= end {
            return false;
        }
        clock.sleep(Duration::from_millis(1));
    }
    true
}

fn namespace_at<'c>(config: &'c Config, key: &NamespaceKey) -> Option<&'c Namespace> {
    let subsystem = config.subsystems.iter().find(|subsystem| subsystem.nqn == key.0)?;
    subsystem.namespaces.iter().find(|namespace| namespace.nsid == key.1)
}

fn hide(config: &mut Config, keys: &BTreeSet<NamespaceKey>) {
    for subsystem in &mut config.subsystems {
        let nqn = subsystem.nqn.clone();
        subsystem.namespaces.retain(|namespace| !keys.contains(&(nqn.clone(), namespace.nsid)));
    }
}
