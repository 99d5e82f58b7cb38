//! The address that a port listens on: `tcp://ADDR:PORT`, `rdma://ADDR:PORT` or `vfio-user:PATH`.
//!
//! Knows which transports there are and which of them this build serves. Resolves nothing: a host
//! name is refused here, and a caller that wants one resolves it first.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Serialize, Serializer};
use thiserror::Error;

/// The port that IANA assigned to NVMe over Fabrics.
pub const DEFAULT_PORT: u16 = 4420;

/// How hosts reach a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transport {
    /// NVMe/TCP.
    Tcp,
    /// NVMe/RDMA.
    Rdma,
    /// A PCI function for a virtual machine, over vfio-user.
    VfioUser,
}

impl Transport {
    /// As it is written before `://`, or before `:` and a path.
    #[must_use]
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Rdma => "rdma",
            Self::VfioUser => "vfio-user",
        }
    }

    /// As a person calls it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Rdma => "RDMA",
            Self::VfioUser => "vfio-user",
        }
    }
}

/// An address to listen on, written `tcp://127.0.0.1:4420`, `tcp://[::1]:4420` or, for a link-local
/// address, `tcp://[fe80::1%eth0]:4420`; over RDMA, with `rdma://` in front. A virtual machine
/// reaches a socket in the file system, written `vfio-user:/run/ebof/direct1.sock`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Listen {
    /// The transport. Ports over TCP and RDMA do not share port numbers: one of each may have the
    /// same address and number.
    pub transport: Transport,
    /// The IP address; an unspecified one (`0.0.0.0`, `[::]`) listens on all.
    pub address: IpAddr,
    /// The interface of a link-local IPv6 address, by name or index.
    pub interface: Option<String>,
    /// The port number; 0 lets the system choose one.
    pub port: u16,
    /// The path of the socket, for vfio-user; address and port mean nothing then.
    pub socket: Option<PathBuf>,
}

/// Bytes of the path of a socket (`sun_path`, with its end).
const SOCKET_PATH_MAX: usize = 107;

/// The error of an invalid address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ListenError {
    /// No transport in front.
    #[error("`{text}` has no transport in front")]
    NoScheme {
        /// The whole text.
        text: String,
    },
    /// A transport that ebof knows and this build does not serve.
    #[error("`{scheme}` is a transport that this build does not serve")]
    Unserved {
        /// Its name.
        scheme: &'static str,
    },
    /// Something else in front.
    #[error("`{scheme}` is not a transport")]
    UnknownScheme {
        /// The text before the colon.
        scheme: String,
    },
    /// A name instead of an address.
    #[error("`{name}` is a host name, and a port listens on an IP address")]
    HostName {
        /// The transport before it.
        transport: Transport,
        /// The name.
        name: String,
        /// The port that was given with it, or the usual one.
        port: u16,
    },
    /// Not an address.
    #[error("`{text}` is not an IP address")]
    Address {
        /// The text in place of the address.
        text: String,
    },
    /// An IPv6 address without brackets.
    #[error("the IPv6 address `{text}` needs brackets")]
    Brackets {
        /// The transport before it.
        transport: Transport,
        /// The address.
        text: String,
    },
    /// An interface where none can be.
    #[error("only a link-local IPv6 address (fe80::/10) takes an interface")]
    Interface,
    /// Not a port number.
    #[error("`{text}` is not a port number")]
    Port {
        /// The text in place of the port.
        text: String,
    },
    /// A path that no socket can have.
    #[error("`{path}` cannot be the path of a socket")]
    Path {
        /// The path.
        path: String,
    },
    /// Something behind the address.
    #[error("nothing may follow the address, and `{text}` does")]
    Trailing {
        /// The text after it.
        text: String,
    },
}

