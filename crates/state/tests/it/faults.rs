//! Each system call fails, once or from then on, and the process ends at each of them: what the
//! caller is told is what a power cut leaves.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ebof_state::{
    Calls, Existing, FileMode, OwnedBy, Place, StateDirectory, StateError, StoreError, SystemCall, WriteError,
    store_file, store_file_with,
};

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It does nothing.
    Before,
    /// It does what it was asked for, and answers with an error.
    After,
    /// It does nothing, and neither does any call after it.
    FromThenOn,
    /// It does what it was asked for and answers with an error, and so does every call after it.
    AfterFromThenOn,
}

/// A medium that fails, and what a power cut would leave of the directory.
#[derive(Debug, Default)]
struct Medium {
    directory: PathBuf,
    /// When, counted from now on, and how.
    fault: Option<(usize, Fault)>,
    calls: usize,
    seen: Vec<(SystemCall, PathBuf)>,
    /// The files when their names were put on the medium last.
    durable: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, Debug, Default)]
struct Failing(Arc<Mutex<Medium>>);

impl Failing {
    fn arm(&self, at: usize, fault: Fault) {
        let mut medium = self.0.lock().unwrap();
        (medium.fault, medium.calls) = (Some((at, fault)), 0);
    }

    fn mend(&self) {
        self.0.lock().unwrap().fault = None;
    }

    /// Whether the fault came.
    fn has_failed(&self) -> bool {
        let medium = self.0.lock().unwrap();
        medium.fault.is_some_and(|(at, _)| medium.calls > at)
    }

    /// The content after a power cut.
    fn durable(&self, name: &str) -> Option<Vec<u8>> {
        self.0.lock().unwrap().durable.get(name).cloned()
    }
}

impl Calls for Failing {
    fn make(&self, call: SystemCall, path: &Path, work: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let mut medium = self.0.lock().unwrap();
        let at = medium.calls;
        medium.calls += 1;
        medium.seen.push((call, path.to_owned()));
        let fails = match medium.fault {
            Some((when, fault @ (Fault::FromThenOn | Fault::AfterFromThenOn))) if at >= when => Some(fault),
            Some((when, fault)) if at == when => Some(fault),
            _ => None,
        };
        if matches!(fails, Some(Fault::Before | Fault::FromThenOn)) {
            return Err(io::Error::from_raw_os_error(5));
        }
        work()?;
        if fails.is_some() {
            return Err(io::Error::from_raw_os_error(5));
        }
        if call == SystemCall::SyncDirectory && path == medium.directory {
            medium.durable = files(path);
        }
        Ok(())
    }
}

fn files(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())).collect()
}

/// A directory, with a file unless `content` is `None`, whose calls fail from now on as told.
fn directory(content: Option<&[u8]>) -> (tempfile::TempDir, Failing, StateDirectory) {
    let base = tempfile::tempdir().unwrap();
    let calls = Failing::default();
    calls.0.lock().unwrap().directory = base.path().to_owned();
    let state = StateDirectory::open_with(base.path(), Box::new(calls.clone())).unwrap();
    state.replace("other", b"other").unwrap();
    content.into_iter().for_each(|content| state.replace("file", content).unwrap());
    (base, calls, state)
}

/// A change of `file`, and what it makes of it.
type Change = (Option<&'static [u8]>, fn(&StateDirectory) -> Result<(), StoreError>, Option<&'static [u8]>);

const CHANGES: [Change; 3] = [
    (Some(b"old"), |state| state.replace("file", b"new"), Some(b"new")),
    (None, |state| state.replace("file", b"new"), Some(b"new")),
    (Some(b"old"), |state| state.remove("file").map(drop), None),
];

/// What is in `file`, and what a power cut would leave there.
fn content(calls: &Failing, state: &StateDirectory) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let header = |bytes: Vec<u8>| bytes.split(|byte| *byte == b'\n').nth(1).unwrap().to_vec();
    (state.read("file").unwrap(), calls.durable("file").map(header))
}

// @test data.stored-outcome
#[test]
fn after_one_error_it_is_known_what_is_stored() {
    for (before, change, after) in CHANGES {
        for fault in [Fault::Before, Fault::After] {
            for at in 0.. {
                let (_base, calls, state) = directory(before);
                calls.arm(at, fault);
                let outcome = change(&state);
                if !calls.has_failed() {
                    assert!(at > 1, "no call has failed");
                    break;
                }
                let expected = if outcome.is_ok() { after } else { before }.map(<[u8]>::to_vec);
                let what = format!("{before:?} to {after:?}, call {at} fails ({fault:?}): {outcome:?}");
                assert_eq!(content(&calls, &state), (expected.clone(), expected), "{what}");
                assert!(matches!(outcome, Ok(()) | Err(StoreError::NotStored(_))), "{what}");
                calls.mend();
                state.replace("file", b"later").unwrap();
                assert_eq!(state.names().unwrap(), ["file", "other"], "{what}");
            }
        }
    }
}

