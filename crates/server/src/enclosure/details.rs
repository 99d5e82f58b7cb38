//! What a drive says of itself, as the management API has it.

use ebof_drive::health::{CRITICAL_KELVIN, WARNING_KELVIN};
use ebof_drive::{Drive, Managers, Namespace, View};
use ebof_fabrics::function_nqn;
use ebof_manage::enclosure::{
    ControllerDetails, DETAILS_SCHEMA, DriveDetails, ERRORS_MAX, EVENTS_MAX, EnduranceObject, ErrorObject, EventObject,
    EventsObject, FirmwareObject, FirmwareSlotObject, FunctionName, NamespaceDetails, NamespaceName, ProtectionObject,
    RunningSelfTest, SanitizeAction, SanitizeEstimates, SanitizeObject, SanitizeStateObject, SelfTestKind,
    SelfTestObject, SelfTestOutcome, TemperatureObject,
};
use ebof_nvme::log::{ErrorInformation, SanitizeLog, SanitizeState, SelfTestCode, SelfTestEntry, SelfTestResult};
use ebof_nvme::media::{self, Sanitize};
use ebof_nvme::{ControllerId, Nqn, Nsid, Uuid};
use zerocopy::FromBytes as _;

use super::inventory::{format_of, formats};
use crate::life::serve::Target;
use crate::life::startup::OpenDrive;

/// What a drive of `target` says.
pub(super) fn collect(target: &Target, opened: &OpenDrive) -> DriveDetails {
    let OpenDrive { actor, config, subsystem, .. } = opened;
    let view = actor.view();
    let (health, medium) = (actor.health(), actor.medium().capacity());
    let temperature = temperature_of(opened);
    let critical_warning = health.critical_warning;
    let namespace = |(nsid, namespace): &(Nsid, Namespace)| namespace_of(opened, &view, *nsid, namespace);
    let namespaces = view.namespaces.iter().map(namespace).collect();
    let controllers = controllers_of(target, &config.name, &subsystem.nqn, &view, critical_warning);
    actor.with_drive(|drive| DriveDetails {
        details_schema: DETAILS_SCHEMA,
        name: config.name.clone(),
        model: view.model.clone(),
        serial: subsystem.serial.clone(),
        uuid: Uuid(view.uuid).to_string(),
        managers: match &view.managers {
            Managers::Everyone => None,
            Managers::Only(hosts) => Some(hosts.iter().cloned().collect()),
        },
        overcommits: drive.settings().overcommit,
        is_exclusive: drive.settings().exclusive,
        encrypts: drive.settings().encrypted,
        checks: drive.settings().checked,
        allocated_bytes: medium.used_bytes,
        extent_bytes: medium.extent_bytes,
        is_read_only: actor.medium().is_read_only(),
        formats: formats(),
        firmware: firmware_of(drive),
        health,
        temperature,
        endurance: endurance_of(drive),
        sanitize: sanitize_of(drive),
        self_test: self_test_of(drive),
        errors: errors_of(drive),
        events: events_of(drive),
        namespaces,
        controllers,
    })
}

fn firmware_of(drive: &Drive) -> FirmwareObject {
    let limits = drive.firmware_limits();
    let firmware = &drive.state().firmware;
    let page = firmware.page(&limits);
    let slot = |slot: u8| FirmwareSlotObject {
        slot,
        revision: page.revision(slot).map(|revision| revision.to_string()),
        is_read_only: slot == 1 && limits.slot_1_read_only,
    };
    FirmwareObject {
        running: firmware.running(&limits).revision.clone(),
        active_slot: firmware.active_slot(),
        next_slot: firmware.pending_slot(),
        slots: (1..=limits.slots).map(slot).collect(),
    }
}

fn temperature_of(opened: &OpenDrive) -> TemperatureObject {
    let (warning_ms, critical_ms) = opened.actor.with_drive(|drive| {
        let health = &drive.state().health;
        (health.warning_ms, health.critical_ms)
    });
    TemperatureObject {
        now_kelvin: opened.actor.kelvin(),
        warning_kelvin: WARNING_KELVIN,
        critical_kelvin: CRITICAL_KELVIN,
        warning_minutes: warning_ms / 60_000,
        critical_minutes: critical_ms / 60_000,
    }
}

