//! The options of a connection: address, transport, names, queues, timers. Owns the defaults and
//! their limits, and what a user may set of them ([`crate::overrides`]); reads no files but the
//! host's identity ([`crate::host`]).

pub mod host;
pub(crate) mod keys;
pub mod overrides;
pub(crate) mod transport;

use std::num::NonZeroUsize;
use std::time::Duration;

use ebof_clock::Clock;
use ebof_loopback::Port;
use ebof_nvme::uri::Uri;
use ebof_nvme::{HostId, Nqn};
use ebof_tls::RecordsBy;

use crate::error::connect_error::{Step, Tried};
use keys::{KeySource, Tls};
use transport::Transport;

/// How to connect to a subsystem. Make one with [`Options::new`] or [`Options::from_uri`], then set
/// the fields that differ from the defaults, which are the Linux host's where it has such an
/// option.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Address or host name of the target (nvme-cli's `--traddr`).
    pub traddr: String,
    /// Port of TCP or of the RDMA connection manager (`--trsvcid`).
    pub trsvcid: u16,
    /// Local address to connect from (`--host-traddr`).
    pub host_traddr: Option<String>,
    /// Network interface to connect through (`--host-iface`; TCP only); needs the right to bind to
    /// a device.
    pub host_iface: Option<String>,
    /// The subsystem (`--nqn`).
    pub nqn: Nqn,
    /// The host NQN (`--hostnqn`).
    pub host_nqn: Nqn,
    /// Host Identifier (`--hostid`).
    pub host_id: HostId,
    /// This host's secret for DH-HMAC-CHAP (`--dhchap-secret-file`), for controllers that ask for
    /// authentication.
    pub dhchap_key: Option<KeySource>,
    /// The subsystem's (`--dhchap-ctrl-secret-file`): with it, the controller has to prove itself.
    pub dhchap_ctrl_key: Option<KeySource>,
    /// With it, connections over TCP are TLS connections (`--tls`).
    pub tls: Option<Tls>,
    /// Authentication generates a PSK for TLS (`--concat`, secure channel concatenation), with
    /// which every queue comes; needs [`Options::dhchap_key`]. Not for discovery controllers, which
    /// ask for no authentication.
    pub concat: bool,
    /// Who makes and opens the records of TLS (`--tls-records`). Where the kernel cannot, this
    /// process does, and the log says so once.
    pub tls_records: RecordsBy,
    /// I/O queues (`--nr-io-queues`): for everything, or for reads only where there are write
    /// queues. The target may grant fewer: see [`crate::QueueMaps::assign`]. 0 of all three kinds
    /// makes an admin-only connection.
    pub nr_io_queues: u16,
    /// Additional queues for everything but reads (`--nr-write-queues`).
    pub nr_write_queues: u16,
    /// Additional queues that are polled (`--nr-poll-queues`).
    pub nr_poll_queues: u16,
    /// Entries of an I/O queue (`--queue-size`), 2 to 1024; the target's CAP.MQES may lower it.
    pub queue_size: u16,
    /// Keep Alive Timeout in milliseconds (`--keep-alive-tmo` counts seconds); 0 switches it off. A
    /// discovery connection that is read once needs none.
    pub keep_alive_ms: u32,
    /// Ask for header digests (`--hdr-digest`; TCP only).
    pub hdr_digest: bool,
    /// Ask for data digests (`--data-digest`; TCP only).
    pub data_digest: bool,
    /// Ask for SQ flow control to be disabled (`--disable-sqflow`).
    pub disable_sqflow: bool,
    /// Over RDMA, each command has a key for its own data, which is invalid when it completes
    /// (`--memory-windows`), instead of one for each region. It costs two more operations of the
    /// adapter for each command, one if the target invalidates. Devices without memory windows
    /// refuse it.
    pub memory_windows: bool,
    /// IP type of service (`--tos`); `None` leaves the system's.
    pub tos: Option<u8>,
    /// Priority of what is sent (`SO_PRIORITY`; `--so-priority`, as nvme-tcp's module parameter);
    /// it chooses the queues of a network card with application device queues. More than 6 needs
    /// `CAP_NET_ADMIN`. `None` leaves the system's.
    pub so_priority: Option<u32>,
    /// How long a receive may poll the network card's queue, in microseconds (`SO_BUSY_POLL`,
    /// `--busy-poll`); more than `net.core.busy_read` needs `CAP_NET_ADMIN`. `None` leaves the
    /// system's.
    pub busy_poll_us: Option<u32>,
    /// Let polling stand in for the card's interrupts (`SO_PREFER_BUSY_POLL`,
    /// `--prefer-busy-poll`); needs `CAP_NET_ADMIN`.
    pub prefer_busy_poll: bool,
    /// Packets that one poll takes at most (`SO_BUSY_POLL_BUDGET`, `--busy-poll-budget`); more than
    /// 8 needs `CAP_NET_ADMIN`. `None` leaves the system's.
    pub busy_poll_budget: Option<u16>,
    /// Data of writes of this many bytes or more are sent without a copy (`MSG_ZEROCOPY`,
    /// `--zerocopy-send`), at least 4096: for network cards with which that is faster. A buffer is
    /// given back only when the target has acknowledged its bytes. `None` copies all.
    pub zerocopy_send: Option<u32>,
    /// How many zero-copy sends in a row the kernel may copy anyway before the connection stops
    /// using them.
    pub zerocopy_copied_max: u32,
    /// Time between two attempts to reconnect in milliseconds (`--reconnect-delay` counts seconds),
    /// around which the back-off varies.
    pub reconnect_delay_ms: u32,
    /// How long to try to reconnect before giving up (`--ctrl-loss-tmo`); `None` tries for ever.
    pub ctrl_loss_tmo: Option<Duration>,
    /// How long commands wait for a lost connection to come back before they fail
    /// (`--fast-io-fail-tmo`); `None` is as long as `ctrl_loss_tmo`.
    pub fast_io_fail_tmo: Option<Duration>,
    /// How long commands wait while the controller says that it cannot reach the namespace on this
    /// path, or that access to it changes (`--path-loss-tmo`); `None` waits for ever.
    pub path_loss_tmo: Option<Duration>,
    /// How long writes whose connection was lost wait before they are repeated, where the
    /// controller neither says how long it may still execute them (Command Quiesce Time) nor can be
    /// reset through another one (`--fence-tmo` counts seconds). 0, the default, is as Linux does:
    /// at once, although the first of the two may be executed last.
    pub fence_tmo: Duration,
    /// Time-out of each step of connecting (TCP handshake, `ICResp`, Connect) in milliseconds.
    pub connect_timeout_ms: u32,
    /// Time-out of an I/O command in milliseconds. Then it is aborted; if that does not help within
    /// the same time again, the connection is reset.
    pub command_timeout_ms: u32,
    /// Default time-out of an admin command in milliseconds.
    pub admin_timeout_ms: u32,
    /// R2Ts that a target may have outstanding for one command, 1 to 64 (the Linux host offers 1).
    pub max_r2t: u32,
    /// Bytes of large writes that may be under way on a queue for ten milliseconds after a small
    /// command on any queue of the controller (TCP only): small commands wait for what has been
    /// sent before them, and for the time that the other end spends on it. A single write may be
    /// larger. `None` has no limit, which gives large writes more of a connection that is not
    /// theirs alone.
    pub bulk_bytes: Option<u32>,
    /// How long small requests may be held so that more are sent at once, in microseconds
    /// (`--batch-timeout`, as i10's I/O scheduler calls it), at most a second; 0 sends at once. See
    /// [`crate::QueuePair::flush`].
    pub batch_timeout_us: u32,
    /// The number of held requests from which they are sent (`--batch-nr`).
    pub batch_nr: u16,
    /// The bytes of held requests from which they are sent (`--batch-bytes`).
    pub batch_bytes: u32,
    /// How long a waiting queue pair spins before it sleeps, in microseconds. It adapts: 0 if
    /// completions take a millisecond or more, up to 4 ms if wake-ups are late. 0 always sleeps at
    /// once.
    pub spin_us: u32,
    /// The transport of the connections.
    pub transport: Transport,
    /// The clock, and the source of the jitter of pauses. A simulated clock is for
    /// [`crate::stepped`] only: threads sleep by the system's clock.
    pub clock: Clock,
}

