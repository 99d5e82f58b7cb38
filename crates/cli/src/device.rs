//! The DEVICE argument: a controller or namespace that verbs send commands to, either connected
//! (`nvme0`, `nvme0n1`) or given by a URI. Commands are built in `command`.

mod attached;
pub(crate) mod dry_run;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod query;
mod remote;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ebof_attach::Authenticated;
use ebof_attach::usage::LocalDevice;
use ebof_initiator::overrides::parse;
use ebof_initiator::{AdminData, Options, Overrides, RecordsBy};
use ebof_nvme::uri::{Transport, Uri};
use ebof_nvme::{Cqe, HostId, Nqn, Nsid, Sqe};

use crate::failure::Failure;
use crate::global::Global;

/// A controller or namespace that commands are sent to.
pub(crate) trait Device {
    /// The name that the user gave.
    fn name(&self) -> &str;

    /// The namespace, if the name includes one.
    fn nsid(&self) -> Option<Nsid>;

    /// Sends an admin command and waits for its completion, whatever its status.
    ///
    /// # Errors
    /// There is no completion.
    fn admin(&mut self, sqe: &Sqe, data: AdminData<'_>) -> anyhow::Result<Cqe>;

    /// Sends an I/O command and waits for its completion, whatever its status.
    ///
    /// # Errors
    /// There is no completion.
    fn io(&mut self, sqe: &Sqe, data: AdminData<'_>) -> anyhow::Result<Cqe>;

    /// Sets the time limit of the following admin commands, unless the user has set one.
    fn allow(&mut self, time: Duration);

    /// The connected controller (`nvme0`), whose namespaces are block devices of this machine;
    /// `None` for a URI.
    fn attached(&self) -> Option<&str>;

    /// The block devices of this machine that are namespaces of its subsystem, through whatever
    /// connection.
    ///
    /// # Errors
    /// They cannot be determined.
    fn local_devices(&self) -> anyhow::Result<Vec<LocalDevice>>;

    /// Whether commands are shown instead of being sent, so that no confirmation is needed.
    fn is_dry_run(&self) -> bool {
        false
    }

    /// Closes the connections and connects again.
    ///
    /// # Errors
    /// Connecting fails.
    fn reset(&mut self) -> anyhow::Result<()>;

    /// Has the controller authenticate its host again.
    ///
    /// # Errors
    /// It fails.
    fn reauthenticate(&mut self) -> anyhow::Result<Authenticated>;

    /// Updates the block devices according to the namespaces.
    ///
    /// # Errors
    /// It has no block devices, or cannot be reached.
    fn rescan(&mut self) -> anyhow::Result<()>;
}

/// The DEVICE argument and the options for connecting to it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DeviceArgs {
    /// A connected device (nvme0, nvme0n1) or a URI: nvme+tcp://HOST[:PORT]/NQN[/NSID], nvme+rdma
    #[arg(value_name = "DEVICE")]
    device: String,
    /// Show the first command that changes something instead of sending it
    #[arg(long, help_heading = "Global options")]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    uri: UriArgs,
}

/// The heading of the options for URIs in the help.
const URI_HEADING: &str = "If DEVICE is a URI";

/// How to connect to a URI.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct UriArgs {
    /// Host NQN
    #[arg(long, help_heading = URI_HEADING, value_name = "NQN")]
    hostnqn: Option<Nqn>,
    /// Host identifier, a UUID
    #[arg(long, help_heading = URI_HEADING, value_name = "UUID", value_parser = parse::host_id)]
    hostid: Option<HostId>,
    /// A file with the host's secret for authentication (DH-HMAC-CHAP)
    #[arg(long, help_heading = URI_HEADING, value_name = "FILE", value_parser = parse::key_file)]
    dhchap_secret_file: Option<PathBuf>,
    /// A file with the subsystem's secret: the target has to prove that it has it, too
    #[arg(
        long,
        help_heading = URI_HEADING,
        value_name = "FILE",
        value_parser = parse::key_file,
        requires = "dhchap_secret_file"
    )]
    dhchap_ctrl_secret_file: Option<PathBuf>,
    /// Connect over TLS, with the key of --tls-key-file, or one of the kernel's keyring
    #[arg(long, help_heading = URI_HEADING, group = "secured")]
    tls: bool,
    /// A file with the host's key for TLS (a PSK)
    #[arg(long, help_heading = URI_HEADING, value_name = "FILE", value_parser = parse::key_file, requires = "tls")]
    tls_key_file: Option<PathBuf>,
    /// The kernel's keyring with the host's keys for TLS [default: .nvme]
    #[arg(long, help_heading = URI_HEADING, value_name = "NAME", requires = "tls", conflicts_with = "tls_key_file")]
    keyring: Option<String>,
    /// The key in the keyring, by its description or number
    #[arg(
        long,
        help_heading = URI_HEADING,
        value_name = "KEY",
        requires = "tls",
        conflicts_with = "tls_key_file"
    )]
    tls_key: Option<String>,
    /// Authenticate, and go on over TLS with a key that this has generated
    #[arg(
        long,
        help_heading = URI_HEADING,
        group = "secured",
        requires = "dhchap_secret_file",
        conflicts_with_all = ["tls", "tls_key_file", "keyring", "tls_key"]
    )]
    concat: bool,
    /// Who makes and opens the records of TLS: this process (own) or the kernel, where it can
    #[arg(
        long,
        help_heading = URI_HEADING,
        value_name = "own|kernel",
        value_parser = parse::tls_records,
        requires = "secured"
    )]
    tls_records: Option<RecordsBy>,
    /// Local address to connect from
    #[arg(long, help_heading = URI_HEADING, value_name = "ADDRESS")]
    host_traddr: Option<String>,
    /// Network interface to connect through
    #[arg(long, help_heading = URI_HEADING, value_name = "INTERFACE")]
    host_iface: Option<String>,
    /// Request header digests (CRC32C)
    #[arg(long, help_heading = URI_HEADING)]
    hdr_digest: bool,
    /// Request data digests (CRC32C)
    #[arg(long, help_heading = URI_HEADING)]
    data_digest: bool,
    /// Send data of writes of this size or more without a copy (`MSG_ZEROCOPY`), at least 4Ki: for
    /// real network cards
    #[arg(long, help_heading = URI_HEADING, value_name = "SIZE", value_parser = parse::zerocopy_send)]
    zerocopy_send: Option<u32>,
    /// Over RDMA, give each command a key of its own, for a target that is not trusted
    #[arg(long, help_heading = URI_HEADING)]
    memory_windows: bool,
}

