//! `serve`: serves drives to hosts, by arguments or a configuration, until a signal ends it.

mod basis;
mod configuration;
mod host_keys;
mod made;
mod missing;
mod network;
mod remembered;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use ebof_manage::api::{DriveStatus, MissingKind, MissingObject, PortStatus, Status, SubsystemStatus};
use ebof_manage::config::PortTls;
use ebof_manage::{Config, Target as _};
use ebof_server::{Settings, Target};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;

use ebof_cli::Kind;
use ebof_cli::Outcome;
use ebof_cli::Supervisor;
use ebof_cli::output::json::Object;
use ebof_cli::output::text::{safe, si, si_and_binary};
use ebof_cli::output::{View, print, say, show};
use ebof_cli::{Failure, Global, OutputFormat};

use crate::control::ControlEndpoint;
use crate::managed::Managed;
use crate::managed::audit::Auditing;
use crate::notify;
use crate::reload::{Reloads, Signal, StartedWith};
use crate::rights::restart::{self, Means};
use crate::rights::{Confined, OwnPlaces, RightsArgs};

use basis::Basis;
use missing::Late;
use network::{RemoteManagement, RemoteWanted, ServedNetwork};

/// Descriptors reserved for drives, threads, the metrics endpoint and reloading.
const DESCRIPTORS_KEPT: u64 = 512;

/// Time for accepted commands to complete when stopping. With what a device that does not answer
/// and the audit log may take more, it is below the TimeoutStopSec of the unit.
const GRACE: Duration = Duration::from_secs(10);

/// Time for the audit log to be written when stopping.
const AUDIT_GRACE: Duration = Duration::from_secs(2);

