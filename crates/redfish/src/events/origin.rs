//! The resource that an event is about (`OriginOfCondition`).

use ebof_manage::events::{Event, EventKind};

use crate::events::objects::{drive, host, part, port, subsystem};
use crate::managed::view::View;
use crate::place::{AccountPlace, CertificatePlace, KeyPlace, Log, ManagerPlace, Place, SessionPlace, TaskPlace};

/// The resource that an event is about: that of its object, else that of its kind.
pub(super) fn origin(event: &Event, view: &View<'_>) -> Place {
    use EventKind as Of;
    let object = event.object.as_str();
    let part = || part(object, view).map(Place::from);
    match event.kind {
        Of::ConfigurationChanged | Of::ConfigurationRefused => ManagerPlace::Configuration.into(),
        Of::TaskBegan | Of::TaskProgress | Of::TaskEnded | Of::TaskFailed => task(object),
        Of::AccountAdded | Of::AccountChanged | Of::AccountLocked | Of::AccountRemoved => AccountPlace::Accounts.into(),
        Of::KeyAdded | Of::KeyRemoved => KeyPlace::Keys.into(),
        Of::SessionBegan | Of::SessionEnded | Of::SessionRefused => SessionPlace::Sessions.into(),
        Of::CertificateChanged | Of::CertificateExpiring => CertificatePlace::HttpsCertificate.into(),
        Of::TransportTrouble => endpoint(event.who.as_deref(), view),
        Of::ObjectMissing | Of::ObjectFound => present(object, view),
        // The target itself.
        _ if object.is_empty() => ManagerPlace::Manager.into(),
        Of::HostConnected
        | Of::HostDisconnected
        | Of::ControllerFailed
        | Of::NamespaceAdded
        | Of::NamespaceRemoved
        | Of::NamespaceChanged
        | Of::SubsystemAdded
        | Of::SubsystemRemoved
        | Of::SubsystemChanged => part().unwrap_or_else(|| subsystem(object, view).into()),
        Of::FunctionGiven
        | Of::FunctionTaken
        | Of::FunctionMoved
        | Of::FunctionChanged
        | Of::DriveAdded
        | Of::DriveRemoved
        | Of::DriveFailed
        | Of::DriveRecovered
        | Of::HealthWarning
        | Of::HealthRestored
        | Of::DamageFound
        | Of::FirmwareChanged => part().unwrap_or_else(|| drive(object, view).into()),
        Of::ConnectionRefused | Of::PortUp | Of::PortDown => port(object, view),
        Of::LogCleared => Log::with_id(object).map_or(ManagerPlace::Logs, ManagerPlace::Log).into(),
        _ => ManagerPlace::Manager.into(),
    }
}

/// A host on fabrics that is known; of others, the target has the trouble.
fn endpoint(nqn: Option<&str>, view: &View<'_>) -> Place {
    let known = nqn.filter(|nqn| view.names().host_endpoint(nqn).is_some());
    known.map_or_else(|| ManagerPlace::Manager.into(), |nqn| host(nqn, view).into())
}

/// What of an object is there now: its drive or port, or the subsystem of a namespace (`NQN/NSID`).
/// What is missing has no resource: then it is the manager, which has it among its conditions.
fn present(object: &str, view: &View<'_>) -> Place {
    let is_drive = view.inventory().drives.iter().any(|drive| drive.name == object);
    if is_drive {
        return drive(object, view).into();
    }
    if view.port_id(object).is_some() {
        return port(object, view);
    }
    let nqn = object.rsplit_once('/').map_or(object, |(nqn, _)| nqn);
    let is_subsystem = view.storages().any(|(_, storage)| storage.nqn() == nqn);
    if is_subsystem { subsystem(nqn, view).into() } else { ManagerPlace::Manager.into() }
}

