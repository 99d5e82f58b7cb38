//! The Asymmetric Namespace Access log of a controller.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use ebof_nvme::Nsid;
use ebof_nvme::log::{AnaGroupHeader, AnaHeader, AnaState, AnaWriter};

use crate::model::{GROUPS_MAX, NamespaceTable, Subsystem};

/// Bytes of the page with as many groups and namespaces as a controller announces.
const BYTES_MAX: usize =
    size_of::<AnaHeader>() + GROUPS_MAX as usize * size_of::<AnaGroupHeader>() + NamespaceTable::MAX * size_of::<u32>();

/// The log page of one controller: the groups with namespaces that its host has, and how often each
/// and the page have changed since the controller was created.
#[derive(Debug, Default)]
pub(crate) struct AnaLog {
    changes: u64,
    groups: BTreeMap<u32, Group>,
}

#[derive(Debug)]
struct Group {
    state: AnaState,
    changes: u64,
    nsids: Vec<Nsid>,
}

impl AnaLog {
    /// The log of a controller whose host is shown `subsystem`.
    pub(crate) fn for_subsystem(subsystem: &Subsystem) -> Self {
        let mut log = Self::default();
        log.follow(subsystem);
        log
    }

    /// The host is shown `subsystem` from now on. Whether it has to read the log: there is a state,
    /// or a namespace in a group, that it does not know. That one is gone, it learns otherwise.
    pub(crate) fn follow(&mut self, subsystem: &Subsystem) -> bool {
        let mut now: BTreeMap<u32, Vec<Nsid>> = BTreeMap::new();
        for namespace in subsystem.namespaces.iter() {
            now.entry(namespace.ana_group).or_default().push(namespace.nsid);
        }
        let before = self.groups.len();
        self.groups.retain(|group, _| now.contains_key(group));
        let mut has_changed = self.groups.len() != before;
        let mut is_news = false;
        // One count for both, so that a group that comes back has a higher one than before.
        let next = self.changes + 1;
        for (group, nsids) in now {
            let state = subsystem.states.of(group);
            let known = self.groups.get(&group).filter(|known| known.state == state);
            is_news |= known.is_none_or(|known| nsids.iter().any(|nsid| !known.nsids.contains(nsid)));
            if known.is_none_or(|known| known.nsids != nsids) {
                has_changed = true;
                self.groups.insert(group, Group { state, changes: next, nsids });
            }
        }
        if has_changed {
            self.changes = next;
        }
        is_news
    }

    /// The page; without the namespaces for a host that asks for groups only. Behind its end are
    /// zeros up to the size that it may have: hosts read that, whatever the header says.
    pub(crate) fn page(&self, groups_only: bool) -> Vec<u8> {
        let mut page = AnaWriter::new(self.changes);
        for (&id, group) in &self.groups {
            let nsids = if groups_only { &[] } else { group.nsids.as_slice() };
            page.push(id, group.changes, group.state, nsids.iter().copied());
        }
        let mut page = page.finish();
        page.resize(BYTES_MAX, 0);
        page
    }
}
