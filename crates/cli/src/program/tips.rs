//! Tips for command lines that were not understood: the verbs that are most like an unknown one,
//! and arguments that other programs would take.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Verbs that are suggested at most.
const SIMILAR_MAX: usize = 3;

/// Adds a tip, or mends the order of those that there are.
pub(super) fn add(error: &mut clap::Error, args: &[OsString]) {
    match error.kind() {
        ErrorKind::InvalidSubcommand => most_similar_first(error),
        ErrorKind::UnknownArgument if args.iter().any(|word| word == "disconnect") => device_of_disconnect(error),
        _ => {}
    }
}

/// clap has the most similar verb at the end, behind many others.
fn most_similar_first(error: &mut clap::Error) {
    let Some(ContextValue::Strings(names)) = error.get(ContextKind::SuggestedSubcommand) else { return };
    let best: Vec<String> = names.iter().rev().take(SIMILAR_MAX).cloned().collect();
    error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(best));
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
    use crate::program::Program;

    fn told(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let mut error = Program::new(&[]).matches(&words).unwrap_err();
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
    fn disconnect_is_told_how_a_device_is_named() {
        assert!(told("ebof disconnect nvme0").contains("`ebof disconnect -d nvme0`"));
        assert!(told("ebof disconnect nqn.a").contains("`ebof disconnect -n nqn.a`"));
        assert!(!told("ebof disconnect -Z").contains("is named by"));
    }
}