impl ListenError {
    /// The correction.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            // Report also what would be wrong once the transport is added.
            Self::NoScheme { text } if !text.is_empty() => {
                let whole = format!("tcp://{text}");
                whole.parse::<Listen>().map_or_else(|error| error.advice(), |_legal| format!("write \"{whole}\""))
            }
            Self::NoScheme { .. } | Self::Address { .. } | Self::UnknownScheme { .. } | Self::Trailing { .. } => {
                "accepted: tcp://ADDRESS:PORT or rdma://ADDRESS:PORT, such as \"tcp://127.0.0.1:4420\" or \
                 \"tcp://[::1]:4420\", and vfio-user:PATH"
                    .into()
            }
            Self::Unserved { .. } => "accepted: tcp://ADDRESS:PORT, rdma://ADDRESS:PORT or vfio-user:PATH".into(),
            Self::Path { .. } => format!("accepted: vfio-user:PATH, where PATH has 1 to {SOCKET_PATH_MAX} bytes"),
            // No other machine reaches what is on 127.0.0.1, and RDMA is for other machines.
            Self::HostName { transport: Transport::Tcp, name, port } if name == "localhost" => {
                format!("write \"tcp://127.0.0.1:{port}\"")
            }
            Self::HostName { transport, port, .. } => {
                let scheme = transport.scheme();
                format!("write its IP address, or \"{scheme}://0.0.0.0:{port}\" for all addresses of this machine")
            }
            Self::Brackets { transport, text } => {
                let scheme = transport.scheme();
                match port_behind(text) {
                    Some((address, port)) => format!(
                        "write \"{scheme}://[{address}]:{port}\", or \"{scheme}://[{text}]:4420\" if all of it is \
                         the address"
                    ),
                    None => format!("write \"{scheme}://[{text}]:4420\""),
                }
            }
            Self::Interface => "leave out `%` and what follows it".into(),
            Self::Port { .. } => "accepted: 0 to 65535, 4420 when left out".into(),
        }
    }
}

impl ListenError {
    /// The same about an address with this transport and port.
    fn about(self, transport: Transport, port: u16) -> Self {
        match self {
            Self::HostName { name, .. } => Self::HostName { transport, name, port },
            Self::Brackets { text, .. } => Self::Brackets { transport, text },
            error => error,
        }
    }
}

/// The address and the port of what may be both without brackets: its last group is a decimal
/// number that is more likely a port than a part of an address.
fn port_behind(text: &str) -> Option<(&str, u16)> {
    let (address, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|&port| port >= 1000)?;
    address.parse::<Ipv6Addr>().ok()?;
    Some((address, port))
}

impl Listen {
    /// Listens on `address` and `port` over TCP.
    #[must_use]
    pub fn new(address: IpAddr, port: u16) -> Self {
        Self { transport: Transport::Tcp, address, interface: None, port, socket: None }
    }

    /// Listens on `address` and `port` over RDMA.
    #[must_use]
    pub fn rdma(address: IpAddr, port: u16) -> Self {
        Self { transport: Transport::Rdma, ..Self::new(address, port) }
    }

    /// The default: TCP port 4420 of the loopback interface.
    #[must_use]
    pub fn loopback() -> Self {
        Self::new(IpAddr::V4(Ipv4Addr::LOCALHOST), DEFAULT_PORT)
    }

    /// Listens for a virtual machine at the socket `path`.
    #[must_use]
    pub fn vfio_user(path: impl Into<PathBuf>) -> Self {
        let nowhere = Self::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        Self { transport: Transport::VfioUser, socket: Some(path.into()), ..nowhere }
    }

    /// Whether this listens on every address of the machine.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        self.address.is_unspecified()
    }

    /// Whether hosts of a network reach it.
    #[must_use]
    pub fn is_network(&self) -> bool {
        self.socket.is_none()
    }

    /// Whether it is the same place each time: not if the system chooses the port.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        self.port != 0 || self.socket.is_some()
    }

    /// Puts `base` in front of a relative path.
    pub(crate) fn rebase(&mut self, base: &Path) {
        if let Some(socket) = &mut self.socket
            && socket.is_relative()
        {
            *socket = base.join(&*socket);
        }
    }
}

