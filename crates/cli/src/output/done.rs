//! The view of a verb whose result is only success: a line of text, and keys in the JSON.

use super::View;
use super::json::{Json, Object};

/// Something was done.
#[derive(Debug)]
pub(crate) struct Done {
    verb: &'static str,
    line: String,
    facts: Object,
}

impl Done {
    /// `verb` was done to `device`.
    pub(crate) fn new(verb: &'static str, device: &str, line: &str) -> Self {
        Self { verb, line: format!("{verb}: {line}"), facts: Object::new().with("device", device) }
    }

    /// Adds a key to the JSON.
    pub(crate) fn with(mut self, key: &str, value: impl Into<Json>) -> Self {
        self.facts.push(key, value);
        self
    }
}

impl View for Done {
    fn text(&self, _verbose: bool) -> String {
        format!("{}\n", self.line)
    }

    fn json(&self, _verbose: bool) -> Object {
        Object::document(self.verb, 1).extend(self.facts.clone())
    }
}
