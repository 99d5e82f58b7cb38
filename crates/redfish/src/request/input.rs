//! Bodies of requests: each property is taken once, mistakes are collected, and what is left over
//! at the end is one, too.

use std::fmt::Debug;
use std::mem;
use std::ops::RangeInclusive;

use ebof_manage::api::erase_texts;
use http::StatusCode;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use crate::place::Place;
use crate::response::message::{Message, Problem};

/// The most elements of a list that is sent.
const LIST_MAX: usize = 1024;

/// The most mistakes that are told of one body.
const MISTAKES_MAX: usize = 100;

/// The longest text of a property that has no limit of its own, bytes.
const TEXT_BYTES_MAX: usize = 4096;

/// The properties of an object in a body.
#[derive(Debug, Default)]
pub(crate) struct Input {
    properties: Properties,
    /// The JSON pointer of the object; empty for the body.
    pointer: String,
    mistakes: Vec<Message>,
    /// The pointers of objects that were read: what is left over of one is told by its own name.
    read: Vec<String>,
}

/// Properties that nobody has taken. Their texts are erased at the end: a key or a password may be
/// where nobody looks for one.
#[derive(Debug, Default)]
struct Properties(Map<String, Value>);

impl Drop for Properties {
    fn drop(&mut self) {
        self.0.values_mut().for_each(erase_texts);
    }
}

