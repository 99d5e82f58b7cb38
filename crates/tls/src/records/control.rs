//! Records that are no data: alerts, and the messages that may come behind a handshake. It is the
//! same whoever opens the records.
//!
//! Owns the beginning of a message that is not complete, and the count of records in a row without
//! data. It changes no key and ends no stream: it says what a record asks for.

use super::error::RecordError;
use super::{KEY_UPDATE, content};
use crate::alert::Alert;

/// What has come that is no data.
pub(super) struct ControlRecords {
    /// The beginning of a handshake message.
    message: Vec<u8>,
    /// Records in a row without data.
    idle: u32,
}

/// What a record asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerAsks {
    Nothing,
    /// The peer sends nothing more.
    End,
    /// The peer's next record has its next key (RFC 8446, 4.6.3).
    NextKey {
        /// It wants the same of this end.
        from_both: bool,
    },
}

/// Records in a row that may have no data, whatever else they have.
const IDLE_MAX: u32 = 32;
/// Most bytes of a handshake message: tickets, which other libraries send, have some hundreds.
const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// RFC 8446, 4.6.1.
const NEW_SESSION_TICKET: u8 = 4;
/// RFC 8446, 4: msg_type and length.
const MESSAGE_HEADER_BYTES: usize = 4;

impl ControlRecords {
    pub(super) fn new() -> Self {
        Self { message: Vec::new(), idle: 0 }
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.message.capacity()
    }

    /// RFC 8446, 5.1: nothing is between the parts of a message.
    pub(super) fn check_order(&self, kind: u8) -> Result<(), RecordError> {
        if kind != content::HANDSHAKE && !self.message.is_empty() { Err(RecordError::Interleaved) } else { Ok(()) }
    }

    /// A record had data.
    pub(super) fn note_data(&mut self) {
        self.idle = 0;
    }

    /// Takes a record without data, whose order was checked.
    pub(super) fn take(&mut self, kind: u8, record: &[u8]) -> Result<PeerAsks, RecordError> {
        self.idle += 1;
        if self.idle > IDLE_MAX {
            return Err(RecordError::Flood { max: IDLE_MAX });
        }
        match kind {
            content::APPLICATION_DATA => Ok(PeerAsks::Nothing),
            content::ALERT => take_alert(record),
            content::HANDSHAKE if record.is_empty() => Err(RecordError::Message { kind: 0 }),
            content::HANDSHAKE => self.take_messages(record),
            kind => Err(RecordError::Record { kind }),
        }
    }

    fn take_messages(&mut self, record: &[u8]) -> Result<PeerAsks, RecordError> {
        self.message.extend_from_slice(record);
        let mut asked = PeerAsks::Nothing;
        while let Some(&[kind, high, middle, low]) = self.message.first_chunk() {
            let body = usize::from(high) * 0x1_0000 + usize::from(middle) * 0x100 + usize::from(low);
            let whole = MESSAGE_HEADER_BYTES + body;
            if !matches!(kind, NEW_SESSION_TICKET | KEY_UPDATE) {
                return Err(RecordError::Message { kind });
            }
            if whole > MESSAGE_BYTES_MAX || (kind == KEY_UPDATE && body != 1) {
                return Err(RecordError::Malformed { kind });
            }
            if self.message.len() < whole {
                break;
            }
            if kind == KEY_UPDATE {
                asked = self.key_update()?;
            }
            // Tickets are for sessions without the configured key.
            self.message.drain(..whole);
        }
        if self.message.is_empty() {
            self.message = Vec::new();
        }
        Ok(asked)
    }

    /// RFC 8446, 4.6.3.
    fn key_update(&self) -> Result<PeerAsks, RecordError> {
        const KIND: RecordError = RecordError::Malformed { kind: KEY_UPDATE };
        // RFC 8446, 5.1: what follows has another key, and begins a record.
        let &[.., requested] = &self.message[..] else { return Err(KIND) };
        if self.message.len() != MESSAGE_HEADER_BYTES + 1 {
            return Err(KIND);
        }
        match requested {
            0 => Ok(PeerAsks::NextKey { from_both: false }),
            1 => Ok(PeerAsks::NextKey { from_both: true }),
            _ => Err(KIND),
        }
    }
}

/// RFC 8446, 6: a level, which means nothing, and a description.
fn take_alert(record: &[u8]) -> Result<PeerAsks, RecordError> {
    let &[_level, description] = record else {
        return Err(RecordError::Malformed { kind: content::ALERT });
    };
    match Alert(description) {
        Alert::CLOSE_NOTIFY => Ok(PeerAsks::End),
        // It is followed by close_notify.
        Alert::USER_CANCELED => Ok(PeerAsks::Nothing),
        alert => Err(RecordError::Alert(alert)),
    }
}
