//! What this host has attached, and what it does: the counters of attach daemons, and those of the
//! kernel for its own NVMe devices. Nothing of it changes anything.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ebof_attach::state::PathState;
use ebof_attach::state::{Record, State, StateDir};
use ebof_attach::stats::{Counted, CountedPath, Stats};
use ebof_attach::{Client, Device};
use ebof_initiator::Trouble;
use ebof_manage::history::ObjectCounters;
use ebof_manage::history::live::{Live, LiveKind, LiveObject, LiveTable};

use super::diskstats::{self, KernelDisk};
use crate::failure::Failure;

/// How long a daemon may take to answer.
const ANSWER: Duration = Duration::from_millis(500);

/// The most controllers that are looked at.
const CONTROLLERS_MAX: usize = 256;

/// The most objects.
const OBJECTS_MAX: usize = 4096;

/// The largest file of the kernel that is read.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// This host.
pub(crate) struct ThisHost {
    states: StateDir,
    /// `/proc` and `/sys`.
    proc: PathBuf,
    sys: PathBuf,
    began: Instant,
    live: Live,
    clients: HashMap<String, Client>,
    /// The only controller or namespace that is wanted.
    only: Option<String>,
}

impl std::fmt::Debug for ThisHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThisHost").field("states", &self.states).field("only", &self.only).finish_non_exhaustive()
    }
}

/// Objects, and remarks about those that cannot be looked at.
#[derive(Debug, Default)]
struct Found {
    objects: Vec<LiveObject>,
    remarks: Vec<String>,
}

impl ThisHost {
    /// With all that it has attached, or only the device of this name: `nvme0`, `nvme0n1`, or the
    /// path of a block device.
    pub(crate) fn new(only: Option<String>) -> Self {
        Self::at(StateDir::standard(), Path::new("/proc"), Path::new("/sys"), only)
    }

    fn at(states: StateDir, proc: &Path, sys: &Path, only: Option<String>) -> Self {
        let live = Live::new(OBJECTS_MAX, OBJECTS_MAX);
        let (proc, sys) = (proc.to_owned(), sys.to_owned());
        Self { states, proc, sys, began: Instant::now(), live, clients: HashMap::new(), only }
    }

    /// What everything did since the look before, and remarks about what cannot be looked at.
    ///
    /// # Errors
    /// The state directory cannot be read; there is no such device.
    pub(crate) fn look(&mut self) -> Result<(LiveTable, Vec<String>), Failure> {
        let mut found = self.attached()?;
        let disks = diskstats::parse(&read(&self.proc.join("diskstats")));
        found.objects.extend(disks.into_iter().map(|disk| self.of_kernel(disk)));
        if let Some(only) = &self.only {
            let wanted = wanted(&found.objects, only);
            found.objects.retain(wanted);
            if found.objects.is_empty() {
                let advice = "`ebof list` shows what is attached; a target's objects are shown by `ebof top --target`";
                return Err(Failure::new("not-connected", format!("`{only}` is not attached to this host"), advice));
            }
        } else if found.objects.is_empty() {
            found.remarks.push("nothing is attached: `ebof connect` attaches the namespaces of a target".to_owned());
        }
        let now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_ms = u64::try_from(unix.as_millis()).unwrap_or(u64::MAX);
        self.live.take(now_ms, unix_ms, found.objects);
        Ok((self.live.table().clone(), found.remarks))
    }

    /// What attach daemons have counted of their devices, and remarks about what cannot be looked
    /// at. What the kernel's own host has is not in it.
    ///
    /// # Errors
    /// The state directory cannot be read.
    pub(crate) fn counted(mut self) -> Result<(Vec<LiveObject>, Vec<String>), Failure> {
        let Found { objects, remarks } = self.attached()?;
        Ok((objects, remarks))
    }

    /// What attach daemons hold.
    fn attached(&mut self) -> Result<Found, Failure> {
        let records = self.states.records().map_err(|error| {
            let advice = "--runtime-dir and $EBOF_RUNTIME_DIR name another runtime directory";
            Failure::new("io", error.to_string(), advice)
        })?;
        let mut found = Found::default();
        let (live, dead): (Vec<Record>, Vec<Record>) = records.into_iter().partition(|record| record.live);
        for given_up in dead.iter().filter(|record| record.given_up().is_some()) {
            found.remarks.push(format!("{}: it was given up: `ebof list` tells why", given_up.name));
        }
        if live.len() > CONTROLLERS_MAX {
            found.remarks.push(format!("only {CONTROLLERS_MAX} of {} controllers are shown", live.len()));
        }
        self.clients.retain(|name, _| live.iter().any(|record| record.name == *name));
        for record in live.into_iter().take(CONTROLLERS_MAX) {
            // Without a state it is still connecting for the first time.
            let Some(state) = record.state else { continue };
            let (state, stats) = match self.ask(&record.name) {
                Ok((state, stats)) => (state, Some(stats)),
                Err(error) => {
                    self.clients.remove(&record.name);
                    found.remarks.push(format!("{}: {error}", record.name));
                    (state, None)
                }
            };
            found.remarks.extend(stats.as_ref().and_then(|stats| troubles(&record.name, stats)));
            found.objects.extend(of_daemon(&state, stats.as_ref()));
        }
        Ok(found)
    }

