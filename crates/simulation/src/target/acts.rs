//! What hosts, links, disk and whoever runs the target do, and how likely it is.

use std::time::Duration;

use crate::acts::{self, Act, FAULTS, LIVES, SystemAct, SystemKind};
use crate::random::Random;

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
        slot: usize,
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

pub(super) fn story(random: &mut Random) -> Vec<Act<What>> {
    let count = 30 + random.below(220);
    // Some stories are about a disk or links that work.
    let (fails, breaks, reserves) = (random.percent(50), random.percent(70), random.percent(30));
    let mut choices = [IO, MANAGE].concat();
    choices.extend(acts::kinds(LIVES, Kind::System));
    if fails {
        choices.extend(acts::kinds(FAULTS, Kind::System));
    }
    for (wanted, more) in [(breaks, LINKS), (reserves, RESERVATIONS)] {
        choices.extend(more.iter().filter(|_| wanted));
    }
    acts::story(random, count, 60, |random, number| {
        let what = if number < 3 { Kind::Create } else { random.weighted(&choices) };
        act(what, random)
    })
}

#[derive(Clone, Copy)]
enum Kind {
    Io,
    Create,
    Delete,
    Format,
    Sanitize,
    Reserve,
    Break,
    Vanish,
    Leave,
    System(SystemKind),
}

const IO: &[(u64, Kind)] = &[(600, Kind::Io)];
const MANAGE: &[(u64, Kind)] = &[(40, Kind::Create), (12, Kind::Delete), (25, Kind::Format), (6, Kind::Sanitize)];
const LINKS: &[(u64, Kind)] = &[(30, Kind::Break), (20, Kind::Vanish), (40, Kind::Leave)];
const RESERVATIONS: &[(u64, Kind)] = &[(150, Kind::Reserve)];

fn act(kind: Kind, random: &mut Random) -> What {
    let (host, queue, slot) = (random.index(HOSTS), 1 + random.index(4), random.index(SLOTS));
    match kind {
        Kind::Io => {
            let io = random.weighted(&[
                (40, HostIo::Write { fua: false }),
                (8, HostIo::Write { fua: true }),
                (25, HostIo::Read),
                (6, HostIo::Zero { deallocate: false }),
                (4, HostIo::Zero { deallocate: true }),
                (6, HostIo::Deallocate),
                (2, HostIo::Uncorrectable),
                (8, HostIo::Flush),
            ]);
            // Often the same ones, so that commands meet.
            let block = if random.percent(50) { random.below(4) } else { random.below(BLOCKS) };
            What::Io { host, queue, slot, block, count: 1 + random.below(3), io }
        }
        Kind::Create => What::Create { host, format: random.index(4) },
        Kind::Delete => What::Delete { host, slot },
        Kind::Format => {
            let erase = random.weighted(&[(3, 0), (2, 1), (2, 2)]);
            What::Format { host, slot, format: random.index(4), erase }
        }
        Kind::Sanitize => What::Sanitize { host, overwrite: random.percent(30) },
        Kind::Reserve => What::Reserve { host, queue, slot, reserve: reserve(random) },
        Kind::Break => {
            let most = 1 << random.below(16);
            What::Break { host, queue: random.index(5), bytes: random.below(most) }
        }
        Kind::Vanish => What::Vanish { host, pause: Duration::from_micros(1 << random.below(24)) },
        Kind::Leave => {
            let (shutdown, reset) = random.weighted(&[(3, (false, true)), (2, (true, false)), (3, (true, true))]);
            What::Leave { host, shutdown, reset }
        }
        Kind::System(kind) => What::System(SystemAct::draw(kind, random)),
    }
}

fn reserve(random: &mut Random) -> Reserve {
    let kind = 1 + u8::try_from(random.below(6)).unwrap_or_default();
    match random.below(10) {
        0..3 => Reserve::Register,
        3..5 => Reserve::Acquire { kind },
        5..8 => Reserve::Preempt { victim: random.index(HOSTS), kind, abort: random.percent(80) },
        8 => Reserve::Release { kind },
        _ => Reserve::Clear,
    }
}
