//! Which objects NSIDs have named, in the state directory: `objects`.

use std::io;
use std::sync::Arc;

use ebof_server::ObjectStore;
use ebof_state::{StateDirectory, StateError};

/// The file.
const FILE: &str = "objects";

/// Stores it in the state directory.
pub(crate) struct ObjectFile {
    directory: Arc<StateDirectory>,
    /// What it had when it was opened.
    text: Option<String>,
    /// Whether the user has named the directory: without it nothing is changed that is not stored.
    is_named: bool,
}

impl ObjectFile {
    /// Reads it.
    ///
    /// # Errors
    /// It is damaged, and the directory was named.
    pub(crate) fn open(directory: Arc<StateDirectory>, is_named: bool) -> Result<Self, StateError> {
        let text = match directory.read(FILE) {
            Ok(bytes) => bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if is_named => return Err(error),
            Err(error) => {
                tracing::warn!("{error}");
                // Nobody understands that: it is taken for lost.
                Some(String::new())
            }
        };
        Ok(Self { directory, text, is_named })
    }
}

impl ObjectStore for ObjectFile {
    fn load(&self) -> Option<String> {
        self.text.clone()
    }

    fn store(&self, text: &str) -> io::Result<()> {
        match self.directory.replace(FILE, text.as_bytes()) {
            Ok(()) => Ok(()),
            Err(error) if self.is_named => Err(io::Error::other(error)),
            Err(error) => {
                tracing::warn!("which namespaces are served is forgotten with the process: {error}");
                Ok(())
            }
        }
    }
}
