//! A small target on a loopback socket for tests of the initiator: `ebof_tcp::controller` with a
//! disk in memory, and all the misbehaviour that the tests need. It is deliberately not
//! `ebof-server`, which behaves well.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use ebof_initiator::Options;
use ebof_nvme::connect::{Connect, ConnectData, ConnectResult, Property};
use ebof_nvme::copy::{CopyFormat, CopySource};
use ebof_nvme::identify::{
    Cns, ControllerType, DescriptorWriter, IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, LbaFormat,
    NamespaceIdDescriptor, NamespaceList, NvmController,
};
use ebof_nvme::io::{BlockRange, DsmRange};
use ebof_nvme::log::{ChangedNamespaces, DiscoveryEntry, DiscoveryHeader, GetLogPage, Lid};
use ebof_nvme::opcode::{admin, fabrics, nvm};
use ebof_nvme::property::{Cap, Cc, Csts, Version, offset};
use ebof_nvme::{Cid, Cqe, Nqn, Nsid, QueueId, Sgl, Sqe, Status, Uuid};
use ebof_tcp::Digest;
use ebof_tcp::controller::{Connection, ConnectionConfig, Event};
use zerocopy::{FromBytes, IntoBytes};

pub const NQN: &str = "nqn.2014-08.org.example:drive0";
pub const BLOCK: usize = 512;

/// What the peer does with an I/O command, or with a Keep Alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Serve,
    /// Never respond.
    Ignore,
    /// Close the connection.
    Hangup,
    Fail(Status),
    /// Respond with bytes that are not a PDU.
    Garbage,
    /// Respond twice.
    Twice,
    /// Read: report success, but send only half of the data.
    Half,
    /// Respond to a command that is not outstanding.
    Stray,
    /// RDMA: invalidate a key that is not the command's to invalidate.
    Invalidate,
}

/// The identifiers of a namespace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ids {
    pub nguid: [u8; 16],
    pub eui64: [u8; 8],
    pub uuid: [u8; 16],
}

