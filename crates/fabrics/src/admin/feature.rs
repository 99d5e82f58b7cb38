//! Get Features and Set Features. Nothing is saveable: every controller begins with the defaults.

use alloc::boxed::Box;
use core::sync::atomic::Ordering;

use ebof_drive::Request;
use ebof_drive::reservation::NotificationMask;
use ebof_nvme::feature::{
    Arbitration, AsyncEventConfig, Capabilities, EnduranceGroupEvents, ErrorRecovery, Fid, GetFeature,
    HostBehaviorSupport, KeepAliveTimer, NumberOfQueues, PowerManagement, ReservationPersistence, SanitizeConfig,
    Select, SetFeature, TemperatureThreshold, ThresholdType, VolatileWriteCache, WriteAtomicity, WriteProtection,
};
use ebof_nvme::log::endurance_warning;
use ebof_nvme::opcode::Direction;
use ebof_nvme::{HostId, Nsid, Sqe, Status};
use zerocopy::{FromBytes, IntoBytes};

use crate::admin::{drive, identify, memory};
use crate::association::Association;
use crate::controller::{Controller, Features, Kind};
use crate::task::executing::Executing;
use crate::task::outcome::{Decision, Fault, Outcome, byte};
use crate::task::{DriveTask, Task};

/// The features of a controller.
pub(crate) fn identifiers(kind: &Kind) -> &'static [Fid] {
    match kind {
        Kind::Io(subsystem) if subsystem.drive.is_some() => &[
            Fid::ARBITRATION,
            Fid::POWER_MANAGEMENT,
            Fid::TEMPERATURE_THRESHOLD,
            Fid::ERROR_RECOVERY,
            Fid::VOLATILE_WRITE_CACHE,
            Fid::NUMBER_OF_QUEUES,
            Fid::WRITE_ATOMICITY,
            Fid::ASYNC_EVENT_CONFIG,
            Fid::KEEP_ALIVE_TIMER,
            Fid::HOST_BEHAVIOR_SUPPORT,
            Fid::SANITIZE_CONFIG,
            Fid::IO_COMMAND_SET_PROFILE,
            Fid::ENDURANCE_GROUP_EVENT,
            Fid::HOST_IDENTIFIER,
            Fid::RESERVATION_NOTIFICATION_MASK,
            Fid::RESERVATION_PERSISTENCE,
            Fid::WRITE_PROTECTION,
        ],
        Kind::Io(_) => &[
            Fid::ARBITRATION,
            Fid::POWER_MANAGEMENT,
            Fid::TEMPERATURE_THRESHOLD,
            Fid::ERROR_RECOVERY,
            Fid::VOLATILE_WRITE_CACHE,
            Fid::NUMBER_OF_QUEUES,
            Fid::WRITE_ATOMICITY,
            Fid::ASYNC_EVENT_CONFIG,
            Fid::KEEP_ALIVE_TIMER,
            Fid::HOST_BEHAVIOR_SUPPORT,
            Fid::IO_COMMAND_SET_PROFILE,
            Fid::HOST_IDENTIFIER,
            Fid::WRITE_PROTECTION,
        ],
        Kind::Discovery(_) => &[Fid::ASYNC_EVENT_CONFIG, Fid::KEEP_ALIVE_TIMER],
    }
}

fn is_namespace_specific(fid: Fid) -> bool {
    matches!(
        fid,
        Fid::ERROR_RECOVERY | Fid::WRITE_PROTECTION | Fid::RESERVATION_NOTIFICATION_MASK | Fid::RESERVATION_PERSISTENCE
    )
}

fn capabilities(fid: Fid, association: &Association) -> Capabilities {
    Capabilities {
        saveable: false,
        namespace_specific: is_namespace_specific(fid),
        changeable: fid != Fid::HOST_IDENTIFIER || association.is_memory_based(),
    }
}

/// The features that only controllers with queues in the host's memory have: those of interrupts.
pub(crate) const OF_MEMORY: &[Fid] = &[Fid::INTERRUPT_COALESCING, Fid::INTERRUPT_VECTOR];

fn has(controller: &Controller, fid: Fid) -> bool {
    identifiers(&controller.kind).contains(&fid) || controller.association.is_memory_based() && OF_MEMORY.contains(&fid)
}

