//! Views of Identify Namespace (`id-ns`) and of the namespace identification descriptors
//! (`ns-descs`).

use std::fmt::Write as _;

use ebof_nvme::Nsid;
use ebof_nvme::identify::{Descriptors, IDENTIFY_BYTES, IdentifyNamespace, LbaFormat, NamespaceIdDescriptor};
use zerocopy::IntoBytes as _;

use super::View;
use super::fields::{Bits, Fields};
use super::json::Object;
use super::text::{digits, dump, hex, si};

/// Identify Namespace.
pub(crate) struct NamespaceView {
    /// The namespace.
    pub(crate) nsid: Nsid,
    /// The data structure.
    pub(crate) data: Box<IdentifyNamespace>,
    /// Whether the vendor specific area is shown, too.
    pub(crate) vendor_specific: bool,
}

/// The width of names in text.
const NAME_WIDTH: usize = 8;

const NSFEAT: &[Bits] = &[
    Bits {
        range: (5, 4),
        set: "NPWG, NPWA, NPDG, NPDA, and NOWS are Supported",
        clear: "NPWG, NPWA, NPDG, NPDA, and NOWS are Not Supported",
    },
    Bits::one(3, "NGUID and EUI64 fields are never reused", "NGUID and EUI64 fields may be reused"),
    Bits::one(
        2,
        "Deallocated or Unwritten Logical Block error Supported",
        "Deallocated or Unwritten Logical Block error Not Supported",
    ),
    Bits::one(1, "Namespace uses NAWUN, NAWUPF, and NACWU", "Namespace uses AWUN, AWUPF, and ACWU"),
    Bits::one(0, "Thin Provisioning Supported", "Thin Provisioning Not Supported"),
];

const FLBAS: &[Bits] = &[
    Bits {
        range: (6, 5),
        set: "Most significant 2 bits of Current LBA Format Selected",
        clear: "Most significant 2 bits of Current LBA Format Selected",
    },
    Bits::one(4, "Metadata Transferred at End of Data LBA", "Metadata Transferred in Separate Contiguous Buffer"),
    Bits {
        range: (3, 0),
        set: "Least significant 4 bits of Current LBA Format Selected",
        clear: "Least significant 4 bits of Current LBA Format Selected",
    },
];

const MC: &[Bits] = &[
    Bits::one(1, "Metadata in a Separate Buffer Supported", "Metadata in a Separate Buffer Not Supported"),
    Bits::one(0, "Metadata at End of Data LBA Supported", "Metadata at End of Data LBA Not Supported"),
];

const DPC: &[Bits] = &[
    Bits::one(
        4,
        "Protection Information in Last Bytes of Metadata Supported",
        "Protection Information in Last Bytes of Metadata Not Supported",
    ),
    Bits::one(
        3,
        "Protection Information in First Bytes of Metadata Supported",
        "Protection Information in First Bytes of Metadata Not Supported",
    ),
    Bits::one(2, "Protection Information Type 3 Supported", "Protection Information Type 3 Not Supported"),
    Bits::one(1, "Protection Information Type 2 Supported", "Protection Information Type 2 Not Supported"),
    Bits::one(0, "Protection Information Type 1 Supported", "Protection Information Type 1 Not Supported"),
];

const DPS: &[Bits] = &[
    Bits::one(
        3,
        "Protection Information is Transferred as First Bytes of Metadata",
        "Protection Information is Transferred as Last Bytes of Metadata",
    ),
    Bits { range: (2, 0), set: "Protection Information Type", clear: "Protection Information Disabled" },
];

const FPI: &[Bits] = &[
    Bits::one(7, "Format Progress Indicator Supported", "Format Progress Indicator Not Supported"),
    Bits { range: (6, 0), set: "Percentage of Format to be Completed", clear: "Not Being Formatted" },
];

const NMIC: &[Bits] = &[Bits::one(0, "Namespace Multipath Capable", "Namespace Not Multipath Capable")];

const RESCAP: &[Bits] = &[
    Bits::one(
        7,
        "Ignore Existing Key - Used as defined in revision 1.3 or later",
        "Ignore Existing Key - Used as defined in revision 1.2.1 or earlier",
    ),
    Bits::one(6, "Exclusive Access - All Registrants Supported", "Exclusive Access - All Registrants Not Supported"),
    Bits::one(5, "Write Exclusive - All Registrants Supported", "Write Exclusive - All Registrants Not Supported"),
    Bits::one(4, "Exclusive Access - Registrants Only Supported", "Exclusive Access - Registrants Only Not Supported"),
    Bits::one(3, "Write Exclusive - Registrants Only Supported", "Write Exclusive - Registrants Only Not Supported"),
    Bits::one(2, "Exclusive Access Supported", "Exclusive Access Not Supported"),
    Bits::one(1, "Write Exclusive Supported", "Write Exclusive Not Supported"),
    Bits::one(0, "Persist Through Power Loss Supported", "Persist Through Power Loss Not Supported"),
];

