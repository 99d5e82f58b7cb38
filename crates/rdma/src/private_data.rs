//! What both ends say to each other in the connection manager's private data when they connect: the
//! request, and the answer, which accepts or rejects.
//!
//! NVMe/RDMA, "RDMA_CM Private Data". Most connection managers pad private data with zeros to a
//! length of their own, so bytes that follow a record are ignored.

use core::fmt;

use ebof_nvme::{ControllerId, QueueId};
use thiserror::Error;
use zerocopy::byteorder::little_endian::U16;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The record format (RECFMT) of everything in this module.
const FORMAT: u16 = 0;

/// What a host asks for (RDMA_CM_REQUEST).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectRequest {
    /// Queue identifier (QID).
    pub qid: QueueId,
    /// Receive queue entries that the host has posted for response capsules (HRQSIZE).
    pub host_receives: u16,
    /// Entries of the Submission Queue, 1 to 65536: HSQSIZE, which is 0's based as SQSIZE in
    /// Connect.
    pub entries: u32,
    /// The controller (CNTLID) that an I/O queue belongs to. Linux (6.12) always says 0.
    pub cntlid: ControllerId,
}

/// What a controller accepts with (RDMA_CM_ACCEPT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectAccept {
    /// Receive queue entries that the controller has posted for command capsules (CRQSIZE).
    pub controller_receives: u16,
}

/// What a controller rejects with (RDMA_CM_REJECT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectReject {
    /// The field of the request, or the resource, that the controller refuses.
    pub status: RejectStatus,
}

/// The error status (STS) of a reject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RejectStatus(pub u16);

/// Private data of a controller that are no record of this transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// Fewer bytes than the record has.
    #[error("{length} bytes of private data, at least {least} are expected")]
    Length {
        /// Bytes that came.
        length: usize,
        /// Bytes of the record.
        least: usize,
    },
    /// Another record format (RECFMT) than 0.
    #[error("record format {0} of the private data, 0 is expected")]
    Format(u16),
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Request {
    recfmt: U16,
    qid: U16,
    hrqsize: U16,
    hsqsize: U16,
    cntlid: U16,
    rsvd10: [u8; 22],
}
const _: () = assert!(size_of::<Request>() == ConnectRequest::BYTES);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Accept {
    recfmt: U16,
    crqsize: U16,
    rsvd4: [u8; 28],
}
const _: () = assert!(size_of::<Accept>() == ConnectAccept::BYTES);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Reject {
    recfmt: U16,
    sts: U16,
}
const _: () = assert!(size_of::<Reject>() == ConnectReject::BYTES);

impl ConnectRequest {
    /// Bytes of the record.
    pub const BYTES: usize = 32;

    /// The bytes to send. Of more than 65536 entries 65536 are said.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let hsqsize = u16::try_from(self.entries.saturating_sub(1)).unwrap_or(u16::MAX);
        let record = Request {
            recfmt: FORMAT.into(),
            qid: self.qid.0.into(),
            hrqsize: self.host_receives.into(),
            hsqsize: hsqsize.into(),
            cntlid: self.cntlid.0.into(),
            rsvd10: [0; 22],
        };
        zerocopy::transmute!(record)
    }

    /// Reads what a host sent. Whether a controller can serve it is decided by
    /// [`accept`](crate::controller::Connection::accept).
    ///
    /// # Errors
    /// What the host is to be rejected with.
    pub fn decode(bytes: &[u8]) -> Result<Self, RejectStatus> {
        let (record, _padding) = Request::read_from_prefix(bytes).map_err(|_short| RejectStatus::INVALID_LENGTH)?;
        if record.recfmt.get() != FORMAT {
            return Err(RejectStatus::INVALID_FORMAT);
        }
        Ok(Self {
            qid: QueueId(record.qid.get()),
            host_receives: record.hrqsize.get(),
            entries: u32::from(record.hsqsize.get()) + 1,
            cntlid: ControllerId(record.cntlid.get()),
        })
    }
}

impl ConnectAccept {
    /// Bytes of the record.
    pub const BYTES: usize = 32;

    /// The bytes to send.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut record = Accept::new_zeroed();
        record.recfmt = FORMAT.into();
        record.crqsize = self.controller_receives.into();
        zerocopy::transmute!(record)
    }

    /// Reads what a controller sent.
    ///
    /// # Errors
    /// It is no such record.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (record, _padding) = Accept::read_from_prefix(bytes)
            .map_err(|_short| Malformed::Length { length: bytes.len(), least: Self::BYTES })?;
        match record.recfmt.get() {
            FORMAT => Ok(Self { controller_receives: record.crqsize.get() }),
            other => Err(Malformed::Format(other)),
        }
    }
}

impl ConnectReject {
    /// Bytes of the record.
    pub const BYTES: usize = 4;

    /// The bytes to send.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        zerocopy::transmute!(Reject { recfmt: FORMAT.into(), sts: self.status.0.into() })
    }

    /// Reads what a controller sent. Also connection managers reject, without such a record.
    ///
    /// # Errors
    /// It is no such record.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (record, _padding) = Reject::read_from_prefix(bytes)
            .map_err(|_short| Malformed::Length { length: bytes.len(), least: Self::BYTES })?;
        match record.recfmt.get() {
            FORMAT => Ok(Self { status: RejectStatus(record.sts.get()) }),
            other => Err(Malformed::Format(other)),
        }
    }
}

