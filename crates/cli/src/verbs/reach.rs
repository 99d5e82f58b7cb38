//! Which addresses of a discovery log answer. Each that does not costs a time-out: they are asked
//! side by side, each once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use ebof_initiator::{ConnectError, Options};
use ebof_nvme::uri::Transport;

/// Addresses that are asked at the same time.
const AT_A_TIME: usize = 32;

/// Kinds of connect errors that are about the address, not about the subsystem.
const DEAD: [&str; 5] = ["refused", "unreachable", "timed-out", "rejected-by-manager", "name-not-resolved"];

/// Transport, address, port.
pub(super) type Place = (Transport, String, u16);

/// Whether an error of this kind says that nothing answers at the address.
pub(super) fn is_dead(kind: &str) -> bool {
    DEAD.contains(&kind)
}

/// Those of `places` where nothing answers, and how that shows.
pub(super) fn dead(places: &[(Place, Options)]) -> HashMap<Place, ConnectError> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(HashMap::new());
    let ask = || {
        while let Some((place, options)) = places.get(next.fetch_add(1, Relaxed)) {
            if let Err(error) = ebof_initiator::reach(options)
                && is_dead(error.kind().name())
            {
                found.lock().unwrap_or_else(PoisonError::into_inner).insert(place.clone(), error);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..places.len().min(AT_A_TIME) {
            // Without it, the others take longer.
            let _without = std::thread::Builder::new().name("ebof-reach".to_owned()).spawn_scoped(scope, ask);
        }
        ask();
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use ebof_nvme::Nqn;

    use super::*;

    /// A socket that accepts by the kernel only: a program that hangs.
    #[test]
    fn addresses_that_do_not_answer_cost_one_time_out_together() {
        let silent: Vec<TcpListener> = (0..AT_A_TIME).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut ports: Vec<u16> = silent.iter().map(|socket| socket.local_addr().unwrap().port()).collect();
        ports.push(closed);
        let place = |port: u16| {
            let mut options = Options::new("127.0.0.1", port, Nqn::discovery());
            options.connect_timeout_ms = 300;
            ((Transport::Tcp, "127.0.0.1".to_owned(), port), options)
        };
        let places: Vec<_> = ports.iter().map(|&port| place(port)).collect();
        let began = Instant::now();
        let dead = dead(&places);
        // One after the other they would take ten seconds.
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert_eq!(dead.len(), ports.len());
        assert_eq!(dead[&place(closed).0].kind().name(), "refused");
        assert_eq!(dead[&place(ports[0]).0].kind().name(), "timed-out");
    }
}
