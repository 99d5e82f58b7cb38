//! How to connect, from what was asked for.

use std::time::Duration;

use ebof_initiator::Options;
use ebof_nvme::{HostId, Nqn};

use crate::error::Error;
use crate::request::Request;

/// The initiator's options for a request.
pub(super) fn of(request: &Request) -> Result<Options, Error> {
    let nqn = Nqn::parse(&request.nqn)
        .map_err(|error| Error::holder(format!("the NQN {:?} is not legal: {error}", request.nqn)))?;
    let mut options = Options::new(request.traddr.clone(), request.trsvcid, nqn);
    if let Some(hostnqn) = &request.hostnqn {
        options.host_nqn = Nqn::parse(hostnqn)
            .map_err(|error| Error::holder(format!("the host NQN {hostnqn:?} is not legal: {error}")))?;
        options.host_id = ebof_initiator::host::id_for(&options.host_nqn);
    }
    if let Some(hostid) = &request.hostid {
        options.host_id =
            HostId::parse(hostid).ok_or_else(|| Error::holder(format!("the host id {hostid:?} is not a UUID")))?;
    }
    options.host_traddr = request.host_traddr.clone();
    options.host_iface = request.host_iface.clone();
    if let Some(queues) = request.nr_io_queues {
        options.nr_io_queues = queues;
    }
    // One more than asked for: commands that clients send through the holder have a queue of their own.
    options.nr_io_queues = options.nr_io_queues.max(1).saturating_add(1);
    options.nr_write_queues = request.nr_write_queues.unwrap_or(0);
    options.nr_poll_queues = request.nr_poll_queues.unwrap_or(0);
    options.queue_size = request.queue_size.unwrap_or(options.queue_size);
    let ms = |seconds: u32| seconds.saturating_mul(1000);
    options.keep_alive_ms = request.keep_alive_tmo.map_or(options.keep_alive_ms, ms);
    options.reconnect_delay_ms = request.reconnect_delay.map_or(options.reconnect_delay_ms, ms);
    let limit = |seconds: i64| u64::try_from(seconds).ok().map(Duration::from_secs);
    options.ctrl_loss_tmo = request.ctrl_loss_tmo.map_or(options.ctrl_loss_tmo, limit);
    options.fast_io_fail_tmo = request.fast_io_fail_tmo.map_or(options.fast_io_fail_tmo, limit);
    (options.tos, options.so_priority) = (request.tos, request.so_priority);
    options.busy_poll_us = request.busy_poll_us;
    options.prefer_busy_poll = request.prefer_busy_poll;
    options.busy_poll_budget = request.busy_poll_budget;
    options.zerocopy_send = request.zerocopy_send;
    options.batch_timeout_us = request.batch_timeout_us.unwrap_or(options.batch_timeout_us);
    options.batch_nr = request.batch_nr.unwrap_or(options.batch_nr);
    options.batch_bytes = request.batch_bytes.unwrap_or(options.batch_bytes);
    options.hdr_digest = request.hdr_digest;
    options.data_digest = request.data_digest;
    options.disable_sqflow = request.disable_sqflow;
    Ok(options)
}
