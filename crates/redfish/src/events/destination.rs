//! `EventDestination`: what is sent to make or change a subscription, and how one is shown.

use http::Uri;
use http::uri::Authority;
use serde::Serialize;
use serde_json::Value;

use crate::managed::subscriptions::{
    DestinationChange, Policy, Push, RESOURCE_TYPES, Selection, Subject, Subscription,
};
use crate::place::{EventPlace, ReportKind};
use crate::request::input::Input;
use crate::response::head::{Head, Health, Link, ResourceAction, State, Status, json, links};
use crate::response::message::{Message, Problem};

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
    let is_of_reports = input.one_of("EventFormatType", &[("Event", false), ("MetricReport", true)]).unwrap_or(false);
    let subject = subject(&mut input, is_of_reports);
    let push = Push {
        destination,
        context: context(&mut input).unwrap_or_default(),
        headers: headers(&mut input),
        selection: selection(&mut input, is_of_reports),
        policy: input.one_of("DeliveryRetryPolicy", &POLICIES).unwrap_or(Policy::TerminateAfterRetries),
        verify: input.flag("VerifyCertificate").unwrap_or(true),
        subject,
    };
    input.finish(None)?;
    Ok(push)
}

/// Events, or reports of some definitions.
fn subject(input: &mut Input, is_of_reports: bool) -> Subject {
    const NAME: &str = "MetricReportDefinitions";
    let definitions = input.links(NAME).unwrap_or_default();
    if !is_of_reports {
        if !definitions.is_empty() {
            let accepted = "Accepted: none, unless EventFormatType is MetricReport";
            input.mistake(NAME, Message::property_error(NAME, "the subscription is for events", accepted));
        }
        return Subject::Events;
    }
    let mut kinds = Vec::new();
    for place in definitions {
        match ReportKind::ALL.into_iter().find(|kind| kind.definition() == place) {
            Some(kind) if !kinds.contains(&kind) => kinds.push(kind),
            Some(_) => {}
            None => {
                let accepted = "members of /redfish/v1/TelemetryService/MetricReportDefinitions";
                input.mistake(NAME, Message::not_this_kind(&place, accepted));
            }
        }
    }
    Subject::Reports(kinds)
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
        Some("http" | "https") if !has_port(authority) => Some("its port is no number from 1 to 65535"),
        Some("http" | "https") => None,
        _ => Some("its scheme is neither https nor http"),
    }
}

/// Whether a port that is named is one.
fn has_port(authority: &Authority) -> bool {
    let named = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
    named.is_empty() || authority.port_u16().is_some_and(|port| port > 0)
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

fn selection(input: &mut Input, is_of_reports: bool) -> Selection {
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
        resource_types: list("ResourceTypes"),
        ..Selection::default()
    };
    // Before there was EventFormatType, this was how reports were asked for.
    let event_types = if is_of_reports { &["MetricReport"] } else { &EVENT_TYPES[..] };
    for (name, values, accepted) in [
        ("Severities", &selection.severities, &["OK", "Warning", "Critical"][..]),
        ("EventTypes", &selection.event_types, event_types),
        ("ResourceTypes", &selection.resource_types, &RESOURCE_TYPES),
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
    if is_of_reports {
        no_filters(input, &selection);
    }
    selection
}

/// What selects events would select no report.
fn no_filters(input: &mut Input, selection: &Selection) {
    for (name, is_set) in [
        ("RegistryPrefixes", !selection.prefixes.is_empty()),
        ("MessageIds", !selection.message_ids.is_empty()),
        ("ExcludeRegistryPrefixes", !selection.excluded_prefixes.is_empty()),
        ("ExcludeMessageIds", !selection.excluded_ids.is_empty()),
        ("Severities", !selection.severities.is_empty()),
        ("ResourceTypes", !selection.resource_types.is_empty()),
        ("OriginResources", !selection.origins.is_empty()),
    ] {
        if is_set {
            let accepted = "Accepted: none; MetricReportDefinitions says which reports are wanted";
            input.mistake(name, Message::property_error(name, "the subscription is for metric reports", accepted));
        }
    }
}

const EVENT_TYPES: [&str; 6] =
    ["StatusChange", "ResourceUpdated", "ResourceAdded", "ResourceRemoved", "Alert", "Other"];

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
    resource_types: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metric_report_definitions: Option<Vec<Link>>,
    origin_resources: Vec<Value>,
    subordinate_resources: bool,
    delivery_retry_policy: &'static str,
    verify_certificate: bool,
    actions: Actions,
}

#[derive(Serialize)]
struct Actions {
    #[serde(rename = "#EventDestination.SuspendSubscription")]
    suspend: ResourceAction,
    #[serde(rename = "#EventDestination.ResumeSubscription")]
    resume: ResourceAction,
}

/// A subscription as a resource.
pub(super) fn resource(id: u64, subscription: &Subscription) -> Value {
    let id = id.to_string();
    let of_stream = if subscription.is_of_reports { "MetricReport" } else { "Event" };
    let format = subscription.push.as_ref().map_or(of_stream, |push| push.subject.format());
    let (name, description) = match (&subscription.push, format) {
        (Some(_), "Event") => ("Subscription", "Events are delivered to a URI"),
        (Some(_), _) => ("Subscription", "Metric reports are delivered to a URI"),
        (None, "Event") => ("Stream", "Somebody reads the stream of events"),
        (None, _) => ("Stream", "Somebody reads a stream of metric reports"),
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
        event_format_type: format,
        status,
        push: subscription.push.as_ref().map(|push| Pushed::new(&id, push)),
    })
}

impl Pushed {
    fn new(id: &str, push: &Push) -> Self {
        let Selection { prefixes, message_ids, excluded_prefixes, excluded_ids, event_types, severities, .. } =
            push.selection.clone();
        let definitions = match &push.subject {
            Subject::Events => None,
            Subject::Reports(kinds) => Some(links(kinds.iter().map(|kind| kind.definition()))),
        };
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
            resource_types: push.selection.resource_types.clone(),
            metric_report_definitions: definitions,
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
                suspend: ResourceAction::new(EventPlace::Suspend(id.to_owned())),
                resume: ResourceAction::new(EventPlace::Resume(id.to_owned())),
            },
        }
    }
}
