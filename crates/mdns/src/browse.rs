//! Finding discovery services. What the network says is checked, and what is kept of it bounded: an
//! answer that cannot be used is as none.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use ebof_nvme::Nqn;
use mdns_sd::{Receiver, RecvTimeoutError, ResolvedService, ScopedIp, ServiceDaemon, ServiceEvent};

use crate::{MdnsError, NQN_KEY, SERVICE, TRANSPORT_KEY, TRANSPORTS};

/// The most services that are known at a time; further ones are not seen.
pub const SERVICES_MAX: usize = 64;

/// The most records that answers may fill the memory with; then all are forgotten.
const RECORDS_MAX: i64 = 8192;

/// How often they are counted.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);

/// How long nobody is asked after somebody has sent so many.
const PAUSE: Duration = Duration::from_secs(60);

/// A discovery service of this network, as it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its name on this network, printable.
    pub name: String,
    /// `tcp` or `rdma`.
    pub transport: String,
    /// Its address, with the interface if it has a meaning there only: `fe80::1%eth0`.
    pub address: String,
    /// Its port.
    pub port: u16,
    /// Its NQN, if it has one of its own.
    pub nqn: Option<Nqn>,
}

/// What is news of this network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sighting {
    /// A service is there, or has become another one.
    There(Neighbour),
    /// The one of this name is not there any more, or says so.
    Gone(String),
}

/// Asks this network for discovery services.
pub struct Browser {
    daemon: ServiceDaemon,
    events: Receiver<ServiceEvent>,
    known: Known,
    counted_at: Instant,
    /// Until when nobody is asked.
    pause: Option<Instant>,
}

impl Browser {
    /// Begins to ask.
    ///
    /// # Errors
    /// The system has no sockets or threads for it.
    pub fn new() -> Result<Self, MdnsError> {
        let (daemon, events) = ask()?;
        Ok(Self { daemon, events, known: Known::default(), counted_at: Instant::now(), pause: None })
    }

    /// The next news; waits so long for some.
    pub fn next(&mut self, wait: Duration) -> Option<Sighting> {
        let end = Instant::now() + wait;
        loop {
            let now = Instant::now();
            let left = end.saturating_duration_since(now);
            if let Some(pause) = self.pause {
                std::thread::sleep(left.min(pause.saturating_duration_since(now)));
                if Instant::now() >= pause {
                    self.begin_again();
                }
            } else {
                let event = match self.events.recv_timeout(left.min(COUNT_INTERVAL)) {
                    Ok(event) => Some(event),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => {
                        tracing::error!("the thread for multicast DNS has ended: it is begun again");
                        self.pause = Some(now + PAUSE);
                        None
                    }
                };
                if let Some(sighting) = event.and_then(|event| self.known.hear(event)) {
                    return Some(sighting);
                }
                self.bound();
            }
            if Instant::now() >= end {
                return None;
            }
        }
    }

    /// Forgets all answers if there are too many, and asks nobody for a while. What was found
    /// stays.
    fn bound(&mut self) {
        if self.counted_at.elapsed() < COUNT_INTERVAL {
            return;
        }
        self.counted_at = Instant::now();
        let metrics = self.daemon.get_metrics().ok().and_then(|metrics| metrics.recv_timeout(COUNT_INTERVAL).ok());
        // The names are those of mdns-sd.
        let kept = metrics.iter().flatten().filter(|(name, _)| name.starts_with("cached-"));
        if kept.map(|(_, count)| *count).sum::<i64>() > RECORDS_MAX {
            tracing::warn!(
                records = RECORDS_MAX,
                pause_s = PAUSE.as_secs(),
                "somebody floods this network with multicast DNS: it is not asked for a while"
            );
            let _ended = self.daemon.shutdown();
            self.pause = Some(Instant::now() + PAUSE);
        }
    }

    fn begin_again(&mut self) {
        match ask() {
            Ok((daemon, events)) => {
                (self.daemon, self.events, self.pause) = (daemon, events, None);
            }
            Err(error) => {
                tracing::warn!(%error, "this network is not asked");
                self.pause = Some(Instant::now() + PAUSE);
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ended = self.daemon.shutdown();
    }
}

impl std::fmt::Debug for Browser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Browser").field("known", &self.known).finish_non_exhaustive()
    }
}

