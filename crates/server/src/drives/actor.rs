//! The actor of one drive: what the drive decides, in the order in which its thread makes it
//! durable.
//!
//! Everything runs on the drive's thread: the medium is changed, the changes are made durable, the
//! drive's state is updated, the hosts are shown the result, and only then is the command answered.
//! Nothing waits for it but the command.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ebof_backend::Device;
use ebof_clock::Clock;
use ebof_drive::{Answer, Change, Drive, Effect, Origin, Refusal, Request, Settings, Unfinished, View, VolumeId};
use ebof_manage::api::DriveHealth;
use ebof_medium::{BackingFault, Medium, Notice, Progress, Stepper, Store};
use ebof_nvme::Status;
use ebof_nvme::media::SecureErase;

use super::handover::{Deadline, DrainRequest, Handover, Hurry, Waiting, attached_functions, names};
use super::jobs::{Jobs, erase, medium_status, wants_facts};
use super::leftovers::Leftovers;
use super::log::DriveLog;
use super::monitor::{self, Monitor};
use super::owed_ends::OwedEnds;
use super::report;
use super::request::{BegunRequest, DriveReply, QueuedRequest, SubmittedRequest};
use super::sensor::Sensor;
use super::state::DurableDrive;
use super::target::{DriveCallbacks, TargetLink};
use crate::drives::drain::DrainToken;
use crate::observe::log_limit::{Kind, LogSubject};

/// The actor of one drive.
pub(crate) struct DriveActor {
    pub(super) log: DriveLog,
    medium: Medium,
    /// Whether the drive was made when it was opened.
    was_made: bool,
    pub(super) state: DurableDrive,
    pub(super) clock: Clock,
    pub(super) target: TargetLink,
    monitor: Mutex<Monitor>,
    /// The Critical Warning that there was an event about.
    reported_warning: AtomicU8,
    /// [`DriveActor::collect_soon`] was called, and the collection has not begun.
    collects_soon: AtomicBool,
    pub(super) leftovers: Leftovers,
    pub(super) jobs: Jobs,
    handover: Mutex<Handover>,
    owed_ends: OwedEnds,
}

/// What has to be done before a request is answered.
#[derive(Default)]
struct Aftermath {
    /// Namespaces have to be erased.
    erased: Vec<VolumeId>,
    /// Commands to what was lost have to end.
    hands_over: bool,
}

/// What is called when it is dropped, also by a thread that does not come to it any more.
struct Finally(Option<Box<dyn FnOnce() + Send>>);

impl Drop for Finally {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done();
        }
    }
}

impl DriveActor {
    /// The actor of a drive on a medium that was opened; `was_made`: there was none before.
    pub(super) fn new(
        medium: Medium,
        drive: Drive,
        log: (String, String),
        was_made: bool,
        sensor: Option<Sensor>,
        clock: Clock,
    ) -> Self {
        let (name, backing) = log;
        Self {
            log: DriveLog::new(name, backing, clock.clone()),
            medium,
            was_made,
            state: DurableDrive::new(drive, clock.clone()),
            monitor: Mutex::new(Monitor::new(sensor, clock.clone())),
            clock,
            target: TargetLink::default(),
            collects_soon: AtomicBool::new(false),
            reported_warning: AtomicU8::new(0),
            leftovers: Leftovers::default(),
            jobs: Jobs::default(),
            handover: Mutex::default(),
            owed_ends: OwedEnds::default(),
        }
    }

    /// Whether the drive was made when it was opened: there was none.
    pub(crate) fn was_made(&self) -> bool {
        self.was_made
    }

    /// What the configuration calls it, for the log.
    pub(crate) fn name(&self) -> String {
        self.log.name()
    }

    /// The medium.
    pub(crate) fn medium(&self) -> &Medium {
        &self.medium
    }

    /// What the drive is now.
    pub(crate) fn view(&self) -> Arc<View> {
        self.drive().view()
    }

