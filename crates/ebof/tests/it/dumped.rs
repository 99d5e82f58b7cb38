//! What is left of keys in a core dump of a target that has used them.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use crate::program::{alone, ebof};
use crate::rights::private;
use crate::serving::Serving;

const PROVEN: &str = "nqn.2014-08.org.example:proven";
const SEALED: &str = "nqn.2014-08.org.example:sealed";
const DRIVE: &str = "nqn.2014-08.org.example:drive";
/// Has its keys in files.
const CONFIGURED: &str = "nqn.2014-08.org.example:blade1";
/// Was given them.
const GIVEN: &str = "nqn.2014-08.org.example:blade2";

/// A key that is nowhere but where a target has put it.
struct Marked {
    name: &'static str,
    bytes: [u8; 32],
    /// As it is in its file.
    text: Vec<u8>,
}

/// Each with the verb that makes its file of 64 digits; a drive's is as it is.
const FILES: [(&str, Option<&str>); 6] = [
    ("dhchap", Some("gen-dhchap-key")),
    ("dhchap-ctrl", Some("gen-dhchap-key")),
    ("psk", Some("gen-tls-key")),
    ("drive", None),
    ("given-dhchap", Some("gen-dhchap-key")),
    ("given-psk", Some("gen-tls-key")),
];

/// Keys of this test alone, each in its file.
fn marked(directory: &Path) -> Vec<Marked> {
    let mut random = [0; FILES.len() * 32];
    File::open("/dev/urandom").unwrap().read_exact(&mut random).unwrap();
    let keys = FILES.into_iter().zip(random.as_chunks::<32>().0);
    let keys = keys.map(|((name, verb), bytes)| {
        let text = verb.map_or(bytes.to_vec(), |verb| {
            let made = ebof(directory).args([verb, "--hmac", "1", "--secret", &hexadecimal(bytes)]).output().unwrap();
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            made.stdout
        });
        private(&directory.join(name), &text);
        Marked { name, bytes: *bytes, text }
    });
    keys.collect()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn configuration() -> String {
    format!(
        "[[ports]]\nname = \"open\"\nlisten = \"tcp://127.0.0.1:0\"\n\
         [[ports]]\nname = \"sealed\"\nlisten = \"tcp://127.0.0.1:0\"\ntls = \"required\"\n\
         [[hosts]]\nnqn = \"{CONFIGURED}\"\ndhchap_key = {{ file = \"dhchap\" }}\n\
         dhchap_ctrl_key = {{ file = \"dhchap-ctrl\" }}\ntls_psk = {{ file = \"psk\" }}\n\
         [[drives]]\nname = \"d0\"\nbacking = \"d0.img\"\nsize = \"64Mi\"\nencryption = true\nkey_file = \"drive\"\n\
         [[subsystems]]\nnqn = \"{PROVEN}\"\nallow_any_host = true\nports = [\"open\"]\n\
         security = \"authenticated\"\nnamespaces = [\"mem:1Mi\"]\n\
         [[subsystems]]\nnqn = \"{SEALED}\"\nallow_any_host = true\nports = [\"sealed\"]\nsecurity = \"tls\"\n\
         namespaces = [\"mem:1Mi\"]\n\
         [[subsystems]]\nnqn = \"{DRIVE}\"\nallow_any_host = true\nports = [\"open\"]\ndrive = \"d0\"\n"
    )
}

/// A target that leaves a dump behind when it crashes, as none of the package does.
fn serve(directory: &Path) -> Serving {
    let mut command = Command::new("sh");
    alone(&mut command, directory);
    let program: &OsStr = env!("CARGO_BIN_EXE_ebof").as_ref();
    command.args(["-c", "ulimit -c unlimited && exec \"$0\" \"$@\""]).arg(program);
    command.args(["serve", "--config", "a.toml", "--state", "state", "--create", "-o", "json"]);
    command.args(["--control", "control.sock", "--confine", "none"]);
    Serving::start(command, directory)
}

/// Why there would be no dump in the directory of a process, if so.
fn no_dump() -> Option<String> {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Core).maximum;
    let is_here = !pattern.trim().is_empty() && !pattern.starts_with(['|', '/']);
    if !is_here {
        return Some(format!("core dumps go elsewhere here ({})", pattern.trim()));
    }
    limit.is_some().then(|| "core dumps are limited here (`ulimit -H -c`)".to_owned())
}

