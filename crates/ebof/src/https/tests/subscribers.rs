//! Subscriptions of the whole program: events and reports come to a listener of the test.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use serde_json::json;

use super::client::LONG;
use super::*;

const SERVICE: &str = "/redfish/v1/EventService";

/// What a receiver does with a request, after it has read it.
#[derive(Clone, Copy)]
enum Act {
    Answer(&'static str),
    /// Closes the connection.
    Close,
    /// Says nothing, as long as the other end waits.
    Hang,
}

/// A receiver: what it does with one request after the other, the last for ever.
struct Subscriber {
    destination: String,
    /// Heads and bodies of requests.
    got: Receiver<(String, Value)>,
}

impl Subscriber {
    fn new(acts: &'static [Act]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let destination = format!("http://{}/events", listener.local_addr().unwrap());
        let (sender, got) = channel();
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let mut stream = stream.unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap() > 0 {}
                let head = head.to_lowercase();
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
                let mut body = vec![0; length.unwrap_or(0)];
                reader.read_exact(&mut body).unwrap();
                if sender.send((head, serde_json::from_slice(&body).unwrap())).is_err() {
                    return;
                }
                match acts.get(number).or(acts.last()).unwrap() {
                    Act::Answer(status) => {
                        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                        // Who waits no longer need not hear it.
                        let _sent = stream.write_all(answer.as_bytes());
                    }
                    Act::Close => {}
                    Act::Hang => {
                        let _end = reader.read(&mut [0]);
                    }
                }
            }
        });
        Self { destination, got }
    }

    /// The next request, which comes within a long time.
    fn next(&self) -> (String, Value) {
        self.got.recv_timeout(LONG).unwrap()
    }

    /// Whether nothing comes for a moment.
    fn is_silent(&self) -> bool {
        self.got.recv_timeout(Duration::from_millis(300)).is_err()
    }
}

impl Rig {
    fn admin(&self) -> String {
        token(&self.session("administrator"))
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        self.request(&format!("POST {SERVICE}{path}"), &self.admin(), &body.to_string())
    }

