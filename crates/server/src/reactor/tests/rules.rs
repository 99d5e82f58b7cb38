//! Mistakes that a reactor must not make in unusual sequences of events, tested turn by turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ebof_backend::{Device, Geometry, Io, Memory, Request, Submitted};
use ebof_fabrics::DeviceId;
use ebof_nvme::connect::Property;
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::property::{Cc, offset};
use ebof_nvme::{Cid, Nsid, Sgl};

use super::Rig;
use super::hosts::{Load, capsule, h2c_data};
use crate::drives::device::DeviceTable;
use crate::shared::mailbox::{CommandRef, Message};

/// The only device of a [`Rig`].
const DEVICE: DeviceId = DeviceId(1);

/// A write of a block of 4 KiB at the start.
fn write() -> ebof_nvme::Sqe {
    BlockRange::new(0, 8).encode(nvm::WRITE, Nsid(1))
}

#[test]
fn data_in_the_capsule_of_a_command_that_is_not_taken_reach_no_other_command() {
    let mut rig = Rig::new();
    let mut host = rig.host(Load::reads(4096, 0));
    let r2t = host.exchange(&mut rig, &capsule(write(), 5, Sgl::Transport { length: 4096 }, &[]));
    assert_eq!(r2t[0], 9, "an R2T");
    rig.reactor.mailbox.post(Message::Shutdown { deadline_ms: u64::MAX / 2000 });
    rig.turn(100);
    // The identifier of the command that awaits its data, and data of the same length.
    host.put(&capsule(write(), 5, Sgl::InCapsule { offset: 0, length: 4096 }, &[0xbb; 4096]));
    rig.turn(100);
    let response = host.exchange(&mut rig, &h2c_data(&r2t, &[0xaa; 4096]));
    assert_eq!((response[0], &response[20..24]), (5, &[5, 0, 0, 0][..]), "the response to the command that was taken");
    let device = rig.reactor.connections.devices.table.device(DEVICE).unwrap();
    assert_eq!(device.resident().unwrap().lend(0, 4096, true).unwrap().as_ref(), [0xaa; 4096]);
}

/// The command and the Abort come after the sockets have been asked and before the mailbox is.
#[test]
fn an_abort_finds_a_command_that_was_sent_before_it() {
    let mut rig = Rig::new();
    let mut host = rig.host(Load::reads(4096, 0));
    let handle = rig.reactor.connection_at(host.index()).unwrap().handle;
    let mut first_half = BlockRange::new(0, 1).encode(nvm::COMPARE, Nsid(1));
    first_half.flags |= 1;
    host.put(&capsule(first_half, 5, Sgl::InCapsule { offset: 0, length: 512 }, &[0; 512]));
    rig.reactor.mailbox.post(Message::Abort { handle, cid: Cid(5), reply: CommandRef { handle, slot: 99 } });
    let now_us = rig.now_us;
    rig.reactor.turn(now_us, false, &[], &mut rig.messages);
    for _ in 0..3 {
        rig.turn(100);
    }
    let response = host.answer().expect("the command was aborted");
    assert_eq!((response[0], &response[20..24]), (5, &[5, 0, 0x0e, 0][..]), "Command Abort Requested");
}

/// A device that delays requests until it is released.
#[derive(Debug)]
struct Slow {
    memory: Memory,
    go: AtomicBool,
}

impl Device for Slow {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
        if self.go.load(Relaxed) { self.memory.submit(io, request) } else { Submitted::Busy(request) }
    }

    fn describe(&self) -> String {
        "slow".to_owned()
    }
}

#[test]
fn a_reset_waits_for_writes_of_a_queue_whose_connection_is_gone() {
    let mut rig = Rig::new();
    let slow = Arc::new(Slow { memory: Memory::new(64 << 20, 512, false), go: AtomicBool::new(false) });
    rig.reactor.connections.devices.table =
        Arc::new(DeviceTable::new([(DEVICE, Arc::clone(&slow) as Arc<dyn Device>)]));
    let mut host = rig.host(Load::reads(4096, 0));
    host.put(&capsule(write(), 5, Sgl::InCapsule { offset: 0, length: 4096 }, &[0xaa; 4096]));
    rig.turn(100);
    // The queue's connection is lost while its write is at the device.
    drop(host);
    rig.turn(100);
    let mut admin = rig.admin.pop().unwrap();
    admin.put(&capsule(Property::set(offset::CC, 0), 7, Sgl::None, &[]));
    for _ in 0..20 {
        rig.turn(100);
        assert!(!admin.has_input(), "the write may still reach the medium");
    }
    slow.go.store(true, Relaxed);
    let response = admin.exchange(&mut rig, &[]);
    assert_eq!((response[0], &response[20..24]), (5, &[7, 0, 0, 0][..]), "the reset is over");
    // The reset took effect: the controller can be enabled again.
    let response = admin.exchange(&mut rig, &capsule(Property::set(offset::CC, Cc::ENABLE.0), 8, Sgl::None, &[]));
    assert_eq!(&response[20..24], [8, 0, 0, 0]);
}
