//! Connections within the machine, keys, and what drives two ends that never wait.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use ebof_authentication::{Hash, KeyMaterial};
use ebof_sockets::Stream;
use ebof_tls::{ClientHandshake, HandshakeError, Progress, RecordsBy, Secured, ServerHandshake, TlsPsk};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::SockRef;

pub(crate) const IDENTITY: &str = "NVMe1R01 nqn.2014-08.org.example:host nqn.2014-08.org.example:sub digest=";

/// Both ends of a connection, which do not block.
pub(crate) fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let server = listener.accept().unwrap().0;
    for socket in [&client, &server] {
        socket.set_nonblocking(true).unwrap();
        socket.set_nodelay(true).unwrap();
    }
    (client, server)
}

/// The same, with little room in between.
pub(crate) fn narrow_pair() -> (TcpStream, TcpStream) {
    let (client, server) = pair();
    for socket in [&client, &server] {
        SockRef::from(socket).set_send_buffer_size(20_000).unwrap();
        SockRef::from(socket).set_recv_buffer_size(30_000).unwrap();
    }
    (client, server)
}

pub(crate) fn psk(hash: Hash, byte: u8) -> TlsPsk {
    TlsPsk::new(IDENTITY.into(), hash, KeyMaterial::new(vec![byte; hash.bytes()])).unwrap()
}

/// Waits until one of the descriptors is ready for what it is paired with.
pub(crate) fn wait(for_what: &[(BorrowedFd<'_>, PollFlags)]) {
    let mut fds: Vec<PollFd<'_>> =
        for_what.iter().map(|(descriptor, flags)| PollFd::from_borrowed_fd(*descriptor, *flags)).collect();
    let time = Timespec { tv_sec: 20, tv_nsec: 0 };
    assert!(poll(&mut fds, Some(&time)).unwrap() > 0, "nothing happens any more");
}

/// One end of a handshake.
pub(crate) enum End<'a> {
    Client(ClientHandshake),
    Server(ServerHandshake, &'a mut dyn FnMut(&str) -> Vec<TlsPsk>),
}

impl End<'_> {
    pub(crate) fn advance(&mut self) -> Result<Progress, HandshakeError> {
        match self {
            Self::Client(client) => client.advance(),
            Self::Server(server, find) => server.advance(find),
        }
    }

    fn socket(&self) -> Option<&TcpStream> {
        match self {
            Self::Client(client) => client.socket(),
            Self::Server(server, _) => server.socket(),
        }
    }
}

pub(crate) type Outcome = Result<Secured, HandshakeError>;

/// Until both ends are done or have failed.
pub(crate) fn drive(ends: [End<'_>; 2]) -> [Outcome; 2] {
    let mut outcomes: [Option<Outcome>; 2] = [None, None];
    let mut ends = ends.map(Some);
    loop {
        let mut flags = [PollFlags::empty(); 2];
        for ((end, outcome), flags) in ends.iter_mut().zip(&mut outcomes).zip(&mut flags) {
            if outcome.is_some() {
                continue;
            }
            match end.as_mut().unwrap().advance() {
                Ok(Progress::Readable) => *flags = PollFlags::IN,
                Ok(Progress::Writable) => *flags = PollFlags::OUT,
                Ok(Progress::Done(secured)) => *outcome = Some(Ok(secured)),
                Err(error) => {
                    *outcome = Some(Err(error));
                    *end = None;
                }
            }
        }
        if outcomes.iter().all(Option::is_some) {
            return outcomes.map(Option::unwrap);
        }
        let waits: Vec<_> = ends
            .iter()
            .flatten()
            .zip(flags)
            .filter(|(_, flags)| !flags.is_empty())
            .map(|(end, flags)| (end.socket().unwrap().as_fd(), flags))
            .collect();
        wait(&waits);
    }
}

/// Two ends with these keys.
pub(crate) fn connect(
    (client, server): (TcpStream, TcpStream),
    key: TlsPsk,
    find: &mut dyn FnMut(&str) -> Vec<TlsPsk>,
) -> [Outcome; 2] {
    drive([End::Client(ClientHandshake::new(client, key)), End::Server(ServerHandshake::new(server), find)])
}

/// Two streams.
pub(crate) fn streams(pair: (TcpStream, TcpStream), hash: Hash) -> [Stream; 2] {
    connect(pair, psk(hash, 7), &mut |_| vec![psk(hash, 7)]).map(|outcome| outcome.unwrap().stream)
}

/// The same, with records of these kinds, which are those in use.
pub(crate) fn streams_by((client, server): (TcpStream, TcpStream), hash: Hash, by: [RecordsBy; 2]) -> [Stream; 2] {
    let ends = [
        End::Client(ClientHandshake::new(client, psk(hash, 7)).with_records(by[0])),
        End::Server(ServerHandshake::new(server).with_records(by[1]), &mut |_| vec![psk(hash, 7)]),
    ];
    let secured = drive(ends).map(Result::unwrap);
    for (secured, by) in secured.iter().zip(by) {
        assert_eq!((secured.records, secured.not_in_kernel), (by, None));
    }
    secured.map(|secured| secured.stream)
}

pub(crate) fn is_blocked<T>(result: &io::Result<T>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// Receives what comes until `count` bytes are there, or the end.
pub(crate) fn receive(stream: &mut Stream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    let mut filled = 0;
    while filled < count {
        let received = stream.receive(&mut bytes[filled..]);
        if is_blocked(&received) {
            wait(&[(stream.descriptor().unwrap(), PollFlags::IN)]);
            continue;
        }
        match received.unwrap() {
            0 => break,
            more => filled += more,
        }
    }
    bytes.truncate(filled);
    bytes
}

/// Sends all of it.
pub(crate) fn send(stream: &mut Stream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let sent = stream.send(&[io::IoSlice::new(bytes)], false);
        if is_blocked(&sent) {
            wait(&[(stream.descriptor().unwrap(), PollFlags::OUT)]);
            continue;
        }
        bytes = &bytes[sent.unwrap()..];
    }
}

/// Until there is something to receive.
pub(crate) fn wait_for_data(stream: &Stream) {
    if !stream.has_received() {
        wait(&[(stream.descriptor().unwrap(), PollFlags::IN)]);
    }
}
