//! The accounts in the state directory, and the first one: its password is in a file that only the
//! target's user may read, until it is changed.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use ebof_access::{Access, Keep, KeepError};
use ebof_cli::Failure;
use ebof_clock::Clock;
use ebof_state::{StateDirectory, StateError, StoreError};
use tracing::warn;

/// The file with accounts and settings.
pub(crate) const FILE: &str = "accounts.json";

/// The file with the password of the first administrator. Its first line is the state directory's.
const INITIAL_FILE: &str = "initial-password";

/// The user name of the first administrator.
pub(crate) const FIRST_NAME: &str = "admin";

/// Accounts, and how the first administrator gets in.
pub(crate) struct OpenedAccounts {
    pub(crate) access: Arc<Access>,
    /// The file with the password, which is still to be changed.
    pub(crate) initial_password: Option<PathBuf>,
}

/// Stores accounts in the state directory.
struct Stored(Arc<StateDirectory>);

impl Keep for Stored {
    fn keep(&self, text: &str) -> Result<(), KeepError> {
        self.0.replace(FILE, text.as_bytes()).map_err(kept_error)?;
        // It is worth nothing any more. Where it cannot be removed now, the next start does it.
        if !has_first_password(text)
            && let Err(error) = self.0.remove(INITIAL_FILE)
        {
            warn!("the first password's file stays: {error}");
        }
        Ok(())
    }
}

/// As those hear it who have something stored.
pub(super) fn kept_error(error: StoreError) -> KeepError {
    match error {
        StoreError::NotStored(_) => KeepError::NotStored(std::io::Error::other(error)),
        StoreError::Unknown { .. } => KeepError::Unknown(std::io::Error::other(error)),
    }
}

/// Whether the first administrator has the password of the file, in accounts as they are stored.
fn has_first_password(text: &str) -> bool {
    let stored: Option<serde_json::Value> = serde_json::from_str(text).ok();
    let accounts = stored.as_ref().and_then(|stored| stored["accounts"].as_array());
    let first = |account: &serde_json::Value| account["name"] == FIRST_NAME && account["must_change_password"] == true;
    accounts.is_none_or(|accounts| accounts.iter().any(first))
}

/// Opens the accounts of a state directory. Where there is no administrator, one is made.
///
/// # Errors
/// They are damaged, or cannot be stored: a target is not managed over the network then.
pub(crate) fn open(state: &Arc<StateDirectory>) -> anyhow::Result<OpenedAccounts> {
    let path = state.path_of(FILE).display().to_string();
    let damaged = |message: String| {
        let advice = format!(
            "mend it, or restore it from a backup; or move it away (`mv {path} {path}.damaged`): `ebof serve --create` makes the \
             account {FIRST_NAME} anew then, and the others are gone; without --https the target needs none"
        );
        Failure::new("state", format!("{path}: {message}"), advice)
    };
    let text = match state.read(FILE) {
        Ok(bytes) => bytes.map(String::from_utf8).transpose().map_err(|error| damaged(error.to_string()))?,
        Err(error @ StateError::Damaged { .. }) => return Err(damaged(error.to_string()).into()),
        Err(error) => return Err(Failure::new("state", format!("the accounts: {error}"), error.advice()).into()),
    };
    let access = Access::new(text.as_deref(), Clock::system(), Box::new(Stored(Arc::clone(state))));
    let access = Arc::new(access.map_err(|error| damaged(error.to_string()))?);
    access.ensure_administrator(FIRST_NAME, |password| {
        let stored = state.replace(INITIAL_FILE, format!("{password}\n").as_bytes());
        stored.context("storing the password of the first administrator")
    })?;
    let initial_password = if first_password_is_to_be_changed(&access) {
        state.names()?.iter().any(|name| name == INITIAL_FILE).then(|| state.path_of(INITIAL_FILE))
    } else {
        // It is worth nothing any more.
        state.remove(INITIAL_FILE).context("removing the password of the first administrator")?;
        None
    };
    Ok(OpenedAccounts { access, initial_password })
}

