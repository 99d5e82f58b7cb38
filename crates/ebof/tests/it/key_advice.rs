//! What verbs say of keys that are not there or not where they are needed, and of options that
//! would have no effect.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use crate::program::ebof;
use crate::serving::Serving;

const HOST: &str = "nqn.2014-08.org.example:blade1";
const NQN: &str = "nqn.2014-08.org.example:locked";
const SECRET: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

/// Exit status, standard output and standard error.
fn run(directory: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = ebof(directory).args(arguments).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn put(directory: &Path, name: &str, content: &str, mode: u32) {
    fs::write(directory.join(name), content).unwrap();
    fs::set_permissions(directory.join(name), Permissions::from_mode(mode)).unwrap();
}

#[test]
fn options_about_an_identity_say_that_they_need_a_subsystem() {
    let directory = tempfile::tempdir().unwrap();
    let (status, key, told) = run(directory.path(), &["gen-tls-key", "-n", HOST, "-I", "1", "-C"]);
    assert_eq!((status, key.lines().count()), (Some(0), 1));
    assert!(told.contains("no effect without --subsysnqn: --hostnqn, --identity, --compat"), "{told}");
    let (status, _, told) = run(directory.path(), &["check-tls-key", "--keydata", key.trim(), "-I", "0"]);
    assert_eq!(status, Some(0));
    assert!(told.contains("no effect without --subsysnqn: --identity ("), "{told}");
    let (_, _, told) = run(directory.path(), &["check-tls-key", "--keydata", key.trim()]);
    assert_eq!(told, "");
    // With one, they have: the key is still all that is on standard output.
    let between = ["gen-tls-key", "-c", NQN, "-n", HOST];
    let (_, key, told) = run(directory.path(), &between);
    assert!(key.starts_with("NVMeTLSkey-1:01:") && key.lines().count() == 1, "{key}");
    assert!(told.contains(&format!("its identity is NVMe1R01 {HOST} {NQN} ")), "{told}");
    let (_, shown, told) = run(directory.path(), &[&between[..], &["-o", "json"]].concat());
    assert!(shown.contains("\"identity\": \"NVMe1R01") && told.is_empty(), "{shown}{told}");
}

#[test]
fn hashes_and_lengths_of_keys_are_named() {
    let directory = tempfile::tempdir().unwrap();
    for hash in ["0", "3"] {
        let (status, _, told) = run(directory.path(), &["gen-tls-key", "-m", hash]);
        assert_eq!(status, Some(2));
        assert!(told.contains("hash 1 (SHA-256, 32 bytes) or 2 (SHA-384, 48 bytes)"), "{told}");
    }
    let (_, key, _) = run(directory.path(), &["gen-tls-key"]);
    let other = key.trim().replace("-1:01:", "-1:02:");
    let (status, _, told) = run(directory.path(), &["check-tls-key", "--keydata", &other]);
    assert_eq!(status, Some(2));
    assert!(told.contains("36 bytes with its checksum, and one with hash 02 has 52"), "{told}");
}

#[test]
fn discovery_makes_no_key_by_authentication() {
    let directory = tempfile::tempdir().unwrap();
    put(directory.path(), "key", SECRET, 0o600);
    let options = ["-a", "127.0.0.1", "-s", "1", "--concat", "--dhchap-secret-file", "key"];
    let (status, _, told) = run(directory.path(), &[&["discover"], &options[..]].concat());
    assert_eq!(status, Some(2), "{told}");
    assert!(told.contains("discovery services authenticate nobody") && told.contains("--tls-key-file"), "{told}");
    let (_, _, told) = run(directory.path(), &[&["connect-all"], &options[..]].concat());
    assert!(told.contains("warning: the discovery log is read without TLS"), "{told}");
}

#[test]
fn options_beside_a_file_of_connections_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    put(directory.path(), "connections.toml", "", 0o644);
    put(directory.path(), "key", SECRET, 0o600);
    let file = ["connect-all", "--connections", "connections.toml"];
    for more in [&["--tls"][..], &["--dhchap-secret-file", "key"], &["-S", SECRET], &["-i", "4"], &["-t", "rdma"]] {
        let (status, _, told) = run(directory.path(), &[&file[..], more].concat());
        assert_eq!(status, Some(2), "{more:?}: {told}");
        assert!(told.contains("with --connections, options of connections have no effect"), "{told}");
    }
}

#[test]
fn options_of_connections_beside_what_is_connected_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    put(directory.path(), "key", SECRET, 0o600);
    for line in [
        &["id-ctrl", "nvme0", "--tls", "--tls-key-file", "key"][..],
        &["smart-log", "/dev/ublkb0", "--dhchap-secret-file", "key"],
        &["bench", "mem:16Mi", "--tls"],
    ] {
        let (status, _, told) = run(directory.path(), line);
        assert_eq!(status, Some(2), "{line:?}: {told}");
        assert!(told.contains("is no URI, and options of connections have no effect on it"), "{told}");
    }
}

