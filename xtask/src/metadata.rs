//! `cargo metadata`: calls it and parses its output.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// A package of the workspace, or one of its dependencies.
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The SPDX expression of its manifest.
    pub(crate) licence: Option<String>,
    /// Names of its normal and build dependencies, without those for tests.
    pub(crate) dependencies: Vec<String>,
}

/// The packages of the workspace. Reads manifests only: neither the network nor the lock file.
pub(crate) fn workspace(root: &Path) -> Result<Vec<Package>> {
    call(root, &["--no-deps"])
}

/// All packages that a build on this machine may contain, those of the workspace included. Needs
/// the network only if one of them was never fetched.
pub(crate) fn all(root: &Path) -> Result<Vec<Package>> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    call(root, &["--locked", "--filter-platform", &platform])
}

fn call(root: &Path, arguments: &[&str]) -> Result<Vec<Package>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1"])
        .args(arguments)
        .current_dir(root)
        .output()
        .context("running cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    parse(&output.stdout)
}

fn parse(json: &[u8]) -> Result<Vec<Package>> {
    let metadata: Value = serde_json::from_slice(json).context("cargo metadata is not JSON")?;
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    packages.iter().map(package).collect()
}

fn package(value: &Value) -> Result<Package> {
    let text = |field: &str| value[field].as_str().map(str::to_owned);
    let declared = value["dependencies"].as_array().context("a package without dependencies")?;
    let mut dependencies: Vec<String> = declared
        .iter()
        .filter(|dependency| dependency["kind"].as_str() != Some("dev"))
        .filter_map(|dependency| dependency["name"].as_str().map(str::to_owned))
        .collect();
    dependencies.sort();
    dependencies.dedup();
    Ok(Package {
        name: text("name").context("a package without a name")?,
        version: text("version").unwrap_or_default(),
        licence: text("license"),
        dependencies,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_of_tests_are_left_out_and_the_licence_is_read() {
        let json = br#"{"packages": [{"name": "a", "version": "1.0.0", "license": "MIT", "dependencies": [
            {"name": "zerocopy", "kind": null}, {"name": "cc", "kind": "build"}, {"name": "proptest", "kind": "dev"}]}]}"#;
        let packages = parse(json).unwrap();
        assert_eq!(packages[0].dependencies, ["cc", "zerocopy"]);
        assert_eq!(packages[0].licence.as_deref(), Some("MIT"));
    }

    #[test]
    fn anything_else_is_an_error() {
        assert!(parse(b"{}").is_err());
        assert!(parse(b"not json").is_err());
    }
}
