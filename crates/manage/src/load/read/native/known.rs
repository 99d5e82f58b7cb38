//! What the parts of a configuration have read for those that refer to them: ports, hosts, drives,
//! and values that must be unique. Reports references that lead nowhere.

use std::collections::{HashMap, HashSet};

use ebof_nvme::Nqn;

use super::places;
use crate::config::{Config, ManagedDrive, Subsystem};
use crate::diagnostic::nearest::nearest;
use crate::diagnostic::{Collector, MAX_ITEMS, Span};
use crate::drive::Drive;
use crate::load::read::tree::Node;
use crate::load::read::values::{self, Unique, as_string};

/// What subsystems may refer to.
#[derive(Default)]
pub(crate) struct Known {
    /// Port names, and whether the port serves discovery only. Ports with mistakes are included: a
    /// second error about the reference would not help.
    pub(crate) ports: Vec<(String, bool)>,
    /// Names of direct ports, and the subsystem that is there.
    pub(crate) direct: HashMap<String, Option<String>>,
    /// Host NQNs, including those of entries with mistakes.
    pub(crate) hosts: HashSet<String>,
    /// Drives, including those with mistakes.
    pub(super) drives: Vec<KnownDrive>,
    pub(crate) unique: Unique,
    /// Paths that are used by read-only namespaces only.
    pub(crate) shared: HashSet<String>,
}

/// A drive that subsystems may refer to, with mistakes or without.
#[derive(Default)]
pub(crate) struct KnownDrive {
    pub(super) name: String,
    pub(super) span: Span,
    pub(super) serial: Option<String>,
    pub(super) model: Option<String>,
    /// The lowest controller id of a host.
    pub(super) least_cntlid: u16,
    /// How many functions it has, which can be given to ports.
    pub(super) functions: u16,
    /// Hosts that it refers to, and in which key.
    pub(super) mentions: Vec<(Nqn, &'static str, Span)>,
    /// Where a subsystem refers to it.
    user: Option<Span>,
}

impl Known {
    /// The NQN of a host that the configuration defines.
    pub(crate) fn host(&self, node: &Node, out: &mut Collector<'_>) -> Option<Nqn> {
        let text = as_string("allowed_hosts", node, out)?;
        if self.hosts.contains(text) {
            // Its mistakes are reported where it is defined.
            return Nqn::parse(text).ok();
        }
        let nqn = values::check_nqn(text, &node.span, out)?;
        // Comparing takes time: with thousands of hosts no similar name is suggested.
        let mut hosts: Vec<&str> = self.hosts.iter().map(String::as_str).take(MAX_ITEMS).collect();
        hosts.sort_unstable();
        let help = match nearest(text, &hosts) {
            Some(near) => format!("did you mean \"{near}\"? Otherwise describe it in `hosts`"),
            None => format!("describe it in `hosts`: {}", out.assignment("nqn", &format!("\"{nqn}\""))),
        };
        out.error(node.span.clone(), "the host is not described", help);
        None
    }

    /// The name of a port that the configuration defines and that may have subsystems.
    pub(crate) fn port(&self, node: &Node, out: &mut Collector<'_>) -> Option<String> {
        let text = as_string("ports", node, out)?;
        match self.ports.iter().find(|(name, _)| name == text) {
            Some((name, false)) => return Some(name.clone()),
            Some((_, true)) => {
                let help = "leave it out here, or remove discovery_only there";
                out.error(node.span.clone(), format!("the port `{text}` serves discovery only"), help);
            }
            None => {
                let names: Vec<&str> = self.ports.iter().map(|(name, _)| name.as_str()).collect();
                let help = match nearest(text, &names) {
                    Some(near) => format!("did you mean \"{near}\"?"),
                    None if names.is_empty() => "no port is described".into(),
                    None => format!("accepted here: \"{}\"", names.join("\", \"")),
                };
                out.error(node.span.clone(), format!("there is no port `{text}`"), help);
            }
        }
        None
    }

    /// The drive that a subsystem refers to; no other subsystem can use it from then on.
    pub(crate) fn drive(&mut self, node: &Node, out: &mut Collector<'_>) -> Option<&KnownDrive> {
        let text = as_string("drive", node, out)?;
        let Some(at) = self.drives.iter().position(|drive| drive.name == text) else {
            let names: Vec<&str> = self.drives.iter().map(|drive| drive.name.as_str()).collect();
            let help = match nearest(text, &names) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None if names.is_empty() => format!("describe it: {}", out.table_list("drives")),
                None => format!("accepted here: \"{}\"", names.join("\", \"")),
            };
            out.error(node.span.clone(), format!("there is no drive `{text}`"), help);
            return None;
        };
        if let Some(first) = &self.drives[at].user {
            let help = format!("a drive belongs to one subsystem; line {} names it first", out.line_of(first));
            out.error(node.span.clone(), format!("the drive {text} has a subsystem already"), help);
            return None;
        }
        self.drives[at].user = Some(node.span.clone());
        Some(&self.drives[at])
    }

