//! A start without something that is to be served: the rest is there, and it comes in later.

use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use ebof_initiator::{Controller, Options};
use ebof_manage::Config;
use ebof_manage::api::{ApplyError, MissingKind, Target as _};
use ebof_manage::config::Port;
use ebof_nvme::{Nqn, Nsid};
use ebof_server::{Exposition, MetricsDetail, Settings, Target};

use crate::config::{NQN, one_subsystem};
use crate::reload_rig::{block, connect, image, namespace, settings, text};

fn lenient() -> Settings {
    Settings { strict: false, ..settings() }
}

/// A target without its second file and its second port, which another process has.
struct Rig {
    target: Target,
    config: Config,
    other: TcpListener,
    directory: tempfile::TempDir,
}

fn rig() -> Rig {
    let directory = tempfile::tempdir().unwrap();
    let whole = image(directory.path(), "a.img", 1 << 20, 7);
    let away = directory.path().join("b.img");
    let mut config = one_subsystem([text(&whole), text(&away)]);
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut port = Port::new(2, config.ports[0].listen.clone());
    port.listen.port = other.local_addr().unwrap().port();
    port.name = "late".to_owned();
    config.subsystems[0].ports.push(port.name.clone());
    config.ports.push(port);
    let target = Target::start(config.clone(), lenient()).unwrap();
    Rig { target, config, other, directory }
}

fn missing(target: &Target) -> Vec<(MissingKind, String)> {
    target.status().missing.into_iter().map(|it| (it.kind, it.name)).collect()
}

// @test data.missing-objects
#[test]
fn what_cannot_be_had_is_missing_and_comes_in() {
    let Rig { target, config, other, directory } = rig();
    let host = connect(target.addresses()[0].1);
    assert_eq!(host.namespaces().unwrap(), [Nsid(1)]);
    assert_eq!(block(&namespace(&host, 1)), [7; 512]);
    let of_namespace = (MissingKind::Namespace, format!("{NQN}/2"));
    let of_port = (MissingKind::Port, "late".to_owned());
    assert_eq!(missing(&target), [of_namespace, of_port.clone()]);
    let reasons = target.unready().join("\n");
    assert!(reasons.contains("b.img does not exist") && reasons.contains("port late is missing"), "{reasons}");
    let metrics = target.metrics(Exposition::Text, MetricsDetail::Namespace);
    assert!(metrics.contains("ebof_missing{kind=\"port\",name=\"late\"} 1"), "{metrics}");
    assert_eq!(target.config(), config, "it is in the configuration all the same");

    let generation = target.status().generation;
    target.look_for_missing();
    assert_eq!((target.status().generation, missing(&target).len()), (generation, 2), "hosts see nothing of it");
    assert!(!directory.path().join("b.img").exists());

    std::fs::rename(image(directory.path(), "new", 2 << 20, 9), directory.path().join("b.img")).unwrap();
    target.look_for_missing();
    assert_eq!(block(&namespace(&host, 2)), [9; 512], "the host that was there gets it");
    assert_eq!(missing(&target), [of_port]);

    drop(other);
    let end = Instant::now() + Duration::from_secs(30);
    while !missing(&target).is_empty() {
        assert!(Instant::now() < end, "{:?}", target.status().missing);
        target.look_for_missing();
    }
    let (_, address) = target.addresses().into_iter().find(|(name, _)| name == "late").unwrap();
    assert_eq!(connect(address).namespaces().unwrap(), [Nsid(1), Nsid(2)]);
    assert_eq!(target.config(), config);
}

// @test data.missing-objects
#[test]
fn what_is_new_has_to_be_there_and_what_was_missing_may_stay_so() {
    let Rig { target, config, other: _other, directory } = rig();
    let more = |path: &Path| {
        let mut more = config.clone();
        let mut third = more.subsystems[0].namespaces[0].clone();
        third.drive = text(path).parse().unwrap();
        third.nsid = 3;
        more.subsystems[0].namespaces.push(third);
        more
    };
    let error = target.apply(more(&directory.path().join("c.img"))).unwrap_err();
    assert!(matches!(error, ApplyError::Failed { .. }) && error.to_string().contains("c.img"), "{error}");
    assert_eq!((target.config(), missing(&target).len()), (config.clone(), 2));
    let there = image(directory.path(), "c.img", 1 << 20, 5);
    target.apply(more(&there)).unwrap();
    let host = connect(target.addresses()[0].1);
    assert_eq!(host.namespaces().unwrap(), [Nsid(1), Nsid(3)]);
    assert_eq!(missing(&target).len(), 2);
    // It goes with what it is missing for.
    let mut less = more(&there);
    less.subsystems[0].namespaces.remove(1);
    target.apply(less).unwrap();
    assert_eq!(missing(&target), [(MissingKind::Port, "late".to_owned())]);
}

// @test data.missing-objects
#[test]
fn a_drive_that_is_missing_comes_in_with_its_subsystem() {
    const DRIVE: &str = "nqn.2014-08.org.example:drive";
    let directory = tempfile::tempdir().unwrap();
    let (path, away) = (directory.path().join("d0.img"), directory.path().join("away"));
    let text = format!(
        "[[ports]]\nlisten = \"tcp://127.0.0.1:0\"\n[[drives]]\nname = \"d0\"\nbacking = \"{}\"\nsize = \"64Mi\"\n\
         [[subsystems]]\nnqn = \"{DRIVE}\"\nallow_any_host = true\ndrive = \"d0\"\n\
         [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\nnamespaces = [\"mem:1Mi\"]\n",
        path.display()
    );
    let config = ebof_manage::load("a.toml", &text).unwrap().config;
    let target = Target::start(config.clone(), settings()).unwrap();
    target.stop(Duration::from_secs(5));
    drop(target);
    let whole = std::fs::read(&path).unwrap();
    std::fs::rename(&path, &away).unwrap();
    std::fs::write(&path, &whole[..512]).unwrap();
    let target = Target::start(config, lenient()).unwrap();
    assert_eq!(missing(&target), [(MissingKind::Drive, "d0".to_owned())]);
    let address = target.addresses()[0].1;
    assert_eq!(connect(address).namespaces().unwrap(), [Nsid(1)]);
    let attempt = || {
        let mut options = Options::new(address.ip().to_string(), address.port(), Nqn::parse(DRIVE).unwrap());
        options.nr_io_queues = 1;
        Controller::connect(&options)
    };
    let refused = attempt().unwrap_err().to_string();
    assert!(!refused.contains("DNR"), "a host may come again: {refused}");
    std::fs::rename(&away, &path).unwrap();
    // The first target may have it still, for a moment.
    let end = Instant::now() + Duration::from_secs(30);
    while !missing(&target).is_empty() {
        assert!(Instant::now() < end, "{:?}", target.status().missing);
        target.look_for_missing();
    }
    attempt().unwrap();
}

// @test data.missing-objects
#[test]
fn a_strict_start_fails() {
    let directory = tempfile::tempdir().unwrap();
    let whole = image(directory.path(), "a.img", 1 << 20, 7);
    let config = one_subsystem([text(&whole), text(&directory.path().join("b.img"))]);
    let error = Target::start(config, settings()).unwrap_err().to_string();
    assert!(error.contains("b.img does not exist"), "{error}");
}
