//! Namespaces that are made, deleted, formatted and sanitized, one such command at a time, and what
//! became of one whose answer was lost.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ebof_drive::BlockFormat;
use ebof_nvme::identify::{Cns, Csi, IdentifyNamespace, NamespaceList};
use ebof_nvme::log::{GetLogPage, Lid, SanitizeLog, SanitizeState};
use ebof_nvme::media::{Format, Sanitize, SanitizeAction, SecureErase};
use ebof_nvme::namespace::{ManagementSelect, NamespaceManagement, NewNamespace};
use ebof_nvme::opcode::admin;
use ebof_nvme::{Nsid, Sqe, Status};
use zerocopy::{FromBytes, IntoBytes};

use super::{CAPACITY, EXTENTS, Flight, Kind, World, command};
use crate::model::{Blocks, InFlux, Op};
use crate::rig::{EXTENT, System as _};
use crate::story::{Failure, fail};
use crate::transport::wire::CompletedCommand;

/// Time until the next query.
const AGAIN: Duration = Duration::from_millis(200);

/// Steps after which all threads have heard of a change.
const SHOWN: u32 = 40;

/// After so many refusals in turn nobody may sanitize, and nobody has.
const REPEATS: usize = 30;

/// What is being changed, and how far that is.
#[derive(Debug, Default)]
pub(super) struct Manage {
    task: Option<Task>,
    stage: Stage,
    at: Option<Instant>,
    /// It is known to be done; what the namespaces are like is asked.
    is_formatted: bool,
    /// How often sanitizing was asked for again, each time by the next host: who holds no
    /// reservation may be refused, and whose command has begun it is not.
    repeats: usize,
    /// How the blocks of what it makes are kept.
    coding: Option<BlockFormat>,
    /// Namespaces that were formatted, or may have been, and of which nobody knows what they are
    /// like.
    unknown: Vec<u32>,
}

/// A change that failed for what the disk did. Its record may be in the journal all the same: where
/// the disk refuses to have it erased, it may come true with the next start.
#[derive(Debug)]
pub(super) struct FailedChange {
    task: Task,
    coding: Option<BlockFormat>,
    pub(super) is_restarted: bool,
}

/// Something that changes namespaces as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Create {
        format: usize,
    },
    Delete {
        nsid: u32,
    },
    /// `None` is all namespaces.
    Format {
        nsid: Option<u32>,
        format: usize,
        erase: u8,
    },
    Sanitize {
        overwrite: bool,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Nothing is to be found out.
    #[default]
    Known,
    /// A command is under way.
    Asked(Op),
    /// Its outcome is queried then.
    Unsure(Instant),
    /// The drive is being sanitized; it is queried again then.
    Sanitizing(Instant),
    /// It is done, and all controllers are about to know: so many steps are left.
    Shown(u32),
}

impl Task {
    /// Whether a namespace is not what it was when this is done.
    fn concerns(self, nsid: u32) -> bool {
        match self {
            Self::Create { .. } | Self::Sanitize { .. } => false,
            Self::Delete { nsid: one } => one == nsid,
            Self::Format { nsid: one, .. } => one.is_none_or(|one| one == nsid),
        }
    }

    /// The LBA format of what it makes.
    fn format(self) -> Option<usize> {
        match self {
            Self::Create { format } | Self::Format { format, .. } => Some(format),
            Self::Delete { .. } | Self::Sanitize { .. } => None,
        }
    }
}

impl Manage {
    pub(super) fn is_sanitizing(&self) -> bool {
        matches!(self.task, Some(Task::Sanitize { .. }))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.task.is_none() && self.stage == Stage::Known
    }

    /// Whether the command was sent by then.
    pub(super) fn is_begun_by(&self, then: Instant) -> bool {
        self.at.is_some_and(|at| at <= then)
    }

    /// A life has ended: what there is has to be queried.
    pub(super) fn doubt(&mut self, now: Instant) {
        self.stage = Stage::Unsure(now);
    }
}