pub struct Peer {
    pub address: SocketAddr,
    pub shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

pub struct Shared {
    stop: AtomicBool,
    state: Mutex<State>,
}

pub struct State {
    pub config: ConnectionConfig,
    pub disk: Vec<u8>,
    pub namespaces: Vec<u32>,
    pub changed: Vec<u32>,
    pub mdts: u8,
    pub vwc: u8,
    /// By namespace; none if there is none.
    pub ids: HashMap<u32, Ids>,
    /// LBADS of every namespace.
    pub lbads: u8,
    /// NSATTR of every namespace.
    pub nsattr: u8,
    /// Blocks have protection information (type 1), which Compare carries and others do not.
    pub protected: bool,
    /// Refuse namespace identification descriptors.
    pub no_descriptors: bool,
    /// Identify of the NVM command set's controller (CNS 06h).
    pub nvm: NvmController,
    /// Complete these admin commands with success and this many bytes of the data.
    pub short: Option<(u8, usize)>,
    pub in_capsule: u32,
    pub queues: u16,
    /// CAP.MQES, not 0's based.
    pub entries: u32,
    pub kind: ControllerType,
    pub ready: bool,
    /// The response to Connect instead of success: status and result.
    pub connect: Option<(Status, u64)>,
    pub on_io: Box<dyn FnMut(&Sqe) -> Action + Send>,
    pub on_keep_alive: Action,
    /// Admin commands with this opcode are answered when it is `None` again.
    pub held: Option<u8>,
    pub aborts: Vec<(u16, u16)>,
    pub keep_alives: usize,
    pub shutdowns: usize,
    /// How connections of hosts ended: by a close, and by a reset.
    pub ends: (usize, usize),
    /// As many PDUs with data still get a wrong digest.
    pub wrong_digests: u32,
    /// The longest data of one PDU.
    pub longest_data: u32,
    pub connects: Vec<(u16, u32)>,
    pub log: Vec<DiscoveryEntry>,
    /// Refuse all new connections (accept and close).
    pub closed: bool,
    /// Asynchronous events to be sent: dword 0.
    pub events: Vec<u32>,
    /// Sent for every request of an event, without end: dword 0.
    pub endless_event: Option<u32>,
    /// The controller's identifier.
    pub id: u16,
    /// Changes Identify Controller before it is sent.
    pub on_identify: Box<dyn FnMut(&mut IdentifyController) + Send>,
    /// NMIC of every namespace.
    pub nmic: u8,
    /// Log pages by identifier, and how often each was read.
    pub pages: HashMap<u8, Vec<u8>>,
    pub pages_read: HashMap<u8, usize>,
    /// What Cross-Controller Reset is answered with: status and dword 0.
    pub reset: (Status, u64),
    /// How often it was sent.
    pub resets: usize,
    /// Close every connection.
    pub epoch: u64,
    cc: Cc,
}

impl Shared {
    pub fn new() -> Arc<Self> {
        let state = State {
            config: ConnectionConfig {
                in_capsule_bytes: 4096,
                h2c_data_max: 16 << 10,
                alignment: 4,
                header_digest: Digest::Allowed,
                data_digest: Digest::Allowed,
                c2h_success: true,
                r2t_bytes: 32 << 10,
            },
            disk: vec![0; 4096 * BLOCK],
            namespaces: vec![1],
            changed: Vec::new(),
            mdts: 5,
            vwc: 0,
            ids: HashMap::new(),
            lbads: 9,
            nsattr: 0,
            protected: false,
            no_descriptors: false,
            nvm: NvmController::default(),
            short: None,
            in_capsule: 4096,
            queues: 4,
            entries: 1024,
            kind: ControllerType::Io,
            ready: true,
            connect: None,
            on_io: Box::new(|_| Action::Serve),
            on_keep_alive: Action::Serve,
            held: None,
            aborts: Vec::new(),
            keep_alives: 0,
            shutdowns: 0,
            ends: (0, 0),
            wrong_digests: 0,
            longest_data: 0,
            connects: Vec::new(),
            log: Vec::new(),
            closed: false,
            events: Vec::new(),
            endless_event: None,
            id: 7,
            on_identify: Box::new(|_| ()),
            nmic: 0,
            pages: HashMap::new(),
            pages_read: HashMap::new(),
            reset: (Status::INVALID_OPCODE, 0),
            resets: 0,
            epoch: 0,
            cc: Cc(0),
        };
        Arc::new(Self { stop: AtomicBool::new(false), state: Mutex::new(state) })
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Peer {
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Shared::new();
        let acceptor = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        });
        Self { address, shared, acceptor: Some(acceptor) }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap()
    }

    /// Options for this peer: short times, two queues.
    pub fn options(&self) -> Options {
        options(self.address)
    }

    /// Breaks every connection.
    pub fn hang_up(&self) {
        self.state().epoch += 1;
    }
}

pub fn options(address: SocketAddr) -> Options {
    let mut options = Options::new(address.ip().to_string(), address.port(), Nqn::parse(NQN).unwrap());
    options.host_nqn = Nqn::parse("nqn.2014-08.org.example:host").unwrap();
    options.nr_io_queues = 2;
    options.connect_timeout_ms = 2000;
    options.reconnect_delay_ms = 50;
    options.ctrl_loss_tmo = Some(Duration::from_secs(10));
    options
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        drop(TcpStream::connect(self.address));
        drop(self.acceptor.take().map(JoinHandle::join));
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut threads = Vec::new();
    while let Ok((stream, _)) = listener.accept() {
        if shared.stop.load(Ordering::Acquire) {
            break;
        }
        if shared.state.lock().unwrap().closed {
            continue;
        }
        let shared = Arc::clone(shared);
        threads.push(std::thread::spawn(move || Session::new(stream, shared).serve()));
    }
    for thread in threads {
        drop(thread.join());
    }
}

/// One connection.
struct Session {
    stream: TcpStream,
    connection: Connection,
    out: Vec<u8>,
    /// Commands whose data have been requested.
    waiting: HashMap<u16, (Sqe, Vec<u8>)>,
    /// The command whose data are being received.
    current: Cid,
    executor: Executor,
}

