//! Numbers (`16`, `0x10`), sizes (`10G`, `10Gi`) and durations (`30s`, `500ms`) as people write
//! them.
//!
//! Sizes mean what they mean in nvme-cli: `K`, `M`, `G` are powers of 1000, `Ki`, `Mi`, `Gi` powers
//! of 1024. fio's words are fio's: see [`parse_fio_size`].

use std::time::Duration;

use thiserror::Error;

/// The error of an invalid size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SizeError {
    /// Nothing, or no digit where one must be.
    #[error("has no number")]
    NoNumber,
    /// A sign, a space or the like; a fraction where there is none to be.
    #[error("is not a number with an optional unit")]
    NotNumber,
    /// Letters that are no unit.
    #[error("has an unknown unit")]
    Unit,
    /// `GB` in a word of fio's.
    #[error("has a decimal unit, and the words of fio are binary")]
    Decimal,
    /// More than fits.
    #[error("is too large")]
    TooLarge,
}

/// The syntax of [`parse_size`], for messages.
pub const SIZE_FORM: &str = "bytes, or a number with K, M, G, T or P (powers of 1000) or Ki, Mi, Gi, Ti or Pi (powers of 1024), such as \"10G\"";

/// The error of an invalid duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DurationError {
    /// Nothing, or no digit where one must be.
    #[error("has no number")]
    NoNumber,
    /// A number without a unit.
    #[error("has no unit")]
    NoUnit,
    /// A sign, a point, a space or the like.
    #[error("is not a whole number with a unit")]
    NotWhole,
    /// Letters that are no unit.
    #[error("has an unknown unit")]
    Unit,
    /// More than fits.
    #[error("is too large")]
    TooLarge,
}

/// The syntax of [`parse_duration`], for messages.
pub const DURATION_FORM: &str = "a whole number with ms, s, m or h, such as \"30s\" or \"500ms\"";

/// The letters of sizes, and the power of 1000 or 1024.
const SIZE_UNITS: [(char, u32); 5] = [('K', 1), ('M', 2), ('G', 3), ('T', 4), ('P', 5)];
/// Digits behind the point of a size.
const FRACTION_DIGITS_MAX: usize = 9;
const DURATION_UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Splits the digits from what follows; `None` when there is anything but ASCII letters behind
/// them.
fn split(text: &str) -> Option<(&str, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    suffix.bytes().all(|byte| byte.is_ascii_alphabetic()).then_some((number, suffix))
}

/// Reads a size in bytes: [`SIZE_FORM`]. `10G`, `10g` and `10GB` are the same, so are `10Gi` and
/// `10GiB`; `1.5T` is legal.
///
/// # Errors
/// The error.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    if number.is_empty() {
        return Err(SizeError::NoNumber);
    }
    let factor = factor(unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit());
    let has_point = number.contains('.');
    if !digits(whole) || !digits(fraction) || whole.is_empty() || (has_point && (fraction.is_empty() || factor == 1)) {
        return Err(SizeError::NotNumber);
    }
    if fraction.len() > FRACTION_DIGITS_MAX {
        return Err(SizeError::NotNumber);
    }
    let number = |digits: &str| digits.parse::<u128>().map_err(|_too_many| SizeError::TooLarge);
    let scaled = number(whole)?.checked_mul(factor).ok_or(SizeError::TooLarge)?;
    let scale = 10_u128.pow(u32::try_from(fraction.len()).expect("at most nine digits"));
    let part = if fraction.is_empty() { 0 } else { number(fraction)? * factor / scale };
    u64::try_from(scaled.saturating_add(part)).map_err(|_large| SizeError::TooLarge)
}

/// How many bytes a unit is: `G`, `GB`, `Gi`, `GiB`, in letters of either case; 1 for none and for
/// `B`.
fn factor(unit: &str) -> Result<u128, SizeError> {
    if !unit.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        return Err(SizeError::NotNumber);
    }
    let unit = unit.to_ascii_uppercase();
    let unit = unit.strip_suffix('B').unwrap_or(&unit);
    let (letter, base) = match unit.strip_suffix('I') {
        Some(letter) => (letter, 1024_u128),
        None => (unit, 1000),
    };
    let mut letters = letter.chars();
    match (letters.next(), letters.next()) {
        (None, _) if base == 1000 => Ok(1),
        (Some(letter), None) => {
            let (_, power) = SIZE_UNITS.iter().find(|(known, _)| *known == letter).ok_or(SizeError::Unit)?;
            Ok(base.pow(*power))
        }
        _ => Err(SizeError::Unit),
    }
}

/// Reads a size in a word of fio's (`bs`, `size`, `offset`, `rate`): `4K` is 4096 there, as in fio,
/// and so is `4Ki`. `4KB` is refused, for it is 4096 to fio and 4000 to everybody else.
///
/// # Errors
/// The error.
pub fn parse_fio_size(text: &str) -> Result<u64, SizeError> {
    let upper = text.to_ascii_uppercase();
    let letters = SIZE_UNITS.map(|(letter, _)| letter);
    let binary = match upper.strip_suffix("IB").or_else(|| upper.strip_suffix('I')) {
        Some(number) => format!("{number}I"),
        None if upper.strip_suffix('B').is_some_and(|number| number.ends_with(letters)) => {
            return Err(SizeError::Decimal);
        }
        None if upper.ends_with(letters) => format!("{upper}I"),
        None => upper,
    };
    parse_size(&binary)
}

