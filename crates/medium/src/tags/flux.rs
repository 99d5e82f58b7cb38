//! Blocks in flux: they may be written without a durable record of each tag. The journal says which
//! they are; after a crash such a block may have any data, and is accepted as it is if no tag
//! matches.
//!
//! A flush *settles* the tags of a namespace: the tags of what was written before it are recorded,
//! durably, when the data are; in the same group of frames the blocks leave flux, except for those
//! that were written since the flush began. So there is no moment at which a block that is written
//! without a record is not in flux, and none at which one that was flushed, and not written since,
//! has no durable tag.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use ebof_drive::frame::Record;
use ebof_drive::tag::Tag;

use crate::VolumeId;
use crate::pages::{Mask, Settled};
use crate::thin::shared::DeferredRequest;

/// The blocks in flux of all namespaces. Used by the drive's thread only.
#[derive(Default)]
pub(crate) struct Flux {
    pub(crate) namespaces: BTreeMap<VolumeId, InFlux>,
    /// Flushes that wait for the flush that is under way.
    waiting: Vec<DeferredRequest>,
    /// A flush is under way for which tags are being settled.
    pub(crate) is_flushing: bool,
}

/// The blocks in flux of one namespace.
pub(crate) struct InFlux {
    /// Offsets of the pages that may have some.
    pub(crate) pages: BTreeSet<u64>,
    /// Since when.
    pub(crate) since: Instant,
    /// While its tags are being settled: how many writes were counted when that began.
    pub(crate) settling: Option<u64>,
}

impl Flux {
    /// How many pages may have some.
    pub(crate) fn pages(&self) -> usize {
        self.namespaces.values().map(|namespace| namespace.pages.len()).sum()
    }

    /// Keeps a flush that has to settle tags, until it can begin (`store/settle.rs`).
    pub(crate) fn push(&mut self, deferred: DeferredRequest) {
        self.waiting.push(deferred);
    }

    /// Whether a flush waits for nothing any more.
    pub(crate) fn can_begin(&self) -> bool {
        !self.is_flushing && !self.waiting.is_empty()
    }

    /// Takes the flushes that wait.
    pub(crate) fn take_waiting(&mut self) -> Vec<DeferredRequest> {
        std::mem::take(&mut self.waiting)
    }

    /// What is in flux of a namespace.
    pub(crate) fn namespace(&mut self, volume: VolumeId, now: Instant) -> &mut InFlux {
        let new = || InFlux { pages: BTreeSet::new(), since: now, settling: None };
        self.namespaces.entry(volume).or_insert_with(new)
    }

    /// Blocks of a page of a namespace are in flux.
    pub(crate) fn add(&mut self, volume: VolumeId, page: u64, now: Instant) {
        self.namespace(volume, now).pages.insert(page);
    }
}

/// The records that settle one namespace: no block is in flux, these have tags, and these are in
/// flux again.
pub(crate) fn records(volume: VolumeId, settled: &[Settled]) -> Vec<Record> {
    let mut records = vec![Record::Settled(volume)];
    for Settled { first, tags, stays } in settled {
        for run in tags.chunk_by(|(place, _), (next, _)| place + 1 == *next) {
            let tags: Vec<Tag> = run.iter().map(|&(_, tag)| tag).collect();
            records.push(Record::OnlyTags { volume, first: first + run[0].0 as u64, tags });
        }
        records.extend(mark(volume, *first, *stays));
    }
    records
}

/// The record that brings blocks into flux, if there are any.
pub(crate) fn mark(volume: VolumeId, first: u64, mask: Mask) -> Option<Record> {
    (!mask.is_empty()).then_some(Record::Flux { volume, first, blocks: mask.0 })
}
