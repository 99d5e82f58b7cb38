//! Security Send and Security Receive: their dwords. The protocols inside are others'.
//!
//! NVMe Base 2.1, "Security Receive command", "Security Send command".

use crate::command::Sqe;
use crate::id::Nsid;

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
    use super::*;
    use crate::opcode::admin;

    #[test]
    fn the_commands_have_the_layout_of_the_specification() {
        let security = Security { protocol: 0xe9, specific: 0x0102, nvme_specific: 3, bytes: 512 };
        let sqe = security.encode(admin::SECURITY_SEND, Nsid(0));
        assert_eq!((sqe.opcode, sqe.cdw10.get(), sqe.cdw11.get()), (0x81, 0xe901_0203, 512));
        assert_eq!(Security::decode(&sqe), security);
    }
}