/// Get Features.
pub(crate) fn get(controller: &Controller, sqe: &Sqe) -> Outcome {
    let GetFeature { fid, select } = GetFeature::decode(sqe.cdw10.get());
    if !has(controller, fid) {
        return Err(Fault::field(byte::CDW10));
    }
    let default = match select {
        Select::Current => false,
        // Nothing is ever saved, so the saved value is the default.
        Select::Default | Select::Saved => true,
        Select::Supported => return Ok(Decision::Done(capabilities(fid, &controller.association).encode().into())),
        Select::Reserved(_) => return Err(Fault::field(byte::CDW10 + 1)),
    };
    match fid {
        Fid::HOST_IDENTIFIER => host_identifier(controller, sqe),
        Fid::HOST_BEHAVIOR_SUPPORT => {
            let blank = HostBehaviorSupport::default();
            let value = if default { &blank } else { &*controller.features.behavior };
            reply(controller, sqe, value.as_bytes())
        }
        // Deviation: the feature was of the whole controller in early revisions, and drivers over
        // PCIe (SPDK) still ask for it without a namespace.
        Fid::ERROR_RECOVERY if sqe.nsid() == Nsid::NONE => {
            let time_limit_100ms = if default { 0 } else { controller.features.recovery_of_all };
            Ok(Decision::Done(ErrorRecovery { time_limit_100ms, deallocated_error: false }.encode().into()))
        }
        fid if is_namespace_specific(fid) => of_namespace(controller, fid, sqe.nsid(), default),
        Fid::TEMPERATURE_THRESHOLD => temperature_threshold(controller, sqe.cdw11.get(), default),
        Fid::ENDURANCE_GROUP_EVENT => {
            let EnduranceGroupEvents { group, .. } = group_events(sqe.cdw11.get())?;
            let warnings = if default { 0 } else { controller.features.group_warnings };
            Ok(Decision::Done(EnduranceGroupEvents { group, warnings }.encode().into()))
        }
        Fid::INTERRUPT_VECTOR => interrupt_vector(controller, sqe, default),
        _ if default => Ok(Decision::Done(default_value(controller, fid).into())),
        _ => Ok(Decision::Done(current_value(controller, fid).into())),
    }
}

fn reply(controller: &Controller, sqe: &Sqe, value: &[u8]) -> Outcome {
    let rules = controller.association.admin_sgl();
    let length = rules.at_least(sqe, Direction::ControllerToHost, value.len() as u64)?;
    Ok(Decision::Go(Task::Reply(value.to_vec()), length))
}

/// Interrupt Vector Configuration of the vector that the command names.
fn interrupt_vector(controller: &Controller, sqe: &Sqe, default: bool) -> Outcome {
    let vector = vector(controller, sqe.cdw11.get())?;
    let disabled = !default && controller.features.uncoalesced.contains(&vector);
    Ok(Decision::Done(u64::from(vector) | u64::from(disabled) << 16))
}

fn vector(controller: &Controller, cdw11: u32) -> Result<u16, Fault> {
    let [a, b, ..] = cdw11.to_le_bytes();
    let vector = u16::from_le_bytes([a, b]);
    if vector < memory::vectors(controller) { Ok(vector) } else { Err(Fault::field(byte::CDW11)) }
}

/// Bytes of the Host Identifier that the command is about (EXHID).
fn host_id_bytes(association: &Association, sqe: &Sqe) -> Result<usize, Fault> {
    match sqe.cdw11.get() & 1 {
        1 => Ok(size_of::<HostId>()),
        _ if association.is_memory_based() => Ok(8),
        // Over fabrics, only the 128-bit identifier.
        _ => Err(Fault::field(byte::CDW11)),
    }
}

fn host_identifier(controller: &Controller, sqe: &Sqe) -> Outcome {
    let association = &controller.association;
    let bytes = host_id_bytes(association, sqe)?;
    reply(controller, sqe, &association.host_id().0[..bytes])
}

/// Goes on with Set Features of the Host Identifier of a host that is attached directly, whose data
/// has come.
fn set_host_id(controller: &mut Controller, executing: &Executing, data: &[u8]) -> Outcome {
    let bytes = host_id_bytes(&controller.association, &executing.sqe())?;
    let mut host_id = HostId::default();
    let data = data.get(..bytes).ok_or(Fault::new(Status::INVALID_FIELD))?;
    host_id.0[..bytes].copy_from_slice(data);
    let known = controller.association.host_id();
    // What it has registered and reserved is that host's until the controller is reset.
    if known != HostId::default() && known != host_id {
        return Err(Fault::new(Status::COMMAND_SEQUENCE_ERROR));
    }
    controller.features.new_host_id = Some(host_id);
    // Who else it is, and what that leaves to it, the registry knows.
    Ok(Decision::Go(Task::Shared, 0))
}

