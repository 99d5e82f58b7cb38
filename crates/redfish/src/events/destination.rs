//! `EventDestination`: what is sent to make or change a subscription, and how one is shown.

use http::Uri;
use serde::Serialize;
use serde_json::Value;

use crate::head::{Action, Head, Health, State, Status, json};
use crate::input::Input;
use crate::message::{Message, Problem};
use crate::place::EventPlace;
use crate::subscriptions::{DestinationChange, Policy, Push, Selection, Subscription};

/// The most entries of each list of a subscription, and of its headers.
const LIST_MAX: usize = 64;
const HEADERS_MAX: usize = 16;

/// The longest URI of a destination, bytes.
const URI_BYTES_MAX: usize = 1024;

/// The longest context, bytes.
const CONTEXT_BYTES_MAX: usize = 512;

const POLICIES: [(&str, Policy); 4] = [
    ("TerminateAfterRetries", Policy::TerminateAfterRetries),
    ("SuspendRetries", Policy::SuspendRetries),
    ("RetryForever", Policy::RetryForever),
    ("RetryForeverWithBackoff", Policy::RetryForeverWithBackoff),
];

/// What a POST asks for.
pub(super) fn new(mut input: Input) -> Result<Push, Problem> {
    let destination = input.text("Destination");
    let destination = input.required("Destination", destination).unwrap_or_default();
    let is_told = input.one_of("Protocol", &[("Redfish", ())]);
    input.required("Protocol", is_told);
    if let Some(why) = objection(&destination) {
        input.mistake(
            "Destination",
            Message::property_error("Destination", why, "Accepted: https://collector.example/PATH"),
        );
    }
    input.one_of("SubscriptionType", &[("RedfishEvent", ())]);
    input.one_of("EventFormatType", &[("Event", ())]);
    let push = Push {
        destination,
        context: context(&mut input).unwrap_or_default(),
        headers: headers(&mut input),
        selection: selection(&mut input),
        policy: input.one_of("DeliveryRetryPolicy", &POLICIES).unwrap_or(Policy::TerminateAfterRetries),
        verify: input.flag("VerifyCertificate").unwrap_or(true),
    };
    input.finish(None)?;
    Ok(push)
}

/// Why a destination is not accepted.
fn objection(text: &str) -> Option<&'static str> {
    if text.len() > URI_BYTES_MAX {
        return Some("it has more than 1024 bytes");
    }
    let Ok(uri) = text.parse::<Uri>() else { return Some("it is no URI") };
    let Some(authority) = uri.authority() else { return Some("it names no host") };
    match uri.scheme_str() {
        Some("http" | "https") if authority.as_str().contains('@') => Some("it has a user name or a password"),
        Some("http" | "https") if authority.host().is_empty() => Some("it names no host"),
        Some("http" | "https") => None,
        _ => Some("its scheme is neither https nor http"),
    }
}

fn context(input: &mut Input) -> Option<String> {
    input.long_text("Context", CONTEXT_BYTES_MAX)
}

/// `[{"Authorization": "Bearer ..."}]`
fn headers(input: &mut Input) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for value in input.list("HttpHeaders").unwrap_or_default() {
        let Value::Object(object) = value else {
            let why = "an entry is no object";
            input.mistake(
                "HttpHeaders",
                Message::property_error("HttpHeaders", why, "Accepted: [{\"NAME\": \"VALUE\"}]"),
            );
            continue;
        };
        for (name, value) in object {
            let Some(value) = value.as_str() else {
                let message = Message::property_error("HttpHeaders", "a value is no string", "Accepted: strings");
                input.mistake("HttpHeaders", message);
                return Vec::new();
            };
            let is_name = http::HeaderName::from_bytes(name.as_bytes()).is_ok_and(|name| is_free(&name));
            let is_value = http::HeaderValue::from_str(value).is_ok();
            if !is_name || !is_value || all.len() >= HEADERS_MAX {
                let why = "a header cannot be sent, is set by the target, or is one too many";
                let accepted = "Accepted: at most 16 headers, such as Authorization";
                input.mistake("HttpHeaders", Message::property_error("HttpHeaders", why, accepted));
                return Vec::new();
            }
            all.push((name, value.to_owned()));
        }
    }
    all
}

/// Whether a header is not one of the message itself.
fn is_free(name: &http::HeaderName) -> bool {
    use http::header::{
        CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
    };
    let own = [CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];
    !own.contains(name)
}

