//! Links the engine so that the dynamic loader never unmaps it: fio closes its engines while their
//! threads may still be on the way out, and closes and opens them again between jobs.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
