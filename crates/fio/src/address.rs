//! Parses a file name of fio, which is the address of a namespace.
//!
//! fio splits `filename` at colons, except for `\:`. A URI is written with these, or in the
//! engine's option `uri`, where colons need no backslash; or its parts are named as in
//! `traddr=127.0.0.1 nqn=... ns=1`.

use std::fmt;

use ebof_initiator::split_paths;
use ebof_nvme::uri::{Transport, Uri};
use ebof_nvme::{Nqn, Nsid};

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamespaceAddress {
    pub(crate) transport: Transport,
    pub(crate) traddr: String,
    pub(crate) trsvcid: u16,
    pub(crate) nqn: Nqn,
    pub(crate) nsid: Nsid,
}

/// Why a file name is not the address of a namespace, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddressError(String);

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

const FORMS: &str = "write --filename='nvme+tcp\\://HOST\\:PORT/NQN/NSID' with a backslash before every colon, also those of the NQN, \
    or --uri=nvme+tcp://HOST:PORT/NQN/NSID without, \
    or --filename='traddr=HOST trsvcid=PORT nqn=NQN ns=NSID' with a backslash before colons";

impl NamespaceAddress {
    /// The paths in the option `uri`, or else in `name`: at least one. With `uri`, the name is only
    /// a label.
    pub(crate) fn find(name: &str, uri: Option<&str>) -> Result<Vec<Self>, AddressError> {
        if Uri::looks_like(name) {
            return Self::of_uris(name);
        }
        if name.contains("%3A") || name.contains("%3a") {
            let name = name.replace("%3A", ":").replace("%3a", ":");
            if Uri::looks_like(&name) {
                return Self::of_uris(&name);
            }
        }
        if name.split([' ', '\t', ',']).any(|word| word.starts_with("traddr=")) {
            return Ok(vec![Self::of_words(name)?]);
        }
        if let Some(uri) = uri {
            return Self::of_uris(uri);
        }
        if matches!(name, "nvme+tcp" | "nvme+rdma") || name.starts_with("//") {
            return Err(AddressError(format!(
                "fio divided the file name at its colons, and {name:?} is left of it: {FORMS}"
            )));
        }
        Err(AddressError(format!("the file name {name:?} says no namespace: {FORMS}")))
    }

    /// Several URIs of one namespace are its paths.
    fn of_uris(text: &str) -> Result<Vec<Self>, AddressError> {
        let paths = split_paths(text).map(Self::of_uri).collect::<Result<Vec<_>, _>>()?;
        let is_same = |path: &Self| path.nqn == paths[0].nqn && path.nsid == paths[0].nsid;
        match paths.iter().find(|path| !is_same(path)) {
            None => Ok(paths),
            Some(other) => Err(AddressError(format!(
                "{text:?} names two namespaces, {}/{} and {}/{}: URIs with a comma between them are paths to one; \
                 fio's file names have a colon between them",
                paths[0].nqn, paths[0].nsid, other.nqn, other.nsid
            ))),
        }
    }

    fn of_uri(text: &str) -> Result<Self, AddressError> {
        let uri =
            Uri::parse(text).map_err(|error| AddressError(format!("{text:?} is no URI of a namespace: {error}")))?;
        let no_nqn =
            || AddressError(format!("{text:?} names no subsystem: a namespace is nvme+tcp://HOST:PORT/NQN/NSID"));
        Ok(Self {
            transport: uri.transport,
            traddr: uri.traddr,
            trsvcid: uri.trsvcid,
            nqn: uri.nqn.ok_or_else(no_nqn)?,
            nsid: uri.nsid.unwrap_or(Nsid(1)),
        })
    }