fn ask() -> Result<(ServiceDaemon, Receiver<ServiceEvent>), mdns_sd::Error> {
    let daemon = ServiceDaemon::new()?;
    let events = daemon.browse(SERVICE)?;
    Ok((daemon, events))
}

/// The services that were found, by their full names.
#[derive(Debug, Default)]
struct Known {
    services: BTreeMap<String, Neighbour>,
    has_told_too_many: bool,
}

impl Known {
    fn hear(&mut self, event: ServiceEvent) -> Option<Sighting> {
        match event {
            ServiceEvent::ServiceResolved(resolved) => {
                let before = self.services.get(&resolved.fullname);
                let Some(neighbour) = neighbour_of(&resolved, before) else {
                    tracing::debug!(name = printable(&resolved.fullname), "a discovery service that cannot be used");
                    return None;
                };
                if before == Some(&neighbour) {
                    return None;
                }
                if before.is_none() && self.services.len() >= SERVICES_MAX {
                    if !std::mem::replace(&mut self.has_told_too_many, true) {
                        tracing::warn!(max = SERVICES_MAX, "there are more discovery services here: they are not used");
                    }
                    return None;
                }
                self.services.insert(resolved.fullname, neighbour.clone());
                Some(Sighting::There(neighbour))
            }
            ServiceEvent::ServiceRemoved(_, fullname) => {
                self.services.remove(&fullname).map(|gone| Sighting::Gone(gone.name))
            }
            _ => None,
        }
    }
}

/// What can be used of an answer; of its addresses the one that was used before, if it still has
/// it.
fn neighbour_of(resolved: &ResolvedService, before: Option<&Neighbour>) -> Option<Neighbour> {
    let name = printable(resolved.fullname.strip_suffix(SERVICE)?.trim_end_matches('.'));
    let text = |key| resolved.txt_properties.get(key).and_then(|property| property.val());
    // TP8009: without it, it is TCP.
    let said = match text(TRANSPORT_KEY) {
        None => "tcp",
        Some(value) => std::str::from_utf8(value).ok()?,
    };
    let (transport, _) = TRANSPORTS.iter().find(|(_, known)| known.eq_ignore_ascii_case(said))?;
    let nqn = match text(NQN_KEY) {
        None | Some([]) => None,
        Some(value) => Some(Nqn::parse(std::str::from_utf8(value).ok()?).ok()?),
    };
    let nqn = nqn.filter(|nqn| *nqn != Nqn::discovery());
    let mut addresses: Vec<(u8, String)> = resolved.addresses.iter().filter_map(address_of).collect();
    addresses.sort();
    let used = before.filter(|before| addresses.iter().any(|(_, address)| *address == before.address));
    let address = used.map(|used| used.address.clone()).or_else(|| addresses.into_iter().next().map(|(_, it)| it))?;
    let port = Some(resolved.port).filter(|&port| port != 0)?;
    Some(Neighbour { name, transport: (*transport).to_owned(), address, port, nqn })
}

/// An address that somebody else can have, and how much later than others it is taken.
fn address_of(scoped: &ScopedIp) -> Option<(u8, String)> {
    let address = scoped.to_ip_addr().to_canonical();
    if address.is_unspecified() || address.is_multicast() || address.is_loopback() {
        return None;
    }
    match (address, scoped) {
        (IpAddr::V4(address), _) if address.is_broadcast() => None,
        (IpAddr::V4(address), _) => Some((if address.is_link_local() { 2 } else { 0 }, address.to_string())),
        (IpAddr::V6(address), ScopedIp::V6(scoped)) if is_link_local(address) => {
            let interface = &scoped.scope_id().name;
            // Without an interface, nobody knows where it is.
            (!interface.is_empty()).then(|| (3, format!("{address}%{interface}")))
        }
        (IpAddr::V6(address), _) => (!is_link_local(address)).then(|| (1, address.to_string())),
    }
}

const fn is_link_local(address: Ipv6Addr) -> bool {
    address.segments()[0] & 0xffc0 == 0xfe80
}

