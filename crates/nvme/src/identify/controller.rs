//! Identify Controller (CNS 01h): the layout, and its fields in plain units. The bits of its fields
//! are in `field`.

use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::text::{Text, set_ascii};
use crate::command::ControllerInstance;
use crate::name::id::ControllerId;
use crate::name::nqn::Nqn;
use crate::property::Version;
use crate::table::values;

/// Identify Controller data structure. NVMe Base 2.1, section of that name; what only fabrics use
/// begins at IOCCSZ.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IdentifyController {
    /// PCI Vendor ID; 0 where there is no PCI function.
    pub vid: U16,
    /// PCI Subsystem Vendor ID.
    pub ssvid: U16,
    /// Serial Number, ASCII.
    pub sn: [u8; 20],
    /// Model Number, ASCII.
    pub mn: [u8; 40],
    /// Firmware Revision, ASCII.
    pub fr: [u8; 8],
    /// Recommended Arbitration Burst, a power of two.
    pub rab: u8,
    /// IEEE OUI Identifier, least significant byte first.
    pub ieee: [u8; 3],
    /// Controller Multi-Path I/O and Namespace Sharing Capabilities: `field::cmic`.
    pub cmic: u8,
    /// Maximum Data Transfer Size, a power of two in units of CAP.MPSMIN; 0 is without limit.
    pub mdts: u8,
    /// Controller ID.
    pub cntlid: U16,
    /// Version, as in the VS property.
    pub ver: U32,
    /// RTD3 Resume Latency, microseconds.
    pub rtd3r: U32,
    /// RTD3 Entry Latency, microseconds.
    pub rtd3e: U32,
    /// Optional Asynchronous Events Supported: `field::oaes`.
    pub oaes: U32,
    /// Controller Attributes: `field::ctratt`.
    pub ctratt: U32,
    /// Read Recovery Levels Supported.
    pub rrls: U16,
    /// Boot Partition Capabilities.
    pub bpcap: u8,
    /// Reserved.
    pub rsvd103: u8,
    /// NVM Subsystem Shutdown Latency, microseconds.
    pub nssl: U32,
    /// Reserved.
    pub rsvd108: [u8; 2],
    /// Power Loss Signaling Information.
    pub plsi: u8,
    /// Controller Type: `ControllerType`.
    pub cntrltype: u8,
    /// FRU Globally Unique Identifier.
    pub fguid: [u8; 16],
    /// Command Retry Delay Time 1, units of 100 ms.
    pub crdt1: U16,
    /// Command Retry Delay Time 2, units of 100 ms.
    pub crdt2: U16,
    /// Command Retry Delay Time 3, units of 100 ms.
    pub crdt3: U16,
    /// Controller Reachability Capabilities.
    pub crcap: u8,
    /// Controller Instance Uniquifier: another one for each controller that has had CNTLID, one
    /// after the other, until it wraps: `instance`.
    pub ciu: u8,
    /// Controller Instance Random Number; 0 not said.
    pub cirn: U64,
    /// Reserved.
    pub rsvd144: [u8; 109],
    /// NVM Subsystem Report.
    pub nvmsr: u8,
    /// VPD Write Cycle Information.
    pub vwci: u8,
    /// Management Endpoint Capabilities.
    pub mec: u8,
    /// Optional Admin Command Support: `field::oacs`.
    pub oacs: U16,
    /// Abort Command Limit, 0's based: `abort_limit`.
    pub acl: u8,
    /// Asynchronous Event Request Limit, 0's based: `async_event_limit`.
    pub aerl: u8,
    /// Firmware Updates: `field::frmw`.
    pub frmw: u8,
    /// Log Page Attributes: `field::lpa`.
    pub lpa: u8,
    /// Error Log Page Entries, 0's based: `error_log_entries`.
    pub elpe: u8,
    /// Number of Power States Support, 0's based: `power_states`.
    pub npss: u8,
    /// Admin Vendor Specific Command Configuration.
    pub avscc: u8,
    /// Autonomous Power State Transition Attributes.
    pub apsta: u8,
    /// Warning Composite Temperature Threshold, kelvin.
    pub wctemp: U16,
    /// Critical Composite Temperature Threshold, kelvin.
    pub cctemp: U16,
    /// Maximum Time for Firmware Activation, units of 100 ms.
    pub mtfa: U16,
    /// Host Memory Buffer Preferred Size, units of 4 KiB.
    pub hmpre: U32,
    /// Host Memory Buffer Minimum Size, units of 4 KiB.
    pub hmmin: U32,
    /// Total NVM Capacity, bytes.
    pub tnvmcap: U128,
    /// Unallocated NVM Capacity, bytes.
    pub unvmcap: U128,
    /// Replay Protected Memory Block Support.
    pub rpmbs: U32,
    /// Extended Device Self-test Time, minutes.
    pub edstt: U16,
    /// Device Self-test Options.
    pub dsto: u8,
    /// Firmware Update Granularity, units of 4 KiB; 0 not said, FFh none.
    pub fwug: u8,
    /// Keep Alive Support, units of 100 ms; 0 without Keep Alive: `keep_alive_granularity_ms`.
    pub kas: U16,
    /// Host Controlled Thermal Management Attributes.
    pub hctma: U16,
    /// Minimum Thermal Management Temperature, kelvin.
    pub mntmt: U16,
    /// Maximum Thermal Management Temperature, kelvin.
    pub mxtmt: U16,
    /// Sanitize Capabilities.
    pub sanicap: U32,
    /// Host Memory Buffer Minimum Descriptor Entry Size, units of 4 KiB.
    pub hmminds: U32,
    /// Host Memory Maximum Descriptors Entries.
    pub hmmaxd: U16,
    /// NVM Set Identifier Maximum.
    pub nsetidmax: U16,
    /// Endurance Group Identifier Maximum.
    pub endgidmax: U16,
    /// ANA Transition Time, seconds.
    pub anatt: u8,
    /// Asymmetric Namespace Access Capabilities: `field::anacap`.
    pub anacap: u8,
    /// ANA Group Identifier Maximum.
    pub anagrpmax: U32,
    /// Number of ANA Group Identifiers.
    pub nanagrpid: U32,
    /// Persistent Event Log Size, units of 64 KiB.
    pub pels: U32,
    /// Domain Identifier.
    pub domainid: U16,
    /// Key Per I/O Capabilities.
    pub kpioc: u8,
    /// Reserved.
    pub rsvd359: u8,
    /// Maximum Processing Time for Firmware Activation Without Reset, units of 100 ms.
    pub mptfawr: U16,
    /// Reserved.
    pub rsvd362: [u8; 6],
    /// Maximum Endurance Group Capacity, bytes.
    pub megcap: U128,
    /// Temperature Threshold Hysteresis Attributes.
    pub tmpthha: u8,
    /// Reserved.
    pub rsvd385: u8,
    /// Command Quiesce Time, milliseconds: so long after the controller has noticed that it has
    /// lost its host, none of the host's commands is executed any more; 0 not said.
    pub cqt: U16,
    /// Reserved.
    pub rsvd388: [u8; 124],
    /// Submission Queue Entry Size, powers of two: required in bits 3:0, maximum in bits 7:4.
    pub sqes: u8,
    /// Completion Queue Entry Size, powers of two: required in bits 3:0, maximum in bits 7:4.
    pub cqes: u8,
    /// Maximum Outstanding Commands; mandatory for fabrics, 0 not said.
    pub maxcmd: U16,
    /// Number of Namespaces: the highest NSID.
    pub nn: U32,
    /// Optional NVM Command Support: `field::oncs`.
    pub oncs: U16,
    /// Fused Operation Support: `field::fuses`.
    pub fuses: U16,
    /// Format NVM Attributes: `field::fna`.
    pub fna: u8,
    /// Volatile Write Cache: `field::vwc`.
    pub vwc: u8,
    /// Atomic Write Unit Normal, blocks, 0's based.
    pub awun: U16,
    /// Atomic Write Unit Power Fail, blocks, 0's based.
    pub awupf: U16,
    /// I/O Command Set Vendor Specific Command Configuration.
    pub icsvscc: u8,
    /// Namespace Write Protection Capabilities: `field::nwpc`.
    pub nwpc: u8,
    /// Atomic Compare & Write Unit, blocks, 0's based.
    pub acwu: U16,
    /// Copy Descriptor Formats Supported, one bit each.
    pub cdfs: U16,
    /// SGL Support: `field::sgls`.
    pub sgls: U32,
    /// Maximum Number of Allowed Namespaces; 0 means NN.
    pub mnan: U32,
    /// Maximum Domain Namespace Attachments.
    pub maxdna: U128,
    /// Maximum I/O Controller Namespace Attachments.
    pub maxcna: U32,
    /// Optimal Aggregated Queue Depth.
    pub oaqd: U32,
    /// Recommended Host-Initiated Refresh Interval, days.
    pub rhiri: u8,
    /// Host-Initiated Refresh Time, minutes.
    pub hirt: u8,
    /// Controller Maximum Memory Range Tracking Descriptors.
    pub cmmrtd: U16,
    /// NVM Subsystem Maximum Memory Range Tracking Descriptors.
    pub nmmrtd: U16,
    /// Minimum Memory Range Tracking Granularity.
    pub minmrtg: u8,
    /// Maximum Memory Range Tracking Granularity.
    pub maxmrtg: u8,
    /// Tracking Attributes.
    pub trattr: u8,
    /// Reserved.
    pub rsvd577: u8,
    /// Maximum Controller User Data Migration Queues.
    pub mcudmq: U16,
    /// Maximum NVM Subsystem User Data Migration Queues.
    pub mnsudmq: U16,
    /// Maximum CDQ Memory Ranges.
    pub mcmr: U16,
    /// NVM Subsystem Maximum CDQ Memory Ranges.
    pub nmcmr: U16,
    /// Maximum Controller Data Queue PRP Count.
    pub mcdqpc: U16,
    /// Reserved.
    pub rsvd588: [u8; 180],
    /// NVM Subsystem NVMe Qualified Name, UTF-8 ended by NULs.
    pub subnqn: [u8; 256],
    /// Reserved.
    pub rsvd1024: [u8; 768],
    /// I/O Queue Command Capsule Supported Size, units of 16 bytes: `command_capsule_bytes`.
    pub ioccsz: U32,
    /// I/O Queue Response Capsule Supported Size, units of 16 bytes: `response_capsule_bytes`.
    pub iorcsz: U32,
    /// In Capsule Data Offset, units of 16 bytes, behind the submission queue entry.
    pub icdoff: U16,
    /// Fabrics Controller Attributes: `field::fcatt`.
    pub fcatt: u8,
    /// Maximum SGL Data Block Descriptors; 0 is without limit.
    pub msdbd: u8,
    /// Optional Fabric Commands Support: `field::ofcs`.
    pub ofcs: U16,
    /// Discovery Controller Type: 0 not said, 1 direct, 2 central.
    pub dctype: u8,
    /// Cross-Controller Reset Limit: how many resets of other controllers this one has in progress
    /// at a time; 0 where it does not have the command.
    pub ccrl: u8,
    /// Reserved.
    pub rsvd1808: [u8; 240],
    /// Power State Descriptors.
    pub psd: [PowerState; 32],
    /// Vendor Specific.
    pub vs: [u8; 1024],
}

