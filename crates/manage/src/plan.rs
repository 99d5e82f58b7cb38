//! The changes from one configuration to another, as an ordered list, to be shown or applied.
//!
//! Owns the comparison and the order; makes no change itself. Removals come first, so that an
//! address, an NQN or a file that moves is free when it is used again. Objects are added before
//! those that refer to them, and removed after them.

use std::collections::BTreeMap;
use std::fmt;

use ebof_nvme::Nqn;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::{Config, Host, ManagedDrive, Namespace, Port, Subsystem, TargetOptions};
use crate::keys::Key;
use crate::manual;
use crate::units::format_size;

mod effect;
mod seen;

pub(crate) use effect::disables;
use effect::{alters_proof, drive_effect, enables, port_effect, target_effect};
use seen::{pins, seen_as};

pub use seen::SeenAs;

/// The changes that lead from one configuration to another, in the order in which they are made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The changes.
    pub changes: Vec<Change>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum Change {
    /// Options of the whole target.
    AlterTarget {
        /// The new options.
        to: TargetOptions,
        /// The differences.
        differences: Vec<Difference>,
    },
    /// A namespace is removed.
    RemoveNamespace {
        /// Its subsystem.
        subsystem: String,
        /// Its NSID.
        nsid: u32,
    },
    /// A subsystem goes, with its namespaces.
    RemoveSubsystem {
        /// Its NQN.
        nqn: String,
    },
    /// A drive is removed; its backing stays as it is.
    RemoveDrive {
        /// Its name.
        name: String,
    },
    /// A port is removed.
    RemovePort {
        /// Its name.
        name: String,
    },
    /// A host is added.
    AddHost {
        /// The host.
        host: Host,
    },
    /// A host stays and gets other keys, or others become known.
    AlterHost {
        /// The host as it will be.
        to: Host,
        /// The differences: where keys are.
        differences: Vec<Difference>,
    },
    /// A port stays and gets other options.
    AlterPort {
        /// The port as it will be.
        to: Port,
        /// The differences.
        differences: Vec<Difference>,
    },
    /// A port is added.
    AddPort {
        /// The port.
        port: Port,
    },
    /// A drive stays and gets other options.
    AlterDrive {
        /// The drive as it will be.
        to: ManagedDrive,
        /// The differences.
        differences: Vec<Difference>,
    },
    /// A drive is added.
    AddDrive {
        /// The drive.
        drive: ManagedDrive,
    },
    /// A subsystem stays and gets other options; its namespaces have changes of their own.
    AlterSubsystem {
        /// The subsystem as it will be, with the namespaces it will have.
        to: Subsystem,
        /// The differences.
        differences: Vec<Difference>,
    },
    /// A subsystem appears, with its namespaces.
    AddSubsystem {
        /// The subsystem.
        subsystem: Subsystem,
    },
    /// A namespace stays and gets other options.
    AlterNamespace {
        /// Its subsystem.
        subsystem: String,
        /// The namespace as it will be.
        to: Namespace,
        /// The differences.
        differences: Vec<Difference>,
    },
    /// What a namespace stores its data in has become larger. Only a target that looks at it finds
    /// that out: it is not in the difference of two configurations. With equal sizes: that it was
    /// looked for.
    GrowNamespace {
        /// Its subsystem.
        subsystem: String,
        /// Its NSID.
        nsid: u32,
        /// Its capacity so far.
        from_bytes: u64,
        /// Its capacity from now on.
        to_bytes: u64,
    },
    /// A namespace is added.
    AddNamespace {
        /// Its subsystem.
        subsystem: String,
        /// The namespace.
        namespace: Namespace,
        /// What hosts take it for that had the one under its NSID before.
        #[serde(skip_serializing_if = "Option::is_none")]
        seen_as: Option<SeenAs>,
    },
    /// A host is removed.
    RemoveHost {
        /// Its NQN.
        nqn: String,
        /// It had keys, by which it may have proven who it is.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        had_keys: bool,
    },
}

/// An option that differs, both values as the configuration writes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The option's key.
    pub key: String,
    /// What it was; `None` where it was not set.
    pub from: Option<String>,
    /// What it will be; `None` where it will not be set.
    pub to: Option<String>,
}

