//! How much may be at the device at a time: enough to keep it busy, and no more than that by a
//! factor, because what is there already is served before what comes next.
//!
//! The depth follows latency and throughput. Now and then it is lowered for a moment, to learn what
//! a request takes that hardly waits within the device.
//!
//! While all flows that use the device have requests waiting, the depth is nobody's latency: what
//! waits there would wait before. It grows as long as requests take less than twice what they take
//! alone. Beyond that other depths are tried: a lower one if they take more than 4 times that,
//! which is kept if the device does as much with it, and otherwise a higher one, which is kept if
//! the device does more.
//!
//! While a flow with few requests at a time is among them ([`Depth::note_light`]), what is at the
//! device in front of them is their latency. The depth is a little less than what the device works
//! on at a time, so that they find it with room. How much that is shows while it has more
//! ([`Parallel`]).

use crate::cost::{CLASSES, COST_MIN, Costs, Request};

/// Depth before anything is known.
const START: u32 = 32;

/// The least depth.
const MIN: u32 = 4;

/// The largest one.
const MAX: u32 = 1024;

/// The depth of a device that is done at once: what it has got counts as being there until its
/// thread's turn ends, and the depth is what a turn does for all flows together. Less makes for
/// small turns, which cost a multiple.
const IMMEDIATE: u32 = 128;

/// A device that takes less than this is done at once, microseconds.
const IMMEDIATE_US: u64 = 2;

/// What is measured is measured for so long, microseconds, and
const WINDOW_US: u64 = 10_000;

/// with so many requests at least.
const WINDOW_REQUESTS: u32 = 16;

/// What is longer than this was a break, microseconds.
const BREAK_US: u64 = 200_000;

/// Windows between two looks at what a request takes that hardly waits, and before the first one.
const LOOK_EVERY: u32 = 200;
const FIRST_LOOK: u32 = 1;

/// While looking, the depth is divided by
const LOOK_DIVISOR: u32 = 4;

/// Windows between a look and one for requests that were not there then.
const LOOK_AGAIN: u32 = 20;

/// Looks that are remembered.
const LOOKS: usize = 4;

/// Windows without a trial after one that was of no use; twice as many after each further one, up
/// to
const PAUSE: u32 = 20;
const PAUSE_MAX: u32 = 160;

/// A class of requests says something if there were so many of them.
const SAMPLES_MIN: u32 = 4;

/// The depth grows while requests take less than this many times what they take alone, and a lower
/// one is tried if they take more than that, in
const GROW_BELOW: u64 = 2 * RATIO;
const LESS_ABOVE: u64 = 4 * RATIO;

/// parts of one. What is tried then would make them take
const WANTED: u64 = 3 * RATIO;

/// times that.
const RATIO: u64 = 16;

/// Throughput that counts as less, and as more, in percent.
const LESS_PERCENT: u64 = 98;
const MORE_PERCENT: u64 = 103;

/// Windows in which another depth is tried.
const TRIAL: u32 = 4;

/// The mean of throughput is over about so many windows.
const MEAN_WINDOWS: u64 = 8;

/// A flow has few requests at a time if so many of them in a window came while none of its own
/// waited, and is thought to be there for so many windows.
const LIGHT_MIN: u32 = 3;
const LIGHT_WINDOWS: u32 = 20;

/// Beside such a flow the device has so many percent of what it works on at a time.
const LIGHT_PERCENT: u64 = 85;

/// A device that works on less than this at a time is kept full all the same.
const LIGHT_FEW: u64 = 6;

/// Windows between two probes of how much that is, and windows of a probe, of which the first one
/// does not count. A probe that finds a tenth more than was known is followed by one that is twice
/// as deep.
const PROBE_EVERY: u32 = 400;
const PROBE: u32 = 2;

/// What a probe multiplies the depth by.
const PROBE_FACTOR: u32 = 4;

/// Latencies of one class of requests.
#[derive(Clone, Copy, Debug, Default)]
struct Samples {
    count: u32,
    sum_us: u64,
}

