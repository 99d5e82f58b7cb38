//! SPECIFICATION.md against the tests. Every guarantee has a name, and the tests that guard it have
//! a mark with that name: `// @test limits.transfer` above a test, `# @test data.shutdown` in a
//! script. The lists of tests in the document follow from the marks; `cargo xtask guarantees`
//! writes them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result};

use super::Violation;
use super::source::Source;
use super::tree::Tree;

const SPECIFICATION: &str = "SPECIFICATION.md";

/// In place of tests: what is not guarded yet, and therefore not guaranteed.
const PENDING: &str = "[pending]";

/// Lines between a mark and the head of its test, at most: other marks and attributes.
const DISTANCE_MAX: usize = 12;

/// A mark over a test.
struct Mark<'a> {
    /// The guarantee that the test guards.
    name: &'a str,
    path: &'a str,
    line: usize,
    /// The test: a function, or the path of a script. `None` if there is no test below the mark.
    test: Option<String>,
}

/// A row of a table: a guarantee.
struct Row<'a> {
    line: usize,
    name: &'a str,
    text: &'a str,
    tests: &'a str,
}

pub(crate) fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    let text = tree.text(SPECIFICATION).unwrap_or_default();
    let marks = marks(tree);
    let tests = by_name(&marks);
    let mut names = BTreeSet::new();
    for row in rows(text) {
        let mut report = |message: String| violations.push(Violation::new(SPECIFICATION, row.line, message));
        let Row { name, .. } = row;
        if name.is_empty() || name.contains(char::is_whitespace) {
            report(format!("{name:?} is no name of a guarantee"));
        } else if !names.insert(name) {
            report(format!("there is another guarantee {name}"));
        }
        match tests.get(name) {
            None if row.tests == PENDING => {}
            None => report(format!("no test has the mark `@test {name}`, and it is not {PENDING}")),
            Some(tests) if list(tests) == row.tests => {}
            Some(_) => report(format!("other tests have the mark `@test {name}`: cargo xtask guarantees")),
        }
    }
    for Mark { name, path, line, test } in &marks {
        if !names.contains(name) {
            violations.push(Violation::new(path, *line, format!("there is no guarantee {name} in {SPECIFICATION}")));
        }
        if test.is_none() {
            violations.push(Violation::new(path, *line, format!("there is no test below the mark of {name}")));
        }
    }
}

/// Writes the lists of tests into SPECIFICATION.md.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let tree = Tree::load(root)?;
    let text = tree.text(SPECIFICATION).context("SPECIFICATION.md is missing")?;
    std::fs::write(root.join(SPECIFICATION), written(&tree, text)).context("writing SPECIFICATION.md")?;
    Ok(true)
}

/// The text with the lists that follow from the marks.
fn written(tree: &Tree, text: &str) -> String {
    let marks = marks(tree);
    let tests = by_name(&marks);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for row in rows(text) {
        if let Some(tests) = tests.get(row.name) {
            lines[row.line - 1] = format!("| {} | {} | {} |", row.name, row.text, list(tests));
        }
    }
    lines.join("\n") + "\n"
}

fn rows(text: &str) -> Vec<Row<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    let is_rule = |line: Option<&&str>| line.is_some_and(|line| line.starts_with("|--"));
    let mut rows = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        // The head of a table, and the rule below it.
        if is_rule(Some(line)) || is_rule(lines.get(index + 1)) {
            continue;
        }
        let Some(cells) = line.strip_prefix('|') else { continue };
        let (name, rest) = cells.split_once('|').unwrap_or((cells, ""));
        let (text, tests) = rest.trim_end().trim_end_matches('|').rsplit_once('|').unwrap_or((rest, ""));
        rows.push(Row { line: index + 1, name: name.trim(), text: text.trim(), tests: tests.trim() });
    }
    rows
}

/// The tests of each guarantee.
fn by_name<'a>(marks: &'a [Mark<'_>]) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut tests: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for mark in marks {
        tests.entry(mark.name).or_default().extend(mark.test.as_deref());
    }
    tests
}

fn list(tests: &BTreeSet<&str>) -> String {
    let quoted: Vec<String> = tests.iter().map(|test| format!("`{test}`")).collect();
    quoted.join(", ")
}

