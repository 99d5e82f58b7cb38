//! Deliveries: which are due, and what follows from how each ended. Sending is somebody else's.
//!
//! Each subscription has at most one delivery under way, of at most [`RECORDS_MAX`] events.

use std::time::{Duration, Instant};

use super::origin::origin;
use crate::parts::Parts;
use crate::subscriptions::{Policy, Record, Subscription, Subscriptions, payload};
use crate::view::View;

/// The most events of one delivery.
const RECORDS_MAX: usize = 32;

/// The longest wait between two attempts.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// A request that is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The subscription.
    pub subscription: u64,
    /// Where to: `https://` or `http://`.
    pub destination: String,
    /// Header fields of the request.
    pub headers: Vec<(String, String)>,
    /// Whether the certificate of the destination has to be one that is trusted.
    pub verify: bool,
    /// The body, JSON.
    pub body: String,
    upto: u64,
    tests_upto: u64,
}

/// What became of a subscription after a delivery failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is tried again.
    Retries,
    /// The subscription is suspended.
    Suspended,
    /// The subscription has ended.
    Terminated,
    /// Somebody else has ended it.
    Gone,
}

impl Subscriptions {
    /// The deliveries that are due. Each has to be [`done`](Self::done) some time.
    pub fn due(&self, parts: &Parts, now: Instant) -> Vec<Delivery> {
        let view = View::new(parts);
        let mut state = self.state();
        let tests_of = |seen, state: &crate::subscriptions::SubscriptionState| state.tests_since(seen);
        let tests: Vec<_> = state.all.values().map(|subscription| tests_of(subscription.tests_seen, &state)).collect();
        let mut due = Vec::new();
        for ((id, subscription), tests) in state.all.iter_mut().zip(tests) {
            due.extend(subscription.due(*id, tests, &view, now));
        }
        due
    }

    /// Tells how a delivery ended.
    pub fn done(&self, delivery: &Delivery, delivered: bool, now: Instant) -> Option<Outcome> {
        let mut state = self.state();
        let (attempts, interval_s) = (state.attempts, state.interval_s);
        let Some(subscription) = state.all.get_mut(&delivery.subscription) else { return Some(Outcome::Gone) };
        subscription.in_flight = false;
        if delivered {
            (subscription.seen, subscription.tests_seen) = (delivery.upto, delivery.tests_upto);
            (subscription.failures, subscription.retry_at) = (0, None);
            return None;
        }
        subscription.failures = subscription.failures.saturating_add(1);
        let policy = subscription.push.as_ref().map(|push| push.policy);
        let is_over = subscription.failures > attempts;
        let interval = Duration::from_secs(interval_s);
        let wait = match policy {
            Some(Policy::TerminateAfterRetries) if is_over => {
                state.all.remove(&delivery.subscription);
                return Some(Outcome::Terminated);
            }
            Some(Policy::SuspendRetries) if is_over => {
                subscription.is_on = false;
                return Some(Outcome::Suspended);
            }
            Some(Policy::RetryForeverWithBackoff) => {
                interval.saturating_mul(1 << (subscription.failures - 1).min(12)).min(WAIT_MAX)
            }
            _ => interval,
        };
        subscription.retry_at = Some(now + wait);
        Some(Outcome::Retries)
    }
}

impl Subscription {
    fn due(&mut self, id: u64, tests: (u64, Vec<Record>), view: &View<'_>, now: Instant) -> Option<Delivery> {
        let push = self.push.as_ref()?;
        if !self.is_on || self.in_flight || self.retry_at.is_some_and(|at| at > now) {
            return None;
        }
        let (tests_upto, tests) = tests;
        let more = view.parts.events.since(self.seen, RECORDS_MAX);
        let upto = more.events.last().map_or(self.seen.min(more.latest), |event| event.id);
        let loss = (more.lost > 0 && self.seen > 0).then(|| Record::of_loss(more.lost, view.now()));
        let events = more.events.iter().map(|event| Record::of(event, origin(event, view)));
        let all = loss.into_iter().chain(events).chain(tests);
        let wanted: Vec<Record> = all.filter(|record| push.selection.admits(&record.known())).collect();
        if wanted.is_empty() {
            (self.seen, self.tests_seen) = (upto, tests_upto);
            return None;
        }
        self.in_flight = true;
        Some(Delivery {
            subscription: id,
            destination: push.destination.clone(),
            headers: push.headers.clone(),
            verify: push.verify,
            body: payload(&upto.to_string(), &push.context, &wanted).to_string(),
            upto,
            tests_upto,
        })
    }
}
