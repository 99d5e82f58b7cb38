//! What a record says, and its line: JSON with the keys in one order, so that the hash is that of
//! the bytes in the file.

use serde::{Deserialize, Serialize};

use crate::chain::{ChainHead, Hash};

/// The longest text of a record, bytes.
const TEXT_BYTES_MAX: usize = 512;

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RecordKind {
    /// A request of management that changes something, or was to.
    Change,
    /// Somebody logs in, or is not let in.
    Login,
    /// A host at the fabric.
    Connection,
    /// What became of a change, and what happened to the target without a request.
    Event,
    /// The log itself: where something is missing, and why.
    Log,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RecordOutcome {
    /// As it was meant to.
    Done,
    /// It goes on: a later record tells.
    Began,
    /// Whoever asked may not, or asked for what cannot be.
    Refused,
    /// The target could not, or it is not known whether it has.
    Failed,
}

impl RecordKind {
    /// Its name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Change => "change",
            Self::Login => "login",
            Self::Connection => "connection",
            Self::Event => "event",
            Self::Log => "log",
        }
    }
}

impl RecordOutcome {
    /// Its name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Began => "began",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// What is to be recorded. Texts lose their control characters, and what is beyond 512 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRecord {
    pub(crate) kind: RecordKind,
    pub(crate) who: String,
    pub(crate) from: String,
    pub(crate) what: String,
    pub(crate) object: String,
    pub(crate) outcome: RecordOutcome,
    pub(crate) detail: String,
    pub(crate) count: u64,
}

impl NewRecord {
    /// That something was asked for, or happened.
    #[must_use]
    pub fn new(kind: RecordKind, what: &str, outcome: RecordOutcome) -> Self {
        let (who, from, object, detail) = (String::new(), String::new(), String::new(), String::new());
        Self { kind, who, from, what: printable(what), object, outcome, detail, count: 1 }
    }

    /// Who has: an account with its role, a process of this machine, a host.
    #[must_use]
    pub fn who(self, who: &str) -> Self {
        Self { who: printable(who), ..self }
    }

    /// From where: an address, the control socket.
    #[must_use]
    pub fn from(self, from: &str) -> Self {
        Self { from: printable(from), ..self }
    }

    /// What it is about, by the name that it has elsewhere.
    #[must_use]
    pub fn object(self, object: &str) -> Self {
        Self { object: printable(object), ..self }
    }

    /// More about how it ended.
    #[must_use]
    pub fn detail(self, detail: &str) -> Self {
        Self { detail: printable(detail), ..self }
    }

    /// How often: 1 unless told.
    #[must_use]
    pub fn count(self, count: u64) -> Self {
        Self { count, ..self }
    }

    /// Whether others can cause any number of them: what is refused.
    pub(crate) fn is_by_strangers(&self) -> bool {
        self.outcome == RecordOutcome::Refused
    }
}

/// A record of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditRecord {
    /// Its number, from 1, without gaps.
    pub n: u64,
    /// When it was written, in milliseconds since 1970-01-01T00:00:00Z.
    pub time_unix_ms: u64,
    /// What it is about.
    pub kind: RecordKind,
    /// Who; empty where nobody has asked.
    pub who: String,
    /// From where; empty where that is known by `who`, or to nobody.
    pub from: String,
    /// What was asked for, or happened.
    pub what: String,
    /// What it is about; empty for the target as a whole.
    pub object: String,
    /// How it ended.
    pub outcome: RecordOutcome,
    /// More about that.
    pub detail: String,
    /// How often.
    pub count: u64,
    /// The hash of the record before; zeros in the first one.
    pub prev: Hash,
    /// Its own: SHA-256 of a line, "ebof audit record 1", and its line up to this key.
    pub hash: Hash,
}

/// A record without its own hash.
#[derive(Serialize)]
struct Unsealed<'c> {
    n: u64,
    time_unix_ms: u64,
    kind: RecordKind,
    who: &'c str,
    from: &'c str,
    what: &'c str,
    object: &'c str,
    outcome: RecordOutcome,
    detail: &'c str,
    count: u64,
    prev: Hash,
}

