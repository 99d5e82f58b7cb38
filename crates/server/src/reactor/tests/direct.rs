//! A virtual machine at a direct port: what its queues get of a turn.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ebof_backend::Device;
use ebof_nvme::{Sqe, Status};
use ebof_region::{MappingAccess, SharedMapping};

use super::Rig;
use super::direct_rig::{DATA, Guest, RAM, RAM_BYTES, Rings, transfer, with_direct_port};
use super::drains::{Gate, State};
use crate::ports::peer::{Peer, PeerAddress};
use crate::shared::mailbox::{Accepted, Incoming, Message};

const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const COMPARE: u8 = 0x05;

/// A reactor with a virtual machine, whose doorbells are memory: ringing them needs no answer.
struct DirectRig {
    rig: Rig,
    guest: Guest,
    doorbells: Arc<SharedMapping>,
    _folder: tempfile::TempDir,
}

impl DirectRig {
    fn new() -> Self {
        Self::with(|device| device)
    }

    /// With devices derived from the configured ones.
    fn with(wrap: impl Fn(Arc<dyn Device>) -> Arc<dyn Device>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("direct.sock");
        let mut config = with_direct_port(&socket, ["mem:64Mi"]);
        config.ports[1].busy_poll_us = Some(1);
        let mut rig = Rig::with_devices(&config, wrap);
        let listener = UnixListener::bind(&socket).unwrap();
        let guest = std::thread::spawn(move || {
            let guest = Guest::enabled(&socket);
            let region = guest.client.region(0).unwrap();
            let file = region.file_offset.as_ref().unwrap().file();
            let doorbells = SharedMapping::map(file, 0x1000, 0x1000, MappingAccess::ALL).unwrap();
            (guest, doorbells)
        });
        let (client, _) = listener.accept().unwrap();
        client.set_nonblocking(true).unwrap();
        rig.reactor.mailbox.post(Message::Accept(Accepted {
            incoming: Incoming::Direct(client),
            peer: Peer::new(Arc::clone(&rig.port), PeerAddress::Direct),
            waiting: None,
        }));
        while !guest.is_finished() {
            rig.turn(20);
        }
        let (guest, doorbells) = guest.join().unwrap();
        Self { rig, guest, doorbells, _folder: folder }
    }

    /// The same with a device that keeps commands while its gate is shut.
    fn gated() -> (Self, Arc<State>) {
        let gate = Arc::new(State::default());
        let of_device = Arc::clone(&gate);
        let rig = Self::with(move |below| Arc::new(Gate { below, state: Arc::clone(&of_device) }));
        (rig, gate)
    }

    fn ring(&self, rings: &Rings) {
        self.doorbells.store(usize::from(rings.id) * 8, rings.tail.into()).unwrap();
    }

    /// Has a command of the Admin Queue executed.
    fn admin(&mut self, sqe: Sqe) -> Status {
        let mut admin = std::mem::replace(&mut self.guest.admin, Rings::new(9, 2, 0));
        self.guest.push(&mut admin, sqe);
        self.ring(&admin);
        let cqe = loop {
            self.rig.turn(20);
            if let Some(cqe) = self.guest.try_take(&mut admin) {
                break cqe;
            }
        };
        self.doorbells.store(4, admin.head.into()).unwrap();
        self.guest.admin = admin;
        cqe.status()
    }

    /// Creates a queue pair.
    fn create(&mut self, id: u16, entries: u16) -> Rings {
        let (rings, [completion, submission]) = Rings::to_create(id, entries);
        assert_eq!(self.admin(completion), Status::SUCCESS);
        assert_eq!(self.admin(submission), Status::SUCCESS);
        rings
    }
}

#[test]
fn data_that_a_virtual_machine_sends_use_up_its_share_of_a_turn() {
    let mut rig = DirectRig::new();
    let mut io = rig.create(1, 128);
    // 1 MiB each, all of it in one page.
    rig.guest.put64(DATA, &[DATA + 4096; 256]);
    for opcode in [WRITE, COMPARE, READ] {
        for _ in 0..64 {
            rig.guest.push(&mut io, transfer(opcode, 0, 2048, DATA + 4096, DATA));
        }
        rig.ring(&io);
        let mut done = 0;
        for _ in 0..64 {
            rig.rig.turn(20);
            let before = done;
            while let Some(cqe) = rig.guest.try_take(&mut io) {
                assert_eq!(cqe.status(), Status::SUCCESS);
                done += 1;
            }
            // Nobody else is busy: 4 MiB, and the command that has begun.
            assert!(done - before <= 5, "{} MiB in one turn, opcode {opcode}", done - before);
        }
        assert_eq!(done, 64, "opcode {opcode}");
        rig.doorbells.store(12, io.head.into()).unwrap();
    }
}

