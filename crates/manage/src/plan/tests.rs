//! What changes, in which order, and how it reads.

use super::*;
use crate::config::load;

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
namespaces = ["mem:1M"]
"#;

#[test]
fn a_plan_reads_in_the_order_in_which_it_is_made() {
    let plan = Plan::between(&config(BEFORE), &config(AFTER));
    assert_eq!(
        plan.to_string(),
        "~ alter target: threads unset -> 2 (needs a new start)\n\
         - remove namespace 2 of disks (connected hosts notice)\n\
         - remove subsystem gone (connected hosts notice)\n\
         - remove port old (connected hosts notice)\n\
         + add host host-b\n\
         ~ alter port front: data_digest \"allowed\" -> \"required\" (new connections only)\n\
         + add port new at tcp://10.0.0.1:4421\n\
         ~ alter subsystem disks: allowed_hosts [\"host-a\"] -> [\"host-b\"] (connected hosts notice)\n\
         + add subsystem fresh with 1 namespace\n\
         ~ alter namespace 3 of disks: write_protect false -> true\n\
         + add namespace 2 to disks: b2.img\n\
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
fn what_is_new_is_added_from_nothing_and_removed_to_nothing() {
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
