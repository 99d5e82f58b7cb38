//! Names of devices for messages.

use std::fmt;
use std::path::Path;

/// The name of a device: the path of a file or block device, or any other text by which people know
/// it, such as `mem`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    text: Box<str>,
    is_path: bool,
}

impl Name {
    /// The name of what has no path.
    #[must_use]
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self { text: text.into(), is_path: false }
    }

    /// How a file gets `bytes`; `None` for what has no path.
    pub(crate) fn truncate_command(&self, bytes: u64) -> Option<String> {
        self.is_path.then(|| format!("`truncate -s '>{bytes}' {self}` for a file"))
    }
}

impl From<&Path> for Name {
    fn from(path: &Path) -> Self {
        Self { text: path.display().to_string().into(), is_path: true }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
