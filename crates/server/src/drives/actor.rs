//! The actor of one drive: what the drive decides, in the order in which its thread makes it
//! durable.
//!
//! Everything runs on the drive's thread: the medium is changed, the changes are made durable, the
//! drive's state is updated, the hosts are shown the result, and only then is the command answered.
//! Nothing waits for it but the command.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use ebof_backend::Device;
use ebof_clock::Clock;
use ebof_drive::{
    Answer, Change, DecisionInput, Drive, Effect, Identity, Origin, Refusal, Request, Settings, State, View, VolumeId,
    budget,
};
use ebof_manage::events::NewEvent;
use ebof_medium::{Medium, Notify, Opened, Stepper, Store};
use ebof_nvme::event::AsyncEvent;
use ebof_nvme::log::ReservationEvent;
use ebof_nvme::media::SecureErase;
use ebof_nvme::{ControllerId, HostId, Nqn, Nsid, Status};

use super::handover::{Cancel, Drain, Handover, Lost};
use super::jobs::{Jobs, wants_facts};
use super::monitor::{Monitor, MonitorJob, Observed};
use super::open_error::DriveOpenError;
use super::process::Aftermath;
use super::report::note_damage;
use super::request::{DriveReply, SubmittedRequest};
use super::sensor::Sensor;
use crate::drives::drain::DrainToken;
use crate::observe::log_limit::{Kind, LogLimit, LogSubject, Suppressed};

/// What is to be known about a drive to open it.
#[derive(Debug)]
pub(crate) struct Plan {
    /// What the configuration calls it.
    pub(crate) name: String,
    pub(crate) backing: Arc<dyn Device>,
    pub(crate) options: ebof_medium::Options,
    pub(crate) settings: Settings,
    /// The identity of a new drive.
    pub(crate) identity: Identity,
    pub(crate) sensor: Option<Sensor>,
    pub(crate) clock: Clock,
}

/// The actor of one drive.
pub(crate) struct DriveActor {
    name: Mutex<String>,
    /// What it lies on, for the log.
    backing: String,
    medium: Medium,
    /// Whether the drive was made when it was opened.
    was_made: bool,
    /// Its checkpoints have it as long as there are any, whoever holds the actor.
    drive: Arc<Mutex<Drive>>,
    pub(super) clock: Clock,
    opened: Instant,
    /// The target around it, until the drive is stopped.
    callbacks: Mutex<Option<DriveCallbacks>>,
    monitor: Mutex<Monitor>,
    /// The Critical Warning that there was an event about.
    pub(super) reported_warning: AtomicU8,
    /// [`DriveActor::collect_soon`] was called, and the collection has not begun.
    pub(super) collects_soon: AtomicBool,
    /// Names on the medium that belong to no namespace any more, and could not be removed yet.
    leftovers: Mutex<BTreeSet<VolumeId>>,
    pub(super) jobs: Jobs,
    pub(super) handover: Mutex<Handover>,
    /// Transactions that are over, which could not be stored yet.
    pub(super) owed_ends: Mutex<BTreeSet<String>>,
    /// Of what hosts can cause.
    pub(super) log_limit: LogLimit,
}

type Publish = Box<dyn Fn(Option<&Nqn>, &[Event], &[AsyncEvent]) + Send>;

/// What an actor wants of the target; called on the drive's thread.
pub(crate) struct DriveCallbacks {
    /// Shows hosts what the drive has become, by a command of this host if it was one, and
    /// notifies them of events and of changes to their reservations.
    pub(crate) publish: Publish,
    /// Sends an event to one controller.
    pub(crate) send_event: Box<dyn Fn(ControllerId, AsyncEvent) + Send>,
    /// Has queues end their commands to what they have lost, and hold the token until then.
    pub(crate) drain: Drain,
    /// Cancels what queues have at devices of what they have lost.
    pub(crate) cancel: Cancel,
    /// Reports an event.
    pub(crate) report: Box<dyn Fn(NewEvent) + Send>,
    /// What hosts did so far, and errors behind a number.
    pub(crate) observe: Box<dyn Fn(u64) -> Observed + Send>,
}

