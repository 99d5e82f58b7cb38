//! The end that measures.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use ebof_region::Buffer;
use ebof_verbs::{Attributes, ConnectOptions, Connecting, Handshake, HeldMemory, Network, Remote, WorkCompletion};
use hdrhistogram::Histogram;

use super::end::{PairEnd, SILENCE_MAX, nap, patient};
use super::wire::{CheckAnswer, Hello};
use super::{ANSWERS, BYTES_MAX, DEPTH_MAX, Error, Latencies, MEMORY_MAX, Measured, Operation, Refusal, WINDOW};

/// Outstanding RDMA READs that are asked for: what adapters usually have.
const READS: u8 = 16;

/// What is measured, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Bytes of a message or transfer for bandwidth, 1 to [`BYTES_MAX`].
    pub bytes: u32,
    /// Bytes of a message or transfer for latency, 1 to [`BYTES_MAX`].
    pub latency_bytes: u32,
    /// How many are under way at once, 1 to [`DEPTH_MAX`]; fewer if the device has fewer.
    pub depth: u32,
    /// How many there are.
    pub count: u64,
    /// How long one figure may take: what is done by then counts.
    pub time_max: Duration,
}

impl Default for Plan {
    /// As perftest: 1000 messages of 64 KiB for bandwidth, 128 at once, and of 2 bytes for latency.
    fn default() -> Self {
        Self { bytes: 64 << 10, latency_bytes: 2, depth: 128, count: 1000, time_max: Duration::from_secs(10) }
    }
}

/// Measures the way to a server.
#[derive(Debug)]
pub struct Client {
    network: Network,
    server: SocketAddr,
    from: Option<IpAddr>,
    plan: Plan,
}

impl Client {
    /// Measures by `plan`, whose values are brought within their limits, to the server at `server`,
    /// from the address `from` if that matters.
    #[must_use]
    pub fn new(network: &Network, server: SocketAddr, from: Option<IpAddr>, plan: Plan) -> Self {
        let plan = Plan {
            bytes: plan.bytes.clamp(1, BYTES_MAX),
            latency_bytes: plan.latency_bytes.clamp(1, BYTES_MAX),
            depth: plan.depth.clamp(1, DEPTH_MAX),
            count: plan.count.max(1),
            ..plan
        };
        Self { network: network.clone(), server, from, plan }
    }

    /// Measures one operation.
    ///
    /// # Errors
    /// No connection, or it was lost.
    pub fn measure(&self, operation: Operation) -> Result<Measured, Error> {
        let Plan { bytes, latency_bytes, .. } = self.plan;
        let depth = self.plan.depth.min(MEMORY_MAX / bytes / WINDOW).max(1);
        let (depth, count, time) = self.connect(operation, false, bytes, depth)?.bandwidth(&self.plan)?;
        let latency = self.connect(operation, true, latency_bytes, 1)?.latency(&self.plan)?;
        Ok(Measured { operation, bytes, depth, count, time, latency_bytes, latency })
    }

    fn connect(&self, operation: Operation, is_latency: bool, bytes: u32, depth: u32) -> Result<Measurement, Error> {
        let mut connecting = self.network.connect(self.server, self.from, &ConnectOptions::default())?;
        resolve(&mut connecting)?;
        let device = connecting.device().ok_or(Error::NoAnswer)?;
        let depth = depth.min(device.queue_entries / 2).max(1);
        let initiator_depth = device.initiator_depth.min(READS);
        let is_send = operation == Operation::Send;
        let attributes = Attributes {
            receives: if is_send { ANSWERS } else { 1 },
            receive_bytes: if is_latency && is_send { bytes } else { 1 },
            sends: if is_send { depth } else { 1 },
            send_bytes: if is_send { bytes } else { 1 },
            operations: if is_send { 0 } else { depth },
            ..Attributes::default()
        };
        let mut pair = connecting.open(&attributes)?;
        let held =
            if is_send { None } else { Some(pair.hold(Buffer::zeroed(bytes as usize)).map_err(|(_, error)| error)?) };
        let private_data = Hello { operation, is_latency, bytes, depth }.encode();
        pair.connect(&Handshake { private_data: &private_data, initiator_depth, ..patient() }).map_err(|error| {
            match error {
                ebof_verbs::Error::Refused(_) => Error::Rejected(Refusal::NobodyListens),
                error => error.into(),
            }
        })?;
        let mut end = PairEnd::new(pair, operation);
        let answer = CheckAnswer::decode(&end.established()?).ok_or(Error::Protocol("its answer"))?;
        let remote = Remote { address: answer.address, key: answer.key };
        Ok(Measurement { end, operation, bytes, depth, held, remote })
    }
}

