//! What hosts hear of a target.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use ebof_initiator::Event;
use ebof_nvme::log::Lid;

/// The next event of a controller about its namespaces or its connection: not that commands were
/// refused, as tests want it, nor that there are states of groups to be read, as with each
/// namespace that is added.
pub(crate) fn next_event(events: &Receiver<Event>) -> Event {
    loop {
        match events.recv_timeout(Duration::from_secs(30)).expect("an event") {
            Event::Trouble { .. } => {}
            Event::Asynchronous { log_page, .. } if log_page == Lid::ANA.0 => {}
            event => return event,
        }
    }
}
