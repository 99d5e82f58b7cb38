//! The boundary between commands and links, in the target: neither side names what is the other's
//! (docs/adr/0031-commands-and-links.md).

use super::Violation;
use super::tree::Tree;

/// Files of one side, and what their code may not name.
struct Side {
    name: &'static str,
    files: &'static [&'static str],
    foreign: &'static [&'static str],
}

const SIDES: &[Side] = &[
    Side {
        name: "the command side",
        files: &[
            "ask",
            "at_once",
            "closing",
            "command",
            "commands",
            "connect",
            "copy",
            "execute",
            "fused",
            "protection",
            "slots",
        ],
        foreign: &["ebof_tcp", "ebof_pinned", "rustix", "TcpStream", "Outbox", "outbox", "transport", "socket"],
    },
    Side {
        name: "a link",
        files: &["link", "link/outbox", "link/tcp", "link/transport", "link/zerocopy"],
        foreign: &["Commands", "Executing", "Operation", "Queue", "Step", "Work", "opcode", "Opcode"],
    },
];

pub(crate) fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    for side in SIDES {
        for file in side.files {
            let path = format!("crates/server/src/{file}.rs");
            let Some(source) = tree.rust_file(&path) else {
                violations.push(Violation::new(&path, 0, format!("is gone, and listed as part of {}", side.name)));
                continue;
            };
            for (line, code) in source.code() {
                if let Some(word) = side.foreign.iter().find(|word| names(code, word)) {
                    let message =
                        format!("`{word}` has no place in {}: see docs/adr/0031-commands-and-links.md", side.name);
                    violations.push(Violation::new(&path, line, message));
                }
            }
        }
    }
}

/// Whether `word` stands in the code by itself: a name, or a part of a path.
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
        for known in SIDES.iter().flat_map(|side| side.files) {
            tree.add(&format!("crates/server/src/{known}.rs"), if *known == file { code } else { "" });
        }
        let mut violations = Vec::new();
        check(&tree, &mut violations);
        violations.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_side_keeps_to_its_own() {
        assert!(broken("execute", "link.respond(&cqe, turn); // not a socket").is_empty());
        let [found] = &broken("execute", "\nlet s = &link.socket;")[..] else { panic!("one rule is broken") };
        assert!(found.starts_with("crates/server/src/execute.rs:2: `socket`"), "{found}");
        assert_eq!(broken("link", "use crate::commands::Commands;").len(), 1);
        assert!(broken("link", "Event::Command { sqe, in_capsule } // Commands' matter").is_empty());
    }
}
