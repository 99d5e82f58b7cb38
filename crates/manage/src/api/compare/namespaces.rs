//! The namespaces of one subsystem at two targets: the same NSID has to be the same data, with the
//! same identifiers, size and format.

use std::collections::{BTreeMap, BTreeSet};

use super::{Grade, Pair, SameFile, Served};
use crate::api::NamespaceStatus;
use crate::config::{BlockSize, IdentityRule, Namespace, Subsystem, default_uuid};
use crate::drive::Drive;

/// The largest block of a plain namespace.
const LARGEST_BLOCK_BYTES: u64 = 4096;

/// A namespace as far as it is known.
struct Known {
    uuid: Option<String>,
    /// Whether the UUID follows the data, so that the same one means the same data.
    is_of_data: bool,
    nguid: Option<String>,
    eui64: Option<String>,
    size_bytes: Option<u64>,
    /// Whether the size is that of the open device; one that is configured may be no multiple of
    /// a block.
    is_open: bool,
    block_bytes: Option<u32>,
    write_protect: bool,
    ana_group: u32,
    /// Where its data are; `None` for a drive that hosts manage.
    data: Option<Drive>,
}

impl Known {
    fn new(subsystem: &Subsystem, namespace: &Namespace, status: Option<&NamespaceStatus>) -> Self {
        let is_by_name = subsystem.identity == IdentityRule::Name;
        let by_name = || is_by_name.then(|| default_uuid(&subsystem.nqn, namespace.nsid));
        let reported = status.and_then(|status| status.uuid.clone());
        let uuid = reported.or_else(|| namespace.uuid.or_else(by_name).map(|uuid| uuid.to_string()));
        // A device that is missing has no size.
        let open = status.filter(|status| status.size_bytes > 0);
        Self {
            nguid: namespace.nguid.map(|nguid| nguid.to_string()).or_else(|| uuid.as_deref().map(digits)),
            uuid,
            is_of_data: !is_by_name && namespace.uuid.is_none(),
            eui64: namespace.eui64.map(|eui64| eui64.to_string()),
            is_open: open.is_some(),
            size_bytes: open.map(|open| open.size_bytes).or_else(|| namespace.drive.size_bytes()),
            block_bytes: open.map(|open| open.block_size_bytes).or_else(|| namespace.block_size.map(BlockSize::bytes)),
            write_protect: namespace.write_protect,
            ana_group: namespace.ana_group,
            data: Some(namespace.drive.clone()),
        }
    }

    fn of_drive(status: &NamespaceStatus) -> Self {
        Self {
            uuid: status.uuid.clone(),
            is_of_data: false,
            nguid: status.uuid.as_deref().map(digits),
            eui64: None,
            size_bytes: Some(status.size_bytes),
            is_open: true,
            block_bytes: Some(status.block_size_bytes),
            write_protect: status.write_protect,
            ana_group: status.ana_group,
            data: None,
        }
    }

    /// What hosts know it by.
    fn identity(&self) -> Option<String> {
        let own_nguid = self.nguid.as_ref().filter(|nguid| self.uuid.as_deref().map(digits).as_ref() != Some(*nguid));
        let parts = [("uuid", self.uuid.as_ref()), ("nguid", own_nguid), ("eui64", self.eui64.as_ref())];
        let told: Vec<_> = parts.iter().filter_map(|(name, value)| Some(format!("{name} {}", (*value)?))).collect();
        (!told.is_empty()).then(|| told.join(", "))
    }

    fn place(&self) -> String {
        self.data.as_ref().map_or_else(|| "a drive that hosts manage".to_owned(), ToString::to_string)
    }
}

/// The NGUID that a namespace has by its UUID.
fn digits(uuid: &str) -> String {
    uuid.replace('-', "")
}

/// The namespaces that hosts have of it, by NSID.
fn namespaces_of(served: &Served<'_>) -> BTreeMap<u32, Known> {
    let reported = served.status.map(|status| &status.namespaces[..]).unwrap_or_default();
    if served.subsystem.drive.is_some() {
        return reported.iter().map(|status| (status.nsid, Known::of_drive(status))).collect();
    }
    let status = |nsid| reported.iter().find(|status| status.nsid == nsid);
    let namespaces = served.subsystem.enabled_namespaces();
    namespaces.map(|it| (it.nsid, Known::new(served.subsystem, it, status(it.nsid)))).collect()
}

/// The ANA groups that have namespaces.
pub(super) fn groups(served: &Served<'_>) -> BTreeSet<u32> {
    namespaces_of(served).values().map(|namespace| namespace.ana_group).collect()
}

pub(super) fn compare(pair: &mut Pair<'_>, same_file: SameFile<'_>) {
    if pair.a.subsystem.drive.is_some() != pair.b.subsystem.drive.is_some() {
        // Told already.
        return;
    }
    let [all, others] = [namespaces_of(&pair.a), namespaces_of(&pair.b)];
    for (nsid, namespace) in &all {
        match others.get(nsid) {
            Some(other) => compare_one(pair, &format!("namespace {nsid}"), [namespace, other], same_file),
            None => only_there(pair, *nsid, namespace, &others, true),
        }
    }
    let only_b = others.iter().filter(|(nsid, _)| !all.contains_key(nsid));
    only_b.for_each(|(nsid, namespace)| only_there(pair, *nsid, namespace, &all, false));
    let is_unknown = |served: &Served<'_>| served.subsystem.drive.is_some() && served.status.is_none();
    if is_unknown(&pair.a) || is_unknown(&pair.b) {
        let words = (
            "drive",
            "the namespaces of drives that hosts manage are known to running targets only",
            "compare the running targets",
        );
        pair.add(Grade::Unknown, "", words, [None, None]);
    }
}

