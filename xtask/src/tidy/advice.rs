//! Advice of the program that could destroy something. Every text that names a destroying command,
//! option or act is in a list with its class; what destroys data comes after something harmless,
//! and says what is lost.
//!
//! It looks for words, and does not understand sentences: the classes are for people to judge.

use super::Violation;
use super::tree::Tree;

/// The list. A line has a class, a file and a part of the text:
///
/// - `words`: no advice, or the name of what the user has asked for already;
/// - `harmless`: nothing is lost, whenever and however often it is done;
/// - `stop`: somebody has to do without something for a while;
/// - `destroys`: data are lost. Two parts follow, with ` | ` between: what is advised before, and
///   the words that say what is lost.
const LIST: &str = "xtask/advice.txt";

/// What may destroy.
const ACTS: &[&str] = &[
    "truncate -s",
    "mkfs",
    " rm -",
    "`rm ",
    "wipefs",
    "blkdiscard",
    "dd if=",
    "dd of=",
    "sgdisk",
    "parted",
    "kill -",
    "--force",
    "--overwrite",
    "`overwrite`",
    "--yes",
    "--create",
    "--surprise",
    "with zeros",
    "elete a ",
    "elete it",
    "elete one",
    "elete what",
    "elete the",
    "elete those",
    "emove what",
    "emove it",
    "emove the file",
    "emove the drive",
    "emove them",
    "emove this",
    "emove those",
    "emove one",
    "ormat it",
    "ormat the",
    "anitize it",
    "anitize the",
    "anitize again",
    "`ebof format ",
    "`ebof sanitize ",
    "`ebof sanitize`",
    "`ebof delete-ns",
    "`ebof target format",
    "`ebof target sanitize",
    "`ebof target remove",
    "verwrite it",
];

/// An entry of the list.
struct Entry<'a> {
    class: &'a str,
    path: &'a str,
    part: &'a str,
    /// What has to be before it, and what has to be said, too.
    bounds: Option<(&'a str, &'a str)>,
}

pub(crate) fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    let list = tree.text(LIST).unwrap_or_default();
    let mut entries = Vec::new();
    for (index, line) in list.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        match parse(line) {
            Some(entry) => entries.push((index + 1, entry, false)),
            None => violations.push(Violation::new(LIST, index + 1, "is not `CLASS PATH: PART`, see tidy/advice.rs")),
        }
    }
    for (path, source) in tree.rust().filter(|(path, _)| is_product(path)) {
        for (line, text) in source.texts().filter(|(_, text)| ACTS.iter().any(|act| text.contains(act))) {
            let mut faults = Vec::new();
            let mut is_good = false;
            for (_, entry, used) in entries.iter_mut().filter(|(_, entry, _)| entry.path == path) {
                if text.contains(entry.part) {
                    *used = true;
                    match wrong(entry, text) {
                        Some(fault) => faults.push(fault),
                        None => is_good = true,
                    }
                }
            }
            if !is_good {
                let unlisted = || format!("names what may destroy, and is not in {LIST} with its class: {text:?}");
                violations.push(Violation::new(path, line, faults.into_iter().next().unwrap_or_else(unlisted)));
            }
            // GNU's `>` never makes a file smaller, whatever it is by then.
            if text.contains("truncate -s ") && !text.contains("truncate -s '>") {
                violations.push(Violation::new(path, line, "`truncate -s '>SIZE'` cuts no file; this may"));
            }
        }
    }
    for (line, entry, _) in entries.iter().filter(|(.., used)| !used) {
        let message = format!("{} has no such text any more: {}", entry.path, entry.part);
        violations.push(Violation::new(LIST, *line, message));
    }
}

fn parse(line: &str) -> Option<Entry<'_>> {
    let (class, rest) = line.split_once(' ')?;
    let (path, rest) = rest.split_once(": ")?;
    let mut parts = rest.split(" | ");
    let part = parts.next()?;
    let bounds = match class {
        "words" | "harmless" | "stop" => None,
        "destroys" => Some((parts.next()?, parts.next()?)),
        _ => return None,
    };
    parts.next().is_none().then_some(Entry { class, path, part, bounds })
}

/// What is wrong with advice that destroys.
fn wrong(entry: &Entry<'_>, text: &str) -> Option<String> {
    let (first, lost) = entry.bounds?;
    let at = text.find(entry.part)?;
    if !text[..at].contains(first) {
        return Some(format!("{} is the first advice: `{first}` is to be before it", entry.class));
    }
    (!text.contains(lost)).then(|| format!("does not say what is lost (`{lost}`)"))
}

fn is_product(path: &str) -> bool {
    let is_program = path.starts_with("crates/") && path.contains("/src/");
    is_program && !["/tests", "/testkit/", "/simulation/", "/fake"].iter().any(|part| path.contains(part))
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    fn found(list: &str, code: &str) -> Vec<String> {
        let mut violations = Vec::new();
        check(&tree::with_files(&[(LIST, list), ("crates/x/src/lib.rs", code)]), &mut violations);
        violations.iter().map(ToString::to_string).collect()
    }

    // @test output.destroying-advice
    #[test]
    fn advice_that_destroys_is_listed_comes_later_and_says_what_is_lost() {
        let code = "fn a() { b(\"unmount it, or \\\n   use --force: its data are lost\") }\n";
        let [unlisted] = found("", code).try_into().unwrap();
        assert!(unlisted.contains("is not in xtask/advice.txt"), "{unlisted}");
        let good = "# A list.\ndestroys crates/x/src/lib.rs: use --force | unmount it | data are lost\n";
        assert_eq!(found(good, code), [""; 0]);
        let [late] = found(good, "fn a() { b(\"use --force, or unmount it: data are lost\") }\n").try_into().unwrap();
        assert!(late.contains("is the first advice"), "{late}");
        let [silent] = found(good, "fn a() { b(\"unmount it, or use --force\") }\n").try_into().unwrap();
        assert!(silent.contains("does not say what is lost"), "{silent}");
        let [stale] = found(good, "fn a() {}\n").try_into().unwrap();
        assert!(stale.contains("has no such text"), "{stale}");
        assert_eq!(found("destroys crates/x/src/lib.rs: a | b\n", "fn a() {}\n").len(), 1);
    }

    // @test output.destroying-advice
    #[test]
    fn sizes_are_given_so_that_no_file_is_cut() {
        let list = "harmless crates/x/src/lib.rs: truncate -s\n";
        assert_eq!(found(list, "fn a() { b(\"`truncate -s '>{size}' {path}`\") }\n"), [""; 0]);
        assert_eq!(found(list, "fn a() { b(\"`truncate -s {size} {path}`\") }\n").len(), 1);
    }
}