/// What to serve, and how.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Drives that are a namespace each: a file, FILE:SIZE (made when missing), a block device,
    /// mem:SIZE or null:SIZE
    #[arg(value_name = "DRIVE")]
    drives: Vec<String>,
    /// A drive whose hosts create its namespaces: name=NAME,backing=PATH,size=SIZE and more;
    /// several times for several drives, each with a subsystem of its own
    #[arg(long, value_name = "KEY=VALUE,...")]
    drive: Vec<String>,
    /// Everything from a file: TOML, or what `nvmetcli save` wrote
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["drives", "drive", "listen", "nqn", "allow_any_host", "host", "authenticated"])]
    config: Option<PathBuf>,
    /// Begin with this file where the target goes by its state directory, as it does without drives
    /// and --config: it takes the place of the configuration that was in force
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "drives", "drive"])]
    import: Option<PathBuf>,
    /// Where to listen, as tcp://ADDRESS:PORT or rdma://ADDRESS:PORT; several times for several
    /// ports [default: tcp://127.0.0.1:4420]
    #[arg(short, long, value_name = "URI")]
    listen: Vec<String>,
    /// The subsystem's NQN [default: one made from this machine's identity and the first drive].
    /// Where there are several subsystems, a drive's is NQN:NAME
    #[arg(short, long, value_name = "NQN")]
    nqn: Option<String>,
    /// Let any host connect (the default where only this machine can reach the ports)
    #[arg(long)]
    allow_any_host: bool,
    /// Let this host connect; several times for several hosts
    #[arg(long, value_name = "NQN", visible_alias = "allow-host")]
    host: Vec<String>,
    /// Hosts have to prove who they are by a key, which `ebof target add key HOST` gives them
    #[arg(long)]
    authenticated: bool,
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
    /// In-capsule data of I/O queues, bytes [default: 8Ki]
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
    /// How long a receive may poll the network card's queue, microseconds (`SO_BUSY_POLL`); over
    /// RDMA, how long a thread polls for completions before it sleeps
    #[arg(long, value_name = "US")]
    busy_poll: Option<u32>,
    /// Polling stands in for the network card's interrupts (`SO_PREFER_BUSY_POLL`); over RDMA,
    /// threads with connections never sleep
    #[arg(long)]
    prefer_busy_poll: bool,
    /// Send data of reads of this size or more without a copy (`MSG_ZEROCOPY`), 4Ki or more: for
    /// real network cards
    #[arg(long, value_name = "SIZE", value_parser = ebof_cli::zerocopy_send)]
    zerocopy_send: Option<u32>,
    /// Serve metrics, state and refused connections over HTTP there
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// The socket through which `ebof target` manages the target, or none [default: control.sock in
    /// the runtime directory, /run/ebof for root]
    #[arg(long, value_name = "PATH|none")]
    control: Option<String>,
    /// The state directory, where configurations are stored, or none. Without drives and --config,
    /// the one in force is served again [default: /var/lib/ebof for root, else ~/.local/state/ebof]
    #[arg(long, value_name = "DIR|none")]
    state: Option<String>,
    /// Make files that are missing, and drives where there are none, although they were served
    /// before. Without it a start makes only what is new
    #[arg(long)]
    create: bool,
    /// Let the target be managed over HTTPS there, by users with accounts: Redfish, the page, and
    /// `ebof target --server`
    #[arg(long, value_name = "ADDRESS:PORT")]
    https: Option<SocketAddr>,
    /// The same without TLS, for programs of this machine: a loopback address
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<SocketAddr>,
    /// Threads that serve queues [default: one for each processor]
    #[arg(long, value_name = "N")]
    threads: Option<u16>,
    /// Keep each of these threads on a processor of its own, for machines that do nothing else
    #[arg(long)]
    pin: bool,
    /// How long a thread without work looks for some before it sleeps, microseconds: at least,
    /// unless work is rare; 0 never looks
    #[arg(long, value_name = "US", default_value_t = Settings::default().spin_us)]
    spin: u64,
    /// Connections at a time
    #[arg(long, value_name = "N")]
    max_connections: Option<u32>,
    #[command(flatten)]
    rights: RightsArgs,
    /// Do not start unless every device and address can be had, as it is with drives on the command
    /// line; else what is missing is looked for until it is there
    #[arg(long)]
    strict: bool,
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(args: &Args, global: &Global) -> Outcome {
    end_with_any_panic();
    let mut basis = Basis::read(args, Kind::Any)?;
    if !basis.remarks.is_empty() {
        say(&format!("{:#}", basis.remarks));
    }
    let config = basis.config.clone();
    let mut settings = settings(args, &config);
    settings.environment.making = basis.making(args.create);
    let descriptors = Settings::descriptors_of_connection(&config);
    // Signals are handled before anything is opened, so that none ends the process in between.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1]).context("catching signals")?;
    // Beyond a limit on file sizes a write shall fail, but SIGXFSZ must not end the process.
    signal_hook::flag::register(SIGXFSZ, Arc::default()).context("catching signals")?;
    settings.connections_max = with_enough_descriptors(settings.connections_max, descriptors);
    // Who types what is to be served is there to mend it.
    let is_strict = args.strict || config.target.strict || matches!(basis.started_with, StartedWith::Arguments);
    settings.strict = is_strict;
    let metrics = args.metrics.or(config.target.metrics);
    let syslog = config.target.audit_syslog.clone();
    let control = args.control.clone().or_else(|| config.target.control.clone());
    let wanted = RemoteWanted::from_args(args, &config.target, basis.directory())?;
    let confined = confine(args, &config, &basis.own(args, control.as_deref()), &mut settings)?;
    let opened = wanted.as_ref().map(RemoteWanted::open);
    if is_strict && let Some(Err(error)) = opened {
        return Err(error);
    }
    basis.finish_interrupted();
    if let Some(directory) = basis.directory() {
        let remembered = remembered::remember(&mut settings.environment, &directory, basis.is_named);
        remembered.map_err(|error| crate::reload::generations::failure(&error))?;
        settings.environment.stored_keys = Arc::new(host_keys::open(&directory, args.create)?);
    }
    let target = Arc::new(Target::start(config, settings)?);
    basis.keep(&target, &target.config())?;
    let mut late = Late::new(is_strict, &target);
    let metrics = metrics.map(|address| serve_metrics(address, &target, &mut late)).transpose()?.flatten();
    let supervisor = Arc::new(Supervisor::of_environment());
    let directory = basis.directory();
    restart::by(confined.restart(supervisor.is_there()));
    let Basis { started_with, generations, .. } = basis;
    let reloads = Reloads::start(started_with, generations, confined, Arc::clone(&target), Arc::clone(&supervisor))
        .map(Arc::new)?;
    let remote = opened.as_ref().and_then(|opened| Some(opened.as_ref().ok()?.remote()));
    let managed = Managed::new(&target, &reloads, remote);
    audit(&managed, directory, syslog.as_deref(), is_strict)?;
    let control = crate::control::serve(control.as_deref(), &managed)?;
    let network = wanted.zip(opened).map(|(wanted, opened)| serve_network(&wanted, opened, &managed, &mut late));
    let network = network.transpose()?.flatten();
    late.watch()?;
    let control_path = control.as_ref().map(ControlEndpoint::path);
    let serving =
        Serving { target: &target, metrics, control: control_path, reloads: &reloads, network: network.as_ref() };
    let told = match global.format {
        // One line, for the user who started the target.
        OutputFormat::Json => print(serving.json(false).to_line()?.as_bytes()),
        OutputFormat::Normal | OutputFormat::Binary => show(global, &serving),
    };
    if !restart::is_again() {
        told?;
    }
    let announcing = crate::mdns::start(&target)?;
    notify::watch(&supervisor, &target)?;
    supervisor.ready(&notify::summary(&target));
    for signal in signals.forever() {
        match signal {
            SIGHUP => reloads.signal(Signal::Reload),
            SIGUSR1 => reloads.signal(Signal::Rescan),
            _ => break,
        }
    }
    // Before its ports close.
    drop(announcing);
    stop(signals, control, &managed, &supervisor, global)
}

