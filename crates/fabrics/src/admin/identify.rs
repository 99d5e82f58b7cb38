//! What the Identify command answers: the announcements of what `io`, `log`, `feature` and
//! `property` serve.

mod ana;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use ebof_drive::firmware::{GRANULARITY_BYTES, Personality};
use ebof_drive::function::{primary_capabilities, secondary_controllers};
use ebof_drive::{FORMATS, View, event_log, health};
use ebof_nvme::identify::field::{
    cdfs, cmic, ctratt, dlfeat, dpc, dps, dsto, fpi, frmw, fuses, lpa, mc, nmic, nsattr, nsfeat, nstat, nwpc, oacs,
    oaes, ofcs, oncs, sgls, vwc,
};
use ebof_nvme::identify::{
    Cns, ControllerType, Csi, DescriptorWriter, EnduranceGroupList, IDENTIFY_BYTES, IdentifyController,
    IdentifyNamespace, IndependentNamespace, IoCommandSets, LbaFormat, NamespaceGranularityList, NamespaceIdDescriptor,
    NamespaceList, NvmController, NvmNamespace,
};
use ebof_nvme::opcode::Direction;
use ebof_nvme::property::Version;
use ebof_nvme::{ControllerId, Nqn, Nsid, Sqe, Status, Uuid};
use zerocopy::IntoBytes;

use crate::admin::drive;
use crate::association::error_log;
use crate::association::{Association, QUIESCE_MS};
use crate::controller::RESETS_MAX;
use crate::controller::property::VERSION;
use crate::io::copy;
use crate::model::function;
use crate::model::{DiscoveryIdentity, Limits, Namespace, NamespaceTable, Provision, Subsystem};
use crate::task::FUSED_BLOCKS_MAX;
use crate::task::Task;
use crate::task::outcome::{Decision, Fault, Outcome, byte};

/// Keep alive granularity (KAS) in milliseconds. The target's timers are finer, but a host gains
/// nothing from that.
pub(crate) const KEEP_ALIVE_GRANULARITY_MS: u32 = 1000;

/// After what time a command that was refused for the time being is to be repeated (CRDT1), in
/// units of 100 ms: so that a host looks at its namespaces before its five attempts are over.
const RETRY_DELAY_100MS: u16 = 10;

/// The version of the NVM Command Set specification.
const NVM_VERSION: Version = Version::new(1, 1, 0);

/// How a host looks for namespaces.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Look {
    /// At those behind an NSID.
    List(Nsid),
    /// At one, and what of it.
    One(Nsid, Cns),
}

impl Look {
    pub(crate) fn from_command(sqe: &Sqe) -> Option<Self> {
        let cns = Cns(sqe.cdw10.to_bytes()[0]);
        match cns {
            Cns::ACTIVE_NAMESPACE_LIST | Cns::IOCS_ACTIVE_NAMESPACE_LIST => Some(Self::List(sqe.nsid())),
            Cns::NAMESPACE | Cns::NAMESPACE_ID_DESCRIPTORS | Cns::IOCS_NAMESPACE | Cns::INDEPENDENT_NAMESPACE => {
                Some(Self::One(sqe.nsid(), cns))
            }
            _ => None,
        }
    }

    /// Whether it shows what is behind `nsid`.
    pub(crate) fn is_at(self, nsid: Nsid) -> bool {
        match self {
            Self::List(after) => nsid > after,
            Self::One(one, _) => nsid == one,
        }
    }
}

/// Identify of an I/O controller.
pub(crate) fn io_controller(association: &Association, subsystem: &Subsystem, sqe: &Sqe) -> Outcome {
    let length = association.admin_sgl().at_least(sqe, Direction::ControllerToHost, IDENTIFY_BYTES as u64)?;
    match Cns(sqe.cdw10.to_bytes()[0]) {
        // These need a view of all controllers.
        Cns::NAMESPACE_CONTROLLER_LIST => {
            named_in(subsystem, subsystem.allocated(), sqe.nsid())?.ok_or(Fault::field(byte::NSID))?;
            Ok(Decision::Go(Task::Shared, length))
        }
        Cns::CONTROLLER_LIST => Ok(Decision::Go(Task::Shared, length)),
        // What the host is shown of its namespaces depends on what it has looked at.
        _ if !subsystem.pending.is_empty() && Look::from_command(sqe).is_some() => {
            Ok(Decision::Go(Task::Shared, length))
        }
        _ => Ok(Decision::Go(Task::Reply(structure(association, subsystem, sqe)?), length)),
    }
}