/// What a command is answered with, over any transport.
pub enum Answer {
    Response(Cqe),
    /// The first bytes of the data; a response follows.
    Data(Cid, Vec<u8>),
    /// A response that invalidates a key.
    Invalidating(Cqe, u32),
    /// Not a response.
    Garbage,
}

/// The controller's side of one queue.
pub struct Executor {
    shared: Arc<Shared>,
    pub queue: u16,
    pub entries: u32,
    event_requests: Vec<Cid>,
    /// Commands to be answered later: [`State::held`].
    held: Vec<Sqe>,
    epoch: u64,
    pub over: bool,
    pub answers: Vec<Answer>,
}

impl Session {
    fn new(stream: TcpStream, shared: Arc<Shared>) -> Self {
        stream.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
        stream.set_nodelay(true).unwrap();
        let config = shared.state.lock().unwrap().config;
        Self {
            stream,
            connection: Connection::new(config),
            out: Vec::new(),
            waiting: HashMap::new(),
            current: Cid(0),
            executor: Executor::new(shared),
        }
    }

    fn serve(mut self) {
        let mut buffer = vec![0; 64 << 10];
        while !self.executor.over && !self.executor.shared.stop.load(Ordering::Acquire) {
            match self.stream.read(&mut buffer) {
                Ok(0) => {
                    self.executor.shared.state.lock().unwrap().ends.0 += 1;
                    return;
                }
                Ok(read) => self.take(&buffer[..read]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => {
                    self.executor.shared.state.lock().unwrap().ends.1 += 1;
                    return;
                }
            }
            self.executor.send_events();
            self.executor.answer_held();
            self.send_answers();
            if self.executor.shared.state.lock().unwrap().epoch != self.executor.epoch {
                return;
            }
            if self.stream.write_all(&self.out).is_err() {
                return;
            }
            self.out.clear();
        }
    }

    fn take(&mut self, mut input: &[u8]) {
        loop {
            let wanted = self.connection.data_wanted().min(input.len());
            if wanted > 0 {
                // Data come in order: append.
                self.waiting.get_mut(&self.current.0).unwrap().1.extend_from_slice(&input[..wanted]);
                self.connection.data_received(&input[..wanted]);
                input = &input[wanted..];
            }
            let event = match self.connection.poll_event(&mut input) {
                Ok(None) if self.connection.data_wanted() > 0 && !input.is_empty() => continue,
                Ok(None) => return,
                Ok(Some(event)) => event,
                Err(error) => {
                    self.connection.send_term(&error, &mut self.out);
                    drop(self.stream.write_all(&self.out));
                    self.executor.over = true;
                    return;
                }
            };
            match event {
                Event::Initialized(_) => self.connection.send_ic_response(&mut self.out),
                Event::Command { sqe, in_capsule } => {
                    let wanted = if in_capsule > 0 { in_capsule } else { data_from_host(&sqe) };
                    if wanted == 0 {
                        self.executor.execute(sqe, &[]);
                    } else {
                        self.waiting.insert(sqe.cid().0, (sqe, Vec::new()));
                        if in_capsule == 0 {
                            self.connection.request_data(sqe.cid(), wanted, &mut self.out).unwrap();
                        }
                    }
                }
                Event::Data { cid, length, .. } => {
                    self.current = cid;
                    let mut state = self.executor.shared.state.lock().unwrap();
                    state.longest_data = state.longest_data.max(length);
                }
                Event::DataEnd { cid, digest_ok, complete } => {
                    assert!(digest_ok);
                    if complete {
                        let (sqe, data) = self.waiting.remove(&cid.0).unwrap();
                        self.executor.execute(sqe, &data);
                    } else {
                        self.connection.pump_r2t(cid, &mut self.out);
                    }
                }
                Event::TermReceived(_) => self.executor.over = true,
            }
            self.send_answers();
            if self.executor.over {
                return;
            }
        }
    }

    fn send_answers(&mut self) {
        if self.executor.entries > 0 {
            let queue = QueueId(self.executor.queue);
            self.connection.set_queue(queue, std::mem::take(&mut self.executor.entries) as usize);
        }
        for answer in std::mem::take(&mut self.executor.answers) {
            match answer {
                Answer::Response(cqe) | Answer::Invalidating(cqe, _) => {
                    self.connection.send_response(&cqe, &mut self.out);
                }
                Answer::Data(cid, data) => {
                    let mut trailer = self.connection.send_data(cid, 0, &data, true, false, &mut self.out);
                    if let Some(digest) = &mut trailer {
                        let mut state = self.executor.shared.state.lock().unwrap();
                        digest[0] ^= u8::from(state.wrong_digests > 0);
                        state.wrong_digests = state.wrong_digests.saturating_sub(1);
                    }
                    self.out.extend_from_slice(&data);
                    self.out.extend_from_slice(&trailer.unwrap_or_default()[..if trailer.is_some() { 4 } else { 0 }]);
                }
                Answer::Garbage => self.out.extend_from_slice(&[0x7f; 200]),
            }
        }
    }
}

impl Executor {
    pub fn new(shared: Arc<Shared>) -> Self {
        let epoch = shared.state.lock().unwrap().epoch;
        Self {
            shared,
            queue: 0,
            entries: 0,
            event_requests: Vec::new(),
            held: Vec::new(),
            epoch,
            over: false,
            answers: Vec::new(),
        }
    }

