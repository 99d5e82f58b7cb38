//! The boundary between commands and links, in the target and in the host: neither side may name
//! items of the other (docs/adr/0031-commands-and-links.md).

use super::Violation;
use super::tree::Tree;

/// Files of one side, and names that their code may not contain.
struct Side {
    name: &'static str,
    folder: &'static str,
    files: &'static [&'static str],
    foreign: &'static [&'static str],
}

const SIDES: &[Side] = &[
    Side {
        name: "the command side",
        folder: "crates/server/src",
        files: &[
            "commands",
            "commands/command",
            "commands/copy",
            "commands/copy_steps",
            "commands/drive_commands",
            "commands/execute",
            "commands/fused",
            "commands/protection",
            "commands/resident",
            "commands/rings",
            "commands/slots",
            "reactor/closing",
            "reactor/connect",
            "shared/range_lock",
        ],
        foreign: &["ebof_tcp", "ebof_pinned", "rustix", "TcpStream", "Outbox", "outbox", "transport", "socket"],
    },
    Side {
        name: "a link",
        folder: "crates/server/src",
        files: &[
            "link",
            "link/any",
            "link/loopback",
            "link/message_queue",
            "link/outbox",
            "link/ring",
            "link/tcp",
            "link/transport",
            "link/zerocopy",
        ],
        foreign: &["Commands", "Executing", "Operation", "Queue", "Step", "Work", "opcode", "Opcode"],
    },
    Side {
        name: "a link over RDMA",
        folder: "crates/server/src",
        files: &["link/rdma", "link/rdma/closing", "link/rdma/completions", "link/rdma/held"],
        // Work is what its core has it post.
        foreign: &["Commands", "Executing", "Operation", "Queue", "Step", "opcode", "Opcode"],
    },
    Side {
        name: "the host's engine",
        folder: "crates/initiator/src",
        files: &["engine", "engine/required", "slots"],
        foreign: &["ebof_tcp", "ebof_pinned", "rustix", "socket2", "socket", "tcp", "pdu", "R2t"],
    },
    Side {
        name: "a host's link",
        folder: "crates/initiator/src",
        files: &[
            "link",
            "link/loopback",
            "link/tcp",
            "link/tcp/connect",
            "link/tcp/send",
            "link/tcp/socket",
            "link/tcp/zerocopy",
        ],
        foreign: &["Engine", "engine", "establish", "opcode", "Opcode", "Controller", "QueuePair"],
    },
];

pub(crate) fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    for side in SIDES {
        for file in side.files {
            let path = format!("{}/{file}.rs", side.folder);
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
            for known in side.files {
                let path = format!("{}/{known}.rs", side.folder);
                tree.add(&path, if path == file { code } else { "" });
            }
        }
        let mut violations = Vec::new();
        check(&tree, &mut violations);
        violations.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_of_the_other_side_are_reported() {
        assert!(
            broken("crates/server/src/commands/execute.rs", "link.respond(&cqe, turn); // not a socket").is_empty()
        );
        let [found] = &broken("crates/server/src/commands/execute.rs", "\nlet s = &link.socket;")[..] else {
            panic!("one rule is broken")
        };
        assert!(found.starts_with("crates/server/src/commands/execute.rs:2: `socket`"), "{found}");
        assert_eq!(broken("crates/server/src/link.rs", "use crate::commands::Commands;").len(), 1);
        assert!(
            broken("crates/server/src/link.rs", "Event::Command { sqe, in_capsule } // Commands' matter").is_empty()
        );
        assert_eq!(broken("crates/initiator/src/engine.rs", "use rustix::io::Errno;").len(), 1);
        assert_eq!(broken("crates/initiator/src/link/tcp.rs", "use ebof_nvme::opcode::nvm;").len(), 1);
    }
}