fn of_namespace(controller: &Controller, fid: Fid, nsid: Nsid, default: bool) -> Outcome {
    let subsystem = controller.subsystem().expect("a discovery controller has none of these features");
    let namespace = identify::named(subsystem, nsid)?.ok_or(Fault::field(byte::NSID))?;
    let value = match fid {
        _ if default => 0,
        Fid::ERROR_RECOVERY => {
            let time_limit_100ms = controller.features.recovery.get(&nsid).copied().unwrap_or(0);
            ErrorRecovery { time_limit_100ms, deallocated_error: false }.encode()
        }
        Fid::RESERVATION_NOTIFICATION_MASK => controller.features.reservation_mask(nsid).0,
        Fid::RESERVATION_PERSISTENCE => {
            let reservations = namespace.provision.as_ref().and_then(|provision| provision.reservations.as_ref());
            u32::from(reservations.is_some_and(|reservations| reservations.is_persistent()))
        }
        _ if namespace.is_protected() => WriteProtection::Protected.encode(),
        _ => WriteProtection::None.encode(),
    };
    Ok(Decision::Done(value.into()))
}

fn temperature_threshold(controller: &Controller, cdw11: u32, default: bool) -> Outcome {
    let wanted = TemperatureThreshold::decode(cdw11);
    // There is only the composite temperature.
    if wanted.sensor != 0 {
        return Err(Fault::field(byte::CDW11 + 2));
    }
    let features = &controller.features;
    let kelvin = match wanted.threshold {
        ThresholdType::Over if default => Features::new(&controller.kind).over_kelvin,
        ThresholdType::Over => features.over_kelvin,
        ThresholdType::Under if default => 0,
        ThresholdType::Under => features.under_kelvin,
        ThresholdType::Reserved(_) => return Err(Fault::field(byte::CDW11 + 2)),
    };
    Ok(Decision::Done(kelvin.into()))
}

fn default_value(controller: &Controller, fid: Fid) -> u32 {
    let fresh = Features::new(&controller.kind);
    match fid {
        Fid::VOLATILE_WRITE_CACHE => VolatileWriteCache { enabled: has_cache(controller) }.encode(),
        Fid::NUMBER_OF_QUEUES => {
            let queues = controller.association.max_io_queues();
            NumberOfQueues { submission: queues, completion: queues }.encode()
        }
        Fid::ASYNC_EVENT_CONFIG => fresh.events.0,
        _ => 0,
    }
}

fn current_value(controller: &Controller, fid: Fid) -> u32 {
    let association = &controller.association;
    let features = &controller.features;
    match fid {
        Fid::ARBITRATION => features.arbitration.encode(),
        Fid::POWER_MANAGEMENT => features.power.encode(),
        Fid::VOLATILE_WRITE_CACHE => {
            let on = association.write_cache.load(Ordering::Relaxed);
            VolatileWriteCache { enabled: on && has_cache(controller) }.encode()
        }
        Fid::NUMBER_OF_QUEUES => {
            let [submission, completion] = [&association.granted_queues, &association.granted_completion_queues]
                .map(|granted| u16::try_from(granted.load(Ordering::Relaxed)).unwrap_or(u16::MAX));
            NumberOfQueues { submission, completion }.encode()
        }
        Fid::WRITE_ATOMICITY => features.atomicity.encode(),
        Fid::INTERRUPT_COALESCING => features.coalescing,
        Fid::SANITIZE_CONFIG => {
            SanitizeConfig { warn: drive::view_of(controller).is_some_and(|drive| drive.no_deallocate_warns) }.encode()
        }
        Fid::ASYNC_EVENT_CONFIG => features.events.0,
        Fid::KEEP_ALIVE_TIMER => {
            KeepAliveTimer { timeout_ms: association.keep_alive_ms.load(Ordering::Relaxed) }.encode()
        }
        _ => 0,
    }
}

fn has_cache(controller: &Controller) -> bool {
    controller.subsystem().is_some_and(identify::has_cache)
}

