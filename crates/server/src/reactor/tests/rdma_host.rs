//! A host over a stepped RDMA network: what its adapter and the
//! target's do happens in [`RdmaHost::carry`], between the reactor's turns.
#![expect(clippy::cast_possible_truncation, reason = "the sizes of tests are small")]

use std::net::SocketAddr;

use ebof_backend::Buffer;
use ebof_nvme::connect::{Connect, ConnectData, Property};
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::property::{Cc, offset};
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{ControllerId, Cqe, Nqn, Nsid, QueueId, Sgl, Sqe};
use ebof_rdma::private_data::ConnectRequest;
use ebof_verbs::{Attributes, ConnectOptions, Event, Handshake, Network, QueuePair, WorkCompletion, simulated};
use zerocopy::{FromBytes, IntoBytes};

use super::{NQN, Rig};
use crate::ports::listener::RdmaListener;
use crate::reactor::rdma_admission;

/// Entries of the I/O queue: commands of two rounds, and some more.
const ENTRIES: u16 = 256;

/// RDMA READs that the host answers at a time: a round's.
const READS: u8 = 128;

/// How the commands of a round move their data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RdmaWay {
    /// By RDMA WRITE.
    Read,
    InCapsule,
    /// A write, by RDMA READ.
    Fetched,
}

/// One queue pair.
pub(super) struct RdmaHost {
    network: simulated::Network,
    pair: QueuePair,
    memory: Buffer,
    /// Responses since it was last asked.
    responses: Vec<Cqe>,
}

impl RdmaHost {
    /// The Admin Queue of a controller, which is idle, and an I/O queue.
    pub(super) fn connect(rig: &mut Rig) -> (Self, Self) {
        let network = simulated::Network::stepped(1);
        let listener = RdmaListener::bind(Network::from(network.clone()), ([127, 0, 0, 1], 4420).into()).unwrap();
        let mut admin = Self::ask(rig, &network, &listener, 0, 32);
        let connected = admin.connect_queue(rig, 0, 32, 0xffff);
        admin.call(rig, Property::set(offset::CC, Cc::ENABLE.0), 0);
        let mut queue = Self::ask(rig, &network, &listener, 1, ENTRIES);
        queue.connect_queue(rig, 1, ENTRIES, connected.dw0.get() as u16);
        (admin, queue)
    }

    fn ask(rig: &mut Rig, network: &simulated::Network, listener: &RdmaListener, queue: u16, entries: u16) -> Self {
        let to: SocketAddr = listener.address();
        let mut connecting = Network::from(network.clone()).connect(to, None, &ConnectOptions::default()).unwrap();
        while network.step() {}
        assert!(connecting.poll().unwrap());
        let attributes = Attributes {
            receives: entries.into(),
            receive_bytes: 16,
            sends: entries.into(),
            send_bytes: 64 + 4096,
            operations: 0,
            ..Attributes::default()
        };
        let mut pair = connecting.open(&attributes).unwrap();
        let request = ConnectRequest {
            qid: QueueId(queue),
            host_receives: entries,
            entries: entries.into(),
            cntlid: ControllerId(0xffff),
        };
        let handshake = Handshake {
            private_data: &request.encode(),
            responder_resources: READS,
            initiator_depth: 0,
            retry_count: 7,
            rnr_retry_count: 7,
        };
        pair.connect(&handshake).unwrap();
        let memory = Buffer::zeroed(1 << 20);
        let mut host = Self { network: network.clone(), pair, memory, responses: Vec::new() };
        host.carry();
        rdma_admission::accept_some(&rig.reactor.shared, listener, &rig.port).unwrap();
        host.carry();
        assert!(matches!(host.pair.poll_event().unwrap(), Some(Event::Established { .. })));
        host
    }

    /// Ends, and the target is told.
    pub(super) fn leave(self) {
        let network = self.network.clone();
        drop(self);
        while network.step() {}
    }

    /// The adapters do everything that there is to do.
    pub(super) fn carry(&mut self) {
        while self.network.step() {}
    }

