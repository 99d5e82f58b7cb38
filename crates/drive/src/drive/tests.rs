//! A drive as a host that manages it sees it.

use alloc::string::ToString;
use alloc::vec;

use super::*;
use crate::change::Identity;
use crate::logs::health::{TEMPERATURE_KELVIN, Thresholds};
use crate::namespace::NewNamespace;

use ebof_nvme::event::AsyncEvent;
use ebof_nvme::firmware::CommitAction;
use ebof_nvme::log::{ErrorInformation, FirmwareSlots, SmartHealth};
use ebof_nvme::{Cid, ControllerId, HostId, Nqn, QueueId};
use proptest::prelude::*;
use zerocopy::FromBytes;

mod by_box;
mod functions;
mod hostile;
mod rig;
mod sanitized;

const GIB: u64 = 1 << 30;

struct Bench {
    drive: Drive,
    journal: Vec<Vec<u8>>,
    turn: u8,
}

fn host(name: &str) -> Nqn {
    Nqn::parse(&alloc::format!("nqn.2014-08.org.example:{name}")).unwrap()
}

fn origin(name: &str, cntlid: u16) -> Origin {
    Origin::host(ControllerId(cntlid), host(name), HostId([u8::try_from(cntlid).unwrap(); 16]))
}

impl Bench {
    fn new(settings: Settings) -> Self {
        let identity = Identity { serial: "S1".to_string(), model: "ebof".to_string(), uuid: [7; 16] };
        let capacity = Capacity { total_bytes: 100 * GIB, extent_bytes: 256 << 10 };
        let mut bench = Self { drive: Drive::new(State::default(), settings, capacity), journal: Vec::new(), turn: 0 };
        bench.keep(Change::Made { identity });
        bench.ask("a", 0, Request::AssignCntlid).unwrap();
        bench.ask("b", 1, Request::AssignCntlid).unwrap();
        bench
    }

    fn keep(&mut self, change: Change) {
        self.journal.push(change.to_bytes());
        self.drive.apply(change);
    }

    #[expect(clippy::needless_pass_by_value, reason = "requests are made where they are asked")]
    fn ask(&mut self, name: &str, cntlid: u16, request: Request) -> Result<Decision, Status> {
        self.turn += 1;
        let input = DecisionInput { unix_ms: self.turn.into(), uptime_ms: 0, entropy: [self.turn; 32] };
        let decision = self.drive.decide(&request, &origin(name, cntlid), &input);
        let decision = decision.map_err(|refusal| refusal.status)?;
        decision.changes.iter().cloned().for_each(|change| self.keep(change));
        Ok(decision)
    }

    fn create(&mut self, blocks: u64, shared: bool) -> Result<Nsid, Status> {
        let wanted = NewNamespace { blocks, capacity_blocks: blocks, format: 0, shared, ..NewNamespace::default() };
        match self.ask("a", 0, Request::Create(wanted))?.answer {
            Answer::Done(nsid) => Ok(Nsid(nsid.try_into().unwrap())),
            other => panic!("an NSID is expected: {other:?}"),
        }
    }

    fn refused(&mut self, request: Request) -> Status {
        self.ask("a", 0, request).unwrap_err()
    }
}