#[test]
fn lists_of_pieces_of_a_virtual_machines_memory_are_bounded() {
    let (mut rig, gate) = DirectRig::gated();
    let mut io = rig.create(1, 512);
    // 1 MiB each, in pages that are not next to each other.
    let pages: Vec<u64> = (0..256).map(|at| DATA + 4096 + at % 2 * 8192).collect();
    rig.guest.put64(DATA, &pages[1..]);
    for opcode in [WRITE, READ] {
        gate.is_shut.store(true, Ordering::Relaxed);
        for _ in 0..500 {
            rig.guest.push(&mut io, transfer(opcode, 0, 2048, pages[0], DATA));
        }
        rig.ring(&io);
        for _ in 0..500 {
            rig.rig.turn(20);
        }
        let pieces = gate.pieces();
        // A queue with little to do needs no copies; one with much has its budget of buffers.
        assert_eq!(pieces[..7], [Some(256); 7], "opcode {opcode}");
        let sum: usize = pieces.iter().flatten().sum();
        assert!(sum < 12_000, "{sum} pieces for {} requests, opcode {opcode}", pieces.len());
        let mut done = 0;
        for _ in 0..1000 {
            gate.open();
            rig.rig.turn(20);
            while let Some(cqe) = rig.guest.try_take(&mut io) {
                assert_eq!(cqe.status(), Status::SUCCESS);
                done += 1;
            }
        }
        assert_eq!(done, 500, "opcode {opcode}");
        rig.doorbells.store(12, io.head.into()).unwrap();
    }
}

impl crate::reactor::Reactor {
    fn is_a_client_waiting(&self) -> bool {
        self.direct.is_any_waiting()
    }
}

impl DirectRig {
    /// The target stops; what it has accepted has as long as it likes.
    fn stop(&mut self) {
        let now_us = self.rig.now_us;
        let deadline_ms = now_us / 1000 + 3_600_000;
        self.rig.reactor.on_message(Message::Shutdown { deadline_ms }, now_us);
    }

    fn turns(&mut self) {
        for _ in 0..50 {
            self.rig.turn(1000);
        }
    }
}

#[test]
fn a_queue_that_is_being_created_does_not_delay_a_stop() {
    let mut rig = DirectRig::new();
    let (_, [completion, submission]) = Rings::to_create(1, 16);
    assert_eq!(rig.admin(completion), Status::SUCCESS);
    let mut admin = std::mem::replace(&mut rig.guest.admin, Rings::new(9, 2, 0));
    rig.guest.push(&mut admin, submission);
    rig.ring(&admin);
    rig.rig.turn(20);
    assert!(rig.rig.reactor.mailbox.has_messages(), "the connection is made in the next turn");
    rig.stop();
    rig.turns();
    assert!(rig.rig.reactor.is_shut_down());
    let cqe = rig.guest.try_take(&mut admin).expect("a completion");
    assert!(cqe.status().is(Status::INTERNAL_ERROR));
}

/// A target that is stopping while a write of a virtual machine is at a device.
fn stopping_with_a_write() -> (DirectRig, Arc<State>, Rings) {
    let (mut rig, gate) = DirectRig::gated();
    let mut io = rig.create(1, 16);
    gate.is_shut.store(true, Ordering::Relaxed);
    rig.guest.push(&mut io, transfer(WRITE, 0, 8, DATA, 0));
    rig.ring(&io);
    rig.rig.turn(20);
    rig.stop();
    rig.turns();
    (rig, gate, io)
}

#[test]
fn a_stop_waits_for_what_a_virtual_machine_has_at_a_device() {
    let (mut rig, gate, mut io) = stopping_with_a_write();
    assert!(!rig.rig.reactor.is_shut_down());
    gate.open();
    rig.turns();
    assert_eq!(rig.guest.try_take(&mut io).expect("a completion").status(), Status::SUCCESS);
    assert!(rig.rig.reactor.is_shut_down());
}

#[test]
fn a_controller_that_is_enabled_while_the_target_stops_does_not_delay_it() {
    let (rig, gate, _io) = stopping_with_a_write();
    let DirectRig { mut rig, mut guest, .. } = rig;
    let guest = std::thread::spawn(move || {
        guest.write32(0x14, 0x0046_0000);
        guest.write32(0x14, 0x0046_0001);
        guest
    });
    while !guest.is_finished() {
        rig.turn(20);
    }
    gate.open();
    for _ in 0..50 {
        rig.turn(1000);
    }
    assert!(rig.reactor.is_shut_down());
}

#[test]
fn memory_is_given_back_when_no_device_uses_it_any_more() {
    let (mut rig, gate) = DirectRig::gated();
    let mut io = rig.create(1, 16);
    gate.is_shut.store(true, Ordering::Relaxed);
    rig.guest.push(&mut io, transfer(READ, 0, 8, DATA, 0));
    rig.ring(&io);
    rig.turns();
    let DirectRig { mut rig, mut guest, .. } = rig;
    let unmaps = std::thread::spawn(move || guest.client.dma_unmap(RAM, RAM_BYTES).unwrap());
    // The message is there, and is not answered.
    let wait = |rig: &mut Rig, is_over: &dyn Fn(&Rig) -> bool| {
        let start = Instant::now();
        while !is_over(rig) && start.elapsed() < Duration::from_secs(20) {
            rig.turn(1000);
        }
    };
    wait(&mut rig, &|rig| unmaps.is_finished() || rig.reactor.is_a_client_waiting());
    for _ in 0..50 {
        rig.turn(1000);
    }
    assert!(rig.reactor.is_a_client_waiting() && !unmaps.is_finished());
    gate.open();
    wait(&mut rig, &|_| unmaps.is_finished());
    unmaps.join().unwrap();
}
