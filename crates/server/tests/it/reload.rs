//! A new configuration for a running target: what stays open, what is released before it is opened
//! again, and going back after a failure.

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ebof_initiator::{Controller, Event};
use ebof_manage::api::{ApplyError, Target as _};
use ebof_manage::config::{BlockSize, Digest, Port};
use ebof_manage::{Change, Config, Drive, Listen};
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Nqn, Nsid, Sgl};
use zerocopy::IntoBytes;

use crate::config::one_subsystem;
use crate::drive_rig;
use crate::heard::next_event;
use crate::raw::{self, Raw, connect_data};
use crate::reload_rig::{Over, block, connect, image, namespace, start, start_at_a_number, text};

fn drive_of(config: &mut Config, at: usize) -> &mut Drive {
    &mut config.subsystems[0].namespaces[at].drive
}

// @test data.reload-same-object
#[test]
fn a_file_gets_another_nsid_and_keeps_its_data() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path(), "a.img", 1 << 20, 7);
    let (target, mut config, address) = start(&[text(&path)]);
    let controller = connect(address);
    namespace(&controller, 1).write(0, &[9; 512], false).unwrap();
    config.subsystems[0].namespaces[0].nsid = 5;
    // Its size is checked, whatever its name is.
    File::options().write(true).open(&path).unwrap().set_len(2 << 20).unwrap();
    target.apply(config).unwrap();
    let moved = namespace(&controller, 5);
    assert_eq!((block(&moved), moved.blocks()), (vec![9; 512], 4096));
    assert_eq!(controller.namespaces().unwrap(), [Nsid(5)]);
}

#[test]
fn a_file_gets_another_nsid_and_is_made_larger_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path(), "a.img", 1 << 20, 7);
    let (target, mut config, address) = start(&[text(&path)]);
    let controller = connect(address);
    config.subsystems[0].namespaces[0].nsid = 5;
    *drive_of(&mut config, 0) = format!("{}:4Mi", path.display()).parse().unwrap();
    target.apply(config).unwrap();
    let moved = namespace(&controller, 5);
    assert_eq!((block(&moved)[0], moved.blocks(), path.metadata().unwrap().len()), (7, 8192, 4 << 20));
}

// @test data.reload-same-object
#[test]
fn two_namespaces_swap_their_files() {
    let directory = tempfile::tempdir().unwrap();
    let a = image(directory.path(), "a.img", 1 << 20, 1);
    let b = image(directory.path(), "b.img", 1 << 20, 2);
    let (target, mut config, address) = start(&[text(&a), text(&b)]);
    *drive_of(&mut config, 0) = Drive::file(text(&b));
    *drive_of(&mut config, 1) = Drive::file(text(&a));
    target.apply(config).unwrap();
    let controller = connect(address);
    assert_eq!((block(&namespace(&controller, 1))[0], block(&namespace(&controller, 2))[0]), (2, 1));
}

/// An I/O queue of a host that sends exactly what the test says.
fn raw_queue(address: SocketAddr, controller: u16) -> Raw {
    let mut io = Raw::initialized(address);
    io.send(raw::connect(1, 32), 1, connect_data(controller).as_bytes());
    assert!(io.completion().status().is_success());
    io
}

#[test]
fn a_write_to_the_old_namespace_of_a_file_does_not_reach_the_new_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path(), "a.img", 1 << 20, 7);
    let (target, mut config, address) = start(&[text(&path)]);
    let (_admin, controller) = Raw::admin_and_controller(address);
    let mut io = raw_queue(address, controller);
    let mut write = BlockRange::new(0, 128).encode(nvm::WRITE, Nsid(1));
    write.dptr = SglDescriptor::encode(Sgl::Transport { length: 128 * 512 });
    io.send(write, 4, &[]);
    let r2t = io.pdu();
    assert_eq!(r2t[0], 9, "an R2T");
    config.subsystems[0].namespaces[0].nsid = 5;
    target.apply(config).unwrap();
    // Another host uses it under its new NSID before the old data arrive.
    let fresh = namespace(&connect(address), 5);
    fresh.write(0, &[9; 512], false).unwrap();
    io.send_data(&r2t, &[3; 128 * 512]);
    let status = io.completion().status().to_string();
    assert!(status.starts_with("Invalid Namespace or Format"), "{status}");
    assert_eq!(block(&fresh), [9; 512]);
}

