//! The discovery service: reading its log in one consistent state.

use std::net::{Ipv4Addr, SocketAddr};

use ebof_nvme::log::{DiscoveryEntries, DiscoveryEntry, DiscoveryHeader, GetLogPage, Lid, SupportedLogPages, lsp};
use ebof_nvme::{Cqe, Nsid, Sqe};
use std::time::Duration;
use zerocopy::FromBytes;

use crate::command::data::AdminData;
use crate::connect::{establish, steps};
use crate::error::Error;
use crate::error::connect_error::{ConnectError, ConnectErrorKind as Kind, Step};
use crate::link::stop;
use crate::options::Options;
use crate::wait::{Waiter, run};

/// A discovery log page, read in one consistent state.
#[derive(Clone, Debug)]
pub struct DiscoveryLog {
    /// Generation counter (GENCTR).
    pub generation: u64,
    /// Record format (RECFMT).
    pub record_format: u16,
    /// The entries.
    pub entries: Vec<DiscoveryEntry>,
    /// The address of the discovery service; 0.0.0.0:0 for transports without addresses.
    pub peer: SocketAddr,
    /// How many entries more the log has: at most 4096 are read.
    pub left_out: u64,
    /// What was asked for and the service does not have: it answered with its usual entries.
    pub not_offered: Which,
}

/// Which entries of a discovery log are asked for: neither is what the service lists usually.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Which {
    /// Port Local Entries Only (PLEO): those of the port that is asked.
    pub port_local: bool,
    /// All NVM Subsystem Entries (ALLSUBE).
    pub all_subsystems: bool,
}

impl Which {
    /// As Log Specific Parameter.
    fn parameter(self) -> u8 {
        let bit = |wanted: bool, bit: u8| if wanted { bit } else { 0 };
        bit(self.port_local, lsp::PORT_LOCAL) | bit(self.all_subsystems, lsp::ALL_SUBSYSTEMS)
    }

    fn of_parameter(parameter: u8) -> Self {
        Self { port_local: parameter & lsp::PORT_LOCAL != 0, all_subsystems: parameter & lsp::ALL_SUBSYSTEMS != 0 }
    }
}

impl DiscoveryLog {
    /// Reads the discovery log through `run`, which runs Get Log Page at a controller that
    /// transfers up to `max` bytes with a command. What of `which` the controller does not offer is
    /// not asked for. The caller sets `peer`.
    ///
    /// # Errors
    /// Those of `run`; the log has no form, or changes whenever it is read.
    pub fn read(
        max: Option<u64>,
        which: Which,
        mut run: impl FnMut(Sqe, &mut [u8]) -> Result<Cqe, Error>,
    ) -> Result<Self, Error> {
        let wanted = which.parameter();
        // A controller may take a parameter that it does not know for a mistake.
        let offered = if wanted == 0 { 0 } else { offered(&mut run)? };
        let log = read_log_with(log_piece(max), wanted & offered, run)?;
        Ok(Self { not_offered: Which::of_parameter(wanted & !offered), ..log })
    }
}

/// The parameters that a controller offers of its discovery log; none if it does not say.
fn offered(run: &mut impl FnMut(Sqe, &mut [u8]) -> Result<Cqe, Error>) -> Result<u8, Error> {
    let mut bytes = vec![0; size_of::<SupportedLogPages>()];
    let get = GetLogPage::new(Lid::SUPPORTED_LOG_PAGES, bytes.len() as u64);
    match run(get.encode(Nsid::NONE), &mut bytes) {
        Err(Error::Status { .. }) => Ok(0),
        Err(error) => Err(error),
        Ok(_) => {
            let log = SupportedLogPages::read_from_bytes(&bytes);
            let log = log.map_err(|_| Error::Malformed("the log of supported log pages"))?;
            let [parameter, _] = log.support(Lid::DISCOVERY).parameter().to_le_bytes();
            Ok(parameter)
        }
    }
}

/// The most entries that are read (4 MiB).
const ENTRIES_MAX: usize = 4096;
/// How often a log that changes while it is read is read again.
const TRIES: usize = 10;

/// Reads the discovery log at `options`' address, up to ten times if it changes while it is read.
/// `options.nqn` may be the well-known discovery NQN or the service's own.
///
/// # Errors
/// As [`crate::Controller::connect`].
pub fn discover(options: &Options) -> Result<DiscoveryLog, ConnectError> {
    discover_which(options, Which::default())
}

