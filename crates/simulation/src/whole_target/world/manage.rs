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

use super::{CAPACITY, EXTENTS, Flight, Kind, World, command, io, learn, reserve};
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

fn begin_task(world: &mut World, host: usize, task: Task, sqe: Sqe, data: Option<&[u8]>) {
    let op = world.rig.number();
    let (begun, at) = (world.rig.now(), world.rig.clock.now());
    let nsid = match task {
        Task::Delete { nsid } => nsid,
        Task::Format { nsid, .. } => nsid.unwrap_or_default(),
        Task::Create { .. } | Task::Sanitize { .. } => 0,
    };
    let flight = Flight::new(host, nsid, Kind::Manage, begun, at);
    if world.submit(op, host, 0, flight, command(sqe, data.map(Into::into), 0)) {
        world.rig.note(|| format!("{op}: {task:?}"));
        let coding = task.format().map(|format| world.coding(format));
        let stage = Stage::Asked(op);
        world.manage = Manage { task: Some(task), stage, at: Some(at), coding, ..Manage::default() };
        for (_, space) in world.spaces.iter_mut().filter(|(nsid, _)| task.concerns(**nsid)) {
            space.is_unsure = true;
        }
    }
}

pub(super) fn create(world: &mut World, host: usize, format: usize) -> Result<(), Failure> {
    let Some(host) = ready(world, host, None)? else { return Ok(()) };
    let format = world.format_index(format);
    let count = world.coding(format).blocks_per_extent(EXTENT) * EXTENTS;
    let mut new = NewNamespace::new(count);
    new.set_format(u8::try_from(format).unwrap_or_default(), format > 1);
    new.nmic = 1;
    let sqe = NamespaceManagement { select: ManagementSelect::Create, csi: Csi::NVM }.encode(Nsid::NONE);
    begin_task(world, host, Task::Create { format }, sqe, Some(new.as_bytes()));
    Ok(())
}

pub(super) fn delete(world: &mut World, host: usize, slot: usize) -> Result<(), Failure> {
    let Some(nsid) = world.nsid(slot) else { return Ok(()) };
    if let Some(host) = ready(world, host, Some(nsid))? {
        let sqe = NamespaceManagement { select: ManagementSelect::Delete, csi: Csi::NVM }.encode(Nsid(nsid));
        begin_task(world, host, Task::Delete { nsid }, sqe, None);
    }
    Ok(())
}

pub(super) fn format(
    world: &mut World,
    host: usize,
    slot: Option<usize>,
    format: usize,
    erase: u8,
) -> Result<(), Failure> {
    let nsid = slot.and_then(|slot| world.nsid(slot));
    if slot.is_some() == nsid.is_some()
        && let Some(host) = ready(world, host, nsid)?
        && (nsid.is_some() || is_quiet(world, None)?)
    {
        let format = world.format_index(format);
        // There is no key to destroy where nothing is encrypted.
        let erase = if world.setting.encrypts { erase } else { erase.min(1) };
        let wanted = Format {
            metadata_extended: format > 1,
            erase: SecureErase::decode(erase),
            ..Format::new(u8::try_from(format).unwrap_or_default())
        };
        begin_task(
            world,
            host,
            Task::Format { nsid, format, erase },
            wanted.encode(nsid.map_or(Nsid::ALL, Nsid)),
            None,
        );
    }
    Ok(())
}

pub(super) fn sanitize(world: &mut World, host: usize, overwrite: bool) -> Result<(), Failure> {
    if let Some(host) = ready(world, host, None)?
        && is_quiet(world, None)?
    {
        send_sanitize(world, host, overwrite);
    }
    Ok(())
}

fn send_sanitize(world: &mut World, host: usize, overwrite: bool) {
    let action = match (overwrite, world.setting.encrypts) {
        (true, _) => SanitizeAction::Overwrite,
        (false, true) => SanitizeAction::CryptoErase,
        (false, false) => SanitizeAction::BlockErase,
    };
    begin_task(world, host, Task::Sanitize { overwrite }, Sanitize::new(action).encode(), None);
}

