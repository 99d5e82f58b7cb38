//! What a message advises is followed, and the message is gone.

use super::*;

/// The helps that are given with a text, and whether it is accepted.
fn told(name: &str, text: &str) -> (Vec<String>, bool) {
    let (items, accepted) = match load(name, text) {
        Ok(loaded) => (loaded.remarks.items, true),
        Err(all) => (all.items, false),
    };
    (items.into_iter().filter_map(|item| item.help).collect(), accepted)
}

/// The text gets the advice; the one that follows it does not, and is accepted.
fn follow(name: &str, text: &str, advice: &str, followed: &str) {
    let (helps, _) = told(name, text);
    assert!(helps.iter().any(|help| help.contains(advice)), "{text}\n{advice:?} is not in {helps:#?}");
    let (helps, accepted) = told(name, followed);
    assert!(accepted, "{followed}\n{helps:#?}");
    assert!(!helps.iter().any(|help| help.contains(advice)), "{advice:?} leads back to itself:\n{followed}");
}

const SUBSYSTEM: &str = "[[subsystems]]\nnqn = \"n\"\nallow_any_host = true\n";

#[test]
fn fixes_suggested_for_ports_work() {
    for (before, advice, after) in [
        ("listen = \"127.0.0.1:4420\"", "write \"tcp://127.0.0.1:4420\"", "listen = \"tcp://127.0.0.1:4420\""),
        ("listen = \"::1\"", "write \"tcp://[::1]:4420\"", "listen = \"tcp://[::1]:4420\""),
        ("listen = \"localhost:4421\"", "write \"tcp://127.0.0.1:4421\"", "listen = \"tcp://127.0.0.1:4421\""),
        ("listen = \"nas:4421\"", "\"tcp://0.0.0.0:4421\"", "listen = \"tcp://0.0.0.0:4421\""),
        ("listen = \"tcp://nas\"", "\"tcp://0.0.0.0:4420\"", "listen = \"tcp://0.0.0.0:4420\""),
        ("listen = \"tcp://::1\"", "write \"tcp://[::1]:4420\"", "listen = \"tcp://[::1]:4420\""),
        ("listen = \"tcp://::1:4421\"", "write \"tcp://[::1]:4421\"", "listen = \"tcp://[::1]:4421\""),
        ("listen = \"unix:/run/x\"", "vfio-user:PATH", "listen = \"vfio-user:/run/x\""),
        ("listen = \"rdma://::1\"", "write \"rdma://[::1]:4420\"", "listen = \"rdma://[::1]:4420\""),
        ("listen = \"rdma://10.0.0.1\"\ndata_digest = \"required\"", "leave it out", "listen = \"rdma://10.0.0.1\""),
        ("listen = \"tcp://[::1%lo]\"", "leave out `%` and what follows it", "listen = \"tcp://[::1]\""),
        ("listen = \"tcp://[::1]:x\"", "4420 when left out", "listen = \"tcp://[::1]\""),
        ("name = \"a\"", "add listen = \"tcp://127.0.0.1:4420\"", "name = \"a\"\nlisten = \"tcp://127.0.0.1:4420\""),
        (
            "listen = \"tcp://[::1]\"\nadvertise = \"0.0.0.0\"",
            "such as \"192.168.13.147\"",
            "listen = \"tcp://[::1]\"\nadvertise = \"192.168.13.147\"",
        ),
        (
            "listen = \"tcp://[::1]\"\ndata_digest = \"on\"",
            "\"off\", \"allowed\" or \"required\"",
            "listen = \"tcp://[::1]\"\ndata_digest = \"allowed\"",
        ),
    ] {
        let text = |lines: &str| format!("[[ports]]\n{lines}\n{SUBSYSTEM}");
        follow("a.toml", &text(before), advice, &text(after));
    }
    let one = "[[ports]]\nlisten = \"tcp://[::1]\"\n";
    let text = format!("[ports]\nlisten = \"tcp://[::1]\"\n{SUBSYSTEM}");
    follow("a.toml", &text, "write [[ports]], once for each", &format!("{one}{SUBSYSTEM}"));
    let none = format!("ports = []\n{SUBSYSTEM}");
    follow("a.toml", &none, "leave out `ports` to listen on tcp://127.0.0.1:4420", SUBSYSTEM);
    assert_eq!(load("a.toml", SUBSYSTEM).unwrap().config.ports[0].listen, crate::Listen::loopback());
}

