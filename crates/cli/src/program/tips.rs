//! Tips for command lines that were not understood: the verbs that are most like an unknown one,
//! and arguments that other programs would take.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Verbs that are suggested at most.
const SIMILAR_MAX: usize = 3;

/// Adds a tip, or leaves of those that there are the ones that help.
pub(super) fn add(error: &mut clap::Error, args: &[OsString]) {
    match error.kind() {
        ErrorKind::InvalidSubcommand => most_similar_first(error),
        ErrorKind::UnknownArgument => {
            only_a_similar_option(error);
            if args.iter().any(|word| word == "disconnect") {
                device_of_disconnect(error);
            }
        }
        _ => {}
    }
}

/// clap has the most similar verb at the end, behind many others, and takes words for similar that
/// have only some letters in common.
fn most_similar_first(error: &mut clap::Error) {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return };
    let Some(ContextValue::Strings(names)) = error.get(ContextKind::SuggestedSubcommand) else { return };
    let similar = names.iter().rev().filter(|name| may_mean(word, name));
    let best: Vec<String> = similar.take(SIMILAR_MAX).cloned().collect();
    if best.is_empty() {
        error.remove(ContextKind::SuggestedSubcommand);
    } else {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(best));
    }
}

fn only_a_similar_option(error: &mut clap::Error) {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return };
    let Some(ContextValue::String(option)) = error.get(ContextKind::SuggestedArg) else { return };
    if !may_mean(word.trim_start_matches('-'), option.trim_start_matches('-')) {
        error.remove(ContextKind::SuggestedArg);
    }
}

/// Whether `known` may be what was meant: `word` is a part of it, or a slip.
fn may_mean(word: &str, known: &str) -> bool {
    known.contains(word) || word.contains(known) || ebof_manage::is_near(word, known)
}

fn device_of_disconnect(error: &mut clap::Error) {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return };
    if word.starts_with('-') {
        return;
    }
    let tip = if word.starts_with("nqn.") {
        format!("a subsystem is named by -n: `ebof disconnect -n {word}`")
    } else {
        format!("a device is named by -d: `ebof disconnect -d {word}`")
    };
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::program_with;

    fn told(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let mut error = program_with(&[]).matches(&words).unwrap_err();
        add(&mut error, &words);
        error.to_string()
    }

    #[test]
    fn the_most_similar_verb_comes_first() {
        for (typed, meant) in [("conect", "connect"), ("id-crtl", "id-ctrl"), ("smart", "smart-log"), ("lst", "list")] {
            let text = told(&format!("ebof {typed}"));
            let tip = text.split("tip: ").nth(1).unwrap();
            let first = tip.split('\'').nth(1).unwrap();
            assert_eq!(first, meant, "{text}");
            assert!(tip.lines().next().unwrap().matches('\'').count() <= 2 * SIMILAR_MAX, "{text}");
        }
    }

    #[test]
    fn what_is_not_similar_is_not_suggested() {
        // Options that there are not are put together, so that no text names them.
        for line in ["ebof frobnicate", "ebof list -frobnicate", "ebof connect -transformation"] {
            let text = told(&line.replace(" -", " --"));
            assert!(!text.contains("similar"), "{text}");
        }
        assert!(told(&["ebof list -", "-verbsoe"].concat()).contains("'--verbose'"));
    }

    #[test]
    fn disconnect_is_told_how_a_device_is_named() {
        assert!(told("ebof disconnect nvme0").contains("`ebof disconnect -d nvme0`"));
        assert!(told("ebof disconnect nqn.a").contains("`ebof disconnect -n nqn.a`"));
        assert!(!told("ebof disconnect -Z").contains("is named by"));
    }
}
