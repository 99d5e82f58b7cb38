//! Connections between their arrival at a port with TLS and the reactor: what their first bytes
//! are, and the handshake of TLS, on a thread of its own.
//!
//! A handshake takes as long as some hundred commands, and anybody can have some computed: the
//! thread has a lower priority than those that serve hosts. Who is slow is let go after
//! [`HANDSHAKE_MS`], and where many are under way, the oldest makes room.
//!
//! A host without TLS where it is required gets the alert of a TLS server: NVMe/TCP has no word for
//! it, and without one, a host can only guess.

mod parting;

use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use ebof_authentication::psk::KeyOrigin;
use ebof_authentication::{HostPsk, Identity};
use ebof_fabrics::{Channel, PskSource, TlsPeer};
use ebof_manage::api::RefusalReason;
use ebof_manage::config::{PortTls, TlsRecords};
use ebof_sockets::Stream;
use ebof_tls::{Alert, FirstBytes, Progress, RecordsBy, Secured, ServerHandshake, TlsPsk, first_bytes};
use rustix::event::epoll;
use rustix::net::RecvFlags;

use self::parting::Parting;
use super::admission;
use super::source::timespec;
use crate::observe::log_limit::{Kind, LogSubject};
use crate::ports::peer::Peer;
use crate::shared::Shared;
use crate::shared::host_limits::Waiting;
use crate::shared::mailbox::{Incoming, Mailbox};
use crate::shared::priority::go_after_reactors;

/// How long a handshake may take, milliseconds; as Linux gives its own.
const HANDSHAKE_MS: u64 = 10_000;

const BELL: u64 = u64::MAX;

/// A connection that has arrived at a port with TLS.
pub(crate) struct Arrived {
    pub(crate) socket: TcpStream,
    pub(crate) origin: Origin,
}

/// What comes with a connection, and stays with it until the handshake is over.
pub(crate) struct Origin {
    pub(crate) peer: Peer,
    pub(crate) waiting: Option<Waiting>,
    /// Where it goes then.
    pub(crate) reactor: usize,
    pub(crate) counted: Counted,
}

/// Sends connections to the thread, which there is from the first one on.
pub(crate) struct Handshakes {
    shared: Arc<Shared>,
    started: Mutex<Option<Started>>,
}

struct Started {
    /// `None` to end it.
    arrivals: Option<mpsc::Sender<Arrived>>,
    bell: Mailbox,
    thread: Option<JoinHandle<()>>,
}

impl Handshakes {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, started: Mutex::default() }
    }

    /// Takes a connection.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub(crate) fn begin(&self, arrived: Arrived) -> io::Result<()> {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        if started.as_ref().is_none_or(Started::has_ended) {
            *started = Some(Started::new(&self.shared)?);
        }
        if let Some(Started { arrivals: Some(arrivals), bell, .. }) = &*started {
            // Fails when the thread has just ended, and then the connection ends as well.
            let _ = arrivals.send(arrived);
            bell.ring();
        }
        Ok(())
    }
}

impl Started {
    fn new(shared: &Arc<Shared>) -> io::Result<Self> {
        let bell = Mailbox::new()?;
        let (arrivals, receiver) = mpsc::channel();
        let under_way = UnderWay::new(Arc::clone(shared), receiver, bell.clone())?;
        let thread = std::thread::Builder::new().name("ebof-tls".to_owned()).spawn(move || under_way.run())?;
        Ok(Self { arrivals: Some(arrivals), bell, thread: Some(thread) })
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.arrivals = None;
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            // It has said why, if it has panicked.
            let _ended = thread.join();
        }
    }
}

/// One of them.
struct Handshake {
    stage: Stage,
    origin: Origin,
    /// Milliseconds of the target's clock.
    deadline_ms: u64,
}

enum Stage {
    /// It has not said yet what it speaks.
    Silent(TcpStream),
    Tls(Box<ServerHandshake>),
    /// It was refused, and was told why.
    Parting(Parting),
}

/// It counts as one of the target's connections.
pub(crate) struct Counted(Arc<Shared>);

impl Counted {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        shared.connections.fetch_add(1, Relaxed);
        Self(Arc::clone(shared))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

/// What a look at a connection has brought.
enum Outcome {
    /// It goes on when there is such an event.
    Waits(Stage, epoll::EventFlags),
    Done(Stream, Channel),
    Refused(RefusalReason, Option<Identity>, String),
    /// It speaks NVMe/TCP without TLS, and may not.
    Plain(TcpStream),
    /// It has ended.
    Gone,
}

/// The thread.
struct UnderWay {
    shared: Arc<Shared>,
    arrivals: mpsc::Receiver<Arrived>,
    bell: Mailbox,
    epoll: OwnedFd,
    /// By the order of their arrival.
    all: BTreeMap<u64, Handshake>,
    next: u64,
}

impl UnderWay {
    fn new(shared: Arc<Shared>, arrivals: mpsc::Receiver<Arrived>, bell: Mailbox) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let descriptor = bell.descriptor().ok_or(io::ErrorKind::Unsupported)?;
        epoll::add(&epoll, descriptor, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        Ok(Self { shared, arrivals, bell, epoll, all: BTreeMap::new(), next: 0 })
    }