/// The effect of a change on connected hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Nothing, or an event.
    Live,
    /// Nothing; connections made from now on see it.
    NewConnections,
    /// Some lose their connection or a namespace.
    Disruptive,
    /// It needs a new start of the target.
    Restart,
    /// It cannot be made, see [`Change::obstacle`].
    Impossible,
}

impl Effect {
    /// It in words for people; `None` if hosts notice nothing but an event.
    #[must_use]
    pub const fn words(self) -> Option<&'static str> {
        match self {
            Self::Live => None,
            Self::NewConnections => Some("new connections only"),
            Self::Disruptive => Some("connected hosts notice"),
            Self::Restart => Some("needs a new start"),
            Self::Impossible => Some("impossible"),
        }
    }
}

impl Plan {
    /// The way from `current` to `desired`.
    #[must_use]
    pub fn between(current: &Config, desired: &Config) -> Self {
        let mut steps = Steps::default();
        steps.target(current, desired);
        steps.ports(current, desired);
        steps.hosts(current, desired);
        steps.drives(current, desired);
        steps.subsystems(current, desired);
        let mut changes = steps.changes;
        // A stable sort: within a rank the order of the configurations stays.
        changes.sort_by_key(Change::rank);
        Self { changes }
    }

    /// Whether there are no changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The changes that cannot be made while the target runs: they need a new start, or are not
    /// possible at all.
    pub fn refused(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(|change| change.effect() >= Effect::Restart)
    }

    /// The strongest effect of all changes; `None` where there is none.
    #[must_use]
    pub fn effect(&self) -> Option<Effect> {
        self.changes.iter().map(Change::effect).max()
    }
}

#[derive(Default)]
struct Steps {
    changes: Vec<Change>,
}

impl Steps {
    fn target(&mut self, current: &Config, desired: &Config) {
        let differences = differences(&current.target, &desired.target, &[]);
        if !differences.is_empty() {
            self.changes.push(Change::AlterTarget { to: desired.target.clone(), differences });
        }
    }

    fn ports(&mut self, current: &Config, desired: &Config) {
        for old in &current.ports {
            // A listening socket cannot move: another address is another port.
            if !desired.ports.iter().any(|new| new.is_same(old)) {
                self.changes.push(Change::RemovePort { name: old.name.clone() });
            }
        }
        for new in &desired.ports {
            let Some(old) = current.ports.iter().find(|old| old.is_same(new)) else {
                self.changes.push(Change::AddPort { port: new.clone() });
                continue;
            };
            let differences = differences(old, new, &[]);
            if !differences.is_empty() {
                self.changes.push(Change::AlterPort { to: new.clone(), differences });
            }
        }
    }

    fn hosts(&mut self, current: &Config, desired: &Config) {
        // There may be thousands.
        let by_nqn = |config: &Config| -> BTreeMap<Nqn, Host> {
            config.hosts.iter().map(|host| (host.nqn.clone(), host.clone())).collect()
        };
        let (before, after) = (by_nqn(current), by_nqn(desired));
        for old in &current.hosts {
            if !after.contains_key(&old.nqn) {
                self.changes.push(Change::RemoveHost { nqn: old.nqn.to_string(), had_keys: old.has_keys() });
            }
        }
        for new in &desired.hosts {
            let Some(old) = before.get(&new.nqn) else {
                self.changes.push(Change::AddHost { host: new.clone() });
                continue;
            };
            let differences = differences(old, new, &[]);
            if !differences.is_empty() {
                self.changes.push(Change::AlterHost { to: new.clone(), differences });
            }
        }
    }

    fn drives(&mut self, current: &Config, desired: &Config) {
        for old in &current.drives {
            if !desired.drives.iter().any(|drive| drive.is_same(old)) {
                self.changes.push(Change::RemoveDrive { name: old.name.clone() });
            }
        }
        for new in &desired.drives {
            let Some(old) = current.drives.iter().find(|drive| drive.is_same(new)) else {
                self.changes.push(Change::AddDrive { drive: new.clone() });
                continue;
            };
            let differences = differences(old, new, &[]);
            if !differences.is_empty() {
                self.changes.push(Change::AlterDrive { to: new.clone(), differences });
            }
        }
    }

