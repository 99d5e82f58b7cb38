//! Events for those who follow them: `/redfish/v1/EventService`, with subscriptions that are
//! delivered to a URI, and streams (server-sent events); metrics, which are followed in the same
//! way. Who follows what is known to [`crate::managed::subscriptions`].

mod delivery;
mod destination;
mod feed;
mod objects;
mod origin;
mod telemetry;

use http::Method;
use serde::Serialize;
use serde_json::Value;

use crate::area::{Area, ChangeRequest, Done};
use crate::managed::subscriptions::{EventRecord, RESOURCE_TYPES, TestEvent};
use crate::managed::view::View;
use crate::place::{EventPlace, Place};
use crate::request::input::Input;
use crate::response::head::{Collection, Head, Health, Link, ResourceAction, Status, json, link};
use crate::response::message::{Message, Problem};
pub use delivery::{Delivery, Outcome};
pub(crate) use feed::FeedRequest;
pub use feed::{Feed, Piece};

impl Area for EventPlace {
    fn read(&self, view: &View<'_>) -> Result<Value, Problem> {
        match self {
            Self::Service => Ok(json(&EventService::new(view))),
            Self::Subscriptions => {
                let members = view.parts.subscription_ids().into_iter().map(|id| Self::Subscription(id.to_string()));
                let name = "Event Subscriptions";
                Ok(json(&Collection::new(Self::Subscriptions, "EventDestination", name, members)))
            }
            Self::Subscription(id) => {
                let number = number(id);
                let subscription = view.parts.subscription(number).ok_or_else(|| self.missing())?;
                Ok(destination::resource(number, &subscription))
            }
            _ => Err(self.missing()),
        }
    }

    fn change(&self, method: &Method, input: Input, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
        let subscriptions = &request.parts.subscriptions;
        match (self, method) {
            (Self::Service, _) => self.configure(input, request),
            (Self::SubmitTestEvent, _) => submit(input, request),
            (Self::Subscriptions, _) => {
                let new = destination::new(input)?;
                let id = subscriptions.add(new, request.parts.events.latest())?;
                Ok(Done::Created(Self::Subscription(id.to_string()).into(), Vec::new()))
            }
            (Self::Subscription(id), &Method::DELETE) => {
                if subscriptions.remove(number(id))? {
                    Ok(Done::Made)
                } else {
                    Err(self.missing())
                }
            }
            (Self::Subscription(id), _) => {
                let current = self.read(request.view)?;
                let change = destination::change(input, &current)?;
                if subscriptions.alter(number(id), &change)? { Ok(Done::Made) } else { Err(self.missing()) }
            }
            (Self::Suspend(id) | Self::Resume(id), _) => {
                // Events from before the subscription was resumed are not delivered.
                input.finish(None)?;
                let is_on = matches!(self, Self::Resume(_));
                let latest = request.parts.events.latest();
                if subscriptions.switch(number(id), is_on, latest)? { Ok(Done::Made) } else { Err(self.missing()) }
            }
            (Self::Stream, _) => Err(self.missing()),
        }
    }
}

/// The number that an identifier is; none has 0.
fn number(id: &str) -> u64 {
    id.parse().ok().filter(|number: &u64| number.to_string() == id).unwrap_or(0)
}

impl EventPlace {
    fn configure(&self, mut input: Input, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
        let attempts = input.number("DeliveryRetryAttempts", 0..=100);
        let interval = input.number("DeliveryRetryIntervalSeconds", 1..=3600);
        input.finish(Some(&self.read(request.view)?))?;
        request.parts.subscriptions.configure(attempts, interval)?;
        Ok(Done::Made)
    }
}