impl Samples {
    /// Mean in [`RATIO`]s of a microsecond, if there are enough.
    fn mean(self) -> Option<u64> {
        (self.count >= SAMPLES_MIN).then(|| self.sum_us * RATIO / u64::from(self.count))
    }
}

/// Of reads and of writes, by class.
type Classes<V> = [[V; CLASSES]; 2];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// So many windows until the next look.
    Steady(u32),
    /// The depth was lowered from this one: what was there before leaves.
    Draining(u32),
    /// What leaves now came afterwards.
    Looking(u32),
    /// The depth was raised from this one for so many more windows, to see what the device works on
    /// at a time.
    Probing { depth: u32, left: u32 },
    /// The depth was changed from this one: so many windows ago, of which the first does not count,
    /// and this is the sum of the throughput of the others.
    Trying { depth: u32, windows: u32, sum: u64 },
}

/// The depth of a device.
#[derive(Clone, Debug)]
pub struct Depth {
    requests: u32,
    is_fixed: bool,
    stage: Stage,
    /// Windows in which nothing is tried, and how many there will be after the next trial of no
    /// use.
    pause: u32,
    next_pause: u32,
    /// A lower depth than this one was tried last, and was not enough.
    needed: u32,
    /// The next trial is of a larger depth, although a lower one may do: that was tried last.
    tries_more: bool,
    /// Windows until the next look, while something else is done.
    until_look: u32,
    began_us: u64,
    /// Cost of what was done in this window.
    done: u64,
    samples: Classes<Samples>,
    /// Something waited although nothing but the depth kept it.
    is_short: bool,
    /// Mean throughput with this depth; 0 is unknown.
    throughput: u64,
    /// The most that was at the device in this window, as cost.
    peak: u64,
    /// What requests take that hardly wait in the device, as [`Samples::mean`]: at each of the last
    /// looks.
    looks: [Classes<Option<u64>>; LOOKS],
    /// What was seen at a look.
    was_seen: Classes<bool>,
    parallel: Parallel,
    /// Requests of this window that came from flows with few of them.
    light: u32,
    /// Windows for which such a flow is thought to be there.
    light_left: u32,
    /// Windows until the next probe.
    until_probe: u32,
    /// Sums over what was done in this window: latencies, and latencies times cost.
    latency_sum: u64,
    cost_sum: u64,
}

/// What a device works on at a time: requests that take what they take alone, as many of them as it
/// gets done ([`RATIO`]s of a request). It is seen while it has more than that.
#[derive(Clone, Copy, Debug, Default)]
struct Parallel {
    known: u64,
}

impl Parallel {
    /// So much was done at a time, and no more was there to do if requests took little longer than
    /// alone. `follows`: by how much of the difference a smaller figure counts, as a divisor.
    fn note(&mut self, done: u64, ratio: u64, follows: Option<u64>) {
        if done > self.known {
            self.known = done;
        } else if let Some(divisor) = follows
            && ratio >= 3 * RATIO / 2
        {
            self.known -= (self.known - done) / divisor;
        }
    }
}

impl Depth {
    /// A depth that follows the device.
    #[must_use]
    pub const fn adaptive() -> Self {
        Self {
            requests: START,
            is_fixed: false,
            stage: Stage::Steady(FIRST_LOOK),
            pause: 0,
            next_pause: PAUSE,
            needed: MAX,
            tries_more: false,
            until_look: FIRST_LOOK,
            began_us: 0,
            done: 0,
            samples: [[Samples { count: 0, sum_us: 0 }; CLASSES]; 2],
            is_short: false,
            throughput: 0,
            peak: 0,
            looks: [[[None; CLASSES]; 2]; LOOKS],
            was_seen: [[false; CLASSES]; 2],
            parallel: Parallel { known: 0 },
            light: 0,
            light_left: 0,
            until_probe: 0,
            latency_sum: 0,
            cost_sum: 0,
        }
    }

