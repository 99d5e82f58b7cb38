//! Discovery services that are told and found by multicast DNS, on a network of the test's own;
//! with avahi as the judge where it is installed.

use std::collections::HashMap;
use std::process::Command;

use crate::program::alone;

/// A network, in which `two` is true once a command has succeeded within a minute.
const NETWORK: &str = r#"
set -u
ip link set lo up
ip link add mdns0 type veth peer name mdns1 || exit 77
ip addr add 192.0.2.1/24 dev mdns0
ip link set mdns0 up && ip link set mdns1 up
ip route add 224.0.0.0/4 dev mdns0
await() {
  for _ in $(seq 60); do
    "$@" >/dev/null 2>&1 && return
    sleep 1
  done
  echo "not within a minute: $*" >&2
  return 1
}
cat >target.toml <<TOML
[target]
discovery_nqn = "nqn.2014-08.org.example:discovery"
[[ports]]
name = "fabric0"
listen = "tcp://192.0.2.1:8009"
mdns = true
[[ports]]
name = "quiet"
listen = "tcp://192.0.2.1:8010"
[[subsystems]]
nqn = "nqn.2014-08.org.example:found"
allow_any_host = true
namespaces = ["mem:16Mi"]
TOML
"$EBOF" serve --config target.toml --state none --control none >target.log 2>&1 &
target=$!
await grep -q 8009 target.log
"#;

/// Ours at both ends: once, and held until the target ends.
const OWN: &str = r#"
for _ in $(seq 200); do head -c 300 /dev/urandom >/dev/udp/224.0.0.251/5353; done
found() { "$EBOF" discover --mdns -o json >found.json; }
await found
printf '## discover\n'; cat found.json
"$EBOF" connect-all --mdns --persistent --vanished disconnect --front loop -o json >held.json 2>held.err &
held=$!
await grep -qE '"(connected|failed)"' held.json
kill $target; wait $target
printf '## target\n%s\n' $?
await grep -q service-removed held.json
await grep -q '"vanished"' held.json
kill $held; wait $held
"$EBOF" disconnect-all --force >/dev/null 2>&1
printf '## held\n'; cat held.json
printf '## none\n'; "$EBOF" discover --mdns 2>&1
"#;

/// What avahi sees of ours, and ours of what avahi tells.
const AVAHI: &str = r#"
mount -t tmpfs tmpfs /run
mkdir -p /run/dbus /run/avahi-daemon
dbus-daemon --system --fork --nopidfile || exit 77
avahi-daemon --no-drop-root --no-chroot --no-rlimits -D >avahi.log 2>&1 || exit 77
seen() { avahi-browse -rpt _nvme-disc._tcp >seen.txt && grep -q '^=.*;192.0.2.1;8009;' seen.txt; }
await seen
printf '## avahi\n'; cat seen.txt
avahi-publish-service 'other box' _nvme-disc._tcp 8010 p=tcp >published.log 2>&1 &
published=$!
avahi-publish-service 'of no use' _nvme-disc._tcp 8010 p=quic nqn=x >>published.log 2>&1 &
useless=$!
both() { "$EBOF" discover --mdns >both.txt 2>both.err && [ "$(grep -c 'Discovery Log Number' both.txt)" = 2 ]; }
await both
printf '## both\n'; cat both.txt both.err
kill $published $useless $target
wait $target
avahi-daemon -k
"#;

/// What a script has printed, by its headings; `None` where there can be no such network.
#[expect(clippy::print_stdout, reason = "says what it skips")]
fn run(script: &str, tools: &[&str]) -> Option<HashMap<String, String>> {
    let has = |tool: &&str| {
        Command::new("sh").args(["-c", &format!("command -v {tool}")]).output().is_ok_and(|it| it.status.success())
    };
    if let Some(missing) = tools.iter().find(|tool| !has(tool)) {
        println!("SKIPPED: {missing} is not installed");
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--pid", "--fork", "--mount-proc", "--propagation", "private", "bash", "-c"]);
    command.arg(format!("{NETWORK}{script}")).env("EBOF", env!("CARGO_BIN_EXE_ebof"));
    alone(&mut command, directory.path());
    let output = command.output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(77) || errors.starts_with("unshare:") {
        println!("SKIPPED: a network of one's own cannot be had here: {errors}");
        return None;
    }
    assert!(!errors.contains("not within a minute"), "{text}\n{errors}");
    let sections = text.split("## ").filter_map(|section| section.split_once('\n'));
    Some(sections.map(|(name, text)| (name.to_owned(), text.to_owned())).collect())
}

// @test host.mdns
#[test]
fn services_of_the_network_are_found_and_held_until_they_go() {
    let Some(told) = run(OWN, &["ip", "unshare"]) else { return };
    assert!(told["discover"].contains("nqn.2014-08.org.example:found"), "{told:?}");
    assert_eq!(told["target"].trim(), "0", "{told:?}");
    let changes: Vec<serde_json::Value> =
        told["held"].lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let at = |change: &str| changes.iter().position(|it| it["change"] == change);
    assert!(changes[0]["change"] == "service-added", "{changes:?}");
    assert!(at("service-lost") < at("service-removed") && at("service-removed") < at("vanished"), "{changes:?}");
    assert!(told["none"].contains("no discovery service of this network answers"), "{told:?}");
}

// @test host.mdns
#[test]
fn avahi_sees_what_is_told_and_tells_what_is_seen() {
    let Some(told) =
        run(AVAHI, &["ip", "unshare", "avahi-daemon", "avahi-browse", "avahi-publish-service", "dbus-daemon"])
    else {
        return;
    };
    let line = told["avahi"].lines().find(|line| line.starts_with('=') && line.contains(";192.0.2.1;8009;")).unwrap();
    assert!(line.contains("fabric0;_nvme-disc._tcp;local;"), "{line}");
    assert!(line.contains("\"nqn=nqn.2014-08.org.example:discovery\"") && line.contains("\"p=tcp\""), "{line}");
    assert!(!told["avahi"].contains(";192.0.2.1;8010;"), "only what is to be told: {told:?}");
    assert_eq!(told["both"].matches("nqn.2014-08.org.example:found").count() % 2, 0, "{told:?}");
}
