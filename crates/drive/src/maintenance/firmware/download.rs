//! The download of an image in pieces. They are kept in memory only: a reset of the controller that
//! received them discards them, and so does a restart.
//!
//! NVMe Base 2.1, "Firmware Image Download command".

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use ebof_nvme::{ControllerId, Status};

use super::{GRANULARITY_BYTES, IMAGE_BYTES_MAX};
use crate::request::Refusal;

/// A download, complete or not. Takes as much memory as the image up to the end of the last piece.
#[derive(Clone, Debug, Default)]
pub struct Download {
    bytes: Vec<u8>,
    /// The ranges that were downloaded: end by beginning. Adjacent ranges are merged.
    ranges: BTreeMap<usize, usize>,
    /// The controller that received the first piece.
    controller: Option<ControllerId>,
    /// Another controller received pieces, too.
    overlap: bool,
}

impl Download {
    /// Adds a piece at `offset_bytes` (OFST in bytes). Returns dword 0 of the completion.
    ///
    /// # Errors
    /// Overlapping Range if any byte of it was downloaded already; Invalid Field in Command if it
    /// is not of the announced granularity, or ends beyond [`IMAGE_BYTES_MAX`]. The pieces so far
    /// stay.
    pub fn take(&mut self, over: ControllerId, offset_bytes: u64, data: &[u8]) -> Result<u32, Refusal> {
        let begin = usize::try_from(offset_bytes)
            .ok()
            .filter(|begin| begin.is_multiple_of(GRANULARITY_BYTES) && *begin < IMAGE_BYTES_MAX);
        let begin = begin.ok_or(Refusal::at(Status::INVALID_FIELD, OFST_BYTE))?;
        let end = begin.saturating_add(data.len());
        if data.is_empty() || !data.len().is_multiple_of(GRANULARITY_BYTES) || end > IMAGE_BYTES_MAX {
            return Err(Refusal::at(Status::INVALID_FIELD, NUMD_BYTE));
        }
        let first = *self.controller.get_or_insert(over);
        self.overlap |= first != over;
        // Ranges do not overlap, so the one that begins last before the end reaches furthest.
        let before = self.ranges.range(..end).next_back().map(|(&begin, &end)| (begin, end));
        if before.is_some_and(|(_, covered)| covered > begin) {
            return Err(Refusal::new(Status::OVERLAPPING_RANGE));
        }
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[begin..end].copy_from_slice(data);
        let begin = before.filter(|&(_, covered)| covered == begin).map_or(begin, |(begin, _)| begin);
        let end = self.ranges.remove(&end).unwrap_or(end);
        self.ranges.insert(begin, end);
        Ok(self.overlap())
    }

    /// Ends the download: after a commit, also a refused one, the next piece belongs to another
    /// image.
    pub fn finish(&mut self) {
        *self = Self::default();
    }

    /// Discards the download if its controller was reset or is gone.
    pub fn reset(&mut self, controller: ControllerId) {
        if self.controller == Some(controller) {
            self.finish();
        }
    }

    /// Whether nothing was downloaded since the last commit or reset.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The image, if it begins at 0 and has no gaps.
    pub(super) fn image(&self) -> Option<&[u8]> {
        let (&begin, &end) = self.ranges.first_key_value()?;
        (begin == 0 && self.ranges.len() == 1).then(|| &self.bytes[..end])
    }

    /// Multiple Update Detected.
    pub(super) fn overlap(&self) -> u32 {
        self.overlap.into()
    }
}

/// Offsets of dwords 10 and 11.
const NUMD_BYTE: u8 = 40;
const OFST_BYTE: u8 = 44;
