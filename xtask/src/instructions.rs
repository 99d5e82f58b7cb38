//! Instructions per command of the data path's steps, counted by callgrind and compared with a
//! committed baseline. Owns `xtask/instructions.txt`; [`PROGRAMS`] lists what is counted.
//!
//! With the same compiler, counts are the same on every machine, whatever its load. Time is
//! measured by `cargo xtask bench`.
//!
//! The system's part of a command is not counted, as valgrind does not see it. Over RDMA that is
//! the adapter's and its library's: what the simulated network takes that stands for them
//! ([`is_adapter`]) is subtracted. To tell it from the rest, calls into `ebof-verbs` and into its
//! accounts, which are kept over real adapters, too, are not inlined (its feature `counted`).

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::Value;

const BASELINE: &str = "xtask/instructions.txt";

/// Growth in percent that fails, beyond [`SLACK`].
const GROWTH_MAX: f64 = 3.0;

/// Instructions of growth that are ignored: copying a few bytes takes different instructions on
/// different processors.
const SLACK: f64 = 3.0;

/// The programs that are counted: target and kind as cargo names them, package, arguments. For a
/// library it is a test, which can access private items.
const PROGRAMS: [(&str, &str, &str, &[&str]); 3] = [
    ("instructions", "bench", "ebof-testkit", &[]),
    ("ebof_initiator", "lib", "ebof-initiator", &["--exact", "engine::instructions::cases"]),
    ("ebof_server", "lib", "ebof-server", &["--exact", "reactor::tests::instructions::cases"]),
];

/// What the cases are called that use a simulated adapter.
const OVER_RDMA: &str = "over_rdma";

/// Commands per call of a case: `BATCH` in the programs.
const BATCH: f64 = 100.0;

/// Processor features that the C library must not use, so that counts do not depend on them.
const TUNABLES: &str = "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX2,-AVX2_Usable,-ERMS,-FSRM";

/// Instructions per command, by case.
type Counts = BTreeMap<String, f64>;

/// Counts, and compares with the baseline or writes it; `false` if a count has grown.
pub(crate) fn run(root: &Path, update: bool) -> Result<bool> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("SKIPPED: valgrind is not installed (apt-get install valgrind)");
        return Ok(true);
    }
    let compiler = compiler()?;
    let now = count_all(&build(root)?)?;
    let path = root.join(BASELINE);
    if update {
        std::fs::write(&path, written(&compiler, &now)).with_context(|| format!("writing {BASELINE}"))?;
        println!("{BASELINE}: {} cases", now.len());
        return Ok(true);
    }
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {BASELINE}"))?;
    let (measured_with, before) = read(&text)?;
    println!("{}", table(&before, &now));
    let grown = grown(&before, &now);
    for line in &grown {
        println!("instructions: {line}");
    }
    if grown.is_empty() {
        return Ok(true);
    }
    println!("If that is as it should be: cargo xtask instructions --update, and say why in the commit.");
    if measured_with != compiler {
        println!("SKIPPED: the baseline is of {measured_with}, this is {compiler}: they are not compared");
        return Ok(true);
    }
    Ok(false)
}

/// The compiler's release and platform.
fn compiler() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("running rustc")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let field =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned();
    Ok(format!("rustc {} {}", field("release:"), field("host:")))
}

/// Builds [`PROGRAMS`], in their order.
fn build(root: &Path) -> Result<Vec<PathBuf>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["test", "--locked", "--no-run", "--profile", "instructions", "--lib", "--bench", "instructions"])
        .args(PROGRAMS.iter().flat_map(|(_, _, package, _)| ["-p", *package]))
        // Whose an instruction is can be told only where the calls between are left.
        .args(["--features", "ebof-verbs/counted"])
        .arg("--message-format=json-render-diagnostics")
        // Valgrind hides the kernel's vdso, which rustix would otherwise use directly.
        .env("RUSTFLAGS", "--cfg rustix_use_libc")
        .current_dir(root)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("running cargo test --no-run")?;
    if !output.status.success() {
        bail!("the programs to count do not build");
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let messages: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let program = |(name, kind, _, _): &(&str, &str, &str, &[&str])| {
        let own = |message: &&Value| message["target"]["name"] == *name && message["target"]["kind"][0] == *kind;
        let executable = messages.iter().filter(own).find_map(|message| message["executable"].as_str());
        executable.map(PathBuf::from).with_context(|| format!("cargo names no executable of {name}"))
    };
    PROGRAMS.iter().map(program).collect()
}

