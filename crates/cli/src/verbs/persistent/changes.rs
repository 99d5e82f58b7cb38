//! What is told of held services while they are held: a line for each change.

use crate::global::{Global, OutputFormat};
use crate::output::json::Object;
use crate::output::print;

/// Where changes are told, and in which form.
pub(super) struct Changes {
    is_json: bool,
}

impl Changes {
    pub(super) fn new(global: &Global) -> Self {
        Self { is_json: global.format == OutputFormat::Json }
    }

    /// Tells a change: a line of text, or a JSON document on a line.
    pub(super) fn tell(&self, change: &str, details: &[(&'static str, &str)], text: &str) {
        if self.is_json {
            let mut object = Object::document("discovery-change", 1).with("change", change);
            for (key, value) in details {
                object.push(*key, *value);
            }
            print_line(&serde_json::to_string(&object).unwrap_or_default());
        } else {
            print_line(text);
        }
    }
}

/// A line for programs and people that follow what happens.
fn print_line(line: &str) {
    // A reader that has gone away does not keep a machine from its disks.
    let _unheard = print(format!("{line}\n").as_bytes());
}