/// Who can send such a command: this host, or another one. Waits a little for what others
/// change, and for what is under way to the namespace.
fn ready(world: &mut World, host: usize, nsid: Option<u32>) -> Result<Option<usize>, Failure> {
    for _ in 0..world.rig.chances.below(200) {
        if administrator(world, host, nsid).is_some() || world.rig.disk.is_off() {
            break;
        }
        world.step()?;
    }
    let ready = administrator(world, host, nsid);
    if ready.is_none() || nsid.is_some() && !is_quiet(world, nsid)? {
        return Ok(None);
    }
    Ok(ready.filter(|&host| world.manage.is_idle() && world.hosts[host].is_live()))
}

/// This host or another one that may change the namespace now, or make one.
fn administrator(world: &mut World, host: usize, nsid: Option<u32>) -> Option<usize> {
    let hosts = world.hosts.len();
    let can = |world: &mut World, host: usize| {
        nsid.map_or(world.hosts[host].is_live(), |nsid| learn::may_use(world, host, nsid))
    };
    (0..hosts).map(|at| (host + at) % hosts).find(|&host| world.manage.is_idle() && can(world, host))
}

/// Waits a little for what is under way to the namespace, or to all.
fn is_quiet(world: &mut World, nsid: Option<u32>) -> Result<bool, Failure> {
    for _ in 0..400 {
        let all = world.flights.values().chain(world.ghosts.values());
        let is_quiet = all.filter(|flight| nsid.is_none_or(|nsid| flight.nsid == nsid)).count() == 0;
        if is_quiet || world.rig.disk.is_off() {
            return Ok(is_quiet && !world.rig.disk.is_off());
        }
        world.step()?;
    }
    Ok(false)
}

/// Sends the queries that are due.
pub(super) fn step(world: &mut World) -> Result<(), Failure> {
    let now = world.rig.clock.now();
    match world.manage.stage {
        Stage::Shown(0) => finish_change(world),
        Stage::Shown(left) => world.manage.stage = Stage::Shown(left - 1),
        _ => {}
    }
    let due = match world.manage.stage {
        Stage::Unsure(at) | Stage::Sanitizing(at) => at <= now,
        Stage::Known | Stage::Asked(_) | Stage::Shown(_) => false,
    };
    // What was lost may be done late: until it is over, a query says nothing.
    let is_open = world.ghosts.values().any(|flight| flight.kind == Kind::Manage);
    let host = world.hosts.iter().position(|host| due && !is_open && host.is_live());
    let Some(host) = host else { return Ok(()) };
    match (world.manage.stage, world.manage.task) {
        (Stage::Sanitizing(_), _) => {
            let sqe = GetLogPage::new(Lid::SANITIZE_STATUS, 512).encode(Nsid::ALL);
            query(world, host, Kind::Sanitizing, 0, sqe, 512);
        }
        (_, Some(Task::Sanitize { overwrite })) => {
            let repeats = world.manage.repeats + 1;
            let host = repeats % world.hosts.len();
            if world.hosts[host].is_live() {
                send_sanitize(world, host, overwrite);
            }
            world.manage.repeats = repeats;
        }
        _ => {
            let sqe = Sqe::new(admin::IDENTIFY).with_cdw(10, u32::from(Cns::ALLOCATED_NAMESPACE_LIST.0));
            query(world, host, Kind::List, 0, sqe, 4096);
        }
    }
    Ok(())
}

fn query(world: &mut World, host: usize, kind: Kind, nsid: u32, sqe: Sqe, bytes: usize) {
    learn::forget_stale(world, host);
    let op = world.rig.number();
    let (begun, at) = (world.rig.now(), world.rig.clock.now());
    let flight = Flight::new(host, nsid, kind, begun, at);
    if world.submit(op, host, 0, flight, command(sqe, None, bytes)) {
        world.manage.stage = Stage::Asked(op);
    }
}

