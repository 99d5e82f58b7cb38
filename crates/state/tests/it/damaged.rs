//! Files that are not what was stored: the error names the file and what is wrong with it, and
//! nothing is changed unless somebody asks for it.

use ebof_state::{Damage, SET_ASIDE_MAX, StateDirectory, StateError, StoreError};

fn damage(state: &StateDirectory, name: &str) -> (Damage, String) {
    let error = state.read(name).unwrap_err();
    let text = format!("{error}\n{}", error.advice());
    match error {
        StateError::Damaged { path, damage } => {
            assert_eq!(path, state.path_of(name));
            (damage, text)
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_damaged_file_is_told_with_what_is_wrong_and_left_as_it_is() {
    let base = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(base.path()).unwrap();
    state.replace("accounts", b"name = \"d0\"\n").unwrap();
    let path = state.path_of("accounts");
    let good = std::fs::read(&path).unwrap();
    let set = |bytes: &[u8]| std::fs::write(&path, bytes).unwrap();

    set(&good[..good.len() - 3]);
    let (cut, text) = damage(&state, "accounts");
    assert_eq!(cut, Damage::Length { found: 9, expected: 12 });
    let expected = format!("the state file {} is damaged: it has 9 bytes after its first line, and 12", path.display());
    assert!(text.starts_with(&expected), "{text}");
    assert!(text.contains("restore it from a backup"), "{text}");
    assert_eq!(std::fs::read(&path).unwrap(), good[..good.len() - 3], "reading changes nothing");

    set(b"");
    assert_eq!(damage(&state, "accounts").0, Damage::Empty);
    let mut flipped = good.clone();
    *flipped.last_mut().unwrap() ^= 1;
    set(&flipped);
    assert!(matches!(damage(&state, "accounts").0, Damage::Checksum { .. }));
    // As a file system leaves a file that it has not written before a power cut.
    set(&vec![0; good.len()]);
    assert_eq!(damage(&state, "accounts").0, Damage::NoHeader);
    set(&good);
    assert_eq!(state.read("accounts").unwrap().unwrap(), b"name = \"d0\"\n");
}

#[test]
fn damaged_files_are_set_aside_under_names_of_their_own() {
    let base = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(base.path()).unwrap();
    assert!(state.set_aside("accounts").unwrap_err().to_string().contains("No such file"));
    for number in 1..=SET_ASIDE_MAX {
        std::fs::write(state.path_of("accounts"), format!("damaged {number}")).unwrap();
        let aside = state.set_aside("accounts").unwrap();
        assert_eq!(aside, state.path_of(&format!("accounts.damaged-{number}")));
        assert_eq!(std::fs::read_to_string(aside).unwrap(), format!("damaged {number}"));
        assert_eq!(state.read("accounts").unwrap(), None);
    }
    std::fs::write(state.path_of("accounts"), "damaged again").unwrap();
    let refused = state.set_aside("accounts").unwrap_err();
    assert!(matches!(refused, StoreError::NotStored(StateError::TooManyAside { .. })));
    assert_eq!(std::fs::read_to_string(state.path_of("accounts")).unwrap(), "damaged again");
    assert_eq!(std::fs::read_to_string(state.path_of("accounts.damaged-1")).unwrap(), "damaged 1");
}

#[test]
fn what_is_no_regular_file_is_not_read() {
    let base = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(base.path()).unwrap();
    state.replace("real", b"1").unwrap();
    std::os::unix::fs::symlink(state.path_of("real"), state.path_of("link")).unwrap();
    std::fs::create_dir(state.path_of("folder")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(state.path_of("pipe")).status().unwrap();
    assert!(made.success());
    for (name, found) in [("link", "a symbolic link"), ("folder", "a directory"), ("pipe", "a pipe")] {
        let text = state.read(name).unwrap_err().to_string();
        assert!(text.contains(&format!("is {found}, and should be a regular file")), "{text}");
    }
    // The link is replaced, not what it leads to.
    state.replace("link", b"2").unwrap();
    assert_eq!(state.read("real").unwrap().unwrap(), b"1");
    assert_eq!(state.read("link").unwrap().unwrap(), b"2");
}