/// Writes a size so that [`parse_size`] reads the same number, in the shortest way.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    let with = |base: u64, suffix: &str| {
        let largest = SIZE_UNITS.iter().rev().find_map(|(letter, power)| {
            let factor = base.pow(*power);
            (bytes != 0 && bytes.is_multiple_of(factor)).then(|| format!("{}{letter}{suffix}", bytes / factor))
        });
        largest.unwrap_or_else(|| bytes.to_string())
    };
    let decimal = with(1000, "");
    let binary = with(1024, "i");
    if decimal.len() < binary.len() { decimal } else { binary }
}

/// Reads a number that fits `T`: decimal, or hexadecimal with `0x` as in nvme-cli.
///
/// # Errors
/// It is none, or too large.
pub fn parse_number<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
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

/// Reads a duration: [`DURATION_FORM`].
///
/// # Errors
/// The error.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let (number, unit) = split(text).ok_or(DurationError::NotWhole)?;
    if number.is_empty() {
        return Err(DurationError::NoNumber);
    }
    if unit.is_empty() {
        return Err(DurationError::NoUnit);
    }
    let known = DURATION_UNITS.iter().find(|(name, _)| *name == unit);
    let &(_, unit_ms) = known.ok_or(DurationError::Unit)?;
    let number: u64 = number.parse().map_err(|_error| DurationError::TooLarge)?;
    number.checked_mul(unit_ms).map(Duration::from_millis).ok_or(DurationError::TooLarge)
}

/// Writes a duration so that [`parse_duration`] reads the same, in whole milliseconds.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let fitting = DURATION_UNITS.iter().find(|(_, unit_ms)| ms != 0 && ms.is_multiple_of(*unit_ms));
    let (name, unit_ms) = fitting.copied().unwrap_or(("ms", 1));
    format!("{}{name}", ms / unit_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // @test output.sizes
    #[test]
    fn sizes_have_nvme_clis_units() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512B", 512),
            ("8K", 8000),
            ("8Ki", 8192),
            ("1g", 1_000_000_000),
            ("1gi", 1 << 30),
            ("10GB", 10_000_000_000),
            ("2TiB", 2 << 40),
            ("1.5T", 1_500_000_000_000),
            ("1.5Ki", 1536),
            ("18000P", 18_000_000_000_000_000_000),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    // @test output.sizes
    #[test]
    fn fios_suffixes_are_binary() {
        for (text, bytes) in [("4k", 4096), ("4K", 4096), ("4Ki", 4096), ("1MiB", 1 << 20), ("512", 512), ("512B", 512)]
        {
            assert_eq!(parse_fio_size(text), Ok(bytes), "{text}");
        }
        for (text, error) in [("4KB", SizeError::Decimal), ("4X", SizeError::Unit), ("", SizeError::NoNumber)] {
            assert_eq!(parse_fio_size(text), Err(error), "{text}");
        }
    }

    #[test]
    fn a_size_is_printed_in_the_shortest_unit() {
        for (bytes, text) in [
            (0, "0"),
            (4096, "4Ki"),
            (10_000_000_000, "10G"),
            (10 << 30, "10Gi"),
            (1000 << 10, "1024K"),
            (1_024_000_000, "1024M"),
            (4095, "4095"),
        ] {
            assert_eq!(format_size(bytes), text);
        }
    }

    #[test]
    fn invalid_sizes_are_refused_with_a_message() {
        for (text, error) in [
            ("", SizeError::NoNumber),
            ("G", SizeError::NoNumber),
            ("-1", SizeError::NotNumber),
            ("1.5", SizeError::NotNumber),
            (".5G", SizeError::NotNumber),
            ("1.G", SizeError::NotNumber),
            ("1.0000000001G", SizeError::NotNumber),
            ("10 G", SizeError::NotNumber),
            ("10G ", SizeError::NotNumber),
            ("10X", SizeError::Unit),
            ("10iB", SizeError::Unit),
            ("10KK", SizeError::Unit),
            ("99999999999999999999", SizeError::TooLarge),
            ("99999999P", SizeError::TooLarge),
        ] {
            assert_eq!(parse_size(text), Err(error), "{text}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        for (text, error) in [
            ("30", DurationError::NoUnit),
            ("", DurationError::NoNumber),
            ("s", DurationError::NoNumber),
            ("1.5s", DurationError::NotWhole),
            ("30S", DurationError::Unit),
            ("3d", DurationError::Unit),
            ("99999999999999999999s", DurationError::TooLarge),
            ("9999999999999999999h", DurationError::TooLarge),
        ] {
            assert_eq!(parse_duration(text), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn sizes_read_back_as_written(bytes in any::<u64>(), shift in 0_u32..60) {
            let bytes = bytes >> shift << (shift / 2);
            prop_assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
        }

        #[test]
        fn durations_read_back_as_written(ms in 0_u64..1 << 50) {
            let duration = Duration::from_millis(ms);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = (parse_size(&text), parse_fio_size(&text), parse_duration(&text));
        }
    }
}