/// Gives up what the target does not need, while this is its only thread.
fn confine(args: &Args, config: &Config, own: &OwnPlaces<'_>, settings: &mut Settings) -> Result<Confined, Failure> {
    let confined = Confined::now(&args.rights.wanted(&config.target), config, own)?;
    settings.confinement = Some(confined.told.clone());
    settings.environment.fence(confined.fence());
    Ok(confined)
}

/// Ends, or begins again. A second signal ends at once.
fn stop(
    mut signals: Signals,
    control: Option<ControlEndpoint>,
    managed: &Managed,
    supervisor: &Supervisor,
    global: &Global,
) -> Outcome {
    let takes_own_place = restart::is_asked() && restart::means() == Means::Itself;
    if takes_own_place {
        // The supervisor waits for the next start as for a reload.
        supervisor.reloading();
    } else {
        supervisor.stopping();
    }
    if global.format == OutputFormat::Normal {
        say("shutting down; once more to end at once");
    }
    std::thread::spawn(move || {
        signals.forever().find(|&signal| signal != SIGHUP && signal != SIGUSR1);
        std::process::exit(130);
    });
    // Nothing is changed any more, and the next target may have the path.
    drop(control);
    let hanging = managed.target.stop(GRACE);
    if let Some(audit) = managed.audit() {
        audit.flush(AUDIT_GRACE);
    }
    if let Some(hanging) = hanging {
        tracing::error!("{hanging}");
        // What is left holds parts of the target: nothing here waits for those.
        std::process::exit(1);
    }
    if takes_own_place {
        return Err(restart::again());
    }
    if restart::is_asked() {
        return Ok(ExitCode::from(restart::STATUS));
    }
    Ok(ExitCode::SUCCESS)
}

/// Serves metrics, or does so later.
fn serve_metrics(address: SocketAddr, target: &Arc<Target>, late: &mut Late) -> anyhow::Result<Option<SocketAddr>> {
    let served = crate::metrics::serve(address, Arc::clone(target));
    let target = Arc::clone(target);
    let later = move || crate::metrics::serve(address, Arc::clone(&target)).map(drop);
    late.or_later(served, MissingKind::Metrics, format!("http://{address}"), later)
}

/// Begins to write the audit log, where there is a state directory. What is wrong with what is
/// there is told, and is in the log; where it cannot be read at all, the target is served without,
/// unless all has to be there.
fn audit(
    managed: &Managed,
    directory: Option<Arc<ebof_state::StateDirectory>>,
    syslog: Option<&str>,
    is_strict: bool,
) -> anyhow::Result<()> {
    let Some(directory) = directory else {
        if syslog.is_some() {
            tracing::warn!("there is no state directory, and so no audit log that could be sent to syslog");
        }
        return Ok(());
    };
    let syslog = syslog.map(str::parse).transpose().context("`audit_syslog` in [target]")?;
    let path = directory.path().display().to_string();
    let auditing = Auditing::start(directory, &managed.target, syslog, &crate::https::host_name());
    match auditing {
        // The first and only one.
        Ok(auditing) => drop(managed.auditing.set(auditing)),
        Err(error) => {
            let advice = format!("see to the files {path}/audit-*.log; move them away to begin anew");
            if is_strict {
                return Err(ebof_cli::Failure::new("state", error.to_string(), advice).into());
            }
            tracing::error!("nothing is recorded: {error}; {advice}");
        }
    }
    Ok(())
}

