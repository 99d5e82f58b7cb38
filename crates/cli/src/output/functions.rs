//! Views of a drive's functions: `primary-ctrl-caps`, `list-secondary`, `virt-mgmt`, as nvme-cli
//! shows them.

use std::fmt::Write as _;

use ebof_nvme::virtualization::{
    INTERRUPT_RESOURCES, ONLINE, PrimaryCapabilities, QUEUE_RESOURCES, SecondaryController, SecondaryControllerList,
};
use zerocopy::IntoBytes as _;

use super::View;
use super::fields::{Bits, Fields};
use super::json::Object;
use super::text::hex;

/// The width of names in text.
const NAME_WIDTH: usize = 10;

const CRT: &[Bits] = &[
    Bits::one(1, "VI Resources are supported", "VI Resources are not supported"),
    Bits::one(0, "VQ Resources are supported", "VQ Resources are not supported"),
];

const _: () = assert!(INTERRUPT_RESOURCES == 1 << 1 && QUEUE_RESOURCES == 1);

/// Primary Controller Capabilities.
pub(crate) struct PrimaryView {
    /// The data structure.
    pub(crate) data: Box<PrimaryCapabilities>,
}

impl PrimaryView {
    fn fields(&self) -> Fields {
        let PrimaryCapabilities { cntlid, portid, crt, queues, interrupts, .. } = &*self.data;
        let mut fields = Fields::default();
        fields.hex("cntlid", cntlid.get()).hex("portid", portid.get());
        fields.hex("crt", *crt).bits(*crt, CRT);
        fields.dec("vqfrt", queues.frt.get()).dec("vqrfa", queues.rfa.get()).dec("vqrfap", queues.rfap.get());
        fields.dec("vqprt", queues.prt.get()).dec("vqfrsm", queues.frsm.get()).dec("vqgran", queues.gran.get());
        fields.dec("vifrt", interrupts.frt.get()).dec("virfa", interrupts.rfa.get());
        fields.dec("virfap", interrupts.rfap.get()).dec("viprt", interrupts.prt.get());
        fields.dec("vifrsm", interrupts.frsm.get()).dec("vigran", interrupts.gran.get());
        fields
    }
}

impl View for PrimaryView {
    fn text(&self, verbose: bool) -> String {
        format!("NVME Identify Primary Controller Capabilities:\n{}", self.fields().to_text(NAME_WIDTH, verbose))
    }

    fn json(&self, _verbose: bool) -> Object {
        Object::document("primary-ctrl-caps", 1).extend(self.fields().to_json())
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.data.as_bytes())
    }
}

/// A Secondary Controller List.
pub(crate) struct SecondaryView {
    /// The list.
    pub(crate) data: Box<SecondaryControllerList>,
    /// Entries to show at most.
    pub(crate) entries_max: usize,
}

impl SecondaryView {
    fn shown(&self) -> impl Iterator<Item = &SecondaryController> {
        self.data.used().iter().take(self.entries_max)
    }
}

impl View for SecondaryView {
    fn text(&self, _verbose: bool) -> String {
        let mut text = String::from("Identify Secondary Controller List:\n");
        text += &format!("   NUMID       : Number of Identifiers           : {}\n", self.data.numid);
        for (index, entry) in self.shown().enumerate() {
            let state = if entry.scs & ONLINE != 0 { "Online" } else { "Offline" };
            let lines = [
                ("SCID", "Secondary Controller Identifier", entry.scid.get(), String::new()),
                ("PCID", "Primary Controller Identifier", entry.pcid.get(), String::new()),
                ("SCS", "Secondary Controller State", entry.scs.into(), format!(" ({state})")),
                ("VFN", "Virtual Function Number", entry.vfn.get(), String::new()),
                ("NVQ", "Num VQ Flex Resources Assigned", entry.nvq.get(), String::new()),
                ("NVI", "Num VI Flex Resources Assigned", entry.nvi.get(), String::new()),
            ];
            text += &format!("   SCEntry[{index:<3}]:\n................\n");
            for (name, what, value, note) in lines {
                // As C prints `%#.04x`.
                let value = if value == 0 { "0000".to_owned() } else { format!("{value:#06x}") };
                let _infallible = writeln!(text, "     {name:<10}: {what:<32}: {value}{note}");
            }
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let entry = |entry: &SecondaryController| {
            Object::new()
                .with("secondary-controller-identifier", entry.scid.get())
                .with("primary-controller-identifier", entry.pcid.get())
                .with("secondary-controller-state", entry.scs)
                .with("virtual-function-number", entry.vfn.get())
                .with("num-virtual-queues", entry.nvq.get())
                .with("num-virtual-interrupts", entry.nvi.get())
        };
        let entries = self.shown().map(entry).collect::<Vec<_>>();
        Object::document("list-secondary", 1).with("num", self.data.numid).with("secondary-controllers", entries)
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.data.as_bytes())
    }
}

/// Virtualization Management was done.
pub(crate) struct VirtualizedView {
    /// The device.
    pub(crate) device: String,
    /// Number of Controller Resources Modified.
    pub(crate) modified: u16,
}

impl View for VirtualizedView {
    fn text(&self, _verbose: bool) -> String {
        format!("success, Number of Controller Resources Modified (NRM):{}\n", hex(self.modified))
    }

    fn json(&self, _verbose: bool) -> Object {
        Object::document("virt-mgmt", 1).with("device", self.device.as_str()).with("nrm", self.modified)
    }
}
