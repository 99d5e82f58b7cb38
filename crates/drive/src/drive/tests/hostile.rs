//! States of a medium whose checksums are right and whose numbers no drive has written: they are
//! refused, or the drive works with them. Nothing panics or wraps around, and no two namespaces
//! have one volume. What such a drive writes may be refused when it is read again.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;

use serde_json::{Value, json};

use super::*;
use crate::change::unfinished::Unfinished;
use crate::function::{FunctionId, PortNames};
use crate::logs::error_log;
use crate::logs::health::{Activity, Usage};
use crate::logs::telemetry::Capture;
use crate::namespace::VolumeId;
use crate::namespace::placement::{Attachments, Placement};

/// What the numbers of a state are replaced by.
const NUMBERS: [u64; 9] = [0, 1, 255, 65_535, u32::MAX as u64, 1 << 32, 1 << 62, (1 << 63) - 1, u64::MAX];

fn settings() -> Settings {
    Settings { functions: 3, error_entries: 64, overcommit: true, ..Settings::default() }
}

/// A state in which everything has been used.
fn used() -> Value {
    let mut bench = Bench::new(settings());
    for _ in 0..2 {
        bench.create(8, true).unwrap();
    }
    let online =
        Placement { queues: 2, interrupts: 1, online: true, ports: PortNames::new(["port0", "port1"]).unwrap() };
    let boxed = [
        Request::Place(FunctionId(1), online),
        Request::AttachExactly(Nsid(1), Attachments { for_everyone: true, ..Attachments::default() }),
        Request::AttachExactly(Nsid(2), Attachments { functions: [1, 2].into(), ..Attachments::default() }),
        Request::Begin("t".to_string(), Unfinished { created: [VolumeId(2)].into(), ..Unfinished::default() }),
    ];
    for request in boxed {
        let decision = bench.drive.decide(&request, &Origin::box_(), &DecisionInput::default()).unwrap();
        decision.changes.into_iter().for_each(|change| bench.keep(change));
    }
    bench.ask("a", 0, Request::SelfTest(ebof_nvme::log::SelfTestCode::EXTENDED, Nsid::ALL)).unwrap();
    let text = "text".to_string();
    let capture = Capture { reason: text.clone(), areas: [text, String::new(), String::new()], private: None };
    let telemetry = Box::new(bench.drive.state().telemetry.captured(capture));
    bench.keep(Change::Captured { telemetry });
    let registered = json!({ "generation": 3, "persistent": true, "registered": { "01".repeat(16): 5 } });
    bench.keep(Change::Reserved { nsid: 1, change: serde_json::from_value(registered).unwrap() });
    advance(&mut bench);
    let mut state: Value = serde_json::from_slice(&bench.drive.state().to_bytes()).unwrap();
    state["sanitize"] = json!({ "state": "processing", "cdw10": 0x23, "cdw11": 7, "cntlid": 1, "passes": 1 });
    state
}

fn advance(bench: &mut Bench) {
    let error = error_log::Error {
        queue: QueueId(1),
        cid: Cid(1),
        status: Status::INVALID_FIELD,
        location: None,
        nsid: Nsid(1),
        lba: 1,
        opcode: 2,
        information: 0,
    };
    bench.drive.record_errors(1, &[error; 3]);
    let usage = Usage { bytes_read: 512, bytes_written: 512, read_commands: 1, write_commands: 1 };
    let activity =
        Activity { elapsed_ms: 60_000, busy_ms: 1000, namespaces: vec![(Nsid(1), usage)], ..Activity::default() };
    let condition = bench.drive.condition();
    let update = bench.drive.advance(&activity, condition, true, &origin("a", 0), &DecisionInput::default());
    update.changes.into_iter().for_each(|change| bench.keep(change));
}

/// The paths of all numbers. Keys are not among them.
fn paths(value: &Value, path: &str, out: &mut BTreeSet<String>) {
    match value {
        Value::Number(_) => _ = out.insert(path.to_string()),
        Value::Array(list) => list.iter().enumerate().for_each(|(at, one)| paths(one, &format!("{path}/{at}"), out)),
        Value::Object(map) => map.iter().for_each(|(key, one)| paths(one, &format!("{path}/{key}"), out)),
        _ => {}
    }
}

