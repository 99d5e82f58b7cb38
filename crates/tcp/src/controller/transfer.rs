//! The commands that await data by R2T: transfer tags, and what H2CData PDUs must match.
//!
//! A transfer is asked for in pieces ("windows") of equal size, in order. As hosts answer R2Ts in
//! order, one offset says everything about a transfer's state, and its transfer tags follow from
//! its place and the window's number. The table is made once per queue: nothing is allocated per
//! command.

use alloc::vec::Vec;

use ebof_nvme::Cid;

use crate::pdu::{H2cData, Layout, PduType, R2t};
use crate::receive::Violation;

/// All transfers of a connection.
#[derive(Debug)]
pub(super) struct Transfers {
    slots: Vec<Transfer>,
    /// Head of the list of free places, through [`Transfer::next_free`].
    free: u16,
    active: usize,
    /// Transfer tags hold the place in the low bits and a running number above.
    slot_bits: u32,
    /// The place that was last in use, where the next question about a CID is most likely answered.
    hint: u16,
    /// The place whose data are arriving right now: it cannot be given away.
    receiving: Option<u16>,
}

#[derive(Clone, Copy, Debug)]
struct Transfer {
    state: State,
    cid: Cid,
    next_free: u16,
    /// Running number of the transfer's first window; is incremented when the slot is used again,
    /// so that a late PDU's tag does not match.
    first_tag: u16,
    /// Bytes of the whole transfer; shortened to what was asked for when no more is wanted.
    length: u32,
    /// Bytes per R2T.
    window: u32,
    /// R2Ts that may be outstanding.
    outstanding_max: u32,
    /// End of what R2Ts asked for.
    requested: u32,
    /// End of what arrived.
    received: u32,
    digest_ok: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Active,
    /// Data that still arrive are dropped.
    Abandoned,
}

/// What to do with the data of an H2CData PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataUse {
    Wanted,
    Drop,
}

/// A transfer after one more PDU.
#[derive(Clone, Copy, Debug)]
pub(super) struct TransferProgress {
    pub(super) digest_ok: bool,
    pub(super) complete: bool,
}

/// End of the free list.
const NONE: u16 = u16::MAX;

/// The most places a connection has: queues have at most 65536 entries, and one number is [`NONE`].
const ENTRIES_MAX: usize = NONE as usize;

/// The most R2Ts that are outstanding for one command, whatever a host offers.
const OUTSTANDING_MAX: u32 = 16;

impl Transfers {
    pub(super) fn new(entries: usize) -> Self {
        let mut transfers = Self { slots: Vec::new(), free: NONE, active: 0, slot_bits: 0, hint: 0, receiving: None };
        transfers.resize(entries);
        transfers
    }

    /// Makes room for `entries` transfers. Without effect while some are under way: their tags
    /// would change; only a host that sends commands before its Connect completed gets there.
    pub(super) fn resize(&mut self, entries: usize) {
        if self.active > 0 {
            return;
        }
        let entries = entries.clamp(1, ENTRIES_MAX);
        self.slots = (1..=entries).map(|next| Transfer::free(next, entries)).collect();
        self.free = 0;
        self.hint = 0;
        self.slot_bits = usize::BITS - (entries - 1).leading_zeros();
    }

    /// Begins a transfer; `None` when every place is taken.
    pub(super) fn start(&mut self, cid: Cid, length: u32, r2t_max: u32, r2t_bytes: u32) -> Option<u16> {
        let slot = self.take_place()?;
        let tags = 1_u32 << (u16::BITS - self.slot_bits);
        let outstanding_max = r2t_max.clamp(1, OUTSTANDING_MAX).min(tags);
        // A host that takes one R2T at a time is asked once: splitting would only add a round trip
        // per piece.
        let window = if outstanding_max == 1 { length } else { r2t_bytes.clamp(4, 1 << 30).next_multiple_of(4) };
        let transfer = &mut self.slots[usize::from(slot)];
        *transfer = Transfer {
            state: State::Active,
            cid,
            length,
            window: window.max(1),
            outstanding_max,
            requested: 0,
            received: 0,
            digest_ok: true,
            ..*transfer
        };
        self.active += 1;
        self.hint = slot;
        Some(slot)
    }

