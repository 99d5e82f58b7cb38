//! The `testdata/*.hex` format: hexadecimal byte pairs, blanks anywhere, `#` starts a comment.
//! `xx*n` repeats a byte.

/// Reads hex text into bytes.
///
/// # Panics
/// When the text is not in the format: a mistake in a test's data.
#[must_use]
#[expect(clippy::panic, reason = "a mistake in a test's data stops the test")]
pub fn read(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let code = line.split('#').next().unwrap_or_default();
        for word in code.split_whitespace() {
            let bytes = parse_word(word).unwrap_or_else(|| panic!("line {}: {word:?} is not hex", number + 1));
            out.extend(bytes);
        }
    }
    out
}

/// The bytes of one word: byte pairs, or `xx*n`.
fn parse_word(word: &str) -> Option<Vec<u8>> {
    let (pairs, count) = match word.split_once('*') {
        Some((pairs, count)) => (pairs, count.parse().ok()?),
        None => (word, 1),
    };
    if pairs.is_empty() || pairs.len() % 2 != 0 || !pairs.is_ascii() {
        return None;
    }
    let bytes: Option<Vec<u8>> =
        (0..pairs.len()).step_by(2).map(|at| u8::from_str_radix(&pairs[at..at + 2], 16).ok()).collect();
    Some(bytes?.repeat(count))
}

#[cfg(test)]
mod tests {
    #[test]
    fn comments_blanks_and_repeats_are_parsed() {
        assert_eq!(super::read("00 0aFF # comment\n\n11*3 # more"), [0x00, 0x0a, 0xff, 0x11, 0x11, 0x11]);
    }
}