    /// The host has closed the connection.
    pub fn shared_ended(&self) {
        self.shared.state.lock().unwrap().ends.0 += 1;
    }

    /// Whether [`Peer::hang_up`] was called.
    pub fn is_hung_up(&self) -> bool {
        self.shared.state.lock().unwrap().epoch != self.epoch
    }

    pub fn send_events(&mut self) {
        if self.queue != 0 {
            return;
        }
        let mut state = self.shared.state.lock().unwrap();
        while !self.event_requests.is_empty() && !state.events.is_empty() {
            let cqe =
                Cqe::new(self.event_requests.remove(0), Status::SUCCESS).with_result(u64::from(state.events.remove(0)));
            self.answers.push(Answer::Response(cqe));
        }
        while let Some(word) = state.endless_event.filter(|_| !self.event_requests.is_empty()) {
            let cqe = Cqe::new(self.event_requests.remove(0), Status::SUCCESS).with_result(u64::from(word));
            self.answers.push(Answer::Response(cqe));
        }
    }

    pub fn answer_held(&mut self) {
        if self.shared.state.lock().unwrap().held.is_none() {
            for sqe in std::mem::take(&mut self.held) {
                self.admin(&sqe);
            }
        }
    }

    fn respond(&mut self, sqe: &Sqe, status: Status, result: u64) {
        self.answers.push(Answer::Response(Cqe::new(sqe.cid(), status).with_result(result)));
    }

    fn respond_data(&mut self, sqe: &Sqe, data: &[u8]) {
        let short = self.shared.state.lock().unwrap().short.filter(|_| self.queue == 0);
        if let Some((_, bytes)) = short.filter(|(opcode, _)| *opcode == sqe.opcode) {
            if bytes > 0 {
                self.answers.push(Answer::Data(sqe.cid(), data[..bytes].to_vec()));
            }
            return self.respond(sqe, Status::SUCCESS, 0);
        }
        self.answers.push(Answer::Data(sqe.cid(), data.to_vec()));
        self.respond(sqe, Status::SUCCESS, 0);
    }

    pub fn execute(&mut self, sqe: Sqe, data: &[u8]) {
        if sqe.fctype().is_some() {
            self.fabrics(&sqe, data);
        } else if self.queue == 0 {
            self.admin(&sqe);
        } else {
            self.io(&sqe, data);
        }
    }

