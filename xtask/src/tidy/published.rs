//! What a registry demands of the crates that a program can embed: those that `ebof` depends on,
//! and itself. Each has a README with an example that is compiled, and a description; where they
//! depend on each other there is a version beside the path. Owns no publishing:
//! `scripts/publish.sh` tries that.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use super::tree::Tree;
use crate::metadata::{Dependency, Package};

const FACADE: &str = "ebof";

/// What includes a README where its examples are tests.
const EXAMPLE: &str = "#[doc = include_str!(\"../README.md\")]";

pub(crate) fn check(tree: &Tree, packages: &[Package], violations: &mut Vec<Violation>) {
    let own: BTreeMap<&str, &Package> = packages.iter().map(|package| (package.name.as_str(), package)).collect();
    let library = library(&own);
    for package in library.iter().filter_map(|name| own.get(name)) {
        let directory = directory(&package.name);
        let readme = format!("{directory}/README.md");
        if tree.text(&readme).is_none() {
            violations.push(Violation::new(&readme, 0, "a crate of the library has no README"));
        }
        let root = format!("{directory}/src/lib.rs");
        if !tree.text(&root).is_some_and(|text| text.contains(EXAMPLE)) {
            violations.push(Violation::new(&root, 0, format!("nothing tests the README: `{EXAMPLE}` is missing")));
        }
        let manifest = format!("{directory}/Cargo.toml");
        let mut report = |message: String| violations.push(Violation::new(&manifest, 0, message));
        if package.description.is_none() {
            report("a crate of the library has no description".to_owned());
        }
        for dependency in &package.declared {
            let Some(other) = own.get(dependency.name.as_str()) else { continue };
            if let Some(message) = mistake(dependency, other, library.contains(&other.name.as_str())) {
                report(message);
            }
        }
    }
    if let Some(circle) = circle(&own, &library) {
        let message = format!("no crate of {} can be published before the others", circle.join(" -> "));
        violations.push(Violation::new("Cargo.toml", 0, message));
    }
}

/// The facade and what it depends on, tests aside.
fn library<'p>(own: &BTreeMap<&'p str, &'p Package>) -> BTreeSet<&'p str> {
    let mut found = BTreeSet::new();
    let mut next = vec![FACADE];
    while let Some(name) = next.pop() {
        let Some((&name, package)) = own.get_key_value(name) else { continue };
        if found.insert(name) {
            next.extend(package.dependencies.iter().map(String::as_str));
        }
    }
    found
}

/// What is wrong with the version of a dependency on another crate of the workspace.
fn mistake(dependency: &Dependency, other: &Package, is_published: bool) -> Option<String> {
    let name = &dependency.name;
    if !is_published {
        // Without a version it is left out of what is published; with one the registry must have
        // it.
        let has_version = dependency.requirement != "*";
        return has_version.then(|| format!("{name} is not published: no version beside its path"));
    }
    let wanted = format!("^{}", other.version);
    (dependency.requirement != wanted)
        .then(|| format!("version = \"{}\" is missing beside the path of {name}", other.version))
}

/// Crates of which each needs the next one to be in the registry, and the last one the first.
fn circle<'p>(own: &BTreeMap<&'p str, &'p Package>, library: &BTreeSet<&'p str>) -> Option<Vec<&'p str>> {
    let mut left = library.clone();
    loop {
        let needs = |name: &&str| {
            let declared = own.get(name).into_iter().flat_map(|package| &package.declared);
            declared.map(|dependency| dependency.name.as_str()).find(|needed| left.contains(needed))
        };
        let Some(ready) = left.iter().copied().find(|name| needs(name).is_none()) else { break };
        left.remove(ready);
    }
    let mut name = *left.first()?;
    let mut path = Vec::new();
    while !path.contains(&name) {
        path.push(name);
        let declared = own.get(name)?.declared.iter().map(|dependency| dependency.name.as_str());
        name = declared.filter_map(|needed| left.get(needed).copied()).next()?;
    }
    path.drain(..path.iter().position(|seen| *seen == name)?);
    path.push(name);
    Some(path)
}

