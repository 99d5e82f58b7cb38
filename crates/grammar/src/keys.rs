//! Keys in texts that are shown: how one begins, and the text without it.
//!
//! Whoever puts a key where its file is to be named has the key repeated in messages, which are
//! stored in journals. Messages that repeat what somebody wrote leave keys out by this. What a key
//! means is not known here.

use std::borrow::Cow;
use std::ops::Range;

/// What keys begin with: a secret for DH-HMAC-CHAP, and a PSK for TLS.
const PREFIXES: [&str; 2] = ["DHHC-1:", "NVMeTLSkey-1:"];

/// What follows the prefix in texts that explain the form of a key.
const EXPLAINED: [&str; 2] = ["...", "hh:BASE64:"];

/// Whether a text is a key, or was meant to be one.
#[must_use]
pub fn is_key(text: &str) -> bool {
    let text = text.trim_start();
    let length = prefix_at(text.as_bytes());
    length > 0 && text.len() > length
}

/// Whether a key is anywhere in a text.
#[must_use]
pub fn has_key(text: &str) -> bool {
    next_key(text, 0).is_some()
}

/// Whether anything in a text begins as keys do, a key or not.
#[must_use]
pub fn mentions_key(text: &str) -> bool {
    (0..text.len()).any(|at| prefix_at(&text.as_bytes()[at..]) > 0)
}

/// The text, with `***` in place of what is secret of each key.
#[must_use]
pub fn without_keys(text: &str) -> Cow<'_, str> {
    replaced(text, |_| "***".to_owned())
}

/// The text with as many characters as before: each that is secret is a `*`.
#[must_use]
pub fn with_hidden_keys(text: &str) -> Cow<'_, str> {
    replaced(text, |secret| "*".repeat(secret.chars().count()))
}

fn replaced(text: &str, by: impl Fn(&str) -> String) -> Cow<'_, str> {
    let mut shown = String::new();
    let mut from = 0;
    while let Some(secret) = next_key(text, from) {
        shown += &text[from..secret.start];
        shown += &by(&text[secret.clone()]);
        from = secret.end;
    }
    if from == 0 { Cow::Borrowed(text) } else { Cow::Owned(shown + &text[from..]) }
}

/// Where the secret part of the next key is: behind its prefix, up to a quote (escaped or not) or a
/// blank.
fn next_key(text: &str, from: usize) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let mut at = from;
    while at < bytes.len() {
        let length = prefix_at(&bytes[at..]);
        if length == 0 {
            at += 1;
            continue;
        }
        // A prefix is ASCII, so that these are ends of characters.
        let start = at + length;
        let is_end = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '\'' | '`' | '\\');
        let rest = &text[start..];
        let secret = &rest[..rest.find(is_end).unwrap_or(rest.len())];
        let is_explained = EXPLAINED.iter().any(|explained| secret.starts_with(explained));
        if !secret.is_empty() && !is_explained {
            return Some(start..start + secret.len());
        }
        at = start;
    }
    None
}

/// The length of the prefix that is there, whatever its case is; 0 for none.
fn prefix_at(bytes: &[u8]) -> usize {
    let is_there =
        |prefix: &str| bytes.get(..prefix.len()).is_some_and(|it| it.eq_ignore_ascii_case(prefix.as_bytes()));
    PREFIXES.into_iter().find(|prefix| is_there(prefix)).map_or(0, str::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "DHHC-1:01:AAECAwQF+/=:";

    #[test]
    fn what_begins_as_a_key_is_found_whatever_follows() {
        for text in [KEY, "a dhhc-1:", "\"NVMETLSKEY-1:\"", "é DHHC-1:..."] {
            assert!(mentions_key(text), "{text}");
        }
        assert!(!["", "DHHC-1", "DHHC-11:", "a key"].into_iter().any(mentions_key));
    }

    #[test]
    fn keys_are_left_out_up_to_a_quote_or_a_blank() {
        for (text, shown) in [
            (format!("a = \"{KEY}\" # b"), "a = \"DHHC-1:***\" # b"),
            (format!("{{ file = '{KEY}' }}"), "{ file = 'DHHC-1:***' }"),
            (format!("/etc/{KEY} {KEY}"), "/etc/DHHC-1:*** DHHC-1:***"),
            ("NVMeTLSkey-1:01:AAEC:`é".to_owned(), "NVMeTLSkey-1:***`é"),
            ("dhhc-1:AAEC".to_owned(), "dhhc-1:***"),
            (format!("\"a \\\"{KEY}\\\"\""), "\"a \\\"DHHC-1:***\\\"\""),
            ("é DHHC-1:é".to_owned(), "é DHHC-1:***"),
        ] {
            assert_eq!(without_keys(&text), shown);
            assert!(has_key(&text));
            let hidden = with_hidden_keys(&text);
            assert_eq!(hidden.chars().count(), text.chars().count());
            assert!(!hidden.contains("AAEC"), "{hidden}");
        }
    }

    #[test]
    fn what_explains_a_key_is_shown() {
        for text in ["", "DHHC-1", "want \"DHHC-1:...\"", "the form DHHC-1:hh:BASE64: with a colon", "DHHC-1: and more"]
        {
            assert!(matches!(without_keys(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn a_key_is_a_text_that_begins_as_one() {
        for key in [KEY, " DHHC-1:x", "NVMeTLSkey-1:01:AAEC:", "nvmetlskey-1:x"] {
            assert!(is_key(key), "{key}");
        }
        for other in ["", "DHHC-1:", "/etc/ebof/keys/DHHC-1:x", "x"] {
            assert!(!is_key(other), "{other}");
        }
    }
}
