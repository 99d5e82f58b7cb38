//! The paths to a subsystem: several controllers of it, whose namespaces are one each, whichever of
//! them leads there.
//!
//! A [`Subsystem`] knows the paths, and what is said of them; [`Lanes`] are the queue pairs of one
//! thread over all of them, and choose one for each command; a [`PathNamespace`] is for calls that
//! block, of any thread. Each path has a thread, its keeper,
//! which reads the access to the namespaces (ANA) and has the controller of a lost association
//! reset through another path, before commands whose fate is unknown are repeated.

mod access;
mod call;
pub(crate) mod calls;
pub(crate) mod connecting;
mod keeper;
pub(crate) mod lane;
pub(crate) mod lanes;
mod node;
pub(crate) mod path;
pub(crate) mod policy;
pub(crate) mod queue;
pub(crate) mod reservations;
pub(crate) mod sameness;
pub(crate) mod stepped;

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use ebof_nvme::log::AnaState;
use ebof_nvme::{Nqn, Nsid};

use crate::command::troubles::Trouble;
use crate::controller::Controller;
use crate::controller::namespace::Namespace;
use crate::error::Error;
use crate::error::state::State;
use crate::options::Options;
use crate::shared::bell::Bell;
use crate::shared::opened::NamespaceHead;
use crate::wait::lock::lock;
use crate::wait::on_thread::on_thread;
use crate::wait::{Waiter, run};
use calls::PathNamespace;
use connecting::{ConnectPathsError, UnreachablePath};
use path::{Path, PathId};
use policy::PathPolicy;
use sameness::{AddPathError, bind, check_controller, check_names, is_shared};

/// How long the outstanding commands of a path may take that is removed, before they go on over
/// the others.
const LAST_COMMANDS: Duration = Duration::from_secs(5);

/// The most paths of a subsystem.
pub const PATHS_MAX: usize = 64;

/// The paths to a subsystem, as one host reaches it. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Subsystem(Arc<Inner>);

struct Inner {
    paths: Mutex<Arc<Vec<Arc<Path>>>>,
    policy: Mutex<PathPolicy>,
    /// Counts changes of the paths, and of what is said of them.
    version: AtomicU64,
    /// The threads that send commands.
    threads: Mutex<Vec<Weak<dyn Thread>>>,
    next_id: AtomicU32,
    /// Rung when something has changed that calls may wait for.
    bell: Bell,
    /// Addresses that could not be connected when this was made.
    unreachable: Vec<UnreachablePath>,
}

/// A thread that connects its queue pairs over another path.
type Joining<'j> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'j>>;

/// A thread with queue pairs over the paths.
trait Thread: Send + Sync {
    /// Connects queue pairs over another path, if it has none. The thread uses them from its next
    /// turn on.
    fn join<'j>(&'j self, path: &'j Arc<Path>, waiter: &'j Waiter) -> Joining<'j>;
    /// The thread looks at what has changed.
    fn wake(&self);
}

/// A path, and what is said of it.
#[derive(Clone, Debug)]
pub struct PathReport {
    /// Which one.
    pub id: PathId,
    /// Its controller.
    pub controller: Controller,
    /// Commands are sent over it.
    pub is_enabled: bool,
    /// It is preferred among its equals.
    pub is_preferred: bool,
    /// Outstanding commands.
    pub in_flight: u32,
    /// How many commands have completed over it.
    pub completed: u64,
    /// How long a command takes on it, microseconds, as the policy `latency` measures it.
    pub latency_us: Option<u32>,
    /// How many commands it lost or refused that went on over another one.
    pub failovers: u64,
    /// How often commands waited until its lost controller executes nothing any more, and how long
    /// that took altogether.
    pub fences: u64,
    /// See `fences`.
    pub fenced: Duration,
    /// How often its controller was connected again.
    pub reconnects: u64,
}

impl Drop for Inner {
    fn drop(&mut self) {
        for path in lock(&self.paths).iter() {
            path.set_removed();
        }
    }
}

