//! What is almost right: a body with something of it replaced, left out, added or broken.

use ebof_clock::Clock;
use serde_json::{Map, Value, json};

/// Random choices, the same for the same seed.
pub(super) struct Choices(Clock);

impl Choices {
    pub(super) fn new(seed: u64) -> Self {
        Self(Clock::simulated(seed))
    }

    pub(super) fn below(&self, limit: usize) -> usize {
        usize::try_from(self.0.jitter() % u64::try_from(limit.max(1)).unwrap()).unwrap()
    }

    pub(super) fn one<'a, T>(&self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// The same of small values.
    pub(super) fn pick<T: Copy>(&self, all: &[T]) -> T {
        *self.one(all)
    }

    /// Once in so many times.
    pub(super) fn rarely(&self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// A value that was put in the place of another one.
#[derive(Clone, Debug)]
pub(super) struct Replaced {
    /// Its JSON pointer.
    pub(super) pointer: String,
    /// Whether it is of another type, and neither is null.
    pub(super) of_another_type: bool,
}

const TEXTS: &[&str] = &[
    "",
    " ",
    "\0",
    "NaN",
    "Infinity",
    "-1",
    "true",
    "null",
    "*",
    "..",
    "../../../../etc/passwd",
    "%2e%2e%2f",
    "a\r\nX-Injected: b",
    "\u{202e}\u{feff}\u{1f4a9}\u{301}",
    "' or 1=1 --",
    "{\"@odata.id\": \"/redfish/v1\"}",
    "nqn.2014-08.org.example:x",
    "nqn.",
    "d0/vf1",
    "\u{7f}\u{1b}[2J",
    "<script>alert(1)</script>",
    "Administrator",
    "Redfish",
];

const NUMBERS: &[u64] = &[
    0,
    1,
    2,
    9,
    15,
    16,
    255,
    256,
    513,
    1001,
    4097,
    65_535,
    65_536,
    1 << 32,
    (1 << 53) + 1,
    1 << 62,
    1 << 63,
    u64::MAX,
];

/// A value that few properties accept.
pub(super) fn hostile(choices: &Choices, addresses: &[String]) -> Value {
    match choices.below(16) {
        0 => Value::Null,
        1 => choices.rarely(2).into(),
        2 | 3 => choices.pick(NUMBERS).into(),
        4 => choices.pick(&[-1_i64, i64::MIN, -4096, i64::from(i32::MIN)]).into(),
        5 => choices.pick(&[0.5, -0.0, 1e308, 5e-324, 1e3, 4096.0]).into(),
        6 | 7 => choices.pick(TEXTS).into(),
        8 => "x".repeat(choices.pick(&[129, 512, 513, 1024, 1025, 4096, 4097, 70_000])).into(),
        9 => link(choices, addresses),
        10 => json!([link(choices, addresses), link(choices, addresses)]),
        11 => json!({}),
        12 => json!([]),
        13 => vec![json!("x"); choices.pick(&[1, 65, 1024, 1025, 20_000])].into(),
        14 => (0..choices.pick(&[2, 60, 110]))
            .fold(json!(1), |inner, at| if at % 2 == 0 { json!([inner]) } else { json!({ "a": inner }) }),
        _ => json!([null, 1, "x", {}, [], {"@odata.id": 7}]),
    }
}

/// A reference: to a resource of any kind, or to none of this service.
pub(super) fn link(choices: &Choices, addresses: &[String]) -> Value {
    let address = choices.one(addresses);
    let text = match choices.below(12) {
        0 => format!("https://evil.example{address}"),
        1 => format!("//evil.example{address}"),
        2 => address.replacen("/v1/", "/v1/../v1/", 1),
        3 => address.replace('/', "%2f"),
        4 => format!("{address}/"),
        5 => format!("{address}//"),
        6 => format!("{address}?$expand=*"),
        7 => format!("{address}#/Id"),
        8 => format!("{address}\0"),
        9 => address.to_uppercase(),
        _ => address.clone(),
    };
    json!({ "@odata.id": text })
}

/// The JSON pointers of everything in a value, without the value itself.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    let mut inner = |name: &str, value: &Value| {
        let pointer = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
        pointers(value, &pointer, found);
        found.push(pointer);
    };
    match value {
        Value::Object(object) => object.iter().for_each(|(name, value)| inner(name, value)),
        Value::Array(list) => list.iter().enumerate().for_each(|(at, value)| inner(&at.to_string(), value)),
        _ => {}
    }
}

