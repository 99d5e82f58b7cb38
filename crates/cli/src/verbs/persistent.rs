//! Discovery services whose connections stay: `connect-all --persistent`, and entries of the file
//! of connections. What a service lists is connected, also later, when an event of the service says
//! that its log has changed; what vanishes may be disconnected.
//!
//! A thread for each service reads its logs ([`watch`]); this file decides what follows from them.

mod changes;
mod mailbox;
mod neighbourhood;
mod own;
mod service;
mod watch;

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use ebof_attach::state::Record;
use ebof_attach::{Kind, Select};
use ebof_mdns::Neighbour;
use ebof_nvme::log::SubsystemType;
use signal_hook::consts::{SIGINT, SIGTERM};

use self::changes::Changes;
use self::mailbox::Mailbox;
use self::neighbourhood::{NeighbourChanges, Neighbourhood};
use self::own::OwnConnections;
use self::service::FollowedService;
use self::watch::{Heard, ServiceWatch};
use super::everything::{CONNECTS_MAX, Everything, Fate, Path, REFERRALS_MAX, left_out};
use super::fabric::{FabricArgs, same_host};
use super::neighbours;
use super::record::place_of;
use super::services::{DiscoveryService, Places, Rules, Wrong, tell_of_not_offered};
use crate::failure;
use crate::global::Global;
use crate::output::connections::ConnectAllView;
use crate::output::say;
use crate::output::text::safe;

/// How long the main thread waits for news if nothing is due.
const IDLE: Duration = Duration::from_secs(3600);

/// When paths that failed are tried again: at first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Whom the outcomes of a service's first logs are told, until one is read.
pub(super) type FirstLog = Box<dyn Fn(anyhow::Result<ConnectAllView>) + Send>;

/// A service to hold.
pub(super) struct HeldService {
    pub(super) service: DiscoveryService,
    pub(super) front: Kind,
    pub(super) first_log: Option<FirstLog>,
}

/// Services that are held, and what they list.
pub(super) struct Persistent {
    global: Global,
    changes: Changes,
    places: Places,
    services: HashMap<usize, FollowedService>,
    /// What looks for more services, by the numbers of their threads.
    neighbourhoods: HashMap<usize, Neighbourhood>,
    next: usize,
    /// What became of each path that is listed.
    fates: HashMap<Path, Fate>,
    /// What was connected here.
    own: OwnConnections,
    /// When failed paths are tried again, and the time after that.
    retry: Option<(Instant, Duration)>,
    mailbox: Mailbox,
    has_told_too_many: bool,
    has_told_too_many_connections: bool,
    /// What was wrong with the exclusions last.
    wrong: String,
}

impl Persistent {
    pub(super) fn new(global: &Global) -> Self {
        Self {
            global: global.clone(),
            changes: Changes::new(global),
            places: Places::default(),
            services: HashMap::new(),
            neighbourhoods: HashMap::new(),
            next: 0,
            fates: HashMap::new(),
            own: OwnConnections::default(),
            retry: None,
            mailbox: Mailbox::new(),
            has_told_too_many: false,
            has_told_too_many_connections: false,
            wrong: String::new(),
        }
    }

    /// Holds services until a signal ends this process, with this code.
    ///
    /// # Errors
    /// A thread or the handler of a signal cannot be made.
    pub(super) fn run(mut self, held: Vec<HeldService>, code: i32) -> anyhow::Result<Infallible> {
        // Whatever its threads wait for: all that is connected has a process of its own.
        for signal in [SIGINT, SIGTERM] {
            let always = Arc::new(AtomicBool::new(true));
            signal_hook::flag::register_conditional_shutdown(signal, code, always).context("catching signals")?;
        }
        let (rules, wrong) = Rules::read(&self.places);
        // It was told before.
        self.wrong = text_of(&wrong);
        for mut held in held {
            if held.service.fabric.mdns {
                self.browse(held)?;
                continue;
            }
            match (&held.service.place, rules.allowed(&held.service.fabric)) {
                (Some(place), Err(reason)) => self.leave_alone(&held, &format!("{reason}, which {place} names")),
                (Some(_), Ok(fabric)) => {
                    held.service.fabric = fabric;
                    self.hold(held, true)?;
                }
                (None, _) => self.hold(held, true)?,
            }
        }
        loop {
            let wait = self.retry.map_or(IDLE, |(at, _)| at.saturating_duration_since(Instant::now()));
            if let Some((id, heard)) = self.mailbox.take(wait) {
                self.hear(id, heard)?;
            }
            if self.retry.is_some_and(|(at, _)| at <= Instant::now()) {
                self.try_again()?;
            }
        }
    }

