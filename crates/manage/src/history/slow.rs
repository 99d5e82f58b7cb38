//! Slow commands: those that took longer than a threshold, and where their time went.
//!
//! The JSON form is stable (see `docs/json.md`), guarded by a snapshot.

use serde::{Deserialize, Serialize};

/// The version of the JSON shape of [`SlowCommands`].
pub const SLOW_SCHEMA: u32 = 1;

/// Slow commands that are remembered.
pub const SLOW_MAX: usize = 1024;

/// The slow commands of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowCommands {
    /// [`SLOW_SCHEMA`].
    pub slow_schema: u32,
    /// Commands that take this long are slow, microseconds; `None` is none.
    pub threshold_us: Option<u64>,
    /// How many there were since the target was started.
    pub total: u64,
    /// The latest of them, the latest last: at most [`SLOW_MAX`].
    pub commands: Vec<SlowCommand>,
}

/// A slow command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowCommand {
    /// Its number: from 1 since the start of the target.
    pub id: u64,
    /// When it was completed, in milliseconds since 1970-01-01T00:00:00Z.
    pub time_unix_ms: u64,
    /// NQN of the host.
    pub host_nqn: String,
    /// NQN of the subsystem.
    pub subsystem_nqn: String,
    /// The function, drive or subsystem, by the name that it has elsewhere: `d3/vf2`.
    pub object: String,
    /// Name of the port.
    pub port: String,
    /// The queue.
    pub queue: u16,
    /// The namespace.
    pub nsid: u32,
    /// The opcode.
    pub opcode: u8,
    /// The command: `read`, `write`, ...
    pub command: String,
    /// The first block that it names, if it names one.
    pub lba: Option<u64>,
    /// Bytes of its data.
    pub bytes: u32,
    /// The status that it was completed with.
    pub status: String,
    /// From its arrival to its completion, microseconds.
    pub total_us: u64,
    /// Where they went.
    pub parts: SlowParts,
    /// Bytes of earlier answers that waited to be sent on its connection when it was completed: its
    /// own answer waits behind them, and that is not part of `total_us`.
    pub unsent_bytes: u64,
}

/// Where the time of a slow command went, microseconds. Together they are all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowParts {
    /// It waited for a buffer: others had them all.
    pub buffer_us: u64,
    /// It waited for its data from the host.
    pub network_us: u64,
    /// It waited for its function's share of the drive, for a lock on its blocks, or for its turn.
    pub queue_us: u64,
    /// The device had it.
    pub device_us: u64,
}

impl SlowParts {
    /// The parts with their names.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 4] {
        let Self { buffer_us, network_us, queue_us, device_us } = *self;
        [("buffer", buffer_us), ("network", network_us), ("queue", queue_us), ("device", device_us)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_commands_keep_their_json_keys() {
        let parts = SlowParts { buffer_us: 1, network_us: 2, queue_us: 3, device_us: 150_000 };
        let command = SlowCommand {
            id: 7,
            time_unix_ms: 1_795_000_000_000,
            host_nqn: "nqn.2014-08.org.example:host".into(),
            subsystem_nqn: "nqn.2014-08.org.example:d3:vf2".into(),
            object: "d3/vf2".into(),
            port: "fabric0".into(),
            queue: 1,
            nsid: 4,
            opcode: 2,
            command: "read".into(),
            lba: Some(2048),
            bytes: 4096,
            status: "Success".into(),
            total_us: 150_006,
            parts,
            unsent_bytes: 0,
        };
        let commands = vec![command];
        let slow = SlowCommands { slow_schema: SLOW_SCHEMA, threshold_us: Some(100_000), total: 9, commands };
        let json = serde_json::to_string_pretty(&slow).unwrap();
        insta::assert_snapshot!("slow", json);
        assert_eq!(serde_json::from_str::<SlowCommands>(&json).unwrap(), slow);
    }
}
