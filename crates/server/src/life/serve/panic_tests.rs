//! The end of the process when a thread of the target panics. Each test is run again in a process
//! of its own.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use ebof_manage::Listen;
use ebof_manage::config::{ManagedDrive, Port, Subsystem};
use ebof_nvme::Nqn;
use rustix::process::{Resource, Rlimit, setrlimit};

use super::*;

/// The environment variable of the process that has to end.
const CHILD: &str = "EBOF_TEST_CHILD";

/// How the process of this test ends after `panics` was applied to its target. A process that
/// continues ends without an error.
fn fate(test: &str, panics: impl FnOnce(&Target)) -> ExitStatus {
    if std::env::var_os(CHILD).is_none() {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args([&format!("life::serve::panic_tests::{test}"), "--exact", "--nocapture"]).env(CHILD, "1");
        let output = child.output().unwrap();
        println!("{}", String::from_utf8_lossy(&output.stderr));
        return output.status;
    }
    // No core dumps of tests.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).unwrap();
    let port = Port::new(1, Listen::new([127, 0, 0, 1].into(), 0));
    let drive = ManagedDrive::new("d0", "mem:64Mi".parse().unwrap());
    let mut subsystem = Subsystem::of_drive(Nqn::parse("nqn.2014-08.org.example:drive0").unwrap(), &drive);
    subsystem.allow_any_host = true;
    subsystem.ports = vec![port.name.clone()];
    let config = Config { ports: vec![port], subsystems: vec![subsystem], drives: vec![drive], ..Config::default() };
    let target = Target::start(config, Settings { threads: Some(2), pin: false, ..Settings::default() }).unwrap();
    panics(&target);
    std::thread::park_timeout(Duration::from_secs(20));
    std::process::exit(0)
}

fn assert_aborted(status: ExitStatus) {
    assert_eq!(status.signal(), Some(rustix::process::Signal::ABORT.as_raw()), "{status}");
}

// @test data.threads
#[test]
fn a_panic_of_a_reactor_ends_the_process() {
    assert_aborted(fate("a_panic_of_a_reactor_ends_the_process", |target| {
        target.shared.reactors()[1].post(Message::Panic);
    }));
}

// @test data.threads
#[test]
fn a_panic_of_the_control_thread_ends_the_process() {
    assert_aborted(fate("a_panic_of_the_control_thread_ends_the_process", |target| {
        target.orders.give(Order::Panic);
    }));
}

// @test data.threads
#[test]
fn a_panic_of_a_drives_thread_ends_the_process() {
    assert_aborted(fate("a_panic_of_a_drives_thread_ends_the_process", |target| {
        let (_, actor) = target.shared.drives.actors().remove(0);
        actor.medium().run(Box::new(|_| panic!("a test wants it")));
    }));
}
