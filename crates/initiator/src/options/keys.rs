//! Where a secret of this host comes from.

use std::path::PathBuf;

use ebof_authentication::Secret;

/// The longest file with a secret.
const FILE_BYTES_MAX: usize = 4096;

/// Where a secret for DH-HMAC-CHAP comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A file, which is read whenever a queue has to be authenticated: its first line that is
    /// neither empty nor a comment (`#`).
    File(PathBuf),
    /// This one.
    Secret(Secret),
}

impl KeySource {
    /// The secret.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub(crate) fn load(&self) -> Result<Secret, String> {
        let path = match self {
            Self::Secret(secret) => return Ok(secret.clone()),
            Self::File(path) => path,
        };
        let name = path.display();
        let text = ebof_state::read_private(path, FILE_BYTES_MAX).map_err(|error| format!("{name}: {error}"))?;
        let line = text.lines().find(|line| !line.trim().is_empty() && !line.starts_with('#'));
        let line = line.ok_or_else(|| format!("{name}: there is no key in it"))?;
        Secret::parse(line).map_err(|error| format!("{name}: {error}"))
    }
}
