//! Procedures as data: which phases a procedure has for some devices, and which columns. What each
//! procedure does is in a file of its own; nothing here measures.

mod compare;
mod corners;
mod curve;
mod fairness;
mod mixed;
mod odcc;
mod patterns;

use std::time::Duration;

use ebof_bench::corner::Unit;
use ebof_bench::{Job, Mix, QueueUse};
use ebof_initiator::Options;

use crate::device::{Device, Kind, Seen};
use crate::document::{Column, EngineName, Phase, Procedure, Purpose, Reference};

/// What a procedure is asked to do.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Which one.
    pub procedure: Procedure,
    /// The devices; the last one is what the others are compared with, if `against`.
    pub devices: Vec<DeviceUnderTest>,
    /// The last device is the local one that ratios refer to.
    pub against: bool,
    /// The load generators.
    pub engines: Vec<EngineName>,
    /// Runs of each measurement.
    pub rounds: u32,
    /// Divides all times, and the part of the devices that is used; from 2.
    pub quick: Option<u32>,
    /// Leave out what writes.
    pub reads_only: bool,
    /// Bytes of each device that are used, from its beginning; `None` is all.
    pub size_bytes: Option<u64>,
    /// Fairness: also measure writes.
    pub with_writes: bool,
    /// How often a run is repeated that was disturbed.
    pub repeats: u32,
}

/// A device, and what its inspection found.
#[derive(Clone, Debug)]
pub struct DeviceUnderTest {
    /// The device.
    pub device: Device,
    /// What was found.
    pub seen: Seen,
}

/// What a procedure does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// For people.
    pub title: String,
    /// The columns.
    pub columns: Vec<ColumnPlan>,
    /// The phases, in their order.
    pub phases: Vec<Phase>,
    /// What a reader has to know.
    pub notes: Vec<String>,
}

/// A column, and how it is run.
#[derive(Clone, Debug)]
pub struct ColumnPlan {
    /// What the document says of it.
    pub column: Column,
    /// The device, by index.
    pub device: usize,
    /// The queues of its connection.
    pub queues: QueueUse,
    /// The options of its connection.
    pub options: Option<Box<Options>>,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Too few devices.
    #[error("{procedure} compares devices: name at least two")]
    TooFew {
        /// The procedure.
        procedure: &'static str,
    },
    /// There is nothing left to measure.
    #[error("{procedure}: nothing is left to be measured: {why}")]
    Nothing {
        /// The procedure.
        procedure: &'static str,
        /// Why the last phase was left out.
        why: String,
    },
    /// The generator cannot measure it.
    #[error("{device} can be measured by other programs only: say --engine fio")]
    Engine {
        /// The device.
        device: String,
    },
    /// No device has a known size.
    #[error("{device} does not tell its size: say how much of it to use, as in --size 1G")]
    NoSize {
        /// The first device.
        device: String,
    },
}

impl Wish {
    /// The plan of the procedure for these devices.
    ///
    /// # Errors
    /// The devices do not fit the procedure.
    pub fn plan(&self) -> Result<Plan, PlanError> {
        let procedure = self.procedure.name();
        let needed = match self.procedure {
            Procedure::Fairness | Procedure::Compare => 2,
            _ => 1,
        };
        if self.devices.len() < needed {
            return Err(PlanError::TooFew { procedure });
        }
        if self.area_bytes().is_none() {
            let device = self.devices.first().map(|one| one.device.name.clone()).unwrap_or_default();
            return Err(PlanError::NoSize { device });
        }
        let mut plan = match self.procedure {
            Procedure::Odcc => odcc::plan(self),
            Procedure::Corners => corners::plan(self),
            Procedure::Cdm => patterns::plan(self),
            Procedure::Mixed => mixed::plan(self),
            Procedure::Curve => curve::plan(self),
            Procedure::Fairness => fairness::plan(self),
            Procedure::Compare => compare::plan(self),
        };
        for column in &plan.columns {
            let device = &self.devices[column.device].device;
            if column.column.engine == EngineName::Ebof && device.source().is_none() {
                return Err(PlanError::Engine { device: device.name.clone() });
            }
        }
        self.leave_out(&mut plan)?;
        if let Some(divisor) = self.quick {
            plan.notes.push(format!(
                "Quick: every time and the part of the devices that is used are divided by {divisor} (at least half a \
                 second, and 64 MiB). The figures show that the procedure works, not what the device can do."
            ));
        }
        Ok(plan)
    }

