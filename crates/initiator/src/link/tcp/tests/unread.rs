//! Tests: a controller that receives nothing and answers nevertheless. Command identifiers are
//! predictable.

use std::io::Write;
use std::os::unix::net::UnixStream;

use ebof_clock::Clock;
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Cid, Cqe, Nsid, Sqe, Status};
use ebof_tcp::controller;

use super::super::SEND_AHEAD;
use crate::command::data::{AdminData, Data};
use crate::engine::Engine;
use crate::engine::pair::{pair, tcp};
use crate::error::Loss;

struct World {
    engine: Engine<Vec<u8>>,
    controller: controller::Connection,
    socket: UnixStream,
    /// Commands submitted, which is the user value of the last.
    commands: u64,
}

impl World {
    fn new() -> Self {
        let (engine, controller, socket) = pair(4, &Clock::system());
        Self { engine, controller, socket, commands: 0 }
    }

    /// Submits a write and sends it as far as the socket takes it. Returns its identifier.
    fn write(&mut self, blocks: u32) -> Result<Cid, Loss> {
        let sqe: Sqe = BlockRange::new(0, blocks).encode(nvm::WRITE, Nsid(1));
        self.commands += 1;
        let data = Data::FromHost(vec![1; blocks as usize * 512]);
        self.engine.submit(sqe, data, self.commands, u64::MAX).unwrap();
        self.engine.flush(&AdminData::None)?;
        Ok(self.engine.slots().outstanding_of(self.commands).next().unwrap())
    }

    fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
        self.engine.receive(&mut AdminData::None).unwrap();
    }

    fn complete(&mut self, cid: Cid) {
        let mut out = Vec::new();
        self.controller.send_response(&Cqe::new(cid, Status::INTERNAL_ERROR), &mut out);
        self.send(&out);
        assert!(self.engine.pop().is_some());
    }
}

#[test]
fn what_is_unsent_of_commands_is_bounded_although_they_are_completed() {
    let mut world = World::new();
    for _ in 0..20_000 {
        match world.write(2) {
            Ok(cid) => world.complete(cid),
            Err(loss) => {
                assert_eq!(loss, Loss::Protocol("responses to commands that were not sent".into()));
                return;
            }
        }
    }
    panic!("20 MB are queued");
}

#[test]
fn requests_for_data_of_commands_that_ended_do_not_pile_up() {
    let mut world = World::new();
    let mut most = 0;
    for _ in 0..5000 {
        let has_to_wait = tcp(&mut world.engine).out.queued() >= SEND_AHEAD;
        let length = if has_to_wait { 16 << 10 } else { 1 << 20 };
        let cid = world.write(length / 512).unwrap();
        let mut out = Vec::new();
        world.controller.request_data(cid, length, &mut out).unwrap();
        world.send(&out);
        most = most.max(tcp(&mut world.engine).r2ts.len());
        // R2Ts wait behind data that are queued and not sent.
        if has_to_wait {
            world.complete(cid);
            world.controller.abandon(cid);
        }
    }
    assert!((2..200).contains(&most), "{most}");
}
