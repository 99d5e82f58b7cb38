//! The target is killed while it changes who has what: it comes up as before or as after, never as
//! something in between.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use ebof_manage::Config;
use ebof_manage::enclosure::{Change, Enclosure as _, Phase, Task};
use ebof_nvme::Nsid;

use crate::enclosure_rig::{NQN, Rig, assign, config, config_with, function, moved, reopened};

/// The environment variables of the process that is killed.
const FOLDER: &str = "EBOF_TEST_BOX_FOLDER";
const PHASE: &str = "EBOF_TEST_BOX_PHASE";
const CHANGE: &str = "EBOF_TEST_BOX_CHANGE";

const KILL: i32 = rustix::process::Signal::KILL.as_raw();

/// Where this process is to be killed, if it is the one.
fn victim() -> Option<(std::path::PathBuf, String, usize)> {
    let change = std::env::var(CHANGE).ok()?.parse().unwrap();
    Some((std::env::var_os(FOLDER)?.into(), std::env::var(PHASE).ok()?, change))
}

/// Runs a test of this file in a process that is killed there.
fn kill(test: &str, folder: &Path, phase: Phase, change: usize) {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args([&format!("enclosure_crash::{test}"), "--exact", "--nocapture"]);
    child.env(FOLDER, folder).env(PHASE, phase.name()).env(CHANGE, change.to_string());
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.signal(), Some(KILL), "{phase} of {change}: {}: {said}", output.status);
}

/// A box whose process is killed at a step of tasks that `is_it` says.
fn doomed(config: Config, phase: String, change: usize, is_it: fn(&Task) -> bool) -> Rig {
    Rig::observed(
        config,
        Box::new(move |task: &Task| {
            if is_it(task) && task.phase.name() == phase && task.change == change {
                rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
            }
            // A task that leaves the phase out is seen not to have been killed.
            if is_it(task) && task.phase == Phase::Ended {
                std::process::exit(1);
            }
        }),
    )
}

/// The last phase is told after the task's end. A task that leaves a phase out ends without it: its
/// process ends, too, and is seen not to have been killed.
fn wait_for_the_end() -> ! {
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        std::thread::park_timeout(end.saturating_duration_since(Instant::now()));
    }
    std::process::exit(1)
}

fn one(folder: &Path) -> Config {
    config(folder.join("d0.img").to_str().unwrap())
}

