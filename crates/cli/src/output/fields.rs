//! A list of named numbers and texts, shown as nvme-cli shows a data structure: `name : value` in
//! text, the same names in JSON. Both are derived from one list, so they are consistent.

use std::fmt::Write as _;

use super::json::{Json, Object};
use super::text::hex;

/// The fields of a data structure, in order.
#[derive(Debug, Default)]
pub(crate) struct Fields(Vec<Field>);

#[derive(Debug)]
struct Field {
    name: &'static str,
    shown: String,
    json: Json,
    /// What the field's bits mean: lines below it with `-v`.
    details: Vec<String>,
}

/// A bit or a group of bits, and what its values mean.
pub(crate) struct Bits {
    /// The highest and the lowest bit.
    pub(crate) range: (u8, u8),
    /// The text if it is not 0.
    pub(crate) set: &'static str,
    /// The text if it is 0; empty to omit the line.
    pub(crate) clear: &'static str,
}

impl Bits {
    /// One bit that says whether something is supported.
    pub(crate) const fn one(bit: u8, set: &'static str, clear: &'static str) -> Self {
        Self { range: (bit, bit), set, clear }
    }

    fn line(&self, value: u64) -> Option<String> {
        let (high, low) = self.range;
        let field = value >> low & (u64::MAX >> (63 - u32::from(high - low)));
        let text = if field == 0 { self.clear } else { self.set };
        (!text.is_empty()).then(|| format!("  [{high}:{low}] : {}\t{text}", format_args!("{field:#x}")))
    }
}

impl Fields {
    /// A number that is shown in hexadecimal, as `%#x` does.
    pub(crate) fn hex(&mut self, name: &'static str, value: impl Into<u64>) -> &mut Self {
        let value = value.into();
        self.push(name, hex(value), value)
    }

    /// A number that is shown in decimal.
    pub(crate) fn dec(&mut self, name: &'static str, value: impl Into<u128>) -> &mut Self {
        let value = value.into();
        self.push(name, value.to_string(), value)
    }

    /// A text.
    pub(crate) fn text(&mut self, name: &'static str, value: impl Into<String>) -> &mut Self {
        let value = value.into();
        self.push(name, value.clone(), value)
    }

    /// A field whose text and JSON differ.
    pub(crate) fn push(&mut self, name: &'static str, shown: String, json: impl Into<Json>) -> &mut Self {
        self.0.push(Field { name, shown, json: json.into(), details: Vec::new() });
        self
    }

    /// Explains the last field's bits, highest first.
    pub(crate) fn bits(&mut self, value: impl Into<u64>, bits: &[Bits]) -> &mut Self {
        let value = value.into();
        if let Some(field) = self.0.last_mut() {
            field.details.extend(bits.iter().filter_map(|bits| bits.line(value)));
        }
        self
    }

    /// Explains the last field by the given text.
    pub(crate) fn detail(&mut self, line: impl Into<String>) -> &mut Self {
        if let Some(field) = self.0.last_mut() {
            field.details.push(line.into());
        }
        self
    }

    /// The lines, names padded to `width`.
    pub(crate) fn to_text(&self, width: usize, verbose: bool) -> String {
        let mut text = String::new();
        for field in &self.0 {
            let line = format!("{:<width$}: {}", field.name, field.shown);
            let _infallible = writeln!(text, "{}", line.trim_end());
            if verbose && !field.details.is_empty() {
                field.details.iter().for_each(|line| text.push_str(&format!("{line}\n")));
                text.push('\n');
            }
        }
        text
    }

    /// The names and values.
    pub(crate) fn to_json(&self) -> Object {
        self.0.iter().fold(Object::new(), |object, field| object.with(field.name, field.json.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_json_have_the_same_fields() {
        let mut fields = Fields::default();
        fields
            .hex("cmic", 0xb_u8)
            .bits(0xb_u8, &[Bits::one(3, "ANA supported", "ANA not supported"), Bits::one(2, "SR-IOV", "PCI")]);
        fields.dec("mdts", 8_u8);
        assert_eq!(fields.to_text(6, false), "cmic  : 0xb\nmdts  : 8\n");
        let verbose = "cmic  : 0xb\n  [3:3] : 0x1\tANA supported\n  [2:2] : 0x0\tPCI\n\nmdts  : 8\n";
        assert_eq!(fields.to_text(6, true), verbose);
        assert_eq!(serde_json::to_string(&fields.to_json()).unwrap(), r#"{"cmic":11,"mdts":8}"#);
    }
}
