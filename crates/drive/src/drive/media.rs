//! Device Self-test, Format NVM and Sanitize: the changes of the drive's state when they begin, go
//! on and end. The owner of the medium does the work on it.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use ebof_nvme::event::AsyncEvent;
use ebof_nvme::identify::field::fna;
use ebof_nvme::log::{Lid, SanitizeLog, SelfTestCode};
use ebof_nvme::media::{Format as FormatCommand, Sanitize as SanitizeCommand, SecureErase};
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::{ControllerId, Nsid, Status};

use super::{Decision, Drive, Effect, NSID, Request, Settings};
use crate::change::Change;
use crate::event_log::Event;
use crate::firmware::Personality;
use crate::namespace::{Namespace, Protection, Shape, VolumeId, check_format};
use crate::request::{DecisionInput, Origin, Refusal};
use crate::sanitize::{Capabilities, Ended, Method, Preconditions, Restriction, Sanitize, Work};
use crate::self_test::{Cause, Failure, Inventory, SelfTest};

/// What a sanitize operation that ended means to others.
#[derive(Debug, PartialEq)]
pub struct Sanitized {
    /// To be made durable.
    pub changes: Vec<Change>,
    /// The event for this controller, and no other.
    pub event: (ControllerId, AsyncEvent),
}

impl Drive {
    /// Refuses what has to wait while the drive is sanitized, or after that has failed.
    pub(super) fn check_restriction(&self, request: &Request) -> Result<(), Refusal> {
        let Some(restriction) = self.restriction() else { return Ok(()) };
        let (opcode, cdw10) = match request {
            // These are never restricted.
            Request::AssignCntlid
            | Request::Reset
            | Request::GiveTo(..)
            | Request::SetShare(..)
            | Request::Place(..)
            | Request::AttachExactly(..)
            | Request::Begin(..)
            | Request::End(_)
            | Request::Undo(_)
            | Request::Withdraw(_)
            | Request::ResetPrimary => return Ok(()),
            Request::Reserve(..) => return restriction.check_io(nvm::RESERVATION_REGISTER),
            Request::Create(_) | Request::CreateOrdered(_) | Request::Delete(_) => (admin::NAMESPACE_MANAGEMENT, 0),
            Request::Attach(..)
            | Request::Detach(..)
            | Request::AttachMore(..)
            | Request::DetachFrom(..)
            | Request::Map(..) => (admin::NAMESPACE_ATTACHMENT, 0),
            Request::Protect(..) => (admin::SET_FEATURES, ebof_nvme::feature::Fid::WRITE_PROTECTION.0),
            Request::Persist(..) => (admin::SET_FEATURES, ebof_nvme::feature::Fid::RESERVATION_PERSISTENCE.0),
            Request::Log(query) => (admin::GET_LOG_PAGE, query.lid.0),
            Request::Download(..) => (admin::FIRMWARE_DOWNLOAD, 0),
            Request::Commit(_) | Request::Stage(..) => (admin::FIRMWARE_COMMIT, 0),
            Request::SelfTest(..) => (admin::DEVICE_SELF_TEST, 0),
            Request::Format(..) => (admin::FORMAT_NVM, 0),
            Request::Sanitize(_) => (admin::SANITIZE, 0),
            Request::Virtualize(_) => (admin::VIRTUALIZATION_MANAGEMENT, 0),
            Request::SanitizeConfig(_) => (admin::SET_FEATURES, ebof_nvme::feature::Fid::SANITIZE_CONFIG.0),
        };
        restriction.check_admin(opcode, cdw10.into())
    }

    /// The restriction of commands by a sanitize operation, if there is any.
    #[must_use]
    pub fn restriction(&self) -> Option<Restriction> {
        self.state.sanitize.restriction()
    }

    pub(super) fn self_test(&self, code: SelfTestCode, nsid: Nsid, origin: &Origin) -> Result<Decision, Refusal> {
        self.check_offered(|personality| personality.device_self_test)?;
        let next = self.state.self_test.execute(origin, code, nsid, &self.inventory(origin), self.hours())?;
        Ok(Decision { changes: tested(next).into_iter().collect(), ..Decision::nothing() })
    }

