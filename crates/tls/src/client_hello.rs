//! Reads what a target has to know of a ClientHello before s2n-tls gets it: which pre-shared keys
//! the host offers, and their binders (RFC 8446, 4.1.2 and 4.2.11). Everything else is s2n-tls' to
//! check. Pure and bounded: no byte of a peer reaches an index.

use std::cmp::Ordering;

use thiserror::Error;

/// Most bytes of a ClientHello with its header. One with a single identity has some 300.
pub(crate) const HELLO_BYTES_MAX: usize = 16 << 10;
/// Most bytes of it as records, which may be as small as one byte each.
pub(crate) const RECORDS_BYTES_MAX: usize = 2 * HELLO_BYTES_MAX;
/// Most identities that are looked at. NVMe/TCP's hosts offer one.
pub(crate) const OFFERS_MAX: usize = 16;

/// What a ClientHello says.
#[derive(Debug)]
pub(crate) struct ClientHello {
    message: Vec<u8>,
    /// Length of the message up to its list of binders.
    truncated: usize,
    /// The cipher suites.
    pub(crate) suites: Vec<u16>,
    /// It speaks TLS 1.3.
    pub(crate) is_tls13: bool,
    /// It can use a pre-shared key together with (EC)DHE.
    pub(crate) has_psk_dhe_ke: bool,
    /// The keys that it offers, in their order, at most [`OFFERS_MAX`]; none at all if it has no
    /// such extension.
    pub(crate) offers: Vec<Offer>,
}

/// A key that is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) identity: Vec<u8>,
    pub(crate) binder: Vec<u8>,
}

/// What is wrong with a ClientHello.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HelloError {
    /// The first record is of another type.
    #[error("its first record is of type {kind}, and a handshake has 22")]
    Record {
        /// The type.
        kind: u8,
    },
    /// The first message is another one.
    #[error("its first message is of type {kind}, and a ClientHello has 1")]
    Message {
        /// The type.
        kind: u8,
    },
    /// It has no end.
    #[error("it has more than {HELLO_BYTES_MAX} bytes")]
    TooLarge,
    /// A field does not fit, or is where it must not be.
    #[error("its {field} is malformed (RFC 8446, 4)")]
    Field {
        /// Which one.
        field: &'static str,
    },
}

impl ClientHello {
    /// Reads the first bytes of a connection; `None` if there are too few yet.
    pub(crate) fn read(received: &[u8]) -> Result<Option<Self>, HelloError> {
        let Some(message) = message(received)? else { return Ok(None) };
        Self::decode(message).map(Some)
    }

    /// The message up to its list of binders: what binders are computed of.
    pub(crate) fn truncated(&self) -> &[u8] {
        &self.message[..self.truncated]
    }

    /// RFC 8446, 4.1.2.
    fn decode(message: Vec<u8>) -> Result<Self, HelloError> {
        let mut found = Extensions::default();
        let mut reader = Reader::new(message.get(HEADER_BYTES..).unwrap_or_default(), "ClientHello");
        let _legacy_version = reader.u16()?;
        let _random = reader.take(32)?;
        let _session = reader.short_list("legacy_session_id")?;
        let suites = reader.list("cipher_suites")?.all(Reader::u16)?;
        let _compression = reader.short_list("legacy_compression_methods")?;
        // Without extensions, it is an older version's.
        if !reader.is_empty() {
            let mut extensions = reader.list("extensions")?;
            reader.end()?;
            while !extensions.is_empty() {
                let kind = extensions.u16()?;
                let content = extensions.list("extension")?;
                found.read(kind, content, extensions.is_empty())?;
            }
        }
        let truncated = message.len().checked_sub(found.binders_bytes).expect("the binders are the message's end");
        let Extensions { versions, modes, offers, .. } = found;
        let is_tls13 = versions.is_some_and(|versions| versions.contains(&TLS_1_3));
        let has_psk_dhe_ke = modes.is_some_and(|modes| modes.contains(&PSK_DHE_KE));
        Ok(Self { message, truncated, suites, is_tls13, has_psk_dhe_ke, offers: offers.unwrap_or_default() })
    }
}

/// RFC 8446, 4.2.1, supported_versions.
const TLS_1_3: u16 = 0x0304;
/// RFC 8446, 4.2.9, psk_key_exchange_modes.
const PSK_DHE_KE: u8 = 1;
/// RFC 8446, 4: msg_type and length.
const HEADER_BYTES: usize = 4;
/// RFC 8446, 5.1: the most bytes of a fragment.
const FRAGMENT_BYTES_MAX: usize = 1 << 14;

