//! `connect`, `connect-all`, `disconnect`, `disconnect-all`. The attach daemon, which owns the
//! block devices, is in `ebof-attach`.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use ebof_attach::{Kind, Report, Select};
use ebof_initiator::Options;
use ebof_nvme::Nqn;
use ebof_nvme::log::{DiscoveryEntry, SecType, SubsystemType};
use ebof_nvme::uri::Transport;

use super::Outcome;
use super::connect_file::FromFile;
use super::fabric::{DISCOVERY_PORT, FabricArgs, IO_PORT, set_timeout};
use super::reach::{self, Place};
use super::services::{DiscoveryService, OwnPorts, ask_all, services, warn_of_plain_services};
use crate::failure::{self, Failure};
use crate::global::Global;
use crate::output::attached::ConnectView;
use crate::output::connections::{ConnectAllView, DisconnectView};
use crate::output::text::safe;
use crate::output::{say, show};

/// Maximum number of discovery services that are found by referrals, which may form circles.
const REFERRALS_MAX: usize = 64;

/// Maximum number of connections that `connect-all` tries: a discovery log has up to 4096 records,
/// and each may time out.
const CONNECTS_MAX: usize = 1024;
/// Number of records from which `connect-all` reports its progress.
const PROGRESS_FROM: usize = 8;

/// The kind of block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Front {
    /// ublk if the kernel has it, otherwise FUSE and a loop device
    Auto,
    /// Only ublk
    Ublk,
    /// Only FUSE and a loop device
    Loop,
}

impl From<Front> for Kind {
    fn from(front: Front) -> Self {
        match front {
            Front::Auto => Self::Auto,
            Front::Ublk => Self::Ublk,
            Front::Loop => Self::Loop,
        }
    }
}

/// Connects a subsystem.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Connect {
    #[command(flatten)]
    fabric: FabricArgs,
    /// The kind of block device
    #[arg(long, value_enum, default_value_t = Front::Auto, value_name = "KIND")]
    front: Front,
}

impl Connect {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        self.fabric.check()?;
        let required =
            |option: &str| Failure::usage(format!("{option} is missing"), "connect -t tcp -a ADDRESS [-s PORT] -n NQN");
        let traddr = self.fabric.traddr.as_deref().ok_or_else(|| required("--traddr (-a)"))?;
        let nqn = self.fabric.nqn.as_ref().ok_or_else(|| required("--nqn (-n)"))?;
        if nqn.is_discovery() {
            let message = "the discovery service has no namespaces to connect";
            return Err(Failure::usage(
                message,
                "list what it offers with `ebof discover`, or connect all with `ebof connect-all`",
            )
            .into());
        }
        let port = self.fabric.trsvcid.unwrap_or(IO_PORT);
        let request = self.fabric.request(traddr, port, nqn.as_str(), self.front.into());
        match ebof_attach::connect(&request) {
            Ok(attached) => show(global, &ConnectView { nqn: request.nqn, attached })?,
            Err(error) => return Err(self.explained(error, traddr, port, nqn)),
        }
        Ok(ExitCode::SUCCESS)
    }

    /// A port that closes the connection before it has said anything may want TLS: the discovery
    /// service of the same address knows.
    fn explained(&self, error: ebof_attach::Error, traddr: &str, port: u16, nqn: &Nqn) -> anyhow::Error {
        let is_silent =
            matches!(&error, ebof_attach::Error::Daemon { kind: Some(kind), .. } if kind == "closed-during-init");
        for service in [DISCOVERY_PORT, IO_PORT].into_iter().filter(|&service| is_silent && service != port) {
            let mut options = self.fabric.options(traddr, service, Nqn::discovery());
            set_timeout(&mut options, Some(EXPLAIN));
            if let Ok(log) = ebof_initiator::discover(&options)
                && let Some(failure) = log.entries.iter().find_map(|entry| tls_of(entry, log.peer.ip(), port, nqn))
            {
                return failure.into();
            }
        }
        error.into()
    }
}

/// How long the discovery service of an address may take to say what one of its ports wants.
const EXPLAIN: Duration = Duration::from_secs(2);

