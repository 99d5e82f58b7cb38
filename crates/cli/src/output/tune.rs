//! Views of a machine's settings: as they are, as they were set, as they were taken back.

use std::fmt::Write as _;

use ebof_tune::{Goal, Report, Setting, SettingStep, State, StepOutcome, Tunable, Whose};

use super::View;
use super::json::{Json, Object};
use super::text::table;

/// What `tune` prints. `recorded` is the number of changes that can be undone.
#[derive(Debug)]
pub(crate) enum TuneView {
    /// What was found.
    Report {
        goal: Goal,
        report: Report,
        /// `None` where it cannot be seen.
        recorded: Option<usize>,
    },
    /// What was found, and what became of what differed.
    Applied { goal: Goal, report: Report, steps: Vec<SettingStep>, recorded: usize },
    /// What became of what was changed before.
    Undone {
        steps: Vec<SettingStep>,
        recorded: usize,
        /// Changes of an earlier boot.
        outdated: usize,
    },
}

impl View for TuneView {
    fn text(&self, verbose: bool) -> String {
        match self {
            Self::Report { report, recorded, .. } => report_text(report, *recorded, verbose),
            Self::Applied { report, steps, .. } => applied_text(report, steps, verbose),
            Self::Undone { steps, outdated, .. } => undone_text(steps, *outdated, verbose),
        }
    }

    fn json(&self, _verbose: bool) -> Object {
        let (action, goal, report, steps, recorded, outdated) = match self {
            Self::Report { goal, report, recorded } => ("report", Some(goal), Some(report), None, *recorded, 0),
            Self::Applied { goal, report, steps, recorded } => {
                ("apply", Some(goal), Some(report), Some(steps), Some(*recorded), 0)
            }
            Self::Undone { steps, recorded, outdated } => ("undo", None, None, Some(steps), Some(*recorded), *outdated),
        };
        let settings = report.map(|report| report.settings.as_slice()).unwrap_or_default();
        let steps = steps.map(Vec::as_slice).unwrap_or_default();
        Object::document("tune", 1)
            .with("action", action)
            .with("goal", goal.map(goal_name))
            .with("settings", settings.iter().map(setting_json).collect::<Vec<_>>())
            .with("steps", steps.iter().map(step_json).collect::<Vec<_>>())
            .with("recorded", recorded.map(|recorded| recorded as u64))
            .with("outdated", outdated as u64)
    }
}

fn goal_name(goal: &Goal) -> &'static str {
    match goal {
        Goal::Throughput => "throughput",
        Goal::Latency => "latency",
    }
}

fn setting_json(setting: &Setting) -> Object {
    let text = |text: &str| Json::from(text);
    let (mut current, mut recommended, mut reason, mut command) = (Json::Null, Json::Null, Json::Null, Json::Null);
    match &setting.state {
        State::Right { current: value } => (current, recommended) = (text(value), text(value)),
        State::Differs { current: value, recommended: better, knob } => {
            (current, recommended, command) = (text(value), text(better), knob.command(better).into());
        }
        State::ByHand { current: value, recommended: better, reason: why, command: line } => {
            (current, recommended, reason, command) = (text(value), text(better), text(why), text(line));
        }
        State::Unseen { reason: why } | State::NotApplicable { reason: why } => reason = text(why),
    }
    Object::new()
        .with("setting", setting.tunable.name())
        .with("of", setting.whose.to_string())
        .with("outcome", setting.state.name())
        .with("current", current)
        .with("recommended", recommended)
        .with("reason", reason)
        .with("command", command)
        .with("why", setting.tunable.why())
        .with("source", setting.tunable.source())
}

fn step_json(step: &SettingStep) -> Object {
    let (found, reason) = match &step.outcome {
        StepOutcome::Adjusted { found } | StepOutcome::Kept { found } => (Some(found.clone()), None),
        StepOutcome::Failed { reason } | StepOutcome::Unavailable { reason } => (None, Some(reason.clone())),
        StepOutcome::Done | StepOutcome::Already | StepOutcome::Gone => (None, None),
    };
    Object::new()
        .with("setting", step.knob.tunable().name())
        .with("of", step.knob.whose().to_string())
        .with("from", step.from.clone())
        .with("to", step.to.as_str())
        .with("outcome", step.outcome.name())
        .with("found", found)
        .with("reason", reason)
}

/// A line of a table: one setting, or many of one kind.
struct Line {
    tunable: Tunable,
    outcome: &'static str,
    whose: Vec<Whose>,
    current: Vec<String>,
    recommended: Vec<String>,
}

