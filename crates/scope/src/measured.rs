//! What was measured, as those hear it who have a scope: of their drives, functions and namespaces,
//! and of hosts that have nothing else. What a port or the target did, others did, too.

use crate::Limited;
use crate::own::Own;
use ebof_manage::api::Status;
use ebof_manage::history::live::{LiveRow, LiveTable};
use ebof_manage::history::{Measured, NoSamples, ObjectSample, Overview, Query, Samples, SeriesKind, SeriesName};
use ebof_manage::slow::SlowCommands;

impl Measured for Limited {
    fn overview(&self) -> Overview {
        let (own, status) = (self.own(), self.whole.target.status());
        let Overview { history_schema, time_unix_ms, series_max, objects, .. } = self.whole.measured.overview();
        let objects =
            objects.into_iter().filter(|one| is_own(&one.object, &own, &status)).map(without_others).collect();
        // How many objects have no room tells of others.
        Overview { history_schema, time_unix_ms, series_max, dropped: 0, left_out: 0, objects }
    }

    fn samples(&self, query: &Query) -> Result<Samples, NoSamples> {
        match is_own(&query.object, &self.own(), &self.whole.target.status()) {
            true => self.whole.measured.samples(query),
            false => Err(NoSamples(query.object.clone())),
        }
    }

    fn queues(&self) -> LiveTable {
        let own = self.own();
        let mut table = self.whole.measured.queues();
        let is_own = |row: &LiveRow| row.labels.get("subsystem").is_some_and(|nqn| own.has_subsystem(nqn));
        table.rows.retain(is_own);
        table.rows.iter_mut().for_each(|row| row.share = None);
        LiveTable { left_out: 0, ..table }
    }

    fn slow(&self) -> SlowCommands {
        let own = self.own();
        let mut slow = self.whole.measured.slow();
        slow.commands.retain(|command| own.has_subsystem(&command.subsystem_nqn));
        let total = u64::try_from(slow.commands.len()).unwrap_or(u64::MAX);
        SlowCommands { total, ..slow }
    }

    fn forget_slow(&self) -> usize {
        // They are everybody's.
        0
    }
}

fn is_own(object: &SeriesName, own: &Own, status: &Status) -> bool {
    match object.kind {
        SeriesKind::Drive | SeriesKind::Function | SeriesKind::Namespace => own.has_object(&object.name),
        SeriesKind::Host => own.has_all_controllers_of(&object.name, status),
        SeriesKind::Target | SeriesKind::Port => false,
    }
}

/// Functions have a share of their drive; that of other objects tells what others do.
fn without_others(sample: ObjectSample) -> ObjectSample {
    let share = sample.share.filter(|_| sample.object.kind == SeriesKind::Function);
    ObjectSample { share, ..sample }
}
