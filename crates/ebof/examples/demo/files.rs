//! The content of the demonstration's drive: files, their checksums, and a copy of the drive's
//! bytes over the fabric.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use ebof::Namespace;

use super::stage::Stage;

/// Limits for the files on the drive: a demonstration is short.
const FILES_MAX: usize = 5000;
const BYTES_MAX: u64 = 128 << 20;
/// Directories that are not copied.
const LEFT_OUT: [&str; 2] = ["target", "lost+found"];

/// What was copied.
pub(super) struct Copied {
    /// Where they came from, as text.
    pub(super) from: String,
    /// Files.
    pub(super) count: usize,
    /// Their bytes.
    pub(super) bytes: u64,
}

/// Copies files to the new directory `into`: those of `from`, or of the working directory if it has
/// ebof's sources. The program itself, a file of several megabytes, is always added.
pub(super) fn collect(from: Option<&Path>, program: &Path, into: &Path) -> anyhow::Result<Copied> {
    std::fs::create_dir(into)?;
    let sources = Path::new("crates/ebof/Cargo.toml").is_file().then_some(Path::new("."));
    let mut copied = Copied { from: "this program".to_owned(), count: 0, bytes: 0 };
    if let Some(from) = from.or(sources) {
        copied.from = if from == Path::new(".") { "ebof's sources".to_owned() } else { from.display().to_string() };
        copy(from, into, &mut copied).with_context(|| format!("copying the files of {}", from.display()))?;
    }
    copied.bytes += std::fs::copy(program, into.join("program.bin")).context("copying this program")?;
    copied.count += 1;
    Ok(copied)
}

/// Regular files only, and no hidden ones.
fn copy(from: &Path, into: &Path, copied: &mut Copied) -> io::Result<()> {
    let mut entries = std::fs::read_dir(from)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name();
        let text = name.to_string_lossy();
        let metadata = entry.metadata()?;
        let target = into.join(&name);
        if text.starts_with('.') || LEFT_OUT.contains(&text.as_ref()) {
            continue;
        }
        if metadata.is_dir() {
            std::fs::create_dir(&target)?;
            copy(&entry.path(), &target, copied)?;
        } else if metadata.is_file() && copied.count < FILES_MAX && copied.bytes + metadata.len() <= BYTES_MAX {
            copied.bytes += std::fs::copy(entry.path(), target)?;
            copied.count += 1;
        }
    }
    Ok(())
}

/// The SHA-256 of every file below a directory, by path.
pub(super) struct Checksums(BTreeMap<PathBuf, String>);

impl Checksums {
    /// Files.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Files whose checksum in `found` differs or is missing. Further files in `found` are ignored.
    pub(super) fn differing(&self, found: &Self) -> Vec<String> {
        let differ = self.0.iter().filter(|(path, sum)| found.0.get(*path) != Some(sum));
        differ.map(|(path, _)| path.display().to_string()).collect()
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let line = |line: &str| {
            let (sum, path) = line.split_once("  ").with_context(|| format!("sha256sum printed `{line}`"))?;
            Ok((PathBuf::from(path), sum.to_owned()))
        };
        text.lines().map(line).collect::<anyhow::Result<_>>().map(Self)
    }
}

/// The checksums of the files below `directory` of the stage.
pub(super) fn checksums(stage: &Stage, directory: &str) -> anyhow::Result<Checksums> {
    stage.check()?;
    let line = format!("cd {directory} && find . -type f -not -path './lost+found/*' -exec sha256sum {{}} +");
    stage.tell(&format!("$ {line}"));
    let sums = Checksums::parse(&stage.quietly(&line)?)?;
    stage.tell(&format!("  {} checksums", sums.len()));
    Ok(sums)
}

/// Copies all blocks of a namespace to a new file, which is sparse where they are zero; returns the
/// number of bytes read.
pub(super) fn copy_namespace(
    namespace: &Namespace,
    into: &Path,
    check: impl Fn() -> anyhow::Result<()>,
) -> anyhow::Result<u64> {
    let file = File::create_new(into)?;
    let block = u64::from(namespace.block_bytes());
    let step = ((1 << 20) / block).min(u64::from(namespace.max_transfer_blocks())).max(1);
    file.set_len(namespace.blocks() * block)?;
    let mut buffer = vec![0; usize::try_from(step * block)?];
    let mut at = 0;
    while at < namespace.blocks() {
        check()?;
        let blocks = step.min(namespace.blocks() - at);
        let part = &mut buffer[..usize::try_from(blocks * block)?];
        namespace.read(at, part)?;
        if part.iter().any(|&byte| byte != 0) {
            file.write_all_at(part, at * block)?;
        }
        at += blocks;
    }
    Ok(at * block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_differs_or_is_missing_is_reported() {
        let before = Checksums::parse("aa  ./a\nbb  ./b c\ncc  ./d\n").unwrap();
        let after = Checksums::parse("aa  ./a\nb0  ./b c\nff  ./more\n").unwrap();
        assert_eq!(before.differing(&after), ["./b c", "./d"]);
        assert!(before.differing(&before).is_empty());
        assert!(Checksums::parse("nonsense").is_err());
    }

    #[test]
    fn hidden_files_and_build_output_are_not_copied() {
        let place = tempfile::tempdir().unwrap();
        let from = place.path().join("from");
        for file in ["a.rs", "sub/b.rs", ".git/config", "target/big"] {
            let path = from.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, file).unwrap();
        }
        let into = place.path().join("into");
        let copied = collect(Some(&from), &std::env::current_exe().unwrap(), &into).unwrap();
        assert_eq!(copied.count, 3, "two files and the program");
        assert_eq!(std::fs::read_to_string(into.join("sub/b.rs")).unwrap(), "sub/b.rs");
        assert!(!into.join(".git").exists() && !into.join("target").exists());
    }
}
