//! The peer broke the transport: what it did, for the TermReq PDU and for the log.

use alloc::boxed::Box;
use core::fmt;

use zerocopy::FromBytes;

use crate::pdu::TermReq;

/// Fatal Error Status of a TermReq PDU (NVMe/TCP, H2CTermReq and C2HTermReq: FES).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum FatalStatus {
    /// A field of the PDU header holds what it must not.
    InvalidHeaderField = 1,
    /// A PDU that may not come now.
    PduSequence = 2,
    /// The header digest does not match.
    HeaderDigest = 3,
    /// Data outside of what the command or the R2T covers.
    DataOutOfRange = 4,
    /// From a host: more R2Ts than offered; from a controller: more data in a PDU than announced.
    LimitExceeded = 5,
    /// A parameter that this end does not support.
    UnsupportedParameter = 6,
}

/// A violation after which the connection cannot go on: send a TermReq about it, then close.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FatalError {
    /// The status for the TermReq.
    pub status: FatalStatus,
    /// Fatal Error Information: the byte offset of the field in the PDU header for
    /// [`FatalStatus::InvalidHeaderField`] and [`FatalStatus::UnsupportedParameter`], the digest
    /// that was received for [`FatalStatus::HeaderDigest`], otherwise zero.
    pub information: u32,
    /// What was wrong, in plain words, for people.
    pub what: &'static str,
    /// The header of the offending PDU as far as it was received, at most 128 bytes.
    pub header: Box<[u8]>,
}

/// What a peer's TermReq PDU said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Termination {
    /// Fatal Error Status; 1 to 6 are [`FatalStatus`]es, the rest is kept as received.
    pub status: u16,
    /// Fatal Error Information.
    pub information: u32,
}

impl FatalError {
    /// The byte offset of the field in error, where the status names one.
    #[must_use]
    pub fn field_offset(&self) -> Option<u32> {
        matches!(self.status, FatalStatus::InvalidHeaderField | FatalStatus::UnsupportedParameter)
            .then_some(self.information)
    }
}

impl FatalStatus {
    /// The name for people. The specification names status 5 by direction: R2T limit from a host,
    /// data transfer limit from a controller.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InvalidHeaderField => "Invalid PDU Header Field",
            Self::PduSequence => "PDU Sequence Error",
            Self::HeaderDigest => "Header Digest Error",
            Self::DataOutOfRange => "Data Transfer Out of Range",
            Self::LimitExceeded => "Data Transfer or R2T Limit Exceeded",
            Self::UnsupportedParameter => "Unsupported Parameter",
        }
    }

    /// The status with this number.
    #[must_use]
    pub const fn from_number(number: u16) -> Option<Self> {
        Some(match number {
            1 => Self::InvalidHeaderField,
            2 => Self::PduSequence,
            3 => Self::HeaderDigest,
            4 => Self::DataOutOfRange,
            5 => Self::LimitExceeded,
            6 => Self::UnsupportedParameter,
            _ => return None,
        })
    }
}

impl fmt::Display for FatalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.status.name())?;
        if let Some(offset) = self.field_offset() {
            write!(f, " at byte {offset}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl core::error::Error for FatalError {}

impl fmt::Display for Termination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match FatalStatus::from_number(self.status) {
            Some(status) => f.write_str(status.name())?,
            None => write!(f, "reserved fatal error status {:x}h", self.status)?,
        }
        match FatalStatus::from_number(self.status) {
            Some(FatalStatus::InvalidHeaderField | FatalStatus::UnsupportedParameter) => {
                write!(f, " (byte {})", self.information)
            }
            Some(FatalStatus::HeaderDigest) => write!(f, " (digest {:08x}h)", self.information),
            _ => Ok(()),
        }
    }
}

impl Termination {
    /// Reads a TermReq; what does not fit its header (a TermReq of impossible length) is status 0.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        match TermReq::ref_from_prefix(bytes) {
            Ok((pdu, _)) if u32::from(pdu.common.hlen) == 24 => {
                Self { status: pdu.fes.get(), information: pdu.fei.get() }
            }
            _ => Self { status: 0, information: 0 },
        }
    }
}