    /// The drive as hosts are shown it.
    pub(crate) fn shown(&self) -> Arc<View> {
        // In this order: a change and what is withheld of it come together.
        let mut view = self.view();
        self.handover().hide(&mut view);
        view
    }

    /// What of the drive itself is wanted. It stays locked meanwhile.
    pub(crate) fn with_drive<T>(&self, read: impl FnOnce(&Drive) -> T) -> T {
        read(&self.drive())
    }

    /// How much of a sanitize operation that is going on is done.
    pub(crate) fn sanitize_percent(&self) -> Option<u8> {
        self.with_drive(|drive| drive.sanitize_page().percent()).map(|percent| percent.min(99))
    }

    /// How much of a self-test that is going on is done.
    pub(crate) fn self_test_percent(&self) -> Option<u8> {
        let current = self.with_drive(|drive| drive.state().self_test.page().current());
        current.map(|(_, percent)| percent.min(99))
    }

    /// The namespaces' devices.
    pub(crate) fn devices(&self) -> BTreeMap<VolumeId, Arc<dyn Device>> {
        let volumes = self.medium.volumes();
        volumes.into_iter().filter_map(|volume| Some((volume, self.medium.device(volume)?))).collect()
    }

    /// From now on the drive is part of a target.
    pub(crate) fn join(&self, callbacks: DriveCallbacks) {
        self.target.join(callbacks);
    }

    /// Another configuration, which may call it something else.
    pub(crate) fn configure(&self, name: &str, settings: Settings) {
        self.log.rename(name);
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
            // It was withdrawn.
            let Some(begun) = queued.begin() else { return };
            let marked = store.mark_bad(volume, blocks);
            if let Err(error) = &marked
                && let Some(more) = own.log.may_log(LogSubject::Target, Kind::NotMarked)
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
        self.leave();
    }

    /// The same for a drive without threads.
    pub(crate) fn stop_stepped(self: &Arc<Self>, stepper: &mut Stepper) {
        let closed = self.begin_stop();
        let _closed = step_until(stepper, &closed);
        self.leave();
        while !stepper.is_over() {
            stepper.turn();
        }
    }

    /// Closes the drive in order; the receiver gets a message when that is done.
    pub(crate) fn begin_stop(self: &Arc<Self>) -> Receiver<()> {
        let (done, closed) = channel();
        let own = Arc::clone(self);
        self.medium.run(Box::new(move |store| {
            let waiting = own.handover().forget_waiting();
            drop(waiting);
            own.collect(store, true);
            let changes = own.drive().closed();
            if let Err(error) = own.state.commit(store, changes) {
                tracing::error!(drive = own.name(), "the drive cannot be closed in order: {error}");
            }
            let _waiting = done.send(());
        }));
        closed
    }

