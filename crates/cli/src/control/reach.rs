//! How a running target is reached: the arguments, and where they lead to.

use std::cell::OnceCell;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ebof_attach::state::StateDir;

use super::server::{Connection, Trust};
use super::{SERVICE_SOCKET, default_path, password};
use crate::failure::Failure;

/// The user name if none is given: that of a target's first account.
const USER: &str = "admin";

/// The port of a URL without one (RFC 9110, https).
const PORT: u16 = 443;

/// How a running target is reached.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Reach {
    /// The control socket of the target
    /// [default: control.sock in the state directory, /run/ebof for root]
    #[arg(long, value_name = "PATH", global = true)]
    control: Option<PathBuf>,
    /// Reach a target over the network, served with --https: <https://box.example.org:8443>
    #[arg(long, value_name = "URL", global = true, conflicts_with = "control")]
    server: Option<String>,
    /// The user name there [default: admin]
    #[arg(long, value_name = "NAME", global = true)]
    user: Option<String>,
    /// A file whose first line is the password [default: $`EBOF_PASSWORD`, or it is asked for]
    #[arg(long, value_name = "FILE", global = true)]
    password_file: Option<PathBuf>,
    /// Trust the certificate with this fingerprint, as the target prints it when it starts
    /// [default: the one that was trusted before]
    #[arg(long, value_name = "SHA256", global = true, conflicts_with = "ca")]
    fingerprint: Option<String>,
    /// Trust certificates that an authority of this PEM file has issued for the host
    #[arg(long, value_name = "FILE", global = true)]
    ca: Option<PathBuf>,
}

/// Where a target is.
#[derive(Debug)]
pub(crate) enum ControlAddress {
    Socket(PathBuf),
    Server(Box<Server>),
}

/// A target over the network.
#[derive(Debug)]
pub(crate) struct Server {
    host: String,
    port: u16,
    user: String,
    password_file: Option<PathBuf>,
    trust: Trust,
    /// Read when it is needed first.
    password: OnceCell<Secret>,
}

#[derive(Clone)]
struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Reach {
    /// Through the socket at `path`.
    pub(crate) fn socket(path: impl Into<PathBuf>) -> Self {
        Self { control: Some(path.into()), ..Self::default() }
    }

    /// The target at this URL, with the user, the password and the certificate that are given.
    pub(crate) fn server(self, url: &str) -> Self {
        Self { control: None, server: Some(url.to_owned()), ..self }
    }

    /// Whether a target is named.
    pub(crate) fn is_given(&self) -> bool {
        self.control.is_some() || self.server.is_some()
    }

    /// Whether anything about a target is given.
    pub(crate) fn is_given_at_all(&self) -> bool {
        let Self { user, password_file, fingerprint, ca, .. } = self;
        self.is_given() || user.is_some() || password_file.is_some() || fingerprint.is_some() || ca.is_some()
    }

    pub(super) fn place(self) -> Result<ControlAddress, Failure> {
        let Self { control, server, user, password_file, fingerprint, ca } = self;
        let Some(server) = server else {
            if user.is_some() || password_file.is_some() || fingerprint.is_some() || ca.is_some() {
                let message = "user, password and certificate are of a target over the network";
                return Err(Failure::usage(message, "name it with --server https://box.example.org:8443"));
            }
            let standard = || default_path(&StateDir::standard(), Path::new(SERVICE_SOCKET));
            let path = control.map_or_else(standard, Ok);
            return Ok(ControlAddress::Socket(path.map_err(|error| {
                Failure::new("state", error.to_string(), "name the socket of a target with --control PATH")
            })?));
        };
        let (host, port) = host_and_port(&server)?;
        let trust = match (fingerprint, ca) {
            (Some(text), _) => Trust::fingerprint(&text)?,
            (None, Some(file)) => Trust::Authority(file),
            (None, None) => Trust::Known,
        };
        let user = user.unwrap_or_else(|| USER.to_owned());
        if user.contains(':') || user.contains(char::is_control) {
            return Err(Failure::usage(format!("`{}` is no user name", user.escape_debug()), "it has no colon"));
        }
        let password = OnceCell::new();
        Ok(ControlAddress::Server(Box::new(Server { host, port, user, password_file, trust, password })))
    }
}

impl Server {
    /// Connects, and sees that it is the target that is meant.
    pub(super) fn connect(&self, timeout: Duration) -> Result<Connection, Failure> {
        Connection::to(&self.host, self.port, &self.trust, timeout)
    }

    /// Lines of a request's head.
    pub(super) fn head(&self) -> Result<String, Failure> {
        let password = match self.password.get() {
            Some(password) => password.clone(),
            None => {
                let question = format!("Password of {} at {}: ", self.user, self);
                let password = Secret(password::read(self.password_file.as_deref(), &question)?);
                self.password.get_or_init(|| password).clone()
            }
        };
        let credentials = password::base64(format!("{}:{}", self.user, password.0).as_bytes());
        Ok(format!("Host: {self}\r\nAuthorization: Basic {credentials}\r\n"))
    }

    /// Whether the host is reached by name and port as in a URL.
    fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.authority())
    }
}

impl fmt::Display for ControlAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => Path::display(path).fmt(f),
            Self::Server(server) => write!(f, "https://{server}"),
        }
    }
}

fn host_and_port(url: &str) -> Result<(String, u16), Failure> {
    let wrong = || Failure::usage(format!("`{url}` is no address of a target"), "want https://box.example.org:8443");
    let rest = url.strip_prefix("https://").ok_or_else(wrong)?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = match rest.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_no_address| wrong())?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':').ok_or_else(wrong)?) })
        }
        None => match rest.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (rest, None),
        },
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || ".-:".contains(c);
    if host.is_empty() || host.len() > 253 || !host.chars().all(is_host) {
        return Err(wrong());
    }
    let port = port.map_or(Ok(PORT), |port| port.parse().map_err(|_no_port| wrong()))?;
    Ok((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_by_urls() {
        let parsed = |rest: &str| host_and_port(&format!("https:{rest}")).ok();
        let some = |host: &str, port| Some((host.to_owned(), port));
        assert_eq!(parsed("//box.example:8443"), some("box.example", 8443));
        assert_eq!(parsed("//box.example/"), some("box.example", 443));
        assert_eq!(parsed("//[2001:db8::1]:8443"), some("2001:db8::1", 8443));
        assert_eq!(parsed("//[::1]"), some("::1", 443));
        for wrong in
            ["", "box", "//", "//:1", "//box:", "//box:x", "//a/b", "//2001:db8::1", "//[box]:1", "//me@b", "//a b"]
        {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
        assert!(host_and_port("box.example").is_err() && host_and_port("http://box.example.org").is_err());
    }

    #[test]
    fn what_is_for_the_network_needs_a_server() {
        let reach = Reach { user: Some("me".to_owned()), ..Reach::default() };
        assert!(reach.place().unwrap_err().to_string().contains("--server"));
        let server = Some("https://[::1]:8443".to_owned());
        let place = Reach { server: server.clone(), ..Reach::default() }.place().unwrap();
        assert_eq!(place.to_string(), "https://[::1]:8443");
        let wrong = Reach { server, user: Some("a:b".to_owned()), ..Reach::default() };
        assert!(wrong.place().is_err());
    }
}
