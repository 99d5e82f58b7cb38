//! Telling the network where discovery services are.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use ebof_nvme::Nqn;
use mdns_sd::{Receiver, ServiceDaemon, ServiceInfo, UnregisterStatus};

use crate::{MdnsError, NQN_KEY, SERVICE, TRANSPORT_KEY, TRANSPORTS};

/// How long a farewell may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// Bytes of a name (RFC 1035, a label).
const LABEL_BYTES_MAX: usize = 63;

/// A discovery service, as it is told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Announcement {
    /// Its name on this network. Another one of that name has this one get a number.
    pub name: String,
    /// `tcp` or `rdma`.
    pub transport: String,
    /// Its address; `None`: all of this machine.
    pub address: Option<IpAddr>,
    /// Its port.
    pub port: u16,
    /// The NQN of the discovery subsystem.
    pub nqn: Nqn,
}

/// Tells of discovery services until it is dropped.
pub struct Announcer {
    daemon: ServiceDaemon,
    /// What is told, and its name in full.
    told: BTreeMap<Announcement, String>,
}

impl Announcer {
    /// Tells of nothing yet.
    ///
    /// # Errors
    /// The system has no sockets or threads for it.
    pub fn new() -> Result<Self, MdnsError> {
        Ok(Self { daemon: ServiceDaemon::new()?, told: BTreeMap::new() })
    }

    /// Tells of these from now on, and of no others. One that cannot be told is left out, with a
    /// line in the log.
    pub fn set(&mut self, wanted: &[Announcement]) {
        let gone: Vec<Announcement> = self.told.keys().filter(|told| !wanted.contains(told)).cloned().collect();
        let farewells: Vec<_> = gone.iter().filter_map(|gone| self.withdraw(gone)).collect();
        farewells.iter().for_each(await_farewell);
        for announcement in wanted {
            if self.told.contains_key(announcement) {
                continue;
            }
            match self.tell(announcement) {
                Ok(fullname) => {
                    tracing::info!(name = %announcement.name, port = announcement.port, "told by multicast DNS");
                    self.told.insert(announcement.clone(), fullname);
                }
                Err(error) => {
                    tracing::warn!(name = %announcement.name, %error, "multicast DNS does not tell of a port");
                }
            }
        }
    }

    /// Whether the thread that tells is there.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        // A full queue is one that somebody reads.
        !matches!(self.daemon.status(), Err(error) if !matches!(error, mdns_sd::Error::Again))
    }

    fn tell(&self, announcement: &Announcement) -> Result<String, mdns_sd::Error> {
        let info = info(announcement)?;
        let fullname = info.get_fullname().to_owned();
        self.daemon.register(info)?;
        Ok(fullname)
    }

    fn withdraw(&mut self, gone: &Announcement) -> Option<Receiver<UnregisterStatus>> {
        let fullname = self.told.remove(gone)?;
        self.daemon.unregister(&fullname).ok()
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        self.set(&[]);
        if let Ok(ended) = self.daemon.shutdown() {
            let _late = ended.recv_timeout(FAREWELL);
        }
    }
}

impl std::fmt::Debug for Announcer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Announcer").field("told", &self.told).finish_non_exhaustive()
    }
}

fn await_farewell(farewell: &Receiver<UnregisterStatus>) {
    // Whoever knows the service forgets it by itself, if later.
    let _late = farewell.recv_timeout(FAREWELL);
}

/// The records of a service.
fn info(announcement: &Announcement) -> Result<ServiceInfo, mdns_sd::Error> {
    let Announcement { name, transport, address, port, nqn } = announcement;
    let text = TRANSPORTS.iter().find(|(known, _)| known == transport).map_or("tcp", |(_, text)| text);
    let properties = [(TRANSPORT_KEY, text), (NQN_KEY, nqn.as_str())];
    // A host name of its own: the records of this machine's own name are somebody else's.
    let host = format!("{}.local.", host_label(name));
    let name = cut(name, LABEL_BYTES_MAX);
    let addresses: Vec<IpAddr> = address.iter().copied().collect();
    let info = ServiceInfo::new(SERVICE, name, &host, addresses.as_slice(), *port, &properties[..])?;
    Ok(if address.is_none() { info.enable_addr_auto() } else { info })
}

/// A label of a host's name: letters, digits and hyphens.
fn host_label(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let label: String = name.chars().map(plain).collect();
    // There is room for a number.
    let label = cut(&label, LABEL_BYTES_MAX - 8).trim_matches('-');
    if label.is_empty() { "nvme".to_owned() } else { label.to_owned() }
}

/// The beginning of a text, so many bytes at most.
fn cut(text: &str, bytes_max: usize) -> &str {
    let fits = |at: &usize| *at <= bytes_max;
    let end = text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(fits).last().unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announcement(name: &str) -> Announcement {
        Announcement {
            name: name.to_owned(),
            transport: "rdma".to_owned(),
            address: Some([192, 0, 2, 1].into()),
            port: 8009,
            nqn: Nqn::parse("nqn.2014-08.org.example:discovery").unwrap(),
        }
    }

    #[test]
    fn a_service_has_its_texts() {
        let info = info(&announcement("box7 fabric0")).unwrap();
        assert_eq!(info.get_fullname(), "box7 fabric0._nvme-disc._tcp.local.");
        assert_eq!(info.get_property_val_str("p"), Some("roce"));
        assert_eq!(info.get_property_val_str("nqn"), Some("nqn.2014-08.org.example:discovery"));
        assert_eq!((info.get_hostname(), info.get_port()), ("box7-fabric0.local.", 8009));
    }

    #[test]
    fn names_fit() {
        for (name, label) in [("Öl & more", "l---more"), ("...", "nvme"), (&"x".repeat(300), &"x".repeat(55))] {
            assert_eq!(host_label(name), label);
            info(&announcement(name)).unwrap();
        }
        assert_eq!([cut("äöü", 3), cut("äöü", 6), cut("", 1)], ["ä", "äöü", ""]);
    }
}