fn endurance_of(drive: &Drive) -> EnduranceObject {
    let endurance = drive.endurance();
    let health = &drive.state().health;
    EnduranceObject {
        rated_bytes: Some(endurance.rated_bytes).filter(|bytes| *bytes > 0),
        written_bytes: health.medium_bytes,
        used_percent: health.percentage_used(&endurance),
    }
}

fn sanitize_of(drive: &Drive) -> SanitizeObject {
    let page = drive.sanitize_page();
    let state = match page.state() {
        SanitizeState::Never | SanitizeState::Reserved(_) => SanitizeStateObject::Never,
        SanitizeState::Succeeded => SanitizeStateObject::Succeeded,
        SanitizeState::InProgress => SanitizeStateObject::InProgress,
        SanitizeState::Failed => SanitizeStateObject::Failed,
        SanitizeState::SucceededDeallocated => SanitizeStateObject::SucceededDeallocated,
    };
    let action = match Sanitize::of_dwords(page.scdw10.get(), 0).action {
        media::SanitizeAction::BlockErase => Some(SanitizeAction::BlockErase),
        media::SanitizeAction::Overwrite => Some(SanitizeAction::Overwrite),
        media::SanitizeAction::CryptoErase => Some(SanitizeAction::CryptoErase),
        _ => None,
    };
    let able = drive.capabilities();
    let actions = [
        (able.block_erase, SanitizeAction::BlockErase),
        (able.overwrite, SanitizeAction::Overwrite),
        (able.crypto_erase, SanitizeAction::CryptoErase),
    ];
    let seconds = |seconds: u32| Some(seconds).filter(|seconds| *seconds != SanitizeLog::UNKNOWN_SECONDS);
    SanitizeObject {
        state,
        action: action.filter(|_| state != SanitizeStateObject::Never),
        percent: page.percent().map(|percent| percent.min(99)),
        passes: page.passes(),
        is_erased: page.global_data_erased(),
        actions: actions.into_iter().filter(|(able, _)| *able).map(|(_, action)| action).collect(),
        estimates: SanitizeEstimates {
            block_erase_s: seconds(page.etbe.get()),
            overwrite_s: seconds(page.eto.get()),
            crypto_erase_s: seconds(page.etce.get()),
        },
    }
}

fn kind_of(code: SelfTestCode) -> Option<SelfTestKind> {
    match code {
        SelfTestCode::SHORT => Some(SelfTestKind::Short),
        SelfTestCode::EXTENDED => Some(SelfTestKind::Extended),
        _ => None,
    }
}

fn self_test_of(drive: &Drive) -> SelfTestObject {
    let page = drive.state().self_test.page();
    let running = page.current().and_then(|(code, percent)| {
        let kind = kind_of(code)?;
        Some(RunningSelfTest { kind, percent: percent.min(99) })
    });
    SelfTestObject { running, results: page.results().map(outcome_of).collect() }
}

fn outcome_of(entry: &SelfTestEntry) -> SelfTestOutcome {
    let result = entry.result();
    SelfTestOutcome {
        kind: kind_of(entry.code()),
        result: result.0,
        meaning: result.name().unwrap_or("unknown").to_owned(),
        passed: result == SelfTestResult::PASSED,
        power_on_hours: entry.poh.get(),
        segment: Some(entry.snum).filter(|segment| *segment > 0),
        nsid: entry.failing_nsid().map(|nsid| nsid.0),
        lba: entry.failing_lba(),
    }
}

fn errors_of(drive: &Drive) -> Vec<ErrorObject> {
    let hides_lba = drive.restriction().is_some();
    let page = drive.state().errors.page(ERRORS_MAX, 0, hides_lba);
    let entries = page.chunks_exact(size_of::<ErrorInformation>());
    let entries = entries.filter_map(|bytes| ErrorInformation::read_from_bytes(bytes).ok());
    entries.filter(|entry| entry.ec.get() > 0).map(|entry| error_of(&entry, hides_lba)).collect()
}

