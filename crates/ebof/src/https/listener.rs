//! Connections of HTTPS: how many there are, how fast they come, and how long each step may take.
//! A peer that is slow, silent or speaks something else is told so if possible, and let go.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::rates::{Rates, network};
use super::service::{Service, Visitor};
use crate::doors::limits::{Connection, ConnectionLimits, ERROR_PAUSE, LOG_INTERVAL, is_of_one_connection};

/// The most connections.
pub(super) const CONNECTIONS: usize = 256;

/// The most connections from one address.
pub(super) const PER_ADDRESS: usize = 48;

/// The longest lifetime of a connection, with all its requests: streams of events last.
const LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// New connections of an address: at once, and in a second. A handshake takes processor time.
const NEW: (u32, f64) = (200, 100.0);

/// The largest head of a request, bytes.
const HEAD_BYTES_MAX: usize = 32 << 10;

/// The most headers of a request.
const HEADERS_MAX: usize = 64;

/// How much is read of a peer that speaks no TLS, so that it gets to read the answer.
const REST_BYTES_MAX: usize = 16 << 10;

/// The first byte of a TLS handshake (RFC 8446, Record Layer: ContentType).
const HANDSHAKE: u8 = 22;

/// How long a connection may take for each step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// A TLS handshake.
    pub(super) handshake: Duration,
    /// The head of a request, from the end of the last one.
    pub(super) head: Duration,
    /// The body of a request.
    pub(super) body: Duration,
    /// To take any bytes of an answer.
    pub(super) stall: Duration,
    /// To deliver events to a destination, from the connection to the head of its answer.
    pub(super) delivery: Duration,
}

impl Default for Times {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { handshake: seconds(10), head: seconds(30), body: seconds(30), stall: seconds(30), delivery: seconds(10) }
    }
}

/// Accepts connections of one address, with TLS or without.
pub(super) struct Acceptor {
    pub(super) listener: TcpListener,
    pub(super) tls: Option<Arc<rustls::ServerConfig>>,
    pub(super) service: Arc<Service>,
    pub(super) limits: Arc<ConnectionLimits<IpAddr>>,
    pub(super) new: Arc<Rates<IpAddr>>,
    pub(super) times: Times,
}

/// What the acceptors of a target share.
pub(super) fn limits() -> (Arc<ConnectionLimits<IpAddr>>, Arc<Rates<IpAddr>>) {
    let (burst, per_second) = NEW;
    (Arc::new(ConnectionLimits::new(PER_ADDRESS, CONNECTIONS, LIFETIME)), Arc::new(Rates::new(burst, per_second)))
}

impl Acceptor {
    /// Accepts connections for ever.
    pub(super) async fn run(self) {
        let mut logged_at: Option<Instant> = None;
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    let address = network(peer.ip());
                    if self.new.take(&address, 1, Instant::now().into_std()).is_err() {
                        continue;
                    }
                    let connection = self.limits.admit(stream, address);
                    tokio::spawn(serve(connection, peer, self.tls.clone(), Arc::clone(&self.service), self.times));
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    if logged_at.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
                        logged_at = Some(Instant::now());
                        tracing::error!("accepting connections for HTTPS rests for {ERROR_PAUSE:?}: {error}");
                    }
                    sleep(ERROR_PAUSE).await;
                }
            }
        }
    }
}

async fn serve(
    connection: Connection<TcpStream, IpAddr>,
    address: SocketAddr,
    tls: Option<Arc<rustls::ServerConfig>>,
    service: Arc<Service>,
    times: Times,
) {
    let peer = Visitor { address, secure: tls.is_some(), known: connection.known_flag(), requests: AtomicU32::new(0) };
    let stream = Stalling { stream: connection, limit: times.stall, stalled: None };
    match tls {
        None => answer(stream, peer, service, times).await,
        Some(config) => {
            if let Ok(Some(stream)) = timeout(times.handshake, handshake(stream, config)).await {
                answer(stream, peer, service, times).await;
            }
        }
    }
}

/// A TLS handshake, or an answer in clear text for a peer that speaks HTTP.
async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    config: Arc<rustls::ServerConfig>,
) -> Option<TlsStream<Begun<S>>> {
    let first = stream.read_u8().await.ok()?;
    if first == HANDSHAKE {
        return TlsAcceptor::from(config).accept(Begun { first: Some(first), stream }).await.ok();
    }
    // The first letter of a method.
    if first.is_ascii_uppercase() {
        let _told = tell_of_tls(stream).await;
    }
    None
}

async fn tell_of_tls<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) -> io::Result<()> {
    let text = "This is the address of HTTPS: use https:// in place of http://.\n";
    let head = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await?;
    // Closing a socket with bytes that were not read would take the answer from the peer.
    let mut rest = vec![0; 1024];
    for _ in 0..REST_BYTES_MAX / rest.len() {
        if timeout(Duration::from_secs(1), stream.read(&mut rest)).await.map_or(Ok(0), |read| read)? == 0 {
            break;
        }
    }
    Ok(())
}

async fn answer<S>(stream: S, peer: Visitor, service: Arc<Service>, times: Times)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let peer = Arc::new(peer);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(times.head)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .half_close(false);
    let answers = service_fn(move |request| {
        let (service, peer) = (Arc::clone(&service), Arc::clone(&peer));
        async move { Ok::<_, std::convert::Infallible>(service.answer(&peer, request).await) }
    });
    // Why a connection has ended concerns its peer only.
    let _ended = http.serve_connection(TokioIo::new(stream), answers).await;
}

/// A stream of which the first byte was read already.
struct Begun<S> {
    first: Option<u8>,
    stream: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for Begun<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if into.remaining() > 0
            && let Some(first) = self.first.take()
        {
            into.put_slice(&[first]);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Begun<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// A stream whose peer has to take what it is sent.
struct Stalling<S> {
    stream: S,
    limit: Duration,
    /// Since when nothing has been taken: its end.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Stalling<S> {
    fn check<T>(&mut self, context: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.stalled = None;
            return outcome;
        }
        let limit = self.limit;
        let end = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
        match end.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalling<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalling<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, data);
        self.check(context, outcome)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        self.check(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(context);
        self.check(context, outcome)
    }
}
