//! What a running target reports over HTTP: metrics, its status and the refused
//! connections as JSON.
//!
//! Read-only. All values come from the management API; this file serves them over HTTP on a thread
//! of its own.

mod listener;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::RawQuery;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use ebof_manage::Target as _;
use ebof_server::{Exposition, MetricsDetail, Target};
use tokio::net::TcpSocket;

use crate::doors::refused;

/// The type of the OpenMetrics text format (OpenMetrics 1.0, Protocol Negotiation).
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The type of Prometheus' own text format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The backlog of connections that are not accepted yet; the system may limit it further.
const BACKLOG: u32 = 4096;

/// How long threads have to give a sign of life.
const LIFE: Duration = Duration::from_secs(2);

/// Serves `/metrics`, `/status`, `/refused`, `/healthz` and `/readyz` at `address` until the
/// process ends. Returns the address with its port.
///
/// # Errors
/// Listening at the address failed, or the thread could not be started.
pub(crate) fn serve(address: SocketAddr, target: Arc<Target>) -> anyhow::Result<SocketAddr> {
    if is_public(address) {
        tracing::warn!(
            "metrics on http://{address} can be reached by others than this machine, without authentication or encryption; they \
             name hosts and drives: choose a loopback address, or one of a network that only monitoring reaches"
        );
    }
    serve_for(address, target, listener::LIFETIME)
}

fn is_public(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

/// The same with connections that end after `lifetime`.
fn serve_for(address: SocketAddr, target: Arc<Target>, lifetime: Duration) -> anyhow::Result<SocketAddr> {
    // Threads are for those who wait for signs of life.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_io().enable_time().max_blocking_threads(THREADS_MAX);
    let runtime = runtime.on_thread_start(crate::doors::limits::stand_back).build()?;
    let listener = {
        // The sockets belong to the runtime.
        let _inside = runtime.enter();
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        let listen = || {
            let socket = socket?;
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            socket.listen(BACKLOG)
        };
        listen().map_err(|error| refused(&format!("http://{address} for metrics"), &error))?
    };
    let address = listener.local_addr()?;
    let listener = listener::Listener::new(listener, lifetime);
    let status = Arc::clone(&target);
    let refused = Arc::clone(&target);
    let ready = Arc::clone(&target);
    let healthy = Arc::clone(&target);
    let metrics = target;
    let routes = Router::new()
        .route("/metrics", get(async move |query, headers| metrics_of(&metrics, query, &headers)))
        .route("/status", get(async move || Json(status.status())))
        .route("/healthz", get(async move || health_of(healthy).await))
        .route("/readyz", get(async move || verdict("ready", &ready.unready())))
        .route("/refused", get(async move || Json(refused.refused())));
    let run = move || {
        // The listener retries after errors, so this does not return.
        let served = runtime.block_on(async move { axum::serve(listener, routes).await });
        let why = served.map_or_else(|error| error.to_string(), |()| "it ended".to_owned());
        tracing::error!("metrics are no longer served: {why}");
    };
    std::thread::Builder::new().name("ebof-metrics".to_owned()).spawn(run)?;
    Ok(address)
}

/// Threads that wait for signs of life.
const THREADS_MAX: usize = 4;

/// Whether every thread that serves does something.
async fn health_of(target: Arc<Target>) -> Response {
    let checked = tokio::task::spawn_blocking(move || target.check_threads(LIFE)).await;
    let silent: Vec<String> = checked.ok().and_then(Result::err).iter().map(ToString::to_string).collect();
    verdict("healthy", &silent)
}

/// 200, or 503 with the reasons.
fn verdict(what: &str, reasons: &[String]) -> Response {
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(serde_json::json!({ what: reasons.is_empty(), "reasons": reasons }))).into_response()
}

fn metrics_of(target: &Target, RawQuery(query): RawQuery, headers: &HeaderMap) -> Response {
    let detail = match query.as_deref() {
        None | Some("") => MetricsDetail::Namespace,
        Some("detail=queue") => MetricsDetail::Queue,
        Some(_) => return (StatusCode::BAD_REQUEST, "accepted: /metrics, /metrics?detail=queue\n").into_response(),
    };
    let accepts = |name| headers.get_all(ACCEPT).iter().any(|value| value.to_str().is_ok_and(|it| it.contains(name)));
    let (exposition, content_type) = if accepts("application/openmetrics-text") {
        (Exposition::OpenMetrics, OPENMETRICS)
    } else {
        (Exposition::Text, TEXT)
    };
    ([(CONTENT_TYPE, content_type)], target.metrics(exposition, detail)).into_response()
}

#[cfg(test)]
mod tests;
