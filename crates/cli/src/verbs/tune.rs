//! `tune`: the settings of this machine that NVMe over Fabrics depends on.
//!
//! Owns the arguments and what is said when nothing can be done. What is recommended, changed and
//! undone is in `ebof_tune`.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use ebof_attach::state::StateDir;
use ebof_tune::{
    ChangeRecord, Interrupts, MTU_MAX, MTU_MIN, Machine, Name, RecordError, Report, SettingStep, StepOutcome,
    SurveyError, SurveyOptions, System, apply, survey, undo,
};

use super::Outcome;
use crate::failure::Failure;
use crate::global::Global;
use crate::output::{self, say, tune::TuneView};

/// Settings of this machine.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Tune {
    /// Set what differs from the recommendation; --undo takes it back
    #[arg(long)]
    apply: bool,
    /// Take back what --apply has set since the machine was booted
    #[arg(
        long,
        conflicts_with_all = ["apply", "goal", "interface", "device", "interrupts", "core", "mtu"]
    )]
    undo: bool,
    /// What the machine is to be good at, where both cannot be had
    #[arg(long, value_enum, default_value_t = Goal::Throughput)]
    goal: Goal,
    /// A network interface; may be repeated [default: all that have a card and a link]
    #[arg(short = 'I', long, value_name = "NAME", value_parser = name)]
    interface: Vec<Name>,
    /// A block device; may be repeated [default: all NVMe drives]
    #[arg(short, long, value_name = "DEVICE", value_parser = device)]
    device: Vec<Name>,
    /// Which cores serve the interrupts of network cards
    #[arg(long, value_enum, default_value_t = Placement::ByCard)]
    interrupts: Placement,
    /// The core for cards whose interrupts have one [default: the second one near the card]
    #[arg(long, value_name = "N")]
    core: Option<u32>,
    /// The largest packet, which every switch and host on the link has to carry [default: as it is]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(i64::from(MTU_MIN)..=i64::from(MTU_MAX)))]
    mtu: Option<u32>,
}

/// What the machine is to be good at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Goal {
    /// Bandwidth, and commands in a second
    Throughput,
    /// Time for a command
    Latency,
}

/// Which cores serve interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Placement {
    /// One core with RDMA, otherwise one for each queue
    ByCard,
    /// One core for all interrupts of a card
    OneCore,
    /// A core for each queue
    Spread,
}

/// The directory of the record, in that of attached devices, which is lost at the next boot, too.
const DIRECTORY: &str = "tune";

impl Tune {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let machine = System::new();
        if self.undo {
            return take_back(&machine, global);
        }
        let options = self.options();
        if !self.apply {
            let report = take_survey(&machine, &options)?;
            let view = TuneView::Report { goal: options.goal, report, recorded: recorded(&machine) };
            output::show(global, &view)?;
            return Ok(ExitCode::SUCCESS);
        }
        // Looked at under the record's lock: nobody else applies or undoes meanwhile.
        let mut record = open(&machine)?;
        let report = take_survey(&machine, &options)?;
        let steps = apply(&machine, &report, &mut record, now_s()).map_err(|error| failure(&error))?;
        let status = status(&steps);
        let recorded = record.changes().len();
        output::show(global, &TuneView::Applied { goal: options.goal, report, steps, recorded })?;
        Ok(status)
    }

    fn options(&self) -> SurveyOptions {
        SurveyOptions {
            goal: match self.goal {
                Goal::Throughput => ebof_tune::Goal::Throughput,
                Goal::Latency => ebof_tune::Goal::Latency,
            },
            interfaces: self.interface.clone(),
            devices: self.device.clone(),
            interrupts: match self.interrupts {
                Placement::ByCard => Interrupts::ByCard,
                Placement::OneCore => Interrupts::OneCore,
                Placement::Spread => Interrupts::Spread,
            },
            core: self.core,
            mtu: self.mtu,
        }
    }
}

