//! The keys of hosts: listed, added, removed. What goes out has no key in it, and no message
//! repeats anything of a body that may have one.
//!
//! Owns the bodies and status codes. What is accepted, and how it comes into force, is in
//! `server/life/keys/keeper.rs`; what has happened is told there, too.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{RawQuery, State};
use axum::http::header::{IF_MATCH, LOCATION};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get};
use axum::{Json, Router};
use ebof_manage::api::{AddKey, KeyKeeper as _, KeysChange, Revision};
use ebof_manage::enclosure::{MistakeKind, Refused};

use super::by::By;
use super::{Named, answer, beside};
use crate::managed::Managed;

pub(super) fn routes() -> Router<Arc<Managed>> {
    Router::new().route("/v1/keys", get(list).post(add)).route("/v1/keys/{ids}", delete(remove))
}

/// How a request says what is to be done: only planned, or if it still is what was planned.
struct Condition {
    only_plan: bool,
    planned: Option<Revision>,
}

async fn list(State(managed): State<Arc<Managed>>) -> Result<Response, Response> {
    beside(move || Json(managed.target.keys()).into_response()).await
}

async fn add(
    State(managed): State<Arc<Managed>>,
    By(by): By,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Response> {
    let Condition { only_plan, planned } = condition(query.as_deref(), &headers)?;
    let add = parsed(body)?;
    beside(move || {
        if only_plan {
            return answered(StatusCode::OK, managed.target.plan_add(&add));
        }
        answered(StatusCode::CREATED, managed.target.add(&add, planned.as_ref(), &by))
    })
    .await
}

/// One, or several with commas in between.
async fn remove(
    State(managed): State<Arc<Managed>>,
    Named(ids): Named,
    By(by): By,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Response> {
    let Condition { only_plan, planned } = condition(query.as_deref(), &headers)?;
    let ids: Vec<String> = ids.split(',').map(str::to_owned).collect();
    beside(move || {
        let change = if only_plan {
            managed.target.plan_remove(&ids)
        } else {
            managed.target.remove(&ids, planned.as_ref(), &by)
        };
        answered(StatusCode::OK, change)
    })
    .await
}

fn answered(status: StatusCode, change: Result<KeysChange, Refused>) -> Response {
    let change = match change {
        Ok(change) => change,
        Err(refused) => return answer(status_of(&refused), refused),
    };
    let id = change.added.as_ref().and_then(|key| key.id.as_ref());
    match id.filter(|_| status == StatusCode::CREATED) {
        Some(id) => (status, [(LOCATION, format!("/v1/keys/{id}"))], Json(change)).into_response(),
        None => (status, Json(change)).into_response(),
    }
}

fn status_of(refused: &Refused) -> StatusCode {
    match refused.mistakes.first().map(|mistake| mistake.kind) {
        Some(MistakeKind::NotFound) => StatusCode::NOT_FOUND,
        Some(MistakeKind::Conflict) => StatusCode::CONFLICT,
        Some(MistakeKind::Outdated) => StatusCode::PRECONDITION_FAILED,
        Some(MistakeKind::NotStored | MistakeKind::Unknown) => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

#[expect(clippy::result_large_err, reason = "the answer, which is sent at once")]
fn condition(query: Option<&str>, headers: &HeaderMap) -> Result<Condition, Response> {
    let only_plan = match query {
        None | Some("" | "plan=0") => false,
        Some("plan=1") => true,
        Some(_) => return Err(wrong("the query is not understood", "accepted: ?plan=1")),
    };
    let advice = "want If-Match: \"REVISION\" with the `revision` of the plan that was looked at, or none";
    let mut all = headers.get_all(IF_MATCH).iter();
    let planned = match all.next() {
        None => None,
        Some(value) => {
            let tag = value.to_str().ok().and_then(|text| text.trim().strip_prefix('"')?.strip_suffix('"'));
            let tag = tag.filter(|tag| !tag.contains('"') && all.next().is_none());
            Some(tag.ok_or_else(|| wrong("If-Match does not name one revision", advice))?)
        }
    };
    Ok(Condition { only_plan, planned: planned.map(Revision::named) })
}

#[expect(clippy::result_large_err, reason = "the answer, which is sent at once")]
fn parsed(body: Result<Bytes, BytesRejection>) -> Result<AddKey, Response> {
    let wanted =
        "want {\"host\": \"nqn...\", \"kind\": \"dhchap\", \"key\": \"DHHC-1:...\"}; kinds: dhchap, dhchap-ctrl, tls";
    let body = body.map_err(|rejection| {
        answer(rejection.status(), Refused::because(MistakeKind::Value, "the body cannot be read", wanted))
    })?;
    serde_json::from_slice(&body).map_err(|error| {
        // What stands there may be the key.
        let place = format!("line {}, column {}", error.line(), error.column());
        wrong(&format!("the body is not understood: {place}"), wanted)
    })
}

fn wrong(message: &str, advice: &str) -> Response {
    answer(StatusCode::BAD_REQUEST, Refused::because(MistakeKind::Value, message, advice))
}
