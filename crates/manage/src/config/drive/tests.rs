//! Drives in a configuration: accepted texts and their values, and diagnostics of others.

use super::*;
use crate::config::{Config, Subsystem};
use crate::diagnostic::Severity;
use crate::drive::FileDrive;
use crate::load;
use proptest::prelude::*;

/// A drive with additional keys, and its subsystem.
fn with_drive(lines: &str) -> String {
    format!(
        "[[subsystems]]\nnqn = \"n\"\nallow_any_host = true\ndrive = \"d0\"\n\
         [[drives]]\nname = \"d0\"\nbacking = \"disk.img\"\n{lines}\n"
    )
}

fn good(text: &str) -> Config {
    match load("a.toml", text) {
        Ok(loaded) => loaded.config,
        Err(all) => panic!("{all}"),
    }
}

/// The first diagnostic: its position, message and hint.
fn complaint(text: &str) -> (String, String) {
    let all = load("a.toml", text).expect_err("this text has a mistake");
    let first = &all.items[0];
    (format!("{}:{}: {}", first.line, first.column, first.message), first.help.clone().unwrap_or_default())
}

fn remarks(text: &str) -> Vec<(Severity, usize, String)> {
    let remarks = load("a.toml", text).unwrap().remarks.items;
    remarks.into_iter().map(|item| (item.severity, item.line, item.message)).collect()
}

#[test]
fn a_drive_needs_a_name_and_a_backing() {
    let config = good(&with_drive(""));
    assert_eq!(config.drives, [ManagedDrive::new("d0", Drive::file("disk.img"))]);
    assert_eq!(config.subsystems[0].drive.as_deref(), Some("d0"));
    assert_eq!((config.subsystems[0].cntlid_min, config.subsystems[0].namespaces.len()), (0, 0));
    assert_eq!(remarks(&with_drive("")), []);
}

#[test]
fn every_key_is_read() {
    let config = good(&with_drive(
        "size = \"100Gi\"\nprofile = \"ethernet-ssd\"\nnamespaces = 1024\nfunctions = 127\none_subsystem = true\n\
         overcommit = true\nexclusive = true\n\
         checksums = true\nencryption = true\nkey_file = \"a.key\"\nread_only_if_damaged = true\n\
         attach = \"manual\"\nmanagers = [\"host-a\"]\nserial = \"S1\"\nmodel = \"M\"\nendurance = \"600Ti\"\n\
         quotas = { \"host-a\" = \"10Gi\" }",
    ));
    let expected = ManagedDrive {
        size_bytes: Some(100 << 30),
        profile: DriveProfile::EthernetSsd,
        namespaces: Some(1024),
        functions: 127,
        one_subsystem: true,
        overcommit: true,
        exclusive: true,
        checksums: true,
        encryption: true,
        key_file: Some("a.key".into()),
        read_only_if_damaged: true,
        attach: Attach::Nobody,
        managers: Some(vec![Nqn::parse("host-a").unwrap()]),
        quotas: BTreeMap::from([("host-a".into(), 10 << 30)]),
        serial: Some("S1".into()),
        model: Some("M".into()),
        endurance_bytes: Some(600 << 40),
        ..ManagedDrive::new("d0", Drive::file("disk.img"))
    };
    assert_eq!(config.drives, [expected]);
    assert_eq!((config.subsystems[0].serial.as_str(), config.subsystems[0].model.as_str()), ("S1", "M"));
    assert_eq!(good(&with_drive("attach = \"everyone\"")).drives[0].attach, Attach::Everyone);
}

