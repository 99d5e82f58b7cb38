//! `cargo xtask bench mixed`: readers beside a writer of large blocks, over one queue with and
//! without a limit for the writer, and over separate queues. Writes docs/mixed.json and the picture
//! that README shows.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, bail};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use super::plot::{self, Panel};
use super::resources::Resources;
use super::{process, techniques};
use ebof_statistics::Summary;

/// Size of the drive: readers use its first half, the writer the second one.
const DRIVE_MIB: u64 = 256;
/// How long a run lasts. Longer ones reach the kernel's limit for real-time threads, which stops
/// them for 50 ms in a second.
const RUN_MS: u32 = 700;

/// What is compared: a name, and the arguments of the program.
const VARIANTS: [(&str, &str); 4] = [
    ("reads alone", "io=1 depth=0"),
    ("one queue, writes not limited", "io=1 bulk=0"),
    ("one queue", "io=1"),
    ("a queue for reads, one for writes", "io=1 write=1"),
];

/// The figures of a run, by their names in the program's output, with how they are shown.
const FIGURES: [(&str, &str); 5] = [
    ("iops", "reads/s"),
    ("mean_us", "mean us"),
    ("p50_us", "p50"),
    ("p9999_us", "p99.99"),
    ("write_mb_per_s", "writes MB/s"),
];

struct Options {
    rounds: usize,
    ebof: Option<PathBuf>,
    /// Where the picture and the figures go.
    directory: PathBuf,
    real_time: bool,
}

impl Options {
    fn parse(root: &Path, words: &[&str]) -> Result<Self> {
        let mut options = Self { rounds: 5, ebof: None, directory: root.join("docs"), real_time: true };
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            if word == "--no-real-time" {
                options.real_time = false;
                continue;
            }
            let value = words.next().with_context(|| format!("{word} wants a value, or is not known"))?;
            match word {
                "--rounds" => options.rounds = value.parse().context("--rounds")?,
                "--ebof" => options.ebof = Some(value.into()),
                "--dir" => options.directory = value.into(),
                _ => bail!("{word} is not known; there are --rounds, --ebof, --dir and --no-real-time"),
            }
        }
        if !(1..=1000).contains(&options.rounds) {
            bail!("want --rounds from 1 to 1000");
        }
        Ok(options)
    }
}

/// Measures all variants in turns, and writes the results.
///
/// # Errors
/// Something does not build, run, or parse.
pub(super) fn run(root: &Path, words: &[&str]) -> Result<bool> {
    let options = Options::parse(root, words)?;
    let stop = Arc::new(AtomicBool::new(false));
    super::catch_signals(&stop)?;
    let ebof = match &options.ebof {
        Some(program) => program.clone(),
        None => super::build(root)?,
    };
    let program = techniques::build(root)?;
    let ebof = fs::canonicalize(&ebof).with_context(|| format!("looking for {}", ebof.display()))?;
    let resources = Resources::new(ebof, &root.join("target"))?;
    process::raise_own_priority(options.real_time);
    let interrupted = || stop.load(Ordering::Relaxed);
    let mut runs: [Vec<Value>; VARIANTS.len()] = Default::default();
    for round in 1..=options.rounds {
        for ((name, arguments), runs) in VARIANTS.iter().zip(&mut runs) {
            let arguments = format!("json=1 ms={RUN_MS} {arguments}");
            let (figures, steal) =
                techniques::run(&program, ("mixed", &arguments), DRIVE_MIB, &resources, &interrupted)?;
            eprintln!("round {round} of {}: {name:34} {figures}, stolen {steal:.1} %", options.rounds);
            runs.push(figures);
        }
    }
    let summaries = runs.iter().map(|runs| summaries(runs)).collect::<Result<Vec<_>>>()?;
    println!("{}", table(&summaries));
    let settings = super::settings(options.rounds, f64::from(RUN_MS) / 1000.0);
    write(
        &options.directory.join("mixed.json"),
        &(serde_json::to_string_pretty(&document(&summaries, &settings))? + "\n"),
    )?;
    write(&options.directory.join("mixed.svg"), &picture(&summaries))?;
    Ok(true)
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

/// Of each of [`FIGURES`].
fn summaries(runs: &[Value]) -> Result<Vec<Summary>> {
    let of = |name: &str| {
        let all: Option<Vec<f64>> = runs.iter().map(|run| run[name].as_f64()).collect();
        all.and_then(Summary::new).with_context(|| format!("the program does not tell {name}"))
    };
    FIGURES.iter().map(|(name, _)| of(name)).collect()
}

fn table(summaries: &[Vec<Summary>]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(std::iter::once("").chain(FIGURES.iter().map(|(_, shown)| *shown)));
    for ((name, _), figures) in VARIANTS.iter().zip(summaries) {
        let cell = |one: &Summary| format!("{:.0} ({:.0} to {:.0})", one.median, one.min, one.max);
        table.add_row(std::iter::once((*name).to_owned()).chain(figures.iter().map(cell)));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn document(summaries: &[Vec<Summary>], settings: &Value) -> Value {
    let variants = VARIANTS.iter().zip(summaries).map(|((name, arguments), figures)| {
        let figures = FIGURES.iter().zip(figures).map(|((name, _), one)| ((*name).to_owned(), json!(one)));
        json!({"name": name, "arguments": arguments, "figures": Value::Object(figures.collect())})
    });
    json!({"schema": "ebof/bench-mixed/1", "settings": settings, "variants": variants.collect::<Vec<_>>()})
}

fn picture(summaries: &[Vec<Summary>]) -> String {
    let names: Vec<&str> = VARIANTS.iter().map(|(name, _)| *name).collect();
    let medians = |figure: usize, per: f64| summaries.iter().map(|all| all[figure].median / per).collect();
    let panels = [
        Panel { title: "4K reads, thousands a second", values: medians(0, 1000.0), decimals: 1 },
        Panel { title: "p99.99 of their latency, ms", values: medians(3, 1000.0), decimals: 2 },
        Panel { title: "1M writes, GB/s", values: medians(4, 1000.0), decimals: 2 },
    ];
    plot::bars("16 readers of 4 KiB, each with one read at a time, beside 32 writes of 1 MiB", &names, &panels)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Vec<Vec<Summary>> {
        let run = |factor: f64| {
            let figures = FIGURES.iter().map(|(name, _)| ((*name).to_owned(), json!(1000.0 * factor)));
            Value::Object(figures.collect())
        };
        (1..=4).map(|variant| summaries(&[run(f64::from(variant)), run(9.0), run(0.5)]).unwrap()).collect()
    }

    #[test]
    fn medians_of_all_figures_are_reported() {
        let all = measured();
        let document = document(&all, &json!({}));
        assert_eq!(document["variants"][2]["name"], "one queue");
        assert_eq!(document["variants"][2]["figures"]["iops"]["median"], 3000.0);
        assert!(table(&all).to_string().contains("3000 (500 to 9000)"), "{}", table(&all));
        assert!(picture(&all).contains(">3.00</text>"), "{}", picture(&all));
        assert!(summaries(&[json!({"iops": 1.0})]).is_err());
    }

    #[test]
    fn options_are_checked() {
        let parse = |words: &[&str]| Options::parse(Path::new("/r"), words);
        let options = parse(&["--rounds", "3", "--dir", "d", "--no-real-time"]).unwrap();
        assert_eq!((options.rounds, options.directory, options.real_time), (3, "d".into(), false));
        for wrong in [&["--rounds", "0"][..], &["--rounds"], &["--what", "1"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
