//! Views of lists of identifiers: `list-ns`, `list-ctrl`, `changed-ns-list-log`.

use std::fmt::Write as _;

use ebof_nvme::identify::{ControllerList, NamespaceList};
use ebof_nvme::log::ChangedNamespaces;
use zerocopy::IntoBytes as _;

use super::View;
use super::json::Object;
use super::text::{device_key, hex};

/// A namespace list.
pub(crate) struct NamespaceListView {
    /// The list, the first 1024.
    pub(crate) data: Box<NamespaceList>,
}

impl View for NamespaceListView {
    fn text(&self, verbose: bool) -> String {
        let mut text = "NVME Namespace List:\n".to_owned();
        for (index, nsid) in self.data.iter().enumerate() {
            let _infallible = if verbose {
                writeln!(text, "Identifier {index:4}: NSID {}", hex(nsid.0))
            } else {
                writeln!(text, "[{index:4}]:{}", hex(nsid.0))
            };
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let nsids = self.data.iter().map(|nsid| Object::new().with("nsid", nsid.0)).collect::<Vec<_>>();
        Object::document("list-ns", 1).with("nsid_list", nsids)
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.data.as_bytes())
    }
}

/// A controller list.
pub(crate) struct ControllerListView {
    /// The list.
    pub(crate) data: Box<ControllerList>,
}

impl View for ControllerListView {
    fn text(&self, _verbose: bool) -> String {
        let mut text = format!("num of ctrls present: {}\n", self.data.num);
        for (index, id) in self.data.iter().enumerate() {
            let _infallible = writeln!(text, "[{index:4}]:{}", hex(id.0));
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let ids = self.data.iter().map(|id| Object::new().with("ctrl_id", id.0)).collect::<Vec<_>>();
        Object::document("list-ctrl", 1).with("num_ctrl", self.data.num.get()).with("ctrl_list", ids)
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.data.as_bytes())
    }
}

/// The Changed Namespace List log, or that of allocated namespaces.
pub(crate) struct ChangedView {
    /// The verb that shows it.
    pub(crate) verb: &'static str,
    /// The device's name.
    pub(crate) device: String,
    /// The log page.
    pub(crate) data: Box<ChangedNamespaces>,
}

impl View for ChangedView {
    fn text(&self, _verbose: bool) -> String {
        if self.data.is_overflowed() {
            return format!("more than {} ns changed\n", ChangedNamespaces::ENTRIES_MAX);
        }
        let mut text = String::new();
        for (index, nsid) in self.data.iter().enumerate() {
            let _infallible = writeln!(text, "[{index:4}]:{}", hex(nsid.0));
        }
        if text.is_empty() { "no ns changed\n".to_owned() } else { text }
    }

    fn json(&self, _verbose: bool) -> Object {
        let nsids = self.data.iter().map(|nsid| Object::new().with("nsid", nsid.0)).collect::<Vec<_>>();
        let allocated = self.verb == "changed-alloc-ns-list-log";
        let title = format!("Changed {} Namespace List Log", if allocated { "Allocated" } else { "Attached" });
        let device = device_key(&self.device);
        let entries = self.data.iter().enumerate();
        let entries =
            entries.fold(Object::new(), |object, (index, nsid)| object.with(format!("[{:4}]", index + 1), hex(nsid.0)));
        Object::document(self.verb, 1)
            .with("overflow", self.data.is_overflowed())
            .with("changed_ns_list", nsids)
            .with(title, device)
            .with(device, entries)
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.data.as_bytes())
    }
}

/// `get-ns-id`.
pub(crate) struct NsIdView {
    /// The device's name.
    pub(crate) device: String,
    /// The namespace that it names.
    pub(crate) nsid: u32,
}

impl View for NsIdView {
    fn text(&self, _verbose: bool) -> String {
        format!("{}: namespace-id: {}\n", self.device, self.nsid)
    }

    fn json(&self, _verbose: bool) -> Object {
        Object::document("get-ns-id", 1).with("device", self.device.as_str()).with("nsid", self.nsid)
    }
}