impl UriArgs {
    /// The connect options that these arguments set.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            hostnqn: self.hostnqn.clone(),
            hostid: self.hostid,
            dhchap_secret_file: self.dhchap_secret_file.clone(),
            dhchap_ctrl_secret_file: self.dhchap_ctrl_secret_file.clone(),
            tls: self.tls,
            tls_key_file: self.tls_key_file.clone(),
            keyring: self.keyring.clone(),
            tls_key: self.tls_key.clone(),
            concat: self.concat,
            tls_records: self.tls_records,
            host_traddr: self.host_traddr.clone(),
            host_iface: self.host_iface.clone(),
            hdr_digest: self.hdr_digest,
            data_digest: self.data_digest,
            zerocopy_send: self.zerocopy_send,
            memory_windows: self.memory_windows,
            ..Overrides::default()
        }
    }
}

/// The options of `connect` about queues, for verbs that run loads.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct QueueArgs {
    /// I/O queues, shared by all threads [default: one for each thread]
    #[arg(short = 'i', long, help_heading = URI_HEADING, value_name = "N")]
    pub(crate) nr_io_queues: Option<u16>,
    /// Additional queues for writes: the I/O queues are for reads then
    #[arg(short = 'W', long, help_heading = URI_HEADING, value_name = "N")]
    pub(crate) nr_write_queues: Option<u16>,
    /// Additional queues for polling (--hipri)
    #[arg(short = 'P', long, help_heading = URI_HEADING, value_name = "N")]
    pub(crate) nr_poll_queues: Option<u16>,
    /// Entries of a queue [default: one more than the depth; 128 if queues are shared]
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

    /// The connect options that these arguments set, with `others` for the rest.
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

/// The queues that a verb needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Admin commands only.
    Admin,
    /// Admin and I/O commands.
    Io,
}

impl DeviceArgs {
    /// For a verb with another argument for the device.
    pub(crate) fn new(device: String, uri: UriArgs) -> Self {
        Self { dry_run: false, device, uri }
    }

    /// The name that the user gave.
    pub(crate) fn name(&self) -> &str {
        &self.device
    }

    /// Opens a connected device, or connects to a URI for the lifetime of the result.
    ///
    /// # Errors
    /// The device is not connected, the target cannot be reached, or the URI is invalid.
    pub(crate) fn open(&self, needs: Needs, global: &Global) -> anyhow::Result<Box<dyn Device>> {
        let device = self.open_plain(needs, global)?;
        Ok(if self.dry_run { Box::new(dry_run::DryRun { device, looks: true }) } else { device })
    }

    /// As [`DeviceArgs::open`], for a verb that sends any command: with `--dry-run` none is sent.
    ///
    /// # Errors
    /// As [`DeviceArgs::open`].
    pub(crate) fn open_for_any(&self, needs: Needs, global: &Global) -> anyhow::Result<Box<dyn Device>> {
        let device = self.open_plain(needs, global)?;
        Ok(if self.dry_run { Box::new(dry_run::DryRun { device, looks: false }) } else { device })
    }

