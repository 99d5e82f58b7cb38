//! The scheduler of one device: who is next, and whether anybody may be.
//!
//! ```text
//! submit -> Go ----------------------------> at the device -> settle
//!        \> Wait -> ... -> next returns it -/
//! ```
//!
//! Whoever calls [`Scheduler::submit`] or [`Scheduler::release`] calls [`Scheduler::next`] until it
//! returns nothing, and again at [`Scheduler::due_us`].

use alloc::vec::Vec;

use crate::cost::{Costs, Request};
use crate::depth::Depth;
use crate::flow::{Figures, Flow, Share};
use crate::requests::{self, Requests, Ticket};
use crate::state::State;

/// A flow without requests for this long is not counted as one that uses the device, microseconds.
const IDLE_US: u64 = 1_000_000;

/// Whether a single flow uses the device is looked at so often, microseconds.
const LOOK_US: u64 = 10_000;

/// Of so many requests that could go in the order of their tags one does, however many flows lag
/// behind their minimum.
const BY_TAG_EVERY: u32 = 8;

/// Virtual time begins anew from here. A flow of the least weight gets there within weeks, and one
/// of large requests within minutes; no tag is ahead of it by more than 2^46.
const VIRTUAL_TIME_MAX: u64 = 1 << 62;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes to the device now.
    Go(Ticket),
    /// It waits, until [`Scheduler::next`] returns it.
    Wait(Ticket),
}

impl Verdict {
    /// The request.
    pub const fn ticket(self) -> Ticket {
        match self {
            Self::Go(ticket) | Self::Wait(ticket) => ticket,
        }
    }
}

/// The scheduler of one device. `T` names a request for its owner.
#[derive(Debug)]
pub struct Scheduler<T> {
    /// By number, as far as they were used.
    flows: Vec<State>,
    /// Flows with something waiting.
    backlogged: Vec<Flow>,
    requests: Requests<T>,
    virtual_time: u64,
    at_device: u64,
    depth: Depth,
    costs: Costs,
    /// Requests that went to the device for somebody's minimum since the last one that did not.
    by_minimum: u32,
    due_us: Option<u64>,
    look_us: u64,
    /// A single flow uses the device: the depth is nobody's concern.
    is_sole: bool,
}

impl<T: Copy> Scheduler<T> {
    /// A device with nothing to do.
    #[must_use]
    pub const fn new(depth: Depth) -> Self {
        Self {
            flows: Vec::new(),
            backlogged: Vec::new(),
            requests: Requests::new(),
            virtual_time: 0,
            at_device: 0,
            depth,
            costs: Costs::new(),
            by_minimum: 0,
            due_us: None,
            look_us: 0,
            is_sole: false,
        }
    }

    fn flow(&mut self, flow: Flow) -> &mut State {
        if self.flows.len() <= flow.index() {
            self.flows.resize_with(flow.index() + 1, State::new);
        }
        &mut self.flows[flow.index()]
    }

    /// What `flow` is to get from now on.
    pub fn set_share(&mut self, flow: Flow, share: Share, now_us: u64) {
        self.flow(flow).set_share(share, now_us);
        self.is_sole = false;
        self.look_us = 0;
    }

    /// What `flow` is to get.
    #[must_use]
    pub fn share(&self, flow: Flow) -> Share {
        self.flows.get(flow.index()).map_or_else(Share::default, |state| state.share)
    }

    /// A request of `flow`. If it waits, others may have become ready: call [`Scheduler::next`].
    pub fn submit(&mut self, flow: Flow, request: Request, owner: T, now_us: u64) -> Verdict {
        self.is_sole = false;
        let virtual_time = self.virtual_time;
        let state = self.flow(flow);
        state.seen_us = Some(now_us);
        let is_first = state.waiting.is_empty();
        if is_first {
            state.begin(virtual_time, now_us);
        }
        let is_light = is_first && state.figures.at_device <= 1;
        // It has nothing at all, and had no more than its share.
        let is_idle = is_first && state.figures.at_device == 0 && state.start == virtual_time;
        state.figures.waiting += 1;
        if is_light {
            self.depth.note_light();
        }
        let ticket = self.requests.push(&mut self.flows[flow.index()].waiting, flow, request, owner, now_us);
        if is_first {
            debug_assert!(!self.backlogged.contains(&flow), "a flow that has nothing waiting any more is taken off");
            self.backlogged.push(flow);
            let pick = self.pick(now_us).filter(|pick| pick.flow == flow);
            let exceeds = || is_idle && self.may_exceed(flow, now_us);
            if let Some(pick) = pick.or_else(|| exceeds().then_some(Pick { flow, by_minimum: false })) {
                let (started, _) = self.start(pick, now_us);
                assert!(started == ticket, "a flow begins with its first request, and this is its only one");
                return Verdict::Go(ticket);
            }
        }
        Verdict::Wait(ticket)
    }

