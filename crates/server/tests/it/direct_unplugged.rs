//! A function that is taken from its guest: what waits in the guest reaches no other one.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ebof_manage::Config;
use ebof_nvme::{Nsid, Status};

use crate::direct::{READ, WRITE};
use crate::direct_rig::{DATA, Guest, RAM, Rings, transfer};
use crate::enclosure_rig::{Rig, assign, config_with, function, moved};

/// A box with a direct port, which has function 1; function 2 waits for it.
struct DirectBox {
    _folder: tempfile::TempDir,
    rig: Rig,
    socket: PathBuf,
    /// The namespaces of the functions, which have their own numbers in them.
    nsids: [Nsid; 2],
}

fn config(folder: &Path) -> Config {
    let socket = folder.join("1.sock");
    config_with("mem:64Mi", &format!("[[ports]]\nname = \"direct1\"\nlisten = \"vfio-user:{}\"", socket.display()))
}

fn none(function: &str) -> String {
    format!(r#"{{"change": "assign", "function": "{function}", "port": null}}"#)
}

impl DirectBox {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let rig = Rig::observed(config(folder.path()), Box::new(|_| ()));
        let nsids = [1, 2].map(|number| {
            let nsid = rig.namespace(&format!("d0/vf{number}"));
            rig.made(&assign(&format!("d0/vf{number}"), "b"));
            let host = rig.connect("b", &function(number));
            host.namespace(nsid).unwrap().write(0, &[number as u8; 65536], false).unwrap();
            nsid
        });
        rig.made(&moved("d0/vf1", "direct1"));
        rig.made(&none("d0/vf2"));
        let socket = folder.path().join("1.sock");
        Self { _folder: folder, rig, socket, nsids }
    }

    /// Another function takes the place of the one that is at the port.
    fn swap(&self, from: u16, to: u16) {
        self.rig.made(&none(&format!("d0/vf{from}")));
        self.rig.made(&assign(&format!("d0/vf{to}"), "direct1"));
    }

    /// What a host finds at the beginning of the namespace of a function.
    fn content_of(&self, number: u16) -> Vec<u8> {
        let name = format!("d0/vf{number}");
        if self.rig.port_of(&name).is_some() {
            self.rig.made(&none(&name));
        }
        self.rig.made(&assign(&name, "b"));
        let host = self.rig.connect("b", &function(number));
        let mut data = vec![0; 65536];
        host.namespace(self.nsids[usize::from(number) - 1]).unwrap().read(0, &mut data).unwrap();
        data
    }
}

/// Writes of 9 to the first 64 KiB, whose answers nobody takes.
fn writes(guest: &mut Guest, io: &mut Rings, nsid: Nsid) {
    guest.put(DATA, &[9; 4096]);
    let before = io.tail;
    for at in 0..16 {
        guest.push(io, transfer(WRITE, at * 8, 8, DATA, 0).with_nsid(nsid));
    }
    guest.ring(io, before);
}

/// What a driver does to have a controller again: whether there is one.
fn comes_back(guest: &mut Guest) -> bool {
    let start = Instant::now();
    guest.shadow = None;
    guest.write_config(4, &6_u16.to_le_bytes());
    guest.write32(0x14, 0x0046_0000);
    let wait = |guest: &mut Guest, mask: u32, value: u32| loop {
        let csts = guest.read32(0x1c);
        if csts == u32::MAX || csts & mask == value {
            return csts;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "CSTS stays {csts:#x}");
    };
    wait(guest, 1, 0);
    guest.admin = Rings::new(0, 32, 0);
    guest.memory.clear(0, 1 << 20).unwrap();
    guest.write32(0x24, 31 << 16 | 31);
    for (at, value) in [(0x28, RAM), (0x30, RAM + 0x1_0000)] {
        guest.write32(at, value as u32);
        guest.write32(at + 4, (value >> 32) as u32);
    }
    guest.write32(0x14, 0x0046_0001);
    loop {
        let csts = guest.read32(0x1c);
        if csts & 3 != 0 {
            return csts & 2 == 0;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "CSTS stays {csts:#x}");
    }
}

/// A driver that repeats its writes, if it can.
fn repeats(guest: &mut Guest, nsid: Nsid) -> bool {
    if !comes_back(guest) {
        return false;
    }
    let mut io = guest.create(1, 64);
    writes(guest, &mut io, nsid);
    for _ in 0..16 {
        guest.take(&mut io);
    }
    true
}

/// As a bus driver finds a device: the size of BAR0, and its place again.
fn is_found(guest: &mut Guest) {
    guest.write_config(0x10, &[0xff; 4]);
    guest.write_config(0x14, &[0xff; 4]);
    guest.write_config(0x10, &0xfebd_4004_u32.to_le_bytes());
    guest.write_config(0x14, &[0; 4]);
}

