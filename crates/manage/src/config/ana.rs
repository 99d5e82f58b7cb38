//! The states of ANA groups at a port: which paths hosts prefer, and which they leave.

use std::collections::BTreeMap;

pub use ebof_nvme::log::AnaState;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The states of ANA groups at a port (NVMe Base, "Asymmetric Namespace Access Reporting"): only
/// those that are not optimized.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnaStates(BTreeMap<u32, AnaState>);

impl AnaStates {
    /// The states that can be written, in the order of their numbers.
    pub(crate) const STATES: [AnaState; 5] = [
        AnaState::OPTIMIZED,
        AnaState::NON_OPTIMIZED,
        AnaState::INACCESSIBLE,
        AnaState::PERSISTENT_LOSS,
        AnaState::CHANGE,
    ];
    /// Their names.
    pub(crate) const NAMES: [&'static str; 5] = [
        AnaState::OPTIMIZED.name(),
        AnaState::NON_OPTIMIZED.name(),
        AnaState::INACCESSIBLE.name(),
        AnaState::PERSISTENT_LOSS.name(),
        AnaState::CHANGE.name(),
    ];

    /// The state that is called so.
    pub(crate) fn named(name: &str) -> Option<AnaState> {
        Self::STATES.into_iter().find(|state| state.name() == name)
    }

    /// Puts a group into a state.
    pub fn set(&mut self, group: u32, state: AnaState) {
        if state == AnaState::OPTIMIZED {
            self.0.remove(&group);
        } else {
            self.0.insert(group, state);
        }
    }

    /// The state of a group.
    #[must_use]
    pub fn of(&self, group: u32) -> AnaState {
        self.0.get(&group).copied().unwrap_or(AnaState::OPTIMIZED)
    }

    /// The groups that are not optimized, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, AnaState)> + '_ {
        self.0.iter().map(|(&group, &state)| (group, state))
    }

    /// Whether all groups are optimized.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// As the configuration has it: names by numbers.
impl Serialize for AnaStates {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(group, state)| (group.to_string(), state.name())))
    }
}

impl<'de> Deserialize<'de> for AnaStates {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut states = Self::default();
        for (group, name) in BTreeMap::<String, String>::deserialize(deserializer)? {
            let group = group.parse().map_err(D::Error::custom)?;
            let state = Self::named(&name).ok_or_else(|| D::Error::unknown_variant(&name, &Self::NAMES))?;
            states.set(group, state);
        }
        Ok(states)
    }
}
