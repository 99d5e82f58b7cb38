//! The description of a load, with fio's names and defaults where fio has them. What each thread
//! does in which order is in `job/plan.rs`.

pub(crate) mod plan;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The operations and the order of their addresses (fio's `rw`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mix {
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Random reads.
    RandRead,
    /// Random writes.
    RandWrite,
    /// Sequential reads and writes.
    Rw,
    /// Random reads and writes.
    RandRw,
}

impl Mix {
    /// fio's word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::RandRead => "randread",
            Self::RandWrite => "randwrite",
            Self::Rw => "rw",
            Self::RandRw => "randrw",
        }
    }

    /// Whether addresses are random.
    #[must_use]
    pub const fn is_random(self) -> bool {
        matches!(self, Self::RandRead | Self::RandWrite | Self::RandRw)
    }

    /// Whether it changes the medium.
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::RandRead)
    }

    /// Whether it reads.
    #[must_use]
    pub const fn reads(self) -> bool {
        !matches!(self, Self::Write | Self::RandWrite)
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mix {
    type Err = JobError;

    fn from_str(text: &str) -> Result<Self, JobError> {
        Ok(match text {
            "read" => Self::Read,
            "write" => Self::Write,
            "randread" => Self::RandRead,
            "randwrite" => Self::RandWrite,
            "rw" | "readwrite" => Self::Rw,
            "randrw" => Self::RandRw,
            _ => return Err(JobError::Mix),
        })
    }
}

/// Maximum bytes per second; `None` is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// Reads of a thread.
    pub read: Option<u64>,
    /// Writes of a thread.
    pub write: Option<u64>,
}

/// How local files and devices are accessed. Without effect on namespaces of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ioengine {
    /// `io_uring`, or threads where it is not permitted.
    #[default]
    Auto,
    /// `io_uring`, or an error.
    IoUring,
    /// Threads that call pread and pwrite.
    Threads,
}

impl FromStr for Ioengine {
    type Err = JobError;

    fn from_str(text: &str) -> Result<Self, JobError> {
        Ok(match text {
            "auto" => Self::Auto,
            "io_uring" => Self::IoUring,
            "threads" => Self::Threads,
            _ => return Err(JobError::Ioengine),
        })
    }
}

/// A load. [`Job::new`] has the defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its name in reports.
    pub name: String,
    /// The operations.
    pub rw: Mix,
    /// Percentage of reads in a mix, 0 to 100.
    pub read_percent: u8,
    /// Bytes of an operation (fio's `bs`).
    pub block_bytes: u32,
    /// Operations outstanding in each thread (`iodepth`).
    pub depth: u16,
    /// Threads, each with a queue pair of its own (`numjobs`).
    pub threads: u16,
    /// First byte of the part of the medium that is used.
    pub offset_bytes: u64,
    /// Bytes of that part; `None` is all that follows.
    pub size_bytes: Option<u64>,
    /// How long to run; `None` covers the part once (sequential), or runs as many operations as it
    /// has blocks (random).
    pub runtime: Option<Duration>,
    /// Time before measuring begins.
    pub ramp: Duration,
    /// Maximum operations per second, for each thread and direction; `None` is unlimited.
    pub rate_iops: Option<u64>,
    /// Maximum bytes per second, for each thread and direction (`rate`).
    #[serde(default)]
    pub rate: Rate,
    /// With shared queues: use the poll queues (`hipri`).
    #[serde(default)]
    pub hipri: bool,
    /// The engine for a local source.
    #[serde(default)]
    pub ioengine: Ioengine,
    /// Write a pattern that depends on the address, and compare it at every read of what this job
    /// has written; what was written is read once more at the end. A job that only reads expects
    /// the pattern everywhere.
    pub verify: bool,
    /// The seed of random addresses and of the pattern.
    pub seed: u64,
    /// Count failed operations and go on, instead of ending the thread.
    pub continue_on_error: bool,
    /// Thread i is bound to processor `processors[i % len]`; with an empty list to none.
    pub processors: Vec<usize>,
}

impl Job {
    /// 4096 bytes, one operation at a time, one thread, ten seconds, the whole medium.
    #[must_use]
    pub fn new(rw: Mix) -> Self {
        Self {
            name: rw.name().to_owned(),
            rw,
            read_percent: 50,
            block_bytes: 4096,
            depth: 1,
            threads: 1,
            offset_bytes: 0,
            size_bytes: None,
            runtime: Some(Duration::from_secs(10)),
            ramp: Duration::ZERO,
            rate_iops: None,
            rate: Rate::default(),
            hipri: false,
            ioengine: Ioengine::Auto,
            verify: false,
            seed: 0x0065_626f_6600,
            continue_on_error: false,
            processors: Vec::new(),
        }
    }

    /// The largest block.
    pub const BLOCK_BYTES_MAX: u32 = 16 << 20;
    /// The largest depth: a queue of 1024 entries holds one less.
    pub const DEPTH_MAX: u16 = 1023;
    /// The most threads.
    pub const THREADS_MAX: u16 = 256;

