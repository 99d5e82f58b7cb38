//! The host's end of a queue over NVMe/RDMA. Each command has memory of its own, with a key that
//! the controller may invalidate by chance; some have their data described by a list; receives are
//! posted late now and then.

use std::collections::BTreeMap;

use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Cid, ControllerId, QueueId, Sgl, Sqe};
use ebof_rdma::Remote;
use ebof_rdma::capsule::COMMAND_BYTES;
use ebof_rdma::host::{CommandData, Connection, ConnectionConfig, FinishedCommand};
use ebof_region::Buffer;
use ebof_verbs::{Attributes, Connecting, Event, Handshake, QueuePair, WorkCompletion};
use zerocopy::IntoBytes as _;

use super::{Command, CompletedCommand, Lost};
use crate::random::Random;

/// The most data in a capsule.
const IN_CAPSULE_MAX: usize = 4096;
/// Descriptors of a list, at most.
const LIST_MAX: u64 = 4;

/// An NVMe/RDMA connection over a simulated network.
#[derive(Debug)]
pub struct RdmaWire {
    stage: ConnectionStage,
    core: Connection,
    random: Random,
    entries: usize,
    /// The controller has accepted.
    is_ready: bool,
    is_over: bool,
    /// Data up to so many bytes go into the capsule.
    in_capsule_bytes: usize,
    /// RDMA READs that this end serves at a time.
    reads: u8,
    /// The controller may invalidate keys.
    invalidates: bool,
    /// Memory of commands under way, and how many bytes of it are asked for.
    memory: BTreeMap<u16, (Buffer, usize)>,
    /// By send slot, the command in it.
    sent: BTreeMap<u32, Cid>,
    /// Receives that are not posted yet.
    receives: Vec<u32>,
}

#[derive(Debug)]
enum ConnectionStage {
    Resolving(Connecting),
    Open(QueuePair),
    Gone,
}

impl RdmaWire {
    pub(super) fn new(connecting: Connecting, queue: u16, entries: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let queue_entries = u16::try_from(entries).unwrap_or(u16::MAX);
        let config = ConnectionConfig { queue: QueueId(queue), entries: queue_entries, cntlid: ControllerId(0xffff) };
        Self {
            stage: ConnectionStage::Resolving(connecting),
            core: Connection::new(config),
            entries,
            is_ready: false,
            is_over: false,
            in_capsule_bytes: random.weighted(&[(1, 0), (1, 1024), (1, IN_CAPSULE_MAX)]),
            reads: random.weighted(&[(1, 1), (1, 4), (1, 128)]),
            invalidates: false,
            memory: BTreeMap::new(),
            sent: BTreeMap::new(),
            receives: Vec::new(),
            random,
        }
    }

    /// Whether commands can be sent.
    pub(super) fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Whether it has something to do although nothing comes.
    pub(super) fn is_busy(&self) -> bool {
        !self.receives.is_empty()
    }

    pub(super) fn submit(&mut self, command: Command) -> Result<(), Lost> {
        let Command { mut sqe, data, read_bytes } = command;
        let ConnectionStage::Open(pair) = &mut self.stage else { return Err(Lost::Closed) };
        let Some(slot) = pair.take_send_slot() else { return Err(Lost::Closed) };
        let cid = sqe.cid();
        let bytes = if let Some(data) = data.as_ref().filter(|data| data.len() <= self.in_capsule_bytes) {
            self.core.send_command(&mut sqe, CommandData::InCapsule { payload: data }, pair.send_slot(slot))
        } else if data.is_none() && read_bytes == 0 {
            self.core.send_command(&mut sqe, CommandData::None, pair.send_slot(slot))
        } else {
            let read = usize::try_from(read_bytes).unwrap_or_default();
            let mut buffer = Buffer::zeroed(data.as_ref().map_or(read, |data| data.len()).max(1));
            if let Some(data) = &data {
                buffer.as_mut_slice()[..data.len()].copy_from_slice(data);
            }
            let length = data.as_ref().map_or(read_bytes, |data| u32::try_from(data.len()).unwrap_or(u32::MAX));
            let key = pair.remote_key(buffer.region()).map_err(|error| Lost::Wrong(error.to_string()))?;
            let remote = Remote { address: buffer.region().address().addr() as u64, key };
            let invalidate = self.invalidates && length > 0 && self.random.percent(50);
            let keyed = CommandData::Keyed { remote, length, invalidate };
            let bytes = self.core.send_command(&mut sqe, keyed, pair.send_slot(slot));
            self.memory.insert(cid.0, (buffer, read));
            if length > 1 && self.random.percent(30) {
                let count = 1 + u32::try_from(self.random.below(LIST_MAX)).unwrap_or_default();
                make_list(sqe, (remote, length, invalidate), count, pair.send_slot(slot))
            } else {
                bytes
            }
        };
        pair.post_send(slot, u32::try_from(bytes).unwrap_or(u32::MAX), None);
        self.sent.insert(slot, cid);
        Ok(())
    }

