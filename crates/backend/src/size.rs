//! Sizes of drives that are made or opened: whole numbers of blocks.

use crate::OpenError;
use crate::name::Name;

/// The size of a drive that is made with a size of `asked_bytes`: whole blocks of either size, for
/// `10G` are not. What is too large for that stays as it is, and is refused.
pub(crate) fn made_bytes(asked_bytes: u64) -> u64 {
    asked_bytes.checked_next_multiple_of(4096).unwrap_or(asked_bytes)
}

/// Refuses a size that is no whole number of blocks.
pub(crate) fn check_blocks(what: Name, size_bytes: u64, block_bytes: u32) -> Result<(), OpenError> {
    if size_bytes != 0 && size_bytes.is_multiple_of(u64::from(block_bytes)) {
        return Ok(());
    }
    Err(OpenError::NotWholeBlocks { what, size_bytes, block_bytes })
}
