//! Discovery services whose connections stay: `connect-all --persistent`, and entries of the file
//! of connections. What a service lists is connected, also later, when an event of the service says
//! that its log has changed; what vanishes may be disconnected.
//!
//! A thread for each service reads its logs ([`watch`]); this file decides what follows from them.

mod watch;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use ebof_attach::{Kind, Select};
use ebof_initiator::DiscoveryLog;
use ebof_nvme::log::SubsystemType;
use signal_hook::consts::{SIGINT, SIGTERM};

use self::watch::{Heard, ServiceWatch};
use super::everything::{Everything, Fate, Path, REFERRALS_MAX};
use super::fabric::{FabricArgs, same_host};
use super::record::place_of;
use super::services::{DiscoveryService, Places, Rules, tell_of_not_offered};
use crate::failure;
use crate::global::{Global, OutputFormat};
use crate::output::connections::ConnectAllView;
use crate::output::json::Object;
use crate::output::text::safe;
use crate::output::{print, say};

/// How long the main thread waits for news before it looks whether it is to end.
const TICK: Duration = Duration::from_millis(200);

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
    places: Places,
    services: HashMap<usize, Service>,
    next: usize,
    /// What became of each path that is listed.
    fates: HashMap<Path, Fate>,
    /// The controllers that were connected here, by subsystem, and whether they go with it.
    made: HashMap<String, Made>,
    /// When failed paths are tried again, and the time after that.
    retry: Option<(Instant, Duration)>,
    sender: Sender<(usize, Heard)>,
    receiver: Receiver<(usize, Heard)>,
    has_told_too_many: bool,
}

/// A service, and what its last log has.
struct Service {
    held: HeldService,
    /// Whether somebody has named it, and no other service.
    is_named: bool,
    stop: Arc<AtomicBool>,
    log: Option<DiscoveryLog>,
    /// The paths to subsystems in it.
    listed: HashSet<Path>,
    /// The services that it refers to.
    refers: Vec<FabricArgs>,
}

#[derive(Default)]
struct Made {
    names: BTreeSet<String>,
    /// Whether they are disconnected when no service lists the subsystem any more.
    goes: bool,
}

impl Persistent {
    pub(super) fn new(global: &Global) -> Self {
        let (sender, receiver) = channel();
        Self {
            global: global.clone(),
            places: Places::default(),
            services: HashMap::new(),
            next: 0,
            fates: HashMap::new(),
            made: HashMap::new(),
            retry: None,
            sender,
            receiver,
            has_told_too_many: false,
        }
    }