/// A namespace that one target has.
fn only_there(pair: &mut Pair<'_>, nsid: u32, namespace: &Known, others: &BTreeMap<u32, Known>, is_a: bool) {
    let is_same = |other: &Known| {
        let same = |own: &Option<String>, other: &Option<String>| own.is_some() && own == other;
        same(&namespace.uuid, &other.uuid)
            || same(&namespace.nguid, &other.nguid)
            || same(&namespace.eui64, &other.eui64)
    };
    let values = |here: String, there: Option<String>| if is_a { [Some(here), there] } else { [there, Some(here)] };
    let object = format!("namespace {nsid}");
    match others.iter().find(|(_, other)| is_same(other)) {
        Some((other_nsid, _)) if is_a => {
            let words = (
                "nsid",
                "it has other NSIDs at the two targets, with the same identifiers",
                "give it the same `nsid`: hosts refuse it as a duplicate otherwise",
            );
            let values = values(format!("NSID {nsid}"), Some(format!("NSID {other_nsid}")));
            pair.add(Grade::Contradiction, &object, words, values);
        }
        Some(_) => {}
        None => {
            let words = (
                "only-one",
                "only one target has it: hosts have no path to it through the other",
                "add it there, or leave it if that is meant",
            );
            pair.add(Grade::Note, &object, words, values(namespace.place(), None));
        }
    }
}

fn compare_one(pair: &mut Pair<'_>, object: &str, both: [&Known; 2], same_file: SameFile<'_>) {
    let [a, b] = both;
    let differs = |a: &Option<String>, b: &Option<String>| matches!((a, b), (Some(a), Some(b)) if a != b);
    let has_other = |a: &Option<String>, b: &Option<String>| a.is_some() != b.is_some();
    let is_other = differs(&a.uuid, &b.uuid) || differs(&a.nguid, &b.nguid) || differs(&a.eui64, &b.eui64);
    let identities = both.map(Known::identity);
    if is_other || has_other(&a.eui64, &b.eui64) {
        let words = (
            "identity",
            "its identifiers differ",
            "hosts refuse the second path, or take both for two disks: if the data are the same, set `uuid` (and \
             `nguid`, `eui64`) to the same at both targets; if not, give one another `nsid`",
        );
        pair.add(Grade::Contradiction, object, words, identities);
    } else if a.uuid.is_none() || b.uuid.is_none() {
        let words = (
            "identity",
            "its UUID follows its data, and is known to a running target only",
            "compare the running targets, or set `uuid` at both",
        );
        pair.add(Grade::Unknown, object, words, identities);
    } else {
        compare_data(pair, object, both, same_file);
    }
    compare_form(pair, object, both);
}

/// Of namespaces with the same identifiers: whether their data are the same.
fn compare_data(pair: &mut Pair<'_>, object: &str, both: [&Known; 2], same_file: SameFile<'_>) {
    let [a, b] = both;
    let is_same = match (&a.data, &b.data) {
        (Some(Drive::Null { .. }), Some(Drive::Null { .. })) => Some(true),
        (Some(Drive::File(a)), Some(Drive::File(b))) => same_file(&a.path, &b.path),
        // Memory, or drives, which are one target's each.
        _ => Some(false),
    };
    let is_told_by_uuid = a.is_of_data && b.is_of_data && is_same.is_none();
    let values = both.map(|it| Some(it.place()));
    match is_same {
        Some(true) => {}
        None if is_told_by_uuid => {}
        Some(false) => {
            let words = (
                "data",
                "it has the same identifiers at both targets, and other data",
                "hosts would read from one what they wrote to the other: serve the same storage, or give one of them \
                 other identifiers and another `nsid`",
            );
            pair.add(Grade::Contradiction, object, words, values);
        }
        None => {
            let words = (
                "data",
                "it has the same identifiers at both targets; whether these are the same data cannot be told from here",
                "make sure that both paths lead to the same device",
            );
            pair.add(Grade::Unknown, object, words, values);
        }
    }
}

fn compare_form(pair: &mut Pair<'_>, object: &str, [a, b]: [&Known; 2]) {
    let worst = Grade::Contradiction;
    let unit = if a.is_open == b.is_open { 1 } else { LARGEST_BLOCK_BYTES };
    let sizes = [a, b].map(|it| it.size_bytes);
    if let [Some(a), Some(b)] = sizes
        && a.abs_diff(b) >= unit
    {
        let advice = "hosts refuse the second path: it has to be the same data at both targets";
        pair.differ(worst, object, ("size", "its sizes differ", advice), &[a, b].map(|bytes| format!("{bytes} bytes")));
    }
    if let (Some(a), Some(b)) = (a.block_bytes, b.block_bytes) {
        let words = ("block-size", "its block sizes differ", "set `block_size` to the same at both targets");
        pair.differ(worst, object, words, &[a, b].map(|bytes| format!("{bytes} bytes")));
    }
    let words =
        ("write-protect", "it is write protected at one target", "set `write_protect` to the same at both targets");
    pair.differ(worst, object, words, &[a.write_protect, b.write_protect]);
    let advice = "set `ana_group` to the same at both targets: a namespace is in one group, whatever the path";
    let words = ("ana-group", "its ANA groups differ", advice);
    pair.differ(worst, object, words, &[a.ana_group, b.ana_group]);
}