/// That a record says of a port that it has nothing but TLS, if it is about that port.
fn tls_of(entry: &DiscoveryEntry, peer: IpAddr, port: u16, nqn: &Nqn) -> Option<Failure> {
    let address = entry.address().as_str().and_then(|text| text.parse::<IpAddr>().ok());
    let is_it = entry.service_id().as_str() == Some(port.to_string().as_str())
        && address.is_none_or(|address| address == peer)
        && Nqn::from_field(&entry.subnqn).is_ok_and(|known| known == *nqn);
    wants_tls(entry).filter(|_| is_it).map(|security| no_tls(security, port))
}

/// What is said of a port that has nothing but TLS.
fn no_tls(security: SecType, port: u16) -> Failure {
    let version = if security == SecType::TLS_1_3 { "TLS 1.3" } else { "TLS" };
    let message = format!(
        "port {port} wants {version} (the discovery log: sectype {}), and this connection was to be without",
        security.name()
    );
    Failure::unsupported(
        message,
        "connect with --tls and --tls-key-file, which names the key that the target has of this host",
    )
}

/// Connects everything that a discovery service lists.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ConnectAll {
    #[command(flatten)]
    fabric: FabricArgs,
    /// The kind of block device
    #[arg(long, value_enum, default_value_t = Front::Auto, value_name = "KIND")]
    front: Front,
    /// Connect what this file names instead: /etc/ebof/connections.toml at boot
    #[arg(long, value_name = "FILE", conflicts_with_all = ["traddr", "trsvcid", "nqn"])]
    connections: Option<PathBuf>,
    /// Of the file, only the connection with this name; several times for several
    #[arg(long, value_name = "NAME", requires = "connections")]
    only: Vec<String>,
    /// Try again until everything in the file is connected
    #[arg(long, requires = "connections")]
    retry: bool,
}

