//! The exponentiations of authentication, which take milliseconds: on a thread of their own, so
//! that no connection waits for another one's.
//!
//! Whoever knows the name of a host can have some computed. Networks take turns, and what a
//! connection wanted that is gone is not computed, so that many of them cost others one turn.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::num::NonZeroU32;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

use ebof_authentication::{Computed, Entropy, SequenceNumbers, Work};
use ebof_clock::{Clock, NoRandomness};

use super::mailbox::{CommandRef, CommandReply, Mailbox, Message, mailbox_of};
use super::priority::go_after_reactors;
use crate::observe::log_limit::LogSubject;

/// What authentication needs that all connections share.
pub(crate) struct Exponentiation {
    clock: Clock,
    sequence: Mutex<SequenceNumbers>,
    turns: Arc<Turns>,
    /// There is one from the first work on.
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What is to be computed, and by whom it is waited for.
struct Turns {
    reactors: Vec<Mailbox>,
    waiting: Mutex<Waiting>,
    more: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// Those with work, whose turn is next at the front.
    order: VecDeque<LogSubject>,
    jobs: HashMap<LogSubject, VecDeque<Job>>,
    closed: bool,
}

struct Job {
    work: Work,
    reply: CommandRef,
    /// Gone with the connection.
    wanted: Weak<()>,
}

impl Exponentiation {
    /// Without a thread as long as there is no work.
    pub(crate) fn new(clock: Clock, reactors: Vec<Mailbox>) -> Self {
        let mut random = [0; 4];
        // A number that is not secret; without randomness no transaction begins.
        let _ = clock.fill(&mut random);
        let sequence = Mutex::new(SequenceNumbers::beginning_with(u32::from_le_bytes(random)));
        let turns = Arc::new(Turns { reactors, waiting: Mutex::default(), more: Condvar::new() });
        Self { clock, sequence, turns, thread: Mutex::default() }
    }

    /// Random bytes for a message.
    ///
    /// # Errors
    /// The system has none.
    pub(crate) fn entropy(&self) -> Result<Entropy, NoRandomness> {
        let sequence: NonZeroU32 = self.sequence.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut result = Ok(());
        let entropy = Entropy::new(sequence, |bytes| result = result.and_then(|()| self.clock.fill(bytes)));
        result.map(|()| entropy)
    }

    /// Has `work` done for somebody at `whose`, as long as what is returned is kept; `reply` gets
    /// the result. On a simulated clock there is no thread, and it is done now.
    ///
    /// # Errors
    /// There is no thread for it.
    pub(crate) fn begin(&self, work: Work, reply: CommandRef, whose: LogSubject) -> io::Result<Arc<()>> {
        let wanted = Arc::new(());
        if self.clock.is_simulated() {
            self.turns.answer(reply, work.run());
            return Ok(wanted);
        }
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.as_ref().is_none_or(JoinHandle::is_finished) {
            let turns = Arc::clone(&self.turns);
            let builder = std::thread::Builder::new().name("ebof-exponents".to_owned());
            *thread = Some(builder.spawn(move || turns.run())?);
        }
        drop(thread);
        self.turns.waiting().add(whose, Job { work, reply, wanted: Arc::downgrade(&wanted) });
        self.turns.more.notify_one();
        Ok(wanted)
    }
}

impl Drop for Exponentiation {
    fn drop(&mut self) {
        self.turns.waiting().closed = true;
        self.turns.more.notify_one();
    }
}

impl Turns {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread: until the target is gone.
    fn run(&self) {
        go_after_reactors();
        loop {
            let job = {
                let mut waiting = self.waiting();
                loop {
                    if waiting.closed {
                        return;
                    }
                    match waiting.take() {
                        Some(job) => break job,
                        None => waiting = self.more.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                    }
                }
            };
            self.answer(job.reply, job.work.run());
        }
    }

    fn answer(&self, to: CommandRef, computed: Computed) {
        mailbox_of(&self.reactors, to.handle).post(Message::Reply { to, reply: CommandReply::Computed(computed) });
    }
}

impl Waiting {
    fn add(&mut self, whose: LogSubject, job: Job) {
        let jobs = self.jobs.entry(whose.clone()).or_default();
        if jobs.is_empty() {
            self.order.push_back(whose);
        }
        // So that there are no more than connections.
        jobs.retain(|job| job.wanted.strong_count() > 0);
        jobs.push_back(job);
    }

    /// The next one that is still wanted.
    fn take(&mut self) -> Option<Job> {
        while let Some(whose) = self.order.pop_front() {
            let jobs = self.jobs.get_mut(&whose).expect("who has a turn has jobs: they are removed together");
            jobs.retain(|job| job.wanted.strong_count() > 0);
            let job = jobs.pop_front();
            if jobs.is_empty() {
                self.jobs.remove(&whose);
            } else {
                self.order.push_back(whose);
            }
            if job.is_some() {
                return job;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use ebof_authentication::{Group, KeyMaterial};
    use ebof_fabrics::Handle;

    use super::*;

    fn job(slot: u32) -> (Job, Arc<()>) {
        let wanted = Arc::new(());
        let work = Work::public(Group::Ffdhe2048, KeyMaterial::new(vec![1; 32]));
        (Job { work, reply: CommandRef { handle: Handle(1), slot }, wanted: Arc::downgrade(&wanted) }, wanted)
    }

    fn network(last: u8) -> LogSubject {
        IpAddr::from([192, 0, 2, last]).into()
    }

    fn taken(waiting: &mut Waiting) -> Vec<u32> {
        std::iter::from_fn(|| waiting.take()).map(|job| job.reply.slot).collect()
    }

    #[test]
    fn networks_take_turns() {
        let mut waiting = Waiting::default();
        let mut kept = Vec::new();
        for (slot, of) in [(1, 1), (2, 1), (3, 1), (4, 2), (5, 3)] {
            let (job, wanted) = job(slot);
            kept.push(wanted);
            waiting.add(network(of), job);
        }
        assert_eq!(taken(&mut waiting), [1, 4, 5, 2, 3]);
        assert!(waiting.jobs.is_empty() && waiting.order.is_empty());
    }

    #[test]
    fn what_nobody_waits_for_is_not_computed_and_not_kept() {
        let mut waiting = Waiting::default();
        for slot in 0..1000 {
            waiting.add(network(1), job(slot).0);
        }
        assert_eq!(waiting.jobs[&network(1)].len(), 1, "each that comes has the others looked at");
        let (last, _wanted) = job(7);
        waiting.add(network(2), last);
        assert_eq!(taken(&mut waiting), [7]);
    }
}
