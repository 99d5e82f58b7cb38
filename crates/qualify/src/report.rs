//! Reports for people, made from documents alone: HTML in one file, and Markdown. Owns what is
//! shown and how it looks; it neither measures nor writes files.

mod bars;
mod content;
mod equivalent;
mod figures;
mod html;
mod lines;
mod markdown;
mod plot;
mod setup;
mod summary;
mod svg;
mod text;
mod view;

use crate::document::Document;
use content::Body;
use view::{Source, View};

/// The report of one document as HTML: one file without anything from elsewhere.
#[must_use]
pub fn html(document: &Document) -> String {
    html::render(&content(vec![Source { name: None, document }]))
}

/// The report of one document as Markdown.
#[must_use]
pub fn markdown(document: &Document) -> String {
    markdown::render(&content(vec![Source { name: None, document }]))
}

/// Several documents beside each other, by name, as HTML.
#[must_use]
pub fn html_of(documents: &[(String, Document)]) -> String {
    html::render(&content(sources(documents)))
}

/// Several documents beside each other, by name, as Markdown.
#[must_use]
pub fn markdown_of(documents: &[(String, Document)]) -> String {
    markdown::render(&content(sources(documents)))
}

/// One document has no need of its name.
fn sources(documents: &[(String, Document)]) -> Vec<Source<'_>> {
    let is_single = documents.len() == 1;
    let sources = documents.iter().map(|(name, document)| {
        let name = (!is_single).then_some(name.as_str());
        Source { name, document }
    });
    sources.collect()
}

fn content(sources: Vec<Source<'_>>) -> Body {
    let view = View::new(sources);
    let mut content = summary::head(&view);
    content.sections.extend(figures::ratios(&view));
    content.sections.push(figures::results(&view));
    content.sections.extend(figures::shares(&view));
    content.sections.extend(lines::curve(&view));
    content.sections.push(lines::latency(&view));
    content.sections.extend(lines::time(&view));
    content.sections.extend(setup::cost(&view));
    content.sections.extend(setup::notes(&view));
    content.sections.push(setup::conditions(&view));
    content.sections.push(setup::devices(&view));
    content.sections.push(setup::machine(&view));
    content.sections.push(setup::jobs(&view));
    content
}