/// Set Features.
pub(crate) fn set(controller: &mut Controller, sqe: &Sqe) -> Outcome {
    let SetFeature { fid, save } = SetFeature::decode(sqe.cdw10.get());
    if !has(controller, fid) {
        return Err(Fault::field(byte::CDW10));
    }
    if save {
        return Err(Fault::at(Status::FEATURE_NOT_SAVEABLE, byte::CDW10 + 3));
    }
    check_namespace(controller, fid, sqe.nsid())?;
    let value = sqe.cdw11.get();
    match fid {
        Fid::NUMBER_OF_QUEUES => return set_number_of_queues(controller, value),
        // The timers, and who else uses the namespace, are the registry's.
        Fid::KEEP_ALIVE_TIMER => return Ok(Decision::Go(Task::Shared, 0)),
        Fid::WRITE_PROTECTION => {
            return match WriteProtection::decode(value) {
                wanted @ (WriteProtection::None | WriteProtection::Protected) => {
                    let protect = Request::Protect(sqe.nsid(), wanted == WriteProtection::Protected);
                    let task = match drive::view_of(controller) {
                        Some(_) => Task::Drive(Box::new(DriveTask::new(protect))),
                        None => Task::Shared,
                    };
                    Ok(Decision::Go(task, 0))
                }
                // NWPC announces no other state.
                _ => Err(Fault::field(byte::CDW11)),
            };
        }
        Fid::RESERVATION_PERSISTENCE => {
            if value & !1 != 0 {
                return Err(Fault::field(byte::CDW11));
            }
            let request = Request::Persist(sqe.nsid(), ReservationPersistence::decode(value).persist);
            return Ok(Decision::Go(Task::Drive(Box::new(DriveTask::new(request))), 0));
        }
        Fid::SANITIZE_CONFIG => {
            if value & !1 != 0 {
                return Err(Fault::field(byte::CDW11));
            }
            let request = Request::SanitizeConfig(SanitizeConfig::decode(value).warn);
            return Ok(Decision::Go(Task::Drive(Box::new(DriveTask::new(request))), 0));
        }
        Fid::HOST_BEHAVIOR_SUPPORT => {
            let bytes = size_of::<HostBehaviorSupport>() as u64;
            let length = controller.association.admin_sgl().at_least(sqe, Direction::HostToController, bytes)?;
            return Ok(Decision::Go(Task::Receive, length));
        }
        Fid::HOST_IDENTIFIER if controller.association.is_memory_based() => {
            let bytes = host_id_bytes(&controller.association, sqe)?;
            let rules = controller.association.admin_sgl();
            let length = rules.at_least(sqe, Direction::HostToController, bytes as u64)?;
            return Ok(Decision::Go(Task::Receive, length));
        }
        // Fabrics: the host said who it is in Connect.
        Fid::HOST_IDENTIFIER => return Err(Fault::new(Status::COMMAND_SEQUENCE_ERROR)),
        _ => set_value(controller, fid, sqe.nsid(), value)?,
    }
    Ok(Decision::Done(0))
}

fn check_namespace(controller: &Controller, fid: Fid, nsid: Nsid) -> Result<(), Fault> {
    let highest = controller.subsystem().map_or(Nsid::NONE, |subsystem| subsystem.nsid_max());
    if is_namespace_specific(fid) {
        // The whole subsystem at once: not for write protection.
        if nsid == Nsid::ALL && fid != Fid::WRITE_PROTECTION || nsid == Nsid::NONE && fid == Fid::ERROR_RECOVERY {
            return Ok(());
        }
        let named = controller.subsystem().map_or(Ok(None), |subsystem| identify::named(subsystem, nsid))?;
        return named.map(|_| ()).ok_or(Fault::field(byte::NSID));
    }
    if nsid == Nsid::NONE || nsid == Nsid::ALL {
        Ok(())
    } else if nsid > highest {
        Err(Fault::at(Status::INVALID_NAMESPACE, byte::NSID))
    } else {
        Err(Fault::at(Status::FEATURE_NOT_NAMESPACE_SPECIFIC, byte::NSID))
    }
}

