//! The fio command that does what a phase does: so that somebody with fio alone can repeat it. What
//! really ran as another program is in the document instead.

use std::path::{Path, PathBuf};

use crate::document::{Column, Phase};
use crate::engine::{Load, LoadTarget, fio};

/// The command; `None` for a device that fio cannot use.
pub(super) fn command(phase: &Phase, column: &Column) -> Option<Vec<String>> {
    let name = || column.device.name.clone();
    let place = match column.device.kind.as_str() {
        "nvme+tcp" | "nvme+rdma" => LoadTarget::Namespace { uri: name(), options: Vec::new() },
        "nbd" => LoadTarget::Nbd(name()),
        "iscsi" => LoadTarget::Iscsi(name()),
        "null" => LoadTarget::Null,
        "block" | "file" => LoadTarget::Path(PathBuf::from(name())),
        _ => return None,
    };
    let load = Load {
        place: &place,
        jobs: &phase.jobs,
        until_bytes: phase.until_bytes,
        directory: Path::new("."),
        size_bytes: column.device.capacity_bytes,
    };
    Some(fio::command(&load)).filter(|command| !command.is_empty())
}
