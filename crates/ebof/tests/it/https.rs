//! A target that is managed over the network, by `ebof target --server` as users run it.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::program::ebof;
use crate::serving::Serving;

pub(crate) const PASSWORD: &str = "correct horse battery";

/// A target with HTTPS, and its users' machine, in one directory.
pub(crate) struct Managed {
    pub(crate) serving: Serving,
    pub(crate) server: String,
    pub(crate) fingerprint: String,
}

fn serve(directory: &Path) -> Command {
    let mut command = ebof(directory);
    command
        .args(["serve", "mem:64Mi", "--listen", "tcp://127.0.0.1:0", "--https", "127.0.0.1:0", "-o", "json"])
        .args(["--nqn", "nqn.2014-08.org.example:https", "--control", "control.sock"]);
    command
}

impl Managed {
    pub(crate) fn start(directory: &Path) -> Self {
        let serving = Serving::start(serve(directory), directory);
        let text = |key: &str| serving.started[key].as_str().unwrap().to_owned();
        let (server, fingerprint) = (text("https"), text("fingerprint"));
        Self { serving, server, fingerprint }
    }

    /// Of another machine: it has the directory as home.
    fn run(&self, user: &str, arguments: &[&str]) -> Output {
        let mut command = ebof(&self.serving.directory);
        command.arg("target").args(arguments).args(["--server", &self.server, "--user", user]);
        command.env("HOME", &self.serving.directory).env_remove("XDG_CONFIG_HOME").env("EBOF_PASSWORD", PASSWORD);
        command.output().unwrap()
    }

    /// The same with the certificate's fingerprint.
    pub(crate) fn trusting(&self, user: &str, arguments: &[&str]) -> Output {
        self.run(user, &[arguments, &["--fingerprint", &self.fingerprint]].concat())
    }

    pub(crate) fn add_user(&self, name: &str, role: &str) {
        let file = self.serving.directory.join("new-password");
        std::fs::write(&file, format!("{PASSWORD}\n")).unwrap();
        self.serving.told(&["target", "account", "add", name, "--role", role, "--new-password-file", "new-password"]);
    }
}

