//! `rdma-check`: the RDMA devices of this machine, what prevents connections, and what a link to
//! another machine can do.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use clap::ValueEnum;
use ebof_bench::rdma::{Client, Error, Operation, PORT, Plan, Refusal, Responder, Served};
use ebof_verbs::diagnosis::{Facts, Obstacle, source_for};
use ebof_verbs::{DeviceInfo, Network};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::Outcome;
use crate::failure::Failure;
use crate::global::{Global, OutputFormat};
use crate::output::rdma::{ClientView, DevicesView, ServedView};
use crate::output::{self, say};

/// RDMA devices and links.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RdmaCheck {
    /// Another machine on which `ebof rdma-check --listen` runs: look whether it can be reached,
    /// and measure [default: show the devices of this machine]
    #[arg(value_name = "ADDRESS", conflicts_with = "listen")]
    peer: Option<String>,
    /// Answer measurements, at this address
    #[arg(short, long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "0.0.0.0")]
    listen: Option<IpAddr>,
    /// The port of the RDMA connection manager
    #[arg(short = 's', long, value_name = "PORT", default_value_t = PORT)]
    trsvcid: u16,
    /// The local address to connect from
    #[arg(short = 'w', long, value_name = "ADDRESS", requires = "peer")]
    host_traddr: Option<IpAddr>,
    /// What is measured, separated by commas [default: all]
    #[arg(short, long, value_name = "OPERATION", value_delimiter = ',', requires = "peer")]
    test: Vec<Test>,
    /// Bytes of a message or transfer, for bandwidth
    #[arg(long, value_name = "SIZE", default_value = "64K", value_parser = crate::verbs::bench::bytes)]
    size: u64,
    /// Bytes of a message or transfer, for latency
    #[arg(long, value_name = "SIZE", default_value = "2", value_parser = crate::verbs::bench::bytes)]
    latency_size: u64,
    /// Messages or transfers for each figure
    #[arg(short = 'n', long, value_name = "N", default_value_t = Plan::default().count)]
    iterations: u64,
    /// Messages or transfers under way at once, for bandwidth
    #[arg(long, value_name = "N", default_value_t = Plan::default().depth)]
    depth: u32,
    /// Only look whether ADDRESS can be reached; nothing is sent
    #[arg(long, requires = "peer")]
    no_measure: bool,
}

/// An operation to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Test {
    /// Messages
    Send,
    /// RDMA WRITE
    Write,
    /// RDMA READ
    Read,
}

impl Test {
    fn operation(self) -> Operation {
        match self {
            Self::Send => Operation::Send,
            Self::Write => Operation::Write,
            Self::Read => Operation::Read,
        }
    }
}

