//! A body of `multipart/form-data` (RFC 7578) with an image and what is to become of it (DSP0266,
//! "Software update details").

use crate::response::message::{Message, Problem};

/// The longest boundary (RFC 2046), and the most bytes of the header fields of a part.
const BOUNDARY_BYTES_MAX: usize = 70;
const HEADER_BYTES_MAX: usize = 4096;

/// The most parts: parameters, the image, and some of an OEM's.
const PARTS_MAX: usize = 8;

/// What a request has.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Upload<'b> {
    /// JSON, or nothing.
    pub(super) parameters: &'b [u8],
    pub(super) image: &'b [u8],
}

/// Reads the parts of a body; `kind` is its Content-Type.
pub(super) fn parse<'b>(kind: &str, body: &'b [u8]) -> Result<Upload<'b>, Problem> {
    let wrong = |why: &str| Problem::bad_request(Message::multipart(why));
    let boundary = boundary(kind).ok_or_else(|| wrong("the Content-Type is no multipart/form-data with a boundary"))?;
    let delimiter = format!("--{boundary}");
    let (mut parameters, mut image) = (None, None);
    let mut rest = body.strip_prefix(delimiter.as_bytes()).ok_or_else(|| wrong("it does not begin with a boundary"))?;
    let end = format!("\r\n{delimiter}");
    for _ in 0..PARTS_MAX {
        if rest.starts_with(b"--") {
            let (Some(parameters), Some(image)) = (parameters, image) else {
                return Err(wrong("it needs the parts UpdateParameters and UpdateFile"));
            };
            return Ok(Upload { parameters, image });
        }
        let part = rest.strip_prefix(b"\r\n").ok_or_else(|| wrong("a boundary has something behind it"))?;
        let length = find(part, end.as_bytes()).ok_or_else(|| wrong("it ends inside a part"))?;
        let (whole, after) = part.split_at(length);
        let at = find(whole, b"\r\n\r\n").filter(|at| *at <= HEADER_BYTES_MAX);
        let (header, content) = whole.split_at(at.ok_or_else(|| wrong("a part has no header"))?);
        let content = content.get(4..).unwrap_or_default();
        match name(&String::from_utf8_lossy(header)).as_deref() {
            Some("UpdateParameters") if parameters.is_none() => parameters = Some(content),
            Some("UpdateFile") if image.is_none() => image = Some(content),
            // "Oem..." parts are for others.
            Some(other) if other.starts_with("Oem") => {}
            _ => return Err(wrong("a part is not known, or is there twice")),
        }
        rest = after.get(end.len()..).unwrap_or_default();
    }
    Err(wrong("it has too many parts"))
}

/// The boundary of a Content-Type.
fn boundary(kind: &str) -> Option<String> {
    let (essence, parameters) = kind.split_once(';')?;
    if !essence.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let is_boundary = |(name, _): &(&str, &str)| name.trim().eq_ignore_ascii_case("boundary");
    let (_, value) = parameters.split(';').filter_map(|one| one.split_once('=')).find(is_boundary)?;
    let value = value.trim().trim_matches('"');
    (1..=BOUNDARY_BYTES_MAX).contains(&value.len()).then(|| value.to_owned())
}

/// The name of a part: `Content-Disposition: form-data; name="UpdateFile"; ...`
fn name(header: &str) -> Option<String> {
    let line = header
        .split("\r\n")
        .find(|line| line.split_once(':').is_some_and(|(name, _)| name.eq_ignore_ascii_case("content-disposition")))?;
    let parameters = line.split(';').filter_map(|one| one.split_once('='));
    let mut names = parameters.filter(|(name, _)| name.trim().eq_ignore_ascii_case("name"));
    names.next().map(|(_, value)| value.trim().trim_matches('"').to_owned())
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: &str = "multipart/form-data; boundary=xyz";

    fn body(parts: &[(&str, &str)]) -> Vec<u8> {
        let part = |(name, content): &(&str, &str)| {
            format!(
                "--xyz\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"a\"\r\nContent-Type: x/y\r\n\r\n{content}\r\n"
            )
        };
        (parts.iter().map(part).collect::<String>() + "--xyz--\r\n").into_bytes()
    }

    #[test]
    fn parts_are_found_whatever_their_order() {
        let expected = Upload { parameters: b"{}", image: b"EBOF\r\n--xy\r\n" };
        for parts in [
            [("UpdateParameters", "{}"), ("OemX", "x"), ("UpdateFile", "EBOF\r\n--xy\r\n")],
            [("UpdateFile", "EBOF\r\n--xy\r\n"), ("UpdateParameters", "{}"), ("OemX", "")],
        ] {
            assert_eq!(parse(KIND, &body(&parts)).unwrap(), expected);
        }
        let quoted = "Multipart/Form-Data; charset=x; boundary=\"xyz\"";
        assert!(parse(quoted, &body(&[("UpdateParameters", ""), ("UpdateFile", "")])).is_ok());
    }

    #[test]
    fn what_is_cut_or_wrong_is_refused() {
        let whole = body(&[("UpdateParameters", "{}"), ("UpdateFile", "EBOF")]);
        for end in 0..whole.len() - 4 {
            assert!(parse(KIND, &whole[..end]).is_err(), "cut at {end}");
        }
        for parts in [
            &[("UpdateFile", "x")][..],
            &[("UpdateParameters", "{}")],
            &[("UpdateFile", "x"), ("UpdateFile", "x"), ("UpdateParameters", "{}")],
            &[("UpdateFile", "x"), ("Other", "x"), ("UpdateParameters", "{}")],
            &[("OemX", ""); 9],
        ] {
            assert!(parse(KIND, &body(parts)).is_err(), "{parts:?}");
        }
        for kind in [
            "",
            "application/json",
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "multipart/mixed; boundary=xyz",
        ] {
            assert!(parse(kind, &whole).is_err(), "{kind}");
        }
    }
}
