//! Ports: addresses of the target, and their options.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use ebof_nvme::Nqn;
use serde::{Deserialize, Serialize};

use super::Assigned;
use super::ana::AnaStates;
use super::referral::Referral;
use super::written::{as_optional_size, as_optional_text, as_size, is_true};
use super::{derived, limits};
use crate::keys::Absent::{Required, Value, Words};
use crate::keys::{Form, Key, Refused, store};
use crate::listen::{Listen, Transport, parse_address};

/// Where hosts reach the target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Port {
    /// What subsystems call it; its address where none was given.
    pub name: String,
    /// Its number in the discovery log (PORTID).
    pub id: u16,
    /// Whether the configuration leaves the number to [`load`](crate::load()).
    #[serde(skip)]
    pub assigned: Assigned,
    /// Where it listens.
    pub listen: Listen,
    /// The IP address that discovery tells hosts to connect to instead of the one they reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advertise: Option<IpAddr>,
    /// Serves the discovery subsystem and nothing else.
    pub discovery_only: bool,
    /// Other discovery controllers that hosts are referred to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub referrals: Vec<Referral>,
    /// Whether its discovery service is told by multicast DNS.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub mdns: bool,
    /// The states of ANA groups here.
    #[serde(skip_serializing_if = "AnaStates::is_empty")]
    pub ana: AnaStates,
    /// Data that a host may send inside a command capsule of an I/O queue, in bytes.
    #[serde(rename = "in_capsule_data", serialize_with = "as_size")]
    pub in_capsule_data_bytes: u32,
    /// The most data in one H2CData PDU (MAXH2CDATA), in bytes.
    #[serde(rename = "max_h2c_data", serialize_with = "as_size")]
    pub max_h2c_data_bytes: u32,
    /// Whether the last C2HData PDU replaces the response (SUCCESS flag).
    pub c2h_success: bool,
    /// Checksums over PDU headers.
    pub header_digest: Digest,
    /// Checksums over PDU data.
    pub data_digest: Digest,
    /// The deepest I/O queue in entries.
    pub max_queue_size: u16,
    /// The most I/O queues of a controller.
    pub max_io_queues: u16,
    /// Receives that the queue pairs of a thread and device share, over RDMA; `None`: each queue
    /// pair has its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub srq_size: Option<u32>,
    /// IP type of service of sent packets; `None` is the system's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tos: Option<u8>,
    /// Priority of sent packets (`SO_PRIORITY`); `None` is the system's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub so_priority: Option<u32>,
    /// How long a receive may poll the network card's queue, in microseconds (`SO_BUSY_POLL`);
    /// connections of one such queue are then served by one thread. `None` is the system's. Over
    /// RDMA, how long a thread looks for completions before it sleeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_poll_us: Option<u32>,
    /// Whether polling replaces the network card's interrupts (`SO_PREFER_BUSY_POLL`). Over RDMA,
    /// whether threads never sleep that have connections of the port.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub prefer_busy_poll: bool,
    /// Whether connections are TLS connections, over TCP.
    #[serde(skip_serializing_if = "PortTls::is_off")]
    pub tls: PortTls,
    /// Who makes and opens the records of TLS.
    #[serde(skip_serializing_if = "TlsRecords::is_own")]
    pub tls_records: TlsRecords,
    /// Payloads of this size or more are sent without a copy (`MSG_ZEROCOPY`) where they are in
    /// buffers, in bytes; `None` copies all.
    #[serde(rename = "zerocopy_send", skip_serializing_if = "Option::is_none", serialize_with = "as_optional_size")]
    pub zerocopy_send_bytes: Option<u32>,
    /// The host NQN of the virtual machine at a direct port.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_optional_text")]
    pub host: Option<Nqn>,
    /// Whether it listens.
    #[serde(skip_serializing_if = "is_true")]
    pub enabled: bool,
}

