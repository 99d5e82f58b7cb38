//! The keeper of a path: it asks what the path is good for, and what became of its commands when it
//! was lost.
//!
//! It may wait for its own controller, and for another one's answer; so each path has its own, and
//! a path that does not answer keeps no other waiting. It is a sequence: a thread runs it to its
//! end, and the caller of a stepped host steps it ([`crate::stepped`]).

use std::sync::{Arc, Once, Weak};
use std::time::{Duration, Instant};

use ebof_nvme::command::{ControllerInstance, is_reset_at_once};
use ebof_nvme::log::{
    CrossControllerResetState, GetLogPage, Lid, cross_controller_reset_lsp, read_cross_controller_reset_log,
};
use ebof_nvme::opcode::admin;
use ebof_nvme::{Nsid, Sqe, Status};
use rustix::io::Errno;

use super::Inner;
use super::access::PathAccess;
use super::path::Path;
use crate::command::data::Data;
use crate::controller::Controller;
use crate::error::state::State;
use crate::error::{Error, Loss};
use crate::shared::fence::Fence;
use crate::shared::{ControllerMessage, Info};
use crate::wait::{Waiter, run};

/// How long an answer may take that is asked for here.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the last answer may take of a path that has not answered, while others do.
const ANSWER_AGAIN: Duration = Duration::from_millis(100);
/// How often a path is looked at that has outstanding commands, while there are other paths.
const PROBE_INTERVAL: Duration = Duration::from_millis(400);
/// Pauses between two attempts to have a controller reset, doubled up to the last.
const RESET_PAUSES: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(500)];
/// How often the access is read again that has changed while it was read.
const ACCESS_TRIES: u32 = 4;
/// The pause before an access is read again that could not be read.
const ACCESS_PAUSE: Duration = Duration::from_secs(1);
/// Bytes of the ANA log that are read first.
const ACCESS_BYTES: usize = 4096;
/// Associations that were lost, whose controllers may still execute commands.
const LOST_MAX: usize = 16;

/// Starts the thread of a path's keeper. It ends when the path is removed, or nobody has the
/// subsystem.
///
/// # Errors
/// The system starts no thread.
pub(super) fn start(subsystem: Weak<Inner>, path: Arc<Path>) -> Result<(), Error> {
    let thread = std::thread::Builder::new().name(format!("nvme-path-{}", path.id.0));
    let started = thread.spawn(move || run(keep(subsystem, path)));
    started.map(drop).map_err(|error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::AGAIN);
        Error::System { action: "starting the thread of a path", errno }
    })
}

/// Keeps a path until it is removed, or nobody has the subsystem.
pub(super) async fn keep(subsystem: Weak<Inner>, path: Arc<Path>) {
    let waiter = path.controller.shared().waiter.another();
    keep_with(subsystem, path, waiter).await;
}

/// As [`keep`], waiting by `waiter`.
pub(super) async fn keep_with(subsystem: Weak<Inner>, path: Arc<Path>, waiter: Waiter) {
    Keeper::new(path, waiter).run(&subsystem).await;
}

struct Keeper {
    path: Arc<Path>,
    waiter: Waiter,
    /// The present association, or the last one.
    info: Arc<Info>,
    /// Earlier ones that have not ended yet.
    lost: Vec<Lost>,
    /// For which of the reports of a change the access was read.
    access_of: Option<(Arc<Info>, u64)>,
    access_due: Option<Instant>,
    /// What the path had when it was last looked at.
    probed: Option<(Instant, u64)>,
}

/// An association that was lost.
struct Lost {
    fence: Arc<Fence>,
    /// What another controller needs in order to reset it.
    instance: Option<ControllerInstance>,
    pause: Duration,
    next: Instant,
}

/// What came of asking another controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reset {
    /// The controller executes nothing any more.
    Done,
    /// It was accepted, or may be later.
    Later,
    /// The other controller does not do that.
    Refused,
}

impl Keeper {
    fn new(path: Arc<Path>, waiter: Waiter) -> Self {
        let info = path.controller.shared().info();
        Self { path, waiter, info, lost: Vec::new(), access_of: None, access_due: None, probed: None }
    }

