//! Every decoder of what only drives have: management, reservations, media, firmware, copies, and
//! their log pages.

use std::hint::black_box;

use ebof_nvme::copy::{Copy, CopyFormat, CopySource};
use ebof_nvme::feature::{
    EnduranceGroupEvents, LbaStatusAttributes, NonOperationalPower, ReservationMask, ReservationPersistence,
    SanitizeConfig, ThermalManagement,
};
use ebof_nvme::firmware::{Commit, Download};
use ebof_nvme::identify::{ControllerList, EnduranceGroupList, IdentifyNamespace, NamespaceGranularityList};
use ebof_nvme::lba_status::{GetLbaStatus, read_status_list};
use ebof_nvme::log::persistent_event::{ControllerResetInformation, FirmwareCommitEvent, SetFeatureEvent};
use ebof_nvme::log::{
    EnduranceGroupInformation, EventKind, GetLogPage, PersistentEvents, ReservationNotification, SanitizeLog,
    SelfTestLog, TelemetryHeader, push_event, read_endurance_aggregate,
};
use ebof_nvme::media::{Format, Sanitize, SelfTest};
use ebof_nvme::namespace::{AttachmentSelect, NamespaceManagement, NewNamespace};
use ebof_nvme::protection::{Guard16, Guard32, Guard64, Tags};
use ebof_nvme::reservation::{Acquire, AcquireKeys, Register, RegisterKeys, Release, ReleaseKey, Report, read_report};
use ebof_nvme::security::Security;
use ebof_nvme::virtualization::{PrimaryCapabilities, SecondaryControllerList, VirtualizationManagement};
use ebof_nvme::{ControllerId, Sqe};

use super::nvme::read;

/// A command, as each of those that drives have.
pub(super) fn command(sqe: &Sqe) {
    let nsid = sqe.nsid();
    macro_rules! comes_back {
        ($($type:ty),* $(,)?) => {
            $({
                let command = <$type>::decode(sqe);
                assert_eq!(<$type>::decode(&command.encode(nsid)), command);
            })*
        };
    }
    comes_back!(
        NamespaceManagement,
        AttachmentSelect,
        Register,
        Acquire,
        Release,
        Report,
        Format,
        SelfTest,
        GetLbaStatus,
        GetLogPage,
        Copy,
    );
    let sanitize = Sanitize::decode(sqe);
    assert_eq!(Sanitize::decode(&sanitize.encode()), sanitize);
    assert!((1..=16).contains(&sanitize.overwrite_passes));
    let virtualization = VirtualizationManagement::decode(sqe);
    assert_eq!(VirtualizationManagement::decode(&virtualization.encode()), virtualization);
    let download = Download::decode(sqe);
    let commit = Commit::decode(sqe);
    assert_eq!((Download::decode(&download.encode()), Commit::decode(&commit.encode())), (download, commit));
    let security = Security::decode(sqe);
    assert_eq!(Security::decode(&security.encode(sqe.opcode, nsid)), security);
    let tags = Tags::decode(sqe);
    assert_eq!(Tags::decode(&tags.encode(Sqe::new(sqe.opcode))), tags);
    assert!(tags.storage_and_reference >> 80 == 0);
}

/// A dword, as each of the features that drives have.
pub(super) fn values(dword: u32) {
    macro_rules! comes_back {
        ($($type:ty),* $(,)?) => {
            $({
                let value = <$type>::decode(dword);
                assert_eq!(<$type>::decode(value.encode()), value);
            })*
        };
    }
    comes_back!(
        ThermalManagement,
        NonOperationalPower,
        LbaStatusAttributes,
        SanitizeConfig,
        EnduranceGroupEvents,
        ReservationMask,
        ReservationPersistence,
    );
}

