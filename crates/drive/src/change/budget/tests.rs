//! The largest state that hosts can cause, and a checkpoint of it.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use ebof_nvme::reservation::{
    Acquire, AcquireAction, AcquireKeys, PersistenceChange, Register, RegisterAction, RegisterKeys, ReservationType,
};
use ebof_nvme::{Cid, ControllerId, HostId, Nqn, Nsid, QueueId, Status};
use serde_json::json;

use super::*;
use crate::change::{Change, State};
use crate::drive::{Capacity, Decision, Drive, Request, Settings};
use crate::function::{self, FunctionId, PortNames};
use crate::layout::Layout;
use crate::layout::frame::{CHANGE_BYTES_MAX, Checkpoint, FRAME_BYTES, Series};
use crate::logs::error_log;
use crate::logs::health::{Activity, Usage};
use crate::logs::telemetry::{CONTROLLER_BYTES_MAX, Capture};
use crate::namespace::NewNamespace;
use crate::profile::Profile;
use crate::request::{DecisionInput, Origin};
use crate::reservation::Command;

const CNTLIDS: u16 = 4096;
const NAMESPACES: u32 = Profile::NAMESPACES_MAX;
const MOMENT: DecisionInput = DecisionInput { unix_ms: u64::MAX, uptime_ms: u64::MAX, entropy: [0xfe; 32] };

/// The longest NQN, of which the state needs two bytes for nearly every character.
fn nqn(number: usize) -> Nqn {
    let name = format!("{number:08}");
    Nqn::parse(&(name.clone() + &"\"".repeat(Nqn::MAX_BYTES - name.len()))).unwrap()
}

fn origin(number: usize, host_id: u64) -> Origin {
    let mut id = [0xfe; 16];
    id[..8].copy_from_slice(&host_id.to_le_bytes());
    Origin::host(ControllerId(u16::try_from(number).unwrap()), nqn(number), HostId(id))
}

#[expect(clippy::needless_pass_by_value, reason = "requests are made where they are asked")]
fn ask(drive: &mut Drive, origin: &Origin, request: Request) -> Result<Decision, Status> {
    let decision = drive.decide(&request, origin, &MOMENT).map_err(|refusal| refusal.status)?;
    for change in &decision.changes {
        assert!(change.to_bytes().len() <= CHANGE_BYTES_MAX, "a change has no room in the journal");
        drive.apply(change.clone());
    }
    Ok(decision)
}

fn register(key: u64) -> Command {
    let register =
        Register { action: RegisterAction::Register, ignore_existing_key: false, persistence: PersistenceChange::Set };
    Command::Register(register, RegisterKeys { crkey: 0.into(), nrkey: key.into() })
}

fn unregister(key: u64) -> Command {
    let register = Register {
        action: RegisterAction::Unregister,
        ignore_existing_key: false,
        persistence: PersistenceChange::None,
    };
    Command::Register(register, RegisterKeys { crkey: key.into(), nrkey: 0.into() })
}

/// A drive with the largest number of hosts.
fn with_all_cntlids() -> Drive {
    let profile = Profile { namespaces: NAMESPACES, ..Profile::unlimited() };
    let settings = Settings {
        profile,
        overcommit: true,
        error_entries: error_log::ENTRIES_MAX,
        revision: "12345678".to_string(),
        subsystem: nqn(0).to_string(),
        ..Settings::default()
    };
    let mut drive = Drive::new(State::default(), settings, Capacity { total_bytes: 1 << 40, extent_bytes: 256 << 10 });
    for number in 0..usize::from(CNTLIDS) {
        ask(&mut drive, &origin(number, 1), Request::AssignCntlid).unwrap();
    }
    drive
}

/// The same with the largest number of namespaces, each with a host.
fn drive() -> Drive {
    let mut drive = with_all_cntlids();
    let size = NewNamespace { blocks: 1 << 50, capacity_blocks: 1 << 50, ..NewNamespace::default() };
    let wanted = NewNamespace { shared: true, ana_group: 128, ..size };
    for nsid in 1..=NAMESPACES {
        ask(&mut drive, &origin(0, 1), Request::Create(wanted)).unwrap();
        ask(&mut drive, &origin(0, 1), Request::Attach(Nsid(nsid), vec![ControllerId(0)])).unwrap();
    }
    let refused = ask(&mut drive, &origin(0, 1), Request::Create(wanted)).unwrap_err();
    assert!(refused.is(Status::NAMESPACE_ID_UNAVAILABLE), "{refused}");
    drive
}

