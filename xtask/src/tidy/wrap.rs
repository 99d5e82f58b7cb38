//! Wraps comments and documents at 100 columns, and finds lines that are longer.
//!
//! Handles paragraphs and list items; leaves code, tables, headings and pictures unchanged, as well
//! as comments beside code and between `/*` and `*/`.

use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::source::Source;
use super::tree::Tree;

/// Maximum columns of a line of a comment or document.
pub(super) const COLUMNS_MAX: usize = 100;

/// Wraps every paragraph with a longer line in the files at and below `paths`, which are relative
/// to `root`.
pub(crate) fn run(root: &Path, paths: &[&str]) -> Result<bool> {
    let tree = Tree::load(root)?;
    if let Some(missing) = paths.iter().find(|path| !tree.exists(path)) {
        bail!("{missing} is no file of this repository");
    }
    let below = |path: &str| {
        let prefixes = paths.iter().map(|prefix| prefix.trim_end_matches('/'));
        prefixes.filter_map(|prefix| path.strip_prefix(prefix)).any(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let mut files = 0_usize;
    for (path, text) in tree.texts().filter(|(path, _)| below(path)) {
        let Some(wrapped) = wrapped_file(path, text, tree.rust_file(path)) else { continue };
        if wrapped != text {
            std::fs::write(root.join(path), wrapped).with_context(|| format!("writing {path}"))?;
            files += 1;
        }
    }
    println!("wrap: {files} files changed");
    Ok(true)
}

/// The lines of a file that [`run`] would shorten.
pub(super) fn long_lines(path: &str, text: &str, source: Option<&Source>) -> usize {
    let is_long = |line: &&str| is_long(line);
    let wrapped = wrapped_file(path, text, source).unwrap_or_else(|| text.to_owned());
    text.lines().filter(is_long).count().saturating_sub(wrapped.lines().filter(is_long).count())
}

/// The wrapped text of a file; `None` for files without comments and paragraphs.
fn wrapped_file(path: &str, text: &str, source: Option<&Source>) -> Option<String> {
    match source {
        Some(source) => Some(comments(text, source)),
        None if path.ends_with(".md") => Some(document(text)),
        None if has_hash_comments(path) => Some(hash_comments(text)),
        None => None,
    }
}

fn comments(text: &str, source: &Source) -> String {
    let lines = text.lines().zip(bare_comments(source)).map(|(line, bare)| Line::new(line, bare, '/'));
    wrapped(lines)
}

/// Scripts and the Makefile, where a comment begins with `#`.
fn has_hash_comments(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name == "Makefile" || name.ends_with(".sh")
}

fn hash_comments(text: &str) -> String {
    wrapped(text.lines().map(|line| {
        let bare = line.trim_start();
        let is_text = bare == "#" || bare.starts_with("# ") && !bare.starts_with("# shellcheck ");
        Line::new(line, is_text, '#')
    }))
}

fn document(text: &str) -> String {
    wrapped(text.lines().map(|line| Line { prefix: String::new(), text: line, is_text: true }))
}

/// For each line of a file, whether it is a comment only.
fn bare_comments(source: &Source) -> Vec<bool> {
    let is_bare =
        |((_, code), (_, comment)): ((usize, &str), (usize, &str))| code.trim().is_empty() && comment.starts_with("//");
    source.code().zip(source.comments()).map(is_bare).collect()
}

/// A line, split into its prefix (indentation and the mark of a comment) and its text.
struct Line<'a> {
    prefix: String,
    text: &'a str,
    is_text: bool,
}

impl<'a> Line<'a> {
    /// `mark` is what a comment begins with, once or several times.
    fn new(line: &'a str, is_text: bool, mark: char) -> Self {
        if !is_text {
            return Self { prefix: String::new(), text: line, is_text };
        }
        let start = line.find(mark).unwrap_or_default();
        let end = line[start..].find(|character| character != mark && character != '!').map(|end| start + end);
        let end = end.unwrap_or(line.len());
        Self { prefix: line[..end].to_owned(), text: line[end..].strip_prefix(' ').unwrap_or(&line[end..]), is_text }
    }

    fn full_text(&self) -> String {
        join(&self.prefix, "", self.text)
    }
}

/// Lines of one paragraph or list item; `indent` is what the lines after its first begin with.
struct Paragraph<'a> {
    lines: Vec<Line<'a>>,
    indent: String,
}

