//! The width of comments and documents: at most 100 columns. `cargo xtask wrap` wraps longer lines.

use std::collections::BTreeMap;

use super::Violation;
use super::tree::Tree;
use super::wrap::{COLUMNS_MAX, long_lines};

pub(crate) fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    for (path, text) in tree.texts() {
        let lines = long_lines(path, text, tree.rust_file(path));
        *found.entry(part(path)).or_default() += lines;
    }
    for (part, lines) in found {
        if lines > 0 {
            let message = format!(
                "{lines} lines of comments or documents have more than {COLUMNS_MAX} columns: cargo xtask wrap {part}"
            );
            violations.push(Violation::new(part, 0, message));
        }
    }
}

/// The crate that a file belongs to, or its topmost directory.
fn part(path: &str) -> &str {
    let slashes = if path.starts_with("crates/") { 1 } else { 0 };
    path.match_indices('/').nth(slashes).map_or(path, |(end, _)| &path[..end])
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    #[test]
    fn a_long_line_is_reported_with_its_beginning() {
        let long = format!("//! {}\n", "a ".repeat(60));
        let mut violations = Vec::new();
        check(
            &tree::with_files(&[("crates/x/src/lib.rs", &long), ("docs/a/b.md", &long), ("docs/c.md", "//! a\n")]),
            &mut violations,
        );
        let messages: Vec<String> = violations.iter().map(ToString::to_string).collect();
        assert_eq!(messages.len(), 2, "{messages:?}");
        assert!(messages[0].starts_with("crates/x: 1 lines"), "{messages:?}");
    }
}