/// The answer to one of these commands will not come.
pub(super) fn lost(world: &mut World, op: Op, flight: &Flight) {
    if world.manage.stage == Stage::Asked(op) {
        let at = world.rig.clock.now() + AGAIN;
        world.manage.stage = if flight.kind == Kind::Sanitizing { Stage::Sanitizing(at) } else { Stage::Unsure(at) };
    }
}

pub(super) fn ended(world: &mut World, op: Op, flight: &Flight, ended: &CompletedCommand) -> Result<(), Failure> {
    let status = ended.cqe.status();
    if !status.is_success() {
        return failed(world, op, flight, status);
    }
    match flight.kind {
        Kind::Manage => task_done(world, op, flight.host, ended.cqe.dw0.get()),
        Kind::List => {
            let list = NamespaceList::read_from_bytes(&ended.data).map_err(|error| Failure(error.to_string()))?;
            listed(world, &list.iter().map(|nsid| nsid.0).collect())
        }
        Kind::Shape => {
            let shape = IdentifyNamespace::read_from_bytes(&ended.data).map_err(|error| Failure(error.to_string()))?;
            if shape.format_percent_left().is_some_and(|percent| percent > 0) {
                // A format continues although its host has gone.
                world.manage.stage = Stage::Unsure(world.rig.clock.now() + AGAIN);
                return Ok(());
            }
            shaped(world, flight.nsid, usize::from(shape.flbas & 0xf), shape.nsze.get())
        }
        _ => {
            let log = SanitizeLog::read_from_bytes(&ended.data).map_err(|error| Failure(error.to_string()))?;
            sanitizing(world, log.state())
        }
    }
}

fn failed(world: &mut World, op: Op, flight: &Flight, status: Status) -> Result<(), Failure> {
    let again = world.rig.clock.now() + AGAIN;
    let task = world.manage.task;
    let began = world.manage.at.unwrap_or(flight.at);
    let may_fail = world.rig.may_fail(began) || io::may_be_aborted(world, flight, status);
    // Of a namespace that may have been formatted it is not known how its blocks are kept.
    let most = |coding: BlockFormat| BlockFormat { checked: true, encrypted: true, ..coding };
    let coding = |space: &super::Space| space.blocks.is_checked.map_or(most(space.coding), |_| space.coding);
    let extents = |space: &super::Space| coding(space).extents(space.count, EXTENT);
    let claimed: u64 = world.spaces.values().map(|space| extents(space) * EXTENT).sum();
    let is_full = status.is(Status::NAMESPACE_INSUFFICIENT_CAPACITY) && claimed + EXTENTS * EXTENT > CAPACITY;
    let conflicts = status.is(Status::RESERVATION_CONFLICT) && world.spaces.values().any(|space| space.is_reserved);
    match (flight.kind, task) {
        (Kind::Manage, Some(Task::Create { .. })) if is_full => finish_change(world),
        (Kind::Manage, Some(Task::Sanitize { .. })) if status.is(Status::SANITIZE_IN_PROGRESS) => {
            world.manage.stage = Stage::Sanitizing(again);
        }
        (Kind::Manage, Some(Task::Sanitize { .. })) if conflicts && (1..REPEATS).contains(&world.manage.repeats) => {
            world.manage.stage = Stage::Unsure(again);
        }
        (Kind::Manage, Some(_)) if conflicts => finish_change(world),
        (Kind::Sanitizing, _) if may_fail => world.manage.stage = Stage::Sanitizing(again),
        _ if may_fail => {
            if let (Kind::Manage, Some(task)) = (flight.kind, task) {
                let coding = world.manage.coding;
                world.failed_change = Some(FailedChange { task, coding, is_restarted: false });
            }
            world.manage.stage = Stage::Unsure(again);
        }
        _ => return Err(io::unexplained(op, flight, status)),
    }
    world.rig.count("refused changes");
    Ok(())
}

/// All of it is known again.
fn finish_change(world: &mut World) {
    world.manage = Manage::default();
    be_sure(world);
}

/// All namespaces can be used, those that were changed too.
fn be_sure(world: &mut World) {
    let now = world.rig.clock.now();
    for space in world.spaces.values_mut() {
        if std::mem::take(&mut space.is_unsure) {
            space.changed = now;
        }
    }
}