/// Lets the target be managed over the network, or does so later.
fn serve_network(
    wanted: &RemoteWanted,
    opened: anyhow::Result<RemoteManagement>,
    managed: &Arc<Managed>,
    late: &mut Late,
) -> anyhow::Result<Option<ServedNetwork>> {
    let started = opened.and_then(|opened| wanted.start(opened, managed));
    let (again, all) = (wanted.clone(), Arc::clone(managed));
    let names: Vec<String> = wanted.names().into_iter().map(|(_, name)| name).collect();
    let later = move || again.serve_later(&all);
    let Some(mut served) = late.or_later(started, MissingKind::Management, names.join(", "), later)? else {
        return Ok(None);
    };
    for (scheme, name) in wanted.names() {
        let doors = Arc::clone(managed.reloads.doors());
        let opened = doors.open(scheme);
        let later = move || {
            let address = doors.open(scheme)?;
            address.iter().for_each(|address| say(&format!("managed at {scheme}://{address}")));
            Ok(())
        };
        served.found(scheme, late.or_later(opened, MissingKind::Management, name, later)?.flatten());
    }
    Ok(Some(served))
}

/// A panic of any thread ends the process, so that its supervisor restarts it: hosts would wait for
/// ever for the dead thread.
fn end_with_any_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        // Hosts do not wait for that one.
        if std::thread::current().name() != Some(ebof_mdns::THREAD) {
            std::process::abort();
        }
    }));
}

fn settings(args: &Args, config: &Config) -> Settings {
    let mut settings = Settings { pin: args.pin, spin_us: args.spin, ..Settings::of(config) };
    settings.environment.machine = ebof_initiator::host::machine().0;
    settings
}

/// The most connections, each of which takes `descriptors`. The usual limit of descriptors (1024)
/// is far below the allowed connections, so it is raised as far as the system permits. Some
/// descriptors are reserved, so that a flood of connections cannot prevent opening drives and
/// answering metrics.
fn with_enough_descriptors(connections: u32, descriptors: u32) -> u32 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!("the limit of open files cannot be raised: {error}");
    }
    let now = getrlimit(Resource::Nofile).current;
    let possible = now.map_or(u32::MAX, |files| connections_within(files, descriptors));
    if possible < connections {
        let files = now.unwrap_or_default();
        tracing::warn!(
            "{connections} connections are allowed, each of up to {descriptors} open files, but only {files} open files, \
             and so {possible} connections: raise it (LimitNOFILE= of systemd, ulimit -n), or lower max_connections"
        );
    }
    connections.min(possible)
}

/// How many connections there can be that take `descriptors` each, with a limit of `files`.
fn connections_within(files: u64, descriptors: u32) -> u32 {
    let room = files.saturating_sub(DESCRIPTORS_KEPT).max(files / 2) / u64::from(descriptors);
    u32::try_from(room).unwrap_or(u32::MAX)
}

/// What is served, printed once at the start.
struct Serving<'a> {
    target: &'a Target,
    metrics: Option<SocketAddr>,
    control: Option<&'a Path>,
    reloads: &'a Reloads,
    network: Option<&'a ServedNetwork>,
}

