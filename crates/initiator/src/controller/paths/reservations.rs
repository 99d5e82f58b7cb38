//! Reservations of a namespace with several paths. A registrant is a host, by its identifier: all
//! controllers of a host are one (Base, "Reservations"), so what is registered over one path holds
//! for all of them, and for those that join later.
//!
//! Two things are looked after here. A command that was lost with its path is repeated only if the
//! report does not show its effect. And a path whose controller has other reservations, such as
//! that of a second target, is not used: it would let this host in where others have shut it out.

use ebof_nvme::identify::field::rescap;
use ebof_nvme::opcode::nvm;
use ebof_nvme::reservation::{
    Acquire, AcquireAction, AcquireKeys, PersistenceChange, Register, RegisterAction, RegisterKeys, Release,
    ReleaseAction, ReleaseKey, Report, ReportedRegistrant, ReservationType, read_report,
};
use ebof_nvme::{HostId, Nsid, Sqe, Status};
use zerocopy::{FromBytes, IntoBytes};

use super::calls::PathNamespace;
use crate::command::data::AdminData;
use crate::command::fate::Fate;
use crate::controller::namespace::Namespace;
use crate::error::Error;
use crate::error::state::State;
use crate::queue::{QueuePair, TransferPiece};
use crate::wait::run;

/// Bytes of a report that are read first: 63 registrants.
const REPORT_BYTES: usize = 4096;
/// Bytes of the longest report.
const REPORT_BYTES_MAX: usize = 64 * 65_536;
/// How often two reports are compared that change meanwhile.
const COMPARISONS: u32 = 4;

/// The reservations of a namespace. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PathReservations {
    namespace: PathNamespace,
}

/// What Reservation Report says, without the controllers: those are of the path that was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservations {
    /// Counts changes of registrations (GEN).
    pub generation: u32,
    /// The reservation that is held.
    pub held: Option<ReservationType>,
    /// Whether registrants and reservation persist through power loss (PTPLS).
    pub is_persistent: bool,
    /// The registrants, by their host identifiers.
    pub registrants: Vec<ReservationRegistrant>,
}

/// A host that is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReservationRegistrant {
    /// Its identifier.
    pub host_id: HostId,
    /// Its key.
    pub key: u64,
    /// Whether it holds the reservation, alone or with the other registrants.
    pub is_holder: bool,
}

/// A command that changes reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Register(Register, RegisterKeys),
    Acquire(Acquire, AcquireKeys),
    Release(Release, ReleaseKey),
}

impl PathReservations {
    pub(super) fn new(namespace: PathNamespace) -> Self {
        Self { namespace }
    }

    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &PathNamespace {
        &self.namespace
    }

    /// Who is registered, and who holds what.
    ///
    /// # Errors
    /// As [`PathNamespace::read`].
    pub fn report(&self) -> Result<Reservations, Error> {
        read(|sqe, data| {
            let fate = Fate::of(nvm::RESERVATION_REPORT, false);
            self.namespace.execute_one("Reservation Report", sqe, &mut AdminData::ToHost(data), fate, || Ok(false))
        })
    }

    /// Registers, unregisters or replaces this host's key: for all paths. A path over which that
    /// does not show is not used for the namespace any more, which the log says.
    ///
    /// # Errors
    /// As [`PathNamespace::read`].
    pub fn register(&self, register: Register, keys: RegisterKeys) -> Result<(), Error> {
        self.change(Change::Register(register, keys))
    }

    /// Acquires a reservation, or takes it from others.
    ///
    /// # Errors
    /// As [`PathNamespace::read`].
    pub fn acquire(&self, acquire: Acquire, keys: AcquireKeys) -> Result<(), Error> {
        self.change(Change::Acquire(acquire, keys))
    }

    /// Releases a reservation, or clears it and all registrants.
    ///
    /// # Errors
    /// As [`PathNamespace::read`].
    pub fn release(&self, release: Release, key: ReleaseKey) -> Result<(), Error> {
        self.change(Change::Release(release, key))
    }

    /// Runs Reservation Register, Acquire or Release as it is, but for its NSID.
    ///
    /// # Errors
    /// As [`PathNamespace::read`]; Invalid Field in Command for any other command, and for data
    /// that are too short.
    pub fn execute(&self, sqe: Sqe, data: &[u8]) -> Result<(), Error> {
        let change = Change::decode(&sqe, data);
        let refused = Error::Status { command: "a reservation command", status: Status::INVALID_FIELD };
        self.change(change.ok_or(refused)?)
    }

