//! The host's end of one queue, over any transport: commands go in, what became of them comes
//! out.

mod rdma;

pub use self::rdma::RdmaWire;

use std::collections::BTreeMap;
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use ebof_loopback::{Breaker, Capsule, HostEnd};
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Cid, Cqe, Sgl, Sqe};
use ebof_sockets::SimulatedStream as _;
use ebof_tcp::Digest;
use ebof_tcp::host::{CommandData, Connection, ConnectionConfig, Event, R2t};

use crate::transport::fabric::Fabric;
use crate::transport::stream::{End, Watch};

/// A command and its data.
#[derive(Clone, Debug)]
pub struct Command {
    /// The command; its data pointer is filled in by the transport.
    pub sqe: Sqe,
    /// Data for the controller.
    pub data: Option<Arc<[u8]>>,
    /// Bytes that the controller is asked for.
    pub read_bytes: u32,
}

/// How a command ended.
#[derive(Clone, Debug)]
pub struct CompletedCommand {
    /// The completion.
    pub cqe: Cqe,
    /// What the controller sent.
    pub data: Vec<u8>,
}

/// Nothing comes from the other end any more, or what came was wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The connection is gone.
    Closed,
    /// The controller broke the transport's rules.
    Wrong(String),
}

/// The host's end of a queue.
#[derive(Debug)]
pub enum Wire {
    /// Over the in-memory transport.
    Loopback(HostEnd, Breaker),
    /// Over NVMe/TCP.
    Tcp(Box<TcpWire>),
    /// Over NVMe/RDMA.
    Rdma(Box<RdmaWire>, RdmaRoute),
}

/// A way over an RDMA network.
#[derive(Clone, Debug)]
pub struct RdmaRoute {
    /// The network.
    pub fabric: Fabric,
    /// The host's address.
    pub from: IpAddr,
}

/// An NVMe/TCP connection over a simulated stream.
#[derive(Debug)]
pub struct TcpWire {
    stream: End,
    watch: Watch,
    core: Connection,
    out: Vec<u8>,
    /// Data of commands under way, in both directions.
    to_controller: BTreeMap<u16, Arc<[u8]>>,
    from_controller: BTreeMap<u16, Vec<u8>>,
    /// The data whose bytes come next.
    placing: Option<(Cid, usize)>,
    /// Data up to so many bytes go into the capsule.
    in_capsule_bytes: usize,
    is_over: bool,
    /// Where bytes arrive; empty while they are decoded.
    input: Vec<u8>,
}

impl Wire {
    /// Over the in-memory transport.
    #[must_use]
    pub fn loopback(end: HostEnd) -> Self {
        let breaker = end.breaker();
        Self::Loopback(end, breaker)
    }

    /// Over NVMe/TCP: says hello.
    #[must_use]
    pub fn tcp(stream: End, watch: Watch, digests: bool, in_capsule_bytes: usize, entries: usize) -> Self {
        let digest = if digests { Digest::Required } else { Digest::Allowed };
        let config = ConnectionConfig { alignment: 4, header_digest: digest, data_digest: digest, r2t_max: 1 };
        let mut core = Connection::new(config);
        core.set_queue_entries(entries);
        let mut out = Vec::new();
        core.send_ic_request(&mut out);
        Self::Tcp(Box::new(TcpWire {
            stream,
            watch,
            core,
            out,
            to_controller: BTreeMap::new(),
            from_controller: BTreeMap::new(),
            placing: None,
            in_capsule_bytes,
            is_over: false,
            input: vec![0; 8192],
        }))
    }

    /// Over NVMe/RDMA, where there is a device for it.
    #[must_use]
    pub fn rdma(way: &RdmaRoute, queue: u16, entries: usize, seed: u64) -> Option<Self> {
        let connecting = way.fabric.connect(way.from)?;
        Some(Self::Rdma(Box::new(RdmaWire::new(connecting, queue, entries, seed)), way.clone()))
    }

    /// Whether commands can be sent.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        match self {
            Self::Loopback(..) => true,
            Self::Rdma(rdma, _) => rdma.is_ready(),
            Self::Tcp(tcp) => tcp.core.initialized().is_some(),
        }
    }

    /// Sends a command.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn submit(&mut self, command: Command) -> Result<(), Lost> {
        match self {
            Self::Loopback(end, _) => {
                let Command { mut sqe, data, read_bytes } = command;
                let length = data.as_ref().map_or(read_bytes, |data| u32::try_from(data.len()).unwrap_or(u32::MAX));
                sqe.dptr = SglDescriptor::encode(Sgl::Transport { length });
                end.submit(Capsule { sqe, data }).map_err(|_| Lost::Closed)
            }
            Self::Tcp(tcp) => {
                tcp.submit(command);
                Ok(())
            }
            Self::Rdma(rdma, _) => rdma.submit(command),
        }
    }

    /// Moves what can be moved; gives the commands that ended.
    ///
    /// # Errors
    /// None will end any more.
    pub fn poll(&mut self) -> Result<Vec<CompletedCommand>, Lost> {
        match self {
            Self::Loopback(end, _) => {
                let mut ended = Vec::new();
                loop {
                    match end.poll() {
                        Ok(Some(completion)) => {
                            ended.push(CompletedCommand { cqe: completion.cqe, data: completion.data });
                        }
                        Ok(None) => return Ok(ended),
                        Err(_) if !ended.is_empty() => return Ok(ended),
                        Err(_) => return Err(Lost::Closed),
                    }
                }
            }
            Self::Tcp(tcp) => tcp.poll(),
            Self::Rdma(rdma, _) => rdma.poll(),
        }
    }

    /// Breaks the connection, where it can be counted after so many bytes. Over RDMA it is one of
    /// the host's.
    pub fn break_after(&self, bytes: u64) {
        match self {
            Self::Loopback(_, breaker) => {
                breaker.sever();
            }
            Self::Tcp(tcp) => tcp.watch.break_after(bytes),
            Self::Rdma(_, way) => way.break_after(0, bytes),
        }
    }

    /// When bytes arrive that are on their way, or there is something to do.
    #[must_use]
    pub fn due(&self, now: Instant) -> Option<Instant> {
        match self {
            Self::Loopback(..) => None,
            Self::Tcp(tcp) => tcp.watch.due(),
            Self::Rdma(rdma, _) => rdma.is_busy().then_some(now),
        }
    }
}