fn directory(package: &str) -> String {
    format!("crates/{}", package.strip_prefix("ebof-").unwrap_or(package))
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    const LIBRARY: &str = "//! A.\n#[cfg(doctest)]\n#[doc = include_str!(\"../README.md\")]\nstruct Readme;\n";
    const FILES: [(&str, &str); 4] = [
        ("crates/ebof/README.md", "# ebof\n"),
        ("crates/ebof/src/lib.rs", LIBRARY),
        ("crates/nvme/README.md", "# ebof-nvme\n"),
        ("crates/nvme/src/lib.rs", LIBRARY),
    ];

    fn package(name: &str, declared: &[(&str, &str, bool)]) -> Package {
        let declared: Vec<Dependency> = declared
            .iter()
            .map(|(name, requirement, is_for_tests)| Dependency {
                name: (*name).to_owned(),
                requirement: (*requirement).to_owned(),
                is_for_tests: *is_for_tests,
            })
            .collect();
        let built = declared.iter().filter(|dependency| !dependency.is_for_tests);
        Package {
            name: name.to_owned(),
            version: "0.2.0".to_owned(),
            description: Some("What it is".to_owned()),
            dependencies: built.map(|dependency| dependency.name.clone()).collect(),
            declared,
            ..Package::default()
        }
    }

    fn house() -> Vec<Package> {
        vec![
            package("ebof", &[("ebof-nvme", "^0.2.0", false), ("libc", "^0.2", false)]),
            package("ebof-nvme", &[("ebof-testkit", "*", true)]),
            package("ebof-testkit", &[("ebof-nvme", "^0.2.0", false)]),
        ]
    }

    fn broken(files: &[(&str, &str)], packages: &[Package]) -> Vec<String> {
        let mut violations = Vec::new();
        check(&tree::with_files(files), packages, &mut violations);
        violations.into_iter().map(|violation| violation.to_string()).collect()
    }

    #[test]
    fn the_library_can_be_published() {
        assert_eq!(broken(&FILES, &house()), Vec::<String>::new());
    }

    #[test]
    fn readme_example_and_description_are_needed() {
        assert_eq!(broken(&FILES[..2], &house()).len(), 2);
        let files = [FILES[0], FILES[1], FILES[2], ("crates/nvme/src/lib.rs", "//! A.\n")];
        assert!(broken(&files, &house())[0].starts_with("crates/nvme/src/lib.rs: nothing tests the README"));
        let mut packages = house();
        packages[1].description = None;
        assert_eq!(broken(&FILES, &packages), ["crates/nvme/Cargo.toml: a crate of the library has no description"]);
    }

    #[test]
    fn a_version_stands_beside_the_paths_of_what_is_published_and_no_others() {
        let mut packages = house();
        packages[0].declared[0].requirement = "*".to_owned();
        let missing = "crates/ebof/Cargo.toml: version = \"0.2.0\" is missing beside the path of ebof-nvme";
        assert_eq!(broken(&FILES, &packages), [missing]);
        packages[0].declared[0].requirement = "^0.1.0".to_owned();
        assert_eq!(broken(&FILES, &packages), [missing]);
        let mut packages = house();
        packages[1].declared[0].requirement = "^0.2.0".to_owned();
        let unpublished = "crates/nvme/Cargo.toml: ebof-testkit is not published: no version beside its path";
        assert_eq!(broken(&FILES, &packages), [unpublished]);
    }

    #[test]
    fn tests_that_need_each_others_crates_are_a_circle() {
        let mut packages = house();
        packages[1] = package("ebof-nvme", &[("ebof", "^0.2.0", true)]);
        let circle = "Cargo.toml: no crate of ebof -> ebof-nvme -> ebof can be published before the others";
        assert_eq!(broken(&FILES, &packages), [circle]);
    }
}
