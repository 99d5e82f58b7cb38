//! The connection log: which connections were refused, why, and what to do about it.
//!
//! Bounded: the same refusal of the same peer is counted, not stored again, and the oldest entry
//! makes room.

use std::collections::VecDeque;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Peer;

/// One refused connection, or several alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// When it happened last, in milliseconds since 1970-01-01T00:00:00Z.
    pub time_unix_ms: u64,
    /// Address of the peer.
    pub peer: Peer,
    /// The host NQN of its Connect, if it sent one.
    pub host_nqn: Option<String>,
    /// The subsystem NQN of its Connect, if it sent one.
    pub subsystem_nqn: Option<String>,
    /// The reason, for programs.
    pub reason: RefusalReason,
    /// Why, for people: what was received and what was expected.
    pub detail: String,
    /// Advice.
    pub advice: String,
    /// How often it happened.
    pub count: u64,
}

/// Why a connection was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RefusalReason {
    /// What arrived first is not an NVMe/TCP PDU, or not the private data of an NVMe/RDMA host.
    NotNvme,
    /// The host begins with TLS, and the port has none.
    Tls,
    /// The port or the subsystem wants TLS, and the connection has none.
    TlsRequired,
    /// TLS could not be agreed on: the host has no key, another one, or nothing in common.
    TlsFailed,
    /// The host says other names in Connect than those that its TLS key is of.
    TlsIdentity,
    /// A PDU or capsule broke the transport's rules.
    ProtocolError,
    /// The digests that the host asked for, or did not, are against the port's rules.
    DigestRefused,
    /// The handshake took too long.
    HandshakeTimeout,
    /// All connections are taken.
    TooManyConnections,
    /// The memory for capsules over RDMA is used up, or the device has no more queue pairs.
    NoResources,
    /// No subsystem has this NQN.
    UnknownSubsystem,
    /// The subsystem is disabled.
    SubsystemDisabled,
    /// The subsystem is not reached through this port.
    SubsystemNotOnPort,
    /// The port serves the discovery subsystem only.
    DiscoveryPort,
    /// The subsystem does not allow this host.
    HostNotAllowed,
    /// The subsystem only admits hosts that prove who they are, and there is no secret of this one.
    NoSecret,
    /// The host did not prove who it is.
    NotAuthenticated,
    /// The host had not proven who it is yet, and had to make room for others who have not either.
    TooManyUnproven,
    /// The host id is in use under another host NQN.
    HostIdConflict,
    /// All controller ids are taken.
    NoFreeController,
    /// The host has as many controllers or connections as one host may have.
    HostShare,
    /// As many connections from there are not admitted yet as one address may have.
    AddressShare,
    /// An I/O queue names a controller that does not exist.
    ControllerNotFound,
    /// An I/O queue names a controller of another host, or one that was connected through another
    /// port.
    ControllerOfOtherHost,
    /// An I/O queue was refused: its number, its depth, or the controller's state.
    QueueRefused,
    /// A field of the Connect command is wrong.
    InvalidConnect,
    /// Commands of the host's earlier queues are still at a device.
    QueuesDraining,
    /// The target is shutting down.
    ShuttingDown,
}

impl fmt::Display for RefusalReason {
    /// As in JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

const _: () = assert!(RefusalReason::ALL.len() == RefusalReason::ShuttingDown as usize + 1, "one of them is missing");

impl RefusalReason {
    /// All of them, in the order above.
    pub const ALL: [Self; 28] = [
        Self::NotNvme,
        Self::Tls,
        Self::TlsRequired,
        Self::TlsFailed,
        Self::TlsIdentity,
        Self::ProtocolError,
        Self::DigestRefused,
        Self::HandshakeTimeout,
        Self::TooManyConnections,
        Self::NoResources,
        Self::UnknownSubsystem,
        Self::SubsystemDisabled,
        Self::SubsystemNotOnPort,
        Self::DiscoveryPort,
        Self::HostNotAllowed,
        Self::NoSecret,
        Self::NotAuthenticated,
        Self::TooManyUnproven,
        Self::HostIdConflict,
        Self::NoFreeController,
        Self::HostShare,
        Self::AddressShare,
        Self::ControllerNotFound,
        Self::ControllerOfOtherHost,
        Self::QueueRefused,
        Self::InvalidConnect,
        Self::QueuesDraining,
        Self::ShuttingDown,
    ];

