//! A target that is stopped while a device does not answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_initiator::{Controller, Options};
use ebof_manage::Config;
use ebof_nvme::{Nqn, Nsid};
use ebof_server::{Environment, Hanging, Settings, Target};

use crate::drive_rig::{create, wait};
use crate::enclosure_drains::{Disk, Disks};

const NQN: &str = "nqn.2014-08.org.example:hangs";

/// A target whose only device is `disk`, and its host.
fn start(config: Config, disk: &Arc<Disk>) -> (Target, Controller) {
    let environment = Environment { storage: Arc::new(Disks(Arc::clone(disk))), ..Environment::default() };
    let settings = Settings { threads: Some(2), pin: false, environment, ..Settings::default() };
    let target = Target::start(config, settings).unwrap();
    let (_, address) = target.addresses().remove(0);
    let mut options = Options::new(address.ip().to_string(), address.port(), Nqn::parse(NQN).unwrap());
    (options.nr_io_queues, options.command_timeout_ms) = (1, 60_000);
    let host = Controller::connect(&options).unwrap();
    (target, host)
}

fn config(more: &str) -> Config {
    let text = format!(
        "[[ports]]\nname = \"a\"\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystems]]\nnqn = \"{NQN}\"\n\
         allow_any_host = true\n{more}"
    );
    ebof_manage::load("hangs.toml", &text).unwrap().config
}

/// Has a write at a device that does not answer, stops the target, and gives what it says.
fn stop_with_a_write(target: &Target, host: &Controller, disk: &Disk) -> Option<Hanging> {
    let namespace = host.namespace(Nsid(1)).unwrap();
    namespace.write(0, &[1; 4096], true).unwrap();
    disk.shut();
    std::thread::scope(|scope| {
        // It ends with the connection.
        let writer = scope.spawn(|| namespace.write(0, &[2; 4096], true));
        wait("a write at the device", || (disk.kept() > 0).then_some(()));
        let before = Instant::now();
        let hanging = target.stop(Duration::from_millis(100));
        assert!(before.elapsed() < Duration::from_secs(20), "{:?}", before.elapsed());
        host.clone().disconnect();
        assert!(writer.join().unwrap().is_err(), "nothing was acknowledged");
        assert_eq!(target.stop(Duration::ZERO), None, "once");
        hanging
    })
}

// @test hostile.stop-with-a-hanging-device
#[test]
fn a_device_that_hangs_does_not_keep_who_stops_the_target() {
    let disk = Disk::new(16 << 20);
    let (target, host) = start(config("namespaces = [\"disk\"]"), &disk);
    let hanging = stop_with_a_write(&target, &host, &disk).expect("a thread is left");
    assert!(hanging.threads.len() == 1 && hanging.threads[0].starts_with("ebof-reactor"), "{hanging}");
    assert!(hanging.drives.is_empty(), "{hanging}");
    // It ends when the device answers.
    disk.open();
}

// @test hostile.stop-with-a-hanging-device
#[test]
fn a_drive_that_hangs_does_not_keep_who_stops_the_target() {
    let disk = Disk::new(256 << 20);
    let text =
        "drive = \"d0\"\n[[drives]]\nname = \"d0\"\nbacking = \"disk\"\nsize = \"64Mi\"\nattach = \"everyone\"\n";
    let (target, host) = start(config(text), &disk);
    create(&host, 16_384);
    let hanging = stop_with_a_write(&target, &host, &disk).expect("the drive is left");
    assert_eq!(hanging.drives, ["d0"], "{hanging}");
    disk.open();
}