/// The data structure that an Identify command asks for, where it needs no view of all controllers.
pub(crate) fn structure(association: &Association, subsystem: &Subsystem, sqe: &Sqe) -> Result<Vec<u8>, Fault> {
    let nsid = sqe.nsid();
    let [cns, _, cntid @ ..] = sqe.cdw10.to_bytes();
    let csi = Csi(sqe.cdw11.to_bytes()[3]);
    let table = &subsystem.namespaces;
    let drive = subsystem.drive.as_deref();
    let data = match Cns(cns) {
        // What all namespaces have in common, for a host that wants to make one.
        Cns::NAMESPACE if nsid == Nsid::ALL && drive.is_some() => Some(bytes(&common_namespace_data())),
        Cns::NAMESPACE => {
            named(subsystem, nsid)?.map(|namespace| bytes(&namespace_data(namespace, subsystem, &association.limits)))
        }
        Cns::CONTROLLER => Some(bytes(&*controller_data(association, subsystem))),
        Cns::ACTIVE_NAMESPACE_LIST => Some(list(table, nsid)?),
        Cns::NAMESPACE_ID_DESCRIPTORS => {
            let namespace = named(subsystem, nsid)?.ok_or(Fault::at(Status::INVALID_NAMESPACE, byte::NSID))?;
            Some(descriptors(namespace))
        }
        Cns::IOCS_NAMESPACE if csi == Csi::NVM => {
            let common = nsid == Nsid::ALL && drive.is_some();
            (common || named(subsystem, nsid)?.is_some()).then(|| bytes(&NvmNamespace::default()))
        }
        Cns::IOCS_CONTROLLER if csi == Csi::NVM => {
            Some(bytes(&nvm_controller_data(&association.limits, drive.is_some())))
        }
        Cns::IOCS_ACTIVE_NAMESPACE_LIST if csi == Csi::NVM => Some(list(table, nsid)?),
        Cns::IOCS_ALLOCATED_NAMESPACE_LIST if drive.is_some() && csi == Csi::NVM => {
            Some(list(subsystem.allocated(), nsid)?)
        }
        Cns::IOCS_ALLOCATED_NAMESPACE if drive.is_some() && csi == Csi::NVM => {
            named_in(subsystem, subsystem.allocated(), nsid)?.map(|_| bytes(&NvmNamespace::default()))
        }
        Cns::IOCS_NAMESPACE | Cns::IOCS_CONTROLLER | Cns::IOCS_ACTIVE_NAMESPACE_LIST => {
            return Err(Fault::field(byte::CDW11 + 3));
        }
        Cns::IOCS_ALLOCATED_NAMESPACE_LIST | Cns::IOCS_ALLOCATED_NAMESPACE if drive.is_some() => {
            return Err(Fault::field(byte::CDW11 + 3));
        }
        Cns::INDEPENDENT_NAMESPACE => {
            named(subsystem, nsid)?.map(|namespace| bytes(&independent_data(namespace, subsystem)))
        }
        Cns::ALLOCATED_NAMESPACE_LIST if drive.is_some() => Some(list(subsystem.allocated(), nsid)?),
        Cns::ALLOCATED_NAMESPACE if drive.is_some() => named_in(subsystem, subsystem.allocated(), nsid)?
            .map(|namespace| bytes(&namespace_data(namespace, subsystem, &association.limits))),
        Cns::ENDURANCE_GROUP_LIST if drive.is_some() => {
            let [low, high, ..] = sqe.cdw11.to_bytes();
            Some(bytes(&EnduranceGroupList::starting_at(u16::from_le_bytes([low, high]), [1])))
        }
        Cns::NAMESPACE_GRANULARITY_LIST if drive.is_some() => {
            drive.map(|drive| bytes(&granularities(drive.capacity.extent_bytes)))
        }
        Cns::PRIMARY_CONTROLLER_CAPABILITIES if subsystem.has_functions() => {
            drive.map(|drive| bytes(&primary_capabilities(association.cntlid, &drive.primary, &drive.functions)))
        }
        Cns::SECONDARY_CONTROLLER_LIST if subsystem.has_functions() => {
            let least = ControllerId(u16::from_le_bytes(cntid));
            drive.map(|drive| bytes(&secondary_controllers(association.cntlid, &drive.functions, least)))
        }
        Cns::IO_COMMAND_SETS => {
            // CNTID: FFFFh means this controller.
            let cntid = u16::from_le_bytes(cntid);
            if cntid != 0xffff && cntid != association.cntlid.0 {
                return Err(Fault::field(byte::CDW10 + 2));
            }
            Some(bytes(&IoCommandSets::nvm_only()))
        }
        _ => return Err(Fault::field(byte::CDW10)),
    };
    // A legal NSID that names no namespace: a data structure of zeros.
    Ok(data.unwrap_or_else(|| vec![0; IDENTIFY_BYTES]))
}

