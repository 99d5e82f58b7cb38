//! Times as texts (RFC 3339, UTC) and back.

/// `2026-11-30T06:12:05.123Z` of milliseconds since 1970-01-01T00:00:00Z.
#[must_use]
pub fn date_time(unix_ms: u64) -> String {
    let (seconds, ms) = (unix_ms / 1000, unix_ms % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// The milliseconds since 1970-01-01T00:00:00Z of such a text, or of its beginning: `2026-11-30`,
/// `2026-11-30T06:12`, `2026-11-30T06:12:05Z`.
#[must_use]
pub fn unix_ms(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (day, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let number = |text: &str, digits: usize| {
        let is_number = text.len() == digits && text.bytes().all(|digit| digit.is_ascii_digit());
        is_number.then(|| text.parse::<u64>().ok())?
    };
    let mut parts = day.splitn(3, '-');
    let year = number(parts.next()?, 4)?;
    let (month, day) = (number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let (time, ms) = time.split_once('.').map_or((time, 0), |(time, ms)| (time, number(ms, 3).unwrap_or(1000)));
    let mut parts = time.splitn(3, ':');
    let (hour, minute) = (number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let second = parts.next().map_or(Some(0), |text| number(text, 2))?;
    if hour > 23 || minute > 59 || second > 59 || ms > 999 || year < 1970 {
        return None;
    }
    let days = days(year, month, day).filter(|days| date(*days) == (year, month, day))?;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1000 + ms)
}

/// Year, month and day of days since 1970, in eras of 400 years, which begin in March.
const fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + (month <= 2) as u64, month, day)
}

/// Days since 1970.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = year - u64::from(month <= 2);
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    (era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year).checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar_in_both_directions() {
        for (unix_ms_of, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_007, "2000-02-29T00:00:00.007Z"),
            (1_796_019_125_123, "2026-11-30T06:12:05.123Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
        ] {
            assert_eq!((date_time(unix_ms_of).as_str(), unix_ms(text)), (text, Some(unix_ms_of)));
        }
        assert_eq!(unix_ms("2026-11-30"), unix_ms("2026-11-30T00:00:00.000Z"));
        assert_eq!(unix_ms("2026-11-30 06:12"), unix_ms("2026-11-30T06:12:00Z"));
        for text in ["", "2026", "2026-02-30", "2026-13-01", "2026-11-30T24:00", "2026-11-30T1:00", "1969-12-31", "x"] {
            assert_eq!(unix_ms(text), None, "{text}");
        }
    }
}
