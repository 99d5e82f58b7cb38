//! Queue maps: the class of each I/O queue. Divides the granted queues as the Linux host does;
//! their allocation is in [`crate::shared`].

use std::ops::RangeInclusive;

use ebof_nvme::QueueId;

use crate::options::Options;

/// The class of a queue: which commands it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueClass {
    /// All commands without a class of their own: writes and others, and reads if there are no read
    /// queues.
    Default,
    /// Reads.
    Read,
    /// Commands whose caller polls for the completion (the high-priority I/O of `io_uring`).
    Poll,
}

impl QueueClass {
    /// Its name in the Linux host.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Read => "read",
            Self::Poll => "poll",
        }
    }
}

/// How many I/O queues there are of each class. Their identifiers go up from 1: first the default,
/// then the read, then the poll queues, as in Linux.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueMaps {
    /// Queues for all commands without a class of their own.
    pub default: u16,
    /// Queues for reads only; 0: reads use the default ones.
    pub read: u16,
    /// Queues that are polled; 0: polled commands use the other queues.
    pub poll: u16,
}

impl QueueMaps {
    /// Divides `granted` queues by what `options` ask for.
    ///
    /// With write queues, `nr_io_queues` are for reads and the write queues are the default map, if
    /// more than `nr_io_queues` were granted; if not, all are shared. Poll queues come out of what
    /// is left. (Linux, `nvmf_set_io_queues`. Deviation: Linux asks for no more of each kind than
    /// there are processors; threads of a program are not bound to their number.)
    #[must_use]
    pub fn assign(options: &Options, granted: u16) -> Self {
        let mut left = granted;
        let mut take = |wanted: u16| {
            let taken = wanted.min(left);
            left -= taken;
            taken
        };
        let split = options.nr_write_queues > 0 && options.nr_io_queues < granted;
        let first = take(options.nr_io_queues);
        let (default, read) = if split && first > 0 { (take(options.nr_write_queues), first) } else { (first, 0) };
        let (default, poll) = if default + read > 0 {
            (default, take(options.nr_poll_queues))
        } else {
            // Only write or poll queues were requested: they serve everything.
            (granted, 0)
        };
        Self { default, read, poll }
    }

    /// All queues.
    #[must_use]
    pub const fn total(self) -> u16 {
        self.default + self.read + self.poll
    }

    /// The class whose queues serve commands of `class`, which is `Default` if it has no queues.
    #[must_use]
    pub const fn serving(self, class: QueueClass) -> QueueClass {
        match class {
            QueueClass::Read if self.read > 0 => QueueClass::Read,
            QueueClass::Poll if self.poll > 0 => QueueClass::Poll,
            _ => QueueClass::Default,
        }
    }

    /// Queues of the class itself.
    #[must_use]
    pub const fn count(self, class: QueueClass) -> u16 {
        match class {
            QueueClass::Default => self.default,
            QueueClass::Read => self.read,
            QueueClass::Poll => self.poll,
        }
    }

    /// The identifiers of the class's own queues; an empty range when it has none.
    #[must_use]
    pub const fn ids(self, class: QueueClass) -> RangeInclusive<u16> {
        let before = match class {
            QueueClass::Default => 0,
            QueueClass::Read => self.default,
            QueueClass::Poll => self.default + self.read,
        };
        before + 1..=before + self.count(class)
    }

    /// The class of a queue; `Default` for one that is not in the maps.
    #[must_use]
    pub fn class(self, id: QueueId) -> QueueClass {
        let classes = [QueueClass::Read, QueueClass::Poll];
        classes.into_iter().find(|&class| self.ids(class).contains(&id.0)).unwrap_or(QueueClass::Default)
    }
}

impl std::fmt::Display for QueueMaps {
    /// As Linux prints it: `2/1/0 default/read/poll queues`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{} default/read/poll queues", self.default, self.read, self.poll)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebof_nvme::Nqn;

    fn maps(io: u16, write: u16, poll: u16, granted: u16) -> (u16, u16, u16) {
        let mut options = Options::new("127.0.0.1", 4420, Nqn::parse("nqn.2014-08.org.example:a").unwrap());
        options.nr_io_queues = io;
        options.nr_write_queues = write;
        options.nr_poll_queues = poll;
        let maps = QueueMaps::assign(&options, granted);
        (maps.default, maps.read, maps.poll)
    }

    #[test]
    fn granted_queues_are_divided_as_on_linux() {
        assert_eq!(maps(4, 0, 0, 4), (4, 0, 0));
        assert_eq!(maps(4, 2, 1, 7), (2, 4, 1));
        // Fewer than asked for: poll queues go first, then write queues, then the split.
        assert_eq!(maps(4, 2, 1, 6), (2, 4, 0));
        assert_eq!(maps(4, 2, 1, 5), (1, 4, 0));
        assert_eq!(maps(4, 2, 1, 4), (4, 0, 0));
        assert_eq!(maps(4, 2, 1, 1), (1, 0, 0));
        assert_eq!(maps(4, 0, 3, 6), (4, 0, 2));
        assert_eq!(maps(0, 2, 1, 3), (3, 0, 0));
        assert_eq!(maps(0, 0, 0, 0), (0, 0, 0));
    }

    #[test]
    fn every_queue_is_in_one_map_and_every_class_is_served() {
        for io in 0..5 {
            for write in 0..5 {
                for poll in 0..5 {
                    for granted in 0..=io + write + poll {
                        let (default, read, polled) = maps(io, write, poll, granted);
                        let maps = QueueMaps { default, read, poll: polled };
                        assert_eq!(maps.total(), granted, "{io} {write} {poll}");
                        let classes = [QueueClass::Default, QueueClass::Read, QueueClass::Poll];
                        for id in 1..=granted {
                            let of: Vec<_> =
                                classes.into_iter().filter(|&class| maps.ids(class).contains(&id)).collect();
                            assert_eq!(of, [maps.class(QueueId(id))]);
                        }
                        assert!(granted == 0 || classes.iter().all(|&class| maps.count(maps.serving(class)) > 0));
                    }
                }
            }
        }
    }

    #[test]
    fn maps_read_as_linux_prints_them() {
        assert_eq!(QueueMaps { default: 2, read: 4, poll: 1 }.to_string(), "2/4/1 default/read/poll queues");
    }
}
