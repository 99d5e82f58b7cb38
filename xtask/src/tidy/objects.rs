//! Objects: the methods of a type are in one file. A type whose methods do not fit there is several
//! objects. Implementations of traits are not counted, nor are tests.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use super::source::Source;
use super::tree::Tree;

/// A crate and a type in it.
type Object = (String, String);

pub(crate) fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    for ((name, object), files) in spread(tree.rust()) {
        let message = format!("the methods of {object} are in {files} files: it is several objects");
        violations.push(Violation::new(&format!("crates/{name}/src"), 0, message));
    }
}

/// The types whose methods are in more files than there are types of that name in their crate.
fn spread<'a>(files: impl Iterator<Item = (&'a str, &'a Source)>) -> BTreeMap<Object, usize> {
    let mut methods: BTreeMap<Object, BTreeSet<&str>> = BTreeMap::new();
    let mut definitions: BTreeMap<Object, usize> = BTreeMap::new();
    for (path, source) in files {
        let Some((name, file)) = path.strip_prefix("crates/").and_then(|path| path.split_once("/src/")) else {
            continue;
        };
        if file.split('/').any(|part| part == "tests" || part == "tests.rs") {
            continue;
        }
        for (_, line) in source.product() {
            if let Some(object) = implemented(line) {
                methods.entry((name.to_owned(), object.to_owned())).or_default().insert(path);
            }
            if let Some(object) = defined(line) {
                *definitions.entry((name.to_owned(), object.to_owned())).or_default() += 1;
            }
        }
    }
    let files = |(object, files): (Object, BTreeSet<&str>)| {
        let types = definitions.get(&object).copied().unwrap_or(1);
        (files.len() > types).then_some((object, files.len()))
    };
    methods.into_iter().filter_map(files).collect()
}

/// The type that a line begins to implement methods of.
fn implemented(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?;
    let rest = if rest.starts_with('<') { rest.get(end_of_generics(rest)?..)? } else { rest };
    let rest = rest.strip_prefix(' ')?;
    if rest.contains(" for ") || rest.ends_with(" for") {
        return None;
    }
    let path = rest.split(['<', ' ', '{']).next()?;
    path.rsplit("::").next().filter(|name| !name.is_empty())
}

/// Where `<...>` at the beginning of a text ends.
fn end_of_generics(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, one) in text.char_indices() {
        match one {
            '<' => depth += 1,
            // Not the arrow of a function's type.
            '>' if !text[..at].ends_with('-') => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// The type that a line defines.
fn defined(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix("pub").map_or(line, |rest| match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(')').map_or("", |(_, rest)| rest),
        None => rest,
    });
    let mut words = line.split_whitespace();
    let kind = words.next()?;
    let name = words.next()?.split(['<', '(', ';', '{', ':']).next()?;
    ["struct", "enum", "union"].contains(&kind).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    #[test]
    fn methods_in_two_files_are_found_and_those_of_two_types_of_one_name_are_not() {
        let one = "pub(crate) struct A<T>(T);\nimpl<T: Fn() -> u8> A<T> {\n}\nimpl Clone for A<u8> {\n}\n";
        let two = "impl super::A<u8> {\n}\nstruct B;\nimpl B {\n}\n#[cfg(test)]\nmod tests {\n}\n";
        let three = "enum B {}\nimpl B {\n}\n";
        let tree =
            tree::with_files(&[("crates/a/src/a.rs", one), ("crates/a/src/b.rs", two), ("crates/a/src/c/b.rs", three)]);
        let mut violations = Vec::new();
        check(&tree, &mut violations);
        let [violation] = &violations[..] else { panic!("one rule is broken") };
        let said = violation.to_string();
        assert!(said.starts_with("crates/a/src: the methods of A are in 2 files"), "{said}");
    }
}