    /// Leaves out phases that write, or do not fit a device.
    fn leave_out(&self, plan: &mut Plan) -> Result<(), PlanError> {
        let mut last = String::new();
        for phase in &mut plan.phases {
            let why = self.obstacle(phase, &plan.columns);
            if let Some(why) = why {
                last.clone_from(&why);
                phase.skipped = Some(why);
            }
        }
        let measures = |phase: &Phase| phase.purpose == Purpose::Measure && phase.skipped.is_none();
        if plan.phases.iter().any(measures) {
            return Ok(());
        }
        Err(PlanError::Nothing { procedure: self.procedure.name(), why: last })
    }

    fn obstacle(&self, phase: &Phase, columns: &[ColumnPlan]) -> Option<String> {
        if phase.skipped.is_some() {
            return phase.skipped.clone();
        }
        if self.reads_only && phase.jobs.iter().any(|job| job.rw.writes()) {
            return Some("it writes, and --reads-only was given".to_owned());
        }
        phase.columns.iter().filter_map(|&column| columns.get(column)).find_map(|column| {
            let DeviceUnderTest { device, seen } = &self.devices[column.device];
            let identity = &seen.identity;
            if phase.tool.is_some() {
                return self.no_tool(device);
            }
            let threads = phase.jobs.iter().fold(0, |sum: u16, job| sum.saturating_add(job.threads));
            if let Some(queues) = seen.io_queues_max.filter(|&queues| !column.queues.shared && queues < threads) {
                return Some(format!("{}: the target grants {queues} I/O queues of {threads}", device.name));
            }
            // What is not known here, another program will find out.
            if identity.capacity_bytes == 0 || phase.file_system.is_some() {
                return None;
            }
            let unit = identity.block_bytes.max(512);
            let transfer_max = seen.transfer_bytes_max.unwrap_or(u64::MAX);
            let error = phase.jobs.iter().find_map(|job| job.check(identity.capacity_bytes, unit, transfer_max).err());
            error.map(|error| format!("{}: {error}", device.name))
        })
    }

    /// Why a device is not measured by a program for block devices.
    fn no_tool(&self, device: &Device) -> Option<String> {
        match device.kind {
            Kind::Path(..) | Kind::Namespace(..) if self.quick.is_some() => {
                Some("programs with times of their own are left out of quick runs".to_owned())
            }
            Kind::Path(..) | Kind::Namespace(..) => None,
            _ => Some(format!("{} cannot be a block device", device.name)),
        }
    }

    /// Why no column can have a file system on its device.
    fn no_file_system(&self, columns: &[ColumnPlan]) -> Option<String> {
        let mut devices = columns.iter().map(|column| &self.devices[column.device].device);
        let blocked = devices.find(|device| !matches!(device.kind, Kind::Path(..) | Kind::Namespace(..)));
        blocked.map(|device| format!("{} cannot have a file system", device.name))
    }

    /// A time of the procedure, shortened by `--quick`, but not to nothing.
    fn time(&self, seconds: u64) -> Duration {
        self.shortened(seconds, Duration::from_millis(500))
    }

    /// A time before measuring begins.
    fn ramp(&self, seconds: u64) -> Duration {
        self.shortened(seconds, Duration::from_millis(100))
    }

    fn shortened(&self, seconds: u64, least: Duration) -> Duration {
        let whole = Duration::from_secs(seconds);
        self.quick.map_or(whole, |divisor| (whole / divisor.max(1)).max(whole.min(least)))
    }