    fn subsystems(&mut self, current: &Config, desired: &Config) {
        // A subsystem with another drive has other controllers and namespaces: hosts must see it go
        // and come.
        let same = |old: &Subsystem, new: &Subsystem| {
            let drives = (drive_of(current, old), drive_of(desired, new));
            old.nqn == new.nqn
                && match drives {
                    (Some(old), Some(new)) => old.is_same(new),
                    (None, None) => true,
                    _ => false,
                }
        };
        for old in &current.subsystems {
            if !desired.subsystems.iter().any(|new| same(old, new)) {
                self.changes.push(Change::RemoveSubsystem { nqn: old.nqn.to_string() });
            }
        }
        for new in &desired.subsystems {
            let Some(old) = current.subsystems.iter().find(|old| same(old, new)) else {
                self.changes.push(Change::AddSubsystem { subsystem: new.clone() });
                continue;
            };
            let differences = differences(&renamed(old, current, desired), new, &["namespaces"]);
            if !differences.is_empty() {
                self.changes.push(Change::AlterSubsystem { to: new.clone(), differences });
            }
            self.namespaces(old, new);
        }
    }

    fn namespaces(&mut self, old: &Subsystem, new: &Subsystem) {
        let subsystem = new.nqn.to_string();
        for namespace in &old.namespaces {
            let kept = new.namespaces.iter().any(|other| same_namespace((old, namespace), (new, other)));
            if !kept {
                self.changes.push(Change::RemoveNamespace { subsystem: subsystem.clone(), nsid: namespace.nsid });
            }
        }
        for namespace in &new.namespaces {
            match old.namespaces.iter().find(|other| same_namespace((old, other), (new, namespace))) {
                None => {
                    let before = old.namespaces.iter().find(|other| other.nsid == namespace.nsid);
                    let seen_as = before.map(|before| seen_as((old, before), (new, namespace)));
                    let (subsystem, namespace) = (subsystem.clone(), namespace.clone());
                    self.changes.push(Change::AddNamespace { subsystem, namespace, seen_as });
                }
                Some(other) => {
                    let mut differences = differences(other, namespace, &[]);
                    for difference in differences.iter_mut().filter(|difference| difference.key == "drive") {
                        difference.from = Some(other.drive.to_string());
                        difference.to = Some(namespace.drive.to_string());
                    }
                    if !differences.is_empty() {
                        let subsystem = subsystem.clone();
                        let to = namespace.clone();
                        self.changes.push(Change::AlterNamespace { subsystem, to, differences });
                    }
                }
            }
        }
    }
}

fn drive_of<'c>(config: &'c Config, subsystem: &Subsystem) -> Option<&'c ManagedDrive> {
    let name = subsystem.drive.as_ref()?;
    config.drives.iter().find(|drive| drive.name == *name)
}

/// A subsystem of `current` with the names that `desired` has for its ports and its drive: that
/// they are called something else is no change of it.
fn renamed(subsystem: &Subsystem, current: &Config, desired: &Config) -> Subsystem {
    let mut renamed = subsystem.clone();
    for name in &mut renamed.ports {
        let port = current.ports.iter().find(|port| port.name == *name);
        if let Some(now) = port.and_then(|port| desired.ports.iter().find(|now| now.is_same(port))) {
            name.clone_from(&now.name);
        }
    }
    if let Some(drive) = drive_of(current, subsystem)
        && let Some(now) = desired.drives.iter().find(|now| now.is_same(drive))
    {
        renamed.drive = Some(now.name.clone());
    }
    renamed
}

/// Whether a host may take both for one: other data, block size or identity under the same NSID
/// must be seen to go and come, or a host keeps using what it has cached.
fn same_namespace(a: (&Subsystem, &Namespace), b: (&Subsystem, &Namespace)) -> bool {
    let form = |ns: &Namespace| (ns.nsid, ns.block_size);
    form(a.1) == form(b.1) && pins(a) == pins(b) && a.1.drive.is_same(&b.1.drive)
}