impl RejectStatus {
    /// Invalid Private Data Length.
    pub const INVALID_LENGTH: Self = Self(1);
    /// Invalid RECFMT.
    pub const INVALID_FORMAT: Self = Self(2);
    /// Invalid QID.
    pub const INVALID_QID: Self = Self(3);
    /// Invalid HSQSIZE: more entries of the Submission Queue than the controller has, or too few.
    pub const INVALID_HSQSIZE: Self = Self(4);
    /// Invalid HRQSIZE: no receives for responses.
    pub const INVALID_HRQSIZE: Self = Self(5);
    /// No Resources: may succeed later.
    pub const NO_RESOURCES: Self = Self(6);
    /// Invalid IRD: incoming RDMA READs that the host offers.
    pub const INVALID_IRD: Self = Self(7);
    /// Invalid ORD: outgoing RDMA READs that the host asks for.
    pub const INVALID_ORD: Self = Self(8);

    /// The specification's name; `None` where it has none for the number.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::INVALID_LENGTH => "Invalid Private Data Length",
            Self::INVALID_FORMAT => "Invalid RECFMT",
            Self::INVALID_QID => "Invalid QID",
            Self::INVALID_HSQSIZE => "Invalid HSQSIZE",
            Self::INVALID_HRQSIZE => "Invalid HRQSIZE",
            Self::NO_RESOURCES => "No Resources",
            Self::INVALID_IRD => "Invalid IRD",
            Self::INVALID_ORD => "Invalid ORD",
            Self(_) => return None,
        })
    }

    /// What it means for who operates the host, as one clause; `None` for an unknown number.
    #[must_use]
    pub const fn meaning(self) -> Option<&'static str> {
        Some(match self {
            Self::INVALID_LENGTH => "the target read no NVMe/RDMA request in the private data",
            Self::INVALID_FORMAT => "the target does not know this format of the request",
            Self::INVALID_QID => "the target has no such queue: fewer I/O queues may work",
            Self::INVALID_HSQSIZE => "the target has no queues of this size: a smaller queue size may work",
            Self::INVALID_HRQSIZE => "the target does not accept this number of receives",
            Self::NO_RESOURCES => "the target has no room for another queue now: fewer or smaller queues may work",
            Self::INVALID_IRD => "the target does not accept the number of RDMA READs that the host answers",
            Self::INVALID_ORD => "the target does not accept the number of RDMA READs that the host sends",
            Self(_) => return None,
        })
    }
}

impl fmt::Display for RejectStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "unknown status {}", self.0),
        }
    }
}

impl core::error::Error for RejectStatus {}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn records_round_trip() {
        for entries in [1, 32, 128, 65536] {
            let request = ConnectRequest { qid: QueueId(7), host_receives: 128, entries, cntlid: ControllerId(0x1234) };
            assert_eq!(ConnectRequest::decode(&request.encode()), Ok(request));
        }
        let accept = ConnectAccept { controller_receives: 33 };
        assert_eq!(ConnectAccept::decode(&accept.encode()), Ok(accept));
        for status in 0..10 {
            let reject = ConnectReject { status: RejectStatus(status) };
            assert_eq!(ConnectReject::decode(&reject.encode()), Ok(reject));
        }
    }

    #[test]
    fn padding_is_ignored_and_what_is_missing_is_not() {
        let request = ConnectRequest { qid: QueueId(0), host_receives: 32, entries: 32, cntlid: ControllerId(0) };
        let mut padded = [0xff; 56];
        padded[..32].copy_from_slice(&request.encode());
        assert_eq!(ConnectRequest::decode(&padded), Ok(request));
        assert_eq!(ConnectRequest::decode(&padded[..31]), Err(RejectStatus::INVALID_LENGTH));
        assert_eq!(ConnectRequest::decode(&[]), Err(RejectStatus::INVALID_LENGTH));
        padded[0] = 1;
        assert_eq!(ConnectRequest::decode(&padded), Err(RejectStatus::INVALID_FORMAT));
    }

    #[test]
    fn what_a_controller_sent_wrongly_is_said() {
        let text = |malformed: Malformed| malformed.to_string();
        assert_eq!(
            ConnectAccept::decode(&[0; 31]).map_err(text).unwrap_err(),
            "31 bytes of private data, at least 32 are expected"
        );
        assert_eq!(
            ConnectReject::decode(&[1, 0, 6, 0]).map_err(text).unwrap_err(),
            "record format 1 of the private data, 0 is expected"
        );
        assert_eq!(ConnectAccept::decode(&[0xff; 196]), Err(Malformed::Format(0xffff)));
        assert_eq!(ConnectReject::decode(&[0; 3]), Err(Malformed::Length { length: 3, least: 4 }));
    }

    #[test]
    fn statuses_have_names_meanings_and_numbers() {
        assert_eq!(RejectStatus::NO_RESOURCES.to_string(), "No Resources (6)");
        assert_eq!(RejectStatus(9).to_string(), "unknown status 9");
        for number in 0..20 {
            let status = RejectStatus(number);
            assert_eq!(status.name().is_some(), (1..=8).contains(&number));
            assert_eq!(status.name().is_some(), status.meaning().is_some());
        }
    }
}
