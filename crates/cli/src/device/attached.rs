//! A connected device: commands go through its attach daemon.

use std::time::Duration;

use ebof_attach::usage::{LocalDevice, local_devices};
use ebof_attach::{Authenticated, Client};
use ebof_initiator::AdminData;
use ebof_nvme::{Cqe, Nsid, Sqe};

use super::Device;
use crate::global::Global;

/// A connected controller or namespace.
pub(crate) struct Attached {
    name: String,
    nsid: Option<Nsid>,
    timeout: Option<Duration>,
    client: Client,
}

impl Attached {
    pub(super) fn open(name: &str, global: &Global) -> anyhow::Result<Self> {
        let client = ebof_attach::open(name)?;
        let nsid = client.device().map(|device| Nsid(device.nsid));
        Ok(Self { name: name.to_owned(), nsid, timeout: global.timeout(), client })
    }
}

impl Device for Attached {
    fn name(&self) -> &str {
        &self.name
    }

    fn nsid(&self) -> Option<Nsid> {
        self.nsid
    }

    fn admin(&mut self, sqe: &Sqe, data: AdminData<'_>) -> anyhow::Result<Cqe> {
        Ok(self.client.admin(sqe, data, self.timeout)?)
    }

    fn io(&mut self, sqe: &Sqe, data: AdminData<'_>) -> anyhow::Result<Cqe> {
        Ok(self.client.io(sqe, data)?)
    }

    fn allow(&mut self, time: Duration) {
        self.timeout.get_or_insert(time);
    }

    fn attached(&self) -> Option<&str> {
        Some(&self.client.info().name)
    }

    fn local_devices(&self) -> anyhow::Result<Vec<LocalDevice>> {
        Ok(local_devices(&self.client.info().subnqn)?)
    }

    fn reset(&mut self) -> anyhow::Result<()> {
        Ok(self.client.reset()?)
    }

    fn reauthenticate(&mut self) -> anyhow::Result<Authenticated> {
        Ok(self.client.reauthenticate()?)
    }

    fn rescan(&mut self) -> anyhow::Result<()> {
        Ok(self.client.rescan()?)
    }
}