/// Whether a port uses a digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Digest {
    /// Never, also when the host asks for it.
    Off,
    /// When the host asks for it.
    #[default]
    Allowed,
    /// A host that does not ask for it is refused.
    Required,
}

/// Whether connections at a port are TLS connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortTls {
    /// Never.
    #[default]
    Off,
    /// As the host begins.
    Allowed,
    /// All.
    Required,
}

impl PortTls {
    pub(crate) const NAMES: &[&str] = &["off", "allowed", "required"];

    pub(crate) fn named(name: &str) -> Self {
        match name {
            "allowed" => Self::Allowed,
            "required" => Self::Required,
            _ => Self::Off,
        }
    }

    /// Whether it is the default.
    #[must_use]
    pub fn is_off(&self) -> bool {
        *self == Self::Off
    }
}

/// Who makes and opens the records of TLS connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TlsRecords {
    /// The target.
    #[default]
    Own,
    /// The kernel, where it can.
    Kernel,
}

impl TlsRecords {
    const NAMES: &[&str] = &["own", "kernel"];

    fn named(name: &str) -> Self {
        if name == "kernel" { Self::Kernel } else { Self::Own }
    }

    /// Whether it is the default.
    #[must_use]
    pub fn is_own(&self) -> bool {
        *self == Self::Own
    }
}

impl Port {
    /// A port with the defaults, named after its address.
    #[must_use]
    pub fn new(id: u16, listen: Listen) -> Self {
        Self {
            name: listen.to_string(),
            id,
            assigned: Assigned(false),
            listen,
            advertise: None,
            discovery_only: false,
            referrals: Vec::new(),
            mdns: false,
            ana: AnaStates::default(),
            in_capsule_data_bytes: 8192,
            max_h2c_data_bytes: 1 << 20,
            c2h_success: true,
            header_digest: Digest::Allowed,
            data_digest: Digest::Allowed,
            max_queue_size: 1024,
            max_io_queues: 1024,
            srq_size: None,
            tos: None,
            so_priority: None,
            busy_poll_us: None,
            prefer_busy_poll: false,
            tls: PortTls::Off,
            tls_records: TlsRecords::Own,
            zerocopy_send_bytes: None,
            host: None,
            enabled: true,
        }
    }

    /// The host at a direct port: the one that is configured, or one that is made of the port's
    /// socket, so that it is the same after every start.
    #[must_use]
    pub fn direct_host(&self) -> Option<Nqn> {
        let socket = self.listen.socket.as_ref()?;
        self.host.clone().or_else(|| Some(Nqn::from_uuid(derived::direct_host_uuid(&socket.to_string_lossy()))))
    }

    /// Whether both are one listening socket with, perhaps, other options. A port whose number the
    /// system chooses is known by its name.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.listen == other.listen && (self.listen.is_fixed() || self.name == other.name)
    }

    /// The keys that are set to something that the port's transport has not.
    pub(crate) fn misplaced_keys(&self) -> Vec<&'static str> {
        if self.listen.transport == Transport::Tcp {
            let keys = [("srq_size", self.srq_size.is_some()), ("host", self.host.is_some())];
            return keys.into_iter().filter_map(|(key, is_set)| is_set.then_some(key)).collect();
        }
        let without = Self::new(self.id, self.listen.clone());
        let is_direct = self.listen.transport == Transport::VfioUser;
        [
            ("advertise", is_direct && self.advertise.is_some()),
            ("discovery_only", is_direct && self.discovery_only),
            ("referrals", is_direct && !self.referrals.is_empty()),
            ("mdns", is_direct && self.mdns),
            ("in_capsule_data", is_direct && self.in_capsule_data_bytes != without.in_capsule_data_bytes),
            ("srq_size", is_direct && self.srq_size.is_some()),
            ("host", !is_direct && self.host.is_some()),
            ("max_h2c_data", self.max_h2c_data_bytes != without.max_h2c_data_bytes),
            ("c2h_success", self.c2h_success != without.c2h_success),
            ("header_digest", self.header_digest != without.header_digest),
            ("data_digest", self.data_digest != without.data_digest),
            ("tls", self.tls != without.tls),
            ("tls_records", self.tls_records != without.tls_records),
            ("tos", self.tos.is_some()),
            ("so_priority", self.so_priority.is_some()),
            ("zerocopy_send", self.zerocopy_send_bytes.is_some()),
        ]
        .into_iter()
        .filter_map(|(key, is_set)| is_set.then_some(key))
        .collect()
    }
}