    async fn run(mut self, subsystem: &Weak<Inner>) {
        let shared = Arc::clone(self.path.controller.shared());
        loop {
            let seen = shared.bell.rung();
            let Some(inner) = subsystem.upgrade() else { return };
            let due = self.step(&inner).await;
            // What it loses when it is disconnected is seen to the end.
            if self.path.is_removed() && shared.state() != State::Live && self.lost.is_empty() {
                return;
            }
            drop(inner);
            shared.bell.wait_with(&self.waiter, seen, due).await;
        }
    }

    fn now(&self) -> Instant {
        self.waiter.time.now()
    }

    /// Does what is to be done. Returns when there will be more, if nothing happens before.
    async fn step(&mut self, inner: &Inner) -> Option<Instant> {
        self.note_losses();
        inner.bind_late(&self.path, &self.waiter).await;
        let of_access = self.read_access(inner).await;
        let of_fences = self.end_fences(inner).await;
        let of_probe = self.probe(inner).await;
        [of_access, of_fences, of_probe].into_iter().flatten().min()
    }

    /// Takes over associations that were lost since the last step.
    fn note_losses(&mut self) {
        let shared = Arc::clone(self.path.controller.shared());
        let present = shared.info();
        if !Arc::ptr_eq(&present, &self.info) {
            let before = std::mem::replace(&mut self.info, present);
            self.note_lost(&before);
        }
        if shared.state() != State::Live {
            let info = Arc::clone(&self.info);
            self.note_lost(&info);
        }
    }

    fn note_lost(&mut self, info: &Info) {
        let fence = &info.fence;
        if fence.is_none() {
            static TOLD: Once = Once::new();
            let address = self.path.controller.options().address();
            TOLD.call_once(|| {
                tracing::warn!(
                    %address,
                    "writes are repeated although the lost controller may still execute them: it offers neither \
                     Cross-Controller Reset nor a Command Quiesce Time; --fence-tmo has them wait"
                );
            });
        }
        if self.lost.iter().any(|lost| Arc::ptr_eq(&lost.fence, fence)) || fence.is_over(self.now()) {
            return;
        }
        if self.lost.len() >= LOST_MAX {
            // The eldest ends by its time, of which its commands' owners know.
            self.lost.remove(0);
        }
        let instance = info.identify.instance();
        let [pause, _] = RESET_PAUSES;
        self.lost.push(Lost { fence: Arc::clone(fence), instance, pause, next: self.now() });
    }

    /// Has the controllers of lost associations reset, and tells whoever waits when one has ended.
    async fn end_fences(&mut self, inner: &Inner) -> Option<Instant> {
        for lost in &mut self.lost {
            let now = self.waiter.time.now();
            let Some(instance) = lost.instance.filter(|_| !lost.fence.is_over(now) && now >= lost.next) else {
                continue;
            };
            match reset_through_others(inner, instance, &self.waiter).await {
                Reset::Done => lost.fence.lift(),
                Reset::Later => {
                    let [_, longest] = RESET_PAUSES;
                    lost.next = now + lost.pause;
                    lost.pause = (lost.pause * 2).min(longest);
                }
                // Another one may do it that is not there yet.
                Reset::Refused => {
                    let [_, longest] = RESET_PAUSES;
                    lost.next = now + longest;
                }
            }
        }
        let now = self.now();
        let before = self.lost.len();
        self.lost.retain(|lost| !lost.fence.is_over(now));
        if self.lost.len() < before {
            inner.wake();
        }
        let due = |lost: &Lost| lost.fence.ends_at().into_iter().chain(lost.instance.map(|_| lost.next)).min();
        self.lost.iter().filter_map(due).min()
    }