#[test]
fn a_namespace_is_created_attached_detached_and_deleted() {
    let mut bench = Bench::new(Settings::default());
    let wanted = NewNamespace { blocks: 0x10_0000, capacity_blocks: 0x10_0000, format: 1, ..NewNamespace::default() };
    let decision = bench.ask("a", 0, Request::Create(wanted)).unwrap();
    assert_eq!(decision.answer, Answer::Done(1));
    let volume = VolumeId(0);
    let block_format = crate::BlockFormat::plain(12);
    let effect = Effect::Create { volume, blocks: 0x10_0000, capacity_blocks: 0x10_0000, block_format };
    assert_eq!(decision.before, [effect]);
    assert_eq!(bench.drive.unallocated_bytes(), 100 * GIB - 4 * GIB);
    assert!(!bench.drive.state().namespaces[&1].is_attached(host("a").as_str()));
    bench.ask("a", 0, Request::Attach(Nsid(1), vec![ControllerId(0)])).unwrap();
    assert!(bench.drive.state().namespaces[&1].is_attached(host("a").as_str()));
    assert!(!bench.drive.state().namespaces[&1].is_attached(host("b").as_str()));
    assert_eq!(
        bench.refused(Request::Attach(Nsid(1), vec![ControllerId(0)])),
        Status::NAMESPACE_ALREADY_ATTACHED.dnr()
    );
    assert_eq!(bench.refused(Request::Attach(Nsid(1), vec![ControllerId(1)])), Status::NAMESPACE_IS_PRIVATE.dnr());
    bench.ask("a", 0, Request::Detach(Nsid(1), vec![ControllerId(0)])).unwrap();
    assert_eq!(bench.refused(Request::Detach(Nsid(1), vec![ControllerId(0)])), Status::NAMESPACE_NOT_ATTACHED.dnr());
    let decision = bench.ask("a", 0, Request::Delete(Nsid(1))).unwrap();
    assert_eq!(decision.after, [Effect::Remove(volume)]);
    assert_eq!(bench.drive.unallocated_bytes(), 100 * GIB);
    // The NSID is reused, the volume id is not.
    assert_eq!(bench.create(8, false), Ok(Nsid(1)));
    assert_eq!(bench.drive.state().namespaces[&1].volume, VolumeId(1));
}

#[test]
fn a_format_with_metadata_is_refused_if_capacity_is_insufficient() {
    let formatted = |settings: Settings, gib: u64, index: u8| {
        let mut bench = Bench::new(settings);
        let nsid = bench.create(gib * GIB / 512, true).unwrap();
        bench.ask("a", 0, Request::Attach(nsid, vec![ControllerId(0)])).unwrap();
        let format = ebof_nvme::media::Format { metadata_extended: true, ..ebof_nvme::media::Format::new(index) };
        bench.ask("a", 0, Request::Format(nsid, format)).unwrap();
        let shape = bench.drive.state().namespaces[&nsid.0].shape;
        assert_eq!(shape.blocks, shape.capacity_blocks);
        (shape.blocks, bench.drive.unallocated_bytes())
    };
    // Room enough: as many bytes of data as before, in more extents.
    let (blocks, free) = formatted(Settings::default(), 50, 2);
    assert_eq!(blocks, 50 * GIB / 512);
    assert!(free < 50 * GIB && free > 48 * GIB);
    // All of the drive: as many blocks as its extents of 256 KiB hold, 496 or 63 each.
    assert_eq!(formatted(Settings::default(), 100, 2), (100 * GIB / (256 << 10) * 496, 0));
    assert_eq!(formatted(Settings::default(), 100, 3), (100 * GIB / (256 << 10) * 63, 0));
    assert_eq!(formatted(Settings::default(), 100, 1), (100 * GIB / 4096, 0));
    // Unless overcommit is allowed.
    let (blocks, _) = formatted(Settings { overcommit: true, ..Settings::default() }, 100, 2);
    assert_eq!(blocks, 100 * GIB / 512);
}

/// A format changes neither that a namespace has less capacity than blocks, nor that it has some.
#[test]
fn a_thin_namespace_that_is_formatted_stays_thin() {
    let formatted = |blocks: u64, capacity_blocks: u64| {
        let mut bench = Bench::new(Settings::default());
        let wanted = NewNamespace { blocks, capacity_blocks, shared: true, ..NewNamespace::default() };
        bench.ask("a", 0, Request::Create(wanted)).unwrap();
        bench.ask("a", 0, Request::Attach(Nsid(1), vec![ControllerId(0)])).unwrap();
        bench.ask("a", 0, Request::Format(Nsid(1), ebof_nvme::media::Format::new(1)))?;
        let shape = bench.drive.state().namespaces[&1].shape;
        Ok((shape.blocks, shape.capacity_blocks))
    };
    assert_eq!(formatted(64, 16), Ok((8, 2)));
    assert_eq!(formatted(64, 64), Ok((8, 8)));
    for (blocks, capacity_blocks) in [(64, 4), (4, 4)] {
        assert_eq!(formatted(blocks, capacity_blocks), Err(Status::INVALID_FORMAT.dnr()));
    }
}