    fn fabrics(&mut self, sqe: &Sqe, data: &[u8]) {
        let property = Property::decode(sqe);
        match sqe.fctype().unwrap() {
            fabrics::CONNECT => {
                let connect = Connect::decode(sqe);
                let data = ConnectData::read_from_bytes(data).unwrap();
                let refusal = {
                    let mut state = self.shared.state.lock().unwrap();
                    state.connects.push((connect.qid.0, connect.entries));
                    state.connect
                };
                if let Some((status, result)) = refusal {
                    return self.respond(sqe, status, result);
                }
                let nqn = Nqn::from_field(&data.subnqn).unwrap();
                if nqn.as_str() != NQN && !nqn.is_discovery() {
                    let at = ConnectResult::Invalid { in_data: true, offset: ConnectData::SUBNQN_OFFSET };
                    return self.respond(sqe, Status::CONNECT_INVALID_PARAMETERS.dnr(), at.encode());
                }
                self.queue = connect.qid.0;
                self.entries = connect.entries;
                let id = self.shared.state.lock().unwrap().id;
                self.respond(sqe, Status::SUCCESS, u64::from(id));
            }
            fabrics::PROPERTY_GET => {
                let state = self.shared.state.lock().unwrap();
                let csts = u32::from(state.cc.enabled() && state.ready)
                    | if state.cc.shutdown() != 0 { Csts::SHUTDOWN_COMPLETE } else { 0 };
                let value = match property.offset {
                    offset::CAP => Cap::new(state.entries, 1).0,
                    offset::VS => u64::from(Version::V2_0.0),
                    offset::CC => u64::from(state.cc.0),
                    offset::CSTS => u64::from(csts),
                    _ => 0,
                };
                drop(state);
                self.respond(sqe, Status::SUCCESS, value);
            }
            fabrics::PROPERTY_SET => {
                {
                    let mut state = self.shared.state.lock().unwrap();
                    state.cc = Cc(u32::try_from(property.value).unwrap());
                    state.shutdowns += usize::from(state.cc.shutdown() != 0);
                }
                self.respond(sqe, Status::SUCCESS, 0);
            }
            _ => self.respond(sqe, Status::INVALID_OPCODE, 0),
        }
    }

    fn admin(&mut self, sqe: &Sqe) {
        if self.shared.state.lock().unwrap().held == Some(sqe.opcode) {
            return self.held.push(*sqe);
        }
        match sqe.opcode {
            admin::IDENTIFY => {
                let refused = sqe.cdw10.to_bytes()[0] == Cns::NAMESPACE_ID_DESCRIPTORS.0
                    && self.shared.state.lock().unwrap().no_descriptors;
                if refused {
                    return self.respond(sqe, Status::INVALID_FIELD.dnr(), 0);
                }
                let data = self.identify(sqe);
                self.respond_data(sqe, &data);
            }
            admin::GET_LOG_PAGE => {
                let data = self.log_page(sqe);
                self.respond_data(sqe, &data);
            }
            admin::SET_FEATURES if sqe.cdw10.get() & 0xff == 7 => {
                let queues = u32::from(self.shared.state.lock().unwrap().queues - 1);
                self.respond(sqe, Status::SUCCESS, u64::from(queues << 16 | queues));
            }
            admin::KEEP_ALIVE => {
                self.shared.state.lock().unwrap().keep_alives += 1;
                if self.shared.state.lock().unwrap().on_keep_alive == Action::Serve {
                    self.respond(sqe, Status::SUCCESS, 0);
                }
            }
            admin::ASYNC_EVENT_REQUEST => self.event_requests.push(sqe.cid()),
            admin::ABORT => {
                let word = sqe.cdw10.get();
                let pair = (u16::try_from(word & 0xffff).unwrap(), u16::try_from(word >> 16).unwrap());
                self.shared.state.lock().unwrap().aborts.push(pair);
                self.respond(sqe, Status::SUCCESS, 1);
            }
            admin::CROSS_CONTROLLER_RESET => {
                let mut state = self.shared.state.lock().unwrap();
                state.resets += 1;
                let (status, result) = state.reset;
                drop(state);
                self.respond(sqe, status, result);
            }
            // An opcode of this peer only, which gets no response.
            0xc0 => {}
            _ => self.respond(sqe, Status::SUCCESS, 0),
        }
    }

