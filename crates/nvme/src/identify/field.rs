//! The bits of the fields of the Identify data structures, a module for each field. NVMe Base 2.1,
//! "Identify command".

/// CMIC, Controller Multi-Path I/O and Namespace Sharing Capabilities.
pub mod cmic {
    /// The subsystem may have more than one port.
    pub const MULTIPLE_PORTS: u8 = 1 << 0;
    /// The subsystem may have more than one controller.
    pub const MULTIPLE_CONTROLLERS: u8 = 1 << 1;
    /// The controller is an SR-IOV virtual function.
    pub const SRIOV: u8 = 1 << 2;
    /// The subsystem reports Asymmetric Namespace Access.
    pub const ANA: u8 = 1 << 3;
}

/// OAES, Optional Asynchronous Events Supported; the bits of Asynchronous Event Configuration are
/// the same, except that it has two for reachability.
pub mod oaes {
    /// Namespace attribute changed.
    pub const NAMESPACE_ATTRIBUTE: u32 = 1 << 8;
    /// Firmware activation.
    pub const FIRMWARE_ACTIVATION: u32 = 1 << 9;
    /// Asymmetric Namespace Access change.
    pub const ANA_CHANGE: u32 = 1 << 11;
    /// Predictable latency event aggregate log change.
    pub const PREDICTABLE_LATENCY: u32 = 1 << 12;
    /// LBA status information alert.
    pub const LBA_STATUS: u32 = 1 << 13;
    /// Endurance group event aggregate log change.
    pub const ENDURANCE_GROUP: u32 = 1 << 14;
    /// Normal NVM subsystem shutdown.
    pub const NORMAL_SHUTDOWN: u32 = 1 << 15;
    /// Temperature threshold hysteresis recovery.
    pub const TEMPERATURE_HYSTERESIS: u32 = 1 << 16;
    /// Change of reachability groups, and of reachability associations.
    pub const REACHABILITY: u32 = 1 << 17;
    /// Allocated namespace attribute changed.
    pub const ALLOCATED_NAMESPACE_ATTRIBUTE: u32 = 1 << 19;
    /// Zone descriptor changed.
    pub const ZONE_DESCRIPTOR: u32 = 1 << 27;
    /// Discovery log page change.
    pub const DISCOVERY_LOG: u32 = 1 << 31;
}

/// CTRATT, Controller Attributes.
pub mod ctratt {
    /// 128-bit host identifier.
    pub const HOST_ID_128: u32 = 1 << 0;
    /// Non-operational power state permissive mode.
    pub const NON_OPERATIONAL_POWER_PERMISSIVE: u32 = 1 << 1;
    /// NVM sets.
    pub const NVM_SETS: u32 = 1 << 2;
    /// Read recovery levels.
    pub const READ_RECOVERY_LEVELS: u32 = 1 << 3;
    /// Endurance groups.
    pub const ENDURANCE_GROUPS: u32 = 1 << 4;
    /// Predictable latency mode.
    pub const PREDICTABLE_LATENCY: u32 = 1 << 5;
    /// Traffic Based Keep Alive Support (TBKAS): any command counts as a sign of life.
    pub const TRAFFIC_BASED_KEEP_ALIVE: u32 = 1 << 6;
    /// Namespace granularity list.
    pub const NAMESPACE_GRANULARITY: u32 = 1 << 7;
    /// Associations of submission queues with NVM sets.
    pub const SQ_ASSOCIATIONS: u32 = 1 << 8;
    /// UUID list.
    pub const UUID_LIST: u32 = 1 << 9;
    /// Multi-domain subsystem.
    pub const MULTI_DOMAIN: u32 = 1 << 10;
    /// Fixed capacity management.
    pub const FIXED_CAPACITY: u32 = 1 << 11;
    /// Variable capacity management.
    pub const VARIABLE_CAPACITY: u32 = 1 << 12;
    /// Delete endurance group.
    pub const DELETE_ENDURANCE_GROUP: u32 = 1 << 13;
    /// Delete NVM set.
    pub const DELETE_NVM_SET: u32 = 1 << 14;
    /// Extended LBA formats.
    pub const EXTENDED_LBA_FORMATS: u32 = 1 << 15;
    /// MDTS excludes metadata (MEM).
    pub const MDTS_WITHOUT_METADATA: u32 = 1 << 16;
    /// Host memory buffer restrictions.
    pub const HMB_RESTRICT: u32 = 1 << 17;
    /// Reservations and Host Identifier Interaction (RHII): reservations need a Host Identifier
    /// other than 0.
    pub const RESERVATION_HOST_ID: u32 = 1 << 18;
    /// Flexible data placement.
    pub const FLEXIBLE_DATA_PLACEMENT: u32 = 1 << 19;
}