/// A self-test ends when its namespaces are formatted.
#[test]
fn a_format_ends_a_self_test() {
    let mut bench = Bench::new(Settings::default());
    let nsid = bench.create(64, true).unwrap();
    bench.ask("a", 0, Request::Attach(nsid, vec![ControllerId(0)])).unwrap();
    bench.ask("a", 0, Request::SelfTest(ebof_nvme::log::SelfTestCode::EXTENDED, nsid)).unwrap();
    assert!(bench.drive.state().self_test.step().is_some());
    bench.ask("a", 0, Request::Format(nsid, ebof_nvme::media::Format::new(1))).unwrap();
    assert_eq!(bench.drive.state().self_test.step(), None);
}

#[test]
fn invalid_requests_are_refused_with_the_status_of_the_specification() {
    let mut bench = Bench::new(Settings::default());
    let of = |blocks, capacity_blocks, format| {
        Request::Create(NewNamespace { blocks, capacity_blocks, format, shared: true, ..NewNamespace::default() })
    };
    for (request, status) in [
        (of(0, 0, 0), Status::INVALID_FIELD),
        (of(8, 0, 0), Status::INVALID_FIELD),
        (of(8, 9, 0), Status::INVALID_FIELD),
        (of(8, 8, 2), Status::INVALID_FORMAT),
        (of(8, 8, 4), Status::INVALID_FORMAT),
        (of(u64::MAX, u64::MAX, 0), Status::NAMESPACE_INSUFFICIENT_CAPACITY),
        (of(1 << 54, 1 << 54, 0), Status::NAMESPACE_INSUFFICIENT_CAPACITY),
        (of(100 * GIB / 512 + 1, 100 * GIB / 512 + 1, 0), Status::NAMESPACE_INSUFFICIENT_CAPACITY),
        (Request::Delete(Nsid(5)), Status::INVALID_NAMESPACE),
        (Request::Attach(Nsid(5), vec![ControllerId(0)]), Status::INVALID_NAMESPACE),
        (Request::Detach(Nsid(0), vec![ControllerId(0)]), Status::INVALID_NAMESPACE),
    ] {
        assert_eq!(bench.refused(request.clone()), status.dnr(), "{request:?}");
    }
    let nsid = bench.create(100 * GIB / 512, true).unwrap();
    for controllers in [vec![], vec![ControllerId(0), ControllerId(9)]] {
        let status = Status::CONTROLLER_LIST_INVALID.dnr();
        assert_eq!(bench.refused(Request::Attach(nsid, controllers)), status);
    }
    assert_eq!(bench.create(1, true), Err(Status::NAMESPACE_INSUFFICIENT_CAPACITY.dnr()));
    assert_eq!(bench.refused(Request::Protect(nsid, true)), Status::INVALID_NAMESPACE.dnr(), "it is not attached");
    bench.ask("a", 0, Request::AssignCntlid).unwrap();
    bench.ask("a", 0, Request::Attach(nsid, vec![ControllerId(0)])).unwrap();
    bench.ask("a", 0, Request::Protect(nsid, true)).unwrap();
    assert_eq!(bench.refused(Request::Delete(nsid)), Status::NAMESPACE_WRITE_PROTECTED.dnr());
    assert_eq!(bench.refused(Request::Delete(Nsid::ALL)), Status::NAMESPACE_WRITE_PROTECTED.dnr());
}

#[test]
fn insufficient_capacity_reports_the_bytes_needed() {
    let mut bench = Bench::new(Settings::default());
    let wanted = NewNamespace { blocks: 1 << 30, capacity_blocks: 1 << 30, format: 0, ..NewNamespace::default() };
    let refusal = bench.drive.decide(&Request::Create(wanted), &origin("a", 0), &DecisionInput::default()).unwrap_err();
    assert_eq!(refusal.information, 512 * GIB);
}

