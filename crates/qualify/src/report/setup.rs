//! What another person needs to repeat it: the conditions of every run, devices, settings, the
//! machine, and every job with its commands.

use ebof_bench::Job;

use super::content::{Cell, Grid, Item, Section};
use super::equivalent;
use super::figures::ROWS_MAX;
use super::lines::label;
use super::text::{self, NOTHING, bytes, figure, maybe, moment, number};
use super::view::{Pane, ShownStep, View, title};
use crate::document::{Conditions, Document, Phase, Run, Tool};

/// Processor time for each operation, if any column has it.
pub(super) fn cost(view: &View<'_>) -> Option<Section> {
    let head = ["phase", "column", "#load generator", "#target"];
    let mut table = Grid::new("Processor time for each operation, in microseconds.", &head);
    for step in view.measured() {
        let known = view.results(step).filter(|(.., of)| of.host_us_per_io.or(of.target_us_per_io).is_some());
        table.rows.extend(known.map(|(_, side, of)| {
            let numbers = [of.host_us_per_io, of.target_us_per_io].map(|us| Cell::from(maybe(us, number)));
            [step.title().into(), side.label.clone().into()].into_iter().chain(numbers).collect()
        }));
    }
    table.rows.truncate(ROWS_MAX);
    let is_empty = table.rows.is_empty();
    (!is_empty).then(|| Section { id: "cost", title: "Processor time", blocks: vec![Item::Grid(table)] })
}

/// Every run, and the machine meanwhile.
pub(super) fn conditions(view: &View<'_>) -> Section {
    let mut head = vec!["phase", "column", "#round", "#figure", "start (UTC)", "#stolen", "#others", "busiest other"];
    head.extend(["#interrupts", "#MHz", "#CPU °C", "#device °C", "remarks"]);
    let mut table = Grid::new(
        "Stolen is the share of the processors' time that the hypervisor took; others is the time of other programs, in \
         percent of one processor; interrupts is the processor that they took most of, the part of its time that they took, and \
         all that it was busy. What could not be seen is –.",
        &head,
    );
    let runs = view.steps.iter().flat_map(|step| step.runs().map(move |(source, run)| (step, source, run)));
    let count = runs.clone().count();
    table.rows.extend(runs.take(ROWS_MAX).map(|(step, source, run)| run_row(view, step, source, run)));
    let mut blocks = vec![Item::Grid(table)];
    if count > ROWS_MAX {
        blocks.push(Item::Text(format!("{} runs more are in the JSON document only.", count - ROWS_MAX)));
    }
    Section { id: "conditions", title: "Conditions of every run", blocks }
}

fn run_row(view: &View<'_>, step: &ShownStep<'_>, source: usize, run: &Run) -> Vec<Cell> {
    let of = &run.conditions;
    let percent = |value: Option<f64>| Cell::from(maybe(value, |value| text::percent(value / 100.0)));
    let failed = run.failed.as_ref().map(|why| format!("failed: {why}"));
    let errors = run.reports.iter().map(|report| report.errors).fold(0, u64::saturating_add);
    let first = run.reports.iter().find_map(|report| report.first_error.as_deref()).unwrap_or("no reason is known");
    let errors = (errors > 0).then(|| format!("{errors} operations failed, first: {first}"));
    let disturbed = run.disturbed.as_ref().map(|why| format!("disturbed: {why}"));
    let remarks: Vec<_> = [failed, errors, disturbed].into_iter().flatten().collect();
    let value = run.reports.first().map(|report| match step.unit() {
        ebof_bench::corner::Unit::Iops => report.total.iops,
        ebof_bench::corner::Unit::MegabytesPerSecond => report.total.bytes_per_s / 1e6,
    });
    vec![
        step.title().into(),
        label(view, source, run).into(),
        run.round.to_string().into(),
        maybe(value, |value| figure(value, step.unit())).into(),
        moment(run.started_unix_ms).trim_end_matches(" UTC").into(),
        percent(of.steal_percent),
        percent(of.others_percent),
        of.busiest_other.clone().unwrap_or_else(|| NOTHING.to_owned()).into(),
        interrupts(of).unwrap_or_else(|| NOTHING.to_owned()).into(),
        maybe(of.frequency_mhz, number).into(),
        maybe(of.processor_celsius, number).into(),
        maybe(of.device_celsius, number).into(),
        if remarks.is_empty() { "".into() } else { Cell::bad(remarks.join("; ")) },
    ]
}

