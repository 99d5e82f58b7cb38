//! What Redfish resolves its refusals with, carried out to its end.

use std::time::{Duration, Instant};

use ebof_initiator::{Controller, Options};
use serde_json::{Value, json};

use super::{Answer, Rig, rig, token};

const NVMEOF: &str = "/redfish/v1/Fabrics/NVMeoF";
const STORAGE: &str = "/redfish/v1/Storage/d0";

/// An administrator.
struct User<'r>(&'r Rig, String);

impl User<'_> {
    fn request(&self, method: &str, path: &str, body: &str) -> Answer {
        self.0.request(&format!("{method} {path}"), &format!("{}Content-Type: application/json\r\n", self.1), body)
    }

    fn get(&self, path: &str) -> Value {
        let answer = self.request("GET", path, "");
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.json()
    }

    /// Has something done, and waits until it is.
    fn done(&self, method: &str, path: &str, body: &str) {
        let answer = self.request(method, path, body);
        assert!((200..300).contains(&answer.status), "{method} {path}: {}", answer.body);
    }

    /// The references in a list.
    fn references(list: &Value) -> Vec<String> {
        list.as_array().unwrap().iter().map(|one| one["@odata.id"].as_str().unwrap().to_owned()).collect()
    }

    /// The endpoints of hosts.
    fn hosts(&self) -> Vec<String> {
        let all = Self::references(&self.get(&format!("{NVMEOF}/Endpoints"))["Members"]);
        all.into_iter().filter(|endpoint| endpoint.contains("/host~")).collect()
    }

    fn until_no_host_is_shown(&self) {
        let end = Instant::now() + Duration::from_secs(20);
        while !self.hosts().is_empty() {
            assert!(Instant::now() < end, "it is still shown");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

// @test output.advice
#[test]
fn a_host_that_is_not_described_goes_as_is_advised() {
    let rig = rig();
    let user = User(&rig, token(&rig.session("administrator")));
    let address = user.get("/ebof/v1/status")["ports"][0]["address"].as_str().unwrap().to_owned();
    let uri = format!("nvme+tcp://{address}/nqn.2014-08.org.example:box:d0");
    let host = Controller::connect(&Options::from_uri(&ebof_nvme::uri::Uri::parse(&uri).unwrap())).unwrap();
    let endpoints = user.hosts();
    let [endpoint] = endpoints.as_slice() else { panic!("{endpoints:?}") };
    let nqn = user.get(endpoint)["Identifiers"][0]["DurableName"].as_str().unwrap().to_owned();
    let made = json!({ "changes": [{ "change": "create-namespace", "drive": "d0", "size_bytes": 1 << 20, "attach_to": [nqn] }] });
    let task = user.request("POST", "/ebof/v1/changes", &made.to_string()).json()["id"].as_u64().unwrap();
    user.get(&format!("/ebof/v1/tasks/{task}?wait_ms=10000&revision=0"));

    let refused = user.request("DELETE", endpoint, "");
    assert_eq!(refused.status, 400, "{}", refused.body);
    let advice = "Delete the connections that let it in, or detach its namespaces.";
    assert!(refused.body.contains(advice), "{}", refused.body);
    // Both are its reasons. Each way is told where it is gone.
    let connections = User::references(&user.get(endpoint)["Links"]["Connections"]);
    assert_eq!(connections.len(), 1, "{connections:?}");
    for connection in &connections {
        user.done("DELETE", connection, "");
    }
    drop(host);
    let controllers = User::references(&user.get(&format!("{STORAGE}/Controllers"))["Members"]);
    let volumes = User::references(&user.get(&format!("{STORAGE}/Volumes"))["Members"]);
    let detach = format!("{}/Actions/StorageController.DetachNamespaces", controllers[0]);
    assert_eq!(user.hosts(), endpoints, "it has a namespace");
    assert!(user.request("DELETE", endpoint, "").body.contains(advice));
    user.done("POST", &detach, &json!({ "Namespaces": [{ "@odata.id": volumes[0] }] }).to_string());
    user.until_no_host_is_shown();
}
