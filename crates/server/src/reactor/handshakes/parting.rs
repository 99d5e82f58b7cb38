//! The end of a connection whose host is told why in its last bytes.
//!
//! What a host has sent and nobody has read makes the kernel reset a connection that is closed, and
//! a reset destroys what is on its way to the host. So nothing more is sent, and what comes is
//! thrown away, until the host has closed its end. How long that may take is the caller's.

use std::io::{self, Read as _};
use std::net::{Shutdown, TcpStream};

use ebof_tls::Alert;

/// What of a host is thrown away, bytes: its first PDU, and what a fast one has sent behind it.
const BYTES_MAX: usize = 256 << 10;

/// One such connection.
pub(super) struct Parting {
    socket: TcpStream,
    /// Bytes that it may still send.
    left: usize,
}

impl Parting {
    /// Of a connection that does not block and is in the clear.
    pub(super) fn begin(socket: TcpStream, alert: Alert) -> Self {
        alert.send_in_the_clear(&socket);
        // Fails where the host has gone, which is found in the next step.
        let _ = socket.shutdown(Shutdown::Write);
        Self { socket, left: BYTES_MAX }
    }

    /// Throws away what is there. Whether the host has closed its end, or sends without an end.
    pub(super) fn is_over(&mut self) -> bool {
        let mut bytes = [0; 4096];
        while self.left > 0 {
            match self.socket.read(&mut bytes) {
                Ok(0) => return true,
                Ok(count) => self.left = self.left.saturating_sub(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
        true
    }
}
