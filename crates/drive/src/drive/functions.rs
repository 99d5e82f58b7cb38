//! Functions: their resources and states (Virtualization Management), the ports that they are given
//! to, and their shares. Which namespaces they have is in `attachments.rs`.
//!
//! Flexible resources go to functions and to the primary controller. Together they never exceed the
//! total: each assignment is checked against what is left, and a reset of the primary, which puts
//! its new allocation in force, takes the resources of all functions away.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use ebof_nvme::virtualization::{ResourceType, VirtualizationAction, VirtualizationManagement};
use ebof_nvme::{ControllerId, Nsid, Status};

use super::decision::Decision;
use crate::change::State;
use crate::function::{self, Function, FunctionChange, FunctionId, PortNames, Primary, Share};
use crate::namespace::placement::Placement;
use crate::request::{Answer, Refusal};

/// The functions of a drive, and the primary controller that they share flexible resources with.
/// Whether somebody may change them was checked before.
pub(super) struct FunctionTable<'a> {
    primary: Primary,
    /// Those that the drive remembers, by number.
    known: &'a BTreeMap<u16, Function>,
    /// How many the configuration says.
    count: u16,
}

impl<'a> FunctionTable<'a> {
    /// The functions in the state of a drive with `count` of them.
    pub(super) fn new(state: &'a State, count: u16) -> Self {
        Self { primary: state.primary, known: &state.functions, count: count.min(FunctionId::MAX) }
    }

    /// How many there are.
    pub(super) fn count(&self) -> u16 {
        self.count
    }

    /// All that the configuration says, as they are.
    pub(super) fn all(&self) -> BTreeMap<u16, Function> {
        (1..=self.count).map(|id| (id, self.current(id))).collect()
    }

    /// A function that nothing was changed of is as the default says.
    pub(super) fn current(&self, id: u16) -> Function {
        self.known.get(&id).cloned().unwrap_or_default()
    }

    pub(super) fn virtualize(
        &self,
        command: &VirtualizationManagement,
        manager: ControllerId,
    ) -> Result<Decision, Refusal> {
        if self.count == 0 {
            return Err(Refusal::at(Status::INVALID_OPCODE, 0));
        }
        match command.action {
            VirtualizationAction::AllocateToPrimary => self.allocate_to_primary(command, manager),
            VirtualizationAction::Offline => {
                let (id, mut function) = self.find(command.cntlid)?;
                let lost = everything_of(id, function.online);
                function.go_offline();
                Ok(Decision { lost, ..self.changed(id, function) })
            }
            VirtualizationAction::Assign => self.assign(command),
            VirtualizationAction::Online => {
                let (id, function) = self.find(command.cntlid)?;
                if !function.can_go_online() {
                    return Err(Refusal::new(Status::INVALID_SECONDARY_STATE));
                }
                Ok(self.changed(id, Function { online: true, ..function }))
            }
            VirtualizationAction::Reserved(_) => Err(Refusal::at(Status::INVALID_FIELD, DWORD_10)),
        }
    }

    fn allocate_to_primary(
        &self,
        command: &VirtualizationManagement,
        manager: ControllerId,
    ) -> Result<Decision, Refusal> {
        // A manager's own controller is the primary one to it. Deviation: ebof, 0 names it as well,
        // as it did when there was no other name.
        if command.cntlid != manager && command.cntlid != ControllerId(0) {
            return Err(Refusal::at(Status::INVALID_CONTROLLER_ID, CNTLID));
        }
        let total = function::flexible_total(&self.primary, &self.all(), command.resource);
        let count = command.count;
        if u32::from(count) > total {
            return Err(Refusal::at(Status::INVALID_CONTROLLER_RESOURCES, DWORD_11));
        }
        let mut primary = self.primary;
        match command.resource {
            ResourceType::Queues => primary.next_queues = count,
            ResourceType::Interrupts => primary.next_interrupts = count,
            ResourceType::Reserved(_) => return Err(Refusal::at(Status::INVALID_RESOURCE_ID, RESOURCE)),
        }
        let assigned = function::assigned(&self.all(), command.resource);
        assert!(assigned <= total, "the total is at least what is in use, see `flexible_total`");
        if u32::from(count) > total - assigned {
            return Err(Refusal::at(Status::INVALID_RESOURCE_ID, DWORD_11));
        }
        let changes = (primary != self.primary).then_some(FunctionChange::Allocated { primary });
        let changes = changes.into_iter().map(|change| crate::Change::Functions { change }).collect();
        Ok(Decision { answer: Answer::Done(count.into()), changes, ..Decision::nothing() })
    }

    fn assign(&self, command: &VirtualizationManagement) -> Result<Decision, Refusal> {
        let (id, mut function) = self.find(command.cntlid)?;
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
        Ok(Decision { answer: Answer::Done(count.into()), ..self.changed(id, function) })
    }

    pub(super) fn give_to(&self, id: FunctionId, ports: &PortNames) -> Result<Decision, Refusal> {
        let (id, function) = self.find(id.controller())?;
        let lost = everything_of(id, function.online && !function.ports.is_subset(ports));
        Ok(Decision { lost, ..self.changed(id, Function { ports: ports.clone(), ..function }) })
    }

