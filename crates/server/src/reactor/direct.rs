//! Directly attached hosts: the functions of a reactor that have a client.
//!
//! ```text
//!              CC.EN 0->1              CC.EN 1->0, resets
//! no controller ---------> Admin Queue -----------------> its queues end ---> no controller
//! ```
//! All queues of a function are connections of the reactor that has its client. A client that is
//! gone leaves its function until nothing of it is at a device any more. What a client asks for is
//! in `server/reactor/direct/device.rs`, what its controller does in
//! `server/reactor/direct/controller.rs`.

mod controller;
mod device;
mod guest_driver;

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use ebof_fabrics::RingTask;
use rustix::event::epoll;

use self::device::DirectDevice;
use super::connections::Connections;
use crate::direct::Left;
use crate::ports::peer::Peer;
use crate::ports::port::PortState;
use crate::shared::mailbox::CommandRef;

/// How often mapped doorbells are looked at while nobody rings.
const DOORBELL_INTERVAL: Duration = Duration::from_millis(1);

/// The functions with clients, each in a place of its own for as long as anything is left of it.
#[derive(Default)]
pub(super) struct DirectHosts {
    devices: Vec<Option<Box<DirectDevice>>>,
}

impl DirectHosts {
    /// Whether there is no client.
    pub(super) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    fn iter(&self) -> impl Iterator<Item = &DirectDevice> {
        self.devices.iter().flatten().map(|device| &**device)
    }

    /// Runs `work` on the function at `at`, if there is one. What its queues take meanwhile is not
    /// charged to it by queue: where a client or the end of a rest is the reason, the whole is.
    fn with<R>(
        &mut self,
        at: usize,
        connections: &mut Connections,
        work: impl FnOnce(&mut DirectDevice, &mut Connections) -> R,
    ) -> Option<R> {
        let device = self.devices.get_mut(at)?.as_mut()?;
        connections.stalls.begin_whole(device.function());
        let result = work(device, connections);
        connections.stalls.end_whole();
        Some(result)
    }

    /// A client has come.
    pub(super) fn accept(&mut self, socket: UnixStream, peer: Peer, connections: &mut Connections, now_us: u64) {
        let is_same = |device: &DirectDevice| device.port().is_same(&peer.port);
        let Some(at) = self.devices.iter().position(|device| device.as_deref().is_some_and(is_same)) else {
            return self.open(socket, peer.port, connections);
        };
        self.with(at, connections, |device, connections| device.replace_client(socket, peer, connections, now_us));
        self.look_at_device(at, connections, now_us);
    }

    fn open(&mut self, socket: UnixStream, port: Arc<PortState>, connections: &Connections) {
        let at = self.devices.iter().position(Option::is_none).unwrap_or_else(|| {
            self.devices.push(None);
            self.devices.len() - 1
        });
        self.devices[at] = DirectDevice::open(socket, port, at, connections).map(Box::new);
    }

    /// A client has sent something, takes answers again, or is gone. Returns whether there is one.
    pub(super) fn on_client(
        &mut self,
        at: usize,
        flags: epoll::EventFlags,
        connections: &mut Connections,
        now_us: u64,
    ) -> bool {
        let served = self.with(at, connections, |device, connections| device.on_client(flags, connections, now_us));
        if served.is_some() {
            self.look_at_device(at, connections, now_us);
        }
        served.is_some()
    }

    /// A command of an Admin Queue creates an I/O queue.
    pub(super) fn create_queue(
        &mut self,
        reply: CommandRef,
        task: RingTask,
        connections: &mut Connections,
        now_us: u64,
    ) {
        let is_its = |device: &DirectDevice| device.controller.admin() == Some(reply.handle);
        // If there is none, the controller was reset, and the command has gone with its queue.
        if let Some(at) = self.devices.iter().position(|device| device.as_deref().is_some_and(is_its)) {
            self.with(at, connections, |device, connections| {
                device.controller.create_queue(reply, task, connections, now_us);
            });
        }
    }

    /// The clients of a port end.
    pub(super) fn end_clients(&mut self, port: &PortState, connections: &mut Connections, now_us: u64) {
        for at in 0..self.devices.len() {
            self.with(at, connections, |device, connections| {
                if device.port().is_same(port) {
                    device.leave(&Left::PortGone, connections, now_us);
                }
            });
            self.look_at_device(at, connections, now_us);
        }
    }

    /// Leaves all clients, at the end: closing what they have sent does not delay it.
    pub(super) fn hang_up(&mut self) {
        self.devices.drain(..).flatten().for_each(|device| device.hang_up());
    }

    /// Goes on with what functions wait for. Returns whether anything did.
    pub(super) fn look_at_devices(&mut self, connections: &mut Connections, now_us: u64) -> bool {
        let all = connections.take_function_news();
        (0..self.devices.len()).fold(false, |worked, at| {
            let rested = self.with(at, connections, |device, connections| device.end_rest(connections, now_us));
            let worked = worked | rested.unwrap_or(false);
            let Some(device) = &self.devices[at] else { return worked };
            if device.has_messages_to_take() {
                return self.on_client(at, epoll::EventFlags::empty(), connections, now_us);
            }
            let wanted = all || device.waits();
            worked | (wanted && self.look_at_device(at, connections, now_us))
        })
    }

    fn look_at_device(&mut self, at: usize, connections: &mut Connections, now_us: u64) -> bool {
        let worked = self.with(at, connections, |device, connections| device.go_on(connections, now_us));
        let is_over = self.devices.get(at).is_some_and(|device| device.as_ref().is_some_and(|device| device.is_over()));
        let Some(device) = self.devices.get_mut(at).and_then(|device| device.take_if(|_| is_over)) else {
            return worked.unwrap_or(false);
        };
        if let Some((socket, peer)) = device.close(connections) {
            self.open(socket, peer.port, connections);
        }
        true
    }

    /// Whether what hosts ring is in memory, and their clients' sockets matter little.
    pub(super) fn is_polled(&self) -> bool {
        self.iter().all(DirectDevice::is_polled)
    }

    /// The longest time to sleep: doorbells that are mapped wake nobody.
    pub(super) fn doorbell_interval(&self) -> Option<Duration> {
        self.iter().any(DirectDevice::has_mapped_doorbells).then_some(DOORBELL_INTERVAL)
    }

    /// When a function has something to do although nothing happens, milliseconds.
    pub(super) fn deadline_ms(&self, connections: &Connections, now_ms: u64) -> Option<u64> {
        let rests_until_ms = connections.stalls.next_end_us().map(|until_us| until_us.div_ceil(1000));
        self.iter().filter_map(|device| device.due_ms(now_ms)).chain(rests_until_ms).min()
    }

    /// Whether a function has to be looked at although nothing happens.
    #[cfg(test)]
    pub(super) fn is_any_waiting(&self) -> bool {
        self.iter().any(DirectDevice::waits)
    }
}
