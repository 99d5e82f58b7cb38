//! The project's rules that no compiler checks. Owns the list of checks and their report; each
//! check has a file.
//!
//! Every check is a function over a [`Tree`], so that its tests hand it a few files of their own.

mod advice;
mod boundary;
mod circles;
mod columns;
mod dependencies;
mod documents;
mod glossary;
pub(crate) mod guarantees;
mod lengths;
mod logs;
mod modules;
mod names;
mod objects;
mod published;
mod rooms;
mod rust;
mod source;
mod tree;
mod words;
pub(crate) mod wrap;

use std::fmt;
use std::path::Path;

use anyhow::Result;

use crate::metadata;
use tree::Tree;

/// A broken rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    path: String,
    /// From 1; 0 for the file as a whole.
    line: usize,
    message: String,
}

impl Violation {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// Runs all checks on the tree at `root`; `false` if a rule is broken.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let tree = Tree::load(root)?;
    let packages = metadata::workspace(root)?;
    let mut violations = Vec::new();
    dependencies::check(&tree, &packages, &mut violations);
    published::check(&tree, &packages, &mut violations);
    boundary::check(&tree, &mut violations);
    let graphs = modules::graphs(&tree);
    circles::check(&graphs, &mut violations);
    objects::check(&tree, &mut violations);
    rooms::check(&tree, &graphs, &mut violations);
    rust::check(&tree, &mut violations);
    lengths::check(&tree, &mut violations);
    logs::check(&tree, &mut violations);
    names::check(&tree, &mut violations);
    advice::check(&tree, &mut violations);
    documents::check(&tree, &mut violations);
    glossary::check(&tree, &mut violations);
    guarantees::check(&tree, &mut violations);
    words::check(&tree, &mut violations);
    columns::check(&tree, &mut violations);
    violations.sort();
    for violation in &violations {
        println!("tidy: {violation}");
    }
    println!("tidy: {} files, {} broken rules", tree.len(), violations.len());
    Ok(violations.is_empty())
}
