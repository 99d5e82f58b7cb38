//! The background thread of a controller, or the sequence that replaces it when stepped: serves the
//! Admin Queue (callers' commands, Keep Alive, asynchronous events, scans of the namespaces,
//! aborts) and reconnects. It waits for the link, the inbox or a timer.

mod aborts;
mod clearing;
pub(crate) mod pause;
mod rescan;
mod shutdown;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use ebof_nvme::event::{AsyncEvent, EventType};
use ebof_nvme::namespace::{AttachmentSelect, ManagementSelect, NamespaceManagement};
use ebof_nvme::opcode::admin;
use ebof_nvme::{Cqe, Nsid, QueueId, Sqe};

use crate::command::data::{AdminData, Completion, Data};
use crate::command::troubles::Trouble;
use crate::connect::establish;
use crate::engine::Engine;
use crate::error::connect_error::ConnectError;
use crate::error::state::State;
use crate::error::{Error, Loss};
use crate::shared::bindings::{Inspection, Reconciled};
use crate::shared::event::Event;
use crate::shared::{AdminAnswer, AdminRequest, ControllerMessage, Info, SharedController};
use crate::wait::Time;
use aborts::Aborts;
use clearing::Clearing;
use pause::{Attempts, gives_up_at, pause_ms};
use rescan::Rescan;
use shutdown::shut_down;

/// Meaning of `user` of a command; from `REQUEST` on, a caller's command.
mod tag {
    pub(super) const KEEP_ALIVE: u64 = 1;
    pub(super) const EVENT: u64 = 2;
    pub(super) const ABORT: u64 = 3;
    pub(super) const RESCAN: u64 = 4;
    pub(super) const CLEAR: u64 = 5;
    pub(super) const REQUEST: u64 = 16;
}

/// Asynchronous Event Requests that are kept outstanding.
const EVENT_REQUESTS: u16 = 4;
/// Events per second that are handled; further ones wait for the next second.
const EVENTS_PER_SECOND: u32 = 32;
/// Slots of the Admin Queue reserved for the thread's own commands: Keep Alive, a scan, Get Log
/// Page after an event, [`EVENT_REQUESTS`] and [`aborts::OUTSTANDING_MAX`].
const RESERVED: usize = 11;
/// The shortest time between two scans that no event requested.
const RESCAN_PAUSE_MS: u64 = 1000;

type Reply = SyncSender<AdminAnswer>;

/// The thread's state while it is connected.
struct Admin {
    shared: Arc<SharedController>,
    time: Time,
    engine: Engine<Vec<u8>>,
    /// Outstanding commands of callers, by tag.
    pending: BTreeMap<u64, Pending>,
    waiting_for_slot: VecDeque<AdminRequest>,
    next_tag: u64,
    /// Half the Keep Alive Timeout; `None` where there is no Keep Alive.
    keep_alive_ms: Option<u64>,
    keep_alive_due_ms: u64,
    keep_alive_sent: bool,
    /// Asynchronous Event Requests to send.
    events_to_request: u16,
    events_seen: u32,
    events_second: u64,
    aborts: Aborts,
    clearing: Clearing,
    rescan: Rescan,
    /// When the last scan ended.
    rescanned_ms: u64,
    /// When the next scan that no event requested is due; `u64::MAX` for never.
    rescan_due_ms: u64,
    attempts: Attempts,
}

/// An outstanding command of a caller.
struct Pending {
    /// `None` once the command has timed out for its caller.
    reply: Option<Reply>,
    timeout_ms: u64,
    /// The namespace that it deletes or detaches.
    removes: Option<Nsid>,
}

enum End {
    Cancelled,
    Lost(Loss),
}

/// Serves `engine` and its successors after reconnects, until the controller is disconnected or
/// given up.
pub(crate) async fn run(shared: Arc<SharedController>, engine: Engine<Vec<u8>>) {
    // Also if the thread panics: nobody may wait for it then.
    let _close_on_drop = CloseOnDrop(Arc::clone(&shared));
    let mut admin = Admin::new(shared, engine);
    loop {
        match admin.serve().await {
            End::Cancelled => {
                shut_down(&mut admin.engine, &admin.shared.waiter).await;
                break;
            }
            End::Lost(loss) => {
                if !admin.reconnect(&loss).await {
                    break;
                }
            }
        }
    }
    admin.fail_all(&Loss::Requested);
}

