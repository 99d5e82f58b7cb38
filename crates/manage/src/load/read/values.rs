//! Strings, and values that need more checks than their type: names, sizes, durations, addresses,
//! identifiers, and values that must be unique.
//!
//! Shared by the reader of ebof's own keys and the importer.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use ebof_nvme::nqn::NqnError;
use ebof_nvme::{Nqn, Uuid};

use crate::config::{Eui64, Nguid};
use crate::diagnostic::nearest::nearest;
use crate::diagnostic::{Collector, Span};
use crate::drive::Drive;
use crate::load::read::tree::{Node, Value};
use crate::units::{DURATION_FORM, SIZE_FORM, format_duration, format_size, parse_duration, parse_size};

/// Values that must be unique, and where each was used first.
#[derive(Default)]
pub(crate) struct Unique {
    first: HashMap<(&'static str, String), Span>,
}

impl Unique {
    /// Reports an error if another `what` has the same `value`. Returns whether it is the first.
    pub(crate) fn claim(&mut self, what: &'static str, value: &str, span: &Span, out: &mut Collector<'_>) -> bool {
        let first = self.taken(what, value, span, out);
        if let Some(line) = first {
            let help = format!("each must be the only one; line {line} has it first");
            out.error(span.clone(), format!("{what} {value} is used twice"), help);
        }
        first.is_none()
    }

    /// The line that used `value` before; if there is none, records this one.
    pub(crate) fn taken(&mut self, what: &'static str, value: &str, span: &Span, out: &Collector<'_>) -> Option<usize> {
        if let Some(first) = self.first.get(&(what, value.to_owned())) {
            return Some(out.line_of(first));
        }
        self.first.insert((what, value.to_owned()), span.clone());
        None
    }
}

/// A string; anything else is reported.
pub(crate) fn as_string<'t>(key: &str, node: &'t Node, out: &mut Collector<'_>) -> Option<&'t str> {
    if let Value::String(text) = &node.value {
        return Some(text);
    }
    mismatch(key, node, "a string", out);
    None
}

/// Reports a value of another type than the key has.
pub(crate) fn mismatch(key: &str, node: &Node, accepted: &str, out: &mut Collector<'_>) {
    out.error(node.span.clone(), format!("`{key}` is {}", node.value.kind()), format!("accepted: {accepted}"));
}

/// An NQN from a node.
pub(crate) fn nqn(key: &str, node: &Node, out: &mut Collector<'_>) -> Option<Nqn> {
    check_nqn(as_string(key, node, out)?, &node.span, out)
}

/// An NQN from a text.
pub(crate) fn check_nqn(text: &str, span: &Span, out: &mut Collector<'_>) -> Option<Nqn> {
    match Nqn::parse(text) {
        Ok(nqn) => Some(nqn),
        Err(error) => {
            let help = match error {
                NqnError::BadUuid => "write 8-4-4-4-12 or 32 hexadecimal digits behind `uuid:`",
                _ => "accepted: 1 to 223 bytes without white space, such as \"nqn.2014-08.org.example:drive0\"",
            };
            out.error(span.clone(), error.to_string(), help);
            None
        }
    }
}

/// A size within `range` that is a multiple of `step`: an integer or a text.
pub(crate) fn size(
    key: &str,
    node: &Node,
    range: &RangeInclusive<u64>,
    step: u64,
    out: &mut Collector<'_>,
) -> Option<u64> {
    let size = match &node.value {
        Value::Integer(number) => u64::try_from(*number).ok(),
        Value::String(text) => match parse_size(text) {
            // A decimal unit need not give whole blocks: `100M` is not a multiple of 512.
            Ok(size) if text.ends_with(|last: char| last.is_ascii_alphabetic()) => size.checked_next_multiple_of(step),
            Ok(size) => Some(size),
            Err(error) => {
                out.error(node.span.clone(), format!("`{text}` {error}"), format!("accepted: {SIZE_FORM}"));
                return None;
            }
        },
        _ => {
            mismatch(key, node, SIZE_FORM, out);
            return None;
        }
    };
    let legal = size.filter(|size| range.contains(size) && size % step == 0);
    if legal.is_none() {
        let multiple = if step > 1 { format!(", a multiple of {step}") } else { String::new() };
        let help = format!("accepted: {} to {}{multiple}", format_size(*range.start()), format_size(*range.end()));
        out.error(node.span.clone(), format!("`{key}` is {}", shown(out, &node.span)), help);
    }
    legal
}

/// A duration within `range`.
pub(crate) fn duration(
    key: &str,
    node: &Node,
    range: &RangeInclusive<Duration>,
    out: &mut Collector<'_>,
) -> Option<Duration> {
    let text = match &node.value {
        Value::String(text) => text.as_str(),
        Value::Integer(number) => {
            let legal = ["s", "ms"].map(|unit| format!("{number}{unit}"));
            let legal = legal.iter().filter(|text| parse_duration(text).is_ok_and(|legal| range.contains(&legal)));
            let choice: Vec<String> = legal.map(|text| format!("\"{text}\"")).collect();
            let help = if choice.is_empty() {
                format!("accepted: {} to {}", format_duration(*range.start()), format_duration(*range.end()))
            } else {
                format!("write {}", choice.join(" or "))
            };
            out.error(node.span.clone(), format!("`{key}` has no unit"), help);
            return None;
        }
        _ => {
            mismatch(key, node, DURATION_FORM, out);
            return None;
        }
    };
    let duration = match parse_duration(text) {
        Ok(duration) => duration,
        Err(error) => {
            out.error(node.span.clone(), format!("`{text}` {error}"), format!("accepted: {DURATION_FORM}"));
            return None;
        }
    };
    if !range.contains(&duration) {
        let help = format!("accepted: {} to {}", format_duration(*range.start()), format_duration(*range.end()));
        out.error(node.span.clone(), format!("`{key}` is {text}"), help);
        return None;
    }
    Some(duration)
}

/// Names as a help text has them: `"a", "b" or "c"`.
fn listed(names: &[&'static str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Some of a list of names, at least one, each once. An element that is wrong is reported; then
/// there is no list.
pub(crate) fn choices<'t>(
    key: &str,
    (node, elements): (&'t Node, &'t [Node]),
    names: &[&'static str],
    out: &mut Collector<'_>,
) -> Option<Vec<&'t str>> {
    let mut chosen: Vec<&str> = Vec::new();
    if elements.is_empty() {
        let help = format!("accepted: {}; leave `{key}` out for the default", listed(names));
        out.error(node.span.clone(), format!("`{key}` is empty: nothing would be accepted"), help);
    }
    // A list may have any length: more than each name once is reported anyway.
    for element in elements.iter().take(names.len() + 1) {
        let Some(name) = choice(key, element, names, out) else { continue };
        if chosen.contains(&name) {
            out.error(element.span.clone(), format!("`{key}` has \"{name}\" twice"), "leave one out");
        }
        chosen.push(name);
    }
    (!chosen.is_empty() && chosen.len() == elements.len()).then_some(chosen)
}

/// One of a list of names.
pub(crate) fn choice<'t>(
    key: &str,
    node: &'t Node,
    names: &[&'static str],
    out: &mut Collector<'_>,
) -> Option<&'t str> {
    let accepted = listed(names);
    let Value::String(text) = &node.value else {
        mismatch(key, node, &accepted, out);
        return None;
    };
    if !names.contains(&text.as_str()) {
        let help = match nearest(text, names) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("accepted: {accepted}"),
        };
        out.error(node.span.clone(), format!("`{key}` is \"{text}\""), help);
        return None;
    }
    Some(text)
}

