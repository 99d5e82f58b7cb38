//! The ports of a function in JSON: `null` for none, the name of the one, or a list of several; and
//! in words.

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Ports that a function may be given to at a time: as many as a drive remembers.
pub(super) const PORTS_MAX: usize = 8;

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Given {
    None,
    One(String),
    Several(BTreeSet<String>),
}

pub(super) fn serialize<S: Serializer>(ports: &BTreeSet<String>, serializer: S) -> Result<S::Ok, S::Error> {
    let given = match ports.first() {
        None => Given::None,
        Some(one) if ports.len() == 1 => Given::One(one.clone()),
        Some(_) => Given::Several(ports.clone()),
    };
    given.serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeSet<String>, D::Error> {
    Ok(match Given::deserialize(deserializer)? {
        Given::None => BTreeSet::new(),
        Given::One(port) => BTreeSet::from([port]),
        Given::Several(ports) => ports,
    })
}

/// Ports in words: `port a`, or `ports a, b and c`.
#[must_use]
pub fn named(ports: &BTreeSet<String>) -> String {
    let mut names: Vec<&str> = ports.iter().map(String::as_str).collect();
    match (names.pop(), names.is_empty()) {
        (None, _) => "no port".to_owned(),
        (Some(one), true) => format!("port {one}"),
        (Some(last), false) => format!("ports {} and {last}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Object {
        #[serde(with = "super")]
        port: BTreeSet<String>,
    }

    #[test]
    fn one_port_is_a_name_and_none_is_null() {
        for (names, json) in
            [(vec![], r#"{"port":null}"#), (vec!["a"], r#"{"port":"a"}"#), (vec!["a", "b"], r#"{"port":["a","b"]}"#)]
        {
            let object = Object { port: names.into_iter().map(str::to_owned).collect() };
            assert_eq!(serde_json::to_string(&object).unwrap(), json);
            assert_eq!(serde_json::from_str::<Object>(json).unwrap(), object);
        }
        assert!(serde_json::from_str::<Object>(r#"{"port":7}"#).is_err());
    }

    #[test]
    fn several_ports_are_told_with_an_and() {
        for (names, text) in [
            (&[][..], "no port"),
            (&["a"], "port a"),
            (&["b", "a"], "ports a and b"),
            (&["a", "b", "c"], "ports a, b and c"),
        ] {
            assert_eq!(named(&names.iter().map(|&name| name.to_owned()).collect()), text);
        }
    }
}
