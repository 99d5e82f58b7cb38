//! `serve`: drives offered to hosts, from the command line or from a configuration, until a signal ends it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use ebof_manage::config::{BlockSize, Host, Namespace, Port, Subsystem};
use ebof_manage::{Config, Drive, Listen, Loaded, Target as _};
use ebof_nvme::{Nqn, Uuid};
use ebof_target::{Settings, Target};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;
use crate::global::{Format, Global};
use crate::output::json::Object;
use crate::output::text::{safe, si};
use crate::output::{View, print, say, show};
use crate::verbs::Outcome;

/// How long commands that were accepted may take to complete at the end.
const GRACE: Duration = Duration::from_secs(10);

/// What to serve, and how.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Drives: a file, FILE:SIZE (made when missing), a block device, mem:SIZE or null:SIZE
    #[arg(value_name = "DRIVE", required_unless_present = "config")]
    drives: Vec<String>,
    /// Everything from a file: TOML, or what `nvmetcli save` wrote
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["drives", "listen", "nqn", "allow_any_host", "host"])]
    config: Option<PathBuf>,
    /// Where to listen, as tcp://ADDRESS:PORT; several times for several ports [default: tcp://127.0.0.1:4420]
    #[arg(short, long, value_name = "URI")]
    listen: Vec<String>,
    /// The subsystem's NQN [default: one made from this machine's identity and the first drive]
    #[arg(short, long, value_name = "NQN")]
    nqn: Option<String>,
    /// Let any host connect (the default where only this machine can reach the ports)
    #[arg(long)]
    allow_any_host: bool,
    /// Let this host connect; several times for several hosts
    #[arg(long, value_name = "NQN", visible_alias = "allow-host")]
    host: Vec<String>,
    /// The subsystem's serial number, at most 20 characters
    #[arg(long, value_name = "TEXT")]
    serial: Option<String>,
    /// The subsystem's model number, at most 40 characters
    #[arg(long, value_name = "TEXT")]
    model: Option<String>,
    /// Size of a logical block, 512 or 4096 [default: the device's, else 512]
    #[arg(long, value_name = "BYTES")]
    block_size: Option<u32>,
    /// Keep hosts from writing
    #[arg(long)]
    write_protect: bool,
    /// In-capsule data of I/O queues, bytes [default: 8K]
    #[arg(long, value_name = "SIZE")]
    in_capsule_data: Option<String>,
    /// Always send a response capsule behind data (some hosts need it)
    #[arg(long)]
    no_c2h_success: bool,
    /// IP type of service of what is sent
    #[arg(long, value_name = "TOS")]
    tos: Option<u8>,
    /// Priority of what is sent (`SO_PRIORITY`)
    #[arg(long, value_name = "N")]
    so_priority: Option<u32>,
    /// How long a receive may poll the network card's queue, microseconds (`SO_BUSY_POLL`)
    #[arg(long, value_name = "US")]
    busy_poll: Option<u32>,
    /// Polling stands in for the network card's interrupts (`SO_PREFER_BUSY_POLL`)
    #[arg(long)]
    prefer_busy_poll: bool,
    /// Send data of reads of this size or more without a copy (`MSG_ZEROCOPY`), 4K or more: for real network cards
    #[arg(long, value_name = "SIZE", value_parser = crate::device::zerocopy_send)]
    zerocopy_send: Option<u32>,
    /// Serve metrics, state and refused connections over HTTP there
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Threads that serve queues [default: one for each processor]
    #[arg(long, value_name = "N")]
    threads: Option<u16>,
    /// Let these threads move between processors
    #[arg(long)]
    no_pin: bool,
    /// How long a thread without work looks for some before it sleeps, microseconds
    #[arg(long, value_name = "US", default_value_t = Settings::default().spin_us)]
    spin: u64,
    /// Connections at a time
    #[arg(long, value_name = "N")]
    max_connections: Option<u32>,
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(args: &Args, global: &Global) -> Outcome {
    let loaded = load(args)?;
    if !loaded.remarks.is_empty() {
        say(&loaded.remarks.to_string());
    }
    let config = loaded.config;
    let settings = settings(args, &config);
    // Signals are caught before anything is opened, so that none can end the process half-way.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("catching signals")?;
    raise_descriptor_limit(config.target.max_connections);
    let target = Arc::new(Target::start(config.clone(), settings)?);
    let metrics = match args.metrics.or(config.target.metrics) {
        Some(address) => Some(crate::metrics::serve(address, Arc::clone(&target))?),
        None => None,
    };
    let serving = Serving { config: &config, target: &target, metrics };
    match global.format {
        // One line: whoever started the target reads it and goes on.
        Format::Json => print(serving.json(false).to_line()?.as_bytes())?,
        Format::Normal | Format::Binary => show(global, &serving)?,
    }
    for signal in signals.forever() {
        if signal == SIGHUP {
            reload(args, &target);
        } else {
            break;
        }
    }
    if global.format == Format::Normal {
        say("shutting down; once more to end at once");
    }
    std::thread::spawn(move || {
        signals.forever().find(|&signal| signal != SIGHUP);
        std::process::exit(130);
    });
    target.stop(GRACE);
    Ok(ExitCode::SUCCESS)
}