/// OACS, Optional Admin Command Support.
pub mod oacs {
    /// Security Send and Security Receive.
    pub const SECURITY: u16 = 1 << 0;
    /// Format NVM.
    pub const FORMAT_NVM: u16 = 1 << 1;
    /// Firmware Commit and Firmware Image Download.
    pub const FIRMWARE: u16 = 1 << 2;
    /// Namespace Management and Namespace Attachment.
    pub const NAMESPACE_MANAGEMENT: u16 = 1 << 3;
    /// Device Self-test.
    pub const DEVICE_SELF_TEST: u16 = 1 << 4;
    /// Directive Send and Directive Receive.
    pub const DIRECTIVES: u16 = 1 << 5;
    /// NVMe-MI Send and NVMe-MI Receive.
    pub const NVME_MI: u16 = 1 << 6;
    /// Virtualization Management.
    pub const VIRTUALIZATION_MANAGEMENT: u16 = 1 << 7;
    /// Doorbell Buffer Config.
    pub const DOORBELL_BUFFER: u16 = 1 << 8;
    /// Get LBA Status.
    pub const GET_LBA_STATUS: u16 = 1 << 9;
    /// Lockdown.
    pub const LOCKDOWN: u16 = 1 << 10;
    /// Host managed live migration.
    pub const LIVE_MIGRATION: u16 = 1 << 11;
}

/// FRMW, Firmware Updates.
pub mod frmw {
    /// Slot 1 is read only.
    pub const SLOT_1_READ_ONLY: u8 = 1 << 0;
    /// Where the number of slots (1 to 7, three bits) begins.
    pub const SLOTS_SHIFT: u32 = 1;
    /// Activation without a reset.
    pub const ACTIVATION_WITHOUT_RESET: u8 = 1 << 4;
    /// Overlapping updates are detected.
    pub const OVERLAP_DETECTION: u8 = 1 << 5;

    /// The number of firmware slots, 0 to 7.
    #[must_use]
    pub const fn slots(frmw: u8) -> u8 {
        (frmw >> SLOTS_SHIFT) & 7
    }
}

/// LPA, Log Page Attributes.
pub mod lpa {
    /// SMART / Health Information for each namespace.
    pub const SMART_PER_NAMESPACE: u8 = 1 << 0;
    /// Commands Supported and Effects log page.
    pub const COMMAND_EFFECTS: u8 = 1 << 1;
    /// Extended data for Get Log Page: 32-bit NUMD and the log page offset.
    pub const EXTENDED_DATA: u8 = 1 << 2;
    /// Telemetry log pages.
    pub const TELEMETRY: u8 = 1 << 3;
    /// Persistent Event log page.
    pub const PERSISTENT_EVENT: u8 = 1 << 4;
    /// Supported Log Pages (00h), its scopes in 05h, and log pages 12h and 13h.
    pub const SUPPORTED_LOG_PAGES: u8 = 1 << 5;
    /// Telemetry data area 4.
    pub const TELEMETRY_AREA_4: u8 = 1 << 6;
}

/// DSTO, Device Self-test Options.
pub mod dsto {
    /// One self-test at a time in the subsystem, not one for each controller.
    pub const ONE_IN_SUBSYSTEM: u8 = 1 << 0;
    /// Host-initiated refresh.
    pub const HOST_INITIATED_REFRESH: u8 = 1 << 1;
}

