//! Metric reports that are delivered, and streams of them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ebof_manage::history::{History, Measured, NoSamples, Overview, Query, Samples};
use ebof_manage::slow::SlowCommands;

use super::*;
use crate::service::tests::no_slow_commands;

/// Where nobody does anything in the latest second, which the test chooses.
struct Seconds(AtomicU64);

impl Measured for Seconds {
    fn overview(&self) -> Overview {
        Overview { time_unix_ms: self.0.load(Relaxed) * 1000, ..History::new(1).overview() }
    }

    fn samples(&self, query: &Query) -> Result<Samples, NoSamples> {
        Err(NoSamples(query.object.clone()))
    }

    fn queues(&self) -> ebof_manage::history::live::LiveTable {
        ebof_manage::history::live::Live::new(1, 1).table().clone()
    }

    fn forget_slow(&self) -> usize {
        self.slow().commands.len()
    }

    fn slow(&self) -> SlowCommands {
        no_slow_commands()
    }
}

struct Rig {
    service: Service,
    seconds: Arc<Seconds>,
    now: Instant,
}

impl Rig {
    fn new() -> Self {
        let seconds = Arc::new(Seconds(AtomicU64::new(0)));
        let service = Service::new(Parts { measured: Arc::clone(&seconds) as Arc<_>, ..parts() });
        Self { service, seconds, now: Instant::now() }
    }

    fn second(&self, second: u64) {
        self.seconds.0.store(second, Relaxed);
    }

    /// The deliveries that are due: the identifier of each report, and its second.
    fn due(&self, later: u64) -> Vec<(Delivery, Value)> {
        let due = Delivery::due(self.service.parts(), self.now + Duration::from_secs(later));
        due.into_iter().map(|one| (one.clone(), serde_json::from_str(&one.body).unwrap())).collect()
    }

    fn done(&self, delivery: &Delivery, delivered: bool) -> Option<Outcome> {
        delivery.done(&self.service.parts().subscriptions, delivered, self.now)
    }
}

fn definition(name: &str) -> Value {
    json!({ "@odata.id": format!("/redfish/v1/TelemetryService/MetricReportDefinitions/{name}") })
}

#[test]
fn reports_are_delivered_one_after_the_other_each_second() {
    let rig = Rig::new();
    let two = [definition("Ports"), definition("Hosts")];
    let body = subscription(json!({ "EventFormatType": "MetricReport", "MetricReportDefinitions": two }));
    let (status, made) = ask(&rig.service, "POST", "/Subscriptions", body);
    assert_eq!((status, &made["EventFormatType"]), (201, &json!("MetricReport")), "{made}");
    assert_eq!(made["MetricReportDefinitions"], json!(two));
    assert!(rig.due(0).is_empty(), "nothing was measured yet");
    report(&rig.service, EventKind::TaskBegan, "", "an event");
    rig.second(1);
    let mut got = Vec::new();
    for _ in 0..2 {
        let mut due = rig.due(0);
        let (delivery, body) = due.pop().unwrap();
        assert!(due.is_empty() && rig.due(0).is_empty(), "one at a time");
        assert_eq!(
            (&body["@odata.type"], &body["Context"]),
            (&json!("#MetricReport.v1_5_2.MetricReport"), &json!("mine"))
        );
        assert_eq!(body["Timestamp"], "1970-01-01T00:00:01.000Z");
        got.push(body["Id"].as_str().unwrap().to_owned());
        assert_eq!(rig.done(&delivery, true), None);
    }
    assert_eq!(got, ["Ports", "Hosts"]);
    assert!(rig.due(0).is_empty(), "each once");
    rig.second(2);
    let (delivery, first) = rig.due(0).pop().unwrap();
    rig.second(3);
    rig.done(&delivery, true);
    let (delivery, second) = rig.due(0).pop().unwrap();
    rig.done(&delivery, true);
    let third = rig.due(0).pop().unwrap().1;
    let of = |body: &Value| {
        (body["Id"].as_str().unwrap().to_owned(), body["Timestamp"].as_str().unwrap()[17..19].to_owned())
    };
    let expected = [("Ports", "02"), ("Hosts", "03"), ("Ports", "03")].map(|(id, at)| (id.to_owned(), at.to_owned()));
    assert_eq!([of(&first), of(&second), of(&third)], expected, "who is slow gets the latest, and none is forgotten");
}

#[test]
fn a_report_that_fails_is_followed_by_the_latest_as_the_policy_says() {
    for (policy, end) in [("TerminateAfterRetries", Outcome::Terminated), ("SuspendRetries", Outcome::Suspended)] {
        let rig = Rig::new();
        let retries = json!({ "DeliveryRetryAttempts": 1, "DeliveryRetryIntervalSeconds": 10 });
        assert_eq!(ask(&rig.service, "PATCH", "", retries).0, 200);
        let body = subscription(json!({
            "EventFormatType": "MetricReport", "EventTypes": ["MetricReport"], "DeliveryRetryPolicy": policy,
            "MetricReportDefinitions": [definition("Target"), definition("Target")],
        }));
        assert_eq!(ask(&rig.service, "POST", "/Subscriptions", body).0, 201);
        rig.second(1);
        let (first, _) = rig.due(0).pop().unwrap();
        assert_eq!(rig.done(&first, false), Some(Outcome::Retries));
        rig.second(2);
        assert!(rig.due(9).is_empty());
        let (again, body) = rig.due(10).pop().unwrap();
        assert_eq!(body["Timestamp"], "1970-01-01T00:00:02.000Z");
        assert_eq!(rig.done(&again, false), Some(end), "{policy}");
        rig.second(3);
        assert!(rig.due(1000).is_empty());
        assert_eq!(rig.done(&again, true).is_some(), end == Outcome::Terminated);
    }
}