fn load(args: &Args) -> anyhow::Result<Loaded> {
    let Some(path) = &args.config else {
        return Ok(from_arguments(args)?.checked("command line")?);
    };
    let mut loaded = crate::verbs::config::load(path)?;
    loaded.config.rebase(path.parent().unwrap_or(Path::new("")));
    Ok(loaded)
}

/// The configuration that the arguments describe: one subsystem with all drives as its namespaces.
fn from_arguments(args: &Args) -> anyhow::Result<Config> {
    let ports = ports(args)?;
    let nqn = match &args.nqn {
        Some(text) => nqn(text, "--nqn")?,
        None => default_nqn(&args.drives),
    };
    let local = ports.iter().all(|port| port.listen.address.is_loopback());
    if !local && !args.allow_any_host && args.host.is_empty() {
        let advice = "name the hosts with --host NQN, or let everyone in with --allow-any-host";
        return Err(
            Failure::usage("others than this machine can reach the ports, and no host is allowed", advice).into()
        );
    }
    let mut subsystem = Subsystem::new(nqn.clone());
    subsystem.allow_any_host = args.allow_any_host || args.host.is_empty();
    subsystem.allowed_hosts = args.host.iter().map(|text| self::nqn(text, "--host")).collect::<Result<_, _>>()?;
    subsystem.ports = ports.iter().map(|port| port.name.clone()).collect();
    if let Some(serial) = &args.serial {
        subsystem.serial.clone_from(serial);
    }
    if let Some(model) = &args.model {
        subsystem.model.clone_from(model);
    }
    let block_size = block_size(args.block_size)?;
    for (nsid, text) in (1..).zip(&args.drives) {
        let drive: Drive = text.parse().map_err(|error: ebof_manage::drive::DriveError| {
            Failure::usage(format!("the drive `{text}`: {error}"), error.advice())
        })?;
        let mut namespace = Namespace::new(&nqn, nsid, drive);
        namespace.block_size = block_size;
        namespace.write_protect = args.write_protect;
        subsystem.namespaces.push(namespace);
    }
    let mut config = Config { ports, subsystems: vec![subsystem], ..Config::default() };
    config.hosts = config.subsystems[0].allowed_hosts.iter().map(|nqn| Host { nqn: nqn.clone() }).collect();
    config.target.metrics = args.metrics;
    config.target.threads = args.threads;
    if let Some(max) = args.max_connections {
        config.target.max_connections = max;
    }
    Ok(config)
}

fn ports(args: &Args) -> anyhow::Result<Vec<Port>> {
    let mut listens = Vec::new();
    for text in &args.listen {
        let listen: Listen = text.parse().map_err(|error: ebof_manage::listen::ListenError| {
            Failure::usage(format!("--listen {text}: {error}"), error.advice())
        })?;
        listens.push(listen);
    }
    if listens.is_empty() {
        listens.push(Listen::loopback());
    }
    let in_capsule = match &args.in_capsule_data {
        Some(text) => {
            let bytes = ebof_manage::units::parse_size(text).ok().and_then(|bytes| u32::try_from(bytes).ok());
            Some(bytes.ok_or_else(|| {
                Failure::usage(format!("--in-capsule-data {text}: not a size"), "accepted: bytes, or 4K, 8K, 16K ...")
            })?)
        }
        None => None,
    };
    let mut ports = Vec::new();
    for (id, listen) in (1..).zip(listens) {
        let mut port = Port::new(id, listen);
        port.c2h_success = !args.no_c2h_success;
        (port.tos, port.so_priority) = (args.tos, args.so_priority);
        (port.busy_poll_us, port.prefer_busy_poll) = (args.busy_poll, args.prefer_busy_poll);
        port.zerocopy_send_bytes = args.zerocopy_send;
        if let Some(bytes) = in_capsule {
            port.in_capsule_data_bytes = bytes;
        }
        ports.push(port);
    }
    Ok(ports)
}

