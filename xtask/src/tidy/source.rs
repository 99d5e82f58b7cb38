//! A Rust file for the checks: code without comments and literals, comments by line, texts, and the
//! lines of tests. Implements just enough of Rust's lexical rules for that; it is not a parser.

/// One file. Lines count from 0 in here.
pub(crate) struct Source {
    /// The file's code by line, with blanks instead of comments and the content of literals.
    code: Vec<String>,
    /// The text of comments by line, with their slashes.
    comments: Vec<String>,
    /// Lines inside a `#[cfg(test)]` item.
    tests: Vec<bool>,
    /// String literals with the number of their first line.
    literals: Vec<(usize, String)>,
    first_line: String,
}

impl Source {
    pub(crate) fn new(text: &str) -> Self {
        let Scanner { code, comments, literals, .. } = Scanner::new(text).scan();
        let code: Vec<String> = code.split('\n').map(str::to_owned).collect();
        let comments: Vec<String> = comments.split('\n').map(str::to_owned).collect();
        let tests = test_lines(&code);
        Self { code, comments, tests, literals, first_line: text.lines().next().unwrap_or_default().to_owned() }
    }

    pub(crate) fn first_line(&self) -> &str {
        &self.first_line
    }

    /// Number of the line (from 1) and its code.
    pub(crate) fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.iter().enumerate().map(|(line, code)| (line + 1, code.as_str()))
    }

    /// Number of the line (from 1) and the comments on it.
    pub(crate) fn comments(&self) -> impl Iterator<Item = (usize, &str)> {
        self.comments.iter().enumerate().map(|(line, comment)| (line + 1, comment.trim()))
    }

    /// The number of lines of code, without tests.
    pub(crate) fn length(&self) -> usize {
        self.code.iter().zip(&self.tests).filter(|(code, test)| !**test && !code.trim().is_empty()).count()
    }

    /// Number of the line (from 1) and its code, without tests.
    pub(crate) fn product(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code().zip(&self.tests).filter(|(_, test)| !**test).map(|(line, _)| line)
    }

    /// Number of the line (from 1) and the content of each string literal, without tests.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (usize, &str)> {
        let product = self.literals.iter().filter(|(line, _)| !self.tests[*line]);
        product.map(|(line, text)| (line + 1, text.as_str()))
    }

    /// The code without tests, as one text.
    pub(crate) fn product_code(&self) -> String {
        let lines = self.code.iter().zip(&self.tests).filter(|(_, test)| !**test);
        lines.flat_map(|(code, _)| [code.as_str(), "\n"]).collect()
    }

    /// The comment above `line` (from 1): the nearest block of comment lines before it within the
    /// same statement.
    pub(crate) fn comment_above(&self, line: usize) -> String {
        let mut above = Vec::new();
        for index in (0..line - 1).rev() {
            let code = self.code[index].trim();
            let comment = self.comments[index].trim();
            match (code.is_empty(), comment.is_empty()) {
                (true, false) => above.push(comment),
                (true, true) => break,
                // The beginning of the statement may be in between, but not the end of another
                // statement or block.
                (false, _) if !above.is_empty() || code.ends_with([';', '{', '}']) => break,
                (false, _) => {}
            }
        }
        above.reverse();
        above.join("\n")
    }

    /// Whether the file has a word `member` inside a block whose head names `owner`: a function of
    /// an `impl`, a method of a trait, or a variant of an enum.
    pub(crate) fn has_member(&self, owner: &str, member: &str) -> bool {
        let mut inside = None;
        let mut depth = 0_usize;
        let mut head = String::new();
        let mut body = String::new();
        for character in self.code.iter().flat_map(|code| code.chars().chain(['\n'])) {
            match character {
                '{' => {
                    if inside.is_none() && is_head_of(&head, owner) {
                        inside = Some(depth);
                    }
                    depth += 1;
                    head.clear();
                }
                '}' => {
                    depth = depth.saturating_sub(1);
                    if inside == Some(depth) {
                        inside = None;
                    }
                    head.clear();
                }
                ';' => head.clear(),
                other => head.push(other),
            }
            if inside.is_some() {
                body.push(character);
            }
        }
        has_word(&body, member)
    }

    /// Whether the file defines a function of this name.
    pub(crate) fn has_function(&self, name: &str) -> bool {
        self.code.iter().any(|code| {
            let mut words = words(code).skip_while(|word| *word != "fn");
            words.nth(1) == Some(name)
        })
    }
}