    fn identify(&self, sqe: &Sqe) -> Vec<u8> {
        let mut state = self.shared.state.lock().unwrap();
        let cns = Cns(sqe.cdw10.to_bytes()[0]);
        if cns == Cns::CONTROLLER {
            let mut data = IdentifyController::default();
            data.set_subsystem_nqn(&Nqn::parse(NQN).unwrap());
            data.cntrltype = state.kind.encode();
            data.mdts = state.mdts;
            data.kas = 1.into();
            data.aerl = 3;
            data.oaes = 0x8000_0100.into();
            data.ioccsz = ((64 + state.in_capsule) / 16).into();
            data.nn = 1024.into();
            data.vwc = state.vwc;
            data.oncs = 0x10c.into();
            data.cntlid = state.id.into();
            (state.on_identify)(&mut data);
            return data.as_bytes().to_vec();
        }
        if cns == Cns::ACTIVE_NAMESPACE_LIST {
            return NamespaceList::after(sqe.nsid(), state.namespaces.iter().copied().map(Nsid)).as_bytes().to_vec();
        }
        if cns == Cns::IOCS_CONTROLLER {
            return state.nvm.as_bytes().to_vec();
        }
        let ids = state.ids.get(&sqe.nsid.get()).copied().unwrap_or_default();
        if cns == Cns::NAMESPACE_ID_DESCRIPTORS {
            let mut list = [0; IDENTIFY_BYTES];
            let mut writer = DescriptorWriter::new(&mut list);
            if ids.uuid != [0; 16] {
                writer.push(&NamespaceIdDescriptor::Uuid(Uuid(ids.uuid))).unwrap();
            }
            return list.to_vec();
        }
        let mut data = IdentifyNamespace::default();
        if state.namespaces.contains(&sqe.nsid.get()) {
            data.nsze = ((state.disk.len() / BLOCK) as u64).into();
            data.mssrl = 7.into();
            data.mcl = 20.into();
            data.msrc = 3;
            data.lbaf[0] = LbaFormat::data_only(state.lbads);
            if state.protected {
                data.lbaf[0].ms = 8.into();
                data.dps = 1;
            }
            data.nsattr = state.nsattr;
            data.nmic = state.nmic;
            data.nguid = ids.nguid;
            data.eui64 = ids.eui64;
        }
        data.as_bytes().to_vec()
    }

