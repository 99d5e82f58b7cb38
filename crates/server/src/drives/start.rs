//! From a medium to the actor of its drive: the state is read, and what a sudden end has left is
//! put in order.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock, Weak};

use ebof_backend::Device;
use ebof_clock::Clock;
use ebof_drive::{Change, Drive, Identity, Origin, Settings, State, VolumeId, budget};
use ebof_medium::{Notify, Opened, Stepper};

use super::actor::{DriveActor, step_until};
use super::leftovers::remove_orphans;
use super::monitor::MonitorJob;
use super::open_error::DriveOpenError;
use super::report;
use super::sensor::Sensor;

/// What is to be known about a drive to open it.
#[derive(Debug)]
pub(crate) struct Plan {
    /// What the configuration calls it.
    pub(crate) name: String,
    pub(crate) backing: Arc<dyn Device>,
    pub(crate) options: ebof_medium::Options,
    pub(crate) settings: Settings,
    /// The identity of a new drive.
    pub(crate) identity: Identity,
    pub(crate) sensor: Option<Sensor>,
    pub(crate) clock: Clock,
}

/// Whether what a sudden end has left was put in order.
type InOrder = Result<(), ebof_medium::Error>;

impl Plan {
    /// Passes the medium's notices to the actor, which the caller has to set in the returned cell.
    fn notified(&mut self) -> Arc<OnceLock<Weak<DriveActor>>> {
        let itself: Arc<OnceLock<Weak<DriveActor>>> = Arc::default();
        let actor = Arc::clone(&itself);
        self.options.notify = Some(Notify(Arc::new(move |notice| {
            if let Some(actor) = actor.get().and_then(Weak::upgrade) {
                actor.on_notice(notice);
            }
        })));
        itself
    }
}

/// Opens the drive and puts in order what a sudden end has left.
pub(super) fn start(mut plan: Plan) -> Result<Arc<DriveActor>, DriveOpenError> {
    let itself = plan.notified();
    let opened = ebof_medium::open(Arc::clone(&plan.backing), std::mem::take(&mut plan.options))?;
    let (actor, outcome) = begin(opened, plan, &itself)?;
    outcome.recv().unwrap_or(Err(ebof_medium::Error::Stopped))?;
    Ok(actor)
}

/// The same for a drive without threads.
pub(super) fn start_stepped(mut plan: Plan) -> Result<(Arc<DriveActor>, Stepper), DriveOpenError> {
    let itself = plan.notified();
    let (opened, mut stepper) = ebof_medium::open_stepped(Arc::clone(&plan.backing), &plan.options)?;
    let (actor, outcome) = begin(opened, plan, &itself)?;
    step_until(&mut stepper, &outcome).unwrap_or(Err(ebof_medium::Error::Stopped))?;
    Ok((actor, stepper))
}

/// The actor of a medium that was opened, and the receiver of the outcome of its repair.
fn begin(
    opened: Opened,
    plan: Plan,
    itself: &OnceLock<Weak<DriveActor>>,
) -> Result<(Arc<DriveActor>, Receiver<InOrder>), DriveOpenError> {
    let Plan { name, backing, settings, identity, sensor, clock, .. } = plan;
    let below = backing.describe();
    let Opened { medium, snapshot, changes, was_clean, created, in_flux, damage } = opened;
    let mut state = State::restore(snapshot.as_deref().unwrap_or_default(), &changes)?;
    trim(&mut state, &name);
    let new = state.identity == Identity::default();
    let capacity = medium.capacity();
    let sizes = ebof_drive::Capacity { total_bytes: capacity.total_bytes, extent_bytes: capacity.extent_bytes };
    tracing::info!(
        drive = name,
        created,
        was_clean,
        in_flux,
        capacity_bytes = sizes.total_bytes,
        namespaces = state.namespaces.len(),
        "drive opened"
    );
    let mut drive = Drive::new(state, settings, sizes);
    if let Some(damage) = damage {
        report::note_damage(&mut drive, &name, &below, &damage);
    }
    let actor = Arc::new(DriveActor::new(medium, drive, (name, below), created, sensor, clock));
    let _first = itself.set(Arc::downgrade(&actor));
    let (done, outcome) = channel();
    let own = Arc::clone(&actor);
    actor.medium().run(Box::new(move |store| {
        // Asked on the thread of this closure, between requests: the drive has every change
        // that is durable. Also when the actor was given up without having been stopped, as
        // by a start that fails afterwards: the medium is closed with a checkpoint then.
        store.set_snapshot(own.state.snapshot());
        let mut changes = own.drive().opened(&Origin::box_(), &own.state.input());
        if new {
            changes.insert(0, Change::Made { identity });
        }
        let made = own.state.commit(store, changes);
        store.start(Box::new(MonitorJob(Arc::downgrade(&own))));
        own.jobs.start(&own, store);
        // The receiver is gone if another thread could not be started.
        let _ = done.send(made.and_then(|()| {
            let known: Vec<VolumeId> = own.drive().state().volumes().collect();
            remove_orphans(store, own.medium().volumes(), &known, &own.log)
        }));
    }));
    Ok((actor, outcome))
}

/// An earlier version let hosts make a drive remember more than is kept well: it opens, and takes
/// no more of it.
fn trim(state: &mut State, drive: &str) {
    let bytes = state.to_bytes().len();
    if bytes <= budget::STATE_BYTES_MAX {
        return;
    }
    // What a checkpoint has room for besides namespaces, bad blocks and tags is not known before it
    // is written: it is more.
    let forgot = state.shrink(budget::STATE_BYTES_MAX + budget::STATE_BYTES_MAX / 4);
    tracing::warn!(
        drive,
        bytes,
        bytes_max = budget::STATE_BYTES_MAX,
        forgot,
        "the drive remembers more than it may: no more registrants and attachments are taken until there are fewer"
    );
}
