//! Proving to a controller who this host is, and having it prove itself: DH-HMAC-CHAP on a queue
//! whose Connect asked for it. What the messages mean is in `ebof_authentication`.

use ebof_authentication::host::{Credentials, Next, Offer, Proof};
use ebof_authentication::message::{self, SecureChannel};
use ebof_authentication::response::Names;
use ebof_authentication::{Entropy, HostEnd, SequenceNumbers};
use ebof_nvme::opcode::fabrics;
use ebof_nvme::security::Security;

use super::establish::{Attempt, success};
use crate::command::data::AdminData;
use crate::engine::Engine;
use crate::error::connect_error::{ConnectErrorKind as Kind, Step};

/// What an Authentication Receive has room for, as that of other hosts.
const RECEIVE_BYTES: u32 = 4096;
const _: () = assert!(message::BYTES_MAX <= RECEIVE_BYTES as usize);

impl Attempt<'_> {
    /// Authenticates a queue.
    pub(super) async fn authenticate(&mut self, engine: &mut Engine<Vec<u8>>) -> Result<Proof, Kind> {
        self.tried.step = Step::Authenticate;
        let mut host = HostEnd::new(self.credentials()?, Offer::everything(SecureChannel::None));
        let (t_id, entropy) = self.entropy()?;
        let mut next = host.begin(t_id, entropy);
        loop {
            next = match next {
                Next::Exchange(message) => {
                    self.send(engine, &message).await?;
                    let mut answer = vec![0; RECEIVE_BYTES as usize];
                    let sqe =
                        Security::authentication(RECEIVE_BYTES).encode_authentication(fabrics::AUTHENTICATION_RECEIVE);
                    let cqe = self.run(engine, sqe, &mut AdminData::ToHost(&mut answer)).await?;
                    success(&cqe, "Authentication Receive")?;
                    host.receive(&answer)
                }
                // Nothing else is done by this thread before the queue is there.
                Next::Compute(work) => host.computed(work.run()),
                Next::Over { message, result } => {
                    if let Some(message) = message {
                        let sent = self.send(engine, &message).await;
                        // What the host has found wrong is what counts, not what a controller makes
                        // of being told.
                        if result.is_ok() {
                            sent?;
                        }
                    }
                    return result.map_err(Kind::Authentication);
                }
            };
        }
    }

    async fn send(&mut self, engine: &mut Engine<Vec<u8>>, message: &[u8]) -> Result<(), Kind> {
        let bytes = u32::try_from(message.len()).unwrap_or(u32::MAX);
        let sqe = Security::authentication(bytes).encode_authentication(fabrics::AUTHENTICATION_SEND);
        let cqe = self.run(engine, sqe, &mut AdminData::FromHost(message)).await?;
        success(&cqe, "Authentication Send")
    }

    /// The secrets as they are now: a file may have got another one since the last connect.
    fn credentials(&self) -> Result<Credentials, Kind> {
        let Some(host) = &self.options.dhchap_key else { return Err(Kind::AuthenticationRequired) };
        let load = |key: &crate::options::keys::KeySource| key.load().map_err(Kind::Key);
        let controller = self.options.dhchap_ctrl_key.as_ref().map(load).transpose()?;
        let names = Names { host: self.options.host_nqn.clone(), subsystem: self.options.nqn.clone() };
        Ok(Credentials { names, host: load(host)?, controller })
    }

    fn entropy(&self) -> Result<(u16, Entropy), Kind> {
        let clock = &self.options.clock;
        let mut random = [0; 6];
        let mut result = clock.fill(&mut random);
        let [a, b, c, d, e, f] = random;
        // One number for each queue's only transaction.
        let sequence = SequenceNumbers::beginning_with(u32::from_le_bytes([a, b, c, d])).take();
        let entropy = Entropy::new(sequence, |bytes| result = result.and_then(|()| clock.fill(bytes)));
        result.map_err(|error| Kind::Key(error.to_string()))?;
        Ok((u16::from_le_bytes([e, f]), entropy))
    }
}
