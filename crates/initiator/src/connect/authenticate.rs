//! Proving to a controller who this host is, and having it prove itself: DH-HMAC-CHAP on a queue
//! whose Connect asked for it, or again on a live Admin Queue. What the messages mean is in
//! `ebof_authentication`.

use std::sync::Arc;

use ebof_authentication::host::{Credentials, Next, Offer, Proof};
use ebof_authentication::message::{self, SecureChannel};
use ebof_authentication::psk::IdentityVersion;
use ebof_authentication::response::Names;
use ebof_authentication::{Derivation, Entropy, HostEnd, SequenceNumbers};
use ebof_nvme::Sqe;
use ebof_nvme::opcode::fabrics;
use ebof_nvme::security::Security;
use ebof_tls::TlsPsk;

use super::steps::{Steps, success};
use crate::command::data::AdminData;
use crate::engine::Engine;
use crate::error::connect_error::ConnectErrorKind as Kind;
use crate::options::Options;
use crate::options::keys::KeySource;

/// What an Authentication Receive has room for, as that of other hosts.
const RECEIVE_BYTES: u32 = 4096;
const _: () = assert!(message::BYTES_MAX <= RECEIVE_BYTES as usize);

/// The queue on which a host authenticates.
pub(crate) trait Authenticating {
    /// Authentication Send.
    async fn send(&mut self, message: &[u8]) -> Result<(), Kind>;
    /// Authentication Receive.
    async fn receive(&mut self) -> Result<Vec<u8>, Kind>;
}

/// Authenticates, with the secrets as they are now: a file may have got another one since the last
/// connect. Computes for some milliseconds meanwhile.
pub(crate) async fn authenticate(
    options: &Options,
    secure_channel: SecureChannel,
    queue: &mut impl Authenticating,
) -> Result<Proof, Kind> {
    let mut host = HostEnd::new(credentials(options)?, Offer::everything(secure_channel));
    let (t_id, entropy) = entropy(options)?;
    let mut next = host.begin(t_id, entropy);
    loop {
        next = match next {
            Next::Exchange(message) => {
                queue.send(&message).await?;
                host.receive(&queue.receive().await?)
            }
            Next::Compute(work) => host.computed(work.run()),
            Next::Over { message, result } => {
                if let Some(message) = message {
                    let sent = queue.send(&message).await;
                    // What the host has found wrong is what counts, not what a controller makes of
                    // being told.
                    if result.is_ok() {
                        sent?;
                    }
                }
                return result.map_err(Kind::Authentication);
            }
        };
    }
}

/// Authenticates a queue that is being connected. Nothing else is done by this thread before the
/// queue is there.
pub(super) async fn authenticate_first(
    steps: Steps<'_>,
    engine: &mut Engine<Vec<u8>>,
    secure_channel: SecureChannel,
) -> Result<Proof, Kind> {
    authenticate(steps.options, secure_channel, &mut Connecting { steps, engine }).await
}

/// The key for TLS that a proof has generated (secure channel concatenation).
pub(crate) fn generated(options: &Options, proof: &Proof) -> Result<Arc<TlsPsk>, Kind> {
    let psk = proof.psk.as_ref().expect("what is offered has a hash and a group with which there is one");
    let names = names(options);
    let identity = psk.identity(&names, IdentityVersion::V1).to_string();
    let key = psk.for_tls(&names, IdentityVersion::V1, Derivation::Specification);
    let key = key.expect("the context of version 1 has no names, and is short");
    TlsPsk::new(identity, psk.hash(), key).map(Arc::new).map_err(|error| Kind::Key(error.to_string()))
}

/// Authentication Send of a message.
pub(crate) fn send(message: &[u8]) -> Sqe {
    let bytes = u32::try_from(message.len()).unwrap_or(u32::MAX);
    Security::authentication(bytes).encode_authentication(fabrics::AUTHENTICATION_SEND)
}

/// Authentication Receive, and the room for what it returns.
pub(crate) fn receive() -> (Sqe, Vec<u8>) {
    let sqe = Security::authentication(RECEIVE_BYTES).encode_authentication(fabrics::AUTHENTICATION_RECEIVE);
    (sqe, vec![0; RECEIVE_BYTES as usize])
}

/// A queue that is being connected.
struct Connecting<'q, 'a> {
    steps: Steps<'a>,
    engine: &'q mut Engine<Vec<u8>>,
}

impl Authenticating for Connecting<'_, '_> {
    async fn send(&mut self, message: &[u8]) -> Result<(), Kind> {
        let cqe = self.steps.run(self.engine, send(message), &mut AdminData::FromHost(message)).await?;
        success(&cqe, "Authentication Send")
    }

    async fn receive(&mut self) -> Result<Vec<u8>, Kind> {
        let (sqe, mut answer) = receive();
        let cqe = self.steps.run(self.engine, sqe, &mut AdminData::ToHost(&mut answer)).await?;
        success(&cqe, "Authentication Receive")?;
        Ok(answer)
    }
}

fn names(options: &Options) -> Names {
    Names { host: options.host_nqn.clone(), subsystem: options.nqn.clone() }
}

fn credentials(options: &Options) -> Result<Credentials, Kind> {
    let Some(host) = &options.dhchap_key else { return Err(Kind::AuthenticationRequired) };
    let load = |key: &KeySource| key.load().map_err(Kind::Key);
    let controller = options.dhchap_ctrl_key.as_ref().map(load).transpose()?;
    Ok(Credentials { names: names(options), host: load(host)?, controller })
}

fn entropy(options: &Options) -> Result<(u16, Entropy), Kind> {
    let clock = &options.clock;
    let mut random = [0; 6];
    let mut result = clock.fill(&mut random);
    let [a, b, c, d, e, f] = random;
    // One number for each transaction.
    let sequence = SequenceNumbers::beginning_with(u32::from_le_bytes([a, b, c, d])).take();
    let entropy = Entropy::new(sequence, |bytes| result = result.and_then(|()| clock.fill(bytes)));
    result.map_err(|error| Kind::Key(error.to_string()))?;
    Ok((u16::from_le_bytes([e, f]), entropy))
}
