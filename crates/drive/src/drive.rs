//! A drive: decides what becomes of its hosts' requests.
//!
//! Deciding changes no durable state. A [`Decision`] contains the changes to be made durable, and
//! what is to be done on the medium before and after that; then the changes are applied
//! ([`Drive::apply`]) and the host is answered.
//!
//! Who may ask for something, and whether a reservation or a sanitize operation is in the way, is
//! decided here. What it means is in the parts: `namespaces`, `attachments`, `functions`,
//! `reservations`, `transactions`, `firmware`, `sanitize`. What happens to a drive without a
//! command is here, too: counters advance, errors are recorded, its condition changes.

mod attachments;
mod capture;
mod decision;
mod erasing;
mod firmware;
mod functions;
mod health;
mod namespaces;
mod pages;
mod request;
mod reservations;
mod sanitize;
mod self_test;
mod settings;
#[cfg(test)]
mod tests;
mod transactions;
pub mod view;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use ebof_nvme::firmware::Commit;
use ebof_nvme::log::{Lid, SanitizeLog, SelfTestCode, telemetry_lsp};
use ebof_nvme::media::{Format, Sanitize as SanitizeCommand};
use ebof_nvme::{Nsid, Status};

use self::attachments::AttachmentTable;
use self::erasing::Erasing;
use self::firmware::FirmwareUpdate;
use self::functions::FunctionTable;
use self::health::{HealthFacts, HealthWatch, News};
use self::namespaces::Namespaces;
use self::reservations::ReservationTable;
use self::sanitize::{SanitizeProgress, sanitized};
use self::self_test::tested;
use self::transactions::Transactions;
use crate::change::{Change, State};
use crate::function::Function;
use crate::logs::error_log::{self, Urgency};
use crate::logs::event_log::Contexts;
use crate::logs::health::{Activity, Condition, Endurance};
use crate::logs::telemetry::HostTelemetry;
use crate::maintenance::firmware::{Limits, Personality};
use crate::maintenance::sanitize::{Capabilities, Method, Restriction, Work};
use crate::maintenance::self_test::{Cause, Failure};
use crate::namespace::{Namespace, VolumeId};
use crate::request::{Answer, DecisionInput, Origin, Refusal};

pub use capture::MediumStatus;
pub use decision::{Decision, Effect};
pub use health::HealthUpdate;
pub use pages::{is_offered, keeps_page};
pub use request::{LogQuery, Ordered, Request};
pub use sanitize::Sanitized;
pub use settings::{Capacity, Managers, Settings};

use view::View;

/// A drive's state, and the decisions about its hosts' requests.
#[derive(Debug)]
pub struct Drive {
    state: State,
    settings: Settings,
    capacity: Capacity,
    health: HealthWatch,
    firmware_update: FirmwareUpdate,
    /// Reporting contexts of the Persistent Event Log.
    contexts: Contexts,
    /// The telemetry that a host had captured.
    telemetry: HostTelemetry,
    medium_status: MediumStatus,
    erasing: Erasing,
    sanitizing: SanitizeProgress,
}

impl Drive {
    /// The drive that was in `state`.
    #[must_use]
    pub fn new(state: State, settings: Settings, capacity: Capacity) -> Self {
        Self {
            state,
            settings,
            capacity,
            health: HealthWatch::new(capacity.total_bytes),
            firmware_update: FirmwareUpdate::default(),
            contexts: Contexts::default(),
            telemetry: HostTelemetry::default(),
            medium_status: MediumStatus::default(),
            erasing: Erasing::default(),
            sanitizing: SanitizeProgress::default(),
        }
    }

    /// The durable state.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The settings of the configuration.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes the settings. What exists already and the new settings do not allow stays as it is.
    pub fn configure(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Sizes of its medium.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// Applies a change that is durable.
    pub fn apply(&mut self, change: Change) {
        if matches!(change, Change::Sanitized { .. }) {
            // The new state says whether hosts have written.
            self.sanitizing.stored();
        }
        self.state.apply(change);
    }

    /// A snapshot for controllers and log pages.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        Arc::new(View::new(self))
    }

