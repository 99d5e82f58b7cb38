//! What fio said when it failed, as an error that says what to do.

use super::{EngineError, Finish, Load, Words};

/// The most of fio's words that an error repeats.
const SAID_MAX: usize = 600;

/// How the line of a failed operation begins.
const FAILED: &str = "fio: io_u error on file";

/// fio's words, and what they are about.
pub(super) struct Told<'a> {
    load: &'a Load<'a>,
    command: &'a [String],
    said: String,
}

impl<'a> Told<'a> {
    pub(super) fn new(load: &'a Load<'a>, command: &'a [String], end: Finish, words: &Words) -> Self {
        Self { load, command, said: said(end, words) }
    }

    /// `fio on /dev/nvme0n1 (randread, 4096 bytes)`.
    pub(super) fn what(&self) -> String {
        let job = self.load.jobs.first().map(|job| format!(" ({}, {} bytes)", job.rw, job.block_bytes));
        format!("fio on {}{}", self.load.place.name(), job.unwrap_or_default())
    }

    pub(super) fn said(&self) -> String {
        self.said.clone()
    }

    pub(super) fn failed(self) -> EngineError {
        let todo = todo(&self.said);
        EngineError::Failed { what: self.what(), tried: self.command.join(" "), said: self.said, todo }
    }

    pub(super) fn unreadable(self, why: String) -> EngineError {
        let todo = "is the directory of the report full? run the command by hand to see what it prints";
        EngineError::Output { what: self.what(), why, tried: self.command.join(" "), said: self.said, todo }
    }
}

/// Those of fio's lines that tell of a failure, each once, up to a limit.
fn said(end: Finish, words: &Words) -> String {
    let mut lines: Vec<&str> = Vec::new();
    for line in words.lines() {
        // Not of interest: what it is about to do, and that it was asked to end.
        let is_noise =
            line == "..." || line.contains(": (g=") || line.starts_with("Starting ") || line.starts_with("fio-");
        // Each outstanding operation has a line when a device fails.
        let is_repeated = line.starts_with(FAILED) && lines.iter().any(|line| line.starts_with(FAILED));
        if !is_noise && !is_repeated && !line.contains("terminating on signal 2") && !lines.contains(&line) {
            lines.push(line);
        }
    }
    let reason = end.reason();
    lines.extend(reason.as_deref());
    let mut text = lines.join("; ");
    if text.is_empty() {
        return "nothing".to_owned();
    }
    if text.len() > SAID_MAX {
        let cut = (0..=SAID_MAX).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(cut);
        text.push_str(" ...");
    }
    text
}

/// What helps against what fio says, the most telling words first.
const TODO: [(&str, &str); 16] = [
    ("No space left", "make room in the directory of the report, then resume the run"),
    ("output file open error", "check the directory of the report: is it there, and may this user write to it?"),
    ("engine", "this fio lacks the I/O engine: see `fio --enghelp`"),
    ("unrecognized option", "this fio is too old or too new for an option: fio 3.31 and later have all of them"),
    ("Read-only file system", "the device is write protected: measure reads only, or permit writing to it"),
    ("read-only", "the device is write protected: measure reads only, or permit writing to it"),
    ("Permission denied", "run it as root, or give this user access to the device"),
    ("Operation not permitted", "run it as root, or permit writing to the device"),
    ("need to specify size", "the device is not there, or has no bytes: check its name, and the kernel's log"),
    ("allow_file_create", "the device is not there: check its name, and the kernel's log if it was there before"),
    (
        "No such file or directory",
        "the device is not there: check its name, and the kernel's log if it was there before",
    ),
    ("No such device", "the device has vanished: look into the kernel's log"),
    ("Invalid argument", "the device does not take this block size with O_DIRECT, or its file system has no O_DIRECT"),
    ("Input/output error", "the device reported an error: look into the kernel's log, or the target's"),
    ("Connection refused", "nothing listens there: start the server, or correct the address"),
    ("did not end in time", "the device does not answer: look into the kernel's log, or the target's"),
];

fn todo(said: &str) -> &'static str {
    if said.contains("to do:") {
        return "what the engine says";
    }
    // An engine prints its own words about a connection; only a failure to load it is meant here.
    let known = TODO.iter().find(|(words, _)| {
        said.contains(words) && (*words != "engine" || said.contains("not loadable") || said.contains("load engine"))
    });
    known.map_or("run the command by hand to see all that it prints", |(_, todo)| todo)
}
