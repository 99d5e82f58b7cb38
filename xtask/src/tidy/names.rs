//! Names of functions: those that do not say what is done are refused. Callers of `of`, `look` or
//! `settle` have to read the function to know what it does.

use std::collections::BTreeMap;

use super::Violation;
use super::tree::Tree;

const VAGUE: [&str; 12] =
    ["of", "on", "look", "looked", "told", "known", "made", "whole", "goes_on", "has_news", "owe_end", "settle"];

/// Files that still have some, and how many. The numbers only fall.
const LEFT: &[(&str, usize)] = &[
    ("crates/attach/src/daemon/options.rs", 1),
    ("crates/attach/src/daemon/wanted.rs", 2),
    ("crates/attach/src/usage.rs", 1),
    ("crates/cli/src/top/host.rs", 1),
    ("crates/fabrics/src/model/ana.rs", 1),
    ("crates/fabrics/src/registry/execute.rs", 1),
    ("crates/fabrics/src/registry/holders.rs", 1),
    ("crates/fabrics/src/registry/info.rs", 1),
    ("crates/fabrics/src/registry/instances.rs", 1),
    ("crates/fabrics/src/registry/objects.rs", 1),
    ("crates/fabrics/src/registry/protection.rs", 1),
    ("crates/fabrics/src/registry/replaced.rs", 3),
    ("crates/initiator/src/command/fate.rs", 1),
    ("crates/initiator/src/controller/paths/access.rs", 1),
    ("crates/initiator/src/controller/paths/lanes.rs", 1),
    ("crates/initiator/src/controller/paths/queue.rs", 1),
    ("crates/initiator/src/options/keys.rs", 1),
    ("crates/manage/src/config/ana.rs", 1),
    ("crates/server/src/environment/settings.rs", 1),
    ("crates/server/src/life/serve.rs", 1),
];

pub(crate) fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    check_with(LEFT, tree, violations);
}

fn check_with(left: &[(&str, usize)], tree: &Tree, violations: &mut Vec<Violation>) {
    let left: BTreeMap<&str, usize> = left.iter().copied().collect();
    for (path, source) in tree.rust().filter(|(path, _)| is_product(path)) {
        let found: Vec<(usize, &str)> =
            source.product().filter_map(|(line, code)| Some((line, vague(code)?))).collect();
        let accepted = left.get(path).copied().unwrap_or_default();
        if found.len() > accepted {
            let message = |name| format!("`fn {name}` does not say what is done: `from_X`, `check_X`, `poll`, ...");
            violations.extend(found.iter().map(|&(line, name)| Violation::new(path, line, message(name))));
        }
        if found.len() < accepted {
            let message = format!("{} vague names of functions, fewer than `LEFT` in {} says", found.len(), file!());
            violations.push(Violation::new(path, 0, message));
        }
    }
    for (path, _) in left.iter().filter(|(path, _)| tree.rust_file(path).is_none()) {
        violations.push(Violation::new(path, 0, format!("`LEFT` in {} names it, and it is gone", file!())));
    }
}

fn is_product(path: &str) -> bool {
    let is_test = path.split('/').any(|part| part == "tests" || part == "tests.rs");
    !is_test && (path.starts_with("crates/") && path.contains("/src/") || path.starts_with("xtask/src/"))
}

/// The vague name of the function that a line declares.
fn vague(code: &str) -> Option<&'static str> {
    let name = code.trim_start().split_once("fn ").filter(|(before, _)| is_head(before))?.1;
    let end = name.find(|character: char| !character.is_alphanumeric() && character != '_')?;
    VAGUE.into_iter().find(|vague| *vague == &name[..end])
}

/// Whether this may stand before `fn`: its visibility and qualifiers.
fn is_head(before: &str) -> bool {
    let mut words = before.split_whitespace();
    words.all(|word| word.starts_with("pub") || ["const", "unsafe", "async", "extern", "\"C\""].contains(&word))
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    const PATH: &str = "crates/x/src/y.rs";

    fn broken(path: &str, text: &str, left: &[(&str, usize)]) -> Vec<String> {
        let mut violations = Vec::new();
        check_with(left, &tree::with_files(&[(path, text)]), &mut violations);
        violations.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn vague_names_are_refused_in_product_code() {
        let text =
            "fn good() {}\nimpl X {\n    pub(crate) const fn of(x: u8) -> Self {}\n    fn look<T>(&self) {}\n}\n";
        let found = broken(PATH, text, &[]);
        assert!(matches!(&found[..], [of, look] if of.contains(":3: `fn of`") && look.contains(":4: `fn look`")));
        for fine in [
            "fn of_host() {}\nfn look_at(x: u8) {}\n",
            "// fn of()\nlet of = |x| x;\n",
            "fn x() {}\n#[cfg(test)]\nmod tests {\n    fn of() {}\n}\n",
        ] {
            assert_eq!(broken(PATH, fine, &[]), Vec::<String>::new(), "{fine}");
        }
        assert_eq!(broken("crates/x/src/y/tests.rs", text, &[]), Vec::<String>::new());
        assert_eq!(broken("crates/x/tests/it/y.rs", text, &[]), Vec::<String>::new());
    }

    #[test]
    fn what_is_left_only_falls() {
        let one = "fn of() {}\n";
        assert_eq!(broken(PATH, one, &[(PATH, 1)]), Vec::<String>::new());
        assert_eq!(broken(PATH, "fn of() {}\nfn on() {}\n", &[(PATH, 1)]).len(), 2);
        assert!(broken(PATH, one, &[(PATH, 2)])[0].contains("1 vague names"));
        assert!(broken(PATH, one, &[(PATH, 1), ("crates/x/src/z.rs", 1)])[0].contains("it is gone"));
    }
}
