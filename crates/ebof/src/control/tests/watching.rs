//! Events, history and slow commands over the control socket.

use super::*;

#[test]
fn events_are_read_and_waited_for() {
    let rig = rig(LONG);
    let (status, first) = rig.get("/v1/events");
    assert_eq!(status, 200);
    assert_eq!((&first["events_schema"], &first["lost"]), (&1.into(), &0.into()));
    assert_eq!(first["events"][0]["kind"], "target-started");
    let latest = first["latest"].as_u64().unwrap();
    // What is there already is not waited for, nor what is from another start.
    for path in ["/v1/events?since=0&max=1&wait_ms=20000", "/v1/events?since=99999&wait_ms=20000"] {
        let (_, answer) = rig.get(path);
        assert_eq!(answer["events"][0]["id"], first["events"][0]["id"], "{path}");
    }
    std::thread::scope(|scope| {
        // Something of the start may come first.
        let told = scope.spawn(|| {
            let mut since = latest;
            loop {
                let (_, told) = rig.get(&format!("/v1/events?since={since}&wait_ms=20000"));
                let events = told["events"].as_array().unwrap().clone();
                assert!(!events.is_empty(), "nothing came in time");
                if let Some(began) = events.iter().find(|event| event["kind"] == "task-began") {
                    return began.clone();
                }
                since = told["latest"].as_u64().unwrap();
            }
        });
        rig.change(r#"{"change": "add-drive", "drive": {"name": "d1", "backing": "mem:64Mi"}}"#);
        let told = told.join().unwrap();
        assert_eq!(told["kind"], "task-began");
    });
    let (_, all) = rig.get("/v1/events");
    let added = all["events"].as_array().unwrap().iter().find(|event| event["kind"] == "drive-added").unwrap();
    assert_eq!(added["object"], "d1");
}

#[test]
fn a_history_is_read_by_object() {
    let rig = rig(LONG);
    let (status, overview) = rig.get("/v1/history");
    assert_eq!((status, &overview["history_schema"], &overview["objects"]), (200, &1.into(), &serde_json::json!([])));
    let (status, refused) = rig.get("/v1/history?object=function%3Ad0%2Fvf1&resolution=10s&since=0&until=1");
    assert_eq!(status, 404, "{refused}");
    assert!(refused["mistakes"][0]["message"].as_str().unwrap().starts_with("function:d0/vf1 has had no I/O"));
    let (status, slow) = rig.get("/v1/slow?since=0");
    assert_eq!((status, &slow["threshold_us"], &slow["total"]), (200, &100_000.into(), &0.into()));
    let (status, queues) = rig.get("/v1/queues");
    assert_eq!((status, &queues["live_schema"], &queues["rows"]), (200, &1.into(), &serde_json::json!([])));
    for path in [
        "/v1/queues?since=0",
        "/v1/events?since=x",
        "/v1/events?later=1",
        "/v1/history?object=d0",
        "/v1/history?resolution=2s",
        "/v1/history?object=target&object=target",
        "/v1/slow?since=-1",
    ] {
        let (status, refused) = rig.get(path);
        assert_eq!(status, 400, "{path}: {refused}");
        assert!(refused["mistakes"][0]["advice"].as_str().unwrap().starts_with("accepted: "), "{path}");
    }
}
