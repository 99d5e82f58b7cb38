//! nvme-cli 3's exclusions: what an administrator wants no program to connect by itself, in
//! `exclusions.conf` and `exclusions.conf.d/*.conf`.
//!
//! An entry excludes whatever has all of the values that it names. One that cannot be understood,
//! or that contradicts itself, excludes nothing, as with nvme-cli, and is told.

use std::net::IpAddr;
use std::path::Path;

use ebof_manage::{Diagnostics, Message, Severity};
use ebof_nvme::uri::Transport;

use super::ini::{self, Says, rows};
use super::{read_dropins, read_if_there};
use crate::verbs::fabric::same_host;

/// The keys of an entry.
const KEYS: [&str; 8] = ["transport", "traddr", "trsvcid", "nqn", "host-traddr", "host-iface", "hostnqn", "hostid"];

/// Their number.
const COUNT: usize = KEYS.len();

/// Those that are addresses.
const ADDRESSES: [usize; 2] = [1, 4];

/// The most entries of all files.
const ENTRIES_MAX: usize = 4096;

/// What one connection is, in the order of [`KEYS`]; empty for what it does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity([String; COUNT]);

impl Identity {
    pub(crate) fn new(values: [&str; COUNT]) -> Self {
        let mut identity = Self(values.map(str::to_owned));
        for at in ADDRESSES {
            identity.0[at] = same_host(&identity.0[at]);
        }
        identity.0[7].make_ascii_lowercase();
        identity
    }

    fn is_excluded_by(&self, entry: &Self) -> bool {
        // An address without a network is meant on each.
        let is_same = |(at, (wanted, own)): (usize, (&String, &String))| {
            let address = own.split_once('%').map(|(address, _)| address).filter(|_| ADDRESSES.contains(&at));
            wanted.is_empty() || wanted == own || address == Some(wanted)
        };
        entry.0.iter().zip(&self.0).enumerate().all(is_same)
    }
}

/// The exclusions of a machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exclusions {
    /// Each with its place.
    entries: Vec<(String, Identity)>,
}

impl Exclusions {
    /// Reads those below `nvme` (`/etc/nvme`), and what is wrong with them.
    pub(crate) fn read(nvme: &Path) -> (Self, Vec<anyhow::Error>) {
        let mut all = Self::default();
        let mut wrong = Vec::new();
        let main = nvme.join("exclusions.conf");
        let mut files = vec![main.clone()];
        match read_dropins(&main) {
            Ok(dropins) => files.extend(dropins),
            Err(error) => wrong.push(error),
        }
        for path in files {
            match read_if_there(&path, "the exclusions") {
                Ok(Some(text)) => {
                    let found = all.add(&path, &text);
                    if !found.is_empty() {
                        wrong.push(found.into());
                    }
                }
                Ok(None) => {}
                Err(error) => wrong.push(error),
            }
        }
        (all, wrong)
    }

    fn add(&mut self, path: &Path, text: &str) -> Diagnostics {
        let name = path.display().to_string();
        let mut messages = Vec::new();
        let mut is_inside = false;
        for row in rows(text) {
            let message = |text: &str, help: &str| Message {
                severity: Severity::Error,
                span: row.span.clone(),
                text: text.to_owned(),
                help: help.to_owned(),
            };
            match row.says {
                Says::Section(section) => is_inside = section == "exclusions",
                Says::Wrong => {
                    is_inside &= !text[row.span.clone()].starts_with('[');
                    messages.push(message("this is neither a section nor an entry", ACCEPTED));
                }
                Says::Pair("exclusion", _) if !is_inside => {
                    let help = "write [exclusions] above it";
                    messages.push(message("this entry is in no section [exclusions], and excludes nothing", help));
                }
                Says::Pair("exclusion", _) if self.entries.len() == ENTRIES_MAX => {
                    let text =
                        format!("there are more than {ENTRIES_MAX} exclusions: this one and the rest have no effect");
                    messages.push(message(&text, "exclude a whole subsystem with nqn=NQN"));
                    break;
                }
                Says::Pair("exclusion", value) => match entry(text, value) {
                    Ok(entry) => self.entries.push((format!("{name}:{}", row.line), entry)),
                    Err((span, problem, help)) => messages
                        .push(Message { span, ..message(&format!("{problem}: this entry excludes nothing"), help) }),
                },
                // Of other sections, which are for later versions.
                Says::Pair(..) if !is_inside => {}
                Says::Pair(key, _) => {
                    let text = format!("`{key}` is not understood here");
                    messages.push(Message { severity: Severity::Warning, ..message(&text, ACCEPTED) });
                }
            }
        }
        Diagnostics::about(&name, text, messages, &[])
    }

