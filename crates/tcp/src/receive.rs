//! Cutting the received stream into PDU headers and data, alike for both ends: what a header's
//! common part must hold, header digests, the progress of data and their digest. What the PDUs mean
//! is the business of the two ends.

use zerocopy::FromBytes;

use crate::digest::{Incremental, crc32c};
use crate::error::{FatalError, FatalStatus};
use crate::pdu::{Common, Layout, PduType, TermReq, field};

/// A violation, before the PDU's header is attached to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Violation {
    pub(crate) status: FatalStatus,
    pub(crate) information: u32,
    pub(crate) what: &'static str,
}

impl Violation {
    pub(crate) const fn field(offset: u32, what: &'static str) -> Self {
        Self { status: FatalStatus::InvalidHeaderField, information: offset, what }
    }

    pub(crate) const fn unsupported(offset: u32, what: &'static str) -> Self {
        Self { status: FatalStatus::UnsupportedParameter, information: offset, what }
    }

    pub(crate) const fn sequence(what: &'static str) -> Self {
        Self { status: FatalStatus::PduSequence, information: 0, what }
    }

    pub(crate) const fn range(what: &'static str) -> Self {
        Self { status: FatalStatus::DataOutOfRange, information: 0, what }
    }

    pub(crate) const fn limit(what: &'static str) -> Self {
        Self { status: FatalStatus::LimitExceeded, information: 0, what }
    }

    /// The error about the PDU at the front of `bytes`, with as much of its header as there is.
    #[cold]
    pub(crate) fn at(self, bytes: &[u8]) -> FatalError {
        let Self { status, information, what } = self;
        let known = bytes.first().and_then(|&number| PduType::from_number(number));
        let hlen = known.map_or(Common::SIZE, |kind| usize::from(kind.hlen()));
        FatalError { status, information, what, header: bytes[..bytes.len().min(hlen)].into() }
    }
}

/// A whole PDU header whose common part is right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: PduType,
    pub(crate) flags: u8,
    /// Bytes up to where data begin, or up to the end of a PDU without data: what the header takes
    /// of the stream.
    taken: usize,
    /// Data bytes that follow, without digest.
    pub(crate) data: u32,
}

impl Frame {
    /// The header in the buffer where it was collected.
    pub(crate) fn header<'a>(&self, held: &'a [u8; HELD_MAX]) -> &'a [u8] {
        &held[..self.taken.min(HELD_MAX)]
    }
}

/// Where in the stream the connection is.
#[derive(Debug)]
enum ReceivePhase {
    /// In (or before) a header.
    Header,
    /// In data: this many bytes are to come.
    Data { left: u32, wanted: bool },
    /// In the digest behind data.
    DataDigest { received: [u8; 4], count: u8 },
    /// The connection broke down or was ended: everything is ignored.
    Ended,
}

/// What came next in the stream.
#[derive(Debug)]
pub(crate) enum ReceiveStep {
    /// A header: [`Receiver::held`] has all of it until the next step.
    Header(Frame),
    /// The data of a PDU and their digest have arrived.
    DataEnd { digest_ok: bool },
    /// Data come next that the caller places.
    AwaitData,
    /// More of the stream is needed.
    AwaitMore,
}

/// The receiving half of a connection.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// Whether the controller's end: it receives what hosts send.
    is_controller: bool,
    layout: Layout,
    phase: ReceivePhase,
    digest: Option<Incremental>,
    /// A header that arrived in pieces. PDO is one byte, so no header with padding is longer.
    held: [u8; HELD_MAX],
    held_len: usize,
}

const HELD_MAX: usize = 256;

impl Receiver {
    pub(crate) fn new(is_controller: bool) -> Self {
        Self {
            is_controller,
            layout: Layout::PLAIN,
            phase: ReceivePhase::Header,
            digest: None,
            held: [0; HELD_MAX],
            held_len: 0,
        }
    }

    /// From the next header on, PDUs are laid out like this.
    pub(crate) fn set_layout(&mut self, layout: Layout) {
        self.layout = layout;
    }

    /// Nothing more is accepted.
    pub(crate) fn end(&mut self) {
        self.phase = ReceivePhase::Ended;
    }

    /// Data of the PDU whose header was just given out follow: `length` bytes, not zero. Where not
    /// `wanted` they are dropped in here.
    #[inline]
    pub(crate) fn begin_data(&mut self, length: u32, wanted: bool) {
        self.digest = (self.layout.data_digest && wanted).then(Incremental::new);
        self.phase = ReceivePhase::Data { left: length, wanted };
    }

    /// The data under way are not wanted any more.
    pub(crate) fn drop_data(&mut self) {
        if let ReceivePhase::Data { wanted, .. } = &mut self.phase {
            *wanted = false;
            self.digest = None;
        }
    }

    #[inline]
    pub(crate) fn data_wanted(&self) -> usize {
        match self.phase {
            ReceivePhase::Data { left, wanted: true } => usize::try_from(left).unwrap_or(usize::MAX),
            _ => 0,
        }
    }

