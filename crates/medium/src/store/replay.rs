//! Journal replay: applies the records of a checkpoint and its journal when a drive is opened.

use std::ops::Range;
use std::sync::Arc;

use ebof_drive::frame::{PAGE_MASK_WORDS, Record};

use crate::extents::Extents;
use crate::journal::Journal;
use crate::keys::Keys;
use crate::pages::Mask;
use crate::tags::Tags;
use crate::thin::bad_blocks::BadBlocks;
use crate::thin::shared::Shared;
use crate::{Thin, VolumeId};

/// Applies records one after the other, beginning with an empty medium.
pub(crate) struct Replay<'a> {
    shared: &'a Arc<Shared>,
    keys: &'a Keys,
    journal: &'a mut Journal,
    tags: &'a mut Tags,
    /// The high-water mark so far.
    high_water: u32,
}

impl<'a> Replay<'a> {
    pub(crate) fn new(shared: &'a Arc<Shared>, keys: &'a Keys, journal: &'a mut Journal, tags: &'a mut Tags) -> Self {
        Self { shared, keys, journal, tags, high_water: 0 }
    }

    /// Applies a record behind a lost part of the journal. Such records only invalidate: what they
    /// unmap, or map elsewhere, is unmapped; nothing is mapped.
    pub(crate) fn apply_behind_damage(&mut self, record: &Record) {
        let forget = |thin: &Thin, indices: Range<u32>| {
            let indices = indices.start..indices.end.min(thin.map.len());
            indices.filter(|&index| thin.map.lookup(index).is_some()).for_each(|index| {
                thin.map.set(index, None);
            });
        };
        let thin = |volume: &VolumeId| self.shared.thin(*volume);
        match record {
            Record::Remove(volume) | Record::Clear(volume) => {
                if let Some(thin) = thin(volume) {
                    forget(&thin, 0..u32::MAX);
                }
            }
            Record::Unmap { volume, first, count } => {
                if let Some(thin) = thin(volume) {
                    forget(&thin, *first..first.saturating_add(*count));
                }
            }
            // These extents were free then: they belong to no namespace that has them here.
            Record::Map { extents, .. } => {
                for thin in self.shared.thins() {
                    let runs = thin.map.runs().flat_map(|(first, extents)| (first..).zip(extents));
                    let stale: Vec<u32> =
                        runs.filter(|(_, extent)| extents.contains(extent)).map(|(index, _)| index).collect();
                    stale.into_iter().for_each(|index| forget(&thin, index..index + 1));
                }
            }
            Record::Bad { volume, start, blocks, bad: true } => {
                if let Some(thin) = thin(volume) {
                    thin.change_bad_blocks(|bad_blocks| bad_blocks.add(*start..start.saturating_add(*blocks)));
                }
            }
            Record::Flux { volume, first, blocks } => {
                if let Some(mask) = thin(volume).and_then(|thin| flux_mask(&thin, *first, *blocks)) {
                    self.tags.add_ambiguous(*volume, *first, mask);
                }
            }
            Record::Tags { volume, first, tags } | Record::OnlyTags { volume, first, tags }
                if thin(volume).is_some_and(|thin| have_tags(&thin, *first, tags.len())) =>
            {
                let tags = (*first..).zip(tags);
                tags.for_each(|(block, &tag)| self.tags.add_candidate(*volume, block, tag, false));
            }
            _ => {}
        }
    }