    /// The next request that goes to the device, if one may.
    pub fn next(&mut self, now_us: u64) -> Option<(Ticket, T)> {
        let pick = self.pick(now_us)?;
        Some(self.start(pick, now_us))
    }

    /// The device is done with a request, or it was withdrawn. A second time does nothing: tickets
    /// can be copied.
    pub fn release(&mut self, ticket: Ticket, now_us: u64) {
        let Some(&entry) = self.requests.get(ticket) else { return };
        let state = &mut self.flows[entry.flow.index()];
        state.seen_us = Some(now_us);
        if entry.state == requests::State::Waiting {
            self.requests.unlink(&mut state.waiting, ticket);
            state.figures.waiting = less_one(state.figures.waiting);
            if state.waiting.is_empty() {
                state.end(now_us);
                self.backlogged.retain(|flow| *flow != entry.flow);
            }
        } else {
            state.figures.at_device = less_one(state.figures.at_device);
            // What a request was charged stays with it, however costs change meanwhile.
            let at_device = self.at_device.checked_sub(entry.cost.into());
            self.at_device = at_device.expect("a request at the device is part of what is there");
            let latency_us = now_us.saturating_sub(entry.since_us);
            self.depth.note(entry.request, entry.cost, latency_us, &mut self.costs, now_us);
        }
        self.requests.free(ticket);
    }

    /// When a limit lets the next request through, microseconds: known once [`Scheduler::next`] has
    /// returned nothing.
    #[must_use]
    pub const fn due_us(&self) -> Option<u64> {
        self.due_us
    }

    /// The flow that uses the device alone, for a while already, and has no limit: it need not ask
    /// until another one does. What it has waiting may go: call [`Scheduler::next`]. It is looked
    /// for once in a while; `None` in between.
    pub fn sole(&mut self, now_us: u64) -> Option<Flow> {
        if now_us < self.look_us {
            return None;
        }
        self.look_us = now_us + LOOK_US;
        let is_used =
            |state: &State| state.seen_us.is_some_and(|seen| seen + IDLE_US > now_us) || state.figures.at_device > 0;
        let mut used = (0..).zip(&self.flows).filter(|(_, state)| is_used(state));
        let (number, state) = used.next()?;
        if used.next().is_some() || state.is_limited() {
            return None;
        }
        let flow = Flow::new(number)?;
        self.is_sole = self.backlogged.iter().all(|&backlogged| backlogged == flow);
        self.is_sole.then_some(flow)
    }

    /// `flow`, which did not ask, has used the device until now.
    pub fn note_use(&mut self, flow: Flow, now_us: u64) {
        self.flow(flow).seen_us = Some(now_us);
    }

    /// What a flow has had.
    #[must_use]
    pub fn figures(&self, flow: Flow, now_us: u64) -> Figures {
        self.flows.get(flow.index()).map_or_else(Figures::default, |state| state.figures(now_us))
    }

    /// The depth now.
    #[must_use]
    pub const fn depth(&self) -> &Depth {
        &self.depth
    }

    /// How many reads a write counts as.
    #[must_use]
    pub fn write_factor(&self) -> f64 {
        self.costs.write_factor()
    }

    /// Whether the only request of `flow` may go although the depth is reached. It is next in any
    /// case, and the device begins with it without a turn of a thread in between.
    fn may_exceed(&self, flow: Flow, now_us: u64) -> bool {
        let state = &self.flows[flow.index()];
        let is_ready = !state.is_limited() || state.ready_us() <= now_us;
        is_ready && (self.depth.cost()..2 * self.depth.cost()).contains(&self.at_device)
    }

    /// Whose turn it is; nobody's where the depth or limits keep all of them.
    fn pick(&mut self, now_us: u64) -> Option<Pick> {
        self.due_us = None;
        if self.backlogged.is_empty() {
            return None;
        }
        if self.at_device >= self.depth.cost() && !self.is_sole {
            self.depth.note_short();
            return None;
        }
        let mut by_tag: Option<(u64, Flow)> = None;
        let mut by_minimum: Option<(u64, Flow)> = None;
        let mut due_us: Option<u64> = None;
        for &flow in &self.backlogged {
            let state = &mut self.flows[flow.index()];
            if state.is_limited() {
                let ready_us = state.ready_us();
                if ready_us > now_us {
                    state.throttle(now_us);
                    due_us = Some(due_us.map_or(ready_us, |due| due.min(ready_us)));
                    continue;
                }
                state.unthrottle(self.virtual_time, now_us);
            }
            if by_tag.is_none_or(|(start, _)| state.start < start) {
                by_tag = Some((state.start, flow));
            }
            if let Some(since) = state.lags_since_ns(now_us)
                && by_minimum.is_none_or(|(longest, _)| since < longest)
            {
                by_minimum = Some((since, flow));
            }
        }
        self.due_us = due_us;
        let (_, next) = by_tag?;
        let preferred = by_minimum.map(|(_, flow)| flow).filter(|_| self.by_minimum + 1 < BY_TAG_EVERY);
        match preferred {
            Some(flow) if flow != next => Some(Pick { flow, by_minimum: true }),
            _ => Some(Pick { flow: next, by_minimum: false }),
        }
    }

