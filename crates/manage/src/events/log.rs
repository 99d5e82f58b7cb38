//! The events that are remembered.
//!
//! Bounded in each direction: in number; by kind, so that many events of one kind do not drive out
//! those of others; in length of texts, which hosts choose; and in rate, for kinds that hosts can
//! cause at will. Of those, [`ALIKE_MAX`] alike in [`WINDOW_MS`] are stored, and [`OF_KIND_MAX`] of
//! a kind; the others are counted, and one event tells how many there were when the time is over.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::{Event, EventKind, NewEvent};

/// Events that a log remembers, unless told otherwise.
pub const ENTRIES_MAX: usize = 4096;

/// How long events that others cause are counted together, milliseconds.
const WINDOW_MS: u64 = 10_000;

/// Events alike (kind, object, who) that are stored in that time.
const ALIKE_MAX: u32 = 4;

/// Events of a kind that are stored in that time.
const OF_KIND_MAX: u32 = 64;

/// Bytes of each text of an event.
const TEXT_BYTES_MAX: usize = 512;

/// The part of the log that one kind can have.
const KIND_PART: usize = 4;

/// Events, the latest last.
#[derive(Clone, Debug)]
pub struct EventLog {
    entries: BTreeMap<u64, Event>,
    pub(super) by_kind: BTreeMap<EventKind, VecDeque<u64>>,
    entries_max: usize,
    latest: u64,
    /// The number before the first.
    base: u64,
    /// The latest event when the log was cleared: nobody is told that those before it are lost.
    cleared: u64,
    /// How many there were of each kind, those that were counted only too.
    counts: BTreeMap<EventKind, u64>,
    pub(super) windows: HashMap<EventKind, Window>,
}

/// What others caused of one kind, counted from its first event on.
#[derive(Clone, Debug)]
pub(super) struct Window {
    since_unix_ms: u64,
    stored: u32,
    pub(super) alike: HashMap<(String, Option<String>), Alike>,
    /// Those beyond [`OF_KIND_MAX`] that are like none in `alike`.
    others: Alike,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Alike {
    stored: u32,
    /// The latest that was not stored, and when.
    last: Option<(u64, NewEvent)>,
    counted: u64,
}

impl EventLog {
    /// Remembers at most `entries_max` events; with 0 it numbers them only.
    #[must_use]
    pub fn new(entries_max: usize) -> Self {
        let (entries, by_kind, windows) = (BTreeMap::new(), BTreeMap::new(), HashMap::new());
        Self { entries, by_kind, entries_max, latest: 0, base: 0, cleared: 0, counts: BTreeMap::new(), windows }
    }

    /// The first event has the number after `base`.
    #[must_use]
    pub fn beginning_after(self, base: u64) -> Self {
        Self { latest: base, base, ..self }
    }

    /// The number of the latest event; before the first the one before it.
    #[must_use]
    pub fn latest(&self) -> u64 {
        self.latest
    }

    /// The events after number `id`, the oldest first and at most `max`, and how many of those
    /// after `id` (and not after the last of a full answer) are not remembered any more.
    #[must_use]
    pub fn since(&self, id: u64, max: usize) -> (Vec<Event>, u64) {
        let events: Vec<_> =
            self.entries.range(id.saturating_add(1)..).take(max).map(|(_, event)| event.clone()).collect();
        // Those of an earlier start were never here, and those that were cleared are not missed.
        let id = id.max(self.base).max(self.cleared);
        let is_full = events.len() == max;
        let end = events.last().filter(|_| is_full).map_or(self.latest, |event| event.id);
        let due = end.saturating_sub(id);
        let found = events.iter().filter(|event| event.id > id).count();
        let lost = if max == 0 { 0 } else { due.saturating_sub(found as u64) };
        (events, lost)
    }

    /// Forgets all events but those that tell what somebody did ([`EventKind::is_trail`]). The
    /// answer is how many it forgot. Numbers go on.
    pub fn clear(&mut self) -> usize {
        let before = self.entries.len();
        self.entries.retain(|_, event| event.kind.is_trail());
        self.by_kind.retain(|kind, _| kind.is_trail());
        self.cleared = self.latest;
        before - self.entries.len()
    }

