//! The audit log over the control socket: its records, and whether it is as it was written. And
//! what has requests of the socket recorded.

use std::sync::Arc;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{ConnectInfo, RawQuery, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use ebof_audit::{AUDIT_SCHEMA, Audit, AuditAnswer, KnownHead, records_since, verify};
use ebof_manage::enclosure::{MistakeKind, Refused};

use super::listener::LocalPeer;
use super::watch::QueryWords;
use super::{answer, beside};
use crate::managed::Managed;
use crate::managed::audit::{RecordedRequest, request};

/// Records of one answer, unless told otherwise, and at most.
const RECORDS: usize = 1000;
const RECORDS_MAX: usize = 10_000;

pub(super) fn routes() -> Router<Arc<Managed>> {
    Router::new().route("/v1/audit", get(show))
}

/// The latest records since `since`; with `verify=1`, what is wrong with the log, too, which has to
/// have the records that each `head` names.
async fn show(State(managed): State<Arc<Managed>>, RawQuery(query): RawQuery) -> Result<Response, Response> {
    let mut words = QueryWords::parse(query.as_deref(), "accepted: ?since=UNIX_MS&max=N&verify=1&head=N:HASH");
    let since_unix_ms = words.number("since")?.unwrap_or(0);
    let most = words.number("max")?.and_then(|most| usize::try_from(most).ok()).unwrap_or(RECORDS).min(RECORDS_MAX);
    let is_verified = words.number("verify")? == Some(1);
    let mut known: Vec<KnownHead> = Vec::new();
    while let Some(head) = words.parsed("head", |text| text.parse().ok())? {
        known.push(KnownHead::given(head));
    }
    words.end()?;
    let audit = audit(&managed)?;
    beside(move || {
        let directory = &**audit.directory();
        let head = audit.head();
        // What the thread that writes knows cannot be cut off while it runs.
        known.push(KnownHead::of_target(head));
        let report = if is_verified { verify(directory, &known).map(Some) } else { Ok(None) };
        let answered = report.and_then(|report| Ok((report, records_since(directory, since_unix_ms, most)?)));
        match answered {
            Ok((report, (records, has_more))) => {
                let place = directory.path().display().to_string();
                let (audit_schema, head) = (AUDIT_SCHEMA, Some(head));
                Json(AuditAnswer { audit_schema, directory: place, head, records, has_more, report }).into_response()
            }
            Err(error) => {
                let (message, advice) = (format!("the audit log cannot be read: {error}"), "see the state directory");
                answer(StatusCode::INTERNAL_SERVER_ERROR, Refused::because(MistakeKind::Unknown, message, advice))
            }
        }
    })
    .await
}

#[expect(clippy::result_large_err, reason = "the answer, which is sent at once")]
fn audit(managed: &Managed) -> Result<Arc<Audit>, Response> {
    managed.audit().cloned().ok_or_else(|| {
        let message = "the target has no audit log";
        let advice = "serve with `--state DIR`, or `state` in [target]; the target's log tells why it has none";
        answer(StatusCode::NOT_FOUND, Refused::because(MistakeKind::NotFound, message, advice))
    })
}

/// Has what is asked for through the socket recorded before it is answered.
pub(super) async fn audited(
    State(managed): State<Arc<Managed>>,
    ConnectInfo(peer): ConnectInfo<LocalPeer>,
    asked: Request,
    next: Next,
) -> Response {
    if asked.method().is_safe() || managed.audit().is_none() {
        return next.run(asked).await;
    }
    let (parts, body) = asked.into_parts();
    let path = parts.uri.path();
    // Of texts and images nothing is recorded but that they were sent.
    let most = match path {
        "/v1/images" | "/v1/configuration" => None,
        "/v1/edits" => Some(super::configuration::BODY_BYTES_MAX),
        _ => Some(super::BODY_BYTES_MAX),
    };
    let (known, body) = match most {
        None => (Bytes::new(), body),
        Some(most) => match to_bytes(body, most).await {
            Ok(bytes) => (bytes.clone(), Body::from(bytes)),
            Err(error) => {
                let advice = format!("accepted: JSON of at most {most} bytes");
                let refused =
                    Refused::because(MistakeKind::Value, format!("the body has not arrived: {error}"), advice);
                return answer(StatusCode::PAYLOAD_TOO_LARGE, refused);
            }
        },
    };
    let recorded = RecordedRequest::at_socket(&parts.method, path, &peer.asker()).with(parts.uri.query(), &known);
    let response = next.run(Request::from_parts(parts, body)).await;
    request(managed.audit(), &recorded, &response).await;
    response
}