    /// The place of the transfer of `cid` that is not abandoned.
    pub(super) fn find(&self, cid: Cid) -> Option<u16> {
        let is_it = |slot: &Transfer| slot.state == State::Active && slot.cid == cid;
        if self.slots.get(usize::from(self.hint)).is_some_and(is_it) {
            return Some(self.hint);
        }
        self.slots.iter().position(is_it).and_then(|at| u16::try_from(at).ok())
    }

    /// Appends the R2Ts that may be sent now.
    pub(super) fn pump(&mut self, slot: u16, layout: Layout, out: &mut Vec<u8>) {
        let transfer = &mut self.slots[usize::from(slot)];
        while transfer.requested < transfer.length && transfer.outstanding() < transfer.outstanding_max {
            let length = transfer.window.min(transfer.length - transfer.requested);
            let pdu = R2t {
                common: layout.common(PduType::R2t, 0, 0),
                cccid: transfer.cid.0.into(),
                ttag: transfer.tag(transfer.requested, slot, self.slot_bits).into(),
                r2to: transfer.requested.into(),
                r2tl: length.into(),
                reserved: [0; 4],
            };
            layout.append(&pdu, 0, out);
            transfer.requested += length;
        }
    }

    /// Asks for no more; whether data are still to come. Otherwise the place is free.
    pub(super) fn stop(&mut self, slot: u16) -> bool {
        let transfer = &mut self.slots[usize::from(slot)];
        transfer.length = transfer.requested;
        let outstanding = transfer.received < transfer.requested;
        if !outstanding {
            self.release(slot);
        }
        outstanding
    }

    /// Asks for no more, and what still comes is dropped.
    pub(super) fn abandon(&mut self, slot: u16) {
        if self.stop(slot) {
            self.slots[usize::from(slot)].state = State::Abandoned;
        }
    }

    /// Whether an H2CData PDU with `data` bytes of data may come now, checked lowest field first.
    #[inline]
    pub(super) fn accept(
        &mut self,
        pdu: &H2cData,
        data: u32,
        last: bool,
        data_max: u32,
    ) -> Result<(u16, DataUse), Violation> {
        let ttag = pdu.ttag.get();
        let slot = ttag & low_bits(self.slot_bits);
        let Some(transfer) = self.slots.get(usize::from(slot)).filter(|transfer| transfer.awaits_data()) else {
            return Err(Violation::field(H2cData::TTAG, "no R2T with this transfer tag is outstanding"));
        };
        if pdu.cccid.get() != transfer.cid.0 {
            return Err(Violation::field(H2cData::CCCID, "the transfer tag belongs to another command"));
        }
        let (start, end) = transfer.current_window();
        if ttag != transfer.tag(start, slot, self.slot_bits) {
            return Err(match transfer.outstanding_tags(slot, self.slot_bits).any(|tag| tag == ttag) {
                true => Violation::sequence("R2Ts are not answered in their order"),
                false => Violation::field(H2cData::TTAG, "no R2T with this transfer tag is outstanding"),
            });
        }
        let offset = pdu.datao.get();
        let length = pdu.datal.get();
        if length != data || length == 0 {
            return Err(Violation::field(H2cData::DATAL, "DATAL is not the length of the PDU's data"));
        }
        if length > data_max {
            return Err(Violation::limit("more data in an H2CData PDU than MAXH2CDATA"));
        }
        let Some(data_end) = offset.checked_add(length).filter(|&data_end| offset >= start && data_end <= end) else {
            return Err(Violation::range("the data are outside of what the R2T asked for"));
        };
        if offset != transfer.received {
            return Err(Violation::sequence("the data do not begin where the previous PDU's ended"));
        }
        if last != (data_end == end) {
            return Err(Violation::sequence("LAST is not on the last PDU of its R2T, or on an earlier one"));
        }
        let verdict = if transfer.state == State::Active { DataUse::Wanted } else { DataUse::Drop };
        self.receiving = Some(slot);
        Ok((slot, verdict))
    }

