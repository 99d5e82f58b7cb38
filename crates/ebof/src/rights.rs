//! What the target gives up before it serves, and what it may open then: by its options, and by
//! what its configuration names.
//!
//! Owns the paths. How rights are given up is `ebof_rights`'.

pub(crate) mod restart;

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ebof_cli::Failure;
use ebof_cli::output::text::safe;
use ebof_manage::api::{Confinement, MeasureState, PathAccess};
use ebof_manage::config::{KeyPlace, Measure, Measures, NoMeasure, TargetOptions};
use ebof_manage::{Config, Drive};
use ebof_rights::{Calls, Paths, Rights, TARGET_CAPABILITIES};
use ebof_server::{Fence, backings};

use restart::Means;

/// What the C library, the drivers of RDMA adapters and the target itself read while it runs. Of
/// `/etc` all: name servers and users are files that are replaced.
const SYSTEM: &[&str] = &["/etc", "/lib", "/lib64", "/proc", "/run/systemd/resolve", "/sys", "/usr/lib", "/usr/share"];

/// Devices of every program, and those of RDMA.
const DEVICES: &[&str] = &["/dev/infiniband", "/dev/null"];

/// What is read of them.
const SOURCES: &[&str] = &["/dev/random", "/dev/urandom"];

/// The options of the command line.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct RightsArgs {
    /// Give up before serving what is not needed: all, none, or some of privileges, capabilities,
    /// system-calls, paths and dumps, with commas between them [default: none]
    #[arg(long, value_name = "MEASURES", value_parser = measures)]
    confine: Option<Measures>,
    /// With --confine paths: what may be opened and written beside what the configuration names at
    /// the start, for later changes: a directory, a file or a device; several times for several
    #[arg(long, value_name = "PATH")]
    confine_path: Vec<PathBuf>,
    /// Do not start if the kernel does not know all that --confine wants
    #[arg(long)]
    confine_strict: bool,
}

impl RightsArgs {
    /// What is given up by these, and by a configuration.
    pub(crate) fn wanted(&self, options: &TargetOptions) -> RightsWanted {
        let more = options.confine_paths.iter().map(PathBuf::from);
        RightsWanted {
            measures: self.confine.or(options.confine).unwrap_or_default(),
            is_strict: self.confine_strict || options.confine_strict,
            paths: self.confine_path.iter().cloned().chain(more).collect(),
        }
    }
}

fn measures(text: &str) -> Result<Measures, String> {
    text.parse().map_err(|error: NoMeasure| format!("{error}; {}", NoMeasure::ADVICE))
}

/// What a target gives up.
#[derive(Clone, Debug, Default)]
pub(crate) struct RightsWanted {
    measures: Measures,
    /// Whether each has to be in force as a whole.
    is_strict: bool,
    /// What may be opened beside what the configuration names.
    paths: Vec<PathBuf>,
}

/// Where a target has its own files.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnPlaces<'a> {
    /// The configuration file, and one that is imported.
    pub(crate) configurations: Vec<&'a Path>,
    /// The state directory.
    pub(crate) state: Option<&'a Path>,
    /// The directory of the control socket.
    pub(crate) control: Option<PathBuf>,
}

/// What a target has given up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Confined {
    /// As it is told.
    pub(crate) told: Confinement,
    /// What may be opened; `None`: whatever the system allows.
    paths: Option<Arc<Paths>>,
}

impl Confined {
    /// Gives up what is wanted. To be called while the process has one thread.
    ///
    /// # Errors
    /// A measure is not in force, and each has to be.
    pub(crate) fn now(wanted: &RightsWanted, config: &Config, own: &OwnPlaces<'_>) -> Result<Self, Failure> {
        let is_by_paths = wanted.measures.has(Measure::Paths);
        let paths = if is_by_paths { paths(wanted, config, own) } else { Paths::default() };
        let rights = Rights {
            measures: wanted.measures,
            capabilities: TARGET_CAPABILITIES,
            calls: Calls::Target,
            paths: paths.clone(),
        };
        let told = rights.apply();
        let paths = told.has(Measure::Paths).then(|| Arc::new(paths));
        let confined = Self { told, paths };
        for failed in confined.told.failures() {
            let (measure, problem) = (failed.measure, failed.problem.as_deref().unwrap_or_default());
            if wanted.is_strict {
                let advice = "leave it out of `--confine` (`confine` in [target]), or go on with what the kernel knows: \
                              without `--confine-strict`, `confine_strict = false`";
                let message = format!("`{measure}` of what the target is to give up is not in force: {problem}");
                return Err(Failure::new("system", message, advice));
            }
            tracing::warn!("`{measure}` of what the target is to give up is not in force as a whole: {problem}");
        }
        confined.remark(config);
        Ok(confined)
    }

