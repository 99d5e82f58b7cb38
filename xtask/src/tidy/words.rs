//! What must not be in committed text: paths of one machine, private hosts, registries.

use super::Violation;
use super::tree::Tree;

/// Directories of single machines. They are matched at the start of a path only.
const MACHINE_PATHS: &[&str] = &["/work/", "/home/", "/root/", "/Users/"];

/// An exception: the virtual machines of the tests have a root user, too.
const GUESTS: &str = "tests/vm/";

/// An exception: this file contains the patterns.
const SELF: &str = "xtask/src/tidy/words.rs";

/// Hosts that a build, a script or a manifest may reach; any other is a mirror, a proxy or a
/// private machine. Documents and comments may link to every public host.
const BUILD_HOSTS: &[&str] = &[
    "crates.io",
    "deb.debian.org",
    "docs.oasis-open.org",
    "docs.rs",
    "example.org",
    "github.com",
    "json.org",
    "json-schema.org",
    "localhost",
    "nvmexpress.org",
    "opencollective.com",
    "openmetrics.io",
    "redfish.dmtf.org",
    "rustsec.org",
    "rustup.rs",
    "www.debian.org",
    "sh.rustup.rs",
    "toml.io",
    "www.apache.org",
    "www.rust-lang.org",
    "www.w3.org",
];

/// Suffixes of private host names, which are not allowed anywhere.
const PRIVATE_HOSTS: &[&str] = &[".local", ".internal", ".lan", ".corp", ".home.arpa"];

/// Files whose URLs are for readers.
const PROSE: &[&str] = &[".md", ".rs"];

/// Settings that send cargo or apt elsewhere; they belong to a machine's configuration.
const SETTINGS: &[&str] = &["_proxy=", "replace-with", "registry-index", "sparse+http"];

pub(crate) fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    for (path, text) in tree.texts().filter(|(path, _)| *path != SELF) {
        for (index, line) in text.lines().enumerate() {
            let mut report = |message: String| violations.push(Violation::new(path, index + 1, message));
            let guests = path.starts_with(GUESTS);
            if let Some(found) = MACHINE_PATHS.iter().find(|found| !guests && starts_in(line, found)) {
                report(format!("{found} is a path of one machine"));
            }
            let prose = PROSE.iter().any(|end| path.ends_with(end));
            for host in hosts(line).filter(|host| !is_allowed(host, prose)) {
                report(format!("{host} is not a public host"));
            }
            if let Some(setting) = SETTINGS.iter().find(|setting| line.contains(**setting)) {
                report(format!("`{setting}` belongs to the configuration of a machine"));
            }
        }
    }
}

/// Whether `path` occurs in `line` as the start of a path.
fn starts_in(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|before| before.is_alphanumeric() || "_-.}/*>".contains(before))
    })
}

/// The hosts of the URLs in a line.
fn hosts(line: &str) -> impl Iterator<Item = &str> {
    ["http://", "https://"].into_iter().flat_map(move |scheme| line.split(scheme).skip(1)).map(|rest| {
        let end = rest.find(|character: char| !character.is_alphanumeric() && !"-._".contains(character));
        &rest[..end.unwrap_or(rest.len())]
    })
}

/// Whether a host may be named. Literal addresses and variables are allowed.
fn is_allowed(host: &str, prose: bool) -> bool {
    let is_address = host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let is_public = host.contains('.') && !PRIVATE_HOSTS.iter().any(|end| host.ends_with(end));
    is_address || host.ends_with(".example") || BUILD_HOSTS.contains(&host) || (prose && is_public)
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    fn broken(path: &str, text: &str) -> usize {
        let mut violations = Vec::new();
        check(&tree::with_files(&[(path, text)]), &mut violations);
        violations.len()
    }

    #[test]
    fn local_paths_are_found() {
        assert_eq!(broken("README.md", "in /home/me/ebof\n"), 1);
        assert_eq!(broken("README.md", "(/root/x)\n"), 1);
        assert_eq!(broken("README.md", "at $dir/root/x, sub/home/y, <w>/work/z\n"), 0);
        assert_eq!(broken("tests/vm/a.sh", "ls /root/x\n"), 0);
    }

    #[test]
    fn builds_use_known_hosts_and_documents_any_public_ones() {
        assert_eq!(broken("README.md", "https://github.com/a/b and http://127.0.0.1:9000/metrics\n"), 0);
        assert_eq!(broken("docs/specs.md", "https://www.rfc-editor.org/rfc/rfc3394\n"), 0);
        assert_eq!(broken("docs/specs.md", "http://mirror.lan/rfc3394 and http://mirror/\n"), 2);
        assert_eq!(broken("Cargo.lock", "source = \"registry+https://mirror.corp.net/index\"\n"), 1);
        assert_eq!(broken("scripts/a.sh", "curl https://github.com.evil.net/\n"), 1);
    }

    #[test]
    fn local_settings_are_reported() {
        assert_eq!(broken(".cargo/config.toml", "replace-with = \"mirror\"\n"), 1);
        assert_eq!(broken("a.sh", "export http_proxy=http://127.0.0.1:3128\n"), 1);
        assert_eq!(broken("a.sh", "echo proxy\n"), 0);
    }
}
