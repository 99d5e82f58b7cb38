//! What reports tell: ratios beside the documents', shares, curves, every setting; as well-formed
//! files.

use ebof_qualify::document::{Document, State};
use ebof_qualify::report::{html, html_of, markdown, markdown_of};

use crate::examples;

/// Elements of a file that opens and closes each of them in order.
fn elements(text: &str) -> Vec<&str> {
    let mut open = Vec::new();
    let mut all = Vec::new();
    let body = text.split_once("<body>").expect("a body").1;
    for tag in body.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("every tag ends");
        if let Some(name) = tag.strip_prefix('/') {
            let last = open.pop();
            assert!(last == Some(name) || matches!(name, "body" | "html"), "</{name}> after {last:?}");
        } else if !tag.ends_with('/') {
            let name = tag.split(' ').next().expect("split returns a part");
            open.push(name);
            all.push(name);
        }
    }
    assert_eq!(open, [""; 0]);
    all
}

#[test]
fn every_procedure_has_a_well_formed_report() {
    const KNOWN: [&str; 37] = [
        "a",
        "caption",
        "code",
        "dd",
        "desc",
        "div",
        "dl",
        "dt",
        "figcaption",
        "figure",
        "h1",
        "h2",
        "h3",
        "header",
        "li",
        "line",
        "main",
        "nav",
        "p",
        "path",
        "pre",
        "rect",
        "section",
        "span",
        "strong",
        "svg",
        "table",
        "tbody",
        "td",
        "text",
        "th",
        "thead",
        "title",
        "tr",
        "ul",
        "b",
        "i",
    ];
    for (name, document) in examples::all() {
        let text = html(&document);
        let unknown: Vec<_> = elements(&text).into_iter().filter(|element| !KNOWN.contains(element)).collect();
        assert_eq!(unknown, [""; 0], "{name}");
        assert!(!text.contains("NaN") && !text.contains("=\"inf"), "{name}");
        assert_eq!(text, html(&document), "{name}: the same document makes the same report");
    }
}

#[test]
fn what_a_document_says_is_text_only() {
    let document = examples::hostile();
    for text in [html(&document), html_of(&[("<b>".into(), document.clone()), ("\"'".into(), document.clone())])] {
        let lower = text.to_lowercase();
        for tag in ["<script", "<img", "<b>", "<iframe"] {
            assert!(!lower.contains(tag), "{tag}");
        }
        assert_eq!(lower.matches("</style").count(), 1);
        assert!(!text.contains('\u{202e}') && !text.contains('\u{0}'));
    }
    let text = markdown_of(&[("a|b".into(), document.clone()), ("c".into(), document)]);
    // Every second part is a block of code, in which nothing has a meaning.
    let text: String = text.split("\n```").step_by(2).collect();
    assert!(!text.contains("<script") && !text.replace("\\]", "").contains("](javascript"));
    // Nobody ends a block of code, or begins a heading.
    assert!(!text.lines().any(|line| line.starts_with("# x")));
}

#[test]
fn a_report_that_is_not_whole_says_so() {
    let mut document = examples::corners();
    let whole = html(&document);
    assert!(!whole.contains("PARTIAL") && !whole.contains("QUICK") && !whole.contains("class=\"banner\""));
    let states = [(State::Running, "not ended"), (State::Interrupted, "interrupted"), (State::Failed, "failed")];
    for (state, word) in states {
        document.state = state;
        document.trouble = Some("the device went away".into());
        let text = html(&document);
        assert!(text.contains(&format!("<title>PARTIAL ({word}): ")), "{word}");
        assert!(text.contains("Reason: the device went away."));
        assert!(markdown(&document).contains(&format!("# PARTIAL ({word}): ")));
    }
    (document.state, document.quick) = (State::Complete, Some(60));
    let text = html(&document);
    // In every heading, and in the margin of every printed page.
    let headings = text.lines().filter(|line| line.starts_with("<h2"));
    assert!(headings.clone().count() > 5);
    assert!(headings.into_iter().all(|line| line.contains("QUICK: 1/60 of the time")));
    assert!(text.contains("@top-right { content: \"QUICK: 1/60 of the time\" }"));
}

