//! Data structures as tables: a row for each field, from which nvme-cli's text and JSON follow.
//! Where a field is comes from its layout in `ebof_nvme`: a row of one that is not there does not
//! compile.

mod view;

use ebof_nvme::identify::Text;
use ebof_nvme::identify::field::Bits;
use zerocopy::{Immutable, IntoBytes};

use super::json::{Json, Object};
use super::text::{digits, hex};

pub(crate) use view::{StructureView, numbered};

/// A field of the data structure `T`, or some of its bits.
pub(crate) struct Row<T: 'static> {
    /// Its name in text; empty if it is only in JSON.
    name: &'static str,
    /// Its key in JSON; empty if it is only in text.
    key: &'static str,
    /// Its first byte, and how many it has.
    place: (usize, usize),
    /// Its highest and its lowest bit in these bytes.
    range: (u8, u8),
    /// Where its number comes from, if not from these bits.
    computed: Option<fn(&T) -> u128>,
    /// What the number in these bits stands for.
    scale: fn(u128) -> u128,
    form: Form<T>,
    json: InJson<T>,
    meaning: Meaning<T>,
    /// Whether it is there; `None` if it always is.
    condition: Option<fn(&T) -> bool>,
    /// Whether it is missing if it is 0.
    is_optional: bool,
    /// Whether it is in text only with `-v`.
    is_detail: bool,
    /// The version of the data structure that it came with.
    since: u16,
}

/// How a value is shown.
enum Form<T: 'static> {
    /// In decimal, with a unit.
    Decimal(&'static str),
    /// In hexadecimal, as `%#x` does.
    Hexadecimal,
    /// As this function writes the number.
    Number(fn(u128) -> String),
    /// ASCII without its padding.
    Ascii,
    /// Bytes as hexadecimal digits.
    Digits,
    /// The words for values from 0 on; others are `Reserved`.
    Words(&'static [&'static str]),
    /// As this function writes it.
    As(fn(&T) -> String),
}

/// How a value is written in JSON.
enum InJson<T: 'static> {
    Number,
    /// As it is shown.
    Text,
    /// With `-v` or without.
    As(fn(&T, bool) -> Json),
}

/// What `-v` adds to a value in text.
enum Meaning<T: 'static> {
    None,
    /// Lines for its bits, highest first.
    Bits(&'static [Bits]),
    /// A line below it.
    Below(fn(&T) -> String),
    /// Words beside it.
    Beside(fn(&T) -> Option<String>),
}

/// The bits from the highest to the lowest of `range`.
const fn part(value: u128, range: (u8, u8)) -> u128 {
    let (high, low) = range;
    value >> low & (u128::MAX >> (127 - (high - low)))
}

/// A line for each bit and group of bits, highest first.
fn bit_lines(all: &[Bits], value: u128) -> String {
    let mut all = all.to_vec();
    all.sort_by_key(|bits| std::cmp::Reverse(bits.range));
    let line = |Bits { range, name, set, clear }| {
        let field = part(value, range);
        let text = if field == 0 { clear } else { set };
        format!("  [{}:{}] : {field:#x}\t{name}{text}\n", range.0, range.1)
    };
    all.into_iter().map(line).collect()
}

