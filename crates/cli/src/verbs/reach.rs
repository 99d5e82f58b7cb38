//! Asking addresses side by side, since each that does not answer costs a time-out; and which of a
//! discovery log's answer.

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
    let answers = side_by_side(places, |(_, options)| ebof_initiator::reach(options));
    let error = |answer: Result<(), ConnectError>| answer.err().filter(|error| is_dead(error.kind().name()));
    places.iter().zip(answers).filter_map(|((place, _), answer)| Some((place.clone(), error(answer)?))).collect()
}

/// What `ask` answers for each, with [`AT_A_TIME`] of them at a time.
pub(super) fn side_by_side<T: Sync, A: Send>(items: &[T], ask: impl Fn(&T) -> A + Sync) -> Vec<A> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::with_capacity(items.len()));
    let work = || {
        loop {
            let number = next.fetch_add(1, Relaxed);
            let Some(item) = items.get(number) else { return };
            let answer = ask(item);
            found.lock().unwrap_or_else(PoisonError::into_inner).push((number, answer));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..items.len().min(AT_A_TIME) {
            // Without it, the others take longer.
            let _without = std::thread::Builder::new().name("ebof-reach".to_owned()).spawn_scoped(scope, work);
        }
        work();
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|(number, _)| *number);
    found.into_iter().map(|(_, answer)| answer).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use ebof_nvme::Nqn;

    use super::*;

    /// A socket that accepts by the kernel only: a program that hangs.
    // @test host.dead-addresses
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
