//! The control socket: the management API of a running target as HTTP/1.1 with JSON bodies over a
//! UNIX socket ([0062](../../../docs/adr/0062-management-of-the-box.md)).
//!
//! Owns paths, bodies and status codes; those of the configuration are in
//! `control/configuration.rs`, of drives in `control/drives.rs`. What they mean is in
//! `ebof_manage::enclosure`, and who may connect in `control/socket.rs` and `control/listener.rs`.

mod accounts;
mod audit;
mod by;
mod certificate;
pub(crate) mod configuration;
mod drives;
mod keys;
mod listener;
mod sight;
mod socket;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, FromRequestParts, RawQuery, State};
use axum::http::header::{ALLOW, LOCATION};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use ebof_attach::state::StateDir;
use ebof_manage::api;
use ebof_manage::config::NO_CONTROL;
use ebof_manage::enclosure::{ChangePlan, Mistake, MistakeKind, Refused, Task, Transaction};
use tokio::time::{Instant, timeout_at};

use crate::managed::Managed;
use by::By;
pub(crate) use by::RemoteUser;
use sight::Sight;
use socket::ControlSocket;

/// The largest body of a request, bytes.
const BODY_BYTES_MAX: usize = 256 << 10;

/// The longest that a request for a task may wait.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Threads for requests that take locks, none of which is held for long.
const THREADS_MAX: usize = 16;

/// The control socket of a target that serves; dropping it removes the file.
#[derive(Debug)]
pub(crate) struct ControlEndpoint {
    socket: ControlSocket,
}

impl ControlEndpoint {
    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.socket.path()
    }
}

/// Serves the control socket at the path that `wanted` says: `none`, a path, or nothing for the
/// default one.
///
/// # Errors
/// A path that was asked for cannot be had. Without the default path the target is served all the
/// same, and a warning logged.
pub(crate) fn serve(wanted: Option<&str>, managed: &Arc<Managed>) -> anyhow::Result<Option<ControlEndpoint>> {
    let serve_at = |path: &Path| serve_at(path, Arc::clone(managed), listener::LIFETIME);
    match wanted {
        Some(NO_CONTROL) => Ok(None),
        Some(path) => serve_at(Path::new(path)).map(Some),
        None => match default_path().and_then(|path| serve_at(&path)) {
            Ok(control) => Ok(Some(control)),
            Err(error) => {
                tracing::warn!("there is no control socket, and `ebof target` cannot manage this target: {error:#}");
                Ok(None)
            }
        },
    }
}

/// The directory of the control socket; `None` if there is to be none, or it cannot be had.
pub(crate) fn folder(wanted: Option<&str>) -> Option<PathBuf> {
    let path = match wanted {
        Some(NO_CONTROL) => return None,
        Some(path) => std::path::absolute(path).ok()?,
        None => default_path().ok()?,
    };
    path.parent().map(Path::to_owned)
}

fn default_path() -> anyhow::Result<PathBuf> {
    let directory = StateDir::standard();
    // Taking the lock makes the directory, and checks whose it is.
    drop(directory.lock()?);
    Ok(directory.path().join(ebof_cli::CONTROL_SOCKET))
}

fn serve_at(path: &Path, managed: Arc<Managed>, lifetime: Duration) -> anyhow::Result<ControlEndpoint> {
    let (socket, listener) = ControlSocket::bind(path)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(THREADS_MAX)
        .thread_name("ebof-control-wait")
        .on_thread_start(crate::doors::limits::stand_back)
        .build()?;
    let listener = {
        // The socket belongs to the runtime.
        let _inside = runtime.enter();
        listener::Listener::new(tokio::net::UnixListener::from_std(listener).context("the control socket")?, lifetime)
    };
    let recorded = axum::middleware::from_fn_with_state(Arc::clone(&managed), audit::audited);
    let routes = routes(managed).layer(recorded);
    let run = move || {
        crate::doors::limits::stand_back();
        // The listener retries after errors, so this does not return.
        let routes = routes.into_make_service_with_connect_info::<listener::LocalPeer>();
        let served = runtime.block_on(async move { axum::serve(listener, routes).await });
        let why = served.map_or_else(|error| error.to_string(), |()| "it ended".to_owned());
        tracing::error!("the control socket is no longer served: {why}");
    };
    std::thread::Builder::new().name("ebof-manage".to_owned()).spawn(run)?;
    Ok(ControlEndpoint { socket })
}