    #[inline]
    pub(crate) fn data_received(&mut self, bytes: &[u8]) -> usize {
        let ReceivePhase::Data { left, wanted: true } = &mut self.phase else { return 0 };
        let taken = take_count(*left, bytes.len());
        *left -= taken.1;
        if let Some(digest) = &mut self.digest {
            digest.update(&bytes[..taken.0]);
        }
        taken.0
    }

    /// All data of the PDU whose header was just given out, and whether their digest matched, if
    /// `input` holds them whole. The stream continues behind them.
    #[inline]
    pub(crate) fn take_data<'a>(&mut self, input: &mut &'a [u8]) -> Option<(&'a [u8], bool)> {
        let ReceivePhase::Data { left, wanted: true } = self.phase else { return None };
        let (data, rest) = input.split_at_checked(usize::try_from(left).ok()?)?;
        let (digest_ok, rest) = if self.layout.data_digest {
            let (received, rest) = rest.split_first_chunk::<4>()?;
            (crc32c(data) == *received, rest)
        } else {
            (true, rest)
        };
        *input = rest;
        self.digest = None;
        self.phase = ReceivePhase::Header;
        Some((data, digest_ok))
    }

    /// The bytes that a header arrived in when it came in pieces.
    pub(crate) fn held(&self) -> [u8; HELD_MAX] {
        self.held
    }

    /// The header at the front of `input`, if all of it is there and nothing of it came before:
    /// what is met most. `None`: [`Receiver::step`] has to be called, also for a header in pieces.
    #[inline]
    pub(crate) fn take_header<'a>(&self, input: &mut &'a [u8]) -> Option<(Frame, &'a [u8])> {
        if !matches!(self.phase, ReceivePhase::Header) || self.held_len > 0 {
            return None;
        }
        let Ok(Progress::Ready(frame)) = self.frame(input) else { return None };
        let (header, rest) = input.split_at_checked(frame.taken)?;
        *input = rest;
        Some((frame, header))
    }

    /// Goes on in the stream up to the next thing worth telling.
    #[inline]
    pub(crate) fn step(&mut self, input: &mut &[u8]) -> Result<ReceiveStep, FatalError> {
        loop {
            match &mut self.phase {
                ReceivePhase::Header => return self.step_header(input),
                ReceivePhase::Data { left: 0, .. } if self.layout.data_digest => {
                    self.phase = ReceivePhase::DataDigest { received: [0; 4], count: 0 };
                }
                ReceivePhase::Data { left: 0, .. } => {
                    self.phase = ReceivePhase::Header;
                    return Ok(ReceiveStep::DataEnd { digest_ok: true });
                }
                ReceivePhase::Data { wanted: true, .. } => return Ok(ReceiveStep::AwaitData),
                ReceivePhase::Data { left, wanted: false } => {
                    if input.is_empty() {
                        return Ok(ReceiveStep::AwaitMore);
                    }
                    let (count, short) = take_count(*left, input.len());
                    *left -= short;
                    *input = &input[count..];
                }
                ReceivePhase::DataDigest { received, count } => {
                    while usize::from(*count) < received.len() {
                        let Some((first, rest)) = input.split_first() else { return Ok(ReceiveStep::AwaitMore) };
                        received[usize::from(*count)] = *first;
                        *count += 1;
                        *input = rest;
                    }
                    let received = *received;
                    let digest_ok = self.digest.take().is_none_or(|digest| digest.finish() == received);
                    self.phase = ReceivePhase::Header;
                    return Ok(ReceiveStep::DataEnd { digest_ok });
                }
                ReceivePhase::Ended => {
                    *input = &[];
                    return Ok(ReceiveStep::AwaitMore);
                }
            }
        }
    }

    /// A header that [`Receiver::take_header`] has not found: it comes in pieces, or is wrong.
    #[inline]
    fn step_header(&mut self, input: &mut &[u8]) -> Result<ReceiveStep, FatalError> {
        if self.held_len == 0 {
            if input.is_empty() {
                return Ok(ReceiveStep::AwaitMore);
            }
            // The error has as much of it as has come.
            let _whole_or_not = self.frame(input).map_err(|fault| fault.at(input))?;
        }
        self.collect_header(input)
    }

    #[cold]
    fn collect_header(&mut self, input: &mut &[u8]) -> Result<ReceiveStep, FatalError> {
        loop {
            let held = &self.held[..self.held_len];
            match self.frame(held).map_err(|fault| fault.at(held))? {
                Progress::Ready(frame) => {
                    self.held_len = 0;
                    return Ok(ReceiveStep::Header(frame));
                }
                Progress::Needs(total) => {
                    // What is held was too short for a step of `frame`, and the longest header ends
                    // where its one-byte PDO says.
                    assert!(self.held_len < total && total <= HELD_MAX, "a header has an end, beyond what is held");
                    let count = (total - self.held_len).min(input.len());
                    if count == 0 {
                        return Ok(ReceiveStep::AwaitMore);
                    }
                    let (front, rest) = input.split_at(count);
                    self.held[self.held_len..self.held_len + count].copy_from_slice(front);
                    self.held_len += count;
                    *input = rest;
                }
            }
        }
    }

    /// Judges the header at the front of `bytes`.
    #[inline]
    fn frame(&self, bytes: &[u8]) -> Result<Progress, Violation> {
        let Ok((common, _)) = Common::ref_from_prefix(bytes) else { return Ok(Progress::Needs(Common::SIZE)) };
        let kind = PduType::from_number(common.pdu_type)
            .filter(|kind| kind.is_from_host() == self.is_controller)
            .ok_or(Violation::field(field::TYPE, "this PDU type is not for this end"))?;
        if matches!(kind, PduType::H2cTermReq | PduType::C2hTermReq) {
            return Ok(term_frame(kind, common, bytes.len()));
        }
        let hlen = kind.hlen();
        let digest = self.layout.header_digest && kind.flags() & Common::HDGSTF != 0;
        let whole = usize::from(hlen) + if digest { 4 } else { 0 };
        // A corrupted header is detected by its digest, not by the field that happens to look
        // wrong: look there first wherever the digest can be found.
        if digest && common.flags & Common::HDGSTF != 0 && common.hlen == hlen {
            let Some((header, rest)) = bytes.split_at_checked(usize::from(hlen)) else {
                return Ok(Progress::Needs(whole));
            };
            let Some(received) = rest.first_chunk::<4>() else { return Ok(Progress::Needs(whole)) };
            if crc32c(header) != *received {
                let information = u32::from_le_bytes(*received);
                let what = "the header digest does not match";
                return Err(Violation { status: FatalStatus::HeaderDigest, information, what });
            }
        }
        let frame = self.check_common(kind, common, whole)?;
        Ok(if bytes.len() < frame.taken { Progress::Needs(frame.taken) } else { Progress::Ready(frame) })
    }

    /// Checks the common header's fields, lowest offset first. `whole` is the header's length with
    /// its digest.
    #[inline]
    fn check_common(&self, kind: PduType, common: &Common, whole: usize) -> Result<Frame, Violation> {
        #[expect(clippy::cast_possible_truncation, reason = "at most 128 + 4")]
        let whole32 = whole as u32;
        let plen = common.plen.get();
        let has_data = kind.may_carry_data() && plen != whole32;
        let digests = if self.layout.header_digest { Common::HDGSTF } else { 0 }
            | if self.layout.data_digest && has_data { Common::DDGSTF } else { 0 };
        let known = kind.flags();
        if (common.flags ^ digests) & known & (Common::HDGSTF | Common::DDGSTF) != 0 {
            return Err(Violation::field(field::FLAGS, "the digest flags are not as negotiated"));
        }
        if common.flags & !known != 0 {
            return Err(Violation::field(field::FLAGS, "a flag that this PDU type does not have"));
        }
        if common.flags & (Common::LAST | Common::SUCCESS) == Common::SUCCESS {
            return Err(Violation::field(field::FLAGS, "SUCCESS without LAST"));
        }
        if common.hlen != kind.hlen() {
            return Err(Violation::field(field::HLEN, "the header length is not that of the PDU type"));
        }
        if !has_data {
            // Without data PDO means nothing; Linux sends 0, others the header length.
            if plen != whole32 {
                return Err(Violation::field(field::PLEN, "the PDU length does not fit a PDU without data"));
            }
            return Ok(Frame { kind, flags: common.flags, taken: whole, data: 0 });
        }
        let pdo = u32::from(common.pdo);
        if plen > whole32 && (pdo < whole32 || !pdo.is_multiple_of(self.layout.alignment)) {
            return Err(Violation::field(field::PDO, "the data offset is inside the header or not aligned"));
        }
        let around = pdo + if self.layout.data_digest { 4 } else { 0 };
        if plen <= whole32 || plen <= around {
            return Err(Violation::field(field::PLEN, "the PDU length leaves no room for data"));
        }
        Ok(Frame { kind, flags: common.flags, taken: usize::from(common.pdo), data: plen - around })
    }
}

/// How far a header has come.
enum Progress {
    Ready(Frame),
    /// So many bytes from the PDU's start are needed to go on.
    Needs(usize),
}

/// A TermReq is never answered by a TermReq: one of impossible length is passed on as far as it
/// goes.
fn term_frame(kind: PduType, common: &Common, available: usize) -> Progress {
    let plen = common.plen.get();
    let hlen = usize::from(kind.hlen());
    let frame = |taken| Frame { kind, flags: common.flags, taken, data: 0 };
    if common.hlen != kind.hlen() || plen < u32::from(common.hlen) || plen > TermReq::PLEN_MAX {
        return Progress::Ready(frame(Common::SIZE));
    }
    // The repeated header behind it may have been cut off by a hasty close: it is not waited for.
    if available < hlen { Progress::Needs(hlen) } else { Progress::Ready(frame(hlen)) }
}

/// The smaller of what is left and what there is, in both types.
#[inline]
fn take_count(left: u32, available: usize) -> (usize, u32) {
    match u32::try_from(available) {
        Ok(short) if short < left => (available, short),
        _ => (usize::try_from(left).unwrap_or(available), left),
    }
}