fn block_size(bytes: Option<u32>) -> Result<Option<BlockSize>, Failure> {
    match bytes {
        None => Ok(None),
        Some(512) => Ok(Some(BlockSize::B512)),
        Some(4096) => Ok(Some(BlockSize::B4096)),
        Some(other) => Err(Failure::usage(format!("--block-size {other}"), "accepted: 512 or 4096")),
    }
}

fn nqn(text: &str, option: &str) -> Result<Nqn, Failure> {
    Nqn::parse(text).map_err(|error| {
        let advice = "an NQN looks like nqn.2014-08.org.example:drive0";
        Failure::usage(format!("{option} {}: {error}", safe(text)), advice)
    })
}

/// A name that stays the same for this machine and drive.
fn default_nqn(drives: &[String]) -> Nqn {
    let machine = ebof_initiator::host::identity().id;
    let space = uuid::Uuid::from_bytes(machine.0);
    let first = drives.first().map_or("", String::as_str);
    let path = std::fs::canonicalize(first).map_or_else(|_| first.to_owned(), |path| path.display().to_string());
    Nqn::from_uuid(Uuid(uuid::Uuid::new_v5(&space, path.as_bytes()).into_bytes()))
}

fn settings(args: &Args, config: &Config) -> Settings {
    let target = &config.target;
    Settings {
        threads: target.threads.map(usize::from),
        pin: !args.no_pin,
        spin_us: args.spin,
        connections_max: target.max_connections,
        handshake_ms: u64::try_from(target.handshake_timeout.as_millis()).unwrap_or(u64::MAX),
        refused_journal: target.refused_journal as usize,
        ..Settings::default()
    }
}

/// A connection needs a descriptor, and the usual limit (1024) is far below the connections that are allowed.
fn raise_descriptor_limit(connections: u32) {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!("the limit of open files cannot be raised: {error}");
    }
    if let Some(maximum) = limit.maximum.filter(|&maximum| maximum < u64::from(connections)) {
        tracing::warn!(
            "{connections} connections are allowed but only {maximum} open files: raise it (LimitNOFILE= of systemd, \
             ulimit -n), or lower max_connections"
        );
    }
}

/// SIGHUP: the configuration is read again, and what can change without a new start does.
fn reload(args: &Args, target: &Target) {
    if args.config.is_none() {
        say("SIGHUP: there is no configuration file to read again");
        return;
    }
    match load(args) {
        Err(error) => tracing::error!("the configuration stays as it was: {error:#}"),
        Ok(loaded) => match target.apply(loaded.config) {
            Ok(plan) if plan.changes.is_empty() => tracing::info!("the configuration has not changed"),
            Ok(plan) => plan.changes.iter().for_each(|change| tracing::info!("{change}")),
            Err(error) => tracing::error!("the configuration stays as it was: {error}"),
        },
    }
}

/// What is served, said once at the start.
struct Serving<'a> {
    config: &'a Config,
    target: &'a Target,
    metrics: Option<SocketAddr>,
}

impl View for Serving<'_> {
    fn text(&self, _verbose: bool) -> String {
        let mut lines = Vec::new();
        for subsystem in &self.target.status().subsystems {
            lines.push(format!("subsystem {}", subsystem.nqn));
            for namespace in &subsystem.namespaces {
                let (size, block) = (si(namespace.size_bytes.into()), namespace.block_size_bytes);
                let protected = if namespace.write_protect { ", write protected" } else { "" };
                let drive = safe(&namespace.drive);
                lines.push(format!("  namespace {:<4} {size}, {block} B blocks{protected}: {drive}", namespace.nsid));
            }
        }
        let addresses = self.target.addresses();
        for (_, address) in &addresses {
            lines.push(format!("listening on tcp://{address}"));
        }
        if let Some(address) = self.metrics {
            lines.push(format!("metrics on http://{address}/metrics"));
        }
        if let (Some(subsystem), Some((_, address))) = (self.config.subsystems.first(), addresses.first()) {
            let host = if address.ip().is_unspecified() { "ADDRESS".to_owned() } else { address.ip().to_string() };
            let (port, nqn) = (address.port(), &subsystem.nqn);
            lines.push(format!("attach with: ebof connect -t tcp -a {host} -s {port} -n {nqn}"));
        }
        lines.join("\n") + "\n"
    }

    fn json(&self, _verbose: bool) -> Object {
        let status = serde_json::to_value(self.target.status()).unwrap_or_default();
        let listening: Vec<String> =
            self.target.addresses().iter().map(|(_, address)| format!("tcp://{address}")).collect();
        Object::document("serve", 1)
            .with("pid", u64::from(std::process::id()))
            .with("listening", listening)
            .with("metrics", self.metrics.map(|address| format!("http://{address}/metrics")))
            .with("status", status)
    }
}
