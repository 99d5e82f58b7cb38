//! A file's bytes: one line with the length and the checksum (CRC-32C) of the content, and the
//! content as it is, so that a person can read it. The line is a comment in TOML.

use crc_fast::CrcAlgorithm;

use crate::Damage;

/// What each file begins with. The number is the version of this form.
const MAGIC: &str = "# ebof-state 1 ";

/// The longest first line, with its end.
pub(crate) const HEADER_BYTES_MAX: usize = 64;

/// The bytes of a file with that content.
pub(crate) fn encode(content: &[u8]) -> Vec<u8> {
    let header = format!("{MAGIC}{} {:08x}\n", content.len(), checksum(content));
    // It does not grow: no copy of a secret is left behind.
    let mut file = Vec::with_capacity(header.len() + content.len());
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(content);
    file
}

/// The content of a file with these bytes.
pub(crate) fn decode(file: &[u8]) -> Result<&[u8], Damage> {
    if file.is_empty() {
        return Err(Damage::Empty);
    }
    let header = &file[..file.len().min(HEADER_BYTES_MAX)];
    let end = header.iter().position(|&byte| byte == b'\n').ok_or(Damage::NoHeader)?;
    let (length, expected) = header_fields(&header[..end]).ok_or(Damage::NoHeader)?;
    let content = &file[end + 1..];
    if content.len() as u64 != length {
        return Err(Damage::Length { found: content.len() as u64, expected: length });
    }
    match checksum(content) {
        found if found == expected => Ok(content),
        found => Err(Damage::Checksum { found, expected }),
    }
}

/// Length and checksum.
fn header_fields(line: &[u8]) -> Option<(u64, u32)> {
    let (length, checksum) = std::str::from_utf8(line).ok()?.strip_prefix(MAGIC)?.split_once(' ')?;
    Some((length.parse().ok()?, u32::from_str_radix(checksum, 16).ok()?))
}

fn checksum(content: &[u8]) -> u32 {
    u32::try_from(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, content)).expect("it has 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_comes_back_and_any_changed_or_missing_byte_is_damage() {
        for content in [&b""[..], b"a", b"name = \"d0\"\n", &[0xff; 300]] {
            let file = encode(content);
            assert_eq!(decode(&file), Ok(content));
            for at in 0..file.len() {
                assert!(decode(&file[..at]).is_err(), "cut at {at}");
                for bit in 0..8 {
                    let mut flipped = file.clone();
                    flipped[at] ^= 1 << bit;
                    // A digit of the checksum may be written in upper case: the same number.
                    if decode(&flipped).is_ok() {
                        assert!(flipped[at].is_ascii_uppercase() && bit == 5, "byte {at}, bit {bit}");
                    }
                }
            }
            let longer = [&file[..], b"\n"].concat();
            assert!(matches!(decode(&longer), Err(Damage::Length { .. })));
        }
    }

    #[test]
    fn the_first_line_is_for_people() {
        assert_eq!(encode(b"123456789"), b"# ebof-state 1 9 e3069283\n123456789");
        assert_eq!(decode(b""), Err(Damage::Empty));
        assert_eq!(decode(b"[[ports]]\n"), Err(Damage::NoHeader));
        assert_eq!(decode(&[b'e'; 100]), Err(Damage::NoHeader));
    }
}
