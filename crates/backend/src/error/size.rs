//! Sizes of drives: whole numbers of blocks.

/// The size of a new drive for which `asked_bytes` were asked: rounded up to 4096, because `10G` is
/// not a multiple of it. A size that cannot be rounded up stays as it is, and is refused later.
pub(crate) fn round_up(asked_bytes: u64) -> u64 {
    asked_bytes.checked_next_multiple_of(4096).unwrap_or(asked_bytes)
}

/// Whether a drive has the size that was asked for, up to the next whole blocks: whoever makes a
/// file by hand chooses its own.
pub(crate) fn is_size(actual_bytes: u64, asked_bytes: u64) -> bool {
    (asked_bytes..=round_up(asked_bytes)).contains(&actual_bytes)
}
