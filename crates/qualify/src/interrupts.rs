//! Where the interrupts of network interfaces go, what may move them, and what their processors do
//! meanwhile: the ODCC's white paper (6.3) stops irqbalance, switches adaptive coalescing off and
//! has one processor for all interrupts.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::document::results::float;
use crate::machine::read;

/// Processes that are inspected, at most.
const PROCESSES_MAX: usize = 65_536;
/// Interrupts of an interface that are inspected, at most.
const INTERRUPTS_MAX: usize = 1024;

/// Settings for the report, of these interfaces: name and value.
pub(crate) fn settings(root: &Path, interfaces: &[String]) -> Vec<(String, String)> {
    let mut all =
        vec![("irqbalance".to_owned(), if runs(root, "irqbalance") { "runs" } else { "does not run" }.to_owned())];
    for name in interfaces.iter().filter(|name| *name != "lo") {
        if let Some(text) = affinity(root, name) {
            all.push((format!("interrupts of {name}"), text));
        }
        // It asks the kernel of this machine, wherever the files are.
        if root == Path::new("/") {
            let text = coalescing(name).unwrap_or_else(|why| format!("not known: {why}"));
            all.push((format!("coalescing of {name}"), text));
        }
    }
    all
}

/// Whether a program of this name runs.
fn runs(root: &Path, name: &str) -> bool {
    let entries = fs::read_dir(root.join("proc")).into_iter().flatten().flatten().take(PROCESSES_MAX);
    let processes =
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(|one: char| one.is_ascii_digit()));
    processes.into_iter().any(|entry| read(&entry.path().join("comm")).is_some_and(|comm| comm.trim() == name))
}

/// The interrupts of an interface.
fn interrupts(root: &Path, interface: &str) -> Vec<u32> {
    let device = root.join("sys/class/net").join(interface).join("device");
    // Those of a virtio device are its PCI function's.
    let places = [device.join("msi_irqs"), device.join("../msi_irqs")];
    let listed = places.iter().find_map(|place| fs::read_dir(place).ok()).into_iter().flatten().flatten();
    let numbers = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut all: Vec<u32> = numbers.take(INTERRUPTS_MAX).collect();
    all.sort_unstable();
    all
}

/// `24 on CPU 0, 25 to 27 on CPU 1`: which interrupts go where.
fn affinity(root: &Path, interface: &str) -> Option<String> {
    let mut by_processor: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for number in interrupts(root, interface) {
        if let Some(list) = processors_of(root, number) {
            by_processor.entry(list).or_default().push(number);
        }
    }
    let parts = by_processor.into_iter().map(|(list, numbers)| {
        let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        format!("{} on CPU {list}", numbers.join(", "))
    });
    let text = parts.collect::<Vec<_>>().join("; ");
    (!text.is_empty()).then_some(text)
}

/// The processors that an interrupt goes to, as in `0-3,8`.
fn processors_of(root: &Path, number: u32) -> Option<String> {
    let file = |name: &str| read(&root.join(format!("proc/irq/{number}/{name}"))).map(|text| text.trim().to_owned());
    file("effective_affinity_list").filter(|list| !list.is_empty()).or_else(|| file("smp_affinity_list"))
}