/// Identify of a discovery controller: there is only Identify Controller.
pub(crate) fn discovery_controller(association: &Association, identity: &DiscoveryIdentity, sqe: &Sqe) -> Outcome {
    let length = association.admin_sgl().at_least(sqe, Direction::ControllerToHost, IDENTIFY_BYTES as u64)?;
    if Cns(sqe.cdw10.to_bytes()[0]) != Cns::CONTROLLER {
        return Err(Fault::field(byte::CDW10));
    }
    let mut data = common(association, &association.subsystem);
    data.set_serial_number(&identity.serial);
    data.set_model_number(&identity.model);
    data.set_firmware_revision(&identity.firmware);
    data.cntrltype = ControllerType::Discovery.encode();
    data.oaes.set(oaes::DISCOVERY_LOG);
    data.lpa = lpa::EXTENDED_DATA | lpa::SUPPORTED_LOG_PAGES;
    data.dctype = 1;
    Ok(Decision::Go(Task::Reply(bytes(&*data)), length))
}

/// What `nsid` names for this controller: `None` if it could name a namespace and does not, or one
/// that is not attached.
pub(crate) fn named(subsystem: &Subsystem, nsid: Nsid) -> Result<Option<&Namespace>, Fault> {
    named_in(subsystem, &subsystem.namespaces, nsid)
}

fn named_in<'a>(subsystem: &Subsystem, table: &'a NamespaceTable, nsid: Nsid) -> Result<Option<&'a Namespace>, Fault> {
    if !nsid.names_one() || nsid > subsystem.nsid_max() {
        return Err(Fault::at(Status::INVALID_NAMESPACE, byte::NSID));
    }
    Ok(table.find(nsid))
}

fn list(table: &NamespaceTable, after: Nsid) -> Result<Vec<u8>, Fault> {
    // Base, Identify, CNS 02h: FFFFFFFEh and FFFFFFFFh can have no successor.
    if after.0 >= 0xffff_fffe {
        return Err(Fault::at(Status::INVALID_NAMESPACE, byte::NSID));
    }
    Ok(bytes(&NamespaceList::after(after, table.iter().map(|namespace| namespace.nsid))))
}

fn descriptors(namespace: &Namespace) -> Vec<u8> {
    let mut buffer = Box::new([0; IDENTIFY_BYTES]);
    let mut writer = DescriptorWriter::new(&mut buffer);
    let mut push = |descriptor| writer.push(&descriptor).expect("four small descriptors fit into 4096 bytes");
    if namespace.eui64 != [0; 8] {
        push(NamespaceIdDescriptor::Eui64(namespace.eui64));
    }
    if namespace.nguid != [0; 16] {
        push(NamespaceIdDescriptor::Nguid(namespace.nguid));
    }
    if namespace.uuid != Uuid::NIL {
        push(NamespaceIdDescriptor::Uuid(namespace.uuid));
    }
    push(NamespaceIdDescriptor::Csi(Csi::NVM));
    buffer.to_vec()
}

