//! The keys of hosts that a running target was given, in the state directory: `keys.json`.
//!
//! Owns where they are, and what a start does where the file is damaged or missing: without its key
//! a host would be anybody who gives its name, so that the target does not start.

use std::sync::Arc;

use ebof_cli::Failure;
use ebof_manage::api::ConfigStoreError;
use ebof_server::{KeyStore, StoredKeys};
use ebof_state::{StateDirectory, StateError, StoreError};
use tracing::warn;

use crate::serve::made;

/// The file.
const FILE: &str = "keys.json";

/// Stores keys in the state directory.
struct KeyFile(Arc<StateDirectory>);

impl KeyStore for KeyFile {
    fn replace(&self, content: &[u8]) -> Result<(), ConfigStoreError> {
        self.0.replace(FILE, content).map_err(|error| match error {
            StoreError::NotStored(_) => ConfigStoreError::NotStored(error.into()),
            StoreError::Unknown { .. } => ConfigStoreError::Unknown(error.into()),
        })?;
        note(&self.0);
        Ok(())
    }
}

/// Notes that there are keys, so that a start without them does not go on.
fn note(directory: &StateDirectory) {
    if let Err(error) = made::note(directory, &[FILE]) {
        warn!("that hosts have keys in {FILE} is not noted, and a start without that file would not miss it: {error}");
    }
}

/// Opens the keys of a state directory. Without those that were there before, it is refused, unless
/// `create` asks for a target without them.
///
/// # Errors
/// They are damaged, missing, or cannot be read.
pub(crate) fn open(directory: &Arc<StateDirectory>, create: bool) -> anyhow::Result<StoredKeys> {
    let path = directory.path_of(FILE).display().to_string();
    let damaged = |message: String| {
        let advice = format!(
            "restore it from a backup; or move it away (`mv {path} {path}.damaged`): `ebof serve --create` starts without the \
             keys that were stored then, and their hosts need new ones (`ebof target add key HOST`)"
        );
        Failure::new("state", format!("{path}: {message}"), advice)
    };
    let created = "`ebof serve --create` starts without the keys that were stored, and their hosts need new ones (`ebof \
                   target add key HOST`)";
    made::check(directory, &[FILE], create, created)?;
    let content = match directory.read_private(FILE) {
        Ok(content) => content,
        Err(error @ StateError::Damaged { .. }) => return Err(damaged(error.to_string()).into()),
        Err(error) => {
            return Err(Failure::new("state", format!("the keys of hosts: {error}"), error.advice()).into());
        }
    };
    let are_there = content.is_some();
    let keys = StoredKeys::open(content, Box::new(KeyFile(Arc::clone(directory))));
    let keys = keys.map_err(|error| damaged(error.to_string()))?;
    if are_there {
        note(directory);
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(directory: &tempfile::TempDir) -> Arc<StateDirectory> {
        Arc::new(StateDirectory::open(&directory.path().join("state")).unwrap())
    }

    const KEYS: &[u8] = br#"{"version":1,"next":2,"keys":[{"number":1,"host":"nqn.2014-08.org.example:a","kind":"dhchap","since_s":1,"key":"DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:"}]}"#;

    // @test keys.stored
    #[test]
    fn a_start_without_the_keys_that_were_there_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let state = state(&directory);
        assert_eq!(open(&state, false).unwrap().count(), 0);
        assert!(state.names().unwrap().is_empty(), "nothing is made before there is a key");
        KeyFile(Arc::clone(&state)).replace(KEYS).unwrap();
        assert_eq!(open(&state, false).unwrap().count(), 1);
        let mode = std::os::unix::fs::MetadataExt::mode(&state.path_of(FILE).metadata().unwrap());
        assert_eq!(mode & 0o777, 0o600);
        state.remove(FILE).unwrap();
        let error = open(&state, false).unwrap_err().to_string();
        assert!(error.contains("keys.json is missing"), "{error}");
        assert_eq!(open(&state, true).unwrap().count(), 0);
        // A crash between the two files.
        state.remove("made").unwrap();
        state.replace(FILE, KEYS).unwrap();
        open(&state, false).unwrap();
        state.remove(FILE).unwrap();
        assert!(open(&state, false).is_err());
    }

    #[test]
    fn keys_that_others_may_read_are_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let state = state(&directory);
        KeyFile(Arc::clone(&state)).replace(KEYS).unwrap();
        let path = state.path_of(FILE);
        let set_mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        for mode in [0o644, 0o640, 0o602] {
            set_mode(mode);
            let error = open(&state, false).unwrap_err().to_string();
            assert!(error.contains(&format!("chmod 600 {}", path.display())), "{error}");
            assert!(error.contains(&format!("mode {mode:o}")) && !error.contains("AAEC"), "{error}");
        }
        set_mode(0o400);
        assert_eq!(open(&state, false).unwrap().count(), 1);
    }

    #[test]
    fn damaged_keys_are_told_without_a_byte_of_them_and_stay() {
        let directory = tempfile::tempdir().unwrap();
        let state = state(&directory);
        for damaged in [&KEYS[..KEYS.len() - 30], b"", b"{\"version\": 7}", &KEYS.repeat(2)] {
            state.replace(FILE, damaged).unwrap();
            let stored = std::fs::read(state.path_of(FILE)).unwrap();
            let error = format!("{:#}", open(&state, false).unwrap_err());
            assert!(error.contains("keys.json") && error.contains("damaged") && !error.contains("AAEC"), "{error}");
            assert_eq!(std::fs::read(state.path_of(FILE)).unwrap(), stored);
        }
    }
}
