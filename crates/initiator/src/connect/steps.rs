//! The steps of connecting: commands that are run one at a time, with lent data, each within its
//! time. Does not know what the commands are.

use std::time::{Duration, Instant};

use ebof_nvme::{Cqe, Sqe};

use crate::command::data::AdminData;
use crate::engine::Engine;
use crate::error::Error;
use crate::error::connect_error::ConnectErrorKind as Kind;
use crate::link::stop::{Stop, await_ready};
use crate::options::Options;
use crate::wait::{Cancel, Waiter};

/// How the steps of an attempt are waited for.
#[derive(Clone, Copy)]
pub(super) struct Steps<'a> {
    pub(super) options: &'a Options,
    pub(super) waiter: &'a Waiter,
    pub(super) cancel: &'a Cancel,
}

impl Steps<'_> {
    /// How long a step may take.
    pub(super) fn time(&self) -> Duration {
        Duration::from_millis(u64::from(self.options.connect_timeout_ms.max(1)))
    }

    /// Until when a step that begins now has to be over.
    pub(super) fn deadline(&self) -> Instant {
        self.waiter.time.now() + self.time()
    }

    /// Runs one command within the time of a step.
    pub(super) async fn run(
        &self,
        engine: &mut Engine<Vec<u8>>,
        sqe: Sqe,
        data: &mut AdminData<'_>,
    ) -> Result<Cqe, Kind> {
        run(engine, sqe, data, self.deadline(), self.waiter, Some(self.cancel))
            .await
            .map_err(|stop| stop.into_kind(self.options))
    }
}

/// Runs one command with lent data. Nothing else may use the engine until it completes. On an error
/// the connection has to be closed: the command may still be outstanding.
pub(crate) async fn run(
    engine: &mut Engine<Vec<u8>>,
    sqe: Sqe,
    data: &mut AdminData<'_>,
    deadline: Instant,
    waiter: &Waiter,
    cancel: Option<&Cancel>,
) -> Result<Cqe, Stop> {
    let length = match data {
        AdminData::None => 0,
        AdminData::ToHost(bytes) => bytes.len(),
        AdminData::FromHost(bytes) => bytes.len(),
    };
    let length = u32::try_from(length).map_err(|_| Stop::Failed(Error::TooLarge { bytes: length }))?;
    engine.submit_lent(sqe, (0, length), data, 0, u64::MAX).map_err(Stop::Failed)?;
    let (_, result) = run_until(engine, data, deadline, waiter, cancel, |engine| engine.slots().pop_lent()).await?;
    result.map_err(Stop::Failed)
}

/// Sends and receives until `done` gives a result.
async fn run_until<T>(
    engine: &mut Engine<Vec<u8>>,
    data: &mut AdminData<'_>,
    deadline: Instant,
    waiter: &Waiter,
    cancel: Option<&Cancel>,
    mut done: impl FnMut(&mut Engine<Vec<u8>>) -> Option<T>,
) -> Result<T, Stop> {
    loop {
        engine.flush(data).map_err(Stop::Lost)?;
        engine.receive(data).map_err(Stop::Lost)?;
        if let Some(result) = done(engine) {
            return Ok(result);
        }
        let link = engine.link().expect("the link that the command was submitted to, and that was not lost");
        await_ready(link.watch(), deadline, waiter, cancel).await?;
    }
}

/// An error if a command has failed.
pub(crate) fn success(cqe: &Cqe, command: &'static str) -> Result<(), Kind> {
    cqe.status().ok().map_err(|status| Kind::Status { command, status })
}
