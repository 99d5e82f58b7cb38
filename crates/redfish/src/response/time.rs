//! Dates and times as Redfish writes them (DSP0266, "Date-Time values").

/// A moment in UTC, `2026-11-26T17:10:38.042Z`, of milliseconds since 1970-01-01T00:00:00Z. What is
/// later than the year 9999 is its end.
pub(crate) fn date_time(unix_ms: u64) -> String {
    /// 9999-12-31T23:59:59.999Z.
    const LAST_MS: u64 = 253_402_300_799_999;
    const DAY_MS: u64 = 86_400_000;
    let unix_ms = unix_ms.min(LAST_MS);
    let (year, month, day) = date(unix_ms / DAY_MS);
    let rest = unix_ms % DAY_MS;
    let (hours, minutes, seconds, ms) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60, rest % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{ms:03}Z")
}

/// The date of a day since 1970-01-01: years are counted from March, so that a leap day is the
/// last.
const fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_TO_1970: u64 = 719_468;
    const DAYS_OF_400_YEARS: u64 = 146_097;
    let days = days + DAYS_TO_1970;
    let (era, of_era) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let (month, next) = if month_from_march < 10 { (month_from_march + 3, 0) } else { (month_from_march - 9, 1) };
    (400 * era + year_of_era + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_dates() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_700_000_000_042, "2023-11-14T22:13:20.042Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (u64::MAX, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(date_time(ms), text);
        }
    }
}
