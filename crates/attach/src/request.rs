//! What a caller asks for and what it gets: plain values that travel to the holder process and into the state file.
//! Nothing here acts.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Which sort of block device to make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// ublk where the kernel has it, else FUSE and a loop device.
    #[default]
    Auto,
    /// Only ublk.
    Ublk,
    /// Only FUSE and a loop device.
    Loop,
}

/// A connection to make, with the words and units of nvme-cli's `connect`. Absent numbers mean the initiator's default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Transport: `tcp`.
    pub transport: String,
    /// Host name or address of the port.
    pub traddr: String,
    /// TCP port.
    pub trsvcid: u16,
    /// The subsystem.
    pub nqn: String,
    /// Local address to connect from.
    pub host_traddr: Option<String>,
    /// Local interface to connect from.
    pub host_iface: Option<String>,
    /// Who we are; the machine's own name when absent.
    pub hostnqn: Option<String>,
    /// Host identifier, a UUID.
    pub hostid: Option<String>,
    /// I/O queues: for everything, or for reads only where there are write queues.
    pub nr_io_queues: Option<u16>,
    /// More queues, for everything but reads.
    pub nr_write_queues: Option<u16>,
    /// More queues, polled.
    pub nr_poll_queues: Option<u16>,
    /// Entries of an I/O queue.
    pub queue_size: Option<u16>,
    /// Keep alive, seconds.
    pub keep_alive_tmo: Option<u32>,
    /// Pause between attempts to reconnect, seconds.
    pub reconnect_delay: Option<u32>,
    /// How long to go on reconnecting, seconds; -1 for ever.
    pub ctrl_loss_tmo: Option<i64>,
    /// After how many seconds without a connection I/O fails instead of waiting; negative or absent: only with `ctrl_loss_tmo`.
    pub fast_io_fail_tmo: Option<i64>,
    /// IP type of service.
    pub tos: Option<u8>,
    /// `SO_PRIORITY`.
    pub so_priority: Option<u32>,
    /// `SO_BUSY_POLL`, microseconds.
    pub busy_poll_us: Option<u32>,
    /// `SO_PREFER_BUSY_POLL`.
    pub prefer_busy_poll: bool,
    /// `SO_BUSY_POLL_BUDGET`, packets.
    pub busy_poll_budget: Option<u16>,
    /// Data of writes of so many bytes or more are sent without a copy.
    pub zerocopy_send: Option<u32>,
    /// How long small requests may be held so that more go in one send, microseconds.
    pub batch_timeout_us: Option<u32>,
    /// Held requests that are enough.
    pub batch_nr: Option<u16>,
    /// Bytes of held requests that are enough.
    pub batch_bytes: Option<u32>,
    /// Header digests.
    pub hdr_digest: bool,
    /// Data digests.
    pub data_digest: bool,
    /// Submission queue flow control off.
    pub disable_sqflow: bool,
    /// Connect although this subsystem is connected at this address already, and make block devices for namespaces that
    /// have one.
    pub duplicate_connect: bool,
    /// The sort of block device.
    pub kind: Kind,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            transport: "tcp".to_owned(),
            traddr: String::new(),
            trsvcid: 4420,
            nqn: String::new(),
            host_traddr: None,
            host_iface: None,
            hostnqn: None,
            hostid: None,
            nr_io_queues: None,
            nr_write_queues: None,
            nr_poll_queues: None,
            queue_size: None,
            keep_alive_tmo: None,
            reconnect_delay: None,
            ctrl_loss_tmo: None,
            fast_io_fail_tmo: None,
            tos: None,
            so_priority: None,
            busy_poll_us: None,
            prefer_busy_poll: false,
            busy_poll_budget: None,
            zerocopy_send: None,
            batch_timeout_us: None,
            batch_nr: None,
            batch_bytes: None,
            hdr_digest: false,
            data_digest: false,
            disable_sqflow: false,
            duplicate_connect: false,
            kind: Kind::Auto,
        }
    }
}

impl Request {
    /// Where it connects to, in one word, for messages.
    #[must_use]
    pub fn address(&self) -> String {
        let host = if self.traddr.contains(':') { format!("[{}]", self.traddr) } else { self.traddr.clone() };
        format!("{}://{host}:{}", self.transport, self.trsvcid)
    }
}

/// One namespace as a block device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// What people call it: `nvme0n1`.
    pub name: String,
    /// The namespace.
    pub nsid: u32,
    /// The block device: `/dev/loop0` or `/dev/ublkb0`; absent while it is being made or when it could not be made.
    pub path: Option<PathBuf>,
    /// Why there is no path.
    pub problem: Option<String>,
    /// Bytes in a logical block.
    pub block_bytes: u32,
    /// Bytes of metadata with each block, which are the controller's business.
    #[serde(default)]
    pub metadata_bytes: u32,
    /// Logical blocks.
    pub blocks: u64,
    /// Nothing can be written to it.
    pub read_only: bool,
    /// NGUID, EUI-64 and UUID, as far as it has them: tells it from all other namespaces.
    #[serde(default)]
    pub identifiers: String,
    /// The name of the file behind a loop device, which no other file has: see [`crate::device::Front::file`]. `None` where it is
    /// no loop device, and in what an earlier version wrote.
    #[serde(default)]
    pub file: Option<String>,
}

/// A controller with its devices, as [`crate::connect`] leaves it behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// What people call it: `nvme0`.
    pub name: String,
    /// Its namespaces.
    pub devices: Vec<Device>,
}
