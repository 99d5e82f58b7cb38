//! The thread that writes: before the answer, floods, a full disk, syslog.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;

use ebof_state::{Calls, SystemCall};

use super::*;
use crate::verify::{KnownHead, records_since, verify};
use crate::{AuditRecord, Destination};

fn settings() -> AuditSettings {
    AuditSettings {
        sizes: Sizes::default(),
        syslog: None,
        feed: Box::new(Vec::new),
        tell: Box::new(|_| {}),
        warn: Box::new(|_| {}),
    }
}

fn change(what: &str) -> NewRecord {
    NewRecord::new(RecordKind::Change, what, RecordOutcome::Done).who("admin")
}

fn made(audit: &Audit, content: NewRecord) {
    let (sender, receiver) = mpsc::channel();
    audit.change(content, move || sender.send(()).unwrap());
    receiver.recv().unwrap();
}

fn records(directory: &StateDirectory) -> Vec<AuditRecord> {
    records_since(directory, 0, 100_000).unwrap().0
}

// @test audit.before-the-answer
#[test]
fn a_change_is_on_the_medium_before_it_is_acknowledged() {
    let place = tempfile::tempdir().unwrap();
    let directory = Arc::new(StateDirectory::open(place.path()).unwrap());
    let audit = Audit::start(Arc::clone(&directory), settings()).unwrap();
    for number in 0..20 {
        made(&audit, change(&number.to_string()));
        assert_eq!(records(&directory).last().unwrap().what, number.to_string());
    }
    assert!(verify(&*directory, &[KnownHead::of_target(audit.head())]).unwrap().is_intact());
    // An end that is cut while the target runs is found by what the thread knows.
    let path = std::fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().path());
    let path = path.into_iter().find(|path| path.extension().is_some_and(|end| end == "log")).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let cut = text.trim_end().rfind('\n').unwrap();
    std::fs::write(&path, &text[..=cut]).unwrap();
    assert!(!verify(&*directory, &[KnownHead::of_target(audit.head())]).unwrap().is_intact());
}

#[test]
fn floods_are_counted_and_what_nobody_hands_over_is_recorded() {
    let place = tempfile::tempdir().unwrap();
    let directory = Arc::new(StateDirectory::open(place.path()).unwrap());
    let mut fed = false;
    let feed = move || if std::mem::replace(&mut fed, true) { Vec::new() } else { vec![change("fed")] };
    let audit = Audit::start(Arc::clone(&directory), AuditSettings { feed: Box::new(feed), ..settings() }).unwrap();
    for _ in 0..3000 {
        audit.note(NewRecord::new(RecordKind::Login, "log in", RecordOutcome::Refused).who("stranger"));
    }
    drop(audit);
    let all = records(&directory);
    let refused = all.iter().filter(|record| record.outcome == RecordOutcome::Refused).count();
    let counted: u64 = all.iter().filter(|record| record.what == "suppressed").map(|record| record.count).sum();
    assert_eq!((refused, counted), (100, 2900), "{:?}", all.last());
    assert!(all.iter().any(|record| record.what == "fed"));
}

/// A disk that can be full.
#[derive(Debug)]
struct Full(Arc<AtomicBool>);

impl Calls for Full {
    fn make(&self, call: SystemCall, _path: &Path, work: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let is_write = matches!(call, SystemCall::Write | SystemCall::Create);
        if is_write && self.0.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(28));
        }
        work()
    }
}

// @test audit.full-disk
#[test]
fn a_full_disk_stops_nobody_and_the_gap_is_in_the_log() {
    let place = tempfile::tempdir().unwrap();
    let is_full = Arc::new(AtomicBool::new(false));
    let calls = Full(Arc::clone(&is_full));
    let directory = Arc::new(StateDirectory::open_with(place.path(), Box::new(calls)).unwrap());
    let audit = Audit::start(Arc::clone(&directory), settings()).unwrap();
    made(&audit, change("before"));
    is_full.store(true, Ordering::Relaxed);
    for number in 0..1500 {
        made(&audit, change(&number.to_string()));
    }
    is_full.store(false, Ordering::Relaxed);
    made(&audit, change("after"));
    drop(audit);
    let all = records(&directory);
    assert!(verify(&*directory, &[]).unwrap().is_intact());
    let gap = all.iter().find(|record| record.what == "gap").unwrap();
    assert!(gap.detail.contains("os error 28") || gap.detail.contains("No space"), "{gap:?}");
    let kept = all.iter().filter(|record| record.kind == RecordKind::Change).count() as u64;
    assert_eq!(kept + gap.count, 1502);
    assert!(kept > 1000 && all.iter().any(|record| record.what == "after"), "{kept}");
}

#[test]
fn syslog_gets_what_the_log_has() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("receiver");
    let receiver = UnixDatagram::bind(&path).unwrap();
    let directory = Arc::new(StateDirectory::open(&place.path().join("state")).unwrap());
    let syslog = Some(Syslog::new(Destination::Unix(path), "box"));
    let audit = Audit::start(Arc::clone(&directory), AuditSettings { syslog, ..settings() }).unwrap();
    made(&audit, change("told"));
    let mut buffer = [0; 8192];
    let bytes = receiver.recv(&mut buffer).unwrap();
    let text = std::str::from_utf8(&buffer[..bytes]).unwrap();
    let json = text.split_once(" - ").unwrap().1;
    assert_eq!(serde_json::from_str::<AuditRecord>(json).unwrap(), records(&directory)[0]);
}

