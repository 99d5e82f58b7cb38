//! Hosts for the tests of a reactor: bytes on a non-blocking socket.
#![expect(clippy::cast_possible_truncation, reason = "the sizes of tests are small")]

use std::io::{ErrorKind, Read, Write};

use ebof_nvme::connect::{Connect, ConnectData, Property};
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::property::{Cc, offset};
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Cqe, Nqn, Nsid, QueueId, Sgl, Sqe, Status};
use socket2::Socket;
use zerocopy::{FromBytes, IntoBytes};

use super::Rig;
use crate::link::Notifier;

/// Entries of the I/O queues, and
const ENTRIES: u32 = 128;

/// the commands that they hold.
pub(super) const DEPTH: usize = ENTRIES as usize - 1;

/// Size of the namespaces, bytes: all commands are within it.
const NAMESPACE_BYTES: u64 = 64 << 20;

/// How the commands of a host move their data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Read,
    InCapsule,
    R2t,
}

/// The load of a host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) way: Way,
    /// Bytes per command.
    pub(super) bytes: u32,
    /// Commands outstanding at all times.
    pub(super) depth: usize,
    /// Whether it reads responses.
    pub(super) listens: bool,
}

impl Load {
    pub(super) fn reads(bytes: u32, depth: usize) -> Self {
        Self { way: Way::Read, bytes, depth, listens: true }
    }

    pub(super) fn writes(bytes: u32, depth: usize) -> Self {
        Self { way: if bytes <= 8192 { Way::InCapsule } else { Way::R2t }, ..Self::reads(bytes, depth) }
    }

    pub(super) fn writes_by_r2t(bytes: u32, depth: usize) -> Self {
        Self { way: Way::R2t, ..Self::reads(bytes, depth) }
    }

    /// Requests as much as it can, and reads nothing.
    pub(super) fn mute(bytes: u32) -> Self {
        Self { listens: false, ..Self::reads(bytes, usize::MAX) }
    }
}

/// The results of a host.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    pub(super) commands: u64,
    /// Of these, refused or failed.
    pub(super) failed: u64,
    /// Bytes sent and received.
    bytes: u64,
}

/// One connection.
pub(super) struct Host {
    socket: Socket,
    /// Where the reactor has the connection.
    index: usize,
    pub(super) load: Load,
    pub(super) count: Count,
    pub(super) outstanding: usize,
    /// Status of the last completion.
    pub(super) last: Status,
    next: u64,
    /// Not sent yet.
    out: Vec<u8>,
    /// Received, not parsed yet.
    input: Vec<u8>,
    scratch: Vec<u8>,
}

pub(super) fn capsule(mut sqe: Sqe, cid: u16, sgl: Sgl, data: &[u8]) -> Vec<u8> {
    sqe.cid = cid.into();
    if sgl != Sgl::None {
        sqe.dptr = SglDescriptor::encode(sgl);
    }
    let mut pdu = vec![4, 0, 72, if data.is_empty() { 0 } else { 72 }];
    pdu.extend_from_slice(&(72 + data.len() as u32).to_le_bytes());
    pdu.extend_from_slice(sqe.as_bytes());
    pdu.extend_from_slice(data);
    pdu
}

/// The data that an R2T requests.
pub(super) fn h2c_data(r2t: &[u8], data: &[u8]) -> Vec<u8> {
    // H2CData with LAST: CCCID and TTAG as in the R2T, DATAO, DATAL.
    let mut pdu = vec![6, 4, 24, 24];
    pdu.extend_from_slice(&(24 + data.len() as u32).to_le_bytes());
    pdu.extend_from_slice(&r2t[8..20]);
    pdu.extend_from_slice(&[0; 4]);
    pdu.extend_from_slice(data);
    pdu
}

fn connect(subsystem: &str, queue: u16, entries: u32, controller: u16) -> Vec<u8> {
    let kato_ms = 0;
    let sqe = Connect { recfmt: 0, qid: QueueId(queue), entries, cattr: 0, kato_ms }.encode();
    let mut data = ConnectData::zeroed();
    data.hostid = [7; 16];
    data.cntlid = controller.into();
    data.subnqn = Nqn::parse(subsystem).unwrap().to_field();
    data.hostnqn = Nqn::parse("nqn.2014-08.org.example:host").unwrap().to_field();
    capsule(sqe, 1, Sgl::InCapsule { offset: 0, length: 1024 }, data.as_bytes())
}

impl Host {
    /// A host with a controller of its own; returns its I/O queue. The Admin Queue is idle, and
    /// kept open.
    pub(super) fn connect(rig: &mut Rig, load: Load) -> (Self, Self) {
        let (admin, controller) = Self::admin(rig, load);
        let mut queue = Self::initialize(rig, load);
        let connect = connect(&rig.subsystem, 1, ENTRIES, controller);
        queue.call(rig, &connect);
        (admin, queue)
    }

    /// An Admin Queue, and its controller, which is enabled.
    pub(super) fn admin(rig: &mut Rig, load: Load) -> (Self, u16) {
        let mut admin = Self::initialize(rig, load);
        let connect = connect(&rig.subsystem, 0, 32, 0xffff);
        let connected = admin.call(rig, &connect);
        admin.call(rig, &capsule(Property::set(offset::CC, Cc::ENABLE.0), 2, Sgl::None, &[]));
        (admin, connected.dw0.get() as u16)
    }

    /// An I/O queue of this controller, whose Connect is sent.
    pub(super) fn asking(rig: &mut Rig, load: Load, controller: u16) -> Self {
        let mut queue = Self::initialize(rig, load);
        queue.put(&connect(&rig.subsystem, 1, ENTRIES, controller));
        queue
    }