    /// Other ports for an online function, without a loss.
    pub(super) fn shift(&self, id: FunctionId, ports: &PortNames) -> Result<Decision, Refusal> {
        let (id, function) = self.find(id.controller())?;
        if !function.online || ports.is_empty() {
            return Err(Refusal::new(Status::INVALID_SECONDARY_STATE));
        }
        Ok(self.changed(id, Function { ports: ports.clone(), ..function }))
    }

    pub(super) fn set_share(&self, id: FunctionId, share: Share) -> Result<Decision, Refusal> {
        let (id, function) = self.find(id.controller())?;
        if !share.is_legal() {
            return Err(Refusal::new(Status::INVALID_FIELD));
        }
        Ok(self.changed(id, Function { share, ..function }))
    }

    pub(super) fn reset_primary(&self) -> Result<Decision, Refusal> {
        let Primary { queues, interrupts, .. } = self.primary;
        let Primary { next_queues, next_interrupts, .. } = self.primary;
        let idle = |function: &Function| !function.online && function.queues == 0 && function.interrupts == 0;
        if (queues, interrupts) == (next_queues, next_interrupts) && self.known.values().all(idle) {
            return Ok(Decision::nothing());
        }
        let online = self.known.iter().filter(|(_, function)| function.online);
        let lost = online.map(|(&id, _)| (Nsid::ALL, Some(FunctionId(id)))).collect();
        Ok(Decision { lost, ..Decision::functions(FunctionChange::Reset {}) })
    }

    /// The function of a controller, as it is.
    pub(super) fn find(&self, cntlid: ControllerId) -> Result<(FunctionId, Function), Refusal> {
        let id = FunctionId::of_controller(cntlid, self.count);
        let id = id.ok_or(Refusal::at(Status::INVALID_CONTROLLER_ID, CNTLID))?;
        Ok((id, self.current(id.0)))
    }

    fn changed(&self, id: FunctionId, function: Function) -> Decision {
        if self.known.get(&id.0).is_some_and(|before| *before == function) {
            return Decision::nothing();
        }
        Decision::functions(FunctionChange::Changed { id: id.0, function })
    }

    /// What changes when the drive comes up with fewer functions than it remembers: nobody could
    /// take the others' resources, so they give them back. Ports, share and namespaces are kept, in
    /// case that they come back.
    pub(super) fn give_up(&self) -> Vec<crate::Change> {
        let first = self.count + 1;
        let gone = self.known.range(first..).map(|(&id, before)| {
            let mut function = before.clone();
            function.go_offline();
            (function != *before)
                .then_some(crate::Change::Functions { change: FunctionChange::Changed { id, function } })
        });
        gone.flatten().collect()
    }

    /// Gives a function resources, a state and ports at once. An online one loses what it had as
    /// if it were taken offline first.
    pub(super) fn place(&self, id: FunctionId, to: &Placement) -> Result<Decision, Refusal> {
        let (id, before) = self.find(id.controller())?;
        for (resource, count) in [(ResourceType::Queues, to.queues), (ResourceType::Interrupts, to.interrupts)] {
            self.check_resources(&before, resource, count)?;
        }
        let Placement { queues, interrupts, online, ports } = to.clone();
        let after = Function { queues, interrupts, online, ports, share: before.share };
        if online && !after.can_go_online() {
            return Err(Refusal::new(Status::INVALID_SECONDARY_STATE));
        }
        let is_taken = before.online && Placement::from(&before) != *to;
        let lost = is_taken.then_some((Nsid::ALL, Some(id))).into_iter().collect();
        Ok(Decision { lost, ..self.changed(id, after) })
    }

    /// Whether a function may have so many resources of a type, whatever others have.
    fn check_resources(&self, function: &Function, resource: ResourceType, count: u16) -> Result<(), Refusal> {
        let functions = self.all();
        let total = function::flexible_total(&self.primary, &functions, resource);
        if count > Function::RESOURCES_MAX || u32::from(count) > total {
            return Err(Refusal::at(Status::INVALID_CONTROLLER_RESOURCES, DWORD_11));
        }
        let assigned = function::assigned(&functions, resource) - u32::from(function.resources(resource));
        let taken = assigned + u32::from(self.primary.resources(resource));
        assert!(taken <= total, "the total is at least what is in use, see `flexible_total`");
        if u32::from(count) > total - taken {
            return Err(Refusal::at(Status::INVALID_RESOURCE_ID, DWORD_11));
        }
        Ok(())
    }

    /// These functions as they are to be, with the resources that are left for them.
    pub(super) fn restored(&self, before: &BTreeMap<u16, Function>) -> BTreeMap<u16, Function> {
        let mut all = self.all();
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
        let now = self.all();
        [ResourceType::Queues, ResourceType::Interrupts].into_iter().all(|resource| {
            let total = function::flexible_total(&self.primary, &now, resource);
            function::assigned(functions, resource) + u32::from(self.primary.resources(resource)) <= total
        })
    }
}

/// What the hosts of a function lose when it is taken from a port of it.
fn everything_of(id: FunctionId, is_taken: bool) -> Vec<(Nsid, Option<FunctionId>)> {
    is_taken.then_some((Nsid::ALL, Some(id))).into_iter().collect()
}

/// Offsets in the command.
const DWORD_10: u8 = 40;
const RESOURCE: u8 = 41;
const CNTLID: u8 = 42;
const DWORD_11: u8 = 44;