impl World {
    fn begin_task(&mut self, host: usize, task: Task, sqe: Sqe, data: Option<&[u8]>) {
        let op = self.rig.number();
        let (begun, at) = (self.rig.now(), self.rig.clock.now());
        let nsid = match task {
            Task::Delete { nsid } => nsid,
            Task::Format { nsid, .. } => nsid.unwrap_or_default(),
            Task::Create { .. } | Task::Sanitize { .. } => 0,
        };
        let flight = Flight::new(host, nsid, Kind::Manage, begun, at);
        if self.submit(op, host, 0, flight, command(sqe, data.map(Into::into), 0)) {
            self.rig.note(|| format!("{op}: {task:?}"));
            let coding = task.format().map(|format| self.coding(format));
            let stage = Stage::Asked(op);
            self.manage = Manage { task: Some(task), stage, at: Some(at), coding, ..Manage::default() };
            for (_, space) in self.spaces.iter_mut().filter(|(nsid, _)| task.concerns(**nsid)) {
                space.is_unsure = true;
            }
        }
    }

    pub(super) fn create(&mut self, host: usize, format: usize) -> Result<(), Failure> {
        let Some(host) = self.ready(host, None)? else { return Ok(()) };
        let format = self.format_index(format);
        let count = self.coding(format).blocks_per_extent(EXTENT) * EXTENTS;
        let mut new = NewNamespace::new(count);
        new.set_format(u8::try_from(format).unwrap_or_default(), format > 1);
        new.nmic = 1;
        let sqe = NamespaceManagement { select: ManagementSelect::Create, csi: Csi::NVM }.encode(Nsid::NONE);
        self.begin_task(host, Task::Create { format }, sqe, Some(new.as_bytes()));
        Ok(())
    }

    pub(super) fn delete(&mut self, host: usize, slot: usize) -> Result<(), Failure> {
        let Some(nsid) = self.nsid(slot) else { return Ok(()) };
        if let Some(host) = self.ready(host, Some(nsid))? {
            let sqe = NamespaceManagement { select: ManagementSelect::Delete, csi: Csi::NVM }.encode(Nsid(nsid));
            self.begin_task(host, Task::Delete { nsid }, sqe, None);
        }
        Ok(())
    }

    pub(super) fn format(&mut self, host: usize, slot: Option<usize>, format: usize, erase: u8) -> Result<(), Failure> {
        let nsid = slot.and_then(|slot| self.nsid(slot));
        if slot.is_some() == nsid.is_some()
            && let Some(host) = self.ready(host, nsid)?
            && (nsid.is_some() || self.is_quiet(None)?)
        {
            let format = self.format_index(format);
            // There is no key to destroy where nothing is encrypted.
            let erase = if self.setting.encrypts { erase } else { erase.min(1) };
            let wanted = Format {
                metadata_extended: format > 1,
                erase: SecureErase::decode(erase),
                ..Format::new(u8::try_from(format).unwrap_or_default())
            };
            self.begin_task(
                host,
                Task::Format { nsid, format, erase },
                wanted.encode(nsid.map_or(Nsid::ALL, Nsid)),
                None,
            );
        }
        Ok(())
    }

    pub(super) fn sanitize(&mut self, host: usize, overwrite: bool) -> Result<(), Failure> {
        if let Some(host) = self.ready(host, None)?
            && self.is_quiet(None)?
        {
            self.send_sanitize(host, overwrite);
        }
        Ok(())
    }

    fn send_sanitize(&mut self, host: usize, overwrite: bool) {
        let action = match (overwrite, self.setting.encrypts) {
            (true, _) => SanitizeAction::Overwrite,
            (false, true) => SanitizeAction::CryptoErase,
            (false, false) => SanitizeAction::BlockErase,
        };
        self.begin_task(host, Task::Sanitize { overwrite }, Sanitize::new(action).encode(), None);
    }

    /// Who can send such a command: this host, or another one. Waits a little for what others
    /// change, and for what is under way to the namespace.
    fn ready(&mut self, host: usize, nsid: Option<u32>) -> Result<Option<usize>, Failure> {
        for _ in 0..self.rig.chances.below(200) {
            if self.administrator(host, nsid).is_some() || self.rig.disk.is_off() {
                break;
            }
            self.step()?;
        }
        let ready = self.administrator(host, nsid);
        if ready.is_none() || nsid.is_some() && !self.is_quiet(nsid)? {
            return Ok(None);
        }
        Ok(ready.filter(|&host| self.manage.is_idle() && self.hosts[host].is_live()))
    }

