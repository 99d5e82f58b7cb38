//! A drive as the command line has it: `name=d0,backing=disk.img,size=100G`.
//!
//! Reads the words only. Whether names, NQNs and numbers are legal and fit together is what
//! [`load::check`](crate::load::check) says, with all the rules of a configuration file.

use std::str::FromStr;

use ebof_nvme::Nqn;
use ebof_nvme::nqn::NqnError;
use thiserror::Error;

use super::{AnaOnFailure, Attach, DriveProfile, ManagedDrive};
use crate::config::limits;
use crate::diagnostic::nearest::nearest;
use crate::drive::{Drive, FileDrive};
use crate::units::format_size;
use ebof_grammar::backing::{BackingError, checked_size, split_commas, switch};

/// Why a text is not a drive of which hosts cut namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WordsError {
    /// No `name=` or no `backing=`.
    #[error("there is no `{key}`")]
    Missing {
        /// Which.
        key: &'static str,
    },
    /// A key that there is not.
    #[error("`{key}` is not an option of a drive")]
    Unknown {
        /// The text.
        key: String,
    },
    /// A key without its value.
    #[error("`{key}` has no value")]
    NoValue {
        /// The key.
        key: &'static str,
    },
    /// A key more than once.
    #[error("`{key}` is given twice")]
    Twice {
        /// The key.
        key: &'static str,
    },
    /// A value that is none of the key's.
    #[error("`{key}` is `{value}`")]
    Value {
        /// The key.
        key: &'static str,
        /// The text.
        value: String,
        /// What could have been.
        accepted: String,
    },
    /// A host without a legal NQN.
    #[error("`{key}={value}`: {source}")]
    Host {
        /// `manager` or `quota`.
        key: &'static str,
        /// The text.
        value: String,
        /// The error.
        source: NqnError,
    },
    /// A quota without a size.
    #[error("the quota `{value}` has no size")]
    Quota {
        /// The text.
        value: String,
    },
    /// Two quotas for one host.
    #[error("the host {host} has two quotas")]
    QuotaTwice {
        /// The host.
        host: String,
    },
    /// Where its data are stored is nothing, or its size or a switch is wrong.
    #[error(transparent)]
    Backing(#[from] BackingError),
    /// Nothing can be kept in it.
    #[error("a drive cannot be kept in `{backing}`")]
    Nowhere {
        /// The text.
        backing: String,
    },
    /// A size in the backing of a file.
    #[error("{WITHOUT_SIZE}")]
    BackingSize {
        /// The backing without it, as it is written.
        path: String,
        /// In bytes.
        size_bytes: u64,
    },
    /// `readonly`.
    #[error("a drive cannot be read-only")]
    ReadOnly,
}

impl WordsError {
    /// The correction.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::Missing { .. } => DRIVE_WORDS.into(),
            Self::Unknown { key } => {
                // `readonly` is known only to say that it cannot be.
                let keys: Vec<&str> = KEYS.into_iter().filter(|key| *key != "readonly").collect();
                match nearest(key, &keys) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("accepted: {}; a comma in a value is written twice", keys.join(", ")),
                }
            }
            Self::NoValue { key } => format!("write {key}=VALUE"),
            Self::Twice { .. } | Self::QuotaTwice { .. } => "write it once".into(),
            Self::Value { accepted, .. } => format!("accepted: {accepted}"),
            Self::Host { key: "quota", .. } | Self::Quota { .. } => {
                "accepted: quota=NQN:SIZE, such as quota=nqn.2014-08.org.example:host:10G".into()
            }
            Self::Host { key, .. } => format!("accepted: {key}=NQN, such as {key}=nqn.2014-08.org.example:host"),
            Self::Backing(error) => error.advice(),
            Self::Nowhere { .. } => FORGETFUL.into(),
            Self::BackingSize { path, size_bytes } => format!("write backing={path},size={}", format_size(*size_bytes)),
            Self::ReadOnly => READ_ONLY.into(),
        }
    }
}

/// What [`ManagedDrive`] is read from, for messages.
pub(crate) const DRIVE_WORDS: &str =
    "write name=NAME,backing=PATH,size=SIZE, such as name=d0,backing=disk.img,size=100G";

/// Why `null:` is refused.
pub(crate) const FORGETFUL: &str =
    "a drive has to remember its namespaces, and null: forgets what is written: use a file, a block device or mem:SIZE";

/// Where a size does not belong.
pub(crate) const WITHOUT_SIZE: &str = "the size belongs to the drive, not to its backing";

/// Why a read-only backing is refused.
pub(crate) const READ_ONLY: &str =
    "it writes down what its hosts do and what it counts; hosts can write-protect a namespace";

const KEYS: [&str; 23] = [
    "name",
    "backing",
    "size",
    "overwrite",
    "direct",
    "profile",
    "namespaces",
    "functions",
    "overcommit",
    "exclusive",
    "one_subsystem",
    "checksums",
    "encryption",
    "key_file",
    "read_only_if_damaged",
    "ana_on_failure",
    "attach",
    "manager",
    "quota",
    "serial",
    "model",
    "endurance",
    "readonly",
];

impl FromStr for ManagedDrive {
    type Err = WordsError;

    fn from_str(text: &str) -> Result<Self, WordsError> {
        let mut words = Words::default();
        let read = split_commas(text);
        read.iter().filter(|word| !word.is_empty()).try_for_each(|word| words.take(word))?;
        words.drive()
    }
}

#[derive(Default)]
struct Words {
    seen: Vec<&'static str>,
    name: Option<String>,
    backing: Option<String>,
    direct: Option<bool>,
    drive: Option<ManagedDrive>,
}

