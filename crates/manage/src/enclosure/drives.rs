//! Drives that are added to a running target, and taken away: what becomes of the configuration.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::refusal::{Mistake, MistakeKind};
use crate::config::{Config, Subsystem};
use crate::diagnostic::Severity;
use crate::load::{FileFormat, load_as};

/// A drive to be added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewDrive {
    /// The drive, with the keys that `[[drives]]` of a configuration has.
    pub drive: Map<String, Value>,
    /// The NQN of its subsystem; `None` is that of the last drive with this one's name, if that
    /// ends with its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nqn: Option<String>,
    /// Names of the ports that its own subsystem is reached through; `None` are those of the last
    /// drive, or all, without direct ports: one of those has one subsystem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<Vec<String>>,
    /// Hosts that may connect; none, and not any host, are those of the last drive.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_hosts: Vec<String>,
    /// Whether any host may connect.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub allow_any_host: bool,
}

impl NewDrive {
    /// Its name, as far as it has one.
    #[must_use]
    pub fn name(&self) -> &str {
        self.drive.get("name").and_then(Value::as_str).unwrap_or_default()
    }

    /// The configuration with the drive, and a subsystem for it.
    ///
    /// # Errors
    /// All mistakes.
    pub fn add_to(&self, current: &Config) -> Result<Config, Vec<Mistake>> {
        let last = last_drive(current);
        let mut mistakes = Vec::new();
        let nqn = self.nqn.clone().or_else(|| derived_nqn(last?, self.name()));
        if nqn.is_none() {
            let message = "its subsystem needs an NQN, and there is none to derive it from";
            mistakes.push(self.mistake(message.to_owned(), "name one: --nqn nqn.2014-08.org.example:d5".to_owned()));
        }
        let ports = self.ports.clone().unwrap_or_else(|| default_ports(current, last));
        let mut any = self.allow_any_host;
        let mut hosts = self.allowed_hosts.clone();
        if !any && hosts.is_empty() {
            any = last.is_some_and(|last| last.allow_any_host);
            hosts = last.map_or(Vec::new(), |last| last.allowed_hosts.iter().map(ToString::to_string).collect());
            if last.is_none() {
                let advice = "name the hosts (--host NQN), or let everyone in (--allow-any-host)";
                mistakes.push(self.mistake("no host is allowed".to_owned(), advice.to_owned()));
            }
        }
        let mut config = current.to_tables();
        let mut add = |key: &str, value: Value| match config.get_mut(key) {
            Some(Value::Array(list)) => list.push(value),
            _ => drop(config.insert(key.to_owned(), json!([value]))),
        };
        for host in hosts.iter().filter(|host| !current.hosts.iter().any(|known| known.nqn.as_str() == **host)) {
            add("hosts", json!({ "nqn": host }));
        }
        add("drives", Value::Object(self.drive.clone()));
        let nqn = nqn.unwrap_or_else(|| PLACEHOLDER.to_owned());
        let subsystem = json!({
            "nqn": nqn, "drive": self.name(), "ports": ports, "allow_any_host": any, "allowed_hosts": hosts,
        });
        add("subsystems", subsystem);
        let loaded = load_as(FileFormat::Json, "request", &Value::Object(config).to_string());
        match loaded {
            Ok(loaded) if mistakes.is_empty() => Ok(merged(current, &loaded.config)),
            Ok(_) => Err(mistakes),
            Err(diagnostics) => {
                let errors = diagnostics.items.into_iter().filter(|item| item.severity == Severity::Error);
                mistakes.extend(errors.map(|item| self.mistake(item.message, without_lines(item.help))));
                Err(mistakes)
            }
        }
    }

    fn mistake(&self, message: String, advice: String) -> Mistake {
        Mistake::new(MistakeKind::Value, self.name(), message, advice)
    }
}

/// An NQN for checks, where there is none.
const PLACEHOLDER: &str = "nqn.2014-08.org.nvmexpress:ebof-unnamed";

/// The configuration without a drive, its subsystem included.
#[must_use]
pub fn without_drive(current: &Config, name: &str) -> Config {
    let mut config = current.clone();
    config.drives.retain(|drive| drive.name != name);
    config.subsystems.retain(|subsystem| subsystem.drive.as_deref() != Some(name));
    config
}

fn last_drive(config: &Config) -> Option<&Subsystem> {
    config.subsystems.iter().rfind(|subsystem| subsystem.drive.is_some())
}

/// The fabric ports of the last drive, or all of them.
fn default_ports(config: &Config, last: Option<&Subsystem>) -> Vec<String> {
    let serving = config.ports.iter().filter(|port| !port.discovery_only && port.listen.is_network());
    let chosen = serving.filter(|port| last.is_none_or(|last| last.ports.contains(&port.name)));
    chosen.map(|port| port.name.clone()).collect()
}