/// The options in which two values differ, by their serialised form, so that no field can be
/// forgotten.
fn differences<T: Serialize>(from: &T, to: &T, ignored: &[&str]) -> Vec<Difference> {
    let fields = |value: &T| match serde_json::to_value(value) {
        Ok(Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let from = fields(from);
    let to = fields(to);
    let mut keys: Vec<&String> = from.keys().chain(to.keys()).collect();
    keys.sort();
    keys.dedup();
    let differing = keys.into_iter().filter(|key| !ignored.contains(&key.as_str()) && from.get(*key) != to.get(*key));
    let text = |value: Option<&Value>| value.map(ToString::to_string);
    differing.map(|key| Difference { key: key.clone(), from: text(from.get(key)), to: text(to.get(key)) }).collect()
}

impl Change {
    const fn rank(&self) -> u8 {
        match self {
            Self::AlterTarget { .. } => 0,
            Self::RemoveNamespace { .. } => 1,
            Self::RemoveSubsystem { .. } => 2,
            Self::RemoveDrive { .. } => 3,
            Self::RemovePort { .. } => 4,
            Self::AddHost { .. } | Self::AlterHost { .. } => 5,
            Self::AlterPort { .. } => 6,
            Self::AddPort { .. } => 7,
            Self::AlterDrive { .. } => 8,
            Self::AddDrive { .. } => 9,
            Self::AlterSubsystem { .. } => 10,
            Self::AddSubsystem { .. } => 11,
            Self::AlterNamespace { .. } | Self::GrowNamespace { .. } => 12,
            Self::AddNamespace { .. } => 13,
            Self::RemoveHost { .. } => 14,
        }
    }

    /// Its effect on connected hosts.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match self {
            Self::AlterTarget { differences, .. } => {
                differences.iter().map(target_effect).max().unwrap_or(Effect::Live)
            }
            Self::AlterPort { differences, .. } => differences.iter().map(port_effect).max().unwrap_or(Effect::Live),
            Self::AlterDrive { differences, .. } => differences.iter().map(drive_effect).max().unwrap_or(Effect::Live),
            Self::RemoveNamespace { .. }
            | Self::RemoveSubsystem { .. }
            | Self::RemoveDrive { .. }
            | Self::RemovePort { .. } => Effect::Disruptive,
            // Hosts read these once when they connect, and compare them between paths; a host that
            // is no longer allowed, or a port that no longer has the subsystem, ends connections.
            Self::AlterSubsystem { differences, .. } => {
                if differences.iter().all(enables) {
                    Effect::Live
                } else {
                    Effect::Disruptive
                }
            }
            Self::AlterNamespace { differences, .. } if differences.iter().any(disables) => Effect::Disruptive,
            // A host that has to prove who it is from now on, and has not, loses its connections;
            // so does one without a secret where everybody needs one.
            Self::AlterHost { differences, .. } if differences.iter().any(alters_proof) => Effect::Disruptive,
            Self::AddHost { host } if host.dhchap_key.is_some() => Effect::Disruptive,
            Self::RemoveHost { had_keys: true, .. } => Effect::Disruptive,
            Self::AlterHost { .. } => Effect::Live,
            Self::AddHost { .. }
            | Self::AddPort { .. }
            | Self::AddDrive { .. }
            | Self::AddSubsystem { .. }
            | Self::AlterNamespace { .. }
            | Self::GrowNamespace { .. }
            | Self::AddNamespace { .. }
            | Self::RemoveHost { .. } => Effect::Live,
        }
    }

    /// The reason why it cannot be made; `None` if it can.
    #[must_use]
    pub fn obstacle(&self) -> Option<&'static str> {
        (self.effect() == Effect::Impossible).then_some("a drive keeps the size that it was made with")
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing changes");
        }
        for (at, change) in self.changes.iter().enumerate() {
            let mark = match change {
                Change::AddHost { .. }
                | Change::AddPort { .. }
                | Change::AddDrive { .. }
                | Change::AddSubsystem { .. }
                | Change::AddNamespace { .. } => '+',
                Change::RemoveHost { .. }
                | Change::RemovePort { .. }
                | Change::RemoveDrive { .. }
                | Change::RemoveSubsystem { .. }
                | Change::RemoveNamespace { .. } => '-',
                _ => '~',
            };
            write!(f, "{}{mark} {change}", if at > 0 { "\n" } else { "" })?;
            match (change.effect().words(), change.obstacle()) {
                (None, _) => {}
                (Some(effect), None) => write!(f, " ({effect})")?,
                (Some(effect), Some(obstacle)) => write!(f, " ({effect}: {obstacle})")?,
            }
        }
        Ok(())
    }
}

