//! Who may do what: a privilege registry (DSP0266, "Privilege model"), made of what each address
//! demands.

use std::collections::BTreeMap;

use ebof_access::{Privilege, Role};
use http::Method;
use serde_json::{Map, Value, json};

use crate::place::Place;

/// `PrivilegeRegistry`.
pub(super) fn registry() -> Value {
    let used: Vec<&str> = Role::Administrator.privileges().iter().map(|privilege| privilege.name()).collect();
    let mut mappings: BTreeMap<&str, Value> = BTreeMap::new();
    for (pattern, place) in Place::patterns() {
        let entity = place.kind();
        // Actions are methods of the resource that they belong to.
        if entity.is_empty() {
            continue;
        }
        let mapping = mappings.entry(entity).or_insert_with(|| operations(entity, &place));
        if place.is_of_audit() {
            let operations = operations(entity, &place)["OperationMap"].take();
            mapping["ResourceURIOverrides"] =
                json!([{ "Targets": [format!("/redfish/v1/{pattern}")], "OperationMap": operations }]);
        }
    }
    json!({
        "@odata.type": "#PrivilegeRegistry.v1_2_0.PrivilegeRegistry", "Id": "EbofPrivileges.1.0.0",
        "Name": "Privileges of ebof", "Description": "The privileges that each type of resource demands",
        "PrivilegesUsed": used, "OEMPrivilegesUsed": [], "Mappings": mappings.into_values().collect::<Vec<_>>(),
    })
}

/// The privileges by method.
fn operations(entity: &str, place: &Place) -> Value {
    let mut operations = Map::new();
    for method in [Method::GET, Method::HEAD, Method::PATCH, Method::POST, Method::PUT, Method::DELETE] {
        let same = if method == Method::HEAD { &Method::GET } else { &method };
        let wanted = place.privilege(same).map_or("NoAuth", Privilege::name);
        let mut any = vec![json!({ "Privilege": [wanted] })];
        // Everybody may change their own password, and end their own session.
        let is_own = match entity {
            "ManagerAccount" => [Method::GET, Method::HEAD, Method::PATCH].contains(&method),
            "Session" => method == Method::DELETE,
            _ => false,
        };
        if is_own {
            any = vec![json!({ "Privilege": ["ConfigureManager"] }), json!({ "Privilege": ["ConfigureSelf"] })];
            if entity == "ManagerAccount" {
                any = vec![json!({ "Privilege": ["ConfigureUsers"] }), json!({ "Privilege": ["ConfigureSelf"] })];
            }
        }
        operations.insert(method.to_string(), any.into());
    }
    json!({ "Entity": entity, "OperationMap": operations })
}
