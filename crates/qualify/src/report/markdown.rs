//! A report as Markdown: everything but the pictures, whose numbers are in the tables.

use std::fmt::Write as _;

use super::content::{Body, Cell, Grid, Item, Tone};
use super::text::{markdown as escape, plain};

/// The text of a report. Writing to a `String` does not fail.
pub(super) fn render(content: &Body) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "# {}", escape(&content.title));
    for banner in &content.banners {
        let _ = writeln!(out, "\n> **{}** {}", escape(&banner.heading), escape(&banner.text));
    }
    for line in &content.verdict {
        let _ = writeln!(out, "\n**{}**", escape(line));
    }
    let facts = content.facts.iter().map(|(name, value)| format!("- {}: {}", escape(name), escape(value)));
    let _ = writeln!(out, "\n{}", facts.collect::<Vec<_>>().join("\n"));
    for section in &content.sections {
        let tags: String = content.tags.iter().map(|tag| format!(" ({})", escape(tag))).collect();
        let _ = writeln!(out, "\n## {}{tags}", section.title);
        for block in &section.blocks {
            self::block(&mut out, block);
        }
    }
    out
}

fn block(out: &mut String, block: &Item) {
    match block {
        Item::Text(text) => {
            let _ = writeln!(out, "\n{}", escape(text));
        }
        Item::Heading(text) => {
            let _ = writeln!(out, "\n### {}", escape(text));
        }
        Item::Grid(table) => self::table(out, table),
        Item::Figures(_) => {}
        Item::Code { caption, text } => {
            let text = plain(text);
            // A fence is longer than any within.
            let longest = text.split(|character| character != '`').map(str::len).max().unwrap_or(0);
            let fence = "`".repeat(longest.max(2) + 1);
            let _ = writeln!(out, "\n{}\n\n{fence}\n{text}\n{fence}", escape(caption));
        }
        Item::List(items) => {
            let items = items.iter().map(|item| format!("- {}", escape(item)));
            let _ = writeln!(out, "\n{}", items.collect::<Vec<_>>().join("\n"));
        }
    }
}

fn table(out: &mut String, table: &Grid) {
    if !table.caption.is_empty() {
        let _ = writeln!(out, "\n{}", escape(&table.caption));
    }
    let heads = table.head.iter().map(|head| escape(&head.text));
    let _ = writeln!(out, "\n| {} |", heads.collect::<Vec<_>>().join(" | "));
    let rules = table.head.iter().map(|head| if head.is_number { "---:" } else { "---" });
    let _ = writeln!(out, "|{}|", rules.collect::<Vec<_>>().join("|"));
    for row in &table.rows {
        let _ = writeln!(out, "| {} |", row.iter().map(cell).collect::<Vec<_>>().join(" | "));
    }
}

fn cell(cell: &Cell) -> String {
    let text = escape(&cell.text);
    if cell.tone == Tone::Strong && !text.trim().is_empty() { format!("**{}**", text.trim()) } else { text }
}
