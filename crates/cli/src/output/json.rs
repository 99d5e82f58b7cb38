//! Values as JSON, in the order in which they were added and with integers of 128 bits. The keys of
//! a verb are defined by its view, and documented in docs/json.md.

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number without a fraction.
    Number(u128),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Json>),
    /// An object.
    Object(Object),
    /// A value that another crate has serialized.
    Foreign(serde_json::Value),
}

/// A JSON object that keeps the order of its keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object(Vec<(String, Json)>);

impl Object {
    /// An empty object.
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// The outermost object of what `verb` prints. The number after the verb is increased when
    /// a key is removed or changes its meaning, not when one is added.
    pub fn document(verb: &str, version: u32) -> Self {
        Self::new().with("schema", format!("ebof/{verb}/{version}"))
    }

    /// Adds a key.
    pub fn with(mut self, key: impl Into<String>, value: impl Into<Json>) -> Self {
        self.push(key, value);
        self
    }

    /// Adds a key.
    pub(crate) fn push(&mut self, key: impl Into<String>, value: impl Into<Json>) {
        self.0.push((key.into(), value.into()));
    }

    /// Adds all keys of another object.
    pub(crate) fn extend(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Whether it has no keys.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The JSON text in one line, with a newline at its end: for programs that read several
    /// objects.
    pub fn to_line(&self) -> serde_json::Result<String> {
        let mut text = serde_json::to_string(self)?;
        text.push('\n');
        Ok(text)
    }

    /// The JSON text, indented, with a newline at its end.
    pub fn to_text(&self) -> serde_json::Result<String> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        Ok(text)
    }
}

/// The JSON text of a document that is a list, indented, with a newline at its end.
pub(crate) fn list_text(elements: &[Object]) -> serde_json::Result<String> {
    let mut text = serde_json::to_string_pretty(elements)?;
    text.push('\n');
    Ok(text)
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(value) => match u64::try_from(*value) {
                Ok(value) => serializer.serialize_u64(value),
                Err(_) => serializer.serialize_u128(*value),
            },
            Self::Text(value) => serializer.serialize_str(value),
            Self::List(values) => {
                let mut list = serializer.serialize_seq(Some(values.len()))?;
                for value in values {
                    list.serialize_element(value)?;
                }
                list.end()
            }
            Self::Object(object) => object.serialize(serializer),
            Self::Foreign(value) => value.serialize(serializer),
        }
    }
}

macro_rules! from_number {
    ($($type:ty),*) => {
        $(impl From<$type> for Json {
            fn from(value: $type) -> Self {
                Self::Number(value.into())
            }
        })*
    };
}

from_number!(u8, u16, u32, u64, u128);

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<String> for Json {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<&str> for Json {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<serde_json::Value> for Json {
    fn from(value: serde_json::Value) -> Self {
        Self::Foreign(value)
    }
}

impl From<Object> for Json {
    fn from(value: Object) -> Self {
        Self::Object(value)
    }
}

impl<T: Into<Self>> From<Vec<T>> for Json {
    fn from(values: Vec<T>) -> Self {
        Self::List(values.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Self>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_large_numbers_are_kept() {
        let object = Object::document("x", 1).with("z", u128::MAX).with("a", vec![1_u8]).with("m", None::<u8>);
        let text = serde_json::to_string(&object).unwrap();
        assert_eq!(text, r#"{"schema":"ebof/x/1","z":340282366920938463463374607431768211455,"a":[1],"m":null}"#);
    }
}
