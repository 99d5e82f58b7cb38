//! Who may have a state directory: one process, of the user whose it is.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use ebof_state::{StateDirectory, StateError};

/// Names the directory that this program, started again, is to keep.
const KEEP: &str = "EBOF_TEST_STATE_KEEP";

/// Not a test of its own: the other process of the next test.
#[test]
fn keeps_a_directory_for_another_test() {
    let Some(path) = std::env::var_os(KEEP) else { return };
    let _state = StateDirectory::open(Path::new(&path)).unwrap();
    println!("\nhas it");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).unwrap();
}

#[test]
fn a_second_process_is_told_who_has_the_directory() {
    let base = tempfile::tempdir().unwrap();
    let mut other = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "owners::keeps_a_directory_for_another_test", "--nocapture"])
        .env(KEEP, base.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(other.stdout.take().unwrap()).lines();
    assert!(output.any(|line| line.unwrap() == "has it"));
    let refused = StateDirectory::open(base.path()).unwrap_err();
    let text = refused.to_string();
    let expected = format!("the state directory {} belongs to process {}", base.path().display(), other.id());
    assert_eq!(text, expected);
    assert!(refused.advice().contains("directories of their own"));
    // As after SIGKILL: the lock goes with its process.
    other.kill().unwrap();
    other.wait().unwrap();
    let state = StateDirectory::open(base.path()).unwrap();
    let again = StateDirectory::open(base.path()).unwrap_err().to_string();
    assert!(again.contains(&format!("process {}", std::process::id())), "{again}");
    drop(state);
    StateDirectory::open(base.path()).unwrap();
}

#[test]
fn directories_of_others_and_those_that_others_may_write_are_refused() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().join("state");
    drop(StateDirectory::open(&path).unwrap());
    for mode in [0o770, 0o707, 0o1777] {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        let refused = StateDirectory::open(&path).unwrap_err();
        assert!(matches!(refused, StateError::Mode { .. }), "{refused}");
        assert!(refused.advice().starts_with("`chmod go-w "));
    }
    // systemd makes them with this mode; the files are readable for the owner only.
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    let state = StateDirectory::open(&path).unwrap();
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can give files to another user");
        return;
    }
    state.replace("accounts", b"1").unwrap();
    chown(state.path_of("accounts"), Some(65534), None).unwrap();
    let refused = state.read("accounts").unwrap_err();
    assert!(matches!(refused, StateError::Owner { owner: 65534, user: 0, .. }), "{refused}");
    drop(state);
    chown(&path, Some(65534), None).unwrap();
    let refused = StateDirectory::open(&path).unwrap_err();
    let expected = format!("{} belongs to user 65534, and this process runs as user 0", path.display());
    assert_eq!(refused.to_string(), expected);
    assert!(refused.advice().starts_with("give it to that user (`chown -R 0 "));
}

#[test]
fn a_symbolic_link_leads_to_the_directory_unless_a_stranger_made_it() {
    let base = tempfile::tempdir().unwrap();
    let (real, link) = (base.path().join("private"), base.path().join("link"));
    std::fs::create_dir(&real).unwrap();
    symlink(&real, &link).unwrap();
    let state = StateDirectory::open(&link).unwrap();
    state.replace("accounts", b"1").unwrap();
    assert!(real.join("accounts").exists());
    drop(state);
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can give files to another user");
        return;
    }
    std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
    assert!(matches!(StateDirectory::open(&link).unwrap_err(), StateError::Owner { owner: 65534, .. }));
}

#[test]
fn something_else_than_a_directory_is_told() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().join("state");
    std::fs::write(&path, "notes").unwrap();
    let text = StateDirectory::open(&path).unwrap_err().to_string();
    assert!(text.contains("is something else, and should be a directory"), "{text}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "notes");
    let below = StateDirectory::open(&path.join("below")).unwrap_err().to_string();
    assert!(below.contains("should be a directory"), "{below}");
}