/// Does all that concerns the numbers of a state.
fn work_with(state: State) {
    let drive = Drive::new(state, settings(), Capacity { total_bytes: 100 * GIB, extent_bytes: 256 << 10 });
    let mut bench = Bench { drive, journal: Vec::new(), turn: 0 };
    let input = DecisionInput { unix_ms: 1 << 40, ..DecisionInput::default() };
    bench.drive.opened(&origin("a", 0), &input).into_iter().for_each(|change| bench.keep(change));
    let tested = bench.drive.self_test_stepped(Ok(())).0;
    bench.keep(tested);
    let done = bench.drive.sanitize_pass_done();
    done.into_iter().for_each(|change| bench.keep(change));
    advance(&mut bench);
    for lid in (0..=0xff).map(Lid) {
        let _refused = bench.ask_at(&log(lid, Nsid(1)), &input);
    }
    let ended = bench.drive.sanitize_ended(true, &origin("a", 0), &input);
    ended.into_iter().flat_map(|ended| ended.changes).for_each(|change| bench.keep(change));
    let wanted = NewNamespace { blocks: 8, capacity_blocks: 8, shared: true, ..NewNamespace::default() };
    for request in [
        Request::Create(wanted),
        Request::Create(wanted),
        Request::Undo("t".to_string()),
        Request::ResetPrimary,
        Request::Delete(Nsid(1)),
        Request::Reset,
        Request::Delete(Nsid::ALL),
    ] {
        let _refused = bench.ask_at(&request, &input);
        let _view = bench.drive.view();
        let volumes = bench.drive.state().namespaces.values().map(|namespace| namespace.volume);
        assert_eq!(volumes.clone().collect::<BTreeSet<_>>().len(), volumes.count(), "two namespaces have one name");
    }
    bench.drive.closed().into_iter().for_each(|change| bench.keep(change));
}

impl Bench {
    fn ask_at(&mut self, request: &Request, input: &DecisionInput) -> Result<(), Status> {
        let decision = self.drive.decide(request, &Origin::box_(), input).map_err(|refusal| refusal.status)?;
        decision.changes.into_iter().for_each(|change| self.keep(change));
        Ok(())
    }
}

#[test]
fn no_number_on_the_medium_makes_a_drive_panic() {
    let state = used();
    let mut all = BTreeSet::new();
    paths(&state, "", &mut all);
    assert!(all.len() > 60, "{all:?}");
    let (mut read, mut refused) = (0, 0);
    for path in &all {
        for number in NUMBERS {
            let mut bent = state.clone();
            *bent.pointer_mut(path).unwrap() = number.into();
            match State::restore(bent.to_string().as_bytes(), &[]) {
                Ok(state) => {
                    work_with(state);
                    read += 1;
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(read > 200 && refused > 50, "{read} {refused}");
}

#[test]
fn names_and_counts_that_no_drive_reaches_are_refused() {
    let restored = |state: Value| State::restore(state.to_string().as_bytes(), &[]).map_err(|error| error.to_string());
    let most = 1_u64 << 63;
    for state in [
        json!({ "next_instance": most + 1 }),
        json!({ "errors": { "reserved": u64::MAX } }),
        json!({ "errors": { "entries": [{ "count": most + 1 }] } }),
        json!({ "events": { "total": u64::MAX } }),
        json!({ "transactions": { "t": { "decider": "00".repeat(16), "created": [most] } } }),
    ] {
        let error = restored(state.clone()).unwrap_err();
        assert!(error.contains("no drive has counted to"), "{state}: {error}");
    }
    assert!(restored(json!({ "next_instance": most, "events": { "total": most } })).is_ok());
    let emptied =
        json!({ "emptied": { "nsid": 1, "instance": u64::MAX, "blocks": 8, "capacity_blocks": 8, "format": 0 } });
    assert!(State::restore(b"", &[emptied.to_string().into_bytes()]).is_err());
}