    /// Waits until `end` for what [`DriveActor::begin_stop`] has begun. `false`: the drive is not
    /// closed, and its thread is left to itself, for as long as the process lives.
    pub(crate) fn end_stop(self: &Arc<Self>, closed: &Receiver<()>, end: Instant) -> bool {
        let left = end.saturating_duration_since(Instant::now());
        if closed.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
            // The last one to be dropped would wait for that thread.
            std::mem::forget(Arc::clone(self));
            return false;
        }
        self.leave();
        true
    }

    fn leave(&self) {
        self.target.leave();
        self.medium.stop();
    }

    fn monitor(&self) -> MutexGuard<'_, Monitor> {
        self.monitor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn handover(&self) -> MutexGuard<'_, Handover> {
        self.handover.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn drive(&self) -> MutexGuard<'_, Drive> {
        self.state.lock()
    }

    /// Does a request, unless it was withdrawn or has to wait.
    fn process(self: &Arc<Self>, store: &mut Store, request: Request, origin: Origin, queued: QueuedRequest) {
        let waiting = self.handover().wait(Waiting { request, origin, queued });
        let Some(Waiting { request, origin, queued }) = waiting else { return };
        // It was withdrawn.
        let Some(begun) = queued.begin() else { return };
        let is_overdue = self.handover().check_overdue(&request);
        let (answer, Aftermath { erased, hands_over }) = match is_overdue {
            Ok(()) => self.carry_out(store, &request, &origin),
            Err(refusal) => (Err(refusal), Aftermath::default()),
        };
        self.jobs.start(self, store);
        let answer = match answer {
            Ok(reply) if !erased.is_empty() => {
                erase(self, store, erased, Box::new(move || begun.reply(Ok(reply))));
                return;
            }
            Ok(reply) if hands_over => {
                self.drain(store, begun, reply);
                return;
            }
            answer => answer,
        };
        if !erased.is_empty() {
            // The command has failed, but these are empty, and wait for their old data to be erased
            // like others.
            erase(self, store, erased, Box::new(|| {}));
        }
        if let Err(refusal) = &answer {
            let status = refusal.status;
            let name = request.name();
            if let Some(more) = self.log.may_log(LogSubject::Host(origin.host.clone()), Kind::DriveRefused) {
                tracing::info!(drive = self.name(), host = %origin.host, request = name, %status, "refused{more}");
            }
        }
        begun.reply(answer);
    }

    /// Returns the answer, and what has to be done before it is given, unless it is a refusal.
    fn carry_out(
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
            self.drive().set_medium_status(medium_status(&self.medium, store));
        }
        let decision = self.drive().decide(request, origin, &self.state.input());
        let decision = match decision {
            Ok(decision) => decision,
            Err(refusal) => return (Err(refusal), Aftermath::default()),
        };
        if store.is_read_only() && changes_the_drive(request) {
            return (Err(Refusal::new(Status::NAMESPACE_WRITE_PROTECTED)), Aftermath::default());
        }
        let attached = attached_functions(self.drive().state());
        let mut made = Vec::new();
        let prepared = decision.before.iter().try_for_each(|&effect| self.take_effect(store, effect, &mut made));
        let hands_over = !decision.lost.is_empty();
        let begin = |drive: &Drive| {
            // New owners never see what is not theirs yet: not even another thread, which shows
            // hosts a change of the configuration at this moment.
            self.handover().begin(&decision.lost, &attached, drive.state(), self.clock.now());
        };
        let committed = prepared.and_then(|()| self.state.commit_and(store, decision.changes, begin));
        if let Err(error) = committed {
            if let Some(more) = self.log.may_log(LogSubject::Host(origin.host.clone()), Kind::DriveFailed) {
                let request = request.name();
                tracing::error!(drive = self.name(), request, "the drive cannot do what it was asked: {error}{more}");
            }
            self.leftovers.add(made);
            self.leftovers.remove(store, &self.log);
            return (Err(Refusal::transient(Status::INTERNAL_ERROR)), Aftermath::default());
        }
        self.drive().set_erasing(&decision.erased, Some(100));
        // Hosts lose a namespace before its blocks are given to others.
        self.target.show(Some(&origin.host), &decision.notices, &decision.events);
        self.leftovers.add(decision.after.into_iter().filter_map(|effect| match effect {
            Effect::Remove(volume) => Some(volume),
            Effect::Create { .. } => None,
        }));
        let removed = self.leftovers.remove(store, &self.log);
        if let Some(event) = report::request_event(self.name(), request, origin, &decision.answer) {
            self.target.report(event);
        }
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
                    self.leftovers.forget(volume);
                }
                store.create(volume, blocks, capacity_blocks, block_format)?;
                made.push(volume);
                Ok(())
            }
            Effect::Remove(volume) => store.remove(volume),
        }
    }

    /// Has the queues of those who lost something end their commands to it, and then answers.
    fn drain(self: &Arc<Self>, store: &mut Store, begun: BegunRequest, reply: DriveReply) {
        let asked = self.handover().ask(begun, reply);
        let DrainRequest { number, lost, is_first } = match asked {
            Ok(asked) => asked,
            Err((begun, reply)) => return begun.reply(Ok(reply)),
        };
        if is_first {
            store.start(Box::new(Deadline(Arc::downgrade(self))));
        }
        let own = Arc::clone(self);
        let token = DrainToken::new(move || {
            let actor = Arc::clone(&own);
            own.medium.run(Box::new(move |store| actor.drained(number, store)));
        });
        self.target.drain(&lost, &token);
    }

    /// Queues have nothing left of what they lost: the new owners are shown it.
    fn drained(self: &Arc<Self>, number: u64, store: &mut Store) {
        let (was_overdue, drained) = self.handover().drained(number);
        if was_overdue {
            tracing::info!(drive = self.name(), "commands to what was taken away have ended at last");
        }
        self.target.show(None, &[], &[]);
        // It was overdue, and others have been let through meanwhile.
        let Some(drained) = drained else { return };
        if let Some((begun, reply)) = drained.request {
            begun.reply(Ok(reply));
        }
        self.resume(store);
    }

    /// What becomes of the handover that is waited for as time goes by: cancels, then gives up.
    pub(super) fn hurry(self: &Arc<Self>, store: &mut Store) -> Progress {
        let hurry = self.handover().hurry(self.clock.now());
        let drive = self.name();
        match hurry {
            Hurry::Nothing => return Progress::Done,
            Hurry::Wait(ms) => return Progress::Later(ms),
            Hurry::Cancel(lost) => {
                tracing::warn!(
                    drive,
                    lost = names(&lost),
                    "commands to what was taken away have not ended in time, and are cancelled"
                );
                self.target.cancel(&lost);
            }
            Hurry::GiveUp { lost, request } => {
                tracing::error!(
                    drive,
                    lost = names(&lost),
                    "the device below does not end commands to what was taken away: nobody else gets it before that"
                );
                if let Some(begun) = request {
                    begun.reply(Err(Refusal::transient(Status::COMMAND_INTERRUPTED)));
                }
                self.resume(store);
            }
        }
        Progress::Again
    }

    fn resume(self: &Arc<Self>, store: &mut Store) {
        let waiting = self.handover().take_waiting();
        for Waiting { request, origin, queued } in waiting {
            self.process(store, request, origin, queued);
        }
    }

    /// The temperature of the disk below the drive now; `None` where it has no sensor.
    pub(crate) fn kelvin(&self) -> Option<u16> {
        let sensor = self.monitor().sensor();
        sensor?.kelvin()
    }

    /// SMART / Health Information of the drive, as of the last collection.
    pub(crate) fn health(&self) -> DriveHealth {
        let temperature_kelvin = self.kelvin();
        monitor::health_of(&self.drive(), temperature_kelvin)
    }

    /// What keeps it from doing what hosts ask; `None` if nothing does.
    pub(crate) fn trouble(&self) -> Option<&'static str> {
        self.monitor().trouble()
    }

    /// Collects errors and counters, saves what is due (everything if `all`), and raises events. On
    /// the drive's thread.
    pub(super) fn collect(&self, store: &mut Store, all: bool) {
        self.log.log_left_out();
        let mut monitor = self.monitor();
        let observed = self.target.observe(monitor.errors);
        let collected = monitor.collect(observed);
        monitor::warn_of(&collected.shared_writers, &self.state, &self.log);
        let save = all || monitor.is_due();
        let best = |drive: &Drive| drive.settings().best_ana_state(&drive.condition());
        let (outcome, [before, now]) = {
            let mut drive = self.drive();
            drive.record_errors(collected.missed, &collected.errors);
            let (kelvin, capacity) = (collected.activity.kelvin, self.medium.capacity());
            let condition = monitor.condition(&drive.condition(), kelvin, capacity, store.is_read_only());
            let before = best(&drive);
            let outcome = drive.advance(&collected.activity, condition, save, &Origin::box_(), &self.state.input());
            (outcome, [before, best(&drive)])
        };
        let changes = monitor.take_changes(outcome.changes);
        drop(monitor);
        if before != now {
            // Hosts may leave before it is known whether this drive can write anything down.
            self.target.show(None, &[], &[]);
            self.log.ana_limit(now);
            self.target.report(report::ana_event(self.name(), now));
        }
        if let Some(changes) = changes {
            self.save(store, changes);
            self.target.show(None, &[], &outcome.events);
        }
        self.report_health();
    }

    /// Makes changes durable that no host asked for.
    fn save(&self, store: &mut Store, changes: Vec<Change>) {
        let events = monitor::kept_events(&changes);
        let outcome = self.state.commit(store, changes);
        let is_new = self.monitor().saved(outcome.is_ok(), events);
        match outcome {
            Err(error) if is_new => {
                tracing::error!(drive = self.name(), "health and errors cannot be written down: {error}");
            }
            Ok(()) if is_new => tracing::info!(drive = self.name(), "health and errors are written down again"),
            _ => {}
        }
    }

    /// Collects without waiting for the interval: data was lost, or the medium changed its state.
    /// Any number of calls before the collection begins leads to one.
    pub(crate) fn collect_soon(self: &Arc<Self>) {
        if self.collects_soon.swap(true, Ordering::AcqRel) {
            return;
        }
        let own = Arc::clone(self);
        self.medium.run(Box::new(move |store| {
            // What happens from here on may be missed by this collection.
            own.collects_soon.store(false, Ordering::Release);
            own.collect(store, false);
        }));
    }

    /// Handles a notice of the medium. On the drive's thread.
    pub(super) fn on_notice(self: &Arc<Self>, notice: Notice) {
        match notice {
            Notice::Fails(fault) => self.on_fault(fault, true),
            Notice::Works(fault) => self.on_fault(fault, false),
            _ => self.log.notice(notice),
        }
        if let Some(event) = report::notice_event(&self.name(), || self.view(), notice) {
            self.target.report(event);
        }
        let wants_collection = self.monitor().note(notice);
        if wants_collection {
            self.collect_soon();
        }
    }

    /// A fault of the backing device begins or ends. On the drive's thread.
    fn on_fault(&self, fault: BackingFault, fails: bool) {
        let is_told = self.monitor().note_fault(fault, fails);
        if is_told {
            self.target.report(report::fault_event(self.name(), fault, fails));
            self.log.fault(fault, fails);
        }
    }

    /// Reports that Critical Warning has changed since it was last looked at.
    fn report_health(&self) {
        let now = self.health().critical_warning;
        if self.reported_warning.swap(now, Ordering::Relaxed) != now {
            self.target.report(report::health_event(self.name(), now));
        }
    }

    /// Transactions of the box that are not over, by their identifiers.
    pub(crate) fn unfinished(&self) -> BTreeMap<String, Unfinished> {
        self.drive().state().transactions.clone()
    }

    /// Those that are over, which the drive could not store yet.
    pub(crate) fn owed_ends(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.owed_ends.lock()
    }

    /// Has the drive store that a transaction is over as soon as it can.
    pub(crate) fn store_end_later(&self, transaction: &str) {
        self.owed_ends().insert(transaction.to_owned());
    }

    /// Tries once more to store what could not be stored yet.
    pub(crate) fn pay_ends(self: &Arc<Self>) {
        let owed = self.owed_ends().clone();
        for transaction in owed {
            let own = Arc::clone(self);
            let end = Request::End(transaction.clone());
            let _submitted = self.submit(end, Origin::box_(), move |result| {
                if result.is_ok() {
                    tracing::info!(drive = own.name(), transaction, "it is stored now that the transaction is over");
                    own.owed_ends().remove(&transaction);
                }
            });
        }
    }
}

/// Steps a drive without threads until `receiver` has something; `None` when nothing will come.
pub(super) fn step_until<T>(stepper: &mut Stepper, receiver: &Receiver<T>) -> Option<T> {
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