struct CloseOnDrop(Arc<SharedController>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Admin {
    fn new(shared: Arc<SharedController>, engine: Engine<Vec<u8>>) -> Self {
        let mut admin = Self {
            time: shared.waiter.time.clone(),
            shared,
            engine,
            pending: BTreeMap::new(),
            waiting_for_slot: VecDeque::new(),
            next_tag: tag::REQUEST,
            keep_alive_ms: None,
            keep_alive_due_ms: u64::MAX,
            keep_alive_sent: false,
            events_to_request: 0,
            events_seen: 0,
            events_second: 0,
            aborts: Aborts::default(),
            clearing: Clearing::default(),
            rescan: Rescan::default(),
            rescanned_ms: 0,
            rescan_due_ms: u64::MAX,
            attempts: Attempts::default(),
        };
        admin.begin();
        admin
    }

    /// Resets timers and requests for a new connection.
    fn begin(&mut self) {
        self.engine.share_troubles(&self.shared.troubles);
        let info = self.shared.info();
        let kato = u64::from(self.shared.options.keep_alive_ms);
        // KAS 0: the controller has no Keep Alive.
        self.keep_alive_ms = (kato > 0 && info.identify.kas.get() > 0).then_some((kato / 2).max(1));
        self.keep_alive_due_ms = self.keep_alive_ms.map_or(u64::MAX, |ms| self.time.now_ms() + ms);
        self.keep_alive_sent = false;
        self.events_to_request = EVENT_REQUESTS.min(info.identify.async_event_limit());
        self.aborts = Aborts::default();
        self.clearing = Clearing::default();
        for event in self.rescan.restart(info.namespaces.clone()) {
            self.shared.publish(&event);
        }
    }

    async fn serve(&mut self) -> End {
        loop {
            if self.shared.cancel.is_set() {
                return End::Cancelled;
            }
            if let Some(loss) = self.take_inbox() {
                return End::Lost(loss);
            }
            self.tell_troubles();
            self.submit_due();
            let mut none = AdminData::None;
            if let Err(loss) = self.engine.flush(&none).and_then(|()| self.engine.receive(&mut none)) {
                return End::Lost(loss);
            }
            let mut idle = true;
            while let Some(completion) = self.engine.pop() {
                idle = false;
                self.on_completion(completion);
            }
            if let Some(loss) = self.expire() {
                return End::Lost(loss);
            }
            if idle
                && !self.engine.has_unsent()
                && let Err(errno) = self.sleep().await
            {
                return End::Lost(Loss::Network(errno));
            }
        }
    }

    /// Waits for the link, the inbox or a timer.
    async fn sleep(&mut self) -> Result<(), rustix::io::Errno> {
        let link = self.engine.link().expect("a connection is served until it is lost");
        let mut due = self.keep_alive_due_ms.min(self.engine.next_deadline_ms()).min(self.rescan_due_ms);
        if self.events_to_request > 0 {
            due = due.min((self.events_second + 1) * 1000);
        }
        due = due.min(self.shared.troubles.due_ms());
        let deadline = self.time.until(due).map(|rest| self.time.now() + rest);
        let wakers = [&*self.shared.inbox_waker, self.shared.cancel.waker()];
        self.shared.waiter.wait(Some(link.watch()), &wakers, deadline).await
    }

    /// Tells what went wrong unnoticed, once a minute.
    fn tell_troubles(&self) {
        let SharedController { options, troubles, .. } = &*self.shared;
        for (trouble, count) in troubles.due(self.time.now_ms()) {
            let (address, nqn) = (options.address(), &options.nqn);
            match trouble.is_fault() {
                true => tracing::warn!(%address, %nqn, "{count} {trouble}"),
                false => tracing::info!(%address, %nqn, "{count} {trouble}"),
            }
            self.shared.publish(&Event::Trouble { trouble, count });
        }
    }

    fn take_inbox(&mut self) -> Option<Loss> {
        for message in self.shared.take_inbox() {
            match message {
                ControllerMessage::Admin(request) => self.waiting_for_slot.push_back(request),
                ControllerMessage::Abort { queue, cid } => self.aborts.push(queue, cid),
                ControllerMessage::Lost { generation, loss } if generation == self.shared.generation() => {
                    return Some(loss);
                }
                ControllerMessage::Lost { .. } => {}
                ControllerMessage::Reset => return Some(Loss::Requested),
                ControllerMessage::Rescan => {
                    let due = self.rescanned_ms.saturating_add(RESCAN_PAUSE_MS).max(self.time.now_ms());
                    self.rescan_due_ms = self.rescan_due_ms.min(due);
                }
            }
        }
        None
    }

    /// Submits commands that wait for a slot, and those whose timer is due.
    fn submit_due(&mut self) {
        while self.engine.in_flight() + RESERVED < self.engine.limit()
            && let Some(AdminRequest { sqe, data, timeout_ms, reply }) = self.waiting_for_slot.pop_front()
        {
            let user = self.next_tag;
            self.next_tag += 1;
            let removes = removed_namespace(&sqe);
            match self.engine.submit(sqe, data, user, timeout_ms) {
                Ok(()) => {
                    self.pending.insert(user, Pending { reply: Some(reply), timeout_ms, removes });
                }
                // The caller may have given up waiting.
                Err((error, _)) => drop(reply.try_send(Err(error))),
            }
        }
        let now = self.time.now_ms();
        if let Some(half) = self.keep_alive_ms
            && now >= self.keep_alive_due_ms
            && !self.keep_alive_sent
        {
            self.keep_alive_sent = self.submit(Sqe::new(admin::KEEP_ALIVE), Data::None, tag::KEEP_ALIVE, 2 * half);
            if self.keep_alive_sent {
                self.keep_alive_due_ms = u64::MAX;
            }
        }
        if now / 1000 != self.events_second {
            self.events_second = now / 1000;
            self.events_seen = 0;
        }
        while self.events_to_request > 0 && self.events_seen < EVENTS_PER_SECOND {
            if !self.submit(Sqe::new(admin::ASYNC_EVENT_REQUEST), Data::None, tag::EVENT, u64::MAX) {
                break;
            }
            self.events_to_request -= 1;
        }
        self.submit_clear();
        self.submit_aborts();
        if now >= self.rescan_due_ms {
            self.rescan_due_ms = u64::MAX;
            self.rescan.request();
        }
        if let Some(sqe) = self.rescan.next_command() {
            let data = Data::ToHost(vec![0; 4096]);
            if !self.submit(sqe, data, tag::RESCAN, self.admin_timeout_ms()) {
                self.rescan.not_sent();
            }
        }
    }

    fn submit(&mut self, sqe: Sqe, data: Data, user: u64, timeout_ms: u64) -> bool {
        self.engine.submit(sqe, data, user, timeout_ms).is_ok()
    }

    fn admin_timeout_ms(&self) -> u64 {
        u64::from(self.shared.options.admin_timeout_ms)
    }

    fn submit_aborts(&mut self) {
        while let Some((queue, cid)) = self.aborts.next() {
            if queue.is_admin() && self.engine.slots().find(cid).is_none() {
                continue;
            }
            let sqe = Sqe::new(admin::ABORT).with_cdw(10, u32::from(queue.0) | u32::from(cid.0) << 16);
            if !self.submit(sqe, Data::None, tag::ABORT, self.admin_timeout_ms()) {
                return self.aborts.not_sent(queue, cid);
            }
            self.aborts.sent();
        }
    }

    /// Reads the log page of an event.
    fn submit_clear(&mut self) {
        let Some(sqe) = self.clearing.next() else { return };
        if !self.submit(sqe, Data::ToHost(vec![0; Clearing::BYTES]), tag::CLEAR, self.admin_timeout_ms()) {
            self.clearing.not_sent();
        }
    }

    /// The log page of an event was read, or not.
    fn on_cleared(&mut self, succeeded: bool, data: &Data) {
        let log = if let (true, Data::ToHost(bytes)) = (succeeded, data) { bytes.as_slice() } else { &[] };
        if let Some(groups) = self.clearing.answered(log) {
            tracing::info!(address = %self.shared.options.address(), groups, "access to namespaces changed");
            self.shared.count_path_change();
        }
    }

    fn on_completion(&mut self, completion: Completion) {
        let Completion { user, result, data } = completion;
        if result.as_ref().is_ok_and(|cqe| !cqe.status().is_success()) {
            self.shared.troubles.note(Trouble::Refused);
        }
        match user {
            tag::KEEP_ALIVE => {
                self.keep_alive_sent = false;
                let half = self.keep_alive_ms.unwrap_or(u64::MAX / 2);
                self.keep_alive_due_ms = self.time.now_ms() + half;
            }
            tag::EVENT => {
                if let Ok(cqe) = result
                    && cqe.status().is_success()
                {
                    self.events_to_request += 1;
                    self.events_seen += 1;
                    self.on_event(AsyncEvent::decode(cqe.dw0.get()));
                }
            }
            tag::ABORT => self.aborts.completed(),
            tag::RESCAN => self.on_rescan(result.as_ref().ok(), &data),
            tag::CLEAR => self.on_cleared(result.is_ok_and(|cqe| cqe.status().is_success()), &data),
            user => {
                // Whatever the target sends: the engine completes each command once.
                let pending = self.pending.remove(&user);
                let Pending { reply, removes, .. } = pending.expect("a caller's command is kept until it completes");
                let is_done = result.as_ref().is_ok_and(|cqe| cqe.status().is_success());
                if let Some(nsid) = removes.filter(|_| is_done) {
                    self.namespace_removed(nsid);
                }
                if let Some(reply) = reply {
                    drop(reply.try_send(result.map(|cqe| (cqe, data))));
                }
            }
        }
    }

    /// A caller's command has deleted or detached a namespace. The controller need not send an
    /// event for that, and another namespace may get the number before the next scan.
    fn namespace_removed(&mut self, nsid: Nsid) {
        let open = self.shared.bindings.begin_scan();
        let gone = open.into_iter().filter(|&open| open == nsid || nsid == Nsid::ALL);
        self.reconcile(&gone.map(Inspection::absent).collect::<Vec<_>>());
        // If it was detached only from other controllers, the scan finds it.
        self.rescan.removed(nsid);
    }

    fn on_event(&mut self, event: AsyncEvent) {
        if event.kind == EventType::Notice && event.info == AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED.info {
            self.rescan.request();
            return;
        }
        if event.kind == EventType::Notice && event.info == AsyncEvent::DISCOVERY_LOG_CHANGE.info {
            self.shared.publish(&Event::DiscoveryChanged);
            return;
        }
        self.shared.publish(&Event::Asynchronous {
            kind: event.kind.encode(),
            info: event.info,
            log_page: event.log_page.0,
        });
        if matches!(event.kind, EventType::Error | EventType::SmartHealth | EventType::Notice) {
            self.clearing.add(event.log_page);
        }
    }

    fn on_rescan(&mut self, cqe: Option<&Cqe>, data: &Data) {
        let answer = match (cqe, data) {
            (Some(cqe), Data::ToHost(bytes)) => Some((cqe.status(), bytes.as_slice())),
            _ => None,
        };
        let bindings = &self.shared.bindings;
        let progress = self.rescan.answer(answer, || bindings.begin_scan());
        self.reconcile(&progress.inspected);
        if progress.retry_later {
            self.rescan_due_ms = self.time.now_ms() + RESCAN_PAUSE_MS;
        }
        if let Some(events) = progress.done {
            self.rescanned_ms = self.time.now_ms();
            for event in events {
                self.shared.publish(&event);
            }
        }
    }

    /// Restricts commands to namespaces that were replaced, and publishes the event.
    fn reconcile(&self, inspected: &[Inspection]) {
        for one in inspected {
            if self.shared.bindings.reconcile(one) == Reconciled::Replaced {
                let address = self.shared.options.address();
                tracing::error!(%address, nsid = one.nsid.0, "the namespace is another one now: nothing is sent to it");
                self.shared.publish(&Event::NamespaceReplaced(one.nsid));
            }
        }
    }

    /// Aborts commands that timed out. Returns a loss if an abort did not help.
    fn expire(&mut self) -> Option<Loss> {
        let mut expired = Vec::new();
        // The caller's time-out may be short, so the abort gets the default one.
        let grace_ms = self.admin_timeout_ms();
        let abort_timed_out =
            self.engine.slots().expire(self.time.now_ms(), grace_ms, |cid, user| expired.push((cid, user)));
        if abort_timed_out {
            return Some(Loss::CommandTimeout);
        }
        for (cid, user) in expired {
            if user == tag::KEEP_ALIVE {
                return Some(Loss::KeepAlive);
            }
            self.aborts.push(QueueId::ADMIN, cid);
            // The command may still succeed, and its completion is processed then.
            if let Some(Pending { reply, timeout_ms, .. }) = self.pending.get_mut(&user)
                && let Some(reply) = reply.take()
            {
                drop(reply.try_send(Err(Error::Timeout { after_ms: *timeout_ms })));
            }
        }
        self.submit_aborts();
        None
    }

    /// Completes all outstanding and waiting commands with an error.
    fn fail_all(&mut self, loss: &Loss) {
        self.engine.lose(loss);
        while let Some(completion) = self.engine.pop() {
            if let Some(Pending { reply: Some(reply), .. }) = self.pending.remove(&completion.user) {
                drop(reply.try_send(completion.result.map(|cqe| (cqe, completion.data))));
            }
        }
        self.pending.clear();
        for request in self.waiting_for_slot.drain(..) {
            drop(request.reply.try_send(Err(self.shared.not_connected())));
        }
    }

    fn refuse_inbox(&self) {
        for message in self.shared.take_inbox() {
            if let ControllerMessage::Admin(request) = message {
                drop(request.reply.try_send(Err(self.shared.not_connected())));
            }
        }
    }

    /// Reconnects. False if the controller was given up (`ctrl_loss_tmo`) or disconnected.
    async fn reconnect(&mut self, loss: &Loss) -> bool {
        let shared = Arc::clone(&self.shared);
        let options = &shared.options;
        tracing::warn!(address = %options.address(), nqn = %options.nqn, %loss, "connection lost, reconnecting");
        if let Some(trouble) = Trouble::from_loss(loss) {
            shared.troubles.note(trouble);
        }
        shared.set_down(State::Reconnecting);
        self.fail_all(loss);
        shared.publish(&Event::ConnectionLost(loss.to_string()));
        let since = self.time.now();
        let mut why = loss.to_string();
        if *loss == Loss::Requested {
            self.attempts = Attempts::default();
        }
        self.attempts.lost(since);
        loop {
            let attempt = self.attempts.next();
            let pause_ms = pause_ms(attempt, options.reconnect_delay_ms, self.time.jitter());
            if !self.pause(pause_ms, since).await {
                break;
            }
            match self.establish().await {
                Ok((engine, info)) => {
                    self.resume(engine, info);
                    return true;
                }
                Err(error) => {
                    tracing::info!(address = %options.address(), attempt, error = %error.summary(), "reconnecting failed");
                    why = error.summary();
                }
            }
        }
        if shared.cancel.is_set() {
            return false;
        }
        tracing::error!(address = %options.address(), nqn = %options.nqn, %why, "gave up reconnecting");
        shared.set_down(State::Dead);
        shared.publish(&Event::GaveUp(why));
        false
    }

    /// Connects a new Admin Queue and inspects the open namespaces, before any command is sent to
    /// one.
    async fn establish(&mut self) -> Result<(Engine<Vec<u8>>, Info), ConnectError> {
        let SharedController { options, waiter, cancel, .. } = &*self.shared;
        let (mut engine, mut info) = establish::controller(options, None, waiter, cancel).await?;
        let open = self.shared.bindings.begin_scan();
        info.inspected = establish::inspect_namespaces(&mut engine, options, &open, waiter, cancel).await?;
        Ok((engine, info))
    }

    fn resume(&mut self, engine: Engine<Vec<u8>>, mut info: Info) {
        tracing::info!(address = %self.shared.options.address(), controller = %info.id, "reconnected");
        self.engine = engine;
        self.reconcile(&std::mem::take(&mut info.inspected));
        info.limits = info.limits.after(self.shared.info().limits);
        self.shared.set_live(info);
        self.shared.publish(&Event::Reconnected);
        self.attempts.succeeded(self.time.now());
        self.begin();
    }

    /// Sleeps before an attempt, and refuses commands in that time. False if there is to be no
    /// further attempt.
    async fn pause(&mut self, pause_ms: u64, since: Instant) -> bool {
        let end = self.time.now() + Duration::from_millis(pause_ms);
        loop {
            self.refuse_inbox();
            self.tell_troubles();
            let now = self.time.now();
            let lost_for = now.saturating_duration_since(since);
            if self.shared.cancel.is_set() || self.shared.options.ctrl_loss_tmo.is_some_and(|max| lost_for >= max) {
                return false;
            }
            if now >= end {
                return true;
            }
            let until = gives_up_at(since, self.shared.options.ctrl_loss_tmo).map_or(end, |at| end.min(at));
            let waiter = &self.shared.waiter;
            let wakers = [&*self.shared.inbox_waker, self.shared.cancel.waker()];
            if waiter.wait(None, &wakers, Some(until)).await.is_err() {
                waiter.sleep(until.saturating_duration_since(now), Some(&self.shared.cancel)).await;
            }
        }
    }
}

/// The namespace that a command deletes or detaches.
fn removed_namespace(sqe: &Sqe) -> Option<Nsid> {
    let removes = match sqe.opcode {
        admin::NAMESPACE_MANAGEMENT => NamespaceManagement::decode(sqe).select == ManagementSelect::Delete,
        admin::NAMESPACE_ATTACHMENT => AttachmentSelect::decode(sqe) == AttachmentSelect::Detach,
        _ => false,
    };
    removes.then(|| sqe.nsid())
}
