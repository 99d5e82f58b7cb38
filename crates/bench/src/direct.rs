//! Loads over a direct port, by a virtual machine without a processor: memory that is shared with
//! the target, a client of vfio-user, and the queues of a driver. For comparisons of a function at
//! a direct port with the same one at a fabric port, without a guest.
//!
//! One queue pair, polled: what a driver in a guest with a processor of its
//! own can reach at most.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_nvme::identify::{Cns, IdentifyNamespace};
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::{Cqe, Nsid, Sqe};
use ebof_region::{MapError, MappingAccess, SharedMapping};
use hdrhistogram::Histogram;
use vfio_user::Client;
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::pattern::mix;

/// How the driver rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Doorbells {
    /// By registers: a message each.
    Registers,
    /// In a page of its memory, and by messages when the controller wants them. Linux does so.
    #[default]
    Shadow,
    /// By the registers, which are memory: of ports with `busy_poll_us` or `prefer_busy_poll`.
    Mapped,
}

/// A load of namespace 1.
#[derive(Clone, Copy, Debug)]
pub struct DirectLoad {
    /// How the driver rings.
    pub doorbells: Doorbells,
    /// Writes, else reads.
    pub write: bool,
    /// Bytes of an operation: a multiple of 4096, up to 1 MiB.
    pub block_bytes: u32,
    /// Operations outstanding, up to 1023.
    pub depth: u16,
    /// At random places, else one after the other.
    pub random: bool,
    /// Time to measure.
    pub runtime: Duration,
    /// Time before measuring begins.
    pub ramp: Duration,
}

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub struct DirectReport {
    /// Operations in a second.
    pub iops: f64,
    /// Bytes in a second.
    pub bytes_per_s: f64,
    /// Mean latency, microseconds.
    pub mean_us: f64,
    /// 99th percentile, microseconds.
    pub p99_us: f64,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum DirectError {
    /// The socket, or the client of the protocol.
    #[error("the direct port: {0}")]
    Client(#[from] vfio_user::Error),
    /// The memory.
    #[error(transparent)]
    Memory(#[from] MapError),
    /// The controller did not do it in time.
    #[error("the controller does not {0}: is a function given to the port, and attached to a namespace?")]
    TimeOut(&'static str),
    /// A command failed.
    #[error("{command}: the controller answered {status}")]
    Status {
        /// The command.
        command: &'static str,
        /// The answer.
        status: ebof_nvme::Status,
    },
    /// The load does not fit.
    #[error("the load does not fit: {0}")]
    Load(&'static str),
}

/// Where the virtual machine's memory begins.
const RAM: u64 = 0x1_0000_0000;
/// Its parts: queues, doorbells, lists of pages, data.
const SHADOW: u64 = RAM + (1 << 20);
const EVENTS: u64 = SHADOW + PAGE;
const LISTS: u64 = RAM + (2 << 20);
const DATA: u64 = RAM + (8 << 20);
const PAGE: u64 = 4096;
/// Entries of the I/O queue.
const ENTRIES: u16 = 1024;
/// Pages of an operation at most.
const PAGES_MAX: u64 = 256;

const BAR0: u32 = 0;
const CONFIG_SPACE: u32 = 7;
const COMMAND: u64 = 4;
const CC: u64 = 0x14;
const CSTS: u64 = 0x1c;
const AQA: u64 = 0x24;
const ASQ: u64 = 0x28;
const ACQ: u64 = 0x30;
const DOORBELLS: u64 = 0x1000;

/// The longest latency that is distinguished from longer ones, nanoseconds.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// Polls without a completion after which others may run.
const POLLS: u32 = 256;

/// How long a controller may take for a step.
const LIMIT: Duration = Duration::from_secs(20);

/// Runs a load at the socket of a direct port.
///
/// # Errors
/// The port cannot be used, or a command failed.
pub fn run(socket: &Path, load: &DirectLoad) -> Result<DirectReport, DirectError> {
    let pages = u64::from(load.block_bytes) / PAGE;
    if !u64::from(load.block_bytes).is_multiple_of(PAGE) || !(1..=PAGES_MAX).contains(&pages) {
        return Err(DirectError::Load("operations are 4 KiB to 1 MiB, in pages"));
    }
    if load.depth == 0 || load.depth >= ENTRIES {
        return Err(DirectError::Load("the depth is 1 to 1023"));
    }
    let bytes = DATA - RAM + u64::from(load.depth) * u64::from(load.block_bytes);
    let mut driver = Driver::new(socket, bytes, load.doorbells)?;
    driver.enable()?;
    let mut queue = driver.create_queue()?;
    let report = driver.measure(&mut queue, load);
    driver.write32(CC, 0x0046_4001)?;
    report
}

/// The driver of the controller.
struct Driver {
    client: Client,
    memory: Arc<SharedMapping>,
    _file: OwnedFd,
    admin: Rings,
    doorbells: Doorbells,
    /// The page of the doorbells, mapped.
    page: Option<Arc<SharedMapping>>,
}

/// A queue pair.
struct Rings {
    id: u16,
    entries: u16,
    submission: u64,
    completion: u64,
    tail: u16,
    head: u16,
    phase: u32,
}

impl Rings {
    fn new(id: u16, entries: u16) -> Self {
        let submission = RAM + u64::from(id) * 0x4_0000;
        Self { id, entries, submission, completion: submission + 0x2_0000, tail: 0, head: 0, phase: 1 }
    }
}

impl Driver {
    fn new(socket: &Path, bytes: u64, doorbells: Doorbells) -> Result<Self, DirectError> {
        let (file, memory) = SharedMapping::create("ebof-bench", bytes)?;
        let mut client = Client::new(socket)?;
        client.dma_map(0, RAM, bytes, file.as_raw_fd())?;
        // Memory accesses and bus mastering.
        client.region_write(CONFIG_SPACE, COMMAND, &6_u16.to_le_bytes())?;
        let page = match doorbells {
            Doorbells::Registers | Doorbells::Shadow => None,
            Doorbells::Mapped => Some(mapped_doorbells(&client)?),
        };
        Ok(Self { client, memory, _file: file, admin: Rings::new(0, 32), doorbells, page })
    }

    fn write32(&mut self, offset: u64, value: u32) -> Result<(), DirectError> {
        Ok(self.client.region_write(BAR0, offset, &value.to_le_bytes())?)
    }

    fn write64(&mut self, offset: u64, value: u64) -> Result<(), DirectError> {
        let bytes = value.to_le_bytes();
        self.client.region_write(BAR0, offset, &bytes[..4])?;
        Ok(self.client.region_write(BAR0, offset + 4, &bytes[4..])?)
    }

    fn enable(&mut self) -> Result<(), DirectError> {
        self.write32(AQA, 31 << 16 | 31)?;
        self.write64(ASQ, self.admin.submission)?;
        self.write64(ACQ, self.admin.completion)?;
        self.write32(CC, 0x0046_0001)?;
        let end = Instant::now() + LIMIT;
        loop {
            let mut csts = [0; 4];
            self.client.region_read(BAR0, CSTS, &mut csts)?;
            if u32::from_le_bytes(csts) & 1 == 1 {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(DirectError::TimeOut("become ready"));
            }
            std::thread::yield_now();
        }
    }

    fn put(&self, address: u64, bytes: &[u8]) {
        let written = self.memory.write(at(address), bytes);
        debug_assert!(written.is_some(), "the parts of the memory are as large as the load needs");
    }

    /// Puts a command into a queue.
    fn push(&self, rings: &mut Rings, sqe: &Sqe) {
        self.put(rings.submission + 64 * u64::from(rings.tail), sqe.as_bytes());
        rings.tail = (rings.tail + 1) % rings.entries;
    }

    /// The next completion, if it is there.
    fn pop(&self, rings: &mut Rings) -> Option<Cqe> {
        let place = at(rings.completion + 16 * u64::from(rings.head));
        let last = self.memory.load(place + 12)?;
        if last >> 16 & 1 != rings.phase {
            return None;
        }
        let mut bytes = [0; 16];
        self.memory.read(place, &mut bytes)?;
        rings.head = (rings.head + 1) % rings.entries;
        if rings.head == 0 {
            rings.phase ^= 1;
        }
        Cqe::read_from_bytes(&bytes).ok()
    }

    fn admin(&mut self, command: &'static str, sqe: Sqe) -> Result<(), DirectError> {
        let mut admin = std::mem::replace(&mut self.admin, Rings::new(0, 32));
        let mut sqe = sqe;
        sqe.cid = admin.tail.into();
        self.push(&mut admin, &sqe);
        self.write32(DOORBELLS, admin.tail.into())?;
        let end = Instant::now() + LIMIT;
        let cqe = loop {
            if let Some(cqe) = self.pop(&mut admin) {
                break cqe;
            }
            if Instant::now() > end {
                return Err(DirectError::TimeOut("complete an admin command"));
            }
            std::thread::yield_now();
        };
        self.write32(DOORBELLS + 4, admin.head.into())?;
        self.admin = admin;
        let status = cqe.status();
        if status.is_success() { Ok(()) } else { Err(DirectError::Status { command, status }) }
    }

    fn create_queue(&mut self) -> Result<Rings, DirectError> {
        let rings = Rings::new(1, ENTRIES);
        let size = u32::from(ENTRIES - 1) << 16 | 1;
        let completion = pointed(Sqe::new(0x05).with_cdw(10, size).with_cdw(11, 1), rings.completion, 0);
        self.admin("Create I/O Completion Queue", completion)?;
        let submission = pointed(Sqe::new(0x01).with_cdw(10, size).with_cdw(11, 1 << 16 | 1), rings.submission, 0);
        self.admin("Create I/O Submission Queue", submission)?;
        if self.doorbells == Doorbells::Shadow {
            self.admin("Doorbell Buffer Config", pointed(Sqe::new(0x7c), SHADOW, EVENTS))?;
        }
        Ok(rings)
    }

    /// Blocks of namespace 1, and their size.
    fn namespace(&mut self) -> Result<(u64, u32), DirectError> {
        let identify = Sqe::new(admin::IDENTIFY).with_nsid(Nsid(1)).with_cdw(10, u32::from(Cns::NAMESPACE.0));
        self.admin("Identify", pointed(identify, DATA, 0))?;
        let mut page = vec![0; size_of::<IdentifyNamespace>()];
        let read = self.memory.read(at(DATA), &mut page);
        let namespace = read.and_then(|()| IdentifyNamespace::read_from_bytes(&page).ok());
        let namespace = namespace.ok_or(DirectError::Load("the memory is too small"))?;
        let format = namespace.lbaf.get(usize::from(namespace.flbas & 0xf));
        let shift = format.map_or(9, |format| u32::from(format.lbads));
        Ok((namespace.nsze.get(), shift))
    }

    fn measure(&mut self, rings: &mut Rings, load: &DirectLoad) -> Result<DirectReport, DirectError> {
        let (blocks, shift) = self.namespace()?;
        let blocks_each = u64::from(load.block_bytes) >> shift;
        let places = blocks / blocks_each.max(1);
        if blocks_each == 0 || places == 0 {
            return Err(DirectError::Load("the namespace is smaller than an operation"));
        }
        let mut places = Places { count: places, next: 0, random: load.random };
        let commands: Vec<Sqe> = (0..load.depth).map(|slot| self.command_of(slot, load, blocks_each)).collect();
        let mut began = vec![Instant::now(); usize::from(load.depth)];
        let mut latencies: Histogram<u64> =
            Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).map_err(|_| DirectError::Load("the histogram"))?;
        let begin = Instant::now();
        let (from, until) = (begin + load.ramp, begin + load.ramp + load.runtime);
        let (mut outstanding, mut measured, mut stopping) = (0_u16, 0_u64, false);
        let before = rings.tail;
        for slot in 0..load.depth {
            self.submit(rings, &commands[usize::from(slot)], &mut places, blocks_each);
            outstanding += 1;
        }
        self.ring(rings, before)?;
        let mut last = Instant::now();
        let mut empty = 0_u32;
        while outstanding > 0 {
            let before = rings.tail;
            let mut taken = false;
            while let Some(cqe) = self.pop(rings) {
                taken = true;
                outstanding -= 1;
                let status = cqe.status();
                if !status.is_success() {
                    return Err(DirectError::Status { command: if load.write { "Write" } else { "Read" }, status });
                }
                let slot = usize::from(cqe.cid().0);
                let now = Instant::now();
                last = now;
                let (Some(sqe), Some(start)) = (commands.get(slot), began.get_mut(slot)) else { continue };
                if now >= from && now < until {
                    measured += 1;
                    let ns = u64::try_from((now - *start).as_nanos()).unwrap_or(u64::MAX);
                    latencies.saturating_record(ns);
                }
                stopping |= now >= until;
                if !stopping {
                    *start = now;
                    self.submit(rings, sqe, &mut places, blocks_each);
                    outstanding += 1;
                }
            }
            if taken {
                empty = 0;
                self.ring_head(rings)?;
                if rings.tail != before {
                    self.ring(rings, before)?;
                }
            } else {
                empty = empty.wrapping_add(1);
                wait_a_little(empty, last)?;
            }
        }
        let seconds = load.runtime.as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let iops = measured as f64 / seconds;
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let p99_us = latencies.value_at_quantile(0.99) as f64 / 1e3;
        let bytes_per_s = iops * f64::from(load.block_bytes);
        Ok(DirectReport { iops, bytes_per_s, mean_us: latencies.mean() / 1e3, p99_us })
    }

    /// The command of a slot, with its pages.
    fn command_of(&self, slot: u16, load: &DirectLoad, blocks_each: u64) -> Sqe {
        let data = DATA + u64::from(slot) * u64::from(load.block_bytes);
        let pages = u64::from(load.block_bytes) / PAGE;
        let second = match pages {
            1 => 0,
            2 => data + PAGE,
            _ => {
                let list = LISTS + u64::from(slot) * PAGE;
                for page in 1..pages {
                    self.put(list + (page - 1) * 8, &(data + page * PAGE).to_le_bytes());
                }
                list
            }
        };
        let blocks = u32::try_from(blocks_each - 1).unwrap_or(u32::MAX);
        let opcode = if load.write { nvm::WRITE } else { nvm::READ };
        let mut sqe = pointed(Sqe::new(opcode).with_nsid(Nsid(1)).with_cdw(12, blocks), data, second);
        sqe.cid = slot.into();
        sqe
    }

    fn submit(&self, rings: &mut Rings, sqe: &Sqe, places: &mut Places, blocks_each: u64) {
        let lba = places.take() * blocks_each;
        let low = u32::try_from(lba & 0xffff_ffff).unwrap_or_default();
        let high = u32::try_from(lba >> 32).unwrap_or_default();
        self.push(rings, &sqe.with_cdw(10, low).with_cdw(11, high));
    }

    /// Tells that completions have been taken.
    fn ring_head(&mut self, rings: &Rings) -> Result<(), DirectError> {
        let offset = u64::from(rings.id) * 8 + 4;
        match (self.doorbells, &self.page) {
            (Doorbells::Shadow, _) => {
                let _within = self.memory.store(at(SHADOW + offset), rings.head.into());
                Ok(())
            }
            (_, Some(page)) => {
                let _within = page.store(usize::try_from(offset).unwrap_or(usize::MAX), rings.head.into());
                Ok(())
            }
            (_, None) => self.write32(DOORBELLS + offset, rings.head.into()),
        }
    }

    /// Rings a register, or the shadow doorbell, and then the register if the controller wants
    /// that.
    fn ring(&mut self, rings: &Rings, before: u16) -> Result<(), DirectError> {
        let offset = u64::from(rings.id) * 8;
        match (self.doorbells, &self.page) {
            (Doorbells::Shadow, _) => {}
            (_, Some(page)) => {
                let _within = page.store(usize::try_from(offset).unwrap_or(usize::MAX), rings.tail.into());
                return Ok(());
            }
            (_, None) => return self.write32(DOORBELLS + offset, rings.tail.into()),
        }
        let _within = self.memory.store(at(SHADOW + offset), rings.tail.into());
        // The event index is read after the doorbell is written: the controller does the reverse.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        let event = self.memory.load(at(EVENTS + offset)).unwrap_or_default();
        let event = u16::try_from(event & 0xffff).unwrap_or_default();
        // As Linux decides it.
        if rings.tail.wrapping_sub(event).wrapping_sub(1) < rings.tail.wrapping_sub(before) {
            self.write32(DOORBELLS + offset, rings.tail.into())?;
        }
        Ok(())
    }
}

/// After so many polls without a completion, the last of which was at `last`.
fn wait_a_little(empty: u32, last: Instant) -> Result<(), DirectError> {
    if empty.is_multiple_of(POLLS) {
        if last.elapsed() > LIMIT {
            return Err(DirectError::TimeOut("complete a command"));
        }
        // Others may need the processor, the controller's thread among them.
        std::thread::yield_now();
    }
    Ok(())
}

/// The page of the doorbells, as the port offers it.
fn mapped_doorbells(client: &Client) -> Result<Arc<SharedMapping>, DirectError> {
    let file = client.region(BAR0).and_then(|region| region.file_offset.as_ref());
    let file = file.ok_or(DirectError::Load("the port does not offer its doorbells: it has no busy_poll_us"))?;
    Ok(SharedMapping::map(file.file(), DOORBELLS, PAGE, MappingAccess::ALL)?)
}

/// Where operations go.
struct Places {
    count: u64,
    next: u64,
    random: bool,
}

impl Places {
    fn take(&mut self) -> u64 {
        if self.random {
            self.next = self.next.wrapping_add(1);
            mix(self.next) % self.count
        } else {
            self.next = (self.next + 1) % self.count;
            self.next
        }
    }
}

/// An address of the virtual machine as an offset in its memory.
fn at(address: u64) -> usize {
    usize::try_from(address - RAM).unwrap_or(usize::MAX)
}

/// The command with PRP entries.
fn pointed(mut sqe: Sqe, first: u64, second: u64) -> Sqe {
    sqe.flags &= 0x3f;
    let bytes = sqe.dptr.as_mut_bytes();
    bytes[..8].copy_from_slice(&first.to_le_bytes());
    bytes[8..].copy_from_slice(&second.to_le_bytes());
    sqe
}
