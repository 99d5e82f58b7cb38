//! What objects did second by second: takes the counters of all queues once in a second and has
//! `ebof_manage::history` remember the differences
//! ([0071](../../../../docs/adr/0071-what-happens-while-it-runs.md)).
//!
//! A thread of its own, which reads counters only: nothing of it is on the path of a command. A
//! stepped target has none.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use ebof_manage::history::live::{LiveKind, LiveObject};
use ebof_manage::history::{ObjectCounters, SeriesKind, SeriesName};

use crate::observe::stats::QueueStats;
use crate::shared::Shared;
use crate::shared::owners::{OfDrive, Owners};
use crate::shared::shares::FunctionFigures;

/// Samples until the target stops.
pub(crate) fn run(shared: &Shared) {
    let mut commands = 0;
    loop {
        // At whole seconds, so that each sample is of one.
        let past_ms = shared.clock.now_ms() % 1000;
        if !shared.sampler.wait(Duration::from_millis(1000 - past_ms)) {
            return;
        }
        shared.tell_troubles();
        shared.events.tick();
        let (now_ms, now_unix_ms) = (shared.clock.now_ms(), shared.clock.unix_ms());
        shared.queues.tick(now_ms, now_unix_ms, || queues(shared));
        commands = sample(shared, commands);
    }
}

/// Takes the counters, unless they have not changed since there were so many `commands`. Returns
/// how many there are now.
fn sample(shared: &Shared, commands_before: u64) -> u64 {
    let (now_ms, now_unix_ms) = (shared.clock.now_ms(), shared.clock.unix_ms());
    let figures = shared.shares.figures(shared.clock.now_us());
    let commands = shared.commands();
    if commands == commands_before && figures.iter().all(|of| of.figures.waiting == 0) {
        shared.sampler.history().record_idle(now_ms, now_unix_ms);
    } else {
        let objects = counters(shared, &figures);
        let objects = objects.iter().map(|(name, counters)| (name.clone(), counters));
        shared.sampler.history().record(now_ms, now_unix_ms, objects);
    }
    commands
}

/// The counters of all objects.
fn counters(shared: &Shared, figures: &[FunctionFigures]) -> HashMap<SeriesName, ObjectCounters> {
    let owners = Owners::from_shared(shared);
    let mut objects: HashMap<SeriesName, ObjectCounters> = HashMap::new();
    for (series, kinds) in shared.totals().iter() {
        for name in owners.objects(series) {
            let counters = objects.entry(name).or_default();
            counters.kinds.iter_mut().zip(kinds).for_each(|(sum, kind)| sum.add(kind));
        }
    }
    for FunctionFigures { subsystem, figures, .. } in figures {
        let Some(OfDrive { drive, function }) = owners.owner(subsystem.as_str()) else { continue };
        let function = format!("{drive}/{function}");
        let names = [SeriesKind::Drive.named(drive), SeriesKind::Function.named(function)];
        for name in names.into_iter().chain([SeriesName::target()]) {
            objects.entry(name).or_default().waiting += figures.waiting;
        }
    }
    objects
}

/// Subsystem, controller and identifier of a queue.
type Key<'a> = (&'a str, u16, u16);

/// All queues that have had I/O commands, with their counters.
pub(crate) fn queues(shared: &Shared) -> Vec<LiveObject> {
    let owners = Owners::from_shared(shared);
    let stats = shared.live_stats();
    let mut found: HashMap<Key<'_>, (&QueueStats, ObjectCounters)> = HashMap::new();
    // A queue has counters for each of its namespaces.
    for stats in stats.iter().map(Arc::as_ref) {
        let key = (stats.subsystem.as_str(), stats.controller, stats.queue);
        let (_, counters) = found.entry(key).or_insert_with(|| (stats, ObjectCounters::default()));
        counters.kinds.iter_mut().zip(&stats.kinds).for_each(|(sum, kind)| kind.add_to(sum));
    }
    let look = |(stats, counters): (&QueueStats, ObjectCounters)| {
        let QueueStats { host, subsystem, port, controller, queue, .. } = stats;
        let object = LiveKind::Queue.named(format!("{}/c{controller}/q{queue}", owners.object(subsystem)));
        let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let labels = BTreeMap::from([
            label("host", host),
            label("subsystem", subsystem),
            label("port", port),
            label("controller", &controller.to_string()),
            label("queue", &queue.to_string()),
        ]);
        LiveObject { object, counters, in_flight: None, labels }
    };
    found.into_values().map(look).collect()
}
