//! Results of a suite: tables as text, and JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use super::load::{Comparison, Goal, Load, Metric, Scenario};
use super::measure::Sample;
use ebof_statistics::{STEAL_PERCENT_MAX, Summary};

/// The name and version of the JSON's schema: fields are added within one number, never changed or
/// removed.
pub(crate) const SCHEMA: &str = "ebof-suite/1";

/// The results of a subject.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) samples: Vec<Sample>,
    /// The error, if it was not measured, or not to the end.
    pub(crate) trouble: Option<String>,
    /// It is not installed, which is not a failure.
    pub(crate) is_missing: bool,
    /// Number of runs that stalled and were repeated.
    pub(crate) stalled: usize,
    /// Number of runs during which the hypervisor took time, and which were repeated.
    pub(crate) disturbed: usize,
}

/// A run below this part of the median has stalled. With priority over the kernel's own threads,
/// now and then a connection waits for one of these until the end of the run, with every program.
const STALLED: f64 = 0.1;

impl Outcome {
    /// `None` where the metric was never measured.
    pub(crate) fn summary(&self, metric: Metric) -> Option<Summary> {
        Summary::new(self.samples.iter().filter_map(|sample| sample.get(&metric).copied()).collect())
    }

    /// Removes stalled runs, of every subject alike, and returns their number, which is reported.
    pub(crate) fn drop_stalled(&mut self) -> usize {
        let Some(least) = self.summary(Metric::Iops).map(|summary| summary.median * STALLED) else { return 0 };
        let before = self.samples.len();
        self.samples.retain(|sample| sample.get(&Metric::Iops).is_none_or(|&iops| iops >= least));
        let dropped = before - self.samples.len();
        self.stalled += dropped;
        dropped
    }

    /// Removes runs during which the hypervisor took too much time, as long as others are left;
    /// returns their number, which is reported.
    pub(crate) fn drop_disturbed(&mut self) -> usize {
        let is_quiet =
            |sample: &Sample| sample.get(&Metric::StealPercent).is_none_or(|&percent| percent <= STEAL_PERCENT_MAX);
        let before = self.samples.len();
        if before > 1 {
            let last = self.samples.pop();
            self.samples.retain(is_quiet);
            self.samples.extend(last.filter(|last| self.samples.is_empty() || is_quiet(last)));
        }
        let dropped = before - self.samples.len();
        self.disturbed += dropped;
        dropped
    }

    /// The median; `None` if the subject failed.
    fn median(&self, metric: Metric) -> Option<f64> {
        if self.trouble.is_some() { None } else { Some(self.summary(metric)?.median).filter(|&median| median > 0.0) }
    }
}

/// A scenario with its results by subject.
pub(crate) struct Measured {
    pub(crate) scenario: Scenario,
    pub(crate) outcomes: BTreeMap<String, Outcome>,
}

/// A comparison with its result.
struct Verdict<'a> {
    comparison: &'a Comparison,
    /// The best names of each side; no second one for a single metric.
    of: &'a str,
    against: Option<&'a str>,
    value: f64,
}

impl Verdict<'_> {
    fn is_met(&self) -> Option<bool> {
        self.comparison.goal.is_met(self.value)
    }
}

