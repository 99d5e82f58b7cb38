//! Deliveries: which are due, and what follows from how each ended. Sending is somebody else's.
//!
//! Each subscription has at most one delivery under way: of at most [`RECORDS_MAX`] events, or of
//! one metric report. No report is kept for a destination: one that is slow, or fails, gets what is
//! the latest by then.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ebof_manage::history::Overview;
use serde_json::Value;

use super::origin::origin;
use crate::events::telemetry::report;
use crate::managed::parts::Parts;
use crate::managed::subscriptions::{
    EventRecord, Policy, Push, Subject, Subscription, SubscriptionState, Subscriptions, Tests, payload,
};
use crate::managed::view::View;
use crate::place::ReportKind;

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
    content: Content,
}

/// What a delivery has, and what its subscription has got with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Events { upto: u64, tests_upto: u64 },
    Report { kind: ReportKind, time_unix_ms: u64 },
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

impl Delivery {
    /// The deliveries that are due. Each has to be [`done`](Self::done) some time.
    pub fn due(parts: &Parts, now: Instant) -> Vec<Self> {
        let view = View::new(parts);
        let mut state = parts.subscriptions.state();
        let mut reports = Reports { view: &view, overview: None, made: BTreeMap::new() };
        let SubscriptionState { all, tests, .. } = &mut *state;
        let due = all.iter_mut().filter_map(|(id, subscription)| {
            if !subscription.is_on || subscription.in_flight || subscription.retry_at.is_some_and(|at| at > now) {
                return None;
            }
            let push = subscription.push.clone()?;
            let (content, body) = match &push.subject {
                Subject::Events => next_events(subscription, &push, tests, &view)?,
                Subject::Reports(kinds) => next_report(subscription, &push, kinds, &mut reports)?,
            };
            subscription.in_flight = true;
            let Push { destination, headers, verify, .. } = push;
            Some(Self { subscription: *id, destination, headers, verify, body: body.to_string(), content })
        });
        due.collect()
    }

    /// Tells how a delivery ended.
    pub fn done(&self, subscriptions: &Subscriptions, delivered: bool, now: Instant) -> Option<Outcome> {
        let mut state = subscriptions.state();
        let (attempts, interval_s) = (state.attempts, state.interval_s);
        let Some(subscription) = state.all.get_mut(&self.subscription) else { return Some(Outcome::Gone) };
        subscription.in_flight = false;
        if delivered {
            self.content.acknowledge(subscription);
            (subscription.failures, subscription.retry_at) = (0, None);
            return None;
        }
        subscription.failures = subscription.failures.saturating_add(1);
        let policy = subscription.push.as_ref().map(|push| push.policy);
        let is_over = subscription.failures > attempts;
        let interval = Duration::from_secs(interval_s);
        let wait = match policy {
            Some(Policy::TerminateAfterRetries) if is_over => {
                state.all.remove(&self.subscription);
                subscriptions.store(&state);
                return Some(Outcome::Terminated);
            }
            Some(Policy::SuspendRetries) if is_over => {
                subscription.is_on = false;
                subscriptions.store(&state);
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

impl Content {
    /// Notes that a subscription has got it, or did not want it.
    fn acknowledge(self, subscription: &mut Subscription) {
        match self {
            Self::Events { upto, tests_upto } => (subscription.seen, subscription.tests_seen) = (upto, tests_upto),
            Self::Report { kind, time_unix_ms } => {
                subscription.reported.insert(kind, time_unix_ms);
            }
        }
    }
}

/// The next events that a subscription wants. Those before are passed over.
fn next_events(
    subscription: &mut Subscription,
    push: &Push,
    tests: &Tests,
    view: &View<'_>,
) -> Option<(Content, Value)> {
    let (tests_upto, mut tests) = tests.since(subscription.tests_seen);
    loop {
        let more = view.parts.events.since(subscription.seen, RECORDS_MAX);
        let upto = more.events.last().map_or(subscription.seen.min(more.latest), |event| event.id);
        let loss =
            (more.lost > 0 && subscription.seen > 0).then(|| EventRecord::for_lost_events(more.lost, view.now()));
        let events = more.events.iter().map(|event| EventRecord::from_event(event, origin(event, view)));
        let all = loss.into_iter().chain(events).chain(std::mem::take(&mut tests));
        let wanted: Vec<EventRecord> = all.filter(|record| push.selection.admits(&record.filter_fields())).collect();
        if !wanted.is_empty() {
            let body = payload(&upto.to_string(), &push.context, &wanted);
            return Some((Content::Events { upto, tests_upto }, body));
        }
        Content::Events { upto, tests_upto }.acknowledge(subscription);
        if more.events.len() < RECORDS_MAX {
            return None;
        }
    }
}

/// The report that a subscription has waited for longest, if there is one of another second than it
/// got.
fn next_report(
    subscription: &Subscription,
    push: &Push,
    kinds: &[ReportKind],
    reports: &mut Reports<'_>,
) -> Option<(Content, Value)> {
    let time_unix_ms = reports.overview().time_unix_ms;
    let kinds = if kinds.is_empty() { &ReportKind::ALL[..] } else { kinds };
    let got = |kind: &ReportKind| subscription.reported.get(kind).copied().unwrap_or(0);
    let kind = kinds.iter().copied().filter(|kind| got(kind) != time_unix_ms).min_by_key(got)?;
    let mut body = reports.report(kind);
    if !push.context.is_empty() {
        body["Context"] = push.context.as_str().into();
    }
    Some((Content::Report { kind, time_unix_ms }, body))
}

/// The reports of the latest second, each made once for all who get it.
struct Reports<'v> {
    view: &'v View<'v>,
    overview: Option<Overview>,
    made: BTreeMap<ReportKind, Value>,
}

impl Reports<'_> {
    fn overview(&mut self) -> &Overview {
        self.overview.get_or_insert_with(|| self.view.parts.measured.overview())
    }

    fn report(&mut self, kind: ReportKind) -> Value {
        if let Some(made) = self.made.get(&kind) {
            return made.clone();
        }
        let view = self.view;
        let made = report(kind, self.overview(), view);
        self.made.entry(kind).or_insert(made).clone()
    }
}
