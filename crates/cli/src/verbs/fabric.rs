//! The options that `discover`, `connect` and `connect-all` share: address, identity and connection
//! options. Names are nvme-cli's, short and long.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use ebof_attach::{Kind, Request};
use ebof_authentication::Secret;
use ebof_initiator::{KeySource, KeyText, Options, Overrides, Which, key_lines};
use ebof_manage::config::{Measure, Measures, NoMeasure};
use ebof_manage::written_keys::is_key;
use ebof_nvme::Nqn;
use ebof_nvme::uri::Transport;
use ebof_state::read_private;

use crate::device::{check_options, check_transport, strange_name};
use crate::failure::Failure;
use crate::output::say;
use crate::output::text::safe;

/// Port of I/O controllers, and of discovery controllers over RDMA.
pub(super) const IO_PORT: u16 = 4420;
/// Port of NVMe/TCP discovery controllers.
pub(super) const DISCOVERY_PORT: u16 = 8009;

/// The transport, unless told otherwise.
const TRANSPORT: &str = "tcp";

/// The longest file with keys.
const KEY_FILE_BYTES_MAX: usize = 4096;

/// Address, identity and connection options.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FabricArgs {
    /// Transport: tcp or rdma
    #[arg(short = 't', long, value_name = "TRANSPORT", default_value = TRANSPORT)]
    pub(crate) transport: String,
    /// Address or host name of the target
    #[arg(short = 'a', long, value_name = "ADDRESS")]
    pub(crate) traddr: Option<String>,
    /// Port of the target [default: 4420 for subsystems, 8009 for discovery]
    #[arg(short = 's', long, value_name = "PORT", value_parser = port)]
    pub(crate) trsvcid: Option<u16>,
    /// The subsystem
    #[arg(short = 'n', long, value_name = "NQN", visible_alias = "subsysnqn")]
    pub(crate) nqn: Option<Nqn>,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// Connect even if the subsystem is connected there already
    #[arg(short = 'D', long)]
    pub(super) duplicate_connect: bool,
    /// Who connects it, for `disconnect-all --owner`
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// What the process that keeps the connection gives up: all, none, or some of privileges,
    /// capabilities, system-calls and dumps, with commas between them [default: all]
    #[arg(long, value_name = "MEASURES", value_parser = measures)]
    pub(crate) confine: Option<Measures>,
    /// Keep the connection to the discovery service, and connect what it lists later: `auto` (if
    /// nothing is said) and `force` do
    #[arg(
        short = 'p',
        long,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "auto",
        value_name = "no|auto|force"
    )]
    pub(super) persistent: Option<Persistence>,
    /// With --persistent, what becomes of what the service does not list any more, if this has
    /// connected it [default: keep]
    #[arg(long, value_enum, value_name = "keep|disconnect")]
    pub(super) vanished: Option<Vanished>,
    /// Ask the discovery services of this network that answer to multicast DNS (TP8009); none of
    /// them is authenticated by that
    #[arg(long, conflicts_with_all = ["traddr", "trsvcid", "nqn", "config"])]
    pub(super) mdns: bool,
    /// Of the discovery log, only what is at the port that is asked (PLEO), if the service can do
    /// that
    #[arg(long)]
    pub(super) port_local: bool,
    /// Of the discovery log, all subsystems (ALLSUBE), if the service can do that
    #[arg(long)]
    pub(super) all_subsystems: bool,
    /// nvme-cli 3's file of connections, and those in FILE.d, or `none`
    /// [default: /etc/nvme/nvme-fabrics.conf]
    #[arg(short = 'J', long, value_name = "FILE", conflicts_with = "traddr")]
    pub(super) config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) secrets: GivenSecrets,
    #[command(flatten)]
    pub(super) later: Later,
}

/// Whether the connection to a discovery service stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Persistence {
    No,
    #[value(alias = "yes")]
    Auto,
    Force,
}

/// What becomes of what a discovery service does not list any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Vanished {
    /// It stays connected
    Keep,
    /// It is disconnected, unless somebody uses it
    Disconnect,
}

