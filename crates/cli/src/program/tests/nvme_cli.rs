//! nvme-cli's options: each is here by its name and letter, or named below; no letter means
//! something else.

use std::ffi::OsString;

use crate::program::letters;
use crate::verbs::program_with;

/// The options of nvme-cli 2.13, extracted from its sources.
const TABLE: &str = include_str!("../../../testdata/nvme-cli-2.13.txt");

/// What is not here: namespaces with zones; what asks nvme-cli itself for something (its
/// configuration files); what other options do as well.
const NOT_HERE: [(&str, &str); 16] = [
    ("connect", "dump-config"),
    ("connect", "context"),
    ("connect-all", "raw"),
    ("connect-all", "dump-config"),
    ("connect-all", "context"),
    ("create-ns", "azr"),
    ("create-ns", "rar"),
    ("create-ns", "ror"),
    ("create-ns", "rnumzrwa"),
    ("discover", "dump-config"),
    ("discover", "context"),
    ("get-feature", "changed"),
    ("get-log", "aen"),
    ("list-endgrp", "endgrp-id"),
    ("nvm-id-ns", "uuid-index"),
    ("write-zeroes", "namespace-zeroes"),
];

fn names(argument: &clap::Arg) -> Vec<&str> {
    argument.get_long().into_iter().chain(argument.get_all_aliases().unwrap_or_default()).collect()
}

fn letters_of(argument: &clap::Arg) -> Vec<char> {
    argument.get_short().into_iter().chain(argument.get_all_short_aliases().unwrap_or_default()).collect()
}

#[test]
fn options_have_nvme_clis_names_and_letters() {
    let mut command = program_with(&[]).command();
    command.build();
    let mut mistakes = Vec::new();
    let mut absent = Vec::new();
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let (name, options) = line.split_once(' ').unwrap_or((line, ""));
        let verb = command.find_subcommand(name).unwrap();
        for option in options.split(' ').filter(|option| !option.is_empty()) {
            let (letter, long) = option.split_once(':').unwrap();
            let ours = verb.get_arguments().find(|argument| names(argument).contains(&long));
            let same = |letter| ours.is_some_and(|ours| letters_of(ours).contains(&letter));
            if ours.is_none() {
                absent.push((name, long));
            }
            let Some(letter) = letter.chars().next().filter(|&letter| !same(letter)) else {
                continue;
            };
            let other = verb.get_arguments().find(|argument| letters_of(argument).contains(&letter));
            if let Some(other) = other {
                mistakes.push(format!("{name} -{letter} is --{long} in nvme-cli, here {}", other.get_id()));
            } else if ours.is_some() {
                mistakes.push(format!("{name} --{long} has no -{letter}"));
            }
        }
    }
    assert_eq!(mistakes, [""; 0]);
    assert_eq!(absent, NOT_HERE);
}

fn tip(line: &str) -> Option<String> {
    let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
    let mut error = program_with(&[]).parse(&args).err()?;
    letters::hint(&mut error, &args);
    letters::hinted(&error)
}

#[test]
fn short_options_of_earlier_releases_get_a_hint() {
    for (line, today, followed) in [
        ("get-log nvme0 -i 2 -l 64 -o 8", "-L, --lpo", "get-log nvme0 -i 2 -l 64 -L 8"),
        ("telemetry-log nvme0 -o out.bin", "-O, --output-file", "telemetry-log nvme0 -O out.bin"),
        ("get-property nvme0 -o 0x14", "-O, --offset", "get-property nvme0 -O 0x14"),
        ("set-property nvme0 -o 0x14 -V 0", "-O, --offset", "set-property nvme0 -O 0x14 -V 0"),
        ("set-property nvme0 -O 0x14 -v 0", "-V, --value", "set-property nvme0 -O 0x14 -V 0"),
        ("set-feature nvme0 -f 7 -v 1", "-V, --value", "set-feature nvme0 -f 7 -V 1"),
        ("set-feature nvme0 -f 7 -v1", "-V, --value", "set-feature nvme0 -f 7 -V1"),
        ("fw-download nvme0 -f x -o 0", "-O, --offset", "fw-download nvme0 -f x -O 0"),
        ("admin-passthru nvme0 -o 6 -l 4096 -r", "-O, --opcode", "admin-passthru nvme0 -O 6 -l 4096 -r"),
        ("io-passthru nvme0 -o 2", "-O, --opcode", "io-passthru nvme0 -O 2"),
        (
            "connect -a 192.168.13.147 -n x -d",
            "--disable-sqflow",
            "connect -a 192.168.13.147 -n nqn.2014-08.org.example:drive0 --disable-sqflow",
        ),
        ("discover -a 192.168.13.147 -S", "--quiet", "discover -a 192.168.13.147 --quiet"),
        ("connect-all -a 192.168.13.147 -S", "--quiet", "connect-all -a 192.168.13.147 --quiet"),
    ] {
        let tip = tip(&format!("ebof {line}")).unwrap_or_else(|| panic!("no hint: {line}"));
        assert!(tip.contains(&format!("is {today} here")), "{line}: {tip}");
        let args: Vec<OsString> = format!("ebof {followed}").split(' ').map(OsString::from).collect();
        assert!(program_with(&[]).parse(&args).is_ok(), "{followed}");
    }
    // Not where something else is wrong.
    for line in ["get-log nvme0 -o json", "set-feature nvme0 -f 7", "id-ctrl nvme0 -o xml", "get-log nvme0 -i x"] {
        assert_eq!(tip(&format!("ebof {line}")).filter(|tip| tip.contains("2.5")), None, "{line}");
    }
}

#[test]
fn minus_t_is_the_time_out_unless_a_verb_uses_it_otherwise() {
    let timeout = |line: &str| {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        program_with(&[]).parse(&args).unwrap_or_else(|error| panic!("{line}: {error}")).global.timeout()
    };
    let seconds = |seconds| Some(std::time::Duration::from_secs(seconds));
    assert_eq!(timeout("ebof id-ctrl nvme0 -t 5000"), seconds(5));
    assert_eq!(timeout("ebof id-ctrl nvme0 --timeout 5000"), seconds(5));
    assert_eq!(timeout("ebof --timeout 5000 id-ctrl nvme0"), seconds(5));
    assert_eq!(timeout("ebof read nvme0n1 -t"), None);
}
