//! nvme-cli's `discovery.conf`: the options of one discovery service in each line. A line that
//! cannot be used is told, with its place, and the others go on.

use std::ops::Range;
use std::path::Path;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use ebof_manage::{Diagnostics, Message, Severity};

use super::ini::span_of;
use super::{DiscoveryService, SERVICES_MAX};
use crate::failure::Failure;
use crate::verbs::fabric::FabricArgs;

/// The options of a line.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Line {
    #[command(flatten)]
    fabric: FabricArgs,
    // Of the output of nvme-cli's verbs: without effect here, as there.
    #[arg(short = 'v', long, hide = true, action = clap::ArgAction::Count)]
    verbose: u8,
    #[arg(short = 'o', long, hide = true)]
    output_format: Option<String>,
}

/// Options whose values no message shows.
const SECRETS: [&str; 6] =
    ["-S", "--dhchap-secret", "--kxchap-secret", "-C", "--dhchap-ctrl-secret", "--kxchap-ctrl-secret"];

/// The services of a text, each once, and what is wrong with it.
pub(crate) fn parse(path: &Path, text: &str) -> (Vec<DiscoveryService>, Diagnostics) {
    let name = path.display().to_string();
    let mut services: Vec<DiscoveryService> = Vec::new();
    let (mut messages, mut hidden) = (Vec::new(), Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        let words = words(line);
        if words.first().is_none_or(|word| word.starts_with('#')) {
            continue;
        }
        hidden.extend(secrets(&words).into_iter().map(|secret| span_of(text, secret)));
        let place = format!("{name}:{number}");
        match parse_words(&words) {
            Err(problem) => messages.push(problem.message(text, line)),
            Ok(fabric) if services.iter().any(|other| other.fabric.is_service_of(&fabric)) => {}
            Ok(_) if services.len() == SERVICES_MAX => {
                messages.push(Message {
                    severity: Severity::Error,
                    span: span_of(text, line.trim()),
                    text: format!("there are more than {SERVICES_MAX} services: this one and the rest are not asked"),
                    help: "have one of them refer to the others".to_owned(),
                });
                break;
            }
            Ok(fabric) => services.push(DiscoveryService { place: Some(place), ..DiscoveryService::new(fabric) }),
        }
    }
    messages.extend(warning_of_readers(path, &hidden));
    (services, Diagnostics::about(&name, text, messages, &hidden))
}

/// That others can read a file with secrets.
pub(super) fn warning_of_readers(path: &Path, secrets: &[Range<usize>]) -> Option<Message> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode());
    let span = secrets.first().filter(|_| mode & 0o044 != 0)?.clone();
    Some(Message {
        severity: Severity::Warning,
        span,
        text: "others can read this secret".to_owned(),
        help: format!("chmod 600 {}", path.display()),
    })
}

/// What is wrong with a line, and what of it if that is known.
struct Problem {
    text: String,
    help: String,
    /// Words of the line that the message is about: the first that is found counts.
    about: Vec<String>,
}

impl Problem {
    fn message(self, text: &str, line: &str) -> Message {
        let place = |word: &String| line.find(word.as_str()).map(|at| &line[at..at + word.len()]);
        let part = self.about.iter().filter(|word| !word.is_empty()).find_map(place).unwrap_or_else(|| line.trim());
        Message { severity: Severity::Error, span: span_of(text, part), text: self.text, help: self.help }
    }
}

/// The words of a line. nvme-cli up to 2.x takes `=` for white space, later ones do not: an option
/// and its value may be apart by either, and values keep theirs, which keys end with.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for word in line.split_whitespace() {
        // `-a = 192.0.2.1`, `-a= 192.0.2.1`, `-a =192.0.2.1`.
        let is_option = word.starts_with('-');
        let word =
            if is_option { word.strip_suffix('=').unwrap_or(word) } else { word.strip_prefix('=').unwrap_or(word) };
        if !word.is_empty() {
            words.push(word);
        }
    }
    words
}

