//! Functions: their resources and states (Virtualization Management), the ports that they are given
//! to, their shares, and namespaces that are moved between them.
//!
//! Flexible resources go to functions and to the primary controller. Together they never exceed the
//! total: each assignment is checked against what is left, and a reset of the primary, which puts
//! its new allocation in force, takes the resources of all functions away.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use ebof_nvme::virtualization::{ResourceType, VirtualizationAction, VirtualizationManagement};
use ebof_nvme::{ControllerId, Nsid, Status};

use super::place::check_port;
use super::{Decision, Drive};
use crate::function::{self, Change, Function, FunctionId, Primary, Share};
use crate::namespace::Namespace;
use crate::request::{Answer, Origin, Refusal};

impl Drive {
    /// The functions that the configuration says, as they are.
    #[must_use]
    pub fn functions(&self) -> BTreeMap<u16, Function> {
        let all = 1..=self.settings.functions.min(FunctionId::MAX);
        all.map(|id| (id, self.state.functions.get(&id).cloned().unwrap_or_default())).collect()
    }

    pub(super) fn virtualize(&self, command: &VirtualizationManagement, origin: &Origin) -> Result<Decision, Refusal> {
        self.may_manage(origin)?;
        if self.settings.functions == 0 {
            return Err(Refusal::at(Status::INVALID_OPCODE, 0));
        }
        match command.action {
            VirtualizationAction::AllocateToPrimary => self.allocate_to_primary(command),
            VirtualizationAction::Offline => {
                let (id, mut function) = self.function_of(command.cntlid)?;
                let lost = everything_of(id, function.online);
                function.go_offline();
                Ok(Decision { lost, ..self.function_changed(id, function) })
            }
            VirtualizationAction::Assign => self.assign(command),
            VirtualizationAction::Online => {
                let (id, function) = self.function_of(command.cntlid)?;
                if !function.can_go_online() {
                    return Err(Refusal::new(Status::INVALID_SECONDARY_STATE));
                }
                Ok(self.function_changed(id, Function { online: true, ..function }))
            }
            VirtualizationAction::Reserved(_) => Err(Refusal::at(Status::INVALID_FIELD, DWORD_10)),
        }
    }

    fn allocate_to_primary(&self, command: &VirtualizationManagement) -> Result<Decision, Refusal> {
        if command.cntlid != ControllerId(0) {
            return Err(Refusal::at(Status::INVALID_CONTROLLER_ID, CNTLID));
        }
        let total = function::flexible_total(&self.state.primary, &self.functions(), command.resource);
        let count = command.count;
        if u32::from(count) > total {
            return Err(Refusal::at(Status::INVALID_CONTROLLER_RESOURCES, DWORD_11));
        }
        let mut primary = self.state.primary;
        match command.resource {
            ResourceType::Queues => primary.next_queues = count,
            ResourceType::Interrupts => primary.next_interrupts = count,
            ResourceType::Reserved(_) => return Err(Refusal::at(Status::INVALID_RESOURCE_ID, RESOURCE)),
        }
        if u32::from(count) > total.saturating_sub(function::assigned(&self.functions(), command.resource)) {
            return Err(Refusal::at(Status::INVALID_RESOURCE_ID, DWORD_11));
        }
        let changes = (primary != self.state.primary).then_some(Change::Allocated { primary });
        let changes = changes.into_iter().map(|change| crate::Change::Functions { change }).collect();
        Ok(Decision { answer: Answer::Done(count.into()), changes, ..Decision::nothing() })
    }

    fn assign(&self, command: &VirtualizationManagement) -> Result<Decision, Refusal> {
        let (id, mut function) = self.function_of(command.cntlid)?;
        let count = command.count;
        let resource = command.resource;
        if let ResourceType::Reserved(_) = resource {
            return Err(Refusal::at(Status::INVALID_RESOURCE_ID, RESOURCE));
        }
        if function.online {
            return Err(Refusal::new(Status::INVALID_SECONDARY_STATE));
        }
        self.check_resources(&function, resource, count)?;
        match resource {
            ResourceType::Queues => function.queues = count,
            ResourceType::Interrupts | ResourceType::Reserved(_) => function.interrupts = count,
        }
        Ok(Decision { answer: Answer::Done(count.into()), ..self.function_changed(id, function) })
    }

    pub(super) fn give_to(&self, id: FunctionId, port: Option<&String>, origin: &Origin) -> Result<Decision, Refusal> {
        self.may_manage(origin)?;
        let (id, function) = self.function_of(id.controller())?;
        check_port(port.map(String::as_str))?;
        let lost = everything_of(id, function.online && function.port.is_some() && function.port.as_ref() != port);
        Ok(Decision { lost, ..self.function_changed(id, Function { port: port.cloned(), ..function }) })
    }

    pub(super) fn set_share(&self, id: FunctionId, share: Share, origin: &Origin) -> Result<Decision, Refusal> {
        self.may_manage(origin)?;
        let (id, function) = self.function_of(id.controller())?;
        if !share.is_legal() {
            return Err(Refusal::new(Status::INVALID_FIELD));
        }
        Ok(self.function_changed(id, Function { share, ..function }))
    }

