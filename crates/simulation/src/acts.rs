//! What the acts of every level have in common: the chances of an act, and what happens to the
//! disk and to the process that uses it.

use std::time::Duration;

use crate::disk::{DiskFault, FaultKind, Loss};
use crate::random::Random;

/// Something that happens, with chances of its own for everything that goes on meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Act<W> {
    /// Begins the stream of its chances.
    pub chances: u64,
    /// How many steps of the system come after it.
    pub steps: u64,
    /// What it is.
    pub what: W,
}

/// What happens to the disk, and to the process that uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemAct {
    /// Time passes.
    Sleep(Duration),
    /// Requests to the disk fail.
    Fail(DiskFault),
    /// The disk completes nothing for some time.
    Stand(Duration),
    /// The disk works again.
    Heal,
    /// All that is under way comes to its end, and everything is compared.
    Rest,
    /// Stopped in order, and started again.
    Restart,
    /// The process ends when the disk has done so many more things.
    Kill {
        /// Requests that the disk completes before.
        after: u64,
    },
    /// The power goes then.
    PowerCut {
        /// Requests that the disk completes before.
        after: u64,
        /// What becomes of what was not flushed.
        loss: Loss,
    },
}

/// A kind of [`SystemAct`], before chance has filled it in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "as in SystemAct")]
pub enum SystemKind {
    Sleep,
    Fail,
    Stand,
    Heal,
    Rest,
    Restart,
    Kill,
    PowerCut,
}

/// In every story.
pub const LIVES: &[(u64, SystemKind)] = &[
    (25, SystemKind::Sleep),
    (13, SystemKind::Rest),
    (7, SystemKind::Restart),
    (9, SystemKind::Kill),
    (12, SystemKind::PowerCut),
];

/// In stories about a disk that fails.
pub const FAULTS: &[(u64, SystemKind)] = &[(30, SystemKind::Fail), (12, SystemKind::Stand), (16, SystemKind::Heal)];

impl SystemAct {
    /// One of this kind.
    #[must_use]
    pub fn draw(kind: SystemKind, random: &mut Random) -> Self {
        let few = |random: &mut Random, bound| u32::try_from(random.below(bound)).unwrap_or_default();
        match kind {
            SystemKind::Sleep => Self::Sleep(Duration::from_micros(1 << random.below(24))),
            SystemKind::Fail => Self::Fail(DiskFault {
                after: few(random, 6),
                count: 1 + few(random, 6),
                kind: random.weighted(&[(7, FaultKind::Write), (2, FaultKind::Space), (2, FaultKind::Read)]),
                done: random.percent(50),
            }),
            SystemKind::Stand => Self::Stand(Duration::from_millis(1 << random.below(13))),
            SystemKind::Heal => Self::Heal,
            SystemKind::Rest => Self::Rest,
            SystemKind::Restart => Self::Restart,
            SystemKind::Kill => Self::Kill { after: random.below(40) },
            SystemKind::PowerCut => Self::PowerCut {
                after: random.below(40),
                loss: random.weighted(&[(2, Loss::Everything), (3, Loss::Tail), (3, Loss::Some), (3, Loss::Sectors)]),
            },
        }
    }
}

/// `count` acts, each followed by fewer than `steps` steps; `draw` says what the one with this
/// number is.
pub(crate) fn story<W>(
    random: &mut Random,
    count: u64,
    steps: u64,
    mut draw: impl FnMut(&mut Random, u64) -> W,
) -> Vec<Act<W>> {
    let mut acts = Vec::new();
    for number in 0..count {
        let what = draw(random, number);
        // Many come close behind each other.
        let steps = match random.below(4) {
            0 => 0,
            1 => random.below(5),
            _ => random.below(steps),
        };
        acts.push(Act { chances: random.number(), steps, what });
    }
    acts
}

/// These kinds and weights, as kinds of a level.
pub(crate) fn kinds<K>(kinds: &[(u64, SystemKind)], of: impl Fn(SystemKind) -> K) -> impl Iterator<Item = (u64, K)> {
    kinds.iter().map(move |&(weight, kind)| (weight, of(kind)))
}