/// Changes something of a body. `current` is the resource, whose other properties are read-only.
pub(super) fn mutate(
    choices: &Choices,
    body: &mut Value,
    current: Option<&Value>,
    addresses: &[String],
) -> Option<Replaced> {
    let mut all = Vec::new();
    pointers(body, "", &mut all);
    if all.is_empty() || choices.rarely(6) {
        add(choices, body, current, addresses);
        return None;
    }
    let pointer = choices.one(&all).clone();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    match choices.below(8) {
        0 => remove(body.pointer_mut(parent).unwrap(), name),
        1 => {
            if let Some(object) = body.pointer_mut(parent).unwrap().as_object_mut()
                && let Some(value) = object.remove(name)
            {
                object.insert(format!("{name}s"), value);
            }
        }
        2 => {
            let value = body.pointer_mut(&pointer).unwrap();
            if let Value::Array(list) = value {
                *list = vec![list.clone(); choices.pick(&[2, 70, 1100])].concat();
            } else {
                *value = json!([value.clone()]);
            }
        }
        3 => add(choices, body.pointer_mut(parent).unwrap(), current, addresses),
        _ => {
            let value = body.pointer_mut(&pointer).unwrap();
            let new = hostile(choices, addresses);
            let of_another_type = !value.is_null() && !new.is_null() && kind(value) != kind(&new);
            *value = new;
            return Some(Replaced { pointer, of_another_type });
        }
    }
    None
}

fn kind(value: &Value) -> std::mem::Discriminant<Value> {
    std::mem::discriminant(value)
}

fn remove(parent: &mut Value, name: &str) {
    match parent {
        Value::Object(object) => drop(object.remove(name)),
        Value::Array(list) => drop(name.parse().ok().filter(|at| *at < list.len()).map(|at| list.remove(at))),
        _ => {}
    }
}

/// Adds a property that is unknown, or read-only.
fn add(choices: &Choices, value: &mut Value, current: Option<&Value>, addresses: &[String]) {
    let Value::Object(object) = value else { return };
    let own: Map<String, Value> = current.and_then(Value::as_object).cloned().unwrap_or_default();
    let names: Vec<&String> = own.keys().collect();
    if !names.is_empty() && choices.rarely(2) {
        let name = choices.pick(&names).clone();
        let sent = if choices.rarely(2) { own[&name].clone() } else { hostile(choices, addresses) };
        object.insert(name, sent);
        return;
    }
    let long = "x".repeat(100_000);
    let names =
        ["Unknown", "", "a/b", "~", "@odata.id", "@odata.type", "@Redfish.Unknown", "Oem", "__proto__", "\0\n", &long];
    object.insert(choices.pick(&names).to_owned(), hostile(choices, addresses));
}

/// Breaks the text of a body.
pub(super) fn broken(choices: &Choices, text: &[u8]) -> Vec<u8> {
    let at = choices.below(text.len());
    let insert = |what: &[u8]| [&text[..at], what, &text[at..]].concat();
    match choices.below(12) {
        0 => text[..at].to_vec(),
        1 => [text, choices.pick(&[&b"{}"[..], b"x", b"\0", b",", b"]"])].concat(),
        2 => insert(&[0xff]),
        3 => insert(choices.pick(&[&b"NaN"[..], b"1e999", b"-", b"0x1", b"\\ud800", b"\0", b"//", b"'"])),
        4 => insert(&b"[".repeat(choices.pick(&[1, 127, 129, 50_000]))),
        5 => insert(&b"{\"a\":".repeat(choices.pick(&[1, 127, 129, 20_000]))),
        6 => [&b"\xef\xbb\xbf"[..], text].concat(),
        7 => text.iter().flat_map(|byte| [*byte, 0]).collect(),
        8 => {
            let mut changed = text.to_vec();
            if let Some(byte) = changed.get_mut(at) {
                *byte ^= 1 << choices.below(8);
            }
            changed
        }
        // Each property twice: the same one, and another one.
        9 => doubled(text, b""),
        10 => doubled(text, b"null"),
        _ => b"UserName=a&Password=b".to_vec(),
    }
}

/// An object whose properties are there twice; with another value first, if there is one.
fn doubled(text: &[u8], value: &[u8]) -> Vec<u8> {
    let Ok(Value::Object(object)) = serde_json::from_slice::<Value>(text) else { return text.to_vec() };
    let mut parts = Vec::new();
    for (name, own) in object {
        let other = if value.is_empty() { own.to_string().into_bytes() } else { value.to_vec() };
        parts.push([json!(name).to_string().as_bytes(), b":", &other].concat());
        parts.push([json!(name).to_string().as_bytes(), b":", own.to_string().as_bytes()].concat());
    }
    [&b"{"[..], &parts.join(&b","[..]), b"}"].concat()
}
