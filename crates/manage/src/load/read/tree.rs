//! A tree of values with their positions in the text, parsed from TOML or JSON.
//!
//! Reports syntax errors; does not know the keys.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use toml::de::{DeTable, DeValue};

use crate::diagnostic::{Collector, Span};

/// A value and its position.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) span: Span,
    pub(crate) value: Value,
}

#[derive(Debug)]
pub(crate) enum Value {
    String(String),
    /// Integers of more than 64 bits are [`Value::Float`]: no key accepts either.
    Integer(i64),
    Float,
    Boolean(bool),
    /// Only TOML has it.
    Date,
    /// Only JSON has it.
    Null,
    Array(Vec<Node>),
    Table(Vec<KeyEntry>),
}

/// A key, its position, and its value.
#[derive(Debug)]
pub(crate) struct KeyEntry {
    pub(crate) key: String,
    pub(crate) key_span: Span,
    pub(crate) node: Node,
}

impl Value {
    /// Its type, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::String(_) => "a string",
            Self::Integer(_) => "an integer",
            Self::Float => "a number that is no 64-bit integer",
            Self::Boolean(_) => "a boolean",
            Self::Date => "a date or time",
            Self::Null => "null",
            Self::Array(_) => "an array",
            Self::Table(_) => "a table",
        }
    }
}

impl Node {
    /// The entry of a table; `None` for everything else.
    pub(crate) fn entry(&self, key: &str) -> Option<&KeyEntry> {
        match &self.value {
            Value::Table(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// The elements of an array; none for everything else.
    pub(crate) fn elements(&self) -> &[Self] {
        match &self.value {
            Value::Array(elements) => elements,
            _ => &[],
        }
    }
}

/// Parses TOML. Syntax errors go to `out`, and then there is no tree: the parser can only guess at
/// the rest, and errors about a guess are misleading.
pub(crate) fn from_toml(text: &str, out: &mut Collector<'_>) -> Option<Node> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        let span = table.span();
        return Some(Node { span, value: toml_table(table.get_ref()) });
    }
    for error in errors {
        let message = error.message();
        let help = if message.contains("duplicate key") {
            "write it once"
        } else {
            "this is not TOML (https://toml.io): strings need quotes, tables are [NAME], lists of tables [[NAME]]"
        };
        out.error(error.span().unwrap_or(0..0), message.to_owned(), help);
    }
    None
}

fn toml_table(table: &DeTable<'_>) -> Value {
    let entries = table.iter().map(|(key, value)| KeyEntry {
        key: key.get_ref().to_string(),
        key_span: key.span(),
        node: toml_node(value.span(), value.get_ref()),
    });
    Value::Table(entries.collect())
}

fn toml_node(span: Span, value: &DeValue<'_>) -> Node {
    let value = match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).map_or(Value::Float, Value::Integer)
        }
        DeValue::Float(_) => Value::Float,
        DeValue::Boolean(truth) => Value::Boolean(*truth),
        DeValue::Datetime(_) => Value::Date,
        DeValue::Array(array) => {
            Value::Array(array.iter().map(|element| toml_node(element.span(), element.get_ref())).collect())
        }
        DeValue::Table(table) => toml_table(table),
    };
    Node { span, value }
}

/// More levels than any key has; bounds the recursion.
const JSON_DEPTH_MAX: usize = 32;

/// Parses JSON. Syntax errors go to `out`, and then there is no tree.
pub(crate) fn from_json(text: &str, out: &mut Collector<'_>) -> Option<Node> {
    // A byte order mark is not JSON, but some editors write it.
    let body = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Err(error) = serde_json::from_str::<IgnoredAny>(body) {
        let offset = offset_of(body, error.line(), error.column()) + (text.len() - body.len());
        let message = error.to_string();
        // The position is already at the beginning of the message.
        let message = message.split(" at line ").next().unwrap_or_default().to_owned();
        out.error(offset..offset + 1, message, "this is not JSON (https://json.org)");
        return None;
    }
    // The syntax is valid. What can still fail: a string with half a surrogate pair, and the depth.
    let mut reader = JsonReader { text, out, depth: 0 };
    reader.node(body.trim_matches([' ', '\t', '\r', '\n']))
}

/// serde_json counts columns in bytes from 1; 0 is the end of the previous line.
fn offset_of(text: &str, line: usize, column: usize) -> usize {
    let start = match line.checked_sub(2) {
        None => 0,
        Some(nth) => {
            text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n').nth(nth).map_or(text.len(), |(at, _)| at + 1)
        }
    };
    (start + column).saturating_sub(1).min(text.len())
}

struct JsonReader<'a, 'o, 'c> {
    text: &'a str,
    out: &'o mut Collector<'c>,
    depth: usize,
}