fn namespace_data(namespace: &Namespace, subsystem: &Subsystem, limits: &Limits) -> IdentifyNamespace {
    let mut data = IdentifyNamespace::default();
    copy::announce(&mut data, limits, namespace.block_shift);
    data.nsze.set(namespace.blocks);
    data.ncap.set(namespace.blocks);
    data.nuse.set(namespace.blocks);
    data.nmic = sharing(subsystem, namespace);
    if namespace.deallocates {
        data.dlfeat = dlfeat::READS_ZEROS | dlfeat::WRITE_ZEROES_DEALLOCATE;
    }
    data.nsattr = if namespace.is_protected() { nsattr::WRITE_PROTECTED } else { 0 };
    data.nguid = namespace.nguid;
    data.eui64 = namespace.eui64;
    data.dps = namespace.metadata.protection.encode() | if namespace.metadata.first { dps::FIRST_BYTES } else { 0 };
    if namespace.metadata.is_protected() {
        // Write Zeroes writes protection information, whatever it says of deallocation. That of
        // deallocated blocks is FFh.
        data.dlfeat &= !dlfeat::WRITE_ZEROES_DEALLOCATE;
    }
    match &namespace.provision {
        Some(provision) => provision_data(&mut data, namespace, provision),
        None => {
            data.lbaf[0] = LbaFormat::data_only(namespace.block_shift);
            data.lbaf[0].ms.set(namespace.metadata.bytes);
            data.set_format(0, namespace.metadata.bytes != 0);
        }
    }
    ana::announce_namespace(&mut data, namespace, &subsystem.states);
    data
}

/// Namespace Multi-path I/O and Namespace Sharing Capabilities (NMIC). A namespace that was created
/// private is attached to one function or host, which may have a controller at each port: hosts use
/// several paths only where this says *shared*.
fn sharing(subsystem: &Subsystem, namespace: &Namespace) -> u8 {
    let created_shared = namespace.provision.as_ref().is_none_or(|provision| provision.shared);
    if created_shared || subsystem.ports.len() > 1 { nmic::SHARED } else { 0 }
}

/// What Identify says of a namespace that was cut from a drive.
fn provision_data(data: &mut IdentifyNamespace, namespace: &Namespace, provision: &Provision) {
    set_formats(data);
    data.set_format(provision.format, namespace.metadata.bytes != 0);
    data.nsfeat = nsfeat::THIN | nsfeat::ID_NOT_REUSED | nsfeat::OPTIMAL_IO;
    data.ncap.set(provision.capacity_blocks);
    let used = provision.used.bytes() / provision.extent_bytes.max(1) * provision.extent_blocks;
    data.nuse.set(used.min(provision.capacity_blocks));
    data.nvmcap.set(provision.claimed_bytes.into());
    data.rescap = RESERVATIONS;
    data.fpi = fpi::SUPPORTED | provision.format_percent_left;
    data.endgid.set(1);
    // Deallocating less than an extent only zeroes; 0's based, and 65535 where it does not fit.
    let granularity = u16::try_from(provision.extent_blocks.clamp(1, 1 << 16) - 1).unwrap_or(u16::MAX);
    data.npdg.set(granularity);
    data.npda.set(granularity);
}

/// All types of reservations, which outlive power losses where a host wants that (RESCAP).
const RESERVATIONS: u8 = 0xff;

/// What all namespaces of a drive have in common (CNS 00h with NSID FFFFFFFFh).
fn common_namespace_data() -> IdentifyNamespace {
    let mut data = IdentifyNamespace::default();
    set_formats(&mut data);
    data.nsfeat = nsfeat::THIN | nsfeat::ID_NOT_REUSED;
    data.nmic = nmic::SHARED;
    data.rescap = RESERVATIONS;
    data.dlfeat = dlfeat::READS_ZEROS | dlfeat::WRITE_ZEROES_DEALLOCATE;
    data
}

fn set_formats(data: &mut IdentifyNamespace) {
    data.nlbaf = u8::try_from(FORMATS.len() - 1).expect("a handful");
    for (entry, format) in data.lbaf.iter_mut().zip(FORMATS) {
        *entry = LbaFormat::data_only(format.block_shift);
        entry.ms.set(format.metadata_bytes);
    }
    // Over fabrics metadata is at the end of each block, and nowhere else.
    data.mc = mc::EXTENDED;
    data.dpc = dpc::TYPE_1 | dpc::TYPE_2 | dpc::TYPE_3 | dpc::FIRST_BYTES | dpc::LAST_BYTES;
}