fn first_password_is_to_be_changed(access: &Access) -> bool {
    access.accounts().iter().any(|account| account.name == FIRST_NAME && account.must_change_password)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};

    use ebof_access::AccountChange;
    use ebof_state::{Calls, SystemCall};

    use super::*;

    fn state(directory: &tempfile::TempDir) -> Arc<StateDirectory> {
        Arc::new(StateDirectory::open(&directory.path().join("state")).unwrap())
    }

    #[test]
    fn the_first_password_is_in_a_file_until_it_is_changed() {
        let directory = tempfile::tempdir().unwrap();
        let OpenedAccounts { access, initial_password } = open(&state(&directory)).unwrap();
        let path = initial_password.unwrap();
        let mode = std::os::unix::fs::MetadataExt::mode(&path.metadata().unwrap());
        assert_eq!(mode & 0o777, 0o600);
        let text = std::fs::read_to_string(&path).unwrap();
        let password = text.lines().last().unwrap();
        let user = access.login([127, 0, 0, 1].into(), FIRST_NAME, password).unwrap();
        drop(access);
        let OpenedAccounts { access, initial_password } = open(&state(&directory)).unwrap();
        assert_eq!(initial_password.as_ref(), Some(&path), "it is told again");
        let change = AccountChange { password: Some("another one".to_owned()), ..AccountChange::default() };
        access.change_account(user.account, &change, None).unwrap();
        assert!(!path.exists(), "at once, not with the next start");
        drop(access);
        assert_eq!(open(&state(&directory)).unwrap().initial_password, None);
        assert!(!path.exists());
    }

    #[test]
    fn damaged_accounts_are_told_and_stay() {
        let directory = tempfile::tempdir().unwrap();
        drop(open(&state(&directory)).unwrap());
        let file = directory.path().join("state").join(FILE);
        let good = std::fs::read(&file).unwrap();
        let refused = |bytes: &[u8]| {
            std::fs::write(&file, bytes).unwrap();
            let Err(error) = open(&state(&directory)) else { panic!("it was taken") };
            assert_eq!(std::fs::read(&file).unwrap(), bytes);
            format!("{error:#}")
        };
        for damaged in [&good[..good.len() / 2], b"", b"{}"] {
            let text = refused(damaged);
            assert!(text.contains("accounts.json") && text.contains("move it away"), "{text}");
        }
        state(&directory).replace(FILE, b"{\"version\": 7}").unwrap();
        let text = refused(&std::fs::read(&file).unwrap());
        assert!(text.contains("version 7"), "{text}");
    }

    /// A medium that fails where names are put on it, for good.
    #[derive(Debug)]
    struct NoNames(Arc<AtomicBool>);

    impl Calls for NoNames {
        fn make(&self, call: SystemCall, _path: &Path, work: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
            let fails = call == SystemCall::SyncDirectory && self.0.load(Ordering::Relaxed);
            if fails { Err(io::Error::from_raw_os_error(5)) } else { work() }
        }
    }

    #[test]
    fn what_is_not_known_to_be_stored_is_not_told_as_not_stored() {
        let directory = tempfile::tempdir().unwrap();
        let fails = Arc::new(AtomicBool::new(false));
        let calls = NoNames(Arc::clone(&fails));
        let state = Arc::new(StateDirectory::open_with(directory.path(), Box::new(calls)).unwrap());
        let stored = Stored(Arc::clone(&state));
        stored.keep("{\"accounts\": []}").unwrap();
        fails.store(true, Ordering::Relaxed);
        let first = stored.keep("{}");
        assert!(matches!(first, Err(KeepError::Unknown(_))), "{first:?}");
        // Nothing else is stored before that is known.
        let second = stored.keep("{}");
        assert!(matches!(second, Err(KeepError::NotStored(_))), "{second:?}");
        fails.store(false, Ordering::Relaxed);
        stored.keep("{}").unwrap();
        assert_eq!(state.read(FILE).unwrap().unwrap(), b"{}");
    }
}