/// Secrets on the command line, where others can see them: for scripts that were written for
/// nvme-cli.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct GivenSecrets {
    /// Our secret for authentication; others can see it here (see --dhchap-secret-file)
    #[arg(
        short = 'S',
        long,
        alias = "kxchap-secret",
        value_name = "SECRET",
        value_parser = key_text,
        group = "own_secret",
        conflicts_with = "dhchap_secret_file"
    )]
    dhchap_secret: Option<KeyText>,
    /// The subsystem's secret; others can see it here (see --dhchap-ctrl-secret-file)
    #[arg(
        short = 'C',
        long,
        alias = "kxchap-ctrl-secret",
        value_name = "SECRET",
        value_parser = key_text,
        conflicts_with = "dhchap_ctrl_secret_file"
    )]
    dhchap_ctrl_secret: Option<KeyText>,
}

impl GivenSecrets {
    /// Says who can see them.
    fn warn(&self) {
        let given = [("--dhchap-secret", &self.dhchap_secret), ("--dhchap-ctrl-secret", &self.dhchap_ctrl_secret)];
        for (option, _) in given.into_iter().filter(|(_, text)| text.is_some()) {
            say(&format!(
                "warning: others on this machine can see what is on a command line: {option}-file FILE keeps it to you"
            ));
        }
    }

    fn check(&self, overrides: &Overrides) -> Result<(), Failure> {
        let given = [("--dhchap-secret", &self.dhchap_secret), ("--dhchap-ctrl-secret", &self.dhchap_ctrl_secret)];
        for (option, text) in given {
            let Some(text) = text else { continue };
            if let Err(error) = Secret::parse(text.text()) {
                let advice = "`ebof gen-dhchap-key` makes one";
                return Err(Failure::usage(format!("{option} is no secret: {error}"), advice));
            }
        }
        if self.dhchap_ctrl_secret.is_some() && self.dhchap_secret.is_none() && overrides.dhchap_secret_file.is_none() {
            let advice = "give it with --dhchap-secret-file FILE";
            return Err(Failure::usage("--dhchap-ctrl-secret needs this host's secret, too", advice));
        }
        if overrides.concat && self.dhchap_secret.is_none() && overrides.dhchap_secret_file.is_none() {
            let advice = "give it with --dhchap-secret-file FILE, or use a key for TLS: --tls --tls-key-file FILE";
            return Err(Failure::usage("--concat needs this host's secret: the key for TLS comes of it", advice));
        }
        Ok(())
    }
}

/// It is checked later: an error of the parser would show it.
#[expect(clippy::unnecessary_wraps, reason = "a parser of clap's")]
fn key_text(text: &str) -> Result<KeyText, String> {
    Ok(KeyText::from(text))
}

/// Options of nvme-cli that are not supported yet.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Later {
    #[arg(long, hide = true)]
    tls_key_identity: Option<String>,
    #[arg(short = 'd', long, hide = true, value_name = "DEV")]
    device: Option<String>,
    #[arg(long, hide = true)]
    nbft: bool,
    #[arg(long, hide = true)]
    nbft_path: Option<String>,
    #[arg(long, hide = true)]
    idempotent: bool,
    // Accepted without effect: NBFT is never read.
    #[arg(long, hide = true)]
    no_nbft: bool,
    #[arg(long, hide = true, alias = "force")]
    no_reuse: bool,
    #[arg(long, hide = true)]
    quiet: bool,
}

impl Later {
    fn refuse(&self) -> Result<(), Failure> {
        let tls = "leave it away: the key's own length and hash decide";
        let other = "leave it away: this version of ebof does not support it";
        let given = [
            ("--tls-key-identity", self.tls_key_identity.is_some(), tls),
            ("--device", self.device.is_some(), "say where the discovery service is with --traddr and --trsvcid"),
            ("--nbft", self.nbft || self.nbft_path.is_some(), other),
            ("--idempotent", self.idempotent, other),
        ];
        match given.into_iter().find(|(_, given, _)| *given) {
            Some((option, _, advice)) => Err(Failure::unsupported(format!("{option} cannot be used"), advice)),
            None => Ok(()),
        }
    }
}

