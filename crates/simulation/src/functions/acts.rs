//! What happens to functions, and how likely it is.

use std::time::Duration;

use crate::random::Random;
use crate::rig::acts::{self, Act, SystemAct, SystemKind};

/// Functions of the drive.
pub(super) const FUNCTIONS: u16 = 3;
/// Hosts at each of them.
pub(super) const HOSTS_EACH: usize = 2;
/// Ports that a function may be given to.
pub(super) const PORTS: usize = 2;
/// Namespaces.
pub(super) const NAMESPACES: u32 = 3;
/// Blocks of a namespace that stories are about.
pub(super) const BLOCKS: u64 = 6;

/// What happens.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// Hosts of a namespace's function, or any host, write to it or read it.
    Io {
        /// Whether hosts of other functions do.
        stranger: bool,
        /// Which of them.
        host: usize,
        /// The namespace.
        nsid: u32,
        /// The first block.
        block: u64,
        /// Blocks.
        count: u64,
        /// Whether it is a write.
        writes: bool,
        /// So many commands, one block further each.
        times: u64,
    },
    /// A host flushes a namespace.
    Flush {
        /// Which of its function's hosts.
        host: usize,
        /// The namespace.
        nsid: u32,
    },
    /// A namespace is moved to a function, or to none.
    Map {
        /// The namespace.
        nsid: u32,
        /// The function.
        function: Option<u16>,
    },
    /// A function is given to a port, or to none.
    GiveTo {
        /// The function.
        function: u16,
        /// The port.
        port: Option<usize>,
    },
    /// A function is assigned resources, and goes online.
    Online {
        /// The function.
        function: u16,
        /// Queues, and interrupts.
        queues: u16,
    },
    /// A function goes offline.
    Offline {
        /// The function.
        function: u16,
    },
    /// The primary controller is reset.
    Reset,
    /// A host reserves a namespace for writing; or takes the reservation away.
    Reserve {
        /// Which of its function's hosts.
        host: usize,
        /// The namespace.
        nsid: u32,
        /// Whether it takes it away.
        clears: bool,
    },
    /// A host is gone from one moment to the next, and comes back.
    Vanish {
        /// The host.
        host: usize,
        /// After this time.
        pause: Duration,
    },
    /// What happens to the disk, and to the process.
    System(SystemAct),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Io,
    Flush,
    Map,
    GiveTo,
    Online,
    Offline,
    Reset,
    Reserve,
    Vanish,
    System(SystemKind),
}

const USE: &[(u64, Kind)] = &[(160, Kind::Io), (10, Kind::Flush), (14, Kind::Reserve), (8, Kind::Vanish)];
const CHANGES: &[(u64, Kind)] =
    &[(60, Kind::Map), (40, Kind::GiveTo), (24, Kind::Online), (10, Kind::Offline), (2, Kind::Reset)];
const DISK: &[(u64, SystemKind)] = &[(40, SystemKind::Lag), (8, SystemKind::Stand), (10, SystemKind::Heal)];

pub(super) fn story(random: &mut Random) -> Vec<Act<What>> {
    let count = 40 + random.below(200);
    let steps = acts::pace(random);
    let mut choices: Vec<(u64, Kind)> = USE.to_vec();
    choices.extend(acts::swarm(random, CHANGES.iter().copied()));
    choices.extend(acts::swarm(random, acts::kinds(acts::LIVES, Kind::System)));
    choices.extend(acts::swarm(random, acts::kinds(DISK, Kind::System)));
    acts::story(random, count, steps, |random, _| {
        let kind = random.weighted(&choices);
        let mut together = vec![what(kind, random)];
        if matches!(kind, Kind::Map | Kind::GiveTo | Kind::Offline | Kind::Reset) {
            // Something is to be lost that is under way.
            together = vec![What::System(lag(random)), what(Kind::Io, random), together[0]];
        }
        together
    })
}

/// Some requests take long: longer than it is waited for them.
fn lag(random: &mut Random) -> SystemAct {
    let count = 1 + u32::try_from(random.below(4)).unwrap_or(0);
    SystemAct::Lag { count, writes: random.percent(70), time: Duration::from_millis(8 << random.below(13)) }
}

fn what(kind: Kind, random: &mut Random) -> What {
    let function = 1 + u16::try_from(random.below(FUNCTIONS.into())).unwrap_or(0);
    let nsid = 1 + u32::try_from(random.below(NAMESPACES.into())).unwrap_or(0);
    let host = random.index(HOSTS_EACH * usize::from(FUNCTIONS));
    match kind {
        Kind::Io => What::Io {
            stranger: random.percent(15),
            host,
            nsid,
            block: random.below(BLOCKS),
            count: 1 + random.below(3),
            writes: random.percent(70),
            times: 1 + random.below(4),
        },
        Kind::Flush => What::Flush { host, nsid },
        Kind::Map => What::Map { nsid, function: random.percent(90).then_some(function) },
        Kind::GiveTo => What::GiveTo { function, port: random.percent(90).then(|| random.index(PORTS)) },
        Kind::Online => What::Online { function, queues: random.weighted(&[(4, 2), (2, 9), (2, 65), (2, 129)]) },
        Kind::Offline => What::Offline { function },
        Kind::Reset => What::Reset,
        Kind::Reserve => What::Reserve { host, nsid, clears: random.percent(40) },
        Kind::Vanish => What::Vanish { host, pause: Duration::from_millis(1 << random.below(10)) },
        Kind::System(kind) => What::System(SystemAct::draw(kind, random)),
    }
}