    /// Reads the access to the namespaces after a connect, and after each report that it changed.
    async fn read_access(&mut self, inner: &Inner) -> Option<Instant> {
        let shared = Arc::clone(self.path.controller.shared());
        if shared.state() != State::Live || !PathAccess::is_reported(&self.info.identify) {
            return None;
        }
        let changes = shared.path_changes();
        let is_read = self.access_of.as_ref().is_some_and(|(info, of)| Arc::ptr_eq(info, &self.info) && *of == changes);
        if is_read || self.access_due.is_some_and(|due| self.now() < due) {
            return self.access_due;
        }
        match read_access(&self.path.controller, &self.waiter).await {
            Ok(access) => {
                self.access_of = Some((Arc::clone(&self.info), changes));
                self.access_due = None;
                self.path.set_access(access);
                // Also if it is as before: what was refused meanwhile is asked for again.
                inner.announce();
            }
            Err(error @ Error::Status { .. }) => {
                // It would be the same again.
                self.access_of = Some((Arc::clone(&self.info), changes));
                let address = self.path.controller.options().address();
                tracing::warn!(%address, %error, "the controller has no log page of the access (ANA) that it announces");
            }
            Err(error) => {
                let address = self.path.controller.options().address();
                tracing::warn!(%address, %error, "the access to namespaces (ANA) was not read");
                self.access_due = Some(self.now() + ACCESS_PAUSE);
            }
        }
        self.access_due
    }

    /// A path whose commands do not complete, while there are other paths, has to answer at least
    /// a Keep Alive. Without other paths, whoever waits loses nothing by waiting for Keep Alive's
    /// own time.
    async fn probe(&mut self, inner: &Inner) -> Option<Instant> {
        let shared = self.path.controller.shared();
        let is_other = |path: &Arc<Path>| path.id != self.path.id && path.controller.state() == State::Live;
        if shared.state() != State::Live || self.info.identify.kas.get() == 0 || !inner.paths().iter().any(is_other) {
            self.probed = None;
            return None;
        }
        let (now, (in_flight, completed)) = (self.now(), self.path.totals());
        let next = now + PROBE_INTERVAL;
        match self.probed {
            Some((at, _)) if now < at + PROBE_INTERVAL => return Some(at + PROBE_INTERVAL),
            Some((_, before)) if in_flight > 0 && before == completed => {
                let generation = shared.generation();
                let is_silent = self.is_silent(ANSWER_TIMEOUT).await;
                // A target that stands still as a whole has no better path. If it goes on just now,
                // this one answers, too.
                if is_silent && self.others_answer(inner).await && self.is_silent(ANSWER_AGAIN).await {
                    let (address, limit_ms) = (self.path.controller.options().address(), ANSWER_TIMEOUT.as_millis());
                    tracing::warn!(%address, limit_ms, "the path does not answer, and others do: it is given up");
                    shared.send(ControllerMessage::Lost { generation, loss: Loss::KeepAlive });
                }
            }
            _ => {}
        }
        self.probed = Some((now, completed));
        Some(next)
    }

    /// Whether the path does not answer for as long as this.
    async fn is_silent(&self, limit: Duration) -> bool {
        let asked = ask_for_life(&self.path.controller, &self.waiter, limit).await;
        matches!(asked, Err(Error::Timeout { .. }))
    }

    /// Whether another path answers.
    async fn others_answer(&self, inner: &Inner) -> bool {
        for path in inner.paths().iter() {
            let is_other = path.id != self.path.id && path.controller.state() == State::Live;
            if is_other && ask_for_life(&path.controller, &self.waiter, ANSWER_TIMEOUT).await.is_ok() {
                return true;
            }
        }
        false
    }
}

async fn ask_for_life(controller: &Controller, waiter: &Waiter, limit: Duration) -> Result<(), Error> {
    let sqe = Sqe::new(admin::KEEP_ALIVE);
    controller.admin_with(waiter, sqe, Data::None, Some(limit)).await.map(drop)
}

