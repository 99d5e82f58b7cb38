//! What hosts are shown, and whether it is what the drive has to remember.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use ebof_nvme::feature::{Fid, GetFeature, Select, WriteProtection};
use ebof_nvme::identify::{Cns, ControllerList, NamespaceList};
use ebof_nvme::log::{GetLogPage, Lid};
use ebof_nvme::opcode::admin;
use ebof_nvme::reservation::{Report, ReservationType, read_report};
use ebof_nvme::{Nsid, Sqe};
use zerocopy::FromBytes;

use super::super::model::{self, Namespaces, Reservation};
use super::ask::key;
use super::{World, ask, visits};
use crate::rig::System as _;
use crate::story::{Failure, fail};
use crate::transport::wire::Command;

/// Steps after which all threads have heard of a change.
const SHOWN: u32 = 40;

/// What hosts are shown.
#[derive(Debug, Default)]
struct Shown {
    /// Hosts that are connected, by controller.
    present: BTreeMap<u16, usize>,
    namespaces: BTreeMap<u32, Namespace>,
    /// The namespaces of some of the hosts, as these are shown them.
    active: BTreeMap<usize, BTreeSet<u32>>,
}

/// What hosts are shown of a namespace.
#[derive(Debug)]
struct Namespace {
    /// Of those that are connected.
    hosts: BTreeSet<usize>,
    /// Of one that is attached to a host: whether it is protected, and its reservation.
    inner: Option<(bool, Reservation)>,
}

/// Compares what hosts are shown with the model. A request that was not answered was executed
/// completely or not at all.
pub(super) fn compare(world: &mut World) -> Result<(), Failure> {
    if !visits::are_here(world)? {
        return Ok(());
    }
    let unsure = unsure_hosts(world);
    let visitors = visits::visitors(world, unsure);
    let shown = shown(world, &visitors)?;
    visits::leave(world, &visitors);
    let Some(shown) = shown else { return Ok(()) };
    let unsure = world.unsure.take();
    if let Some(difference) = shown.differ(&world.namespaces) {
        let Some(unsure) = unsure else { return fail(difference) };
        let new = shown.namespaces.keys().copied().find(|nsid| !world.namespaces.contains_key(nsid));
        let nsid = if unsure.nsid == 0 { new.unwrap_or_default() } else { unsure.nsid };
        world.set(nsid, unsure.namespace);
        world.informed.clear();
        if let Some(other) = shown.differ(&world.namespaces) {
            return fail(format!("{difference}, or, after the command that was not answered: {other}"));
        }
        world.rig.count("changes without an answer");
    }
    world.rig.count("comparisons");
    Ok(())
}

/// Hosts that see whether the request that was not answered was executed.
fn unsure_hosts(world: &World) -> BTreeSet<usize> {
    let Some(unsure) = &world.unsure else { return BTreeSet::new() };
    let none = BTreeSet::new();
    let before = world.namespaces.get(&unsure.nsid).map_or(&none, |namespace| &namespace.hosts);
    let after = unsure.namespace.as_ref().map_or(&none, |namespace| &namespace.hosts);
    before.symmetric_difference(after).copied().collect()
}

/// Has a host identify its namespaces, where they may have changed since it did; `false` where
/// the power goes before that.
pub(super) fn inform(world: &mut World, host: usize) -> Result<bool, Failure> {
    if world.informed.contains(&host) {
        return Ok(true);
    }
    (0..SHOWN).try_for_each(|_| world.step())?;
    let Some(list) = active(world, host)? else { return Ok(false) };
    let own = world.namespaces.iter().filter(|(_, namespace)| namespace.hosts.contains(&host));
    let own: BTreeSet<u32> = own.map(|(&nsid, _)| nsid).collect();
    if own != list {
        return fail(format!("host {host} is shown the namespaces {list:?}, and should be {own:?}"));
    }
    world.informed.insert(host);
    Ok(true)
}

