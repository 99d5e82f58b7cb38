//! What the first bytes of a connection are, before anything is taken from its socket: TLS, or
//! NVMe/TCP in the clear.

/// As many bytes are enough for [`first_bytes`] to decide.
pub const FIRST_BYTES: usize = 8;

/// What a connection begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstBytes {
    /// The record of a ClientHello.
    ClientHello,
    /// An ICReq: NVMe/TCP without TLS.
    IcReq,
    /// Neither.
    Other,
    /// There are not enough bytes to decide, and those that are there allow both.
    TooFew,
}

/// What a connection begins with whose first bytes, which were peeked at, are these.
/// [`FIRST_BYTES`] of them decide in any case.
#[must_use]
pub fn first_bytes(bytes: &[u8]) -> FirstBytes {
    // RFC 8446, 5.1 and 4: handshake record of legacy version 3.x, and client_hello.
    const CLIENT_HELLO: [Option<u8>; 6] = [Some(22), Some(3), None, None, None, Some(1)];
    // NVMe/TCP, ICReq: PDU-Type 0, HLEN 128, PLEN 128. The rest is not looked at, as Linux does
    // not.
    const IC_REQ: [Option<u8>; 8] = [Some(0), None, Some(128), None, Some(128), Some(0), Some(0), Some(0)];
    match (begins(bytes, &CLIENT_HELLO), begins(bytes, &IC_REQ)) {
        (Some(true), _) => FirstBytes::ClientHello,
        (_, Some(true)) => FirstBytes::IcReq,
        (Some(false), Some(false)) => FirstBytes::Other,
        _ => FirstBytes::TooFew,
    }
}

/// What a target answers a ClientHello with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstAnswer {
    /// A record.
    Tls,
    /// A C2HTermReq: the port has no TLS.
    TermReq,
    /// Neither.
    Other,
    /// There are not enough bytes to decide.
    TooFew,
}

/// What an answer is that begins with these bytes.
pub(crate) fn first_answer(bytes: &[u8]) -> FirstAnswer {
    // RFC 8446, 5.1: change_cipher_spec, alert, handshake or application data, of legacy version
    // 3.x.
    const RECORD: [Option<u8>; 2] = [None, Some(3)];
    // NVMe/TCP, C2HTermReq: PDU-Type 3, HLEN 24.
    const TERM_REQ: [Option<u8>; 3] = [Some(3), None, Some(24)];
    let is_record = match bytes.first() {
        Some(20..=23) => begins(bytes, &RECORD),
        Some(_) => Some(false),
        None => None,
    };
    match (is_record, begins(bytes, &TERM_REQ)) {
        (Some(true), _) => FirstAnswer::Tls,
        (_, Some(true)) => FirstAnswer::TermReq,
        (Some(false), Some(false)) => FirstAnswer::Other,
        _ => FirstAnswer::TooFew,
    }
}

/// Whether `bytes` begin like this; `None` if they are too few and do so far.
fn begins(bytes: &[u8], with: &[Option<u8>]) -> Option<bool> {
    let is_same = bytes.iter().zip(with).all(|(byte, wanted)| wanted.is_none_or(|wanted| wanted == *byte));
    match (is_same, bytes.len() >= with.len()) {
        (false, _) => Some(false),
        (true, true) => Some(true),
        (true, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: [u8; 9] = [22, 3, 1, 0, 200, 1, 0, 0, 196];
    const IC_REQ: [u8; 9] = [0, 0, 128, 0, 128, 0, 0, 0, 0];

    #[test]
    fn a_prefix_decides_as_soon_as_it_can_and_never_wrongly() {
        for (whole, needed, kind) in [(HELLO, 6, FirstBytes::ClientHello), (IC_REQ, 8, FirstBytes::IcReq)] {
            for end in 0..=whole.len() {
                let expected = if end < needed { FirstBytes::TooFew } else { kind };
                assert_eq!(first_bytes(&whole[..end]), expected, "{end}");
            }
        }
        assert!(IC_REQ.len() > FIRST_BYTES && HELLO.len() > FIRST_BYTES);
    }

    #[test]
    fn an_answer_is_tls_or_nvme_or_neither() {
        for (answer, kind) in [
            (&[22, 3, 3, 0, 80][..], FirstAnswer::Tls),
            (&[21, 3], FirstAnswer::Tls),
            (&[3, 0, 24], FirstAnswer::TermReq),
            // Flags and alignment are the target's.
            (&[3, 1, 24, 0, 0x98], FirstAnswer::TermReq),
            (b"SSH-", FirstAnswer::Other),
            (&[22, 2], FirstAnswer::Other),
            (&[3, 0, 128], FirstAnswer::Other),
            (&[24, 3], FirstAnswer::Other),
            (&[], FirstAnswer::TooFew),
            (&[22], FirstAnswer::TooFew),
            (&[3, 3], FirstAnswer::TooFew),
        ] {
            assert_eq!(first_answer(answer), kind, "{answer:?}");
        }
    }

    #[test]
    fn what_is_neither_is_told_apart_at_its_first_wrong_byte() {
        let changed = |mut bytes: [u8; 9], at: usize| {
            bytes[at] ^= 0x40;
            first_bytes(&bytes[..=at])
        };
        for at in [0, 1, 5] {
            assert_eq!(changed(HELLO, at), FirstBytes::Other, "{at}");
        }
        for at in [0, 2, 4, 5, 6, 7] {
            assert_eq!(changed(IC_REQ, at), FirstBytes::Other, "{at}");
        }
        assert_eq!(first_bytes(b"GET / HTTP/1.1"), FirstBytes::Other);
    }
}
