//! What the modules of a crate need of each other: those at the top of a crate, by paths that begin
//! with `crate::`. Knows re-exports of the crate's root. What is allowed is not known here.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::Tree;

/// For each module at the top of a crate, the others that it depends on.
pub(crate) type Graph = BTreeMap<String, BTreeSet<String>>;

/// The modules of all crates, by the crates' names.
pub(crate) fn graphs(tree: &Tree) -> BTreeMap<String, Graph> {
    let paths = tree.rust().map(|(path, _)| path);
    let crates: BTreeSet<&str> =
        paths.filter_map(|path| path.strip_prefix("crates/")?.split_once("/src/")).map(|(name, _)| name).collect();
    crates.into_iter().map(|name| (name.to_owned(), graph(tree, name))).collect()
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

/// The modules that `module` depends on, directly or indirectly, and itself.
pub(super) fn reach<'a>(graph: &'a Graph, module: &'a str) -> BTreeSet<&'a str> {
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