#[test]
fn a_queue_connected_later_has_the_limits_of_its_controller() {
    let (target, mut config, address) = start(&["mem:1Mi"]);
    let (_admin, controller) = Raw::admin_and_controller(address);
    config.ports[0].in_capsule_data_bytes = 4096;
    target.apply(config).unwrap();
    let mut io = raw_queue(address, controller);
    let write = BlockRange::new(0, 16).encode(nvm::WRITE, Nsid(1));
    io.send(write, 2, &[3; 8192]);
    assert!(io.completion().status().is_success());
    // A new controller has the lower limit.
    let (_admin, controller) = Raw::admin_and_controller(address);
    let mut io = raw_queue(address, controller);
    io.send(write, 2, &[3; 8192]);
    assert_eq!(io.pdu()[0], 3, "a C2HTermReq");
}

// @test data.reload-same-object
#[test]
fn a_file_gets_another_block_size_and_other_options() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path(), "a.img", 1 << 20, 7);
    let (target, mut config, address) = start(&[text(&path)]);
    let controller = connect(address);
    config.subsystems[0].namespaces[0].block_size = Some(BlockSize::B4096);
    target.apply(config.clone()).unwrap();
    assert_eq!(block(&namespace(&connect(address), 1)), [7; 4096]);
    for option in ["direct", "direct=no", "readonly"] {
        *drive_of(&mut config, 0) = format!("{},{option}", path.display()).parse().unwrap();
        config.subsystems[0].namespaces[0].write_protect = option == "readonly";
        match target.apply(config.clone()) {
            Ok(_) => assert_eq!(block(&namespace(&connect(address), 1)), [7; 4096], "{option}"),
            // Not every file system has direct I/O; then the file is served as before.
            Err(error) => assert!(error.to_string().contains("direct I/O"), "{error}"),
        }
    }
    // The first host was not disconnected.
    assert!(controller.namespaces().is_ok());
}

// @test data.reload-same-object
#[test]
fn a_link_to_a_file_is_recognised_as_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path(), "a.img", 1 << 20, 7);
    let link = directory.path().join("link.img");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let (target, mut config, address) = start(&[text(&path)]);
    *drive_of(&mut config, 0) = Drive::file(text(&link));
    target.apply(config).unwrap();
    assert_eq!(block(&namespace(&connect(address), 1)), [7; 512]);
}

// @test data.grown-file
#[test]
fn a_grown_file_is_noticed_and_hosts_are_notified() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path(), "a.img", 1 << 20, 7);
    let (target, mut config, address) = start(&[text(&path)]);
    let controller = connect(address);
    let events = controller.events();
    let seen = namespace(&controller, 1);
    assert_eq!(seen.blocks(), 2048);
    File::options().write(true).open(&path).unwrap().set_len(3 << 20).unwrap();
    let plan = target.apply(config.clone()).unwrap();
    assert!(
        matches!(&plan.changes[..], [Change::GrowNamespace { nsid: 1, from_bytes, to_bytes, .. }]
            if (*from_bytes, *to_bytes) == (1 << 20, 3 << 20)),
        "{plan}"
    );
    let event = next_event(&events);
    assert!(matches!(event, Event::NamespaceChanged(Nsid(1))), "{event:?}");
    seen.refresh().unwrap();
    assert_eq!(seen.blocks(), 6144);
    // The same open device: blocks beyond the old end can be written and read.
    seen.write(6143, &[3; 512], true).unwrap();
    assert_eq!(target.status().subsystems[0].namespaces[0].size_bytes, 3 << 20);
    // A configured size makes the file as large.
    *drive_of(&mut config, 0) = format!("{}:4Mi", path.display()).parse().unwrap();
    target.apply(config.clone()).unwrap();
    assert_eq!(path.metadata().unwrap().len(), 4 << 20);
    seen.refresh().unwrap();
    assert_eq!((seen.blocks(), block(&seen)[0]), (8192, 7));
    assert!(target.apply(config).unwrap().is_empty());
}

