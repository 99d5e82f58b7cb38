//! How the parts of a queue answer: with a task, or with a status and the location of the error.

use ebof_nvme::log::ParameterErrorLocation;
use ebof_nvme::opcode::Direction;
use ebof_nvme::{DataLocation, Sgl, Sqe, Status};

use crate::task::Task;

/// What becomes of a command that was not refused. The queue, which has its ticket, makes a step of
/// it.
#[derive(Debug)]
pub(crate) enum Decision {
    /// It is complete, with this result.
    Done(u64),
    /// The target has to do something; the command has so many bytes of data
    /// ([`Executing::length`](crate::Executing::length)).
    Go(Task, u32),
    /// It waits for an event.
    Held,
    /// It is complete, and so is the connection.
    Disconnect,
}

/// How a command ends, or goes on.
pub(crate) type Outcome = Result<Decision, Fault>;

/// A refused command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) status: Status,
    pub(crate) detail: Detail,
    pub(crate) location: Option<ParameterErrorLocation>,
}

/// What a refusal says beyond its status. No status has both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    None,
    /// Dwords 0 and 1 of the completion.
    Result(u64),
    /// Command Specific Information of the error log entry.
    Information(u64),
}

impl Detail {
    /// Dwords 0 and 1 of the completion.
    pub(crate) const fn result(self) -> u64 {
        match self {
            Self::Result(result) => result,
            Self::None | Self::Information(_) => 0,
        }
    }

    /// Command Specific Information.
    pub(crate) const fn information(self) -> u64 {
        match self {
            Self::Information(information) => information,
            Self::None | Self::Result(_) => 0,
        }
    }
}

impl Fault {
    /// The command is wrong as it stands: repeating it is pointless.
    pub(crate) const fn new(status: Status) -> Self {
        Self { status: status.dnr(), detail: Detail::None, location: None }
    }

    /// The same, with the byte of the command that is wrong.
    pub(crate) const fn at(status: Status, byte: u8) -> Self {
        Self { location: Some(ParameterErrorLocation { byte, bit: 0 }), ..Self::new(status) }
    }

    /// The command may succeed later.
    pub(crate) const fn transient(status: Status) -> Self {
        Self { status, detail: Detail::None, location: None }
    }

    /// The same, with dwords 0 and 1 of the completion.
    pub(crate) const fn with_result(self, result: u64) -> Self {
        Self { detail: Detail::Result(result), ..self }
    }

    /// What a link says of a command's data pointer, with the byte of the command that is wrong. Of
    /// a list, which is behind the command in its capsule, that is known only where the list itself
    /// cannot be found.
    pub(crate) fn of_data_pointer(sqe: &Sqe, status: Status) -> Self {
        let is_list = matches!(sqe.data_pointer().decode(), DataLocation::Sgl(Sgl::LastSegment { .. }));
        let byte = if status.is(Status::SGL_OFFSET_INVALID) {
            Some(byte::SGL_ADDRESS)
        } else if status.is(Status::INVALID_SGL_SEGMENT) {
            Some(byte::SGL_LENGTH)
        } else if status.is(Status::SGL_TYPE_INVALID) && !is_list {
            Some(byte::SGL_IDENTIFIER)
        } else {
            None
        };
        let location = byte.map(|byte| ParameterErrorLocation { byte, bit: 0 });
        Self { location, ..Self::transient(status) }
    }

    /// Invalid Field in Command, with the byte of the command that is wrong.
    pub(crate) const fn field(byte: u8) -> Self {
        Self::at(Status::INVALID_FIELD, byte)
    }
}

/// Byte offsets in a submission queue entry, for [`Fault::at`].
pub(crate) mod byte {
    pub(crate) const OPCODE: u8 = 0;
    pub(crate) const FLAGS: u8 = 1;
    pub(crate) const CID: u8 = 2;
    pub(crate) const NSID: u8 = 4;
    pub(crate) const SGL_ADDRESS: u8 = 24;
    pub(crate) const SGL_LENGTH: u8 = 32;
    pub(crate) const SGL_IDENTIFIER: u8 = 39;
    pub(crate) const CDW10: u8 = 40;
    pub(crate) const CDW11: u8 = 44;
    pub(crate) const CDW12: u8 = 48;
    pub(crate) const CDW13: u8 = 52;
    pub(crate) const CDW14: u8 = 56;
}

/// Which descriptors a queue understands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SglRules {
    /// Data bytes that fit into a command capsule.
    pub(crate) capsule_bytes: u32,
    /// Keyed descriptors (RDMA). A list of them comes as a Transport SGL of their length, and data
    /// may be anywhere in the capsule.
    pub(crate) keyed: bool,
    /// What a queue in the host's memory has in place of that.
    pub(crate) memory: Option<MemoryRules>,
}

/// Which data pointers a queue in the host's memory understands. Whether what they lead to has
/// room for the data, the link finds out: lists are in the host's memory, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryRules {
    /// PRP entries only: NVMe over PCIe, Admin commands.
    Prp,
    /// PRP entries and SGLs.
    PrpOrSgl,
}

impl MemoryRules {
    fn check(self, sqe: &Sqe) -> Result<(), Fault> {
        let psdt = sqe.flags & Sqe::PSDT_MASK;
        match self {
            _ if psdt == 0 => Ok(()),
            // The other values are metadata SGLs and reserved.
            Self::PrpOrSgl if psdt == Sqe::PSDT_SGL => Ok(()),
            Self::Prp | Self::PrpOrSgl => Err(Fault::field(byte::FLAGS)),
        }
    }
}

