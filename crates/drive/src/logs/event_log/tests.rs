//! Tests: the log as hosts read it, in one piece and in several.

use super::*;
use crate::request::{DecisionInput, Origin};
use ebof_nvme::log::persistent_event::{
    ControllerResetInformation, FirmwareCommitEvent, FormatCompletionEvent, HardwareErrorEvent, SetFeatureEvent,
    ThermalExcursionEvent, hardware_error,
};
use ebof_nvme::log::{PersistentEvents, SmartHealth};
use ebof_nvme::{Cid, Cqe, HostId, Nqn, Nsid, Status};
use proptest::prelude::*;
use zerocopy::FromBytes;

const READ: u8 = 0;
const ESTABLISH: u8 = 1;
const RELEASE: u8 = 2;
const HEADER: u8 = 3;

fn nqn() -> Nqn {
    Nqn::parse("nqn.2014-08.org.example:drive0").unwrap()
}

fn origin() -> Origin {
    Origin::host(ControllerId(7), nqn(), HostId([1; 16]))
}

fn at(unix_ms: u64) -> DecisionInput {
    DecisionInput { unix_ms, ..DecisionInput::default() }
}

fn execute(contexts: &mut Contexts, log: &EventLog, lsp: u8, controller: u16) -> Result<Reply, Status> {
    let nqn = nqn();
    let subsystem = Subsystem { serial: "EB0001", model: "ebof drive", nqn: &nqn, power_on_hours: 12, power_cycles: 3 };
    let reply = contexts.execute(log, lsp, ControllerId(controller), &subsystem, &at(99_000));
    reply.map_err(|refusal| refusal.status)
}

#[track_caller]
fn page(reply: Reply) -> Vec<u8> {
    let Reply::Page(page) = reply else { panic!("a page is expected") };
    page.read(0, page.len())
}

fn read(log: &EventLog) -> Vec<u8> {
    page(execute(&mut Contexts::default(), log, ESTABLISH, 1).unwrap())
}

#[test]
fn events_are_read_newest_first_after_a_header_that_describes_them() {
    let mut log = EventLog::default();
    let origin = origin();
    log.apply(Event::power_on(&origin, &at(1000), "1.2", &[ControllerResetInformation::default(); 2]));
    log.apply(Event::firmware_commit(&origin, &at(2000), ("1.2", "1.3"), (1, 2), Status::INVALID_FIRMWARE_IMAGE));
    log.apply(Event::media_error(&origin, &at(3000), &Cqe::new(Cid(5), Status::UNRECOVERED_READ_ERROR)));
    log.apply(Event::format_completion(&origin, &at(4000), Nsid(1), 40, Status::INTERNAL_ERROR));
    log.apply(Event::set_feature(&origin, &at(5000), &[4, 0x155], &[]));
    log.apply(Event::thermal_excursion(&origin, &at(6000), Thermal::Critical, 300));
    let page = read(&log);
    let (header, events) = PersistentEvents::new(&page).unwrap();
    assert_eq!((header.tne.get(), header.tll.get()), (6, u64::try_from(page.len()).unwrap()));
    assert_eq!((header.lrev, header.poh.get(), header.pcc.get(), header.gnum.get()), (3, 12, 3, 1));
    assert_eq!(header.milliseconds(), 99_000);
    assert_eq!(alloc::format!("{}", header.subsystem_nqn()), nqn().as_str());
    assert_eq!(header.supported().collect::<Vec<_>>(), SUPPORTED);
    let events: Vec<_> = events.collect();
    assert_eq!(
        events.iter().map(|event| event.header.milliseconds()).collect::<Vec<_>>(),
        [6000, 5000, 4000, 3000, 2000, 1000]
    );
    assert!(events.iter().all(|event| event.header.cntlid.get() == 7 && event.header.ehai == 3));
    let thermal = ThermalExcursionEvent::read_from_bytes(events[0].data).unwrap();
    assert_eq!((thermal.otemp, thermal.thresh), (255, 2));
    let (layout, rest) = SetFeatureEvent::read_from_prefix(events[1].data).unwrap();
    assert_eq!((layout.command_dwords(), layout.data_bytes(), rest.len()), (2, 0, 8));
    let format = FormatCompletionEvent::read_from_bytes(events[2].data).unwrap();
    assert_eq!((format.sfpi, format.fnvms), (40, 3));
    let (error, completion) = HardwareErrorEvent::read_from_prefix(events[3].data).unwrap();
    assert_eq!(error.nsheec.get(), hardware_error::MEDIA_AND_DATA_INTEGRITY);
    assert!(Cqe::read_from_bytes(completion).unwrap().status().is(Status::UNRECOVERED_READ_ERROR));
    let commit = FirmwareCommitEvent::read_from_bytes(events[4].data).unwrap();
    assert!(commit.status().is(Status::INVALID_FIRMWARE_IMAGE));
    assert_eq!((commit.fwca, commit.fwslot, &commit.nfwrev), (1, 2, b"1.3     "));
    assert_eq!(events[5].data.len(), 8 + 2 * 36);
}

