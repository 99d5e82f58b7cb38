//! The test rig that all levels are built on: the clock, the chances, the disk, the model's time
//! and what is counted; and how a system that consists of parts goes on, sleeps, rests, crashes and
//! restarts. The acts that all levels have in common are in `rig/acts.rs`. What the parts are and
//! what may be seen of them is the level's.

pub mod acts;
pub(crate) mod drive;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_clock::Clock;
use ebof_drive::layout::Layout;

use crate::disk::image::Image;
use crate::disk::{Disk, Loss, Profile};
use crate::model::{Blocks, Op, Tick};
use crate::random::{Random, mix};
use crate::story::{Failure, Report, fail, trace};

use acts::{Act, SystemAct};

/// Bytes of an extent.
pub(crate) const EXTENT: u64 = 256 << 10;
/// Virtual time after which everything that was asked for has come to its end, if nothing fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// Steps after which the same holds.
const STEPS_MAX: u32 = 400_000;
/// After the last failure of the disk, for so long something may fail for that reason.
const GRACE: Duration = Duration::from_secs(3);
/// How many of 100 turns of a part are left out: it is late by a random time.
const LATE_PERCENT: u64 = 20;
/// The longest time between two steps.
const STEP_MAX: Duration = Duration::from_millis(10);

/// What every level has.
pub(crate) struct Rig {
    seed: u64,
    begin: Instant,
    pub(crate) clock: Clock,
    pub(crate) chances: Random,
    pub(crate) profile: Profile,
    pub(crate) disk: Arc<Disk>,
    /// Everything is being read: single reads are not worth a line.
    pub(crate) is_comparing: bool,
    tick: Tick,
    last: Op,
    /// When the disk has last failed at something, or may have.
    failed: Option<Instant>,
    /// The same, in the lives before.
    failed_before: Option<Instant>,
    /// Steps in a row for which there was something due at once.
    hurries: u32,
    digest: u64,
    counts: BTreeMap<&'static str, u64>,
}

impl Rig {
    /// An empty disk for a drive of this size.
    pub(crate) fn new(seed: u64, drive_bytes: u64) -> Result<Self, Failure> {
        let capacity = ebof_medium::medium_bytes(drive_bytes).map_err(|error| Failure(error.to_string()))?;
        let data = Layout::new(drive_bytes, [0; 16]).map_err(|error| Failure(error.to_string()))?.data();
        Ok(Self::over(seed, capacity, data))
    }

    /// An empty disk of this size, on which namespaces have their blocks from `data` on.
    pub(crate) fn over(seed: u64, capacity_bytes: u64, data: u64) -> Self {
        let mut random = Random::for_part(seed, 2);
        let clock = Clock::simulated(random.number());
        // Some disks are slow most of the time: then commands meet at them.
        let seldom = (random.below(8), 1 << random.below(9));
        let often = (20 + random.below(50), 16 << random.below(3));
        let (slow_percent, slow_ms) = random.weighted(&[(3, seldom), (2, often)]);
        let profile = Profile {
            capacity_bytes,
            sector_bytes: if random.percent(60) { 512 } else { 4096 },
            quick: Duration::from_micros(1 << random.below(10)),
            slow: (slow_percent, Duration::from_millis(slow_ms)),
            data,
        };
        let disk = Disk::new(profile, Image::default(), clock.clone(), random.number());
        let begin = clock.now();
        Self {
            seed,
            begin,
            clock,
            chances: random,
            profile,
            disk,
            is_comparing: false,
            tick: 1,
            last: 1,
            failed: None,
            failed_before: None,
            hurries: 0,
            digest: 0,
            counts: BTreeMap::new(),
        }
    }

