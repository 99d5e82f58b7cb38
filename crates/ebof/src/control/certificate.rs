//! The certificate of HTTPS: shown, requested, replaced. Owns the bodies and status codes; what is
//! checked is in `identity.rs`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use ebof_manage::api::{
    CERTIFICATE_SCHEMA, CertificateRequest, CertificateStatus, ReplaceCertificate, RequestCertificate,
};
use ebof_manage::enclosure::{MistakeKind, Refused};
use ebof_manage::events::{EventKind, NewEvent};
use ebof_state::StoreError;

use super::accounts::{parsed, remote};
use super::by::By;
use super::{answer, beside};
use crate::identity::{CertificateError, Identity};
use crate::managed::Managed;

pub(super) fn routes() -> Router<Arc<Managed>> {
    Router::new().route("/v1/certificate", get(show).put(replace)).route("/v1/certificate/request", post(request))
}

async fn show(State(managed): State<Arc<Managed>>) -> Result<Response, Response> {
    let identity = Arc::clone(&remote(&managed)?.identity);
    Ok(Json(status(&identity)).into_response())
}

async fn replace(
    State(managed): State<Arc<Managed>>,
    By(by): By,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Response> {
    let identity = Arc::clone(&remote(&managed)?.identity);
    let wanted =
        "want {\"certificate\": \"-----BEGIN CERTIFICATE-----...\", \"key\": \"-----BEGIN PRIVATE KEY-----...\"}";
    let ReplaceCertificate { certificate, key } = parsed(body, wanted)?;
    beside(move || match identity.replace(&certificate, key.as_deref()) {
        Ok(info) => {
            let event = NewEvent::new(EventKind::CertificateChanged, "", "the certificate of HTTPS was replaced");
            managed.target.events().report(event.by(&by));
            tracing::info!(%by, "HTTPS has another certificate: {}, SHA-256 {}", info.subject, info.fingerprint);
            Json(status(&identity)).into_response()
        }
        Err(error) => refused(&error),
    })
    .await
}

async fn request(
    State(managed): State<Arc<Managed>>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Response> {
    let identity = Arc::clone(&remote(&managed)?.identity);
    let subject: RequestCertificate = parsed(body, "want {\"common_name\": \"box.example.org\"}")?;
    beside(move || match identity.request(&subject) {
        Ok(request) => Json(CertificateRequest { request }).into_response(),
        Err(error) => refused(&error),
    })
    .await
}

fn status(identity: &Identity) -> CertificateStatus {
    let (info, pem) = identity.shown();
    CertificateStatus {
        schema: CERTIFICATE_SCHEMA,
        subject: info.subject,
        issuer: info.issuer,
        serial_number: info.serial_number,
        valid_from: info.valid_from,
        valid_to: info.valid_to,
        fingerprint: info.fingerprint,
        self_made: info.is_self_made,
        pem,
    }
}

fn refused(error: &CertificateError) -> Response {
    let (status, kind) = match error {
        CertificateError::Store(StoreError::Unknown { .. }) => {
            (StatusCode::INTERNAL_SERVER_ERROR, MistakeKind::Unknown)
        }
        CertificateError::Store(StoreError::NotStored(_))
        | CertificateError::State(_)
        | CertificateError::Stored(..) => (StatusCode::INTERNAL_SERVER_ERROR, MistakeKind::Conflict),
        _ => (StatusCode::UNPROCESSABLE_ENTITY, MistakeKind::Value),
    };
    answer(status, Refused::because(kind, error.to_string(), "the certificate in force stays while the target runs"))
}
