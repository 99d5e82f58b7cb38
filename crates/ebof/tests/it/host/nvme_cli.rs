//! The JSON of verbs has nvme-cli's keys, in its places and of its types: those of the releases in
//! `nvme-cli-json.txt`, but what `docs/nvme-cli-json.txt` lists with a reason. tests/vm compares
//! with nvme-cli itself.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::schema::walk;
use super::{NQN, Rig, can_attach};

const TABLE: &str = include_str!("nvme-cli-json.txt");
const DIFFERENCES: &str = include_str!("../../../../../docs/nvme-cli-json.txt");
const MANUAL: &str = include_str!("../../../../../docs/json.md");

/// A line of a list: its fields.
fn lines(list: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    list.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect())
}

/// The differences that are listed: verb, beginning of the place.
struct Differences(Vec<(&'static str, &'static str)>);

impl Differences {
    fn read() -> Self {
        Self(lines(DIFFERENCES).map(|fields| (fields[0], fields[1])).collect())
    }

    fn has(&self, verb: &str, place: &str) -> bool {
        self.0.iter().any(|(known, pattern)| {
            *known == verb && pattern.strip_suffix('*').map_or(place == *pattern, |start| place.starts_with(start))
        })
    }
}

/// The device that a verb is about: the namespace for those that need one, otherwise the
/// controller.
fn device(verb: &str, controller: &str) -> Option<String> {
    let of_namespace = ["id-ns", "ns-descs", "nvm-id-ns", "cmdset-ind-id-ns", "resv-report", "list-ctrl"];
    match verb.split(' ').next().unwrap() {
        "list" | "list-subsys" | "show-topology" => None,
        "get-feature" if ["0x82", "0x83", "0x84"].iter().any(|fid| verb.ends_with(fid)) => {
            Some(format!("{controller}n1"))
        }
        name if of_namespace.contains(&name) => Some(format!("{controller}n1")),
        _ => Some(controller.to_owned()),
    }
}

/// Runs `verb`, and lists `place: type` of its document.
fn keys(rig: &Rig, verb: &str, controller: &str) -> BTreeSet<String> {
    let mut args: Vec<String> = verb.split(' ').map(str::to_owned).collect();
    if let Some(device) = device(verb, controller) {
        args.insert(1, device);
    }
    args.extend(["-o".to_owned(), "json".to_owned()]);
    let run = rig.run(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(run.code, Some(0), "{verb}: {} {}", run.stderr, String::from_utf8_lossy(&run.stdout));
    let json: Value = run.json();
    let mut found = BTreeSet::new();
    walk("", &json, &mut found);
    // The table has this name.
    found.iter().map(|line| line.replacen(&format!(".{controller}"), ".nvme0", 1)).collect()
}

#[test]
fn keys_are_those_of_nvme_cli_or_the_difference_is_listed() {
    if !can_attach() {
        eprintln!("skipped: no /dev/fuse or /dev/loop-control here, or no right to use them");
        return;
    }
    let rig = Rig::of_drive("mem:32Mi");
    let uri = rig.uri(NQN, "");
    for args in [["create-ns", &uri, "-S", "4Mi"], ["attach-ns", &uri, "-n", "1"]] {
        rig.run(&args).ok();
    }
    let port = rig.address("any").port().to_string();
    let connect = ["connect", "-a", "127.0.0.1", "-s", &port, "-n", NQN, "-i", "1", "--front", "loop", "-o", "json"];
    let controller = rig.run(&connect).json()["device"].as_str().unwrap().to_owned();
    let namespace = format!("{controller}n1");
    rig.run(&["resv-register", &namespace, "--nrkey", "1"]).ok();
    // An entry of the error log, and one of the self-test log.
    rig.run(&["get-log", &controller, "-i", "0xcc", "-l", "512"]).failed();
    rig.run(&["device-self-test", &controller, "-s", "extended"]).ok();
    rig.run(&["device-self-test", &controller, "-s", "abort"]).ok();
    // A namespace that this controller is told of.
    rig.run(&["create-ns", &uri, "-S", "1Mi"]).ok();

    let differences = Differences::read();
    let mut ours: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut missing = Vec::new();
    for fields in lines(TABLE) {
        let (verb, key) = (fields[0], fields[1]);
        let found = ours.entry(verb).or_insert_with(|| keys(&rig, verb, &controller));
        let (place, _) = key.rsplit_once(": ").unwrap();
        if !found.contains(key) && !differences.has(verb, place) {
            let there = found.iter().find(|line| line.rsplit_once(": ").is_some_and(|(other, _)| other == place));
            missing.push(format!("{verb}\t{key}\t(here {there:?})"));
        }
    }
    assert!(ours.len() > 40, "{}", ours.len());
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    rig.run(&["disconnect", "-d", &controller]).ok();
}

#[test]
fn the_manual_shows_every_difference_with_its_reason() {
    for fields in lines(DIFFERENCES) {
        let row = format!("| `{}` | `{}` | {} |", fields[0], fields[1], fields[2]);
        assert!(MANUAL.contains(&row), "docs/json.md lacks\n{row}");
    }
    let rows = MANUAL.split("## Differences from nvme-cli").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = rows.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, lines(DIFFERENCES).count(), "docs/json.md has others");
}