/// Identify data structures, and the data of commands.
pub(super) fn identify(input: &[u8]) {
    if let Some(namespace) = read::<IdentifyNamespace>(input) {
        black_box((namespace.protection(), namespace.format_percent_left()));
    }
    if let Some(new) = read::<NewNamespace>(input) {
        let mut again = new.clone();
        again.set_format(new.format_index(), new.metadata_extended());
        assert_eq!((again.format_index(), again.flbas), (new.format_index(), new.flbas & 0x7f));
        black_box(new.is_thin());
    }
    if let Some(list) = read::<ControllerList>(input)
        && let Ok(legal) = list.legal().map(Iterator::collect::<Vec<ControllerId>>)
    {
        let again = ControllerList::starting_at(ControllerId(0), legal.iter().copied());
        assert_eq!(again.iter().collect::<Vec<_>>(), legal);
    }
    if let Some(list) = read::<EnduranceGroupList>(input) {
        assert!(EnduranceGroupList::starting_at(1, list.iter()).iter().count() <= 2047);
    }
    if let Some(list) = read::<SecondaryControllerList>(input) {
        let again = SecondaryControllerList::new(list.used().iter().copied());
        assert_eq!(again.used(), list.used());
    }
    black_box(read::<PrimaryCapabilities>(input));
    if let Some(list) = read::<NamespaceGranularityList>(input) {
        for index in [0, 15, 16, usize::MAX] {
            black_box(list.of_format(index));
        }
    }
    black_box((read::<RegisterKeys>(input), read::<AcquireKeys>(input), read::<ReleaseKey>(input)));
    black_box((read::<Guard16>(input), read::<Guard32>(input), read::<Guard64>(input)));
    for df in 0..4 {
        let Some(format) = CopyFormat::decode(df) else { continue };
        let sources = CopySource::decode_all(format, input);
        let mut written = Vec::new();
        sources.iter().for_each(|source| source.encode(format, &mut written));
        assert_eq!(CopySource::decode_all(format, &written), sources);
    }
}

/// Log pages.
pub(super) fn logs(input: &[u8]) {
    if let Some((header, events)) = PersistentEvents::new(input) {
        black_box((header.supported().count(), header.subsystem_nqn().to_string(), header.milliseconds()));
        let mut written = Vec::new();
        for event in events {
            assert!(event.data.len() + event.vendor.len() <= input.len());
            push_event(&mut written, event.header.kind(), ControllerId(1), event.header.milliseconds(), event.data);
            black_box(event.header.kind().name());
        }
        assert!(written.len() <= input.len() * 2);
    }
    if let Some(log) = read::<SelfTestLog>(input) {
        black_box((log.current(), log.results().filter_map(|entry| entry.failing_status()).count()));
    }
    if let Some(log) = read::<SanitizeLog>(input) {
        assert!(log.percent().is_none_or(|percent| percent <= 100));
        black_box((log.state().name(), log.passes(), log.global_data_erased()));
    }
    if let Some(header) = read::<TelemetryHeader>(input) {
        for area in 0..=u8::MAX {
            black_box(header.bytes_up_to(area));
        }
    }
    for extended in [false, true] {
        if let Some((status, registrants)) = read_report(input, extended) {
            assert!(registrants.len() <= usize::from(status.regstrnt.get()));
        }
    }
    if let Some((header, descriptors)) = read_status_list(input) {
        assert!(descriptors.len() * 16 <= input.len());
        black_box(header.condition());
    }
    black_box(read_endurance_aggregate(input).map(|groups| assert!(groups.len() * 2 <= input.len())));
    black_box(read::<ReservationNotification>(input).and_then(|page| page.kind()));
    black_box((read::<EnduranceGroupInformation>(input), read::<ControllerResetInformation>(input)));
    black_box(read::<FirmwareCommitEvent>(input).map(|event| (event.status(), event.old_revision().to_string())));
    black_box(read::<SetFeatureEvent>(input).map(|event| (event.command_dwords(), event.data_bytes())));
    black_box(input.first().map(|&kind| EventKind(kind).name()));
}