#[test]
fn a_secret_of_the_subsystem_goes_with_each_form_of_the_host_s() {
    let directory = tempfile::tempdir().unwrap();
    put(directory.path(), "key", SECRET, 0o600);
    let line = ["connect", "-a", "127.0.0.1", "-s", "1", "-n", NQN, "--dhchap-ctrl-secret-file", "key"];
    let (status, _, told) = run(directory.path(), &line);
    assert_eq!(status, Some(2), "{told}");
    for own in [["--dhchap-secret-file", "key"], ["--dhchap-secret", SECRET]] {
        let (status, _, told) = run(directory.path(), &[&line[..], &own].concat());
        assert!(status == Some(1) && told.contains("nobody listens there"), "{told}");
    }
}

#[test]
fn a_configuration_is_checked_with_the_files_of_its_keys() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("keys")).unwrap();
    let (_, psk, _) = run(directory.path(), &["gen-tls-key"]);
    for (name, content, mode) in [
        ("good", SECRET, 0o600),
        ("open", SECRET, 0o644),
        ("empty", "# none\n", 0o600),
        ("psk", &psk, 0o600),
        ("two", &format!("{SECRET}\n{SECRET}\n"), 0o600),
    ] {
        put(&directory.path().join("keys"), name, content, mode);
    }
    let check = |hosts: &str| {
        let text =
            format!("[[hosts]]\nnqn = \"{HOST}\"\n{hosts}\n[[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\n");
        put(directory.path(), "ebof.toml", &text, 0o644);
        // Paths are relative to the configuration, wherever it is checked.
        let path = directory.path().join("ebof.toml");
        run(Path::new("/"), &["config", "check", path.to_str().unwrap()])
    };
    let (status, told, _) = check("dhchap_key = { file = \"keys/good\" }");
    assert!(status == Some(0) && told.ends_with("ok (1 port, 1 host, 1 subsystem, 0 namespaces)\n"), "{told}");
    let (status, told, _) = check("dhchap_key = { file = \"keys/none\" }");
    assert!(status == Some(0) && told.contains("warning:") && told.contains("No such file"), "{told}");
    assert!(told.contains("ebof.toml:3:14"), "{told}");
    for (place, why) in [
        ("dhchap_key = { file = \"keys/open\" }", "others than its owner may read or change it (mode 644)"),
        ("dhchap_key = { file = \"keys/empty\" }", "there is no key in it"),
        ("dhchap_key = { file = \"keys/psk\" }", "line 1: this is a key for TLS"),
        ("tls_psk = { file = \"keys/good\" }", "line 1: this is a secret for DH-HMAC-CHAP"),
        (
            "dhchap_key = { file = \"keys/good\" }\ndhchap_ctrl_key = { file = \"keys/two\" }",
            "there are more than 1 keys in it",
        ),
    ] {
        let (status, told, complaint) = check(place);
        assert!(status == Some(1) && complaint.contains(why), "{place}: {told}{complaint}");
        assert!(!complaint.contains("AAEC"), "{complaint}");
    }
    // What only the service has is not looked for.
    let (status, told, _) = check("dhchap_key = { credential = \"blade1\" }");
    assert!(status == Some(0) && !told.contains("warning"), "{told}");
}

#[test]
fn names_that_a_target_does_not_have_are_remarked_on() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = ebof(directory.path());
    command.args(["serve", "mem:64Mi", "--nqn", NQN, "--host", HOST, "--listen", "tcp://127.0.0.1:0", "-o", "json"]);
    command.args(["--control", "control.sock", "--state", "state", "--https", "127.0.0.1:0"]);
    let serving = Serving::start(command, directory.path());
    let told = serving.told(&["target", "add", "key", HOST, "--output-file", "one"]);
    assert!(!told.contains("no host of this NQN"), "{told}");
    let told = serving.told(&["target", "add", "key", "nqn.2014-08.org.example:blade2", "--output-file", "two"]);
    assert!(told.contains("the configuration has no host of this NQN"), "{told}");
    // The advice leads to its end.
    assert!(told.contains("ebof target add host nqn.2014-08.org.example:blade2 --subsystem NQN"), "{told}");
    serving.told(&["target", "add", "host", "nqn.2014-08.org.example:blade2", "--subsystem", NQN, "--yes"]);
    put(directory.path(), "password", "a long enough password\n", 0o600);
    let add = |name: &str, subsystem: &str| {
        let words = ["target", "account", "add", name, "--role", "Operator", "--subsystem", subsystem];
        let output = serving.run(&[&words[..], &["--new-password-file", "password"]].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(add("anna", NQN), "");
    let told = add("berta", "nqn.2014-08.org.example:lockd");
    assert!(told.contains("the target has no subsystem nqn.2014-08.org.example:lockd now"), "{told}");
}

#[test]
fn a_copy_of_a_log_is_no_target_s() {
    let directory = tempfile::tempdir().unwrap();
    let audit = ["audit", "--verify", "--directory", "."];
    for more in [&["--server", "https://127.0.0.1:1"][..], &["--control", "x"], &["--user", "anna"]] {
        // Before and behind the verb.
        for line in [[&["target"], more, &audit[..]].concat(), [&["target"], &audit[..], more].concat()] {
            let (status, _, told) = run(directory.path(), &line);
            assert_eq!(status, Some(2), "{line:?}: {told}");
            assert!(told.contains("--directory reads files here, and a target is named, too"), "{told}");
        }
    }
}
