//! What was in force before: who asked for a change, and the list of generations that a target
//! keeps.
//!
//! Owns the types, their limits and which generations are kept. Where they are stored is up to a
//! [`ConfigStore`](super::ConfigStore).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Revision;
use crate::plan::Plan;

/// The version of the JSON shape of [`History`].
pub const HISTORY_SCHEMA: u32 = 1;

/// The most generations that are kept.
pub const GENERATIONS_MAX: usize = 100;

/// The most bytes that the configurations of all kept generations have together. The one in force
/// and the one before it are kept in any case.
pub const GENERATIONS_BYTES_MAX: u64 = 64 << 20;

/// The most changes of a generation that are listed.
pub const LISTED_CHANGES_MAX: usize = 20;

/// The longest text of a change in the list, and the longest name of who asked, characters.
const TEXT_CHARS_MAX: usize = 200;

/// Who asked for something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Asker {
    /// The start of the target.
    Start,
    /// A signal.
    Signal {
        /// Its name, such as `SIGHUP`.
        signal: String,
    },
    /// A process of this machine, through the control socket.
    Local {
        /// Its user.
        uid: u32,
        /// Itself, if the system tells.
        pid: Option<i32>,
        /// What it was called when it asked.
        program: Option<String>,
    },
    /// An account, over the network.
    Account {
        /// Its name.
        name: String,
        /// From where.
        address: String,
    },
    /// The program that the target is a part of.
    Library,
}

/// Why a configuration is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// Who asked for it.
    pub by: Asker,
    /// What was asked for, such as `config apply`.
    pub action: String,
}

/// A configuration that is or was in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generation {
    /// Its number: each is larger than the one before.
    pub generation: u64,
    /// The revision of its configuration.
    pub revision: Revision,
    /// The generation that was in force before; `None` for the first one.
    pub previous: Option<u64>,
    /// Since when it is in force, in milliseconds since 1970-01-01T00:00:00Z.
    pub at_unix_ms: u64,
    /// Who asked for it, and by what.
    pub cause: Cause,
    /// The changes that led to it, at most [`LISTED_CHANGES_MAX`], each cut where it is long.
    pub changes: Vec<String>,
    /// How many more there were.
    pub changes_left_out: usize,
    /// The size of its configuration as TOML.
    pub bytes: u64,
}

/// The generations that are kept, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// [`HISTORY_SCHEMA`].
    pub schema: u32,
    /// The largest number that a generation has had.
    pub last: u64,
    /// Them. The last one is in force.
    pub generations: Vec<Generation>,
}

impl Cause {
    /// Something that was asked for by the program itself.
    #[must_use]
    pub fn library() -> Self {
        Self { by: Asker::Library, action: "apply".to_owned() }
    }

    /// What was asked for, and by whom.
    #[must_use]
    pub fn new(by: Asker, action: impl Into<String>) -> Self {
        Self { by, action: action.into() }
    }
}

impl fmt::Display for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("the start"),
            Self::Signal { signal } => f.write_str(signal),
            Self::Local { uid, pid, program } => {
                write!(f, "user {uid}")?;
                match (pid, program) {
                    (Some(pid), Some(program)) => write!(f, " (process {pid}, {program})"),
                    (Some(pid), None) => write!(f, " (process {pid})"),
                    _ => Ok(()),
                }
            }
            Self::Account { name, address } => write!(f, "account {name} at {address}"),
            Self::Library => f.write_str("the program"),
        }
    }
}

/// `config apply by user 0 (process 812, ebof)`.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", self.action, self.by)
    }
}

impl Default for History {
    fn default() -> Self {
        Self { schema: HISTORY_SCHEMA, last: 0, generations: Vec::new() }
    }
}

impl History {
    /// The generation in force.
    #[must_use]
    pub fn current(&self) -> Option<&Generation> {
        self.generations.last()
    }

    /// The generation with this number.
    #[must_use]
    pub fn generation(&self, number: u64) -> Option<&Generation> {
        self.generations.iter().find(|it| it.generation == number)
    }

    /// The generation that `name` is: a number, or a revision or its beginning (the latest one with
    /// it).
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Generation> {
        let numbered = name.parse().ok().and_then(|number| self.generation(number));
        // What few characters begin with, many do.
        let is_it = |it: &&Generation| name.len() >= 4 && it.revision.as_str().starts_with(name);
        numbered.or_else(|| self.generations.iter().rev().find(is_it))
    }