impl ConnectAll {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        if let Some(path) = self.connections {
            // Somebody may believe that they are in effect: `--tls`, say.
            if self.fabric.says_something() || self.front != Front::Auto {
                let message = "with --connections, options of connections have no effect";
                return Err(
                    Failure::usage(message, "write them into the file, to the connections that they are for").into()
                );
            }
            let owner = self.fabric.owner;
            return FromFile { path, only: self.only, retry: self.retry, owner }.run(global);
        }
        let mut run = Everything::with_front(self.front.into());
        run.follow_services(services(&self.fabric)?, global)?;
        let view = run.into_view();
        show(global, &view)?;
        Ok(if view.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Connects everything that discovery services list. The lists are not trusted: they may be long
/// and have duplicates.
#[derive(Default)]
pub(super) struct Everything {
    front: Kind,
    view: ConnectAllView,
    /// Records that were followed: transport, subsystem, address, port.
    followed: HashSet<(Transport, String, String, u16)>,
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
}

impl Everything {
    pub(super) fn with_front(front: Kind) -> Self {
        Self { front, ..Self::default() }
    }

    /// What came of it. A port that failed is no failure of a subsystem that is connected through
    /// another one.
    pub(super) fn into_view(self) -> ConnectAllView {
        let Self { mut view, connected, silent, ports, .. } = self;
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
        view
    }

    /// Asks discovery services side by side, and then those that they refer to; what they list is
    /// connected in their order.
    ///
    /// # Errors
    /// The only one does not answer.
    pub(super) fn follow_services(&mut self, services: Vec<DiscoveryService>, global: &Global) -> anyhow::Result<()> {
        warn_of_plain_services(&services);
        self.timeout = global.timeout();
        let is_only = services.len() == 1;
        let mut asked: Vec<FabricArgs> = services.iter().map(|service| service.fabric.clone()).collect();
        let referrals_end = asked.len() + REFERRALS_MAX;
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
            for fabric in refers {
                if asked.len() == referrals_end || asked.iter().any(|other| other.is_service_of(&fabric)) {
                    continue;
                }
                asked.push(fabric.clone());
                match self.is_dead(&fabric) {
                    Some(error) => say(&failure::text(&error)),
                    None => round.push(DiscoveryService { fabric, place: None }),
                }
            }
            refers = self.follow_round(round, global, |_, _, error| {
                say(&format!("{error}"));
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Asks some services, and connects what they list; those that they refer to.
    fn follow_round(
        &mut self,
        services: Vec<DiscoveryService>,
        global: &Global,
        failed: impl Fn(&mut Self, FabricArgs, anyhow::Error) -> anyhow::Result<()>,
    ) -> anyhow::Result<Vec<FabricArgs>> {
        let answers = ask_all(&services, global);
        let mut logs = Vec::new();
        for (DiscoveryService { fabric, .. }, answer) in services.into_iter().zip(answers) {
            match answer {
                Ok(log) => {
                    self.ports.add(&log.entries);
                    logs.push((fabric, log.entries));
                }
                Err(error) => failed(self, fabric, error)?,
            }
        }
        self.look(&logs);
        let mut refers = Vec::new();
        for (service, entries) in &logs {
            self.follow_all(service, entries, &mut refers);
        }
        Ok(refers)
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

    /// Asks the addresses of logs side by side whether anything is there, if there are several.
    fn look(&mut self, logs: &[(FabricArgs, Vec<DiscoveryEntry>)]) {
        let mut asked: HashMap<Place, Options> = HashMap::new();
        let records = logs.iter().flat_map(|(service, entries)| entries.iter().map(move |entry| (service, entry)));
        for (service, entry) in records.filter(|(service, entry)| lacks_tls(service, entry).is_none()) {
            let is_wanted = match entry.subsystem_type() {
                SubsystemType::NVM => true,
                SubsystemType::REFERRAL => false,
                _ => continue,
            };
            let Some((transport, nqn, traddr, trsvcid)) = place_of(entry, service) else { continue };
            let is_known = self.followed.contains(&(transport, nqn.to_string(), traddr.clone(), trsvcid))
                || is_wanted && self.connected.contains_key(nqn.as_str()) && !service.duplicate_connect;
            let place = (transport, traddr, trsvcid);
            if is_known || self.dead.contains_key(&place) || asked.len() >= CONNECTS_MAX {
                continue;
            }
            let mut options = service.over(transport).options(&place.1, trsvcid, nqn);
            set_timeout(&mut options, self.timeout);
            asked.insert(place, options);
        }
        if asked.len() > 1 {
            let dead = reach::dead(&asked.into_iter().collect::<Vec<_>>());
            self.dead.extend(dead.into_iter().map(|(place, error)| (place, Some(error.into()))));
        }
    }

    fn follow_all(&mut self, service: &FabricArgs, entries: &[DiscoveryEntry], waiting: &mut Vec<FabricArgs>) {
        for (number, entry) in (1..).zip(entries) {
            if self.tried >= CONNECTS_MAX {
                let rest = entries.len() + 1 - number;
                say(&format!("{CONNECTS_MAX} connections were tried: {rest} more records are left alone"));
                return;
            }
            self.follow(service, entry, number, entries.len(), waiting);
        }
    }

    /// Connects or queues record `number` of `count`.
    fn follow(
        &mut self,
        service: &FabricArgs,
        entry: &DiscoveryEntry,
        number: usize,
        count: usize,
        waiting: &mut Vec<FabricArgs>,
    ) {
        let Some((transport, nqn, traddr, trsvcid)) = place_of(entry, service) else {
            let nqn = entry.subsystem_nqn();
            let transport = entry.transport().name();
            self.view.skipped.push((nqn.to_string(), format!("its {transport} address cannot be used")));
            return;
        };
        if !self.followed.insert((transport, nqn.to_string(), traddr.clone(), trsvcid)) {
            return;
        }
        let service = &service.over(transport);
        match entry.subsystem_type() {
            SubsystemType::NVM => {
                if count > PROGRESS_FROM {
                    say(&format!("record {number} of {count}: {} at {}:{trsvcid}", safe(nqn.as_str()), safe(&traddr)));
                }
                match lacks_tls(service, entry) {
                    Some(security) => self.view.failed.push((nqn.to_string(), no_tls(security, trsvcid).into())),
                    None => self.connect(service, &nqn, &traddr, trsvcid),
                }
            }
            SubsystemType::REFERRAL => {
                // Without TLS such a port would only end the connection.
                if let Some(security) = lacks_tls(service, entry) {
                    let failure = no_tls(security, trsvcid);
                    say(&format!("the discovery service at {} is not asked: {failure}", safe(&traddr)));
                    return;
                }
                let referral =
                    FabricArgs { traddr: Some(traddr), trsvcid: Some(trsvcid), nqn: None, ..service.clone() };
                waiting.push(referral);
            }
            _ => {}
        }
    }

    fn connect(&mut self, service: &FabricArgs, nqn: &Nqn, traddr: &str, trsvcid: u16) {
        // Another port of the same subsystem shows the same namespaces.
        if let Some(name) = self.connected.get(nqn.as_str()).filter(|_| !service.duplicate_connect) {
            self.view.skipped.push((nqn.to_string(), format!("connected as {name} through another port")));
            return;
        }
        let transport = Transport::from_name(&service.transport).unwrap_or(Transport::Tcp);
        let place = (transport, traddr.to_owned(), trsvcid);
        if let Some(error) = self.dead_at(&place) {
            self.view.failed.push((nqn.to_string(), error));
            return;
        }
        self.tried += 1;
        let request = service.request(traddr, trsvcid, nqn.as_str(), self.front);
        match ebof_attach::connect(&request) {
            Ok(attached) => {
                self.connected.insert(nqn.to_string(), attached.name.clone());
                self.view.connected.push(ConnectView { nqn: nqn.to_string(), attached });
            }
            Err(ebof_attach::Error::AlreadyConnected(existing)) => {
                let reason = format!("already connected as {} at {}", existing.name, existing.address);
                self.connected.insert(nqn.to_string(), existing.name);
                self.view.skipped.push((nqn.to_string(), reason));
            }
            Err(error) => {
                if let ebof_attach::Error::Daemon { kind: Some(kind), .. } = &error
                    && reach::is_dead(kind)
                {
                    self.dead.insert(place, None);
                }
                self.view.failed.push((nqn.to_string(), anyhow::Error::new(error)));
            }
        }
    }
}

/// What a record says of its port, if that has nothing but TLS.
fn wants_tls(entry: &DiscoveryEntry) -> Option<SecType> {
    let tls = entry.security().filter(|security| [SecType::TLS, SecType::TLS_1_3].contains(security));
    tls.filter(|_| entry.requirements().secure_channel_required() != Some(false))
}

/// The same, if connections of this service are without. A subsystem that wants TLS may be at a
/// port where it begins with authentication.
fn lacks_tls(service: &FabricArgs, entry: &DiscoveryEntry) -> Option<SecType> {
    let has_tls = service.overrides.tls || service.overrides.concat;
    wants_tls(entry).filter(|security| !has_tls || *security != SecType::TLS_1_3)
}

/// Where a record is, and of which subsystem; `None` if it cannot be used.
fn place_of(entry: &DiscoveryEntry, service: &FabricArgs) -> Option<(Transport, Nqn, String, u16)> {
    let traddr = entry.address().as_str().map(|traddr| scoped(traddr, service))?;
    let trsvcid = entry.service_id().as_str().and_then(|port| port.parse::<u16>().ok())?;
    let nqn = Nqn::from_field(&entry.subnqn).ok()?;
    Some((Transport::from_name(entry.transport().name())?, nqn, traddr, trsvcid))
}

/// An address of a discovery log. A link-local one counts on the network that its service was
/// reached through: a log cannot name that, since it is numbered by each machine for itself.
fn scoped(traddr: &str, service: &FabricArgs) -> String {
    let is_link_local = traddr.parse::<Ipv6Addr>().is_ok_and(|address| address.is_unicast_link_local());
    let scope = || {
        let named = service.traddr.as_deref().and_then(|own| own.split_once('%')).map(|(_, scope)| scope);
        named.or(service.overrides.host_iface.as_deref())
    };
    match scope().filter(|_| is_link_local) {
        Some(scope) => format!("{traddr}%{scope}"),
        None => traddr.to_owned(),
    }
}

/// Disconnects controllers.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Disconnect {
    /// Every controller of these subsystems, separated by commas
    #[arg(short = 'n', long, value_name = "NQN", value_delimiter = ',')]
    nqn: Vec<String>,
    /// These controllers (nvme0) or the controllers of these devices, separated by commas
    #[arg(short = 'd', long, value_name = "DEVICE", value_delimiter = ',')]
    device: Vec<String>,
    /// Disconnect even if a device is in use: unwritten data are lost
    #[arg(long)]
    force: bool,
}

impl Disconnect {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        if self.nqn.is_empty() && self.device.is_empty() {
            let advice = "say which: -n NQN for every controller of a subsystem, -d DEVICE (nvme0, as `ebof list` shows) for \
                          one; `ebof disconnect-all` disconnects everything";
            return Err(Failure::usage("nothing is named that is to be disconnected", advice).into());
        }
        let nqns = self.nqn.iter().cloned().map(Select::Nqn);
        let selects = nqns.chain(self.device.iter().cloned().map(Select::Device));
        let mut view = DisconnectView { verb: "disconnect", nqns: self.nqn.clone(), ..DisconnectView::default() };
        for select in selects {
            view.add(ebof_attach::disconnect(&select, self.force)?);
            tell_of_root(&select);
        }
        finish(&view, global)
    }
}

/// Tells other users about root's devices, which are not disconnected.
fn tell_of_root(select: &Select) {
    let names = ebof_attach::connected_by_root(select);
    if !names.is_empty() {
        say(&format!("{}: connected by the superuser; disconnecting needs root (sudo ebof ...)", names.join(", ")));
    }
}

/// Disconnects everything.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DisconnectAll {
    /// Only controllers of a transport
    #[arg(short = 't', short_alias = 'r', long, value_name = "TRANSPORT")]
    transport: Option<String>,
    /// Only controllers that this owner has connected (`connect --owner`)
    #[arg(long, value_name = "NAME", conflicts_with = "transport")]
    owner: Option<String>,
    /// Only controllers whose target stays away for so many seconds, which are waited for
    #[arg(long, value_name = "S", conflicts_with_all = ["transport", "owner"])]
    unreachable: Option<u16>,
    /// Disconnect even if a device is in use: unwritten data are lost
    #[arg(long)]
    force: bool,
}

impl DisconnectAll {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let mut view = DisconnectView { verb: "disconnect-all", ..DisconnectView::default() };
        if let Some(seconds) = self.unreachable {
            for name in unreachable_for(Duration::from_secs(seconds.into()))? {
                view.add(ebof_attach::disconnect(&Select::Device(name), self.force)?);
            }
            return finish(&view, global);
        }
        let owned = self.owner.map(Select::Owner);
        let select = owned.unwrap_or_else(|| self.transport.map_or(Select::All, Select::Transport));
        tell_of_root(&select);
        let report: Report = ebof_attach::disconnect(&select, self.force)?;
        view.add(report);
        finish(&view, global)
    }
}

/// The controllers that do not reach their targets for that long.
fn unreachable_for(time: Duration) -> anyhow::Result<Vec<String>> {
    let end = Instant::now() + time;
    let mut names = ebof_attach::unreachable()?;
    while !names.is_empty() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(200));
        let now = ebof_attach::unreachable()?;
        names.retain(|name| now.contains(name));
    }
    Ok(names)
}

