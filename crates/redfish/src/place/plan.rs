//! Addresses of the plan of a change.

use http::Method;

use super::{ACTION, Address};

/// The action's address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum PlanPlace {
    /// `/redfish/v1/Managers/ebof/Actions/Oem/EbofManager.PlanChanges`.
    Plan,
}

impl Address for PlanPlace {
    fn parse(segments: &[&str]) -> Option<Self> {
        (*segments == ["Managers", "ebof", "Actions", "Oem", Self::NAME]).then_some(Self::Plan)
    }

    fn patterns() -> &'static [(&'static str, &'static str)] {
        &[("", "Managers/ebof/Actions/Oem/EbofManager.PlanChanges")]
    }

    fn segments(&self) -> Vec<&str> {
        vec!["Managers", "ebof", "Actions", "Oem", Self::NAME]
    }

    fn methods(&self) -> &'static [Method] {
        ACTION
    }
}

impl PlanPlace {
    /// The action.
    pub(crate) const NAME: &str = "EbofManager.PlanChanges";
}