    /// This host or another one that may change the namespace now, or make one.
    fn administrator(&mut self, host: usize, nsid: Option<u32>) -> Option<usize> {
        let hosts = self.hosts.len();
        let can =
            |world: &mut Self, host: usize| nsid.map_or(world.hosts[host].is_live(), |nsid| world.may_use(host, nsid));
        (0..hosts).map(|at| (host + at) % hosts).find(|&host| self.manage.is_idle() && can(self, host))
    }

    /// Waits a little for what is under way to the namespace, or to all.
    fn is_quiet(&mut self, nsid: Option<u32>) -> Result<bool, Failure> {
        for _ in 0..400 {
            let all = self.flights.values().chain(self.ghosts.values());
            let is_quiet = all.filter(|flight| nsid.is_none_or(|nsid| flight.nsid == nsid)).count() == 0;
            if is_quiet || self.rig.disk.is_off() {
                return Ok(is_quiet && !self.rig.disk.is_off());
            }
            self.step()?;
        }
        Ok(false)
    }

    /// Sends the queries that are due.
    pub(super) fn step_manage(&mut self) -> Result<(), Failure> {
        let now = self.rig.clock.now();
        match self.manage.stage {
            Stage::Shown(0) => self.finish_change(),
            Stage::Shown(left) => self.manage.stage = Stage::Shown(left - 1),
            _ => {}
        }
        let due = match self.manage.stage {
            Stage::Unsure(at) | Stage::Sanitizing(at) => at <= now,
            Stage::Known | Stage::Asked(_) | Stage::Shown(_) => false,
        };
        // What was lost may be done late: until it is over, a query says nothing.
        let is_open = self.ghosts.values().any(|flight| flight.kind == Kind::Manage);
        let host = self.hosts.iter().position(|host| due && !is_open && host.is_live());
        let Some(host) = host else { return Ok(()) };
        match (self.manage.stage, self.manage.task) {
            (Stage::Sanitizing(_), _) => {
                let sqe = GetLogPage::new(Lid::SANITIZE_STATUS, 512).encode(Nsid::ALL);
                self.query(host, Kind::Sanitizing, 0, sqe, 512);
            }
            (_, Some(Task::Sanitize { overwrite })) => {
                let repeats = self.manage.repeats + 1;
                let host = repeats % self.hosts.len();
                if self.hosts[host].is_live() {
                    self.send_sanitize(host, overwrite);
                }
                self.manage.repeats = repeats;
            }
            _ => {
                let sqe = Sqe::new(admin::IDENTIFY).with_cdw(10, u32::from(Cns::ALLOCATED_NAMESPACE_LIST.0));
                self.query(host, Kind::List, 0, sqe, 4096);
            }
        }
        Ok(())
    }

    fn query(&mut self, host: usize, kind: Kind, nsid: u32, sqe: Sqe, bytes: usize) {
        self.forget_stale(host);
        let op = self.rig.number();
        let (begun, at) = (self.rig.now(), self.rig.clock.now());
        let flight = Flight::new(host, nsid, kind, begun, at);
        if self.submit(op, host, 0, flight, command(sqe, None, bytes)) {
            self.manage.stage = Stage::Asked(op);
        }
    }

    /// The answer to one of these commands will not come.
    pub(super) fn lost_manage(&mut self, op: Op, flight: &Flight) {
        if self.manage.stage == Stage::Asked(op) {
            let at = self.rig.clock.now() + AGAIN;
            self.manage.stage = if flight.kind == Kind::Sanitizing { Stage::Sanitizing(at) } else { Stage::Unsure(at) };
        }
    }

