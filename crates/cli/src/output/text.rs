//! Numbers and tables as nvme-cli writes them, and untrusted strings made safe for a terminal.

use std::fmt::{LowerHex, Write as _};

/// A number in hexadecimal as C's `%#x` writes it: zero has no `0x`.
pub(crate) fn hex<T: LowerHex + PartialEq + Default + Copy>(value: T) -> String {
    if value == T::default() { "0".to_owned() } else { format!("{value:#x}") }
}

/// Bytes as hexadecimal digits.
pub(crate) fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

/// A size with two decimals and a decimal unit: `1.07 GB`, in nvme-cli's columns: `  1.07  GB`.
#[expect(clippy::cast_precision_loss, reason = "two decimals are shown")]
pub(crate) fn si_column(bytes: u128) -> String {
    let (value, unit) = scaled(bytes as f64, 1000.0, &["", "k", "M", "G", "T", "P", "E"]);
    format!("{value:6.2} {unit:>2}B")
}

/// A size in decimal units: `1.07 GB`.
#[expect(clippy::cast_precision_loss, reason = "two decimals are shown")]
pub fn si(bytes: u128) -> String {
    let (value, unit) = scaled(bytes as f64, 1000.0, &["", "k", "M", "G", "T", "P", "E"]);
    format!("{value:.2} {unit}B")
}

/// A size in decimal and in binary units: `107.37 GB (100.00 GiB)`; small ones in bytes.
#[expect(clippy::cast_precision_loss, reason = "two decimals are shown")]
pub fn si_and_binary(bytes: u128) -> String {
    if bytes < 1000 {
        return si(bytes);
    }
    let (value, unit) = scaled(bytes as f64, 1024.0, &["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]);
    format!("{} ({value:.2} {unit}B)", si(bytes))
}

/// A block size in nvme-cli's columns: `512   B`, `  4 KiB`.
pub(crate) fn binary_column(bytes: u32) -> String {
    let (value, unit) = scaled(f64::from(bytes), 1024.0, &["", "Ki", "Mi", "Gi"]);
    format!("{value:3.0} {unit:>2}B")
}

fn scaled(mut value: f64, step: f64, units: &[&'static str]) -> (f64, &'static str) {
    let mut unit = 0;
    while value >= step && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    (value, units.get(unit).copied().unwrap_or_default())
}

/// A temperature as nvme-cli shows it: `27 °C (300 K, 81 °F)`.
pub(crate) fn temperature(kelvin: u16) -> String {
    let celsius = i32::from(kelvin) - 273;
    let fahrenheit = celsius * 9 / 5 + 32;
    format!("{celsius} °C ({kelvin} K, {fahrenheit} °F)")
}

/// A table in nvme-cli's format: titles, dashes as wide as the column, rows. A longer cell makes
/// its column wider.
pub(crate) fn table(columns: &[(&str, usize)], rows: &[Vec<String>]) -> String {
    let width = |index: usize, least: usize| {
        rows.iter().filter_map(|row| row.get(index)).map(|cell| cell.chars().count()).max().unwrap_or(0).max(least)
    };
    let widths: Vec<usize> = columns.iter().enumerate().map(|(index, (_, least))| width(index, *least)).collect();
    let line = |cells: Vec<String>| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let mut line = padded.collect::<Vec<_>>().join(" ").trim_end().to_owned();
        line.push('\n');
        line
    };
    let mut text = line(columns.iter().map(|(title, _)| (*title).to_owned()).collect());
    text += &line(widths.iter().map(|&width| "-".repeat(width)).collect());
    rows.iter().for_each(|row| text += &line(row.clone()));
    text
}

/// Bytes as a hexadecimal dump, 16 to a line, with the printable characters at the right.
pub(crate) fn dump(bytes: &[u8]) -> String {
    let mut text = format!("      {}\n", (0..16).map(|at| format!(" {at:x} ")).collect::<Vec<_>>().join(""));
    for (row, chunk) in bytes.chunks(16).enumerate() {
        let hex: String = chunk.iter().map(|byte| format!(" {byte:02x}")).collect();
        let shown: String =
            chunk.iter().map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' }).collect();
        let _infallible = writeln!(text, "{:04x}:{hex:<48} \"{shown}\"", row * 16);
    }
    text
}

/// An untrusted text for one line of a terminal.
pub fn safe(text: &str) -> String {
    ebof_nvme::identify::Text::new(text.as_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_nvme_clis_format() {
        assert_eq!((hex(0_u8), hex(0x1d1d_u16)), ("0".to_owned(), "0x1d1d".to_owned()));
        assert_eq!(si_column(1_073_741_824), "  1.07  GB");
        assert_eq!(si_column(500), "500.00   B");
        assert_eq!((binary_column(512), binary_column(4096)), ("512   B".to_owned(), "  4 KiB".to_owned()));
        assert_eq!(si(512_000), "512.00 kB");
        assert_eq!(temperature(300), "27 °C (300 K, 80 °F)");
    }

    #[test]
    fn columns_are_as_wide_as_their_cells() {
        let text = table(&[("A", 3), ("B", 1)], &[vec!["long cell".to_owned(), "x".to_owned()]]);
        assert_eq!(text, "A         B\n--------- -\nlong cell x\n");
    }

    #[test]
    fn a_dump_shows_offsets_and_characters() {
        let text = dump(b"hello\0");
        assert!(text.ends_with("0000: 68 65 6c 6c 6f 00                               \"hello.\"\n"), "{text}");
    }
}