#[test]
fn only_backings_that_keep_data_are_accepted() {
    let backing = |text: &str| good(&with_drive("").replace("\"disk.img\"", text)).drives[0].backing.clone();
    assert_eq!(backing("\"mem:1Gi\""), Drive::Memory { size_bytes: 1 << 30 });
    let direct = FileDrive { path: "/dev/sd:1Gi".into(), direct: Some(true), ..FileDrive::default() };
    assert_eq!(backing("{ path = \"/dev/sd:1Gi\", direct = true }"), Drive::File(direct));
    for (text, message, help) in [
        ("\"null:1Gi\"", "a drive cannot be kept in null:", FORGETFUL),
        ("\"disk.img:10Gi\"", WITHOUT_SIZE, "write backing = \"disk.img\" and size = \"10Gi\""),
        ("{ path = \"a\", size = 512 }", WITHOUT_SIZE, "write backing = \"a\" and size = \"512\""),
        ("{ path = \"a\", read_only = true }", "a drive cannot be read-only", READ_ONLY),
        ("{ path = \"a\", nested = true }", "`nested` is for plain namespaces", "leave it out"),
        ("\"mem:1Ki\"", "a drive of 1024 bytes", "accepted: 1Mi to 1024Pi"),
        ("\"mem\"", "`mem` needs a size", "write \"mem:1G\""),
        ("7", "`backing` is an integer", "accepted: \"PATH\", \"mem:SIZE\" or { path = \"PATH\" }"),
    ] {
        let (said, advised) = complaint(&with_drive("").replace("\"disk.img\"", text));
        assert_eq!(said, format!("7:11: {message}"), "{text}");
        assert!(advised.starts_with(help), "{text}: {advised}");
    }
    let (said, _) = complaint(&with_drive("size = \"1Gi\"").replace("disk.img", "mem:1Gi"));
    assert_eq!(said, "8:8: memory has the size that its backing says");
}

#[test]
fn each_mistake_is_reported() {
    for (lines, message, help) in [
        ("size = \"512Ki\"", "8:8: `size` is 512Ki", "accepted: 1Mi to 1024Pi, a multiple of 512"),
        ("size = 1048577", "8:8: `size` is 1048577", "accepted: 1Mi to 1024Pi, a multiple of 512"),
        ("size = \"100X\"", "8:8: `100X` has an unknown unit", "accepted: bytes, or"),
        ("profile = \"ethernet_ssd\"", "8:11: `profile` is \"ethernet_ssd\"", "did you mean \"ethernet-ssd\"?"),
        ("profile = \"fast\"", "8:11: `profile` is \"fast\"", "accepted: \"default\" or \"ethernet-ssd\""),
        ("profile = 1", "8:11: `profile` is an integer", "accepted: \"default\" or \"ethernet-ssd\""),
        ("namespaces = 0", "8:14: `namespaces` is 0", "accepted: an integer from 1 to 1024"),
        ("namespaces = 1025", "8:14: `namespaces` is 1025", "accepted: an integer from 1 to 1024"),
        ("overcomit = true", "8:1: `overcomit` is not a key of a drive", "did you mean `overcommit`?"),
        ("exclusive = \"yes\"", "8:13: `exclusive` is a string", "accepted: true or false"),
        ("attach = \"all\"", "8:10: `attach` is \"all\"", "accepted: \"manual\" or \"everyone\""),
        (
            "exclusive = true\nattach = \"everyone\"",
            "9:10: `attach` is \"everyone\" and `exclusive` is true",
            "with exclusive a namespace has one host at a time",
        ),
        ("managers = \"h\"", "8:12: `managers` is a string", "accepted: an array"),
        (
            "managers = [\"a b\"]",
            "8:13: the NQN has a control character or white space at byte 1",
            "accepted: 1 to 223",
        ),
        ("managers = [\"h\", \"h\"]", "8:18: the manager is named twice", "write it once"),
        ("quotas = \"10Gi\"", "8:10: `quotas` is a string", "accepted: a table of sizes by host NQN"),
        ("quotas = { h = \"much\" }", "8:16: `much` has no number", "accepted: bytes, or"),
        ("quotas = { h = \"2000Pi\" }", "8:16: `quotas` is 2000Pi", "accepted: 0 to 1024Pi"),
        (
            "quotas = { \"a b\" = 1 }",
            "8:12: the NQN has a control character or white space at byte 1",
            "accepted: 1 to",
        ),
        ("serial = \"123456789012345678901\"", "8:10: `serial` has 21 characters", "accepted: 1 to 20"),
        ("endurance = \"1Ki\"", "8:13: `endurance` is 1Ki", "accepted: 1Mi to"),
    ] {
        let (said, advised) = complaint(&with_drive(lines));
        assert_eq!(said, message, "{lines}");
        assert!(advised.starts_with(help), "{lines}: {advised}");
    }
    let many = format!("managers = [{}]", (0..4097).map(|at| format!("\"h{at}\",")).collect::<String>());
    assert!(complaint(&with_drive(&many)).0.ends_with("there are 4097 managers"));
    let many = format!("quotas = {{ {} }}", (0..4097).map(|at| format!("h{at} = 1")).collect::<Vec<_>>().join(", "));
    assert!(complaint(&with_drive(&many)).0.ends_with("there are 4097 quotas"));
    let many: String = (0..257).map(|at| format!("[[drives]]\nname = \"d{at}\"\nbacking = \"mem:1Mi\"\n")).collect();
    assert_eq!(complaint(&many), ("769:1: there are 257 drives".into(), "accepted: at most 256".into()));
}

