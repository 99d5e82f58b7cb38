//! How many lines of the log others can cause: peers by what they send, devices by failing. All
//! such lines pass here.
//!
//! Lines are counted by whom they are about and of which kind they are. The first few of a minute
//! are logged, the others counted; how many there were is logged with the next line, or when the
//! minute is over. The table is bounded: when many addresses take part, those without an entry in
//! it are one, and so the log grows by a bounded number of lines a minute whatever is sent.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ebof_backend::Class;
use ebof_drive::VolumeId;
use ebof_fabrics::DeviceId;
use ebof_manage::api::RefusalReason;
use ebof_nvme::Nqn;

/// How long lines of a kind are counted together, microseconds.
const WINDOW_US: u64 = 60_000_000;

/// The most pairs of subject and kind that are counted.
const ENTRIES_MAX: usize = 512;

/// The subject of a line: lines of one kind are counted for each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LogSubject {
    /// A host on the network.
    Peer(Network),
    /// A host of a drive.
    Host(Nqn),
    /// A device.
    Device(Option<DeviceId>),
    /// The volume of a namespace on a drive.
    Volume(VolumeId),
    /// This target.
    Target,
    /// Subjects beyond [`ENTRIES_MAX`].
    Others,
}

/// As much of an address as its owner cannot choose: all of IPv4, the first 64 bits of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Network(IpAddr);

/// What a line says. Lines of one kind differ in details only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// A connection was refused.
    Refused(RefusalReason),
    /// The system gave a connection and took it back.
    NotAccepted,
    /// Nothing can be accepted now.
    AcceptPaused,
    /// A connection ended that never became a queue.
    Unconnected,
    /// A connection became a queue.
    Connected,
    /// A connection became a queue although its Connect was not as it should be.
    Tolerated,
    /// A queue came to its end.
    Ended,
    /// A queue came to an end that was not wanted.
    Broken,
    /// An adapter has given up a connection.
    Lost,
    /// A virtual machine asked for what it does not get.
    ClientRefused,
    /// A connection cannot be watched.
    Unwatched,
    /// This machine lacks what a host's proof needs.
    Unprovable,
    /// The kernel was to make the records of TLS, and does not.
    NotInKernel,
    /// A network card keeps memory.
    Pinned,
    /// A device failed.
    Device(Class),
    /// Protection information was wrong.
    Protection,
    /// The drive refused an admin command.
    DriveRefused,
    /// The drive could not carry out an admin command.
    DriveFailed,
    /// The best state of a drive's ANA groups is another one.
    AnaLimit,
    /// Blocks cannot be marked bad.
    NotMarked,
    /// What belongs to no namespace any more cannot be removed.
    NotRemoved,
    /// A namespace has as much as it may have.
    QuotaReached,
    /// The drive has no space.
    Full,
    /// The drive has space again.
    Room,
    /// A block is damaged.
    Damaged,
    /// A block that was not flushed is taken as it is.
    Mended,
}

impl Kind {
    /// Lines of a window that are logged. A host with many processors connects and leaves with a
    /// queue for each.
    fn lines(self) -> u32 {
        match self {
            Self::Connected | Self::Ended | Self::Broken | Self::Lost => 256,
            // The medium reports so many at once; each is of another block.
            Self::Damaged | Self::Mended => 16,
            Self::Device(_) | Self::NotInKernel => 1,
            _ => 5,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Refused(_) => "refused connections",
            Self::NotAccepted => "connections that ended before they were accepted",
            Self::AcceptPaused => "rests of accepting",
            Self::Connected => "connected queues",
            Self::Tolerated => "connections accepted although something was wrong",
            Self::Unconnected | Self::Ended | Self::Broken => "ended connections",
            Self::Lost => "connections that the adapter has given up",
            Self::ClientRefused => "refused requests of virtual machines",
            Self::Unwatched => "connections that cannot be watched",
            Self::Unprovable => "proofs of hosts that this machine cannot take",
            Self::NotInKernel => "connections without records of the kernel",
            Self::Pinned => "network cards that keep memory",
            Self::Device(_) => "device errors",
            Self::Protection => "mismatches of protection information",
            Self::DriveRefused => "refused admin commands",
            Self::DriveFailed => "failed admin commands",
            Self::AnaLimit => "changes of what paths to a drive are",
            Self::NotMarked => "blocks that cannot be marked bad",
            Self::NotRemoved => "failed removals",
            Self::QuotaReached => "writes beyond the capacity of a namespace",
            Self::Full => "writes to a full drive",
            Self::Room => "reports of space on the drive",
            Self::Damaged => "damaged blocks",
            Self::Mended => "blocks that were not flushed",
        }
    }
}

