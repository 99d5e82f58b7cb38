//! What hosts, links, disk and whoever runs the target do, and how likely it is.

use std::time::Duration;

use crate::random::Random;
use crate::rig::acts::{self, Act, FAULTS, LIVES, SystemAct, SystemKind};

/// Hosts at a time.
pub(super) const HOSTS: usize = 3;
/// Namespaces that acts name.
pub(super) const SLOTS: usize = 4;
/// Blocks of a namespace that are written, in groups around the borders of its extents.
pub(super) const BLOCKS: u64 = 18;

/// What happens. Hosts and namespaces are named by number, blocks by their number among those that
/// are used.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the names say what they are")]
pub enum What {
    Io {
        host: usize,
        queue: usize,
        slot: usize,
        block: u64,
        count: u64,
        io: HostIo,
        /// So many such commands, each to the next block.
        times: u64,
    },
    Create {
        host: usize,
        format: usize,
    },
    Delete {
        host: usize,
        slot: usize,
    },
    Format {
        host: usize,
        /// `None` for all namespaces.
        slot: Option<usize>,
        format: usize,
        erase: u8,
    },
    Sanitize {
        host: usize,
        overwrite: bool,
    },
    Reserve {
        host: usize,
        queue: usize,
        slot: usize,
        reserve: Reserve,
    },
    /// A host that is registered and does not answer is preempted, as clusters do. Which host that
    /// is follows from who is left.
    Fence {
        host: usize,
        queue: usize,
        kind: u8,
        abort: bool,
    },
    /// A connection breaks after so many bytes.
    Break {
        host: usize,
        queue: usize,
        bytes: u64,
    },
    /// A host is gone from one moment to the next, and comes back.
    Vanish {
        host: usize,
        pause: Duration,
    },
    Leave {
        host: usize,
        shutdown: bool,
        reset: bool,
    },
    /// A host is away, with writes that wait, while another one deletes a namespace and makes
    /// another one under its number.
    Swap {
        host: usize,
        slot: usize,
        block: u64,
        pause: Duration,
    },
    /// The RDMA device is gone for some time.
    Unplug {
        time: Duration,
    },
    /// From now on hosts register with every namespace that they come to know.
    Cluster,
    /// A host proves once more who it is.
    Prove {
        host: usize,
    },
    /// The secret of a host changes; it learns of it after the pause.
    Rekey {
        host: usize,
        is_mistake: bool,
        pause: Duration,
    },
    /// Somebody uses the name of a host that has a secret.
    Lie {
        victim: usize,
        lie: Lie,
        linger: Duration,
    },
    System(SystemAct),
}

/// A command to blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say what they are")]
pub enum HostIo {
    Write {
        fua: bool,
    },
    Read,
    /// With what may be there.
    Compare,
    /// The same, and Write fused with it. An initiator, which has no fused commands, compares.
    CompareAndWrite,
    Verify,
    Zero {
        deallocate: bool,
    },
    /// Whole extents, in several ranges.
    Deallocate,
    Uncorrectable,
    Flush,
}

/// A command about reservations; each host has a key of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say what they are")]
pub enum Reserve {
    Register,
    Acquire { kind: u8 },
    Preempt { victim: usize, kind: u8, abort: bool },
    Release { kind: u8 },
    Clear,
}

/// What somebody tries who has the name of a host, and not its secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Commands to an Admin Queue, without a proof.
    Admin,
    /// Commands to an I/O queue of the host's controller.
    Io,
    /// A proof by a secret that is none.
    Secret,
    /// A proof by a secret that was good.
    OldSecret,
    /// What the controller or the host has said comes back.
    Reflect,
    /// The host's messages, once more.
    Replay,
    /// Messages that are none, or come too early.
    Nonsense,
    /// Many connections that wait.
    Flood,
}

/// Adds to a story that its hosts prove who they are, and that somebody lies.
pub(super) fn add_lies(acts: Vec<Act<What>>, random: &mut Random) -> Vec<Act<What>> {
    let percent = random.weighted(&[(2, 4), (2, 12), (1, 30)]);
    let mut all = Vec::new();
    for act in acts {
        all.push(act);
        if random.percent(percent) {
            let (chances, steps, what) = (random.number(), random.below(30), security(random));
            all.push(Act { chances, steps, what });
        }
    }
    all
}

