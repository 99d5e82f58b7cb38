//! Messages of generic netlink and of its family `ethtool`, as bytes: requests, and what is in the
//! answers. No socket.
//!
//! Numbers are the kernel's (`linux/genetlink.h`, `linux/ethtool_netlink.h`). All integers are in
//! the machine's own byte order.

use std::io;

/// `GENL_ID_CTRL`: the family that knows the numbers of the others.
pub(crate) const CONTROLLER: u16 = 0x10;
/// `NLMSG_ERROR`, which with the number 0 acknowledges.
const ERROR: u16 = 2;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const HEADER_BYTES: usize = 16;
/// With the header of generic netlink.
const HEADERS_BYTES: usize = 20;
/// The bits of an attribute's type that are its number.
const TYPE_MASK: u16 = 0x3fff;
/// `NLA_F_NESTED`.
const NESTED: u16 = 0x8000;

/// A command of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// `CTRL_CMD_GETFAMILY`.
    Family = 3,
    /// `ETHTOOL_MSG_CHANNELS_GET`.
    Channels = 17,
    /// `ETHTOOL_MSG_COALESCE_GET`.
    Coalescing = 19,
    /// `ETHTOOL_MSG_COALESCE_SET`.
    SetCoalescing = 20,
    /// `ETHTOOL_MSG_PAUSE_GET`.
    Pause = 21,
}

pub(crate) mod attribute {
    //! Numbers of attributes.

    /// `CTRL_ATTR_FAMILY_ID`.
    pub(crate) const FAMILY_ID: u16 = 1;
    /// `CTRL_ATTR_FAMILY_NAME`.
    pub(crate) const FAMILY_NAME: u16 = 2;
    /// `ETHTOOL_A_*_HEADER`, of all messages.
    pub(crate) const HEADER: u16 = 1;
    /// `ETHTOOL_A_HEADER_DEV_NAME`.
    pub(crate) const DEVICE_NAME: u16 = 2;
    /// `ETHTOOL_A_COALESCE_RX_USECS`.
    pub(crate) const RX_US: u16 = 2;
    /// `ETHTOOL_A_COALESCE_RX_MAX_FRAMES`.
    pub(crate) const RX_FRAMES: u16 = 3;
    /// `ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX`.
    pub(crate) const ADAPTIVE_RX: u16 = 11;
    /// `ETHTOOL_A_PAUSE_RX`.
    pub(crate) const PAUSE_RX: u16 = 3;
    /// `ETHTOOL_A_PAUSE_TX`.
    pub(crate) const PAUSE_TX: u16 = 4;
    /// `ETHTOOL_A_CHANNELS_RX_MAX`.
    pub(crate) const RX_MAX: u16 = 2;
    /// `ETHTOOL_A_CHANNELS_COMBINED_MAX`.
    pub(crate) const COMBINED_MAX: u16 = 5;
    /// `ETHTOOL_A_CHANNELS_RX_COUNT`.
    pub(crate) const RX_COUNT: u16 = 6;
    /// `ETHTOOL_A_CHANNELS_COMBINED_COUNT`.
    pub(crate) const COMBINED_COUNT: u16 = 9;
}