fn finish(view: &DisconnectView, global: &Global) -> Outcome {
    for (name, error) in &view.failed {
        say(&format!("{name}: {}", safe_lines(&failure::text(error))));
    }
    for action in &view.repaired {
        say(action);
    }
    show(global, view)?;
    Ok(if view.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn safe_lines(text: &str) -> String {
    text.lines().map(safe).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use ebof_nvme::log::TrType;

    use super::*;
    use crate::verbs::services::parse_conf;

    fn record(port: u16) -> DiscoveryEntry {
        let mut entry =
            DiscoveryEntry { trtype: TrType::TCP.0, subtype: SubsystemType::NVM.0, ..DiscoveryEntry::default() };
        let put = |field: &mut [u8], text: &str| field[..text.len()].copy_from_slice(text.as_bytes());
        put(&mut entry.subnqn, "nqn.2014-08.org.example:x");
        put(&mut entry.traddr, "127.0.0.1");
        entry.trsvcid.fill(b' ');
        put(&mut entry.trsvcid, &port.to_string());
        entry
    }

    fn service(line: &str) -> FabricArgs {
        parse_conf("x".as_ref(), line).remove(0).unwrap().fabric
    }

    #[test]
    fn link_local_addresses_count_where_their_service_was_found() {
        let (named, bound) = (service("-a fe80::1%eth0"), service("-a 2001:db8::1 -f eth1"));
        assert_eq!(scoped("fe80::2", &named), "fe80::2%eth0");
        assert_eq!(scoped("fe80::2", &bound), "fe80::2%eth1");
        for traddr in ["fe80::2%eth7", "2001:db8::2", "192.0.2.1"] {
            assert_eq!(scoped(traddr, &named), traddr);
        }
        assert_eq!(scoped("fe80::2", &service("-a 192.0.2.1")), "fe80::2");
    }

    // @test host.tls-ports
    #[test]
    fn a_port_that_says_it_wants_tls_is_not_tried() {
        let with = |security: SecType, treq: u8| {
            let mut entry = DiscoveryEntry { treq, ..record(4420) };
            entry.tsas[0] = security.0;
            entry
        };
        let wants = |security, treq| wants_tls(&with(security, treq)).is_some();
        assert!(wants(SecType::TLS_1_3, 1) && wants(SecType::TLS_1_3, 0) && wants(SecType::TLS, 1));
        assert!(!wants(SecType::TLS_1_3, 2) && !wants(SecType::NONE, 1) && !wants(SecType::NONE, 0));
        // A subsystem that has no other port is not connected.
        let mut run = Everything::default();
        run.follow_all(&service("-t tcp -a 127.0.0.1"), &[with(SecType::TLS_1_3, 1)], &mut Vec::new());
        let failed = run.into_view().failed;
        let text = failure::text(&failed[0].1);
        assert!(text.contains("port 4420 wants TLS 1.3 (the discovery log: sectype tls13)"), "{text}");
        let refers = DiscoveryEntry { subtype: SubsystemType::REFERRAL.0, ..with(SecType::TLS_1_3, 1) };
        let asked = |service: &FabricArgs| {
            let mut waiting = Vec::new();
            Everything::default().follow_all(service, std::slice::from_ref(&refers), &mut waiting);
            waiting
        };
        assert!(asked(&service("-t tcp -a 127.0.0.1")).is_empty());
        // With a key, it is, and so is a discovery service, over TLS.
        let mut with_key = service("-t tcp -a 127.0.0.1");
        with_key.overrides.tls = true;
        let asked = asked(&with_key);
        assert!(asked.len() == 1 && asked[0].overrides.tls);
        assert!(lacks_tls(&with_key, &with(SecType::TLS_1_3, 1)).is_none());
        assert!(lacks_tls(&with_key, &with(SecType::TLS, 1)).is_some(), "TLS 1.2 is another one");
        // What `connect` finds out about a port that closes its connections.
        let nqn = Nqn::parse("nqn.2014-08.org.example:x").unwrap();
        let says = |peer: &str, port| tls_of(&with(SecType::TLS_1_3, 1), peer.parse().unwrap(), port, &nqn).is_some();
        assert!(says("127.0.0.1", 4420) && !says("127.0.0.1", 4421) && !says("127.0.0.2", 4420));
        assert!(tls_of(&with(SecType::NONE, 1), "127.0.0.1".parse().unwrap(), 4420, &nqn).is_none());
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

    #[test]
    fn referrals_that_form_a_cycle_are_followed_once() {
        let service = service("-t tcp -a 127.0.0.1");
        let mut run = Everything::default();
        // As if it had been connected: nothing is connected here.
        run.connected.insert("nqn.2014-08.org.example:x".to_owned(), "nvme0".to_owned());
        let mut waiting = Vec::new();
        run.follow_all(&service, &vec![record(4420); 4096], &mut waiting);
        assert_eq!((run.view.skipped.len(), run.tried, waiting.len()), (1, 0, 0));
        assert!(run.view.skipped[0].1.contains("nvme0"), "{:?}", run.view.skipped);
        run.tried = CONNECTS_MAX;
        run.follow_all(&service, &[record(4421), record(4422)], &mut waiting);
        assert_eq!(run.view.skipped.len(), 1, "no more than that are tried");
        run.tried -= 1;
        run.follow_all(&service, &[record(4421), record(4422)], &mut waiting);
        assert_eq!(run.view.skipped.len(), 3);
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
        let found = |service: &FabricArgs| (service.transport.clone(), service.overrides.hdr_digest);
        let found: Vec<_> = waiting.iter().map(found).collect();
        assert_eq!(found, [("tcp".to_owned(), true), ("rdma".to_owned(), false)]);
        assert!(waiting.iter().all(|service| service.overrides.tos == Some(8) && service.check().is_ok()));
        assert!(run.view.skipped[0].1.contains("fc address"), "{:?}", run.view.skipped);
    }
}
