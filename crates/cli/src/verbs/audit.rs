//! `target audit`: who has changed what of a target, what was refused, and whether the log of that
//! is as it was written: through the target that writes it, or from a copy of its files. The output
//! is in `output::audit`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use ebof_audit::{AUDIT_SCHEMA, AuditAnswer, ChainHead, KnownHead, LogCopy, records_since, verify};
use ebof_manage::units::parse_duration;

use super::Outcome;
use crate::control::ControlClient;
use crate::failure::Failure;
use crate::global::Global;
use crate::output::audit::ShownAudit;
use crate::output::show;

/// Records that are shown, unless told otherwise.
const RECORDS: u32 = 1000;

/// `target audit`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ShowAudit {
    /// Look for what was changed, removed, inserted or cut off; the exit status tells whether
    /// something was
    #[arg(long)]
    verify: bool,
    /// Look for this record, too, of which the number and the hash were written down elsewhere;
    /// several times for several records
    #[arg(long, value_name = "N:HASH", requires = "verify")]
    head: Vec<ChainHead>,
    /// Only records since then, such as 2026-11-30 or 2026-11-30T06:12 (UTC), or so long ago, such
    /// as 2h
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<u64>,
    /// At most so many records, the latest
    #[arg(long, value_name = "N", default_value_t = RECORDS)]
    max: u32,
    /// Read the files in this directory, a copy or the state directory of a target that does not
    /// run, and ask no target
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
}

/// Milliseconds since 1970 of a date, or of a time ago.
fn since(text: &str) -> Result<u64, String> {
    if let Some(unix_ms) = ebof_audit::unix_ms(text) {
        return Ok(unix_ms);
    }
    let wanted = "want a date such as 2026-11-30 or 2026-11-30T06:12 (UTC), or a time such as 30m, 2h";
    let ago = parse_duration(text).map_err(|_no_duration| wanted.to_owned())?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(u64::try_from(now.saturating_sub(ago).as_millis()).unwrap_or(u64::MAX))
}

impl ShowAudit {
    /// Whether a target is asked.
    pub(super) const fn asks_target(&self) -> bool {
        self.directory.is_none()
    }

    /// Of a target.
    pub(super) fn run(self, control: &ControlClient, global: &Global) -> Outcome {
        let mut query = format!("max={}", self.max);
        if let Some(since) = self.since {
            query += &format!("&since={since}");
        }
        if self.verify {
            query += "&verify=1";
        }
        self.head.iter().for_each(|head| query += &format!("&head={head}"));
        self.shown(control.audit(&query)?, global)
    }

    /// Of a directory.
    pub(super) fn run_on_files(self, global: &Global) -> Outcome {
        let Some(directory) = &self.directory else { return Ok(ExitCode::SUCCESS) };
        let source = LogCopy::at(directory);
        let failed = |error: std::io::Error| {
            let message = format!("the audit log in {}: {error}", directory.display());
            Failure::new("io", message, "name the directory that has its files, audit-*.log and audit-head")
        };
        let known: Vec<KnownHead> = self.head.iter().copied().map(KnownHead::given).collect();
        // The head is found by looking at all of it.
        let report = verify(&source, &known).map_err(failed)?;
        if report.records == 0 && report.is_intact() {
            let message = format!("there is no audit log in {}", directory.display());
            let advice = "name the directory that has its files, audit-*.log and audit-head";
            return Err(Failure::new("not-found", message, advice).into());
        }
        let most = usize::try_from(self.max).unwrap_or(usize::MAX);
        let (records, has_more) = records_since(&source, self.since.unwrap_or(0), most).map_err(failed)?;
        let (head, place) = (report.head, directory.display().to_string());
        let report = self.verify.then_some(report);
        let answer = AuditAnswer { audit_schema: AUDIT_SCHEMA, directory: place, head, records, has_more, report };
        self.shown(answer, global)
    }

    fn shown(&self, answer: AuditAnswer, global: &Global) -> Outcome {
        let is_intact = answer.report.as_ref().is_none_or(ebof_audit::Report::is_intact);
        // Whoever verifies has asked for the outcome; the records are for whoever asks for a time.
        let has_records = !self.verify || self.since.is_some();
        show(global, &ShownAudit { answer, has_records })?;
        Ok(if is_intact { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_dates_or_ago() {
        assert_eq!(since("2026-11-30T06:12:05Z"), Ok(1_796_019_125_000));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let ago = Duration::from_millis(since("2h").unwrap());
        assert!(now - ago >= Duration::from_secs(7199) && now - ago < Duration::from_secs(7260));
        assert!(since("yesterday").unwrap_err().contains("2026-11-30"));
    }
}
