//! What verbs say of keys that are not there or not where they are needed, and of options that
//! would have no effect.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use crate::program::ebof;

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
