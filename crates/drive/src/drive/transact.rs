//! Transactions of the box: what they may have to take back is remembered before they begin.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use ebof_nvme::virtualization::ResourceType;
use ebof_nvme::{Nsid, Status};

use super::manage::attached;
use super::{Decision, Drive};
use crate::function::{self, Change, Function, FunctionId};
use crate::placement::Attachments;
use crate::request::{DecisionInput, Origin, Refusal};
use crate::unfinished::Unfinished;

impl Drive {
    pub(super) fn begin(&self, id: &str, before: &Unfinished, origin: &Origin) -> Result<Decision, Refusal> {
        is_box(origin)?;
        let transactions = &self.state.transactions;
        let bytes = serde_json::to_vec(before).map_or(usize::MAX, |bytes| bytes.len());
        let is_known = transactions.contains_key(id);
        let is_full = transactions.len() >= Unfinished::MAX;
        if is_known || is_full || id.len() > Unfinished::ID_BYTES_MAX || bytes > Unfinished::BYTES_MAX {
            return Err(Refusal::new(Status::INVALID_FIELD));
        }
        Ok(Decision::change(crate::Change::Began { transaction: id.into(), before: before.clone() }))
    }

    pub(super) fn end(&self, id: &str, origin: &Origin) -> Result<Decision, Refusal> {
        is_box(origin)?;
        if !self.state.transactions.contains_key(id) {
            return Ok(Decision::nothing());
        }
        Ok(Decision::change(crate::Change::Over { transaction: id.into() }))
    }

    /// Makes what a transaction was about what it was before, and forgets the transaction. A
    /// function whose resources somebody else has by now stays offline without any.
    pub(super) fn undo(&self, id: &str, origin: &Origin, input: &DecisionInput) -> Result<Decision, Refusal> {
        is_box(origin)?;
        let Some(before) = self.state.transactions.get(id) else { return Ok(Decision::nothing()) };
        let mut decision = Decision::nothing();
        for (&number, function) in &self.restored(&before.functions) {
            let now = self.state.functions.get(&number).cloned().unwrap_or_default();
            if now == *function {
                continue;
            }
            if now.online {
                decision.lost.push((Nsid::ALL, Some(FunctionId(number))));
            }
            let change = Change::Changed { id: number, function: function.clone() };
            decision.changes.push(crate::Change::Functions { change });
        }
        for (&nsid, to) in &before.namespaces {
            let Some(namespace) = self.state.namespaces.get(&nsid) else { continue };
            let now = Attachments::from(namespace);
            if now != *to {
                decision.lost.extend(now.lost_by(to).into_iter().map(|who| (Nsid(nsid), who)));
                decision.changes.extend(exactly(nsid, &now, to));
            }
        }
        for (&nsid, &protected) in &before.protected {
            if self.state.namespaces.get(&nsid).is_some_and(|namespace| namespace.write_protected != protected) {
                decision.changes.push(crate::Change::Protected { nsid, protected });
            }
        }
        for &volume in &before.created {
            self.withdraw_into(&mut decision, volume, origin, input);
        }
        // The last one: after a crash before it, all of it is done again.
        decision.changes.push(crate::Change::Over { transaction: id.into() });
        Ok(decision)
    }

    /// These functions as they are to be, with the resources that are left for them.
    fn restored(&self, before: &BTreeMap<u16, Function>) -> BTreeMap<u16, Function> {
        let mut all = self.functions();
        let is_there = |id: &u16| all.contains_key(id);
        let wanted: BTreeMap<u16, Function> =
            before.iter().filter(|(id, _)| is_there(id)).map(|(&id, function)| (id, function.clone())).collect();
        for (&id, function) in &wanted {
            let mut without = function.clone();
            without.go_offline();
            all.insert(id, without);
        }
        for (&id, function) in &wanted {
            let without = all.insert(id, function.clone());
            if !self.has_resources_for(&all)
                && let Some(without) = without
            {
                all.insert(id, without);
            }
        }
        all.retain(|id, _| wanted.contains_key(id));
        all
    }

    fn has_resources_for(&self, functions: &BTreeMap<u16, Function>) -> bool {
        let now = self.functions();
        [ResourceType::Queues, ResourceType::Interrupts].into_iter().all(|resource| {
            let total = function::flexible_total(&self.state.primary, &now, resource);
            function::assigned(functions, resource) + u32::from(self.state.primary.resources(resource)) <= total
        })
    }
}

/// The changes from who has a namespace `now` to who is to have it, those who lose it first.
pub(super) fn exactly(nsid: u32, now: &Attachments, to: &Attachments) -> Vec<crate::Change> {
    let Attachments { functions, hosts, for_everyone } = to.clone();
    let new = hosts.difference(&now.hosts).cloned().collect();
    // Hosts may be too many for one change; what stays is in the first one.
    let kept = hosts.intersection(&now.hosts).cloned().collect();
    let change = Change::Exactly { nsid, functions, hosts: kept, for_everyone };
    let mut changes: Vec<crate::Change> = [crate::Change::Functions { change }].into();
    changes.extend(attached(nsid, new));
    changes
}

pub(super) fn is_box(origin: &Origin) -> Result<(), Refusal> {
    if origin.is_box { Ok(()) } else { Err(Refusal::new(Status::OPERATION_DENIED)) }
}
