//! Commands, one at a time, and whether they end as they have to.

use std::collections::BTreeSet;

use ebof_drive::BlockFormat;
use ebof_nvme::feature::{Fid, SetFeature};
use ebof_nvme::identify::{ControllerList, Csi};
use ebof_nvme::namespace::{AttachmentSelect, ManagementSelect, NamespaceManagement, NewNamespace};
use ebof_nvme::opcode::admin;
use ebof_nvme::reservation::{
    Acquire, AcquireAction, AcquireKeys, PersistenceChange, Register, RegisterAction, RegisterKeys, Release,
    ReleaseAction, ReleaseKey, ReservationType,
};
use ebof_nvme::{ControllerId, Nsid, Sqe};
use zerocopy::IntoBytes;

use super::super::acts::Ask;
use super::super::model::{Edit, ModelRequest};
use super::{Unsure, World, look, visits};
use crate::rig::{EXTENT, System as _};
use crate::story::{Failure, fail};
use crate::transport::wire::{Command, CompletedCommand};

/// Commands of one act at most, and those of them that are refused.
const COMMANDS_MAX: usize = 128;
const REFUSED_MAX: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// The power went before it, or the request was not sent.
    None,
    Refused,
    Done,
}

/// Sends a command for several namespaces.
pub(super) fn ask_for(world: &mut World, ask: Ask, namespaces: u64, percent: u64) -> Result<(), Failure> {
    let count = usize::try_from(namespaces).unwrap_or(usize::MAX);
    let nsids = if let Ask::Create { .. } = ask { vec![0; count] } else { some(world, count) };
    let (mut left, mut refused) = (COMMANDS_MAX, 0);
    for nsid in nsids {
        for request in requests(world, nsid, ask, percent) {
            if left == 0 || refused == REFUSED_MAX || world.rig.disk.is_off() {
                return Ok(());
            }
            left -= 1;
            refused += usize::from(send_request(world, &request)? == Answer::Refused);
        }
    }
    Ok(())
}

/// So many namespaces, one after the other from some point on.
fn some(world: &mut World, count: usize) -> Vec<u32> {
    let from = world.rig.chances.index(world.namespaces.len());
    let all = world.namespaces.keys().copied();
    all.cycle().skip(from).take(count.min(world.namespaces.len())).collect()
}

/// The requests for one namespace, each with the host that sends it.
fn requests(world: &mut World, nsid: u32, ask: Ask, percent: u64) -> Vec<ModelRequest> {
    let all = world.present.clone();
    let Some(namespace) = world.namespaces.get(&nsid) else {
        let Ask::Create { shared } = ask else { return Vec::new() };
        let by = one_of(world, &all, &all);
        return by.map(|by| ModelRequest { by, nsid: 0, edit: Edit::Create { shared } }).into_iter().collect();
    };
    let reservation = &namespace.reservation;
    let known: BTreeSet<usize> = world.met.values().chain(world.cntlids.values()).copied().collect();
    let others: BTreeSet<usize> = known.difference(&namespace.hosts).copied().collect();
    let known: BTreeSet<usize> = known.intersection(&namespace.hosts).copied().collect();
    let attached: BTreeSet<usize> = all.intersection(&namespace.hosts).copied().collect();
    let registrants: BTreeSet<usize> = reservation.registrants.intersection(&attached).copied().collect();
    let managers: BTreeSet<usize> = all.iter().copied().filter(|&host| !reservation.shuts_out(host)).collect();
    let held = reservation.held.map_or(ReservationType::WriteExclusive, |(kind, _)| kind);
    let (by, edit) = match ask {
        Ask::Register { persistence } => {
            let request = |by| ModelRequest { by, nsid, edit: Edit::Register(persistence) };
            return part_of(world, &attached, percent).into_iter().map(request).collect();
        }
        Ask::Unregister => {
            let request = |by| ModelRequest { by, nsid, edit: Edit::Unregister };
            return part_of(world, &registrants, percent).into_iter().map(request).collect();
        }
        Ask::Create { .. } => return Vec::new(),
        Ask::Delete => (one_of(world, &all, &managers), Edit::Delete),
        Ask::Attach => (one_of(world, &all, &managers), Edit::Attach(part_of(world, &others, percent))),
        Ask::Detach => (one_of(world, &all, &managers), Edit::Detach(part_of(world, &known, percent))),
        Ask::Protect { protected } => (one_of(world, &attached, &attached), Edit::Protect(protected)),
        Ask::Persist { persists } => (one_of(world, &attached, &attached), Edit::Persist(persists)),
        Ask::Acquire { kind } => (one_of(world, &attached, &registrants), Edit::Acquire(kind)),
        Ask::Release => (one_of(world, &attached, &registrants), Edit::Release(held)),
        Ask::Clear => (one_of(world, &attached, &registrants), Edit::Clear),
    };
    // There is no command about no hosts.
    let is_empty = matches!(&edit, Edit::Attach(hosts) | Edit::Detach(hosts) if hosts.is_empty());
    by.filter(|_| !is_empty).map(|by| ModelRequest { by, nsid, edit }).into_iter().collect()
}