    pub(crate) fn report(&self) -> Report {
        let mut counts = self.counts.clone();
        for (name, count) in self.disk.counts() {
            *counts.entry(name).or_default() += count;
        }
        let time = self.clock.now() - self.begin;
        Report { time, counts: counts.into_iter().collect(), digest: self.digest ^ self.disk.image().digest() }
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Keeps a line for the report of a failing story.
    pub(crate) fn note(&self, line: impl FnOnce() -> String) {
        let time = self.clock.now() - self.begin;
        trace(|| format!("{time:?} {}", line()));
    }

    /// The next moment of the model.
    pub(crate) fn now(&mut self) -> Tick {
        self.tick += 2;
        self.tick
    }

    /// The number of the next operation.
    pub(crate) fn number(&mut self) -> Op {
        self.last += 1;
        self.last
    }

    /// How an operation has ended goes into the digest.
    pub(crate) fn digest(&mut self, op: Op, how: u64) {
        self.digest = mix(self.digest ^ op ^ how << 32);
    }

    /// Whether something that began then may fail for what the disk did.
    pub(crate) fn may_fail(&self, began: Instant) -> bool {
        self.disk.is_faulty()
            || self.failed.is_some_and(|failed| began <= failed + GRACE)
            || self.failed_before.is_some_and(|failed| began <= failed)
    }

    /// How long something may still fail once the disk works again.
    fn unrest(&self) -> Duration {
        self.failed.map_or(Duration::ZERO, |failed| (failed + GRACE).saturating_duration_since(self.clock.now()))
    }

    fn watch_disk(&mut self) {
        if self.disk.is_faulty() {
            self.failed = Some(self.clock.now());
        }
    }

    /// The numbers below `count` in the order that chance gives them.
    fn order(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for at in (1..count).rev() {
            order.swap(at, self.chances.index(at + 1));
        }
        order
    }

    /// Lets time pass until somebody has something to do, or for a little.
    fn pass_time(&mut self, due: Option<Instant>) {
        let now = self.clock.now();
        let due = due.into_iter().chain(self.disk.due()).min();
        let is_due = due.is_some_and(|due| due <= now);
        self.hurries = if is_due { (self.hurries + 1).min(120) } else { 0 };
        // What is due at once was looked at: the time still advances, a little and then more.
        let least = now + Duration::from_nanos(200 << (self.hurries / 8));
        let most = least.max(now + STEP_MAX);
        self.clock.advance_to(due.unwrap_or(most).clamp(least, most));
    }

    /// Has a process that was asked to stop come to its end.
    pub(crate) fn wind_up(&mut self, life: &mut impl Life) -> Result<(), Failure> {
        let end = self.clock.now() + PATIENCE;
        while !life.is_over() {
            if self.clock.now() > end {
                return fail("stopping does not come to its end");
            }
            self.disk.complete_due();
            (0..life.parts()).for_each(|part| life.turn(part));
            let due = life.due();
            self.pass_time(due);
        }
        Ok(())
    }
}

/// A process from when it is started to when it is stopped or killed. It is killed by being
/// dropped.
pub(crate) trait Life {
    /// Into how many parts it falls that have their turns.
    fn parts(&self) -> usize;

    /// One of them has its turn.
    fn turn(&mut self, part: usize);

    /// When there is something to do.
    fn due(&mut self) -> Option<Instant>;

    /// Whether it has stopped.
    fn is_over(&self) -> bool;
}

/// A process over a disk, those who use it, and what they may see.
pub(crate) trait System: Sized {
    /// What happens to it.
    type What: Copy + std::fmt::Debug;

    fn rig(&mut self) -> &mut Rig;

    /// Something happens.
    fn act(&mut self, what: Self::What) -> Result<(), Failure>;

    /// Into how many parts it falls that have their turns; the disk is another one.
    fn parts(&self) -> usize;

    /// One of them has its turn.
    fn turn(&mut self, part: usize) -> Result<(), Failure>;

    /// What follows when all have had their turns.
    fn after_turns(&mut self) -> Result<(), Failure>;

    /// When a part has something to do.
    fn due(&mut self) -> Option<Instant>;

    /// What is under way, for people.
    fn under_way(&self) -> String;

    /// The blocks of every namespace.
    fn each_blocks(&mut self, change: impl FnMut(&mut Blocks));

    /// The process is started, and everything is compared.
    fn start(&mut self) -> Result<(), Failure>;

    /// It is stopped in order.
    fn stop(&mut self) -> Result<(), Failure>;

    /// It is killed.
    fn kill(&mut self) -> Result<(), Failure>;

    /// All that is under way comes to its end, and everything is compared. The disk works.
    fn drain(&mut self) -> Result<(), Failure>;

    /// Plays a story.
    fn play(mut self, acts: &[Act<Self::What>]) -> Result<Report, Failure> {
        self.start()?;
        for act in acts {
            self.rig().chances = Random::new(act.chances);
            self.rig().note(|| format!("-- {:?}", act.what));
            self.act(act.what)?;
            (0..act.steps).try_for_each(|_| self.step())?;
        }
        self.rig().chances = Random::for_part(self.rig().seed, 3);
        self.restart()?;
        self.stop_flushed()?;
        Ok(self.rig().report())
    }

