//! The tables of keys in `docs/config.md`, rendered from the rows of each table of the
//! configuration. A test compares the document with them, or writes them.

use std::fmt::{Display, Write as _};

use ebof_nvme::Nqn;
use serde::Serialize;
use serde_json::Value;

use crate::config::{Host, ManagedDrive, Namespace, Port, Subsystem, TargetOptions};
use crate::drive::{Drive, FileDrive};
use crate::keys::{Absent, Form, Key};
use crate::listen::Listen;
use crate::units::{format_duration, format_size};

/// The table of keys that follows a line of the manual.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTable {
    /// The line that precedes the table: a heading, or the end of a paragraph.
    pub after: &'static str,
    /// The table in Markdown, with a row for each key.
    pub text: String,
}

/// The tables, in the order of the manual.
#[must_use]
pub fn key_tables() -> Vec<KeyTable> {
    let nqn = Nqn::discovery();
    let file = Drive::file("disk.img");
    let namespace = Namespace::new(1, file.clone());
    let drive = ManagedDrive::new("d0", file.clone());
    vec![
        table("## `[target]`", TargetOptions::KEYS, &TargetOptions::default()),
        table("## `[[ports]]`", Port::KEYS, &Port::new(1, Listen::loopback())),
        table("## `[[hosts]]`", Host::KEYS, &Host::new(nqn.clone())),
        table("## `[[subsystems]]`", Subsystem::KEYS, &Subsystem::new(nqn)),
        table("## `[[subsystems.namespaces]]`", Namespace::KEYS, &namespace),
        table("and letters, unless `size=` is given. A file as a table:", FileDrive::KEYS, &file),
        table("## Drives", ManagedDrive::KEYS, &drive),
    ]
}

/// `new` has the defaults.
fn table<T>(after: &'static str, keys: &[Key<T>], new: &impl Serialize) -> KeyTable {
    let new = serde_json::to_value(new).expect("names, texts and numbers become JSON");
    let mut text = "| key | type | default | accepted, meaning |\n|---|---|---|---|\n".to_owned();
    for key in keys {
        let default = default_of(key, &new);
        let accepted = accepted(&key.form);
        let colon = if accepted.is_empty() { "" } else { ": " };
        // A String takes all that is written to it.
        let _ =
            writeln!(text, "| `{}` | {} | {default} | {accepted}{colon}{} |", key.name, kind_of(&key.form), key.text);
    }
    KeyTable { after, text }
}

fn default_of<T>(key: &Key<T>, new: &Value) -> String {
    match key.default {
        Absent::Required => "required".to_owned(),
        Absent::Words(words) => words.to_owned(),
        Absent::Value => shown(new.get(key.name).unwrap_or(&Value::Bool(false))),
    }
}

/// What the key `name` is where it is not written, for a sentence: `true (default)`, `none`.
/// It is one that is left out where it has its default.
pub(crate) fn unwritten<T>(keys: &[Key<T>], name: &str) -> String {
    let default = keys.iter().find(|key| key.name == name).map(|key| default_of(key, &Value::Null).replace('`', ""));
    // What the manual says besides is too much for a sentence.
    let default = default.as_deref().and_then(|text| text.split([';', ':', ',']).next()).unwrap_or("none");
    if default == "none" { default.to_owned() } else { format!("{default} (default)") }
}

pub(crate) fn kind_of<T>(form: &Form<T>) -> &'static str {
    match form {
        Form::Integer { .. } => "integer",
        Form::Size { .. } => "size",
        Form::Duration { .. } => "duration",
        Form::Boolean { .. } => "boolean",
        Form::Name { .. } | Form::Printable { .. } | Form::Text { .. } => "string",
        Form::Names { .. } => "list of strings",
        Form::Nqn { .. } => "NQN",
        Form::Other(kind) => kind,
    }
}

/// The values that are accepted; empty if only the key's text describes them.
fn accepted<T>(form: &Form<T>) -> String {
    match form {
        Form::Integer { range, .. } => format!("{} to {}", range.start(), range.end()),
        Form::Size { range, step, .. } => {
            let multiple = if *step > 1 { format!(", a multiple of {step}") } else { String::new() };
            let size = |bytes: &u64| quoted_unit(format_size(*bytes));
            format!("{} to {}{multiple}", size(range.start()), size(range.end()))
        }
        Form::Duration { range, .. } => {
            let duration = |duration| quoted_unit(format_duration(duration));
            format!("{} to {}", duration(*range.start()), duration(*range.end()))
        }
        Form::Name { names, .. } | Form::Names { names, .. } => {
            let names: Vec<String> = names.iter().map(|name| format!("`\"{name}\"`")).collect();
            names.join(", ")
        }
        Form::Printable { chars_max, .. } => format!("1 to {chars_max} printable ASCII characters"),
        Form::Boolean { .. } | Form::Nqn { .. } | Form::Text { .. } | Form::Other(_) => String::new(),
    }
}

/// Sizes and durations with a unit are strings in the configuration.
fn quoted_unit(text: String) -> String {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text } else { code(format_args!("\"{text}\"")) }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Number(number) => number.to_string(),
        other => code(other),
    }
}

fn code(text: impl Display) -> String {
    format!("`{text}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "| key | type | default |";

    /// Whether what a setter stores is what a configuration with that key is written with.
    fn both_ends_are_stored<T: Serialize>(keys: &[Key<T>], new: impl Fn() -> T) {
        for key in keys {
            let Form::Integer { range, set: Some(set) } = &key.form else { continue };
            for end in [*range.start(), *range.end()] {
                let mut value = new();
                set(&mut value, end);
                assert_eq!(serde_json::to_value(&value).unwrap()[key.name], end, "{}", key.name);
            }
        }
    }

    #[test]
    fn a_number_within_its_range_fits_into_its_field() {
        let file = Drive::file("disk.img");
        both_ends_are_stored(TargetOptions::KEYS, TargetOptions::default);
        both_ends_are_stored(Port::KEYS, || Port::new(1, Listen::loopback()));
        both_ends_are_stored(Namespace::KEYS, || Namespace::new(1, file.clone()));
        both_ends_are_stored(ManagedDrive::KEYS, || ManagedDrive::new("d0", file.clone()));
    }

    #[test]
    fn the_manual_has_the_rows_of_every_key() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.md");
        let manual = std::fs::read_to_string(path).unwrap();
        let mut written = manual.clone();
        for table in key_tables() {
            let (before, behind) =
                written.split_once(&format!("{}\n", table.after)).unwrap_or_else(|| panic!("{}", table.after));
            let start = behind.find(HEAD).unwrap();
            let end = behind[start..].find("\n\n").map_or(behind.len(), |end| start + end + 1);
            written = format!("{before}{}\n{}{}{}", table.after, &behind[..start], table.text, &behind[end..]);
        }
        if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
            std::fs::write(path, written).unwrap();
        } else {
            assert_eq!(
                manual, written,
                "docs/config.md: INSTA_UPDATE=always cargo test -p ebof-manage writes its tables"
            );
        }
    }
}
