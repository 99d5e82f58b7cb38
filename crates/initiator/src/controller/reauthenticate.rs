//! Authentication again, on the Admin Queue of a controller that is live: its I/O goes on.

use ebof_authentication::host::Proof;
use ebof_authentication::message::SecureChannel;
use ebof_authentication::{Group, Hash};
use ebof_nvme::Sqe;

use super::Controller;
use crate::command::data::Data;
use crate::connect::authenticate::{self, Authenticating};
use crate::connect::establish::success;
use crate::error::Error;
use crate::error::connect_error::{ConnectError, ConnectErrorKind as Kind, Step};

/// What host and controller agreed on when they authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reauthenticated {
    /// The hash.
    pub hash: Hash,
    /// The group of the Diffie-Hellman exchange.
    pub group: Group,
    /// Whether the controller has proven itself, too.
    pub is_mutual: bool,
    /// Whether the key for TLS was replaced.
    pub has_replaced_psk: bool,
}

/// A live Admin Queue. Its other commands go on between the messages.
struct Live<'c>(&'c Controller);

impl Live<'_> {
    async fn run(&self, sqe: Sqe, data: Data, name: &'static str) -> Result<Data, Kind> {
        let shared = &self.0.0.shared;
        let done = self.0.admin_with(&shared.waiter, sqe, data, None).await;
        let (cqe, data) = done.map_err(|error| match error {
            Error::Timeout { .. } => Kind::TimedOut { after_ms: self.0.options().admin_timeout_ms.into() },
            _ => Kind::Closed { errno: None },
        })?;
        success(&cqe, name)?;
        Ok(data)
    }
}

impl Authenticating for Live<'_> {
    async fn send(&mut self, message: &[u8]) -> Result<(), Kind> {
        let data = Data::FromHost(message.to_vec());
        self.run(authenticate::send(message), data, "Authentication Send").await.map(|_| ())
    }

    async fn receive(&mut self) -> Result<Vec<u8>, Kind> {
        let (sqe, answer) = authenticate::receive();
        match self.run(sqe, Data::ToHost(answer), "Authentication Receive").await? {
            Data::ToHost(answer) => Ok(answer),
            Data::None | Data::FromHost(_) => Ok(Vec::new()),
        }
    }
}

/// Authenticates again. With secure channel concatenation, the key for TLS is replaced: queues that
/// are connected from now on use the new one.
pub(super) fn reauthenticate(controller: &Controller) -> Result<Reauthenticated, ConnectError> {
    let shared = &controller.0.shared;
    let options = controller.options();
    let mut tried = options.tried(0);
    tried.step = Step::Authenticate;
    let info = shared.info();
    let secure_channel = if info.psk.get().is_some() { SecureChannel::Replace } else { SecureChannel::None };
    let mut queue = Live(controller);
    let sequence = async { Ok(authenticate::authenticate(options, secure_channel, &mut queue).await) };
    let stepped = |_| Err(Kind::Unsupported { what: "a stepped controller cannot wait for its answers" });
    let proof = shared.run(sequence).unwrap_or_else(stepped);
    let proof = proof.map_err(|kind| ConnectError::new(kind, tried.clone()))?;
    if options.dhchap_ctrl_key.is_some() && !proof.is_mutual {
        return Err(ConnectError::new(Kind::NotProven, tried));
    }
    let has_replaced_psk = secure_channel == SecureChannel::Replace;
    if has_replaced_psk {
        let psk = authenticate::generated(options, &proof).map_err(|kind| ConnectError::new(kind, tried))?;
        info.psk.replace(psk);
    }
    let Proof { hash, group, is_mutual, .. } = proof;
    Ok(Reauthenticated { hash, group, is_mutual, has_replaced_psk })
}
