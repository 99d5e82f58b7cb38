//! The configuration of a running target as its clients see and change it: what is in force, what
//! another one would change and for whom, what was applied, and why one is refused.
//!
//! Owns the types, the revision of a configuration, and which connected hosts a plan disturbs.
//! Reading files and applying is the target's.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ControllerStatus, Peer, Status};
use crate::config::{Config, Host, PortTls, Security, Subsystem};
use crate::diagnostic::Diagnostics;
use crate::enclosure::{MistakeKind, Refused};
use crate::plan::{Change, Difference, Effect, Plan, SeenAs, disables};

/// The version of the JSON shape of [`Configuration`], [`Planned`] and [`Applied`].
pub const CONFIGURATION_SCHEMA: u32 = 1;

/// The most entries of [`Planned::disturbed`].
pub const DISTURBED_MAX: usize = 1000;

/// The largest text that is taken as a configuration, bytes.
pub const SENT_TEXT_BYTES_MAX: usize = 1 << 20;

/// Names a configuration: the same for the same one, another for every other one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(String);

impl Revision {
    /// That of a configuration.
    #[must_use]
    pub fn from_config(config: &Config) -> Self {
        // A value that was built by hand may hold what TOML cannot.
        let text = config.to_toml().unwrap_or_else(|_| format!("{config:?}"));
        Self(crate::config::digest(&text).to_string())
    }

    /// One that a client names.
    #[must_use]
    pub fn named(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The configuration in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// [`CONFIGURATION_SCHEMA`].
    pub schema: u32,
    /// Its revision.
    pub revision: Revision,
    /// What the target was started with.
    pub source: Source,
    /// The number that it is stored under; `None` where nothing is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// It, as TOML.
    pub toml: String,
}

impl Configuration {
    /// What those are told of it who see no more than `part` of the configuration.
    ///
    /// # Errors
    /// It cannot be written as text.
    pub fn limited_to(&self, part: &Config) -> Result<Self, RefusedConfiguration> {
        let toml = part.to_toml().map_err(|error| {
            let message = format!("the configuration in force cannot be written as TOML: {error}");
            Refused::because(MistakeKind::Value, message, "this is an error of ebof: please report it")
        })?;
        let source = match &self.source {
            // What is wrong with the file may be said in names of others.
            Source::File { path, .. } => Source::File { path: path.clone(), differs: None, problem: None },
            other => other.clone(),
        };
        Ok(Self { schema: self.schema, revision: Revision::from_config(part), source, generation: None, toml })
    }
}

/// What a target was started with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Source {
    /// Arguments of the command line.
    Arguments,
    /// The state directory: what is changed is in force after the next start, too.
    State {
        /// Its path.
        path: String,
    },
    /// A file.
    File {
        /// Its path.
        path: String,
        /// Whether it says something else than what is in force; `None` if it cannot be used.
        differs: Option<bool>,
        /// Why it cannot be used.
        problem: Option<String>,
    },
}

/// A configuration that a client sends, or names: one of `toml`, `json` and `generation`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Desired {
    /// Its text in TOML.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toml: Option<String>,
    /// Its text in JSON, with ebof's keys or nvmetcli's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<String>,
    /// The number of a stored generation, or its revision or the beginning of it, at least 4
    /// characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<String>,
    /// The absolute path of the directory that relative paths in it begin at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// What messages call it, usually the path of its file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// That of the plan that was looked at ([`Planned::promise`]): it is not put in force if it
    /// would change something else by then, or disturb other hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promise: Option<String>,
}

/// What applying a configuration would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// [`CONFIGURATION_SCHEMA`].
    pub schema: u32,
    /// The revision that it starts from.
    pub revision: Revision,
    /// The changes, in their order.
    pub plan: Vec<PlannedChange>,
    /// The connected hosts that notice a change, as far as that is known before; at most
    /// [`DISTURBED_MAX`].
    pub disturbed: Vec<Disturbed>,
    /// How many more there are.
    pub disturbed_left_out: usize,
    /// Names what is told here, whatever revision it starts from: edits with it are made after
    /// other changes, too, unless these would have made it another one ([`Edits::promise`]).
    ///
    /// [`Edits::promise`]: crate::edit::Edits::promise
    #[serde(default)]
    pub promise: String,
    /// Warnings and notes about the text.
    pub remarks: Diagnostics,
}

