//! The byte stream of a TCP connection: a socket, or a simulated one.
//!
//! It is the only door to the bytes of a connection. Who takes or sends them beside it, or has the
//! kernel do that later (sending without a copy, splicing), asks it for [`Wire`]. What goes through
//! [`Stream::send`] and [`Stream::receive_parts`] by reference (lent memory of a device, data
//! received into their buffer) needs no leave. A descriptor to wait for is given out always.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use socket2::SockRef;

/// One end of a simulated connection. No method blocks: an operation that is not possible now fails
/// with [`io::ErrorKind::WouldBlock`], and [`SimulatedStream::readiness`] says when to retry.
pub trait SimulatedStream: Send {
    /// Fills `parts` in their order. 0 bytes are the end of the stream.
    ///
    /// # Errors
    /// Nothing is there, or the connection is broken.
    fn receive(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    /// Takes bytes of `parts` in their order, and says how many.
    ///
    /// # Errors
    /// There is no room, or the connection is broken.
    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Ends the stream, in one direction or both.
    fn shutdown(&mut self, how: Shutdown);

    /// What can be done now.
    fn readiness(&self) -> Readiness;
}

/// What can be done with a stream without waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// There are bytes to receive, or the end of the stream, or an error.
    pub readable: bool,
    /// There is room to send.
    pub writable: bool,
    /// The peer has closed its end or is gone, also where bytes are left that it sent before.
    pub closed: bool,
}

/// What changes the bytes of a socket on their way, as TLS does.
pub trait Layer: Send {
    /// Fills `parts` in their order with what the peer has sent. Fills less than all only where the
    /// socket has no more, or [`Layer::has_received`] says that there is. 0 bytes are the end of
    /// the stream.
    ///
    /// # Errors
    /// Nothing is there, or the connection is broken, or what the peer sent is not to be accepted.
    fn receive(&mut self, socket: &TcpStream, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    /// Takes bytes of `parts` in their order, and says how many. Those that it does not take are
    /// given to it again, before any others: it may have sent some of them.
    ///
    /// # Errors
    /// There is no room, or the connection is broken.
    fn send(&mut self, socket: &TcpStream, parts: &[IoSlice<'_>], more: bool) -> io::Result<usize>;

    /// Whether there is something to receive that the socket does not tell of.
    fn has_received(&self) -> bool;

    /// Its name, for whoever asks what a connection is like.
    fn name(&self) -> &'static str;

    /// Tells the peer that nothing more is sent, if there is room for that.
    fn end(&mut self, socket: &TcpStream);
}

/// A stream without blocking.
pub struct Stream(Kind);

enum Kind {
    /// The system's; set not to block by who made it.
    Socket(TcpStream),
    /// The same, with other bytes on the wire.
    Layered(TcpStream, Box<dyn Layer>),
    /// One of a simulation.
    Simulated(Box<dyn SimulatedStream>),
}

/// The socket of a stream whose bytes are those on the wire: the leave to go past the stream. A
/// stream that changes bytes on their way has none to give.
#[derive(Clone, Copy, Debug)]
pub struct Wire<'a>(&'a TcpStream);

impl AsFd for Wire<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Stream {
    /// One end of a simulated connection.
    #[must_use]
    pub fn simulated(stream: Box<dyn SimulatedStream>) -> Self {
        Self(Kind::Simulated(stream))
    }

    /// The bytes of a socket, which does not block, as `layer` changes them.
    #[must_use]
    pub fn layered(socket: TcpStream, layer: Box<dyn Layer>) -> Self {
        Self(Kind::Layered(socket, layer))
    }

    fn socket(&self) -> Option<&TcpStream> {
        match &self.0 {
            Kind::Socket(socket) | Kind::Layered(socket, _) => Some(socket),
            Kind::Simulated(_) => None,
        }
    }

    /// Whether something changes the bytes on their way.
    #[inline]
    #[must_use]
    pub fn has_layer(&self) -> bool {
        matches!(self.0, Kind::Layered(..))
    }

    /// The name of what changes the bytes on their way.
    #[must_use]
    pub fn layer(&self) -> Option<&'static str> {
        match &self.0 {
            Kind::Layered(_, layer) => Some(layer.name()),
            Kind::Socket(_) | Kind::Simulated(_) => None,
        }
    }

    /// Whether there is something to receive that the descriptor does not tell of: it was taken
    /// from the socket together with what was received.
    #[inline]
    #[must_use]
    pub fn has_received(&self) -> bool {
        match &self.0 {
            Kind::Socket(_) | Kind::Simulated(_) => false,
            Kind::Layered(_, layer) => layer.has_received(),
        }
    }

    /// The leave to take and send bytes beside the stream, where they are the wire's.
    #[must_use]
    pub fn wire(&self) -> Option<Wire<'_>> {
        match &self.0 {
            Kind::Socket(socket) => Some(Wire(socket)),
            Kind::Layered(..) | Kind::Simulated(_) => None,
        }
    }

