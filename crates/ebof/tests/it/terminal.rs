//! What `ebof target --server` asks at a terminal: whether a certificate is the right one, and the
//! password. util-linux's `script` is the terminal.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::https::{Managed, PASSWORD};

/// Longer than any answer takes, even on a busy machine.
const LONG: Duration = Duration::from_secs(30);

/// The program at a terminal.
pub(crate) struct Terminal {
    child: Child,
    output: Receiver<Vec<u8>>,
    shown: String,
}

impl Terminal {
    /// `ebof target status`, as somebody types it.
    fn status(target: &Managed) -> Self {
        let arguments = format!("target status --server {} --user boss", target.server);
        let mut script = Command::new("script");
        script.current_dir(&target.serving.directory).env("HOME", &target.serving.directory);
        Self::start(script, &arguments)
    }

    /// The program with these arguments, in the environment of a command `script`.
    pub(crate) fn start(mut script: Command, arguments: &str) -> Self {
        let line = format!("'{}' {arguments}", env!("CARGO_BIN_EXE_ebof"));
        let mut child = script
            .args(["-q", "-e", "-c", &line, "/dev/null"])
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("EBOF_PASSWORD")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut chunk = [0; 1024];
            while let Ok(bytes @ 1..) = stdout.read(&mut chunk) {
                if sender.send(chunk[..bytes].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, output, shown: String::new() }
    }

    /// Waits until something is shown.
    pub(crate) fn shows(&mut self, text: &str) -> &mut Self {
        while !self.shown.contains(text) {
            match self.output.recv_timeout(LONG) {
                Ok(bytes) => self.shown += &String::from_utf8_lossy(&bytes),
                Err(_) => panic!("`{text}` is not shown, but: {}", self.shown),
            }
        }
        self
    }

    pub(crate) fn types(&mut self, keys: &str) -> &mut Self {
        self.child.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
        self
    }

    /// Its exit code, and all that was shown.
    pub(crate) fn ends(mut self) -> (i32, String) {
        while let Ok(bytes) = self.output.recv_timeout(LONG) {
            self.shown += &String::from_utf8_lossy(&bytes);
        }
        let code = self.child.wait().unwrap().code().unwrap();
        (code, std::mem::take(&mut self.shown))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A target with an administrator `boss`, and the file of targets that are known.
fn target(directory: &tempfile::TempDir) -> (Managed, PathBuf) {
    let target = Managed::start(directory.path());
    target.add_user("boss", "Administrator");
    (target, directory.path().join(".config/ebof/known_targets"))
}

const QUESTION: &str = "Type yes: ";
const ASKED: &str = "Password of boss at ";

#[test]
fn a_certificate_is_trusted_by_yes_and_the_password_is_not_shown() {
    let directory = tempfile::tempdir().unwrap();
    let (target, known) = target(&directory);
    for answer in ["no\n", "y\n", "\n", "\u{4}"] {
        let mut terminal = Terminal::status(&target);
        terminal.shows(&target.fingerprint).shows(QUESTION).types(answer);
        let (code, shown) = terminal.ends();
        assert!(code == 1 && shown.contains("the answer was not yes: nothing was sent"), "{answer:?}: {shown}");
        assert!(!shown.contains(ASKED) && !known.exists(), "{shown}");
    }
    let mut terminal = Terminal::status(&target);
    terminal.shows(QUESTION).types("yes\n").shows(ASKED).types("wrong horse\n");
    let (code, shown) = terminal.ends();
    assert!(code == 1 && shown.contains("name, password or session are wrong"), "{shown}");
    assert!(!shown.contains("wrong horse"), "{shown}");
    // It is trusted all the same: nobody asks again.
    let place = target.server.strip_prefix("https://").unwrap();
    assert_eq!(std::fs::read_to_string(&known).unwrap(), format!("{place} {}\n", target.fingerprint));
    assert_eq!(known.metadata().unwrap().mode() & 0o777, 0o600);
    let mut terminal = Terminal::status(&target);
    terminal.shows(ASKED).types(&format!("{PASSWORD}\n"));
    let (code, shown) = terminal.ends();
    assert!(code == 0 && shown.contains("nqn.2014-08.org.example:https"), "{shown}");
    assert!(!shown.contains(PASSWORD) && !shown.contains(QUESTION), "{shown}");
    // The end of the input is no password.
    let mut terminal = Terminal::status(&target);
    terminal.shows(ASKED).types("\u{4}");
    let (code, shown) = terminal.ends();
    assert!(code == 1 && shown.contains("the input ended without a password"), "{shown}");
}

#[test]
fn a_certificate_that_has_changed_is_told_before_a_password_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let (target, known) = target(&directory);
    std::fs::create_dir_all(known.parent().unwrap()).unwrap();
    let place = target.server.strip_prefix("https://").unwrap();
    let other = "AB:".repeat(31) + "AB";
    let text = format!("# mine\n{place} {other}\n");
    std::fs::write(&known, &text).unwrap();
    let (code, shown) = Terminal::status(&target).ends();
    assert!(code == 1 && shown.contains("HAS CHANGED") && shown.contains("line 2"), "{shown}");
    assert!(shown.contains(&target.fingerprint) && shown.contains(&other), "{shown}");
    assert!(!shown.contains(ASKED) && !shown.contains(QUESTION), "{shown}");
    assert_eq!(std::fs::read_to_string(&known).unwrap(), text);
    // A file that says something else is told, and stays.
    for damaged in [&format!("{place} hello\n")[..], "\u{0}\u{1}\n"] {
        std::fs::write(&known, damaged).unwrap();
        let mut terminal = Terminal::status(&target);
        if damaged.contains("hello") {
            let (code, shown) = terminal.ends();
            assert!(code == 1 && shown.contains("line 1 has no fingerprint"), "{shown}");
        } else {
            terminal.shows(QUESTION).types("no\n");
            assert_eq!(terminal.ends().0, 1);
        }
        assert_eq!(std::fs::read_to_string(&known).unwrap(), damaged);
    }
    std::fs::remove_file(&known).unwrap();
    std::fs::create_dir(&known).unwrap();
    let (code, shown) = Terminal::status(&target).ends();
    assert!(code == 1 && shown.contains("known_targets") && shown.contains("mend it, or move it away"), "{shown}");
}
