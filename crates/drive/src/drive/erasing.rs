//! Namespaces whose old data are being erased.

use alloc::collections::BTreeMap;

use crate::namespace::{Namespace, VolumeId};

/// Namespaces whose old data are being erased, and the percentage that is left. By their names on
/// the medium, because an NSID may be used again for another namespace.
#[derive(Debug, Default)]
pub(super) struct Erasing {
    percent_left: BTreeMap<VolumeId, u8>,
}

impl Erasing {
    /// Sets how much is left of these, in percent. `None`: it is done.
    pub(super) fn set(&mut self, namespaces: &[VolumeId], percent_left: Option<u8>) {
        for &volume in namespaces {
            match percent_left {
                Some(percent) => self.percent_left.insert(volume, percent.min(100)),
                None => self.percent_left.remove(&volume),
            };
        }
    }

    pub(super) fn contains(&self, volume: VolumeId) -> bool {
        self.percent_left.contains_key(&volume)
    }

    /// Those of these namespaces that are being erased, by NSID.
    pub(super) fn percent_left(&self, namespaces: &BTreeMap<u32, Namespace>) -> BTreeMap<u32, u8> {
        if self.percent_left.is_empty() {
            return BTreeMap::new();
        }
        let left = |namespace: &Namespace| self.percent_left.get(&namespace.volume).copied();
        namespaces.iter().filter_map(|(&nsid, namespace)| Some((nsid, left(namespace)?))).collect()
    }
}
