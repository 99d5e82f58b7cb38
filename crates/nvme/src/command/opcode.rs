//! Opcodes of the Admin, NVM and Fabrics command sets, with the names that people know them by.

/// A module with the opcodes of a command set, and their names.
macro_rules! opcodes {
    ($(#[$doc:meta])* pub mod $set:ident; $($name:ident = $opcode:literal, $text:literal;)*) => {
        $(#[$doc])*
        pub mod $set {
            $(#[doc = $text] pub const $name: u8 = $opcode;)*

            /// The name of a command, or `None` for an opcode that the table does not have.
            pub(super) const fn name(opcode: u8) -> Option<&'static str> {
                match opcode {
                    $($name => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

opcodes! {
    /// Admin command set opcodes (Base, Admin Command Set).
    pub mod admin;
    DELETE_IO_SQ = 0x00, "Delete I/O Submission Queue";
    CREATE_IO_SQ = 0x01, "Create I/O Submission Queue";
    GET_LOG_PAGE = 0x02, "Get Log Page";
    DELETE_IO_CQ = 0x04, "Delete I/O Completion Queue";
    CREATE_IO_CQ = 0x05, "Create I/O Completion Queue";
    IDENTIFY = 0x06, "Identify";
    ABORT = 0x08, "Abort";
    SET_FEATURES = 0x09, "Set Features";
    GET_FEATURES = 0x0a, "Get Features";
    ASYNC_EVENT_REQUEST = 0x0c, "Asynchronous Event Request";
    NAMESPACE_MANAGEMENT = 0x0d, "Namespace Management";
    FIRMWARE_COMMIT = 0x10, "Firmware Commit";
    FIRMWARE_DOWNLOAD = 0x11, "Firmware Image Download";
    DEVICE_SELF_TEST = 0x14, "Device Self-test";
    NAMESPACE_ATTACHMENT = 0x15, "Namespace Attachment";
    KEEP_ALIVE = 0x18, "Keep Alive";
    DIRECTIVE_SEND = 0x19, "Directive Send";
    DIRECTIVE_RECEIVE = 0x1a, "Directive Receive";
    VIRTUALIZATION_MANAGEMENT = 0x1c, "Virtualization Management";
    NVME_MI_SEND = 0x1d, "NVMe-MI Send";
    NVME_MI_RECEIVE = 0x1e, "NVMe-MI Receive";
    CAPACITY_MANAGEMENT = 0x20, "Capacity Management";
    DISCOVERY_INFORMATION_MANAGEMENT = 0x21, "Discovery Information Management";
    LOCKDOWN = 0x24, "Lockdown";
    CROSS_CONTROLLER_RESET = 0x38, "Cross-Controller Reset";
    DOORBELL_BUFFER_CONFIG = 0x7c, "Doorbell Buffer Config";
    FORMAT_NVM = 0x80, "Format NVM";
    SECURITY_SEND = 0x81, "Security Send";
    SECURITY_RECEIVE = 0x82, "Security Receive";
    SANITIZE = 0x84, "Sanitize";
    GET_LBA_STATUS = 0x86, "Get LBA Status";
}

opcodes! {
    /// NVM command set opcodes (NVM Command Set, I/O Commands).
    pub mod nvm;
    FLUSH = 0x00, "Flush";
    WRITE = 0x01, "Write";
    READ = 0x02, "Read";
    WRITE_UNCORRECTABLE = 0x04, "Write Uncorrectable";
    COMPARE = 0x05, "Compare";
    WRITE_ZEROES = 0x08, "Write Zeroes";
    DATASET_MANAGEMENT = 0x09, "Dataset Management";
    VERIFY = 0x0c, "Verify";
    RESERVATION_REGISTER = 0x0d, "Reservation Register";
    RESERVATION_REPORT = 0x0e, "Reservation Report";
    RESERVATION_ACQUIRE = 0x11, "Reservation Acquire";
    IO_MANAGEMENT_RECEIVE = 0x12, "I/O Management Receive";
    RESERVATION_RELEASE = 0x15, "Reservation Release";
    CANCEL = 0x18, "Cancel";
    COPY = 0x19, "Copy";
    IO_MANAGEMENT_SEND = 0x1d, "I/O Management Send";
}

/// The opcode of every Fabrics command; FCTYPE in byte 4 says which (NVMe over Fabrics, Fabrics
/// Command Set).
pub const FABRICS: u8 = 0x7f;

opcodes! {
    /// Fabrics command types (FCTYPE).
    pub mod fabrics;
    PROPERTY_SET = 0x00, "Property Set";
    CONNECT = 0x01, "Connect";
    PROPERTY_GET = 0x04, "Property Get";
    AUTHENTICATION_SEND = 0x05, "Authentication Send";
    AUTHENTICATION_RECEIVE = 0x06, "Authentication Receive";
    DISCONNECT = 0x08, "Disconnect";
}

/// Which way a command's data goes: bits 1:0 of the opcode, or of FCTYPE for Fabrics commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// No data.
    None,
    /// From the host to the controller.
    HostToController,
    /// From the controller to the host.
    ControllerToHost,
    /// Both (no standard command uses it).
    Bidirectional,
}

impl Direction {
    /// The direction that `opcode` (or FCTYPE, for [`FABRICS`]) encodes.
    #[must_use]
    pub const fn from_opcode(opcode: u8, fctype: u8) -> Self {
        let code = if opcode == FABRICS { fctype } else { opcode };
        match code & 0x03 {
            0 => Self::None,
            1 => Self::HostToController,
            2 => Self::ControllerToHost,
            _ => Self::Bidirectional,
        }
    }
}

/// The name of an admin command, or `None` for an opcode that this crate does not know.
#[must_use]
pub const fn admin_name(opcode: u8) -> Option<&'static str> {
    if opcode == FABRICS { Some("Fabrics") } else { admin::name(opcode) }
}

/// The name of an NVM command, or `None` for an opcode that this crate does not know.
#[must_use]
pub const fn nvm_name(opcode: u8) -> Option<&'static str> {
    if opcode == FABRICS { Some("Fabrics") } else { nvm::name(opcode) }
}

/// The name of a Fabrics command, or `None` for an unknown FCTYPE.
#[must_use]
pub const fn fabrics_name(fctype: u8) -> Option<&'static str> {
    fabrics::name(fctype)
}
