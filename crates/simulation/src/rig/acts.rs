//! What the acts of every level have in common: the chances of an act, and what happens to the
//! disk and to the process that uses it.

use std::time::Duration;

use crate::disk::{DiskFault, Loss};
use crate::random::Random;

/// Something that happens, with chances of its own for everything that happens meanwhile.
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
    /// Some of the next requests to blocks of namespaces take so much longer.
    Lag {
        /// How many of them.
        count: u32,
        /// Of writes alone.
        writes: bool,
        /// How much longer.
        time: Duration,
    },
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
    Lag,
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
        match kind {
            SystemKind::Sleep => Self::Sleep(Duration::from_micros(1 << random.below(24))),
            SystemKind::Fail => Self::Fail(DiskFault::draw(random)),
            SystemKind::Stand => Self::Stand(Duration::from_millis(1 << random.below(13))),
            SystemKind::Lag => {
                let (count, time) = (1 + random.below(6), Duration::from_millis(8 << random.below(11)));
                Self::Lag { count: u32::try_from(count).unwrap_or_default(), writes: random.percent(70), time }
            }
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

/// These kinds with the weights that they have in one story. Stories differ: some things happen
/// many times more often than in others, or never (Groce and others, "Swarm Testing").
pub(crate) fn swarm<K>(random: &mut Random, kinds: impl IntoIterator<Item = (u64, K)>) -> Vec<(u64, K)> {
    kinds.into_iter().map(|(weight, kind)| (weight * random.weighted(&[(2, 0), (6, 1), (2, 4)]), kind)).collect()
}

/// How many steps come after an act of a story at most: in some hardly anything comes to rest
/// between two acts.
pub(crate) fn pace(random: &mut Random) -> u64 {
    random.weighted(&[(3, 60), (2, 12), (1, 300)])
}

/// `count` times something happens, followed by fewer than `steps` steps; `draw` gives the acts
/// with this number, which come close behind each other.
pub(crate) fn story<W>(
    random: &mut Random,
    count: u64,
    steps: u64,
    mut draw: impl FnMut(&mut Random, u64) -> Vec<W>,
) -> Vec<Act<W>> {
    let mut acts = Vec::new();
    for number in 0..count {
        let mut together = draw(random, number);
        let Some(what) = together.pop() else { continue };
        for what in together {
            acts.push(Act { chances: random.number(), steps: random.below(8), what });
        }
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
