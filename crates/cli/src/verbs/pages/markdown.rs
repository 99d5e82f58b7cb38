//! The Markdown of the documents as the source of man pages: headings, paragraphs, lists, tables
//! and code. It knows what the documents use, and no more.

use std::fmt::Write as _;

/// The body of a page; the first heading, the title, is left out.
pub(super) fn to_roff(text: &str) -> String {
    let mut page = Page::default();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("```") {
            page.end_paragraph();
            let code: Vec<&str> = lines.by_ref().take_while(|line| !line.starts_with("```")).collect();
            page.code(&code);
        } else if line.starts_with("<!--") {
            let mut line = line;
            while !line.contains("-->") {
                let Some(next) = lines.next() else { break };
                line = next;
            }
        } else if let Some(row) = row(line) {
            page.end_paragraph();
            // The line below the heads of a table.
            let is_head = lines.peek().is_some_and(|next| next.starts_with("|--") || next.starts_with("|:-"));
            if is_head {
                lines.next();
            } else {
                page.row(&row);
            }
        } else {
            page.line(line);
        }
    }
    page.end_paragraph();
    page.out
}

#[derive(Default)]
struct Page {
    out: String,
    /// The paragraph that is collected.
    paragraph: String,
    /// What it begins with.
    mark: Option<&'static str>,
}

impl Page {
    fn line(&mut self, line: &str) {
        let text = line.trim();
        if text.is_empty() {
            self.end_paragraph();
        } else if let Some(title) = text.strip_prefix("### ") {
            self.heading("SS", title);
        } else if let Some(title) = text.strip_prefix("## ") {
            self.heading("SH", &title.to_uppercase());
        } else if text.starts_with("# ") || text.starts_with("![") {
            self.end_paragraph();
        } else if let Some(item) = text.strip_prefix("- ") {
            self.end_paragraph();
            self.mark = Some(".IP \\(bu 2");
            self.paragraph.push_str(item);
        } else if let Some((_, item)) = text.split_once(". ").filter(|(number, _)| number.parse::<u8>().is_ok()) {
            self.end_paragraph();
            self.mark = Some(".IP \\(bu 2");
            self.paragraph.push_str(item);
        } else {
            if !self.paragraph.is_empty() {
                self.paragraph.push(' ');
            }
            self.paragraph.push_str(text);
        }
    }

    fn end_paragraph(&mut self) {
        let paragraph = std::mem::take(&mut self.paragraph);
        let mark = self.mark.take().unwrap_or(".PP");
        if !paragraph.is_empty() {
            let _infallible = writeln!(self.out, "{mark}\n{}", inline(&paragraph));
        }
    }

    fn heading(&mut self, macro_name: &str, title: &str) {
        self.end_paragraph();
        let _infallible = writeln!(self.out, ".{macro_name} \"{}\"", inline(title).replace('"', "\\(dq"));
    }

    fn code(&mut self, lines: &[&str]) {
        self.out.push_str(".PP\n.RS 4\n.nf\n");
        for line in lines {
            let _infallible = writeln!(self.out, "{}", escaped(line));
        }
        self.out.push_str(".fi\n.RE\n");
    }

    /// A row of a table: a term, and what is said of it.
    fn row(&mut self, cells: &[String]) {
        let mut filled = cells.iter().filter(|cell| !cell.is_empty()).map(|cell| inline(cell));
        let Some(term) = filled.next() else { return };
        let rest: Vec<String> = filled.collect();
        let _infallible = writeln!(self.out, ".TP\n{term}\n{}", rest.join("; "));
    }
}

/// The cells of a line of a table.
fn row(line: &str) -> Option<Vec<String>> {
    let inside = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let mut cells = vec![String::new()];
    let mut characters = inside.chars().peekable();
    while let Some(character) = characters.next() {
        match (character, cells.last_mut()) {
            ('\\', Some(cell)) if characters.next_if_eq(&'|').is_some() => cell.push('|'),
            ('|', _) => cells.push(String::new()),
            (other, Some(cell)) => cell.push(other),
            (_, None) => {}
        }
    }
    Some(cells.into_iter().map(|cell| cell.trim().to_owned()).collect())
}

/// Text with code, emphasis and links.
fn inline(text: &str) -> String {
    let mut out = String::new();
    for (index, part) in without_links(text).split('`').enumerate() {
        // Between two back quotes.
        if index % 2 == 1 {
            let _infallible = write!(out, "\\fB{}\\fR", escaped(part));
            continue;
        }
        let plain = part.replace("**", "");
        let mut is_emphasized = false;
        for piece in escaped(&plain).split('*') {
            if is_emphasized {
                let _infallible = write!(out, "\\fI{piece}\\fR");
            } else {
                out.push_str(piece);
            }
            is_emphasized = !is_emphasized;
        }
    }
    // A line that begins with a dot would be a request; the escape has no width.
    if out.starts_with('.') || out.starts_with('\'') { format!("\\&{out}") } else { out }
}

/// `[text](address)` becomes `text`.
fn without_links(text: &str) -> String {
    let mut text = text.to_owned();
    while let Some(middle) = text.find("](") {
        let Some(start) = text[..middle].rfind('[') else { break };
        let Some(end) = text[middle..].find(')').map(|end| middle + end) else { break };
        text = format!("{}{}{}", &text[..start], &text[start + 1..middle], &text[end + 1..]);
    }
    text
}

/// Text that roff takes as it is.
pub(super) fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('^', "\\(ha").replace('~', "\\(ti");
    if text.starts_with('.') || text.starts_with('\'') { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_become_roff() {
        let text = "# Title\n\nA *word* of `a-b\\c` and\n[a link](x.md).\n\n## Keys\n\n| key | text |\n|---|---|\n\
                    | `k` | a \\| b, see [`m`](n.md#o) |\n\n- one\n  more\n- two\n\n```toml\n.x = \"-\"\n```\n<!-- no\nno -->\n";
        let expected = ".PP\nA \\fIword\\fR of \\fBa\\-b\\ec\\fR and a link.\n.SH \"KEYS\"\n.TP\n\\fBk\\fR\na | b, see \\fBm\\fR\n\
                        .IP \\(bu 2\none more\n.IP \\(bu 2\ntwo\n.PP\n.RS 4\n.nf\n\\&.x = \"\\-\"\n.fi\n.RE\n";
        assert_eq!(to_roff(text), expected);
    }
}
