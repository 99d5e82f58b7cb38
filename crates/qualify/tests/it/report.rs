//! Reports of example documents: what they have to contain, and never may. How they look is tested
//! in a browser (page/tests/report.test.mjs).

use ebof_qualify::document::Document;
use ebof_qualify::report::{html, html_of, markdown, markdown_of};

use crate::examples;

fn example(name: &str) -> Document {
    let all = examples::all();
    all.into_iter().find(|(of, _)| of == name).map(|(_, document)| document).expect("it is one of the examples")
}

#[test]
fn every_report_stands_alone_and_has_no_broken_number() {
    for (name, document) in examples::all() {
        let html = html(&document);
        assert!(html.to_lowercase().starts_with("<!doctype html>") && html.trim_end().ends_with("</html>"), "{name}");
        for outside in ["src=\"http", "href=\"http", "url(http", "@import", "<link"] {
            assert!(!html.contains(outside), "{name}: {outside}");
        }
        for broken in ["NaN", "infinity", "=\"inf"] {
            assert!(!html.contains(broken), "{name}: {broken}");
        }
    }
}

#[test]
fn rows_of_markdown_tables_have_as_many_cells_as_their_heads() {
    for (name, document) in examples::all() {
        let text = markdown(&document);
        let mut cells = None;
        for line in text.lines() {
            let count = line.replace("\\|", "").matches('|').count();
            match (line.starts_with('|'), cells) {
                (true, Some(head)) => assert_eq!(count, head, "{name}: {line}"),
                (true, None) => cells = Some(count),
                (false, _) => cells = None,
            }
        }
    }
}

#[test]
fn a_partial_and_a_shortened_report_say_so() {
    let interrupted = example("corners");
    for text in [html(&interrupted), markdown(&interrupted)] {
        assert!(text.to_lowercase().contains("interrupted"), "{}", &text[..500]);
    }
    let quick = Document { quick: Some(200), ..example("odcc") };
    assert!(html(&quick).matches("200").count() > 5 && markdown(&quick).contains("200"));
}

#[test]
fn what_a_device_says_is_text() {
    let hostile = html(&example("hostile"));
    assert!(!hostile.contains("<script>alert") && !hostile.contains("<img"), "it is markup");
    assert!(hostile.contains("&lt;script&gt;"));
}

#[test]
fn two_documents_are_beside_each_other_by_name() {
    let pair = examples::pair();
    for text in [html_of(&pair), markdown_of(&pair)] {
        assert!(text.contains("monday") && text.contains("tuesday"));
    }
}
