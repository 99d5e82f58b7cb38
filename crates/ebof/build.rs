//! Embeds the page that `page/build.mjs` has built into `page/dist`, in the forms in which it is
//! sent. Without it the program is built all the same, and says at its address how to build it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// What the page consists of, at most.
const FILES_MAX: usize = 16;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let crate_dir = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let dist = crate_dir.join("../../page/dist");
    // A path that is not there would be a change each time. Whoever makes it touches this file.
    if dist.is_dir() {
        println!("cargo::rerun-if-changed={}", dist.display());
    }
    let table = table(&dist);
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it")).join("page_files.rs");
    fs::write(&out, table).expect("the directory of build results is writable");
}

/// An array of the files in `dist`, as Rust.
fn table(dist: &Path) -> String {
    let mut names: Vec<String> = fs::read_dir(dist)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| !name.ends_with(".gz") && !name.ends_with(".br"))
        .collect();
    names.sort();
    // Half a page, left by a build that was interrupted, is none.
    let is_whole = names.iter().any(|name| name == "index.html")
        && names.iter().all(|name| [".gz", ".br"].iter().all(|end| dist.join(format!("{name}{end}")).is_file()));
    if !is_whole {
        names.clear();
    }
    assert!(names.len() <= FILES_MAX, "there are {} files in {}", names.len(), dist.display());
    let mut text = String::from("&[\n");
    for name in names {
        let path = dist.join(&name).display().to_string();
        let bytes = |end: &str| format!("include_bytes!({:?})", format!("{path}{end}"));
        writeln!(
            text,
            "File {{ name: {name:?}, plain: {}, gzip: {}, brotli: {} }},",
            bytes(""),
            bytes(".gz"),
            bytes(".br")
        )
        .expect("a string takes everything");
    }
    text.push(']');
    text
}
