//! `target events` and `target slow`: what happens on a running target. The socket is in
//! `crate::control`, the output in `output::watch`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use ebof_manage::events::EventsSince;

use super::Outcome;
use crate::control::ControlClient;
use crate::global::{Global, OutputFormat};
use crate::output::watch::{ShownEvents, ShownSlow, event_json, event_line, lost_line};
use crate::output::{print, show};

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
        OutputFormat::Json => {
            for event in &news.events {
                text += &event_json(event, news).to_line()?;
            }
        }
        OutputFormat::Normal | OutputFormat::Binary => {
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
