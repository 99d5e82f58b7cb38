//! Circles of modules: arrows point down within a crate, too. Two modules may depend on each other;
//! with three or more, none can be understood without all of them.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use super::modules::{Graph, reach};

/// Modules that may be in one circle.
const CIRCLE_MAX: usize = 2;

pub(crate) fn check(graphs: &BTreeMap<String, Graph>, violations: &mut Vec<Violation>) {
    for (name, graph) in graphs {
        let circle = largest_circle(graph);
        if circle.len() > CIRCLE_MAX {
            let message = format!("{} modules need each other: {}", circle.len(), circle.join(", "));
            violations.push(Violation::new(&format!("crates/{name}/src"), 0, message));
        }
    }
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

#[cfg(test)]
mod tests {
    use super::super::modules::graphs;
    use super::super::tree::Tree;
    use super::*;

    fn circle(files: &[(&str, &str)]) -> Vec<String> {
        let mut tree = Tree::default();
        for (file, text) in files {
            tree.add(&format!("crates/x/src/{file}"), text);
        }
        largest_circle(&graphs(&tree)["x"]).into_iter().map(str::to_owned).collect()
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
            check(&graphs(&tree), &mut violations);
            violations.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(broken(["b", "c", "a"]), ["crates/x/src: 3 modules need each other: a, b, c"]);
        assert!(broken(["b", "a", "a"]).is_empty());
    }
}
