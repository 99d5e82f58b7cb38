//! Every decoder of the wire format: it accepts or refuses any bytes, and what it decoded encodes
//! to the same bytes.

use std::hint::black_box;

use ebof_nvme::connect::{Connect, ConnectData, ConnectResult, Property};
use ebof_nvme::event::AsyncEvent;
use ebof_nvme::feature::{
    Arbitration, AsyncEventConfig, Capabilities, ErrorRecovery, Fid, GetFeature, HostBehaviorSupport, KeepAliveTimer,
    NumberOfQueues, PowerManagement, SetFeature, TemperatureThreshold, Timestamp, VolatileWriteCache, WriteAtomicity,
    WriteProtection,
};
use ebof_nvme::identify::{
    ControllerList, ControllerType, DescriptorWriter, Descriptors, IdentifyController, IdentifyNamespace,
    IndependentNamespace, IoCommandSets, NamespaceList, NvmController, NvmNamespace, Text,
};
use ebof_nvme::io::{BlockRange, Dsm, DsmRange};
use ebof_nvme::log::{
    AnaGroups, ChangedNamespaces, CommandsSupportedAndEffects, DiscoveryEntries, DiscoveryEntry, ErrorInformation,
    FeaturesSupportedAndEffects, FirmwareSlots, Lid, SmartHealth, SupportedLogPages,
};
use ebof_nvme::property::{Cap, Cc, Csts, Version};
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::uri::Uri;
use ebof_nvme::{ControllerId, Cqe, HostId, Nqn, Nsid, Sgl, Sqe, Uuid};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::nvme_drive;

/// Reads a `T` off the front and writes it back.
pub(super) fn read<T: FromBytes + IntoBytes + Immutable + KnownLayout>(input: &[u8]) -> Option<T> {
    let (value, rest) = T::read_from_prefix(input).ok()?;
    assert_eq!(value.as_bytes(), &input[..input.len() - rest.len()]);
    Some(value)
}

/// Commands, completions, SGLs, Fabrics commands, block ranges, feature values, events and
/// registers.
///
/// # Panics
/// Something does not encode to the bytes that it was decoded from.
pub fn nvme_command(input: &[u8]) {
    if let Some(sqe) = read::<Sqe>(input) {
        command(&sqe);
        nvme_drive::command(&sqe);
        for dword in [sqe.cdw10, sqe.cdw11, sqe.cdw12, sqe.cdw13] {
            values(dword.get());
        }
    }
    if let Some(cqe) = read::<Cqe>(input) {
        let status = cqe.status();
        assert!(!status.to_string().is_empty());
        assert_eq!(Cqe::new(cqe.cid(), status).status(), status);
        assert_eq!(cqe.with_result(cqe.result()), cqe);
        black_box((ConnectResult::connected(cqe.result()), ConnectResult::invalid(cqe.result())));
        black_box(NumberOfQueues::decode(cqe.dw0.get()));
    }
    if let Some(data) = read::<ConnectData>(input) {
        black_box(Nqn::from_field(&data.subnqn).map(|nqn| assert_eq!(Nqn::from_field(&nqn.to_field()), Ok(nqn)))).ok();
        black_box(data.host_id().to_string());
    }
    if let Some(range) = read::<DsmRange>(input) {
        black_box(range);
    }
}

fn command(sqe: &Sqe) {
    let location = sqe.data_pointer().decode();
    let sgl = sqe.dptr.decode();
    black_box((location, sqe.fuse(), sqe.fctype(), sqe.nsid().names_one()));
    if !matches!(sgl, Sgl::Unsupported { .. }) {
        assert_eq!(SglDescriptor::encode(sgl).decode(), sgl);
    }
    let connect = Connect::decode(sqe);
    assert_eq!(Connect::decode(&connect.encode()), connect);
    let property = Property::decode(sqe);
    if let Some(bytes) = property.bytes {
        let again = Property::decode(&Property::get(property.offset, bytes));
        assert_eq!((again.bytes, again.offset), (property.bytes, property.offset));
    }
    let range = BlockRange::decode(sqe);
    assert!(range.blocks >= 1 && range.blocks <= 65_536);
    assert_eq!(BlockRange::decode(&range.encode(sqe.opcode, sqe.nsid())), range);
    let dsm = Dsm::decode(sqe);
    assert!(dsm.ranges >= 1 && dsm.ranges <= 256);
    assert_eq!(Dsm::decode(&dsm.encode(sqe.nsid())), dsm);
}