#[test]
fn disturbed_results_and_failed_runs_are_marked() {
    let text = markdown(&examples::corners_interrupted());
    assert!(text.contains("(disturbed)"), "{text}");
    assert!(text.contains("other programs were busy: rustc took 184 % of one processor"));
    assert!(text.contains("failed: the connection was lost after 12 s"));
    assert!(text.contains("left out, mkfs.ext4 is not installed"));
    assert!(text.contains("5 of 8 phases were begun"), "{text}");
}

/// The lines of a section.
fn section<'a>(text: &'a str, title: &str) -> &'a str {
    let start = text.find(&format!("\n## {title}")).expect(title);
    let rest = &text[start + 4..];
    rest.find("\n## ").map_or(rest, |end| &rest[..end])
}

#[test]
fn ratios_stand_beside_the_documents() {
    let text = markdown(&examples::corners());
    let ratios = section(&text, "Ratios");
    let row = ratios.lines().find(|line| line.contains("128K sequential read | NVMe/TCP")).unwrap();
    let cells: Vec<_> = row.split(" | ").collect();
    let ours: f64 = cells[3].trim_matches('*').parse().unwrap();
    assert!((ours - 0.856 * 0.99).abs() < 0.05, "{row}");
    assert!(row.contains("0.856 (NVMe over RoCE (2021), P4610 over RoCE, 25 Gb/s)"), "{row}");
    assert!(text.find("\n## Ratios") < text.find("\n## Results"));
    assert!(text.contains("% of local in 128K sequential write"), "the outcome in words");
}

#[test]
fn shares_and_curves_have_their_sections() {
    let shares = markdown(&examples::fairness());
    let jain = examples::fairness().results[0].jain.unwrap();
    assert!(section(&shares, "Fairness").contains(&format!("{jain:.4}")), "{shares}");
    assert!(shares.contains("all hosts: fair, Jain's index 0.999"), "{shares}");
    assert!(shares.contains("all hosts: unfair") || shares.contains("all hosts: nearly fair"), "{shares}");
    let curve = html(&examples::curve());
    assert!(curve.contains("id=\"curve\"") && curve.contains("Mean latency over IOPS"));
    // Both sizes of the large picture, and one of the small ones.
    assert_eq!((curve.matches("lines wide").count(), curve.matches("lines narrow").count()), (1, 1));
}

#[test]
fn several_runs_stand_beside_each_other() {
    let pair = examples::pair();
    let text = markdown_of(&pair);
    assert!(text.starts_with("# 2 runs beside each other"));
    for name in ["monday", "tuesday"] {
        assert!(section(&text, "Results").contains(&format!("{name}: NVMe/TCP")), "{name}");
    }
    // Alone, a document has no need of a name.
    assert_eq!(markdown_of(&pair[..1]), markdown(&pair[0].1));
}

#[test]
fn every_setting_and_command_is_told() {
    let text = markdown(&examples::odcc());
    let jobs = section(&text, "Every job in full");
    assert!(jobs.contains("fio --name=job '--filename=nvme+tcp\\://host/nqn' --rw=read"), "what ran is told");
    assert!(jobs.contains("--rw=write --bs=128k --iodepth=64 --numjobs=1"), "{jobs}");
    for setting in ["| depth of each thread | 64 |", "| time before measuring | 5 s |", "0x65626f6600"] {
        assert!(jobs.contains(setting), "{setting}");
    }
    let machine = section(&text, "Machine and programs");
    for fact in ["6.1.0-28-amd64", "Xeon", "mlx5", "fio-3.33", "busy"] {
        assert!(machine.contains(fact), "{fact}");
    }
    assert!(section(&text, "Devices").contains("VDV10131"));
}

#[test]
fn no_results_are_a_report_too() {
    let mut document: Document = examples::nothing();
    document.columns.clear();
    let text = html(&document);
    elements(&text);
    assert!(text.contains("Nothing was measured."));
    elements(&html_of(&[]));
}
