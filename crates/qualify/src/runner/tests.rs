//! Procedures that run on devices in memory: to their end, to an interruption, to a failure.

use std::sync::Arc;

use ebof_backend::Removable;
use ebof_bench::Source;
use ebof_initiator::Options;

use super::*;
use crate::device::Device;
use crate::device::Kind;
use crate::document::{EngineName, Procedure};
use crate::file_system::AttachedNamespace;
use crate::store;

struct Nothing;

impl Attach for Nothing {
    fn attach(&self, _: &Device) -> Result<AttachedNamespace, String> {
        Err("not here".to_owned())
    }
}

/// Ends after so many runs, and does something before one of them.
struct Counted {
    runs: usize,
    end_after: usize,
    before: Box<dyn FnMut(usize)>,
    begun: Vec<(String, Option<Duration>)>,
}

impl Counted {
    fn new(end_after: usize) -> Self {
        Self { runs: 0, end_after, before: Box::new(|_| ()), begun: Vec::new() }
    }
}

impl Observer for Counted {
    fn begin(&mut self, begun: &Begun<'_>) {
        assert!(begun.number <= begun.phases && begun.remaining >= Duration::ZERO);
        (self.before)(self.runs);
        self.begun.push((format!("{} {} {}", begun.phase.id, begun.columns, begun.round), begun.expected));
    }

    fn progress(&mut self, _: &LoadProgress) {}

    fn end(&mut self, _: &Phase, _: &Run) {
        self.runs += 1;
    }

    fn is_stopped(&self) -> bool {
        self.runs >= self.end_after
    }
}

fn wish(procedure: Procedure, names: &[&str]) -> Wish {
    let subject = |name: &&str| {
        let device = Device::parse(name, Options::from_uri).unwrap();
        DeviceUnderTest { seen: device.inspect().unwrap(), device }
    };
    Wish {
        procedure,
        devices: names.iter().map(subject).collect(),
        against: false,
        engines: vec![EngineName::Ebof],
        rounds: 1,
        quick: Some(1_000_000),
        reads_only: false,
        size_bytes: None,
        with_writes: false,
        repeats: 0,
    }
}

fn origin() -> Provenance {
    Provenance { command: vec!["ebof".into()], program: "ebof 0".into(), programs: Vec::new() }
}

fn run(wish: &Wish, store: Store, observer: &mut Counted) -> Document {
    let runner = Runner::new(wish, wish.plan().unwrap(), origin(), store, &Nothing).unwrap();
    runner.run(observer).map_err(|(error, _)| error).unwrap()
}

#[test]
fn a_procedure_runs_alternately_and_keeps_what_it_measured() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("report");
    let wish = Wish { against: true, ..wish(Procedure::Odcc, &["mem:64Mi", "null:64Mi"]) };
    let mut observer = Counted::new(usize::MAX);
    let document = run(&wish, Store::create(&place).unwrap(), &mut observer);
    assert_eq!((document.state, document.trouble.as_deref()), (State::Complete, None));
    let begun: Vec<&str> = observer.begun.iter().map(|(what, _)| what.as_str()).take(6).collect();
    assert_eq!(
        begun,
        [
            "precondition-seq local memory 1",
            "precondition-seq local null 1",
            "precondition-seq local memory 2",
            "precondition-seq local null 2",
            "seq-write-128k local memory 1",
            "seq-write-128k local null 1",
        ]
    );
    let write = document.results.iter().find(|result| result.phase == "rand-write-4k").unwrap();
    assert_eq!(write.columns.len(), 2);
    assert!(write.columns[0].ratio.unwrap() > 0.0 && write.columns[1].ratio.is_none());
    // Both passes, and not more.
    let random = document.phases.iter().find(|phase| phase.id == "precondition-rand").unwrap();
    assert!(random.runs.iter().all(|run| run.has_result()));
    assert_eq!(store::load(&place).unwrap().results.len(), 6);
    let occupied = Store::create(&place).unwrap_err().to_string();
    assert!(occupied.contains("--resume") && occupied.contains("ODCC"), "{occupied}");
}

