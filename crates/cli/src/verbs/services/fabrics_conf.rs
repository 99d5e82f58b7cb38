//! nvme-cli 3's `nvme-fabrics.conf` and the files in `nvme-fabrics.conf.d`: discovery services and
//! subsystems, with what counts for all of a kind, and which host connects them.
//!
//! A mistake in an entry leaves that entry out, one in what counts for others leaves the file out;
//! each is told, and the rest goes on. nvme-cli connects nothing then.

mod keys;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::Parser;
use ebof_manage::{Diagnostics, Message, Severity};
use ebof_nvme::HostId;

use super::ini::{self, Says, rows, span_of};
use super::{DiscoveryService, NamedSubsystem, SERVICES_MAX, conf, read_dropins, read_if_there};
use crate::verbs::fabric::FabricArgs;
use keys::{Class, Key};

/// What a file, or one and those beside it, names.
#[derive(Debug, Default)]
pub(crate) struct Named {
    pub(crate) services: Vec<DiscoveryService>,
    pub(crate) subsystems: Vec<NamedSubsystem>,
    /// What is wrong, in the order of the files.
    pub(crate) wrong: Vec<anyhow::Error>,
}

/// Values by their keys; an empty one takes back what counts for more.
type Params = BTreeMap<&'static str, String>;

/// A section of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    /// None, before the first head and after one that is none.
    None,
    /// One that is not known.
    Other,
    ServiceDefaults,
    SubsystemDefaults,
    Host,
    Service,
    Subsystem,
}

/// A discovery service or a subsystem.
#[derive(Debug, Default)]
struct Entry {
    is_service: bool,
    /// The head of its section.
    span: Range<usize>,
    nqn: Option<String>,
    params: Params,
    paths: Vec<Route>,
    /// Whether something is wrong with it.
    is_wrong: bool,
}

/// A line `controller = ...`.
#[derive(Debug, Default)]
struct Route {
    line: usize,
    span: Range<usize>,
    /// Options and their values.
    address: Vec<(&'static str, String)>,
    params: Params,
}

/// A file as it is read.
#[derive(Debug)]
struct File<'a> {
    path: PathBuf,
    text: &'a str,
    defaults: [Params; 2],
    host: Option<(Range<usize>, Params)>,
    entries: Vec<Entry>,
    messages: Vec<Message>,
    /// Places with secrets.
    hidden: Vec<Range<usize>>,
    /// Whether something is wrong with what counts for all entries.
    is_wrong: bool,
}

/// A line of options.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Options {
    #[command(flatten)]
    fabric: FabricArgs,
}

/// Reads the file at `main`, if it is there, and those beside it.
pub(crate) fn read(main: &Path) -> Named {
    let mut named = Named::default();
    let dropins = read_dropins(main).unwrap_or_else(|error| {
        named.wrong.push(error);
        Vec::new()
    });
    let mut texts: Vec<(PathBuf, String)> = Vec::new();
    for path in std::iter::once(main.to_owned()).chain(dropins) {
        match read_if_there(&path, "the connections") {
            Ok(text) => texts.extend(text.map(|text| (path, text))),
            Err(error) => named.wrong.push(error),
        }
    }
    resolve(main, &texts, &mut named);
    named
}

/// Takes what the files name, the main one and its drop-ins.
fn resolve(main: &Path, texts: &[(PathBuf, String)], named: &mut Named) {
    let mut files: Vec<File<'_>> = texts.iter().map(|(path, text)| File::parse(path, text)).collect();
    for at in 0..files.len() {
        let (before, rest) = files.split_at_mut(at);
        if let Some(file) = rest.first_mut() {
            file.check_host(main, before);
        }
    }
    let of_main = files.iter().find(|file| file.path == main).map(|file| file.defaults.clone()).unwrap_or_default();
    for file in &mut files {
        file.take(&of_main, named);
    }
    for mut file in files {
        file.messages.extend(conf::warning_of_readers(&file.path, &file.hidden));
        let name = file.path.display().to_string();
        let found = Diagnostics::about(&name, file.text, file.messages, &file.hidden);
        if !found.is_empty() {
            named.wrong.push(found.into());
        }
    }
}

