//! Rooms and floors: how many modules a crate has at its top, and over how many of them its imports
//! climb from one that needs no other to the root, which is a room and a floor, too. Who looks for
//! a thing chooses between rooms, and climbs floors. Folders within a folder are not counted, nor
//! are methods that one module has of another's type.

use std::collections::BTreeMap;

use super::Violation;
use super::modules::{Graph, reach};

/// Rooms of a crate.
const ROOMS_MAX: usize = 14;

/// Floors of a crate. Modules that need each other are on one.
const FLOORS_MAX: usize = 9;

/// Crates with more that are not in order yet, with their rooms and floors. They get no more; with
/// fewer, they are listed with those.
const EXCEPTIONS: &[(&str, Size)] = &[
    ("backend", (30, 13)),
    ("bench", (16, 7)),
    ("cli", (18, 8)),
    ("drive", (28, 9)),
    ("ebof", (21, 7)),
    ("fabrics", (30, 15)),
    ("manage", (18, 9)),
    ("nvme", (26, 6)),
    ("qualify", (15, 10)),
    ("simulation", (19, 8)),
    ("verbs", (20, 8)),
];

/// Rooms and floors.
type Size = (usize, usize);

pub(crate) fn check(graphs: &BTreeMap<String, Graph>, violations: &mut Vec<Violation>) {
    check_with(EXCEPTIONS, graphs, violations);
}

fn check_with(exceptions: &[(&str, Size)], graphs: &BTreeMap<String, Graph>, violations: &mut Vec<Violation>) {
    let mut broken = |name: &str, message: String| {
        violations.push(Violation::new(&format!("crates/{name}/src"), 0, message));
    };
    for (name, graph) in graphs {
        let (rooms, floors) = size(graph);
        let is_in_order = rooms <= ROOMS_MAX && floors <= FLOORS_MAX;
        let listed = exceptions.iter().find(|(listed, _)| listed == name).map(|(_, size)| *size);
        match listed {
            None if is_in_order => {}
            None => broken(
                name,
                format!(
                    "{rooms} files and folders on {floors} floors, the limits are {ROOMS_MAX} and {FLOORS_MAX}: put those \
                     that belong together into a folder with one face"
                ),
            ),
            Some(_) if is_in_order => broken(name, "is in order, and still an exception in rooms.rs".to_owned()),
            Some(listed) if listed == (rooms, floors) => {}
            Some((rooms_before, floors_before)) => broken(
                name,
                format!(
                    "{rooms} files and folders on {floors} floors, {rooms_before} on {floors_before} in rooms.rs: with fewer, \
                     list those; more are not allowed"
                ),
            ),
        }
    }
    for (name, _) in exceptions.iter().filter(|(name, _)| !graphs.contains_key(*name)) {
        broken(name, "is gone, and still an exception in rooms.rs".to_owned());
    }
}

/// The rooms of a crate, and its floors.
fn size(graph: &Graph) -> Size {
    let mut reached: Vec<_> = graph.keys().map(|module| (module.as_str(), reach(graph, module))).collect();
    // A module reaches more than each that it needs, unless that needs it, too.
    reached.sort_by_key(|(_, needs)| needs.len());
    let mut floors: BTreeMap<&str, usize> = BTreeMap::new();
    for (module, needs) in &reached {
        let is_of_circle = |other: &str| reach(graph, other).contains(module);
        let below = needs.iter().filter(|other| !is_of_circle(other)).filter_map(|other| floors.get(other));
        let floor = below.max().copied().unwrap_or_default() + 1;
        floors.insert(module, floor);
    }
    (graph.len() + 1, floors.into_values().max().unwrap_or_default() + 1)
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

    /// `rooms` modules, of which the first `floors` stand on each other.
    fn tower(rooms: usize, floors: usize) -> Graph {
        let name = |at: usize| format!("m{at:02}");
        let needs = |at: usize| (at > 0 && at < floors).then(|| name(at - 1)).into_iter().collect();
        (0..rooms).map(|at| (name(at), needs(at))).collect()
    }

    fn broken(exceptions: &[(&str, Size)], graph: Graph) -> Vec<String> {
        let mut violations = Vec::new();
        check_with(exceptions, &BTreeMap::from([("x".to_owned(), graph)]), &mut violations);
        violations.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn floors_are_counted_over_the_longest_way_and_a_circle_is_on_one() {
        assert_eq!(size(&Graph::new()), (1, 1));
        assert_eq!(size(&graph(&[("a", &[]), ("b", &[])])), (3, 2));
        // By name, the highest comes first.
        assert_eq!(size(&graph(&[("a", &["b", "d"]), ("b", &["c"]), ("c", &["d"]), ("d", &[])])), (5, 5));
        assert_eq!(size(&graph(&[("a", &["b"]), ("b", &["c"]), ("c", &["b", "d"]), ("d", &[])])), (5, 4));
    }

    #[test]
    fn a_crate_has_a_limit_of_rooms_and_of_floors() {
        assert!(broken(&[], tower(13, 8)).is_empty());
        let [rooms] = &broken(&[], tower(14, 8))[..] else { panic!("one rule is broken") };
        assert!(rooms.starts_with("crates/x/src: 15 files and folders on 9 floors"), "{rooms}");
        let [floors] = &broken(&[], tower(13, 9))[..] else { panic!("one rule is broken") };
        assert!(floors.starts_with("crates/x/src: 14 files and folders on 10 floors"), "{floors}");
    }

    #[test]
    fn an_exception_is_exact_and_goes_when_it_is_not_needed() {
        let exceptions = [("x", (20, 10))];
        assert!(broken(&exceptions, tower(19, 9)).is_empty());
        for other in [tower(20, 9), tower(18, 9), tower(19, 10), tower(19, 8)] {
            assert_eq!(broken(&exceptions, other).len(), 1);
        }
        let in_order = broken(&exceptions, tower(13, 8));
        assert_eq!(in_order, ["crates/x/src: is in order, and still an exception in rooms.rs"]);
        assert_eq!(
            broken(&[("y", (20, 10))], tower(1, 1)),
            ["crates/y/src: is gone, and still an exception in rooms.rs"]
        );
    }
}