    /// The change when a step of the self-test is done, and whether that was the last one: then the
    /// change has to become durable. Of the others some may, because a test is resumed after the
    /// last durable step.
    #[must_use]
    pub fn self_test_stepped(&self, result: Result<(), Failure>) -> (Change, bool) {
        let next = self.state.self_test.advance(result, self.hours());
        let ended = next.step().is_none();
        (Change::SelfTested { self_test: Box::new(next) }, ended)
    }

    /// The change if `cause` ends or aborts the running self-test.
    pub(super) fn interrupt_self_test(&self, cause: Cause) -> Option<Change> {
        tested(self.state.self_test.interrupted(cause, self.hours()))
    }

    pub(super) fn format(
        &self,
        nsid: Nsid,
        command: FormatCommand,
        origin: &Origin,
        input: &DecisionInput,
    ) -> Result<Decision, Refusal> {
        self.may_manage(origin)?;
        self.check_offered(|personality| personality.format)?;
        let chosen: Vec<(u32, &Namespace)> = match nsid {
            Nsid::ALL => {
                let all = self.state.namespaces.iter().map(|(&nsid, namespace)| (nsid, namespace));
                all.filter(|(_, namespace)| namespace.is_attached_to(origin)).collect()
            }
            _ => {
                let namespace = self.find(nsid)?;
                if !origin.is_box && !namespace.is_attached_to(origin) {
                    return Err(Refusal::at(Status::INVALID_FIELD, NSID));
                }
                vec![(nsid.0, namespace)]
            }
        };
        let shape = self.wanted_shape(command)?;
        let mut next = Vec::new();
        let mut free = self.unallocated_bytes();
        for (nsid, namespace) in chosen {
            if self.erasing.contains_key(&namespace.volume) {
                return Err(Refusal::transient(Status::FORMAT_IN_PROGRESS));
            }
            if namespace.write_protected {
                return Err(Refusal::new(Status::NAMESPACE_WRITE_PROTECTED));
            }
            self.check_reservation(nsid, origin)?;
            // The new blocks have at most as many bytes as the old ones.
            let now = namespace.shape;
            let fits = |blocks: u64| (blocks << now.format().block_shift) >> shape.format().block_shift;
            let wanted = Shape { blocks: fits(now.blocks), capacity_blocks: fits(now.capacity_blocks), ..shape };
            let Shape { blocks, capacity_blocks, .. } = self.fit_capacity(wanted, &now, &mut free);
            if blocks == 0 || capacity_blocks == 0 {
                return Err(Refusal::new(Status::INVALID_FORMAT));
            }
            next.push((nsid, Shape { blocks, capacity_blocks, ..shape }));
        }
        let cdw10 = command.encode(nsid).cdw10.get();
        let mut decision = self.replace_volumes(next);
        let happened = |event| Change::Happened { event };
        let start = happened(Event::format_start(origin, input, nsid, self.fna(), cdw10));
        decision.changes.insert(0, start);
        decision.changes.push(happened(Event::format_completion(origin, input, nsid, 0, Status::SUCCESS)));
        decision.changes.extend(self.interrupt_self_test(Cause::Format(nsid)));
        match command.erase {
            SecureErase::UserData => {}
            // The data of an encrypted namespace are gone with its key. One that was created
            // without encryption has to be erased.
            SecureErase::Cryptographic => {
                let encrypted = decision.changes.iter().filter_map(|change| match change {
                    Change::Emptied { nsid, volume, .. } if self.is_encrypted(*nsid) => Some(*volume),
                    _ => None,
                });
                let encrypted: Vec<VolumeId> = encrypted.collect();
                decision.erased.retain(|volume| !encrypted.contains(volume));
            }
            SecureErase::None | SecureErase::Reserved(_) => decision.erased.clear(),
        }
        Ok(decision)
    }

    /// Reduces the blocks of a wanted shape to the capacity that there is: that of the namespace as
    /// it is `now`, and what is `free` besides, which is updated. Blocks with metadata or a
    /// checksum take more capacity than their data.
    fn fit_capacity(&self, wanted: Shape, now: &Shape, free: &mut u64) -> Shape {
        if self.settings.overcommit {
            return wanted;
        }
        let extent_bytes = self.capacity.extent_bytes;
        let room = self.claimed_bytes(now).saturating_add(*free);
        let most = (room / extent_bytes).saturating_mul(wanted.block_format().blocks_per_extent(extent_bytes));
        let capacity_blocks = wanted.capacity_blocks.min(most);
        // A thin namespace keeps its size; the size of others is their capacity.
        let thin = now.capacity_blocks < now.blocks;
        let blocks = if thin { wanted.blocks } else { wanted.blocks.min(capacity_blocks) };
        let shape = Shape { blocks, capacity_blocks, ..wanted };
        *free = room.saturating_sub(self.claimed_bytes(&shape));
        shape
    }

