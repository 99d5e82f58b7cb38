//! Subsystems.

use ebof_nvme::Nqn;
use serde::{Deserialize, Serialize};

use super::written::{as_text, as_texts, is_true};
use super::{ManagedDrive, Namespace, default_serial, limits};
use crate::diagnostic::nearest::names;
use crate::keys::Absent::{Required, Value, Words};
use crate::keys::{Form, Key};

/// What hosts connect to: a set of namespaces, or a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Subsystem {
    /// Its NQN.
    #[serde(serialize_with = "as_text")]
    pub nqn: Nqn,
    /// Serial number: at most 20 printable ASCII characters.
    pub serial: String,
    /// Model number: at most 40 printable ASCII characters.
    pub model: String,
    /// Firmware revision: at most 8 printable ASCII characters.
    pub firmware: String,
    /// Whether any host may connect.
    pub allow_any_host: bool,
    /// The hosts that may connect.
    #[serde(serialize_with = "as_texts")]
    pub allowed_hosts: Vec<Nqn>,
    /// What it demands of hosts.
    #[serde(skip_serializing_if = "Security::is_anyone")]
    pub security: Security,
    /// The names of the ports that it is reached through.
    pub ports: Vec<String>,
    /// The lowest controller id it gives out: at least 1, and 0 is accepted where it has a drive.
    pub cntlid_min: u16,
    /// The highest controller id it gives out.
    pub cntlid_max: u16,
    /// The name of the drive whose namespaces it has; no other subsystem names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drive: Option<String>,
    /// Whether it is there for hosts.
    #[serde(skip_serializing_if = "is_true")]
    pub enabled: bool,
    /// What the identifiers of its namespaces follow.
    #[serde(skip_serializing_if = "IdentityRule::is_data")]
    pub identity: IdentityRule,
    /// Its namespaces, by NSID; none where it has a drive.
    pub namespaces: Vec<Namespace>,
}

names! {
    /// What a subsystem demands of hosts, or a host has proven.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Security {
        /// Nothing; of hosts with a `dhchap_key`, that they authenticate all the same.
        #[default]
        Anyone = "anyone";
        /// A proof of who they are, by authentication.
        Authenticated = "authenticated";
        /// TLS, with a key of theirs.
        Tls = "tls";
        /// Both.
        #[serde(rename = "authenticated+tls")]
        AuthenticatedTls = "authenticated+tls";
    }
}

impl Security {
    /// Its names in a configuration.
    pub const NAMES: &[&str] = &["anyone", "authenticated", "tls", "authenticated+tls"];

    fn named(name: &str) -> Self {
        match name {
            "authenticated" => Self::Authenticated,
            "tls" => Self::Tls,
            "authenticated+tls" => Self::AuthenticatedTls,
            _ => Self::Anyone,
        }
    }

    /// What has been proven by authentication, TLS or both.
    #[must_use]
    pub const fn proven(authenticated: bool, tls: bool) -> Self {
        match (authenticated, tls) {
            (false, false) => Self::Anyone,
            (true, false) => Self::Authenticated,
            (false, true) => Self::Tls,
            (true, true) => Self::AuthenticatedTls,
        }
    }

    /// Whether a host has to prove who it is by authentication.
    #[must_use]
    pub const fn wants_authentication(self) -> bool {
        matches!(self, Self::Authenticated | Self::AuthenticatedTls)
    }

    /// Whether a host has to come over TLS.
    #[must_use]
    pub const fn wants_tls(self) -> bool {
        matches!(self, Self::Tls | Self::AuthenticatedTls)
    }

    /// Whether it is the default.
    #[must_use]
    pub fn is_anyone(&self) -> bool {
        *self == Self::Anyone
    }
}

/// What the identifiers of a namespace follow for which the configuration has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum IdentityRule {
    /// Its data: other data are another disk for hosts.
    #[default]
    Data,
    /// The subsystem's NQN and the NSID: other data under the same
    /// NSID are the same disk for hosts.
    Name,
}

impl IdentityRule {
    /// Its names in a configuration.
    pub const NAMES: &[&str] = &["data", "name"];

    /// Whether it is the default.
    #[must_use]
    pub fn is_data(&self) -> bool {
        *self == Self::Data
    }
}

impl Subsystem {
    /// A subsystem with the defaults: no namespaces, no ports, no host allowed.
    #[must_use]
    pub fn new(nqn: Nqn) -> Self {
        Self {
            serial: default_serial(&nqn),
            model: "ebof".into(),
            firmware: env!("CARGO_PKG_VERSION").chars().take(limits::FIRMWARE_CHARS_MAX).collect(),
            nqn,
            allow_any_host: false,
            allowed_hosts: Vec::new(),
            security: Security::Anyone,
            ports: Vec::new(),
            cntlid_min: limits::CNTLID_MIN,
            cntlid_max: limits::CNTLID_MAX,
            drive: None,
            namespaces: Vec::new(),
            enabled: true,
            identity: IdentityRule::Data,
        }
    }
}

