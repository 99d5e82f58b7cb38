//! Reads typed values from a table and reports unknown keys.
//!
//! Checks types and ranges, and suggests similar names; does not know the keys themselves.

use std::ops::RangeInclusive;

use crate::diagnostic::nearest::nearest;
use crate::diagnostic::{Collector, MAX_ITEMS, Span};
use crate::keys::{Form, Key};
use crate::load::read::tree::{KeyEntry, Node, Value};
use crate::load::read::values::{self, as_string, mismatch};

/// A table that is being read. A key becomes known by being read.
pub(crate) struct Table<'t> {
    /// What the table describes, for messages: `a port`.
    what: &'static str,
    span: Span,
    entries: &'t [KeyEntry],
    known: Vec<&'static str>,
}

impl<'t> Table<'t> {
    /// Opens `node`; reports an error if it is not a table.
    pub(crate) fn open(what: &'static str, node: &'t Node, out: &mut Collector<'_>) -> Option<Self> {
        match &node.value {
            Value::Table(entries) => Some(Self { what, span: node.span.clone(), entries, known: Vec::new() }),
            other => {
                let message = format!("{what} is described by a table, and this is {}", other.kind());
                out.error(node.span.clone(), message, "");
                None
            }
        }
    }

    /// Marks the names of `keys` as known.
    pub(crate) fn with<T>(mut self, keys: &[Key<T>]) -> Self {
        self.known.extend(keys.iter().map(|key| key.name));
        self
    }

    /// Reads those of `keys` that have a setter, and passes valid values to it.
    pub(crate) fn take<T>(&mut self, keys: &[Key<T>], value: &mut T, out: &mut Collector<'_>) {
        for key in keys {
            let Some(node) = self.node(key.name) else { continue };
            self.take_key(key, node, value, out);
        }
    }

    fn take_key<T>(&mut self, key: &Key<T>, node: &Node, value: &mut T, out: &mut Collector<'_>) {
        let name = key.name;
        match &key.form {
            Form::Integer { range, set: Some(set) } => {
                self.integer(name, range, out).into_iter().for_each(|number| set(value, number));
            }
            Form::Size { range, step, set: Some(set) } => {
                let size = values::size(name, node, range, *step, out);
                size.into_iter().for_each(|size| set(value, size));
            }
            Form::Duration { range, set } => {
                values::duration(name, node, range, out).into_iter().for_each(|duration| set(value, duration));
            }
            Form::Boolean { set: Some(set) } => {
                self.boolean(name, out).into_iter().for_each(|truth| set(value, truth));
            }
            Form::Name { names, set } => {
                values::choice(name, node, names, out).into_iter().for_each(|choice| set(value, choice));
            }
            Form::Names { names, set } => {
                let nodes = self.array(name, out);
                let choices = nodes.and_then(|nodes| values::choices(name, (node, nodes), names, out));
                choices.into_iter().for_each(|choices| set(value, &choices));
            }
            Form::Printable { chars_max, set: Some(set) } => {
                let text = as_string(name, node, out);
                let text = text.and_then(|text| values::printable(name, text, *chars_max, &node.span, out));
                text.into_iter().for_each(|text| set(value, text));
            }
            Form::Nqn { set: Some(set) } => {
                values::nqn(name, node, out).into_iter().for_each(|nqn| set(value, nqn));
            }
            Form::Text { set } => {
                let set = |text| set(value, text);
                if let Some(Err(refused)) = as_string(name, node, out).map(set) {
                    out.error(node.span.clone(), refused.message, refused.help);
                }
            }
            Form::Integer { set: None, .. }
            | Form::Size { set: None, .. }
            | Form::Boolean { set: None }
            | Form::Printable { set: None, .. }
            | Form::Nqn { set: None }
            | Form::Other(_) => {}
        }
    }

    /// The beginning of the table, for errors about missing keys.
    pub(crate) fn place(&self) -> Span {
        beginning(&self.span)
    }

    /// The entry of a key. JSON's null counts as missing.
    pub(crate) fn entry(&mut self, key: &'static str) -> Option<&'t KeyEntry> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        self.entries.iter().find(|entry| entry.key == key && !matches!(entry.node.value, Value::Null))
    }

