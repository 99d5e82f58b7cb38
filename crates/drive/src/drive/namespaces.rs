//! Namespaces: creating, deleting and formatting them, and the capacity that they take.
//!
//! Who has them is in `attachments.rs`; who may change them, and whether that has to wait, was
//! checked before.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use ebof_nvme::log::persistent_event::ChangeNamespaceEvent;
use ebof_nvme::media::{Format as FormatCommand, SecureErase};
use ebof_nvme::{Nsid, Status};

use super::decision::{Decision, Effect};
use super::request::Ordered;
use super::settings::{Capacity, Settings};
use crate::change::{Change, State};
use crate::logs::event_log::Event;
use crate::namespace::placement::Attachments;
use crate::namespace::{Namespace, NewNamespace, Protection, Shape, VolumeId, check_ana_group, check_format};
use crate::request::{Answer, DecisionInput, Origin, Refusal};

/// The namespaces of a drive, and the capacity that they share.
pub(super) struct Namespaces<'a> {
    by_nsid: &'a BTreeMap<u32, Namespace>,
    /// The name on the medium for the next one.
    next_volume: u64,
    capacity: Capacity,
    settings: &'a Settings,
}

impl<'a> Namespaces<'a> {
    pub(super) fn new(state: &'a State, capacity: Capacity, settings: &'a Settings) -> Self {
        Self { by_nsid: &state.namespaces, next_volume: state.next_volume, capacity, settings }
    }

