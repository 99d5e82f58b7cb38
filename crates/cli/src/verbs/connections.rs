//! The file of connections, `/etc/ebof/connections.toml`: which subsystems to connect, and which
//! discovery services to ask for more. Its keys are the long options of `connect`.
//!
//! Owns reading and checking; what connects is in `verbs/connect_file.rs`. Every mistake is told
//! with its line.

use std::ops::Range;
use std::path::Path;

use clap::Parser;
use ebof_attach::Kind;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::connect::Front;
use super::fabric::FabricArgs;
use super::services::{Places, Sources, Wrong, of_discovery_conf, of_fabrics_conf};
use crate::failure::Failure;
use crate::file;

/// The largest file, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The most entries of a file.
const ENTRIES_MAX: usize = 256;

/// What an entry stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// A subsystem.
    Subsystem,
    /// Everything that a discovery service lists.
    Discovery,
}

/// An entry of the file.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionRow {
    /// Its name, for messages and for `--only`.
    pub(crate) name: String,
    /// Whether it has the name from the file.
    named: bool,
    /// What it stands for.
    pub(crate) sort: Sort,
    /// Whether it is connected at boot.
    pub(crate) boot: bool,
    /// Its connect options.
    pub(crate) fabric: FabricArgs,
    /// The options of what a discovery service lists, if they are others.
    pub(crate) listed: Option<FabricArgs>,
    /// File and line, if it is of one of nvme-cli's.
    pub(crate) place: Option<String>,
    /// The kind of block device.
    pub(crate) front: Kind,
}

/// An entry's options as a command line.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Line {
    #[command(flatten)]
    fabric: FabricArgs,
    #[arg(long, value_enum, default_value_t = Front::Auto)]
    front: Front,
}

/// A text with its name, for messages with lines.
struct Text<'a> {
    name: String,
    text: &'a str,
}

/// Which of nvme-cli's files belong to the entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Others {
    /// `discovery.conf`.
    discovery_conf: bool,
    /// `nvme-fabrics.conf`.
    fabrics_conf: bool,
}

/// Reads the file at `path`; what is wrong with those of nvme-cli that belong to it.
///
/// # Errors
/// It cannot be read, or what is wrong with it, with the line.
pub(crate) fn read(path: &Path, places: &Places) -> anyhow::Result<(Vec<ConnectionRow>, Wrong)> {
    let text = file::read_text(path, "the connections", FILE_BYTES_MAX, file::Kind::Regular)?;
    let (mut entries, others) = parse(&path.display().to_string(), &text)?;
    let mut wrong = Wrong::default();
    let files = [
        others.discovery_conf.then(|| of_discovery_conf(places)),
        others.fabrics_conf.then(|| of_fabrics_conf(places)),
    ];
    for Sources { services, subsystems, wrong: of_file } in files.into_iter().flatten() {
        let row = |sort, fabric, listed, place: String| ConnectionRow {
            name: place.clone(),
            named: false,
            sort,
            boot: true,
            fabric,
            listed,
            place: Some(place),
            front: Kind::Auto,
        };
        let services = services.into_iter();
        entries.extend(services.map(|it| row(Sort::Discovery, it.fabric, it.listed, it.place.unwrap_or_default())));
        entries.extend(subsystems.into_iter().map(|it| row(Sort::Subsystem, it.fabric, None, it.place)));
        wrong.0.extend(of_file.0);
    }
    Ok((entries, wrong))
}

/// Those with these names; all that are connected at boot if there are none.
///
/// # Errors
/// There is no such name.
pub(crate) fn chosen(entries: Vec<ConnectionRow>, only: &[String], path: &Path) -> Result<Vec<ConnectionRow>, Failure> {
    if only.is_empty() {
        return Ok(entries.into_iter().filter(|entry| entry.boot).collect());
    }
    if let Some(unknown) = only.iter().find(|name| !entries.iter().any(|entry| entry.named && entry.name == **name)) {
        let names: Vec<&str> = entries.iter().filter(|entry| entry.named).map(|entry| entry.name.as_str()).collect();
        let has = if names.is_empty() { "none has a name".to_owned() } else { format!("named: {}", names.join(", ")) };
        return Err(Failure::new("config", format!("{}: no connection has the name {unknown:?}", path.display()), has));
    }
    Ok(entries.into_iter().filter(|entry| only.contains(&entry.name)).collect())
}

