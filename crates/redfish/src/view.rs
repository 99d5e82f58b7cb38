//! What a request sees: the state of the target, taken once, so that its answer is consistent.

use std::cell::OnceCell;
use std::time::{SystemTime, UNIX_EPOCH};

use ebof_manage::api::Status;
use ebof_manage::enclosure::{DriveObject, Inventory, PortObject};

use crate::id::slugs;
use crate::service::Parts;
use crate::time::date_time;

/// The state of a target at one moment, as far as somebody asks for it.
pub struct View<'p> {
    pub(crate) parts: &'p Parts,
    inventory: OnceCell<Inventory>,
    status: OnceCell<Status>,
}

impl<'p> View<'p> {
    /// Of the moment at which each part is asked for first.
    #[must_use]
    pub fn new(parts: &'p Parts) -> Self {
        Self { parts, inventory: OnceCell::new(), status: OnceCell::new() }
    }

    /// The present moment, as Redfish writes it.
    #[expect(clippy::unused_self, reason = "a view is of one moment")]
    pub(crate) fn now(&self) -> String {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        date_time(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// What there is, and who has it.
    pub(crate) fn inventory(&self) -> &Inventory {
        self.inventory.get_or_init(|| self.parts.enclosure.inventory())
    }

    /// The target's status.
    pub(crate) fn status(&self) -> &Status {
        self.status.get_or_init(|| self.parts.target.status())
    }

    /// The drive of this name, which is its identifier, too.
    pub(crate) fn drive(&self, id: &str) -> Option<&DriveObject> {
        self.inventory().drive(id)
    }

    /// The ports, each with its identifier.
    pub(crate) fn ports(&self) -> Vec<(String, &PortObject)> {
        let ports = &self.inventory().ports;
        let ids = slugs(ports.iter().map(|port| port.name.as_str()));
        ids.into_iter().map(|(id, _)| id).zip(ports).collect()
    }

    /// The port of an identifier.
    pub(crate) fn port(&self, id: &str) -> Option<&PortObject> {
        self.ports().into_iter().find(|(own, _)| own == id).map(|(_, port)| port)
    }

    /// The identifier of the port with this name.
    pub(crate) fn port_id(&self, name: &str) -> Option<String> {
        self.ports().into_iter().find(|(_, port)| port.name == name).map(|(id, _)| id)
    }
}