impl<'a> JsonReader<'a, '_, '_> {
    /// The position of a part of the text.
    fn span(&self, raw: &str) -> Span {
        let start = (raw.as_ptr() as usize).checked_sub(self.text.as_ptr() as usize);
        let start = start.expect("serde_json gives raw values as parts of the text that it reads");
        start..start + raw.len()
    }

    fn node(&mut self, raw: &'a str) -> Option<Node> {
        let span = self.span(raw);
        if self.depth > JSON_DEPTH_MAX {
            self.out.error(span, "this is nested too deeply", format!("accepted: {JSON_DEPTH_MAX} levels"));
            return None;
        }
        self.depth += 1;
        let value = match raw.as_bytes().first() {
            Some(b'"') => self.string(raw).map(Value::String),
            Some(b'{') => self.table(raw),
            Some(b'[') => self.array(raw),
            Some(b't') => Some(Value::Boolean(true)),
            Some(b'f') => Some(Value::Boolean(false)),
            Some(b'n') => Some(Value::Null),
            _ => Some(raw.parse().map_or(Value::Float, Value::Integer)),
        };
        self.depth -= 1;
        value.map(|value| Node { span, value })
    }

    fn string(&mut self, raw: &'a str) -> Option<String> {
        self.checked(raw, serde_json::from_str(raw))
    }

    fn array(&mut self, raw: &'a str) -> Option<Value> {
        let elements: Vec<&'a RawValue> = self.checked(raw, serde_json::from_str(raw))?;
        elements.into_iter().map(|element| self.node(element.get())).collect::<Option<Vec<_>>>().map(Value::Array)
    }

    fn table(&mut self, raw: &'a str) -> Option<Value> {
        let RawEntries(raw_entries) = self.checked(raw, serde_json::from_str(raw))?;
        let mut entries: Vec<KeyEntry> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for (key, value) in raw_entries {
            let key_span = self.span(key.get());
            let key = self.string(key.get())?;
            if !seen.insert(key.clone()) {
                self.out.error(key_span, format!("`{key}` is given twice"), "write it once");
                continue;
            }
            entries.push(KeyEntry { key, key_span, node: self.node(value.get())? });
        }
        Some(Value::Table(entries))
    }

    fn checked<T>(&mut self, raw: &'a str, result: serde_json::Result<T>) -> Option<T> {
        result
            .map_err(|error| {
                let message = error.to_string();
                let message = message.split(" at line ").next().unwrap_or_default().to_owned();
                self.out.error(self.span(raw), message, "this is not JSON (https://json.org)");
            })
            .ok()
    }
}

/// The entries of a JSON object in their order, including duplicates.
struct RawEntries<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for RawEntries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = RawEntries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(RawEntries(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn json(text: &str) -> Result<Node, String> {
        let mut out = Collector::new("a.json", text);
        from_json(text, &mut out).ok_or_else(|| format!("{:#}", out.finish()))
    }

    #[test]
    fn json_values_have_positions() {
        let text = "\u{feff}{\n \"a\": [1, \"b\\u0041\"], \"c\": {}\n}\n";
        let root = json(text).unwrap();
        let entry = root.entry("a").unwrap();
        assert_eq!(&text[entry.key_span.clone()], "\"a\"");
        let [one, two] = entry.node.elements() else { panic!("two elements") };
        assert!(matches!(one.value, Value::Integer(1)));
        assert!(matches!(&two.value, Value::String(text) if text == "bA"));
        assert_eq!(&text[two.span.clone()], "\"b\\u0041\"");
        assert_eq!(&text[root.entry("c").unwrap().node.span.clone()], "{}");
    }

    #[test]
    fn json_errors_have_positions() {
        assert_eq!(
            json("{\n  \"a\": 1,\n  \"b\" 2\n}").unwrap_err(),
            "error: expected `:`\n --> a.json:3:7\n  |\n3 |   \"b\" 2\n  |       ^\n  |\n  = help: this is not JSON (https://json.org)"
        );
        let cut = json("{\"a\": 1").unwrap_err();
        assert!(cut.starts_with("error: EOF while parsing an object\n --> a.json:1:7\n"), "{cut}");
        let empty = json("").unwrap_err();
        assert!(empty.starts_with("error: EOF while parsing a value\n --> a.json:1:1\n"), "{empty}");
        assert!(json("{\"a\": 1, \"a\": 2}").is_ok());
        assert!(json("\"\\ud800\"").unwrap_err().contains(" --> a.json:1:1\n"));
    }

    #[test]
    fn deeply_nested_json_is_refused() {
        let text = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(json(&text).unwrap_err().contains("nested too deeply"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[\\[\\]{}\":,0-9a\\\\ \n=#'é.-]*") {
            let mut out = Collector::new("a", &text);
            let _ = (from_json(&text, &mut out), from_toml(&text, &mut out));
            let _ = format!("{:#}", out.finish());
        }
    }
}
