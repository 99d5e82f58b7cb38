//! Authentication again, on the Admin Queue of a controller that is live: its I/O goes on.

use ebof_authentication::host::Proof;
use ebof_authentication::message::SecureChannel;
use ebof_authentication::{Group, Hash};
use ebof_nvme::Sqe;

use super::Controller;
use crate::command::data::Data;
use crate::connect::authenticate::{self, Authenticating};
use crate::connect::steps::success;
use crate::error::Error;
use crate::error::connect_error::{ConnectError, ConnectErrorKind as Kind, Step, Tried};
use crate::wait::Waiter;

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
struct Live<'c> {
    controller: &'c Controller,
    waiter: &'c Waiter,
}

impl Live<'_> {
    async fn run(&self, sqe: Sqe, data: Data, name: &'static str) -> Result<Data, Kind> {
        let Self { controller, waiter } = *self;
        let done = controller.admin_with(waiter, sqe, data, None).await;
        let (cqe, data) = done.map_err(|error| match error {
            Error::Timeout { .. } => Kind::TimedOut { after_ms: controller.options().admin_timeout_ms.into() },
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

/// Authenticates again, and waits until it has.
pub(super) fn reauthenticate(controller: &Controller) -> Result<Reauthenticated, ConnectError> {
    let shared = &controller.0.shared;
    let sequence = async { Ok(again(controller, &shared.waiter).await) };
    shared.run(sequence).unwrap_or_else(|_| {
        let kind = Kind::Unsupported { what: "a stepped controller cannot wait for its answers" };
        Err(ConnectError::new(kind, tried(controller)))
    })
}

/// Authenticates again. With secure channel concatenation, the key for TLS is replaced: queues that
/// are connected from now on use the new one.
pub(super) async fn again(controller: &Controller, waiter: &Waiter) -> Result<Reauthenticated, ConnectError> {
    let refused = |kind| ConnectError::new(kind, tried(controller));
    let (options, info) = (controller.options(), controller.0.shared.info());
    let replacement = info.psk.get().map(|_| info.psk.begin_replacement());
    let secure_channel = if replacement.is_some() { SecureChannel::Replace } else { SecureChannel::None };
    let mut queue = Live { controller, waiter };
    let proof = authenticate::authenticate(options, secure_channel, &mut queue).await.map_err(refused)?;
    if options.dhchap_ctrl_key.is_some() && !proof.is_mutual {
        return Err(refused(Kind::NotProven));
    }
    let has_replaced_psk = replacement.is_some();
    if let Some(replacement) = replacement {
        replacement.finish(authenticate::generated(options, &proof).map_err(refused)?);
    }
    let Proof { hash, group, is_mutual, .. } = proof;
    Ok(Reauthenticated { hash, group, is_mutual, has_replaced_psk })
}

fn tried(controller: &Controller) -> Tried {
    Tried { step: Step::Authenticate, ..controller.options().tried(0) }
}