    /// The bytes that all devices have and the procedure uses, a multiple of 1 MiB if there are so
    /// many; `None` if no device has a known size.
    fn area_bytes(&self) -> Option<u64> {
        const LEAST: u64 = 64 << 20;
        // What another program measures does not tell its size here.
        let sizes = self.devices.iter().map(|device| device.seen.identity.capacity_bytes);
        let least = sizes.filter(|&bytes| bytes > 0).min();
        let asked = match (self.size_bytes, least) {
            (Some(size), Some(least)) => size.min(least),
            (size, least) => size.or(least)?,
        };
        let bytes = self.quick.map_or(asked, |divisor| (asked / u64::from(divisor.max(1))).max(LEAST.min(asked)));
        Some(if bytes >= 1 << 20 { bytes >> 20 << 20 } else { bytes })
    }

    /// A column for each device and engine.
    fn columns(&self) -> Vec<ColumnPlan> {
        let mut columns: Vec<ColumnPlan> = Vec::new();
        for device in 0..self.devices.len() {
            for &engine in &self.engines {
                columns.push(self.column(device, engine));
            }
        }
        self.set_bases(&mut columns);
        name(&mut columns);
        columns
    }

    fn column(&self, device: usize, engine: EngineName) -> ColumnPlan {
        let DeviceUnderTest { device: one, seen } = &self.devices[device];
        // For iSCSI and NBD there are only other programs.
        let engine = if engine == EngineName::Ebof && one.source().is_none() { EngineName::Fio } else { engine };
        let label = label(&seen.identity.kind, &one.name);
        let label = if self.engines.len() > 1 { format!("{label}, {}", engine.name()) } else { label };
        let options = match &one.kind {
            Kind::Namespace(options, _) => Some(options.clone()),
            _ => None,
        };
        let column = Column {
            id: String::new(),
            label,
            device: seen.identity.clone(),
            engine,
            variant: None,
            base: None,
            settings: options.as_deref().map(settings).unwrap_or_default(),
        };
        ColumnPlan { column, device, queues: QueueUse::default(), options }
    }

    /// What each column is compared with: the local device with the same engine, or the same device
    /// with the first engine.
    fn set_bases(&self, columns: &mut [ColumnPlan]) {
        let local = if self.against { Some(self.devices.len() - 1) } else { self.local() };
        let known: Vec<(usize, EngineName)> =
            columns.iter().map(|column| (column.device, column.column.engine)).collect();
        for (index, column) in columns.iter_mut().enumerate() {
            let engine = column.column.engine;
            let find = |device, engine| known.iter().position(|known| *known == (device, engine));
            let base = match local {
                Some(local) if local != column.device => find(local, engine),
                _ => self.engines.first().and_then(|&first| find(column.device, first)),
            };
            column.column.base = base.filter(|&base| base != index);
        }
    }

    /// The first device of this machine, if others are not of it.
    fn local(&self) -> Option<usize> {
        let is_local = |subject: &DeviceUnderTest| matches!(subject.device.kind, Kind::Path(..) | Kind::Opened(..));
        let found = self.devices.iter().position(is_local)?;
        self.devices.iter().any(|subject| !is_local(subject)).then_some(found)
    }

    /// A phase that brings each device into a state: with its first column only.
    fn precondition(&self, columns: &[ColumnPlan], id: &str, title: &str, job: Job) -> Phase {
        let mut devices = Vec::new();
        let mut first = Vec::new();
        for (index, column) in columns.iter().enumerate() {
            if !devices.contains(&column.device) {
                devices.push(column.device);
                first.push(index);
            }
        }
        Phase { purpose: Purpose::Precondition, rounds: 1, columns: first, ..phase(id, title, vec![job], 0) }
    }

    /// A phase that measures all columns.
    fn measure(&self, columns: &[ColumnPlan], id: &str, title: &str, job: Job) -> Phase {
        Phase { columns: (0..columns.len()).collect(), ..phase(id, title, vec![job], self.rounds) }
    }

    /// A job of the procedure: a name, operations, bytes, depth, threads, seconds.
    fn job(&self, name: &str, rw: Mix, block_bytes: u32, depth: u16, threads: u16, seconds: u64) -> Job {
        Job {
            name: name.to_owned(),
            block_bytes,
            depth,
            threads,
            size_bytes: self.area_bytes(),
            runtime: Some(self.time(seconds)),
            ramp: self.ramp(seconds.min(10)),
            ..Job::new(rw)
        }
    }
}

