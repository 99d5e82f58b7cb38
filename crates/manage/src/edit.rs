//! Changes of single objects of a configuration, as values: a port is added, a key is set, a
//! subsystem is removed. Verbs and Redfish make the same ones.
//!
//! Owns the edits, their JSON form, and what becomes of a configuration ([`Edits::made_to`]), with
//! all mistakes at once. What that means for hosts is told by the plan between the two
//! configurations ([`crate::plan`]). Whether a value is legal is decided by the rules of
//! configuration files: an edit is made in the configuration's own form, which is then read again.
//! Changes that need steps or a drive are in [`crate::enclosure`].

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::config::Config;
use crate::enclosure::{Mistake, MistakeKind, Refused};
use crate::load::Loaded;

mod make;
mod table;
mod text;
mod words;

pub use table::Kind;
pub use words::{WordError, Words, words};

/// The most edits that are made together.
pub const EDITS_MAX: usize = 256;

/// Keys of a configuration with their values: `null` is the default.
pub type Keys = Map<String, Value>;

/// Edits that are made together: all of them, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edits {
    /// They, in the order in which they are made.
    pub edits: Vec<Edit>,
    /// The absolute path of the directory that relative paths in them begin at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// What a plan of them promised ([`Planned::promise`](crate::api::Planned::promise)): they are
    /// made if they would still do that, and else refused as outdated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promise: Option<String>,
}

/// One edit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "edit", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Edit {
    /// A port is added.
    AddPort {
        /// As in `[[ports]]`.
        keys: Keys,
        /// The subsystems that are reached through it; `None` are those that are reached through
        /// every other port of a network. A direct port has none then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subsystems: Option<Vec<String>>,
    },
    /// A host is added.
    AddHost {
        /// As in `[[hosts]]`.
        keys: Keys,
        /// The subsystems that it may connect to.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        subsystems: Vec<String>,
    },
    /// A subsystem is added, with its namespaces.
    AddSubsystem {
        /// As in `[[subsystems]]`. Allowed hosts that the configuration does not describe are added
        /// to it.
        keys: Keys,
    },
    /// A namespace is added to a subsystem that has no drive.
    AddNamespace {
        /// The NQN of the subsystem.
        subsystem: String,
        /// As in `[[subsystems.namespaces]]`.
        keys: Keys,
    },
    /// An object is removed, and everything that refers to it: a port from its subsystems, a host
    /// from those that allow it, a subsystem with its namespaces.
    Remove {
        /// It.
        object: Object,
    },
    /// Keys of an object are set. What refers to it by its name does so by its new one.
    Set {
        /// It.
        object: Object,
        /// The keys.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        keys: Keys,
        /// What is added to lists, and entries of tables that are set.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        add: Map<String, Value>,
        /// What is taken from lists, and names of entries that are taken from tables.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        remove: Map<String, Value>,
    },
    /// A port, subsystem or namespace is there for hosts again.
    Enable {
        /// It.
        object: Object,
    },
    /// A port, subsystem or namespace stays in the configuration, and is not there for hosts.
    Disable {
        /// It.
        object: Object,
    },
    /// A namespace gets another size.
    Resize {
        /// The NQN of its subsystem.
        subsystem: String,
        /// Its NSID.
        nsid: u32,
        /// The size: bytes, or a text such as `20G`.
        size: Value,
    },
}

/// An object of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Object {
    /// The target as a whole.
    Target,
    /// A port, by its name.
    Port(String),
    /// A host, by its NQN.
    Host(String),
    /// A drive that hosts manage, by its name.
    Drive(String),
    /// A subsystem, by its NQN.
    Subsystem(String),
    /// A namespace that is not a drive's.
    Namespace {
        /// The NQN of its subsystem.
        subsystem: String,
        /// Its NSID.
        nsid: u32,
    },
}

