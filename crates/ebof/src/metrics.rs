//! What a running target tells over HTTP: OpenMetrics for monitoring, its state and the refused connections as JSON.
//!
//! Read only. What is told comes from the management API; this is its wiring to HTTP on a thread of its own.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::Context as _;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use ebof_manage::Target as _;
use ebof_target::Target;

/// The type of the OpenMetrics text format (OpenMetrics 1.0, Protocol Negotiation).
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves `/metrics`, `/status` and `/refused` at `address` until the process ends. Returns where it listens.
///
/// # Errors
/// The address cannot be listened on, or there is no thread to be had.
pub(crate) fn serve(address: SocketAddr, target: Arc<Target>) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind(address).with_context(|| format!("listening on http://{address} for metrics"))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let (status, refused, metrics) = (Arc::clone(&target), Arc::clone(&target), target);
    let routes = Router::new()
        .route("/metrics", get(async move || metrics_of(&metrics)))
        .route("/status", get(async move || Json(status.status())))
        .route("/refused", get(async move || Json(refused.refused())));
    let run = move || {
        runtime.block_on(async move {
            let served = match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => axum::serve(listener, routes).await,
                Err(error) => Err(error),
            };
            if let Err(error) = served {
                tracing::error!("metrics are no longer served: {error}");
            }
        });
    };
    std::thread::Builder::new().name("ebof-metrics".to_owned()).spawn(run)?;
    Ok(address)
}

fn metrics_of(target: &Target) -> Response {
    ([(CONTENT_TYPE, OPENMETRICS)], target.metrics()).into_response()
}
