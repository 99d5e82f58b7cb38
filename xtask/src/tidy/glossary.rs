//! The glossary against the code: a type name that several crates define has an entry; a type with
//! an entry exists, also in each crate that the entry names.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use super::tree::Tree;

const GLOSSARY: &str = "docs/glossary.md";

/// Maximum number of crates that may define a type name without an entry in the glossary.
const CRATES_MAX: usize = 2;

/// Crates that only tests use.
const TEST_CRATES: &[&str] = &["testkit"];

/// For each type name, the crates that define such a type with visibility beyond its module; empty
/// for private types.
type Types = BTreeMap<String, BTreeSet<String>>;

pub(crate) fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    let Some(text) = tree.text(GLOSSARY) else { return };
    let types = types(tree);
    let entries = entries(text);
    let all: BTreeSet<&str> = types.values().flatten().map(String::as_str).collect();
    for Entry { line, name, meaning } in &entries {
        let mut report = |message| violations.push(Violation::new(GLOSSARY, *line, message));
        let Some(defined) = types.get(*name) else {
            report(format!("no crate defines a type `{name}`"));
            continue;
        };
        let quoted = meaning.split('`').skip(1).step_by(2);
        for other in quoted.filter(|quoted| all.contains(*quoted) && !defined.contains(*quoted)) {
            report(format!("`{other}` has no type `{name}`"));
        }
    }
    for (name, crates) in &types {
        if crates.len() > CRATES_MAX && !entries.iter().any(|entry| entry.name == name) {
            let crates: Vec<&str> = crates.iter().map(String::as_str).collect();
            let message = format!("`{name}` has no entry, and is a type in {}", crates.join(", "));
            violations.push(Violation::new(GLOSSARY, 0, message));
        }
    }
}

/// A row whose word is the name of a type.
struct Entry<'a> {
    line: usize,
    name: &'a str,
    meaning: &'a str,
}

fn entries(text: &str) -> Vec<Entry<'_>> {
    let rows = (1..).zip(text.lines()).filter_map(|(line, text)| Some((line, text.strip_prefix('|')?)));
    rows.filter_map(|(line, row)| {
        let (cell, meaning) = row.split_once('|')?;
        Some(Entry { line, name: cell.trim().strip_prefix('`')?.strip_suffix('`')?, meaning })
    })
    .collect()
}

fn types(tree: &Tree) -> Types {
    let mut types = Types::new();
    for (path, source) in tree.rust() {
        let Some((name, file)) = path.strip_prefix("crates/").and_then(|path| path.split_once("/src/")) else {
            continue;
        };
        if TEST_CRATES.contains(&name) || file.split('/').any(|part| part == "tests" || part == "tests.rs") {
            continue;
        }
        for line in source.product_code().lines() {
            let Some((type_name, visible)) = definition(line) else { continue };
            let crates = types.entry(type_name.to_owned()).or_default();
            if visible {
                crates.insert(name.to_owned());
            }
        }
    }
    types
}

/// The type that a line defines, and whether it is visible in other modules.
fn definition(line: &str) -> Option<(&str, bool)> {
    let line = line.trim_start();
    let (visible, rest) = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => (true, rest.split_once(')')?.1),
        Some(rest) if rest.starts_with(' ') => (true, rest),
        _ => (false, line),
    };
    let rest = rest.trim_start();
    let name = ["struct ", "enum ", "trait "].into_iter().find_map(|keyword| rest.strip_prefix(keyword))?;
    let end = name.find(|character: char| !character.is_alphanumeric() && character != '_').unwrap_or(name.len());
    // The name of a type that a macro defines is an argument.
    (end > 0).then_some((&name[..end], visible))
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    fn broken(glossary: &str, files: &[(&str, &str)]) -> Vec<String> {
        let mut violations = Vec::new();
        let files: Vec<(&str, &str)> = [(GLOSSARY, glossary)].into_iter().chain(files.iter().copied()).collect();
        check(&tree::with_files(&files), &mut violations);
        violations.into_iter().map(|violation| violation.message).collect()
    }

    const A: (&str, &str) = ("crates/a/src/lib.rs", "pub struct Slot<T>(T);\n");
    const B: (&str, &str) = ("crates/b/src/x.rs", "pub(crate) enum Slot {\n    Free,\n}\n");
    const C: (&str, &str) = ("crates/c/src/x.rs", "/// pub struct Other;\npub trait Slot: Send {}\n");
    const PRIVATE: (&str, &str) = ("crates/c/src/x.rs", "struct Slot;\n");
    const TESTS: (&str, &str) = ("crates/c/src/x.rs", "#[cfg(test)]\nmod tests {\n    pub struct Slot;\n}\n");

    #[test]
    fn a_name_used_in_three_crates_needs_an_entry() {
        let entry = "| word | meaning |\n|---|---|\n| queue | of commands |\n| `Slot` | room for one command |\n";
        assert_eq!(broken("", &[A, B, C]), ["`Slot` has no entry, and is a type in a, b, c"]);
        for two in [[A, B, PRIVATE], [A, B, TESTS]] {
            assert_eq!(broken("", &two), Vec::<String>::new());
        }
        assert_eq!(broken(entry, &[A, B, C]), Vec::<String>::new());
    }

    #[test]
    fn an_entry_needs_an_existing_type() {
        assert_eq!(broken("| `Slot` | room |\n", &[PRIVATE]), Vec::<String>::new());
        assert_eq!(broken("a\n| `Other` | x |\n", &[C]), ["no crate defines a type `Other`"]);
        assert_eq!(broken("| `Slot` | room (`a`), `more` |\n", &[A]), Vec::<String>::new());
        let other = ("crates/b/src/x.rs", "pub enum Other {}\n");
        assert_eq!(broken("| `Slot` | room (`a`, `b`) |\n", &[A, other]), ["`b` has no type `Slot`"]);
    }
}