/// The bytes of an attribute.
pub(crate) fn attribute(number: u16, value: &[u8]) -> Vec<u8> {
    // Values are names and numbers of a few bytes.
    let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
    let mut bytes = [length.to_ne_bytes(), number.to_ne_bytes()].concat();
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// An attribute that is a text, with the zero at its end.
pub(crate) fn text(number: u16, value: &str) -> Vec<u8> {
    attribute(number, &[value.as_bytes(), &[0]].concat())
}

/// The header of a request about an interface.
pub(crate) fn about(interface: &str) -> Vec<u8> {
    attribute(attribute::HEADER | NESTED, &text(attribute::DEVICE_NAME, interface))
}

/// A request. One that sets something is acknowledged; others are answered.
pub(crate) fn request(family: u16, sequence: u32, command: Command, attributes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADERS_BYTES + attributes.len()).unwrap_or(u32::MAX);
    let flags = if command == Command::SetCoalescing { REQUEST | ACKNOWLEDGE } else { REQUEST };
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(family.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend([0; 4]); // nlmsg_pid: the kernel
    bytes.extend([command as u8, 1, 0, 0]); // the command, the family's version
    bytes.extend_from_slice(attributes);
    bytes
}

/// The attributes of an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes(Vec<(u16, Vec<u8>)>);

impl Attributes {
    /// Reads attributes until their end, or until something that is none.
    fn decode(mut bytes: &[u8]) -> Self {
        let mut attributes = Vec::new();
        while let (Some(length), Some(number)) = (number::<2>(bytes, 0), number::<2>(bytes, 2)) {
            let length = usize::from(u16::from_ne_bytes(length));
            let Some(value) = bytes.get(4..length) else { break };
            attributes.push((u16::from_ne_bytes(number) & TYPE_MASK, value.to_vec()));
            bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        Self(attributes)
    }

    fn value(&self, number: u16) -> Option<&[u8]> {
        self.0.iter().find(|(own, _)| *own == number).map(|(_, value)| value.as_slice())
    }

    /// A number of one, two or four bytes.
    pub(crate) fn number(&self, number: u16) -> Option<u32> {
        let value = self.value(number)?;
        match *value {
            [byte] => Some(byte.into()),
            [a, b] => Some(u16::from_ne_bytes([a, b]).into()),
            [a, b, c, d] => Some(u32::from_ne_bytes([a, b, c, d])),
            _ => None,
        }
    }
}

/// What a message says to the request with that number; `None` if it is about something else.
pub(crate) fn answer(message: &[u8], family: u16, sequence: u32) -> Option<io::Result<Attributes>> {
    let length = usize::try_from(u32::from_ne_bytes(number(message, 0)?)).ok()?;
    let message = message.get(..length)?;
    if u32::from_ne_bytes(number(message, 8)?) != sequence {
        return None;
    }
    let kind = u16::from_ne_bytes(number(message, 4)?);
    if kind == ERROR {
        let error = i32::from_ne_bytes(number(message, HEADER_BYTES)?);
        return Some(match error.checked_neg() {
            Some(0) => Ok(Attributes::default()),
            Some(errno) if errno > 0 => Err(io::Error::from_raw_os_error(errno)),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel answered with no known error")),
        });
    }
    (kind == family).then(|| Ok(Attributes::decode(message.get(HEADERS_BYTES..).unwrap_or_default())))
}

/// The bytes of a number at an offset.
fn number<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer_of(kind: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER_BYTES + body.len()).unwrap();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0, 0]);
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(body);
        bytes
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn a_request_has_the_kernels_layout() {
        let expected: &[&[u8]] = &[
            b"\x24\0\0\0\x15\0\x01\0\x02\0\0\0\0\0\0\0", // nlmsghdr: length, type, flags, sequence, port
            b"\x13\x01\0\0",                             // genlmsghdr: command, version
            b"\x10\0\x01\x80",                           // nlattr: nested header
            b"\x09\0\x02\0eth0\0\0\0\0",                 // nlattr: name, not counting its padding
        ];
        assert_eq!(request(0x15, 2, Command::Coalescing, &about("eth0")), expected.concat());
        let set = request(0x15, 3, Command::SetCoalescing, &attribute(attribute::ADAPTIVE_RX, &[1]));
        let expected: &[&[u8]] =
            &[b"\x1c\0\0\0\x15\0\x05\0\x03\0\0\0\0\0\0\0", b"\x14\x01\0\0", b"\x05\0\x0b\0\x01\0\0\0"];
        assert_eq!(set, expected.concat());
    }

    #[test]
    fn attributes_and_errors_are_read() {
        let body = [vec![19, 1, 0, 0], about("eth0"), attribute(11, &[1]), attribute(2, &8_u32.to_ne_bytes())].concat();
        let attributes = answer(&answer_of(0x15, 7, &body), 0x15, 7).unwrap().unwrap();
        assert_eq!((attributes.number(11), attributes.number(2), attributes.number(3)), (Some(1), Some(8), None));
        // Names are no numbers, or not those that anybody asks for.
        assert_eq!(attributes.number(1), None);

        let denied = [&(-1_i32).to_ne_bytes()[..], &[0; 16]].concat();
        let error = answer(&answer_of(ERROR, 7, &denied), 0x15, 7).unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        let done = [0; 20];
        assert_eq!(answer(&answer_of(ERROR, 7, &done), 0x15, 7).unwrap().unwrap(), Attributes::default());
        for odd in [i32::MIN, 5] {
            assert!(answer(&answer_of(ERROR, 7, &odd.to_ne_bytes()), 0x15, 7).unwrap().is_err());
        }
        assert!(answer(&answer_of(0x15, 6, &body), 0x15, 7).is_none(), "another request's");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _any = answer(&bytes, 0x15, 7);
            let framed = answer_of(0x15, 7, &bytes);
            let _any = answer(&framed, 0x15, 7);
            let _any = answer(&answer_of(ERROR, 7, &bytes), 0x15, 7);
        }
    }
}