#[test]
fn fixes_suggested_for_the_target_work() {
    for (before, advice, after) in [
        ("handshake_timeout = 30", "write \"30s\"", "handshake_timeout = \"30s\""),
        ("handshake_timeout = 500", "write \"500s\" or \"500ms\"", "handshake_timeout = \"500ms\""),
        ("metrics = \"9464\"", "such as \"127.0.0.1:9464\"", "metrics = \"127.0.0.1:9464\""),
        (
            "discovery_nqn = \"a b\"",
            "such as \"nqn.2014-08.org.example:drive0\"",
            "discovery_nqn = \"nqn.2014-08.org.example:drive0\"",
        ),
    ] {
        let text = |line: &str| format!("[target]\n{line}\n{SUBSYSTEM}");
        follow("a.toml", &text(before), advice, &text(after));
    }
    // What is out of range is not advised.
    let (helps, _) = told("a.toml", &format!("[target]\nhandshake_timeout = 30\n{SUBSYSTEM}"));
    assert_eq!(helps, ["write \"30s\""]);
}

#[test]
fn fixes_suggested_for_subsystems_work() {
    let host = "[[hosts]]\nnqn = \"h\"\n";
    let named = |lines: &str| format!("[[subsystems]]\nnqn = \"n\"\n{lines}\n");
    let open = |lines: &str| format!("{SUBSYSTEM}{lines}\n");
    for (before, advice, after) in [
        (named(""), "allow_any_host = true", open("")),
        (
            named(""),
            "add allowed_hosts = [\"NQN\"] with each NQN in `hosts`",
            format!("{host}{}", named("allowed_hosts = [\"h\"]")),
        ),
        (
            named("allowed_hosts = [\"h\"]"),
            "describe it in `hosts`: nqn = \"h\"",
            format!("{host}{}", named("allowed_hosts = [\"h\"]")),
        ),
        (format!("{host}{}", open("allowed_hosts = [\"h\"]")), "remove one of the two", open("")),
        (open("ports = []"), "leave out `ports` to reach it through all", open("")),
        (
            open("ports = [\"a\"]"),
            "accepted here: \"tcp://127.0.0.1:4420\"",
            open("ports = [\"tcp://127.0.0.1:4420\"]"),
        ),
        (open("namespaces = [\"mem\"]"), "write \"mem:1G\"", open("namespaces = [\"mem:1G\"]")),
        (open("namespaces = [\"mem:0\"]"), "at least one block", open("namespaces = [\"mem:512\"]")),
        (
            open("namespaces = [\"a,block=512\"]"),
            "write block_size = 512 or 4096 beside the drive",
            open("namespaces = [{ drive = \"a\", block_size = 512 }]"),
        ),
        (
            open("namespaces = [\"mem:1G,readonly\"]"),
            "write_protect = true",
            open("namespaces = [{ drive = \"mem:1G\", write_protect = true }]"),
        ),
        (open("namespaces = [\"mem:1G,direct\"]"), "leave it out", open("namespaces = [\"mem:1G\"]")),
        (open("namespaces = [\"a,sise=1G\"]"), "size=SIZE", open("namespaces = [\"a,size=1G\"]")),
        (open("namespaces = [\"a,direct=maybe\"]"), "yes or no", open("namespaces = [\"a,direct=yes\"]")),
        (
            open("namespaces = [\"a\", \"a\"]"),
            "only read_only drives can be shared",
            open(
                "namespaces = [{ drive = { path = \"a\", read_only = true } }, { drive = { path = \"a\", read_only = true } }]",
            ),
        ),
        (
            open("namespaces = [{ nsid = 1 }]"),
            "add drive = \"disk.img\"",
            open("namespaces = [{ nsid = 1, drive = \"disk.img\" }]"),
        ),
        (
            open("namespaces = [{ drive = { path = \"a\", read_only = true }, write_protect = false }]"),
            "leave out write_protect = false",
            open("namespaces = [{ drive = { path = \"a\", read_only = true } }]"),
        ),
        (
            open("namespaces = [{ drive = { path = \"a\", read_only = true }, write_protect = false }]"),
            "or read_only of the drive",
            open("namespaces = [{ drive = { path = \"a\" }, write_protect = false }]"),
        ),
        (open("allow_any_hosts = true"), "did you mean `allow_any_host`?", open("")),
    ] {
        follow("a.toml", &before, advice, &after);
    }
}

