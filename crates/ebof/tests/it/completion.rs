//! Completions as a shell asks for them, and in the shells themselves where they are.

use std::path::Path;
use std::process::Command;

fn complete(shell: &str, state: &Path, words: &[&str]) -> String {
    let index = (words.len() - 1).to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_ebof"))
        .arg("--")
        .args(words)
        .envs([("COMPLETE", shell), ("_CLAP_COMPLETE_INDEX", &index), ("_CLAP_IFS", "\n")])
        .env("EBOF_RUNTIME_DIR", state)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A connected controller, as a daemon that was killed leaves it.
fn connected(state: &Path) {
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

/// Whether a shell is here.
fn has(shell: &str) -> bool {
    Command::new(shell).arg("--version").output().is_ok()
}

/// A command of a shell, which finds the program and its completions in the file of this name.
fn ask(shell: &str, file: &str, state: &Path) -> Command {
    let registered = Command::new(env!("CARGO_BIN_EXE_ebof")).args(["completions", shell]).output().unwrap();
    std::fs::write(state.join(file), registered.stdout).unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_ebof")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(shell);
    command.env("PATH", path).env("EBOF_RUNTIME_DIR", state).env("HOME", state).env("TERM", "dumb").current_dir(state);
    command
}

#[test]
fn fish_completes_after_it_has_read_the_registration() {
    if !has("fish") {
        println!("SKIPPED: fish is not installed");
        return;
    }
    let state = tempfile::tempdir().unwrap();
    connected(state.path());
    let script = "source ebof.fish; complete -C 'ebof disconnect -d nv'; complete -C 'ebof connect --nqn nqn'";
    let output = ask("fish", "ebof.fish", state.path()).args(["-c", script]).output().unwrap();
    let answer = String::from_utf8_lossy(&output.stdout);
    let words: Vec<_> = answer.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(words, ["nvme3", "nqn.2014-08.org.example:there"], "{}", String::from_utf8_lossy(&output.stderr));
}

/// In a terminal, as it completes only there: with the file in $fpath, where a package has it.
#[test]
fn zsh_completes_with_the_first_key() {
    const DRIVER: &str = r#"
        zmodload zsh/zpty
        answer() { local all=; until [[ $all == *$1* ]]; do zpty -r inner part || break; all+=$part; done; print -r -- $all }
        zpty inner zsh -f -i
        zpty -w inner 'unsetopt zle_bracketed_paste; fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -D; print REA""DY'
        answer READY >/dev/null
        zpty -w -n inner $'ebof disconnect -d nv\t -x; print EN""D\r'
        answer END
        zpty -w -n inner $'ebof connect --nqn nqn.2\t -x; print EN""D\r'
        answer END"#;
    if !has("zsh") {
        println!("SKIPPED: zsh is not installed");
        return;
    }
    let state = tempfile::tempdir().unwrap();
    connected(state.path());
    let output = ask("zsh", "_ebof", state.path()).args(["-f", "-c", DRIVER]).output().unwrap();
    let answer = String::from_utf8_lossy(&output.stdout);
    for completed in ["me3", "014-08.org.example:there"] {
        assert!(answer.contains(completed), "{answer}{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn bash_completes_after_it_has_read_the_registration() {
    let state = tempfile::tempdir().unwrap();
    connected(state.path());
    // What readline does: the function that is registered, with the words of the line.
    let words = r#"source ebof.bash; COMP_WORDS=(ebof disconnect -d nv); COMP_CWORD=3; COMP_TYPE=9
        name=$(complete -p ebof | sed 's/.*-F \([^ ]*\).*/\1/'); "$name" ebof nv -d; printf '%s\n' "${COMPREPLY[@]}""#;
    let output = ask("bash", "ebof.bash", state.path()).args(["-c", words]).output().unwrap();
    let answer = String::from_utf8_lossy(&output.stdout);
    assert!(answer.lines().any(|line| line.trim() == "nvme3"), "{answer}{}", String::from_utf8_lossy(&output.stderr));
}