#[test]
fn a_target_checks_sizes_without_a_new_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path(), "a.img", 1 << 20, 7);
    let (target, _, address) = start(&[text(&path)]);
    let seen = namespace(&connect(address), 1);
    assert!(target.rescan().unwrap().is_empty());
    File::options().write(true).open(&path).unwrap().set_len(2 << 20).unwrap();
    assert_eq!(target.rescan().unwrap().changes.len(), 1);
    seen.refresh().unwrap();
    assert_eq!(seen.blocks(), 4096);
}

// @test data.grown-file
#[test]
fn a_file_in_use_does_not_shrink() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path(), "a.img", 2 << 20, 7);
    let (target, mut config, address) = start(&[text(&path), "mem:1Mi"]);
    let seen = namespace(&connect(address), 1);
    File::options().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
    let error = target.apply(config.clone()).unwrap_err().to_string();
    assert!(error.contains("namespace 1") && error.contains("1048576") && error.contains("2097152"), "{error}");
    seen.refresh().unwrap();
    assert_eq!(seen.blocks(), 4096);
    // A size that is not a multiple of the block size is refused, too.
    File::options().write(true).open(&path).unwrap().set_len((2 << 20) + 100).unwrap();
    let error = target.apply(config.clone()).unwrap_err().to_string();
    assert!(error.contains("2097252 bytes, which is not a multiple"), "{error}");
    // It may be removed, and added again with its new size.
    File::options().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
    let removed = config.subsystems[0].namespaces.remove(0);
    target.apply(config.clone()).unwrap();
    config.subsystems[0].namespaces.insert(0, removed);
    target.apply(config).unwrap();
    assert_eq!(namespace(&connect(address), 1).blocks(), 2048);
}

// @test data.reload-same-object
#[test]
fn a_drive_gets_another_name_and_its_hosts_do_not_notice() {
    let directory = tempfile::tempdir().unwrap();
    let drive = drive_rig::drive(&directory.path().join("d.img"), Some(64 << 20));
    let (target, address) = drive_rig::serve(&drive);
    let controller = drive_rig::connect(address);
    let nsid = drive_rig::create(&controller, 2048);
    let seen = namespace(&controller, nsid.0);
    seen.write(0, &[5; 512], true).unwrap();
    let mut config = target.config();
    config.drives[0].name = "other".to_owned();
    config.subsystems[0].drive = Some("other".to_owned());
    let plan = target.apply(config.clone()).unwrap();
    assert_eq!(plan.to_string(), "~ alter drive other: name \"d0\" -> \"other\"");
    assert_eq!(block(&seen), [5; 512]);
    assert_eq!(target.status().drives[0].name, "other");
    assert_eq!(target.status().controllers.len(), 1);
    // New rules for hosts are in force: overcommit is allowed.
    config.drives[0].overcommit = true;
    target.apply(config.clone()).unwrap();
    let large = drive_rig::create(&controller, 1 << 20);
    assert_eq!(namespace(&controller, large.0).blocks(), 1 << 20);
    // In another subsystem its hosts are disconnected; the drive and its data stay.
    config.subsystems[0].nqn = Nqn::parse("nqn.2014-08.org.example:drive1").unwrap();
    target.apply(config).unwrap();
    let moved = drive_rig::connect_with(address, |options| {
        options.nqn = Nqn::parse("nqn.2014-08.org.example:drive1").unwrap();
    });
    assert_eq!(block(&namespace(&moved, nsid.0)), [5; 512]);
}