impl RdmaRoute {
    /// Breaks one of the latest connections of the host when about so many bytes more have moved.
    pub fn break_after(&self, connection: usize, bytes: u64) {
        /// What moves with one thing that happens, for the same effect as over other transports.
        const BYTES: u64 = 64;
        self.fabric.break_after(self.from, connection, bytes.div_ceil(BYTES));
    }
}

impl TcpWire {
    fn submit(&mut self, command: Command) {
        let Command { mut sqe, data, read_bytes } = command;
        let cid = sqe.cid().0;
        match data {
            Some(data) if data.len() <= self.in_capsule_bytes => {
                let trailer =
                    self.core.send_command(&mut sqe, CommandData::InCapsule { payload: &data }, &mut self.out);
                self.out.extend_from_slice(&data);
                self.out.extend(trailer.iter().flatten());
            }
            Some(data) => {
                let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
                let trailer = self.core.send_command(&mut sqe, CommandData::Write { length }, &mut self.out);
                self.out.extend(trailer.iter().flatten());
                self.to_controller.insert(cid, data);
            }
            None => {
                let transfer =
                    if read_bytes > 0 { CommandData::Read { length: read_bytes } } else { CommandData::None };
                let trailer = self.core.send_command(&mut sqe, transfer, &mut self.out);
                self.out.extend(trailer.iter().flatten());
                if read_bytes > 0 {
                    let bytes = usize::try_from(read_bytes).unwrap_or_default();
                    self.from_controller.insert(cid, vec![0; bytes]);
                }
            }
        }
    }

    fn poll(&mut self) -> Result<Vec<CompletedCommand>, Lost> {
        if self.is_over {
            return Err(Lost::Closed);
        }
        let mut ended = Vec::new();
        let mut buffer = std::mem::take(&mut self.input);
        loop {
            match self.stream.receive(&mut [IoSliceMut::new(&mut buffer)]) {
                Ok(0) => self.is_over = true,
                Ok(taken) => {
                    let mut input = &buffer[..taken];
                    self.take(&mut input, &mut ended)?;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => self.is_over = true,
            }
            break;
        }
        self.input = buffer;
        while !self.out.is_empty() && !self.is_over {
            match self.stream.send(&[IoSlice::new(&self.out)]) {
                Ok(0) => break,
                Ok(sent) => drop(self.out.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.is_over = true,
            }
        }
        if self.is_over && ended.is_empty() { Err(Lost::Closed) } else { Ok(ended) }
    }

    fn take(&mut self, input: &mut &[u8], ended: &mut Vec<CompletedCommand>) -> Result<(), Lost> {
        loop {
            let event = self.core.poll_event(input).map_err(|error| Lost::Wrong(format!("{error:?}")))?;
            match event {
                Some(Event::Initialized(_)) => {}
                Some(Event::R2t(r2t)) => self.send_data(r2t),
                Some(Event::Data { cid, offset, .. }) => {
                    self.placing = Some((cid, usize::try_from(offset).unwrap_or_default()));
                }
                Some(Event::DataEnd { digest_ok, .. }) => {
                    if !digest_ok {
                        return Err(Lost::Wrong("a data digest does not fit".to_owned()));
                    }
                }
                Some(Event::Completion { cqe, .. }) => {
                    let cid = cqe.cid().0;
                    self.to_controller.remove(&cid);
                    let data = self.from_controller.remove(&cid).unwrap_or_default();
                    ended.push(CompletedCommand { cqe, data });
                }
                Some(Event::TermReceived(term)) => return Err(Lost::Wrong(format!("{term:?}"))),
                None if self.core.data_wanted() > 0 && !input.is_empty() => {
                    let wanted = self.core.data_wanted().min(input.len());
                    let (bytes, rest) = input.split_at(wanted);
                    let Some((cid, at)) = &mut self.placing else {
                        return Err(Lost::Wrong("data of no command".to_owned()));
                    };
                    let place = self.from_controller.get_mut(&cid.0).and_then(|data| data.get_mut(*at..*at + wanted));
                    let Some(place) = place else { return Err(Lost::Wrong("data without a place".to_owned())) };
                    place.copy_from_slice(bytes);
                    *at += wanted;
                    self.core.data_received(bytes);
                    *input = rest;
                }
                None => return Ok(()),
            }
        }
    }

    fn send_data(&mut self, mut r2t: R2t) {
        let Some(data) = self.to_controller.get(&r2t.cid.0).cloned() else { return };
        while r2t.length > 0 {
            let from = usize::try_from(r2t.offset).unwrap_or_default();
            let piece = usize::try_from(self.core.h2c_piece(&r2t)).unwrap_or_default();
            let payload = &data[from..from + piece];
            let trailer = self.core.send_h2c_data(&mut r2t, payload, &mut self.out);
            self.out.extend_from_slice(payload);
            self.out.extend(trailer.iter().flatten());
        }
    }
}
