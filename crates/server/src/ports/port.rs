//! A port as the target's threads see it: what connections that arrive there are offered.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};

use ebof_fabrics::PortId;
use ebof_manage::config;
use ebof_manage::listen::Transport;
use ebof_nvme::log::RdmaProvider;
use ebof_tcp::Digest;
use ebof_tcp::controller::ConnectionConfig;
use ebof_vfio::registers::QUEUES_MAX;

use crate::direct::Reaper;
use crate::ports::shared_receives::ReceiveSets;

/// A port that listens.
#[derive(Debug)]
pub(crate) struct PortState {
    pub(crate) id: PortId,
    pub(crate) name: String,
    /// Where it really listens: the configuration may leave the port number to the system.
    pub(crate) address: SocketAddr,
    pub(crate) config: config::Port,
    /// Over RDMA, what kind of device it listens on.
    pub(crate) provider: RdmaProvider,
    /// Entries that queues of that device have at most.
    pub(crate) device_entries: u16,
    /// Receives that connections share, if the configuration says so.
    pub(crate) receive_sets: Arc<ReceiveSets>,
    pub(crate) counts: Arc<PortCounts>,
    /// Which reactor serves the clients of a direct port.
    pub(crate) reactor: Arc<OnceLock<usize>>,
    /// Closes what the clients of a direct port have sent.
    pub(crate) reaper: Arc<Reaper>,
}

/// How long a thread looks for work of a virtual machine, microseconds: about as long as the
/// interrupt and the next doorbell take where processors are busy. One without work sleeps.
const DIRECT_POLLS_US: u32 = 100;

/// What was counted of a port, under all the configurations that it has had.
#[derive(Debug, Default)]
pub(crate) struct PortCounts {
    /// Connections open now.
    pub(crate) connections: AtomicU32,
    /// Connections accepted since the start.
    pub(crate) accepted: AtomicU64,
    /// Connections refused since the start.
    pub(crate) refused: AtomicU64,
    /// Whether connections are accepted.
    pub(crate) is_listening: AtomicBool,
}

impl PortState {
    pub(crate) fn new(config: config::Port, address: SocketAddr) -> Self {
        let name = config.name.clone();
        let provider = RdmaProvider::NOT_SPECIFIED;
        let device_entries = u16::MAX;
        Self {
            id: PortId(config.id),
            name,
            address,
            config,
            provider,
            device_entries,
            receive_sets: Arc::default(),
            counts: Arc::default(),
            reactor: Arc::default(),
            reaper: Arc::default(),
        }
    }

    /// The deepest I/O queue, in entries.
    pub(crate) fn max_queue_entries(&self) -> u16 {
        self.config.max_queue_size.min(self.device_entries)
    }

    /// The most I/O queues of a controller: at a direct port, no more than there are doorbells.
    pub(crate) fn max_io_queues(&self) -> u16 {
        match self.config.listen.transport {
            Transport::VfioUser => self.config.max_io_queues.min(QUEUES_MAX - 1),
            Transport::Tcp | Transport::Rdma => self.config.max_io_queues,
        }
    }

    /// How long a thread with connections of the port looks for work before it sleeps,
    /// microseconds; [`u64::MAX`] without end. 0: as long as others.
    pub(crate) fn polls_us(&self) -> u64 {
        match self.config.listen.transport {
            Transport::Rdma | Transport::VfioUser if self.config.prefer_busy_poll => u64::MAX,
            Transport::Rdma => self.config.busy_poll_us.unwrap_or_default().into(),
            Transport::VfioUser => self.config.busy_poll_us.unwrap_or(DIRECT_POLLS_US).into(),
            // There these are options of sockets.
            Transport::Tcp => 0,
        }
    }

    /// Whether the doorbells of a direct port are memory: then its thread has to look at them now
    /// and then, also while nobody rings.
    pub(crate) fn maps_doorbells(&self) -> bool {
        self.config.prefer_busy_poll || self.config.busy_poll_us.is_some_and(|us| us > 0)
    }

    /// The same port with another configuration: its connections stay, with what they were offered.
    /// Under another id it is another port to hosts.
    pub(crate) fn altered(&self, config: config::Port) -> Self {
        let altered = Self::new(config, self.address);
        let (reactor, reaper) = (Arc::clone(&self.reactor), Arc::clone(&self.reaper));
        let altered = Self { provider: self.provider, device_entries: self.device_entries, reactor, reaper, ..altered };
        let of_receives = |config: &config::Port| (config.srq_size, config.in_capsule_data_bytes);
        let altered = if of_receives(&altered.config) == of_receives(&self.config) {
            Self { receive_sets: Arc::clone(&self.receive_sets), ..altered }
        } else {
            altered
        };
        if altered.id == self.id { Self { counts: Arc::clone(&self.counts), ..altered } } else { altered }
    }

    /// Whether both are one port, be it with different configurations.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.counts, &other.counts)
    }

    /// The largest in-capsule data that a command may carry where those of I/O queues carry so many
    /// bytes; Connect may always carry its 1024.
    pub(crate) fn in_capsule_bytes(of_io_queues: u32) -> u32 {
        of_io_queues.max(ADMIN_IN_CAPSULE_BYTES)
    }

    pub(crate) fn transport_config(&self) -> ConnectionConfig {
        ConnectionConfig {
            in_capsule_bytes: self.config.in_capsule_data_bytes,
            h2c_data_max: self.config.max_h2c_data_bytes,
            alignment: 4,
            header_digest: digest(self.config.header_digest),
            data_digest: digest(self.config.data_digest),
            c2h_success: self.config.c2h_success,
            r2t_bytes: R2T_BYTES,
        }
    }
}

/// What the Admin Queue's capsules may always carry (NVMe/TCP, Capsules: 8192 bytes).
const ADMIN_IN_CAPSULE_BYTES: u32 = 8192;

/// Size of one R2T for hosts that take several at a time, bytes: large enough that the round trip
/// hides behind the previous one's data.
const R2T_BYTES: u32 = 256 << 10;

fn digest(digest: config::Digest) -> Digest {
    match digest {
        config::Digest::Off => Digest::Refused,
        config::Digest::Allowed => Digest::Allowed,
        config::Digest::Required => Digest::Required,
    }
}
