//! Content is replaced as a whole.

use std::os::unix::fs::PermissionsExt as _;

use ebof_state::{BYTES_MAX, StateDirectory, StateError, StoreError};

fn mode(path: &std::path::Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn what_was_stored_is_there_after_the_next_start() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().join("some/where");
    let state = StateDirectory::open(&path).unwrap();
    assert_eq!(state.read("accounts").unwrap(), None);
    state.replace("accounts", b"one").unwrap();
    state.replace("events", b"").unwrap();
    state.replace("accounts", &[0xff; 100_000]).unwrap();
    drop(state);
    let state = StateDirectory::open(&path).unwrap();
    assert_eq!(state.read("accounts").unwrap().unwrap(), [0xff; 100_000]);
    assert_eq!(state.read("events").unwrap().unwrap(), b"");
    assert_eq!(state.names().unwrap(), ["accounts", "events"]);
    assert_eq!((mode(&path), mode(&state.path_of("accounts"))), (0o700, 0o600));
    assert!(state.remove("events").unwrap());
    assert!(!state.remove("events").unwrap());
    assert_eq!(state.read("events").unwrap(), None);
}

/// What is there at each moment of a replacement that is killed: the old content.
#[test]
fn an_unfinished_replacement_counts_for_nothing() {
    let base = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(base.path()).unwrap();
    state.replace("accounts", b"old").unwrap();
    std::fs::write(base.path().join(".accounts.new"), "ebof-sta").unwrap();
    drop(state);
    let state = StateDirectory::open(base.path()).unwrap();
    assert_eq!(state.read("accounts").unwrap().unwrap(), b"old");
    assert_eq!(state.names().unwrap(), ["accounts"]);
    state.replace("accounts", b"new").unwrap();
    assert_eq!(state.read("accounts").unwrap().unwrap(), b"new");
    assert!(!base.path().join(".accounts.new").exists());
}

#[test]
fn names_and_sizes_have_limits() {
    let base = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(base.path()).unwrap();
    for name in ["", ".lock", "../accounts", "a/b", "a b", "1st", "\0", &"a".repeat(65)] {
        assert!(
            matches!(state.replace(name, b"").unwrap_err(), StoreError::NotStored(StateError::Name { .. })),
            "{name}"
        );
        assert!(matches!(state.read(name).unwrap_err(), StateError::Name { .. }), "{name}");
    }
    state.replace(&"a".repeat(64), b"").unwrap();
    let most = vec![b'm'; BYTES_MAX];
    state.replace("most", &most).unwrap();
    assert!(state.read("most").unwrap().unwrap() == most);
    let more = [&most[..], b"m"].concat();
    assert!(matches!(state.replace("most", &more).unwrap_err(), StoreError::NotStored(StateError::TooLarge { .. })));
    assert!(state.read("most").unwrap().unwrap() == most);
    std::fs::write(state.path_of("huge"), vec![b'm'; BYTES_MAX + 100]).unwrap();
    assert!(matches!(state.read("huge").unwrap_err(), StateError::TooLarge { .. }));
}

#[test]
fn threads_that_replace_the_same_file_leave_one_of_the_contents() {
    let base = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(base.path()).unwrap();
    std::thread::scope(|scope| {
        for letter in *b"abcd" {
            let state = &state;
            scope.spawn(move || {
                for length in 1..20 {
                    state.replace("shared", &vec![letter; length * 100]).unwrap();
                    let seen = state.read("shared").unwrap().unwrap();
                    assert!(seen.iter().all(|byte| *byte == seen[0]));
                }
            });
        }
    });
    assert_eq!(state.read("shared").unwrap().unwrap().len(), 1900);
}
