//! What happens to a medium, and how likely it is.

use std::time::Duration;

use crate::disk::{DiskFault, FaultKind, Loss};
use crate::random::Random;

/// Namespaces at a time.
pub(super) const SLOTS: u64 = 4;
/// Blocks of a namespace that are written, in groups around the borders of its extents.
pub(super) const BLOCKS: u64 = 24;

/// Something that happens, with chances of its own for everything that goes on meanwhile.
#[derive(Clone, Debug)]
pub struct Act {
    /// Begins the stream of its chances.
    pub chances: u64,
    /// How many steps of the system come after it.
    pub steps: u64,
    /// What it is.
    pub what: What,
}

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
    Sleep(Duration),
    Fail(DiskFault),
    Stand(Duration),
    Heal,
    /// All that is under way comes to its end, and everything is compared.
    Rest,
    /// Closed in order, and opened again.
    Restart,
    /// The process ends when the disk has done so many more things.
    Kill {
        after: u64,
    },
    /// The power goes then.
    PowerCut {
        after: u64,
        loss: Loss,
    },
    /// Closed or killed when everything is flushed, and something that the drive says of itself is
    /// damaged.
    Damage {
        clean: bool,
        place: u64,
        tolerant: bool,
    },
}

pub(super) fn story(random: &mut Random) -> Vec<Act> {
    let count = 20 + random.below(180);
    // Some stories are about a quiet disk.
    let fails = random.percent(60);
    let mut acts = Vec::new();
    for _ in 0..count {
        let what = what(random, fails);
        let steps = match random.below(4) {
            0 => 0,
            1 => random.below(4),
            _ => random.below(30),
        };
        acts.push(Act { chances: random.number(), steps, what });
    }
    acts
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
    Sleep,
    Fail,
    Stand,
    Heal,
    Rest,
    Restart,
    Kill,
    PowerCut,
    Damage,
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
    (20, Kind::Sleep),
    (15, Kind::Rest),
    (10, Kind::Restart),
    (12, Kind::Kill),
    (18, Kind::PowerCut),
    (6, Kind::Damage),
];

const FAULTS: &[(u64, Kind)] = &[(20, Kind::Fail), (5, Kind::Stand), (12, Kind::Heal)];

fn what(random: &mut Random, fails: bool) -> What {
    let choices = if fails { [WEIGHTS, FAULTS].concat() } else { WEIGHTS.to_vec() };
    let (slot, block, count) = (random.below(SLOTS), random.below(BLOCKS), 1 + random.below(3));
    match random.weighted(&choices) {
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
        Kind::Sleep => What::Sleep(Duration::from_micros(1 << random.below(24))),
        Kind::Fail => What::Fail(DiskFault {
            after: u32::try_from(random.below(6)).unwrap_or_default(),
            count: 1 + u32::try_from(random.below(6)).unwrap_or_default(),
            kind: random.weighted(&[(6, FaultKind::Write), (2, FaultKind::Space), (2, FaultKind::Read)]),
            done: random.percent(50),
        }),
        Kind::Stand => What::Stand(Duration::from_millis(1 << random.below(13))),
        Kind::Heal => What::Heal,
        Kind::Rest => What::Rest,
        Kind::Restart => What::Restart,
        Kind::Kill => What::Kill { after: random.below(40) },
        Kind::PowerCut => What::PowerCut {
            after: random.below(40),
            loss: random.weighted(&[(2, Loss::Everything), (3, Loss::Tail), (3, Loss::Some), (3, Loss::Sectors)]),
        },
        Kind::Damage => {
            What::Damage { clean: random.percent(30), place: random.number(), tolerant: random.percent(50) }
        }
    }
}
