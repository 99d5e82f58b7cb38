//! The rights of hosts to a reserved namespace.
//!
//! NVMe Base 2.1, "Reservation Types", figure "Command Behavior in the Presence of a Reservation";
//! NVM Command Set 1.1, "Reservations".

use alloc::boxed::Box;

use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::{HostId, Status};

/// The kind of a command with regard to reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Read Command Group: Read, Compare, Verify, a source of Copy, Security Receive.
    Read,
    /// Write Command Group: Write, Write Zeroes, Write Uncorrectable, Dataset Management, Flush,
    /// the destination of Copy; Format NVM, Namespace Attachment, Namespace Management, Capacity
    /// Management, Sanitize, Security Send.
    Write,
    /// Reservation Acquire with the action Acquire.
    Acquire,
    /// Reservation Acquire with the action Preempt or Preempt and Abort, and Reservation Release:
    /// for registrants.
    Registrant,
    /// All others: never in conflict.
    Other,
}

/// The right of a host to the blocks of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Right {
    /// Everything: there is no reservation.
    #[default]
    Free,
    /// Everything: the host holds the reservation, or it excludes only others.
    Full,
    /// [`Access::Read`], not [`Access::Write`].
    ReadOnly,
    /// Neither.
    Nothing,
    /// Neither, and not because of a reservation: commands are refused with this status for the
    /// time being.
    Barred(Status),
    /// [`Access::Read`]; other commands are refused with this status for the time being.
    ReadForNow(Status),
}

/// A snapshot of the rights of all hosts, to be looked up for every command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservationView {
    /// The right of hosts that are not in `full`.
    others: Right,
    /// Hosts with all rights while there is a reservation, sorted.
    full: Box<[HostId]>,
}

impl Access {
    /// Of an I/O command of the NVM command set; dword 10 holds the action of Reservation Acquire.
    /// The sources of Copy are [`Access::Read`] to their namespaces besides.
    #[must_use]
    pub const fn of_nvm(opcode: u8, cdw10: u32) -> Self {
        match opcode {
            nvm::READ | nvm::COMPARE | nvm::VERIFY => Self::Read,
            nvm::WRITE
            | nvm::WRITE_ZEROES
            | nvm::WRITE_UNCORRECTABLE
            | nvm::DATASET_MANAGEMENT
            | nvm::FLUSH
            | nvm::COPY => Self::Write,
            nvm::RESERVATION_ACQUIRE if cdw10 & 7 == 0 => Self::Acquire,
            nvm::RESERVATION_ACQUIRE | nvm::RESERVATION_RELEASE => Self::Registrant,
            _ => Self::Other,
        }
    }

    /// Of an admin command to a namespace; to all namespaces where its NSID is FFFFFFFFh.
    #[must_use]
    pub const fn of_admin(opcode: u8) -> Self {
        match opcode {
            admin::SECURITY_RECEIVE => Self::Read,
            admin::CAPACITY_MANAGEMENT
            | admin::FORMAT_NVM
            | admin::NAMESPACE_ATTACHMENT
            | admin::NAMESPACE_MANAGEMENT
            | admin::SANITIZE
            | admin::SECURITY_SEND => Self::Write,
            _ => Self::Other,
        }
    }
}

impl Right {
    /// Whether a command that does `access` to the blocks may be executed.
    #[must_use]
    pub const fn allows(self, access: Access) -> bool {
        match access {
            Access::Read => !matches!(self, Self::Nothing | Self::Barred(_)),
            Access::Write => matches!(self, Self::Free | Self::Full),
            // Decided by whether the host is holder or registrant, not by its right to the blocks.
            Access::Acquire | Access::Registrant | Access::Other => true,
        }
    }
}

impl ReservationView {
    /// Of a namespace on which the hosts of `full`, sorted, have all rights.
    pub(super) fn new(others: Right, full: impl Iterator<Item = HostId>) -> Self {
        Self { others, full: full.collect() }
    }

    /// The right of `host`: a comparison without a reservation, a binary search with one.
    #[must_use]
    pub fn right(&self, host: HostId) -> Right {
        if self.full.binary_search(&host).is_ok() { Right::Full } else { self.others }
    }

    /// Whether anybody holds a reservation.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        self.others != Right::Free
    }
}
