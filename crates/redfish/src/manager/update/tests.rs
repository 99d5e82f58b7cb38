//! Images of drives, through requests.

use std::sync::Arc;

use ebof_access::Role;
use ebof_manage::enclosure::{Activation, Change, Transaction};
use serde_json::{Value, json};

use crate::managed::parts::Parts;
use crate::service::Service;
use crate::service::tests::{Box2, ask_of, caller, code, details, parts};

const INVENTORY: &str = "/redfish/v1/UpdateService/FirmwareInventory";

fn service() -> (Service, Arc<Box2>) {
    let drives = Arc::new(Box2 { details: vec![details("d0"), details("d1")], ..Box2::default() });
    (Service::new(Parts { enclosure: Arc::clone(&drives) as Arc<_>, ..parts() }), drives)
}

/// Sends an image with parameters, as an Operator.
fn push(service: &Service, parameters: &Value, image: &str) -> (u16, Value) {
    let body = format!(
        "--b\r\nContent-Disposition: form-data; name=\"UpdateParameters\"\r\n\r\n{parameters}\r\n--b\r\n\
         Content-Disposition: form-data; name=\"UpdateFile\"\r\n\r\n{image}\r\n--b--\r\n"
    );
    let request = http::Request::post("/redfish/v1/UpdateService/upload")
        .header("content-type", "multipart/form-data; boundary=b")
        .body(body.into_bytes())
        .unwrap();
    let response = service.answer(&request, &caller(Some(Role::Operator)));
    let status = response.status().as_u16();
    let crate::Body::Text(text) = response.into_body() else { return (status, Value::Null) };
    (status, serde_json::from_str(&text).unwrap())
}

fn begun(drives: &Box2) -> Vec<Change> {
    drives.begun.lock().unwrap().drain(..).flat_map(|Transaction { changes, .. }| changes).collect()
}

#[test]
fn both_slots_of_each_drive_are_shown() {
    let (service, _) = service();
    let reader = caller(Some(Role::ReadOnly));
    let all = ask_of(&service, "GET", &format!("{INVENTORY}?$expand=."), &[], Value::Null, &reader).2;
    let shown: Vec<(&str, &Value, &Value)> = all["Members"]
        .as_array()
        .unwrap()
        .iter()
        .map(|image| (image["Id"].as_str().unwrap(), &image["Version"], &image["Active"]))
        .collect();
    let (one, none, yes, no) = (json!("1.0"), Value::Null, json!(true), json!(false));
    let version = json!("1");
    assert_eq!(
        shown,
        [
            ("ebof", &version, &yes),
            ("d0-slot1", &one, &yes),
            ("d0-slot2", &none, &no),
            ("d1-slot1", &one, &yes),
            ("d1-slot2", &none, &no)
        ]
    );
    for id in ["d0-slot3", "d0-slot01", "d2-slot1", "d0"] {
        assert_eq!(ask_of(&service, "GET", &format!("{INVENTORY}/{id}"), &[], Value::Null, &reader).0, 404, "{id}");
    }
}

#[test]
fn an_image_goes_to_the_slot_that_does_not_run() {
    let (service, drives) = service();
    let drive = |name: &str| format!("/redfish/v1/Chassis/enclosure/Drives/{name}");
    let stage = |name: &str, slot: u8| {
        let (drive, image) = (name.to_owned(), "i1".to_owned());
        Change::StageFirmware { drive, slot: Some(slot), image }
    };
    let activate =
        |name: &str, slot: u8, when: Activation| Change::ActivateFirmware { drive: name.to_owned(), slot, when };
    for (parameters, changes) in [
        (json!({ "Targets": [drive("d1")] }), vec![stage("d1", 2), activate("d1", 2, Activation::Now)]),
        (json!({ "Targets": [format!("{INVENTORY}/d0-slot2")], "Stage": true }), vec![stage("d0", 2)]),
        (
            json!({ "Targets": [drive("d0")], "@Redfish.OperationApplyTime": "OnReset" }),
            vec![stage("d0", 2), activate("d0", 2, Activation::AtReset)],
        ),
        (json!({ "Stage": true }), vec![stage("d0", 2), stage("d1", 2)]),
    ] {
        assert_eq!(push(&service, &parameters, "EBOF image").0, 202, "{parameters}");
        assert_eq!(begun(&drives), changes, "{parameters}");
    }
    for (parameters, image, id) in [
        (json!({}), "nothing", "ChangeRefused"),
        (json!({ "Targets": ["/redfish/v1/Chassis"] }), "EBOF", "PropertyValueNotInList"),
        (json!({ "Targets": [drive("d9")] }), "EBOF", "PropertyValueNotInList"),
        (json!({ "Other": 1 }), "EBOF", "PropertyUnknown"),
    ] {
        let (status, body) = push(&service, &parameters, image);
        assert_eq!((status, code(&body)), (400, id));
    }
    assert!(begun(&drives).is_empty());
}

#[test]
fn another_slot_is_activated() {
    let (service, drives) = service();
    let uri = "/redfish/v1/UpdateService/Actions/UpdateService.Activate";
    let target = |id: &str| json!({ "Targets": [{ "@odata.id": format!("{INVENTORY}/{id}") }] });
    let ask = |body: Value, role: Role| ask_of(&service, "POST", uri, &[], body, &caller(Some(role))).0;
    assert_eq!(ask(target("d1-slot1"), Role::Operator), 202);
    let when = Activation::Now;
    assert_eq!(begun(&drives), [Change::ActivateFirmware { drive: "d1".to_owned(), slot: 1, when }]);
    assert_eq!(ask(target("ebof"), Role::Operator), 400);
    assert_eq!(ask(json!({}), Role::Operator), 400);
    assert_eq!(ask(target("d1-slot1"), Role::ReadOnly), 403);
}
