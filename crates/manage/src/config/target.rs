//! Options of the whole target.

use std::net::SocketAddr;
use std::time::Duration;

use ebof_nvme::Nqn;
use serde::Serialize;

use super::dhchap::{DhchapGroup, DhchapHash};
use super::limits;
use super::measures::{Measures, NoMeasure};
use super::written::{as_duration, as_optional_text, as_size64};
use crate::keys::Absent::{Value, Words};
use crate::keys::{Form, Key, Refused, store};

/// What holds for the whole target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TargetOptions {
    /// Threads that own queue pairs; `None` is one for each processor it may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u16>,
    /// The most connections at a time, over all ports.
    pub max_connections: u32,
    /// The most controllers at a time, discovery included.
    pub max_controllers: u32,
    /// What one host may use of connections, controllers and buffers, percent.
    pub host_share: u8,
    /// How many of the connections may come from one address and not be admitted yet, percent.
    pub address_share: u8,
    /// How long a connection may take from its first byte to an accepted Connect.
    #[serde(serialize_with = "as_duration")]
    pub handshake_timeout: Duration,
    /// The hash functions that hosts may prove themselves by, the preferred one first.
    pub dhchap_hashes: Vec<DhchapHash>,
    /// The groups, likewise.
    pub dhchap_groups: Vec<DhchapGroup>,
    /// How many refused connections are remembered.
    pub refused_journal: u32,
    /// Commands that take this long are remembered as slow; 0 is none.
    #[serde(serialize_with = "as_duration")]
    pub slow_threshold: Duration,
    /// How many entries the Error Information log of a controller has.
    pub error_log_entries: u16,
    /// The most memory for capsules over RDMA, in bytes.
    #[serde(rename = "rdma_memory", serialize_with = "as_size64")]
    pub rdma_memory_bytes: u64,
    /// Where OpenMetrics are served over HTTP; `None` is nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
    /// The socket through which the target is managed: a path, or `none`; `None` is the default
    /// path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control: Option<String>,
    /// Where what was in force is stored: a path, or `none`; `None` is the default path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Where the target is managed over HTTPS; `None` is nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub https: Option<SocketAddr>,
    /// Where it is managed over HTTP, a loopback address; `None` is nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<SocketAddr>,
    /// Where the records of the audit log are sent to as well, for syslog; `None` is nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit_syslog: Option<String>,
    /// What the process gives up; `None` is nothing, unless the command line says something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confine: Option<Measures>,
    /// What it may open beside what the configuration names at the start, if paths are given up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub confine_paths: Vec<String>,
    /// Whether a start fails if the kernel knows a measure not, or not as a whole.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub confine_strict: bool,
    /// Whether a start without all that is to be served fails.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub strict: bool,
    /// The discovery subsystem's own NQN, besides the well-known one, which always answers.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_optional_text")]
    pub discovery_nqn: Option<Nqn>,
}

/// Commands are slow from here on, unless the configuration says otherwise.
pub const SLOW_THRESHOLD: Duration = Duration::from_millis(100);

impl TargetOptions {
    /// Keys that can be changed while the target runs.
    pub(crate) const LIVE_KEYS: &[&str] = &["slow_threshold", "dhchap_hashes", "dhchap_groups", "https", "http"];
}

impl Default for TargetOptions {
    fn default() -> Self {
        Self {
            threads: None,
            max_connections: 16384,
            max_controllers: 4096,
            host_share: 85,
            address_share: 10,
            handshake_timeout: Duration::from_secs(30),
            dhchap_hashes: DhchapHash::PREFERRED.to_vec(),
            dhchap_groups: DhchapGroup::PREFERRED.to_vec(),
            refused_journal: 1024,
            slow_threshold: SLOW_THRESHOLD,
            error_log_entries: 64,
            rdma_memory_bytes: 1 << 30,
            metrics: None,
            control: None,
            state: None,
            https: None,
            http: None,
            audit_syslog: None,
            confine: None,
            confine_paths: Vec::new(),
            confine_strict: false,
            strict: false,
            discovery_nqn: None,
        }
    }
}

