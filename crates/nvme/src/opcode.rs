//! Opcodes of the Admin, NVM and Fabrics command sets, with the names that people know them by.

/// Admin command set opcodes (Base, Admin Command Set).
pub mod admin {
    #![allow(missing_docs, reason = "each name is the command's name in the specification")]
    pub const DELETE_IO_SQ: u8 = 0x00;
    pub const CREATE_IO_SQ: u8 = 0x01;
    pub const GET_LOG_PAGE: u8 = 0x02;
    pub const DELETE_IO_CQ: u8 = 0x04;
    pub const CREATE_IO_CQ: u8 = 0x05;
    pub const IDENTIFY: u8 = 0x06;
    pub const ABORT: u8 = 0x08;
    pub const SET_FEATURES: u8 = 0x09;
    pub const GET_FEATURES: u8 = 0x0a;
    pub const ASYNC_EVENT_REQUEST: u8 = 0x0c;
    pub const NAMESPACE_MANAGEMENT: u8 = 0x0d;
    pub const FIRMWARE_COMMIT: u8 = 0x10;
    pub const FIRMWARE_DOWNLOAD: u8 = 0x11;
    pub const DEVICE_SELF_TEST: u8 = 0x14;
    pub const NAMESPACE_ATTACHMENT: u8 = 0x15;
    pub const KEEP_ALIVE: u8 = 0x18;
    pub const DIRECTIVE_SEND: u8 = 0x19;
    pub const DIRECTIVE_RECEIVE: u8 = 0x1a;
    pub const VIRTUALIZATION_MANAGEMENT: u8 = 0x1c;
    pub const NVME_MI_SEND: u8 = 0x1d;
    pub const NVME_MI_RECEIVE: u8 = 0x1e;
    pub const CAPACITY_MANAGEMENT: u8 = 0x20;
    pub const DISCOVERY_INFORMATION_MANAGEMENT: u8 = 0x21;
    pub const LOCKDOWN: u8 = 0x24;
    pub const DOORBELL_BUFFER_CONFIG: u8 = 0x7c;
    pub const FORMAT_NVM: u8 = 0x80;
    pub const SECURITY_SEND: u8 = 0x81;
    pub const SECURITY_RECEIVE: u8 = 0x82;
    pub const SANITIZE: u8 = 0x84;
    pub const GET_LBA_STATUS: u8 = 0x86;
}

/// NVM command set opcodes (NVM Command Set, I/O Commands).
pub mod nvm {
    #![allow(missing_docs, reason = "each name is the command's name in the specification")]
    pub const FLUSH: u8 = 0x00;
    pub const WRITE: u8 = 0x01;
    pub const READ: u8 = 0x02;
    pub const WRITE_UNCORRECTABLE: u8 = 0x04;
    pub const COMPARE: u8 = 0x05;
    pub const WRITE_ZEROES: u8 = 0x08;
    pub const DATASET_MANAGEMENT: u8 = 0x09;
    pub const VERIFY: u8 = 0x0c;
    pub const RESERVATION_REGISTER: u8 = 0x0d;
    pub const RESERVATION_REPORT: u8 = 0x0e;
    pub const RESERVATION_ACQUIRE: u8 = 0x11;
    pub const IO_MANAGEMENT_RECEIVE: u8 = 0x12;
    pub const RESERVATION_RELEASE: u8 = 0x15;
    pub const CANCEL: u8 = 0x18;
    pub const COPY: u8 = 0x19;
    pub const IO_MANAGEMENT_SEND: u8 = 0x1d;
}

/// The opcode of every Fabrics command; FCTYPE in byte 4 says which (NVMe over Fabrics, Fabrics
/// Command Set).
pub const FABRICS: u8 = 0x7f;