fn attach_all(drive: &mut Drive) {
    let attach = |drive: &mut Drive, nsid, range: core::ops::Range<u16>| {
        let controllers = range.map(ControllerId).collect();
        ask(drive, &origin(0, 1), Request::Attach(Nsid(nsid), controllers))
    };
    let (mut nsid, mut next) = (1, 1);
    let refused = loop {
        // Many at a time as long as that succeeds, then one by one.
        let result = attach(drive, nsid, next..(next + 63).min(CNTLIDS));
        let result = result.or_else(|_| attach(drive, nsid, next..next + 1).inspect(|_| next -= 62));
        match result {
            Ok(_) => next += 63,
            Err(status) => break status,
        }
        if next >= CNTLIDS {
            (nsid, next) = (nsid + 1, 1);
        }
    };
    assert!(refused.is(Status::NAMESPACE_ATTACHMENT_LIMIT_EXCEEDED), "{refused}");
}

fn register_all(drive: &mut Drive) {
    let each = REGISTRANTS_MAX as u64 / u64::from(NAMESPACES);
    for nsid in 1..=NAMESPACES {
        for host in 0..each {
            ask(drive, &origin(0, host), Request::Reserve(Nsid(nsid), register(u64::MAX - host))).unwrap();
        }
        let acquire = Acquire {
            action: AcquireAction::Acquire,
            ignore_existing_key: false,
            rtype: ReservationType::WriteExclusive.encode(),
        };
        let keys = AcquireKeys { crkey: u64::MAX.into(), prkey: 0.into() };
        ask(drive, &origin(0, 0), Request::Reserve(Nsid(nsid), Command::Acquire(acquire, keys))).unwrap();
    }
}

fn fill_logs(drive: &mut Drive) {
    let event = json!({ "kind": 255, "cntlid": 65535, "at_ms": u64::MAX, "data": "fe".repeat(230) });
    for _ in 0..2 * crate::logs::event_log::EVENTS_MAX {
        drive.apply(Change::Happened { event: serde_json::from_value(event.clone()).unwrap() });
    }
    assert!(drive.state().events.len() > 4000);
    let text = "\"".repeat(CONTROLLER_BYTES_MAX);
    let capture =
        Capture { reason: text.clone(), areas: [text, String::new(), String::new()], private: Some(String::new()) };
    let telemetry = Box::new(drive.state().telemetry.captured(capture));
    drive.apply(Change::Captured { telemetry });
    let error = error_log::Error {
        queue: QueueId(u16::MAX),
        cid: Cid(u16::MAX),
        status: Status(u16::MAX),
        location: Some(ebof_nvme::log::ParameterErrorLocation { byte: 255, bit: 7 }),
        nsid: Nsid(u32::MAX),
        lba: u64::MAX,
        opcode: 255,
        information: u64::MAX,
    };
    drive.record_errors(u64::MAX >> 2, &vec![error; 1000]);
    let change = drive.unflushed().unwrap();
    drive.apply(change);
    let most =
        Usage { bytes_read: u64::MAX, bytes_written: u64::MAX, read_commands: u64::MAX, write_commands: u64::MAX };
    let namespaces = (1..=NAMESPACES).map(|nsid| (Nsid(nsid), most)).collect();
    let activity = Activity { elapsed_ms: u64::MAX, busy_ms: u64::MAX, namespaces, ..Activity::default() };
    let turned = drive.advance(&activity, drive.condition(), true, &origin(0, 1), &MOMENT);
    for change in turned.changes {
        assert!(change.to_bytes().len() <= CHANGE_BYTES_MAX);
        drive.apply(change);
    }
    let content = json!({ "revision": "12345678", "personality": { "model-suffix": "12345678" } });
    let slots: serde_json::Map<String, serde_json::Value> =
        (1..=7).map(|slot: u8| (slot.to_string(), content.clone())).collect();
    let firmware = json!({ "slots": slots, "active": 7, "running": content, "next": 7, "written": 7 });
    drive.apply(Change::Firmware { firmware: serde_json::from_value(firmware).unwrap() });
    let part = json!({ "nsid": 1024, "extents": u32::MAX, "steps": u32::MAX });
    let failure = json!({ "segment": 255, "place": [1024, u64::MAX, 65535] });
    let running = json!({
        "code": 2, "nsid": u32::MAX, "cntlid": 65535, "namespaces": vec![part; 1024], "done": u64::MAX, "failure": failure,
    });
    let result = json!({ "code": 15, "result": 15, "power_on_hours": u64::MAX, "failure": failure });
    let test = json!({ "running": running, "results": vec![result; 20] });
    drive.apply(Change::SelfTested { self_test: serde_json::from_value(test).unwrap() });
    // The longest names, of which the state needs six bytes for nearly every character.
    let rest = "\u{1}".repeat(PortNames::NAME_CHARS_MAX - 2);
    let ports: Vec<String> = (0..PortNames::MAX).map(|at| format!("{at:02}{rest}")).collect();
    let share = json!({
        "weight": 1000, "iops": u64::MAX, "bytes_per_second": u64::MAX, "minimum_iops": u64::MAX,
    });
    for id in 1..=FunctionId::MAX {
        let function = json!({ "queues": 65535, "interrupts": 65535, "online": false, "port": ports, "share": share });
        let change = function::FunctionChange::Changed { id, function: serde_json::from_value(function).unwrap() };
        drive.apply(Change::Functions { change });
    }
}

