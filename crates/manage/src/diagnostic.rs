//! Messages that point at a place in a text: file, line, column, the offending text with a caret,
//! and what is accepted.
//!
//! Owns positions, suggestions for misspelt names, and what of a text is shown, which is never a
//! key; knows nothing of what the texts mean.

pub(crate) mod nearest;

use std::borrow::Cow;
use std::cmp::Reverse;
use std::error::Error;
use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet, normalize_untrusted_str};
use ebof_grammar::keys::{with_hidden_keys, without_keys};
use serde::{Deserialize, Serialize};

/// A range of byte offsets in a text.
pub(crate) type Span = Range<usize>;

/// Its severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// For information: something was understood and has no effect here.
    Note,
    /// The text can be used, but probably does not do what was meant.
    Warning,
    /// The text cannot be used.
    Error,
}

/// One message about one place in a text.
///
/// With `{:#}` it is what a compiler would print:
/// ```text
/// error: `block_size` is 1024
///   --> ebof.toml:12:14
///    |
/// 12 | block_size = 1024
///    |              ^^^^
///    |
///    = help: accepted: 512 or 4096
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    /// Its severity.
    pub severity: Severity,
    /// The name of the text, as its reader named it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The message.
    pub message: String,
    /// What is accepted instead, or what to do.
    pub help: Option<String>,
    /// The line itself (the neighbourhood of the place where the line is long), on one row.
    pub excerpt: String,
    /// Where in `excerpt` the place begins, in characters from 0, and how many characters it has
    /// (at least 1).
    pub mark: (usize, usize),
}

/// All messages about one text: errors first, then warnings, then notes, each by place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostics {
    /// The messages.
    pub items: Vec<Diagnostic>,
    /// How many more there were: at most [`MAX_ITEMS`] are kept.
    pub left_out: usize,
}

/// The most messages kept for one text.
pub const MAX_ITEMS: usize = 100;

/// The most characters of a line that are shown.
const EXCERPT_CHARS: usize = 100;

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// One line: place, severity and message. With `{:#}` also the line that it is about, marked, and
/// what helps.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return f.write_str(&Renderer::plain().render(&[self.report()]));
        }
        let Self { severity, file, line, column, message, .. } = self;
        write!(f, "{file}:{line}:{column}: {severity}: {message}")
    }
}

impl Diagnostic {
    /// The message with its excerpt and what helps, for a [`Renderer`].
    fn report(&self) -> Group<'_> {
        let level = match self.severity {
            Severity::Note => Level::NOTE,
            Severity::Warning => Level::WARNING,
            Severity::Error => Level::ERROR,
        };
        let title = level.primary_title(self.message.as_str());
        let (start, width) = self.mark;
        // What is missing behind the end of a line has its mark there.
        let source = format!("{:least$}", self.excerpt, least = start.min(EXCERPT_CHARS));
        let offset = |nth| source.char_indices().nth(nth).map_or(source.len(), |(offset, _)| offset);
        let mark = offset(start)..offset(start.saturating_add(width));
        let snippet = Snippet::source(source).line_start(self.line).annotation(AnnotationKind::Primary.span(mark));
        // Titles and sources are made printable by the renderer.
        let file = normalize_untrusted_str(&self.file);
        let group = if self.column == start.saturating_add(1) {
            title.element(snippet.path(file))
        } else {
            // The renderer would take the column in the excerpt for that in the file.
            let place = Origin::path(file).line(self.line).char_column(self.column);
            title.element(place).element(snippet)
        };
        group.elements(self.help.as_deref().map(|help| Level::HELP.message(normalize_untrusted_str(help))))
    }
}

/// A message about a place in a text, for [`Diagnostics::about`].
#[derive(Clone, Debug)]
pub struct Message {
    /// Its severity.
    pub severity: Severity,
    /// The place: a range of byte offsets.
    pub span: Range<usize>,
    /// The message.
    pub text: String,
    /// What helps; empty for nothing.
    pub help: String,
}

impl Diagnostics {
    /// Messages about the text that its reader calls `name`. No excerpt shows what is in `hidden`.
    #[must_use]
    pub fn about(name: &str, text: &str, messages: Vec<Message>, hidden: &[Range<usize>]) -> Self {
        let mut out = Collector::new(name, text);
        for span in hidden {
            out.hide(span.clone());
        }
        for message in messages {
            out.push(message.severity, message.span, message.text, message.help);
        }
        out.finish()
    }

    /// The number of errors among the kept messages.
    #[must_use]
    pub fn errors(&self) -> usize {
        self.items.iter().filter(|item| item.severity == Severity::Error).count()
    }