/// What became of a host's registration or reservation.
pub(crate) type Event = (Nsid, HostId, ReservationEvent);

/// What is called when it is dropped, also by a thread that does not come to it any more.
struct Finally(Option<Box<dyn FnOnce() + Send>>);

impl Drop for Finally {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done();
        }
    }
}

/// Whether what a sudden end has left was put in order.
type InOrder = Result<(), ebof_medium::Error>;

impl Plan {
    /// Passes the medium's notices to the actor, which the caller has to set in the returned cell.
    fn notified(&mut self) -> Arc<OnceLock<Weak<DriveActor>>> {
        let itself: Arc<OnceLock<Weak<DriveActor>>> = Arc::default();
        let actor = Arc::clone(&itself);
        self.options.notify = Some(Notify(Arc::new(move |notice| {
            if let Some(actor) = actor.get().and_then(Weak::upgrade) {
                actor.on_notice(notice);
            }
        })));
        itself
    }
}

impl DriveActor {
    /// Whether the drive was made when it was opened: there was none.
    pub(crate) fn was_made(&self) -> bool {
        self.was_made
    }

    /// Opens the drive and puts in order what a sudden end has left.
    pub(crate) fn open(mut plan: Plan) -> Result<Arc<Self>, DriveOpenError> {
        let itself = plan.notified();
        let opened = ebof_medium::open(Arc::clone(&plan.backing), std::mem::take(&mut plan.options))?;
        let (actor, outcome) = Self::of(opened, plan, &itself)?;
        outcome.recv().unwrap_or(Err(ebof_medium::Error::Stopped))?;
        Ok(actor)
    }

    /// The same for a drive without threads.
    pub(crate) fn open_stepped(mut plan: Plan) -> Result<(Arc<Self>, Stepper), DriveOpenError> {
        let itself = plan.notified();
        let (opened, mut stepper) = ebof_medium::open_stepped(Arc::clone(&plan.backing), &plan.options)?;
        let (actor, outcome) = Self::of(opened, plan, &itself)?;
        step_until(&mut stepper, &outcome).unwrap_or(Err(ebof_medium::Error::Stopped))?;
        Ok((actor, stepper))
    }

    /// The actor of a medium that was opened, and the receiver of the outcome of its repair.
    fn of(
        opened: Opened,
        plan: Plan,
        itself: &OnceLock<Weak<Self>>,
    ) -> Result<(Arc<Self>, Receiver<InOrder>), DriveOpenError> {
        let Plan { name, backing, settings, identity, sensor, clock, .. } = plan;
        let below = backing.describe();
        let Opened { medium, snapshot, changes, was_clean, created, in_flux, damage } = opened;
        let mut state = State::restore(snapshot.as_deref().unwrap_or_default(), &changes)?;
        trim(&mut state, &name);
        let new = state.identity == Identity::default();
        let capacity = medium.capacity();
        let sizes = ebof_drive::Capacity { total_bytes: capacity.total_bytes, extent_bytes: capacity.extent_bytes };
        tracing::info!(
            drive = name,
            created,
            was_clean,
            in_flux,
            capacity_bytes = sizes.total_bytes,
            namespaces = state.namespaces.len(),
            "drive opened"
        );
        let mut drive = Drive::new(state, settings, sizes);
        if let Some(damage) = damage {
            note_damage(&mut drive, &name, &below, &damage);
        }
        let drive = Arc::new(Mutex::new(drive));
        let monitor = Mutex::new(Monitor::new(sensor, clock.clone()));
        let actor = Arc::new(Self {
            name: Mutex::new(name),
            backing: below,
            medium,
            was_made: created,
            drive,
            opened: clock.now(),
            clock,
            callbacks: Mutex::default(),
            monitor,
            collects_soon: AtomicBool::new(false),
            reported_warning: AtomicU8::new(0),
            leftovers: Mutex::default(),
            jobs: Jobs::default(),
            handover: Mutex::default(),
            owed_ends: Mutex::default(),
            log_limit: LogLimit::default(),
        });
        let _first = itself.set(Arc::downgrade(&actor));
        let (done, outcome) = channel();
        let own = Arc::clone(&actor);
        actor.medium.run(Box::new(move |store| {
            let state = Arc::clone(&own.drive);
            // Asked on the thread of this closure, between requests: the drive has every change
            // that is durable. Also when the actor was given up without having been stopped, as
            // by a start that fails afterwards: the medium is closed with a checkpoint then.
            store.set_snapshot(Box::new(move || {
                state.lock().unwrap_or_else(PoisonError::into_inner).state().to_bytes()
            }));
            let mut changes = own.drive().opened(&Origin::box_(), &own.decision_input());
            if new {
                changes.insert(0, Change::Made { identity });
            }
            let made = own.commit(store, changes);
            store.start(Box::new(MonitorJob(Arc::downgrade(&own))));
            own.start_jobs(store);
            // The receiver is gone if another thread could not be started.
            let _ = done.send(made.and_then(|()| own.remove_orphans(store)));
        }));
        Ok((actor, outcome))
    }

