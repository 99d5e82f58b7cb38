//! Why records are not accepted any more.

use std::io;

use thiserror::Error;

use crate::alert::Alert;

/// Why a connection cannot go on, as the cause of an [`io::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// The peer ended it.
    #[error("the peer ended the TLS connection with {0}")]
    Alert(Alert),
    /// It was changed on its way, or encrypted with another key.
    #[error("a TLS record cannot be decrypted: it was changed on its way, or the ends have lost each other's keys")]
    Decrypt,
    /// A record is longer than TLS allows.
    #[error("a TLS record of {bytes} bytes is longer than the protocol allows")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// A record that is not encrypted, or of an unknown type.
    #[error("a TLS record of type {kind} does not belong there: the connection is encrypted")]
    Record {
        /// Its type.
        kind: u8,
    },
    /// A record in which there is nothing but padding.
    #[error("a TLS record has no type in it")]
    NoType,
    /// A handshake message that has nothing to do there.
    #[error("a TLS handshake message of type {kind} does not belong behind the handshake")]
    Message {
        /// Its type.
        kind: u8,
    },
    /// A handshake message that cannot be decoded.
    #[error("a TLS handshake message of type {kind} is malformed")]
    Malformed {
        /// Its type.
        kind: u8,
    },
    /// Something else is between the parts of a message.
    #[error("the parts of a TLS handshake message are not one behind the other")]
    Interleaved,
    /// Records that move nothing.
    #[error("more than {max} TLS records in a row have no data: the peer makes work and transfers nothing")]
    Flood {
        /// Most that are accepted.
        max: u32,
    },
    /// All sequence numbers of a key were used.
    #[error("all sequence numbers of a TLS key were used, and the peer does not change it")]
    Exhausted,
    /// The kernel opens the records, and does not say more.
    #[error("a TLS record has a header that the protocol does not allow, or is too long")]
    Header,
    /// The peer changes its key, and the kernel that opens its records cannot follow.
    #[error(
        "the peer changes its TLS key, and this kernel's TLS cannot (Linux 6.14 and later can): the connection has to be \
         made again; `tls_records` \"own\" (--tls-records own) has no such limit"
    )]
    KeyIsFixed,
    /// The kernel that makes the records cannot change this end's key, which has to be changed.
    #[error(
        "a TLS key has to be changed now, and this kernel's TLS cannot (Linux 6.14 and later can): the connection has to \
         be made again; `tls_records` \"own\" (--tls-records own) has no such limit"
    )]
    KeyIsUsedUp,
    /// The library refused to encrypt, or to make a key.
    #[error("the TLS connection cannot be continued: aws-lc refused to work with its keys")]
    Library,
    /// This end has ended it.
    #[error("the TLS connection was ended here")]
    Ended,
}

impl RecordError {
    /// What the peer is told.
    pub(crate) fn alert(self) -> Option<Alert> {
        match self {
            Self::Alert(_) | Self::Ended => None,
            Self::Decrypt => Some(Alert::BAD_RECORD_MAC),
            Self::TooLong { .. } => Some(Alert::RECORD_OVERFLOW),
            Self::Record { .. } | Self::NoType | Self::Message { .. } | Self::Interleaved | Self::Flood { .. } => {
                Some(Alert::UNEXPECTED_MESSAGE)
            }
            Self::Malformed { .. } => Some(Alert::DECODE_ERROR),
            Self::Header => Some(Alert::DECODE_ERROR),
            Self::Exhausted | Self::KeyIsFixed | Self::KeyIsUsedUp | Self::Library => Some(Alert::INTERNAL_ERROR),
        }
    }
}

impl From<RecordError> for io::Error {
    fn from(fault: RecordError) -> Self {
        let kind = match fault {
            RecordError::Alert(_) | RecordError::KeyIsFixed | RecordError::KeyIsUsedUp => {
                io::ErrorKind::ConnectionAborted
            }
            RecordError::Ended => io::ErrorKind::NotConnected,
            _ => io::ErrorKind::InvalidData,
        };
        Self::new(kind, fault)
    }
}
