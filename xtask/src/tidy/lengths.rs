//! The ratchet on file lengths: a file has at most so many lines of code, and a longer one may not
//! grow. Tests, comments and blank lines are free. Owns `xtask/limits.txt`.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::Violation;
use super::tree::Tree;

/// Lines of code a new file may have.
const LENGTH_MAX: usize = 500;
const LIMITS: &str = "xtask/limits.txt";

/// Checks all files; returns those that became shorter than their limit, with what would do now.
pub(crate) fn check(tree: &Tree, violations: &mut Vec<Violation>) -> Vec<(String, usize)> {
    let limits = limits(tree.text(LIMITS).unwrap_or_default(), violations);
    for (path, line, _) in &limits {
        if tree.rust_file(path).is_none() {
            violations.push(Violation::new(LIMITS, *line, format!("{path} does not exist")));
        }
    }
    let mut shorter = Vec::new();
    for (path, source) in tree.rust().filter(|(path, _)| !is_test(path)) {
        let length = source.length();
        let own = limits.iter().find(|(listed, _, _)| listed == path).map(|(_, _, limit)| *limit);
        let limit = own.unwrap_or(LENGTH_MAX);
        if length > limit {
            let message = format!(
                "{length} lines of code, the limit is {limit}: divide it (tests are free in files of their own)"
            );
            violations.push(Violation::new(path, 0, message));
        } else if own.is_some() && length < limit {
            shorter.push((path.to_owned(), length));
        }
    }
    shorter
}

/// Writes the lower limits; a file that is within the general limit is taken off the list.
pub(crate) fn lower(root: &Path, tree: &Tree, shorter: &[(String, usize)]) -> Result<()> {
    let text = lowered(tree.text(LIMITS).unwrap_or_default(), shorter);
    std::fs::write(root.join(LIMITS), text).with_context(|| format!("writing {LIMITS}"))
}

fn lowered(limits: &str, shorter: &[(String, usize)]) -> String {
    let mut text = String::new();
    for line in limits.lines() {
        let path = line.split_whitespace().next().unwrap_or_default();
        match shorter.iter().find(|(found, _)| found == path) {
            Some((_, length)) if *length <= LENGTH_MAX => continue,
            Some((_, length)) => text.push_str(&format!("{path} {length}")),
            None => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

/// Path, line in the list, and limit.
fn limits(text: &str, violations: &mut Vec<Violation>) -> Vec<(String, usize, usize)> {
    let mut limits = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#') && !line.is_empty()) {
        let mut words = line.split_whitespace();
        match (words.next(), words.next().and_then(|limit| limit.parse().ok()), words.next()) {
            (Some(path), Some(limit), None) => limits.push((path.to_owned(), index + 1, limit)),
            _ => violations.push(Violation::new(LIMITS, index + 1, "write: path, blank, lines")),
        }
    }
    limits
}

fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.split('/').any(|part| part == "tests" || part == "testkit")
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    fn file(lines: usize) -> String {
        format!("//! A.\n{}", "f();\n".repeat(lines))
    }

    fn broken(limits: &str, path: &str, lines: usize) -> (usize, usize) {
        let mut violations = Vec::new();
        let shorter = check(&tree::of(&[(LIMITS, limits), (path, &file(lines))]), &mut violations);
        (violations.len(), shorter.len())
    }

    #[test]
    fn a_new_file_has_a_limit_and_a_listed_one_its_own() {
        assert_eq!(broken("", "crates/a/src/a.rs", 500), (0, 0));
        assert_eq!(broken("", "crates/a/src/a.rs", 501), (1, 0));
        assert_eq!(broken("crates/a/src/a.rs 600\n", "crates/a/src/a.rs", 600), (0, 0));
        assert_eq!(broken("crates/a/src/a.rs 600\n", "crates/a/src/a.rs", 601), (1, 0));
        assert_eq!(broken("crates/a/src/a.rs 600\n", "crates/a/src/a.rs", 599), (0, 1));
    }

    #[test]
    fn tests_are_free_and_the_list_is_kept_true() {
        assert_eq!(broken("", "crates/a/src/a/tests.rs", 900), (0, 0));
        assert_eq!(broken("", "crates/a/tests/it.rs", 900), (0, 0));
        assert_eq!(broken("crates/b/src/gone.rs 600\n", "crates/a/src/a.rs", 1), (1, 0));
        assert_eq!(broken("crates/a/src/a.rs many\n", "crates/a/src/a.rs", 1), (1, 0));
    }

    #[test]
    fn limits_only_fall() {
        let limits = "# why\na.rs 700\nb.rs 600\nc.rs 800\n";
        assert_eq!(
            lowered(limits, &[("a.rs".to_owned(), 650), ("b.rs".to_owned(), 400)]),
            "# why\na.rs 650\nc.rs 800\n"
        );
    }
}
