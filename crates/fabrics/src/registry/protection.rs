//! Write protection that hosts set (feature 84h), where it differs from the model's.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use ebof_nvme::{Nqn, Nsid};

use crate::model::{Model, Subsystem};

/// A change by a host of a namespace's write protection (feature 84h), to be stored with the
/// model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtectionChange {
    /// The subsystem.
    pub subsystem: Nqn,
    /// The namespace.
    pub nsid: Nsid,
    /// Whether it is now write protected.
    pub protected: bool,
}

/// What hosts have set, and what the owner of the model has not been told of it yet.
#[derive(Debug, Default)]
pub(super) struct Protection {
    set: BTreeMap<(Nqn, Nsid), bool>,
    changes: Vec<ProtectionChange>,
}

impl Protection {
    /// A host sets it.
    pub(super) fn set(&mut self, subsystem: &Nqn, nsid: Nsid, protected: bool) {
        self.set.insert((subsystem.clone(), nsid), protected);
        // The owner of the model needs only the last change of each namespace.
        self.changes.retain(|change| (&change.subsystem, change.nsid) != (subsystem, nsid));
        self.changes.push(ProtectionChange { subsystem: subsystem.clone(), nsid, protected });
    }

    /// What hosts have set since the last call.
    pub(super) fn take_changes(&mut self) -> Vec<ProtectionChange> {
        core::mem::take(&mut self.changes)
    }

    /// Forgets what a model that takes the place of `last` says otherwise, or does not have.
    pub(super) fn follow(&mut self, last: &Model, model: &Model) {
        let said = |model: &Model, nqn: &Nqn, nsid| Some(model.subsystem(nqn)?.namespaces.find(nsid)?.write_protected);
        self.set.retain(|(nqn, nsid), protected| {
            let now = said(model, nqn, *nsid);
            now.is_some() && now == said(last, nqn, *nsid) && now != Some(*protected)
        });
    }

    /// A subsystem of the model with what hosts have set.
    pub(super) fn of(&self, subsystem: &Arc<Subsystem>) -> Arc<Subsystem> {
        let of_subsystem = self.set.iter().filter(|((nqn, _), _)| *nqn == subsystem.nqn);
        let mut effective = Arc::clone(subsystem);
        for ((_, nsid), &protected) in of_subsystem {
            let namespaces = effective.namespaces.with_write_protection(*nsid, protected);
            Arc::make_mut(&mut effective).namespaces = namespaces;
        }
        effective
    }
}