/// HCTMA, Host Controlled Thermal Management Attributes.
pub mod hctma {
    /// Host controlled thermal management.
    pub const SUPPORTED: u16 = 1 << 0;
}

/// SANICAP, Sanitize Capabilities.
pub mod sanicap {
    /// Crypto Erase.
    pub const CRYPTO_ERASE: u32 = 1 << 0;
    /// Block Erase.
    pub const BLOCK_ERASE: u32 = 1 << 1;
    /// Overwrite.
    pub const OVERWRITE: u32 = 1 << 2;
    /// Verification of the media (VERS).
    pub const VERIFICATION: u32 = 1 << 3;
    /// No-Deallocate Inhibited (NDI): Sanitize does not take No-Deallocate After Sanitize.
    pub const NO_DEALLOCATE_INHIBITED: u32 = 1 << 29;
    /// NODMMAS: sanitizing with No-Deallocate modifies no more media afterwards.
    pub const NO_DEALLOCATE_UNMODIFIED: u32 = 1 << 30;
    /// NODMMAS: sanitizing with No-Deallocate modifies media once more afterwards.
    pub const NO_DEALLOCATE_MODIFIES: u32 = 2 << 30;
    /// The mask of NODMMAS.
    pub const NO_DEALLOCATE_MASK: u32 = 3 << 30;
}

/// RPMBS, Replay Protected Memory Block Support.
pub mod rpmbs {
    /// Mask of the number of RPMB units; 0 is none.
    pub const UNITS_MASK: u32 = 7;
}

/// CDFS (once OCFS), Copy Descriptor Formats Supported: a bit for each format.
pub mod cdfs {
    /// 0h: ranges of the namespace itself, 16-bit guards.
    pub const FORMAT_0: u16 = 1 << 0;
    /// 1h: ranges of the namespace itself, 32-bit and 64-bit guards.
    pub const FORMAT_1: u16 = 1 << 1;
    /// 2h: ranges of several namespaces, 16-bit guards.
    pub const FORMAT_2: u16 = 1 << 2;
    /// 3h: ranges of several namespaces, 32-bit and 64-bit guards.
    pub const FORMAT_3: u16 = 1 << 3;
}

/// ANACAP, Asymmetric Namespace Access Capabilities.
pub mod anacap {
    /// ANA Optimized state.
    pub const OPTIMIZED: u8 = 1 << 0;
    /// ANA Non-Optimized state.
    pub const NON_OPTIMIZED: u8 = 1 << 1;
    /// ANA Inaccessible state.
    pub const INACCESSIBLE: u8 = 1 << 2;
    /// ANA Persistent Loss state.
    pub const PERSISTENT_LOSS: u8 = 1 << 3;
    /// ANA Change state.
    pub const CHANGE: u8 = 1 << 4;
    /// ANAGRPID does not change while the namespace is attached.
    pub const GROUP_STABLE: u8 = 1 << 6;
    /// ANAGRPID may be given to Namespace Management.
    pub const GROUP_MANAGED: u8 = 1 << 7;
}

/// ONCS, Optional NVM Command Support.
pub mod oncs {
    /// Compare.
    pub const COMPARE: u16 = 1 << 0;
    /// Write Uncorrectable.
    pub const WRITE_UNCORRECTABLE: u16 = 1 << 1;
    /// Dataset Management.
    pub const DATASET_MANAGEMENT: u16 = 1 << 2;
    /// Write Zeroes.
    pub const WRITE_ZEROES: u16 = 1 << 3;
    /// The Save field of Set Features and the Select field of Get Features.
    pub const SAVE_SELECT: u16 = 1 << 4;
    /// Reservations.
    pub const RESERVATIONS: u16 = 1 << 5;
    /// The Timestamp feature.
    pub const TIMESTAMP: u16 = 1 << 6;
    /// Verify.
    pub const VERIFY: u16 = 1 << 7;
    /// Copy.
    pub const COPY: u16 = 1 << 8;
    /// A Copy command's single copy is atomic.
    pub const COPY_ATOMIC: u16 = 1 << 9;
    /// All copies are fast.
    pub const ALL_FAST_COPY: u16 = 1 << 10;
    /// MAXWZD: a larger limit for Write Zeroes that deallocate.
    pub const WRITE_ZEROES_DEALLOCATE: u16 = 1 << 11;
    /// NSZS: Write Zeroes of a whole namespace.
    pub const NAMESPACE_ZEROES: u16 = 1 << 12;
}

