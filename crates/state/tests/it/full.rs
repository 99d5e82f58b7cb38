//! A file system without room: the old content stays.

use std::path::Path;
use std::process::{Command, Stdio};

use ebof_state::{StateDirectory, StateError, StoreError};

fn fill(state: &StateDirectory) {
    state.replace("accounts", b"old").unwrap();
    let refused = state.replace("accounts", &vec![b'n'; 2 << 20]).unwrap_err();
    assert!(matches!(refused, StoreError::NotStored(StateError::Full { bytes: 2_097_152, .. })), "{refused}");
    let text = refused.to_string();
    let expected = format!("there is no room to store {} (2097152 bytes)", state.path_of("accounts").display());
    assert!(text.starts_with(&expected), "{text}");
    assert!(refused.advice().starts_with("make room"));
    assert_eq!(state.read("accounts").unwrap().unwrap(), b"old");
    let left: Vec<_> = std::fs::read_dir(state.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "no piece of the new content takes room: {left:?}");
    state.replace("accounts", b"small").unwrap();
    assert_eq!(state.read("accounts").unwrap().unwrap(), b"small");
}

#[test]
fn a_full_file_system_leaves_the_old_content() {
    let directory = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs"])
        .arg(directory.path())
        .stderr(Stdio::null())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        println!("SKIPPED: no permission to mount a small file system");
        return;
    }
    let result = std::panic::catch_unwind(|| fill(&StateDirectory::open(directory.path()).unwrap()));
    let unmounted = Command::new("umount").arg(directory.path()).status();
    assert!(unmounted.unwrap().success());
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Names the directory in which this program, started again, meets the limit.
const LIMITED: &str = "EBOF_TEST_STATE_LIMITED";

/// Not a test of its own: the process of the next test.
#[test]
fn meets_a_limit_for_another_test() {
    let Some(path) = std::env::var_os(LIMITED) else { return };
    fill(&StateDirectory::open(Path::new(&path)).unwrap());
}

/// As a quota, and for those who are not root: beyond the limit of a process a write fails with
/// EFBIG.
#[test]
fn a_limit_on_file_sizes_leaves_the_old_content() {
    let directory = tempfile::tempdir().unwrap();
    // A signal that is ignored stays so across exec.
    let script = "trap '' XFSZ; ulimit -f 1024; exec \"$0\" --exact full::meets_a_limit_for_another_test";
    let mut run = Command::new("bash");
    run.args(["-c", script]).arg(std::env::current_exe().unwrap());
    let run = run.env(LIMITED, directory.path()).output().unwrap();
    assert!(run.status.success(), "{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
}
