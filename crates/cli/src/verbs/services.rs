//! Discovery services: the one that is named, or those of nvme-cli's files, and asking them for
//! their logs, several side by side. What is left alone, whoever lists it: exclusions, and what the
//! kernel's own host has.

pub(crate) mod conf;
mod exclusions;
mod fabrics_conf;
mod ini;
mod kernel;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use ebof_initiator::{ConnectError, ConnectErrorKind, DiscoveryLog, Which};
use ebof_manage::Diagnostics;
use ebof_nvme::Nqn;
use ebof_nvme::log::{DiscoveryEntry, SubsystemType};

use super::fabric::{DISCOVERY_PORT, FabricArgs, IO_PORT, same_host, set_timeout};
use super::neighbours;
use super::reach::side_by_side;
use crate::failure::{self, Failure, FailurePlace};
use crate::file;
use crate::global::Global;
use crate::output::say;
use crate::output::text::safe;
use exclusions::{Exclusions, Identity};
use kernel::KernelHost;

/// nvme-cli's list of discovery services, which is used if none is named.
const DISCOVERY_CONF: &str = "discovery.conf";

/// nvme-cli 3's file of connections, which is used, too.
const FABRICS_CONF: &str = "nvme-fabrics.conf";

/// The maximum size of each.
const CONF_BYTES_MAX: u64 = 1 << 20;

/// Maximum number of services and subsystems of a file.
const SERVICES_MAX: usize = 256;

/// Maximum number of files beside one.
const DROPINS_MAX: usize = 256;

/// A discovery service.
#[derive(Clone, Debug)]
pub(crate) struct DiscoveryService {
    /// Where it is, and the options of its connections.
    pub(crate) fabric: FabricArgs,
    /// The options of what it lists, if they are others.
    pub(crate) listed: Option<FabricArgs>,
    /// File and line that name it, if a file does.
    pub(crate) place: Option<String>,
}

/// A subsystem that a file names.
#[derive(Clone, Debug)]
pub(crate) struct NamedSubsystem {
    /// Where it is, and the options of its connection.
    pub(crate) fabric: FabricArgs,
    /// File and line.
    pub(crate) place: String,
}

impl DiscoveryService {
    /// A service that lists what has the same options.
    pub(crate) fn new(fabric: FabricArgs) -> Self {
        Self { fabric, listed: None, place: None }
    }

    /// The options of what it lists.
    pub(super) fn of_listed(&self) -> &FabricArgs {
        self.listed.as_ref().unwrap_or(&self.fabric)
    }
}

/// Where the files of nvme-cli, and of the kernel's host, are.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub(super) nvme: PathBuf,
    class: PathBuf,
    registry: PathBuf,
}

impl Default for Places {
    fn default() -> Self {
        let [nvme, class, registry] = ["/etc/nvme", "/sys/class/nvme", "/run/nvme/registry"].map(PathBuf::from);
        Self { nvme, class, registry }
    }
}

#[cfg(test)]
impl Places {
    /// With the files below `nvme`, and no host of the kernel's.
    pub(super) fn below(nvme: &Path) -> Self {
        Self { nvme: nvme.to_owned(), class: nvme.join("class"), registry: nvme.join("registry") }
    }
}

/// What is left alone, whoever lists it.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    exclusions: Exclusions,
    kernel: KernelHost,
}

impl Rules {
    /// Those of a machine, and what is wrong with its exclusions.
    pub(super) fn read(places: &Places) -> (Self, Wrong) {
        let (exclusions, wrong) = Exclusions::read(&places.nvme);
        (Self { exclusions, kernel: KernelHost::read(&places.class, &places.registry) }, Wrong(wrong))
    }

    /// Why a subsystem is left alone, if it is.
    pub(super) fn against(&self, fabric: &FabricArgs, traddr: &str, trsvcid: u16, nqn: &Nqn) -> Option<String> {
        let excluded = self.excluded(fabric, traddr, trsvcid, nqn);
        excluded.or_else(|| self.kernel.has(nqn.as_str()).filter(|_| !fabric.duplicate_connect).map(str::to_owned))
    }

    /// Why something at an address is left alone, if an administrator has excluded it.
    pub(super) fn excluded(&self, fabric: &FabricArgs, traddr: &str, trsvcid: u16, nqn: &Nqn) -> Option<String> {
        let overrides = &fabric.overrides;
        let (hostnqn, hostid) = kernel::host_of(overrides.hostnqn.as_ref(), overrides.hostid);
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let identity = Identity::new([
            &fabric.transport,
            traddr,
            &trsvcid.to_string(),
            nqn.as_str(),
            &text(&overrides.host_traddr),
            &text(&overrides.host_iface),
            &hostnqn,
            &hostid,
        ]);
        self.exclusions.place_of(&identity).map(exclusions::reason)
    }