    pub(super) fn manage_ended(&mut self, op: Op, flight: &Flight, ended: &CompletedCommand) -> Result<(), Failure> {
        let status = ended.cqe.status();
        if !status.is_success() {
            return self.manage_failed(op, flight, status);
        }
        match flight.kind {
            Kind::Manage => self.task_done(op, flight.host, ended.cqe.dw0.get()),
            Kind::List => {
                let list = NamespaceList::read_from_bytes(&ended.data).map_err(|error| Failure(error.to_string()))?;
                self.listed(&list.iter().map(|nsid| nsid.0).collect())
            }
            Kind::Shape => {
                let shape =
                    IdentifyNamespace::read_from_bytes(&ended.data).map_err(|error| Failure(error.to_string()))?;
                if shape.format_percent_left().is_some_and(|percent| percent > 0) {
                    // A format continues although its host has gone.
                    self.manage.stage = Stage::Unsure(self.rig.clock.now() + AGAIN);
                    return Ok(());
                }
                self.shaped(flight.nsid, usize::from(shape.flbas & 0xf), shape.nsze.get())
            }
            _ => {
                let log = SanitizeLog::read_from_bytes(&ended.data).map_err(|error| Failure(error.to_string()))?;
                self.sanitizing(log.state())
            }
        }
    }

    fn manage_failed(&mut self, op: Op, flight: &Flight, status: Status) -> Result<(), Failure> {
        let again = self.rig.clock.now() + AGAIN;
        let task = self.manage.task;
        let began = self.manage.at.unwrap_or(flight.at);
        let may_fail = self.rig.may_fail(began) || self.may_be_aborted(flight, status);
        // Of a namespace that may have been formatted it is not known how its blocks are kept.
        let most = |coding: BlockFormat| BlockFormat { checked: true, encrypted: true, ..coding };
        let coding = |space: &super::Space| space.blocks.is_checked.map_or(most(space.coding), |_| space.coding);
        let extents = |space: &super::Space| coding(space).extents(space.count, EXTENT);
        let claimed: u64 = self.spaces.values().map(|space| extents(space) * EXTENT).sum();
        let is_full = status.is(Status::NAMESPACE_INSUFFICIENT_CAPACITY) && claimed + EXTENTS * EXTENT > CAPACITY;
        let conflicts = status.is(Status::RESERVATION_CONFLICT) && self.spaces.values().any(|space| space.is_reserved);
        match (flight.kind, task) {
            (Kind::Manage, Some(Task::Create { .. })) if is_full => self.finish_change(),
            (Kind::Manage, Some(Task::Sanitize { .. })) if status.is(Status::SANITIZE_IN_PROGRESS) => {
                self.manage.stage = Stage::Sanitizing(again);
            }
            (Kind::Manage, Some(Task::Sanitize { .. })) if conflicts && (1..REPEATS).contains(&self.manage.repeats) => {
                self.manage.stage = Stage::Unsure(again);
            }
            (Kind::Manage, Some(_)) if conflicts => self.finish_change(),
            (Kind::Sanitizing, _) if may_fail => self.manage.stage = Stage::Sanitizing(again),
            _ if may_fail => {
                if let (Kind::Manage, Some(task)) = (flight.kind, task) {
                    let coding = self.manage.coding;
                    self.failed_change = Some(FailedChange { task, coding, is_restarted: false });
                }
                self.manage.stage = Stage::Unsure(again);
            }
            _ => return Err(self.unexplained(op, flight, status)),
        }
        self.rig.count("refused changes");
        Ok(())
    }

    /// All of it is known again.
    fn finish_change(&mut self) {
        self.manage = Manage::default();
        self.be_sure();
    }

    /// All namespaces can be used, those that were changed too.
    fn be_sure(&mut self) {
        let now = self.rig.clock.now();
        for space in self.spaces.values_mut() {
            if std::mem::take(&mut space.is_unsure) {
                space.changed = now;
            }
        }
    }