impl TargetOptions {
    pub(crate) const KEYS: &[Key<Self>] = &[
        Key {
            name: "threads",
            form: Form::Integer {
                range: 1..=1024,
                set: Some(|target, count| target.threads = u16::try_from(count).ok()),
            },
            default: Words("one for each processor"),
            text: "number of threads that serve queue pairs",
        },
        Key {
            name: "max_connections",
            form: Form::Integer {
                range: 1..=1_048_576,
                set: Some(|target, count| store(&mut target.max_connections, count)),
            },
            default: Value,
            text: "maximum number of connections, over all ports",
        },
        Key {
            name: "max_controllers",
            form: Form::Integer {
                range: 1..=65536,
                set: Some(|target, count| store(&mut target.max_controllers, count)),
            },
            default: Value,
            text: "maximum number of controllers, including discovery controllers",
        },
        Key {
            name: "host_share",
            form: Form::Integer { range: 1..=100, set: Some(|target, percent| store(&mut target.host_share, percent)) },
            default: Value,
            text: "percent of the connections, of the controllers and of each thread's buffers \
                   that one host NQN may use; the rest is left to other hosts. Rounded up, so that \
                   a small number of connections is not divided. 100 means no limit",
        },
        Key {
            name: "address_share",
            form: Form::Integer {
                range: 1..=100,
                set: Some(|target, percent| store(&mut target.address_share, percent)),
            },
            default: Value,
            text: "percent of the connections that may come from one address (IPv6: from one /64 \
                   network) without being admitted yet, at least 4. Increase it if hundreds of \
                   hosts share an address; a host connects its queues one after the other",
        },
        Key {
            name: "handshake_timeout",
            form: Form::Duration {
                range: Duration::from_millis(100)..=Duration::from_secs(600),
                set: |target, timeout| target.handshake_timeout = timeout,
            },
            default: Value,
            text: "limit for the time from a connection's first byte to its accepted Connect",
        },
        Key {
            name: "dhchap_hashes",
            form: Form::Names {
                names: DhchapHash::NAMES,
                set: |target, names| {
                    target.dhchap_hashes = names.iter().filter_map(|it| DhchapHash::named(it)).collect();
                },
            },
            default: Value,
            text: "hash functions that hosts may [prove themselves](security.md#authentication) by, in \
                   the order of preference: the target takes the first that a host offers. It can be \
                   changed without a restart, and counts for queues that connect then",
        },
        Key {
            name: "dhchap_groups",
            form: Form::Names {
                names: DhchapGroup::NAMES,
                set: |target, names| {
                    target.dhchap_groups = names.iter().filter_map(|it| DhchapGroup::named(it)).collect();
                },
            },
            default: Value,
            text: "Diffie-Hellman groups for that, likewise. Over TLS `\"null\"` comes first, if it is \
                   in the list",
        },
        Key {
            name: "refused_journal",
            form: Form::Integer {
                range: 0..=65536,
                set: Some(|target, count| store(&mut target.refused_journal, count)),
            },
            default: Value,
            text: "number of refused connections that the connection log keeps",
        },
        Key {
            name: "slow_threshold",
            form: Form::Duration {
                range: Duration::ZERO..=Duration::from_secs(3600),
                set: |target, threshold| target.slow_threshold = threshold,
            },
            default: Value,
            text: "I/O commands that take this long from their arrival to their completion are \
                   remembered, with where their time went: `ebof target slow` shows the latest 1024. \
                   0 remembers none. It can be changed without a restart",
        },
        Key {
            name: "error_log_entries",
            // Identify Controller, ELPE is one byte.
            form: Form::Integer {
                range: 1..=256,
                set: Some(|target, count| store(&mut target.error_log_entries, count)),
            },
            default: Value,
            text: "entries of each controller's Error Information log",
        },
        Key {
            name: "rdma_memory",
            form: Form::Size {
                range: limits::RDMA_MEMORY_BYTES,
                step: 1,
                set: Some(|target, bytes| target.rdma_memory_bytes = bytes),
            },
            default: Value,
            text: "memory for the capsules of all connections over RDMA, which is registered with \
                   the devices and not swapped. A queue takes as many capsules as it has entries, \
                   each of 64 bytes and the `in_capsule_data` of its port; connections beyond the \
                   limit are refused",
        },
        Key {
            name: "metrics",
            form: Form::Text { set: set_metrics },
            default: Words("none"),
            text: "`\"ADDRESS:PORT\"` of the HTTP endpoint for metrics",
        },
        Key {
            name: "control",
            form: Form::Text { set: set_control },
            default: Words("`control.sock` in the runtime directory"),
            text: "path of the socket through which `ebof target` manages the target, or \
                   `\"none\"`. Only its owner, its group and root may use it. Several targets need \
                   different paths: a socket that a running target has is an error. The runtime \
                   directory is `$EBOF_RUNTIME_DIR`; `/run/ebof` for root, otherwise \
                   `$XDG_RUNTIME_DIR/ebof`; only its owner may enter it",
        },
        Key {
            name: "state",
            form: Form::Text { set: set_state },
            default: Words("`/var/lib/ebof` for root"),
            text: "path of the state directory, where configurations that were in force are stored \
                   ([more](operations.md#the-state-directory)), or \
                   `\"none\"`. It belongs to one target; only its owner may write to it. The \
                   default is `$STATE_DIRECTORY` of systemd, `/var/lib/ebof` for root, otherwise \
                   `$XDG_STATE_HOME/ebof` or `~/.local/state/ebof`. A target that goes by the state \
                   directory takes the path from its command line",
        },
        Key {
            name: "https",
            form: Form::Text { set: set_https },
            default: Words("none"),
            text: "`\"ADDRESS:PORT\"` where the target is managed over HTTPS, with accounts \
                   ([security](security.md#management-over-the-network)). It can be changed without \
                   a restart",
        },
        Key {
            name: "http",
            form: Form::Text { set: set_http },
            default: Words("none"),
            text: "the same without TLS, for programs of this machine: a loopback address",
        },
        Key {
            name: "audit_syslog",
            form: Form::Text { set: set_audit_syslog },
            default: Words("none"),
            text: "where [the audit log](security.md#the-audit-log) is sent to as well, in the format of \
                   syslog (RFC 5424): `unix:PATH` of a datagram socket, such as `unix:/dev/log`, or \
                   `udp:ADDRESS:PORT`",
        },
        Key {
            name: "confine",
            form: Form::Text { set: set_confine },
            default: Words("`\"none\"`, and `\"all\"` in the package's unit"),
            text: "what the process gives up before it serves ([security](security.md#rights)): `\"all\"`, \
                   `\"none\"`, or some of `privileges`, `capabilities`, `system-calls`, `paths` and `dumps`, \
                   with commas between them. `--confine` of the command line takes its place",
        },
        Key {
            name: "confine_paths",
            form: Form::Other("array of strings"),
            default: Words("none"),
            text: "directories, files and devices that the target may open and write beside those that the \
                   configuration names at the start, if it gives up `paths`: what a change of the configuration \
                   may name later. Added to those of the command line",
        },
        Key {
            name: "confine_strict",
            form: Form::Boolean { set: Some(|target, strict| target.confine_strict = strict) },
            default: Value,
            text: "whether a start fails if a measure of `confine` is not in force as a whole, because the \
                   kernel does not know it; otherwise the log and `ebof target status` tell",
        },
        Key {
            name: "strict",
            form: Form::Boolean { set: Some(|target, strict| target.strict = strict) },
            default: Value,
            text: "whether a start fails if a device, an address, the accounts or the certificate \
                   cannot be had; otherwise the rest is served, and what is missing comes in when it \
                   is there ([more](operations.md#what-is-missing))",
        },
        Key {
            name: "discovery_nqn",
            form: Form::Nqn { set: Some(|target, nqn| target.discovery_nqn = Some(nqn)) },
            default: Words("none"),
            text: "NQN of the discovery subsystem, besides the well-known one",
        },
    ];
}

