//! `-o` of `qualify`: a format as everywhere, or, as it was, the directory of the report.

use std::ffi::{OsStr, OsString};

use clap::ValueEnum as _;

use crate::global::OutputFormat;

/// The verb whose `-o` may name a directory.
const VERB: &str = "qualify";
/// Global options that take a value in the next word.
const WITH_VALUE: [&str; 6] = ["-o", "--output-format", "--output", "--timeout", "--runtime-dir", "--log-format"];

/// The command line with `--report` in place of an `-o` that names a directory.
pub(super) fn named(args: &[OsString]) -> Vec<OsString> {
    let mut named = args.to_vec();
    let Some(verb) = verb(args).filter(|&verb| args[verb] == VERB) else { return named };
    for index in verb + 1..named.len() {
        let Some(word) = named[index].to_str() else { continue };
        if word == "--" {
            break;
        }
        match word.strip_prefix("-o") {
            Some("") if named.get(index + 1).is_some_and(|next| !is_format(next)) => named[index] = "--report".into(),
            Some(rest) if !rest.is_empty() && !is_format(OsStr::new(rest.trim_start_matches('='))) => {
                named[index] = format!("--report={}", rest.trim_start_matches('=')).into();
            }
            _ => {}
        }
    }
    named
}

/// What to tell who names the directory in the old way.
pub(super) fn warning(args: &[OsString]) -> Option<&'static str> {
    (named(args) != args)
        .then_some("warning: `-o DIRECTORY` is an old way to name the report: say `--report DIRECTORY`")
}

fn is_format(word: &OsStr) -> bool {
    word.to_str().is_some_and(|word| OutputFormat::from_str(word, true).is_ok())
}

/// The position of the verb.
fn verb(args: &[OsString]) -> Option<usize> {
    let mut index = 1;
    while let Some(word) = args.get(index) {
        let word = word.to_str()?;
        if !word.starts_with('-') {
            return Some(index);
        }
        index += if WITH_VALUE.contains(&word) { 2 } else { 1 };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> String {
        let words: Vec<OsString> = text.split(' ').map(OsString::from).collect();
        let named = named(&words);
        named.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_directory_is_told_from_a_format_and_only_for_qualify() {
        assert_eq!(line("ebof qualify odcc x -o report/"), "ebof qualify odcc x --report report/");
        assert_eq!(line("ebof qualify odcc x -oreport"), "ebof qualify odcc x --report=report");
        assert_eq!(line("ebof -o json qualify cdm x -o=r"), "ebof -o json qualify cdm x --report=r");
        for same in [
            "ebof qualify odcc x -o json",
            "ebof qualify odcc x -ojson",
            "ebof qualify odcc x -o",
            "ebof bench qualify -o report/",
            "ebof -o json list",
            "ebof",
        ] {
            assert_eq!(line(same), same);
        }
    }

    #[test]
    fn the_old_way_is_told_and_the_new_one_is_not() {
        let told = |text: &str| warning(&text.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(told("ebof qualify odcc x -o report/").unwrap().contains("--report DIRECTORY"));
        assert!(told("ebof --runtime-dir r qualify odcc x -o=report").is_some());
        assert_eq!(told("ebof qualify odcc x --report report/ -o json"), None);
        assert_eq!(told("ebof bench x -o report/"), None);
    }
}
