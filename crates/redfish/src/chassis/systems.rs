//! The machine as a system: `/redfish/v1/Systems/ebof`. Many clients begin there, and know storage
//! only below it: its storage, logs and chassis are those that are elsewhere in the tree.

use std::net::Ipv4Addr;

use serde::Serialize;
use serde_json::Value;

use crate::area::Area;
use crate::managed::parts::NetworkInterface;
use crate::managed::view::View;
use crate::place::id::Ids;
use crate::place::{ChassisPlace, ManagerPlace, StoragePlace, SystemPlace};
use crate::response::head::{Collection, Head, Health, Link, State, Status, json, link, links};
use crate::response::health::health_of;
use crate::response::message::Problem;

/// The most network interfaces that are shown.
const INTERFACES_MAX: usize = 256;

impl Area for SystemPlace {
    fn read(&self, view: &View<'_>) -> Result<Value, Problem> {
        Ok(match self {
            Self::Collection => json(&Collection::new(Self::Collection, "ComputerSystem", "Systems", [Self::System])),
            Self::System => json(&System::new(view)),
            Self::Interfaces => {
                let (ids, _) = interfaces(view);
                let all = ids.iter().map(|id| Self::Interface(id.to_owned()));
                json(&Collection::new(Self::Interfaces, "EthernetInterface", "Ethernet Interfaces", all))
            }
            Self::Interface(id) => {
                let (ids, all) = interfaces(view);
                let found = ids.index(id).and_then(|at| all.get(at)).ok_or_else(|| self.missing())?;
                json(&EthernetInterface::new(view, id, found))
            }
        })
    }
}

/// The network interfaces, with identifiers.
fn interfaces<'v>(view: &'v View<'_>) -> (Ids, &'v [NetworkInterface]) {
    let all = view.interfaces();
    let all = &all[..all.len().min(INTERFACES_MAX)];
    (Ids::new(all.iter().map(|one| one.name.as_str())), all)
}

/// `ComputerSystem`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct System {
    #[serde(flatten)]
    head: Head,
    system_type: &'static str,
    hosting_roles: [&'static str; 1],
    manufacturer: &'static str,
    model: &'static str,
    serial_number: String,
    #[serde(rename = "UUID")]
    uuid: String,
    host_name: String,
    power_state: &'static str,
    last_reset_time: String,
    status: SystemStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    processor_summary: Option<ProcessorSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_summary: Option<MemorySummary>,
    ethernet_interfaces: Link,
    log_services: Link,
    storage: Link,
    links: SystemLinks,
}

/// `Resource.Status`, with that of what is below.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct SystemStatus {
    state: State,
    health: Health,
    health_rollup: Health,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ProcessorSummary {
    logical_processor_count: u32,
}

