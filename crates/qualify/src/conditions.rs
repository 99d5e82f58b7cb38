//! What else the machine did during a run: time that the hypervisor took, other programs, the
//! target's processor time, frequency and temperature. Decides whether a run was disturbed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

use ebof_statistics::{STEAL_PERCENT_MAX, Stolen};

use crate::document::Conditions;
use crate::document::results::float;
use crate::interrupts::Ticks;
use crate::machine::read;

/// A run during which other programs used more than this, in percent of one processor, does not
/// count.
pub const OTHERS_PERCENT_MAX: f64 = 10.0;
/// Clock ticks in a second, in /proc. The kernel has no other value for programs.
const TICKS_PER_S: f64 = 100.0;
/// Processes that are inspected, at most.
const PROCESSES_MAX: usize = 65_536;

/// A process in /proc.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    name: String,
    parent: u32,
    ticks: u64,
}

/// Observes a run.
#[derive(Debug)]
pub(crate) struct Observation {
    began: Instant,
    stolen: Option<Stolen>,
    ticks: Ticks,
    processes: BTreeMap<u32, Process>,
    targets: Vec<u32>,
}

impl Observation {
    /// From now on; `targets` are processes that serve what is measured.
    pub(crate) fn start(targets: Vec<u32>) -> Self {
        Self {
            stolen: Stolen::now(),
            ticks: Ticks::now(),
            processes: processes(Path::new("/proc")),
            targets,
            began: Instant::now(),
        }
    }

    /// Until now, in which the load did about `operations`.
    pub(crate) fn end(self, operations: f64) -> Conditions {
        let seconds = self.began.elapsed().as_secs_f64().max(1e-3);
        let interrupts = self.ticks.busiest_until(&Ticks::now());
        let after = processes(Path::new("/proc"));
        let used = |id: &u32, process: &Process| {
            // A process that was not there before has used all its time since.
            process.ticks.saturating_sub(self.processes.get(id).map_or(0, |before| before.ticks))
        };
        let is_ours = ours(&after, std::process::id());
        let mut others: BTreeMap<&str, u64> = BTreeMap::new();
        let mut targets = 0;
        for (id, process) in &after {
            if self.targets.contains(id) {
                targets += used(id, process);
            } else if !is_ours(*id) {
                *others.entry(&process.name).or_default() += used(id, process);
            }
        }
        let busiest = others.iter().max_by_key(|(_, ticks)| **ticks).filter(|(_, ticks)| **ticks > 0);
        let can_tell = operations >= 1.0 && !self.targets.is_empty();
        Conditions {
            steal_percent: self.stolen.and_then(Stolen::percent),
            others_percent: (!after.is_empty()).then(|| float(others.values().sum()) * 100.0 / TICKS_PER_S / seconds),
            busiest_other: busiest.map(|(name, _)| (*name).to_owned()),
            target_us_per_io: can_tell.then(|| float(targets) * 1e6 / TICKS_PER_S / operations),
            interrupts_processor: interrupts.map(|of| of.processor),
            interrupts_percent: interrupts.map(|of| of.interrupts_percent),
            interrupts_busy_percent: interrupts.map(|of| of.busy_percent),
            frequency_mhz: frequency_mhz(Path::new("/")),
            processor_celsius: processor_celsius(Path::new("/sys/class/hwmon")),
            ..Conditions::default()
        }
    }
}

/// Why a run under these conditions does not count.
#[must_use]
pub fn disturbance(conditions: &Conditions) -> Option<String> {
    if let Some(steal) = conditions.steal_percent.filter(|&steal| steal > STEAL_PERCENT_MAX) {
        return Some(format!("the hypervisor took {steal:.1} % of the time"));
    }
    let others = conditions.others_percent.filter(|&others| others > OTHERS_PERCENT_MAX)?;
    let busiest = conditions.busiest_other.as_deref().unwrap_or("?");
    Some(format!("other programs ({busiest}, ...) used {others:.0} % of a processor"))
}

/// The process that listens on a TCP port of this machine; `None` if there is none, or it is not
/// ours to inspect.
#[must_use]
pub fn listener(port: u16) -> Option<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let inodes: Vec<String> =
        tables.iter().filter_map(|path| fs::read_to_string(path).ok()).flat_map(|text| inodes(&text, port)).collect();
    if inodes.is_empty() {
        return None;
    }
    let wanted: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let processes = fs::read_dir("/proc").ok()?.flatten().take(PROCESSES_MAX);
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(|id: &u32| {
        let descriptors = fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten();
        descriptors
            .filter_map(|descriptor| fs::read_link(descriptor.path()).ok())
            .any(|link| wanted.iter().any(|one| link.as_os_str() == one.as_str()))
    })
}

/// The inodes of sockets that listen on `port`, of a table of /proc/net.
fn inodes(table: &str, port: u16) -> Vec<String> {
    let local = format!(":{port:04X}");
    let lines = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    // Local address, state (0A listens) and inode are fields 1, 3 and 9.
    lines
        .filter(|fields| fields.get(1).is_some_and(|at| at.ends_with(&local)) && fields.get(3) == Some(&"0A"))
        .filter_map(|fields| fields.get(9).map(|inode| (*inode).to_owned()))
        .collect()
}

/// Whether a process is this one, or was started by it, or is the same program: a daemon of an
/// attached device.
fn ours(all: &BTreeMap<u32, Process>, own: u32) -> impl Fn(u32) -> bool {
    let program = fs::read_link("/proc/self/exe").ok();
    move |id| {
        let mut at = id;
        // Parents have been there before their children; a limit against changes meanwhile.
        for _ in 0..64 {
            if at == own {
                return true;
            }
            match all.get(&at) {
                Some(process) if process.parent > 1 => at = process.parent,
                _ => break,
            }
        }
        program.is_some() && fs::read_link(format!("/proc/{id}/exe")).ok() == program
    }
}