impl FabricArgs {
    /// Refuses options of a command line that cannot be used, and says what is strange about them.
    ///
    /// # Errors
    /// The first such option.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.check_quietly()?;
        self.secrets.warn();
        Ok(())
    }

    /// As [`FabricArgs::check`], of a discovery service that a file names.
    ///
    /// # Errors
    /// As [`FabricArgs::check`].
    pub(super) fn check_service(&self) -> Result<(), Failure> {
        self.check_quietly()?;
        match &self.config {
            Some(_) => Err(Failure::usage("--config cannot be used in a file", "name that file on the command line")),
            None => Ok(()),
        }
    }

    /// Refuses what is for discovery services only.
    ///
    /// # Errors
    /// The first such option.
    pub(super) fn check_subsystem(&self) -> Result<(), Failure> {
        if self.config.is_some() {
            let message = "--config names a file with many connections";
            return Err(Failure::unsupported(message, "connect them with `ebof connect-all --config FILE`"));
        }
        if self.which() != Which::default() {
            let message = "--port-local and --all-subsystems are for discovery services";
            return Err(Failure::unsupported(message, "leave them away: `connect` names what is connected"));
        }
        if self.mdns {
            let message = "multicast DNS finds discovery services, and no subsystems";
            return Err(Failure::unsupported(message, "connect what they list with `ebof connect-all --mdns`"));
        }
        if self.is_persistent() || self.vanished.is_some() {
            let message = "--persistent and --vanished are for discovery services";
            return Err(Failure::unsupported(message, "leave it away: a subsystem stays connected until `disconnect`"));
        }
        Ok(())
    }

    /// Whether it may not stay.
    pub(super) fn is_asked_once(&self) -> bool {
        self.persistent == Some(Persistence::No)
    }

    /// Whether what it does not list any more is disconnected.
    pub(super) fn goes_when_vanished(&self) -> bool {
        self.vanished == Some(Vanished::Disconnect)
    }

    /// What of the discovery log is asked for.
    pub(super) fn which(&self) -> Which {
        Which { port_local: self.port_local, all_subsystems: self.all_subsystems }
    }

    /// Whether the connection to the discovery service stays.
    pub(super) fn is_persistent(&self) -> bool {
        self.persistent.is_some_and(|persistent| persistent != Persistence::No)
    }

    /// As [`FabricArgs::check`], of options that others on this machine do not see.
    ///
    /// # Errors
    /// As [`FabricArgs::check`].
    pub(super) fn check_quietly(&self) -> Result<(), Failure> {
        let transport = check_transport(&self.transport)?;
        check_options(transport, &self.overrides)?;
        if let Some(traddr) = &self.traddr {
            check_address(traddr)?;
        }
        self.secrets.check(&self.overrides)?;
        if self.overrides.tls_key.as_ref().is_some_and(|key| is_key(key)) {
            let advice = "name a file with it, which nobody else may read (mode 600): --tls --tls-key-file FILE";
            return Err(Failure::unsupported("--tls-key takes the description or the number of a key", advice));
        }
        self.later.refuse()?;
        warn_of_many_keys(&self.overrides);
        for (option, nqn) in [("--nqn", &self.nqn), ("--hostnqn", &self.overrides.hostnqn)] {
            if let Some(warning) = nqn.as_ref().and_then(|nqn| strange_name(option, nqn)) {
                say(&warning);
            }
        }
        Ok(())
    }

    /// Whether anything is said about connections but who makes them.
    pub(super) fn says_something(&self) -> bool {
        let Self {
            transport,
            traddr,
            trsvcid,
            nqn,
            overrides,
            duplicate_connect,
            owner: _,
            confine,
            persistent,
            vanished,
            mdns,
            port_local,
            all_subsystems,
            config,
            secrets,
            later: _,
        } = self;
        let GivenSecrets { dhchap_secret, dhchap_ctrl_secret } = secrets;
        transport != TRANSPORT
            || traddr.is_some()
            || trsvcid.is_some()
            || nqn.is_some()
            || *overrides != Overrides::default()
            || *duplicate_connect
            || confine.is_some()
            || persistent.is_some()
            || vanished.is_some()
            || *mdns
            || *port_local
            || *all_subsystems
            || config.is_some()
            || dhchap_secret.is_some()
            || dhchap_ctrl_secret.is_some()
    }

    /// The initiator's options for connecting to `nqn` at `traddr`:`trsvcid`.
    pub(super) fn options(&self, traddr: &str, trsvcid: u16, nqn: Nqn) -> Options {
        let mut options = Options::new(traddr, trsvcid, nqn);
        self.overrides.apply(&mut options);
        let GivenSecrets { dhchap_secret, dhchap_ctrl_secret } = self.secrets.clone();
        if let Some(text) = dhchap_secret {
            options.dhchap_key = Some(KeySource::Text(text));
        }
        if let Some(text) = dhchap_ctrl_secret {
            options.dhchap_ctrl_key = Some(KeySource::Text(text));
        }
        if let Some(transport) = Transport::from_name(&self.transport) {
            options.transport = transport.into();
        }
        options
    }

    /// The same options for another transport, which a discovery log names. Those that it does not
    /// have are left out, as nvme-cli does.
    pub(super) fn over(&self, transport: Transport) -> Self {
        let overrides = match transport {
            Transport::Tcp => self.overrides.without_rdma_options(),
            Transport::Rdma => self.overrides.without_tcp_options(),
        };
        Self { transport: transport.name().to_owned(), overrides, ..self.clone() }
    }

    /// Whether both are one discovery service, asked by one host over one network.
    pub(super) fn is_service_of(&self, other: &Self) -> bool {
        self.is_place_of(other) && self.nqn == other.nqn
    }

    /// Whether both are at one address, asked by one host over one network.
    pub(super) fn is_place_of(&self, other: &Self) -> bool {
        let asked = |args: &Self| {
            let Overrides { host_traddr, host_iface, hostnqn, hostid, .. } = args.overrides.clone();
            let traddr = args.traddr.as_deref().map(same_host);
            (args.transport.clone(), traddr, args.trsvcid, host_traddr, host_iface, hostnqn, hostid)
        };
        asked(self) == asked(other)
    }

    /// The attach daemon's request to connect to `nqn` at `traddr`:`trsvcid`.
    pub(crate) fn request(&self, traddr: &str, trsvcid: u16, nqn: &str, kind: Kind) -> Request {
        Request {
            transport: self.transport.clone(),
            traddr: traddr.to_owned(),
            trsvcid,
            nqn: nqn.to_owned(),
            overrides: self.overrides.clone(),
            duplicate_connect: self.duplicate_connect,
            kind,
            confine: self.confine.unwrap_or(Request::CONFINE),
            owner: self.owner.clone(),
            dhchap_secret: self.secrets.dhchap_secret.clone(),
            dhchap_ctrl_secret: self.secrets.dhchap_ctrl_secret.clone(),
        }
    }
}

