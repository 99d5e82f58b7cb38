//! What happens to a medium, and how likely it is.

use crate::random::Random;
use crate::rig::acts::{self, Act, FAULTS, LIVES, SystemAct, SystemKind};

/// Namespaces at a time.
pub(super) const SLOTS: u64 = 4;
/// Blocks of a namespace that are written, in groups around the borders of its extents.
pub(super) const BLOCKS: u64 = 24;

/// What happens. Namespaces are named by their slot, blocks by their number among those that are
/// used.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the names say what they are")]
pub enum What {
    Create {
        slot: u64,
        kind: usize,
    },
    Remove {
        slot: u64,
    },
    Clear {
        slot: u64,
    },
    Write {
        slot: u64,
        block: u64,
        count: u64,
        fua: bool,
    },
    Read {
        slot: u64,
        block: u64,
        count: u64,
    },
    Zero {
        slot: u64,
        block: u64,
        count: u64,
        deallocate: bool,
    },
    /// Whole extents of it, from the one of a block on.
    Deallocate {
        slot: u64,
        block: u64,
        extents: u64,
    },
    /// Every second block of a part of it, in so many requests of many ranges.
    Scatter {
        slot: u64,
        requests: u64,
    },
    Flush {
        slot: u64,
    },
    MarkBad {
        slot: u64,
        block: u64,
    },
    Commit {
        bytes: usize,
    },
    /// More changes than a journal holds.
    FillJournal,
    Sync,
    System(SystemAct),
    /// Closed or killed when everything is flushed, and something that the drive says of itself is
    /// damaged.
    Damage {
        clean: bool,
        place: u64,
        tolerant: bool,
    },
    /// Some sectors with blocks cannot be read before they are written again.
    LoseSectors {
        count: u64,
    },
}

pub(super) fn story(random: &mut Random) -> Vec<Act<What>> {
    let count = 20 + random.below(180);
    let mut choices = WEIGHTS.to_vec();
    choices.extend(acts::kinds(LIVES, Kind::System));
    // Some stories are about a quiet disk.
    if random.percent(60) {
        choices.extend(acts::kinds(FAULTS, Kind::System));
    }
    acts::story(random, count, 30, |random, _| vec![what(random, &choices)])
}

#[derive(Clone, Copy)]
enum Kind {
    Create,
    Remove,
    Clear,
    Write,
    Read,
    Zero,
    Deallocate,
    Scatter,
    Flush,
    MarkBad,
    Commit,
    FillJournal,
    Sync,
    System(SystemKind),
    Damage,
    LoseSectors,
}

const WEIGHTS: &[(u64, Kind)] = &[
    (60, Kind::Create),
    (8, Kind::Remove),
    (6, Kind::Clear),
    (240, Kind::Write),
    (120, Kind::Read),
    (30, Kind::Zero),
    (40, Kind::Deallocate),
    (6, Kind::Scatter),
    (40, Kind::Flush),
    (10, Kind::MarkBad),
    (25, Kind::Commit),
    (2, Kind::FillJournal),
    (12, Kind::Sync),
    (6, Kind::Damage),
    (6, Kind::LoseSectors),
];

fn what(random: &mut Random, choices: &[(u64, Kind)]) -> What {
    let (slot, block, count) = (random.below(SLOTS), random.below(BLOCKS), 1 + random.below(3));
    match random.weighted(choices) {
        Kind::Create => What::Create { slot, kind: random.index(usize::MAX) },
        Kind::Remove => What::Remove { slot },
        Kind::Clear => What::Clear { slot },
        Kind::Write => What::Write { slot, block, count, fua: random.percent(20) },
        Kind::Read => What::Read { slot, block, count },
        Kind::Zero => What::Zero { slot, block, count, deallocate: random.percent(50) },
        Kind::Deallocate => What::Deallocate { slot, block, extents: random.below(5) },
        Kind::Scatter => What::Scatter { slot, requests: 1 + random.below(16) },
        Kind::Flush => What::Flush { slot },
        Kind::MarkBad => What::MarkBad { slot, block },
        Kind::Commit => What::Commit { bytes: if random.percent(90) { 100 } else { 100_000 } },
        Kind::FillJournal => What::FillJournal,
        Kind::Sync => What::Sync,
        Kind::System(kind) => What::System(SystemAct::draw(kind, random)),
        Kind::Damage => {
            What::Damage { clean: random.percent(30), place: random.number(), tolerant: random.percent(50) }
        }
        Kind::LoseSectors => What::LoseSectors { count: 1 + random.below(4) },
    }
}