/// The values of options that are secrets.
fn secrets<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let of_word = words.iter().filter_map(|word| word.split_once('='));
    let glued = of_word.filter(|(option, _)| SECRETS.contains(option)).map(|(_, value)| value);
    let apart = words.windows(2).filter(|pair| SECRETS.contains(&pair[0])).map(|pair| pair[1]);
    let short = words.iter().filter(|word| (word.starts_with("-S") || word.starts_with("-C")) && word.len() > 2);
    glued.chain(apart).chain(short.map(|word| &word[2..])).collect()
}

fn parse_words(words: &[&str]) -> Result<FabricArgs, Problem> {
    let Line { fabric, .. } = Line::try_parse_from(words).map_err(|error| of_clap(&error))?;
    if fabric.traddr.is_none() {
        return Err(Problem {
            text: "the line names no address".to_owned(),
            help: "write the options of one discovery service to a line: -t tcp -a ADDRESS -s PORT".to_owned(),
            about: Vec::new(),
        });
    }
    let of_failure = |failure: Failure| Problem {
        text: failure.message().to_owned(),
        help: failure.advice().unwrap_or_default().to_owned(),
        about: failure.message().split_whitespace().filter(|word| word.starts_with("--")).map(str::to_owned).collect(),
    };
    fabric.check_service().map_err(of_failure)?;
    Ok(fabric)
}

/// What clap says of a line, in one.
fn of_clap(error: &clap::Error) -> Problem {
    let text = error.to_string();
    let reason = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    let part = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    let first = |text: String| text.split([' ', '=']).next().unwrap_or_default().to_owned();
    let help = match error.kind() {
        ErrorKind::UnknownArgument => "accepted: the options of `ebof connect-all`",
        _ => "see `ebof connect-all --help`",
    };
    Problem {
        text: reason.trim_start_matches("error: ").to_owned(),
        help: help.to_owned(),
        about: vec![part(ContextKind::InvalidValue), first(part(ContextKind::InvalidArg))],
    }
}

