//! Each change is translated into what the box does, all mistakes are told, and nothing is done
//! that is only planned.

use ebof_access::Role;
use ebof_manage::api::Asker;
use serde_json::{Value, json};

use crate::fixture::{ALICE, BOB, Fixture, PLAIN};

const ROOT: &str = "/redfish/v1";

fn link(path: &str) -> Value {
    json!({ "@odata.id": format!("{ROOT}{path}") })
}

fn zone(fixture: &Fixture, zone: &str, endpoints: &[&str]) -> Vec<String> {
    let fabric = zone.split('/').next().unwrap();
    let endpoints: Vec<Value> = endpoints.iter().map(|id| link(&format!("/Fabrics/{fabric}/Endpoints/{id}"))).collect();
    let body = json!({ "Links": { "Endpoints": endpoints } });
    fixture.begun("PATCH", &format!("{ROOT}/Fabrics/{}", zone.replacen('/', "/Zones/", 1)), &body)
}

/// What is at fabric0 besides functions.
const SUBSYSTEMS: [&str; 6] = ["d0-pf", "d1-pf", "d2-pf", "d3-pf", "d4-pf", "nqn.2014-08.org.example~plain-io"];

#[test]
fn the_endpoints_of_a_zone_are_functions_given_moved_and_taken_away() {
    let fixture = Fixture::new();
    let with = |more: &[&'static str]| [&SUBSYSTEMS[..], more].concat();
    assert_eq!(zone(&fixture, "NVMeoF/fabric0", &with(&["d0-vf1", "d0-vf3"])), ["give d0/vf3 to port fabric0"]);
    assert_eq!(zone(&fixture, "NVMeoF/fabric0", &with(&[])), ["take d0/vf1 from its port"]);
    let moved = zone(&fixture, "NVMeoF/fabric0", &with(&["d1-vf1", "d1-vf1", "d0-vf2"]));
    assert_eq!(moved, ["take d0/vf1 from its port", "move d1/vf1 to port fabric0", "move d0/vf2 to port fabric0"]);
    // A direct port has one function: what leaves it makes room.
    let swapped = zone(&fixture, "PCIe/direct1", &["d1-vf2"]);
    assert_eq!(swapped, ["take d0/vf2 from its port", "give d1/vf2 to port direct1"]);
    // What is `{}` stays, and what is `null` goes.
    let uri = format!("{ROOT}/Fabrics/PCIe/Zones/direct1");
    let kept = json!({ "Links": { "Endpoints": [{}] } });
    assert_eq!(fixture.ask("PATCH", &uri, &kept).messages()[0].0, "NoOperation");
    let gone = json!({ "Links": { "Endpoints": [null] } });
    assert_eq!(fixture.begun("PATCH", &uri, &gone), ["take d0/vf2 from its port"]);
    let account = |asker: &Asker| matches!(asker, Asker::Account { name, .. } if name == "x");
    assert!(fixture.fake.state().askers.iter().all(account), "it is kept who asked");
}

#[test]
fn a_zone_gets_endpoints_one_by_one_and_only_as_it_was_seen() {
    let fixture = Fixture::new();
    let uri = format!("{ROOT}/Fabrics/NVMeoF/Zones/fabric0");
    let add = format!("{uri}/Actions/Zone.AddEndpoint");
    let tag = fixture.get(&uri)["@odata.etag"].clone();
    let body = json!({ "Endpoint": link("/Fabrics/NVMeoF/Endpoints/d1-vf2"), "ZoneETag": tag });
    assert_eq!(fixture.begun("POST", &add, &body), ["give d1/vf2 to port fabric0"]);
    let outdated = json!({ "Endpoint": link("/Fabrics/NVMeoF/Endpoints/d1-vf2"), "ZoneETag": "\"old\"" });
    assert_eq!(fixture.ask("POST", &add, &outdated).status, 412);
    let remove = format!("{uri}/Actions/Zone.RemoveEndpoint");
    let body = json!({ "Endpoint": link("/Fabrics/NVMeoF/Endpoints/d0-vf1") });
    assert_eq!(fixture.begun("POST", &remove, &body), ["take d0/vf1 from its port"]);
    assert_eq!(fixture.ask("POST", &add, &body).messages()[0].0, "NoOperation", "it is there already");
    assert_eq!(fixture.ask("POST", &add, &json!({})).messages()[0].0, "ActionParameterMissing");
}

#[test]
fn what_cannot_be_in_a_zone_is_told_for_each_element() {
    let fixture = Fixture::new();
    let endpoints = json!([
        link("/Fabrics/PCIe/Endpoints/d0-vf1"),
        link("/Fabrics/NVMeoF/Endpoints/host~nqn.2014-08.org.example~alice"),
        link("/Chassis"),
        7,
        link("/Fabrics/NVMeoF/Endpoints/d9-vf1")
    ]);
    let body = json!({ "Links": { "Endpoints": endpoints }, "Name": "x", "New": 1 });
    let answer = fixture.ask("PATCH", &format!("{ROOT}/Fabrics/NVMeoF/Zones/fabric0"), &body);
    assert_eq!(answer.status, 400);
    let mut about: Vec<String> = answer.messages().into_iter().map(|(_, about, _)| about).collect();
    about.sort();
    let expected =
        ["#/Links/Endpoints/0", "#/Links/Endpoints/1", "#/Links/Endpoints/2", "#/Links/Endpoints/3", "#/Name", "#/New"];
    assert!(expected.iter().all(|one| about.contains(&(*one).to_owned())), "{about:?}");
    // Two functions for one direct port: what manage says, with its advice.
    let two = json!({ "Links": { "Endpoints": [link("/Fabrics/PCIe/Endpoints/d0-vf2"), link("/Fabrics/PCIe/Endpoints/d1-vf2")] } });
    let answer = fixture.ask("PATCH", &format!("{ROOT}/Fabrics/PCIe/Zones/direct1"), &two);
    assert_eq!((answer.status, answer.messages()[0].0.as_str()), (400, "ChangeConflicts"));
    assert!(answer.messages()[0].2.contains("a direct port is one function"), "{}", answer.body);
    assert!(fixture.fake.state().begun.is_empty());
}

#[test]
fn the_subsystem_of_a_drive_changes_its_ports_by_the_configuration() {
    let fixture = Fixture::new();
    let uri = format!("{ROOT}/Fabrics/NVMeoF/Zones/fabric0");
    let rest: Vec<Value> = ["d0-pf", "d1-pf", "d2-pf", "d3-pf", "nqn.2014-08.org.example~plain-io", "d0-vf1"]
        .iter()
        .map(|id| link(&format!("/Fabrics/NVMeoF/Endpoints/{id}")))
        .collect();
    let answer = fixture.ask("PATCH", &uri, &json!({ "Links": { "Endpoints": rest } }));
    assert_eq!(answer.status, 200, "{}", answer.body);
    let state = fixture.fake.state();
    let d4 = state.config.subsystems.iter().find(|subsystem| subsystem.drive.as_deref() == Some("d4")).unwrap();
    assert_eq!(d4.ports, ["tcp://192.0.2.2:4420"]);
}

#[test]
fn namespaces_are_attached_detached_and_mapped() {
    let fixture = Fixture::new();
    let controller = |name: &str, action: &str| {
        format!("{ROOT}/Storage/d0/Controllers/{name}/Actions/StorageController.{action}Namespaces")
    };
    let volumes = |ids: &[u32]| {
        let all: Vec<Value> = ids.iter().map(|nsid| link(&format!("/Storage/d0/Volumes/ns{nsid}"))).collect();
        json!({ "Namespaces": all })
    };
    assert_eq!(fixture.begun("POST", &controller("vf2", "Attach"), &volumes(&[2])), ["attach d0/ns2 to d0/vf2"]);
    assert_eq!(fixture.begun("POST", &controller("vf1", "Detach"), &volumes(&[1])), ["detach d0/ns1 from d0/vf1"]);
    let from_all = fixture.begun("POST", &controller("pf", "Detach"), &volumes(&[2, 3]));
    assert_eq!(from_all, ["attach d0/ns2 no longer to every host".to_owned(), format!("detach d0/ns3 from {ALICE}")]);
    let private = fixture.ask("POST", &controller("vf2", "Attach"), &volumes(&[1]));
    assert!(private.messages()[0].2.contains("it is private"), "{}", private.body);
    let other = json!({ "Namespaces": [link("/Storage/d1/Volumes/ns1")] });
    assert_eq!(fixture.ask("POST", &controller("vf2", "Attach"), &other).messages()[0].1, "#/Namespaces/0");
    let map = format!("{ROOT}/Storage/d0/Volumes/ns1/Actions/Oem/EbofVolume.Map");
    let to = json!({ "Controller": link("/Storage/d0/Controllers/vf3") });
    assert_eq!(fixture.begun("POST", &map, &to), ["map d0/ns1 to d0/vf3"]);
    assert_eq!(fixture.begun("POST", &map, &json!({ "Controller": null })), ["unmap d0/ns1"]);
    assert_eq!(fixture.ask("POST", &map, &json!({})).messages()[0].0, "ActionParameterMissing");
}

#[test]
fn a_function_gets_several_ports() {
    let fixture = Fixture::new();
    let uri = format!("{ROOT}/Storage/d0/Controllers/vf1");
    let ports = |ports: &[&str]| json!({ "Oem": { "Ebof": { "Ports": ports } } });
    for (to, expected) in [
        (&["fabric0", "direct2"][..], "give d0/vf1 to ports direct2 and fabric0"),
        (&["direct2"], "move d0/vf1 to port direct2"),
        (&[], "take d0/vf1 from its port"),
    ] {
        assert_eq!(fixture.begun("PATCH", &uri, &ports(to)), [expected]);
    }
    assert_eq!(fixture.ask("PATCH", &uri, &ports(&["fabric0"])).messages()[0].0, "NoOperation");
    let wrong = fixture.ask("PATCH", &uri, &json!({ "Oem": { "Ebof": { "Ports": "fabric0" } } }));
    assert_eq!(wrong.messages()[0].1, "#/Oem/Ebof/Ports");
}

#[test]
fn a_function_gets_a_weight_and_limits() {
    let fixture = Fixture::new();
    let uri = format!("{ROOT}/Storage/d0/Controllers/vf1");
    let share = |own: &Value| json!({ "Oem": { "Ebof": own } });
    let changed = fixture.begun("PATCH", &uri, &share(&json!({ "Weight": 7, "IOPSLimit": null, "MinimumIOPS": 10 })));
    assert_eq!(changed, ["give d0/vf1 the weight 7", "limit d0/vf1: iops none, minimum iops 10"]);
    let wrong = fixture.ask("PATCH", &uri, &share(&json!({ "Weight": 0, "IOPSLimit": "x", "Object": "y", "Z": 1 })));
    let told: Vec<(String, String)> = wrong.messages().into_iter().map(|(id, about, _)| (id, about)).collect();
    let expected = [
        ("PropertyValueNotInList", "#/Oem/Ebof/Weight"),
        ("PropertyValueTypeError", "#/Oem/Ebof/IOPSLimit"),
        ("PropertyNotWritable", "#/Oem/Ebof/Object"),
        ("PropertyUnknown", "#/Oem/Ebof/Z"),
    ];
    let expected: Vec<(String, String)> = expected.map(|(id, about)| (id.to_owned(), about.to_owned())).into();
    assert!(expected.iter().all(|one| told.contains(one)), "{told:?}");
    assert_eq!(fixture.ask("PATCH", &uri, &json!({})).messages()[0].0, "NoOperation");
    assert_eq!(fixture.ask("PATCH", &format!("{ROOT}/Storage/d0/Controllers/pf"), &json!({})).status, 405);
}

#[test]
fn namespaces_are_created_formatted_protected_and_deleted() {
    let fixture = Fixture::new();
    let volumes = format!("{ROOT}/Storage/d0/Volumes");
    let new = json!({
        "CapacityBytes": 1_048_576, "NVMeNamespaceProperties": { "IsShareable": true, "LBAFormat": { "LBADataSizeBytes": 512 } },
        "Links": { "Controllers": [link("/Storage/d0/Controllers/vf1"), link("/Storage/d0/Controllers/pf")] },
        "Oem": { "Ebof": { "NamespaceId": 9, "AttachedHosts": [BOB] } },
    });
    let made = fixture.begun("POST", &volumes, &new);
    assert_eq!(made, [format!("create namespace d0/ns9 of 1048576 bytes for d0/vf1, *, {BOB}")]);
    fixture.fake.state().quick = true;
    let created = fixture.ask("POST", &volumes, &json!({ "CapacityBytes": 4096 }));
    assert_eq!((created.status, created.header("location")), (201, "/redfish/v1/Storage/d0/Volumes/ns1"));
    fixture.fake.state().quick = false;
    let wrong =
        fixture.ask("POST", &volumes, &json!({ "Links": { "Controllers": [link("/Storage/d1/Controllers/vf1")] } }));
    let told: Vec<String> = wrong.messages().into_iter().map(|(_, about, _)| about).collect();
    assert_eq!(told, ["#/CapacityBytes", "#/Links/Controllers/0"]);
    let volume = format!("{volumes}/ns1");
    let init = format!("{volume}/Actions/Volume.Initialize");
    assert_eq!(fixture.begun("POST", &init, &json!({ "InitializeType": "Slow" })), ["format d0/ns1, erase: user-data"]);
    let format = format!("{volume}/Actions/Oem/EbofVolume.Format");
    let body = json!({ "BlockSizeBytes": 512, "MetadataBytes": 8, "ProtectionType": 1 });
    assert_eq!(fixture.begun("POST", &format, &body), ["format d0/ns1 with blocks of 512 bytes"]);
    let protect = json!({ "Oem": { "Ebof": { "WriteProtected": true } } });
    assert_eq!(fixture.begun("PATCH", &volume, &protect), ["write protect d0/ns1"]);
    assert_eq!(fixture.begun("DELETE", &volume, &Value::Null), ["delete d0/ns1"]);
    let protected = fixture.ask("DELETE", &format!("{volumes}/ns3"), &Value::Null);
    assert!(protected.messages()[0].2.contains("write protected"), "{}", protected.body);
}

#[test]
fn drives_are_sanitized_tested_reset_added_and_removed() {
    let fixture = Fixture::new();
    let drive = |name: &str, action: &str| format!("{ROOT}/Chassis/enclosure/Drives/{name}/Actions/{action}");
    let erase = drive("d0", "Drive.SecureErase");
    assert!(fixture.ask("POST", &erase, &json!({})).messages()[0].2.contains("write protected"));
    let plain = fixture.begun("POST", &drive("d2", "Drive.SecureErase"), &json!({}));
    assert_eq!(plain, ["sanitize drive d2 by block-erase"]);
    let over = json!({ "SanitizationType": "Overwrite", "OverwritePasses": 3 });
    assert_eq!(fixture.begun("POST", &drive("d2", "Drive.SecureErase"), &over), ["sanitize drive d2 by overwrite"]);
    let cannot =
        fixture.ask("POST", &drive("d2", "Drive.SecureErase"), &json!({ "SanitizationType": "CryptographicErase" }));
    assert_eq!((cannot.status, cannot.messages()[0].0.as_str()), (400, "PropertyValueNotInList"));
    let busy = fixture.ask("POST", &drive("d3", "Drive.SecureErase"), &json!({}));
    assert_eq!((busy.status, busy.messages()[0].0.as_str()), (409, "ObjectBusy"));
    let test = fixture.begun("POST", &drive("d1", "Oem/EbofDrive.SelfTest"), &json!({ "Kind": "Short" }));
    assert_eq!(test, ["test drive d1 (short)"]);
    let removed = fixture.begun("POST", &drive("d4", "Oem/EbofDrive.Remove"), &json!({ "Surprise": true }));
    assert_eq!(removed, ["remove drive d4 at once"]);
    let reset = fixture.begun("POST", &format!("{ROOT}/Storage/d0/Actions/Oem/EbofStorage.ResetDrive"), &json!({}));
    assert_eq!(reset, ["reset the primary controller of drive d0"]);
    let add = format!("{ROOT}/Chassis/enclosure/Actions/Oem/EbofChassis.AddDrive");
    let new = json!({ "DriveName": "d5", "Backing": "mem:1G", "Options": { "functions": 2 } });
    assert_eq!(fixture.begun("POST", &add, &new), ["add drive d5"]);
    assert_eq!(fixture.ask("POST", &add, &json!({})).messages().len(), 2);
}

#[test]
fn hosts_are_described_allowed_and_forgotten() {
    let fixture = Fixture::new();
    let endpoints = format!("{ROOT}/Fabrics/NVMeoF/Endpoints");
    let nqn = "nqn.2014-08.org.example:dave";
    let identifiers = json!([{ "DurableName": nqn, "DurableNameFormat": "NQN" }]);
    let new = json!({ "Identifiers": identifiers, "ConnectedEntities": [{ "EntityRole": "Initiator" }] });
    let created = fixture.ask("POST", &endpoints, &new);
    let dave = format!("{endpoints}/host~nqn.2014-08.org.example~dave");
    assert_eq!((created.status, created.header("location")), (201, dave.as_str()), "{}", created.body);
    assert_eq!(fixture.ask("POST", &endpoints, &new).messages()[0].0, "ResourceAlreadyExists");
    let connections = format!("{ROOT}/Fabrics/NVMeoF/Connections");
    let allow = json!({ "Links": {
        "InitiatorEndpoints": [{ "@odata.id": dave }], "TargetEndpoints": [link("/Fabrics/NVMeoF/Endpoints/d0-pf")],
    } });
    let allowed = fixture.ask("POST", &connections, &allow);
    let connection = format!("{connections}/d0,nqn.2014-08.org.example~dave");
    assert_eq!((allowed.status, allowed.header("location")), (201, connection.as_str()), "{}", allowed.body);
    let used = fixture.ask("DELETE", &dave, &Value::Null);
    assert!(used.messages()[0].2.contains("may connect to nqn.2014-08.org.example:d0"), "{}", used.body);
    assert_eq!(fixture.ask("DELETE", &connection, &Value::Null).status, 204);
    assert_eq!(fixture.ask("DELETE", &dave, &Value::Null).status, 204);
    assert_eq!(fixture.ask("GET", &dave, &Value::Null).status, 404);
    let target = fixture.ask("DELETE", &format!("{endpoints}/d0-pf"), &Value::Null);
    assert_eq!(target.status, 405);
    let wrong =
        json!({ "Identifiers": [{ "DurableName": "bob", "DurableNameFormat": "EUI" }], "ConnectedEntities": [{}] });
    assert_eq!(fixture.ask("POST", &endpoints, &wrong).status, 400);
}

#[test]
fn every_host_may_connect_or_not() {
    let fixture = Fixture::new();
    let any = format!("{ROOT}/Fabrics/NVMeoF/Connections/d1,any");
    assert_eq!(fixture.get(&any)["Oem"]["Ebof"]["AnyHost"], true);
    assert_eq!(fixture.ask("DELETE", &any, &Value::Null).status, 204);
    let body = json!({ "Links": { "TargetEndpoints": [link("/Fabrics/NVMeoF/Endpoints/d1-pf")] }, "Oem": { "Ebof": { "AnyHost": true } } });
    let again = fixture.ask("POST", &format!("{ROOT}/Fabrics/NVMeoF/Connections"), &body);
    assert_eq!((again.status, again.header("location")), (201, any.as_str()));
}

#[test]
fn the_host_of_a_connection_is_given_volumes() {
    let fixture = Fixture::new();
    let uri = format!("{ROOT}/Fabrics/NVMeoF/Connections/d0,nqn.2014-08.org.example~alice");
    let volumes = fixture.get(&uri)["VolumeInfo"].clone();
    assert_eq!(volumes.as_array().unwrap().len(), 3, "ns1 by a function, ns2 as every host, ns3 itself: {volumes}");
    let add = format!("{uri}/Actions/Connection.AddVolumeInfo");
    let volume = |nsid: u32| json!({ "Volume": link(&format!("/Storage/d0/Volumes/ns{nsid}")) });
    assert_eq!(fixture.begun("POST", &add, &volume(2)), [format!("attach d0/ns2 to {ALICE}")]);
    let keep = json!({ "VolumeInfo": [volume(1), volume(2)] });
    assert_eq!(fixture.begun("PATCH", &uri, &keep), [format!("detach d0/ns3 from {ALICE}")]);
    let none = fixture.ask("PATCH", &uri, &json!({ "VolumeInfo": [] }));
    assert_eq!(none.messages().len(), 2, "ns1 and ns2 cannot be taken from one host: {}", none.body);
}

#[test]
fn plain_subsystems_are_changed_by_the_configuration() {
    let fixture = Fixture::new();
    let volumes = format!("{ROOT}/Storage/nqn.2014-08.org.example~plain/Volumes");
    let made = fixture.ask("POST", &volumes, &json!({ "Oem": { "Ebof": { "Backing": "mem:2Mi" } } }));
    assert_eq!((made.status, made.header("location")), (201, format!("{volumes}/ns2").as_str()), "{}", made.body);
    let protect = json!({ "Oem": { "Ebof": { "WriteProtected": true } } });
    let changed = fixture.ask("PATCH", &format!("{volumes}/ns2"), &protect);
    assert_eq!((changed.status, &changed.body["AccessCapabilities"]), (200, &json!(["Read"])), "{}", changed.body);
    assert_eq!(fixture.ask("DELETE", &format!("{volumes}/ns2"), &Value::Null).status, 204);
    assert_eq!(fixture.ask("POST", &volumes, &json!({})).messages()[0].0, "PropertyMissing");
    let config = fixture.fake.state().config.clone();
    let plain = config.subsystems.iter().find(|subsystem| subsystem.nqn.as_str() == PLAIN).unwrap();
    assert_eq!(plain.namespaces.len(), 1);
}

#[test]
fn what_is_disabled_says_so() {
    let fixture = Fixture::new();
    let subsystem = "/Storage/nqn.2014-08.org.example~plain";
    let volume = format!("{subsystem}/Volumes/ns1");
    let states = || [subsystem, &volume].map(|uri| fixture.get(&format!("{ROOT}{uri}"))["Status"]["State"].clone());
    assert_eq!(states(), ["Enabled", "Enabled"]);
    let switch = |change: &dyn Fn(&mut ebof_manage::config::Subsystem)| {
        let config = &mut fixture.fake.state().config;
        change(config.subsystems.iter_mut().find(|subsystem| subsystem.nqn.as_str() == PLAIN).unwrap());
    };
    switch(&|subsystem| subsystem.namespaces[0].enabled = false);
    assert_eq!(states(), ["Enabled", "Disabled"]);
    assert_eq!(fixture.get(&format!("{ROOT}{volume}"))["BlockSizeBytes"], Value::Null, "its device is not open");
    switch(&|subsystem| (subsystem.enabled, subsystem.namespaces[0].enabled) = (false, true));
    assert_eq!(states(), ["Disabled", "Disabled"]);
}

#[test]
fn a_plan_says_what_would_change_and_for_whom() {
    let fixture = Fixture::new();
    let plan = |method: &str, target: &str, body: &Value| {
        let ask = json!({ "Method": method, "Target": format!("{ROOT}{target}"), "Body": body });
        let uri = format!("{ROOT}/Managers/ebof/Actions/Oem/EbofManager.PlanChanges");
        let answer = fixture.ask("POST", &uri, &ask);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.body
    };
    let endpoints = json!({ "Links": { "Endpoints": [link("/Fabrics/PCIe/Endpoints/d0-vf1")] } });
    let moved = plan("PATCH", "/Fabrics/PCIe/Zones/direct2", &endpoints);
    assert_eq!(moved["Changes"], json!(["move d0/vf1 to port direct2"]));
    assert_eq!((&moved["Disturbed"][0]["HostNQN"], &moved["Refused"]), (&json!(ALICE), &json!([])));
    let deleted = plan("DELETE", "/Storage/d0/Volumes/ns2", &json!({}));
    assert_eq!(deleted["Disturbed"].as_array().unwrap().len(), 2, "every host has it: {deleted}");
    assert_eq!(deleted["DestroysData"], true);
    let refused = plan("DELETE", "/Storage/d0/Volumes/ns3", &json!({}));
    assert!(refused["Refused"][0]["Message"].as_str().unwrap().contains("write protected"), "{refused}");
    let malformed = plan("PATCH", "/Storage/d0/Controllers/vf1", &json!({ "Oem": { "Ebof": { "Weight": -1 } } }));
    assert_eq!(malformed["Refused"][0]["RelatedProperties"], json!(["#/Oem/Ebof/Weight"]));
    let forbidden = plan("DELETE", "/Fabrics/NVMeoF/Connections/d0,nqn.2014-08.org.example~alice", &json!({}));
    assert_eq!(forbidden["Disturbed"][0]["HostNQN"], ALICE, "{forbidden}");
    assert!(fixture.fake.state().begun.is_empty());
}

#[test]
fn only_operators_change_and_everybody_may_look() {
    let fixture = Fixture::new();
    let protect = json!({ "Oem": { "Ebof": { "WriteProtected": true } } });
    let volume = format!("{ROOT}/Storage/d0/Volumes/ns1");
    for (method, uri, body) in [
        ("PATCH", volume.clone(), protect.clone()),
        ("DELETE", volume.clone(), Value::Null),
        ("POST", format!("{ROOT}/Storage/d0/Volumes"), json!({})),
        ("PATCH", format!("{ROOT}/Fabrics/NVMeoF/Zones/fabric0"), json!({})),
        ("POST", format!("{ROOT}/Fabrics/NVMeoF/Endpoints"), json!({})),
        ("POST", format!("{ROOT}/Chassis/enclosure/Actions/Oem/EbofChassis.AddDrive"), json!({})),
        ("POST", format!("{ROOT}/Managers/ebof/Actions/Oem/EbofManager.PlanChanges"), json!({})),
    ] {
        assert_eq!(fixture.ask_as(Role::ReadOnly, method, &uri, &body).status, 403, "{method} {uri}");
    }
    assert_eq!(fixture.ask_as(Role::ReadOnly, "GET", &volume, &Value::Null).status, 200);
    assert_eq!(fixture.ask_as(Role::Operator, "PATCH", &volume, &protect).status, 202);
}

#[test]
fn a_large_box_is_expanded_within_limits() {
    let fixture = Fixture::of(16, 127);
    let begin = std::time::Instant::now();
    let all = fixture.get(&format!("{ROOT}/Fabrics/NVMeoF/Endpoints?$expand=.&$select=Id"));
    assert!(all["Members"].as_array().unwrap().len() > 16 * 128);
    let too_much = fixture.ask("GET", &format!("{ROOT}/Chassis?$expand=*($levels=6)"), &Value::Null);
    assert_eq!((too_much.status, too_much.messages()[0].0.as_str()), (400, "QueryParameterOutOfRange"));
    assert!(begin.elapsed() < std::time::Duration::from_secs(30), "{:?}", begin.elapsed());
}