    /// The value of a key.
    pub(crate) fn node(&mut self, key: &'static str) -> Option<&'t Node> {
        self.entry(key).map(|entry| &entry.node)
    }

    /// The value of a mandatory key.
    pub(crate) fn required(&mut self, key: &'static str, example: &str, out: &mut Collector<'_>) -> Option<&'t Node> {
        let node = self.node(key);
        if node.is_none() {
            let help = format!("add {}", out.assignment(key, example));
            out.error(self.place(), format!("{} has no `{key}`", self.what), help);
        }
        node
    }

    pub(crate) fn string(&mut self, key: &'static str, out: &mut Collector<'_>) -> Option<(&'t str, Span)> {
        let node = self.node(key)?;
        as_string(key, node, out).map(|text| (text, node.span.clone()))
    }

    pub(crate) fn boolean(&mut self, key: &'static str, out: &mut Collector<'_>) -> Option<bool> {
        let node = self.node(key)?;
        let Value::Boolean(truth) = node.value else {
            mismatch(key, node, "true or false", out);
            return None;
        };
        Some(truth)
    }

    /// An integer within `range`, as any integer type that holds the range.
    pub(crate) fn integer<T: TryFrom<u64>>(
        &mut self,
        key: &'static str,
        range: &RangeInclusive<u64>,
        out: &mut Collector<'_>,
    ) -> Option<T> {
        let node = self.node(key)?;
        let accepted = format!("an integer from {} to {}", range.start(), range.end());
        let Value::Integer(number) = node.value else {
            mismatch(key, node, &accepted, out);
            return None;
        };
        let within = u64::try_from(number).ok().filter(|number| range.contains(number));
        let converted = within.and_then(|number| T::try_from(number).ok());
        if converted.is_none() {
            out.error(node.span.clone(), format!("`{key}` is {number}"), format!("accepted: {accepted}"));
        }
        converted
    }

    /// The elements of an array; `None` if the key is missing.
    pub(crate) fn array(&mut self, key: &'static str, out: &mut Collector<'_>) -> Option<&'t [Node]> {
        let node = self.node(key)?;
        match &node.value {
            Value::Array(elements) => Some(elements),
            Value::Table(_) => {
                let help = format!("write {}", out.table_list(key));
                out.error(node.span.clone(), format!("`{key}` is a table, and there can be several"), help);
                None
            }
            _ => {
                mismatch(key, node, "an array", out);
                None
            }
        }
    }

    /// The elements of an array that has at most `max` of them; `None` if the key is missing.
    pub(crate) fn bounded(&mut self, key: &'static str, max: usize, out: &mut Collector<'_>) -> Option<&'t [Node]> {
        let nodes = self.array(key, out)?;
        if let Some(surplus) = nodes.get(max) {
            let message = format!("there are {} {key}", nodes.len());
            out.error(surplus.span.clone(), message, format!("accepted: at most {max}"));
        }
        Some(&nodes[..nodes.len().min(max)])
    }

    /// Unknown keys, each with a message and a help text.
    pub(crate) fn unknown(&self) -> impl Iterator<Item = (&'t KeyEntry, String, String)> {
        let unknown = self.entries.iter().filter(|entry| !self.known.contains(&entry.key.as_str()));
        unknown.enumerate().map(|(at, entry)| {
            // Comparing takes time: only for as many keys as are shown.
            let near = if at < MAX_ITEMS { nearest(&entry.key, &self.known) } else { None };
            let help = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("accepted here: {}", self.known.join(", ")),
            };
            (entry, format!("`{}` is not a key of {}", entry.key, self.what), help)
        })
    }

    /// Reports unknown keys.
    pub(crate) fn finish(&self, out: &mut Collector<'_>) {
        for (entry, message, help) in self.unknown() {
            out.error(entry.key_span.clone(), message, help);
        }
    }
}

/// The position of a diagnostic about something that may have many lines: its first character.
pub(crate) fn beginning(span: &Span) -> Span {
    span.start..span.end.min(span.start + 1)
}