fn task_done(world: &mut World, op: Op, host: usize, nsid: u32) -> Result<(), Failure> {
    world.failed_change = None;
    match world.manage.task {
        Some(Task::Create { format }) => {
            if world.spaces.contains_key(&nsid) {
                return fail(format!("{op}: namespace {nsid} was made, and is there already"));
            }
            adopt(world, nsid, format);
            world.stale.entry(nsid).or_default().remove(&host);
        }
        Some(Task::Delete { nsid }) => learn::remove_space(world, nsid, Some(host)),
        Some(Task::Format { nsid, format, erase }) => {
            let formatted: Vec<u32> =
                world.spaces.keys().copied().filter(|&one| nsid.is_none_or(|nsid| one == nsid)).collect();
            // Where nobody has answered a format before, it may have left something that is not
            // in the blocks of the namespace any more.
            let blocks = formatted.iter().map(|nsid| &world.spaces[nsid].blocks);
            let is_known = |blocks: &&Blocks| blocks.is_checked.is_some();
            let owners: BTreeSet<u16> = blocks.filter(is_known).map(|blocks| blocks.owner).collect();
            if erase > 0 {
                find_remains(world, &format!("{op}: namespaces {formatted:?} were formatted"), |of| {
                    owners.contains(&of)
                })?;
            }
            for &nsid in &formatted {
                adopt(world, nsid, format);
                if let Some(space) = world.spaces.get_mut(&nsid) {
                    space.is_unsure = true;
                }
            }
            world.rig.count(if nsid.is_some() { "formats" } else { "formats of all" });
            // How many blocks they have now is to be asked.
            world.manage.is_formatted = true;
            world.manage.unknown = formatted;
            world.manage.stage = Stage::Unsure(world.rig.clock.now());
            return Ok(());
        }
        Some(Task::Sanitize { .. }) => {
            world.manage.stage = Stage::Sanitizing(world.rig.clock.now() + AGAIN);
            return Ok(());
        }
        None => return fail(format!("{op}: nothing was asked for")),
    }
    world.rig.count("changes");
    // Whoever has asked may go on at once; what others have heard of it is another matter.
    be_sure(world);
    world.manage = Manage { stage: Stage::Shown(SHOWN), ..Manage::default() };
    Ok(())
}

/// A namespace is new.
fn adopt(world: &mut World, nsid: u32, format: usize) {
    let coding = world.manage.coding.unwrap_or_else(|| world.coding(format));
    let count = coding.blocks_per_extent(EXTENT) * EXTENTS;
    reserve::unregister(world, nsid, None);
    let before = world.spaces.get(&nsid).map(|space| (space.is_reserved, space.identity));
    let mut space = world.space(format, coding, count);
    if let Some((is_reserved, identity)) = before {
        // Formatted, it is the same one.
        (space.is_reserved, space.identity) = (is_reserved, identity);
    }
    world.spaces.insert(nsid, space);
}

/// Which namespaces there are.
fn listed(world: &mut World, there: &BTreeSet<u32>) -> Result<(), Failure> {
    let new: Vec<u32> = there.iter().copied().filter(|nsid| !world.spaces.contains_key(nsid)).collect();
    let gone: Vec<u32> = world.spaces.keys().copied().filter(|nsid| !there.contains(nsid)).collect();
    if world.manage.task.is_none()
        && !(new.is_empty() && gone.is_empty())
        && let Some(failed) = world.failed_change.take_if(|failed| failed.is_restarted)
    {
        (world.manage.task, world.manage.coding) = (Some(failed.task), failed.coding);
    }
    match (world.manage.task, &new[..], &gone[..]) {
        (Some(Task::Create { .. }), &[nsid], []) => ask_shape(world, nsid),
        (Some(task @ Task::Format { .. }), [], []) => {
            if world.manage.unknown.is_empty() {
                world.manage.unknown = world.spaces.keys().copied().filter(|&nsid| task.concerns(nsid)).collect();
            }
            ask_next_shape(world);
        }
        (Some(Task::Delete { nsid }), [], &[only]) if nsid == only => {
            learn::remove_space(world, nsid, None);
            finish_change(world);
        }
        (_, [], []) => finish_change(world),
        (task, new, gone) => return fail(format!("namespaces {new:?} are new, {gone:?} are gone: {task:?}")),
    }
    Ok(())
}

