//! Views of the smaller Identify data structures: `nvm-id-ctrl`, `nvm-id-ns`, `cmdset-ind-id-ns`,
//! `id-ns-granularity`, `list-endgrp`.

use ebof_nvme::Nsid;
use ebof_nvme::identify::{
    EnduranceGroupList, Granularity, IndependentNamespace, NamespaceGranularityList, NvmController, NvmNamespace,
    ProtectionFormat, field,
};

use super::json::Object;
use super::structure::{FieldTable, LineFormat, StructureView, numbered, table};

/// Identify Controller of the NVM command set.
pub(crate) fn nvm_controller_view(data: Box<NvmController>) -> StructureView<NvmController> {
    StructureView::new(&NVM_CONTROLLER, "nvm-id-ctrl", 1, "NVMe Identify Controller NVM:\n", data)
}

static NVM_CONTROLLER: FieldTable<NvmController> = table! { LineFormat::wide(8), NvmController:
    vsl.below(|data| pages(data.vsl)),
    wzsl.below(|data| pages(data.wzsl)),
    wusl.below(|data| pages(data.wusl)),
    dmrl, dmrsl, dmsl, kpiocap, wzdsl, aocs, ver.hex(), lbamqf,
};

fn pages(power: u8) -> String {
    match power {
        0 => "  without limit".to_owned(),
        power => format!("  2^{power} times the minimum page size"),
    }
}

/// Identify Namespace of the NVM command set, which has `formats`; the one `in_use` is marked.
pub(crate) fn nvm_namespace_view(
    nsid: Nsid,
    data: Box<NvmNamespace>,
    formats: usize,
    in_use: usize,
) -> StructureView<NvmNamespace> {
    let format = |index: &usize| {
        let (pif, guard) = guard(data.protection_format(*index));
        Object::new()
            .with("sts", data.storage_tag_bits(*index))
            .with("pif", pif)
            .with("qpif", qualified_format(&data, *index))
            .with("guard", guard)
            .with("in_use", u8::from(*index == in_use))
    };
    let line = |_, index: &usize| {
        let (_, guard) = guard(data.protection_format(*index));
        let in_use = if *index == in_use { " (in use)" } else { "" };
        format!("elbaf {index:2} : sts:{} pif:{guard}{in_use}\n", data.storage_tag_bits(*index))
    };
    let (formats, lines) = numbered(0..formats, format, line);
    let title = format!("NVMe NVM Identify Namespace {nsid}:\n");
    let view = StructureView::new(&NVM_NAMESPACE, "nvm-id-ns", 2, title, data);
    view.with("nsid", nsid.0).list("elbafs", formats, &lines)
}

static NVM_NAMESPACE: FieldTable<NvmNamespace> = table! { LineFormat::wide(8), NvmNamespace:
    lbstm.hex(), pic.hex().explained(field::pic::BITS), pifa, npdgl, nprg, npra, nors, npdal, lbapss, tlbaag,
};

const fn guard(format: ProtectionFormat) -> (u8, &'static str) {
    match format {
        ProtectionFormat::Guard16 => (0, "16b guard"),
        ProtectionFormat::Guard32 => (1, "32b guard"),
        ProtectionFormat::Guard64 => (2, "64b guard"),
        ProtectionFormat::Qualified => (3, "qualified"),
    }
}

/// Qualified Protection Information Format (QPIF) of a format.
fn qualified_format(data: &NvmNamespace, index: usize) -> u8 {
    data.elbaf.get(index).map_or(0, |elbaf| elbaf.to_bytes()[1] >> 1 & 0xf)
}

/// Identify Namespace without regard to I/O command sets.
pub(crate) fn independent_view(nsid: Nsid, data: Box<IndependentNamespace>) -> StructureView<IndependentNamespace> {
    let title = format!("NVME Identify Command Set Independent Namespace {nsid}:\n");
    StructureView::new(&INDEPENDENT, "cmdset-ind-id-ns", 1, title, data).with("nsid", nsid.0)
}

static INDEPENDENT: FieldTable<IndependentNamespace> = table! { LineFormat::wide(8), IndependentNamespace:
    nsfeat.hex(), nmic.hex(), rescap.hex(), fpi.hex(), anagrpid, nsattr, nvmsetid, endgid,
    nstat.explained(field::nstat::BITS), kpios, maxkt, rgrpid,
};

/// The Namespace Granularity List.
pub(crate) fn granularity_view(data: Box<NamespaceGranularityList>) -> StructureView<NamespaceGranularityList> {
    let whom = if data.per_format() { "each for the format of its index" } else { "for every format" };
    let line =
        |index, one: &&Granularity| format!("[{index:2}]: size {} bytes, capacity {} bytes\n", one.nszeg, one.ncapg);
    let (list, lines) = numbered(data.descriptors().iter(), |one| GRANULARITY.json(one, false), line);
    let title = format!("Identify Namespace Granularity List ({whom}):\n");
    let view = StructureView::new(&GRANULARITIES, "id-ns-granularity", 1, title, data);
    view.list("namespace-granularity-list", list, &lines)
}

static GRANULARITIES: FieldTable<NamespaceGranularityList> = table! { LineFormat::wide(0), NamespaceGranularityList:
    nga as "attributes" .only_json(), nod as "num-descriptors" .only_json(),
};

static GRANULARITY: FieldTable<Granularity> = table! { LineFormat::wide(0), Granularity:
    nszeg as "namespace-size-granularity", ncapg as "namespace-capacity-granularity",
};

/// The Endurance Group List.
pub(crate) fn endurance_groups_view(data: Box<EnduranceGroupList>) -> StructureView<EnduranceGroupList> {
    let object = |group: &u16| Object::new().with("endgrp_id", *group);
    let (list, lines) = numbered(data.iter(), object, |index, group| format!("[{index:4}]:{group:#x}\n"));
    StructureView::new(&ENDURANCE_GROUPS, "list-endgrp", 1, "", data).list("endgrp_list", list, &lines)
}

static ENDURANCE_GROUPS: FieldTable<EnduranceGroupList> = table! { LineFormat::wide(0), EnduranceGroupList:
    num as "num of endurance group ids" .key("num_endgrp_id"),
};
