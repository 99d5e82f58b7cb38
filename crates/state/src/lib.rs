//! The state directory of a target: small files that survive a crash, such as the configuration in
//! force and accounts. One process has it at a time.
//!
//! Owns how a file is stored, and what is checked when it is read. What is in the files, and when
//! they are written, is up to those who use it. How directories are made and opened ([`Place`]),
//! and how a file is locked ([`Lock`]), is for run-time directories, too; and what a user has named
//! is written in the same way ([`store_file`]).
#![forbid(unsafe_code)]

mod calls;
mod damage;
mod directory;
mod error;
mod files;
mod frame;
mod lock;
mod parents;
mod path;
mod place;
mod private;
mod runtime;
mod user_file;

pub use calls::{Calls, SystemCall, SystemCalls};
pub use damage::Damage;
pub use directory::appended::{Appended, Standing};
pub use directory::{StateDirectory, read_stored};
pub use error::{StateError, StoreError, WriteError};
pub use files::{Existing, FileMode};
pub use lock::{Lock, LockError};
pub use path::standard_path;
pub use place::{OwnedBy, Place};
pub use private::keyring::{KeyringError, KeyringKey, has_keyring, read_psks, read_user_key};
pub use private::{PrivateFileError, read_credential, read_private};
pub use runtime::{hand_on_runtime_directory, runtime_directory, runtime_directory_warning, set_runtime_directory};
pub use user_file::{store_file, store_file_with};

/// The largest content of a file.
pub const BYTES_MAX: usize = 16 << 20;

/// The longest name of a file.
pub const NAME_BYTES_MAX: usize = 64;

/// The most damaged files that are kept under one name.
pub const SET_ASIDE_MAX: u32 = 99;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
