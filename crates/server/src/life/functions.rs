//! What the box asks of its drives, and what their functions have done.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver};

use ebof_drive::{Answer, Origin, Refusal, Request};
use ebof_shares::Figures;

use crate::drives::Drives;
use crate::observe::stats::{KindTotals, Totals};
use crate::report::function_load::FunctionLoad;
use crate::shared::Shared;
use crate::shared::shares::FunctionFigures;

/// Has the drive with this name do what the box asks: the receiver gets the answer, or is
/// disconnected. `None` if there is no such drive.
pub(crate) fn submit(drives: &Drives, name: &str, request: Request) -> Option<Receiver<Result<Answer, Refusal>>> {
    let (_, actor) = drives.actors().into_iter().find(|(_, actor)| actor.name() == name)?;
    let (sender, answer) = mpsc::channel();
    actor.submit(request, Origin::box_(), move |reply| {
        // Whoever has asked may not wait any more.
        let _received = sender.send(reply.map(|reply| reply.answer));
    });
    Some(answer)
}

/// The functions of all drives, by drive and number.
pub(crate) fn loads_now(shared: &Shared) -> Vec<FunctionLoad> {
    let figures = shared.shares.figures(shared.clock.now_us());
    if figures.is_empty() { Vec::new() } else { loads(figures, &shared.totals()) }
}

pub(crate) fn loads(figures: Vec<FunctionFigures>, totals: &Totals) -> Vec<FunctionLoad> {
    let mut by_subsystem: BTreeMap<&str, [KindTotals; 3]> = BTreeMap::new();
    for (series, kinds) in totals.iter() {
        let sums = by_subsystem.entry(&series.subsystem).or_default();
        sums.iter_mut().zip(kinds).for_each(|(sum, kind)| sum.add(kind));
    }
    let load = |of: FunctionFigures| {
        let Figures { admitted, waited_us, throttled_us, waiting, .. } = of.figures;
        FunctionLoad {
            drive_nqn: of.drive.to_string(),
            kinds: by_subsystem.get(of.subsystem.as_str()).cloned().unwrap_or_default(),
            subsystem_nqn: of.subsystem.to_string(),
            number: of.number,
            weight: of.share.weight,
            part: 0.0,
            scheduled: admitted,
            queued_us: waited_us,
            throttled_us,
            waiting,
        }
    };
    let mut loads: Vec<FunctionLoad> = figures.into_iter().map(load).collect();
    let mut of_drives: BTreeMap<String, u64> = BTreeMap::new();
    for load in &loads {
        *of_drives.entry(load.drive_nqn.clone()).or_default() += load.service();
    }
    for load in &mut loads {
        let all = of_drives.get(&load.drive_nqn).copied().unwrap_or_default();
        load.part = ratio(load.service(), all);
    }
    loads
}

#[expect(clippy::cast_precision_loss, reason = "a part")]
fn ratio(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}
