//! Views of the smaller Identify data structures: `nvm-id-ctrl`, `nvm-id-ns`, `cmdset-ind-id-ns`,
//! `id-ns-granularity`, `list-endgrp`.

use std::fmt::Write as _;

use ebof_nvme::Nsid;
use ebof_nvme::identify::{
    EnduranceGroupList, Granularity, IndependentNamespace, NamespaceGranularityList, NvmController, NvmNamespace,
    ProtectionFormat,
};
use zerocopy::IntoBytes as _;

use super::View;
use super::fields::{Bits, Fields};
use super::json::Object;

/// The width of names in text.
const NAME_WIDTH: usize = 8;

/// Identify Controller of the NVM command set.
pub(crate) struct NvmControllerView {
    /// The data structure.
    pub(crate) data: Box<NvmController>,
}

impl NvmControllerView {
    fn fields(&self) -> Fields {
        let data = &self.data;
        let mut fields = Fields::default();
        for (name, size) in [("vsl", data.vsl), ("wzsl", data.wzsl), ("wusl", data.wusl)] {
            fields.dec(name, size).detail(if size == 0 {
                "  without limit".to_owned()
            } else {
                format!("  2^{size} times the minimum page size")
            });
        }
        fields.dec("dmrl", data.dmrl).dec("dmrsl", data.dmrsl.get()).dec("dmsl", data.dmsl.get());
        fields.dec("kpiocap", data.kpiocap).dec("wzdsl", data.wzdsl).dec("aocs", data.aocs.get());
        fields.hex("ver", data.ver.get()).dec("lbamqf", data.lbamqf);
        fields
    }
}

impl View for NvmControllerView {
    fn text(&self, verbose: bool) -> String {
        format!("NVMe Identify Controller NVM:\n{}", self.fields().to_text(NAME_WIDTH, verbose))
    }

    fn json(&self, _verbose: bool) -> Object {
        Object::document("nvm-id-ctrl", 1).extend(self.fields().to_json())
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.data.as_bytes())
    }
}

/// Identify Namespace of the NVM command set.
pub(crate) struct NvmNamespaceView {
    /// The namespace.
    pub(crate) nsid: Nsid,
    /// The data structure.
    pub(crate) data: Box<NvmNamespace>,
    /// The number of formats.
    pub(crate) formats: usize,
    /// Index of the namespace's format.
    pub(crate) in_use: usize,
}

const PIC: &[Bits] = &[
    Bits::one(2, "Storage Tag Check Read Supported", "Storage Tag Check Read Not Supported"),
    Bits::one(1, "16b Guard Storage Tag Supported", "16b Guard Storage Tag Not Supported"),
    Bits::one(0, "16b Guard Storage Tag Mask Supported", "16b Guard Storage Tag Mask Not Supported"),
];

impl NvmNamespaceView {
    fn fields(&self) -> Fields {
        let data = &self.data;
        let mut fields = Fields::default();
        fields.hex("lbstm", data.lbstm.get());
        fields.hex("pic", data.pic).bits(data.pic, PIC);
        fields.dec("pifa", data.pifa);
        fields.dec("npdgl", data.npdgl.get()).dec("nprg", data.nprg.get()).dec("npra", data.npra.get());
        fields.dec("nors", data.nors.get()).dec("npdal", data.npdal.get()).dec("lbapss", data.lbapss.get());
        fields.dec("tlbaag", data.tlbaag.get());
        fields
    }

