//! What can be set for a whole target, with the figures that measured best as defaults.

use std::time::Duration;

use ebof_manage::Config;
use ebof_manage::api::Confinement;
use ebof_manage::config::{Port, SLOW_THRESHOLD};
use ebof_manage::listen::Transport;
use ebof_verbs::QueuePair;

use crate::environment::Environment;

/// Settings of a target's threads and memory.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Threads that own queue pairs; `None` is one for each processor the process may run on.
    pub threads: Option<usize>,
    /// Whether each of these threads stays on a processor of its own, and connections go to the
    /// thread of the processor that their packets arrive on. For machines that do nothing else: a
    /// process that polls on one of the processors, as many hosts of the same machine do, takes it
    /// from the thread, which cannot go elsewhere.
    pub pin: bool,
    /// How long a thread without work looks for some before it sleeps, microseconds: not at all
    /// where work is rare, up to 4 ms where wake-ups are late. 0 sleeps at once.
    pub spin_us: u64,
    /// Connections at a time, over all ports.
    pub connections_max: u32,
    /// What one host NQN may use of connections, controllers and each thread's buffers, percent:
    /// the rest is for others.
    pub host_share_percent: u8,
    /// Connections from one address (of IPv6: from one network of 64 bits) that are not admitted
    /// yet, percent of all.
    pub address_share_percent: u8,
    /// Controllers at a time, discovery included.
    pub controllers_max: u32,
    /// How long a connection may take to an accepted Connect, milliseconds.
    pub handshake_ms: u64,
    /// Payload buffers of one connection, bytes: commands beyond it wait.
    pub connection_buffer_bytes: usize,
    /// Payload buffers of one thread, bytes.
    pub reactor_buffer_bytes: usize,
    /// Capsules of all connections over RDMA, bytes: memory that is registered with the devices. A
    /// queue has as many as it has entries, each of 64 bytes and the in-capsule data of its port. A
    /// connection beyond it is refused.
    pub message_memory_bytes: usize,
    /// Requests that one thread has in flight at file and block devices.
    pub device_queue_depth: u32,
    /// Sends without a copy (`zerocopy_send` of a port) that the kernel copies all the same, in a
    /// row, until the connection goes back to copying.
    pub zerocopy_copied_max: u32,
    /// Refused connections that are remembered.
    pub refused_journal: usize,
    /// Commands that take this long are remembered as slow; 0 is none.
    pub slow_threshold: Duration,
    /// Whether a start fails if a device or an address cannot be had. Otherwise the rest is served:
    /// [`Target::missing`](crate::Target::missing) tells the reasons, and whoever runs the target
    /// calls [`Target::look_for_missing`](crate::Target::look_for_missing) now and then.
    pub strict: bool,
    /// What the process has given up, for the status to tell.
    pub confinement: Option<Confinement>,
    /// Where time, chance and devices come from.
    pub environment: Environment,
}

impl Settings {
    /// What `config` says in its `[target]`; the defaults for the rest.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let target = &config.target;
        Self {
            threads: target.threads.map(usize::from),
            connections_max: target.max_connections,
            controllers_max: target.max_controllers,
            host_share_percent: target.host_share,
            address_share_percent: target.address_share,
            handshake_ms: u64::try_from(target.handshake_timeout.as_millis()).unwrap_or(u64::MAX),
            refused_journal: target.refused_journal as usize,
            slow_threshold: target.slow_threshold,
            message_memory_bytes: usize::try_from(target.rdma_memory_bytes).unwrap_or(usize::MAX),
            ..Self::default()
        }
    }

    /// Descriptors that a connection to a port of `config` takes at most. Ports over RDMA that are
    /// added later are not considered.
    #[must_use]
    pub fn descriptors_of_connection(config: &Config) -> u32 {
        let is_rdma = |port: &Port| port.listen.transport == Transport::Rdma;
        if config.ports.iter().any(is_rdma) { QueuePair::DESCRIPTORS } else { 1 }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            threads: None,
            pin: false,
            spin_us: 50,
            connections_max: 16_384,
            host_share_percent: 85,
            address_share_percent: 10,
            controllers_max: 4096,
            handshake_ms: 30_000,
            connection_buffer_bytes: 64 << 20,
            reactor_buffer_bytes: 512 << 20,
            message_memory_bytes: 1 << 30,
            device_queue_depth: 1024,
            zerocopy_copied_max: ebof_pinned::COPIED_MAX,
            refused_journal: 1024,
            slow_threshold: SLOW_THRESHOLD,
            strict: true,
            confinement: None,
            environment: Environment::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use ebof_manage::Listen;

    use super::*;

    #[test]
    fn a_port_over_rdma_makes_connections_take_more_descriptors() {
        let mut config = Config::default();
        let listens = |listen| vec![Port::new(1, listen)];
        config.ports = listens(Listen::new([127, 0, 0, 1].into(), 4420));
        assert_eq!(Settings::descriptors_of_connection(&config), 1);
        config.ports = listens(Listen::rdma([127, 0, 0, 1].into(), 4420));
        assert_eq!(Settings::descriptors_of_connection(&config), 4);
    }
}