/// What `ethtool -c` says of an interface.
fn coalescing(interface: &str) -> Result<String, String> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("ethtool");
    command.env("PATH", path).env("LC_ALL", "C").args(["-c", interface]).stdin(Stdio::null());
    match command.output() {
        Ok(output) if output.status.success() => Ok(coalesced(&String::from_utf8_lossy(&output.stdout))),
        Ok(output) => {
            Err(String::from_utf8_lossy(&output.stderr).trim().lines().last().unwrap_or("no reason").to_owned())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err("there is no ethtool (apt install ethtool)".to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// The settings that the white paper changes, of what ethtool prints.
fn coalesced(text: &str) -> String {
    let mut parts = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("Adaptive RX:") {
            parts.push(format!("adaptive RX {}", rest.split_whitespace().collect::<Vec<_>>().join(" ")));
        }
        let value =
            |name: &str| line.strip_prefix(name)?.strip_prefix(':').map(str::trim).filter(|value| *value != "n/a");
        for name in ["rx-usecs", "rx-frames", "tx-usecs", "tx-frames"] {
            parts.extend(value(name).map(|value| format!("{name} {value}")));
        }
    }
    parts.join(", ")
}

/// The time of each processor so far, in ticks: whole, busy, and of that in interrupts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticks(BTreeMap<u32, [u64; 3]>);

/// What the processor did that interrupts took most of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Busiest {
    pub(crate) processor: u32,
    /// Of its time, in percent.
    pub(crate) interrupts_percent: f64,
    pub(crate) busy_percent: f64,
}

impl Ticks {
    pub(crate) fn now() -> Self {
        Self::parse(&read(Path::new("/proc/stat")).unwrap_or_default())
    }

    /// Lines of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal.
    fn parse(stat: &str) -> Self {
        let line = |line: &str| {
            let mut words = line.strip_prefix("cpu")?.split_whitespace();
            let processor = words.next().filter(|_| !line.starts_with("cpu "))?.parse::<u32>().ok()?;
            let fields: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
            let [_, _, _, idle, waiting, interrupts, soft, _] = fields[..] else { return None };
            let whole = fields.iter().fold(0, |sum: u64, field| sum.saturating_add(*field));
            let busy = whole.saturating_sub(idle.saturating_add(waiting));
            Some((processor, [whole, busy, interrupts.saturating_add(soft)]))
        };
        Self(stat.lines().filter_map(line).collect())
    }

    /// Since then; `None` if the kernel counts no time of interrupts.
    pub(crate) fn busiest_until(&self, now: &Self) -> Option<Busiest> {
        let since = |processor: &u32, after: &[u64; 3]| {
            let before = self.0.get(processor)?;
            let part = |at: usize| after[at].saturating_sub(before[at]);
            Some((*processor, [part(0), part(1), part(2)]))
        };
        let all = now.0.iter().filter_map(|(processor, after)| since(processor, after));
        let (processor, [whole, busy, interrupts]) =
            all.max_by_key(|(_, parts)| parts[2]).filter(|(_, parts)| parts[2] > 0)?;
        let percent = |part: u64| float(part) * 100.0 / float(whole.max(1));
        Some(Busiest { processor, interrupts_percent: percent(interrupts), busy_percent: percent(busy) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_interrupts_go_is_read_from_files() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let interfaces = ["lo".to_owned(), "eth0".to_owned(), "eth1".to_owned()];
        assert_eq!(settings(root.path(), &interfaces), [("irqbalance".to_owned(), "does not run".to_owned())]);
        write("proc/417/comm", "irqbalance\n");
        for (number, file, list) in
            [(24, "effective_affinity_list", "0"), (25, "effective_affinity_list", "1"), (26, "smp_affinity_list", "1")]
        {
            write(&format!("sys/class/net/eth0/device/msi_irqs/{number}"), "msix\n");
            write(&format!("proc/irq/{number}/{file}"), &format!("{list}\n"));
        }
        let told = settings(root.path(), &interfaces);
        assert_eq!(told[0].1, "runs");
        assert_eq!(told[1], ("interrupts of eth0".to_owned(), "24 on CPU 0; 25, 26 on CPU 1".to_owned()));
        assert_eq!(told.len(), 2, "eth1 tells nothing: {told:?}");
    }

    #[test]
    fn coalescing_is_what_ethtool_says() {
        let text = "Coalesce parameters for eth0:\nAdaptive RX: on  TX: n/a\nstats-block-usecs: n/a\n\nrx-usecs: 8\n\
                    rx-frames: 128\nrx-usecs-irq: 3\ntx-usecs: n/a\ntx-frames: 16\n";
        assert_eq!(coalesced(text), "adaptive RX on TX: n/a, rx-usecs 8, rx-frames 128, tx-frames 16");
        assert!(coalescing("no-such-interface").is_err());
    }

    #[test]
    fn the_processor_of_the_interrupts_is_found() {
        let stat = |soft: u64| {
            Ticks::parse(&format!(
                "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 10 0 10 80 0 0 0 0 0 0\ncpu1 20 0 20 100 0 0 {soft} 0 0 0\nintr 1\n"
            ))
        };
        let before = stat(0);
        assert_eq!(before.busiest_until(&stat(0)), None, "nothing is counted");
        let mut after = stat(30);
        after.0.get_mut(&1).unwrap()[0] += 30;
        let found = before.busiest_until(&after).unwrap();
        assert_eq!((found.processor, found.interrupts_percent, found.busy_percent), (1, 50.0, 50.0));
    }
}
