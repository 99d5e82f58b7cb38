//! ClientHellos as they are, and as they must not be.

use proptest::prelude::*;

use super::*;

fn list16(content: &[u8]) -> Vec<u8> {
    [&u16::try_from(content.len()).unwrap().to_be_bytes(), content].concat()
}

fn list8(content: &[u8]) -> Vec<u8> {
    [&[u8::try_from(content.len()).unwrap()], content].concat()
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [kind.to_be_bytes().to_vec(), list16(content)].concat()
}

fn versions() -> Vec<u8> {
    extension(43, &list8(&[3, 4, 3, 3]))
}

fn modes() -> Vec<u8> {
    extension(45, &list8(&[1]))
}

fn psks(identities: &[&[u8]], binders: &[&[u8]]) -> Vec<u8> {
    let identities: Vec<u8> = identities.iter().flat_map(|identity| [list16(identity), vec![0; 4]].concat()).collect();
    let binders: Vec<u8> = binders.iter().flat_map(|binder| list8(binder)).collect();
    extension(41, &[list16(&identities), list16(&binders)].concat())
}

/// A message with these extensions.
fn message_of(extensions: &[Vec<u8>]) -> Vec<u8> {
    let body = [
        &[3, 3][..],
        &[9; 32],
        &list8(&[5; 32]),
        &list16(&[0x13, 0x01, 0x13, 0x02]),
        &list8(&[0]),
        &list16(&extensions.concat()),
    ]
    .concat();
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[1], &length[1..], &body].concat()
}

/// In records of at most so many bytes.
fn records(message: &[u8], bytes_max: usize) -> Vec<u8> {
    message.chunks(bytes_max).flat_map(|part| [&[22, 3, 1][..], &list16(part)].concat()).collect()
}

fn usual() -> Vec<u8> {
    message_of(&[versions(), extension(51, &[1, 2, 3]), modes(), psks(&[b"NVMe0R01 a b"], &[&[7; 32]])])
}

/// One that offers a key of 32 bytes, with these suites and modes, and without a binder: it is the
/// last 32 bytes.
pub(crate) fn offering(identity: &[u8], suites: &[u8], modes: &[u8]) -> Vec<u8> {
    let body = [
        &[3, 3][..],
        &[9; 32],
        &[0],
        &list16(suites),
        &list8(&[0]),
        &list16(&[versions(), extension(45, &list8(modes)), psks(&[identity], &[&[0; 32]])].concat()),
    ]
    .concat();
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[1], &length[1..], &body].concat()
}

pub(crate) fn read(message: &[u8]) -> Result<Option<ClientHello>, HelloError> {
    ClientHello::read(&records(message, 16_384))
}

fn refused(extensions: &[Vec<u8>]) -> HelloError {
    read(&message_of(extensions)).unwrap_err()
}

#[test]
fn what_a_host_offers_is_read_however_it_is_cut_into_records() {
    let message = usual();
    for bytes_max in [1, 3, 100, 16_384] {
        let hello = ClientHello::read(&records(&message, bytes_max)).unwrap().unwrap();
        assert_eq!(hello.suites, [0x1301, 0x1302]);
        assert!(hello.is_tls13 && hello.has_psk_dhe_ke);
        assert_eq!(hello.offers, [Offer { identity: b"NVMe0R01 a b".to_vec(), binder: vec![7; 32] }]);
        assert_eq!(hello.truncated(), &message[..message.len() - 2 - 33]);
    }
}

#[test]
fn there_is_no_hello_before_its_last_byte() {
    for bytes_max in [1, 7, 16_384] {
        let records = records(&usual(), bytes_max);
        for end in 0..records.len() {
            assert!(matches!(ClientHello::read(&records[..end]), Ok(None)), "{end}");
        }
    }
}

#[test]
fn what_is_behind_the_records_is_not_looked_at_and_what_is_in_them_is() {
    let message = usual();
    let early = [records(&message, 16_384), vec![20, 3, 3, 0, 1, 1]].concat();
    assert!(ClientHello::read(&early).unwrap().is_some());
    let trailing = [&message[..], &[1, 0, 0, 0]].concat();
    assert_eq!(read(&trailing).unwrap_err(), HelloError::Field { field: "length" });
    let cut = records(&trailing, 16_384);
    assert_eq!(ClientHello::read(&cut[..cut.len() - 4]).unwrap_err(), HelloError::Field { field: "length" });
}

