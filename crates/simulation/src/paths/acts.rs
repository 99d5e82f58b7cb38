//! What happens to paths, and how likely it is.

use std::time::Duration;

use ebof_initiator::PathPolicy;
use ebof_manage::config::AnaState;

use crate::random::Random;
use crate::rig::acts::{self, Act, SystemAct, SystemKind};

/// Hosts.
pub(super) const HOSTS: usize = 2;
/// Paths of a host at most.
pub(super) const PATHS_MAX: usize = 4;
/// Blocks that stories are about.
pub(super) const BLOCKS: u64 = 4;

/// What happens.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// A host reads or writes.
    Io {
        /// Which host.
        host: usize,
        /// The first block.
        block: u64,
        /// Blocks.
        count: u64,
        /// What it does.
        kind: IoKind,
        /// So many commands, one block further each.
        times: u64,
    },
    /// One of the latest connections of a path breaks when so many more bytes were sent.
    Cut {
        /// The host.
        host: usize,
        /// The path.
        path: usize,
        /// Which connection, from the latest on.
        connection: usize,
        /// After so many bytes.
        bytes: u64,
    },
    /// All connections of a path break.
    CutAll {
        /// The host.
        host: usize,
        /// The path.
        path: usize,
    },
    /// Nothing arrives over a path for some time, and nobody is notified.
    Silence {
        /// The host, or all of them.
        host: Option<usize>,
        /// The path.
        path: usize,
        /// What the host sends, and what the target sends.
        silent: [bool; 2],
        /// For so long.
        time: Duration,
    },
    /// A port gives another access to the namespace.
    Ana {
        /// The path that leads there.
        path: usize,
        /// The access.
        state: AnaState,
    },
    /// A target is killed, and comes back.
    Kill {
        /// The path that leads there.
        path: usize,
        /// After this time, and when what it had at the disk has ended.
        pause: Duration,
    },
    /// For some time there is one path alone: commands have to end over it.
    Alone {
        /// The path.
        path: usize,
    },
    /// A host divides its commands in another way.
    Policy {
        /// The host.
        host: usize,
        /// The way.
        policy: PathPolicy,
    },
    /// A host uses a path, or does not.
    Enable {
        /// The host.
        host: usize,
        /// The path.
        path: usize,
        /// Whether it does.
        is_enabled: bool,
    },
    /// What happens to the disk, and to the processes.
    System(SystemAct),
}

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoKind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Write Zeroes.
    WriteZeroes,
    /// Dataset Management.
    Deallocate,
    /// Flush.
    Flush,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Io,
    Cut,
    CutAll,
    Silence,
    Ana,
    Kill,
    Alone,
    Policy,
    Enable,
    System(SystemKind),
}

const USE: &[(u64, Kind)] = &[(120, Kind::Io), (4, Kind::Policy), (4, Kind::Enable), (4, Kind::Alone)];
const TROUBLE: &[(u64, Kind)] =
    &[(20, Kind::Cut), (12, Kind::CutAll), (24, Kind::Silence), (14, Kind::Ana), (8, Kind::Kill)];
const SYSTEM: &[(u64, SystemKind)] = &[
    (16, SystemKind::Sleep),
    (5, SystemKind::Rest),
    (2, SystemKind::Restart),
    (16, SystemKind::Lag),
    (4, SystemKind::Stand),
    (6, SystemKind::Heal),
];

pub(super) fn story(random: &mut Random) -> Vec<Act<What>> {
    let count = 20 + random.below(60);
    let steps = acts::pace(random);
    let mut choices: Vec<(u64, Kind)> = USE.to_vec();
    choices.extend(acts::swarm(random, TROUBLE.iter().copied()));
    choices.extend(acts::swarm(random, acts::kinds(SYSTEM, Kind::System)));
    acts::story(random, count, steps, |random, _| {
        let kind = random.weighted(&choices);
        let mut together = vec![what(kind, random)];
        if matches!(kind, Kind::Cut | Kind::CutAll | Kind::Silence | Kind::Kill) && random.percent(70) {
            together = lost_write(random, together[0]);
        }
        together
    })
}

/// Something is to be executed late: it is at the disk, or on its way, when its path is lost, and
/// is followed by another write to the same blocks.
fn lost_write(random: &mut Random, trouble: What) -> Vec<What> {
    let lag = |random: &mut Random| {
        let time = Duration::from_millis(8 << random.below(13));
        What::System(SystemAct::Lag { count: 1 + u32::from(random.percent(50)), writes: true, time })
    };
    let block = random.below(BLOCKS);
    let write = |random: &mut Random| What::Io {
        host: random.index(HOSTS),
        block,
        count: 1 + random.below(2),
        kind: IoKind::Write,
        times: 1,
    };
    let sleep = |random: &mut Random| {
        let time = Duration::from_millis(1 << random.below(14));
        What::System(SystemAct::Sleep(time))
    };
    let mut acts = vec![lag(random), write(random)];
    if random.percent(30) {
        acts.push(write(random));
    }
    acts.push(trouble);
    for _ in 0..=random.below(3) {
        acts.push(sleep(random));
        acts.push(write(random));
    }
    acts
}

fn what(kind: Kind, random: &mut Random) -> What {
    let (host, path) = (random.index(HOSTS), random.index(PATHS_MAX));
    let io = [
        (50, IoKind::Write),
        (40, IoKind::Read),
        (4, IoKind::WriteZeroes),
        (4, IoKind::Deallocate),
        (3, IoKind::Flush),
    ];
    match kind {
        Kind::Io => What::Io {
            host,
            block: random.below(BLOCKS),
            count: 1 + random.below(3),
            kind: random.weighted(&io),
            times: 1 + random.below(4),
        },
        Kind::Cut => {
            let most = 1 << random.below(15);
            What::Cut { host, path, connection: random.index(4), bytes: random.below(most) }
        }
        Kind::CutAll => What::CutAll { host, path },
        Kind::Silence => What::Silence {
            host: random.percent(70).then_some(host),
            path,
            silent: random.weighted(&[(2, [true, true]), (2, [false, true]), (1, [true, false])]),
            time: Duration::from_millis(64 << random.below(10)),
        },
        Kind::Ana => What::Ana {
            path,
            state: random.weighted(&[
                (4, AnaState::OPTIMIZED),
                (3, AnaState::NON_OPTIMIZED),
                (4, AnaState::INACCESSIBLE),
                (1, AnaState::PERSISTENT_LOSS),
                (2, AnaState::CHANGE),
            ]),
        },
        Kind::Kill => What::Kill { path, pause: Duration::from_millis(1 << random.below(14)) },
        Kind::Alone => What::Alone { path },
        Kind::Policy => What::Policy { host, policy: PathPolicy::ALL[random.index(PathPolicy::ALL.len())] },
        Kind::Enable => What::Enable { host, path, is_enabled: random.percent(60) },
        Kind::System(SystemKind::Lag) => {
            let count = 1 + u32::try_from(random.below(4)).unwrap_or(0);
            let time = Duration::from_millis(8 << random.below(13));
            What::System(SystemAct::Lag { count, writes: random.percent(80), time })
        }
        Kind::System(kind) => What::System(SystemAct::draw(kind, random)),
    }
}
