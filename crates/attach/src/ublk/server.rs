//! Makes and deletes ublk devices and assigns their queues to threads. Every thread serves one
//! queue of each device, so that all namespaces share the connections.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use zerocopy::{FromZeros, IntoBytes};

use super::wire::{self, BasicParams, ControlCommand, DeviceInfo, DiscardParams, Params};
use super::worker::{Order, Worker};
use super::{ControlRing, Descriptors};
use crate::block_queue::{BlockQueue, Namespace};
use crate::error::Error;
use crate::fuse::TRANSFER_MAX_BYTES;

/// Depth of a device's queue.
const QUEUE_DEPTH: u16 = 128;
/// How long to wait for the queues of a stopped device to release it.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Marks our devices, together with the daemon's process id, in the driver's field for the server.
const MARK: u64 = 0x6562_6f66 << 32;

/// The ublk devices of one controller, and the threads that serve them.
pub(crate) struct Server {
    control: ControlRing,
    threads: Vec<Queue>,
    devices: Vec<Device>,
    counts_openers: bool,
}

/// A thread.
struct Queue {
    orders: Sender<Order>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

struct Device {
    name: String,
    dev_id: u32,
    /// Each queue sends here when it has released the device.
    released: Receiver<()>,
    queues: usize,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("threads", &self.threads.len()).field("devices", &self.devices.len()).finish()
    }
}

/// Whether ublk can be used here; tries to load its module.
///
/// # Errors
/// What is missing and what to do about it.
pub fn check() -> Result<(), Error> {
    if !Path::new("/dev/ublk-control").exists() {
        let load = Command::new("modprobe").arg("ublk_drv").stdin(Stdio::null()).stderr(Stdio::null()).status();
        tracing::debug!(?load, "modprobe ublk_drv");
    }
    let mut control = ControlRing::open().map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::NotFound => "it needs Linux 6.5 or newer with the module ublk_drv (modprobe ublk_drv)",
            io::ErrorKind::PermissionDenied => "run as root, and where io_uring is permitted",
            io::ErrorKind::OutOfMemory => "raise the limit of locked memory (`ulimit -l`, LimitMEMLOCK= of systemd)",
            _ => "io_uring may be switched off here (sysctl kernel.io_uring_disabled)",
        };
        Error::Ublk(format!("opening /dev/ublk-control failed: {error}; {advice}"))
    })?;
    let wanted = wire::USER_COPY | wire::CMD_IOCTL_ENCODE;
    match features(&mut control) {
        Ok(features) if features & wanted == wanted => Ok(()),
        Ok(features) => Err(Error::Ublk(format!(
            "this kernel's driver lacks what is needed (features {features:#x}): 6.5 or newer"
        ))),
        Err(error) => Err(failed("asking the driver for its features", &error)),
    }
}

/// What the driver can do.
fn features(control: &mut ControlRing) -> io::Result<u64> {
    let mut features = 0_u64;
    control.run(wire::control::GET_FEATURES, command(u32::MAX), features.as_mut_bytes())?;
    Ok(features)
}

/// Whether a path in a state file is a ublk device's.
pub(crate) fn is_ours(path: &Path) -> bool {
    number(path).is_some()
}

fn number(path: &Path) -> Option<u32> {
    path.to_str()?.strip_prefix("/dev/ublkb")?.parse().ok()
}

/// Deletes the device of a dead daemon, the process `pid`; `false` if it does not exist or belongs
/// to another process.
pub(crate) fn delete(path: &Path, pid: u32) -> Result<bool, Error> {
    let Some(dev_id) = number(path) else { return Ok(false) };
    let mut control = ControlRing::open().map_err(|error| failed("opening /dev/ublk-control", &error))?;
    let mut info = DeviceInfo::new_zeroed();
    if control.run(wire::control::GET_DEV_INFO, command(dev_id), info.as_mut_bytes()).is_err() {
        return Ok(false);
    }
    if info.ublksrv_flags != mark(pid) {
        return Ok(false);
    }
    // The kernel stops the device of a dead server, but not at once.
    if let Err(error) = control.run(wire::control::STOP_DEV, command(dev_id), &mut []) {
        tracing::debug!(%error, dev_id, "stopping a dead ublk device");
    }
    delete_device(&mut control, dev_id).map_err(|error| failed("deleting it", &error))?;
    Ok(true)
}

