//! `config`: a target's configuration, without serving it; that of a running target is in
//! `super::running`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ebof_manage::api::HOST_KEYS_MAX;
use ebof_manage::config::KeyPlace;
use ebof_manage::config::limits::TEXT_BYTES_MAX;
use ebof_manage::{Config, Loaded};

use super::running::{Apply, Diff, Export, HistoryVerb, Rollback};
use super::{Outcome, keys};
use crate::file::Kind;
use crate::global::Global;
use crate::output::json::Object;
use crate::output::{View, show};

/// Actions on a configuration.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Action {
    /// Report the errors of a configuration and of the files of keys that it names, with line and
    /// column
    Check {
        /// A configuration in TOML or JSON, or a file written by `nvmetcli save`
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Print a configuration as ebof reads it, in TOML
    Show {
        /// A configuration in TOML or JSON, or a file written by `nvmetcli save`
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Print the configuration of a running target in TOML, or write it to a file
    Export(Export),
    /// Show what a configuration would change in a running target, and who notices
    Diff(Diff),
    /// Put a configuration in force in a running target, without a restart
    Apply(Apply),
    /// List the configurations that a running target has had: since when, who asked, what changed
    History(HistoryVerb),
    /// Put a configuration in force again that a running target has had
    Rollback(Rollback),
}

pub(crate) fn run(args: Args, global: &Global) -> Outcome {
    match args.action {
        Action::Check { file } => {
            let loaded = load_with_keys(&file)?;
            show(global, &Checked { file: file.display().to_string(), loaded })?;
        }
        Action::Show { file } => {
            let loaded = load(&file, Kind::Any)?;
            crate::output::print(loaded.config.to_toml()?.as_bytes())?;
        }
        Action::Export(export) => return export.run(global),
        Action::Diff(diff) => return diff.run(global),
        Action::Apply(apply) => return apply.run(global),
        Action::History(history) => return history.run(global),
        Action::Rollback(rollback) => return rollback.run(global),
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a configuration from a file.
pub fn load(file: &Path, kind: Kind) -> anyhow::Result<Loaded> {
    let name = file.display().to_string();
    let text = crate::file::read_text(file, "the configuration", TEXT_BYTES_MAX as u64, kind)?;
    Ok(ebof_manage::load(&name, &text)?)
}

/// Reads a configuration from a file, and looks at the files of keys that it names, as far as this
/// user can. Credentials and keyrings are the service's.
fn load_with_keys(file: &Path) -> anyhow::Result<Loaded> {
    let name = file.display().to_string();
    let text = crate::file::read_text(file, "the configuration", TEXT_BYTES_MAX as u64, Kind::Any)?;
    // As `serve` finds them.
    let base = std::path::absolute(file)?;
    let base = base.parent().unwrap_or(Path::new("/"));
    let mut look = |key: &'static str, place: &KeyPlace| {
        let KeyPlace::File(path) = place else { return None };
        let most = if key == "dhchap_ctrl_key" { 1 } else { HOST_KEYS_MAX };
        keys::found_in_file(&base.join(path), key == "tls_psk", most)
    };
    Ok(ebof_manage::load::load_with_keys(&name, &text, &mut look)?)
}

struct Checked {
    file: String,
    loaded: Loaded,
}

impl Checked {
    fn counts(&self) -> [(&'static str, usize); 4] {
        let Config { ports, hosts, subsystems, .. } = &self.loaded.config;
        let namespaces = subsystems.iter().map(|subsystem| subsystem.namespaces.len()).sum();
        [("ports", ports.len()), ("hosts", hosts.len()), ("subsystems", subsystems.len()), ("namespaces", namespaces)]
    }
}

/// `1 port`, `2 ports`.
fn counted(count: usize, name: &str) -> String {
    format!("{count} {}", if count == 1 { name.trim_end_matches('s') } else { name })
}

impl View for Checked {
    fn text(&self, _verbose: bool) -> String {
        let counts = self.counts().map(|(name, count)| counted(count, name)).join(", ");
        let remarks = &self.loaded.remarks;
        let remarks = if remarks.is_empty() { String::new() } else { format!("{remarks:#}\n\n") };
        format!("{remarks}{}: ok ({counts})\n", self.file)
    }

    fn json(&self, _verbose: bool) -> Object {
        let object = Object::document("config-check", 1).with("file", self.file.as_str()).with("ok", true);
        let object = self.counts().into_iter().fold(object, |object, (name, count)| object.with(name, count as u64));
        object.with("remarks", crate::failure::diagnostics(&self.loaded.remarks))
    }
}