impl<'a> File<'a> {
    fn parse(path: &Path, text: &'a str) -> Self {
        let mut file = File {
            path: path.to_owned(),
            text,
            defaults: [Params::new(), Params::new()],
            host: None,
            entries: Vec::new(),
            messages: Vec::new(),
            hidden: Vec::new(),
            is_wrong: false,
        };
        let mut section = Section::None;
        let mut heads = Vec::new();
        for row in rows(text) {
            match row.says {
                Says::Section(name) => {
                    section = file.enter(name, &row.span);
                    if heads.contains(&section)
                        && [Section::ServiceDefaults, Section::SubsystemDefaults].contains(&section)
                    {
                        file.warn(
                            row.span,
                            format!("there is another section [{name}] in this file"),
                            "what comes later counts",
                        );
                    }
                    heads.push(section);
                }
                Says::Pair(key, value) => file.pair(section, key, value, row.line, row.span),
                Says::Wrong => {
                    if text[row.span.clone()].starts_with('[') {
                        section = Section::None;
                    }
                    file.wrong(section, row.span, "this is neither a section nor `key = value`", SECTIONS);
                }
            }
        }
        for at in 0..file.entries.len() {
            let entry = &file.entries[at];
            let span = entry.span.clone();
            if !entry.is_service && entry.nqn.is_none() {
                file.entries[at].is_wrong = true;
                file.error(span, "this subsystem has no `nqn`", "name it: nqn = NQN");
            } else if entry.paths.is_empty() && !entry.is_wrong {
                file.warn(span, "this entry has no address, and is not connected".to_owned(), CONTROLLER);
            }
        }
        file
    }

    fn error(&mut self, span: Range<usize>, text: impl Into<String>, help: &str) {
        self.messages.push(Message { severity: Severity::Error, span, text: text.into(), help: help.to_owned() });
    }

    fn warn(&mut self, span: Range<usize>, text: String, help: &str) {
        self.messages.push(Message { severity: Severity::Warning, span, text, help: help.to_owned() });
    }

    /// An error in a section: its entry, or all of the file, is left out.
    fn wrong(&mut self, section: Section, span: Range<usize>, text: impl Into<String>, help: &str) {
        match (section, self.entries.last_mut()) {
            (Section::Service | Section::Subsystem, Some(entry)) => entry.is_wrong = true,
            (Section::Host | Section::ServiceDefaults | Section::SubsystemDefaults, _) => self.is_wrong = true,
            _ => {}
        }
        self.error(span, text, help);
    }

    fn enter(&mut self, name: &str, span: &Range<usize>) -> Section {
        let entry = |is_service| Entry { is_service, span: span.clone(), ..Entry::default() };
        match name {
            "Discovery Controller Defaults" => Section::ServiceDefaults,
            "I/O Controller Defaults" => Section::SubsystemDefaults,
            "Host" if self.host.is_some() => {
                self.wrong(
                    Section::Host,
                    span.clone(),
                    "there is another section [Host] in this file",
                    "write a file for each host",
                );
                Section::Other
            }
            "Host" => {
                self.host = Some((span.clone(), Params::new()));
                Section::Host
            }
            "Discovery Controller" => {
                self.entries.push(entry(true));
                Section::Service
            }
            "Subsystem" => {
                self.entries.push(entry(false));
                Section::Subsystem
            }
            _ => {
                self.warn(span.clone(), format!("the section [{name}] is not understood, and has no effect"), SECTIONS);
                Section::Other
            }
        }
    }

    fn pair(&mut self, section: Section, word: &str, value: &'a str, line: usize, span: Range<usize>) {
        if section == Section::Other {
            return;
        }
        let Some(key) = Key::find(word) else {
            self.warn(
                span,
                format!("there is no key `{word}`: it has no effect"),
                "keys are the long options of `nvme connect`",
            );
            return;
        };
        if key.is_secret() && !value.is_empty() {
            self.hidden.push(span_of(self.text, value));
        }
        let belongs = match section {
            Section::None | Section::Other => false,
            Section::ServiceDefaults => matches!(key.class, Class::Tunable | Class::OfService | Class::Security),
            Section::SubsystemDefaults => matches!(key.class, Class::Tunable | Class::Security),
            Section::Host => matches!(key.class, Class::Tunable | Class::Security | Class::Host),
            Section::Service => !matches!(key.class, Class::Host),
            Section::Subsystem => !matches!(key.class, Class::Host | Class::OfService),
        };
        if !belongs {
            self.wrong(section, span, format!("`{word}` does not belong here"), BELONGS);
            return;
        }
        match key.class {
            Class::Controller => self.route(section, value, line, span),
            Class::Nqn if value.is_empty() || key.check(value).is_err() => {
                self.wrong(section, span, format!("`{value}` is no NQN"), "write nqn.YYYY-MM.DOMAIN:NAME");
            }
            Class::Nqn => {
                if let Some(entry) = self.entries.last_mut() {
                    entry.nqn = Some(value.to_owned());
                }
            }
            _ => match key.check(value) {
                Err(help) => {
                    let at = if value.is_empty() { span } else { span_of(self.text, value) };
                    let shown = if key.is_secret() { "..." } else { value };
                    self.wrong(section, at, format!("`{word}` cannot be `{shown}`"), &help);
                }
                Ok(()) => {
                    if let Some(params) = self.params_of(section) {
                        params.insert(key.name, value.to_owned());
                    }
                }
            },
        }
    }

