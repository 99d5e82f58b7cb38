//! The keys of `nvme-fabrics.conf`: a table of them, their values, and the options that they are.

use super::Params;
use crate::device::strange_name;

/// Where a key belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// A tunable of connections.
    Tunable,
    /// One of discovery services only.
    OfService,
    /// Keys and secrets, which are of a host and a subsystem.
    Security,
    /// Who the host is.
    Host,
    /// The subsystem.
    Nqn,
    /// An address.
    Controller,
}

/// The values of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Values {
    Number,
    /// A number where 0 is the default.
    Count,
    Switch,
    Text,
    Persistence,
    HostId,
    Nqn,
}

/// A key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) class: Class,
    values: Values,
}

const fn key(name: &'static str, class: Class, values: Values) -> Key {
    Key { name, class, values }
}

/// All keys.
const KEYS: [Key; 26] = [
    key("nr-io-queues", Class::Tunable, Values::Count),
    key("nr-write-queues", Class::Tunable, Values::Count),
    key("nr-poll-queues", Class::Tunable, Values::Count),
    key("queue-size", Class::Tunable, Values::Count),
    key("keep-alive-tmo", Class::Tunable, Values::Count),
    key("reconnect-delay", Class::Tunable, Values::Count),
    key("ctrl-loss-tmo", Class::Tunable, Values::Number),
    key("fast-io-fail-tmo", Class::Tunable, Values::Count),
    key("tos", Class::Tunable, Values::Number),
    key("duplicate-connect", Class::Tunable, Values::Switch),
    key("disable-sqflow", Class::Tunable, Values::Switch),
    key("hdr-digest", Class::Tunable, Values::Switch),
    key("data-digest", Class::Tunable, Values::Switch),
    key("persistent", Class::OfService, Values::Persistence),
    key("tls", Class::Security, Values::Switch),
    key("concat", Class::Security, Values::Switch),
    key("tls-key", Class::Security, Values::Text),
    key("tls-key-identity", Class::Security, Values::Text),
    key("keyring", Class::Security, Values::Text),
    key("kxchap-secret", Class::Security, Values::Text),
    key("kxchap-ctrl-secret", Class::Security, Values::Text),
    key("hostnqn", Class::Host, Values::Nqn),
    key("hostid", Class::Host, Values::HostId),
    key("hostsymname", Class::Host, Values::Text),
    key("nqn", Class::Nqn, Values::Nqn),
    key("controller", Class::Controller, Values::Text),
];

impl Key {
    pub(super) fn find(name: &str) -> Option<Self> {
        KEYS.into_iter().find(|key| key.name == name)
    }

    pub(super) fn is_secret(self) -> bool {
        ["kxchap-secret", "kxchap-ctrl-secret", "tls-key"].contains(&self.name)
    }

    /// Checks a value; an empty one is the default again. The error says what is accepted.
    pub(super) fn check(self, value: &str) -> Result<(), String> {
        let is_right = value.is_empty()
            || match self.values {
                Values::Number | Values::Count => number(value).is_some(),
                Values::Switch => switch(value).is_some(),
                Values::Persistence => ["no", "auto", "force"].contains(&value),
                Values::HostId => ebof_nvme::HostId::parse(value).is_some_and(|id| id.0 != [0; 16]),
                Values::Nqn => is_nqn(value),
                Values::Text => true,
            };
        let accepted = match self.values {
            Values::Number | Values::Count => "a number",
            Values::Switch => "yes or no",
            Values::Persistence => "no, auto or force",
            Values::HostId => "a UUID that is not 0",
            Values::Nqn => "nqn.YYYY-MM.DOMAIN:NAME",
            Values::Text => "a text",
        };
        if is_right { Ok(()) } else { Err(format!("accepted: {accepted}")) }
    }

    /// The option of a value; none for a default.
    fn word(self, value: &str) -> Option<String> {
        let Self { name, values, .. } = self;
        match values {
            _ if value.is_empty() => None,
            // What only others use (Discovery Information Management).
            _ if name == "hostsymname" => None,
            Values::Number | Values::Count => {
                let number = number(value)?;
                let is_default = values == Values::Count && number == 0 || name == "tos" && number < 0;
                (!is_default).then(|| format!("--{name}={number}"))
            }
            Values::Switch => switch(value)?.then(|| format!("--{name}")),
            Values::Text | Values::Persistence | Values::HostId | Values::Nqn => Some(format!("--{name}={value}")),
        }
    }
}

/// The options that values are. Those of TLS count where there is TLS.
pub(super) fn words(params: &Params) -> Vec<String> {
    let has_tls = params.get("tls").is_some_and(|value| switch(value) == Some(true));
    let counts = |name: &str| has_tls || !["tls-key", "tls-key-identity", "keyring"].contains(&name);
    let given = params.iter().filter(|(name, _)| counts(name));
    given.filter_map(|(name, value)| Key::find(name)?.word(value)).collect()
}

/// Whether a text is an NQN in the specification's form.
fn is_nqn(text: &str) -> bool {
    ebof_nvme::Nqn::parse(text).is_ok_and(|nqn| strange_name("", &nqn).is_none())
}

/// A number as C writes it.
fn number(text: &str) -> Option<i32> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let (digits, radix) = match lower.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None if lower.len() > 1 && lower.starts_with('0') => (&lower[1..], 8),
        None => (lower.as_str(), 10),
    };
    let is_number = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let value = i64::from_str_radix(digits, radix).ok().filter(|_| is_number)?;
    i32::try_from(sign * value).ok()
}

/// A switch as systemd has them.
fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "yes" | "y" | "true" | "t" | "on" => Some(true),
        "0" | "no" | "n" | "false" | "f" | "off" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_switches_are_those_of_nvme_cli() {
        let numbers = ["7", "-1", "+3", "0x10", "010", "0", "", "x", "0x", "99999999999", "1 2", "--1"];
        let found: Vec<_> = numbers.into_iter().map(number).collect();
        assert_eq!(found[..6], [Some(7), Some(-1), Some(3), Some(16), Some(8), Some(0)]);
        assert!(found[6..].iter().all(Option::is_none), "{found:?}");
        assert_eq!(
            [switch("YES"), switch("f"), switch("on"), switch("2")],
            [Some(true), Some(false), Some(true), None]
        );
    }
}
