//! What the program cannot have at its start comes in later, and nobody waits for it.

use std::path::Path;
use std::time::{Duration, Instant};

use ebof_initiator::{Controller, Options};
use ebof_nvme::{Nqn, Nsid};
use serde_json::Value;

use crate::program::ebof;
use crate::serving::Serving;

const NQN: &str = "nqn.2014-08.org.example:disks";

const TEXT: &str = "[target]\nhttps = \"127.0.0.1:0\"\n[[ports]]\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystems]]\n\
                    nqn = \"nqn.2014-08.org.example:disks\"\nallow_any_host = true\nnamespaces = [\"mem:1Mi\"]\n";

const ARGUMENTS: [&str; 9] =
    ["serve", "--config", "a.toml", "-o", "json", "--control", "control.sock", "--state", "state"];

fn start(directory: &Path) -> Serving {
    let mut command = ebof(directory);
    command.args(ARGUMENTS);
    Serving::start(command, directory)
}

fn status(serving: &Serving) -> Value {
    let output = serving.run(&["target", "status", "-o", "json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["status"].clone()
}

// @test data.missing-objects
#[test]
fn damaged_accounts_keep_nobody_from_the_data() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a.toml"), TEXT).unwrap();
    let serving = start(directory.path());
    assert!(serving.started["https"].is_string(), "{}", serving.started);
    drop(serving);
    let file = directory.path().join("state/accounts.json");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let strict = ebof(directory.path()).args(ARGUMENTS).arg("--strict").output().unwrap();
    let told: Value = serde_json::from_slice(&strict.stdout).unwrap_or_else(|_| panic!("{strict:?}"));
    let message = told["error"]["message"].as_str().unwrap();
    assert!(strict.status.code() == Some(1) && message.contains("accounts.json"), "{told}");

    let serving = start(directory.path());
    assert_eq!(serving.started["https"], Value::Null);
    let now = status(&serving);
    let [missing] = now["missing"].as_array().unwrap().as_slice() else { panic!("{now}") };
    let what = (missing["kind"].as_str(), missing["name"].as_str());
    assert_eq!(what, (Some("management"), Some("https://127.0.0.1:0")));
    assert!(missing["reason"].as_str().unwrap().contains("accounts.json"), "{missing}");
    let port = now["ports"][0]["address"].as_str().unwrap().rsplit_once(':').unwrap().1.parse().unwrap();
    let host = Controller::connect(&Options::new("127.0.0.1", port, Nqn::parse(NQN).unwrap())).unwrap();
    assert_eq!(host.namespaces().unwrap(), [Nsid(1)]);
    let told = serving.told(&["target", "status"]);
    assert!(told.contains("MISSING management https://127.0.0.1:0: "), "{told}");
    std::fs::write(&file, &whole).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while !status(&serving)["missing"].as_array().unwrap().is_empty() {
        assert!(Instant::now() < end, "it does not come in");
    }
    serving.told(&["target", "account", "list"]);
}
