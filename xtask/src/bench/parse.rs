//! Parses the output of hosts. Owns no process.

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// The results that a host reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HostResult {
    pub(crate) iops: f64,
    /// `None` if the tool does not report it.
    pub(crate) mean_us: Option<f64>,
}

/// `ebof bench -o json`, one source.
pub(crate) fn ebof(text: &str) -> Result<HostResult> {
    let document = document(text)?;
    let report = &document["reports"][0];
    if report["errors"].as_u64() != Some(0) {
        bail!("{} operations failed: {}", report["errors"], report["first_error"]);
    }
    let total = &report["total"];
    result(&total["iops"], total["latency"]["mean_us"].as_f64())
}

/// `ebof bench --raw -o json`.
pub(crate) fn raw(text: &str) -> Result<HostResult> {
    let document = document(text)?;
    result(&document["raw"]["requests_per_s"], document["raw"]["mean_us"].as_f64())
}

/// The example `techniques`, with `json=1`.
pub(crate) fn techniques(text: &str) -> Result<HostResult> {
    result(&document(text)?["iops"], None)
}

/// The line of totals of `spdk_nvme_perf`: IOPS, MiB/s, mean, minimum and maximum in microseconds.
pub(crate) fn spdk(text: &str) -> Result<HostResult> {
    let line = text.lines().rev().find(|line| line.starts_with("Total")).context("no line of totals")?;
    let figures = line.split_once(':').map_or("", |(_, rest)| rest);
    let mut figures = figures.split_whitespace().map(str::parse::<f64>);
    let iops = figures.next().context("no IOPS")?.context("IOPS")?;
    let mean_us = figures.nth(1).and_then(Result::ok);
    checked(HostResult { iops, mean_us })
}

/// `fio --output-format=json`, one job in one direction. Engines print lines of their own before
/// it.
pub(crate) fn fio(text: &str) -> Result<HostResult> {
    let document = document(text)?;
    let job = &document["jobs"][0];
    if job["error"].as_i64() != Some(0) {
        bail!("fio's error {}", job["error"]);
    }
    let busy = |side: &&Value| side["total_ios"].as_u64().is_some_and(|count| count > 0);
    let side = [&job["read"], &job["write"]].into_iter().find(busy).context("fio did no I/O")?;
    result(&side["iops"], side["lat_ns"]["mean"].as_f64().map(|mean| mean / 1000.0))
}

/// `iscsi-perf`: the last average, in a line that it overwrites with carriage returns.
pub(crate) fn iscsi(text: &str) -> Result<HostResult> {
    let average = text.split(['\r', '\n']).rev().find_map(|line| line.trim().strip_prefix("iops average "));
    let iops = average.and_then(|rest| rest.split_whitespace().next()).context("no average")?;
    checked(HostResult { iops: iops.parse().context("the average")?, mean_us: None })
}

/// The JSON document that begins with the first line that is a brace, whatever is printed before
/// and after it.
fn document(text: &str) -> Result<Value> {
    let start = text.lines().scan(0, |at, line| {
        let start = *at;
        *at += line.len() + 1;
        Some((start, line))
    });
    let start = start.filter(|(_, line)| line.starts_with('{')).map(|(at, _)| at).next().context("no JSON")?;
    let mut documents = serde_json::Deserializer::from_str(&text[start..]).into_iter();
    documents.next().context("no JSON")?.context("its JSON")
}

fn result(iops: &Value, mean_us: Option<f64>) -> Result<HostResult> {
    checked(HostResult { iops: iops.as_f64().context("no operations per second")?, mean_us })
}

/// Checks the results. Zero operations are accepted: the run stalled.
fn checked(result: HostResult) -> Result<HostResult> {
    if result.iops >= 0.0 { Ok(result) } else { bail!("{} operations per second", result.iops) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_every_tool_is_parsed() {
        let ebof_text =
            r#"{"schema":"ebof/bench/1","reports":[{"errors":0,"total":{"iops":5.5,"latency":{"mean_us":2.0}}}]}"#;
        assert_eq!(ebof(ebof_text).unwrap(), HostResult { iops: 5.5, mean_us: Some(2.0) });
        let raw_text = "{\n \"raw\": {\"requests_per_s\": 7.0, \"mean_us\": 1.5}\n}\n";
        assert_eq!(raw(raw_text).unwrap(), HostResult { iops: 7.0, mean_us: Some(1.5) });
        assert_eq!(techniques("{\"iops\":8}\n").unwrap(), HostResult { iops: 8.0, mean_us: None });
        let spdk_text = "Latency(us)\nTotal      :  405116.07    1582.48      78.98      10.00    1000.00\n\n";
        assert_eq!(spdk(spdk_text).unwrap(), HostResult { iops: 405_116.07, mean_us: Some(78.98) });
        let fio_text = "nbd: connected\n{\"jobs\":[{\"error\":0,\"read\":{\"total_ios\":0},\
            \"write\":{\"total_ios\":9,\"iops\":3.0,\"lat_ns\":{\"mean\":4000.0}}}]}\nbye";
        assert_eq!(fio(fio_text).unwrap(), HostResult { iops: 3.0, mean_us: Some(4.0) });
        let iscsi_text = "iops average 10 (1 MB/s)   \riops average 29405 (114 MB/s)     \n\nfinished.\n";
        assert_eq!(iscsi(iscsi_text).unwrap(), HostResult { iops: 29_405.0, mean_us: None });
    }

    #[test]
    fn a_failed_tool_gives_no_figure() {
        assert!(ebof(r#"{"reports":[{"errors":2,"first_error":"x","total":{"iops":5.5}}]}"#).is_err());
        assert!(ebof(r#"{"error":{"message":"x"}}"#).is_err());
        assert!(fio(r#"{"jobs":[{"error":5}]}"#).is_err());
        assert!(fio(r#"{"jobs":[{"error":0,"read":{"total_ios":0},"write":{"total_ios":0}}]}"#).is_err());
        assert_eq!(spdk("Total : 0.00 0.00 0.00").unwrap().iops, 0.0);
        assert!(spdk("No controllers found").is_err() && iscsi("").is_err() && raw("").is_err());
    }
}