    /// What the configuration calls it, for the log.
    pub(crate) fn name(&self) -> String {
        self.name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What it lies on, for the log.
    pub(super) fn backing(&self) -> &str {
        &self.backing
    }

    /// The medium.
    pub(crate) fn medium(&self) -> &Medium {
        &self.medium
    }

    /// What the drive is now.
    pub(crate) fn view(&self) -> Arc<View> {
        self.drive().view()
    }

    pub(super) fn may_log(&self, about: LogSubject, kind: Kind) -> Option<Suppressed> {
        self.log_limit.admit(about, kind, self.age_us())
    }

    fn age(&self) -> Duration {
        self.clock.now().saturating_duration_since(self.opened)
    }

    /// How long it is open, microseconds.
    pub(super) fn age_us(&self) -> u64 {
        u64::try_from(self.age().as_micros()).unwrap_or(u64::MAX)
    }

    /// What of the drive itself is wanted. It stays locked meanwhile.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Drive) -> T) -> T {
        look(&self.drive())
    }

    /// How much of a sanitize operation that is going on is done.
    pub(crate) fn sanitize_percent(&self) -> Option<u8> {
        self.look(|drive| drive.sanitize_page().percent()).map(|percent| percent.min(99))
    }

    /// How much of a self-test that is going on is done.
    pub(crate) fn self_test_percent(&self) -> Option<u8> {
        let current = self.look(|drive| drive.state().self_test.page().current());
        current.map(|(_, percent)| percent.min(99))
    }

    /// The namespaces' devices.
    pub(crate) fn devices(&self) -> BTreeMap<VolumeId, Arc<dyn Device>> {
        let volumes = self.medium.volumes();
        volumes.into_iter().filter_map(|volume| Some((volume, self.medium.device(volume)?))).collect()
    }

    /// From now on the drive is part of a target.
    pub(crate) fn join(&self, callbacks: DriveCallbacks) {
        *self.callbacks() = Some(callbacks);
    }

    /// Another configuration, which may call it something else.
    pub(crate) fn configure(&self, name: &str, settings: Settings) {
        name.clone_into(&mut self.name.lock().unwrap_or_else(PoisonError::into_inner));
        self.drive().configure(settings);
    }

    /// Has the drive decide a request and make it true, unless it is withdrawn before the drive's
    /// thread begins it; `reply` is called on that thread.
    pub(crate) fn submit(
        self: &Arc<Self>,
        request: Request,
        origin: Origin,
        reply: impl FnOnce(Result<DriveReply, Refusal>) + Send + 'static,
    ) -> SubmittedRequest {
        let own = Arc::clone(self);
        let (submitted, queued) = SubmittedRequest::new(Box::new(reply));
        self.medium.run(Box::new(move |store| own.process(store, request, origin, queued)));
        submitted
    }