// @test data.reload-unaffected-hosts
#[test]
fn a_port_gets_another_name_and_other_limits_and_its_connections_stay() {
    let (target, mut config, address) = start_at_a_number(&["mem:1Mi"]);
    let controller = connect(address);
    let seen = namespace(&controller, 1);
    seen.write(0, &[6; 512], false).unwrap();
    config.ports[0].name = "front".to_owned();
    config.subsystems[0].ports = vec!["front".to_owned()];
    config.ports[0].max_queue_size = 64;
    config.ports[0].max_io_queues = 1;
    config.ports[0].in_capsule_data_bytes = 4096;
    let before = target.status().ports[0].clone();
    target.apply(config.clone()).unwrap();
    let after = target.status().ports[0].clone();
    assert_eq!((after.name.as_str(), after.connections), ("front", before.connections));
    assert_eq!(after.accepted, before.accepted);
    // An existing controller keeps its limits.
    seen.write(0, &[6; 8192], false).unwrap();
    assert_eq!(block(&seen), [6; 512]);
    let fresh = connect(address);
    assert_eq!((fresh.io_queues(), fresh.cap().mqes()), (1, 64));
    // The same applies to settings of the transport.
    config.ports[0].header_digest = Digest::Required;
    target.apply(config.clone()).unwrap();
    assert_eq!(block(&seen), [6; 512]);
    let mut options = fresh.options().clone();
    let end = Instant::now() + Duration::from_secs(30);
    while Controller::connect(&options).is_ok() {
        assert!(Instant::now() < end, "one without a digest");
    }
    options.hdr_digest = true;
    assert!(Controller::connect(&options).is_ok());
    // Removing a port also ends connections from before its limits changed.
    let other = Port::new(2, Listen::new([127, 0, 0, 1].into(), 0));
    config.subsystems[0].ports = vec![other.name.clone()];
    config.ports = vec![other];
    target.apply(config).unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    while target.status().connections > 0 {
        assert!(Instant::now() < end, "{:?}", target.status());
        std::thread::yield_now();
    }
    while TcpStream::connect(address).is_ok() {
        assert!(Instant::now() < end, "it still listens");
        std::thread::yield_now();
    }
}

#[test]
fn other_socket_options_bind_the_address_again_and_connections_stay() {
    let (target, mut config, address) = start(&["mem:1Mi"]);
    let seen = namespace(&connect(address), 1);
    seen.write(0, &[4; 512], false).unwrap();
    config.ports[0].tos = Some(0x10);
    target.apply(config.clone()).unwrap();
    assert_eq!(target.addresses()[0].1, address);
    assert_eq!(block(&seen), [4; 512]);
    assert_eq!(block(&namespace(&connect(address), 1)), [4; 512]);
    // Without the privilege it is refused, and the address is served as before; root may.
    config.ports[0].busy_poll_us = Some(1_000_000);
    if let Err(error) = target.apply(config.clone()) {
        assert!(error.to_string().contains("busy_poll_us"), "{error}");
        assert_eq!(target.config().ports[0].busy_poll_us, None);
    }
    assert_eq!(block(&namespace(&connect(address), 1)), [4; 512]);
    assert_eq!(block(&seen), [4; 512]);
}

// @test data.reload-same-object
#[test]
fn a_port_gets_another_id_and_a_wildcard_address() {
    let (target, mut config, address) = start_at_a_number(&["mem:1Mi"]);
    let controller = connect(address);
    config.ports[0].id = 9;
    target.apply(config.clone()).unwrap();
    // Its hosts reconnect by themselves.
    assert!(controller.wait_live(Some(Instant::now() + Duration::from_secs(30))));
    assert_eq!(target.status().ports[0].id, 9);
    config.ports[0] = Port::new(9, Listen::new([0, 0, 0, 0].into(), address.port()));
    config.subsystems[0].ports = vec![config.ports[0].name.clone()];
    target.apply(config).unwrap();
    assert_eq!(target.addresses()[0].1, SocketAddr::from(([0, 0, 0, 0], address.port())));
    assert_eq!(block(&namespace(&connect(address), 1)), [0; 512]);
    // And to one that its own includes.
    let mut config = target.config();
    config.ports[0] = Port::new(9, Listen::new([127, 0, 0, 1].into(), address.port()));
    config.subsystems[0].ports = vec![config.ports[0].name.clone()];
    target.apply(config).unwrap();
    assert_eq!(target.addresses()[0].1, address);
    assert_eq!(block(&namespace(&connect(address), 1)), [0; 512]);
}

