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
use super::{Unsure, World};
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

impl World {
    /// Sends a command for several namespaces.
    pub(super) fn ask_for(&mut self, ask: Ask, namespaces: u64, percent: u64) -> Result<(), Failure> {
        let count = usize::try_from(namespaces).unwrap_or(usize::MAX);
        let nsids = if let Ask::Create { .. } = ask { vec![0; count] } else { self.some(count) };
        let (mut left, mut refused) = (COMMANDS_MAX, 0);
        for nsid in nsids {
            for request in self.requests(nsid, ask, percent) {
                if left == 0 || refused == REFUSED_MAX || self.rig.disk.is_off() {
                    return Ok(());
                }
                left -= 1;
                refused += usize::from(self.request(&request)? == Answer::Refused);
            }
        }
        Ok(())
    }

    /// So many namespaces, one after the other from some point on.
    fn some(&mut self, count: usize) -> Vec<u32> {
        let from = self.rig.chances.index(self.namespaces.len());
        let all = self.namespaces.keys().copied();
        all.cycle().skip(from).take(count.min(self.namespaces.len())).collect()
    }

    /// The requests for one namespace, each with the host that sends it.
    fn requests(&mut self, nsid: u32, ask: Ask, percent: u64) -> Vec<ModelRequest> {
        let all = self.present.clone();
        let Some(namespace) = self.namespaces.get(&nsid) else {
            let Ask::Create { shared } = ask else { return Vec::new() };
            let by = self.one_of(&all, &all);
            return by.map(|by| ModelRequest { by, nsid: 0, edit: Edit::Create { shared } }).into_iter().collect();
        };
        let reservation = &namespace.reservation;
        let known: BTreeSet<usize> = self.met.values().chain(self.cntlids.values()).copied().collect();
        let others: BTreeSet<usize> = known.difference(&namespace.hosts).copied().collect();
        let known: BTreeSet<usize> = known.intersection(&namespace.hosts).copied().collect();
        let attached: BTreeSet<usize> = all.intersection(&namespace.hosts).copied().collect();
        let registrants: BTreeSet<usize> = reservation.registrants.intersection(&attached).copied().collect();
        let managers: BTreeSet<usize> = all.iter().copied().filter(|&host| !reservation.shuts_out(host)).collect();
        let held = reservation.held.map_or(ReservationType::WriteExclusive, |(kind, _)| kind);
        let (by, edit) = match ask {
            Ask::Register { persistence } => {
                let request = |by| ModelRequest { by, nsid, edit: Edit::Register(persistence) };
                return self.part_of(&attached, percent).into_iter().map(request).collect();
            }
            Ask::Unregister => {
                let request = |by| ModelRequest { by, nsid, edit: Edit::Unregister };
                return self.part_of(&registrants, percent).into_iter().map(request).collect();
            }
            Ask::Create { .. } => return Vec::new(),
            Ask::Delete => (self.one_of(&all, &managers), Edit::Delete),
            Ask::Attach => (self.one_of(&all, &managers), Edit::Attach(self.part_of(&others, percent))),
            Ask::Detach => (self.one_of(&all, &managers), Edit::Detach(self.part_of(&known, percent))),
            Ask::Protect { protected } => (self.one_of(&attached, &attached), Edit::Protect(protected)),
            Ask::Persist { persists } => (self.one_of(&attached, &attached), Edit::Persist(persists)),
            Ask::Acquire { kind } => (self.one_of(&attached, &registrants), Edit::Acquire(kind)),
            Ask::Release => (self.one_of(&attached, &registrants), Edit::Release(held)),
            Ask::Clear => (self.one_of(&attached, &registrants), Edit::Clear),
        };
        // There is no command about no hosts.
        let is_empty = matches!(&edit, Edit::Attach(hosts) | Edit::Detach(hosts) if hosts.is_empty());
        by.filter(|_| !is_empty).map(|by| ModelRequest { by, nsid, edit }).into_iter().collect()
    }

    /// One of `hosts`, mostly one of `better`.
    fn one_of(&mut self, hosts: &BTreeSet<usize>, better: &BTreeSet<usize>) -> Option<usize> {
        let chances = &mut self.rig.chances;
        let hosts = if chances.percent(80) && !better.is_empty() { better } else { hosts };
        hosts.iter().copied().nth(chances.index(hosts.len()))
    }

