//! What the functions of drives have done and had: for metrics, and for those who show them.

use crate::observe::stats::{Kind, KindTotals};

/// What a function, or the primary controller of a drive with functions, has done and had since
/// the target started.
#[derive(Clone, Debug)]
pub struct FunctionLoad {
    /// NQN of the drive's own subsystem.
    pub drive_nqn: String,
    /// NQN of the subsystem by which hosts reach it.
    pub subsystem_nqn: String,
    /// Its number; 0 is the primary controller.
    pub number: u16,
    /// Its part in relation to other functions.
    pub weight: u16,
    /// I/O commands, in the order of [`Kind::ALL`].
    pub kinds: [KindTotals; 3],
    /// Its part of what all functions of the drive have had, 0 to 1: commands and their pages of
    /// 4 KiB count.
    pub part: f64,
    /// Requests that asked the scheduler before they went to the drive. A function that uses its
    /// drive alone does not ask.
    pub scheduled: u64,
    /// How long those waited together, microseconds.
    pub queued_us: u64,
    /// How long its limits kept it from the drive while it had something to do, microseconds.
    pub throttled_us: u64,
    /// Commands that wait for their turn now.
    pub waiting: u32,
}

impl FunctionLoad {
    /// I/O commands of all kinds.
    #[must_use]
    pub fn all(&self) -> KindTotals {
        let mut all = KindTotals::default();
        self.kinds.iter().for_each(|kind| all.add(kind));
        all
    }

    /// What it has had: one for each command, and one for each 4 KiB.
    pub(crate) fn service(&self) -> u64 {
        let KindTotals { commands, bytes, .. } = self.all();
        commands + bytes / 4096
    }
}

/// Labels of metrics.
impl FunctionLoad {
    /// `vf1`, or `pf` for the primary controller.
    #[must_use]
    pub fn name(&self) -> String {
        if self.number == 0 { "pf".to_owned() } else { format!("vf{}", self.number) }
    }

    /// Counters of one kind.
    #[must_use]
    pub fn kind(&self, kind: Kind) -> &KindTotals {
        &self.kinds[kind as usize]
    }
}
