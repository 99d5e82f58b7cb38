//! Text fields of fixed width: writing them padded, reading them trimmed and safe to print. It does
//! not judge NQNs.

use core::fmt::{self, Display, Write};
use core::str;

/// A text field as it came from the peer: ends at the first NUL, trailing spaces are cut.
///
/// `Display` is safe for a terminal: what is not UTF-8, control characters and characters that
/// change the writing direction or have no width appear as `?`. NVMe Base, "Theory of operation",
/// ASCII strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Text<'a>(&'a [u8]);

impl<'a> Text<'a> {
    /// The text in `field`, whether padded with spaces (Identify) or with NULs (NQNs, Linux'
    /// addresses).
    #[must_use]
    pub fn new(field: &'a [u8]) -> Self {
        let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
        let text = &field[..end];
        let end = text.iter().rposition(|&byte| byte != b' ').map_or(0, |last| last + 1);
        Self(&text[..end])
    }

    /// The bytes as they came, without padding.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The text if `Display` shows it unchanged; `None` if something in it is unfit to be shown or
    /// compared.
    #[must_use]
    pub fn as_str(self) -> Option<&'a str> {
        str::from_utf8(self.0).ok().filter(|text| text.chars().all(is_safe))
    }

    /// Whether nothing but padding was there.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Width and alignment matter to tables, so a legal text goes through `pad`.
        if let Some(text) = self.as_str() {
            return f.pad(text);
        }
        for chunk in self.0.utf8_chunks() {
            for char in chunk.valid().chars() {
                f.write_char(if is_safe(char) { char } else { '?' })?;
            }
            if !chunk.invalid().is_empty() {
                f.write_char('?')?;
            }
        }
        Ok(())
    }
}

impl PartialEq<str> for Text<'_> {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for Text<'_> {
    fn eq(&self, other: &&str) -> bool {
        self == *other
    }
}

/// Writes `text` into an ASCII field, left justified and padded with spaces. What does not fit is
/// cut; a character that is not printable ASCII becomes `?`.
pub fn set_ascii(field: &mut [u8], text: &str) {
    let ascii = |char| u8::try_from(char).ok().filter(|byte| (b' '..=b'~').contains(byte));
    let printable = text.chars().map(|char| ascii(char).unwrap_or(b'?'));
    let padded = printable.chain(core::iter::repeat(b' '));
    field.iter_mut().zip(padded).for_each(|(to, byte)| *to = byte);
}

/// Whether a terminal shows this character as itself: no control, no zero width, no change of
/// direction.
const fn is_safe(char: char) -> bool {
    !matches!(char,
        '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}
