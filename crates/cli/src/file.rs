//! Reads files that a user names, up to a size limit; optionally regular files only, so that
//! reading does not block.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use anyhow::Context as _;
use rustix::fs::OFlags;

use crate::failure::Failure;
use crate::output::text::safe;

/// The kinds of files that may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Also pipes and terminals, which may block: for interactive use.
    Any,
    /// Regular files only, which do not block.
    Regular,
}

/// Bytes that there is room for from the beginning.
const SMALL_BYTES: usize = 4096;

/// The content of the file at `path`, which is `what` in messages.
///
/// # Errors
/// It cannot be read, has more than `max_bytes`, or is not of that kind.
pub(crate) fn read(path: &Path, what: &str, max_bytes: u64, kind: Kind) -> anyhow::Result<Vec<u8>> {
    let name = safe(&path.display().to_string());
    let reading = || format!("reading {what} {name}");
    let mut options = OpenOptions::new();
    options.read(true);
    if kind == Kind::Regular {
        // Opening a FIFO without a writer must not block; it is refused below.
        options.custom_flags(i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag of open(2) is an int"));
    }
    let file = options.open(path).with_context(reading)?;
    let file_type = file.metadata().with_context(reading)?.file_type();
    if file_type.is_dir() || kind == Kind::Regular && !file_type.is_file() {
        let sort = match file_type {
            sort if sort.is_dir() => "a directory",
            sort if sort.is_fifo() => "a pipe",
            sort if sort.is_char_device() => "a character device",
            sort if sort.is_block_device() => "a block device",
            sort if sort.is_socket() => "a socket",
            _ => "of another kind",
        };
        let message = format!("{}: it is {sort}", reading());
        return Err(Failure::usage(message, "accepted: a regular file").into());
    }
    // With room for all of a small one: it may be a key, of which nothing is left where it grew.
    let mut data = Vec::with_capacity(usize::try_from(max_bytes).unwrap_or(SMALL_BYTES).min(SMALL_BYTES) + 1);
    file.take(max_bytes.saturating_add(1)).read_to_end(&mut data).with_context(reading)?;
    if data.len() as u64 > max_bytes {
        let message = format!("{}: it has more than {max_bytes} bytes", reading());
        return Err(Failure::usage(message, format!("accepted: at most {max_bytes} bytes")).into());
    }
    Ok(data)
}

/// As [`read`], for a text in UTF-8.
pub(crate) fn read_text(path: &Path, what: &str, max_bytes: u64, kind: Kind) -> anyhow::Result<String> {
    let data = read(path, what, max_bytes, kind)?;
    String::from_utf8(data).with_context(|| format!("reading {what} {}", safe(&path.display().to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(path: &Path, kind: Kind) -> String {
        format!("{:#}", read(path, "the test's file", 4, kind).unwrap_err())
    }

    // @test data.sigterm
    #[test]
    fn files_have_a_size_limit_and_only_regular_ones_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("four"), "1234").unwrap();
        std::fs::write(at("five"), "12345").unwrap();
        for kind in [Kind::Any, Kind::Regular] {
            assert_eq!(read(&at("four"), "it", 4, kind).unwrap(), b"1234");
            assert!(error(&at("five"), kind).contains("it has more than 4 bytes"));
            assert!(error(directory.path(), kind).contains("it is a directory"));
            assert!(error(&at("none"), kind).contains("No such file"));
        }
        assert!(error(Path::new("/dev/zero"), Kind::Any).contains("it has more than 4 bytes"));
        std::os::unix::fs::symlink("/dev/zero", at("zeros")).unwrap();
        assert!(error(&at("zeros"), Kind::Regular).contains("it is a character device"));
        let made = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
        assert!(made.success());
        assert!(error(&at("pipe"), Kind::Regular).contains("it is a pipe"));
    }

    #[test]
    fn a_text_has_to_be_utf_8() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("text");
        std::fs::write(&path, "Zürich").unwrap();
        assert_eq!(read_text(&path, "it", 100, Kind::Any).unwrap(), "Zürich");
        std::fs::write(&path, [0xff]).unwrap();
        assert!(format!("{:#}", read_text(&path, "it", 100, Kind::Any).unwrap_err()).contains("utf-8"));
    }
}