const _: () = assert!(size_of::<IdentifyController>() == 4096);

impl IdentifyController {
    /// SN without its padding.
    #[must_use]
    pub fn serial_number(&self) -> Text<'_> {
        Text::new(&self.sn)
    }

    /// MN without its padding.
    #[must_use]
    pub fn model_number(&self) -> Text<'_> {
        Text::new(&self.mn)
    }

    /// FR without its padding.
    #[must_use]
    pub fn firmware_revision(&self) -> Text<'_> {
        Text::new(&self.fr)
    }

    /// SUBNQN up to its NUL, for showing; `Nqn::from_field` judges it.
    #[must_use]
    pub fn subsystem_nqn(&self) -> Text<'_> {
        Text::new(&self.subnqn)
    }

    /// Sets SN: 20 characters of printable ASCII, the rest is cut.
    pub fn set_serial_number(&mut self, text: &str) {
        set_ascii(&mut self.sn, text);
    }

    /// Sets MN: 40 characters of printable ASCII, the rest is cut.
    pub fn set_model_number(&mut self, text: &str) {
        set_ascii(&mut self.mn, text);
    }

    /// Sets FR: 8 characters of printable ASCII, the rest is cut.
    pub fn set_firmware_revision(&mut self, text: &str) {
        set_ascii(&mut self.fr, text);
    }

    /// Sets SUBNQN.
    pub fn set_subsystem_nqn(&mut self, nqn: &Nqn) {
        self.subnqn = nqn.to_field();
    }

    /// CNTRLTYPE.
    #[must_use]
    pub const fn controller_type(&self) -> ControllerType {
        ControllerType::decode(self.cntrltype)
    }

    /// MDTS in bytes for a minimum memory page of `page_bytes` (2^(12+CAP.MPSMIN)); `None` where
    /// there is no limit.
    #[must_use]
    pub fn max_transfer_bytes(&self, page_bytes: u64) -> Option<u64> {
        if self.mdts == 0 {
            return None;
        }
        1_u64.checked_shl(u32::from(self.mdts)).and_then(|pages| pages.checked_mul(page_bytes))
    }

    /// Abort commands the controller holds at once.
    #[must_use]
    pub fn abort_limit(&self) -> u16 {
        u16::from(self.acl) + 1
    }

    /// Asynchronous Event Request commands the controller holds at once.
    #[must_use]
    pub fn async_event_limit(&self) -> u16 {
        u16::from(self.aerl) + 1
    }

    /// Entries the Error Information log keeps.
    #[must_use]
    pub fn error_log_entries(&self) -> u16 {
        u16::from(self.elpe) + 1
    }

    /// Power states, at most 32 of which `psd` holds.
    #[must_use]
    pub fn power_states(&self) -> &[PowerState] {
        &self.psd[..self.psd.len().min(usize::from(self.npss) + 1)]
    }

    /// Granularity of the Keep Alive Timer; `None` where there is no Keep Alive.
    #[must_use]
    pub fn keep_alive_granularity_ms(&self) -> Option<u32> {
        Some(u32::from(self.kas.get()) * 100).filter(|&ms| ms > 0)
    }

    /// IOCCSZ in bytes: submission queue entry and in-capsule data of an I/O command.
    #[must_use]
    pub fn command_capsule_bytes(&self) -> u64 {
        u64::from(self.ioccsz.get()) * 16
    }

    /// IORCSZ in bytes.
    #[must_use]
    pub fn response_capsule_bytes(&self) -> u64 {
        u64::from(self.iorcsz.get()) * 16
    }

    /// Data that fits into an I/O command capsule, in bytes, behind the entry (64 bytes) and
    /// ICDOFF.
    #[must_use]
    pub fn in_capsule_data_bytes(&self) -> u64 {
        self.command_capsule_bytes().saturating_sub(64 + u64::from(self.icdoff.get()) * 16)
    }

    /// VER, the version of the Base specification.
    #[must_use]
    pub fn version(&self) -> Version {
        Version(self.ver.get())
    }

    /// CNTLID, CIU and CIRN: what another controller needs in order to reset this one; `None` where
    /// the controller does not say it.
    #[must_use]
    pub fn instance(&self) -> Option<ControllerInstance> {
        let id = ControllerId(self.cntlid.get());
        let instance = ControllerInstance { id, uniquifier: self.ciu, random: self.cirn.get() };
        (instance.random != 0).then_some(instance)
    }

    /// Namespaces the subsystem may hold: MNAN, or NN where that is 0.
    #[must_use]
    pub fn namespaces_max(&self) -> u32 {
        if self.mnan.get() == 0 { self.nn.get() } else { self.mnan.get() }
    }
}