#[test]
fn only_managers_manage_and_hosts_have_a_quota() {
    let managers = Managers::Only([host("a").to_string()].into());
    let quotas = [(host("a").to_string(), GIB)].into();
    let mut bench = Bench::new(Settings { managers, quotas, ..Settings::default() });
    let wanted = NewNamespace { blocks: 8, capacity_blocks: 8, format: 0, shared: true, ..NewNamespace::default() };
    let nsid = bench.create(GIB / 512 / 2, true).unwrap();
    for request in [
        Request::Create(wanted),
        Request::Delete(nsid),
        Request::Attach(nsid, vec![ControllerId(1)]),
        Request::Detach(nsid, vec![ControllerId(1)]),
    ] {
        assert_eq!(bench.ask("b", 1, request).unwrap_err(), Status::OPERATION_DENIED.dnr());
    }
    assert_eq!(bench.create(GIB / 512, true), Err(Status::NAMESPACE_INSUFFICIENT_CAPACITY.dnr()));
    assert_eq!(bench.create(GIB / 512 / 2, true), Ok(Nsid(2)));
}

#[test]
fn the_profile_limits_namespaces_and_overcommit() {
    let mut bench = Bench::new(Settings { overcommit: true, ..Settings::default() });
    for nsid in 1..=128 {
        assert_eq!(bench.create(100 * GIB / 512, false), Ok(Nsid(nsid)));
    }
    assert_eq!(bench.create(1, false), Err(Status::NAMESPACE_ID_UNAVAILABLE.dnr()));
    bench.ask("a", 0, Request::Delete(Nsid(77))).unwrap();
    assert_eq!(bench.create(1, false), Ok(Nsid(77)));
}

#[test]
fn exclusive_namespaces_have_one_host_and_those_for_everyone_all_until_one_is_detached() {
    let mut bench = Bench::new(Settings { exclusive: true, ..Settings::default() });
    let nsid = bench.create(8, true).unwrap();
    bench.ask("a", 0, Request::Attach(nsid, vec![ControllerId(0)])).unwrap();
    assert_eq!(bench.refused(Request::Attach(nsid, vec![ControllerId(1)])), Status::NAMESPACE_IS_PRIVATE.dnr());
    let mut bench = Bench::new(Settings { attach_everyone: true, ..Settings::default() });
    let nsid = bench.create(8, true).unwrap();
    let attached = |bench: &Bench, name: &str| bench.drive.state().namespaces[&nsid.0].is_attached(host(name).as_str());
    assert!(attached(&bench, "a") && attached(&bench, "unknown"));
    bench.ask("a", 0, Request::Detach(nsid, vec![ControllerId(1)])).unwrap();
    assert!(attached(&bench, "a") && !attached(&bench, "b"));
}

#[test]
fn a_reconnecting_host_gets_its_controller_id_again() {
    let bench = Bench::new(Settings::default());
    let view = bench.drive.view();
    let assignment = |name: &str, used: &[u16]| {
        view.cntlid_for(host(name).as_str(), 0, 0xffef, |cntlid| used.contains(&cntlid.0)).unwrap().0
    };
    assert_eq!((assignment("a", &[]), assignment("b", &[]), assignment("c", &[])), (0, 1, 2));
    assert_eq!((assignment("a", &[0]), assignment("b", &[0, 2])), (2, 1));
    assert_eq!(view.cntlid_for(host("c").as_str(), 0, 1, |_| false), Some(ControllerId(0)));
    assert_eq!(view.cntlid_for(host("c").as_str(), 0, 1, |_| true), None);
}

