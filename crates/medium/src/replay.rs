//! What records mean when a drive is opened: they lead from nothing to what was there.

use std::ops::Range;
use std::sync::Arc;

use ebof_drive::frame::Record;

use crate::bad_blocks::BadBlocks;
use crate::extents::Extents;
use crate::journal::Journal;
use crate::keys::Keys;
use crate::shared::Shared;
use crate::tags::Tags;
use crate::{Thin, VolumeId};

/// A drive as records make it, one after the other.
pub(crate) struct Replay<'a> {
    shared: &'a Arc<Shared>,
    keys: &'a Keys,
    journal: &'a mut Journal,
    tags: &'a mut Tags,
    /// From this extent on none was ever used.
    high_water: u32,
}

impl<'a> Replay<'a> {
    /// Begins with an empty medium.
    pub(crate) fn new(shared: &'a Arc<Shared>, keys: &'a Keys, journal: &'a mut Journal, tags: &'a mut Tags) -> Self {
        Self { shared, keys, journal, tags, high_water: 0 }
    }

    /// What a record behind a part of the journal that is lost says: what it is about is not as it
    /// was before. It takes away, and gives nothing.
    pub(crate) fn record_behind(&mut self, record: &Record) {
        let forget = |thin: &Thin, indices: Range<u32>| {
            let indices = indices.start..indices.end.min(thin.map.len());
            indices.filter(|&index| thin.map.place(index).is_some()).for_each(|index| {
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
            // Whoever had it before has it no more.
            Record::Map { extents, .. } => {
                for thin in self.shared.thins() {
                    let runs = thin.map.runs().flat_map(|(first, places)| (first..).zip(places));
                    let taken: Vec<u32> =
                        runs.filter(|(_, place)| extents.contains(place)).map(|(index, _)| index).collect();
                    taken.into_iter().for_each(|index| forget(&thin, index..index + 1));
                }
            }
            Record::Bad { volume, start, blocks, bad: true } => {
                if let Some(thin) = thin(volume) {
                    thin.change_bad_blocks(|kept| kept.add(*start..start.saturating_add(*blocks)));
                }
            }
            Record::Tags { volume, first, tags } if thin(volume).is_some_and(|thin| thin.is_tagged) => {
                let tags = (*first..).zip(tags);
                tags.for_each(|(block, &tag)| self.tags.add_candidate(*volume, block, tag, false));
            }
            _ => {}
        }
    }

    /// Does what a record of a frame, or of the checkpoint, says.
    pub(crate) fn record(&mut self, frame: Option<u64>, record: &Record) -> Result<(), String> {
        let thin =
            |volume: &VolumeId| self.shared.thin(*volume).ok_or(format!("namespace {} was never made", volume.0));
        match record {
            Record::Create { volume, blocks, quota, block_format } => {
                // Of a namespace that is removed further on the key is gone already.
                let thin = Thin::new(self.shared, *volume, *blocks, *quota, *block_format, self.keys.cipher(*volume));
                let thin = thin.ok_or(format!("namespace {} cannot be", volume.0))?;
                self.shared.insert(Arc::new(thin));
            }
            Record::Remove(volume) => {
                self.shared.remove(*volume);
                self.tags.forget_all(*volume);
            }
            Record::Clear(volume) => {
                let thin = thin(volume)?;
                self.tags.forget_all(*volume);
                let _taken = thin.unmap(0..thin.map.len());
                thin.change_bad_blocks(BadBlocks::clear);
            }
            Record::Map { volume, first, extents } => {
                let thin = thin(volume)?;
                for (index, place) in (*first..).zip(extents) {
                    if index >= thin.map.len() || *place >= self.shared.layout.extents() {
                        return Err(format!("extent {index} of namespace {} is out of range", volume.0));
                    }
                    thin.map.set(index, Some(*place));
                    self.tags.resolve(*volume, thin.block_layout.blocks_of(index..index + 1));
                }
            }
            Record::Unmap { volume, first, count } => {
                let thin = thin(volume)?;
                let range = *first..first.saturating_add(*count).min(thin.map.len());
                self.tags.resolve(*volume, thin.block_layout.blocks_of(range.clone()));
                let _taken = thin.unmap(range);
            }
            Record::Bad { volume, start, blocks, bad } => {
                let range = *start..start.saturating_add(*blocks);
                thin(volume)?.change_bad_blocks(|kept| if *bad { kept.add(range) } else { kept.remove(&range) });
            }
            Record::Tags { volume, first, tags } | Record::OnlyTags { volume, first, tags } => {
                let thin = thin(volume)?;
                let fits = first.checked_add(tags.len() as u64).is_some_and(|end| end <= thin.blocks_of_it());
                if !thin.is_tagged || !fits {
                    return Err(format!("block {first} of namespace {} has no tag", volume.0));
                }
                self.tags.are_journaled(tags.len());
                // What was flushed since cannot be older; what was not may be.
                let is_flushed = frame.is_some_and(|frame| self.journal.is_data_durable(frame));
                let only = is_flushed || matches!(record, Record::OnlyTags { .. });
                (*first..).zip(tags).for_each(|(block, &tag)| self.tags.add_candidate(*volume, block, tag, only));
                if let Some(frame) = frame.filter(|_| !is_flushed) {
                    self.journal.hold(frame);
                }
            }
            Record::HighWater(extent) => self.high_water = self.high_water.max(*extent),
            Record::Change(_) => {}
        }
        Ok(())
    }

    /// All records were seen: only now it is known which extents are in use; the rest below the
    /// mark may hold anything.
    pub(crate) fn finish(self) -> Result<Extents, String> {
        let extents = Extents::new(self.shared, self.high_water)?;
        let keyless = |thin: &Arc<Thin>| thin.block_format.encrypted && thin.cipher.is_none();
        let keyless = self.shared.thins().into_iter().filter(keyless);
        for thin in keyless {
            if !self.shared.read_only {
                return Err(format!("the key of namespace {} is not there", thin.volume.0));
            }
            // Its key was destroyed, and what says so is lost.
            self.shared.remove(thin.volume);
        }
        extents.count();
        Ok(extents)
    }
}
