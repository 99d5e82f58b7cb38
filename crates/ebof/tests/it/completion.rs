//! Completions as a shell asks for them, in bash itself where there is one.

use std::process::Command;

fn complete(shell: &str, state: &std::path::Path, words: &[&str]) -> String {
    let index = (words.len() - 1).to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_ebof"))
        .arg("--")
        .args(words)
        .envs([("COMPLETE", shell), ("_CLAP_COMPLETE_INDEX", &index), ("_CLAP_IFS", "\n")])
        .env("EBOF_STATE_DIR", state)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A connected controller, as a daemon that was killed leaves it.
fn connected(state: &std::path::Path) {
    let directory = state.join("nvme3");
    std::fs::create_dir(&directory).unwrap();
    let request = r#"{"traddr":"192.0.2.77","nqn":"nqn.2014-08.org.example:there"}"#;
    std::fs::write(directory.join("request.json"), request).unwrap();
}

#[test]
fn a_shell_gets_verbs_options_devices_nqns_and_addresses() {
    let state = tempfile::tempdir().unwrap();
    connected(state.path());
    let has = |words: &[&str], expected: &str| {
        let answer = complete("bash", state.path(), words);
        assert!(answer.lines().any(|line| line.trim() == expected), "{words:?}: {answer}");
    };
    has(&["ebof", "conn"], "connect-all");
    has(&["ebof", "connect", "--ctrl"], "--ctrl-loss-tmo");
    has(&["ebof", "disconnect", "-d", "nv"], "nvme3");
    has(&["ebof", "connect", "-a", "192"], "192.0.2.77");
    has(&["ebof", "connect", "--nqn", "nqn"], "nqn.2014-08.org.example:there");
    has(&["ebof", "id-ctrl", ""], "nvme3");
}

#[test]
fn bash_completes_after_it_has_read_the_registration() {
    let state = tempfile::tempdir().unwrap();
    connected(state.path());
    let registered = Command::new(env!("CARGO_BIN_EXE_ebof")).args(["completions", "bash"]).output().unwrap();
    let script = state.path().join("ebof.bash");
    std::fs::write(&script, registered.stdout).unwrap();
    // What readline does: the function that is registered, with the words of the line.
    let ask = r#"source "$1"; COMP_WORDS=(ebof disconnect -d nv); COMP_CWORD=3; COMP_TYPE=9
        name=$(complete -p ebof | sed 's/.*-F \([^ ]*\).*/\1/'); "$name" ebof nv -d; printf '%s\n' "${COMPREPLY[@]}""#;
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_ebof")).parent().unwrap().to_owned();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-c", ask, "bash"])
        .arg(&script)
        .env("PATH", path)
        .env("EBOF_STATE_DIR", state.path())
        .output()
        .unwrap();
    let answer = String::from_utf8_lossy(&output.stdout);
    assert!(answer.lines().any(|line| line.trim() == "nvme3"), "{answer}{}", String::from_utf8_lossy(&output.stderr));
}