    pub(super) fn poll(&mut self) -> Result<Vec<CompletedCommand>, Lost> {
        if self.is_over {
            return Err(Lost::Closed);
        }
        let mut ended = Vec::new();
        self.open();
        if matches!(self.stage, ConnectionStage::Gone) {
            self.is_over = true;
        }
        while let ConnectionStage::Open(pair) = &mut self.stage
            && !self.is_over
            && let Some(completion) = pair.poll().map_err(|error| Lost::Wrong(error.to_string()))?
        {
            let finished = match completion {
                WorkCompletion::Received { slot, length, invalidated } => {
                    let length = usize::try_from(length).unwrap_or_default();
                    let capsule = pair.received(slot).get(..length).unwrap_or_default();
                    let finished = self.core.receive(capsule, invalidated);
                    self.receives.push(slot);
                    finished.map_err(|error| Lost::Wrong(error.to_string()))?
                }
                WorkCompletion::Sent { slot } => self.sent.remove(&slot).and_then(|cid| self.core.on_sent(cid)),
                WorkCompletion::Done { .. } => None,
                WorkCompletion::Failed { .. } => {
                    self.is_over = true;
                    None
                }
            };
            if let Some(FinishedCommand { cqe, .. }) = finished {
                let data = self.memory.remove(&cqe.cid().0);
                let data = data.map(|(buffer, read)| buffer.as_slice()[..read].to_vec()).unwrap_or_default();
                ended.push(CompletedCommand { cqe, data });
            }
        }
        self.take_events()?;
        self.post();
        if self.is_over && ended.is_empty() { Err(Lost::Closed) } else { Ok(ended) }
    }

    /// Asks the target when it is found.
    fn open(&mut self) {
        let ConnectionStage::Resolving(connecting) = &mut self.stage else { return };
        match connecting.poll() {
            Ok(false) => return,
            Ok(true) => {}
            Err(_) => return self.stage = ConnectionStage::Gone,
        }
        let ConnectionStage::Resolving(connecting) = std::mem::replace(&mut self.stage, ConnectionStage::Gone) else {
            return;
        };
        if let Some(device) = connecting.device() {
            self.invalidates = device.region_invalidation;
            self.reads = self.reads.min(device.responder_resources);
        }
        let attributes = Attributes {
            receives: self.core.receives(),
            receive_bytes: Connection::RECEIVE_BYTES,
            sends: u32::try_from(self.entries).unwrap_or(u32::MAX),
            send_bytes: COMMAND_BYTES + u32::try_from(IN_CAPSULE_MAX).unwrap_or_default(),
            ..Attributes::default()
        };
        let Ok(mut pair) = connecting.open(&attributes) else { return };
        let handshake = Handshake {
            private_data: &self.core.request(),
            responder_resources: self.reads,
            initiator_depth: 0,
            retry_count: 7,
            rnr_retry_count: 7,
        };
        if pair.connect(&handshake).is_ok() {
            self.stage = ConnectionStage::Open(pair);
        }
    }

    fn take_events(&mut self) -> Result<(), Lost> {
        let ConnectionStage::Open(pair) = &mut self.stage else { return Ok(()) };
        while let Some(event) = pair.poll_event().map_err(|error| Lost::Wrong(error.to_string()))? {
            match event {
                Event::Established { private_data, .. } => {
                    let accepted = self.core.on_accepted(&private_data);
                    let accepted = accepted.map_err(|malformed| Lost::Wrong(malformed.to_string()))?;
                    if usize::from(accepted.commands) < self.entries {
                        return Err(Lost::Wrong(format!("{} commands of {}", accepted.commands, self.entries)));
                    }
                    self.is_ready = true;
                }
                Event::AddressChanged => {}
                Event::Fatal(_)
                | Event::Rejected { .. }
                | Event::Unreachable(_)
                | Event::Disconnected
                | Event::DeviceRemoved => self.is_over = true,
            }
        }
        Ok(())
    }

    /// Posts what there is to post; some receives later.
    fn post(&mut self) {
        let ConnectionStage::Open(pair) = &mut self.stage else { return };
        for slot in std::mem::take(&mut self.receives) {
            if self.random.percent(20) {
                self.receives.push(slot);
            } else {
                pair.post_receive(slot);
            }
        }
        if self.is_ready || pair.unflushed() > 0 {
            self.is_over |= pair.flush().is_err();
        }
    }
}

/// Has the capsule describe the command's data by a list of so many descriptors, of which one is
/// empty.
fn make_list(mut sqe: Sqe, data: (Remote, u32, bool), count: u32, capsule: &mut [u8]) -> usize {
    let (Remote { address, key }, length, invalidate) = data;
    let piece = length.div_ceil(count);
    let mut pieces: Vec<(u32, u32)> =
        (0..count).map(|at| (at * piece).min(length)).map(|at| (at, piece.min(length - at))).collect();
    pieces.push((0, 0));
    let bytes = pieces.len() * size_of::<SglDescriptor>();
    sqe.dptr = SglDescriptor::encode(Sgl::LastSegment { offset: 0, length: u32::try_from(bytes).unwrap_or(u32::MAX) });
    let (command, list) = capsule.split_at_mut(size_of::<Sqe>());
    command.copy_from_slice(sqe.as_bytes());
    for ((at, length), to) in pieces.into_iter().zip(list.chunks_mut(size_of::<SglDescriptor>())) {
        // One key for all of them, which goes with the first.
        let sgl = Sgl::Keyed { address: address + u64::from(at), length, key, invalidate: invalidate && at == 0 };
        to.copy_from_slice(SglDescriptor::encode(sgl).as_bytes());
    }
    command.len() + bytes
}
