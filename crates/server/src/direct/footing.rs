//! What the memory of directly attached hosts may cost this process.
//!
//! A page of a host's memory that nobody has used yet is made by whoever accesses it first, and is
//! charged to that process's control group. So a host that shares a large file full of holes, and
//! has data read into them, takes memory of the target, which the kernel ends when there is no
//! more. Each function has a credit: bytes that it transfers before it looks how much is left. Of
//! what is left, all functions together get a half as credit, so it is never used up between two
//! looks. When little is left, only pages that are there already are accessed: they cost nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The functions that have a credit.
static FUNCTIONS: AtomicU64 = AtomicU64::new(0);

/// So much is left to others: no pages are made beyond.
const RESERVE_BYTES: u64 = 64 << 20;
/// A credit at most.
const CREDIT_MAX_BYTES: u64 = 1 << 30;
/// A smaller credit is none: looking costs more.
const CREDIT_MIN_BYTES: u64 = 1 << 20;
/// After so many bytes it is looked again whether there is more memory now.
const AGAIN_BYTES: u64 = 4 << 20;

/// What a transfer may access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    /// Anything.
    Any,
    /// What is in memory.
    Present,
}

/// The credit of a function.
#[derive(Debug)]
pub(crate) struct Footing {
    credit_bytes: u64,
    is_short: bool,
    places: Places,
}

/// Where the kernel tells what is left.
#[derive(Debug)]
struct Places {
    processes: PathBuf,
    groups: PathBuf,
}

impl Footing {
    pub(crate) fn new() -> Self {
        Self::at("/proc".into(), "/sys/fs/cgroup".into())
    }

    fn at(processes: PathBuf, groups: PathBuf) -> Self {
        FUNCTIONS.fetch_add(1, Ordering::Relaxed);
        Self { credit_bytes: 0, is_short: false, places: Places { processes, groups } }
    }

    /// On a machine that has none left.
    #[cfg(test)]
    pub(crate) fn without_credit() -> Self {
        let mut footing = Self::new();
        (footing.credit_bytes, footing.is_short) = (u64::MAX, true);
        footing
    }

    /// Takes so many bytes of the credit, and says what they may be.
    #[inline]
    pub(crate) fn take(&mut self, bytes: u64) -> Touch {
        if self.credit_bytes < bytes {
            self.measure();
        }
        self.credit_bytes = self.credit_bytes.saturating_sub(bytes);
        if self.is_short { Touch::Present } else { Touch::Any }
    }

    #[cold]
    fn measure(&mut self) {
        let left = self.places.left_bytes();
        let share = left.saturating_sub(RESERVE_BYTES) / 2 / FUNCTIONS.load(Ordering::Relaxed).max(1);
        let is_short = share < CREDIT_MIN_BYTES;
        self.credit_bytes = if is_short { AGAIN_BYTES } else { share.min(CREDIT_MAX_BYTES) };
        if is_short && !self.is_short {
            tracing::warn!(
                "{} MiB of memory are left: pages that a virtual machine has not used yet are not made for it, and \
                 commands that need them fail",
                left >> 20
            );
        }
        self.is_short = is_short;
    }
}