// @test data.checkpoint-room
#[test]
fn a_checkpoint_has_room_for_the_largest_state_that_hosts_can_cause() {
    let mut drive = drive();
    attach_all(&mut drive);
    register_all(&mut drive);
    fill_logs(&mut drive);
    let state = drive.state().to_bytes();
    assert!(state.len() <= STATE_BYTES_MAX, "{} of {STATE_BYTES_MAX} bytes", state.len());
    assert!(state.len() > STATE_BYTES_MAX / 5 * 4, "the test makes less of it than there can be: {}", state.len());
    // The smallest drive has the smallest checkpoint.
    let layout = Layout::new(1 << 20, [7; 16]).unwrap();
    let checkpoint = Checkpoint { state: state.clone(), records: Vec::new(), clean: true };
    let (header, body) = checkpoint.encode(Series { id: [7; 16], generation: 1 }, 1, None);
    assert!((header.len() + body.len()) as u64 <= layout.checkpoint_bytes());
    let read = Checkpoint::decode(&Checkpoint::header([7; 16], &header).unwrap(), &body).unwrap();
    let again = State::restore(&read.state, &[]).unwrap();
    assert_eq!(again.to_bytes(), state);
    assert!(body.len().is_multiple_of(FRAME_BYTES));
    // Refused and accepted requests at the limit.
    let last = Request::Reserve(Nsid(9), register(5));
    let refused = ask(&mut drive, &origin(0, 1 << 40), last.clone()).unwrap_err();
    assert_eq!(refused, Status::INSUFFICIENT_RESOURCES);
    ask(&mut drive, &origin(0, 3), Request::Reserve(Nsid(9), register(u64::MAX - 3))).unwrap();
    ask(&mut drive, &origin(0, 3), Request::Reserve(Nsid(9), unregister(u64::MAX - 3))).unwrap();
    ask(&mut drive, &origin(0, 1 << 40), last).unwrap();
    ask(&mut drive, &origin(0, 0), Request::Detach(Nsid(1), vec![ControllerId(1)])).unwrap();
    ask(&mut drive, &origin(0, 0), Request::Attach(Nsid(2), vec![ControllerId(4095)])).unwrap();
}

/// 64 namespaces with the largest number of registrants: 14.7 MB, which an earlier version allowed.
// @test data.checkpoint-room
#[test]
fn a_drive_beyond_its_budget_works_and_accepts_no_more_entries() {
    let mut drive = drive();
    for nsid in 1..=64_u32 {
        let registered: serde_json::Map<String, serde_json::Value> = (0..4096)
            .map(|host: u64| {
                let id: String = origin(0, host).host_id.0.iter().map(|byte| format!("{byte:02x}")).collect();
                (id, (u64::MAX - host).into())
            })
            .collect();
        let change = json!({ "generation": 1, "persistent": true, "registered": registered });
        drive.apply(Change::Reserved { nsid, change: serde_json::from_value(change).unwrap() });
    }
    fill_logs(&mut drive);
    let before = drive.state().to_bytes().len();
    assert!(before > 14_600_000, "{before}");
    let refused = ask(&mut drive, &origin(0, 1), Request::Reserve(Nsid(65), register(1))).unwrap_err();
    assert_eq!(refused, Status::INSUFFICIENT_RESOURCES);
    ask(&mut drive, &origin(0, 5), Request::Reserve(Nsid(7), unregister(u64::MAX - 5))).unwrap();
    ask(&mut drive, &origin(0, 1), Request::Attach(Nsid(70), vec![ControllerId(9)])).unwrap();
    // Only history is dropped.
    let mut state = drive.state().clone();
    assert!(state.shrink(before - 500_000) && !state.events.is_empty());
    assert!(state.shrink(1) && state.events.is_empty());
    assert_eq!((registrants(&state.reservations), state.assigned_cntlids.len()), (64 * 4096 - 1, 4096));
    assert!(state.to_bytes().len() < before - 2_000_000);
    assert!(!State::default().shrink(STATE_BYTES_MAX));
}

/// A change that detaches one host contains all the others.
#[test]
fn a_change_with_the_most_hosts_fits_into_the_journal() {
    let mut drive = with_all_cntlids();
    drive.configure(Settings { attach_everyone: true, ..drive.settings().clone() });
    let wanted = NewNamespace { blocks: 8, capacity_blocks: 8, shared: true, ..NewNamespace::default() };
    ask(&mut drive, &origin(0, 0), Request::Create(wanted)).unwrap();
    ask(&mut drive, &origin(0, 0), Request::Detach(Nsid(1), vec![ControllerId(7)])).unwrap();
    let hosts: BTreeSet<String> = drive.state().namespaces[&1].hosts.clone();
    assert_eq!(hosts.len(), 4095);
    assert!(!hosts.contains(nqn(7).as_str()));
}