    /// Moves a namespace to one function, or to none.
    pub(super) fn map(&self, nsid: Nsid, to: Option<FunctionId>, origin: &Origin) -> Result<Decision, Refusal> {
        self.may_manage(origin)?;
        let namespace = self.find(nsid)?;
        self.check_reservation(nsid.0, origin)?;
        let functions: BTreeSet<u16> = match to {
            Some(id) => [self.function_of(id.controller())?.0.0].into(),
            None => BTreeSet::new(),
        };
        let leaves_hosts = self.is_alone(namespace) && (namespace.for_everyone || !namespace.hosts.is_empty());
        if namespace.functions == functions && !leaves_hosts {
            return Ok(Decision::nothing());
        }
        let lost = namespace.functions.difference(&functions).map(|&id| (nsid, Some(FunctionId(id))));
        let lost = lost.chain(leaves_hosts.then_some((nsid, None))).collect();
        let change = Change::Mapped { nsid: nsid.0, functions, without_hosts: leaves_hosts };
        Ok(Decision { lost, ..Decision::functions(change) })
    }

    pub(super) fn reset_primary(&self, origin: &Origin) -> Result<Decision, Refusal> {
        self.may_manage(origin)?;
        let Primary { queues, interrupts, .. } = self.state.primary;
        let Primary { next_queues, next_interrupts, .. } = self.state.primary;
        let idle = |function: &Function| !function.online && function.queues == 0 && function.interrupts == 0;
        if (queues, interrupts) == (next_queues, next_interrupts) && self.state.functions.values().all(idle) {
            return Ok(Decision::nothing());
        }
        let online = self.state.functions.iter().filter(|(_, function)| function.online);
        let lost = online.map(|(&id, _)| (Nsid::ALL, Some(FunctionId(id)))).collect();
        Ok(Decision { lost, ..Decision::functions(Change::Reset {}) })
    }

    /// The function of a controller, as it is.
    pub(super) fn function_of(&self, cntlid: ControllerId) -> Result<(FunctionId, Function), Refusal> {
        let id = FunctionId::of_controller(cntlid, self.settings.functions);
        let id = id.ok_or(Refusal::at(Status::INVALID_CONTROLLER_ID, CNTLID))?;
        Ok((id, self.state.functions.get(&id.0).cloned().unwrap_or_default()))
    }

    pub(super) fn function_changed(&self, id: FunctionId, function: Function) -> Decision {
        if self.state.functions.get(&id.0).is_some_and(|before| *before == function) {
            return Decision::nothing();
        }
        Decision::functions(Change::Changed { id: id.0, function })
    }

    /// Whether a namespace is attached to one controller at most.
    pub(super) fn is_alone(&self, namespace: &Namespace) -> bool {
        !namespace.shared || self.settings.exclusive
    }

    /// What changes when the drive comes up with fewer functions than it remembers: nobody could
    /// take the others' resources, so they give them back. Port, share and namespaces are kept, in
    /// case that they come back.
    pub(super) fn give_up_functions(&self) -> Vec<crate::Change> {
        let first = self.settings.functions.min(FunctionId::MAX) + 1;
        let gone = self.state.functions.range(first..).map(|(&id, before)| {
            let mut function = before.clone();
            function.go_offline();
            (function != *before).then_some(crate::Change::Functions { change: Change::Changed { id, function } })
        });
        gone.flatten().collect()
    }

    /// Splits a controller list into functions and the rest. Besides the functions that there are,
    /// the `attached` ones are, which the configuration may have no more.
    pub(super) fn split_controllers(
        &self,
        controllers: &[ControllerId],
        attached: &BTreeSet<u16>,
    ) -> (BTreeSet<u16>, Vec<ControllerId>) {
        // On a drive without functions the identifier may be a host's by now.
        let is_host = |id: u16| self.settings.functions == 0 && self.state.assigned_cntlids.contains_key(&id);
        let is_function = |cntlid: ControllerId| {
            let is_there = FunctionId::of_controller(cntlid, self.settings.functions).is_some();
            is_there || attached.contains(&cntlid.0) && !is_host(cntlid.0)
        };
        let (functions, others): (Vec<_>, Vec<_>) = controllers.iter().partition(|&&cntlid| is_function(cntlid));
        (functions.into_iter().map(|cntlid: ControllerId| cntlid.0).collect(), others)
    }
}

/// What the hosts of a function lose when it is taken from its port.
fn everything_of(id: FunctionId, is_taken: bool) -> Vec<(Nsid, Option<FunctionId>)> {
    is_taken.then_some((Nsid::ALL, Some(id))).into_iter().collect()
}

impl Decision {
    fn functions(change: Change) -> Self {
        Self::change(crate::Change::Functions { change })
    }
}

/// Offsets in the command.
const DWORD_10: u8 = 40;
const RESOURCE: u8 = 41;
const CNTLID: u8 = 42;
const DWORD_11: u8 = 44;

#[cfg(test)]
mod tests;
