//! `target events`, `target slow` and `target top`: what happens on a running target, and what its
//! objects do. The socket is in `crate::control`, the output in `output::watch`, the terminal in
//! `crate::screen`.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::ValueEnum;
use ebof_manage::events::EventsSince;
use ebof_manage::history::{Overview, SeriesKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::Outcome;
use crate::control::ControlClient;
use crate::global::{Format, Global};
use crate::output::watch::{ShownEvents, ShownOverview, ShownSlow, Sort, event_json, event_line, lost_line};
use crate::output::{View as _, print, show};
use crate::screen::{Key, Screen};

/// How long one request for events waits for news.
const WAIT: Duration = Duration::from_secs(10);

/// `target events`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ShowEvents {
    /// Go on with what happens from now on, until interrupted; with -o json one object to a line
    #[arg(short, long)]
    follow: bool,
    /// Only events after the one with this number
    #[arg(long, value_name = "N", default_value_t = 0)]
    since: u64,
}

/// `target slow`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Slow {
    /// Only commands after the one with this number
    #[arg(long, value_name = "N", default_value_t = 0)]
    since: u64,
}

/// `target top`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Top {
    /// The kind of object [default: functions; drives where no drive has functions, and so on]
    #[arg(value_enum)]
    kind: Option<Shown>,
    /// The column to sort by
    #[arg(long, value_enum, default_value_t = Sort::Iops, value_name = "COLUMN")]
    sort: Sort,
    /// End after so many tables [default: on a terminal when q is pressed, elsewhere when
    /// interrupted]
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

/// Kinds of objects, as they are named on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shown {
    /// Functions of drives
    Functions,
    /// Ports
    Ports,
    /// Drives
    Drives,
    /// Namespaces
    Namespaces,
    /// Hosts
    Hosts,
    /// The target as a whole
    Target,
}

impl Shown {
    const fn kind(self) -> SeriesKind {
        match self {
            Self::Functions => SeriesKind::Function,
            Self::Ports => SeriesKind::Port,
            Self::Drives => SeriesKind::Drive,
            Self::Namespaces => SeriesKind::Namespace,
            Self::Hosts => SeriesKind::Host,
            Self::Target => SeriesKind::Target,
        }
    }
}

impl ShowEvents {
    pub(crate) fn run(self, control: &ControlClient, global: &Global) -> Outcome {
        let mut since = self.since;
        if !self.follow {
            let mut all: Option<EventsSince> = None;
            loop {
                let next = control.events(since, Duration::ZERO)?;
                let Some(last) = next.events.last().map(|event| event.id) else {
                    all.get_or_insert(next);
                    break;
                };
                since = last;
                let is_all = last == next.latest;
                match &mut all {
                    Some(all) => {
                        all.lost += next.lost;
                        (all.latest, all.events) =
                            (next.latest, [std::mem::take(&mut all.events), next.events].concat());
                    }
                    none => *none = Some(next),
                }
                if is_all {
                    break;
                }
            }
            show(global, &ShownEvents(all.context("no answer")?))?;
            return Ok(ExitCode::SUCCESS);
        }
        loop {
            let news = control.events(since, WAIT)?;
            if since > news.latest {
                since = 0;
            }
            print(followed(&news, global)?.as_bytes())?;
            since = news.events.last().map_or(since, |event| event.id);
        }
    }
}

/// Events as lines.
fn followed(news: &EventsSince, global: &Global) -> anyhow::Result<String> {
    let mut text = String::new();
    match global.format {
        Format::Json => {
            for event in &news.events {
                text += &event_json(event, news).to_line()?;
            }
        }
        Format::Normal | Format::Binary => {
            text += &lost_line(news.lost);
            news.events.iter().for_each(|event| text += &event_line(event));
        }
    }
    Ok(text)
}

impl Slow {
    pub(crate) fn run(self, control: &ControlClient, global: &Global) -> Outcome {
        show(global, &ShownSlow(control.slow(self.since)?))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Top {
    pub(crate) fn run(self, control: &ControlClient, global: &Global) -> Outcome {
        let first = control.overview()?;
        let mut shown = ShownOverview {
            kind: self.kind.map_or_else(|| most_precise(&first), Shown::kind),
            sort: self.sort,
            overview: first,
            rows_max: usize::MAX,
        };
        let mut screen = if global.format == Format::Normal { Screen::open().context("the terminal")? } else { None };
        let ended = Arc::new(AtomicBool::new(false));
        if screen.is_some() {
            // The terminal has to be left as it was.
            for signal in [SIGINT, SIGTERM, SIGHUP] {
                signal_hook::flag::register(signal, Arc::clone(&ended)).context("catching signals")?;
            }
        }
        let mut tables = 0;
        loop {
            match &mut screen {
                Some(screen) => {
                    shown.rows_max = screen.rows()?.saturating_sub(FRAME_ROWS);
                    screen.draw(&format!("{}\n{HELP}\n", shown.text(false)))?;
                }
                None => match global.format {
                    Format::Json => print(shown.json(false).to_line()?.as_bytes())?,
                    Format::Normal | Format::Binary => print(format!("{}\n", shown.text(false)).as_bytes())?,
                },
            }
            tables += 1;
            if self.count.is_some_and(|count| tables >= count) {
                return Ok(ExitCode::SUCCESS);
            }
            if !until_next(&mut shown, screen.as_mut(), &ended)? {
                return Ok(ExitCode::SUCCESS);
            }
            shown.overview = control.overview()?;
        }
    }
}

/// Rows of a screen that are no rows of the table.
const FRAME_ROWS: usize = 5;

const HELP: &str = "f functions p ports d drives n namespaces h hosts t target | \
                    i IOPS b bandwidth l latency s name | q ends";

/// Waits for the next second, or for a key, which it obeys. Returns false when it is time to end.
fn until_next(shown: &mut ShownOverview, screen: Option<&mut Screen>, ended: &AtomicBool) -> anyhow::Result<bool> {
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
                obey(shown, char);
                return Ok(char != 'q');
            }
        }
    }
}

/// How often the table is shown.
const PERIOD: Duration = Duration::from_secs(1);

fn obey(shown: &mut ShownOverview, key: char) {
    match key {
        'f' => shown.kind = SeriesKind::Function,
        'p' => shown.kind = SeriesKind::Port,
        'd' => shown.kind = SeriesKind::Drive,
        'n' => shown.kind = SeriesKind::Namespace,
        'h' => shown.kind = SeriesKind::Host,
        't' => shown.kind = SeriesKind::Target,
        'i' => shown.sort = Sort::Iops,
        'b' => shown.sort = Sort::Bandwidth,
        'l' => shown.sort = Sort::Latency,
        's' => shown.sort = Sort::Name,
        _ => {}
    }
}

/// The kind that tells most about a target, of those of which it has something.
fn most_precise(overview: &Overview) -> SeriesKind {
    let kinds = [SeriesKind::Function, SeriesKind::Drive, SeriesKind::Namespace];
    let has = |kind: &SeriesKind| overview.objects.iter().any(|object| object.object.kind == *kind);
    kinds.into_iter().find(has).unwrap_or(SeriesKind::Port)
}