    fn log_page(&self, sqe: &Sqe) -> Vec<u8> {
        let mut state = self.shared.state.lock().unwrap();
        let get = GetLogPage::decode(sqe);
        *state.pages_read.entry(get.lid.0).or_default() += 1;
        let mut page = match get.lid {
            Lid::DISCOVERY => {
                let header = DiscoveryHeader {
                    genctr: 9.into(),
                    numrec: (state.log.len() as u64).into(),
                    ..DiscoveryHeader::default()
                };
                let mut page = header.as_bytes().to_vec();
                page.extend_from_slice(state.log.as_bytes());
                page.split_off(usize::try_from(get.offset).unwrap().min(page.len()))
            }
            Lid::CHANGED_NAMESPACES => {
                ChangedNamespaces::new(state.changed.iter().copied().map(Nsid)).as_bytes().to_vec()
            }
            lid => state.pages.get(&lid.0).cloned().unwrap_or_default(),
        };
        page.resize(usize::try_from(get.bytes).unwrap(), 0);
        page
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each misbehaviour and opcode")]
    fn io(&mut self, sqe: &Sqe, data: &[u8]) {
        // Commands from a connection that is to be broken are not executed any more.
        if self.shared.state.lock().unwrap().epoch != self.epoch {
            self.over = true;
            return;
        }
        let action = (self.shared.state.lock().unwrap().on_io)(sqe);
        match action {
            Action::Serve | Action::Half => {}
            Action::Stray => {
                let cqe = Cqe::new(Cid(sqe.cid().0 ^ 0x4000), Status::SUCCESS);
                return self.answers.push(Answer::Response(cqe));
            }
            Action::Invalidate => {
                let Sgl::Keyed { key, .. } = sqe.dptr.decode() else { panic!("not over RDMA") };
                return self.answers.push(Answer::Invalidating(Cqe::new(sqe.cid(), Status::SUCCESS), key));
            }
            Action::Ignore => return,
            Action::Hangup => {
                self.over = true;
                return;
            }
            Action::Fail(status) => return self.respond(sqe, status, 0),
            Action::Garbage => return self.answers.push(Answer::Garbage),
            Action::Twice => {
                self.respond(sqe, Status::INTERNAL_ERROR, 0);
                return self.respond(sqe, Status::INTERNAL_ERROR, 0);
            }
        }
        // MDTS is in pages of 4096 bytes.
        let most = 4096 << self.shared.state.lock().unwrap().mdts;
        if matches!(sqe.opcode, nvm::READ | nvm::WRITE | nvm::COMPARE) && sqe.dptr.decode().length() > most {
            return self.respond(sqe, Status::INVALID_FIELD.dnr(), 0);
        }
        if !self.shared.state.lock().unwrap().namespaces.contains(&sqe.nsid.get()) {
            return self.respond(sqe, Status::INVALID_NAMESPACE.dnr(), 0);
        }
        let range = BlockRange::decode(sqe);
        let start = usize::try_from(range.slba).unwrap().saturating_mul(BLOCK);
        let end = start.saturating_add(range.blocks as usize * BLOCK);
        let mut state = self.shared.state.lock().unwrap();
        let blocks = end <= state.disk.len();
        match sqe.opcode {
            nvm::READ if blocks => {
                let bytes = state.disk[start..end].to_vec();
                drop(state);
                if action == Action::Half {
                    let half = &bytes[..bytes.len() / 2];
                    self.answers.push(Answer::Data(sqe.cid(), half.to_vec()));
                    return self.respond(sqe, Status::SUCCESS, 0);
                }
                return self.respond_data(sqe, &bytes);
            }
            nvm::WRITE if blocks => state.disk[start..end].copy_from_slice(data),
            nvm::COMPARE if blocks => {
                let carried = if state.protected { BLOCK + 8 } else { BLOCK };
                let compared = data.chunks(carried).map(|block| &block[..BLOCK]);
                let same = compared.eq(state.disk[start..end].chunks(BLOCK));
                drop(state);
                let status = if same { Status::SUCCESS } else { Status::COMPARE_FAILURE.dnr() };
                return self.respond(sqe, status, 0);
            }
            nvm::WRITE_ZEROES if blocks => state.disk[start..end].fill(0),
            nvm::DATASET_MANAGEMENT => {
                for range in data.chunks(16).map(|bytes| DsmRange::read_from_bytes(bytes).unwrap()) {
                    let start = usize::try_from(range.slba.get()).unwrap() * BLOCK;
                    state.disk[start..start + range.nlb.get() as usize * BLOCK].fill(0);
                }
            }
            nvm::COPY => copy(&mut state.disk, start, data),
            nvm::FLUSH | nvm::VERIFY | nvm::WRITE_UNCORRECTABLE => {}
            _ => {
                drop(state);
                return self.respond(sqe, Status::LBA_OUT_OF_RANGE.dnr(), 0);
            }
        }
        drop(state);
        self.respond(sqe, Status::SUCCESS, 0);
    }
}

fn copy(disk: &mut [u8], mut to: usize, data: &[u8]) {
    for source in CopySource::decode_all(CopyFormat::Format0, data) {
        let from = usize::try_from(source.slba).unwrap() * BLOCK;
        let length = source.blocks as usize * BLOCK;
        disk.copy_within(from..from + length, to);
        to += length;
    }
}

pub fn data_from_host(sqe: &Sqe) -> u32 {
    let code = sqe.fctype().unwrap_or(sqe.opcode);
    if code & 3 == 1 { sqe.dptr.decode().length() } else { 0 }
}
