//! Transactions of the box: what they may have to take back is remembered before they begin.

use alloc::collections::BTreeMap;
use alloc::string::String;

use ebof_nvme::{Nsid, Status};

use super::attachments::exactly;
use super::decision::Decision;
use super::functions::FunctionTable;
use crate::change::unfinished::Unfinished;
use crate::change::{Change, State};
use crate::function::{self, FunctionId};
use crate::namespace::placement::Attachments;
use crate::namespace::{Namespace, VolumeId};
use crate::request::Refusal;

/// The transactions that are not over.
pub(super) struct Transactions<'a> {
    by_id: &'a BTreeMap<String, Unfinished>,
}

impl<'a> Transactions<'a> {
    pub(super) fn new(state: &'a State) -> Self {
        Self { by_id: &state.transactions }
    }

    pub(super) fn begin(&self, id: &str, before: &Unfinished) -> Result<Decision, Refusal> {
        let bytes = serde_json::to_vec(before).map_or(usize::MAX, |bytes| bytes.len());
        let is_known = self.by_id.contains_key(id);
        let is_full = self.by_id.len() >= Unfinished::MAX;
        if is_known || is_full || id.len() > Unfinished::ID_BYTES_MAX || bytes > Unfinished::BYTES_MAX {
            return Err(Refusal::new(Status::INVALID_FIELD));
        }
        Ok(Decision::change(Change::Began { transaction: id.into(), before: before.clone() }))
    }

    pub(super) fn end(&self, id: &str) -> Decision {
        if self.by_id.contains_key(id) { Decision::change(over(id)) } else { Decision::nothing() }
    }

    /// A transaction, with a namespace that it creates.
    pub(super) fn began_creating(&self, id: &str, volume: VolumeId) -> Result<Change, Refusal> {
        let mut before = self.find(id).ok_or(Refusal::new(Status::INVALID_FIELD))?.clone();
        before.created.insert(volume);
        if before.created.len() > Unfinished::CREATED_MAX {
            return Err(Refusal::new(Status::INVALID_FIELD));
        }
        Ok(Change::Began { transaction: id.into(), before })
    }

    /// What the objects of a transaction were.
    pub(super) fn find(&self, id: &str) -> Option<&'a Unfinished> {
        self.by_id.get(id)
    }
}

/// Makes functions and namespaces what they were before a transaction. A function whose resources
/// somebody else has by now stays offline without any; a namespace that is gone stays gone.
pub(super) fn undo(
    before: &Unfinished,
    functions: &FunctionTable<'_>,
    namespaces: &BTreeMap<u32, Namespace>,
) -> Decision {
    let mut decision = Decision::nothing();
    for (&id, function) in &functions.restored(&before.functions) {
        let now = functions.current(id);
        if now == *function {
            continue;
        }
        if now.online {
            decision.lost.push((Nsid::ALL, Some(FunctionId(id))));
        }
        let change = function::FunctionChange::Changed { id, function: function.clone() };
        decision.changes.push(Change::Functions { change });
    }
    for (&nsid, to) in &before.namespaces {
        let Some(namespace) = namespaces.get(&nsid) else { continue };
        let now = Attachments::from(namespace);
        if now != *to {
            decision.lost.extend(now.lost_by(to).into_iter().map(|who| (Nsid(nsid), who)));
            decision.changes.extend(exactly(nsid, &now, to));
        }
    }
    for (&nsid, &protected) in &before.protected {
        if namespaces.get(&nsid).is_some_and(|namespace| namespace.write_protected != protected) {
            decision.changes.push(Change::Protected { nsid, protected });
        }
    }
    for (&nsid, &ana_group) in &before.groups {
        if namespaces.get(&nsid).is_some_and(|namespace| namespace.ana_group != ana_group) {
            decision.changes.push(Change::Grouped { nsid, ana_group });
        }
    }
    decision
}

/// A transaction is over.
pub(super) fn over(id: &str) -> Change {
    Change::Over { transaction: id.into() }
}
