//! `cargo xtask bench delayed`, `direct`, `fair`, `moves` and `secure`: run programs of their own,
//! built as they are released, that of fair shares with fio's engine where fio is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::process;

/// Runs an example of the crate `bench`.
///
/// # Errors
/// It cannot be built.
pub(super) fn run(root: &Path, example: &str, words: &[&str]) -> Result<bool> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let which = ["-q", "--release", "--locked", "-p", "ebof-bench", "--example", example];
    build(root, &cargo, "build", &which)?;
    let engine = if example == "fair" { fio_engine(root, &cargo)? } else { None };
    // Both ends of a direct port poll: other load takes their processors, unless they come first.
    let prefix = if example == "direct" { process::real_time_prefix() } else { &[] };
    let mut all = prefix.iter().copied().chain([cargo.as_str(), "run"]).chain(which).chain(["--"]);
    let mut command = Command::new(all.next().context("nothing to run")?);
    command.args(all).args(words);
    if let Some(engine) = engine {
        command.arg("--fio").arg(engine);
    }
    Ok(command.current_dir(root).status().context("running cargo")?.success())
}

fn build(root: &Path, cargo: &str, verb: &str, words: &[&str]) -> Result<()> {
    let status = Command::new(cargo).arg(verb).args(words).current_dir(root).status().context("running cargo")?;
    if status.success() { Ok(()) } else { bail!("`cargo {verb} {}` fails", words.join(" ")) }
}

/// The engine for fio, where fio is installed.
fn fio_engine(root: &Path, cargo: &str) -> Result<Option<PathBuf>> {
    if Command::new("fio").arg("--version").output().is_err() {
        println!("SKIPPED: fio is not installed (apt-get install fio): the scenario fio");
        return Ok(None);
    }
    let words = ["-q", "--release", "--locked", "-p", "ebof-fio", "--lib", "--crate-type", "cdylib"];
    build(root, cargo, "rustc", &words)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(Some(target.join("release/libebof_fio.so")))
}