    /// A discovery service without what an administrator has excluded: of one that names no port,
    /// one of the usual ports may be left.
    ///
    /// # Errors
    /// Why it is not asked.
    pub(super) fn allowed(&self, service: &FabricArgs) -> Result<FabricArgs, String> {
        let nqn = service.nqn.clone().unwrap_or_else(Nqn::discovery);
        let traddr = service.traddr.as_deref().unwrap_or_default();
        let excluded = |port| self.excluded(service, traddr, port, &nqn);
        let only = |port| FabricArgs { trsvcid: Some(port), ..service.clone() };
        if let Some(port) = service.trsvcid {
            return excluded(port).map_or_else(|| Ok(service.clone()), Err);
        }
        let [first, second] = usual_ports(service);
        match (excluded(first), excluded(second)) {
            (None, None) => Ok(service.clone()),
            (None, Some(_)) => Ok(only(first)),
            (Some(_), None) => Ok(only(second)),
            (Some(reason), Some(_)) => Err(reason),
        }
    }
}

/// The ports of discovery services that name none.
pub(super) fn usual_ports(service: &FabricArgs) -> [u16; 2] {
    match service.transport.as_str() {
        // nvme-cli's port for it: 8009 is assigned to TCP only.
        "rdma" => [IO_PORT, DISCOVERY_PORT],
        _ => [DISCOVERY_PORT, IO_PORT],
    }
}

/// Ports that discovery services which have answered have themselves: what one of them would say is
/// known, even if it does not answer.
#[derive(Debug, Default)]
pub(super) struct OwnPorts(HashSet<(String, String, u16)>);

impl OwnPorts {
    /// Adds what a log says of its own service.
    pub(super) fn add(&mut self, entries: &[DiscoveryEntry]) {
        for entry in entries.iter().filter(|entry| entry.subsystem_type() == SubsystemType::CURRENT_DISCOVERY) {
            let port = entry.service_id().as_str().and_then(|port| port.parse().ok());
            if let (Some(traddr), Some(port)) = (entry.address().as_str(), port) {
                self.0.insert((entry.transport().name().to_owned(), same_host(traddr), port));
            }
        }
    }

    /// Whether a service is one of these ports.
    pub(super) fn has(&self, service: &FabricArgs) -> bool {
        let ports = service.trsvcid.map_or(vec![DISCOVERY_PORT, IO_PORT], |port| vec![port]);
        let traddr = same_host(service.traddr.as_deref().unwrap_or_default());
        ports.into_iter().any(|port| self.0.contains(&(service.transport.clone(), traddr.clone(), port)))
    }
}

/// What is to be asked and connected, and what is wrong with the files that say so.
#[derive(Debug, Default)]
pub(super) struct Sources {
    pub(super) services: Vec<DiscoveryService>,
    pub(super) subsystems: Vec<NamedSubsystem>,
    pub(super) wrong: Wrong,
}

/// What is wrong with files.
#[derive(Debug, Default)]
pub(super) struct Wrong(pub(super) Vec<anyhow::Error>);

impl Wrong {
    /// Says all of it.
    pub(super) fn tell(&self) {
        for error in &self.0 {
            say(&failure::text(error));
        }
    }

    /// Whether something was not done because of it.
    pub(super) fn is_error(&self) -> bool {
        self.0.iter().any(|error| error.downcast_ref::<Diagnostics>().is_none_or(|found| found.errors() > 0))
    }
}

/// The discovery services to query: the one that is named, otherwise those of nvme-cli's files,
/// which may name subsystems, too.
///
/// # Errors
/// An option is not supported; or none is named, and the files are missing or have nothing that can
/// be used.
pub(super) fn sources(fabric: &FabricArgs, places: &Places) -> anyhow::Result<Sources> {
    fabric.check()?;
    if fabric.traddr.is_some() {
        let services = vec![DiscoveryService::new(fabric.clone())];
        return Ok(Sources { services, ..Sources::default() });
    }
    if fabric.mdns {
        return Ok(Sources { services: neighbours::find(fabric)?, ..Sources::default() });
    }
    let mut sources = match &fabric.config {
        Some(file) => of_config(file, places)?,
        None => {
            let mut sources = of_discovery_conf(places);
            sources.add(fabrics_conf::read(&places.nvme.join(FABRICS_CONF)));
            sources
        }
    };
    if sources.services.is_empty() && sources.subsystems.is_empty() {
        if sources.wrong.is_error() {
            let first = sources.wrong.0.remove(0);
            sources.wrong.tell();
            return Err(first);
        }
        let nvme = places.nvme.display();
        let message = format!(
            "no discovery service is named, and neither {nvme}/{DISCOVERY_CONF} nor {nvme}/{FABRICS_CONF} names one"
        );
        return Err(Failure::usage(message, "say where one is: -t tcp -a ADDRESS [-s PORT]").into());
    }
    Ok(sources)
}

/// What `--config` names.
fn of_config(file: &Path, places: &Places) -> anyhow::Result<Sources> {
    if file.as_os_str() == "none" {
        return Ok(of_discovery_conf(places));
    }
    if file.extension().is_some_and(|extension| extension == "json") {
        let message = format!("{} is of nvme-cli 2, whose form is not read here", file.display());
        return Err(Failure::unsupported(message, "nvme-cli 3 makes one that is: `nvme config-convert`").into());
    }
    if !file.exists() {
        let message = format!("there is no {}", file.display());
        return Err(Failure::usage(message, "name a file like /etc/nvme/nvme-fabrics.conf, or `none`").into());
    }
    let mut sources = Sources::default();
    sources.add(fabrics_conf::read(file));
    Ok(sources)
}

