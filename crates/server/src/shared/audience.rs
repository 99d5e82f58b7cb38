//! What a target does for its drives: shows what they have become, tells queues what they have
//! lost, and says what their hosts did. When it is done is the drives' matter.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, MutexGuard, Weak};

use ebof_drive::FunctionId;
use ebof_drive::health::Usage as Work;
use ebof_fabrics::{Counts, Handle, Model, Notices, Objects, Registry};
use ebof_nvme::{Nqn, Nsid};

use super::Shared;
use super::mailbox::Message;
use crate::drives::device::DeviceTable;
use crate::drives::{Audience, DriveActor, DriveCallbacks, Lost, Observed};
use crate::environment::remembered;
use crate::observe::stats::{Kind, Series};

impl Audience for Shared {
    fn registry(&self) -> MutexGuard<'_, Registry> {
        Self::registry(self)
    }

    fn deliver(&self, notices: Notices) {
        Self::deliver(self, notices);
    }

    fn show_devices(&self, table: &Arc<DeviceTable>) {
        self.post_all(|| Message::Devices(Arc::clone(table)));
    }

    fn follow(&self, model: &Model) {
        self.shares.follow(model);
    }

    fn store(&self, objects: &Objects) -> io::Result<()> {
        remembered::store(&*self.settings.environment.objects, objects)
    }
}

/// Has every drive publish through `shared`.
pub(crate) fn connect(shared: &Arc<Shared>, actors: &[(Nqn, Arc<DriveActor>)]) {
    for (nqn, actor) in actors {
        let of_publish: (Weak<Shared>, Nqn) = (Arc::downgrade(shared), nqn.clone());
        let of_observe = of_publish.clone();
        let of_send_event = of_publish.clone();
        let of_drain = of_publish.clone();
        let of_cancel = of_publish.clone();
        let of_report = Arc::downgrade(shared);
        actor.join(DriveCallbacks {
            publish: Box::new(move |by, reservations, events| {
                let (shared, nqn) = &of_publish;
                if let Some(shared) = shared.upgrade() {
                    shared.drives.publish(nqn, by, reservations, events, &*shared);
                }
            }),
            send_event: Box::new(move |controller, event| {
                let (shared, nqn) = &of_send_event;
                if let Some(shared) = shared.upgrade() {
                    let registry = shared.registry();
                    shared.deliver(registry.raise_on(nqn, controller, event));
                }
            }),
            drain: Box::new(move |lost, token| {
                let (shared, nqn) = &of_drain;
                let Some(shared) = shared.upgrade() else { return };
                for (handle, nsid) in queues_that_lost(&shared, nqn, lost) {
                    shared.post(handle, Message::Drain { handle, nsid, token: token.clone() });
                }
            }),
            cancel: Box::new(move |lost| {
                let (shared, nqn) = &of_cancel;
                let Some(shared) = shared.upgrade() else { return };
                for (handle, nsid) in queues_that_lost(&shared, nqn, lost) {
                    shared.post(handle, Message::Cancel { handle, nsid });
                }
            }),
            report: Box::new(move |event| {
                if let Some(shared) = of_report.upgrade() {
                    shared.report(event);
                }
            }),
            observe: Box::new(move |after| {
                let (shared, nqn) = &of_observe;
                shared.upgrade().map(|shared| observe(&shared, nqn, after)).unwrap_or_default()
            }),
        });
    }
}

/// The queues that may have commands to what was lost, with what each has lost.
fn queues_that_lost(shared: &Shared, drive: &Nqn, lost: &Lost) -> Vec<(Handle, Nsid)> {
    let registry = shared.registry();
    let queues = |&(nsid, function): &(Nsid, Option<FunctionId>)| {
        registry.queues_that_lost(drive, nsid, function).into_iter().map(move |handle| (handle, nsid))
    };
    lost.iter().flat_map(queues).collect()
}

/// What the hosts of a drive did since the target was started.
fn observe(shared: &Shared, nqn: &Nqn, after: u64) -> Observed {
    let mut usage: BTreeMap<u32, Work> = BTreeMap::new();
    let mut writers: BTreeMap<u32, BTreeMap<String, u64>> = BTreeMap::new();
    let totals = shared.totals();
    let names: BTreeSet<String> = shared.registry().subsystems_of(nqn).map(Nqn::to_string).collect();
    let is_of_drive = |series: &Series| names.contains(&series.subsystem);
    for (series, kinds) in totals.iter().filter(|(series, _)| is_of_drive(series)) {
        let [read, write] = [Kind::Read, Kind::Write].map(|kind| &kinds[kind as usize]);
        usage.entry(series.nsid).or_default().add(&Work {
            bytes_read: read.bytes,
            bytes_written: write.bytes,
            read_commands: read.commands,
            write_commands: write.commands,
        });
    }
    for (series, kinds) in totals.iter().filter(|(series, _)| is_of_drive(series)) {
        let count = kinds[Kind::Write as usize].commands;
        *writers.entry(series.nsid).or_default().entry(series.host.clone()).or_default() += count;
    }
    let registry = shared.registry();
    let counts =
        registry.subsystems_of(nqn).map(|nqn| registry.subsystem_counts(nqn)).fold(Counts::default(), Counts::plus);
    let errors = registry.errors_since(nqn, after);
    Observed { errors, usage, writers, busy_ms: counts.busy_ms, media_errors: counts.media_errors }
}
