//! What is asked of the drive, and how likely it is.

use ebof_nvme::reservation::{PersistenceChange, ReservationType};

use crate::random::Random;
use crate::rig::acts::{self, Act, SystemAct, SystemKind};

/// What happens.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// The same command for several namespaces, one after the other.
    Ask {
        /// The command.
        ask: Ask,
        /// So many namespaces, from some point on.
        namespaces: u64,
        /// So many of the hosts that it may be about or come from.
        percent: u64,
    },
    /// Some of the hosts that are connected leave, and others come.
    ChangeHosts {
        /// So many of them.
        percent: u64,
    },
    /// A power cut or a kill comes in the middle of what is asked next.
    System(SystemAct),
}

/// A command. Which hosts send it is left to the chances of the act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say what they are")]
pub enum Ask {
    Create { shared: bool },
    Delete,
    Attach,
    Detach,
    Protect { protected: bool },
    Register { persistence: PersistenceChange },
    Unregister,
    Acquire { kind: ReservationType },
    Release,
    Clear,
    Persist { persists: bool },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Create,
    Delete,
    Attach,
    Detach,
    Protect,
    Register,
    Unregister,
    Acquire,
    Release,
    Clear,
    Persist,
    ChangeHosts,
    System(SystemKind),
}

const NAMESPACES: &[(u64, Kind)] = &[
    (80, Kind::Create),
    (15, Kind::Delete),
    (140, Kind::Attach),
    (25, Kind::Detach),
    (10, Kind::Protect),
    (20, Kind::ChangeHosts),
];
const RESERVATIONS: &[(u64, Kind)] = &[
    (60, Kind::Register),
    (10, Kind::Unregister),
    (25, Kind::Acquire),
    (8, Kind::Release),
    (4, Kind::Clear),
    (15, Kind::Persist),
];

/// Nothing happens by itself: the lives of a target are short instead.
const LIVES: &[(u64, SystemKind)] = &[
    (5, SystemKind::Sleep),
    (15, SystemKind::Rest),
    (20, SystemKind::Restart),
    (30, SystemKind::Kill),
    (60, SystemKind::PowerCut),
];

pub(super) fn story(random: &mut Random) -> Vec<Act<What>> {
    let count = 6 + random.below(30);
    let mut choices = acts::swarm(random, NAMESPACES.iter().copied());
    if random.percent(50) {
        choices.extend(acts::swarm(random, RESERVATIONS.iter().copied()));
    }
    choices.extend(acts::swarm(random, acts::kinds(LIVES, Kind::System)));
    acts::story(random, count, 20, |random, number| {
        let kind = match number {
            0 => Kind::Create,
            1 => Kind::Attach,
            _ => random.weighted(&choices),
        };
        vec![what(kind, random)]
    })
}

fn what(kind: Kind, random: &mut Random) -> What {
    let ask = match kind {
        Kind::System(kind) => return What::System(SystemAct::draw(kind, random)),
        Kind::ChangeHosts => return What::ChangeHosts { percent: 10 + random.below(90) },
        Kind::Create => Ask::Create { shared: random.percent(90) },
        Kind::Delete => Ask::Delete,
        Kind::Attach => Ask::Attach,
        Kind::Detach => Ask::Detach,
        Kind::Protect => Ask::Protect { protected: random.percent(50) },
        Kind::Register => {
            let changes = [(3, PersistenceChange::Set), (2, PersistenceChange::None), (1, PersistenceChange::Clear)];
            Ask::Register { persistence: random.weighted(&changes) }
        }
        Kind::Unregister => Ask::Unregister,
        Kind::Acquire => Ask::Acquire { kind: ReservationType::ALL[random.index(ReservationType::ALL.len())] },
        Kind::Release => Ask::Release,
        Kind::Clear => Ask::Clear,
        Kind::Persist => Ask::Persist { persists: random.percent(60) },
    };
    // Mostly few, sometimes all.
    let namespaces = 1 << random.below(9);
    let percent = random.weighted(&[(2, 100), (1, 50), (1, 5)]);
    What::Ask { ask, namespaces, percent }
}
