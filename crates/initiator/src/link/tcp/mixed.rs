//! Tests: how much data of large writes is in the socket while small commands are sent too.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Cid, Cqe, Nsid, Status};
use ebof_tcp::controller;

use super::{H2C_PIECE_MAX, MIXED_MS, R2T_BYTES_MIXED, SEND_AHEAD_MIXED};
use crate::data::{AdminData, Data};
use crate::engine::Engine;
use crate::engine::pair::{pair, tcp};

const WRITE_BYTES: u32 = 384 << 10;

/// An engine, and a controller that requests all data at once and completes commands when told to.
struct World {
    engine: Engine<Vec<u8>>,
    controller: controller::Connection,
    socket: UnixStream,
    /// Data bytes received for each command, in order of arrival.
    arrived: Vec<(Cid, u32)>,
    longest: u32,
}

impl World {
    fn new() -> Self {
        let (engine, controller, socket) = pair(1);
        Self { engine, controller, socket, arrived: Vec::new(), longest: 0 }
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

    /// Whether the link shall behave as if small commands were sent all the time.
    fn mix(&mut self, small: bool) {
        let link = tcp(&mut self.engine);
        link.last_small_ms = if small { u64::MAX - MIXED_MS } else { 0 };
    }
}

#[test]
fn with_small_commands_large_writes_are_throttled() {
    let mut world = World::new();
    world.mix(true);
    for _ in 0..4 {
        world.write();
    }
    world.run();
    let bulk: u32 = world.arrived.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!((world.arrived.len(), bulk), (1, WRITE_BYTES), "{:?}", world.arrived);
    assert!(bulk as usize <= R2T_BYTES_MIXED && world.longest as usize <= H2C_PIECE_MAX.min(SEND_AHEAD_MIXED));
    // One after the other, as they complete.
    for done in 0..4 {
        assert_eq!(world.arrived.len(), done + 1);
        let (cid, bytes) = world.arrived[done];
        assert_eq!(bytes, WRITE_BYTES);
        world.complete(cid);
        world.run();
    }
    assert_eq!(world.engine.in_flight(), 0);
}

#[test]
fn large_writes_alone_are_not_throttled() {
    let mut world = World::new();
    world.mix(false);
    for _ in 0..4 {
        world.write();
    }
    world.run();
    assert_eq!(world.arrived.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>(), [WRITE_BYTES; 4]);
}
