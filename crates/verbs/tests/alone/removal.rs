//! A device that goes away, as `rdma link delete` does it.

use std::process::Command;

use ebof_verbs::{Event, ListenerEvent};

use crate::ends::{Ends, event, filled, network, until};

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn a_removed_device_is_reported() {
    let device = network().devices().unwrap().remove(0).attributes.name;
    let Ends { mut host, mut target, mut listener } = Ends::connected();
    // A region that outlives the device, as a drive in memory does.
    let memory = filled(4096, 1);
    let key = host.remote_key(memory.region()).unwrap();
    // In the background: it lasts as long as somebody has opened the device.
    let mut removal = Command::new("rdma").args(["link", "delete", &device]).spawn().unwrap();
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
    let kind = device.split('_').next().unwrap();
    let added = Command::new("rdma").args(["link", "add", &device, "type", kind, "netdev", "eth0"]).status();
    assert!(added.unwrap().success());
    let mut ends = Ends::connected();
    println!("{key:#x}, then {:#x}", ends.host.remote_key(memory.region()).unwrap());
    drop(memory);
    drop(ends);
    // The same without queue pairs: the listener is told.
    let memory = filled(4096, 1);
    let Ends { mut host, target, mut listener } = Ends::connected();
    host.remote_key(memory.region()).unwrap();
    drop((host, target));
    let mut removal = Command::new("rdma").args(["link", "delete", &device]).spawn().unwrap();
    let at_listener = until(|| listener.poll().unwrap(), "an event of the listener");
    assert!(matches!(at_listener, ListenerEvent::DeviceRemoved), "{at_listener:?}");
    let status = until(|| removal.try_wait().unwrap(), "an end of the removal");
    assert!(status.success());
}
