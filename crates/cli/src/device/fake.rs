//! A device for tests of verbs: returns scripted answers, and records commands.

use std::collections::VecDeque;
use std::time::Duration;

use ebof_attach::Authenticated;
use ebof_attach::usage::LocalDevice;
use ebof_initiator::AdminData;
use ebof_nvme::{Cid, Cqe, Nsid, Sqe, Status};

use super::Device;

/// The response to a command.
#[derive(Clone, Debug)]
pub(crate) struct FakeAnswer {
    status: Status,
    dw0: u32,
    dw1: u32,
    data: Vec<u8>,
}

impl FakeAnswer {
    /// Success, without data.
    pub(crate) fn ok() -> Self {
        Self { status: Status::SUCCESS, dw0: 0, dw1: 0, data: Vec::new() }
    }

    /// Success with `data`, cut or padded with zeros to the requested length.
    pub(crate) fn data(data: &[u8]) -> Self {
        Self { data: data.to_vec(), ..Self::ok() }
    }

    /// A refusal.
    pub(crate) fn status(status: Status) -> Self {
        Self { status, ..Self::ok() }
    }

    /// Dword 0 of the completion.
    pub(crate) fn with_dw0(self, dw0: u32) -> Self {
        Self { dw0, ..self }
    }

    /// Dword 1 of the completion.
    pub(crate) fn with_dw1(self, dw1: u32) -> Self {
        Self { dw1, ..self }
    }
}

/// A received command with its data.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The command.
    pub(crate) sqe: Sqe,
    /// The data to the controller.
    pub(crate) data: Vec<u8>,
    /// Length of the buffer for data from the controller.
    pub(crate) room: usize,
}

/// The device.
#[derive(Debug, Default)]
pub(crate) struct Fake {
    nsid: Option<Nsid>,
    answers: VecDeque<FakeAnswer>,
    /// The received commands, in order.
    pub(crate) asked: Vec<Asked>,
    /// Resets.
    pub(crate) resets: usize,
    /// Rescans.
    pub(crate) rescans: usize,
    /// Block devices of this machine.
    pub(crate) local_devices: Vec<LocalDevice>,
}

impl Fake {
    /// A controller that returns `answers` in order, and then success without data.
    pub(crate) fn controller(answers: impl IntoIterator<Item = FakeAnswer>) -> Self {
        Self { answers: answers.into_iter().collect(), ..Self::default() }
    }

    /// As [`Fake::controller`], named by a namespace.
    pub(crate) fn namespace(nsid: u32, answers: impl IntoIterator<Item = FakeAnswer>) -> Self {
        Self { nsid: Some(Nsid(nsid)), ..Self::controller(answers) }
    }

    /// With a block device of this machine for namespace `nsid`, mounted at `mounted_at` if given.
    pub(crate) fn with_local_device(mut self, nsid: u32, mounted_at: Option<&str>) -> Self {
        let used_by = mounted_at.map(|place| format!("/dev/loop{nsid} is mounted at {place}"));
        let name = format!("nvme0n{nsid}");
        let path = format!("/dev/loop{nsid}").into();
        self.local_devices.push(LocalDevice { nsid, name, path, used_by });
        self
    }

    /// The last command.
    pub(crate) fn last(&self) -> &Asked {
        self.asked.last().unwrap()
    }

    fn answer(&mut self, sqe: &Sqe, data: AdminData<'_>) -> Cqe {
        let answer = self.answers.pop_front().unwrap_or_else(FakeAnswer::ok);
        let mut asked = Asked { sqe: *sqe, data: Vec::new(), room: 0 };
        match data {
            AdminData::None => {}
            AdminData::FromHost(bytes) => asked.data = bytes.to_vec(),
            AdminData::ToHost(buffer) => {
                asked.room = buffer.len();
                buffer.fill(0);
                let length = buffer.len().min(answer.data.len());
                buffer[..length].copy_from_slice(&answer.data[..length]);
            }
        }
        self.asked.push(asked);
        Cqe { dw0: answer.dw0.into(), dw1: answer.dw1.into(), ..Cqe::new(Cid(0), answer.status) }
    }
}

impl Device for Fake {
    fn name(&self) -> &str {
        if self.nsid.is_some() { "nvme0n1" } else { "nvme0" }
    }

    fn nsid(&self) -> Option<Nsid> {
        self.nsid
    }

    fn admin(&mut self, sqe: &Sqe, data: AdminData<'_>) -> anyhow::Result<Cqe> {
        Ok(self.answer(sqe, data))
    }

    fn io(&mut self, sqe: &Sqe, data: AdminData<'_>) -> anyhow::Result<Cqe> {
        Ok(self.answer(sqe, data))
    }

    fn allow(&mut self, _time: Duration) {}

    fn attached(&self) -> Option<&str> {
        Some("nvme0")
    }

    fn local_devices(&self) -> anyhow::Result<Vec<LocalDevice>> {
        Ok(self.local_devices.clone())
    }

    fn reset(&mut self) -> anyhow::Result<()> {
        self.resets += 1;
        Ok(())
    }

    fn reauthenticate(&mut self) -> anyhow::Result<Authenticated> {
        let [hash, group] = ["SHA-512", "ffdhe3072"].map(str::to_owned);
        Ok(Authenticated { hash, group, mutual: false, tls_key_replaced: true })
    }

    fn rescan(&mut self) -> anyhow::Result<()> {
        self.rescans += 1;
        Ok(())
    }
}
