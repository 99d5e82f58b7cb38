//! Documents against the tree: names and paths in ARCHITECTURE.md, the tests that SPECIFICATION.md
//! names, links between Markdown files, the index of ADRs.

use std::collections::BTreeSet;

use super::Violation;
use super::tree::Tree;

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const SPECIFICATION: &str = "SPECIFICATION.md";
const INDEX: &str = "docs/adr/README.md";

pub(crate) fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with(".md")) {
        links(tree, path, text, violations);
    }
    names(tree, violations);
    guards(tree, violations);
    adrs(tree, violations);
}

/// The fenced block of a Markdown text that is marked with `kind`: the line of its fence (from 1),
/// and what is inside.
pub(crate) fn fenced<'a>(text: &'a str, kind: &str) -> Option<(usize, &'a str)> {
    let fence = format!("```{kind}\n");
    let start = text.find(&fence)?;
    let block = &text[start + fence.len()..];
    let end = block.find("```")?;
    Some((text[..start].matches('\n').count() + 1, &block[..end]))
}

/// Targets of relative links exist.
fn links(tree: &Tree, path: &str, text: &str, violations: &mut Vec<Violation>) {
    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    for (index, line) in text.lines().enumerate() {
        for link in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") || file.starts_with("mailto:") {
                continue;
            }
            if !resolve(directory, file).is_some_and(|file| tree.exists(&file)) {
                violations.push(Violation::new(path, index + 1, format!("the link to {file} leads nowhere")));
            }
        }
    }
}

