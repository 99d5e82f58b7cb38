//! Namespace Management and Attachment, write protection, and the assignment of controller
//! identifiers to hosts.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use ebof_nvme::log::persistent_event::ChangeNamespaceEvent;
use ebof_nvme::{ControllerId, Nsid, Status};

use super::{Decision, Drive, Effect};
use crate::budget::{ATTACHMENTS_BYTES_MAX, FUNCTION_BYTES, nqn_bytes};
use crate::change::{Change, CntlidAssignment};
use crate::event_log::Event;
use crate::function::{self, FunctionId};
use crate::namespace::{Namespace, NewNamespace, Shape, VolumeId};
use crate::request::{Answer, DecisionInput, Origin, Refusal};
use crate::self_test::Cause;

/// Assigned controller identifiers at most; then the oldest assignment is dropped.
const CNTLIDS_MAX: usize = 4096;

impl Drive {
    pub(super) fn create(
        &self,
        wanted: &NewNamespace,
        origin: &Origin,
        input: &DecisionInput,
    ) -> Result<Decision, Refusal> {
        self.may_manage(origin)?;
        let namespace = self.new_namespace(wanted, origin.host.to_string(), input)?;
        let claim = self.claim(&namespace);
        self.check_quota(origin, claim).map_err(|()| insufficient(claim))?;
        let nsid = self.free_nsid().ok_or(Refusal::new(Status::NAMESPACE_ID_UNAVAILABLE))?;
        Ok(Self::created(nsid, namespace, origin, input))
    }

    /// A namespace that the drive has room for, as the configuration says of new ones.
    pub(super) fn new_namespace(
        &self,
        wanted: &NewNamespace,
        owner: String,
        input: &DecisionInput,
    ) -> Result<Namespace, Refusal> {
        let mut shape = wanted.check()?;
        shape.checked = self.settings.checked;
        shape.encrypted = self.settings.encrypted;
        let claim = self.claimed_bytes(&shape);
        if claim > self.unallocated_bytes() && !self.settings.overcommit {
            return Err(insufficient(claim));
        }
        let volume = VolumeId(self.state.next_volume);
        let mut namespace = Namespace::new(shape, wanted.shared, volume, owner, input);
        namespace.for_everyone = self.settings.attach_everyone;
        Ok(namespace)
    }

    /// What creates a namespace.
    pub(super) fn created(nsid: u32, namespace: Namespace, origin: &Origin, input: &DecisionInput) -> Decision {
        let Namespace { volume, shape, .. } = namespace;
        let Shape { blocks, capacity_blocks, .. } = shape;
        Decision {
            answer: Answer::Done(nsid.into()),
            before: vec![Effect::Create { volume, blocks, capacity_blocks, block_format: shape.block_format() }],
            changes: vec![
                Change::Happened { event: change_event(0, nsid, &namespace, origin, input) },
                Change::Created { nsid, namespace },
            ],
            ..Decision::nothing()
        }
    }

    pub(super) fn delete(&self, nsid: Nsid, origin: &Origin, input: &DecisionInput) -> Result<Decision, Refusal> {
        self.may_manage(origin)?;
        let deleted: Vec<_> = match nsid {
            Nsid::ALL => self.state.namespaces.iter().map(|(&nsid, namespace)| (nsid, namespace)).collect(),
            _ => vec![(nsid.0, self.find(nsid)?)],
        };
        if deleted.iter().any(|(_, namespace)| namespace.write_protected) {
            return Err(Refusal::new(Status::NAMESPACE_WRITE_PROTECTED));
        }
        for (nsid, _) in &deleted {
            self.check_reservation(*nsid, origin)?;
        }
        let changes = deleted.iter().flat_map(|&(nsid, namespace)| deleted_by(nsid, namespace, origin, input));
        Ok(Decision {
            changes: changes.chain(self.interrupt_self_test(Cause::Removed(nsid))).collect(),
            after: deleted.iter().map(|(_, namespace)| Effect::Remove(namespace.volume)).collect(),
            ..Decision::nothing()
        })
    }

