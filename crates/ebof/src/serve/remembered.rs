//! What a target remembers beyond its process, in the state directory: which objects NSIDs have
//! named, in `objects`, and which hosts have proven which host identifiers, in `host-ids`.

use std::io;
use std::sync::Arc;

use ebof_server::{Environment, TextStore};
use ebof_state::{StateDirectory, StateError};

/// A text in the state directory.
struct RememberedFile {
    directory: Arc<StateDirectory>,
    file: &'static str,
    /// What is in it, for messages.
    what: &'static str,
    /// What it had when it was opened.
    text: Option<String>,
    /// Whether the user has named the directory: without it nothing is changed that is not stored.
    is_named: bool,
}

/// Has a target remember everything in a state directory, which its user has named or not.
///
/// # Errors
/// A file is damaged, and the directory was named.
pub(crate) fn remember(
    environment: &mut Environment,
    directory: &Arc<StateDirectory>,
    is_named: bool,
) -> Result<(), StateError> {
    let open = |file, what| RememberedFile::open(directory, file, what, is_named).map(Arc::new);
    environment.objects = open("objects", "which namespaces are served")?;
    environment.host_ids = Some(open("host-ids", "which hosts have proven their host identifiers")?);
    Ok(())
}

impl RememberedFile {
    fn open(
        directory: &Arc<StateDirectory>,
        file: &'static str,
        what: &'static str,
        is_named: bool,
    ) -> Result<Self, StateError> {
        let text = match directory.read(file) {
            Ok(bytes) => bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if is_named => return Err(error),
            Err(error) => {
                tracing::warn!("{error}");
                // Nobody understands that: it is taken for lost.
                Some(String::new())
            }
        };
        Ok(Self { directory: Arc::clone(directory), file, what, text, is_named })
    }
}

impl TextStore for RememberedFile {
    fn load(&self) -> Option<String> {
        self.text.clone()
    }

    fn store(&self, text: &str) -> io::Result<()> {
        match self.directory.replace(self.file, text.as_bytes()) {
            Ok(()) => Ok(()),
            Err(error) if self.is_named => Err(io::Error::other(error)),
            Err(error) => {
                tracing::warn!("{} is forgotten with the process: {error}", self.what);
                Ok(())
            }
        }
    }
}
