//! A connected controller: its identity, admin commands, namespaces, events and queue pairs. What
//! namespaces do is in `controller/namespace.rs`; a controller without threads is in
//! `controller/stepped.rs`.

mod copies;
pub(crate) mod namespace;
pub(crate) mod paths;
pub(crate) mod reauthenticate;
pub mod stepped;

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ebof_nvme::connect::Property;
use ebof_nvme::identify::{Cns, IdentifyController, IdentifyNamespace, NamespaceList};
use ebof_nvme::log::{GetLogPage, Lid};
use ebof_nvme::opcode::admin;
use ebof_nvme::property::Cap;
use ebof_nvme::{ControllerId, Cqe, Nsid, Sqe, Status};
use rustix::io::Errno;
use zerocopy::FromBytes;

use crate::admin as background;
use crate::command::data::{AdminData, Data, IoBuffer};
use crate::command::limits::Limits;
use crate::command::troubles::Trouble;
use crate::connect::discover::{DiscoveryLog, log_piece, read_log};
use crate::connect::establish;
use crate::engine::Engine;
use crate::error::Error;
use crate::error::connect_error::ConnectError;
use crate::error::state::State;
use crate::options::Options;
use crate::queue::{ControllerGuard, QueuePair};
use crate::shared::bindings::{BoundNamespace, IdentifyRefusal, Inspection, NAMESPACES_MAX};
use crate::shared::event::Event;
use crate::shared::maps::{QueueClass, QueueMaps};
use crate::shared::opened::OpenedNamespaces;
use crate::shared::{AdminAnswer, AdminRequest, ControllerMessage, SharedController};
use crate::wait::lock::lock;
use crate::wait::on_thread::on_thread;
use crate::wait::{Waiter, run};
use namespace::{Namespace, Pool};
use reauthenticate::Reauthenticated;

/// How often a namespace is read again that changes while it is opened.
const OPEN_TRIES: u32 = 10;

/// A connected controller. Cheap to clone; all clones are the same controller. It disconnects when
/// the last clone and the last [`Namespace`] and [`QueuePair`] made from it are dropped.
#[derive(Clone)]
pub struct Controller(Arc<Handle>);

/// Ends the background thread when the last reference is dropped.
struct Handle {
    shared: Arc<SharedController>,
    pool: Arc<Pool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.cancel.cancel();
    }
}

impl std::fmt::Debug for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controller").field("nqn", &self.options().nqn).field("state", &self.state()).finish()
    }
}

impl Controller {
    /// Connects the Admin Queue, enables the controller, identifies it and asks for I/O queues.
    /// With options that ask for I/O queues, discovery controllers are refused.
    ///
    /// # Errors
    /// [`ConnectError`], which says what was tried, what the target answered, and what to do.
    pub fn connect(options: &Options) -> Result<Self, ConnectError> {
        Self::connect_beside(options, Arc::default())
    }

