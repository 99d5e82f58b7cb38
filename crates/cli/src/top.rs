//! What objects of a target or of this host do, shown once in a second: the loop, its keys, and
//! where the figures come from. The table is in `output::top`, the terminal in
//! `crate::top::screen`.

mod diskstats;
mod host;
mod screen;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use ebof_manage::history::{Overview, SeriesKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::control::ControlClient;
use crate::failure::Failure;
use crate::global::{Global, OutputFormat};
use crate::output::top::{Kind, Measurement, ShownTop, Sort};
use crate::output::{View as _, print};
use crate::program::verb::Outcome;
pub(crate) use host::ThisHost;

use screen::{Key, Screen};

/// How often the table is shown.
const PERIOD: Duration = Duration::from_secs(1);

/// For how many periods a first measurement is waited for, elsewhere than on a terminal.
const FIRST_PERIODS_MAX: u32 = 5;

/// Rows of a screen that are no rows of the table.
const FRAME_ROWS: usize = 6;

/// How the table looks, and for how long it is shown.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TableOptions {
    /// The column to sort by
    #[arg(long, value_enum, default_value_t = Sort::Iops, value_name = "COLUMN")]
    sort: Sort,
    /// End after so many tables [default: on a terminal when q is pressed, elsewhere when
    /// interrupted]
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

/// Whose objects are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Those of a target.
    Target,
    /// Those that this host has attached.
    Host,
}

/// Where the figures come from.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) target: ControlClient,
    pub(crate) host: ThisHost,
}

impl Whose {
    /// The kinds of objects that it has.
    pub(crate) const fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Target => {
                &[Kind::Functions, Kind::Ports, Kind::Drives, Kind::Namespaces, Kind::Hosts, Kind::Queues, Kind::Target]
            }
            Self::Host => &[Kind::Controllers, Kind::Namespaces, Kind::Paths, Kind::Queues],
        }
    }

    /// Whether it has objects of a kind.
    pub(crate) fn has(self, kind: Kind) -> bool {
        self.kinds().contains(&kind)
    }

    const fn help(self) -> &'static str {
        match self {
            Self::Target => {
                "f functions p ports d drives n namespaces h hosts u queues t target\n\
                 i IOPS b bandwidth l latency o depth s name | x this host q ends"
            }
            Self::Host => {
                "c controllers n namespaces p paths u queues\n\
                 i IOPS b bandwidth l latency o depth s name | x target q ends"
            }
        }
    }
}

/// What is shown now.
struct Top {
    sources: Sources,
    whose: Whose,
    kind: Kind,
    sort: Sort,
    /// Why it is not what a key asked for.
    refusal: Option<String>,
}

/// Shows the objects of `whose`, those of `kind` or of the one that tells most, until it is to end.
///
/// # Errors
/// It has no such kind; the figures cannot be had.
pub(crate) fn run(sources: Sources, whose: Whose, kind: Option<Kind>, look: &TableOptions, global: &Global) -> Outcome {
    if let Some(kind) = kind.filter(|&kind| !whose.has(kind)) {
        return Err(no_such_kind(whose, kind).into());
    }
    let mut top = Top { sources, whose, kind: Kind::Target, sort: look.sort, refusal: None };
    top.kind = match kind {
        Some(kind) => kind,
        None => top.most_precise()?,
    };
    let mut shown = top.measure()?;
    let mut screen = if global.format == OutputFormat::Normal { Screen::open().context("the terminal")? } else { None };
    let ended = Arc::new(AtomicBool::new(false));
    if screen.is_some() {
        // The terminal has to be left as it was.
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&ended)).context("catching signals")?;
        }
    } else {
        // Rates need two looks.
        for _ in 0..FIRST_PERIODS_MAX {
            if shown.time_unix_ms() != 0 || matches!(shown.measured, Measurement::Overview(_)) {
                break;
            }
            std::thread::sleep(PERIOD);
            shown = top.measure()?;
        }
    }
    let mut tables = 0;
    loop {
        match &mut screen {
            Some(screen) => {
                let (rows, columns) = screen.size()?;
                shown.rows_max = rows.saturating_sub(FRAME_ROWS + shown.remarks.len());
                shown.columns_max = columns;
                screen.draw(&format!("{}\n{}\n", shown.text(false), top.whose.help()))?;
            }
            None => match global.format {
                OutputFormat::Json => print(shown.json(false).to_line()?.as_bytes())?,
                OutputFormat::Normal | OutputFormat::Binary => print(format!("{}\n", shown.text(false)).as_bytes())?,
            },
        }
        tables += 1;
        if look.count.is_some_and(|count| tables >= count) || !until_next(&mut top, screen.as_mut(), &ended)? {
            return Ok(ExitCode::SUCCESS);
        }
        shown = top.measure()?;
    }
}

