//! Subscriptions, deliveries and streams.

mod filters;
mod reports;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ebof_access::{Keep, Role};
use ebof_manage::events::{EventKind, NewEvent, SharedEvents};
use serde_json::{Value, json};

use super::{Delivery, Feed, Outcome, Piece};
use crate::managed::parts::Parts;
use crate::managed::subscriptions::{
    STREAMS_MAX, STREAMS_OF_ACCOUNT_MAX, STREAMS_OF_ADDRESS_MAX, SUBSCRIPTIONS_MAX, Subscriptions,
};
use crate::request::caller::Caller;
use crate::service::tests::{ask_of, caller, code, parts};
use crate::service::{Body, Service};

const SERVICE: &str = "/redfish/v1/EventService";

fn ask(service: &Service, method: &str, path: &str, body: Value) -> (u16, Value) {
    let (status, _, body) =
        ask_of(service, method, &format!("{SERVICE}{path}"), &[], body, &caller(Some(Role::Administrator)));
    (status, body)
}

fn report(service: &Service, kind: EventKind, object: &str, message: &str) {
    service.parts().events.report(NewEvent::new(kind, object, message));
}

#[expect(clippy::needless_pass_by_value, reason = "it is written where it is passed")]
fn subscription(more: Value) -> Value {
    let mut body = json!({ "Destination": "https://192.0.2.1/events", "Protocol": "Redfish", "Context": "mine" });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn records(body: &str) -> Vec<Value> {
    serde_json::from_str::<Value>(body).unwrap()["Events"].as_array().unwrap().clone()
}

#[test]
fn events_are_delivered_once_as_far_as_they_are_wanted() {
    let service = Service::new(parts());
    let subscriptions = &service.parts().subscriptions;
    report(&service, EventKind::TaskBegan, "", "before");
    let body = subscription(json!({
        "Severities": ["Warning"], "HttpHeaders": [{ "Authorization": "Bearer secret" }],
        "OriginResources": [{ "@odata.id": "/redfish/v1/Chassis" }], "SubordinateResources": true,
    }));
    let (status, made) = ask(&service, "POST", "/Subscriptions", body);
    assert_eq!((status, made["Context"].as_str(), &made["HttpHeaders"]), (201, Some("mine"), &json!([])));
    assert!(!made.to_string().contains("secret"));
    let now = Instant::now();
    report(&service, EventKind::TaskBegan, "", "not of this severity");
    report(&service, EventKind::PortDown, "", "not below the chassis");
    assert!(Delivery::due(service.parts(), now).is_empty());
    service.parts().events.report(
        NewEvent::new(EventKind::HealthWarning, "d1", "gone").severity(ebof_manage::events::EventSeverity::Warning),
    );
    let due = Delivery::due(service.parts(), now);
    let [delivery] = due.as_slice() else { panic!("{due:?}") };
    assert_eq!(delivery.headers, [("Authorization".to_owned(), "Bearer secret".to_owned())]);
    let sent = records(&delivery.body);
    assert_eq!((sent.len(), sent[0]["Message"].as_str(), sent[0]["MemberId"].as_str()), (1, Some("gone"), Some("0")));
    assert_eq!(sent[0]["OriginOfCondition"]["@odata.id"], "/redfish/v1/Chassis/enclosure/Drives/d1");
    assert!(Delivery::due(service.parts(), now).is_empty(), "one at a time");
    assert_eq!(delivery.done(subscriptions, true, now), None);
    assert!(Delivery::due(service.parts(), now).is_empty());
}

// @test redfish.subscriptions
#[test]
fn a_delivery_is_tried_again_as_the_policy_says() {
    for (policy, end) in [
        ("TerminateAfterRetries", Some(Outcome::Terminated)),
        ("SuspendRetries", Some(Outcome::Suspended)),
        ("RetryForever", Some(Outcome::Retries)),
        ("RetryForeverWithBackoff", Some(Outcome::Retries)),
    ] {
        let service = Service::new(parts());
        let retries = json!({ "DeliveryRetryAttempts": 1, "DeliveryRetryIntervalSeconds": 10 });
        assert_eq!(ask(&service, "PATCH", "", retries).0, 200);
        let body = subscription(json!({ "DeliveryRetryPolicy": policy }));
        assert_eq!(ask(&service, "POST", "/Subscriptions", body).0, 201);
        report(&service, EventKind::TaskBegan, "", "one");
        let subscriptions = &service.parts().subscriptions;
        let mut now = Instant::now();
        let first = Delivery::due(service.parts(), now).pop().unwrap();
        assert_eq!(first.done(subscriptions, false, now), Some(Outcome::Retries));
        assert!(Delivery::due(service.parts(), now + Duration::from_secs(9)).is_empty());
        now += Duration::from_secs(10);
        let second = Delivery::due(service.parts(), now).pop().unwrap();
        assert_eq!(second.body, first.body);
        assert_eq!(second.done(subscriptions, false, now), end, "{policy}");
        let later = now + Duration::from_secs(10);
        let is_due = !Delivery::due(service.parts(), later).is_empty();
        assert_eq!(is_due, policy == "RetryForever", "{policy}");
        if end == Some(Outcome::Suspended) {
            let state = ask(&service, "GET", "/Subscriptions/1", Value::Null).1["Status"]["State"].clone();
            assert_eq!(state, "Disabled");
            let resume = "/Subscriptions/1/Actions/EventDestination.ResumeSubscription";
            assert_eq!(ask(&service, "POST", resume, json!({})).0, 204);
            report(&service, EventKind::TaskBegan, "", "two");
            let due = Delivery::due(service.parts(), later).pop().unwrap();
            assert_eq!(records(&due.body)[0]["Message"], "two", "what was meanwhile is not delivered");
        }
    }
}

// @test redfish.subscriptions
#[test]
fn subscriptions_are_checked_bounded_and_changed() {
    let service = Service::new(parts());
    for (change, property) in [
        (json!({ "Destination": "ftp://a/b" }), "#/Destination"),
        (json!({ "Destination": "https://example.org@collector.example/b" }), "#/Destination"),
        (json!({ "Destination": "/relative" }), "#/Destination"),
        (json!({ "Destination": format!("https://collector.example/{}", "b".repeat(2000)) }), "#/Destination"),
        (json!({ "Protocol": "SNMPv3" }), "#/Protocol"),
        (json!({ "ResourceTypes": ["Drive", "Chassis"] }), "#/ResourceTypes"),
        (json!({ "RegistryPrefixes": [7] }), "#/RegistryPrefixes"),
        (json!({ "DeliveryRetryPolicy": "GiveUp" }), "#/DeliveryRetryPolicy"),
        (json!({ "Destination": "https:///path" }), "#/Destination"),
        (json!({ "Destination": "https://collector.example:x/" }), "#/Destination"),
        (json!({ "Destination": "http://192.0.2.1:65536/" }), "#/Destination"),
        (json!({ "Destination": "http://[2001:db8::1]:0" }), "#/Destination"),
        (json!({ "Destination": null }), "#/Destination"),
        (json!({ "HttpHeaders": [{ "Host": "elsewhere" }] }), "#/HttpHeaders"),
        (json!({ "Severities": ["Bad"] }), "#/Severities"),
        (json!({ "HttpHeaders": [{ "Content-Length": "5" }] }), "#/HttpHeaders"),
        (json!({ "HttpHeaders": [{ "A": "b\r\nc: d" }] }), "#/HttpHeaders"),
        (json!({ "MessageIds": vec!["x"; 65] }), "#/MessageIds"),
        (json!({ "OriginResources": [{ "@odata.id": "/nowhere" }] }), "#/OriginResources/0"),
    ] {
        let (status, body) = ask(&service, "POST", "/Subscriptions", subscription(change));
        let related = &body["error"]["@Message.ExtendedInfo"][0]["RelatedProperties"][0];
        assert_eq!((status, related), (400, &json!(property)), "{body}");
    }
    let addresses = ["https://collector.example", "http://192.0.2.1:8080/a?b", "https://[2001:db8::1]:443/"];
    for address in addresses.iter().cycle().take(SUBSCRIPTIONS_MAX) {
        let body = subscription(json!({ "Destination": address }));
        assert_eq!(ask(&service, "POST", "/Subscriptions", body).0, 201, "{address}");
    }
    let (status, body) = ask(&service, "POST", "/Subscriptions", subscription(json!({})));
    assert_eq!((status, code(&body)), (400, "CreateLimitReachedForResource"));
    let (status, body) = ask(&service, "PATCH", "/Subscriptions/3", json!({ "Context": "other" }));
    assert_eq!((status, &body["Context"]), (200, &json!("other")));
    assert_eq!(
        ask(&service, "PATCH", "/Subscriptions/3", json!({ "Destination": "https://collector.example/" })).0,
        400
    );
    assert_eq!(ask(&service, "DELETE", "/Subscriptions/3", Value::Null).0, 204);
    for id in ["3", "0", "03", "x"] {
        assert_eq!(ask(&service, "GET", &format!("/Subscriptions/{id}"), Value::Null).0, 404);
    }
    let operator = caller(Some(Role::Operator));
    let uri = format!("{SERVICE}/Subscriptions");
    assert_eq!(ask_of(&service, "POST", &uri, &[], subscription(json!({})), &operator).0, 403);
}

struct Kept(Arc<Mutex<Option<String>>>);

impl Keep for Kept {
    fn keep(&self, text: &str) -> Result<(), ebof_access::KeepError> {
        let mut kept = self.0.lock().unwrap();
        if kept.as_deref() == Some("full") {
            return Err(std::io::Error::other("no space is left").into());
        }
        *kept = Some(text.to_owned());
        Ok(())
    }
}

// @test redfish.subscriptions
#[test]
fn subscriptions_are_there_after_a_restart() {
    let kept = Arc::new(Mutex::new(None));
    let subscriptions = Subscriptions::new(None, Some(Box::new(Kept(Arc::clone(&kept))))).unwrap();
    let service = Service::new(Parts { subscriptions: Arc::new(subscriptions), ..parts() });
    assert_eq!(ask(&service, "POST", "/Subscriptions", subscription(json!({ "MessageIds": ["Ebof.1.0.A"] }))).0, 201);
    let before = ask(&service, "GET", "/Subscriptions/1", Value::Null).1;
    let text = kept.lock().unwrap().clone();
    let again = Subscriptions::new(text.as_deref(), None).unwrap();
    let restarted = Service::new(Parts { subscriptions: Arc::new(again), ..parts() });
    assert_eq!(ask(&restarted, "GET", "/Subscriptions/1", Value::Null).1, before);
    *kept.lock().unwrap() = Some("full".to_owned());
    assert_eq!(ask(&service, "DELETE", "/Subscriptions/1", Value::Null).0, 500);
    assert_eq!(ask(&service, "GET", "/Subscriptions/1", Value::Null).1, before, "nothing has changed");
    for damaged in ["", "{}", r#"{"version":2,"next_id":1,"attempts":1,"interval_s":1,"subscriptions":{}}"#] {
        assert!(Subscriptions::new(Some(damaged), None).is_err());
    }
}

fn open(service: &Service, query: &str, headers: &[(&str, &str)]) -> Result<Feed, u16> {
    let mut request = http::Request::builder().uri(format!("{SERVICE}/SSE{query}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    open_as(&caller(Some(Role::ReadOnly)), service, request)
}

fn open_as(caller: &Caller, service: &Service, request: http::request::Builder) -> Result<Feed, u16> {
    let response = service.answer(&request.body(Vec::new()).unwrap(), caller);
    let status = response.status().as_u16();
    match response.into_parts() {
        (parts, Body::Stream(feed)) => {
            assert_eq!(parts.headers["content-type"], "text/event-stream");
            Ok(feed)
        }
        _ => Err(status),
    }
}

fn texts(feed: &mut Feed, now: Instant) -> Vec<String> {
    std::iter::from_fn(|| match feed.next(now) {
        Piece::Text(text) => Some(text),
        _ => None,
    })
    .collect()
}

#[test]
fn a_stream_has_the_events_after_the_last_one_that_was_read() {
    let service = Service::new(parts());
    (1..=3).for_each(|number| report(&service, EventKind::TaskBegan, "", &format!("task {number}")));
    let now = Instant::now();
    let mut feed = open(&service, "", &[("Last-Event-ID", "1")]).unwrap();
    let got = texts(&mut feed, now);
    assert!(got[0].starts_with(": "), "{got:?}");
    let ids: Vec<&str> = got[1..].iter().map(|text| text.lines().next().unwrap()).collect();
    assert_eq!(ids, ["id: 2", "id: 3"]);
    let payload: Value = serde_json::from_str(got[2].lines().nth(1).unwrap().strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(payload["Events"][0]["Message"], "task 3");
    assert!(got[2].ends_with("\n\n"));
    assert!(matches!(feed.next(now), Piece::Wait(_)));
    assert_eq!(feed.next(now + Duration::from_secs(10)), Piece::Text(":\n\n".to_owned()));
    let mut fresh = open(&service, "", &[("Last-Event-ID", "99")]).unwrap();
    let ids: Vec<String> = texts(&mut fresh, now)[1..].iter().map(|text| text[..5].to_owned()).collect();
    assert_eq!(ids, ["id: 1", "id: 2", "id: 3"], "who was at another start has read nothing of this one");
    let ids = ask(&service, "GET", "/Subscriptions?$expand=.", Value::Null).1;
    assert_eq!(ids["Members"][0]["SubscriptionType"], "SSE");
    assert_eq!(ask(&service, "DELETE", "/Subscriptions/1", Value::Null).0, 204);
    assert_eq!(feed.next(now), Piece::End, "who is not subscribed any more gets nothing");
    drop(fresh);
    assert_eq!(ask(&service, "GET", "/Subscriptions", Value::Null).1["Members@odata.count"], 0);
}

#[test]
fn a_stream_is_filtered() {
    let service = Service::new(parts());
    let now = Instant::now();
    let of = |filter: &str| open(&service, &format!("?$filter={}", filter.replace(' ', "%20")), &[]).unwrap();
    let mut all = [
        (of("MessageId eq 'Ebof.1.0.PortDown'"), 1),
        (of("(RegistryPrefix eq 'Ebof') and (EventFormatType eq 'Event')"), 2),
        (of("OriginResource eq '/redfish/v1/TaskService/Tasks'"), 1),
        (of("RegistryPrefix eq 'Base'"), 0),
    ];
    report(&service, EventKind::PortDown, "", "down");
    report(&service, EventKind::TaskBegan, "", "began");
    for (feed, expected) in &mut all {
        assert_eq!(texts(feed, now).len(), *expected + 1);
    }
    let test = json!({ "MessageId": "Base.1.18.Success", "Message": "hello", "MessageArgs": [] });
    assert_eq!(ask(&service, "POST", "/Actions/EventService.SubmitTestEvent", test).0, 204);
    let counts: Vec<usize> = all.iter_mut().map(|(feed, _)| texts(feed, now).len()).collect();
    assert_eq!(counts, [0, 0, 0, 1]);
    let (status, body) = ask(&service, "POST", "/Actions/EventService.SubmitTestEvent", json!({ "Message": "x" }));
    assert_eq!((status, code(&body)), (400, "ActionParameterMissing"));
    assert_eq!(open(&service, "?$filter=MessageId", &[]).unwrap_err(), 400);
}

// @test redfish.streams
#[test]
fn who_is_too_slow_is_told_and_cut_off() {
    let events = Arc::new(SharedEvents::new(8, || 1_700_000_000_000));
    let service = Service::new(Parts { events: Arc::clone(&events) as Arc<_>, ..parts() });
    report(&service, EventKind::TaskBegan, "", "first");
    let now = Instant::now();
    let mut feed = open(&service, "", &[]).unwrap();
    assert_eq!(texts(&mut feed, now).len(), 1);
    (0..50).for_each(|_| report(&service, EventKind::TaskBegan, "", "another"));
    let got = texts(&mut feed, now);
    assert!(got[0].contains("Ebof.1.0.EventsLost"), "{got:?}");
    assert_eq!((got.len(), feed.next(now)), (1, Piece::End));
    let of = |account: u32, address: u8| {
        let mut caller = caller(Some(Role::ReadOnly));
        caller.peer.set_ip([192, 0, 2, address].into());
        caller.user.as_mut().unwrap().account = account.to_string().parse().unwrap();
        let request = || http::Request::builder().uri(format!("{SERVICE}/SSE"));
        let feeds = std::iter::from_fn(|| open_as(&caller, &service, request()).ok()).take(1000);
        feeds.collect::<Vec<Feed>>()
    };
    // The first account has the stream that has ended and was not dropped.
    let mut feeds = of(2, 1);
    assert_eq!(feeds.len(), STREAMS_OF_ACCOUNT_MAX, "nobody takes all of them");
    assert_eq!(of(2, 2).len(), 0, "from elsewhere, either");
    feeds.extend((3..10).flat_map(|account| of(account, 1)));
    assert_eq!(feeds.len(), STREAMS_OF_ADDRESS_MAX);
    feeds.extend((3..10).flat_map(|account| of(account, u8::try_from(account).unwrap())));
    assert_eq!(feeds.len(), STREAMS_MAX - 1, "with the one that has ended and was not dropped");
    assert_eq!(open(&service, "", &[]).unwrap_err(), 503);
}

// @test redfish.events-after-restart
#[test]
fn who_comes_back_after_a_restart_misses_nothing() {
    let begun = |at_ms: u64| {
        let events = Arc::new(SharedEvents::new(100, move || at_ms).numbered_by_start());
        Service::new(Parts { events, ..parts() })
    };
    let ids = |service: &Service, headers: &[(&str, &str)]| {
        let texts = texts(&mut open(service, "", headers).unwrap(), Instant::now());
        texts.iter().filter_map(|text| text.strip_prefix("id: ")?.lines().next().map(str::to_owned)).collect::<Vec<_>>()
    };
    let first = begun(1_700_000_000_000);
    (0..3).for_each(|_| report(&first, EventKind::TaskBegan, "", "before"));
    let seen = ids(&first, &[("last-event-id", "0")]).pop().unwrap();
    let second = begun(1_700_000_005_000);
    (0..9).for_each(|_| report(&second, EventKind::TaskBegan, "", "after"));
    let after = ids(&second, &[("last-event-id", &seen)]);
    assert_eq!(after.len(), 9, "{seen}, then {after:?}");
    assert!(!after.contains(&seen), "an identifier names one event");
    // A clock that was set back.
    let third = begun(1_600_000_000_000);
    report(&third, EventKind::TaskBegan, "", "in the past");
    assert_eq!(ids(&third, &[("last-event-id", &seen)]).len(), 1);
}