/// The services of nvme-cli's `discovery.conf`; none if there is no such file, or nvme-cli 3 has
/// converted it into its own.
pub(super) fn of_discovery_conf(places: &Places) -> Sources {
    let path = places.nvme.join(DISCOVERY_CONF);
    if path.with_extension("conf.converted").exists() {
        return Sources::default();
    }
    let mut sources = Sources::default();
    match read_if_there(&path, "the discovery services") {
        Ok(Some(text)) => {
            let (services, wrong) = conf::parse(&path, &text);
            sources.services = services;
            if !wrong.is_empty() {
                sources.wrong.0.push(wrong.into());
            }
        }
        Ok(None) => {}
        Err(error) => sources.wrong.0.push(error),
    }
    sources
}

/// What nvme-cli 3's file and those beside it name.
pub(super) fn of_fabrics_conf(places: &Places) -> Sources {
    let mut sources = Sources::default();
    sources.add(fabrics_conf::read(&places.nvme.join(FABRICS_CONF)));
    sources
}

impl Sources {
    fn add(&mut self, named: fabrics_conf::Named) {
        for service in named.services {
            let is_known = self.services.iter().any(|other| other.fabric.is_service_of(&service.fabric));
            if !is_known && self.services.len() < SERVICES_MAX {
                self.services.push(service);
            }
        }
        self.subsystems.extend(named.subsystems);
        self.wrong.0.extend(named.wrong);
    }
}

/// The text of a file; none if it does not exist.
fn read_if_there(path: &Path, what: &str) -> anyhow::Result<Option<String>> {
    if !path.exists() {
        return Ok(None);
    }
    file::read_text(path, what, CONF_BYTES_MAX, file::Kind::Regular).map(Some)
}

/// The files `*.conf` in the directory FILE.d beside FILE, in the order of their names.
fn read_dropins(main: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut directory = main.as_os_str().to_owned();
    directory.push(".d");
    let directory = PathBuf::from(directory);
    let entries = match std::fs::read_dir(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("reading {}", directory.display()))?,
    };
    let is_conf = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "conf");
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_conf).collect();
    files.sort();
    if files.len() > DROPINS_MAX {
        let message = format!("{} has more than {DROPINS_MAX} files", directory.display());
        return Err(Failure::new("config", message, "put them into fewer files").into());
    }
    Ok(files)
}

/// Says that services are asked without TLS by whoever wants it elsewhere: authentication, of which
/// `--concat` makes keys, is not for them.
pub(super) fn warn_of_plain_services(services: &[DiscoveryService]) {
    if services.iter().any(|service| service.fabric.overrides.concat) {
        say(
            "warning: the discovery log is read without TLS, which --concat makes with subsystems only: somebody on the way \
             can change what it lists (--tls --tls-key-file FILE reads it over TLS)",
        );
    }
}

/// Reads the discovery logs of services, side by side: one that does not answer costs a time-out.
/// The answers are in the order of the services; errors name the place of theirs.
pub(super) fn ask_all(services: &[DiscoveryService], global: &Global) -> Vec<anyhow::Result<DiscoveryLog>> {
    let answers = side_by_side(services, |DiscoveryService { fabric, place, .. }| {
        ask(fabric, global).map_err(|error| match place {
            Some(place) => anyhow::Error::new(error).context(FailurePlace(place.clone())),
            None => error.into(),
        })
    });
    for (service, answer) in services.iter().zip(&answers) {
        if let Ok(log) = answer {
            tell_of_not_offered(&service.fabric, log.not_offered);
        }
    }
    answers
}

/// Says that a service lists what it usually does, although something else was asked for.
pub(super) fn tell_of_not_offered(service: &FabricArgs, not_offered: Which) {
    let traddr = safe(service.traddr.as_deref().unwrap_or_default());
    let options =
        [("--port-local", "PLEO", not_offered.port_local), ("--all-subsystems", "ALLSUBE", not_offered.all_subsystems)];
    for (option, name, _) in options.into_iter().filter(|(.., is)| *is) {
        say(&format!("warning: the discovery service at {traddr} has no {name}: {option} has no effect there"));
    }
}

/// Reads the discovery log of a service. Without a port, both usual ones are tried.
///
/// # Errors
/// Connecting or reading fails.
fn ask(service: &FabricArgs, global: &Global) -> Result<DiscoveryLog, ConnectError> {
    let traddr = service.traddr.as_deref().unwrap_or_default();
    let nqn = service.nqn.clone().unwrap_or_else(Nqn::discovery);
    let at = |port: u16| {
        let mut options = service.options(traddr, port, nqn.clone());
        set_timeout(&mut options, global.timeout());
        ebof_initiator::discover_which(&options, service.which())
    };
    match service.trsvcid {
        Some(port) => at(port),
        None => {
            let [first, second] = usual_ports(service);
            match at(first) {
                Err(error) if *error.kind() == ConnectErrorKind::Refused => at(second),
                answer => answer,
            }
        }
    }
}