impl FromStr for Listen {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Self, ListenError> {
        if let Some(path) = text.strip_prefix("vfio-user:") {
            // Some programs write it as they write addresses.
            let path = path.strip_prefix("//").unwrap_or(path);
            let legal = (1..=SOCKET_PATH_MAX).contains(&path.len()) && !path.contains('\0');
            return if legal { Ok(Self::vfio_user(path)) } else { Err(ListenError::Path { path: path.to_owned() }) };
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(match text.split_once(':').map(|(scheme, _)| scheme) {
                Some("unix") => ListenError::Unserved { scheme: "unix" },
                _ => ListenError::NoScheme { text: text.to_owned() },
            });
        };
        let transport = match scheme {
            "tcp" => Transport::Tcp,
            "rdma" => Transport::Rdma,
            "unix" => return Err(ListenError::Unserved { scheme: "unix" }),
            _ => return Err(ListenError::UnknownScheme { scheme: scheme.to_owned() }),
        };
        if let Some(at) = rest.find(['/', '?', '#']) {
            return Err(ListenError::Trailing { text: rest[at..].to_owned() });
        }
        let (address, port) = split_port(rest).map_err(|error| error.about(transport, DEFAULT_PORT))?;
        let port = match port {
            None => DEFAULT_PORT,
            Some(port) => parse_port(port)?,
        };
        let (address, interface) = parse_address(address).map_err(|error| error.about(transport, port))?;
        Ok(Self { transport, address, interface, port, socket: None })
    }
}

/// Splits `ADDR`, `ADDR:PORT`, `[ADDR]` and `[ADDR]:PORT`.
fn split_port(text: &str) -> Result<(&str, Option<&str>), ListenError> {
    if let Some(inner) = text.strip_prefix('[') {
        let Some((address, behind)) = inner.split_once(']') else {
            return Err(ListenError::Address { text: text.to_owned() });
        };
        if address.parse::<Ipv4Addr>().is_ok() {
            return Err(ListenError::Address { text: text.to_owned() });
        }
        return match behind.strip_prefix(':') {
            Some(port) => Ok((address, Some(port))),
            None if behind.is_empty() => Ok((address, None)),
            None => Err(ListenError::Trailing { text: behind.to_owned() }),
        };
    }
    // An unbracketed IPv6 address cannot be told from an address with a port.
    if text.matches(':').count() > 1 {
        return Err(match text.parse::<Ipv6Addr>() {
            Ok(_) => ListenError::Brackets { transport: Transport::Tcp, text: text.to_owned() },
            Err(_) => ListenError::Address { text: text.to_owned() },
        });
    }
    Ok(text.split_once(':').map_or((text, None), |(address, port)| (address, Some(port))))
}

pub(crate) fn parse_port(text: &str) -> Result<u16, ListenError> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let port = if digits { text.parse().ok() } else { None };
    port.ok_or_else(|| ListenError::Port { text: text.to_owned() })
}

/// An IP address, with the interface behind a `%` where it is link-local.
pub(crate) fn parse_address(text: &str) -> Result<(IpAddr, Option<String>), ListenError> {
    let (address, interface) = text.split_once('%').map_or((text, None), |(address, name)| (address, Some(name)));
    let parsed = match address.parse::<IpAddr>() {
        Ok(address) => address,
        // `1.2.3` and `1.2.3.4.5` are slips of the pen, not names.
        Err(_) if looks_like_name(address) => {
            let name = address.to_owned();
            return Err(ListenError::HostName { transport: Transport::Tcp, name, port: DEFAULT_PORT });
        }
        Err(_) => return Err(ListenError::Address { text: text.to_owned() }),
    };
    let Some(name) = interface else { return Ok((parsed, None)) };
    let link_local = matches!(parsed, IpAddr::V6(address) if address.is_unicast_link_local());
    // Linux: an interface name has at most 15 bytes.
    let legal = (1..=15).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
    if link_local && legal { Ok((parsed, Some(name.to_owned()))) } else { Err(ListenError::Interface) }
}

fn looks_like_name(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transport, address, interface, port, socket } = self;
        let scheme = transport.scheme();
        if let Some(socket) = socket {
            return write!(f, "{scheme}:{}", socket.display());
        }
        match (address, interface) {
            (IpAddr::V4(address), _) => write!(f, "{scheme}://{address}:{port}"),
            (IpAddr::V6(address), None) => write!(f, "{scheme}://[{address}]:{port}"),
            (IpAddr::V6(address), Some(interface)) => write!(f, "{scheme}://[{address}%{interface}]:{port}"),
        }
    }
}

