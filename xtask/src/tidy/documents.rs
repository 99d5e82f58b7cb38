//! Documents against the tree: names and paths in documents and in the documentation of modules,
//! links between Markdown files, the indexes of documents and of ADRs.

use std::collections::BTreeSet;

use super::Violation;
use super::tree::Tree;

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const INDEX: &str = "docs/adr/README.md";

/// The index of all documents.
const DOCUMENTS: &str = "docs/README.md";

/// Documents that name files and items of the code.
const NAMING: &[&str] = &[ARCHITECTURE, "docs/transports.md"];

/// The most lines of ARCHITECTURE.md: one page. What is longer belongs to the documentation of
/// modules.
const ARCHITECTURE_LINES_MAX: usize = 180;

pub(crate) fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with(".md")) {
        links(tree, path, text, violations);
    }
    names(tree, violations);
    adrs(tree, violations);
    index(tree, violations);
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

/// Every path and every `Type::member` exists that ARCHITECTURE.md and documents like it name, or
/// the documentation of a module.
fn names(tree: &Tree, violations: &mut Vec<Violation>) {
    match tree.text(ARCHITECTURE).map(|text| text.lines().count()) {
        None => violations.push(Violation::new(ARCHITECTURE, 0, "is missing")),
        Some(lines) if lines > ARCHITECTURE_LINES_MAX => {
            let message = format!("has {lines} lines, the limit is {ARCHITECTURE_LINES_MAX}: it is one page");
            violations.push(Violation::new(ARCHITECTURE, 0, message));
        }
        Some(_) => {}
    }
    for document in NAMING {
        for (index, line) in tree.text(document).unwrap_or_default().lines().enumerate() {
            for word in without_targets(line).flat_map(words).filter(|word| is_missing(tree, "", word)) {
                violations.push(Violation::new(document, index + 1, format!("{word} does not exist")));
            }
        }
    }
    for (path, source) in tree.rust() {
        let Some((root, _)) = path.split_once("/src/").filter(|(root, _)| root.starts_with("crates/")) else {
            continue;
        };
        let lines = source.comments().filter_map(|(line, comment)| Some((line, comment.strip_prefix("//!")?)));
        let mut is_example = false;
        for (line, text) in lines {
            if text.trim_start().starts_with("```") {
                is_example = !is_example;
            }
            // Links are rustdoc's.
            let is_named = |word: &&str| word.contains('/') || text.contains(&format!("`{word}`"));
            let is_linked = |word: &&str| text.contains(&format!("[`{word}`]"));
            let named = words(text).filter(|word| !is_example && is_named(word) && !is_linked(word));
            for word in named.filter(|word| is_missing(tree, root, word)) {
                violations.push(Violation::new(path, line, format!("{word} does not exist")));
            }
        }
    }
}

/// The parts of a line between the targets of its links.
fn without_targets(line: &str) -> impl Iterator<Item = &str> {
    let mut parts = line.split("](");
    let first = parts.next();
    first.into_iter().chain(parts.filter_map(|part| Some(part.split_once(')')?.1)))
}

/// What could be names of files and items in a line.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let is_part = |character: char| character.is_alphanumeric() || "_:/.-".contains(character);
    line.split(move |character| !is_part(character)).map(|word| word.trim_matches(['.', ':', '-']))
}

/// Whether `word` is the name of a file or an item that does not exist. `root` is the crate that
/// the name is used in; empty outside of crates.
fn is_missing(tree: &Tree, root: &str, word: &str) -> bool {
    if word.contains("://") {
        false
    } else if word.contains("::") {
        let of_type = word.split("::").count() == 2 && word.starts_with(char::is_uppercase);
        (root.is_empty() || of_type) && !has_item(tree, word)
    } else {
        let is_path = looks_like_path(word) && (root.is_empty() || word.contains('/') && word.ends_with(".rs"));
        is_path && !has_path(tree, word) && !tree.exists(&format!("{root}/src/{word}"))
    }
}

fn looks_like_path(word: &str) -> bool {
    let known = ["crates/", "docs/", "tests/", "fuzz/", "xtask/"].iter().any(|top| word.starts_with(top));
    known || [".rs", ".md", ".toml", ".sh"].iter().any(|end| word.ends_with(end))
}

/// A path from the root, or a crate's file without `crates/` and `src/`: `tcp/controller.rs`,
/// `server/tests/it/main.rs`.
fn has_path(tree: &Tree, path: &str) -> bool {
    let of_crate = path.split_once('/');
    let is_source = |(name, file): (&str, &str)| tree.exists(&format!("crates/{name}/src/{file}"));
    tree.exists(path) || of_crate.is_some_and(is_source) || tree.exists(&format!("crates/{path}"))
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

/// Every document is in the index of documents: those of `docs` and of the root.
fn index(tree: &Tree, violations: &mut Vec<Violation>) {
    let Some(text) = tree.text(DOCUMENTS) else { return };
    for (path, _) in tree.texts().filter(|(path, _)| path.ends_with(".md") && *path != DOCUMENTS) {
        let link = match path.strip_prefix("docs/") {
            Some(name) if !name.contains('/') => format!("]({name})"),
            None if !path.contains('/') => format!("](../{path})"),
            _ => continue,
        };
        if !text.contains(&link) {
            violations.push(Violation::new(DOCUMENTS, 0, format!("{path} is not listed")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    fn broken(files: &[(&str, &str)]) -> Vec<String> {
        let mut violations = Vec::new();
        check(&tree::with_files(files), &mut violations);
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
    fn names_in_the_documentation_of_modules_exist() {
        let lib = |text: &str| format!("//! {text}\n//! ```\n//! gone/x.rs `Gone::f`\n//! ```\nmod queue;\n");
        let found = |text: &str| broken(&[QUEUE, (ARCHITECTURE, "A\n"), ("crates/fabrics/src/lib.rs", &lib(text))]);
        for good in ["`Queue::submit` in `fabrics/queue.rs`", "queue.rs", "[`Gone::f`]", "Gone::f"] {
            assert_eq!(found(good), Vec::<String>::new(), "{good}");
        }
        assert_eq!(found("`Queue::gone`"), ["Queue::gone does not exist"]);
        assert_eq!(found("`fabrics/gone.rs`"), ["fabrics/gone.rs does not exist"]);
    }

    #[test]
    fn the_architecture_is_one_page() {
        let long = "A\n".repeat(ARCHITECTURE_LINES_MAX + 1);
        assert_eq!(broken(&[(ARCHITECTURE, &long[2..])]), Vec::<String>::new());
        assert_eq!(broken(&[(ARCHITECTURE, &long)]).len(), 1);
    }

    #[test]
    fn every_document_is_in_the_index() {
        let files =
            |index| [(ARCHITECTURE, "A\n"), (DOCUMENTS, index), ("docs/a.md", "A\n"), ("crates/x/README.md", "R\n")];
        assert_eq!(broken(&files("[a](a.md) [b](../ARCHITECTURE.md)\n")), Vec::<String>::new());
        assert_eq!(broken(&files("[b](../ARCHITECTURE.md)\n")), ["docs/a.md is not listed"]);
        assert_eq!(broken(&files("[a](a.md)\n")), ["ARCHITECTURE.md is not listed"]);
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
