//! The directory of a report: the document, which is replaced as a whole, and what is made from it.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use ebof_state::{Existing, FileMode, WriteError, store_file};

use crate::document::{Document, SCHEMA};

/// The document's file.
pub const DOCUMENT: &str = "report.json";
/// The largest document that is read.
const DOCUMENT_BYTES_MAX: u64 = 256 << 20;

/// The directory of a report.
#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
}

/// The error of a directory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system refused.
    #[error("{action} {}: {error}{}", path.display(), advice(error))]
    System {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// The answer.
        error: io::Error,
    },
    /// A crash decides whether the file has the old content or the new one.
    #[error("it is written, and it is not known whether a power cut takes back {}: {error}{}", path.display(), advice(error))]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The answer.
        error: io::Error,
    },
    /// There is a report already.
    #[error(
        "{} has a report already, of {procedure}: say --resume to go on with it, or name another directory", path.display()
    )]
    Occupied {
        /// The directory.
        path: PathBuf,
        /// What it is of.
        procedure: String,
    },
    /// It is not a document.
    #[error("{} is not a report that can be read: {why}; it was left as it is", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull => "; what was measured before is in the file: make room, and say --resume",
        io::ErrorKind::PermissionDenied => "; name a directory that you may write to",
        _ => "",
    }
}

impl Store {
    /// A directory for a new report, which is made if it is missing.
    ///
    /// # Errors
    /// It cannot be made or written, or has a report.
    pub fn create(directory: &Path) -> Result<Self, StoreError> {
        let system = |action, error| StoreError::System { action, path: directory.to_owned(), error };
        fs::create_dir_all(directory).map_err(|error| system("making", error))?;
        let path = directory.join(DOCUMENT);
        if path.exists() {
            let procedure =
                load(directory).map_or_else(|_| "an unknown procedure".to_owned(), |document| document.title);
            return Err(StoreError::Occupied { path: directory.to_owned(), procedure });
        }
        // Better now than after hours of measuring.
        tempfile::tempfile_in(directory).map_err(|error| system("writing to", error))?;
        Ok(Self { directory: directory.to_owned() })
    }

    /// The directory of a report that is there, and its document.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn open(directory: &Path) -> Result<(Self, Document), StoreError> {
        let document = load(directory)?;
        Ok((Self { directory: directory.to_owned() }, document))
    }

    /// Where it is.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Replaces the document. After a failure the previous one is still there, unless the error
    /// says that this is not known.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save(&self, document: &Document) -> Result<(), StoreError> {
        let mut text = serde_json::to_vec(document).map_err(|error| StoreError::System {
            action: "writing",
            path: self.directory.join(DOCUMENT),
            error: error.into(),
        })?;
        text.push(b'\n');
        self.write(DOCUMENT, &text)
    }

    /// Replaces a file of the directory, durably.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let path = self.directory.join(name);
        // Others may read a report, as any file that a user makes.
        store_file(&path, FileMode::Exactly(0o644), Existing::Replaced, bytes).map_err(|error| match error {
            WriteError::NotStored(error) => StoreError::System { action: "writing", path, error },
            WriteError::Unknown(error) => StoreError::Unknown { path, error },
        })
    }
}

/// Reads the document of a directory.
///
/// # Errors
/// There is none, or it is not one of this version.
pub fn load(directory: &Path) -> Result<Document, StoreError> {
    let path = directory.join(DOCUMENT);
    let system = |error| StoreError::System { action: "reading", path: path.clone(), error };
    let unreadable = |why: String| StoreError::Unreadable { path: path.clone(), why };
    let mut text = Vec::new();
    let file = File::open(&path).map_err(system)?;
    file.take(DOCUMENT_BYTES_MAX + 1).read_to_end(&mut text).map_err(system)?;
    if text.len() as u64 > DOCUMENT_BYTES_MAX {
        return Err(unreadable(format!("it is larger than {} MiB", DOCUMENT_BYTES_MAX >> 20)));
    }
    let value: serde_json::Value = serde_json::from_slice(&text).map_err(|error| unreadable(error.to_string()))?;
    match value["schema"].as_str() {
        Some(SCHEMA) => {}
        Some(other) => return Err(unreadable(format!("its schema is {other:?}, and this program reads {SCHEMA}"))),
        None => return Err(unreadable("it has no schema".to_owned())),
    }
    serde_json::from_value(value).map_err(|error| unreadable(error.to_string()))
}
