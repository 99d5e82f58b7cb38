//! Which events a subscription wants.

use serde::{Deserialize, Serialize};

use crate::response::head::Health;

/// The types of the resources that events are about.
pub(crate) const RESOURCE_TYPES: [&str; 14] = [
    "Certificate",
    "Drive",
    "EbofConfiguration",
    "Key",
    "LogService",
    "Manager",
    "ManagerAccount",
    "Port",
    "Session",
    "Storage",
    "StorageController",
    "Task",
    "Volume",
    "Zone",
];

/// What filters look at of an event.
pub(crate) struct FilterFields<'e> {
    /// `Ebof.1.0.TaskBegan`.
    pub(crate) message_id: &'e str,
    pub(crate) event_type: &'e str,
    pub(crate) severity: Health,
    /// The address of its resource.
    pub(crate) origin: Option<String>,
    /// The type of that; for a collection that of its members.
    pub(crate) resource_type: &'static str,
}

/// Which events are wanted: an empty list is every one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Selection {
    pub(crate) prefixes: Vec<String>,
    pub(crate) message_ids: Vec<String>,
    pub(crate) excluded_prefixes: Vec<String>,
    pub(crate) excluded_ids: Vec<String>,
    pub(crate) event_types: Vec<String>,
    pub(crate) severities: Vec<String>,
    pub(crate) resource_types: Vec<String>,
    /// Addresses of resources.
    pub(crate) origins: Vec<String>,
    /// Whether what is below those counts, too.
    pub(crate) subordinate: bool,
}

impl Selection {
    pub(crate) fn admits(&self, event: &FilterFields<'_>) -> bool {
        let prefix = prefix(event.message_id);
        let severity = format!("{:?}", event.severity);
        let has = |list: &[String], one: &str| list.iter().any(|entry| entry == one);
        let admits = |list: &[String], one: &str| list.is_empty() || has(list, one);
        let names = |list: &[String]| list.iter().any(|id| is_same_message(id, event.message_id));
        admits(&self.prefixes, prefix)
            && !has(&self.excluded_prefixes, prefix)
            && (self.message_ids.is_empty() || names(&self.message_ids))
            && !names(&self.excluded_ids)
            && admits(&self.event_types, event.event_type)
            && admits(&self.severities, &severity)
            && admits(&self.resource_types, event.resource_type)
            && (self.origins.is_empty() || event.origin.as_deref().is_some_and(|origin| self.has_origin(origin)))
    }

    fn has_origin(&self, origin: &str) -> bool {
        self.origins.iter().any(|wanted| {
            let rest = origin.strip_prefix(wanted.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.is_empty() || self.subordinate && rest.starts_with('/'))
        })
    }
}

/// The registry of a message.
pub(crate) fn prefix(message_id: &str) -> &str {
    message_id.split('.').next().unwrap_or_default()
}

/// Whether two identifiers name the same message, of whatever versions of its registry.
fn is_same_message(one: &str, other: &str) -> bool {
    prefix(one) == prefix(other) && one.rsplit('.').next() == other.rsplit('.').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_selected_by_each_property() {
        let event = |origin: &str| FilterFields {
            message_id: "Ebof.1.0.TaskBegan",
            event_type: "ResourceAdded",
            severity: Health::OK,
            origin: Some(origin.to_owned()),
            resource_type: "Task",
        };
        let list = |text: &str| vec![text.to_owned()];
        let all = Selection::default();
        assert!(all.admits(&event("/a")));
        for (selection, expected) in [
            (Selection { prefixes: list("Ebof"), ..all.clone() }, true),
            (Selection { prefixes: list("Base"), ..all.clone() }, false),
            (Selection { excluded_prefixes: list("Ebof"), ..all.clone() }, false),
            (Selection { message_ids: list("Ebof.1.0.TaskBegan"), ..all.clone() }, true),
            (Selection { message_ids: list("Ebof.1.7.TaskBegan"), ..all.clone() }, true),
            (Selection { message_ids: list("Ebof.TaskBegan"), ..all.clone() }, true),
            (Selection { message_ids: list("Base.1.0.TaskBegan"), ..all.clone() }, false),
            (Selection { excluded_ids: list("Ebof.1.0.TaskBegan"), ..all.clone() }, false),
            (Selection { severities: list("OK"), ..all.clone() }, true),
            (Selection { severities: list("Warning"), ..all.clone() }, false),
            (Selection { event_types: list("Alert"), ..all.clone() }, false),
            (Selection { resource_types: list("Task"), ..all.clone() }, true),
            (Selection { resource_types: list("Drive"), ..all.clone() }, false),
            (Selection { origins: list("/a/b"), ..all.clone() }, true),
            (Selection { origins: list("/a"), ..all.clone() }, false),
            (Selection { origins: list("/a"), subordinate: true, ..all.clone() }, true),
            (Selection { origins: list("/a/"), subordinate: true, ..all.clone() }, true),
            (Selection { origins: list("/a/bc"), subordinate: true, ..all.clone() }, false),
        ] {
            assert_eq!(selection.admits(&event("/a/b")), expected, "{selection:?}");
        }
    }
}
