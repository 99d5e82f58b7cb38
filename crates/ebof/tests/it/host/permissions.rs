//! A user without rights, and a low limit of locked memory: what is refused says what was tried,
//! what came back and what to do, and that helps.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use super::{NQN, Rig, Run};

/// Nobody.
const USER: u32 = 65534;

/// Runs the program as another user: from a place that this one can enter.
fn run_as(user: u32, limit: &str, directory: &Path, args: &[&str]) -> Run {
    const SCRIPT: &str = "set -e; mount -t tmpfs -o mode=755 tmpfs /mnt; touch /mnt/ebof; mount --bind \"$EBOF\" /mnt/ebof; \
                          exec $LIMIT setpriv --reuid $ID --regid $ID --clear-groups --bounding-set=-all \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", SCRIPT, "sh", "/mnt/ebof"]).args(args);
    command.env("EBOF", env!("CARGO_BIN_EXE_ebof")).env("ID", user.to_string()).env("LIMIT", limit);
    command.env("EBOF_RUNTIME_DIR", directory.join("own")).env_remove("EBOF_LOG");
    command.current_dir(directory).stdin(Stdio::null()).output().unwrap().into()
}

fn can_be_others() -> bool {
    let tools = Command::new("unshare").args(["-m", "setpriv", "--version"]).output();
    rustix::process::geteuid().is_root() && tools.is_ok_and(|output| output.status.success())
}

/// A directory that everybody may enter, with one of the user's own.
fn place(user: u32) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let own = directory.path().join("own");
    fs::create_dir(&own).unwrap();
    chown(&own, Some(user), Some(user)).unwrap();
    directory
}

// @test output.permissions
#[test]
fn what_a_user_may_not_do_says_what_to_do() {
    if !can_be_others() {
        println!("SKIPPED: no root, unshare or setpriv");
        return;
    }
    let rig = Rig::new();
    let place = place(USER);
    let path = |name: &str| place.path().join(name);
    let file = |name: &str, bytes: &[u8], mode: u32| {
        fs::write(path(name), bytes).unwrap();
        fs::set_permissions(path(name), Permissions::from_mode(mode)).unwrap();
    };
    file("a.toml", b"[[ports]]\nlisten = \"tcp://127.0.0.1:0\"\n", 0o600);
    file("data", &[7; 512], 0o600);
    file("disk.img", &vec![0; 1 << 20], 0o600);
    file("shown.img", &vec![0; 1 << 20], 0o644);
    for name in ["closed", "roots"] {
        fs::create_dir(path(name)).unwrap();
    }
    fs::set_permissions(path("closed"), Permissions::from_mode(0o700)).unwrap();
    let namespace = rig.uri(NQN, "/1");
    let serve = |more: &[&'static str]| [&["serve", "--listen", "tcp://127.0.0.1:0", "--state", "none"], more].concat();
    let run = |args: &[&str]| run_as(USER, "", place.path(), args);
    let right =
        "this runs as the user 65534, who has no right to that: give it to them, or run this as a user who has it";
    let to_file = "give this user the right to it (owner, group or mode of the file and its directories)";
    let low = "ports below 1024 need root, or CAP_NET_BIND_SERVICE";
    let bench = ["bench", "disk.img", "--runtime", "1"];
    let refusals: [(Vec<&str>, &str, &str); 11] = [
        (vec!["config", "check", "a.toml"], "reading the configuration a.toml", right),
        (vec!["write", &namespace, "-d", "data"], "opening data", right),
        (vec!["read", &namespace, "-d", "roots/out"], "writing roots/out", right),
        (vec!["read", &namespace, "-d", "closed/out"], "writing closed/out", right),
        (bench.to_vec(), "disk.img: cannot open it", to_file),
        (serve(&["disk.img"]), "disk.img: cannot open it", to_file),
        (serve(&["closed/x.img:1M"]), "closed/x.img: cannot look at it", to_file),
        (serve(&["roots/x.img:1M"]), "roots/x.img: cannot create it", to_file),
        (serve(&["shown.img"]), "shown.img cannot be opened for writing", "shown.img,readonly`, or make it writable"),
        (serve(&["mem:1M", "--metrics", "127.0.0.1:81"]), "listening on http://127.0.0.1:81 for metrics", low),
        (
            vec!["serve", "mem:1M", "--listen", "tcp://127.0.0.1:0", "--https", "127.0.0.1:81"],
            "listening on https://127.0.0.1:81",
            low,
        ),
    ];
    for (args, tried, advice) in refusals {
        let told = run(&args);
        let text = told.failed();
        assert!(text.contains(tried) && text.contains("Permission denied (os error 13)"), "{args:?}: {text}");
        assert!(text.contains(advice), "{args:?}: {text}");
        assert_eq!(text.matches("Permission denied").count(), 1, "{args:?}: {text}");
    }
    // As JSON, too.
    let told = run(&["config", "check", "a.toml", "-o", "json"]).json();
    assert!(told["error"]["advice"].as_str().unwrap().starts_with(right), "{told}");

    // What is advised: the right, another user, another form.
    for name in ["a.toml", "data", "disk.img", "roots", "closed"] {
        chown(path(name), Some(USER), Some(USER)).unwrap();
    }
    run(&["config", "check", "a.toml"]).ok();
    run(&["write", &namespace, "-d", "data"]).ok();
    for name in ["roots/out", "closed/out"] {
        run(&["read", &namespace, "-d", name]).ok();
        assert_eq!(fs::read(path(name)).unwrap()[..512], [7; 512]);
    }
    run(&bench).ok();
    run(&["bench", "shown.img,readonly", "--runtime", "1"]).ok();
}

// @test output.permissions
#[test]
fn a_low_limit_of_locked_memory_is_told_once_with_what_to_raise() {
    // Linux 5.12 to 6.12 do not count the memory of a ring.
    let counts = [(5, 6)..(5, 12), (6, 13)..(u32::MAX, 0)];
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map(|number| number.parse::<u32>().unwrap_or_default());
    let version = (numbers.next().unwrap(), numbers.next().unwrap());
    if !can_be_others() || !counts.iter().any(|range| range.contains(&version)) {
        println!("SKIPPED: no root, unshare or setpriv, or a kernel that does not count io_uring's memory");
        return;
    }
    // The limit is of the user, whom nobody else uses.
    let user = 61_234;
    let place = place(user);
    let bench = |limit: &str| {
        let args = ["bench", "own/disk.img:16M", "--runtime", "1", "--numjobs", "3", "--iodepth", "64"];
        let run = run_as(user, limit, place.path(), &args);
        run.ok();
        run.stderr
    };
    if bench("").contains("no io_uring") {
        println!("SKIPPED: no io_uring here, or the limit is low for everybody");
        return;
    }
    let text = bench("prlimit --memlock=0:0");
    assert_eq!(text.matches("no io_uring: files and block devices are served by threads").count(), 1, "{text}");
    assert!(text.contains("WARN") && text.contains("raise the limit of locked memory (`ulimit -l`"), "{text}");
    // What is advised.
    assert!(!bench("").contains("no io_uring"));
}
