//! What the box asks of a drive in one step where a host needs several commands, or has none:
//! namespaces with those who have them, and whole firmware images.

use alloc::collections::BTreeSet;
use alloc::string::String;

use ebof_nvme::firmware::{Commit, CommitAction};
use ebof_nvme::{Nsid, Status};

use super::manage::deleted_by;
use super::transact::is_box;
use super::{Decision, Drive, Effect};
use crate::change::Change;
use crate::firmware::{Download, GRANULARITY_BYTES};
use crate::function::FunctionId;
use crate::namespace::{NewNamespace, VolumeId};
use crate::placement::Attachments;
use crate::request::{Answer, DecisionInput, Origin, Refusal};
use crate::self_test::Cause;
use crate::unfinished::Unfinished;

/// A namespace that the box creates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ordered {
    /// What it is.
    pub namespace: NewNamespace,
    /// Its NSID; `None`: the lowest that is free.
    pub nsid: Option<u32>,
    /// Who has it from the beginning; `None`: as the configuration says of new namespaces.
    pub attachments: Option<Attachments>,
    /// The transaction that it is a part of, and goes with if that is taken back.
    pub transaction: Option<String>,
}

impl Drive {
    pub(super) fn create_ordered(
        &self,
        ordered: &Ordered,
        origin: &Origin,
        input: &DecisionInput,
    ) -> Result<Decision, Refusal> {
        is_box(origin)?;
        let most = self.settings.profile.namespaces;
        let nsid = match ordered.nsid {
            Some(nsid) if !(1..=most).contains(&nsid) => return Err(Refusal::new(Status::INVALID_NAMESPACE)),
            Some(nsid) if self.state.namespaces.contains_key(&nsid) => {
                return Err(Refusal::new(Status::NAMESPACE_ID_UNAVAILABLE));
            }
            Some(nsid) => nsid,
            None => self.free_nsid().ok_or(Refusal::new(Status::NAMESPACE_ID_UNAVAILABLE))?,
        };
        let mut namespace = self.new_namespace(&ordered.namespace, String::new(), input)?;
        if let Some(to) = &ordered.attachments {
            self.check_owners(self.is_alone(&namespace), &Attachments::default(), to)?;
            let Attachments { functions, hosts, for_everyone } = to.clone();
            (namespace.functions, namespace.hosts, namespace.for_everyone) = (functions, hosts, for_everyone);
        }
        let volume = namespace.volume;
        let mut decision = Self::created(nsid, namespace, origin, input);
        if let Some(id) = &ordered.transaction {
            // First: whatever of this is stored before a crash is taken back.
            decision.changes.insert(0, self.began_creating(id, volume)?);
        }
        Ok(decision)
    }

    /// A transaction, with a namespace that it creates.
    fn began_creating(&self, id: &str, volume: VolumeId) -> Result<Change, Refusal> {
        let before = self.state.transactions.get(id).ok_or(Refusal::new(Status::INVALID_FIELD))?;
        let mut before = before.clone();
        before.created.insert(volume);
        if before.created.len() > Unfinished::CREATED_MAX {
            return Err(Refusal::new(Status::INVALID_FIELD));
        }
        Ok(Change::Began { transaction: id.into(), before })
    }

    /// Deletes a namespace that a transaction has created, if it is there, whatever protects it.
    pub(super) fn withdraw(
        &self,
        volume: VolumeId,
        origin: &Origin,
        input: &DecisionInput,
    ) -> Result<Decision, Refusal> {
        is_box(origin)?;
        let mut decision = Decision::nothing();
        self.withdraw_into(&mut decision, volume, origin, input);
        Ok(decision)
    }

    pub(super) fn withdraw_into(
        &self,
        decision: &mut Decision,
        volume: VolumeId,
        origin: &Origin,
        input: &DecisionInput,
    ) {
        let found = self.state.namespaces.iter().find(|(_, namespace)| namespace.volume == volume);
        let Some((&nsid, namespace)) = found else { return };
        decision.changes.extend(deleted_by(nsid, namespace, origin, input));
        decision.changes.extend(self.interrupt_self_test(Cause::Removed(Nsid(nsid))));
        decision.after.push(Effect::Remove(volume));
    }

    /// Attaches a namespace to these, too.
    pub(super) fn attach_more(&self, nsid: Nsid, more: &Attachments, origin: &Origin) -> Result<Decision, Refusal> {
        is_box(origin)?;
        let namespace = self.find(nsid)?;
        let mut to = Attachments::from(namespace);
        to.functions.extend(&more.functions);
        to.for_everyone |= more.for_everyone;
        let is_new = |host: &&String| !namespace.is_attached(host);
        to.hosts.extend(more.hosts.iter().filter(is_new).cloned());
        self.attach_exactly(nsid, &to, origin)
    }

    /// Detaches a namespace from these. One that every host has is attached to all known ones then,
    /// without these.
    pub(super) fn detach_from(&self, nsid: Nsid, from: &Attachments, origin: &Origin) -> Result<Decision, Refusal> {
        is_box(origin)?;
        let now = Attachments::from(self.find(nsid)?);
        let mut to = now.clone();
        if from.for_everyone {
            to.for_everyone = false;
        }
        if to.for_everyone && !from.hosts.is_empty() {
            to.for_everyone = false;
            to.hosts.extend(self.state.assigned_cntlids.values().map(|assignment| assignment.host.clone()));
        }
        to.functions.retain(|function| !from.functions.contains(function));
        to.hosts.retain(|host| !from.hosts.contains(host));
        // Those that are left of all may be several, of a private one, too: they had it.
        self.check_owners(false, &now, &to)?;
        Ok(Self::exchanged(nsid, &now, &to))
    }

    /// Whether these may have a namespace that has been attached to `now`.
    pub(super) fn check_owners(&self, is_alone: bool, now: &Attachments, to: &Attachments) -> Result<(), Refusal> {
        to.functions.iter().try_for_each(|&id| self.function_of(FunctionId(id).controller()).map(drop))?;
        let owners = to.functions.len() + to.hosts.len() + usize::from(to.for_everyone);
        if is_alone && owners > 1 {
            return Err(Refusal::new(Status::NAMESPACE_IS_PRIVATE));
        }
        let hosts: BTreeSet<String> = to.hosts.difference(&now.hosts).cloned().collect();
        let functions = to.functions.difference(&now.functions).copied().collect();
        self.check_attachments(&hosts, &functions)
    }

    /// Puts an image into a slot, which is answered with the slot; 0: the drive chooses. What hosts
    /// download meanwhile stays.
    pub(super) fn stage(
        &mut self,
        slot: u8,
        image: &[u8],
        origin: &Origin,
        input: &DecisionInput,
    ) -> Result<Decision, Refusal> {
        is_box(origin)?;
        let mut padded = image.to_vec();
        padded.resize(image.len().next_multiple_of(GRANULARITY_BYTES), 0);
        let mut download = Download::default();
        download.take(origin.cntlid, 0, &padded)?;
        let commit = Commit { action: CommitAction::Replace, slot, boot_partition: 0 };
        let (mut decision, slot) = self.committed(&download, commit, origin, input)?;
        decision.answer = Answer::Done(slot.into());
        Ok(decision)
    }
}

#[cfg(test)]
mod tests;