/// The bytes of a field that `_field` selects.
pub(crate) const fn width<T, F>(_field: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// The row of a field of a data structure, with another name or with its own.
macro_rules! row {
    ($structure:ty, $field:ident) => {
        $crate::output::structure::row!($structure, $field, stringify!($field))
    };
    ($structure:ty, $($field:ident).+, $name:expr) => {
        $crate::output::structure::Row::<$structure>::at(
            $name,
            core::mem::offset_of!($structure, $($field).+),
            $crate::output::structure::width(|structure: &$structure| &structure.$($field).+),
        )
    };
}
pub(crate) use row;

/// A table: how its lines look, the data structure, and its fields, each as the structure's layout
/// calls it, with the name that it has here if that is another one, and how it is shown. Each field
/// is an expression that starts with [`row!`]; see [`Row`].
macro_rules! table {
    ($line:expr, $structure:ty: $($field:ident $(as $name:literal)? $(.$how:ident($($what:expr),*))*,)*) => {
        $crate::output::structure::FieldTable::new(
            $line,
            &[$($crate::output::structure::row!($structure, $field $(, $name)?)$(.$how($($what),*))*),*],
        )
    };
}
pub(crate) use table;

impl<T> Row<T> {
    /// A number of `bytes` bytes from `offset` on, shown in decimal; `row!` knows where a field is.
    pub(crate) const fn at(name: &'static str, offset: usize, bytes: usize) -> Self {
        Self {
            name,
            key: name,
            place: (offset, bytes),
            range: (127, 0),
            computed: None,
            scale: |number| number,
            form: Form::Decimal(""),
            json: InJson::Number,
            meaning: Meaning::None,
            condition: None,
            is_optional: false,
            is_detail: false,
            since: 0,
        }
    }

    /// Sets its key in JSON.
    pub(crate) const fn key(self, key: &'static str) -> Self {
        Self { key, ..self }
    }

    /// Only in text.
    pub(crate) const fn only_text(self) -> Self {
        Self { key: "", ..self }
    }

    /// Only in JSON.
    pub(crate) const fn only_json(self) -> Self {
        Self { name: "", ..self }
    }

    /// Only in text with `-v`.
    pub(crate) const fn detail(self) -> Self {
        Self { key: "", is_detail: true, ..self }
    }

    /// Some of its bits.
    pub(crate) const fn bits(self, high: u8, low: u8) -> Self {
        Self { range: (high, low), ..self }
    }

    /// A number that the bits stand for: 0's based, or in a unit.
    pub(crate) const fn scaled(self, scale: fn(u128) -> u128) -> Self {
        Self { scale, ..self }
    }

    /// A number that is computed from the data structure.
    pub(crate) const fn computed(self, number: fn(&T) -> u128) -> Self {
        Self { computed: Some(number), ..self }
    }

    /// One of the elements of `bytes` bytes that it has.
    pub(crate) const fn element(self, index: usize, bytes: usize) -> Self {
        let (offset, all) = self.place;
        assert!((index + 1) * bytes <= all, "the field has as many elements");
        Self { place: (offset + index * bytes, bytes), ..self }
    }

    /// Shown in hexadecimal, as `%#x` does.
    pub(crate) const fn hex(self) -> Self {
        Self { form: Form::Hexadecimal, ..self }
    }

    /// Shown in decimal with a unit.
    pub(crate) const fn unit(self, unit: &'static str) -> Self {
        Self { form: Form::Decimal(unit), ..self }
    }

    /// Shown as `text` writes the number.
    pub(crate) const fn written(self, text: fn(u128) -> String) -> Self {
        Self { form: Form::Number(text), ..self }
    }

    /// ASCII, shown without its padding.
    pub(crate) const fn ascii(self) -> Self {
        Self { form: Form::Ascii, json: InJson::Text, ..self }
    }

    /// Bytes, shown as hexadecimal digits.
    pub(crate) const fn digits(self) -> Self {
        Self { form: Form::Digits, json: InJson::Text, ..self }
    }

    /// Shown in words for values from 0 on.
    pub(crate) const fn words(self, words: &'static [&'static str]) -> Self {
        Self { form: Form::Words(words), json: InJson::Text, ..self }
    }

    /// Shown as a text of its own.
    pub(crate) const fn shown(self, text: fn(&T) -> String) -> Self {
        Self { form: Form::As(text), json: InJson::Text, ..self }
    }

    /// A number in JSON, however it is shown.
    pub(crate) const fn number(self) -> Self {
        Self { json: InJson::Number, ..self }
    }

    /// In JSON as it is shown.
    pub(crate) const fn text_in_json(self) -> Self {
        Self { json: InJson::Text, ..self }
    }

    /// A value of its own in JSON, with `-v` or without.
    pub(crate) const fn json(self, json: fn(&T, bool) -> Json) -> Self {
        Self { json: InJson::As(json), ..self }
    }

    /// With `-v`, what its bits mean, highest first.
    pub(crate) const fn explained(self, bits: &'static [Bits]) -> Self {
        Self { meaning: Meaning::Bits(bits), ..self }
    }

    /// With `-v`, a line below it.
    pub(crate) const fn below(self, line: fn(&T) -> String) -> Self {
        Self { meaning: Meaning::Below(line), ..self }
    }

    /// With `-v`, words beside it.
    pub(crate) const fn beside(self, words: fn(&T) -> Option<String>) -> Self {
        Self { meaning: Meaning::Beside(words), ..self }
    }

    /// Not always there.
    pub(crate) const fn only_if(self, condition: fn(&T) -> bool) -> Self {
        Self { condition: Some(condition), ..self }
    }

    /// Missing if it is 0.
    pub(crate) const fn unless_zero(self) -> Self {
        Self { is_optional: true, ..self }
    }

    /// There since a version of the data structure.
    pub(crate) const fn since(self, version: u16) -> Self {
        Self { since: version, ..self }
    }
}