/// Says which of several keys in a file is used. What is wrong with a file is told when it is used.
fn warn_of_many_keys(overrides: &Overrides) {
    for path in [&overrides.dhchap_secret_file, &overrides.dhchap_ctrl_secret_file, &overrides.tls_key_file] {
        let Some(path) = path else { continue };
        let count = read_private(path, KEY_FILE_BYTES_MAX).map_or(0, |text| key_lines(&text).count());
        if count > 1 {
            let name = safe(&path.display().to_string());
            say(&format!(
                "warning: {name} has {count} keys, and this host uses the first of them: leave the others out"
            ));
        }
    }
}

/// All measures are those that an attach daemon can take.
fn measures(text: &str) -> Result<Measures, String> {
    match text {
        "all" => Ok(Request::CONFINE),
        _ => match text.parse::<Measures>() {
            Ok(measures) if measures.has(Measure::Paths) => {
                Err("`paths` is for targets: devices appear under paths that are not known before".to_owned())
            }
            Ok(measures) => Ok(measures),
            Err(error) => Err(format!("{error}; {}", NoMeasure::ADVICE)),
        },
    }
}

/// Refuses an address with a port or in brackets, which would be looked up as a name and fail.
fn check_address(traddr: &str) -> Result<(), Failure> {
    let (host, port) = match traddr.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => (rest, None),
        },
        None => match traddr.split_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() && !host.is_empty() => (host, Some(port)),
            _ => return Ok(()),
        },
    };
    let port = port.filter(|port| !port.is_empty()).map(|port| format!(" -s {port}")).unwrap_or_default();
    let message = format!("--traddr {traddr:?} is more than an address");
    Err(Failure::usage(
        message,
        format!("the port has an option of its own, and no brackets are needed: -a {host}{port}"),
    ))
}