fn ask_next_shape(world: &mut World) {
    match world.manage.unknown.first() {
        Some(&nsid) => ask_shape(world, nsid),
        None => world.manage.stage = Stage::Shown(SHOWN),
    }
}

fn ask_shape(world: &mut World, nsid: u32) {
    let Some(host) = world.hosts.iter().position(super::Host::is_live) else {
        world.manage.stage = Stage::Unsure(world.rig.clock.now() + AGAIN);
        return;
    };
    let sqe = Sqe::new(admin::IDENTIFY).with_nsid(Nsid(nsid));
    world.manage.stage = Stage::Unsure(world.rig.clock.now() + AGAIN);
    query(world, host, Kind::Shape, nsid, sqe.with_cdw(10, u32::from(Cns::ALLOCATED_NAMESPACE.0)), 4096);
}

/// What a namespace is like whose making or formatting nobody has answered.
fn shaped(world: &mut World, nsid: u32, format: usize, count: u64) -> Result<(), Failure> {
    let coding = world.manage.coding.unwrap_or_else(|| world.coding(format));
    let expected = coding.blocks_per_extent(EXTENT) * EXTENTS;
    match world.manage.task {
        Some(Task::Create { format: wanted }) if wanted == format && count == expected => {
            adopt(world, nsid, format);
        }
        Some(Task::Format { format: wanted, .. }) => {
            let now = world.rig.now();
            let (is_formatted, sector_bytes) = (world.manage.is_formatted, world.rig.profile.sector_bytes);
            match world.spaces.get_mut(&nsid) {
                Some(space) if space.format == format => {
                    space.blocks.cleared(is_formatted, now);
                    if space.coding != coding {
                        space.blocks.is_checked = None;
                        let in_flux = InFlux::for_format(coding, sector_bytes);
                        space.blocks.in_flux = space.blocks.in_flux.max(in_flux);
                    }
                }
                Some(_) if wanted == format => adopt(world, nsid, format),
                _ => return fail(format!("namespace {nsid} has format {format}")),
            }
            if let Some(space) = world.spaces.get_mut(&nsid) {
                space.count = count;
            }
            world.manage.unknown.retain(|&one| one != nsid);
            ask_next_shape(world);
            return Ok(());
        }
        task => return fail(format!("namespace {nsid} has {count} blocks of format {format}: {task:?}")),
    }
    finish_change(world);
    Ok(())
}

/// How far sanitizing is.
fn sanitizing(world: &mut World, state: SanitizeState) -> Result<(), Failure> {
    let again = world.rig.clock.now() + AGAIN;
    match state {
        SanitizeState::InProgress => world.manage.stage = Stage::Sanitizing(again),
        SanitizeState::Failed => {
            if !world.manage.at.is_some_and(|at| world.rig.may_fail(at)) {
                return fail("sanitizing has failed without a reason");
            }
            world.manage.stage = Stage::Unsure(again);
        }
        _ => {
            let now = world.rig.now();
            world.spaces.values_mut().for_each(|space| space.blocks.cleared(true, now));
            find_remains(world, "the drive was sanitized", |_| true)?;
            world.rig.count("sanitized");
            finish_change(world);
        }
    }
    Ok(())
}

/// Fails where the disk has something that hosts have written to these.
fn find_remains(world: &mut World, what: &str, of: impl Fn(u16) -> bool) -> Result<(), Failure> {
    let image = world.rig.disk.image();
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
            if owner > 0 && world.written.get(&serial).is_some_and(is_written) {
                let place = page + offset as u64;
                return fail(format!(
                    "{what}, and byte {place} of the disk has what write #{serial} brought to block {lba} of {owner}"
                ));
            }
        }
    }
    Ok(())
}
