//! The limits that a configuration is held to. The documentation in `docs/config.md` names the same
//! numbers.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The longest text of a configuration in bytes.
pub const TEXT_BYTES_MAX: usize = 16 << 20;
/// The most ports.
pub const PORTS_MAX: usize = 256;
/// The most hosts.
pub const HOSTS_MAX: usize = 65536;
/// The most subsystems.
pub const SUBSYSTEMS_MAX: usize = 4096;
/// The most namespaces of a subsystem, and the highest NSID.
pub const NAMESPACES_MAX: u32 = 1024;
/// The highest ANA group.
pub const ANA_GROUP_MAX: u32 = 1024;
/// The most drives: each has a thread.
pub const DRIVES_MAX: usize = 256;
/// The longest name of a drive in characters.
pub const DRIVE_NAME_CHARS_MAX: usize = 32;
/// Capacity of a drive in bytes.
pub const DRIVE_SIZE_BYTES: RangeInclusive<u64> = 1 << 20..=1 << 60;
/// Bytes that may be written over a drive's life.
pub const ENDURANCE_BYTES: RangeInclusive<u64> = 1 << 20..=i64::MAX.unsigned_abs();
/// The most managers of a drive, and the most quotas.
pub const DRIVE_HOSTS_MAX: usize = 4096;
/// Quota of a host in bytes; 0 lets it have no namespace.
pub const QUOTA_BYTES: RangeInclusive<u64> = 0..=1 << 60;
/// The lowest controller id; a subsystem with a drive begins with 0.
pub const CNTLID_MIN: u16 = 1;
/// The highest controller id (Base, Controller ID: FFF0h and above are reserved).
pub const CNTLID_MAX: u16 = 0xffef;
/// The longest port name in characters.
pub const PORT_NAME_CHARS_MAX: usize = 64;
/// The longest serial number (Identify Controller, SN).
pub const SERIAL_CHARS_MAX: usize = 20;
/// The longest model number (Identify Controller, MN).
pub const MODEL_CHARS_MAX: usize = 40;
/// The longest firmware revision (Identify Controller, FR).
pub const FIRMWARE_CHARS_MAX: usize = 8;
/// In-capsule data in bytes; a multiple of 16, because IOCCSZ counts in 16 bytes.
pub const IN_CAPSULE_DATA_BYTES: RangeInclusive<u64> = 0..=256 << 10;
/// MAXH2CDATA in bytes; a multiple of 4, at least 4096 (NVMe/TCP, ICResp).
pub const MAX_H2C_DATA_BYTES: RangeInclusive<u64> = 4096..=16 << 20;
/// Entries of an I/O queue.
pub const QUEUE_SIZE: RangeInclusive<u64> = 2..=1024;
/// I/O queues of a controller.
pub const IO_QUEUES: RangeInclusive<u64> = 1..=1024;
/// IP type of service.
pub const TOS: RangeInclusive<u64> = 0..=255;
/// Priority of what a socket sends.
pub const SO_PRIORITY: RangeInclusive<u64> = 0..=0x7fff_ffff;
/// How long a receive polls the network card's queue, in microseconds: longer is no polling but a
/// hang.
pub const BUSY_POLL_US: RangeInclusive<u64> = 0..=1_000_000;
/// The least payload that is sent without a copy, in bytes: less than a page is copied faster than
/// it is pinned.
pub const ZEROCOPY_SEND_BYTES: RangeInclusive<u64> = 4096..=16 << 20;
/// Threads.
pub const THREADS: RangeInclusive<u64> = 1..=1024;
/// Connections.
pub const CONNECTIONS: RangeInclusive<u64> = 1..=1_048_576;
/// Controllers, those of discovery included.
pub const CONTROLLERS: RangeInclusive<u64> = 1..=65536;
/// What one host or address may use of what all share, in percent.
pub const SHARE_PERCENT: RangeInclusive<u64> = 1..=100;
/// Remembered refusals.
pub const REFUSED_JOURNAL: RangeInclusive<u64> = 0..=65536;
/// Entries of an Error Information log (Identify Controller, ELPE is one byte).
pub const ERROR_LOG_ENTRIES: RangeInclusive<u64> = 1..=256;
/// How long the handshake of a connection may take.
pub const HANDSHAKE_TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(600);
