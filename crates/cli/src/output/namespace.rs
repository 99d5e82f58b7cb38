//! Views of Identify Namespace (`id-ns`) and of the namespace identification descriptors
//! (`ns-descs`).

use std::fmt::Write as _;

use ebof_nvme::Nsid;
use ebof_nvme::identify::{Descriptors, IDENTIFY_BYTES, IdentifyNamespace, LbaFormat, NamespaceIdDescriptor};

use super::View;
use super::json::Object;
use super::structure::{Bits, FieldTable, LineFormat, StructureView, table};
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
    nsfeat.hex().explained(NSFEAT), nlbaf, flbas.hex().explained(FLBAS), mc.hex().explained(MC),
    dpc.hex().explained(DPC), dps.hex().explained(DPS), nmic.hex().explained(NMIC),
    rescap.hex().explained(RESCAP), fpi.hex().explained(FPI), dlfeat.explained(DLFEAT), nawun,
    nawupf, nacwu, nabsn, nabo, nabspf, noiob,
    nvmcap.below(|data| format!("  {}", si(data.nvmcap.get()))),
    npwg, npwa, npdg, npda, nows, mssrl, mcl, msrc, kpios, nulbaf, kpiodaag, anagrpid,
    nsattr.explained(NSATTR), nvmsetid, endgid, nguid.digits(), eui64.digits(),
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

const NSFEAT: &[Bits] = &[
    Bits::range(
        5,
        4,
        "NPWG, NPWA, NPDG, NPDA, and NOWS are Supported",
        "NPWG, NPWA, NPDG, NPDA, and NOWS are Not Supported",
    ),
    Bits::one(3, "NGUID and EUI64 fields are never reused", "NGUID and EUI64 fields may be reused"),
    Bits::supported(2, "Deallocated or Unwritten Logical Block error"),
    Bits::one(1, "Namespace uses NAWUN, NAWUPF, and NACWU", "Namespace uses AWUN, AWUPF, and ACWU"),
    Bits::supported(0, "Thin Provisioning"),
];

const FLBAS: &[Bits] = &[
    Bits::number(6, 5, "Most significant 2 bits of Current LBA Format Selected"),
    Bits::one(4, "Metadata Transferred at End of Data LBA", "Metadata Transferred in Separate Contiguous Buffer"),
    Bits::number(3, 0, "Least significant 4 bits of Current LBA Format Selected"),
];

const MC: &[Bits] =
    &[Bits::supported(1, "Metadata in a Separate Buffer"), Bits::supported(0, "Metadata at End of Data LBA")];

const DPC: &[Bits] = &[
    Bits::supported(4, "Protection Information in Last Bytes of Metadata"),
    Bits::supported(3, "Protection Information in First Bytes of Metadata"),
    Bits::supported(2, "Protection Information Type 3"),
    Bits::supported(1, "Protection Information Type 2"),
    Bits::supported(0, "Protection Information Type 1"),
];

const DPS: &[Bits] = &[
    Bits::one(
        3,
        "Protection Information is Transferred as First Bytes of Metadata",
        "Protection Information is Transferred as Last Bytes of Metadata",
    ),
    Bits::range(2, 0, "Protection Information Type", "Protection Information Disabled"),
];

const FPI: &[Bits] = &[
    Bits::supported(7, "Format Progress Indicator"),
    Bits::range(6, 0, "Percentage of Format to be Completed", "Not Being Formatted"),
];

const NMIC: &[Bits] = &[Bits::one(0, "Namespace Multipath Capable", "Namespace Not Multipath Capable")];

const RESCAP: &[Bits] = &[
    Bits::one(
        7,
        "Ignore Existing Key - Used as defined in revision 1.3 or later",
        "Ignore Existing Key - Used as defined in revision 1.2.1 or earlier",
    ),
    Bits::supported(6, "Exclusive Access - All Registrants"),
    Bits::supported(5, "Write Exclusive - All Registrants"),
    Bits::supported(4, "Exclusive Access - Registrants Only"),
    Bits::supported(3, "Write Exclusive - Registrants Only"),
    Bits::supported(2, "Exclusive Access"),
    Bits::supported(1, "Write Exclusive"),
    Bits::supported(0, "Persist Through Power Loss"),
];

const DLFEAT: &[Bits] = &[
    Bits::one(
        4,
        "Guard Field of Deallocated Logical Blocks is set to CRC of The Value Read",
        "Guard Field of Deallocated Logical Blocks is set to 0xFFFF",
    ),
    Bits::supported(3, "Deallocate Bit in the Write Zeroes Command is"),
    Bits::range(
        2,
        0,
        "Bytes Read From a Deallocated Logical Block: 1 is 0x00, 2 is 0xFF",
        "Bytes Read From a Deallocated Logical Block are Not Reported",
    ),
];

const NSATTR: &[Bits] = &[Bits::one(0, "Namespace Write Protected", "Namespace Not Write Protected")];

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