fn told(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn the_first_administrator_logs_in_and_makes_others() {
    let directory = tempfile::tempdir().unwrap();
    let target = Managed::start(directory.path());
    let file = target.serving.started["initial_password"].as_str().unwrap().to_owned();
    let first = |arguments: &[&str]| target.trusting("admin", &[arguments, &["--password-file", &file]].concat());
    let told_to_change = refused(&first(&["status"]));
    assert!(told_to_change.contains("password has to be changed"), "{told_to_change}");
    let new = directory.path().join("mine");
    std::fs::write(&new, PASSWORD).unwrap();
    told(&first(&["account", "set-password", "admin", "--new-password-file", "mine"]));
    assert!(told(&target.trusting("admin", &["status"])).contains("nqn.2014-08.org.example:https"));
    told(&target.trusting("admin", &["account", "add", "jo", "--role", "Operator", "--new-password-file", "mine"]));
    let all: Value =
        serde_json::from_str(&told(&target.trusting("admin", &["account", "list", "-o", "json"]))).unwrap();
    let names: Vec<_> = all["accounts"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["admin", "jo"]);
    // By the control socket without an account, so that nobody is locked out.
    let listed = target.serving.told(&["target", "account", "list"]);
    assert!(listed.contains("admin") && listed.contains("Operator"), "{listed}");
    let last = target.serving.refused(&["target", "account", "remove", "admin"]);
    assert!(last.contains("last administrator"), "{last}");
    // After a restart the accounts and the certificate are there, and the first password is gone.
    let fingerprint = target.fingerprint.clone();
    drop(target);
    let target = Managed::start(directory.path());
    assert_eq!(target.fingerprint, fingerprint);
    assert!(target.serving.started["initial_password"].is_null() && !Path::new(&file).exists());
    assert!(told(&target.trusting("jo", &["status"])).contains("nqn.2014-08.org.example:https"));
}

#[test]
fn roles_and_passwords_are_checked() {
    let directory = tempfile::tempdir().unwrap();
    let target = Managed::start(directory.path());
    for (name, role) in [("reader", "ReadOnly"), ("operator", "Operator"), ("boss", "Administrator")] {
        target.add_user(name, role);
        assert!(told(&target.trusting(name, &["status"])).contains("nqn.2014-08.org.example:https"));
    }
    for (name, arguments) in
        [("reader", &["reload"][..]), ("operator", &["reload"]), ("operator", &["account", "list"])]
    {
        let text = refused(&target.trusting(name, arguments));
        assert!(text.contains("role of the account does not allow"), "{text}");
    }
    told(&target.trusting("boss", &["reload"]));
    let text = refused(&target.trusting("nobody", &["status"]));
    assert!(text.contains("name, password or session are wrong"), "{text}");
    let short = directory.path().join("short");
    std::fs::write(&short, "short").unwrap();
    let text = target.serving.refused(&["target", "account", "set-password", "boss", "--new-password-file", "short"]);
    assert!(text.contains("8 to 128 characters"), "{text}");
    // No terminal, no file, no variable.
    let mut command = ebof(directory.path());
    command.args(["target", "status", "--server", &target.server, "--fingerprint", &target.fingerprint]);
    let output = command.env_remove("EBOF_PASSWORD").output().unwrap();
    assert!(refused(&output).contains("--password-file"));
}

#[test]
fn only_the_certificate_that_is_trusted_gets_the_password() {
    let directory = tempfile::tempdir().unwrap();
    let target = Managed::start(directory.path());
    target.add_user("boss", "Administrator");
    let unknown = refused(&target.run("boss", &["status"]));
    assert!(unknown.contains(&target.fingerprint) && unknown.contains("--fingerprint"), "{unknown}");
    let wrong = target.fingerprint.replace(|c: char| c.is_ascii_digit(), "F");
    let text = refused(&target.run("boss", &["status", "--fingerprint", &wrong]));
    assert!(text.contains("Nothing was sent"), "{text}");
    // Trusted before.
    let known = directory.path().join(".config/ebof/known_targets");
    std::fs::create_dir_all(known.parent().unwrap()).unwrap();
    let place = target.server.strip_prefix("https://").unwrap();
    std::fs::write(&known, format!("{place} {}\n", target.fingerprint)).unwrap();
    told(&target.run("boss", &["status"]));
    // By its own certificate as an authority: it is for 127.0.0.1, too.
    let shown = target.serving.told(&["target", "certificate", "show", "-o", "json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    std::fs::write(directory.path().join("ca.pem"), shown["certificate"]["pem"].as_str().unwrap()).unwrap();
    told(&target.run("boss", &["status", "--ca", "ca.pem"]));
    // Another one.
    let key = rcgen::KeyPair::generate().unwrap();
    let parameters = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = parameters.self_signed(&key).unwrap();
    std::fs::write(directory.path().join("new.pem"), certificate.pem()).unwrap();
    std::fs::write(directory.path().join("key.pem"), key.serialize_pem()).unwrap();
    let text = refused(&target.run("boss", &["certificate", "replace", "new.pem"]));
    assert!(text.contains("does not belong to the certificate"), "{text}");
    told(&target.run("boss", &["certificate", "replace", "new.pem", "--key", "key.pem"]));
    let changed = refused(&target.run("boss", &["status"]));
    assert!(changed.contains("HAS CHANGED") && changed.contains("line 1"), "{changed}");
    refused(&target.run("boss", &["status", "--ca", "ca.pem"]));
    told(&target.run("boss", &["status", "--ca", "new.pem"]));
}

#[test]
fn what_cannot_be_served_safely_is_refused_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let failed = |command: &mut Command| {
        // The error is a document, too.
        let output = command.stdin(Stdio::null()).output().unwrap();
        refused(&output) + &String::from_utf8_lossy(&output.stdout)
    };
    let text = failed(serve(directory.path()).args(["--http", "0.0.0.0:0"]));
    assert!(text.contains("--https ADDRESS:PORT"), "{text}");
    drop(Managed::start(directory.path()));
    let accounts = directory.path().join("run/state/accounts.json");
    let good = std::fs::read(&accounts).unwrap();
    std::fs::write(&accounts, &good[..good.len() - 20]).unwrap();
    let text = failed(&mut serve(directory.path()));
    assert!(text.contains("accounts.json") && text.contains("damaged"), "{text}");
    std::fs::write(&accounts, good).unwrap();
    drop(Managed::start(directory.path()));
}
