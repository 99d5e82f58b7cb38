//! Tells what is missing, and what has come.
//!
//! Owns what is missing beside the configuration. What is known of the configuration's is in
//! `missing.rs`, and how it comes in is `reload.rs`' matter.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ebof_manage::api::{MissingKind, MissingObject};
use ebof_manage::events::{EventKind, NewEvent};

use crate::shared::Shared;

/// What is missing of what belongs to the program around the target.
#[derive(Default)]
pub(crate) struct MissingElsewhere(Mutex<Vec<MissingObject>>);

/// What is to be told when something is missing, or is not any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MissingChange {
    Missing(MissingObject),
    Found(MissingObject),
}

impl MissingElsewhere {
    fn objects(&self) -> MutexGuard<'_, Vec<MissingObject>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that is missing.
    pub(crate) fn list(&self) -> Vec<MissingObject> {
        self.objects().clone()
    }

    /// Something is missing for a reason, or there. Returns what is new.
    pub(crate) fn tell(
        &self,
        kind: MissingKind,
        name: &str,
        reason: Option<String>,
        now_unix_ms: u64,
    ) -> Option<MissingChange> {
        let mut objects = self.objects();
        let before = objects.iter().position(|it| it.kind == kind && it.name == name);
        let before = before.map(|at| objects.swap_remove(at));
        let since_unix_ms = before.as_ref().map_or(now_unix_ms, |it| it.since_unix_ms);
        let now = reason.map(|reason| MissingObject { kind, name: name.to_owned(), reason, since_unix_ms });
        objects.extend(now.clone());
        match (before, now) {
            (None, Some(missing)) => Some(MissingChange::Missing(missing)),
            (Some(missing), None) => Some(MissingChange::Found(missing)),
            _ => None,
        }
    }
}

impl MissingChange {
    pub(crate) fn report(&self, shared: &Shared) {
        match self {
            Self::Missing(missing) => report_missing(shared, missing),
            Self::Found(missing) => report_found(shared, missing),
        }
    }
}

pub(crate) fn report_missing(shared: &Shared, missing: &MissingObject) {
    let MissingObject { kind, name, reason, .. } = missing;
    tracing::error!("NOT SERVED: {kind} {name} is missing: {reason}; it is looked for again and again");
    let message = format!("{kind} {name} is missing: {reason}");
    shared.report(NewEvent::new(EventKind::ObjectMissing, name, message));
}

pub(crate) fn report_found(shared: &Shared, missing: &MissingObject) {
    let MissingObject { kind, name, .. } = missing;
    tracing::info!("{kind} {name} is not missing any more");
    shared.report(NewEvent::new(EventKind::ObjectFound, name, format!("{kind} {name} is there")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_once_and_since_when_it_first_was() {
        let elsewhere = MissingElsewhere::default();
        let tell = |reason: Option<&str>, now| {
            elsewhere.tell(MissingKind::Management, "https", reason.map(ToOwned::to_owned), now)
        };
        assert_eq!(tell(None, 1), None);
        let missing = |reason: &str| MissingObject {
            kind: MissingKind::Management,
            name: "https".to_owned(),
            reason: reason.to_owned(),
            since_unix_ms: 2,
        };
        assert_eq!(tell(Some("in use"), 2), Some(MissingChange::Missing(missing("in use"))));
        assert_eq!(tell(Some("no address"), 3), None, "still missing");
        assert_eq!(elsewhere.list(), [missing("no address")]);
        assert_eq!(tell(None, 4), Some(MissingChange::Found(missing("no address"))));
        assert!(elsewhere.list().is_empty());
    }
}