/// `CPU 1: 12 % of 43 %`.
fn interrupts(of: &Conditions) -> Option<String> {
    let percent = |value: f64| text::percent(value / 100.0);
    let (part, busy) = (percent(of.interrupts_percent?), percent(of.interrupts_busy_percent?));
    Some(format!("CPU {}: {part} of {busy}", of.interrupts_processor?))
}

/// What was measured.
pub(super) fn devices(view: &View<'_>) -> Section {
    let mut blocks = Vec::new();
    for side in view.sides.iter().take(ROWS_MAX) {
        blocks.push(Item::Heading(side.label.clone()));
        blocks.push(Item::Grid(Grid::facts("", device(view, side))));
    }
    Section { id: "devices", title: "Devices and settings", blocks }
}

fn device(view: &View<'_>, side: &Pane<'_>) -> Vec<(String, String)> {
    let (column, of) = (side.column, &side.column.device);
    let known = |count: u64, shown: String| if count == 0 { NOTHING.to_owned() } else { shown };
    let exact = format!("{} ({} bytes)", bytes(of.capacity_bytes), of.capacity_bytes);
    let mut facts = vec![
        ("column".to_owned(), column.id.clone()),
        ("device".to_owned(), of.name.clone()),
        ("kind".to_owned(), of.kind.clone()),
        ("capacity".to_owned(), known(of.capacity_bytes, exact)),
        ("logical block".to_owned(), known(of.block_bytes.into(), format!("{} bytes", of.block_bytes))),
        ("engine".to_owned(), column.engine.name().to_owned()),
    ];
    facts.extend(column.variant.iter().map(|variant| ("variant".to_owned(), variant.clone())));
    let base = view.base(side).map(|base| ("ratios refer to".to_owned(), base.label.clone()));
    facts.extend(base);
    facts.extend(of.details.iter().chain(&column.settings).take(256).cloned());
    facts
}

/// The machine that measured.
pub(super) fn machine(view: &View<'_>) -> Section {
    let mut blocks = Vec::new();
    for (source, of) in view.sources.iter().enumerate() {
        if !view.is_single() {
            blocks.push(Item::Heading(view.named(source, of.document.procedure.name())));
        }
        blocks.push(Item::Grid(Grid::facts("", machine_facts(of.document))));
    }
    Section { id: "machine", title: "Machine and programs", blocks }
}

fn machine_facts(document: &Document) -> Vec<(String, String)> {
    let of = &document.machine;
    let fact = |name: &str, value: String| (name.to_owned(), value);
    let unknown = |value: &Option<String>, text: &str| value.clone().unwrap_or_else(|| text.to_owned());
    let mut facts = vec![
        fact("command", text::command(&document.command)),
        fact("program", document.program.clone()),
        fact("document", document.schema.clone()),
        fact("started", moment(document.started_unix_ms)),
        fact("ended", moment(document.ended_unix_ms)),
        fact("resumed", format!("{} times", document.resumed)),
        fact("rounds", document.rounds.to_string()),
        fact("kernel", of.kernel.clone()),
        fact("distribution", of.distribution.clone()),
        fact("processor", of.processor.clone()),
        fact("logical processors", of.processors.to_string()),
        fact("memory", bytes(of.memory_bytes)),
        fact("hypervisor", unknown(&of.hypervisor, "none seen")),
        fact("frequency governor", unknown(&of.governor, "not visible")),
    ];
    facts.extend(of.interfaces.iter().take(64).map(|text| fact("network interface", text.clone())));
    facts.extend(of.programs.iter().take(64).map(|text| fact("program that took part", text.clone())));
    facts.extend(of.settings.iter().take(256).cloned());
    facts
}

/// Phases whose jobs are listed in full, at most.
const PHASES_MAX: usize = 256;