/// As [`discover`], of some entries only, or of more, if the service offers that.
///
/// # Errors
/// As [`discover`].
pub fn discover_which(options: &Options, which: Which) -> Result<DiscoveryLog, ConnectError> {
    // The connection is short: no I/O queues, no Keep Alive.
    let mut options = options.clone();
    options.nr_io_queues = 0;
    options.nr_write_queues = 0;
    options.nr_poll_queues = 0;
    options.keep_alive_ms = 0;
    let options = &options;
    let mut tried = options.tried(0);
    let waiter = Waiter::on_thread(&options.clock);
    let cancel = waiter.cancel().map_err(|errno| {
        ConnectError::new(Kind::System { action: "making an event descriptor", errno }, tried.clone())
    })?;
    let (mut engine, info) = run(establish::controller(options, Some(true), &waiter, &cancel))?;
    tried.address = Some(info.peer);
    tried.step = Step::Identify;
    let time = Duration::from_millis(u64::from(options.admin_timeout_ms));
    let read = DiscoveryLog::read(info.limits.transfer_bytes, which, |sqe, data| {
        let answer = run(steps::run(
            &mut engine,
            sqe,
            &mut AdminData::ToHost(data),
            waiter.time.now() + time,
            &waiter,
            Some(&cancel),
        ));
        let cqe = answer.map_err(|stop| stop.into_error(time))?;
        cqe.status().ok().map_err(|status| Error::Status { command: "Get Log Page (Discovery)", status })?;
        Ok(cqe)
    });
    let mut log = read.map_err(|error| ConnectError::new(log_kind(error), tried))?;
    log.peer = info.peer;
    Ok(log)
}

fn log_kind(error: Error) -> Kind {
    match error {
        Error::Status { command, status } => Kind::Status { command, status },
        Error::Timeout { after_ms } => Kind::TimedOut { after_ms },
        Error::System { action, errno } => Kind::System { action, errno },
        Error::Lost(loss) => stop::of_loss(loss),
        Error::Unsettled(_) => Kind::LogChanges,
        other => Kind::Protocol { violation: other.to_string() },
    }
}

/// Bytes of a log page to read with one command, which may transfer `max` bytes.
pub(crate) fn log_piece(max: Option<u64>) -> usize {
    const PIECE: usize = 128 << 10;
    max.map_or(PIECE, |max| usize::try_from(max).unwrap_or(PIECE).clamp(4096, PIECE))
}

/// Reads the log in pieces of `piece` bytes through `run`, which runs Get Log Page. The caller sets
/// `peer`.
pub(crate) fn read_log(
    piece: usize,
    run: impl FnMut(Sqe, &mut [u8]) -> Result<Cqe, Error>,
) -> Result<DiscoveryLog, Error> {
    read_log_with(piece, 0, run)
}

fn read_log_with(
    piece: usize,
    parameter: u8,
    mut run: impl FnMut(Sqe, &mut [u8]) -> Result<Cqe, Error>,
) -> Result<DiscoveryLog, Error> {
    let mut bytes = vec![0; size_of::<DiscoveryHeader>()];
    let mut read = |bytes: &mut [u8], from: usize| -> Result<(), Error> {
        let mut at = from;
        while at < bytes.len() {
            let end = bytes.len().min(at + piece);
            let get = GetLogPage::new(Lid::DISCOVERY, (end - at) as u64);
            let get = GetLogPage { offset: at as u64, retain_event: end < bytes.len(), lsp: parameter, ..get };
            run(get.encode(Nsid::NONE), &mut bytes[at..end])?;
            at = end;
        }
        Ok(())
    };
    read(&mut bytes, 0)?;
    for _ in 0..TRIES {
        let before = header(&bytes)?;
        let entries = usize::try_from(before.numrec.get()).unwrap_or(usize::MAX).min(ENTRIES_MAX);
        bytes.resize(size_of::<DiscoveryHeader>() + entries * size_of::<DiscoveryEntry>(), 0);
        let behind = size_of::<DiscoveryHeader>();
        read(&mut bytes, behind)?;
        let mut again = vec![0; size_of::<DiscoveryHeader>()];
        read(&mut again, 0)?;
        let after = header(&again)?;
        if after.genctr == before.genctr && after.numrec == before.numrec {
            let (_, found) = DiscoveryEntries::new(&bytes).ok_or(Error::Malformed("a discovery log"))?;
            return Ok(DiscoveryLog {
                generation: before.genctr.get(),
                record_format: before.recfmt.get(),
                entries: found.cloned().collect(),
                peer: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
                left_out: before.numrec.get().saturating_sub(entries as u64),
                not_offered: Which::default(),
            });
        }
        bytes = again;
    }
    Err(Error::Unsettled("the discovery log"))
}

