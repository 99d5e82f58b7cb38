//! NVMe Qualified Names (Base, NVMe Qualified Names): at most 223 bytes of UTF-8 in a 256-byte
//! NUL-padded field.

use alloc::string::{String, ToString};
use core::{fmt, str};

/// A legal NQN. A value that exists obeys the rules of [`Nqn::parse`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nqn(String);

/// Why a text is not an NQN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NqnError {
    /// The name is empty.
    Empty,
    /// The name is longer than 223 bytes.
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The name is not UTF-8 (only from the wire).
    NotUtf8 {
        /// Offset of the first wrong byte.
        at: usize,
    },
    /// A control character or white space inside the name.
    Control {
        /// Its offset in bytes.
        at: usize,
    },
    /// No NUL within the 256-byte field (only from the wire).
    Unterminated,
    /// `nqn.2014-08.org.nvmexpress:uuid:` must be followed by a UUID of 36 characters.
    BadUuid,
}

impl fmt::Display for NqnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the NQN is empty"),
            Self::TooLong { bytes } => write!(f, "the NQN has {bytes} bytes, at most {} are allowed", Nqn::MAX_BYTES),
            Self::NotUtf8 { at } => write!(f, "the NQN is not UTF-8 at byte {at}"),
            Self::Control { at } => write!(f, "the NQN has a control character or white space at byte {at}"),
            Self::Unterminated => f.write_str("the NQN field has no terminating NUL"),
            Self::BadUuid => f.write_str("the UUID in the NQN is malformed (want 8-4-4-4-12 or 32 hexadecimal digits)"),
        }
    }
}

impl core::error::Error for NqnError {}

impl Nqn {
    /// The longest name in bytes.
    pub const MAX_BYTES: usize = 223;
    /// Size of an NQN field on the wire in bytes.
    pub const FIELD_BYTES: usize = 256;
    /// The well-known name of every discovery subsystem (NVMe over Fabrics, Discovery Service).
    pub const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";
    /// What a UUID-based name starts with.
    pub const UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";

    /// Checks `text`.
    ///
    /// Names that do not start with `nqn.` are accepted: the Linux target takes them and people use
    /// them (`nvme-subsystem-name`). Deviation: the specification wants the `nqn.yyyy-mm.` form.
    ///
    /// # Errors
    /// Which rule the text breaks, and where.
    pub fn parse(text: &str) -> Result<Self, NqnError> {
        if text.is_empty() {
            return Err(NqnError::Empty);
        }
        if text.len() > Self::MAX_BYTES {
            return Err(NqnError::TooLong { bytes: text.len() });
        }
        if let Some((at, _)) = text.char_indices().find(|(_, c)| c.is_control() || c.is_whitespace()) {
            return Err(NqnError::Control { at });
        }
        if text.strip_prefix(Self::UUID_PREFIX).is_some_and(|uuid| crate::name::id::uuid::HostId::parse(uuid).is_none())
        {
            return Err(NqnError::BadUuid);
        }
        Ok(Self(text.to_string()))
    }

    /// Whether it has the form of the specification, `nqn.yyyy-mm.REVERSE.DOMAIN...`: see
    /// [`Nqn::parse`].
    #[must_use]
    pub fn has_standard_form(&self) -> bool {
        let Some(date) = self.0.as_bytes().strip_prefix(b"nqn.") else { return false };
        let pattern = b"dddd-dd.";
        date.len() > pattern.len()
            && date.iter().zip(pattern).all(|(byte, kind)| match kind {
                b'd' => byte.is_ascii_digit(),
                kind => byte == kind,
            })
    }

    /// Decodes a 256-byte field.
    ///
    /// # Errors
    /// Which rule the field breaks.
    pub fn from_field(field: &[u8; Self::FIELD_BYTES]) -> Result<Self, NqnError> {
        let end = field.iter().position(|&b| b == 0).ok_or(NqnError::Unterminated)?;
        let text = str::from_utf8(&field[..end]).map_err(|error| NqnError::NotUtf8 { at: error.valid_up_to() })?;
        Self::parse(text)
    }

    /// Encodes into a 256-byte field, NUL-padded.
    #[must_use]
    pub fn to_field(&self) -> [u8; Self::FIELD_BYTES] {
        let mut field = [0; Self::FIELD_BYTES];
        field[..self.0.len()].copy_from_slice(self.0.as_bytes());
        field
    }

    /// The well-known discovery NQN.
    #[must_use]
    pub fn discovery() -> Self {
        Self(Self::DISCOVERY.to_string())
    }

    /// A UUID-based name.
    #[must_use]
    pub fn from_uuid(uuid: crate::name::id::uuid::Uuid) -> Self {
        Self(alloc::format!("{}{uuid}", Self::UUID_PREFIX))
    }

    /// Whether this is the well-known discovery NQN.
    #[must_use]
    pub fn is_discovery(&self) -> bool {
        self.0 == Self::DISCOVERY
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl str::FromStr for Nqn {
    type Err = NqnError;
    fn from_str(text: &str) -> Result<Self, NqnError> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nqns_of_the_specifications_format_are_recognised() {
        let standard = |text| Nqn::parse(text).unwrap().has_standard_form();
        assert!(standard("nqn.2014-08.org.example:drive0") && standard(Nqn::DISCOVERY));
        for text in
            ["foo", "nqn.", "nqn.2014-08.", "nqn.14-08.org.example", "iqn.2014-08.org.example", "nqn.2014-8.org"]
        {
            assert!(!standard(text), "{text}");
        }
    }
    use proptest::prelude::*;

    #[test]
    fn common_nqns_are_accepted() {
        for text in ["nvme-subsystem-name", "nqn.2014-08.org.example:drive0", Nqn::DISCOVERY, &"x".repeat(223)] {
            assert_eq!(Nqn::parse(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn each_broken_rule_is_reported() {
        assert_eq!(Nqn::parse(""), Err(NqnError::Empty));
        assert_eq!(Nqn::parse(&"x".repeat(224)), Err(NqnError::TooLong { bytes: 224 }));
        assert_eq!(Nqn::parse("a b"), Err(NqnError::Control { at: 1 }));
        assert_eq!(Nqn::parse("nqn.2014-08.org.nvmexpress:uuid:12"), Err(NqnError::BadUuid));
        // Deviation: Linux and SPDK take a UUID without dashes, too.
        assert!(Nqn::parse("nqn.2014-08.org.nvmexpress:uuid:00112233445566778899aabbccddeeff").is_ok());
        assert_eq!(Nqn::from_field(&[b'a'; 256]), Err(NqnError::Unterminated));
    }

    proptest! {
        #[test]
        fn fields_are_decoded_without_panic(bytes in prop::collection::vec(any::<u8>(), 256)) {
            let field: [u8; 256] = bytes.try_into().unwrap();
            if let Ok(nqn) = Nqn::from_field(&field) {
                let again = nqn.to_field();
                prop_assert_eq!(Nqn::from_field(&again).unwrap(), nqn);
            }
        }
    }
}
