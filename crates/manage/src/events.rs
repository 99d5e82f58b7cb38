//! Events: what happened to a running target, for those who follow it.
//!
//! Owns [`Event`], the bounded [`EventLog`] and [`Events`], through which they are reported and
//! read. Deliberately knows neither a clock nor who is interested: times are in what is reported,
//! and whoever waits is woken by a callback. The JSON form is stable (see `docs/json.md`), guarded
//! by snapshots.

mod kind;
mod log;

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use serde::{Deserialize, Serialize};

use crate::api::Asker;

pub use kind::{EventKind, EventSeverity};
pub use log::{ENTRIES_MAX, EventLog};

/// The version of the JSON shape of [`Event`] and [`EventsSince`].
pub const EVENTS_SCHEMA: u32 = 1;

/// The most events of one answer.
pub const ANSWER_MAX: usize = 1024;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its number, without gaps since the start of the target. A later start has larger ones.
    pub id: u64,
    /// When it happened, in milliseconds since 1970-01-01T00:00:00Z; the last time where it
    /// happened several times.
    pub time_unix_ms: u64,
    /// Whether somebody has to look.
    pub severity: EventSeverity,
    /// What happened, for programs.
    pub kind: EventKind,
    /// What it happened to, by the name it has elsewhere: `d3/vf2`, `d3`, `d3/ns4`, `fabric0`, an
    /// NQN; empty for the target itself.
    pub object: String,
    /// What happened, for people.
    pub message: String,
    /// What to do about it.
    pub advice: Option<String>,
    /// Who caused it: an account, or the NQN or address of a host.
    pub who: Option<String>,
    /// The address that it came from, where it is known and not `who`'s name alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// How often it happened: more than 1 where events like it came quickly, one after the other,
    /// and were counted.
    pub count: u64,
}

/// An event before it has a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// See [`Event::severity`].
    pub severity: EventSeverity,
    /// See [`Event::kind`].
    pub kind: EventKind,
    /// See [`Event::object`].
    pub object: String,
    /// See [`Event::message`].
    pub message: String,
    /// See [`Event::advice`].
    pub advice: Option<String>,
    /// See [`Event::who`].
    pub who: Option<String>,
    /// See [`Event::from`].
    pub from: Option<String>,
}

/// The events after one that the reader has seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventsSince {
    /// [`EVENTS_SCHEMA`].
    pub events_schema: u32,
    /// When the target was started, in milliseconds since 1970-01-01T00:00:00Z. With a number from
    /// an earlier start a reader gets everything since this one began.
    pub started_unix_ms: u64,
    /// The number of the latest event; before the first the one before it.
    pub latest: u64,
    /// Events that were due and have made room for later ones.
    pub lost: u64,
    /// The events, the latest last. There are more if the last one is not `latest`.
    pub events: Vec<Event>,
}

/// What is called after an event: it must not block, nor report events itself.
pub type Wake = dyn Fn() + Send + Sync;

/// The events of a running target.
pub trait Events: Send + Sync {
    /// The events after number `id`, the oldest first, at most `max` and at most [`ANSWER_MAX`].
    fn since(&self, id: u64, max: usize) -> EventsSince;

    /// The number of the latest event; before the first the one before it.
    fn latest(&self) -> u64;

    /// Has `wake` called after each event, until it is dropped.
    fn subscribe(&self, wake: Weak<Wake>);

    /// Reports an event.
    fn report(&self, event: NewEvent);

    /// Forgets what happened, but for what somebody did ([`EventLog::clear`]), and tells how many
    /// events that were. Whoever has it done reports that ([`EventKind::LogCleared`]).
    fn clear(&self) -> usize;
}

impl NewEvent {
    /// An event of its kind's usual severity.
    #[must_use]
    pub fn new(kind: EventKind, object: impl Into<String>, message: impl Into<String>) -> Self {
        let (object, message) = (object.into(), message.into());
        Self { severity: kind.severity(), kind, object, message, advice: None, who: None, from: None }
    }

    /// With what to do about it.
    #[must_use]
    pub fn advice(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }

    /// With who caused it.
    #[must_use]
    pub fn who(self, who: impl Into<String>) -> Self {
        Self { who: Some(who.into()), ..self }
    }

    /// With the address that it came from.
    #[must_use]
    pub fn from(self, address: impl Into<String>) -> Self {
        Self { from: Some(address.into()), ..self }
    }

    /// With who asked for it: nobody, where the program did.
    #[must_use]
    pub fn by(self, asker: &Asker) -> Self {
        match asker {
            Asker::Start | Asker::Library => self,
            Asker::Account { name, .. } => self.who(name.clone()),
            other => self.who(other.to_string()),
        }
    }

    /// With another severity than its kind's usual one.
    #[must_use]
    pub fn severity(self, severity: EventSeverity) -> Self {
        Self { severity, ..self }
    }
}

/// `2026-...` is left to whoever prints times: `warning health-warning d3: the spare is low`.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.severity, self.kind)?;
        if !self.object.is_empty() {
            write!(f, " {}", self.object)?;
        }
        write!(f, ": {}", self.message)?;
        if let Some(advice) = &self.advice {
            write!(f, "; {advice}")?;
        }
        if self.count > 1 {
            write!(f, " ({} times)", self.count)?;
        }
        Ok(())
    }
}

/// An [`EventLog`] that threads share, and those who wait for it. Times come from `clock`:
/// milliseconds since 1970-01-01T00:00:00Z.
pub struct SharedEvents {
    clock: Box<dyn Fn() -> u64 + Send + Sync>,
    started_unix_ms: u64,
    log: Mutex<EventLog>,
    waiting: Mutex<Vec<Weak<Wake>>>,
}

impl SharedEvents {
    /// An empty log of at most `entries_max` events.
    pub fn new(entries_max: usize, clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        let started_unix_ms = clock();
        Self {
            clock: Box::new(clock),
            started_unix_ms,
            log: Mutex::new(EventLog::new(entries_max)),
            waiting: Mutex::default(),
        }
    }

    /// Numbers its events so that none has one that an event of an earlier start had: a reader who
    /// comes back after a restart misses nothing, and addresses of events are theirs alone. Leaves
    /// room for a million events in a second, and for numbers that a double holds exactly.
    #[must_use]
    pub fn numbered_by_start(self) -> Self {
        let base = (self.started_unix_ms / 1000) << 20;
        let log = self.log.into_inner().unwrap_or_else(PoisonError::into_inner).beginning_after(base);
        Self { log: Mutex::new(log), ..self }
    }

    /// Reports what was counted and is due. To be called about once in a second.
    pub fn tick(&self) {
        let now_unix_ms = (self.clock)();
        if self.lock().tick(now_unix_ms) {
            self.wake();
        }
    }

    /// How many events of each kind there were.
    pub fn counts(&self) -> Vec<(EventKind, u64)> {
        self.lock().counts()
    }

    fn lock(&self) -> MutexGuard<'_, EventLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|wake| wake.strong_count() > 0);
        let wakes: Vec<_> = waiting.iter().filter_map(Weak::upgrade).collect();
        drop(waiting);
        wakes.iter().for_each(|wake| wake());
    }
}

impl Events for SharedEvents {
    fn since(&self, id: u64, max: usize) -> EventsSince {
        let log = self.lock();
        let id = if id > log.latest() { 0 } else { id };
        let (events, lost) = log.since(id, max.min(ANSWER_MAX));
        let (started_unix_ms, latest) = (self.started_unix_ms, log.latest());
        EventsSince { events_schema: EVENTS_SCHEMA, started_unix_ms, latest, lost, events }
    }

    fn latest(&self) -> u64 {
        self.lock().latest()
    }

    fn subscribe(&self, wake: Weak<Wake>) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(wake);
    }

    fn report(&self, event: NewEvent) {
        let now_unix_ms = (self.clock)();
        let is_new = self.lock().record(now_unix_ms, event);
        if is_new {
            self.wake();
        }
    }

    fn clear(&self) -> usize {
        self.lock().clear()
    }
}

impl fmt::Debug for SharedEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedEvents").field("log", &self.log).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
