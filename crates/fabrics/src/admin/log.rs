//! What the Get Log Page command answers, except for the Discovery log page (`discovery`) and the
//! counters of the SMART log, which need a view of all controllers (`registry`).

use alloc::vec::Vec;

use ebof_drive::firmware::Personality;
use ebof_nvme::feature::Fid;
use ebof_nvme::identify::Csi;
use ebof_nvme::log::{
    ChangedNamespaces, CommandEffects, CommandsSupportedAndEffects, CrossControllerResetEntry,
    CrossControllerResetHeader, FeatureEffects, FeaturesSupportedAndEffects, FirmwareSlots, GetLogPage, Lid,
    LidSupport, SmartHealth, Submission, SupportedLogPages, ana_lsp, cross_controller_reset_lsp, endurance_aggregate,
    lsp, scope,
};
use ebof_nvme::opcode::{Direction, FABRICS, admin, nvm};
use ebof_nvme::{Nsid, Sqe, Status};
use zerocopy::IntoBytes;

use crate::admin::drive;
use crate::association::Counts;
use crate::controller::{Controller, Kind};
use crate::model::{Health, Subsystem};
use crate::task::Task;
use crate::task::executing::Executing;
use crate::task::outcome::{Decision, Fault, Outcome, byte};

/// The command that `executing` is.
pub(crate) fn command_of(executing: &Executing) -> GetLogPage {
    GetLogPage::decode(&executing.sqe())
}

/// The part of `page` that was asked for, at most MDTS. What lies behind the end of the page is
/// zeros, as Linux' target has it: the results there are undefined, but a host may insist on all
/// the data that it asked for.
pub(crate) fn part(log: &GetLogPage, mut page: Vec<u8>) -> Result<Vec<u8>, Fault> {
    let Some(start) = usize::try_from(log.offset).ok().filter(|&start| start <= page.len()) else {
        return Err(Fault::field(byte::CDW12));
    };
    page.drain(..start);
    page.resize(usize::try_from(log.bytes).map_err(|_| Fault::field(byte::CDW10))?, 0);
    Ok(page)
}

/// Get Log Page.
pub(crate) fn get_log_page(controller: &mut Controller, sqe: &Sqe) -> Outcome {
    let log = GetLogPage::decode(sqe);
    if !pages(controller).any(|lid| lid == log.lid) {
        return Err(Fault::at(Status::INVALID_LOG_PAGE, byte::CDW10));
    }
    let association = &controller.association;
    if log.bytes > u64::from(association.limits.transfer_bytes) {
        return Err(Fault::field(byte::CDW10 + 2));
    }
    let length = association.admin_sgl().at_least(sqe, Direction::ControllerToHost, log.bytes)?;
    check(controller, sqe.nsid(), &log)?;
    if drive::view_of(controller).is_some() && ebof_drive::keeps_page(log.lid) {
        return Ok(drive::log(controller, &log, sqe.nsid(), length));
    }
    let page = match log.lid {
        Lid::SMART_HEALTH | Lid::DISCOVERY => return Ok(Decision::Go(Task::Shared, length)),
        Lid::SUPPORTED_LOG_PAGES => supported(controller).as_bytes().to_vec(),
        Lid::ERROR_INFORMATION => association.errors.page(association.port.trtype.0),
        Lid::FIRMWARE_SLOTS => firmware(controller).as_bytes().to_vec(),
        Lid::CHANGED_NAMESPACES => {
            let list = ChangedNamespaces::new(controller.changed.iter().copied());
            list.as_bytes().to_vec()
        }
        Lid::CHANGED_ALLOCATED_NAMESPACES => {
            ChangedNamespaces::new(controller.changed_allocated.iter().copied()).as_bytes().to_vec()
        }
        Lid::ANA => controller.ana.page(log.lsp & ana_lsp::GROUPS_ONLY != 0),
        Lid::CROSS_CONTROLLER_RESET => controller.resets.page(),
        Lid::ENDURANCE_GROUP_AGGREGATE => endurance_aggregate(controller.group_event.then_some(1)),
        Lid::RESERVATION_NOTIFICATION => controller.reservations.page().as_bytes().to_vec(),
        Lid::COMMAND_EFFECTS => {
            let mut effects = command_effects(drive::view_of(controller).map(|drive| &drive.personality));
            if controller.subsystem().is_some_and(|subsystem| subsystem.has_functions()) {
                let supported = CommandEffects::CSUPP.with_scope(scope::SUBSYSTEM);
                effects.set_admin(admin::VIRTUALIZATION_MANAGEMENT, supported);
            }
            // Deviation: nvme-cli 2.x asks for the zoned commands, too, of every controller that
            // has command sets to choose from, and shows nothing when that is refused: of other
            // sets than NVM no I/O command is supported.
            if log.csi != Csi::NVM {
                effects.iocs.fill(0.into());
            }
            if controller.association.is_memory_based() {
                memory_effects(&mut effects);
            }
            effects.as_bytes().to_vec()
        }
        Lid::FEATURE_EFFECTS => {
            let mut effects = feature_effects(&controller.kind);
            if controller.association.is_memory_based() {
                let own = crate::admin::feature::OF_MEMORY;
                own.iter().for_each(|&fid| effects.set(fid, FeatureEffects::FSUPP.with_scope(scope::CONTROLLER)));
            }
            effects.as_bytes().to_vec()
        }
        _ => return Err(Fault::at(Status::INVALID_LOG_PAGE, byte::CDW10)),
    };
    let answer = Decision::Go(Task::Reply(part(&log, page)?), length);
    if log.lid == Lid::CROSS_CONTROLLER_RESET && log.lsp & cross_controller_reset_lsp::REMOVE_COMPLETED != 0 {
        controller.resets.remove_completed(|at| returns_entry(&log, at));
    }
    if !log.retain_event {
        if log.lid == Lid::RESERVATION_NOTIFICATION {
            controller.take_reservation_notice();
            return Ok(answer);
        }
        match log.lid {
            Lid::CHANGED_NAMESPACES => controller.changed.clear(),
            Lid::CHANGED_ALLOCATED_NAMESPACES => controller.changed_allocated.clear(),
            _ => {}
        }
        controller.events.log_read(log.lid);
    }
    Ok(answer)
}