impl Line {
    fn cells(&self) -> Vec<String> {
        let outcome = self.outcome.to_owned();
        vec![
            outcome,
            self.tunable.name().to_owned(),
            joined(&self.whose),
            some_of(&self.current),
            some_of(&self.recommended),
        ]
    }
}

/// Values that are all the same, or the first of them.
fn some_of(values: &[String]) -> String {
    let Some(first) = values.first() else { return String::new() };
    if values.iter().all(|value| value == first) { first.clone() } else { format!("{first}, ...") }
}

/// Names that differ by a number: `cpu0-3,8`.
fn joined(whose: &[Whose]) -> String {
    let Some(first) = whose.first() else { return String::new() };
    let numbers: Option<ebof_tune::Cores> = whose.iter().map(|whose| whose.number).collect();
    match numbers {
        // More than a machine has cores, and so has each a line of its own.
        Some(numbers) if numbers.len() == whose.len() => format!("{}{}", first.name, numbers.to_list()),
        _ => first.to_string(),
    }
}

/// The settings with values, those of one kind and outcome in one line unless it is `verbose`.
fn lines(report: &Report, verbose: bool) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for setting in &report.settings {
        let (current, recommended) = match &setting.state {
            State::Right { current } => (current, ""),
            State::Differs { current, recommended, .. } | State::ByHand { current, recommended, .. } => {
                (current, recommended.as_str())
            }
            State::Unseen { .. } | State::NotApplicable { .. } => continue,
        };
        let outcome = setting.state.name();
        let is_like = |line: &&mut Line| {
            let name = line.whose.last().map(|whose| (&whose.name, whose.number.is_some()));
            let is_same = line.tunable == setting.tunable && line.outcome == outcome;
            !verbose && is_same && name == Some((&setting.whose.name, true)) && setting.whose.number.is_some()
        };
        match lines.last_mut().filter(is_like) {
            Some(line) => {
                line.whose.push(setting.whose.clone());
                line.current.push(current.clone());
                line.recommended.push(recommended.to_owned());
            }
            None => lines.push(Line {
                tunable: setting.tunable,
                outcome,
                whose: vec![setting.whose.clone()],
                current: vec![current.clone()],
                recommended: vec![recommended.to_owned()],
            }),
        }
    }
    lines
}

fn report_text(report: &Report, recorded: Option<usize>, verbose: bool) -> String {
    let rows: Vec<Vec<String>> = lines(report, verbose).iter().map(Line::cells).collect();
    let mut text = table(&[("OUTCOME", 7), ("SETTING", 7), ("OF", 2), ("NOW", 3), ("RECOMMENDED", 11)], &rows);
    let mut explained: Vec<Tunable> = Vec::new();
    for setting in &report.settings {
        if !explained.contains(&setting.tunable) {
            explained.push(setting.tunable);
            text += &explanation(report, setting.tunable, verbose);
        }
    }
    text += &reasons(report);
    let differing = report.differing().count();
    let _infallible = match differing {
        0 => writeln!(text, "\nNothing is left to be set by `ebof tune --apply`."),
        1 => writeln!(text, "\n1 setting differs: `ebof tune --apply` sets it, `--undo` takes it back."),
        count => writeln!(text, "\n{count} settings differ: `ebof tune --apply` sets them, `--undo` takes that back."),
    };
    match recorded {
        None | Some(0) => {}
        Some(count) => {
            let _infallible = writeln!(text, "{} by `ebof tune --undo`.", counted(count, "can be undone"));
        }
    }
    text
}

/// Why a kind of setting should have other values, and the commands that set them.
fn explanation(report: &Report, tunable: Tunable, verbose: bool) -> String {
    let settings = report.settings.iter().filter(|setting| setting.tunable == tunable);
    let (mut commands, mut reasons) = (Vec::new(), Vec::new());
    for setting in settings {
        match &setting.state {
            State::Differs { recommended, knob, .. } => commands.push(knob.command(recommended)),
            State::ByHand { reason, command, .. } => {
                commands.push(command.clone());
                if !reasons.contains(&reason) {
                    reasons.push(reason);
                }
            }
            _ => {}
        }
    }
    if commands.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{}: {}\n  after: {}\n", tunable.name(), tunable.why(), tunable.source());
    for reason in reasons {
        let _infallible = writeln!(text, "  by hand: {reason}");
    }
    let shown = if verbose || commands.len() == 2 { commands.len() } else { 1 };
    for command in commands.iter().take(shown) {
        let _infallible = writeln!(text, "  # {command}");
    }
    if commands.len() > shown {
        let _infallible = writeln!(text, "  ... and {} like it, which -v shows", commands.len() - shown);
    }
    text
}

