//! How a person names a remote controller or namespace in one word:
//! `nvme+tcp://192.168.13.147:4420/nqn.2014-08.org.example:drive0/1`.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;

use crate::name::id::Nsid;
use crate::name::nqn::{Nqn, NqnError};

/// A transport that a URI can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// NVMe/TCP.
    Tcp,
    /// NVMe/RDMA.
    Rdma,
}

impl Transport {
    /// The word that nvme-cli's `--transport` uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Rdma => "rdma",
        }
    }

    /// The transport of this [`Transport::name`]; `None` for others, which no URI can name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Tcp, Self::Rdma].into_iter().find(|transport| transport.name() == name)
    }

    /// Its name in texts: NVMe/TCP.
    #[must_use]
    pub const fn full_name(self) -> &'static str {
        match self {
            Self::Tcp => "NVMe/TCP",
            Self::Rdma => "NVMe/RDMA",
        }
    }
}

/// A parsed URI. The host part is kept as text: resolving names is the caller's.
///
/// ```
/// use ebof_nvme::{Nsid, uri::Uri};
///
/// let uri = Uri::parse("nvme+tcp://[2001:db8::1]/nqn.2014-08.org.example:drive0/1")?;
/// assert_eq!((uri.traddr.as_str(), uri.trsvcid, uri.nsid), ("2001:db8::1", 4420, Some(Nsid(1))));
/// # Ok::<(), ebof_nvme::uri::UriError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    /// The transport.
    pub transport: Transport,
    /// Host name or address, without the brackets of an IPv6 literal.
    pub traddr: String,
    /// Port (TRSVCID), 4420 when the URI names none.
    pub trsvcid: u16,
    /// The subsystem; `None` when the URI ends behind the address (the discovery subsystem is
    /// meant).
    pub nqn: Option<Nqn>,
    /// The namespace, when the URI names one.
    pub nsid: Option<Nsid>,
}

/// Why a text is not such a URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UriError {
    /// It starts neither with `nvme+tcp://` nor with `nvme+rdma://`.
    Scheme,
    /// No host in it, an IPv6 address whose bracket does not close, or a host that no name can be.
    Host,
    /// The port is not a number from 1 to 65535.
    Port,
    /// A percent sign that is not followed by two hexadecimal digits, or decodes to something that
    /// is not UTF-8.
    Percent,
    /// The NQN is not legal.
    Nqn(NqnError),
    /// The namespace is not a number from 1 to 4294967294.
    Nsid,
    /// Something follows the namespace.
    Trailing,
}

impl fmt::Display for UriError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheme => f.write_str("it must start with nvme+tcp:// or nvme+rdma://"),
            Self::Host => f.write_str("it names no host (IPv6 addresses stand in brackets: [fd00::1])"),
            Self::Port => f.write_str("the port must be a number from 1 to 65535"),
            Self::Percent => f.write_str("a percent sign must be followed by two hexadecimal digits of UTF-8"),
            Self::Nqn(error) => write!(f, "{error} (a slash inside an NQN is written %2F)"),
            Self::Nsid => f.write_str("the namespace behind the NQN must be a number from 1 to 4294967294"),
            Self::Trailing => f.write_str("something follows the namespace (a slash inside an NQN is written %2F)"),
        }
    }
}

impl core::error::Error for UriError {}

impl Uri {
    /// The port of NVMe over TCP and RDMA I/O controllers.
    pub const DEFAULT_PORT: u16 = 4420;

    /// Whether `text` looks like one of these URIs (so that errors of [`Uri::parse`] are worth
    /// showing).
    #[must_use]
    pub fn looks_like(text: &str) -> bool {
        text.contains("://")
    }

