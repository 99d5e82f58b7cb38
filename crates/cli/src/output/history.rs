//! The view of the configurations that a target has had.

use std::fmt::Write as _;

use ebof_audit::date_time;
use ebof_manage::api::{Generation, History};

use super::View;
use super::json::Object;
use super::text::{safe, table};

/// The configurations that are and were in force.
pub(crate) struct ShownHistory(pub(crate) History);

/// How many characters of a revision tell it from the others.
const REVISION_CHARS: usize = 8;

impl View for ShownHistory {
    fn text(&self, verbose: bool) -> String {
        let Self(history) = self;
        let current = history.current().map(|it| it.generation);
        let row = |it: &Generation| {
            let mark = if Some(it.generation) == current { "*" } else { "" };
            let revision = if verbose {
                it.revision.as_str()
            } else {
                it.revision.as_str().get(..REVISION_CHARS).unwrap_or_default()
            };
            let changes = match (it.changes.first(), it.changes.len() + it.changes_left_out) {
                (None, _) => "none".to_owned(),
                (Some(first), 1) => safe(first),
                (Some(first), many) => format!("{} and {} more", safe(first), many - 1),
            };
            let cause = &it.cause;
            vec![
                format!("{}{mark}", it.generation),
                safe(revision),
                utc(it.at_unix_ms),
                safe(&cause.by.to_string()),
                safe(&cause.action),
                changes,
            ]
        };
        // The latest first: it is what is looked for.
        let rows: Vec<_> = history.generations.iter().rev().map(row).collect();
        let columns =
            [("GENERATION", 10), ("REVISION", 8), ("SINCE (UTC)", 19), ("BY", 2), ("ACTION", 6), ("CHANGES", 7)];
        let mut text = table(&columns, &rows);
        if verbose {
            for it in history.generations.iter().rev() {
                let _infallible = writeln!(text, "\ngeneration {}", it.generation);
                it.changes.iter().for_each(|change| {
                    let _infallible = writeln!(text, "  {}", safe(change));
                });
                if it.changes_left_out > 0 {
                    let _infallible = writeln!(text, "  and {} more", it.changes_left_out);
                }
            }
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        Object::document("config-history", 1).with("history", serde_json::to_value(&self.0).unwrap_or_default())
    }
}

/// `2026-11-26 17:04:05`, of the Gregorian calendar.
pub(super) fn utc(unix_ms: u64) -> String {
    let mut text = date_time(unix_ms).replace('T', " ");
    text.truncate(text.len() - ".123Z".len());
    text
}

#[cfg(test)]
mod tests {
    use ebof_manage::api::{Asker, Cause, Revision};
    use ebof_manage::plan::{Change, Plan};

    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (unix_ms, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399_000, "2000-02-28 23:59:59"),
            (951_782_400_000, "2000-02-29 00:00:00"),
            (1_709_251_199_000, "2024-02-29 23:59:59"),
            (1_709_251_200_000, "2024-03-01 00:00:00"),
            (1_795_712_645_999, "2026-11-26 17:04:05"),
            (4_107_542_400_000, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(utc(unix_ms), text);
        }
    }

    #[test]
    fn generations_are_listed_the_latest_first() {
        let remove = |nqn: &str| Change::RemoveHost { nqn: nqn.to_owned(), had_keys: false };
        let plan = |changes: &[&str]| Plan { changes: changes.iter().map(|nqn| remove(nqn)).collect() };
        let mut history = History::default();
        let local = Asker::Local { uid: 0, pid: Some(812), program: Some("ebof".to_owned()) };
        for (at, by, action, changes) in [
            (1_795_712_645_999, Asker::Start, "serve", &[][..]),
            (1_795_712_646_000, local, "apply a.toml", &["nqn.a"]),
            (1_795_712_700_000, Asker::Signal { signal: "SIGHUP".to_owned() }, "reload", &["nqn.a", "nqn.b"]),
        ] {
            let revision = Revision::named(format!("{at:08x}-28c2-5782-aea3-62abecea0529"));
            history = history.with(revision, 100, at, &plan(changes), &Cause::new(by, action)).0;
        }
        let shown = ShownHistory(history);
        insta::assert_snapshot!("config-history", format!("{}----\n{}", shown.text(false), shown.text(true)));
        insta::assert_snapshot!("config-history-json", shown.json(false).to_text().unwrap());
    }
}