    /// State and counters of a daemon.
    fn ask(&mut self, name: &str) -> Result<(State, Stats), String> {
        let client = match self.clients.entry(name.to_owned()) {
            std::collections::hash_map::Entry::Occupied(client) => client.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => {
                let mut client = ebof_attach::open_in(&self.states, name).map_err(|error| error.to_string())?;
                client.limit(Some(ANSWER)).map_err(|error| error.to_string())?;
                place.insert(client)
            }
        };
        let state = client.status().map_err(|error| error.to_string())?.clone();
        let stats = client.stats().map_err(|error| match error {
            ebof_attach::Error::Daemon { .. } => {
                "its attach daemon is of a version that counts nothing: disconnect and connect it again".to_owned()
            }
            error => error.to_string(),
        })?;
        Ok((state, stats))
    }

    /// A namespace of the kernel's host.
    fn of_kernel(&self, disk: KernelDisk) -> LiveObject {
        let KernelDisk { name, controller, counters, in_flight } = disk;
        let device = self.sys.join("block").join(&name).join("device");
        let mut labels = labels(&[("controller", &controller), ("front", "kernel"), ("path", &format!("/dev/{name}"))]);
        for (label, file) in [("state", "state"), ("subsystem", "subsysnqn"), ("address", "address")] {
            let text = read(&device.join(file));
            if let Some(line) = text.lines().next().map(str::trim).filter(|line| !line.is_empty()) {
                labels.insert(label.to_owned(), line.chars().take(LABEL_CHARS_MAX).collect());
            }
        }
        LiveObject { object: LiveKind::Namespace.named(name), counters, in_flight: Some(in_flight), labels }
    }
}

/// The longest label, characters: an NQN fits.
const LABEL_CHARS_MAX: usize = 256;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let short = |value: &str| value.chars().take(LABEL_CHARS_MAX).collect();
    pairs.iter().map(|&(name, value)| (name.to_owned(), short(value))).collect()
}

/// A file of the kernel; empty if it cannot be read.
fn read(path: &Path) -> String {
    let mut text = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut text));
    if let Err(error) = read {
        tracing::debug!(%error, path = %path.display(), "not read");
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// The controller of a daemon, its queues, its paths and its namespaces.
fn of_daemon(state: &State, stats: Option<&Stats>) -> Vec<LiveObject> {
    let address = state.request.address();
    let of_all = labels(&[
        ("controller", &state.name),
        ("state", &state.state),
        ("subsystem", &state.subnqn),
        ("address", &address),
        ("front", &state.front),
    ]);
    let object = |object, counted: Option<ObjectCounters>, in_flight, own: &[(&str, &str)]| {
        let mut labels = labels(own);
        labels.extend(of_all.clone());
        LiveObject { object, counters: counted.unwrap_or_default(), in_flight, labels }
    };
    let mut whole = ObjectCounters::default();
    let mut in_flight = 0_u64;
    let mut objects = Vec::new();
    for queue in stats.iter().flat_map(|stats| &stats.queues) {
        let counters = queue.counters();
        whole.kinds.iter_mut().zip(&counters.kinds).for_each(|(sum, kind)| sum.add(kind));
        in_flight = in_flight.saturating_add(queue.in_flight);
        let name = LiveKind::Queue.named(format!("{}/q{}", state.name, queue.id));
        objects.push(object(name, Some(counters), Some(queue.in_flight), &[("queue", &queue.id.to_string())]));
    }
    let name = LiveKind::Controller.named(&state.name);
    let troubles: Vec<(&str, String)> = stats
        .iter()
        .flat_map(|stats| &stats.troubles)
        .map(|(name, count)| (name.as_str(), count.to_string()))
        .collect();
    let troubles: Vec<(&str, &str)> = troubles.iter().map(|(name, count)| (*name, count.as_str())).collect();
    objects.push(object(name, Some(whole), stats.map(|_| in_flight), &troubles));
    for path in &state.paths {
        let counted = stats.and_then(|stats| counted_of(&stats.paths, &state.name, path));
        let own = path_labels(path, counted);
        let own: Vec<(&str, &str)> = own.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let name = LiveKind::Path.named(&path.name);
        let mut row = object(name, counted.map(CountedPath::counters), counted.map(|counted| counted.in_flight), &[]);
        row.labels.extend(labels(&own));
        objects.push(row);
    }
    let counted = |nsid: u32| stats.and_then(|stats| stats.namespaces.iter().find(|namespace| namespace.id == nsid));
    for Device { name, nsid, path, .. } in &state.devices {
        let counted = counted(*nsid);
        let in_flight = stats.map(|_| counted.map_or(0, |counted| counted.in_flight));
        let path = path.as_ref().map_or_else(String::new, |path| path.display().to_string());
        let own = [("nsid", &*nsid.to_string()), ("path", path.as_str())];
        let counters = counted.map(Counted::counters);
        objects.push(object(LiveKind::Namespace.named(name), counters, in_flight, &own));
    }
    if let Some(others) = counted(0) {
        let name = LiveKind::Namespace.named(format!("{}, others", state.name));
        objects.push(object(name, Some(others.counters()), Some(others.in_flight), &[]));
    }
    objects
}

/// What a daemon has counted of a path.
fn counted_of<'s>(counted: &'s [CountedPath], device: &str, path: &PathState) -> Option<&'s CountedPath> {
    counted.iter().find(|counted| path.name == format!("{device}c{}", counted.id))
}

