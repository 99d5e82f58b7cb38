//! The views of a running target's configuration: what is in force, what another one changes, and
//! what was applied.

use std::fmt::Write as _;
use std::path::PathBuf;

use ebof_manage::Diagnostics;
use ebof_manage::api::{Applied, Configuration, Disturbed, Planned, PlannedChange, Source};
use serde_json::Value;

use super::View;
use super::json::Object;
use super::text::{safe, table};

/// The configuration in force, and the file that it was written to.
pub(crate) struct ShownConfiguration {
    pub(crate) configuration: Configuration,
    pub(crate) file: Option<PathBuf>,
}

/// What a file would change.
pub(crate) struct ShownPlan {
    pub(crate) file: PathBuf,
    pub(crate) planned: Planned,
}

/// What was applied, and whom it disturbed as far as was known before.
pub(crate) struct ShownApplied {
    verb: &'static str,
    applied: Applied,
    planned: Option<Planned>,
}

impl ShownApplied {
    /// By a verb that had it planned before.
    pub(crate) fn applied(verb: &'static str, applied: Applied, planned: Planned) -> Self {
        Self { verb, applied, planned: Some(planned) }
    }

    /// By `target reload`.
    pub(crate) fn reloaded(applied: Applied) -> Self {
        Self { verb: "target-reload", applied, planned: None }
    }
}

impl View for ShownConfiguration {
    fn text(&self, _verbose: bool) -> String {
        match &self.file {
            Some(file) => {
                let revision = &self.configuration.revision;
                format!("{}: revision {revision}\n", safe(&file.display().to_string()))
            }
            None => self.configuration.toml.clone(),
        }
    }

    fn json(&self, _verbose: bool) -> Object {
        let file = self.file.as_ref().map(|file| file.display().to_string());
        let configuration = serde_json::to_value(&self.configuration).unwrap_or_default();
        Object::document("config-export", 1).with("file", file).with("configuration", configuration)
    }
}

impl View for ShownPlan {
    fn text(&self, _verbose: bool) -> String {
        let Planned { plan, remarks, .. } = &self.planned;
        let mut text = remarks_text(remarks);
        if plan.is_empty() {
            text += "nothing changes\n";
        }
        plan.iter().for_each(|change| text += &format!("{}\n", change_line(change)));
        text + &disturbed_text(&self.planned)
    }

    fn json(&self, _verbose: bool) -> Object {
        let file = self.file.display().to_string();
        let planned = serde_json::to_value(&self.planned).unwrap_or_default();
        Object::document("config-diff", 1).with("file", file).with("planned", planned)
    }
}

impl View for ShownApplied {
    fn text(&self, _verbose: bool) -> String {
        let Applied { revision, plan, source, generation, remarks, .. } = &self.applied;
        let mut text = remarks_text(remarks);
        plan.iter().for_each(|change| text += &format!("{}\n", change_line(change)));
        let outcome = match plan.len() {
            0 => "nothing has changed".to_owned(),
            1 => "1 change was made".to_owned(),
            many => format!("{many} changes were made"),
        };
        text += &self.planned.as_ref().map(disturbed_text).unwrap_or_default();
        let stored = generation.map(|generation| format!(" and stored as generation {generation}")).unwrap_or_default();
        let _infallible = writeln!(text, "{outcome}: revision {revision} is in force{stored}");
        text + &source_text(source, self.planned.is_some())
    }

    fn json(&self, _verbose: bool) -> Object {
        Object::document(self.verb, 1).with("applied", serde_json::to_value(&self.applied).unwrap_or_default())
    }
}

/// Until when what was applied is in force.
fn source_text(source: &Source, is_applied: bool) -> String {
    match source {
        Source::Arguments if is_applied => {
            "note: the target was started with arguments, and its next start goes by them\n".to_owned()
        }
        Source::Arguments => {
            "note: the target was started with arguments: there is no file to read again, and only sizes were looked at\n"
                .to_owned()
        }
        Source::State { .. } if is_applied => String::new(),
        Source::State { path } => {
            format!("note: the target goes by its state directory {}: only sizes were looked at\n", safe(path))
        }
        Source::File { path, differs: Some(true), .. } if is_applied => {
            let path = safe(path);
            format!("note: {path} says something else, and the next start or reload goes by it: write it there, too, to keep it\n")
        }
        Source::File { path, problem: Some(problem), .. } => {
            format!("note: {} cannot be used for the next start: {}\n", safe(path), safe(problem))
        }
        Source::File { .. } => String::new(),
    }
}

fn remarks_text(remarks: &Diagnostics) -> String {
    if remarks.is_empty() { String::new() } else { format!("{remarks:#}\n\n") }
}

fn disturbed_text(planned: &Planned) -> String {
    if planned.disturbed.is_empty() {
        return String::new();
    }
    let row = |it: &Disturbed| {
        vec![safe(&it.host_nqn), safe(&it.subsystem_nqn), it.cntlid.to_string(), safe(&it.port), safe(&it.why)]
    };
    let columns = [("HOST", 4), ("SUBSYSTEM", 9), ("CNTLID", 6), ("PORT", 4), ("NOTICES", 7)];
    let rows: Vec<_> = planned.disturbed.iter().map(row).collect();
    let more = match planned.disturbed_left_out {
        0 => String::new(),
        more => format!("and {more} more\n"),
    };
    format!("\n{}{more}\n", table(&columns, &rows))
}