    fn params_of(&mut self, section: Section) -> Option<&mut Params> {
        match section {
            Section::ServiceDefaults => Some(&mut self.defaults[0]),
            Section::SubsystemDefaults => Some(&mut self.defaults[1]),
            Section::Host => self.host.as_mut().map(|(_, params)| params),
            Section::Service | Section::Subsystem => self.entries.last_mut().map(|entry| &mut entry.params),
            Section::None | Section::Other => None,
        }
    }

    /// A line `controller = ...`. A word that is not understood would have another connection made
    /// than was meant.
    fn route(&mut self, section: Section, list: &'a str, line: usize, span: Range<usize>) {
        let mut route = Route { line, span: span.clone(), ..Route::default() };
        let mut problems: Vec<(Range<usize>, String, &str)> = Vec::new();
        for pair in ini::pairs(self.text, list) {
            let (word, value) = match pair {
                Ok(pair) => pair,
                Err(at) => {
                    problems.push((at, "this is no KEY=VALUE".to_owned(), CONTROLLER));
                    continue;
                }
            };
            let at = span_of(self.text, word);
            if let Some(name) = ADDRESS.into_iter().find(|name| *name == word) {
                if value.is_empty() {
                    problems.push((at, format!("`{word}` has no value"), "leave it out for the default"));
                } else if route.address.iter().any(|(known, _)| *known == name) {
                    problems.push((at, format!("`{word}` is here twice"), "write a line for each address"));
                } else {
                    route.address.push((name, value.to_owned()));
                }
                continue;
            }
            match Key::find(word) {
                Some(key)
                    if key.class == Class::Tunable || key.class == Class::OfService && section == Section::Service =>
                {
                    match key.check(value) {
                        Ok(()) => {
                            route.params.insert(key.name, value.to_owned());
                        }
                        Err(_) => {
                            problems.push((at, format!("`{word}` cannot be `{value}`"), "see `ebof connect --help`"));
                        }
                    }
                }
                Some(key) => {
                    if key.is_secret() {
                        self.hidden.push(span_of(self.text, value));
                    }
                    problems.push((at, format!("`{word}` does not belong to one address"), BELONGS));
                }
                None => problems.push((at, format!("there is no key `{word}`"), CONTROLLER)),
            }
        }
        for name in ["transport", "traddr"] {
            if problems.is_empty() && !route.address.iter().any(|(known, _)| *known == name) {
                problems.push((span.clone(), format!("the address has no `{name}`"), CONTROLLER));
            }
        }
        // The entry's other addresses go on.
        let is_right = problems.is_empty();
        for (at, text, help) in problems {
            self.error(at, text, help);
        }
        if let Some(entry) = self.entries.last_mut().filter(|_| is_right) {
            entry.paths.push(route);
        }
    }

    /// The name of this file's host, and its identifier, if it has them.
    fn identity(&self) -> (Option<&str>, Option<HostId>) {
        let text = |name: &str| {
            let (_, params) = self.host.as_ref()?;
            params.get(name).map(String::as_str).filter(|value| !value.is_empty())
        };
        (text("hostnqn"), text("hostid").and_then(HostId::parse))
    }

