//! The short option of `--timeout`, which not every verb has, and hints about short options of
//! older nvme-cli versions. Short options of single verbs are in their rows.

use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue};

/// Letters that nvme-cli up to 2.5 (Debian 12 has 2.3) had for something else than it and ebof have
/// today: verb, letter, the option's name, and its letter today. Where the old letter is understood
/// otherwise without a mistake (`-v` of `read`, `id-ctrl`), more is said than asked for, and that
/// is all.
const FORMER: [(&str, char, &str, Option<char>); 12] = [
    ("get-log", 'o', "lpo", Some('L')),
    ("telemetry-log", 'o', "output-file", Some('O')),
    ("get-property", 'o', "offset", Some('O')),
    ("set-property", 'o', "offset", Some('O')),
    ("set-property", 'v', "value", Some('V')),
    ("set-feature", 'v', "value", Some('V')),
    ("fw-download", 'o', "offset", Some('O')),
    ("admin-passthru", 'o', "opcode", Some('O')),
    ("io-passthru", 'o', "opcode", Some('O')),
    ("connect", 'd', "disable-sqflow", None),
    ("discover", 'S', "quiet", None),
    ("connect-all", 'S', "quiet", None),
];

/// Adds `-t` to `--timeout` for every verb that has no `-t` of its own.
pub(super) fn add_timeout(mut command: Command) -> Command {
    let timeout = command.get_arguments().find(|argument| argument.get_id() == "timeout").cloned();
    let verbs: Vec<String> = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    for (verb, timeout) in verbs.into_iter().zip(std::iter::repeat(timeout).flatten()) {
        command = command.mut_subcommand(verb, |verb| {
            let taken = verb.get_arguments().any(|argument| argument.get_short() == Some('t'));
            if taken { verb } else { verb.arg(timeout.short('t')) }
        });
    }
    command
}

/// Says to a command line that was not understood, where it has the letter of an option from an
/// earlier nvme-cli, which letter that option has today.
pub(super) fn hint(error: &mut clap::Error, args: &[OsString]) {
    let words: Vec<&str> = args.iter().filter_map(|word| word.to_str()).collect();
    let former = FORMER.into_iter().find(|(verb, letter, ..)| {
        let given = |word: &&str| word.strip_prefix('-').is_some_and(|rest| rest.starts_with(*letter));
        words.contains(verb) && words.iter().any(given) && complains(error, *letter)
    });
    let Some((verb, letter, option, today)) = former else {
        return;
    };
    let today = today.map_or_else(|| format!("--{option}"), |today| format!("-{today}, --{option}"));
    let tip = format!("-{letter} of `nvme {verb}` up to nvme-cli 2.5 is {today} here, as in later releases");
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}

/// The hint in one line, if there is one.
pub(super) fn hinted(error: &clap::Error) -> Option<String> {
    match error.get(ContextKind::Suggested) {
        Some(ContextValue::StyledStrs(tips)) => tips.first().map(ToString::to_string),
        _ => None,
    }
}

/// Whether `error` may come from taking `letter` for an option that is another one now.
fn complains(error: &clap::Error, letter: char) -> bool {
    let about = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(" "),
        _ => String::new(),
    };
    match letter {
        // A value of the old option, taken for a format.
        'o' => about(ContextKind::InvalidArg).starts_with("--output-format"),
        // A flag now: the old option's value stands alone, or the option is missed.
        'v' => !about(ContextKind::InvalidArg).starts_with("--output-format"),
        // Quiet had no value.
        'S' => about(ContextKind::InvalidArg).starts_with("--dhchap-secret"),
        // Has a value now, of another option.
        _ => about(ContextKind::InvalidArg).starts_with("--device"),
    }
}