    fn task_done(&mut self, op: Op, host: usize, nsid: u32) -> Result<(), Failure> {
        self.failed_change = None;
        match self.manage.task {
            Some(Task::Create { format }) => {
                if self.spaces.contains_key(&nsid) {
                    return fail(format!("{op}: namespace {nsid} was made, and is there already"));
                }
                self.adopt(nsid, format);
                self.stale.entry(nsid).or_default().remove(&host);
            }
            Some(Task::Delete { nsid }) => self.remove_space(nsid, Some(host)),
            Some(Task::Format { nsid, format, erase }) => {
                let formatted: Vec<u32> =
                    self.spaces.keys().copied().filter(|&one| nsid.is_none_or(|nsid| one == nsid)).collect();
                // Where nobody has answered a format before, it may have left something that is not
                // in the blocks of the namespace any more.
                let blocks = formatted.iter().map(|nsid| &self.spaces[nsid].blocks);
                let is_known = |blocks: &&Blocks| blocks.is_checked.is_some();
                let owners: BTreeSet<u16> = blocks.filter(is_known).map(|blocks| blocks.owner).collect();
                if erase > 0 {
                    self.find_remains(&format!("{op}: namespaces {formatted:?} were formatted"), |of| {
                        owners.contains(&of)
                    })?;
                }
                for &nsid in &formatted {
                    self.adopt(nsid, format);
                    if let Some(space) = self.spaces.get_mut(&nsid) {
                        space.is_unsure = true;
                    }
                }
                self.rig.count(if nsid.is_some() { "formats" } else { "formats of all" });
                // How many blocks they have now is to be asked.
                self.manage.is_formatted = true;
                self.manage.unknown = formatted;
                self.manage.stage = Stage::Unsure(self.rig.clock.now());
                return Ok(());
            }
            Some(Task::Sanitize { .. }) => {
                self.manage.stage = Stage::Sanitizing(self.rig.clock.now() + AGAIN);
                return Ok(());
            }
            None => return fail(format!("{op}: nothing was asked for")),
        }
        self.rig.count("changes");
        // Whoever has asked may go on at once; what others have heard of it is another matter.
        self.be_sure();
        self.manage = Manage { stage: Stage::Shown(SHOWN), ..Manage::default() };
        Ok(())
    }

    /// A namespace is new.
    fn adopt(&mut self, nsid: u32, format: usize) {
        let coding = self.manage.coding.unwrap_or_else(|| self.coding(format));
        let count = coding.blocks_per_extent(EXTENT) * EXTENTS;
        self.unregister(nsid, None);
        let before = self.spaces.get(&nsid).map(|space| (space.is_reserved, space.identity));
        let mut space = self.space(format, coding, count);
        if let Some((is_reserved, identity)) = before {
            // Formatted, it is the same one.
            (space.is_reserved, space.identity) = (is_reserved, identity);
        }
        self.spaces.insert(nsid, space);
    }

    /// Which namespaces there are.
    fn listed(&mut self, there: &BTreeSet<u32>) -> Result<(), Failure> {
        let new: Vec<u32> = there.iter().copied().filter(|nsid| !self.spaces.contains_key(nsid)).collect();
        let gone: Vec<u32> = self.spaces.keys().copied().filter(|nsid| !there.contains(nsid)).collect();
        if self.manage.task.is_none()
            && !(new.is_empty() && gone.is_empty())
            && let Some(failed) = self.failed_change.take_if(|failed| failed.is_restarted)
        {
            (self.manage.task, self.manage.coding) = (Some(failed.task), failed.coding);
        }
        match (self.manage.task, &new[..], &gone[..]) {
            (Some(Task::Create { .. }), &[nsid], []) => self.ask_shape(nsid),
            (Some(task @ Task::Format { .. }), [], []) => {
                if self.manage.unknown.is_empty() {
                    self.manage.unknown = self.spaces.keys().copied().filter(|&nsid| task.concerns(nsid)).collect();
                }
                self.ask_next_shape();
            }
            (Some(Task::Delete { nsid }), [], &[only]) if nsid == only => {
                self.remove_space(nsid, None);
                self.finish_change();
            }
            (_, [], []) => self.finish_change(),
            (task, new, gone) => return fail(format!("namespaces {new:?} are new, {gone:?} are gone: {task:?}")),
        }
        Ok(())
    }

    fn ask_next_shape(&mut self) {
        match self.manage.unknown.first() {
            Some(&nsid) => self.ask_shape(nsid),
            None => self.manage.stage = Stage::Shown(SHOWN),
        }
    }

