//! Programs of a suite, and files that it creates and removes.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

use super::huge_pages::HugePages;

/// Bytes of the file of the disk scenarios.
const FILE_MIB: u64 = 1024;
/// A directory in memory.
const MEMORY_FILES: &str = "/dev/shm";

/// Programs and files. Dropping it removes all files.
pub(crate) struct Resources {
    /// The program that is measured.
    pub(crate) ebof: PathBuf,
    /// The example `techniques`, once it is built.
    pub(crate) techniques: Option<PathBuf>,
    /// Configurations and sockets.
    pub(crate) directory: PathBuf,
    /// The file of the disk scenarios, once [`make_file`](Self::make_file) has created it.
    pub(crate) file: PathBuf,
    spdk: Option<PathBuf>,
    memory_file: PathBuf,
    huge_pages: Option<HugePages>,
    _held: [TempDir; 3],
}

impl Resources {
    /// Creates directories: one on the disk at `disk`, one in memory, one for small files.
    ///
    /// # Errors
    /// They cannot be created.
    pub(crate) fn new(ebof: PathBuf, disk: &Path) -> Result<Self> {
        fs::create_dir_all(disk).with_context(|| format!("making {}", disk.display()))?;
        let within = |directory: &Path| {
            let made = tempfile::Builder::new().prefix("ebof-bench-").tempdir_in(directory);
            made.with_context(|| format!("a directory in {}", directory.display()))
        };
        let held = [within(&std::env::temp_dir())?, within(disk)?, within(Path::new(MEMORY_FILES))?];
        Ok(Self {
            ebof,
            techniques: None,
            directory: held[0].path().to_owned(),
            file: held[1].path().join("drive.img"),
            spdk: std::env::var_os("EBOF_SPDK").map(PathBuf::from),
            memory_file: held[2].path().join("drive.img"),
            huge_pages: None,
            _held: held,
        })
    }

    /// A program of SPDK.
    ///
    /// # Errors
    /// It is not installed; the error has advice.
    pub(crate) fn spdk(&self, program: &str) -> Result<PathBuf> {
        let Some(directory) = &self.spdk else { bail!("SPDK: EBOF_SPDK names no directory") };
        let path = directory.join("build/bin").join(program);
        if !path.is_file() {
            bail!("SPDK: {} is not there", path.display());
        }
        Ok(path)
    }

    /// Reserves huge pages for a peer that uses them, where that is permitted.
    pub(crate) fn reserve_huge_pages(&mut self, mib: u64) -> Result<()> {
        self.huge_pages = Some(HugePages::reserve(mib, &self.directory)?);
        Ok(())
    }

    /// Whether huge pages are reserved.
    pub(crate) fn has_huge_pages(&self) -> bool {
        self.huge_pages.is_some()
    }

    /// The options of SPDK's target that say what its memory is.
    pub(crate) fn spdk_memory(&self) -> String {
        match &self.huge_pages {
            Some(pages) => format!("--huge-dir {}", pages.directory().display()),
            None => "--no-huge".to_owned(),
        }
    }

    /// A file of `mib` in memory; created on first use.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn memory_file(&self, mib: u64) -> Result<PathBuf> {
        if fs::metadata(&self.memory_file).map_or(0, |metadata| metadata.len()) != mib << 20 {
            fill(&self.memory_file, mib)?;
        }
        Ok(self.memory_file.clone())
    }

    /// Creates the file of the disk scenarios, with every block written.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn make_file(&self) -> Result<()> {
        if self.file.exists() { Ok(()) } else { fill(&self.file, FILE_MIB) }
    }

    /// Whether `program` is in a directory of PATH.
    pub(crate) fn finds(program: &str) -> bool {
        let paths = std::env::var_os("PATH").unwrap_or_else(|| OsStr::new("/usr/bin").to_owned());
        std::env::split_paths(&paths).any(|directory| directory.join(program).is_file())
    }
}

/// Writes incompressible data, so that no layer below stores them as a hole.
fn fill(path: &Path, mib: u64) -> Result<()> {
    let wrong = || format!("writing {}", path.display());
    let mut file = File::create(path).with_context(wrong)?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = vec![0; 1 << 20];
    for _ in 0..mib {
        for word in block.as_chunks_mut::<8>().0 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *word = state.to_le_bytes();
        }
        file.write_all(&block).with_context(wrong)?;
    }
    file.sync_all().with_context(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_removed_on_drop() {
        let disk = tempfile::tempdir().unwrap();
        let resources = Resources::new("ebof".into(), &disk.path().join("made")).unwrap();
        let file = resources.memory_file(3).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().len(), 3 << 20);
        let directory = resources.directory.clone();
        drop(resources);
        assert!(!file.exists() && !directory.exists());
        assert_eq!(fs::read_dir(disk.path().join("made")).unwrap().count(), 0);
        assert!(Resources::finds("ls") && !Resources::finds("no-such-program"));
    }
}
