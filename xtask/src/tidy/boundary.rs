//! The boundary between commands and links, in the target and in the host: neither side may name
//! items of the other (docs/adr/0031-commands-and-links.md).

use super::Violation;
use super::tree::Tree;

/// Modules of one side with all that is in them, but for those that are set apart, and names that
/// their code may not contain.
struct Side {
    name: &'static str,
    folder: &'static str,
    modules: &'static [&'static str],
    apart: &'static [&'static str],
    foreign: &'static [&'static str],
}

const SIDES: &[Side] = &[
    Side {
        name: "the command side",
        folder: "crates/server/src",
        modules: &["commands", "shared/range_lock"],
        apart: &[],
        foreign: &["ebof_tcp", "ebof_pinned", "rustix", "TcpStream", "Outbox", "outbox", "transport", "socket"],
    },
    Side {
        name: "a link",
        folder: "crates/server/src",
        modules: &["link"],
        apart: &["link/end", "link/rdma"],
        foreign: &["Commands", "Executing", "Operation", "Queue", "Step", "Work", "opcode", "Opcode"],
    },
    Side {
        name: "a link over RDMA",
        folder: "crates/server/src",
        modules: &["link/end", "link/rdma"],
        apart: &[],
        // Work is what its core has it post, and what fails there.
        foreign: &["Commands", "Executing", "Operation", "Queue", "Step", "opcode", "Opcode"],
    },
    Side {
        name: "the host's engine",
        folder: "crates/initiator/src",
        modules: &["command/slots", "engine"],
        // Tests of it with a link.
        apart: &["engine/instructions", "engine/pair"],
        foreign: &["ebof_tcp", "ebof_pinned", "rustix", "socket2", "socket", "tcp", "pdu", "R2t"],
    },
    Side {
        name: "a host's link",
        folder: "crates/initiator/src",
        modules: &["link"],
        // An adapter has queue pairs, too.
        apart: &["link/rdma"],
        foreign: &["Engine", "engine", "establish", "opcode", "Opcode", "Controller", "QueuePair"],
    },
];

pub(crate) fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    for side in SIDES {
        for module in side.modules.iter().chain(side.apart) {
            let path = format!("{}/{module}.rs", side.folder);
            if tree.rust_file(&path).is_none() {
                violations.push(Violation::new(&path, 0, format!("is gone, and listed at {}", side.name)));
            }
        }
    }
    for (path, source) in tree.rust().filter(|(path, _)| !path.ends_with("/tests.rs") && !path.contains("/tests/")) {
        let Some(side) = side_of(path) else { continue };
        for (line, code) in source.code() {
            if let Some(word) = side.foreign.iter().find(|word| names(code, word)) {
                let message =
                    format!("`{word}` has no place in {}: see docs/adr/0031-commands-and-links.md", side.name);
                violations.push(Violation::new(path, line, message));
            }
        }
    }
}

/// The side to which a file belongs.
fn side_of(path: &str) -> Option<&'static Side> {
    SIDES.iter().find(|side| {
        let within = path.strip_prefix(side.folder).and_then(|path| path.strip_prefix('/')?.strip_suffix(".rs"));
        let is_in = |module: &&str| {
            let rest = within.and_then(|within| within.strip_prefix(*module));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        side.modules.iter().any(is_in) && !side.apart.iter().any(is_in)
    })
}

/// Whether `word` is in the code as a name or a part of a path.
fn names(code: &str, word: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(file: &str, code: &str) -> Vec<String> {
        let mut tree = Tree::default();
        for side in SIDES {
            for known in side.modules.iter().chain(side.apart) {
                let path = format!("{}/{known}.rs", side.folder);
                tree.add(&path, "");
            }
        }
        tree.add(file, code);
        let mut violations = Vec::new();
        check(&tree, &mut violations);
        violations.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_of_the_other_side_are_reported() {
        assert!(broken("crates/server/src/commands/copies.rs", "link.respond(&cqe, turn); // not a socket").is_empty());
        let [found] = &broken("crates/server/src/commands/copies.rs", "\nlet s = &link.socket;")[..] else {
            panic!("one rule is broken")
        };
        assert!(found.starts_with("crates/server/src/commands/copies.rs:2: `socket`"), "{found}");
        assert_eq!(broken("crates/server/src/link.rs", "use crate::commands::Commands;").len(), 1);
        assert!(
            broken("crates/server/src/link.rs", "Event::Command { sqe, in_capsule } // Commands' matter").is_empty()
        );
        assert_eq!(broken("crates/server/src/commands/new.rs", "use rustix::io::Errno;").len(), 1);
        assert!(broken("crates/server/src/commands/new/tests.rs", "use rustix::io::Errno;").is_empty());
        assert_eq!(broken("crates/server/src/link/rdma/new.rs", "use ebof_fabrics::Queue;").len(), 1);
        assert_eq!(broken("crates/server/src/link/new.rs", "use ebof_rdma::controller::Work;").len(), 1);
        assert!(broken("crates/server/src/link/rdma/new.rs", "use ebof_rdma::controller::Work;").is_empty());
        assert!(broken("crates/initiator/src/link/rdma/new.rs", "use ebof_verbs::QueuePair;").is_empty());
        assert!(broken("crates/server/src/link_speed.rs", "use crate::commands::Commands;").is_empty());
        assert_eq!(broken("crates/initiator/src/engine.rs", "use rustix::io::Errno;").len(), 1);
        assert_eq!(broken("crates/initiator/src/link/tcp.rs", "use ebof_nvme::opcode::nvm;").len(), 1);
    }
}