/// Checks of NSID, offset and index that are the same for all log pages.
fn check(controller: &Controller, nsid: Nsid, log: &GetLogPage) -> Result<(), Fault> {
    // A drive keeps health for each namespace; no other page is (LPA).
    let of_namespaces = log.lid == Lid::SMART_HEALTH && drive::view_of(controller).is_some();
    if nsid != Nsid::NONE && nsid != Nsid::ALL && !of_namespaces {
        let highest = controller.subsystem().map_or(Nsid::NONE, |subsystem| subsystem.nsid_max());
        let status = if nsid > highest { Status::INVALID_NAMESPACE } else { Status::INVALID_FIELD };
        return Err(Fault::at(status, byte::NSID));
    }
    // OT: no log page has an index.
    if log.index_offset {
        return Err(Fault::field(byte::CDW14 + 2));
    }
    if !log.offset.is_multiple_of(4) {
        return Err(Fault::field(byte::CDW12));
    }
    Ok(())
}

/// Whether a Get Log Page returns the whole of an entry of the Cross-Controller Reset log.
fn returns_entry(log: &GetLogPage, at: usize) -> bool {
    let entry = size_of::<CrossControllerResetEntry>();
    let start = (size_of::<CrossControllerResetHeader>() + at * entry) as u64;
    log.offset <= start && start + entry as u64 <= log.offset.saturating_add(log.bytes)
}

/// The log pages of a controller; of a drive, those that its firmware has.
fn pages(controller: &Controller) -> impl Iterator<Item = Lid> + '_ {
    let personality = match &controller.kind {
        Kind::Io(subsystem) => subsystem.drive.as_ref().map(|drive| &drive.personality),
        Kind::Discovery(_) => None,
    };
    let offered = move |lid: &Lid| personality.is_none_or(|personality| ebof_drive::is_offered(personality, *lid));
    let is_message_based = !controller.association.is_memory_based();
    let is_there = move |lid: &Lid| is_message_based || *lid != Lid::CROSS_CONTROLLER_RESET;
    all_pages(&controller.kind).iter().copied().filter(offered).filter(is_there)
}

