//! `cargo xtask mutations`: is it noticed if a rule of paths is broken? Each mutation breaks one,
//! and the simulation (level `paths`) has to find it within some stories.
//!
//! A copy of the sources has all mutations, each behind a question for the variable
//! `EBOF_MUTATION`: so there is one build for all of them, and nothing of it in the product.

mod table;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use table::{MUTATIONS, Mutation};

/// Stories after which a mutation is taken not to be found.
const STORIES: &str = "2000";

/// Builds the copy, and looks for each mutation, or for those that are named. `false` if one is not
/// found.
///
/// # Errors
/// The copy cannot be made or built, or a mutation does not fit the sources any more.
pub(crate) fn run(root: &Path, names: &[&str]) -> Result<bool> {
    // Cargo is started in the copy.
    let program = build(&root.canonicalize().context("looking for the project")?)?;
    let mut all_found = true;
    let known = |name: &&str| MUTATIONS.iter().any(|mutation| mutation.name == *name);
    ensure!(names.iter().all(known), "there is no such mutation");
    let wanted = MUTATIONS.iter().filter(|mutation| names.is_empty() || names.contains(&mutation.name));
    for mutation in wanted {
        let begun = Instant::now();
        let found = look_for(&program, mutation)?;
        let (name, seconds) = (mutation.name, begun.elapsed().as_secs_f64());
        match &found {
            Some(line) => println!("found      {seconds:6.1} s  {name}: {line}"),
            None => println!("NOT FOUND  {seconds:6.1} s  {name}: {}", mutation.why),
        }
        all_found &= found.is_some();
    }
    Ok(all_found)
}

/// The first line of what the simulation says, if it fails.
fn look_for(program: &Path, mutation: &Mutation) -> Result<Option<String>> {
    let output = Command::new(program)
        .args(["--level", "paths", "--hours", "1000000", "--stories", STORIES, "--patience", "0"])
        .env("EBOF_MUTATION", mutation.name)
        .output()
        .context("starting the simulation")?;
    if output.status.success() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(Some(text.lines().next().unwrap_or("it has said nothing").chars().take(160).collect()))
}

/// Copies what git knows of, with the mutations, and builds the simulation there.
fn build(root: &Path) -> Result<PathBuf> {
    let home = root.join("target/mutations");
    let source = home.join("source");
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output().context("starting git")?;
    ensure!(listed.status.success(), "git does not tell the files");
    let names = String::from_utf8(listed.stdout).context("names of files")?;
    for name in names.split('\0').filter(|name| !name.is_empty()) {
        // It may be gone from the work tree.
        let Ok(bytes) = std::fs::read(root.join(name)) else { continue };
        let bytes = mutated(name, bytes)?;
        let to = source.join(name);
        // As it is already: then cargo has nothing to do.
        if std::fs::read(&to).is_ok_and(|before| before == bytes) {
            continue;
        }
        std::fs::create_dir_all(to.parent().context("a file has a directory")?)?;
        std::fs::write(&to, bytes).with_context(|| format!("writing {}", to.display()))?;
    }
    let target = root.join("target");
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--locked", "-p", "ebof-simulation", "--example", "simulate"])
        .env("CARGO_TARGET_DIR", &target)
        .current_dir(&source)
        .status()
        .context("starting cargo")?;
    ensure!(status.success(), "the copy in {} is not built", source.display());
    let program = home.join("simulate");
    // The next build of the sources themselves has the same name.
    std::fs::copy(target.join("debug/examples/simulate"), &program).context("keeping the program")?;
    Ok(program)
}

/// A file with its mutations.
fn mutated(name: &str, bytes: Vec<u8>) -> Result<Vec<u8>> {
    let mutations: Vec<_> = MUTATIONS.iter().filter(|mutation| mutation.file == name).collect();
    if mutations.is_empty() {
        return Ok(bytes);
    }
    let mut text = String::from_utf8(bytes).context("sources are text")?;
    for mutation in mutations {
        let Mutation { name, file, from, to, .. } = mutation;
        ensure!(text.matches(from).count() == 1, "mutation {name}: {file} does not have this once: {from}");
        // Also in a crate without the standard library.
        let asked = format!(
            "{{ extern crate std as std_of_mutation; \
             std_of_mutation::env::var_os(\"EBOF_MUTATION\").is_some_and(|name| name == \"{name}\") }}"
        );
        text = text.replace(from, &format!("(if {asked} {{ {to} }} else {{ {from} }})"));
    }
    Ok(text.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutation_fits_the_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for Mutation { file, name, .. } in MUTATIONS {
            let bytes = std::fs::read(root.join(file)).unwrap();
            assert_ne!(mutated(file, bytes.clone()).unwrap(), bytes, "{name}");
            assert_eq!(MUTATIONS.iter().filter(|other| other.name == *name).count(), 1, "{name}");
        }
    }
}