// @test data.failed-reload
#[test]
fn a_failed_reload_leaves_the_old_state() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path(), "a.img", (1 << 20) + 512, 7);
    let (target, config, address) = start_at_a_number(&[text(&path), "mem:1Mi"]);
    let controller = connect(address);
    namespace(&controller, 2).write(0, &[8; 512], false).unwrap();
    // The address is released, and the new one cannot be bound: another socket listens on one of
    // its addresses.
    let _other = TcpListener::bind(("127.0.0.2", address.port())).unwrap();
    let mut wide = config.clone();
    wide.ports[0] = Port::new(1, Listen::new([0, 0, 0, 0].into(), address.port()));
    wide.subsystems[0].ports = vec![wide.ports[0].name.clone()];
    // Before that a file has changed its NSID.
    wide.subsystems[0].namespaces[0].nsid = 7;
    let error = target.apply(wide).unwrap_err();
    assert!(
        matches!(&error, ApplyError::Failed { change, .. } if matches!(**change, Change::AddPort { .. })),
        "{error:?}"
    );
    assert_eq!(target.config(), config);
    assert_eq!(block(&namespace(&controller, 1)), [7; 512]);
    assert_eq!(block(&namespace(&connect(address), 2)), [8; 512]);
    // A block size that does not divide the file's size: the error names the namespace, although
    // other changes come first in the plan.
    let mut blocks = config.clone();
    blocks.subsystems[0].namespaces[0].block_size = Some(BlockSize::B4096);
    blocks.subsystems[0].namespaces.remove(1);
    let error = target.apply(blocks).unwrap_err();
    let ApplyError::Failed { change, source } = &error else { panic!("{error}") };
    assert!(matches!(**change, Change::AddNamespace { ref namespace, .. } if namespace.nsid == 1), "{change}");
    assert!(source.to_string().contains("not a multiple of the block size 4096"), "{source}");
    assert_eq!(block(&namespace(&controller, 1)), [7; 512]);
    assert_eq!(block(&namespace(&controller, 2)), [8; 512]);
    assert_eq!(target.config(), config);
}

// @test data.failed-reload
#[test]
fn a_resource_that_cannot_be_reopened_is_reported_and_retried_by_the_next_reload() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path(), "a.img", 1 << 20, 7);
    let (target, config, address) = start(&[text(&path), "mem:1Mi"]);
    let controller = connect(address);
    namespace(&controller, 2).write(0, &[8; 512], false).unwrap();
    // Open for writing, but it cannot be opened for writing again.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    let mut blocks = config.clone();
    blocks.subsystems[0].namespaces[0].block_size = Some(BlockSize::B4096);
    let error = target.apply(blocks.clone()).unwrap_err();
    let ApplyError::Incomplete { change, lost, .. } = &error else { panic!("{error}") };
    assert!(matches!(**change, Change::AddNamespace { .. }), "{change}");
    assert!(lost.len() == 1 && lost[0].contains("namespace 1"), "{lost:?}");
    assert!(error.to_string().contains("NOT SERVED any more: namespace 1 of"), "{error}");
    assert_eq!(target.config().subsystems[0].namespaces, config.subsystems[0].namespaces[1..]);
    assert_eq!(block(&namespace(&controller, 2)), [8; 512]);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    target.apply(blocks).unwrap();
    assert_eq!(block(&namespace(&connect(address), 1)), [7; 4096]);
}

