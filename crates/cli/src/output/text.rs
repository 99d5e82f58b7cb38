//! Numbers and tables as nvme-cli writes them, and untrusted strings made safe for a terminal.

use std::fmt::{LowerHex, Write as _};

/// A number in hexadecimal as C's `%#x` writes it: zero has no `0x`.
pub(crate) fn hex<T: LowerHex + PartialEq + Default + Copy>(value: T) -> String {
    if value == T::default() { "0".to_owned() } else { format!("{value:#x}") }
}

/// The key of documents in which nvme-cli has the device's name as one: without its directory.
pub(crate) fn device_key(device: &str) -> &str {
    if device.starts_with('/') { device.rsplit('/').next().unwrap_or(device) } else { device }
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
/// its column wider; on a terminal only as far as a line of it goes.
pub(crate) fn table(columns: &[(&str, usize)], rows: &[Vec<String>]) -> String {
    table_within(columns, rows, terminal_columns())
}

/// The columns of the terminal on standard output; `None` for a file or a program, which get all.
fn terminal_columns() -> Option<usize> {
    // Tests have the terminal of who runs them.
    if cfg!(test) {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|&columns| columns > 0)
}

/// The least that a column is cut to.
const COLUMN_MIN: usize = 8;

/// As [`table`], in lines of at most `limit` characters as far as columns of 8 allow that.
fn table_within(columns: &[(&str, usize)], rows: &[Vec<String>], limit: Option<usize>) -> String {
    let content =
        |index: usize| rows.iter().filter_map(|row| row.get(index)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let width = |(index, (_, least)): (usize, &(&str, usize))| content(index).max(*least);
    let mut widths: Vec<usize> = columns.iter().enumerate().map(width).collect();
    let total = |widths: &[usize]| widths.iter().sum::<usize>() + widths.len().saturating_sub(1);
    if let Some(limit) = limit.filter(|&limit| total(&widths) > limit) {
        // First the room that nothing is in, then the widest column, again and again.
        let needed = |(index, (title, _)): (usize, &(&str, usize))| content(index).max(title.chars().count());
        widths = columns.iter().enumerate().map(needed).collect();
        while total(&widths) > limit {
            let widest = widths.iter_mut().max().filter(|width| **width > COLUMN_MIN);
            let Some(widest) = widest else { break };
            *widest -= 1;
        }
    }
    let line = |cells: Vec<String>| {
        let padded = cells.iter().zip(&widths).map(|(cell, &width)| format!("{:<width$}", shortened(cell, width)));
        let mut line = padded.collect::<Vec<_>>().join(" ").trim_end().to_owned();
        line.push('\n');
        line
    };
    let mut text = line(columns.iter().map(|(title, _)| (*title).to_owned()).collect());
    text += &line(widths.iter().map(|&width| "-".repeat(width)).collect());
    rows.iter().for_each(|row| text += &line(row.clone()));
    text
}

/// A text with its middle left out where it is longer: its ends tell most of NQNs and paths apart.
fn shortened(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let head = kept / 2;
    let (first, last) = (text.chars().take(head), text.chars().skip(count - (kept - head)));
    first.chain(['…']).chain(last).collect()
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
    fn a_table_fits_its_terminal() {
        let nqn = "nqn.2014-08.org.nvmexpress:uuid:0ac29a59-b98b-4063-ad8b-ccafafac0b6c";
        let rows = [vec!["nvme0".to_owned(), nqn.to_owned(), "live".to_owned()]];
        let columns = [("Device", 21), ("Subsystem-NQN", 96), ("State", 10)];
        assert!(table_within(&columns, &rows, None).lines().any(|line| line.len() > 120));
        let text = table_within(&columns, &rows, Some(60));
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        assert!(text.contains("nqn.2014-08") && text.contains("…") && text.contains("ccafafac0b6c live"), "{text}");
        // Enough room for what there is: nothing is cut.
        assert!(table_within(&columns, &rows, Some(90)).contains(nqn));
        // Too narrow for anything: short, and no panic.
        assert!(table_within(&columns, &rows, Some(3)).lines().all(|line| line.chars().count() <= 24));
        assert_eq!(
            (shortened("abcdef", 3), shortened("ä", 1), shortened("abc", 0)),
            ("a…f".into(), "ä".into(), "…".into())
        );
    }

    #[test]
    fn a_dump_shows_offsets_and_characters() {
        let text = dump(b"hello\0");
        assert!(text.ends_with("0000: 68 65 6c 6c 6f 00                               \"hello.\"\n"), "{text}");
    }
}
