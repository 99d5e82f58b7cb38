//! What client and server tell each other in the private data of the connection manager: which
//! measurement it is, and where the server's memory is.

use super::{BYTES_MAX, DEPTH_MAX, MEMORY_MAX, Operation, Refusal, WINDOW};

/// With a version: what follows has this layout.
const MAGIC: [u8; 8] = *b"ebofrdc1";

/// What is measured over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) operation: Operation,
    /// One at a time, and messages are answered.
    pub(super) is_latency: bool,
    pub(super) bytes: u32,
    pub(super) depth: u32,
}

impl Hello {
    pub(super) const BYTES: usize = 20;

    pub(super) fn encode(&self) -> [u8; Self::BYTES] {
        let operation = match self.operation {
            Operation::Send => 0,
            Operation::Read => 1,
            Operation::Write => 2,
        };
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8] = operation;
        bytes[9] = self.is_latency.into();
        bytes[12..16].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[16..].copy_from_slice(&self.depth.to_le_bytes());
        bytes
    }

    /// What a client asks for. Zeros may follow.
    pub(super) fn decode(private_data: &[u8]) -> Result<Self, Refusal> {
        let bytes: &[u8; Self::BYTES] = private_data.first_chunk().ok_or(Refusal::Unknown)?;
        let operation = match bytes[8] {
            0 => Operation::Send,
            1 => Operation::Read,
            2 => Operation::Write,
            _ => return Err(Refusal::Unknown),
        };
        if bytes[..8] != MAGIC || bytes[9] > 1 {
            return Err(Refusal::Unknown);
        }
        let hello = Self { operation, is_latency: bytes[9] == 1, bytes: number(bytes, 12), depth: number(bytes, 16) };
        let in_limits = (1..=BYTES_MAX).contains(&hello.bytes) && (1..=DEPTH_MAX).contains(&hello.depth);
        let in_memory = hello.operation != Operation::Send
            || hello.depth == 1
            || hello.bytes.saturating_mul(hello.depth).saturating_mul(WINDOW) <= MEMORY_MAX;
        if in_limits && in_memory { Ok(hello) } else { Err(Refusal::Limits) }
    }
}

/// Where RDMA READs and WRITEs go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CheckAnswer {
    pub(super) address: u64,
    pub(super) key: u32,
}

impl CheckAnswer {
    pub(super) const BYTES: usize = 20;

    pub(super) fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.address.to_le_bytes());
        bytes[16..].copy_from_slice(&self.key.to_le_bytes());
        bytes
    }

    /// What a server answers; `None` if it is none. Zeros may follow.
    pub(super) fn decode(private_data: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = private_data.first_chunk()?;
        let address = u64::from(number(bytes, 8)) | u64::from(number(bytes, 12)) << 32;
        (bytes[..8] == MAGIC).then(|| Self { address, key: number(bytes, 16) })
    }
}

impl Refusal {
    pub(super) const BYTES: usize = 9;

    /// As a server's private data.
    pub(super) fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8] = match self {
            Self::Limits => 1,
            Self::Resources => 2,
            Self::NobodyListens | Self::Unknown | Self::Other(_) => 0,
        };
        bytes
    }

    /// Of a reject by the program at the other end.
    pub(super) fn decode(private_data: &[u8]) -> Self {
        match private_data.first_chunk::<{ Self::BYTES }>() {
            Some([magic @ .., 1]) if *magic == MAGIC => Self::Limits,
            Some([magic @ .., 2]) if *magic == MAGIC => Self::Resources,
            _ => Self::Unknown,
        }
    }
}

fn number(bytes: &[u8; 20], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
