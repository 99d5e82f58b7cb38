//! Trouble of a controller that no caller gets an error for, or only those of single commands:
//! counted, and reported once a minute with a count. Nothing of it is on the path of a command that
//! goes well.
//!
//! Owns the counts. The background thread reports them ([`crate::Event::Trouble`], and the log).

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use ebof_tcp::FatalStatus;

use crate::error::Loss;
use crate::wait::Waker;
use crate::wait::lock::lock;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Trouble {
    /// Data of the target did not match their digest; their command is repeated.
    DataDigest,
    /// The header of a PDU did not match its digest, at either end.
    HeaderDigest,
    /// The target broke a rule of the transport (R2T, lengths, order), or said that this host did.
    Protocol,
    /// A connection was lost in another way. Each is an event and a line of its own already.
    Lost,
    /// A command was sent again, after its status or a loss.
    Repeated,
    /// The target refused an admin command.
    Refused,
}

impl Trouble {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::DataDigest, Self::HeaderDigest, Self::Protocol, Self::Lost, Self::Repeated, Self::Refused];

    /// The name in kebab-case, for output that programs read: those of the target's end
    /// (`ebof_transport_troubles_total`) where it has them, too. Stable.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DataDigest => "data-digest",
            Self::HeaderDigest => "header-digest",
            Self::Protocol => "protocol",
            Self::Lost => "lost",
            Self::Repeated => "repeated",
            Self::Refused => "refused",
        }
    }

    /// Whether something is wrong with the network or an end, in contrast to what targets do.
    #[must_use]
    pub const fn is_fault(self) -> bool {
        matches!(self, Self::DataDigest | Self::HeaderDigest | Self::Protocol)
    }

    pub(crate) fn from_loss(loss: &Loss) -> Option<Self> {
        match loss {
            Loss::HeaderDigest(_) => Some(Self::HeaderDigest),
            Loss::Terminated(end) if end.status == FatalStatus::HeaderDigest as u16 => Some(Self::HeaderDigest),
            Loss::Protocol(_) | Loss::Terminated(_) => Some(Self::Protocol),
            Loss::Requested => None,
            _ => Some(Self::Lost),
        }
    }
}

/// For people, in the plural.
impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DataDigest => "data digest errors: data were changed on the way, and their commands repeated",
            Self::HeaderDigest => "header digest errors: PDUs were changed on the way, and the connections ended",
            Self::Protocol => "connections that ended because a rule of the transport was broken",
            Self::Lost => "connections that were lost",
            Self::Repeated => "commands that were sent again",
            Self::Refused => "admin commands that the target refused",
        })
    }
}

/// How long trouble is counted before it is reported again, milliseconds.
const WINDOW_MS: u64 = 60_000;

/// What went wrong with a controller, by kind.
#[derive(Debug)]
pub(crate) struct Troubles {
    totals: [AtomicU64; Trouble::ALL.len()],
    windows: Mutex<[Window; Trouble::ALL.len()]>,
    /// Wakes the thread that reports.
    waker: Arc<Waker>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    /// When it was reported; `None` if it was not, or all has been well since.
    told_ms: Option<u64>,
    /// Those that were not reported yet.
    count: u64,
}

impl Troubles {
    pub(crate) fn new(waker: Arc<Waker>) -> Self {
        Self { totals: Default::default(), windows: Mutex::default(), waker }
    }

    /// Counts one.
    pub(crate) fn note(&self, trouble: Trouble) {
        self.totals[trouble as usize].fetch_add(1, Relaxed);
        if trouble == Trouble::Lost {
            return;
        }
        let first = {
            let window = &mut lock(&self.windows)[trouble as usize];
            window.count += 1;
            window.count == 1
        };
        if first {
            self.waker.wake();
        }
    }

    /// What is to be reported now: the first of its kind at once, the others when the minute is
    /// over.
    pub(crate) fn due(&self, now_ms: u64) -> Vec<(Trouble, u64)> {
        let mut windows = lock(&self.windows);
        let mut due = Vec::new();
        for (trouble, window) in Trouble::ALL.into_iter().zip(windows.iter_mut()) {
            if now_ms < window.due_ms() {
                continue;
            }
            let count = std::mem::take(&mut window.count);
            window.told_ms = (count > 0).then_some(now_ms);
            due.extend((count > 0).then_some((trouble, count)));
        }
        due
    }

    /// When something is due; `u64::MAX` if nothing waits.
    pub(crate) fn due_ms(&self) -> u64 {
        let waiting = lock(&self.windows).map(|window| if window.count > 0 { window.due_ms() } else { u64::MAX });
        waiting.into_iter().min().unwrap_or(u64::MAX)
    }

    pub(crate) fn totals(&self) -> [(Trouble, u64); Trouble::ALL.len()] {
        Trouble::ALL.map(|trouble| (trouble, self.totals[trouble as usize].load(Relaxed)))
    }
}

impl Window {
    fn due_ms(&self) -> u64 {
        self.told_ms.map_or(0, |told| told.saturating_add(WINDOW_MS))
    }
}

#[cfg(test)]
mod tests {
    use ebof_clock::Clock;
    use ebof_tcp::Termination;

    use super::*;
    use crate::wait::Waiter;

    // @test redfish.repeated-trouble
    #[test]
    fn trouble_is_told_once_a_minute_with_a_count() {
        let waker = Waiter::stepped(&Clock::simulated(1)).waker().unwrap();
        let troubles = Troubles::new(Arc::new(waker));
        assert_eq!((troubles.due(1_000), troubles.due_ms()), (Vec::new(), u64::MAX));
        troubles.note(Trouble::DataDigest);
        assert_eq!(troubles.due_ms(), 0);
        assert_eq!(troubles.due(1_000), [(Trouble::DataDigest, 1)]);
        for _ in 0..18_456 {
            troubles.note(Trouble::DataDigest);
        }
        troubles.note(Trouble::Refused);
        assert_eq!(troubles.due(2_000), [(Trouble::Refused, 1)]);
        assert_eq!((troubles.due(60_999), troubles.due_ms()), (Vec::new(), 61_000));
        assert_eq!(troubles.due(61_000), [(Trouble::DataDigest, 18_456)]);
        assert_eq!(troubles.totals()[0], (Trouble::DataDigest, 18_457));
        // All was well for a minute: the next one is reported at once again.
        assert_eq!((troubles.due(121_000), troubles.due_ms()), (Vec::new(), u64::MAX));
        troubles.note(Trouble::DataDigest);
        assert_eq!(troubles.due(121_001), [(Trouble::DataDigest, 1)]);
        // Each loss is reported as such.
        troubles.note(Trouble::Lost);
        assert_eq!((troubles.due(500_000), troubles.totals()[3].1), (Vec::new(), 1));
    }

    // @test redfish.repeated-trouble
    #[test]
    fn losses_are_told_apart() {
        let terminated = |status| Loss::Terminated(Termination { status, information: 0 });
        for (loss, trouble) in [
            (Loss::HeaderDigest("x".into()), Some(Trouble::HeaderDigest)),
            (terminated(3), Some(Trouble::HeaderDigest)),
            (terminated(4), Some(Trouble::Protocol)),
            (Loss::Protocol("an R2T for no data".into()), Some(Trouble::Protocol)),
            (Loss::KeepAlive, Some(Trouble::Lost)),
            (Loss::Requested, None),
        ] {
            assert_eq!(Trouble::from_loss(&loss), trouble, "{loss}");
        }
    }
}
