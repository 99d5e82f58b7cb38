//! A report as one HTML file that needs nothing else: style and pictures are within, there is no
//! script. It is read on a screen and a telephone, in light and dark, and printed.

use std::fmt::Write as _;

use super::content::{Body, Cell, Figure, Grid, Item, Section, Tone};
use super::svg::swatch;
use super::text::{css, html as escape};

const STYLE: &str = include_str!("style.css");

/// Nothing in the file is loaded from elsewhere or run, even if a text got through as a tag.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The file. Writing to a `String` does not fail.
pub(super) fn render(content: &Body) -> String {
    let mut out = String::with_capacity(256 << 10);
    let title = escape(&content.title);
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Body-Security-Policy\" \
         content=\"{POLICY}\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta \
         name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <style>\n{STYLE}{}</style>\n</head>\n<body>\n",
        printed(content)
    );
    header(&mut out, content);
    out.push_str("<main>\n");
    for section in &content.sections {
        self::section(&mut out, section, &content.tags);
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

/// The margins of printed pages: what the report is, in which state, and the page's number.
fn printed(content: &Body) -> String {
    let short: String = content.title.chars().take(90).collect();
    let tags: Vec<_> = content.tags.iter().take(4).map(String::as_str).collect();
    let state = css(&tags.join("; "));
    format!("@page {{ @top-left {{ content: \"{}\" }} @top-right {{ content: \"{state}\" }} }}\n", css(&short))
}

fn tags(tags: &[String]) -> String {
    tags.iter().take(4).map(|tag| format!(" <span class=\"tag\">{}</span>", escape(tag))).collect()
}

fn header(out: &mut String, content: &Body) {
    let _ = writeln!(out, "<header>\n<h1>{}{}</h1>", escape(&content.title), tags(&content.tags));
    for banner in &content.banners {
        let (heading, text) = (escape(&banner.heading), escape(&banner.text));
        let _ = writeln!(out, "<p class=\"banner\"><strong>{heading}</strong> {text}</p>");
    }
    for line in &content.verdict {
        let _ = writeln!(out, "<p class=\"verdict\">{}</p>", escape(line));
    }
    out.push_str("<dl class=\"facts\">\n");
    for (name, value) in &content.facts {
        let _ = writeln!(out, "<div><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value));
    }
    out.push_str("</dl>\n<nav aria-label=\"Sections\">");
    for section in &content.sections {
        let _ = write!(out, "<a href=\"#{}\">{}</a> ", section.id, escape(section.title));
    }
    out.push_str("</nav>\n</header>\n");
}

fn section(out: &mut String, section: &Section, tags: &[String]) {
    let (id, title) = (section.id, escape(section.title));
    let _ = writeln!(out, "<section id=\"{id}\" aria-labelledby=\"{id}-title\">");
    let _ = writeln!(out, "<h2 id=\"{id}-title\">{title}{}</h2>", self::tags(tags));
    for block in &section.blocks {
        self::block(out, block);
    }
    out.push_str("</section>\n");
}

fn block(out: &mut String, block: &Item) {
    match block {
        Item::Text(text) => {
            let _ = writeln!(out, "<p>{}</p>", escape(text));
        }
        Item::Heading(text) => {
            let _ = writeln!(out, "<h3>{}</h3>", escape(text));
        }
        Item::Grid(table) => self::table(out, table),
        Item::Figures(figures) => {
            out.push_str("<div class=\"figures\">\n");
            for figure in figures {
                self::figure(out, figure);
            }
            out.push_str("</div>\n");
        }
        Item::Code { caption, text } => {
            let _ =
                writeln!(out, "<p class=\"caption\">{}</p>\n<pre><code>{}</code></pre>", escape(caption), escape(text));
        }
        Item::List(items) => {
            let items: String = items.iter().map(|item| format!("<li>{}</li>\n", escape(item))).collect();
            let _ = writeln!(out, "<ul>\n{items}</ul>");
        }
    }
}

fn figure(out: &mut String, figure: &Figure) {
    let class = if figure.wide.is_some() { " class=\"both\"" } else { "" };
    let _ = writeln!(out, "<figure{class}>\n<figcaption>{}</figcaption>", escape(&figure.caption));
    if !figure.legend.is_empty() {
        out.push_str("<ul class=\"legend\">");
        for (look, name) in &figure.legend {
            let _ = write!(out, "<li>{}{}</li>", swatch(*look), escape(name));
        }
        out.push_str("</ul>\n");
    }
    let _ = writeln!(out, "{}{}\n</figure>", figure.narrow, figure.wide.as_deref().unwrap_or_default());
}

fn table(out: &mut String, table: &Grid) {
    // A scrollable region is reached by the keyboard.
    out.push_str("<div class=\"wide-table\" tabindex=\"0\" role=\"group\" aria-label=\"Grid\"><table>\n");
    if !table.caption.is_empty() {
        let _ = writeln!(out, "<caption>{}</caption>", escape(&table.caption));
    }
    out.push_str("<thead><tr>");
    for head in &table.head {
        let class = if head.is_number { " class=\"number\"" } else { "" };
        if head.text.is_empty() {
            out.push_str("<td></td>");
        } else {
            let _ = write!(out, "<th scope=\"col\"{class}>{}</th>", escape(&head.text));
        }
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for (index, cell) in row.iter().enumerate() {
            let is_number = table.head.get(index).is_some_and(|head| head.is_number);
            self::cell(out, cell, index == 0, is_number);
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

fn cell(out: &mut String, cell: &Cell, is_first: bool, is_number: bool) {
    let tone = match cell.tone {
        Tone::Plain => "",
        Tone::Strong => "strong",
        Tone::Bad => "bad",
    };
    let classes: Vec<_> =
        [if is_number { "number" } else { "" }, tone].into_iter().filter(|class| !class.is_empty()).collect();
    let class = if classes.is_empty() { String::new() } else { format!(" class=\"{}\"", classes.join(" ")) };
    let text = escape(&cell.text);
    let _ = if is_first {
        write!(out, "<th scope=\"row\"{class}>{text}</th>")
    } else {
        write!(out, "<td{class}>{text}</td>")
    };
}
