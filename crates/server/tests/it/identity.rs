//! Which disk hosts take a namespace for: it follows the data, not the names.

use std::path::Path;

use ebof_initiator::Controller;
use ebof_manage::api::{ApplyError, Target as _};
use ebof_manage::config::IdentityRule;
use ebof_manage::{Config, Drive};
use ebof_nvme::{Nqn, Uuid};
use ebof_server::{Environment, Making, Settings, StartError, Target};

use crate::config::one_subsystem;
use crate::drive_rig;
use crate::reload_rig::{block, connect, image, namespace, settings, start, text};

/// What a host knows the namespace by.
fn identifiers(controller: &Controller, nsid: u32) -> String {
    namespace(controller, nsid).identifiers()
}

/// The identifiers of the first namespaces of a new target.
fn of_target(config: &Config) -> Vec<String> {
    let target = Target::start(config.clone(), settings()).unwrap();
    let controller = connect(target.addresses()[0].1);
    let count = u32::try_from(config.subsystems[0].namespaces.len()).unwrap();
    (1..=count).map(|nsid| identifiers(&controller, nsid)).collect()
}

fn of_drive(drive: &str) -> String {
    of_target(&one_subsystem([drive])).remove(0)
}

fn applied(target: &Target, config: Config) -> String {
    match target.apply(config) {
        Ok(_) => String::new(),
        Err(ApplyError::Failed { source, .. }) => source.to_string(),
        Err(error) => panic!("{error}"),
    }
}

// @test output.identity
#[test]
fn other_data_under_an_nsid_are_another_disk() {
    let directory = tempfile::tempdir().unwrap();
    let [a, b] = ["a.img", "b.img"].map(|name| image(directory.path(), name, 1 << 20, name.as_bytes()[0]));
    let (target, mut config, address) = start(&[text(&a)]);
    let controller = connect(address);
    let disk = namespace(&controller, 1);
    disk.write(0, &[9; 512], false).unwrap();
    config.subsystems[0].namespaces[0].drive = Drive::file(text(&b));
    assert_eq!(applied(&target, config), "");
    // Whoever has the disk has none now, and what it writes goes nowhere.
    let error = disk.write(0, &[7; 512], false).unwrap_err();
    assert!(disk.read(0, &mut [0; 512]).is_err(), "{error}");
    let other = namespace(&controller, 1);
    assert_ne!(other.identifiers(), disk.identifiers());
    assert_eq!(block(&other), [b'b'; 512]);
    assert_eq!(std::fs::read(&a).unwrap()[..512], [9; 512]);
}

// @test output.identity
#[test]
fn a_file_is_the_same_disk_under_any_name_and_in_any_way() {
    let directory = tempfile::tempdir().unwrap();
    let a = image(directory.path(), "a.img", 1 << 20, 1);
    let (link, moved) = (directory.path().join("link.img"), directory.path().join("moved.img"));
    // What was served read-only has no record, and is not another disk when it gets one.
    let first = of_drive(&format!("{},readonly", text(&a)));
    assert_eq!(of_drive(text(&a)), first);
    std::os::unix::fs::symlink(&a, &link).unwrap();
    assert_eq!(of_drive(text(&link)), first);
    std::fs::rename(&a, &moved).unwrap();
    assert_eq!(of_drive(text(&moved)), first);
    assert_eq!(of_drive(&format!("{},readonly", text(&moved))), first);
    // On another machine that has its file system.
    let mut elsewhere = settings();
    elsewhere.environment.machine = [9; 16];
    let target = Target::start(one_subsystem([text(&moved)]), elsewhere).unwrap();
    assert_eq!(identifiers(&connect(target.addresses()[0].1), 1), first);
    drop(target);
    // Served twice by one subsystem it has two sets of identifiers, as Linux wants it.
    let readonly = format!("{},readonly", text(&moved));
    let twice = of_target(&one_subsystem([&*readonly, &*readonly]));
    assert!(twice[0] == first && twice[1] != first, "{twice:?}");
}

// @test output.identity
#[test]
fn what_is_made_anew_or_copied_is_another_disk() {
    let directory = tempfile::tempdir().unwrap();
    let a = image(directory.path(), "a.img", 1 << 20, 1);
    let first = of_drive(text(&a));
    let copy = directory.path().join("copy.img");
    let copied = std::process::Command::new("cp").arg("-a").args([&a, &copy]).status().unwrap();
    assert!(copied.success());
    let of_copy = of_drive(text(&copy));
    assert_ne!(of_copy, first);
    // A restore: the copy gets the name.
    std::fs::rename(&copy, &a).unwrap();
    assert_eq!(of_drive(text(&a)), of_copy);
    std::fs::remove_file(&a).unwrap();
    let again = of_drive(&format!("{}:1Mi", text(&a)));
    assert!(again != first && again != of_copy);
}