#[test]
fn fixes_suggested_for_drives_work() {
    let drive = |lines: &str| format!("[[drives]]\nname = \"d\"\n{lines}\n{SUBSYSTEM}drive = \"d\"\n");
    let good = "backing = \"a\"";
    for (before, advice, after) in [
        (drive(""), "add backing = \"disk.img\"", drive("backing = \"disk.img\"")),
        (
            drive("backing = \"z.img:10G\""),
            "write backing = \"z.img\" and size = \"10G\"",
            drive("backing = \"z.img\"\nsize = \"10G\""),
        ),
        (drive("backing = \"null:1G\""), "or mem:SIZE", drive("backing = \"mem:1G\"")),
        (drive("backing = \"mem:1G\"\nsize = \"1G\""), "leave out `size`", drive("backing = \"mem:1G\"")),
        (
            drive(&format!("{good}\nprofile = \"x\"")),
            "ethernet-ssd",
            drive(&format!("{good}\nprofile = \"ethernet-ssd\"")),
        ),
        (drive(&format!("{good}\nkey_file = \"\"")), "or leave it out", drive(good)),
        (
            drive(&format!("{good}\nexclusive = true\nattach = \"everyone\"")),
            "leave out one of the two",
            drive(&format!("{good}\nexclusive = true")),
        ),
        (drive(&format!("{good}\nmanagers = []")), "leave out `managers`", drive(good)),
        (format!("{}namespaces = [\"b\"]\n", drive(good)), "leave out `namespaces`", drive(good)),
        (format!("[[drives]]\nname = \"d\"\n{good}\n{SUBSYSTEM}"), "add drive = \"d\" to a subsystem", drive(good)),
        (format!("{SUBSYSTEM}drive = \"d\"\n"), "[[drives]], once for each", drive(good)),
        (drive(good).replace("name = \"d\"", "name = \"d/1\""), "letters, digits", drive(good)),
    ] {
        follow("a.toml", &before, advice, &after);
    }
    // A host that manages has to be let in, which takes that it is described.
    let managed = |hosts: &str, allowed: &str| {
        format!(
            "{hosts}[[drives]]\nname = \"d\"\n{good}\nmanagers = [\"m\"]\n[[subsystems]]\nnqn = \"n\"\ndrive = \"d\"\nallowed_hosts = [{allowed}]\n"
        )
    };
    let (host, both) = ("[[hosts]]\nnqn = \"host-a\"\n", "[[hosts]]\nnqn = \"host-a\"\n[[hosts]]\nnqn = \"m\"\n");
    let advice = "add it to `hosts` and to allowed_hosts of n";
    follow("a.toml", &managed(host, "\"host-a\""), advice, &managed(both, "\"host-a\", \"m\""));
    follow("a.toml", &managed(both, "\"host-a\""), "add it to allowed_hosts of n", &managed(both, "\"host-a\", \"m\""));
}