/// What fits into an extent, in each format.
fn granularities(extent_bytes: u64) -> NamespaceGranularityList {
    let data = FORMATS.map(|format| {
        let block_format = format.block_format(false, false);
        block_format.blocks_per_extent(extent_bytes) * block_format.data_bytes()
    });
    NamespaceGranularityList::of_formats(data)
}

fn independent_data(namespace: &Namespace, subsystem: &Subsystem) -> IndependentNamespace {
    IndependentNamespace {
        nmic: sharing(subsystem, namespace),
        rescap: if namespace.provision.is_some() { RESERVATIONS } else { 0 },
        nsattr: if namespace.is_protected() { nsattr::WRITE_PROTECTED } else { 0 },
        nstat: nstat::READY,
        anagrpid: namespace.ana_group.into(),
        ..IndependentNamespace::default()
    }
}

fn controller_data(association: &Association, subsystem: &Subsystem) -> Box<IdentifyController> {
    let limits = &association.limits;
    let mut data = common(association, function::known_as(subsystem));
    data.set_serial_number(&subsystem.serial);
    data.set_model_number(&subsystem.model);
    data.set_firmware_revision(&subsystem.firmware);
    data.cntrltype = ControllerType::Io.encode();
    data.crdt1.set(RETRY_DELAY_100MS);
    data.cmic = cmic::MULTIPLE_PORTS | cmic::MULTIPLE_CONTROLLERS | cmic::ANA;
    ana::announce_controller(&mut data, subsystem.drive.is_some());
    data.oaes.set(oaes::NAMESPACE_ATTRIBUTE | oaes::ANA_CHANGE);
    data.acl = zero_based(limits.aborts);
    data.frmw = frmw::SLOT_1_READ_ONLY | 1 << frmw::SLOTS_SHIFT;
    data.lpa = lpa::COMMAND_EFFECTS | lpa::EXTENDED_DATA | lpa::SUPPORTED_LOG_PAGES;
    // Entries are 64 and 16 bytes, at least and at most.
    data.sqes = 0x66;
    data.cqes = 0x44;
    data.nn.set(subsystem.nsid_max().0);
    // Linux refuses a controller whose MNAN is above NN.
    data.mnan.set(subsystem.namespaces_max());
    data.oncs.set(PLAIN_COMMANDS);
    if let Some(drive) = &subsystem.drive {
        let personality = &drive.personality;
        let virtualizes = subsystem.has_functions() && drive::is_manager(association, subsystem);
        data.oacs.set(admin_commands(personality, subsystem.function.is_none(), virtualizes));
        data.frmw = drive.frmw;
        data.fwug = u8::try_from(GRANULARITY_BYTES / 4096).expect("small");
        data.oaes.set(MANAGED_EVENTS);
        data.lpa |= lpa::SMART_PER_NAMESPACE | lpa::PERSISTENT_EVENT;
        data.pels.set(event_log::PELS);
        data.elpe = zero_based(u16::try_from(drive.error_entries).unwrap_or(256));
        data.wctemp.set(health::WARNING_KELVIN);
        data.cctemp.set(health::CRITICAL_KELVIN);
        data.endgidmax.set(1);
        data.oncs.set(commands(personality));
        data.fna = drive.fna;
        if personality.device_self_test {
            data.dsto = dsto::ONE_IN_SUBSYSTEM;
            data.edstt.set(extended_test_minutes(drive.capacity.total_bytes));
        }
        if personality.sanitize && subsystem.function.is_none() {
            data.sanicap.set(drive.sanicap);
        }
        if personality.telemetry {
            data.lpa |= lpa::TELEMETRY;
        }
        data.tnvmcap.set(drive.capacity.total_bytes.into());
        data.unvmcap.set(drive.unallocated_bytes.into());
        data.ctratt.set(data.ctratt.get() | DRIVE_ATTRIBUTES);
    }
    if subsystem.drive.as_ref().is_none_or(|drive| drive.personality.compare) {
        data.fuses.set(fuses::COMPARE_AND_WRITE);
    }
    // Nothing larger than a block is written as one: not by what is beneath when the power fails
    // (AWUPF), and not in one piece between other commands (AWUN).
    data.awun.set(0);
    data.awupf.set(0);
    data.acwu.set(u16::try_from(FUSED_BLOCKS_MAX - 1).expect("one"));
    data.cdfs.set(cdfs::FORMAT_0 | cdfs::FORMAT_1 | cdfs::FORMAT_2 | cdfs::FORMAT_3);
    data.vwc = vwc::FLUSH_NO_BROADCAST | if has_cache(subsystem) { vwc::PRESENT } else { 0 };
    data.nwpc = nwpc::WRITE_PROTECT;
    data.ioccsz.set((64 + association.port.in_capsule_bytes) / 16);
    data.iorcsz.set(1);
    data.msdbd = if association.is_rdma() { keyed_descriptors(association.port.in_capsule_bytes) } else { 1 };
    data.ofcs.set(ofcs::DISCONNECT);
    if association.is_memory_based() {
        of_function(&mut data);
    } else {
        announce_recovery(association, &mut data);
    }
    data
}