/// What the connected hosts and the visitors are shown; `None` if the power goes before that.
fn shown(world: &mut World, visitors: &[usize]) -> Result<Option<Shown>, Failure> {
    if !visits::come(world, visitors)? {
        return Ok(None);
    }
    (0..SHOWN).try_for_each(|_| world.step())?;
    let mut shown = Shown::default();
    let reader = world.present.first().copied().unwrap_or_default();
    let Some(there) = list(world, reader, Cns::ALLOCATED_NAMESPACE_LIST)? else { return Ok(None) };
    let present = world.present.iter().filter_map(|&host| Some((world.hosts[host].cntlid()?, host)));
    shown.present = present.collect();
    for &nsid in &there {
        let sqe = identify(Cns::NAMESPACE_CONTROLLER_LIST).with_nsid(Nsid(nsid));
        let Some(data) = read(world, reader, 0, sqe, 4096)? else { return Ok(None) };
        let list = ControllerList::read_from_bytes(&data).map_err(|error| Failure(error.to_string()))?;
        // Controllers of hosts that have just left may be listed.
        let hosts = list.iter().filter_map(|cntlid| shown.present.get(&cntlid.0).copied()).collect();
        shown.namespaces.insert(nsid, Namespace { hosts, inner: None });
    }
    for &visitor in visitors {
        let Some(list) = active(world, visitor)? else { return Ok(None) };
        shown.active.insert(visitor, list);
    }
    for nsid in there {
        let hosts = &shown.namespaces[&nsid].hosts;
        let Some(first) = hosts.iter().copied().nth(world.rig.chances.index(hosts.len())) else { continue };
        // What one host can identify needs no other one.
        let reader = hosts.iter().copied().find(|host| shown.active.contains_key(host)).unwrap_or(first);
        if let Entry::Vacant(list) = shown.active.entry(reader) {
            let Some(active) = active(world, reader)? else { return Ok(None) };
            list.insert(active);
        }
        let Some(inner) = inner(world, reader, nsid)? else { return Ok(None) };
        shown.namespaces.entry(nsid).and_modify(|one| one.inner = Some(inner));
    }
    Ok(Some(shown))
}

/// What only a host can see that a namespace is attached to.
fn inner(world: &mut World, host: usize, nsid: u32) -> Result<Option<(bool, Reservation)>, Failure> {
    let cdw10 = GetFeature { fid: Fid::WRITE_PROTECTION, select: Select::Current }.encode();
    let sqe = Sqe::new(admin::GET_FEATURES).with_nsid(Nsid(nsid)).with_cdw(10, cdw10);
    let Some(ended) = ask::ask(world, host, 0, &Command { sqe, data: None, read_bytes: 0 })? else { return Ok(None) };
    let status = ended.cqe.status();
    if !status.is_success() {
        return fail(format!("host {host}: the write protection of namespace {nsid} is not told: {status}"));
    }
    let is_protected = WriteProtection::decode(ended.cqe.dw0.get()) == WriteProtection::Protected;
    if !inspect(world, host, nsid)? {
        return Ok(None);
    }
    let bytes = 64 * (1 + world.hosts.len());
    let report = Report { bytes: bytes as u64, extended: true };
    let Some(data) = read(world, host, 1, report.encode(Nsid(nsid)), bytes)? else { return Ok(None) };
    let Some((status, reported)) = read_report(&data, true) else {
        return fail(format!("the report of namespace {nsid} is too short"));
    };
    let mut registrants = BTreeSet::new();
    let mut holders = BTreeSet::new();
    for one in reported {
        let [id @ .., _, _, _, _, _, _, _, _] = one.host_id;
        let number = usize::try_from(u64::from_le_bytes(id)).unwrap_or_default().wrapping_sub(1);
        if number >= world.hosts.len() || one.key != key(number) {
            return fail(format!("namespace {nsid} has a registrant that nobody is: {one:?}"));
        }
        registrants.insert(number);
        if one.holder {
            holders.insert(number);
        }
    }
    let holder = |kind: ReservationType| if kind.all_registrants() { None } else { holders.first().copied() };
    let held = ReservationType::decode(status.rtype).map(|kind| (kind, holder(kind)));
    Ok(Some((is_protected, Reservation { persists: status.ptpls != 0, registrants, held })))
}

/// Reads the SMART / Health log, which the drive's thread answers.
pub(super) fn health(world: &mut World, host: usize) -> Result<(), Failure> {
    let sqe = GetLogPage::new(Lid::SMART_HEALTH, 512).encode(Nsid::ALL);
    read(world, host, 0, sqe, 512)?;
    (0..SHOWN).try_for_each(|_| world.step())
}

