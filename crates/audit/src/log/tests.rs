//! A log that is written, changed, cut and opened again.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::verify::{KnownHead, Report, records_since, verify};

const SMALL: Sizes = Sizes { file_bytes: 3000, files: 4 };

fn content(number: usize) -> NewRecord {
    let outcome = if number.is_multiple_of(3) { RecordOutcome::Refused } else { RecordOutcome::Done };
    NewRecord::new(RecordKind::Change, &format!("change {number}"), outcome).who("admin").from("192.0.2.7").object("d3")
}

fn opened(place: &Path, sizes: Sizes) -> (AuditLog, Vec<NewRecord>) {
    AuditLog::open(Arc::new(StateDirectory::open(place).unwrap()), sizes).unwrap()
}

/// A log of so many records, in batches of different lengths.
fn written(place: &Path, sizes: Sizes, records: usize) -> ChainHead {
    let (mut log, notes) = opened(place, sizes);
    assert_eq!(notes.iter().map(|note| note.what.as_str()).collect::<Vec<_>>(), ["began"]);
    let mut at = 0;
    while at < records {
        let batch: Vec<NewRecord> = (at..records.min(at + 1 + at % 4)).map(content).collect();
        log.append(1000 + at as u64, &batch).unwrap();
        at += batch.len();
    }
    log.store_head().unwrap();
    log.head()
}

fn report(place: &Path, known: &[ChainHead]) -> Report {
    let known: Vec<KnownHead> = known.iter().copied().map(KnownHead::given).collect();
    verify(&StateDirectory::open(place).unwrap(), &known).unwrap()
}

/// The files of a log, in order.
fn files(place: &Path) -> Vec<std::path::PathBuf> {
    let mut all: Vec<_> = std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.retain(|path| path.extension().is_some_and(|end| end == "log"));
    all.sort();
    all
}

/// All lines of all files; where each file ends.
fn lines(place: &Path) -> Vec<(usize, String)> {
    let mut all = Vec::new();
    for (at, path) in files(place).iter().enumerate() {
        all.extend(std::fs::read_to_string(path).unwrap().lines().map(|line| (at, line.to_owned())));
    }
    all
}

fn rewritten(place: &Path, lines: &[(usize, String)]) {
    for (at, path) in files(place).iter().enumerate() {
        let own = lines.iter().filter(|(file, _)| *file == at).map(|(_, line)| format!("{line}\n"));
        std::fs::write(path, own.collect::<String>()).unwrap();
    }
}

