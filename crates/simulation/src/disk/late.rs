//! What of a write to the simulated disk is of blocks, as hosts in stories write them.

use ebof_backend::Operation;

use super::Profile;
use crate::model::SECTOR_BYTES;

/// The words of the sectors of blocks that a write brings. Such a sector is where namespaces are,
/// and has one word again and again: journals, checkpoints and tags may begin with any.
pub(super) fn words_of_blocks(operation: &Operation, profile: &Profile) -> Vec<u64> {
    let Operation::Write { offset, data, len, .. } = operation else { return Vec::new() };
    if *offset < profile.data {
        return Vec::new();
    }
    let bytes = data.gather(*len);
    let word = |sector: &[u8]| {
        let words = sector.as_chunks::<8>().0;
        words.iter().all(|word| *word == words[0]).then(|| u64::from_le_bytes(words[0]))
    };
    bytes.as_slice()[..*len].chunks_exact(SECTOR_BYTES).filter_map(word).collect()
}