// @test data.stored-outcome
#[test]
fn on_a_medium_that_fails_for_good_an_unknown_outcome_is_told_and_nothing_else_is_stored() {
    let mut unknown = 0;
    for (before, change, after) in CHANGES {
        for fault in [Fault::FromThenOn, Fault::AfterFromThenOn] {
            for at in 0.. {
                let (_base, calls, state) = directory(before);
                calls.arm(at, fault);
                let outcome = change(&state);
                if !calls.has_failed() {
                    break;
                }
                let error = outcome.unwrap_err();
                let (before, after) = (before.map(<[u8]>::to_vec), after.map(<[u8]>::to_vec));
                let what = format!("{before:?} to {after:?}, calls fail from {at} on ({fault:?}): {error}");
                if matches!(error, StoreError::Unknown { .. }) {
                    unknown += 1;
                    assert!(error.to_string().contains("it is not known whether"), "{what}");
                    let later = state.replace("other", b"more").unwrap_err();
                    assert!(matches!(later, StoreError::NotStored(StateError::Unsettled { .. })), "{what}, {later}");
                    let removed = state.remove("other").unwrap_err();
                    assert!(matches!(removed, StoreError::NotStored(StateError::Unsettled { .. })), "{what}");
                    assert_eq!(state.read("other").unwrap().unwrap(), b"other", "{what}");
                } else {
                    assert_eq!(content(&calls, &state), (before.clone(), before.clone()), "{what}");
                }
                // The medium is well again: the next change makes it known.
                calls.mend();
                state.replace("other", b"more").unwrap();
                assert_eq!(content(&calls, &state), (before.clone(), before), "{what}");
                assert_eq!(state.read("other").unwrap().unwrap(), b"more", "{what}");
            }
        }
    }
    assert!(unknown > 4, "{unknown} outcomes were unknown");
}

// @test data.stored-outcome
#[test]
fn a_process_that_is_killed_at_any_call_leaves_the_old_content_or_the_new_one() {
    for (before, change, after) in CHANGES {
        let mut found = Vec::new();
        for at in 0.. {
            let (base, calls, state) = directory(before);
            calls.arm(at, Fault::FromThenOn);
            let _nobody_hears_it = change(&state);
            let is_killed = calls.has_failed();
            drop(state);
            let state = StateDirectory::open(base.path()).unwrap();
            found.push(state.read("file").unwrap());
            assert_eq!(state.read("other").unwrap().unwrap(), b"other");
            state.replace("file", b"later").unwrap();
            assert_eq!(state.names().unwrap(), ["file", "other"]);
            if !is_killed {
                break;
            }
        }
        let (before, after) = (before.map(<[u8]>::to_vec), after.map(<[u8]>::to_vec));
        assert!(found.iter().all(|content| *content == before || *content == after), "{found:?}");
        assert_eq!(found.last(), Some(&after));
    }
}

// @test data.stored-outcome
#[test]
fn a_directory_is_stored_with_all_parents_that_were_made_for_it() {
    for at in 0.. {
        let base = tempfile::tempdir().unwrap();
        let base_path = base.path().canonicalize().unwrap();
        let path = base_path.join("some/where/state");
        let calls = Failing::default();
        calls.arm(at, Fault::Before);
        let first = StateDirectory::open_with(&path, Box::new(calls.clone()));
        let is_last = !calls.has_failed();
        assert_eq!(first.is_ok(), is_last, "call {at} fails");
        drop(first);
        // Again, after a start that failed or was killed there.
        let again = Failing::default();
        drop(StateDirectory::open_with(&path, Box::new(again.clone())).unwrap());
        let seen = if is_last { calls } else { again }.0.lock().unwrap().seen.clone();
        for made in ["some/where/state", "some/where", "some"].map(|made| base_path.join(made)) {
            let synced = (SystemCall::SyncDirectory, made.parent().unwrap().to_owned());
            let is_later = |(call, path): &(SystemCall, PathBuf)| (*call, path) == (SystemCall::MakeDirectory, &made);
            let begin = seen.iter().position(is_later).unwrap_or_default();
            assert!(seen[begin..].contains(&synced), "call {at} failed before: {} is synced: {seen:?}", made.display());
        }
        if is_last {
            break;
        }
    }
}

/// What is known of a change of a file without a first line of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Stored,
    NotStored,
    Unknown,
}

/// Replaces `file`, as those do it who store it there.
type Replace = fn(&Path, Failing, &[u8]) -> Known;

fn in_a_place(directory: &Path, calls: Failing, bytes: &[u8]) -> Known {
    let place = Place::open(directory, OwnedBy::Me).unwrap().unwrap().with_calls(Box::new(calls));
    match place.replace("file", 0o644, bytes) {
        Ok(()) => Known::Stored,
        Err(StoreError::NotStored(_)) => Known::NotStored,
        Err(StoreError::Unknown { .. }) => Known::Unknown,
    }
}