/// An address or host name in the form that all of its spellings share.
pub(super) fn same_host(traddr: &str) -> String {
    // Names of interfaces differ by upper and lower case.
    if let Some((address, scope)) = traddr.split_once('%')
        && let Ok(address) = address.parse::<IpAddr>()
    {
        return format!("{address}%{scope}");
    }
    match traddr.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().to_string(),
        Err(_) => traddr.to_ascii_lowercase(),
    }
}

/// Sets the time limits of connecting, if the user has given one.
pub(super) fn set_timeout(options: &mut Options, timeout: Option<Duration>) {
    if let Some(timeout) = timeout {
        let ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        options.connect_timeout_ms = ms;
        options.admin_timeout_ms = ms;
    }
}

fn port(text: &str) -> Result<u16, String> {
    text.parse().ok().filter(|&port| port != 0).ok_or_else(|| "want a port number from 1 to 65535".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_with_a_port_or_brackets_gets_a_hint() {
        for (traddr, advice) in [
            ("127.0.0.1:4420", "-a 127.0.0.1 -s 4420"),
            ("target.example:8009", "-a target.example -s 8009"),
            ("[::1]", "-a ::1"),
            ("[fd00::1]:4420", "-a fd00::1 -s 4420"),
        ] {
            let text = check_address(traddr).unwrap_err().to_string();
            assert!(text.ends_with(advice), "{text}");
        }
        for traddr in ["127.0.0.1", "::1", "fd00::1:4420", "target.example"] {
            check_address(traddr).unwrap();
        }
    }

    #[test]
    fn options_of_tcp_are_refused_over_rdma() {
        let check = super::super::services::conf::options_of;
        check("-t rdma -a 192.0.2.1 --tos 8 -i 2 -P 1 -Q 64 -l 10").unwrap();
        let refused = check("-t rdma -a 192.0.2.1 --data-digest").unwrap_err();
        assert!(refused.starts_with("--data-digest is an option of TCP"), "{refused}");
        check("-t tcp -a 192.0.2.1 --data-digest").unwrap();
        check("-t rdma -a 192.0.2.1 --memory-windows").unwrap();
        let refused = check("-t tcp -a 192.0.2.1 --memory-windows").unwrap_err();
        assert!(refused.starts_with("--memory-windows is an option of RDMA"), "{refused}");
        assert!(check("-t fc -a 192.0.2.1").unwrap_err().contains("not supported by this version"));
        assert!(check("-t quic -a 192.0.2.1").unwrap_err().contains("no NVMe transport"));
    }

    #[test]
    fn invalid_nqns_get_a_warning() {
        let nqn = |text| Nqn::parse(text).unwrap();
        assert!(strange_name("--nqn", &nqn("foo")).unwrap().starts_with("warning: --nqn \"foo\" is not an NQN"));
        assert_eq!(strange_name("--nqn", &nqn("nqn.2014-08.org.example:drive0")), None);
    }
}