/// Counts lines of the log by peer and kind, and decides which are written. Shared by all threads.
#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    table: Mutex<HashMap<(LogSubject, Kind), Counted>>,
    /// An entry began to leave lines out.
    begun: AtomicBool,
}

/// Lines of one kind about one peer.
#[derive(Debug)]
struct Counted {
    /// When the first of them came.
    since_us: u64,
    logged: u32,
    suppressed: u64,
}

/// Lines that were suppressed before this one; appended to it if there were any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Suppressed {
    pub(crate) lines: u64,
    seconds: u64,
}

impl fmt::Display for Suppressed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lines {
            0 => Ok(()),
            lines => write!(f, " ({lines} more like this in the last {} s)", self.seconds),
        }
    }
}

impl LogLimit {
    /// Whether a line is to be logged; then with how many like it were left out.
    pub(crate) fn admit(&self, about: LogSubject, kind: Kind, now_us: u64) -> Option<Suppressed> {
        let mut table = self.lock();
        let mut key = (about, kind);
        if table.len() >= ENTRIES_MAX && !table.contains_key(&key) {
            // Entries that have nothing to log any more make room.
            table.retain(|_, counted| counted.suppressed > 0 || !counted.is_expired(now_us));
            if table.len() >= ENTRIES_MAX {
                key.0 = LogSubject::Others;
            }
        }
        let counted = match table.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(Counted { since_us: now_us, logged: 1, suppressed: 0 });
                return Some(Suppressed::default());
            }
            Entry::Occupied(entry) => entry.into_mut(),
        };
        if counted.is_expired(now_us) {
            let before = std::mem::replace(counted, Counted { since_us: now_us, logged: 1, suppressed: 0 });
            return Some(before.suppressed(now_us));
        }
        if counted.logged < kind.lines() {
            counted.logged += 1;
            return Some(Suppressed::default());
        }
        counted.suppressed += 1;
        if counted.suppressed == 1 {
            self.begun.store(true, Ordering::Relaxed);
        }
        None
    }

    /// Whether there is a new time at which something a line is due
    /// ([`log_left_out`](Self::log_left_out)). True once.
    pub(crate) fn is_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed) && self.begun.swap(false, Ordering::Relaxed)
    }

    /// Logs what was left out in windows that are over, and forgets them.
    pub(crate) fn log_left_out(&self, now_us: u64) {
        for ((about, kind), suppressed) in self.take_expired(now_us) {
            tracing::warn!(
                "{} about {about}, not logged one by one: {} in the last {} s",
                kind.name(),
                suppressed.lines,
                suppressed.seconds
            );
        }
    }

    fn take_expired(&self, now_us: u64) -> Vec<((LogSubject, Kind), Suppressed)> {
        let mut table = self.lock();
        let over = table.extract_if(|_, counted| counted.is_expired(now_us));
        let expired = over.map(|(key, counted)| (key, counted.suppressed(now_us)));
        expired.filter(|(_, suppressed)| suppressed.lines > 0).collect()
    }

    /// When there will be something to [`log_left_out`](Self::log_left_out), microseconds.
    pub(crate) fn next_us(&self) -> Option<u64> {
        let table = self.lock();
        let open = table.values().filter(|counted| counted.suppressed > 0);
        open.map(|counted| counted.since_us.saturating_add(WINDOW_US)).min()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(LogSubject, Kind), Counted>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    fn is_expired(&self, now_us: u64) -> bool {
        now_us.saturating_sub(self.since_us) >= WINDOW_US
    }

    fn suppressed(&self, now_us: u64) -> Suppressed {
        Suppressed { lines: self.suppressed, seconds: now_us.saturating_sub(self.since_us) / 1_000_000 }
    }
}

