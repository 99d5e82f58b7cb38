//! The changes of a plan, their order, and their texts.

use super::*;
use crate::load;

fn config(text: &str) -> Config {
    load("a.toml", text).unwrap().config
}

const BEFORE: &str = r#"
[[ports]]
name = "front"
listen = "tcp://10.0.0.1:4420"
[[ports]]
name = "old"
listen = "tcp://10.0.0.1:4421"
[[hosts]]
nqn = "host-a"
[[subsystems]]
nqn = "disks"
serial = "1"
allowed_hosts = ["host-a"]
ports = ["front"]
namespaces = ["a.img", "b.img", "c.img"]
[[subsystems]]
nqn = "gone"
allow_any_host = true
"#;

const AFTER: &str = r#"
[target]
threads = 2
[[ports]]
name = "front"
listen = "tcp://10.0.0.1:4420"
data_digest = "required"
[[ports]]
name = "new"
id = 9
listen = "tcp://10.0.0.1:4421"
[[hosts]]
nqn = "host-b"
[[subsystems]]
nqn = "disks"
serial = "1"
allowed_hosts = ["host-b"]
ports = ["front"]
namespaces = ["a.img", { nsid = 2, drive = "b2.img" }, { nsid = 3, drive = "c.img", write_protect = true }, "d.img"]
[[subsystems]]
nqn = "fresh"
allow_any_host = true
namespaces = ["mem:1Mi"]
"#;

#[test]
fn a_plan_reads_in_the_order_in_which_it_is_made() {
    let plan = Plan::between(&config(BEFORE), &config(AFTER));
    assert_eq!(
        plan.to_string(),
        "~ alter target: threads one for each processor (default) -> 2 (needs a new start)\n\
         - remove namespace 2 of disks (connected hosts notice)\n\
         - remove subsystem gone (connected hosts notice)\n\
         + add host host-b\n\
         ~ alter port front: data_digest \"allowed\" -> \"required\" (new connections only)\n\
         ~ alter port new: id 2 -> 9, name \"old\" -> \"new\" (connected hosts notice)\n\
         ~ alter subsystem disks: allowed_hosts [\"host-a\"] -> [\"host-b\"] (connected hosts notice)\n\
         + add subsystem fresh with 1 namespace, for anyone\n\
         ~ alter namespace 3 of disks: write_protect false -> true\n\
         + add namespace 2 to disks: b2.img, another disk for hosts\n\
         + add namespace 4 to disks: d.img\n\
         - remove host host-a"
    );
    assert_eq!(plan.effect(), Some(Effect::Restart));
}

#[test]
fn nothing_changes_between_equals() {
    let plan = Plan::between(&config(AFTER), &config(AFTER));
    assert!(plan.is_empty());
    assert_eq!((plan.to_string(), plan.effect()), ("nothing changes".to_owned(), None));
}

#[test]
fn everything_is_added_from_an_empty_configuration_and_removed_to_one() {
    let empty = Config::default();
    let full = config(AFTER);
    let only =
        |plan: &Plan, prefix: &str| plan.changes.iter().skip(1).all(|change| change.to_string().starts_with(prefix));
    assert!(only(&Plan::between(&empty, &full), "add "));
    assert!(only(&Plan::between(&full, &empty), "remove "));
}

#[test]
fn a_port_that_moves_is_another_port() {
    let moved = AFTER.replace("tcp://10.0.0.1:4420", "tcp://10.0.0.2:4420");
    let plan = Plan::between(&config(AFTER), &config(&moved));
    assert_eq!(
        plan.to_string(),
        "- remove port front (connected hosts notice)\n+ add port front at tcp://10.0.0.2:4420"
    );
}

const DRIVE: &str = r#"
[[drives]]
name = "d0"
backing = "disk.img"
size = "100Gi"
[[subsystems]]
nqn = "disks"
allow_any_host = true
drive = "d0"
"#;

/// The plan from [`DRIVE`] to the same with other lines, as text.
fn plan_with(from: &str, to: &str) -> (String, Option<Effect>) {
    let plan = Plan::between(&config(DRIVE), &config(&DRIVE.replace(from, to)));
    (plan.to_string(), plan.effect())
}

#[test]
fn a_drive_is_opened_before_its_subsystem_and_closed_after_it() {
    let (none, full) = (config(""), config(DRIVE));
    assert_eq!(
        Plan::between(&none, &full).to_string(),
        "+ add drive d0: disk.img, 100Gi\n+ add subsystem disks with drive d0, for anyone"
    );
    assert_eq!(
        Plan::between(&full, &none).to_string(),
        "- remove subsystem disks (connected hosts notice)\n- remove drive d0 (connected hosts notice)"
    );
}