// @test output.identity
#[test]
fn memory_is_another_disk_with_each_start_and_null_is_none() {
    let config = one_subsystem(["mem:1Mi", "null:1Mi", "null:1Mi"]);
    let [first, second] = [of_target(&config), of_target(&config)];
    assert_ne!(first[0], second[0]);
    assert_eq!(first[1..], second[1..]);
    assert_ne!(first[1], first[2]);
    assert_ne!(of_target(&one_subsystem(["mem:1Mi", "null:2Mi"]))[1], first[1]);
    // A new configuration that keeps it keeps its data.
    let (target, mut config, address) = start(&["mem:1Mi"]);
    let controller = connect(address);
    let (disk, before) = (namespace(&controller, 1), identifiers(&controller, 1));
    config.subsystems[0].namespaces.push(ebof_manage::config::Namespace::new(2, "mem:1Mi".parse().unwrap()));
    assert_eq!(applied(&target, config), "");
    let of_second = identifiers(&controller, 2);
    assert!(identifiers(&controller, 1) == before && of_second != before);
    disk.write(0, &[1; 512], false).unwrap();
}

// @test output.two-objects
#[test]
fn two_objects_never_share_an_identity() {
    let directory = tempfile::tempdir().unwrap();
    let [a, b] = ["a.img", "b.img"].map(|name| image(directory.path(), name, 1 << 20, 1));
    let pin = Some(Uuid([7; 16]));
    // Another object under what was set for the first.
    let (target, mut config, address) = start(&[text(&a)]);
    config.subsystems[0].namespaces[0].uuid = pin;
    assert_eq!(applied(&target, config.clone()), "");
    let disk = namespace(&connect(address), 1);
    for rule in [IdentityRule::Data, IdentityRule::Name] {
        let mut other = config.clone();
        other.subsystems[0].identity = rule;
        if rule == IdentityRule::Name {
            other.subsystems[0].namespaces[0].uuid = None;
            assert_eq!(applied(&target, other.clone()), "", "another identity of the same data");
        }
        other.subsystems[0].namespaces[0].drive = Drive::file(text(&b));
        let error = applied(&target, other);
        assert!(error.contains("namespace 1") && error.contains("leave `uuid =`"), "{error}");
    }
    drop(disk);
    // Removed and added, it is what its user asked for.
    let mut without = config.clone();
    without.subsystems[0].namespaces.clear();
    config.subsystems[0].namespaces[0].drive = Drive::file(text(&b));
    assert_eq!((applied(&target, without), applied(&target, config)), (String::new(), String::new()));
    drop(target);
    // The identity of the one is set for the other.
    let mut config = one_subsystem([text(&a), text(&b)]);
    let target = Target::start(config.clone(), settings()).unwrap();
    let uuid = target.status().subsystems[0].namespaces[0].uuid.clone().unwrap();
    config.subsystems[0].namespaces[1].uuid = Uuid::parse(&uuid);
    let error = applied(&target, config.clone());
    assert!(error.contains(&uuid) && error.contains("leave `uuid =` out of one of the two"), "{error}");
    drop(target);
    assert!(matches!(Target::start(config, settings()), Err(StartError::SameUuid { nsid: 2, .. })));
}

#[test]
fn the_old_rule_follows_the_names() {
    let directory = tempfile::tempdir().unwrap();
    let [a, b] = ["a.img", "b.img"].map(|name| image(directory.path(), name, 1 << 20, 1));
    let of = |path: &Path| {
        let mut config = one_subsystem([text(path)]);
        config.subsystems[0].identity = IdentityRule::Name;
        of_target(&config)
    };
    assert_eq!(of(&a), of(&b));
    // The name of the subsystem is part of the new one, too: Linux refuses identifiers that it
    // knows from another subsystem.
    let uuid = |nqn: &str| {
        let mut config = one_subsystem([text(&a)]);
        config.subsystems[0].nqn = Nqn::parse(nqn).unwrap();
        Target::start(config, settings()).unwrap().status().subsystems[0].namespaces[0].uuid.clone()
    };
    assert_ne!(uuid("nqn.2014-08.org.example:one"), uuid("nqn.2014-08.org.example:two"));
}

fn making(making: Making) -> Settings {
    Settings { environment: Environment { making, ..Environment::default() }, ..settings() }
}