/// `+ add namespace 2 to nqn: mem:1Gi`
pub(crate) fn change_line(change: &PlannedChange) -> String {
    let kind = change.change.get("change").and_then(Value::as_str).unwrap_or_default();
    let mark = match kind {
        kind if kind.starts_with("add-") => '+',
        kind if kind.starts_with("remove-") => '-',
        _ => '~',
    };
    let effect = match (change.effect.words(), &change.obstacle) {
        (None, _) => String::new(),
        (Some(effect), None) => format!(" ({effect})"),
        (Some(effect), Some(obstacle)) => format!(" ({effect}: {})", safe(obstacle)),
    };
    format!("{mark} {}{effect}", safe(&change.text))
}

/// `host nqn.a, controller 1 of nqn.b at port c: namespace 2 goes`
pub(crate) fn host_line(disturbed: &Disturbed) -> String {
    let Disturbed { host_nqn, subsystem_nqn, cntlid, port, why, .. } = disturbed;
    safe(&format!("host {host_nqn}, controller {cntlid} of {subsystem_nqn} at port {port}: {why}"))
}

#[cfg(test)]
mod tests {
    use ebof_manage::api::{CONFIGURATION_SCHEMA, Revision};
    use ebof_manage::plan::Effect;
    use serde_json::json;

    use super::*;

    fn change(kind: &str, text: &str, effect: Effect) -> PlannedChange {
        let obstacle =
            (effect == Effect::Impossible).then(|| "a drive keeps the size that it was made with".to_owned());
        PlannedChange { text: text.to_owned(), effect, obstacle, change: json!({ "change": kind }) }
    }

    fn planned() -> Planned {
        Planned {
            schema: CONFIGURATION_SCHEMA,
            revision: Revision::named("75eaf908-28c2-5782-aea3-62abecea0529"),
            plan: vec![
                change("alter-target", "alter target: threads one for each processor (default) -> 2", Effect::Restart),
                change("remove-namespace", "remove namespace 2 of nqn.a:disks", Effect::Disruptive),
                change("add-port", "add port b at tcp://10.0.0.2:4420", Effect::Live),
                change("alter-drive", "alter drive d0: size 1G -> 2G", Effect::Impossible),
            ],
            disturbed: vec![Disturbed {
                change: 1,
                host_nqn: "nqn.a:host".to_owned(),
                subsystem_nqn: "nqn.a:disks".to_owned(),
                cntlid: 1,
                port: "a".to_owned(),
                why: "namespace 2 goes".to_owned(),
            }],
            disturbed_left_out: 3,
            promise: String::new(),
            remarks: ebof_manage::load("a.toml", "[[ports]]\nlisten = \"tcp://0.0.0.0:1\"\n").unwrap().remarks,
        }
    }

    fn applied(source: Source) -> Applied {
        let Planned { schema, revision, plan, .. } = planned();
        Applied {
            schema,
            revision,
            plan: plan[1..3].to_vec(),
            source,
            generation: Some(7),
            remarks: Diagnostics::default(),
        }
    }

    #[test]
    fn plans_and_what_was_applied_are_shown() {
        let plan = ShownPlan { file: "a.toml".into(), planned: planned() };
        insta::assert_snapshot!("config-diff", plan.text(false));
        insta::assert_snapshot!("config-diff-json", plan.json(false).to_text().unwrap());
        let file = |differs, problem: Option<&str>| Source::File {
            path: "/etc/ebof.toml".to_owned(),
            differs,
            problem: problem.map(str::to_owned),
        };
        let mut text = String::new();
        for source in [
            Source::Arguments,
            Source::State { path: "/var/lib/ebof".to_owned() },
            file(Some(true), None),
            file(Some(false), None),
            file(None, Some("it is gone")),
        ] {
            text += &ShownApplied::applied("config-apply", applied(source.clone()), planned()).text(false);
            text += "-- reload\n";
            text += &ShownApplied::reloaded(Applied { plan: Vec::new(), ..applied(source) }).text(false);
            text += "----------\n";
        }
        insta::assert_snapshot!("config-apply", text);
        let json = ShownApplied::reloaded(applied(Source::Arguments)).json(false);
        insta::assert_snapshot!("target-reload", json.to_text().unwrap());
    }

    #[test]
    fn what_was_exported_is_shown_as_it_is_or_named() {
        let Applied { schema, revision, source, .. } = applied(Source::Arguments);
        let configuration =
            Configuration { schema, revision, source, generation: None, toml: "ports = []\n".to_owned() };
        let mut shown = ShownConfiguration { configuration, file: None };
        assert_eq!(shown.text(false), "ports = []\n");
        shown.file = Some("b.toml".into());
        assert_eq!(shown.text(false), "b.toml: revision 75eaf908-28c2-5782-aea3-62abecea0529\n");
        insta::assert_snapshot!("config-export", shown.json(false).to_text().unwrap());
    }
}