/// `task 7`
fn task(object: &str) -> Place {
    let number: Option<u64> = object.strip_prefix("task ").and_then(|number| number.parse().ok());
    number.map_or(TaskPlace::Tasks, |number| TaskPlace::Task(number.to_string())).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{ALICE, Fixture};
    use crate::service::tree::area;

    fn event(kind: EventKind, object: &str) -> Event {
        Event {
            id: 1,
            time_unix_ms: 0,
            severity: kind.severity(),
            kind,
            object: object.to_owned(),
            message: String::new(),
            advice: None,
            who: None,
            from: None,
            count: 1,
        }
    }

    #[test]
    fn an_event_leads_to_the_resource_of_its_object() {
        let fixture = Fixture::new();
        let view = View::new(fixture.service.parts());
        let plain = view.inventory().subsystems[0].nqn.clone();
        let own = view.inventory().drives[1].nqn.clone();
        let plain_id = view.storage_id(&plain).unwrap().to_owned();
        let volume_of_plain = format!("Storage/{plain_id}/Volumes/ns1");
        for (kind, object, expected) in [
            (EventKind::TargetStarted, "", "Managers/ebof"),
            (EventKind::HostConnected, "d0/vf1", "Storage/d0/Controllers/vf1"),
            (EventKind::HostConnected, "d0", "Storage/d0"),
            (EventKind::HostDisconnected, &plain, &format!("Storage/{plain_id}")),
            (EventKind::ControllerFailed, "d0/pf", "Storage/d0/Controllers/pf"),
            (EventKind::FunctionGiven, "d0/vf1", "Storage/d0/Controllers/vf1"),
            (EventKind::FunctionChanged, "d1", "Chassis/enclosure/Drives/d1"),
            (EventKind::NamespaceAdded, "d0/ns1", "Storage/d0/Volumes/ns1"),
            (EventKind::NamespaceChanged, "d0/ns*", "Storage/d0/Volumes"),
            (EventKind::NamespaceChanged, &format!("{plain}/ns1"), &volume_of_plain),
            (EventKind::SubsystemChanged, &own, "Storage/d1"),
            (EventKind::HealthWarning, "d1", "Chassis/enclosure/Drives/d1"),
            (EventKind::DamageFound, "d0/ns1", "Storage/d0/Volumes/ns1"),
            (EventKind::PortUp, "fabric0", "Chassis/enclosure/NetworkAdapters/fabric/Ports/fabric0"),
            (
                EventKind::ConnectionRefused,
                "tcp://192.0.2.2:4420",
                "Chassis/enclosure/NetworkAdapters/fabric/Ports/tcp~!!192.0.2.2~4420",
            ),
            (EventKind::PortDown, "direct1", "Fabrics/PCIe/Zones/direct1"),
            (EventKind::ObjectFound, "d1", "Chassis/enclosure/Drives/d1"),
            (EventKind::ObjectFound, "direct1", "Fabrics/PCIe/Zones/direct1"),
            (EventKind::ObjectMissing, &format!("{plain}/1"), &format!("Storage/{plain_id}")),
            (EventKind::ObjectMissing, "d9", "Managers/ebof"),
            (EventKind::ObjectMissing, "https://127.0.0.1:0", "Managers/ebof"),
            (EventKind::ConfigurationChanged, "", "Managers/ebof/Oem/Ebof/Configuration"),
            (EventKind::LogCleared, "Events", "Managers/ebof/LogServices/Events"),
            (EventKind::AccountAdded, "", "AccountService/Accounts"),
            (EventKind::SessionBegan, "", "SessionService/Sessions"),
        ] {
            let place = origin(&event(kind, object), &view);
            assert_eq!(place.to_string(), format!("/redfish/v1/{expected}"), "{kind} {object}");
            area(&place).read(&view).unwrap_or_else(|problem| panic!("{place}: {problem:?}"));
        }
    }

    #[test]
    fn a_trouble_on_the_way_leads_to_its_host() {
        let fixture = Fixture::new();
        let view = View::new(fixture.service.parts());
        let of = |who: Option<&str>| {
            origin(&Event { who: who.map(str::to_owned), ..event(EventKind::TransportTrouble, "") }, &view)
        };
        let place = of(Some(ALICE));
        assert_eq!(place, Place::from(host(ALICE, &view)));
        area(&place).read(&view).unwrap_or_else(|problem| panic!("{place}: {problem:?}"));
        for nobody in [None, Some("others"), Some("nqn.2014-08.org.example:stranger")] {
            assert_eq!(of(nobody), Place::from(ManagerPlace::Manager), "{nobody:?}");
        }
    }

    #[test]
    fn what_is_gone_has_the_address_that_it_had() {
        let fixture = Fixture::new();
        let view = View::new(fixture.service.parts());
        for (kind, object, expected) in [
            (EventKind::DriveRemoved, "d9", "Chassis/enclosure/Drives/d9"),
            (EventKind::NamespaceRemoved, "d0/ns77", "Storage/d0/Volumes/ns77"),
            (EventKind::SubsystemRemoved, "nqn.2014-08.org.example:x/vf1y", "Storage/nqn.2014-08.org.example~x!vf1y"),
            (EventKind::TaskEnded, "task 7", "TaskService/Tasks/7"),
            (EventKind::TaskEnded, "", "TaskService/Tasks"),
            (EventKind::CertificateChanged, "", "Managers/ebof/NetworkProtocol/HTTPS/Certificates/1"),
            (EventKind::PortDown, "a port", "Chassis/enclosure/NetworkAdapters/fabric/Ports/a+port"),
        ] {
            let place = origin(&event(kind, object), &view);
            assert_eq!(place.to_string(), format!("/redfish/v1/{expected}"), "{kind} {object}");
            assert_eq!(Place::parse(&place.to_string()), Some(place), "{kind} {object}");
        }
    }

    #[test]
    fn only_events_of_the_target_itself_lead_to_the_manager() {
        let fixture = Fixture::new();
        let view = View::new(fixture.service.parts());
        let manager = Place::from(ManagerPlace::Manager);
        let of = |kind: EventKind| Event { who: Some(ALICE.to_owned()), ..event(kind, "d0") };
        let all = EventKind::ALL.iter().filter(|kind| origin(&of(**kind), &view) == manager);
        assert_eq!(all.collect::<Vec<_>>(), [&EventKind::TargetStarted, &EventKind::TargetStopping]);
    }
}
