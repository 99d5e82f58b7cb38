//! Modules and layers: how many modules a crate has at its top, and in how many layers they are by
//! their imports, from those that import no other to the root, which is a module and a layer, too.
//! Folders within a folder are not counted, nor are methods that one module has of another's type.
//!
//! A table of folders with their layers in the documentation of a crate is compared with the code.

use std::collections::BTreeMap;

use super::Violation;
use super::modules::{Graph, reach};
use super::tree::Tree;

/// Modules of a crate.
const MODULES_MAX: usize = 14;

/// Layers of a crate. Modules that need each other are in one.
const LAYERS_MAX: usize = 9;

/// The head of a table of folders in the documentation of a crate.
const TABLE: &str = "| layer | folder |";

/// Crates that have such a table.
const TABLED: &[&str] = &[
    "backend",
    "bench",
    "cli",
    "drive",
    "ebof",
    "fabrics",
    "initiator",
    "manage",
    "medium",
    "nvme",
    "qualify",
    "server",
    "simulation",
    "verbs",
];

/// Modules and layers.
type Size = (usize, usize);

pub(crate) fn check(tree: &Tree, graphs: &BTreeMap<String, Graph>, violations: &mut Vec<Violation>) {
    limits(graphs, violations);
    for (name, graph) in graphs {
        table(tree, name, graph, TABLED.contains(&name.as_str()), violations);
    }
}

/// The table of a crate's folders says in which layer each of its modules is.
fn table(tree: &Tree, name: &str, graph: &Graph, is_demanded: bool, violations: &mut Vec<Violation>) {
    let comments = |file: &str| -> Vec<(usize, &str)> {
        tree.rust_file(&format!("crates/{name}/src/{file}"))
            .map(|source| source.comments().collect())
            .unwrap_or_default()
    };
    // A program has it where its modules are.
    let has_table = |file: &&str| comments(file).iter().any(|(_, line)| line.contains(TABLE));
    let file = ["lib.rs", "main.rs"].into_iter().find(has_table).unwrap_or("lib.rs");
    let (path, lines) = (format!("crates/{name}/src/{file}"), comments(file));
    let rows = lines.iter().skip_while(|(_, line)| !line.contains(TABLE));
    let rows: Vec<_> = rows.skip(2).take_while(|(_, line)| line.starts_with("//! |")).collect();
    if rows.is_empty() && !is_demanded {
        return;
    }
    let mut real = layers(graph);
    let root = real.values().max().copied().unwrap_or_default() + 1;
    real.insert(file, root);
    for (line, row) in rows {
        let mut cells = row.split('|').skip(1).map(str::trim);
        let layer = cells.next().unwrap_or_default();
        let folder = cells.next().unwrap_or_default().trim_matches('`');
        let folder = folder.strip_prefix(name).and_then(|rest| rest.strip_prefix('/')).unwrap_or(folder);
        let message = match real.remove(folder) {
            Some(found) if found.to_string() == layer => continue,
            Some(found) => format!("{folder} is in layer {found}"),
            None => format!("there is no other module {folder}"),
        };
        violations.push(Violation::new(&path, *line, message));
    }
    for module in real.keys() {
        violations.push(Violation::new(&path, 0, format!("{module} is not in the table of folders (`{TABLE}`)")));
    }
}

/// No crate has too many modules or layers.
fn limits(graphs: &BTreeMap<String, Graph>, violations: &mut Vec<Violation>) {
    for (name, graph) in graphs {
        let (modules, layers) = size(graph);
        if modules > MODULES_MAX || layers > LAYERS_MAX {
            let message = format!(
                "{modules} modules in {layers} layers, the limits are {MODULES_MAX} and {LAYERS_MAX}: put those that belong \
                 together into a folder with one interface"
            );
            violations.push(Violation::new(&format!("crates/{name}/src"), 0, message));
        }
    }
}

/// The number of a crate's modules, and of their layers, both with the root.
fn size(graph: &Graph) -> Size {
    (graph.len() + 1, layers(graph).into_values().max().unwrap_or_default() + 1)
}