fn set_number_of_queues(controller: &Controller, value: u32) -> Outcome {
    let wanted = NumberOfQueues::decode(value).ok_or(Fault::field(byte::CDW11))?;
    let association = &controller.association;
    if association.io_queues.load(Ordering::Relaxed) > 0 || !controller.rings.is_empty() {
        return Err(Fault::new(Status::COMMAND_SEQUENCE_ERROR));
    }
    let most = association.max_io_queues();
    let granted = if association.is_memory_based() {
        NumberOfQueues { submission: wanted.submission.min(most), completion: wanted.completion.min(most) }
    } else {
        // Over fabrics every queue is a pair.
        let queues = wanted.submission.min(wanted.completion).min(most);
        NumberOfQueues { submission: queues, completion: queues }
    };
    association.grant_queues(granted);
    Ok(Decision::Done(granted.encode().into()))
}

fn set_value(controller: &mut Controller, fid: Fid, nsid: Nsid, value: u32) -> Result<(), Fault> {
    let has_cache = has_cache(controller);
    if fid == Fid::INTERRUPT_VECTOR {
        let vector = vector(controller, value)?;
        let uncoalesced = &mut controller.features.uncoalesced;
        // CD. Nothing is coalesced; what the host said is what it reads.
        if value & 1 << 16 != 0 {
            uncoalesced.insert(vector)
        } else {
            uncoalesced.remove(&vector)
        };
        return Ok(());
    }
    let features = &mut controller.features;
    match fid {
        Fid::INTERRUPT_COALESCING => features.coalescing = value & 0xffff,
        Fid::ARBITRATION => features.arbitration = Arbitration::decode(value),
        Fid::POWER_MANAGEMENT => {
            let power = PowerManagement::decode(value);
            // There is one power state.
            if power.power_state != 0 {
                return Err(Fault::field(byte::CDW11));
            }
            features.power = power;
        }
        Fid::TEMPERATURE_THRESHOLD => {
            let wanted = TemperatureThreshold::decode(value);
            if wanted.sensor != 0 && wanted.sensor != TemperatureThreshold::ALL_SENSORS {
                return Err(Fault::field(byte::CDW11 + 2));
            }
            match wanted.threshold {
                ThresholdType::Over => features.over_kelvin = wanted.kelvin,
                ThresholdType::Under => features.under_kelvin = wanted.kelvin,
                ThresholdType::Reserved(_) => return Err(Fault::field(byte::CDW11 + 2)),
            }
            controller.check_health();
        }
        Fid::ERROR_RECOVERY => set_error_recovery(controller, nsid, value)?,
        Fid::RESERVATION_NOTIFICATION_MASK => set_reservation_mask(controller, nsid, value)?,
        Fid::VOLATILE_WRITE_CACHE => {
            if !has_cache {
                return Err(Fault::field(byte::CDW10));
            }
            let on = VolatileWriteCache::decode(value).enabled;
            controller.association.write_cache.store(on, Ordering::Relaxed);
        }
        Fid::WRITE_ATOMICITY => features.atomicity = WriteAtomicity::decode(value),
        // IOCSCI: CNS 1Ch names one combination.
        Fid::IO_COMMAND_SET_PROFILE if value & 0x1ff != 0 => {
            return Err(Fault::at(Status::COMMAND_SET_COMBINATION_REJECTED, byte::CDW11));
        }
        Fid::IO_COMMAND_SET_PROFILE => {}
        Fid::ENDURANCE_GROUP_EVENT => {
            let wanted = group_events(value)?;
            if wanted.warnings & !GROUP_WARNINGS != 0 {
                return Err(Fault::field(byte::CDW11 + 2));
            }
            features.group_warnings = wanted.warnings;
            // What is the case already is news to who has just asked.
            controller.tell_of_group(controller.critical_warnings());
        }
        _ => {
            if value & !event_bits(&controller.kind).0 != 0 {
                return Err(Fault::field(byte::CDW11));
            }
            features.events = AsyncEventConfig(value);
        }
    }
    Ok(())
}

/// Events of every drive.
const MANAGED_EVENTS: AsyncEventConfig = AsyncEventConfig::FIRMWARE_ACTIVATION
    .with(AsyncEventConfig::ALLOCATED_NAMESPACE_ATTRIBUTE)
    .with(AsyncEventConfig::ENDURANCE_GROUP);

/// Warnings that an endurance group can have (EGCW).
const GROUP_WARNINGS: u8 = endurance_warning::SPARE | endurance_warning::DEGRADED | endurance_warning::READ_ONLY;