/// What is told of it is a record that it does not take either.
#[test]
fn a_receiver_that_reads_nothing_does_not_fill_the_log() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("receiver");
    let _receiver = UnixDatagram::bind(&path).unwrap();
    let directory = Arc::new(StateDirectory::open(&place.path().join("state")).unwrap());
    let syslog = Some(Syslog::new(Destination::Unix(path), "box"));
    let audit = Audit::start(Arc::clone(&directory), AuditSettings { syslog, ..settings() }).unwrap();
    for at in 0..600 {
        made(&audit, change(&format!("change {at}")));
    }
    drop(audit);
    assert!(records(&directory).len() < 700, "{}", records(&directory).len());
}

fn log_file(place: &Path) -> std::path::PathBuf {
    let mut paths = std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path());
    paths.find(|path| path.extension().is_some_and(|end| end == "log")).unwrap()
}

/// `rm`, and `sed -i`, which gives the name to another file.
// @test audit.removed-file
#[test]
fn what_is_answered_is_in_the_log_though_its_file_was_removed_or_replaced() {
    for (what, is_replaced) in [("removed", false), ("replaced", true)] {
        let place = tempfile::tempdir().unwrap();
        let directory = Arc::new(StateDirectory::open(place.path()).unwrap());
        let (sender, told) = mpsc::channel();
        let tell = Box::new(move |text: &str| sender.send(text.to_owned()).unwrap());
        let audit = Audit::start(Arc::clone(&directory), AuditSettings { tell, ..settings() }).unwrap();
        made(&audit, change("one"));
        made(&audit, change("two"));
        let path = log_file(place.path());
        if is_replaced {
            let text = std::fs::read_to_string(&path).unwrap();
            let less: String =
                text.lines().filter(|line| !line.contains("one")).map(|line| format!("{line}\n")).collect();
            std::fs::write(place.path().join("sedx"), less).unwrap();
            std::fs::rename(place.path().join("sedx"), &path).unwrap();
        } else {
            std::fs::remove_file(&path).unwrap();
        }
        made(&audit, change("three"));
        let all: Vec<String> = records(&directory).into_iter().map(|record| record.what).collect();
        assert_eq!(all, ["began", "one", "two", what, "three"]);
        let text = told.recv().unwrap();
        assert!(text.contains(what) && text.contains("while the target ran"), "{text}");
        let found = verify(&*directory, &[KnownHead::of_target(audit.head())]).unwrap();
        assert_eq!(found.findings.len(), 1, "{found:?}");
        assert!(found.findings[0].what.contains(&format!("the target has found it so ({what})")), "{found:?}");
        let aside = std::fs::read_dir(place.path())
            .unwrap()
            .any(|entry| entry.unwrap().file_name().to_string_lossy().ends_with(".log.damaged-1"));
        assert_eq!(aside, is_replaced);
        drop(audit);
        // A file that is cut cannot be written again, and stays as it is.
        let audit = Audit::start(Arc::clone(&directory), settings()).unwrap();
        std::fs::write(&path, "").unwrap();
        made(&audit, change("four"));
        let all: Vec<String> = records(&directory).into_iter().map(|record| record.what).collect();
        assert_eq!(all, ["cut", "four"]);
    }
}

/// What was found of the files is not forgotten while the disk takes nothing.
#[test]
fn a_file_that_was_removed_while_the_disk_is_full_is_written_again_later() {
    let place = tempfile::tempdir().unwrap();
    let is_full = Arc::new(AtomicBool::new(false));
    let calls = Full(Arc::clone(&is_full));
    let directory = Arc::new(StateDirectory::open_with(place.path(), Box::new(calls)).unwrap());
    let audit = Audit::start(Arc::clone(&directory), settings()).unwrap();
    made(&audit, change("one"));
    is_full.store(true, Ordering::Relaxed);
    std::fs::remove_file(log_file(place.path())).unwrap();
    made(&audit, change("two"));
    is_full.store(false, Ordering::Relaxed);
    made(&audit, change("three"));
    let all: Vec<String> = records(&directory).into_iter().map(|record| record.what).collect();
    assert_eq!(all[..5], ["began", "one", "removed", "two", "three"]);
}

#[test]
fn files_that_others_may_read_or_change_and_a_missing_head_are_warned_of() {
    let place = tempfile::tempdir().unwrap();
    let directory = Arc::new(StateDirectory::open(place.path()).unwrap());
    made(&Audit::start(Arc::clone(&directory), settings()).unwrap(), change("one"));
    let mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    let warned = || {
        let (sender, told) = mpsc::channel();
        let warn = Box::new(move |text: &str| sender.send(text.to_owned()).unwrap());
        drop(Audit::start(Arc::clone(&directory), AuditSettings { warn, ..settings() }).unwrap());
        told.iter().collect::<Vec<String>>()
    };
    assert_eq!(warned(), Vec::<String>::new());
    mode(&log_file(place.path()), 0o644);
    mode(&place.path().join("audit-head"), 0o666);
    assert!(verify(&*directory, &[]).unwrap().findings[0].what.contains("mode 0666"));
    let told = warned();
    assert!(told.len() == 2 && told[0].contains("others may read audit-0"), "{told:?}");
    assert!(told[1].contains("others may change audit-head"), "{told:?}");
    mode(&log_file(place.path()), 0o600);
    std::fs::remove_file(place.path().join("audit-head")).unwrap();
    let told = warned();
    assert!(told.len() == 1 && told[0].contains("head-missing"), "{told:?}");
}