    fn ask_shape(&mut self, nsid: u32) {
        let Some(host) = self.hosts.iter().position(super::Host::is_live) else {
            self.manage.stage = Stage::Unsure(self.rig.clock.now() + AGAIN);
            return;
        };
        let sqe = Sqe::new(admin::IDENTIFY).with_nsid(Nsid(nsid));
        self.manage.stage = Stage::Unsure(self.rig.clock.now() + AGAIN);
        self.query(host, Kind::Shape, nsid, sqe.with_cdw(10, u32::from(Cns::ALLOCATED_NAMESPACE.0)), 4096);
    }

    /// What a namespace is like whose making or formatting nobody has answered.
    fn shaped(&mut self, nsid: u32, format: usize, count: u64) -> Result<(), Failure> {
        let coding = self.manage.coding.unwrap_or_else(|| self.coding(format));
        let expected = coding.blocks_per_extent(EXTENT) * EXTENTS;
        match self.manage.task {
            Some(Task::Create { format: wanted }) if wanted == format && count == expected => {
                self.adopt(nsid, format);
            }
            Some(Task::Format { format: wanted, .. }) => {
                let now = self.rig.now();
                let (is_formatted, sector_bytes) = (self.manage.is_formatted, self.rig.profile.sector_bytes);
                match self.spaces.get_mut(&nsid) {
                    Some(space) if space.format == format => {
                        space.blocks.cleared(is_formatted, now);
                        if space.coding != coding {
                            space.blocks.is_checked = None;
                            let in_flux = InFlux::for_format(coding, sector_bytes);
                            space.blocks.in_flux = space.blocks.in_flux.max(in_flux);
                        }
                    }
                    Some(_) if wanted == format => self.adopt(nsid, format),
                    _ => return fail(format!("namespace {nsid} has format {format}")),
                }
                if let Some(space) = self.spaces.get_mut(&nsid) {
                    space.count = count;
                }
                self.manage.unknown.retain(|&one| one != nsid);
                self.ask_next_shape();
                return Ok(());
            }
            task => return fail(format!("namespace {nsid} has {count} blocks of format {format}: {task:?}")),
        }
        self.finish_change();
        Ok(())
    }

    /// How far sanitizing is.
    fn sanitizing(&mut self, state: SanitizeState) -> Result<(), Failure> {
        let again = self.rig.clock.now() + AGAIN;
        match state {
            SanitizeState::InProgress => self.manage.stage = Stage::Sanitizing(again),
            SanitizeState::Failed => {
                if !self.manage.at.is_some_and(|at| self.rig.may_fail(at)) {
                    return fail("sanitizing has failed without a reason");
                }
                self.manage.stage = Stage::Unsure(again);
            }
            _ => {
                let now = self.rig.now();
                self.spaces.values_mut().for_each(|space| space.blocks.cleared(true, now));
                self.find_remains("the drive was sanitized", |_| true)?;
                self.rig.count("sanitized");
                self.finish_change();
            }
        }
        Ok(())
    }

    /// Fails where the disk has something that hosts have written to these.
    fn find_remains(&mut self, what: &str, of: impl Fn(u16) -> bool) -> Result<(), Failure> {
        let image = self.rig.disk.image();
        let mut at = 0;
        let mut bytes = [0; 4096 + 7];
        while let Some(page) = image.next_data(at) {
            at = page + 4096;
            image.read(page, &mut bytes);
            for (offset, word) in bytes.windows(8).enumerate() {
                let word = u64::from_le_bytes(word.try_into().expect("8 bytes"));
                let serial = u32::try_from(word & 0xffff_ffff).expect("32 bits");
                let lba = word >> 32 & 0xffff;
                let owner = u16::try_from(word >> 48).expect("16 bits");
                let is_written =
                    |(whose, range): &(u16, std::ops::Range<u64>)| *whose == owner && range.contains(&lba) && of(owner);
                if owner > 0 && self.written.get(&serial).is_some_and(is_written) {
                    let place = page + offset as u64;
                    return fail(format!(
                        "{what}, and byte {place} of the disk has what write #{serial} brought to block {lba} of {owner}"
                    ));
                }
            }
        }
        Ok(())
    }
}
