//! The bits of the fields of the Identify data structures, and what they mean, in nvme-cli's words:
//! a module for each field. NVMe Base 2.1, "Identify command".

/// A bit or a group of bits, and what its values mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    /// The highest and the lowest bit.
    pub range: (u8, u8),
    /// The beginning of both texts.
    pub name: &'static str,
    /// The text if it is not 0.
    pub set: &'static str,
    /// The text if it is 0.
    pub clear: &'static str,
}

impl Bits {
    /// With a text for each case; with one only, a bit says whether that is supported, and a group
    /// of bits has a number.
    const fn new(high: u8, low: u8, set: &'static str, clear: &'static [&'static str]) -> Self {
        let (name, set, clear) = match *clear {
            [] if high == low => (set, " Supported", " Not Supported"),
            [] => (set, "", ""),
            [clear, ..] => ("", set, clear),
        };
        Self { range: (high, low), name, set, clear }
    }
}

/// The module of a field: a constant for each bit that has a name, what bits and groups of bits
/// mean, and what else belongs to it.
macro_rules! bits {
    (
        $(#[$doc:meta])* pub mod $field:ident: $type:ty;
        $($(#[$bit_doc:meta])* $name:ident = $bit:literal, $set:literal $(, $clear:literal)?;)*
        $([$high:literal:$low:literal] = $group_set:literal $(, $group_clear:literal)?;)*
        $({ $($more:item)* })?
    ) => {
        $(#[$doc])*
        pub mod $field {
            use super::Bits;

            $(#[doc = concat!($set, ".\n\n")]
            $(#[$bit_doc])*
            pub const $name: $type = 1 << $bit;)*

            $($($more)*)?

            /// What they mean.
            pub const BITS: &[Bits] = &[
                $(Bits::new($bit, $bit, $set, &[$($clear)?]),)*
                $(Bits::new($high, $low, $group_set, &[$($group_clear)?]),)*
            ];
        }
    };
}

bits! {
    /// CMIC, Controller Multi-Path I/O and Namespace Sharing Capabilities.
    pub mod cmic: u8;
    MULTIPLE_PORTS = 0, "Multi Port", "Single Port";
    MULTIPLE_CONTROLLERS = 1, "Multi Controller", "Single Controller";
    SRIOV = 2, "SR-IOV", "PCI";
    ANA = 3, "ANA supported", "ANA not supported";
}

bits! {
    /// OAES, Optional Asynchronous Events Supported; the bits of Asynchronous Event Configuration
    /// are the same, except that it has two for reachability.
    pub mod oaes: u32;
    NAMESPACE_ATTRIBUTE = 8, "Attached Namespace Attribute Changed Event";
    FIRMWARE_ACTIVATION = 9, "Firmware Activation Notices";
    ANA_CHANGE = 11, "Asymmetric Namespace Access Change Notices";
    PREDICTABLE_LATENCY = 12, "Predictable Latency Event Aggregate Log Change Notices";
    LBA_STATUS = 13, "LBA Status Information Notices";
    ENDURANCE_GROUP = 14, "Endurance Group Event Aggregate Log Page Change Notice";
    NORMAL_SHUTDOWN = 15, "Normal NSS Shutdown Event";
    TEMPERATURE_HYSTERESIS = 16, "Temperature Threshold Hysteresis Recovery";
    /// Change of reachability groups, and of reachability associations.
    REACHABILITY = 17, "Reachability Groups Change Notices";
    ALLOCATED_NAMESPACE_ATTRIBUTE = 19, "Allocated Namespace Attribute Notices";
    CROSS_CONTROLLER_RESET = 20, "Cross-Controller Reset Completed Notices";
    ZONE_DESCRIPTOR = 27, "Zone Descriptor Changed Notices";
    DISCOVERY_LOG = 31, "Discovery Log Change Notice";
}

bits! {
    /// CTRATT, Controller Attributes.
    pub mod ctratt: u32;
    HOST_ID_128 = 0, "128-bit Host Identifier";
    NON_OPERATIONAL_POWER_PERMISSIVE = 1, "Non-Operational Power State Permissive";
    NVM_SETS = 2, "NVM Sets";
    READ_RECOVERY_LEVELS = 3, "Read Recovery Levels";
    ENDURANCE_GROUPS = 4, "Endurance Groups";
    PREDICTABLE_LATENCY = 5, "Predictable Latency Mode";
    /// Traffic Based Keep Alive Support (TBKAS): any command counts as a sign of life.
    TRAFFIC_BASED_KEEP_ALIVE = 6, "Traffic Based Keep Alive";
    NAMESPACE_GRANULARITY = 7, "Namespace Granularity";
    SQ_ASSOCIATIONS = 8, "SQ Associations";
    UUID_LIST = 9, "UUID List";
    MULTI_DOMAIN = 10, "Multi Domain Subsystem";
    FIXED_CAPACITY = 11, "Fixed Capacity Management";
    VARIABLE_CAPACITY = 12, "Variable Capacity Management";
    DELETE_ENDURANCE_GROUP = 13, "Delete Endurance Group";
    DELETE_NVM_SET = 14, "Delete NVM Set";
    EXTENDED_LBA_FORMATS = 15, "Extended LBA Formats";
    /// MDTS excludes metadata (MEM).
    MDTS_WITHOUT_METADATA = 16, "MDTS and Size Limits Exclude Metadata";
    HMB_RESTRICT = 17, "Host Memory Buffer Restrict";
    /// Reservations and Host Identifier Interaction (RHII): reservations need a Host Identifier
    /// other than 0.
    RESERVATION_HOST_ID = 18, "Reservations and Host Identifier Interaction";
    FLEXIBLE_DATA_PLACEMENT = 19, "Flexible Data Placement";
}

bits! {
    /// OACS, Optional Admin Command Support.
    pub mod oacs: u16;
    SECURITY = 0, "Security Send and Receive";
    FORMAT_NVM = 1, "Format NVM";
    FIRMWARE = 2, "FW Commit and Download";
    NAMESPACE_MANAGEMENT = 3, "NS Management and Attachment";
    DEVICE_SELF_TEST = 4, "Device Self-test";
    DIRECTIVES = 5, "Directives";
    NVME_MI = 6, "NVMe-MI Send and Receive";
    VIRTUALIZATION_MANAGEMENT = 7, "Virtualization Management";
    DOORBELL_BUFFER = 8, "Doorbell Buffer Config";
    GET_LBA_STATUS = 9, "Get LBA Status Capability";
    LOCKDOWN = 10, "Lockdown Command and Feature";
    LIVE_MIGRATION = 11, "Host Managed Live Migration";
}

bits! {
    /// FRMW, Firmware Updates.
    pub mod frmw: u8;
    SLOT_1_READ_ONLY = 0, "Firmware Slot 1 Read-Only", "Firmware Slot 1 Read/Write";
    ACTIVATION_WITHOUT_RESET = 4, "Firmware Activate Without Reset";
    OVERLAP_DETECTION = 5, "Multiple FW or Boot Update Detection";
    [3:1] = "Number of Firmware Slots";
    {
        /// Where the number of slots (1 to 7, three bits) begins.
        pub const SLOTS_SHIFT: u32 = 1;

        /// The number of firmware slots, 0 to 7.
        #[must_use]
        pub const fn slots(frmw: u8) -> u8 {
            (frmw >> SLOTS_SHIFT) & 7
        }
    }
}

bits! {
    /// LPA, Log Page Attributes.
    pub mod lpa: u8;
    SMART_PER_NAMESPACE = 0, "SMART/Health Log Page per NS";
    COMMAND_EFFECTS = 1, "Command Effects Log Page";
    /// Extended data for Get Log Page: 32-bit NUMD and the log page offset.
    EXTENDED_DATA = 2, "Extended data for Get Log Page";
    TELEMETRY = 3, "Telemetry host/controller initiated log page";
    PERSISTENT_EVENT = 4, "Persistent Event log";
    /// Supported Log Pages (00h), its scopes in 05h, and log pages 12h and 13h.
    SUPPORTED_LOG_PAGES = 5, "LID 0x0, Scope of each command in LID 0x5, 0x12, 0x13";
    TELEMETRY_AREA_4 = 6, "Telemetry Log Data Area 4";
}

bits! {
    /// DSTO, Device Self-test Options.
    pub mod dsto: u8;
    /// One self-test at a time in the subsystem, not one for each controller.
    ONE_IN_SUBSYSTEM = 0, "One Device Self-test at a Time in the Subsystem",
        "One Device Self-test at a Time per Controller";
    HOST_INITIATED_REFRESH = 1, "Host-Initiated Refresh";
}

bits! {
    /// HCTMA, Host Controlled Thermal Management Attributes.
    pub mod hctma: u16;
    SUPPORTED = 0, "Host Controlled Thermal Management";
}

bits! {
    /// SANICAP, Sanitize Capabilities.
    pub mod sanicap: u32;
    CRYPTO_ERASE = 0, "Crypto Erase Sanitize Operation";
    BLOCK_ERASE = 1, "Block Erase Sanitize Operation";
    OVERWRITE = 2, "Overwrite Sanitize Operation";
    /// Verification of the media (VERS).
    VERIFICATION = 3, "Media Verification";
    /// No-Deallocate Inhibited (NDI): Sanitize does not take No-Deallocate After Sanitize.
    NO_DEALLOCATE_INHIBITED = 29, "No-Deallocate After Sanitize Inhibited",
        "No-Deallocate After Sanitize Supported";
    [31:30] = "Media After Sanitize With No-Deallocate: 1 is Not Modified, 2 is Modified",
        "Media Modification After Sanitize With No-Deallocate is Not Defined";
    {
        /// NODMMAS: sanitizing with No-Deallocate modifies no more media afterwards.
        pub const NO_DEALLOCATE_UNMODIFIED: u32 = 1 << 30;
        /// NODMMAS: sanitizing with No-Deallocate modifies media once more afterwards.
        pub const NO_DEALLOCATE_MODIFIES: u32 = 2 << 30;
        /// The mask of NODMMAS.
        pub const NO_DEALLOCATE_MASK: u32 = 3 << 30;
    }
}

bits! {
    /// RPMBS, Replay Protected Memory Block Support.
    pub mod rpmbs: u32;
    [31:24] = "Access Size";
    [23:16] = "Total Size";
    [5:3] = "Authentication Method";
    [2:0] = "Number of RPMB Units", "No RPMB Units";
    {
        /// Mask of the number of RPMB units; 0 is none.
        pub const UNITS_MASK: u32 = 7;
    }
}

bits! {
    /// CDFS (once OCFS), Copy Descriptor Formats Supported: a bit for each format.
    pub mod cdfs: u16;
    /// 0h: ranges of the namespace itself, 16-bit guards.
    FORMAT_0 = 0, "Copy Format 0h";
    /// 1h: ranges of the namespace itself, 32-bit and 64-bit guards.
    FORMAT_1 = 1, "Copy Format 1h";
    /// 2h: ranges of several namespaces, 16-bit guards.
    FORMAT_2 = 2, "Copy Format 2h";
    /// 3h: ranges of several namespaces, 32-bit and 64-bit guards.
    FORMAT_3 = 3, "Copy Format 3h";
}

bits! {
    /// ANACAP, Asymmetric Namespace Access Capabilities.
    pub mod anacap: u8;
    OPTIMIZED = 0, "ANA Optimized state";
    NON_OPTIMIZED = 1, "ANA Non-optimized state";
    INACCESSIBLE = 2, "ANA Inaccessible state";
    PERSISTENT_LOSS = 3, "ANA Persistent Loss state";
    CHANGE = 4, "ANA Change state";
    /// ANAGRPID does not change while the namespace is attached.
    GROUP_STABLE = 6, "Group ID does not change", "Group ID can change";
    GROUP_MANAGED = 7, "Non-zero group ID";
}

bits! {
    /// ONCS, Optional NVM Command Support.
    pub mod oncs: u16;
    COMPARE = 0, "Compare";
    WRITE_UNCORRECTABLE = 1, "Write Uncorrectable";
    DATASET_MANAGEMENT = 2, "Data Set Management";
    WRITE_ZEROES = 3, "Write Zeroes";
    /// The Save field of Set Features and the Select field of Get Features.
    SAVE_SELECT = 4, "Save and Select";
    RESERVATIONS = 5, "Reservations";
    TIMESTAMP = 6, "Timestamp";
    VERIFY = 7, "Verify";
    COPY = 8, "Copy";
    COPY_ATOMIC = 9, "Copy Single Atomicity";
    ALL_FAST_COPY = 10, "All Fast Copy";
    /// MAXWZD: a larger limit for Write Zeroes that deallocate.
    WRITE_ZEROES_DEALLOCATE = 11, "Maximum Write Zeroes with Deallocate";
    /// NSZS: Write Zeroes of a whole namespace.
    NAMESPACE_ZEROES = 12, "Namespace Zeroes";
}

bits! {
    /// FUSES, Fused Operation Support.
    pub mod fuses: u16;
    COMPARE_AND_WRITE = 0, "Fused Compare and Write";
}

bits! {
    /// FNA, Format NVM Attributes.
    pub mod fna: u8;
    FORMAT_ALL = 0, "Format Applies to All Namespaces", "Format Applies to Single Namespace";
    ERASE_ALL = 1, "Crypto Erase Applies to All Namespaces", "Crypto Erase Applies to Single Namespace";
    CRYPTO_ERASE = 2, "Crypto Erase Supported as part of Secure Erase",
        "Crypto Erase Not Supported as part of Secure Erase";
    NO_BROADCAST = 3, "Format NVM Broadcast NSID (FFFFFFFFh) Not Supported",
        "Format NVM Broadcast NSID (FFFFFFFFh) Supported";
}

bits! {
    /// VWC, Volatile Write Cache.
    pub mod vwc: u8;
    PRESENT = 0, "Volatile Write Cache Present", "Volatile Write Cache Not Present";
    [2:1] = "Flush with NSID FFFFFFFFh: 2 refused, 3 flushes all namespaces",
        "Support for the NSID field set to FFFFFFFFh is not indicated";
    {
        /// Flush with NSID FFFFFFFFh is refused.
        pub const FLUSH_NO_BROADCAST: u8 = 2 << 1;
        /// Flush with NSID FFFFFFFFh flushes all namespaces.
        pub const FLUSH_BROADCAST: u8 = 3 << 1;
    }
}

bits! {
    /// NWPC, Namespace Write Protection Capabilities.
    pub mod nwpc: u8;
    WRITE_PROTECT = 0, "No Write Protect and Write Protect Namespace";
    UNTIL_POWER_CYCLE = 1, "Write Protect Until Power Cycle";
    PERMANENT = 2, "Permanent Write Protect";
}

bits! {
    /// SGLS, SGL Support.
    pub mod sgls: u32;
    KEYED = 2, "Keyed SGL Data Block Descriptor";
    BIT_BUCKET = 16, "SGL Bit Bucket Descriptor";
    METADATA_BYTE_ALIGNED = 17, "Byte-Aligned Contiguous Metadata Buffer";
    OVERSIZE = 18, "SGL Length Able to Be Larger than Data";
    METADATA_SGL = 19, "Metadata Pointer Containing SGL Descriptor";
    /// The address of an SGL may be an offset: data in the capsule.
    OFFSET = 20, "Address Field Specifying Offset";
    TRANSPORT = 21, "Transport SGL Data Block Descriptor";
    [1:0] = "Scatter-Gather Lists Supported", "Scatter-Gather Lists Not Supported";
    {
        /// SGLs are supported, without requirements of alignment.
        pub const SUPPORTED: u32 = 1 << 0;
        /// SGLs are supported, aligned to dwords.
        pub const SUPPORTED_DWORD: u32 = 2;
    }
}

bits! {
    /// FCATT, Fabrics Controller Attributes.
    pub mod fcatt: u8;
    /// Set in a static controller model, clear in a dynamic one.
    STATIC = 0, "Static Controller Model", "Dynamic Controller Model";
}

bits! {
    /// OFCS, Optional Fabric Commands Support.
    pub mod ofcs: u16;
    DISCONNECT = 0, "Disconnect Command";
}

bits! {
    /// NSFEAT of Identify Namespace, Namespace Features.
    pub mod nsfeat: u8;
    THIN = 0, "Thin Provisioning";
    ATOMIC = 1, "Namespace uses NAWUN, NAWUPF, and NACWU", "Namespace uses AWUN, AWUPF, and ACWU";
    DEALLOCATED_ERROR = 2, "Deallocated or Unwritten Logical Block error";
    ID_NOT_REUSED = 3, "NGUID and EUI64 fields are never reused", "NGUID and EUI64 fields may be reused";
    [5:4] = "NPWG, NPWA, NPDG, NPDA, and NOWS are Supported",
        "NPWG, NPWA, NPDG, NPDA, and NOWS are Not Supported";
    {
        /// NPWG, NPWA, NPDG, NPDA and NOWS are valid.
        pub const OPTIMAL_IO: u8 = 1 << 4;
    }
}

bits! {
    /// FLBAS, Formatted LBA Size.
    pub mod flbas: u8;
    [4:4] = "Metadata Transferred at End of Data LBA", "Metadata Transferred in Separate Contiguous Buffer";
    [6:5] = "Most significant 2 bits of Current LBA Format Selected";
    [3:0] = "Least significant 4 bits of Current LBA Format Selected";
}

bits! {
    /// MC, Metadata Capabilities.
    pub mod mc: u8;
    EXTENDED = 0, "Metadata at End of Data LBA";
    SEPARATE = 1, "Metadata in a Separate Buffer";
}

bits! {
    /// DPC, End-to-end Data Protection Capabilities.
    pub mod dpc: u8;
    TYPE_1 = 0, "Protection Information Type 1";
    TYPE_2 = 1, "Protection Information Type 2";
    TYPE_3 = 2, "Protection Information Type 3";
    /// Protection information in the first bytes of the metadata.
    FIRST_BYTES = 3, "Protection Information in First Bytes of Metadata";
    /// Protection information in the last bytes of the metadata.
    LAST_BYTES = 4, "Protection Information in Last Bytes of Metadata";
}

bits! {
    /// DPS, End-to-end Data Protection Type Settings.
    pub mod dps: u8;
    /// Protection information in the first bytes of the metadata, else the last.
    FIRST_BYTES = 3, "Protection Information is Transferred as First Bytes of Metadata",
        "Protection Information is Transferred as Last Bytes of Metadata";
    [2:0] = "Protection Information Type", "Protection Information Disabled";
    {
        /// Mask of the type: `ProtectionType`.
        pub const TYPE_MASK: u8 = 7;
    }
}

bits! {
    /// FPI, Format Progress Indicator.
    pub mod fpi: u8;
    SUPPORTED = 7, "Format Progress Indicator";
    [6:0] = "Percentage of Format to be Completed", "Not Being Formatted";
    {
        /// Mask of the percentage that is still to be formatted.
        pub const PERCENT_MASK: u8 = 0x7f;
    }
}

bits! {
    /// PIC, Protection Information Capabilities of the NVM command set's Identify Namespace.
    pub mod pic: u8;
    /// 16-bit guards with storage tags take a storage tag mask.
    STORAGE_TAG_MASK_16 = 0, "16b Guard Storage Tag Mask";
    STORAGE_TAG_16 = 1, "16b Guard Storage Tag";
    STORAGE_TAG_CHECK_READ = 2, "Storage Tag Check Read";
}

/// NSFEAT of the I/O command set independent Identify Namespace.
pub mod independent_nsfeat {
    /// NGUID and EUI64 are never used again.
    pub const ID_NOT_REUSED: u8 = 1 << 3;
    /// Rotational media.
    pub const ROTATIONAL: u8 = 1 << 4;
    /// No volatile write cache for this namespace.
    pub const NO_VOLATILE_CACHE: u8 = 1 << 5;
}

bits! {
    /// NMIC, Namespace Multi-path I/O and Namespace Sharing Capabilities.
    pub mod nmic: u8;
    /// May be attached to two or more controllers at a time.
    SHARED = 0, "Namespace Multipath Capable", "Namespace Not Multipath Capable";
}

bits! {
    /// DLFEAT, Deallocate Logical Block Features.
    pub mod dlfeat: u8;
    WRITE_ZEROES_DEALLOCATE = 3, "Deallocate Bit in the Write Zeroes Command is";
    /// The guard field of deallocated blocks is the CRC of the data.
    GUARD_CRC = 4, "Guard Field of Deallocated Logical Blocks is set to CRC of The Value Read",
        "Guard Field of Deallocated Logical Blocks is set to 0xFFFF";
    [2:0] = "Bytes Read From a Deallocated Logical Block: 1 is 0x00, 2 is 0xFF",
        "Bytes Read From a Deallocated Logical Block are Not Reported";
    {
        /// Deallocated blocks read as zeros.
        pub const READS_ZEROS: u8 = 1;
        /// Deallocated blocks read as FFh.
        pub const READS_ONES: u8 = 2;
        /// The mask of the three bits that say what deallocated blocks read as.
        pub const READS_MASK: u8 = 7;
    }
}

bits! {
    /// NSATTR, Namespace Attributes.
    pub mod nsattr: u8;
    WRITE_PROTECTED = 0, "Namespace Write Protected", "Namespace Not Write Protected";
}

bits! {
    /// NSTAT, Namespace Status.
    pub mod nstat: u8;
    READY = 0, "Namespace is Ready", "Namespace is Not Ready";
}

bits! {
    /// RESCAP, Reservation Capabilities.
    pub mod rescap: u8;
    PERSIST = 0, "Persist Through Power Loss";
    WRITE_EXCLUSIVE = 1, "Write Exclusive";
    EXCLUSIVE_ACCESS = 2, "Exclusive Access";
    WRITE_EXCLUSIVE_REGISTRANTS = 3, "Write Exclusive - Registrants Only";
    EXCLUSIVE_ACCESS_REGISTRANTS = 4, "Exclusive Access - Registrants Only";
    WRITE_EXCLUSIVE_ALL = 5, "Write Exclusive - All Registrants";
    EXCLUSIVE_ACCESS_ALL = 6, "Exclusive Access - All Registrants";
    IGNORE_EXISTING_KEY = 7, "Ignore Existing Key - Used as defined in revision 1.3 or later",
        "Ignore Existing Key - Used as defined in revision 1.2.1 or earlier";
}

bits! {
    /// CRT, Controller Resource Types, of the Primary Controller Capabilities.
    pub mod crt: u8;
    QUEUE_RESOURCES = 0, "VQ Resources are supported", "VQ Resources are not supported";
    INTERRUPT_RESOURCES = 1, "VI Resources are supported", "VI Resources are not supported";
}
