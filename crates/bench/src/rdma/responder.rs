//! The end that answers.

use std::net::SocketAddr;

use ebof_region::Buffer;
use ebof_verbs::{Attributes, Handshake, Listener, ListenerEvent, Network, QueuePair, Request, WorkCompletion};

use super::end::{PairEnd, nap, patient};
use super::wire::{CheckAnswer, Hello};
use super::{ANSWERS, Error, Operation, Refusal, WINDOW};

/// Requests that wait while another one is served.
const BACKLOG: u32 = 8;

/// Answers one client after the other.
#[derive(Debug)]
pub struct Responder {
    network: Network,
    address: SocketAddr,
    listener: Listener,
}

/// A measurement that a client has made.
#[derive(Debug)]
pub struct Served {
    /// The client.
    pub peer: SocketAddr,
    /// What it has measured; `None` if it was refused.
    pub operation: Option<Operation>,
    /// Why it ended early, or was refused.
    pub error: Option<Error>,
}

impl Responder {
    /// Listens at `address`.
    ///
    /// # Errors
    /// No RDMA device has the address, or somebody listens there.
    pub fn listen(network: &Network, address: SocketAddr) -> Result<Self, Error> {
        let listener = network.listen(address, BACKLOG)?;
        Ok(Self { network: network.clone(), address: listener.local_address(), listener })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers the next measurement; `None` if none was asked for within a short time.
    ///
    /// # Errors
    /// It can listen no more.
    pub fn serve(&mut self) -> Result<Option<Served>, Error> {
        match self.listener.poll()? {
            None => {
                nap(self.listener.descriptor());
                Ok(None)
            }
            Some(ListenerEvent::Request(request)) => Ok(Some(answer(request))),
            Some(ListenerEvent::AddressChanged | ListenerEvent::DeviceRemoved) => {
                self.listener = self.network.listen(self.address, BACKLOG)?;
                Ok(None)
            }
        }
    }
}

fn answer(request: Request) -> Served {
    let peer = request.remote();
    let hello = match Hello::decode(request.private_data()) {
        Ok(hello) => hello,
        Err(refusal) => return refuse(request, refusal),
    };
    let is_send = hello.operation == Operation::Send;
    let attributes = Attributes {
        receives: if is_send { hello.depth * WINDOW } else { 1 },
        receive_bytes: if is_send { hello.bytes } else { 1 },
        sends: if is_send { ANSWERS } else { 1 },
        send_bytes: if is_send && hello.is_latency { hello.bytes } else { 1 },
        ..Attributes::default()
    };
    let resources = request.responder_resources();
    let pair = match request.open(&attributes) {
        Ok(pair) => pair,
        Err((request, error)) => {
            let served = refuse(request, Refusal::Resources);
            return Served { error: Some(error.into()), ..served };
        }
    };
    let error = serve(pair, &hello, resources).err().filter(|error| !matches!(error, Error::Closed));
    Served { peer, operation: Some(hello.operation), error }
}

fn refuse(request: Request, refusal: Refusal) -> Served {
    let peer = request.remote();
    // A client that gets no message notices it by its time-out.
    let _ = request.reject(&refusal.encode());
    Served { peer, operation: None, error: Some(Error::Rejected(refusal)) }
}

fn serve(mut pair: QueuePair, hello: &Hello, responder_resources: u8) -> Result<(), Error> {
    let memory = Buffer::zeroed(hello.bytes as usize);
    let answer = match hello.operation {
        Operation::Send => CheckAnswer::default(),
        Operation::Read | Operation::Write => {
            let key = pair.remote_key(memory.region())?;
            CheckAnswer { address: memory.region().address() as u64, key }
        }
    };
    let private_data = answer.encode();
    pair.accept(&Handshake { private_data: &private_data, responder_resources, ..patient() })?;
    let mut end = PairEnd::new(pair, hello.operation);
    end.established()?;
    let served = match hello.operation {
        Operation::Send => receive(&mut end, hello),
        Operation::Read | Operation::Write => end.closed(),
    };
    // The client's keys end with the queue pair, before the memory.
    drop(end);
    drop(memory);
    served
}

/// Receives messages until the client closes. Where latency is measured each is sent back,
/// otherwise the client gets a message for each `depth` of them.
fn receive(end: &mut PairEnd, hello: &Hello) -> Result<(), Error> {
    let (every, answer_bytes) = if hello.is_latency { (1, hello.bytes) } else { (hello.depth, 1) };
    let (mut received, mut owed) = (0, 0);
    let mut completion = Some(end.next()?);
    loop {
        while let Some(one) = completion {
            if let WorkCompletion::Received { slot, .. } = one {
                end.pair.post_receive(slot);
                received += 1;
                if received == every {
                    received = 0;
                    owed += 1;
                }
            }
            completion = end.take()?;
        }
        while owed > 0
            && let Some(slot) = end.pair.take_send_slot()
        {
            end.pair.post_send(slot, answer_bytes, None);
            owed -= 1;
        }
        end.pair.flush()?;
        completion = Some(end.next()?);
    }
}