    /// Whether there are no messages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

/// The first message in one line, and how many more there are. With `{:#}` all of them, in the long
/// form.
impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            let Some(first) = self.items.first() else { return Ok(()) };
            let more = self.items.len() - 1 + self.left_out;
            return if more == 0 { first.fmt(f) } else { write!(f, "{first} (and {more} more)") };
        }
        for (at, item) in self.items.iter().enumerate() {
            if at > 0 {
                f.write_str("\n\n")?;
            }
            item.fmt(f)?;
        }
        if self.left_out > 0 {
            write!(f, "\n\nand {} more", self.left_out)?;
        }
        Ok(())
    }
}

impl Error for Diagnostics {}

/// Gathers messages about one text while it is read.
pub(crate) struct Collector<'a> {
    name: &'a str,
    text: &'a str,
    json: bool,
    /// What no excerpt shows.
    hidden: Vec<Span>,
    found: Vec<(Severity, Span, String, Option<String>)>,
    errors: usize,
    left_out: usize,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(name: &'a str, text: &'a str) -> Self {
        Self { name, text, json: false, hidden: Vec::new(), found: Vec::new(), errors: 0, left_out: 0 }
    }

    /// The whole text.
    pub(crate) fn text(&self) -> &'a str {
        self.text
    }

    /// Whether advice is to be written as JSON and not as TOML.
    pub(crate) fn set_json(&mut self, json: bool) {
        self.json = json;
    }

    /// A key and its value as this text would write them.
    pub(crate) fn assignment(&self, key: &str, value: &str) -> String {
        if self.json { format!("\"{key}\": {value}") } else { format!("{key} = {value}") }
    }

    /// How this text writes a list of tables.
    pub(crate) fn table_list(&self, key: &str) -> String {
        if self.json { format!("\"{key}\": [{{ ... }}]") } else { format!("[[{key}]], once for each") }
    }

    pub(crate) fn error(&mut self, span: Span, message: impl Into<String>, help: impl Into<String>) {
        self.errors += 1;
        self.push(Severity::Error, span, message.into(), help.into());
    }

    pub(crate) fn warning(&mut self, span: Span, message: impl Into<String>, help: impl Into<String>) {
        self.push(Severity::Warning, span, message.into(), help.into());
    }

    pub(crate) fn note(&mut self, span: Span, message: impl Into<String>, help: impl Into<String>) {
        self.push(Severity::Note, span, message.into(), help.into());
    }

    /// Leaves a place out of all excerpts: it may be a key.
    pub(crate) fn hide(&mut self, span: Span) {
        self.hidden.push(span);
    }

    /// The line of a place, from 1.
    pub(crate) fn line_of(&self, span: &Span) -> usize {
        self.before(span.start).matches('\n').count() + 1
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Everything gathered. Errors come first: warnings are often their consequence.
    pub(crate) fn finish(mut self) -> Diagnostics {
        self.found.sort_by_key(|(severity, span, ..)| (Reverse(*severity), span.start, span.end));
        let items = self.found.iter().map(|(severity, span, message, help)| Diagnostic {
            severity: *severity,
            message: message.clone(),
            help: help.clone(),
            ..self.at(span)
        });
        Diagnostics { items: items.collect(), left_out: self.left_out }
    }

    /// An empty `help` is none. An error takes the place of the last lesser message when the list
    /// is full, so that a text that is refused always says why.
    fn push(&mut self, severity: Severity, span: Span, message: String, help: String) {
        let without = |text: String| match without_keys(&text) {
            Cow::Owned(shown) => shown,
            Cow::Borrowed(_) => text,
        };
        let (message, help) = (without(message), (!help.is_empty()).then(|| without(help)));
        if self.found.len() >= MAX_ITEMS {
            self.left_out += 1;
            let lesser = self.found.iter().rposition(|(other, ..)| *other < severity);
            let Some(at) = lesser else { return };
            self.found.remove(at);
        }
        self.found.push((severity, span, message, help));
    }

    /// The text before an offset. One past the end or inside a character is moved back.
    fn before(&self, offset: usize) -> &'a str {
        let offset = offset.min(self.text.len());
        let is_boundary = |at: &usize| self.text.is_char_boundary(*at);
        &self.text[..(0..=offset).rev().find(is_boundary).unwrap_or(0)]
    }

    /// A message about a place, without its words.
    fn at(&self, span: &Span) -> Diagnostic {
        let before = self.before(span.start);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let column = before[line_start..].chars().count();
        let first_line = |text: &'a str| text.lines().next().unwrap_or_default();
        let marked = self.before(span.end).get(before.len()..).map_or("", first_line);
        let width = marked.trim_end().chars().count().max(1);
        // A line of a minified file can have megabytes: show what surrounds the place.
        let skip = if column + width <= EXCERPT_CHARS { 0 } else { column.saturating_sub(EXCERPT_CHARS / 4) };
        // The whole line: the part that is shown may have no beginning of a key.
        let line = first_line(&self.text[line_start..]);
        let without_keys = with_hidden_keys(line);
        let is_hidden = |at: usize| self.hidden.iter().any(|span| span.contains(&(line_start + at)));
        let shown = line.char_indices().zip(without_keys.chars()).skip(skip).take(EXCERPT_CHARS);
        let shown = shown.map(|((at, _), c)| if is_hidden(at) { '*' } else { c });
        let excerpt: String = shown.map(|c| if c.is_control() { ' ' } else { c }).collect();
        let start = column - skip;
        Diagnostic {
            severity: Severity::Note,
            file: self.name.to_owned(),
            line: self.line_of(span),
            column: column + 1,
            message: String::new(),
            help: None,
            excerpt: excerpt.trim_end().to_owned(),
            // It begins within the excerpt: where that is cut, in its first quarter.
            mark: (start, width.min(EXCERPT_CHARS - start)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str, span: Span) -> String {
        let mut out = Collector::new("a.toml", text);
        out.error(span, "no", "accepted: yes");
        format!("{:#}", out.finish())
    }

    #[test]
    fn a_message_points_at_its_position() {
        assert_eq!(
            one("first\n  second = 7\n", 17..18),
            "error: no\n --> a.toml:2:12\n  |\n2 |   second = 7\n  |            ^\n  |\n  = help: accepted: yes"
        );
    }

    #[test]
    fn others_have_messages_about_their_texts() {
        let message =
            |severity, span, text: &str| Message { severity, span, text: text.to_owned(), help: String::new() };
        let found = vec![message(Severity::Warning, 0..1, "w"), message(Severity::Error, 6..9, "e")];
        let secret = 7..10;
        let shown = format!("{:#}", Diagnostics::about("a.conf", "a b\n-S abc\n", found, &[secret]));
        assert!(shown.starts_with("error: e\n --> a.conf:2:3\n") && shown.contains("warning: w"), "{shown}");
        assert!(shown.contains("-S ***") && !shown.contains("abc"), "{shown}");
    }

    #[test]
    fn columns_count_characters() {
        assert!(one("é = ü", 5..7).contains("a.toml:1:5\n"), "{}", one("é = ü", 5..7));
    }

    #[test]
    fn marks_are_below_what_they_mean_in_a_terminal() {
        let shown = one("漢字 = 7", 9..10);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!((lines[1], lines[4]), (" --> a.toml:1:6", "  |        ^"), "two columns for each ideograph");
    }

    #[test]
    fn control_characters_are_not_sent_to_a_terminal() {
        let mut out = Collector::new("a\u{1b}[2J.toml", "\u{1b}[31m = 7");
        out.error(0..1, "the key \u{1b}[31m", "not \u{1b}[31m");
        assert!(!format!("{:#}", out.finish()).contains('\u{1b}'));
    }

    #[test]
    fn no_message_and_no_excerpt_has_a_key() {
        const KEY: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
        let text = format!("é = \"{KEY}\" # b\nx = \"AAEC é\"\n{}{KEY}", "y".repeat(300));
        let mut out = Collector::new("a.toml", &text);
        out.error(5..6, format!("`{KEY}` is wrong"), format!("not {KEY}"));
        let second = text.find("x =").unwrap();
        out.hide(second + 5..second + 12);
        out.error(second..second + 1, "x", "");
        // In the middle of a key whose beginning is not shown.
        out.error(text.len() - 10..text.len(), "y", "");
        let all = out.finish();
        let shown = format!("{all:#}{all:?}");
        assert!(!shown.contains("AAEC") && !shown.contains("KfiaR"), "{shown}");
        assert!(shown.contains("`DHHC-1:***` is wrong") && shown.contains("x = \"******\""), "{shown}");
        let excerpt = &all.items[0].excerpt;
        assert!(
            excerpt.ends_with("*\" # b") && excerpt.chars().count() == text.lines().next().unwrap().chars().count()
        );
    }

    #[test]
    fn positions_beyond_the_text_do_not_panic() {
        for span in [0..0, 90..100, Span { start: 1, end: 0 }, 1..2] {
            assert!(one("é", span).contains("a.toml:1:"));
        }
        assert!(one("", 0..0).contains("a.toml:1:1"));
    }

    #[test]
    fn a_long_line_is_truncated_around_the_position() {
        let text = format!("{}KEY{}", "x".repeat(5000), "y".repeat(5000));
        let shown = one(&text, 5000..5003);
        assert!(shown.contains("KEY") && shown.contains(" --> a.toml:1:5001\n"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() < 120), "{shown}");
    }

    #[test]
    fn the_list_is_bounded_and_keeps_errors() {
        let mut out = Collector::new("a", "text");
        for _ in 0..MAX_ITEMS {
            out.warning(0..1, "w", "");
        }
        out.error(0..1, "e", "");
        let all = out.finish();
        assert_eq!((all.items.len(), all.errors(), all.left_out), (MAX_ITEMS, 1, 1));
    }
}
