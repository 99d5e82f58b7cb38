//! From a drive's view to what its subsystem's hosts are shown.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use ebof_drive::View;
use ebof_drive::health::SPARE_THRESHOLD_PERCENT;
use ebof_drive::reservation::Right;
use ebof_nvme::identify::ProtectionType;
use ebof_nvme::{Nsid, Status, Uuid};

use crate::model::{
    DataId, DeviceId, GroupStates, Health, Metadata, Namespace, NamespaceTable, Provision, Subsystem, TableError, Usage,
};

/// The device behind a namespace of a drive.
#[derive(Clone, Debug)]
pub struct Backing {
    /// The target's name for it.
    pub device: DeviceId,
    /// What is allocated on it.
    pub used: Usage,
    /// Whether deallocation does something.
    pub deallocates: bool,
    /// Whether it has a volatile write cache.
    pub volatile_cache: bool,
    /// It cannot be written.
    pub read_only: bool,
}

/// Makes a subsystem that of a drive, with its namespaces, limits and identity. A namespace for
/// which `backing` has nothing is left out.
///
/// # Errors
/// The namespaces do not make a table.
pub fn adopt_drive(
    subsystem: &mut Subsystem,
    view: Arc<View>,
    backing: impl Fn(&ebof_drive::Namespace) -> Option<Backing>,
) -> Result<(), TableError> {
    let namespaces = view.namespaces.iter();
    let namespaces: Vec<_> =
        namespaces.filter_map(|(nsid, namespace)| Some(shown(&view, *nsid, namespace, backing(namespace)?))).collect();
    subsystem.namespaces = NamespaceTable::new(namespaces)?;
    subsystem.serial.clone_from(&view.serial);
    subsystem.model.clone_from(&view.model);
    subsystem.firmware.clone_from(&view.revision);
    let condition = &view.condition;
    subsystem.health = Health {
        temperature_kelvin: condition.kelvin,
        available_spare: condition.spare_percent(),
        available_spare_threshold: SPARE_THRESHOLD_PERCENT,
        percentage_used: view.percentage_used,
        read_only: condition.read_only,
        degraded: condition.degraded,
        ..subsystem.health
    };
    subsystem.states = GroupStates::at_best(view.best_ana_state);
    subsystem.drive = Some(view);
    Ok(())
}

fn shown(view: &View, nsid: Nsid, namespace: &ebof_drive::Namespace, backing: Backing) -> Namespace {
    let Backing { device, used, deallocates, volatile_cache, read_only } = backing;
    let format = namespace.shape.format();
    let protection = namespace.shape.protection;
    let extent_bytes = view.capacity.extent_bytes;
    let claimed = namespace
        .shape
        .block_format()
        .extents(namespace.shape.capacity_blocks, extent_bytes)
        .saturating_mul(extent_bytes);
    let hosts: Option<BTreeSet<String>> = (!namespace.for_everyone).then(|| namespace.hosts.clone());
    let provision = Provision {
        capacity_blocks: namespace.shape.capacity_blocks,
        claimed_bytes: claimed,
        used,
        extent_bytes,
        extent_blocks: namespace.shape.block_format().blocks_per_extent(extent_bytes),
        format: namespace.shape.format,
        shared: namespace.shared,
        hosts,
        functions: namespace.functions.clone(),
        reservations: view.reservations.get(&nsid.0).cloned(),
        barred: match view.restriction {
            Some(restriction) => Some(restriction.status()),
            None => view.erasing.get(&nsid.0).map(|_| Status::FORMAT_IN_PROGRESS),
        },
        format_percent_left: view.erasing.get(&nsid.0).copied().unwrap_or_default(),
    };
    Namespace {
        nsid,
        device,
        // Made at random with the namespace.
        object: DataId(namespace.uuid),
        offset_bytes: 0,
        blocks: namespace.shape.blocks,
        block_shift: format.block_shift,
        metadata: Metadata {
            bytes: format.metadata_bytes,
            protection: ProtectionType::decode(protection.kind),
            first: protection.first,
        },
        read_only,
        write_protected: namespace.write_protected,
        deallocates,
        volatile_cache,
        nguid: namespace.nguid,
        eui64: namespace.eui64,
        uuid: Uuid(namespace.uuid),
        ana_group: namespace.ana_group,
        right: Right::Free,
        provision: Some(Arc::new(provision)),
    }
}