/// What cannot be seen, and what there is not.
fn reasons(report: &Report) -> String {
    let mut text = String::new();
    for (name, title) in [("unseen", "Cannot be seen"), ("not-applicable", "Not applicable here")] {
        let settings = report.settings.iter().filter(|setting| setting.state.name() == name);
        for (index, setting) in settings.enumerate() {
            let (State::Unseen { reason } | State::NotApplicable { reason }) = &setting.state else { continue };
            if index == 0 {
                let _infallible = writeln!(text, "\n{title}:");
            }
            let _infallible = writeln!(text, "  {} of {}: {reason}", setting.tunable.name(), setting.whose);
        }
    }
    text
}

fn applied_text(report: &Report, steps: &[SettingStep], verbose: bool) -> String {
    let mut text = steps_text(steps, verbose);
    let by_hand = report.settings.iter().filter(|setting| setting.state.name() == "by-hand").count();
    let failed = failed(steps);
    let unavailable = steps.iter().filter(|step| matches!(step.outcome, StepOutcome::Unavailable { .. })).count();
    let _infallible = match steps.len() - failed - unavailable {
        0 if failed == 0 => writeln!(text, "Nothing differs that can be set here."),
        count => writeln!(text, "{}; `ebof tune --undo` takes that back.", counted(count, "set")),
    };
    if by_hand > 0 {
        let _infallible = writeln!(text, "{} by hand: `ebof tune` shows them.", counted(by_hand, "can only be set"));
    }
    text + &failed_text(failed)
}

fn undone_text(steps: &[SettingStep], outdated: usize, verbose: bool) -> String {
    let mut text = steps_text(steps, verbose);
    if outdated > 0 {
        let _infallible = writeln!(text, "{} before this boot, which has undone it.", counted(outdated, "changed"));
    }
    let restored = steps.iter().filter(|step| matches!(step.outcome, StepOutcome::Done | StepOutcome::Adjusted { .. }));
    let _infallible = match (steps.len(), outdated) {
        (0, 0) => writeln!(text, "There is nothing to undo."),
        (0, _) => Ok(()),
        _ => writeln!(text, "{}.", counted(restored.count(), "restored")),
    };
    text + &failed_text(failed(steps))
}

fn failed(steps: &[SettingStep]) -> usize {
    steps.iter().filter(|step| matches!(step.outcome, StepOutcome::Failed { .. })).count()
}

fn failed_text(failed: usize) -> String {
    if failed == 0 { String::new() } else { format!("{}.\n", counted(failed, "refused")) }
}

/// `1 setting was refused`.
fn counted(count: usize, done: &str) -> String {
    let (settings, verb) = if count == 1 { ("setting", "was") } else { ("settings", "were") };
    if done.starts_with("can ") {
        format!("{count} {settings} {done}")
    } else {
        format!("{count} {settings} {verb} {done}")
    }
}

/// A line for each step, those with the same result in one unless it is `verbose`.
fn steps_text(steps: &[SettingStep], verbose: bool) -> String {
    let mut merged: Vec<(Tunable, String, Vec<Whose>)> = Vec::new();
    for step in steps {
        let (tunable, whose, what) = (step.knob.tunable(), step.knob.whose(), what_became(step));
        let is_like = |last: &&mut (Tunable, String, Vec<Whose>)| {
            let name = last.2.last().filter(|last| last.number.is_some()).map(|last| &last.name);
            !verbose && last.0 == tunable && last.1 == what && name == Some(&whose.name) && whose.number.is_some()
        };
        match merged.last_mut().filter(is_like) {
            Some(last) => last.2.push(whose),
            None => merged.push((tunable, what, vec![whose])),
        }
    }
    let mut text = String::new();
    for (tunable, what, whose) in merged {
        let _infallible = writeln!(text, "{} of {}: {what}", tunable.name(), joined(&whose));
    }
    text
}