fn security(random: &mut Random) -> What {
    let host = random.index(HOSTS);
    match random.below(10) {
        0..2 => What::Prove { host },
        2 => {
            let pause = Duration::from_micros(1 << (10 + random.below(13)));
            What::Rekey { host, is_mistake: random.percent(40), pause }
        }
        _ => {
            let lie = random.weighted(&[
                (4, Lie::Admin),
                (4, Lie::Io),
                (2, Lie::Secret),
                (2, Lie::OldSecret),
                (2, Lie::Reflect),
                (2, Lie::Replay),
                (1, Lie::Nonsense),
                (2, Lie::Flood),
            ]);
            let linger = Duration::from_micros(1 << random.below(25));
            What::Lie { victim: host, lie, linger }
        }
    }
}

pub(super) fn story(random: &mut Random) -> Vec<Act<What>> {
    let count = 30 + random.below(220);
    // Some stories are about a disk or links that work.
    let (fails, breaks, reserves) = (random.percent(50), random.percent(70), random.percent(40));
    // Others are about a drive that is changed and started again all the time, or about hosts that
    // are a cluster.
    let (changes, is_cluster) = (random.percent(25), reserves && random.percent(60));
    let often = if changes { 4 } else { 1 };
    let mut choices = acts::swarm(random, MANAGE.iter().map(|&(weight, kind)| (weight * often, kind)));
    choices.extend(IO);
    let restarts = (7 * (often - 1), Kind::System(SystemKind::Restart));
    let lives = acts::kinds(LIVES, Kind::System).chain([restarts, (15, Kind::System(SystemKind::Lag))]);
    choices.extend(acts::swarm(random, lives));
    if fails {
        choices.extend(acts::swarm(random, acts::kinds(FAULTS, Kind::System)));
    }
    for (wanted, more) in [(breaks, LINKS), (reserves, RESERVATIONS)] {
        if wanted {
            choices.extend(acts::swarm(random, more.iter().copied()));
        }
    }
    let (focus, pace) = (Focus::draw(random), acts::pace(random));
    let mut together = acts::kinds(TROUBLE, Kind::System).filter(|_| fails).collect::<Vec<_>>();
    together.extend(MEETING);
    // A cluster is about hosts that fail.
    together.extend(LINKS.iter().filter(|_| breaks || is_cluster));
    together.extend(RESERVATIONS.iter().filter(|_| reserves));
    let (meetings, slow) = if is_cluster { (25, 90) } else { (12, 60) };
    acts::story(random, count, pace, |random, number| {
        let kind = if number < 3 { Kind::Create } else { random.weighted(&choices) };
        if number >= 3 && random.percent(meetings) {
            let narrow = focus.narrowed(random);
            let slow = random.percent(slow).then_some(Kind::System(SystemKind::Lag));
            let kinds: Vec<Kind> = (0..4 + random.below(12)).map(|_| random.weighted(&together)).collect();
            let kinds = slow.into_iter().chain(kinds);
            return kinds.flat_map(|kind| with_answer(kind, narrow, reserves, random)).collect();
        }
        let mut whats = with_answer(kind, focus, reserves, random);
        if number == 0 && is_cluster {
            whats.insert(0, What::Cluster);
        }
        // What takes several steps meets trouble in the middle of them: that is there before, or
        // comes close behind.
        let is_long = matches!(kind, Kind::Create | Kind::Delete | Kind::Format | Kind::FormatAll | Kind::Sanitize);
        if fails && is_long && random.percent(50) {
            let trouble = What::System(SystemAct::draw(SystemKind::Fail, random));
            let at = if random.percent(40) { 0 } else { whats.len() };
            whats.insert(at, trouble);
        }
        whats
    })
}

/// An act, and what follows from it: hosts answer that one of them has gone.
fn with_answer(kind: Kind, focus: Focus, reserves: bool, random: &mut Random) -> Vec<What> {
    let mut whats = vec![act(kind, focus, random)];
    if reserves && matches!(kind, Kind::Break | Kind::Vanish | Kind::Leave) && random.percent(70) {
        whats.push(act(Kind::Fence, focus, random));
    }
    whats
}

/// What the commands of a story are about: often the same blocks, so that commands meet.
#[derive(Clone, Copy)]
struct Focus {
    /// Namespaces that most commands name.
    slots: usize,
    /// Blocks that most commands name.
    blocks: u64,
    /// How many commands that is, in percent.
    percent: u64,
    /// The first of these.
    first: (usize, u64),
}

impl Focus {
    fn draw(random: &mut Random) -> Self {
        let slots = random.weighted(&[(2, SLOTS), (1, 1), (1, 2)]);
        Self {
            slots,
            blocks: random.weighted(&[(3, 4), (2, 1), (1, BLOCKS)]),
            percent: 50 + random.below(45),
            first: (0, 0),
        }
    }

    /// For acts that are close to each other: nearly all are about the same few blocks.
    fn narrowed(self, random: &mut Random) -> Self {
        let first = (self.slot(random), self.block(random));
        Self { slots: 1, blocks: 1 + random.below(3), percent: 90, first }
    }