fn values(dword: u32) {
    nvme_drive::values(dword);
    let get = GetFeature::decode(dword);
    assert_eq!(GetFeature::decode(get.encode()), get);
    let set = SetFeature::decode(dword);
    assert_eq!(SetFeature::decode(set.encode()), set);
    let capabilities = Capabilities::decode(dword);
    assert_eq!(Capabilities::decode(capabilities.encode()), capabilities);
    let arbitration = Arbitration::decode(dword);
    assert_eq!(Arbitration::decode(arbitration.encode()), arbitration);
    let power = PowerManagement::decode(dword);
    assert_eq!(PowerManagement::decode(power.encode()), power);
    let threshold = TemperatureThreshold::decode(dword);
    assert_eq!(TemperatureThreshold::decode(threshold.encode()), threshold);
    let recovery = ErrorRecovery::decode(dword);
    assert_eq!(ErrorRecovery::decode(recovery.encode()), recovery);
    let cache = VolatileWriteCache::decode(dword);
    assert_eq!(VolatileWriteCache::decode(cache.encode()), cache);
    let atomicity = WriteAtomicity::decode(dword);
    assert_eq!(WriteAtomicity::decode(atomicity.encode()), atomicity);
    let timer = KeepAliveTimer::decode(dword);
    assert_eq!(KeepAliveTimer::decode(timer.encode()), timer);
    let protection = WriteProtection::decode(dword);
    assert_eq!(WriteProtection::decode(protection.encode()), protection);
    if let Some(queues) = NumberOfQueues::decode(dword) {
        assert_eq!(NumberOfQueues::decode(queues.encode()), Some(queues));
    }
    let event = AsyncEvent::decode(dword);
    assert_eq!(AsyncEvent::decode(event.encode()), event);
    black_box((event.is_enabled_by(AsyncEventConfig(dword)), event.name(), event.config_bits()));
    let cap = Cap(u64::from(dword) << 32 | u64::from(dword));
    let cc = Cc(dword);
    let csts = Csts(dword);
    black_box((cap.mqes(), cap.timeout_ms(), cap.page_min_bytes(), cc.page_shift(), cc.shutdown(), csts.ready()));
    black_box(Version(dword).to_string());
}

/// Namespace Identification Descriptor lists.
///
/// # Panics
/// When a list does not end, or is written back otherwise than it was read.
pub fn nvme_descriptors(input: &[u8]) {
    let all: Vec<_> = Descriptors::new(input).collect();
    assert!(all.len() <= input.len(), "a list is not longer than its bytes");
    let mut page = [0; 4096];
    let mut writer = DescriptorWriter::new(&mut page);
    let good: Vec<_> = all.into_iter().flatten().collect();
    let written = good.iter().take_while(|descriptor| writer.push(descriptor).is_ok()).count();
    let again: Vec<_> = Descriptors::new(&page).collect();
    assert_eq!(again.len(), written);
    assert!(again.iter().zip(&good).all(|(again, good)| again.as_ref() == Ok(good)));
}

/// Identify data structures and lists.
///
/// # Panics
/// Something does not encode to the bytes that it was decoded from.
pub fn nvme_identify(input: &[u8]) {
    nvme_drive::identify(input);
    if let Some(controller) = read::<IdentifyController>(input) {
        for text in [controller.serial_number(), controller.model_number(), controller.firmware_revision()] {
            black_box(text.to_string());
        }
        black_box(controller.subsystem_nqn().to_string());
        for page_bytes in [0, 4096, u64::MAX] {
            black_box(controller.max_transfer_bytes(page_bytes));
        }
        black_box((controller.abort_limit(), controller.async_event_limit(), controller.error_log_entries()));
        black_box((controller.keep_alive_granularity_ms(), controller.version(), controller.namespaces_max()));
        let capsules = (controller.command_capsule_bytes(), controller.response_capsule_bytes());
        black_box((capsules, controller.in_capsule_data_bytes()));
        for state in controller.power_states() {
            black_box(state.max_power_tenth_mw());
        }
        assert_eq!(ControllerType::decode(controller.cntrltype).encode(), controller.cntrltype);
    }
    if let Some(namespace) = read::<IdentifyNamespace>(input) {
        black_box((namespace.format_index(), namespace.lba_formats().len(), namespace.size_bytes()));
        black_box((namespace.format().block_bytes(), namespace.metadata_extended()));
    }
    if let Some(namespace) = read::<NvmNamespace>(input) {
        for index in [0, 1, 63, 64, usize::MAX] {
            black_box((namespace.storage_tag_bits(index), namespace.protection_format(index)));
        }
    }
    if let Some(list) = read::<NamespaceList>(input) {
        assert!(list.iter().count() <= 1024);
        let again: Vec<_> = NamespaceList::after(Nsid(0), list.iter()).iter().collect();
        assert!(again.is_sorted_by(|one, next| one < next) && again.iter().all(|nsid| nsid.names_one()));
        black_box(list.next_after(Nsid(3)));
    }
    if let Some(list) = read::<ControllerList>(input) {
        assert!(list.iter().count() <= 2047);
        black_box(ControllerList::starting_at(ControllerId(1), list.iter()).iter().count());
    }
    if let Some(sets) = read::<IoCommandSets>(input) {
        black_box(sets.combinations().count());
    }
    black_box((read::<IndependentNamespace>(input), read::<NvmController>(input)));
}