#[derive(Serialize)]
struct MemorySummary {
    #[serde(rename = "TotalSystemMemoryGiB")]
    gib: f64,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct SystemLinks {
    chassis: Vec<Link>,
    managed_by: Vec<Link>,
}

impl System {
    fn new(view: &View<'_>) -> Self {
        let (parts, machine) = (view.parts, view.parts.program.machine());
        Self {
            head: Head::new(
                SystemPlace::System,
                "#ComputerSystem.v1_27_0.ComputerSystem",
                parts.host_name.clone(),
                "The machine that serves the drives, as its operating system shows it",
            ),
            // What is known of it is what the operating system says.
            system_type: "OS",
            hosting_roles: ["StorageServer"],
            manufacturer: "ebof",
            model: "ebof",
            serial_number: parts.uuid.simple().to_string(),
            uuid: parts.uuid.to_string(),
            host_name: parts.host_name.clone(),
            power_state: "On",
            last_reset_time: view.started(),
            status: SystemStatus::new(view),
            processor_summary: machine
                .processors
                .map(|logical_processor_count| ProcessorSummary { logical_processor_count }),
            memory_summary: machine.memory_bytes.map(|bytes| MemorySummary { gib: gib(bytes) }),
            ethernet_interfaces: link(SystemPlace::Interfaces),
            log_services: link(ManagerPlace::Logs),
            storage: link(StoragePlace::Collection),
            links: SystemLinks {
                chassis: links([ChassisPlace::Enclosure]),
                managed_by: links([ManagerPlace::Manager]),
            },
        }
    }
}

impl SystemStatus {
    fn new(view: &View<'_>) -> Self {
        let is_whole = view.status().missing.is_empty();
        let health = if is_whole { Health::OK } else { Health::Critical };
        let worst = view.inventory().drives.iter().map(|drive| health_of(drive.critical_warning)).max();
        Self { state: State::Enabled, health, health_rollup: worst.unwrap_or(Health::OK).max(health) }
    }
}

/// In GiB, to a hundredth.
fn gib(bytes: u64) -> f64 {
    let hundredths = u32::try_from((u128::from(bytes) * 100) >> 30).unwrap_or(u32::MAX);
    f64::from(hundredths) / 100.0
}

/// `EthernetInterface`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct EthernetInterface {
    #[serde(flatten)]
    head: Head,
    interface_enabled: bool,
    link_status: &'static str,
    status: Status,
    #[serde(rename = "MACAddress", skip_serializing_if = "Option::is_none")]
    mac: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    speed_mbps: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    full_duplex: Option<bool>,
    #[serde(rename = "MTUSize", skip_serializing_if = "Option::is_none")]
    mtu: Option<u32>,
    host_name: String,
    #[serde(rename = "IPv4Addresses")]
    ipv4: Vec<AddressV4>,
    #[serde(rename = "IPv6Addresses")]
    ipv6: Vec<AddressV6>,
    links: InterfaceLinks,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct InterfaceLinks {
    chassis: Link,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct AddressV4 {
    address: String,
    subnet_mask: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct AddressV6 {
    address: String,
    prefix_length: u8,
}

impl EthernetInterface {
    fn new(view: &View<'_>, id: &str, interface: &NetworkInterface) -> Self {
        let state = if interface.is_up { State::Enabled } else { State::Disabled };
        Self {
            head: Head::new(
                SystemPlace::Interface(id.to_owned()),
                "#EthernetInterface.v1_12_4.EthernetInterface",
                interface.name.clone(),
                "A network interface of the machine, which its operating system configures",
            ),
            interface_enabled: interface.is_up,
            link_status: match (interface.is_up, interface.has_link) {
                (_, true) => "LinkUp",
                (true, false) => "NoLink",
                (false, false) => "LinkDown",
            },
            status: Status::with_state(state),
            mac: interface.mac.clone(),
            speed_mbps: interface.speed_mbps,
            full_duplex: interface.full_duplex,
            mtu: interface.mtu,
            host_name: view.parts.host_name.clone(),
            ipv4: interface.ipv4.iter().map(|(address, prefix)| AddressV4::new(*address, *prefix)).collect(),
            ipv6: interface
                .ipv6
                .iter()
                .map(|(address, prefix)| AddressV6 { address: address.to_string(), prefix_length: *prefix })
                .collect(),
            links: InterfaceLinks { chassis: link(ChassisPlace::Enclosure) },
        }
    }
}

impl AddressV4 {
    fn new(address: Ipv4Addr, prefix: u8) -> Self {
        let mask = u32::MAX.checked_shl(32_u32.saturating_sub(prefix.into())).unwrap_or(0);
        Self { address: address.to_string(), subnet_mask: Ipv4Addr::from(mask).to_string() }
    }
}

#[cfg(test)]
mod tests {
    use ebof_access::Role;
    use serde_json::json;

    use crate::service::tests::{ask_of, caller, full_service};
    use serde_json::Value;

    // @test redfish.systems
    #[test]
    fn clients_that_begin_at_systems_find_everything() {
        let (service, reader) = (full_service(), caller(Some(Role::ReadOnly)));
        let get = |uri: &str| {
            let (status, _, body) = ask_of(&service, "GET", uri, &[], Value::Null, &reader);
            assert_eq!(status, 200, "{uri}: {body}");
            body
        };
        let root = get("/redfish/v1/");
        let systems = get(root["Systems"]["@odata.id"].as_str().unwrap());
        let system = get(systems["Members"][0]["@odata.id"].as_str().unwrap());
        assert_eq!((&system["SystemType"], &system["HostingRoles"]), (&json!("OS"), &json!(["StorageServer"])));
        assert_eq!(system["MemorySummary"]["TotalSystemMemoryGiB"], json!(2.5));
        assert_eq!(system["Storage"]["@odata.id"], "/redfish/v1/Storage");
        assert_eq!(system["Links"]["Chassis"][0]["@odata.id"], "/redfish/v1/Chassis/enclosure");
        let interfaces = get(system["EthernetInterfaces"]["@odata.id"].as_str().unwrap());
        assert_eq!(interfaces["Members@odata.count"], 2);
        let first = get(interfaces["Members"][0]["@odata.id"].as_str().unwrap());
        assert_eq!(first["IPv4Addresses"][0], json!({ "Address": "192.0.2.1", "SubnetMask": "255.255.255.0" }));
        assert_eq!((&first["LinkStatus"], &first["SpeedMbps"]), (&json!("LinkUp"), &json!(100_000)));
        let second = get(interfaces["Members"][1]["@odata.id"].as_str().unwrap());
        assert_eq!((&second["LinkStatus"], &second["SpeedMbps"]), (&json!("LinkDown"), &Value::Null));
        let manager = get("/redfish/v1/Managers/ebof");
        assert_eq!(manager["Links"]["ManagerForServers"][0]["@odata.id"], systems["Members"][0]["@odata.id"]);
        assert_eq!(manager["EthernetInterfaces"], system["EthernetInterfaces"]);
        let enclosure = get("/redfish/v1/Chassis/enclosure");
        assert_eq!(enclosure["Links"]["ComputerSystems"][0], systems["Members"][0]);
    }
}
