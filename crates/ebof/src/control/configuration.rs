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
use axum::extract::{DefaultBodyLimit, RawQuery, State};
use axum::http::header::{ETAG, IF_MATCH};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use ebof_manage::api::{
    Applied, ApplyError, CONFIGURATION_SCHEMA, Cause, Configuration, Desired, Planned, RefusedConfiguration, Revision,
    SENT_TEXT_BYTES_MAX,
};
use ebof_manage::edit::Edits;
use ebof_manage::enclosure::{MistakeKind, Refused};
use ebof_manage::load::load_as;
use ebof_manage::{FileFormat, Loaded, Target as _};

use super::sight::Sight;
use super::{By, beside};
use crate::managed::Managed;
use crate::reload::generations::Generations;
use crate::reload::{Refusal, Seen};

/// The largest body of a request with a text: JSON may write a character as two.
pub(super) const BODY_BYTES_MAX: usize = 2 * SENT_TEXT_BYTES_MAX + (16 << 10);

/// The longest name of a text, and the longest path, bytes.
const NAME_BYTES_MAX: usize = 4096;

/// What a text is called that has no name.
const UNNAMED: &str = "configuration";

pub(super) fn routes() -> Router<Arc<Managed>> {
    Router::new()
        .route("/v1/configuration", get(show).put(replace))
        .route("/v1/configuration/plan", post(plan))
        .route("/v1/configuration/history", get(history))
        .route("/v1/edits", post(edit))
        .route("/v1/reload", post(reload))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

/// A body, as far as it arrived.
type Body = Result<Bytes, BytesRejection>;

/// Why a request is refused, with the status code.
pub(crate) struct No(StatusCode, pub(crate) Box<RefusedConfiguration>);

impl No {
    fn new(status: StatusCode, kind: MistakeKind, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self(status, Box::new(Refused::because(kind, message, advice).into()))
    }

    fn value(status: StatusCode, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(status, MistakeKind::Value, message, advice)
    }
}

impl IntoResponse for No {
    fn into_response(self) -> Response {
        // For the audit log.
        let known = Extension(self.1.refused.clone());
        (self.0, known, Json(self.1)).into_response()
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

async fn show(State(managed): State<Arc<Managed>>, sight: Sight) -> Result<Response, No> {
    reading(&managed, move |managed| {
        let mut configuration = in_force(managed)?;
        if sight.is_limited {
            let limited = configuration.limited_to(&sight.seen.target.config());
            configuration = limited.map_err(|refused| No(StatusCode::INTERNAL_SERVER_ERROR, Box::new(refused)))?;
        }
        Ok(tagged(&configuration.revision, Json(&configuration)))
    })
    .await
}

/// What is in force. It reads the file that the target was started with.
pub(crate) fn in_force(managed: &Managed) -> Result<Configuration, No> {
    let config = managed.target.config();
    let toml = config.to_toml().map_err(|error| {
        let message = format!("the configuration in force cannot be written as TOML: {error}");
        No::value(StatusCode::INTERNAL_SERVER_ERROR, message, "this is an error of ebof: please report it")
    })?;
    let revision = Revision::from_config(&config);
    let source = managed.reloads.started_with().compared(&managed.target);
    let generation = managed.reloads.generations().and_then(|generations| generations.current());
    Ok(Configuration { schema: CONFIGURATION_SCHEMA, revision, source, generation, toml })
}

async fn plan(State(managed): State<Arc<Managed>>, body: Body) -> Result<Response, No> {
    reading(&managed, |managed| {
        let (loaded, ..) = desired(managed, body)?;
        let planned = planned(managed, loaded)?;
        Ok(tagged(&planned.revision, Json(&planned)))
    })
    .await
}

/// What another configuration would change.
pub(crate) fn planned(managed: &Managed, loaded: Loaded) -> Result<Planned, No> {
    let current = managed.target.config();
    if let Some(objection) = loaded.objection(&current) {
        return Err(refused(&Refusal::Objection(objection)));
    }
    Ok(Planned::new(&current, loaded.config, &managed.target.status(), loaded.remarks))
}

async fn replace(
    State(managed): State<Arc<Managed>>,
    By(by): By,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, No> {
    let planned = revision(&headers)?;
    let (loaded, action, promise) = reading(&managed, |managed| desired(managed, body)).await?;
    answer_applied(managed.reloads.apply(loaded, Seen { revision: planned, promise }, Cause::new(by, action)).await)
}

async fn reload(State(managed): State<Arc<Managed>>, By(by): By) -> Result<Response, No> {
    answer_applied(managed.reloads.reload(by).await)
}

/// Changes single objects, or tells with `?plan=1` what that would do. A plan needs no condition.
async fn edit(
    State(managed): State<Arc<Managed>>,
    By(by): By,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, No> {
    let only_plan = match query.as_deref() {
        None | Some("" | "plan=0") => false,
        Some("plan=1") => true,
        Some(other) => {
            let message = format!("`{}` in the query", other.escape_debug());
            return Err(No::value(StatusCode::BAD_REQUEST, message, "accepted: ?plan=1"));
        }
    };
    let planned = if only_plan { None } else { Some(revision(&headers)?) };
    let outcome = reading(&managed, move |managed| {
        let edits = edits(body)?;
        let Some(planned) = planned else {
            let current = managed.target.config();
            let loaded = edits.made_to(&current).map_err(not_made)?;
            return Ok(Err(Planned::new(&current, loaded.config, &managed.target.status(), loaded.remarks)));
        };
        Ok(Ok((edits, planned)))
    })
    .await?;
    match outcome {
        Err(planned) => Ok(tagged(&planned.revision, Json(&planned))),
        Ok((edits, planned)) => {
            let action = edits.to_string();
            answer_applied(managed.reloads.edit(edits, planned, Cause::new(by, action)).await)
        }
    }
}

/// Why edits cannot be made.
fn not_made(refused: Refused) -> No {
    let missing = refused.mistakes.iter().all(|mistake| mistake.kind == MistakeKind::NotFound);
    let status = if missing { StatusCode::NOT_FOUND } else { StatusCode::UNPROCESSABLE_ENTITY };
    No(status, Box::new(refused.into()))
}

/// The edits of a request.
fn edits(body: Body) -> Result<Edits, No> {
    let body = body.map_err(|rejection| {
        let advice = format!("accepted: JSON of at most {BODY_BYTES_MAX} bytes");
        No::value(rejection.status(), rejection.body_text(), advice)
    })?;
    let edits: Edits = serde_json::from_slice(&body).map_err(|error| {
        let message = format!("the body is not understood: {error}");
        let advice =
            "want {\"edits\": [{\"edit\": \"set\", \"object\": {\"port\": \"a\"}, \"keys\": {\"name\": \"b\"}}]}";
        No::value(StatusCode::BAD_REQUEST, message, advice)
    })?;
    let is_base = |base: &String| base.len() <= NAME_BYTES_MAX && Path::new(base).is_absolute();
    if edits.base.iter().all(is_base) {
        return Ok(edits);
    }
    let advice = "want the absolute path of the directory that relative paths begin at";
    Err(No::value(StatusCode::BAD_REQUEST, "`base` is too long, or no absolute path", advice))
}

/// The configurations that are and were in force.
async fn history(State(managed): State<Arc<Managed>>) -> Result<Response, No> {
    let generations = generations(&managed)?;
    Ok(Json(generations.history()).into_response())
}

fn generations(managed: &Managed) -> Result<&Generations, No> {
    managed.reloads.generations().map(|generations| &**generations).ok_or_else(|| {
        let message = "the target has no state directory, and no configuration of before is stored";
        let advice = "serve with `--state DIR`, or `state` in [target]; the target's log tells why it has none";
        No::new(StatusCode::NOT_FOUND, MistakeKind::NotFound, message, advice)
    })
}

/// A configuration that was in force.
fn generation(managed: &Managed, name: &str) -> Result<(Loaded, String), No> {
    let generations = generations(managed)?;
    let history = generations.history();
    let Some(generation) = history.named(name) else {
        let message = format!("no generation or revision {} is stored", name.escape_debug());
        let advice = "`ebof config history` lists those that are";
        return Err(No::new(StatusCode::NOT_FOUND, MistakeKind::NotFound, message, advice));
    };
    let number = generation.generation;
    let unusable = |error: String| {
        let advice = "choose another one (`ebof config history`)";
        No::new(StatusCode::UNPROCESSABLE_ENTITY, MistakeKind::NotFound, error, advice)
    };
    let config = generations.read(generation).map_err(|error| unusable(error.to_string()))?;
    let name = format!("generation {number}");
    let loaded = ebof_manage::load::check(&name, &config).map_err(|diagnostics| unusable(diagnostics.to_string()))?;
    Ok((loaded, format!("rollback to generation {number}")))
}

fn answer_applied(outcome: Result<Applied, Refusal>) -> Result<Response, No> {
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

/// The configuration that a request describes, what is asked for with that, and what was promised
/// of it.
fn desired(managed: &Managed, body: Body) -> Result<(Loaded, String, Option<String>), No> {
    let bad = |message: String| No::value(StatusCode::BAD_REQUEST, message, WANTED);
    let body = body.map_err(|rejection| {
        let advice = format!("accepted: JSON of at most {BODY_BYTES_MAX} bytes");
        No::value(rejection.status(), rejection.body_text(), advice)
    })?;
    let desired: Desired =
        serde_json::from_slice(&body).map_err(|error| bad(format!("the body is not understood: {error}")))?;
    let promise = desired.promise.clone();
    let (loaded, action) = loaded(managed, desired)?;
    Ok((loaded, action, promise))
}

/// How a configuration is described.
const WANTED: &str = "want {\"toml\": \"...\", \"base\": \"/directory/of/relative/paths\"}, or `json` or `generation` in place of `toml`";

/// The configuration of a text, or one that is stored, and what is asked for with that.
pub(crate) fn loaded(managed: &Managed, desired: Desired) -> Result<(Loaded, String), No> {
    let Desired { toml, json, generation: stored, base, name, promise: _ } = desired;
    let bad = |message: String| No::value(StatusCode::BAD_REQUEST, message, WANTED);
    let (format, text) = match (toml, json, stored) {
        (Some(text), None, None) => (FileFormat::Toml, text),
        (None, Some(text), None) => (FileFormat::Json, text),
        (None, None, Some(stored)) => return generation(managed, &stored),
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
    Ok((loaded, format!("apply {name}")))
}

pub(crate) fn refused(refusal: &Refusal) -> No {
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
        Refusal::Edits(refused) => return not_made(refused.clone()),
        Refusal::Objection(_) => {
            (StatusCode::UNPROCESSABLE_ENTITY, MistakeKind::Conflict, "nothing was changed: see that the file is whole")
        }
        Refusal::Apply(ApplyError::NotAllowed) => {
            (StatusCode::FORBIDDEN, MistakeKind::NotAllowed, "nothing was changed: ask an Administrator")
        }
        Refusal::Hosts => (
            StatusCode::PRECONDITION_FAILED,
            MistakeKind::Outdated,
            "nothing was changed: hosts have come or gone since, so look at the plan again",
        ),
        Refusal::Doors(_) => (
            StatusCode::UNPROCESSABLE_ENTITY,
            MistakeKind::Conflict,
            "nothing was changed: leave `https` and `http` of [target] as they are, name an address that is there and \
             free, or start the target again with it",
        ),
        Refusal::Rights(_) => (
            StatusCode::UNPROCESSABLE_ENTITY,
            MistakeKind::Conflict,
            "nothing was changed: name a path that the target may open, or start it again with another `confine_paths`",
        ),
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
        Refusal::Apply(ApplyError::NotStored { .. }) => (
            StatusCode::INSUFFICIENT_STORAGE,
            MistakeKind::Conflict,
            "the target serves what it did before: see to the state directory, and try again",
        ),
        Refusal::Apply(ApplyError::Unknown { .. }) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            MistakeKind::Unknown,
            "the target serves what it did before: see to the medium of the state directory; nothing is changed before it \
             is known again",
        ),
        Refusal::Busy => (StatusCode::SERVICE_UNAVAILABLE, MistakeKind::Busy, "try again a little later"),
    };
    No::new(status, kind, refusal.to_string(), advice)
}
