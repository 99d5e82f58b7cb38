//! `connect`, `disconnect`, `disconnect-all`. The attach daemon, which owns the block devices, is
//! in `ebof-attach`; `connect-all` is in `verbs/connect_all.rs`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use ebof_attach::{Kind, Report, Select};
use ebof_nvme::Nqn;

use super::Outcome;
use super::fabric::{DISCOVERY_PORT, FabricArgs, IO_PORT, set_timeout};
use super::record::tls_of;
use crate::failure::{self, Failure};
use crate::global::Global;
use crate::output::attached::ConnectView;
use crate::output::connections::DisconnectView;
use crate::output::text::safe;
use crate::output::{say, show};

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
        self.fabric.check_subsystem()?;
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