impl Inner {
    fn paths(&self) -> Arc<Vec<Arc<Path>>> {
        Arc::clone(&lock(&self.paths))
    }

    fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// A path that is none of `seen`, which has it then; also one that was added meanwhile.
    fn next_path(&self, seen: &mut Vec<PathId>) -> Option<Arc<Path>> {
        let paths = self.paths();
        let path = paths.iter().find(|path| !seen.contains(&path.id))?;
        seen.push(path.id);
        Some(Arc::clone(path))
    }

    /// Something is another than it was: the threads look at it.
    fn announce(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
        self.wake();
    }

    /// The threads look at the commands that wait.
    fn wake(&self) {
        let threads: Vec<_> = lock(&self.threads).iter().filter_map(Weak::upgrade).collect();
        threads.iter().for_each(|thread| thread.wake());
        self.bell.ring();
    }

    /// Connects queue pairs over a path for each thread that has none over it.
    async fn give_queues(&self, path: &Arc<Path>, waiter: &Waiter) -> Result<(), Error> {
        let threads: Vec<_> = lock(&self.threads).iter().filter_map(Weak::upgrade).collect();
        for thread in &threads {
            thread.join(path, waiter).await?;
        }
        Ok(())
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Path>>)) {
        change(Arc::make_mut(&mut lock(&self.paths)));
        self.announce();
    }

    /// Binds the namespaces that are open over other paths, and were not bound over this one
    /// because it was away, once for each of its associations.
    async fn bind_late(&self, path: &Arc<Path>, waiter: &Waiter) {
        let generation = path.controller.shared().generation();
        if path.controller.state() == State::Live && path.is_bound_late(generation) {
            self.bind_missing(path, waiter).await;
        }
    }

    /// What was opened while a path was being added, by whoever did not know of it, has it, too.
    ///
    /// # Errors
    /// A thread gets no queue pairs over it.
    async fn catch_up(&self, path: &Arc<Path>, waiter: &Waiter) -> Result<(), Error> {
        self.bind_missing(path, waiter).await;
        self.give_queues(path, waiter).await
    }

    /// Binds the namespaces that are open, and are not bound over this path.
    async fn bind_missing(&self, path: &Arc<Path>, waiter: &Waiter) {
        let mut has_bound = false;
        for head in open_namespaces(&self.paths()) {
            if path.bindings().contains_key(&head.head()) {
                continue;
            }
            match bind(path, &head, waiter).await {
                Ok(()) => {
                    has_bound = true;
                    // It was closed meanwhile.
                    if !self.paths().iter().any(|other| other.id != path.id && other.handle(head.head()).is_some()) {
                        path.unbind(head.head());
                    }
                }
                // It will be tried again.
                Err(AddPathError::Queues(error)) if error.is_connection() => {}
                Err(error) => {
                    let address = path.controller.options().address();
                    tracing::error!(%address, nsid = head.nsid().0, %error, "the path is not used for a namespace");
                }
            }
        }
        if has_bound {
            self.announce();
        }
    }

    /// Marks a path as one that is about to go, if another one stays: with `is_lost` any other,
    /// else one that is enabled. Nobody else takes it away from then on.
    fn begin_to_leave(&self, id: PathId, is_lost: bool) -> Option<Arc<Path>> {
        // Held for all of it, so that of two that leave at once one stays.
        let paths = lock(&self.paths);
        let path = paths.iter().find(|path| path.id == id && !path.is_leaving())?;
        let others = || paths.iter().filter(|other| other.id != id && !other.is_leaving());
        if !others().any(|other| other.is_enabled()) {
            if !is_lost || others().next().is_none() {
                return None;
            }
            // The user has switched them off in favour of the one that is lost.
            others().for_each(|other| other.set_enabled(true));
        }
        path.set_leaving();
        Some(Arc::clone(path))
    }

    /// Takes away a path that [`Inner::begin_to_leave`] gave.
    fn end_leaving(&self, path: &Path) {
        path.set_removed();
        self.change(|paths| paths.retain(|other| other.id != path.id));
        path.controller.clone().disconnect();
    }
}

