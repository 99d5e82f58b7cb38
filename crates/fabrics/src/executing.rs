//! The ticket of a command under way: who has it owes the command's completion.

use ebof_nvme::{Cid, Nsid, Sqe};

/// A command under way. Whoever holds it owes the queue exactly one `Queue::complete`,
/// `Queue::complete_with`, `Queue::fail` or `Queue::abandon`; it can be neither copied nor made up.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a command that is not completed hangs the host"]
pub struct Executing {
    cid: Cid,
    opcode: u8,
    fctype: u8,
    nsid: Nsid,
    length: u32,
    reply_bytes: u32,
    /// Dwords 10 to 15.
    dwords: [u32; 6],
}

impl Executing {
    /// The ticket of `sqe`, which moves `length` bytes of data. For the queue that has taken the
    /// command, and nobody else.
    #[inline]
    pub(crate) fn new(sqe: &Sqe, length: u32) -> Self {
        Self {
            cid: sqe.cid(),
            opcode: sqe.opcode,
            fctype: sqe.fctype().unwrap_or(0),
            nsid: sqe.nsid(),
            length,
            reply_bytes: 0,
            dwords: [&sqe.cdw10, &sqe.cdw11, &sqe.cdw12, &sqe.cdw13, &sqe.cdw14, &sqe.cdw15].map(|dword| dword.get()),
        }
    }

    /// The same command, now that more is known of it.
    #[inline]
    pub(crate) fn with_length(self, length: u32) -> Self {
        Self { length, ..self }
    }

    /// The same command, with a reply of so many bytes.
    pub(crate) fn with_reply(self, reply_bytes: u32) -> Self {
        Self { reply_bytes, ..self }
    }

    /// The command without identifier and data pointer.
    pub(crate) fn sqe(&self) -> Sqe {
        let dwords = (10..).zip(self.dwords);
        dwords.fold(Sqe::new(self.opcode).with_nsid(self.nsid), |sqe, (at, dword)| sqe.with_cdw(at, dword))
    }

    pub(crate) fn cdw10(&self) -> u32 {
        self.dwords[0]
    }

    pub(crate) fn cdw11(&self) -> u32 {
        self.dwords[1]
    }

    /// FCTYPE of a Fabrics command, else 0.
    pub(crate) fn fctype(&self) -> u8 {
        self.fctype
    }

    /// Bytes of the reply that carries this ticket, else 0.
    pub(crate) fn reply_bytes(&self) -> u32 {
        self.reply_bytes
    }

    /// The command identifier.
    #[must_use]
    pub fn cid(&self) -> Cid {
        self.cid
    }

    /// The opcode.
    #[must_use]
    pub fn opcode(&self) -> u8 {
        self.opcode
    }

    /// The namespace that the command names.
    #[must_use]
    pub fn nsid(&self) -> Nsid {
        self.nsid
    }

    /// Data bytes to or from the host, as the command's data pointer says; for I/O commands that
    /// name blocks, the bytes of those without metadata.
    #[must_use]
    pub fn length(&self) -> u32 {
        self.length
    }

    /// The first block that the command names; of commands that name none, whatever stands there.
    #[must_use]
    #[inline]
    pub fn starting_lba(&self) -> u64 {
        u64::from(self.dwords[0]) | u64::from(self.dwords[1]) << 32
    }
}
