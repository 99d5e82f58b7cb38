//! The host's memory, as this crate sees it: addresses of the host, and copies.

use thiserror::Error;

/// The host's memory could not be accessed: the address is not mapped, mapped without a file, or
/// mapped for the other direction only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the host's memory at {address:#x} is not mapped for this")]
pub struct Fault {
    /// Where the access began.
    pub address: u64,
}

/// Memory of a host, which changes it whenever it wants to. Addresses are those that the host uses
/// (IOVA); a range that wraps around is a fault.
pub trait Memory {
    /// Copies bytes out. What the host writes meanwhile is in the copy, or not.
    ///
    /// # Errors
    /// A part of the range cannot be read; `into` is then undefined.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault>;

    /// Copies bytes in.
    ///
    /// # Errors
    /// A part of the range cannot be written; the rest may have been.
    fn write(&self, address: u64, from: &[u8]) -> Result<(), Fault>;

    /// Loads a little-endian number, atomically: what the host wrote before it stored this number
    /// is visible afterwards. `address` is a multiple of 4.
    ///
    /// # Errors
    /// It cannot be read, or is not a multiple of 4.
    fn load(&self, address: u64) -> Result<u32, Fault>;

    /// Stores a little-endian number, atomically: what was written before is visible to a host that
    /// sees this number, and what is loaded afterwards is loaded after the host can see it (a full
    /// barrier, which event indexes need). `address` is a multiple of 4.
    ///
    /// # Errors
    /// It cannot be written, or is not a multiple of 4.
    fn store(&self, address: u64, value: u32) -> Result<(), Fault>;

    /// Writes a completion queue entry, its last 4 bytes (with the phase tag) after all others and
    /// after what was written before. `address` is a multiple of 16.
    ///
    /// # Errors
    /// It cannot be written, or is not a multiple of 16.
    fn write_completion(&self, address: u64, entry: &[u8; 16]) -> Result<(), Fault>;
}

impl<M: Memory + ?Sized> Memory for &M {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        (**self).read(address, into)
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Fault> {
        (**self).write(address, from)
    }

    fn load(&self, address: u64) -> Result<u32, Fault> {
        (**self).load(address)
    }

    fn store(&self, address: u64, value: u32) -> Result<(), Fault> {
        (**self).store(address, value)
    }

    fn write_completion(&self, address: u64, entry: &[u8; 16]) -> Result<(), Fault> {
        (**self).write_completion(address, entry)
    }
}