/// Asks each controller that is there to reset another one, until one of them has done it.
async fn reset_through_others(inner: &Inner, instance: ControllerInstance, waiter: &Waiter) -> Reset {
    let mut result = Reset::Refused;
    let paths = inner.paths();
    // Where none is there, one may come.
    if !paths.iter().any(|path| path.controller.state() == State::Live) {
        return Reset::Later;
    }
    for path in paths.iter().filter(|path| path.controller.state() == State::Live) {
        let controller = &path.controller;
        if controller.identify().ccrl == 0 || controller.identify().instance() == Some(instance) {
            continue;
        }
        let address = controller.options().address();
        match reset_through(controller, instance, waiter).await {
            Ok(Reset::Done) => {
                tracing::info!(%address, controller = %instance.id, "the lost controller was reset through another path");
                return Reset::Done;
            }
            Ok(reset) => {
                result = if result == Reset::Refused { reset } else { result };
            }
            Err(error) => {
                tracing::info!(%address, controller = %instance.id, %error, "a controller was not reset through another path");
                result = Reset::Later;
            }
        }
    }
    result
}

async fn reset_through(controller: &Controller, instance: ControllerInstance, waiter: &Waiter) -> Result<Reset, Error> {
    let ask = instance.reset_command();
    let (cqe, _) = controller.admin_with(waiter, ask, Data::None, Some(ANSWER_TIMEOUT)).await?;
    let status = cqe.status();
    if status.is_success() && is_reset_at_once(&cqe) {
        return Ok(Reset::Done);
    }
    if status.is(Status::CROSS_CONTROLLER_RESET_LIMIT_EXCEEDED) {
        return Ok(Reset::Later);
    }
    let is_full = status.is(Status::CROSS_CONTROLLER_RESET_LOG_FULL);
    let is_begun = status.is_success() || status.is(Status::CROSS_CONTROLLER_RESET_IN_PROGRESS);
    if !is_begun && !is_full {
        tracing::info!(controller = %instance.id, %status, "Cross-Controller Reset was refused");
        return Ok(Reset::Refused);
    }
    let log = vec![0; 4096];
    let lsp = if is_full { cross_controller_reset_lsp::REMOVE_COMPLETED } else { 0 };
    let get = GetLogPage { lsp, ..GetLogPage::new(Lid::CROSS_CONTROLLER_RESET, log.len() as u64) };
    let get = get.encode(Nsid::NONE);
    let (read, log) = controller.admin_with(waiter, get, Data::ToHost(log), Some(ANSWER_TIMEOUT)).await?;
    let log = log.into_buffer().unwrap_or_default();
    if is_full {
        // Nothing was begun: an entry like it is of an earlier instance.
        return Ok(Reset::Later);
    }
    let entries = if read.status().is_success() { read_cross_controller_reset_log(&log) } else { None };
    let mut about = entries.unwrap_or_default().iter().rev();
    let about = about.find(|entry| entry.is_about(instance.id, instance.uniquifier));
    Ok(match about.map(|entry| entry.state()) {
        Some(CrossControllerResetState::Successful) => Reset::Done,
        Some(CrossControllerResetState::Failed) => Reset::Refused,
        _ => Reset::Later,
    })
}

/// Reads the ANA log page, all of it by one command, so that it is of one moment.
async fn read_access(controller: &Controller, waiter: &Waiter) -> Result<PathAccess, Error> {
    let identify = controller.identify();
    let page_bytes = PathAccess::page_bytes(&identify);
    let most = controller.max_transfer_bytes().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX);
    let most = (most & !3).min(page_bytes);
    let mut bytes = ACCESS_BYTES.min(most);
    let mut before = None;
    for _ in 0..ACCESS_TRIES {
        let log = Data::ToHost(vec![0; bytes]);
        let get = GetLogPage::new(Lid::ANA, bytes as u64).encode(Nsid::ALL);
        let (cqe, log) = controller.admin_with(waiter, get, log, Some(ANSWER_TIMEOUT)).await?;
        let log = log.into_buffer().unwrap_or_default();
        cqe.status().ok().map_err(|status| Error::Status { command: "Get Log Page (ANA)", status })?;
        let (access, missing) = PathAccess::parse(&log).ok_or(Error::Malformed("the ANA log page"))?;
        if missing == 0 {
            return Ok(access);
        }
        if bytes == most {
            before = Some(access);
            break;
        }
        bytes = bytes.saturating_mul(8).min(most);
    }
    before.ok_or(Error::Malformed("the ANA log page: it is longer than the controller's limits say"))
}
