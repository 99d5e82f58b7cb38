//! The DEVICE argument: a controller or namespace that verbs send commands to, whether this machine
//! is connected to it (`nvme0`, `nvme0n1`) or a URI says where it is. What the commands mean is in
//! `command`.

mod attached;
pub(crate) mod dry_run;
#[cfg(test)]
pub(crate) mod fake;
mod remote;

use std::time::Duration;

use ebof_attach::usage::LocalDevice;
use ebof_initiator::overrides::parse;
use ebof_initiator::{AdminData, Options, Overrides};
use ebof_nvme::uri::Uri;
use ebof_nvme::{Cqe, HostId, Nqn, Nsid, Sqe};

use crate::failure::Failure;
use crate::global::Global;

/// Something that takes commands.
pub(crate) trait Device {
    /// What the user called it.
    fn name(&self) -> &str;

    /// The namespace that the name names, if it names one.
    fn nsid(&self) -> Option<Nsid>;

    /// Runs an admin command and waits; a status other than success is no error.
    ///
    /// # Errors
    /// There will be no answer.
    fn admin(&mut self, sqe: &Sqe, data: AdminData<'_>) -> anyhow::Result<Cqe>;

    /// Runs an I/O command and waits; a status other than success is no error.
    ///
    /// # Errors
    /// There will be no answer.
    fn io(&mut self, sqe: &Sqe, data: AdminData<'_>) -> anyhow::Result<Cqe>;

    /// Lets the admin commands that follow take this long, unless the user said how long they may.
    fn allow(&mut self, time: Duration);

    /// The connected controller that its block devices on this machine belong to (`nvme0`); `None`
    /// where it has none.
    fn attached(&self) -> Option<&str>;

    /// The block devices of this machine that are namespaces of its subsystem, by whatever way they
    /// came.
    ///
    /// # Errors
    /// What is attached here cannot be found out.
    fn local_devices(&self) -> anyhow::Result<Vec<LocalDevice>>;

    /// Whether commands are shown in place of being sent, so that nothing has to be confirmed.
    fn is_dry_run(&self) -> bool {
        false
    }

    /// Drops the connections and makes new ones.
    ///
    /// # Errors
    /// It does not come back.
    fn reset(&mut self) -> anyhow::Result<()>;

    /// Has the block devices follow the namespaces that came, went or changed.
    ///
    /// # Errors
    /// It has no block devices, or cannot be reached.
    fn rescan(&mut self) -> anyhow::Result<()>;
}

/// The DEVICE argument and the options for connecting to it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DeviceArgs {
    /// A connected device (nvme0, nvme0n1) or a URI: nvme+tcp://HOST[:PORT]/NQN[/NSID]
    #[arg(value_name = "DEVICE")]
    device: String,
    /// Show the command that would be sent, and send nothing but what only looks
    #[arg(long, help_heading = "Global options")]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    uri: UriArgs,
}

/// Where the help puts the options that are for URIs.
const URI_HEADING: &str = "Where DEVICE is a URI";

/// How to connect to a URI.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct UriArgs {
    /// Who we say we are
    #[arg(long, help_heading = URI_HEADING, value_name = "NQN")]
    hostnqn: Option<Nqn>,
    /// Our host identifier, a UUID
    #[arg(long, help_heading = URI_HEADING, value_name = "UUID", value_parser = parse::host_id)]
    hostid: Option<HostId>,
    /// Local address to connect from
    #[arg(long, help_heading = URI_HEADING, value_name = "ADDRESS")]
    host_traddr: Option<String>,
    /// Network interface to connect through
    #[arg(long, help_heading = URI_HEADING, value_name = "INTERFACE")]
    host_iface: Option<String>,
    /// Ask for header digests (CRC32C)
    #[arg(long, help_heading = URI_HEADING)]
    hdr_digest: bool,
    /// Ask for data digests (CRC32C)
    #[arg(long, help_heading = URI_HEADING)]
    data_digest: bool,
    /// Send data of writes of this size or more without a copy (`MSG_ZEROCOPY`), 4Ki or more: for
    /// real network cards
    #[arg(long, help_heading = URI_HEADING, value_name = "SIZE", value_parser = parse::zerocopy_send)]
    zerocopy_send: Option<u32>,
}

impl UriArgs {
    /// What these say of how to connect.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            hostnqn: self.hostnqn.clone(),
            hostid: self.hostid,
            host_traddr: self.host_traddr.clone(),
            host_iface: self.host_iface.clone(),
            hdr_digest: self.hdr_digest,
            data_digest: self.data_digest,
            zerocopy_send: self.zerocopy_send,
            ..Overrides::default()
        }
    }
}

/// Which queues to ask for: the options of `connect`, for verbs that load namespaces.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct QueueArgs {
    /// I/O queues, shared by all threads [default: one for each thread]
    #[arg(short = 'i', long, help_heading = URI_HEADING, value_name = "N")]
    pub(crate) nr_io_queues: Option<u16>,
    /// Queues for writes besides: the I/O queues are for reads then
    #[arg(short = 'W', long, help_heading = URI_HEADING, value_name = "N")]
    pub(crate) nr_write_queues: Option<u16>,
    /// Queues for polling besides (--hipri)
    #[arg(short = 'P', long, help_heading = URI_HEADING, value_name = "N")]
    pub(crate) nr_poll_queues: Option<u16>,
    /// Entries of a queue [default: one more than the depth; 128 where queues are shared]
    #[arg(short = 'Q', long, help_heading = URI_HEADING, value_name = "N",
        value_parser = clap::value_parser!(u16).range(2..=1024))]
    pub(crate) queue_size: Option<u16>,
    /// IP type of service
    #[arg(long, help_heading = URI_HEADING, value_name = "NUMBER")]
    tos: Option<u8>,
}

