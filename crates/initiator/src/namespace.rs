//! A namespace for those who just want to read and write: blocking, splitting, retrying.

use ebof_nvme::Nsid;
use ebof_nvme::identify::IdentifyNamespace;

use crate::controller::Controller;
use crate::error::Error;

/// A namespace of a connected controller. Shared by any number of threads; each call takes a free queue pair of the controller.
///
/// Calls split transfers at the controller's limits, and go on after a loss of the connection (reads and writes are idempotent) until the
/// controller is given up.
#[derive(Clone)]
pub struct Namespace {}

impl Namespace {
    /// Its identifier.
    #[must_use]
    pub fn nsid(&self) -> Nsid {
        todo!()
    }

    /// The controller.
    #[must_use]
    pub fn controller(&self) -> &Controller {
        todo!()
    }

    /// Its Identify data, as of [`Controller::namespace`] or the last `refresh`.
    #[must_use]
    pub fn identify(&self) -> std::sync::Arc<IdentifyNamespace> {
        todo!()
    }

    /// Bytes of a logical block.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        todo!()
    }

    /// Size in logical blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        todo!()
    }

    /// Size in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u128 {
        u128::from(self.blocks()) * u128::from(self.block_bytes())
    }

    /// Blocks that one command may transfer.
    #[must_use]
    pub fn max_transfer_blocks(&self) -> u32 {
        todo!()
    }

    /// Reads the Identify data again.
    ///
    /// # Errors
    /// As [`Controller::identify_namespace`]; the block size must not have changed.
    pub fn refresh(&self) -> Result<(), Error> {
        todo!()
    }

    /// Reads whole blocks from `lba` on; `data` is a multiple of the block size.
    ///
    /// # Errors
    /// [`Error::Unaligned`], [`Error::OutOfRange`], [`Error::Status`], and what ends a connection for good.
    pub fn read(&self, lba: u64, data: &mut [u8]) -> Result<(), Error> {
        let _ = (lba, data);
        todo!()
    }

    /// Writes whole blocks from `lba` on; with `fua` they are on the medium when the call returns.
    ///
    /// # Errors
    /// As [`Namespace::read`].
    pub fn write(&self, lba: u64, data: &[u8], fua: bool) -> Result<(), Error> {
        let _ = (lba, data, fua);
        todo!()
    }

    /// Brings everything written before to the medium.
    ///
    /// # Errors
    /// As [`Namespace::read`].
    pub fn flush(&self) -> Result<(), Error> {
        todo!()
    }

    /// Writes zeros without sending them; with `deallocate` the blocks may be unmapped.
    ///
    /// # Errors
    /// As [`Namespace::read`].
    pub fn write_zeroes(&self, lba: u64, blocks: u64, deallocate: bool) -> Result<(), Error> {
        let _ = (lba, blocks, deallocate);
        todo!()
    }

    /// Deallocates (trims) ranges of (lba, blocks).
    ///
    /// # Errors
    /// As [`Namespace::read`].
    pub fn deallocate(&self, ranges: &[(u64, u64)]) -> Result<(), Error> {
        let _ = ranges;
        todo!()
    }

    /// Compares whole blocks with `data`; `false` where they differ.
    ///
    /// # Errors
    /// As [`Namespace::read`].
    pub fn compare(&self, lba: u64, data: &[u8]) -> Result<bool, Error> {
        let _ = (lba, data);
        todo!()
    }

    /// Has the controller read blocks without sending them.
    ///
    /// # Errors
    /// As [`Namespace::read`].
    pub fn verify(&self, lba: u64, blocks: u64) -> Result<(), Error> {
        let _ = (lba, blocks);
        todo!()
    }
}