    /// A service that a file names, and an exclusion, too.
    fn leave_alone(&self, held: &HeldService, reason: &str) {
        let name = name_of(&held.service.fabric);
        self.tell("left-alone", &[("service", &name), ("reason", reason)], &format!("{name}: {reason}"));
        if let Some(tell) = &held.first_log {
            tell(Ok(ConnectAllView { skipped: vec![(name, reason.to_owned())], ..ConnectAllView::default() }));
        }
    }

    fn hold(&mut self, held: HeldService, is_named: bool) -> anyhow::Result<()> {
        let id = self.next;
        self.next += 1;
        let stop = Arc::new(AtomicBool::new(false));
        let watch = ServiceWatch::new(&held.service.fabric, &self.global, Arc::clone(&stop));
        let outlet = self.mailbox.outlet(id);
        let thread = std::thread::Builder::new().name("ebof-discovery".to_owned());
        thread
            .spawn(move || watch.run(|heard| outlet.tell(heard)))
            .context("starting a thread for a discovery service")?;
        self.services.insert(id, FollowedService::new(held, is_named, stop));
        Ok(())
    }

    /// Holds the services that multicast DNS finds.
    fn browse(&mut self, mut held: HeldService) -> anyhow::Result<()> {
        let id = self.next;
        self.next += 1;
        if let Some(tell) = held.first_log.take() {
            // There may never be any.
            tell(Ok(ConnectAllView::default()));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let outlet = self.mailbox.outlet(id);
        self.neighbourhoods.insert(id, Neighbourhood::new(held, Arc::clone(&stop)));
        let look = move || {
            if let Err(error) = neighbours::watch(&stop, |there| outlet.tell(Heard::Neighbours(there))) {
                say(&failure::text(&error.into()));
            }
        };
        let thread = std::thread::Builder::new().name("ebof-mdns".to_owned());
        thread.spawn(look).context("starting a thread for multicast DNS")?;
        Ok(())
    }

    /// Holds services that have appeared on the network, and lets go of those that have gone.
    fn meet(&mut self, id: usize, there: &[Neighbour]) -> anyhow::Result<()> {
        let Some(here) = self.neighbourhoods.get_mut(&id) else { return Ok(()) };
        let NeighbourChanges { new, gone } = here.update(there);
        for neighbour in new {
            let Some(here) = self.neighbourhoods.get_mut(&id) else { return Ok(()) };
            let Some(service) = neighbours::service_of(&here.held.service.fabric, &neighbour) else { continue };
            let is_held = self.services.values().any(|it| it.held.service.fabric.is_place_of(&service.fabric));
            let allowed = Rules::read(&self.places).0.allowed(&service.fabric);
            let name = name_of(&service.fabric);
            let held = match allowed {
                _ if is_held => None,
                Err(reason) => {
                    say(&format!("{name} is left alone: {reason}"));
                    None
                }
                Ok(_) => Some(HeldService { service, front: here.held.front, first_log: None }),
            };
            let number = held.is_some().then_some(self.next);
            let before = here.meet(neighbour, number);
            if let Some(held) = held {
                self.tell("service-added", &[("service", &name)], &format!("{name} is found by multicast DNS"));
                self.hold(held, true)?;
            }
            if let Some(before) = before {
                self.drop_gone(before);
            }
        }
        for service in gone {
            self.drop_gone(service);
        }
        Ok(())
    }

    /// The same of one that may have been found otherwise.
    fn drop_if_found(&mut self, id: usize) {
        if self.neighbourhoods.values().any(|here| here.has_lost(id)) {
            self.drop_gone(id);
        }
    }

    /// Lets go of a service that multicast DNS does not know any more, and that is away.
    fn drop_gone(&mut self, id: usize) {
        let is_gone = !self.neighbourhoods.values().any(|here| here.knows(id));
        if !is_gone || !self.services.get(&id).is_some_and(|service| service.is_away) {
            return;
        }
        self.neighbourhoods.values_mut().for_each(|here| here.forget(id));
        let Some(service) = self.services.remove(&id) else { return };
        let name = name_of(&service.held.service.fabric);
        self.tell("service-removed", &[("service", &name)], &format!("{name} has gone from this network"));
        self.drop_unreferred();
        self.let_go();
        self.set_retry();
    }

    fn hear(&mut self, id: usize, heard: Heard) -> anyhow::Result<()> {
        if let Heard::Neighbours(there) = heard {
            return self.meet(id, &there);
        }
        let Some(service) = self.services.get_mut(&id) else { return Ok(()) };
        let name = name_of(&service.held.service.fabric);
        match heard {
            Heard::Neighbours(_) => Ok(()),
            Heard::Log(log) => {
                service.is_away = false;
                tell_of_not_offered(&service.held.service.fabric, log.not_offered);
                if log.left_out > 0 && service.is_whole() {
                    say(&format!("{name}: {}", failure::text(&left_out(log.entries.len(), log.left_out).into())));
                }
                service.log = Some(log);
                self.follow(id, false)
            }
            Heard::Lost(reason) => {
                service.is_away = true;
                self.tell(
                    "service-lost",
                    &[("service", &name), ("reason", &reason)],
                    &format!("{name}: {reason}: reconnecting"),
                );
                self.drop_if_found(id);
                Ok(())
            }
            Heard::Back => {
                service.is_away = false;
                self.tell("service-back", &[("service", &name)], &format!("{name}: the connection is back"));
                Ok(())
            }
            Heard::Silent => {
                say(&format!("{name} sends no events: it is asked every {} s", watch::POLL.as_secs()));
                Ok(())
            }
            Heard::Failed(error) => {
                let text = failure::text(&error);
                match &service.held.first_log {
                    Some(tell) => tell(Err(error)),
                    None => say(&format!("{name}: {text}\n  it is tried again until it succeeds")),
                }
                service.is_away = true;
                self.drop_if_found(id);
                Ok(())
            }
        }
    }

    /// Connects what the last log of a service lists, holds what it refers to, and lets go of what
    /// has vanished from it. Paths that failed are tried again if that is due.
    fn follow(&mut self, id: usize, is_due: bool) -> anyhow::Result<()> {
        self.forget_ended();
        let rules = self.read_rules();
        let Some(service) = self.services.get_mut(&id) else { return Ok(()) };
        let Some(log) = service.log.clone() else { return Ok(()) };
        let own = service.held.service.clone();
        let mut run = Everything::new(service.held.front, rules, &self.global).for_held(self.own.len());
        run.know(self.fates.iter().filter(|(path, fate)| match fate {
            Fate::Connected { .. } | Fate::There(_) => true,
            Fate::Failed(_) => !is_due && service.listed.contains(*path),
            Fate::LeftAlone => false,
        }));
        let logs = [(own, log)];
        let refers = run.follow_logs(&logs);
        let [(own, log)] = logs;
        service.listed = log
            .entries
            .iter()
            .filter(|entry| entry.subsystem_type() == SubsystemType::NVM)
            .filter_map(|entry| place_of(entry, &own.fabric))
            .map(|(transport, nqn, traddr, port)| (transport, nqn.to_string(), same_host(&traddr), port))
            .collect();
        service.refers = refers.iter().map(|service| service.fabric.clone()).collect();
        service.tell_unasked(run.unasked());
        let first_log = service.held.first_log.take();
        let outcomes = run.outcomes().iter().filter(|(path, _)| service.listed.contains(*path));
        let found: Vec<(Path, Fate)> = outcomes.map(|(path, fate)| (path.clone(), fate.clone())).collect();
        let left_out = run.left_out();
        let view = run.into_view();
        if left_out > 0 && !std::mem::replace(&mut self.has_told_too_many_connections, true) {
            say(&format!("more than {CONNECTS_MAX} connections are made or tried here: the rest is left alone"));
        }
        let records = ebof_attach::list().unwrap_or_default();
        for (path, fate) in found {
            self.note(path, fate, &own.fabric, &records);
        }
        self.hold_referred(refers)?;
        self.drop_unreferred();
        self.let_go();
        if let Some(tell) = first_log {
            tell(Ok(view));
        }
        self.set_retry();
        Ok(())
    }

    /// What is left alone now; what is wrong with it is told if it is news.
    fn read_rules(&mut self) -> Rules {
        let (rules, wrong) = Rules::read(&self.places);
        let text = text_of(&wrong);
        if self.wrong != text {
            wrong.tell();
            self.wrong = text;
        }
        rules
    }

    /// Notes what became of a path, and tells it where it is news.
    fn note(&mut self, path: Path, fate: Fate, service: &FabricArgs, records: &[Record]) {
        if self.fates.get(&path) == Some(&fate) {
            return;
        }
        let (_, nqn, ..) = &path;
        let at = address_of(&path);
        let nqn = safe(nqn);
        let goes = service.goes_when_vanished();
        match &fate {
            Fate::Connected { name, path: added } => {
                self.own.add_connected(&path.1, (name, added.as_deref()), goes, records);
                let device = added.as_ref().unwrap_or(name);
                self.tell(
                    "connected",
                    &[("nqn", &nqn), ("address", &at), ("device", device)],
                    &format!("connected {device}: {nqn} at {at}"),
                );
            }
            Fate::There(name) => {
                self.own.add_of_owner(&path.1, name, service.owner.as_deref(), goes, records);
                self.tell(
                    "there",
                    &[("nqn", &nqn), ("address", &at), ("device", name)],
                    &format!("{nqn} at {at}: connected already as {name}"),
                );
            }
            Fate::LeftAlone => {
                self.tell("left-alone", &[("nqn", &nqn), ("address", &at)], &format!("{nqn} at {at} is left alone"));
            }
            Fate::Failed(reason) => {
                self.tell(
                    "failed",
                    &[("nqn", &nqn), ("address", &at), ("reason", reason)],
                    &format!("{nqn} at {at}: failed: {reason}"),
                );
            }
        }
        self.fates.insert(path, fate);
    }

    /// Lets go of what no service lists any more. As long as there is a log with more records than
    /// are read, it is not known what has vanished.
    fn let_go(&mut self) {
        let is_known = self.services.values().all(FollowedService::is_whole);
        let is_listed = |path: &Path| self.services.values().any(|service| service.listed.contains(path));
        let vanished: Vec<Path> = self.fates.keys().filter(|path| !is_listed(path)).cloned().collect();
        for path in vanished {
            self.fates.remove(&path);
            if is_known {
                let (nqn, at) = (safe(&path.1), address_of(&path));
                let text = format!("{nqn} at {at} is not listed any more");
                self.tell("vanished", &[("nqn", &nqn), ("address", &at)], &text);
            }
        }
        if is_known && self.own.may_go() {
            self.disconnect_unlisted();
        }
    }

    /// Disconnects what was connected here, is to go, and is listed by no service any more.
    fn disconnect_unlisted(&mut self) {
        // Without them it is not known whose the names are.
        let Ok(records) = ebof_attach::list() else { return };
        let listed = self.services.values().flat_map(|service| &service.listed).map(|(_, nqn, ..)| nqn.as_str());
        for (nqn, name) in self.own.take_unlisted(&listed.collect(), &records) {
            let shown = safe(&nqn);
            match ebof_attach::disconnect(&Select::Device(name.clone()), false) {
                Ok(report) if report.failed.is_empty() => {
                    let text = format!("disconnected {name}: {shown}");
                    self.tell("disconnected", &[("nqn", &shown), ("device", &name)], &text);
                }
                Ok(report) => {
                    for (name, error) in report.failed {
                        self.stays(&shown, &name, &error);
                    }
                }
                Err(error) => self.stays(&shown, &name, &error),
            }
        }
    }

    fn stays(&self, nqn: &str, name: &str, error: &ebof_attach::Error) {
        let reason = error.to_string();
        let reason = reason.lines().next().unwrap_or_default();
        self.tell(
            "stays",
            &[("nqn", nqn), ("device", name), ("reason", reason)],
            &format!("{name} stays connected: {reason}"),
        );
    }

    /// Holds services that others refer to, each once.
    fn hold_referred(&mut self, refers: Vec<DiscoveryService>) -> anyhow::Result<()> {
        for service in refers {
            if self.services.values().any(|other| other.held.service.fabric.is_place_of(&service.fabric)) {
                continue;
            }
            let referred = self.services.values().filter(|service| !service.is_named).count();
            if referred >= REFERRALS_MAX {
                if !std::mem::replace(&mut self.has_told_too_many, true) {
                    say(&format!(
                        "more than {REFERRALS_MAX} discovery services are referred to: the rest is not asked"
                    ));
                }
                return Ok(());
            }
            let name = name_of(&service.fabric);
            self.tell("service-added", &[("service", &name)], &format!("{name} is referred to"));
            self.hold(HeldService { service, front: Kind::default(), first_log: None }, false)?;
        }
        Ok(())
    }

    /// Lets go of services that no other refers to any more, also those that only refer to each
    /// other.
    fn drop_unreferred(&mut self) {
        // The records that are not read may refer to them.
        if !self.services.values().all(FollowedService::is_whole) {
            return;
        }
        let mut reached: HashSet<usize> =
            self.services.iter().filter(|(_, service)| service.is_named).map(|(id, _)| *id).collect();
        loop {
            let refers: Vec<&FabricArgs> = reached.iter().flat_map(|id| &self.services[id].refers).collect();
            let is_new = |(id, service): &(&usize, &FollowedService)| {
                !reached.contains(id) && refers.iter().any(|fabric| fabric.is_place_of(&service.held.service.fabric))
            };
            let new: Vec<usize> = self.services.iter().filter(is_new).map(|(id, _)| *id).collect();
            if new.is_empty() {
                break;
            }
            reached.extend(new);
        }
        let gone: Vec<usize> = self.services.keys().filter(|id| !reached.contains(id)).copied().collect();
        for id in gone {
            let Some(service) = self.services.remove(&id) else { continue };
            let name = name_of(&service.held.service.fabric);
            self.tell("service-removed", &[("service", &name)], &format!("{name} is not referred to any more"));
        }
    }

    /// Forgets what is not connected any more. Controllers that were given up are connected again
    /// where they are listed.
    fn forget_ended(&mut self) {
        let Ok(records) = ebof_attach::list() else { return };
        self.own.forget_ended(&records);
        let given_up: HashSet<&str> =
            records.iter().filter(|record| record.given_up().is_some()).map(|record| record.name.as_str()).collect();
        self.fates.retain(|_, fate| match fate {
            Fate::Connected { name, .. } | Fate::There(name) => !given_up.contains(name.as_str()),
            Fate::LeftAlone | Fate::Failed(_) => true,
        });
    }

    fn set_retry(&mut self) {
        self.retry = self.has_failed().then(|| self.retry.unwrap_or_else(|| (Instant::now() + RETRY.0, RETRY.0)));
    }

    fn has_failed(&self) -> bool {
        self.fates.values().any(|fate| matches!(fate, Fate::Failed(_)))
    }

    /// Tries paths that failed again.
    fn try_again(&mut self) -> anyhow::Result<()> {
        let delay = self.retry.map_or(RETRY.0, |(_, delay)| (delay * 2).min(RETRY.1));
        let failed = self.fates.iter().filter(|(_, fate)| matches!(fate, Fate::Failed(_)));
        let failed: Vec<Path> = failed.map(|(path, _)| path.clone()).collect();
        let has_failed = |service: &FollowedService| failed.iter().any(|path| service.listed.contains(path));
        let ids: Vec<usize> =
            self.services.iter().filter(|(_, service)| has_failed(service)).map(|(id, _)| *id).collect();
        for id in ids {
            self.follow(id, true)?;
        }
        // After that: each attempt may take as long as its time-out.
        self.retry = self.has_failed().then(|| (Instant::now() + delay, delay));
        Ok(())
    }

    fn tell(&self, change: &str, details: &[(&'static str, &str)], text: &str) {
        self.changes.tell(change, details, text);
    }
}

/// What is wrong with files.
fn text_of(wrong: &Wrong) -> String {
    wrong.0.iter().map(failure::text).collect()
}

fn name_of(service: &FabricArgs) -> String {
    let traddr = safe(service.traddr.as_deref().unwrap_or_default());
    match service.trsvcid {
        Some(port) => format!("the discovery service at {traddr} port {port}"),
        None => format!("the discovery service at {traddr}"),
    }
}

fn address_of((transport, _, traddr, port): &Path) -> String {
    let traddr = safe(traddr);
    let host = if traddr.contains(':') { format!("[{traddr}]") } else { traddr };
    format!("{}://{host}:{port}", transport.name())
}

#[cfg(test)]
mod tests;