/// Whether `text` contains `word` as a word of its own.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    words(text).any(|found| found == word)
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_alphanumeric() && character != '_').filter(|word| !word.is_empty())
}

fn is_head_of(head: &str, owner: &str) -> bool {
    ["impl", "trait", "enum", "struct"].into_iter().any(|keyword| has_word(head, keyword)) && has_word(head, owner)
}

/// Marks the lines of items under `#[cfg(test)]`, by their braces.
fn test_lines(code: &[String]) -> Vec<bool> {
    let mut tests = vec![false; code.len()];
    let mut line = 0;
    while line < code.len() {
        if !code[line].contains("#[cfg(test)]") {
            line += 1;
            continue;
        }
        let end = item_end(code, line);
        tests[line..=end].fill(true);
        line = end + 1;
    }
    tests
}

/// The last line of the item that starts at `line`: that of its closing brace, or of the semicolon
/// if it has none.
fn item_end(code: &[String], line: usize) -> usize {
    let mut depth = 0_usize;
    for (index, text) in code.iter().enumerate().skip(line) {
        for character in text.chars() {
            match character {
                '{' => depth += 1,
                '}' if depth <= 1 => return index,
                '}' => depth -= 1,
                ';' if depth == 0 => return index,
                _ => {}
            }
        }
    }
    code.len() - 1
}

/// Splits a text into code and comments of the same shape.
struct Scanner<'a> {
    rest: &'a str,
    code: String,
    comments: String,
    literals: Vec<(usize, String)>,
    line: usize,
}

impl<'a> Scanner<'a> {
    fn new(text: &'a str) -> Self {
        let code = String::with_capacity(text.len());
        Self { rest: text, code, comments: String::new(), literals: Vec::new(), line: 0 }
    }

    fn scan(mut self) -> Self {
        while let Some(first) = self.rest.chars().next() {
            match first {
                '/' if self.rest.starts_with("//") => {
                    let end = self.rest.find('\n').unwrap_or(self.rest.len());
                    self.comment(end);
                }
                '/' if self.rest.starts_with("/*") => self.comment(block_comment(self.rest)),
                '"' => self.literal(string(self.rest)),
                '\'' => match character(self.rest) {
                    Some(end) => self.literal(end),
                    None => self.keep(1),
                },
                'r' | 'b' | 'c' if !self.in_word() => match raw_string(self.rest) {
                    Some(end) => self.literal(end),
                    None => self.keep(1),
                },
                other => self.keep(other.len_utf8()),
            }
        }
        self
    }

    fn in_word(&self) -> bool {
        self.code.chars().next_back().is_some_and(|last| last.is_alphanumeric() || last == '_')
    }

    fn keep(&mut self, bytes: usize) {
        let (kept, rest) = self.rest.split_at(bytes);
        self.code.push_str(kept);
        if kept == "\n" {
            self.comments.push('\n');
            self.line += 1;
        }
        self.rest = rest;
    }

    fn comment(&mut self, bytes: usize) {
        let (comment, rest) = self.rest.split_at(bytes);
        self.comments.push_str(comment);
        self.line += comment.matches('\n').count();
        self.code.extend(comment.chars().filter(|character| *character == '\n'));
        self.rest = rest;
    }

    /// Replaces a literal by a pair of quotes: it is code, but its content is not.
    fn literal(&mut self, bytes: usize) {
        let (literal, rest) = self.rest.split_at(bytes);
        self.code.push_str("\"\"");
        if let Some((_, text)) = literal.split_once('"') {
            self.literals.push((self.line, one_line(text.trim_end_matches('#').trim_end_matches('"'))));
        }
        for _ in literal.matches('\n') {
            self.code.push('\n');
            self.comments.push('\n');
            self.line += 1;
        }
        self.rest = rest;
    }
}