/// A change of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedChange {
    /// As an imperative: `add port ...`.
    pub text: String,
    /// Its effect on connected hosts.
    pub effect: Effect,
    /// Why it cannot be made, if so.
    pub obstacle: Option<String>,
    /// It in full: [`Change`] as JSON.
    pub change: Value,
}

/// A connected host that notices a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disturbed {
    /// The index of the change in the plan.
    pub change: usize,
    /// The host's NQN.
    pub host_nqn: String,
    /// The subsystem that it is connected to.
    pub subsystem_nqn: String,
    /// Its controller.
    pub cntlid: u16,
    /// The port that it uses.
    pub port: String,
    /// What it notices.
    pub why: String,
}

/// What was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// [`CONFIGURATION_SCHEMA`].
    pub schema: u32,
    /// The revision in force now.
    pub revision: Revision,
    /// The changes that were made; none if there was nothing to change.
    pub plan: Vec<PlannedChange>,
    /// What the target was started with, and whether that is in force.
    pub source: Source,
    /// The number that it is stored under; `None` where nothing is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Warnings and notes about the text.
    pub remarks: Diagnostics,
}

/// Why a configuration was refused; nothing was changed, unless the mistake says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedConfiguration {
    /// The mistakes.
    #[serde(flatten)]
    pub refused: Refused,
    /// The messages about the text, if it is the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnostics: Option<Diagnostics>,
}

impl RefusedConfiguration {
    /// Of a text with errors.
    #[must_use]
    pub fn text(diagnostics: Diagnostics) -> Self {
        let advice = "correct the text: `ebof config check FILE` shows the lines";
        let whole = |message: String| Refused::because(MistakeKind::Value, message, advice);
        Self { refused: whole(diagnostics.to_string()), diagnostics: Some(diagnostics) }
    }
}

impl From<Refused> for RefusedConfiguration {
    fn from(refused: Refused) -> Self {
        Self { refused, diagnostics: None }
    }
}

impl PlannedChange {
    fn new(change: &Change) -> Self {
        Self {
            text: change.to_string(),
            effect: change.effect(),
            obstacle: change.obstacle().map(str::to_owned),
            change: serde_json::to_value(change).expect("names, texts and numbers become JSON"),
        }
    }

    /// Those of a plan.
    #[must_use]
    pub fn all(plan: &Plan) -> Vec<Self> {
        plan.changes.iter().map(Self::new).collect()
    }
}

impl Planned {
    /// What leads from `current` to `desired`, and whom of `status` it disturbs.
    #[must_use]
    pub fn new(current: &Config, mut desired: Config, status: &Status, remarks: Diagnostics) -> Self {
        desired.keep_numbers(current);
        let plan = Plan::between(current, &desired);
        let mut found = Found::default();
        for (at, change) in plan.changes.iter().enumerate() {
            if change.effect() == Effect::Disruptive {
                let change = Disruption { at, change, current, desired: &desired, plan: &plan };
                status.controllers.iter().for_each(|controller| found.note(&change, controller));
            }
        }
        Self {
            schema: CONFIGURATION_SCHEMA,
            revision: Revision::from_config(current),
            promise: found.promise(&plan),
            plan: PlannedChange::all(&plan),
            disturbed: found.disturbed,
            disturbed_left_out: found.left_out,
            remarks,
        }
    }

    /// Another one as soon as the configuration in force, the changes, or the hosts that notice
    /// them are others.
    #[must_use]
    pub fn answer_revision(&self) -> Revision {
        let texts: Vec<&str> = self.plan.iter().map(|change| change.text.as_str()).collect();
        let answer = serde_json::json!([self.revision, texts, self.disturbed, self.disturbed_left_out]);
        Revision(crate::config::digest(&answer.to_string()).to_string())
    }
}

#[derive(Default)]
struct Found {
    disturbed: Vec<Disturbed>,
    left_out: usize,
}

impl Found {
    /// A digest of what a plan makes, and for whom.
    fn promise(&self, plan: &Plan) -> String {
        let changes: Vec<Value> = plan.changes.iter().map(promised).collect();
        let told = serde_json::json!([changes, self.disturbed, self.left_out]);
        crate::config::digest(&told.to_string()).to_string()
    }