impl Subsystem {
    /// The subsystem of `controller`, with one path.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn new(controller: Controller) -> Result<Self, Error> {
        Self::with_unreachable(controller, Vec::new())
    }

    /// Connects to a subsystem by several addresses, all at once, so that those that do not answer
    /// cost their time-out once. The first of `addresses` that can be connected is the first path;
    /// those that cannot are in [`Subsystem::unreachable`], and may be tried again with
    /// [`Subsystem::add`].
    ///
    /// ```no_run
    /// use ebof_initiator::{Options, Subsystem};
    /// use ebof_nvme::{Nsid, uri::Uri};
    ///
    /// let nqn = "nqn.2014-08.org.example:drive0";
    /// let first = Uri::parse(&format!("nvme+tcp://192.168.1.10:4420/{nqn}"))?;
    /// let second = Uri::parse(&format!("nvme+tcp://192.168.2.10:4420/{nqn}"))?;
    /// let subsystem = Subsystem::connect(&[Options::from_uri(&first), Options::from_uri(&second)])?;
    /// for path in subsystem.unreachable() {
    ///     eprintln!("{}: {}", path.address, path.error);
    /// }
    /// let namespace = subsystem.namespace(Nsid(1))?;
    /// let mut block = vec![0; namespace.block_bytes() as usize];
    /// namespace.read(0, &mut block)?;
    /// subsystem.disconnect();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// No address can be connected, or one leads to another subsystem than the others, or is for
    /// another host. Nothing stays connected then.
    pub fn connect(addresses: &[Options]) -> Result<Self, ConnectPathsError> {
        connecting::connect(addresses)
    }

    /// As [`Subsystem::connect`], as a future. It starts when it is first polled.
    ///
    /// # Errors
    /// As [`Subsystem::connect`].
    pub async fn connect_async(addresses: &[Options]) -> Result<Self, ConnectPathsError> {
        let Some(first) = addresses.first() else { return Err(ConnectPathsError::NoAddress) };
        let (address, addresses) = (first.address(), addresses.to_vec());
        on_thread(move || Self::connect(&addresses)).await.unwrap_or_else(|errno| {
            let error = AddPathError::Queues(Error::System { action: "starting a thread", errno });
            Err(ConnectPathsError::Path { address, error })
        })
    }

    fn with_unreachable(controller: Controller, unreachable: Vec<UnreachablePath>) -> Result<Self, Error> {
        let subsystem = Self::without_paths(unreachable);
        subsystem.keep(Arc::new(Path::new(subsystem.next_id(), controller)))?;
        Ok(subsystem)
    }

    fn without_paths(unreachable: Vec<UnreachablePath>) -> Self {
        Self(Arc::new(Inner {
            paths: Mutex::default(),
            policy: Mutex::default(),
            version: AtomicU64::new(1),
            threads: Mutex::default(),
            next_id: AtomicU32::new(0),
            bell: Bell::default(),
            unreachable,
        }))
    }

    fn next_id(&self) -> PathId {
        PathId(self.0.next_id.fetch_add(1, Ordering::Relaxed))
    }

    fn keep(&self, path: Arc<Path>) -> Result<(), Error> {
        keeper::start(Arc::downgrade(&self.0), Arc::clone(&path))?;
        self.0.change(|paths| paths.push(path));
        Ok(())
    }

    /// Connects another controller of the subsystem, and adds it as a path: to the namespaces that
    /// are open, and to the threads that send commands.
    ///
    /// # Errors
    /// [`AddPathError`]: it cannot be connected, or leads somewhere else. Nothing has changed then.
    pub fn add(&self, options: &Options) -> Result<PathId, AddPathError> {
        let first = self.controller();
        if self.0.paths().len() >= PATHS_MAX {
            return Err(AddPathError::TooMany);
        }
        check_names(first.options(), options)?;
        let opened = Arc::clone(first.shared().bindings.all_opened());
        self.join(Controller::connect_beside(options, opened)?)
    }

    /// Adds a controller that was connected, and knows the same open namespaces, as a path.
    fn join(&self, controller: Controller) -> Result<PathId, AddPathError> {
        let waiter = controller.shared().waiter.another();
        let path = run(self.join_with(controller, &waiter))?;
        self.keep(Arc::clone(&path)).map_err(AddPathError::Queues)?;
        if let Err(error) = run(self.0.catch_up(&path, &waiter)) {
            self.give_up(path.id);
            return Err(AddPathError::Queues(error));
        }
        Ok(path.id)
    }

    /// As [`Subsystem::join`], waiting by `waiter`; who keeps the path is the caller's matter.
    async fn join_with(&self, controller: Controller, waiter: &Waiter) -> Result<Arc<Path>, AddPathError> {
        let paths = self.0.paths();
        check_controller(&paths, &controller)?;
        let path = Arc::new(Path::new(self.next_id(), controller));
        for head in open_namespaces(&paths) {
            bind(&path, &head, waiter).await?;
        }
        if let Err(error) = self.0.give_queues(&path, waiter).await {
            // Those that have it already let it go.
            path.set_removed();
            self.0.announce();
            return Err(AddPathError::Queues(error));
        }
        Ok(path)
    }

    /// Takes a path away and disconnects its controller; commands that are outstanding on it go on
    /// over the others. `false` if there is no such path, or no other that is enabled.
    pub fn remove(&self, id: PathId) -> bool {
        let Some(path) = self.0.begin_to_leave(id, false) else { return false };
        path.set_enabled(false);
        self.0.announce();
        let end = Instant::now() + LAST_COMMANDS;
        while path.totals().0 > 0 && path.controller.state() == State::Live && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.0.end_leaving(&path);
        true
    }

    /// Takes a path away whose controller was given up. `false` if there is no such path, or no
    /// other; if the others are disabled, they are used again.
    pub fn give_up(&self, id: PathId) -> bool {
        let Some(path) = self.0.begin_to_leave(id, true) else { return false };
        self.0.end_leaving(&path);
        true
    }

    /// Disconnects all controllers. Outstanding commands come back as lost.
    pub fn disconnect(&self) {
        for path in self.0.paths().iter() {
            path.set_removed();
            path.controller.clone().disconnect();
        }
    }

    /// A controller for admin commands: a live one, if there is one, the first of them.
    ///
    /// # Panics
    /// Never: a subsystem has at least one path.
    #[must_use]
    pub fn controller(&self) -> Controller {
        let paths = self.0.paths();
        let live = paths.iter().find(|path| path.controller.state() == State::Live);
        live.or(paths.first()).expect("a subsystem has a path").controller.clone()
    }

    /// The addresses that [`Subsystem::connect`] was given and could not connect. They are not
    /// tried again.
    #[must_use]
    pub fn unreachable(&self) -> &[UnreachablePath] {
        &self.0.unreachable
    }

    /// Its NQN.
    #[must_use]
    pub fn nqn(&self) -> Nqn {
        self.controller().options().nqn.clone()
    }

    /// The active namespaces of all controllers that are live, and those that are open over others,
    /// in ascending order.
    ///
    /// # Errors
    /// As [`Controller::namespaces`], if none of them answers.
    pub fn namespaces(&self) -> Result<Vec<Nsid>, Error> {
        let mut found = BTreeSet::new();
        let mut failed = None;
        let mut has_answered = false;
        for path in self.0.paths().iter() {
            let is_live = path.controller.state() == State::Live;
            match is_live.then(|| path.controller.namespaces()) {
                Some(Ok(there)) => {
                    has_answered = true;
                    found.extend(there.iter().map(|nsid| nsid.0));
                    continue;
                }
                Some(Err(error)) => failed = Some(error),
                None => {}
            }
            // What is open over it may still be there.
            found.extend(path.handles().iter().map(|handle| handle.nsid().0));
        }
        match failed {
            _ if has_answered => Ok(found.into_iter().map(Nsid).collect()),
            Some(error) => Err(error),
            None => self.controller().namespaces(),
        }
    }

    /// Whether a namespace that was opened is still there, over one of the paths.
    ///
    /// # Errors
    /// As [`Namespace::check`], of the path that was looked at last.
    pub fn check(&self, head: NamespaceHead) -> Result<(), Error> {
        let paths = self.0.paths();
        let mut last = Ok(());
        for path in paths.iter().filter(|path| path.controller.state() == State::Live) {
            match path.bindings().get(&head).map(|&binding| path.controller.shared().bindings.check(binding)) {
                Some(Ok(())) => return Ok(()),
                Some(error) => last = error,
                None => {}
            }
        }
        last
    }

    /// The paths, in the order in which they were added.
    #[must_use]
    pub fn paths(&self) -> Vec<PathReport> {
        let report = |path: &Arc<Path>| {
            let (in_flight, completed) = path.totals();
            let (fences, fenced) = path.fences();
            PathReport {
                id: path.id,
                controller: path.controller.clone(),
                is_enabled: path.is_enabled(),
                is_preferred: path.is_preferred(),
                in_flight,
                completed,
                latency_us: path.mean_latency_us(),
                failovers: path.failovers(),
                fences,
                fenced,
                reconnects: path.controller.reconnects(),
            }
        };
        self.0.paths().iter().map(report).collect()
    }

    /// The access to a namespace that a path has said it gives; `None` where it says nothing.
    #[must_use]
    pub fn access(&self, id: PathId, nsid: Nsid) -> Option<AnaState> {
        let paths = self.0.paths();
        paths.iter().find(|path| path.id == id)?.access().state(nsid.0)
    }

    /// The state of the whole: live if one of the paths is, and dead if all of them are.
    #[must_use]
    pub fn state(&self) -> State {
        let states: Vec<State> = self.0.paths().iter().map(|path| path.controller.state()).collect();
        let order = [State::Live, State::Reconnecting, State::Dead];
        order.into_iter().find(|state| states.contains(state)).unwrap_or(State::Disconnected)
    }

    /// How much went wrong unnoticed over all paths, by kind.
    #[must_use]
    pub fn troubles(&self) -> [(Trouble, u64); Trouble::ALL.len()] {
        let mut totals = Trouble::ALL.map(|trouble| (trouble, 0_u64));
        for path in self.0.paths().iter() {
            for ((_, total), (_, count)) in totals.iter_mut().zip(path.controller.troubles()) {
                *total = total.saturating_add(count);
            }
        }
        totals
    }

    /// How commands are divided.
    #[must_use]
    pub fn policy(&self) -> PathPolicy {
        *lock(&self.0.policy)
    }

    /// Sets how commands are divided, from now on.
    pub fn set_policy(&self, policy: PathPolicy) {
        *lock(&self.0.policy) = policy;
        self.0.announce();
    }

    /// Prefers a path among its equals, or none.
    pub fn prefer(&self, preferred: Option<PathId>) {
        for path in self.0.paths().iter() {
            path.set_preferred(Some(path.id) == preferred);
        }
        self.0.announce();
    }

    /// Sets whether commands are sent over a path; those that are outstanding complete. `false` if
    /// there is no such path, or it is the last one that is enabled.
    pub fn set_enabled(&self, id: PathId, is_enabled: bool) -> bool {
        {
            let paths = lock(&self.0.paths);
            let others = paths.iter().any(|path| path.id != id && path.is_enabled() && !path.is_leaving());
            let path = paths.iter().find(|path| path.id == id && !path.is_leaving());
            let Some(path) = path.filter(|_| is_enabled || others) else { return false };
            path.set_enabled(is_enabled);
        }
        self.0.announce();
        true
    }

    /// Opens a namespace over every path that leads to it. Those over which it is another one are
    /// not used for it, which the log says.
    ///
    /// # Errors
    /// As [`Controller::namespace`], of the path that was tried last.
    pub fn open(&self, nsid: Nsid) -> Result<Namespace, Error> {
        let paths = self.0.paths();
        let is_live = |path: &&Arc<Path>| path.controller.state() == State::Live;
        let mut first: Option<Namespace> = None;
        let mut last = None;
        // What is open over a path that is away is not gone, and gives its number to no other one.
        let of_away = |path: &Arc<Path>| path.handles().into_iter().find(|handle| handle.nsid() == nsid);
        let away = paths.iter().filter(|path| !is_live(path) && !path.is_leaving()).find_map(of_away);
        for path in paths.iter().filter(is_live) {
            let namespace = match path.controller.namespace(nsid) {
                Ok(namespace) => namespace,
                Err(error) => {
                    last = Some(error);
                    continue;
                }
            };
            match first.as_ref().or(away.as_ref()) {
                Some(first) if first.head() != namespace.head() || !is_shared(&namespace) => {
                    tracing::error!(
                        nsid = nsid.0,
                        address = %path.controller.options().address(),
                        here = namespace.identifiers(),
                        elsewhere = first.identifiers(),
                        "the namespace is another one over this path: it is not used for it"
                    );
                    first.keep();
                }
                _ => {
                    first.get_or_insert_with(|| namespace.clone());
                    path.bind(namespace);
                }
            }
        }
        self.0.announce();
        match (first, away) {
            (Some(first), _) => Ok(first),
            (None, Some(away)) => Err(away.controller().shared().not_connected()),
            (None, None) => Err(last.unwrap_or_else(|| self.controller().shared().not_connected())),
        }
    }

    /// Opens a namespace over all paths that lead to it, for calls that block. Paths that are added
    /// later are used for it, too.
    ///
    /// # Errors
    /// As [`Controller::namespace`], of the path that was tried last; [`Error::PathsDiffer`] if one
    /// leads to another namespace than the others.
    pub fn namespace(&self, nsid: Nsid) -> Result<PathNamespace, Error> {
        let shared = Arc::clone(self.controller().shared());
        shared.run(PathNamespace::open(self, nsid, &shared.waiter))
    }

    /// Gives back the queues that calls which block have kept for later ones, so that others can
    /// take them.
    pub fn release_queues(&self) {
        for path in self.0.paths().iter() {
            path.controller.pool().clear();
        }
    }

    /// A namespace is not used any more.
    pub fn close(&self, head: NamespaceHead) {
        for path in self.0.paths().iter() {
            path.unbind(head);
        }
        self.0.announce();
    }

    fn inner(&self) -> &Arc<Inner> {
        &self.0
    }

    /// A thread begins to send commands.
    fn enlist(&self, thread: Weak<dyn Thread>) {
        let mut threads = lock(&self.0.threads);
        threads.retain(|thread| thread.strong_count() > 0);
        threads.push(thread);
    }
}

/// The namespaces that are open over some path, one handle of each, of a path that is live where
/// there is one.
fn open_namespaces(paths: &[Arc<Path>]) -> Vec<Namespace> {
    let mut seen = BTreeSet::new();
    let (live, away): (Vec<_>, Vec<_>) = paths.iter().partition(|path| path.controller.state() == State::Live);
    let handles = live.iter().chain(&away).flat_map(|path| path.handles()).collect::<Vec<_>>();
    handles.into_iter().filter(|handle| seen.insert(handle.head())).collect()
}

impl std::fmt::Debug for Subsystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subsystem").field("paths", &self.0.paths().len()).field("state", &self.state()).finish()
    }
}
