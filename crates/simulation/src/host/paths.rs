//! A host that reaches a subsystem by several paths, with the product's initiator, stepped: it
//! connects by one path, adds the others, and sends over queues that have them all. What is
//! repeated, over which path and when, is the product's.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ebof_initiator::stepped::{self, AdminQueue, PathQueue, Sequence, SteppedPath};
use ebof_initiator::{
    AddPathError, ConnectError, Controller, Data, Error, Options, PathNamespace, PathPolicy, Subsystem,
};
use ebof_nvme::{Cqe, Nsid, Sqe};

use crate::story::{Failure, fail, trace};
use crate::transport::reach::Reach;

/// How long it waits before it tries once more to connect, or to add a path.
const AGAIN: Duration = Duration::from_millis(500);

/// How a command has ended.
#[derive(Debug)]
pub(crate) struct PathEnd {
    /// Whoever sent it calls it so.
    pub(crate) op: u64,
    pub(crate) result: Result<Cqe, Error>,
    /// What was read.
    pub(crate) data: Vec<u8>,
}

/// A path, as it is reached.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) options: Options,
    pub(crate) reach: Reach,
}

/// A host with several paths to one namespace.
#[derive(Debug)]
pub(crate) struct PathHost {
    ways: Vec<Way>,
    nsid: Nsid,
    /// How many queues over all paths, as threads would have them.
    queues: usize,
    /// How long it is connected before it opens them: paths may join meanwhile.
    pause: Duration,
    phase: Phase,
    sent: BTreeSet<u64>,
}

#[derive(Debug)]
enum Phase {
    Down { until: Instant, way: usize },
    Connecting { way: usize, sequence: Sequence<Result<(Controller, AdminQueue), ConnectError>> },
    Up(Box<Up>),
}

#[derive(Debug)]
struct Up {
    open_from: Instant,
    queues: Vec<PathQueue>,
    opening: Option<Sequence<Result<PathQueue, Error>>>,
    namespace: Option<PathNamespace>,
    finding: Option<Sequence<Result<PathNamespace, Error>>>,
    paths: Vec<SteppedPath>,
    missing: Vec<Missing>,
    subsystem: Subsystem,
}

/// A path that is not there yet.
#[derive(Debug)]
struct Missing {
    way: usize,
    from: Instant,
    joining: Option<Sequence<Result<SteppedPath, AddPathError>>>,
}

impl PathHost {
    /// A host that is not connected yet.
    pub(crate) fn new(ways: Vec<Way>, nsid: Nsid, (queues, pause): (usize, Duration), now: Instant) -> Self {
        Self { ways, nsid, queues, pause, phase: Phase::Down { until: now, way: 0 }, sent: BTreeSet::new() }
    }

    /// How a path is reached.
    pub(crate) fn reach(&self, way: usize) -> &Reach {
        &self.ways[way].reach
    }

    /// Whether commands can be sent: they wait for a path.
    pub(crate) fn is_ready(&self) -> bool {
        matches!(&self.phase, Phase::Up(up) if up.queues.len() == self.queues)
    }

    /// The controllers' numbers and states, for people.
    pub(crate) fn describe(&self) -> String {
        let Phase::Up(up) = &self.phase else { return "down".to_owned() };
        let of = |path: &ebof_initiator::PathReport| {
            let (id, state) = (path.controller.id().0, path.controller.state());
            format!("{id} {state:?}, {} under way", path.in_flight)
        };
        up.subsystem.paths().iter().map(of).collect::<Vec<_>>().join("; ")
    }

    /// Divides commands between paths like this from now on.
    pub(crate) fn set_policy(&self, policy: PathPolicy) {
        if let Phase::Up(up) = &self.phase {
            up.subsystem.set_policy(policy);
        }
    }

    /// Uses one of its paths, or does not.
    pub(crate) fn set_enabled(&self, path: usize, is_enabled: bool) {
        let Phase::Up(up) = &self.phase else { return };
        let paths = up.subsystem.paths();
        if let Some(path) = paths.get(path) {
            up.subsystem.set_enabled(path.id, is_enabled);
        }
    }

    /// Uses all of its paths.
    pub(crate) fn enable_all(&self) {
        let count = self.ways.len();
        (0..count).for_each(|path| self.set_enabled(path, true));
    }

    /// Sends a command; `false` if there is no room for it.
    pub(crate) fn submit(&mut self, op: u64, sqe: Sqe, data: Data) -> bool {
        if !self.is_ready() {
            return false;
        }
        let Phase::Up(up) = &mut self.phase else { return false };
        let count = up.queues.len();
        let queue = &mut up.queues[usize::try_from(op).unwrap_or(0) % count];
        let is_sent = queue.submit(sqe, data, op).is_ok();
        is_sent && self.sent.insert(op)
    }