impl<T: IntoBytes + Immutable> Row<T> {
    fn bytes<'a>(&self, data: &'a T) -> &'a [u8] {
        let (offset, bytes) = self.place;
        &data.as_bytes()[offset..offset + bytes]
    }

    /// The number in its bits, as far as it has 128.
    fn value(&self, data: &T) -> u128 {
        if let Some(number) = self.computed {
            return number(data);
        }
        let bytes = self.bytes(data);
        let bytes = &bytes[..bytes.len().min(16)];
        let number = bytes.iter().rev().fold(0, |number, byte| number << 8 | u128::from(*byte));
        (self.scale)(part(number, self.range))
    }

    fn text(&self, data: &T) -> String {
        match &self.form {
            Form::Decimal(unit) => format!("{}{unit}", self.value(data)),
            Form::Hexadecimal => hex(self.value(data)),
            Form::Number(text) => text(self.value(data)),
            Form::Ascii => Text::new(self.bytes(data)).to_string(),
            Form::Digits => digits(self.bytes(data)),
            Form::Words(words) => {
                let index = usize::try_from(self.value(data)).unwrap_or(usize::MAX);
                words.get(index).copied().unwrap_or("Reserved").to_owned()
            }
            Form::As(text) => text(data),
        }
    }

    fn in_json(&self, data: &T, verbose: bool) -> Json {
        match &self.json {
            InJson::Number => Json::Number(self.value(data)),
            InJson::Text => Json::Text(self.text(data)),
            InJson::As(json) => json(data, verbose),
        }
    }

    /// Its lines in text, with names as `line` has them.
    fn lines(&self, data: &T, line: LineFormat, verbose: bool) -> String {
        let mut value = self.text(data);
        let mut below = String::new();
        match &self.meaning {
            Meaning::None => {}
            _ if !verbose => {}
            Meaning::Bits(bits) => below = bit_lines(bits, self.value(data)),
            Meaning::Below(line) => below = line(data) + "\n",
            Meaning::Beside(words) => value += &words(data).map(|words| format!(" {words}")).unwrap_or_default(),
        }
        let end = if below.is_empty() { "" } else { "\n" };
        format!("{}{below}{end}", line.named(self.name, &value))
    }
}

/// How lines look: what is before the names, how wide these are, what is between them and the
/// values.
#[derive(Clone, Copy)]
pub(crate) struct LineFormat {
    pub(crate) before: &'static str,
    pub(crate) width: usize,
    pub(crate) between: &'static str,
}

impl LineFormat {
    /// `name : value`
    pub(crate) const fn wide(width: usize) -> Self {
        Self { before: "", width, between: ": " }
    }

