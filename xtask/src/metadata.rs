//! `cargo metadata`: calls it and parses its output.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// A package of the workspace, or one of its dependencies.
#[derive(Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) description: Option<String>,
    /// The SPDX expression of its manifest.
    pub(crate) licence: Option<String>,
    /// Names of its normal and build dependencies, without those for tests.
    pub(crate) dependencies: Vec<String>,
    /// All dependencies as its manifest has them, a name once for each kind and platform.
    pub(crate) declared: Vec<Dependency>,
}

/// A dependency in a manifest.
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// The versions that will do, `*` for a path without one.
    pub(crate) requirement: String,
    pub(crate) is_for_tests: bool,
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
    let declared: Vec<Dependency> = declared.iter().filter_map(dependency).collect();
    let built = declared.iter().filter(|dependency| !dependency.is_for_tests);
    let mut dependencies: Vec<String> = built.map(|dependency| dependency.name.clone()).collect();
    dependencies.sort();
    dependencies.dedup();
    Ok(Package {
        name: text("name").context("a package without a name")?,
        version: text("version").unwrap_or_default(),
        description: text("description"),
        licence: text("license"),
        dependencies,
        declared,
    })
}

fn dependency(value: &Value) -> Option<Dependency> {
    Some(Dependency {
        name: value["name"].as_str()?.to_owned(),
        requirement: value["req"].as_str().unwrap_or("*").to_owned(),
        is_for_tests: value["kind"].as_str() == Some("dev"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_of_tests_are_left_out_and_the_licence_is_read() {
        let json = br#"{"packages": [{"name": "a", "version": "1.0.0", "license": "MIT", "dependencies": [
            {"name": "zerocopy", "req": "^0.8", "kind": null}, {"name": "cc", "kind": "build"},
            {"name": "proptest", "kind": "dev"}]}]}"#;
        let packages = parse(json).unwrap();
        assert_eq!(packages[0].dependencies, ["cc", "zerocopy"]);
        assert_eq!(packages[0].licence.as_deref(), Some("MIT"));
        let declared = packages[0].declared.iter().map(|one| (one.requirement.as_str(), one.is_for_tests));
        assert_eq!(declared.collect::<Vec<_>>(), [("^0.8", false), ("*", false), ("*", true)]);
    }

    #[test]
    fn anything_else_is_an_error() {
        assert!(parse(b"{}").is_err());
        assert!(parse(b"not json").is_err());
    }
}
