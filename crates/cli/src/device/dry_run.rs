//! A device for `--dry-run`: read-only commands are sent, so that a verb can build its command; the
//! first other command is shown instead of being sent, and ends the verb.

use std::fmt;
use std::time::Duration;

use ebof_attach::Authenticated;
use ebof_attach::usage::LocalDevice;
use ebof_initiator::AdminData;
use ebof_nvme::opcode::{admin as opcode, fabrics};
use ebof_nvme::{Cqe, Nsid, Sqe};

use super::Device;
use crate::output::View;
use crate::output::json::Object;
use crate::output::passthru::{command_json, command_text};

/// What was not sent. It ends a verb as an error, but is not reported as a failure.
#[derive(Debug)]
pub(crate) enum NotSent {
    /// A command, and the bytes of its data.
    Command(Box<Sqe>, usize),
    /// An action that is not a command.
    Other(String),
}

impl fmt::Display for NotSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(sqe, bytes) => f.write_str(&command_text(sqe, *bytes)),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl View for NotSent {
    fn text(&self, _verbose: bool) -> String {
        format!("{self}\n")
    }

    fn json(&self, _verbose: bool) -> Object {
        let document = Object::document("dry-run", 1);
        match self {
            Self::Command(sqe, bytes) => document.extend(command_json(sqe, *bytes)),
            Self::Other(text) => document.with("what", text.as_str()),
        }
    }
}

impl std::error::Error for NotSent {}

/// The device.
pub(super) struct DryRun {
    pub(super) device: Box<dyn Device>,
    /// Whether read-only commands are sent: not if the user gives the command.
    pub(super) looks: bool,
}

fn only_looks(sqe: &Sqe) -> bool {
    match sqe.fctype() {
        Some(fctype) => fctype == fabrics::PROPERTY_GET,
        None => matches!(sqe.opcode, opcode::IDENTIFY | opcode::GET_FEATURES | opcode::GET_LOG_PAGE),
    }
}

fn length(data: &AdminData<'_>) -> usize {
    match data {
        AdminData::None => 0,
        AdminData::ToHost(buffer) => buffer.len(),
        AdminData::FromHost(bytes) => bytes.len(),
    }
}

impl Device for DryRun {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn nsid(&self) -> Option<Nsid> {
        self.device.nsid()
    }

    fn admin(&mut self, sqe: &Sqe, data: AdminData<'_>) -> anyhow::Result<Cqe> {
        if self.looks && only_looks(sqe) {
            return self.device.admin(sqe, data);
        }
        Err(NotSent::Command(Box::new(*sqe), length(&data)).into())
    }

    fn io(&mut self, sqe: &Sqe, data: AdminData<'_>) -> anyhow::Result<Cqe> {
        Err(NotSent::Command(Box::new(*sqe), length(&data)).into())
    }

    fn allow(&mut self, time: Duration) {
        self.device.allow(time);
    }

    fn attached(&self) -> Option<&str> {
        self.device.attached()
    }

    fn is_dry_run(&self) -> bool {
        true
    }

    /// None: they are not affected.
    fn local_devices(&self) -> anyhow::Result<Vec<LocalDevice>> {
        Ok(Vec::new())
    }

    fn reset(&mut self) -> anyhow::Result<()> {
        Err(NotSent::Other(format!("reset of {}", self.name())).into())
    }

    fn reauthenticate(&mut self) -> anyhow::Result<Authenticated> {
        Err(NotSent::Other(format!("authentication to {}", self.name())).into())
    }

    fn rescan(&mut self) -> anyhow::Result<()> {
        Err(NotSent::Other(format!("rescan of {}", self.name())).into())
    }
}
