//! What each filter of a subscription lets through, from the request to the delivery.

use ebof_manage::events::EventSeverity;

use super::*;

/// The messages that a subscription to some events gets, of four that happen.
fn delivered(filter: &Value) -> Vec<String> {
    let service = Service::new(parts());
    let (status, made) = ask(&service, "POST", "/Subscriptions", subscription(filter.clone()));
    assert_eq!(status, 201, "{made}");
    for (name, value) in filter.as_object().unwrap() {
        assert_eq!(made[name], *value, "it is shown");
    }
    let happen = |kind, object: &str, message: &str, severity| {
        service.parts().events.report(NewEvent::new(kind, object, message).severity(severity));
    };
    happen(EventKind::TaskBegan, "d0", "task", EventSeverity::Ok);
    happen(EventKind::PortDown, "fabric0", "port", EventSeverity::Critical);
    happen(EventKind::HealthWarning, "d1", "drive", EventSeverity::Warning);
    let test = json!({
        "MessageId": "Base.1.18.Success", "Message": "test", "MessageArgs": [], "EventType": "Alert",
        "MessageSeverity": "Warning", "OriginOfCondition": "/redfish/v1/Chassis/enclosure/Drives/d0",
    });
    assert_eq!(ask(&service, "POST", "/Actions/EventService.SubmitTestEvent", test).0, 204);
    let due = Delivery::due(service.parts(), Instant::now());
    let bodies = due.iter().map(|delivery| serde_json::from_str::<Value>(&delivery.body).unwrap());
    let mut messages = Vec::new();
    for body in bodies {
        assert_eq!((&body["Context"], &body["@odata.type"]), (&json!("mine"), &json!("#Event.v1_13_0.Event")));
        let text = |record: &Value| record["Message"].as_str().unwrap().to_owned();
        messages.extend(body["Events"].as_array().unwrap().iter().map(text));
    }
    messages
}

#[test]
fn each_filter_lets_through_what_it_says() {
    const DRIVES: &str = "/redfish/v1/Chassis/enclosure/Drives";
    let origin = |path: &str| json!([{ "@odata.id": path }]);
    let d1 = format!("{DRIVES}/d1");
    for (filter, expected) in [
        (json!({}), &["task", "port", "drive", "test"][..]),
        (json!({ "RegistryPrefixes": ["Ebof"] }), &["task", "port", "drive"]),
        (json!({ "RegistryPrefixes": ["Base", "Other"] }), &["test"]),
        (json!({ "ExcludeRegistryPrefixes": ["Ebof"] }), &["test"]),
        (json!({ "MessageIds": ["Ebof.1.0.PortDown"] }), &["port"]),
        (json!({ "ExcludeMessageIds": ["Ebof.1.0.PortDown", "Base.1.0.Success"] }), &["task", "drive"]),
        (json!({ "Severities": ["OK"] }), &["task"]),
        (json!({ "Severities": ["Warning", "Critical"] }), &["port", "drive", "test"]),
        (json!({ "EventTypes": ["StatusChange"] }), &["port"]),
        (json!({ "ResourceTypes": ["Drive"] }), &["drive", "test"]),
        (json!({ "ResourceTypes": ["Task", "Port"] }), &["task", "port"]),
        (json!({ "OriginResources": origin(&d1) }), &["drive"]),
        (json!({ "OriginResources": origin("/redfish/v1/Chassis/enclosure") }), &[]),
        (
            json!({ "OriginResources": origin("/redfish/v1/Chassis/enclosure"), "SubordinateResources": true }),
            &["port", "drive", "test"],
        ),
        (json!({ "Severities": ["Warning"], "RegistryPrefixes": ["Ebof"], "ResourceTypes": ["Drive"] }), &["drive"]),
        (json!({ "Severities": ["OK"], "ResourceTypes": ["Drive"] }), &[]),
    ] {
        assert_eq!(delivered(&filter), expected, "{filter}");
    }
}

#[test]
fn every_event_is_about_a_resource_of_a_listed_type() {
    let (_, service) = ask(&Service::new(parts()), "GET", "", Value::Null);
    let listed: Vec<&str> =
        service["ResourceTypes"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    let mut seen = std::collections::BTreeSet::new();
    for kind in EventKind::ALL {
        for object in ["", "d0", "d0/vf1", "d0/ns1", "fabric0", "direct1", "Events"] {
            let service = crate::fixture::Fixture::new().service;
            for one in &listed {
                let body = subscription(json!({ "ResourceTypes": [one] }));
                assert_eq!(ask(&service, "POST", "/Subscriptions", body).0, 201);
            }
            report(&service, *kind, object, "it happens");
            let due = Delivery::due(service.parts(), Instant::now());
            let [delivery] = due.as_slice() else { panic!("{}: {due:?}", kind.name()) };
            let one = listed.iter().zip(1..).find(|(_, id)| *id == delivery.subscription).unwrap().0;
            seen.insert(*one);
        }
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), listed);
}

#[test]
fn wanted_events_behind_many_others_come_at_once() {
    let service = Service::new(Parts { events: Arc::new(SharedEvents::new(1000, || 1_700_000_000_000)), ..parts() });
    let wanted = subscription(json!({ "MessageIds": ["Ebof.1.0.PortDown"] }));
    assert_eq!(ask(&service, "POST", "/Subscriptions", wanted).0, 201);
    (0..200).for_each(|number| report(&service, EventKind::TaskBegan, "", &format!("task {number}")));
    report(&service, EventKind::PortDown, "fabric0", "down");
    let due = Delivery::due(service.parts(), Instant::now()).pop().unwrap();
    assert_eq!(records(&due.body)[0]["Message"], "down");
}

#[test]
fn what_ended_for_its_destination_stays_so_after_a_restart() {
    for (policy, count) in [("TerminateAfterRetries", 0), ("SuspendRetries", 1)] {
        let kept = Arc::new(Mutex::new(None));
        let subscriptions = Subscriptions::new(None, Some(Box::new(Kept(Arc::clone(&kept))))).unwrap();
        let service = Service::new(Parts { subscriptions: Arc::new(subscriptions), ..parts() });
        assert_eq!(ask(&service, "PATCH", "", json!({ "DeliveryRetryAttempts": 0 })).0, 200);
        let body = subscription(json!({ "DeliveryRetryPolicy": policy }));
        assert_eq!(ask(&service, "POST", "/Subscriptions", body).0, 201);
        report(&service, EventKind::TaskBegan, "", "one");
        let subscriptions = &service.parts().subscriptions;
        let due = Delivery::due(service.parts(), Instant::now()).pop().unwrap();
        assert!(due.done(subscriptions, false, Instant::now()).is_some());
        let text = kept.lock().unwrap().clone();
        let again = Arc::new(Subscriptions::new(text.as_deref(), None).unwrap());
        let restarted = Service::new(Parts { subscriptions: again, ..parts() });
        let (_, all) = ask(&restarted, "GET", "/Subscriptions?$expand=.", Value::Null);
        assert_eq!(all["Members@odata.count"], count, "{policy}");
        if count == 1 {
            assert_eq!(all["Members"][0]["Status"]["State"], "Disabled");
            *kept.lock().unwrap() = Some("full".to_owned());
            let resume = "/Subscriptions/1/Actions/EventDestination.ResumeSubscription";
            assert_eq!(ask(&service, "POST", resume, json!({})).0, 500, "it cannot be stored");
            assert_eq!(ask(&service, "GET", "/Subscriptions/1", Value::Null).1["Status"]["State"], "Disabled");
        }
    }
}
