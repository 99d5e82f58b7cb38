//! A device given by a URI: connected for the duration of one verb.

use std::time::{Duration, Instant};

use ebof_attach::Authenticated;
use ebof_attach::usage::{LocalDevice, local_devices};
use ebof_initiator::{AdminData, Controller, Options, QueuePair};
use ebof_nvme::{Cqe, Nsid, Sqe};

use super::Device;
use crate::failure::Failure;
use crate::global::Global;

/// Default time limit of a reset.
const RESET_TIMEOUT: Duration = Duration::from_secs(60);

/// A controller that this process is connected to.
pub(crate) struct Remote {
    name: String,
    nsid: Option<Nsid>,
    timeout: Option<Duration>,
    /// Before `controller`: its queue is closed first. Created for the first I/O command.
    queue: Option<QueuePair>,
    /// `None` only while it is dropped.
    controller: Option<Controller>,
}

impl Remote {
    pub(super) fn connect(name: &str, options: &Options, nsid: Option<Nsid>, global: &Global) -> anyhow::Result<Self> {
        let mut options = options.clone();
        if let Some(timeout) = global.timeout() {
            let ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
            options.command_timeout_ms = ms;
            options.admin_timeout_ms = ms;
            options.connect_timeout_ms = ms;
        }
        let controller = Controller::connect(&options)?;
        Ok(Self { name: name.to_owned(), nsid, timeout: global.timeout(), queue: None, controller: Some(controller) })
    }

    fn controller(&self) -> &Controller {
        self.controller.as_ref().expect("only drop takes it")
    }
}

impl Device for Remote {
    fn name(&self) -> &str {
        &self.name
    }

    fn nsid(&self) -> Option<Nsid> {
        self.nsid
    }

    fn admin(&mut self, sqe: &Sqe, data: AdminData<'_>) -> anyhow::Result<Cqe> {
        Ok(self.controller().admin(*sqe, data, self.timeout)?)
    }

    fn io(&mut self, sqe: &Sqe, data: AdminData<'_>) -> anyhow::Result<Cqe> {
        let queue = match &mut self.queue {
            Some(queue) => queue,
            none => none.insert(self.controller.as_ref().expect("only drop takes it").queue_pair()?),
        };
        Ok(queue.execute(*sqe, data)?)
    }

    fn allow(&mut self, time: Duration) {
        self.timeout.get_or_insert(time);
    }

    fn attached(&self) -> Option<&str> {
        None
    }

    fn local_devices(&self) -> anyhow::Result<Vec<LocalDevice>> {
        Ok(local_devices(self.controller().options().nqn.as_str())?)
    }

    fn reset(&mut self) -> anyhow::Result<()> {
        let limit = self.timeout.unwrap_or(RESET_TIMEOUT);
        self.controller().reset();
        if self.controller().wait_live(Some(Instant::now() + limit)) {
            return Ok(());
        }
        let state = self.controller().state().name();
        let limit = limit.as_millis();
        Err(Failure::new(
            "not-connected",
            format!("{} did not come back within {limit} ms: it is {state}", self.name),
            "see whether the target still runs and is reached, with `ebof discover`",
        )
        .into())
    }

    fn reauthenticate(&mut self) -> anyhow::Result<Authenticated> {
        let done = self.controller().reauthenticate()?;
        Ok(Authenticated {
            hash: done.hash.to_string(),
            group: done.group.to_string(),
            mutual: done.is_mutual,
            tls_key_replaced: done.has_replaced_psk,
        })
    }

    fn rescan(&mut self) -> anyhow::Result<()> {
        let message = format!("{} is a URI: there are no block devices that could follow its namespaces", self.name);
        Err(Failure::usage(message, "connect to it first (`ebof connect`); `ebof list-ns` shows what is there now")
            .into())
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(controller) = self.controller.take() {
            controller.disconnect();
        }
    }
}