/// Deletes a stopped device. Its number is free when its last user, such as a mounted file system,
/// is gone. That may be never, so it is not waited for if the kernel allows that.
fn delete_device(control: &mut ControlRing, dev_id: u32) -> io::Result<()> {
    match control.run(wire::control::DEL_DEV_ASYNC, command(dev_id), &mut []) {
        Err(error) if is_unknown(&error) => control.run(wire::control::DEL_DEV, command(dev_id), &mut []),
        result => result,
    }
}

/// Whether the driver does not know the command.
fn is_unknown(error: &io::Error) -> bool {
    let unknown = [rustix::io::Errno::OPNOTSUPP, rustix::io::Errno::INVAL, rustix::io::Errno::NOTSUP];
    error.raw_os_error().is_some_and(|number| unknown.iter().any(|errno| errno.raw_os_error() == number))
}

fn mark(pid: u32) -> u64 {
    MARK | u64::from(pid)
}

/// The fixed part of a control command.
fn command(dev_id: u32) -> ControlCommand {
    ControlCommand { dev_id, queue_id: u16::MAX, ..ControlCommand::default() }
}

fn failed(what: &str, error: &io::Error) -> Error {
    Error::Ublk(format!("{what} failed: {error}"))
}

impl Server {
    /// Starts a thread for each of `blocks`; no devices yet.
    pub(crate) fn start<B: BlockQueue + Send + 'static>(blocks: Vec<B>) -> Result<Self, Error> {
        let mut control = ControlRing::open().map_err(|error| failed("opening /dev/ublk-control", &error))?;
        let features = features(&mut control).map_err(|error| failed("asking the driver for its features", &error))?;
        let counts_openers = features & wire::SAFE_STOP != 0;
        let mut server = Self { control, threads: Vec::new(), devices: Vec::new(), counts_openers };
        for (index, blocks) in blocks.into_iter().enumerate() {
            // On an error the server is dropped, which ends its threads.
            server.start_thread(index, blocks).map_err(|error| failed("starting a queue's thread", &error))?;
        }
        Ok(server)
    }

    fn start_thread<B: BlockQueue + Send + 'static>(&mut self, index: usize, blocks: B) -> io::Result<()> {
        let queue = u16::try_from(index).map_err(|_too_many| io::ErrorKind::InvalidInput)?;
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (orders, inbox) = channel();
        let mut worker = Worker::new(queue, blocks, inbox, Arc::clone(&wake))?;
        let thread = std::thread::Builder::new().name(format!("ublk-{index}")).spawn(move || {
            if let Err(error) = worker.run() {
                tracing::error!(%error, "a ublk thread cannot go on, and requests would wait for it: the process ends");
                std::process::exit(1);
            }
        })?;
        self.threads.push(Queue { orders, wake, thread: Some(thread) });
        Ok(())
    }

    /// Makes the device of a namespace and returns its path.
    pub(crate) fn add(&mut self, name: &str, namespace: &Namespace) -> Result<PathBuf, Error> {
        let mut info = self.add_device(namespace)?;
        let dev_id = info.dev_id;
        let made = self.bring_up(name, namespace, &mut info);
        if let Err(error) = made {
            self.take_down(name, dev_id).unwrap_or_else(|error| tracing::warn!(%error, dev_id, "taking it down"));
            return Err(error);
        }
        Ok(PathBuf::from(format!("/dev/ublkb{dev_id}")))
    }

    fn add_device(&mut self, namespace: &Namespace) -> Result<DeviceInfo, Error> {
        let queues = u16::try_from(self.threads.len()).unwrap_or(u16::MAX);
        let mut info = DeviceInfo {
            nr_hw_queues: queues,
            queue_depth: QUEUE_DEPTH,
            max_io_buf_bytes: namespace.transfer_max_bytes.min(TRANSFER_MAX_BYTES),
            // The driver chooses the number.
            dev_id: u32::MAX,
            flags: wire::USER_COPY | wire::CMD_IOCTL_ENCODE,
            ublksrv_flags: mark(std::process::id()),
            ..DeviceInfo::default()
        };
        self.control
            .run(wire::control::ADD_DEV, command(u32::MAX), info.as_mut_bytes())
            .map_err(|error| failed("adding a device", &error))?;
        if info.nr_hw_queues == 0 || info.nr_hw_queues > queues || info.flags & wire::USER_COPY == 0 {
            let error = Error::Ublk(format!("the driver made a device that cannot be served: {info:?}"));
            self.take_down("", info.dev_id).unwrap_or_else(|error| tracing::warn!(%error, "taking it down"));
            return Err(error);
        }
        Ok(info)
    }

    /// Everything between ADD and START: parameters, queues.
    fn bring_up(&mut self, name: &str, namespace: &Namespace, info: &mut DeviceInfo) -> Result<(), Error> {
        let dev_id = info.dev_id;
        let mut params = parameters(namespace, info.max_io_buf_bytes);
        self.control
            .run(wire::control::SET_PARAMS, command(dev_id), params.as_mut_bytes())
            .map_err(|error| failed("setting the parameters", &error))?;
        let path = format!("/dev/ublkc{dev_id}");
        let device = File::options().read(true).write(true).open(&path);
        let device = Arc::new(device.map_err(|error| failed(&format!("opening {path}"), &error))?);
        let (release, released) = channel();
        let threads = self.threads.iter().zip(0..info.nr_hw_queues);
        let orders: io::Result<Vec<Order>> = threads
            .map(|(_, queue)| {
                let descriptors = Descriptors::map(&device, queue, info.queue_depth)?;
                let device = Arc::clone(&device);
                let namespace = namespace.clone();
                let release = release.clone();
                Ok(Order::Serve { device, descriptors, depth: info.queue_depth, namespace, release })
            })
            .collect();
        let orders = orders.map_err(|error| failed("mapping the requests", &error))?;
        let queues = orders.len();
        drop((device, release));
        // From here on the queues use the device: removing it has to wait for them.
        self.devices.push(Device { name: name.to_owned(), dev_id, released, queues });
        let given = self.threads.iter().zip(orders).all(|(thread, order)| thread.give(order));
        if !given {
            return Err(Error::Ublk("a queue's thread has ended; the log says why".to_owned()));
        }
        let pid = u64::from(std::process::id());
        // Returns when all queues have fetched, which the threads do when they get their order.
        self.control
            .run(wire::control::START_DEV, ControlCommand { data: pid, ..command(dev_id) }, &mut [])
            .map_err(|error| failed("starting the device", &error))
    }

    /// Removes a device. Requests in progress are served first.
    pub(crate) fn remove(&mut self, name: &str) -> Result<(), Error> {
        match self.devices.iter().find(|device| device.name == name) {
            Some(device) => self.take_down(name, device.dev_id),
            None => Ok(()),
        }
    }

    /// Whether the driver can tell that a device is not in use.
    pub(crate) const fn counts_openers(&self) -> bool {
        self.counts_openers
    }

    /// As [`remove`](Self::remove), but `false` if the driver counts a user: the device stays. A
    /// driver that counts none removes it.
    pub(crate) fn remove_unused(&mut self, name: &str) -> Result<bool, Error> {
        let Some(dev_id) = self.devices.iter().find(|device| device.name == name).map(|device| device.dev_id) else {
            return Ok(true);
        };
        if self.counts_openers {
            match self.control.run(wire::control::TRY_STOP_DEV, command(dev_id), &mut []) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => return Ok(false),
                stopped => stopped.map_err(|error| failed("asking for the users of the device", &error))?,
            }
        }
        self.take_down(name, dev_id).map(|()| true)
    }

    fn take_down(&mut self, name: &str, dev_id: u32) -> Result<(), Error> {
        let stopped = self.control.run(wire::control::STOP_DEV, command(dev_id), &mut []);
        if let Some(index) = self.devices.iter().position(|device| device.name == name && device.dev_id == dev_id) {
            let device = self.devices.remove(index);
            for _ in 0..device.queues {
                match device.released.recv_timeout(STOP_TIMEOUT) {
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => {}
                    // Deleting it now would wait for ever.
                    Err(RecvTimeoutError::Timeout) => {
                        return Err(Error::Ublk(format!("ublk device {dev_id} is not let go of by its queues")));
                    }
                }
            }
        }
        let deleted = delete_device(&mut self.control, dev_id);
        stopped.and(deleted).map_err(|error| failed("taking the device away", &error))
    }
}

