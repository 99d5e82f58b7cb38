//! The one binary: argument parsing, configuration, logging, signals, output and wiring; no logic.

fn main() {}