impl RdmaCheck {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let network = Network::system();
        let facts = Facts::collect(network.as_ref().err().map(ToString::to_string));
        match (&self.peer, self.listen, network) {
            (Some(peer), _, network) => self.check(peer, &facts, network.ok().as_ref(), global),
            (None, Some(_), Err(_)) => Err(blocked(&facts.obstacles())),
            (None, Some(address), Ok(network)) => self.serve(address, &facts, &network, global),
            (None, None, network) => show(facts, network.ok().as_ref(), global),
        }
    }

    /// Looks for the way to a peer, and measures it.
    fn check(&self, peer: &str, facts: &Facts, network: Option<&Network>, global: &Global) -> Outcome {
        let address = resolve(peer, self.trsvcid)?;
        let source = self.host_traddr.map_or_else(|| source_for(address.ip()), Ok);
        let local = source.clone().ok();
        let obstacles = facts.obstacles_to(address.ip(), source);
        let Some(network) = network.filter(|_| obstacles.is_empty()) else { return Err(blocked(&obstacles)) };
        let mut view = ClientView { address, local, measured: Vec::new() };
        if self.no_measure {
            output::show(global, &view)?;
            return Ok(ExitCode::SUCCESS);
        }
        let client = Client::new(network, address, self.host_traddr, self.plan());
        for operation in self.operations() {
            say(&format!("measuring {} ...", operation.name()));
            view.measured.push(client.measure(operation).map_err(|error| failure(&error, address))?);
        }
        output::show(global, &view)?;
        Ok(ExitCode::SUCCESS)
    }

    fn operations(&self) -> Vec<Operation> {
        match self.test.as_slice() {
            [] => Operation::ALL.to_vec(),
            some => some.iter().map(|test| test.operation()).collect(),
        }
    }

    fn plan(&self) -> Plan {
        let bytes = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        Plan {
            bytes: bytes(self.size),
            latency_bytes: bytes(self.latency_size),
            depth: self.depth,
            count: self.iterations,
            ..Plan::default()
        }
    }

    /// Answers measurements until it is interrupted.
    fn serve(&self, address: IpAddr, facts: &Facts, network: &Network, global: &Global) -> Outcome {
        let obstacles =
            if address.is_unspecified() { facts.obstacles() } else { facts.obstacles_to(address, Ok(address)) };
        if !obstacles.is_empty() {
            return Err(blocked(&obstacles));
        }
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted)).context("catching signals")?;
        }
        let address = SocketAddr::new(address, self.trsvcid);
        let mut server = Responder::listen(network, address).map_err(|error| failure(&error, address))?;
        say(&format!("answering measurements at {}; Ctrl-C ends it", server.address()));
        while !interrupted.load(Ordering::Relaxed) {
            if let Some(served) = server.serve().map_err(|error| failure(&error, address))? {
                report(&served, global)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// One line for each connection that was served.
fn report(served: &Served, global: &Global) -> anyhow::Result<()> {
    let view = ServedView(served);
    match global.format {
        OutputFormat::Json => output::print(view.line()?.as_bytes()),
        OutputFormat::Normal | OutputFormat::Binary => output::print(view.text_line().as_bytes()),
    }
}

/// Shows the devices; fails where something prevents all connections.
fn show(facts: Facts, network: Option<&Network>, global: &Global) -> Outcome {
    let devices: Vec<DeviceInfo> = match network.map(Network::devices) {
        Some(Ok(devices)) => devices,
        Some(Err(error)) => {
            say(&format!("the devices cannot be opened, and less is shown of them: {error}"));
            Vec::new()
        }
        None => Vec::new(),
    };
    let obstacles = facts.obstacles();
    let view = DevicesView { systems: facts.devices.unwrap_or_default(), devices, obstacles };
    output::show(global, &view)?;
    Ok(if view.obstacles.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The first address of a name.
fn resolve(peer: &str, port: u16) -> anyhow::Result<SocketAddr> {
    let advice = "write an IP address, or a name that the system resolves";
    let unknown = |error: &dyn std::fmt::Display| {
        Failure::new("unknown-address", format!("the address of {peer} is not known: {error}"), advice)
    };
    let mut addresses = (peer, port).to_socket_addrs().map_err(|error| unknown(&error))?;
    Ok(addresses.next().ok_or_else(|| unknown(&"it has none"))?)
}

/// All obstacles as one error, with the advice for each.
fn blocked(obstacles: &[Obstacle]) -> anyhow::Error {
    let kind = obstacles.first().map_or("rdma", Obstacle::kind);
    let messages: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
    let advice: Vec<String> = obstacles.iter().map(Obstacle::advice).collect();
    Failure::new(kind, messages.join("; "), advice.join("\n  ")).into()
}

fn failure(error: &Error, address: SocketAddr) -> anyhow::Error {
    let message = match error {
        Error::Verbs(error) => error.to_string(),
        error => format!("{address}: {error}"),
    };
    let advice = match error {
        Error::Rejected(Refusal::NobodyListens) => {
            format!("start `ebof rdma-check --listen {} -s {}` there", address.ip(), address.port())
        }
        Error::Rejected(Refusal::Unknown) | Error::Protocol(_) => {
            "start `ebof rdma-check --listen` of this version there, or choose another port with -s".into()
        }
        Error::Rejected(Refusal::Limits) => "choose a smaller --size or --depth".into(),
        Error::Rejected(Refusal::Resources | Refusal::Other(_)) => "look at what the other end says".into(),
        Error::NoAnswer => format!(
            "look whether `ping {}` is answered, whether the other end is up, and whether a firewall lets RoCE v2 pass \
             (UDP port 4791)",
            address.ip()
        ),
        Error::Closed | Error::Work { .. } => "look at the link (`ip -s link`) and at what the other end says".into(),
        Error::Verbs(ebof_verbs::Error::AddressInUse(_)) => {
            "another program listens there (with iWARP also one for TCP); choose another -s".into()
        }
        Error::Verbs(_) => "`ebof rdma-check` shows the devices, `ebof rdma-check ADDRESS --no-measure` the way".into(),
    };
    Failure::new("rdma", message, advice).into()
}