fn wrapped<'a>(lines: impl Iterator<Item = Line<'a>>) -> String {
    let mut out = String::new();
    let mut open: Option<Paragraph<'a>> = None;
    let mut fenced = false;
    for line in lines {
        let is_fence = line.is_text && is_fence(line.text);
        fenced = line.is_text && (fenced ^ is_fence);
        if !line.is_text || fenced || is_fence || is_fixed(line.text) {
            close(open.take(), &mut out);
            push(&line.full_text(), &mut out);
            continue;
        }
        let indent = indent(line.text);
        match &mut open {
            Some(paragraph) if paragraph.takes(&line) => paragraph.lines.push(line),
            _ => {
                close(open.take(), &mut out);
                let indent = " ".repeat(indent + item(&line.text[indent..]).unwrap_or_default());
                open = Some(Paragraph { lines: vec![line], indent });
            }
        }
    }
    close(open, &mut out);
    out
}

impl Paragraph<'_> {
    /// Whether `line` continues the paragraph.
    fn takes(&self, line: &Line<'_>) -> bool {
        let start = indent(line.text);
        let same = self.lines.iter().all(|own| own.prefix == line.prefix);
        same && start == self.indent.len() && item(&line.text[start..]).is_none() && !is_start(&line.text[start..])
    }
}

fn close(paragraph: Option<Paragraph<'_>>, out: &mut String) {
    let Some(paragraph) = paragraph else { return };
    let [first, ..] = paragraph.lines.as_slice() else { return };
    if !paragraph.lines.iter().any(|line| is_long(&line.full_text())) {
        paragraph.lines.iter().for_each(|line| push(&line.full_text(), out));
        return;
    }
    let mut indent = &first.text[..indent(first.text)];
    let mut text = String::new();
    for word in words(&paragraph.lines) {
        let columns = first.prefix.chars().count() + 1 + indent.len() + text.chars().count() + 1 + word.chars().count();
        if !text.is_empty() && columns > COLUMNS_MAX + usize::from(first.prefix.is_empty()) {
            push(&join(&first.prefix, indent, &text), out);
            indent = &paragraph.indent;
            text.clear();
        }
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&word);
    }
    push(&join(&first.prefix, indent, &text), out);
}

