//! What the box does to a function or a namespace in one step, so that there is nothing in between:
//! neither for hosts nor after a crash.

use ebof_nvme::virtualization::ResourceType;
use ebof_nvme::{Nsid, Status};

use super::transact::exactly;
use super::{Decision, Drive};
use crate::function::{self, Function, FunctionId};
use crate::placement::{Attachments, Placement};
use crate::request::{Origin, Refusal};

impl Drive {
    /// Gives a function resources, a state and a port at once. An online one loses what it had as
    /// if it were taken offline first.
    pub(super) fn place(&self, id: FunctionId, to: &Placement, origin: &Origin) -> Result<Decision, Refusal> {
        self.may_manage(origin)?;
        let (id, before) = self.function_of(id.controller())?;
        check_port(to.port.as_deref())?;
        for (resource, count) in [(ResourceType::Queues, to.queues), (ResourceType::Interrupts, to.interrupts)] {
            self.check_resources(&before, resource, count)?;
        }
        let Placement { queues, interrupts, online, port } = to.clone();
        let after = Function { queues, interrupts, online, port, share: before.share };
        if online && !after.can_go_online() {
            return Err(Refusal::new(Status::INVALID_SECONDARY_STATE));
        }
        let is_taken = before.online && Placement::from(&before) != *to;
        let lost = is_taken.then_some((Nsid::ALL, Some(id))).into_iter().collect();
        Ok(Decision { lost, ..self.function_changed(id, after) })
    }

    /// Whether a function may have so many resources of a type, whatever others have.
    pub(super) fn check_resources(
        &self,
        function: &Function,
        resource: ResourceType,
        count: u16,
    ) -> Result<(), Refusal> {
        let functions = self.functions();
        let total = function::flexible_total(&self.state.primary, &functions, resource);
        if count > Function::RESOURCES_MAX || u32::from(count) > total {
            return Err(Refusal::at(Status::INVALID_CONTROLLER_RESOURCES, DWORD_11));
        }
        let assigned = function::assigned(&functions, resource) - u32::from(function.resources(resource));
        let taken = assigned + u32::from(self.state.primary.resources(resource));
        if u32::from(count) > total.saturating_sub(taken) {
            return Err(Refusal::at(Status::INVALID_RESOURCE_ID, DWORD_11));
        }
        Ok(())
    }

    /// Attaches a namespace to these functions and hosts, and to nobody else.
    pub(super) fn attach_exactly(&self, nsid: Nsid, to: &Attachments, origin: &Origin) -> Result<Decision, Refusal> {
        self.may_manage(origin)?;
        let namespace = self.find(nsid)?;
        self.check_reservation(nsid.0, origin)?;
        let now = Attachments::from(namespace);
        self.check_owners(self.is_alone(namespace), &now, to)?;
        Ok(Self::exchanged(nsid, &now, to))
    }

    /// Those who have a namespace `now` lose it, unless they are to have it.
    pub(super) fn exchanged(nsid: Nsid, now: &Attachments, to: &Attachments) -> Decision {
        if now == to {
            return Decision::nothing();
        }
        let lost = now.lost_by(to).into_iter().map(|who| (nsid, who)).collect();
        Decision { lost, changes: exactly(nsid.0, now, to), ..Decision::nothing() }
    }
}

/// Whether a port can have this name.
pub(super) fn check_port(port: Option<&str>) -> Result<(), Refusal> {
    let is_wrong = |port: &str| port.is_empty() || port.chars().count() > Function::PORT_NAME_CHARS_MAX;
    if port.is_some_and(is_wrong) { Err(Refusal::new(Status::INVALID_FIELD)) } else { Ok(()) }
}

/// Offset in the command.
const DWORD_11: u8 = 44;
