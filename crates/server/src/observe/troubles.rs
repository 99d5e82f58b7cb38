//! Trouble of connections that no command's status tells anybody about: counted, and told once for
//! each host and minute.
//!
//! All of it is off the path of a command that goes well.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use ebof_manage::events::{EventKind, NewEvent};

use crate::observe::host_labels::OTHERS;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trouble {
    /// Data of a host did not match their digest.
    DataDigest,
    /// The header of a PDU did not match its digest, at either end.
    HeaderDigest,
    /// Data of a host did not come as they were announced.
    Transfer,
    /// A host broke the rules of the transport, or said that the target did.
    Protocol,
    /// A connection went without a word: its socket or queue pair failed, or nothing moved any
    /// more.
    Lost,
    /// The memory of a virtual machine kept its thread.
    Memory,
}

impl Trouble {
    pub(crate) const ALL: [Self; 6] =
        [Self::DataDigest, Self::HeaderDigest, Self::Transfer, Self::Protocol, Self::Lost, Self::Memory];

    /// In metrics.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::DataDigest => "data-digest",
            Self::HeaderDigest => "header-digest",
            Self::Transfer => "transfer",
            Self::Protocol => "protocol",
            Self::Lost => "lost",
            Self::Memory => "memory",
        }
    }

    /// For people, in the plural.
    const fn words(self) -> &'static str {
        match self {
            Self::DataDigest => "data digest errors: data were changed on the way, and their commands repeated",
            Self::HeaderDigest => "header digest errors: PDUs were changed on the way, and their connections ended",
            Self::Transfer => "transfers that failed: their commands are repeated",
            Self::Protocol => "connections that ended because a rule of the transport was broken",
            Self::Lost => "connections that were lost",
            Self::Memory => {
                "waits of a millisecond and more for pages of a virtual machine's memory: its queues rested for nine times \
                 as long, since others use the thread"
            }
        }
    }

    const fn advice(self) -> &'static str {
        match self {
            Self::DataDigest | Self::HeaderDigest => {
                "look for what changes data between host and target: a network card, its driver, a switch, memory"
            }
            Self::Transfer | Self::Lost => "look at the network, and at the host",
            Self::Memory => {
                "look whether this machine swaps; have the virtual machine's memory made when it starts (QEMU: \
                 prealloc=on), or give its port a target of its own"
            }
            Self::Protocol => "the log says which rule; look for another version of the host's driver",
        }
    }
}

/// How long trouble of a host is counted before it is told again, milliseconds.
const WINDOW_MS: u64 = 60_000;

/// Hosts that are told apart in that time.
const HOSTS_MAX: usize = 64;

/// What went wrong, by host.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    totals: [AtomicU64; Trouble::ALL.len()],
    windows: Mutex<BTreeMap<(String, Trouble), Window>>,
}

#[derive(Debug)]
struct Window {
    since_ms: u64,
    /// Those that were not told yet.
    count: u64,
}

impl Troubles {
    /// Counts one. The first of a host in a minute is told at once.
    pub(crate) fn note(&self, host: &str, trouble: Trouble, now_ms: u64) -> Option<NewEvent> {
        self.totals[trouble as usize].fetch_add(1, Relaxed);
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (host.to_owned(), trouble);
        let key =
            if windows.len() < HOSTS_MAX || windows.contains_key(&key) { key } else { (OTHERS.to_owned(), trouble) };
        if let Some(window) = windows.get_mut(&key) {
            window.count += 1;
            return None;
        }
        let event = event_of(&key.0, trouble, 1);
        windows.insert(key, Window { since_ms: now_ms, count: 0 });
        Some(event)
    }

    /// What was counted in minutes that are over.
    pub(crate) fn due(&self, now_ms: u64) -> Vec<NewEvent> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let mut events = Vec::new();
        windows.retain(|(host, trouble), window| {
            if now_ms.saturating_sub(window.since_ms) < WINDOW_MS {
                return true;
            }
            let count = std::mem::take(&mut window.count);
            if count > 0 {
                events.push(event_of(host, *trouble, count));
            }
            window.since_ms = now_ms;
            // Whoever is well is forgotten.
            count > 0
        });
        events
    }

    /// How many of each there were since the start.
    pub(crate) fn totals(&self) -> [(Trouble, u64); Trouble::ALL.len()] {
        Trouble::ALL.map(|trouble| (trouble, self.totals[trouble as usize].load(Relaxed)))
    }
}

fn event_of(host: &str, trouble: Trouble, count: u64) -> NewEvent {
    let message = format!("{count} {}", trouble.words());
    NewEvent::new(EventKind::TransportTrouble, "", message).advice(trouble.advice()).who(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    // @test redfish.repeated-trouble
    #[test]
    fn a_host_is_told_of_once_in_a_minute_with_a_count() {
        let troubles = Troubles::default();
        let first = troubles.note("nqn.a", Trouble::DataDigest, 1_000).unwrap();
        assert!(first.message.starts_with("1 data digest") && first.who.as_deref() == Some("nqn.a"), "{first:?}");
        for _ in 0..18_456 {
            assert_eq!(troubles.note("nqn.a", Trouble::DataDigest, 2_000), None);
        }
        assert!(troubles.note("nqn.b", Trouble::HeaderDigest, 2_000).is_some());
        assert!(troubles.due(60_000).is_empty());
        let due = troubles.due(61_000);
        assert_eq!(due.len(), 1);
        assert!(due[0].message.starts_with("18456 data digest errors"), "{due:?}");
        assert_eq!(troubles.totals()[0], (Trouble::DataDigest, 18_457));
        assert!(troubles.due(121_000).is_empty(), "who is well is not told of");
        assert!(troubles.note("nqn.a", Trouble::DataDigest, 122_000).is_some());
    }

    #[test]
    fn hosts_are_bounded() {
        let troubles = Troubles::default();
        let told = (0..1000).filter_map(|host| troubles.note(&format!("nqn.{host}"), Trouble::Lost, 0)).count();
        assert_eq!(told, HOSTS_MAX + 1, "the others are one");
    }
}
