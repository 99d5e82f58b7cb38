//! Which objects NSIDs have named: a host that was away may still hold another one than is there
//! now. It knows nothing of controllers; how a host that came back is treated is in `replaced`.

use alloc::collections::BTreeMap;

use ebof_nvme::{Nqn, Nsid};

use crate::model::{DataId, Model, Namespace, Subsystem};

/// The objects behind the NSIDs of all subsystems: the last one of each, and whether there were
/// others. What was removed is remembered, too, as long as there is room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    known: BTreeMap<(Nqn, Nsid), ObjectRecord>,
    /// Some that were removed have been forgotten: an NSID that is not known may have named
    /// another one.
    is_incomplete: bool,
    /// The changes that this process has seen are numbered from 1: the last one of each NSID. They
    /// are not stored.
    changes: BTreeMap<(Nqn, Nsid), u64>,
    changes_count: u64,
}

/// What an NSID names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectRecord {
    /// The object that it names, or named last.
    pub object: DataId,
    /// It has named another one before. That is never forgotten: for how long hosts hold what they
    /// have found is their matter.
    pub has_changed: bool,
}

impl ObjectRecord {
    /// What objects are told apart by: not what is announced of them, which may be pinned.
    fn object_of(namespace: &Namespace) -> DataId {
        namespace.object
    }
}

impl Objects {
    /// The most NSIDs that are remembered beside those that are in use.
    pub const GONE_MAX: usize = 8192;

    /// What an earlier process has remembered.
    #[must_use]
    pub fn restored(known: impl IntoIterator<Item = ((Nqn, Nsid), ObjectRecord)>, is_incomplete: bool) -> Self {
        Self { known: known.into_iter().collect(), is_incomplete, ..Self::default() }
    }

    /// Everything that is remembered.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&(Nqn, Nsid), &ObjectRecord)> {
        self.known.iter()
    }

    /// Whether something has been forgotten.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    /// This is served from now on. Returns whether there was anything to remember.
    pub fn note(&mut self, model: &Model) -> bool {
        let is_news = self.note_all(model.subsystems.iter().map(|subsystem| &**subsystem));
        let in_use: usize = model.subsystems.iter().map(|subsystem| subsystem.namespaces.len()).sum();
        if is_news && self.known.len() > in_use + Self::GONE_MAX {
            self.known.retain(|(nqn, nsid), _| {
                model.subsystem(nqn).is_some_and(|subsystem| subsystem.namespaces.find(*nsid).is_some())
            });
            self.changes.retain(|key, _| self.known.contains_key(key));
            self.is_incomplete = true;
        }
        is_news
    }

    /// The same of some subsystems of those that are served.
    pub fn note_all<'a>(&mut self, subsystems: impl IntoIterator<Item = &'a Subsystem>) -> bool {
        let mut is_news = false;
        for subsystem in subsystems {
            for namespace in subsystem.namespaces.iter() {
                let object = ObjectRecord::object_of(namespace);
                let key = (subsystem.nqn.clone(), namespace.nsid);
                let has_changed = match self.known.get(&key) {
                    Some(known) if known.object == object => continue,
                    known => known.is_some() || self.is_incomplete,
                };
                if has_changed {
                    self.changes_count += 1;
                    self.changes.insert(key.clone(), self.changes_count);
                }
                self.known.insert(key, ObjectRecord { object, has_changed });
                is_news = true;
            }
        }
        is_news
    }

    /// Whether there would be anything to remember.
    pub fn would_note<'a>(&self, subsystems: impl IntoIterator<Item = &'a Subsystem>) -> bool {
        let is_known = |nqn: &Nqn, namespace: &Namespace| {
            let known = self.known.get(&(nqn.clone(), namespace.nsid));
            known.is_some_and(|known| known.object == ObjectRecord::object_of(namespace))
        };
        let mut subsystems = subsystems.into_iter();
        subsystems.any(|of| of.namespaces.iter().any(|namespace| !is_known(&of.nqn, namespace)))
    }

    /// How many changes this process has seen.
    pub(super) fn changes_count(&self) -> u64 {
        self.changes_count
    }

    /// The number of the last one of an NSID, 0 if this process has seen none.
    pub(super) fn last_change(&self, nqn: &Nqn, nsid: Nsid) -> u64 {
        self.changes.get(&(nqn.clone(), nsid)).copied().unwrap_or(0)
    }

    /// What is known of the NSIDs of a subsystem.
    pub(super) fn of(&self, nqn: &Nqn) -> impl Iterator<Item = (Nsid, ObjectRecord)> {
        let from = (nqn.clone(), Nsid(0))..=(nqn.clone(), Nsid(u32::MAX));
        self.known.range(from).map(|((_, nsid), known)| (*nsid, *known))
    }
}
