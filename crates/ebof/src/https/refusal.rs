//! Refusals before anything is asked for what answers a request, and the realms of paths, each of
//! which has a form for them.

use std::borrow::Cow;
use std::time::Duration;

use axum::body::Body;
use ebof_access::{Denied, DeniedFor};
use ebof_manage::enclosure::{MistakeKind, Refused};
use hyper::header::{ACCEPT_ENCODING, CONNECTION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use serde_json::json;

use super::service::retry_after;

/// Which part of the program answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Realm {
    /// `/redfish`
    Redfish,
    /// `/ebof`: what the control socket has.
    Control,
    /// `/healthz`
    Health,
    /// Everything else.
    Page,
}

impl Realm {
    pub(super) fn from_path(path: &str) -> Self {
        let below =
            |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        match path {
            "/healthz" => Self::Health,
            _ if below("/redfish") => Self::Redfish,
            _ if below("/ebof") => Self::Control,
            _ => Self::Page,
        }
    }

    /// Whether it has accounts.
    pub(super) fn is_api(self) -> bool {
        matches!(self, Self::Redfish | Self::Control)
    }

    /// What is the same for everybody.
    pub(super) fn static_answer(self, parts: &Parts) -> Response<Body> {
        let method = &parts.method;
        if *method != Method::GET && *method != Method::HEAD {
            return Refusal::METHOD.into_response(self);
        }
        match self {
            Self::Health => text(StatusCode::OK, "ok\n"),
            _ => {
                let accepted = parts.headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
                crate::https::page::answer(parts.uri.path(), accepted).map(Body::from)
            }
        }
    }
}

/// Why a request is not answered.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    message: Cow<'static, str>,
    advice: &'static str,
    wait: Option<Duration>,
}

impl Refusal {
    pub(super) const NO_HOST: Self = Self::new(
        StatusCode::BAD_REQUEST,
        "the request has no header Host, or more than one",
        "send one, as HTTP/1.1 has it (RFC 9112, Host and :authority)",
    );
    pub(super) const HOST: Self = Self::new(
        StatusCode::MISDIRECTED_REQUEST,
        "without TLS only this machine is served",
        "use http://localhost:PORT or a loopback address, or HTTPS from elsewhere",
    );
    pub(super) const CROSS_SITE: Self = Self::new(
        StatusCode::FORBIDDEN,
        "the request was made by a page of another site",
        "use the page of the target itself, or a client that is no browser",
    );
    pub(super) const METHOD: Self =
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "not with this method", "accepted: GET and HEAD");
    pub(super) const NOTHING_HERE: Self =
        Self::new(StatusCode::NOT_FOUND, "there is nothing here", "the APIs are at /redfish/v1 and /ebof/v1");
    pub(super) const NO_USER: Self = Self::new(
        StatusCode::UNAUTHORIZED,
        "there is no user, or name, password or session are wrong",
        "log in with an account of the target: `ebof target account list` at its control socket shows those that there are",
    );
    pub(super) const PASSWORD: Self = Self::new(
        StatusCode::FORBIDDEN,
        "the password has to be changed first",
        "`ebof target account set-password NAME` with --server changes it, and so does PATCH of the account over Redfish",
    );
    pub(super) const ROLE: Self = Self::new(
        StatusCode::FORBIDDEN,
        "the role of the account does not allow that",
        "an Operator may change functions and drives, an Administrator everything",
    );
    pub(super) const PART: Self = Self::new(
        StatusCode::FORBIDDEN,
        "the account is limited to some drives and subsystems",
        "ask an Administrator, or use an account that sees the whole target",
    );
    pub(super) const BUSY: Self = Self {
        status: StatusCode::SERVICE_UNAVAILABLE,
        message: Cow::Borrowed("too many passwords are being checked at the moment"),
        advice: "try again a little later; a session needs no password",
        wait: Some(Duration::from_secs(1)),
    };
    pub(super) const BROKEN: Self =
        Self::new(StatusCode::BAD_REQUEST, "the body of the request has not arrived", "send all of it");
    pub(super) const SLOW: Self = Self::new(
        StatusCode::REQUEST_TIMEOUT,
        "the body of the request has not arrived in time",
        "see whether the network is slow, and try again",
    );

    const fn new(status: StatusCode, message: &'static str, advice: &'static str) -> Self {
        Self { status, message: Cow::Borrowed(message), advice, wait: None }
    }

    pub(super) fn too_large(most: usize) -> Self {
        Self {
            message: Cow::Owned(format!("the body has more than {most} bytes")),
            ..Self::new(StatusCode::PAYLOAD_TOO_LARGE, "", "send less at a time, or log in first: users may send more")
        }
    }

    pub(super) fn too_fast(wait: Duration) -> Self {
        let advice = "wait as long as Retry-After says";
        Self { wait: Some(wait), ..Self::new(StatusCode::TOO_MANY_REQUESTS, "too many requests", advice) }
    }

    /// For credentials that were not looked at. It says nothing about the account.
    pub(super) fn denied(denied: Denied) -> Self {
        match denied.reason {
            DeniedFor::Busy => Self { wait: denied.retry_after, ..Self::BUSY },
            _ => Self {
                wait: denied.retry_after,
                ..Self::new(
                    StatusCode::TOO_MANY_REQUESTS,
                    "too many failed logins",
                    "wait as long as Retry-After says; at the target, `ebof target account unlock NAME` ends a lockout",
                )
            },
        }
    }

    pub(super) fn into_response(self, realm: Realm) -> Response<Body> {
        let Self { status, message, advice, wait } = self;
        let mut response = match realm {
            Realm::Redfish => json_of(status, &redfish(&message, advice)),
            Realm::Control => json_of(status, &Refused::because(MistakeKind::Value, message, advice)),
            Realm::Health | Realm::Page => text(status, format!("{message}: {advice}\n")),
        };
        if let Some(wait) = wait {
            let (name, value) = retry_after(wait);
            response.headers_mut().insert(name, value);
        }
        if status == StatusCode::UNAUTHORIZED {
            // Not for pages: browsers would ask on their own.
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"ebof\""));
        }
        if matches!(status, StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT | StatusCode::BAD_REQUEST) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// DSP0266, Error responses.
fn redfish(message: &str, advice: &str) -> serde_json::Value {
    json!({ "error": {
        "code": "Base.1.0.GeneralError",
        "message": message,
        "@Message.ExtendedInfo": [{
            "@odata.type": "#Message.v1_1_1.Message",
            "MessageId": "Base.1.0.GeneralError",
            "Message": message,
            "Severity": "Critical",
            "MessageSeverity": "Critical",
            "Resolution": advice,
        }],
    }})
}

fn json_of(status: StatusCode, body: &impl serde::Serialize) -> Response<Body> {
    let mut response = Response::new(Body::from(serde_json::to_vec(body).unwrap_or_default()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn text(status: StatusCode, text: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_belong_to_one_area() {
        for (path, realm) in [
            ("/", Realm::Page),
            ("/redfish", Realm::Redfish),
            ("/redfish/v1/", Realm::Redfish),
            ("/redfishing", Realm::Page),
            ("/ebof/v1/status", Realm::Control),
            ("/ebof.js", Realm::Page),
            ("/healthz", Realm::Health),
            ("/healthz/", Realm::Page),
            ("*", Realm::Page),
        ] {
            assert_eq!(Realm::from_path(path), realm, "{path}");
        }
    }
}
