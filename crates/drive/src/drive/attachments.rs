//! Who has a namespace: functions, and hosts by the controller identifiers that are assigned to
//! them. An attachment belongs to a host, not to one of its controllers.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use ebof_nvme::{ControllerId, Nsid, Status};

use super::decision::Decision;
use super::functions::FunctionTable;
use crate::change::budget::{ATTACHMENTS_BYTES_MAX, FUNCTION_BYTES, attachment_bytes, nqn_bytes};
use crate::change::{Change, CntlidAssignment, State};
use crate::function::{self, FunctionId};
use crate::namespace::Namespace;
use crate::namespace::placement::Attachments;
use crate::request::{DecisionInput, Origin, Refusal};

/// Assigned controller identifiers at most; then the oldest assignment is dropped.
const CNTLIDS_MAX: usize = 4096;

/// Who has which namespace. Whether somebody may change that, and a namespace is reserved, was
/// checked before.
pub(super) struct AttachmentTable<'a> {
    namespaces: &'a BTreeMap<u32, Namespace>,
    cntlids: &'a BTreeMap<u16, CntlidAssignment>,
    functions: FunctionTable<'a>,
    /// A namespace has one host at a time, shared or not.
    is_exclusive: bool,
}

impl<'a> AttachmentTable<'a> {
    /// The attachments in the state of a drive with so many functions.
    pub(super) fn new(state: &'a State, functions: u16, is_exclusive: bool) -> Self {
        let functions = FunctionTable::new(state, functions);
        Self { namespaces: &state.namespaces, cntlids: &state.assigned_cntlids, functions, is_exclusive }
    }