impl View for Serving<'_> {
    fn text(&self, _verbose: bool) -> String {
        let network = self.network.map(ServedNetwork::text).unwrap_or_default();
        text(&as_named(self.target.status()), self.metrics)
            + &network
            + &made_text(&self.made_files())
            + &state_text(self.target, self.reloads)
    }

    fn json(&self, _verbose: bool) -> Object {
        let status = self.target.status();
        let listening: Vec<String> = status.ports.iter().map(listening).collect();
        let status = serde_json::to_value(status).unwrap_or_default();
        Object::document("serve", 1)
            .with("pid", u64::from(std::process::id()))
            .with("listening", listening)
            .with("metrics", self.metrics.map(|address| format!("http://{address}/metrics")))
            .with("control", self.control.map(|path| path.display().to_string()))
            .with("state", self.reloads.generations().map(|generations| generations.path().display().to_string()))
            .with("https", self.network.and_then(ServedNetwork::https))
            .with("http", self.network.and_then(ServedNetwork::http))
            .with("fingerprint", self.network.map(ServedNetwork::fingerprint))
            .with("initial_password", self.network.and_then(ServedNetwork::initial_password))
            .with("made", self.made_files())
            .with("status", status)
    }
}

impl Serving<'_> {
    /// What was not there, and is now.
    fn made_files(&self) -> Vec<String> {
        let of_network = self.network.map(ServedNetwork::made_files).unwrap_or_default();
        let mut made = self.target.made();
        made.iter_mut().for_each(shorten);
        made.extend_from_slice(of_network);
        made
    }
}

/// One line: whoever expects these to be there is to see that they were not.
fn made_text(made: &[String]) -> String {
    if made.is_empty() {
        return String::new();
    }
    let made: Vec<_> = made.iter().map(|it| safe(it)).collect();
    format!("made, because it was not there: {}\n", made.join(", "))
}

/// What a target that goes by its state directory tells of it.
fn state_text(target: &Target, reloads: &Reloads) -> String {
    let (StartedWith::State(path), Some(generations)) = (reloads.started_with(), reloads.generations()) else {
        return String::new();
    };
    let generation = generations.current().unwrap_or_default();
    let mut text = format!("state directory {}, generation {generation}\n", safe(&path.display().to_string()));
    let config = target.config();
    if config.ports.is_empty() || config.subsystems.is_empty() {
        text += "add what is missing with: ebof target add port tcp://ADDRESS:PORT; ebof target add subsystem NQN --drive \
                 FILE:SIZE --allow-any-host\n";
    }
    text
}

/// The status with paths below the working directory as its user writes them.
fn as_named(mut status: Status) -> Status {
    status.subsystems.iter_mut().flat_map(|it| &mut it.namespaces).for_each(|it| shorten(&mut it.drive));
    status.drives.iter_mut().for_each(|it| shorten(&mut it.backing));
    status
}

fn shorten(path: &mut String) {
    let directory = std::env::current_dir().map(|directory| format!("{}/", directory.display())).unwrap_or_default();
    if let Some(rest) = path.strip_prefix(&directory) {
        *path = rest.to_owned();
    }
}

/// The most subsystems for which a command to attach them is printed.
const ATTACH_LINES_MAX: usize = 4;

/// `tcp://192.0.2.1:4420`
fn listening(port: &PortStatus) -> String {
    match &port.socket {
        Some(socket) => format!("{}:{socket}", port.transport),
        None => format!("{}://{}", port.transport, port.address),
    }
}

fn text(status: &Status, metrics: Option<SocketAddr>) -> String {
    let mut lines = Vec::new();
    let drive_of = |nqn: &str| status.drives.iter().find(|drive| drive.subsystem_nqn.as_deref() == Some(nqn));
    for subsystem in status.enabled_subsystems() {
        lines.push(format!("subsystem {}", subsystem.nqn));
        if subsystem.allow_any_host && subsystem.security.is_anyone() {
            lines.push("  for anyone: any host, without a proof of who it is".to_owned());
        }
        if subsystem.security.wants_authentication() {
            lines.push("  for hosts that prove who they are: `ebof target add key HOST` gives a host a key".to_owned());
        }
        if subsystem.security.wants_tls() {
            lines.push("  for hosts over TLS: `ebof target add key HOST --kind tls` gives a host a key".to_owned());
        }
        if let Some(drive) = drive_of(&subsystem.nqn) {
            lines.push(format!("  {}", drive_line(drive)));
        }
        for namespace in subsystem.enabled_namespaces() {
            let size = si_and_binary(namespace.size_bytes.into());
            let block = namespace.block_size_bytes;
            let protected = if namespace.write_protect { ", write protected" } else { "" };
            let drive = safe(&namespace.drive);
            lines.push(format!("  namespace {:<4} {size}, {block} B blocks{protected}: {drive}", namespace.nsid));
        }
    }
    lines.extend(disabled_line(status));
    lines.extend(status.missing.iter().map(missing_line));
    lines.extend(status.ports.iter().map(|port| format!("listening on {}", listening(port))));
    lines.extend(metrics.map(|address| format!("metrics on http://{address}/metrics")));
    lines.extend(status.enabled_subsystems().filter_map(|it| attach_line(status, it)).take(ATTACH_LINES_MAX));
    if status.drives.iter().any(|drive| drive.namespaces == 0) {
        // No error, but the next step is not obvious: a new drive has no namespace yet.
        let verbs = "ebof create-ns nvme0 -S SIZE; ebof attach-ns nvme0 -n 1";
        lines.push(format!("make a namespace on a drive that has none with: {verbs}"));
    }
    lines.join("\n") + "\n"
}

