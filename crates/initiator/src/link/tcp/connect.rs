//! Connecting a TCP link: the connection, then ICReq and ICResp, with a time-out for each.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ebof_sockets::Stream;
use ebof_tcp::Digest;
use ebof_tcp::host::{Connection, ConnectionConfig};
use ebof_tls::TlsPsk;

use super::{Tcp, errno, secure, socket};
use crate::command::data::AdminData;
use crate::command::slots::Slots;
use crate::error::Loss;
use crate::error::connect_error::{ConnectErrorKind as Kind, Step, Tried};
use crate::link::stop::{Stop, await_ready};
use crate::link::{Received, Transport as _, Wanted};
use crate::options::Options;
use crate::options::transport::Transport;
use crate::wait::{Cancel, Waiter};

/// Size of the receive buffer of the Admin Queue, bytes.
const ADMIN_STAGING: usize = 16 << 10;
/// Size of the receive buffer of an I/O queue, bytes: a batch of 64 reads of 4 KiB.
const IO_STAGING: usize = 256 << 10;

/// The content type of TLS' alerts (RFC 8446, 5.1).
const ALERT: u8 = 21;

/// Connects a queue by `options`. Records its progress in `tried`. Also returns the target's
/// address.
pub(crate) async fn connect(
    options: &Options,
    wanted: &Wanted,
    tried: &mut Tried,
    waiter: &Waiter,
    cancel: &Cancel,
) -> Result<(Tcp, SocketAddr), Kind> {
    let queue = wanted.queue;
    let (stream, peer) = open(options, wanted.psk.as_deref(), tried, waiter, cancel).await?;
    tried.step = Step::Init;
    let staging = if queue.is_admin() { ADMIN_STAGING } else { IO_STAGING };
    let mut link = Tcp::new(stream, Connection::new(config(options)), staging);
    let deadline = waiter.time.now() + Duration::from_millis(u64::from(options.connect_timeout_ms.max(1)));
    if let Err(stop) = initialize(&mut link, deadline, waiter, cancel).await {
        return Err(init_kind(&link, options, stop));
    }
    let granted = link.initialized();
    let header = options.hdr_digest && !granted.is_some_and(|parameters| parameters.header_digest);
    let data = options.data_digest && !granted.is_some_and(|parameters| parameters.data_digest);
    if header || data {
        return Err(Kind::DigestRefused { header, data });
    }
    link.bulk.set_bytes_max(options.bulk_bytes);
    if let Some(min) = options.zerocopy_send.filter(|_| !queue.is_admin()) {
        link.enable_zerocopy(min, options.zerocopy_copied_max);
    }
    Ok((link, peer))
}

/// The byte stream of a new connection.
async fn open(
    options: &Options,
    generated: Option<&TlsPsk>,
    tried: &mut Tried,
    waiter: &Waiter,
    cancel: &Cancel,
) -> Result<(Stream, SocketAddr), Kind> {
    let Transport::Streams(dialer) = &options.transport else {
        if let Some(psk) = generated {
            return secure::connect_with(options, psk, tried, waiter, cancel).await;
        }
        if let Some(tls) = &options.tls {
            return secure::connect(options, tls, tried, waiter, cancel).await;
        }
        let (socket, peer) = socket::connect(options, tried, &waiter.time, cancel)?;
        return Ok((Stream::from(socket), peer));
    };
    tried.step = Step::Tcp;
    let stream = dialer.dial().map_err(|error| socket::connect_kind(options, errno(&error)))?;
    Ok((stream, SocketAddr::from(([0; 4], 0))))
}

fn config(options: &Options) -> ConnectionConfig {
    let digest = |wanted| if wanted { Digest::Required } else { Digest::Refused };
    ConnectionConfig {
        alignment: 4,
        header_digest: digest(options.hdr_digest),
        data_digest: digest(options.data_digest),
        r2t_max: options.max_r2t.clamp(1, 64),
    }
}

/// Sends ICReq and waits for ICResp.
async fn initialize(link: &mut Tcp, deadline: Instant, waiter: &Waiter, cancel: &Cancel) -> Result<(), Stop> {
    // No commands are outstanding yet.
    let mut slots = Slots::<Vec<u8>>::new(1);
    let mut none = AdminData::None;
    loop {
        link.flush(&mut slots, &none, &waiter.time).map_err(Stop::Lost)?;
        while link.receive(&mut slots, &mut none).map_err(Stop::Lost)? != Received::Nothing {
            link.poll(&mut slots, &mut none, |_, _| {}).map_err(Stop::Lost)?;
            if link.initialized().is_some() {
                return Ok(());
            }
        }
        await_ready(link.watch(), deadline, waiter, Some(cancel)).await?;
    }
}

/// Why there was no ICResp: another protocol, no answer, a close, or refused digests.
fn init_kind(link: &Tcp, options: &Options, stop: Stop) -> Kind {
    let first_bytes = &link.first_bytes;
    if matches!(stop, Stop::Cancelled) {
        return Kind::Cancelled;
    }
    if let [ALERT, 3, 0..=4, rest @ ..] = first_bytes.as_slice() {
        // RFC 8446, 5.1 and 6: length, level, description.
        let alert = if let [0, 2, _, alert, ..] = rest { Some(*alert) } else { None };
        return Kind::TlsRequired { alert, concat: options.concat };
    }
    if !first_bytes.is_empty() && !looks_like_nvme(first_bytes) {
        return Kind::NotNvme { first_bytes: first_bytes.clone() };
    }
    if link.fatal.is_some()
        && let Some(kind) = digest_refused(options, first_bytes)
    {
        return kind;
    }
    match stop {
        Stop::Lost(Loss::Closed) => Kind::ClosedDuringInit { reset: false },
        Stop::Lost(Loss::Network(rustix::io::Errno::CONNRESET)) => Kind::ClosedDuringInit { reset: true },
        stop => stop.into_kind(options),
    }
}

/// Whether a well-formed ICResp lacks a requested digest (NVMe/TCP, ICResp: DGST in byte
/// 11).
fn digest_refused(options: &Options, bytes: &[u8]) -> Option<Kind> {
    let granted = bytes.get(11)?;
    let header = options.hdr_digest && granted & 1 == 0;
    let data = options.data_digest && granted & 2 == 0;
    (bytes[0] == 1 && (header || data)).then_some(Kind::DigestRefused { header, data })
}

/// ICResp or C2HTermReq, by type, header length and total length: what a target may send first.
fn looks_like_nvme(bytes: &[u8]) -> bool {
    match bytes {
        [0x01, _, 128, _, 128, 0, 0, 0, ..] => true,
        [0x03, _, 24, _, length, 0, 0, 0, ..] => *length >= 24,
        // Too short to tell: may still become one of the two.
        [0x01 | 0x03] | [0x01 | 0x03, _] => true,
        [0x01, _, 128] | [0x01, _, 128, ..] if bytes.len() < 8 => true,
        [0x03, _, 24] | [0x03, _, 24, ..] if bytes.len() < 8 => true,
        _ => false,
    }
}