#[test]
fn names_have_limits_and_are_unique() {
    for name in ["d0", "A-b_c.9", &"x".repeat(32)] {
        good(&with_drive("").replace("\"d0\"", &format!("\"{name}\"")));
    }
    let long = "x".repeat(33);
    for name in ["", "a b", "a/b", "a:b", "Größe", &long] {
        let (said, advised) = complaint(&with_drive("").replace("\"d0\"", &format!("\"{name}\"")));
        assert_eq!(said, format!("6:8: `{name}` cannot name a drive"));
        assert_eq!(advised, "accepted: 1 to 32 letters, digits, `.`, `_` and `-`");
    }
    let twice = with_drive("[[drives]]\nname = \"d0\"\nbacking = \"b.img\"");
    assert_eq!(complaint(&twice).0, "9:8: the drive name d0 is used twice");
    assert_eq!(complaint("[[drives]]\nbacking = \"a\"").0, "1:1: a drive has no `name`");
    assert_eq!(complaint("[[drives]]\nname = \"a\"").0, "1:1: a drive has no `backing`");
    assert_eq!(complaint("drives = [\"a\"]").0, "1:11: a drive is described by a table, and this is a string");
}

#[test]
fn a_backing_has_one_user() {
    let two = with_drive("[[drives]]\nname = \"d1\"\nbacking = \"disk.img\"");
    let expected = (
        "10:11: the drive disk.img is used twice".to_owned(),
        "line 7 has it first; only read_only drives can be shared".to_owned(),
    );
    assert_eq!(complaint(&two), expected);
    for namespace in ["\"disk.img\"", "{ drive = { path = \"disk.img\", read_only = true } }"] {
        let beside =
            with_drive(&format!("[[subsystems]]\nnqn = \"m\"\nallow_any_host = true\nnamespaces = [{namespace}]"));
        assert!(complaint(&beside).0.ends_with("the drive disk.img is used twice"), "{namespace}");
    }
    good(&with_drive(
        "[[drives]]\nname = \"d1\"\nbacking = \"mem:1Gi\"\n[[drives]]\nname = \"d2\"\nbacking = \"mem:1Gi\"",
    ));
}