#[test]
fn identifiers_of_namespaces_differ_and_are_well_formed() {
    let mut bench = Bench::new(Settings::default());
    bench.create(8, false).unwrap();
    bench.create(8, false).unwrap();
    let [first, second] = [1, 2].map(|nsid| bench.drive.state().namespaces[&nsid].clone());
    assert!(first.uuid != second.uuid && first.nguid != second.nguid && first.eui64 != second.eui64);
    assert_eq!((first.uuid[6] >> 4, first.uuid[8] >> 6, first.eui64[0] & 3), (4, 2, 2));
}

fn any_request() -> impl Strategy<Value = Request> {
    let nsid = prop_oneof![(0..6_u32).prop_map(Nsid), Just(Nsid::ALL)];
    let controllers = proptest::collection::vec((0..3_u16).prop_map(ControllerId), 0..3);
    prop_oneof![
        (0..1_u64 << 29, any::<bool>(), 0..3_u8).prop_map(|(blocks, shared, format)| Request::Create(NewNamespace {
            blocks,
            capacity_blocks: blocks - blocks / 3,
            format,
            shared,
            ..NewNamespace::default()
        })),
        nsid.clone().prop_map(Request::Delete),
        (nsid.clone(), controllers.clone()).prop_map(|(nsid, list)| Request::Attach(nsid, list)),
        (nsid.clone(), controllers).prop_map(|(nsid, list)| Request::Detach(nsid, list)),
        (nsid, any::<bool>()).prop_map(|(nsid, on)| Request::Protect(nsid, on)),
        Just(Request::AssignCntlid),
    ]
}

proptest! {
    #[test]
    fn replaying_the_journal_gives_the_same_state_after_any_requests(
        requests in proptest::collection::vec((any_request(), 0..3_u16), 0..60),
        cut in 0..60_usize,
    ) {
        let mut bench = Bench::new(Settings::default());
        let mut checkpoint = (Vec::new(), 0);
        for (at, (request, cntlid)) in requests.into_iter().enumerate() {
            let name = ["a", "b", "c"][usize::from(cntlid)];
            let _ = bench.ask(name, cntlid, request);
            if at == cut {
                checkpoint = (bench.drive.state().to_bytes(), bench.journal.len());
            }
            let claimed: u64 = bench.drive.state().namespaces.values().map(|namespace| bench.drive.claim(namespace)).sum();
            prop_assert!(claimed + bench.drive.unallocated_bytes() == 100 * GIB);
            for namespace in bench.drive.state().namespaces.values() {
                prop_assert!(namespace.shared || namespace.hosts.len() <= 1);
            }
        }
        let (bytes, from) = checkpoint;
        prop_assert_eq!(&State::restore(&bytes, &bench.journal[from..]).unwrap(), bench.drive.state());
        prop_assert_eq!(&State::restore(&[], &bench.journal).unwrap(), bench.drive.state());
    }
}

