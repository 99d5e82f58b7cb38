//! What a command does with one run of blocks: one description of it from the queue's decision to
//! the device and back.
//!
//! Decisions by kind name all kinds: a new one that changes blocks must not slip past what orders
//! changes.
#![deny(clippy::wildcard_enum_match_arm)]

use alloc::boxed::Box;
use core::ops::Range;

use ebof_nvme::protection::Rules;
use ebof_nvme::{Cid, Nsid};

use crate::model::DeviceId;

/// What is done with blocks of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// What is done.
    pub kind: TransferKind,
    /// Where they are on the device.
    pub extent: Extent,
    /// The half of a Compare and Write that it is: a `Compare` is the first, a `Write` the second.
    pub fused: Option<FusedHalf>,
    /// Where the blocks have protection information, what is done about it.
    pub checks: Option<Box<ProtectionChecks>>,
}

/// What is done with blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferKind {
    /// Read them and send them to the host.
    Read,
    /// Fetch their data from the host and write them.
    Write,
    /// Fetch data from the host and compare them with the blocks; `Status::COMPARE_FAILURE` when
    /// they differ.
    Compare,
    /// Check that they can be read; no data move.
    Verify,
    /// Make them read as zeros; no data move.
    WriteZeroes,
    /// Have the drive remember that they cannot be read until they are written; no data move.
    WriteUncorrectable,
}

impl TransferKind {
    /// Its name, for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Compare => "compare",
            Self::Verify => "verify",
            Self::WriteZeroes => "write zeroes",
            Self::WriteUncorrectable => "write uncorrectable",
        }
    }
}

/// A half of a Compare and Write. Nothing else changes the blocks between the two; when one fails,
/// the other one is Aborted due to Failed Fused Command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FusedHalf {
    /// Its completion is kept back: the second half is with the next step of the queue, or is
    /// missing.
    First {
        /// The second half, for the target to fill in when it comes.
        second: Option<Cid>,
    },
    /// The other half came before it.
    Second {
        /// The first half.
        first: Cid,
    },
}

/// Logical blocks of Compare and Write at most (ACWU): what is written whole or not at all, also
/// when the power fails, is one block (AWUPF).
pub(crate) const FUSED_BLOCKS_MAX: u32 = 1;

/// Bytes of a device, checked against the namespace's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The device.
    pub device: DeviceId,
    /// The namespace, for counters and labels.
    pub nsid: Nsid,
    /// First byte on the device.
    pub offset_bytes: u64,
    /// Bytes, at least one block.
    pub length_bytes: u32,
    /// Force unit access: a write is on the medium before it completes; also set for every write
    /// when the host has switched the volatile write cache off.
    pub fua: bool,
    /// Write Zeroes may deallocate the blocks, which then read as zeros.
    pub deallocate: bool,
}

/// What is done about the protection information of a command's blocks, on their way between host
/// and device. On the device every block has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtectionChecks {
    /// What is checked, and whether it is inserted or stripped; then the host transfers data alone.
    pub rules: Rules,
    /// Bytes of a block's data; its protection information follows.
    pub data_bytes: u32,
    /// Bytes to or from the host.
    pub transfer_bytes: u32,
    /// Bytes to or from the device.
    pub device_bytes: u32,
}

impl Transfer {
    /// Bytes that the command's data have between host and controller, or would have if any moved.
    #[must_use]
    #[inline]
    pub fn transfer_bytes(&self) -> u32 {
        self.checks.as_ref().map_or(self.extent.length_bytes, |checks| checks.transfer_bytes)
    }

    /// Bytes of buffer that it needs. Compare keeps the host's data behind the place where the
    /// device's go.
    #[must_use]
    #[inline]
    pub fn buffer_bytes(&self) -> usize {
        let length = self.transfer_bytes() as usize;
        let bytes = match self.kind {
            TransferKind::Compare => 2 * length,
            TransferKind::Read | TransferKind::Write | TransferKind::Verify => length,
            TransferKind::WriteZeroes | TransferKind::WriteUncorrectable => 0,
        };
        self.checks.as_ref().map_or(bytes, |checks| bytes.max(checks.device_bytes as usize))
    }

    /// Where in the buffer the host's data start, bytes.
    #[must_use]
    #[inline]
    pub fn data_offset(&self) -> usize {
        if self.kind == TransferKind::Compare { self.transfer_bytes() as usize } else { 0 }
    }

    /// Whether it is a first half of a Compare and Write.
    #[must_use]
    pub fn is_first_half(&self) -> bool {
        matches!(self.fused, Some(FusedHalf::First { .. }))
    }
}

impl Extent {
    /// The bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> Range<u64> {
        self.offset_bytes..self.offset_bytes.saturating_add(self.length_bytes.into())
    }
}

impl TransferKind {
    /// Whether it changes the blocks.
    #[must_use]
    #[inline]
    pub fn is_change(self) -> bool {
        match self {
            Self::Write | Self::WriteZeroes | Self::WriteUncorrectable => true,
            Self::Read | Self::Compare | Self::Verify => false,
        }
    }

    /// Whether the host sends data.
    #[must_use]
    #[inline]
    pub fn takes_data(self) -> bool {
        match self {
            Self::Write | Self::Compare => true,
            Self::Read | Self::Verify | Self::WriteZeroes | Self::WriteUncorrectable => false,
        }
    }

    /// Whether data move between host and controller, in either direction.
    #[must_use]
    #[inline]
    pub fn moves_data(self) -> bool {
        match self {
            Self::Read | Self::Write | Self::Compare => true,
            Self::Verify | Self::WriteZeroes | Self::WriteUncorrectable => false,
        }
    }
}
