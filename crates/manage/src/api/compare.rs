//! Whether two targets that serve one subsystem agree: hosts take both for one subsystem with
//! several paths, so that what each says of it has to be the same, and what has to differ must.
//!
//! Owns the findings and their texts. Reading configurations and asking targets is the caller's, as
//! is looking at files: no key is looked at, only where it is and what it is like.

use ebof_nvme::Nqn;
use serde::Serialize;

use super::{Keys, Status, SubsystemStatus};
use crate::config::{Config, Port, Subsystem};
use crate::diagnostic::nearest::names;

mod hosts;
mod namespaces;
mod paths;

/// One of the two targets.
#[derive(Clone, Copy, Debug)]
pub struct ComparedTarget<'a> {
    /// Its configuration.
    pub config: &'a Config,
    /// What it reports, if it runs.
    pub status: Option<&'a Status>,
    /// The keys of hosts that it has, if it tells.
    pub keys: Option<&'a Keys>,
}

/// Whether two paths are of the same file or device; `None` where that cannot be told.
pub type SameFile<'a> = &'a dyn Fn(&str, &str) -> Option<bool>;

names! {
    /// How bad a finding is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Grade {
        /// Hosts would lose access or data, or refuse a path.
        Contradiction = "contradiction";
        /// It may be one: whoever knows the machines has to look.
        Unknown = "unknown";
        /// It works, and may not be meant.
        Note = "note";
    }
}

/// A difference that matters, or something that is equal and should not be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is about, for programs.
    pub kind: &'static str,
    /// How bad it is.
    pub grade: Grade,
    /// The NQN of the subsystem.
    pub subsystem: String,
    /// The part of it: `namespace 1`, `ANA group 2`, `port 1`, `host NQN`; empty for all of it.
    pub object: String,
    /// What is wrong.
    pub message: String,
    /// What the first target has.
    pub a: Option<String>,
    /// What the second one has.
    pub b: Option<String>,
    /// What to do.
    pub advice: String,
}

/// The result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TargetComparison {
    /// The NQNs of the subsystems that both serve.
    pub subsystems: Vec<String>,
    /// What was found: by subsystem, the worst first.
    pub findings: Vec<Finding>,
}

impl TargetComparison {
    /// Compares the subsystems that both targets have, or only the one that is named.
    #[must_use]
    pub fn between(
        a: &ComparedTarget<'_>,
        b: &ComparedTarget<'_>,
        only: Option<&Nqn>,
        same_file: SameFile<'_>,
    ) -> Self {
        let mut comparison = Self::default();
        for subsystem in a.config.subsystems.iter().filter(|it| only.is_none_or(|nqn| it.nqn == *nqn)) {
            let Some(other) = b.config.subsystems.iter().find(|other| other.nqn == subsystem.nqn) else { continue };
            let mut pair = Pair { a: Served::new(a, subsystem), b: Served::new(b, other), found: Vec::new() };
            pair.compare(same_file);
            pair.found.sort_by_key(|finding| finding.grade);
            comparison.subsystems.push(subsystem.nqn.to_string());
            comparison.findings.append(&mut pair.found);
        }
        comparison
    }

    /// How many findings have this grade.
    #[must_use]
    pub fn count(&self, grade: Grade) -> usize {
        self.findings.iter().filter(|finding| finding.grade == grade).count()
    }
}

/// A subsystem as one target has it.
struct Served<'a> {
    side: ComparedTarget<'a>,
    subsystem: &'a Subsystem,
    status: Option<&'a SubsystemStatus>,
}

impl<'a> Served<'a> {
    fn new(side: &ComparedTarget<'a>, subsystem: &'a Subsystem) -> Self {
        let nqn = subsystem.nqn.as_str();
        let status = side.status.and_then(|status| status.subsystems.iter().find(|it| it.nqn == nqn));
        Self { side: *side, subsystem, status }
    }

    /// The ports through which hosts of a network reach it.
    fn ports(&self) -> impl Iterator<Item = &'a Port> {
        let reached = &self.subsystem.ports;
        let is_reached =
            |port: &&Port| !port.discovery_only && port.listen.is_network() && reached.contains(&port.name);
        self.side.config.enabled_ports().filter(is_reached)
    }
}

/// One subsystem at both targets, and what was found so far.
struct Pair<'a> {
    a: Served<'a>,
    b: Served<'a>,
    found: Vec<Finding>,
}

/// A finding without its place: kind, message, advice.
type Words<'w> = (&'static str, &'w str, &'w str);

impl Pair<'_> {
    fn compare(&mut self, same_file: SameFile<'_>) {
        self.compare_names();
        paths::compare(self);
        namespaces::compare(self, same_file);
        hosts::compare(self);
    }

    /// Adds a finding with both values.
    fn add(&mut self, grade: Grade, object: &str, (kind, message, advice): Words<'_>, values: [Option<String>; 2]) {
        let [a, b] = values;
        let subsystem = self.a.subsystem.nqn.to_string();
        let [object, message, advice] = [object, message, advice].map(str::to_owned);
        self.found.push(Finding { kind, grade, subsystem, object, message, a, b, advice });
    }

    /// Adds a finding if both values differ.
    fn differ<T: PartialEq + ToString>(&mut self, grade: Grade, object: &str, words: Words<'_>, values: &[T; 2]) {
        let [a, b] = values;
        if a != b {
            let values = [Some(a.to_string()), Some(b.to_string())];
            self.add(grade, object, words, values);
        }
    }

    /// What Identify Controller says of the subsystem, and whether it is there.
    fn compare_names(&mut self) {
        let [a, b] = [self.a.subsystem, self.b.subsystem];
        let same = "hosts take paths with another one for another subsystem: set `serial` and `model` to the same here and there";
        self.differ(Grade::Contradiction, "", ("serial", "the serial numbers differ", same), &[&a.serial, &b.serial]);
        self.differ(Grade::Contradiction, "", ("model", "the model numbers differ", same), &[&a.model, &b.model]);
        let firmware = ("firmware", "the firmware revisions differ", "set `firmware`, or run the same version of ebof");
        self.differ(Grade::Note, "", firmware, &[&a.firmware, &b.firmware]);
        let there = |it: &Subsystem| if it.enabled { "enabled" } else { "disabled" };
        let disabled = ("disabled", "only one target has it for hosts", "`ebof target enable subsystem NQN`");
        self.differ(Grade::Note, "", disabled, &[there(a), there(b)]);
        let kept = |it: &Subsystem| if it.drive.is_some() { "a drive's" } else { "its own" };
        let drive =
            "a drive that hosts manage is one target's: serve the same namespaces, from storage that both reach";
        self.differ(
            Grade::Contradiction,
            "",
            ("drive", "its namespaces are those of a drive at one target only", drive),
            &[kept(a), kept(b)],
        );
        let most = [self.a.side, self.b.side].map(|side| side.status.map(|status| status.ana_group_max));
        if let [Some(a), Some(b)] = most {
            let words = ("anagrpmax", "the highest ANA groups (ANAGRPMAX) differ", "run the same version of ebof");
            self.differ(Grade::Contradiction, "", words, &[a, b]);
        }
    }
}

#[cfg(test)]
mod tests;
