//! What the bits of Identify Controller's fields mean: what `id-ctrl -v` prints under them. NVMe
//! Base 2.1, "Identify Controller data structure"; the wording follows nvme-cli's.

use super::fields::Bits;

const fn one(bit: u8, set: &'static str, clear: &'static str) -> Bits {
    Bits::one(bit, set, clear)
}

/// A bit and its name; nothing is shown if it is 0.
macro_rules! supported {
    ($($bit:literal $name:literal),* $(,)?) => {
        &[$(one($bit, concat!($name, " Supported"), concat!($name, " Not Supported"))),*]
    };
}

pub(super) const CMIC: &[Bits] = &[
    one(3, "ANA supported", "ANA not supported"),
    one(2, "SR-IOV", "PCI"),
    one(1, "Multi Controller", "Single Controller"),
    one(0, "Multi Port", "Single Port"),
];

pub(super) const OAES: &[Bits] = supported![
    31 "Discovery Log Change Notice",
    27 "Zone Descriptor Changed Notices",
    19 "Allocated Namespace Attribute Notices",
    18 "Reachability Association Change Notices",
    17 "Reachability Group Change Notices",
    16 "Temperature Threshold Hysteresis Recovery",
    15 "Normal NSS Shutdown Event",
    14 "Endurance Group Event Aggregate Log Page Change Notice",
    13 "LBA Status Information Notices",
    12 "Predictable Latency Event Aggregate Log Change Notices",
    11 "Asymmetric Namespace Access Change Notices",
    9 "Firmware Activation Notices",
    8 "Attached Namespace Attribute Changed Event",
];

pub(super) const CTRATT: &[Bits] = supported![
    19 "Flexible Data Placement",
    18 "Reservations and Host Identifier Interaction",
    17 "Host Memory Buffer Restrict",
    16 "MDTS and Size Limits Exclude Metadata",
    15 "Extended LBA Formats",
    14 "Delete NVM Set",
    13 "Delete Endurance Group",
    12 "Variable Capacity Management",
    11 "Fixed Capacity Management",
    10 "Multi Domain Subsystem",
    9 "UUID List",
    8 "SQ Associations",
    7 "Namespace Granularity",
    6 "Traffic Based Keep Alive",
    5 "Predictable Latency Mode",
    4 "Endurance Groups",
    3 "Read Recovery Levels",
    2 "NVM Sets",
    1 "Non-Operational Power State Permissive",
    0 "128-bit Host Identifier",
];

pub(super) const OACS: &[Bits] = supported![
    11 "Host Managed Live Migration",
    10 "Lockdown Command and Feature",
    9 "Get LBA Status Capability",
    8 "Doorbell Buffer Config",
    7 "Virtualization Management",
    6 "NVMe-MI Send and Receive",
    5 "Directives",
    4 "Device Self-test",
    3 "NS Management and Attachment",
    2 "FW Commit and Download",
    1 "Format NVM",
    0 "Security Send and Receive",
];

pub(super) const FRMW: &[Bits] = &[
    one(5, "Multiple FW or Boot Update Detection Supported", "Multiple FW or Boot Update Detection Not Supported"),
    one(4, "Firmware Activate Without Reset Supported", "Firmware Activate Without Reset Not Supported"),
    Bits { range: (3, 1), set: "Number of Firmware Slots", clear: "Number of Firmware Slots" },
    one(0, "Firmware Slot 1 Read-Only", "Firmware Slot 1 Read/Write"),
];

pub(super) const LPA: &[Bits] = supported![
    6 "Telemetry Log Data Area 4",
    5 "LID 0x0, Scope of each command in LID 0x5, 0x12, 0x13",
    4 "Persistent Event log",
    3 "Telemetry host/controller initiated log page",
    2 "Extended data for Get Log Page",
    1 "Command Effects Log Page",
    0 "SMART/Health Log Page per NS",
];

pub(super) const RPMBS: &[Bits] = &[
    Bits { range: (31, 24), set: "Access Size", clear: "Access Size" },
    Bits { range: (23, 16), set: "Total Size", clear: "Total Size" },
    Bits { range: (5, 3), set: "Authentication Method", clear: "Authentication Method" },
    Bits { range: (2, 0), set: "Number of RPMB Units", clear: "No RPMB Units" },
];

pub(super) const DSTO: &[Bits] = &[
    one(1, "Host-Initiated Refresh Supported", "Host-Initiated Refresh Not Supported"),
    one(0, "One Device Self-test at a Time in the Subsystem", "One Device Self-test at a Time per Controller"),
];

pub(super) const HCTMA: &[Bits] = supported![0 "Host Controlled Thermal Management"];

