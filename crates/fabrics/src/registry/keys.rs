//! Other keys for hosts, while everything else of the model stays as it is.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use ebof_authentication::HostPsk;
use ebof_nvme::{ControllerId, Nqn};

use super::Registry;
use super::controllers::{ControllerEntry, no_longer_served};
use crate::model::Model;
use crate::notice::{CloseReason, Notices};
use crate::secrets::HostSecrets;

impl Registry {
    /// Gives hosts other keys; everything else stays as it is. Those that lack a proof then have to
    /// leave.
    pub fn replace_keys(
        &mut self,
        secrets: BTreeMap<Nqn, Arc<HostSecrets>>,
        tls_psks: BTreeMap<Nqn, Arc<Vec<HostPsk>>>,
    ) -> Notices {
        let model = Model { secrets, tls_psks, ..Model::clone(&self.model) };
        self.replace(Arc::new(model), None)
    }

    /// The controllers that would end with this model, by subsystem and number, and why.
    #[must_use]
    pub fn ended_by(&self, model: &Model) -> Vec<(Nqn, ControllerId, CloseReason)> {
        let live = self.controllers.entries.values().filter(|entry| !entry.association.is_closing());
        let ended = |entry: &ControllerEntry| {
            let association = &entry.association;
            let reason = no_longer_served(model, association)?;
            Some((association.subsystem.clone(), association.cntlid, reason))
        };
        live.filter_map(ended).collect()
    }
}
