//! Entries of the log of slow commands: where the time of each went.

use ebof_manage::slow::{SlowCommand, SlowCommands, SlowParts};
use serde::Serialize;

use super::log::{EntryLinks, LogEntry};
use crate::managed::view::View;
use crate::place::{ChassisPlace, Log, ManagerPlace, Place, StoragePlace};
use crate::response::head::{Head, Health, json, link, oem};
use crate::response::message::OWN;
use crate::response::time::date_time;

/// `EbofLogService.SlowCommands`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct OemSlowCommands {
    #[serde(rename = "@odata.type")]
    kind: &'static str,
    /// `None`: no command is slow.
    threshold_microseconds: Option<u64>,
    total: u64,
}

impl OemSlowCommands {
    pub(super) const fn new(slow: &SlowCommands) -> Self {
        Self {
            kind: "#EbofLogService.v1_0_0.SlowCommands",
            threshold_microseconds: slow.threshold_us,
            total: slow.total,
        }
    }

    /// Whether commands are looked at.
    pub(super) const fn is_on(&self) -> bool {
        self.threshold_microseconds.is_some()
    }
}

/// `EbofLogEntry.SlowCommand`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct OemSlowCommand {
    #[serde(rename = "@odata.type")]
    kind: &'static str,
    #[serde(rename = "HostNQN")]
    host_nqn: String,
    #[serde(rename = "SubsystemNQN")]
    subsystem_nqn: String,
    object: String,
    port: String,
    queue: u16,
    #[serde(rename = "NSID")]
    nsid: u32,
    opcode: u8,
    command: String,
    #[serde(rename = "LBA")]
    lba: Option<i64>,
    data_bytes: u32,
    completion_status: String,
    total_microseconds: u64,
    queue_microseconds: u64,
    buffer_microseconds: u64,
    network_microseconds: u64,
    device_microseconds: u64,
    unsent_bytes: u64,
}

impl OemSlowCommand {
    fn new(command: &SlowCommand) -> Self {
        let SlowParts { buffer_us, network_us, queue_us, device_us } = command.parts;
        Self {
            kind: "#EbofLogEntry.v1_0_0.SlowCommand",
            host_nqn: command.host_nqn.clone(),
            subsystem_nqn: command.subsystem_nqn.clone(),
            object: command.object.clone(),
            port: command.port.clone(),
            queue: command.queue,
            nsid: command.nsid,
            opcode: command.opcode,
            command: command.command.clone(),
            // A host may name a block that the type of the property does not reach.
            lba: command.lba.and_then(|lba| i64::try_from(lba).ok()),
            data_bytes: command.bytes,
            completion_status: command.status.clone(),
            total_microseconds: command.total_us,
            queue_microseconds: queue_us,
            buffer_microseconds: buffer_us,
            network_microseconds: network_us,
            device_microseconds: device_us,
            unsent_bytes: command.unsent_bytes,
        }
    }
}

/// The entry of a slow command.
pub(super) fn of_command(command: &SlowCommand, view: &View<'_>) -> LogEntry {
    let place = ManagerPlace::Entry(Log::SlowCommands, command.id.to_string());
    let name = format!("Slow {} of {}", command.command, command.object);
    let message = message(command);
    LogEntry {
        head: Head::new(place, "#LogEntry.v1_21_0.LogEntry", name, "A command that took long"),
        entry_type: "Event",
        severity: Health::Warning,
        created: date_time(command.time_unix_ms),
        message_args: vec![message.clone()],
        message,
        message_id: format!("{OWN}.SlowCommand"),
        event_id: None,
        event_timestamp: date_time(command.time_unix_ms),
        resolution: advice(command.parts).to_owned(),
        username: None,
        origin_address: None,
        links: origin(command, view).map(|place| EntryLinks { origin_of_condition: link(place) }),
        oem: oem(json(&OemSlowCommand::new(command))),
    }
}

/// A sentence: what was slow, and where the time went, the longest part first.
fn message(slow: &SlowCommand) -> String {
    let SlowCommand { command, bytes, nsid, object, total_us, .. } = slow;
    let at = slow.lba.map(|lba| format!(" at block {lba}")).unwrap_or_default();
    let mut parts: Vec<_> = slow.parts.named().into_iter().filter(|(_, us)| *us > 0).collect();
    parts.sort_by_key(|(_, us)| std::cmp::Reverse(*us));
    let parts: Vec<String> = parts.iter().map(|(name, us)| format!("{name} {}", milliseconds(*us))).collect();
    let total = milliseconds(*total_us);
    format!("{command} of {bytes} bytes{at} of namespace {nsid} of {object} took {total}: {}", parts.join(", "))
}

fn milliseconds(us: u64) -> String {
    format!("{}.{:03} ms", us / 1000, us % 1000)
}

/// What to look at, by the longest part.
fn advice(parts: SlowParts) -> &'static str {
    let longest = parts.named().into_iter().max_by_key(|(_, us)| *us).map_or("", |(name, _)| name);
    match longest {
        "queue" => {
            "It waited for its function's share of the drive, for a lock on its blocks, or for its turn: look at the \
             weights and limits of the drive's functions, and at pairs of Compare and Write."
        }
        "buffer" => {
            "Other commands had all buffers: look for hosts with many large commands at a time, and host_share."
        }
        "network" => "The host was slow to send its data: look at the network, and at the host's processor.",
        _ => "The device was slow: look at the disk below the drive, and at the kernel's log.",
    }
}

/// The volume that it was for, or what that was part of, as far as it is still there.
fn origin(command: &SlowCommand, view: &View<'_>) -> Option<Place> {
    // A function is `d3/vf2`; a subsystem is its NQN.
    let name = command.object.split('/').next().unwrap_or_default();
    let id = [command.object.as_str(), name].into_iter().find_map(|name| view.storage_id(name))?;
    let storage = view.storage(id)?;
    if storage.namespaces(view).iter().any(|namespace| namespace.nsid() == command.nsid) {
        return Some(StoragePlace::Volume(id.to_owned(), format!("ns{}", command.nsid)).into());
    }
    view.drive(id).map(|_drive| ChassisPlace::Drive(id.to_owned()).into())
}