/// What a host that has lost the path to a controller needs: how long to wait, and Cross-Controller
/// Reset, which only message-based transports have.
fn announce_recovery(association: &Association, data: &mut IdentifyController) {
    data.ciu = association.uniquifier;
    data.cirn.set(association.random);
    data.ccrl = RESETS_MAX;
    data.cqt.set(QUIESCE_MS);
    data.oaes.set(data.oaes.get() | oaes::CROSS_CONTROLLER_RESET);
}

/// What is different where the queues are in the host's memory.
fn of_function(data: &mut IdentifyController) {
    data.oacs.set(data.oacs.get() | oacs::DOORBELL_BUFFER);
    data.ioccsz.set(0);
    data.iorcsz.set(0);
    data.msdbd = 0;
    data.ofcs.set(0);
    data.maxcmd.set(0);
}

/// MSDBD over RDMA: a list is in the capsule, 16 bytes for each descriptor, and has at most 16.
fn keyed_descriptors(in_capsule_bytes: u32) -> u8 {
    u8::try_from((in_capsule_bytes / 16).clamp(1, 16)).expect("at most 16")
}

/// OAES of every drive.
const MANAGED_EVENTS: u32 = oaes::NAMESPACE_ATTRIBUTE
    | oaes::ANA_CHANGE
    | oaes::FIRMWARE_ACTIVATION
    | oaes::ENDURANCE_GROUP
    | oaes::ALLOCATED_NAMESPACE_ATTRIBUTE;

/// ONCS without a drive.
const PLAIN_COMMANDS: u16 =
    oncs::COMPARE | oncs::DATASET_MANAGEMENT | oncs::WRITE_ZEROES | oncs::SAVE_SELECT | oncs::VERIFY | oncs::COPY;

/// OACS of a drive, as its firmware has it. Controllers of a function manage nothing.
fn admin_commands(personality: &Personality, is_own: bool, virtualizes: bool) -> u16 {
    let offered = [
        (personality.device_self_test, oacs::DEVICE_SELF_TEST),
        (personality.format && is_own, oacs::FORMAT_NVM),
        (is_own, oacs::NAMESPACE_MANAGEMENT | oacs::FIRMWARE),
        (virtualizes, oacs::VIRTUALIZATION_MANAGEMENT),
    ];
    offered.iter().filter(|(on, _)| *on).fold(oacs::GET_LBA_STATUS, |bits, (_, bit)| bits | bit)
}

/// OACS, ONCS and CTRATT of a drive's controllers, or of those of a function.
pub(crate) fn announced(drive: &View, is_function: bool, virtualizes: bool) -> (u16, u16, u32) {
    let personality = &drive.personality;
    let attributes = COMMON_ATTRIBUTES | DRIVE_ATTRIBUTES;
    (admin_commands(personality, !is_function, virtualizes), commands(personality), attributes)
}

/// CTRATT of all controllers.
const COMMON_ATTRIBUTES: u32 = ctratt::HOST_ID_128 | ctratt::TRAFFIC_BASED_KEEP_ALIVE;

/// What a drive adds to it.
const DRIVE_ATTRIBUTES: u32 = ctratt::NAMESPACE_GRANULARITY
    | ctratt::ENDURANCE_GROUPS
    | ctratt::MDTS_WITHOUT_METADATA
    | ctratt::RESERVATION_HOST_ID;

