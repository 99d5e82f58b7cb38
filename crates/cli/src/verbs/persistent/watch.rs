//! Holding one discovery service: its Admin Queue with Keep Alive, its events, its log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use ebof_clock::Clock;
use ebof_initiator::{
    AdminData, ConnectError, ConnectErrorKind, Controller, DiscoveryLog, Error, Event, Options, Which,
};
use ebof_mdns::Neighbour;
use ebof_nvme::identify::field::oaes;
use ebof_nvme::{Cqe, Nqn, Sqe};

use crate::global::Global;
use crate::verbs::fabric::{FabricArgs, set_timeout};
use crate::verbs::services::usual_ports;

/// Keep Alive Timeout unless another is given, as on Linux.
const KEEP_ALIVE_MS: u32 = 30_000;

/// How often a service that sends no events is asked.
pub(super) const POLL: Duration = Duration::from_secs(60);

/// The shortest time between two logs: a service may change without end.
const PAUSE: Duration = Duration::from_secs(1);

/// How often the thread looks whether it is to end.
const TICK: Duration = Duration::from_millis(200);

/// The time between two attempts to connect: at first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// What is heard of a service.
pub(super) enum Heard {
    Log(DiscoveryLog),
    /// The connection is lost; it is reconnected.
    Lost(String),
    Back,
    /// It sends no events.
    Silent,
    /// It cannot be connected, or its log cannot be read. Another attempt follows.
    Failed(anyhow::Error),
    /// These services are on this network now, and no others.
    Neighbours(Vec<Neighbour>),
}

/// A service to hold.
pub(super) struct ServiceWatch {
    /// Where it may be.
    options: Vec<Options>,
    which: Which,
    stop: Arc<AtomicBool>,
}

impl ServiceWatch {
    pub(super) fn new(service: &FabricArgs, global: &Global, stop: Arc<AtomicBool>) -> Self {
        let ports = service.trsvcid.map_or(usual_ports(service).to_vec(), |port| vec![port]);
        let nqn = service.nqn.clone().unwrap_or_else(Nqn::discovery);
        let traddr = service.traddr.as_deref().unwrap_or_default();
        let at = |port: u16| {
            let mut options = service.options(traddr, port, nqn.clone());
            set_timeout(&mut options, global.timeout());
            options.nr_io_queues = 0;
            options.nr_write_queues = 0;
            options.nr_poll_queues = 0;
            if service.overrides.keep_alive_tmo.is_none() {
                options.keep_alive_ms = KEEP_ALIVE_MS;
            }
            // It is away for as long as it is; what it listed stays.
            options.ctrl_loss_tmo = None;
            // Keys for TLS come of subsystems only.
            options.concat = false;
            options
        };
        Self { options: ports.into_iter().map(at).collect(), which: service.which(), stop }
    }

    /// Holds the service until it is told to end.
    pub(super) fn run(self, tell: impl Fn(Heard)) {
        let mut attempt = 0u32;
        let mut told = None;
        while !self.stop.load(Relaxed) {
            match self.connect() {
                Ok(controller) => {
                    (attempt, told) = (0, None);
                    self.follow(&controller, &tell);
                }
                Err(error) => {
                    let text = error.to_string();
                    // The same again is no news.
                    let is_news = told.as_ref() != Some(&text);
                    told = Some(text);
                    if is_news {
                        tell(Heard::Failed(error.into()));
                    }
                }
            }
            if !self.sleep(pause(attempt, Clock::system().jitter())) {
                return;
            }
            attempt = attempt.saturating_add(1);
        }
    }

    fn connect(&self) -> Result<Controller, ConnectError> {
        let mut last = None;
        for options in &self.options {
            match Controller::connect(options) {
                Err(error) if *error.kind() == ConnectErrorKind::Refused => last = Some(error),
                outcome => return outcome,
            }
        }
        // There is one port at least.
        last.map_or_else(|| Controller::connect(&self.options[0]), Err)
    }

    /// Reads the log, and again at each event. Returns when the controller is gone, or the thread
    /// is to end.
    fn follow(&self, controller: &Controller, tell: &impl Fn(Heard)) {
        let events = controller.events();
        let has_events = controller.identify().oaes.get() & oaes::DISCOVERY_LOG != 0;
        if !has_events {
            tell(Heard::Silent);
        }
        let mut due = Some(Instant::now());
        let mut told = None;
        while !self.stop.load(Relaxed) {
            if due.is_some_and(|at| at <= Instant::now()) {
                // Before it is read: what changes meanwhile is another event.
                due = (!has_events).then(|| Instant::now() + POLL);
                match self.read(controller) {
                    Ok(log) => {
                        told = None;
                        tell(Heard::Log(log));
                    }
                    // An event follows.
                    Err(Error::Lost(_)) => {}
                    Err(error) => {
                        due = Some(Instant::now() + RETRY.1);
                        let text = error.to_string();
                        if told.as_ref() != Some(&text) {
                            told = Some(text);
                            tell(Heard::Failed(error.into()));
                        }
                    }
                }
                // Not more often, whatever the service does.
                if !self.sleep(PAUSE) {
                    return;
                }
            }
            if !Self::hear(&events, &mut due, tell) {
                return;
            }
        }
    }

    /// Waits for an event, a moment. False if there are no more.
    fn hear(events: &Receiver<Event>, due: &mut Option<Instant>, tell: &impl Fn(Heard)) -> bool {
        let now = Instant::now();
        let wait = due.map_or(TICK, |at| at.saturating_duration_since(now).min(TICK));
        match events.recv_timeout(wait) {
            Ok(Event::DiscoveryChanged) => *due = Some(now),
            Ok(Event::ConnectionLost(reason)) => tell(Heard::Lost(reason)),
            Ok(Event::Reconnected) => {
                *due = Some(now);
                tell(Heard::Back);
            }
            Ok(Event::GaveUp(_)) | Err(RecvTimeoutError::Disconnected) => return false,
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
        }
        true
    }

    fn read(&self, controller: &Controller) -> Result<DiscoveryLog, Error> {
        let mut run = |sqe: Sqe, data: &mut [u8]| -> Result<Cqe, Error> {
            let cqe = controller.admin(sqe, AdminData::ToHost(data), None)?;
            cqe.status().ok().map_err(|status| Error::Status { command: "Get Log Page (Discovery)", status })?;
            Ok(cqe)
        };
        let log = DiscoveryLog::read(controller.max_transfer_bytes(), self.which, &mut run)?;
        Ok(DiscoveryLog { peer: controller.peer(), ..log })
    }

    /// False if the thread is to end.
    fn sleep(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while !self.stop.load(Relaxed) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(TICK));
        }
        false
    }
}

/// The time before an attempt: doubled each time, with a quarter of chance, so that hosts do not
/// all come at once.
fn pause(attempt: u32, chance: u64) -> Duration {
    let base = RETRY.0.saturating_mul(1 << attempt.min(20)).min(RETRY.1);
    let quarter = base / 4;
    let range = u64::try_from(quarter.as_millis()).unwrap_or(u64::MAX).saturating_mul(2);
    base - quarter + Duration::from_millis(chance % (range + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_further_and_further_apart_with_some_chance() {
        for attempt in 0..40 {
            let base = RETRY.0.saturating_mul(1 << attempt.min(20)).min(RETRY.1);
            for chance in [0, 1, u64::MAX, Clock::system().jitter()] {
                let pause = pause(attempt, chance);
                assert!(pause >= base * 3 / 4 && pause <= base * 5 / 4, "{attempt}: {pause:?}");
            }
        }
    }
}