    /// Parses `nvme+tcp://HOST[:PORT][/NQN[/NSID]]`, or the same with `nvme+rdma`.
    ///
    /// # Errors
    /// Which part is wrong.
    pub fn parse(text: &str) -> Result<Self, UriError> {
        let (transport, rest) = if let Some(rest) = text.strip_prefix("nvme+tcp://") {
            (Transport::Tcp, rest)
        } else if let Some(rest) = text.strip_prefix("nvme+rdma://") {
            (Transport::Rdma, rest)
        } else {
            return Err(UriError::Scheme);
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (traddr, trsvcid) = authority_parts(authority)?;
        let mut parts = path.splitn(3, '/');
        let nqn = match parts.next().filter(|part| !part.is_empty()) {
            Some(part) => Some(Nqn::parse(&percent_decode(part)?).map_err(UriError::Nqn)?),
            None => None,
        };
        let nsid = match parts.next().filter(|part| !part.is_empty()) {
            Some(part) => Some(part.parse().ok().map(Nsid).filter(|nsid| nsid.names_one()).ok_or(UriError::Nsid)?),
            None => None,
        };
        if parts.next().is_some_and(|part| !part.is_empty()) {
            return Err(UriError::Trailing);
        }
        if nqn.is_none() && nsid.is_some() {
            return Err(UriError::Nqn(NqnError::Empty));
        }
        Ok(Self { transport, traddr: traddr.to_owned(), trsvcid, nqn, nsid })
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nvme+{}://", self.transport.name())?;
        if self.traddr.contains(':') {
            write!(f, "[{}]", self.traddr)?;
        } else {
            f.write_str(&self.traddr)?;
        }
        write!(f, ":{}", self.trsvcid)?;
        if let Some(nqn) = &self.nqn {
            f.write_str("/")?;
            for c in nqn.as_str().chars() {
                match c {
                    '/' => f.write_str("%2F")?,
                    '%' => f.write_str("%25")?,
                    c => write!(f, "{c}")?,
                }
            }
            if let Some(nsid) = self.nsid {
                write!(f, "/{nsid}")?;
            }
        }
        Ok(())
    }
}

fn authority_parts(authority: &str) -> Result<(&str, u16), UriError> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or(UriError::Host)?;
        match after.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if after.is_empty() => (host, None),
            None => return Err(UriError::Host),
        }
    } else {
        match authority.split_once(':') {
            Some((_, port)) if port.contains(':') => return Err(UriError::Host),
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        }
    };
    let odd = |c: char| matches!(c, '[' | ']') || c.is_control() || c.is_whitespace();
    if host.is_empty() || host.contains(odd) {
        return Err(UriError::Host);
    }
    let port = match port {
        Some(port) => port.parse().ok().filter(|&port| port != 0).ok_or(UriError::Port)?,
        None => Uri::DEFAULT_PORT,
    };
    Ok((host, port))
}

fn percent_decode(text: &str) -> Result<String, UriError> {
    let mut out = alloc::vec::Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16)).ok_or(UriError::Percent);
        let value = digit()? << 4 | digit()?;
        out.push(u8::try_from(value).map_err(|_| UriError::Percent)?);
    }
    String::from_utf8(out).map_err(|_| UriError::Percent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn a_namespace_uri_has_all_its_parts() {
        let uri = Uri::parse("nvme+tcp://192.168.13.147:4421/nqn.2014-08.org.example:drive0/3").unwrap();
        assert_eq!((uri.traddr.as_str(), uri.trsvcid, uri.nsid), ("192.168.13.147", 4421, Some(Nsid(3))));
        assert_eq!(uri.nqn.unwrap().as_str(), "nqn.2014-08.org.example:drive0");
    }

    #[test]
    fn parts_may_be_left_out() {
        let uri = Uri::parse("nvme+tcp://[fd00::1]").unwrap();
        assert_eq!((uri.traddr.as_str(), uri.trsvcid, uri.nqn, uri.nsid), ("fd00::1", 4420, None, None));
        assert_eq!(Uri::parse("nvme+rdma://host/a%2Fb/1").unwrap().nqn.unwrap().as_str(), "a/b");
    }

    #[test]
    fn each_invalid_part_is_reported() {
        for (text, error) in [
            ("tcp://x", UriError::Scheme),
            ("nvme+tcp:///x", UriError::Host),
            ("nvme+tcp://fd00::1/x", UriError::Host),
            ("nvme+tcp://[[]/x", UriError::Host),
            ("nvme+tcp://h]/x", UriError::Host),
            ("nvme+tcp://h h/x", UriError::Host),
            ("nvme+tcp://h//1", UriError::Nqn(NqnError::Empty)),
            ("nvme+tcp://h:0/x", UriError::Port),
            ("nvme+tcp://h/a%2/1", UriError::Percent),
            ("nvme+tcp://h/a/0", UriError::Nsid),
            ("nvme+tcp://h/a/b/1", UriError::Nsid),
            ("nvme+tcp://h/a/1/2", UriError::Trailing),
        ] {
            assert_eq!(Uri::parse(text), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn uris_round_trip(
            name in "tcp|rdma",
            host in "[a-z0-9.]{1,20}",
            port in 1u16..,
            nqn in "[a-z/%:.]{1,40}",
            nsid in 1u32..100,
        ) {
            let transport = Transport::from_name(&name).unwrap();
            let uri = Uri { transport, traddr: host, trsvcid: port, nqn: Some(Nqn::parse(&nqn).unwrap()), nsid: Some(Nsid(nsid)) };
            prop_assert_eq!(Uri::parse(&uri.to_string()).unwrap(), uri);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,60}") {
            let _ = Uri::parse(&text);
            let _ = Uri::parse(&alloc::format!("nvme+tcp://{text}"));
        }
    }
}
