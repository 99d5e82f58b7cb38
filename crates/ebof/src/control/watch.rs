//! What happens, and what was measured, over the control socket: events, the history of objects,
//! slow commands ([0071](../../../../docs/adr/0071-what-happens-while-it-runs.md)).
//!
//! Owns queries and status codes; the bodies are in `ebof_manage::events`, `history` and `slow`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use ebof_manage::enclosure::{MistakeKind, Refused};
use ebof_manage::events::ANSWER_MAX;
use ebof_manage::history::{Query, Resolution, SeriesName};
use percent_encoding::percent_decode_str;
use tokio::time::{Instant, timeout_at};

use super::sight::Sight;
use super::{WAIT_MAX, answer, beside};
use crate::managed::Managed;

pub(super) fn routes() -> Router<Arc<Managed>> {
    Router::new()
        .route("/v1/events", get(events))
        .route("/v1/history", get(history))
        .route("/v1/queues", get(queues))
        .route("/v1/slow", get(slow))
}

/// The events after `since`; if there are none, those that come within `wait_ms`.
async fn events(
    State(managed): State<Arc<Managed>>,
    Sight { seen, .. }: Sight,
    RawQuery(query): RawQuery,
) -> Result<Response, Response> {
    let mut words = QueryWords::parse(query.as_deref(), "accepted: ?since=N&max=N&wait_ms=N");
    let since = words.number("since")?.unwrap_or(0);
    let max = words.number("max")?.and_then(|max| usize::try_from(max).ok()).unwrap_or(ANSWER_MAX).max(1);
    let wait = Duration::from_millis(words.number("wait_ms")?.unwrap_or(0)).min(WAIT_MAX);
    words.end()?;
    let end = Instant::now() + wait;
    let mut news = managed.news.subscribe();
    // No thread waits: one whose client has gone away would do so, too.
    loop {
        let found = seen.events.since(since, max);
        // A number that is not known yet is from before a restart: the client has to hear that.
        let has_news = !found.events.is_empty() || found.lost > 0 || since > found.latest;
        if has_news || timeout_at(end, news.changed()).await.is_err() {
            return Ok(Json(found).into_response());
        }
    }
}

/// The latest second of all objects; with `object`, the samples of one.
async fn history(Sight { seen, .. }: Sight, RawQuery(query): RawQuery) -> Result<Response, Response> {
    let advice = "accepted: nothing, or ?object=NAME&resolution=1s&since=UNIX_MS&until=UNIX_MS; NAME is such as \
                  function:d3/vf2, RESOLUTION is 1s, 10s or 60s";
    let mut words = QueryWords::parse(query.as_deref(), advice);
    let object = words.parsed("object", |text| text.parse::<SeriesName>().ok())?;
    let resolution = words.parsed("resolution", Resolution::named)?.unwrap_or(Resolution::Second);
    let (after_unix_ms, until_unix_ms) = (words.number("since")?.unwrap_or(0), words.number("until")?);
    words.end()?;
    let until_unix_ms = until_unix_ms.unwrap_or(u64::MAX);
    beside(move || {
        let measured = seen.measured;
        let Some(object) = object else { return Json(measured.overview()).into_response() };
        match measured.samples(&Query { object, resolution, after_unix_ms, until_unix_ms }) {
            Ok(samples) => Json(samples).into_response(),
            Err(none) => {
                let advice = "GET /v1/history lists the objects that have samples";
                answer(StatusCode::NOT_FOUND, Refused::because(MistakeKind::NotFound, none.to_string(), advice))
            }
        }
    })
    .await
}

/// What the queues did in the latest second.
async fn queues(Sight { seen, .. }: Sight, RawQuery(query): RawQuery) -> Result<Response, Response> {
    QueryWords::parse(query.as_deref(), "accepted: nothing").end()?;
    beside(move || Json(seen.measured.queues()).into_response()).await
}

/// The slow commands after `since`.
async fn slow(Sight { seen, .. }: Sight, RawQuery(query): RawQuery) -> Result<Response, Response> {
    let mut words = QueryWords::parse(query.as_deref(), "accepted: ?since=N");
    let since = words.number("since")?.unwrap_or(0);
    words.end()?;
    beside(move || {
        let mut slow = seen.measured.slow();
        slow.commands.retain(|command| command.id > since);
        Json(slow).into_response()
    })
    .await
}

/// The words of a query, each of which is taken once.
pub(super) struct QueryWords {
    left: Vec<(String, String)>,
    advice: &'static str,
}

impl QueryWords {
    pub(super) fn parse(query: Option<&str>, advice: &'static str) -> Self {
        let parts = query.unwrap_or_default().split('&').filter(|part| !part.is_empty());
        let word = |part: &str| {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            (key.to_owned(), unescaped(value))
        };
        Self { left: parts.map(word).collect(), advice }
    }

    fn refuse(&self, word: &str) -> NotUnderstood {
        let word: String = word.chars().filter(|c| !c.is_control()).take(64).collect();
        NotUnderstood(Refused::because(MistakeKind::Value, format!("`{word}` in the query"), self.advice))
    }

    pub(super) fn parsed<T>(
        &mut self,
        key: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, NotUnderstood> {
        let Some(at) = self.left.iter().position(|(known, _)| known == key) else { return Ok(None) };
        let (_, value) = self.left.remove(at);
        parse(&value).map(Some).ok_or_else(|| self.refuse(&format!("{key}={value}")))
    }

    pub(super) fn number(&mut self, key: &str) -> Result<Option<u64>, NotUnderstood> {
        self.parsed(key, |text| text.parse().ok())
    }

    /// There is nothing that nobody has asked for.
    pub(super) fn end(self) -> Result<(), NotUnderstood> {
        match self.left.first() {
            Some((key, value)) => Err(self.refuse(&format!("{key}={value}"))),
            None => Ok(()),
        }
    }
}

/// A word of a query that is not understood.
pub(super) struct NotUnderstood(Refused);

impl From<NotUnderstood> for Response {
    fn from(NotUnderstood(refused): NotUnderstood) -> Self {
        answer(StatusCode::BAD_REQUEST, refused)
    }
}

/// A text without its percent signs (RFC 3986, Percent-Encoding). What is no UTF-8 names nothing.
fn unescaped(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_signs_are_decoded() {
        assert_eq!(unescaped("function%3Ad3%2fvf2"), "function:d3/vf2");
        for text in ["", "%", "%3", "%zz", "a%", "%+1"] {
            assert_eq!(unescaped(text), text);
        }
        assert_eq!(unescaped("%ff"), "\u{fffd}");
    }
}