/// The longest path of a socket (`sun_path`), without the room that its replacement needs.
const CONTROL_BYTES_MAX: usize = 100;

/// What [`TargetOptions::control`] says where there is to be no socket.
pub const NO_CONTROL: &str = "none";

/// What [`TargetOptions::state`] says where nothing is to be stored.
pub const NO_STATE: &str = "none";

/// The longest path of a state directory.
const STATE_BYTES_MAX: usize = 1024;

fn set_state(target: &mut TargetOptions, text: &str) -> Result<(), Refused> {
    if text.is_empty() || text.len() > STATE_BYTES_MAX || text.contains('\0') {
        return Err(Refused {
            message: format!("`state` has {} bytes", text.len()),
            help: "accepted: a path of 1 to 1024 bytes, or \"none\"",
        });
    }
    target.state = Some(text.to_owned());
    Ok(())
}

fn set_control(target: &mut TargetOptions, text: &str) -> Result<(), Refused> {
    if text.is_empty() || text.len() > CONTROL_BYTES_MAX || text.contains('\0') {
        return Err(Refused {
            message: format!("`control` has {} bytes", text.len()),
            help: "accepted: a path of 1 to 100 bytes, or \"none\"",
        });
    }
    target.control = Some(text.to_owned());
    Ok(())
}