    /// What to do about it, where nothing more precise is known.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Tls => {
                "the host wants TLS, which this port does not have: set its `tls`, or connect without it (`--tls`, `--concat`)"
            }
            Self::TlsRequired => {
                "connect with --tls and the host's key (`ebof target add key HOST --kind tls` gives it one), through a port that has `tls`"
            }
            Self::TlsFailed => {
                "compare the host's key with those that the target has (`ebof target show keys`; `ebof check-tls-key --keyfile FILE -n HOSTNQN -c SUBNQN` shows the identities)"
            }
            Self::TlsIdentity => {
                "the host's key is of the host NQN and subsystem NQN that it connects with: compare them"
            }
            Self::NotNvme => "only NVMe hosts should reach this port: a port scanner, a health check or a wrong port?",
            Self::ProtocolError => {
                "the host, or something between, damages PDUs or capsules: compare versions, capture the traffic"
            }
            Self::DigestRefused => {
                "set the host's --hdr-digest and --data-digest as the port's header_digest and data_digest say"
            }
            Self::HandshakeTimeout => {
                "the host or the network is too slow, or something connects and says nothing: see handshake_timeout"
            }
            Self::TooManyConnections => "raise max_connections, or connect with fewer queues (-i)",
            Self::NoResources => {
                "connect with fewer or shallower queues (-i, -Q), lower in_capsule_data of the port, or raise \
                 rdma_memory; memory that may be locked (`ulimit -l`) counts, too"
            }
            Self::UnknownSubsystem => "connect to an NQN that `ebof discover` lists",
            Self::SubsystemDisabled => {
                "`ebof target enable subsystem NQN`, or `enabled = true` in the configuration, lets hosts connect again"
            }
            Self::SubsystemNotOnPort => "add the port to the subsystem's ports, or connect through one that has it",
            Self::DiscoveryPort => "this port answers discovery only: connect to an address that `ebof discover` lists",
            Self::HostNotAllowed => "add the host NQN to the subsystem's allowed_hosts, or set allow_any_host = true",
            Self::NoSecret => {
                "give the host a key (`ebof target add key HOST`), or set the subsystem's security to \"anyone\""
            }
            Self::NotAuthenticated => {
                "compare the host's secret with the target's (`ebof target show keys` lists which there are), or give it another key (`ebof target rotate key \
                 HOST`); if the host wants a proof, it needs a dhchap-ctrl key"
            }
            Self::TooManyUnproven => {
                "something there connects and does not go on (`ebof target show hosts` has who is proving): find it by its address; hosts try again by themselves"
            }
            Self::HostIdConflict => "two hosts share a host id: give each its own (/etc/nvme/hostid)",
            Self::HostShare => {
                "disconnect what the host does not need, connect with fewer queues (-i), or raise host_share"
            }
            Self::AddressShare => {
                "something there connects and does not go on; if many hosts share the address, raise address_share"
            }
            Self::NoFreeController => "disconnect unused hosts, or widen cntlid_min to cntlid_max",
            Self::ControllerNotFound => "the controller is gone: the host has to connect the admin queue again",
            Self::ControllerOfOtherHost => {
                "all queues of a controller are connected by one host NQN through one port: compare those of its admin queue"
            }
            Self::QueueRefused => "connect with fewer or shallower queues (-i, -Q)",
            Self::InvalidConnect => "the host sent a Connect that breaks the specification: compare versions",
            Self::QueuesDraining => {
                "the host tries again by itself; if this goes on, the device behind the subsystem hangs: see the log"
            }
            Self::ShuttingDown => "try again when the target is up",
        }
    }
}

/// Refusals, the latest last; at most as many as it was made for.
#[derive(Clone, Debug)]
pub struct ConnectionLog {
    entries: VecDeque<Refusal>,
    entries_max: usize,
}

impl ConnectionLog {
    /// Remembers at most `entries_max` refusals; with 0 it remembers none.
    #[must_use]
    pub fn new(entries_max: usize) -> Self {
        Self { entries: VecDeque::new(), entries_max }
    }

    /// Remembers a refusal. One that is like an earlier one (peer's IP address, NQNs, reason) takes
    /// its place and adds its count. Peers choose the texts: each is cut to 512 bytes.
    pub fn record(&mut self, mut refusal: Refusal) {
        if self.entries_max == 0 {
            return;
        }
        cut(&mut refusal.detail);
        refusal.host_nqn.iter_mut().chain(&mut refusal.subsystem_nqn).for_each(cut);
        if let Some(at) = self.entries.iter().rposition(|entry| entry.is_like(&refusal)) {
            let earlier = self.entries.remove(at).map_or(0, |entry| entry.count);
            refusal.count = refusal.count.saturating_add(earlier);
        } else if self.entries.len() >= self.entries_max {
            self.entries.pop_front();
        }
        self.entries.push_back(refusal);
    }

    /// Forgets what is remembered, and tells how many entries that were.
    pub fn clear(&mut self) -> usize {
        std::mem::take(&mut self.entries).len()
    }

    /// What is remembered, the latest last.
    #[must_use]
    pub fn entries(&self) -> Vec<Refusal> {
        self.entries.iter().cloned().collect()
    }
}

impl Refusal {
    fn is_like(&self, other: &Self) -> bool {
        self.peer.ip() == other.peer.ip()
            && self.reason == other.reason
            && self.host_nqn == other.host_nqn
            && self.subsystem_nqn == other.subsystem_nqn
    }
}

fn cut(text: &mut String) {
    const BYTES_MAX: usize = 512;
    if text.len() > BYTES_MAX {
        let end = (0..=BYTES_MAX).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
    }
}