    fn run(mut self) {
        go_after_reactors();
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        loop {
            events.clear();
            let timeout = self.timeout();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timespec(timeout).as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return tracing::error!("waiting for TLS handshakes failed: {error}"),
            }
            for event in &events {
                match event.data.u64() {
                    BELL => self.bell.silence(),
                    key => self.advance_one(key),
                }
            }
            loop {
                match self.arrivals.try_recv() {
                    Ok(arrived) => self.add(arrived),
                    Err(mpsc::TryRecvError::Empty) => break,
                    Err(mpsc::TryRecvError::Disconnected) => return,
                }
            }
            self.expire();
        }
    }

    fn timeout(&self) -> Option<Duration> {
        // All have the same time: the first to arrive is the first that is overdue.
        let (_, first) = self.all.first_key_value()?;
        Some(Duration::from_millis(first.deadline_ms.saturating_sub(self.shared.clock.now_ms()) + 1))
    }

    fn add(&mut self, arrived: Arrived) {
        let Arrived { socket, origin } = arrived;
        let most = self.shared.settings.connections_max.div_ceil(2).max(1) as usize;
        if self.all.len() >= most
            && let Some((_, oldest)) = self.all.pop_first()
        {
            let detail = format!("{most} TLS handshakes are under way, and this one is the oldest");
            self.give_up(&oldest, detail);
        }
        let key = self.next;
        self.next += 1;
        let data = epoll::EventData::new_u64(key);
        // What is looked at stays in the socket: only more of it is news.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        if let Err(error) = epoll::add(&self.epoll, &socket, data, flags) {
            let peer = &origin.peer;
            if let Some(more) = self.shared.may_log(peer.about(), Kind::Unwatched) {
                tracing::error!(peer = %peer.address, "the connection cannot be watched: {error}{more}");
            }
            return;
        }
        let deadline_ms = self.shared.clock.now_ms() + HANDSHAKE_MS.min(self.shared.settings.handshake_ms);
        self.all.insert(key, Handshake { stage: Stage::Silent(socket), origin, deadline_ms });
        self.advance_one(key);
    }

    /// Has a handshake go on.
    fn advance_one(&mut self, key: u64) {
        let Some(handshake) = self.all.remove(&key) else { return };
        let Handshake { stage, origin, deadline_ms } = handshake;
        match advance(stage, &origin.peer, &self.shared) {
            Outcome::Waits(stage, flags) => {
                // Of one that is silent only more is news, and nothing else is asked for again:
                // that would tell of what is there already.
                if let Stage::Tls(handshake) = &stage
                    && let Some(socket) = handshake.socket()
                {
                    // It fails for nothing that is in the set.
                    let _ = epoll::modify(&self.epoll, socket, epoll::EventData::new_u64(key), flags);
                }
                self.all.insert(key, Handshake { stage, origin, deadline_ms });
            }
            Outcome::Done(stream, channel) => {
                if let Some(descriptor) = stream.descriptor() {
                    // The reactor has a set of its own.
                    let _ = epoll::delete(&self.epoll, descriptor);
                }
                let Origin { peer, waiting, reactor, counted } = origin;
                let peer = Peer { channel, ..peer };
                admission::hand_over(&self.shared, reactor, Incoming::Tcp(stream), peer, waiting);
                // It is counted there from now on.
                drop(counted);
            }
            Outcome::Refused(reason, identity, detail) => {
                self.refuse(&origin.peer, reason, identity.as_ref(), detail);
            }
            Outcome::Plain(socket) => {
                let detail = "the host speaks NVMe/TCP without TLS, and the port wants TLS".to_owned();
                self.refuse(&origin.peer, RefusalReason::TlsRequired, None, detail);
                let stage = Stage::Parting(Parting::begin(socket, Alert::UNEXPECTED_MESSAGE));
                self.all.insert(key, Handshake { stage, origin, deadline_ms });
                self.advance_one(key);
            }
            Outcome::Gone => {}
        }
    }

    fn expire(&mut self) {
        let now_ms = self.shared.clock.now_ms();
        while let Some(first) = self.all.first_entry().filter(|first| first.get().deadline_ms <= now_ms) {
            let late = first.remove();
            let what = match &late.stage {
                Stage::Silent(_) => "nothing was sent, or too little to tell TLS from NVMe/TCP,",
                Stage::Tls(_) | Stage::Parting(_) => "the TLS handshake was not completed",
            };
            let detail = format!("{what} within {} s", HANDSHAKE_MS.min(self.shared.settings.handshake_ms) / 1000);
            self.give_up(&late, detail);
        }
    }

    /// Ends a handshake that is not over.
    fn give_up(&self, handshake: &Handshake, detail: String) {
        // Of one that is parting all was said.
        if !matches!(handshake.stage, Stage::Parting(_)) {
            self.refuse(&handshake.origin.peer, RefusalReason::HandshakeTimeout, None, detail);
        }
    }

    fn refuse(&self, peer: &Peer, reason: RefusalReason, identity: Option<&Identity>, detail: String) {
        let names = identity.map(|identity| &identity.names);
        let (host, subsystem) = (names.map(|names| &names.host), names.map(|names| &names.subsystem));
        self.shared.refuse(peer.address, &peer.port, reason, host, subsystem, detail);
    }
}