#[test]
fn both_ends_of_a_range_are_accepted() {
    let port = |key: &str| format!("[[ports]]\nlisten = \"tcp://[::1]\"\n{key} = VALUE\n{SUBSYSTEM}");
    let target = |key: &str| format!("[target]\n{key} = VALUE\n{SUBSYSTEM}");
    let drive =
        |key: &str| format!("[[drives]]\nname = \"d\"\nbacking = \"a\"\n{key} = VALUE\n{SUBSYSTEM}drive = \"d\"\n");
    let subsystem = |line: &str| format!("{SUBSYSTEM}{line}\n");
    let mut texts: Vec<(String, &str)> = Vec::new();
    texts.extend(
        [
            "threads",
            "max_connections",
            "max_controllers",
            "host_share",
            "address_share",
            "refused_journal",
            "error_log_entries",
            "rdma_memory",
        ]
        .map(|key| (target(key), "-1")),
    );
    texts.push((target("handshake_timeout"), "\"1ms\""));
    texts.extend(
        [
            "id",
            "tos",
            "so_priority",
            "busy_poll_us",
            "max_queue_size",
            "max_io_queues",
            "zerocopy_send",
            "in_capsule_data",
            "max_h2c_data",
        ]
        .map(|key| (port(key), "-1")),
    );
    texts.extend(["size", "endurance", "namespaces", "quotas = { m = VALUE } #"].map(|key| (drive(key), "-1")));
    texts.extend(
        [
            "cntlid_min = VALUE",
            "cntlid_max = VALUE",
            "namespaces = [{ drive = \"a\", nsid = VALUE }]",
            "namespaces = [{ drive = \"a\", ana_group = VALUE }]",
            "namespaces = [{ drive = { path = \"a\", size = VALUE } }]",
        ]
        .map(|line| (subsystem(line), "-1")),
    );
    for (text, wrong) in texts {
        let (helps, _) = told("a.toml", &text.replace("VALUE", wrong));
        let range = helps
            .iter()
            .find_map(|help| help.strip_prefix("accepted: ").map(|range| range.trim_start_matches("an integer from ")))
            .unwrap_or_else(|| panic!("{text}{helps:?}"));
        let (least, most) = range.split(',').next().unwrap().split_once(" to ").unwrap_or_else(|| panic!("{range}"));
        for end in [least, most] {
            let end = if end.bytes().all(|byte| byte.is_ascii_digit()) { end.to_owned() } else { format!("\"{end}\"") };
            let (helps, accepted) = told("a.toml", &text.replace("VALUE", &end));
            assert!(accepted, "{range}: {end}\n{text}{helps:?}");
        }
    }
}

