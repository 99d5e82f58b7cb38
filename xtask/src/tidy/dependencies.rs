//! Dependencies between crates: compares the arrows of ARCHITECTURE.md with the manifests, and
//! checks that pure crates are pure.

use std::collections::BTreeSet;

use super::Violation;
use super::documents::fenced;
use super::tree::Tree;
use crate::metadata::Package;

const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// Crates without I/O, clock, randomness and logging, and what each may use from outside
/// (docs/adr/0010).
const PURE: &[(&str, &[&str])] = &[
    ("nvme", &["zerocopy", "crc-fast"]),
    ("tcp", &["zerocopy", "crc-fast", "thiserror"]),
    ("rdma", &["zerocopy", "thiserror"]),
    ("vfio", &["zerocopy", "thiserror", "serde", "serde_json"]),
    ("fabrics", &["zerocopy", "thiserror"]),
    ("shares", &[]),
];

/// From, to.
type Arrow = (String, String);

pub(crate) fn check(tree: &Tree, packages: &[Package], violations: &mut Vec<Violation>) {
    let real = real_arrows(packages);
    match fenced(tree.text(ARCHITECTURE).unwrap_or_default(), "arrows") {
        Some((line, block)) => {
            let drawn = drawn_arrows(block);
            for from in drawn_twice(block) {
                violations.push(Violation::new(ARCHITECTURE, line, format!("{from} has two lines of arrows")));
            }
            for (from, to) in real.difference(&drawn) {
                let message =
                    format!("{from} depends on {to}, which the arrows do not allow: a new arrow needs an ADR");
                violations.push(Violation::new(ARCHITECTURE, line, message));
            }
            for (from, to) in drawn.difference(&real) {
                violations.push(Violation::new(ARCHITECTURE, line, format!("{from} does not depend on {to}")));
            }
        }
        None => violations.push(Violation::new(ARCHITECTURE, 0, "has no block ```arrows")),
    }
    for (directory, allowed) in PURE {
        pure(tree, packages, directory, allowed, violations);
    }
}

fn real_arrows(packages: &[Package]) -> BTreeSet<Arrow> {
    let own = |name: &str| packages.iter().any(|package| package.name == name);
    let arrows = packages.iter().flat_map(|package| {
        let to = package.dependencies.iter().filter(|name| own(name));
        to.map(|name| (short(&package.name), short(name)))
    });
    arrows.collect()
}

/// Lines of the form `server -> nvme tcp`.
fn drawn_arrows(block: &str) -> BTreeSet<Arrow> {
    let lines = block.lines().filter_map(|line| line.split_once("->"));
    let arrows = lines.flat_map(|(from, to)| to.split_whitespace().map(|to| (from.trim().to_owned(), to.to_owned())));
    arrows.collect()
}

/// Crates whose arrows are not in one line.
fn drawn_twice(block: &str) -> Vec<&str> {
    let mut seen = BTreeSet::new();
    let from = block.lines().filter_map(|line| Some(line.split_once("->")?.0.trim()));
    from.filter(|from| !seen.insert(*from)).collect()
}

fn short(name: &str) -> String {
    name.strip_prefix("ebof-").unwrap_or(name).to_owned()
}

fn pure(tree: &Tree, packages: &[Package], directory: &str, allowed: &[&str], violations: &mut Vec<Violation>) {
    let manifest = format!("crates/{directory}/Cargo.toml");
    let Some(package) = packages.iter().find(|package| short(&package.name) == directory) else {
        violations.push(Violation::new(&manifest, 0, "a pure crate is missing"));
        return;
    };
    let foreign = package.dependencies.iter().filter(|name| !packages.iter().any(|own| own.name == **name));
    for name in foreign.filter(|name| !allowed.contains(&name.as_str())) {
        violations.push(Violation::new(&manifest, 0, format!("a pure crate uses {name}: not in its allow list")));
    }
    let library = format!("crates/{directory}/src/lib.rs");
    for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
        let source = tree.rust_file(&library);
        if !source.is_some_and(|source| source.code().any(|(_, code)| code.trim() == attribute)) {
            violations.push(Violation::new(&library, 0, format!("a pure crate without `{attribute}`")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    fn package(name: &str, dependencies: &[&str]) -> Package {
        let dependencies = dependencies.iter().map(|name| (*name).to_owned()).collect();
        Package { name: name.to_owned(), dependencies, ..Package::default() }
    }

    fn house() -> Vec<Package> {
        vec![
            package("ebof-nvme", &["zerocopy"]),
            package("ebof-tcp", &["ebof-nvme", "crc-fast"]),
            package("ebof-rdma", &["ebof-nvme", "thiserror"]),
            package("ebof-vfio", &["ebof-nvme", "serde"]),
            package("ebof-shares", &[]),
            package("ebof-fabrics", &["ebof-nvme"]),
            package("ebof-server", &["ebof-tcp", "libc"]),
        ]
    }

    const ARROWS: &str =
        "# A\n\n```arrows\ntcp -> nvme\nrdma -> nvme\nvfio -> nvme\nfabrics -> nvme\nserver -> tcp\n```\n";
    const PURE_LIBRARY: &str = "//! A.\n#![no_std]\n#![forbid(unsafe_code)]\n";

    fn broken(architecture: &str, library: &str, packages: &[Package]) -> Vec<String> {
        let mut violations = Vec::new();
        let tree = tree::with_files(&[
            (ARCHITECTURE, architecture),
            ("crates/nvme/src/lib.rs", library),
            ("crates/tcp/src/lib.rs", PURE_LIBRARY),
            ("crates/rdma/src/lib.rs", PURE_LIBRARY),
            ("crates/vfio/src/lib.rs", PURE_LIBRARY),
            ("crates/fabrics/src/lib.rs", PURE_LIBRARY),
            ("crates/shares/src/lib.rs", PURE_LIBRARY),
        ]);
        check(&tree, packages, &mut violations);
        violations.into_iter().map(|violation| violation.message).collect()
    }

    #[test]
    fn arrows_and_manifests_agree_in_both_directions() {
        assert_eq!(broken(ARROWS, PURE_LIBRARY, &house()), Vec::<String>::new());
        let missing = ARROWS.replace("server -> tcp\n", "");
        assert_eq!(broken(&missing, PURE_LIBRARY, &house()).len(), 1);
        let invented = ARROWS.replace("server -> tcp", "server -> tcp nvme");
        assert_eq!(broken(&invented, PURE_LIBRARY, &house()), ["server does not depend on nvme"]);
        let twice = ARROWS.replace("tcp -> nvme\n", "tcp -> nvme\ntcp -> nvme\n");
        assert_eq!(broken(&twice, PURE_LIBRARY, &house()), ["tcp has two lines of arrows"]);
        assert_eq!(broken("# A\n", PURE_LIBRARY, &house()), ["has no block ```arrows"]);
    }

    #[test]
    fn a_pure_crate_stays_pure() {
        let mut packages = house();
        packages[1].dependencies.push("tokio".to_owned());
        assert_eq!(broken(ARROWS, PURE_LIBRARY, &packages), ["a pure crate uses tokio: not in its allow list"]);
        assert_eq!(broken(ARROWS, "//! `#![no_std]`\n#![forbid(unsafe_code)]\n", &house()).len(), 1);
        assert_eq!(broken(ARROWS, "//! A.\n", &house()).len(), 2);
        let arrows = "```arrows\ntcp -> nvme\nrdma -> nvme\nvfio -> nvme\ntarget -> tcp\n```\n";
        assert_eq!(broken(arrows, PURE_LIBRARY, &house()[..5]).len(), 2);
    }
}
