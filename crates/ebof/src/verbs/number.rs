//! Numbers on the command line: decimal, or hexadecimal with `0x` as in nvme-cli; sizes with units.

/// Reads a number that fits `T`.
///
/// # Errors
/// It is none, or too large.
pub(super) fn parse<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let value = match digits {
        // `from_str_radix` takes a sign, which is no digit.
        Some(digits) if digits.starts_with(['+', '-']) => None,
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let value = value.ok_or_else(|| "want a number, decimal or with 0x hexadecimal".to_owned())?;
    T::try_from(value).map_err(|_too_large| format!("{value} is too large here"))
}

/// Reads a list of numbers, separated by commas.
///
/// # Errors
/// As [`parse`], for any of them.
pub(super) fn parse_list<T: TryFrom<u64>>(text: &str) -> Result<Vec<T>, String> {
    text.split(',').map(|part| parse(part.trim())).collect()
}

/// Reads a number of bytes: a number, or with a unit as in `64K`, `1M`.
///
/// # Errors
/// It is none.
pub(super) fn parse_bytes(text: &str) -> Result<u64, String> {
    parse(text).or_else(|_not_plain| ebof_manage::units::parse_size(text).map_err(|error| error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_hexadecimal_and_units() {
        assert_eq!(parse::<u8>("0xff"), Ok(255));
        assert_eq!(parse::<u64>("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse_list::<u32>("1, 0x10,3"), Ok(vec![1, 16, 3]));
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("64K"), Ok(65_536));
        for text in ["", "-1", "0x", "0x+1", "1x", "256"] {
            assert!(parse::<u8>(text).is_err(), "{text}");
        }
    }
}