    /// Decides what is to be done for a request.
    ///
    /// # Errors
    /// The request is refused, with the specification's status.
    #[expect(clippy::too_many_lines, reason = "one line or two for each request")]
    pub fn decide(&mut self, request: &Request, origin: &Origin, input: &DecisionInput) -> Result<Decision, Refusal> {
        if let Some(restriction) = self.restriction() {
            request.check(restriction)?;
        }
        match request {
            Request::Create(wanted) => {
                self.settings.check_manager(origin)?;
                self.namespaces().create(wanted, origin, input)
            }
            Request::Delete(nsid) => self.delete(*nsid, origin, input),
            Request::Attach(nsid, controllers) => {
                self.attachments().attach(*nsid, self.manageable(*nsid, origin)?, controllers)
            }
            Request::Detach(nsid, controllers) => {
                self.attachments().detach(*nsid, self.manageable(*nsid, origin)?, controllers)
            }
            Request::Protect(nsid, protected) => self.namespaces().protect(*nsid, *protected, origin),
            Request::Group(nsid, ana_group) => self.namespaces().group(*nsid, *ana_group),
            Request::Reserve(nsid, command) => {
                self.namespaces().find_attached(*nsid, origin)?;
                self.reservations().reserve(*nsid, command, origin)
            }
            Request::Persist(nsid, persistent) => {
                let nsids = self.namespaces().attached_of(*nsid, origin)?;
                Ok(self.reservations().persist(&nsids, *persistent))
            }
            Request::AssignCntlid => Ok(self.attachments().assign_cntlid(origin, input)),
            Request::Reset => Ok(self.reset(origin, input)),
            Request::Log(query) => self.log(query, origin, input),
            Request::Download(offset, piece) => {
                self.settings.check_manager(origin)?;
                self.firmware_update.download(*offset, piece, origin)
            }
            Request::Commit(commit) => self.commit(*commit, origin, input),
            Request::SelfTest(code, nsid) => self.self_test(*code, *nsid, origin),
            Request::Format(nsid, command) => self.format(*nsid, *command, origin, input),
            Request::Sanitize(command) => self.sanitize(command, origin, input),
            Request::SanitizeConfig(warn) => {
                self.settings.check_manager(origin)?;
                self.sanitizing.no_deallocate_warns = *warn;
                Ok(Decision::nothing())
            }
            Request::Virtualize(command) => self.manageable_functions(origin)?.virtualize(command, origin.cntlid),
            Request::GiveTo(id, ports) => self.manageable_functions(origin)?.give_to(*id, ports),
            Request::SetShare(id, share) => self.manageable_functions(origin)?.set_share(*id, *share),
            Request::Map(nsid, to) => self.attachments().map(*nsid, self.manageable(*nsid, origin)?, *to),
            Request::Place(id, to) => self.manageable_functions(origin)?.place(*id, to),
            Request::AttachExactly(nsid, to) => {
                self.attachments().attach_exactly(*nsid, self.manageable(*nsid, origin)?, to)
            }
            Request::ResetPrimary => self.manageable_functions(origin)?.reset_primary(),
            Request::Begin(..)
            | Request::End(_)
            | Request::Undo(_)
            | Request::CreateOrdered(_)
            | Request::Withdraw(_)
            | Request::AttachMore(..)
            | Request::DetachFrom(..)
            | Request::Stage(..)
            | Request::Shift(..)
                if !origin.is_box =>
            {
                Err(Refusal::new(Status::OPERATION_DENIED))
            }
            Request::Shift(id, ports) => self.manageable_functions(origin)?.shift(*id, ports),
            Request::Begin(id, before) => self.transactions().begin(id, before),
            Request::End(id) => Ok(self.transactions().end(id)),
            Request::Undo(id) => Ok(self.undo(id, origin, input)),
            Request::CreateOrdered(ordered) => self.create_ordered(ordered, origin, input),
            Request::Withdraw(volume) => {
                let mut decision = Decision::nothing();
                self.withdraw(&mut decision, *volume, origin, input);
                Ok(decision)
            }
            Request::AttachMore(nsid, more) => {
                self.attachments().attach_more(*nsid, self.namespaces().find(*nsid)?, more)
            }
            Request::DetachFrom(nsid, from) => {
                self.attachments().detach_from(*nsid, self.namespaces().find(*nsid)?, from)
            }
            Request::Stage(slot, image) => {
                let image = firmware::downloaded(image, origin)?;
                self.telemetry.clear();
                firmware::stage((&self.state.firmware, &self.firmware_limits()), *slot, &image, origin, input)
            }
        }
    }