    /// Has the medium remember that these blocks of a namespace cannot be read until they are
    /// written, unless that is withdrawn before the drive's thread begins it; `reply` is called on
    /// that thread.
    pub(crate) fn mark_bad(
        self: &Arc<Self>,
        volume: VolumeId,
        blocks: Range<u64>,
        reply: impl FnOnce(Result<DriveReply, Refusal>) + Send + 'static,
    ) -> SubmittedRequest {
        let own = Arc::clone(self);
        let (submitted, queued) = SubmittedRequest::new(Box::new(reply));
        self.medium.run(Box::new(move |store| {
            let Some(begun) = queued.begin() else { return };
            let marked = store.mark_bad(volume, blocks);
            if let Err(error) = &marked
                && let Some(more) = own.may_log(LogSubject::Target, Kind::NotMarked)
            {
                let volume = volume.0;
                tracing::error!(drive = own.name(), instance = volume, "blocks cannot be marked bad: {error}{more}");
            }
            let answer = marked.map(|()| DriveReply { answer: Answer::Done(0), abort: Vec::new() });
            begun.reply(answer.map_err(|_logged| Refusal::transient(Status::WRITE_FAULT)));
        }));
        submitted
    }

    /// Has `done` called when everything that the drive's thread was asked before is done, or never
    /// will be.
    pub(crate) fn after_all(&self, done: impl FnOnce() + Send + 'static) {
        let done = Finally(Some(Box::new(done)));
        self.medium.run(Box::new(move |_| drop(done)));
    }

    /// Ends the drive's thread when what was asked is done; the medium is marked as left in order.
    pub(crate) fn stop(self: &Arc<Self>) {
        // An error means that the thread has ended already.
        let _closed = self.begin_stop().recv();
        self.end_stop();
    }

    /// The same for a drive without threads.
    pub(crate) fn stop_stepped(self: &Arc<Self>, stepper: &mut Stepper) {
        let closed = self.begin_stop();
        let _closed = step_until(stepper, &closed);
        self.end_stop();
        while !stepper.is_over() {
            stepper.turn();
        }
    }

    /// Closes the drive in order; the receiver gets a message when that is done.
    fn begin_stop(self: &Arc<Self>) -> Receiver<()> {
        let (done, closed) = channel();
        let own = Arc::clone(self);
        self.medium.run(Box::new(move |store| {
            own.forget_waiting();
            own.collect(store, true);
            let changes = own.drive().closed();
            if let Err(error) = own.commit(store, changes) {
                tracing::error!(drive = own.name(), "the drive cannot be closed in order: {error}");
            }
            let _waiting = done.send(());
        }));
        closed
    }

    fn end_stop(&self) {
        *self.callbacks() = None;
        self.medium.stop();
    }

    pub(super) fn callbacks(&self) -> MutexGuard<'_, Option<DriveCallbacks>> {
        self.callbacks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn monitor(&self) -> MutexGuard<'_, Monitor> {
        self.monitor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What hosts did so far.
    pub(super) fn observe(&self, after: u64) -> Observed {
        self.callbacks().as_ref().map(|callbacks| (callbacks.observe)(after)).unwrap_or_default()
    }

