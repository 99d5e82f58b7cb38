//! What this process has connected, by which only it is known what it may disconnect: others may
//! have connected the same subsystem, before or since, and names are used again.

use std::collections::HashSet;

use ebof_attach::state::{PathState, Record};

/// The connections that this process has made, and those of an earlier one of its owner.
#[derive(Default)]
pub(super) struct OwnConnections(Vec<Connection>);

/// A controller with devices of its own, or one that became a path of devices that were there.
struct Connection {
    nqn: String,
    /// The devices' name: `nvme0`.
    name: String,
    /// Process id and start time of their daemon.
    daemon: (u32, u64),
    /// The path: `nvme0c1`; none if it is not known which paths are its owner's.
    path: Option<String>,
    /// Whether the devices were made for it.
    has_devices: bool,
    /// Whether it is disconnected when no service lists the subsystem any more.
    goes: bool,
}

impl OwnConnections {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether anything is to be disconnected when its subsystem is not listed any more.
    pub(super) fn may_go(&self) -> bool {
        self.0.iter().any(|connection| connection.goes)
    }

    /// Adds devices `name`, or `path` if it was added to devices that were there.
    pub(super) fn add_connected(
        &mut self,
        nqn: &str,
        (name, path): (&str, Option<&str>),
        goes: bool,
        records: &[Record],
    ) {
        let Some(state) = live(records, name).and_then(|record| record.state.as_ref()) else { return };
        let first = || state.paths.first().map(|path| path.name.clone());
        self.add(Connection {
            nqn: nqn.to_owned(),
            name: name.to_owned(),
            daemon: (state.pid, state.pid_start),
            path: path.map(str::to_owned).or_else(first),
            has_devices: path.is_none(),
            goes,
        });
    }

    /// Adds devices that were there, if they are of this owner and of the subsystem.
    pub(super) fn add_of_owner(&mut self, nqn: &str, name: &str, owner: Option<&str>, goes: bool, records: &[Record]) {
        let Some(record) = live(records, name) else { return };
        let is_its = |owner| {
            record.request().is_some_and(|request| request.owner.as_deref() == Some(owner) && request.nqn == nqn)
        };
        let (Some(state), true) = (&record.state, owner.is_some_and(is_its)) else { return };
        let daemon = (state.pid, state.pid_start);
        if self.0.iter().any(|connection| connection.daemon == daemon) {
            // What was connected here is known better.
            self.mark(nqn, goes);
            return;
        }
        self.add(Connection {
            nqn: nqn.to_owned(),
            name: name.to_owned(),
            daemon,
            path: None,
            has_devices: true,
            goes,
        });
    }

    fn add(&mut self, connection: Connection) {
        let nqn = connection.nqn.clone();
        self.0.push(connection);
        let goes = self.0.iter().any(|connection| connection.nqn == nqn && connection.goes);
        self.mark(&nqn, goes);
    }

    /// Whether a subsystem goes is a matter of all of its connections.
    fn mark(&mut self, nqn: &str, goes: bool) {
        for connection in self.0.iter_mut().filter(|connection| connection.nqn == nqn) {
            connection.goes |= goes;
        }
    }

    /// Forgets what is not connected any more.
    pub(super) fn forget_ended(&mut self, records: &[Record]) {
        self.0.retain(|connection| connection.is_there(records));
    }

    /// Takes out what is to be disconnected because its subsystem is not listed any more: subsystem
    /// and device of each.
    pub(super) fn take_unlisted(&mut self, listed: &HashSet<&str>, records: &[Record]) -> Vec<(String, String)> {
        let is_gone = |connection: &Connection| connection.goes && !listed.contains(connection.nqn.as_str());
        let (mut gone, stay): (Vec<_>, Vec<_>) = std::mem::take(&mut self.0).into_iter().partition(is_gone);
        self.0 = stay;
        gone.retain(|connection| connection.is_there(records));
        let is_own = |name: &str, daemon| {
            gone.iter().any(|connection| connection.daemon == daemon && connection.path.as_deref() == Some(name))
        };
        // With the devices go all of their paths, and some may be others'.
        let goes_whole = |connection: &Connection| {
            let paths = connection.record(records).and_then(|record| record.state.as_ref()).map(|state| &state.paths);
            let is_known = |path: &PathState| is_own(&path.name, connection.daemon);
            connection.has_devices && (connection.path.is_none() || paths.into_iter().flatten().all(is_known))
        };
        let whole: HashSet<_> =
            gone.iter().filter(|connection| goes_whole(connection)).map(|connection| connection.daemon).collect();
        let device = |connection: &Connection| match &connection.path {
            Some(path) if !whole.contains(&connection.daemon) => Some(path.clone()),
            _ => connection.has_devices.then(|| connection.name.clone()),
        };
        gone.iter().filter_map(|connection| Some((connection.nqn.clone(), device(connection)?))).collect()
    }
}

