//! Rules for single Rust files: the header, unsafe code, notes about work to do, the programs that
//! tests are, folders. Lengths are in lengths.rs.

use super::Violation;
use super::source::{Source, has_word};
use super::tree::Tree;

/// Where unsafe code may be: files, and folders, which end with a slash. A new place needs an ADR.
const UNSAFE_FILES: &[&str] = &[
    "crates/region/src/arena.rs",
    "crates/region/src/region.rs",
    "crates/region/src/shared.rs",
    "crates/region/src/shared/guard.rs",
    "crates/backend/src/signal.rs",
    "crates/backend/src/io/uring.rs",
    "crates/rights/src/install.rs",
    "crates/rights/tests/it/raw.rs",
    "crates/tls/src/kernel.rs",
    "crates/tls/src/s2n.rs",
    "crates/vault/src/kept.rs",
    "crates/vault/src/pages.rs",
    "crates/vault/src/slots.rs",
    "crates/attach/src/loopdev/kernel.rs",
    "crates/attach/src/ublk.rs",
    "crates/fio/src/memory.rs",
    "crates/fio/src/trampoline.rs",
    "crates/idle/src/thread.rs",
    "crates/verbs/src/simulated/memory.rs",
    "crates/verbs/src/system/",
];

/// The test programs of a crate: directories with a `main.rs`. Each is linked with all
/// dependencies, so that there are only two; `alone` is for tests that need a process of their own.
const TEST_PROGRAMS: &[&str] = &["it", "alone"];

pub(crate) fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    for (path, source) in tree.rust() {
        if !source.first_line().starts_with("//!") {
            violations.push(Violation::new(path, 1, "does not start with `//!`: what it owns, and what it does not"));
        }
        unsafe_code(path, source, violations);
        test_program(path, violations);
        folder(path, violations);
        for (line, comment) in source.comments() {
            note(path, line, comment, violations);
        }
    }
    for (path, text) in tree.texts().filter(|(path, _)| bears_comments(path)) {
        for (index, line) in text.lines().enumerate() {
            note(path, index + 1, line, violations);
        }
    }
}

fn unsafe_code(path: &str, source: &Source, violations: &mut Vec<Violation>) {
    for (line, _) in source.code().filter(|(_, code)| has_word(code, "unsafe")) {
        if !UNSAFE_FILES.iter().any(|place| path == *place || (place.ends_with('/') && path.starts_with(place))) {
            violations.push(Violation::new(path, line, "unsafe code outside the files that docs/adr allows it in"));
            continue;
        }
        let above = source.comment_above(line);
        for word in ["SAFETY:", "JUSTIFICATION:"] {
            if !above.contains(word) {
                violations.push(Violation::new(path, line, format!("unsafe code without `// {word}` above it")));
            }
        }
    }
}

/// Tests of a crate are modules of `tests/it/main.rs`.
fn test_program(path: &str, violations: &mut Vec<Violation>) {
    let mut parts = path.split('/');
    let (Some("crates"), Some(_), Some("tests"), Some(name)) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return;
    };
    if !TEST_PROGRAMS.contains(&name) {
        violations.push(Violation::new(path, 0, "not a module of tests/it/main.rs, nor of tests/alone/main.rs"));
    }
}

/// Tools take a folder of this name for the output of a build, and do not show what is in it.
fn folder(path: &str, violations: &mut Vec<Violation>) {
    if path.split('/').any(|part| part == "target") {
        violations.push(Violation::new(path, 0, "in a folder called target, which many tools hide"));
    }
}

/// A note about work to do must name an issue.
fn note(path: &str, line: usize, text: &str, violations: &mut Vec<Violation>) {
    for word in ["TODO", "FIXME", "XXX"] {
        let Some(after) = text.split(word).nth(1).filter(|_| has_word(text, word)) else { continue };
        let issue = after.strip_prefix("(#").and_then(|rest| rest.split_once(')'));
        if !issue.is_some_and(|(number, _)| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())) {
            violations.push(Violation::new(path, line, format!("`{word}` without an issue: write `{word}(#12)`")));
        }
    }
}

fn bears_comments(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    matches!(name.rsplit_once('.'), Some((_, "sh" | "toml" | "yml" | "yaml"))) || matches!(name, "Makefile" | "run")
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    fn broken(path: &str, text: &str) -> Vec<usize> {
        let mut violations = Vec::new();
        check(&tree::with_files(&[(path, text)]), &mut violations);
        violations.into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn a_file_begins_with_its_documentation() {
        assert_eq!(broken("crates/nvme/src/a.rs", "//! A.\nfn f() {}\n"), [0; 0]);
        assert_eq!(broken("crates/nvme/src/a.rs", "fn f() {}\n"), [1]);
        assert_eq!(broken("crates/nvme/src/a.rs", "/// A.\nfn f() {}\n"), [1]);
        assert_eq!(broken("crates/nvme/src/a.rs", ""), [1]);
    }

    #[test]
    fn unsafe_code_is_allowed_in_some_files_and_needs_comments() {
        let bare = "//! A.\nfn f() {\n    unsafe { g() }\n}\n";
        let half = "//! A.\nfn f() {\n    // SAFETY: sound.\n    unsafe { g() }\n}\n";
        let whole = "//! A.\nfn f() {\n    // SAFETY: sound.\n    // JUSTIFICATION: fast.\n    unsafe { g() }\n}\n";
        assert_eq!(broken("crates/backend/src/io/uring.rs", whole), [0; 0]);
        assert_eq!(broken("crates/backend/src/io/uring.rs", half), [4]);
        assert_eq!(broken("crates/backend/src/io/uring.rs", bare), [3, 3]);
        assert_eq!(broken("crates/backend/src/file.rs", whole), [5]);
        assert_eq!(broken("crates/verbs/src/system/queue_pair.rs", whole), [0; 0]);
        assert_eq!(broken("crates/verbs/src/queue_pair.rs", whole), [5]);
        assert_eq!(broken("crates/backend/src/file.rs", "//! The word unsafe.\n#![forbid(unsafe_code)]\n"), [0; 0]);
    }

    #[test]
    fn no_folder_is_called_target() {
        assert_eq!(broken("crates/a/src/target/b.rs", "//! A.\n"), [0]);
        assert_eq!(broken("crates/a/src/target.rs", "//! A.\n"), [0; 0]);
    }

    #[test]
    fn tests_of_a_crate_are_one_program() {
        for path in
            ["crates/a/tests/it/main.rs", "crates/a/tests/alone/log.rs", "crates/a/src/tests/b.rs", "tests/b.rs"]
        {
            assert_eq!(broken(path, "//! A.\n"), [0; 0], "{path}");
        }
        assert_eq!(broken("crates/a/tests/b.rs", "//! A.\n"), [0]);
        assert_eq!(broken("crates/a/tests/b/main.rs", "//! A.\n"), [0]);
    }

    #[test]
    fn a_note_names_its_issue() {
        assert_eq!(broken("crates/a/src/a.rs", "//! A.\n// TODO: later\n"), [2]);
        assert_eq!(broken("crates/a/src/a.rs", "//! A.\n// FIXME(soon) later\n"), [2]);
        assert_eq!(broken("crates/a/src/a.rs", "//! A.\n// TODO(#12) later\n"), [0; 0]);
        assert_eq!(broken("crates/a/src/a.rs", "//! A.\nlet x = \"TODO\";\n"), [0; 0]);
        assert_eq!(broken("tests/vm/run.sh", "# TODO\n"), [1]);
        assert_eq!(broken("tests/vm/run.sh", "mktemp XXXXXX\n"), [0; 0]);
    }
}
