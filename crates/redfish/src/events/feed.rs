//! A stream of server-sent events (DSP0266, "Server-Sent Events").
//!
//! Its reader asks for the next piece when it can take one; so a slow one has no queue here. Who is
//! so slow that the log forgets what they have not got is told so, and cut off.

use std::time::{Duration, Instant};

use super::origin::origin;
use crate::events::telemetry::report;
use crate::managed::parts::Parts;
use crate::managed::subscriptions::{EventRecord, StreamReader, payload, prefix};
use crate::managed::view::View;
use crate::place::ReportKind;
use crate::request::caller::Caller;
use crate::request::query::Filter;
use crate::response::message::Problem;

/// The most events of one piece.
const RECORDS_MAX: usize = 64;

/// A comment is sent after so long without anything, so that both ends notice when the other one is
/// gone.
const SILENCE: Duration = Duration::from_secs(10);

/// How often it is looked whether there is another report.
const REPORTS: Duration = Duration::from_millis(500);

/// What a stream is opened with.
pub(crate) struct FeedRequest<'r> {
    /// What there is.
    pub(crate) view: &'r View<'r>,
    /// Which events are wanted.
    pub(crate) filter: Option<Filter>,
    /// The last event that was read.
    pub(crate) last_id: Option<u64>,
    /// Whose it is.
    pub(crate) caller: &'r Caller,
}

/// A stream.
#[derive(Debug)]
pub struct Feed(Box<Stream>);

struct Stream {
    parts: Parts,
    subscription: u64,
    filter: Option<Filter>,
    seen: u64,
    tests_seen: u64,
    /// Reports that the filter lets through.
    reports: Vec<ReportKind>,
    /// The second that they were of.
    reported_unix_ms: u64,
    waiting: std::collections::VecDeque<String>,
    spoke: Option<Instant>,
    is_over: bool,
}

/// What a stream has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A text for the reader.
    Text(String),
    /// Nothing now; to be asked after an event, or after this time.
    Wait(Duration),
    /// It is over.
    End,
}

impl Feed {
    pub(crate) fn open(request: FeedRequest<'_>) -> Result<Self, Problem> {
        Stream::open(request).map(|stream| Self(Box::new(stream)))
    }

    /// Where to learn that there is more.
    #[must_use]
    pub fn events(&self) -> &dyn ebof_manage::events::Events {
        &*self.0.parts.events
    }

    /// The next piece.
    pub fn next(&mut self, now: Instant) -> Piece {
        self.0.next(now)
    }
}

impl Stream {
    fn open(request: FeedRequest<'_>) -> Result<Self, Problem> {
        let FeedRequest { view, filter, last_id, caller } = request;
        let parts = view.parts.clone();
        let latest = parts.events.latest();
        let reports: Vec<_> = match &filter {
            Some(filter) => ReportKind::ALL.into_iter().filter(|kind| filter.holds(&kind.filter_fields())).collect(),
            None => Vec::new(),
        };
        let event = serde_json::json!({ "EventFormatType": "Event" });
        let has_events = reports.is_empty() || filter.as_ref().is_none_or(|filter| filter.holds(&event));
        let subscription = parts.subscriptions.open(latest, !has_events, StreamReader::from_caller(caller))?;
        // If the clock was set back before this start, the number that the client sends may be
        // higher than all numbers of this start: then it has read none of these.
        let seen = last_id.map_or(latest, |last_id| if last_id > latest { 0 } else { last_id });
        let tests_seen = parts.subscriptions.latest_test();
        Ok(Self {
            parts,
            subscription,
            filter,
            seen,
            tests_seen,
            reports,
            reported_unix_ms: 0,
            waiting: std::collections::VecDeque::new(),
            spoke: None,
            is_over: false,
        })
    }

    fn next(&mut self, now: Instant) -> Piece {
        if let Some(text) = self.waiting.pop_front() {
            self.spoke = Some(now);
            return Piece::Text(text);
        }
        if self.is_over || !self.parts.subscriptions.has(self.subscription) {
            return Piece::End;
        }
        let Some(spoke) = self.spoke else {
            self.spoke = Some(now);
            return Piece::Text(": these are the events of ebof\n\n".to_owned());
        };
        self.poll_target();
        if !self.waiting.is_empty() {
            return self.next(now);
        }
        let silent = now.saturating_duration_since(spoke);
        if silent >= SILENCE {
            self.spoke = Some(now);
            return Piece::Text(":\n\n".to_owned());
        }
        Piece::Wait(if self.reports.is_empty() { SILENCE - silent } else { REPORTS.min(SILENCE - silent) })
    }

    /// Puts what is new into `waiting`.
    fn poll_target(&mut self) {
        let parts = self.parts.clone();
        let view = View::new(&parts);
        let more = parts.events.since(self.seen, RECORDS_MAX);
        if more.lost > 0 && self.seen > 0 {
            let record = EventRecord::for_lost_events(more.lost, view.now());
            self.waiting.push_back(message(None, &payload("lost", "", &[record])));
            self.is_over = true;
            return;
        }
        for event in &more.events {
            self.seen = event.id;
            let record = EventRecord::from_event(event, origin(event, &view));
            if self.wants(&record) {
                let id = event.id.to_string();
                self.waiting.push_back(message(Some(event.id), &payload(&id, "", &[record])));
            }
        }
        let (latest, tests) = parts.subscriptions.tests_since(self.tests_seen);
        self.tests_seen = latest;
        // Whoever submits one sees everything, and may name it.
        let is_for_all = parts.only.is_none();
        for record in tests.into_iter().filter(|_| is_for_all) {
            if self.wants(&record) {
                self.waiting.push_back(message(None, &payload("test", "", &[record])));
            }
        }
        self.look_for_reports(&view);
    }

    fn look_for_reports(&mut self, view: &View<'_>) {
        if self.reports.is_empty() {
            return;
        }
        let overview = view.parts.measured.overview();
        if overview.time_unix_ms == self.reported_unix_ms {
            return;
        }
        self.reported_unix_ms = overview.time_unix_ms;
        for kind in &self.reports {
            self.waiting.push_back(message(None, &report(*kind, &overview, view)));
        }
    }

    fn wants(&self, record: &EventRecord) -> bool {
        let Some(filter) = &self.filter else { return true };
        let fields = record.filter_fields();
        filter.holds(&serde_json::json!({
            "EventFormatType": "Event", "MessageId": fields.message_id, "RegistryPrefix": prefix(fields.message_id),
            "EventType": fields.event_type, "OriginResource": fields.origin, "ResourceType": fields.resource_type,
        }))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.parts.subscriptions.close(self.subscription);
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream")
            .field("subscription", &self.subscription)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

/// One message: JSON without line breaks.
fn message(id: Option<u64>, payload: &serde_json::Value) -> String {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("{id}data: {payload}\n\n")
}
