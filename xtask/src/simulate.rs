//! `cargo xtask simulate`: builds the simulation (crates/simulation) with assertions, and runs it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

/// Runs it with these arguments; `false` if a story failed.
///
/// # Errors
/// Cargo cannot be started.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<bool> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["run", "--quiet", "--locked", "-p", "ebof-simulation"])
        .args(["--example", "simulate", "--"])
        .args(words)
        .current_dir(root)
        .status();
    Ok(status.context("starting cargo")?.success())
}
