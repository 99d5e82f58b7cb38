//! Tests: how much data of large writes is in the socket while small commands are sent too.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use ebof_clock::Clock;
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Cid, Cqe, Nsid, Status};
use ebof_tcp::controller;

use super::super::{H2C_PIECE_MAX, SEND_AHEAD_MIXED};
use crate::command::data::{AdminData, Data};
use crate::command::small_commands::SmallCommands;
use crate::engine::Engine;
use crate::engine::pair::{pair, tcp};

const WRITE_BYTES: u32 = 384 << 10;
/// One write, but not two.
const LIMIT: u32 = 512 << 10;

/// An engine whose clock stands still, and a controller that requests all data at once and
/// completes commands when told to.
struct World {
    clock: Clock,
    engine: Engine<Vec<u8>>,
    controller: controller::Connection,
    socket: UnixStream,
    /// Data bytes received for each command, in order of arrival.
    arrived: Vec<(Cid, u32)>,
    longest: u32,
}

impl World {
    fn new() -> Self {
        let clock = Clock::simulated(1);
        let (mut engine, controller, socket) = pair(1, &clock);
        tcp(&mut engine).bulk.set_bytes_max(Some(LIMIT));
        Self { clock, engine, controller, socket, arrived: Vec::new(), longest: 0 }
    }

    fn write(&mut self) {
        let sqe = BlockRange::new(0, WRITE_BYTES / 512).encode(nvm::WRITE, Nsid(1));
        let data = Data::FromHost(vec![1; WRITE_BYTES as usize]);
        self.engine.submit(sqe, data, 0, u64::MAX).unwrap();
    }

    /// Runs both ends until neither has anything to send.
    fn run(&mut self) {
        let mut input = vec![0; 256 << 10];
        loop {
            self.engine.flush(&AdminData::None).unwrap();
            let mut out = Vec::new();
            let received = self.socket.read(&mut input).unwrap_or(0);
            let mut rest = &input[..received];
            loop {
                let wanted = self.controller.data_wanted().min(rest.len());
                self.controller.data_received(&rest[..wanted]);
                rest = &rest[wanted..];
                match self.controller.poll_event(&mut rest).unwrap() {
                    None => break,
                    Some(event) => self.on_event(event, &mut out),
                }
            }
            self.socket.write_all(&out).unwrap();
            self.engine.receive(&mut AdminData::None).unwrap();
            if received == 0 && out.is_empty() {
                return;
            }
        }
    }

    fn on_event(&mut self, event: controller::Event, out: &mut Vec<u8>) {
        match event {
            controller::Event::Command { sqe, .. } if sqe.opcode == nvm::READ => {}
            controller::Event::Command { sqe, .. } => {
                self.controller.request_data(sqe.cid(), sqe.dptr.decode().length(), out).unwrap();
            }
            controller::Event::Data { cid, length, .. } => {
                self.longest = self.longest.max(length);
                match self.arrived.iter_mut().find(|(known, _)| *known == cid) {
                    Some((_, bytes)) => *bytes += length,
                    None => self.arrived.push((cid, length)),
                }
            }
            controller::Event::DataEnd { .. } => {}
            controller::Event::Initialized(_) | controller::Event::TermReceived(_) => panic!("{event:?}"),
        }
    }

    fn complete(&mut self, cid: Cid) {
        let mut out = Vec::new();
        self.controller.send_response(&Cqe::new(cid, Status::SUCCESS), &mut out);
        self.socket.write_all(&out).unwrap();
        self.engine.receive(&mut AdminData::None).unwrap();
        assert!(self.engine.pop().is_some());
    }

    fn share(&mut self, small_commands: &Arc<SmallCommands>) {
        tcp(&mut self.engine).bulk.share(small_commands);
    }

    fn read(&mut self) {
        let sqe = BlockRange::new(0, 1).encode(nvm::READ, Nsid(1));
        self.engine.submit(sqe, Data::ToHost(vec![0; 512]), 0, u64::MAX).unwrap();
    }
}

/// Of all that were sent, how many bytes arrived.
fn bytes(world: &World) -> Vec<u32> {
    world.arrived.iter().map(|(_, bytes)| *bytes).collect()
}

#[test]
fn with_small_commands_large_writes_are_throttled() {
    let mut world = World::new();
    world.read();
    for _ in 0..4 {
        world.write();
    }
    world.run();
    assert_eq!(bytes(&world), [WRITE_BYTES], "a second one would be beyond {LIMIT}");
    assert!(world.longest as usize <= H2C_PIECE_MAX.min(SEND_AHEAD_MIXED));
    // One after the other, as they complete.
    for done in 0..4 {
        assert_eq!(world.arrived.len(), done + 1);
        let (cid, bytes) = world.arrived[done];
        assert_eq!(bytes, WRITE_BYTES);
        world.complete(cid);
        world.run();
    }
    assert_eq!(world.engine.in_flight(), 1, "the read");
}

#[test]
fn small_commands_of_another_queue_count_too() {
    let small_commands = Arc::default();
    let (mut large, mut small) = (World::new(), World::new());
    large.share(&small_commands);
    small.share(&small_commands);
    small.read();
    for _ in 0..4 {
        large.write();
    }
    large.run();
    assert_eq!(bytes(&large), [WRITE_BYTES]);
    large.clock.advance(Duration::from_millis(10));
    large.run();
    assert_eq!(bytes(&large), [WRITE_BYTES; 4], "the small command was long ago");
}

#[test]
fn large_writes_alone_are_not_throttled() {
    let mut world = World::new();
    for _ in 0..4 {
        world.write();
    }
    world.run();
    assert_eq!(bytes(&world), [WRITE_BYTES; 4]);
}

#[test]
fn without_a_limit_small_commands_do_not_matter() {
    let mut world = World::new();
    tcp(&mut world.engine).bulk.set_bytes_max(None);
    world.read();
    for _ in 0..4 {
        world.write();
    }
    world.run();
    assert_eq!(bytes(&world), [WRITE_BYTES; 4]);
}