/// A literal that goes on in the next line after a backslash, as one line.
fn one_line(text: &str) -> String {
    let mut lines = text.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |all, next| all + next.trim_start())
}

fn block_comment(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a character literal; `None` for a lifetime.
fn character(text: &str) -> Option<usize> {
    let mut characters = text.char_indices().skip(1);
    let (_, first) = characters.next()?;
    if first == '\\' {
        let escaped = characters.next()?.0;
        return text[escaped + 1..].find('\'').map(|end| escaped + 1 + end + 1);
    }
    characters.next().filter(|(_, second)| *second == '\'').map(|(at, _)| at + 1)
}

/// The length of a raw or byte string that starts here: `r""`, `r#""#`, `br""`, `b""`, `c""`.
fn raw_string(text: &str) -> Option<usize> {
    let prefix = text.find(|character| !matches!(character, 'r' | 'b' | 'c'))?;
    let raw = text[..prefix].contains('r');
    let hashes = text[prefix..].find(|character| character != '#')?;
    let quote = prefix + hashes;
    if prefix > 2 || !text[quote..].starts_with('"') || (hashes > 0 && !raw) {
        return None;
    }
    if !raw {
        return Some(quote + string(&text[quote..]));
    }
    let end = format!("\"{}", "#".repeat(hashes));
    Some(text[quote + 1..].find(&end).map_or(text.len(), |at| quote + 1 + at + end.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Source::new(text).code.join("\n")
    }

    #[test]
    fn comments_and_literals_are_not_code() {
        assert_eq!(code("a // unsafe\nb"), "a \nb");
        assert_eq!(code("a /* unsafe /* nested */ still\n */ b"), "a \n b");
        assert_eq!(code(r#"x("un\"safe")"#), r#"x("")"#);
        assert_eq!(code("x(r#\"un\"safe\"#, br\"\\\", b\"y\")"), "x(\"\", \"\", \"\")");
        assert_eq!(code("match c { '\"' => '\\'', '\\u{1}' => 'a' }"), "match c { \"\" => \"\", \"\" => \"\" }");
        assert_eq!(code("fn f<'a>(x: &'a str) {}"), "fn f<'a>(x: &'a str) {}");
        assert_eq!(code("\"a\nb\" c"), "\"\"\n c");
        assert_eq!(code("for number in bar\"\""), "for number in bar\"\"");
    }

    #[test]
    fn texts_are_those_of_the_product() {
        let source = Source::new(
            "fn f() {\n    x(\"a b \\\n       c\", 'd', r#\"e\"f\"#);\n}\n#[cfg(test)]\nmod tests {\n    fn g() { x(\"h\") }\n}\n",
        );
        assert_eq!(source.texts().collect::<Vec<_>>(), [(2, "a b c"), (3, "e\"f")]);
    }

    #[test]
    fn tests_blank_lines_and_comments_do_not_count() {
        let source = Source::new(
            "//! a\n\nfn f() {\n    // why\n    1\n}\n\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\nfn h() {}\n",
        );
        assert_eq!(source.length(), 4);
        assert_eq!(Source::new("#[cfg(test)]\nmod tests;\nfn h() {}\n").length(), 1);
    }

    #[test]
    fn members_are_found_only_in_their_own_type() {
        let source = Source::new(
            "impl Queue {\n    pub fn submit(&self) { helper() }\n}\nenum Step { Read, Shared(u8) }\nfn loose() {}\nimpl fmt::Debug for Other {}\n",
        );
        assert!(source.has_member("Queue", "submit"));
        assert!(source.has_member("Step", "Shared"));
        assert!(!source.has_member("Queue", "loose"));
        assert!(!source.has_member("Step", "submit"));
        assert!(!source.has_member("Queu", "submit"));
        assert!(source.has_function("loose"));
        assert!(!source.has_function("helper"));
    }

    #[test]
    fn a_comment_applies_to_the_next_statement_only() {
        let source = Source::new("// one\n// two\nlet x =\n    here();\nlet y = there();\n\n// far\n\nlast();\n");
        assert_eq!(source.comment_above(4), "// one\n// two");
        assert_eq!(source.comment_above(5), "");
        assert_eq!(source.comment_above(9), "");
    }
}