    pub(super) fn attach(
        &self,
        nsid: Nsid,
        namespace: &Namespace,
        controllers: &[ControllerId],
    ) -> Result<Decision, Refusal> {
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
            let change = function::FunctionChange::Attached { nsid: nsid.0, functions };
            changes.push(Change::Functions { change });
        }
        Ok(Decision { changes, ..Decision::nothing() })
    }

    pub(super) fn detach(
        &self,
        nsid: Nsid,
        namespace: &Namespace,
        controllers: &[ControllerId],
    ) -> Result<Decision, Refusal> {
        let (functions, hosts) = self.attachees(controllers, &namespace.functions)?;
        if !hosts.iter().all(|host| namespace.is_attached(host)) || !functions.is_subset(&namespace.functions) {
            return Err(Refusal::new(Status::NAMESPACE_NOT_ATTACHED));
        }
        let mut decision = Decision::nothing();
        if !functions.is_empty() {
            decision.lost = functions.iter().map(|&id| (nsid, Some(FunctionId(id)))).collect();
            let change = function::FunctionChange::Detached { nsid: nsid.0, functions };
            decision.changes.push(Change::Functions { change });
        }
        if hosts.is_empty() {
            return Ok(decision);
        }
        decision.lost.push((nsid, None));
        decision.changes.push(Change::Detached { nsid: nsid.0, hosts: hosts.clone() });
        if namespace.for_everyone {
            // From now on the attached hosts are listed: all known ones but those.
            let others = self.known_hosts().filter(|host| !hosts.contains(host));
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
    fn check_attachments(&self, hosts: &BTreeSet<String>, functions: &BTreeSet<u16>) -> Result<(), Refusal> {
        let more = hosts.iter().map(|host| nqn_bytes(host)).sum::<usize>() + functions.len() * FUNCTION_BYTES;
        if more > 0 && attachment_bytes(self.namespaces) + more > ATTACHMENTS_BYTES_MAX {
            return Err(Refusal::new(Status::NAMESPACE_ATTACHMENT_LIMIT_EXCEEDED));
        }
        Ok(())
    }

    /// Moves a namespace to one function, or to none.
    pub(super) fn map(&self, nsid: Nsid, namespace: &Namespace, to: Option<FunctionId>) -> Result<Decision, Refusal> {
        let functions: BTreeSet<u16> = match to {
            Some(id) => [self.functions.find(id.controller())?.0.0].into(),
            None => BTreeSet::new(),
        };
        let leaves_hosts = self.is_alone(namespace) && (namespace.for_everyone || !namespace.hosts.is_empty());
        if namespace.functions == functions && !leaves_hosts {
            return Ok(Decision::nothing());
        }
        let lost = namespace.functions.difference(&functions).map(|&id| (nsid, Some(FunctionId(id))));
        let lost = lost.chain(leaves_hosts.then_some((nsid, None))).collect();
        let change = function::FunctionChange::Mapped { nsid: nsid.0, functions, without_hosts: leaves_hosts };
        Ok(Decision { lost, ..Decision::functions(change) })
    }

    /// Attaches a namespace to these functions and hosts, and to nobody else.
    pub(super) fn attach_exactly(
        &self,
        nsid: Nsid,
        namespace: &Namespace,
        to: &Attachments,
    ) -> Result<Decision, Refusal> {
        let now = Attachments::from(namespace);
        self.check_owners(self.is_alone(namespace), &now, to)?;
        Ok(exchanged(nsid, &now, to))
    }

    /// Attaches a namespace to these, too.
    pub(super) fn attach_more(
        &self,
        nsid: Nsid,
        namespace: &Namespace,
        more: &Attachments,
    ) -> Result<Decision, Refusal> {
        let mut to = Attachments::from(namespace);
        to.functions.extend(&more.functions);
        to.for_everyone |= more.for_everyone;
        let is_new = |host: &&String| !namespace.is_attached(host);
        to.hosts.extend(more.hosts.iter().filter(is_new).cloned());
        self.attach_exactly(nsid, namespace, &to)
    }

    /// Detaches a namespace from these. One that every host has is attached to all known ones then,
    /// without these.
    pub(super) fn detach_from(
        &self,
        nsid: Nsid,
        namespace: &Namespace,
        from: &Attachments,
    ) -> Result<Decision, Refusal> {
        let now = Attachments::from(namespace);
        let mut to = now.clone();
        if from.for_everyone {
            to.for_everyone = false;
        }
        if to.for_everyone && !from.hosts.is_empty() {
            to.for_everyone = false;
            to.hosts.extend(self.known_hosts());
        }
        to.functions.retain(|function| !from.functions.contains(function));
        to.hosts.retain(|host| !from.hosts.contains(host));
        // Those that are left of all may be several, of a private one, too: they had it.
        self.check_owners(false, &now, &to)?;
        Ok(exchanged(nsid, &now, &to))
    }

    /// Whether these may have a new namespace.
    pub(super) fn check_new(&self, namespace: &Namespace, to: &Attachments) -> Result<(), Refusal> {
        self.check_owners(self.is_alone(namespace), &Attachments::default(), to)
    }

    /// Whether these may have a namespace that has been attached to `now`.
    fn check_owners(&self, is_alone: bool, now: &Attachments, to: &Attachments) -> Result<(), Refusal> {
        to.functions.iter().try_for_each(|&id| self.functions.find(FunctionId(id).controller()).map(drop))?;
        let owners = to.functions.len() + to.hosts.len() + usize::from(to.for_everyone);
        if is_alone && owners > 1 {
            return Err(Refusal::new(Status::NAMESPACE_IS_PRIVATE));
        }
        let hosts: BTreeSet<String> = to.hosts.difference(&now.hosts).cloned().collect();
        let functions = to.functions.difference(&now.functions).copied().collect();
        self.check_attachments(&hosts, &functions)
    }

    pub(super) fn assign_cntlid(&self, origin: &Origin, input: &DecisionInput) -> Decision {
        if origin.function.is_some() {
            // Namespaces are attached to the function, not to its hosts.
            return Decision::nothing();
        }
        let assignment = CntlidAssignment { host: origin.host.to_string(), taken_ms: input.unix_ms };
        let mut decision = Decision::change(Change::CntlidAssigned { cntlid: origin.cntlid.0, assignment });
        if self.cntlids.len() >= CNTLIDS_MAX && !self.cntlids.contains_key(&origin.cntlid.0) {
            let oldest = self.cntlids.iter().min_by_key(|(_, assignment)| assignment.taken_ms).map(|(&id, _)| id);
            decision.changes.insert(0, Change::CntlidsFreed { cntlids: oldest.into_iter().collect() });
        }
        decision
    }

    /// The functions and the hosts of a list of controllers: 1 to the number of functions are
    /// secondary controllers, and so are those that a namespace is `attached` to.
    fn attachees(
        &self,
        controllers: &[ControllerId],
        attached: &BTreeSet<u16>,
    ) -> Result<(BTreeSet<u16>, BTreeSet<String>), Refusal> {
        let (functions, others) = self.split_controllers(controllers, attached);
        if self.functions.count() > 0 && others.iter().any(|cntlid| cntlid.0 <= FunctionId::MAX) {
            // The primary controller, functions that there are not, and identifiers that hosts had
            // before the drive had functions.
            return Err(Refusal::new(Status::CONTROLLER_LIST_INVALID));
        }
        let hosts = if others.is_empty() && !functions.is_empty() { BTreeSet::new() } else { self.hosts_of(&others)? };
        Ok((functions, hosts))
    }

    /// The hosts of a list of controllers. Attachment belongs to a host: all its controllers share
    /// it, also those that it creates later.
    fn hosts_of(&self, controllers: &[ControllerId]) -> Result<BTreeSet<String>, Refusal> {
        let hosts =
            controllers.iter().map(|cntlid| self.cntlids.get(&cntlid.0).map(|assignment| assignment.host.clone()));
        let hosts = hosts.collect::<Option<BTreeSet<_>>>().filter(|hosts| !hosts.is_empty());
        hosts.ok_or(Refusal::new(Status::CONTROLLER_LIST_INVALID))
    }

    /// Splits a controller list into functions and the rest. Besides the functions that there are,
    /// the `attached` ones are, which the configuration may have no more.
    fn split_controllers(
        &self,
        controllers: &[ControllerId],
        attached: &BTreeSet<u16>,
    ) -> (BTreeSet<u16>, Vec<ControllerId>) {
        // On a drive without functions the identifier may be a host's by now.
        let is_host = |id: u16| self.functions.count() == 0 && self.cntlids.contains_key(&id);
        let is_function = |cntlid: ControllerId| {
            let is_there = self.functions.find(cntlid).is_ok();
            is_there || attached.contains(&cntlid.0) && !is_host(cntlid.0)
        };
        let (functions, others): (Vec<_>, Vec<_>) = controllers.iter().partition(|&&cntlid| is_function(cntlid));
        (functions.into_iter().map(|cntlid: ControllerId| cntlid.0).collect(), others)
    }

    /// The hosts that have had a controller.
    fn known_hosts(&self) -> impl Iterator<Item = String> {
        self.cntlids.values().map(|assignment| assignment.host.clone())
    }

    /// Whether a namespace is attached to one controller at most.
    pub(super) fn is_alone(&self, namespace: &Namespace) -> bool {
        !namespace.shared || self.is_exclusive
    }
}

/// Those who have a namespace `now` lose it, unless they are to have it.
fn exchanged(nsid: Nsid, now: &Attachments, to: &Attachments) -> Decision {
    if now == to {
        return Decision::nothing();
    }
    let lost = now.lost_by(to).into_iter().map(|who| (nsid, who)).collect();
    Decision { lost, changes: exactly(nsid.0, now, to), ..Decision::nothing() }
}

/// The changes from who has a namespace `now` to who is to have it, those who lose it first.
pub(super) fn exactly(nsid: u32, now: &Attachments, to: &Attachments) -> Vec<Change> {
    let Attachments { functions, hosts, for_everyone } = to.clone();
    let new = hosts.difference(&now.hosts).cloned().collect();
    // Hosts may be too many for one change; what stays is in the first one.
    let kept = hosts.intersection(&now.hosts).cloned().collect();
    let change = function::FunctionChange::Exactly { nsid, functions, hosts: kept, for_everyone };
    let mut changes: Vec<Change> = [Change::Functions { change }].into();
    changes.extend(attached(nsid, new));
    changes
}

/// The changes that attach hosts, each small enough for the journal.
fn attached(nsid: u32, hosts: BTreeSet<String>) -> Vec<Change> {
    const AT_ONCE: usize = 1024;
    let hosts: Vec<String> = hosts.into_iter().collect();
    let parts = hosts.chunks(AT_ONCE).map(|part| part.iter().cloned().collect());
    parts.map(|hosts| Change::Attached { nsid, hosts }).collect()
}