/// As an imperative: `add port ...`.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlterTarget { differences, .. } => {
                write!(f, "alter target: {}", Listed(differences, TargetOptions::KEYS))
            }
            Self::RemoveNamespace { subsystem, nsid } => write!(f, "remove namespace {nsid} of {subsystem}"),
            Self::RemoveSubsystem { nqn } => write!(f, "remove subsystem {nqn}"),
            Self::RemoveDrive { name } => write!(f, "remove drive {name}"),
            Self::RemovePort { name } => write!(f, "remove port {name}"),
            Self::AddHost { host } => write!(f, "add host {}", host.nqn),
            // Its keys are elsewhere, and read anew.
            Self::AlterHost { to, differences } if differences.is_empty() => {
                write!(f, "look at the keys of host {}", to.nqn)
            }
            Self::AlterHost { to, differences } => {
                write!(f, "alter host {}: {}", to.nqn, Listed(differences, Host::KEYS))
            }
            Self::AlterPort { to, differences } => {
                write!(f, "alter port {}: {}", to.name, Listed(differences, Port::KEYS))
            }
            Self::AddPort { port } if port.name == port.listen.to_string() => write!(f, "add port {}", port.name),
            Self::AddPort { port } => write!(f, "add port {} at {}", port.name, port.listen),
            Self::AlterSubsystem { to, differences } => {
                write!(f, "alter subsystem {}: {}", to.nqn, Listed(differences, Subsystem::KEYS))
            }
            Self::AlterDrive { to, differences } => {
                write!(f, "alter drive {}: {}", to.name, Listed(differences, ManagedDrive::KEYS))
            }
            Self::AddDrive { drive } => {
                write!(f, "add drive {}: {}", drive.name, drive.backing)?;
                drive.size_bytes.map_or(Ok(()), |size| write!(f, ", {}", format_size(size)))
            }
            Self::AddSubsystem { subsystem } => {
                write!(f, "add subsystem {} with ", subsystem.nqn)?;
                match (&subsystem.drive, subsystem.namespaces.len()) {
                    (Some(drive), _) => write!(f, "drive {drive}")?,
                    (None, 1) => f.write_str("1 namespace")?,
                    (None, count) => write!(f, "{count} namespaces")?,
                }
                let is_open = subsystem.allow_any_host && subsystem.security.is_anyone();
                f.write_str(if is_open { ", for anyone" } else { "" })
            }
            Self::AlterNamespace { subsystem, to, differences } => {
                write!(f, "alter namespace {} of {subsystem}: {}", to.nsid, Listed(differences, Namespace::KEYS))
            }
            Self::GrowNamespace { subsystem, nsid, from_bytes, to_bytes } if from_bytes == to_bytes => {
                write!(f, "look at the size of namespace {nsid} of {subsystem}")
            }
            Self::GrowNamespace { subsystem, nsid, from_bytes, to_bytes } => {
                let from = format_size(*from_bytes);
                let to = format_size(*to_bytes);
                write!(f, "grow namespace {nsid} of {subsystem}: {from} -> {to}")
            }
            Self::AddNamespace { subsystem, namespace, seen_as } => {
                write!(f, "add namespace {} to {subsystem}: {}", namespace.nsid, namespace.drive)?;
                seen_as.map_or(Ok(()), |seen_as| write!(f, ", {}", seen_as.words()))
            }
            Self::RemoveHost { nqn, .. } => write!(f, "remove host {nqn}"),
        }
    }
}

/// Differences as text. A key that is not written is what it is by default.
struct Listed<'a, T: 'static>(&'a [Difference], &'static [Key<T>]);

impl<T> fmt::Display for Listed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(differences, keys) = self;
        for (at, Difference { key, from, to }) in differences.iter().enumerate() {
            let value = |value: &Option<String>| value.clone().unwrap_or_else(|| manual::unwritten(keys, key));
            write!(f, "{}{key} {} -> {}", if at > 0 { ", " } else { "" }, value(from), value(to))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
