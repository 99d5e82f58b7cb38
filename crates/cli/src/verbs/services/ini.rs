//! The lines of nvme-cli 3's files: `[section]`, `key = value`, and comments that begin with `#`.
//! What sections and keys mean is for others.

use std::ops::Range;

/// A line that says something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row<'a> {
    /// Its number, from 1.
    pub(super) line: usize,
    /// Where its words are in the text.
    pub(super) span: Range<usize>,
    pub(super) says: Says<'a>,
}

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Says<'a> {
    /// `[name]`.
    Section(&'a str),
    /// `key = value`; the value may be empty.
    Pair(&'a str, &'a str),
    /// Anything else. What follows belongs to no section if it was to be the head of one.
    Wrong,
}

/// The lines of a text that say something.
pub(super) fn rows(text: &str) -> impl Iterator<Item = Row<'_>> {
    text.lines().enumerate().filter_map(move |(number, line)| {
        let words = line.trim();
        if words.is_empty() || words.starts_with('#') {
            return None;
        }
        Some(Row { line: number + 1, span: span_of(text, words), says: says(words) })
    })
}

fn says(words: &str) -> Says<'_> {
    if let Some(rest) = words.strip_prefix('[') {
        return match rest.strip_suffix(']').map(str::trim) {
            Some(name) if !name.is_empty() && !name.contains(']') => Says::Section(name),
            _ => Says::Wrong,
        };
    }
    match words.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Says::Pair(key.trim(), value.trim()),
        _ => Says::Wrong,
    }
}

/// Where `part`, which is a part of `text`, is in it.
pub(super) fn span_of(text: &str, part: &str) -> Range<usize> {
    let start = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize).min(text.len());
    start..(start + part.len()).min(text.len())
}

/// The pairs of a list `key=value;key=value`: each with its place in `text`, or the place of a part
/// that is none.
pub(super) fn pairs<'a>(
    text: &'a str,
    list: &'a str,
) -> impl Iterator<Item = Result<(&'a str, &'a str), Range<usize>>> {
    list.split(';').map(str::trim).filter(|part| !part.is_empty()).map(move |part| match part.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim(), value.trim())),
        _ => Err(span_of(text, part)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_sections_pairs_comments_or_wrong() {
        let text = "# a\n\n [ Host ] \nhostnqn = nqn.x # y\nkey =\n[Host\n[]\nword\n = 7\n";
        let found: Vec<_> = rows(text).map(|row| (row.line, row.says)).collect();
        let wrong = |line| (line, Says::Wrong);
        let expected = [
            (3, Says::Section("Host")),
            (4, Says::Pair("hostnqn", "nqn.x # y")),
            (5, Says::Pair("key", "")),
            wrong(6),
            wrong(7),
            wrong(8),
            wrong(9),
        ];
        assert_eq!(found, expected);
        let row = rows(text).nth(1).unwrap();
        assert_eq!(&text[row.span], "hostnqn = nqn.x # y");
    }

    #[test]
    fn lists_have_pairs() {
        let list = "transport=tcp; traddr = a ;;x;=y;nqn=a=b;";
        let found: Vec<_> = pairs(list, list).map(|pair| pair.map_err(|span| &list[span])).collect();
        assert_eq!(found, [Ok(("transport", "tcp")), Ok(("traddr", "a")), Err("x"), Err("=y"), Ok(("nqn", "a=b"))]);
    }
}