    fn note(&mut self, change: &Disruption<'_>, controller: &ControllerStatus) {
        let Some(why) = change.noticed_by(controller) else { return };
        if self.disturbed.len() >= DISTURBED_MAX {
            self.left_out += 1;
            return;
        }
        self.disturbed.push(Disturbed {
            change: change.at,
            host_nqn: controller.host_nqn.clone(),
            subsystem_nqn: controller.subsystem_nqn.clone(),
            cntlid: controller.cntlid,
            port: controller.port.clone(),
            why,
        });
    }
}

/// A change without the numbers that the target has chosen for what it adds: whoever has named one
/// names it with the edit.
fn promised(change: &Change) -> Value {
    let mut value = serde_json::to_value(change).expect("names, texts and numbers become JSON");
    let numbers: (&str, &[&str]) = match change {
        Change::AddPort { .. } => ("port", &["id"]),
        Change::AddNamespace { .. } => ("namespace", &["nsid", "uuid", "nguid", "eui64"]),
        _ => return value,
    };
    if let Some(Value::Object(object)) = value.get_mut(numbers.0) {
        numbers.1.iter().for_each(|key| drop(object.remove(*key)));
    }
    value
}

/// A change that connected hosts may notice.
struct Disruption<'a> {
    at: usize,
    change: &'a Change,
    current: &'a Config,
    desired: &'a Config,
    plan: &'a Plan,
}