pub(super) const SANICAP: &[Bits] = &[
    Bits {
        range: (31, 30),
        set: "Media After Sanitize With No-Deallocate: 1 is Not Modified, 2 is Modified",
        clear: "Media Modification After Sanitize With No-Deallocate is Not Defined",
    },
    one(29, "No-Deallocate After Sanitize Inhibited", "No-Deallocate After Sanitize Supported"),
    one(3, "Media Verification Supported", "Media Verification Not Supported"),
    one(2, "Overwrite Sanitize Operation Supported", "Overwrite Sanitize Operation Not Supported"),
    one(1, "Block Erase Sanitize Operation Supported", "Block Erase Sanitize Operation Not Supported"),
    one(0, "Crypto Erase Sanitize Operation Supported", "Crypto Erase Sanitize Operation Not Supported"),
];

pub(super) const OCFS: &[Bits] =
    supported![3 "Copy Format 3h", 2 "Copy Format 2h", 1 "Copy Format 1h", 0 "Copy Format 0h"];

pub(super) const ANACAP: &[Bits] = &[
    one(7, "Non-zero group ID Supported", "Non-zero group ID Not Supported"),
    one(6, "Group ID does not change", "Group ID can change"),
    one(4, "ANA Change state Supported", "ANA Change state Not Supported"),
    one(3, "ANA Persistent Loss state Supported", "ANA Persistent Loss state Not Supported"),
    one(2, "ANA Inaccessible state Supported", "ANA Inaccessible state Not Supported"),
    one(1, "ANA Non-optimized state Supported", "ANA Non-optimized state Not Supported"),
    one(0, "ANA Optimized state Supported", "ANA Optimized state Not Supported"),
];

pub(super) const ONCS: &[Bits] = supported![
    12 "Namespace Zeroes",
    11 "Maximum Write Zeroes with Deallocate",
    10 "All Fast Copy",
    9 "Copy Single Atomicity",
    8 "Copy",
    7 "Verify",
    6 "Timestamp",
    5 "Reservations",
    4 "Save and Select",
    3 "Write Zeroes",
    2 "Data Set Management",
    1 "Write Uncorrectable",
    0 "Compare",
];

pub(super) const FUSES: &[Bits] =
    &[one(0, "Fused Compare and Write Supported", "Fused Compare and Write Not Supported")];

pub(super) const FNA: &[Bits] = &[
    one(3, "Format NVM Broadcast NSID (FFFFFFFFh) Not Supported", "Format NVM Broadcast NSID (FFFFFFFFh) Supported"),
    one(2, "Crypto Erase Supported as part of Secure Erase", "Crypto Erase Not Supported as part of Secure Erase"),
    one(1, "Crypto Erase Applies to All Namespaces", "Crypto Erase Applies to Single Namespace"),
    one(0, "Format Applies to All Namespaces", "Format Applies to Single Namespace"),
];

pub(super) const VWC: &[Bits] = &[
    Bits {
        range: (2, 1),
        set: "Flush with NSID FFFFFFFFh: 2 refused, 3 flushes all namespaces",
        clear: "Support for the NSID field set to FFFFFFFFh is not indicated",
    },
    one(0, "Volatile Write Cache Present", "Volatile Write Cache Not Present"),
];

pub(super) const NWPC: &[Bits] = supported![
    2 "Permanent Write Protect",
    1 "Write Protect Until Power Cycle",
    0 "No Write Protect and Write Protect Namespace",
];

pub(super) const SGLS: &[Bits] = &[
    one(21, "Transport SGL Data Block Descriptor Supported", "Transport SGL Data Block Descriptor Not Supported"),
    one(20, "Address Field Specifying Offset Supported", "Address Field Specifying Offset Not Supported"),
    one(
        19,
        "Metadata Pointer Containing SGL Descriptor Supported",
        "Metadata Pointer Containing SGL Descriptor Not Supported",
    ),
    one(18, "SGL Length Able to Be Larger than Data Supported", "SGL Length Able to Be Larger than Data Not Supported"),
    one(
        17,
        "Byte-Aligned Contiguous Metadata Buffer Supported",
        "Byte-Aligned Contiguous Metadata Buffer Not Supported",
    ),
    one(16, "SGL Bit Bucket Descriptor Supported", "SGL Bit Bucket Descriptor Not Supported"),
    one(2, "Keyed SGL Data Block Descriptor Supported", "Keyed SGL Data Block Descriptor Not Supported"),
    Bits { range: (1, 0), set: "Scatter-Gather Lists Supported", clear: "Scatter-Gather Lists Not Supported" },
];

pub(super) const FCATT: &[Bits] = &[one(0, "Static Controller Model", "Dynamic Controller Model")];

pub(super) const OFCS: &[Bits] = &[one(0, "Disconnect Command Supported", "Disconnect Command Not Supported")];