/// The layer of each module, from 1.
fn layers(graph: &Graph) -> BTreeMap<&str, usize> {
    let mut reached: Vec<_> = graph.keys().map(|module| (module.as_str(), reach(graph, module))).collect();
    // A module reaches more than each that it needs, unless that needs it, too.
    reached.sort_by_key(|(_, needs)| needs.len());
    let mut layers: BTreeMap<&str, usize> = BTreeMap::new();
    for (module, needs) in &reached {
        let is_of_circle = |other: &str| reach(graph, other).contains(module);
        let below = needs.iter().filter(|other| !is_of_circle(other)).filter_map(|other| layers.get(other));
        let layer = below.max().copied().unwrap_or_default() + 1;
        layers.insert(module, layer);
    }
    layers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A graph of modules with those that each needs.
    fn graph(modules: &[(&str, &[&str])]) -> Graph {
        let named = |(module, needs): &(&str, &[&str])| {
            ((*module).to_owned(), needs.iter().map(|other| (*other).to_owned()).collect())
        };
        modules.iter().map(named).collect()
    }

    /// `modules` modules, of which the first `layers` need each the one before.
    fn tower(modules: usize, layers: usize) -> Graph {
        let name = |at: usize| format!("m{at:02}");
        let needs = |at: usize| (at > 0 && at < layers).then(|| name(at - 1)).into_iter().collect();
        (0..modules).map(|at| (name(at), needs(at))).collect()
    }

    fn broken(graph: Graph) -> Vec<String> {
        let mut violations = Vec::new();
        limits(&BTreeMap::from([("x".to_owned(), graph)]), &mut violations);
        violations.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn layers_are_counted_over_the_longest_way_and_a_circle_is_in_one() {
        assert_eq!(size(&Graph::new()), (1, 1));
        assert_eq!(size(&graph(&[("a", &[]), ("b", &[])])), (3, 2));
        // By name, the highest comes first.
        assert_eq!(size(&graph(&[("a", &["b", "d"]), ("b", &["c"]), ("c", &["d"]), ("d", &[])])), (5, 5));
        assert_eq!(size(&graph(&[("a", &["b"]), ("b", &["c"]), ("c", &["b", "d"]), ("d", &[])])), (5, 4));
    }

    #[test]
    fn a_crate_has_a_limit_of_modules_and_of_layers() {
        assert!(broken(tower(13, 8)).is_empty());
        let [modules] = &broken(tower(14, 8))[..] else { panic!("one rule is broken") };
        assert!(modules.starts_with("crates/x/src: 15 modules in 9 layers"), "{modules}");
        let [layers] = &broken(tower(13, 9))[..] else { panic!("one rule is broken") };
        assert!(layers.starts_with("crates/x/src: 14 modules in 10 layers"), "{layers}");
    }

    #[test]
    fn a_table_of_folders_says_what_the_imports_say() {
        let found = |rows: &str| {
            let mut tree = Tree::default();
            tree.add(
                "crates/x/src/lib.rs",
                &format!("//! X.\n//!\n//! | layer | folder | |\n//! |---|---|---|\n{rows}"),
            );
            let mut violations = Vec::new();
            table(&tree, "x", &graph(&[("a", &["b"]), ("b", &[])]), true, &mut violations);
            violations.into_iter().map(|violation| violation.message).collect::<Vec<_>>()
        };
        let good = "//! | 3 | `x/lib.rs` | |\n//! | 2 | `a` | |\n//! | 1 | `b` | |\n";
        assert_eq!(found(good), Vec::<String>::new());
        assert_eq!(found(&good.replace("| 2 |", "| 1 |")), ["a is in layer 2"]);
        assert_eq!(found(&format!("{good}//! | 1 | `c` | |\n")), ["there is no other module c"]);
        assert_eq!(found("//! | 3 | `x/lib.rs` | |\n//! | 2 | `a` | |\n").len(), 1);
        assert_eq!(found("").len(), 3);
    }
}