    /// Index, storage tag size, protection information format, whether it is in use.
    fn formats(&self) -> impl Iterator<Item = (usize, u8, (u8, &'static str), bool)> {
        (0..self.formats).map(|index| {
            let guard = match self.data.protection_format(index) {
                ProtectionFormat::Guard16 => (0, "16b guard"),
                ProtectionFormat::Guard32 => (1, "32b guard"),
                ProtectionFormat::Guard64 => (2, "64b guard"),
                ProtectionFormat::Qualified => (3, "qualified"),
            };
            (index, self.data.storage_tag_bits(index), guard, index == self.in_use)
        })
    }
}

/// Qualified Protection Information Format (QPIF) of a format.
fn qualified_format(data: &NvmNamespace, index: usize) -> u8 {
    data.elbaf.get(index).map_or(0, |elbaf| elbaf.to_bytes()[1] >> 1 & 0xf)
}

impl View for NvmNamespaceView {
    fn text(&self, verbose: bool) -> String {
        let mut text = format!("NVMe NVM Identify Namespace {}:\n", self.nsid);
        text += &self.fields().to_text(NAME_WIDTH, verbose);
        for (index, bits, (_, guard), in_use) in self.formats() {
            let in_use = if in_use { " (in use)" } else { "" };
            let _infallible = writeln!(text, "elbaf {index:2} : sts:{bits} pif:{guard}{in_use}");
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let format = |(index, bits, (pif, guard), in_use): (usize, u8, (u8, &str), bool)| {
            Object::new()
                .with("sts", bits)
                .with("pif", pif)
                .with("qpif", qualified_format(&self.data, index))
                .with("guard", guard)
                .with("in_use", u8::from(in_use))
        };
        Object::document("nvm-id-ns", 2)
            .with("nsid", self.nsid.0)
            .extend(self.fields().to_json())
            .with("elbafs", self.formats().map(format).collect::<Vec<_>>())
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.data.as_bytes())
    }
}

/// Identify Namespace without regard to I/O command sets.
pub(crate) struct IndependentView {
    /// The namespace.
    pub(crate) nsid: Nsid,
    /// The data structure.
    pub(crate) data: Box<IndependentNamespace>,
}

const NSTAT: &[Bits] = &[Bits::one(0, "Namespace is Ready", "Namespace is Not Ready")];

impl IndependentView {
    fn fields(&self) -> Fields {
        let data = &self.data;
        let mut fields = Fields::default();
        fields.hex("nsfeat", data.nsfeat).hex("nmic", data.nmic).hex("rescap", data.rescap).hex("fpi", data.fpi);
        fields.dec("anagrpid", data.anagrpid.get()).dec("nsattr", data.nsattr);
        fields.dec("nvmsetid", data.nvmsetid.get()).dec("endgid", data.endgid.get());
        fields.dec("nstat", data.nstat).bits(data.nstat, NSTAT);
        fields.dec("kpios", data.kpios).dec("maxkt", data.maxkt.get()).dec("rgrpid", data.rgrpid.get());
        fields
    }
}

impl View for IndependentView {
    fn text(&self, verbose: bool) -> String {
        let fields = self.fields().to_text(NAME_WIDTH, verbose);
        format!("NVME Identify Command Set Independent Namespace {}:\n{fields}", self.nsid)
    }

    fn json(&self, _verbose: bool) -> Object {
        Object::document("cmdset-ind-id-ns", 1).with("nsid", self.nsid.0).extend(self.fields().to_json())
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.data.as_bytes())
    }
}

/// The Namespace Granularity List.
pub(crate) struct GranularityView {
    /// The list.
    pub(crate) data: Box<NamespaceGranularityList>,
}

impl View for GranularityView {
    fn text(&self, _verbose: bool) -> String {
        let whom = if self.data.per_format() { "each for the format of its index" } else { "for every format" };
        let mut text = format!("Identify Namespace Granularity List ({whom}):\n");
        for (index, one) in self.data.descriptors().iter().enumerate() {
            let _infallible = writeln!(text, "[{index:2}]: size {} bytes, capacity {} bytes", one.nszeg, one.ncapg);
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let descriptor = |one: &Granularity| {
            Object::new()
                .with("namespace-size-granularity", one.nszeg.get())
                .with("namespace-capacity-granularity", one.ncapg.get())
        };
        Object::document("id-ns-granularity", 1)
            .with("attributes", self.data.nga.get())
            .with("num-descriptors", self.data.nod)
            .with("namespace-granularity-list", self.data.descriptors().iter().map(descriptor).collect::<Vec<_>>())
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.data.as_bytes())
    }
}

/// The Endurance Group List.
pub(crate) struct EnduranceGroupsView {
    /// The list.
    pub(crate) data: Box<EnduranceGroupList>,
}

impl View for EnduranceGroupsView {
    fn text(&self, _verbose: bool) -> String {
        let mut text = format!("num of endurance group ids: {}\n", self.data.num);
        for (index, group) in self.data.iter().enumerate() {
            let _infallible = writeln!(text, "[{index:4}]:{group:#x}");
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let groups = self.data.iter().map(|group| Object::new().with("endgrp_id", group)).collect::<Vec<_>>();
        Object::document("list-endgrp", 1).with("num_endgrp_id", self.data.num.get()).with("endgrp_list", groups)
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.data.as_bytes())
    }
}