/// One of `hosts`, mostly one of `better`.
fn one_of(world: &mut World, hosts: &BTreeSet<usize>, better: &BTreeSet<usize>) -> Option<usize> {
    let chances = &mut world.rig.chances;
    let hosts = if chances.percent(80) && !better.is_empty() { better } else { hosts };
    hosts.iter().copied().nth(chances.index(hosts.len()))
}

fn part_of(world: &mut World, hosts: &BTreeSet<usize>, percent: u64) -> BTreeSet<usize> {
    hosts.iter().copied().filter(|_| world.rig.chances.percent(percent)).collect()
}

/// Has a host send a request, and updates the model from the answer.
fn send_request(world: &mut World, request: &ModelRequest) -> Result<Answer, Failure> {
    if world.unsure.is_some() {
        // First it has to be known what became of the last one.
        look::compare(world)?;
        return Ok(Answer::None);
    }
    let ModelRequest { by, nsid, edit } = request;
    if !edit.is_of_namespaces() && !look::inform(world, *by)? {
        return Ok(Answer::None);
    }
    let verdict = world.limits.verdict(&world.namespaces, request);
    let namespace = request.done(&world.namespaces);
    let (queue, sqe, data) = command(world, request);
    if queue > 0 && !look::inspect(world, *by, *nsid)? {
        return Ok(Answer::None);
    }
    world.unsure = Some(Unsure { nsid: *nsid, namespace: namespace.clone() });
    let command = Command { sqe, data: Some(data.into()), read_bytes: 0 };
    let met = world.met.clone();
    let Some(ended) = ask(world, *by, queue, &command)? else { return Ok(Answer::None) };
    world.unsure = None;
    let status = ended.cqe.status();
    world.rig.count("changes");
    world.rig.note(|| format!("host {by}, namespace {nsid}: {edit:?}: {status}"));
    if !status.is_success() {
        if !verdict.refusals.iter().any(|one| status.is(*one)) {
            return fail(format!("host {by}, namespace {nsid}: {edit:?} is refused without a reason: {status}"));
        }
        world.rig.count("refused changes");
        return Ok(Answer::Refused);
    }
    if verdict.is_refused {
        return fail(format!(
            "host {by}, namespace {nsid}: {edit:?} is done, and had to be refused: {:?}",
            verdict.refusals
        ));
    }
    if edit.is_of_namespaces() {
        world.informed.clear();
    }
    // The drive's thread executes in order: it has recorded these controllers before.
    world.cntlids.extend(met);
    let is_new = *nsid == 0;
    let nsid = if is_new { ended.cqe.dw0.get() } else { *nsid };
    if is_new && world.namespaces.contains_key(&nsid) {
        return fail(format!("namespace {nsid} was made, and is there already"));
    }
    world.set(nsid, namespace);
    Ok(Answer::Done)
}