fn selection(input: &mut Input) -> Selection {
    let mut list = |name: &str| {
        let list = input.texts(name).unwrap_or_default();
        if list.len() > LIST_MAX {
            input.mistake(name, Message::property_error(name, "it has too many entries", "Accepted: at most 64"));
        }
        list
    };
    let mut selection = Selection {
        prefixes: list("RegistryPrefixes"),
        message_ids: list("MessageIds"),
        excluded_prefixes: list("ExcludeRegistryPrefixes"),
        excluded_ids: list("ExcludeMessageIds"),
        event_types: list("EventTypes"),
        severities: list("Severities"),
        ..Selection::default()
    };
    for (name, values, accepted) in [
        ("Severities", &selection.severities, &["OK", "Warning", "Critical"][..]),
        ("EventTypes", &selection.event_types, &EVENT_TYPES[..]),
    ] {
        if let Some(wrong) = values.iter().find(|value| !accepted.contains(&value.as_str())) {
            input.mistake(name, Message::property_value(name, &wrong.as_str().into(), &accepted.join(", ")));
        }
    }
    let origins = input.links("OriginResources").unwrap_or_default();
    if origins.len() > LIST_MAX {
        let why = "it has too many entries";
        input.mistake("OriginResources", Message::property_error("OriginResources", why, "Accepted: at most 64"));
    }
    selection.origins = origins.iter().map(ToString::to_string).collect();
    selection.subordinate = input.flag("SubordinateResources").unwrap_or(false);
    selection
}

const EVENT_TYPES: [&str; 7] =
    ["StatusChange", "ResourceUpdated", "ResourceAdded", "ResourceRemoved", "Alert", "MetricReport", "Other"];

pub(super) fn change(mut input: Input, current: &Value) -> Result<DestinationChange, Problem> {
    let change = DestinationChange {
        context: context(&mut input),
        policy: input.one_of("DeliveryRetryPolicy", &POLICIES),
        verify: input.flag("VerifyCertificate"),
    };
    input.finish(Some(current))?;
    Ok(change)
}

/// `EventDestination`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct EventDestination {
    #[serde(flatten)]
    head: Head,
    context: String,
    protocol: &'static str,
    subscription_type: &'static str,
    event_format_type: &'static str,
    status: Status,
    #[serde(flatten)]
    push: Option<Pushed>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Pushed {
    destination: String,
    /// Never shown.
    http_headers: [(); 0],
    registry_prefixes: Vec<String>,
    message_ids: Vec<String>,
    exclude_registry_prefixes: Vec<String>,
    exclude_message_ids: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    event_types: Vec<String>,
    severities: Vec<String>,
    origin_resources: Vec<Value>,
    subordinate_resources: bool,
    delivery_retry_policy: &'static str,
    verify_certificate: bool,
    actions: Actions,
}

#[derive(Serialize)]
struct Actions {
    #[serde(rename = "#EventDestination.SuspendSubscription")]
    suspend: Action,
    #[serde(rename = "#EventDestination.ResumeSubscription")]
    resume: Action,
}

/// A subscription as a resource.
pub(super) fn resource(id: u64, subscription: &Subscription) -> Value {
    let id = id.to_string();
    let (name, description) = match &subscription.push {
        Some(_) => ("Subscription", "Events are delivered to a URI"),
        None => ("Stream", "Somebody reads the stream of events"),
    };
    let status = match (&subscription.push, subscription.is_on, subscription.failures) {
        (Some(_), false, _) => Status { state: State::Disabled, health: Some(Health::Warning) },
        (_, _, 0) => Status::OK,
        _ => Status::enabled(Health::Warning),
    };
    json(&EventDestination {
        head: Head::new(
            EventPlace::Subscription(id.clone()),
            "#EventDestination.v1_16_0.EventDestination",
            format!("{name} {id}"),
            description,
        ),
        context: subscription.push.as_ref().map(|push| push.context.clone()).unwrap_or_default(),
        protocol: "Redfish",
        subscription_type: if subscription.push.is_some() { "RedfishEvent" } else { "SSE" },
        event_format_type: "Event",
        status,
        push: subscription.push.as_ref().map(|push| Pushed::new(&id, push)),
    })
}

impl Pushed {
    fn new(id: &str, push: &Push) -> Self {
        let Selection { prefixes, message_ids, excluded_prefixes, excluded_ids, event_types, severities, .. } =
            push.selection.clone();
        let policy = POLICIES.iter().find(|(_, policy)| *policy == push.policy);
        Self {
            destination: push.destination.clone(),
            http_headers: [],
            registry_prefixes: prefixes,
            message_ids,
            exclude_registry_prefixes: excluded_prefixes,
            exclude_message_ids: excluded_ids,
            event_types,
            severities,
            origin_resources: push
                .selection
                .origins
                .iter()
                .map(|path| serde_json::json!({ "@odata.id": path }))
                .collect(),
            subordinate_resources: push.selection.subordinate,
            delivery_retry_policy: policy.map_or("TerminateAfterRetries", |(name, _)| name),
            verify_certificate: push.verify,
            actions: Actions {
                suspend: Action::new(EventPlace::Suspend(id.to_owned())),
                resume: Action::new(EventPlace::Resume(id.to_owned())),
            },
        }
    }
}
