//! One change of the configuration, step by step.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, mpsc};

use ebof_clock::Clock;
use ebof_manage::api::{Cause, ConfigStoreError};
use ebof_manage::config::{Namespace, Port, Subsystem};
use ebof_manage::plan::Change;
use ebof_manage::{Config, Drive, Plan};
use ebof_nvme::Nqn;

use super::deferred::Deferred;
use super::leaving::{DRAIN, Leaving, Released, drain};
use super::shown::{Shown, hide};
use super::taken::{Taken, namespace_at};
use crate::drives::DriveThreads;
use crate::environment::Environment;
use crate::environment::making::backings;
use crate::life::contradictions;
use crate::life::control::{Listening, Order};
use crate::life::in_force::InForce;
use crate::life::keys::HostKeys;
use crate::life::missing::Missing;
use crate::life::object::{KnownData, check_drives};
use crate::life::serve::Target;
use crate::life::startup::{Devices, NamespaceKey, OpenDrive, OpenNamespace, StartError, drive_of, listen_at};
use crate::life::unfinished;
use crate::ports::port::PortState;
use crate::ports::sockets;

/// What a change is made for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Another configuration, or to look at what has grown.
    Change,
    /// To take what was missing.
    Find,
}

/// A change that is under way.
pub(super) struct Reload<'c> {
    target: &'c Target,
    old: &'c Config,
    config: &'c Config,
    purpose: Purpose,
    /// Those of the new configuration, once they are read.
    keys: Option<HostKeys>,
    /// Which data hosts have, and by what they know them.
    known: KnownData,
    /// Open devices that stay with their namespaces.
    stay: BTreeMap<NamespaceKey, OpenNamespace>,
    /// From which namespace to which other one a device goes that is open already.
    moves: Vec<(NamespaceKey, NamespaceKey)>,
    /// Drives that stay, as they were and as they will be.
    drives_stay: Vec<(OpenDrive, OpenDrive)>,
    /// Ports that stay, as they were and as they will be.
    ports_stay: Vec<(Listening, Listening)>,
    leaving: Leaving,
    taken: Taken<'c>,
    /// What can be taken when something has been released.
    deferred: Vec<Deferred<'c>>,
    released: Option<Released>,
    shown: Shown<'c>,
}

impl<'c> Reload<'c> {
    /// From what is in force, `before`, whose configuration is `old`, to `config`.
    pub(super) fn new(
        target: &'c Target,
        (old, config): (&'c Config, &'c Config),
        before: InForce,
        purpose: Purpose,
    ) -> Self {
        let InForce { devices, ports, missing, generation, .. } = before;
        // What any configuration had was served: one that is gone back to has nothing made.
        let served: BTreeSet<&str> = backings(old).filter_map(Drive::path).collect();
        let has_more = backings(config).filter_map(Drive::path).any(|path| !served.contains(path));
        let stored = target.store().filter(|_| has_more).map(|stored| stored.store().stored()).unwrap_or_default();
        let blank = devices.with(BTreeMap::new(), Vec::new()).not_making(stored.iter().chain([old]));
        let environment = &target.shared.settings.environment;
        Self {
            target,
            old,
            config,
            purpose,
            keys: None,
            known: KnownData::from_config(old, &devices),
            stay: BTreeMap::new(),
            moves: Vec::new(),
            drives_stay: Vec::new(),
            ports_stay: Vec::new(),
            leaving: Leaving {
                storage: Arc::clone(&environment.storage),
                namespaces: devices.open,
                drives: devices.actors,
                ports,
            },
            taken: Taken::new(environment, old, blank, missing.clone()),
            deferred: Vec::new(),
            released: None,
            shown: Shown::new(target, generation, missing),
        }
    }