/// How a host connects to a subsystem, if it can: at a port that has it. What is at direct ports is
/// there for their virtual machines without a connect.
fn attach_line(status: &Status, subsystem: &SubsystemStatus) -> Option<String> {
    let SubsystemStatus { security, .. } = subsystem;
    let has_it = |port: &&PortStatus| {
        let has_tls = port.tls != PortTls::Off || !security.wants_tls();
        port.socket.is_none() && !port.discovery_only && subsystem.ports.contains(&port.name) && has_tls
    };
    // Without TLS where it is not needed.
    let by_tls = |port: &&PortStatus| port.tls == PortTls::Required;
    let PortStatus { transport, address, tls, .. } = status.ports.iter().filter(has_it).min_by_key(by_tls)?;
    let mut keys = String::new();
    if security.wants_authentication() {
        keys += " --dhchap-secret-file FILE";
    }
    if security.wants_tls() || *tls == PortTls::Required {
        keys += " --tls --tls-key-file FILE";
    }
    let host = if address.ip().is_unspecified() { "ADDRESS".to_owned() } else { address.ip().to_string() };
    let (port, nqn) = (address.port(), &subsystem.nqn);
    Some(format!("attach with: ebof connect -t {transport} -a {host} -s {port} -n {nqn}{keys}"))
}

/// What is in the configuration, and not there for hosts.
fn disabled_line(status: &Status) -> Option<String> {
    let ports = status.disabled_ports.iter().map(|name| format!("port {}", safe(name)));
    let of_subsystem = |subsystem: &SubsystemStatus| {
        let namespaces = subsystem.namespaces.iter().filter(|namespace| subsystem.enabled && !namespace.enabled);
        let nqn = subsystem.nqn.clone();
        let itself = (!subsystem.enabled).then(|| format!("subsystem {nqn}"));
        let namespaces = namespaces.map(move |namespace| format!("namespace {nqn}/{}", namespace.nsid));
        itself.into_iter().chain(namespaces).collect::<Vec<_>>()
    };
    let disabled: Vec<_> = ports.chain(status.subsystems.iter().flat_map(of_subsystem)).collect();
    (!disabled.is_empty()).then(|| format!("disabled: {}", disabled.join(", ")))
}

/// `MISSING port a: ...`
fn missing_line(missing: &MissingObject) -> String {
    let MissingObject { kind, name, reason, .. } = missing;
    format!("MISSING {kind} {}: {}", safe(name), safe(reason))
}

/// `drive d0: 107.37 GB, 7.37 GB unallocated, profile default, 2 namespaces: disk.img`
fn drive_line(drive: &DriveStatus) -> String {
    let unallocated = match drive.unallocated_bytes {
        all if all == drive.capacity_bytes => String::new(),
        some => format!(", {} unallocated", si(some.into())),
    };
    let namespaces = match drive.namespaces {
        0 => "no namespace yet".to_owned(),
        1 => "1 namespace".to_owned(),
        several => format!("{several} namespaces"),
    };
    let (name, size, profile, backing) =
        (&drive.name, si_and_binary(drive.capacity_bytes.into()), &drive.profile, safe(&drive.backing));
    format!("drive {name}: {size}{unallocated}, profile {profile}, {namespaces}: {backing}")
}

#[cfg(test)]
mod tests;