// @test data.guest-function
#[test]
fn what_waits_for_a_function_reaches_no_other_one() {
    let it = DirectBox::new();
    let mut guest = Guest::enabled(&it.socket);
    let ways: [fn(&mut Guest); 8] = [
        |_| (),
        |guest| guest.write32(0x14, 0),
        |guest| guest.client.reset().unwrap(),
        // Initiate Function Level Reset.
        |guest| guest.write_config(0x68, &0x8000_u16.to_le_bytes()),
        |guest| guest.write_config(4, &2_u16.to_le_bytes()),
        |guest| guest.write_config(0x44, &[3, 0]),
        // What a host saves before a reset, and puts back.
        |guest| guest.write_config(0x10, &0xffff_c004_u32.to_le_bytes()),
        |guest| guest.write32(0x14, 0x0046_4001),
    ];
    for (at, way) in ways.into_iter().enumerate() {
        // The queues of the way before are gone.
        assert!(comes_back(&mut guest), "way {at}");
        let mut io = guest.create(1, 64);
        writes(&mut guest, &mut io, it.nsids[0]);
        it.swap(1, 2);
        way(&mut guest);
        guest.write_config(0x44, &[0, 0]);
        assert!(!repeats(&mut guest, it.nsids[1]), "way {at}");
        for register in [0, 8, 0x14, 0x1c, 0x1000, 0x2000, 0x3000] {
            assert_eq!(guest.read32(register), u32::MAX, "way {at}, {register:#x}");
        }
        // The one that it knows is back.
        it.swap(2, 1);
        assert!(repeats(&mut guest, it.nsids[0]), "way {at}");
    }
    it.rig.made(&none("d0/vf1"));
    assert_eq!(it.content_of(2), [2; 65536], "nobody has written to function 2");
    assert_eq!(it.content_of(1), [9; 65536], "but to function 1");
    it.rig.target.stop(Duration::ZERO);
}

// @test data.guest-function
#[test]
fn a_function_that_changes_while_the_controller_is_disabled_is_another_one() {
    let it = DirectBox::new();
    let mut guest = Guest::enabled(&it.socket);
    // A driver in the middle of a reset.
    guest.disable();
    it.rig.made(&none("d0/vf1"));
    assert_eq!(guest.read32(0x1c), u32::MAX);
    it.rig.made(&assign("d0/vf2", "direct1"));
    assert!(!repeats(&mut guest, it.nsids[1]));
    assert_eq!(it.content_of(2), [2; 65536]);
    it.rig.target.stop(Duration::ZERO);
}

// @test data.guest-function
#[test]
fn who_has_let_go_of_a_function_finds_the_next_one() {
    let it = DirectBox::new();
    let mut guest = Guest::enabled(&it.socket);
    // It is enabled: what is found is this one.
    is_found(&mut guest);
    assert!(guest.identify().ends_with("vf1"));
    it.swap(1, 2);
    assert!(!comes_back(&mut guest));
    is_found(&mut guest);
    assert_eq!(guest.read32(0x14), 0, "CC begins anew");
    assert!(comes_back(&mut guest));
    assert!(guest.identify().ends_with("vf2"));
    let mut io = guest.create(1, 64);
    let read = transfer(READ, 0, 8, DATA, 0).with_nsid(it.nsids[1]);
    assert_eq!(guest.call(&mut io, read).status(), Status::SUCCESS);
    assert_eq!(guest.get(DATA, 4096), [2; 4096]);

    // It is found in the middle of a reset, when there is none.
    it.rig.made(&none("d0/vf2"));
    guest.write32(0x14, 0);
    is_found(&mut guest);
    assert!(!comes_back(&mut guest), "nothing is there");
    assert_ne!(guest.read32(0x1c), u32::MAX, "but nothing was taken away, either");
    it.rig.made(&assign("d0/vf1", "direct1"));
    assert!(comes_back(&mut guest));
    assert!(guest.identify().ends_with("vf1"));

    it.swap(1, 2);
    assert!(!comes_back(&mut guest));
    drop(guest);
    let mut guest = Guest::enabled(&it.socket);
    assert!(guest.identify().ends_with("vf2"), "another client");
    it.rig.target.stop(Duration::ZERO);
}

// @test data.guest-function
#[test]
fn a_drive_with_the_name_of_another_is_another_one() {
    let it = DirectBox::new();
    it.rig.made(&none("d0/vf1"));
    let add = r#"{"change": "add-drive", "drive": {"name": "d1", "backing": "mem:64Mi"}, "ports": ["direct1"]}"#;
    it.rig.made(add);
    let mut guest = Guest::enabled(&it.socket);
    let name = guest.identify();
    it.rig.made(r#"{"change": "remove-drive", "drive": "d1"}"#);
    it.rig.made(add);
    assert!(!comes_back(&mut guest));
    is_found(&mut guest);
    assert!(comes_back(&mut guest));
    assert_eq!(guest.identify(), name);
    it.rig.target.stop(Duration::ZERO);
}
