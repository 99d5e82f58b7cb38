//! One of each resource: a changed snapshot is a changed form, which programs may notice.

use serde_json::Value;

use crate::fixture::Fixture;

/// Resources as text, without their tags: those are of the content.
fn shown(paths: &[&str]) -> String {
    let fixture = Fixture::new();
    let mut all = String::new();
    for path in paths {
        let mut resource = fixture.get(&format!("/redfish/v1/{path}"));
        if let Value::Object(object) = &mut resource {
            object.remove("@odata.etag");
        }
        all += &serde_json::to_string_pretty(&resource).unwrap();
        all.push('\n');
    }
    all
}

#[test]
fn the_form_of_the_chassis_is_stable() {
    const BOX: &str = "Chassis/enclosure";
    let paths = [
        "",
        "/Drives",
        "/Drives/d0",
        "/Drives/d0/Metrics",
        "/Drives/d0/EnvironmentMetrics",
        "/NetworkAdapters/fabric",
        "/NetworkAdapters/fabric/Ports/fabric0",
        "/NetworkAdapters/fabric/Ports/fabric0/Metrics",
        "/PCIeDevices/d0",
        "/PCIeDevices/d0/PCIeFunctions/pf",
        "/PCIeDevices/d0/PCIeFunctions/vf1",
        "/Sensors/temperature-k10temp+Tctl",
        "/Sensors/fan-nct6775+fan1",
        "/Sensors/drive-d0",
        "/ThermalSubsystem",
        "/ThermalSubsystem/ThermalMetrics",
        "/ThermalSubsystem/Fans/fan-nct6775+fan1",
        "/EnvironmentMetrics",
    ];
    let paths = paths.map(|path| format!("{BOX}{path}"));
    insta::assert_snapshot!(shown(&paths.each_ref().map(String::as_str)));
}

#[test]
fn the_form_of_storage_is_stable() {
    insta::assert_snapshot!(shown(&[
        "Storage/d0",
        "Storage/d0/Controllers/pf",
        "Storage/d0/Controllers/vf1",
        "Storage/d0/Volumes/ns3",
        "Storage/d0/Volumes/ns3/Metrics",
        "Storage/nqn.2014-08.org.example~plain",
        "Storage/nqn.2014-08.org.example~plain/Controllers/io",
        "Storage/nqn.2014-08.org.example~plain/Volumes/ns1",
        "Storage/nqn.2014-08.org.example~plain/Volumes/ns1/Metrics",
    ]));
}

#[test]
fn the_form_of_fabrics_is_stable() {
    insta::assert_snapshot!(shown(&[
        "Fabrics/NVMeoF",
        "Fabrics/NVMeoF/Endpoints/d0-pf",
        "Fabrics/NVMeoF/Endpoints/d0-vf1",
        "Fabrics/NVMeoF/Endpoints/d0-vf2",
        "Fabrics/NVMeoF/Endpoints/host~nqn.2014-08.org.example~alice",
        "Fabrics/NVMeoF/Connections/d0,nqn.2014-08.org.example~alice",
        "Fabrics/NVMeoF/Zones/fabric0",
        "Fabrics/PCIe/Endpoints/d0-vf2",
        "Fabrics/PCIe/Endpoints/host-direct1",
        "Fabrics/PCIe/Connections/direct1",
        "Fabrics/PCIe/Zones/direct1",
    ]));
}
