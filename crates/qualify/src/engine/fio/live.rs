//! fio's line of status while it runs, for a live display: three digits, which cost it nothing.

/// How the line begins.
pub(super) const PREFIX: &str = "Jobs: ";

/// What a line of status says.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Speed {
    pub(super) iops: f64,
    pub(super) bytes_per_s: f64,
}

/// Of `Jobs: 1 (f=1): [m(1)][60.0%][r=3072MiB/s,w=696MiB/s][r=386k,w=11.1k IOPS][eta 00m:02s]`: all
/// directions together. Zero before the first operation.
pub(super) fn rate(status: &str) -> Speed {
    let part = |end: &str| {
        let before = &status[..status.find(end)?];
        Some(&before[before.rfind('[')? + 1..])
    };
    let sum = |part: Option<&str>, base: f64| {
        let sides = part.unwrap_or_default().split(',');
        // The sum of nothing would be -0.
        sides.filter_map(|side| scaled(side.split_once('=')?.1, base)).fold(0.0, |sum, side| sum + side)
    };
    Speed { iops: sum(part(" IOPS]"), 1000.0), bytes_per_s: sum(part("/s]["), 1024.0) }
}

/// `386k` to 386000, `3072MiB/s` to its bytes.
fn scaled(text: &str, base: f64) -> Option<f64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let power = match text[digits..].bytes().next() {
        Some(b'k' | b'K') => 1,
        Some(b'm' | b'M') => 2,
        Some(b'g' | b'G') => 3,
        Some(b't' | b'T') => 4,
        _ => 0,
    };
    let value: f64 = text[..digits].parse().ok()?;
    Some(value * base.powi(power))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_status_is_parsed() {
        let line = "Jobs: 3 (f=3): [r(2),m(1)][60.0%][r=3072MiB/s,w=1024KiB/s][r=386k,w=11.1k IOPS][eta 00m:02s]";
        let bytes_per_s = 3_073.0 * 1_048_576.0;
        assert_eq!(rate(line), Speed { iops: 397_100.0, bytes_per_s });
        for nothing in
            ["", "Jobs: 2 (f=2)", "Jobs: 1 (f=1): [/(1)][-.-%][eta 00m:02s]", " IOPS]", "/s][", "[r=-k IOPS]"]
        {
            assert_eq!(rate(nothing), Speed::default(), "{nothing}");
        }
    }
}