fn where_the_user_says(directory: &Path, calls: Failing, bytes: &[u8]) -> Known {
    of_the_user(directory, calls, Existing::Replaced, bytes)
}

fn of_the_user(directory: &Path, calls: Failing, existing: Existing, bytes: &[u8]) -> Known {
    let path = directory.join("file");
    match store_file_with(&path, FileMode::Exactly(0o644), existing, bytes, Box::new(calls)) {
        Ok(()) => Known::Stored,
        Err(WriteError::NotStored(_)) => Known::NotStored,
        Err(WriteError::Unknown(_)) => Known::Unknown,
    }
}

#[test]
fn records_and_files_of_users_are_stored_not_stored_or_unknown() {
    let replacements: [Replace; 2] = [in_a_place, where_the_user_says];
    for replace in replacements {
        let mut all = Vec::new();
        for fault in [Fault::Before, Fault::After, Fault::FromThenOn, Fault::AfterFromThenOn] {
            for at in 0.. {
                let base = tempfile::tempdir().unwrap();
                let calls = Failing::default();
                calls.0.lock().unwrap().directory = base.path().to_owned();
                assert_eq!(replace(base.path(), calls.clone(), b"old"), Known::Stored);
                calls.arm(at, fault);
                let known = replace(base.path(), calls.clone(), b"new");
                if !calls.has_failed() {
                    assert!(at > 3 && known == Known::Stored, "{at}: {known:?}");
                    break;
                }
                let found = std::fs::read(base.path().join("file")).unwrap();
                let what = format!("call {at} fails ({fault:?}): {known:?}");
                match known {
                    Known::Stored => {
                        assert_eq!((&*found, calls.durable("file").unwrap()), (&b"new"[..], b"new".to_vec()), "{what}");
                    }
                    Known::NotStored => {
                        assert_eq!((&*found, calls.durable("file").unwrap()), (&b"old"[..], b"old".to_vec()), "{what}");
                    }
                    Known::Unknown => assert!(matches!(fault, Fault::FromThenOn | Fault::AfterFromThenOn), "{what}"),
                }
                calls.mend();
                assert_eq!(replace(base.path(), calls.clone(), b"later"), Known::Stored, "{what}");
                assert_eq!(files(base.path()), BTreeMap::from([("file".to_owned(), b"later".to_vec())]), "{what}");
                all.push(known);
            }
        }
        for known in [Known::Stored, Known::NotStored, Known::Unknown] {
            assert!(all.contains(&known), "{known:?} never comes: {all:?}");
        }
    }
}

#[test]
fn a_file_of_the_user_that_is_there_stays_unless_it_is_to_be_replaced() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().join("file");
    for fault in [Fault::Before, Fault::After] {
        for at in 0.. {
            let _none = std::fs::remove_file(&path);
            let calls = Failing::default();
            calls.0.lock().unwrap().directory = base.path().to_owned();
            calls.arm(at, fault);
            match of_the_user(base.path(), calls.clone(), Existing::Kept, b"new") {
                Known::Stored => assert_eq!(calls.durable("file").unwrap(), b"new"),
                known => assert!(known == Known::NotStored && !path.exists(), "call {at}, {fault:?}: {known:?}"),
            }
            if !calls.has_failed() {
                break;
            }
        }
        let again = store_file(&path, FileMode::AtMost(0o600), Existing::Kept, b"other").unwrap_err();
        assert!(matches!(again, WriteError::NotStored(error) if error.kind() == io::ErrorKind::AlreadyExists));
        assert_eq!(files(base.path()), BTreeMap::from([("file".to_owned(), b"new".to_vec())]));
    }
}

#[test]
fn what_is_set_aside_has_one_of_both_names() {
    for fault in [Fault::Before, Fault::After, Fault::FromThenOn, Fault::AfterFromThenOn] {
        for at in 0.. {
            let (base, calls, state) = directory(Some(b"old"));
            calls.arm(at, fault);
            let outcome = state.set_aside("file");
            if !calls.has_failed() {
                break;
            }
            let there = base.path().join("file").exists();
            let what = format!("call {at} fails ({fault:?}): {outcome:?}");
            match outcome {
                Ok(aside) => assert!(!there && aside.exists() && calls.durable("file").is_none(), "{what}"),
                Err(StoreError::NotStored(_)) => assert!(there && calls.durable("file").is_some(), "{what}"),
                Err(StoreError::Unknown { .. }) => {
                    assert!(matches!(fault, Fault::FromThenOn | Fault::AfterFromThenOn), "{what}");
                    let later = state.replace("other", b"more").unwrap_err();
                    assert!(matches!(later, StoreError::NotStored(StateError::Unsettled { .. })), "{what}");
                }
            }
            calls.mend();
            state.replace("other", b"more").unwrap();
        }
    }
}
