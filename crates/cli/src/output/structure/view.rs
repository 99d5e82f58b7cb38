//! The view of a data structure that has a table: its fields, and what is above and below them.

use zerocopy::{Immutable, IntoBytes};

use super::super::View;
use super::super::json::{Json, Object};
use super::FieldTable;

/// A data structure that a verb shows by its table.
pub(crate) struct StructureView<T: 'static> {
    /// The data structure.
    data: Box<T>,
    table: &'static FieldTable<T>,
    title: String,
    /// The document, with what is known beside the fields.
    document: Object,
    /// What is below the fields: in text, in text with `-v`, in JSON.
    below: (String, String, Object),
}

impl<T: IntoBytes + Immutable> StructureView<T> {
    /// `data` by its table, below a title; as JSON a document of `verb`.
    pub(crate) fn new(
        table: &'static FieldTable<T>,
        verb: &str,
        version: u32,
        title: impl Into<String>,
        data: Box<T>,
    ) -> Self {
        let document = Object::document(verb, version);
        Self { data, table, title: title.into(), document, below: Default::default() }
    }

    /// Adds a key in front of the fields.
    pub(crate) fn with(mut self, key: &str, value: impl Into<Json>) -> Self {
        self.document.push(key, value);
        self
    }

    /// Adds what is below the fields: a key of JSON with its value, and lines of text.
    pub(crate) fn list(self, key: impl Into<String>, value: impl Into<Json>, lines: &str) -> Self {
        self.key(key, value).lines(lines, lines)
    }

    /// Adds a key below the fields.
    pub(crate) fn key(mut self, key: impl Into<String>, value: impl Into<Json>) -> Self {
        self.below.2.push(key, value);
        self
    }

    /// Adds lines of text below the fields, and those with `-v`.
    pub(crate) fn lines(mut self, plain: &str, verbose: &str) -> Self {
        self.below.0 += plain;
        self.below.1 += verbose;
        self
    }
}

impl<T: IntoBytes + Immutable> View for StructureView<T> {
    fn text(&self, verbose: bool) -> String {
        let below = if verbose { &self.below.1 } else { &self.below.0 };
        format!("{}{}{below}", self.title, self.table.text(&self.data, verbose))
    }

    fn json(&self, verbose: bool) -> Object {
        self.document.clone().extend(self.table.json(&self.data, verbose)).extend(self.below.2.clone())
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.data.as_bytes())
    }
}

/// Numbered lines, and an object for each: what `list` of a view takes.
pub(crate) fn numbered<E>(
    entries: impl Iterator<Item = E>,
    object: impl Fn(&E) -> Object,
    line: impl Fn(usize, &E) -> String,
) -> (Vec<Object>, String) {
    let mut text = String::new();
    let objects = entries.enumerate().map(|(index, entry)| {
        text += &line(index, &entry);
        object(&entry)
    });
    (objects.collect(), text)
}