/// FUSES, Fused Operation Support.
pub mod fuses {
    /// Compare and Write.
    pub const COMPARE_AND_WRITE: u16 = 1 << 0;
}

/// FNA, Format NVM Attributes.
pub mod fna {
    /// A format concerns all namespaces.
    pub const FORMAT_ALL: u8 = 1 << 0;
    /// A secure erase concerns all namespaces.
    pub const ERASE_ALL: u8 = 1 << 1;
    /// Cryptographic erase.
    pub const CRYPTO_ERASE: u8 = 1 << 2;
    /// Format NVM does not take NSID FFFFFFFFh.
    pub const NO_BROADCAST: u8 = 1 << 3;
}

/// VWC, Volatile Write Cache.
pub mod vwc {
    /// There is a volatile write cache.
    pub const PRESENT: u8 = 1 << 0;
    /// Flush with NSID FFFFFFFFh is refused.
    pub const FLUSH_NO_BROADCAST: u8 = 2 << 1;
    /// Flush with NSID FFFFFFFFh flushes all namespaces.
    pub const FLUSH_BROADCAST: u8 = 3 << 1;
}

/// NWPC, Namespace Write Protection Capabilities.
pub mod nwpc {
    /// No Write Protect and Write Protect.
    pub const WRITE_PROTECT: u8 = 1 << 0;
    /// Write Protect Until Power Cycle.
    pub const UNTIL_POWER_CYCLE: u8 = 1 << 1;
    /// Permanent Write Protect.
    pub const PERMANENT: u8 = 1 << 2;
}

/// SGLS, SGL Support.
pub mod sgls {
    /// SGLs are supported, without requirements of alignment.
    pub const SUPPORTED: u32 = 1 << 0;
    /// SGLs are supported, aligned to dwords.
    pub const SUPPORTED_DWORD: u32 = 2;
    /// Keyed SGL Data Block descriptor.
    pub const KEYED: u32 = 1 << 2;
    /// SGL Bit Bucket descriptor.
    pub const BIT_BUCKET: u32 = 1 << 16;
    /// A byte-aligned contiguous metadata buffer.
    pub const METADATA_BYTE_ALIGNED: u32 = 1 << 17;
    /// An SGL may be longer than the data.
    pub const OVERSIZE: u32 = 1 << 18;
    /// MPTR may hold an SGL.
    pub const METADATA_SGL: u32 = 1 << 19;
    /// The address of an SGL may be an offset: data in the capsule.
    pub const OFFSET: u32 = 1 << 20;
    /// Transport SGL Data Block descriptor.
    pub const TRANSPORT: u32 = 1 << 21;
}

/// FCATT, Fabrics Controller Attributes.
pub mod fcatt {
    /// Set in a static controller model, clear in a dynamic one.
    pub const STATIC: u8 = 1 << 0;
}

/// OFCS, Optional Fabric Commands Support.
pub mod ofcs {
    /// Disconnect.
    pub const DISCONNECT: u16 = 1 << 0;
}

/// NSFEAT of Identify Namespace, Namespace Features.
pub mod nsfeat {
    /// Thin provisioning.
    pub const THIN: u8 = 1 << 0;
    /// NAWUN, NAWUPF and NACWU are valid.
    pub const ATOMIC: u8 = 1 << 1;
    /// Deallocated or Unwritten Logical Block errors.
    pub const DEALLOCATED_ERROR: u8 = 1 << 2;
    /// NGUID and EUI64 are never used again.
    pub const ID_NOT_REUSED: u8 = 1 << 3;
    /// NPWG, NPWA, NPDG, NPDA and NOWS are valid.
    pub const OPTIMAL_IO: u8 = 1 << 4;
}