impl Input {
    /// Of a body; an empty one is an object without properties.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Problem> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self::default());
        }
        match serde_json::from_slice(body) {
            Ok(Value::Object(properties)) => Ok(Self::from_properties(properties)),
            Ok(_) => Err(Problem::bad_request(Message::malformed(&"it is JSON, but no object"))),
            Err(error) => Err(Problem::bad_request(Message::malformed(&error))),
        }
    }

    /// Of a body that is inside another one.
    pub(crate) fn from_properties(properties: Map<String, Value>) -> Self {
        Self { properties: Properties(properties), ..Self::default() }
    }

    fn pointer(&self, name: &str) -> String {
        format!("{}/{name}", self.pointer)
    }

    /// A part of it.
    fn inner(properties: Map<String, Value>, pointer: String) -> Self {
        Self { properties: Properties(properties), pointer, ..Self::default() }
    }

    /// Notes a mistake of a property.
    pub(crate) fn mistake(&mut self, name: &str, message: Message) {
        let pointer = self.pointer(name);
        self.mistakes.push(message.about(&pointer));
    }

    /// A property as it was sent.
    pub(crate) fn value(&mut self, name: &str) -> Option<Value> {
        self.properties.0.remove(name)
    }

    /// Takes a property that `read` accepts; `accepted` describes what it does.
    fn take<T>(&mut self, name: &str, accepted: &str, read: impl FnOnce(&Value) -> Option<T>) -> Option<T> {
        let mut value = self.properties.0.remove(name)?;
        let read = read(&value);
        if read.is_none() {
            self.mistake(name, Message::property_type(name, &value, accepted));
        }
        erase_texts(&mut value);
        read
    }

    /// A text of at most 4096 bytes.
    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        let accepted = format!("a string of at most {TEXT_BYTES_MAX} bytes");
        self.take(name, &accepted, |value| {
            value.as_str().filter(|text| text.len() <= TEXT_BYTES_MAX).map(str::to_owned)
        })
    }

    /// A text of at most so many bytes.
    pub(crate) fn long_text(&mut self, name: &str, bytes_max: usize) -> Option<String> {
        let accepted = format!("a string of at most {bytes_max} bytes");
        self.take(name, &accepted, |value| value.as_str().filter(|text| text.len() <= bytes_max).map(str::to_owned))
    }

    /// A text that no message repeats, whatever it is.
    pub(crate) fn secret(&mut self, name: &str) -> Option<Zeroizing<String>> {
        self.long_secret(name, TEXT_BYTES_MAX)
    }

    /// The same of another length.
    pub(crate) fn long_secret(&mut self, name: &str, bytes_max: usize) -> Option<Zeroizing<String>> {
        match self.properties.0.remove(name)? {
            Value::String(text) if text.len() <= bytes_max => Some(Zeroizing::new(text)),
            mut value => {
                erase_texts(&mut value);
                let why = format!("it is no string, or has more than {bytes_max} bytes");
                self.mistake(name, Message::property_error(name, &why, "Accepted: a string"));
                None
            }
        }
    }

    /// Whether something is so.
    pub(crate) fn flag(&mut self, name: &str) -> Option<bool> {
        self.take(name, "true or false", Value::as_bool)
    }

    /// A number within a range, which ends within the type.
    pub(crate) fn number<T>(&mut self, name: &str, range: RangeInclusive<u64>) -> Option<T>
    where
        T: TryFrom<u64, Error: Debug>,
    {
        let number = self.nullable(name, &range, "")?.expect("null is refused");
        Some(T::try_from(number).expect("a range ends within its type"))
    }

    /// A number within a range, or `null`.
    pub(crate) fn number_or_null(&mut self, name: &str, range: RangeInclusive<u64>) -> Option<Option<u64>> {
        self.nullable(name, &range, " or null")
    }

    #[expect(clippy::option_option, reason = "not sent, null, or a number")]
    fn nullable(&mut self, name: &str, range: &RangeInclusive<u64>, or_null: &str) -> Option<Option<u64>> {
        let value = self.properties.0.remove(name)?;
        let accepted = format!("integers from {} to {}{or_null}", range.start(), range.end());
        match value.as_u64() {
            Some(number) if range.contains(&number) => return Some(Some(number)),
            Some(_) => self.mistake(name, Message::property_value(name, &value, &accepted)),
            None if value.is_null() && !or_null.is_empty() => return Some(None),
            None => self.mistake(name, Message::property_type(name, &value, &accepted)),
        }
        None
    }

    /// One of several texts.
    pub(crate) fn one_of<T: Copy>(&mut self, name: &str, choices: &[(&str, T)]) -> Option<T> {
        let value = self.properties.0.remove(name)?;
        let chosen = choices.iter().find(|(text, _)| value.as_str() == Some(text));
        if chosen.is_none() {
            let names: Vec<&str> = choices.iter().map(|(text, _)| *text).collect();
            self.mistake(name, Message::property_value(name, &value, &names.join(", ")));
        }
        chosen.map(|(_, one)| *one)
    }

    /// A list of at most 1024 elements.
    pub(crate) fn list(&mut self, name: &str) -> Option<Vec<Value>> {
        let accepted = format!("a list of at most {LIST_MAX} elements");
        self.take(name, &accepted, |value| value.as_array().filter(|list| list.len() <= LIST_MAX).cloned())
    }

    /// A list of references, each `{"@odata.id": "/redfish/v1/..."}`.
    pub(crate) fn links(&mut self, name: &str) -> Option<Vec<Place>> {
        let list = self.list(name)?;
        let mut places = Vec::new();
        for (at, value) in list.iter().enumerate() {
            let place = value.get("@odata.id").and_then(Value::as_str).and_then(Place::parse);
            match place {
                Some(place) => places.push(place),
                None => {
                    let accepted = "a reference {\"@odata.id\": \"/redfish/v1/...\"} to a resource of this service";
                    let message = Message::property_type(name, value, accepted);
                    let pointer = format!("{}/{at}", self.pointer(name));
                    self.mistakes.push(message.about(&pointer));
                }
            }
        }
        Some(places)
    }

    /// The new value of a list of references, of which there are some: `{}` leaves one as it is,
    /// and `null` takes it out (DSP0266, "Modifying array properties").
    pub(crate) fn changed_links(&mut self, name: &str, current: &[Place]) -> Option<Vec<Place>> {
        let list = self.list(name)?;
        let is_kept = |value: &Value| value.as_object().is_some_and(Map::is_empty);
        let mut wanted = Vec::new();
        for (at, value) in list.into_iter().enumerate().filter(|(_, value)| !value.is_null()) {
            let kept = current.get(at).filter(|_| is_kept(&value));
            wanted.push(kept.map_or(value, |place| serde_json::json!({ "@odata.id": place })));
        }
        self.properties.0.insert(name.to_owned(), Value::Array(wanted));
        self.links(name)
    }

    /// A list of texts, each of at most 4096 bytes.
    pub(crate) fn texts(&mut self, name: &str) -> Option<Vec<String>> {
        let accepted = format!("a list of at most {LIST_MAX} strings");
        self.take(name, &accepted, |value| {
            let list = value.as_array().filter(|list| list.len() <= LIST_MAX)?;
            let text = |value: &Value| value.as_str().filter(|text| text.len() <= TEXT_BYTES_MAX).map(str::to_owned);
            list.iter().map(text).collect()
        })
    }

    /// A list of objects, each read by `inner`; what that leaves over is a mistake.
    pub(crate) fn objects<T>(&mut self, name: &str, mut inner: impl FnMut(&mut Self) -> T) -> Option<Vec<T>> {
        let list = self.list(name)?;
        let pointer = self.pointer(name);
        let mut all = Vec::new();
        for (at, value) in list.into_iter().enumerate() {
            let Value::Object(properties) = value else {
                self.mistake(&format!("{name}/{at}"), Message::property_type(name, &value, "an object"));
                continue;
            };
            let mut input = Self::inner(properties, format!("{pointer}/{at}"));
            all.push(inner(&mut input));
            self.mistakes.append(&mut input.mistakes);
            left_over(&input.properties.0, None, &input.pointer, &input.read, &mut self.mistakes);
        }
        Some(all)
    }

    /// Takes a property that is `null`.
    pub(crate) fn null(&mut self, name: &str) -> bool {
        let is_null = self.properties.0.get(name).is_some_and(Value::is_null);
        if is_null {
            self.properties.0.remove(name);
        }
        is_null
    }

    /// ebof's own object: `Oem.Ebof`.
    pub(crate) fn ebof<T>(&mut self, inner: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.object("Oem", |oem| oem.object("Ebof", inner)).flatten()
    }

    /// A reference.
    pub(crate) fn link(&mut self, name: &str) -> Option<Place> {
        let accepted = "a reference {\"@odata.id\": \"/redfish/v1/...\"} to a resource of this service";
        self.take(name, accepted, |value| value.get("@odata.id")?.as_str().and_then(Place::parse))
    }

    /// An object, read by `inner`; what it leaves over is a mistake.
    pub(crate) fn object<T>(&mut self, name: &str, inner: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let pointer = self.pointer(name);
        let properties = self.take(name, "an object", |value| value.as_object().cloned())?;
        let mut input = Self::inner(properties, pointer);
        let read = inner(&mut input);
        self.mistakes.append(&mut input.mistakes);
        self.read.append(&mut input.read);
        self.read.push(input.pointer);
        if !input.properties.0.is_empty() {
            // Put back: `finish` compares it with the properties of the resource and reports it.
            self.properties.0.insert(name.to_owned(), Value::Object(mem::take(&mut input.properties.0)));
        }
        Some(read)
    }

    /// The names of what was sent and not taken yet, without annotations.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.properties.0.keys().map(String::as_str).filter(|name| !name.starts_with('@'))
    }

    /// Whether a property was sent and not taken yet.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.properties.0.contains_key(name)
    }

    /// A property that has to be sent.
    pub(crate) fn required<T>(&mut self, name: &str, value: Option<T>) -> Option<T> {
        let pointer = self.pointer(name);
        let is_reported = self.mistakes.iter().any(|mistake| mistake.is_about(&pointer));
        if value.is_none() && !is_reported {
            self.mistake(name, Message::property_missing(name));
        }
        value
    }

    /// A parameter that an action needs.
    pub(crate) fn parameter<T>(&mut self, action: &str, name: &str, value: Option<T>) -> Option<T> {
        let pointer = self.pointer(name);
        let is_reported = self.mistakes.iter().any(|mistake| mistake.is_about(&pointer));
        if value.is_none() && !is_reported {
            self.mistake(name, Message::parameter_missing(action, name));
        }
        value
    }

    /// Ends the reading of a body: fails if there was a mistake, or if something is left over.
    /// `current` is the resource, whose other properties are read-only.
    pub(crate) fn finish(mut self, current: Option<&Value>) -> Result<(), Problem> {
        let left = mem::take(&mut self.properties);
        left_over(&left.0, current, "", &self.read, &mut self.mistakes);
        if self.mistakes.is_empty() {
            return Ok(());
        }
        if self.mistakes.len() > MISTAKES_MAX {
            self.mistakes.truncate(MISTAKES_MAX);
            self.mistakes.push(Message::too_many_mistakes());
        }
        Err(Problem::with_messages(StatusCode::BAD_REQUEST, self.mistakes))
    }
}

