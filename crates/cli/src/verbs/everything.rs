//! Connecting everything that discovery services list, and what files name beside them: each path
//! once. What is listed is not trusted: it may be long, repeat itself and lead in circles.

use std::collections::HashMap;
use std::time::Duration;

use ebof_attach::Kind;
use ebof_initiator::{DiscoveryLog, Options};
use ebof_nvme::Nqn;
use ebof_nvme::log::{DiscoveryEntry, SubsystemType};
use ebof_nvme::uri::Transport;

use super::fabric::{FabricArgs, IO_PORT, same_host, set_timeout};
use super::reach::{self, Place};
use super::record::{lacks_tls, no_tls, place_of};
use super::services::{DiscoveryService, NamedSubsystem, OwnPorts, Rules, ask_all, warn_of_plain_services};
use crate::failure::{self, Failure};
use crate::global::Global;
use crate::output::attached::ConnectView;
use crate::output::connections::ConnectAllView;
use crate::output::say;
use crate::output::text::safe;

/// Maximum number of discovery services that are found by referrals.
pub(super) const REFERRALS_MAX: usize = 64;

/// Maximum number of connections that are tried: each may time out.
pub(super) const CONNECTS_MAX: usize = 4096;

/// Number of records from which progress is reported.
const PROGRESS_FROM: usize = 8;

/// A path: transport, subsystem, address, port.
pub(super) type Path = (Transport, String, String, u16);

/// What became of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It was connected, as this controller, or as this path of one that was there.
    Connected { name: String, path: Option<String> },
    /// It, or its namespaces, were connected before, as this controller.
    There(String),
    /// It is not to be connected.
    LeftAlone,
    /// With the reason, in a line.
    Failed(String),
}

/// Connects everything that discovery services list.
#[derive(Default)]
pub(super) struct Everything {
    front: Kind,
    rules: Rules,
    view: ConnectAllView,
    /// What became of the paths that were listed.
    outcomes: HashMap<Path, Fate>,
    /// Named services that did not answer.
    silent: Vec<(FabricArgs, anyhow::Error)>,
    /// The ports of those that did.
    ports: OwnPorts,
    /// The connected subsystems, with the names of their controllers.
    connected: HashMap<String, String>,
    /// Addresses that do not answer, which are not tried again: each costs a time-out. With the
    /// error, until it was told.
    dead: HashMap<Place, Option<anyhow::Error>>,
    /// How long an address may take to answer, if that was said.
    timeout: Option<Duration>,
    /// Connections that were tried.
    tried: usize,
    /// Records that were left out because there were too many.
    left_out: usize,
    /// Whether a circle of referrals was told.
    has_told_circle: bool,
    /// Whether it is the log of a service that is held, which is followed again and again.
    is_held: bool,
    /// What is said of services that are referred to and not asked, if it is.
    unasked: Vec<String>,
}

impl Everything {
    pub(super) fn new(front: Kind, rules: Rules, global: &Global) -> Self {
        Self { front, rules, timeout: global.timeout(), ..Self::default() }
    }

    /// For the log of a service that is held, by a process that has connected so many already. The
    /// services that it refers to are not looked at here, and progress is not told.
    pub(super) fn for_held(self, connected: usize) -> Self {
        Self { tried: connected, is_held: true, ..self }
    }

    /// What is said of services that are referred to and not asked.
    pub(super) fn unasked(&mut self) -> Vec<String> {
        std::mem::take(&mut self.unasked)
    }

    /// How many records were left alone because there are too many.
    pub(super) fn left_out(&self) -> usize {
        self.left_out
    }