impl Words {
    fn take(&mut self, word: &str) -> Result<(), WordsError> {
        let (key, value) = word.split_once('=').map_or((word, None), |(key, value)| (key, Some(value)));
        let plain = key.replace('-', "_");
        let known = KEYS.into_iter().find(|known| *known == plain || (*known, key) == ("readonly", "ro"));
        let key = known.ok_or_else(|| WordsError::Unknown { key: key.to_owned() })?;
        if self.seen.contains(&key) && !matches!(key, "manager" | "quota") {
            return Err(WordsError::Twice { key });
        }
        self.seen.push(key);
        self.option(key, value)
    }

    fn option(&mut self, key: &'static str, value: Option<&str>) -> Result<(), WordsError> {
        let needed = || value.filter(|value| !value.is_empty()).ok_or(WordsError::NoValue { key });
        let refused = |value: &str, accepted: String| WordsError::Value { key, value: value.to_owned(), accepted };
        let drive = self.drive.get_or_insert_with(|| ManagedDrive::new("", Drive::file("")));
        match key {
            "name" => self.name = Some(needed()?.to_owned()),
            "backing" => self.backing = Some(needed()?.to_owned()),
            "size" => drive.size_bytes = Some(checked_size(needed()?)?),
            "endurance" => drive.endurance_bytes = Some(checked_size(needed()?)?),
            "direct" => self.direct = Some(switch("direct", value)?),
            "overwrite" => drive.overwrite = switch("overwrite", value)?,
            "overcommit" => drive.overcommit = switch("overcommit", value)?,
            "exclusive" => drive.exclusive = switch("exclusive", value)?,
            "one_subsystem" => drive.one_subsystem = switch("one_subsystem", value)?,
            "checksums" => drive.checksums = switch("checksums", value)?,
            "encryption" => drive.encryption = switch("encryption", value)?,
            "key_file" => drive.key_file = Some(needed()?.to_owned()),
            "read_only_if_damaged" => drive.read_only_if_damaged = switch("read_only_if_damaged", value)?,
            "readonly" if switch("readonly", value)? => return Err(WordsError::ReadOnly),
            "serial" => drive.serial = Some(needed()?.to_owned()),
            "model" => drive.model = Some(needed()?.to_owned()),
            "profile" => {
                let names = || DriveProfile::ALL.map(DriveProfile::name).join(" or ");
                let name = needed()?;
                drive.profile = DriveProfile::named(name).ok_or_else(|| refused(name, names()))?;
            }
            "ana_on_failure" => {
                let names = || AnaOnFailure::ALL.map(AnaOnFailure::name).join(" or ");
                let name = needed()?;
                drive.ana_on_failure = AnaOnFailure::named(name).ok_or_else(|| refused(name, names()))?;
            }
            "attach" => {
                let names = || Attach::ALL.map(Attach::name).join(" or ");
                let name = needed()?;
                drive.attach = Attach::named(name).ok_or_else(|| refused(name, names()))?;
            }
            "namespaces" => {
                let number = needed()?;
                let accepted = || format!("1 to {}", limits::NAMESPACES_MAX);
                drive.namespaces = Some(number.parse().map_err(|_not_a_number| refused(number, accepted()))?);
            }
            "functions" => {
                let number = needed()?;
                let accepted = || refused(number, format!("0 to {}", limits::FUNCTIONS_MAX));
                let count = number.parse().ok().filter(|count| *count <= limits::FUNCTIONS_MAX);
                drive.functions = count.ok_or_else(accepted)?;
            }
            "manager" => {
                let text = needed()?;
                drive.managers.get_or_insert_default().push(host(key, text, text)?);
            }
            "quota" => {
                let text = needed()?;
                let no_size = || WordsError::Quota { value: text.to_owned() };
                // NQNs have colons: the size stands behind the last.
                let (name, size) = text.rsplit_once(':').ok_or_else(no_size)?;
                if !size.starts_with(|c: char| c.is_ascii_digit()) {
                    return Err(no_size());
                }
                let name = host(key, name, text)?;
                // Nothing at all is a quota, too.
                let bytes = checked_size(size).or_else(|error| match error {
                    BackingError::ZeroSize => Ok(0),
                    other => Err(other),
                })?;
                if drive.quotas.insert(name.to_string(), bytes).is_some() {
                    return Err(WordsError::QuotaTwice { host: name.to_string() });
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn drive(self) -> Result<ManagedDrive, WordsError> {
        let name = self.name.ok_or(WordsError::Missing { key: "name" })?;
        let written = self.backing.ok_or(WordsError::Missing { key: "backing" })?;
        let drive = self.drive.unwrap_or_else(|| ManagedDrive::new("", Drive::file("")));
        // The words of plain drives say what is a size and what a path.
        let size = if drive.size_bytes.is_some() { ",size=1" } else { "" };
        let escaped = written.replace(',', ",,") + size;
        let backing = match escaped.parse()? {
            Drive::Memory { size_bytes } if self.direct.is_none() => Drive::Memory { size_bytes },
            Drive::Memory { .. } => return Err(BackingError::FileOption { option: "direct" }.into()),
            Drive::Null { .. } => return Err(WordsError::Nowhere { backing: written }),
            Drive::File(FileDrive { path, size_bytes: Some(size_bytes), .. }) if drive.size_bytes.is_none() => {
                return Err(WordsError::BackingSize { path: path.replace(',', ",,"), size_bytes });
            }
            Drive::File(_) => Drive::File(FileDrive { path: written, direct: self.direct, ..FileDrive::default() }),
        };
        Ok(ManagedDrive { name, backing, ..drive })
    }
}

fn host(key: &'static str, name: &str, written: &str) -> Result<Nqn, WordsError> {
    Nqn::parse(name).map_err(|source| WordsError::Host { key, value: written.to_owned(), source })
}

#[cfg(test)]
mod tests;