/// Printable ASCII of at most `chars_max` characters, as Identify fields require.
pub(crate) fn printable(
    key: &str,
    text: &str,
    chars_max: usize,
    span: &Span,
    out: &mut Collector<'_>,
) -> Option<String> {
    let legal = !text.is_empty() && text.len() <= chars_max && text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if legal {
        return Some(text.to_owned());
    }
    let help = format!("accepted: 1 to {chars_max} printable ASCII characters");
    let message = match text.chars().find(|c| !c.is_ascii_graphic() && *c != ' ') {
        Some(c) => format!("`{key}` has the character {c:?}"),
        None => format!("`{key}` has {} characters", text.chars().count()),
    };
    out.error(span.clone(), message, help);
    None
}

/// A UUID that is not all zero.
pub(crate) fn uuid(text: &str, span: &Span, out: &mut Collector<'_>) -> Option<Uuid> {
    let uuid = Uuid::parse(text).filter(|uuid| *uuid != Uuid::NIL);
    if uuid.is_none() {
        let help = "accepted: 8-4-4-4-12 hexadecimal digits, not all zero";
        out.error(span.clone(), format!("`{text}` is not a UUID"), help);
    }
    uuid
}

/// An NGUID that is not all zero.
pub(crate) fn nguid(text: &str, span: &Span, out: &mut Collector<'_>) -> Option<Nguid> {
    let nguid = hex(text, 32).filter(|value| *value != 0).map(|value| Nguid(value.to_be_bytes()));
    if nguid.is_none() {
        let help = "accepted: 32 hexadecimal digits, not all zero; dashes may stand between";
        out.error(span.clone(), format!("`{text}` is not an NGUID"), help);
    }
    nguid
}

/// An EUI-64 that is not all zero.
pub(crate) fn eui64(text: &str, span: &Span, out: &mut Collector<'_>) -> Option<Eui64> {
    let value = hex(text, 16).and_then(|value| u64::try_from(value).ok()).filter(|value| *value != 0);
    if value.is_none() {
        let help = "accepted: 16 hexadecimal digits, not all zero; dashes may stand between";
        out.error(span.clone(), format!("`{text}` is not an EUI-64"), help);
    }
    value.map(|value| Eui64(value.to_be_bytes()))
}

/// `digits` hexadecimal digits, at most 32, with dashes or colons anywhere between.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let bare: String = text.chars().filter(|c| !matches!(c, '-' | ':')).collect();
    let legal = bare.len() == digits && bare.bytes().all(|byte| byte.is_ascii_hexdigit());
    if legal { u128::from_str_radix(&bare, 16).ok() } else { None }
}

/// A drive as one word.
pub(crate) fn drive(text: &str, span: &Span, out: &mut Collector<'_>) -> Option<Drive> {
    match text.parse::<Drive>() {
        Ok(drive) => Some(drive),
        Err(error) => {
            out.error(span.clone(), error.to_string(), error.advice());
            None
        }
    }
}

/// The text of a span, for messages.
fn shown(out: &Collector<'_>, span: &Span) -> String {
    let text = out.text().get(span.clone()).unwrap_or_default();
    text.trim_matches('"').chars().take(40).collect()
}
