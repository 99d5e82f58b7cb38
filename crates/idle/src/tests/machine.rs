//! A simulated machine: processors with a fair scheduler, two ends that exchange commands, and
//! programs that compute.
//!
//! The scheduler does what matters of Linux' (EEVDF): who has had least runs, for a slice; who
//! yields stands behind all others for a slice; who wakes up runs at once in place of one that has
//! had more, but what it slept counts little.

use std::time::Duration;

use super::super::{Idle, IdleStep};

/// A slice, microseconds.
const SLICE_US: u64 = 3_000;

/// What a thread that has slept may be behind all others, microseconds of weight 1.
const CREDIT_US: f64 = 3_000.0;

/// One poll of a socket without a message, microseconds.
const POLL_US: u64 = 1;

/// To wake a thread on this processor and on another one, microseconds.
const WAKE_US: [u64; 2] = [4, 40];

/// To receive a batch, and to serve each command of it, microseconds.
const BATCH_US: u64 = 10;
const COMMAND_US: u64 = 2;

/// How an end waits.
#[derive(Clone, Debug)]
pub(super) enum Waits {
    /// It yields after every few polls, for ever.
    Yielding,
    /// It spins for 200 µs without yielding, then sleeps.
    Spinning,
    /// It sleeps at once.
    Sleeping,
    Policy(Box<Idle>),
}

/// What a thread is doing.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Computing,
    Polling,
    /// Since when.
    Yielded(u64),
    /// Until when at most, and whether something has come.
    Asleep(u64, bool),
    /// Runnable again from then on.
    Waking(u64),
    Serving(u64),
}

#[derive(Clone, Debug)]
struct Thread {
    processor: usize,
    /// How fast its time counts: 1, or 68 for nice 19.
    weight: f64,
    virtual_us: f64,
    state: State,
    /// The processor time that the present action still takes, microseconds.
    left_us: u64,
    waits: Waits,
    inbox: u64,
    polls: u32,
    waits_since_us: Option<u64>,
    switches: u64,
    done: u64,
}

/// Processors, threads 0 and 1 that are the ends, and others.
pub(super) struct Machine {
    now_us: u64,
    threads: Vec<Thread>,
    /// Who runs on each processor, and for how long it has.
    running: Vec<Option<(usize, u64)>>,
    /// The virtual time of each processor: of whoever ran last.
    virtual_us: Vec<f64>,
}

impl Machine {
    /// Two ends on their processors, with `depth` commands between them.
    pub(super) fn new(ends: [usize; 2], depth: u64, waits: [Waits; 2]) -> Self {
        let mut threads: Vec<_> = ends
            .into_iter()
            .zip(waits)
            .map(|(processor, waits)| Thread::new(processor, 1.0, State::Polling, waits))
            .collect();
        threads[0].inbox = depth;
        Self { now_us: 0, threads, running: vec![None; 2], virtual_us: vec![0.0; 2] }
    }

    /// Puts the ends and programs that compute on these processors, in place of those before.
    pub(super) fn arrange(&mut self, ends: [usize; 2], programs: &[usize], nice: bool) {
        self.running = vec![None; 2];
        self.threads.truncate(2);
        for (thread, processor) in self.threads.iter_mut().zip(ends) {
            thread.processor = processor;
            thread.virtual_us = self.virtual_us[processor];
        }
        for &processor in programs {
            let weight = if nice { 68.0 } else { 1.0 };
            let mut thread = Thread::new(processor, weight, State::Computing, Waits::Sleeping);
            thread.virtual_us = self.virtual_us[processor];
            self.threads.push(thread);
        }
    }

    /// Commands done in so many milliseconds.
    pub(super) fn run(&mut self, ms: u64) -> u64 {
        let before = self.threads[0].done;
        let end_us = self.now_us + ms * 1000;
        while self.now_us < end_us {
            self.tick();
        }
        self.threads[0].done - before
    }

    /// The clock of a thread: no two began at the same time.
    fn clock_us(&self, index: usize) -> u64 {
        self.now_us + 7_654_321 * index as u64
    }

    fn is_runnable(&self, index: usize) -> bool {
        !matches!(self.threads[index].state, State::Asleep(..) | State::Waking(_))
    }

    /// The least virtual time on a processor of all but one.
    fn least(&self, processor: usize, but: usize) -> Option<f64> {
        let others = (0..self.threads.len()).filter(|&at| at != but && self.is_runnable(at));
        others
            .filter(|&at| self.threads[at].processor == processor)
            .map(|at| self.threads[at].virtual_us)
            .reduce(f64::min)
    }

    fn tick(&mut self) {
        self.now_us += 1;
        for index in 0..2 {
            self.wake_up(index);
        }
        for processor in 0..self.running.len() {
            let current = self.running[processor].filter(|&(at, had_us)| {
                at < self.threads.len()
                    && self.is_runnable(at)
                    && had_us < SLICE_US
                    && !matches!(self.threads[at].state, State::Yielded(_))
            });
            let before = self.running[processor].map(|(at, _)| at);
            let (index, had_us) = match current {
                Some(current) => current,
                None => match self.next_on(processor) {
                    Some(next) => (next, 0),
                    None => {
                        self.running[processor] = None;
                        continue;
                    }
                },
            };
            if let Some(before) = before.filter(|&before| before != index && before < self.threads.len()) {
                self.threads[before].switches += u64::from(self.is_runnable(before));
            }
            self.running[processor] = Some((index, had_us + 1));
            self.threads[index].virtual_us += self.threads[index].weight;
            self.virtual_us[processor] = self.threads[index].virtual_us;
            self.advance(index);
        }
    }

