//! TLS to a target: connecting, and seeing whether its certificate is the one that is trusted. No
//! byte of a request is sent before.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use sha2::{Digest as _, Sha256};

use super::known::{KnownTargets, Verdict};
use super::proven::Proven;
use crate::failure::Failure;
use crate::file::Kind;

/// The largest file with certificates of authorities.
const CA_BYTES_MAX: u64 = 4 << 20;

/// How long connecting to one address may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Which certificate is trusted.
#[derive(Clone, Debug)]
pub(crate) enum Trust {
    /// The one with this fingerprint.
    Fingerprint(Fingerprint),
    /// Those that an authority of this file has issued for the host.
    Authority(PathBuf),
    /// The one that was trusted before, or that the user says yes to.
    Known,
}

/// SHA-256 of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(pub(super) [u8; 32]);

impl Fingerprint {
    fn from_certificate(certificate: &[u8]) -> Self {
        Self(Sha256::digest(certificate).into())
    }

    /// From hexadecimal digits, with colons or without.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let digits: Vec<u32> = text.chars().filter(|&c| c != ':').map(|c| c.to_digit(16)).collect::<Option<_>>()?;
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            *byte = u8::try_from(pair.iter().fold(0, |byte, digit| byte << 4 | digit)).ok()?;
        }
        Some(Self(bytes))
    }
}

/// `3F:A0:...`
impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = self.0.iter().fold(String::new(), |mut text, byte| {
            let _infallible = write!(text, "{}{byte:02X}", if text.is_empty() { "" } else { ":" });
            text
        });
        f.write_str(&text)
    }
}

impl Trust {
    /// The certificate with a fingerprint.
    pub(super) fn fingerprint(text: &str) -> Result<Self, Failure> {
        let advice =
            "want the SHA-256 that the target prints when it starts: 64 hexadecimal digits, with colons or without";
        let parsed =
            Fingerprint::parse(text).ok_or_else(|| Failure::usage(format!("`{text}` is no fingerprint"), advice));
        parsed.map(Self::Fingerprint)
    }
}

/// A connection to a target.
pub(super) enum Connection {
    Socket(UnixStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Connection {
    /// Connects over the network, and sees that the certificate is the one that is trusted.
    pub(super) fn to(host: &str, port: u16, trust: &Trust, timeout: Duration) -> Result<Self, Failure> {
        let place = format!("https://{host}:{port}");
        let failed = |error: &dyn std::fmt::Display, advice: &str| {
            Failure::new("not-connected", format!("{place}: {error}"), advice)
        };
        let unreachable =
            "is the target served with --https there, and does nothing between you and it block the port?";
        let stream = connect(host, port).map_err(|error| failed(&error, unreachable))?;
        let limited = stream.set_read_timeout(Some(timeout)).and_then(|()| stream.set_write_timeout(Some(timeout)));
        limited.map_err(|error| failed(&error, unreachable))?;
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|error| failed(&error, "name the host as in its certificate"))?;
        let config = Arc::new(config(trust)?);
        let connection =
            ClientConnection::new(config, name).map_err(|error| failed(&error, "this is an error of ebof"))?;
        let mut stream = StreamOwned::new(connection, stream);
        while stream.conn.is_handshaking() {
            let advice = match trust {
                Trust::Authority(_) => {
                    "see that the certificate was issued for this host by an authority of the --ca file"
                }
                _ => "is this the port of HTTPS of a target?",
            };
            stream.conn.complete_io(&mut stream.sock).map_err(|error| failed(&error, advice))?;
        }
        let certificate = stream.conn.peer_certificates().and_then(<[_]>::first);
        let certificate = certificate.ok_or_else(|| failed(&"it shows no certificate", unreachable))?;
        check(&format!("{host}:{port}"), Fingerprint::from_certificate(certificate), trust)?;
        Ok(Self::Tls(Box::new(stream)))
    }

    /// How long a read or a write may take from now on.
    pub(super) fn limit(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Socket(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))
            }
            Self::Tls(stream) => {
                stream.sock.set_read_timeout(Some(timeout))?;
                stream.sock.set_write_timeout(Some(timeout))
            }
        }
    }
}