#[test]
fn what_is_written_is_read_and_intact_and_old_files_make_room() {
    let place = tempfile::tempdir().unwrap();
    let head = written(place.path(), SMALL, 5);
    assert_eq!(head.n, 5);
    let (mut log, notes) = opened(place.path(), SMALL);
    assert_eq!((log.head(), notes), (head, Vec::new()));
    for number in 5..100 {
        log.append(5000, &[content(number)]).unwrap();
    }
    let last = log.head();
    drop(log);
    let found = report(place.path(), &[last, head]);
    assert!(found.is_intact(), "{found:?}");
    assert_eq!((files(place.path()).len(), found.head), (4, Some(last)));
    assert!(found.first.unwrap() > 40 && found.records == 100 - found.first.unwrap() + 1, "{found:?}");
    for path in files(place.path()) {
        assert!(path.metadata().unwrap().len() <= SMALL.file_bytes, "{path:?}");
    }
    let (records, has_more) = records_since(&StateDirectory::open(place.path()).unwrap(), 0, 10).unwrap();
    assert_eq!((records.len(), records[9].n, has_more), (10, 100, true));
    assert_eq!(records_since(&StateDirectory::open(place.path()).unwrap(), 5001, 10).unwrap().0, []);
    // A copy is verified without a target.
    let copy = crate::LogCopy::at(place.path());
    assert!(verify(&copy, &[KnownHead::given(last)]).unwrap().is_intact());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Whatever single line is changed, removed, doubled, moved or inserted.
    // @test audit.chain
    #[test]
    fn a_single_change_is_found(
        records in 2_usize..40, at in any::<prop::sample::Index>(), other in any::<prop::sample::Index>(),
        byte in any::<prop::sample::Index>(), bit in 0_u32..8, kind in 0_u8..6,
    ) {
        let place = tempfile::tempdir().unwrap();
        let sizes = Sizes { file_bytes: 3000, files: 100 };
        let head = written(place.path(), sizes, records);
        let mut all = lines(place.path());
        let before = all.clone();
        let (at, other) = (at.index(all.len()), other.index(all.len()));
        match kind {
            0 => {
                let mut bytes = all[at].1.clone().into_bytes();
                let byte = byte.index(bytes.len());
                bytes[byte] ^= 1 << bit;
                // What is no text any more is found by the same way as other bytes.
                all[at].1 = String::from_utf8_lossy(&bytes).into_owned();
            }
            1 => drop(all.remove(at)),
            2 => {
                let (one, two) = (all[at].1.clone(), all[other].1.clone());
                (all[at].1, all[other].1) = (two, one);
            }
            3 => all.insert(at, all[other].clone()),
            4 => {
                // Somebody who knows how seals a line of their own.
                let head = ChainHead { n: at as u64, hash: crate::chain::Hash::of_line(b"x") };
                all[at].1 = AuditRecord::seal(&content(1000), 1, head).1.trim_end().to_owned();
            }
            _ => all.truncate(at.max(1)),
        }
        prop_assume!(all != before);
        rewritten(place.path(), &all);
        let found = report(place.path(), &[]);
        prop_assert!(!found.is_intact(), "{kind} {at} {other}");
        // The log goes on, and still says so.
        let (mut log, notes) = opened(place.path(), sizes);
        let is_at_end = all.len() < before.len() && before.starts_with(&all);
        prop_assert!(!is_at_end || !notes.is_empty(), "{kind}");
        log.append(9000, &notes).unwrap();
        log.append(9000, &[content(77)]).unwrap();
        log.store_head().unwrap();
        prop_assert!(log.head().n > head.n.min(records as u64 - 1));
        drop(log);
        prop_assert!(!report(place.path(), &[]).is_intact(), "{kind} {at} {other}");
    }

    /// Whoever writes the whole log anew is found by a hash that was written down elsewhere.
    #[test]
    fn a_log_that_was_made_anew_is_found_by_a_head_from_elsewhere(records in 2_usize..20, known in 1_usize..20) {
        let known = known.min(records);
        let place = tempfile::tempdir().unwrap();
        let head = written(place.path(), Sizes::default(), known);
        let (mut log, _) = opened(place.path(), Sizes::default());
        (known..records).for_each(|number| drop(log.append(1, &[content(number)]).unwrap()));
        log.store_head().unwrap();
        drop(log);
        prop_assert!(report(place.path(), &[head]).is_intact());
        let forged = tempfile::tempdir().unwrap();
        let (mut log, _) = opened(forged.path(), Sizes::default());
        (0..records).for_each(|number| drop(log.append(1, &[content(number + 1)]).unwrap()));
        log.store_head().unwrap();
        drop(log);
        prop_assert!(report(forged.path(), &[]).is_intact());
        prop_assert!(!report(forged.path(), &[head]).is_intact());
    }

    /// A crash leaves a part of what was being written, or zeros. That is no change, and is cut
    /// off.
    #[test]
    fn what_a_crash_leaves_is_cut_off(records in 1_usize..20, rest in 1_usize..300, zeros in any::<bool>()) {
        let place = tempfile::tempdir().unwrap();
        let head = written(place.path(), Sizes::default(), records);
        let (_, line) = AuditRecord::seal(&content(records), 7, head);
        let path = files(place.path()).pop().unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        let rest = rest.min(line.len() - 1);
        bytes.extend(if zeros { vec![0; rest] } else { line.as_bytes()[..rest].to_vec() });
        std::fs::write(&path, bytes).unwrap();
        prop_assert!(report(place.path(), &[head]).is_intact());
        let (mut log, notes) = opened(place.path(), Sizes::default());
        prop_assert_eq!(notes.len(), 1);
        prop_assert!(notes[0].what == "unfinished" && notes[0].detail.contains(&rest.to_string()), "{:?}", &notes);
        log.append(1, &notes).unwrap();
        prop_assert_eq!(log.head().n, head.n + 1);
        drop(log);
        prop_assert!(report(place.path(), &[head]).is_intact());
    }
}