/// What the API has, without who may use it.
pub(crate) fn routes(managed: Arc<Managed>) -> Router {
    Router::new()
        .route("/v1", get(root))
        .route("/v1/inventory", get(inventory))
        .route("/v1/status", get(status))
        .route("/v1/refused", get(refused))
        .route("/v1/changes", post(changes))
        .route("/v1/changes/plan", post(plan_of_changes))
        .route("/v1/tasks", get(tasks))
        .route("/v1/tasks/{id}", get(task))
        .merge(accounts::routes())
        .merge(audit::routes())
        .merge(certificate::routes())
        .merge(configuration::routes())
        .merge(drives::routes())
        .merge(keys::routes())
        .merge(watch::routes())
        .fallback(async |uri: Uri| not_found(format!("there is no {}", uri.path())))
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(managed)
}

/// The last segment of a path.
struct Named(String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        match axum::extract::Path::<String>::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(name)) => Ok(Self(name)),
            Err(rejection) => Err(not_found(rejection.body_text())),
        }
    }
}

/// Runs what takes locks or waits, beside the thread that serves sockets.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Response> {
    tokio::task::spawn_blocking(work).await.map_err(|_panicked| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

async fn root() -> Response {
    let resources = [
        "/v1/inventory",
        "/v1/status",
        "/v1/refused",
        "/v1/changes",
        "/v1/changes/plan",
        "/v1/tasks",
        "/v1/drives/NAME",
        "/v1/images",
        "/v1/accounts",
        "/v1/keys",
        "/v1/audit",
        "/v1/certificate",
        "/v1/certificate/request",
        "/v1/configuration",
        "/v1/configuration/plan",
        "/v1/configuration/history",
        "/v1/edits",
        "/v1/reload",
        "/v1/events",
        "/v1/history",
        "/v1/queues",
        "/v1/slow",
    ];
    Json(serde_json::json!({ "version": env!("CARGO_PKG_VERSION"), "resources": resources })).into_response()
}

async fn inventory(Sight { seen, .. }: Sight) -> Result<Response, Response> {
    beside(move || Json(seen.enclosure.inventory()).into_response()).await
}

async fn status(Sight { seen, .. }: Sight) -> Result<Json<api::Status>, Response> {
    beside(move || Json(seen.target.status())).await
}

async fn refused(Sight { seen, .. }: Sight) -> Result<Json<Vec<api::Refusal>>, Response> {
    beside(move || Json(seen.target.refused())).await
}

async fn changes(
    Sight { seen, .. }: Sight,
    By(by): By,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Response> {
    let transaction = transaction(body)?;
    beside(move || match seen.enclosure.begin_for(transaction, &by) {
        Ok(task) => {
            let place = [(LOCATION, format!("/v1/tasks/{}", task.id))];
            (StatusCode::ACCEPTED, place, Json(task)).into_response()
        }
        Err(refused) if refused.is_busy() => answer(StatusCode::CONFLICT, refused),
        Err(refused) if refused.mistakes.iter().any(|mistake| mistake.kind == MistakeKind::Outdated) => {
            answer(StatusCode::PRECONDITION_FAILED, refused)
        }
        Err(refused) if refused.mistakes.iter().any(|mistake| mistake.kind == MistakeKind::NotAllowed) => {
            answer(StatusCode::FORBIDDEN, refused)
        }
        Err(refused) => answer(StatusCode::UNPROCESSABLE_ENTITY, refused),
    })
    .await
}

/// What changes would do, and whom they would disturb. They are bound to that by its revision.
async fn plan_of_changes(Sight { seen, .. }: Sight, body: Result<Bytes, BytesRejection>) -> Result<Response, Response> {
    let transaction = transaction(body)?;
    let plan = move || Json(ChangePlan::new(&seen.enclosure.inventory(), &transaction.changes)).into_response();
    beside(plan).await
}

#[expect(clippy::result_large_err, reason = "the answer, which is sent at once")]
fn transaction(body: Result<Bytes, BytesRejection>) -> Result<Transaction, Response> {
    let body = body.map_err(|rejection| {
        let advice = format!("accepted: JSON of at most {BODY_BYTES_MAX} bytes");
        answer(rejection.status(), Refused::because(MistakeKind::Value, rejection.body_text(), advice))
    })?;
    serde_json::from_slice(&body).map_err(|error| {
        let message = format!("the body is no transaction: {error}");
        let advice = "want {\"changes\": [{\"change\": \"move\", \"function\": \"d3/vf2\", \"to\": \"fabric0\"}]}";
        answer(StatusCode::BAD_REQUEST, Refused::because(MistakeKind::Value, message, advice))
    })
}

async fn tasks(Sight { seen, .. }: Sight) -> Result<Json<Vec<Task>>, Response> {
    beside(move || Json(seen.enclosure.tasks())).await
}

async fn task(
    State(managed): State<Arc<Managed>>,
    Sight { seen, .. }: Sight,
    Named(id): Named,
    RawQuery(query): RawQuery,
) -> Result<Response, Response> {
    let waiting = waiting(query.as_deref().unwrap_or_default());
    let (known, wait) = waiting.map_err(|refused| answer(StatusCode::BAD_REQUEST, refused))?;
    let Ok(number) = id.parse() else { return Err(no_task(&id)) };
    let end = Instant::now() + wait;
    let mut steps = managed.steps.subscribe();
    // No thread waits: one whose client has gone away would do so, too.
    loop {
        let found = seen.enclosure.task(number, known, Duration::ZERO).ok_or_else(|| no_task(&id))?;
        let has_news = found.is_over() || known != Some(found.revision);
        if has_news || timeout_at(end, steps.changed()).await.is_err() {
            return Ok(Json(found).into_response());
        }
    }
}

/// The revision that is known, and how long to wait for another one: `revision=3&wait_ms=1000`.
fn waiting(query: &str) -> Result<(Option<u64>, Duration), Refused> {
    let (mut known, mut wait) = (None, Duration::ZERO);
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let number = part.split_once('=').and_then(|(key, value)| Some((key, value.parse::<u64>().ok()?)));
        match number {
            Some(("revision", revision)) => known = Some(revision),
            Some(("wait_ms", ms)) => wait = Duration::from_millis(ms).min(WAIT_MAX),
            _ => {
                let advice = "accepted: ?revision=N&wait_ms=N";
                return Err(Refused::because(MistakeKind::Value, format!("`{part}` in the query"), advice));
            }
        }
    }
    Ok((known, wait))
}

fn no_task(id: &str) -> Response {
    let object = format!("task {}", id.chars().take(20).collect::<String>());
    let (message, advice) = ("it is not remembered".to_owned(), "`ebof target tasks` lists those that are".to_owned());
    let mistake = Mistake { kind: MistakeKind::NotFound, change: None, object, message, advice };
    answer(StatusCode::NOT_FOUND, Refused { mistakes: vec![mistake] })
}

fn not_found(message: String) -> Response {
    answer(StatusCode::NOT_FOUND, Refused::because(MistakeKind::NotFound, message, "GET /v1 lists what there is"))
}

async fn method_not_allowed() -> Response {
    let refused = Refused::because(
        MistakeKind::Value,
        "not with this method",
        "`ebof man ebof-json` has the methods of each resource",
    );
    (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET, POST, PUT, PATCH, DELETE")], Json(refused)).into_response()
}

fn answer(status: StatusCode, refused: Refused) -> Response {
    // For the audit log.
    let known = Extension(refused.clone());
    (status, known, Json(refused)).into_response()
}

#[cfg(test)]
mod tests;