#[test]
fn changes_of_a_later_version_are_refused() {
    let error = State::restore(b"", &[br#"{"made-of-cheese":{}}"#.to_vec()]).unwrap_err();
    assert!(error.to_string().contains("later version"), "{error}");
    assert!(State::restore(b"{", &[]).is_err());
    // Fields that an earlier version did not write have defaults.
    assert_eq!(State::restore(b"{}", &[]).unwrap(), State::default());
}

fn log(lid: Lid, nsid: Nsid) -> Request {
    Request::Log(LogQuery {
        retain: false,
        lid,
        parameter: 0,
        identifier: 1,
        nsid,
        offset: 0,
        bytes: 4096,
        thresholds: Thresholds::DEFAULT,
        transport: 3,
    })
}

fn page(bench: &mut Bench, request: Request) -> Vec<u8> {
    match bench.ask("a", 0, request).unwrap().answer {
        Answer::Data(page) | Answer::Part(page) => page,
        other => panic!("a page is expected: {other:?}"),
    }
}

#[test]
fn health_and_errors_survive_a_kill() {
    let mut bench = Bench::new(Settings { error_entries: 64, ..Settings::default() });
    let nsid = bench.create(8, false).unwrap();
    bench.ask("a", 0, Request::Attach(nsid, vec![ControllerId(0)])).unwrap();
    let input = DecisionInput { unix_ms: 1000, ..DecisionInput::default() };
    for change in bench.drive.opened(&origin("a", 0), &input) {
        bench.keep(change);
    }
    let usage = crate::logs::health::Usage { bytes_written: 512_000, write_commands: 3, ..Default::default() };
    let activity = crate::logs::health::Activity {
        elapsed_ms: 3_600_000,
        namespaces: vec![(nsid, usage)],
        kelvin: TEMPERATURE_KELVIN,
        ..Default::default()
    };
    let error = crate::logs::error_log::Error {
        queue: QueueId(1),
        cid: Cid(7),
        status: Status::UNRECOVERED_READ_ERROR,
        location: None,
        nsid,
        lba: 5,
        opcode: 2,
        information: 0,
    };
    assert_eq!(bench.drive.record_errors(0, &[error]), crate::logs::error_log::Urgency::AtOnce);
    let condition = bench.drive.condition();
    let turned = bench.drive.advance(&activity, condition, false, &origin("a", 0), &input);
    // The drive has captured telemetry.
    assert_eq!(turned.events, [AsyncEvent::TELEMETRY_LOG_CHANGED]);
    turned.changes.into_iter().for_each(|change| bench.keep(change));
    // Killed, and opened again.
    let state = State::restore(&[], &bench.journal).unwrap();
    bench.drive = Drive::new(state, bench.drive.settings().clone(), bench.drive.capacity());
    for change in bench.drive.opened(&origin("a", 0), &input) {
        bench.keep(change);
    }
    for of in [Nsid::NONE, nsid] {
        let smart = page(&mut bench, log(Lid::SMART_HEALTH, of));
        let smart = SmartHealth::ref_from_bytes(&smart).unwrap();
        assert_eq!((smart.hwc.get(), smart.duw.get(), smart.poh.get()), (3, 1, 1));
        assert_eq!((smart.pwrc.get(), smart.upl.get(), smart.cw), (2, 1, 0));
        assert!(smart.neile.get() >= 1);
    }
    let errors = page(&mut bench, log(Lid::ERROR_INFORMATION, Nsid::NONE));
    let errors = <[ErrorInformation]>::ref_from_bytes(&errors).unwrap();
    assert_eq!((errors.len(), errors[0].cid.get(), errors[0].lba.get(), errors[1].ec.get()), (64, 7, 5, 0));
    assert_eq!(bench.refused(log(Lid::SMART_HEALTH, Nsid(9))), Status::INVALID_NAMESPACE.dnr());
    assert_eq!(bench.refused(log(Lid::ANA, Nsid(0))), Status::INVALID_LOG_PAGE.dnr());
}

#[test]
fn the_event_log_is_read_through_a_context() {
    let mut bench = Bench::new(Settings { subsystem: "nqn.2014-08.org.example:d".into(), ..Settings::default() });
    bench.create(8, false).unwrap();
    let read = |parameter, offset| match log(Lid::PERSISTENT_EVENT, Nsid::NONE) {
        Request::Log(query) => Request::Log(LogQuery { parameter, offset, ..query }),
        other => other,
    };
    assert_eq!(bench.refused(read(0, 0)), Status::COMMAND_SEQUENCE_ERROR.dnr());
    let whole = page(&mut bench, read(1, 0));
    assert!(whole.len() > 512 && whole[0] == 0x0d);
    assert_eq!(page(&mut bench, read(0, 512)), whole[512..]);
    assert_eq!(page(&mut bench, read(2, 0)), [0_u8; 0]);
    assert_eq!(bench.refused(read(0, 0)), Status::COMMAND_SEQUENCE_ERROR.dnr());
}

#[test]
fn firmware_is_downloaded_committed_and_activated_at_a_reset() {
    let mut bench = Bench::new(Settings { revision: "1.0".into(), ..Settings::default() });
    let image = crate::maintenance::firmware::Image {
        product: "ebof-drive".into(),
        revision: "2.0".into(),
        personality: crate::maintenance::firmware::Personality { model_suffix: "-X".into(), ..Default::default() },
    };
    let mut bytes = image.encode().unwrap();
    bytes.resize(bytes.len().next_multiple_of(4096), 0);
    bench.ask("a", 0, Request::Download(0, bytes)).unwrap();
    let commit = Commit { action: CommitAction::ReplaceAndActivate, slot: 2, boot_partition: 0 };
    bench.ask("a", 0, Request::Commit(commit)).unwrap();
    let revision = |bench: &Bench| bench.drive.view().revision.clone();
    assert_eq!(revision(&bench), "1.0");
    bench.ask("a", 0, Request::Reset).unwrap();
    assert_eq!(revision(&bench), "2.0");
    assert_eq!(bench.drive.view().model, "ebof-X");
    let slots = page(&mut bench, log(Lid::FIRMWARE_SLOTS, Nsid::NONE));
    assert_eq!(FirmwareSlots::ref_from_bytes(&slots).unwrap().active_slot(), 2);
    assert_eq!(bench.refused(Request::Commit(commit)), Status::INVALID_FIRMWARE_IMAGE.dnr());
}

/// Deleting a namespace that is being erased does not affect the next one with its NSID.
#[test]
fn a_created_namespace_is_not_marked_as_being_erased() {
    let mut bench = Bench::new(Settings::default());
    let nsid = bench.create(8, true).unwrap();
    bench.ask("a", 0, Request::Attach(nsid, vec![ControllerId(0)])).unwrap();
    let format = Request::Format(
        nsid,
        ebof_nvme::media::Format { erase: ebof_nvme::media::SecureErase::UserData, ..ebof_nvme::media::Format::new(0) },
    );
    let erased = bench.ask("a", 0, format.clone()).unwrap().erased;
    bench.drive.set_erasing(&erased, Some(100));
    assert_eq!(bench.refused(format.clone()), Status::FORMAT_IN_PROGRESS);
    assert_eq!(bench.drive.view().erasing, [(1, 100)].into());
    bench.ask("a", 0, Request::Delete(nsid)).unwrap();
    assert_eq!(bench.create(8, true).unwrap(), nsid);
    assert!(bench.drive.view().erasing.is_empty());
    bench.ask("a", 0, Request::Attach(nsid, vec![ControllerId(0)])).unwrap();
    let second = bench.ask("a", 0, format).unwrap().erased;
    bench.drive.set_erasing(&second, Some(100));
    // The end of the first erasure is not that of the second.
    bench.drive.set_erasing(&erased, None);
    assert_eq!(bench.drive.view().erasing, [(1, 100)].into());
    bench.drive.set_erasing(&second, None);
    assert!(bench.drive.view().erasing.is_empty());
}

/// If the journal could not be written after hosts wrote, Global Data Erased is not reported.
#[test]
fn the_record_of_writes_by_hosts_is_repeated_until_it_is_durable() {
    let mut bench = Bench::new(Settings::default());
    let usage = crate::logs::health::Usage { bytes_written: 512, ..Default::default() };
    let wrote = crate::logs::health::Activity { namespaces: vec![(Nsid(1), usage)], ..Default::default() };
    let advance = |bench: &mut Bench, activity: &crate::logs::health::Activity| {
        let condition = bench.drive.condition();
        let turned = bench.drive.advance(activity, condition, false, &origin("a", 0), &DecisionInput::default());
        turned.changes.into_iter().find(|change| matches!(change, Change::Sanitized { .. }))
    };
    let idle = crate::logs::health::Activity::default();
    assert_eq!(advance(&mut bench, &idle), None);
    let usage = crate::logs::health::Usage { bytes_read: 512, ..Default::default() };
    let read = crate::logs::health::Activity { namespaces: vec![(Nsid(1), usage)], ..Default::default() };
    assert_eq!(advance(&mut bench, &read), None, "reading is no writing");
    // Not applied: it could not be recorded.
    assert!(advance(&mut bench, &wrote).is_some());
    let change = advance(&mut bench, &idle).expect("it is forgotten that hosts have written");
    bench.keep(change);
    assert!(!bench.drive.state().sanitize.is_erased());
    assert_eq!(advance(&mut bench, &wrote), None);
}

/// Writes before a sanitize operation do not count as writes after it.
#[test]
fn a_sanitized_drive_has_no_data_of_hosts() {
    let mut bench = Bench::new(Settings::default());
    let usage = crate::logs::health::Usage { bytes_written: 512, ..Default::default() };
    let wrote = crate::logs::health::Activity { namespaces: vec![(Nsid(1), usage)], ..Default::default() };
    let sanitized = |bench: &mut Bench, activity: &crate::logs::health::Activity| {
        let condition = bench.drive.condition();
        let turned = bench.drive.advance(activity, condition, false, &origin("a", 0), &DecisionInput::default());
        turned.changes.into_iter().find(|change| matches!(change, Change::Sanitized { .. }))
    };
    let change = sanitized(&mut bench, &wrote).unwrap();
    bench.keep(change);
    let sanitize = ebof_nvme::media::Sanitize::new(ebof_nvme::media::SanitizeAction::BlockErase);
    bench.ask("a", 0, Request::Sanitize(sanitize)).unwrap();
    let ended = bench.drive.sanitize_ended(true, &origin("a", 0), &DecisionInput::default()).unwrap();
    ended.changes.into_iter().for_each(|change| bench.keep(change));
    assert!(bench.drive.state().sanitize.is_erased());
    assert_eq!(sanitized(&mut bench, &crate::logs::health::Activity::default()), None);
    assert!(bench.drive.state().sanitize.is_erased());
}

// @test hostile.telemetry
#[test]
fn telemetry_names_hosts_to_managers_only() {
    use ebof_nvme::reservation::{PersistenceChange, Register, RegisterAction, RegisterKeys};

    let managers = Managers::Only([host("a").to_string()].into());
    let mut bench = Bench::new(Settings { managers, ..Settings::default() });
    let nsid = bench.create(8, true).unwrap();
    bench.ask("a", 0, Request::Attach(nsid, vec![ControllerId(0), ControllerId(1)])).unwrap();
    let register =
        Register { action: RegisterAction::Register, ignore_existing_key: false, persistence: PersistenceChange::None };
    for (name, cntlid) in [("a", 0), ("b", 1)] {
        let keys = RegisterKeys { crkey: 0.into(), nrkey: 0x5ec_2e7.into() };
        let command = crate::reservation::Command::Register(register, keys);
        let _refused_without_an_identifier = bench.ask(name, cntlid, Request::Reserve(nsid, command));
    }
    assert_eq!(bench.drive.state().reservations[&nsid.0].registrants(), 1);
    let input = DecisionInput { unix_ms: 1000, ..DecisionInput::default() };
    let (changes, _) = capture::after_error(&bench.drive, "a test", &origin("a", 0), &input).unwrap();
    changes.into_iter().for_each(|change| bench.keep(change));
    for lid in [Lid::TELEMETRY_HOST, Lid::TELEMETRY_CONTROLLER] {
        for name in ["b", "a"] {
            let Request::Log(query) = log(lid, Nsid::NONE) else { unreachable!() };
            let query = LogQuery { parameter: 1, bytes: 64 << 10, retain: true, ..query };
            let answer = bench.ask(name, u16::from(name == "b"), Request::Log(query)).unwrap().answer;
            let Answer::Part(page) = answer else { panic!("a page is expected: {answer:?}") };
            let text = alloc::string::String::from_utf8_lossy(&page);
            assert!(text.contains("\"controllers\":{\"0\":\"host 1\",\"1\":\"host 2\"}"), "{text}");
            let secrets = [host("a").to_string(), host("b").to_string(), "01".repeat(16), 0x5ec_2e7.to_string()];
            for secret in secrets {
                assert_eq!(text.contains(&secret), name == "a", "{lid:?}, read by {name}: {secret}");
            }
        }
    }
}
