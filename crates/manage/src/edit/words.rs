//! Keys and values as the command line writes them: `KEY=VALUE`, and for lists `KEY+=VALUE` and
//! `KEY-=VALUE`.

use std::fmt;

use serde_json::{Map, Value, json};

use super::Keys;
use super::table::Kind;
use crate::nearest::nearest;

/// What words say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// Keys that are set; `null` where nothing follows the `=`, which is the default.
    pub keys: Keys,
    /// What is added to lists.
    pub add: Map<String, Value>,
    /// What is taken from lists.
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
            let advice = "accepted: KEY=VALUE, and for lists KEY+=VALUE and KEY-=VALUE".to_owned();
            return Err(error(format!("`{}` has no =", word.escape_debug()), advice));
        };
        let (key, into) = match (key.strip_suffix('+'), key.strip_suffix('-')) {
            (Some(key), _) => (key, &mut read.add),
            (_, Some(key)) => (key, &mut read.remove),
            _ => (key, &mut read.keys),
        };
        // The command line writes dashes in names.
        let key = key.replace('-', "_");
        let known = kind.keys();
        let Some((_, form)) = known.iter().find(|(known, _)| *known == key) else {
            let names: Vec<&str> = known.iter().map(|(key, _)| *key).collect();
            let advice = match nearest(&key, &names) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("accepted: {}", names.join(", ")),
            };
            return Err(error(format!("`{}` is not a key of a {kind}", key.escape_debug()), advice));
        };
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