/// The options of one line, for tests.
#[cfg(test)]
pub(crate) fn options_of(line: &str) -> Result<FabricArgs, String> {
    parse_words(&words(line)).map_err(|problem| problem.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_text(text: &str) -> (Vec<DiscoveryService>, Diagnostics) {
        parse(Path::new("a.conf"), text)
    }

    #[test]
    fn each_line_has_the_options_of_a_service() {
        let text = "# comment\n\n-t tcp -a 192.168.1.4 -s 8009\n--transport=tcp\t--traddr=10.0.0.1 --host-traddr 10.0.0.2\n\
                    --transport = tcp --traddr= 10.0.0.3 -s =8009 --persistent=force -v -o json --quiet\n";
        let (services, wrong) = parse_text(text);
        assert!(wrong.is_empty(), "{wrong:#}");
        let found: Vec<_> =
            services.iter().map(|it| (it.fabric.traddr.as_deref().unwrap(), it.fabric.trsvcid)).collect();
        assert_eq!(found, [("192.168.1.4", Some(8009)), ("10.0.0.1", None), ("10.0.0.3", Some(8009))]);
        assert_eq!(services[1].fabric.overrides.host_traddr.as_deref(), Some("10.0.0.2"));
        let places: Vec<_> = services.iter().map(|it| it.place.as_deref().unwrap()).collect();
        assert_eq!(places, ["a.conf:3", "a.conf:4", "a.conf:5"]);
    }

    /// Each option that a line of nvme-cli's may have.
    #[test]
    fn lines_have_all_options_of_nvme_cli() {
        let key = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:";
        for options in [
            "-n nqn.2014-08.org.nvmexpress.discovery",
            "-w 192.0.2.9 -f eth0 -q nqn.2014-08.org.example:h -I 6c1e4c5a-0d3c-4f6c-8a2b-0123456789ab",
            &format!("-S {key} -C {key}"),
            &format!("--dhchap-secret={key}"),
            "--tls --keyring .nvme --tls-key 7",
            "-i 1 -W 1 -P 1 -Q 32 -k 30 -c 5 -l -1 -F 5 -T 8",
            "--nr-io-queues=1 --ctrl-loss-tmo=-1 --fast_io_fail_tmo=5 --reconnect-delay=3",
            "-D --disable-sqflow -g -G --hdr-digest",
            "-p --quiet --no-nbft --force",
        ] {
            let (services, wrong) = parse_text(&format!("-t tcp -a 192.0.2.1 -s 8009 {options}\n"));
            assert!(
                wrong.is_empty() && services.len() == 1 || options.contains("--hdr-digest"),
                "{options}: {wrong:#}"
            );
        }
    }

    // @test host.discovery-conf
    #[test]
    fn lines_that_cannot_be_used_are_pointed_at_and_the_others_go_on() {
        let text = "-t tcp -a 127.0.0.1\n--NONSENSE 1\n-t tcp\n-t tcp -a 127.0.0.2 -S secret\n-t fc -a x\n\
                    -t tcp -a 127.0.0.3 -s 70000\n-a 127.0.0.4:8009\n-t tcp -a 127.0.0.5\n-t tcp -a 127.0.0.6 -k\n";
        let (services, wrong) = parse_text(text);
        let places: Vec<_> = services.iter().map(|it| it.place.as_deref().unwrap()).collect();
        assert_eq!(places, ["a.conf:1", "a.conf:8"]);
        let found: Vec<_> = wrong.items.iter().map(|item| (item.line, item.column, item.message.as_str())).collect();
        for (found, (line, column, message)) in found.iter().zip([
            (2, 1, "unexpected argument '--NONSENSE'"),
            (3, 1, "the line names no address"),
            (4, 1, "--dhchap-secret is no secret"),
            (5, 1, "transport fc is not supported"),
            (6, 24, "invalid value '70000' for '--trsvcid <PORT>'"),
            (7, 1, "--traddr \"127.0.0.4:8009\" is more than an address"),
            (9, 1, "a value is required for '--keep-alive-tmo <S>'"),
        ]) {
            assert!(found.0 == line && found.2.starts_with(message), "{found:?}: {line}:{column} {message}");
            assert_eq!(found.1, column, "{found:?}");
        }
        assert_eq!(found.len(), 7);
        let shown = format!("{wrong:#}");
        assert!(
            shown.contains(" --> a.conf:6:24\n") && shown.contains("^^^^^") && !shown.contains("secret\n"),
            "{shown}"
        );
    }

    // @test host.discovery-conf
    #[test]
    fn the_same_service_is_asked_once_and_there_are_not_too_many() {
        let found = |text: &str| {
            let line = |it: DiscoveryService| it.place.unwrap().rsplit(':').next().unwrap().parse::<usize>().unwrap();
            parse_text(text).0.into_iter().map(line).collect::<Vec<_>>()
        };
        let host = "--hostnqn nqn.2014-08.org.example:other";
        let text = format!(
            "-a 192.0.2.1 -i 4\n-a 192.0.2.1\n-a 192.0.2.1 -s 8009\n-a 192.0.2.1 {host}\n-a ::ffff:192.0.2.1\n-t rdma -a 192.0.2.1\n\
             -a Box.example\n-a box.example\n-a fd00::1\n-a fd00:0::1\n"
        );
        assert_eq!(found(&text), [1, 3, 4, 6, 7, 9]);
        let many: String = (0..=SERVICES_MAX + 5).map(|n| format!("-a 192.0.2.1 -s {}\n", 1000 + n)).collect();
        assert_eq!(found(&many).len(), SERVICES_MAX);
        let (_, wrong) = parse_text(&many);
        assert_eq!((wrong.items.len(), wrong.items[0].line), (1, SERVICES_MAX + 1), "told once");
    }
}