fn all_pages(kind: &Kind) -> &'static [Lid] {
    match kind {
        Kind::Io(subsystem) if subsystem.drive.is_some() => &[
            Lid::SUPPORTED_LOG_PAGES,
            Lid::ERROR_INFORMATION,
            Lid::SMART_HEALTH,
            Lid::FIRMWARE_SLOTS,
            Lid::CHANGED_NAMESPACES,
            Lid::COMMAND_EFFECTS,
            Lid::ANA,
            Lid::FEATURE_EFFECTS,
            Lid::DEVICE_SELF_TEST,
            Lid::TELEMETRY_HOST,
            Lid::TELEMETRY_CONTROLLER,
            Lid::ENDURANCE_GROUP,
            Lid::PERSISTENT_EVENT,
            Lid::ENDURANCE_GROUP_AGGREGATE,
            Lid::CHANGED_ALLOCATED_NAMESPACES,
            Lid::CROSS_CONTROLLER_RESET,
            Lid::RESERVATION_NOTIFICATION,
            Lid::SANITIZE_STATUS,
        ],
        Kind::Io(_) => &[
            Lid::SUPPORTED_LOG_PAGES,
            Lid::ERROR_INFORMATION,
            Lid::SMART_HEALTH,
            Lid::FIRMWARE_SLOTS,
            Lid::CHANGED_NAMESPACES,
            Lid::COMMAND_EFFECTS,
            Lid::ANA,
            Lid::FEATURE_EFFECTS,
            Lid::CROSS_CONTROLLER_RESET,
        ],
        Kind::Discovery(_) => &[Lid::SUPPORTED_LOG_PAGES, Lid::FEATURE_EFFECTS, Lid::DISCOVERY],
    }
}

fn supported(controller: &Controller) -> SupportedLogPages {
    let mut log = SupportedLogPages::default();
    for lid in pages(controller) {
        let lidsp = match lid {
            Lid::DISCOVERY => u16::from(lsp::PORT_LOCAL),
            // The header alone can be had, with the context that it establishes.
            Lid::PERSISTENT_EVENT => 1,
            _ => 0,
        };
        log.set(lid, LidSupport::with_parameter(lidsp));
    }
    log
}

fn firmware(controller: &Controller) -> FirmwareSlots {
    let mut log = FirmwareSlots::default();
    if let Some(subsystem) = controller.subsystem() {
        log.set_slots(1, 0);
        log.set_revision(1, &subsystem.firmware);
    }
    log
}

/// Commands Supported and Effects: the admin and I/O commands of an I/O controller.
fn command_effects(drive: Option<&Personality>) -> CommandsSupportedAndEffects {
    let mut log = CommandsSupportedAndEffects::default();
    let supported = CommandEffects::CSUPP;
    let of_controller = supported.with_scope(scope::CONTROLLER);
    for opcode in [
        admin::GET_LOG_PAGE,
        admin::IDENTIFY,
        admin::ABORT,
        admin::GET_FEATURES,
        admin::ASYNC_EVENT_REQUEST,
        admin::KEEP_ALIVE,
        FABRICS,
    ] {
        log.set_admin(opcode, of_controller);
    }
    // It ends another controller.
    log.set_admin(admin::CROSS_CONTROLLER_RESET, supported.with_scope(scope::SUBSYSTEM));
    // Namespace Write Protection Config changes what a namespace can do.
    log.set_admin(admin::SET_FEATURES, of_controller.with(CommandEffects::NCC));
    if let Some(personality) = drive {
        // A namespace that is created or deleted changes the inventory; so does one that is
        // attached.
        let inventory = supported.with(CommandEffects::NIC).with_scope(scope::SUBSYSTEM);
        log.set_admin(admin::NAMESPACE_MANAGEMENT, inventory);
        log.set_admin(admin::NAMESPACE_ATTACHMENT, inventory);
        log.set_admin(admin::FIRMWARE_DOWNLOAD, supported.with_scope(scope::SUBSYSTEM));
        log.set_admin(admin::FIRMWARE_COMMIT, supported.with(CommandEffects::CCC).with_scope(scope::SUBSYSTEM));
        // A host lets its commands to the namespace end first, and looks at it again afterwards.
        let format = supported.with(CommandEffects::LBCC).with(CommandEffects::NCC).with_scope(scope::NAMESPACE);
        let sanitize = supported.with(CommandEffects::LBCC).with_scope(scope::SUBSYSTEM);
        for (on, opcode, effects) in [
            (true, admin::GET_LBA_STATUS, supported.with_scope(scope::NAMESPACE)),
            (personality.device_self_test, admin::DEVICE_SELF_TEST, supported.with_scope(scope::SUBSYSTEM)),
            (personality.format, admin::FORMAT_NVM, format.with_submission(Submission::AloneInNamespace)),
            (personality.sanitize, admin::SANITIZE, sanitize.with_submission(Submission::Alone)),
        ] {
            if on {
                log.set_admin(opcode, effects);
            }
        }
    }
    // Deviation: Linux (6.12) takes every bit of an I/O command besides CSUPP and LBCC, the scope
    // too, for an unusual effect and warns. No scope is as legal as one.
    for opcode in [nvm::FLUSH, nvm::READ, nvm::COMPARE, nvm::VERIFY, FABRICS] {
        log.set_io(opcode, supported);
    }
    if drive.is_some() {
        // Reservations change what others may do, which the host of the command need not look at
        // again.
        for opcode in
            [nvm::RESERVATION_REGISTER, nvm::RESERVATION_REPORT, nvm::RESERVATION_ACQUIRE, nvm::RESERVATION_RELEASE]
        {
            log.set_io(opcode, supported);
        }
    }
    for opcode in [nvm::WRITE, nvm::WRITE_ZEROES, nvm::DATASET_MANAGEMENT, nvm::COPY] {
        log.set_io(opcode, supported.with(CommandEffects::LBCC));
    }
    if drive.is_some_and(|personality| personality.write_uncorrectable) {
        log.set_io(nvm::WRITE_UNCORRECTABLE, supported.with(CommandEffects::LBCC));
    }
    log
}