/// Counts the programs in parallel: load does not affect the counts.
fn count_all(programs: &[PathBuf]) -> Result<Counts> {
    let counts = std::thread::scope(|scope| {
        let with_arguments = programs.iter().zip(PROGRAMS);
        let threads: Vec<_> = with_arguments
            .map(|(program, (_, _, _, arguments))| scope.spawn(move || count(program, arguments)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| bail!("counting panicked"))).collect()
    });
    let counts: Result<Vec<Counts>> = counts;
    Ok(counts?.into_iter().flatten().collect())
}

/// Counts one program.
fn count(program: &Path, arguments: &[&str]) -> Result<Counts> {
    let mut counts = cases(&run_counted(program, arguments, None)?)?;
    if counts.is_empty() {
        bail!("callgrind saw no case of {}", program.display());
    }
    for (case, count) in &mut counts {
        if case.contains(OVER_RDMA) {
            let profile = run_counted(program, arguments, Some(case))?;
            let (all, adapter) = within(&profile)?;
            *count *= 1.0 - adapter / all;
        }
    }
    Ok(counts)
}

/// Runs a program under callgrind, which notes everything or the calls of one case, and returns the
/// profile.
fn run_counted(program: &Path, arguments: &[&str], case: Option<&str>) -> Result<String> {
    let directory = tempfile::tempdir()?;
    let profile = directory.path().join("callgrind.out");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--demangle=no"])
        .args(case.map(|case| format!("--toggle-collect=*case_{case}*")))
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(program)
        .args(arguments)
        .env("GLIBC_TUNABLES", TUNABLES)
        .output()
        .context("running valgrind")?;
    if !output.status.success() {
        bail!("the counted program failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(std::fs::read_to_string(&profile)?)
}

/// Calls of one function by another one: how many, and their inclusive cost.
struct Call<'a> {
    caller: &'a str,
    callee: &'a str,
    calls: f64,
    cost: f64,
}

/// The calls in a profile, by mangled names. In callgrind's format a function is `fn=(id) name`
/// (the name only where the id is new), and a call in it is `cfn=(id) name`, `calls=count ...`, and
/// a line whose second number is the cost.
fn calls(profile: &str) -> Result<Vec<Call<'_>>> {
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut all = Vec::new();
    let (mut caller, mut callee) = ("", "");
    let mut counted = None;
    for line in profile.lines() {
        if let Some(calls) = counted.take() {
            let cost: f64 = line.split(' ').nth(1).context("a call without its cost")?.parse()?;
            all.push(Call { caller, callee, calls, cost });
        } else if let Some(function) = line.strip_prefix("cfn=").or_else(|| line.strip_prefix("fn=")) {
            let (id, name) = function.split_once(' ').unwrap_or((function, ""));
            if !name.is_empty() {
                names.insert(id, name);
            }
            callee = names.get(id).copied().unwrap_or_default();
            if line.starts_with("fn=") {
                caller = callee;
            }
        } else if let Some(numbers) = line.strip_prefix("calls=") {
            counted = Some(numbers.split(' ').next().unwrap_or_default().parse::<f64>()?);
        }
    }
    Ok(all)
}

/// The inclusive cost of the `case_` functions, per command.
fn cases(profile: &str) -> Result<Counts> {
    let mut sums: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for Call { callee, calls, cost, .. } in calls(profile)? {
        if let Some(case) = case_name(callee) {
            let sum = sums.entry(case).or_default();
            *sum = (sum.0 + calls, sum.1 + cost);
        }
    }
    Ok(sums.into_iter().map(|(case, (calls, cost))| (case, cost / calls / BATCH)).collect())
}

/// Whether a function stands for an adapter and its library: one of `verbs`, but for the accounts
/// that it keeps over real adapters, too.
fn is_adapter(function: &str) -> bool {
    function.contains("10ebof_verbs") && !function.contains("6ledger")
}

/// The cost of everything in the profile of one case, and of the adapter's part of it.
fn within(profile: &str) -> Result<(f64, f64)> {
    let all = profile.lines().find_map(|line| line.strip_prefix("totals: ").or_else(|| line.strip_prefix("summary: ")));
    let all = all.context("a profile without its sum")?.trim().parse()?;
    let adapter_part = |call: Call<'_>| match (is_adapter(call.caller), is_adapter(call.callee)) {
        (false, true) => call.cost,
        (true, false) if call.callee.contains("6ledger") => -call.cost,
        _ => 0.0,
    };
    Ok((all, calls(profile)?.into_iter().map(adapter_part).sum()))
}

