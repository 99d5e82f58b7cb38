//! The client's socket: messages in, answers out, and the descriptors that travel beside them.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use ebof_vfio::message::{Broken, DESCRIPTORS_MAX, Decoder, MESSAGE_BYTES_MAX};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// One client.
#[derive(Debug)]
pub(crate) struct DirectClient {
    socket: UnixStream,
    pub(crate) decoder: Decoder,
    /// Those that came and were not taken by a message.
    descriptors: VecDeque<OwnedFd>,
    /// Answers, of which the first `sent` bytes are sent: at most twice [`UNSENT_MAX`], and one
    /// answer.
    pub(crate) out: Vec<u8>,
    sent: usize,
    /// Descriptors that go with the bytes of `out` at these places, in order: at most
    /// [`ATTACHED_MAX`].
    attached: VecDeque<(usize, OwnedFd)>,
    /// The last call of the system brought less than it could have.
    is_drained: bool,
}

/// Why a client is left.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Left {
    #[error("it closed the connection")]
    Closed,
    #[error("the socket failed: {0}")]
    Socket(#[from] Errno),
    #[error("it broke vfio-user: {0}")]
    Broken(#[from] Broken),
    #[error("it broke vfio-user: more descriptors came than messages have")]
    Descriptors,
    #[error("the port was removed")]
    PortGone,
}

/// Descriptors that the system passes with one message at most (`SCM_MAX_FD`). All of them are
/// taken: those without room are closed by the kernel, in the call that receives, which may take as
/// long as that does.
const PASSED_MAX: usize = 253;

/// Bytes that one call of the system receives.
const RECEIVE_BYTES: usize = 16 << 10;

/// Descriptors that wait for their answers to be sent, beyond which no more is received.
const ATTACHED_MAX: usize = 16;

/// Answers that are not read yet, in bytes, beyond which no more is received.
const UNSENT_MAX: usize = 64 << 10;

impl DirectClient {
    pub(crate) fn new(socket: UnixStream) -> Self {
        Self {
            socket,
            decoder: Decoder::new(),
            descriptors: VecDeque::new(),
            out: Vec::new(),
            sent: 0,
            attached: VecDeque::new(),
            is_drained: false,
        }
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the client has closed its end, or is gone.
    pub(crate) fn is_gone(&self) -> bool {
        let flags = rustix::event::PollFlags::IN;
        let mut set = [rustix::event::PollFd::new(&self.socket, flags)];
        let nothing = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let polled = rustix::event::poll(&mut set, Some(&nothing));
        polled.is_ok() && set[0].revents().intersects(rustix::event::PollFlags::HUP | rustix::event::PollFlags::ERR)
    }

    /// The client sees that it is left, also while the descriptors that it sent are being closed.
    pub(crate) fn hang_up(&self) {
        // It may be gone itself.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Whether answers wait because the client does not read them.
    pub(crate) fn is_blocked(&self) -> bool {
        self.out.len() > self.sent
    }

    /// Whether it takes more messages.
    pub(crate) fn has_room(&self) -> bool {
        self.out.len() - self.sent <= UNSENT_MAX && self.attached.len() < ATTACHED_MAX
    }

    /// Takes what one call of the system brings, once the messages of the last one are done.
    /// `false`: nothing is there, as far as that is known; else an event tells.
    ///
    /// # Errors
    /// It is gone, or sends what is not to be followed.
    pub(crate) fn receive(&mut self) -> Result<bool, Left> {
        if std::mem::take(&mut self.is_drained) {
            return Ok(false);
        }
        debug_assert!(self.decoder.kept() < MESSAGE_BYTES_MAX as usize, "whole messages are left");
        // What no message took belongs to the one that has come in part.
        if self.descriptors.len() > DESCRIPTORS_MAX {
            return Err(Left::Descriptors);
        }
        let mut bytes = [0; RECEIVE_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut into = [std::io::IoSliceMut::new(&mut bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = match recvmsg(&self.socket, &mut into, &mut control, flags) {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let before = self.descriptors.len();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        if received.bytes == 0 {
            return Err(Left::Closed);
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(Left::Descriptors);
        }
        let came = self.descriptors.len() - before;
        self.is_drained = received.bytes < RECEIVE_BYTES && came == 0;
        self.decoder.push(&bytes[..received.bytes], came);
        Ok(true)
    }

    /// The descriptors of a message.
    pub(crate) fn take_descriptors(&mut self, count: usize) -> VecDeque<OwnedFd> {
        assert!(count <= self.descriptors.len(), "the decoder was told of as many as came");
        let rest = self.descriptors.split_off(count);
        std::mem::replace(&mut self.descriptors, rest)
    }

    /// The last answer goes with a descriptor.
    pub(crate) fn attach(&mut self, answer_begins: usize, descriptor: OwnedFd) {
        self.attached.push_back((answer_begins, descriptor));
    }

    /// Sends answers.
    ///
    /// # Errors
    /// The socket has failed.
    pub(crate) fn flush(&mut self) -> Result<(), Left> {
        while self.is_blocked() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            // Each call of the system takes one of them, with its first byte.
            let next = self.attached.iter().map(|(at, _)| *at).find(|at| *at > self.sent);
            let until = next.unwrap_or(self.out.len());
            let attached;
            if let Some((at, descriptor)) = self.attached.front()
                && *at == self.sent
            {
                attached = [descriptor.as_fd()];
                control.push(SendAncillaryMessage::ScmRights(&attached));
            }
            let from = [IoSlice::new(&self.out[self.sent..until])];
            match sendmsg(&self.socket, &from, &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    if sent > 0 && self.attached.front().is_some_and(|(at, _)| *at == self.sent) {
                        self.attached.pop_front();
                    }
                    self.sent += sent;
                }
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(error) => return Err(error.into()),
            }
        }
        // A client that always leaves something must not have what was sent kept for ever.
        if !self.is_blocked() || self.sent >= UNSENT_MAX {
            self.forget_sent();
        }
        Ok(())
    }

    fn forget_sent(&mut self) {
        self.out.drain(..self.sent);
        for (at, _) in &mut self.attached {
            // It is taken when its byte is sent.
            *at -= self.sent;
        }
        self.sent = 0;
    }
}

impl Drop for DirectClient {
    /// What was not read is read: otherwise the client's next call would fail with ECONNRESET, in
    /// place of the end of the stream, and QEMU (11.1) aborts at that.
    fn drop(&mut self) {
        self.hang_up();
        // From here on nothing comes; what the socket holds has an end.
        loop {
            self.decoder = Decoder::new();
            self.descriptors.clear();
            self.is_drained = false;
            if !self.receive().is_ok_and(|came| came) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn a_client_that_is_left_sees_the_end_of_the_stream() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut client = DirectClient::new(ours);
        theirs.write_all(&[0; 16]).unwrap();
        assert!(client.receive().unwrap());
        theirs.write_all(&[0; 3 * RECEIVE_BYTES]).unwrap();
        drop(client);
        let mut bytes = [0; 16];
        assert_eq!(theirs.read(&mut bytes).unwrap(), 0);
        assert!(theirs.write(&[0]).is_err());
    }
    /// Takes some bytes: how many, and whether a descriptor came with them.
    fn take(socket: &UnixStream, into: &mut [u8]) -> (usize, bool) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(socket, &mut [std::io::IoSliceMut::new(into)], &mut control, RecvFlags::empty());
        (received.unwrap().bytes, control.drain().count() > 0)
    }

    #[test]
    fn answers_of_one_turn_have_their_descriptors_each() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut client = DirectClient::new(ours);
        for answer in 0..3_u8 {
            client.out.push(b'.');
            client.attach(client.out.len(), tempfile::tempfile().unwrap().into());
            client.out.push(b'0' + answer);
        }
        client.flush().unwrap();
        // What comes with a descriptor ends what one call receives; what comes before may be with
        // it.
        let mut answers = Vec::new();
        let mut received = 0;
        while received < 6 {
            let mut bytes = [0; 16];
            let (count, has_descriptor) = take(&theirs, &mut bytes);
            if has_descriptor {
                answers.push(bytes[..count].iter().copied().filter(u8::is_ascii_digit).collect::<Vec<u8>>());
            }
            received += count;
        }
        assert_eq!(answers, [b"0", b"1", b"2"]);
        while client.has_room() {
            client.attach(client.out.len(), tempfile::tempfile().unwrap().into());
            client.out.push(b'x');
        }
        assert_eq!(client.attached.len(), ATTACHED_MAX);
    }

    #[test]
    fn answers_that_were_sent_are_not_kept_although_others_always_wait() {
        const ANSWER: usize = 4096;
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut client = DirectClient::new(ours);
        let (mut answered, mut taken) = (0_usize, 0_usize);
        let mut attached = Vec::new();
        let mut came = Vec::new();
        while taken < 4 << 20 {
            while client.has_room() {
                if answered % (100 * ANSWER) == 0 && client.attached.is_empty() {
                    client.attach(client.out.len(), tempfile::tempfile().unwrap().into());
                    attached.push(answered);
                }
                client.out.extend((answered..answered + ANSWER).map(|at| (at / 251).to_le_bytes()[0]));
                answered += ANSWER;
            }
            client.flush().unwrap();
            if !client.is_blocked() {
                // The socket is not full yet.
                continue;
            }
            assert!(client.out.len() <= 2 * UNSENT_MAX + ANSWER, "{} bytes are kept", client.out.len());
            let mut bytes = [0; 1000];
            let (count, has_descriptor) = take(&theirs, &mut bytes);
            assert!((taken..).zip(&bytes[..count]).all(|(at, byte)| *byte == (at / 251).to_le_bytes()[0]));
            if has_descriptor {
                came.push(taken..taken + count);
            }
            taken += count;
        }
        assert!(came.len() > 2 && attached.len() - came.len() <= 1, "{attached:?} {came:?}");
        assert!(came.iter().zip(&attached).all(|(with, at)| with.contains(at)), "{attached:?} {came:?}");
    }
}
