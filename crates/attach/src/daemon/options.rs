//! The initiator's options for a request.

use ebof_initiator::Options;
use ebof_nvme::Nqn;
use ebof_nvme::uri::Transport;

use crate::error::Error;
use crate::request::Request;

/// The initiator's options for a request.
pub(super) fn of(request: &Request) -> Result<Options, Error> {
    let nqn = Nqn::parse(&request.nqn)
        .map_err(|error| Error::daemon(format!("the NQN {:?} is not legal: {error}", request.nqn)))?;
    let transport = Transport::from_name(&request.transport)
        .ok_or_else(|| Error::daemon(format!("transport {:?} is not supported", request.transport)))?;
    let mut options = Options::new(request.traddr.clone(), request.trsvcid, nqn);
    options.transport = transport.into();
    request.overrides.apply(&mut options);
    // One more than requested, for commands of clients.
    options.nr_io_queues = options.nr_io_queues.max(1).saturating_add(1);
    Ok(options)
}
