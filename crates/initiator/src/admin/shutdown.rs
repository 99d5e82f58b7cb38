//! The end of a controller that is disconnected: a normal shutdown, in a bounded time.

use std::time::{Duration, Instant};

use ebof_nvme::connect::Property;
use ebof_nvme::property::{Cc, Csts, offset};
use ebof_nvme::{Cqe, Sqe};

use crate::command::data::AdminData;
use crate::connect::steps;
use crate::engine::Engine;
use crate::link::stop::Stop;
use crate::wait::Waiter;

/// How long to wait for the controller's shutdown before closing the connection.
const SHUTDOWN_TIME: Duration = Duration::from_secs(2);

/// Shuts the controller down (CC.SHN) and waits up to [`SHUTDOWN_TIME`] for CSTS.SHST. Its `cancel`
/// is set by now and would end every wait.
pub(super) async fn shut_down(engine: &mut Engine<Vec<u8>>, waiter: &Waiter) {
    let deadline = waiter.time.now() + SHUTDOWN_TIME;
    let cc = Property::set(offset::CC, Cc::ENABLE.with_shutdown(1).0);
    if run_uncancellable(engine, cc, deadline, waiter).await.is_err() {
        return;
    }
    while let Ok(cqe) = run_uncancellable(engine, Property::get(offset::CSTS, 4), deadline, waiter).await {
        if Csts(cqe.dw0.get()).shutdown_complete() {
            engine.allow_graceful_close();
            return;
        }
        if !cqe.status().is_success() || waiter.time.now() >= deadline {
            return;
        }
        waiter.sleep(Duration::from_millis(5), None).await;
    }
}

/// Runs a command without data; only the deadline interrupts it.
async fn run_uncancellable(
    engine: &mut Engine<Vec<u8>>,
    sqe: Sqe,
    deadline: Instant,
    waiter: &Waiter,
) -> Result<Cqe, Stop> {
    steps::run(engine, sqe, &mut AdminData::None, deadline, waiter, None).await
}