impl Port {
    /// PORTID.
    pub(crate) const ID: RangeInclusive<u64> = 0..=65535;

    pub(crate) const KEYS: &[Key<Self>] = &[
        Key {
            name: "listen",
            form: Form::Other("string"),
            default: Required,
            text: "`tcp://ADDRESS:PORT` or `rdma://ADDRESS:PORT`, where ADDRESS is IPv4, `[IPv6]` \
                   or `[fe80::1%eth0]`; the default PORT is 4420, 0 lets the system choose one. \
                   `vfio-user:PATH` is a direct port: a virtual machine that is given the socket \
                   PATH sees the port's one subsystem as an NVMe controller on its PCI bus; a \
                   relative PATH is relative to the configuration file, and what concerns networks \
                   (`advertise` to `data_digest`, `srq_size`, `tos`, `so_priority`, \
                   `zerocopy_send`) can only have its default. \
                   Host names are refused. Over RDMA, what concerns TCP (`max_h2c_data` to \
                   `data_digest`, `tos`, `so_priority`, `zerocopy_send`) can only have its default, and an \
                   iWARP device shares the PORTs of TCP: a `tcp` port of the same address needs \
                   another one. `unix:` is reserved and not supported by this build",
        },
        Key {
            name: "name",
            form: Form::Printable { chars_max: limits::PORT_NAME_CHARS_MAX, set: None },
            default: Words("the address"),
            text: "the name that subsystems refer to",
        },
        Key {
            name: "id",
            form: Form::Integer { range: Self::ID, set: None },
            default: Words("the lowest unused one from 1; it stays with the address while the target runs"),
            text: "PORTID in the discovery log",
        },
        Key {
            name: "advertise",
            form: Form::Text { set: set_advertise },
            default: Words("the address that the host reached"),
            text: "IP address that discovery tells hosts to connect to",
        },
        Key {
            name: "discovery_only",
            form: Form::Boolean { set: Some(|port, only| port.discovery_only = only) },
            default: Value,
            text: "the port serves the discovery subsystem only. Hosts that request port local \
                   entries (nvme-stas does by default) receive the entries of other ports with the \
                   same address",
        },
        Key {
            name: "referrals",
            form: Form::Other("list of addresses or tables"),
            default: Words("none"),
            text: "other discovery controllers that hosts which ask here are referred to, at most 64: \
                   `\"tcp://192.0.2.2:8009\"`, or `{ address = \"tcp://192.0.2.2:8009\", tls = \"required\" }` \
                   (`\"allowed\"`, `\"off\"`). Without a port number it is 8009, over RDMA 4420",
        },
        Key {
            name: "mdns",
            form: Form::Boolean { set: Some(|port, mdns| port.mdns = mdns) },
            default: Value,
            text: "the network is told of the port's discovery service by multicast DNS (TP8009, \
                   `_nvme-disc._tcp`), with the `advertise` address, else the one it listens at, else all of \
                   this machine. See [discovery](discovery.md)",
        },
        Key {
            name: "ana",
            form: Form::Other("table of states by ANA group"),
            default: Words("all `\"optimized\"`"),
            text: "how hosts reach namespaces of an `ana_group` through this port: `\"optimized\"`; \
                   `\"non-optimized\"`, where they prefer other paths; `\"inaccessible\"` or \
                   `\"persistent-loss\"`, where commands are refused and hosts take another path; or \
                   `\"change\"`, where they wait up to 10 s for another state. Changes while hosts are \
                   connected, who are told. See [paths](paths.md)",
        },
        Key {
            name: "in_capsule_data",
            form: Form::Size {
                range: limits::IN_CAPSULE_DATA_BYTES,
                // IOCCSZ counts in 16 bytes.
                step: 16,
                set: Some(|port, bytes| store(&mut port.in_capsule_data_bytes, bytes)),
            },
            default: Value,
            text: "maximum amount of data in a command capsule of an I/O queue",
        },
        Key {
            name: "max_h2c_data",
            form: Form::Size {
                // NVMe/TCP, ICResp: MAXH2CDATA.
                range: 4096..=16 << 20,
                step: 4,
                set: Some(|port, bytes| store(&mut port.max_h2c_data_bytes, bytes)),
            },
            default: Value,
            text: "maximum amount of data in one H2CData PDU",
        },
        Key {
            name: "c2h_success",
            form: Form::Boolean { set: Some(|port, success| port.c2h_success = success) },
            default: Value,
            text: "the last C2HData PDU replaces the response (SUCCESS flag); turn it off for \
                   hosts that do not support that",
        },
        Key {
            name: "header_digest",
            form: Form::Name { names: Digest::NAMES, set: |port, name| port.header_digest = Digest::named(name) },
            default: Value,
            text: "CRC32C digests of PDU headers; with `\"allowed\"`, the host decides",
        },
        Key {
            name: "data_digest",
            form: Form::Name { names: Digest::NAMES, set: |port, name| port.data_digest = Digest::named(name) },
            default: Value,
            text: "CRC32C digests of PDU data; with `\"allowed\"`, the host decides",
        },
        Key {
            name: "tls",
            form: Form::Name { names: PortTls::NAMES, set: |port, name| port.tls = PortTls::named(name) },
            default: Words("`\"off\"`"),
            text: "TLS 1.3 with keys of `[[hosts]]` (`tls_psk`): `\"required\"`, or `\"allowed\"`, where the first \
                   bytes of a connection tell which it is. See [security](security.md#tls)",
        },
        Key {
            name: "tls_records",
            form: Form::Name { names: TlsRecords::NAMES, set: |port, name| port.tls_records = TlsRecords::named(name) },
            default: Words("`\"own\"`"),
            text: "who makes and opens the records of TLS: the target, or the kernel (`modprobe tls`). Where the kernel \
                   cannot, the target does, and says so. Before Linux 6.14 a connection ends when its key has to be \
                   changed. See [security](security.md#tls)",
        },
        Key {
            name: "max_queue_size",
            form: Form::Integer {
                range: limits::QUEUE_SIZE,
                set: Some(|port, entries| store(&mut port.max_queue_size, entries)),
            },
            default: Value,
            text: "entries of an I/O queue. An Admin Queue may always have 32",
        },
        Key {
            name: "max_io_queues",
            form: Form::Integer { range: 1..=1024, set: Some(|port, queues| store(&mut port.max_io_queues, queues)) },
            default: Value,
            text: "I/O queues of a controller",
        },
        Key {
            name: "srq_size",
            form: Form::Integer {
                range: limits::SRQ_SIZE,
                set: Some(|port, size| port.srq_size = u32::try_from(size).ok()),
            },
            default: Words("none: each queue pair has as many receives as its queue has entries"),
            text: "over RDMA, receives that all queue pairs of a thread share, for each device \
                   (shared receive queue), or as many as the device allows. Each has 64 bytes and \
                   `in_capsule_data`. Saves memory where there are many queues, of which few are \
                   busy at a time; see [operation](operations.md#shared-receive-queues)",
        },
        Key {
            name: "tos",
            form: Form::Integer { range: 0..=255, set: Some(|port, tos| port.tos = u8::try_from(tos).ok()) },
            default: Words("the system's"),
            text: "IP type of service of sent packets",
        },
        Key {
            name: "so_priority",
            form: Form::Integer {
                range: 0..=0x7fff_ffff,
                set: Some(|port, priority| port.so_priority = u32::try_from(priority).ok()),
            },
            default: Words("the system's"),
            text: "priority of sent packets (`SO_PRIORITY`), which selects a queue of network \
                   cards with application device queues; values above 6 need `CAP_NET_ADMIN`",
        },
        Key {
            name: "busy_poll_us",
            // A longer receive would stall the thread.
            form: Form::Integer {
                range: 0..=1_000_000,
                set: Some(|port, us| port.busy_poll_us = u32::try_from(us).ok()),
            },
            default: Words("the system's"),
            text: "microseconds that a receive may poll the network card's queue (`SO_BUSY_POLL`); \
                   more than `net.core.busy_read` needs `CAP_NET_ADMIN`. Connections that arrive \
                   through the same queue of the card (with the same NAPI id) are then served by \
                   one thread. Over RDMA: how long a thread with connections of the port polls \
                   completion queues after the last work, before it asks for events and sleeps. Of \
                   a direct port: how long the thread of the virtual machine looks for work after \
                   the last one, 100 if it is not set; and with a value above 0 doorbells are in \
                   memory that the virtual machine shares, which is looked at every millisecond \
                   while nobody rings",
        },
        Key {
            name: "prefer_busy_poll",
            form: Form::Boolean { set: Some(|port, prefer| port.prefer_busy_poll = prefer) },
            default: Value,
            text: "polling replaces the network card's interrupts (`SO_PREFER_BUSY_POLL`); needs \
                   `CAP_NET_ADMIN`. Over RDMA: threads with connections of the port poll \
                   completion queues without end and never sleep, each for a processor of its \
                   own. Of a direct port, the same for the doorbells of a virtual machine",
        },
        Key {
            name: "zerocopy_send",
            // Below a page, copying is faster than pinning.
            form: Form::Size {
                range: 4096..=16 << 20,
                step: 1,
                set: Some(|port, bytes| port.zerocopy_send_bytes = u32::try_from(bytes).ok()),
            },
            default: Words("none: data are always copied"),
            text: "read data of at least this size are sent without a copy (`MSG_ZEROCOPY`), from \
                   files and block devices, not from drives in memory. For real network cards: on \
                   loopback it costs more than it saves, and each connection detects that and \
                   falls back to copying. See [performance](performance.md#zero-copy-send)",
        },
        Key {
            name: "host",
            form: Form::Text { set: set_host },
            default: Words("one made of the socket's path"),
            text: "host NQN of the virtual machine at a direct port, by which subsystems and \
                   namespaces know it (`allowed_hosts`)",
        },
        Key {
            name: "enabled",
            form: Form::Boolean { set: Some(|port, enabled| port.enabled = enabled) },
            default: Words("`true`"),
            text: "`false`: the port does not listen, and discovery does not report it",
        },
    ];
}

fn set_host(port: &mut Port, text: &str) -> Result<(), Refused> {
    port.host = Nqn::parse(text).ok();
    match port.host {
        Some(_) => Ok(()),
        None => Err(Refused {
            message: format!("`{text}` is not an NQN"),
            help: "accepted: an NQN, such as \"nqn.2014-08.org.nvmexpress:uuid:...\"",
        }),
    }
}

fn set_advertise(port: &mut Port, text: &str) -> Result<(), Refused> {
    port.advertise = parse_address(text).ok().map(|(address, _)| address).filter(|ip| !ip.is_unspecified());
    match port.advertise {
        Some(_) => Ok(()),
        None => Err(Refused {
            message: format!("`{text}` is not an address to advertise"),
            help: "accepted: an IP address that hosts can reach, such as \"192.168.13.147\"",
        }),
    }
}

impl Digest {
    const NAMES: &[&str] = &["off", "allowed", "required"];

    fn named(name: &str) -> Self {
        match name {
            "off" => Self::Off,
            "required" => Self::Required,
            _ => Self::Allowed,
        }
    }
}
