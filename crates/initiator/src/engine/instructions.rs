//! The engine's cases for `cargo xtask instructions`: commands from submit to completion over a
//! socket or a queue pair whose other end is in the same thread, so that counts are reproducible.
//! System calls are not counted, nor are adapters.

mod rdma;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use ebof_clock::Clock;
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Cid, Cqe, Nsid, Sqe, Status};
use ebof_tcp::controller;

use super::Engine;
use super::pair::pair;
use crate::command::data::{AdminData, Data, IoBuffer};

/// Commands per call of a case: `xtask` divides by it.
const BATCH: u16 = 100;
/// Calls of each case.
const ROUNDS: usize = 20;
/// Data of one command, bytes. With more, the C library's copying would be counted.
const BYTES: u16 = 512;

struct World {
    engine: Engine<Vec<u8>>,
    controller: controller::Connection,
    socket: UnixStream,
    input: Vec<u8>,
    out: Vec<u8>,
    buffers: Vec<Vec<u8>>,
}

impl World {
    fn new() -> Self {
        let (engine, controller, socket) = pair(4, &Clock::system());
        let buffers = (0..BATCH).map(|_| vec![0; BYTES.into()]).collect();
        Self { engine, controller, socket, input: vec![0; 1 << 20], out: Vec::new(), buffers }
    }

    /// The controller: receives all that was sent and completes it.
    fn answer(&mut self) {
        let received = self.socket.read(&mut self.input).unwrap();
        let mut input = &self.input[..received];
        self.out.clear();
        while let Some(event) = self.controller.poll_event(&mut input).unwrap() {
            match event {
                controller::Event::Command { sqe, .. } => {
                    if sqe.opcode == nvm::READ {
                        self.controller.send_data_header(sqe.cid(), 0, BYTES.into(), true, false, &mut self.out);
                        self.out.resize(self.out.len() + usize::from(BYTES), 7);
                    } else {
                        self.controller.take_in_capsule(&mut input).unwrap();
                    }
                    let cqe = Cqe::new(Cid(sqe.cid.get()), Status::SUCCESS);
                    self.controller.send_response(&cqe, &mut self.out);
                }
                other => panic!("{other:?}"),
            }
        }
        self.socket.write_all(&self.out).unwrap();
    }

    fn round(&mut self, opcode: u8) {
        let sqe = |block: u16| BlockRange::new(block.into(), 1).encode(opcode, Nsid(1));
        let commands: Vec<Sqe> = (0..BATCH).map(sqe).collect();
        if opcode == nvm::READ {
            case_engine_submit_read(&mut self.engine, &commands, &mut self.buffers);
        } else {
            case_engine_submit_write(&mut self.engine, &commands, &mut self.buffers);
        }
        self.answer();
        if opcode == nvm::READ {
            case_engine_complete_read(&mut self.engine, &mut self.buffers);
        } else {
            case_engine_complete_write(&mut self.engine, &mut self.buffers);
        }
        assert_eq!(self.buffers.len(), usize::from(BATCH));
    }
}

/// Keeps cases apart: the compiler merges functions with the same code.
#[inline(always)]
fn unmerged(line: u32) {
    std::hint::black_box(line);
}

#[inline(never)]
fn case_engine_submit_read(engine: &mut Engine<Vec<u8>>, commands: &[Sqe], buffers: &mut Vec<Vec<u8>>) {
    unmerged(line!());
    for (sqe, buffer) in commands.iter().zip(buffers.drain(..)) {
        engine.submit(*sqe, Data::ToHost(buffer), 1, 30_000).unwrap();
    }
    engine.flush(&AdminData::None).unwrap();
}

#[inline(never)]
fn case_engine_submit_write(engine: &mut Engine<Vec<u8>>, commands: &[Sqe], buffers: &mut Vec<Vec<u8>>) {
    unmerged(line!());
    for (sqe, buffer) in commands.iter().zip(buffers.drain(..)) {
        engine.submit(*sqe, Data::FromHost(buffer), 1, 30_000).unwrap();
    }
    engine.flush(&AdminData::None).unwrap();
}

#[inline(never)]
fn case_engine_complete_read(engine: &mut Engine<Vec<u8>>, buffers: &mut Vec<Vec<u8>>) {
    unmerged(line!());
    complete(engine, buffers);
}

#[inline(never)]
fn case_engine_complete_write(engine: &mut Engine<Vec<u8>>, buffers: &mut Vec<Vec<u8>>) {
    unmerged(line!());
    complete(engine, buffers);
}

#[inline(always)]
fn complete<B: IoBuffer>(engine: &mut Engine<B>, buffers: &mut Vec<B>) {
    engine.receive(&mut AdminData::None).unwrap();
    while let Some(completion) = engine.pop() {
        assert!(completion.result.unwrap().status().is_success());
        buffers.push(completion.data.into_buffer().unwrap());
    }
}

#[test]
fn cases() {
    let mut world = World::new();
    for _ in 0..ROUNDS {
        world.round(nvm::READ);
        world.round(nvm::WRITE);
    }
    rdma::cases();
}
