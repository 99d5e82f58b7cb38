//! A controller that reads no more than its receive buffer holds, and responds at any time.

use std::io::{Read, Write};
use std::net::TcpStream;

use ebof_clock::Clock;
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Cqe, Nsid, Status};
use ebof_tcp::controller;
use socket2::{Domain, Protocol, Socket, Type};

use super::*;
use crate::command::data::{AdminData, Completion, Data};
use crate::engine::Engine;
use crate::engine::pair::{initialize, tcp};
use crate::wait::Time;

const TIMEOUT_MS: u64 = 1000;

struct World {
    engine: Engine<Vec<u8>>,
    controller: controller::Connection,
    socket: TcpStream,
}

impl World {
    /// One write, all of it handed to the system and little of it received; `pinned` without a
    /// copy. The controller has answered it.
    fn answered_early(bytes: usize, pinned: bool) -> Self {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        listener.set_recv_buffer_size(4096).unwrap();
        listener.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
        listener.listen(1).unwrap();
        let ours = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        ours.set_send_buffer_size(1 << 20).unwrap();
        ebof_pinned::enable(&ours).unwrap();
        ours.connect(&listener.local_addr().unwrap()).unwrap();
        ours.set_nonblocking(true).unwrap();
        let theirs: TcpStream = listener.accept().unwrap().0.into();
        let (mut engine, controller, socket) = initialize(1, &Clock::system(), ours.into(), theirs);
        if pinned {
            tcp(&mut engine).enable_zerocopy(4096, u32::MAX);
        }
        let blocks = u32::try_from(bytes / 512).unwrap();
        let sqe = BlockRange::new(0, blocks).encode(nvm::WRITE, Nsid(1));
        engine.submit(sqe, Data::FromHost(vec![0x5a; bytes]), 7, TIMEOUT_MS).unwrap();
        let mut world = Self { engine, controller, socket };
        world.engine.flush(&AdminData::None).unwrap();
        let mut capsule = [0; 72];
        world.socket.read_exact(&mut capsule).unwrap();
        let event = world.controller.poll_event(&mut &capsule[..]).unwrap();
        let Some(controller::Event::Command { sqe, in_capsule }) = event else { panic!("{event:?}") };
        let mut out = Vec::new();
        if in_capsule == 0 {
            world.controller.request_data(sqe.cid(), u32::try_from(bytes).unwrap(), &mut out).unwrap();
            world.socket.write_all(&out).unwrap();
            out.clear();
            while tcp(&mut world.engine).bulk.under_way() == 0 {
                world.engine.receive(&mut AdminData::None).unwrap();
            }
        }
        assert!(!world.engine.has_unsent() && !world.engine.is_blocked(), "all of it is in the socket");
        world.controller.send_response(&Cqe::new(sqe.cid(), Status::SUCCESS), &mut out);
        world.socket.write_all(&out).unwrap();
        world
    }

    /// The write's completion, after its response has arrived.
    fn end(&mut self) -> Option<Completion<Vec<u8>>> {
        while self.engine.slots().outstanding_of(7).next().is_some() {
            self.engine.receive(&mut AdminData::None).unwrap();
        }
        self.engine.pop()
    }

    fn is_pinning(&mut self) -> bool {
        tcp(&mut self.engine).zerocopy.pinned.as_ref().unwrap().is_waiting()
    }
}

/// The data of the write at the controller, until `bytes` have arrived or the connection ends.
fn take(socket: &mut TcpStream, in_capsule: bool, bytes: usize) -> Vec<u8> {
    let header = if in_capsule { 0 } else { 24 };
    let mut got = Vec::new();
    let mut chunk = vec![0; 2000];
    while got.len() < header + bytes {
        match socket.read(&mut chunk) {
            Ok(length) if length > 0 => got.extend_from_slice(&chunk[..length]),
            _ => break,
        }
    }
    got.split_off(header.min(got.len()))
}

#[test]
fn a_buffer_is_returned_only_when_its_bytes_are_acknowledged() {
    // No more than needed: with so little room at the receiver, TCP takes its time.
    for bytes in [8192, 32 << 10] {
        // With a copy it is returned immediately: there is nothing to wait for.
        assert!(World::answered_early(bytes, false).end().is_some());
        let mut world = World::answered_early(bytes, true);
        assert!(world.end().is_none(), "the kernel still reads the buffer");
        assert_eq!(world.engine.in_flight(), 1);
        let mut socket = world.socket.try_clone().unwrap();
        let reader = std::thread::spawn(move || take(&mut socket, bytes == 8192, bytes));
        let completion = loop {
            world.engine.receive(&mut AdminData::None).unwrap();
            if let Some(completion) = world.engine.pop() {
                break completion;
            }
        };
        assert!(completion.result.unwrap().status().is_success());
        // Changes by the owner are not sent.
        completion.data.into_buffer().unwrap().fill(0xee);
        assert!(reader.join().unwrap() == [0x5a].repeat(bytes), "bytes differ");
        assert_eq!(world.engine.in_flight(), 0);
    }
}

#[test]
fn an_aborted_connection_sends_nothing_of_returned_buffers() {
    let bytes = 128 << 10;
    let mut world = World::answered_early(bytes, true);
    assert!(world.end().is_none() && world.is_pinning());
    world.engine.lose(&Loss::Requested);
    let completion = world.engine.pop().unwrap();
    // The controller's response had arrived.
    assert!(completion.result.unwrap().status().is_success());
    completion.data.into_buffer().unwrap().fill(0xee);
    let got = take(&mut world.socket, false, bytes);
    assert!(got.len() < bytes && got.iter().all(|&byte| byte == 0x5a), "{} bytes", got.len());
}

#[test]
fn a_buffer_that_a_network_card_still_uses_is_not_returned() {
    let mut world = World::answered_early(128 << 10, true);
    assert!(world.end().is_none() && world.is_pinning());
    // One more send of it, which is never reported.
    let link = tcp(&mut world.engine);
    link.zerocopy.pinned.as_mut().unwrap().note_send();
    let slots = world.engine.slots();
    slots.at(0).unsent += 1;
    world.engine.lose(&Loss::Requested);
    let completion = world.engine.pop().unwrap();
    assert!(completion.result.unwrap().status().is_success());
    assert!(completion.data.into_buffer().is_none(), "it may still be read");
}

#[test]
fn a_controller_that_completes_but_acknowledges_nothing_is_lost() {
    let mut world = World::answered_early(128 << 10, true);
    assert!(world.end().is_none());
    let deadline = world.engine.next_deadline_ms();
    assert!(deadline <= Time::new(&Clock::system()).now_ms() + TIMEOUT_MS, "it is waited for, and not for ever");
    let mut expire = |now_ms| world.engine.slots().expire(now_ms, 500, |cid, _| panic!("{cid} is over: no Abort"));
    assert!(!expire(deadline - 1) && !expire(deadline) && !expire(deadline + 499));
    assert!(expire(deadline + 500));
}
