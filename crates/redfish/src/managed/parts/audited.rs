//! Whoever has the audit log.

/// The log of who has changed what, and of what was refused.
pub trait Audited: Send + Sync {
    /// The latest records, at most `most`, the latest last; `None` if there is no such log, or it
    /// cannot be read.
    fn records(&self, most: usize) -> Option<Vec<AuditedRecord>>;

    /// Whether there is such a log.
    fn is_on(&self) -> bool;
}

/// A record of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditedRecord {
    /// Its number.
    pub n: u64,
    /// When, in milliseconds since 1970-01-01T00:00:00Z.
    pub time_unix_ms: u64,
    /// What it is about: `change`, `login`, `connection`, `event`, `log`.
    pub kind: &'static str,
    /// Who; empty if that is nobody.
    pub who: String,
    /// From where; empty if that is not told.
    pub from: String,
    /// What was done or asked for: a verb, a method and an address, or the name of an event.
    pub what: String,
    /// To what; empty for the target.
    pub object: String,
    /// How it ended: `done`, `began`, `refused`, `failed`.
    pub outcome: &'static str,
    /// More about that.
    pub detail: String,
    /// How often.
    pub count: u64,
    /// Its hash.
    pub hash: String,
}

/// What a service is that records nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoAudit;

impl Audited for NoAudit {
    fn records(&self, _most: usize) -> Option<Vec<AuditedRecord>> {
        None
    }

    fn is_on(&self) -> bool {
        false
    }
}
