//! What the bits of Identify Controller's fields mean: what `id-ctrl -v` prints under them. NVMe
//! Base 2.1, "Identify Controller data structure"; the wording follows nvme-cli's.

use super::structure::Bits;

pub(super) const CMIC: &[Bits] = &[
    Bits::one(3, "ANA supported", "ANA not supported"),
    Bits::one(2, "SR-IOV", "PCI"),
    Bits::one(1, "Multi Controller", "Single Controller"),
    Bits::one(0, "Multi Port", "Single Port"),
];

pub(super) const OAES: &[Bits] = &[
    Bits::supported(31, "Discovery Log Change Notice"),
    Bits::supported(27, "Zone Descriptor Changed Notices"),
    Bits::supported(19, "Allocated Namespace Attribute Notices"),
    Bits::supported(17, "Reachability Groups Change Notices"),
    Bits::supported(16, "Temperature Threshold Hysteresis Recovery"),
    Bits::supported(15, "Normal NSS Shutdown Event"),
    Bits::supported(14, "Endurance Group Event Aggregate Log Page Change Notice"),
    Bits::supported(13, "LBA Status Information Notices"),
    Bits::supported(12, "Predictable Latency Event Aggregate Log Change Notices"),
    Bits::supported(11, "Asymmetric Namespace Access Change Notices"),
    Bits::supported(9, "Firmware Activation Notices"),
    Bits::supported(8, "Attached Namespace Attribute Changed Event"),
];

pub(super) const CTRATT: &[Bits] = &[
    Bits::supported(19, "Flexible Data Placement"),
    Bits::supported(18, "Reservations and Host Identifier Interaction"),
    Bits::supported(17, "Host Memory Buffer Restrict"),
    Bits::supported(16, "MDTS and Size Limits Exclude Metadata"),
    Bits::supported(15, "Extended LBA Formats"),
    Bits::supported(14, "Delete NVM Set"),
    Bits::supported(13, "Delete Endurance Group"),
    Bits::supported(12, "Variable Capacity Management"),
    Bits::supported(11, "Fixed Capacity Management"),
    Bits::supported(10, "Multi Domain Subsystem"),
    Bits::supported(9, "UUID List"),
    Bits::supported(8, "SQ Associations"),
    Bits::supported(7, "Namespace Granularity"),
    Bits::supported(6, "Traffic Based Keep Alive"),
    Bits::supported(5, "Predictable Latency Mode"),
    Bits::supported(4, "Endurance Groups"),
    Bits::supported(3, "Read Recovery Levels"),
    Bits::supported(2, "NVM Sets"),
    Bits::supported(1, "Non-Operational Power State Permissive"),
    Bits::supported(0, "128-bit Host Identifier"),
];

pub(super) const OACS: &[Bits] = &[
    Bits::supported(11, "Host Managed Live Migration"),
    Bits::supported(10, "Lockdown Command and Feature"),
    Bits::supported(9, "Get LBA Status Capability"),
    Bits::supported(8, "Doorbell Buffer Config"),
    Bits::supported(7, "Virtualization Management"),
    Bits::supported(6, "NVMe-MI Send and Receive"),
    Bits::supported(5, "Directives"),
    Bits::supported(4, "Device Self-test"),
    Bits::supported(3, "NS Management and Attachment"),
    Bits::supported(2, "FW Commit and Download"),
    Bits::supported(1, "Format NVM"),
    Bits::supported(0, "Security Send and Receive"),
];

pub(super) const FRMW: &[Bits] = &[
    Bits::supported(5, "Multiple FW or Boot Update Detection"),
    Bits::supported(4, "Firmware Activate Without Reset"),
    Bits::number(3, 1, "Number of Firmware Slots"),
    Bits::one(0, "Firmware Slot 1 Read-Only", "Firmware Slot 1 Read/Write"),
];

pub(super) const LPA: &[Bits] = &[
    Bits::supported(6, "Telemetry Log Data Area 4"),
    Bits::supported(5, "LID 0x0, Scope of each command in LID 0x5, 0x12, 0x13"),
    Bits::supported(4, "Persistent Event log"),
    Bits::supported(3, "Telemetry host/controller initiated log page"),
    Bits::supported(2, "Extended data for Get Log Page"),
    Bits::supported(1, "Command Effects Log Page"),
    Bits::supported(0, "SMART/Health Log Page per NS"),
];

pub(super) const RPMBS: &[Bits] = &[
    Bits::number(31, 24, "Access Size"),
    Bits::number(23, 16, "Total Size"),
    Bits::number(5, 3, "Authentication Method"),
    Bits::range(2, 0, "Number of RPMB Units", "No RPMB Units"),
];