/// `nqn...:d4` becomes `nqn...:d5`.
fn derived_nqn(last: &Subsystem, name: &str) -> Option<String> {
    let start = last.nqn.as_str().strip_suffix(last.drive.as_deref()?)?;
    start.ends_with(':').then(|| format!("{start}{name}"))
}

/// What was there stays as it is: a number that was assigned stays one.
fn merged(current: &Config, read: &Config) -> Config {
    let mut config = current.clone();
    config.hosts.extend(read.hosts.iter().skip(current.hosts.len()).cloned());
    config.drives.extend(read.drives.iter().skip(current.drives.len()).cloned());
    config.subsystems.extend(read.subsystems.iter().skip(current.subsystems.len()).cloned());
    config
}

/// `...; line 11 has it first` refers to a file, and there is none.
fn without_lines(help: Option<String>) -> String {
    let help = help.unwrap_or_default();
    help.split("; line ").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load;

    const BOX: &str = r#"
[[ports]]
name = "fabric0"
listen = "tcp://127.0.0.1:4420"
[[hosts]]
nqn = "nqn.2014-08.org.example:alice"
[[drives]]
name = "d0"
backing = "d0.img"
[[subsystems]]
nqn = "nqn.2014-08.org.example:box:d0"
drive = "d0"
allowed_hosts = ["nqn.2014-08.org.example:alice"]
"#;

    fn new(json: Value) -> NewDrive {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_drive_is_added_like_the_last_one_and_removed_again() {
        let current = load("a.toml", BOX).unwrap().config;
        let drive = new(json!({ "drive": { "name": "d1", "backing": "mem:1G" } }));
        let config = drive.add_to(&current).unwrap();
        let added = config.subsystems.last().unwrap();
        assert_eq!(added.nqn.as_str(), "nqn.2014-08.org.example:box:d1");
        assert_eq!((added.drive.as_deref(), added.ports.len(), added.allow_any_host), (Some("d1"), 1, false));
        assert_eq!(added.allowed_hosts, current.hosts.iter().map(|host| host.nqn.clone()).collect::<Vec<_>>());
        assert_eq!(without_drive(&config, "d1"), current);
    }

    #[test]
    fn direct_ports_are_not_among_the_default_ones() {
        let direct = "[[ports]]\nname = \"direct1\"\nlisten = \"vfio-user:/run/ebof/1.sock\"\n";
        let drive = new(json!({ "drive": { "name": "d1", "backing": "mem:1G" } }));
        let ports = |text: &str| {
            let current = load("a.toml", text).unwrap().config;
            drive.add_to(&current).unwrap().subsystems.last().unwrap().ports.clone()
        };
        let of_last = |names: &str| format!("{direct}{BOX}ports = [{names}]\n");
        assert_eq!(ports(&of_last("\"direct1\", \"fabric0\"")), ["fabric0"]);
        assert!(ports(&of_last("\"direct1\"")).is_empty(), "it is not to be reached by more than the last one");
        let mut without = load("a.toml", &format!("{direct}{BOX}")).unwrap().config;
        without.drives.clear();
        without.subsystems.clear();
        let drive = NewDrive { nqn: Some("nqn.2014-08.org.example:d1".into()), allow_any_host: true, ..drive.clone() };
        assert_eq!(drive.add_to(&without).unwrap().subsystems[0].ports, ["fabric0"]);
    }

    #[test]
    fn hosts_of_a_new_drive_are_described() {
        let current = load("a.toml", BOX).unwrap().config;
        let bob = "nqn.2014-08.org.example:bob";
        let drive = new(json!({
            "drive": { "name": "d1", "backing": "mem:1G" }, "nqn": "nqn.2014-08.org.example:other", "allowed_hosts": [bob],
        }));
        let config = drive.add_to(&current).unwrap();
        assert_eq!(config.hosts.last().unwrap().nqn.as_str(), bob);
        assert_eq!(config.subsystems.last().unwrap().allowed_hosts.len(), 1);
    }

    #[test]
    fn all_mistakes_of_a_new_drive_are_reported() {
        let current = load("a.toml", BOX).unwrap().config;
        let drive = new(json!({
            "drive": { "name": "d0", "backing": "d0.img", "sise": 1 }, "nqn": "x", "ports": ["fabric9"], "allow_any_host": true,
        }));
        let mistakes = drive.add_to(&current).unwrap_err();
        let text: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(text.join("\n"));
        let nothing = NewDrive::default().add_to(&Config::default()).unwrap_err();
        assert!(nothing.iter().any(|mistake| mistake.message.contains("no host is allowed")), "{nothing:?}");
        assert!(nothing.iter().any(|mistake| mistake.message.contains("needs an NQN")), "{nothing:?}");
    }
}