    /// Always so many requests of the smallest size, at least 1.
    #[must_use]
    pub const fn fixed(requests: u32) -> Self {
        let requests = if requests == 0 { 1 } else { requests };
        Self { requests, is_fixed: true, ..Self::adaptive() }
    }

    /// Requests of the smallest size.
    #[must_use]
    pub const fn requests(&self) -> u32 {
        self.requests
    }

    /// Cost that may be at the device; the last request may exceed it.
    pub(crate) fn cost(&self) -> u64 {
        u64::from(self.requests) * u64::from(COST_MIN)
    }

    /// So much is at the device now, as cost.
    pub(crate) fn note_start(&mut self, at_device: u64) {
        self.peak = self.peak.max(at_device);
    }

    /// Something waits because of the depth.
    pub(crate) fn note_short(&mut self) {
        self.is_short = true;
    }

    /// A request has come of a flow that has at most one other, at the device.
    pub(crate) fn note_light(&mut self) {
        self.light += 1;
    }

    /// A request of `cost` has left the device, after `latency_us`.
    pub(crate) fn note(&mut self, request: Request, cost: u32, latency_us: u64, costs: &mut Costs, now_us: u64) {
        // Other requests than reads and writes say nothing about the device.
        if let Some(of_kind) = self.samples.get_mut(request.kind as usize) {
            let samples = &mut of_kind[request.class()];
            samples.count += 1;
            samples.sum_us += latency_us;
        }
        self.done += u64::from(cost);
        self.latency_sum = self.latency_sum.saturating_add(latency_us);
        self.cost_sum = self.cost_sum.saturating_add(latency_us.saturating_mul(cost.into()));
        let took_us = now_us.saturating_sub(self.began_us);
        if took_us >= WINDOW_US {
            let count: u32 = self.samples.iter().flatten().map(|samples| samples.count).sum();
            if count >= WINDOW_REQUESTS {
                // A window that began before a break says nothing about throughput.
                if took_us < BREAK_US {
                    self.light_left =
                        if self.light >= LIGHT_MIN { LIGHT_WINDOWS } else { self.light_left.saturating_sub(1) };
                    self.end_window(costs, took_us);
                } else if !self.is_fixed {
                    self.begin_again();
                }
                self.began_us = now_us;
                self.done = 0;
                self.samples = Classes::default();
                self.is_short = false;
                self.peak = 0;
                self.light = 0;
                self.latency_sum = 0;
                self.cost_sum = 0;
            }
        }
    }

    /// Nobody used the device for a while: what comes now may be something else.
    fn begin_again(&mut self) {
        self.requests = self.requests.min(START);
        self.stage = Stage::Steady(FIRST_LOOK);
        self.pause = 0;
        self.next_pause = PAUSE;
        self.tries_more = false;
        self.throughput = 0;
    }

    fn end_window(&mut self, costs: &mut Costs, took_us: u64) {
        let throughput = self.done * 1000 / took_us;
        match self.stage {
            Stage::Steady(left) => {
                self.learn(costs, false);
                let left = if left + LOOK_AGAIN < LOOK_EVERY && self.is_unseen() {
                    self.until_probe = 0;
                    0
                } else {
                    left
                };
                self.stage = match left.checked_sub(1) {
                    Some(left) if self.is_fixed => Stage::Steady(left),
                    Some(left) => {
                        self.stage = Stage::Steady(left);
                        self.throughput = match self.throughput {
                            0 => throughput,
                            mean => mean - mean / MEAN_WINDOWS + throughput / MEAN_WINDOWS,
                        };
                        self.adapt(took_us);
                        return;
                    }
                    None if self.is_fixed => Stage::Steady(LOOK_EVERY),
                    None => {
                        let depth = self.requests;
                        self.requests = (self.used() / LOOK_DIVISOR).max(MIN);
                        Stage::Draining(depth)
                    }
                };
            }
            Stage::Draining(depth) => self.stage = Stage::Looking(depth),
            Stage::Looking(depth) => {
                self.learn(costs, true);
                self.requests = depth;
                self.stage = Stage::Steady(LOOK_EVERY);
                self.pause = 1;
                self.next_pause = PAUSE;
            }
            Stage::Probing { depth, left } if left > 1 => self.stage = Stage::Probing { depth, left: left - 1 },
            Stage::Probing { depth, .. } => {
                let known = self.parallel.known;
                if let Some((ratio, _)) = self.stretched() {
                    self.parallel.note(self.done_at_a_time(took_us), ratio, Some(1));
                }
                if self.parallel.known > known + known / 10 && self.requests < MAX {
                    self.requests = (2 * self.requests).min(MAX);
                    self.stage = Stage::Probing { depth, left: PROBE };
                } else {
                    self.requests = self.light_depth().unwrap_or(depth);
                    self.stage = Stage::Steady(self.until_look);
                }
            }
            Stage::Trying { depth, windows, sum } if windows < TRIAL => {
                let sum = if windows == 0 { 0 } else { sum + throughput };
                self.stage = Stage::Trying { depth, windows: windows + 1, sum };
            }
            Stage::Trying { depth, windows, sum } => self.end_trial(depth, (sum + throughput) / u64::from(windows)),
        }
    }