fn take_back(machine: &dyn Machine, global: &Global) -> Outcome {
    let mut record = open(machine)?;
    let outdated = record.outdated();
    let steps = undo(machine, &mut record).map_err(|error| failure(&error))?;
    let status = status(&steps);
    output::show(global, &TuneView::Undone { steps, recorded: record.changes().len(), outdated })?;
    Ok(status)
}

fn take_survey(machine: &dyn Machine, options: &SurveyOptions) -> Result<Report, Failure> {
    survey(machine, options).map_err(|error| {
        let advice = match &error {
            SurveyError::NoInterface { known, .. } | SurveyError::NoDevice { known, .. } => listed(known),
            SurveyError::NoCore { online, .. } => format!("those that are: {online}"),
            _ => "`ebof tune` without arguments looks at all there is".to_owned(),
        };
        Failure::usage(error.to_string(), advice)
    })
}

fn listed(known: &[String]) -> String {
    let known: Vec<String> = known.iter().map(|name| output::text::safe(name)).collect();
    if known.is_empty() { "there is none here".to_owned() } else { format!("there are: {}", known.join(", ")) }
}

fn open(machine: &dyn Machine) -> Result<ChangeRecord, Failure> {
    let states = StateDir::standard();
    // Taking the lock makes the directory, and checks whose it is.
    let checked = states.lock();
    checked.map_err(|error| Failure::new("state", error.to_string(), "settings are changed by root"))?;
    ChangeRecord::open(&states.path().join(DIRECTORY), machine).map_err(|error| failure(&error))
}

/// How many changes can be undone. Who only looks makes no directory, and may not be able to see
/// root's.
fn recorded(machine: &dyn Machine) -> Option<usize> {
    let directory = StateDir::standard().path().join(DIRECTORY);
    if !directory.is_dir() {
        return Some(0);
    }
    match ChangeRecord::open(&directory, machine) {
        Ok(record) => Some(record.changes().len()),
        Err(error) => {
            say(&format!("what was changed before is not shown: {error}"));
            None
        }
    }
}

fn failure(error: &RecordError) -> Failure {
    Failure::new("state", error.to_string(), error.advice())
}

fn status(steps: &[SettingStep]) -> ExitCode {
    let is_failed = |step: &SettingStep| matches!(step.outcome, StepOutcome::Failed { .. });
    if steps.iter().any(is_failed) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn name(text: &str) -> Result<Name, String> {
    Name::try_from(text).map_err(|error| error.to_string())
}

/// The name of a device, also with its directory.
fn device(text: &str) -> Result<Name, String> {
    name(text.strip_prefix("/dev/").unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        tune: Tune,
    }

    fn parse(line: &str) -> Result<SurveyOptions, clap::error::ErrorKind> {
        let line = ["tune"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(line).map(|line| line.tune.options()).map_err(|error| error.kind())
    }

    #[test]
    fn arguments_become_options() {
        let options = parse("--apply -I eth0 --interface eth1 -d /dev/nvme0n1 --mtu 9000 --interrupts spread").unwrap();
        let names = |names: &[Name]| names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(names(&options.interfaces), "eth0 eth1");
        assert_eq!(names(&options.devices), "nvme0n1");
        assert_eq!((options.mtu, options.interrupts), (Some(9000), Interrupts::Spread));
        assert_eq!(parse("").unwrap(), SurveyOptions::default());
    }

    #[test]
    fn contradictions_and_odd_names_are_refused() {
        use clap::error::ErrorKind;
        for (line, kind) in [
            ("--undo --apply", ErrorKind::ArgumentConflict),
            ("--undo --mtu 9000", ErrorKind::ArgumentConflict),
            ("--undo -I eth0", ErrorKind::ArgumentConflict),
            ("-I ../eth0", ErrorKind::ValueValidation),
            ("-d /dev/mapper/x", ErrorKind::ValueValidation),
            ("--mtu 500", ErrorKind::ValueValidation),
            ("--goal both", ErrorKind::InvalidValue),
        ] {
            assert_eq!(parse(line).unwrap_err(), kind, "{line}");
        }
    }
}