    /// Applies a record of a frame of the journal, or of the checkpoint (`None`).
    pub(crate) fn apply(&mut self, frame: Option<u64>, record: &Record) -> Result<(), String> {
        let thin =
            |volume: &VolumeId| self.shared.thin(*volume).ok_or(format!("namespace {} was never made", volume.0));
        match record {
            Record::Create { volume, blocks, quota, block_format } => {
                // There is no key if the namespace is removed further on.
                let thin = Thin::new(self.shared, *volume, *blocks, *quota, *block_format, self.keys.cipher(*volume));
                let thin = thin.ok_or(format!("namespace {} cannot be", volume.0))?;
                self.shared.insert(Arc::new(thin));
            }
            Record::Remove(volume) => {
                self.shared.remove(*volume);
                self.tags.forget_namespace(*volume);
            }
            Record::Clear(volume) => {
                let thin = thin(volume)?;
                self.tags.forget_namespace(*volume);
                let _unmapped = thin.unmap(0..thin.map.len());
                thin.change_bad_blocks(BadBlocks::clear);
            }
            Record::Map { volume, first, extents } => {
                let thin = thin(volume)?;
                let end = u32::try_from(extents.len()).ok().and_then(|count| first.checked_add(count));
                let end = end.filter(|&end| end <= thin.map.len());
                let out_of_range = |index: u32| format!("extent {index} of namespace {} is out of range", volume.0);
                for (index, extent) in (*first..end.ok_or_else(|| out_of_range(*first))?).zip(extents) {
                    if *extent >= self.shared.layout.extents() {
                        return Err(out_of_range(index));
                    }
                    thin.map.set(index, Some(*extent));
                    self.tags.resolve(*volume, thin.block_layout.blocks_of(index..index + 1));
                }
            }
            Record::Unmap { volume, first, count } => {
                let thin = thin(volume)?;
                let range = *first..first.saturating_add(*count).min(thin.map.len());
                self.tags.resolve(*volume, thin.block_layout.blocks_of(range.clone()));
                let _unmapped = thin.unmap(range);
            }
            Record::Bad { volume, start, blocks, bad } => {
                let range = *start..start.saturating_add(*blocks);
                thin(volume)?.change_bad_blocks(|blocks| if *bad { blocks.add(range) } else { blocks.remove(&range) });
            }
            Record::Tags { volume, first, tags } | Record::OnlyTags { volume, first, tags } => {
                let thin = thin(volume)?;
                if !have_tags(&thin, *first, tags.len()) {
                    return Err(format!("block {first} of namespace {} has no tag", volume.0));
                }
                self.tags.add_journaled(tags.len());
                // If the data were flushed after these tags, no older tag can be right.
                let is_flushed = frame.is_some_and(|frame| self.journal.is_data_durable(frame));
                let only = is_flushed || matches!(record, Record::OnlyTags { .. });
                (*first..).zip(tags).for_each(|(block, &tag)| self.tags.add_candidate(*volume, block, tag, only));
                if let Some(frame) = frame.filter(|_| !is_flushed) {
                    self.journal.add_unresolved(frame);
                }
            }
            Record::Flux { volume, first, blocks } => {
                let mask = flux_mask(&*thin(volume)?, *first, *blocks);
                let mask =
                    mask.ok_or_else(|| format!("blocks from {first} on of namespace {} cannot be in flux", volume.0))?;
                self.tags.add_ambiguous(*volume, *first, mask);
            }
            Record::Settled(volume) => {
                thin(volume)?;
                self.tags.end_flux(*volume);
            }
            Record::HighWater(extent) => self.high_water = self.high_water.max(*extent),
            Record::Change(_) => {}
        }
        Ok(())
    }

    /// Ends the replay: finds out which extents are in use.
    ///
    /// # Errors
    /// What contradicts itself.
    pub(crate) fn finish(self) -> Result<Extents, String> {
        let extents = Extents::new(self.shared, self.high_water)?;
        let keyless = |thin: &Arc<Thin>| thin.block_format.encrypted && thin.cipher.is_none();
        let keyless = self.shared.thins().into_iter().filter(keyless);
        for thin in keyless {
            if !self.shared.read_only {
                return Err(format!("the key of namespace {} is not there", thin.volume.0));
            }
            // Its key was destroyed, and the record of its removal is lost.
            self.shared.remove(thin.volume);
        }
        extents.publish_used();
        Ok(extents)
    }
}

/// Whether these blocks of a namespace are there, and have tags.
fn have_tags(thin: &Thin, first: u64, count: usize) -> bool {
    thin.is_tagged && first.checked_add(count as u64).is_some_and(|end| end <= thin.block_count())
}

/// The blocks that a record brings into flux, the first of which is `first`; `None` if they are not
/// those of one page of tags, from its beginning on.
fn flux_mask(thin: &Thin, first: u64, blocks: [u64; PAGE_MASK_WORDS]) -> Option<Mask> {
    let layout = &thin.block_layout;
    if !thin.may_be_in_flux || first >= thin.block_count() || layout.place(first) != 0 {
        return None;
    }
    let tagged = layout.tagged(layout.index(first), layout.page(first));
    let count = usize::try_from(tagged.end.min(thin.block_count()) - first).ok()?;
    Some(Mask(blocks)).filter(|&mask| Mask::from_places(0..count).has_all(mask))
}

#[cfg(test)]
mod tests;
