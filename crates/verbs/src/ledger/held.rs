//! Names of memory: of a buffer that a queue pair holds, and of the peer.

/// A buffer that a queue pair holds for RDMA READs and WRITEs. Valid until it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldMemory {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Memory of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Its address in the peer's process.
    pub address: u64,
    /// The key that the peer has given for it.
    pub key: u32,
}