// @test output.made-once
#[test]
fn what_was_served_is_not_made_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.img");
    let config = one_subsystem([&*format!("{}:1Mi", text(&path)), "mem:1Mi"]);
    let target = Target::start(config.clone(), making(Making::default())).unwrap();
    assert!(matches!(&target.made()[..], [made] if made.contains("a.img")), "{:?}", target.made());
    drop(target);
    assert!(Target::start(config.clone(), settings()).unwrap().made().is_empty());
    // Its file system is not mounted.
    std::fs::remove_file(&path).unwrap();
    for making in [Making::all_but([&config]), Making::Nothing].map(making) {
        let error = Target::start(config.clone(), making).unwrap_err();
        assert!(matches!(&error, StartError::NotMade { .. }), "{error}");
        assert!(error.to_string().contains("a.img") && !path.exists(), "{error}");
    }
    // Nor by a running target, when it is enabled again; a new one is made.
    let mut off = config.clone();
    off.subsystems[0].namespaces[0].enabled = false;
    let target = Target::start(off.clone(), making(Making::all_but([&config]))).unwrap();
    let error = applied(&target, config);
    assert!(error.contains("was served before") && !path.exists(), "{error}");
    let new = directory.path().join("b.img");
    off.subsystems[0].namespaces[1].drive = format!("{}:1Mi", text(&new)).parse().unwrap();
    assert_eq!(applied(&target, off), "");
    assert!(new.exists());
}

// @test output.made-once
#[test]
fn a_drive_that_was_served_is_not_made_again_on_an_empty_medium() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("d.img");
    let text = format!(
        "[[ports]]\nlisten = \"tcp://127.0.0.1:0\"\n[[drives]]\nname = \"d0\"\nbacking = {:?}\nsize = \"64Mi\"\n[[subsystems]]\nnqn = \"nqn.2014-08.org.example:d\"\n\
         drive = \"d0\"\nallow_any_host = true\n",
        text(&path)
    );
    let config = ebof_manage::load("a.toml", &text).unwrap().config;
    let target = Target::start(config.clone(), settings()).unwrap();
    assert!(matches!(&target.made()[..], [made] if made.contains("d.img")), "{:?}", target.made());
    let bytes = std::fs::metadata(&path).unwrap().len();
    drop(target);
    // Another disk of the size is there now.
    std::fs::write(&path, "").unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(bytes).unwrap();
    let error = Target::start(config.clone(), making(Making::all_but([&config]))).unwrap_err();
    assert!(error.to_string().contains("--create"), "{error}");
    assert!(Target::start(config, making(Making::All)).is_ok());
}

// @test output.two-objects
#[test]
fn a_drive_and_its_copy_are_not_served_together() {
    let directory = tempfile::tempdir().unwrap();
    let [first, copy] = ["d0.img", "d1.img"].map(|name| directory.path().join(name));
    let drive = |name: &str, path: &Path| {
        format!(
            "[[drives]]\nname = \"{name}\"\nbacking = {:?}\nsize = \"16Mi\"\n[[subsystems]]\nnqn = \"{name}\"\n\
             drive = \"{name}\"\nallow_any_host = true\n",
            text(path)
        )
    };
    let config = |written: &str| {
        let port = "[[ports]]\nlisten = \"tcp://127.0.0.1:0\"\n";
        ebof_manage::load("a.toml", &(port.to_owned() + written)).unwrap().config
    };
    let one = config(&drive("d0", &first));
    drop(Target::start(one.clone(), settings()).unwrap());
    std::fs::copy(&first, &copy).unwrap();
    let both = config(&(drive("d0", &first) + &drive("d1", &copy)));
    for _ in 0..2 {
        let error = Target::start(both.clone(), settings()).unwrap_err();
        assert!(matches!(&error, StartError::SameDrive { .. }), "{error}");
    }
    let target = Target::start(one, settings()).unwrap();
    let error = applied(&target, both);
    assert!(error.contains("drive d1 is a copy of drive d0"), "{error}");
}

// @test drive.failed-start
#[test]
fn a_start_that_fails_leaves_the_drives_that_it_opened_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let drive = drive_rig::drive(&directory.path().join("d.img"), Some(64 << 20));
    let (target, address) = drive_rig::serve(&drive);
    let nsid = drive_rig::create(&drive_rig::connect(address), 2048);
    let status = target.status().subsystems[0].namespaces.clone();
    let config = target.config();
    drop(target);
    // Drives are opened before ports.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut failing = config.clone();
    let port = ebof_manage::Listen::new([127, 0, 0, 1].into(), taken.local_addr().unwrap().port());
    failing.ports[0] = ebof_manage::config::Port::new(1, port);
    failing.subsystems[0].ports = vec![failing.ports[0].name.clone()];
    let error = drive_rig::wait("the lock of the file", || match Target::start(failing.clone(), settings()) {
        Err(error @ StartError::Listen { .. }) => Some(error),
        _ => None,
    });
    assert!(error.to_string().contains("in use"), "{error}");
    let (target, address) = drive_rig::serve(&drive);
    assert_eq!(drive_rig::connect(address).namespaces().unwrap(), [nsid]);
    assert_eq!(target.status().subsystems[0].namespaces[0].uuid, status[0].uuid);
}