    /// Sets how much is left of erasing the old data of these namespaces, in percent; commands to
    /// them wait meanwhile. `None`: it is done.
    pub fn set_erasing(&mut self, namespaces: &[VolumeId], percent_left: Option<u8>) {
        for &volume in namespaces {
            match percent_left {
                Some(percent) => self.erasing.insert(volume, percent.min(100)),
                None => self.erasing.remove(&volume),
            };
        }
    }

    /// Namespaces that are being erased, with the percentage that is left.
    #[must_use]
    pub fn erasing(&self) -> BTreeMap<u32, u8> {
        if self.erasing.is_empty() {
            return BTreeMap::new();
        }
        let namespaces = self.state.namespaces.iter();
        namespaces.filter_map(|(&nsid, namespace)| Some((nsid, *self.erasing.get(&namespace.volume)?))).collect()
    }

    pub(super) fn sanitize(
        &self,
        command: &SanitizeCommand,
        origin: &Origin,
        input: &DecisionInput,
    ) -> Result<Decision, Refusal> {
        self.may_manage(origin)?;
        self.check_offered(|personality| personality.sanitize)?;
        for nsid in self.state.namespaces.keys() {
            self.check_reservation(*nsid, origin)?;
        }
        let capabilities = self.capabilities();
        let preconditions = Preconditions {
            write_protected: self.state.namespaces.values().any(|namespace| namespace.write_protected),
            firmware_pending: self.state.firmware.pending_slot().is_some(),
            warn_about_deallocation: self.no_deallocate_warns,
        };
        let done = self.state.sanitize.execute(origin, command, &capabilities, &preconditions)?;
        let mut decision = Decision::nothing();
        if done.started {
            if !self.erasing().is_empty() {
                return Err(Refusal::transient(Status::FORMAT_IN_PROGRESS));
            }
            // Each namespace becomes a new volume, so that writes that are in flight go to the old
            // one.
            let same = |(&nsid, namespace): (&u32, &Namespace)| (nsid, namespace.shape);
            decision = self.replace_volumes(self.state.namespaces.iter().map(same).collect());
            decision.erased.clear();
            let sqe = command.encode();
            let cdw10 = sqe.cdw10.get();
            let cdw11 = sqe.cdw11.get();
            let event = Event::sanitize_start(origin, input, capabilities.sanicap(), cdw10, cdw11);
            decision.changes.push(Change::Happened { event });
            decision.changes.extend(self.interrupt_self_test(Cause::Sanitize));
        }
        decision.changes.extend(done.next.map(sanitized));
        Ok(decision)
    }

    /// What is to be done on the medium for the sanitize operation; `None` if none is in progress.
    #[must_use]
    pub fn sanitize_work(&self) -> Option<Work> {
        let work = self.state.sanitize.work(&self.capabilities())?;
        // Data that were not encrypted have to be erased.
        let method = if work.method == Method::NewKeys && self.state.plaintext { Method::Erase } else { work.method };
        Some(Work { method, ..work })
    }

    /// Sanitize Status.
    #[must_use]
    pub fn sanitize_page(&self) -> SanitizeLog {
        self.state.sanitize.page(&self.capabilities(), self.sanitized_bytes)
    }

    /// Sets the progress of the current sanitize pass.
    pub fn set_sanitized_bytes(&mut self, bytes: u64) {
        self.sanitized_bytes = bytes;
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
        let Ended { next, event } =
            if success { self.state.sanitize.complete(&capabilities)? } else { self.state.sanitize.fail()? };
        let page = next.page(&capabilities, self.sanitized_bytes);
        let completed = Event::sanitize_completion(origin, input, page.sprog.get(), page.sstat.get());
        Some(Sanitized { changes: vec![sanitized(next), Change::Happened { event: completed }], event })
    }

    /// FNA: Format NVM and its secure erase apply to the namespaces that the NSID names.
    #[must_use]
    pub fn fna(&self) -> u8 {
        if self.settings.encrypted { fna::CRYPTO_ERASE } else { 0 }
    }

