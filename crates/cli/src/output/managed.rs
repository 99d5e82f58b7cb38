//! The view of verbs that manage namespaces: nvme-cli's line as text, and the details in the JSON.

use std::path::Path;

use super::View;
use super::json::{Json, Object};

/// A namespace was created, deleted, attached or detached.
#[derive(Debug)]
pub(crate) struct Managed {
    verb: &'static str,
    nsid: u32,
    facts: Object,
    /// The resulting block devices of this machine: names and paths.
    block_devices: Vec<(String, String)>,
}

impl Managed {
    /// `verb` was done to namespace `nsid` of `device`.
    pub(crate) fn new(verb: &'static str, device: &str, nsid: u32) -> Self {
        let facts = Object::new().with("device", device).with("nsid", nsid);
        Self { verb, nsid, facts, block_devices: Vec::new() }
    }

    /// Adds a key to the JSON.
    pub(crate) fn with(mut self, key: &str, value: impl Into<Json>) -> Self {
        self.facts.push(key, value);
        self
    }

    /// Adds a block device that has appeared.
    pub(crate) fn with_block_device(mut self, name: &str, path: &Path) -> Self {
        self.block_devices.push((name.to_owned(), path.display().to_string()));
        self
    }
}

impl View for Managed {
    fn text(&self, _verbose: bool) -> String {
        let what = match self.verb {
            "create-ns" => "created nsid",
            "delete-ns" => "deleted nsid",
            _ => "nsid",
        };
        let mut text = format!("{}: Success, {what}:{}\n", self.verb, self.nsid);
        for (name, path) in &self.block_devices {
            text += &format!("{name}: {path}\n");
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let document = Object::document(self.verb, 1).extend(self.facts.clone());
        if self.verb != "attach-ns" {
            return document;
        }
        let device =
            |(name, path): &(String, String)| Object::new().with("name", name.as_str()).with("path", path.as_str());
        document.with("block_devices", self.block_devices.iter().map(device).collect::<Vec<_>>())
    }
}
