//! `/proc` and `/sys`, or a copy of them below another directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use crate::machine::{ENTRIES_MAX, FILE_BYTES_MAX};

/// The files below a directory.
#[derive(Clone, Debug)]
pub struct Files {
    root: PathBuf,
}

impl Files {
    /// The files below `root`: `/` for this machine.
    #[must_use]
    pub fn below(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// As [`crate::Machine::read`].
    ///
    /// # Errors
    /// It cannot be read, is too large, or is no text.
    pub fn read(&self, path: &str) -> io::Result<String> {
        let mut bytes = Vec::new();
        let _count = File::open(self.path(path))?.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > FILE_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("more than {FILE_BYTES_MAX} bytes")));
        }
        String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
    }

    /// As [`crate::Machine::names`].
    ///
    /// # Errors
    /// It cannot be read.
    pub fn names(&self, path: &str) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(self.path(path))?.take(ENTRIES_MAX);
        let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    }

    /// As [`crate::Machine::write`].
    ///
    /// # Errors
    /// It does not exist, or refuses the value.
    pub fn write(&self, path: &str, value: &str) -> io::Result<()> {
        // The kernel takes each write as a whole value, so there is one.
        let mut file = OpenOptions::new().write(true).truncate(true).open(self.path(path))?;
        let line = format!("{value}\n");
        let written = file.write(line.as_bytes())?;
        if written != line.len() {
            return Err(io::Error::new(io::ErrorKind::WriteZero, "the kernel took only a part of the value"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_short_text_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("large"), vec![b'x'; FILE_BYTES_MAX + 1]).unwrap();
        fs::write(root.path().join("bytes"), [0xff, 0xfe]).unwrap();
        fs::write(root.path().join("text"), "1\n").unwrap();
        let files = Files::below(root.path());
        assert_eq!(files.read("/large").unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(files.read("/bytes").unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(files.read("/text").unwrap(), "1\n");
        assert_eq!(files.write("/missing", "1").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(files.names("/").unwrap(), ["bytes", "large", "text"]);
    }
}
