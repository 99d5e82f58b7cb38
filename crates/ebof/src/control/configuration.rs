//! The configuration over the control socket
//! ([0069](../../../../docs/adr/0069-configuration-over-the-control-socket.md)): what is in force,
//! what another one would change, putting it in force, and reading the file again.
//!
//! Owns the bodies and status codes. What is planned and refused is in `ebof_manage::api`, and the
//! changes are made in `crate::reload`.

use std::path::Path;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::{ETAG, IF_MATCH};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use ebof_manage::api::{
    Applied, ApplyError, CONFIGURATION_SCHEMA, Configuration, Desired, Planned, RefusedConfiguration, Revision,
    SENT_TEXT_BYTES_MAX,
};
use ebof_manage::enclosure::{MistakeKind, Refused};
use ebof_manage::load::load_as;
use ebof_manage::{Format, Loaded, Target as _};

use super::beside;
use crate::managed::Managed;
use crate::reload::Refusal;

/// The largest body of a request with a text: JSON may write a character as two.
const BODY_BYTES_MAX: usize = 2 * SENT_TEXT_BYTES_MAX + (16 << 10);

/// The longest name of a text, and the longest path, bytes.
const NAME_BYTES_MAX: usize = 4096;

/// What a text is called that has no name.
const UNNAMED: &str = "configuration";

pub(super) fn routes() -> Router<Arc<Managed>> {
    Router::new()
        .route("/v1/configuration", get(show).put(replace))
        .route("/v1/configuration/plan", post(plan))
        .route("/v1/reload", post(reload))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

/// A body, as far as it arrived.
type Body = Result<Bytes, BytesRejection>;

/// Why a request is refused, with the status code.
struct No(StatusCode, Box<RefusedConfiguration>);

impl No {
    fn new(status: StatusCode, kind: MistakeKind, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self(status, Box::new(Refused::whole(kind, message, advice).into()))
    }

    fn value(status: StatusCode, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(status, MistakeKind::Value, message, advice)
    }
}

impl IntoResponse for No {
    fn into_response(self) -> Response {
        (self.0, Json(self.1)).into_response()
    }
}

/// Runs what reads a file or the text of a configuration, beside the thread that serves sockets.
async fn reading<T: Send + 'static>(
    managed: &Arc<Managed>,
    work: impl FnOnce(&Managed) -> Result<T, No> + Send + 'static,
) -> Result<T, No> {
    // Never closed; and a panic has ended the process.
    let gone = || No::value(StatusCode::INTERNAL_SERVER_ERROR, "the target is ending", "see its log");
    let turn = Arc::clone(&managed.readers).acquire_owned().await.map_err(|_closed| gone())?;
    let managed = Arc::clone(managed);
    let done = beside(move || {
        let done = work(&managed);
        drop(turn);
        done
    });
    done.await.map_err(|_panicked| gone())?
}

async fn show(State(managed): State<Arc<Managed>>) -> Result<Response, No> {
    reading(&managed, |managed| {
        let config = managed.target.config();
        let toml = config.to_toml().map_err(|error| {
            let message = format!("the configuration in force cannot be written as TOML: {error}");
            No::value(StatusCode::INTERNAL_SERVER_ERROR, message, "this is an error of ebof: please report it")
        })?;
        let revision = Revision::of(&config);
        let source = managed.reloads.started_with().compared(&managed.target);
        let configuration = Configuration { schema: CONFIGURATION_SCHEMA, revision, source, toml };
        Ok(tagged(&configuration.revision, Json(&configuration)))
    })
    .await
}

async fn plan(State(managed): State<Arc<Managed>>, body: Body) -> Result<Response, No> {
    reading(&managed, |managed| {
        let loaded = desired(body)?;
        let current = managed.target.config();
        if let Some(objection) = loaded.objection(&current) {
            return Err(refused(&Refusal::Objection(objection)));
        }
        let planned = Planned::new(&current, loaded.config, &managed.target.status(), loaded.remarks);
        Ok(tagged(&planned.revision, Json(&planned)))
    })
    .await
}

async fn replace(State(managed): State<Arc<Managed>>, headers: HeaderMap, body: Body) -> Result<Response, No> {
    let planned = revision(&headers)?;
    let loaded = reading(&managed, |_| desired(body)).await?;
    made(managed.reloads.apply(loaded, planned).await)
}

async fn reload(State(managed): State<Arc<Managed>>) -> Result<Response, No> {
    made(managed.reloads.reload().await)
}

fn made(outcome: Result<Applied, Refusal>) -> Result<Response, No> {
    let applied = outcome.map_err(|refusal| refused(&refusal))?;
    Ok(tagged(&applied.revision, Json(&applied)))
}

fn tagged(revision: &Revision, body: impl IntoResponse) -> Response {
    ([(ETAG, format!("\"{revision}\""))], body).into_response()
}