    fn slot(self, random: &mut Random) -> usize {
        if random.percent(self.percent) { self.first.0 + random.index(self.slots) } else { random.index(SLOTS) }
    }

    fn block(self, random: &mut Random) -> u64 {
        if random.percent(self.percent) {
            (self.first.1 + random.below(self.blocks)) % BLOCKS
        } else {
            random.below(BLOCKS)
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Io,
    Create,
    Delete,
    Format,
    FormatAll,
    Sanitize,
    Reserve,
    Fence,
    Break,
    Vanish,
    Leave,
    Unplug,
    Swap,
    System(SystemKind),
}

const IO: &[(u64, Kind)] = &[(600, Kind::Io)];
const MANAGE: &[(u64, Kind)] = &[
    (40, Kind::Create),
    (12, Kind::Delete),
    (20, Kind::Format),
    (12, Kind::FormatAll),
    (6, Kind::Sanitize),
    (12, Kind::Swap),
];
const LINKS: &[(u64, Kind)] = &[(30, Kind::Break), (20, Kind::Vanish), (40, Kind::Leave), (6, Kind::Unplug)];
const RESERVATIONS: &[(u64, Kind)] = &[(200, Kind::Reserve), (20, Kind::Fence)];
/// What comes together, beside what the story is about.
const MEETING: &[(u64, Kind)] = &[(400, Kind::Io), (60, Kind::System(SystemKind::Lag))];
const TROUBLE: &[(u64, SystemKind)] = &[(10, SystemKind::Fail), (10, SystemKind::Stand)];

fn act(kind: Kind, focus: Focus, random: &mut Random) -> What {
    let (host, queue, slot) = (random.index(HOSTS), 1 + random.index(4), focus.slot(random));
    match kind {
        Kind::Io => {
            let io = random.weighted(&[
                (40, HostIo::Write { fua: false }),
                (8, HostIo::Write { fua: true }),
                (25, HostIo::Read),
                (4, HostIo::Compare),
                (8, HostIo::CompareAndWrite),
                (3, HostIo::Verify),
                (6, HostIo::Zero { deallocate: false }),
                (4, HostIo::Zero { deallocate: true }),
                (6, HostIo::Deallocate),
                (2, HostIo::Uncorrectable),
                (8, HostIo::Flush),
            ]);
            let times = random.weighted(&[(6, 1), (2, 3), (2, 8)]);
            What::Io { host, queue, slot, block: focus.block(random), count: 1 + random.below(3), io, times }
        }
        Kind::Create => What::Create { host, format: random.index(4) },
        Kind::Delete => What::Delete { host, slot },
        Kind::Format | Kind::FormatAll => {
            let erase = random.weighted(&[(1, 0), (2, 1), (3, 2)]);
            let slot = matches!(kind, Kind::Format).then_some(slot);
            What::Format { host, slot, format: random.index(4), erase }
        }
        Kind::Sanitize => What::Sanitize { host, overwrite: random.percent(30) },
        Kind::Reserve => What::Reserve { host, queue, slot, reserve: reserve(random) },
        Kind::Fence => What::Fence { host, queue, kind: reservation_type(random), abort: random.percent(85) },
        Kind::Break => {
            let most = 1 << random.below(16);
            What::Break { host, queue: random.index(5), bytes: random.below(most) }
        }
        Kind::Vanish => What::Vanish { host, pause: Duration::from_micros(1 << random.below(24)) },
        Kind::Leave => {
            let (shutdown, reset) = random.weighted(&[(3, (false, true)), (2, (true, false)), (3, (true, true))]);
            What::Leave { host, shutdown, reset }
        }
        Kind::Swap => {
            let pause = Duration::from_micros(1 << (16 + random.below(8)));
            What::Swap { host, slot, block: focus.block(random), pause }
        }
        Kind::Unplug => What::Unplug { time: Duration::from_micros(1 << random.below(22)) },
        Kind::System(kind) => What::System(SystemAct::draw(kind, random)),
    }
}

fn reserve(random: &mut Random) -> Reserve {
    let kind = reservation_type(random);
    match random.below(20) {
        0..7 => Reserve::Register,
        7..12 => Reserve::Acquire { kind },
        12..18 => Reserve::Preempt { victim: random.index(HOSTS), kind, abort: random.percent(80) },
        18 => Reserve::Release { kind },
        _ => Reserve::Clear,
    }
}

/// Any; more often those with which all that are registered may write.
fn reservation_type(random: &mut Random) -> u8 {
    random.weighted(&[(1, 1), (1, 2), (3, 3), (2, 4), (3, 5), (2, 6)])
}