const DLFEAT: &[Bits] = &[
    Bits::one(
        4,
        "Guard Field of Deallocated Logical Blocks is set to CRC of The Value Read",
        "Guard Field of Deallocated Logical Blocks is set to 0xFFFF",
    ),
    Bits::one(
        3,
        "Deallocate Bit in the Write Zeroes Command is Supported",
        "Deallocate Bit in the Write Zeroes Command is Not Supported",
    ),
    Bits {
        range: (2, 0),
        set: "Bytes Read From a Deallocated Logical Block: 1 is 0x00, 2 is 0xFF",
        clear: "Bytes Read From a Deallocated Logical Block are Not Reported",
    },
];

const NSATTR: &[Bits] = &[Bits::one(0, "Namespace Write Protected", "Namespace Not Write Protected")];

impl View for NamespaceView {
    fn text(&self, verbose: bool) -> String {
        let mut text = format!("NVME Identify Namespace {}:\n", self.nsid);
        text += &self.fields().to_text(NAME_WIDTH, verbose);
        let in_use = self.data.format_index();
        for (index, format) in self.data.lba_formats().iter().enumerate() {
            text += &format_text(index, *format, index == in_use, verbose);
        }
        if self.vendor_specific {
            text += "vs[]:\n";
            text += &dump(&self.data.vs);
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let format = |(index, format): (usize, &LbaFormat)| {
            let object = Object::new().with("ms", format.ms.get()).with("ds", format.lbads).with("rp", format.rp & 3);
            object.with("in_use", u8::from(index == self.data.format_index()))
        };
        let formats: Vec<Object> = self.data.lba_formats().iter().enumerate().map(format).collect();
        let object = Object::document("id-ns", 2).with("nsid", self.nsid.0);
        // As in nvme-cli: as far as the first zero, 16 bytes in an element.
        let used = self.data.vs.iter().position(|byte| *byte == 0).unwrap_or(self.data.vs.len());
        let vendor = self.data.vs[..used].chunks(16).map(digits).collect::<Vec<_>>();
        let mut object = object.extend(self.fields().to_json()).with("lbafs", formats).with("vs", vendor);
        if self.vendor_specific {
            object.push("vendor_specific", digits(&self.data.vs));
        }
        object
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.data.as_bytes())
    }
}

impl NamespaceView {
    fn fields(&self) -> Fields {
        let data = &self.data;
        let mut fields = Fields::default();
        for (name, blocks) in [("nsze", data.nsze.get()), ("ncap", data.ncap.get()), ("nuse", data.nuse.get())] {
            fields.hex(name, blocks).detail(match data.format().block_bytes() {
                Some(bytes) => format!("  {blocks} blocks, {} bytes", u128::from(blocks) * u128::from(bytes)),
                None => format!("  {blocks} blocks"),
            });
        }
        fields.hex("nsfeat", data.nsfeat).bits(data.nsfeat, NSFEAT);
        fields.dec("nlbaf", data.nlbaf);
        fields.hex("flbas", data.flbas).bits(data.flbas, FLBAS);
        fields.hex("mc", data.mc).bits(data.mc, MC);
        fields.hex("dpc", data.dpc).bits(data.dpc, DPC);
        fields.hex("dps", data.dps).bits(data.dps, DPS);
        fields.hex("nmic", data.nmic).bits(data.nmic, NMIC);
        fields.hex("rescap", data.rescap).bits(data.rescap, RESCAP);
        fields.hex("fpi", data.fpi).bits(data.fpi, FPI);
        fields.dec("dlfeat", data.dlfeat).bits(data.dlfeat, DLFEAT);
        fields.dec("nawun", data.nawun.get()).dec("nawupf", data.nawupf.get()).dec("nacwu", data.nacwu.get());
        fields.dec("nabsn", data.nabsn.get()).dec("nabo", data.nabo.get()).dec("nabspf", data.nabspf.get());
        fields.dec("noiob", data.noiob.get());
        fields.dec("nvmcap", data.nvmcap.get()).detail(format!("  {}", si(data.nvmcap.get())));
        fields.dec("npwg", data.npwg.get()).dec("npwa", data.npwa.get()).dec("npdg", data.npdg.get());
        fields.dec("npda", data.npda.get()).dec("nows", data.nows.get());
        fields.dec("mssrl", data.mssrl.get()).dec("mcl", data.mcl.get()).dec("msrc", data.msrc);
        fields.dec("kpios", data.kpios).dec("nulbaf", data.nulbaf).dec("kpiodaag", data.kpiodaag.get());
        fields.dec("anagrpid", data.anagrpid.get());
        fields.dec("nsattr", data.nsattr).bits(data.nsattr, NSATTR);
        fields.dec("nvmsetid", data.nvmsetid.get()).dec("endgid", data.endgid.get());
        fields.text("nguid", digits(&data.nguid)).text("eui64", digits(&data.eui64));
        fields
    }
}

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