/// `host_send_read` of `_ZN12instructions19case_host_send_read17h1248a3adcee7cad2E`: in both ways
/// of mangling there is a name's length in front of it.
fn case_name(symbol: &str) -> Option<String> {
    let at = symbol.find("case_")?;
    let digits = symbol[..at].bytes().rev().take_while(u8::is_ascii_digit).count();
    let length: usize = symbol[at - digits..at].parse().ok()?;
    symbol.get(at..at + length)?.strip_prefix("case_").map(str::to_owned)
}

fn written(compiler: &str, counts: &Counts) -> String {
    let mut text = String::from(
        "# Instructions per command of the data path's steps. Compared by `cargo xtask instructions`, written by it with --update.\n",
    );
    text.push_str(compiler);
    text.push('\n');
    for (name, count) in counts {
        text.push_str(&format!("{name} {count:.1}\n"));
    }
    text
}

fn read(text: &str) -> Result<(String, Counts)> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let compiler = lines.next().with_context(|| format!("{BASELINE} is empty"))?.to_owned();
    let count = |line: &str| {
        let (name, count) = line.split_once(' ').with_context(|| format!("{BASELINE}: {line}"))?;
        Ok((name.to_owned(), count.parse().with_context(|| format!("{BASELINE}: {line}"))?))
    };
    Ok((compiler, lines.map(count).collect::<Result<Counts>>()?))
}

fn limit(before: f64) -> f64 {
    before * (1.0 + GROWTH_MAX / 100.0) + SLACK
}

/// The counts that have grown beyond the limits, or are missing.
fn grown(before: &Counts, now: &Counts) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, count) in now {
        match before.get(name) {
            Some(old) if *count > limit(*old) => lines.push(format!("{name} has grown from {old:.1} to {count:.1}")),
            Some(_) => {}
            None => lines.push(format!("{name} is not in {BASELINE}")),
        }
    }
    lines.extend(before.keys().filter(|name| !now.contains_key(*name)).map(|name| format!("{name} was not counted")));
    lines
}

fn table(before: &Counts, now: &Counts) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["instructions per command", "before", "now", "change"]);
    for (name, count) in now {
        let old = before.get(name);
        let change = old.map_or(String::new(), |old| format!("{:+.1} %", (count / old - 1.0) * 100.0));
        let old = old.map_or(String::new(), |old| format!("{old:.1}"));
        table.add_row([name.clone(), old, format!("{count:.1}"), change]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "\
events: Ir

fn=(1) main
12 5
cfn=(2) _ZN12instructions19case_host_send_read17h1248a3adcee7cad2E
calls=1 0
12 20000
cfn=(3) memcpy
calls=7 0
13 90
cfn=(2)
calls=3 0
12 40000

fn=(2)
40 900
";

    #[test]
    fn calls_of_cases_are_summed_up() {
        let counts = cases(PROFILE).unwrap();
        assert_eq!(counts, Counts::from([("host_send_read".to_owned(), 150.0)]));
    }

    #[test]
    fn an_adapter_is_told_from_what_uses_it() {
        let profile = "\
fn=(1) _ZN6server4case17h00E
12 100
cfn=(2) _ZN10ebof_verbs10queue_pair9QueuePair4poll17h11E
calls=2 0
12 70

fn=(2)
9 10
cfn=(3) _ZN10ebof_verbs6ledger6Ledger8complete17h22E
calls=2 0
9 20
cfn=(4) _ZN10ebof_verbs9simulated4pair4Pair4with17h33E
calls=2 0
9 40

fn=(3)
3 20

fn=(4)
4 40

totals: 170
";
        assert_eq!(within(profile).unwrap(), (170.0, 50.0));
    }

    #[test]
    fn cases_have_names_in_both_ways_of_mangling() {
        assert_eq!(case_name("_RNvCs1a2b_12instructions18case_fabrics_write").unwrap(), "fabrics_write");
        assert_eq!(case_name("_ZN12instructions18case_fabrics_write17h4cb8adE").unwrap(), "fabrics_write");
        assert_eq!(case_name("memcpy"), None);
    }

    #[test]
    fn grown_new_and_missing_cases_are_reported() {
        let counts = |list: &[(&str, f64)]| -> Counts { list.iter().map(|(n, c)| ((*n).to_owned(), *c)).collect() };
        let before = counts(&[("a", 100.0), ("b", 1000.0), ("c", 10.0)]);
        assert_eq!(grown(&before, &counts(&[("a", 105.9), ("b", 1032.9), ("c", 5.0)])), [""; 0]);
        let now = counts(&[("a", 106.1), ("b", 1033.1), ("d", 1.0)]);
        assert_eq!(grown(&before, &now).len(), 4);
        let (compiler, read) = read(&written("rustc 1.95.0 x", &before)).unwrap();
        assert_eq!((compiler.as_str(), read), ("rustc 1.95.0 x", before));
    }
}
