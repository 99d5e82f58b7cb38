//! What of a configuration is in force, and what of it is missing.

use std::sync::atomic::Ordering::Relaxed;

use ebof_manage::Config;
use ebof_manage::api::MissingObject;

use crate::life::control::Listening;
use crate::life::missing::{Missing, MissingKey};
use crate::life::startup::Devices;

/// What is in force.
#[derive(Clone)]
pub(crate) struct InForce {
    pub(crate) config: Config,
    pub(crate) devices: Devices,
    pub(crate) ports: Vec<Listening>,
    /// What of the configuration is neither among the devices nor among the ports.
    pub(crate) missing: Vec<Missing>,
    pub(crate) generation: u64,
}

impl InForce {
    /// What of the configuration cannot be had now.
    pub(crate) fn missing(&self) -> impl Iterator<Item = MissingObject> {
        self.missing.iter().map(Missing::shown)
    }

    /// What was missing `before` and is there now.
    pub(crate) fn found(&self, before: &[Missing]) -> Vec<MissingObject> {
        let is_there = |missing: &&Missing| match &missing.key {
            MissingKey::Namespace(key) => self.devices.open.contains_key(key),
            MissingKey::Drive(name) => self.devices.actors.iter().any(|opened| opened.config.name == *name),
            MissingKey::Port(name) => self.ports.iter().any(|listening| listening.port.name == *name),
        };
        before.iter().filter(is_there).map(Missing::shown).collect()
    }

    /// The ports by name, and whether they accept connections.
    pub(crate) fn listening(&self) -> Vec<(String, bool)> {
        let ports = self.ports.iter().map(|listening| &listening.port);
        ports.map(|port| (port.name.clone(), port.counts.is_listening.load(Relaxed))).collect()
    }
}