    fn open_plain(&self, needs: Needs, global: &Global) -> anyhow::Result<Box<dyn Device>> {
        if !Uri::looks_like(&self.device) {
            if let Some(failure) = address_in_place_of_device(&self.device) {
                return Err(failure.into());
            }
            check_local(&self.device, &self.uri.overrides())?;
            return Ok(Box::new(attached::Attached::open(&self.device, global)?));
        }
        let uri = parse_uri(&self.device)?;
        let overrides = self.uri.overrides();
        check_options(uri.transport, &overrides)?;
        let mut options = Options::from_uri(&uri);
        overrides.apply(&mut options);
        options.nr_io_queues = u16::from(needs == Needs::Io);
        Ok(Box::new(remote::Remote::connect(&self.device, &options, uri.nsid, global)?))
    }
}

/// Refuses options of connections beside what is no URI: somebody may believe that they are in
/// effect, such as `--tls`.
///
/// # Errors
/// There are some.
pub(crate) fn check_local(name: &str, overrides: &Overrides) -> Result<(), Failure> {
    if *overrides == Overrides::default() {
        return Ok(());
    }
    let message = format!("{name:?} is no URI, and options of connections have no effect on it");
    Err(Failure::usage(message, "leave them out: `ebof connect` has them for what it connects"))
}

/// What to say to an address or an NQN where a device or a URI is wanted.
fn address_in_place_of_device(text: &str) -> Option<Failure> {
    let is_nqn = text.starts_with("nqn.");
    let address: Option<SocketAddr> =
        text.parse().ok().or_else(|| text.parse().ok().map(|address: IpAddr| SocketAddr::new(address, 4420)));
    let (what, advice) = match address {
        Some(address) => (
            "an address",
            format!(
                "a URI names a subsystem, too: nvme+tcp://{address}/NQN; `ebof discover -t tcp -a {} -s {}` lists the subsystems there",
                address.ip(),
                address.port()
            ),
        ),
        None if is_nqn => (
            "the NQN of a subsystem",
            format!(
                "a URI has its address, too: nvme+tcp://HOST:4420/{text}; `ebof list-subsys` shows what is connected, by device"
            ),
        ),
        None => return None,
    };
    Some(Failure::usage(format!("{text} is {what}, and no connected device"), advice))
}

/// Reads a URI.
///
/// # Errors
/// It is invalid.
pub(crate) fn parse_uri(text: &str) -> Result<Uri, Failure> {
    let advice = "a URI is nvme+tcp://HOST[:PORT]/NQN[/NSID] or the same with nvme+rdma, as in \
                  nvme+tcp://127.0.0.1:4420/nqn.2014-08.org.example:drive0/1";
    let uri =
        Uri::parse(text).map_err(|error| Failure::usage(format!("{text:?} is no device URI: {error}"), advice))?;
    Ok(uri)
}

/// The transport of this name.
///
/// # Errors
/// Any transport but `tcp` and `rdma`.
pub(crate) fn check_transport(transport: &str) -> Result<Transport, Failure> {
    Transport::from_name(transport).ok_or_else(|| match transport {
        "fc" | "loop" | "pcie" => Failure::unsupported(
            format!("transport {transport} is not supported by this version of ebof"),
            "use -t tcp or -t rdma, or a URI that begins with nvme+tcp:// or nvme+rdma://",
        ),
        other => Failure::usage(format!("{other:?} is no NVMe transport"), "use -t tcp or -t rdma"),
    })
}

/// Refuses options that the transport does not have.
///
/// # Errors
/// The first such option.
pub(crate) fn check_options(transport: Transport, overrides: &Overrides) -> Result<(), Failure> {
    let (foreign, other, advice) = match transport {
        Transport::Rdma => (overrides.tcp_option(), Transport::Tcp, "-t tcp (nvme+tcp://)"),
        Transport::Tcp => (overrides.rdma_option(), Transport::Rdma, "-t rdma (nvme+rdma://)"),
    };
    match foreign {
        Some(option) => {
            let [has, has_not] = [other, transport].map(|transport| transport.name().to_uppercase());
            Err(Failure::usage(
                format!("{option} is an option of {has}: NVMe/{has_not} does not have it"),
                format!("leave it away, or connect with {advice}"),
            ))
        }
        None => Ok(()),
    }
}

/// A warning for a name that is not an NQN by the specification, although some targets accept it.
pub fn strange_name(option: &str, nqn: &Nqn) -> Option<String> {
    (!nqn.has_standard_form()).then(|| {
        format!(
            "warning: {option} {:?} is not an NQN as the specification has it (nqn.yyyy-mm.REVERSE.DOMAIN:NAME, as in \
             nqn.2014-08.org.example:drive0); it is used as it is",
            nqn.as_str()
        )
    })
}

/// The namespace of a verb: that of the option, otherwise the one in the device's name.
///
/// # Errors
/// Neither names one.
pub(crate) fn namespace_of(device: &dyn Device, option: Option<u32>) -> Result<Nsid, Failure> {
    option.map(Nsid).or_else(|| device.nsid()).ok_or_else(|| {
        Failure::usage(
            format!("{} names a controller, and this is about a namespace", device.name()),
            "say which: a device such as nvme0n1, a URI that ends in /NSID, or --namespace-id",
        )
    })
}
