//! Queries over a small tree of resources.

use super::*;
use serde_json::json;

fn read(place: &Place) -> Option<Value> {
    let drive = |id: &str, next: &str, bytes: u64| {
        let path = |id: &str| format!("/redfish/v1/Chassis/enclosure/Drives/{id}");
        json!({
            "@odata.id": path(id), "@odata.type": "#Drive", "Id": id, "CapacityBytes": bytes,
            "Status": { "State": "Enabled", "Health": "OK" },
            "Next": { "@odata.id": path(next) }, "Links": { "Chassis": { "@odata.id": "/redfish/v1/Chassis/enclosure" } },
        })
    };
    match place.to_string().rsplit('/').next()? {
        "d0" => Some(drive("d0", "d1", 1)),
        "d1" => Some(drive("d1", "d0", 2)),
        "d2" => Some(drive("d2", "d0", 3)),
        "enclosure" => Some(json!({ "@odata.id": place.to_string(), "Id": "enclosure" })),
        _ => None,
    }
}

fn collection() -> (Place, Value) {
    let path = "/redfish/v1/Chassis/enclosure/Drives";
    let members: Vec<Value> = (0..3).map(|n| json!({ "@odata.id": format!("{path}/d{n}") })).collect();
    let value = json!({ "@odata.id": path, "@odata.type": "#C", "Name": "Drives", "Members": members, "Members@odata.count": 3 });
    (Place::parse(path).unwrap(), value)
}

fn ask(query: &str) -> Value {
    let (place, value) = collection();
    Query::parse(Some(query)).unwrap().apply(&place, value, &read).unwrap()
}

fn ids(collection: &Value) -> Vec<String> {
    let id = |member: &Value| member["@odata.id"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    collection["Members"].as_array().unwrap().iter().map(id).collect()
}

#[test]
fn members_are_filtered_and_paged() {
    let some = ask("$filter=CapacityBytes%20ge%202");
    assert_eq!((ids(&some), &some["Members@odata.count"]), (vec!["d1".to_owned(), "d2".to_owned()], &json!(2)));
    let page = ask("$skip=1&$top=1");
    assert_eq!((ids(&page), &page["Members@odata.count"]), (vec!["d1".to_owned()], &json!(3)), "the count is of all");
    assert_eq!(page["Members@odata.nextLink"], "/redfish/v1/Chassis/enclosure/Drives?$skip=2&$top=1");
    let page = ask("$filter=CapacityBytes%20ge%202&%24top=1&$select=Members");
    let next = page["Members@odata.nextLink"].as_str().unwrap();
    let expected = "/redfish/v1/Chassis/enclosure/Drives?$skip=1&$top=1&$filter=CapacityBytes%20ge%202&$select=Members";
    assert_eq!(next, expected, "the next page is filtered, too");
    assert_eq!(ids(&ask(next.split_once('?').unwrap().1)), ["d2"]);
    let last = ask("$skip=2&$top=1");
    assert_eq!((ids(&last), last.get("Members@odata.nextLink")), (vec!["d2".to_owned()], None));
    assert!(ids(&ask("$skip=7")).is_empty());
}

#[test]
fn references_are_expanded_by_kind_and_level() {
    let one = ask("$expand=.($levels=1)");
    assert_eq!(one["Members"][0]["Id"], "d0");
    assert_eq!(one["Members"][0]["Next"], json!({ "@odata.id": "/redfish/v1/Chassis/enclosure/Drives/d1" }));
    let two = ask("$expand=*($levels=2)");
    assert_eq!(two["Members"][0]["Next"]["Id"], "d1");
    assert_eq!(two["Members"][0]["Links"]["Chassis"]["Id"], "enclosure");
    let subordinate = ask("$expand=.($levels=2)");
    assert_eq!(subordinate["Members"][0]["Links"]["Chassis"].get("Id"), None);
    let dependent = ask("$expand=~");
    assert_eq!(dependent["Members"][0].get("Id"), None);
}

#[test]
fn properties_are_selected() {
    let drive = Query::parse(Some("$select=Status/State,Id")).unwrap();
    let place = Place::parse("/redfish/v1/Chassis/enclosure/Drives/d0").unwrap();
    let selected = drive.apply(&place, read(&place).unwrap(), &read).unwrap();
    let expected = json!({
        "@odata.id": place.to_string(), "@odata.type": "#Drive", "Id": "d0", "Status": { "State": "Enabled" },
    });
    assert_eq!(selected, expected);
    let members = ask("$expand=.&$select=Id");
    assert_eq!(members["Members"][2]["Id"], "d2");
    assert_eq!(members["Members"][2].get("CapacityBytes"), None);
    assert_eq!(ask("$select=Members")["Members@odata.count"], 3);
}

#[test]
fn a_wrong_query_is_refused_with_what_is_accepted() {
    for (query, status) in [
        ("$expand", 400),
        ("$expand=x", 400),
        ("$expand=.($levels=0)", 400),
        ("$expand=.($levels=7)", 400),
        ("$select=", 400),
        ("$select=a//b", 400),
        ("$top=-1", 400),
        ("$skip=a", 400),
        ("$filter=Id", 400),
        ("$unknown=1", 501),
        ("only&$top=1", 400),
        ("only=x", 400),
    ] {
        let problem = Query::parse(Some(query)).unwrap_err();
        assert_eq!(problem.status.as_u16(), status, "{query}");
    }
    Query::parse(Some("unknown=1&%24top=1&x")).unwrap();
    let place = Place::parse("/redfish/v1/Chassis/enclosure").unwrap();
    let on_one = Query::parse(Some("$top=1")).unwrap().apply(&place, read(&place).unwrap(), &read);
    assert_eq!(on_one.unwrap_err().status, 400);
}

#[test]
fn an_expansion_is_bounded() {
    let endless = |_: &Place| {
        let members = vec![json!({ "@odata.id": "/redfish/v1/Chassis/enclosure/Drives/d0" }); 100];
        Some(json!({ "All": members }))
    };
    let (place, value) = collection();
    let answer = Query::parse(Some("$expand=*($levels=6)")).unwrap().apply(&place, value, &endless);
    assert_eq!(answer.unwrap_err().status, 400);
}
