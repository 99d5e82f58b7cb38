//! Flows, and what they are to get and have had, as their owners see them.

/// A flow, by its number: of a drive the function, 0 for the primary controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow(u16);

impl Flow {
    /// Flows of a scheduler.
    pub const MAX: usize = 129;

    /// The flow of number `number`, less than [`Flow::MAX`].
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        if (number as usize) < Self::MAX { Some(Self(number)) } else { None }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a flow is to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its part, relative to the weights of the others that have something to do; at least 1.
    pub weight: u16,
    /// Requests per second at most.
    pub iops: Option<u64>,
    /// Bytes per second at most.
    pub bytes_per_second: Option<u64>,
    /// Requests per second that come before the others', as far as the device gets them done.
    pub minimum_iops: Option<u64>,
}

impl Default for Share {
    fn default() -> Self {
        Self { weight: 1, iops: None, bytes_per_second: None, minimum_iops: None }
    }
}

/// What a flow has had since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Requests that went to the device.
    pub admitted: u64,
    /// Their cost, in 256ths of a page.
    pub cost: u64,
    /// How long those waited together, microseconds.
    pub waited_us: u64,
    /// How long a limit kept the flow from the device, microseconds.
    pub throttled_us: u64,
    /// Requests that wait now.
    pub waiting: u32,
    /// Requests at the device now.
    pub at_device: u32,
}
