//! Writes the reports of example documents of every procedure, and one that compares two runs, into
//! a directory: for the tests in a browser, and to look at.

#[path = "../tests/it/examples.rs"]
mod examples;

use std::fs;
use std::path::PathBuf;

use ebof_qualify::report;

fn main() -> std::io::Result<()> {
    let directory = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| "reports".into()));
    fs::create_dir_all(&directory)?;
    for (name, document) in examples::all() {
        fs::write(directory.join(format!("{name}.html")), report::html(&document))?;
        fs::write(directory.join(format!("{name}.md")), report::markdown(&document))?;
    }
    fs::write(directory.join("pair.html"), report::html_of(&examples::pair()))?;
    fs::write(directory.join("pair.md"), report::markdown_of(&examples::pair()))
}