/// Sends a test event to everybody whose filters it passes.
fn submit(mut input: Input, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
    const ACTION: &str = "EventService.SubmitTestEvent";
    let id = input.text("MessageId");
    let id = input.parameter(ACTION, "MessageId", id);
    let severities = [("OK", Health::OK), ("Warning", Health::Warning), ("Critical", Health::Critical)];
    let severity = input.one_of("MessageSeverity", &severities).or_else(|| input.one_of("Severity", &severities));
    let message = input.text("Message");
    let args = input.texts("MessageArgs");
    let origin = input.text("OriginOfCondition");
    let origin = origin.map(|path| (Place::parse(&path), path));
    if let Some((None, path)) = &origin {
        let accepted = "the address of a resource of this service";
        input.mistake(
            "OriginOfCondition",
            Message::property_value("OriginOfCondition", &path.as_str().into(), accepted),
        );
    }
    let event_id = input.text("EventId");
    let timestamp = input.text("EventTimestamp");
    let kind = input.text("EventType");
    let group = input.number("EventGroupId", 0..=u64::MAX >> 1);
    input.finish(None)?;
    let record = EventRecord::from_test(TestEvent {
        id: id.unwrap_or_default(),
        severity: severity.unwrap_or(Health::OK),
        message: message.unwrap_or_else(|| "A test event.".to_owned()),
        args: args.unwrap_or_default(),
        origin: origin.and_then(|(place, _)| place),
        event_id: event_id.unwrap_or_else(|| "test".to_owned()),
        timestamp: timestamp.unwrap_or_else(|| request.view.now()),
        kind,
        group,
    });
    request.parts.subscriptions.submit(record);
    Ok(Done::Made)
}

/// `EventService`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct EventService {
    #[serde(flatten)]
    head: Head,
    service_enabled: bool,
    status: Status,
    delivery_retry_attempts: u32,
    delivery_retry_interval_seconds: u64,
    registry_prefixes: [&'static str; 1],
    event_format_types: [&'static str; 2],
    severities: [Health; 3],
    resource_types: [&'static str; 14],
    exclude_registry_prefix: bool,
    exclude_message_id: bool,
    origin_resources_supported: bool,
    subordinate_resources_supported: bool,
    include_origin_of_condition_supported: bool,
    server_sent_event_uri: Place,
    #[serde(rename = "SSEFilterPropertiesSupported")]
    filter_properties: FilterProperties,
    subscriptions: Link,
    actions: Actions,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct FilterProperties {
    event_format_type: bool,
    message_id: bool,
    metric_report_definition: bool,
    origin_resource: bool,
    registry_prefix: bool,
    resource_type: bool,
    subordinate_resources: bool,
}

#[derive(Serialize)]
struct Actions {
    #[serde(rename = "#EventService.SubmitTestEvent")]
    submit: ResourceAction,
}

impl EventService {
    fn new(view: &View<'_>) -> Self {
        let (attempts, interval) = view.parts.subscriptions.retries();
        let description = "What happens to the target, for those who follow it";
        Self {
            head: Head::new(EventPlace::Service, "#EventService.v1_12_0.EventService", "Event Service", description),
            service_enabled: true,
            status: Status::OK,
            delivery_retry_attempts: attempts,
            delivery_retry_interval_seconds: interval,
            registry_prefixes: ["Ebof"],
            event_format_types: ["Event", "MetricReport"],
            severities: [Health::OK, Health::Warning, Health::Critical],
            resource_types: RESOURCE_TYPES,
            exclude_registry_prefix: true,
            exclude_message_id: true,
            origin_resources_supported: true,
            subordinate_resources_supported: true,
            include_origin_of_condition_supported: false,
            server_sent_event_uri: EventPlace::Stream.into(),
            filter_properties: FilterProperties {
                event_format_type: true,
                message_id: true,
                metric_report_definition: true,
                origin_resource: true,
                registry_prefix: true,
                resource_type: true,
                subordinate_resources: false,
            },
            subscriptions: link(EventPlace::Subscriptions),
            actions: Actions { submit: ResourceAction::new(EventPlace::SubmitTestEvent) },
        }
    }
}

#[cfg(test)]
mod tests;
