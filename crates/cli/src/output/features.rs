//! Views of a feature's value (`get-feature`, `set-feature`). The fields of values are in
//! `feature_tables`.

use std::fmt::Write as _;

use ebof_nvme::feature::{Capabilities, Fid, Select};

use super::View;
use super::done::Done;
use super::feature_tables::explained;
use super::json::Object;
use super::text::{digits, dump};

/// The result of Get Features.
pub(crate) struct FeatureView {
    /// The feature.
    pub(crate) fid: Fid,
    /// Current, default, saved, or supported capabilities.
    pub(crate) select: Select,
    /// Dword 0 of the completion.
    pub(crate) value: u32,
    /// The data structure, empty if there is none.
    pub(crate) data: Vec<u8>,
}

impl View for FeatureView {
    fn text(&self, verbose: bool) -> String {
        let value = dword(self.value);
        let fid = self.fid.0;
        let select = select_name(self.select);
        let mut text = format!("get-feature:{fid:#04x} ({}), {select} value:{value}\n", name(self.fid));
        if self.select == Select::Supported {
            let capabilities = Capabilities::decode(self.value);
            for (set, line) in [
                (capabilities.saveable, "Feature is saveable"),
                (capabilities.namespace_specific, "Feature is per-namespace"),
                (capabilities.changeable, "Feature is changeable"),
            ] {
                text += &if set { format!("  {line}\n") } else { String::new() };
            }
        } else if verbose {
            text += &explained(self.fid, self.value, &self.data).text;
        } else if !self.data.is_empty() {
            text += &dump(&self.data);
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let fid = format!("{:#04x}", self.fid.0);
        let named = Object::new().with("name", name(self.fid)).with(select_name(self.select), dword(self.value));
        let mut object = Object::document("get-feature", 1)
            .with("feature", self.fid.0)
            .with("name", name(self.fid))
            .with("select", select_name(self.select).to_lowercase())
            .with("value", self.value)
            .with(format!("feature: {fid}"), vec![named]);
        if self.select == Select::Supported {
            let capabilities = Capabilities::decode(self.value);
            let words = [
                (capabilities.saveable, "saveable"),
                (capabilities.namespace_specific, "per-namespace"),
                (capabilities.changeable, "changeable"),
            ];
            let words: Vec<&str> = words.into_iter().filter_map(|(set, name)| set.then_some(name)).collect();
            return object
                .with(format!("Feature: {fid}: select"), words)
                .with("saveable", capabilities.saveable)
                .with("namespace_specific", capabilities.namespace_specific)
                .with("changeable", capabilities.changeable);
        }
        if !self.data.is_empty() {
            object.push("data", digits(&self.data));
        }
        let explained = explained(self.fid, self.value, &self.data);
        if !explained.json.is_empty() {
            object.push(format!("Feature: {fid}"), vec![explained.json]);
        }
        if explained.fields.is_empty() { object } else { object.with("fields", explained.fields) }
    }

    fn binary(&self) -> Option<&[u8]> {
        (!self.data.is_empty()).then_some(&self.data)
    }
}

/// The result of Set Features; `result` is dword 0 of the completion.
pub(crate) fn feature_set_view(fid: Fid, value: u32, saved: bool, result: u32) -> Done {
    let kept = if saved { "" } else { " (not saved: lost at a reset)" };
    let mut text = format!("set-feature:{:#04x} ({}), value:{value:#010x}{kept}\n", fid.0, name(fid));
    if result != 0 {
        let _infallible = writeln!(text, "result:{result:#010x}");
    }
    Done::with_text("set-feature", text)
        .with("feature", fid.0)
        .with("name", name(fid))
        .with("value", value)
        .with("saved", saved)
        .with("result", result)
}

fn name(fid: Fid) -> &'static str {
    fid.name().unwrap_or("Unknown")
}

fn select_name(select: Select) -> &'static str {
    match select {
        Select::Current => "Current",
        Select::Default => "Default",
        Select::Saved => "Saved",
        Select::Supported => "Supported capabilities",
        Select::Reserved(_) => "Reserved",
    }
}

/// As C's `%#010x`, but 0.
fn dword(value: u32) -> String {
    if value == 0 { "00000000".to_owned() } else { format!("{value:#010x}") }
}