#[test]
fn fixes_suggested_for_arguments_of_a_drive_work() {
    for (before, advice, after) in [
        ("backing=a", "name=d0,backing=disk.img,size=100G", "name=d0,backing=disk.img,size=100G"),
        ("name=d0", "name=d0,backing=disk.img,size=100G", "name=d0,backing=disk.img,size=100G"),
        ("name=d0,backing=z.img:10G", "write backing=z.img,size=10G", "name=d0,backing=z.img,size=10G"),
        ("name=d0,backing=a,size", "write size=VALUE", "name=d0,backing=a,size=1G"),
        ("name=d0,backing=a,sise=1G", "did you mean `size`?", "name=d0,backing=a,size=1G"),
        ("name=d0,backing=null:1G", "mem:SIZE", "name=d0,backing=mem:1G"),
        (
            "name=d0,backing=a,quota=h",
            "quota=nqn.2014-08.org.example:host:10G",
            "name=d0,backing=a,quota=nqn.2014-08.org.example:host:10G",
        ),
        (
            "name=d0,backing=a,manager=a b",
            "manager=nqn.2014-08.org.example:host",
            "name=d0,backing=a,manager=nqn.2014-08.org.example:host",
        ),
        ("name=d0,backing=a,profile=x", "default or ethernet-ssd", "name=d0,backing=a,profile=ethernet-ssd"),
        ("name=d0,backing=a,attach=x", "manual or everyone", "name=d0,backing=a,attach=everyone"),
        (
            "name=d0,backing=a,ana_on_failure=x",
            "nothing or non-optimized or inaccessible",
            "name=d0,backing=a,ana_on_failure=inaccessible",
        ),
        ("name=d0,backing=a,overwrite=x", "yes or no", "name=d0,backing=a,overwrite=yes"),
        ("name=d0,backing=a,namespaces=x", "1 to 1024", "name=d0,backing=a,namespaces=1024"),
    ] {
        let error = before.parse::<ManagedDrive>().unwrap_err();
        assert!(error.advice().contains(advice), "{before}: {}", error.advice());
        after.parse::<ManagedDrive>().unwrap_or_else(|error| panic!("{after}: {error}"));
    }
    // Every option that is named as accepted is: none is refused as a word.
    let advice = "name=d0,backing=a,xyz=1".parse::<ManagedDrive>().unwrap_err().advice();
    let keys = advice.strip_prefix("accepted: ").and_then(|rest| rest.split(';').next()).unwrap();
    for key in keys.split(", ").filter(|key| !["name", "backing"].contains(key)) {
        let values = ["yes", "1G", "1", "default", "manual", "nothing", "nqn.x:h", "nqn.x:h:1G"];
        let accepted =
            values.iter().any(|value| format!("name=d0,backing=a,{key}={value}").parse::<ManagedDrive>().is_ok());
        assert!(accepted, "{key} is named as accepted: {advice}");
    }
    let near = "name=d0,backing=a,readonl".parse::<ManagedDrive>().unwrap_err().advice();
    assert!(!near.contains("readonly"), "{near}");
}

#[test]
fn fixes_suggested_for_files_of_nvmetcli_work() {
    let port = |addr: &str| {
        format!(
            "{{\"ports\": [{{\"portid\": 1, \"addr\": {{{addr}}}, \"subsystems\": [\"n\"]}}], \"subsystems\": [{{\"nqn\": \"n\", \"attr\": {{\"allow_any_host\": \"1\"}}}}]}}"
        )
    };
    let tcp = port("\"trtype\": \"tcp\", \"traddr\": \"127.0.0.1\"");
    for (before, advice, after) in [
        (port("\"trtype\": \"tcp\""), "add \"traddr\": \"127.0.0.1\"", tcp.clone()),
        (port("\"trtype\": \"x\", \"traddr\": \"127.0.0.1\""), "accepted: \"tcp\"", tcp.clone()),
        (port("\"trtype\": \"fc\", \"traddr\": \"127.0.0.1\""), "with \"trtype\": \"tcp\"", tcp.clone()),
        (port("\"trtype\": \"tcp\", \"traddr\": \"nas\""), "accepted: an IP address", tcp.clone()),
        (
            tcp.replace("\"subsystems\": [\"n\"]", "\"subsystems\": []"),
            "add its NQN to the `subsystems` of a tcp port",
            tcp.clone(),
        ),
        (
            tcp.replace("\"portid\": 1", "\"portid\": 65536"),
            "accepted: 0 to 65535",
            tcp.replace("\"portid\": 1", "\"portid\": 65535"),
        ),
        (tcp.replace("\"1\"", "\"x\""), "accepted: \"1\" or \"0\"", tcp.clone()),
    ] {
        follow("a.json", &before, advice, &after);
    }
}