/// Fabrics command types (FCTYPE).
pub mod fabrics {
    #![allow(missing_docs, reason = "each name is the command's name in the specification")]
    pub const PROPERTY_SET: u8 = 0x00;
    pub const CONNECT: u8 = 0x01;
    pub const PROPERTY_GET: u8 = 0x04;
    pub const AUTHENTICATION_SEND: u8 = 0x05;
    pub const AUTHENTICATION_RECEIVE: u8 = 0x06;
    pub const DISCONNECT: u8 = 0x08;
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
    pub const fn of(opcode: u8, fctype: u8) -> Self {
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
    Some(match opcode {
        admin::DELETE_IO_SQ => "Delete I/O Submission Queue",
        admin::CREATE_IO_SQ => "Create I/O Submission Queue",
        admin::GET_LOG_PAGE => "Get Log Page",
        admin::DELETE_IO_CQ => "Delete I/O Completion Queue",
        admin::CREATE_IO_CQ => "Create I/O Completion Queue",
        admin::IDENTIFY => "Identify",
        admin::ABORT => "Abort",
        admin::SET_FEATURES => "Set Features",
        admin::GET_FEATURES => "Get Features",
        admin::ASYNC_EVENT_REQUEST => "Asynchronous Event Request",
        admin::NAMESPACE_MANAGEMENT => "Namespace Management",
        admin::FIRMWARE_COMMIT => "Firmware Commit",
        admin::FIRMWARE_DOWNLOAD => "Firmware Image Download",
        admin::DEVICE_SELF_TEST => "Device Self-test",
        admin::NAMESPACE_ATTACHMENT => "Namespace Attachment",
        admin::KEEP_ALIVE => "Keep Alive",
        admin::DIRECTIVE_SEND => "Directive Send",
        admin::DIRECTIVE_RECEIVE => "Directive Receive",
        admin::VIRTUALIZATION_MANAGEMENT => "Virtualization Management",
        admin::NVME_MI_SEND => "NVMe-MI Send",
        admin::NVME_MI_RECEIVE => "NVMe-MI Receive",
        admin::CAPACITY_MANAGEMENT => "Capacity Management",
        admin::LOCKDOWN => "Lockdown",
        admin::DOORBELL_BUFFER_CONFIG => "Doorbell Buffer Config",
        admin::DISCOVERY_INFORMATION_MANAGEMENT => "Discovery Information Management",
        FABRICS => "Fabrics",
        admin::FORMAT_NVM => "Format NVM",
        admin::SECURITY_SEND => "Security Send",
        admin::SECURITY_RECEIVE => "Security Receive",
        admin::SANITIZE => "Sanitize",
        admin::GET_LBA_STATUS => "Get LBA Status",
        _ => return None,
    })
}

/// The name of an NVM command, or `None` for an opcode that this crate does not know.
#[must_use]
pub const fn nvm_name(opcode: u8) -> Option<&'static str> {
    Some(match opcode {
        nvm::FLUSH => "Flush",
        nvm::WRITE => "Write",
        nvm::READ => "Read",
        nvm::WRITE_UNCORRECTABLE => "Write Uncorrectable",
        nvm::COMPARE => "Compare",
        nvm::WRITE_ZEROES => "Write Zeroes",
        nvm::DATASET_MANAGEMENT => "Dataset Management",
        nvm::VERIFY => "Verify",
        nvm::RESERVATION_REGISTER => "Reservation Register",
        nvm::RESERVATION_REPORT => "Reservation Report",
        nvm::RESERVATION_ACQUIRE => "Reservation Acquire",
        nvm::RESERVATION_RELEASE => "Reservation Release",
        nvm::COPY => "Copy",
        nvm::IO_MANAGEMENT_RECEIVE => "I/O Management Receive",
        nvm::CANCEL => "Cancel",
        nvm::IO_MANAGEMENT_SEND => "I/O Management Send",
        FABRICS => "Fabrics",
        _ => return None,
    })
}

/// The name of a Fabrics command, or `None` for an unknown FCTYPE.
#[must_use]
pub const fn fabrics_name(fctype: u8) -> Option<&'static str> {
    Some(match fctype {
        fabrics::PROPERTY_SET => "Property Set",
        fabrics::CONNECT => "Connect",
        fabrics::PROPERTY_GET => "Property Get",
        fabrics::AUTHENTICATION_SEND => "Authentication Send",
        fabrics::AUTHENTICATION_RECEIVE => "Authentication Receive",
        fabrics::DISCONNECT => "Disconnect",
        _ => return None,
    })
}
