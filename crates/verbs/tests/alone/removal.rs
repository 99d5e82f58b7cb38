//! A device that goes away, as `rdma link delete` does it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, Command};

use ebof_verbs::{ConnectOptions, Event, ListenerEvent};

use crate::ends::{Ends, address, attributes, connect, event, filled, handshake, network, until};

/// In the background: it lasts as long as somebody has opened the device.
fn remove(device: &str) -> Child {
    Command::new("rdma").args(["link", "delete", device]).spawn().unwrap()
}

fn add(device: &str) {
    let kind = device.split('_').next().unwrap();
    let added = Command::new("rdma").args(["link", "add", device, "type", kind, "netdev", "eth0"]).status();
    assert!(added.unwrap().success());
}

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn a_removed_device_is_given_back_also_when_its_connections_have_ended_before() {
    let device = network().devices().unwrap().remove(0).attributes.name;
    for ip in [address(), IpAddr::V4(Ipv4Addr::UNSPECIFIED)] {
        let mut listener = network().listen(SocketAddr::new(ip, 0), 8).unwrap();
        for _ in 0..2 {
            drop(connect(&mut listener, &attributes(), &attributes(), &handshake(&[])));
        }
        let mut removal = remove(&device);
        let mut is_told = false;
        let status = until(
            || {
                is_told |= matches!(listener.poll().unwrap(), Some(ListenerEvent::DeviceRemoved));
                removal.try_wait().unwrap()
            },
            "an end of the removal",
        );
        assert!(status.success());
        add(&device);
        // A listener for all addresses goes on.
        assert_eq!(is_told, !ip.is_unspecified());
        if is_told {
            listener = network().listen(SocketAddr::new(ip, 0), 8).unwrap();
        }
        drop(connect(&mut listener, &attributes(), &attributes(), &handshake(&[])));
    }
}

/// A host whose target is gone, and that tries again and again.
#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn a_removed_device_is_given_back_by_a_host_that_connects_again() {
    let device = network().devices().unwrap().remove(0).attributes.name;
    let memory = filled(4096, 1);
    let Ends { mut host, target, listener } = Ends::connected();
    host.remote_key(memory.region()).unwrap();
    drop((host, target, listener));
    let mut removal = remove(&device);
    let to = SocketAddr::new(address(), 4420);
    let status = until(
        || {
            drop(network().connect(to, None, &ConnectOptions::default()));
            removal.try_wait().unwrap()
        },
        "an end of the removal",
    );
    assert!(status.success());
    drop(memory);
    add(&device);
    drop(Ends::connected());
}

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn a_removed_device_is_reported() {
    let device = network().devices().unwrap().remove(0).attributes.name;
    let Ends { mut host, mut target, mut listener } = Ends::connected();
    // A region that outlives the device, as a drive in memory does.
    let memory = filled(4096, 1);
    let key = host.remote_key(memory.region()).unwrap();
    let mut removal = remove(&device);
    // The end of the connection may be reported before.
    for pair in [&mut host, &mut target] {
        while event(pair) != Event::DeviceRemoved {}
    }
    let at_listener = until(|| listener.poll().unwrap(), "an event of the listener");
    assert!(matches!(at_listener, ListenerEvent::DeviceRemoved), "{at_listener:?}");
    drop((host, target));
    let status = until(|| removal.try_wait().unwrap(), "an end of the removal");
    assert!(status.success());
    drop(listener);
    // It comes back.
    add(&device);
    let mut ends = Ends::connected();
    println!("{key:#x}, then {:#x}", ends.host.remote_key(memory.region()).unwrap());
    drop(memory);
    drop(ends);
    // The same without queue pairs: the listener is told.
    let memory = filled(4096, 1);
    let Ends { mut host, target, mut listener } = Ends::connected();
    host.remote_key(memory.region()).unwrap();
    drop((host, target));
    let mut removal = remove(&device);
    let at_listener = until(|| listener.poll().unwrap(), "an event of the listener");
    assert!(matches!(at_listener, ListenerEvent::DeviceRemoved), "{at_listener:?}");
    let status = until(|| removal.try_wait().unwrap(), "an end of the removal");
    assert!(status.success());
}
