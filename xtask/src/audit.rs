//! Security advisories and the other checks of cargo-deny and cargo-audit, if these are installed.
//! Owns no copy of the advisory database: without the tools, the check reports that it was skipped.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

/// Looks for known vulnerabilities among the dependencies.
pub(crate) fn run(root: &Path) -> Result<bool> {
    if installed("deny") {
        cargo(root, &["deny", "check", "advisories"])
    } else if installed("audit") {
        cargo(root, &["audit"])
    } else {
        println!("audit: skipped: neither cargo-deny nor cargo-audit is installed (cargo install cargo-deny)");
        Ok(true)
    }
}

/// All checks of deny.toml.
pub(crate) fn deny(root: &Path) -> Result<bool> {
    if installed("deny") {
        cargo(root, &["deny", "check"])
    } else {
        println!("deny: only licences were checked: cargo-deny is not installed (cargo install cargo-deny)");
        Ok(true)
    }
}

fn installed(tool: &str) -> bool {
    let quiet = Command::new(format!("cargo-{tool}"))
        .args([tool, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    quiet.is_ok_and(|status| status.success())
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<bool> {
    let status = Command::new("cargo").args(arguments).current_dir(root).status();
    Ok(status.with_context(|| format!("running cargo {}", arguments.join(" ")))?.success())
}