/// What `nvme_metrics.py` of node-exporter's textfile collectors asks `nvme` for, in its order, and
/// the values that it computes with.
#[test]
fn node_exporters_collector_finds_what_it_reads() {
    if !can_attach() {
        eprintln!("skipped: no /dev/fuse or /dev/loop-control here, or no right to use them");
        return;
    }
    let rig = Rig::new();
    // Whether the program is there: it wants status 0.
    let usage = rig.run(&[]);
    assert!(usage.ok().contains("Usage: ebof"), "{}", usage.stderr);
    assert!(rig.run(&["version"]).ok().starts_with("ebof "));
    let port = rig.address("any").port().to_string();
    rig.run(&["connect", "-a", "127.0.0.1", "-s", &port, "-n", NQN, "-i", "1", "--front", "loop"]).ok();
    let ask = |words: &[&str]| rig.run(&[words, &["--output-format", "json", "--verbose"]].concat()).json();
    let list = ask(&["list"]);
    let mut seen = 0;
    for host in list["Devices"].as_array().unwrap() {
        for subsystem in host["Subsystems"].as_array().unwrap() {
            for controller in subsystem["Controllers"].as_array().unwrap() {
                for key in ["ModelNumber", "Firmware", "SerialNumber"] {
                    assert!(controller[key].is_string(), "{key}: {controller}");
                }
                for namespace in controller["Namespaces"].as_array().unwrap() {
                    seen += 1;
                    for key in ["SectorSize", "PhysicalSize", "UsedBytes"] {
                        assert!(namespace[key].is_u64(), "{key}: {namespace}");
                    }
                    let smart = ask(&["smart-log", &format!("/dev/{}", namespace["NameSpace"].as_str().unwrap())]);
                    health(&smart);
                }
            }
        }
    }
    assert_eq!(seen, 2, "{list}");
    rig.run(&["disconnect-all"]).ok();
}

fn health(smart: &Value) {
    let counters = [
        "data_units_read",
        "data_units_written",
        "host_read_commands",
        "host_write_commands",
        "avail_spare",
        "spare_thresh",
        "percent_used",
        "media_errors",
        "num_err_log_entries",
        "power_cycles",
        "power_on_hours",
        "controller_busy_time",
        "unsafe_shutdowns",
        "temperature",
    ];
    for key in counters {
        assert!(smart[key].is_u64(), "{key}: {smart}");
    }
    assert!(smart["critical_warning"]["value"].is_u64(), "{smart}");
}
