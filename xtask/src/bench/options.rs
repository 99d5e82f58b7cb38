//! The options of `cargo xtask bench`.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use super::load::Scenario;

pub(crate) const USAGE: &str = "\
cargo xtask bench [--only SCENARIO[,..]] [--rounds N] [--seconds S] [--json FILE] [--ebof PROGRAM] [--dir DIR] [--no-real-time] [--list]

  --only     scenarios by name, or by how their names begin; --list tells them
  --rounds   turns, each with one run of every subject                                [5]
  --seconds  how long a run measures                                                  [2]
  --json     where all figures go                                                     [target/bench.json]
  --ebof     the program to measure                                                   [target/release/ebof, built first]
  --dir      where the file of the disk scenarios is made                             [target]
  --no-real-time  a high share of the processors (nice) where pinned processes would run before all others (SCHED_RR)

cargo xtask bench fair [--drive simulated|memory|FILE] [--rounds N] [--seconds S] [--threads N] [--only NAME]
  shares of functions of a drive: another program, and a table; also at the end of `cargo xtask bench` without arguments

cargo xtask bench moves [--seconds S] [--rounds N] [--depth N] [--threads N]
  what the other functions of a drive notice while one is moved: another program, and a table

cargo xtask bench direct [--drive PATH|mem:SIZE] [--rounds N] [--seconds S]
  a drive at a direct port beside the same one over TCP: commands in a second, four corners

cargo xtask bench secure [--rounds N] [--seconds S] [--hosts N] [--only ratios|connects|storm]
  what authentication and TLS cost: commands and new connections in a second, and many that come back at once

cargo xtask bench mixed [--rounds N] [--ebof PROGRAM] [--dir DIR] [--no-real-time]
  small reads beside large writes, on shared and on separate queues: writes docs/mixed.svg and docs/mixed.json

cargo xtask bench calls [--rounds N] [--ebof PROGRAM] [--no-real-time]
  system calls per 1000 commands of both ends, counted by perf: a table

cargo xtask bench delayed [--delay US] [--burst US] [--rounds N] [--seconds S]
  a device that takes a given time, used by a loop in the process and over TCP: what the fabric adds

EBOF_SPDK names a directory where SPDK has been built. docs/performance.md says how to bring peers.";

/// The parsed options.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options {
    pub(crate) only: Vec<String>,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    pub(crate) json: Option<PathBuf>,
    pub(crate) ebof: Option<PathBuf>,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) list: bool,
    pub(crate) real_time: bool,
}

impl Options {
    /// # Errors
    /// An option is unknown, or its value is invalid.
    pub(crate) fn parse(words: &[&str]) -> Result<Self> {
        let mut options = Self {
            only: Vec::new(),
            rounds: 5,
            seconds: 2.0,
            json: None,
            ebof: None,
            directory: None,
            list: false,
            real_time: true,
        };
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            match word {
                "--list" => options.list = true,
                "--no-real-time" => options.real_time = false,
                _ => options.take(word, words.next().copied())?,
            }
        }
        if !(1..=1000).contains(&options.rounds) || !(0.5..=3600.0).contains(&options.seconds) {
            bail!("want --rounds from 1 to 1000 and --seconds from 0.5 to 3600");
        }
        Ok(options)
    }

    /// Sets an option with a value.
    fn take(&mut self, word: &str, value: Option<&str>) -> Result<()> {
        let value = || value.with_context(|| format!("{word} wants a value\n{USAGE}"));
        match word {
            "--only" => self.only.extend(value()?.split(',').map(str::to_owned)),
            "--rounds" => self.rounds = value()?.parse().context("--rounds")?,
            "--seconds" => self.seconds = value()?.parse().context("--seconds")?,
            "--json" => self.json = Some(value()?.into()),
            "--ebof" => self.ebof = Some(value()?.into()),
            "--dir" => self.directory = Some(value()?.into()),
            _ => bail!("{word} is not known\n{USAGE}"),
        }
        Ok(())
    }

    /// The selected scenarios of `all`.
    ///
    /// # Errors
    /// A name selects none.
    pub(crate) fn pick(&self, all: &[Scenario]) -> Result<Vec<Scenario>> {
        if let Some(wrong) = self.only.iter().find(|only| !all.iter().any(|one| begins(&one.name, only))) {
            bail!("no scenario begins with {wrong}; --list tells all");
        }
        let wanted = |name: &str| {
            let exact = |only: &&String| all.iter().any(|one| one.name == **only);
            self.only.is_empty()
                || self.only.iter().any(|only| if exact(&only) { only == name } else { begins(name, only) })
        };
        Ok(all.iter().filter(|scenario| wanted(&scenario.name)).cloned().collect())
    }
}

/// Whether a name begins with a word; a number in it is a whole one.
fn begins(name: &str, word: &str) -> bool {
    let is_digit = |last: Option<char>| last.is_some_and(|last| last.is_ascii_digit());
    name.strip_prefix(word).is_some_and(|rest| !(is_digit(word.chars().last()) && is_digit(rest.chars().next())))
}

#[cfg(test)]
mod tests {
    use super::super::scenarios;
    use super::*;

    fn names(words: &[&str]) -> Vec<String> {
        let picked = Options::parse(words).unwrap().pick(&scenarios::all(2)).unwrap();
        picked.into_iter().map(|scenario| scenario.name).collect()
    }

    #[test]
    fn arguments_are_parsed() {
        let options = Options::parse(&["--rounds", "3", "--seconds", "0.5", "--json", "x.json"]).unwrap();
        assert_eq!((options.rounds, options.seconds, options.json), (3, 0.5, Some("x.json".into())));
        for wrong in [&["--rounds"][..], &["--rounds", "0"], &["--seconds", "nan"], &["--what"]] {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_name_selects_a_scenario_and_a_prefix_all_with_it() {
        assert_eq!(names(&["--only", "read4k-qd1-2g"]), ["read4k-qd1-2g"]);
        assert_eq!(names(&["--only", "read4k-qd1"]), ["read4k-qd1-64m", "read4k-qd1-256m", "read4k-qd1-2g"]);
        assert_eq!(names(&["--only", "read4k"]).len(), 9);
        assert_eq!(names(&["--only", "idle,digest"]), ["digest4k-qd32", "idle"]);
        assert!(Options::parse(&["--only", "nothing"]).unwrap().pick(&scenarios::all(2)).is_err());
    }
}
