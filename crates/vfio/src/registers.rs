//! The registers in BAR0 (NVMe over PCIe Transport, Properties, and Base, Controller Properties):
//! what a write means, as an [`Effect`].
//!
//! Registers keep what the host wrote. Whether a configuration is legal and when the controller is
//! ready is for those who know the controller: they put CSTS back with
//! [`set_status`](Registers::set_status).

use alloc::vec;
use alloc::vec::Vec;

use ebof_nvme::QueueId;
use ebof_nvme::property::{Cap, Cc, Csts, Version, offset};

/// Where the doorbells begin (stride 0: 4 bytes each).
pub const DOORBELLS: u64 = 0x1000;
/// Bytes of the doorbells' page.
pub const DOORBELL_BYTES: u64 = 0x1000;
/// Queues at most, the Admin Queue among them: so many doorbells fit.
pub const QUEUES_MAX: u16 = 512;
const _: () = assert!(QUEUES_MAX as u64 * 8 == DOORBELL_BYTES);

const INTMS: u64 = 0x0c;
const INTMC: u64 = 0x10;
const AQA: u64 = 0x24;
const ASQ: u64 = 0x28;
const ACQ: u64 = 0x30;
const CAP: u64 = offset::CAP as u64;
const VS: u64 = offset::VS as u64;
const CC: u64 = offset::CC as u64;
const CSTS: u64 = offset::CSTS as u64;
const CRTO: u64 = offset::CRTO as u64;

/// Where the doorbell of a queue is in BAR0.
#[must_use]
pub const fn doorbell_offset(queue: QueueId, is_completion: bool) -> u64 {
    DOORBELLS + queue.0 as u64 * 8 + if is_completion { 4 } else { 0 }
}

/// The Admin Queues, as the host has set them up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminQueues {
    /// Address of the Submission Queue.
    pub submission: u64,
    /// Its entries.
    pub submission_entries: u32,
    /// Address of the Completion Queue.
    pub completion: u64,
    /// Its entries.
    pub completion_entries: u32,
}

/// What follows from a write to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// CC.EN was set.
    Enable {
        /// The whole register.
        cc: Cc,
        /// The Admin Queues; `None` if AQA has one that is too small, which is fatal (CSTS.CFS).
        admin: Option<AdminQueues>,
    },
    /// CC.EN was cleared: a controller reset.
    Disable {
        /// The whole register.
        cc: Cc,
    },
    /// CC was changed otherwise: a shutdown, for instance.
    Configure {
        /// The whole register.
        cc: Cc,
    },
    /// A Submission Queue that is there has a new tail, which is within it.
    SubmissionTail {
        /// The queue.
        queue: QueueId,
        /// The tail.
        tail: u16,
    },
    /// A Completion Queue that is there has a new head, which is within it.
    CompletionHead {
        /// The queue.
        queue: QueueId,
        /// The head.
        head: u16,
    },
    /// A doorbell that is not there, or of a queue that is not there: an Asynchronous Event
    /// (Error status, Write to Invalid Doorbell Register).
    InvalidDoorbell,
    /// A value outside the queue: an Asynchronous Event (Error status, Invalid Doorbell Write
    /// Value).
    InvalidDoorbellValue,
}

/// The registers.
#[derive(Debug)]
pub struct Registers {
    cap: Cap,
    version: Version,
    interrupt_mask: u32,
    cc: Cc,
    csts: Csts,
    aqa: u32,
    asq: u64,
    acq: u64,
    /// Entries of each queue by number; 0: it is not there.
    submission: Vec<u32>,
    completion: Vec<u32>,
}

impl Registers {
    /// After power-on. `queues` is the number of queue pairs that may be created, the Admin Queue
    /// among them; at most [`QUEUES_MAX`].
    #[must_use]
    pub fn new(cap: Cap, version: Version, queues: u16) -> Self {
        let queues = usize::from(queues.clamp(1, QUEUES_MAX));
        Self {
            cap,
            version,
            interrupt_mask: 0,
            cc: Cc::default(),
            csts: Csts::default(),
            aqa: 0,
            asq: 0,
            acq: 0,
            submission: vec![0; queues],
            completion: vec![0; queues],
        }
    }

    /// As after a function-level reset.
    pub fn reset(&mut self) {
        let queues = u16::try_from(self.submission.len()).expect("at most QUEUES_MAX, see `new`");
        *self = Self::new(self.cap, self.version, queues);
    }

    /// As after a controller reset (CC.EN cleared): the Admin Queues' registers stay as they are.
    /// So does CC: the host may have enabled the controller again before its reset was through.
    pub fn reset_controller(&mut self) {
        self.submission.fill(0);
        self.completion.fill(0);
        self.csts = Csts::default();
        self.interrupt_mask = 0;
    }

    /// The configuration that the host has written.
    #[must_use]
    pub const fn configuration(&self) -> Cc {
        self.cc
    }

    /// The status that the host reads.
    #[must_use]
    pub const fn status(&self) -> Csts {
        self.csts
    }

    /// Changes the status.
    pub fn set_status(&mut self, csts: Csts) {
        self.csts = csts;
    }

    /// Changes what the controller can do: the next one is another's.
    pub fn set_capabilities(&mut self, cap: Cap) {
        self.cap = cap;
    }

    /// A Submission Queue is there from now on. `false`: there is no such doorbell.
    pub fn open_submission(&mut self, queue: QueueId, entries: u32) -> bool {
        put(&mut self.submission, queue, entries)
    }

    /// A Completion Queue is there from now on. `false`: there is no such doorbell.
    pub fn open_completion(&mut self, queue: QueueId, entries: u32) -> bool {
        put(&mut self.completion, queue, entries)
    }