impl Measured {
    /// The best of some subjects.
    fn best<'a>(&self, names: &'a [String], metric: Metric) -> Option<(&'a str, f64)> {
        let known = names.iter().filter_map(|name| Some((name.as_str(), self.outcomes.get(name)?.median(metric)?)));
        let sign = if metric.more_is_better() { 1.0 } else { -1.0 };
        known.max_by(|a, b| (a.1 * sign).total_cmp(&(b.1 * sign)))
    }

    fn verdicts(&self) -> Vec<Verdict<'_>> {
        self.scenario.comparisons.iter().filter_map(|comparison| self.verdict(comparison)).collect()
    }

    /// `None` if a side was not measured.
    fn verdict<'a>(&self, comparison: &'a Comparison) -> Option<Verdict<'a>> {
        let Comparison { metric, of, against, .. } = comparison;
        let (of, value) = self.best(of, *metric)?;
        if against.is_empty() {
            return Some(Verdict { comparison, of, against: None, value });
        }
        let (against, base) = self.best(against, *metric)?;
        Some(Verdict { comparison, of, against: Some(against), value: value / base })
    }

    /// Both tables of one scenario.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("\n{}: {}\n{}\n", self.scenario.name, self.scenario.title, self.figures());
        for subject in &self.scenario.subjects {
            let outcome = self.outcomes.get(&subject.name);
            let Some(outcome) = outcome else { continue };
            if let Some(trouble) = &outcome.trouble {
                let _infallible = writeln!(text, "  {}: {trouble}", subject.name);
            }
            if outcome.stalled > 0 {
                let _infallible =
                    writeln!(text, "  {}: {} runs stood still and were run again", subject.name, outcome.stalled);
            }
        }
        for (name, outcome) in self.outcomes.iter().filter(|(_, outcome)| outcome.disturbed > 0) {
            let count = outcome.disturbed;
            let what = "runs in which the hypervisor took more than 2 % of the time were run again";
            let _infallible = writeln!(text, "  {name}: {count} {what}");
        }
        for verdict in self.verdicts() {
            let _infallible = writeln!(text, "  {}", sentence(&verdict));
        }
        text
    }

    fn figures(&self) -> Table {
        let mut table = table(&["", "IOPS", "min..max", "MAD", "mean us", "CPU us/op", "target CPU", "host CPU"]);
        for subject in &self.scenario.subjects {
            let Some(outcome) = self.outcomes.get(&subject.name).filter(|outcome| !outcome.samples.is_empty()) else {
                continue;
            };
            let median = |metric, digits: usize| {
                outcome.summary(metric).map_or_else(String::new, |summary| format!("{:.digits$}", summary.median))
            };
            let iops = outcome.summary(Metric::Iops).filter(|summary| summary.median > 0.0);
            let (value, range, mad) = iops.map_or_else(Default::default, |summary| {
                let Summary { median, min, max, mad, .. } = summary;
                (thousands(median), format!("{}..{}", thousands(min), thousands(max)), thousands(mad))
            });
            let percent = |metric| median(metric, 2) + if outcome.summary(metric).is_some() { " %" } else { "" };
            table.add_row([
                subject.name.clone(),
                value,
                range,
                mad,
                median(Metric::MeanUs, 1),
                median(Metric::CpuUsPerIo, 2),
                percent(Metric::TargetCpuPercent),
                percent(Metric::HostCpuPercent),
            ]);
        }
        table
    }

    fn json(&self) -> Value {
        let subjects = self.scenario.subjects.iter().filter_map(|subject| {
            let outcome = self.outcomes.get(&subject.name)?;
            let metrics: BTreeMap<&str, Summary> = METRICS
                .iter()
                .filter_map(|&metric| Some((metric.name(), outcome.summary(metric)?)))
                .collect();
            Some(json!({"name": subject.name, "load": load(&subject.load), "metrics": metrics, "trouble": outcome.trouble,
                "stalled": outcome.stalled, "disturbed": outcome.disturbed,
                "is_missing": outcome.is_missing}))
        });
        let ratios = self.verdicts().into_iter().map(|verdict| {
            let (bound, goal) = match verdict.comparison.goal {
                Goal::AtLeast(goal) => (Some("at_least"), Some(goal)),
                Goal::AtMost(goal) => (Some("at_most"), Some(goal)),
                Goal::Shown => (None, None),
            };
            json!({"metric": verdict.comparison.metric.name(), "of": verdict.of, "against": verdict.against,
                "value": verdict.value, "bound": bound, "goal": goal, "is_met": verdict.is_met()})
        });
        json!({"name": self.scenario.name, "title": self.scenario.title, "schedule": format!("{:?}", self.scenario.schedule),
            "subjects": subjects.collect::<Vec<_>>(), "ratios": ratios.collect::<Vec<_>>()})
    }
}