/// Waits until address and route are known.
fn resolve(connecting: &mut Connecting) -> Result<(), Error> {
    let deadline = Instant::now() + SILENCE_MAX;
    while !connecting.poll()? {
        if Instant::now() > deadline {
            return Err(Error::NoAnswer);
        }
        nap(connecting.descriptor());
    }
    Ok(())
}

/// A connection over which something is measured.
struct Measurement {
    end: PairEnd,
    operation: Operation,
    bytes: u32,
    depth: u32,
    /// The memory of RDMA READs and WRITEs; all use the same.
    held: Option<HeldMemory>,
    remote: Remote,
}

impl Measurement {
    /// Keeps as many under way as there may be. Returns the depth, how many are over, and how long
    /// that took.
    fn bandwidth(mut self, plan: &Plan) -> Result<(u32, u64, Duration), Error> {
        let depth = u64::from(self.depth);
        let (mut posted, mut done, mut received) = (0, 0, 0);
        let begun = Instant::now();
        loop {
            // One at least, however little time there is.
            let is_over = posted == plan.count || (posted > 0 && begun.elapsed() > plan.time_max);
            let window =
                received + if self.operation == Operation::Send { depth * u64::from(WINDOW) } else { u64::MAX };
            while !is_over && posted < plan.count.min(window) && posted - done < depth && self.post() {
                posted += 1;
            }
            if is_over && posted == done {
                break;
            }
            self.end.pair.flush()?;
            let mut completion = Some(self.end.next()?);
            while let Some(one) = completion {
                done += u64::from(is_end(&one));
                if let WorkCompletion::Received { slot, .. } = one {
                    received += depth;
                    self.end.pair.post_receive(slot);
                }
                completion = self.end.take()?;
            }
        }
        Ok((self.depth, done, begun.elapsed()))
    }

    /// One at a time.
    fn latency(mut self, plan: &Plan) -> Result<Latencies, Error> {
        let longest = u64::try_from(SILENCE_MAX.as_nanos()).unwrap_or(u64::MAX);
        let mut histogram = Histogram::<u64>::new_with_bounds(1, longest, 3).expect("1 ns to 30 s with three digits");
        let begun = Instant::now();
        while histogram.len() < plan.count && (histogram.is_empty() || begun.elapsed() <= plan.time_max) {
            let posted = Instant::now();
            assert!(self.post(), "nothing is under way, so there is room for one");
            self.end.pair.flush()?;
            let is_send = self.operation == Operation::Send;
            let (mut is_over, mut is_sent) = (false, !is_send);
            while !is_over || !is_sent {
                match self.end.next()? {
                    WorkCompletion::Received { slot, .. } => {
                        self.end.pair.post_receive(slot);
                        is_over = true;
                    }
                    WorkCompletion::Sent { .. } => is_sent = true,
                    WorkCompletion::Done { .. } => is_over = true,
                    WorkCompletion::Failed { .. } => {}
                }
            }
            let time = posted.elapsed() / if is_send { 2 } else { 1 };
            histogram.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        }
        let at = |quantile| Duration::from_nanos(histogram.value_at_quantile(quantile));
        Ok(Latencies {
            count: histogram.len(),
            min: Duration::from_nanos(histogram.min()),
            median: at(0.5),
            p99: at(0.99),
            max: Duration::from_nanos(histogram.max()),
        })
    }

    /// Posts one; `false` if there is no room.
    fn post(&mut self) -> bool {
        let pair = &mut self.end.pair;
        match (self.operation, self.held) {
            _ if pair.room() == 0 => return false,
            (Operation::Send, _) => {
                let Some(slot) = pair.take_send_slot() else { return false };
                pair.post_send(slot, self.bytes, None);
            }
            (Operation::Read, Some(held)) => pair.post_read(held, 0, self.bytes, self.remote, 0),
            (Operation::Write, Some(held)) => pair.post_write(held, 0, self.bytes, self.remote, Some(0)),
            (Operation::Read | Operation::Write, None) => return false,
        }
        true
    }
}

/// Whether a message or transfer is over.
fn is_end(completion: &WorkCompletion) -> bool {
    matches!(completion, WorkCompletion::Sent { .. } | WorkCompletion::Done { .. })
}
