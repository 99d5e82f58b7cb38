//! Keys and values as the command line writes them: `KEY=VALUE`, for lists `KEY+=VALUE` and
//! `KEY-=VALUE`, and for entries of tables `KEY.NAME=VALUE`.

use std::fmt;

use serde_json::{Map, Value, json};

use super::Keys;
use super::table::Kind;
use crate::diagnostic::nearest::nearest;

/// What words say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// Keys that are set; `null` where nothing follows the `=`, which is the default.
    pub keys: Keys,
    /// What is added to lists, and entries of tables that are set.
    pub add: Map<String, Value>,
    /// What is taken from lists, and names of entries that are taken from tables.
    pub remove: Map<String, Value>,
}

/// Why a word is not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WordError {
    message: String,
    advice: String,
}

impl WordError {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> &str {
        &self.advice
    }
}

impl fmt::Display for WordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for WordError {}

/// What words say of an object of this kind.
///
/// # Errors
/// The first word that is not understood.
pub fn words(kind: Kind, all: &[String]) -> Result<Words, WordError> {
    let mut read = Words::default();
    for word in all {
        let error = |message: String, advice: String| WordError { message, advice };
        let Some((key, value)) = word.split_once('=') else {
            let advice = "accepted: KEY=VALUE, for lists KEY+=VALUE and KEY-=VALUE, and for entries of tables \
                          KEY.NAME=VALUE";
            return Err(error(format!("`{}` has no =", word.escape_debug()), advice.to_owned()));
        };
        if let Some((key, name)) = key.split_once('.') {
            read.entry(kind, key, name, value)?;
            continue;
        }
        let (key, into) = match (key.strip_suffix('+'), key.strip_suffix('-')) {
            (Some(key), _) => (key, &mut read.add),
            (_, Some(key)) => (key, &mut read.remove),
            _ => (key, &mut read.keys),
        };
        // The command line writes dashes in names.
        let key = key.replace('-', "_");
        let form = form_of(kind, &key)?;
        let value = if value.is_empty() { Value::Null } else { value_of(form, value) };
        match into.get_mut(&key) {
            None => drop(into.insert(key, value)),
            // Several elements, one to a word.
            Some(Value::Array(before)) if form.starts_with("list") => match value {
                Value::Array(more) => before.extend(more),
                other => before.push(other),
            },
            Some(_) => return Err(error(format!("`{key}` is given twice"), "write it once".to_owned())),
        }
    }
    Ok(read)
}

impl Words {
    /// The entry `name` of a table is set, or where nothing follows the `=` taken out of it.
    fn entry(&mut self, kind: Kind, key: &str, name: &str, value: &str) -> Result<(), WordError> {
        // The command line writes dashes in names.
        let key = key.replace('-', "_");
        let form = form_of(kind, &key)?;
        if !form.starts_with("table of") || name.is_empty() || name.ends_with(['+', '-']) {
            let message = format!("`{key}` is no table with an entry `{}`", name.escape_debug());
            return Err(WordError { message, advice: format!("the type of `{key}`: {form}") });
        }
        if value.is_empty() {
            let names = self.remove.entry(key).or_insert_with(|| json!([]));
            names.as_array_mut().into_iter().for_each(|names| names.push(json!(name)));
        } else {
            let entries = self.add.entry(key).or_insert_with(|| json!({}));
            let value = value_of("string", value);
            entries
                .as_object_mut()
                .into_iter()
                .for_each(|entries| drop(entries.insert(name.to_owned(), value.clone())));
        }
        Ok(())
    }
}

/// The type of a key, as the manual calls it.
fn form_of(kind: Kind, key: &str) -> Result<&'static str, WordError> {
    if let Some(form) = kind.form_of(key) {
        return Ok(form);
    }
    let names: Vec<&str> = kind.keys().into_iter().map(|(key, _)| key).collect();
    let advice = match nearest(key, &names) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("accepted: {}", names.join(", ")),
    };
    Err(WordError { message: format!("`{}` is not a key of a {kind}", key.escape_debug()), advice })
}

/// A list or table as JSON writes it, or as a configuration in TOML does.
fn structure_of(text: &str) -> Option<Value> {
    let of_toml = || {
        let mut table = toml::from_str::<toml::Table>(&format!("value = {text}")).ok()?;
        let value = table.remove("value").filter(|_| table.is_empty())?;
        serde_json::to_value(value).ok()
    };
    serde_json::from_str(text).ok().or_else(of_toml)
}

/// A value of a key whose type the manual calls `form`. What is none is left as it is: the
/// configuration's rules say what is accepted.
fn value_of(form: &str, text: &str) -> Value {
    let number = || text.parse::<i64>().map_or_else(|_| json!(text), |number| json!(number));
    let structure = |open: char| if text.starts_with(open) { structure_of(text) } else { None };
    match form {
        "integer" | "size" => number(),
        "boolean" => match text {
            "true" | "yes" => json!(true),
            "false" | "no" => json!(false),
            other => json!(other),
        },
        form if form.starts_with("list") => {
            structure('[').unwrap_or_else(|| json!(text.split(',').collect::<Vec<_>>()))
        }
        form if form.contains("table") => structure('{').unwrap_or_else(|| json!(text)),
        _ => json!(text),
    }
}
