//! What the commands of one queue are counted as: by namespace, and by kind.

use std::sync::Arc;

use ebof_fabrics::{IoTask, Queue};
use ebof_nvme::{Nqn, Nsid, Status};

use crate::commands::command::Command;
use crate::link::Link;
use crate::observe::slow::Done;
use crate::observe::stats::{Kind, QueueStats, SERIES_MAX};
use crate::ports::port::PortState;
use crate::shared::Shared;
use crate::shared::reactor_context::ReactorContext;

/// The counters of one queue.
pub(crate) struct QueueCounters {
    /// The port that the host has reached.
    port: Arc<PortState>,
    /// The name under which the host is counted; empty before Connect.
    host_label: String,
    series: Vec<(Nsid, Arc<QueueStats>)>,
    /// Commands that were completed at once in this turn: their place in `series`, and how many.
    /// Their latency is known when their completions are sent.
    untimed: Vec<(usize, Kind, u32)>,
}

impl QueueCounters {
    pub(crate) fn new(port: Arc<PortState>) -> Self {
        Self { port, host_label: String::new(), series: Vec::new(), untimed: Vec::new() }
    }

    /// The name under which the host is counted; empty before Connect.
    pub(crate) fn host_label(&self) -> &str {
        &self.host_label
    }

    /// Commands are counted under this name from now on.
    pub(crate) fn set_host_label(&mut self, label: String) {
        self.host_label = label;
    }

    /// All that was counted.
    pub(crate) fn series(&self) -> &[(Nsid, Arc<QueueStats>)] {
        &self.series
    }

    /// The place of the counters for commands of `queue` about `nsid`. Most queues work on one
    /// namespace.
    #[inline]
    pub(crate) fn place(&mut self, nsid: Nsid, queue: &Queue, shared: &Shared) -> usize {
        match self.series.first() {
            Some((known, _)) if *known == nsid => 0,
            _ => self.find(nsid, queue, shared),
        }
    }

    #[inline(never)]
    fn find(&mut self, nsid: Nsid, queue: &Queue, shared: &Shared) -> usize {
        if let Some(at) = self.series.iter().position(|(known, _)| *known == nsid) {
            return at;
        }
        // A queue that works on very many namespaces has the last of them counted together, as
        // namespace 0.
        let nsid = if self.series.len() + 1 < SERIES_MAX { nsid } else { Nsid::NONE };
        if self.series.len() == SERIES_MAX {
            return SERIES_MAX - 1;
        }
        let stats = Arc::new(QueueStats {
            host: text(queue.host()).to_owned(),
            counted_as: self.host_label.clone(),
            subsystem: text(queue.subsystem()).to_owned(),
            port: self.port.name.clone(),
            controller: queue.association().map_or(0, |association| association.cntlid.0),
            queue: queue.id().map_or(0, |id| id.0),
            nsid: nsid.0,
            kinds: Default::default(),
        });
        shared.add_stats(&stats);
        self.series.push((nsid, stats));
        self.series.len() - 1
    }

    /// The counters at `place`.
    #[inline]
    pub(crate) fn at(&self, place: usize) -> &Arc<QueueStats> {
        &self.series[place].1
    }

    /// Counts a command that completes, at `place`, and notes it if it was slow.
    #[inline(always)]
    pub(crate) fn count(
        &self,
        place: usize,
        command: &Command,
        status: Status,
        link: &Link,
        context: &ReactorContext<'_>,
    ) {
        let moves_data = command.task.io().is_some_and(IoTask::moves_data);
        let moved = if status.is_success() && moves_data { u64::from(command.length) } else { 0 };
        let latency_us = context.now_us.saturating_sub(command.started_us);
        let stats = self.at(place);
        stats.count(command.kind(), moved, !status.is_success(), latency_us);
        let slow = &context.shared.slow;
        if slow.is_slow(latency_us) {
            let done = Done {
                status,
                bytes: command.length,
                started_us: command.started_us,
                marks: command.marks,
                now_us: context.now_us,
                time_unix_ms: context.shared.clock.unix_ms(),
                unsent_bytes: link.unsent_bytes(),
            };
            slow.note(&command.executing, stats, &done);
        }
    }

    /// Counts what a copy has read, by the namespace of each source.
    pub(crate) fn count_read(
        &mut self,
        read: impl Iterator<Item = (Nsid, u64)>,
        latency_us: u64,
        queue: &Queue,
        shared: &Shared,
    ) {
        for (nsid, bytes) in read {
            let place = self.place(nsid, queue, shared);
            self.at(place).count(Kind::Read, bytes, false, latency_us);
        }
    }

    /// Counts a command that arrived and was completed in the same turn. Its latency is that of the
    /// turn up to the point where completions are sent, which is looked at once for all of them.
    #[inline(always)]
    pub(crate) fn count_untimed(
        &mut self,
        kind: Kind,
        bytes: u32,
        failed: bool,
        nsid: Nsid,
        queue: &Queue,
        shared: &Shared,
    ) {
        let at = self.place(nsid, queue, shared);
        self.at(at).count_untimed(kind, bytes.into(), failed);
        match self.untimed.iter_mut().find(|(of, untimed, _)| *of == at && *untimed == kind) {
            Some((.., commands)) => *commands += 1,
            // At most one for each of the counters and kinds.
            None => self.untimed.push((at, kind, 1)),
        }
    }

    /// The completions of this turn are sent: how long their commands took.
    pub(crate) fn time_untimed(&mut self, context: &ReactorContext<'_>) {
        if self.untimed.is_empty() {
            return;
        }
        let latency_us = context.shared.clock.now_us().saturating_sub(context.now_us);
        for (at, kind, commands) in self.untimed.drain(..) {
            self.series[at].1.time(kind, commands, latency_us);
        }
    }
}

/// A name for people and labels; empty where there is none.
pub(crate) fn text(nqn: Option<&Nqn>) -> &str {
    nqn.map_or("", Nqn::as_str)
}
