//! `$filter`: a condition over the properties of members (DSP0266, "The $filter query parameter").
//!
//! `Status/State eq 'Enabled' and not (CapacityBytes lt 1000)`, with `eq`, `ne`, `gt`, `ge`, `lt`,
//! `le`, `and`, `or`, `not` and parentheses.

use std::cmp::Ordering;

use serde_json::Value;

use crate::response::message::{Message, Problem};

/// The most comparisons, and the deepest parentheses.
const TOKENS_MAX: usize = 256;
const DEPTH_MAX: usize = 16;

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Filter {
    Compare(Vec<String>, Comparison, Value),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    Not(Box<Self>),
}

/// How a property is compared with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

impl Filter {
    /// Reads a condition.
    pub(crate) fn parse(text: &str) -> Result<Self, Problem> {
        const ACCEPTED: &str = "comparisons such as Status/State eq 'Enabled', with and, or, not and parentheses";
        let parsed = tokens(text).and_then(|tokens| {
            let mut parser = Parser { tokens: &tokens, at: 0 };
            let filter = parser.disjunction(0)?;
            (parser.at == tokens.len()).then_some(filter)
        });
        parsed.ok_or_else(|| Problem::bad_request(Message::query_value("$filter", text, ACCEPTED)))
    }

    /// Whether it holds for a resource. A property that the resource lacks equals `null`.
    pub(crate) fn holds(&self, resource: &Value) -> bool {
        match self {
            Self::And(one, other) => one.holds(resource) && other.holds(resource),
            Self::Or(one, other) => one.holds(resource) || other.holds(resource),
            Self::Not(inner) => !inner.holds(resource),
            Self::Compare(path, comparison, value) => {
                let property = path.iter().try_fold(resource, |value, name| value.get(name)).unwrap_or(&Value::Null);
                match property {
                    // It holds for a list if it holds for one of its elements.
                    Value::Array(list) => list.iter().any(|one| comparison.holds(one, value)),
                    one => comparison.holds(one, value),
                }
            }
        }
    }
}

impl Comparison {
    fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "eq" => Self::Equal,
            "ne" => Self::NotEqual,
            "gt" => Self::Greater,
            "ge" => Self::GreaterOrEqual,
            "lt" => Self::Less,
            "le" => Self::LessOrEqual,
            _ => return None,
        })
    }

    fn holds(self, property: &Value, value: &Value) -> bool {
        let order = match (property, value) {
            (Value::Number(one), Value::Number(other)) => one.as_f64().partial_cmp(&other.as_f64()),
            (Value::String(one), Value::String(other)) => Some(one.cmp(other)),
            (one, other) => (one == other).then_some(Ordering::Equal),
        };
        match self {
            Self::Equal => order == Some(Ordering::Equal),
            Self::NotEqual => order != Some(Ordering::Equal),
            Self::Greater => order == Some(Ordering::Greater),
            Self::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
            Self::Less => order == Some(Ordering::Less),
            Self::LessOrEqual => order.is_some_and(Ordering::is_le),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Open,
    Close,
    Word(String),
    Value(Value),
}

fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        if tokens.len() >= TOKENS_MAX {
            return None;
        }
        let (token, after) = match first {
            '(' => (Token::Open, &rest[1..]),
            ')' => (Token::Close, &rest[1..]),
            '\'' => quoted(&rest[1..])?,
            _ => {
                let end = rest.find(|c: char| c.is_whitespace() || "()'".contains(c)).unwrap_or(rest.len());
                (word(&rest[..end]), &rest[end..])
            }
        };
        tokens.push(token);
        rest = after.trim_start();
    }
    Some(tokens)
}

/// A string up to its quote; two quotes are one in it.
fn quoted(text: &str) -> Option<(Token, &str)> {
    let mut value = String::new();
    let mut rest = text;
    loop {
        let (before, after) = rest.split_once('\'')?;
        value.push_str(before);
        match after.strip_prefix('\'') {
            Some(after) => {
                value.push('\'');
                rest = after;
            }
            None => return Some((Token::Value(Value::String(value)), after)),
        }
    }
}

fn word(text: &str) -> Token {
    match text {
        "true" => Token::Value(true.into()),
        "false" => Token::Value(false.into()),
        "null" => Token::Value(Value::Null),
        _ => match serde_json::from_str::<serde_json::Number>(text) {
            Ok(number) => Token::Value(Value::Number(number)),
            Err(_) => Token::Word(text.to_owned()),
        },
    }
}

struct Parser<'t> {
    tokens: &'t [Token],
    at: usize,
}

impl Parser<'_> {
    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn takes(&mut self, word: &str) -> bool {
        let found = self.tokens.get(self.at) == Some(&Token::Word(word.to_owned()));
        self.at += usize::from(found);
        found
    }

    fn disjunction(&mut self, depth: usize) -> Option<Filter> {
        let mut filter = self.conjunction(depth)?;
        while self.takes("or") {
            filter = Filter::Or(Box::new(filter), Box::new(self.conjunction(depth)?));
        }
        Some(filter)
    }

    fn conjunction(&mut self, depth: usize) -> Option<Filter> {
        let mut filter = self.term(depth)?;
        while self.takes("and") {
            filter = Filter::And(Box::new(filter), Box::new(self.term(depth)?));
        }
        Some(filter)
    }

    fn term(&mut self, depth: usize) -> Option<Filter> {
        if depth > DEPTH_MAX {
            return None;
        }
        if self.takes("not") {
            return Some(Filter::Not(Box::new(self.term(depth + 1)?)));
        }
        match self.next()? {
            Token::Open => {
                let inner = self.disjunction(depth + 1)?;
                (self.next()? == Token::Close).then_some(inner)
            }
            Token::Word(path) => {
                let Token::Word(comparison) = self.next()? else { return None };
                let Token::Value(value) = self.next()? else { return None };
                let path = path.split('/').map(str::to_owned).collect();
                Some(Filter::Compare(path, Comparison::from_word(&comparison)?, value))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn conditions_hold_or_do_not() {
        let drive = json!({ "Id": "d'0", "Status": { "State": "Enabled" }, "CapacityBytes": 1000, "Tags": ["a", "b"], "No": null });
        for text in [
            "Id eq 'd''0'",
            "Status/State eq 'Enabled' and CapacityBytes ge 1000",
            "not (CapacityBytes lt 1000) and (Id eq 'x' or CapacityBytes gt 999.5)",
            "No eq null",
            "Missing eq null",
            "Tags eq 'b'",
            "Id ne 'd0' or Id eq 'x'",
        ] {
            assert!(Filter::parse(text).unwrap().holds(&drive), "{text}");
        }
        for text in
            ["Id eq 'd0'", "CapacityBytes gt 1000", "Missing gt 1", "Status eq 'Enabled'", "CapacityBytes eq '1000'"]
        {
            assert!(!Filter::parse(text).unwrap().holds(&drive), "{text}");
        }
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        let (deep, long) = ("(".repeat(100), "Id eq 1 and ".repeat(100) + "Id eq 1");
        for text in
            ["", "Id", "Id eq", "Id is 1", "(Id eq 1", "Id eq 1)", "Id eq 'x", "1 eq Id", "and", "not", &deep, &long]
        {
            Filter::parse(text).unwrap_err();
        }
    }
}
