//! What a scheduler knows of one flow: its share, its place in virtual time, its limits, and what
//! it has had.

use crate::bucket::Bucket;
use crate::flow::{Figures, Share};
use crate::requests::List;

/// Cost that a flow of weight 1 gets for one step of virtual time, as a power of two.
const TAG_SHIFT: u32 = 12;

/// How much of a rate may be used at once, microseconds of it: a thread looks at its timers late,
/// and a limit is to be reached all the same.
const BURST_US: u64 = 20_000;

/// How much of its minimum a flow may catch up, microseconds of it.
const CATCH_UP_US: u64 = 50_000;

/// A flow that was served for its minimum is not further ahead than by so many of its last
/// requests: what it has got above its share is not held against it for ever.
const AHEAD_MAX: u64 = 16;

/// The state of a flow.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) share: Share,
    /// Start tag of its next request.
    pub(crate) start: u64,
    /// What division left over at the last steps of `start`.
    remainder: u64,
    pub(crate) waiting: List,
    iops: Option<Bucket>,
    bytes: Option<Bucket>,
    minimum: Option<Bucket>,
    /// Since when a limit keeps it, while it has something waiting.
    throttled_since_us: Option<u64>,
    /// When it last had something to do.
    pub(crate) seen_us: Option<u64>,
    pub(crate) figures: Figures,
}

impl State {
    pub(crate) fn new() -> Self {
        Self {
            share: Share::default(),
            start: 0,
            remainder: 0,
            waiting: List::default(),
            iops: None,
            bytes: None,
            minimum: None,
            throttled_since_us: None,
            seen_us: None,
            figures: Figures::default(),
        }
    }

    pub(crate) fn set_share(&mut self, share: Share, now_us: u64) {
        let share = Share { weight: share.weight.max(1), ..share };
        if share.weight != self.share.weight {
            self.remainder = 0;
        }
        self.share = share;
        set(&mut self.iops, share.iops, BURST_US, now_us);
        set(&mut self.bytes, share.bytes_per_second, BURST_US, now_us);
        set(&mut self.minimum, share.minimum_iops, 0, now_us);
    }

    /// Whether limits have to be looked at.
    pub(crate) fn is_limited(&self) -> bool {
        self.iops.is_some() || self.bytes.is_some()
    }

    /// It has something to do again: it has no credit from before.
    pub(crate) fn begin(&mut self, virtual_time: u64, now_us: u64) {
        self.start = self.start.max(virtual_time);
        if let Some(minimum) = &mut self.minimum {
            minimum.forget_unused(now_us);
        }
    }

    /// It has nothing waiting any more.
    pub(crate) fn end(&mut self, now_us: u64) {
        self.note_throttled(now_us, None);
    }

    /// When its limits let the next request through, microseconds: in the past if they do now.
    pub(crate) fn ready_us(&self) -> u64 {
        let ready = |bucket: &Option<Bucket>| bucket.as_ref().map_or(0, Bucket::ready_us);
        ready(&self.iops).max(ready(&self.bytes))
    }

    /// A limit keeps it from now on.
    pub(crate) fn throttle(&mut self, now_us: u64) {
        self.throttled_since_us.get_or_insert(now_us);
    }

    /// No limit keeps it: while one did, it was as good as idle.
    pub(crate) fn unthrottle(&mut self, virtual_time: u64, now_us: u64) {
        if self.throttled_since_us.is_some() {
            self.note_throttled(now_us, None);
            self.start = self.start.max(virtual_time);
        }
    }

    fn note_throttled(&mut self, now_us: u64, since_us: Option<u64>) {
        if let Some(since) = core::mem::replace(&mut self.throttled_since_us, since_us) {
            self.figures.throttled_us += now_us.saturating_sub(since);
        }
    }

    /// Its figures, with what has passed until now.
    pub(crate) fn figures(&self, now_us: u64) -> Figures {
        let since = self.throttled_since_us.map_or(0, |since| now_us.saturating_sub(since));
        Figures { throttled_us: self.figures.throttled_us + since, ..self.figures }
    }

    /// Since when it has had less than its minimum, nanoseconds, because a minimum may be many
    /// requests in a microsecond; `None` if it has had it.
    pub(crate) fn lags_since_ns(&self, now_us: u64) -> Option<u64> {
        let minimum = self.minimum.as_ref()?;
        (minimum.ready_us() <= now_us).then(|| minimum.ready_ns())
    }

    /// A request of `cost` and `bytes` goes to the device.
    pub(crate) fn charge(&mut self, cost: u32, bytes: u64, by_minimum: bool, virtual_time: u64, now_us: u64) {
        let weight = u64::from(self.share.weight);
        let scaled = (u64::from(cost) << TAG_SHIFT) + self.remainder;
        let step = scaled / weight;
        self.remainder = scaled % weight;
        self.start = self.start.saturating_add(step);
        if by_minimum {
            self.start = self.start.min(virtual_time.saturating_add(AHEAD_MAX * step));
        }
        if let Some(iops) = &mut self.iops {
            iops.take(1, now_us);
        }
        if let Some(rate) = &mut self.bytes {
            rate.take(bytes, now_us);
        }
        if let Some(minimum) = &mut self.minimum {
            minimum.take(1, now_us.saturating_sub(CATCH_UP_US));
        }
        self.figures.admitted += 1;
        self.figures.cost += u64::from(cost);
    }
}

fn set(bucket: &mut Option<Bucket>, per_second: Option<u64>, burst_us: u64, now_us: u64) {
    match (bucket.as_mut(), per_second) {
        (_, None) => *bucket = None,
        (None, Some(rate)) => *bucket = Some(Bucket::new(rate, burst_us)),
        (Some(known), Some(rate)) => known.set_rate(rate, now_us),
    }
}