pub(super) const DSTO: &[Bits] = &[
    Bits::supported(1, "Host-Initiated Refresh"),
    Bits::one(0, "One Device Self-test at a Time in the Subsystem", "One Device Self-test at a Time per Controller"),
];

pub(super) const HCTMA: &[Bits] = &[Bits::supported(0, "Host Controlled Thermal Management")];

pub(super) const SANICAP: &[Bits] = &[
    Bits::range(
        31,
        30,
        "Media After Sanitize With No-Deallocate: 1 is Not Modified, 2 is Modified",
        "Media Modification After Sanitize With No-Deallocate is Not Defined",
    ),
    Bits::one(29, "No-Deallocate After Sanitize Inhibited", "No-Deallocate After Sanitize Supported"),
    Bits::supported(3, "Media Verification"),
    Bits::supported(2, "Overwrite Sanitize Operation"),
    Bits::supported(1, "Block Erase Sanitize Operation"),
    Bits::supported(0, "Crypto Erase Sanitize Operation"),
];

pub(super) const OCFS: &[Bits] = &[
    Bits::supported(3, "Copy Format 3h"),
    Bits::supported(2, "Copy Format 2h"),
    Bits::supported(1, "Copy Format 1h"),
    Bits::supported(0, "Copy Format 0h"),
];

pub(super) const ANACAP: &[Bits] = &[
    Bits::supported(7, "Non-zero group ID"),
    Bits::one(6, "Group ID does not change", "Group ID can change"),
    Bits::supported(4, "ANA Change state"),
    Bits::supported(3, "ANA Persistent Loss state"),
    Bits::supported(2, "ANA Inaccessible state"),
    Bits::supported(1, "ANA Non-optimized state"),
    Bits::supported(0, "ANA Optimized state"),
];

pub(super) const ONCS: &[Bits] = &[
    Bits::supported(12, "Namespace Zeroes"),
    Bits::supported(11, "Maximum Write Zeroes with Deallocate"),
    Bits::supported(10, "All Fast Copy"),
    Bits::supported(9, "Copy Single Atomicity"),
    Bits::supported(8, "Copy"),
    Bits::supported(7, "Verify"),
    Bits::supported(6, "Timestamp"),
    Bits::supported(5, "Reservations"),
    Bits::supported(4, "Save and Select"),
    Bits::supported(3, "Write Zeroes"),
    Bits::supported(2, "Data Set Management"),
    Bits::supported(1, "Write Uncorrectable"),
    Bits::supported(0, "Compare"),
];

pub(super) const FUSES: &[Bits] = &[Bits::supported(0, "Fused Compare and Write")];

pub(super) const FNA: &[Bits] = &[
    Bits::one(
        3,
        "Format NVM Broadcast NSID (FFFFFFFFh) Not Supported",
        "Format NVM Broadcast NSID (FFFFFFFFh) Supported",
    ),
    Bits::one(
        2,
        "Crypto Erase Supported as part of Secure Erase",
        "Crypto Erase Not Supported as part of Secure Erase",
    ),
    Bits::one(1, "Crypto Erase Applies to All Namespaces", "Crypto Erase Applies to Single Namespace"),
    Bits::one(0, "Format Applies to All Namespaces", "Format Applies to Single Namespace"),
];

pub(super) const VWC: &[Bits] = &[
    Bits::range(
        2,
        1,
        "Flush with NSID FFFFFFFFh: 2 refused, 3 flushes all namespaces",
        "Support for the NSID field set to FFFFFFFFh is not indicated",
    ),
    Bits::one(0, "Volatile Write Cache Present", "Volatile Write Cache Not Present"),
];

pub(super) const NWPC: &[Bits] = &[
    Bits::supported(2, "Permanent Write Protect"),
    Bits::supported(1, "Write Protect Until Power Cycle"),
    Bits::supported(0, "No Write Protect and Write Protect Namespace"),
];

pub(super) const SGLS: &[Bits] = &[
    Bits::supported(21, "Transport SGL Data Block Descriptor"),
    Bits::supported(20, "Address Field Specifying Offset"),
    Bits::supported(19, "Metadata Pointer Containing SGL Descriptor"),
    Bits::supported(18, "SGL Length Able to Be Larger than Data"),
    Bits::supported(17, "Byte-Aligned Contiguous Metadata Buffer"),
    Bits::supported(16, "SGL Bit Bucket Descriptor"),
    Bits::supported(2, "Keyed SGL Data Block Descriptor"),
    Bits::range(1, 0, "Scatter-Gather Lists Supported", "Scatter-Gather Lists Not Supported"),
];

pub(super) const FCATT: &[Bits] = &[Bits::one(0, "Static Controller Model", "Dynamic Controller Model")];

pub(super) const OFCS: &[Bits] = &[Bits::supported(0, "Disconnect Command")];