    fn is_encrypted(&self, nsid: u32) -> bool {
        self.state.namespaces.get(&nsid).is_some_and(|namespace| namespace.shape.encrypted)
    }

    /// Feature 17h, No-Deallocate Response Mode.
    #[must_use]
    pub fn no_deallocate_warns(&self) -> bool {
        self.no_deallocate_warns
    }

    /// Adds a measurement of a part of a sanitize pass, for the estimates of later ones.
    pub fn add_sanitize_speed(&mut self, method: Method, bytes: u64, micros: u64) {
        self.sanitize_speed.add(method, bytes, micros);
    }

    /// The sanitize operations that the drive supports.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        Capabilities {
            crypto_erase: self.settings.encrypted,
            crypto_erases_all: !self.state.plaintext,
            block_erase: true,
            overwrite: true,
            no_deallocate_inhibited: true,
            total_bytes: self.capacity.total_bytes,
            speed: self.sanitize_speed,
        }
    }

    /// Replaces the volumes of namespaces by new, empty ones.
    fn replace_volumes(&self, namespaces: Vec<(u32, Shape)>) -> Decision {
        let mut decision = Decision::nothing();
        for (next, (nsid, shape)) in (self.state.next_volume..).zip(namespaces) {
            let Some(namespace) = self.state.namespaces.get(&nsid) else { continue };
            let volume = VolumeId(next);
            let Shape { blocks, capacity_blocks, .. } = shape;
            decision.before.push(Effect::Create {
                volume,
                blocks,
                capacity_blocks,
                block_format: shape.block_format(),
            });
            decision.changes.push(Change::Emptied { nsid, volume, shape });
            decision.after.push(Effect::Remove(namespace.volume));
            decision.erased.push(volume);
        }
        decision
    }

    /// The format that a Format NVM command asks for.
    fn wanted_shape(&self, command: FormatCommand) -> Result<Shape, Refusal> {
        let possible = match command.erase {
            SecureErase::Cryptographic => self.settings.encrypted,
            erase => !matches!(erase, SecureErase::Reserved(_)),
        };
        if !possible {
            return Err(Refusal::at(Status::INVALID_FIELD, CDW10 + 1));
        }
        let protection = Protection { kind: command.protection.encode(), first: command.protection_first }.in_force();
        check_format(command.lba_format, command.metadata_extended, protection)
            .map_err(|refusal| Refusal::at(refusal.status, CDW10))?;
        let Settings { checked, encrypted, .. } = self.settings;
        Ok(Shape { format: command.lba_format, protection, checked, encrypted, ..Shape::default() })
    }

    /// Refuses a command that the running firmware does not have.
    fn check_offered(&self, is_offered: impl Fn(&Personality) -> bool) -> Result<(), Refusal> {
        let limits = self.firmware_limits();
        if is_offered(&self.state.firmware.running(&limits).personality) {
            return Ok(());
        }
        Err(Refusal::new(Status::INVALID_OPCODE))
    }

    fn inventory(&self, origin: &Origin) -> Inventory {
        let mut inventory = Inventory { extent_bytes: self.capacity.extent_bytes, ..Inventory::default() };
        for (&nsid, namespace) in &self.state.namespaces {
            if origin.is_box || namespace.is_attached_to(origin) {
                let extents = self.medium_status.allocated.get(&namespace.volume).copied().unwrap_or_default();
                inventory.active.push((Nsid(nsid), extents));
            } else {
                inventory.inactive.push(Nsid(nsid));
            }
        }
        inventory
    }

    fn hours(&self) -> u64 {
        self.state.health.power_on_hours()
    }
}

fn tested(next: Option<SelfTest>) -> Option<Change> {
    next.map(|next| Change::SelfTested { self_test: Box::new(next) })
}

fn sanitized(next: Sanitize) -> Change {
    Change::Sanitized { sanitize: Box::new(next) }
}

/// Whether the running firmware offers a log page.
#[must_use]
pub fn is_offered(personality: &Personality, lid: Lid) -> bool {
    match lid {
        Lid::DEVICE_SELF_TEST => personality.device_self_test,
        Lid::SANITIZE_STATUS => personality.sanitize,
        Lid::TELEMETRY_HOST | Lid::TELEMETRY_CONTROLLER => personality.telemetry,
        _ => true,
    }
}

/// Dword 10.
const CDW10: u8 = 40;
