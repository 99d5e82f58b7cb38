//! What hosts and threads are shown while a configuration is changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use ebof_manage::Config;
use ebof_nvme::Nqn;

use crate::environment::remembered;
use crate::life::control::Listening;
use crate::life::in_force::InForce;
use crate::life::missing::Missing;
use crate::life::serve::Target;
use crate::life::startup::{Devices, NamespaceKey, StartError, places};
use crate::shared::audience;
use crate::shared::mailbox::Message;

/// What is in force for hosts, one generation after the other.
pub(super) struct Shown<'c> {
    target: &'c Target,
    pub(super) generation: u64,
    /// What of the configuration is missing.
    pub(super) missing: Vec<Missing>,
}

impl<'c> Shown<'c> {
    pub(super) fn new(target: &'c Target, generation: u64, missing: Vec<Missing>) -> Self {
        Self { target, generation, missing }
    }

    /// Puts this in force, which cannot fail.
    pub(super) fn show_or_complain(
        &mut self,
        config: Config,
        devices: Devices,
        ports: Vec<Listening>,
        returning: Vec<Nqn>,
    ) {
        if let Err(error) = self.show(config, devices, ports, returning) {
            // Whatever a drive holds made a table when it was opened or changed, and the rest was
            // checked.
            tracing::error!("hosts are shown what was there before: {error}");
        }
    }

    /// Puts this in force. The subsystems `returning` are hidden, and will be there again.
    pub(super) fn show(
        &mut self,
        config: Config,
        devices: Devices,
        ports: Vec<Listening>,
        returning: Vec<Nqn>,
    ) -> Result<(), StartError> {
        self.generation += 1;
        let shared = &self.target.shared;
        let mut model = devices.model(&config, &ports, self.generation)?;
        // A host that comes meanwhile is not to give up.
        model.returning.extend(returning);
        let actors = devices.actors();
        let surplus =
            shared.drives.put_in_force(devices.plain(), &actors, places(&ports), model, |table, mut model| {
                let mut objects = shared.registry().objects().clone();
                if objects.note(&model) {
                    remembered::store(&*shared.settings.environment.objects, &objects)?;
                }
                // Devices first: a queue that learns of a namespace finds its device.
                shared.post_all(|| Message::Devices(Arc::clone(&table)));
                // Delivered under the lock, so that no queue hears of an older model later.
                let mut registry = shared.registry();
                // Functions that go online or offline change what hosts discover, too.
                model.generation = model.generation.max(registry.model().generation + 1);
                let notices = registry.replace_model(Arc::new(model));
                shared.shares.follow(registry.model());
                shared.deliver(notices);
                Ok(())
            })?;
        audience::connect(shared, &actors);
        let missing = self.missing.clone();
        *self.target.in_force() = InForce { config, devices, ports, missing, generation: self.generation };
        surplus.iter().for_each(|actor| actor.stop());
        Ok(())
    }
}

/// Hides namespaces.
pub(super) fn hide(config: &mut Config, keys: &BTreeSet<NamespaceKey>) {
    for subsystem in &mut config.subsystems {
        let nqn = subsystem.nqn.clone();
        subsystem.namespaces.retain(|namespace| !keys.contains(&(nqn.clone(), namespace.nsid)));
    }
}
