//! Fabrics commands on the wire (NVMe over Fabrics, Fabrics Command Set): Connect and its data,
//! Property Get and Set, Disconnect.

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::command::Sqe;
use crate::command::opcode::{FABRICS, fabrics};
use crate::name::id::uuid::HostId;
use crate::name::id::{ControllerId, QueueId};

/// The data that accompanies Connect, 1024 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ConnectData {
    /// Host Identifier.
    pub hostid: [u8; 16],
    /// Controller ID: FFFFh asks for a dynamic controller; an I/O queue names its controller.
    pub cntlid: U16,
    /// Reserved.
    pub reserved18: [u8; 238],
    /// NVM Subsystem NQN.
    pub subnqn: [u8; 256],
    /// Host NQN.
    pub hostnqn: [u8; 256],
    /// Reserved.
    pub reserved768: [u8; 256],
}
const _: () = assert!(size_of::<ConnectData>() == 1024);

impl ConnectData {
    /// Length in bytes.
    pub const BYTES: usize = size_of::<Self>();
    /// Offset of HOSTID within the data, for IPO of Connect Invalid Parameters.
    pub const HOSTID_OFFSET: u16 = 0;
    /// Offset of CNTLID.
    pub const CNTLID_OFFSET: u16 = 16;
    /// Offset of SUBNQN.
    pub const SUBNQN_OFFSET: u16 = 256;
    /// Offset of HOSTNQN.
    pub const HOSTNQN_OFFSET: u16 = 512;

    /// All zero.
    #[must_use]
    pub fn zeroed() -> Self {
        Self::new_zeroed()
    }

    /// The host identifier.
    #[must_use]
    pub fn host_id(&self) -> HostId {
        HostId(self.hostid)
    }
}

/// Connect, decoded from a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Record format (RECFMT), 0.
    pub recfmt: u16,
    /// The queue to create.
    pub qid: QueueId,
    /// Entries of the queue, made 1's based (SQSIZE + 1): 1 to 65536.
    pub entries: u32,
    /// Connect attributes (CATTR).
    pub cattr: u8,
    /// Keep Alive Timeout in milliseconds; 0 disables it. Admin Queue only.
    pub kato_ms: u32,
}

impl Connect {
    /// CATTR bit 2: the host asks to disable SQ flow control.
    pub const CATTR_DISABLE_SQ_FLOW: u8 = 1 << 2;
    /// CATTR bit 3: the host can delete I/O queues one by one (Disconnect).
    pub const CATTR_INDIVIDUAL_DELETION: u8 = 1 << 3;
    /// Offset of RECFMT in the command, for IPO.
    pub const RECFMT_OFFSET: u16 = 40;
    /// Offset of QID in the command, for IPO.
    pub const QID_OFFSET: u16 = 42;
    /// Offset of SQSIZE in the command, for IPO.
    pub const SQSIZE_OFFSET: u16 = 44;
    /// Offset of CATTR in the command, for IPO.
    pub const CATTR_OFFSET: u16 = 46;
    /// Offset of KATO in the command, for IPO.
    pub const KATO_OFFSET: u16 = 48;

    /// Decodes the fields of `sqe`; the caller has looked at opcode and FCTYPE.
    #[must_use]
    pub fn decode(sqe: &Sqe) -> Self {
        let [r0, r1, q0, q1] = sqe.cdw10.to_bytes();
        let [s0, s1, cattr, _] = sqe.cdw11.to_bytes();
        Self {
            recfmt: u16::from_le_bytes([r0, r1]),
            qid: QueueId(u16::from_le_bytes([q0, q1])),
            entries: u32::from(u16::from_le_bytes([s0, s1])) + 1,
            cattr,
            kato_ms: sqe.cdw12.get(),
        }
    }

    /// The command; the data pointer is left to the transport. `entries` above 65536 are cut
    /// to 65536.
    #[must_use]
    pub fn encode(&self) -> Sqe {
        let sqsize = u16::try_from(self.entries.saturating_sub(1)).unwrap_or(u16::MAX).to_le_bytes();
        let recfmt = self.recfmt.to_le_bytes();
        let qid = self.qid.0.to_le_bytes();
        let mut sqe = command(fabrics::CONNECT);
        sqe.cdw10 = U32::from_bytes([recfmt[0], recfmt[1], qid[0], qid[1]]);
        sqe.cdw11 = U32::from_bytes([sqsize[0], sqsize[1], self.cattr, 0]);
        sqe.cdw12 = self.kato_ms.into();
        sqe
    }

    /// Whether the host asks to disable SQ flow control.
    #[must_use]
    pub const fn disables_sq_flow(&self) -> bool {
        self.cattr & Self::CATTR_DISABLE_SQ_FLOW != 0
    }
}

/// What dword 0 of a Connect completion says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectResult {
    /// Success: the controller and whether authentication must follow (AUTHREQ).
    Connected {
        /// Controller ID.
        cntlid: ControllerId,
        /// AUTHREQ: bit 1 (ATR) transaction required, bit 2 (ASCR) secure channel required.
        authreq: u16,
    },
    /// Connect Invalid Parameters: which field was wrong.
    Invalid {
        /// IATTR bit 0: the field is in the Connect data (else in the command).
        in_data: bool,
        /// IPO: byte offset of the field.
        offset: u16,
    },
}

impl ConnectResult {
    /// AUTHREQ, ATR: an authentication transaction has to follow.
    pub const AUTHENTICATION_REQUIRED: u16 = 1 << 1;
    /// AUTHREQ, ASCR: it has to be one with secure channel concatenation.
    pub const SECURE_CHANNEL_REQUIRED: u16 = 1 << 2;

