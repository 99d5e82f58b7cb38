//! The documents: each verb is described in the section of its group, the list of all verbs is
//! that of the table, and each JSON document is described. Commands in messages are checked, too.

mod advice;

use std::fmt::Write as _;
use std::path::PathBuf;

use ebof_cli::Program;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap()
}

/// The list under the last heading of the manual.
fn list(program: &Program) -> String {
    let mut text = "\n| section | verb | | example |\n|---|---|---|---|\n".to_owned();
    let mut last = None;
    for verb in program.verbs() {
        let section = verb.group.section();
        let link: String =
            section.to_lowercase().replace(' ', "-").chars().filter(|&c| c.is_alphanumeric() || c == '-').collect();
        let group = if last == Some(verb.group) { String::new() } else { format!("[{section}](#{link})") };
        last = Some(verb.group);
        writeln!(text, "| {group} | `{}` | {} | `{}` |", verb.name, verb.about, verb.example).unwrap();
    }
    text
}

#[test]
fn all_verbs_are_listed() {
    const END_OF_REMARK: &str = "updates it. -->\n";
    let manual = read("cli.md");
    let at = manual.find(END_OF_REMARK).unwrap() + END_OF_REMARK.len();
    let list = list(&ebof_cli::program_with(&crate::VERBS));
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        std::fs::write(path("cli.md"), manual[..at].to_owned() + &list).unwrap();
    } else {
        assert_eq!(&manual[at..], list, "docs/cli.md: see the remark at the list");
    }
}

#[test]
fn every_verb_is_in_its_section_of_the_manual() {
    let manual = read("cli.md");
    let json = read("json.md");
    // Without a JSON document: they print text for people and shells, or those of other verbs.
    let without = ["completions", "man", "help", "version", "keys"];
    for verb in ebof_cli::program_with(&crate::VERBS).verbs() {
        let name = verb.name;
        let section = verb.group.section();
        let (_, text) = manual.split_once(&format!("\n## {section}\n")).unwrap_or_else(|| panic!("no {section}"));
        let text = text.split("\n## ").next().unwrap_or_default();
        let told = [format!("`{name}`"), format!("`{name} "), format!("ebof {name}")];
        assert!(told.iter().any(|told| text.contains(told)), "docs/cli.md, {section}: {name}");
        // `top` has documents of a target and of a host: target-top, host-top.
        let schema = [format!("ebof/{name}/"), format!("ebof/{name}-"), format!("-{name}/")];
        assert!(without.contains(&name) || schema.iter().any(|schema| json.contains(schema)), "docs/json.md: {name}");
    }
}