impl Object {
    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Target => Kind::Target,
            Self::Port(_) => Kind::Port,
            Self::Host(_) => Kind::Host,
            Self::Drive(_) => Kind::Drive,
            Self::Subsystem(_) => Kind::Subsystem,
            Self::Namespace { .. } => Kind::Namespace,
        }
    }
}

impl Edits {
    /// One edit.
    #[must_use]
    pub fn one(edit: Edit) -> Self {
        Self { edits: vec![edit], base: None, promise: None }
    }

    /// What `current` becomes.
    ///
    /// # Errors
    /// All mistakes.
    pub fn made_to(&self, current: &Config) -> Result<Loaded, Refused> {
        if self.edits.is_empty() || self.edits.len() > EDITS_MAX {
            let message = format!("there are {} edits", self.edits.len());
            return Err(Refused::because(MistakeKind::Value, message, format!("accepted: 1 to {EDITS_MAX}")));
        }
        let mut mistakes = Vec::new();
        let mut tree = make::Tree::from_config(current);
        for (at, edit) in self.edits.iter().enumerate() {
            if let Err(found) = tree.make(edit) {
                mistakes.extend(found.into_iter().map(|mistake| Mistake { change: Some(at), ..mistake }));
            }
        }
        let read = text::read(tree, self);
        let mut loaded = match read {
            Ok(loaded) if mistakes.is_empty() => loaded,
            Ok(_) => return Err(Refused { mistakes }),
            Err(found) => {
                // A key that is unknown is so for both.
                let known =
                    |new: &Mistake| mistakes.iter().any(|old| old.message == new.message && old.object == new.object);
                let found: Vec<Mistake> = found.into_iter().filter(|new| !known(new)).collect();
                mistakes.extend(found);
                return Err(Refused { mistakes });
            }
        };
        let before = loaded.config.clone();
        loaded.config.rebase(Path::new(self.base.as_deref().unwrap_or("/")));
        if self.base.is_none() && loaded.config != before {
            let message = "there are relative paths, and nothing says where they begin";
            let advice = "want `base`, the absolute path of a directory, or absolute paths";
            return Err(Refused::because(MistakeKind::Value, message, advice));
        }
        Ok(loaded)
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target => f.write_str("target"),
            Self::Port(name) => write!(f, "port {name}"),
            Self::Host(nqn) => write!(f, "host {nqn}"),
            Self::Drive(name) => write!(f, "drive {name}"),
            Self::Subsystem(nqn) => write!(f, "subsystem {nqn}"),
            Self::Namespace { subsystem, nsid } => write!(f, "namespace {nsid} of {subsystem}"),
        }
    }
}

/// As an imperative: `add port tcp://192.0.2.1:4420`.
impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |keys: &Keys, key: &str| keys.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        match self {
            Self::AddPort { keys, .. } => write!(f, "add port {}", named(keys, "listen")),
            Self::AddHost { keys, .. } => write!(f, "add host {}", named(keys, "nqn")),
            Self::AddSubsystem { keys } => write!(f, "add subsystem {}", named(keys, "nqn")),
            Self::AddNamespace { subsystem, .. } => write!(f, "add a namespace to {subsystem}"),
            Self::Remove { object } => write!(f, "remove {object}"),
            Self::Set { object, keys, add, remove } => {
                let all = [keys, add, remove].into_iter().flat_map(Map::keys);
                write!(f, "set {} of {object}", all.cloned().collect::<Vec<_>>().join(", "))
            }
            Self::Enable { object } => write!(f, "enable {object}"),
            Self::Disable { object } => write!(f, "disable {object}"),
            Self::Resize { subsystem, nsid, .. } => write!(f, "resize namespace {nsid} of {subsystem}"),
        }
    }
}

/// The first edit and how many more there are.
impl fmt::Display for Edits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.edits.as_slice() {
            [] => f.write_str("change nothing"),
            [one] => one.fmt(f),
            [first, rest @ ..] => write!(f, "{first} and {} more", rest.len()),
        }
    }
}

#[cfg(test)]
mod tests;