#[test]
fn all_reports_are_wanted_where_no_definition_is_named() {
    let rig = Rig::new();
    let body = subscription(json!({ "EventFormatType": "MetricReport" }));
    assert_eq!(ask(&rig.service, "POST", "/Subscriptions", body).0, 201);
    rig.second(7);
    let mut got = Vec::new();
    while let Some((delivery, body)) = rig.due(0).pop() {
        rig.done(&delivery, true);
        got.push(body["Id"].as_str().unwrap().to_owned());
    }
    got.sort();
    assert_eq!(got, ["Drives", "Functions", "Hosts", "Namespaces", "Ports", "Target"]);
}

#[test]
fn filters_of_events_are_not_for_reports_and_the_other_way_round() {
    let rig = Rig::new();
    let reports = |more: Value| {
        let mut body = subscription(json!({ "EventFormatType": "MetricReport" }));
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for (body, property) in [
        (subscription(json!({ "MetricReportDefinitions": [definition("Ports")] })), "#/MetricReportDefinitions"),
        (subscription(json!({ "EventTypes": ["MetricReport"] })), "#/EventTypes"),
        (reports(json!({ "MetricReportDefinitions": [definition("Nothing")] })), "#/MetricReportDefinitions"),
        (reports(json!({ "MetricReportDefinitions": [{ "@odata.id": "/x" }] })), "#/MetricReportDefinitions/0"),
        (reports(json!({ "EventTypes": ["Alert"] })), "#/EventTypes"),
        (reports(json!({ "RegistryPrefixes": ["Ebof"] })), "#/RegistryPrefixes"),
        (reports(json!({ "Severities": ["OK"] })), "#/Severities"),
        (reports(json!({ "OriginResources": [{ "@odata.id": "/redfish/v1/Chassis" }] })), "#/OriginResources"),
        (reports(json!({ "EventFormatType": "Other" })), "#/EventFormatType"),
    ] {
        let (status, body) = ask(&rig.service, "POST", "/Subscriptions", body);
        let related = &body["error"]["@Message.ExtendedInfo"][0]["RelatedProperties"][0];
        assert_eq!((status, related), (400, &json!(property)), "{body}");
    }
    assert_eq!(ask(&rig.service, "GET", "/Subscriptions", Value::Null).1["Members@odata.count"], 0);
}

#[test]
fn a_stream_has_the_reports_that_it_asks_for() {
    let rig = Rig::new();
    let mut feed = open(&rig.service, "?$filter=EventFormatType%20eq%20'MetricReport'", &[]).unwrap();
    let filter = "?$filter=MetricReportDefinition%20eq%20\
                  '/redfish/v1/TelemetryService/MetricReportDefinitions/Ports'";
    let mut of_ports = open(&rig.service, filter, &[]).unwrap();
    let mut plain = open(&rig.service, "", &[]).unwrap();
    let mut both = open(&rig.service, "?$filter=EventFormatType%20ne%20'x'", &[]).unwrap();
    report(&rig.service, EventKind::TaskBegan, "", "an event");
    rig.second(5);
    let counts = [&mut feed, &mut of_ports, &mut plain, &mut both].map(|feed| texts(feed, rig.now).len() - 1);
    assert_eq!(counts, [6, 1, 1, 7]);
    assert!(matches!(feed.next(rig.now), Piece::Wait(wait) if wait <= Duration::from_millis(500)));
    rig.second(6);
    let got = texts(&mut of_ports, rig.now);
    assert!(got.len() == 1 && got[0].contains("\"Id\":\"Ports\"") && got[0].contains("00:00:06"), "{got:?}");
    let (_, all) = ask(&rig.service, "GET", "/Subscriptions?$expand=.", Value::Null);
    let formats: Vec<&Value> = all["Members"].as_array().unwrap().iter().map(|one| &one["EventFormatType"]).collect();
    assert_eq!(formats, ["MetricReport", "MetricReport", "Event", "Event"]);
}

#[test]
fn subscriptions_to_reports_are_there_after_a_restart() {
    let kept = Arc::new(Mutex::new(None));
    let subscriptions = Subscriptions::new(None, Some(Box::new(Kept(Arc::clone(&kept))))).unwrap();
    let service = Service::new(Parts { subscriptions: Arc::new(subscriptions), ..parts() });
    let more = json!({ "EventFormatType": "MetricReport", "MetricReportDefinitions": [definition("Drives")] });
    assert_eq!(ask(&service, "POST", "/Subscriptions", subscription(more)).0, 201);
    let before = ask(&service, "GET", "/Subscriptions/1", Value::Null).1;
    let text = kept.lock().unwrap().clone().unwrap();
    let again = Subscriptions::new(Some(&text), None).unwrap();
    let restarted = Service::new(Parts { subscriptions: Arc::new(again), ..parts() });
    assert_eq!(ask(&restarted, "GET", "/Subscriptions/1", Value::Null).1, before);
    assert!(Subscriptions::new(Some(&text.replace("Drives", "Nothing")), None).is_err());
    let older = text.replace(r#","subject":{"Reports":["Drives"]}"#, "");
    assert!(older != text && Subscriptions::new(Some(&older), None).is_ok(), "of before there were reports");
}