fn error_of(entry: &ErrorInformation, hides_lba: bool) -> ErrorObject {
    let status = entry.status();
    let is_command = entry.sqid.get() != u16::MAX;
    let nsid = Some(entry.nsid.get()).filter(|nsid| Nsid(*nsid).names_one());
    let is_io = is_command && entry.sqid.get() > 0;
    ErrorObject {
        number: entry.ec.get(),
        queue: is_command.then(|| entry.sqid.get()),
        cid: is_command.then(|| entry.cid.get()),
        status_type: status.code_type(),
        status_code: status.code(),
        meaning: status.to_string(),
        byte: entry.parameter_error_location().map(|location| location.byte),
        nsid,
        lba: (is_io && nsid.is_some() && !hides_lba).then(|| entry.lba.get()),
        opcode: is_command.then_some(entry.opc),
    }
}

fn events_of(drive: &Drive) -> EventsObject {
    let events = &drive.state().events;
    let event = |(kind, cntlid, unix_ms): (ebof_nvme::log::EventKind, ControllerId, u64)| EventObject {
        kind: kind.0,
        name: kind.name().unwrap_or("Unknown").to_owned(),
        unix_ms,
        cntlid: Some(cntlid.0).filter(|_| cntlid != ControllerId::DYNAMIC),
    };
    EventsObject {
        count: u64::try_from(events.len()).unwrap_or(u64::MAX),
        total: events.total(),
        latest: events.latest().take(EVENTS_MAX).map(event).collect(),
    }
}

fn namespace_of(opened: &OpenDrive, view: &View, nsid: Nsid, namespace: &Namespace) -> NamespaceDetails {
    let shape = &namespace.shape;
    let data_bytes = |blocks: u64| blocks << shape.format().block_shift;
    let used = opened.actor.medium().thin(namespace.volume).map_or(0, |thin| thin.allocated_bytes());
    let capacity_bytes = data_bytes(shape.capacity_blocks);
    let reservations = view.reservations.get(&nsid.0);
    NamespaceDetails {
        name: NamespaceName { drive: opened.config.name.clone(), nsid: nsid.0 },
        size_bytes: shape.bytes(),
        capacity_bytes,
        used_bytes: used.min(capacity_bytes),
        claimed_bytes: opened.actor.with_drive(|drive| drive.claim(namespace)),
        format: format_of(shape.format, shape.format()),
        protection: ProtectionObject { kind: shape.protection.kind, first: shape.protection.first },
        shared: namespace.shared,
        write_protected: namespace.write_protected,
        encrypted: shape.encrypted,
        checked: shape.checked,
        format_percent: view.erasing.get(&nsid.0).map(|left| 100 - left.clamp(&1, &100)),
        uuid: Uuid(namespace.uuid).to_string(),
        nguid: hex(&namespace.nguid),
        eui64: hex(&namespace.eui64),
        owner: Some(namespace.owner.clone()).filter(|owner| !owner.is_empty()),
        registrants: reservations.map_or(0, |it| u32::try_from(it.registrants()).unwrap_or(u32::MAX)),
        reservation: reservations.and_then(|it| it.kind()).map(|kind| kind.encode()),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn controllers_of(
    target: &Target,
    drive: &str,
    nqn: &Nqn,
    view: &View,
    critical_warning: u8,
) -> Vec<ControllerDetails> {
    let registry = target.shared.registry();
    let controller = |nqn: &Nqn, number: u16| {
        let announced = registry.announced(nqn)?;
        let function = view.functions.get(&number);
        let primary = &view.primary;
        Some(ControllerDetails {
            function: function.map(|_| FunctionName { drive: drive.to_owned(), number }),
            cntlid: number,
            online: function.is_none_or(|function| function.online),
            version: announced.version.to_string(),
            queues: function.map_or(primary.queues, |function| function.queues),
            interrupts: function.map_or(primary.interrupts, |function| function.interrupts),
            io_queues_max: announced.io_queues.into(),
            queue_entries_max: announced.queue_entries.into(),
            transfer_bytes_max: announced.transfer_bytes,
            oacs: announced.oacs,
            oncs: announced.oncs,
            ctratt: announced.ctratt,
            critical_warning,
        })
    };
    let functions = view
        .functions
        .keys()
        .filter_map(|&number| controller(&function_nqn(nqn, ebof_drive::FunctionId(number))?, number));
    controller(nqn, 0).into_iter().chain(functions).collect()
}