    /// Checks the job against a medium of `capacity` bytes with blocks of `unit` bytes and
    /// transfers of at most `transfer_max` bytes. Returns the part that is used: first byte and
    /// length, a multiple of the job's block.
    ///
    /// # Errors
    /// The job does not fit the medium, or a number is out of range.
    pub fn check(&self, capacity: u64, unit: u32, transfer_max: u64) -> Result<(u64, u64), JobError> {
        let block = self.block_bytes;
        if block == 0 || block > Self::BLOCK_BYTES_MAX || !block.is_multiple_of(unit) {
            return Err(JobError::Block { bytes: block, unit });
        }
        if u64::from(block) > transfer_max {
            return Err(JobError::Transfer { bytes: block, max: transfer_max });
        }
        if self.depth == 0 || self.depth > Self::DEPTH_MAX {
            return Err(JobError::Depth(self.depth));
        }
        if self.threads == 0 || self.threads > Self::THREADS_MAX {
            return Err(JobError::Threads(self.threads));
        }
        let rates = [self.rate.read, self.rate.write, self.rate_iops];
        if rates.contains(&Some(0)) {
            return Err(JobError::Rate);
        }
        if self.read_percent > 100 {
            return Err(JobError::Percent(self.read_percent));
        }
        if !self.offset_bytes.is_multiple_of(u64::from(unit)) {
            return Err(JobError::Offset { bytes: self.offset_bytes, unit });
        }
        let rest = capacity.saturating_sub(self.offset_bytes);
        let size = self.size_bytes.unwrap_or(rest);
        if size > rest {
            return Err(JobError::Size { offset: self.offset_bytes, size, capacity });
        }
        let blocks = size / u64::from(block);
        if blocks < u64::from(self.threads) {
            return Err(JobError::TooSmall { size, threads: self.threads });
        }
        Ok((self.offset_bytes, blocks * u64::from(block)))
    }
}

/// The error of an invalid job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// Unknown `rw`.
    #[error("rw must be read, write, randread, randwrite, rw or randrw")]
    Mix,
    /// Unknown `ioengine`.
    #[error("ioengine must be auto, io_uring or threads")]
    Ioengine,
    /// The queue that was asked for holds less than the depth.
    #[error("a queue of {entries} entries takes {} commands at a time, less than the depth of {depth}", .entries.saturating_sub(1))]
    QueueSize {
        /// Entries asked for.
        entries: u16,
        /// The job's depth.
        depth: u16,
    },
    /// A rate of 0.
    #[error("a rate of 0 is none: leave it away for no limit")]
    Rate,
    /// Jobs that run together differ in ramp or runtime.
    #[error("jobs that run together have the same ramp and the same runtime")]
    Together,
    /// The medium does not support the block size.
    #[error("a block of {bytes} bytes must be a multiple of the medium's {unit} bytes, up to {} MiB", Job::BLOCK_BYTES_MAX >> 20)]
    Block {
        /// The job's block.
        bytes: u32,
        /// The medium's.
        unit: u32,
    },
    /// The block exceeds the limit of one command.
    #[error("a block of {bytes} bytes is more than one command to this target may carry ({max} bytes)")]
    Transfer {
        /// The job's block.
        bytes: u32,
        /// The target's limit.
        max: u64,
    },
    /// Out of range.
    #[error("a depth of {0} is not within 1 to {max}", max = Job::DEPTH_MAX)]
    Depth(u16),
    /// Out of range.
    #[error("{0} threads are not within 1 to {max}", max = Job::THREADS_MAX)]
    Threads(u16),
    /// Out of range.
    #[error("{0} percent of reads are not within 0 to 100")]
    Percent(u8),
    /// Not aligned.
    #[error("offset {bytes} must be a multiple of the medium's {unit} bytes")]
    Offset {
        /// The job's.
        bytes: u64,
        /// The medium's.
        unit: u32,
    },
    /// Beyond the end.
    #[error("{size} bytes from {offset} on are not within the medium of {capacity} bytes")]
    Size {
        /// The job's.
        offset: u64,
        /// The job's.
        size: u64,
        /// The medium's.
        capacity: u64,
    },
    /// Less than a block for each thread.
    #[error("{size} bytes are less than a block for each of {threads} threads")]
    TooSmall {
        /// Bytes to work on.
        size: u64,
        /// Threads.
        threads: u16,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_does_not_fit_says_why() {
        let job = Job::new(Mix::RandRead);
        assert_eq!(job.check(1 << 20, 512, 1 << 20), Ok((0, 1 << 20)));
        let fail = |job: Job| job.check(1 << 20, 512, 1 << 17).unwrap_err().to_string();
        assert_eq!(
            fail(Job { block_bytes: 1000, ..job.clone() }),
            "a block of 1000 bytes must be a multiple of the medium's 512 bytes, up to 16 MiB"
        );
        assert_eq!(
            fail(Job { block_bytes: 1 << 18, ..job.clone() }),
            "a block of 262144 bytes is more than one command to this target may carry (131072 bytes)"
        );
        assert_eq!(fail(Job { depth: 1024, ..job.clone() }), "a depth of 1024 is not within 1 to 1023");
        assert_eq!(
            fail(Job { offset_bytes: 4096, size_bytes: Some(1 << 20), ..job.clone() }),
            "1048576 bytes from 4096 on are not within the medium of 1048576 bytes"
        );
        assert_eq!(
            fail(Job { size_bytes: Some(4096), threads: 2, ..job }),
            "4096 bytes are less than a block for each of 2 threads"
        );
    }

    #[test]
    fn the_names_are_those_of_fio() {
        for mix in [Mix::Read, Mix::Write, Mix::RandRead, Mix::RandWrite, Mix::Rw, Mix::RandRw] {
            assert_eq!(mix.name().parse(), Ok(mix));
        }
        assert_eq!("trim".parse::<Mix>(), Err(JobError::Mix));
    }
}