/// Splits lines into units that must not be broken: words, code between backticks, link texts, and
/// words that would look like an item or a heading at the beginning of a line, together with the
/// word before.
fn words(lines: &[Line<'_>]) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut in_code = false;
    let mut brackets = 0_usize;
    for word in lines.iter().flat_map(|line| line.text.split_whitespace()) {
        let is_mark = item(&format!("{word} x")).is_some() || word.starts_with(['#', '>', '|']);
        match words.last_mut() {
            Some(last) if in_code || brackets > 0 || is_mark => {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
        in_code ^= word.matches('`').count() % 2 == 1;
        brackets = (brackets + word.matches('[').count()).saturating_sub(word.matches(']').count());
    }
    words
}

fn join(prefix: &str, indent: &str, text: &str) -> String {
    let blank = if prefix.is_empty() || text.is_empty() { "" } else { " " };
    format!("{prefix}{blank}{indent}{text}")
}

fn push(line: &str, out: &mut String) {
    out.push_str(line);
    out.push('\n');
}

fn is_long(line: &str) -> bool {
    line.chars().count() > COLUMNS_MAX
}

fn is_fence(text: &str) -> bool {
    text.trim_start().starts_with("```")
}

/// Whether a line is not part of a paragraph: blank lines, headings, tables, quotations,
/// references, pictures and columns.
fn is_fixed(text: &str) -> bool {
    let bare = text.trim_start();
    let is_reference = bare.starts_with('[') && bare.contains("]: ");
    let is_picture = bare.trim_end().contains("  ") || bare.contains(|character| ('─'..='╿').contains(&character));
    bare.is_empty() || bare.starts_with(['#', '|', '>', '<', '!']) || is_reference || is_picture
}

/// Whether a line begins a paragraph without a blank line before: `SAFETY:`, `@spec`.
fn is_start(text: &str) -> bool {
    let word = text.split_whitespace().next().unwrap_or_default();
    let is_label = word.len() > 2 && word.starts_with(char::is_uppercase) && word.ends_with(':');
    is_label || word.starts_with("**") || word.starts_with('@')
}

fn indent(text: &str) -> usize {
    text.len() - text.trim_start_matches(' ').len()
}

/// The length of a list item's marker with its blank: `- `, `12. `.
fn item(text: &str) -> Option<usize> {
    let mark = text.split(' ').next()?;
    let number = mark.strip_suffix(['.', ')']).unwrap_or_default();
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let is_mark = matches!(mark, "-" | "*" | "+") || is_number;
    (is_mark && text.len() > mark.len()).then_some(mark.len() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust(text: &str) -> String {
        comments(text, &Source::new(text))
    }

    /// So many words of five letters.
    fn fives(count: usize) -> String {
        vec!["abcde"; count].join(" ")
    }

    #[test]
    fn a_long_paragraph_is_wrapped_and_a_short_one_is_not() {
        let text =
            format!("    /// {}\n    /// end.\n    ///\n    /// Short,\n    /// as written.\nfn f() {{}}\n", fives(20));
        let wrapped = format!(
            "    /// {}\n    /// {} end.\n    ///\n    /// Short,\n    /// as written.\nfn f() {{}}\n",
            fives(15),
            fives(5)
        );
        assert_eq!(rust(&text), wrapped);
        assert_eq!(rust(&wrapped), wrapped);
        assert_eq!(long_lines("a.rs", &text, Some(&Source::new(&text))), 1);
        assert_eq!(long_lines("a.rs", &wrapped, Some(&Source::new(&wrapped))), 0);
    }

    #[test]
    fn comments_of_scripts_are_wrapped_and_their_code_is_not() {
        let long = fives(20);
        let (before, after) =
            (format!("#!/bin/bash {long}\n\n"), format!("  # shellcheck {long}\n  run {long} # {long}\n"));
        let text = format!("{before}  # {long}\n{after}");
        let wrapped = format!("{before}  # {}\n  # {}\n{after}", fives(16), fives(4));
        for path in ["a/b.sh", "Makefile"] {
            assert_eq!(wrapped_file(path, &text, None).as_ref(), Some(&wrapped), "{path}");
            assert_eq!((long_lines(path, &text, None), long_lines(path, &wrapped, None)), (1, 0), "{path}");
        }
        assert_eq!(wrapped_file("a.hex", &text, None), None);
    }

    #[test]
    fn code_pictures_tables_and_literals_are_not_wrapped() {
        let long = fives(20);
        for text in [
            format!("/// ```\n/// {long}\n/// ```\n"),
            format!("/// | {long} |\n"),
            format!("/// # {long}\n"),
            format!("/// Idle  {long}\n"),
            format!("let text = \"\n// {long}\n\";\n"),
            format!("call(); // {long}\n"),
        ] {
            assert_eq!(rust(&text), text);
        }
    }

    #[test]
    fn items_and_labels_start_a_new_line() {
        let long = fives(18);
        assert_eq!(
            rust(&format!("//! - {long}\n//! - b\n")),
            format!("//! - {}\n//!   {}\n//! - b\n", fives(15), fives(3))
        );
        assert_eq!(
            rust(&format!("// SAFETY: {long}\n// JUSTIFICATION: x\n")),
            format!("// SAFETY: {}\n// {}\n// JUSTIFICATION: x\n", fives(15), fives(3))
        );
    }

    #[test]
    fn no_line_begins_with_a_list_marker_or_splits_a_span() {
        let text = format!("// ab {} - x `a b`\n", fives(16));
        assert_eq!(rust(&text), format!("// ab {}\n// abcde - x `a b`\n", fives(15)));
        let text = format!("// {} [abcde f](g) x\n", fives(15));
        assert_eq!(rust(&text), format!("// {}\n// [abcde f](g) x\n", fives(15)));
        let text = format!("// {} `abcde f` x\n", fives(15));
        assert_eq!(rust(&text), format!("// {}\n// `abcde f` x\n", fives(15)));
    }

    #[test]
    fn documents_are_wrapped_too() {
        let text = format!("# {}\n\n- {}\n  b\n", fives(30), fives(17));
        assert_eq!(document(&text), format!("# {}\n\n- {}\n  abcde b\n", fives(30), fives(16)));
        assert_eq!(long_lines("a.md", &text, None), 1);
        assert_eq!(long_lines("a.toml", &text, None), 0);
    }
}