impl Read for Connection {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Socket(stream) => stream.read(into),
            // An answer says how long it is, so that its end need not be told.
            Self::Tls(stream) => match stream.read(into) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
                outcome => outcome,
            },
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Socket(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Socket(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn config(trust: &Trust) -> Result<ClientConfig, Failure> {
    let broken =
        |error: &dyn std::fmt::Display| Failure::new("tls", format!("TLS: {error}"), "this is an error of ebof");
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match trust {
        Trust::Authority(file) => authorities(file, &provider)?,
        Trust::Fingerprint(_) | Trust::Known => Proven::by(&provider),
    };
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| broken(&error))?.dangerous().with_custom_certificate_verifier(verifier);
    Ok(builder.with_no_client_auth())
}

fn authorities(file: &Path, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ServerCertVerifier>, Failure> {
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::usage(format!("{}: {error}", file.display()), "want certificates of authorities in PEM")
    };
    let text = crate::file::read_text(file, "the authorities", CA_BYTES_MAX, Kind::Any)
        .map_err(|error| wrong(&format!("{error:#}")))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build();
    Ok(verifier.map_err(|error| wrong(&error))?)
}

/// Whether the certificate is the one that is trusted.
fn check(place: &str, shown: Fingerprint, trust: &Trust) -> Result<(), Failure> {
    let expected = match trust {
        Trust::Authority(_) => return Ok(()),
        Trust::Fingerprint(expected) => *expected,
        Trust::Known => {
            let known = KnownTargets::standard()?;
            match known.verdict(place)? {
                Verdict::Known(expected, line) if expected != shown => {
                    let message = format!(
                        "THE CERTIFICATE OF {place} HAS CHANGED: it has the fingerprint {shown}, and {expected} was trusted. \
                         Somebody may be in between; or the target has another certificate. Nothing was sent"
                    );
                    let advice = format!(
                        "ask whoever runs the target. If it is right, remove line {line} of {}, or say --fingerprint {shown}",
                        known.path().display()
                    );
                    return Err(Failure::new("certificate-changed", message, advice));
                }
                Verdict::Known(..) => return Ok(()),
                Verdict::Unknown => {
                    consent(place, shown)?;
                    return known.add(place, shown);
                }
            }
        }
    };
    if shown == expected {
        return Ok(());
    }
    let message =
        format!("{place} shows a certificate with the fingerprint {shown}, and not {expected}. Nothing was sent");
    Err(Failure::new("certificate-changed", message, "the target prints its fingerprint when it starts: compare them"))
}

fn consent(place: &str, shown: Fingerprint) -> Result<(), Failure> {
    let message = format!("{place} is not known yet. Its certificate has the fingerprint\n  {shown}\n");
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let advice =
            "compare it with what the target prints when it starts, and say --fingerprint SHA256; or --ca FILE";
        return Err(Failure::new("certificate-unknown", message.trim_end(), advice));
    }
    let _unseen = write!(io::stderr().lock(), "{message}Is this what the target printed when it started? Type yes: ");
    let mut answer = String::new();
    match io::stdin().read_line(&mut answer) {
        Ok(_) if answer.trim() == "yes" => Ok(()),
        _ => Err(Failure::new("not-confirmed", "the answer was not yes: nothing was sent", "compare the fingerprints")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_written_as_others_write_them() {
        let fingerprint = Fingerprint(std::array::from_fn(|at| u8::try_from(at * 8).unwrap()));
        let text = fingerprint.to_string();
        assert!(text.starts_with("00:08:10:") && text.len() == 95, "{text}");
        for same in [text.clone(), text.replace(':', ""), text.to_lowercase()] {
            assert_eq!(Fingerprint::parse(&same), Some(fingerprint));
        }
        for wrong in ["", "00", &text[3..], &format!("{text}:00"), &text.replace('1', "g")] {
            assert_eq!(Fingerprint::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_certificate_is_the_one_with_the_fingerprint() {
        let (one, other) = (Fingerprint([1; 32]), Fingerprint([2; 32]));
        assert!(check("box:1", one, &Trust::Fingerprint(one)).is_ok());
        let error = check("box:1", other, &Trust::Fingerprint(one)).unwrap_err().to_string();
        assert!(error.contains("02:02") && error.contains("01:01"), "{error}");
    }
}