    /// The place of the entry that excludes a connection.
    pub(crate) fn place_of(&self, connection: &Identity) -> Option<&str> {
        let entry = self.entries.iter().find(|(_, entry)| connection.is_excluded_by(entry));
        entry.map(|(place, _)| place.as_str())
    }
}

/// How an entry looks.
const ACCEPTED: &str = "accepted: exclusion = KEY=VALUE;KEY=VALUE... with transport, traddr, trsvcid, nqn, \
                        host-traddr, host-iface, hostnqn, hostid";

/// What is wrong with an entry, where, and what helps.
type Problem = (std::ops::Range<usize>, String, &'static str);

fn entry(text: &str, value: &str) -> Result<Identity, Problem> {
    let whole = ini::span_of(text, value);
    let mut values = [""; COUNT];
    for pair in ini::pairs(text, value) {
        let (key, value) = pair.map_err(|span| (span, "this is no KEY=VALUE".to_owned(), ACCEPTED))?;
        let of_key = || ini::span_of(text, key);
        let Some(at) = KEYS.iter().position(|known| *known == key) else {
            return Err((of_key(), format!("there is no key `{key}`"), ACCEPTED));
        };
        if value.is_empty() {
            return Err((of_key(), format!("`{key}` has no value"), "leave it out: what is not named is not compared"));
        }
        if !values[at].is_empty() && values[at] != value {
            let message = format!("`{key}` is both `{}` and `{value}`, which no connection is", values[at]);
            return Err((of_key(), message, "write an entry for each"));
        }
        values[at] = value;
    }
    if values.iter().all(|value| value.is_empty()) {
        return Err((whole, "it names nothing".to_owned(), ACCEPTED));
    }
    check(&values).map_err(|(message, help)| (whole, message, help))?;
    Ok(Identity::new(values))
}

/// Refuses what no connection can be.
fn check(values: &[&str; COUNT]) -> Result<(), (String, &'static str)> {
    let [transport, traddr, trsvcid, nqn, host_traddr, host_iface, ..] = *values;
    if !transport.is_empty()
        && Transport::from_name(transport).is_none()
        && !["fc", "loop", "pcie"].contains(&transport)
    {
        return Err((format!("there is no transport `{transport}`"), "accepted: tcp, rdma, fc, loop"));
    }
    if !host_iface.is_empty() && !transport.is_empty() && transport != "tcp" {
        let message = format!("`host-iface` is of TCP, and the transport is {transport}");
        return Err((message, "leave one of them out"));
    }
    let family = |text: &str| text.parse::<IpAddr>().ok().map(|address| address.is_ipv4());
    if let (Some(target), Some(host)) = (family(traddr), family(host_traddr))
        && target != host
    {
        return Err(("`traddr` and `host-traddr` are addresses of IPv4 and IPv6".to_owned(), "leave one of them out"));
    }
    if !trsvcid.is_empty() && trsvcid.parse::<u16>().is_err() && ["tcp", "rdma"].contains(&transport) {
        return Err((format!("`trsvcid` is {trsvcid}, which is no port"), "accepted: 1 to 65535"));
    }
    if !nqn.is_empty() && ebof_nvme::Nqn::parse(nqn).is_err() {
        return Err((format!("`nqn` is {nqn}, which is no NQN"), "write the whole name: there are no patterns"));
    }
    Ok(())
}

/// What is said of a connection that is not made.
pub(crate) fn reason(place: &str) -> String {
    format!("left alone: {place} excludes it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Exclusions, Diagnostics) {
        let mut all = Exclusions::default();
        let wrong = all.add(Path::new("e.conf"), text);
        (all, wrong)
    }

    fn connection(traddr: &str, trsvcid: &str, nqn: &str) -> Identity {
        Identity::new(["tcp", traddr, trsvcid, nqn, "", "", "nqn.2014-08.org.example:h", ""])
    }

    // @test host.exclusions
    #[test]
    fn what_has_all_values_of_an_entry_is_excluded() {
        let text = "[exclusions]\nexclusion = transport=tcp;traddr=fd00::1;trsvcid=4420\n\
                    exclusion = nqn=nqn.2014-08.org.example:old\nexclusion = host-iface=eth3\n\
                    exclusion = hostnqn=nqn.2014-08.org.example:other;traddr=192.0.2.1\n\
                    [later]\nsomething = else\n";
        let (all, wrong) = read(text);
        assert!(wrong.is_empty(), "{wrong:#}");
        let place =
            |it: &Identity| all.place_of(it).map(|place| place.rsplit(':').next().unwrap().parse::<u8>().unwrap());
        assert_eq!(place(&connection("fd00:0::1", "4420", "nqn.2014-08.org.example:a")), Some(2));
        assert_eq!(place(&connection("fd00::1", "4421", "nqn.2014-08.org.example:a")), None);
        assert_eq!(place(&connection("192.0.2.1", "4420", "nqn.2014-08.org.example:old")), Some(3));
        assert_eq!(place(&connection("192.0.2.1", "4420", "nqn.2014-08.org.example:new")), None, "of another host");
        let mut through = connection("192.0.2.1", "4420", "nqn.2014-08.org.example:new");
        "eth3".clone_into(&mut through.0[5]);
        assert_eq!(place(&through), Some(4));
    }

    // @test host.exclusions
    #[test]
    fn link_local_addresses_are_excluded_on_the_network_that_is_named_or_on_all() {
        let (all, _) = read("[exclusions]\nexclusion = traddr=fe80:0::2\nexclusion = traddr=FE80::3%eth0\n");
        let is_excluded =
            |traddr: &str| all.place_of(&connection(traddr, "4420", "nqn.2014-08.org.example:a")).is_some();
        assert!(["fe80::2%eth0", "fe80::2", "FE80:0::2%eth1", "fe80::3%eth0"].map(is_excluded).iter().all(|it| *it));
        assert!(!["fe80::3%eth1", "fe80::3", "fe80::4%eth0"].map(is_excluded).iter().any(|it| *it));
    }

    // @test host.exclusions
    #[test]
    fn entries_that_contradict_themselves_or_are_not_understood_are_told() {
        for (entry, column, message) in [
            ("traddr=192.0.2.1;traddr=192.0.2.2", 30, "`traddr` is both `192.0.2.1` and `192.0.2.2`"),
            ("transport=rdma;host-iface=eth0", 13, "`host-iface` is of TCP, and the transport is rdma"),
            ("traddr=192.0.2.1;host-traddr=fd00::1", 13, "`traddr` and `host-traddr` are addresses of IPv4 and IPv6"),
            ("transport=tcp;trsvcid=x", 13, "`trsvcid` is x"),
            ("subsysnqn=nqn.2014-08.org.example:a", 13, "there is no key `subsysnqn`"),
            ("traddr=", 13, "`traddr` has no value"),
            ("transport=quic", 13, "there is no transport `quic`"),
            (";;", 13, "it names nothing"),
            ("", 1, "it names nothing"),
            ("word", 13, "this is no KEY=VALUE"),
        ] {
            let (all, wrong) = read(&format!("[exclusions]\nexclusion = {entry}\n"));
            assert!(all.entries.is_empty(), "{entry}");
            let item = &wrong.items[0];
            assert!(item.message.starts_with(message) && item.message.ends_with("excludes nothing"), "{item:?}");
            assert_eq!(item.line, 2, "{item:?}");
            if !entry.is_empty() {
                assert_eq!(item.column, column, "{item:?}");
            }
        }
        let (all, wrong) = read(
            "exclusion = nqn=nqn.2014-08.org.example:a\n[exclusions\nexclusion = nqn=nqn.b\nword\n[exclusions]\ncolour = 1\n",
        );
        let lines: Vec<_> = wrong.items.iter().map(|item| (item.severity, item.line)).collect();
        use Severity::{Error, Warning};
        assert_eq!((all.entries.len(), lines), (0, vec![(Error, 1), (Error, 2), (Error, 3), (Error, 4), (Warning, 6)]));
        let many = format!("[exclusions]\n{}", "exclusion = traddr=192.0.2.1\n".repeat(ENTRIES_MAX + 9));
        let (all, wrong) = read(&many);
        assert_eq!((all.entries.len(), wrong.items.len()), (ENTRIES_MAX, 1));
    }
}
