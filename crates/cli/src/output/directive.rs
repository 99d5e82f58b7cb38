//! The view of a directive command (`dir-send`, `dir-receive`).

use std::fmt::Write as _;

use ebof_nvme::Nsid;

use super::View;
use super::json::Object;
use super::text::{digits, dump, hex};

/// The result of Directive Send or Directive Receive.
pub(crate) struct DirectiveView {
    /// The verb.
    pub(crate) verb: &'static str,
    /// Directive type.
    pub(crate) kind: u8,
    /// Directive operation.
    pub(crate) operation: u8,
    /// Directive specific value.
    pub(crate) spec: u16,
    /// The namespace.
    pub(crate) nsid: Nsid,
    /// Dword 0 of the completion.
    pub(crate) result: u32,
    /// The data that came.
    pub(crate) data: Vec<u8>,
}

/// The directives in the bytes of Identify's parameters, by bit.
const DIRECTIVES: [&str; 3] = ["Identify Directive", "Stream Directive", "Data Placement Directive"];

/// Streams' parameters: name, offset, bytes.
const STREAMS: [(&str, usize, usize); 8] = [
    ("Max Streams Limit (MSL)", 0, 2),
    ("NVM Subsystem Streams Available (NSSA)", 2, 2),
    ("NVM Subsystem Streams Open (NSSO)", 4, 2),
    ("NVM Subsystem Stream Capability (NSSC)", 6, 1),
    ("Stream Write Size (in unit of LB size) (SWS)", 16, 4),
    ("Stream Granularity Size (in unit of SWS) (SGS)", 20, 2),
    ("Namespace Streams Allocated (NSA)", 22, 2),
    ("Namespace Streams Open (NSO)", 24, 2),
];

impl DirectiveView {
    fn number(&self, offset: usize, bytes: usize) -> u32 {
        let field = self.data.get(offset..offset + bytes).unwrap_or_default();
        field.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
    }

    /// The data in words.
    fn fields(&self) -> Vec<(String, String)> {
        if self.data.is_empty() {
            let allocated = self.verb == "dir-receive";
            let name = "Namespace Streams Allocated (NSA)".to_owned();
            return if allocated { vec![(name, (self.result & 0xffff).to_string())] } else { Vec::new() };
        }
        match (self.kind, self.operation) {
            (0, _) => [("support", 0, "Supported"), ("enabled", 32, "Enabled"), ("persistent", 64, "Persistent")]
                .into_iter()
                .flat_map(|(title, at, word)| {
                    DIRECTIVES.iter().enumerate().map(move |(bit, name)| {
                        let set = self.number(at, 1) >> bit & 1 != 0;
                        (format!("{name}, {title}"), format!("{}{word}", if set { "" } else { "Not " }))
                    })
                })
                .collect(),
            (1, 1) => {
                let field =
                    |&(name, at, bytes): &(&str, usize, usize)| (name.to_owned(), self.number(at, bytes).to_string());
                STREAMS.iter().map(field).collect()
            }
            _ => {
                let count = self.number(0, 2).min(65_535) as usize;
                let open = (1..=count).filter(|index| index * 2 + 2 <= self.data.len());
                let open =
                    open.map(|index| (format!("Stream Identifier {index:06}"), self.number(index * 2, 2).to_string()));
                std::iter::once(("Open Stream Count".to_owned(), count.to_string())).chain(open).collect()
            }
        }
    }
}

impl View for DirectiveView {
    fn text(&self, verbose: bool) -> String {
        let mut text = format!(
            "{}: type {}, operation {}, spec {}, nsid {}, result {}\n",
            self.verb,
            hex(self.kind),
            hex(self.operation),
            hex(self.spec),
            hex(self.nsid.0),
            hex(self.result)
        );
        if verbose {
            for (name, value) in self.fields() {
                let _infallible = writeln!(text, "\t{name:<50}: {value}");
            }
        } else if !self.data.is_empty() {
            text += &dump(&self.data);
        }
        text
    }

    fn json(&self, verbose: bool) -> Object {
        let object = Object::document(self.verb, 1)
            .with("Type", hex(self.kind))
            .with("Operation", hex(self.operation))
            .with("spec", hex(self.spec))
            .with("NSID", hex(self.nsid.0))
            .with("result", hex(self.result))
            .with("data", self.data.chunks(16).map(digits).collect::<Vec<_>>());
        let fields = self.fields().into_iter().fold(Object::new(), |object, (name, value)| object.with(name, value));
        if verbose && !fields.is_empty() { object.with("fields", fields) } else { object }
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(&self.data)
    }
}
