//! Which files of the state directory a target has made for itself once: accounts, the certificate
//! and keys of hosts. What was there is missed, and not made anew unasked: another administrator
//! with another password, another certificate, would be taken for what was lost.

use ebof_cli::Failure;
use ebof_state::{StateDirectory, StateError};

/// The file with the names of the others, one in a line.
const FILE: &str = "made";

/// What `--create` does where accounts or the certificate are missing, in words.
pub(crate) const ANOTHER: &str = "`ebof serve --create` makes another one";

/// Refuses to go on without a file that was made before, unless `create` asks to, which does what
/// `created` says. Gives those that are missing.
pub(crate) fn check<'n>(
    state: &StateDirectory,
    names: &[&'n str],
    create: bool,
    created: &str,
) -> anyhow::Result<Vec<&'n str>> {
    let made = read(state).map_err(|error| failure(&error, error.advice()))?;
    let there = state.names().map_err(|error| failure(&error, error.advice()))?;
    let missing: Vec<&str> = names.iter().copied().filter(|name| !there.iter().any(|it| it == name)).collect();
    match missing.iter().find(|name| made.iter().any(|made| made == *name)) {
        Some(name) if !create => {
            let path = state.path_of(name);
            let message =
                format!("{} is missing, and was there before: another one is not made in its place", path.display());
            let advice = format!("bring it back, or the file system that it is on; {created}");
            Err(Failure::new("state", message, advice).into())
        }
        _ => Ok(missing),
    }
}

/// Notes that these files are there now.
pub(crate) fn note(state: &StateDirectory, names: &[&str]) -> anyhow::Result<()> {
    let mut made = read(state).map_err(|error| failure(&error, error.advice()))?;
    let before = made.len();
    for name in names {
        if !made.iter().any(|it| it == name) {
            made.push((*name).to_owned());
        }
    }
    if made.len() > before {
        let stored = state.replace(FILE, (made.join("\n") + "\n").as_bytes());
        stored.map_err(|error| failure(&error, error.advice()))?;
    }
    Ok(())
}

fn failure(error: &dyn std::error::Error, advice: String) -> Failure {
    Failure::new("state", format!("what the state directory has once had: {error}"), advice)
}

fn read(state: &StateDirectory) -> Result<Vec<String>, StateError> {
    let text = state.read(FILE)?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    // @test output.made-once
    #[test]
    fn what_was_made_once_is_missed() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(&directory.path().join("state")).unwrap();
        let names = ["accounts.json", "tls.pem"];
        assert_eq!(check(&state, &names, false, ANOTHER).unwrap(), names);
        state.replace("accounts.json", b"{}").unwrap();
        note(&state, &names[..1]).unwrap();
        assert_eq!(check(&state, &names, false, ANOTHER).unwrap(), names[1..]);
        state.remove("accounts.json").unwrap();
        let error = check(&state, &names, false, ANOTHER).unwrap_err();
        assert!(error.to_string().contains("accounts.json is missing"), "{error}");
        assert_eq!(check(&state, &names, true, ANOTHER).unwrap(), names);
    }
}