/// A path relative to `directory`, from the root; `None` if it leaves the tree.
fn resolve(directory: &str, file: &str) -> Option<String> {
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Every path and every `Type::member` of ARCHITECTURE.md exists.
fn names(tree: &Tree, violations: &mut Vec<Violation>) {
    let Some(text) = tree.text(ARCHITECTURE) else {
        violations.push(Violation::new(ARCHITECTURE, 0, "is missing"));
        return;
    };
    for (index, line) in text.lines().enumerate() {
        let is_part = |character: char| character.is_alphanumeric() || "_:/.-".contains(character);
        let words = line.split(|character| !is_part(character)).map(|word| word.trim_matches(['.', ':', '-']));
        for word in words {
            let missing = if word.contains("://") {
                continue;
            } else if word.contains("::") {
                !has_item(tree, word)
            } else if looks_like_path(word) {
                !has_path(tree, word)
            } else {
                continue;
            };
            if missing {
                violations.push(Violation::new(ARCHITECTURE, index + 1, format!("{word} does not exist")));
            }
        }
    }
}

fn looks_like_path(word: &str) -> bool {
    let known = ["crates/", "docs/", "tests/", "fuzz/", "xtask/"].iter().any(|top| word.starts_with(top));
    known || [".rs", ".md", ".toml", ".sh"].iter().any(|end| word.ends_with(end))
}

/// A path from the root, or a crate's file without `crates/` and `src/`: `tcp/controller.rs`.
fn has_path(tree: &Tree, path: &str) -> bool {
    let of_crate = path.split_once('/').map(|(name, file)| format!("crates/{name}/src/{file}"));
    tree.exists(path) || of_crate.is_some_and(|path| tree.exists(&path))
}

/// `Type::member`, or `module::function`.
fn has_item(tree: &Tree, name: &str) -> bool {
    let parts: Vec<&str> = name.split("::").collect();
    let [.., owner, member] = parts.as_slice() else { return false };
    if owner.starts_with(char::is_uppercase) {
        return tree.rust().any(|(_, source)| source.has_member(owner, member));
    }
    let files = [format!("/{owner}.rs"), format!("/{owner}/mod.rs"), format!("/{owner}/src/lib.rs")];
    tree.rust().any(|(path, source)| files.iter().any(|file| path.ends_with(file)) && source.has_function(member))
}

/// Every guarantee of SPECIFICATION.md (a row of a table) names the tests or scripts that guard it
/// in its last cell, or is `[pending]`.
fn guards(tree: &Tree, violations: &mut Vec<Violation>) {
    let text = tree.text(SPECIFICATION).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let is_rule = |line: Option<&&str>| line.is_some_and(|line| line.starts_with("|--"));
    for (index, line) in lines.iter().enumerate().filter(|(_, line)| line.starts_with('|')) {
        // The head of a table, and the rule below it.
        if is_rule(Some(line)) || is_rule(lines.get(index + 1)) {
            continue;
        }
        let cell = line.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        let mut guards = cell.split('`').skip(1).step_by(2).peekable();
        if guards.peek().is_none() && !cell.contains("[pending]") {
            violations.push(Violation::new(SPECIFICATION, index + 1, "names no test, and is not [pending]"));
        }
        let is_there = |guard: &str| match guard.contains('/') {
            true => tree.exists(guard),
            false => tree.rust().any(|(_, source)| source.has_function(guard)),
        };
        for guard in guards.filter(|guard| !is_there(guard)) {
            violations.push(Violation::new(SPECIFICATION, index + 1, format!("there is no test {guard}")));
        }
    }
}

/// Every ADR is in the index once. Decisions that are made at the same time have their numbers
/// before: those of changes that never come are gaps.
fn adrs(tree: &Tree, violations: &mut Vec<Violation>) {
    let index = tree.text(INDEX).unwrap_or_default();
    let mut numbers: BTreeSet<u32> = BTreeSet::new();
    let files = tree.texts().filter_map(|(path, _)| path.strip_prefix("docs/adr/").map(|name| (path, name)));
    for (path, name) in files.filter(|(_, name)| *name != "README.md") {
        let number = name.split('-').next().filter(|digits| digits.len() == 4).and_then(|digits| digits.parse().ok());
        let Some(number) = number.filter(|_| name.ends_with(".md")) else {
            violations.push(Violation::new(path, 0, "is not named NNNN-title.md"));
            continue;
        };
        if !numbers.insert(number) {
            violations.push(Violation::new(path, 0, format!("there is another ADR {number:04}")));
        }
        if !index.contains(&format!("]({name})")) {
            violations.push(Violation::new(INDEX, 0, format!("{name} is not listed")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    fn broken(files: &[(&str, &str)]) -> Vec<String> {
        let mut violations = Vec::new();
        check(&tree::of(files), &mut violations);
        violations.into_iter().map(|violation| violation.message).collect()
    }

    const QUEUE: (&str, &str) =
        ("crates/fabrics/src/queue.rs", "//! Q.\nimpl Queue {\n    fn submit() {}\n}\nfn free() {}\n");

    #[test]
    fn names_in_the_architecture_exist() {
        let text = "`Queue::submit` in fabrics/queue.rs, crates/fabrics/src/queue.rs and `queue::free`. See https://example.org/z.md.\n";
        assert_eq!(broken(&[QUEUE, (ARCHITECTURE, text)]), Vec::<String>::new());
        for name in ["Queue::complete", "Other::submit", "fabrics/gone.rs", "docs/gone", "queue::gone", "other::free"] {
            let text = format!("`{name}`\n");
            assert_eq!(broken(&[QUEUE, (ARCHITECTURE, &text)]), [format!("{name} does not exist")]);
        }
    }

    #[test]
    fn a_promise_has_a_test_or_is_pending() {
        let rows = |row: &str| format!("| promise | guard |\n|---|---|\n{row}\n");
        let check = |row: &str| broken(&[QUEUE, (ARCHITECTURE, "A\n"), (SPECIFICATION, &rows(row))]).len();
        assert_eq!(check("| 1 MiB | `free` |"), 0);
        assert_eq!(check("| 1 MiB | `crates/fabrics/src/queue.rs` |"), 0);
        assert_eq!(check("| 1 MiB | [pending] |"), 0);
        assert_eq!(check("| 1 MiB | we are sure |"), 1);
        assert_eq!(check("| 1 MiB | `free`, `gone` |"), 1);
        assert_eq!(check("| 1 MiB | `tests/gone.sh` |"), 1);
    }

    #[test]
    fn broken_links_are_reported() {
        let good = "[a](adr/README.md#x) [b](../ARCHITECTURE.md) [c](https://example.org/x) [d](#here)\n";
        let files = |text| [(ARCHITECTURE, "A\n"), ("docs/adr/README.md", "B\n"), ("docs/a.md", text)];
        assert_eq!(broken(&files(good)), Vec::<String>::new());
        assert_eq!(broken(&files("[a](gone.md)\n")).len(), 1);
        assert_eq!(broken(&files("[a](../../outside.md)\n")).len(), 1);
    }

    #[test]
    fn adrs_are_listed_and_have_numbers_of_their_own() {
        let index = ("docs/adr/README.md", "[a](0001-a.md) [b](0002-b.md)\n");
        let (first, second) = (("docs/adr/0001-a.md", "A\n"), ("docs/adr/0002-b.md", "B\n"));
        let architecture = (ARCHITECTURE, "A\n");
        assert_eq!(broken(&[architecture, index, first, second]), Vec::<String>::new());
        assert_eq!(broken(&[architecture, ("docs/adr/README.md", "[a](0001-a.md)\n"), first, second]).len(), 1);
        assert!(broken(&[architecture, ("docs/adr/README.md", "[b](0002-b.md)\n"), second]).is_empty());
        let twin = ("docs/adr/0002-c.md", "C\n");
        assert_eq!(
            broken(&[
                architecture,
                ("docs/adr/README.md", "[a](0001-a.md) [b](0002-b.md) [c](0002-c.md)\n"),
                first,
                second,
                twin
            ])
            .len(),
            1
        );
        assert_eq!(broken(&[architecture, index, first, second, ("docs/adr/notes.md", "N\n")]).len(), 1);
    }

    #[test]
    fn a_block_is_found_with_its_line() {
        assert_eq!(fenced("a\n\n```arrows\nx -> y\n```\n", "arrows"), Some((3, "x -> y\n")));
        assert_eq!(fenced("```text\n```\n", "arrows"), None);
    }
}
