//! Whether a text that can be used is all of the configuration: a file that is being written, or
//! was cut short, may be legal and say next to nothing.

use std::collections::HashSet;

use thiserror::Error;

use super::{FileFormat, Loaded};
use crate::config::Config;
use crate::load::read::tree::{Node, Value};
use crate::plan::{Change, Plan};

/// Signs that a text is complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Whole {
    /// It has a list of subsystems, be it an empty one.
    lists_subsystems: bool,
    /// NQNs of subsystems with a list of namespaces, be it an empty one.
    listing: HashSet<String>,
    /// TOML that does not end with a newline.
    unended: bool,
}

/// Why a configuration that can be used should not take the place of the one in force without
/// another look: it takes away what it does not mention, as a file does that was cut short.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Objection {
    /// No word about subsystems.
    #[error(
        "it says nothing of subsystems, and {count} would be taken away from their hosts: was the file cut short? Write \
         `subsystems = []` in front of everything else if there are to be none"
    )]
    NoSubsystem {
        /// How many there are.
        count: usize,
    },
    /// No word about the namespaces of a subsystem.
    #[error(
        "it says nothing of the namespaces of {nqn}, and {count} would be taken away from its hosts: was the file cut short? \
         Write `namespaces = []` if there are to be none"
    )]
    NoNamespaces {
        /// The subsystem.
        nqn: String,
        /// How many there are.
        count: usize,
    },
    /// TOML that ends in the middle of a line, and takes something away.
    #[error(
        "its last line has no end, and it would {change}: was the file cut short? End the last line with a line feed if that \
         is what is meant"
    )]
    Unended {
        /// The first thing that goes.
        change: String,
    },
}

impl Whole {
    pub(super) fn from_text(format: FileFormat, text: &str, root: Option<&Node>) -> Self {
        let unended = format == FileFormat::Toml && !text.is_empty() && !text.ends_with('\n');
        let subsystems = root.and_then(|root| root.entry("subsystems")).map(|entry| entry.node.elements());
        let name = |node: &Node| match &node.entry("nqn")?.node.value {
            Value::String(text) => Some(text.clone()),
            _ => None,
        };
        let with_list = |node: &&Node| node.entry("namespaces").is_some();
        let listing = subsystems.unwrap_or_default().iter().filter(with_list).filter_map(name).collect();
        Self { lists_subsystems: subsystems.is_some(), listing, unended }
    }
}

impl Loaded {
    /// What speaks against putting it in the place of `current`: it takes away what it does not
    /// mention.
    #[must_use]
    pub fn objection(&self, current: &Config) -> Option<Objection> {
        if self.config.subsystems.is_empty() && !current.subsystems.is_empty() && !self.whole.lists_subsystems {
            return Some(Objection::NoSubsystem { count: current.subsystems.len() });
        }
        for next in &self.config.subsystems {
            let before = current.subsystems.iter().find(|before| before.nqn == next.nqn);
            let count = before.map_or(0, |before| before.namespaces.len());
            let silent = next.drive.is_none() && !self.whole.listing.contains(next.nqn.as_str());
            if count > 0 && silent {
                return Some(Objection::NoNamespaces { nqn: next.nqn.to_string(), count });
            }
        }
        if self.whole.unended {
            let mut config = self.config.clone();
            config.keep_numbers(current);
            let goes = |change: &Change| {
                matches!(
                    change,
                    Change::RemoveSubsystem { .. }
                        | Change::RemoveNamespace { .. }
                        | Change::RemoveDrive { .. }
                        | Change::RemovePort { .. }
                        | Change::RemoveHost { .. }
                )
            };
            let change = Plan::between(current, &config).changes.into_iter().find(goes)?;
            return Some(Objection::Unended { change: change.to_string() });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load;

    const FULL: &str = r#"
[[ports]]
listen = "tcp://10.0.0.1:4420"
[[subsystems]]
nqn = "disks"
allow_any_host = true
namespaces = ["a.img"]
[[subsystems]]
nqn = "more"
allow_any_host = true
namespaces = ["b.img"]
"#;

    fn objection(name: &str, text: &str) -> Option<Objection> {
        let current = load("a.toml", FULL).unwrap().config;
        load(name, text).unwrap().objection(&current)
    }

    #[test]
    fn subsystems_are_removed_only_by_an_explicit_empty_list() {
        let ports = FULL.split("[[subsystems]]").next().unwrap();
        for text in ["", "\n", "# nothing\n", ports] {
            assert_eq!(objection("a.toml", text), Some(Objection::NoSubsystem { count: 2 }), "{text:?}");
        }
        assert_eq!(objection("a.json", "{ \"target\": {} }"), Some(Objection::NoSubsystem { count: 2 }));
        assert_eq!(objection("a.json", "{ \"target\": {}, \"subsystems\": [] }"), None);
        assert_eq!(objection("a.toml", &format!("subsystems = []\n{ports}")), None);
        // Without subsystems before, nothing is removed.
        assert_eq!(load("a.toml", "").unwrap().objection(&Config::default()), None);
    }

    // @test data.truncated-configuration
    #[test]
    fn a_file_truncated_anywhere_is_detected_or_removes_nothing() {
        for end in 0..FULL.len() {
            let text = &FULL[..end];
            let Ok(loaded) = load("a.toml", text) else { continue };
            let current = load("a.toml", FULL).unwrap().config;
            let whole_subsystems = text.ends_with("namespaces = [\"a.img\"]\n");
            assert!(
                loaded.objection(&current).is_some()
                    || whole_subsystems
                    || Plan::between(&current, &loaded.config).is_empty(),
                "cut at {end}:\n{text}"
            );
        }
    }

    #[test]
    fn all_namespaces_of_a_subsystem_are_removed_only_by_an_explicit_empty_list() {
        let silent = FULL.replace("namespaces = [\"a.img\"]\n", "");
        assert_eq!(objection("a.toml", &silent), Some(Objection::NoNamespaces { nqn: "disks".into(), count: 1 }));
        assert_eq!(objection("a.toml", &FULL.replace("[\"a.img\"]", "[]")), None);
        assert_eq!(objection("a.toml", FULL), None);
        // A drive takes their place.
        let drive = silent.replace("nqn = \"disks\"", "nqn = \"disks\"\ndrive = \"d0\"");
        let drive = format!("{drive}[[drives]]\nname = \"d0\"\nbacking = \"mem:1G\"\n");
        assert_eq!(objection("a.toml", &drive), None);
    }

    #[test]
    fn a_last_line_without_a_newline_removes_nothing() {
        let half = FULL.split("[[subsystems]]\nnqn = \"more\"").next().unwrap();
        assert_eq!(objection("a.toml", half), None);
        let Some(Objection::Unended { change }) = objection("a.toml", half.trim_end()) else { panic!("no objection") };
        assert_eq!(change, "remove subsystem more");
        assert_eq!(objection("a.toml", FULL.trim_end()), None, "nothing goes");
    }
}
