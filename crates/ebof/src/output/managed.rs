//! The view of verbs that manage namespaces: the line that nvme-cli prints, and what was done for programs.

use super::View;
use super::json::{Json, Object};

/// A namespace was created, deleted, attached or detached.
#[derive(Debug)]
pub(crate) struct Managed {
    verb: &'static str,
    nsid: u32,
    facts: Object,
}

impl Managed {
    /// `verb` was done to namespace `nsid` of `device`.
    pub(crate) fn new(verb: &'static str, device: &str, nsid: u32) -> Self {
        Self { verb, nsid, facts: Object::new().with("device", device).with("nsid", nsid) }
    }

    /// Adds a fact to the JSON.
    pub(crate) fn with(mut self, key: &str, value: impl Into<Json>) -> Self {
        self.facts.push(key, value);
        self
    }
}

impl View for Managed {
    fn text(&self, _verbose: bool) -> String {
        let what = match self.verb {
            "create-ns" => "created nsid",
            "delete-ns" => "deleted nsid",
            _ => "nsid",
        };
        format!("{}: Success, {what}:{}\n", self.verb, self.nsid)
    }

    fn json(&self, _verbose: bool) -> Object {
        Object::document(self.verb, 1).extend(self.facts.clone())
    }
}
