//! Huge pages of the system for a peer that asks for them: reserved, mounted, and given back.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rustix::mount::{MountFlags, UnmountFlags};

/// How many are reserved.
const COUNT: &str = "/proc/sys/vm/nr_hugepages";
/// Bytes of one, in MiB: the default of x86-64.
const PAGE_MIB: u64 = 2;

/// Reserved huge pages. Dropping it gives them back.
pub(crate) struct HugePages {
    directory: PathBuf,
    before: u64,
}

impl HugePages {
    /// Reserves pages of `mib` in addition to those that are reserved, and mounts a file system of
    /// them in `directory`.
    ///
    /// # Errors
    /// It is not permitted, or the memory is too fragmented.
    pub(crate) fn reserve(mib: u64, directory: &Path) -> Result<Self> {
        let before = count()?;
        let wanted = before + mib.div_ceil(PAGE_MIB);
        let directory = directory.join("huge");
        let mut pages = Self { directory: PathBuf::new(), before };
        fs::write(COUNT, wanted.to_string()).with_context(|| format!("writing {COUNT}"))?;
        let got = count()?;
        if got < wanted {
            bail!("{got} of {wanted} huge pages");
        }
        fs::create_dir(&directory).with_context(|| format!("making {}", directory.display()))?;
        rustix::mount::mount("none", &directory, "hugetlbfs", MountFlags::empty(), None)
            .with_context(|| format!("mounting {}", directory.display()))?;
        pages.directory = directory;
        Ok(pages)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if self.directory.is_dir() {
            let _still_used = rustix::mount::unmount(&self.directory, UnmountFlags::DETACH);
        }
        let _as_it_is = fs::write(COUNT, self.before.to_string());
    }
}

fn count() -> Result<u64> {
    let text = fs::read_to_string(COUNT).with_context(|| format!("reading {COUNT}"))?;
    text.trim().parse().with_context(|| format!("{COUNT}: {text}"))
}