    /// How many events of each kind there were, of those without any too.
    #[must_use]
    pub fn counts(&self) -> Vec<(EventKind, u64)> {
        EventKind::ALL.iter().map(|kind| (*kind, self.counts.get(kind).copied().unwrap_or_default())).collect()
    }

    /// Remembers an event, or counts it. The answer is whether there is a new one to read.
    pub fn record(&mut self, now_unix_ms: u64, mut event: NewEvent) -> bool {
        let texts = [&mut event.object, &mut event.message];
        texts.into_iter().chain(&mut event.advice).chain(&mut event.who).for_each(cut);
        *self.counts.entry(event.kind).or_default() += 1;
        let told = self.expire(now_unix_ms, event.kind);
        if event.kind.is_by_others() && !self.admit(now_unix_ms, &event) {
            return told;
        }
        self.store(now_unix_ms, event, 1);
        true
    }

    /// Stores events for what was counted, when its time is over. The answer is whether there is a
    /// new one to read.
    pub fn tick(&mut self, now_unix_ms: u64) -> bool {
        let kinds: Vec<_> = self.windows.keys().copied().collect();
        let told = kinds.into_iter().filter(|kind| self.expire(now_unix_ms, *kind)).count();
        told > 0
    }

    /// Ends the window of a kind if its time is over. A clock that was set back ends it, too.
    fn expire(&mut self, now_unix_ms: u64, kind: EventKind) -> bool {
        let is_over = |window: &Window| {
            now_unix_ms.checked_sub(window.since_unix_ms).is_none_or(|elapsed_ms| elapsed_ms >= WINDOW_MS)
        };
        let Some(window) = self.windows.get(&kind).filter(|window| is_over(window)) else { return false };
        let mut counted: Vec<_> = window.alike.values().chain([&window.others]).cloned().collect();
        self.windows.remove(&kind);
        counted.retain(|alike| alike.last.is_some());
        counted.sort_by_key(|alike| alike.last.as_ref().map(|(at, _)| *at));
        let told = !counted.is_empty();
        for Alike { last, counted, .. } in counted {
            if let Some((at_unix_ms, event)) = last {
                self.store(at_unix_ms, event, counted);
            }
        }
        told
    }

    /// Whether an event that others cause is stored; otherwise it is counted.
    fn admit(&mut self, now_unix_ms: u64, event: &NewEvent) -> bool {
        let window = self.windows.entry(event.kind).or_insert_with(|| Window {
            since_unix_ms: now_unix_ms,
            stored: 0,
            alike: HashMap::new(),
            others: Alike::default(),
        });
        let key = (event.object.clone(), event.who.clone());
        // There is an entry only for what was stored at least once: at most OF_KIND_MAX.
        let alike = if window.stored < OF_KIND_MAX {
            window.alike.entry(key).or_default()
        } else {
            window.alike.get_mut(&key).unwrap_or(&mut window.others)
        };
        if window.stored < OF_KIND_MAX && alike.stored < ALIKE_MAX {
            alike.stored += 1;
            window.stored += 1;
            return true;
        }
        alike.last = Some((now_unix_ms, event.clone()));
        alike.counted = alike.counted.saturating_add(1);
        false
    }

    fn store(&mut self, time_unix_ms: u64, event: NewEvent, count: u64) {
        self.latest += 1;
        let id = self.latest;
        if self.entries_max == 0 {
            return;
        }
        let of_kind = self.by_kind.entry(event.kind).or_default();
        let is_full = self.entries.len() >= self.entries_max;
        if of_kind.len() >= (self.entries_max / KIND_PART).max(1) {
            // The oldest of its kind makes room.
            of_kind.pop_front().map(|oldest| self.entries.remove(&oldest));
        } else if is_full && let Some((_, oldest)) = self.entries.pop_first() {
            self.by_kind.entry(oldest.kind).or_default().pop_front();
        }
        self.by_kind.entry(event.kind).or_default().push_back(id);
        let NewEvent { severity, kind, object, message, advice, who, from } = event;
        self.entries.insert(id, Event { id, time_unix_ms, severity, kind, object, message, advice, who, from, count });
    }
}

fn cut(text: &mut String) {
    if text.len() > TEXT_BYTES_MAX {
        let end = (0..=TEXT_BYTES_MAX).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
    }
}