    /// Two namespaces that write one file destroy each other's data.
    pub(crate) fn claim_drive(&mut self, drive: &Drive, span: &Span, out: &mut Collector<'_>) {
        let Drive::File(file) = drive else { return };
        let first = self.unique.taken("the drive", &file.path, span, out);
        let sharing = file.read_only && self.shared.contains(&file.path);
        let conflict = first.filter(|_| !sharing);
        if let Some(line) = conflict {
            let help = format!("line {line} has it first; only read_only drives can be shared");
            out.error(span.clone(), format!("the drive {} is used twice", file.path), help);
        } else if file.read_only {
            self.shared.insert(file.path.clone());
        }
    }

    /// Checks of drives for which their subsystems have to be known.
    pub(super) fn remark_on_drives(&self, config: &Config, out: &mut Collector<'_>) {
        for drive in &self.drives {
            if drive.user.is_none() {
                let help = format!("add {} to a subsystem", out.assignment("drive", &format!("\"{}\"", drive.name)));
                let message = format!("no subsystem has the drive {}: no host can reach it", drive.name);
                out.warning(drive.span.clone(), message, help);
            }
            let mut users = config.subsystems.iter().filter(|subsystem| subsystem.drive.as_ref() == Some(&drive.name));
            let Some(subsystem) = users.next() else { continue };
            drive.check_names(subsystem, config, out);
            if !subsystem.allow_any_host {
                drive.remark_on_hosts(subsystem, self, out);
            }
        }
    }

    /// A direct port has a controller by a subsystem of the configuration, or by a function that is
    /// given to it while the target runs.
    pub(super) fn remark_on_direct_ports(&self, root: &Node, config: &Config, out: &mut Collector<'_>) {
        if self.drives.iter().any(|drive| drive.functions > 0) {
            return;
        }
        for port in config.ports.iter().filter(|port| self.direct.get(&port.name) == Some(&None)) {
            let message = format!("no subsystem has the direct port {}: no controller can be enabled there", port.name);
            let help = format!("add {} to a subsystem", out.assignment("ports", &format!("[\"{}\"]", port.name)));
            out.warning(places::of_port(root, port, &["listen"]), message, help);
        }
    }
}

impl KnownDrive {
    /// Functions have subsystems of their own, whose names follow from the drive's.
    fn check_names(&self, subsystem: &Subsystem, config: &Config, out: &mut Collector<'_>) {
        if self.functions > 0 && ManagedDrive::function_nqn(&subsystem.nqn, self.functions).is_none() {
            let message = format!("the NQN of the subsystem of {} is too long for functions", self.name);
            out.error(self.span.clone(), message, "`:vf` and a number are appended: use a shorter one");
            return;
        }
        let names = (1..=self.functions).filter_map(|id| ManagedDrive::function_nqn(&subsystem.nqn, id));
        for name in names.filter(|name| config.subsystems.iter().any(|other| other.nqn == *name)) {
            let message = format!("a subsystem has the NQN of a function of {}: {name}", self.name);
            out.error(self.span.clone(), message, "give the subsystem another NQN");
        }
    }

    fn remark_on_hosts(&self, subsystem: &Subsystem, known: &Known, out: &mut Collector<'_>) {
        let strangers = self.mentions.iter().filter(|(nqn, ..)| !subsystem.allowed_hosts.contains(nqn));
        for (nqn, role, span) in strangers.take(crate::diagnostic::MAX_ITEMS) {
            let allowed: Vec<&str> = subsystem.allowed_hosts.iter().map(Nqn::as_str).take(100).collect();
            // An allowed host has to be defined, too.
            let described = if known.hosts.contains(nqn.as_str()) { "" } else { "`hosts` and to " };
            let add = format!("add it to {described}allowed_hosts of {}", subsystem.nqn);
            let help = match nearest(nqn.as_str(), &allowed) {
                Some(near) => format!("did you mean \"{near}\"? Otherwise {add}"),
                None => add,
            };
            out.warning(span.clone(), format!("the {role} may not connect to the drive's subsystem"), help);
        }
    }
}