fn what_became(step: &SettingStep) -> String {
    let from = step.from.as_deref().unwrap_or("?");
    let to = &step.to;
    match &step.outcome {
        StepOutcome::Done => format!("{from} -> {to}"),
        StepOutcome::Adjusted { found } => format!("{from} -> {to}, of which the kernel has made {found}"),
        StepOutcome::Already => format!("{to} already"),
        StepOutcome::Kept { found } => format!("somebody has set {found} meanwhile, which stays; it was {to} before"),
        StepOutcome::Gone => format!("it does not exist any more; it was {to}"),
        StepOutcome::Unavailable { reason } => format!("stays {from}: {reason}"),
        StepOutcome::Failed { reason } => format!("NOT {from} -> {to}: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use ebof_tune::{Knob, Name, Sysctl};

    use super::*;

    fn governor(core: u32, current: &str) -> Setting {
        let knob = Knob::Governor { core };
        let (current, recommended) = (current.to_owned(), "performance".to_owned());
        let state = if current == recommended {
            State::Right { current }
        } else {
            State::Differs { current, recommended, knob: knob.clone() }
        };
        Setting { tunable: knob.tunable(), whose: knob.whose(), state }
    }

    fn report() -> Report {
        let interrupt = |irq, core: u32| {
            let knob = Knob::Interrupt { irq, name: format!("eth0-TxRx-{core}") };
            let (current, recommended) = ("0-7".to_owned(), core.to_string());
            let state = State::Differs { current, recommended, knob: knob.clone() };
            Setting { tunable: knob.tunable(), whose: knob.whose(), state }
        };
        let of = |tunable, whose: &str, state| Setting { tunable, whose: Whose::named(whose), state };
        let text = str::to_owned;
        let mtu = State::ByHand {
            current: text("1500"),
            recommended: text("9000"),
            reason: text("every switch has to carry it"),
            command: text("ip link set dev eth0 mtu 9000"),
        };
        let mut settings = vec![interrupt(41, 0), interrupt(42, 1), governor(0, "performance")];
        settings.extend((1..4).map(|core| governor(core, "powersave")));
        settings.push(of(Tunable::Mtu, "eth0", mtu));
        settings.push(of(Tunable::Pfc, "eth0", State::Unseen { reason: text("`dcb pfc show dev eth0` shows it") }));
        settings.push(of(Tunable::Xps, "eth0", State::NotApplicable { reason: text("it has one queue") }));
        Report { settings }
    }

    fn steps() -> Vec<SettingStep> {
        let step = |knob, from: &str, to: &str, outcome| SettingStep {
            knob,
            from: Some(from.to_owned()),
            to: to.to_owned(),
            outcome,
        };
        let governor = |core, outcome| step(Knob::Governor { core }, "powersave", "performance", outcome);
        let refused = StepOutcome::Failed { reason: "Permission denied (os error 13): root may".to_owned() };
        let eth0 = Name::try_from("eth0").unwrap();
        vec![
            governor(1, StepOutcome::Done),
            governor(2, StepOutcome::Done),
            governor(3, refused),
            step(
                Knob::Sysctl { variable: Sysctl::SendMax },
                "1",
                "16777216",
                StepOutcome::Kept { found: "5".to_owned() },
            ),
            step(Knob::Rps { interface: eth0, queue: 0 }, "0", "ff", StepOutcome::Adjusted { found: "fe".to_owned() }),
        ]
    }

    #[test]
    fn a_report_is_a_table_with_reasons() {
        let view = TuneView::Report { goal: Goal::Throughput, report: report(), recorded: Some(3) };
        insta::assert_snapshot!(view.text(false));
        insta::assert_snapshot!("tune-verbose", view.text(true));
        insta::assert_snapshot!("tune-json", view.json(false).to_text().unwrap());
    }

    #[test]
    fn steps_are_lines_with_their_results() {
        let applied = TuneView::Applied { goal: Goal::Latency, report: report(), steps: steps(), recorded: 4 };
        insta::assert_snapshot!("tune-apply", applied.text(false));
        let undone = TuneView::Undone { steps: steps(), recorded: 1, outdated: 0 };
        insta::assert_snapshot!("tune-undo", undone.text(true));
        insta::assert_snapshot!("tune-undo-json", undone.json(false).to_text().unwrap());
    }

    #[test]
    fn nothing_to_do_is_said() {
        let text = |steps, outdated| TuneView::Undone { steps, recorded: 0, outdated }.text(false);
        assert_eq!(text(Vec::new(), 0), "There is nothing to undo.\n");
        assert_eq!(text(Vec::new(), 2), "2 settings were changed before this boot, which has undone it.\n");
        let applied =
            TuneView::Applied { goal: Goal::Latency, report: Report::default(), steps: Vec::new(), recorded: 0 };
        assert_eq!(applied.text(false), "Nothing differs that can be set here.\n");
    }
}