impl Disruption<'_> {
    /// What the host of a controller notices, if it does.
    fn noticed_by(&self, controller: &ControllerStatus) -> Option<String> {
        match self.change {
            Change::RemoveNamespace { subsystem, nsid } if controller.subsystem_nqn == *subsystem => {
                Some(match self.comes_again(subsystem, *nsid) {
                    None => format!("namespace {nsid} goes"),
                    Some(SeenAs::SameDisk) => format!("namespace {nsid} goes, and comes again as the same disk"),
                    Some(SeenAs::AnotherDisk | SeenAs::SameDiskWithOtherData) => {
                        format!("namespace {nsid} goes, and another disk gets its NSID")
                    }
                })
            }
            Change::RemoveSubsystem { nqn } if is_of(controller, nqn) => {
                let comes = |change: &Change| matches!(change, Change::AddSubsystem { subsystem } if subsystem.nqn.as_str() == nqn);
                Some(if self.plan.changes.iter().any(comes) {
                    "its connection ends: its subsystem goes, and another one gets its NQN".to_owned()
                } else {
                    "its connection ends: its subsystem goes".to_owned()
                })
            }
            Change::RemovePort { name } if controller.port == *name => {
                Some(format!("its connection ends: port {name} goes"))
            }
            Change::AlterPort { to, differences } => {
                let before = self.current.ports.iter().find(|port| port.is_same(to))?;
                let ends = differences.iter().any(|difference| match difference.key.as_str() {
                    "id" => true,
                    "enabled" => disables(difference),
                    "discovery_only" => to.discovery_only && !controller.discovery,
                    "tls" => to.tls == PortTls::Required && !controller.proof.wants_tls(),
                    _ => false,
                });
                (ends && before.name == controller.port)
                    .then(|| format!("its connection ends: port {} changes", before.name))
            }
            Change::AddHost { host } if host.nqn.as_str() == controller.host_nqn => {
                self.proves_otherwise(None, Some(host), controller)
            }
            Change::AlterHost { to, .. } if to.nqn.as_str() == controller.host_nqn => {
                self.proves_otherwise(self.host(to.nqn.as_str()), Some(to), controller)
            }
            Change::RemoveHost { nqn, .. } if *nqn == controller.host_nqn => {
                self.proves_otherwise(self.host(nqn), None, controller)
            }
            Change::AlterDrive { to, differences } => {
                let of = self.desired.subsystems.iter().find(|subsystem| subsystem.drive.as_ref() == Some(&to.name))?;
                is_of(controller, of.nqn.as_str()).then(|| identity(differences, &["serial", "model"]))?
            }
            Change::AlterNamespace { subsystem, to, differences } if controller.subsystem_nqn == *subsystem => {
                differences.iter().any(disables).then(|| format!("namespace {} goes", to.nsid))
            }
            Change::AlterSubsystem { to, differences } if is_of(controller, to.nqn.as_str()) => {
                self.altered(to, differences, controller)
            }
            // The drive's subsystem goes, too, and hosts notice that.
            _ => None,
        }
    }

    /// A host as it is now.
    fn host(&self, nqn: &str) -> Option<&Host> {
        self.current.hosts.iter().find(|host| host.nqn.as_str() == nqn)
    }

    /// What becomes of a controller whose host gets or loses keys in the configuration. The target
    /// may have been given others, which are not there.
    fn proves_otherwise(
        &self,
        from: Option<&Host>,
        to: Option<&Host>,
        controller: &ControllerStatus,
    ) -> Option<String> {
        let proof = controller.proof;
        let has = |host: Option<&Host>, key: fn(&Host) -> bool| host.is_some_and(key);
        let secret = |host: &Host| host.dhchap_key.is_some();
        let psk = |host: &Host| host.tls_psk.is_some();
        let is_at_gate = !controller.discovery && controller.peer != Peer::Direct;
        if is_at_gate && !has(from, secret) && has(to, secret) && !proof.wants_authentication() {
            return Some("its connection ends: the host has to prove who it is".to_owned());
        }
        let other = "unless the target was given another one";
        if has(from, psk) && !has(to, psk) && proof.wants_tls() {
            return Some(format!("its connection ends: its key for TLS goes, {other}"));
        }
        let subsystems = &self.desired.subsystems;
        let demands = subsystems.iter().find(|subsystem| is_of(controller, subsystem.nqn.as_str()));
        // TLS by a key that the proof has generated goes with the secret.
        let is_needed = demands.is_some_and(|subsystem| subsystem.security.wants_authentication())
            || proof.wants_tls() && !has(to, psk);
        let loses = has(from, secret) && !has(to, secret) && proof.wants_authentication();
        (loses && is_needed).then(|| format!("its connection ends: the key that it has proven itself by goes, {other}"))
    }

    fn comes_again(&self, of: &str, number: u32) -> Option<SeenAs> {
        self.plan.changes.iter().find_map(|change| match change {
            Change::AddNamespace { subsystem, namespace, seen_as } if subsystem == of && namespace.nsid == number => {
                *seen_as
            }
            _ => None,
        })
    }

    fn altered(&self, to: &Subsystem, differences: &[Difference], controller: &ControllerStatus) -> Option<String> {
        if differences.iter().any(disables) {
            return Some("its connection ends: its subsystem is disabled".to_owned());
        }
        let differs = |key: &str| differences.iter().any(|difference| difference.key == key);
        let allowed = to.allow_any_host || to.allowed_hosts.iter().any(|host| host.as_str() == controller.host_nqn);
        if (differs("allowed_hosts") || differs("allow_any_host")) && !allowed {
            return Some("its connection ends: the host may not connect any more".to_owned());
        }
        let lacks = |wants: fn(Security) -> bool| wants(to.security) && !wants(controller.proof);
        if differs("security") && controller.peer != Peer::Direct {
            if lacks(Security::wants_tls) {
                return Some("its connection ends: its subsystem wants TLS".to_owned());
            }
            if lacks(Security::wants_authentication) {
                return Some("its connection ends: the host has to prove who it is".to_owned());
            }
        }
        // Functions have ports of their own.
        if differs("ports") && controller.subsystem_nqn == to.nqn.as_str() && self.leaves(to, &controller.port) {
            return Some(format!("its connection ends: its subsystem is not at port {} any more", controller.port));
        }
        identity(differences, &["serial", "model", "firmware"])
    }

    /// Whether a subsystem will not be at the port that has this name now, and the port stays.
    fn leaves(&self, subsystem: &Subsystem, port: &str) -> bool {
        let before = self.current.ports.iter().find(|before| before.name == port);
        let after = before.and_then(|before| self.desired.ports.iter().find(|after| after.is_same(before)));
        after.is_some_and(|after| !subsystem.ports.contains(&after.name))
    }
}

/// Whether a controller is one of this subsystem, or of a function of its drive.
fn is_of(controller: &ControllerStatus, nqn: &str) -> bool {
    let rest = controller.subsystem_nqn.strip_prefix(nqn);
    rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix(":vf").is_some_and(|it| it.parse::<u16>().is_ok()))
}

fn identity(differences: &[Difference], keys: &[&str]) -> Option<String> {
    let changed: Vec<&str> =
        differences.iter().map(|difference| difference.key.as_str()).filter(|key| keys.contains(key)).collect();
    (!changed.is_empty()).then(|| format!("it knows another {}, until it connects again", changed.join(" and ")))
}

#[cfg(test)]
mod tests;