#[test]
fn a_drive_has_one_subsystem() {
    let second = |keys: &str| with_drive(&format!("[[subsystems]]\nnqn = \"m\"\nallow_any_host = true\n{keys}"));
    let taken =
        ("11:9: the drive d0 has a subsystem already", "a drive belongs to one subsystem; line 4 names it first");
    let unknown = ("11:9: there is no drive `d1`", "did you mean \"d0\"?");
    let other = ("11:9: there is no drive `other`", "accepted here: \"d0\"");
    for (line, (message, help)) in
        [("drive = \"d0\"", taken), ("drive = \"d1\"", unknown), ("drive = \"other\"", other)]
    {
        assert_eq!(complaint(&second(line)), (message.into(), help.into()));
    }
    let none = "[[subsystems]]\nnqn = \"m\"\nallow_any_host = true\ndrive = \"d0\"";
    assert_eq!(complaint(none).1, "describe it: [[drives]], once for each");
    let wrong = with_drive("size = 1");
    assert_eq!(load("a", &wrong).unwrap_err().errors(), 1, "a drive with a mistake is known");
    let message = "no subsystem has the drive d0: no host can reach it".to_owned();
    let alone = "[[drives]]\nname = \"d0\"\nbacking = \"a\"\n[[subsystems]]\nnqn = \"m\"\nallow_any_host = true";
    assert_eq!(remarks(alone), [(Severity::Warning, 2, message)]);
}

#[test]
fn the_subsystem_of_a_drive_has_no_namespaces_of_its_own() {
    let text = |line: &str| with_drive("serial = \"S1\"").replace("drive = \"d0\"", &format!("drive = \"d0\"\n{line}"));
    let (said, advised) = complaint(&text("namespaces = [\"mem:1Gi\"]"));
    assert_eq!(said, "5:15: a subsystem with a drive has no namespaces of its own");
    assert_eq!(advised, "its hosts make them: leave out `namespaces`, or `drive`");
    good(&text("namespaces = []"));
    let (said, advised) = complaint(&text("serial = \"S2\""));
    assert_eq!(said, "5:10: `serial` is \"S2\", and that of the drive is \"S1\"");
    assert_eq!(advised, "write it in one of the two places");
    assert_eq!(good(&text("serial = \"S1\"\ncntlid_min = 7")).subsystems[0].cntlid_min, 7);
    // The command line gives the same value as a file.
    let config = good(&text(""));
    assert_eq!(Subsystem { ports: Vec::new(), ..config.subsystems[0].clone() }, {
        let built = Subsystem::of_drive(Nqn::parse("n").unwrap(), &config.drives[0]);
        Subsystem { allow_any_host: true, ..built }
    });
}

#[test]
fn hosts_that_cannot_reach_the_drive_cause_a_warning() {
    let text = |lines: &str| {
        with_drive(lines).replace("allow_any_host = true", "allowed_hosts = [\"host-a\"]")
            + "[[hosts]]\nnqn = \"host-a\"\n"
    };
    let warning = |line, text: &str| vec![(Severity::Warning, line, text.to_owned())];
    let manager = warning(8, "the manager may not connect to the drive's subsystem");
    assert_eq!(remarks(&text("managers = [\"host-b\"]")), manager);
    let help = load("a", &text("managers = [\"host-b\"]")).unwrap().remarks.items[0].help.clone();
    assert_eq!(help.as_deref(), Some("did you mean \"host-a\"? Otherwise add it to `hosts` and to allowed_hosts of n"));
    assert_eq!(
        remarks(&text("quotas = { host-b = 1 }")),
        warning(8, "the host may not connect to the drive's subsystem")
    );
    assert_eq!(remarks(&text("managers = [\"host-a\"]\nquotas = { host-a = 1 }")), []);
    assert_eq!(remarks(&with_drive("managers = [\"host-b\"]")), []);
    let quota = "managers = [\"a\"]\nquotas = { b = 1 }";
    assert_eq!(remarks(&with_drive(quota)), warning(9, "the quota has no effect: the host is not one of `managers`"));
    let large = "size = \"1Gi\"\nquotas = { a = \"2Gi\" }";
    assert_eq!(remarks(&with_drive(large)), warning(9, "the quota is larger than the drive"));
    assert_eq!(remarks(&with_drive(&format!("overcommit = true\n{large}"))), []);
    let nobody = vec![(Severity::Note, 8, "no host may manage this drive".to_owned())];
    assert_eq!(remarks(&with_drive("managers = []")), nobody);
}

