//! A target that is killed during a format or sanitize: the operation continues after a restart,
//! and no old data are left.

use std::time::Duration;

use super::*;

/// The pattern of the old data.
const OLD: u8 = 0xa7;
const MIB: usize = 1 << 20;
/// The amount of old data.
const FILLED_MIB: usize = 32;

/// A drive with a namespace that is full of old data.
fn filled() -> Rig {
    let rig = Rig::new("128Mi", ",attach=everyone");
    rig.host(ALICE, "create-ns", "", &["-S", "64MiB"]).ok();
    fill(&rig, 512);
    rig
}

fn fill(rig: &Rig, block: usize) {
    let file = rig.directory.path().join("old");
    std::fs::write(&file, vec![OLD; MIB]).unwrap();
    for mib in 0..FILLED_MIB {
        let lba = (mib * MIB / block).to_string();
        rig.host(ALICE, "write", "/1", &["-s", &lba, "-d", file.to_str().unwrap()]).ok();
    }
}

/// The data that a host reads: all old, or all zeros.
fn found(rig: &Rig, block: usize) -> u8 {
    let first = rig.host(ALICE, "read", "/1", &["-z", "512"]).stdout.first().copied().unwrap();
    for mib in 0..FILLED_MIB {
        let lba = (mib * MIB / block).to_string();
        let read = rig.host(ALICE, "read", "/1", &["-s", &lba, "-z", "1Mi"]);
        assert!(read.stdout == vec![first; MIB], "MiB {mib} is not like the first: {}", read.stderr);
    }
    first
}

/// Whether no old data are in the drive's file.
fn is_gone(rig: &Rig) -> bool {
    let image = std::fs::read(rig.directory.path().join("disk.img")).unwrap();
    !image.chunks_exact(512).any(|block| block.iter().all(|&byte| byte == OLD))
}

/// Starts a verb, and kills the target a little later.
fn kill_during(rig: &mut Rig, verb: &str, args: &[&str], after: Duration) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebof"));
    command.arg(verb).arg(rig.uri("")).args(["--hostnqn", ALICE]).args(args);
    command.env("EBOF_RUNTIME_DIR", rig.directory.path()).stdin(Stdio::null());
    let mut running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(after);
    rig.kill();
    running.kill().unwrap();
    running.wait().unwrap();
    rig.start("128Mi", ",attach=everyone");
}

#[test]
fn a_format_is_atomic_when_the_target_is_killed() {
    let mut rig = filled();
    let mut format = 0_u64;
    let mut happened = 0;
    let mut not = 0;
    // The time of the kill is random; some kills are before the operation, and some after it.
    for after_ms in [0, 8, 12, 16, 20, 25, 30, 40, 60, 2000] {
        let next = 1 - format;
        let index = next.to_string();
        kill_during(
            &mut rig,
            "format",
            &["-n", "1", "-l", &index, "-s", "1", "--force"],
            Duration::from_millis(after_ms),
        );
        let id = rig.json(ALICE, "id-ns", "/1", &[]);
        let now = id["flbas"].as_u64().unwrap() & 15;
        let block = if now == 1 { 4096 } else { 512 };
        assert_eq!(id["nsze"].as_u64().unwrap() * block, 64 << 20, "{id}");
        let block = usize::try_from(block).unwrap();
        if now == format {
            not += 1;
            assert_eq!(found(&rig, block), OLD, "{after_ms} ms: what was not formatted is as it was");
            continue;
        }
        happened += 1;
        until("it is erased", || is_gone(&rig));
        assert_eq!(found(&rig, block), 0, "{after_ms} ms");
        format = now;
        fill(&rig, block);
    }
    println!("{happened} formats had happened, {not} had not");
    assert!(happened > 0 && not > 0, "{happened} and {not}");
}

#[test]
fn a_sanitize_continues_after_a_kill_and_leaves_nothing() {
    let mut rig = filled();
    let is = |rig: &Rig, status: &str| rig.json(ALICE, "sanitize-log", "", &[])["sstat"]["status"] == status;
    let processing = "(2) in progress";
    let succeeded = "(1) succeeded";
    kill_during(
        &mut rig,
        "sanitize",
        &["-a", "start-overwrite", "-n", "0", "-p", "0x5a5a5a5a", "--force"],
        Duration::from_millis(400),
    );
    assert!(is(&rig, processing), "16 passes are not over in half a second");
    let refused = rig.host(ALICE, "read", "/1", &["-z", "512"]);
    assert!(refused.failed().contains("Sanitize In Progress"), "{}", refused.stderr);
    // Again, in another pass.
    std::thread::sleep(Duration::from_millis(300));
    rig.kill();
    rig.start("128Mi", ",attach=everyone");
    until("it goes on to its end", || is(&rig, succeeded));
    assert!(is_gone(&rig));
    assert_eq!(found(&rig, 512), 0);
    rig.write(ALICE, 9).ok();
    assert!(rig.read(BOB) == [9; 512]);

    fill(&rig, 512);
    kill_during(&mut rig, "sanitize", &["-a", "start-block-erase", "--force"], Duration::from_millis(30));
    until("it is not under way", || is(&rig, succeeded));
    // The command may not have arrived.
    let byte = found(&rig, 512);
    assert!(byte == OLD || byte == 0 && is_gone(&rig), "{byte:x}");
}