/// Goes on with a connection as far as it can.
fn advance(stage: Stage, peer: &Peer, shared: &Shared) -> Outcome {
    let mut handshake = match stage {
        Stage::Tls(handshake) => handshake,
        Stage::Parting(mut parting) => {
            return if parting.is_over() {
                Outcome::Gone
            } else {
                Outcome::Waits(Stage::Parting(parting), epoll::EventFlags::IN | epoll::EventFlags::ET)
            };
        }
        Stage::Silent(socket) => match peek(&socket) {
            Ok(FirstBytes::TooFew) => {
                let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
                return Outcome::Waits(Stage::Silent(socket), flags);
            }
            Ok(FirstBytes::ClientHello) => {
                let records = match peer.port.config.tls_records {
                    TlsRecords::Own => RecordsBy::Own,
                    TlsRecords::Kernel => RecordsBy::Kernel,
                };
                Box::new(ServerHandshake::new(socket).with_records(records))
            }
            Ok(FirstBytes::IcReq) if peer.port.config.tls == PortTls::Required => return Outcome::Plain(socket),
            // The transport tells what is wrong with anything else.
            Ok(FirstBytes::IcReq | FirstBytes::Other) => {
                return Outcome::Done(socket.into(), Channel::Plain);
            }
            Err(_) => return Outcome::Gone,
        },
    };
    let mut asked = None;
    let progress = handshake.advance(&mut |text| {
        let identity = text.parse::<Identity>().ok();
        let psks = identity.as_ref().map(|identity| psks(identity, text, shared)).unwrap_or_default();
        asked = identity.or(asked.take());
        psks
    });
    match progress {
        Ok(Progress::Readable) => Outcome::Waits(Stage::Tls(handshake), epoll::EventFlags::IN),
        Ok(Progress::Writable) => Outcome::Waits(Stage::Tls(handshake), epoll::EventFlags::OUT),
        Ok(Progress::Done(Secured { stream, identity, not_in_kernel, .. })) => {
            if let Some(reason) = not_in_kernel
                && let Some(more) = shared.may_log(LogSubject::Target, Kind::NotInKernel)
            {
                let port = &peer.port.name;
                tracing::warn!(%port, "TLS records are not the kernel's, as `tls_records` says, but own ones: {reason}{more}");
            }
            match identity.parse::<Identity>() {
                Ok(identity) => secured(stream, identity, shared),
                Err(error) => Outcome::Refused(RefusalReason::TlsFailed, None, error.to_string()),
            }
        }
        Err(error) => Outcome::Refused(RefusalReason::TlsFailed, asked, error.to_string()),
    }
}

/// A connection whose handshake is done.
fn secured(stream: Stream, identity: Identity, shared: &Shared) -> Outcome {
    let psk = match identity.origin {
        KeyOrigin::Retained => Some(PskSource::Configured),
        KeyOrigin::Generated => {
            let now_ms = shared.clock.now_ms();
            let found = shared.registry().generated_psk(&identity, now_ms);
            found.map(|(_, channel)| PskSource::Generated(channel))
        }
    };
    let Some(psk) = psk else {
        let detail = "the host's key was replaced during the handshake".to_owned();
        return Outcome::Refused(RefusalReason::TlsFailed, Some(identity), detail);
    };
    Outcome::Done(stream, Channel::Tls(Box::new(TlsPeer { names: identity.names, psk })))
}

/// What its host may have a key of by this identity.
fn psks(identity: &Identity, text: &str, shared: &Shared) -> Vec<TlsPsk> {
    let keys = match identity.origin {
        KeyOrigin::Retained => {
            let configured = shared.registry().model().tls_psks.get(&identity.names.host).cloned();
            configured.map(|configured| HostPsk::candidates(identity, &configured)).unwrap_or_default()
        }
        KeyOrigin::Generated => {
            let now_ms = shared.clock.now_ms();
            let found = shared.registry().generated_psk(identity, now_ms);
            found.map(|(key, _)| key).into_iter().collect()
        }
    };
    // Those that TLS does not take are no keys: all bytes of one are zero.
    keys.into_iter().filter_map(|key| TlsPsk::new(text.to_owned(), identity.hash, key).ok()).collect()
}

/// What is there of the first bytes.
fn peek(socket: &TcpStream) -> io::Result<FirstBytes> {
    let mut bytes = [0; 8];
    match rustix::net::recv(socket, &mut bytes, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((0, _)) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok((there, _)) => Ok(first_bytes(&bytes[..there])),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(FirstBytes::TooFew),
        Err(error) => Err(error.into()),
    }
}