    /// `length` more bytes have arrived.
    pub(super) fn add_received(&mut self, slot: u16, length: u32, digest_ok: bool) -> TransferProgress {
        self.receiving = None;
        let transfer = &mut self.slots[usize::from(slot)];
        // `accept` has looked at it; and meanwhile the place stays, and nothing less is asked for.
        debug_assert!(length <= transfer.requested - transfer.received, "more data than an R2T asked for");
        transfer.received += length;
        if !digest_ok {
            transfer.digest_ok = false;
            transfer.length = transfer.requested;
        }
        let settled =
            TransferProgress { digest_ok: transfer.digest_ok, complete: transfer.received >= transfer.length };
        if settled.complete {
            self.release(slot);
        } else {
            self.hint = slot;
        }
        settled
    }

    /// Takes a free place, or the one of an abandoned transfer: its late data, should they come, no
    /// longer match.
    fn take_place(&mut self) -> Option<u16> {
        if self.free == NONE {
            let is_idle = |slot: &u16| Some(*slot) != self.receiving;
            let mut abandoned = (0_u16..).zip(&self.slots).filter(|(_, transfer)| transfer.state == State::Abandoned);
            let (slot, _) = abandoned.find(|(slot, _)| is_idle(slot))?;
            self.release(slot);
        }
        let slot = self.free;
        let transfer = &self.slots[usize::from(slot)];
        assert!(transfer.state == State::Free, "the data of two commands would have one place");
        self.free = transfer.next_free;
        Some(slot)
    }

    fn release(&mut self, slot: u16) {
        let transfer = &mut self.slots[usize::from(slot)];
        assert!(transfer.state != State::Free, "a place that is taken becomes free, once");
        transfer.first_tag = transfer.tag_number(transfer.requested.div_ceil(transfer.window));
        transfer.state = State::Free;
        transfer.next_free = self.free;
        self.free = slot;
        self.active -= 1;
    }
}

impl Transfer {
    /// A free place before place `next` of `entries`.
    fn free(next: usize, entries: usize) -> Self {
        let next_free = if next < entries { u16::try_from(next).expect("below ENTRIES_MAX") } else { NONE };
        Self {
            state: State::Free,
            cid: Cid(0),
            next_free,
            first_tag: 0,
            length: 0,
            window: 1,
            outstanding_max: 1,
            requested: 0,
            received: 0,
            digest_ok: true,
        }
    }

    fn awaits_data(&self) -> bool {
        self.state != State::Free && self.received < self.requested
    }

    /// R2Ts not yet answered in full.
    fn outstanding(&self) -> u32 {
        (self.requested.div_ceil(self.window)) - self.received / self.window
    }

    /// Start and end of the oldest outstanding R2T.
    fn current_window(&self) -> (u32, u32) {
        let start = self.received - self.received % self.window;
        (start, start.saturating_add(self.window).min(self.requested))
    }

    /// The running number of window `index`.
    #[expect(clippy::cast_possible_truncation, reason = "a running number that wraps")]
    fn tag_number(&self, index: u32) -> u16 {
        self.first_tag.wrapping_add(index as u16)
    }

    /// The transfer tag of the window that begins at `offset`.
    fn tag(&self, offset: u32, slot: u16, slot_bits: u32) -> u16 {
        // With more than half of all tags as places, none is left for a number.
        slot | self.tag_number(offset / self.window).checked_shl(slot_bits).unwrap_or(0)
    }

    fn outstanding_tags(&self, slot: u16, slot_bits: u32) -> impl Iterator<Item = u16> + '_ {
        let first = self.received / self.window;
        (first..first + self.outstanding()).map(move |number| self.tag(number * self.window, slot, slot_bits))
    }
}

/// A mask of the low `bits` bits.
fn low_bits(bits: u32) -> u16 {
    u16::MAX.checked_shr(u16::BITS - bits.min(u16::BITS)).unwrap_or(0)
}