    /// Holds services until a signal ends this process.
    ///
    /// # Errors
    /// A thread or the handler of a signal cannot be made.
    pub(super) fn run(mut self, held: Vec<HeldService>) -> anyhow::Result<ExitCode> {
        let end = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&end)).context("catching signals")?;
        }
        let (rules, _) = Rules::read(&self.places);
        for held in held {
            let named = held.service.place.as_ref();
            match named.and_then(|place| Some((place.clone(), rules.excluded_service(&held.service.fabric)?))) {
                None => self.hold(held, true)?,
                Some((place, reason)) => self.leave_alone(held, &format!("{reason}, which {place} names")),
            }
        }
        while !end.load(Relaxed) {
            let wait = self.retry.map_or(TICK, |(at, _)| at.saturating_duration_since(Instant::now()).min(TICK));
            match self.receiver.recv_timeout(wait) {
                Ok((id, heard)) => self.hear(id, heard)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.retry.is_some_and(|(at, _)| at <= Instant::now()) {
                self.try_again()?;
            }
        }
        for service in self.services.values() {
            service.stop.store(true, Relaxed);
        }
        Ok(ExitCode::SUCCESS)
    }

    /// A service that a file names, and an exclusion, too.
    fn leave_alone(&self, held: HeldService, reason: &str) {
        let name = name_of(&held.service.fabric);
        self.tell("left-alone", &[("service", &name), ("reason", reason)], &format!("{name}: {reason}"));
        if let Some(tell) = held.first_log {
            tell(Ok(ConnectAllView { skipped: vec![(name, reason.to_owned())], ..ConnectAllView::default() }));
        }
    }

    fn hold(&mut self, held: HeldService, is_named: bool) -> anyhow::Result<()> {
        let id = self.next;
        self.next += 1;
        let stop = Arc::new(AtomicBool::new(false));
        let watch = ServiceWatch::new(&held.service.fabric, &self.global, Arc::clone(&stop));
        let sender = self.sender.clone();
        let thread = std::thread::Builder::new().name("ebof-discovery".to_owned());
        thread
            .spawn(move || watch.run(|heard| sender.send((id, heard)).is_ok()))
            .context("starting a thread for a discovery service")?;
        let service = Service { held, is_named, stop, log: None, listed: HashSet::new(), refers: Vec::new() };
        self.services.insert(id, service);
        Ok(())
    }

    fn hear(&mut self, id: usize, heard: Heard) -> anyhow::Result<()> {
        let Some(service) = self.services.get_mut(&id) else { return Ok(()) };
        let name = name_of(&service.held.service.fabric);
        match heard {
            Heard::Log(log) => {
                tell_of_not_offered(&service.held.service.fabric, log.not_offered);
                service.log = Some(log);
                self.follow(id)
            }
            Heard::Lost(reason) => {
                self.tell(
                    "service-lost",
                    &[("service", &name), ("reason", &reason)],
                    &format!("{name}: {reason}: reconnecting"),
                );
                Ok(())
            }
            Heard::Back => {
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
                Ok(())
            }
        }
    }

    /// Connects what the last log of a service lists, holds what it refers to, and lets go of what
    /// has vanished from it.
    fn follow(&mut self, id: usize) -> anyhow::Result<()> {
        self.forget_given_up();
        let Some(service) = self.services.get_mut(&id) else { return Ok(()) };
        let Some(log) = service.log.clone() else { return Ok(()) };
        let own = service.held.service.clone();
        let (rules, wrong) = Rules::read(&self.places);
        wrong.tell();
        let mut run = Everything::new(service.held.front, rules, &self.global);
        run.know(self.fates.iter().filter(|(_, fate)| matches!(fate, Fate::Connected(_) | Fate::There(_))));
        let refers = run.follow_logs(&[(own.clone(), log.clone())]);
        let listed: HashSet<Path> = log
            .entries
            .iter()
            .filter(|entry| entry.subsystem_type() == SubsystemType::NVM)
            .filter_map(|entry| place_of(entry, &own.fabric))
            .map(|(transport, nqn, traddr, port)| (transport, nqn.to_string(), same_host(&traddr), port))
            .collect();
        let before = std::mem::replace(&mut service.listed, listed.clone());
        service.refers = refers.iter().map(|service| service.fabric.clone()).collect();
        let first_log = service.held.first_log.take();
        let goes = own.fabric.goes_when_vanished();
        let is_over = log.left_out > 0;
        let found: Vec<(Path, Fate)> = run
            .outcomes()
            .iter()
            .filter(|(path, _)| listed.contains(*path))
            .map(|(path, fate)| (path.clone(), fate.clone()))
            .collect();
        let view = run.into_view();
        for (path, fate) in found {
            self.note(path, fate, &own.fabric, goes);
        }
        // Of a log with more records than are read it is not known what has vanished.
        let vanished: Vec<Path> = if is_over { Vec::new() } else { before.difference(&listed).cloned().collect() };
        self.let_go(vanished);
        self.hold_referred(refers)?;
        self.drop_unreferred();
        if let Some(tell) = first_log {
            tell(Ok(view));
        }
        self.set_retry();
        Ok(())
    }

    /// Notes what became of a path, and tells it where it is news.
    fn note(&mut self, path: Path, fate: Fate, service: &FabricArgs, goes: bool) {
        if self.fates.get(&path) == Some(&fate) {
            return;
        }
        let (_, nqn, ..) = &path;
        let at = address_of(&path);
        let nqn = safe(nqn);
        match &fate {
            Fate::Connected(name) => {
                self.made(&path.1, name, goes);
                self.tell(
                    "connected",
                    &[("nqn", &nqn), ("address", &at), ("device", name)],
                    &format!("connected {name}: {nqn} at {at}"),
                );
            }
            Fate::There(name) => {
                if is_of_owner(name, service.owner.as_deref()) {
                    self.made(&path.1, name, goes);
                }
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

    fn made(&mut self, nqn: &str, name: &str, goes: bool) {
        let made = self.made.entry(nqn.to_owned()).or_default();
        made.names.insert(name.to_owned());
        made.goes |= goes;
    }

    /// Paths that one service does not list any more.
    fn let_go(&mut self, vanished: Vec<Path>) {
        let mut subsystems = BTreeSet::new();
        for path in vanished {
            if self.services.values().any(|service| service.listed.contains(&path)) {
                continue;
            }
            self.fates.remove(&path);
            let (nqn, at) = (safe(&path.1), address_of(&path));
            self.tell("vanished", &[("nqn", &nqn), ("address", &at)], &format!("{nqn} at {at} is not listed any more"));
            subsystems.insert(path.1);
        }
        for nqn in subsystems {
            let is_listed = |service: &Service| service.listed.iter().any(|(_, other, ..)| *other == nqn);
            if !self.services.values().any(is_listed) {
                self.disconnect(&nqn);
            }
        }
    }

    /// Disconnects a subsystem that no service lists any more, if it is to go, and was connected
    /// here.
    fn disconnect(&mut self, nqn: &str) {
        let Some(made) = self.made.remove(nqn).filter(|made| made.goes) else { return };
        let shown = safe(nqn);
        for name in made.names {
            // The name may be another's by now.
            let is_its =
                |record: &ebof_attach::state::Record| record.request().is_some_and(|request| request.nqn == nqn);
            if !record_of(&name).as_ref().is_some_and(is_its) {
                continue;
            }
            match ebof_attach::disconnect(&Select::Device(name.clone()), false) {
                Ok(report) if report.failed.is_empty() => {
                    self.tell(
                        "disconnected",
                        &[("nqn", &shown), ("device", &name)],
                        &format!("disconnected {name}: {shown}"),
                    );
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
        let mut reached: HashSet<usize> =
            self.services.iter().filter(|(_, service)| service.is_named).map(|(id, _)| *id).collect();
        loop {
            let refers: Vec<&FabricArgs> = reached.iter().flat_map(|id| &self.services[id].refers).collect();
            let is_new = |(id, service): &(&usize, &Service)| {
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
            service.stop.store(true, Relaxed);
            let name = name_of(&service.held.service.fabric);
            self.tell("service-removed", &[("service", &name)], &format!("{name} is not referred to any more"));
            self.let_go(service.listed.into_iter().collect());
        }
    }

    /// Controllers that were given up are connected again where they are listed.
    fn forget_given_up(&mut self) {
        let records = ebof_attach::list().unwrap_or_default();
        let given_up = |name: &String| records.iter().any(|record| record.name == *name && record.given_up().is_some());
        self.fates.retain(|_, fate| match fate {
            Fate::Connected(name) | Fate::There(name) => !given_up(name),
            Fate::LeftAlone | Fate::Failed(_) => true,
        });
    }

    fn set_retry(&mut self) {
        let has_failed = self.fates.values().any(|fate| matches!(fate, Fate::Failed(_)));
        self.retry = match self.retry {
            _ if !has_failed => None,
            Some(retry) => Some(retry),
            None => Some((Instant::now() + RETRY.0, RETRY.0)),
        };
    }

    /// Tries paths that failed again.
    fn try_again(&mut self) -> anyhow::Result<()> {
        let delay = self.retry.map_or(RETRY.0, |(_, delay)| (delay * 2).min(RETRY.1));
        self.retry = Some((Instant::now() + delay, delay));
        let failed: Vec<Path> = self
            .fates
            .iter()
            .filter(|(_, fate)| matches!(fate, Fate::Failed(_)))
            .map(|(path, _)| path.clone())
            .collect();
        let has_failed = |service: &Service| failed.iter().any(|path| service.listed.contains(path));
        let ids: Vec<usize> =
            self.services.iter().filter(|(_, service)| has_failed(service)).map(|(id, _)| *id).collect();
        for id in ids {
            self.follow(id)?;
        }
        Ok(())
    }

    /// Tells a change: a line of text, or a JSON document on a line.
    fn tell(&self, change: &str, details: &[(&'static str, &str)], text: &str) {
        if self.global.format == OutputFormat::Json {
            let mut object = Object::document("discovery-change", 1).with("change", change);
            for (key, value) in details {
                object.push(*key, *value);
            }
            print_line(&serde_json::to_string(&object).unwrap_or_default());
        } else {
            print_line(text);
        }
    }
}

/// A line for programs and people that follow what happens.
fn print_line(line: &str) {
    // A reader that has gone away does not keep a machine from its disks.
    let _unheard = print(format!("{line}\n").as_bytes());
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

fn record_of(name: &str) -> Option<ebof_attach::state::Record> {
    let records = ebof_attach::list().unwrap_or_default();
    records.into_iter().find(|record| record.name == name && record.live)
}

/// Whether a controller was connected by this owner, before this process was started.
fn is_of_owner(name: &str, owner: Option<&str>) -> bool {
    let is_its = |owner: &str| record_of(name)?.request().map(|request| request.owner.as_deref() == Some(owner));
    owner.and_then(is_its).unwrap_or(false)
}