/// Large blocks are reported in MB/s.
fn unit(block_bytes: u32) -> Unit {
    if block_bytes >= 64 << 10 { Unit::MegabytesPerSecond } else { Unit::Iops }
}

fn phase(id: &str, title: &str, jobs: Vec<Job>, rounds: u32) -> Phase {
    let first = jobs.first();
    Phase {
        id: id.to_owned(),
        title: title.to_owned(),
        purpose: Purpose::Measure,
        file_system: None,
        tool: None,
        unit: first.map_or(Unit::Iops, |job| unit(job.block_bytes)),
        depth_total: first.map_or(0, |job| u32::from(job.depth) * u32::from(job.threads)),
        jobs,
        rounds,
        until_bytes: None,
        columns: Vec::new(),
        together: false,
        references: Vec::new(),
        skipped: None,
        runs: Vec::new(),
    }
}

fn reference(document: &str, what: &str, value: f64, ratio: Option<f64>) -> Reference {
    Reference { document: document.to_owned(), what: what.to_owned(), value: Some(value), ratio }
}

/// Columns are called A, B, ..., Z, A2, B2, ...
fn name(columns: &mut [ColumnPlan]) {
    for (index, column) in columns.iter_mut().enumerate() {
        let letter = char::from(b'A' + u8::try_from(index % 26).unwrap_or(0));
        let turn = index / 26 + 1;
        column.column.id = if turn == 1 { letter.to_string() } else { format!("{letter}{turn}") };
    }
}

/// A device in a few words.
fn label(kind: &str, name: &str) -> String {
    match kind {
        "nvme+tcp" => format!("NVMe/TCP {}", tail(name)),
        "nvme+rdma" => format!("NVMe/RDMA {}", tail(name)),
        "iscsi" => format!("iSCSI {}", tail(name)),
        "nbd" => format!("NBD {}", tail(name)),
        "memory" | "null" => format!("local {kind}"),
        _ => format!("local {}", tail(name)),
    }
}

/// The end of a URI or path: what distinguishes it from others.
fn tail(name: &str) -> String {
    const LENGTH_MAX: usize = 24;
    let rest = name.split_once("://").map_or(name, |(_, rest)| rest);
    let parts: Vec<&str> = rest.split('/').collect();
    let short = match parts.as_slice() {
        // The end of the NQN, and the namespace.
        [_, nqn, nsid] if name.contains("://") => format!("{}/{nsid}", nqn.rsplit(':').next().unwrap_or(nqn)),
        [.., last] if !last.is_empty() => (*last).to_owned(),
        _ => rest.trim_end_matches('/').to_owned(),
    };
    let count = short.chars().count();
    short.chars().skip(count.saturating_sub(LENGTH_MAX)).collect()
}

/// The options of a connection that differ from the defaults, and matter.
fn settings(options: &Options) -> Vec<(String, String)> {
    let defaults = Options::new(options.traddr.clone(), options.trsvcid, options.nqn.clone());
    let mut all = Vec::new();
    let mut tell = |name: &str, value: String, default: String| {
        if value != default {
            all.push((name.to_owned(), value));
        }
    };
    tell("hostnqn", options.host_nqn.to_string(), defaults.host_nqn.to_string());
    tell("queue-size", options.queue_size.to_string(), defaults.queue_size.to_string());
    tell("hdr-digest", options.hdr_digest.to_string(), defaults.hdr_digest.to_string());
    tell("data-digest", options.data_digest.to_string(), defaults.data_digest.to_string());
    tell("zerocopy-send", format!("{:?}", options.zerocopy_send), format!("{:?}", defaults.zerocopy_send));
    tell("busy-poll", format!("{:?}", options.busy_poll_us), format!("{:?}", defaults.busy_poll_us));
    tell("tos", format!("{:?}", options.tos), format!("{:?}", defaults.tos));
    tell("bulk-bytes", format!("{:?}", options.bulk_bytes), format!("{:?}", defaults.bulk_bytes));
    tell("batch-timeout", options.batch_timeout_us.to_string(), defaults.batch_timeout_us.to_string());
    all
}

#[cfg(test)]
mod tests;