#[test]
fn a_crash_in_the_middle_of_a_move_comes_up_as_one_of_both() {
    if let Some((folder, phase, change)) = victim() {
        let rig = doomed(one(&folder), phase, change, |task| matches!(task.changes[0], Change::Move { .. }));
        let nsid = rig.namespace("d0/vf1");
        rig.made(&assign("d0/vf1", "a"));
        let host = rig.connect("a", &function(1));
        host.namespace(nsid).unwrap().write(0, &[6; 4096], true).unwrap();
        rig.make(&moved("d0/vf1", "b"));
        wait_for_the_end();
    }
    for (phase, expected) in [
        (Phase::Stopping, "a"),
        (Phase::Draining, "a"),
        (Phase::Storing, "a"),
        // The record is in the journal.
        (Phase::Binding, "b"),
        (Phase::Ended, "b"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        kill("a_crash_in_the_middle_of_a_move_comes_up_as_one_of_both", folder.path(), phase, 0);
        let rig = reopened(&one(folder.path()));
        assert_eq!(rig.port_of("d0/vf1").as_deref(), Some(expected), "killed when {phase}");
        let host = rig.connect(expected, &function(1));
        let mut data = [0; 4096];
        host.namespace(Nsid(1)).unwrap().read(0, &mut data).unwrap();
        assert_eq!(data, [6; 4096], "{phase}");
        rig.target.stop(Duration::ZERO);
    }
}

#[test]
fn a_crash_in_the_middle_of_an_assignment_leaves_a_function_with_all_of_it_or_nothing() {
    if let Some((folder, phase, change)) = victim() {
        let rig = doomed(one(&folder), phase, change, |_| true);
        rig.make(&assign("d0/vf1", "a"));
        wait_for_the_end();
    }
    for (phase, is_given) in [(Phase::Stopping, false), (Phase::Storing, false), (Phase::Binding, true)] {
        let folder = tempfile::tempdir().unwrap();
        let test = "a_crash_in_the_middle_of_an_assignment_leaves_a_function_with_all_of_it_or_nothing";
        kill(test, folder.path(), phase, 0);
        let rig = reopened(&one(folder.path()));
        let shown = rig.enclosure.inventory().function(&"d0/vf1".parse().unwrap()).unwrap().clone();
        let all = (shown.online, shown.queues > 1, shown.interrupts > 0, shown.port().is_some());
        assert_eq!(all, (is_given, is_given, is_given, is_given), "killed when {phase}");
        rig.target.stop(Duration::ZERO);
    }
}

/// Two drives.
fn two(folder: &Path) -> Config {
    let [first, second] = ["d0.img", "d1.img"].map(|name| folder.join(name).to_str().unwrap().to_owned());
    let nqn = NQN.replace("d0", "d1");
    config_with(
        &first,
        &format!(
            "[[drives]]\nname = \"d1\"\nbacking = \"{second}\"\nsize = \"64Mi\"\nfunctions = 2\n\
             [[subsystems]]\nnqn = \"{nqn}\"\nallow_any_host = true\nports = [\"a\"]\ndrive = \"d1\"\n"
        ),
    )
}

/// What a transaction over both changes: ports, weights, and whom a namespace belongs to.
fn shown(rig: &Rig) -> [(Option<String>, u16, u16); 2] {
    let inventory = rig.enclosure.inventory();
    ["d0/vf1", "d1/vf2"].map(|name| {
        let function = inventory.function(&name.parse().unwrap()).unwrap();
        (function.port().map(str::to_owned), function.queues, function.share.weight)
    })
}

#[test]
fn a_crash_in_the_middle_of_a_transaction_over_two_drives_takes_it_back() {
    let changes = || {
        let weight = |name: &str| format!(r#"{{"change": "weight", "function": "{name}", "weight": 7}}"#);
        let map = r#"{"change": "map", "namespace": "d0/ns1", "function": "d0/vf1"}"#;
        let assign = [assign("d1/vf2", "b"), assign("d0/vf1", "a")];
        format!("{}, {}, {map}, {}, {}", assign[0], weight("d1/vf2"), assign[1], weight("d0/vf1"))
    };
    if let Some((folder, phase, change)) = victim() {
        let rig = doomed(two(&folder), phase, change, |task| task.changes.len() > 1);
        rig.namespace("d0/vf3");
        rig.make(&changes());
        wait_for_the_end();
    }
    let test = "a_crash_in_the_middle_of_a_transaction_over_two_drives_takes_it_back";
    for (change, phase, is_made) in [
        (0, Phase::Storing, false),
        (0, Phase::Binding, false),
        (2, Phase::Storing, false),
        (3, Phase::Stopping, false),
        (3, Phase::Binding, false),
        (4, Phase::Storing, false),
        (4, Phase::Ended, true),
    ] {
        let folder = tempfile::tempdir().unwrap();
        kill(test, folder.path(), phase, change);
        let rig = reopened(&two(folder.path()));
        let (queues, weight) = if is_made { (65, 7) } else { (0, 1) };
        let port = |name: &str| is_made.then(|| name.to_owned());
        assert_eq!(shown(&rig), [(port("a"), queues, weight), (port("b"), queues, weight)], "{phase} of {change}");
        let of_namespace = rig.enclosure.inventory().drives[0].namespaces[0].functions[0].to_string();
        assert_eq!(of_namespace, if is_made { "d0/vf1" } else { "d0/vf3" }, "{phase} of {change}");
        // It is over: another one can be made, and a new start changes nothing.
        rig.made(&format!("{}, {}", assign("d0/vf2", "a"), assign("d1/vf1", "a")));
        rig.target.stop(Duration::from_secs(5));
        let before = shown(&rig);
        drop(rig);
        let rig = reopened(&two(folder.path()));
        assert_eq!(shown(&rig), before);
        rig.target.stop(Duration::ZERO);
    }
}

#[test]
fn a_crash_in_the_middle_of_a_creation_leaves_all_of_the_transaction_or_nothing() {
    let changes = || {
        let create = |drive: &str, more: &str| {
            format!(r#"{{"change": "create-namespace", "drive": "{drive}", "size_bytes": 4194304{more}}}"#)
        };
        let protect = r#"{"change": "write-protect", "namespace": "d0/ns1", "on": true}"#;
        let attach = r#"{"change": "attach-namespace", "namespace": "d0/ns5", "to": "d0/vf1"}"#;
        let (first, second) = (create("d0", r#", "nsid": 5"#), create("d1", r#", "attach_to": ["d1/vf1"]"#));
        format!("{first}, {second}, {protect}, {attach}, {}", create("d0", ""))
    };
    if let Some((folder, phase, change)) = victim() {
        let rig = doomed(two(&folder), phase, change, |task| task.changes.len() > 1);
        rig.namespace("d0/vf3");
        rig.make(&changes());
        wait_for_the_end();
    }
    let test = "a_crash_in_the_middle_of_a_creation_leaves_all_of_the_transaction_or_nothing";
    for (change, phase) in
        [(0, Phase::Storing), (1, Phase::Storing), (2, Phase::Storing), (4, Phase::Storing), (4, Phase::Ended)]
    {
        let folder = tempfile::tempdir().unwrap();
        kill(test, folder.path(), phase, change);
        let rig = reopened(&two(folder.path()));
        let shown = || {
            let drives = rig.enclosure.inventory().drives;
            let namespaces = drives.iter().flat_map(|drive| &drive.namespaces);
            namespaces.map(|it| (it.name.to_string(), it.write_protected, it.functions.len())).collect::<Vec<_>>()
        };
        let all = |namespaces: &[(&str, bool, usize)]| {
            namespaces.iter().map(|&(name, is_protected, who)| (name.to_owned(), is_protected, who)).collect::<Vec<_>>()
        };
        let expected = match phase {
            Phase::Ended => {
                all(&[("d0/ns1", true, 1), ("d0/ns2", false, 0), ("d0/ns5", false, 1), ("d1/ns1", false, 1)])
            }
            _ => all(&[("d0/ns1", false, 1)]),
        };
        assert_eq!(shown(), expected, "{phase} of {change}");
        // Nothing of it is in the way of the same again.
        if phase != Phase::Ended {
            rig.made(&changes());
        }
        rig.target.stop(Duration::ZERO);
    }
}
