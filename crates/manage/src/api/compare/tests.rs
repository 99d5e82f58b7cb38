//! Pairs of configurations, and what is found between them.

use super::*;
use crate::api::{KEYS_SCHEMA, KeyKind, KeyStatus};
use crate::load;

const UUID: &str = "11111111-2222-4333-8444-555555555555";

/// A target that agrees with its peer where nothing is replaced.
fn target(number: u16) -> String {
    let (least, most) = (number * 1000 + 1, number * 1000 + 1000);
    format!(
        "[[hosts]]\nnqn = \"ann\"\n[[hosts]]\nnqn = \"ben\"\n[[ports]]\nname = \"p{number}\"\nid = {number}\n\
         listen = \"tcp://192.0.2.{number}:4420\"\nana = {{ 2 = \"non-optimized\" }}\n\
         [[subsystems]]\nnqn = \"disks\"\nallowed_hosts = [\"ann\"]\ncntlid_min = {least}\ncntlid_max = {most}\n\
         namespaces = [{{ drive = \"/dev/lun\", nsid = 1, uuid = \"{UUID}\" }}]\n"
    )
}

fn config(text: &str) -> Config {
    load("a.toml", text).unwrap_or_else(|error| panic!("{error}\n{text}")).config
}

fn side(config: &Config) -> ComparedTarget<'_> {
    ComparedTarget { config, status: None, keys: None }
}

/// The kinds of what is found, with their grades, where `a` and `b` replace parts of both.
fn found(a: &[(&str, &str)], b: &[(&str, &str)]) -> Vec<(&'static str, Grade)> {
    let replaced = |number: u16, with: &[(&str, &str)]| {
        with.iter().fold(target(number), |text, (old, new)| {
            assert!(text.contains(old), "{old}");
            text.replace(old, new)
        })
    };
    let (a, b) = (config(&replaced(1, a)), config(&replaced(2, b)));
    let same_file = |a: &str, b: &str| match (a, b) {
        ("/dev/lun", "/dev/lun") => Some(true),
        ("/dev/far", _) | (_, "/dev/far") => None,
        _ => Some(false),
    };
    let comparison = TargetComparison::between(&side(&a), &side(&b), None, &same_file);
    assert_eq!(comparison.subsystems, ["disks"]);
    comparison.findings.iter().map(|finding| (finding.kind, finding.grade)).collect()
}

const WRONG: Grade = Grade::Contradiction;

#[test]
fn two_targets_that_agree_have_no_findings() {
    assert_eq!(found(&[], &[]), []);
}

