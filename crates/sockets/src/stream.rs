//! The byte stream of a TCP connection: a socket, or a simulated one.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

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

/// A stream without blocking.
pub enum Stream {
    /// The system's; set not to block by who made it.
    Socket(TcpStream),
    /// One of a simulation.
    Simulated(Box<dyn SimulatedStream>),
}

impl Stream {
    /// The socket, where it is one.
    #[must_use]
    pub fn socket(&self) -> Option<&TcpStream> {
        match self {
            Self::Socket(socket) => Some(socket),
            Self::Simulated(_) => None,
        }
    }

    /// Its descriptor, where it has one.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.socket().map(AsFd::as_fd)
    }

    /// What can be done with a simulated stream; `None` for a socket, which the system is asked
    /// about.
    #[must_use]
    pub fn readiness(&self) -> Option<Readiness> {
        match self {
            Self::Socket(_) => None,
            Self::Simulated(stream) => Some(stream.readiness()),
        }
    }

    /// Fills `buffer` with what is there. 0 bytes are the end of the stream.
    ///
    /// # Errors
    /// Nothing is there, or the connection is broken.
    #[inline]
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Socket(socket) => socket.read(buffer),
            Self::Simulated(stream) => stream.receive(&mut [IoSliceMut::new(buffer)]),
        }
    }

    /// As [`Stream::receive`], into several parts in their order.
    ///
    /// # Errors
    /// Nothing is there, or the connection is broken.
    pub fn receive_parts(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Self::Socket(socket) => socket.read_vectored(parts),
            Self::Simulated(stream) => stream.receive(parts),
        }
    }

    /// Sends what there is room for, and says how many bytes. `more` follows at once: the system
    /// may wait for it.
    ///
    /// # Errors
    /// There is no room, or the connection is broken.
    #[inline]
    pub fn send(&mut self, parts: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        match self {
            Self::Socket(socket) => {
                let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                flags.set(SendFlags::MORE, more);
                Ok(sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), flags)?)
            }
            Self::Simulated(stream) => stream.send(parts),
        }
    }

    /// Ends the stream, in one direction or both.
    pub fn shutdown(&mut self, how: Shutdown) {
        match self {
            // Fails when the peer is gone already.
            Self::Socket(socket) => _ = socket.shutdown(how),
            Self::Simulated(stream) => stream.shutdown(how),
        }
    }
}

impl From<TcpStream> for Stream {
    fn from(socket: TcpStream) -> Self {
        Self::Socket(socket)
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(socket) => socket.fmt(f),
            Self::Simulated(_) => f.write_str("Simulated"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

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

        let mut simulated = Stream::Simulated(Box::<Echo>::default());
        assert_eq!(simulated.send(&parts, false).unwrap(), 3);
        assert!(simulated.readiness().unwrap().readable && simulated.descriptor().is_none());
        assert_eq!(simulated.receive(&mut second).unwrap(), 3);
        assert_eq!(&second[..3], b"abc");
    }
}