const METRICS: [Metric; 6] = [
    Metric::Iops,
    Metric::MeanUs,
    Metric::CpuUsPerIo,
    Metric::TargetCpuPercent,
    Metric::HostCpuPercent,
    Metric::StealPercent,
];

fn load(load: &Load) -> Value {
    json!({"rw": load.rw.name(), "block_bytes": load.block_bytes, "depth": load.depth, "connections": load.connections,
        "digests": load.digests, "drive_mib": load.drive_mib})
}

/// All results, as JSON.
pub(crate) fn document(all: &[Measured], settings: &Value) -> Value {
    let scenarios: Vec<Value> = all.iter().map(Measured::json).collect();
    json!({"schema": SCHEMA, "settings": settings, "scenarios": scenarios})
}

/// The table of all ratios that have a goal.
pub(crate) fn goals(all: &[Measured]) -> String {
    let mut table = table(&["scenario", "what", "measured", "goal", "met"]);
    let mut met = 0;
    let mut judged = 0;
    for measured in all {
        for verdict in measured.verdicts() {
            let Some(is_met) = verdict.is_met() else { continue };
            judged += 1;
            met += usize::from(is_met);
            table.add_row([
                measured.scenario.name.clone(),
                what(&verdict),
                figure(&verdict),
                goal(verdict.comparison.goal),
                if is_met { "yes" } else { "NO" }.to_owned(),
            ]);
        }
    }
    format!("\nGoals\n{table}\n{met} of {judged} goals met\n")
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn sentence(verdict: &Verdict<'_>) -> String {
    let judged = match verdict.is_met() {
        Some(true) => format!(" (goal {}: met)", goal(verdict.comparison.goal)),
        Some(false) => format!(" (goal {}: NOT met)", goal(verdict.comparison.goal)),
        None => String::new(),
    };
    format!("{}: {}{judged}", what(verdict), figure(verdict))
}

fn what(verdict: &Verdict<'_>) -> String {
    let metric = match verdict.comparison.metric {
        Metric::Iops => "IOPS",
        Metric::MeanUs => "mean latency",
        Metric::CpuUsPerIo => "CPU per operation",
        Metric::TargetCpuPercent => "target's CPU",
        Metric::HostCpuPercent => "host's CPU",
        Metric::StealPercent => "steal",
    };
    match verdict.against {
        Some(against) => format!("{metric}, {} / {against}", verdict.of),
        None => format!("{metric}, {}", verdict.of),
    }
}

fn figure(verdict: &Verdict<'_>) -> String {
    if verdict.against.is_some() { format!("{:.2}", verdict.value) } else { format!("{:.3} %", verdict.value) }
}

fn goal(goal: Goal) -> String {
    match goal {
        Goal::AtLeast(least) => format!(">= {least:.2}"),
        Goal::AtMost(most) => format!("<= {most:.2}"),
        Goal::Shown => String::new(),
    }
}

/// Formats 1234567 as 1235k, and small numbers unchanged.
pub(crate) fn thousands(value: f64) -> String {
    if value >= 10_000.0 { format!("{:.0}k", value / 1000.0) } else { format!("{value:.0}") }
}

#[cfg(test)]
mod tests {
    use super::super::scenarios;
    use super::*;

    fn measured(figures: &[(&str, &[f64])]) -> Measured {
        let scenario = scenarios::all(2).into_iter().find(|scenario| scenario.name == "read4k-qd32-64m").unwrap();
        let outcomes = figures.iter().map(|(name, all)| {
            let samples =
                all.iter().map(|&iops| Sample::from([(Metric::Iops, iops), (Metric::CpuUsPerIo, 1e6 / iops)]));
            ((*name).to_owned(), Outcome { samples: samples.collect(), ..Outcome::default() })
        });
        Measured { outcomes: outcomes.collect(), scenario }
    }

    #[test]
    fn figures_are_compared_with_the_better_peer_and_the_goals() {
        let mut found = measured(&[
            ("raw-memory", &[1e6]),
            ("ebof", &[9e5, 7e5, 8e5]),
            ("spdk-posix", &[4e5]),
            ("spdk-uring", &[5e5]),
        ]);
        let verdicts = found.verdicts();
        let told: Vec<_> = verdicts.iter().map(|one| (one.against.unwrap(), one.is_met())).collect();
        assert_eq!(told, [("raw-memory", Some(false)), ("spdk-uring", Some(false)), ("spdk-uring", Some(true))]);
        assert!((verdicts[1].value - 1.6).abs() < 1e-9 && (verdicts[2].value - 0.625).abs() < 1e-9);
        assert!(goals(&[measured(&[("raw-memory", &[1.0]), ("ebof", &[0.5])])]).contains("0 of 1 goals met"));
        found.outcomes.get_mut("spdk-uring").unwrap().trouble = Some("it died".to_owned());
        assert_eq!(found.verdicts()[1].against, Some("spdk-posix"));
        assert!(found.text().contains("it died"));
        found.outcomes.remove("ebof");
        assert!(found.verdicts().is_empty());
    }

    #[test]
    fn a_stalled_run_is_reported_and_not_counted() {
        let mut found = measured(&[("ebof", &[8e5, 300.0, 9e5])]);
        let outcome = found.outcomes.get_mut("ebof").unwrap();
        assert_eq!((outcome.drop_stalled(), outcome.stalled, outcome.samples.len()), (1, 1, 2));
        assert_eq!(outcome.drop_stalled(), 0);
        assert!(found.text().contains("1 runs stood still"));
    }

    #[test]
    fn runs_in_which_the_hypervisor_took_time_are_repeated() {
        let mut found = measured(&[("ebof", &[8e5, 3e5, 9e5])]);
        let outcome = found.outcomes.get_mut("ebof").unwrap();
        outcome.samples[1].insert(Metric::StealPercent, 2.5);
        outcome.samples[2].insert(Metric::StealPercent, 1.5);
        assert_eq!((outcome.drop_disturbed(), outcome.disturbed, outcome.samples.len()), (1, 1, 2));
        assert_eq!(outcome.drop_disturbed(), 0);
        assert!(found.text().contains("ebof: 1 runs in which"));
        // Where all are disturbed, one is left, which is better than none.
        let outcome = found.outcomes.get_mut("ebof").unwrap();
        outcome.samples.iter_mut().for_each(|sample| _ = sample.insert(Metric::StealPercent, 9.0));
        assert_eq!((outcome.drop_disturbed(), outcome.samples.len()), (1, 1));
    }

    #[test]
    fn the_json_has_every_run() {
        let found = measured(&[("raw-memory", &[1e6, 2e6]), ("ebof", &[8e5])]);
        let document = document(&[found], &json!({"rounds": 2}));
        assert_eq!(document["schema"], SCHEMA);
        let scenario = &document["scenarios"][0];
        assert_eq!(scenario["subjects"][0]["metrics"]["iops"]["all"], json!([1e6, 2e6]));
        assert_eq!(scenario["ratios"][0]["goal"], json!(0.9));
        assert_eq!(scenario["ratios"][0]["is_met"], json!(false));
    }

    #[test]
    fn an_idle_figure_has_no_comparison() {
        let scenario = scenarios::all(2).into_iter().find(|scenario| scenario.name == "idle").unwrap();
        let sample = Sample::from([(Metric::TargetCpuPercent, 0.02), (Metric::HostCpuPercent, 0.5)]);
        let outcome = Outcome { samples: vec![sample], ..Outcome::default() };
        let outcomes = scenario.subjects.iter().map(|subject| (subject.name.clone(), outcome.clone())).collect();
        let text = goals(&[Measured { scenario, outcomes }]);
        assert!(text.contains("0.020 %") && text.contains("1 of 2 goals met"), "{text}");
    }
}