    /// The completions so far.
    pub(super) fn answer(&mut self) -> Option<Vec<u8>> {
        self.receive();
        self.pdu()
    }

    fn initialize(rig: &mut Rig, load: Load) -> Self {
        // Nothing is removed: slots are assigned in order.
        let index = rig.reactor.connections.table.indices().len();
        let socket = rig.socket();
        let count = Count::default();
        let out = Vec::new();
        let input = Vec::new();
        let scratch = vec![0; 2 << 20];
        let mut host =
            Self { socket, index, load, count, outstanding: 0, last: Status::SUCCESS, next: 0, out, input, scratch };
        let mut request = [0; 128];
        (request[0], request[2], request[4]) = (0, 128, 128);
        let response = host.exchange(rig, &request);
        assert_eq!(response[0], 1, "an ICResp");
        host
    }

    /// Where the reactor has the connection.
    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// Its end of the connection.
    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Bytes that the reactor has received from this host and sent to it.
    pub(super) fn moved(&self, rig: &Rig) -> u64 {
        let theirs = rig.reactor.connection_at(self.index).expect("still connected");
        let Notifier::Descriptor(socket) = theirs.link.notifier() else { panic!("a socket is expected") };
        let unread = rustix::io::ioctl_fionread(socket).unwrap();
        self.count.bytes + rustix::io::ioctl_fionread(&self.socket).unwrap() - unread
    }

    pub(super) fn call(&mut self, rig: &mut Rig, command: &[u8]) -> Cqe {
        let response = self.exchange(rig, command);
        assert_eq!(response[0], 5, "a response");
        let cqe = Cqe::read_from_bytes(&response[8..24]).unwrap();
        assert!(cqe.status().is_success(), "{}", cqe.status());
        cqe
    }

    /// Sends `bytes`, which fit into the socket.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        self.send();
        assert!(self.out.is_empty());
    }

    /// Sends `request`. Returns the responses within a few turns.
    pub(super) fn exchange(&mut self, rig: &mut Rig, request: &[u8]) -> Vec<u8> {
        self.out.extend_from_slice(request);
        for _ in 0..20 {
            self.send();
            rig.turn(100);
            self.receive();
            if let Some(pdu) = self.pdu() {
                return pdu;
            }
        }
        panic!("no answer");
    }

    /// Processes received PDUs, responds to R2Ts, and submits more.
    pub(super) fn go_on(&mut self) {
        self.take();
        // More than fits into a socket is not needed.
        while self.outstanding < self.load.depth && self.out.len() < 256 << 10 {
            self.submit();
        }
        self.send();
    }

    /// Processes received PDUs and responds to R2Ts. Returns whether anything is unsent.
    pub(super) fn take(&mut self) -> bool {
        if self.load.listens {
            self.receive();
            while let Some(pdu) = self.pdu() {
                self.on_pdu(&pdu);
            }
        }
        self.send();
        !self.out.is_empty()
    }

    pub(super) fn submit(&mut self) {
        let Load { way, bytes, .. } = self.load;
        let places = NAMESPACE_BYTES / u64::from(bytes);
        let slba = self.next % places * u64::from(bytes) / 512;
        // More identifiers than any sensible depth.
        let cid = (self.next % 4000) as u16;
        self.next += 1;
        self.outstanding += 1;
        let opcode = if way == Way::Read { nvm::READ } else { nvm::WRITE };
        let sqe = BlockRange::new(slba, bytes / 512).encode(opcode, Nsid(1));
        let (sgl, data) = match way {
            Way::Read | Way::R2t => (Sgl::Transport { length: bytes }, &[][..]),
            Way::InCapsule => (Sgl::InCapsule { offset: 0, length: bytes }, &self.scratch[..bytes as usize]),
        };
        self.out.extend_from_slice(&capsule(sqe, cid, sgl, data));
    }

    fn on_pdu(&mut self, pdu: &[u8]) {
        match pdu[0] {
            // A response, or data that replace it (SUCCESS).
            5 => self.complete(Cqe::read_from_bytes(&pdu[8..24]).unwrap().status()),
            7 if pdu[1] & 8 != 0 => self.complete(Status::SUCCESS),
            7 => {}
            9 => {
                let length = u32::from_le_bytes(pdu[16..20].try_into().unwrap());
                self.out.extend_from_slice(&h2c_data(pdu, &self.scratch[..length as usize]));
            }
            other => panic!("a PDU of type {other}"),
        }
    }

    fn complete(&mut self, status: Status) {
        self.last = status;
        self.outstanding -= 1;
        self.count.commands += 1;
        self.count.failed += u64::from(!status.is_success());
    }

    pub(super) fn send(&mut self) {
        while !self.out.is_empty() {
            match (&self.socket).write(&self.out) {
                Ok(sent) => {
                    self.out.drain(..sent);
                    self.count.bytes += sent as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn receive(&mut self) {
        loop {
            match (&self.socket).read(&mut self.scratch) {
                // What it sent before it closed is more useful.
                Ok(0) if !self.input.is_empty() => break,
                Ok(0) => panic!("the target closed the connection"),
                Ok(received) => {
                    self.input.extend_from_slice(&self.scratch[..received]);
                    self.count.bytes += received as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Whether data of the target wait in the socket.
    pub(super) fn has_input(&self) -> bool {
        rustix::io::ioctl_fionread(&self.socket).unwrap() > 0
    }

    fn pdu(&mut self) -> Option<Vec<u8>> {
        let length = u32::from_le_bytes(self.input.get(4..8)?.try_into().unwrap()) as usize;
        (self.input.len() >= length).then(|| self.input.drain(..length).collect())
    }
}
