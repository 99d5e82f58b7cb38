//! `config export`, `diff` and `apply`: the configuration of a running target, through its control
//! socket. The socket is in `crate::control`, the output in `output::configuration`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use ebof_manage::FileFormat;
use ebof_manage::api::{Desired, History, Planned, SENT_TEXT_BYTES_MAX, Source};
use ebof_manage::config::limits::TEXT_BYTES_MAX;
use ebof_manage::plan::Effect;
use ebof_state::{Existing, FileMode, WriteError, store_file};

use super::Outcome;
use super::question::ask;
use crate::control::{ControlClient, Reach};
use crate::failure::Failure;
use crate::file::Kind;
use crate::global::Global;
use crate::output::configuration::{ShownApplied, ShownConfiguration, ShownPlan, change_line, host_line};
use crate::output::history::ShownHistory;
use crate::output::text::safe;
use crate::output::{say, show};

/// `config export`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Export {
    /// Write it there [default: standard output, as for -]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Replace a file that exists
    #[arg(long, requires = "file")]
    force: bool,
    #[command(flatten)]
    reach: Reach,
}

/// `config diff`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Diff {
    /// A configuration in TOML or JSON, or a file written by `nvmetcli save`
    /// [default: the file that the target was started with]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    reach: Reach,
}

/// `config apply`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Apply {
    /// A configuration in TOML or JSON, or a file written by `nvmetcli save`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    reach: Reach,
}

/// `config rollback`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Rollback {
    /// The number of a generation, or a revision or its first characters
    /// [default: the one before the one in force]
    #[arg(value_name = "GENERATION|REVISION")]
    to: Option<String>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    reach: Reach,
}

/// `config history`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct HistoryVerb {
    #[command(flatten)]
    reach: Reach,
}

