//! The password of a user: from a file, the environment, or the terminal, where it is not shown.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::failure::Failure;
use crate::file::Kind;

/// The variable of the environment with the password.
const VARIABLE: &str = "EBOF_PASSWORD";

/// The largest file with a password.
const FILE_BYTES_MAX: u64 = 4096;

/// Reads a password from a file's first line, `$EBOF_PASSWORD` or the terminal.
pub(crate) fn read(file: Option<&Path>, question: &str) -> Result<String, Failure> {
    if let Some(file) = file {
        return of_file(file);
    }
    if let Ok(password) = std::env::var(VARIABLE) {
        return Ok(password);
    }
    ask(question, &format!("say --password-file FILE, or set {VARIABLE}"))
}

/// The password in a file: its first line.
pub(crate) fn of_file(file: &Path) -> Result<String, Failure> {
    let text = crate::file::read_text(file, "the password", FILE_BYTES_MAX, Kind::Any);
    let text = text.map_err(|error| Failure::new("io", format!("{error:#}"), "name a file that you may read"))?;
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    // The file of a target's first account is one of its state directory, with a line before.
    let is_of_target = first.starts_with("# ebof-state ");
    Ok(if is_of_target { lines.next().unwrap_or_default() } else { first }.to_owned())
}

/// Asks at the terminal, without showing what is typed. `instead` is what to do where there is
/// none.
pub(crate) fn ask(question: &str, instead: &str) -> Result<String, Failure> {
    let input = std::io::stdin();
    if !input.is_terminal() || !std::io::stderr().is_terminal() {
        let advice = format!("standard input is no terminal, so that nobody can be asked: {instead}");
        return Err(Failure::new("no-password", "there is no password", advice));
    }
    // Before it is asked for: what is typed at once is not shown, either.
    let hidden = Hidden::new();
    let _unseen = write!(std::io::stderr().lock(), "{question}");
    let mut line = String::new();
    let read = input.lock().read_line(&mut line);
    drop(hidden);
    let _unseen = writeln!(std::io::stderr().lock());
    let bytes = read.map_err(|error| Failure::new("io", format!("reading the password: {error}"), "type it again"))?;
    if bytes == 0 {
        return Err(Failure::new("no-password", "the input ended without a password", "type it, and press Enter"));
    }
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// Typed characters are not shown until it is dropped.
struct Hidden(Option<Termios>);

impl Hidden {
    fn new() -> Self {
        let Ok(before) = tcgetattr(std::io::stdin()) else { return Self(None) };
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        let done = tcsetattr(std::io::stdin(), OptionalActions::Now, &hidden);
        Self(done.is_ok().then_some(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _done = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// RFC 4648, Base 64 Encoding.
pub(super) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0_u32, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - group.len()));
        for digit in 0..4 {
            let value = usize::try_from(bits >> (18 - 6 * digit) & 63).unwrap_or_default();
            text.push(if digit <= group.len() { char::from(ALPHABET[value]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        let pairs =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE=")];
        for (bytes, text) in pairs {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(b"foobar"), "Zm9vYmFy");
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
    }

    #[test]
    fn a_password_is_the_first_line_of_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("password");
        for text in
            ["correct horse", "correct horse\n", "correct horse\r\nmore\n", "# ebof-state 1 14 00\ncorrect horse\n"]
        {
            std::fs::write(&file, text).unwrap();
            assert_eq!(of_file(&file).unwrap(), "correct horse");
        }
        assert!(of_file(&directory.path().join("none")).unwrap_err().to_string().contains("none"));
    }
}