    /// Takes paths as known: they are left as they are.
    pub(super) fn know<'a>(&mut self, fates: impl Iterator<Item = (&'a Path, &'a Fate)>) {
        self.outcomes.extend(fates.map(|(path, fate)| (path.clone(), fate.clone())));
    }

    /// What became of the paths.
    pub(super) fn outcomes(&self) -> &HashMap<Path, Fate> {
        &self.outcomes
    }

    /// What came of it. A port that failed is no failure of a subsystem that is connected through
    /// another one.
    pub(super) fn into_view(self) -> ConnectAllView {
        let Self { mut view, connected, silent, ports, left_out, .. } = self;
        for (nqn, error) in std::mem::take(&mut view.failed) {
            match connected.get(&nqn) {
                Some(name) => {
                    let text = failure::text(&error);
                    let reason = text.lines().next().unwrap_or_default();
                    view.skipped.push((nqn, format!("connected as {name}; another port failed: {reason}")));
                }
                None => view.failed.push((nqn, error)),
            }
        }
        for (service, error) in silent {
            let traddr = service.traddr.clone().unwrap_or_default();
            if ports.has(&service) {
                let text = failure::text(&error);
                let reason = text.lines().next().unwrap_or_default();
                view.skipped.push((traddr, format!("the service answered at another of its ports; {reason}")));
            } else {
                view.failed.push((traddr, error));
            }
        }
        if left_out > 0 {
            let message = format!("{CONNECTS_MAX} connections were tried, and {left_out} more records are left alone");
            let failure = Failure::new("too-many", message, "connect some of the subsystems with `ebof connect`");
            view.failed.push(("-".to_owned(), failure.into()));
        }
        view
    }

    /// Asks discovery services side by side, and then those that they refer to; what they list is
    /// connected in their order, after `subsystems`.
    ///
    /// # Errors
    /// The only one does not answer.
    pub(super) fn follow_services(
        &mut self,
        services: Vec<DiscoveryService>,
        subsystems: &[NamedSubsystem],
        global: &Global,
    ) -> anyhow::Result<()> {
        warn_of_plain_services(&services);
        self.connect_named(subsystems);
        let is_only = services.len() == 1 && subsystems.is_empty();
        let services = self.without_excluded(services);
        let mut asked: Vec<FabricArgs> = services.iter().map(|service| service.fabric.clone()).collect();
        let mut referrals = 0;
        let mut refers = self.follow_round(services, global, |run, service, error| {
            // A service that the user names must answer; a referral may be stale.
            if is_only {
                return Err(error);
            }
            run.silent.push((service, error));
            Ok(())
        })?;
        while !refers.is_empty() {
            let mut round = Vec::new();
            for service in refers {
                if self.is_circle(&asked, &service.fabric) {
                    continue;
                }
                if referrals == REFERRALS_MAX {
                    say(&format!(
                        "more than {REFERRALS_MAX} discovery services are referred to: the rest is not asked"
                    ));
                    break;
                }
                referrals += 1;
                asked.push(service.fabric.clone());
                match self.is_dead(&service.fabric) {
                    Some(error) => say(&failure::text(&error)),
                    None => round.push(service),
                }
            }
            refers = self.follow_round(round, global, |_, _, error| {
                say(&format!("{error}"));
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Whether a service was asked already, which is told once: services that refer to each other
    /// are usual.
    fn is_circle(&mut self, asked: &[FabricArgs], service: &FabricArgs) -> bool {
        let is_asked = asked.iter().any(|other| other.is_place_of(service)) || self.ports.has(service);
        if is_asked && !std::mem::replace(&mut self.has_told_circle, true) {
            let traddr = safe(service.traddr.as_deref().unwrap_or_default());
            let port = service.trsvcid.unwrap_or_default();
            say(&format!(
                "referrals lead back to {traddr} port {port}, which was asked already: each service is asked once"
            ));
        }
        is_asked
    }

    /// Those of services that files name which no exclusion names.
    pub(super) fn without_excluded(&mut self, services: Vec<DiscoveryService>) -> Vec<DiscoveryService> {
        let mut asked = Vec::new();
        for service in services {
            let Some(place) = service.place.clone() else {
                asked.push(service);
                continue;
            };
            match self.rules.allowed(&service.fabric) {
                Ok(fabric) => asked.push(DiscoveryService { fabric, ..service }),
                Err(reason) => {
                    let traddr = service.fabric.traddr.unwrap_or_default();
                    self.view.skipped.push((traddr, format!("{reason}, which {place} names")));
                }
            }
        }
        asked
    }

    /// Connects subsystems that files name.
    fn connect_named(&mut self, subsystems: &[NamedSubsystem]) {
        let mut wanted = Vec::new();
        for NamedSubsystem { fabric, place } in subsystems {
            let transport = Transport::from_name(&fabric.transport);
            if let (Some(transport), Some(nqn), Some(traddr)) = (transport, &fabric.nqn, &fabric.traddr) {
                wanted.push((transport, nqn, traddr, fabric.trsvcid.unwrap_or(IO_PORT), fabric, place));
            }
        }
        self.probe(wanted.iter().map(|(transport, nqn, traddr, port, fabric, _)| {
            ((*transport, (*traddr).clone(), *port), fabric.options(traddr, *port, (*nqn).clone()))
        }));
        for (_, nqn, traddr, port, fabric, place) in wanted {
            self.connect(fabric, nqn, traddr, port, Some(place));
        }
    }

    /// Asks some services, and connects what they list; those that they refer to.
    fn follow_round(
        &mut self,
        services: Vec<DiscoveryService>,
        global: &Global,
        failed: impl Fn(&mut Self, FabricArgs, anyhow::Error) -> anyhow::Result<()>,
    ) -> anyhow::Result<Vec<DiscoveryService>> {
        let answers = ask_all(&services, global);
        let mut logs = Vec::new();
        for (service, answer) in services.into_iter().zip(answers) {
            match answer {
                Ok(log) => logs.push((service, log)),
                Err(error) => failed(self, service.fabric, error)?,
            }
        }
        Ok(self.follow_logs(&logs))
    }

    /// Connects what logs list; the services that they refer to.
    pub(super) fn follow_logs(&mut self, logs: &[(DiscoveryService, DiscoveryLog)]) -> Vec<DiscoveryService> {
        for (service, log) in logs {
            self.ports.add(&log.entries);
            if log.left_out > 0 {
                let traddr = service.fabric.traddr.clone().unwrap_or_default();
                self.view.failed.push((traddr, left_out(log.entries.len(), log.left_out).into()));
            }
        }
        self.look_at_logs(logs);
        let mut refers = Vec::new();
        for (service, log) in logs {
            self.follow_all(service, &log.entries, &mut refers);
        }
        refers
    }

    /// The error of a service that does not answer.
    fn is_dead(&mut self, service: &FabricArgs) -> Option<anyhow::Error> {
        let (Some(transport), Some(traddr), Some(port)) =
            (Transport::from_name(&service.transport), &service.traddr, service.trsvcid)
        else {
            return None;
        };
        self.dead_at(&(transport, traddr.clone(), port))
    }

    /// The error of an address that does not answer; a short one if it was told already.
    fn dead_at(&mut self, place: &Place) -> Option<anyhow::Error> {
        let error = self.dead.get_mut(place)?.take();
        let (_, traddr, port) = place;
        Some(
            error.unwrap_or_else(|| {
                anyhow::anyhow!("{traddr} port {port} did not answer a moment ago: not tried again")
            }),
        )
    }

    fn look_at_logs(&mut self, logs: &[(DiscoveryService, DiscoveryLog)]) {
        let mut wanted = Vec::new();
        let records = logs.iter().flat_map(|(service, log)| log.entries.iter().map(move |entry| (service, entry)));
        for (service, entry) in records {
            let options = match entry.subsystem_type() {
                SubsystemType::NVM => service.of_listed(),
                SubsystemType::REFERRAL if !self.is_held => &service.fabric,
                _ => continue,
            };
            let Some((transport, nqn, traddr, trsvcid)) = place_of(entry, &service.fabric) else { continue };
            let options = options.over(transport);
            let is_known = self.outcomes.contains_key(&(transport, nqn.to_string(), same_host(&traddr), trsvcid));
            let is_left = || self.rules.against(&options, &traddr, trsvcid, &nqn).is_some();
            if is_known || lacks_tls(&options, entry).is_some() || is_left() {
                continue;
            }
            let options = options.options(&traddr, trsvcid, nqn);
            wanted.push(((transport, traddr, trsvcid), options));
        }
        self.probe(wanted.into_iter());
    }

    /// Asks addresses side by side whether anything is there, if there are several.
    fn probe(&mut self, wanted: impl Iterator<Item = (Place, Options)>) {
        let mut asked: HashMap<Place, Options> = HashMap::new();
        for (place, mut options) in wanted {
            if self.dead.contains_key(&place) || asked.len() >= CONNECTS_MAX {
                continue;
            }
            set_timeout(&mut options, self.timeout);
            asked.entry(place).or_insert(options);
        }
        if asked.len() > 1 {
            let dead = reach::dead(&asked.into_iter().collect::<Vec<_>>());
            self.dead.extend(dead.into_iter().map(|(place, error)| (place, Some(error.into()))));
        }
    }

    fn follow_all(
        &mut self,
        service: &DiscoveryService,
        entries: &[DiscoveryEntry],
        waiting: &mut Vec<DiscoveryService>,
    ) {
        for (number, entry) in (1..).zip(entries) {
            self.follow(service, entry, number, entries.len(), waiting);
        }
    }

    /// Connects or queues record `number` of `count`.
    fn follow(
        &mut self,
        service: &DiscoveryService,
        entry: &DiscoveryEntry,
        number: usize,
        count: usize,
        waiting: &mut Vec<DiscoveryService>,
    ) {
        let Some((transport, nqn, traddr, trsvcid)) = place_of(entry, &service.fabric) else {
            let nqn = entry.subsystem_nqn();
            let transport = entry.transport().name();
            self.view.skipped.push((nqn.to_string(), format!("its {transport} address cannot be used")));
            return;
        };
        match entry.subsystem_type() {
            SubsystemType::NVM => {
                let path = (transport, nqn.to_string(), same_host(&traddr), trsvcid);
                // Services that others refer to are followed all the same.
                if self.tried >= CONNECTS_MAX && !self.outcomes.contains_key(&path) {
                    self.left_out += 1;
                    return;
                }
                let fabric = &service.of_listed().over(transport);
                if count > PROGRESS_FROM && !self.is_held {
                    say(&format!("record {number} of {count}: {} at {}:{trsvcid}", safe(nqn.as_str()), safe(&traddr)));
                }
                match lacks_tls(fabric, entry) {
                    Some(security) => {
                        let error = no_tls(security, trsvcid).into();
                        if self.outcomes.insert(path, failed(&error)).is_none() {
                            self.view.failed.push((nqn.to_string(), error));
                        }
                    }
                    None => self.connect(fabric, &nqn, &traddr, trsvcid, None),
                }
            }
            SubsystemType::REFERRAL => {
                let path = (transport, nqn.to_string(), same_host(&traddr), trsvcid);
                if self.outcomes.insert(path, Fate::LeftAlone).is_some() {
                    return;
                }
                match self.referral(service, entry, transport, nqn, traddr, trsvcid) {
                    Ok(service) => waiting.push(service),
                    Err(reason) if self.is_held => self.unasked.push(reason),
                    Err(reason) => say(&reason),
                }
            }
            _ => {}
        }
    }

    /// The service that a record refers to, or why it is not asked.
    fn referral(
        &self,
        service: &DiscoveryService,
        entry: &DiscoveryEntry,
        transport: Transport,
        nqn: Nqn,
        traddr: String,
        trsvcid: u16,
    ) -> Result<DiscoveryService, String> {
        let fabric = service.fabric.over(transport);
        // Without TLS such a port would only end the connection.
        if let Some(security) = lacks_tls(&fabric, entry) {
            let failure = no_tls(security, trsvcid);
            return Err(format!("the discovery service at {} is not asked: {failure}", safe(&traddr)));
        }
        // A service with a name of its own is one of several at its address.
        let nqn = Some(nqn).filter(|nqn| !nqn.is_discovery());
        let fabric = FabricArgs { traddr: Some(traddr), trsvcid: Some(trsvcid), nqn, ..fabric };
        self.rules.allowed(&fabric).map_err(|reason| {
            let traddr = safe(fabric.traddr.as_deref().unwrap_or_default());
            format!("the discovery service at {traddr} port {trsvcid} is {reason}")
        })?;
        Ok(DiscoveryService { fabric, listed: service.listed.clone(), place: None })
    }

    /// Connects a path, which a file may name.
    fn connect(&mut self, fabric: &FabricArgs, nqn: &Nqn, traddr: &str, trsvcid: u16, named: Option<&str>) {
        let transport = Transport::from_name(&fabric.transport).unwrap_or(Transport::Tcp);
        let path = (transport, nqn.to_string(), same_host(traddr), trsvcid);
        if self.outcomes.contains_key(&path) {
            return;
        }
        let outcome = match self.rules.against(fabric, traddr, trsvcid, nqn) {
            Some(reason) => {
                let reason = named.map_or_else(|| reason.clone(), |place| format!("{reason}, which {place} names"));
                self.view.skipped.push((nqn.to_string(), reason));
                Fate::LeftAlone
            }
            None => self.try_path(fabric, nqn, traddr, trsvcid, transport),
        };
        self.outcomes.insert(path, outcome);
    }

    fn try_path(&mut self, fabric: &FabricArgs, nqn: &Nqn, traddr: &str, trsvcid: u16, transport: Transport) -> Fate {
        let place = (transport, traddr.to_owned(), trsvcid);
        if let Some(error) = self.dead_at(&place) {
            let fate = failed(&error);
            self.view.failed.push((nqn.to_string(), error));
            return fate;
        }
        self.tried += 1;
        let request = fabric.request(traddr, trsvcid, nqn.as_str(), self.front);
        match ebof_attach::connect(&request) {
            Ok(attached) => {
                let (name, path) = (attached.name.clone(), attached.path.clone());
                self.connected.insert(nqn.to_string(), name.clone());
                self.view.connected.push(ConnectView { nqn: nqn.to_string(), attached });
                Fate::Connected { name, path }
            }
            Err(ebof_attach::Error::AlreadyConnected(existing)) => {
                let reason = format!("already connected as {} at {}", existing.name, existing.address);
                self.connected.insert(nqn.to_string(), existing.name.clone());
                self.view.skipped.push((nqn.to_string(), reason));
                Fate::There(existing.name)
            }
            Err(error) => {
                if let ebof_attach::Error::Daemon { kind: Some(kind), .. } = &error
                    && reach::is_dead(kind)
                {
                    self.dead.insert(place, None);
                }
                let error = anyhow::Error::new(error);
                let fate = failed(&error);
                self.view.failed.push((nqn.to_string(), error));
                fate
            }
        }
    }
}

fn failed(error: &anyhow::Error) -> Fate {
    Fate::Failed(failure::text(error).lines().next().unwrap_or_default().to_owned())
}

/// What is said of a log with more records than are read.
pub(super) fn left_out(read: usize, more: u64) -> Failure {
    let message = format!("the discovery log has {} records: the first {read} are used", read as u64 + more);
    let advice = "ask the service for fewer (`--port-local`), or connect the others with `ebof connect`";
    Failure::new("too-many", message, advice)
}

#[cfg(test)]
mod tests {
    use ebof_nvme::log::{SecType, TrType};

    use super::*;
    use crate::verbs::record::tests::record;
    use crate::verbs::services::conf::options_of;

    fn service(line: &str) -> DiscoveryService {
        DiscoveryService::new(options_of(line).unwrap())
    }

    fn path(port: u16) -> Path {
        (Transport::Tcp, "nqn.2014-08.org.example:x".to_owned(), "127.0.0.1".to_owned(), port)
    }

    // @test host.tls-ports
    #[test]
    fn a_port_that_says_it_wants_tls_is_not_tried() {
        let with = |security: SecType, treq: u8| {
            let mut entry = DiscoveryEntry { treq, ..record(4420) };
            entry.tsas[0] = security.0;
            entry
        };
        // A subsystem that has no other port is not connected.
        let mut run = Everything::default();
        run.follow_all(&service("-t tcp -a 127.0.0.1"), &[with(SecType::TLS_1_3, 1)], &mut Vec::new());
        let failed = run.into_view().failed;
        let text = failure::text(&failed[0].1);
        assert!(text.contains("port 4420 wants TLS 1.3 (the discovery log: sectype tls13)"), "{text}");
        let refers = DiscoveryEntry { subtype: SubsystemType::REFERRAL.0, ..with(SecType::TLS_1_3, 1) };
        let asked = |service: &DiscoveryService| {
            let mut waiting = Vec::new();
            Everything::default().follow_all(service, std::slice::from_ref(&refers), &mut waiting);
            waiting
        };
        assert!(asked(&service("-t tcp -a 127.0.0.1")).is_empty());
        // With a key, it is, and so is a discovery service, over TLS.
        let mut with_key = service("-t tcp -a 127.0.0.1");
        with_key.fabric.overrides.tls = true;
        let asked = asked(&with_key);
        assert!(asked.len() == 1 && asked[0].fabric.overrides.tls);
    }

    // @test host.dead-addresses
    #[test]
    fn an_address_that_does_not_answer_is_tried_once() {
        let service = service("-t tcp -a 127.0.0.1");
        let mut run = Everything::default();
        run.dead.insert((Transport::Tcp, "127.0.0.1".to_owned(), 4420), None);
        run.follow_all(&service, &[record(4420)], &mut Vec::new());
        assert_eq!((run.tried, run.view.failed.len()), (0, 1));
        // Another port has the subsystem: nothing is missing.
        run.connected.insert("nqn.2014-08.org.example:x".to_owned(), "nvme0".to_owned());
        let view = run.into_view();
        assert!(view.failed.is_empty() && view.skipped[0].1.starts_with("connected as nvme0; another port failed: "));
    }

    // @test host.discovery-entries
    #[test]
    fn each_path_is_followed_once_and_there_are_not_too_many() {
        let service = service("-t tcp -a 127.0.0.1");
        let mut run = Everything::default();
        // As if nothing were there: nothing is connected here.
        for port in [4420, 4421, 4422] {
            run.dead.insert((Transport::Tcp, "127.0.0.1".to_owned(), port), None);
        }
        let mut waiting = Vec::new();
        run.follow_all(&service, &vec![record(4420); 4096], &mut waiting);
        assert_eq!((run.view.failed.len(), run.tried, waiting.len()), (1, 0, 0));
        assert!(matches!(run.outcomes().get(&path(4420)), Some(Fate::Failed(_))));
        run.tried = CONNECTS_MAX;
        run.follow_all(&service, &[record(4421), record(4422)], &mut waiting);
        assert_eq!(run.view.failed.len(), 1, "no more than that are tried");
        let refers = DiscoveryEntry { subtype: SubsystemType::REFERRAL.0, ..record(8010) };
        run.follow_all(&service, &[refers], &mut waiting);
        assert_eq!((run.left_out(), waiting.len()), (2, 1), "services are asked all the same");
        run.tried -= 1;
        run.follow_all(&service, &[record(4421), record(4422)], &mut waiting);
        assert_eq!(run.view.failed.len(), 3, "another port is another path");
        let view = run.into_view();
        assert!(failure::text(&view.failed[3].1).contains("2 more records are left alone"));
    }

    // @test host.discovery-entries
    #[test]
    fn referrals_that_lead_back_are_not_followed() {
        let refers = |port: u16, nqn: &str| {
            let mut entry = DiscoveryEntry { subtype: SubsystemType::REFERRAL.0, ..record(port) };
            entry.set_subsystem_nqn(&Nqn::parse(nqn).unwrap());
            entry
        };
        let own = "nqn.2014-08.org.example:cdc";
        let log = [refers(8009, own), refers(8010, Nqn::discovery().as_str()), refers(8011, own), refers(8011, own)];
        let named = service("-t tcp -a 127.0.0.1 -s 8009");
        let mut run = Everything::default();
        // The service's own port, by its log.
        run.ports.add(&[DiscoveryEntry { subtype: SubsystemType::CURRENT_DISCOVERY.0, ..record(8010) }]);
        let mut waiting = Vec::new();
        run.follow_all(&named, &log, &mut waiting);
        let asked = [named.fabric];
        let circles: Vec<_> = waiting.iter().map(|it| (it.fabric.trsvcid, run.is_circle(&asked, &it.fabric))).collect();
        assert_eq!(circles, [(Some(8009), true), (Some(8010), true), (Some(8011), false)]);
        assert_eq!(waiting[2].fabric.nqn.as_ref().unwrap().as_str(), own, "by its own name");
        assert!(waiting[1].fabric.nqn.is_none());
    }

    #[test]
    fn a_log_with_too_many_records_is_a_failure() {
        let text = failure::text(&left_out(4096, 3).into());
        assert!(text.starts_with("the discovery log has 4099 records: the first 4096 are used"), "{text}");
    }

    #[test]
    fn records_are_followed_over_their_own_transport() {
        let service = service("-t tcp -a 127.0.0.1 --hdr-digest --tos 8");
        let mut run = Everything::default();
        let referral =
            |trtype: TrType| DiscoveryEntry { trtype: trtype.0, subtype: SubsystemType::REFERRAL.0, ..record(4420) };
        let mut waiting = Vec::new();
        let log = [TrType::TCP, TrType::RDMA, TrType::RDMA, TrType(2)].map(referral);
        run.follow_all(&service, &log, &mut waiting);
        let found =
            |service: &DiscoveryService| (service.fabric.transport.clone(), service.fabric.overrides.hdr_digest);
        let found: Vec<_> = waiting.iter().map(found).collect();
        assert_eq!(found, [("tcp".to_owned(), true), ("rdma".to_owned(), false)]);
        let fabrics: Vec<_> = waiting.iter().map(|service| &service.fabric).collect();
        assert!(fabrics.iter().all(|fabric| fabric.overrides.tos == Some(8) && fabric.check().is_ok()));
        assert!(run.view.skipped[0].1.contains("fc address"), "{:?}", run.view.skipped);
    }

    // @test host.exclusions
    #[test]
    fn what_is_excluded_is_not_connected_and_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let text = "[exclusions]\nexclusion = nqn=nqn.2014-08.org.example:x;trsvcid=4420\n";
        std::fs::write(directory.path().join("exclusions.conf"), text).unwrap();
        std::fs::create_dir(directory.path().join("exclusions.conf.d")).unwrap();
        std::fs::write(directory.path().join("exclusions.conf.d/a.conf"), "[exclusions]\nexclusion = trsvcid=8011\n")
            .unwrap();
        let (rules, wrong) = Rules::read(&super::super::services::Places::below(directory.path()));
        assert!(!wrong.is_error());
        let mut run = Everything { rules, ..Everything::default() };
        run.dead.insert((Transport::Tcp, "127.0.0.1".to_owned(), 4421), None);
        let mut waiting = Vec::new();
        let refers = DiscoveryEntry { subtype: SubsystemType::REFERRAL.0, ..record(8011) };
        run.follow_all(&service("-t tcp -a 127.0.0.1"), &[record(4420), record(4421), refers], &mut waiting);
        assert_eq!(run.outcomes()[&path(4420)], Fate::LeftAlone);
        assert!(matches!(run.outcomes()[&path(4421)], Fate::Failed(_)));
        assert!(waiting.is_empty());
        let reason = run.view.skipped[0].1.clone();
        assert!(reason.starts_with("left alone: ") && reason.ends_with("exclusions.conf:2 excludes it"), "{reason}");
        // One that a file names is left alone, too: the contradiction is told.
        let named = NamedSubsystem {
            fabric: options_of("-t tcp -a 127.0.0.1 -s 4420 -n nqn.2014-08.org.example:x").unwrap(),
            place: "f.conf:7".to_owned(),
        };
        run.outcomes.clear();
        run.connect_named(std::slice::from_ref(&named));
        assert!(run.view.skipped[1].1.ends_with("excludes it, which f.conf:7 names"), "{:?}", run.view.skipped);
        let mut excluded = service("-t tcp -a 127.0.0.1 -s 8011");
        excluded.place = Some("f.conf:9".to_owned());
        assert!(run.without_excluded(vec![excluded]).is_empty());
        // Of a service that names no port, the other usual one is left.
        std::fs::write(directory.path().join("exclusions.conf.d/b.conf"), "[exclusions]\nexclusion = trsvcid=8009\n")
            .unwrap();
        run.rules = Rules::read(&super::super::services::Places::below(directory.path())).0;
        let mut unsaid = service("-t tcp -a 127.0.0.1");
        unsaid.place = Some("f.conf:9".to_owned());
        let asked = run.without_excluded(vec![unsaid.clone()]);
        assert_eq!(asked[0].fabric.trsvcid, Some(4420));
        std::fs::write(directory.path().join("exclusions.conf.d/c.conf"), "[exclusions]\nexclusion = trsvcid=4420\n")
            .unwrap();
        run.rules = Rules::read(&super::super::services::Places::below(directory.path())).0;
        assert!(run.without_excluded(vec![unsaid]).is_empty());
    }
}