    /// As [`Controller::connect`], for one that leads to namespaces that others have open.
    pub(crate) fn connect_beside(options: &Options, opened: Arc<OpenedNamespaces>) -> Result<Self, ConnectError> {
        let (controller, engine) = run(Self::establish(options.clone(), Waiter::on_thread(&options.clock), opened))?;
        let thread = std::thread::Builder::new().name("nvme-admin".to_owned()).spawn({
            let shared = Arc::clone(&controller.0.shared);
            move || run(background::run(shared, engine))
        });
        let thread = thread.map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::AGAIN);
            ConnectError::system(options.tried(0), "starting a thread", errno)
        })?;
        *lock(&controller.0.thread) = Some(thread);
        Ok(controller)
    }

    /// As [`Controller::connect`], as a future. It starts when it is first polled. If it is dropped
    /// before it is ready, a controller that was connected by then is disconnected.
    ///
    /// # Errors
    /// As [`Controller::connect`].
    pub async fn connect_async(options: &Options) -> Result<Self, ConnectError> {
        let options = options.clone();
        let tried = options.tried(0);
        match on_thread(move || Self::connect(&options)).await {
            Ok(connected) => connected,
            Err(errno) => Err(ConnectError::system(tried, "starting a thread", errno)),
        }
    }

    /// Connects a controller. The caller has to serve its Admin Queue.
    pub(crate) async fn establish(
        options: Options,
        waiter: Waiter,
        opened: Arc<OpenedNamespaces>,
    ) -> Result<(Self, Engine<Vec<u8>>), ConnectError> {
        let tried = options.tried(0);
        let system = |errno| ConnectError::system(tried.clone(), "making an event descriptor", errno);
        let cancel = waiter.cancel().map_err(system)?;
        let wants_io = options.io_queues() > 0;
        let (engine, info) = establish::controller(&options, wants_io.then_some(false), &waiter, &cancel).await?;
        log_granted_queues(&options, info.io_queues);
        let shared = Arc::new(SharedController::new(options, info, waiter, cancel, opened).map_err(system)?);
        let handle = Handle { shared, pool: Arc::default(), thread: Mutex::default() };
        Ok((Self(Arc::new(handle)), engine))
    }

    /// A reference that keeps the controller connected.
    pub(crate) fn guard(&self) -> ControllerGuard {
        self.0.clone()
    }

    pub(crate) fn shared(&self) -> &Arc<SharedController> {
        &self.0.shared
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.0.pool
    }

    /// The options that it was connected with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.0.shared.options
    }

    /// Its Identify data, as of the last (re)connect.
    #[must_use]
    pub fn identify(&self) -> Arc<IdentifyController> {
        Arc::clone(&self.0.shared.info().identify)
    }

    /// Its identifier within the subsystem; changes with every reconnect.
    #[must_use]
    pub fn id(&self) -> ControllerId {
        self.0.shared.info().id
    }

    /// The CAP property.
    #[must_use]
    pub fn cap(&self) -> Cap {
        self.0.shared.info().cap
    }

    /// The target's address; 0.0.0.0:0 for transports without addresses ([`crate::Transport`]).
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.0.shared.info().peer
    }

    /// The state of the connection.
    #[must_use]
    pub fn state(&self) -> State {
        self.0.shared.state()
    }

    /// Waits until the controller is live; `false` at `deadline`, or when it is disconnected or
    /// given up. Does not wait for a controller that is stepped ([`crate::stepped`]).
    #[must_use]
    pub fn wait_live(&self, deadline: Option<Instant>) -> bool {
        self.0.shared.wait_live(deadline)
    }

    /// How often the controller has reported that the access to namespaces changed (ANA): what
    /// waits for that can be tried when this has grown.
    #[must_use]
    pub fn path_changes(&self) -> u64 {
        self.0.shared.path_changes()
    }

    /// How often it was connected again after a loss.
    #[must_use]
    pub fn reconnects(&self) -> u64 {
        self.0.shared.reconnects()
    }

    /// How much went wrong unnoticed since it was connected, by kind.
    #[must_use]
    pub fn troubles(&self) -> [(Trouble, u64); Trouble::ALL.len()] {
        self.0.shared.troubles.totals()
    }

    /// Counts trouble that the caller has had with this controller.
    pub fn note_trouble(&self, trouble: Trouble) {
        self.0.shared.troubles.note(trouble);
    }

    /// I/O queues that the controller granted.
    #[must_use]
    pub fn io_queues(&self) -> u16 {
        self.0.shared.info().io_queues
    }

    /// How the granted I/O queues are divided.
    #[must_use]
    pub fn queue_maps(&self) -> QueueMaps {
        self.0.shared.maps()
    }

    /// Entries of each I/O queue; one command less may be outstanding.
    #[must_use]
    pub fn queue_entries(&self) -> u16 {
        self.0.shared.info().io_entries
    }

    /// The largest transfer of one command in bytes, `None` where neither the controller nor the
    /// transport has a limit.
    #[must_use]
    pub fn max_transfer_bytes(&self) -> Option<u64> {
        self.limits().transfer_bytes
    }

    /// The limits of one command and the optional commands supported, as of the last (re)connect.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.0.shared.info().limits
    }

    /// Scans for namespaces that were added, removed or changed, as after an event. Does not wait;
    /// scans at most once a second. Changes are sent to [`Controller::events`].
    pub fn rescan(&self) {
        self.0.shared.ask_rescan();
    }

    /// Runs an admin command and waits for it. Without `timeout`, `admin_timeout_ms` of the options
    /// holds. The completion is returned whatever its status is.
    ///
    /// # Errors
    /// [`Error::Lost`], [`Error::Timeout`], [`Error::NotConnected`], [`Error::Stepped`].
    pub fn admin(&self, sqe: Sqe, data: AdminData<'_>, timeout: Option<Duration>) -> Result<Cqe, Error> {
        let owned = match &data {
            AdminData::None => Data::None,
            AdminData::ToHost(buffer) => Data::ToHost(vec![0; buffer.len()]),
            AdminData::FromHost(bytes) => Data::FromHost(bytes.to_vec()),
        };
        let (cqe, filled) = self.0.shared.run(self.admin_with(&self.0.shared.waiter, sqe, owned, timeout))?;
        if let (AdminData::ToHost(buffer), Data::ToHost(filled)) = (data, filled) {
            buffer.copy_from_slice(&filled);
        }
        Ok(cqe)
    }

    /// As [`Controller::admin`], with data of its own, waiting by `waiter`.
    pub(crate) async fn admin_with(
        &self,
        waiter: &Waiter,
        sqe: Sqe,
        data: Data,
        timeout: Option<Duration>,
    ) -> Result<(Cqe, Data), Error> {
        let answer = self.send_admin(sqe, data, timeout)?;
        while waiter.is_stepped() {
            match answer.try_recv() {
                Err(TryRecvError::Empty) => waiter.step().await,
                answer => return answer.unwrap_or_else(|_| Err(self.0.shared.not_connected())),
            }
        }
        // An error: the background thread has ended.
        answer.recv().unwrap_or_else(|_| Err(self.0.shared.not_connected()))
    }

    /// Sends an admin command to the background thread.
    pub(crate) fn send_admin(
        &self,
        sqe: Sqe,
        data: Data,
        timeout: Option<Duration>,
    ) -> Result<Receiver<AdminAnswer>, Error> {
        let shared = &self.0.shared;
        if shared.state() != State::Live {
            return Err(shared.not_connected());
        }
        let timeout = timeout.unwrap_or(Duration::from_millis(u64::from(shared.options.admin_timeout_ms)));
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let (reply, answer) = sync_channel(1);
        shared.send(ControllerMessage::Admin(AdminRequest { sqe, data, timeout_ms, reply }));
        Ok(answer)
    }

    fn checked(&self, command: &'static str, sqe: Sqe, data: AdminData<'_>) -> Result<Cqe, Error> {
        let cqe = self.admin(sqe, data, None)?;
        cqe.status().ok().map_err(|status| Error::Status { command, status })?;
        Ok(cqe)
    }

    /// Reads a property of `bytes` (4 or 8) at `offset`.
    ///
    /// # Errors
    /// As [`Controller::admin`], and [`Error::Status`].
    pub fn property_get(&self, offset: u32, bytes: u8) -> Result<u64, Error> {
        let value = self.checked("Property Get", Property::get(offset, bytes), AdminData::None)?.result();
        Ok(if bytes == 8 { value } else { value & 0xffff_ffff })
    }

    /// Writes a property of four bytes.
    ///
    /// # Errors
    /// As [`Controller::property_get`].
    pub fn property_set(&self, offset: u32, value: u32) -> Result<(), Error> {
        self.checked("Property Set", Property::set(offset, value), AdminData::None).map(|_| ())
    }

    /// Reads `data.len()` bytes (a multiple of 4) of log page `lid` from `offset` (a multiple of
    /// 4), split at the transfer limit.
    ///
    /// # Errors
    /// As [`Controller::property_get`].
    pub fn log_page(&self, nsid: Nsid, lid: u8, offset: u64, data: &mut [u8]) -> Result<(), Error> {
        let piece = self.log_piece();
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let length = rest.len().min(piece);
            let (now, later) = rest.split_at_mut(length);
            // The last command clears the asynchronous event.
            let get = GetLogPage::new(Lid(lid), now.len() as u64);
            let sqe = GetLogPage { offset: at, retain_event: !later.is_empty(), ..get }.encode(nsid);
            self.checked("Get Log Page", sqe, AdminData::ToHost(now))?;
            at = at.saturating_add(length as u64);
            rest = later;
        }
        Ok(())
    }

    /// The most bytes of a log page to read with one command.
    fn log_piece(&self) -> usize {
        log_piece(self.max_transfer_bytes())
    }

    /// The discovery log, of a discovery controller that stays connected.
    ///
    /// # Errors
    /// As [`Controller::property_get`]; [`Error::Malformed`] if it changes whenever it is read.
    pub fn discovery_log(&self) -> Result<DiscoveryLog, Error> {
        let mut log =
            read_log(self.log_piece(), |sqe, data| self.checked("Get Log Page", sqe, AdminData::ToHost(data)))?;
        log.peer = self.peer();
        Ok(log)
    }

    /// The active namespaces, in ascending order.
    ///
    /// # Errors
    /// As [`Controller::property_get`].
    pub fn namespaces(&self) -> Result<Vec<Nsid>, Error> {
        let mut found = Vec::new();
        let mut after = Nsid::NONE;
        loop {
            let bytes = self.identify_bytes(Cns::ACTIVE_NAMESPACE_LIST, after)?;
            let list = NamespaceList::read_from_bytes(&bytes).map_err(|_| Error::Malformed("a namespace list"))?;
            found.extend(list.iter());
            match list.next_after(after) {
                Some(next) if found.len() < NAMESPACES_MAX => after = next,
                _ => return Ok(found),
            }
        }
    }

    /// Identify Namespace (CNS 00h).
    ///
    /// # Errors
    /// As [`Controller::property_get`]; [`Error::NoSuchNamespace`] when it is not active.
    pub fn identify_namespace(&self, nsid: Nsid) -> Result<Box<IdentifyNamespace>, Error> {
        self.0.shared.run(self.identify_namespace_with(&self.0.shared.waiter, nsid))
    }

    async fn identify_namespace_with(&self, waiter: &Waiter, nsid: Nsid) -> Result<Box<IdentifyNamespace>, Error> {
        let bytes = self.identify_with(waiter, Cns::NAMESPACE, nsid).await.map_err(|error| match error.status() {
            Some(status) if status.is(Status::INVALID_NAMESPACE) => Error::NoSuchNamespace(nsid),
            _ => error,
        })?;
        let data = IdentifyNamespace::read_from_bytes(&bytes).map_err(|_| Error::Malformed("Identify Namespace"))?;
        // An inactive namespace is all zeros.
        if data.nsze.get() == 0 { Err(Error::NoSuchNamespace(nsid)) } else { Ok(Box::new(data)) }
    }

    /// Runs Identify with any CNS and returns its 4096 bytes.
    ///
    /// # Errors
    /// As [`Controller::property_get`].
    pub fn identify_bytes(&self, cns: Cns, nsid: Nsid) -> Result<Vec<u8>, Error> {
        self.0.shared.run(self.identify_with(&self.0.shared.waiter, cns, nsid))
    }

    async fn identify_with(&self, waiter: &Waiter, cns: Cns, nsid: Nsid) -> Result<Vec<u8>, Error> {
        let sqe = Sqe::new(admin::IDENTIFY).with_nsid(nsid).with_cdw(10, u32::from(cns.0));
        let data = Data::ToHost(vec![0; ebof_nvme::identify::IDENTIFY_BYTES]);
        let (cqe, data) = self.admin_with(waiter, sqe, data, None).await?;
        cqe.status().ok().map_err(|status| Error::Status { command: "Identify", status })?;
        data.into_buffer().ok_or(Error::Malformed("Identify without its data"))
    }

    /// Reads a namespace's Identify data and identifiers, and updates what its handles share.
    pub(crate) async fn open_namespace(&self, nsid: Nsid, waiter: &Waiter) -> Result<Arc<BoundNamespace>, Error> {
        for _ in 0..OPEN_TRIES {
            let scans = self.0.shared.bindings.scans();
            let identify = self.identify_namespace_with(waiter, nsid).await;
            let inspected = match identify {
                Err(Error::NoSuchNamespace(_)) => Inspection::absent(nsid),
                identify => {
                    let descriptors = match self.identify_with(waiter, Cns::NAMESPACE_ID_DESCRIPTORS, nsid).await {
                        Ok(bytes) => Some(bytes),
                        Err(Error::Status { status, .. })
                            if matches!(IdentifyRefusal::from_status(status), IdentifyRefusal::Permanent) =>
                        {
                            None
                        }
                        Err(error) => return Err(error),
                    };
                    Inspection::found(nsid, identify?, descriptors.as_deref())
                }
            };
            if let Some(bound) = self.0.shared.bindings.open(inspected, scans) {
                return bound;
            }
        }
        Err(Error::Malformed("the namespaces change faster than they can be inspected at"))
    }

    /// A namespace to read and write.
    ///
    /// # Errors
    /// [`Error::NoSuchNamespace`], a format that cannot be used (metadata), or no I/O queue.
    pub fn namespace(&self, nsid: Nsid) -> Result<Namespace, Error> {
        self.0.shared.run(Namespace::open(self.clone(), nsid, &self.0.shared.waiter))
    }

    /// Events from now on. A receiver holds up to 256 unread events; further ones are lost. The
    /// channel closes when the controller is disconnected or given up.
    #[must_use]
    pub fn events(&self) -> Receiver<Event> {
        self.0.shared.subscribe()
    }

    /// Connects the next unused I/O queue. Its identifier is free again when the queue pair is
    /// dropped.
    ///
    /// # Errors
    /// [`Error::NoFreeQueue`] when all granted queues are in use; [`Error::Connect`] when the
    /// target refuses; [`Error::Stepped`].
    pub fn queue_pair<B: IoBuffer>(&self) -> Result<QueuePair<B>, Error> {
        QueuePair::connect(Arc::clone(&self.0.shared), Some(self.guard()), None)
    }

    /// Connects the next unused I/O queue of one class. A class that has no queues gives none: see
    /// [`QueueMaps::serving`].
    ///
    /// # Errors
    /// As [`Controller::queue_pair`].
    pub fn queue_pair_of<B: IoBuffer>(&self, class: QueueClass) -> Result<QueuePair<B>, Error> {
        QueuePair::connect(Arc::clone(&self.0.shared), Some(self.guard()), Some(class))
    }

    /// Proves to the controller again who this host is, by DH-HMAC-CHAP with the secrets as they
    /// are now, and has it prove itself if
    /// [`Options::dhchap_ctrl_key`](crate::Options::dhchap_ctrl_key) is set. I/O goes on meanwhile.
    /// With [`Options::concat`](crate::Options::concat), the key for TLS is replaced; connections
    /// that are there keep theirs.
    ///
    /// Returns what was agreed on (Base, In-band Authentication).
    ///
    /// # Errors
    /// The controller refuses, or is refused. It ends its connections then, and the controller
    /// reconnects.
    pub fn reauthenticate(&self) -> Result<Reauthenticated, ConnectError> {
        reauthenticate::reauthenticate(self)
    }

    /// Drops all connections and reconnects, as after a loss. Does not wait, but the controller is
    /// not live from here on until it has reconnected: see [`Controller::wait_live`].
    pub fn reset(&self) {
        self.0.shared.set_down(State::Reconnecting);
        self.0.shared.send(ControllerMessage::Reset);
    }

    /// Shuts the controller down (CC.SHN), closes all connections and waits for the background
    /// thread, at most a few seconds. Commands that are outstanding on queue pairs come back as
    /// lost; other clones find the controller disconnected.
    pub fn disconnect(self) {
        self.0.shared.cancel.cancel();
        let thread = lock(&self.0.thread).take();
        if let Some(thread) = thread {
            // A panic of the thread has no consequences any more.
            drop(thread.join());
        }
        self.0.pool.clear();
    }

    /// A reference that does not keep the connection.
    #[must_use]
    pub fn downgrade(&self) -> WeakController {
        WeakController(Arc::downgrade(&self.0))
    }
}

/// A reference to a controller that does not keep it connected.
#[derive(Clone)]
pub struct WeakController(Weak<Handle>);

impl WeakController {
    /// The controller, while somebody still holds it.
    #[must_use]
    pub fn upgrade(&self) -> Option<Controller> {
        self.0.upgrade().map(Controller)
    }
}

/// Logs how the queues are divided if the controller granted fewer than requested.
fn log_granted_queues(options: &Options, granted: u16) {
    if granted >= options.io_queues() {
        return;
    }
    let asked = options.io_queues();
    let maps = QueueMaps::assign(options, granted);
    if options.nr_write_queues > 0 || options.nr_poll_queues > 0 {
        tracing::warn!(address = %options.address(), "{granted} of {asked} I/O queues were granted: {maps}");
    } else {
        tracing::info!(address = %options.address(), "{granted} of {asked} I/O queues were granted: {maps}");
    }
}
