//! Promises of a host: no command reaches a replaced namespace, a namespace has one block device,
//! and losses are recorded.

use std::os::unix::fs::FileExt;

use ebof_attach::{Device, Error, Kind, Request, Select, connect_in, disconnect_in, open_in};
use ebof_manage::Listen;
use ebof_manage::api::Target as _;
use ebof_manage::config::{Namespace, Port};
use ebof_nvme::{Nqn, Uuid};

use crate::front::Aligned;
use crate::line::{Line, NOTHING, NQN, direct, eventually, path};

// @test host.replaced-namespace
pub(crate) fn another_namespace_under_the_same_number_ends_the_device(kind: Kind) {
    for restart in [true, false] {
        let mut line = Line::new(kind, &["DIR/first.img:16Mi"]);
        let attached = line.connect();
        let device = path(&attached);
        let file = direct(&device);
        file.write_all_at(Aligned::new(&[1; 4096]).bytes(), 0).unwrap();
        // Another user's namespace with the same NSID and size.
        let image = line.directory.path().join("second.img");
        let drive = format!("{}:16Mi", image.display());
        let mut other = Namespace::new(1, drive.parse().unwrap());
        other.uuid = Some(Uuid([7; 16]));
        line.config.subsystems[0].namespaces[0] = other;
        if restart {
            line.stop();
            // Sent as soon as there is a connection, if at all.
            let writer = std::thread::spawn(move || file.write_all_at(Aligned::new(&[2; 4096]).bytes(), 8192));
            std::thread::sleep(std::time::Duration::from_millis(300));
            line.start();
            assert!(writer.join().unwrap().is_err(), "a write that was queued for the first one fails");
        } else {
            line.target.as_ref().unwrap().apply(line.config.clone()).unwrap();
            let failed = || file.write_all_at(Aligned::new(&[2; 4096]).bytes(), 8192).err();
            // The target sends an event; writes before the host has read it cannot be prevented.
            eventually(failed).expect("the device ends");
        }
        let ended = eventually(|| {
            let state = line.records()[0].state.clone()?;
            Some((state.ended.first()?.clone(), state.devices.first().filter(|device| device.path.is_some())?.clone()))
        });
        let (ended, now) = ended.expect("it is told, and the other one is there");
        assert_eq!((ended.name.as_str(), ended.path.as_deref()), (attached.devices[0].name.as_str(), Some(&*device)));
        assert!(
            ended.reason.contains("another one") || ended.reason.contains("not there any more"),
            "{}",
            ended.reason
        );
        assert_ne!(now.identifiers, attached.devices[0].identifiers);
        if restart {
            let second = std::fs::read(&image).unwrap();
            assert!(second.iter().all(|&byte| byte == 0), "nothing reached the other namespace");
        }
        // The other namespace gets a new device.
        let mut block = Aligned::new(&[9; 4096]);
        direct(now.path.as_deref().unwrap()).read_exact_at(block.bytes_mut(), 0).unwrap();
        assert!(block.bytes() == [0; 4096]);
    }
}

// @test host.limits-again
pub(crate) fn a_cache_that_a_target_comes_back_with_is_flushed(kind: Kind) {
    let mut line = Line::new(kind, &["mem:16Mi"]);
    let attached = line.connect();
    let file = direct(&path(&attached));
    let others = |line: &Line| -> u64 {
        let totals = line.target.as_ref().unwrap().totals();
        totals.iter().map(|(_, kinds)| kinds[2].commands).sum()
    };
    file.sync_data().unwrap();
    let before = others(&line);
    file.sync_data().unwrap();
    assert_eq!(others(&line), before, "there is nothing to flush");
    line.stop();
    let drive = format!("{}:16Mi", line.directory.path().join("disk.img").display());
    line.config.subsystems[0].namespaces[0] = Namespace::new(1, drive.parse().unwrap());
    line.start();
    file.write_all_at(Aligned::new(&[3; 4096]).bytes(), 0).unwrap();
    let before = others(&line);
    file.sync_data().unwrap();
    assert!(others(&line) > before, "fsync is a Flush now");
}

