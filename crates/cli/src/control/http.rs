//! Requests to a running target, and their answers: HTTP/1.1 with JSON bodies, one request to a
//! connection. What is sent and received is bounded, and a target that is silent is given up. What
//! is asked is not known here.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use ebof_manage::enclosure::{MistakeKind, Refused};
use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use super::reach::ControlAddress;
use super::server::Connection;
use crate::failure::Failure;

/// The largest answer, bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// How long an answer may take, beside what a request waits for.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Bytes of a body with a key or a password at most.
const SECRET_BODY_BYTES: usize = 4096;

/// Before the paths of a target over the network.
const PREFIX: &str = "/ebof";

/// The client's side of the connections to one target.
#[derive(Debug)]
pub(super) struct HttpClient {
    place: ControlAddress,
}

impl HttpClient {
    /// Of a target at this address. Nothing is connected yet.
    pub(super) fn new(place: ControlAddress) -> Self {
        Self { place }
    }

    /// What is at a path; it may be waited for.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str, waits: Duration) -> Result<T, Failure> {
        self.request(("GET", path), "", &[], waits)
    }

    /// The answer to a body.
    pub(super) fn send<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        self.request((method, path), "", &self.body_of(body)?, Duration::ZERO)
    }

    /// The text of a body, which may have a key or a password in it.
    pub(super) fn body_of(&self, body: &impl Serialize) -> Result<Zeroizing<Vec<u8>>, Failure> {
        // With room for all that is secret, so that nothing is left behind where it grew.
        let mut text = Zeroizing::new(Vec::with_capacity(SECRET_BODY_BYTES));
        serde_json::to_writer(&mut *text, body).map_err(|error| self.strange(&error.to_string()))?;
        Ok(text)
    }

    /// The answer to a request with more `lines` in its head.
    pub(super) fn request<T: DeserializeOwned>(
        &self,
        request: (&str, &str),
        lines: &str,
        body: &[u8],
        waits: Duration,
    ) -> Result<T, Failure> {
        let (status, answer) = self.answer(request, lines, body, waits)?;
        if (200..300).contains(&status) { self.understood(&answer) } else { Err(self.refusal(status, &answer)) }
    }

    /// Status code and body of the answer to a request with more `lines` in its head.
    pub(super) fn answer(
        &self,
        request: (&str, &str),
        lines: &str,
        body: &[u8],
        waits: Duration,
    ) -> Result<(u16, Vec<u8>), Failure> {
        let raw = self.exchange(request, lines, body, TIMEOUT + waits)?;
        let (status, answer) = parse(&raw).ok_or_else(|| self.strange("it is not HTTP"))?;
        Ok((status, answer.to_vec()))
    }

    /// The content of an answer.
    pub(super) fn understood<T: DeserializeOwned>(&self, answer: &[u8]) -> Result<T, Failure> {
        serde_json::from_slice(answer).map_err(|error| self.strange(&error.to_string()))
    }

    /// An answer that refuses, as an error.
    pub(super) fn refusal(&self, status: u16, answer: &[u8]) -> Failure {
        match serde_json::from_slice::<Refused>(answer) {
            Ok(refused) if !refused.mistakes.is_empty() => failure(status, &refused),
            _ => self.strange(&format!("HTTP status {status}")),
        }
    }

    /// Sends a request; gives the whole answer.
    fn exchange(
        &self,
        (method, path): (&str, &str),
        lines: &str,
        body: &[u8],
        timeout: Duration,
    ) -> Result<Vec<u8>, Failure> {
        let (mut stream, prefix, own) = match &self.place {
            ControlAddress::Socket(path) => {
                let stream = UnixStream::connect(path).map_err(|error| unreachable(path, &error))?;
                (Connection::Socket(stream), "", "Host: ebof\r\n".to_owned())
            }
            // Who it is, is known before the password is asked for and sent.
            ControlAddress::Server(server) => (server.connect(timeout)?, PREFIX, server.head()?),
        };
        let broken = |error: std::io::Error| {
            let message = format!("{method} {path} at {}: {error}", self.place);
            let advice = match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => "the target does not answer: see its log",
                _ => "the target has ended, or closed the connection: see its log",
            };
            Failure::new("io", message, advice)
        };
        let head = format!(
            "{method} {prefix}{path} HTTP/1.1\r\n{own}Connection: close\r\nContent-Type: application/json\r\n{lines}\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        let end = Instant::now() + timeout;
        stream.limit(timeout).map_err(broken)?;
        let sent =
            stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).and_then(|()| stream.flush());
        // What is refused early is answered before all of it was taken.
        let unsent = sent.err();
        let mut raw = Vec::new();
        let mut chunk = vec![0; 64 << 10];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(broken(ErrorKind::TimedOut.into()));
            }
            stream.limit(left).map_err(broken)?;
            match stream.read(&mut chunk) {
                Ok(0) => {
                    return if raw.is_empty() { unsent.map_or(Ok(raw), |error| Err(broken(error))) } else { Ok(raw) };
                }
                Ok(read) => raw.extend_from_slice(chunk.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(error)),
            }
            if raw.len() as u64 > ANSWER_BYTES_MAX {
                return Err(self.strange("it is too long"));
            }
        }
    }

    fn strange(&self, why: &str) -> Failure {
        let advice = "is this a target of the same version?";
        Failure::new("malformed-answer", format!("the answer of {} is not understood: {why}", self.place), advice)
    }
}