impl Export {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let configuration = ControlClient::new(self.reach)?.configuration()?;
        let file = self.file.filter(|file| file != Path::new("-"));
        if let Some(file) = &file {
            write(file, &configuration.toml, self.force)?;
        }
        show(global, &ShownConfiguration { configuration, file })?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Diff {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let control = ControlClient::new(self.reach)?;
        let file = match self.file {
            Some(file) => file,
            None => started_with(&control)?,
        };
        let planned = control.plan(&desired(&file)?)?;
        show(global, &ShownPlan { file, planned })?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Apply {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let desired = desired(&self.file)?;
        let control = ControlClient::new(self.reach)?;
        let planned = control.plan(&desired)?;
        confirmed(&planned, &safe(&self.file.display().to_string()), self.yes)?;
        let applied = control.apply(&desired, &planned)?;
        show(global, &ShownApplied::applied("config-apply", applied, planned))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Rollback {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let control = ControlClient::new(self.reach)?;
        let history = control.history()?;
        let to = match self.to {
            Some(to) => to,
            None => before(&history)?.to_string(),
        };
        let desired = Desired { generation: Some(to), ..Desired::default() };
        let planned = control.plan(&desired)?;
        confirmed(&planned, "The rollback", self.yes)?;
        let applied = control.apply(&desired, &planned)?;
        show(global, &ShownApplied::applied("config-rollback", applied, planned))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl HistoryVerb {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        show(global, &ShownHistory(ControlClient::new(self.reach)?.history()?))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The generation before the one in force.
fn before(history: &History) -> Result<u64, Failure> {
    let previous = history.current().and_then(|current| current.previous);
    previous.filter(|&previous| history.generation(previous).is_some()).ok_or_else(|| {
        let advice = "`ebof config history` lists what is stored";
        Failure::usage("nothing is stored that was in force before", advice)
    })
}

/// Refuses what the target would refuse, and asks whether `what` is to change it.
pub(super) fn confirmed(planned: &Planned, what: &str, yes: bool) -> Result<(), Failure> {
    possible(planned)?;
    if yes || planned.plan.is_empty() {
        return Ok(());
    }
    if !planned.remarks.is_empty() {
        say(&format!("{:#}\n", planned.remarks));
    }
    ask(&format!("{what} changes the running target."), &lines(planned), "--yes")
}

/// The file that a target was started with.
fn started_with(control: &ControlClient) -> anyhow::Result<PathBuf> {
    match control.configuration()?.source {
        Source::File { path, .. } => Ok(path.into()),
        Source::Arguments => {
            let message = "the target was started with arguments, and not with a file to compare with";
            Err(Failure::usage(message, "name one: ebof config diff FILE").into())
        }
        Source::State { .. } => {
            let message = "the target goes by its state directory, and not by a file to compare with";
            Err(Failure::usage(message, "name one: ebof config diff FILE").into())
        }
    }
}

/// The configuration in a file, to be sent. What is wrong with it is told before.
fn desired(file: &Path) -> anyhow::Result<Desired> {
    let name = file.display().to_string();
    let text = crate::file::read_text(file, "the configuration", TEXT_BYTES_MAX as u64, Kind::Any)?;
    ebof_manage::load(&name, &text)?;
    if text.len() > SENT_TEXT_BYTES_MAX {
        let message = format!("{}: it has {} bytes", safe(&name), text.len());
        let advice = format!(
            "accepted: at most {SENT_TEXT_BYTES_MAX} bytes; a larger one is put in the place of the file that the target was \
             started with, and read by `ebof target reload`"
        );
        return Err(Failure::usage(message, advice).into());
    }
    let whole = std::path::absolute(file).context("the working directory")?;
    let base = whole.parent().unwrap_or(Path::new("/"));
    let base = base.to_str().with_context(|| format!("{}: this path is not UTF-8", base.display()))?;
    let base = Some(base.to_owned());
    let format = FileFormat::detect(&name, &text);
    let name = Some(safe(&name));
    Ok(match format {
        FileFormat::Toml => Desired { toml: Some(text), base, name, ..Desired::default() },
        FileFormat::Json => Desired { json: Some(text), base, name, ..Desired::default() },
    })
}

/// Refuses what the target would refuse, before anybody is asked.
fn possible(planned: &Planned) -> Result<(), Failure> {
    let refused: Vec<String> =
        planned.plan.iter().filter(|change| change.effect >= Effect::Restart).map(change_line).collect();
    if refused.is_empty() {
        return Ok(());
    }
    let message =
        format!("a running target cannot be changed in this way, and nothing was changed\n  {}", refused.join("\n  "));
    Err(Failure::new("refused-change", message, "leave that as it is, or start the target again with it"))
}

/// The changes, and the hosts that notice them.
fn lines(planned: &Planned) -> Vec<String> {
    let mut lines: Vec<String> = planned.plan.iter().map(change_line).collect();
    lines.extend(planned.disturbed.iter().map(|disturbed| format!("! {}", host_line(disturbed))));
    if planned.disturbed_left_out > 0 {
        lines.push(format!("! and {} more", planned.disturbed_left_out));
    }
    lines
}

/// Writes a file whole or not at all.
fn write(file: &Path, text: &str, force: bool) -> anyhow::Result<()> {
    let name = safe(&file.display().to_string());
    // What a link leads to is replaced, and not the link.
    let path = if force { std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned()) } else { file.to_owned() };
    let before = std::fs::metadata(&path).ok();
    let exists = || {
        Failure::usage(
            format!("{name} exists already"),
            "name another file; --force replaces it, and what it has is lost",
        )
    };
    if before.is_some() && !force {
        return Err(exists().into());
    }
    let mode = before.map_or(FileMode::AtMost(0o644), |before| FileMode::Exactly(before.permissions().mode() & 0o7777));
    let existing = if force { Existing::Replaced } else { Existing::Kept };
    match store_file(&path, mode, existing, text.as_bytes()) {
        Ok(()) => Ok(()),
        Err(WriteError::NotStored(error)) if !force && error.kind() == std::io::ErrorKind::AlreadyExists => {
            Err(exists().into())
        }
        Err(WriteError::NotStored(error)) => Err(error).with_context(|| format!("writing {name}")),
        Err(WriteError::Unknown(error)) => Err(error)
            .with_context(|| format!("{name} is written, and it is not known whether a power cut takes it back")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        config: crate::verbs::config::Args,
    }

    fn parsed(line: &str) -> Result<Line, clap::Error> {
        Line::try_parse_from(std::iter::once("config").chain(line.split(' ')))
    }

    #[test]
    fn arguments_are_parsed() {
        for line in [
            "export",
            "export a.toml --force",
            "export --control /run/x.sock",
            "diff",
            "diff a.toml --control /run/x.sock",
            "apply a.toml",
            "apply --yes a.toml --control /run/x.sock",
            "rollback",
            "rollback 12 --yes",
            "rollback 75eaf908 --control /run/x.sock",
            "history",
            "check a.toml",
        ] {
            assert!(parsed(line).is_ok(), "{line}");
        }
        for line in ["export --force", "apply", "apply --yes", "check"] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }

    #[test]
    fn what_is_sent_says_where_its_paths_begin() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.toml");
        std::fs::write(&file, "subsystems = []\n").unwrap();
        let sent = desired(&file).unwrap();
        assert_eq!((sent.toml.as_deref(), sent.json), (Some("subsystems = []\n"), None));
        assert_eq!(sent.base.as_deref(), directory.path().to_str());
        let file = directory.path().join("a.json");
        let text = "{\"target\": {}, \"subsystems\": []}";
        std::fs::write(&file, text).unwrap();
        assert_eq!(desired(&file).unwrap().json.as_deref(), Some(text));
    }

    #[test]
    fn what_cannot_be_sent_is_told_before() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.toml");
        let told = |file: &Path| crate::failure::text(&desired(file).unwrap_err());
        assert!(told(&file).contains("No such file"), "{}", told(&file));
        std::fs::write(&file, "[[ports]]\nlisten = 7\n").unwrap();
        assert!(told(&file).contains("a.toml:2:10\n") && told(&file).contains('^'), "{}", told(&file));
        std::fs::write(&file, format!("subsystems = []\n{}", "#".repeat(SENT_TEXT_BYTES_MAX))).unwrap();
        assert!(told(&file).contains("accepted: at most 1048576 bytes"), "{}", told(&file));
    }

    #[test]
    fn a_file_is_replaced_only_by_option() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.toml");
        write(&file, "one", false).unwrap();
        let mode = |file: &Path| std::fs::metadata(file).unwrap().permissions().mode() & 0o777;
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
        let error = write(&file, "two", false).unwrap_err().to_string();
        assert!(error.contains("exists already") && error.contains("--force"), "{error}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "one");
        let link = directory.path().join("link.toml");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write(&link, "three", true).unwrap();
        assert_eq!((std::fs::read_to_string(&file).unwrap(), mode(&file)), ("three".to_owned(), 0o640));
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2, "nothing is left over");
    }
}