/// What stands between a record and its hash, and behind that.
const BEFORE_HASH: &str = ",\"hash\":\"";
const AFTER_HASH: &str = "\"}";

impl AuditRecord {
    /// The record after `before`, and its line.
    pub(crate) fn seal(content: &NewRecord, time_unix_ms: u64, before: ChainHead) -> (Self, String) {
        let NewRecord { kind, who, from, what, object, outcome, detail, count } = content;
        let (kind, outcome, count, n, prev) = (*kind, *outcome, *count, before.n + 1, before.hash);
        let unsealed = Unsealed { n, time_unix_ms, kind, who, from, what, object, outcome, detail, count, prev };
        let mut line = serde_json::to_string(&unsealed).expect("texts and numbers become JSON");
        line.truncate(line.len() - 1);
        let hash = Hash::of_line(line.as_bytes());
        line = format!("{line}{BEFORE_HASH}{hash}{AFTER_HASH}\n");
        let NewRecord { who, from, what, object, detail, .. } = content.clone();
        let record = Self { n, time_unix_ms, kind, who, from, what, object, outcome, detail, count, prev, hash };
        (record, line)
    }

    /// The record of a line without its end, if its hash is that of the line.
    pub(crate) fn unseal(line: &[u8]) -> Result<Self, Broken> {
        let text = std::str::from_utf8(line).map_err(|_other| Broken::NoRecord)?;
        let record: Self = serde_json::from_str(text).map_err(|_other| Broken::NoRecord)?;
        let (sealed, hash) = text.rsplit_once(BEFORE_HASH).ok_or(Broken::NoRecord)?;
        let hash: Hash = hash.strip_suffix(AFTER_HASH).and_then(|hash| hash.parse().ok()).ok_or(Broken::NoRecord)?;
        // A second key of this name would be somebody's own.
        if hash == record.hash && hash == Hash::of_line(sealed.as_bytes()) { Ok(record) } else { Err(Broken::Changed) }
    }

    /// Its number and hash.
    #[must_use]
    pub const fn head(&self) -> ChainHead {
        ChainHead { n: self.n, hash: self.hash }
    }
}

/// What is wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    NoRecord,
    Changed,
}

/// A text for a line: without control characters, and not too long.
fn printable(text: &str) -> String {
    let mut left = TEXT_BYTES_MAX;
    let fits = |c: &char| left.checked_sub(c.len_utf8()).map(|less| left = less).is_some();
    text.chars().filter(|c| !c.is_control()).take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written_and_no_other_is() {
        let content =
            NewRecord::new(RecordKind::Change, "PATCH \"x\"\n\u{1b}[2J", RecordOutcome::Done).who("ä").object("d3");
        let (record, line) = AuditRecord::seal(&content, 5, ChainHead::NONE);
        assert_eq!(record.what, "PATCH \"x\"[2J");
        let line = line.trim_end();
        assert_eq!(AuditRecord::unseal(line.as_bytes()), Ok(record.clone()));
        assert!(line.starts_with("{\"n\":1,\"time_unix_ms\":5,\"kind\":\"change\",\"who\":\"ä\""), "{line}");
        for at in 0..line.len() {
            let mut other = line.as_bytes().to_vec();
            other[at] ^= 1;
            assert!(AuditRecord::unseal(&other).is_err(), "{}", String::from_utf8_lossy(&other));
            assert!(AuditRecord::unseal(&line.as_bytes()[..at]).is_err());
        }
        let twice = line.replace(BEFORE_HASH, &format!("{BEFORE_HASH}{}\",\"hash\":\"", record.hash));
        assert!(AuditRecord::unseal(twice.as_bytes()).is_err());
    }

    #[test]
    fn the_longest_line_is_within_its_limit() {
        let long = "\"\\".repeat(1000);
        let content = NewRecord::new(RecordKind::Connection, &long, RecordOutcome::Refused).who(&long).from(&long);
        let content = content.object(&long).detail(&long).count(u64::MAX);
        let (_, line) = AuditRecord::seal(&content, u64::MAX, ChainHead { n: u64::MAX - 1, hash: Hash::of_line(b"") });
        assert!(line.len() < 8192, "{}", line.len());
    }
}