fn marks(tree: &Tree) -> Vec<Mark<'_>> {
    let mut marks = Vec::new();
    for (path, source) in tree.rust() {
        for (line, comment) in source.comments() {
            if let Some(name) = comment.strip_prefix("// @test ") {
                marks.push(Mark { name: name.trim(), path, line, test: test_below(path, source, line) });
            }
        }
    }
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with(".sh")) {
        for (index, line) in text.lines().enumerate() {
            if let Some(name) = line.strip_prefix("# @test ") {
                marks.push(Mark { name: name.trim(), path, line: index + 1, test: Some(path.to_owned()) });
            }
        }
    }
    marks
}

/// The name of the test that begins below `line` (from 1).
fn test_below(path: &str, source: &Source, line: usize) -> Option<String> {
    let is_of_tests = path.split('/').any(|part| part == "tests" || part == "tests.rs");
    let mut has_attribute = false;
    for (found, code) in source.code().skip(line).take(DISTANCE_MAX) {
        has_attribute |= code.trim() == "#[test]";
        let Some((_, head)) = code.split_once("fn ") else { continue };
        let name = head.split(|character: char| !character.is_alphanumeric() && character != '_').next()?;
        let is_test = has_attribute || is_of_tests || source.product().all(|(other, _)| other != found);
        return (is_test && !name.is_empty()).then(|| name.to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    const HEAD: &str = "| name | guarantee | guarded by |\n|---|---|---|\n";
    const TESTS: (&str, &str) = (
        "crates/x/tests/it/a.rs",
        "//! A.\n// @test limits.size\n// @test limits.count\n#[test]\nfn one() {}\n\n// @test limits.size\n#[test]\nfn another() {}\n",
    );
    const SCRIPT: (&str, &str) = ("tests/vm/b.sh", "#!/bin/bash\n# A scenario.\n# @test limits.count\n");

    fn broken(rows: &str, files: &[(&str, &str)]) -> Vec<String> {
        let text = format!("{HEAD}{rows}");
        let all: Vec<(&str, &str)> =
            [(SPECIFICATION, text.as_str())].into_iter().chain(files.iter().copied()).collect();
        let mut violations = Vec::new();
        check(&tree::with_files(&all), &mut violations);
        violations.into_iter().map(|violation| violation.message).collect()
    }

    const SIZE: &str = "| limits.size | 1 MiB | `another`, `one` |\n";
    const COUNT: &str = "| limits.count | 7 | `one`, `tests/vm/b.sh` |\n";

    #[test]
    fn the_lists_are_those_of_the_marks() {
        assert_eq!(broken(&format!("{SIZE}{COUNT}| speed.raw | fast | [pending] |\n"), &[TESTS, SCRIPT]), [""; 0]);
        let other = SIZE.replace("`another`, ", "");
        assert_eq!(broken(&format!("{other}{COUNT}"), &[TESTS, SCRIPT]).len(), 1);
        assert_eq!(
            broken(&format!("{SIZE}{SIZE}{COUNT}"), &[TESTS, SCRIPT]),
            ["there is another guarantee limits.size"]
        );
    }

    #[test]
    fn a_guarantee_without_a_test_and_a_mark_without_a_guarantee_are_refused() {
        let without = format!("{SIZE}{COUNT}| limits.new | 8 | `one` |\n");
        assert_eq!(
            broken(&without, &[TESTS, SCRIPT]),
            ["no test has the mark `@test limits.new`, and it is not [pending]"]
        );
        let [gone] = &broken(SIZE, &[TESTS])[..] else { panic!("one mark has no guarantee") };
        assert_eq!(gone, "there is no guarantee limits.count in SPECIFICATION.md");
        let product = ("crates/x/src/a.rs", "//! A.\n// @test limits.size\nfn one() {}\n");
        assert_eq!(
            broken("| limits.size | 1 MiB |  |\n", &[product]),
            ["there is no test below the mark of limits.size"]
        );
        let unit =
            ("crates/x/src/a.rs", "//! A.\n#[cfg(test)]\nmod tests {\n    // @test limits.size\n    fn one() {}\n}\n");
        assert_eq!(broken("| limits.size | 1 MiB | `one` |\n", &[unit]), [""; 0]);
    }

    #[test]
    fn lists_are_written() {
        let text = format!(
            "A\n\n{HEAD}| limits.size | 1 MiB | |\n| limits.count | 7 | `gone` |\n| speed.raw | fast | [pending] |\n"
        );
        let text = written(&tree::with_files(&[TESTS, SCRIPT]), &text);
        assert_eq!(text, format!("A\n\n{HEAD}{SIZE}{COUNT}| speed.raw | fast | [pending] |\n"));
    }
}