    /// The first request of the flow that was picked goes to the device.
    fn start(&mut self, pick: Pick, now_us: u64) -> (Ticket, T) {
        let Pick { flow, by_minimum } = pick;
        let state = &mut self.flows[flow.index()];
        let (ticket, entry) = self.requests.head(&state.waiting).expect("a flow that was picked has something waiting");
        let request = entry.request;
        let owner = entry.owner;
        let waited_us = now_us.saturating_sub(entry.since_us);
        let cost = self.costs.cost_of(request);
        if by_minimum {
            self.by_minimum += 1;
        } else {
            self.by_minimum = 0;
            self.virtual_time = self.virtual_time.max(state.start);
        }
        self.requests.unlink(&mut state.waiting, ticket);
        self.requests.start(ticket, cost, now_us);
        state.charge(cost, request.data_bytes(), by_minimum, self.virtual_time, now_us);
        state.figures.waiting = less_one(state.figures.waiting);
        state.figures.at_device += 1;
        state.figures.waited_us += waited_us;
        self.at_device += u64::from(cost);
        self.depth.note_start(self.at_device);
        if state.waiting.is_empty() {
            state.end(now_us);
            self.backlogged.retain(|backlogged| *backlogged != flow);
        }
        if self.virtual_time >= VIRTUAL_TIME_MAX {
            self.begin_anew();
        }
        (ticket, owner)
    }

    /// Virtual time is 0 again. What tags are ahead of it stays; one that is behind belongs to a
    /// flow without requests, which would begin at virtual time, too.
    #[cold]
    fn begin_anew(&mut self) {
        for state in &mut self.flows {
            state.start = state.start.saturating_sub(self.virtual_time);
        }
        self.virtual_time = 0;
    }
}

/// A count of a flow's requests without one of them, which was counted when it came to be there.
fn less_one(count: u32) -> u32 {
    count.checked_sub(1).expect("each request is counted where it is, once")
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug)]
struct Pick {
    flow: Flow,
    /// Before its turn, because it has had less than its minimum.
    by_minimum: bool,
}

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;

    use super::*;
    use crate::cost::Kind;
    use crate::flow::Share;

    #[test]
    fn shares_are_kept_when_virtual_time_begins_anew() {
        let mut scheduler = Scheduler::new(Depth::fixed(1));
        let [heavy, light] = [1, 2].map(|number| Flow::new(number).unwrap());
        scheduler.set_share(heavy, Share { weight: 3, ..Share::default() }, 0);
        scheduler.set_share(light, Share { weight: 1, ..Share::default() }, 0);
        for tag in [VIRTUAL_TIME_MAX - (1 << 23), u64::MAX - (1 << 23)] {
            scheduler.virtual_time = tag;
            let read = Request { kind: Kind::Read, bytes: 4096 };
            let mut counts = [0, 0];
            let mut at_device = VecDeque::new();
            for flow in [heavy, light, heavy, light, heavy, light] {
                if let Verdict::Go(ticket) = scheduler.submit(flow, read, flow, 1) {
                    counts[flow.index() - 1] += 1;
                    at_device.push_back((ticket, flow));
                }
            }
            for now_us in 2..402 {
                let (ticket, flow) = at_device.pop_front().expect("somebody always waits");
                scheduler.release(ticket, now_us);
                assert!(matches!(scheduler.submit(flow, read, flow, now_us), Verdict::Wait(_)));
                while let Some((ticket, flow)) = scheduler.next(now_us) {
                    counts[flow.index() - 1] += 1;
                    at_device.push_back((ticket, flow));
                }
            }
            assert!(scheduler.virtual_time < VIRTUAL_TIME_MAX, "it has begun anew");
            assert!((297..=305).contains(&counts[0]), "{counts:?}");
            while let Some((ticket, _)) = at_device.pop_front() {
                scheduler.release(ticket, 500);
                at_device.extend(scheduler.next(500));
            }
        }
    }
}