    /// Parses words like nvme-cli's options and SPDK's transport identifiers.
    fn of_words(text: &str) -> Result<Self, AddressError> {
        let wrong = |word: &str, want: &str| AddressError(format!("{word:?} in the file name {text:?}: {want}"));
        let mut transport = Transport::Tcp;
        let mut traddr = None;
        let mut trsvcid = Uri::DEFAULT_PORT;
        let mut nqn = None;
        let mut nsid = Nsid(1);
        for word in text.split([' ', '\t', ',']).filter(|word| !word.is_empty()) {
            let (key, value) = word.split_once('=').ok_or_else(|| wrong(word, "want KEY=VALUE"))?;
            let value = value.replace("%3A", ":").replace("%3a", ":");
            match key {
                "traddr" => traddr = Some(value),
                "trsvcid" => {
                    let port = value.parse().ok().filter(|&port| port != 0);
                    trsvcid = port.ok_or_else(|| wrong(word, "want a port from 1 to 65535"))?;
                }
                "nqn" | "subnqn" => nqn = Some(Nqn::parse(&value).map_err(|error| wrong(word, &error.to_string()))?),
                "ns" | "nsid" => {
                    let id = value.parse().ok().map(Nsid).filter(|id| id.names_one());
                    nsid = id.ok_or_else(|| wrong(word, "want a namespace from 1 to 4294967294"))?;
                }
                "trtype" => {
                    let named = Transport::from_name(&value.to_ascii_lowercase());
                    transport = named.ok_or_else(|| wrong(word, "only tcp and rdma are supported"))?;
                }
                "adrfam" => {}
                _ => {
                    return Err(wrong(
                        word,
                        "the keys are trtype, adrfam, traddr, trsvcid, nqn (or subnqn) and ns (or nsid)",
                    ));
                }
            }
        }
        let missing = |what| AddressError(format!("the file name {text:?} has no {what}: {FORMS}"));
        let traddr = traddr.filter(|text| !text.is_empty()).ok_or_else(|| missing("traddr"))?;
        Ok(Self { transport, traddr, trsvcid, nqn: nqn.ok_or_else(|| missing("nqn"))?, nsid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URI: &str = "nvme+tcp://127.0.0.1:4421/nqn.2014-08.org.example:drive0/3";

    fn fail(name: &str) -> String {
        NamespaceAddress::find(name, None).unwrap_err().to_string()
    }

    #[test]
    fn all_forms_mean_the_same() {
        let find = |name: &str, uri| NamespaceAddress::find(name, uri).map(|paths| paths[0].clone());
        let address = find(URI, None).unwrap();
        assert_eq!((address.traddr.as_str(), address.trsvcid, address.nsid), ("127.0.0.1", 4421, Nsid(3)));
        assert_eq!(address.nqn.as_str(), "nqn.2014-08.org.example:drive0");
        for same in [
            "trtype=TCP adrfam=IPv4 traddr=127.0.0.1 trsvcid=4421 subnqn=nqn.2014-08.org.example:drive0 ns=3",
            "traddr=127.0.0.1,trsvcid=4421,nqn=nqn.2014-08.org.example%3Adrive0,nsid=3",
            "nvme+tcp%3A//127.0.0.1%3A4421/nqn.2014-08.org.example%3Adrive0/3",
        ] {
            assert_eq!(find(same, None).unwrap(), address, "{same}");
        }
        assert_eq!(find("readers.0.0", Some(URI)).unwrap(), address);
        let rdma = NamespaceAddress { transport: Transport::Rdma, ..address.clone() };
        for same in [
            "nvme+rdma://127.0.0.1:4421/nqn.2014-08.org.example:drive0/3",
            "trtype=RDMA traddr=127.0.0.1 trsvcid=4421 nqn=nqn.2014-08.org.example:drive0 ns=3",
        ] {
            assert_eq!(find(same, None).unwrap(), rdma, "{same}");
        }
        let other = URI.replace("drive0/3", "drive1");
        let found = find(&other, Some(URI)).unwrap();
        assert_eq!((found.nqn.as_str(), found.nsid), ("nqn.2014-08.org.example:drive1", Nsid(1)));
    }

    #[test]
    fn uris_with_a_comma_between_them_are_paths_to_one_namespace() {
        let second = URI.replace("127.0.0.1:4421", "[::1]:4420");
        let both = format!("{URI},{second}");
        let addresses = |name: &str, uri| -> Vec<String> {
            let paths = NamespaceAddress::find(name, uri).unwrap();
            paths.into_iter().map(|path| format!("{} {} {}", path.traddr, path.trsvcid, path.nsid)).collect()
        };
        assert_eq!(addresses(&both, None), ["127.0.0.1 4421 3", "::1 4420 3"]);
        assert_eq!(addresses("job.0.0", Some(&both)).len(), 2);
        assert_eq!(addresses(&both.replace(':', "%3A"), None).len(), 2);
        for wrong in [second.replace("drive0", "drive1"), second.replace("/3", "/4")] {
            let error = fail(&format!("{URI},{wrong}"));
            assert!(error.contains("two namespaces") && error.contains("drive0/3"), "{error}");
        }
    }

    #[test]
    fn errors_name_what_is_wrong_and_list_the_forms() {
        assert!(fail("nvme+tcp").contains("divided the file name at its colons"));
        assert!(fail("//127.0.0.1").contains("backslash before every colon"));
        assert!(fail("job.0.0").contains("says no namespace"));
        assert!(fail("nvme+tcp://127.0.0.1:4420").contains("names no subsystem"));
        assert!(fail("nvme+tcp://127.0.0.1/nqn.2014-08.org.example:a/0").contains("no URI"));
        assert!(fail("traddr=127.0.0.1 ns=1").contains("has no nqn"));
        assert!(fail("traddr=127.0.0.1 trsvcid=0 nqn=nqn.2014-08.org.example:a").contains("\"trsvcid=0\""));
        assert!(fail("traddr=127.0.0.1 nqn=nqn.2014-08.org.example:a ns=0").contains("\"ns=0\""));
        assert!(fail("traddr=127.0.0.1 what=ever").contains("the keys are"));
        assert!(fail("traddr=127.0.0.1 trtype=fc").contains("only tcp and rdma"));
    }
}
