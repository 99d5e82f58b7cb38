//! Addresses of sessions.

use ebof_access::Privilege;
use http::Method;

use super::{Address, DELETE, GET_POST, PATCH};

/// Addresses below `/redfish/v1/SessionService`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SessionPlace {
    /// The service.
    Service,
    /// All sessions.
    Sessions,
    /// A session.
    Session(String),
}

impl Address for SessionPlace {
    fn parse(segments: &[&str]) -> Option<Self> {
        Some(match segments {
            ["SessionService"] => Self::Service,
            ["SessionService", "Sessions"] => Self::Sessions,
            ["SessionService", "Sessions", id] => Self::Session((*id).to_owned()),
            _ => return None,
        })
    }

    fn patterns() -> &'static [(&'static str, &'static str)] {
        &[
            ("SessionService", "SessionService"),
            ("SessionCollection", "SessionService/Sessions"),
            ("Session", "SessionService/Sessions/{SessionId}"),
        ]
    }

    fn segments(&self) -> Vec<&str> {
        match self {
            Self::Service => vec!["SessionService"],
            Self::Sessions => vec!["SessionService", "Sessions"],
            Self::Session(id) => vec!["SessionService", "Sessions", id],
        }
    }

    fn methods(&self) -> &'static [Method] {
        match self {
            Self::Service => PATCH,
            Self::Sessions => GET_POST,
            Self::Session(_) => DELETE,
        }
    }

    fn privilege(&self, method: &Method) -> Option<Privilege> {
        match (self, method) {
            (Self::Sessions, &Method::POST) => None,
            (Self::Service, &Method::PATCH) => Some(Privilege::ConfigureManager),
            // Whose session it is, is looked at where it is ended.
            (Self::Session(_), &Method::DELETE) => Some(Privilege::ConfigureSelf),
            _ => Some(Privilege::Login),
        }
    }
}