impl Drop for Footing {
    fn drop(&mut self) {
        FUNCTIONS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Places {
    /// Bytes that this process may still use: of the machine, and of its control groups. What the
    /// kernel does not tell is no limit.
    fn left_bytes(&self) -> u64 {
        let of_machine = number_of(&read(&self.processes.join("meminfo")), "MemAvailable:").map(|kib| kib << 10);
        let own = read(&self.processes.join("self/cgroup"));
        let of_groups = own.lines().filter_map(|line| self.left_of(line));
        of_groups.chain(of_machine).min().unwrap_or(u64::MAX)
    }

    /// What a hierarchy leaves, by its line in the list of this process's groups: the least of the
    /// group and all above it.
    fn left_of(&self, line: &str) -> Option<u64> {
        let mut fields = line.splitn(3, ':');
        let (_number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let (top, names) = if controllers.is_empty() {
            (self.groups.clone(), ["memory.max", "memory.current"])
        } else if controllers.split(',').any(|controller| controller == "memory") {
            (self.groups.join("memory"), ["memory.limit_in_bytes", "memory.usage_in_bytes"])
        } else {
            return None;
        };
        let group = top.join(path.trim_start_matches('/'));
        let all = group.ancestors().take_while(|folder| folder.starts_with(&top));
        all.filter_map(|folder| left_in(folder, names)).min()
    }
}

/// What is left in a group, if it has a limit.
fn left_in(folder: &Path, [limit, used]: [&str; 2]) -> Option<u64> {
    let [limit, used] = [limit, used].map(|name| read(&folder.join(name)).trim().parse::<u64>().ok());
    let left = limit?.saturating_sub(used?);
    if left > 4 * RESERVE_BYTES {
        return Some(left);
    }
    // The page cache gives way. Older hierarchies say in `total_` what those below have, too.
    let stat = read(&folder.join("memory.stat"));
    let of = |name: &str| number_of(&stat, &format!("total_{name}")).or_else(|| number_of(&stat, name)).unwrap_or(0);
    Some(left.saturating_add(of("inactive_file")).saturating_add(of("active_file")))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The number behind a name at the beginning of a line.
fn number_of(text: &str, name: &str) -> Option<u64> {
    let mut words = text.lines().map(str::split_ascii_whitespace);
    words.find_map(|mut words| (words.next() == Some(name)).then(|| words.next()?.parse().ok())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A machine of which so many MiB are left, and groups: their limit, use and page cache.
    fn machine(available: u64, list: &str, groups: &[(&str, &str, u64, u64)]) -> (tempfile::TempDir, Footing) {
        let folder = tempfile::tempdir().unwrap();
        let (processes, top) = (folder.path().join("proc"), folder.path().join("groups"));
        fs::create_dir_all(processes.join("self")).unwrap();
        fs::write(processes.join("meminfo"), format!("MemTotal: 1 kB\nMemAvailable: {} kB\n", available << 10))
            .unwrap();
        fs::write(processes.join("self/cgroup"), list).unwrap();
        for (path, limit, used, cache) in groups {
            let group = top.join(path);
            fs::create_dir_all(&group).unwrap();
            let limit = limit.parse::<u64>().map_or((*limit).to_owned(), |mib| (mib * MIB).to_string());
            for name in ["memory.max", "memory.limit_in_bytes"] {
                fs::write(group.join(name), &limit).unwrap();
            }
            for name in ["memory.current", "memory.usage_in_bytes"] {
                fs::write(group.join(name), (used * MIB).to_string()).unwrap();
            }
            fs::write(group.join("memory.stat"), format!("anon 5\nactive_file {}\n", cache * MIB)).unwrap();
        }
        let footing = Footing::at(processes, top);
        (folder, footing)
    }

    // @test limits.guest-pages
    #[test]
    fn the_least_of_machine_and_groups_is_left() {
        let v2 = "0::/a/b\n";
        /// Memory of the machine, groups of the process, what each of them has, what is left.
        type Case<'a> = (u64, &'a str, &'a [Group<'a>], u64);
        /// Its folder, its limit, what it uses, what of that can be taken back.
        type Group<'a> = (&'a str, &'a str, u64, u64);
        let cases: &[Case<'_>] = &[
            (1000, "", &[], 1000),
            (1000, v2, &[("a/b", "max", 7, 0), ("a", "max", 9, 0)], 1000),
            (1000, v2, &[("a/b", "400", 100, 50), ("a", "900", 300, 0)], 300),
            (1000, v2, &[("a/b", "max", 100, 0), ("a", "400", 300, 0)], 100),
            (1000, v2, &[("a/b", "400", 390, 50)], 60),
            (1000, v2, &[("a/b", "400", 500, 0)], 0),
            // The group of a container, whose own tree this is.
            (1000, "0::/\n", &[("", "400", 10, 0)], 390),
            (1000, "3:cpu,cpuacct:/x\n2:memory:/m\n0::/a\n", &[("memory/m", "500", 100, 0)], 400),
        ];
        for (available, list, groups, left) in cases {
            let (_folder, footing) = machine(*available, list, groups);
            assert_eq!(footing.places.left_bytes(), left * MIB, "{list:?} {groups:?}");
        }
        let nothing = Places { processes: "/nowhere".into(), groups: "/nowhere".into() };
        assert_eq!(nothing.left_bytes(), u64::MAX);
    }

    // @test limits.guest-pages
    #[test]
    fn what_is_left_is_never_transferred_between_two_looks() {
        let group = |used: u64| [("g", "400", used, 0)];
        let (folder, mut footing) = machine(100_000, "0::/g\n", &group(0));
        let mut used = 0;
        // All of it goes into pages that nobody has used.
        while footing.take(128 << 10) == Touch::Any {
            used += 128 << 10;
            fs::write(folder.path().join("groups/g/memory.current"), used.to_string()).unwrap();
            assert!(used <= 400 * MIB - RESERVE_BYTES, "{used}");
        }
        assert!(used > 256 * MIB, "{used}: the reserve is not larger");
        // It goes on when there is room again, and knows soon.
        fs::write(folder.path().join("groups/g/memory.current"), "0").unwrap();
        let tries = (0..).take_while(|_| footing.take(128 << 10) == Touch::Present).count() as u64;
        assert!(tries * (128 << 10) <= AGAIN_BYTES, "{tries}");
    }
}