    fn connect_queue(&mut self, rig: &mut Rig, queue: u16, entries: u16, controller: u16) -> Cqe {
        let sqe = Connect { recfmt: 0, qid: QueueId(queue), entries: entries.into(), cattr: 0, kato_ms: 0 }.encode();
        let mut data = ConnectData::zeroed();
        data.hostid = [7; 16];
        data.cntlid = controller.into();
        data.subnqn = Nqn::parse(NQN).unwrap().to_field();
        data.hostnqn = Nqn::parse("nqn.2014-08.org.example:host").unwrap().to_field();
        self.memory.as_mut_slice()[..1024].copy_from_slice(data.as_bytes());
        self.call(rig, sqe, 1024)
    }

    fn call(&mut self, rig: &mut Rig, mut sqe: Sqe, length: u32) -> Cqe {
        sqe.dptr = self.keyed(0, length);
        self.post(&sqe, &[]);
        self.pair.flush().unwrap();
        for _ in 0..20 {
            self.carry();
            rig.turn(20);
        }
        self.carry();
        self.take();
        let cqe = self.responses.pop().expect("an answer");
        assert!(cqe.status().is_success(), "{}", cqe.status());
        cqe
    }

    fn keyed(&mut self, offset: u64, length: u32) -> SglDescriptor {
        let key = self.pair.remote_key(self.memory.region()).unwrap();
        let address = self.memory.region().address() as u64 + offset;
        SglDescriptor::encode(Sgl::Keyed { address, length, key, invalidate: false })
    }

    fn post(&mut self, sqe: &Sqe, data: &[u8]) {
        let slot = self.pair.take_send_slot().unwrap();
        let capsule = self.pair.send_slot(slot);
        capsule[..64].copy_from_slice(sqe.as_bytes());
        capsule[64..][..data.len()].copy_from_slice(data);
        self.pair.post_send(slot, 64 + data.len() as u32, None);
    }

    /// Sends `count` commands of `bytes` each.
    pub(super) fn submit(&mut self, way: RdmaWay, count: usize, bytes: u32) {
        let data = vec![0x5a; bytes as usize];
        for number in 0..count as u16 {
            let opcode = if way == RdmaWay::Read { nvm::READ } else { nvm::WRITE };
            let blocks = bytes / 512;
            let mut sqe = BlockRange::new(u64::from(number) * u64::from(blocks), blocks).encode(opcode, Nsid(1));
            sqe.cid = number.into();
            if way == RdmaWay::InCapsule {
                sqe.dptr = SglDescriptor::encode(Sgl::InCapsule { offset: 0, length: bytes });
                self.post(&sqe, &data);
            } else {
                sqe.dptr = self.keyed(u64::from(number) * u64::from(bytes), bytes);
                self.post(&sqe, &[]);
            }
        }
        self.pair.flush().unwrap();
    }

    pub(super) fn network(&self) -> simulated::Network {
        self.network.clone()
    }

    /// How many responses have come, of a connection that has ended.
    pub(super) fn answered_before_end(&mut self) -> usize {
        let mut answered = 0;
        while let Some(completion) = self.pair.poll().unwrap() {
            answered += usize::from(matches!(completion, WorkCompletion::Received { .. }));
        }
        answered
    }

    /// Sends what is too short for a command, which ends the connection.
    pub(super) fn submit_nonsense(&mut self) {
        let slot = self.pair.take_send_slot().unwrap();
        self.pair.post_send(slot, 10, None);
        self.pair.flush().unwrap();
    }

    /// Takes what has come. Returns how many responses that were.
    pub(super) fn take(&mut self) -> usize {
        self.responses.clear();
        while let Some(completion) = self.pair.poll().unwrap() {
            match completion {
                WorkCompletion::Received { slot, .. } => {
                    self.responses.push(Cqe::read_from_bytes(&self.pair.received(slot)[..16]).unwrap());
                    self.pair.post_receive(slot);
                }
                WorkCompletion::Sent { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        self.pair.flush().unwrap();
        assert!(self.responses.iter().all(|cqe| cqe.status().is_success()), "{:?}", self.responses);
        self.responses.len()
    }
}