fn header(bytes: &[u8]) -> Result<DiscoveryHeader, Error> {
    DiscoveryHeader::read_from_prefix(bytes).map(|(header, _)| header).map_err(|_| Error::Malformed("a discovery log"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_times_out_is_reported_with_the_time() {
        assert_eq!(log_kind(Error::Timeout { after_ms: 700 }), Kind::TimedOut { after_ms: 700 });
    }
    use ebof_nvme::Status;
    use ebof_nvme::log::LidSupport;
    use zerocopy::IntoBytes;

    /// A log of `records` records that changes its generation at the reads named in `changes`.
    fn service(records: u64, changes: Vec<usize>) -> impl FnMut(Sqe, &mut [u8]) -> Result<Cqe, Error> {
        let mut generation = 5;
        let mut reads = 0;
        move |sqe, data| {
            reads += 1;
            if changes.contains(&reads) {
                generation += 1;
            }
            let mut log = DiscoveryHeader { genctr: generation.into(), numrec: records.into(), ..Default::default() }
                .as_bytes()
                .to_vec();
            for port in 0..records.min(100) {
                let mut entry = DiscoveryEntry::default();
                entry.portid.set(u16::try_from(port + generation).unwrap());
                log.extend_from_slice(entry.as_bytes());
            }
            log.resize(8 << 20, 0);
            let from = usize::try_from(sqe.cdw12.get()).unwrap();
            assert_eq!(GetLogPage::decode(&sqe).bytes, data.len() as u64);
            data.copy_from_slice(&log[from..from + data.len()]);
            Ok(Cqe::new(sqe.cid(), Status::SUCCESS))
        }
    }

    #[test]
    fn a_log_is_assembled_from_pieces() {
        let log = read_log(4096, service(9, vec![])).unwrap();
        let ports: Vec<u16> = log.entries.iter().map(|entry| entry.portid.get()).collect();
        assert_eq!((log.generation, ports), (5, (5..14).collect()));
    }

    #[test]
    fn a_log_that_changes_while_it_is_read_is_read_again() {
        let log = read_log(4096, service(3, vec![2])).unwrap();
        assert_eq!((log.generation, log.entries[0].portid.get()), (6, 6));
        let error = read_log(4096, service(3, (1..100).collect())).unwrap_err();
        assert!(error.to_string().contains("changes faster"));
        assert_eq!(log_kind(error), Kind::LogChanges, "which is no mistake of the service");
    }

    // @test hostile.target
    #[test]
    fn the_number_of_records_of_a_log_is_limited() {
        let log = read_log(128 << 10, service(u64::MAX, vec![])).unwrap();
        assert_eq!((log.entries.len(), log.left_out), (ENTRIES_MAX, u64::MAX - ENTRIES_MAX as u64));
    }

    // @test host.discovery-entries
    #[test]
    fn only_entries_that_the_service_offers_are_asked_for() {
        let asked = |which: Which, offered: Option<u8>| {
            let mut parameters = Vec::new();
            let mut log = service(3, vec![]);
            let read = DiscoveryLog::read(None, which, |sqe, data| {
                let get = GetLogPage::decode(&sqe);
                if get.lid == Lid::DISCOVERY {
                    parameters.push(get.lsp);
                    return log(sqe, data);
                }
                let Some(offered) = offered else {
                    return Err(Error::Status { command: "Get Log Page", status: Status::INVALID_LOG_PAGE });
                };
                let mut pages = SupportedLogPages::default();
                pages.set(Lid::DISCOVERY, LidSupport::with_parameter(offered.into()));
                data.copy_from_slice(pages.as_bytes());
                Ok(Cqe::new(sqe.cid(), Status::SUCCESS))
            });
            (parameters.pop().unwrap(), read.unwrap().not_offered)
        };
        let (neither, both) = (Which::default(), Which { port_local: true, all_subsystems: true });
        assert_eq!(asked(neither, None), (0, neither));
        assert_eq!(asked(both, Some(0b110)), (0b110, neither));
        assert_eq!(asked(both, Some(0b010)), (0b010, Which { all_subsystems: true, ..neither }));
        assert_eq!(asked(both, None), (0, both));
    }
}
