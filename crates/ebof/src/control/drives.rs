//! Drives in detail, and firmware images that are handed over: paths, bodies and status codes.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use ebof_manage::enclosure::{IMAGE_BYTES_MAX, Mistake, MistakeKind, Refused};

use super::sight::Sight;
use super::{Managed, Named, answer, beside};

/// Their routes.
pub(super) fn routes() -> Router<Arc<Managed>> {
    Router::new()
        .route("/v1/drives/{name}", get(details))
        .route("/v1/images", post(image).layer(DefaultBodyLimit::max(IMAGE_BYTES_MAX)))
}

async fn details(Sight { seen, .. }: Sight, Named(name): Named) -> Result<Response, Response> {
    beside(move || match seen.enclosure.drive_details(&name) {
        Some(details) => Json(details).into_response(),
        None => {
            let object = name.chars().filter(|c| !c.is_control()).take(64).collect();
            let (message, advice) = ("there is no such drive".to_owned(), "`ebof target show` shows which there are");
            let mistake =
                Mistake { kind: MistakeKind::NotFound, change: None, object, message, advice: advice.to_owned() };
            answer(StatusCode::NOT_FOUND, Refused { mistakes: vec![mistake] })
        }
    })
    .await
}

async fn image(Sight { seen, .. }: Sight, body: Result<Bytes, BytesRejection>) -> Result<Response, Response> {
    let body = body.map_err(|rejection| {
        let advice = format!("accepted: an image of at most {IMAGE_BYTES_MAX} bytes");
        answer(rejection.status(), Refused::because(MistakeKind::Value, rejection.body_text(), advice))
    })?;
    beside(move || match seen.enclosure.store_image(&body) {
        Ok(stored) => (StatusCode::CREATED, Json(stored)).into_response(),
        Err(refused) => answer(StatusCode::UNPROCESSABLE_ENTITY, refused),
    })
    .await
}