impl Options {
    /// Entries of an I/O queue, at least.
    pub const QUEUE_SIZE_MIN: u16 = 2;
    /// Entries of an I/O queue, at most.
    pub const QUEUE_SIZE_MAX: u16 = 1024;

    /// The defaults for subsystem `nqn` at `traddr`:`trsvcid`, as this machine's host (see
    /// [`host::identity`]).
    #[must_use]
    pub fn new(traddr: impl Into<String>, trsvcid: u16, nqn: Nqn) -> Self {
        let identity = host::identity();
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let discovery = nqn.is_discovery();
        Self {
            traddr: traddr.into(),
            trsvcid,
            host_traddr: None,
            host_iface: None,
            nqn,
            host_nqn: identity.nqn,
            host_id: identity.id,
            dhchap_key: None,
            dhchap_ctrl_key: None,
            tls: None,
            concat: false,
            tls_records: RecordsBy::Own,
            // A discovery controller has no I/O queues.
            nr_io_queues: if discovery { 0 } else { u16::try_from(cores).unwrap_or(u16::MAX) },
            nr_write_queues: 0,
            nr_poll_queues: 0,
            queue_size: 128,
            keep_alive_ms: 5000,
            hdr_digest: false,
            data_digest: false,
            disable_sqflow: false,
            memory_windows: false,
            tos: None,
            so_priority: None,
            busy_poll_us: None,
            prefer_busy_poll: false,
            busy_poll_budget: None,
            zerocopy_send: None,
            zerocopy_copied_max: ebof_pinned::COPIED_MAX,
            reconnect_delay_ms: 10_000,
            ctrl_loss_tmo: Some(Duration::from_secs(600)),
            fast_io_fail_tmo: None,
            path_loss_tmo: Some(Duration::from_secs(600)),
            fence_tmo: Duration::ZERO,
            connect_timeout_ms: 10_000,
            command_timeout_ms: 30_000,
            admin_timeout_ms: 60_000,
            max_r2t: 4,
            bulk_bytes: Some(512 << 10),
            batch_timeout_us: 0,
            batch_nr: 16,
            batch_bytes: 64 << 10,
            spin_us: 50,
            transport: Transport::Tcp,
            clock: Clock::system(),
        }
    }