/// Reports what nobody took. Annotations that the resource was read with may be sent back.
fn left_over(
    left: &Map<String, Value>,
    current: Option<&Value>,
    pointer: &str,
    read: &[String],
    mistakes: &mut Vec<Message>,
) {
    for (name, value) in left {
        if mistakes.len() > MISTAKES_MAX {
            return;
        }
        if name.starts_with("@odata.") {
            continue;
        }
        let pointer = format!("{pointer}/{name}");
        match (current.and_then(|current| current.get(name)), value) {
            (Some(inner @ Value::Object(_)), Value::Object(value)) => {
                left_over(value, Some(inner), &pointer, read, mistakes);
            }
            (None, Value::Object(value)) if read.contains(&pointer) => left_over(value, None, &pointer, read, mistakes),
            (Some(_), _) => mistakes.push(Message::property_not_writable(name).about(&pointer)),
            (None, _) => mistakes.push(Message::property_unknown(name).about(&pointer)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn input(value: &Value) -> Input {
        Input::parse(value.to_string().as_bytes()).unwrap()
    }

    fn ids(problem: &Problem) -> Vec<(String, String)> {
        let body = problem.body();
        let list = body["error"]["@Message.ExtendedInfo"].as_array().unwrap().clone();
        let id = |one: &Value| one["MessageId"].as_str().unwrap().rsplit('.').next().unwrap().to_owned();
        let about = |one: &Value| one["RelatedProperties"][0].as_str().unwrap_or_default().to_owned();
        list.iter().map(|one| (id(one), about(one))).collect()
    }

    #[test]
    fn all_mistakes_of_a_body_are_reported() {
        let mut body = input(&json!({
            "A": "x", "Weight": 0, "Flag": 1, "Inner": { "B": null, "Id": 4, "New": 1 }, "Id": "x", "Unknown": 1, "@odata.id": "/x",
            "Links": [{ "@odata.id": "/redfish/v1/nowhere" }]
        }));
        assert_eq!(body.text("A").as_deref(), Some("x"));
        assert_eq!(body.number::<u64>("Weight", 1..=10), None);
        assert_eq!(body.flag("Flag"), None);
        assert_eq!(body.object("Inner", |inner| inner.number_or_null("B", 0..=1)), Some(Some(None)));
        assert_eq!(body.links("Links").map(|links| links.len()), Some(0));
        let missing = body.text("Missing");
        body.required("Missing", missing);
        let current = json!({ "Id": "d0", "Inner": { "Id": 3 } });
        let problem = body.finish(Some(&current)).unwrap_err();
        let expected = [
            ("PropertyValueNotInList", "#/Weight"),
            ("PropertyValueTypeError", "#/Flag"),
            ("PropertyValueTypeError", "#/Links/0"),
            ("PropertyMissing", "#/Missing"),
            ("PropertyNotWritable", "#/Id"),
            ("PropertyNotWritable", "#/Inner/Id"),
            ("PropertyUnknown", "#/Inner/New"),
            ("PropertyUnknown", "#/Unknown"),
        ];
        assert_eq!(ids(&problem), expected.map(|(id, about)| (id.to_owned(), about.to_owned())));
    }

    #[test]
    fn texts_of_a_body_are_erased() {
        let mut value = json!({ "A": "secret", "B": [{ "C": "secret" }, 7, null, true] });
        erase_texts(&mut value);
        assert_eq!(value, json!({ "A": "", "B": [{ "C": "" }, 7, null, true] }));
        // One that is taken is what it was.
        let mut body = input(&json!({ "KeyString": "secret", "Other": 1 }));
        assert_eq!(body.secret("Other"), None);
        assert_eq!(body.secret("KeyString").as_deref().map(String::as_str), Some("secret"));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for body in ["[1]", "\"x\"", "{", "{\"a\":}", "\u{0}"] {
            let problem = Input::parse(body.as_bytes()).unwrap_err();
            assert_eq!(problem.status, StatusCode::BAD_REQUEST);
            assert_eq!(ids(&problem)[0].0, "MalformedJSON");
        }
        let deep = "[".repeat(100_000);
        Input::parse(format!("{{\"a\":{deep}").as_bytes()).unwrap_err();
        Input::parse(b" ").unwrap().finish(None).unwrap();
    }
}