/// The queue, the command and its data.
fn command(world: &World, request: &ModelRequest) -> (usize, Sqe, Vec<u8>) {
    let (nsid, own) = (Nsid(request.nsid), key(request.by));
    let list = |hosts: &BTreeSet<usize>| {
        let controllers: BTreeSet<ControllerId> =
            hosts.iter().filter_map(|&host| visits::cntlid(world, host)).map(ControllerId).collect();
        ControllerList::starting_at(ControllerId(0), controllers).as_bytes().to_vec()
    };
    let feature = |fid, value: bool| {
        let cdw10 = SetFeature { fid, save: false }.encode();
        Sqe::new(admin::SET_FEATURES).with_nsid(nsid).with_cdw(10, cdw10).with_cdw(11, u32::from(value))
    };
    let register = |action, persistence| Register { action, ignore_existing_key: true, persistence }.encode(nsid);
    let keys = |crkey: u64, nrkey: u64| RegisterKeys { crkey: crkey.into(), nrkey: nrkey.into() };
    let release = |action, rtype| Release { action, ignore_existing_key: false, rtype }.encode(nsid);
    let release_key = || ReleaseKey { crkey: own.into() }.as_bytes().to_vec();
    match &request.edit {
        Edit::Create { shared } => {
            let (index, block_shift) = if world.rig.profile.sector_bytes == 512 { (0, 9) } else { (1, 12) };
            let (checked, encrypted) = (world.setting.checks, world.setting.encrypts);
            let block_format = BlockFormat { block_shift, metadata_bytes: 0, checked, encrypted };
            let mut new = NewNamespace::new(block_format.blocks_per_extent(EXTENT));
            new.set_format(index, false);
            new.nmic = u8::from(*shared);
            let create = NamespaceManagement { select: ManagementSelect::Create, csi: Csi::NVM };
            (0, create.encode(Nsid::NONE), new.as_bytes().to_vec())
        }
        Edit::Delete => {
            let delete = NamespaceManagement { select: ManagementSelect::Delete, csi: Csi::NVM };
            (0, delete.encode(nsid), Vec::new())
        }
        Edit::Attach(hosts) => (0, AttachmentSelect::Attach.encode(nsid), list(hosts)),
        Edit::Detach(hosts) => (0, AttachmentSelect::Detach.encode(nsid), list(hosts)),
        Edit::Protect(protected) => (0, feature(Fid::WRITE_PROTECTION, *protected), Vec::new()),
        Edit::Persist(persists) => (0, feature(Fid::RESERVATION_PERSISTENCE, *persists), Vec::new()),
        Edit::Register(persistence) => {
            (1, register(RegisterAction::Register, *persistence), keys(0, own).as_bytes().to_vec())
        }
        Edit::Unregister => {
            (1, register(RegisterAction::Unregister, PersistenceChange::None), keys(own, 0).as_bytes().to_vec())
        }
        Edit::Acquire(kind) => {
            let acquire = Acquire { action: AcquireAction::Acquire, ignore_existing_key: false, rtype: kind.encode() };
            let keys = AcquireKeys { crkey: own.into(), prkey: 0.into() };
            (1, acquire.encode(nsid), keys.as_bytes().to_vec())
        }
        Edit::Release(kind) => (1, release(ReleaseAction::Release, kind.encode()), release_key()),
        Edit::Clear => (1, release(ReleaseAction::Clear, 0), release_key()),
    }
}

/// Has a host send a command; `None` where the power goes, or its connection, before the
/// answer.
pub(super) fn ask(
    world: &mut World,
    host: usize,
    queue: usize,
    command: &Command,
) -> Result<Option<CompletedCommand>, Failure> {
    let op = world.rig.number();
    (world.asked, world.answer) = (Some((op, host)), None);
    let mut is_sent = false;
    world.until("the answer to a command", |world| {
        let now = world.rig.clock.now();
        is_sent = is_sent || world.hosts[host].submit(queue, op, command.clone(), now);
        world.answer.is_some() || world.asked.is_none()
    })?;
    world.asked = None;
    let answer = world.answer.take();
    let how = answer.as_ref().map_or(u64::MAX, |ended| u64::from(ended.cqe.status().0));
    world.rig.digest(op, how);
    Ok(answer)
}

/// The key of a host.
pub(super) fn key(host: usize) -> u64 {
    0x100 + host as u64
}