fn no_such_kind(whose: Whose, kind: Kind) -> Failure {
    use clap::ValueEnum as _;
    let name = |kind: &Kind| kind.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let owner = if whose == Whose::Target { "a target" } else { "a host" };
    let message = format!("{owner} shows no {}", name(&kind));
    let kinds = whose.kinds().iter().map(name).collect::<Vec<_>>().join(", ");
    Failure::usage(message, format!("it shows {kinds}"))
}

/// Waits for the next second, or for a key, which it obeys. Returns false when it is time to end.
fn until_next(top: &mut Top, screen: Option<&mut Screen>, ended: &AtomicBool) -> anyhow::Result<bool> {
    let Some(screen) = screen else {
        std::thread::sleep(PERIOD);
        return Ok(true);
    };
    let end = Instant::now() + PERIOD;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let key = screen.key(left)?;
        if ended.load(Relaxed) {
            return Ok(false);
        }
        match key {
            None if Instant::now() >= end => return Ok(true),
            None => {}
            Some(Key::End) => return Ok(false),
            Some(Key::Char(char)) => {
                top.obey(char);
                return Ok(char != 'q');
            }
        }
    }
}

impl Top {
    /// What the objects do now.
    fn measure(&mut self) -> Result<ShownTop, Failure> {
        let mut remarks = Vec::new();
        let measured = match (self.whose, self.kind) {
            (Whose::Target, Kind::Queues) => Measurement::Queues(self.sources.target.queues()?),
            (Whose::Target, _) => Measurement::Overview(self.sources.target.overview()?),
            (Whose::Host, _) => {
                let (live, told) = self.sources.host.look()?;
                remarks = told;
                Measurement::Host(live)
            }
        };
        remarks.extend(self.refusal.clone());
        Ok(ShownTop {
            measured,
            kind: self.kind,
            sort: self.sort,
            rows_max: usize::MAX,
            columns_max: usize::MAX,
            remarks,
        })
    }

    /// The kind that tells most.
    fn most_precise(&self) -> Result<Kind, Failure> {
        match self.whose {
            Whose::Target => Ok(of_target(&self.sources.target.overview()?)),
            Whose::Host => Ok(Kind::Namespaces),
        }
    }

    fn obey(&mut self, key: char) {
        self.refusal = None;
        let kind = match key {
            'f' => Kind::Functions,
            'p' if self.whose == Whose::Host => Kind::Paths,
            'p' => Kind::Ports,
            'd' => Kind::Drives,
            'n' => Kind::Namespaces,
            'h' => Kind::Hosts,
            't' => Kind::Target,
            'u' => Kind::Queues,
            'c' => Kind::Controllers,
            'x' => return self.change_sides(),
            _ => {
                self.sort = match key {
                    'i' => Sort::Iops,
                    'b' => Sort::Bandwidth,
                    'l' => Sort::Latency,
                    'o' => Sort::Depth,
                    's' => Sort::Name,
                    _ => return,
                };
                return;
            }
        };
        if self.whose.has(kind) {
            self.kind = kind;
        }
    }

    /// Goes from the target to this host, or back, if there is a target.
    fn change_sides(&mut self) {
        let before = self.whose;
        self.whose = if before == Whose::Target { Whose::Host } else { Whose::Target };
        match self.most_precise() {
            Ok(kind) => self.kind = kind,
            Err(error) => {
                self.whose = before;
                self.refusal = Some(error.message().to_owned());
            }
        }
    }
}

/// The kind that tells most about a target, of those of which it has something.
fn of_target(overview: &Overview) -> Kind {
    let kinds = [
        (SeriesKind::Function, Kind::Functions),
        (SeriesKind::Drive, Kind::Drives),
        (SeriesKind::Namespace, Kind::Namespaces),
    ];
    let has = |kind: SeriesKind| overview.objects.iter().any(|object| object.object.kind == kind);
    kinds.into_iter().find(|(kind, _)| has(*kind)).map_or(Kind::Ports, |(_, kind)| kind)
}
