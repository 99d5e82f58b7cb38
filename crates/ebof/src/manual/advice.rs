//! Tests: commands and options in messages, help texts and documents are valid.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;

/// Commands that are not verbs: the hidden one that `connect` starts, named in an ADR.
const NO_VERBS: [&str; 1] = ["hold"];

/// Where other programs' options are named: fio's, losetup's, systemd-run's,
/// `cargo xtask bench`'s.
const OF_OTHERS: [&str; 14] = [
    "docs/example-report",
    "crates/redfish/src/manager/update",
    "crates/fio/",
    "crates/qualify/src/engine",
    "crates/qualify/src/file_system.rs",
    "crates/qualify/src/guard.rs",
    "src/loopdev.rs",
    "daemon/scope.rs",
    "docs/fio.md",
    "docs/performance",
    "docs/scenarios/cdn",
    "docs/scenarios/ceph",
    "docs/scenarios/database",
    "docs/scenarios/read-mostly",
];

/// Other programs' options besides: of cargo and of its tests, apt, tar, losetup, cp, xtask, fio,
/// setpriv.
const OTHERS_OPTIONS: [&str; 15] = [
    "--unix-socket",
    "--release",
    "--example",
    "--exact",
    "--nocapture",
    "--ignored",
    "--test-threads",
    "--no-install-recommends",
    "--strip-components",
    "--direct-io",
    "--sparse",
    "--update",
    "--name",
    "--uri",
    "--bounding-set",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files_below(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, extension, found);
        } else if path.extension().is_some_and(|other| other == extension) {
            found.push(path);
        }
    }
}

/// Texts that people read: the sources with continued strings and comments in one line, and the
/// documents.
fn texts() -> Vec<(PathBuf, String)> {
    let mut sources = Vec::new();
    let mut documents = Vec::new();
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        files_below(&entry.unwrap().path().join("src"), "rs", &mut sources);
    }
    sources.retain(|path| !path.ends_with("src/advice.rs"));
    files_below(&root().join("docs"), "md", &mut documents);
    documents
        .extend(["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SPECIFICATION.md"].map(|name| root().join(name)));
    let read = |path: &PathBuf| std::fs::read_to_string(path).unwrap();
    let source = |path: PathBuf| {
        let lines: Vec<String> = read(&path).lines().map(str::trim).map(str::to_owned).collect();
        let mut text = String::new();
        for line in lines {
            let (comment, line) = line
                .strip_prefix("//")
                .map_or((false, &*line), |rest| (true, rest.trim_start_matches(['/', '!']).trim_start()));
            match text.strip_suffix("\\\n").map(str::len) {
                Some(length) => text.truncate(length),
                None if comment && text.ends_with('\n') => {
                    text.pop();
                    text.push(' ');
                }
                None => {}
            }
            text.push_str(line);
            text.push('\n');
        }
        (path, text)
    };
    sources.into_iter().map(source).chain(documents.iter().map(|path| (path.clone(), read(path)))).collect()
}

