//! One event as Redfish sends it (`Event.EventRecord`), and several of them as a payload.

use ebof_manage::events::{Event, EventKind};
use serde::Serialize;
use serde_json::{Value, json};

use super::selection::FilterFields;
use crate::place::{Log, ManagerPlace, Place};
use crate::response::head::{Health, Link, link};
use crate::response::health::health;
use crate::response::message::{OWN, camel};
use crate::response::time::date_time;

/// `Event.EventRecord`, without the number of its place in a payload.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct EventRecord {
    event_type: String,
    event_id: String,
    event_timestamp: String,
    severity: Health,
    message_severity: Health,
    message: String,
    message_id: String,
    message_args: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin_of_condition: Option<Link>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_entry: Option<Link>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_group_id: Option<u64>,
    resolution: String,
}

/// What a test event says.
pub(crate) struct TestEvent {
    pub(crate) id: String,
    pub(crate) severity: Health,
    pub(crate) message: String,
    pub(crate) args: Vec<String>,
    pub(crate) origin: Option<Place>,
    pub(crate) event_id: String,
    pub(crate) timestamp: String,
    pub(crate) kind: Option<String>,
    pub(crate) group: Option<u64>,
}

impl EventRecord {
    /// Of an event of the target, about the resource `origin`.
    pub(crate) fn from_event(event: &Event, origin: Place) -> Self {
        let severity = health(event.severity);
        let times = if event.count > 1 { format!(" ({} times)", event.count) } else { String::new() };
        Self {
            event_type: event_type(event.kind).to_owned(),
            event_id: event.id.to_string(),
            event_timestamp: date_time(event.time_unix_ms),
            severity,
            message_severity: severity,
            message: format!("{}{times}", event.message),
            message_id: format!("{OWN}.{}", camel(event.kind.name())),
            message_args: vec![event.message.clone()],
            origin_of_condition: Some(link(origin)),
            log_entry: Some(link(ManagerPlace::Entry(Log::Events, event.id.to_string()))),
            event_group_id: None,
            resolution: event.advice.clone().unwrap_or_else(|| "None.".to_owned()),
        }
    }

    /// That events were lost.
    pub(crate) fn for_lost_events(lost: u64, now: String) -> Self {
        let message = format!("{lost} events were not read in time and are lost");
        Self {
            event_type: "Other".to_owned(),
            event_id: "lost".to_owned(),
            event_timestamp: now,
            severity: Health::Warning,
            message_severity: Health::Warning,
            message_args: vec![message.clone()],
            message,
            message_id: format!("{OWN}.EventsLost"),
            origin_of_condition: None,
            log_entry: None,
            event_group_id: None,
            resolution: "Read the resources that matter again.".to_owned(),
        }
    }

    /// Of a test.
    pub(crate) fn from_test(test: TestEvent) -> Self {
        Self {
            event_type: test.kind.unwrap_or_else(|| "Alert".to_owned()),
            event_id: test.event_id,
            event_timestamp: test.timestamp,
            severity: test.severity,
            message_severity: test.severity,
            message: test.message,
            message_id: test.id,
            message_args: test.args,
            origin_of_condition: test.origin.map(link),
            log_entry: None,
            event_group_id: test.group,
            resolution: "None: this is a test.".to_owned(),
        }
    }

    /// What filters look at.
    pub(crate) fn filter_fields(&self) -> FilterFields<'_> {
        FilterFields {
            message_id: &self.message_id,
            event_type: &self.event_type,
            severity: self.severity,
            origin: self.origin_of_condition.as_ref().map(|link| link.place.to_string()),
            resource_type: self.origin_of_condition.as_ref().map_or("", |link| resource_type(&link.place)),
        }
    }
}

/// `Event`, with records.
pub(crate) fn payload(id: &str, context: &str, records: &[EventRecord]) -> Value {
    let numbered = records.iter().enumerate().map(|(at, record)| {
        let mut value = crate::response::head::json(record);
        value["MemberId"] = at.to_string().into();
        value
    });
    let mut payload = json!({
        "@odata.type": "#Event.v1_13_0.Event", "Id": id, "Name": "Events",
        "Events": numbered.collect::<Vec<_>>(), "Events@odata.count": records.len(),
    });
    if !context.is_empty() {
        payload["Context"] = context.into();
    }
    payload
}

/// The member of `Event.EventType`, which is deprecated and required.
fn event_type(kind: EventKind) -> &'static str {
    match kind.name() {
        name if name.ends_with("-added") || name.ends_with("-began") => "ResourceAdded",
        name if name.ends_with("-removed") || name.ends_with("-ended") => "ResourceRemoved",
        name if name.ends_with("-changed") || name.ends_with("-moved") => "ResourceUpdated",
        name if name.ends_with("-given") || name.ends_with("-taken") => "ResourceUpdated",
        name if name.ends_with("-up") || name.ends_with("-down") => "StatusChange",
        _ => "Alert",
    }
}

/// The type of the resource at an address; for a collection that of its members.
fn resource_type(place: &Place) -> &'static str {
    let kind = place.kind();
    kind.strip_suffix("Collection").unwrap_or(kind)
}