// @test host.one-device
pub(crate) fn a_namespace_is_one_block_device(kind: Kind) {
    let mut line = Line::new(kind, &["DIR/disk.img:16Mi"]);
    let mut second = Port::new(2, Listen::new(line.address.ip(), 0));
    second.name = "second".to_owned();
    line.config.subsystems[0].ports.push(second.name.clone());
    line.config.ports.push(second);
    line.target.as_ref().unwrap().apply(line.config.clone()).unwrap();
    let addresses = line.target.as_ref().unwrap().addresses();
    let port = addresses.iter().find(|(name, _)| name == "second").expect("the second port").1.port();
    let attached = line.connect();
    let by_name = Request { traddr: "localhost".to_owned(), ..line.request() };
    let by_port = Request { trsvcid: port, ..line.request() };
    for other in [by_name, line.request()] {
        match connect_in(&line.states, &other) {
            Err(error @ Error::AlreadyConnected(_)) => {
                let text = error.to_string();
                assert!(text.starts_with(&format!("already connected: {} is {NQN} at ", attached.name)), "{text}");
                assert!(text.contains("--duplicate-connect"), "{text}");
            }
            made => panic!("{made:?}"),
        }
    }
    assert_eq!(line.records().len(), 1, "what was refused leaves nothing");
    // Another host NQN is another host; and duplicates are possible on demand.
    let mut other = by_port.clone();
    other.overrides.hostnqn = Some(Nqn::parse("nqn.2014-08.org.example:other").unwrap());
    connect_in(&line.states, &other).unwrap();
    connect_in(&line.states, &Request { duplicate_connect: true, ..by_port }).unwrap();
    // A namespace that is added later is a device of one daemon only, too.
    let third = connect_in(&line.states, &line.request()).unwrap_err();
    assert!(matches!(third, Error::AlreadyConnected(_)), "{third}");
    line.config.subsystems[0].namespaces.push(Namespace::new(2, "mem:8Mi".parse().unwrap()));
    line.target.as_ref().unwrap().apply(line.config.clone()).unwrap();
    let paths = |line: &Line| {
        let second =
            |record: ebof_attach::state::Record| record.state?.devices.into_iter().find(|device| device.nsid == 2);
        line.records().into_iter().map(second).collect::<Option<Vec<_>>>()
    };
    // Of the three daemons the first has it, unless the one that allows duplicates was faster.
    let is_there = |device: &Device| device.path.is_some();
    let refused = |device: &Device| device.problem.as_ref().is_some_and(|text| text.contains("already connected"));
    let devices = eventually(|| {
        paths(&line).filter(|all| (is_there(&all[0]) || refused(&all[0])) && all[1..].iter().all(is_there))
    });
    assert!(devices.is_some(), "{:?}", paths(&line));
}

// @test host.one-device
pub(crate) fn of_two_that_connect_at_once_one_gets_the_device(kind: Kind) {
    let line = Line::new(kind, &["mem:16Mi"]);
    let requests = ["127.0.0.1", "localhost", "127.0.0.1", "localhost"];
    let results: Vec<_> = std::thread::scope(|scope| {
        let connect = |traddr: &str| {
            let request = Request { traddr: traddr.to_owned(), ..line.request() };
            let states = line.states.clone();
            scope.spawn(move || connect_in(&states, &request))
        };
        requests.map(connect).map(|thread| thread.join().unwrap()).into_iter().collect()
    });
    let made = results.iter().filter(|result| result.is_ok()).count();
    let refused = results.iter().filter(|result| matches!(result, Err(Error::AlreadyConnected(_)))).count();
    assert_eq!((made, refused), (1, 3), "{results:?}");
    assert_eq!(line.records().len(), 1);
}

// @test host.given-up
pub(crate) fn a_controller_that_was_given_up_is_remembered(kind: Kind) {
    let mut line = Line::new(kind, &["DIR/disk.img:16Mi"]);
    let request = line.request_with(|overrides| overrides.ctrl_loss_tmo = Some(1));
    let attached = connect_in(&line.states, &request).unwrap();
    line.stop();
    let record = eventually(|| line.records().into_iter().find(|record| record.given_up().is_some()));
    let record = record.expect("a record of it");
    assert!(record.given_up().unwrap().reason.contains("refused"), "{:?}", record.given_up());
    assert!(std::fs::read_to_string(record.log()).unwrap().contains("gave up reconnecting"));
    // Other verbs do not change it, and it is listed with its state.
    assert!(ebof_attach::repair(&line.states).unwrap().is_empty());
    let error = open_in(&line.states, &attached.devices[0].name).unwrap_err();
    assert!(matches!(error, Error::GivenUp { .. }) && error.to_string().contains(" UTC: "), "{error}");
    line.start();
    let again = line.connect();
    assert_ne!(again.name, attached.name);
    let report = disconnect_in(&line.states, &Select::Device(attached.name.clone()), false).unwrap();
    assert_eq!((report.acknowledged, report.disconnected.len()), (vec![(attached.name, NQN.to_owned())], 0));
    assert_eq!(line.records().len(), 1);
    assert_eq!(disconnect_in(&line.states, &Select::All, false).unwrap().disconnected.len(), 1);
    assert_eq!(line.leftovers(), NOTHING);
}