#[test]
fn a_json_text_with_drives_is_not_nvmetclis() {
    let text =
        "{\"drives\": [{\"name\": \"d0\", \"backing\": \"a\"}], \"subsystems\": [{\"nqn\": \"n\", \"drive\": \"d0\"}]}";
    assert_eq!(load("a.json", text).unwrap().config.subsystems[0].drive.as_deref(), Some("d0"));
    let help = load("a.json", &text.replace("\"backing\": \"a\"", "\"backing\": \"a:1Gi\"")).unwrap_err();
    assert_eq!(help.items[0].help.as_deref(), Some("write \"backing\": \"a\" and \"size\": \"1Gi\""));
}

fn drives() -> impl Strategy<Value = ManagedDrive> {
    let host = || "[a-z.:,\"'=é-]{1,12}".prop_map(|name| format!("nqn.{name}"));
    let backing = prop_oneof![
        (1_u64 << 20..1 << 60).prop_map(|size_bytes| Drive::Memory { size_bytes }),
        ("[ -~é]{1,20}", any::<Option<bool>>())
            .prop_map(|(path, direct)| { Drive::File(FileDrive { path, direct, ..FileDrive::default() }) }),
    ];
    let numbers = (
        proptest::option::of((2048_u64..1 << 50).prop_map(|blocks| blocks * 512)),
        proptest::option::of(1_u32..=1024),
        proptest::option::of(1_u64 << 20..1 << 62),
    );
    let rules = (any::<bool>(), 0..3_usize, any::<bool>(), 0..=127_u16);
    let hosts = (
        proptest::option::of(proptest::collection::btree_set(host(), 0..4)),
        proptest::collection::btree_map(host(), 0_u64..=1 << 60, 0..4),
    );
    let texts = (proptest::option::of("[ -~]{1,20}"), proptest::option::of("[ -~]{1,40}"));
    ("[A-Za-z0-9._-]{1,32}", backing, numbers, rules, hosts, texts).prop_map(
        |(
            name,
            backing,
            (size, namespaces, endurance),
            (overcommit, access, plain, functions),
            (managers, quotas),
            texts,
        )| {
            let (exclusive, everyone) = (access == 1, access == 2);
            let size_bytes = size.filter(|_| backing.path().is_some());
            ManagedDrive {
                name,
                backing,
                size_bytes,
                profile: if plain { DriveProfile::Default } else { DriveProfile::EthernetSsd },
                namespaces,
                functions,
                one_subsystem: everyone,
                overcommit,
                exclusive,
                overwrite: overcommit != everyone,
                checksums: overcommit != plain,
                encryption: everyone != plain,
                key_file: plain.then(|| "keys/a b.key".to_owned()),
                read_only_if_damaged: plain != everyone,
                ana_on_failure: if plain { AnaOnFailure::NonOptimized } else { AnaOnFailure::Nothing },
                attach: if everyone { Attach::Everyone } else { Attach::Nobody },
                managers: managers.map(|hosts| hosts.iter().map(|host| Nqn::parse(host).unwrap()).collect()),
                quotas,
                serial: texts.0,
                model: texts.1,
                endurance_bytes: endurance,
            }
        },
    )
}

proptest! {
    #[test]
    fn drives_round_trip(drive in drives()) {
        let mut subsystem = Subsystem::of_drive(Nqn::parse("n").unwrap(), &drive);
        subsystem.allow_any_host = true;
        let config = Config { drives: vec![drive], subsystems: vec![subsystem], ..Config::default() };
        prop_assert_eq!(&crate::load::check("a", &config).unwrap().config, &config);
        let json = serde_json::to_string(&config).unwrap();
        prop_assert_eq!(&load("a.json", &json).unwrap().config, &config);
    }
}
