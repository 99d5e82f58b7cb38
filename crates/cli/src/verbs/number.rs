//! Numbers on the command line: decimal, or hexadecimal with `0x` as in nvme-cli; sizes with units.

use ebof_manage::units::SizeError;
pub(super) use ebof_manage::units::parse_number as parse;

/// Reads a list of numbers, separated by commas.
///
/// # Errors
/// As [`parse`], for any of them.
pub(super) fn parse_list<T: TryFrom<u64>>(text: &str) -> Result<Vec<T>, String> {
    text.split(',').map(|part| parse(part.trim())).collect()
}

/// Reads a number of bytes: a number, or with a unit as in `64Ki`, `1M`.
///
/// # Errors
/// The text is not a number.
pub(super) fn parse_bytes(text: &str) -> Result<u64, String> {
    parse(text).or_else(|_not_plain| ebof_manage::units::parse_size(text).map_err(|error| error.to_string()))
}

/// A list in one argument. clap would take a `Vec` for an argument that can be repeated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct List<T>(pub(super) Vec<T>);

/// Reads a list of numbers, separated by commas, as one argument.
///
/// # Errors
/// As [`parse`], for any of them.
pub(super) fn list<T: TryFrom<u64>>(text: &str) -> Result<List<T>, String> {
    parse_list(text).map(List)
}

/// A number of blocks or bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amount {
    /// Blocks.
    Blocks(u64),
    /// Bytes.
    Bytes(u64),
}

/// A number of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    pub(super) count: u64,
    /// It was given as bytes are, as in 100G, which may be what was meant.
    pub(super) has_unit: bool,
}

/// Reads a number of blocks; a unit is understood as by nvme-cli, which counts blocks all the same.
///
/// # Errors
/// The text is not a number.
pub(super) fn parse_blocks(text: &str) -> Result<Blocks, String> {
    let count = parse_bytes(text)?;
    Ok(Blocks { count, has_unit: parse::<u64>(text).is_err() })
}

/// Reads an amount in nvme-cli's `-si` form: a plain number is blocks, one with a unit bytes: `k`,
/// `M`, `G`, `T`, `P` are powers of 1000, with an `i` behind them of 1024; a `B` may follow.
///
/// # Errors
/// The text is not a number.
pub(super) fn parse_si(text: &str) -> Result<Amount, String> {
    if let Ok(blocks) = parse(text) {
        return Ok(Amount::Blocks(blocks));
    }
    ebof_manage::units::parse_size(text).map(Amount::Bytes).map_err(|error| match error {
        SizeError::TooLarge => format!("{text} is too large here"),
        _ => "want a number of blocks, or bytes with a unit as in 100G, 1.5T or 512Mi".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_with_a_unit_are_told_from_others() {
        assert_eq!(parse_blocks("2048"), Ok(Blocks { count: 2048, has_unit: false }));
        assert_eq!(parse_blocks("0x10"), Ok(Blocks { count: 16, has_unit: false }));
        assert_eq!(parse_blocks("100GB"), Ok(Blocks { count: 100_000_000_000, has_unit: true }));
        assert!(parse_blocks("G").is_err());
    }

    #[test]
    fn amounts_are_blocks_or_bytes() {
        assert_eq!(parse_si("0x10"), Ok(Amount::Blocks(16)));
        assert_eq!(parse_si("100G"), Ok(Amount::Bytes(100_000_000_000)));
        assert_eq!(parse_si("1.5kB"), Ok(Amount::Bytes(1500)));
        assert_eq!(parse_si("2Mi"), Ok(Amount::Bytes(2 << 20)));
        assert_eq!(parse_si("512B"), Ok(Amount::Bytes(512)));
        for text in ["", "G", "1.G", ".5G", "1Z", "1i", "-1G", "99999E", "1.0000000001G"] {
            assert!(parse_si(text).is_err(), "{text}");
        }
    }

    #[test]
    fn decimal_hexadecimal_and_units() {
        assert_eq!(parse::<u8>("0xff"), Ok(255));
        assert_eq!(parse::<u64>("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse_list::<u32>("1, 0x10,3"), Ok(vec![1, 16, 3]));
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("64K"), Ok(64_000));
        assert_eq!(parse_bytes("64Ki"), Ok(65_536));
        for text in ["", "-1", "0x", "0x+1", "1x", "256"] {
            assert!(parse::<u8>(text).is_err(), "{text}");
        }
    }
}