impl Connection {
    /// The record of its daemon, which no other one that has the name by now is.
    fn record<'a>(&self, records: &'a [Record]) -> Option<&'a Record> {
        let is_its =
            |record: &&Record| record.state.as_ref().is_some_and(|state| (state.pid, state.pid_start) == self.daemon);
        live(records, &self.name).filter(is_its)
    }

    fn is_there(&self, records: &[Record]) -> bool {
        let Some(state) = self.record(records).and_then(|record| record.state.as_ref()) else { return false };
        self.has_devices || state.paths.iter().any(|path| self.path.as_ref() == Some(&path.name))
    }
}

fn live<'a>(records: &'a [Record], name: &str) -> Option<&'a Record> {
    records.iter().find(|record| record.name == name && record.live)
}

#[cfg(test)]
mod tests {
    use ebof_attach::Request;
    use serde_json::json;

    use super::*;

    const NQN: &str = "nqn.2014-08.org.example:x";

    /// A controller with a daemon that began at this time, and these paths.
    fn record(name: &str, pid_start: u64, paths: &[&str]) -> Record {
        let request = Request { nqn: NQN.to_owned(), owner: Some("unit".to_owned()), ..Request::default() };
        let path = |name: &&str| {
            json!({"name": name, "state": "live", "transport": "tcp", "traddr": "192.0.2.1", "trsvcid": 4420,
                   "peer": "", "cntlid": 1, "enabled": true, "preferred": false})
        };
        let state = json!({"version": 1, "name": name, "pid": 7, "pid_start": pid_start, "since": 0, "state": "live",
            "request": request, "hostnqn": "", "hostid": "", "subnqn": NQN, "peer": "", "cntlid": 1, "io_queues": 1,
            "model": "", "serial": "", "firmware": "", "front": "loop", "devices": [],
            "paths": paths.iter().map(path).collect::<Vec<_>>()});
        let state = Some(serde_json::from_value(state).unwrap());
        Record { name: name.to_owned(), directory: "/nonexistent".into(), live: true, state }
    }

    fn gone(own: &mut OwnConnections, records: &[Record]) -> Vec<String> {
        own.take_unlisted(&HashSet::new(), records).into_iter().map(|(_, device)| device).collect()
    }

    // @test host.persistent-own
    #[test]
    fn what_others_have_connected_is_not_taken_away() {
        // A path of the devices of others: only the path.
        let records = [record("nvme0", 1, &["nvme0c0", "nvme0c1"])];
        let mut own = OwnConnections::default();
        own.add_connected(NQN, ("nvme0", Some("nvme0c1")), true, &records);
        assert!(own.take_unlisted(&HashSet::from([NQN]), &records).is_empty(), "it is listed");
        assert_eq!(gone(&mut own, &records), ["nvme0c1"]);
        assert_eq!((own.len(), gone(&mut own, &records)), (0, Vec::new()));
        // Others have added a path: it stays.
        let first = [record("nvme0", 1, &["nvme0c0"])];
        own.add_connected(NQN, ("nvme0", None), true, &first);
        assert_eq!(gone(&mut own, &records), ["nvme0c0"]);
        // All paths are own ones.
        own.add_connected(NQN, ("nvme0", None), true, &first);
        own.add_connected(NQN, ("nvme0", Some("nvme0c1")), false, &records);
        assert_eq!(gone(&mut own, &records), ["nvme0"]);
        // Those of an earlier process of the owner.
        own.add_of_owner(NQN, "nvme0", Some("other"), true, &records);
        own.add_of_owner("nqn.2014-08.org.example:y", "nvme0", Some("unit"), true, &records);
        assert_eq!(own.len(), 0);
        own.add_of_owner(NQN, "nvme0", Some("unit"), true, &records);
        assert_eq!(gone(&mut own, &records), ["nvme0"]);
    }

    // @test host.persistent-own
    #[test]
    fn a_name_that_is_used_again_is_another_one() {
        let mut own = OwnConnections::default();
        let before = [record("nvme0", 1, &["nvme0c0"]), record("nvme1", 1, &["nvme1c0", "nvme1c1"])];
        own.add_connected(NQN, ("nvme0", None), true, &before);
        own.add_connected(NQN, ("nvme1", Some("nvme1c1")), true, &before);
        own.forget_ended(&before);
        assert_eq!(own.len(), 2);
        let after = [record("nvme0", 2, &["nvme0c0"]), record("nvme1", 1, &["nvme1c0"])];
        assert!(gone(&mut own, &after).is_empty());
        own.add_connected(NQN, ("nvme0", None), true, &before);
        own.forget_ended(&after);
        assert_eq!(own.len(), 0);
    }

    #[test]
    fn what_is_not_to_go_stays_and_counts() {
        let mut own = OwnConnections::default();
        let records = [record("nvme0", 1, &["nvme0c0"])];
        own.add_connected(NQN, ("nvme0", None), false, &records);
        assert_eq!((gone(&mut own, &records).len(), own.len()), (0, 1));
    }
}