    /// When it has something to do, as far as it knows.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Instant> {
        let mut due: Vec<Option<Instant>> = self.ways.iter().map(|way| way.reach.due()).collect();
        match &mut self.phase {
            Phase::Down { until, .. } => due.push(Some((*until).max(now))),
            Phase::Connecting { sequence, .. } => due.push(sequence.due()),
            Phase::Up(up) => {
                due.extend(up.queues.iter_mut().map(PathQueue::due));
                due.push(Some(up.open_from).filter(|from| *from > now));
                due.extend(up.opening.iter().map(Sequence::due));
                due.extend(up.finding.iter().map(Sequence::due));
                due.extend(up.paths.iter().flat_map(|path| [path.admin_queue.due(), path.keeper.due()]));
                due.extend(up.missing.iter().map(|missing| match &missing.joining {
                    Some(joining) => joining.due(),
                    None => Some(missing.from.max(now)),
                }));
            }
        }
        due.into_iter().flatten().min()
    }

    /// Does what there is to do.
    pub(crate) fn step(&mut self, now: Instant) -> Result<Vec<PathEnd>, Failure> {
        match &mut self.phase {
            Phase::Down { until, way } if *until <= now => {
                let way = *way;
                self.phase = Phase::Connecting { way, sequence: stepped::connect(&self.ways[way].options) };
            }
            Phase::Down { .. } => {}
            Phase::Connecting { way, sequence } => {
                let way = *way;
                match sequence.step() {
                    None => {}
                    Some(Ok((controller, admin_queue))) => {
                        let others = (0..self.ways.len()).filter(|other| *other != way);
                        let mut up = Up::new(&controller, admin_queue, others, now);
                        up.open_from = now + self.pause;
                        self.phase = Phase::Up(Box::new(up));
                    }
                    Some(Err(error)) => {
                        trace(|| format!("not connected by way {way}: {}", error.summary()));
                        let next = (way + 1) % self.ways.len();
                        self.phase = Phase::Down { until: now + AGAIN, way: next };
                    }
                }
            }
            Phase::Up(up) => {
                if up.open_from <= now {
                    up.open(self.queues, self.nsid);
                }
                up.join(&self.ways, now);
                for SteppedPath { admin_queue, keeper } in &mut up.paths {
                    admin_queue.step();
                    keeper.step();
                }
                return Self::poll(up, &mut self.sent);
            }
        }
        Ok(Vec::new())
    }

    fn poll(up: &mut Up, sent: &mut BTreeSet<u64>) -> Result<Vec<PathEnd>, Failure> {
        let mut ends = Vec::new();
        for queue in &mut up.queues {
            while let Some(completion) = queue.poll().map_err(|error| Failure(error.to_string()))? {
                let op = completion.user;
                if !sent.remove(&op) {
                    return fail(format!("{op} has ended twice, or was never sent"));
                }
                let data = completion.data.into_buffer().unwrap_or_default();
                ends.push(PathEnd { op, result: completion.result, data });
            }
        }
        Ok(ends)
    }
}

impl Up {
    fn new(
        controller: &Controller,
        admin_queue: AdminQueue,
        others: impl Iterator<Item = usize>,
        now: Instant,
    ) -> Self {
        let (subsystem, keeper) = stepped::subsystem(controller);
        Self {
            open_from: now,
            queues: Vec::new(),
            opening: None,
            namespace: None,
            finding: None,
            paths: vec![SteppedPath { admin_queue, keeper }],
            missing: others.map(|way| Missing { way, from: now, joining: None }).collect(),
            subsystem,
        }
    }

    /// Opens the namespace, and queues to it.
    fn open(&mut self, queues: usize, nsid: Nsid) {
        let Some(namespace) = &self.namespace else {
            let finding = self.finding.get_or_insert_with(|| stepped::path_namespace(&self.subsystem, nsid));
            if let Some(found) = finding.step() {
                self.finding = None;
                match found {
                    Ok(namespace) => self.namespace = Some(namespace),
                    Err(error) => trace(|| format!("the namespace was not opened: {error}")),
                }
            }
            return;
        };
        if self.queues.len() == queues {
            return;
        }
        let opening = self.opening.get_or_insert_with(|| stepped::path_queue(namespace));
        if let Some(opened) = opening.step() {
            self.opening = None;
            match opened {
                Ok(queue) => self.queues.push(queue),
                Err(error) => trace(|| format!("a queue was not opened: {error}")),
            }
        }
    }

    /// Adds paths that are not there.
    fn join(&mut self, ways: &[Way], now: Instant) {
        let Self { missing, paths, subsystem, .. } = self;
        missing.retain_mut(|missing| {
            let Some(joining) = &mut missing.joining else {
                if missing.from <= now {
                    missing.joining = Some(stepped::add_path(subsystem, &ways[missing.way].options));
                }
                return true;
            };
            match joining.step() {
                None => true,
                Some(Ok(path)) => {
                    trace(|| format!("way {} is a path", missing.way));
                    paths.push(path);
                    false
                }
                Some(Err(error)) => {
                    trace(|| format!("way {} is no path: {error}", missing.way));
                    (missing.joining, missing.from) = (None, now + AGAIN);
                    true
                }
            }
        });
    }
}
