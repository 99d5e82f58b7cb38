//! Whether a target answers at an address, before anything is asked of it.

use crate::connect::establish::admin_queue;
use crate::error::connect_error::{ConnectError, ConnectErrorKind as Kind};
use crate::link;
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
    let wanted = admin_queue(None);
    match run(link::connect(options, wanted, &mut tried, &waiter, &cancel)) {
        Ok((link, _)) => {
            link.end();
            Ok(())
        }
        Err(kind) => Err(ConnectError::new(kind, tried)),
    }
}