impl QueueArgs {
    /// Whether the threads share queues.
    pub(crate) fn shared(&self) -> bool {
        self.nr_io_queues.or(self.nr_write_queues).or(self.nr_poll_queues).is_some()
    }

    /// What these say of how to connect, and `others` of the rest.
    pub(crate) fn overrides(&self, others: Overrides) -> Overrides {
        Overrides {
            nr_io_queues: self.nr_io_queues,
            nr_write_queues: self.nr_write_queues,
            nr_poll_queues: self.nr_poll_queues,
            queue_size: self.queue_size,
            tos: self.tos,
            ..others
        }
    }
}

/// What a verb needs of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Admin commands only.
    Admin,
    /// I/O commands too.
    Io,
}

impl DeviceArgs {
    /// For a verb that can do without one, and has its own argument.
    pub(crate) fn new(device: String, uri: UriArgs) -> Self {
        Self { dry_run: false, device, uri }
    }

    /// What the user called it.
    pub(crate) fn name(&self) -> &str {
        &self.device
    }

    /// Finds the device, or connects to it for as long as the result lives.
    ///
    /// # Errors
    /// It is not connected, cannot be reached, or the URI is wrong.
    pub(crate) fn open(&self, needs: Needs, global: &Global) -> anyhow::Result<Box<dyn Device>> {
        let device = self.open_plain(needs, global)?;
        Ok(if self.dry_run { Box::new(dry_run::DryRun { device, looks: true }) } else { device })
    }

    /// As [`DeviceArgs::open`], for a verb whose command may be any: with `--dry-run` none is sent.
    ///
    /// # Errors
    /// As [`DeviceArgs::open`].
    pub(crate) fn open_for_any(&self, needs: Needs, global: &Global) -> anyhow::Result<Box<dyn Device>> {
        let device = self.open_plain(needs, global)?;
        Ok(if self.dry_run { Box::new(dry_run::DryRun { device, looks: false }) } else { device })
    }

    fn open_plain(&self, needs: Needs, global: &Global) -> anyhow::Result<Box<dyn Device>> {
        if !Uri::looks_like(&self.device) {
            return Ok(Box::new(attached::Attached::open(&self.device, global)?));
        }
        let uri = parse_uri(&self.device)?;
        let mut options = Options::from_uri(&uri);
        self.uri.overrides().apply(&mut options);
        options.nr_io_queues = u16::from(needs == Needs::Io);
        Ok(Box::new(remote::Remote::connect(&self.device, &options, uri.nsid, global)?))
    }
}

/// Reads a URI.
///
/// # Errors
/// What is wrong with it, or that its transport is not there yet.
pub(crate) fn parse_uri(text: &str) -> Result<Uri, Failure> {
    let advice =
        "a URI is nvme+tcp://HOST[:PORT]/NQN[/NSID], as in nvme+tcp://127.0.0.1:4420/nqn.2014-08.org.example:drive0/1";
    let uri =
        Uri::parse(text).map_err(|error| Failure::usage(format!("{text:?} is no device URI: {error}"), advice))?;
    check_transport(uri.transport.name())?;
    Ok(uri)
}

/// Refuses transports that are known but not there.
///
/// # Errors
/// Any transport but `tcp`.
pub(crate) fn check_transport(transport: &str) -> Result<(), Failure> {
    match transport {
        "tcp" => Ok(()),
        "rdma" | "fc" | "loop" | "pcie" => Err(Failure::unsupported(
            format!("transport {transport} is not supported by this version of ebof"),
            "use tcp: -t tcp, or a URI that begins with nvme+tcp://",
        )),
        other => Err(Failure::usage(format!("{other:?} is no NVMe transport"), "use tcp: -t tcp")),
    }
}

/// The warning for a name that is legal for some targets, and most likely a mistake.
pub fn strange_name(option: &str, nqn: &Nqn) -> Option<String> {
    (!nqn.has_standard_form()).then(|| {
        format!(
            "warning: {option} {:?} is not an NQN as the specification has it (nqn.yyyy-mm.REVERSE.DOMAIN:NAME, as in \
             nqn.2014-08.org.example:drive0); it is used as it is",
            nqn.as_str()
        )
    })
}

/// The namespace that a verb is about: the option's, else the one in the device's name.
///
/// # Errors
/// Neither says.
pub(crate) fn namespace_of(device: &dyn Device, option: Option<u32>) -> Result<Nsid, Failure> {
    option.map(Nsid).or_else(|| device.nsid()).ok_or_else(|| {
        Failure::usage(
            format!("{} names a controller, and this is about a namespace", device.name()),
            "say which: a device such as nvme0n1, a URI that ends in /NSID, or --namespace-id",
        )
    })
}