/// Every job in full, and its commands.
pub(super) fn jobs(view: &View<'_>) -> Section {
    let mut blocks = Vec::new();
    for (source, of) in view.sources.iter().enumerate() {
        for phase in of.document.phases.iter().take(PHASES_MAX) {
            blocks.push(Item::Heading(view.named(source, &title(phase))));
            blocks.push(Item::Grid(job_table(phase)));
            blocks.extend(commands(of.document, phase));
        }
        let more = of.document.phases.len().saturating_sub(PHASES_MAX);
        if more > 0 {
            blocks.push(Item::Text(view.named(source, &format!("{more} phases more are in the JSON document only."))));
        }
    }
    Section { id: "jobs", title: "Every job in full", blocks }
}

fn job_table(phase: &Phase) -> Grid {
    let mut table = Grid::new("", &["setting"]);
    table.head.extend(
        phase.jobs.iter().take(16).map(|job| super::content::Head { text: job.name.clone(), is_number: false }),
    );
    let settings: Vec<_> = phase.jobs.iter().take(16).map(settings).collect();
    for (index, name) in SETTINGS.iter().enumerate() {
        let values = settings.iter().map(|values| Cell::from(values.get(index).cloned().unwrap_or_default()));
        table.rows.push(std::iter::once((*name).into()).chain(values).collect());
    }
    table
}

const SETTINGS: [&str; 16] = [
    "operations",
    "reads in a mix",
    "block",
    "depth of each thread",
    "threads",
    "first byte",
    "size of the part",
    "time",
    "time before measuring",
    "IOPS of each thread",
    "bytes per second of each thread",
    "poll queues",
    "local engine",
    "verification, errors",
    "seed",
    "processors",
];

fn settings(job: &Job) -> [String; SETTINGS.len()] {
    let limit = |value: Option<u64>| value.map_or_else(|| "unlimited".to_owned(), |value| value.to_string());
    let yes = |is: bool, yes: &str, no: &str| if is { yes } else { no }.to_owned();
    let processors: Vec<_> = job.processors.iter().take(256).map(ToString::to_string).collect();
    let errors = yes(job.continue_on_error, "go on after errors", "end at the first error");
    [
        job.rw.name().to_owned(),
        if job.rw.reads() && job.rw.writes() { format!("{} %", job.read_percent) } else { NOTHING.to_owned() },
        format!("{} ({} bytes)", bytes(job.block_bytes.into()), job.block_bytes),
        job.depth.to_string(),
        job.threads.to_string(),
        job.offset_bytes.to_string(),
        job.size_bytes.map_or_else(|| "all that follows".to_owned(), |size| format!("{} ({size} bytes)", bytes(size))),
        job.runtime.map_or_else(|| "one pass".to_owned(), text::span),
        text::span(job.ramp),
        limit(job.rate_iops),
        format!("reads {}, writes {}", limit(job.rate.read), limit(job.rate.write)),
        yes(job.hipri, "yes", "no"),
        format!("{:?}", job.ioengine),
        format!("{}; {errors}", yes(job.verify, "data are verified", "data are not verified")),
        format!("{:#x}", job.seed),
        if processors.is_empty() { "any".to_owned() } else { processors.join(", ") },
    ]
}

/// The commands that other programs were run by; for a column without one, the fio command that
/// does the same.
fn commands(document: &Document, phase: &Phase) -> Vec<Item> {
    let mut blocks = Vec::new();
    for (index, column) in
        document.columns.iter().enumerate().filter(|(index, _)| phase.columns.contains(index)).take(16)
    {
        let ran = phase.runs.iter().filter(|run| run.column == index).find_map(|run| run.command.as_ref());
        let (what, words) = match ran {
            Some(words) => {
                let program = phase.tool.map_or(column.engine.name(), Tool::program);
                (format!("the command of {program} that was run"), words.clone())
            }
            None if phase.tool.is_some() => continue,
            None => match equivalent::command(phase, column) {
                Some(words) => ("the same load by fio".to_owned(), words),
                None => continue,
            },
        };
        blocks.push(Item::Code { caption: format!("{}: {what}:", column.label), text: text::command(&words) });
    }
    blocks
}

/// What a reader has to know.
pub(super) fn notes(view: &View<'_>) -> Option<Section> {
    let notes = view
        .sources
        .iter()
        .enumerate()
        .flat_map(|(source, of)| of.document.notes.iter().take(256).map(move |note| view.named(source, note)));
    let notes: Vec<_> = notes.collect();
    let is_empty = notes.is_empty();
    (!is_empty).then(|| Section { id: "notes", title: "Notes", blocks: vec![Item::List(notes)] })
}