impl Default for IdentifyController {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Power State Descriptor, an entry of PSD. NVMe Base 2.1, "Power State Descriptor data structure".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PowerState {
    /// Maximum Power, centiwatts, or units of 0.1 mW where `flags` has MXPS.
    pub mp: U16,
    /// Reserved.
    pub rsvd2: u8,
    /// Bit 0: Max Power Scale (MXPS); bit 1: Non-Operational State (NOPS).
    pub flags: u8,
    /// Entry Latency, microseconds.
    pub enlat: U32,
    /// Exit Latency, microseconds.
    pub exlat: U32,
    /// Relative Read Throughput, 0 is best.
    pub rrt: u8,
    /// Relative Read Latency, 0 is best.
    pub rrl: u8,
    /// Relative Write Throughput, 0 is best.
    pub rwt: u8,
    /// Relative Write Latency, 0 is best.
    pub rwl: u8,
    /// Idle Power, in the unit of `ips`.
    pub idlp: U16,
    /// Idle Power Scale, bits 7:6.
    pub ips: u8,
    /// Reserved.
    pub rsvd19: u8,
    /// Active Power, in the unit of `apws`.
    pub actp: U16,
    /// Active Power Workload (bits 2:0) and Scale (bits 7:6).
    pub apws: u8,
    /// Emergency Power Fail Recovery Time.
    pub epfrt: u8,
    /// Forced Quiescence Vault Time.
    pub fqvt: u8,
    /// Emergency Power Fail Vault Time.
    pub epfvt: u8,
    /// Scales of EPFRT (bits 3:0) and FQVT (bits 7:4).
    pub epfr_fqv_ts: u8,
    /// Scale of EPFVT, bits 3:0.
    pub epfvts: u8,
    /// Reserved.
    pub rsvd28: [u8; 4],
}

const _: () = assert!(size_of::<PowerState>() == 32);

impl PowerState {
    /// Maximum power in units of 0.1 mW; 0 is not said.
    #[must_use]
    pub fn max_power_tenth_mw(&self) -> u32 {
        let unit = if self.flags & 1 == 0 { 100 } else { 1 };
        u32::from(self.mp.get()) * unit
    }

    /// Whether the controller processes I/O commands in this state.
    #[must_use]
    pub const fn is_operational(&self) -> bool {
        self.flags & 2 == 0
    }
}

values! {
    /// Controller Type (CNTRLTYPE).
    pub enum ControllerType, 8 bits {
        /// Not said; an I/O controller older than NVMe 1.4.
        NotReported = 0, "not reported";
        /// I/O controller.
        Io = 1, "I/O controller";
        /// Discovery controller.
        Discovery = 2, "discovery controller";
        /// Administrative controller.
        Administrative = 3, "administrative controller";
    }
}