/// The text between backticks outside of fences.
fn quoted(text: &str) -> Vec<String> {
    let outside: String = text.split("```").step_by(2).collect();
    outside.split('`').skip(1).step_by(2).map(|span| span.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// The lines of terminals and scripts in fences.
fn typed(text: &str) -> Vec<String> {
    let fences = text.split("```").skip(1).step_by(2);
    let joined: Vec<String> = fences.map(|fence| fence.replace("\\\n", " ")).collect();
    let lines = joined.iter().flat_map(|fence| fence.lines());
    let commands = lines.filter_map(|line| {
        let line = line.trim_start_matches(['$', '#', ' ']);
        let at = line.find("ebof ").filter(|&at| at == 0 || line[..at].ends_with('/'))?;
        let before = &line[..at];
        (before.is_empty() || before.starts_with("Exec")).then(|| line[at..].to_owned())
    });
    commands.collect()
}

/// The commands of a line, with something in the place of each placeholder.
fn filled(line: &str) -> Vec<Vec<String>> {
    let line = line.split(" # ").next().unwrap_or_default();
    let line = line
        .split([';', '|', '>'])
        .next()
        .filter(|_| line.contains(" | ") || line.contains("; ") || line.contains(" > "))
        .unwrap_or(line);
    let commands = line.split(" && ").filter(|command| command.starts_with("ebof "));
    commands.map(|command| fill(&words(command))).collect()
}

/// The words of a command, as a shell divides it.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for character in command.chars() {
        match (quote, character) {
            (None, ' ') => words.push(String::new()),
            (None, '\'' | '"') => quote = Some(character),
            (Some(open), close) if open == close => quote = None,
            _ => words.last_mut().unwrap().push(character),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn fill(words: &[String]) -> Vec<String> {
    let mut filled: Vec<String> = Vec::new();
    for word in words {
        let word = word.trim_matches(['[', ']']).trim_end_matches("...");
        let after = filled.last().map(String::as_str).unwrap_or_default();
        let alone = |name: &str| word.trim_start_matches('{').trim_end_matches('}') == name;
        let text = if alone("VERB") {
            "list".to_owned()
        } else if alone("OPTIONS") {
            continue;
        } else if word.starts_with('{') && !word.contains(':') {
            match after {
                "-a" | "--listen" => "127.0.0.1",
                "-s" => "4420",
                "--kind" => "tls",
                "-n" | "-f" | "tasks" => "1",
                "assign" | "move" | "--vf" | "d3/ns4" => "d3/vf2",
                "map" | "unmap" | "set" | "attach" | "detach" => "d3/ns4",
                _ => "nvme0",
            }
            .to_owned()
        } else if word.starts_with('$') {
            "rw=read".to_owned()
        } else {
            let uri = "nvme+tcp://127.0.0.1/nqn.2014-08.org.example:drive0/1";
            let names = [
                ("ADDRESS", "127.0.0.1"),
                ("DEVICE", "nvme0"),
                ("DIRECTORY", "x"),
                ("SOURCE", "mem:1G"),
                ("DRIVE", "mem:1G"),
                ("ID", "1"),
                ("FILE", "x"),
                ("FUNCTION", "d3/vf2"),
                ("NAME", "nvme0"),
                ("NAMESPACE", "d3/ns4"),
                ("NQN/NSID", "nqn.2014-08.org.example:disks/1"),
                ("WHO", "d3/vf2"),
                ("KIND", "port"),
                ("DURATION", "30s"),
                ("ADDRESS:PORT", "127.0.0.1:8443"),
                ("PATH", "x"),
                ("SIZE", "1G"),
                ("BYTES", "4096"),
                ("PID", "1"),
                ("URI", uri),
                ("N", "1"),
            ];
            let named = names.iter().find(|(name, _)| word == *name).map_or(word, |(_, value)| value);
            named
                .replace("=PATH", "=x")
                .replace("=SIZE", "=1G")
                .split('|')
                .next()
                .unwrap_or_default()
                .trim_end_matches('\\')
                .to_owned()
        };
        filled.push(text);
    }
    filled
}

/// Why the command is not valid. Without an argument only the verb and its options are checked.
fn mistake(words: &[String], whole: bool) -> Option<String> {
    let (_, rest) = words.split_first()?;
    let (verb, options) = rest.split_first()?;
    if NO_VERBS.contains(&verb.as_str()) {
        return None;
    }
    if !whole && options.iter().all(|word| word.starts_with('-')) && !verb.starts_with('-') {
        let mut command = ebof_cli::program_with(&crate::VERBS).command();
        command.build();
        let Some(found) = command.find_subcommand(verb) else {
            return Some(format!("there is no verb {verb}"));
        };
        let known = |word: &str| {
            let known = found.get_arguments().any(|argument| {
                let letter = argument.get_short().map(|letter| format!("-{letter}"));
                letter.as_deref() == Some(word)
                    || argument.get_long().map(|long| format!("--{long}")).as_deref() == Some(word)
            });
            known || word == "--help"
        };
        return options.iter().find(|word| !known(word)).map(|word| format!("{verb} has no {word}"));
    }
    let args: Vec<OsString> = words.iter().map(OsString::from).collect();
    match ebof_cli::program_with(&crate::VERBS).matches(&args) {
        // The name of a group of actions.
        Err(error) if !whole && error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => None,
        Err(error) if error.use_stderr() => Some(error.to_string()),
        _ => None,
    }
}

#[test]
fn commands_in_hints_are_valid() {
    let mut seen = 0;
    let mut mistakes = Vec::new();
    for (path, text) in texts() {
        let quoted = quoted(&text).into_iter().map(|line| (line, false));
        let typed = if path.extension().is_some_and(|kind| kind == "md") { typed(&text) } else { Vec::new() };
        for (line, whole) in quoted.chain(typed.into_iter().map(|line| (line, true))) {
            for words in filled(&line) {
                seen += 1;
                if let Some(mistake) = mistake(&words, whole) {
                    mistakes.push(format!("{}: {line}: {mistake}", path.display()));
                }
            }
        }
    }
    assert!(seen > 150, "{seen}");
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
}

#[test]
fn options_in_texts_exist() {
    let mut command = ebof_cli::program_with(&crate::VERBS).command();
    command.build();
    let mut known: Vec<String> = vec!["--help".into(), "--version".into()];
    // Those of actions, too: `target add drive`.
    let mut verbs: Vec<&clap::Command> = command.get_subcommands().collect();
    let mut at = 0;
    while let Some(verb) = verbs.get(at) {
        verbs.extend(verb.get_subcommands());
        at += 1;
    }
    for verb in verbs {
        for argument in verb.get_arguments() {
            let names = argument.get_long().into_iter().chain(argument.get_all_aliases().unwrap_or_default());
            known.extend(names.map(|name| format!("--{name}")));
        }
    }
    let mut mistakes = Vec::new();
    let ours = |(path, _): &(PathBuf, String)| !OF_OTHERS.iter().any(|part| path.to_str().unwrap().contains(part));
    for (path, text) in texts().into_iter().filter(ours) {
        for (at, _) in text.match_indices("--") {
            let before = text[..at].chars().next_back().unwrap_or(' ');
            let of_name = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
            let option: String = text[at..].chars().take_while(of_name).collect();
            let option = option.trim_end_matches('-');
            let begins = matches!(before, ' ' | '`' | '(' | '"' | '[' | '\n' | '|');
            let line = text[..at].rsplit('\n').next().unwrap_or_default();
            // Options of cargo and of the project's own chores are not this program's.
            let begins = begins && !line.contains("cargo ");
            if !begins || !option.get(2..).is_some_and(|name| name.starts_with(|c: char| c.is_ascii_lowercase())) {
                continue;
            }
            if !known.iter().any(|name| name == option) && !OTHERS_OPTIONS.contains(&option) {
                mistakes.push(format!("{}: {option}", path.display()));
            }
        }
    }
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
}