    fn clock(&self) -> &'c Clock {
        &self.environment().clock
    }

    fn environment(&self) -> &'c Environment {
        &self.target.shared.settings.environment
    }

    // ---- sort and take

    /// Finds out what stays, and takes what can be taken beside it.
    pub(super) fn sort(&mut self) -> Result<(), StartError> {
        let rest = self.sort_devices()?;
        self.sort_drives();
        let rest_of_ports = self.sort_ports();
        for (nqn, namespace) in rest {
            self.take_or_defer(Deferred::Namespace(nqn, namespace))?;
        }
        for subsystem in self.config.enabled_subsystems() {
            let open = self.drives_stay.iter().any(|(_, now)| now.subsystem.nqn == subsystem.nqn);
            if let Some(drive) = drive_of(self.config, subsystem).filter(|_| !open) {
                self.take_or_defer(Deferred::Drive(drive, subsystem))?;
            }
        }
        for port in rest_of_ports {
            self.take_or_defer(Deferred::Port(port))?;
        }
        Ok(())
    }

    /// Gives the namespaces for which nothing is open.
    fn sort_devices(&mut self) -> Result<Vec<(&'c Nqn, &'c Namespace)>, StartError> {
        let all = self.config.enabled_subsystems();
        let all = all.flat_map(|subsystem| subsystem.enabled_namespaces().map(|namespace| (&subsystem.nqn, namespace)));
        let mut others = Vec::new();
        let mut rest = Vec::new();
        for (nqn, namespace) in all {
            let key = (nqn.clone(), namespace.nsid);
            match self.leaving.keep_namespace(&key, namespace) {
                Some(plain) => {
                    self.check_file(&key, &plain, namespace)?;
                    self.stay.insert(key, plain);
                }
                None => others.push((nqn, namespace)),
            }
        }
        for (nqn, namespace) in others {
            match self.leaving.find_moved(namespace, &self.moves) {
                Some((from, plain)) => {
                    let (from, plain) = (from.clone(), plain.clone());
                    let to = (nqn.clone(), namespace.nsid);
                    self.check_file(&to, &plain, namespace)?;
                    self.moves.push((from, to));
                }
                None => rest.push((nqn, namespace)),
            }
        }
        Ok(rest)
    }

    fn check_file(
        &mut self,
        key: &NamespaceKey,
        plain: &OpenNamespace,
        namespace: &Namespace,
    ) -> Result<(), StartError> {
        if self.purpose == Purpose::Find { Ok(()) } else { self.taken.files.check(key, plain, namespace) }
    }

    fn sort_drives(&mut self) {
        for subsystem in self.config.enabled_subsystems() {
            let Some(drive) = drive_of(self.config, subsystem) else { continue };
            if let Some(before) = self.leaving.keep_drive(drive, subsystem) {
                let now = OpenDrive { config: drive.clone(), subsystem: subsystem.clone(), ..before.clone() };
                self.drives_stay.push((before, now));
            }
        }
    }

    /// Gives the ports for which nothing is open.
    fn sort_ports(&mut self) -> Vec<&'c Port> {
        let mut rest = Vec::new();
        for port in self.config.enabled_ports() {
            let Some(before) = self.leaving.keep_port(port) else {
                rest.push(port);
                continue;
            };
            if sockets::is_same(&before.port.config, port) {
                let now = if before.port.config == *port {
                    Arc::clone(&before.port)
                } else {
                    Arc::new(before.port.altered(port.clone()))
                };
                let bound = before.bound.clone();
                self.ports_stay.push((before, Listening { port: now, bound }));
            } else {
                self.deferred.push(Deferred::Rebind(before.clone(), port));
                self.leaving.ports.push(before);
            }
        }
        rest
    }

    /// Takes something now, unless something that leaves is in the way.
    fn take_or_defer(&mut self, deferred: Deferred<'c>) -> Result<(), StartError> {
        if self.leaving.is_in_the_way(&deferred) {
            self.deferred.push(deferred);
            return Ok(());
        }
        match self.taken.take(&deferred) {
            // A disk and its partitions, a file behind a loop device: who is in the way of whom is
            // the system's business.
            Err(error) if deferred.is_device() && error.is_in_use() && self.leaving.has_devices() => {
                self.deferred.push(deferred);
                Ok(())
            }
            other => other,
        }
    }

    /// Takes what stood in each other's way.
    pub(super) fn take(&mut self) -> Result<(), StartError> {
        for (from, to) in self.moves.clone() {
            if let Some(plain) = self.leaving.namespaces.remove(&from) {
                // Another name: what is still on its way to the old namespace does not arrive
                // at the new one.
                let id = self.taken.blank.ids.next();
                self.taken.namespaces.insert(to, OpenNamespace { id, ..plain });
            }
        }
        if let Some(released) = &mut self.released {
            self.leaving.namespaces.retain(|key, _| !released.namespaces.contains(key));
            released.backings.clear();
        }
        std::mem::take(&mut self.deferred).into_iter().try_for_each(|deferred| self.taken.take(&deferred))
    }

    /// Whether it was to take what is missing, and nothing of that is there.
    pub(super) fn has_found_nothing(&self) -> bool {
        self.purpose == Purpose::Find && self.taken.is_empty() && self.released.is_none()
    }

    /// What of the old configuration is missing still.
    pub(super) fn take_still_missing(&mut self) -> Vec<Missing> {
        std::mem::take(&mut self.taken.still_missing)
    }

    // ---- release

    /// Hides from hosts what has to be released, and waits until nothing is under way on it.
    pub(super) fn release(&mut self) -> Result<(), StartError> {
        if self.deferred.is_empty() && self.moves.is_empty() {
            return Ok(());
        }
        let mut released = self.leaving.choose(&self.deferred, &self.moves);
        self.release_ports(&released.ports);
        let shown = self.without(&mut released);
        let namespaces = released.namespaces.clone();
        let backings = released.backings.clone();
        let gone: Vec<Nqn> = released.drives.iter().map(|(_, subsystem)| subsystem.nqn.clone()).collect();
        let returns = |nqn: &&Nqn| self.config.subsystems.iter().any(|subsystem| subsystem.nqn == **nqn);
        let returning = gone.iter().filter(returns).cloned().collect();
        self.released = Some(released);
        self.shown.show(shown.config, shown.devices, shown.ports, returning)?;
        let clock = self.clock();
        let end = clock.now() + DRAIN;
        let plain = namespaces.iter().filter_map(|key| Some((key, self.leaving.namespaces.get(key)?)));
        let files = &self.taken.files;
        let plain = plain.map(|((nqn, nsid), plain)| (nqn, Some(*nsid), &plain.device, 1 + files.holds(&plain.device)));
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
        let open = self.stay.iter().chain(self.leaving.namespaces.iter().filter(is_shown));
        let open = open.map(|(key, plain)| (key.clone(), plain.clone())).collect();
        let (hidden, others) = std::mem::take(&mut self.leaving.drives)
            .into_iter()
            .partition::<Vec<OpenDrive>, _>(|opened| gone.contains(&opened.subsystem.nqn));
        self.leaving.drives = others;
        released.backings = hidden.into_iter().map(|opened| opened.backing).collect();
        let actors = self.drives_stay.iter().map(|(before, _)| before).chain(&self.leaving.drives);
        let devices = self.taken.blank.with(open, actors.cloned().collect());
        let ports = self.ports_stay.iter().map(|(before, _)| before).chain(&self.leaving.ports).cloned().collect();
        InForce { config, devices, ports, missing: self.shown.missing.clone(), generation: self.shown.generation }
    }

    /// Closes the listening sockets of these ports.
    fn release_ports(&mut self, ports: &[Arc<PortState>]) {
        let is_it = |listening: &Listening| ports.iter().any(|port| Arc::ptr_eq(port, &listening.port));
        self.leaving.ports.iter_mut().filter(|listening| is_it(listening)).for_each(|listening| listening.bound = None);
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

    // ---- check and commit

    /// Stores the configuration, before anybody is shown that it is in force: what comes after this
    /// does not fail.
    pub(super) fn keep(&self, plan: &Plan, cause: &Cause) -> Result<(), ConfigStoreError> {
        match self.target.store() {
            Some(stored) if self.old != self.config => stored.replace(self.config, plan, cause),
            _ => Ok(()),
        }
    }

    /// Whether what was taken makes a model.
    pub(super) fn check(&mut self) -> Result<(), StartError> {
        // What is missing is looked for without a change of anything else.
        if self.purpose == Purpose::Change {
            self.keys = Some(HostKeys::read(self.config, &*self.environment().key_places)?);
        }
        contradictions::check_ports(self.drives_stay.iter().map(|(_, now)| now), self.old, self.config)?;
        let stay: Vec<OpenDrive> = self.drives_stay.iter().map(|(_, now)| now.clone()).collect();
        unfinished::finish(&self.taken.drives, &stay);
        let devices = self.next_devices();
        KnownData::from_config(self.config, &devices).check(&self.known)?;
        check_drives(&devices)?;
        devices.model(self.config, &self.next_ports(), self.shown.generation).map(|_| ())
    }

    fn next_devices(&self) -> Devices {
        let plain = self.stay.iter().chain(&self.taken.namespaces);
        let open = plain.map(|(key, plain)| {
            let namespace = namespace_at(self.config, key);
            let drive = namespace.map_or_else(|| plain.drive.clone(), |namespace| namespace.drive.clone());
            (key.clone(), OpenNamespace { drive, ..plain.clone() })
        });
        let actors = self.drives_stay.iter().map(|(_, now)| now).chain(&self.taken.drives).cloned().collect();
        let mut devices = self.taken.blank.with(open.collect(), actors);
        self.keys.iter().for_each(|read| devices.keys.clone_from(read));
        devices
    }

    /// In the order of the configuration.
    fn next_ports(&self) -> Vec<Listening> {
        let all = || self.ports_stay.iter().map(|(_, now)| now).chain(&self.taken.ports);
        let of = |port: &Port| all().find(|listening| listening.port.name == port.name).cloned();
        self.config.ports.iter().filter_map(of).collect()
    }

    /// Shows hosts what there is now. Gives what has grown.
    pub(super) fn commit(&mut self, plan: &Plan) -> Vec<Change> {
        let devices = self.next_devices();
        let ports = self.next_ports();
        let grown = self.taken.files.offer(&devices);
        self.shown.missing = self.take_still_missing();
        devices.configure();
        // What takes the place of something else under its name goes first, so that hosts see it go
        // and come.
        if let Some(without) = self.without_replaced(plan) {
            let is_shown = |nqn: &Nqn| without.subsystems.iter().any(|subsystem| subsystem.nqn == *nqn);
            let nqns = self.config.subsystems.iter().map(|subsystem| &subsystem.nqn);
            let returning = nqns.filter(|nqn| !is_shown(nqn)).cloned().collect();
            self.shown.show_or_complain(without, devices.clone(), ports.clone(), returning);
        }
        self.shown.show_or_complain(self.config.clone(), devices, ports, Vec::new());
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
        for gone in &self.leaving.ports {
            if !self.taken.ports.iter().any(|taken| taken.port.is_same(&gone.port)) {
                unlisten(&gone.port);
            }
        }
        // Whoever is told that a port is gone may listen at its address at once. An error means
        // that the thread has ended, and its sockets are closed.
        for released in closed {
            let _ = released.recv();
        }
        for taken in std::mem::take(&mut self.taken.ports) {
            self.target.orders.give(Order::Listen(taken));
        }
        self.let_go();
        grown
    }

    /// Waits until what has left is closed: a caller that gets the result may use it for
    /// something else.
    fn let_go(&mut self) {
        let gone = self.leaving.take_devices();
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
        let now = KnownData::from_config(self.config, &self.next_devices());
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

    // ---- go back

    /// Takes what was released again, and shows hosts what there was. Gives what cannot be had any
    /// more.
    pub(super) fn go_back(&mut self) -> Vec<String> {
        for (from, to) in &self.moves {
            if let Some(plain) = self.taken.namespaces.remove(to) {
                self.leaving.namespaces.insert(from.clone(), plain);
            }
        }
        self.taken.give_up();
        let Some(released) = self.released.take() else { return Vec::new() };
        let mut lost = Vec::new();
        let mut config = self.old.clone();
        drop(released.backings);
        for key in
            released.namespaces.iter().filter(|key| !self.leaving.namespaces.contains_key(key)).collect::<Vec<_>>()
        {
            let Some(namespace) = namespace_at(self.old, key) else { continue };
            match self.taken.blank.open_plain(&key.0, namespace) {
                Ok(plain) => {
                    self.leaving.namespaces.insert(key.clone(), plain);
                }
                Err(error) => {
                    hide(&mut config, &BTreeSet::from([key.clone()]));
                    lost.push(error.to_string());
                }
            }
        }
        for (drive, subsystem) in &released.drives {
            match self.taken.blank.open_drive(drive, subsystem, &mut DriveThreads::Own) {
                Ok(opened) => self.leaving.drives.push(opened),
                Err(error) => {
                    config.subsystems.retain(|other| other.nqn != subsystem.nqn);
                    config.drives.retain(|other| other.name != drive.name);
                    lost.push(format!("subsystem {}: {error}", subsystem.nqn));
                }
            }
        }
        let ports = self.ports_again(&released.ports, &mut config, &mut lost);
        let open =
            std::mem::take(&mut self.stay).into_iter().chain(std::mem::take(&mut self.leaving.namespaces)).collect();
        let actors = self.drives_stay.drain(..).map(|(before, _)| before).chain(self.leaving.drives.drain(..));
        let devices = self.taken.blank.with(open, actors.collect());
        self.shown.show_or_complain(config, devices, ports, Vec::new());
        lost.iter().for_each(|lost| tracing::error!("NOT SERVED any more: {lost}"));
        lost
    }

    /// The ports that there were, those that were released bound again.
    fn ports_again(
        &mut self,
        released: &[Arc<PortState>],
        config: &mut Config,
        lost: &mut Vec<String>,
    ) -> Vec<Listening> {
        let stay = self.ports_stay.drain(..).map(|(before, _)| before);
        let mut ports: Vec<Listening> = stay.chain(self.leaving.ports.drain(..)).collect();
        for port in released {
            match listen_at(&port.config, Some(port.address), self.environment()) {
                Ok((bound, _)) => {
                    let again = Listening { port: Arc::clone(port), bound: Some(bound) };
                    self.target.orders.give(Order::Listen(again.clone()));
                    let entry = ports.iter_mut().find(|listening| Arc::ptr_eq(&listening.port, port));
                    entry.into_iter().for_each(|entry| *entry = again.clone());
                }
                Err(error) => {
                    ports.retain(|listening| !Arc::ptr_eq(&listening.port, port));
                    config.ports.retain(|other| other.name != port.name);
                    lost.push(format!("port {}: {error}", port.name));
                }
            }
        }
        let at = |listening: &Listening| self.old.ports.iter().position(|port| port.name == listening.port.name);
        ports.sort_by_key(at);
        ports
    }
}
