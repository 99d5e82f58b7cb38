//! Security Send and Security Receive, and Authentication Send and Authentication Receive, which
//! have the same dwords. The protocols inside are others'.
//!
//! NVMe Base 2.1, "Security Receive command", "Security Send command"; NVMe over Fabrics,
//! "Authentication Receive", "Authentication Send".

use crate::command::Sqe;
use crate::connect;
use crate::name::id::Nsid;

/// Dwords 10 and 11 of Security Send and Security Receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// Security Protocol (SECP).
    pub protocol: u8,
    /// SP Specific (SPSP1 and SPSP0).
    pub specific: u16,
    /// NVMe Security Specific Field (NSSF).
    pub nvme_specific: u8,
    /// Transfer Length (TL) or Allocation Length (AL), bytes.
    pub bytes: u32,
}

impl Security {
    /// The protocol of in-band authentication.
    pub const AUTHENTICATION: u8 = 0xe9;
    /// What is specific in it: messages of NVMe.
    pub const AUTHENTICATION_SPECIFIC: u16 = 0x0101;

    /// Of in-band authentication, with `bytes` of a message or for one.
    #[must_use]
    pub const fn authentication(bytes: u32) -> Self {
        Self { protocol: Self::AUTHENTICATION, specific: Self::AUTHENTICATION_SPECIFIC, nvme_specific: 0, bytes }
    }

    /// Authentication Send or Authentication Receive, of which `opcode::fabrics` has the types; the
    /// data pointer is left to the transport.
    #[must_use]
    pub fn encode_authentication(self, fctype: u8) -> Sqe {
        let [low, high] = self.specific.to_le_bytes();
        connect::command(fctype)
            .with_cdw(10, u32::from_le_bytes([self.nvme_specific, low, high, self.protocol]))
            .with_cdw(11, self.bytes)
    }

    /// From dwords 10 and 11.
    #[must_use]
    pub fn decode(sqe: &Sqe) -> Self {
        let [nvme_specific, low, high, protocol] = sqe.cdw10.to_bytes();
        Self { protocol, specific: u16::from_le_bytes([low, high]), nvme_specific, bytes: sqe.cdw11.get() }
    }

    /// The command `opcode`, of which `opcode::admin` has two, for `nsid`.
    #[must_use]
    pub fn encode(self, opcode: u8, nsid: Nsid) -> Sqe {
        let [low, high] = self.specific.to_le_bytes();
        Sqe::new(opcode)
            .with_nsid(nsid)
            .with_cdw(10, u32::from_le_bytes([self.nvme_specific, low, high, self.protocol]))
            .with_cdw(11, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;
    use crate::command::opcode::{admin, fabrics};

    #[test]
    fn the_commands_have_the_layout_of_the_specification() {
        let security = Security { protocol: 0xe9, specific: 0x0102, nvme_specific: 3, bytes: 512 };
        let sqe = security.encode(admin::SECURITY_SEND, Nsid(0));
        assert_eq!((sqe.opcode, sqe.cdw10.get(), sqe.cdw11.get()), (0x81, 0xe901_0203, 512));
        assert_eq!(Security::decode(&sqe), security);
    }

    #[test]
    fn authentication_has_the_layout_of_the_specification() {
        let sqe = Security::authentication(4096).encode_authentication(fabrics::AUTHENTICATION_RECEIVE);
        let bytes = sqe.as_bytes();
        assert_eq!((bytes[0], bytes[4]), (0x7f, 0x06));
        assert_eq!(bytes[40..48], [0, 1, 1, 0xe9, 0, 0x10, 0, 0]);
        assert_eq!(Security::decode(&sqe), Security::authentication(4096));
    }
}