    /// Keeps the depth that was tried in place of `depth`, or does not.
    fn end_trial(&mut self, depth: u32, throughput: u64) {
        let is_less = self.requests < depth;
        let percent = if is_less { LESS_PERCENT } else { MORE_PERCENT };
        if throughput * 100 >= self.throughput * percent {
            self.throughput = throughput;
            self.next_pause = PAUSE;
            self.needed = if is_less { self.needed.min(self.requests) } else { self.needed.max(self.requests) };
        } else {
            self.tries_more = is_less && !self.tries_more;
            if is_less {
                self.needed = depth;
            }
            self.requests = depth;
            self.pause = self.next_pause;
            self.next_pause = (2 * self.next_pause).min(PAUSE_MAX);
        }
        self.stage = Stage::Steady(self.until_look);
    }

    /// Notes what requests take; `is_alone`: at a low depth, so that what was known is outdated.
    fn learn(&mut self, costs: &mut Costs, is_alone: bool) {
        if is_alone {
            self.looks.rotate_right(1);
            self.looks[0] = Classes::default();
        }
        for (known, samples) in self.looks[0].iter_mut().flatten().zip(self.samples.as_flattened()) {
            if let Some(mean) = samples.mean()
                && known.is_none_or(|known| mean < known)
            {
                *known = Some(mean);
            }
        }
        for (was_seen, samples) in self.was_seen.as_flattened_mut().iter_mut().zip(self.samples.as_flattened()) {
            *was_seen |= is_alone && samples.count > 0;
        }
        if is_alone || self.is_fixed {
            let [reads, writes] = &self.alone();
            // Of the sizes that were seen of both kinds the smallest one says most.
            let seen = reads.iter().zip(writes).find_map(|(read, write)| Some(((*read)?, (*write)?)));
            if let Some((read, write)) = seen {
                costs.learn(write, read);
            }
        }
    }

    /// What requests take that hardly wait: the least of the last looks, since a look of a moment
    /// may see the rest of the machine more than the device.
    fn alone(&self) -> Classes<Option<u64>> {
        let mut alone = self.looks[0];
        for look in &self.looks[1..] {
            for (least, seen) in alone.as_flattened_mut().iter_mut().zip(look.as_flattened()) {
                *least = least.iter().chain(seen).min().copied();
            }
        }
        alone
    }

    /// Whether requests of a kind or size come that were not there at any look.
    fn is_unseen(&self) -> bool {
        let mut classes = self.was_seen.as_flattened().iter().zip(self.samples.as_flattened());
        classes.any(|(was_seen, samples)| !was_seen && samples.count >= SAMPLES_MIN)
    }

    /// What was used of the depth in this window.
    fn used(&self) -> u32 {
        u32::try_from(self.peak.div_ceil(COST_MIN.into())).unwrap_or(MAX).min(self.requests)
    }

