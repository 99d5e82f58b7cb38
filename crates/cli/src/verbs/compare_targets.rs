//! `target compare`: whether two targets that serve one subsystem agree. What is compared is
//! `ebof_manage::api::compare`'s; here both are read, from files or from running targets.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ebof_manage::Config;
use ebof_manage::api::compare::{ComparedTarget, Grade, TargetComparison};
use ebof_manage::api::{Keys, Status};
use ebof_nvme::Nqn;

use super::{Outcome, config};
use crate::control::{CONTROL_SOCKET, ControlClient, Reach};
use crate::failure::Failure;
use crate::file::Kind;
use crate::global::Global;
use crate::output::comparison::ShownComparison;
use crate::output::text::safe;
use crate::output::{say, show};

/// The arguments.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct CompareTargets {
    /// A target: its control socket or the directory of that, <https://box.example.org:8443>, or
    /// the file of a configuration
    #[arg(value_name = "TARGET")]
    a: String,
    /// The other one
    #[arg(value_name = "TARGET")]
    b: String,
    /// Compare this subsystem only [default: all that both have]
    #[arg(value_name = "NQN", value_parser = Nqn::parse)]
    subsystem: Option<Nqn>,
}

/// Where a target is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Server(String),
    Socket(PathBuf),
    File(PathBuf),
}

impl Place {
    fn new(text: &str) -> Result<Self, Failure> {
        if text.starts_with("https://") {
            return Ok(Self::Server(text.to_owned()));
        }
        let path = PathBuf::from(text);
        let kind = fs::metadata(&path).map_err(|error| {
            let advice =
                "name a control socket or its directory, a file with a configuration, or https://box.example.org:8443";
            Failure::usage(format!("{}: {error}", safe(text)), advice)
        })?;
        Ok(match kind.file_type() {
            kind if kind.is_dir() => Self::Socket(path.join(CONTROL_SOCKET)),
            kind if kind.is_socket() => Self::Socket(path),
            _ => Self::File(path),
        })
    }

    /// Whether both are certainly one.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Socket(a), Self::Socket(b)) | (Self::File(a), Self::File(b)) => {
                a == b || file_of(a).is_some_and(|a| file_of(b) == Some(a))
            }
            _ => self == other,
        }
    }
}

/// The file that a path leads to on this machine: a device, or a device and inode.
fn file_of(path: &Path) -> Option<(bool, u64, u64)> {
    let metadata = fs::metadata(path).ok()?;
    let is_device = metadata.file_type().is_block_device();
    Some(if is_device { (true, metadata.rdev(), 0) } else { (false, metadata.dev(), metadata.ino()) })
}

/// What is known of a target.
struct Known {
    config: Config,
    status: Option<Status>,
    keys: Option<Keys>,
}

impl Known {
    fn read(place: &Place, reach: &Reach) -> anyhow::Result<Self> {
        let control = match place {
            Place::File(path) => {
                let mut config = config::load(path, Kind::Any)?.config;
                let path = std::path::absolute(path)?;
                config.rebase(path.parent().unwrap_or(Path::new("/")));
                return Ok(Self { config, status: None, keys: None });
            }
            Place::Socket(path) => ControlClient::new(Reach::socket(path))?,
            Place::Server(url) => ControlClient::new(reach.clone().server(url))?,
        };
        let (text, status) = (control.configuration()?.toml, control.status()?);
        let config = ebof_manage::load("the target's configuration", &text)?.config;
        let keys = control.keys();
        if let Err(error) = &keys {
            say(&format!("note: keys are not compared: {}", safe(error.message())));
        }
        Ok(Self { config, status: Some(status), keys: keys.ok() })
    }

    fn side(&self) -> ComparedTarget<'_> {
        ComparedTarget { config: &self.config, status: self.status.as_ref(), keys: self.keys.as_ref() }
    }
}

impl CompareTargets {
    pub(super) fn run(self, reach: &Reach, global: &Global) -> Outcome {
        if reach.is_given() {
            let message = "the two targets are named by themselves";
            return Err(Failure::usage(message, "leave --control and --server out").into());
        }
        let places = [Place::new(&self.a)?, Place::new(&self.b)?];
        let [a, b] = &places;
        if a.is_same(b) {
            return Err(Failure::usage("both are the same target", "name two").into());
        }
        let is_remote = places.iter().any(|place| matches!(place, Place::Server(_)));
        if reach.is_given_at_all() && !is_remote {
            let message = "user, password and certificate are of a target over the network";
            return Err(Failure::usage(message, "leave them out, or name one with https://").into());
        }
        let (known_a, known_b) = (Known::read(a, reach)?, Known::read(b, reach)?);
        // Files that are compared before they are served may be for other machines.
        let is_here = places.iter().all(|place| matches!(place, Place::Socket(_)));
        let same_file = |a: &str, b: &str| {
            let [a, b] = [a, b].map(|path| is_here.then(|| file_of(Path::new(path))).flatten());
            Some(a? == b?)
        };
        let found = TargetComparison::between(&known_a.side(), &known_b.side(), self.subsystem.as_ref(), &same_file);
        if found.subsystems.is_empty() {
            let message = match &self.subsystem {
                Some(nqn) => format!("{nqn} is not at both targets"),
                None => "no subsystem is at both targets".to_owned(),
            };
            let advice = "subsystems are one for hosts if they have the same NQN: `ebof target status` shows them";
            return Err(Failure::new("nothing-to-compare", message, advice).into());
        }
        let is_good = found.count(Grade::Contradiction) == 0;
        show(global, &ShownComparison { a: self.a, b: self.b, found })?;
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_apart_by_what_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("a.toml"), "").unwrap();
        fs::hard_link(at("a.toml"), at("b.toml")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("control.sock")).unwrap();
        let place = |path: PathBuf| Place::new(path.to_str().unwrap()).unwrap();
        assert_eq!(place(at("a.toml")), Place::File(at("a.toml")));
        assert_eq!(place(at("control.sock")), Place::Socket(at("control.sock")));
        assert!(place(directory.path().to_owned()).is_same(&place(at("control.sock"))));
        assert!(place(at("a.toml")).is_same(&place(at("b.toml"))), "one file by two names");
        assert!(!place(at("a.toml")).is_same(&place(at("control.sock"))));
        assert_eq!(Place::new("https://box.example.org").unwrap(), Place::Server("https://box.example.org".to_owned()));
        let error = Place::new(at("none").to_str().unwrap()).unwrap_err();
        assert!(error.to_string().contains("control socket"), "{error}");
    }
}