/// The one revision that the request names (RFC 9110, If-Match).
fn revision(headers: &HeaderMap) -> Result<Revision, No> {
    let advice = "want If-Match: \"REVISION\" with the `revision` of the plan that was looked at";
    let mut all = headers.get_all(IF_MATCH).iter();
    let Some(value) = all.next() else {
        let message = "without If-Match a change of somebody else could be lost";
        return Err(No::value(StatusCode::PRECONDITION_REQUIRED, message, advice));
    };
    let tag = value.to_str().ok().and_then(|text| text.trim().strip_prefix('"')?.strip_suffix('"'));
    match tag.filter(|tag| !tag.contains('"') && all.next().is_none()) {
        Some(tag) => Ok(Revision::named(tag)),
        None => Err(No::value(StatusCode::BAD_REQUEST, "If-Match does not name one revision", advice)),
    }
}

/// The configuration that a request describes.
fn desired(body: Body) -> Result<Loaded, No> {
    let wanted = "want {\"toml\": \"...\", \"base\": \"/directory/of/relative/paths\"}, or `json` in place of `toml`";
    let bad = |message: String| No::value(StatusCode::BAD_REQUEST, message, wanted);
    let body = body.map_err(|rejection| {
        let advice = format!("accepted: JSON of at most {BODY_BYTES_MAX} bytes");
        No::value(rejection.status(), rejection.body_text(), advice)
    })?;
    let Desired { toml, json, base, name } =
        serde_json::from_slice(&body).map_err(|error| bad(format!("the body is not understood: {error}")))?;
    let (format, text) = match (toml, json) {
        (Some(text), None) => (Format::Toml, text),
        (None, Some(text)) => (Format::Json, text),
        _ => return Err(bad("it has not one text".to_owned())),
    };
    if text.len() > SENT_TEXT_BYTES_MAX {
        let message = format!("the text has {} bytes", text.len());
        let advice = format!(
            "accepted: at most {SENT_TEXT_BYTES_MAX} bytes; the file that the target was started with may be larger: POST \
             /v1/reload reads it"
        );
        return Err(No::value(StatusCode::PAYLOAD_TOO_LARGE, message, advice));
    }
    let name = name.unwrap_or_else(|| UNNAMED.to_owned());
    let is_name = |text: &str| text.len() <= NAME_BYTES_MAX && !text.contains(char::is_control);
    if !is_name(&name) || !base.iter().all(|base| is_name(base) && Path::new(base).is_absolute()) {
        return Err(bad("`name` is too long, or `base` no absolute path".to_owned()));
    }
    let mut loaded = load_as(format, &name, &text).map_err(|diagnostics| refused(&Refusal::Text(diagnostics)))?;
    let before = loaded.config.clone();
    loaded.config.rebase(Path::new(base.as_deref().unwrap_or("/")));
    if base.is_none() && loaded.config != before {
        let message = "it has relative paths, and nothing says where they begin";
        let advice = "want `base`, the absolute path of a directory, or absolute paths";
        return Err(No::value(StatusCode::UNPROCESSABLE_ENTITY, message, advice));
    }
    Ok(loaded)
}

fn refused(refusal: &Refusal) -> No {
    let (status, kind, advice) = match refusal {
        Refusal::Text(diagnostics) => {
            let refused = RefusedConfiguration::text(diagnostics.clone());
            return No(StatusCode::UNPROCESSABLE_ENTITY, Box::new(refused));
        }
        Refusal::Unreadable(_) => (
            StatusCode::UNPROCESSABLE_ENTITY,
            MistakeKind::NotFound,
            "the target reads the file that it was started with as its own user: see that it is there and readable",
        ),
        Refusal::Objection(_) => {
            (StatusCode::UNPROCESSABLE_ENTITY, MistakeKind::Conflict, "nothing was changed: see that the file is whole")
        }
        Refusal::Apply(ApplyError::Outdated { .. }) => (
            StatusCode::PRECONDITION_FAILED,
            MistakeKind::Outdated,
            "nothing was changed: somebody else has changed the configuration, so look at the plan again",
        ),
        Refusal::Apply(ApplyError::NeedsRestart { .. } | ApplyError::Impossible { .. }) => (
            StatusCode::UNPROCESSABLE_ENTITY,
            MistakeKind::Conflict,
            "nothing was changed: leave that as it is, or start the target again with it",
        ),
        Refusal::Apply(ApplyError::Failed { .. }) => (
            StatusCode::CONFLICT,
            MistakeKind::Conflict,
            "the target serves what it did before: mend what is in the way, and try again",
        ),
        Refusal::Apply(ApplyError::Incomplete { .. }) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            MistakeKind::Conflict,
            "the target serves what it did before, but for that: mend what is in the way, and reload",
        ),
        Refusal::Busy => (StatusCode::SERVICE_UNAVAILABLE, MistakeKind::Busy, "try again a little later"),
    };
    No::new(status, kind, refusal.to_string(), advice)
}