/// The entries of a text, and which of nvme-cli's files belong to them.
fn parse(name: &str, text: &str) -> Result<(Vec<ConnectionRow>, Others), Failure> {
    let text = Text { name: name.to_owned(), text };
    let table = DeTable::parse(text.text).map_err(|error| {
        let at = error.span().unwrap_or_default();
        text.wrong(&at, error.message(), "write it as TOML; see ebof-connections.toml(5)")
    })?;
    let mut entries = Vec::new();
    let mut others = Others::default();
    for (key, value) in table.get_ref() {
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("connections", DeValue::Array(tables)) => text.entries(tables, Sort::Subsystem, &mut entries)?,
            ("discoveries", DeValue::Array(tables)) => text.entries(tables, Sort::Discovery, &mut entries)?,
            ("discovery-conf" | "discovery_conf", DeValue::Boolean(wanted)) => others.discovery_conf = *wanted,
            ("fabrics-conf" | "fabrics_conf", DeValue::Boolean(wanted)) => others.fabrics_conf = *wanted,
            (other, _) => {
                let advice = "accepted: [[connections]], [[discoveries]], discovery-conf = true, fabrics-conf = true";
                return Err(text.wrong(&key.span(), format!("`{other}` is not understood here"), advice));
            }
        }
    }
    Ok((entries, others))
}