fn set_confine(target: &mut TargetOptions, text: &str) -> Result<(), Refused> {
    let measures = text.parse();
    target.confine =
        Some(measures.map_err(|error: NoMeasure| Refused { message: error.to_string(), help: NoMeasure::ADVICE })?);
    Ok(())
}

fn set_metrics(target: &mut TargetOptions, text: &str) -> Result<(), Refused> {
    target.metrics = Some(address(text, "accepted: ADDRESS:PORT, such as \"127.0.0.1:9464\"")?);
    Ok(())
}

fn set_https(target: &mut TargetOptions, text: &str) -> Result<(), Refused> {
    target.https = Some(address(text, "accepted: ADDRESS:PORT, such as \"0.0.0.0:8443\"")?);
    Ok(())
}

fn set_http(target: &mut TargetOptions, text: &str) -> Result<(), Refused> {
    let help = "accepted: ADDRESS:PORT with a loopback address, such as \"127.0.0.1:8080\"";
    let address = address(text, help)?;
    if !address.ip().to_canonical().is_loopback() {
        return Err(Refused { message: format!("`{text}` can be reached by others, and HTTP is readable"), help });
    }
    target.http = Some(address);
    Ok(())
}

fn set_audit_syslog(target: &mut TargetOptions, text: &str) -> Result<(), Refused> {
    let help = "accepted: \"unix:PATH\" with an absolute path, such as \"unix:/dev/log\", or \"udp:ADDRESS:PORT\"";
    let is_path = |path: &str| path.starts_with('/') && path.len() <= CONTROL_BYTES_MAX && !path.contains('\0');
    let is_known = match text.split_once(':') {
        Some(("unix", path)) => is_path(path),
        Some(("udp", address)) => address.parse::<SocketAddr>().is_ok(),
        _ => false,
    };
    if !is_known {
        return Err(Refused { message: format!("`{text}` is no receiver of syslog"), help });
    }
    target.audit_syslog = Some(text.to_owned());
    Ok(())
}

fn address(text: &str, help: &'static str) -> Result<SocketAddr, Refused> {
    text.parse().map_err(|_| Refused { message: format!("`{text}` is not an address and a port"), help })
}