/// EDSTT: how long an extended self-test takes at most if nothing else goes on, on a disk of 100
/// MB/s.
fn extended_test_minutes(bytes: u64) -> u16 {
    u16::try_from(bytes.div_ceil(60 * 100_000_000).max(1)).unwrap_or(u16::MAX)
}

/// ONCS of a drive, as its firmware has it.
fn commands(personality: &Personality) -> u16 {
    let offered = [
        (personality.compare, oncs::COMPARE),
        (personality.dataset_management, oncs::DATASET_MANAGEMENT),
        (personality.write_zeroes, oncs::WRITE_ZEROES),
        (personality.reservations, oncs::RESERVATIONS),
        (personality.verify, oncs::VERIFY),
        (personality.copy, oncs::COPY),
        (personality.write_uncorrectable, oncs::WRITE_UNCORRECTABLE),
    ];
    offered.iter().filter(|(on, _)| *on).fold(oncs::SAVE_SELECT, |bits, (_, bit)| bits | bit)
}

/// What all controllers have in common.
fn common(association: &Association, nqn: &Nqn) -> Box<IdentifyController> {
    let limits = &association.limits;
    let mut data = Box::<IdentifyController>::default();
    data.set_subsystem_nqn(nqn);
    data.mdts = page_power(limits.transfer_bytes);
    data.cntlid.set(association.cntlid.0);
    data.ver.set(VERSION.0);
    data.ctratt.set(COMMON_ATTRIBUTES);
    data.aerl = zero_based(limits.async_events);
    data.elpe = zero_based(u16::try_from(error_log::ENTRIES).expect("64 fits"));
    data.kas.set(u16::try_from(KEEP_ALIVE_GRANULARITY_MS / 100).expect("10 fits"));
    data.maxcmd.set(association.max_queue_entries());
    if association.is_memory_based() {
        data.sgls.set(sgls::SUPPORTED | sgls::OVERSIZE);
        return data;
    }
    data.sgls.set(match association.is_rdma() {
        // Linux puts data into capsules if the bit is set, whatever IOCCSZ says.
        true if association.port.in_capsule_bytes == 0 => sgls::SUPPORTED | sgls::KEYED,
        true => sgls::SUPPORTED | sgls::KEYED | sgls::OFFSET,
        false => sgls::SUPPORTED | sgls::OFFSET | sgls::TRANSPORT,
    });
    data
}

fn nvm_controller_data(limits: &Limits, managed: bool) -> NvmController {
    let mut data = NvmController {
        vsl: page_power(limits.verify_bytes),
        wzsl: page_power(limits.write_zeroes_bytes),
        wusl: if managed { page_power(limits.write_zeroes_bytes) } else { 0 },
        // Deviation: Linux before 5.15 does not ask for it and sends up to 256 ranges, the most
        // that the command can carry. They are taken, but have no code here.
        dmrl: u8::try_from(limits.dsm_ranges).unwrap_or(u8::MAX),
        ..NvmController::default()
    };
    data.dmrsl.set(limits.dsm_range_blocks);
    data.dmsl.set(limits.dsm_blocks);
    data.aocs.set(if managed { ALLOCATED_REPORTED } else { 0 });
    data.ver.set(NVM_VERSION.0);
    data
}

/// AOCS, RALBAS: Get LBA Status reports allocated blocks.
const ALLOCATED_REPORTED: u16 = 1;

/// Whether any namespace has a volatile write cache.
pub(crate) fn has_cache(subsystem: &Subsystem) -> bool {
    subsystem.namespaces.iter().any(|namespace| namespace.volatile_cache)
}

/// `bytes` as a power of two in units of 4 KiB (CAP.MPSMIN), rounded down.
fn page_power(bytes: u32) -> u8 {
    u8::try_from((bytes / 4096).max(1).ilog2()).expect("at most 19")
}

fn zero_based(count: u16) -> u8 {
    u8::try_from(count.clamp(1, 256) - 1).expect("at most 255")
}

fn bytes<T: IntoBytes + zerocopy::Immutable>(data: &T) -> Vec<u8> {
    data.as_bytes().to_vec()
}
