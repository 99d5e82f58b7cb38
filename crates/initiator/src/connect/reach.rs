//! Whether a target answers at an address, before anything is asked of it.

use ebof_nvme::{ControllerId, QueueId};

use crate::command::slots::Slots;
use crate::connect::establish::ADMIN_ENTRIES;
use crate::error::connect_error::{ConnectError, ConnectErrorKind as Kind};
use crate::link::{self, HostLink, Transport as _, Wanted, either};
use crate::options::Options;
use crate::wait::{Waiter, run};

/// Connects by the transport of `options` (over TCP with ICReq and ICResp, which a program that
/// hangs does not answer), and closes the connection before any command.
///
/// # Errors
/// As [`crate::Controller::connect`], as far as it comes.
pub fn reach(options: &Options) -> Result<(), ConnectError> {
    let mut tried = options.tried(0);
    let waiter = Waiter::on_thread(&options.clock);
    let cancel = waiter.cancel().map_err(|errno| {
        ConnectError::new(Kind::System { action: "making an event descriptor", errno }, tried.clone())
    })?;
    let wanted = Wanted { queue: QueueId::ADMIN, entries: ADMIN_ENTRIES, controller: ControllerId(0), in_capsule: 0 };
    match run(link::connect(options, wanted, &mut tried, &waiter, &cancel)) {
        Ok((mut link, _)) => {
            link.allow_graceful_close();
            either!(link, link => link.close(&mut Slots::<Vec<u8>>::new(1)));
            Ok(())
        }
        Err(kind) => Err(ConnectError::new(kind, tried)),
    }
}
