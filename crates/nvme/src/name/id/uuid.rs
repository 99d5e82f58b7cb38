//! UUIDs (RFC 4122, big-endian on the wire) and the Host Identifier.

use core::fmt;

/// A UUID as 16 bytes, most significant first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

/// A Host Identifier (Base, Feature 81h; Connect data HOSTID): 128 bits that name a host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct HostId(pub [u8; 16]);

impl Uuid {
    /// All zero: no UUID.
    pub const NIL: Self = Self([0; 16]);

    /// Parses `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`; hexadecimal digits of either case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        if bytes.len() != 36 {
            return None;
        }
        let mut out = [0; 16];
        let mut digits = 0;
        for (at, &byte) in bytes.iter().enumerate() {
            if matches!(at, 8 | 13 | 18 | 23) {
                if byte != b'-' {
                    return None;
                }
                continue;
            }
            let value = u8::try_from(char::from(byte).to_digit(16)?).ok()?;
            out[digits / 2] = out[digits / 2] << 4 | value;
            digits += 1;
        }
        Some(Self(out))
    }
}

impl HostId {
    /// Parses a UUID or 32 hexadecimal digits, as nvme-cli's `--hostid` does.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(uuid) = Uuid::parse(text) {
            return Some(Self(uuid.0));
        }
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let value = u128::from_str_radix(text, 16).ok()?;
        Some(Self(value.to_be_bytes()))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Uuid(self.0), f)
    }
}

impl fmt::Debug for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_uuid_round_trips() {
        let text = "00112233-4455-6677-8899-aabbccddeeff";
        let uuid = Uuid::parse(text).unwrap();
        assert_eq!(uuid.0[0..4], [0, 0x11, 0x22, 0x33]);
        assert_eq!(uuid.to_string(), text);
        assert_eq!(HostId::parse("00112233445566778899aabbccddeeff").unwrap().0, uuid.0);
    }

    #[test]
    fn malformed_uuids_are_refused() {
        for text in [
            "",
            "00112233-4455-6677-8899-aabbccddeef",
            "0011223344-55-6677-8899-aabbccddeeff",
            "é0112233-4455-6677-8899-aabbccddee",
        ] {
            assert_eq!(Uuid::parse(text), None, "{text}");
        }
        assert_eq!(HostId::parse("+0112233445566778899aabbccddeeff"), None);
    }
}