/// Endurance Group Event Configuration, of the one group that there is.
fn group_events(dword: u32) -> Result<EnduranceGroupEvents, Fault> {
    let events = EnduranceGroupEvents::decode(dword);
    if events.group == 1 { Ok(events) } else { Err(Fault::field(byte::CDW11)) }
}

/// The events that a host may switch on.
fn event_bits(kind: &Kind) -> AsyncEventConfig {
    match kind {
        Kind::Io(subsystem) => AsyncEventConfig::NAMESPACE_ATTRIBUTE
            .with(AsyncEventConfig::ANA_CHANGE)
            .with(AsyncEventConfig::CROSS_CONTROLLER_RESET)
            .with(AsyncEventConfig::SPARE)
            .with(AsyncEventConfig::TEMPERATURE)
            .with(AsyncEventConfig::DEGRADED)
            .with(AsyncEventConfig::READ_ONLY)
            .with(AsyncEventConfig::VOLATILE_BACKUP)
            .with(AsyncEventConfig::PERSISTENT_MEMORY)
            .with(match &subsystem.drive {
                Some(drive) if drive.personality.telemetry => MANAGED_EVENTS.with(AsyncEventConfig::TELEMETRY_LOG),
                Some(_) => MANAGED_EVENTS,
                None => AsyncEventConfig::default(),
            }),
        Kind::Discovery(_) => AsyncEventConfig::DISCOVERY_LOG,
    }
}

fn set_error_recovery(controller: &mut Controller, nsid: Nsid, value: u32) -> Result<(), Fault> {
    let wanted = ErrorRecovery::decode(value);
    // DULBE: NSFEAT announces no such errors.
    if wanted.deallocated_error {
        return Err(Fault::field(byte::CDW11 + 2));
    }
    let Kind::Io(subsystem) = &controller.kind else {
        unreachable!("a discovery controller does not have the feature")
    };
    let recovery = &mut controller.features.recovery;
    let chosen = subsystem.namespaces.iter().map(|namespace| namespace.nsid);
    // Namespaces that are gone are forgotten at the next opportunity.
    recovery.retain(|&kept, _| subsystem.namespaces.find(kept).is_some());
    let of_all = nsid == Nsid::ALL || nsid == Nsid::NONE;
    recovery.extend(chosen.filter(|&at| of_all || nsid == at).map(|at| (at, wanted.time_limit_100ms)));
    if of_all {
        controller.features.recovery_of_all = wanted.time_limit_100ms;
    }
    Ok(())
}

fn set_reservation_mask(controller: &mut Controller, nsid: Nsid, value: u32) -> Result<(), Fault> {
    let mask = NotificationMask::decode(value).ok_or(Fault::field(byte::CDW11))?;
    let Kind::Io(subsystem) = &controller.kind else {
        unreachable!("a discovery controller does not have the feature")
    };
    let chosen = subsystem.namespaces.iter().map(|namespace| namespace.nsid);
    let masks = &mut controller.features.masks;
    masks.retain(|&kept, _| subsystem.namespaces.find(kept).is_some());
    masks.extend(chosen.filter(|&at| nsid == Nsid::ALL || nsid == at).map(|at| (at, mask)));
    Ok(())
}

/// Goes on with Set Features of Host Behavior Support or the Host Identifier, whose data has come.
pub(crate) fn set_data(controller: &mut Controller, executing: &Executing, data: &[u8]) -> Outcome {
    if SetFeature::decode(executing.cdw10()).fid == Fid::HOST_IDENTIFIER {
        return set_host_id(controller, executing, data);
    }
    let Ok(wanted) = HostBehaviorSupport::read_from_bytes(data) else {
        return Err(Fault::new(Status::DATA_SGL_LENGTH_INVALID));
    };
    let switches = [wanted.acre, wanted.etdas, wanted.lbafee, wanted.hdisns];
    if switches.iter().any(|&switch| switch > 1) {
        return Err(Fault::new(Status::INVALID_FIELD));
    }
    controller.association.copy_formats.store(wanted.cdfe.get(), Ordering::Relaxed);
    controller.association.retry_delays.store(wanted.acre == 1, Ordering::Relaxed);
    // Reserved bytes are ignored and read back as zeros.
    *controller.features.behavior = HostBehaviorSupport { rsvd6: [0; 506], ..wanted };
    Ok(Decision::Done(0))
}