    /// Capacity that no namespace has claimed (UNVMCAP), bytes.
    #[must_use]
    pub fn unallocated_bytes(&self) -> u64 {
        self.namespaces().unallocated_bytes()
    }

    /// What a namespace takes from the capacity (NVMCAP), bytes.
    #[must_use]
    pub fn claim(&self, namespace: &Namespace) -> u64 {
        self.namespaces().claimed_bytes(&namespace.shape)
    }

    /// The functions that the configuration says, as they are.
    #[must_use]
    pub fn functions(&self) -> BTreeMap<u16, Function> {
        self.functions_table().all()
    }

    /// The firmware slots, and the built-in image.
    #[must_use]
    pub fn firmware_limits(&self) -> Limits {
        self.settings.firmware_limits()
    }

    fn namespaces(&self) -> Namespaces<'_> {
        Namespaces::new(&self.state, self.capacity, &self.settings)
    }

    fn attachments(&self) -> AttachmentTable<'_> {
        AttachmentTable::new(&self.state, self.settings.functions, self.settings.exclusive)
    }

    fn functions_table(&self) -> FunctionTable<'_> {
        FunctionTable::new(&self.state, self.settings.functions)
    }

    fn reservations(&self) -> ReservationTable<'_> {
        let reserved_max = self.settings.profile.reserved_namespaces;
        ReservationTable { by_nsid: &self.state.reservations, reserved_max }
    }

    fn transactions(&self) -> Transactions<'_> {
        Transactions::new(&self.state)
    }

    /// The functions, for one who may change them.
    fn manageable_functions(&self, origin: &Origin) -> Result<FunctionTable<'_>, Refusal> {
        self.settings.check_manager(origin)?;
        Ok(self.functions_table())
    }

    /// A namespace, for one who may manage it.
    fn manageable(&self, nsid: Nsid, origin: &Origin) -> Result<&Namespace, Refusal> {
        self.settings.check_manager(origin)?;
        let namespace = self.namespaces().find(nsid)?;
        self.reservations().check(nsid.0, origin)?;
        Ok(namespace)
    }

    fn create_ordered(&self, ordered: &Ordered, origin: &Origin, input: &DecisionInput) -> Result<Decision, Refusal> {
        let attachments = self.attachments();
        let may_have = |namespace: &Namespace, to: &_| attachments.check_new(namespace, to);
        let (mut decision, volume) = self.namespaces().create_ordered(ordered, origin, input, may_have)?;
        if let Some(id) = &ordered.transaction {
            // First: whatever of this is stored before a crash is taken back.
            decision.changes.insert(0, self.transactions().began_creating(id, volume)?);
        }
        Ok(decision)
    }

    fn delete(&self, nsid: Nsid, origin: &Origin, input: &DecisionInput) -> Result<Decision, Refusal> {
        self.settings.check_manager(origin)?;
        let deleted = self.namespaces().named_by(nsid)?;
        if deleted.iter().any(|(_, namespace)| namespace.write_protected) {
            return Err(Refusal::new(Status::NAMESPACE_WRITE_PROTECTED));
        }
        deleted.iter().try_for_each(|(nsid, _)| self.reservations().check(*nsid, origin))?;
        let mut decision = Namespaces::delete(&deleted, origin, input);
        decision.changes.extend(self.interrupt_self_test(Cause::Removed(nsid)));
        Ok(decision)
    }

    /// Deletes a namespace that a transaction has created, if it is there, whatever protects it.
    fn withdraw(&self, decision: &mut Decision, volume: VolumeId, origin: &Origin, input: &DecisionInput) {
        let Some((nsid, namespace)) = self.namespaces().on_volume(volume) else { return };
        let deleted = Namespaces::delete(&[(nsid, namespace)], origin, input);
        decision.changes.extend(deleted.changes);
        decision.changes.extend(self.interrupt_self_test(Cause::Removed(Nsid(nsid))));
        decision.after.extend(deleted.after);
    }

    /// Makes what a transaction was about what it was before, and forgets the transaction.
    fn undo(&self, id: &str, origin: &Origin, input: &DecisionInput) -> Decision {
        let Some(before) = self.transactions().find(id) else { return Decision::nothing() };
        let mut decision = transactions::undo(before, &self.functions_table(), &self.state.namespaces);
        for &volume in &before.created {
            self.withdraw(&mut decision, volume, origin, input);
        }
        // The last one: after a crash before it, all of it is done again.
        decision.changes.push(transactions::over(id));
        decision
    }

    fn commit(&mut self, commit: Commit, origin: &Origin, input: &DecisionInput) -> Result<Decision, Refusal> {
        self.settings.check_manager(origin)?;
        self.telemetry.clear();
        let limits = self.firmware_limits();
        self.firmware_update.commit((&self.state.firmware, &limits), commit, origin, input)
    }

    /// A controller was reset: its download is discarded, and firmware that waits for a reset is
    /// activated.
    fn reset(&mut self, origin: &Origin, input: &DecisionInput) -> Decision {
        self.firmware_update.reset(origin.cntlid);
        self.contexts.release(origin.cntlid);
        self.telemetry.clear();
        let limits = self.firmware_limits();
        let mut decision = Decision::nothing();
        decision.changes.extend(self.interrupt_self_test(Cause::Reset(origin.cntlid)));
        decision.changes.extend(firmware::activated(&self.state.firmware, &limits, origin, input));
        decision
    }

    fn self_test(&self, code: SelfTestCode, nsid: Nsid, origin: &Origin) -> Result<Decision, Refusal> {
        self.check_offered(|personality| personality.device_self_test)?;
        let extent_bytes = self.capacity.extent_bytes;
        let inventory = self_test::inventory(&self.state, &self.medium_status, extent_bytes, origin);
        let next = self.state.self_test.execute(origin, code, nsid, &inventory, self.hours())?;
        Ok(Decision { changes: next.map(tested).into_iter().collect(), ..Decision::nothing() })
    }

    /// The change when a step of the self-test is done, and whether that was the last one: then the
    /// change has to become durable. Of the others some may, because a test is resumed after the
    /// last durable step.
    #[must_use]
    pub fn self_test_stepped(&self, result: Result<(), Failure>) -> (Change, bool) {
        let next = self.state.self_test.advance(result, self.hours());
        let ended = next.step().is_none();
        (tested(next), ended)
    }

    /// The change if `cause` ends or aborts the running self-test.
    fn interrupt_self_test(&self, cause: Cause) -> Option<Change> {
        self.state.self_test.interrupted(cause, self.hours()).map(tested)
    }

    fn format(&self, nsid: Nsid, command: Format, origin: &Origin, input: &DecisionInput) -> Result<Decision, Refusal> {
        self.settings.check_manager(origin)?;
        self.check_offered(|personality| personality.format)?;
        let may_format = |nsid: u32, namespace: &Namespace| {
            if self.erasing.contains(namespace.volume) {
                return Err(Refusal::transient(Status::FORMAT_IN_PROGRESS));
            }
            if namespace.write_protected {
                return Err(Refusal::new(Status::NAMESPACE_WRITE_PROTECTED));
            }
            self.reservations().check(nsid, origin)
        };
        let mut decision = self.namespaces().format(nsid, command, (origin, input), may_format)?;
        decision.changes.extend(self.interrupt_self_test(Cause::Format(nsid)));
        Ok(decision)
    }

    /// Sets how much is left of erasing the old data of these namespaces, in percent; commands to
    /// them wait meanwhile. `None`: it is done.
    pub fn set_erasing(&mut self, namespaces: &[VolumeId], percent_left: Option<u8>) {
        self.erasing.set(namespaces, percent_left);
    }

    /// Namespaces that are being erased, with the percentage that is left.
    #[must_use]
    pub fn erasing(&self) -> BTreeMap<u32, u8> {
        self.erasing.percent_left(&self.state.namespaces)
    }

    fn sanitize(&self, command: &SanitizeCommand, origin: &Origin, input: &DecisionInput) -> Result<Decision, Refusal> {
        self.settings.check_manager(origin)?;
        self.check_offered(|personality| personality.sanitize)?;
        self.state.namespaces.keys().try_for_each(|&nsid| self.reservations().check(nsid, origin))?;
        let capabilities = self.capabilities();
        let preconditions = self.sanitizing.preconditions(&self.state);
        let done = self.state.sanitize.execute(origin, command, &capabilities, &preconditions)?;
        let mut decision = Decision::nothing();
        if done.started {
            if !self.erasing().is_empty() {
                return Err(Refusal::transient(Status::FORMAT_IN_PROGRESS));
            }
            // Each namespace becomes a new volume, so that writes that are in flight go to the old
            // one.
            decision = self.namespaces().replace_all();
            decision.erased.clear();
            decision.changes.push(sanitize::started(command, &capabilities, origin, input));
            decision.changes.extend(self.interrupt_self_test(Cause::Sanitize));
        }
        decision.changes.extend(done.next.map(sanitized));
        Ok(decision)
    }

    /// What is to be done on the medium for the sanitize operation; `None` if none is in progress.
    #[must_use]
    pub fn sanitize_work(&self) -> Option<Work> {
        sanitize::work(&self.state, &self.capabilities())
    }

    /// Sanitize Status.
    #[must_use]
    pub fn sanitize_page(&self) -> SanitizeLog {
        self.state.sanitize.page(&self.capabilities(), self.sanitizing.bytes)
    }

    /// Sets the progress of the current sanitize pass.
    pub fn set_sanitized_bytes(&mut self, bytes: u64) {
        self.sanitizing.bytes = bytes;
    }

    /// The change when a pass of the sanitize operation is done; `None` if it was the last one.
    #[must_use]
    pub fn sanitize_pass_done(&self) -> Option<Change> {
        self.state.sanitize.pass_done().map(sanitized)
    }

    /// Ends the sanitize operation; `None` if none is in progress.
    #[must_use]
    pub fn sanitize_ended(&self, success: bool, origin: &Origin, input: &DecisionInput) -> Option<Sanitized> {
        let capabilities = self.capabilities();
        let ended = if success { self.state.sanitize.complete(&capabilities)? } else { self.state.sanitize.fail()? };
        Some(self.sanitizing.ended(ended, &capabilities, origin, input))
    }

    /// FNA: Format NVM and its secure erase apply to the namespaces that the NSID names.
    #[must_use]
    pub fn fna(&self) -> u8 {
        self.settings.fna()
    }

    /// Feature 17h, No-Deallocate Response Mode.
    #[must_use]
    pub fn no_deallocate_warns(&self) -> bool {
        self.sanitizing.no_deallocate_warns
    }

    /// Adds a measurement of a part of a sanitize pass, for the estimates of later ones.
    pub fn add_sanitize_speed(&mut self, method: Method, bytes: u64, micros: u64) {
        self.sanitizing.speed.add(method, bytes, micros);
    }

    /// The sanitize operations that the drive supports.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.sanitizing.capabilities(&self.state, &self.settings, self.capacity)
    }

    /// The restriction of commands by a sanitize operation, if there is any.
    #[must_use]
    pub fn restriction(&self) -> Option<Restriction> {
        self.state.sanitize.restriction()
    }

    /// Refuses a command that the running firmware does not have.
    fn check_offered(&self, is_offered: impl Fn(&Personality) -> bool) -> Result<(), Refusal> {
        let limits = self.firmware_limits();
        if is_offered(&self.state.firmware.running(&limits).personality) {
            return Ok(());
        }
        Err(Refusal::new(Status::INVALID_OPCODE))
    }

    fn hours(&self) -> u64 {
        self.state.health.power_on_hours()
    }

    fn log(&mut self, query: &LogQuery, origin: &Origin, input: &DecisionInput) -> Result<Decision, Refusal> {
        match query.lid {
            Lid::TELEMETRY_HOST => {
                let capture =
                    (query.parameter & telemetry_lsp::CREATE != 0).then(|| capture::capture(self, "host", input));
                let telemetry = (&mut self.telemetry, &self.state.telemetry, self.settings.reader(origin));
                capture::host_page(telemetry, &self.state.events, query, capture, (origin, input))
            }
            Lid::TELEMETRY_CONTROLLER => capture::own_page(&self.state.telemetry, query, self.settings.reader(origin)),
            Lid::PERSISTENT_EVENT => {
                let nqn = &self.settings.subsystem;
                pages::persistent_events(&mut self.contexts, &self.state, nqn, query, origin, input)
            }
            _ => {
                if query.lid == Lid::SMART_HEALTH && query.nsid.names_one() {
                    self.namespaces().find_attached(query.nsid, origin)?;
                }
                Ok(Decision { answer: Answer::Data(pages::whole_page(self, query)?), ..Decision::nothing() })
            }
        }
    }

    /// Updates what the drive knows of its medium.
    pub fn set_medium_status(&mut self, medium_status: MediumStatus) {
        self.medium_status = medium_status;
    }

    /// The changes when the drive is opened: a power-on.
    #[must_use]
    pub fn opened(&self, origin: &Origin, input: &DecisionInput) -> Vec<Change> {
        let health = self.state.health.opened();
        let limits = self.firmware_limits();
        let firmware = self.state.firmware.at_reset(&limits);
        let revision = &firmware.as_ref().unwrap_or(&self.state.firmware).running(&limits).revision;
        let mut changes = health::powered_on(&self.state.health, &health, revision, origin, input);
        changes.extend(firmware.map(|firmware| Change::Firmware { firmware: Box::new(firmware) }));
        changes.extend(self.interrupt_self_test(Cause::Restart));
        changes.extend(self.functions_table().give_up());
        changes.push(Change::Counted { health: Box::new(health) });
        changes
    }

    /// The changes when the drive is closed.
    #[must_use]
    pub fn closed(&self) -> Vec<Change> {
        let mut changes: Vec<_> =
            self.state.errors.close().into_iter().map(|errors| Change::Failed { errors }).collect();
        changes.push(Change::Counted { health: Box::new(self.state.health.closed()) });
        changes
    }

    /// Records errors of commands, and counts `missed` older ones that are not known in detail.
    /// Returns whether they have to be made durable at once.
    pub fn record_errors(&mut self, missed: u64, errors: &[error_log::Error]) -> Urgency {
        let entries = self.settings.error_entries;
        self.state.errors.skip(missed);
        let mut urgency = Urgency::Periodic;
        self.health.note_errors(errors);
        for error in errors {
            if self.state.errors.record(error, entries) == Urgency::AtOnce {
                urgency = Urgency::AtOnce;
            }
        }
        urgency
    }

    /// The change with the errors that are not durable yet, if any.
    #[must_use]
    pub fn unflushed(&self) -> Option<Change> {
        self.state.errors.flush().map(|errors| Change::Failed { errors })
    }

    /// Advances the counters by `activity`, and takes the current `condition`. The counters change
    /// at once; the returned changes are to be made durable. They include the counters only if
    /// `keep`, or if there are other changes.
    pub fn advance(
        &mut self,
        activity: &Activity,
        condition: Condition,
        keep: bool,
        origin: &Origin,
        input: &DecisionInput,
    ) -> HealthUpdate {
        let facts = self.facts();
        let News { events, mut raised, capture: reason } =
            self.health.advance(&mut self.state.health, activity, condition, &facts, (origin, input));
        let admitted = events.into_iter().filter(|event| self.state.events.admits(event));
        let mut changes: Vec<_> = admitted.map(|event| Change::Happened { event }).collect();
        changes.extend(self.unflushed());
        let has_written = activity.namespaces.iter().any(|(_, usage)| usage.bytes_written > 0);
        changes.extend(self.sanitizing.note_written(has_written, &self.state.sanitize));
        if let Some((captured, event)) = reason.and_then(|reason| capture::after_error(self, &reason, origin, input)) {
            changes.extend(captured);
            raised.push(event);
        }
        if keep || !changes.is_empty() {
            changes.push(Change::Counted { health: Box::new(self.state.health.clone()) });
        }
        HealthUpdate { changes, events: raised }
    }

    /// The current condition of the drive.
    #[must_use]
    pub fn condition(&self) -> Condition {
        self.health.condition(&self.facts())
    }

    fn facts(&self) -> HealthFacts {
        let overcommitted = self.settings.overcommit;
        HealthFacts { overcommitted, errors: self.state.errors.count(), endurance: self.endurance() }
    }

    /// The drive's rated endurance.
    #[must_use]
    pub fn endurance(&self) -> Endurance {
        let times = u64::from(self.settings.profile.endurance_writes);
        let rated = self.settings.endurance_bytes.unwrap_or(self.capacity.total_bytes.saturating_mul(times));
        Endurance { rated_bytes: rated, amplification_percent: 100 }
    }
}