/// The message that the first records have; `None` if not all of it is there.
fn message(received: &[u8]) -> Result<Option<Vec<u8>>, HelloError> {
    let mut message = Vec::new();
    let mut rest = received;
    let mut is_cut = false;
    loop {
        if let Some(&kind) = message.first()
            && kind != CLIENT_HELLO
        {
            return Err(HelloError::Message { kind });
        }
        if let Some(&[_, high, middle, low]) = message.first_chunk() {
            let whole = HEADER_BYTES + usize::from(high) * 0x1_0000 + usize::from(middle) * 0x100 + usize::from(low);
            if whole > HELLO_BYTES_MAX {
                return Err(HelloError::TooLarge);
            }
            match message.len().cmp(&whole) {
                Ordering::Less => {}
                Ordering::Equal if !is_cut => return Ok(Some(message)),
                // RFC 8446, 5.1: the next message has other keys, and begins a record.
                Ordering::Equal | Ordering::Greater => return Err(HelloError::Field { field: "length" }),
            }
        }
        if is_cut {
            break;
        }
        let Some((&[kind, major, _, high, low], behind)) = rest.split_first_chunk() else { break };
        let length = usize::from(high) * 0x100 + usize::from(low);
        if kind != HANDSHAKE || major != 3 {
            return Err(HelloError::Record { kind });
        }
        // RFC 8446, 5.1: no fragment of a handshake message is empty.
        if length == 0 || length > FRAGMENT_BYTES_MAX {
            return Err(HelloError::Field { field: "record length" });
        }
        is_cut = behind.len() < length;
        let (fragment, behind) = behind.split_at(length.min(behind.len()));
        message.extend_from_slice(fragment);
        rest = behind;
    }
    if received.len() > RECORDS_BYTES_MAX { Err(HelloError::TooLarge) } else { Ok(None) }
}

/// RFC 8446, 5.1: ContentType.
const HANDSHAKE: u8 = 22;
/// RFC 8446, 4: HandshakeType.
const CLIENT_HELLO: u8 = 1;

/// The extensions that matter here.
#[derive(Default)]
struct Extensions {
    versions: Option<Vec<u16>>,
    modes: Option<Vec<u8>>,
    offers: Option<Vec<Offer>>,
    /// Bytes of the list of binders and its length.
    binders_bytes: usize,
}

impl Extensions {
    /// RFC 8446, 4.2. `is_last`: nothing follows.
    fn read(&mut self, kind: u16, mut content: Reader<'_>, is_last: bool) -> Result<(), HelloError> {
        let is_repeated = match kind {
            43 => self.versions.replace(content.short_list("supported_versions")?.all(Reader::u16)?).is_some(),
            45 => self.modes.replace(content.short_list("psk_key_exchange_modes")?.all(Reader::u8)?).is_some(),
            41 => {
                // RFC 8446, 4.2.11: it has to be the last one, for the sake of the binders.
                if !is_last {
                    return Err(HelloError::Field { field: "pre_shared_key" });
                }
                let identities = content.list("identities")?;
                self.binders_bytes = content.rest.len();
                let offers = offers(identities, content.list("binders")?)?;
                self.offers.replace(offers).is_some()
            }
            _ => return Ok(()),
        };
        if is_repeated {
            return Err(HelloError::Field { field: "extensions" });
        }
        content.end()
    }
}

/// RFC 8446, 4.2.11: OfferedPsks.
fn offers(mut identities: Reader<'_>, mut binders: Reader<'_>) -> Result<Vec<Offer>, HelloError> {
    let mut offers = Vec::new();
    while !identities.is_empty() {
        let identity = identities.list("identity")?.rest;
        let _obfuscated_ticket_age = identities.take(4)?;
        let binder = binders.short_list("binder")?.rest;
        if identity.is_empty() {
            return Err(HelloError::Field { field: "identity" });
        }
        if offers.len() < OFFERS_MAX {
            offers.push(Offer { identity: identity.to_vec(), binder: binder.to_vec() });
        }
    }
    binders.end()?;
    Ok(offers)
}

/// Bytes that are read from their beginning, and the field that they belong to.
struct Reader<'a> {
    rest: &'a [u8],
    field: &'static str,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8], field: &'static str) -> Self {
        Self { rest: bytes, field }
    }

    fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], HelloError> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(HelloError::Field { field: self.field })?;
        self.rest = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, HelloError> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Result<u16, HelloError> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// A list with its length in two bytes before it.
    fn list(&mut self, field: &'static str) -> Result<Self, HelloError> {
        let bytes = self.u16()?;
        self.part(bytes.into(), field)
    }

    /// A list with its length in one byte before it.
    fn short_list(&mut self, field: &'static str) -> Result<Self, HelloError> {
        let bytes = self.u8()?;
        self.part(bytes.into(), field)
    }

    fn part(&mut self, bytes: usize, field: &'static str) -> Result<Self, HelloError> {
        let (part, rest) = self.rest.split_at_checked(bytes).ok_or(HelloError::Field { field })?;
        self.rest = rest;
        Ok(Self::new(part, field))
    }

    fn all<T>(mut self, read: impl Fn(&mut Self) -> Result<T, HelloError>) -> Result<Vec<T>, HelloError> {
        let mut all = Vec::new();
        while !self.is_empty() {
            all.push(read(&mut self)?);
        }
        Ok(all)
    }

    /// There is nothing else.
    fn end(&self) -> Result<(), HelloError> {
        if self.is_empty() { Ok(()) } else { Err(HelloError::Field { field: self.field }) }
    }
}

#[cfg(test)]
pub(crate) mod tests;
