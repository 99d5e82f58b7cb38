//! Lines of the log that operators read: no debug text of Rust in them. What has no `Display` gets
//! one, or a name. Lines of `debug!` and `trace!` are for us, and may.

use super::Violation;
use super::tree::Tree;

const MACROS: [&str; 3] = ["tracing::info!(", "tracing::warn!(", "tracing::error!("];

pub(crate) fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    for (path, source) in tree.rust().filter(|(path, _)| is_product(path)) {
        let mut depth = 0_usize;
        for (line, code) in source.product() {
            let mut rest = code;
            while !rest.is_empty() {
                if depth == 0 {
                    let begins = MACROS.iter().filter_map(|name| Some(rest.find(name)? + name.len())).min();
                    let Some(begin) = begins else { break };
                    rest = &rest[begin..];
                    depth = 1;
                }
                let (inside, after) = split(rest, &mut depth);
                if has_debug_field(inside) {
                    violations.push(Violation::new(path, line, "debug text of Rust (`?`) in a line for operators"));
                }
                rest = after;
            }
        }
    }
}

fn is_product(path: &str) -> bool {
    path.starts_with("crates/") && path.contains("/src/") && !path.contains("/tests") && !path.contains("/testkit/")
}

/// What is still inside of the macro, and what comes after its end; `depth` counts its parentheses.
fn split<'a>(code: &'a str, depth: &mut usize) -> (&'a str, &'a str) {
    for (at, character) in code.char_indices() {
        match character {
            '(' => *depth += 1,
            ')' => *depth -= 1,
            _ => {}
        }
        if *depth == 0 {
            return (&code[..at], &code[at + 1..]);
        }
    }
    (code, "")
}

/// Whether an argument is `?value` or `field = ?value`. An operator `?` stands behind a value.
fn has_debug_field(code: &str) -> bool {
    code.match_indices('?').any(|(at, _)| {
        let before = code[..at].trim_end().chars().next_back();
        matches!(before, None | Some(',' | '=' | '('))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    #[test]
    fn debug_fields_of_lines_for_operators_are_found() {
        let bad = "fn a() {\n    tracing::warn!(\n        drive,\n        ?work,\n        \"a ({})\", b(),\n    );\n    \
                   tracing::info!(op = ?io.op, \"x\");\n    tracing::error!(?lost, \"y\");\n}\n";
        let good = "fn a() -> Option<()> {\n    tracing::debug!(?work, \"x\");\n    tracing::info!(%work, n = b()?, \"why?\");\n    \
                    c(?);\n}\n#[cfg(test)]\nmod tests {\n    fn a() {\n        tracing::info!(?work, \"x\");\n    }\n}\n";
        let mut violations = Vec::new();
        check(&tree::with_files(&[("crates/x/src/lib.rs", bad), ("crates/y/src/lib.rs", good)]), &mut violations);
        let found: Vec<String> = violations.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        for (message, line) in found.iter().zip([4, 7, 8]) {
            assert!(message.starts_with(&format!("crates/x/src/lib.rs:{line}: ")), "{message}");
        }
    }
}
