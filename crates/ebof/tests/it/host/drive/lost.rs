//! The system log's entries about lost devices.

use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use super::super::devices::can_attach;
use super::{NQN, Rig};

/// Connects with a separate system log in /dev, which the attach daemon keeps using.
const CONNECT: &str = r#"
set -e
mount -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work
mount -t overlay overlay -o lowerdir=/dev,upperdir=/mnt/upper,workdir=/mnt/work /dev
[ -e /dev/log ] || touch /dev/log
mount --bind "$LOG" /dev/log
exec "$EBOF" connect -t tcp -a 127.0.0.1 -s "$PORT" -n "$NQN" -i 1 --front loop --ctrl-loss-tmo 1 --reconnect-delay 1
"#;

/// Whether a new mount namespace is permitted, with a mount over /dev.
fn can_mount() -> bool {
    let script = "mount -t tmpfs tmpfs /mnt && mkdir /mnt/u /mnt/w && \
                  mount -t overlay overlay -o lowerdir=/dev,upperdir=/mnt/u,workdir=/mnt/w /dev";
    let tried = Command::new("unshare").args(["-m", "--propagation", "private", "sh", "-c", script]).output();
    tried.is_ok_and(|output| output.status.success())
}

#[test]
fn devices_that_end_and_controllers_that_are_given_up_are_in_the_system_log() {
    if !can_attach() || !can_mount() {
        println!("SKIPPED: no block devices here, or no mounts of one's own");
        return;
    }
    let mut rig = Rig::new("64Mi", "");
    let socket = rig.directory.path().join("log");
    let log = UnixDatagram::bind(&socket).unwrap();
    log.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let line = || {
        let mut line = [0; 1024];
        let length = log.recv(&mut line).expect("a line in the log");
        String::from_utf8_lossy(&line[..length]).into_owned()
    };
    let mut connect = Command::new("unshare");
    connect.args(["-m", "--propagation", "private", "sh", "-c", CONNECT]).env("LOG", &socket);
    connect.env("EBOF", env!("CARGO_BIN_EXE_ebof")).env("EBOF_RUNTIME_DIR", rig.directory.path());
    let output = connect.env("NQN", NQN).env("PORT", rig.port()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    for nsid in ["1", "2"] {
        rig.run(&["create-ns", "nvme0", "-S", "8M"]).ok();
        rig.run(&["attach-ns", "nvme0", "-n", nsid]).ok();
    }
    let disks = rig.run(&["list", "-o", "json"]).json()["Devices"].clone();
    let path = |at: usize| disks[at]["DevicePath"].as_str().unwrap().to_owned();
    rig.run(&["delete-ns", "nvme0", "-n", "1", "--force"]).ok();
    let ended = line();
    assert!(ended.contains(&format!("nvme0n1 ({}) ends: the namespace is not there any more", path(0))), "{ended}");
    assert!(ended.starts_with("<27>ebof["), "{ended}");

    let port = rig.port();
    rig.kill();
    let given_up = line();
    let told = format!("nvme0 ({NQN} at tcp://127.0.0.1:{port}) was given up and its devices are gone: {}", path(1));
    assert!(given_up.contains(&told), "{given_up}\n{told}");
}