#[test]
fn an_interrupted_procedure_is_resumed_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let wish = wish(Procedure::Cdm, &["mem:64Mi"]);
    let document = run(&wish, Store::create(directory.path()).unwrap(), &mut Counted::new(3));
    assert_eq!(document.state, State::Interrupted);
    let measured = |document: &Document| document.results.iter().map(|result| result.phase.clone()).collect::<Vec<_>>();
    assert_eq!(measured(&document), ["fill", "seq-read", "seq-write"]);
    let resume = |wish: &Wish| {
        let there = Store::open(directory.path()).unwrap();
        Runner::resume(wish, wish.plan().unwrap(), origin(), there, &Nothing).err().map(|error| error.to_string())
    };
    let other = resume(&Wish { rounds: 2, ..wish.clone() }).unwrap();
    assert!(other.contains("other sizes, times or rounds"), "{other}");
    let other = resume(&Wish { procedure: Procedure::Odcc, ..wish.clone() }).unwrap();
    assert!(other.contains("another procedure (cdm)"), "{other}");
    let there = Store::open(directory.path()).unwrap();
    let mut observer = Counted::new(usize::MAX);
    let runner = Runner::resume(&wish, wish.plan().unwrap(), origin(), there, &Nothing).unwrap();
    let document = runner.run(&mut observer).map_err(|(error, _)| error).unwrap();
    assert_eq!((document.state, document.resumed, document.results.len()), (State::Complete, 1, 9));
    assert!(observer.begun[0].0.starts_with("rand-read-512k"), "{:?}", observer.begun);
}

#[test]
fn a_device_that_disappears_ends_the_procedure_and_keeps_what_was_measured() {
    let directory = tempfile::tempdir().unwrap();
    let mut wish = wish(Procedure::Cdm, &["mem:64Mi"]);
    let Kind::Opened(Source::Device(device, name), _) = &wish.devices[0].device.kind else { panic!("it is memory") };
    let (removable, remover) = Removable::new(Arc::clone(device));
    wish.devices[0].device.kind = Kind::Opened(Source::Device(Arc::new(removable), name.clone()), "memory");
    let mut observer = Counted::new(usize::MAX);
    observer.before = Box::new(move |runs| {
        if runs == 4 {
            remover.remove();
        }
    });
    let document = run(&wish, Store::create(directory.path()).unwrap(), &mut observer);
    assert_eq!(document.state, State::Failed);
    let trouble = document.trouble.clone().unwrap();
    assert!(trouble.starts_with("Rand-Write-512K: mem:64Mi: "), "{trouble}");
    assert_eq!(document.results.len(), 4);
    let kept = store::load(directory.path()).unwrap();
    assert_eq!((kept.state, kept.results.len()), (State::Failed, 4));
}

#[test]
fn hosts_that_run_together_have_shares() {
    let directory = tempfile::tempdir().unwrap();
    let wish = wish(Procedure::Fairness, &["null:64Mi", "null:64Mi", "null:64Mi"]);
    let document = run(&wish, Store::create(directory.path()).unwrap(), &mut Counted::new(usize::MAX));
    let together = document.results.iter().find(|result| result.phase == "read-4k-together").unwrap();
    let sum: f64 = together.columns.iter().map(|column| column.share.unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-9 && together.jain.unwrap() > 0.4 && together.spread.unwrap() >= 1.0);
    let alone = document.results.iter().find(|result| result.phase == "read-4k-alone").unwrap();
    assert!(alone.jain.is_none() && alone.columns.iter().all(|column| column.share.is_none()));
}

#[test]
fn a_report_that_is_no_report_is_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(store::DOCUMENT);
    for (text, why) in [
        ("{", "EOF"),
        ("{\"schema\":\"ebof-qualify/2\"}", "this program reads ebof-qualify/1"),
        ("[]", "no schema"),
        ("{\"schema\":\"ebof-qualify/1\"}", "missing field"),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = Store::open(directory.path()).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("left as it is"), "{error}");
        assert!(Store::create(directory.path()).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    let missing = Store::open(&directory.path().join("none")).unwrap_err().to_string();
    assert!(missing.contains("none/report.json"), "{missing}");
}