/// A host that connects to one of the ports.
fn connects(serving: &Serving, port: usize, nqn: &str, more: &[&str]) {
    let listening = serving.started["listening"][port].as_str().unwrap();
    let mut command = ebof(&serving.directory);
    let output = command.args(["id-ctrl", &format!("nvme+{listening}/{nqn}")]).args(more).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn has(dump: &[u8], part: &[u8]) -> bool {
    let (first, length) = (part[0], part.len());
    let mut rest = dump;
    while let Some(at) = rest.iter().position(|byte| *byte == first) {
        rest = &rest[at..];
        if rest.get(..length) == Some(part) {
            return true;
        }
        rest = &rest[1..];
    }
    false
}

// @test keys.dumped
#[test]
fn no_key_is_in_a_core_dump_of_a_target() {
    if let Some(why) = no_dump() {
        println!("SKIPPED: {why}");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let keys = marked(directory.path());
    std::fs::write(directory.path().join("a.toml"), configuration()).unwrap();
    let serving = serve(directory.path());
    for (kind, file) in [("dhchap", "given-dhchap"), ("tls", "given-psk")] {
        serving.told(&["target", "add", "key", GIVEN, "--kind", kind, "--key-file", file]);
    }
    serving.terminate();
    // One that has read them all, and has used them.
    let mut serving = serve(directory.path());
    for (host, secret, psk) in [(CONFIGURED, "dhchap", "psk"), (GIVEN, "given-dhchap", "given-psk")] {
        connects(&serving, 0, PROVEN, &["--hostnqn", host, "--dhchap-secret-file", secret]);
        let secrets = ["--hostnqn", host, "--dhchap-secret-file", secret, "--tls", "--tls-key-file", psk];
        connects(&serving, 1, SEALED, &secrets);
    }
    let mutual = ["--hostnqn", CONFIGURED, "--dhchap-secret-file", "dhchap"];
    connects(&serving, 0, PROVEN, &[&mutual[..], &["--dhchap-ctrl-secret-file", "dhchap-ctrl"]].concat());
    kill_process(Pid::from_child(&serving.child), Signal::ABORT).unwrap();
    let status = serving.child.wait().unwrap();
    assert!(status.core_dumped(), "{status}");
    let files = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let dump = files.into_iter().find(|path| name(path).contains("core")).expect("the dump is in its directory");
    let dump = std::fs::read(dump).unwrap();
    assert!(has(&dump, GIVEN.as_bytes()) && has(&dump, PROVEN.as_bytes()), "the dump has what is no secret");
    let mut found = Vec::new();
    for Marked { name, bytes, text } in &keys {
        let hex = hexadecimal(bytes);
        let halves = [("its first half", &bytes[..16]), ("its second half", &bytes[16..])];
        let parts = [("its text", text.get(18..44).unwrap_or(text)), ("it in hexadecimal", hex.as_bytes())];
        let parts = halves.into_iter().chain(parts).filter(|(_, part)| has(&dump, part));
        found.extend(parts.map(|(part, _)| format!("{name}: {part}")));
    }
    assert!(found.is_empty(), "the dump has {found:#?}");
}

// @test keys.locked
#[test]
fn that_keys_may_be_swapped_is_told_once_with_what_to_raise() {
    let directory = tempfile::tempdir().unwrap();
    marked(directory.path());
    std::fs::write(directory.path().join("a.toml"), configuration()).unwrap();
    let mut command = Command::new("prlimit");
    alone(&mut command, directory.path());
    command.arg("--memlock=0:0");
    if rustix::process::geteuid().is_root() {
        // Who may lock memory has no limit.
        command.args(["setpriv", "--inh-caps=-ipc_lock", "--bounding-set=-ipc_lock"]);
    }
    if Command::new("setpriv").arg("--version").output().is_err() || Command::new("prlimit").output().is_err() {
        println!("SKIPPED: no setpriv or prlimit");
        return;
    }
    command.args([env!("CARGO_BIN_EXE_ebof"), "serve", "--config", "a.toml", "--state", "state", "--create"]);
    command.args(["-o", "json", "--control", "control.sock"]);
    let log = File::create(directory.path().join("log")).unwrap();
    let serving = Serving::start_with_log(command, directory.path(), log);
    serving.told(&["target", "add", "key", GIVEN, "--key-file", "given-dhchap"]);
    let log = std::fs::read_to_string(directory.path().join("log")).unwrap();
    let told = "keys may be swapped to a disk, because their memory cannot be locked";
    assert_eq!(log.matches(told).count(), 1, "{log}");
    assert!(log.contains("LimitMEMLOCK= of systemd"), "{log}");
    let status = serving.told(&["target", "status"]);
    assert!(status.contains("UNPROTECTED KEYS: ") && status.contains(told), "{status}");
    serving.terminate();
    // It is not told where they are locked.
    let serving = serve(directory.path());
    assert!(!serving.told(&["target", "status"]).contains("UNPROTECTED"));
}
