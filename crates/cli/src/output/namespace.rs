//! Views of Identify Namespace (`id-ns`) and of the namespace identification descriptors
//! (`ns-descs`).

use std::fmt::Write as _;

use ebof_nvme::Nsid;
use ebof_nvme::identify::{Descriptors, IDENTIFY_BYTES, IdentifyNamespace, LbaFormat, NamespaceIdDescriptor, field};

use super::View;
use super::json::Object;
use super::structure::{FieldTable, LineFormat, StructureView, table};
use super::text::{digits, dump, hex, si};

/// Identify Namespace; with its vendor specific area if that is wanted.
pub(crate) fn namespace_view(
    nsid: Nsid,
    data: Box<IdentifyNamespace>,
    vendor_specific: bool,
) -> StructureView<IdentifyNamespace> {
    let in_use = data.format_index();
    let formats = || data.lba_formats().iter().enumerate();
    let objects =
        formats().map(|(index, format)| LBA_FORMAT.json(format, false).with("in_use", u8::from(index == in_use)));
    let objects: Vec<Object> = objects.collect();
    let lines = |verbose| -> String {
        formats().map(|(index, format)| format_text(index, *format, index == in_use, verbose)).collect()
    };
    let (plain, verbose) = (lines(false), lines(true));
    // As in nvme-cli: as far as the first zero, 16 bytes in an element.
    let used = data.vs.iter().position(|byte| *byte == 0).unwrap_or(data.vs.len());
    let vendor = data.vs[..used].chunks(16).map(digits).collect::<Vec<_>>();
    let all = vendor_specific.then(|| (digits(&data.vs), format!("vs[]:\n{}", dump(&data.vs))));
    let view = StructureView::new(&NAMESPACE, "id-ns", 2, format!("NVME Identify Namespace {nsid}:\n"), data);
    let view = view.with("nsid", nsid.0).key("lbafs", objects).lines(&plain, &verbose).key("vs", vendor);
    match all {
        Some((digits, lines)) => view.list("vendor_specific", digits, &lines),
        None => view,
    }
}

static NAMESPACE: FieldTable<IdentifyNamespace> = table! { LineFormat::wide(8), IdentifyNamespace:
    nsze.hex().below(|data| blocks(data, data.nsze.get())),
    ncap.hex().below(|data| blocks(data, data.ncap.get())),
    nuse.hex().below(|data| blocks(data, data.nuse.get())),
    nsfeat.hex().explained(field::nsfeat::BITS), nlbaf, flbas.hex().explained(field::flbas::BITS), mc.hex().explained(field::mc::BITS),
    dpc.hex().explained(field::dpc::BITS), dps.hex().explained(field::dps::BITS), nmic.hex().explained(field::nmic::BITS),
    rescap.hex().explained(field::rescap::BITS), fpi.hex().explained(field::fpi::BITS), dlfeat.explained(field::dlfeat::BITS), nawun,
    nawupf, nacwu, nabsn, nabo, nabspf, noiob,
    nvmcap.below(|data| format!("  {}", si(data.nvmcap.get()))),
    npwg, npwa, npdg, npda, nows, mssrl, mcl, msrc, kpios, nulbaf, kpiodaag, anagrpid,
    nsattr.explained(field::nsattr::BITS), nvmsetid, endgid, nguid.digits(), eui64.digits(),
};

fn blocks(data: &IdentifyNamespace, blocks: u64) -> String {
    match data.format().block_bytes() {
        Some(bytes) => format!("  {blocks} blocks, {} bytes", u128::from(blocks) * u128::from(bytes)),
        None => format!("  {blocks} blocks"),
    }
}

/// An LBA format's keys; its text is `format_text`.
static LBA_FORMAT: FieldTable<LbaFormat> = table! { LineFormat::wide(0), LbaFormat:
    ms, lbads as "ds", rp.bits(1, 0),
};

fn format_text(index: usize, format: LbaFormat, in_use: bool, verbose: bool) -> String {
    let metadata = format.ms.get();
    let performance = format.rp & 3;
    let in_use = if in_use { "(in use)" } else { "" };
    let line = if verbose {
        let bytes = format.block_bytes().map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
        let word = ["Best", "Better", "Good", "Degraded"][usize::from(performance)];
        format!(
            "LBA Format {index:2} : Metadata Size: {metadata:<3} bytes - Data Size: {bytes:<2} bytes - \
             Relative Performance: {} {word} {in_use}",
            hex(performance)
        )
    } else {
        format!("lbaf {index:2} : ms:{metadata:<3} lbads:{:<2} rp:{} {in_use}", format.lbads, hex(performance))
    };
    format!("{}\n", line.trim_end())
}

/// The namespace identification descriptors.
pub(crate) struct DescriptorsView {
    /// The namespace.
    pub(crate) nsid: Nsid,
    /// The list as it came.
    pub(crate) data: Box<[u8; IDENTIFY_BYTES]>,
}

impl View for DescriptorsView {
    fn text(&self, verbose: bool) -> String {
        let mut text = format!("NVME Namespace Identification Descriptors NS {}:\n", self.nsid);
        for descriptor in Descriptors::new(self.data.as_slice()) {
            let descriptor = match descriptor {
                Ok(descriptor) => descriptor,
                Err(error) => {
                    let _infallible = writeln!(text, "{error}");
                    continue;
                }
            };
            let (name, value) = named(&descriptor);
            if verbose {
                let nidt = descriptor.nidt();
                let nidl = descriptor.nid().len();
                let _infallible = write!(text, "nidt    : {nidt}\nnidl    : {nidl}\ntype    : {name}\n");
            }
            let _infallible = writeln!(text, "{name:<8}: {value}");
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let descriptors = Descriptors::new(self.data.as_slice()).flatten();
        // Where each begins in the list.
        let mut offset = 0_usize;
        let object = |descriptor: NamespaceIdDescriptor<'_>| {
            let (name, value) = named(&descriptor);
            let begins = offset;
            let bytes = descriptor.nid().len();
            offset += DESCRIPTOR_HEADER_BYTES + bytes;
            let decimal = match descriptor {
                NamespaceIdDescriptor::Csi(csi) => csi.0.to_string(),
                _ => value.clone(),
            };
            Object::new()
                .with("loc", begins as u64)
                .with("nidt", descriptor.nidt())
                .with("nidl", bytes as u64)
                .with("Type", name)
                .with(name, decimal)
                .with("type", descriptor.nidt())
                .with("name", name)
                .with("value", value)
        };
        Object::document("ns-descs", 1)
            .with("nsid", self.nsid.0)
            .with("ns-descs", descriptors.map(object).collect::<Vec<_>>())
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.data.as_slice())
    }
}

/// Bytes of a descriptor before its identifier.
const DESCRIPTOR_HEADER_BYTES: usize = 4;

fn named(descriptor: &NamespaceIdDescriptor<'_>) -> (&'static str, String) {
    match descriptor {
        NamespaceIdDescriptor::Eui64(id) => ("eui64", digits(id)),
        NamespaceIdDescriptor::Nguid(id) => ("nguid", digits(id)),
        NamespaceIdDescriptor::Uuid(uuid) => ("uuid", uuid.to_string()),
        NamespaceIdDescriptor::Csi(csi) => ("csi", hex(csi.0)),
        NamespaceIdDescriptor::Other { nid, .. } => ("unknown", digits(nid)),
    }
}
