//! Fair shares between the functions of a drive, measured: `cargo xtask bench fair`.
//!
//! Target and hosts are in this process, over NVMe/TCP. The drive is a simulated device, memory, or
//! a file. What is measured is in `scenarios.rs`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a program for developers")]

mod fio;
mod rig;
mod scenarios;
mod simulated;

use std::path::PathBuf;
use std::time::Duration;

use rig::{Backing, Rig};

const USAGE: &str =
    "fair [--drive simulated|memory|FILE] [--rounds N] [--seconds S] [--threads N] [--only NAME] [--fio ENGINE]";

fn main() {
    let mut backing = Backing::Simulated;
    let mut rounds = 3;
    let mut seconds = 2.0;
    let mut threads = 2;
    let mut only = String::new();
    let mut engine = None;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().expect(USAGE);
        match word.as_str() {
            "--drive" => {
                backing = match value.as_str() {
                    "simulated" => Backing::Simulated,
                    "memory" => Backing::Memory,
                    path => Backing::File(path.into()),
                };
            }
            "--rounds" => rounds = value.parse().expect(USAGE),
            "--seconds" => seconds = value.parse().expect(USAGE),
            "--threads" => threads = value.parse().expect(USAGE),
            "--only" => only = value,
            "--fio" => engine = Some(PathBuf::from(value)),
            _ => panic!("{USAGE}"),
        }
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("drive: {backing:?}, {threads} threads, {rounds} rounds of {seconds} s, load {}", load.trim());
    let runtime = Duration::from_secs_f64(seconds);
    let shared = Rig::new(&backing, threads, true);
    let unshared = Rig::new(&backing, threads, false);
    println!("| {:11} | {:28} | {:>10} | {:>10} | {:17} |", "scenario", "what", "shares", "without", "goal");
    println!("|{0:-<13}|{0:-<30}|{0:-<11}:|{0:-<11}:|{0:-<19}|", "");
    for scenario in scenarios::ALL.iter().filter(|scenario| scenario.name.starts_with(&only)) {
        if scenario.name == "fio" && engine.is_none() {
            continue;
        }
        let mut rows: Vec<(&str, [Vec<f64>; 2])> = Vec::new();
        for _ in 0..rounds {
            for (side, rig) in [&shared, &unshared].into_iter().enumerate() {
                let measured = match (&engine, scenario.name) {
                    (Some(engine), "fio") => scenarios::spread_of(&fio::run(rig, engine, runtime)),
                    _ => (scenario.run)(rig, runtime),
                };
                for (what, value) in measured {
                    match rows.iter_mut().find(|(known, _)| *known == what) {
                        Some((_, values)) => values[side].push(value),
                        None => {
                            let mut values = [Vec::new(), Vec::new()];
                            values[side].push(value);
                            rows.push((what, values));
                        }
                    }
                }
            }
        }
        for (what, [shares, without]) in rows {
            let (shares, without) = (median(shares), median(without));
            let goal = scenarios::goal(what).map_or(String::new(), |(least, most)| verdict(least, most, shares));
            println!("| {:11} | {what:28} | {:>10} | {:>10} | {goal:17} |", scenario.name, text(shares), text(without));
        }
    }
}

fn verdict(least: f64, most: f64, value: Option<f64>) -> String {
    let goal = match (least, most) {
        (0.0, most) => format!("at most {most}"),
        (least, f64::INFINITY) => format!("at least {least}"),
        (least, most) => format!("{least} to {most}"),
    };
    let is_met = value.is_some_and(|value| (least..=most).contains(&value));
    if is_met { goal } else { format!("{goal}: MISSED") }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn text(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value >= 1000.0 => format!("{value:.0}"),
        Some(value) => format!("{value:.3}"),
    }
}