/// What is told of a path; `access` as a list where it differs between namespaces.
fn path_labels(path: &PathState, counted: Option<&CountedPath>) -> Vec<(&'static str, String)> {
    let mut labels = vec![("state", path.state.clone()), ("address", path.address())];
    let access: BTreeSet<&str> = path.access.values().map(String::as_str).collect();
    if !access.is_empty() {
        labels.push(("access", access.into_iter().collect::<Vec<_>>().join(",")));
    }
    labels.extend([("enabled", path.enabled.to_string()), ("preferred", path.preferred.to_string())]);
    if let Some(counted) = counted {
        let CountedPath { failovers, repeated, fences, fenced_ms, reconnects, latency_us, .. } = counted;
        let numbers = [
            ("failovers", failovers),
            ("repeated", repeated),
            ("fences", fences),
            ("fenced_ms", fenced_ms),
            ("reconnects", reconnects),
        ];
        labels.extend(numbers.map(|(name, number)| (name, number.to_string())));
        labels.extend(latency_us.map(|us| ("latency_us", us.to_string())));
    }
    labels
}

/// What is wrong with a connection: the network, or an end of it.
fn troubles(name: &str, stats: &Stats) -> Option<String> {
    let faults = Trouble::ALL.into_iter().filter(|trouble| trouble.is_fault());
    let seen = faults.filter_map(|fault| Some(format!("{} {fault}", stats.troubles.get(fault.name())?)));
    let seen: Vec<String> = seen.collect();
    (!seen.is_empty()).then(|| format!("{name}: since it was connected: {}", seen.join("; ")))
}

/// Whether an object is wanted by somebody who names a device: itself, or what is of its
/// controller, except for other namespaces if a namespace is named.
fn wanted(objects: &[LiveObject], only: &str) -> impl Fn(&LiveObject) -> bool + use<> {
    let name = only.strip_prefix("/dev/").unwrap_or(only).to_owned();
    let path = only.to_owned();
    let is_it = move |it: &LiveObject| {
        !matches!(it.object.kind, LiveKind::Queue | LiveKind::Path) && it.object.name == name
            || it.labels.get("path").is_some_and(|known| *known == path)
    };
    let named = objects.iter().find(|it| is_it(it));
    let controller = named.and_then(|it| it.labels.get("controller")).or_else(|| {
        // One of the kernel's host has no row of its own.
        let known = objects.iter().filter_map(|it| it.labels.get("controller"));
        known.into_iter().find(|known| only.strip_prefix("/dev/").unwrap_or(only) == known.as_str())
    });
    let controller = controller.cloned();
    let is_namespace = named.is_some_and(|it| it.object.kind == LiveKind::Namespace);
    move |it: &LiveObject| {
        let is_of_it = controller.is_some() && it.labels.get("controller") == controller.as_ref();
        if is_namespace && it.object.kind == LiveKind::Namespace { is_it(it) } else { is_of_it }
    }
}

#[cfg(test)]
mod tests;