    pub(super) fn drive(&self) -> MutexGuard<'_, Drive> {
        self.drive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the answer, and what has to be done before it is given, unless it is a refusal.
    pub(super) fn carry_out(
        &self,
        store: &mut Store,
        request: &Request,
        origin: &Origin,
    ) -> (Result<DriveReply, Refusal>, Aftermath) {
        if matches!(request, Request::Log(wish) if wish.offset == 0) {
            // What happened since the last look is in it: a host that saw a command fail with M set
            // looks for the entry.
            self.collect(store, false);
        }
        if wants_facts(request) {
            let medium_status = self.medium_status(store);
            self.drive().set_medium_status(medium_status);
        }
        let decision = self.drive().decide(request, origin, &self.decision_input());
        let decision = match decision {
            Ok(decision) => decision,
            Err(refusal) => return (Err(refusal), Aftermath::default()),
        };
        if store.is_read_only() && changes_the_drive(request) {
            return (Err(Refusal::new(Status::NAMESPACE_WRITE_PROTECTED)), Aftermath::default());
        }
        let attached = self.attached_functions();
        let mut made = Vec::new();
        let prepared = decision.before.iter().try_for_each(|&effect| self.take_effect(store, effect, &mut made));
        let hands_over = !decision.lost.is_empty();
        let begin = |drive: &Drive| {
            // New owners never see what is not theirs yet: not even another thread, which shows
            // hosts a change of the configuration at this moment.
            self.handover().begin(&decision.lost, &attached, drive.state(), self.clock.now());
        };
        let committed = prepared.and_then(|()| self.commit_and(store, decision.changes, begin));
        if let Err(error) = committed {
            if let Some(more) = self.may_log(LogSubject::Host(origin.host.clone()), Kind::DriveFailed) {
                let request = request.name();
                tracing::error!(drive = self.name(), request, "the drive cannot do what it was asked: {error}{more}");
            }
            self.leftovers().extend(made);
            self.remove_leftovers(store);
            return (Err(Refusal::transient(Status::INTERNAL_ERROR)), Aftermath::default());
        }
        self.drive().set_erasing(&decision.erased, Some(100));
        // Hosts lose a namespace before its blocks are given to others.
        self.show(Some(&origin.host), &decision.notices, &decision.events);
        for effect in decision.after {
            if let Effect::Remove(volume) = effect {
                self.leftovers().insert(volume);
            }
        }
        let removed = self.remove_leftovers(store);
        self.report_request(request, origin, &decision.answer);
        let is_quick = |format: &ebof_nvme::media::Format| format.erase == SecureErase::Cryptographic;
        let answer =
            if (!removed || store.owes_keys()) && matches!(request, Request::Format(_, format) if is_quick(format)) {
                // The namespace is another one, but the key of the old one may still be on the
                // medium.
                Err(Refusal::transient(Status::INTERNAL_ERROR))
            } else {
                Ok(DriveReply { answer: decision.answer, abort: decision.abort })
            };
        (answer, Aftermath { erased: decision.erased, hands_over })
    }

    fn take_effect(
        &self,
        store: &mut Store,
        effect: Effect,
        made: &mut Vec<VolumeId>,
    ) -> Result<(), ebof_medium::Error> {
        match effect {
            Effect::Create { volume, blocks, capacity_blocks, block_format } => {
                if store.thin(volume).is_some() {
                    // It was made for a request that failed, and could not be removed then.
                    store.remove(volume)?;
                    self.leftovers().remove(&volume);
                }
                store.create(volume, blocks, capacity_blocks, block_format)?;
                made.push(volume);
                Ok(())
            }
            Effect::Remove(volume) => store.remove(volume),
        }
    }

    fn leftovers(&self) -> MutexGuard<'_, BTreeSet<VolumeId>> {
        self.leftovers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something is on the medium that belongs to no namespace.
    pub(super) fn has_leftovers(&self) -> bool {
        !self.leftovers().is_empty()
    }

    /// Removes from the medium what belongs to no namespace any more; `false` if something is left,
    /// which is tried again ([`start_jobs`](Self::start_jobs)).
    pub(super) fn remove_leftovers(&self, store: &mut Store) -> bool {
        let mut left = self.leftovers();
        left.retain(|&volume| match store.remove(volume) {
            Ok(()) | Err(ebof_medium::Error::Unknown(_)) => false,
            Err(error) => {
                if let Some(more) = self.may_log(LogSubject::Volume(volume), Kind::NotRemoved) {
                    let instance = volume.0;
                    tracing::error!(drive = self.name(), instance, "left on the medium for now: {error}{more}");
                }
                true
            }
        });
        left.is_empty()
    }

    /// Makes changes durable, then applies them to the drive.
    pub(super) fn commit(&self, store: &mut Store, changes: Vec<Change>) -> Result<(), ebof_medium::Error> {
        self.commit_and(store, changes, |_| {})
    }