/// All processes but the kernel's threads.
fn processes(proc: &Path) -> BTreeMap<u32, Process> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten().take(PROCESSES_MAX);
    let process = |entry: fs::DirEntry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        Some((id, parse(&read(&entry.path().join("stat"))?)?))
    };
    entries.filter_map(process).collect()
}

/// A line of /proc/PID/stat. The name is in parentheses and may hold anything. `None` for threads
/// of the kernel.
fn parse(stat: &str) -> Option<Process> {
    /// `PF_KTHREAD` of the flags.
    const KERNEL_THREAD: u64 = 0x0020_0000;
    let (head, rest) = stat.rsplit_once(')')?;
    let name = head.split_once('(')?.1.to_owned();
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    if number(6)? & KERNEL_THREAD != 0 {
        return None;
    }
    let ticks = number(11)?.saturating_add(number(12)?);
    Some(Process { name, parent: u32::try_from(number(1)?).ok()?, ticks })
}

/// The mean of all processors.
fn frequency_mhz(root: &Path) -> Option<f64> {
    let processors = fs::read_dir(root.join("sys/devices/system/cpu")).into_iter().flatten().flatten();
    let khz: Vec<f64> = processors
        .filter_map(|entry| read(&entry.path().join("cpufreq/scaling_cur_freq"))?.trim().parse().ok())
        .collect();
    let mhz: Vec<f64> = if khz.is_empty() {
        let info = read(&root.join("proc/cpuinfo")).unwrap_or_default();
        let lines = info.lines().filter(|line| line.starts_with("cpu MHz"));
        lines.filter_map(|line| line.split_once(':')?.1.trim().parse().ok()).collect()
    } else {
        khz.iter().map(|khz| khz / 1000.0).collect()
    };
    (!mhz.is_empty()).then(|| mhz.iter().sum::<f64>() / float(mhz.len() as u64))
}

/// The hottest sensor of a processor.
fn processor_celsius(hwmon: &Path) -> Option<f64> {
    let drivers = ["coretemp", "k10temp", "zenpower", "cpu_thermal"];
    let monitors = fs::read_dir(hwmon).into_iter().flatten().flatten().map(|entry| entry.path());
    let of_processors =
        monitors.filter(|path| read(&path.join("name")).is_some_and(|name| drivers.contains(&name.trim())));
    of_processors.filter_map(|path| hottest(&path)).reduce(f64::max)
}

/// The hottest sensor of a monitor, in degrees Celsius.
pub(crate) fn hottest(monitor: &Path) -> Option<f64> {
    let files = fs::read_dir(monitor).into_iter().flatten().flatten().map(|entry| entry.path());
    let inputs = files.filter(|path| {
        path.file_name().is_some_and(|name| {
            name.to_string_lossy().starts_with("temp") && name.to_string_lossy().ends_with("_input")
        })
    });
    inputs.filter_map(|path| Some(read(&path)?.trim().parse::<f64>().ok()? / 1000.0)).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_parsed_and_threads_of_the_kernel_left_out() {
        let stat = "12 (a) b (c)) S 7 12 12 0 -1 4194560 100 0 0 0 321 123 0 0 20 0 1 0 99 0 0";
        let process = Process { name: "a) b (c)".to_owned(), parent: 7, ticks: 444 };
        assert_eq!(parse(stat), Some(process));
        assert_eq!(parse("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 5 5 0"), None);
        assert_eq!(parse("12 (a) S 1"), None);
    }

    #[test]
    fn a_busy_stranger_disturbs_and_this_process_does_not() {
        let watch = Observation::start(Vec::new());
        let until = Instant::now() + std::time::Duration::from_millis(60);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        let conditions = watch.end(1.0);
        assert_ne!(conditions.busiest_other.as_deref(), Some("ebof_qualify"));
        assert_eq!(conditions.target_us_per_io, None);
        let busy = Conditions { others_percent: Some(40.0), busiest_other: Some("cc".into()), ..Conditions::default() };
        assert!(disturbance(&busy).unwrap().contains("(cc, ...) used 40 %"));
        let stolen = Conditions { steal_percent: Some(2.5), ..Conditions::default() };
        assert!(disturbance(&stolen).unwrap().contains("2.5 %"));
        assert_eq!(disturbance(&Conditions { steal_percent: Some(0.1), ..Conditions::default() }), None);
    }

    #[test]
    fn the_process_behind_a_port_is_found() {
        let listening = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(listener(listening.local_addr().unwrap().port()), Some(std::process::id()));
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 0100007F:1144 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0\n   \
            1: 0100007F:1144 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100 0\n";
        assert_eq!(inodes(table, 4420), ["4711"]);
        assert!(inodes("garbage", 1).is_empty());
    }

    #[test]
    fn temperatures_are_those_of_processors() {
        let root = tempfile::tempdir().unwrap();
        for (name, driver, milli) in [("hwmon0", "k10temp", "51500"), ("hwmon1", "nvme", "70000")] {
            let directory = root.path().join(name);
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join("name"), format!("{driver}\n")).unwrap();
            fs::write(directory.join("temp1_input"), milli).unwrap();
        }
        assert_eq!(processor_celsius(root.path()), Some(51.5));
        assert_eq!(processor_celsius(Path::new("/nonexistent")), None);
    }
}
