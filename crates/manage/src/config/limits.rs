//! The limits that a configuration is held to. The documentation in `docs/config.md` names the same
//! numbers.

use std::ops::RangeInclusive;

/// The longest text of a configuration in bytes.
pub const TEXT_BYTES_MAX: usize = 16 << 20;
/// The most ports.
pub const PORTS_MAX: usize = 256;
/// The most hosts.
pub const HOSTS_MAX: usize = 65536;
/// The most subsystems.
pub const SUBSYSTEMS_MAX: usize = 4096;
/// The most namespaces of a subsystem.
pub const NAMESPACES_MAX: u32 = 1024;
/// The highest NSID: FFFFFFFFh stands for all namespaces.
pub const NSID_MAX: u32 = 0xffff_fffe;
/// The most referrals of a port: hosts follow no more.
pub const REFERRALS_MAX: usize = 64;
/// The highest ANA group (ANAGRPMAX), as with Linux' target.
pub const ANA_GROUP_MAX: u32 = 128;
/// The most drives: each has a thread.
pub const DRIVES_MAX: usize = 256;
/// The longest name of a drive in characters.
pub const DRIVE_NAME_CHARS_MAX: usize = 32;
/// Capacity of a drive in bytes.
pub const DRIVE_SIZE_BYTES: RangeInclusive<u64> = 1 << 20..=1 << 60;
/// The most managers of a drive, and the most quotas.
pub const DRIVE_HOSTS_MAX: usize = 4096;
/// Quota of a host in bytes; 0 lets it have no namespace.
pub const QUOTA_BYTES: RangeInclusive<u64> = 0..=1 << 60;
/// The most functions of a drive.
pub const FUNCTIONS_MAX: u16 = 127;
/// The lowest controller id of a drive with functions: those below are of its own controllers.
pub const CNTLID_MIN_WITH_FUNCTIONS: u16 = 128;
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
/// Memory for capsules over RDMA in bytes.
pub const RDMA_MEMORY_BYTES: RangeInclusive<u64> = 1 << 20..=1 << 40;
/// Receives of a shared receive queue.
pub const SRQ_SIZE: RangeInclusive<u64> = 64..=32_768;
/// Entries of an I/O queue.
pub const QUEUE_SIZE: RangeInclusive<u64> = 2..=1024;

/// The most paths that a target may open beside those that its configuration names.
pub const CONFINE_PATHS_MAX: usize = 256;