    /// How many times as long as alone requests take, in [`RATIO`]s, and whether they take nothing.
    fn stretched(&self) -> Option<(u64, bool)> {
        let mut count = 0;
        let mut sum_us = 0;
        let mut ratios = 0;
        for (alone, samples) in self.alone().as_flattened().iter().zip(self.samples.as_flattened()) {
            let (Some(alone), Some(mean)) = (*alone, samples.mean()) else { continue };
            count += u64::from(samples.count);
            sum_us += samples.sum_us;
            ratios += u64::from(samples.count) * (mean * RATIO).checked_div(alone).unwrap_or(RATIO);
        }
        Some((ratios.checked_div(count)?, sum_us < IMMEDIATE_US * count))
    }

    /// How many requests the device did at a time, if each took what it takes alone.
    fn done_at_a_time(&self, took_us: u64) -> u64 {
        let all = self.alone();
        let of_classes = all.as_flattened().iter().zip(self.samples.as_flattened());
        let time = of_classes.map(|(alone, samples)| alone.unwrap_or(0).saturating_mul(samples.count.into()));
        time.fold(0, u64::saturating_add) / took_us
    }

    /// The depth beside a flow with few requests at a time; `None` if it is not known yet.
    fn light_depth(&self) -> Option<u32> {
        let mean_cost = self.cost_sum.checked_div(self.latency_sum)?;
        let cost = self.parallel.known.saturating_mul(mean_cost) / RATIO * LIGHT_PERCENT / 100;
        // The last one exceeds the depth, which matters where there are few.
        let last = if self.parallel.known >= LIGHT_FEW * RATIO { mean_cost } else { 0 };
        let cost = cost.saturating_sub(last);
        let depth = cost.div_ceil(COST_MIN.into());
        (depth > 0).then(|| u32::try_from(depth).unwrap_or(MAX).clamp(MIN, MAX))
    }

    fn adapt(&mut self, took_us: u64) {
        if !self.is_short {
            // What nobody uses would take long to be found too much.
            self.requests = self.requests.min((2 * self.used()).max(START));
        }
        let Some((ratio, is_immediate)) = self.stretched() else { return };
        if is_immediate {
            self.requests = IMMEDIATE;
            return;
        }
        // Beside a flow with few requests it has less than it could do.
        let follows = if self.light_left > 0 { None } else { Some(16) };
        self.parallel.note(self.done_at_a_time(took_us), ratio, follows);
        if self.light_left == 0 {
            self.until_probe = 0;
        } else if let Some(depth) = self.light_depth() {
            self.requests = depth;
            if let Some(left) = self.until_probe.checked_sub(1) {
                self.until_probe = left;
            } else if self.is_short
                && let Stage::Steady(left) = self.stage
            {
                self.until_probe = PROBE_EVERY;
                self.until_look = left;
                self.requests = depth.saturating_mul(PROBE_FACTOR).min(MAX);
                self.stage = Stage::Probing { depth, left: PROBE };
            }
            return;
        }
        let tried = if ratio > LESS_ABOVE && !self.tries_more {
            // If less was there than may be, that is what is too much.
            let peak = self.used();
            let wanted = u64::from(peak) * WANTED / ratio;
            u32::try_from(wanted).unwrap_or(MAX).clamp(peak / 8, peak - peak / 4).max(MIN)
        } else if !self.is_short {
            return;
        } else if ratio < GROW_BELOW {
            self.requests = (self.requests + self.requests / 4 + 1).min(MAX);
            return;
        } else {
            (self.requests + self.requests / 4 + 1).min(MAX)
        };
        // More is there than ever was of any use.
        let is_urgent = tried < self.requests && self.used() > self.needed;
        if let Some(left) = self.pause.checked_sub(1).filter(|_| !is_urgent) {
            self.pause = left;
        } else if tried != self.requests
            && let Stage::Steady(left) = self.stage
        {
            self.until_look = left;
            self.stage = Stage::Trying { depth: self.requests, windows: 0, sum: 0 };
            self.requests = tried;
        }
    }
}

#[cfg(test)]
mod tests;