/// The NQN is the same, but the subsystem is another one: its hosts start again.
// @test data.reload-same-object
#[test]
fn giving_a_subsystem_to_a_drive_ends_its_connections() {
    let directory = tempfile::tempdir().unwrap();
    let (target, mut config, address) = start(&["mem:1Mi"]);
    let controller = connect(address);
    let events = controller.events();
    let drive = drive_rig::drive(&directory.path().join("d.img"), Some(64 << 20));
    let before = config.subsystems.remove(0);
    let mut subsystem = ebof_manage::config::Subsystem::of_drive(before.nqn, &drive);
    subsystem.allow_any_host = true;
    subsystem.ports = before.ports;
    config.subsystems = vec![subsystem];
    config.drives = vec![drive];
    target.apply(config).unwrap();
    let lost = || events.recv_timeout(Duration::from_secs(30)).expect("the connection is lost");
    while !matches!(lost(), Event::ConnectionLost(_)) {}
    assert!(controller.wait_live(Some(Instant::now() + Duration::from_secs(30))));
    assert!(controller.identify().tnvmcap.get() > 0, "it is the drive's");
}

/// A configuration that the parser would have refused.
#[test]
fn an_invalid_table_of_namespaces_changes_nothing() {
    let (target, config, address) = start(&["mem:1Mi"]);
    let seen = namespace(&connect(address), 1);
    seen.write(0, &[7; 512], false).unwrap();
    let mut other = config.clone();
    other.subsystems[0].namespaces[0].block_size = Some(BlockSize::B4096);
    other.subsystems[0]
        .namespaces
        .extend(one_subsystem(vec!["null:1Mi"; 1100]).subsystems.remove(0).namespaces.split_off(1));
    let error = target.apply(other).unwrap_err();
    assert!(matches!(&error, ApplyError::Failed { .. }), "{error}");
    assert_eq!(target.config(), config);
    assert_eq!(block(&seen), [7; 512]);
}

// @test data.failed-reload
#[test]
fn files_created_for_a_failed_reload_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let (target, mut config, _) = start(&["mem:1Mi"]);
    let fresh = directory.path().join("fresh.img");
    let missing = directory.path().join("missing.img");
    let more = one_subsystem(["mem:1Mi", &format!("{}:1Mi", fresh.display()), text(&missing)]);
    config.subsystems[0].namespaces = more.subsystems[0].namespaces.clone();
    let error = target.apply(config).unwrap_err();
    assert!(error.to_string().contains("missing.img does not exist"), "{error}");
    assert!(!fresh.exists());
}

/// Hosts that are not affected keep their connections; acknowledged data are kept over a move.
// @test data.reload-unaffected-hosts
#[test]
fn io_of_other_hosts_continues_while_files_move() {
    let directory = tempfile::tempdir().unwrap();
    let a = image(directory.path(), "a.img", 1 << 20, 1);
    let b = image(directory.path(), "b.img", 1 << 20, 2);
    let (target, config, address) = start(&[text(&a), text(&b), "mem:1Mi"]);
    let over = AtomicBool::new(false);
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let _at_the_end_whatever_happens = Over(&over);
        let bystander = scope.spawn(|| {
            let controller = connect(address);
            let seen = namespace(&controller, 3);
            while !over.load(Relaxed) {
                let count = written.fetch_add(1, Relaxed) + 1;
                seen.write(0, &[count.to_le_bytes()[0]; 512], false).unwrap();
                assert_eq!(block(&seen)[0], count.to_le_bytes()[0]);
            }
        });
        let writer = scope.spawn(|| {
            let controller = connect(address);
            let data = vec![3; 128 << 10];
            while !over.load(Relaxed) {
                // Namespace 1 is one of the files, or for a moment none.
                let Ok(seen) = controller.namespace(Nsid(1)) else { continue };
                let _one_of_both = seen.write(256, &data, false);
            }
        });
        // Until the others have made some progress.
        for turn in 0.. {
            if turn >= 20 && written.load(Relaxed) > 20 || bystander.is_finished() {
                break;
            }
            let mut next = config.clone();
            if turn % 2 == 0 {
                next.subsystems[0].namespaces[0].drive = Drive::file(text(&b));
                next.subsystems[0].namespaces[1].drive = Drive::file(text(&a));
            }
            target.apply(next).unwrap();
        }
        over.store(true, Relaxed);
        bystander.join().unwrap();
        writer.join().unwrap();
    });
    target.apply(config).unwrap();
    let controller = connect(address);
    assert_eq!((block(&namespace(&controller, 1))[0], block(&namespace(&controller, 2))[0]), (1, 2));
}