    fn change(&self, change: Change) -> Result<(), Error> {
        let (command, sqe, data) = change.encode(self.namespace.nsid());
        let host = self.namespace.options().host_id;
        let is_done = || Ok(change.shows_in(&self.report()?, host));
        self.namespace.execute_one(command, sqe, &mut AdminData::FromHost(&data), Fate::Wait, is_done)?;
        if matches!(change, Change::Register(..)) {
            self.leave_others(change, host);
        }
        Ok(())
    }

    /// Leaves the paths over which a change does not show that shows over others.
    fn leave_others(&self, change: Change, host: HostId) {
        let (head, paths) = (self.namespace.head(), self.namespace.inner().paths());
        let live = paths.iter().filter(|path| path.controller.state() == State::Live);
        let mut handles: Vec<_> = live.filter_map(|path| Some((path, path.handle(head)?))).collect();
        if handles.len() < 2 {
            return;
        }
        let shows = |handle: &Namespace| read_over(handle).map(|there| change.shows_in(&there, host));
        // If it shows nowhere, others have changed it since.
        if !handles.iter().any(|(_, handle)| shows(handle) == Some(true)) {
            return;
        }
        handles.retain(|(_, handle)| shows(handle) == Some(false));
        for (path, handle) in &handles {
            let (nsid, address) = (handle.nsid().0, path.controller.options().address());
            tracing::error!(
                nsid, %address,
                "what was registered does not show over this path, whose target has other reservations: it is not used \
                 for the namespace"
            );
            path.unbind(head);
        }
        if !handles.is_empty() {
            self.namespace.inner().announce();
        }
    }
}

/// How the reservations of a namespace differ over two paths, if they do and both can be asked:
/// as they are over `here`, and over `there`.
pub(super) fn differ(here: &Namespace, there: &Namespace) -> Option<(String, String)> {
    if there.identify().rescap & !NO_TYPES == 0 || here.controller().options().host_id == HostId::default() {
        return None;
    }
    let mut before = read_over(here)?;
    for _ in 0..COMPARISONS {
        let other = read_over(there)?;
        if other == before {
            return None;
        }
        let now = read_over(here)?;
        if now == before {
            return Some((before.to_string(), other.to_string()));
        }
        before = now;
    }
    // They change too fast to be compared: it is used.
    None
}

/// Bits of RESCAP that announce no type of reservations.
const NO_TYPES: u8 = rescap::PERSIST | rescap::IGNORE_EXISTING_KEY;

/// The reservations over one path; `None` if it does not tell them now.
fn read_over(namespace: &Namespace) -> Option<Reservations> {
    let controller = namespace.controller();
    // Of its own, if there is a free one: of those of the pool, one would be missing to whoever
    // counts on all queues.
    let mut queue: Option<QueuePair<Vec<u8>>> = match controller.queue_pair() {
        Ok(queue) => Some(queue),
        Err(Error::NoFreeQueue { .. }) => None,
        Err(_) => return None,
    };
    let read = read(|sqe, data| {
        let (command, sqe) = ("Reservation Report", sqe.with_nsid(namespace.nsid()));
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let mut data = AdminData::ToHost(data);
        let Some(queue) = &mut queue else {
            let piece = std::iter::once(TransferPiece { sqe, start: 0, length });
            let attempt = namespace.attempt(&controller.shared().waiter, command, piece, &mut data);
            return run(attempt).map_err(|failed| failed.error);
        };
        let cqe = queue.execute(sqe, data)?;
        cqe.status().ok().map_err(|status| Error::Status { command, status })
    });
    read.ok()
}