impl Serialize for Listen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(text: &str) -> String {
        let error = text.parse::<Listen>().unwrap_err();
        format!("{error}; {}", error.advice())
    }

    #[test]
    fn addresses_round_trip() {
        for text in ["tcp://0.0.0.0:4420", "tcp://[::1]:8009", "tcp://[fe80::1%eth0]:4420", "tcp://10.0.0.1:0"]
            .into_iter()
            .chain(["rdma://0.0.0.0:4420", "rdma://[fe80::1%eth0]:4421"])
            .chain(["vfio-user:/run/x y.sock", "vfio-user:relative.sock"])
        {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
        }
        assert_eq!("tcp://10.0.0.1".parse::<Listen>().unwrap().port, 4420);
        assert_eq!("tcp://[::]".parse::<Listen>().unwrap().to_string(), "tcp://[::]:4420");
        assert!("tcp://[::]".parse::<Listen>().unwrap().is_wildcard());
    }

    #[test]
    fn each_refusal_says_what_to_write() {
        let form = "accepted: tcp://ADDRESS:PORT or rdma://ADDRESS:PORT, such as \"tcp://127.0.0.1:4420\" or \"tcp://[::1]:4420\", and vfio-user:PATH";
        for (text, expected) in [
            ("127.0.0.1:4420", "`127.0.0.1:4420` has no transport in front; write \"tcp://127.0.0.1:4420\""),
            ("", &format!("`` has no transport in front; {form}")),
            (
                "unix:/run/x",
                "`unix` is a transport that this build does not serve; \
                 accepted: tcp://ADDRESS:PORT, rdma://ADDRESS:PORT or vfio-user:PATH",
            ),
            (
                "vfio-user:",
                "`` cannot be the path of a socket; accepted: vfio-user:PATH, where PATH has 1 to 107 bytes",
            ),
            (
                "rdma://localhost",
                "`localhost` is a host name, and a port listens on an IP address; \
                 write its IP address, or \"rdma://0.0.0.0:4420\" for all addresses of this machine",
            ),
            ("rdma://::1", "the IPv6 address `::1` needs brackets; write \"rdma://[::1]:4420\""),
            ("http://10.0.0.1", &format!("`http` is not a transport; {form}")),
            (
                "tcp://localhost:4420",
                "`localhost` is a host name, and a port listens on an IP address; write \"tcp://127.0.0.1:4420\"",
            ),
            (
                "tcp://nas.example:4420",
                "`nas.example` is a host name, and a port listens on an IP address; \
                 write its IP address, or \"tcp://0.0.0.0:4420\" for all addresses of this machine",
            ),
            ("tcp://fe80::1", "the IPv6 address `fe80::1` needs brackets; write \"tcp://[fe80::1]:4420\""),
            ("tcp://10.0.0", &format!("`10.0.0` is not an IP address; {form}")),
            ("tcp://[10.0.0.1]:1", &format!("`[10.0.0.1]:1` is not an IP address; {form}")),
            ("tcp://10.0.0.1:70000", "`70000` is not a port number; accepted: 0 to 65535, 4420 when left out"),
            ("tcp://10.0.0.1:", "`` is not a port number; accepted: 0 to 65535, 4420 when left out"),
            ("tcp://10.0.0.1:+1", "`+1` is not a port number; accepted: 0 to 65535, 4420 when left out"),
            ("tcp://10.0.0.1/nqn", &format!("nothing may follow the address, and `/nqn` does; {form}")),
            (
                "tcp://[2001:db8::1%eth0]",
                "only a link-local IPv6 address (fe80::/10) takes an interface; leave out `%` and what follows it",
            ),
        ] {
            assert_eq!(message(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_address_round_trips(
            bytes in any::<[u8; 16]>(), four in any::<bool>(), rdma in any::<bool>(), port in any::<u16>()
        ) {
            let v4 = IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]]);
            let address = if four { v4 } else { IpAddr::from(bytes) };
            let listen = if rdma { Listen::rdma(address, port) } else { Listen::new(address, port) };
            prop_assert_eq!(listen.to_string().parse::<Listen>().unwrap(), listen);
        }

        #[test]
        fn no_text_panics(text in "((tcp|rdma)://)?[\\[\\]:%0-9a-z./é]*") {
            let _ = text.parse::<Listen>();
        }
    }
}