impl Subsystem {
    /// Its namespaces that are there for hosts.
    pub fn enabled_namespaces(&self) -> impl Iterator<Item = &Namespace> {
        self.namespaces.iter().filter(|namespace| namespace.enabled)
    }

    /// The subsystem of a drive with the defaults: controller ids from 0 or 128, the drive's serial
    /// and model number.
    #[must_use]
    pub fn of_drive(nqn: Nqn, drive: &ManagedDrive) -> Self {
        let mut subsystem = Self::new(nqn);
        subsystem.drive = Some(drive.name.clone());
        subsystem.cntlid_min = drive.least_cntlid();
        drive.serial.iter().for_each(|serial| subsystem.serial.clone_from(serial));
        drive.model.iter().for_each(|model| subsystem.model.clone_from(model));
        subsystem
    }
}

impl Subsystem {
    pub(crate) const KEYS: &[Key<Self>] = &[
        Key {
            name: "nqn",
            form: Form::Nqn { set: None },
            default: Required,
            text: "what hosts connect to; not the discovery NQN",
        },
        Key {
            name: "serial",
            form: Form::Printable { chars_max: limits::SERIAL_CHARS_MAX, set: None },
            default: Words("derived from the NQN"),
            text: "Identify Controller, SN. The derived one is always the same",
        },
        Key {
            name: "model",
            form: Form::Printable { chars_max: limits::MODEL_CHARS_MAX, set: None },
            default: Value,
            text: "Identify Controller, MN",
        },
        Key {
            name: "firmware",
            form: Form::Printable {
                chars_max: limits::FIRMWARE_CHARS_MAX,
                set: Some(|subsystem, text| subsystem.firmware = text),
            },
            default: Words("ebof's version"),
            text: "Identify Controller, FR",
        },
        Key {
            name: "allow_any_host",
            form: Form::Boolean { set: Some(|subsystem, any| subsystem.allow_any_host = any) },
            default: Value,
            text: "any host may connect, including hosts without a host NQN (SPDK's tools), which \
                   get one that is derived from the host identifier",
        },
        Key {
            name: "allowed_hosts",
            form: Form::Other("list of NQNs"),
            default: Words("none"),
            text: "the hosts that may connect; each needs an entry in `[[hosts]]`",
        },
        Key {
            name: "security",
            form: Form::Name {
                names: Security::NAMES,
                set: |subsystem, name| subsystem.security = Security::named(name),
            },
            default: Words("`\"anyone\"`"),
            text: "what it demands of hosts, by their keys (of `[[hosts]]`, or given to the running target): \
                   `\"authenticated\"`, that they prove a `dhchap_key`; `\"tls\"`, that they connect with a \
                   `tls_psk`; `\"authenticated+tls\"`, both. With `\"anyone\"` only those that have a `dhchap_key` \
                   must prove it",
        },
        Key {
            name: "ports",
            form: Form::Other("list of names"),
            default: Words("every port that is not `discovery_only`"),
            text: "the ports through which it can be reached",
        },
        Key {
            name: "cntlid_min",
            form: Form::Other("integer"),
            default: Words("1; 0 with a drive"),
            text: "1 to 65519, with a drive also 0: the lowest controller id",
        },
        Key {
            name: "cntlid_max",
            form: Form::Other("integer"),
            default: Value,
            text: "1 to 65519, not below `cntlid_min`: the highest controller id",
        },
        Key {
            name: "drive",
            form: Form::Other("string"),
            default: Words("none"),
            text: "the name of the [drive](#drives) whose namespaces the subsystem has; \
                   `namespaces` must be absent then",
        },
        Key {
            name: "identity",
            form: Form::Name {
                names: IdentityRule::NAMES,
                set: |subsystem, rule| {
                    subsystem.identity = if rule == "name" { IdentityRule::Name } else { IdentityRule::Data };
                },
            },
            default: Words("`\"data\"`"),
            text: "what the [identifiers](#identifiers-of-namespaces) of its namespaces follow: their data, or the \
                   names, NQN and NSID",
        },
        Key { name: "namespaces", form: Form::Other("list"), default: Words("none"), text: "at most 1024; see below" },
        Key {
            name: "enabled",
            form: Form::Boolean { set: Some(|subsystem, enabled| subsystem.enabled = enabled) },
            default: Words("`true`"),
            text: "`false`: the subsystem is not there for hosts, which may try again later; its \
                   namespaces, and its drive with all functions, are closed",
        },
    ];
}
