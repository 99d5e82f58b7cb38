//! Addresses of events and those who follow them.

use ebof_access::Privilege;
use http::Method;

use super::{ACTION, Address, GET_POST, PATCH, PATCH_DELETE, READ};

/// Addresses below `/redfish/v1/EventService`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum EventPlace {
    /// The service.
    Service,
    /// Sends an event that nothing has caused.
    SubmitTestEvent,
    /// The stream.
    Stream,
    /// All subscriptions.
    Subscriptions,
    /// A subscription.
    Subscription(String),
    /// Stops its deliveries.
    Suspend(String),
    /// Goes on with them.
    Resume(String),
}

const SUSPEND: &str = "EventDestination.SuspendSubscription";

const RESUME: &str = "EventDestination.ResumeSubscription";

impl Address for EventPlace {
    fn parse(segments: &[&str]) -> Option<Self> {
        let ["EventService", rest @ ..] = segments else { return None };
        Some(match rest {
            [] => Self::Service,
            ["Actions", "EventService.SubmitTestEvent"] => Self::SubmitTestEvent,
            ["SSE"] => Self::Stream,
            ["Subscriptions"] => Self::Subscriptions,
            ["Subscriptions", id] => Self::Subscription((*id).to_owned()),
            ["Subscriptions", id, "Actions", action] => match *action {
                SUSPEND => Self::Suspend((*id).to_owned()),
                RESUME => Self::Resume((*id).to_owned()),
                _ => return None,
            },
            _ => return None,
        })
    }

    fn patterns() -> &'static [(&'static str, &'static str)] {
        &[
            ("EventService", "EventService"),
            ("", "EventService/Actions/EventService.SubmitTestEvent"),
            ("", "EventService/SSE"),
            ("EventDestinationCollection", "EventService/Subscriptions"),
            ("EventDestination", "EventService/Subscriptions/{EventDestinationId}"),
            ("", "EventService/Subscriptions/{EventDestinationId}/Actions/EventDestination.SuspendSubscription"),
            ("", "EventService/Subscriptions/{EventDestinationId}/Actions/EventDestination.ResumeSubscription"),
        ]
    }

    fn segments(&self) -> Vec<&str> {
        let below: Vec<&str> = match self {
            Self::Service => vec![],
            Self::SubmitTestEvent => vec!["Actions", "EventService.SubmitTestEvent"],
            Self::Stream => vec!["SSE"],
            Self::Subscriptions => vec!["Subscriptions"],
            Self::Subscription(id) => vec!["Subscriptions", id],
            Self::Suspend(id) => vec!["Subscriptions", id, "Actions", SUSPEND],
            Self::Resume(id) => vec!["Subscriptions", id, "Actions", RESUME],
        };
        [vec!["EventService"], below].concat()
    }

    fn methods(&self) -> &'static [Method] {
        match self {
            Self::Service => PATCH,
            Self::SubmitTestEvent | Self::Suspend(_) | Self::Resume(_) => ACTION,
            Self::Stream => READ,
            Self::Subscriptions => GET_POST,
            Self::Subscription(_) => PATCH_DELETE,
        }
    }

    fn privilege(&self, method: &Method) -> Option<Privilege> {
        // Who subscribes makes the target send requests to places of their choice.
        Some(if *method == Method::GET { Privilege::Login } else { Privilege::ConfigureManager })
    }
}