    /// A Submission Queue is not there any more.
    pub fn close_submission(&mut self, queue: QueueId) {
        put(&mut self.submission, queue, 0);
    }

    /// A Completion Queue is not there any more.
    pub fn close_completion(&mut self, queue: QueueId) {
        put(&mut self.completion, queue, 0);
    }

    /// Reads a register, or a half of one of 8 bytes: 4 or 8 bytes at a multiple of that. Anything
    /// else reads as ones, and what is no register as zeros.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        match into.len() {
            4 | 8 if offset.is_multiple_of(into.len() as u64) => {
                for (half, at) in into.chunks_exact_mut(4).zip([offset, offset.wrapping_add(4)]) {
                    half.copy_from_slice(&self.word(at).to_le_bytes());
                }
            }
            _ => into.fill(0xff),
        }
    }

    /// The 4 bytes at an offset.
    fn word(&self, at: u64) -> u32 {
        let half = |value: u64, base: u64| if at == base { low(value) } else { low(value >> 32) };
        match at {
            CAP | 0x04 => half(self.cap.0, CAP),
            VS => self.version.0,
            INTMS | INTMC => self.interrupt_mask,
            CC => self.cc.0,
            CSTS => self.csts.0,
            // CRWMT, in the units of CAP.TO: the controller is ready with its media.
            CRTO => self.cap.timeout_ms() / 500,
            AQA => self.aqa,
            ASQ | 0x2c => half(self.asq, ASQ),
            ACQ | 0x34 => half(self.acq, ACQ),
            _ => 0,
        }
    }

    /// Writes a register: 4 or 8 bytes at a multiple of that; anything else is ignored, as is what
    /// cannot be written.
    #[inline]
    pub fn write(&mut self, offset: u64, from: &[u8]) -> Option<Effect> {
        if let (DOORBELLS.., Some(value)) = (offset, number(from)) {
            return offset.is_multiple_of(4).then(|| self.ring(offset, value));
        }
        match from.len() {
            4 | 8 if offset.is_multiple_of(from.len() as u64) && offset < DOORBELLS => {
                let mut effect = None;
                for (half, at) in from.chunks_exact(4).zip([offset, offset + 4]) {
                    effect = self.put_word(at, number(half).expect("a half has 4 bytes")).or(effect);
                }
                effect
            }
            _ => None,
        }
    }

    fn put_word(&mut self, at: u64, value: u32) -> Option<Effect> {
        let is_enabled = self.cc.enabled();
        match at {
            INTMS => self.interrupt_mask |= value,
            INTMC => self.interrupt_mask &= !value,
            CC => return self.configure(Cc(value & Cc::DEFINED)),
            // Base, AQA, ASQ, ACQ: not to be changed while CC.EN is set.
            AQA if !is_enabled => self.aqa = value & 0x0fff_0fff,
            ASQ if !is_enabled => self.asq = self.asq & !0xffff_ffff | u64::from(value & !0xfff),
            0x2c if !is_enabled => self.asq = self.asq & 0xffff_ffff | u64::from(value) << 32,
            ACQ if !is_enabled => self.acq = self.acq & !0xffff_ffff | u64::from(value & !0xfff),
            0x34 if !is_enabled => self.acq = self.acq & 0xffff_ffff | u64::from(value) << 32,
            _ => {}
        }
        None
    }

    fn configure(&mut self, cc: Cc) -> Option<Effect> {
        let before = core::mem::replace(&mut self.cc, cc);
        match (before.enabled(), cc.enabled()) {
            _ if before == cc => None,
            (false, true) => Some(Effect::Enable { cc, admin: self.admin_queues() }),
            (true, false) => Some(Effect::Disable { cc }),
            _ => Some(Effect::Configure { cc }),
        }
    }

    /// The Admin Queues; `None` if one of them is too small.
    fn admin_queues(&self) -> Option<AdminQueues> {
        let admin = AdminQueues {
            submission: self.asq,
            submission_entries: (self.aqa & 0xfff) + 1,
            completion: self.acq,
            completion_entries: (self.aqa >> 16 & 0xfff) + 1,
        };
        (admin.submission_entries >= 2 && admin.completion_entries >= 2).then_some(admin)
    }

    /// A doorbell, by its offset in BAR0.
    #[inline]
    fn ring(&self, offset: u64, value: u32) -> Effect {
        let number = (offset - DOORBELLS) / 4;
        let is_completion = number % 2 == 1;
        self.doorbell(number / 2, is_completion, value)
    }

    /// What a doorbell's value means: also for a page of doorbells that is polled.
    #[inline]
    #[must_use]
    pub fn doorbell(&self, number: u64, is_completion: bool, value: u32) -> Effect {
        let queues = if is_completion { &self.completion } else { &self.submission };
        let entries = usize::try_from(number).ok().and_then(|number| queues.get(number)).copied().unwrap_or(0);
        let (Ok(number), true) = (u16::try_from(number), entries > 0) else { return Effect::InvalidDoorbell };
        match u16::try_from(value) {
            Ok(value) if u32::from(value) < entries => {
                let queue = QueueId(number);
                if is_completion {
                    Effect::CompletionHead { queue, head: value }
                } else {
                    Effect::SubmissionTail { queue, tail: value }
                }
            }
            _ => Effect::InvalidDoorbellValue,
        }
    }
}

fn put(queues: &mut [u32], queue: QueueId, entries: u32) -> bool {
    match queues.get_mut(usize::from(queue.0)) {
        Some(place) => {
            *place = entries;
            true
        }
        None => false,
    }
}

fn low(value: u64) -> u32 {
    u32::try_from(value & u64::from(u32::MAX)).expect("the others are masked off")
}

#[inline]
fn number(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_le_bytes)
}