/// MC, Metadata Capabilities.
pub mod mc {
    /// Metadata at the end of each block.
    pub const EXTENDED: u8 = 1 << 0;
    /// Metadata in a buffer of its own.
    pub const SEPARATE: u8 = 1 << 1;
}

/// DPC, End-to-end Data Protection Capabilities.
pub mod dpc {
    /// Protection information type 1.
    pub const TYPE_1: u8 = 1 << 0;
    /// Protection information type 2.
    pub const TYPE_2: u8 = 1 << 1;
    /// Protection information type 3.
    pub const TYPE_3: u8 = 1 << 2;
    /// Protection information in the first bytes of the metadata.
    pub const FIRST_BYTES: u8 = 1 << 3;
    /// Protection information in the last bytes of the metadata.
    pub const LAST_BYTES: u8 = 1 << 4;
}

/// DPS, End-to-end Data Protection Type Settings.
pub mod dps {
    /// Mask of the type: `ProtectionType`.
    pub const TYPE_MASK: u8 = 7;
    /// Protection information in the first bytes of the metadata, else the last.
    pub const FIRST_BYTES: u8 = 1 << 3;
}

/// FPI, Format Progress Indicator.
pub mod fpi {
    /// The indicator is supported.
    pub const SUPPORTED: u8 = 1 << 7;
    /// Mask of the percentage that is still to be formatted.
    pub const PERCENT_MASK: u8 = 0x7f;
}

/// PIC, Protection Information Capabilities of the NVM command set's Identify Namespace.
pub mod pic {
    /// 16-bit guards with storage tags take a storage tag mask.
    pub const STORAGE_TAG_MASK_16: u8 = 1 << 0;
    /// 16-bit guards with storage tags.
    pub const STORAGE_TAG_16: u8 = 1 << 1;
    /// Storage Tag Check on reads may be switched on.
    pub const STORAGE_TAG_CHECK_READ: u8 = 1 << 2;
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

/// NMIC, Namespace Multi-path I/O and Namespace Sharing Capabilities.
pub mod nmic {
    /// May be attached to two or more controllers at a time.
    pub const SHARED: u8 = 1 << 0;
}

/// DLFEAT, Deallocate Logical Block Features.
pub mod dlfeat {
    /// Deallocated blocks read as zeros.
    pub const READS_ZEROS: u8 = 1;
    /// Deallocated blocks read as FFh.
    pub const READS_ONES: u8 = 2;
    /// The mask of the three bits that say what deallocated blocks read as.
    pub const READS_MASK: u8 = 7;
    /// Write Zeroes honours the Deallocate bit.
    pub const WRITE_ZEROES_DEALLOCATE: u8 = 1 << 3;
    /// The guard field of deallocated blocks is the CRC of the data.
    pub const GUARD_CRC: u8 = 1 << 4;
}

/// NSATTR, Namespace Attributes.
pub mod nsattr {
    /// Write protected now.
    pub const WRITE_PROTECTED: u8 = 1 << 0;
}

/// NSTAT, Namespace Status.
pub mod nstat {
    /// Ready.
    pub const READY: u8 = 1 << 0;
}

/// RESCAP, Reservation Capabilities.
pub mod rescap {
    /// Persist through power loss.
    pub const PERSIST: u8 = 1 << 0;
    /// Write exclusive.
    pub const WRITE_EXCLUSIVE: u8 = 1 << 1;
    /// Exclusive access.
    pub const EXCLUSIVE_ACCESS: u8 = 1 << 2;
    /// Write exclusive, registrants only.
    pub const WRITE_EXCLUSIVE_REGISTRANTS: u8 = 1 << 3;
    /// Exclusive access, registrants only.
    pub const EXCLUSIVE_ACCESS_REGISTRANTS: u8 = 1 << 4;
    /// Write exclusive, all registrants.
    pub const WRITE_EXCLUSIVE_ALL: u8 = 1 << 5;
    /// Exclusive access, all registrants.
    pub const EXCLUSIVE_ACCESS_ALL: u8 = 1 << 6;
    /// Ignore Existing Key as of NVMe 1.3.
    pub const IGNORE_EXISTING_KEY: u8 = 1 << 7;
}