#[test]
fn a_hello_without_keys_or_of_an_older_version_is_read_too() {
    let hello = read(&message_of(&[])).unwrap().unwrap();
    assert!(!hello.is_tls13 && !hello.has_psk_dhe_ke && hello.offers.is_empty());
    let older = message_of(&[extension(43, &list8(&[3, 3])), extension(45, &list8(&[0]))]);
    let hello = read(&older).unwrap().unwrap();
    assert!(!hello.is_tls13 && !hello.has_psk_dhe_ke);
    // No extensions at all.
    let bare = [&[3, 3][..], &[9; 32], &[0], &list16(&[0, 47]), &list8(&[0])].concat();
    let bare = [&[1, 0, 0, u8::try_from(bare.len()).unwrap()], &bare[..]].concat();
    assert!(!read(&bare).unwrap().unwrap().is_tls13);
}

#[test]
fn fields_that_are_malformed_are_named() {
    let psk = || psks(&[b"a"], &[&[7; 32]]);
    let cases = [
        (vec![psk(), versions()], "pre_shared_key"),
        (vec![versions(), versions()], "extensions"),
        (vec![modes(), modes()], "extensions"),
        (vec![psks(&[b"a"], &[])], "binders"),
        (vec![psks(&[b"a"], &[&[7; 32], &[7; 32]])], "binders"),
        (vec![psks(&[b""], &[&[7; 32]])], "identity"),
        (vec![extension(43, &[3, 3, 4, 3])], "supported_versions"),
        (vec![extension(43, &[2, 3, 4, 3])], "extension"),
        (vec![extension(45, &[2, 1])], "psk_key_exchange_modes"),
        (vec![extension(41, &[0, 9, 1])], "identities"),
        (vec![extension(41, &[0, 3, 0, 5, 1, 0, 0])], "identity"),
        (vec![vec![0, 43, 0]], "extensions"),
        (vec![vec![0, 43, 0, 9, 1]], "extension"),
    ];
    for (extensions, field) in cases {
        assert_eq!(refused(&extensions), HelloError::Field { field }, "{extensions:?}");
    }
    let mut message = usual();
    message.pop();
    message[3] -= 1;
    assert_eq!(read(&message).unwrap_err(), HelloError::Field { field: "extensions" });
}

#[test]
fn only_so_many_identities_are_looked_at() {
    let identities: Vec<&[u8]> = vec![b"x"; OFFERS_MAX + 5];
    let binders: Vec<&[u8]> = vec![&[7; 32]; OFFERS_MAX + 5];
    let hello = read(&message_of(&[psks(&identities, &binders)])).unwrap().unwrap();
    assert_eq!(hello.offers.len(), OFFERS_MAX);
}

#[test]
fn other_records_and_messages_are_refused_at_their_first_byte() {
    for kind in [0, 20, 21, 23] {
        assert_eq!(ClientHello::read(&[kind, 3, 1, 0, 5]).unwrap_err(), HelloError::Record { kind });
    }
    assert_eq!(ClientHello::read(&[22, 2, 1, 0, 5]).unwrap_err(), HelloError::Record { kind: 22 });
    assert_eq!(ClientHello::read(&[22, 3, 1, 0, 5, 2]).unwrap_err(), HelloError::Message { kind: 2 });
    let empty = HelloError::Field { field: "record length" };
    assert_eq!(ClientHello::read(&[22, 3, 1, 0, 0]).unwrap_err(), empty);
    assert_eq!(ClientHello::read(&[22, 3, 1, 0x40, 1]).unwrap_err(), empty);
}

#[test]
fn a_hello_has_a_maximum() {
    let header = |length: usize| {
        let [_, high, middle, low] = u32::try_from(length).unwrap().to_be_bytes();
        [22, 3, 1, 0, 4, 1, high, middle, low]
    };
    assert!(matches!(ClientHello::read(&header(HELLO_BYTES_MAX - 4)), Ok(None)));
    assert_eq!(ClientHello::read(&header(HELLO_BYTES_MAX - 3)).unwrap_err(), HelloError::TooLarge);
    // In records of one byte, so that they are many more.
    let message = [&[1, 0, 0x3f, 0xf0][..], &[0; 16_000]].concat();
    let many = records(&message, 1);
    assert!(matches!(ClientHello::read(&many[..RECORDS_BYTES_MAX]), Ok(None)));
    assert_eq!(ClientHello::read(&many[..=RECORDS_BYTES_MAX]).unwrap_err(), HelloError::TooLarge);
}

proptest! {
    #[test]
    fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = ClientHello::read(&bytes);
        let _ = ClientHello::read(&records(&[&[1, 0, 0, 200][..], &bytes].concat(), 50));
    }

    #[test]
    fn no_change_of_a_hello_causes_a_panic(
        changes in prop::collection::vec((0_usize..400, any::<u8>()), 1..6),
        length in 0_usize..400,
    ) {
        let mut message = usual();
        for (at, byte) in changes {
            if let Some(changed) = message.get_mut(at) {
                *changed = byte;
            }
        }
        if let Ok(Some(hello)) = read(&message) {
            prop_assert!(hello.truncated().len() <= message.len());
        }
        message.truncate(length);
        let _ = read(&message);
    }
}
