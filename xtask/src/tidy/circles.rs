//! Circles of modules: arrows point down within a crate, too. Two modules may depend on each other;
//! with three or more, none can be understood without all of them.
//!
//! Looks at a crate's top-level modules and at paths that begin with `crate::`; knows re-exports of
//! the crate's root.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use super::tree::Tree;

/// Modules that may be in one circle.
const CIRCLE_MAX: usize = 2;

/// For each module, the modules of the same crate that it depends on.
type Graph = BTreeMap<String, BTreeSet<String>>;

pub(crate) fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    let paths = tree.rust().map(|(path, _)| path);
    let crates: BTreeSet<&str> =
        paths.filter_map(|path| path.strip_prefix("crates/")?.split_once("/src/")).map(|(name, _)| name).collect();
    for name in crates {
        let graph = graph(tree, name);
        let circle = largest_circle(&graph);
        if circle.len() > CIRCLE_MAX {
            let message = format!("{} modules need each other: {}", circle.len(), circle.join(", "));
            violations.push(Violation::new(&format!("crates/{name}/src"), 0, message));
        }
    }
}

fn graph(tree: &Tree, name: &str) -> Graph {
    let root = format!("crates/{name}/src/");
    let files = tree.rust().filter_map(|(path, source)| Some((path.strip_prefix(&root)?, source)));
    let mut graph = Graph::new();
    let mut texts: Vec<(String, String)> = Vec::new();
    let mut exports = BTreeMap::new();
    for (file, source) in files.filter(|(file, _)| !file.split('/').any(|part| part == "tests" || part == "tests.rs")) {
        let module = file.split('/').next().unwrap_or_default().trim_end_matches(".rs");
        let text = source.product_code();
        if module == "lib" || module == "main" {
            for export in text.split("pub ").filter_map(|rest| rest.trim_start_matches("(crate) ").strip_prefix("use "))
            {
                let path = export.split(';').next().unwrap_or_default();
                if let Some((from, names)) = path.split_once("::") {
                    exports.extend(words(names).map(|exported| (exported.to_owned(), from.to_owned())));
                }
            }
            continue;
        }
        graph.entry(module.to_owned()).or_default();
        texts.push((module.to_owned(), text));
    }
    for (module, text) in texts {
        for named in text.split("crate::").skip(1).flat_map(named) {
            let target = if graph.contains_key(named) { Some(named) } else { exports.get(named).map(String::as_str) };
            if let Some(target) = target.filter(|target| *target != module && graph.contains_key(*target)) {
                let target = target.to_owned();
                graph.entry(module.clone()).or_default().insert(target);
            }
        }
    }
    graph
}

/// The first names behind a `crate::`: one, or those of a group.
fn named(rest: &str) -> Vec<&str> {
    let Some(group) = rest.strip_prefix('{') else { return words(rest).take(1).collect() };
    let mut depth = 0_usize;
    let mut names = Vec::new();
    let mut start = 0;
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => {
                names.extend(words(&group[start..at]).next());
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                names.extend(words(&group[start..at]).next());
                start = at + 1;
            }
            _ => {}
        }
    }
    names
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_alphanumeric() && character != '_').filter(|word| !word.is_empty())
}

/// The largest set of modules of which each reaches all others.
fn largest_circle(graph: &Graph) -> Vec<&str> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|module| (module.as_str(), reach(graph, module))).collect();
    let circle = |module: &&str| -> Vec<&str> {
        let others = reached[*module].iter().copied();
        others.filter(|other| other == module || reached[*other].contains(*module)).collect()
    };
    reached.keys().map(circle).max_by_key(Vec::len).unwrap_or_default()
}

/// The modules that `module` depends on, directly or indirectly, and itself.
fn reach<'a>(graph: &'a Graph, module: &'a str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::from([module]);
    let mut open = vec![module];
    while let Some(next) = open.pop() {
        for target in graph.get(next).into_iter().flatten() {
            if reached.insert(target) {
                open.push(target);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circle(files: &[(&str, &str)]) -> Vec<String> {
        let mut tree = Tree::default();
        for (file, text) in files {
            tree.add(&format!("crates/x/src/{file}"), text);
        }
        largest_circle(&graph(&tree, "x")).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn circles_of_modules_are_found() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; mod d;\npub use c::{Name, Other};\n"),
            ("a.rs", "use crate::b::B;\n"),
            ("b.rs", "use crate::{\n    Other,\n    d::{D, E},\n};\n"),
            ("c/part.rs", "fn f() -> crate::a::A {}\n"),
            ("d.rs", "// crate::a\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n"),
        ];
        assert_eq!(circle(&files), ["a", "b", "c"]);
        assert_eq!(circle(&files[..2]).len(), 1);
    }

    #[test]
    fn circles_of_three_are_reported_and_of_two_are_not() {
        let broken = |uses: [&str; 3]| {
            let mut tree = Tree::default();
            for (module, used) in ["a", "b", "c"].into_iter().zip(uses) {
                tree.add(&format!("crates/x/src/{module}.rs"), &format!("use crate::{used}::N;"));
            }
            let mut violations = Vec::new();
            check(&tree, &mut violations);
            violations.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(broken(["b", "c", "a"]), ["crates/x/src: 3 modules need each other: a, b, c"]);
        assert!(broken(["b", "a", "a"]).is_empty());
    }
}
