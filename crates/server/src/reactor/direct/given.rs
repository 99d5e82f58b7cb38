//! Which function a guest's driver knows, and what the guest sees when its port has it no more.
//!
//! ```text
//!            enabled                      taken away, or another one is there
//! none known --------> known, at the port -----------------------------------> unplugged
//!     ^                                   <-----------------------------------    |
//!     |                                    the same one is back                   |
//!     +---------------------------------------------------------------------------+
//!                            found again by the guest's bus driver
//! ```
//! A driver repeats what it has not been answered as soon as it has a controller again, and looks
//! at identities afterwards. So nothing that it writes may reach a function that it does not know:
//! for it, the controller is unplugged. Its registers read as ones, and it cannot be enabled. A new
//! client knows no function.

use ebof_drive::FunctionId;
use ebof_fabrics::{PortId, Registry, Subsystem};
use ebof_nvme::Nqn;
use ebof_vfio::pci::ConfigEffect;

use super::super::Reactor;
use super::{DirectDevice, PendingCc, Wait};
use crate::direct::lock;
use crate::observe::log_limit::{Kind, LogSubject};

/// A function, or whatever else a direct port has, by what tells its data from those of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) subsystem: Nqn,
    /// The drive's own UUID: another drive may have the name of one that was removed.
    drive: Option<[u8; 16]>,
    function: Option<FunctionId>,
}

impl Given {
    fn of(subsystem: &Subsystem) -> Self {
        Self {
            subsystem: subsystem.nqn.clone(),
            drive: subsystem.drive.as_ref().map(|drive| drive.uuid),
            function: subsystem.function.as_ref().map(|function| function.id),
        }
    }

    /// What a port has now.
    fn at(registry: &Registry, port: PortId) -> Option<Self> {
        registry.subsystem_at(port).map(|subsystem| Self::of(subsystem))
    }
}

impl DirectDevice {
    /// Nothing is left of a controller, and none is about to be.
    fn is_idle(&self) -> bool {
        self.admin.is_none() && !self.is_resetting && self.queues.is_empty()
    }
}

impl Reactor {
    /// What the function is that a driver is about to use; `None` if there is none, or not the one
    /// that the driver knows.
    pub(super) fn given_to(&self, device: &DirectDevice) -> Option<Given> {
        let given = Given::at(&self.shared.registry(), device.port.id)?;
        device.known.as_ref().is_none_or(|known| *known == given).then_some(given)
    }

    /// While there is no controller, the registers are those of what the port has.
    pub(super) fn look_at_port(&self, device: &mut DirectDevice) {
        if !device.is_idle() {
            return;
        }
        let registry = self.shared.registry();
        let is_absent = device.known.as_ref().is_some_and(|known| match Given::at(&registry, device.port.id) {
            Some(given) => given != *known,
            // It may be on its way back: nobody else has its place.
            None => !registry.model().returning.contains(&known.subsystem),
        });
        let cap = registry.capabilities(device.port.id);
        drop(registry);
        let mut function = lock(&device.function);
        if let Some(cap) = cap {
            function.pci.registers.set_capabilities(cap);
        }
        let was_absent = std::mem::replace(&mut function.pci.is_absent, is_absent);
        drop(function);
        let (Some(known), true) = (&device.known, was_absent != is_absent) else { return };
        if let Some(more) = self.shared.may_log(LogSubject::Target, Kind::Ended) {
            let (port, function) = (&device.port.name, &known.subsystem);
            if is_absent {
                tracing::warn!(
                    port,
                    %function,
                    "the function was taken from its guest, which sees an unplugged device until it removes that, \
                     and scans its PCI bus again, or starts again{more}"
                );
            } else {
                tracing::info!(port, %function, "the function is back: its guest may go on{more}");
            }
        }
    }

    /// The guest's bus driver has found the function: whoever knew one before has let go of it.
    pub(super) fn on_found(&self, device: &mut DirectDevice) {
        if device.admin.is_some() && !device.is_resetting {
            // A controller that is enabled is the one that is found.
            return;
        }
        device.pending = PendingCc::default();
        device.known = None;
        self.shared.registry().forget_hosts_at(device.port.id);
        if device.is_resetting {
            // Answered when nothing of the last one is left.
            device.waiting = Some(Wait::Reset(None));
        }
        let mut function = lock(&device.function);
        if std::mem::take(&mut function.pci.is_absent) {
            // Another one takes its place, as after power-on.
            function.pci.registers.reset();
            function.is_fatal = false;
        }
        drop(function);
        self.look_at_port(device);
    }

    /// The host's bus driver has changed the configuration space.
    pub(super) fn on_config(&mut self, device: &mut DirectDevice, effect: ConfigEffect, now_us: u64) {
        match effect {
            // Its answer is in the buffer, and is sent when the reset is over.
            ConfigEffect::FunctionReset => self.reset_function(device, None, now_us),
            ConfigEffect::BusMaster(true) => self.resume_function(device, now_us),
            ConfigEffect::BusMaster(false) => self.silence_function(device, now_us),
            ConfigEffect::Found => self.on_found(device),
        }
    }
}