fn unreachable(path: &Path, error: &std::io::Error) -> Failure {
    let path = path.display();
    let advice = match error.kind() {
        ErrorKind::NotFound => {
            "no target has its control socket there: start one with `ebof serve`, or name the socket with --control PATH"
        }
        ErrorKind::ConnectionRefused => "the target that made it has ended: start it again with `ebof serve`",
        ErrorKind::PermissionDenied => {
            "the target's user, the group of the socket and root may connect: for a group, serve with --control PATH in a \
             directory that it may enter"
        }
        _ => "name the socket of a target with --control PATH",
    };
    Failure::new("not-connected", format!("the control socket {path}: {error}"), advice)
}

/// The status code and the body of an answer.
fn parse(raw: &[u8]) -> Option<(u16, &[u8])> {
    let end = raw.windows(4).position(|window| window == b"\r\n\r\n")?;
    let (head, body) = raw.split_at(end + 4);
    let head = std::str::from_utf8(head).ok()?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    Some((status, body.get(..length?)?))
}

/// A refusal as an error: the first mistake with its advice, or all of them.
fn failure(status: u16, refused: &Refused) -> Failure {
    let is_outdated = refused.mistakes.iter().all(|mistake| mistake.kind == MistakeKind::Outdated);
    let is_unknown = refused.mistakes.iter().any(|mistake| mistake.kind == MistakeKind::Unknown);
    let kind = match (status, refused.is_busy(), is_outdated) {
        _ if is_unknown => "outcome-unknown",
        (401, ..) => "not-authenticated",
        (403, ..) => "not-allowed",
        (429 | 503, ..) | (_, true, _) => "busy",
        (.., true) => "outdated",
        _ => "refused-change",
    };
    match refused.mistakes.as_slice() {
        [one] if one.object.is_empty() => Failure::new(kind, &*one.message, &*one.advice),
        [one] => Failure::new(kind, format!("{}: {}", one.object, one.message), &*one.advice),
        several => {
            let lines: Vec<String> = several.iter().map(ToString::to_string).collect();
            Failure::new(kind, format!("{} mistakes, and nothing was changed", several.len()), lines.join("\n  "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_split() {
        let answer = b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\nX: y\r\n\r\n{}";
        assert_eq!(parse(answer), Some((202, &b"{}"[..])));
        for cut in 0..answer.len() {
            assert_eq!(parse(&answer[..cut]), None, "{cut}");
        }
        assert_eq!(parse(b"SSH-2.0\r\n\r\n"), None);
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\n\r\n{}"), None, "of unknown length");
    }

    #[test]
    fn all_mistakes_are_in_the_error() {
        let mut refused = Refused::because(MistakeKind::Value, "one", "do this");
        assert_eq!(failure(422, &refused).to_string(), "one\n  do this");
        refused.mistakes.extend(Refused::because(MistakeKind::Value, "two", "do that").mistakes);
        assert_eq!(
            failure(422, &refused).to_string(),
            "2 mistakes, and nothing was changed\n  one; do this\n  two; do that"
        );
    }
}