    /// Tells what is in force, and what the configuration names and cannot be had.
    fn remark(&self, config: &Config) {
        let on =
            self.told.measures.iter().filter(|it| it.state != MeasureState::Off && it.state != MeasureState::Failed);
        let on: Vec<&str> = on.map(|it| it.measure.name()).collect();
        if !on.is_empty() {
            tracing::info!("given up: {}", on.join(", "));
        }
        if let Err(refused) = self.check(config) {
            tracing::warn!("{refused}");
        }
    }

    /// How the target can start again: not by itself, if it cannot start a program any more.
    pub(crate) fn restart(&self, is_supervised: bool) -> Means {
        match self.told.has(Measure::SystemCalls) || self.told.has(Measure::Paths) {
            false => Means::Itself,
            true if is_supervised => Means::Supervisor,
            true => Means::Nobody,
        }
    }

    /// Whether all that `config` names may be opened.
    ///
    /// # Errors
    /// What may not, and what to do, as a sentence.
    pub(crate) fn check(&self, config: &Config) -> Result<(), String> {
        named(config).iter().try_for_each(|(path, access)| self.check_path(path, *access))
    }

    /// The same of files and devices that are opened while the target runs.
    pub(crate) fn fence(&self) -> Fence {
        let confined = self.clone();
        Arc::new(move |path, is_only_read| {
            let access = if is_only_read { PathAccess::Read } else { PathAccess::Write };
            confined.check_path(path, access).err()
        })
    }

    fn check_path(&self, path: &Path, access: PathAccess) -> Result<(), String> {
        let Some(paths) = self.paths.as_ref().filter(|paths| !paths.allow(path, access)) else { return Ok(()) };
        let folder = folder(path);
        let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        let places = paths.rights().iter().filter(|right| right.access == PathAccess::Write);
        let places: Vec<_> = places.map(|right| safe(&right.path)).collect();
        Err(format!(
            "the target has given up its right to open {}: add {} to `confine_paths` in [target] or by `--confine-path`, and \
             start it again; it may open what is in {}",
            safe(&path.display().to_string()),
            safe(&folder.display().to_string()),
            places.join(", ")
        ))
    }
}

/// What a target may open.
fn paths(wanted: &RightsWanted, config: &Config, own: &OwnPlaces<'_>) -> Paths {
    let mut paths = Paths::default();
    SYSTEM.iter().chain(SOURCES).for_each(|path| paths.read(path));
    DEVICES.iter().for_each(|path| paths.write(path));
    // Where the file with the name servers really is, which is replaced with others.
    let servers = std::fs::canonicalize("/etc/resolv.conf");
    servers.iter().filter_map(|path| path.parent()).for_each(|folder| paths.read(folder));
    // A crash names the functions that it went through.
    std::env::current_exe().iter().for_each(|program| paths.read(program));
    std::env::var_os("CREDENTIALS_DIRECTORY").iter().for_each(|folder| paths.read(folder));
    own.configurations.iter().for_each(|path| paths.read(folder(path)));
    own.state.iter().for_each(|path| paths.write(path));
    own.control.iter().for_each(|path| paths.write(path));
    for (path, access) in named(config) {
        // A device is itself, since its folder has all others. What is a file has its folder: it
        // may be made, and another one may take its place.
        let folder = folder(&path);
        let is_itself = is_device(&path) || [Path::new("/"), Path::new("/dev")].contains(&folder);
        let at = if is_itself { path.as_path() } else { folder };
        match access {
            PathAccess::Read => paths.read(at),
            PathAccess::Write => paths.write(at),
        }
    }
    wanted.paths.iter().for_each(|path| paths.write(path));
    paths
}

/// What the configuration names, and what is done there.
fn named(config: &Config) -> Vec<(PathBuf, PathAccess)> {
    let files = backings(config).filter_map(|drive| match drive {
        Drive::File(file) if file.read_only => Some((PathBuf::from(&file.path), PathAccess::Read)),
        Drive::File(file) => Some((PathBuf::from(&file.path), PathAccess::Write)),
        _ => None,
    });
    let sockets = config.ports.iter().filter_map(|port| Some((port.listen.socket.clone()?, PathAccess::Write)));
    let wraps = config.drives.iter().filter_map(|drive| drive.key_file.as_deref());
    let proofs = config.hosts.iter().flat_map(|host| [&host.dhchap_key, &host.dhchap_ctrl_key, &host.tls_psk]);
    let proofs = proofs.filter_map(|place| match place {
        Some(KeyPlace::File(path)) => Some(path.as_str()),
        _ => None,
    });
    let keys = wraps.chain(proofs).map(|path| (PathBuf::from(path), PathAccess::Read));
    files.chain(sockets).chain(keys).collect()
}

fn is_device(path: &Path) -> bool {
    let kind = std::fs::metadata(path).map(|metadata| metadata.file_type());
    kind.is_ok_and(|kind| kind.is_block_device() || kind.is_char_device())
}

/// The directory that a file is in.
fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        None => path,
    }
}
