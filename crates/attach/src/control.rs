//! The protocol of a daemon's control socket: a request is one line of JSON and as many bytes of
//! data as the line announces; so is its answer. Any number of requests per connection, one at a
//! time. Lengths are checked before anything is allocated.

pub mod stats;

use std::io::{self, BufRead, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::request::Request;
use crate::state::State;

/// The most data of one message, bytes.
pub const DATA_MAX_BYTES: u32 = 16 << 20;
/// The longest line, bytes: a state with a thousand namespaces fits.
const LINE_MAX_BYTES: u64 = 1 << 20;

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Call {
    /// Send the state.
    Status,
    /// Run an admin command.
    Admin {
        /// The submission queue entry, 64 bytes in hexadecimal. The daemon sets command identifier
        /// and data pointer.
        sqe: String,
        /// Bytes that the controller returns, 0 for none.
        read_bytes: u32,
        /// Time-out in milliseconds; the connection's default if absent.
        timeout_ms: Option<u64>,
    },
    /// Run an I/O command.
    Io {
        /// As for `Admin`.
        sqe: String,
        /// As for `Admin`.
        read_bytes: u32,
    },
    /// Drop the connections and reconnect.
    Reset,
    /// Authenticate again.
    Reauthenticate,
    /// Send what was counted.
    Stats,
    /// Scan for namespaces that were added, removed or changed.
    Rescan,
    /// Connect another controller of the subsystem, as a path of the same devices.
    AddPath {
        /// What was asked for. Secrets that were given are in files of the instance.
        request: Box<Request>,
    },
    /// Take a path away.
    RemovePath {
        /// Its name, `nvme0c1`, or its address.
        path: String,
    },
    /// Change what is said of the paths; what is absent stays.
    SetPaths {
        /// How commands are divided.
        #[serde(default)]
        policy: Option<String>,
        /// The path that is preferred among its equals, by name or address; `none` for none.
        #[serde(default)]
        prefer: Option<String>,
        /// The path that is used again.
        #[serde(default)]
        enable: Option<String>,
        /// The path that is not used any more.
        #[serde(default)]
        disable: Option<String>,
    },
    /// Remove the devices, disconnect and end.
    Disconnect {
        /// Also if a device is in use.
        force: bool,
    },
}

/// A daemon's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub enum Answer {
    /// Success, without a result.
    Done,
    /// To `Status`.
    Status {
        /// The present state.
        state: Box<State>,
    },
    /// To `Reauthenticate`.
    Authenticated {
        /// The hash: `SHA-256`.
        hash: String,
        /// The group: `ffdhe3072`.
        group: String,
        /// Whether the controller has proven itself, too.
        mutual: bool,
        /// Whether the key for TLS was replaced.
        tls_key_replaced: bool,
    },
    /// To `AddPath`.
    PathAdded {
        /// Its name: `nvme0c1`.
        path: String,
    },
    /// To `AddPath`: it was not connected.
    NotConnected {
        /// The kind of the error: `refused`.
        kind: String,
        /// Why, for people.
        message: String,
    },
    /// To `Stats`; the data are [`Stats`](crate::control::stats::Stats) in JSON.
    Counted,
    /// The command completed, with any status; the controller's data follow.
    Completed {
        /// The completion queue entry, 16 bytes in hexadecimal.
        cqe: String,
    },
    /// Refused because a device is in use.
    InUse {
        /// The device.
        name: String,
        /// By what.
        used_by: String,
    },
    /// To `Disconnect`: nothing was done, because the daemon waits for something else.
    Busy,
    /// It failed.
    Failed {
        /// Why, for people.
        message: String,
    },
}

/// A line: the message, and how many bytes follow it.
#[derive(Debug, Serialize, Deserialize)]
struct Line<T> {
    #[serde(flatten)]
    message: T,
    #[serde(default)]
    data_bytes: u32,
}

/// Sends a message with its data.
///
/// # Errors
/// Of the socket; more data than [`DATA_MAX_BYTES`].
pub fn send<T: Serialize>(stream: &mut impl Write, message: &T, data: &[u8]) -> io::Result<()> {
    let data_bytes = u32::try_from(data.len()).ok().filter(|&bytes| bytes <= DATA_MAX_BYTES);
    let data_bytes = data_bytes.ok_or_else(|| invalid("more data than a message holds (16 MiB)"))?;
    let mut line = serde_json::to_vec(&Line { message, data_bytes })?;
    line.push(b'\n');
    stream.write_all(&line)?;
    stream.write_all(data)?;
    stream.flush()
}

/// Receives a message with its data; `None` when the other end has closed.
///
/// # Errors
/// Of the socket; a message that is cut off, too long or not understood.
pub fn receive<T: DeserializeOwned>(stream: &mut impl BufRead) -> io::Result<Option<(T, Vec<u8>)>> {
    let mut text = Vec::new();
    stream.take(LINE_MAX_BYTES).read_until(b'\n', &mut text)?;
    if text.is_empty() {
        return Ok(None);
    }
    if text.last() != Some(&b'\n') {
        return Err(invalid("a line that is cut off or too long"));
    }
    let line: Line<T> = serde_json::from_slice(&text)?;
    if line.data_bytes > DATA_MAX_BYTES {
        return Err(invalid("more data than a message holds (16 MiB)"));
    }
    let mut data = Vec::new();
    let announced = u64::from(line.data_bytes);
    // Grows with the data received, not with the announced length.
    if stream.take(announced).read_to_end(&mut data)? as u64 != announced {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some((line.message, data)))
}

/// Bytes as hexadecimal digits.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Exactly `N` bytes from hexadecimal digits.
#[must_use]
pub fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != N * 2 {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

fn invalid(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip_with_their_data() {
        let call = Call::Admin { sqe: to_hex(&[6; 64]), read_bytes: 4096, timeout_ms: None };
        let mut bytes = Vec::new();
        send(&mut bytes, &call, b"data\nwith lines").unwrap();
        send(&mut bytes, &Call::Status, b"").unwrap();
        let mut stream = bytes.as_slice();
        assert_eq!(receive::<Call>(&mut stream).unwrap(), Some((call, b"data\nwith lines".to_vec())));
        assert_eq!(receive::<Call>(&mut stream).unwrap(), Some((Call::Status, Vec::new())));
        assert_eq!(receive::<Call>(&mut stream).unwrap(), None);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "{\"op\":\"status\"}",
            "{\"op\":\"status\",\"data_bytes\":4294967295}\n",
            "{\"op\":\"status\",\"data_bytes\":10}\nshort",
            "{\"op\":\"explode\"}\n",
            "\n",
        ] {
            assert!(receive::<Call>(&mut text.as_bytes()).is_err(), "{text}");
        }
        let endless = vec![b'x'; 2 << 20];
        assert!(receive::<Call>(&mut endless.as_slice()).is_err());
    }

    #[test]
    fn hexadecimal_is_parsed_strictly() {
        assert_eq!(from_hex::<2>("0aFf"), Some([0x0a, 0xff]));
        assert_eq!(from_hex::<2>("0aF"), None);
        assert_eq!(from_hex::<2>("0aFg"), None);
        assert_eq!(from_hex::<1>("é"), None);
    }
}