/// Log pages other than discovery, and feature data.
///
/// # Panics
/// Something does not encode to the bytes that it was decoded from.
pub fn nvme_logs(input: &[u8]) {
    nvme_drive::logs(input);
    if let Some(entry) = read::<ErrorInformation>(input) {
        black_box((entry.status().to_string(), entry.parameter_error_location()));
    }
    if let Some(health) = read::<SmartHealth>(input) {
        black_box((health.bytes_read(), health.bytes_written(), health.temperature_celsius()));
    }
    if let Some(slots) = read::<FirmwareSlots>(input) {
        for slot in 0..=8 {
            black_box(slots.revision(slot).map(|text| text.to_string()));
        }
        black_box((slots.active_slot(), slots.next_slot()));
    }
    if let Some(effects) = read::<CommandsSupportedAndEffects>(input) {
        for opcode in 0..=u8::MAX {
            for one in [effects.admin(opcode), effects.io(opcode)] {
                black_box((one.submission().encode(), one.relaxations(), one.scope()));
            }
        }
    }
    if let Some(effects) = read::<FeaturesSupportedAndEffects>(input) {
        for fid in 0..=u8::MAX {
            black_box(effects.feature(Fid(fid)));
        }
    }
    if let Some(pages) = read::<SupportedLogPages>(input) {
        assert!(pages.iter().count() <= 256);
        for lid in 0..=u8::MAX {
            black_box(pages.support(Lid(lid)));
        }
    }
    if let Some(changed) = read::<ChangedNamespaces>(input) {
        assert!(changed.iter().count() <= 1024);
        black_box(ChangedNamespaces::new(changed.iter()).is_overflowed());
    }
    if let Some((_, mut groups)) = AnaGroups::new(input) {
        let nsids: usize = groups.by_ref().map(|group| group.nsids.len()).sum();
        assert!(nsids * 4 <= input.len(), "no more namespaces than bytes");
    }
    if let Some(timestamp) = read::<Timestamp>(input) {
        let by_host = timestamp.set_by_host();
        let stopped = timestamp.may_have_stopped();
        let again = Timestamp::new(timestamp.milliseconds()).with_attributes(by_host, stopped);
        assert_eq!((again.milliseconds(), again.set_by_host()), (timestamp.milliseconds(), by_host));
    }
    black_box(read::<HostBehaviorSupport>(input));
}

/// The Discovery log page.
///
/// # Panics
/// When it holds more entries than bytes.
pub fn nvme_discovery(input: &[u8]) {
    let Some((header, entries)) = DiscoveryEntries::new(input) else { return };
    assert!(entries.len() * size_of::<DiscoveryEntry>() + size_of_val(header) <= input.len());
    assert!(u64::try_from(entries.len()).is_ok_and(|count| count <= header.numrec.get()));
    for entry in entries {
        for text in [entry.service_id(), entry.subsystem_nqn(), entry.address()] {
            black_box((text.to_string(), text.as_str()));
        }
        black_box((entry.flags(), entry.security(), entry.rdma_address()));
    }
}

/// Names as text and in fields: NQNs, UUIDs, host identifiers, URIs, padded text.
///
/// # Panics
/// When a name is written otherwise than it was read.
pub fn nvme_names(input: &[u8]) {
    black_box(Text::new(input).to_string());
    if let Some(Ok(nqn)) = input.first_chunk::<256>().map(Nqn::from_field) {
        assert_eq!(Nqn::from_field(&nqn.to_field()), Ok(nqn));
    }
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Ok(nqn) = Nqn::parse(text) {
        assert_eq!(nqn.as_str(), text);
        assert_eq!(Nqn::from_field(&nqn.to_field()), Ok(nqn));
    }
    if let Some(uuid) = Uuid::parse(text) {
        assert_eq!(Uuid::parse(&uuid.to_string()), Some(uuid));
    }
    if let Some(id) = HostId::parse(text) {
        assert_eq!(HostId::parse(&id.to_string()), Some(id));
    }
    if let Ok(uri) = Uri::parse(text) {
        assert_eq!(Uri::parse(&uri.to_string()), Ok(uri));
    }
}