    /// The history with one more generation, and those that are not kept any more.
    #[must_use]
    pub fn with(
        &self,
        revision: Revision,
        bytes: u64,
        at_unix_ms: u64,
        plan: &Plan,
        cause: &Cause,
    ) -> (Self, Vec<u64>) {
        let mut next = self.clone();
        let previous = self.current().map(|it| it.generation);
        let changes = plan.changes.iter().take(LISTED_CHANGES_MAX).map(|change| cut(&change.to_string())).collect();
        next.last = self.last.saturating_add(1);
        next.generations.push(Generation {
            generation: next.last,
            revision,
            previous,
            at_unix_ms,
            cause: Cause { by: cause.by.clone(), action: cut(&cause.action) },
            changes,
            changes_left_out: plan.changes.len().saturating_sub(LISTED_CHANGES_MAX),
            bytes,
        });
        let mut gone = Vec::new();
        while next.generations.len() > GENERATIONS_MAX
            || next.generations.len() > 2
                && next.generations.iter().map(|it| it.bytes).sum::<u64>() > GENERATIONS_BYTES_MAX
        {
            gone.push(next.generations.remove(0).generation);
        }
        (next, gone)
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Change;

    fn cause() -> Cause {
        Cause::new(Asker::Local { uid: 7, pid: Some(812), program: Some("ebof".to_owned()) }, "config apply")
    }

    fn with(history: &History, revision: &str, bytes: u64) -> (History, Vec<u64>) {
        history.with(Revision::named(revision), bytes, 1000, &Plan::default(), &cause())
    }

    #[test]
    fn generations_are_numbered_and_the_oldest_go() {
        let mut history = History::default();
        assert_eq!(history.current(), None);
        let mut all_gone = Vec::new();
        for number in 0..=GENERATIONS_MAX {
            let (next, gone) = with(&history, &format!("{number:08}-rest"), 100);
            history = next;
            all_gone.extend(gone);
        }
        assert_eq!(all_gone, [1]);
        assert_eq!(history.generations.len(), GENERATIONS_MAX);
        let current = history.current().unwrap();
        assert_eq!((current.generation, current.previous), (101, Some(100)));
        assert_eq!(history.named("50").unwrap().generation, 50);
        assert_eq!(history.named("00000049-").unwrap().generation, 50, "a revision");
        assert_eq!(history.named("0000004").unwrap().generation, 4, "a number comes first");
        assert_eq!(history.named("000000").unwrap().generation, 100, "the latest");
        assert_eq!((history.named("1"), history.named("zzzz"), history.named("-")), (None, None, None));
    }

    #[test]
    fn large_configurations_leave_room_for_two() {
        let (one, _) = with(&History::default(), "a", GENERATIONS_BYTES_MAX);
        let (two, gone) = with(&one, "b", GENERATIONS_BYTES_MAX);
        assert!(gone.is_empty());
        let (three, gone) = with(&two, "c", 10);
        assert_eq!((gone, three.generations.len()), (vec![1], 2));
    }

    #[test]
    fn what_is_listed_has_limits() {
        let change = Change::RemoveHost { nqn: "n".repeat(1000), had_keys: false };
        let plan = Plan { changes: vec![change; LISTED_CHANGES_MAX + 3] };
        let (history, _) = History::default().with(Revision::named("a"), 1, 1000, &plan, &cause());
        let listed = history.current().unwrap();
        assert_eq!((listed.changes.len(), listed.changes_left_out), (LISTED_CHANGES_MAX, 3));
        assert_eq!(listed.changes[0].len(), TEXT_CHARS_MAX + 3);
    }

    #[test]
    fn who_asked_is_told() {
        let told = |by: Asker| Cause::new(by, "config apply").to_string();
        assert_eq!(cause().to_string(), "config apply by user 7 (process 812, ebof)");
        let local = |pid| Asker::Local { uid: 7, pid, program: None };
        assert_eq!(told(local(Some(1))), "config apply by user 7 (process 1)");
        assert_eq!(told(local(None)), "config apply by user 7");
        let account = Asker::Account { name: "admin".to_owned(), address: "192.0.2.1".to_owned() };
        assert_eq!(told(account.clone()), "config apply by account admin at 192.0.2.1");
        let json = serde_json::to_string(&account).unwrap();
        assert_eq!(json, r#"{"kind":"account","name":"admin","address":"192.0.2.1"}"#);
    }
}