    /// Something happens to the disk or to the process.
    fn system_act(&mut self, act: SystemAct) -> Result<(), Failure> {
        let disk = &self.rig().disk;
        match act {
            SystemAct::Sleep(time) => return self.sleep(time),
            SystemAct::Fail(fault) => disk.fail(fault),
            SystemAct::Stand(time) => disk.stand(time),
            SystemAct::Lag { count, writes, time } => disk.lag(count, writes, time),
            SystemAct::Heal => disk.heal(),
            SystemAct::Rest => return self.rest(),
            SystemAct::Restart => return self.restart(),
            SystemAct::Kill { after } => return self.crash(after, None),
            SystemAct::PowerCut { after, loss } => return self.crash(after, Some(loss)),
        }
        Ok(())
    }

    /// Something happens somewhere.
    fn step(&mut self) -> Result<(), Failure> {
        self.rig().watch_disk();
        let parts = self.parts();
        let mut is_late = false;
        for part in self.rig().order(parts + 1) {
            if self.rig().chances.percent(LATE_PERCENT) {
                is_late = true;
            } else if part == parts {
                self.rig().disk.complete_due();
            } else {
                self.turn(part)?;
            }
        }
        self.after_turns()?;
        if !is_late {
            let due = self.due();
            self.rig().pass_time(due);
        }
        self.rig().watch_disk();
        Ok(())
    }

    /// Steps until something holds; `false` where the power goes before that.
    fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) -> Result<bool, Failure> {
        let begun = self.rig().clock.now();
        let mut steps = 0;
        while steps < STEPS_MAX {
            if self.rig().disk.is_off() {
                return Ok(false);
            }
            if holds(self) {
                return Ok(true);
            }
            if self.rig().clock.now() > begun + PATIENCE {
                break;
            }
            self.step()?;
            steps += 1;
        }
        // If little time has passed, somebody asks again and again; otherwise something is stuck.
        let seconds = (self.rig().clock.now() - begun).as_secs_f64();
        let under_way = self.under_way();
        fail(format!(
            "{what}: this does not come to its end, in {steps} steps and {seconds:.1} s; under way: {under_way}"
        ))
    }

    /// Steps for some time, or until the power goes.
    fn sleep(&mut self, time: Duration) -> Result<(), Failure> {
        let end = self.rig().clock.now() + time;
        for _ in 0..3000 {
            if self.rig().clock.now() >= end || self.rig().disk.is_off() {
                break;
            }
            self.step()?;
        }
        Ok(())
    }

    /// All that is under way comes to its end, the disk works, and everything is compared.
    fn rest(&mut self) -> Result<(), Failure> {
        self.rig().disk.heal();
        let unrest = self.rig().unrest();
        self.sleep(unrest)?;
        self.drain()
    }

    /// Stopped in order, and started again.
    fn restart(&mut self) -> Result<(), Failure> {
        self.rest()?;
        self.stop_flushed()?;
        self.start()
    }

    /// Stopped in order: what was acknowledged is flushed.
    fn stop_flushed(&mut self) -> Result<(), Failure> {
        self.stop()?;
        let now = self.rig().now();
        self.each_blocks(|blocks| blocks.flushed(now, now));
        Ok(())
    }

    /// Killed, or cut off, when the disk has done so many more things, and started again.
    fn crash(&mut self, after: u64, loss: Option<Loss>) -> Result<(), Failure> {
        self.rig().disk.cut_after(after);
        for _ in 0..self.rig().chances.below(200) {
            if self.rig().disk.is_off() {
                break;
            }
            self.step()?;
        }
        self.end(loss)?;
        self.start()
    }

    /// The process ends now: it is killed, or the power goes.
    fn end(&mut self, loss: Option<Loss>) -> Result<(), Failure> {
        self.rig().count(if loss.is_some() { "power cuts" } else { "kills" });
        self.rig().disk.cut();
        self.kill()?;
        let rig = self.rig();
        rig.disk.end(loss);
        // An initiator may still have the response to a command that failed before.
        rig.failed_before = rig.failed.take().or(rig.failed_before);
        let now = rig.now();
        self.each_blocks(|blocks| match loss {
            Some(_) => blocks.lost_power(now),
            None => blocks.killed(now),
        });
        Ok(())
    }
}