/// Has a host identify what is behind an NSID, before it sends an I/O command there: those to
/// what came in the place of another namespace are refused until then. `false` where the power
/// goes before that.
pub(super) fn inspect(world: &mut World, host: usize, nsid: u32) -> Result<bool, Failure> {
    let sqe = identify(Cns::NAMESPACE).with_nsid(Nsid(nsid));
    Ok(ask::ask(world, host, 0, &Command { sqe, data: None, read_bytes: 4096 })?.is_some())
}

/// What a host is shown; it has heard of everything before.
fn active(world: &mut World, host: usize) -> Result<Option<BTreeSet<u32>>, Failure> {
    // What came in the place of another namespace is shown to hosts that have identified both.
    let changed = GetLogPage::new(Lid::CHANGED_NAMESPACES, 4096).encode(Nsid::ALL);
    if read(world, host, 0, changed, 4096)?.is_none() || list(world, host, Cns::ACTIVE_NAMESPACE_LIST)?.is_none() {
        return Ok(None);
    }
    let Some(list) = list(world, host, Cns::ACTIVE_NAMESPACE_LIST)? else { return Ok(None) };
    (0..SHOWN).try_for_each(|_| world.step())?;
    Ok(Some(list))
}

fn list(world: &mut World, host: usize, cns: Cns) -> Result<Option<BTreeSet<u32>>, Failure> {
    let Some(data) = read(world, host, 0, identify(cns), 4096)? else { return Ok(None) };
    let list = NamespaceList::read_from_bytes(&data).map_err(|error| Failure(error.to_string()))?;
    Ok(Some(list.iter().map(|nsid| nsid.0).collect()))
}

/// Reads something that is never refused.
fn read(world: &mut World, host: usize, queue: usize, sqe: Sqe, bytes: usize) -> Result<Option<Vec<u8>>, Failure> {
    let read_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    let Some(ended) = ask::ask(world, host, queue, &Command { sqe, data: None, read_bytes })? else { return Ok(None) };
    let status = ended.cqe.status();
    if status.is_success() {
        Ok(Some(ended.data))
    } else {
        fail(format!("host {host}: command {:02x}h of queue {queue} is refused: {status}", sqe.opcode))
    }
}

fn identify(cns: Cns) -> Sqe {
    Sqe::new(admin::IDENTIFY).with_cdw(10, u32::from(cns.0))
}

impl Shown {
    /// The first thing that is not shown as it has to be.
    fn differ(&self, namespaces: &Namespaces) -> Option<String> {
        if let Some(nsid) = self.namespaces.keys().find(|nsid| !namespaces.contains_key(nsid)) {
            return Some(format!("namespace {nsid} is there, and should not be"));
        }
        let other_list = |(host, active): (&usize, &BTreeSet<u32>)| {
            let own = namespaces.iter().filter(|(_, namespace)| namespace.hosts.contains(host));
            let own: BTreeSet<u32> = own.map(|(&nsid, _)| nsid).collect();
            (own != *active).then(|| format!("host {host} is shown the namespaces {active:?}, and should be {own:?}"))
        };
        namespaces.iter().find_map(|one| self.differs(one)).or_else(|| self.active.iter().find_map(other_list))
    }

    fn differs(&self, (nsid, namespace): (&u32, &model::ModelNamespace)) -> Option<String> {
        let Some(shown) = self.namespaces.get(nsid) else { return Some(format!("namespace {nsid} is gone")) };
        let hosts: BTreeSet<usize> =
            self.present.values().copied().filter(|host| namespace.hosts.contains(host)).collect();
        if shown.hosts != hosts {
            let shown = &shown.hosts;
            return Some(format!("namespace {nsid} is attached to {shown:?}, and should be to {hosts:?}"));
        }
        let (is_protected, reservation) = shown.inner.as_ref()?;
        if *is_protected != namespace.is_protected {
            return Some(format!("namespace {nsid}: it is said to be write protected: {is_protected}"));
        }
        let should = &namespace.reservation;
        (reservation != should).then(|| format!("namespace {nsid} has {reservation:?}, and should have {should:?}"))
    }
}