    pub(super) fn attach(
        &self,
        nsid: Nsid,
        controllers: &[ControllerId],
        origin: &Origin,
    ) -> Result<Decision, Refusal> {
        self.may_manage(origin)?;
        let namespace = self.find(nsid)?;
        self.check_reservation(nsid.0, origin)?;
        let (functions, hosts) = self.attachees(controllers, &BTreeSet::new())?;
        let is_attached = |id: &u16| namespace.functions.contains(id);
        if hosts.iter().any(|host| namespace.is_attached(host)) || functions.iter().any(is_attached) {
            return Err(Refusal::new(Status::NAMESPACE_ALREADY_ATTACHED));
        }
        let others = namespace.hosts.len() + namespace.functions.len() + usize::from(namespace.for_everyone);
        if self.is_alone(namespace) && (hosts.len() + functions.len() > 1 || others > 0) {
            return Err(Refusal::new(Status::NAMESPACE_IS_PRIVATE));
        }
        self.check_attachments(&hosts, &functions)?;
        let mut changes = attached(nsid.0, hosts);
        if !functions.is_empty() {
            let change = function::Change::Attached { nsid: nsid.0, functions };
            changes.push(Change::Functions { change });
        }
        Ok(Decision { changes, ..Decision::nothing() })
    }

    pub(super) fn detach(
        &self,
        nsid: Nsid,
        controllers: &[ControllerId],
        origin: &Origin,
    ) -> Result<Decision, Refusal> {
        self.may_manage(origin)?;
        let namespace = self.find(nsid)?;
        self.check_reservation(nsid.0, origin)?;
        let (functions, hosts) = self.attachees(controllers, &namespace.functions)?;
        if !hosts.iter().all(|host| namespace.is_attached(host)) || !functions.is_subset(&namespace.functions) {
            return Err(Refusal::new(Status::NAMESPACE_NOT_ATTACHED));
        }
        let mut decision = Decision::nothing();
        if !functions.is_empty() {
            decision.lost = functions.iter().map(|&id| (nsid, Some(FunctionId(id)))).collect();
            let change = function::Change::Detached { nsid: nsid.0, functions };
            decision.changes.push(Change::Functions { change });
        }
        if hosts.is_empty() {
            return Ok(decision);
        }
        decision.lost.push((nsid, None));
        decision.changes.push(Change::Detached { nsid: nsid.0, hosts: hosts.clone() });
        if namespace.for_everyone {
            // From now on the attached hosts are listed: all known ones but those.
            let others = self
                .state
                .assigned_cntlids
                .values()
                .map(|assignment| assignment.host.clone())
                .filter(|host| !hosts.contains(host));
            let others: BTreeSet<String> = others.filter(|host| !namespace.hosts.contains(host)).collect();
            // Deviation: ebof, the specification has this status for attaching only. Here hosts
            // would be attached by name, too.
            self.check_attachments(&others, &BTreeSet::new())?;
            decision.changes.extend(attached(nsid.0, others));
        }
        Ok(decision)
    }

    /// Refuses attachments of new hosts and functions to a namespace that exceed the limit of the
    /// drive.
    pub(super) fn check_attachments(&self, hosts: &BTreeSet<String>, functions: &BTreeSet<u16>) -> Result<(), Refusal> {
        let more = hosts.iter().map(|host| nqn_bytes(host)).sum::<usize>() + functions.len() * FUNCTION_BYTES;
        if more > 0 && self.state.attachment_bytes() + more > ATTACHMENTS_BYTES_MAX {
            return Err(Refusal::new(Status::NAMESPACE_ATTACHMENT_LIMIT_EXCEEDED));
        }
        Ok(())
    }

    pub(super) fn protect(&self, nsid: Nsid, protected: bool, origin: &Origin) -> Result<Decision, Refusal> {
        // The box has no namespaces attached.
        let namespace = if origin.is_box { self.find(nsid)? } else { self.find_attached(nsid, origin)? };
        if namespace.write_protected == protected {
            return Ok(Decision::nothing());
        }
        Ok(Decision::change(Change::Protected { nsid: nsid.0, protected }))
    }

    pub(super) fn assign_cntlid(&self, origin: &Origin, input: &DecisionInput) -> Decision {
        if origin.function.is_some() {
            // Namespaces are attached to the function, not to its hosts.
            return Decision::nothing();
        }
        let assignment = CntlidAssignment { host: origin.host.to_string(), taken_ms: input.unix_ms };
        let mut decision = Decision::change(Change::CntlidAssigned { cntlid: origin.cntlid.0, assignment });
        if self.state.assigned_cntlids.len() >= CNTLIDS_MAX
            && !self.state.assigned_cntlids.contains_key(&origin.cntlid.0)
        {
            let oldest = self
                .state
                .assigned_cntlids
                .iter()
                .min_by_key(|(_, assignment)| assignment.taken_ms)
                .map(|(&cntlid, _)| cntlid);
            decision.changes.insert(0, Change::CntlidsFreed { cntlids: oldest.into_iter().collect() });
        }
        decision
    }