    /// A line of text.
    pub(crate) fn named(self, name: &str, value: &str) -> String {
        let Self { before, width, between } = self;
        format!("{}\n", format!("{before}{name:<width$}{between}{value}").trim_end())
    }
}

/// The fields of a data structure in nvme-cli's order.
pub(crate) struct FieldTable<T: 'static> {
    pub(crate) line: LineFormat,
    pub(crate) rows: &'static [Row<T>],
    /// The version of the data structure, where fields came with one.
    pub(crate) version: Option<fn(&T) -> u16>,
}

impl<T: IntoBytes + Immutable> FieldTable<T> {
    pub(crate) const fn new(line: LineFormat, rows: &'static [Row<T>]) -> Self {
        Self { line, rows, version: None }
    }

    /// The rows of fields that `data` has.
    fn rows(&self, data: &T) -> impl Iterator<Item = &'static Row<T>> {
        let version = self.version.map_or(u16::MAX, |version| version(data));
        let is_there = move |row: &&Row<T>| {
            row.since <= version
                && row.condition.is_none_or(|is_there| is_there(data))
                && !(row.is_optional && row.value(data) == 0)
        };
        self.rows.iter().filter(is_there)
    }

    /// The lines of text.
    pub(crate) fn text(&self, data: &T, verbose: bool) -> String {
        let rows = self.rows(data).filter(|row| !row.name.is_empty() && (verbose || !row.is_detail));
        rows.map(|row| row.lines(data, self.line, verbose)).collect()
    }

    /// The keys and values of JSON.
    pub(crate) fn json(&self, data: &T, verbose: bool) -> Object {
        let rows = self.rows(data).filter(|row| !row.key.is_empty());
        rows.fold(Object::new(), |object, row| object.with(row.key, row.in_json(data, verbose)))
    }

    /// The keys of numbers, each with its value.
    pub(crate) fn numbers(&self, data: &T) -> impl Iterator<Item = (&'static str, u128)> {
        self.rows(data).filter(|row| !row.key.is_empty()).map(|row| (row.key, row.value(data)))
    }

    /// The names in text, each with its value.
    pub(crate) fn named_values(&self, data: &T) -> Vec<(&'static str, String)> {
        let rows = self.rows(data).filter(|row| !row.name.is_empty());
        rows.map(|row| (row.name, row.text(data))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::little_endian::U16;

    #[derive(IntoBytes, Immutable)]
    #[repr(C)]
    struct Example {
        cmic: u8,
        mdts: u8,
        sensors: [U16; 2],
    }

    const ANA: Bits = Bits { range: (3, 3), name: "ANA ", set: "supported", clear: "not supported" };

    const TABLE: FieldTable<Example> = FieldTable {
        line: LineFormat::wide(6),
        rows: &[
            row!(Example, cmic).hex().explained(&[ANA]),
            row!(Example, cmic, "vf").bits(2, 2).only_json(),
            row!(Example, mdts).unit("%"),
            row!(Example, sensors, "second").element(1, 2).since(2),
        ],
        version: Some(|example| example.mdts.into()),
    };

    #[test]
    fn text_and_json_follow_from_one_table() {
        let data = Example { cmic: 0xb, mdts: 2, sensors: [1.into(), 300.into()] };
        assert_eq!(TABLE.text(&data, false), "cmic  : 0xb\nmdts  : 2%\nsecond: 300\n");
        let verbose = "cmic  : 0xb\n  [3:3] : 0x1\tANA supported\n\nmdts  : 2%\nsecond: 300\n";
        assert_eq!(TABLE.text(&data, true), verbose);
        let json = serde_json::to_string(&TABLE.json(&data, false)).unwrap();
        assert_eq!(json, r#"{"cmic":11,"vf":0,"mdts":2,"second":300}"#);
        assert_eq!(TABLE.named_values(&Example { mdts: 1, ..data }).len(), 2, "a field came with version 2");
    }
}