    /// Two files are two hosts: neither name nor identifier is there twice.
    fn check_host(&mut self, main: &Path, before: &[File<'_>]) {
        let Some((span, _)) = self.host.clone() else { return };
        let (nqn, id) = self.identity();
        let nqn = nqn.map(str::to_owned);
        if self.path != main && nqn.is_none() {
            self.wrong(
                Section::Host,
                span,
                "this host has no `hostnqn`",
                "a file beside the main one is a host of its own: hostnqn = NQN",
            );
            return;
        }
        for other in before.iter().filter(|other| other.host.is_some()) {
            let (other_nqn, other_id) = other.identity();
            let other_name = other.path.display();
            if nqn.is_some() && other_nqn == nqn.as_deref() {
                let text = format!("the host of {other_name} has this `hostnqn`, too");
                self.wrong(Section::Host, span, text, "write all that one host connects to one file");
                return;
            }
            if id.is_some() && other_id == id {
                let text = format!("the host of {other_name} has this `hostid`, too");
                self.wrong(Section::Host, span, text, "one identifier is one host: give this one another, or none");
                return;
            }
        }
    }

    /// Adds what this file names.
    fn take(&mut self, of_main: &[Params; 2], named: &mut Named) {
        if self.is_wrong {
            let span =
                self.messages.iter().find(|message| message.severity == Severity::Error).map(|it| it.span.clone());
            self.warn(
                span.unwrap_or_default(),
                "nothing of this file is connected".to_owned(),
                "what is wrong counts for all of it",
            );
            return;
        }
        // What counts for less comes first.
        let base = [0, 1].map(|kind: usize| {
            let mut params = of_main[kind].clone();
            params.extend(self.defaults[kind].clone());
            params.extend(self.host.iter().flat_map(|(_, host)| host.clone()));
            params
        });
        for entry in std::mem::take(&mut self.entries).into_iter().filter(|entry| !entry.is_wrong) {
            let own = &base[usize::from(!entry.is_service)];
            for route in &entry.paths {
                if named.services.len() + named.subsystems.len() >= SERVICES_MAX {
                    let text = format!("more than {SERVICES_MAX} entries: this one and the rest are left out");
                    self.error(route.span.clone(), text, "have a discovery service list them");
                    return;
                }
                let mut params = own.clone();
                params.extend(entry.params.clone());
                params.extend(route.params.clone());
                let place = format!("{}:{}", self.path.display(), route.line);
                let made =
                    self.fabric(&params, &route.address, entry.nqn.as_deref(), entry.is_service).and_then(|fabric| {
                        if !entry.is_service {
                            named.subsystems.push(NamedSubsystem { fabric, place });
                            return Ok(());
                        }
                        let through: Vec<_> =
                            route.address.iter().filter(|(name, _)| name.starts_with("host-")).cloned().collect();
                        let listed = self.fabric(&base[1], &through, None, false)?;
                        named.services.push(DiscoveryService { fabric, listed: Some(listed), place: Some(place) });
                        Ok(())
                    });
                if let Err((text, help)) = made {
                    self.error(route.span.clone(), text, &help);
                }
            }
        }
    }

    /// The options of an entry's connection.
    fn fabric(
        &self,
        params: &Params,
        address: &[(&'static str, String)],
        nqn: Option<&str>,
        is_service: bool,
    ) -> Result<FabricArgs, (String, String)> {
        let mut words = keys::words(params);
        words.extend(address.iter().map(|(name, value)| format!("--{name}={value}")));
        words.extend(nqn.map(|nqn| format!("--nqn={nqn}")));
        let Options { fabric } = Options::try_parse_from(&words).map_err(|error| {
            let text = error.to_string();
            let reason: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
            (reason.join(" ").trim_start_matches("error: ").to_owned(), "see `ebof connect --help`".to_owned())
        })?;
        let checked = if is_service { fabric.check_service() } else { fabric.check_quietly() };
        checked.map_err(|failure| (failure.message().to_owned(), failure.advice().unwrap_or_default().to_owned()))?;
        Ok(fabric)
    }
}

/// The options of an address.
const ADDRESS: [&str; 5] = ["transport", "traddr", "trsvcid", "host-traddr", "host-iface"];

const CONTROLLER: &str = "accepted: controller = transport=tcp;traddr=ADDRESS;trsvcid=PORT";
const SECTIONS: &str = "accepted: [Host], [Discovery Controller], [Subsystem], [Discovery Controller Defaults] and \
                        [I/O Controller Defaults]";
const BELONGS: &str = "hostnqn, hostid and hostsymname belong to [Host]; nqn and controller to [Discovery Controller] \
                       and [Subsystem]; persistent to discovery controllers; keys and secrets to sections, not to addresses";

#[cfg(test)]
mod tests;