#[test]
fn another_drive_of_a_subsystem_is_a_removal_and_an_addition() {
    let moved = "- remove subsystem disks (connected hosts notice)\n\
                 - remove drive d0 (connected hosts notice)\n\
                 + add drive d0: other.img, 100Gi\n\
                 + add subsystem disks with drive d0, for anyone";
    assert_eq!(plan_with("disk.img", "other.img").0, moved);
    // The drive is identified by its file: hosts do not notice another name.
    assert_eq!(
        plan_with("\"d0\"", "\"d1\""),
        ("~ alter drive d1: name \"d0\" -> \"d1\"".to_owned(), Some(Effect::Live))
    );
    let plain = DRIVE.replace("drive = \"d0\"", "");
    let plan = Plan::between(&config(&plain), &config(DRIVE)).to_string();
    assert_eq!(
        plan,
        "- remove subsystem disks (connected hosts notice)\n+ add subsystem disks with drive d0, for anyone"
    );
}

#[test]
fn which_settings_of_a_served_drive_can_change() {
    let with = |line: &str| plan_with("size = \"100Gi\"", &format!("size = \"100Gi\"\n{line}"));
    for (line, text, effect) in [
        ("encryption = true", "encryption false -> true", Effect::Live),
        ("read_only_if_damaged = true", "read_only_if_damaged false -> true", Effect::Live),
        ("key_file = \"a.key\"", "key_file none -> \"a.key\" (needs a new start)", Effect::Restart),
        ("overcommit = true", "overcommit false -> true", Effect::Live),
        ("overwrite = true", "overwrite false (default) -> true", Effect::Live),
        ("exclusive = true", "exclusive false -> true", Effect::Live),
        ("attach = \"everyone\"", "attach \"manual\" -> \"everyone\"", Effect::Live),
        ("managers = [\"h\"]", "managers every host that may connect (default) -> [\"h\"]", Effect::Live),
        ("quotas = { h = \"1Gi\" }", "quotas none -> {\"h\":\"1Gi\"}", Effect::Live),
        ("endurance = \"600Ti\"", "endurance that of the profile (default) -> \"600Ti\"", Effect::Live),
        (
            "namespaces = 1024",
            "namespaces that of the profile (default) -> 1024 (new connections only)",
            Effect::NewConnections,
        ),
        ("profile = \"ethernet-ssd\"", "profile \"default\" -> \"ethernet-ssd\" (needs a new start)", Effect::Restart),
    ] {
        assert_eq!(with(line), (format!("~ alter drive d0: {text}"), Some(effect)));
    }
    let direct = plan_with("\"disk.img\"", "{ path = \"disk.img\", direct = true }");
    assert!(direct.0.ends_with("(needs a new start)") && direct.1 == Some(Effect::Restart), "{}", direct.0);
    let (text, effect) = with("functions = 5");
    assert!(text.starts_with("~ alter drive d0: functions 0 -> 5 (needs a new start)\n"), "{text}");
    assert!(
        text.ends_with("cntlid_min 0 -> 128 (connected hosts notice)") && effect == Some(Effect::Restart),
        "{text}"
    );
    // Hosts compare the serial number, which belongs to the subsystem.
    let serial = with("serial = \"S1\"").0;
    assert!(
        serial.starts_with("~ alter drive d0: serial derived from the NQN (default) -> \"S1\" (connected hosts notice)\n~ alter subsystem"),
        "{serial}"
    );
}

#[test]
fn a_drive_keeps_its_size() {
    let (text, effect) = plan_with("100Gi", "200Gi");
    let refusal = "alter drive d0: size \"100Gi\" -> \"200Gi\"";
    let why = "impossible: a drive keeps the size that it was made with";
    assert_eq!((text, effect), (format!("~ {refusal} ({why})"), Some(Effect::Impossible)));
    // Without a size the existing one is used.
    assert_eq!(plan_with("size = \"100Gi\"", "").1, Some(Effect::Live));
    let unsaid = config(&DRIVE.replace("size = \"100Gi\"", ""));
    assert_eq!(Plan::between(&unsaid, &config(DRIVE)).effect(), Some(Effect::Restart));
    let memory = |size: &str| config(&DRIVE.replace("size = \"100Gi\"", "").replace("disk.img", size));
    let plan = Plan::between(&memory("mem:1Gi"), &memory("mem:2Gi"));
    assert_eq!(plan.effect(), Some(Effect::Impossible));
    let error = crate::api::ApplyError::Impossible { changes: plan.refused().cloned().collect() };
    assert_eq!(error.to_string(), format!("alter drive d0: backing \"mem:1Gi\" -> \"mem:2Gi\": {why}"));
}

#[test]
fn a_renamed_object_is_the_same() {
    let renamed = BEFORE.replace("\"front\"", "\"outside\"");
    let plan = Plan::between(&config(BEFORE), &config(&renamed));
    assert_eq!(plan.to_string(), "~ alter port outside: name \"front\" -> \"outside\"");
    assert_eq!(plan.effect(), Some(Effect::Live));
}