/// Reads a whole report.
fn read(mut run: impl FnMut(Sqe, &mut [u8]) -> Result<(), Error>) -> Result<Reservations, Error> {
    let mut bytes = REPORT_BYTES;
    loop {
        let mut data = vec![0; bytes];
        run(Report { bytes: bytes as u64, extended: true }.encode(Nsid::NONE), &mut data)?;
        let (header, registrants) = read_report(&data, true).ok_or(Error::Malformed("a reservation report"))?;
        let count = usize::from(header.regstrnt.get());
        if registrants.len() >= count || bytes >= REPORT_BYTES_MAX {
            let of = |one: ReportedRegistrant| ReservationRegistrant {
                host_id: HostId(one.host_id),
                key: one.key,
                is_holder: one.holder,
            };
            let mut registrants: Vec<_> = registrants.into_iter().map(of).collect();
            registrants.sort_unstable();
            return Ok(Reservations {
                generation: header.r#gen.get(),
                held: ReservationType::decode(header.rtype),
                is_persistent: header.ptpls != 0,
                registrants,
            });
        }
        bytes = ((count + 1) * 64).max(bytes * 2).min(REPORT_BYTES_MAX);
    }
}

impl Reservations {
    /// The registration of a host.
    #[must_use]
    pub fn registrant(&self, host: HostId) -> Option<&ReservationRegistrant> {
        self.registrants.iter().find(|one| one.host_id == host)
    }
}

impl std::fmt::Display for Reservations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Keys are not told: who knows one may preempt its host.
        let held = self.held.map_or("none", ReservationType::name);
        write!(f, "{} registrants, generation {}, reservation: {held}", self.registrants.len(), self.generation)?;
        let mut holders = self.registrants.iter().filter(|one| one.is_holder);
        match (holders.next(), holders.next()) {
            (Some(holder), None) => write!(f, " of {}", holder.host_id),
            _ => Ok(()),
        }
    }
}

impl Change {
    fn decode(sqe: &Sqe, data: &[u8]) -> Option<Self> {
        Some(match sqe.opcode {
            nvm::RESERVATION_REGISTER => {
                Self::Register(Register::decode(sqe), RegisterKeys::read_from_prefix(data).ok()?.0)
            }
            nvm::RESERVATION_ACQUIRE => {
                Self::Acquire(Acquire::decode(sqe), AcquireKeys::read_from_prefix(data).ok()?.0)
            }
            nvm::RESERVATION_RELEASE => Self::Release(Release::decode(sqe), ReleaseKey::read_from_prefix(data).ok()?.0),
            _ => return None,
        })
    }

    fn encode(&self, nsid: Nsid) -> (&'static str, Sqe, Vec<u8>) {
        match self {
            Self::Register(register, keys) => ("Reservation Register", register.encode(nsid), keys.as_bytes().to_vec()),
            Self::Acquire(acquire, keys) => ("Reservation Acquire", acquire.encode(nsid), keys.as_bytes().to_vec()),
            Self::Release(release, key) => ("Reservation Release", release.encode(nsid), key.as_bytes().to_vec()),
        }
    }

