//! File lengths: limits the lines of code of a file. Tests, comments and blank lines do not count.

use super::Violation;
use super::tree::Tree;

/// Maximum number of lines of code of a file.
const LENGTH_MAX: usize = 500;

pub(crate) fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    for (path, source) in tree.rust().filter(|(path, _)| !is_test(path)) {
        let length = source.length();
        if length > LENGTH_MAX {
            let message = format!(
                "{length} lines of code, the limit is {LENGTH_MAX}: divide it (tests are free in files of their own)"
            );
            violations.push(Violation::new(path, 0, message));
        }
    }
}

fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.split('/').any(|part| part == "tests" || part == "testkit")
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    fn broken(path: &str, lines: usize) -> usize {
        let mut violations = Vec::new();
        let file = format!("//! A.\n{}", "f();\n".repeat(lines));
        check(&tree::with_files(&[(path, &file)]), &mut violations);
        violations.len()
    }

    #[test]
    fn files_have_a_line_limit_and_tests_do_not_count() {
        assert_eq!(broken("crates/a/src/a.rs", 500), 0);
        assert_eq!(broken("crates/a/src/a.rs", 501), 1);
        assert_eq!(broken("crates/a/src/a/tests.rs", 900), 0);
        assert_eq!(broken("crates/a/tests/it.rs", 900), 0);
    }
}