    /// Dwords 0 and 1 of the completion.
    #[must_use]
    pub fn encode(self) -> u64 {
        match self {
            Self::Connected { cntlid, authreq } => u64::from(cntlid.0) | u64::from(authreq) << 16,
            Self::Invalid { in_data, offset } => u64::from(offset) | u64::from(in_data) << 16,
        }
    }

    /// Decodes the result of a successful Connect.
    #[must_use]
    pub fn connected(result: u64) -> (ControllerId, u16) {
        let [a, b, c, d, ..] = result.to_le_bytes();
        (ControllerId(u16::from_le_bytes([a, b])), u16::from_le_bytes([c, d]))
    }

    /// Decodes the result of Connect Invalid Parameters: (in data, offset).
    #[must_use]
    pub fn invalid(result: u64) -> (bool, u16) {
        let [a, b, c, ..] = result.to_le_bytes();
        (c & 1 != 0, u16::from_le_bytes([a, b]))
    }
}

/// The name of the field that Connect Invalid Parameters points at, when it is one.
#[must_use]
pub const fn field_name(in_data: bool, offset: u16) -> Option<&'static str> {
    Some(match (in_data, offset) {
        (true, ConnectData::HOSTID_OFFSET) => "Host Identifier (HOSTID)",
        (true, ConnectData::CNTLID_OFFSET) => "Controller ID (CNTLID)",
        (true, ConnectData::SUBNQN_OFFSET) => "NVM Subsystem NQN (SUBNQN)",
        (true, ConnectData::HOSTNQN_OFFSET) => "Host NQN (HOSTNQN)",
        (false, Connect::RECFMT_OFFSET) => "Record Format (RECFMT)",
        (false, Connect::QID_OFFSET) => "Queue ID (QID)",
        (false, Connect::SQSIZE_OFFSET) => "Submission Queue Size (SQSIZE)",
        (false, Connect::CATTR_OFFSET) => "Connect Attributes (CATTR)",
        (false, Connect::KATO_OFFSET) => "Keep Alive Timeout (KATO)",
        _ => return None,
    })
}

/// A Property Get or Set command, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Property {
    /// ATTRIB bits 2:0: property size, 4 or 8 bytes; `None` for reserved values.
    pub bytes: Option<u8>,
    /// OFST: the property's offset.
    pub offset: u32,
    /// VALUE, for Property Set.
    pub value: u64,
}

impl Property {
    /// Decodes the fields of `sqe`.
    #[must_use]
    pub fn decode(sqe: &Sqe) -> Self {
        let bytes = match sqe.cdw10.to_bytes()[0] & 0x7 {
            0 => Some(4),
            1 => Some(8),
            _ => None,
        };
        let value = u64::from(sqe.cdw12.get()) | u64::from(sqe.cdw13.get()) << 32;
        Self { bytes, offset: sqe.cdw11.get(), value }
    }

    /// A Property Get of `bytes` (4 or 8) at `offset`.
    #[must_use]
    pub fn get(offset: u32, bytes: u8) -> Sqe {
        command(fabrics::PROPERTY_GET).with_cdw(10, u32::from(bytes == 8)).with_cdw(11, offset)
    }

    /// A Property Set of four bytes at `offset`.
    #[must_use]
    pub fn set(offset: u32, value: u32) -> Sqe {
        command(fabrics::PROPERTY_SET).with_cdw(11, offset).with_cdw(12, value)
    }
}

/// The Disconnect command of an I/O queue.
#[must_use]
pub fn disconnect() -> Sqe {
    command(fabrics::DISCONNECT)
}

pub(crate) fn command(fctype: u8) -> Sqe {
    let mut sqe = Sqe::new(FABRICS);
    sqe.nsid = U32::new(u32::from(fctype));
    sqe
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::property;

    #[test]
    fn connect_is_laid_out_as_linux_sends_it() {
        let connect = Connect {
            recfmt: 0,
            qid: QueueId(3),
            entries: 128,
            cattr: Connect::CATTR_DISABLE_SQ_FLOW,
            kato_ms: 15_000,
        };
        let sqe = connect.encode();
        assert_eq!(sqe.as_bytes()[0..5], [0x7f, 0x40, 0, 0, 1]);
        assert_eq!(sqe.as_bytes()[40..52], [0, 0, 3, 0, 127, 0, 4, 0, 0x98, 0x3a, 0, 0]);
        assert_eq!(Connect::decode(&sqe), connect);
        assert_eq!(sqe.fctype(), Some(fabrics::CONNECT));
    }

    #[test]
    fn property_commands_round_trip() {
        let get = Property::decode(&Property::get(property::offset::CAP, 8));
        assert_eq!((get.bytes, get.offset), (Some(8), 0));
        let set = Property::decode(&Property::set(property::offset::CC, 0x0046_0001));
        assert_eq!((set.bytes, set.offset, set.value), (Some(4), 0x14, 0x0046_0001));
        assert_eq!(Property::decode(&Sqe::new(FABRICS).with_cdw(10, 7)).bytes, None);
    }

    #[test]
    fn invalid_parameters_are_reported_with_their_field() {
        let result = ConnectResult::Invalid { in_data: true, offset: ConnectData::SUBNQN_OFFSET }.encode();
        let (in_data, offset) = ConnectResult::invalid(result);
        assert_eq!(field_name(in_data, offset), Some("NVM Subsystem NQN (SUBNQN)"));
        assert_eq!(result, 0x0001_0100);
    }
}