    fn part_of(&mut self, hosts: &BTreeSet<usize>, percent: u64) -> BTreeSet<usize> {
        hosts.iter().copied().filter(|_| self.rig.chances.percent(percent)).collect()
    }

    /// Has a host send a request, and updates the model from the answer.
    fn request(&mut self, request: &ModelRequest) -> Result<Answer, Failure> {
        if self.unsure.is_some() {
            // First it has to be known what became of the last one.
            self.compare()?;
            return Ok(Answer::None);
        }
        let ModelRequest { by, nsid, edit } = request;
        if !edit.is_of_namespaces() && !self.inform(*by)? {
            return Ok(Answer::None);
        }
        let verdict = self.limits.verdict(&self.namespaces, request);
        let namespace = request.done(&self.namespaces);
        let (queue, sqe, data) = self.command(request);
        if queue > 0 && !self.inspect(*by, *nsid)? {
            return Ok(Answer::None);
        }
        self.unsure = Some(Unsure { nsid: *nsid, namespace: namespace.clone() });
        let command = Command { sqe, data: Some(data.into()), read_bytes: 0 };
        let met = self.met.clone();
        let Some(ended) = self.ask(*by, queue, &command)? else { return Ok(Answer::None) };
        self.unsure = None;
        let status = ended.cqe.status();
        self.rig.count("changes");
        self.rig.note(|| format!("host {by}, namespace {nsid}: {edit:?}: {status}"));
        if !status.is_success() {
            if !verdict.refusals.iter().any(|one| status.is(*one)) {
                return fail(format!("host {by}, namespace {nsid}: {edit:?} is refused without a reason: {status}"));
            }
            self.rig.count("refused changes");
            return Ok(Answer::Refused);
        }
        if verdict.is_refused {
            return fail(format!(
                "host {by}, namespace {nsid}: {edit:?} is done, and had to be refused: {:?}",
                verdict.refusals
            ));
        }
        if edit.is_of_namespaces() {
            self.informed.clear();
        }
        // The drive's thread executes in order: it has recorded these controllers before.
        self.cntlids.extend(met);
        let is_new = *nsid == 0;
        let nsid = if is_new { ended.cqe.dw0.get() } else { *nsid };
        if is_new && self.namespaces.contains_key(&nsid) {
            return fail(format!("namespace {nsid} was made, and is there already"));
        }
        self.set(nsid, namespace);
        Ok(Answer::Done)
    }

    /// The queue, the command and its data.
    fn command(&self, request: &ModelRequest) -> (usize, Sqe, Vec<u8>) {
        let (nsid, own) = (Nsid(request.nsid), key(request.by));
        let list = |hosts: &BTreeSet<usize>| {
            let controllers: BTreeSet<ControllerId> =
                hosts.iter().filter_map(|&host| self.cntlid(host)).map(ControllerId).collect();
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
                let (index, block_shift) = if self.rig.profile.sector_bytes == 512 { (0, 9) } else { (1, 12) };
                let (checked, encrypted) = (self.setting.checks, self.setting.encrypts);
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
                let acquire =
                    Acquire { action: AcquireAction::Acquire, ignore_existing_key: false, rtype: kind.encode() };
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
        &mut self,
        host: usize,
        queue: usize,
        command: &Command,
    ) -> Result<Option<CompletedCommand>, Failure> {
        let op = self.rig.number();
        (self.asked, self.answer) = (Some((op, host)), None);
        let mut is_sent = false;
        self.until("the answer to a command", |world| {
            let now = world.rig.clock.now();
            is_sent = is_sent || world.hosts[host].submit(queue, op, command.clone(), now);
            world.answer.is_some() || world.asked.is_none()
        })?;
        self.asked = None;
        let answer = self.answer.take();
        let how = answer.as_ref().map_or(u64::MAX, |ended| u64::from(ended.cqe.status().0));
        self.rig.digest(op, how);
        Ok(answer)
    }
}

/// The key of a host.
pub(super) fn key(host: usize) -> u64 {
    0x100 + host as u64
}