    /// The same; `then` is called before anybody can look at the drive with these changes.
    fn commit_and(
        &self,
        store: &mut Store,
        changes: Vec<Change>,
        then: impl FnOnce(&Drive),
    ) -> Result<(), ebof_medium::Error> {
        if changes.is_empty() {
            return Ok(());
        }
        // A damaged drive is not written: its counters and controllers are forgotten
        // with its end.
        if !store.is_read_only() {
            let bytes: Vec<Vec<u8>> = changes.iter().map(Change::to_bytes).collect();
            store.commit(&bytes.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
        }
        let mut drive = self.drive();
        changes.into_iter().for_each(|change| drive.apply(change));
        then(&drive);
        Ok(())
    }

    /// What is on the medium and belongs to no namespace was being made or removed when the drive
    /// ended.
    fn remove_orphans(&self, store: &mut Store) -> Result<(), ebof_medium::Error> {
        if store.is_read_only() {
            return Ok(());
        }
        let known: Vec<VolumeId> = self.drive().state().volumes().collect();
        for orphan in self.medium.volumes().into_iter().filter(|volume| !known.contains(volume)) {
            tracing::info!(
                drive = self.name(),
                instance = orphan.0,
                "removing what was left half made or half removed"
            );
            store.remove(orphan)?;
        }
        Ok(())
    }

    /// Shows hosts what the drive has become, by a command of host `by` if it was one.
    pub(super) fn show(&self, by: Option<&Nqn>, reservations: &[Event], events: &[AsyncEvent]) {
        if let Some(callbacks) = &*self.callbacks() {
            (callbacks.publish)(by, reservations, events);
        }
    }

    /// Has queues end their commands to what they have lost.
    pub(super) fn send_drain(&self, lost: &Lost, token: &DrainToken) {
        if let Some(callbacks) = &*self.callbacks() {
            (callbacks.drain)(lost, token);
        }
    }

    /// Has what queues have at devices of what they have lost cancelled.
    pub(super) fn send_cancel(&self, lost: &Lost) {
        if let Some(callbacks) = &*self.callbacks() {
            (callbacks.cancel)(lost);
        }
    }

    /// Sends an event to one controller.
    pub(super) fn send_event(&self, controller: ControllerId, event: AsyncEvent) {
        if let Some(callbacks) = &*self.callbacks() {
            (callbacks.send_event)(controller, event);
        }
    }

    pub(super) fn decision_input(&self) -> DecisionInput {
        let mut entropy = [0; 32];
        // The identity of the drive came from there when it was made or opened.
        self.clock.fill(&mut entropy).expect("a system that had random bytes has more");
        for half in entropy.chunks_exact_mut(16) {
            let random: [u8; 16] = half.try_into().expect("chunks of 16");
            half.copy_from_slice(uuid::Builder::from_random_bytes(random).as_uuid().as_bytes());
        }
        DecisionInput {
            unix_ms: u64::try_from(self.clock.unix_time().as_millis()).unwrap_or(u64::MAX),
            uptime_ms: u64::try_from(self.age().as_millis()).unwrap_or(u64::MAX),
            entropy,
        }
    }
}

/// Steps a drive without threads until `receiver` has something; `None` when nothing will come.
fn step_until<T>(stepper: &mut Stepper, receiver: &Receiver<T>) -> Option<T> {
    loop {
        match receiver.try_recv() {
            Ok(received) => return Some(received),
            Err(TryRecvError::Empty) if !stepper.is_over() => stepper.turn(),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => return None,
        }
    }
}

/// Whether a request is more than looking at the drive, or having a controller of it.
fn changes_the_drive(request: &Request) -> bool {
    !matches!(request, Request::AssignCntlid | Request::Reset | Request::Log(_) | Request::SanitizeConfig(_))
}

/// An earlier version let hosts make a drive remember more than is kept well: it opens, and takes
/// no more of it.
fn trim(state: &mut State, drive: &str) {
    let bytes = state.to_bytes().len();
    if bytes <= budget::STATE_BYTES_MAX {
        return;
    }
    // What a checkpoint has room for besides namespaces, bad blocks and tags is not known before it
    // is written: it is more.
    let forgot = state.shrink(budget::STATE_BYTES_MAX + budget::STATE_BYTES_MAX / 4);
    tracing::warn!(
        drive,
        bytes,
        bytes_max = budget::STATE_BYTES_MAX,
        forgot,
        "the drive remembers more than it may: no more registrants and attachments are taken until there are fewer"
    );
}