/// The commands that only controllers with queues in the host's memory have, in place of Fabrics
/// commands.
fn memory_effects(log: &mut CommandsSupportedAndEffects) {
    let of_controller = CommandEffects::CSUPP.with_scope(scope::CONTROLLER);
    for opcode in [
        admin::CREATE_IO_CQ,
        admin::CREATE_IO_SQ,
        admin::DELETE_IO_CQ,
        admin::DELETE_IO_SQ,
        admin::DOORBELL_BUFFER_CONFIG,
    ] {
        log.set_admin(opcode, of_controller);
    }
    for opcode in [FABRICS, admin::CROSS_CONTROLLER_RESET] {
        log.set_admin(opcode, CommandEffects::default());
    }
    log.set_io(FABRICS, CommandEffects::default());
}

/// Feature Identifiers Supported and Effects.
fn feature_effects(kind: &Kind) -> FeaturesSupportedAndEffects {
    let mut log = FeaturesSupportedAndEffects::default();
    for &fid in crate::admin::feature::identifiers(kind) {
        let effects = match fid {
            Fid::ERROR_RECOVERY | Fid::RESERVATION_NOTIFICATION_MASK | Fid::RESERVATION_PERSISTENCE => {
                FeatureEffects::FSUPP.with_scope(scope::NAMESPACE)
            }
            Fid::WRITE_PROTECTION => FeatureEffects::FSUPP.with(FeatureEffects::NCC).with_scope(scope::NAMESPACE),
            _ => FeatureEffects::FSUPP.with_scope(scope::CONTROLLER),
        };
        log.set(fid, effects);
    }
    log
}

/// SMART / Health Information of a subsystem: what its drive says, and what its controllers have
/// counted.
pub(crate) fn smart(subsystem: &Subsystem, counts: Counts, errors: u64, warnings: u8) -> Vec<u8> {
    let Health {
        temperature_kelvin,
        available_spare,
        available_spare_threshold,
        percentage_used,
        power_cycles,
        power_on_hours,
        unsafe_shutdowns,
        read_only: _,
        degraded: _,
    } = subsystem.health;
    let mut log = SmartHealth {
        cw: warnings,
        avsp: available_spare,
        avspt: available_spare_threshold,
        pused: percentage_used,
        ..SmartHealth::default()
    };
    log.ctemp.set(temperature_kelvin);
    log.dur.set(SmartHealth::data_units(counts.read_bytes.into()));
    log.duw.set(SmartHealth::data_units(counts.write_bytes.into()));
    log.hrc.set(counts.read_commands.into());
    log.hwc.set(counts.write_commands.into());
    log.pwrc.set(power_cycles.into());
    log.poh.set(power_on_hours.into());
    log.upl.set(unsafe_shutdowns.into());
    log.mdie.set(counts.media_errors.into());
    log.neile.set(errors.into());
    log.as_bytes().to_vec()
}