    /// Makes a subscription; its address.
    fn subscribe(&self, subscriber: &Subscriber, more: &Value) -> String {
        let mut body = json!({ "Destination": subscriber.destination, "Protocol": "Redfish" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let made = self.post("/Subscriptions", &body);
        assert_eq!(made.status, 201, "{}", made.body);
        made.json()["@odata.id"].as_str().unwrap().to_owned()
    }

    fn test_event(&self, message: &str, severity: &str) {
        let body = json!({ "MessageId": "Ebof.1.0.PortDown", "Message": message, "MessageSeverity": severity });
        let answer = self.post("/Actions/EventService.SubmitTestEvent", &body);
        assert_eq!(answer.status, 204, "{}", answer.body);
    }

    fn retries(&self, attempts: u32) {
        let body = json!({ "DeliveryRetryAttempts": attempts, "DeliveryRetryIntervalSeconds": 1 }).to_string();
        assert_eq!(self.request(&format!("PATCH {SERVICE}"), &self.admin(), &body).status, 200);
    }

    /// Waits until a subscription is as expected.
    fn until(&self, place: &str, is_so: impl Fn(&Answer) -> bool) {
        let begin = Instant::now();
        while !is_so(&self.get(place, &self.admin())) {
            assert!(begin.elapsed() < LONG, "{}", self.get(place, &self.admin()).body);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn messages(body: &Value) -> Vec<&str> {
    body["Events"].as_array().unwrap().iter().map(|event| event["Message"].as_str().unwrap()).collect()
}

#[test]
fn events_come_by_post_until_they_are_taken() {
    let rig = rig();
    rig.retries(10);
    let subscriber = Subscriber::new(&[Act::Answer("500 Oops"), Act::Close, Act::Hang, Act::Answer("204 No Content")]);
    let more =
        json!({ "Context": "box 7", "Severities": ["Warning"], "HttpHeaders": [{ "Authorization": "Bearer x" }] });
    let place = rig.subscribe(&subscriber, &more);
    rig.test_event("not wanted", "OK");
    rig.test_event("wanted", "Warning");
    for attempt in 0..4 {
        let (head, body) = subscriber.next();
        assert!(head.starts_with("post /events http/1.1\r\n") && head.contains("authorization: bearer x"), "{head}");
        assert_eq!((messages(&body), &body["Context"]), (vec!["wanted"], &json!("box 7")), "{attempt}");
    }
    let health = |answer: &Answer| answer.json()["Status"]["Health"].as_str().unwrap_or_default().to_owned();
    rig.until(&place, |answer| health(answer) == "OK");
    // What really happens comes, too.
    let change = r#"{"changes": [{"change": "weight", "function": "d0/vf1", "weight": 4}]}"#;
    let ok = Subscriber::new(&[Act::Answer("200 OK")]);
    rig.subscribe(&ok, &json!({ "ResourceTypes": ["Task"] }));
    assert_eq!(rig.request("POST /ebof/v1/changes", &rig.admin(), change).status, 202);
    let (_, body) = ok.next();
    assert_eq!(body["Events"][0]["MessageId"], "Ebof.1.0.TaskBegan");
    assert!(subscriber.is_silent(), "nothing comes twice, and tasks are not of that severity");
}

#[test]
fn a_receiver_that_hangs_holds_up_nobody() {
    let rig = rig();
    rig.retries(100);
    let hanging = Subscriber::new(&[Act::Hang]);
    let prompt = Subscriber::new(&[Act::Answer("204 No Content")]);
    rig.subscribe(&hanging, &json!({ "DeliveryRetryPolicy": "RetryForever" }));
    rig.subscribe(&prompt, &json!({}));
    for number in 0..3 {
        rig.test_event(&format!("event {number}"), "OK");
    }
    let mut got = Vec::new();
    while got.len() < 3 {
        let (_, body) = prompt.next();
        got.extend(messages(&body).into_iter().map(str::to_owned));
    }
    assert_eq!(got, ["event 0", "event 1", "event 2"]);
    let first = hanging.next().1;
    let again = hanging.next().1;
    assert_eq!(messages(&again)[0], messages(&first)[0], "it gets the same again");
    assert_eq!(messages(&again).len(), 3, "and what has happened meanwhile");
}

#[test]
fn a_receiver_that_refuses_for_too_long_is_given_up() {
    let rig = rig();
    rig.retries(1);
    let refusing = Subscriber::new(&[Act::Answer("500 Oops"), Act::Answer("503 Later"), Act::Answer("200 OK")]);
    let ended = rig.subscribe(&refusing, &json!({ "DeliveryRetryPolicy": "TerminateAfterRetries" }));
    let closed = Subscriber::new(&[Act::Close, Act::Close, Act::Answer("200 OK")]);
    let suspended = rig.subscribe(&closed, &json!({ "DeliveryRetryPolicy": "SuspendRetries" }));
    rig.test_event("first", "OK");
    rig.until(&ended, |answer| answer.status == 404);
    rig.until(&suspended, |answer| answer.json()["Status"]["State"] == "Disabled");
    rig.test_event("while suspended", "OK");
    let resume = suspended.replace(SERVICE, "") + "/Actions/EventDestination.ResumeSubscription";
    assert_eq!(rig.post(&resume, &json!({})).status, 204);
    rig.test_event("second", "OK");
    let got: Vec<Value> = (0..3).map(|_| closed.next().1).collect();
    assert_eq!(got.iter().flat_map(messages).collect::<Vec<_>>(), ["first", "first", "second"]);
    let got: Vec<Value> = (0..2).map(|_| refusing.next().1).collect();
    assert_eq!(got.iter().flat_map(messages).collect::<Vec<_>>(), ["first", "first"]);
    assert!(refusing.is_silent());
}

#[test]
fn metric_reports_come_by_post_each_second() {
    let rig = rig();
    let subscriber = Subscriber::new(&[Act::Answer("204 No Content")]);
    let definitions = "/redfish/v1/TelemetryService/MetricReportDefinitions";
    let wanted = ["Target", "Functions"].map(|name| json!({ "@odata.id": format!("{definitions}/{name}") }));
    let more = json!({ "EventFormatType": "MetricReport", "MetricReportDefinitions": wanted, "Context": "box 7" });
    let place = rig.subscribe(&subscriber, &more);
    rig.test_event("no report", "OK");
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..4 {
        let (_, body) = subscriber.next();
        assert_eq!(
            (&body["@odata.type"], &body["Context"]),
            (&json!("#MetricReport.v1_5_2.MetricReport"), &json!("box 7"))
        );
        let of = (body["Id"].as_str().unwrap().to_owned(), body["Timestamp"].as_str().unwrap().to_owned());
        assert!(seen.insert(of), "each second once: {body}");
    }
    assert_eq!(seen.iter().filter(|(id, _)| id == "Target").count(), 2);
    assert_eq!(rig.request(&format!("DELETE {place}"), &rig.admin(), "").status, 204);
    // What was under way may still come.
    let after = (0..3).filter(|_| subscriber.got.recv_timeout(Duration::from_millis(1500)).is_ok()).count();
    assert!(after <= 1, "{after}");
}