    /// Whether reservations are as they are after this command of `host`. Where others have changed
    /// them since, they may not be, although it was executed: then its repetition says how it
    /// stands.
    fn shows_in(&self, now: &Reservations, host: HostId) -> bool {
        let mine = now.registrant(host);
        let mut others = now.registrants.iter().filter(|one| one.host_id != host);
        let holds = |rtype: u8| mine.is_some_and(|mine| mine.is_holder) && now.held == ReservationType::decode(rtype);
        match self {
            Self::Register(register, keys) => {
                let is_kept = match register.persistence {
                    PersistenceChange::Set => now.is_persistent,
                    PersistenceChange::Clear => !now.is_persistent,
                    PersistenceChange::None | PersistenceChange::Reserved => true,
                };
                is_kept
                    && match register.action {
                        RegisterAction::Unregister => mine.is_none(),
                        _ => mine.is_some_and(|mine| mine.key == keys.nrkey.get()),
                    }
            }
            Self::Acquire(acquire, keys) => match acquire.action {
                AcquireAction::Acquire => holds(acquire.rtype),
                _ => {
                    // 0: all others, of a reservation that all registrants hold.
                    let victims = keys.prkey.get();
                    let is_victim = |one: &ReservationRegistrant| one.key == victims || victims == 0;
                    let is_mine = now.held.is_none() || mine.is_some_and(|mine| mine.is_holder);
                    !others.any(is_victim) && (victims != 0 || is_mine)
                }
            },
            Self::Release(release, _) => match release.action {
                ReleaseAction::Clear => mine.is_none(),
                _ => !mine.is_some_and(|mine| mine.is_holder),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: HostId = HostId([1; 16]);
    const THERE: HostId = HostId([2; 16]);
    const EXCLUSIVE: ReservationType = ReservationType::WriteExclusive;

    /// Registrants with their keys, and who holds a reservation.
    fn state(registrants: &[(HostId, u64)], holder: Option<HostId>) -> Reservations {
        let of = |&(host_id, key): &(HostId, u64)| ReservationRegistrant {
            host_id,
            key,
            is_holder: holder == Some(host_id),
        };
        Reservations {
            generation: 1,
            held: holder.map(|_| EXCLUSIVE),
            is_persistent: false,
            registrants: registrants.iter().map(of).collect(),
        }
    }

    fn register(action: RegisterAction, crkey: u64, nrkey: u64) -> Change {
        let register = Register { action, ignore_existing_key: false, persistence: PersistenceChange::None };
        Change::Register(register, RegisterKeys { crkey: crkey.into(), nrkey: nrkey.into() })
    }

    fn acquire(action: AcquireAction, prkey: u64) -> Change {
        let acquire = Acquire { action, ignore_existing_key: false, rtype: EXCLUSIVE.encode() };
        Change::Acquire(acquire, AcquireKeys { crkey: 7.into(), prkey: prkey.into() })
    }

    fn release(action: ReleaseAction) -> Change {
        let release = Release { action, ignore_existing_key: false, rtype: EXCLUSIVE.encode() };
        Change::Release(release, ReleaseKey { crkey: 7.into() })
    }

    // @test paths.reservations
    #[test]
    fn what_a_lost_command_has_done_shows_in_the_report() {
        let both = [(HERE, 7), (THERE, 8)];
        let preempt = || acquire(AcquireAction::Preempt, 8);
        // The command, a state before it, and one after it.
        let table = [
            (register(RegisterAction::Register, 0, 7), state(&[(THERE, 8)], None), state(&both, None)),
            (register(RegisterAction::Replace, 6, 7), state(&[(HERE, 6)], None), state(&[(HERE, 7)], None)),
            (register(RegisterAction::Unregister, 7, 0), state(&both, None), state(&[(THERE, 8)], None)),
            (acquire(AcquireAction::Acquire, 0), state(&both, None), state(&both, Some(HERE))),
            (acquire(AcquireAction::Acquire, 0), state(&both, Some(THERE)), state(&both, Some(HERE))),
            (preempt(), state(&both, Some(THERE)), state(&[(HERE, 7)], Some(HERE))),
            (preempt(), state(&both, None), state(&[(HERE, 7)], None)),
            (acquire(AcquireAction::PreemptAndAbort, 8), state(&both, Some(HERE)), state(&[(HERE, 7)], Some(HERE))),
            (release(ReleaseAction::Release), state(&both, Some(HERE)), state(&both, None)),
            (release(ReleaseAction::Clear), state(&both, Some(HERE)), state(&[], None)),
        ];
        for (change, before, after) in table {
            assert!(!change.shows_in(&before, HERE), "{change:?}");
            assert!(change.shows_in(&after, HERE), "{change:?}");
        }
        let persistent = Register {
            action: RegisterAction::Register,
            ignore_existing_key: true,
            persistence: PersistenceChange::Set,
        };
        let persistent = Change::Register(persistent, RegisterKeys { crkey: 0.into(), nrkey: 7.into() });
        assert!(!persistent.shows_in(&state(&both, None), HERE));
        assert!(persistent.shows_in(&Reservations { is_persistent: true, ..state(&both, None) }, HERE));
    }

    #[test]
    fn commands_are_read_as_they_were_written() {
        for change in [
            register(RegisterAction::Replace, 1, 2),
            acquire(AcquireAction::PreemptAndAbort, 3),
            release(ReleaseAction::Clear),
        ] {
            let (_, sqe, data) = change.encode(Nsid(1));
            assert_eq!(Change::decode(&sqe, &data), Some(change));
            assert_eq!(Change::decode(&sqe, &data[1..]), None);
        }
        assert_eq!(Change::decode(&Sqe::new(nvm::WRITE), &[0; 64]), None);
    }

    #[test]
    fn what_is_told_of_reservations_has_no_keys() {
        let text = state(&[(HERE, 0xdead_beef)], Some(HERE)).to_string();
        assert!(text.starts_with("1 registrants, generation 1, reservation: write exclusive of "), "{text}");
        assert!(!text.contains("beef") && !text.contains("3735928559"), "{text}");
    }
}
