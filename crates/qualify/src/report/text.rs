//! Texts and numbers as reports show them. What a document says comes from devices and controllers
//! that nobody vouches for: every text goes through one of the functions for its place.

use std::fmt::Write as _;
use std::time::Duration;

use ebof_bench::Job;
use ebof_bench::corner::Unit;

/// Characters of a text, at most: a device has no longer name, and a report stays readable.
const TEXT_CHARS_MAX: usize = 4096;

/// A number that is none.
pub(super) const NOTHING: &str = "–";

/// Text without what a reader does not see: control characters, and those that change the direction
/// of writing.
pub(super) fn plain(text: &str) -> String {
    let mut out: String = text.chars().take(TEXT_CHARS_MAX).map(visible).collect();
    if text.chars().nth(TEXT_CHARS_MAX).is_some() {
        out.push('…');
    }
    out
}

fn visible(character: char) -> char {
    match character {
        '\n' | '\t' => ' ',
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => '?',
        // Not allowed in XML and HTML.
        '\u{fffe}' | '\u{ffff}' => '?',
        other if other.is_control() => '?',
        other => other,
    }
}

/// For the content and the attributes of HTML and SVG.
pub(super) fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in plain(text).chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// For a line or a cell of Markdown.
pub(super) fn markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in plain(text).chars() {
        match character {
            // As entities: a program that does not know backslashes before them must not see tags.
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '#' | '$' => {
                out.push('\\');
                out.push(character);
            }
            other => out.push(other),
        }
    }
    out
}

/// For a string between double quotes in CSS, inside of HTML.
pub(super) fn css(text: &str) -> String {
    plain(text).chars().fold(String::new(), |mut out, character| {
        if character.is_alphanumeric() || " .,:;()/%+-".contains(character) {
            out.push(character);
        } else {
            let _ = write!(out, "\\{:x} ", u32::from(character));
        }
        out
    })
}