    /// The defaults for the subsystem of `uri`, or for the discovery subsystem if it has none, over
    /// the transport of `uri`.
    #[must_use]
    pub fn from_uri(uri: &Uri) -> Self {
        let nqn = uri.nqn.clone().unwrap_or_else(Nqn::discovery);
        Self { transport: uri.transport.into(), ..Self::new(uri.traddr.clone(), uri.trsvcid, nqn) }
    }

    /// The defaults for subsystem `nqn` of a target in the same process.
    #[must_use]
    pub fn loopback(port: Port, nqn: Nqn) -> Self {
        Self { transport: Transport::Loopback(port), ..Self::new("loopback", 0, nqn) }
    }

    /// Sets the host NQN and the Host Identifier that goes with it (see [`host::id_for`]).
    pub fn set_host_nqn(&mut self, nqn: Nqn) {
        self.host_id = host::id_for(&nqn);
        self.host_nqn = nqn;
    }

    /// The number of I/O queues to request, of all classes.
    #[must_use]
    pub fn io_queues(&self) -> u16 {
        self.nr_io_queues.saturating_add(self.nr_write_queues).saturating_add(self.nr_poll_queues)
    }

    /// Queue size within its limits.
    #[must_use]
    pub fn queue_entries(&self) -> u16 {
        self.queue_size.clamp(Self::QUEUE_SIZE_MIN, Self::QUEUE_SIZE_MAX)
    }

    /// The address as a person writes it: `127.0.0.1:4420`, `[fd00::1]:4420`.
    #[must_use]
    pub fn address(&self) -> String {
        if matches!(self.transport, Transport::Loopback(_)) {
            self.traddr.clone()
        } else if self.traddr.contains(':') {
            format!("[{}]:{}", self.traddr, self.trsvcid)
        } else {
            format!("{}:{}", self.traddr, self.trsvcid)
        }
    }

    /// What is tried when `queue` is connected, for the errors of that; nothing is done yet.
    pub(crate) fn tried(&self, queue: u16) -> Tried {
        Tried {
            traddr: self.traddr.clone(),
            trsvcid: self.trsvcid,
            transport: self.transport.protocol(),
            address: None,
            nqn: self.nqn.clone(),
            host_nqn: self.host_nqn.clone(),
            queue,
            step: Step::Resolve,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_without_nqn_means_discovery_and_needs_no_io_queue() {
        let options = Options::from_uri(&Uri::parse("nvme+tcp://[fd00::1]:8009").unwrap());
        assert!(options.nqn.is_discovery());
        assert_eq!((options.io_queues(), options.address().as_str()), (0, "[fd00::1]:8009"));
    }

    #[test]
    fn defaults_are_those_of_the_linux_host() {
        let options = Options::new("127.0.0.1", 4420, Nqn::parse("nqn.2014-08.org.example:a").unwrap());
        assert_eq!((options.queue_entries(), options.keep_alive_ms, options.reconnect_delay_ms), (128, 5000, 10_000));
        assert_eq!(options.ctrl_loss_tmo, Some(Duration::from_secs(600)));
        assert!(options.io_queues() >= 1);
    }
}
