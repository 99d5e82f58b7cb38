//! What the machine is that measures: for the report, so that another person can repeat it.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The machine that measures. What cannot be seen is empty or `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Release of the kernel.
    pub kernel: String,
    /// Name and version of the distribution.
    pub distribution: String,
    /// The processor's model name.
    pub processor: String,
    /// Logical processors that this process may use.
    pub processors: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The hypervisor, if one identifies itself.
    pub hypervisor: Option<String>,
    /// How the kernel chooses the processors' frequency.
    pub governor: Option<String>,
    /// Network interfaces that are up: name, driver, speed and MTU.
    pub interfaces: Vec<String>,
    /// Versions of other programs that took part, as they print them.
    pub programs: Vec<String>,
    /// Settings that may matter: name and value.
    pub settings: Vec<(String, String)>,
}

/// The files of /proc and /sys that are reported as settings.
const SETTINGS: [&str; 8] = [
    "/proc/sys/net/core/busy_poll",
    "/proc/sys/net/core/busy_read",
    "/proc/sys/net/core/rmem_max",
    "/proc/sys/net/core/wmem_max",
    "/proc/sys/net/ipv4/tcp_rmem",
    "/proc/sys/net/ipv4/tcp_wmem",
    "/proc/sys/net/ipv4/tcp_congestion_control",
    "/sys/kernel/mm/transparent_hugepage/enabled",
];

/// The most of a file that is read, and the most interfaces that are reported.
const TEXT_BYTES_MAX: usize = 64 << 10;
const INTERFACES_MAX: usize = 32;

impl Machine {
    /// This machine.
    #[must_use]
    pub fn this() -> Self {
        Self::below(Path::new("/"))
    }

    /// As the files below `root` tell it.
    fn below(root: &Path) -> Self {
        let text = |path: &str| read(&root.join(path.trim_start_matches('/')));
        let info = text("/proc/cpuinfo").unwrap_or_default();
        let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
        let release = text("/etc/os-release").unwrap_or_default();
        let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
        let memory = text("/proc/meminfo").unwrap_or_default();
        let kib = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib = kib.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
        let interfaces = interfaces(&root.join("sys/class/net"));
        let settings = SETTINGS.iter().filter_map(|path| {
            let value = text(path)?;
            Some((path.trim_start_matches("/proc/sys/").replace('/', "."), value.trim().replace('\t', " ")))
        });
        Self {
            kernel: text("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            distribution: pretty.unwrap_or_default().trim_matches('"').to_owned(),
            processor: model.trim_start_matches(['\t', ' ', ':']).trim().to_owned(),
            processors: std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(1)),
            memory_bytes: kib.unwrap_or(0).saturating_mul(1024),
            hypervisor: hypervisor(&info, text("/sys/class/dmi/id/sys_vendor").as_deref()),
            governor: text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").map(|text| text.trim().to_owned()),
            interfaces,
            programs: Vec::new(),
            settings: settings.collect(),
        }
    }
}

/// A file's text, up to [`TEXT_BYTES_MAX`]; `None` if it is not there or not readable.
pub(crate) fn read(path: &Path) -> Option<String> {
    let mut bytes = fs::read(path).ok()?;
    bytes.truncate(TEXT_BYTES_MAX);
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn hypervisor(info: &str, vendor: Option<&str>) -> Option<String> {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags"))?;
    flags.split_whitespace().any(|flag| flag == "hypervisor").then(|| {
        let vendor = vendor.map(str::trim).filter(|vendor| !vendor.is_empty());
        vendor.map_or_else(|| "yes".to_owned(), str::to_owned)
    })
}

fn interfaces(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.path()).collect();
    names.sort();
    names.truncate(INTERFACES_MAX);
    names.iter().filter_map(|path| interface(path)).collect()
}

/// `eth0: mlx5_core, 25000 Mb/s, MTU 9000`; `None` if it is down.
fn interface(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    let text = |file: &str| read(&path.join(file)).map(|text| text.trim().to_owned());
    let is_up = text("operstate").is_some_and(|state| state == "up" || (name == "lo" && state == "unknown"));
    if !is_up {
        return None;
    }
    let driver = fs::read_link(path.join("device/driver")).ok();
    let driver = driver.and_then(|link| Some(link.file_name()?.to_string_lossy().into_owned()));
    let speed = text("speed").filter(|speed| !speed.starts_with('-')).map(|speed| format!("{speed} Mb/s"));
    let mtu = text("mtu").map(|mtu| format!("MTU {mtu}"));
    let parts: Vec<String> = [driver, speed, mtu].into_iter().flatten().collect();
    Some(format!("{name}: {}", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_read_from_its_files() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC 9B45\nflags\t\t: fpu hypervisor\n");
        write("proc/meminfo", "MemTotal:       25165824 kB\nMemFree: 1 kB\n");
        write("proc/sys/kernel/osrelease", "6.18.44\n");
        write("proc/sys/net/core/busy_poll", "0\n");
        write("etc/os-release", "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n");
        write("sys/class/net/eth0/operstate", "up\n");
        write("sys/class/net/eth0/speed", "25000\n");
        write("sys/class/net/eth0/mtu", "9000\n");
        write("sys/class/net/eth1/operstate", "down\n");
        let machine = Machine::below(root.path());
        assert_eq!((machine.kernel.as_str(), machine.processor.as_str()), ("6.18.44", "AMD EPYC 9B45"));
        assert_eq!(machine.distribution, "Debian GNU/Linux 12 (bookworm)");
        assert_eq!((machine.memory_bytes, machine.hypervisor.as_deref()), (24 << 30, Some("yes")));
        assert_eq!(machine.interfaces, ["eth0: 25000 Mb/s, MTU 9000"]);
        let told = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(machine.settings, [told("net.core.busy_poll", "0")]);
        assert_eq!(Machine::below(Path::new("/nonexistent")).kernel, "");
    }
}