    pub(super) fn find(&self, nsid: Nsid) -> Result<&'a Namespace, Refusal> {
        self.by_nsid.get(&nsid.0).ok_or(Refusal::at(Status::INVALID_NAMESPACE, NSID))
    }

    pub(super) fn find_attached(&self, nsid: Nsid, origin: &Origin) -> Result<&'a Namespace, Refusal> {
        let namespace = self.find(nsid)?;
        if namespace.is_attached_to(origin) { Ok(namespace) } else { Err(Refusal::at(Status::INVALID_NAMESPACE, NSID)) }
    }

    /// The namespaces that an NSID names: all of them for [`Nsid::ALL`].
    pub(super) fn named_by(&self, nsid: Nsid) -> Result<Vec<(u32, &'a Namespace)>, Refusal> {
        match nsid {
            Nsid::ALL => Ok(self.by_nsid.iter().map(|(&nsid, namespace)| (nsid, namespace)).collect()),
            _ => Ok(vec![(nsid.0, self.find(nsid)?)]),
        }
    }

    /// The same of those that are attached to the origin: for [`Nsid::ALL`] all of these.
    pub(super) fn attached_of(&self, nsid: Nsid, origin: &Origin) -> Result<Vec<u32>, Refusal> {
        match nsid {
            Nsid::ALL => {
                let attached = self.by_nsid.iter().filter(|(_, namespace)| namespace.is_attached_to(origin));
                Ok(attached.map(|(&nsid, _)| nsid).collect())
            }
            _ => self.find_attached(nsid, origin).map(|_| vec![nsid.0]),
        }
    }

    /// Capacity that no namespace has claimed, bytes. With overcommitment they may have claimed
    /// more than there is.
    pub(super) fn unallocated_bytes(&self) -> u64 {
        let claimed = self.by_nsid.values().map(|namespace| self.claimed_bytes(&namespace.shape));
        self.capacity.total_bytes.saturating_sub(claimed.fold(0, u64::saturating_add))
    }

    /// What blocks take from the capacity, bytes.
    pub(super) fn claimed_bytes(&self, shape: &Shape) -> u64 {
        let extent_bytes = self.capacity.extent_bytes;
        shape.block_format().extents(shape.capacity_blocks, extent_bytes).saturating_mul(extent_bytes)
    }

    pub(super) fn create(
        &self,
        wanted: &NewNamespace,
        origin: &Origin,
        input: &DecisionInput,
    ) -> Result<Decision, Refusal> {
        let namespace = self.new_namespace(wanted, origin.host.to_string(), input)?;
        let claim = self.claimed_bytes(&namespace.shape);
        self.check_quota(origin, claim).map_err(|()| insufficient(claim))?;
        let nsid = self.free_nsid().ok_or(Refusal::new(Status::NAMESPACE_ID_UNAVAILABLE))?;
        Ok(Self::created(nsid, namespace, origin, input))
    }

    /// What the box orders; `may_have` says whether those that it names may have it.
    pub(super) fn create_ordered(
        &self,
        ordered: &Ordered,
        origin: &Origin,
        input: &DecisionInput,
        may_have: impl Fn(&Namespace, &Attachments) -> Result<(), Refusal>,
    ) -> Result<(Decision, VolumeId), Refusal> {
        let most = self.settings.profile.namespaces;
        let nsid = match ordered.nsid {
            Some(nsid) if !(1..=most).contains(&nsid) => return Err(Refusal::new(Status::INVALID_NAMESPACE)),
            Some(nsid) if self.by_nsid.contains_key(&nsid) => {
                return Err(Refusal::new(Status::NAMESPACE_ID_UNAVAILABLE));
            }
            Some(nsid) => nsid,
            None => self.free_nsid().ok_or(Refusal::new(Status::NAMESPACE_ID_UNAVAILABLE))?,
        };
        let mut namespace = self.new_namespace(&ordered.namespace, String::new(), input)?;
        if let Some(to) = &ordered.attachments {
            may_have(&namespace, to)?;
            let Attachments { functions, hosts, for_everyone } = to.clone();
            (namespace.functions, namespace.hosts, namespace.for_everyone) = (functions, hosts, for_everyone);
        }
        let volume = namespace.volume;
        Ok((Self::created(nsid, namespace, origin, input), volume))
    }

    /// A namespace that the drive has room for, as the configuration says of new ones.
    fn new_namespace(&self, wanted: &NewNamespace, owner: String, input: &DecisionInput) -> Result<Namespace, Refusal> {
        let mut shape = wanted.check()?;
        shape.checked = self.settings.checked;
        shape.encrypted = self.settings.encrypted;
        let claim = self.claimed_bytes(&shape);
        if claim > self.unallocated_bytes() && !self.settings.overcommit {
            return Err(insufficient(claim));
        }
        let volume = VolumeId(self.next_volume);
        let mut namespace = Namespace::new(shape, wanted.shared, volume, owner, input);
        namespace.for_everyone = self.settings.attach_everyone;
        namespace.ana_group = wanted.ana_group.max(1);
        Ok(namespace)
    }

    /// What creates a namespace.
    fn created(nsid: u32, namespace: Namespace, origin: &Origin, input: &DecisionInput) -> Decision {
        let Namespace { volume, shape, .. } = namespace;
        let Shape { blocks, capacity_blocks, .. } = shape;
        Decision {
            answer: Answer::Done(nsid.into()),
            before: vec![Effect::Create { volume, blocks, capacity_blocks, block_format: shape.block_format() }],
            changes: vec![
                Change::Happened { event: change_event(0, nsid, &namespace, origin, input) },
                Change::Created { nsid, namespace },
            ],
            ..Decision::nothing()
        }
    }

    /// Deletes namespaces.
    pub(super) fn delete(deleted: &[(u32, &Namespace)], origin: &Origin, input: &DecisionInput) -> Decision {
        Decision {
            changes: deleted.iter().flat_map(|&(nsid, ns)| deleted_by(nsid, ns, origin, input)).collect(),
            after: deleted.iter().map(|(_, namespace)| Effect::Remove(namespace.volume)).collect(),
            ..Decision::nothing()
        }
    }

    /// The namespace with this name on the medium.
    pub(super) fn on_volume(&self, volume: VolumeId) -> Option<(u32, &'a Namespace)> {
        let found = self.by_nsid.iter().find(|(_, namespace)| namespace.volume == volume);
        found.map(|(&nsid, namespace)| (nsid, namespace))
    }

    /// Sets the write protection.
    pub(super) fn protect(&self, nsid: Nsid, protected: bool, origin: &Origin) -> Result<Decision, Refusal> {
        // The box has no namespaces attached.
        let namespace = if origin.is_box { self.find(nsid)? } else { self.find_attached(nsid, origin)? };
        if namespace.write_protected == protected {
            return Ok(Decision::nothing());
        }
        Ok(Decision::change(Change::Protected { nsid: nsid.0, protected }))
    }

    /// Puts a namespace into an ANA group.
    pub(super) fn group(&self, nsid: Nsid, ana_group: u32) -> Result<Decision, Refusal> {
        let namespace = self.find(nsid)?;
        check_ana_group(ana_group)?;
        if ana_group == 0 || namespace.ana_group == ana_group {
            return Ok(Decision::nothing());
        }
        Ok(Decision::change(Change::Grouped { nsid: nsid.0, ana_group }))
    }

    /// The namespaces that Format NVM is about.
    fn to_format(&self, nsid: Nsid, origin: &Origin) -> Result<Vec<(u32, &'a Namespace)>, Refusal> {
        let mut chosen = self.named_by(nsid)?;
        if nsid == Nsid::ALL {
            chosen.retain(|(_, namespace)| namespace.is_attached_to(origin));
        } else if !origin.is_box && !chosen.iter().all(|(_, namespace)| namespace.is_attached_to(origin)) {
            return Err(Refusal::at(Status::INVALID_FIELD, NSID));
        }
        Ok(chosen)
    }

    /// Replaces namespaces by empty ones in another format, as large as they were if there is room;
    /// `may_format` says whether one may be formatted now.
    pub(super) fn format(
        &self,
        nsid: Nsid,
        command: FormatCommand,
        (origin, input): (&Origin, &DecisionInput),
        may_format: impl Fn(u32, &Namespace) -> Result<(), Refusal>,
    ) -> Result<Decision, Refusal> {
        let chosen = self.to_format(nsid, origin)?;
        let shape = self.wanted_shape(command)?;
        let mut decision = self.replace_volumes(&self.reshaped(chosen, shape, may_format)?);
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
        let cdw10 = command.encode(nsid).cdw10.get();
        let start = Event::format_start(origin, input, nsid, self.settings.fna(), cdw10);
        let end = Event::format_completion(origin, input, nsid, 0, Status::SUCCESS);
        decision.changes.insert(0, Change::Happened { event: start });
        decision.changes.push(Change::Happened { event: end });
        Ok(decision)
    }

    /// The namespaces with their new shapes.
    fn reshaped<'n>(
        &self,
        chosen: Vec<(u32, &'n Namespace)>,
        shape: Shape,
        may_format: impl Fn(u32, &Namespace) -> Result<(), Refusal>,
    ) -> Result<Vec<(u32, &'n Namespace, Shape)>, Refusal> {
        let mut next = Vec::new();
        let mut free = self.unallocated_bytes();
        for (nsid, namespace) in chosen {
            may_format(nsid, namespace)?;
            // The new blocks have at most as many bytes as the old ones.
            let now = namespace.shape;
            let fits = |blocks: u64| (blocks << now.format().block_shift) >> shape.format().block_shift;
            let wanted = Shape { blocks: fits(now.blocks), capacity_blocks: fits(now.capacity_blocks), ..shape };
            let Shape { blocks, capacity_blocks, .. } = self.fit_capacity(wanted, &now, &mut free);
            if blocks == 0 || capacity_blocks == 0 {
                return Err(Refusal::new(Status::INVALID_FORMAT));
            }
            next.push((nsid, namespace, Shape { blocks, capacity_blocks, ..shape }));
        }
        Ok(next)
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
        let Settings { checked, encrypted, .. } = *self.settings;
        Ok(Shape { format: command.lba_format, protection, checked, encrypted, ..Shape::default() })
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
        let claimed = self.claimed_bytes(&shape);
        assert!(claimed <= room, "its blocks were reduced to the whole extents of the room");
        *free = room - claimed;
        shape
    }

    /// Replaces the volumes of all namespaces.
    pub(super) fn replace_all(&self) -> Decision {
        let all = self.by_nsid.iter().map(|(&nsid, namespace)| (nsid, namespace, namespace.shape));
        self.replace_volumes(&all.collect::<Vec<_>>())
    }

    /// Replaces the volumes of namespaces by new, empty ones.
    fn replace_volumes(&self, namespaces: &[(u32, &Namespace, Shape)]) -> Decision {
        let mut decision = Decision::nothing();
        for (next, &(nsid, namespace, shape)) in (self.next_volume..).zip(namespaces) {
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

    fn is_encrypted(&self, nsid: u32) -> bool {
        self.by_nsid.get(&nsid).is_some_and(|namespace| namespace.shape.encrypted)
    }

    fn check_quota(&self, origin: &Origin, claim: u64) -> Result<(), ()> {
        let host = origin.host.as_str();
        let Some(&quota) = self.settings.quotas.get(host) else { return Ok(()) };
        let own = self.by_nsid.values().filter(|namespace| namespace.owner == host);
        let used = own.map(|namespace| self.claimed_bytes(&namespace.shape)).fold(0, u64::saturating_add);
        if used.saturating_add(claim) <= quota { Ok(()) } else { Err(()) }
    }

    fn free_nsid(&self) -> Option<u32> {
        (1..=self.settings.profile.namespaces).find(|nsid| !self.by_nsid.contains_key(nsid))
    }
}

/// The error log entry has the bytes that would be needed (Base, Namespace Management: Namespace
/// Insufficient Capacity).
fn insufficient(claim: u64) -> Refusal {
    Refusal { information: claim, ..Refusal::new(Status::NAMESPACE_INSUFFICIENT_CAPACITY) }
}

/// The changes that delete a namespace.
fn deleted_by(nsid: u32, namespace: &Namespace, origin: &Origin, input: &DecisionInput) -> [Change; 2] {
    let event = change_event(1, nsid, namespace, origin, input);
    [Change::Happened { event }, Change::Deleted { nsid }]
}

/// The event for a namespace that is created or deleted; `sel` is the action of the command.
fn change_event(sel: u32, nsid: u32, namespace: &Namespace, origin: &Origin, input: &DecisionInput) -> Event {
    let data = ChangeNamespaceEvent {
        nsmcdw10: sel.into(),
        nsze: namespace.shape.blocks.into(),
        ncap: namespace.shape.capacity_blocks.into(),
        flbas: namespace.shape.flbas(),
        dps: namespace.shape.protection.dps(),
        nmic: namespace.shared.into(),
        nsid: nsid.into(),
        ..ChangeNamespaceEvent::default()
    };
    Event::change_namespace(origin, input, &data)
}

/// Offset of the NSID in a command.
const NSID: u8 = 4;
/// Dword 10.
const CDW10: u8 = 40;
