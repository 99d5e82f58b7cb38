//! The examples of the library (`crates/ebof/examples`) do what they say, one with the other.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[expect(dead_code, reason = "it is a program: its test is run here")]
#[path = "../../examples/target_in_a_test.rs"]
mod target_in_a_test;

/// An example. Cargo puts them in a directory beside the programs.
pub(crate) fn example(name: &str) -> Command {
    let directory = Path::new(env!("CARGO_BIN_EXE_ebof")).parent().map(|directory| directory.join("examples"));
    let program: PathBuf = directory.unwrap().join(name);
    assert!(program.is_file(), "{} is missing: cargo build -p ebof --example {name}", program.display());
    Command::new(program)
}

/// What an example prints.
fn printed(name: &str, arguments: &[&str]) -> String {
    let output = example(name).args(arguments).output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_one_example_serves_the_others_reach() {
    let mut serve = example("serve").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut uri = String::new();
    BufReader::new(serve.stdout.take().unwrap()).read_line(&mut uri).unwrap();
    let uri = uri.trim();
    assert!(uri.starts_with("nvme+tcp://127.0.0.1:"), "{uri}");
    let told = printed("connect", &[uri]);
    assert!(told.contains("131072 blocks of 512 bytes") && told.contains("4096 bytes are back: true"), "{told}");
    assert_eq!(printed("asynchronous", &[uri]), "16384 bytes were read\n");
    // Twice by one address: two controllers.
    assert_eq!(printed("paths", &[uri, uri]), "16384 bytes were read over 2 paths\n");
    drop(serve.stdin.take());
    assert!(serve.wait().unwrap().success());
    for name in ["connect", "asynchronous", "paths"] {
        let output = example(name).output().unwrap();
        assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("nvme+tcp://HOST"));
    }
}