/// A command line that a shell reads as these words.
pub(super) fn command(words: &[String]) -> String {
    let quoted = words.iter().map(|word| {
        let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_./:=,+@%".contains(character);
        let word = plain(word);
        if !word.is_empty() && word.chars().all(is_plain) { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// A number with as many digits as are of interest, with commas between thousands.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    if !size.is_finite() {
        return NOTHING.to_owned();
    }
    if size >= 1e15 {
        return format!("{value:.3e}");
    }
    if size >= 100.0 {
        return grouped(&format!("{value:.0}"));
    }
    let digits = if size >= 10.0 || size == 0.0 { usize::from(size != 0.0) } else { 2 };
    format!("{value:.digits$}")
}

/// Commas between the thousands of an integer.
fn grouped(digits: &str) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    let mut out = String::from(sign);
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number for an axis: short, and without digits that say nothing.
pub(super) fn short(value: f64) -> String {
    let size = value.abs();
    let (scaled, suffix) = match size {
        size if !size.is_finite() => return NOTHING.to_owned(),
        size if size >= 1e15 => return format!("{value:.0e}"),
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    format!("{}{suffix}", trimmed(scaled, 3))
}

/// Without zeros at the end.
fn trimmed(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// With its unit.
pub(super) fn figure(value: f64, unit: Unit) -> String {
    if value.is_finite() { format!("{} {}", number(value), unit.name()) } else { NOTHING.to_owned() }
}

/// A time, given in microseconds.
pub(super) fn micros(us: f64) -> String {
    in_its_unit(us, number)
}

/// As [`micros`], for an axis.
pub(super) fn micros_short(us: f64) -> String {
    in_its_unit(us, short)
}

fn in_its_unit(us: f64, digits: fn(f64) -> String) -> String {
    let size = us.abs();
    match size {
        size if !size.is_finite() => NOTHING.to_owned(),
        size if size >= 1e6 => format!("{} s", digits(us / 1e6)),
        size if size >= 1e3 => format!("{} ms", digits(us / 1e3)),
        _ => format!("{} µs", digits(us)),
    }
}

/// As the documents print ratios.
pub(super) fn ratio(value: f64) -> String {
    match value {
        value if !value.is_finite() => NOTHING.to_owned(),
        value if value.abs() >= 100.0 => number(value),
        value => format!("{value:.3}"),
    }
}

/// Of 1.
pub(super) fn percent(part: f64) -> String {
    let percent = part * 100.0;
    match percent {
        percent if !percent.is_finite() => NOTHING.to_owned(),
        0.0 => "0 %".to_owned(),
        percent if percent.abs() >= 10.0 => format!("{} %", grouped(&format!("{percent:.0}"))),
        percent => format!("{percent:.1} %"),
    }
}

/// An optional number by `format`.
pub(super) fn maybe(value: Option<f64>, format: impl Fn(f64) -> String) -> String {
    value.filter(|value| value.is_finite()).map_or_else(|| NOTHING.to_owned(), format)
}

/// A size in powers of 1024 if it is a round one, otherwise of 1000.
pub(super) fn bytes(count: u64) -> String {
    const BINARY: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    const DECIMAL: [(u64, &str); 3] = [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB")];
    let whole = BINARY.iter().find(|(shift, _)| count != 0 && count.trailing_zeros() >= *shift);
    if let Some((shift, name)) = whole.filter(|(shift, _)| count >> shift < 10_000) {
        return format!("{} {name}", grouped(&(count >> shift).to_string()));
    }
    let part = DECIMAL.iter().find(|(size, _)| count >= *size);
    let tenths = |size: u64| u128::from(count) * 10 / u128::from(size);
    part.map_or_else(
        || format!("{} bytes", grouped(&count.to_string())),
        |(size, name)| format!("{}.{} {name}", grouped(&(tenths(*size) / 10).to_string()), tenths(*size) % 10),
    )
}

/// A span of time.
pub(super) fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 => format!("{} ms", time.as_millis()),
        seconds if seconds < 120 => format!("{} s", trimmed(time.as_secs_f64(), 1)),
        seconds if seconds < 7200 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min", grouped(&(seconds / 3600).to_string()), seconds % 3600 / 60),
    }
}

/// A moment, given in milliseconds since 1970, in UTC.
pub(super) fn moment(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Beyond the year 9999 it is not a time of a clock.
    if unix_ms == 0 || days > 2_932_896 {
        return NOTHING.to_owned();
    }
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Year, month and day of the Gregorian calendar. The years begin in March, so that the day that
/// some have more is their last one.
const fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let first = (153 * month + 2) / 5;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    (year + era * 400, month, day - first + 1)
}

/// A load in a few words: "128 KiB write, depth 64, 1 thread".
pub(super) fn load(job: &Job) -> String {
    let threads = if job.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", job.threads) };
    format!("{} {}, depth {}, {threads}", bytes(u64::from(job.block_bytes)), job.rw, job.depth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_strangers_is_text_everywhere() {
        let text = "<b>\"&'|\u{202e}x\u{0}\n`*_";
        assert_eq!(html(text), "&lt;b&gt;&quot;&amp;&#39;|?x? `*_");
        assert_eq!(markdown(text), "&lt;b&gt;\"&amp;'\\|?x? \\`\\*\\_");
        assert_eq!(css("a\"</style>\\"), "a\\22 \\3c /style\\3e \\5c ");
        assert_eq!(plain(&"x".repeat(5000)).chars().count(), TEXT_CHARS_MAX + 1);
        let words = ["fio", "--name=a b", "it's", ""].map(str::to_owned);
        assert_eq!(command(&words), "fio '--name=a b' 'it'\\''s' ''");
    }

    #[test]
    fn numbers_have_the_digits_that_matter() {
        assert_eq!([0.0, 0.123, 12.34, 2333.4, -1234.0].map(number), ["0", "0.12", "12.3", "2,333", "-1,234"]);
        assert_eq!([f64::NAN, f64::INFINITY].map(number), ["–", "–"]);
        assert_eq!(
            [0.0, 0.25, 9000.0, 139_000.0, 2.5e6, 1e300].map(short),
            ["0", "0.25", "9000", "139k", "2.5M", "1e300"]
        );
        assert_eq!([0.5, 345.03, 1500.0, 2e6].map(micros), ["0.50 µs", "345 µs", "1.50 ms", "2.00 s"]);
        assert_eq!([0.998, 0.036].map(percent), ["100 %", "3.6 %"]);
        assert_eq!(ratio(0.8564), "0.856");
        assert_eq!(
            [4096, 131_072, 1_600_321_314_816, 0, 700].map(bytes),
            ["4 KiB", "128 KiB", "1.6 TB", "0 bytes", "700 bytes"]
        );
    }

    #[test]
    fn moments_follow_the_calendar() {
        assert_eq!(moment(1_709_164_800_000), "2024-02-29 00:00:00 UTC");
        assert_eq!(moment(951_868_799_000), "2000-02-29 23:59:59 UTC");
        assert_eq!(moment(253_402_300_799_000), "9999-12-31 23:59:59 UTC");
        assert_eq!([moment(0), moment(u64::MAX)], ["–", "–"]);
        assert_eq!(
            [500, 90_500, 7_199_000].map(|ms| span(Duration::from_millis(ms))),
            ["500 ms", "90.5 s", "119 min 59 s"]
        );
    }
}
