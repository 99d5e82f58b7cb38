//! The view of a result with one text, with `-v` and without: a line that says what was done, or
//! bytes that nothing here interprets.

use super::View;
use super::json::{Json, Object};
use super::text::{digits, dump};

/// Something was done.
#[derive(Debug)]
pub(crate) struct Done {
    text: String,
    document: Object,
    bytes: Option<Vec<u8>>,
}

impl Done {
    /// `verb` was done to `device`.
    pub(crate) fn new(verb: &str, device: &str, line: &str) -> Self {
        Self::with_text(verb, format!("{verb}: {line}\n")).with("device", device)
    }

    /// `verb` was done, and `text` says what came of it.
    pub(crate) fn with_text(verb: &str, text: String) -> Self {
        Self { text, document: Object::document(verb, 1), bytes: None }
    }

    /// Adds a key to the JSON.
    pub(crate) fn with(mut self, key: &str, value: impl Into<Json>) -> Self {
        self.document.push(key, value);
        self
    }

    /// Adds the bytes that the controller returned.
    pub(crate) fn with_bytes(mut self, bytes: Vec<u8>) -> Self {
        self.text += &dump(&bytes);
        self.document.push("data_size", bytes.len() as u64);
        self.document.push("data", digits(&bytes));
        self.bytes = Some(bytes);
        self
    }
}

impl View for Done {
    fn text(&self, _verbose: bool) -> String {
        self.text.clone()
    }

    fn json(&self, _verbose: bool) -> Object {
        self.document.clone()
    }

    fn binary(&self) -> Option<&[u8]> {
        self.bytes.as_deref()
    }
}