impl Queue {
    /// Sends an order to the thread; `false` if it has ended.
    fn give(&self, order: Order) -> bool {
        let given = self.orders.send(order).is_ok();
        let woken = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        debug_assert!(woken.is_ok(), "an eventfd takes a one");
        given
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        while let Some(device) = self.devices.first() {
            let name = device.name.clone();
            let dev_id = device.dev_id;
            if let Err(error) = self.take_down(&name, dev_id) {
                tracing::error!(%error, name, "taking a ublk device away");
            }
        }
        for queue in &mut self.threads {
            queue.give(Order::End);
            if queue.thread.take().is_some_and(|thread| thread.join().is_err()) {
                tracing::error!("a ublk thread panicked");
            }
        }
    }
}

fn parameters(namespace: &Namespace, transfer_max_bytes: u32) -> Params {
    let shift = u8::try_from(namespace.block_bytes.trailing_zeros()).expect("at most 31");
    let sectors = u64::from(namespace.block_bytes / 512);
    // A volatile cache may appear with any reconnect, but these parameters cannot change: the
    // kernel always sends flushes, which cost nothing without a cache.
    let cache = wire::attr::VOLATILE_CACHE | wire::attr::FUA;
    let basic = BasicParams {
        attrs: cache,
        logical_bs_shift: shift,
        physical_bs_shift: shift.max(12),
        io_opt_shift: shift.max(12),
        io_min_shift: shift,
        max_sectors: transfer_max_bytes / 512,
        dev_sectors: namespace.blocks.saturating_mul(sectors),
        ..BasicParams::default()
    };
    let whole = |blocks: u64| {
        let fits = blocks.saturating_mul(sectors).min(u64::from(u32::MAX)) / sectors * sectors;
        u32::try_from(fits).expect("at most u32::MAX")
    };
    let discard = DiscardParams {
        discard_granularity: namespace.block_bytes,
        max_discard_sectors: if namespace.deallocate { whole(u64::from(u32::MAX)) } else { 0 },
        max_write_zeroes_sectors: whole(u64::from(namespace.write_zeroes_max_blocks)),
        max_discard_segments: 1,
        ..DiscardParams::default()
    };
    let len = u32::try_from(size_of::<Params>()).expect("64");
    Params { len, types: wire::PARAM_BASIC | wire::PARAM_DISCARD, basic, discard }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_describe_the_namespace() {
        let namespace = Namespace {
            nsid: 1,
            block_bytes: 4096,
            blocks: 1000,
            read_only: true,
            transfer_max_bytes: 128 << 10,
            write_zeroes_max_blocks: 65_536,
            zeroes_deallocate: true,
            protection: ebof_nvme::identify::ProtectionType::None,
            deallocate: true,
            head: None,
        };
        let params = parameters(&namespace, 128 << 10);
        assert_eq!(
            (params.basic.logical_bs_shift, params.basic.dev_sectors, params.basic.max_sectors),
            (12, 8000, 256)
        );
        // Not read-only: that would be for ever.
        assert_eq!(params.basic.attrs, 4 | 8);
        assert_eq!(params.discard.max_write_zeroes_sectors, 65_536 * 8);
        assert_eq!(params.discard.max_discard_sectors % 8, 0);
        let without = Namespace { deallocate: false, write_zeroes_max_blocks: 0, ..namespace };
        let params = parameters(&without, 128 << 10);
        assert_eq!((params.discard.max_discard_sectors, params.discard.max_write_zeroes_sectors), (0, 0));
    }

    #[test]
    fn only_paths_of_ublk_are_ublk_devices() {
        assert!(is_ours(Path::new("/dev/ublkb12")));
        assert!(
            !is_ours(Path::new("/dev/loop3"))
                && !is_ours(Path::new("/dev/ublkb"))
                && !is_ours(Path::new("/dev/ublkc1"))
        );
    }
}