#[test]
fn a_log_that_was_removed_goes_on_with_its_numbers_and_says_so() {
    let place = tempfile::tempdir().unwrap();
    let head = written(place.path(), SMALL, 8);
    files(place.path()).iter().for_each(|path| std::fs::remove_file(path).unwrap());
    assert!(!report(place.path(), &[]).is_intact());
    let (mut log, notes) = opened(place.path(), SMALL);
    assert!(notes[0].what == "removed" && notes[0].detail.contains("up to 8"), "{notes:?}");
    log.append(1, &notes).unwrap();
    assert_eq!(log.head().n, head.n + 1);
    log.store_head().unwrap();
    drop(log);
    let found = report(place.path(), &[head]);
    assert_eq!(found.first, Some(9));
    assert!(found.findings[0].what.contains("records up to 8 are missing"), "{found:?}");
}

/// A file that is empty, or has the beginning of a record, is what a crash leaves behind a
/// rotation.
#[test]
fn a_file_without_a_record_is_no_damage() {
    let place = tempfile::tempdir().unwrap();
    let head = written(place.path(), SMALL, 6);
    for rest in ["", "{\"n\":7"] {
        std::fs::write(place.path().join(crate::files::name_of(7)), rest).unwrap();
        let (log, notes) = opened(place.path(), SMALL);
        assert_eq!((log.head(), notes.len()), (head, usize::from(!rest.is_empty())), "{rest}");
        assert_eq!(notes.first().map_or("", |note| &note.what), if rest.is_empty() { "" } else { "unfinished" });
    }
}

/// Whoever removes what says where the log ends hides nothing by that.
// @test audit.chain
#[test]
fn a_log_without_its_stored_head_is_found_and_the_next_start_says_so() {
    let place = tempfile::tempdir().unwrap();
    let head = written(place.path(), SMALL, 4);
    let all = lines(place.path());
    rewritten(place.path(), &all[..2]);
    std::fs::remove_file(place.path().join(HEAD_FILE)).unwrap();
    let found = report(place.path(), &[]);
    assert_eq!((found.findings.len(), found.findings[0].file.as_str()), (1, HEAD_FILE));
    assert!(found.findings[0].what.contains("cannot be checked") && found.findings[0].what.contains("--head N:HASH"));
    let (mut log, notes) = opened(place.path(), SMALL);
    assert!(notes.len() == 1 && notes[0].what == "head-missing" && notes[0].detail.contains("was 2"), "{notes:?}");
    log.append(1, &notes).unwrap();
    log.store_head().unwrap();
    drop(log);
    let found = report(place.path(), &[head]);
    assert!(found.findings[0].what.contains("the target has found it so (head-missing)"), "{found:?}");
    // With both removed, that a log begins is a record.
    files(place.path()).iter().for_each(|path| std::fs::remove_file(path).unwrap());
    std::fs::remove_file(place.path().join(HEAD_FILE)).unwrap();
    assert_eq!(opened(place.path(), SMALL).1[0].what, "began");
}

/// A crash at any moment leaves a stored head where there is a record.
#[test]
fn the_head_is_stored_before_the_first_record() {
    let place = tempfile::tempdir().unwrap();
    let (mut log, notes) = opened(place.path(), SMALL);
    log.append(1, &notes).unwrap();
    drop(log);
    assert!(report(place.path(), &[]).is_intact());
    assert_eq!(opened(place.path(), SMALL).1, []);
    files(place.path()).iter().for_each(|path| std::fs::remove_file(path).unwrap());
    assert_eq!(opened(place.path(), SMALL).1[0].what, "began");
}

#[test]
fn a_finding_names_who_knows_of_the_record_and_is_told_once() {
    let place = tempfile::tempdir().unwrap();
    let head = written(place.path(), SMALL, 6);
    let all = lines(place.path());
    let given = AuditRecord::unseal(all[4].1.as_bytes()).unwrap().head();
    let known = [KnownHead::of_target(head), KnownHead::given(given), KnownHead::given(given)];
    let found = |known: &[KnownHead]| verify(&StateDirectory::open(place.path()).unwrap(), known).unwrap().findings;
    assert_eq!(found(&known), []);
    rewritten(place.path(), &all[..2]);
    let files_of = |findings: &[crate::Finding]| findings.iter().map(|it| it.file.clone()).collect::<Vec<String>>();
    assert_eq!(files_of(&found(&known)), ["audit-head, the running target", "--head"]);
    // The target remembers a later end than is stored.
    let later = KnownHead::of_target(ChainHead { n: 9, ..head });
    assert_eq!(files_of(&found(&[later])), ["the running target"]);
    files(place.path()).iter().for_each(|path| std::fs::remove_file(path).unwrap());
    let told = found(&[]);
    assert!(told.len() == 1 && told[0].what.contains("all records are missing: there was record 6:"), "{told:?}");
}