// @test wire.two-targets
#[test]
fn each_contradiction_is_found() {
    let uuid = format!(", uuid = \"{UUID}\"");
    let another = ", uuid = \"11111111-2222-4333-8444-666666666666\"";
    let second = "}, { drive = \"null:1M\", nsid = 9 }]";
    type Change<'c> = (&'c str, &'c str);
    let table: &[(Change<'_>, &[(&str, Grade)])] = &[
        (("cntlid_min = 2001", "cntlid_min = 2000"), &[("cntlid", WRONG)]),
        (("id = 2\n", "id = 1\n"), &[("port-id", WRONG)]),
        (("nqn = \"disks\"", "nqn = \"disks\"\nserial = \"X\""), &[("serial", WRONG)]),
        (("nqn = \"disks\"", "nqn = \"disks\"\nmodel = \"X\""), &[("model", WRONG)]),
        (("nqn = \"disks\"", "nqn = \"disks\"\nfirmware = \"X\""), &[("firmware", Grade::Note)]),
        (("nqn = \"disks\"", "nqn = \"disks\"\nenabled = false"), &[("disabled", Grade::Note)]),
        (("nqn = \"disks\"", "nqn = \"disks\"\nsecurity = \"tls\""), &[("security", WRONG)]),
        (("allowed_hosts = [\"ann\"]", "allowed_hosts = [\"ann\", \"ben\"]"), &[("allowed-hosts", WRONG)]),
        (("allowed_hosts = [\"ann\"]", "allow_any_host = true"), &[("allow-any-host", WRONG)]),
        (("nqn = \"ann\"\n", "nqn = \"ann\"\ndhchap_key = { file = \"/k\" }\n"), &[("keys", WRONG)]),
        ((&uuid, another), &[("identity", WRONG)]),
        ((&uuid, ""), &[("identity", Grade::Unknown)]),
        ((UUID, &format!("{UUID}\", eui64 = \"0000000000000001")), &[("identity", WRONG)]),
        ((UUID, &format!("{UUID}\", nguid = \"00000000000000000000000000000001")), &[("identity", WRONG)]),
        (("/dev/lun", "/dev/other"), &[("data", WRONG)]),
        (("/dev/lun", "/dev/far"), &[("data", Grade::Unknown)]),
        (("/dev/lun", "mem:1M"), &[("data", WRONG)]),
        ((&uuid, &format!("{uuid}, write_protect = true")), &[("write-protect", WRONG)]),
        ((&uuid, &format!("{uuid}, ana_group = 3")), &[("ana-group", WRONG)]),
        (("nsid = 1", "nsid = 4"), &[("nsid", WRONG)]),
        (("}]", second), &[("only-one", Grade::Note)]),
        (("}]", "}]\nports = []"), &[("no-port", Grade::Note)]),
    ];
    for (change, wanted) in table {
        assert_eq!(found(&[], &[*change]), *wanted, "{change:?}");
    }
}

#[test]
fn sizes_and_formats_are_compared_where_both_are_known() {
    let sized = |size: &str| ("/dev/lun".to_owned(), format!("/dev/lun:{size}"));
    let (a, b) = (sized("1Mi"), sized("2Mi"));
    assert_eq!(found(&[(&a.0, &a.1)], &[(&b.0, &b.1)]), [("size", WRONG)]);
    assert_eq!(found(&[(&a.0, &a.1)], &[]), [], "that of the file is not known");
    let form = |bytes: &str| ("nsid = 1".to_owned(), format!("nsid = 1, block_size = {bytes}"));
    let (a, b) = (form("512"), form("4096"));
    assert_eq!(found(&[(&a.0, &a.1)], &[(&b.0, &b.1)]), [("block-size", WRONG)]);
}

#[test]
fn a_group_needs_a_port_at_one_of_the_targets() {
    let states = |state: &str| ("ana = { 2", format!("ana = {{ 1 = \"{state}\", 2"));
    for (a, b, wanted) in [
        ("inaccessible", "optimized", None),
        ("persistent-loss", "inaccessible", Some(WRONG)),
        ("change", "inaccessible", Some(WRONG)),
        ("inaccessible", "non-optimized", Some(Grade::Note)),
    ] {
        let (a, b) = (states(a), states(b));
        let wanted: Vec<_> = wanted.into_iter().map(|grade| ("ana-state", grade)).collect();
        assert_eq!(found(&[(a.0, &a.1)], &[(b.0, &b.1)]), wanted, "{a:?} {b:?}");
    }
}

#[test]
fn keys_are_compared_by_what_is_told_of_them() {
    let (a, b) = (config(&target(1)), config(&target(2)));
    let key = |bits| KeyStatus {
        id: None,
        host: "ann".to_owned(),
        kind: KeyKind::Dhchap,
        place: Some("/etc/secret-place".to_owned()),
        hash: Some("SHA-256".to_owned()),
        bits,
        since_s: None,
        connected: None,
    };
    let keys = |bits| Keys { schema: KEYS_SCHEMA, durable: true, keys: vec![key(bits)] };
    let compared = |of_a, of_b| {
        let (of_a, of_b) = (keys(of_a), keys(of_b));
        let [a, b] =
            [(&a, &of_a), (&b, &of_b)].map(|(config, keys)| ComparedTarget { config, status: None, keys: Some(keys) });
        TargetComparison::between(&a, &b, None, &|_, _| Some(true)).findings
    };
    let found = compared(256, 384);
    assert_eq!((found.len(), found[0].kind, found[0].grade), (1, "keys", WRONG));
    assert_eq!(found[0].b.as_deref(), Some("384 bits for SHA-256"));
    let found = compared(256, 256);
    assert_eq!((found.len(), found[0].grade), (1, Grade::Unknown), "the texts are not told");
}

#[test]
fn only_what_both_serve_is_compared() {
    let a = config(&target(1));
    let b = config(&target(2).replace("\"disks\"", "\"others\""));
    let always = |_: &str, _: &str| None;
    assert_eq!(TargetComparison::between(&side(&a), &side(&b), None, &always), TargetComparison::default());
    let other = Nqn::parse("others").unwrap();
    assert!(TargetComparison::between(&side(&a), &side(&a), Some(&other), &always).subsystems.is_empty());
    let with_itself = TargetComparison::between(&side(&a), &side(&a), None, &always);
    assert_eq!(with_itself.count(WRONG), 2, "identifiers of controllers and of ports");
}
