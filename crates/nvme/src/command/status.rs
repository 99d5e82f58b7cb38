//! The status of a command (Base, Completion Queue Entry: Status Field), its names, and what they
//! mean to people.

use core::fmt;

/// The 15-bit status field: SC in bits 7:0, SCT in 10:8, CRD in 12:11, M in 13, DNR in 14.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $sct:literal, $sc:literal, $text:literal;)*) => {
        impl Status {
            $($(#[$doc])* #[doc = concat!("\n\n*", $text, "*: SCT ", stringify!($sct), "h, SC ", stringify!($sc), ".")]
            pub const $name: Self = Self(($sct << 8) | $sc);)*

            /// The specification's name of the status, without regard to the M, CRD and DNR bits;
            /// what a command set defines for itself (SCT 1h, SC 80h and above) is taken for a
            /// Fabrics command's: see `nvm_name`.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 & 0x7ff {
                    $(x if x == (($sct << 8) | $sc) => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    SUCCESS = 0, 0x00, "Successful Completion";
    INVALID_OPCODE = 0, 0x01, "Invalid Command Opcode";
    INVALID_FIELD = 0, 0x02, "Invalid Field in Command";
    CID_CONFLICT = 0, 0x03, "Command ID Conflict";
    DATA_TRANSFER_ERROR = 0, 0x04, "Data Transfer Error";
    POWER_LOSS_ABORT = 0, 0x05, "Commands Aborted due to Power Loss Notification";
    INTERNAL_ERROR = 0, 0x06, "Internal Error";
    ABORT_REQUESTED = 0, 0x07, "Command Abort Requested";
    ABORTED_SQ_DELETION = 0, 0x08, "Command Aborted due to SQ Deletion";
    ABORTED_FAILED_FUSED = 0, 0x09, "Command Aborted due to Failed Fused Command";
    ABORTED_MISSING_FUSED = 0, 0x0a, "Command Aborted due to Missing Fused Command";
    INVALID_NAMESPACE = 0, 0x0b, "Invalid Namespace or Format";
    COMMAND_SEQUENCE_ERROR = 0, 0x0c, "Command Sequence Error";
    INVALID_SGL_SEGMENT = 0, 0x0d, "Invalid SGL Segment Descriptor";
    INVALID_SGL_COUNT = 0, 0x0e, "Invalid Number of SGL Descriptors";
    DATA_SGL_LENGTH_INVALID = 0, 0x0f, "Data SGL Length Invalid";
    METADATA_SGL_LENGTH_INVALID = 0, 0x10, "Metadata SGL Length Invalid";
    SGL_TYPE_INVALID = 0, 0x11, "SGL Descriptor Type Invalid";
    INVALID_CMB_USE = 0, 0x12, "Invalid Use of Controller Memory Buffer";
    PRP_OFFSET_INVALID = 0, 0x13, "PRP Offset Invalid";
    ATOMIC_WRITE_UNIT_EXCEEDED = 0, 0x14, "Atomic Write Unit Exceeded";
    /// Also what a controller answers to a host that is not allowed to do it.
    OPERATION_DENIED = 0, 0x15, "Operation Denied";
    SGL_OFFSET_INVALID = 0, 0x16, "SGL Offset Invalid";
    HOST_ID_INCONSISTENT = 0, 0x18, "Host Identifier Inconsistent Format";
    KEEP_ALIVE_EXPIRED = 0, 0x19, "Keep Alive Timer Expired";
    KEEP_ALIVE_INVALID = 0, 0x1a, "Keep Alive Timeout Invalid";
    PREEMPT_ABORT = 0, 0x1b, "Command Aborted due to Preempt and Abort";
    SANITIZE_FAILED = 0, 0x1c, "Sanitize Failed";
    SANITIZE_IN_PROGRESS = 0, 0x1d, "Sanitize In Progress";
    SGL_DATA_BLOCK_GRANULARITY = 0, 0x1e, "SGL Data Block Granularity Invalid";
    NOT_SUPPORTED_IN_CMB = 0, 0x1f, "Command Not Supported for Queue in CMB";
    NAMESPACE_WRITE_PROTECTED = 0, 0x20, "Namespace is Write Protected";
    COMMAND_INTERRUPTED = 0, 0x21, "Command Interrupted";
    TRANSIENT_TRANSPORT_ERROR = 0, 0x22, "Transient Transport Error";
    PROHIBITED_BY_LOCKDOWN = 0, 0x23, "Command Prohibited by Command and Feature Lockdown";
    MEDIA_NOT_READY = 0, 0x24, "Admin Command Media Not Ready";
    INVALID_KEY_TAG = 0, 0x25, "Invalid Key Tag";
    DISPERSED_NOT_ENABLED = 0, 0x26, "Host Dispersed Namespace Support Not Enabled";
    HOST_ID_NOT_INITIALIZED = 0, 0x27, "Host Identifier Not Initialized";
    INCORRECT_KEY = 0, 0x28, "Incorrect Key";
    FDP_DISABLED = 0, 0x29, "FDP Disabled";
    INVALID_PLACEMENT_HANDLE_LIST = 0, 0x2a, "Invalid Placement Handle List";
    LBA_OUT_OF_RANGE = 0, 0x80, "LBA Out of Range";
    CAPACITY_EXCEEDED = 0, 0x81, "Capacity Exceeded";
    NAMESPACE_NOT_READY = 0, 0x82, "Namespace Not Ready";
    RESERVATION_CONFLICT = 0, 0x83, "Reservation Conflict";
    FORMAT_IN_PROGRESS = 0, 0x84, "Format In Progress";

    COMPLETION_QUEUE_INVALID = 1, 0x00, "Completion Queue Invalid";
    INVALID_QUEUE_ID = 1, 0x01, "Invalid Queue Identifier";
    INVALID_QUEUE_SIZE = 1, 0x02, "Invalid Queue Size";
    ABORT_LIMIT_EXCEEDED = 1, 0x03, "Abort Command Limit Exceeded";
    ASYNC_EVENT_LIMIT_EXCEEDED = 1, 0x05, "Asynchronous Event Request Limit Exceeded";
    INVALID_FIRMWARE_SLOT = 1, 0x06, "Invalid Firmware Slot";
    INVALID_FIRMWARE_IMAGE = 1, 0x07, "Invalid Firmware Image";
    INVALID_INTERRUPT_VECTOR = 1, 0x08, "Invalid Interrupt Vector";
    INVALID_LOG_PAGE = 1, 0x09, "Invalid Log Page";
    INVALID_FORMAT = 1, 0x0a, "Invalid Format";
    /// The image is in its slot, but runs only after a conventional reset.
    FIRMWARE_NEEDS_CONVENTIONAL_RESET = 1, 0x0b, "Firmware Activation Requires Conventional Reset";
    INVALID_QUEUE_DELETION = 1, 0x0c, "Invalid Queue Deletion";
    FEATURE_NOT_SAVEABLE = 1, 0x0d, "Feature Identifier Not Saveable";
    FEATURE_NOT_CHANGEABLE = 1, 0x0e, "Feature Not Changeable";
    FEATURE_NOT_NAMESPACE_SPECIFIC = 1, 0x0f, "Feature Not Namespace Specific";
    /// The image is in its slot, but runs only after a reset of the subsystem.
    FIRMWARE_NEEDS_SUBSYSTEM_RESET = 1, 0x10, "Firmware Activation Requires NVM Subsystem Reset";
    /// The image is in its slot, but runs only after a reset of the controller.
    FIRMWARE_NEEDS_RESET = 1, 0x11, "Firmware Activation Requires Controller Level Reset";
    /// Activating the image at once would take longer than MTFA.
    FIRMWARE_NEEDS_MAXIMUM_TIME = 1, 0x12, "Firmware Activation Requires Maximum Time Violation";
    FIRMWARE_ACTIVATION_PROHIBITED = 1, 0x13, "Firmware Activation Prohibited";
    /// Of Firmware Image Download and Commit: pieces of an image overlap, or one is missing.
    OVERLAPPING_RANGE = 1, 0x14, "Overlapping Range";
    NAMESPACE_INSUFFICIENT_CAPACITY = 1, 0x15, "Namespace Insufficient Capacity";
    NAMESPACE_ID_UNAVAILABLE = 1, 0x16, "Namespace Identifier Unavailable";
    NAMESPACE_ALREADY_ATTACHED = 1, 0x18, "Namespace Already Attached";
    NAMESPACE_IS_PRIVATE = 1, 0x19, "Namespace Is Private";
    NAMESPACE_NOT_ATTACHED = 1, 0x1a, "Namespace Not Attached";
    THIN_PROVISIONING_NOT_SUPPORTED = 1, 0x1b, "Thin Provisioning Not Supported";
    CONTROLLER_LIST_INVALID = 1, 0x1c, "Controller List Invalid";
    SELF_TEST_IN_PROGRESS = 1, 0x1d, "Device Self-test In Progress";
    BOOT_PARTITION_WRITE_PROHIBITED = 1, 0x1e, "Boot Partition Write Prohibited";
    INVALID_CONTROLLER_ID = 1, 0x1f, "Invalid Controller Identifier";
    INVALID_SECONDARY_STATE = 1, 0x20, "Invalid Secondary Controller State";
    INVALID_CONTROLLER_RESOURCES = 1, 0x21, "Invalid Number of Controller Resources";
    INVALID_RESOURCE_ID = 1, 0x22, "Invalid Resource Identifier";
    SANITIZE_PROHIBITED_BY_PMR = 1, 0x23, "Sanitize Prohibited While Persistent Memory Region is Enabled";
    ANA_GROUP_INVALID = 1, 0x24, "ANA Group Identifier Invalid";
    ANA_ATTACH_FAILED = 1, 0x25, "ANA Attach Failed";
    /// Of Capacity Management; Namespace Management has `NAMESPACE_INSUFFICIENT_CAPACITY`.
    INSUFFICIENT_CAPACITY = 1, 0x26, "Insufficient Capacity";
    NAMESPACE_ATTACHMENT_LIMIT_EXCEEDED = 1, 0x27, "Namespace Attachment Limit Exceeded";
    LOCKDOWN_NOT_SUPPORTED = 1, 0x28, "Prohibition of Command Execution Not Supported";
    COMMAND_SET_NOT_SUPPORTED = 1, 0x29, "I/O Command Set Not Supported";
    COMMAND_SET_NOT_ENABLED = 1, 0x2a, "I/O Command Set Not Enabled";
    COMMAND_SET_COMBINATION_REJECTED = 1, 0x2b, "I/O Command Set Combination Rejected";
    INVALID_COMMAND_SET = 1, 0x2c, "Invalid I/O Command Set";
    /// Of Capacity Management: no endurance group or NVM set is left.
    IDENTIFIER_UNAVAILABLE = 1, 0x2d, "Identifier Unavailable";
    NAMESPACE_IS_DISPERSED = 1, 0x2e, "Namespace Is Dispersed";
    INVALID_DISCOVERY_INFORMATION = 1, 0x2f, "Invalid Discovery Information";
    ZONING_LOCKED = 1, 0x30, "Zoning Data Structure Locked";
    ZONING_NOT_FOUND = 1, 0x31, "Zoning Data Structure Not Found";
    INSUFFICIENT_DISCOVERY_RESOURCES = 1, 0x32, "Insufficient Discovery Resources";
    FUNCTION_DISABLED = 1, 0x33, "Requested Function Disabled";
    INVALID_ZONE_GROUP_ORIGINATOR = 1, 0x34, "ZoneGroup Originator Invalid";
    /// The controller has already been asked to reset this controller, and is at it.
    CROSS_CONTROLLER_RESET_IN_PROGRESS = 1, 0x3f, "Cross-Controller Reset in Progress";
    /// Entries of earlier resets have to be read and removed first.
    CROSS_CONTROLLER_RESET_LOG_FULL = 1, 0x40, "Cross-Controller Reset Log Page Full";
    /// As many resets as CCRL says are in progress.
    CROSS_CONTROLLER_RESET_LIMIT_EXCEEDED = 1, 0x41, "Cross-Controller Reset Limit Exceeded";

    CONNECT_INCOMPATIBLE_FORMAT = 1, 0x80, "Connect Incompatible Format";
    CONNECT_CONTROLLER_BUSY = 1, 0x81, "Connect Controller Busy";
    CONNECT_INVALID_PARAMETERS = 1, 0x82, "Connect Invalid Parameters";
    CONNECT_RESTART_DISCOVERY = 1, 0x83, "Connect Restart Discovery";
    CONNECT_INVALID_HOST = 1, 0x84, "Connect Invalid Host";
    INVALID_QUEUE_TYPE = 1, 0x85, "Invalid Queue Type";
    DISCOVERY_RESTART = 1, 0x90, "Discover Restart";
    AUTHENTICATION_REQUIRED = 1, 0x91, "Authentication Required";

    WRITE_FAULT = 2, 0x80, "Write Fault";
    UNRECOVERED_READ_ERROR = 2, 0x81, "Unrecovered Read Error";
    GUARD_CHECK_ERROR = 2, 0x82, "End-to-end Guard Check Error";
    APPLICATION_TAG_CHECK_ERROR = 2, 0x83, "End-to-end Application Tag Check Error";
    REFERENCE_TAG_CHECK_ERROR = 2, 0x84, "End-to-end Reference Tag Check Error";
    COMPARE_FAILURE = 2, 0x85, "Compare Failure";
    ACCESS_DENIED = 2, 0x86, "Access Denied";
    DEALLOCATED_BLOCK = 2, 0x87, "Deallocated or Unwritten Logical Block";
    STORAGE_TAG_CHECK_ERROR = 2, 0x88, "End-to-end Storage Tag Check Error";

    INTERNAL_PATH_ERROR = 3, 0x00, "Internal Path Error";
    ANA_PERSISTENT_LOSS = 3, 0x01, "Asymmetric Access Persistent Loss";
    ANA_INACCESSIBLE = 3, 0x02, "Asymmetric Access Inaccessible";
    ANA_TRANSITION = 3, 0x03, "Asymmetric Access Transition";
    CONTROLLER_PATHING_ERROR = 3, 0x60, "Controller Pathing Error";
    HOST_PATHING_ERROR = 3, 0x70, "Host Pathing Error";
    HOST_ABORTED = 3, 0x71, "Command Aborted By Host";
}

macro_rules! nvm_statuses {
    ($($(#[$doc:meta])* $name:ident = $sc:literal, $text:literal;)*) => {
        impl Status {
            $($(#[$doc])* #[doc = concat!("\n\nOf the NVM command set only. *", $text, "*: SCT 1h, SC ", stringify!($sc), ".")]
            pub const $name: Self = Self((1 << 8) | $sc);)*

            /// The specification's name of the status where an I/O command of the NVM command set
            /// completes with it: SCT 1h, SC 80h to BFh means something else there than for Fabrics
            /// commands.
            #[must_use]
            pub const fn nvm_name(self) -> Option<&'static str> {
                match self.0 & 0x7ff {
                    $(x if x == ((1 << 8) | $sc) => Some($text),)*
                    0x180..=0x1bf => None,
                    _ => self.name(),
                }
            }
        }
    };
}

nvm_statuses! {
    CONFLICTING_ATTRIBUTES = 0x80, "Conflicting Attributes";
    INVALID_PROTECTION_INFORMATION = 0x81, "Invalid Protection Information";
    READ_ONLY_RANGE = 0x82, "Attempted Write to Read Only Range";
    COMMAND_SIZE_LIMIT_EXCEEDED = 0x83, "Command Size Limit Exceeded";
    INVALID_COMMAND_ID = 0x84, "Invalid Command ID";
    /// Of Copy: a source and the destination are formatted in ways that do not go together.
    INCOMPATIBLE_NAMESPACE = 0x85, "Incompatible Namespace or Format";
    /// Of Copy: the host asked for a fast one only.
    FAST_COPY_NOT_POSSIBLE = 0x86, "Fast Copy Not Possible";
    /// Of Copy: a source range and the destination overlap.
    OVERLAPPING_IO_RANGE = 0x87, "Overlapping I/O Range";
    NAMESPACE_NOT_REACHABLE = 0x88, "Namespace Not Reachable";
    /// Of Copy: the controller has no room for it now.
    INSUFFICIENT_RESOURCES = 0x89, "Insufficient Resources";
}

impl Status {
    const DNR: u16 = 1 << 14;
    const MORE: u16 = 1 << 13;
    const CRD_SHIFT: u16 = 11;

    /// The status with Do Not Retry set: the same command would fail again.
    #[must_use]
    pub const fn dnr(self) -> Self {
        Self(self.0 | Self::DNR)
    }

    /// The status with More set: the Error Information log holds an entry about it.
    #[must_use]
    pub const fn more(self) -> Self {
        Self(self.0 | Self::MORE)
    }

    /// The status with Command Retry Delay set: the same command may be repeated after the time
    /// that CRDT1, 2 or 3 of Identify Controller says.
    #[must_use]
    pub const fn retry_after(self, crdt: u8) -> Self {
        Self(self.0 & !(3 << Self::CRD_SHIFT) | (crdt as u16 & 3) << Self::CRD_SHIFT)
    }

    /// Command Retry Delay: which of CRDT1 to 3 says after what time the command may be repeated; 0
    /// for at once.
    #[must_use]
    pub const fn retry_delay(self) -> u8 {
        (self.0 >> Self::CRD_SHIFT & 3) as u8
    }

    /// Whether the command succeeded.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 & 0x7ff == 0
    }

    /// Whether retrying is pointless.
    #[must_use]
    pub const fn is_dnr(self) -> bool {
        self.0 & Self::DNR != 0
    }

    /// Whether it is about the path, not about the command: another path may have it executed
    /// (status code type 3h).
    #[must_use]
    pub const fn is_path_related(self) -> bool {
        self.code_type() == 3
    }

    /// Status code type, 0 to 7.
    #[must_use]
    pub const fn code_type(self) -> u8 {
        (self.0 >> 8 & 0x7) as u8
    }

    /// Status code, 0 to 255.
    #[must_use]
    pub const fn code(self) -> u8 {
        (self.0 & 0xff) as u8
    }

    /// Whether both are the same status, M, CRD and DNR aside.
    #[must_use]
    pub const fn is(self, other: Self) -> bool {
        self.0 & 0x7ff == other.0 & 0x7ff
    }

    /// `Ok` on success, the status otherwise.
    ///
    /// # Errors
    /// The status itself when it is not success.
    pub const fn ok(self) -> Result<(), Self> {
        if self.is_success() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_named(self.name(), f)
    }
}

impl Status {
    fn fmt_named(self, name: Option<&str>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = name.unwrap_or(match self.code_type() {
            7 => "Vendor Specific",
            _ => "Unknown Status",
        });
        write!(f, "{name} (SCT {:x}h, SC {:02x}h", self.code_type(), self.code())?;
        if self.is_dnr() {
            f.write_str(", DNR")?;
        }
        f.write_str(")")
    }
}

/// A status of an I/O command of the NVM command set, as it is shown: `Status::nvm_name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvmStatus(pub Status);

impl fmt::Display for NvmStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_named(self.0.nvm_name(), f)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for Status {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_status_is_printed_with_name_and_codes() {
        assert_eq!(Status::CONNECT_INVALID_HOST.dnr().to_string(), "Connect Invalid Host (SCT 1h, SC 84h, DNR)");
        assert_eq!(Status(0x7ff).to_string(), "Vendor Specific (SCT 7h, SC ffh)");
        assert_eq!(Status(0x17f).to_string(), "Unknown Status (SCT 1h, SC 7fh)");
    }

    #[test]
    fn the_same_code_has_another_name_in_the_nvm_command_set() {
        let status = Status::INVALID_PROTECTION_INFORMATION.dnr();
        assert_eq!(status.nvm_name(), Some("Invalid Protection Information"));
        assert_eq!(status.name(), Some("Connect Controller Busy"));
        assert_eq!(NvmStatus(status).to_string(), "Invalid Protection Information (SCT 1h, SC 81h, DNR)");
        assert_eq!(Status::AUTHENTICATION_REQUIRED.nvm_name(), None);
        assert_eq!(Status::LBA_OUT_OF_RANGE.more().nvm_name(), Some("LBA Out of Range"));
    }

    #[test]
    fn statuses_have_linuxs_codes() {
        for (status, code) in [
            (Status::OPERATION_DENIED, 0x015),
            (Status::FIRMWARE_NEEDS_CONVENTIONAL_RESET, 0x10b),
            (Status::FIRMWARE_NEEDS_SUBSYSTEM_RESET, 0x110),
            (Status::FIRMWARE_NEEDS_RESET, 0x111),
            (Status::FIRMWARE_NEEDS_MAXIMUM_TIME, 0x112),
            (Status::FIRMWARE_ACTIVATION_PROHIBITED, 0x113),
            (Status::OVERLAPPING_RANGE, 0x114),
            (Status::NAMESPACE_INSUFFICIENT_CAPACITY, 0x115),
            (Status::THIN_PROVISIONING_NOT_SUPPORTED, 0x11b),
            (Status::SELF_TEST_IN_PROGRESS, 0x11d),
            (Status::ANA_GROUP_INVALID, 0x124),
            (Status::COMMAND_SET_COMBINATION_REJECTED, 0x12b),
            (Status::CROSS_CONTROLLER_RESET_IN_PROGRESS, 0x13f),
            (Status::CROSS_CONTROLLER_RESET_LOG_FULL, 0x140),
            (Status::CROSS_CONTROLLER_RESET_LIMIT_EXCEEDED, 0x141),
            (Status::COMMAND_SIZE_LIMIT_EXCEEDED, 0x183),
            (Status::INSUFFICIENT_RESOURCES, 0x189),
            (Status::STORAGE_TAG_CHECK_ERROR, 0x288),
        ] {
            assert_eq!(status.0, code, "{status}");
        }
    }

    #[test]
    fn modifier_bits_do_not_affect_comparisons() {
        let status = Status::LBA_OUT_OF_RANGE.dnr().more();
        assert!(status.is(Status::LBA_OUT_OF_RANGE));
        assert!(!status.is_success());
        assert_eq!(status.0, 0x6080);
        let delayed = Status::NAMESPACE_NOT_READY.more().retry_after(1);
        assert_eq!((delayed.0, delayed.retry_delay(), status.retry_delay()), (0x2882, 1, 0));
        assert!(delayed.is(Status::NAMESPACE_NOT_READY));
    }
}
