//! From OpenMetrics to Prometheus' own text format, 0.0.4.
//!
//! They differ in how a family is named: OpenMetrics leaves out what its type adds (`_total`,
//! `_info`), the older format has names of samples only. It knows neither units nor an end.

/// The same metrics in the older format.
pub(super) fn from_openmetrics(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(comment) = line.strip_prefix("# ") else {
            out.push_str(line);
            out.push('\n');
            continue;
        };
        // HELP comes before TYPE, and the type says what the name is.
        let Some((name, help)) = comment.strip_prefix("HELP ").and_then(|it| it.split_once(' ')) else { continue };
        let kind = lines.peek().and_then(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).map(|(_, kind)| kind);
        let (suffix, kind) = match kind {
            Some("counter") => ("_total", "counter"),
            Some("info") => ("_info", "gauge"),
            Some(kind) => ("", kind),
            None => ("", "untyped"),
        };
        out.push_str(&format!("# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n"));
    }
    out
}