impl Text<'_> {
    fn wrong(&self, at: &Range<usize>, message: impl AsRef<str>, advice: &str) -> Failure {
        let before = self.text.get(..at.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        Failure::new("config", format!("{}:{line}: {}", self.name, message.as_ref()), advice)
    }

    fn entries(
        &self,
        tables: &[Spanned<DeValue<'_>>],
        sort: Sort,
        entries: &mut Vec<ConnectionRow>,
    ) -> Result<(), Failure> {
        for table in tables {
            let DeValue::Table(keys) = table.get_ref() else {
                return Err(self.wrong(&table.span(), "an entry is a table", "write [[connections]] above its keys"));
            };
            if entries.len() >= ENTRIES_MAX {
                let message = format!("there are more than {ENTRIES_MAX} entries");
                return Err(self.wrong(&table.span(), message, "have a discovery service list them"));
            }
            let entry = self.entry(keys, &table.span(), sort, entries.len() + 1)?;
            if entries.iter().any(|other| other.named && entry.named && other.name == entry.name) {
                let message = format!("the name {:?} is taken by another entry", entry.name);
                return Err(self.wrong(&table.span(), message, "give it another name"));
            }
            entries.push(entry);
        }
        Ok(())
    }

    fn entry(
        &self,
        keys: &DeTable<'_>,
        at: &Range<usize>,
        sort: Sort,
        number: usize,
    ) -> Result<ConnectionRow, Failure> {
        let (mut name, mut boot, mut words) = (None, true, Vec::new());
        for (key, value) in keys {
            let option = key.get_ref().replace('_', "-");
            match (option.as_str(), value.get_ref()) {
                ("name", DeValue::String(text)) if is_name(text) => name = Some(text.to_string()),
                ("name", _) => {
                    let advice = "accepted: 1 to 64 of A-Z, a-z, 0-9, `.`, `_` and `-`, for ebof-connect@NAME.service";
                    return Err(self.wrong(&value.span(), "this is no name", advice));
                }
                ("boot", DeValue::Boolean(wanted)) => boot = *wanted,
                ("boot", _) => return Err(self.wrong(&value.span(), "`boot` is true or false", "write boot = false")),
                // This file is shown, compared and copied.
                (secret, _) if secret.ends_with("-secret") => {
                    let advice = format!("name a file with it, which nobody else may read: {secret}-file = \"/PATH\"");
                    return Err(self.wrong(&key.span(), "a secret does not belong into this file", &advice));
                }
                _ => {
                    if let Some(word) = self.word(&option, key, value)? {
                        words.push(word);
                    }
                }
            }
        }
        let line = Line::try_parse_from(&words).map_err(|error| self.wrong(at, reason(&error), "correct the entry"))?;
        let fabric = line.fabric;
        let checked = fabric.check_service().and_then(|()| match sort {
            Sort::Subsystem => fabric.check_subsystem(),
            Sort::Discovery => Ok(()),
        });
        checked.map_err(|failure| self.wrong(at, failure.message(), failure.advice().unwrap_or_default()))?;
        if fabric.traddr.is_none() && !fabric.mdns {
            return Err(self.wrong(at, "the entry has no `traddr`", "say where the target is: traddr = \"192.0.2.1\""));
        }
        let is_discovery = fabric.nqn.as_ref().is_some_and(ebof_nvme::Nqn::is_discovery);
        match (sort, &fabric.nqn) {
            (Sort::Subsystem, None) => {
                let advice = "name the subsystem, or write [[discoveries]] for all that a discovery service lists";
                return Err(self.wrong(at, "the entry has no `nqn`", advice));
            }
            (Sort::Subsystem, Some(_)) if is_discovery => {
                let message = "the discovery service has no namespaces to connect";
                return Err(self.wrong(at, message, "write [[discoveries]] for all that it lists"));
            }
            _ => {}
        }
        let named = name.is_some();
        let name = name.unwrap_or_else(|| match &fabric.nqn {
            Some(nqn) if sort == Sort::Subsystem => nqn.to_string(),
            _ => format!("entry {number}"),
        });
        Ok(ConnectionRow { name, named, sort, boot, fabric, listed: None, place: None, front: line.front.into() })
    }

    /// The option of a key; none for one that is off.
    fn word(
        &self,
        option: &str,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Option<String>, Failure> {
        let text = match value.get_ref() {
            DeValue::Boolean(false) => None,
            DeValue::Boolean(true) => Some(String::new()),
            DeValue::String(text) => Some(format!("={text}")),
            DeValue::Integer(number) => Some(format!("={}", number.as_str())),
            _ => {
                let message = format!("`{}` is neither a text, a number, true nor false", key.get_ref());
                return Err(self.wrong(
                    &value.span(),
                    message,
                    "accepted: what `ebof connect` accepts after the option",
                ));
            }
        };
        let word = format!("--{option}{}", text.as_deref().unwrap_or_default());
        // By itself, so that the line of a mistake is known.
        match Line::try_parse_from([&word]) {
            Ok(_) => Ok(text.is_some().then_some(word)),
            // What it needs may be in the entry.
            Err(error) if error.kind() == clap::error::ErrorKind::MissingRequiredArgument && text.is_some() => {
                Ok(Some(word))
            }
            Err(error) if error.kind() == clap::error::ErrorKind::UnknownArgument => {
                let advice = "accepted: name, boot, front, and the long options of `ebof connect`";
                Err(self.wrong(&key.span(), format!("there is no key `{}`", key.get_ref()), advice))
            }
            // That of a switch that is off.
            Err(_) if text.is_none() => {
                let message = format!("`{}` is no switch", key.get_ref());
                Err(self.wrong(&value.span(), message, "leave it away for the default"))
            }
            Err(error) => Err(self.wrong(&value.span(), reason(&error), "see `ebof connect --help`")),
        }
    }
}

/// The first paragraph of what clap says, in a line.
fn reason(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
}

/// Whether a unit can have it as its instance.
fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> String {
        parse("c.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn entries_have_the_options_of_connect() {
        let text = "discovery-conf = true\nfabrics_conf = true\n[[connections]]\nname = \"backup\"\ntraddr = \"192.0.2.1\"\ntrsvcid = 4421\n\
                    nqn = \"nqn.2014-08.org.example:a\"\nctrl-loss-tmo = -1\nhdr_digest = true\ndata-digest = false\n\
                    front = \"ublk\"\nboot = false\n[[discoveries]]\ntransport = \"rdma\"\ntraddr = \"192.0.2.2\"\n";
        let (entries, others) = parse("c.toml", text).unwrap();
        assert!(others.discovery_conf && others.fabrics_conf && entries.len() == 2);
        let [first, second] = [&entries[0], &entries[1]];
        assert_eq!(
            (first.name.as_str(), first.sort, first.boot, first.front),
            ("backup", Sort::Subsystem, false, Kind::Ublk)
        );
        assert_eq!((first.fabric.trsvcid, first.fabric.overrides.ctrl_loss_tmo), (Some(4421), Some(-1)));
        assert!(first.fabric.overrides.hdr_digest && !first.fabric.overrides.data_digest);
        assert_eq!((second.sort, second.boot, second.fabric.transport.as_str()), (Sort::Discovery, true, "rdma"));
        assert_eq!(second.fabric.trsvcid, None);
        let at_boot = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|&name| name.to_owned()).collect();
            chosen(entries.clone(), &only, Path::new("c.toml")).map(|entries| entries.len()).map_err(|e| e.to_string())
        };
        assert_eq!((at_boot(&[]), at_boot(&["backup"])), (Ok(1), Ok(1)));
        assert_eq!(at_boot(&["x"]).unwrap_err(), "c.toml: no connection has the name \"x\"\n  named: backup");
        assert!(parse("c.toml", "").unwrap().0.is_empty());
    }

    #[test]
    fn mistakes_are_told_with_their_lines() {
        let entry = "[[connections]]\ntraddr = \"192.0.2.1\"\nnqn = \"nqn.2014-08.org.example:a\"\n";
        for (text, expected) in [
            ("[[connections]\n", "c.toml:1: "),
            ("[[connection]]\n", "c.toml:1: `connection` is not understood here\n  accepted: [[connections]]"),
            ("\n[[connections]]\nnqn = \"nqn.2014-08.org.example:a\"\n", "c.toml:2: the entry has no `traddr`"),
            ("[[connections]]\ntraddr = \"a\"\n", "c.toml:1: the entry has no `nqn`\n  name the subsystem"),
            ("[[connections]]\ntraddr = \"a\"\nnqn = \"x\"\ntrsvcid = 70000\n", "c.toml:4: invalid value '70000'"),
            (&format!("{entry}colour = 1\n"), "c.toml:4: there is no key `colour`\n  accepted: name, boot"),
            (&format!("{entry}ctrl-loss-tmo = [1]\n"), "c.toml:4: `ctrl-loss-tmo` is neither a text"),
            (&format!("{entry}ctrl-loss-tmo = false\n"), "c.toml:4: `ctrl-loss-tmo` is no switch"),
            (&format!("{entry}hdr-digest = 1\n"), "c.toml:4: unexpected value '1'"),
            (&format!("{entry}name = \"a/b\"\n"), "c.toml:4: this is no name"),
            (&format!("{entry}boot = 1\n"), "c.toml:4: `boot` is true or false"),
            (
                &format!("{entry}keyring = \".nvme\"\n"),
                "c.toml:1: the following required arguments were not provided: --tls\n",
            ),
            (
                &format!("{entry}dhchap-secret = \"DHHC-1:x\"\n"),
                "c.toml:4: a secret does not belong into this file\n  name a file with it",
            ),
            (&format!("{entry}name = \"a\"\n{entry}name = \"a\"\n"), "c.toml:5: the name \"a\" is taken"),
            ("[[connections]]\ntraddr = \"a:1\"\nnqn = \"x\"\n", "c.toml:1: --traddr \"a:1\" is more than an address"),
        ] {
            let told = wrong(text);
            assert!(told.starts_with(expected), "{text}: {told}");
        }
        // Keys that need each other.
        for keys in [
            "tls = true\ntls-key-file = \"/k\"",
            "tls = true\nkeyring = \".nvme\"",
            "dhchap-secret-file = \"/a\"\ndhchap-ctrl-secret-file = \"/b\"",
            "dhchap-secret-file = \"/a\"\nconcat = true",
        ] {
            parse("c.toml", &format!("{entry}{keys}\n")).unwrap();
        }
        assert!(wrong(&entry.repeat(ENTRIES_MAX + 1)).contains("more than 256 entries"));
    }
}