#[test]
fn a_file_of_another_size_is_the_same_file() {
    let grown = BEFORE.replace("\"b.img\"", "\"b.img:2Gi\"");
    let plan = Plan::between(&config(BEFORE), &config(&grown));
    assert_eq!(plan.to_string(), "~ alter namespace 2 of disks: drive b.img -> b.img,size=2Gi");
    assert_eq!(plan.effect(), Some(Effect::Live));
    // If it is opened differently, hosts see it disappear and appear.
    let direct = Plan::between(&config(BEFORE), &config(&BEFORE.replace("\"b.img\"", "\"b.img,direct\"")));
    assert_eq!(direct.changes.len(), 2, "{direct}");
}

#[test]
fn the_effect_of_a_ports_change_depends_on_the_key() {
    let with = |line: &str| {
        let text = BEFORE.replacen(
            "listen = \"tcp://10.0.0.1:4420\"",
            &format!("listen = \"tcp://10.0.0.1:4420\"\n{line}"),
            1,
        );
        Plan::between(&config(BEFORE), &config(&text)).effect()
    };
    assert_eq!(with("max_io_queues = 4"), Some(Effect::NewConnections));
    assert_eq!(with("advertise = \"10.0.0.9\""), Some(Effect::Live));
    assert_eq!(with("id = 7"), Some(Effect::Disruptive));
    assert_eq!(with("tls = \"allowed\""), Some(Effect::NewConnections));
    assert_eq!(with("tls = \"required\""), Some(Effect::Disruptive));
    assert_eq!(with("tls_records = \"kernel\""), Some(Effect::NewConnections));
    assert_eq!(with("ana = { 2 = \"non-optimized\" }"), Some(Effect::Live));
    for state in ["inaccessible", "persistent-loss", "change"] {
        assert_eq!(with(&format!("ana = {{ 2 = \"{state}\" }}")), Some(Effect::Disruptive), "{state}");
    }
}

#[test]
fn some_options_can_change_without_a_restart() {
    let after = |options: &str| config(&format!("[target]\n{options}\n{BEFORE}"));
    let effect = |options| Plan::between(&config(BEFORE), &after(options)).changes[0].effect();
    assert_eq!(effect("slow_threshold = \"5ms\""), Effect::Live);
    assert_eq!(effect("dhchap_hashes = [\"sha256\"]\ndhchap_groups = [\"null\"]"), Effect::Live);
    assert_eq!(effect("slow_threshold = \"5ms\"\nthreads = 2"), Effect::Restart);
}

/// No key that may be left out is called by a word that says nothing.
// @test output.defaults
#[test]
fn a_key_that_is_not_written_is_told_by_its_default() {
    let with = |table: &str, line: &str| {
        let text = "[target]\n[[ports]]\nid = 1\nlisten = \"tcp://10.0.0.1:4420\"\n[[subsystems]]\nnqn = \"disks\"\nserial = \"1\"\n\
             allow_any_host = true\nnamespaces = [{ nsid = 1, drive = \"a.img\", ana_group = 1 }]\n";
        text.replacen(table, &format!("{table}{line}"), 1)
    };
    for (table, line, text) in [
        ("[target]\n", "threads = 2\n", "threads one for each processor (default) -> 2"),
        ("[target]\n", "strict = true\n", "strict false (default) -> true"),
        ("[target]\n", "metrics = \"127.0.0.1:9\"\n", "metrics none -> \"127.0.0.1:9\""),
        ("[[ports]]\n", "enabled = false\n", "enabled true (default) -> false"),
        ("[[ports]]\n", "ana.2 = \"change\"\n", "ana all \"optimized\" (default) -> {\"2\":\"change\"}"),
        ("[[ports]]\n", "tos = 8\n", "tos the system's (default) -> 8"),
        ("[[ports]]\n", "zerocopy_send = \"64Ki\"\n", "zerocopy_send none -> \"64Ki\""),
        ("[[ports]]\n", "prefer_busy_poll = true\n", "prefer_busy_poll false (default) -> true"),
        (
            "[[ports]]\n",
            "advertise = \"192.0.2.1\"\n",
            "advertise the address that the host reached (default) -> \"192.0.2.1\"",
        ),
        ("[[subsystems]]\n", "enabled = false\n", "enabled true (default) -> false"),
        ("nsid = 1,", "enabled = false,", "enabled true (default) -> false"),
    ] {
        let (before, after) = (config(&with(table, "")), config(&with(table, line)));
        let there = Plan::between(&before, &after).to_string();
        assert!(there.contains(&format!(": {text}")), "{line}: {there}");
        // And back.
        let back = Plan::between(&after, &before).to_string();
        let (from, to) = text.split_once(" -> ").unwrap();
        let (key, from) = from.split_once(' ').unwrap();
        assert!(back.contains(&format!(": {key} {to} -> {from}")), "{line}: {back}");
    }
}