/// A name without what a terminal would obey.
fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mdns_sd::ServiceInfo;

    fn resolved(name: &str, addresses: &str, port: u16, texts: &[(&str, &str)]) -> ServiceEvent {
        let info = ServiceInfo::new(SERVICE, name, "h.local.", addresses, port, texts).unwrap();
        ServiceEvent::ServiceResolved(Box::new(info.as_resolved_service()))
    }

    fn gone(name: &str) -> ServiceEvent {
        ServiceEvent::ServiceRemoved(SERVICE.to_owned(), format!("{name}.{SERVICE}"))
    }

    fn there(name: &str, transport: &str, address: &str, nqn: Option<&str>) -> Option<Sighting> {
        let nqn = nqn.map(|nqn| Nqn::parse(nqn).unwrap());
        let (name, transport, address) = (name.to_owned(), transport.to_owned(), address.to_owned());
        Some(Sighting::There(Neighbour { name, transport, address, port: 8009, nqn }))
    }

    #[test]
    fn services_are_seen_to_come_change_and_go() {
        let mut known = Known::default();
        let nqn = "nqn.2014-08.org.example:discovery";
        let first = || resolved("one", "192.0.2.1,2001:db8::1", 8009, &[("p", "tcp"), ("nqn", nqn)]);
        assert_eq!(known.hear(first()), there("one", "tcp", "192.0.2.1", Some(nqn)));
        assert_eq!(known.hear(first()), None, "no news");
        // A service that gets more addresses stays where it is.
        let more = resolved("one", "192.0.2.0,192.0.2.1", 8009, &[("p", "tcp"), ("nqn", nqn)]);
        assert_eq!(known.hear(more), None);
        let moved = resolved("one", "2001:db8::1", 8009, &[("p", "tcp"), ("nqn", nqn)]);
        assert_eq!(known.hear(moved), there("one", "tcp", "2001:db8::1", Some(nqn)));
        let plain = resolved("two", "192.0.2.2", 8009, &[("nqn", "nqn.2014-08.org.nvmexpress.discovery")]);
        assert_eq!(known.hear(plain), there("two", "tcp", "192.0.2.2", None));
        assert_eq!(
            known.hear(resolved("r", "192.0.2.3", 8009, &[("P", "RoCE")])),
            there("r", "rdma", "192.0.2.3", None)
        );
        assert_eq!(known.hear(gone("one")), Some(Sighting::Gone("one".to_owned())));
        assert_eq!((known.hear(gone("one")), known.hear(gone("other"))), (None, None));
    }

    // @test host.mdns-bounds
    #[test]
    fn what_cannot_be_used_is_not_seen() {
        let mut known = Known::default();
        let long = format!("nqn.2014-08.org.example:{}", "x".repeat(220));
        for event in [
            resolved("a", "192.0.2.1", 0, &[]),
            resolved("a", "0.0.0.0", 8009, &[]),
            resolved("a", "127.0.0.1,::1,224.0.0.251,255.255.255.255,ff02::fb,::", 8009, &[]),
            resolved("a", "fe80::1", 8009, &[]),
            resolved("a", "192.0.2.1", 8009, &[("p", "udp")]),
            resolved("a", "192.0.2.1", 8009, &[("nqn", "a b\n")]),
            resolved("a", "192.0.2.1", 8009, &[("nqn", &long)]),
        ] {
            let text = format!("{event:?}");
            assert_eq!(known.hear(event), None, "{text}");
        }
    }

    // @test host.mdns-bounds
    #[test]
    fn a_flood_of_services_is_bounded() {
        let mut known = Known::default();
        let seen = (0..1000).filter_map(|n| known.hear(resolved(&format!("s{n}\u{1b}[31m"), "192.0.2.1", 8009, &[])));
        let seen: Vec<Sighting> = seen.collect();
        assert_eq!(seen.len(), SERVICES_MAX);
        assert!(seen.iter().all(|it| matches!(it, Sighting::There(it) if !it.name.contains('\u{1b}'))));
        // There is room again when one has gone.
        assert!(known.hear(gone("s0\u{1b}[31m")).is_some());
        assert!(known.hear(resolved("late", "192.0.2.1", 8009, &[])).is_some());
    }
}
