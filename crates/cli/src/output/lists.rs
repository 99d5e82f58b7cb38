//! Views of lists of identifiers: `list-ns`, `list-ctrl`, `changed-ns-list-log`.

use ebof_nvme::Nsid;
use ebof_nvme::identify::{ControllerList, NamespaceList};
use ebof_nvme::log::ChangedNamespaces;

use super::done::Done;
use super::json::Object;
use super::structure::{FieldTable, LineFormat, StructureView, numbered, table};
use super::text::{device_key, hex};

fn nsid_object(nsid: &Nsid) -> Object {
    Object::new().with("nsid", nsid.0)
}

fn nsid_line(index: usize, nsid: &Nsid) -> String {
    format!("[{index:4}]:{}\n", hex(nsid.0))
}

/// A namespace list, the first 1024.
pub(crate) fn namespace_list_view(data: Box<NamespaceList>) -> StructureView<NamespaceList> {
    let (list, plain) = numbered(data.iter(), nsid_object, nsid_line);
    let verbose = |index, nsid: &Nsid| format!("Identifier {index:4}: NSID {}\n", hex(nsid.0));
    let (_, verbose) = numbered(data.iter(), nsid_object, verbose);
    let view = StructureView::new(&NAMESPACES, "list-ns", 1, "NVME Namespace List:\n", data);
    view.key("nsid_list", list).lines(&plain, &verbose)
}

static NAMESPACES: FieldTable<NamespaceList> = FieldTable::new(LineFormat::wide(0), &[]);

/// A controller list.
pub(crate) fn controller_list_view(data: Box<ControllerList>) -> StructureView<ControllerList> {
    let (list, lines) = numbered(
        data.iter(),
        |id| Object::new().with("ctrl_id", id.0),
        |index, id| format!("[{index:4}]:{}\n", hex(id.0)),
    );
    StructureView::new(&CONTROLLERS, "list-ctrl", 1, "", data).list("ctrl_list", list, &lines)
}

static CONTROLLERS: FieldTable<ControllerList> = table! { LineFormat::wide(0), ControllerList:
    num as "num of ctrls present" .key("num_ctrl"),
};

/// The Changed Namespace List log, or that of allocated namespaces: `verb` says which.
pub(crate) fn changed_view(
    verb: &'static str,
    device: &str,
    data: Box<ChangedNamespaces>,
) -> StructureView<ChangedNamespaces> {
    let (list, mut lines) = numbered(data.iter(), nsid_object, nsid_line);
    if data.is_overflowed() {
        lines = format!("more than {} ns changed\n", ChangedNamespaces::ENTRIES_MAX);
    } else if lines.is_empty() {
        lines = "no ns changed\n".to_owned();
    }
    let allocated = verb == "changed-alloc-ns-list-log";
    let title = format!("Changed {} Namespace List Log", if allocated { "Allocated" } else { "Attached" });
    let device = device_key(device);
    let named = data.iter().enumerate();
    let named =
        named.fold(Object::new(), |object, (index, nsid)| object.with(format!("[{:4}]", index + 1), hex(nsid.0)));
    let overflow = data.is_overflowed();
    let view = StructureView::new(&CHANGED, verb, 1, "", data).with("overflow", overflow);
    view.list("changed_ns_list", list, &lines).key(title, device).key(device, named)
}

static CHANGED: FieldTable<ChangedNamespaces> = FieldTable::new(LineFormat::wide(0), &[]);

/// `get-ns-id`: the namespace that a device names.
pub(crate) fn ns_id_view(device: &str, nsid: Nsid) -> Done {
    let text = format!("{device}: namespace-id: {}\n", nsid.0);
    Done::with_text("get-ns-id", text).with("device", device).with("nsid", nsid.0)
}
