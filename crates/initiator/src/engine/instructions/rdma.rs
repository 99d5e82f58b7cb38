//! The cases over RDMA: data lie in a registered region. Between the cases both adapters do
//! everything that there is to do, and so does a controller, which answers and moves no data.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use ebof_clock::Clock;
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{ControllerId, Cqe, Nqn, Nsid, QueueId, Sqe, Status};
use ebof_rdma::private_data::ConnectAccept;
use ebof_region::Buffer;
use ebof_verbs::{Attributes, Handshake, Listener, ListenerEvent, Network, QueuePair, WorkCompletion, simulated};
use zerocopy::{FromBytes, IntoBytes};

use super::{BATCH, ROUNDS, unmerged};
use crate::command::data::{AdminData, Data};
use crate::engine::Engine;
use crate::link::{self, HostLink, Wanted};
use crate::options::Options;
use crate::options::transport::Transport;
use crate::wait::Waiter;

/// Data of one command, bytes.
const BYTES: usize = 4096;
const ENTRIES: u16 = 128;

struct World {
    network: simulated::Network,
    engine: Engine<Buffer>,
    controller: QueuePair,
    buffers: Vec<Buffer>,
}

impl World {
    fn new() -> Self {
        let network = simulated::Network::stepped(1);
        let clock = Clock::system();
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 4420));
        let mut listener = Network::from(network.clone()).listen(address, 1).unwrap();
        let mut options = Options::new(address.ip().to_string(), address.port(), Nqn::discovery());
        options.transport = Transport::QueuePairs(Network::from(network.clone()));
        let waiter = Waiter::stepped(&clock);
        let cancel = waiter.cancel().unwrap();
        let mut tried = options.tried(1);
        let wanted =
            Wanted { queue: QueueId(1), entries: ENTRIES, controller: ControllerId(1), in_capsule: 0, psk: None };
        let mut controller = None;
        let link: HostLink = {
            let mut connecting = pin!(link::connect(&options, wanted, &mut tried, &waiter, &cancel));
            loop {
                if let Poll::Ready(connected) = connecting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    break connected.unwrap().0;
                }
                while network.step() {}
                controller = controller.or_else(|| accept(&mut listener));
            }
        };
        let mut engine = Engine::new(ENTRIES - 1, true, waiter.time.clone());
        engine.attach(link);
        let buffers = (0..BATCH).map(|_| Buffer::zeroed(BYTES)).collect();
        Self { network, engine, controller: controller.unwrap(), buffers }
    }

    /// The adapters do what there is to do, and the controller answers every command.
    fn answer(&mut self) {
        while self.network.step() {}
        while let Some(completion) = self.controller.poll().unwrap() {
            let WorkCompletion::Received { slot, .. } = completion else { continue };
            let sqe = Sqe::read_from_prefix(self.controller.received(slot)).unwrap().0;
            self.controller.post_receive(slot);
            let slot = self.controller.take_send_slot().unwrap();
            let response = Cqe::new(sqe.cid(), Status::SUCCESS);
            self.controller.send_slot(slot).copy_from_slice(response.as_bytes());
            self.controller.post_send(slot, 16, None);
        }
        self.controller.flush().unwrap();
        while self.network.step() {}
    }

    fn round(&mut self, opcode: u8) {
        let sqe = |block: u16| BlockRange::new(u64::from(block) * 8, 8).encode(opcode, Nsid(1));
        let commands: Vec<Sqe> = (0..BATCH).map(sqe).collect();
        if opcode == nvm::READ {
            case_engine_submit_read_over_rdma(&mut self.engine, &commands, &mut self.buffers);
        } else {
            case_engine_submit_write_over_rdma(&mut self.engine, &commands, &mut self.buffers);
        }
        self.answer();
        if opcode == nvm::READ {
            case_engine_complete_read_over_rdma(&mut self.engine, &mut self.buffers);
        } else {
            case_engine_complete_write_over_rdma(&mut self.engine, &mut self.buffers);
        }
        assert_eq!(self.buffers.len(), usize::from(BATCH));
    }
}

fn accept(listener: &mut Listener) -> Option<QueuePair> {
    let Some(ListenerEvent::Request(request)) = listener.poll().unwrap() else { return None };
    let attributes = Attributes {
        receives: ENTRIES.into(),
        receive_bytes: 64,
        sends: ENTRIES.into(),
        send_bytes: 16,
        ..Attributes::default()
    };
    let mut pair = request.open(&attributes).unwrap();
    let reply = ConnectAccept { controller_receives: ENTRIES }.encode();
    let handshake = Handshake {
        private_data: &reply,
        responder_resources: 0,
        initiator_depth: 4,
        retry_count: 7,
        rnr_retry_count: 7,
    };
    pair.accept(&handshake).unwrap();
    Some(pair)
}

#[inline(never)]
fn case_engine_submit_read_over_rdma(engine: &mut Engine<Buffer>, commands: &[Sqe], buffers: &mut Vec<Buffer>) {
    unmerged(line!());
    for (sqe, buffer) in commands.iter().zip(buffers.drain(..)) {
        engine.submit(*sqe, Data::ToHost(buffer), 1, 30_000).unwrap();
    }
    engine.flush(&AdminData::None).unwrap();
}

#[inline(never)]
fn case_engine_submit_write_over_rdma(engine: &mut Engine<Buffer>, commands: &[Sqe], buffers: &mut Vec<Buffer>) {
    unmerged(line!());
    for (sqe, buffer) in commands.iter().zip(buffers.drain(..)) {
        engine.submit(*sqe, Data::FromHost(buffer), 1, 30_000).unwrap();
    }
    engine.flush(&AdminData::None).unwrap();
}

#[inline(never)]
fn case_engine_complete_read_over_rdma(engine: &mut Engine<Buffer>, buffers: &mut Vec<Buffer>) {
    unmerged(line!());
    super::complete(engine, buffers);
}

#[inline(never)]
fn case_engine_complete_write_over_rdma(engine: &mut Engine<Buffer>, buffers: &mut Vec<Buffer>) {
    unmerged(line!());
    super::complete(engine, buffers);
}

pub(super) fn cases() {
    let mut world = World::new();
    for _ in 0..ROUNDS {
        world.round(nvm::READ);
        world.round(nvm::WRITE);
    }
}