    /// The descriptor to wait for, where it has one. It is for nothing else.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.socket().map(AsFd::as_fd)
    }

    /// What can be done with a simulated stream; `None` for a socket, which the system is asked
    /// about.
    #[must_use]
    pub fn readiness(&self) -> Option<Readiness> {
        match &self.0 {
            Kind::Socket(_) | Kind::Layered(..) => None,
            Kind::Simulated(stream) => Some(stream.readiness()),
        }
    }

    /// Whether the peer has closed its end, or broken the connection off, also where what it sent
    /// before is still to be read.
    #[must_use]
    pub fn peer_is_gone(&self) -> bool {
        match &self.0 {
            Kind::Socket(socket) | Kind::Layered(socket, _) => {
                let mut fds = [PollFd::new(socket, PollFlags::RDHUP)];
                let now = Timespec { tv_sec: 0, tv_nsec: 0 };
                let has_events = poll(&mut fds, Some(&now)).is_ok_and(|count| count > 0);
                has_events && fds[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP)
            }
            Kind::Simulated(stream) => stream.readiness().closed,
        }
    }

    /// The error that the system has noted of a socket, once.
    ///
    /// # Errors
    /// It cannot be asked for.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket().map_or(Ok(None), TcpStream::take_error)
    }

    /// Fills `buffer` with what is there. 0 bytes are the end of the stream.
    ///
    /// # Errors
    /// Nothing is there, or the connection is broken.
    #[inline]
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Socket(socket) => socket.read(buffer),
            Kind::Layered(socket, layer) => layer.receive(socket, &mut [IoSliceMut::new(buffer)]),
            Kind::Simulated(stream) => stream.receive(&mut [IoSliceMut::new(buffer)]),
        }
    }

    /// As [`Stream::receive`], into several parts in their order.
    ///
    /// # Errors
    /// Nothing is there, or the connection is broken.
    pub fn receive_parts(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Socket(socket) => socket.read_vectored(parts),
            Kind::Layered(socket, layer) => layer.receive(socket, parts),
            Kind::Simulated(stream) => stream.receive(parts),
        }
    }

    /// Sends what there is room for, and says how many bytes. Those that there was no room for are
    /// to be sent before any others ([`Layer::send`]). `more` follows at once: the system may wait
    /// for it.
    ///
    /// # Errors
    /// There is no room, or the connection is broken.
    #[inline]
    pub fn send(&mut self, parts: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Socket(socket) => Ok(send(socket, parts, more, SendFlags::empty())?),
            Kind::Layered(socket, layer) => layer.send(socket, parts, more),
            Kind::Simulated(stream) => stream.send(parts),
        }
    }

    /// As [`Stream::send`], without a copy: what is sent is read until the kernel has notified
    /// whoever sent it. [`ebof_pinned::enable`] was called for the socket. `None`: there is no
    /// leave for that ([`Stream::wire`]), or the kernel has no room to remember the pages.
    ///
    /// # Errors
    /// There is no room, or the connection is broken.
    pub fn send_pinned(&mut self, parts: &[IoSlice<'_>], more: bool) -> io::Result<Option<usize>> {
        let Some(Wire(socket)) = self.wire() else { return Ok(None) };
        match send(socket, parts, more, ebof_pinned::FLAG) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Errno::NOBUFS) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends the stream, in one direction or both.
    pub fn shutdown(&mut self, how: Shutdown) {
        match &mut self.0 {
            // Fails when the peer is gone already.
            Kind::Socket(socket) => _ = socket.shutdown(how),
            Kind::Layered(socket, layer) => {
                if how != Shutdown::Read {
                    layer.end(socket);
                }
                let _ = socket.shutdown(how);
            }
            Kind::Simulated(stream) => stream.shutdown(how),
        }
    }

    /// The peer is to have everything that was sent, also where a socket was set to break the
    /// connection off when it is closed.
    pub fn allow_graceful_close(&mut self) {
        match &mut self.0 {
            // Fails when the peer is gone already.
            Kind::Socket(socket) | Kind::Layered(socket, _) => _ = SockRef::from(&*socket).set_linger(None),
            Kind::Simulated(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    /// Closes it: a socket as it is set to.
    pub fn close(self) {
        match self.0 {
            Kind::Socket(_) => {}
            Kind::Layered(socket, mut layer) => layer.end(&socket),
            Kind::Simulated(mut stream) => stream.shutdown(Shutdown::Both),
        }
    }
}

#[inline]
fn send(socket: &TcpStream, parts: &[IoSlice<'_>], more: bool, extra: SendFlags) -> rustix::io::Result<usize> {
    let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT | extra;
    flags.set(SendFlags::MORE, more);
    sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), flags)
}

impl From<TcpStream> for Stream {
    fn from(socket: TcpStream) -> Self {
        Self(Kind::Socket(socket))
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Socket(socket) => socket.fmt(f),
            Kind::Layered(socket, _) => f.debug_tuple("Layered").field(socket).finish(),
            Kind::Simulated(_) => f.write_str("Simulated"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Takes three bytes at a time and gives them back.
    #[derive(Default)]
    struct Echo(Vec<u8>);

    impl SimulatedStream for Echo {
        fn receive(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
            (&self.0[..]).read_vectored(parts)
        }

        fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
            let taken: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).take(3).collect();
            self.0.extend(&taken);
            Ok(taken.len())
        }

        fn shutdown(&mut self, _how: Shutdown) {}

        fn readiness(&self) -> Readiness {
            Readiness { readable: !self.0.is_empty(), writable: true, closed: false }
        }
    }

    #[test]
    fn a_socket_and_a_simulated_stream_are_used_alike() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = Stream::from(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let mut receiver = Stream::from(listener.accept().unwrap().0);
        let parts = [IoSlice::new(b"ab"), IoSlice::new(b"cd")];
        assert_eq!(sender.send(&parts, false).unwrap(), 4);
        let mut first = [0; 1];
        let mut second = [0; 8];
        let taken = receiver.receive_parts(&mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)]).unwrap();
        assert_eq!((taken, &first, &second[..3]), (4, b"a", &b"bcd"[..]));
        sender.shutdown(Shutdown::Both);
        assert_eq!(receiver.receive(&mut second).unwrap(), 0);
        assert!(sender.descriptor().is_some() && sender.readiness().is_none());

        let mut simulated = Stream::simulated(Box::<Echo>::default());
        assert_eq!(simulated.send(&parts, false).unwrap(), 3);
        assert!(simulated.readiness().unwrap().readable && simulated.descriptor().is_none());
        assert_eq!(simulated.receive(&mut second).unwrap(), 3);
        assert_eq!(&second[..3], b"abc");
    }

    #[test]
    fn a_socket_is_sent_to_without_a_copy_and_no_other_stream_is() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        ebof_pinned::enable(&socket).unwrap();
        let mut stream = Stream::from(socket);
        let parts = [IoSlice::new(b"abcd")];
        assert!(stream.wire().is_some());
        assert_eq!(stream.send_pinned(&parts, false).unwrap(), Some(4));

        let mut simulated = Stream::simulated(Box::<Echo>::default());
        assert!(simulated.wire().is_none());
        assert_eq!(simulated.send_pinned(&parts, false).unwrap(), None);
        assert!(!simulated.readiness().unwrap().readable, "nothing of it was sent");
    }

    /// Changes each byte, and has received more than it was asked for.
    #[derive(Default)]
    struct Inverted {
        received: Vec<u8>,
        ended: Arc<AtomicBool>,
    }

    impl Layer for Inverted {
        fn receive(&mut self, mut socket: &TcpStream, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
            let mut bytes = [0; 64];
            let taken = socket.read(&mut bytes)?;
            self.received.extend(bytes[..taken].iter().map(|byte| !byte));
            let filled = (&self.received[..]).read_vectored(parts)?;
            self.received.drain(..filled);
            Ok(filled)
        }

        fn send(&mut self, mut socket: &TcpStream, parts: &[IoSlice<'_>], _more: bool) -> io::Result<usize> {
            let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().map(|byte| !byte)).collect();
            socket.write(&bytes)
        }

        fn has_received(&self) -> bool {
            !self.received.is_empty()
        }

        fn name(&self) -> &'static str {
            "inverted"
        }

        fn end(&mut self, _socket: &TcpStream) {
            self.ended.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn nothing_of_a_layered_stream_goes_past_its_layer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut peer = listener.accept().unwrap().0;
        ebof_pinned::enable(&socket).unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let layer = Inverted { ended: Arc::clone(&ended), ..Inverted::default() };
        let mut stream = Stream::layered(socket, Box::new(layer));
        assert!(stream.wire().is_none() && stream.descriptor().is_some() && stream.readiness().is_none());
        assert_eq!(stream.layer(), Some("inverted"));
        assert_eq!(stream.send_pinned(&[IoSlice::new(b"secret")], false).unwrap(), None);
        assert_eq!(stream.send(&[IoSlice::new(b"ab"), IoSlice::new(b"c")], false).unwrap(), 3);
        let mut wire = [0; 3];
        peer.read_exact(&mut wire).unwrap();
        assert_eq!(wire, [!b'a', !b'b', !b'c']);

        peer.write_all(&wire).unwrap();
        let mut two = [0; 2];
        assert!(!stream.has_received());
        assert_eq!((stream.receive(&mut two).unwrap(), &two), (2, b"ab"));
        assert!(stream.has_received());
        stream.shutdown(Shutdown::Read);
        assert!(!ended.load(Ordering::Relaxed));
        stream.close();
        assert!(ended.load(Ordering::Relaxed));
    }

    #[test]
    fn the_end_of_a_connection_is_detected_before_its_data_are_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = Stream::from(listener.accept().unwrap().0);
        client.write_all(&[7; 4096]).unwrap();
        assert!(!stream.peer_is_gone());
        drop(client);
        let mut fds = [PollFd::from_borrowed_fd(stream.descriptor().unwrap(), PollFlags::RDHUP)];
        poll(&mut fds, None).unwrap();
        assert!(stream.peer_is_gone());
    }
}