    fn next_on(&self, processor: usize) -> Option<usize> {
        let here =
            (0..self.threads.len()).filter(|&at| self.threads[at].processor == processor && self.is_runnable(at));
        here.min_by(|&one, &other| self.threads[one].virtual_us.total_cmp(&self.threads[other].virtual_us))
    }

    /// Ends the sleep of an end that has something, or whose time is over.
    fn wake_up(&mut self, index: usize) {
        let now_us = self.now_us;
        let clock_us = self.clock_us(index);
        match self.threads[index].state {
            State::Asleep(until_us, has_come) if has_come || until_us <= now_us => {
                self.threads[index].state = State::Waking(now_us);
            }
            State::Waking(from_us) if from_us <= now_us => {
                let processor = self.threads[index].processor;
                if let Some(least) = self.least(processor, index) {
                    let thread = &mut self.threads[index];
                    thread.virtual_us = thread.virtual_us.max(least - CREDIT_US);
                }
                self.threads[index].state = State::Polling;
                self.threads[index].left_us = POLL_US;
                let woken_us = self.threads[index].virtual_us;
                if let Some((current, _)) = self.running[processor]
                    && current < self.threads.len()
                    && woken_us < self.threads[current].virtual_us
                {
                    self.threads[current].switches += u64::from(self.is_runnable(current));
                    self.running[processor] = Some((index, 0));
                }
                let has_come = self.threads[index].inbox > 0;
                if let Waits::Policy(idle) = &mut self.threads[index].waits {
                    idle.woke(clock_us, has_come);
                }
            }
            _ => {}
        }
    }

    /// A microsecond of a thread that runs.
    fn advance(&mut self, index: usize) {
        let now_us = self.now_us;
        let clock_us = self.clock_us(index);
        let thread = &mut self.threads[index];
        if let State::Yielded(since_us) = thread.state {
            let (away_us, switches) = (now_us - since_us, thread.switches);
            if let Waits::Policy(idle) = &mut thread.waits {
                idle.gave_way(clock_us - away_us, Duration::from_micros(away_us), || switches);
            }
            (thread.state, thread.left_us) = (State::Polling, POLL_US);
        }
        thread.left_us = thread.left_us.saturating_sub(1);
        if thread.left_us > 0 || thread.state == State::Computing {
            return;
        }
        match thread.state {
            State::Serving(commands) => {
                thread.done += commands;
                (thread.state, thread.left_us) = (State::Polling, POLL_US);
                self.send(index, commands);
            }
            _ if thread.inbox > 0 => {
                let commands = std::mem::take(&mut thread.inbox);
                if let Waits::Policy(idle) = &mut thread.waits
                    && idle.is_waiting()
                {
                    idle.found(clock_us);
                }
                (thread.polls, thread.waits_since_us) = (0, None);
                (thread.state, thread.left_us) = (State::Serving(commands), BATCH_US + COMMAND_US * commands);
            }
            _ => self.wait(index),
        }
    }

    fn send(&mut self, from: usize, commands: u64) {
        let is_far = self.threads[0].processor != self.threads[1].processor;
        let peer = &mut self.threads[1 - from];
        peer.inbox += commands;
        if let State::Asleep(until_us, false) = peer.state
            && until_us > self.now_us
        {
            peer.state = State::Waking(self.now_us + WAKE_US[usize::from(is_far)]);
        }
    }

    /// A poll has found nothing.
    fn wait(&mut self, index: usize) {
        let now_us = self.now_us;
        let clock_us = self.clock_us(index);
        let least = self.least(self.threads[index].processor, index);
        let thread = &mut self.threads[index];
        thread.left_us = POLL_US;
        thread.polls += 1;
        let since_us = *thread.waits_since_us.get_or_insert(now_us);
        let (yields, sleeps) = match &mut thread.waits {
            Waits::Yielding => (thread.polls.is_multiple_of(8), None),
            Waits::Spinning => (false, (now_us - since_us > 200).then_some(u64::MAX)),
            Waits::Sleeping => (false, Some(u64::MAX)),
            Waits::Policy(idle) => {
                if !thread.polls.is_multiple_of(idle.polls_per_step()) {
                    return;
                }
                idle.set_work(thread.done);
                match idle.step(clock_us) {
                    IdleStep::GiveWay => (idle.yields(), None),
                    IdleStep::Sleep(bound_us) => (false, Some(bound_us.map_or(u64::MAX, |us| now_us + us))),
                }
            }
        };
        if let Some(until_us) = sleeps {
            thread.state = State::Asleep(until_us, false);
        } else if yields {
            thread.state = State::Yielded(now_us);
            // Behind all others, but by a slice at most.
            if let Some(least) = least {
                let slice_us = SLICE_US as f64;
                thread.virtual_us = (least + 1.0).clamp(thread.virtual_us, thread.virtual_us + slice_us);
            }
        }
    }
}

impl Thread {
    fn new(processor: usize, weight: f64, state: State, waits: Waits) -> Self {
        Self {
            processor,
            weight,
            virtual_us: 0.0,
            state,
            left_us: POLL_US,
            waits,
            inbox: 0,
            polls: 0,
            waits_since_us: None,
            switches: 0,
            done: 0,
        }
    }
}