#[test]
fn contexts_are_established_read_and_released() {
    let mut log = EventLog::default();
    log.apply(Event::critical_warning(&origin(), &at(1), 1));
    let mut contexts = Contexts::default();
    let none = execute(&mut contexts, &log, READ, 1).unwrap_err();
    assert!(none.is(Status::COMMAND_SEQUENCE_ERROR));
    // Releasing without a context is not an error.
    assert_eq!(execute(&mut contexts, &log, RELEASE, 1).unwrap(), Reply::Nothing);
    let first = execute(&mut contexts, &log, ESTABLISH, 1).unwrap();
    assert!(execute(&mut contexts, &log, ESTABLISH, 1).unwrap_err().is(Status::COMMAND_SEQUENCE_ERROR));
    // New events are in the log, but not in the context.
    log.apply(Event::critical_warning(&origin(), &at(2), 2));
    assert_eq!(execute(&mut contexts, &log, READ, 1).unwrap(), first);
    // Another controller has a context of its own.
    assert!(execute(&mut contexts, &log, READ, 2).is_err());
    let second = page(execute(&mut contexts, &log, ESTABLISH, 2).unwrap());
    assert_eq!(PersistentEvents::new(&second).unwrap().0.tne.get(), 2);
    contexts.release(ControllerId(1));
    assert!(execute(&mut contexts, &log, READ, 1).is_err());
}

#[test]
fn the_header_can_be_read_with_and_without_a_context() {
    let mut log = EventLog::default();
    let mut contexts = Contexts::default();
    let header = |contexts: &mut Contexts, log: &EventLog| {
        let Reply::Header(bytes) = execute(contexts, log, HEADER, 1).unwrap() else { panic!("a header") };
        PersistentEventHeader::read_from_bytes(&bytes).unwrap()
    };
    let first = header(&mut contexts, &log);
    assert!(!first.context_existed());
    let again = header(&mut contexts, &log);
    assert!(again.context_existed() && again.gnum == first.gnum);
    let whole = page(execute(&mut contexts, &log, READ, 1).unwrap());
    assert_eq!(whole.len(), 512);
    contexts.release(ControllerId(1));
    // The generation number is that of the reported log.
    assert_eq!(header(&mut contexts, &log).gnum, first.gnum);
    contexts.release(ControllerId(1));
    log.apply(Event::critical_warning(&origin(), &at(1), 1));
    assert_eq!(header(&mut contexts, &log).gnum.get(), first.gnum.get() + 1);
}

#[test]
fn a_context_beyond_the_limit_ends_the_oldest() {
    let log = EventLog::default();
    let mut contexts = Contexts::default();
    for controller in 0..=u16::try_from(CONTEXTS_MAX).unwrap() {
        execute(&mut contexts, &log, ESTABLISH, controller).unwrap();
    }
    assert!(execute(&mut contexts, &log, READ, 0).is_err());
    assert!(execute(&mut contexts, &log, READ, 1).is_ok());
}

#[test]
fn a_page_is_read_in_pieces_up_to_its_end() {
    let mut log = EventLog::default();
    log.apply(Event::smart_snapshot(&origin(), &at(1), &SmartHealth::default()));
    let Reply::Page(page) = execute(&mut Contexts::default(), &log, ESTABLISH, 1).unwrap() else { panic!("a page") };
    let whole = page.read(0, usize::MAX);
    assert_eq!((whole.len(), page.len()), (512 + 24 + 512, 512 + 24 + 512));
    for bytes in [1, 100, 511, 512, 513, 2000] {
        let pieces: Vec<u8> = (0..page.len()).step_by(bytes).flat_map(|offset| page.read(offset, bytes)).collect();
        assert_eq!(pieces, whole, "pieces of {bytes}");
    }
    assert!(page.read(page.len(), 4).is_empty());
    assert!(page.read(usize::MAX, usize::MAX).is_empty());
}

#[test]
fn the_oldest_events_are_dropped_first() {
    let mut log = EventLog::default();
    let count = u64::try_from(EVENTS_MAX).unwrap();
    for n in 0..count + 10 {
        log.apply(Event::critical_warning(&origin(), &at(n), 1));
    }
    assert_eq!(log.len(), EVENTS_MAX);
    assert_eq!(log.events[0].at_ms, 10);
    // Large ones fill it before there are many.
    for n in 0..count {
        log.apply(Event::set_feature(&origin(), &at(n), &[0x0d; 9], &[1; 9000]));
        assert!(log.page_bytes() <= BYTES_MAX);
    }
    let page = read(&log);
    assert_eq!(page.len(), log.page_bytes());
    let (header, events) = PersistentEvents::new(&page).unwrap();
    assert_eq!(usize::try_from(header.tne.get()).unwrap(), events.count());
    assert!(page.len() > BYTES_MAX - 8192 && BYTES_MAX == usize::try_from(PELS).unwrap() << 16);
}

#[test]
fn many_events_of_one_type_do_not_displace_others() {
    let mut log = EventLog::default();
    let error = |ms| Event::media_error(&origin(), &at(ms), &Cqe::new(Cid(1), Status::WRITE_FAULT));
    for n in 0..1000 {
        let event = error(n);
        if log.admits(&event) {
            log.apply(event);
        }
    }
    assert_eq!(log.len(), 32);
    // Another event, and the same one a minute later, are recorded.
    assert!(log.admits(&Event::critical_warning(&origin(), &at(1000), 4)));
    assert!(log.admits(&error(61_000)));
}

proptest! {
    #[test]
    fn events_are_replayed_from_the_journal(data in proptest::collection::vec(any::<u8>(), 0..200), ms: u64, code: u16) {
        let event = Event::hardware_error(&origin(), &at(ms), code, &data);
        let kept: Event = serde_json::from_slice(&serde_json::to_vec(&event).unwrap()).unwrap();
        prop_assert_eq!(&kept, &event);
        let mut log = EventLog::default();
        log.apply(kept);
        let kept: EventLog = serde_json::from_slice(&serde_json::to_vec(&log).unwrap()).unwrap();
        prop_assert_eq!(kept, log);
    }
}