impl SglRules {
    /// The bytes that the command's data pointer announces, checked for the direction in which they
    /// go.
    pub(crate) fn data_bytes(self, sqe: &Sqe, direction: Direction) -> Result<u32, Fault> {
        // Base, Common Command Format, PSDT: message-based transports use SGLs; metadata SGLs are
        // not supported here.
        if sqe.flags & Sqe::PSDT_MASK != Sqe::PSDT_SGL {
            return Err(Fault::field(byte::FLAGS));
        }
        let DataLocation::Sgl(sgl) = sqe.data_pointer().decode() else { return Err(Fault::field(byte::FLAGS)) };
        match sgl {
            Sgl::None => Ok(0),
            Sgl::Transport { length } => Ok(length),
            Sgl::Keyed { length, .. } if self.keyed => Ok(length),
            Sgl::InCapsule { offset, length } if direction == Direction::HostToController => {
                // ICDOFF is 0 and in-capsule data begins there. Over TCP no other offset is of use
                // to a host; over RDMA descriptors may be in front of the data.
                if offset > if self.keyed { self.capsule_bytes.into() } else { 0 } {
                    return Err(Fault::at(Status::SGL_OFFSET_INVALID, byte::SGL_ADDRESS));
                }
                if offset + u64::from(length) > self.capsule_bytes.into() {
                    return Err(Fault::at(Status::SGL_OFFSET_INVALID, byte::SGL_LENGTH));
                }
                Ok(length)
            }
            Sgl::InCapsule { .. } | Sgl::Keyed { .. } | Sgl::LastSegment { .. } | Sgl::Unsupported { .. } => {
                Err(Fault::at(Status::SGL_TYPE_INVALID, byte::SGL_IDENTIFIER))
            }
        }
    }

    /// As [`Self::data_bytes`], and at least `bytes`, which is what the command transfers; the rest
    /// is neither sent nor read.
    ///
    /// Deviation: SGLS announces no data pointers that are longer than the data, but Linux (6.12)
    /// sends 16 bytes with all reservation commands of its ioctls, where some have 8. What the
    /// command's fields say is enough to know what it means.
    pub(crate) fn at_least(self, sqe: &Sqe, direction: Direction, bytes: u64) -> Result<u32, Fault> {
        if let Some(rules) = self.memory {
            return rules.check(sqe).and(length_of(bytes));
        }
        let announced = self.data_bytes(sqe, direction)?;
        match u32::try_from(bytes) {
            Ok(bytes) if announced >= bytes => Ok(bytes),
            _ => Err(Fault::at(Status::DATA_SGL_LENGTH_INVALID, byte::SGL_LENGTH)),
        }
    }

    /// As [`Self::data_bytes`], and it must be exactly `bytes`: for blocks, where another length
    /// means that the host takes them for others than they are (their size, their metadata), and
    /// for Connect.
    pub(crate) fn exactly(self, sqe: &Sqe, direction: Direction, bytes: u64) -> Result<u32, Fault> {
        if let Some(rules) = self.memory {
            return rules.check(sqe).and(length_of(bytes));
        }
        let announced = self.data_bytes(sqe, direction)?;
        if u64::from(announced) == bytes {
            Ok(announced)
        } else {
            Err(Fault::at(Status::DATA_SGL_LENGTH_INVALID, byte::SGL_LENGTH))
        }
    }
}

fn length_of(bytes: u64) -> Result<u32, Fault> {
    u32::try_from(bytes).map_err(|_| Fault::at(Status::DATA_SGL_LENGTH_INVALID, byte::CDW10))
}

#[cfg(test)]
mod tests {
    use ebof_nvme::sgl::SglDescriptor;

    use super::*;

    #[test]
    fn data_are_at_one_descriptor_that_the_transport_has() {
        let rules = SglRules { capsule_bytes: 4096, keyed: false, memory: None };
        let bytes = |rules: SglRules, flags, sgl| {
            let sqe = Sqe { flags, dptr: SglDescriptor::encode(sgl), ..Sqe::new(1) };
            rules.data_bytes(&sqe, Direction::HostToController).map_err(|fault| fault.status)
        };
        let transport = Sgl::Transport { length: 8192 };
        assert_eq!(bytes(rules, Sqe::PSDT_SGL, transport).unwrap(), 8192);
        // PRPs, SGLs for metadata, and the reserved value.
        for flags in [0x00, 0x80, 0xc0] {
            assert_eq!(bytes(rules, flags, transport).unwrap_err(), Status::INVALID_FIELD.dnr(), "{flags:02x}h");
        }
        let keyed = Sgl::Keyed { address: 0x1000, length: 512, key: 7, invalidate: false };
        assert_eq!(bytes(rules, Sqe::PSDT_SGL, keyed).unwrap_err(), Status::SGL_TYPE_INVALID.dnr());
        assert_eq!(bytes(SglRules { keyed: true, ..rules }, Sqe::PSDT_SGL, keyed).unwrap(), 512);
    }

    #[test]
    fn data_in_the_capsule_have_an_offset_over_rdma_only() {
        let bytes = |keyed, offset, length| {
            let dptr = SglDescriptor::encode(Sgl::InCapsule { offset, length });
            let sqe = Sqe { dptr, ..Sqe::new(1) };
            let rules = SglRules { capsule_bytes: 4096, keyed, memory: None };
            rules.data_bytes(&sqe, Direction::HostToController).map_err(|fault| fault.status)
        };
        let invalid = Err(Status::SGL_OFFSET_INVALID.dnr());
        assert_eq!(
            [bytes(false, 0, 4096), bytes(true, 0, 4096), bytes(true, 64, 4032)],
            [Ok(4096), Ok(4096), Ok(4032)]
        );
        assert_eq!(bytes(false, 64, 512), invalid);
        for (offset, length) in [(64, 4033), (4097, 0), (u64::MAX, 1), (0, 4097)] {
            assert_eq!(bytes(true, offset, length), invalid, "{offset} {length}");
        }
    }
}