impl Network {
    pub(crate) fn from_address(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            v4 => v4,
        })
    }
}

impl From<IpAddr> for LogSubject {
    fn from(address: IpAddr) -> Self {
        Self::Peer(Network::from_address(address))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V6(address) => write!(f, "{address}/64"),
            v4 @ IpAddr::V4(_) => v4.fmt(f),
        }
    }
}

impl fmt::Display for LogSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer(network) => network.fmt(f),
            Self::Host(nqn) => nqn.fmt(f),
            Self::Device(Some(device)) => write!(f, "device {}", device.0),
            Self::Device(None) => f.write_str("no device"),
            Self::Volume(volume) => write!(f, "instance {}", volume.0),
            Self::Target => f.write_str("this target"),
            Self::Others => f.write_str("many others"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> LogSubject {
        text.parse::<IpAddr>().unwrap().into()
    }

    const KIND: Kind = Kind::Refused(RefusalReason::NotNvme);

    #[test]
    fn the_first_of_a_kind_is_logged_and_the_others_are_counted() {
        let limit = LogLimit::default();
        let one = LogSubject::Device(Some(DeviceId(1)));
        let other = LogSubject::Device(Some(DeviceId(2)));
        let errors = Kind::Device(Class::OutOfSpace);
        assert_eq!(limit.admit(one.clone(), errors, 5), Some(Suppressed::default()));
        for now_us in 6..106 {
            assert_eq!(limit.admit(one.clone(), errors, now_us), None);
        }
        assert_eq!(limit.admit(one.clone(), Kind::Device(Class::MediumRead), 106), Some(Suppressed::default()));
        assert_eq!(limit.admit(other, errors, 106), Some(Suppressed::default()));
        let next = limit.admit(one.clone(), errors, 5 + WINDOW_US).unwrap();
        assert_eq!(next.to_string(), " (100 more like this in the last 60 s)");
        assert_eq!(limit.admit(one, errors, 6 + WINDOW_US), None);
    }

    #[test]
    fn omitted_lines_are_counted_at_the_end_of_the_window() {
        let limit = LogLimit::default();
        assert_eq!(limit.next_us(), None);
        let logged = (0..100).filter(|&now_us| limit.admit(peer("192.0.2.1"), KIND, now_us).is_some()).count();
        assert_eq!((logged, limit.next_us()), (5, Some(WINDOW_US)));
        assert_eq!(limit.take_expired(WINDOW_US - 1), []);
        let expired = limit.take_expired(WINDOW_US);
        assert_eq!(expired, [((peer("192.0.2.1"), KIND), Suppressed { lines: 95, seconds: 60 })]);
        assert_eq!((limit.take_expired(WINDOW_US), limit.next_us()), (vec![], None));
    }

    // @test hostile.log-lines
    #[test]
    fn no_number_of_addresses_makes_the_log_or_the_table_grow() {
        let limit = LogLimit::default();
        let mut lines = 0;
        for at in 0..1_000_000_u32 {
            let address = IpAddr::from(at.to_be_bytes());
            lines += u64::from(limit.admit(address.into(), KIND, 7).is_some());
        }
        assert!(limit.lock().len() <= ENTRIES_MAX + 1);
        assert!(lines <= ENTRIES_MAX as u64 + 5, "{lines}");
        let expired: u64 = limit.take_expired(7 + WINDOW_US).iter().map(|(_, suppressed)| suppressed.lines).sum();
        assert_eq!(expired + lines, 1_000_000);
        assert_eq!(limit.lock().len(), 0);
    }

    #[test]
    fn addresses_of_one_network_are_counted_together() {
        assert_eq!(peer("2001:db8:1:2::1"), peer("2001:db8:1:2:ffff::9"));
        assert_ne!(peer("2001:db8:1:2::1"), peer("2001:db8:1:3::1"));
        assert_eq!(peer("::ffff:192.0.2.1"), peer("192.0.2.1"));
        assert_ne!(peer("192.0.2.1"), peer("192.0.2.2"));
        assert_eq!(peer("2001:db8:1:2::1").to_string(), "2001:db8:1:2::/64");
    }
}