#[test]
fn fixes_suggested_for_refusals_name_existing_keys() {
    let keys = include_str!("../../../../../docs/config.md");
    let errors = include_str!("../../../../../docs/errors.md");
    let (_, errors) = errors.split_once("## The connection log").unwrap();
    for reason in crate::api::RefusalReason::ALL {
        let name = serde_json::to_value(reason).unwrap();
        let row = format!("| `{}` |", name.as_str().unwrap());
        let rows: Vec<&str> = errors.lines().filter(|line| line.starts_with(&row)).collect();
        assert_eq!(rows.len(), 1, "docs/errors.md has {row} so often");
        let word = format!("`{}`", name.as_str().unwrap());
        assert!(keys.contains(&word), "docs/config.md does not list {word}");
        let words = |text: &str| -> Vec<String> {
            let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '_'));
            words.filter(|word| word.contains('_')).map(str::to_owned).collect()
        };
        for key in words(reason.advice()).into_iter().chain(words(rows[0])) {
            let described = keys.lines().any(|line| line.starts_with("| ") && line.contains(&format!("`{key}`")));
            assert!(described, "{reason:?}: docs/config.md has no key {key}");
        }
    }
}

#[test]
fn a_key_itself_is_refused_wherever_it_is_and_never_repeated() {
    const SECRET: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh";
    let host = "[[hosts]]\nnqn = \"nqn.2014-08.org.example:a\"\n";
    for kind in ["DHHC-1", "NVMeTLSkey-1"] {
        let key = format!("{kind}:01:{SECRET}+KfiaR:");
        let refused = |text: String, name: &str| {
            let refused = load(name, &text).unwrap_err();
            let told = format!("{refused}{refused:#}{refused:?}{}", serde_json::to_string(&refused).unwrap());
            assert!(!told.contains(&SECRET[..8]) && !told.contains("KfiaR"), "{text}: {told}");
            told
        };
        for place in ["dhchap_key", "dhchap_ctrl_key", "tls_psk"] {
            let places = ["file", "credential", "keyring"].map(|name| format!("{{ {name} = \"{key}\" }}"));
            for value in places.into_iter().chain([format!("\"{key}\""), format!("[\"{key}\"]")]) {
                let told = refused(format!("{host}{place} = {value}\n"), "a.toml");
                assert!(told.contains("is a key itself") && told.contains("dhchap_key = { file = "), "{told}");
            }
            // Without quotes, without its beginning, and beside something else that is wrong.
            refused(format!("{host}{place} = {key}\n"), "a.toml");
            refused(format!("{host}{place} = \"{SECRET}\"\n"), "a.toml");
            refused(format!("{host}{place} = {{ file = \"\" }} # {key}\n"), "a.toml");
        }
        for text in [
            format!("[target]\nthreads = \"{key}\""),
            format!("[target]\n\"{key}\" = 1"),
            format!("[\"{key}\"]\na = 1"),
            format!("[[hosts]]\nnqn = \"{key}\""),
            format!("[[ports]]\nlisten = \"{key}\""),
            format!("[[ports]]\nlisten = \"tcp://127.0.0.1:4420\"\nname = \"{key}\"\ntls = \"{key}\""),
            format!("[[subsystems]]\nnqn = \"nqn.x\"\nhosts = [\"{key}\"]"),
            format!("[[subsystems]]\nnqn = \"nqn.x\"\nserial = \"{key}\"\n[[subsystems.namespaces]]\nfile = \"{key}\""),
        ] {
            assert!(refused(text, "a.toml").contains("a key itself"));
        }
        let nqn = "nqn.2014-08.org.example:a";
        refused(format!("{{\"hosts\": [{{\"nqn\": \"{nqn}\", \"tls_psk\": \"{key}\"}}]}}"), "a.json");
        refused(format!("{{\"hosts\": [{{\"nqn\": \"{nqn}\", \"tls_psk\": {key}}}]}}"), "a.json");
        let one_line = format!("{{\"a\": \"{}\", \"hosts\": [\"{key}\", \"{key}\"]}}", "x".repeat(80));
        refused(one_line, "a.json");
    }
}
