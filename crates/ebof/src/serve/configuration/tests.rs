//! From arguments to a valid configuration.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn config(args: &[&str]) -> Config {
    let config = from_arguments(&parse(args)).unwrap_or_else(|error| panic!("{error:#}"));
    ebof_manage::load::check("command line", &config).unwrap_or_else(|error| panic!("{error}")).config
}

fn parse(args: &[&str]) -> Args {
    Line::try_parse_from([&["serve"], args].concat()).unwrap_or_else(|error| panic!("{error}")).args
}

fn refusal(args: &[&str]) -> String {
    format!("{:#}", from_arguments(&parse(args)).expect_err("these arguments do not fit together"))
}

/// Each subsystem: its NQN, its drive, how many namespaces.
fn outline(config: &Config) -> Vec<(&str, Option<&str>, usize)> {
    let subsystems = config.subsystems.iter();
    subsystems.map(|it| (it.nqn.as_str(), it.drive.as_deref(), it.namespaces.len())).collect()
}

#[test]
fn one_drive_has_the_nqn() {
    let config = config(&[
        "--drive",
        "name=d0,backing=disk.img,size=100Gi,serial=S1",
        "--nqn",
        "nqn.x",
        "--allow-any-host",
        "--listen",
        "tcp://0.0.0.0:4420",
        "--model",
        "M",
    ]);
    assert_eq!(outline(&config), [("nqn.x", Some("d0"), 0)]);
    let subsystem = &config.subsystems[0];
    assert_eq!((subsystem.serial.as_str(), subsystem.model.as_str(), subsystem.cntlid_min), ("S1", "M", 0));
    assert_eq!((subsystem.allow_any_host, subsystem.ports.len()), (true, 1));
    assert_eq!((config.drives.len(), config.drives[0].size_bytes), (1, Some(100 << 30)));
}

#[test]
fn several_drives_have_names_below_the_nqn_and_plain_ones_have_the_nqn() {
    let two = ["--drive", "name=a,backing=mem:1Gi", "--drive", "name=b,backing=mem:1Gi", "--nqn", "nqn.x"];
    assert_eq!(outline(&config(&two)), [("nqn.x:a", Some("a"), 0), ("nqn.x:b", Some("b"), 0)]);
    let mixed = [&["mem:1Gi", "mem:2Gi", "--block-size", "4096", "--host", "h"], &two[..]].concat();
    let config = config(&mixed);
    assert_eq!(outline(&config), [("nqn.x", None, 2), ("nqn.x:a", Some("a"), 0), ("nqn.x:b", Some("b"), 0)]);
    assert!(config.subsystems.iter().all(|subsystem| subsystem.allowed_hosts.len() == 1));
}

#[test]
fn without_an_nqn_each_subsystem_gets_a_stable_one() {
    let both = ["--drive", "name=a,backing=mem:1Gi", "--drive", "name=b,backing=mem:1Gi", "mem:1Gi"];
    let made = config(&both);
    let mut names: Vec<&str> = made.subsystems.iter().map(|subsystem| subsystem.nqn.as_str()).collect();
    assert_eq!(config(&both), made);
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 3);
    assert!(names.iter().all(|name| name.starts_with(Nqn::UUID_PREFIX)));
}

#[test]
fn a_file_that_is_created_later_gives_the_same_nqn() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let drive = |path: &Path| ManagedDrive::new("d0", Drive::file(path.to_str().unwrap()));
    let before = default_drive_nqn(&drive(&path));
    std::fs::write(&path, "").unwrap();
    assert_eq!(default_drive_nqn(&drive(&path)), before);
    assert_eq!(default_drive_nqn(&drive(&directory.path().join("./disk.img"))), before);
    assert_ne!(default_drive_nqn(&drive(&directory.path().join("other.img"))), before);
    assert_eq!(
        default_drive_nqn(&drive(Path::new("nowhere.img"))),
        default_drive_nqn(&drive(Path::new("./nowhere.img")))
    );
}

#[test]
fn conflicting_arguments_are_refused() {
    let drive = "name=d0,backing=mem:1Gi";
    let long = format!("nqn.{}", "x".repeat(219));
    let uuid = "nqn.2014-08.org.nvmexpress:uuid:1b4e28ba-2fa1-11d2-883f-0016d3cca427";
    for (args, message) in [
        (
            &["--drive", "name=d0,backing=null:1Gi"][..],
            "a drive cannot be kept in `null:1Gi`\n  a drive has to remember",
        ),
        (
            &["--drive", "disk.img"],
            "--drive disk.img: `disk.img` is not an option of a drive\n  accepted: name, backing",
        ),
        (&["--drive", drive, "--block-size", "4096"], "--block-size is for drives that are a namespace"),
        (&["--drive", drive, "--write-protect"], "--write-protect is for drives that are a namespace"),
        (&["--drive", drive, "--serial", "S", "mem:1Gi"], "--serial is for one subsystem, and there are several"),
        (&["--drive", drive, "--nqn", &long, "mem:1Gi"], "the NQN has 226 bytes, at most 223 are allowed"),
        (&["--drive", drive, "--nqn", uuid, "mem:1Gi"], "the UUID in the NQN is malformed"),
        (&["--drive", drive, "--listen", "tcp://0.0.0.0"], "others than this machine can reach the ports"),
    ] {
        let said = refusal(args);
        assert!(said.contains(message), "{args:?}: {said}");
    }
    // Violations of the configuration's rules are reported as for a file.
    let twice = from_arguments(&parse(&["--drive", drive, "--drive", drive, "--nqn", "n"])).unwrap();
    let all = ebof_manage::load::check("command line", &twice).unwrap_err();
    assert!(all.to_string().contains("the drive name d0 is used twice"), "{all}");
}

#[test]
fn a_size_without_its_unit_is_noticed() {
    for (typed, meant) in [("disk.img:10", "disk.img:10G"), ("mem:512", "mem:512G"), ("a.img,size=4", "a.img,size=4G")]
    {
        let text = refusal(&[typed]);
        assert!(text.contains(&format!("did you mean {meant}?")), "{text}");
    }
    for good in ["disk.img:10M", "mem:4096", "disk.img", "a:4Ki"] {
        config(&[good]);
    }
}