    /// The box and the managers, except through functions: those are for I/O.
    pub(super) fn may_manage(&self, origin: &Origin) -> Result<(), Refusal> {
        let is_manager = origin.function.is_none() && self.settings.managers.contains(origin.host.as_str());
        if origin.is_box || is_manager { Ok(()) } else { Err(Refusal::new(Status::OPERATION_DENIED)) }
    }

    pub(super) fn check_quota(&self, origin: &Origin, claim: u64) -> Result<(), ()> {
        let host = origin.host.as_str();
        let Some(&quota) = self.settings.quotas.get(host) else { return Ok(()) };
        let own = self.state.namespaces.values().filter(|namespace| namespace.owner == host);
        let used = own.map(|namespace| self.claim(namespace)).fold(0, u64::saturating_add);
        if used.saturating_add(claim) <= quota { Ok(()) } else { Err(()) }
    }

    pub(super) fn free_nsid(&self) -> Option<u32> {
        (1..=self.settings.profile.namespaces).find(|nsid| !self.state.namespaces.contains_key(nsid))
    }

    /// The functions and the hosts of a list of controllers: 1 to the number of functions are
    /// secondary controllers, and so are those that a namespace is `attached` to.
    fn attachees(
        &self,
        controllers: &[ControllerId],
        attached: &BTreeSet<u16>,
    ) -> Result<(BTreeSet<u16>, BTreeSet<String>), Refusal> {
        let (functions, others) = self.split_controllers(controllers, attached);
        if self.settings.functions > 0 && others.iter().any(|cntlid| cntlid.0 <= FunctionId::MAX) {
            // The primary controller, functions that there are not, and identifiers that hosts had
            // before the drive had functions.
            return Err(Refusal::new(Status::CONTROLLER_LIST_INVALID));
        }
        let hosts = if others.is_empty() && !functions.is_empty() { BTreeSet::new() } else { self.hosts_of(&others)? };
        Ok((functions, hosts))
    }

    /// The hosts of a list of controllers. Attachment belongs to a host: all its controllers share
    /// it, also those that it creates later.
    pub(super) fn hosts_of(&self, controllers: &[ControllerId]) -> Result<BTreeSet<String>, Refusal> {
        let hosts = controllers
            .iter()
            .map(|cntlid| self.state.assigned_cntlids.get(&cntlid.0).map(|assignment| assignment.host.clone()));
        let hosts = hosts.collect::<Option<BTreeSet<_>>>().filter(|hosts| !hosts.is_empty());
        hosts.ok_or(Refusal::new(Status::CONTROLLER_LIST_INVALID))
    }
}

/// The changes that attach hosts, each small enough for the journal.
pub(super) fn attached(nsid: u32, hosts: BTreeSet<String>) -> Vec<Change> {
    const AT_ONCE: usize = 1024;
    let hosts: Vec<String> = hosts.into_iter().collect();
    let parts = hosts.chunks(AT_ONCE).map(|part| part.iter().cloned().collect());
    parts.map(|hosts| Change::Attached { nsid, hosts }).collect()
}

/// The error log entry has the bytes that would be needed (Base, Namespace Management: Namespace
/// Insufficient Capacity).
fn insufficient(claim: u64) -> Refusal {
    Refusal { information: claim, ..Refusal::new(Status::NAMESPACE_INSUFFICIENT_CAPACITY) }
}

/// The changes that delete a namespace.
pub(super) fn deleted_by(nsid: u32, namespace: &Namespace, origin: &Origin, input: &DecisionInput) -> [Change; 2] {
    let event = change_event(1, nsid, namespace, origin, input);
    [Change::Happened { event }, Change::Deleted { nsid }]
}

/// The event for a namespace that is created or deleted; `sel` is the action of the command.
fn change_event(sel: u32, nsid: u32, namespace: &Namespace, origin: &Origin, input: &DecisionInput) -> Event {
    let data = ChangeNamespaceEvent {
        nsmcdw10: sel.into(),
        nsze: namespace.shape.blocks.into(),
        ncap: namespace.shape.capacity_blocks.into(),
        flbas: namespace.shape.flbas(),
        dps: namespace.shape.protection.dps(),
        nmic: namespace.shared.into(),
        nsid: nsid.into(),
        ..ChangeNamespaceEvent::default()
    };
    Event::change_namespace(origin, input, &data)
}
