//! Sizes (`10G`) and durations (`30s`, `500ms`) as people write them.
//!
//! Sizes are binary: `K` is 1024. Both are refused rather than guessed at when they can be read in two ways.

use std::time::Duration;

use thiserror::Error;

/// Why a text is not a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SizeError {
    /// Nothing, or no digit where one must be.
    #[error("has no number")]
    NoNumber,
    /// A sign, a point, a space or the like.
    #[error("is not a whole number with an optional suffix")]
    NotWhole,
    /// `GB` and its kin: 1000 or 1024 is anybody's guess.
    #[error("has a decimal suffix, and sizes here are binary")]
    Decimal,
    /// Letters that are no suffix.
    #[error("has an unknown suffix")]
    Suffix,
    /// More than fits.
    #[error("is too large")]
    TooLarge,
}

/// What [`parse_size`] takes, for messages.
pub const SIZE_FORM: &str = "bytes, or a whole number with K, M, G, T or P (binary: 1K is 1024), such as \"10G\"";

/// Why a text is not a duration.
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

/// What [`parse_duration`] takes, for messages.
pub const DURATION_FORM: &str = "a whole number with ms, s, m or h, such as \"30s\" or \"500ms\"";

const SIZE_UNITS: [(&str, u32); 6] = [("P", 50), ("T", 40), ("G", 30), ("M", 20), ("K", 10), ("", 0)];
const DURATION_UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Splits the digits from what follows; `None` when there is anything but ASCII letters behind them.
fn split(text: &str) -> Option<(&str, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    suffix.bytes().all(|byte| byte.is_ascii_alphabetic()).then_some((number, suffix))
}

/// Reads a size in bytes: [`SIZE_FORM`]. `10G`, `10g`, `10Gi` and `10GiB` are the same; `10GB` is refused.
///
/// # Errors
/// What is wrong with it.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let (number, suffix) = split(text).ok_or(SizeError::NotWhole)?;
    if number.is_empty() {
        return Err(SizeError::NoNumber);
    }
    let suffix = suffix.to_ascii_uppercase();
    let letter = match suffix.as_str() {
        "B" => "",
        other => other.strip_suffix("IB").or_else(|| other.strip_suffix('I')).unwrap_or(other),
    };
    let unit = SIZE_UNITS.iter().find(|(name, _)| *name == letter);
    let Some(&(_, shift)) = unit else {
        let decimal = letter.strip_suffix('B').is_some_and(|name| SIZE_UNITS.iter().any(|(unit, _)| *unit == name));
        return Err(if decimal { SizeError::Decimal } else { SizeError::Suffix });
    };
    if shift == 0 && suffix.starts_with('I') {
        return Err(SizeError::Suffix);
    }
    let number: u64 = number.parse().map_err(|_error| SizeError::TooLarge)?;
    number.checked_mul(1 << shift).ok_or(SizeError::TooLarge)
}

/// Writes a size so that [`parse_size`] reads the same number: with the largest suffix that divides it.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    let fitting = SIZE_UNITS.iter().find(|(_, shift)| bytes != 0 && bytes.is_multiple_of(1 << shift));
    let (name, shift) = fitting.copied().unwrap_or(("", 0));
    format!("{}{name}", bytes >> shift)
}

/// Reads a duration: [`DURATION_FORM`].
///
/// # Errors
/// What is wrong with it.
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

    #[test]
    fn sizes_are_binary() {
        for (text, bytes) in [("0", 0), ("4096", 4096), ("512B", 512), ("8K", 8192), ("1g", 1 << 30), ("2TiB", 2 << 40)]
        {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        assert_eq!(parse_size("3Gi"), Ok(3 << 30));
    }

    #[test]
    fn nonsense_sizes_are_refused_by_name() {
        for (text, error) in [
            ("", SizeError::NoNumber),
            ("G", SizeError::NoNumber),
            ("-1", SizeError::NotWhole),
            ("1.5G", SizeError::NotWhole),
            ("10 G", SizeError::NotWhole),
            ("10GB", SizeError::Decimal),
            ("10X", SizeError::Suffix),
            ("10iB", SizeError::Suffix),
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
            let _ = (parse_size(&text), parse_duration(&text));
        }
    }
}
